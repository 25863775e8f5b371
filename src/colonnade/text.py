"""Text that somebody else chose: what is accepted of it, and how it is shown.

A terminal obeys control characters, a spreadsheet formulas; and what turns the direction of writing, or is not seen at
all, lets one sentence pass for another. What a partner sends must be plain and short. What is shown is spelt out where
it is not plain, whoever chose it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import unicodedata
from pathlib import Path

__all__ = ["LONGEST_NAME", "command", "csv_cell", "is_plain", "shown", "spelt_out", "toml_key", "toml_value"]

LONGEST_NAME = 256
"""The most characters of a name that a partner chose."""

_LONGEST_SHOWN = 1000
# Control and format characters, halves of characters, and the ends of lines and paragraphs.
_NOT_PLAIN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Format characters that words of Persian, Hindi and other languages need, and that can do nothing else.
_JOINERS = "\u200c\u200d"
# Where a cell begins, also for a program that cuts it at a separator of its own, and a formula would follow.
_FORMULA = re.compile(r"(?:^|(?<=[,;\t\r\n]))(?=['\"\s]*[=+\-@＝＋－＠]|'*[\t\r\n])")
_BARE_KEY = re.compile("[A-Za-z0-9_-]+")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


def is_plain(text: str) -> bool:
    """Tell whether showing this text does nothing but show it.

    >>> is_plain("naïve"), is_plain("pays\\x1b[2J"), is_plain("two\\nlines")
    (True, False, False)
    """
    return text.isprintable() or all(map(_is_plain, text))


def spelt_out(text: str, *, has_lines: bool = False) -> str:
    """Return text in which all that is not plain is written as an escape: also ends of lines, unless they are ours.

    >>> spelt_out("pays\\x1b[2J")
    'pays\\\\x1b[2J'
    """
    if text.isprintable():
        return text
    kept = "\n" if has_lines else ""
    return "".join(one if _is_plain(one) or one in kept else one.encode("unicode_escape").decode() for one in text)


def shown(words: str, longest: int = _LONGEST_SHOWN) -> str:
    """Return somebody else's words in a form that may stand in a sentence of ours: spelt out, and short.

    >>> shown("bad\\x1b[2Jnews", 8)
    'bad\\\\x1b…'
    """
    # A page of somebody's text would bury our own.
    whole = spelt_out(words[: longest + 1])
    return whole if len(whole) <= longest else whole[: longest - 1] + "…"


def csv_cell(text: str) -> str:
    """Return a text for a cell of a CSV file: with an apostrophe before what a spreadsheet would compute.

    A cell may have such apostrophes of its own, and gets one more: taking one off always gives the text back. What is
    a number stays one.

    >>> csv_cell("=1+1"), csv_cell("'=1+1"), csv_cell("-1.5"), csv_cell("a;=1+1"), csv_cell("pays")
    ("'=1+1", "''=1+1", '-1.5', "a;'=1+1", 'pays')
    """
    return text if _NUMBER.fullmatch(text) else _FORMULA.sub("'", text)


def toml_value(value: object) -> str:
    """Return a text, a list of texts, a number or a truth as it is written in a settings file.

    >>> toml_value("Möbel \\"neu\\""), toml_value(["a", "b"])
    ('"Möbel \\\\"neu\\\\""', '["a", "b"]')
    """
    # JSON writes these as TOML does; with escapes for all other letters, some would be no TOML.
    return json.dumps(value, ensure_ascii=False)


def toml_key(name: str) -> str:
    """Return a name as it is written before the equals sign in a settings file.

    >>> toml_key("paid_out"), toml_key("paid out"), toml_key("a.b")
    ('paid_out', '"paid out"', '"a.b"')
    """
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)


def command(*words: str | os.PathLike[str], home: Path | None = None) -> str:
    """Return a command of ours as it is typed in a shell here, with every word quoted that needs it.

    It begins with our name where the shell finds that, else with the path we were called by. A ``home`` is named by
    ``--home`` unless it is the folder we are in.
    """
    ours = ["colonnade"]
    if not shutil.which("colonnade"):
        # In a notebook, or with `python -m`, the path is that of another program.
        is_ours = Path(sys.argv[0]).stem == "colonnade"
        ours = [os.path.relpath(sys.argv[0])] if is_ours else ["python", "-m", "colonnade"]
    there = [] if home is None or home.resolve() == Path.cwd() else ["--home", str(home)]
    return shlex.join([*ours, *map(str, words), *there])


def _is_plain(character: str) -> bool:
    return character in _JOINERS or unicodedata.category(character) not in _NOT_PLAIN
