"""`colonnade plan`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.output import echo, examples, make_app, print_json, print_table, readable_bytes, say, words_by_party
from colonnade.errors import ConfigError, UsageError, did_you_mean
from colonnade.launch.home import PartyHome, read_party_home, read_run_file

if TYPE_CHECKING:
    from colonnade.launch.made_up import World
    from colonnade.launch.rehearsal import Rehearsal
    from colonnade.session import Method, RunPlan

app = make_app("Rehearse a run: how long it will take, and what each party will send.")

# What a line between two organisations is taken to be if the user says nothing.
_MEGABITS, _MILLISECONDS = 100, 20

_HOME = "A home on this machine. Default: this folder, and folders of the parties' names beside run.toml."
_SHARED_ROWS = "Rows that all parties share. Default: counted if all homes are here, or all of the smallest table here."
_COLUMNS = "Columns of a party without a home here, or their names, with commas; a category counts as a column."
_CLASSES = "Classes of the label, 0 for a number, if its table is not here."
_BANDWIDTH = "Megabits per second between parties that have a machine each. Default: 100, if not all homes are here."
_LATENCY = "Milliseconds that a message is on its way between such parties. Default: 20."
_STAGE = "The stage of the method, or predict. Default: the one in run.toml, or else train."


@app.command(
    epilog=examples(
        "colonnade plan run.toml                  (homes beside run.toml, or this folder)",
        "colonnade plan run.toml --home bank=../bank --json",
        "colonnade plan run.toml --columns shop=40 --columns state=gender,age --shared-rows 20000",
        "colonnade plan run.toml --bandwidth 50 --latency 15",
        "colonnade plan run.toml --stage predict",
    )
)
def plan(
    file: Annotated[Path, typer.Argument(metavar="RUN.TOML", help="What all parties agreed on.")],
    home: Annotated[list[str] | None, typer.Option(metavar="[PARTY=]FOLDER", help=_HOME)] = None,
    shared_rows: Annotated[int | None, typer.Option(min=1, metavar="N", help=_SHARED_ROWS)] = None,
    columns: Annotated[list[str] | None, typer.Option(metavar="PARTY=N", help=_COLUMNS)] = None,
    classes: Annotated[int | None, typer.Option(min=0, metavar="N", help=_CLASSES)] = None,
    bandwidth: Annotated[int | None, typer.Option(min=1, metavar="MBIT", help=_BANDWIDTH)] = None,
    latency: Annotated[int | None, typer.Option(min=0, metavar="MS", help=_LATENCY)] = None,
    stage: Annotated[str | None, typer.Option(metavar="STAGE", help=_STAGE)] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Rehearse a run: say how long it will take at most, and which messages each party will send.

    For about half a minute this plays the run between made-up tables of the same shapes, with few rows and passes where
    it is long, and multiplies. Nothing is sent to anyone or kept. Times are from the greeting to the goodbye: starting
    the processes, reading the tables and --compare come on top. A run that stops early takes less.
    """
    if classes == 1:
        raise UsageError("--classes must be 2 or more, or 0 for a label that is a number. Got 1 instead.")
    from colonnade.crypto import INSECURE_TEST
    from colonnade.engine import EngineSettings
    from colonnade.launch.made_up import World
    from colonnade.launch.rehearsal import rehearse
    from colonnade.methods import method_named

    agreed = read_run_file(file, None if stage == "predict" else stage)
    method, stage = method_named(agreed.method), stage or agreed.stage
    plans = [read_run_file(file, one) for one in (*method.stages_before(stage), stage) if one != "predict"]
    agreed = plans[0]
    plans += [method.in_stage(plans[-1], stage)] if stage == "predict" else []
    homes = _homes_here(agreed, file.parent, home or [])
    named = _column_names(columns or [], agreed, method)
    here = [party for party in method.parties_with_rows(agreed) if party in homes]
    tables = {party: homes[party].table_for(method, agreed) for party in here}
    world = World.of(agreed, tables, named, shared_rows, classes)
    is_local = len(homes) == len(agreed.parties) and bandwidth is latency is None
    line = None if is_local else (bandwidth or _MEGABITS, _MILLISECONDS if latency is None else latency)
    settings = next((one.engine for one in homes.values()), EngineSettings())
    found = rehearse(plans, world, settings.shared_by(len(agreed.parties)) if is_local else settings, say)
    document = _document(plans[-1], found, world, line)
    if json:
        print_json(document)
    else:
        _show(document, plans[-1])
    if document["key_size"] == INSECURE_TEST:
        say("Beware: insecure_test keys can be broken. Real keys take about ten times as long and twice the bytes.")


def _column_names(given: list[str], plan: RunPlan, method: Method) -> dict[str, list[str]]:
    """Return the columns that the user says parties have."""
    found = {}
    for party, word in words_by_party("--columns", "number", given, plan.parties).items():
        if party not in method.parties_with_rows(plan):
            raise ConfigError(f"--columns names '{party}', whose role {plan.role_of(party)} has none. Leave it out.")
        is_number = word.isascii() and word.isdigit()
        found[party] = [f"{party}{place}" for place in range(int(word))] if is_number else word.split(",")
        # The party with the labels may have nothing else.
        if word.startswith("-") or not all(found[party]) or (not found[party] and party != method.leader_of(plan)):
            raise ConfigError(f"--columns {party}={word} does not say which. Write a number of 1 or more, or names.")
    return found


def _homes_here(plan: RunPlan, beside: Path, given: list[str]) -> dict[str, PartyHome]:
    """Read every home that is here: those named, a folder of the party's name beside run.toml, and this folder."""
    named = [text for text in given if "=" in text and not Path(text).is_dir()]
    folders = words_by_party("--home", "folder", named, plan.parties)
    homes = {party: read_party_home(Path(folder), party) for party, folder in folders.items()}
    for one in (read_party_home(Path(text)) for text in given if text not in named):
        homes[one.name] = one
        if one.name not in plan.parties:
            hint = did_you_mean(one.name, plan.parties)
            raise ConfigError(f"{one.folder} is the home of '{one.name}', which is not a party of this run. {hint}")
    for party in plan.parties:
        if party not in homes and (beside / party / "party.toml").exists():
            homes[party] = read_party_home(beside / party, party)
    own = [read_party_home(Path())] if not given and Path("party.toml").exists() else []
    return {one.name: one for one in (*own, *homes.values()) if one.name in plan.parties}


def _document(plan: RunPlan, found: Rehearsal, world: World, line: tuple[int, int] | None) -> dict[str, Any]:
    megabits, milliseconds = line or (math.inf, 0)
    for part in found.parts:
        part["seconds"] += 2 * milliseconds / 1000 * part["turns"]
        part["seconds"] += sum(part["bytes_sent"].values()) * 8 / (megabits * 1e6)
    return {
        "run": plan.name,
        "method": plan.method,
        "stage": plan.stage,
        "digest": plan.digest(),
        "key_size": plan.config["key_size"] if found.is_sealed else None,
        "line": {"megabits": megabits, "milliseconds": milliseconds} if line else None,
        "rows": [{"parties": list(group), "count": count} for group, count in world.groups.items()],
        "rehearsed": {"rows": found.rows, "of_rows": found.of_rows},
        "seconds": sum(one["times"] * one["seconds"] for one in found.parts),
        "bytes_sent": {
            party: sum(one["times"] * one["bytes_sent"][party] for one in found.parts) for party in plan.parties
        },
        "parts": found.parts,
        "messages": found.messages,
        "assumptions": world.assumed,
    }


def _show(document: Mapping[str, Any], plan: RunPlan) -> None:
    from colonnade.reports.wording import duration_text

    key = "nothing is encrypted" if document["key_size"] is None else f"key size {document['key_size']}"
    echo(f"{plan.name}: {plan.method}, {plan.stage}, {key}")
    echo("\n".join([*(f"rows of {', '.join(one['parties'])}: {one['count']}" for one in document["rows"]), ""]))
    rows = []
    for part in document["parts"]:
        for times in sorted({1, part["times"]}):
            count = "" if part["times"] == 1 else ", one" if times == 1 else f", all {times}"
            sends = [readable_bytes(part["bytes_sent"][party] * times) for party in plan.parties]
            rows.append([part["name"] + count, duration_text(part["seconds"] * times), *sends])
    totals = [readable_bytes(sent) for sent in document["bytes_sent"].values()]
    rows.append(["in all, at most", duration_text(document["seconds"]), *totals])
    print_table(["part", "time", *(f"{party} sends" for party in plan.parties)], rows)
    echo()
    names = ("message", "sender", "receiver", "count", "bytes")
    print_table(names, [[str(one[name]) for name in names] for one in document["messages"]])
    played, line = document["rehearsed"], document["line"]
    if played["rows"] < played["of_rows"]:
        say(f"Rehearsed with {played['rows']} of {played['of_rows']} rows; the rest is multiplied.")
    if line:
        speed = f"{line['megabits']} Mbit/s and {line['milliseconds']} ms one way (--bandwidth, --latency)"
        say(f"Each party has a machine like this one; between them {speed}.")
    else:
        say("All parties share this machine (--bandwidth and --latency are for one machine each).")
    for assumption in document["assumptions"]:
        say(f"Taken for granted: {assumption}.")
