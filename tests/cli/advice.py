"""Somebody who follows printed advice to the letter, and knows nothing else about what was printed.

Each rule reads one form in which colonnade gives advice. A message that none of them can follow is for people.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pandas as pd

QUOTED = r"'([^']*)'"


@dataclass
class Reader:
    """What a person has in front of them: the command they gave and what it said, in the folder they are in."""

    words: list[str]
    said: str
    typed: Callable[..., Any]
    """Gives a command of ours, and tells what it came to."""

    @property
    def file(self) -> Path:
        """The settings file that is spoken of: named, or the one whose table is, or the run's."""
        named = re.search(r"(?:^|[\s(])([^\s(:,]*\.toml)\b", self.said)
        if named and Path(named.group(1)).is_file():
            return Path(named.group(1))
        is_home = re.search(r"\[(party|table|policy|engine|partners)\b|party\.", self.said)
        return Path("bank/party.toml" if is_home else "run.toml")

    def section_of(self, name: str) -> str:
        lines = self.file.read_text().splitlines()
        place = next(number for number, line in enumerate(lines) if re.match(rf"{re.escape(name)}\s*=", line))
        return next(line[1:-1] for line in reversed(lines[:place]) if line.startswith("["))

    def set(self, table: str, name: str, value: str | None) -> None:
        """Write a setting into a table, in place of the one that is there; None takes it out."""
        lines, new = self.file.read_text().splitlines(), [] if value is None else [f"{name} = {value}"]
        if f"[{table}]" not in lines:
            lines += [f"[{table}]"]
        start = lines.index(f"[{table}]") + 1
        end = next((n for n, line in enumerate(lines[start:], start) if line.startswith("[")), len(lines))
        there = [n for n in range(start, end) if re.match(rf"#?{re.escape(name)}\s*=", lines[n])]
        lines[there[0] if there else start : there[0] + 1 if there else start] = new
        self.file.write_text("\n".join(lines) + "\n")

    def set_at_bank(self, name: str, value: str | None) -> None:
        """Write a setting of the only table that is spoken of."""
        self.said = "bank/party.toml"
        self.set("table", name, value)

    def value(self, name: str) -> str:
        found = re.search(rf"^{re.escape(name)}\s*=\s*(.*)$", self.file.read_text(), re.MULTILINE)
        assert found
        return found.group(1)

    def swap(self, wrong: str, right: str) -> None:
        """Put one word in the place of another: in the command, else in the file, else in a table's header."""
        if any(wrong in word for word in self.words):
            self.words = [word.replace(wrong, right) for word in self.words]
            return
        whole = re.compile(rf"(?<![A-Za-z0-9_.-]){re.escape(wrong)}(?![A-Za-z0-9_-])")
        for path in (self.file, Path("bank/party.toml"), Path("shop/party.toml")):
            text = path.read_text()
            if whole.search(text):
                path.write_text(whole.sub(lambda _: right, text, count=1))
                return
        raise LookupError(wrong)

    def give(self, option: str, value: str | None = None) -> None:
        """Add an option to the command, in place of one that says the same of the same."""
        if value is not None:
            about = value.partition("=")[0] + "=" if "=" in value else ""
            for place in range(len(self.words) - 1):
                if self.words[place] == option and self.words[place + 1].startswith(about):
                    self.words[place + 1] = value
                    return
        self.words += [option] if value is None else [option, value]

    def leave_out(self, option: str) -> None:
        place = self.words.index(option)
        has_value = place + 1 < len(self.words) and not self.words[place + 1].startswith("-") and option != "--list"
        takes = option in ("--mode", "--listen", "--reachable", "--table", "--home", "--folder", "--code")
        del self.words[place : place + (2 if has_value and takes else 1)]


def _run(reader: Reader, line: str) -> None:
    words = shlex.split(line)
    if words[0].startswith("--"):
        reader.give(*words)
    elif words[0] in ("chmod", "mkdir"):
        subprocess.run(words, check=True)
    else:
        start = 1 if words[0] == "colonnade" else words.index("colonnade") + 1
        assert reader.typed(*words[start:]).code == 0


def _write_line(reader: Reader, number: str, text: str) -> None:
    lines = reader.file.read_text().splitlines()
    lines[int(number) - 1] = text
    reader.file.write_text("\n".join(lines) + "\n")


def _move(reader: Reader, name: str, there: str) -> None:
    value = reader.value(name)
    text = re.sub(rf"^{re.escape(name)}\s*=.*\n", "", reader.file.read_text(), flags=re.MULTILINE)
    reader.file.write_text(text)
    reader.set(there, name, value)


def _did_you_mean(reader: Reader, right: str) -> None:
    before = reader.said.partition("Did you mean")[0]
    named = [*re.findall(QUOTED, before), *re.findall(r"\[([\w.]+)\]", before), *re.findall(r'Got "([^"]*)"', before)]
    named += [word for word in reader.words if word in before]
    (wrong,) = get_close_matches(right, [word for word in named if word != right], n=1, cutoff=0.0)
    reader.swap(wrong, right)


def _within(reader: Reader, name: str, lowest: str, which: str | None, highest: str | None) -> None:
    # Halfway where an end is excluded.
    text = f"{(int(lowest) + int(highest)) / 2:g}" if which == "and below" and highest else lowest
    if name.startswith("--"):
        reader.give(name, text)
    else:
        table, _, key = name.rpartition(".")
        reader.set(table, key, text)


def _take_out(reader: Reader, name: str) -> None:
    table, _, key = name.rpartition(".")
    reader.set(table, key, None)


def _save_as_utf8(reader: Reader, name: str) -> None:
    path = next(one for one in (Path(name), *Path().glob(f"*/{name}")) if one.is_file())
    path.write_bytes(path.read_bytes().decode("cp1252").encode())


def _write_under(reader: Reader, table: str, settings: str) -> None:
    for one in settings.split(" and "):
        name, _, value = one.partition(" = ")
        reader.set(table, name, value)


def _rename(reader: Reader, name: str, right: str) -> None:
    (path,) = Path().glob(f"*/{name}")
    path.rename(path.with_name(right))
    reader.swap(name, right)


def _keep_one_row_for_each_id(reader: Reader, column: str, party: str) -> None:
    (path,) = Path(party).glob("*.csv")
    pd.read_csv(path).drop_duplicates(column).to_csv(path, index=False)


# In this order: what is most exact comes first. The groups of a form are what its rule is told.
FORMS: list[tuple[str, Callable[..., None]]] = [
    (r"`([^`]+)`", _run),
    (r"In line (\d+) write: (.*)$", _write_line),
    (r"'(\w+)' stands .*Move it to \[(\w+)\]", _move),
    (r"[Ww]rite (\w+) = ([^`]+?) in \[([\w.]+)\]", lambda reader, name, value, table: reader.set(table, name, value)),
    (r"[Aa]dd (\w+) = ([^`]+?) to \[([\w.]+)\]", lambda reader, name, value, table: reader.set(table, name, value)),
    (r"Did you mean '([^']+)'", _did_you_mean),
    (r"^(?:\S+: )?'([^']*)' cannot be .*such as '([^']+)'", lambda reader, wrong, right: reader.swap(wrong, right)),
    (r"such as (\S+)\. Got '([^']+)'", lambda reader, right, wrong: reader.swap(wrong, right)),
    (r"((?:--|config\.|evaluate\.)[\w-]+) must be (?:at least|above|from) (\d+)(?: (and below|to) (\d+))?", _within),
    (r"(--[a-z-]+) does not go with .*Leave it out", lambda reader, option: reader.leave_out(option)),
    (r"(--[a-z-]+) and --[a-z-]+.*Leave out one of them", lambda reader, option: reader.leave_out(option)),
    (r"(?:add|give|Add|Give) (--[a-z-]+)(?: to |[.;,]|$)", lambda reader, option: reader.give(option)),
    (r"Choose another (--(?:folder|output))", lambda reader, option: reader.give(option, "another.csv")),
    (r"'([^']+)'.*[Rr]ename it to '([^']+)', also in source", _rename),
    (r"under \[(\w+)\]: (.*?)\.(?: Some|$)", _write_under),
    (r"(types) = (\{[^}]*\})", lambda reader, name, value: reader.set_at_bank(name, value)),
    (r"(drop) = (\[[^\]]*\])", lambda reader, name, value: reader.set_at_bank(name, value)),
    (r"under both label and (drop)\. Remove it", lambda reader, name: reader.set_at_bank(name, None)),
    (r"(\w+) is set to '[^']*', which .* such as ([\w-]+)", lambda r, name, value: r.set_at_bank(name, f'"{value}"')),
    (r"'?([^\s']+)'? is not (?:encoded in )?UTF-8.*[Ss]ave it (?:again )?as UTF-8", _save_as_utf8),
    (r"'(\w+)' of '?(\w+)'? has \d+ ids that .*Keep one row for each id", _keep_one_row_for_each_id),
    (r"([a-z]+\.\w+)\b.*(?:Leave it out|Remove it)", _take_out),
]


def follow(said: str, words: list[str], typed: Callable[..., Any]) -> list[str] | None:
    """Do what was printed; return the command to give again, or None where nothing in it can be done by the letter."""
    reader = Reader(list(words), " ".join(said.split()), typed)
    for form, rule in FORMS:
        if found := re.search(form, reader.said):
            rule(reader, *found.groups())
            return reader.words
    return None
