"""What commands print: tables and JSON on stdout, talk and progress on stderr."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from colonnade.errors import ColonnadeError, ConfigError, PeerFailed, PeerLost, did_you_mean
from colonnade.launch.status import Watcher
from colonnade.session import Observer, Progress
from colonnade.text import is_plain, spelt_out

if TYPE_CHECKING:
    from colonnade.launch.home import PartyHome
    from colonnade.transport.grpc import GrpcLink

__all__ = [
    "Interrupted",
    "Waiting",
    "echo",
    "examples",
    "make_app",
    "print_json",
    "print_table",
    "readable_bytes",
    "say",
    "shown_progress",
    "table_lines",
    "words_by_party",
]

# Lines of progress where nothing can be redrawn.
_PLAIN_SECONDS = 5.0


class Interrupted(ColonnadeError):
    """The user stopped the command; the message says how to go on."""

    exit_code = 130


def make_app(help: str) -> typer.Typer:
    """Return an empty command that leaves errors to `main`."""
    return typer.Typer(
        help=help,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )


def examples(*lines: str) -> str:
    """Return the end of a command's help, one example on each line."""
    # A paragraph that begins with \\b keeps its lines.
    return "\b\n" + "\n".join(["Examples:", *(f"  {line}" for line in lines)])


def words_by_party(option: str, what: str, given: Sequence[str], parties: Sequence[str]) -> dict[str, str]:
    """Take apart an option that is given as PARTY=WORD, once for each party."""
    words: dict[str, str] = {}
    for text in given:
        party, found, word = text.partition("=")
        if not found or not word:
            raise ConfigError(f"'{text}' does not name a party and a {what}. Write {option} PARTY={what.upper()}.")
        if party not in parties:
            raise ConfigError(f"'{party}' is not a party of this run. {did_you_mean(party, parties)}")
        if party in words:
            raise ConfigError(f"{option} names '{party}' twice. Give one {what} for each party.")
        words[party] = word
    return words


def say(text: str) -> None:
    """Tell the user something that is not data."""
    sys.stderr.write(spelt_out(text, has_lines=True) + "\n")
    sys.stderr.flush()


def echo(text: str = "") -> None:
    """Print lines of data."""
    sys.stdout.write(spelt_out(text, has_lines=True) + "\n")


def print_json(document: Any) -> None:
    """Print one JSON document, in which JSON's own escapes stand for what a terminal would obey."""
    text = json.dumps(document, ensure_ascii=False)
    if not is_plain(text):
        text = "".join(one if is_plain(one) else json.dumps(one)[1:-1] for one in text)
    sys.stdout.write(text + "\n")


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns that line up; numbers to the right."""
    sys.stdout.write("".join(line + "\n" for line in table_lines(headings, rows)))


def table_lines(headings: Sequence[str], rows: Sequence[Sequence[str]], *, wrapped: bool = False) -> Iterator[str]:
    """Return the lines of a table; if wrapped, the last column goes on below itself where it is too long."""
    if wrapped:
        rows = _wrapped(headings, rows)
    cells = [[spelt_out(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    is_number = [
        bool(rows) and all(row[column][:1] in "-0123456789—" for row in rows) for column in range(len(headings))
    ]
    for position, row in enumerate(cells):
        texts = [
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(row, widths, is_number, strict=True)
        ]
        yield "  ".join(texts).rstrip()
        if position == 0:
            yield "  ".join("─" * width for width in widths)


def _wrapped(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    taken = sum(max(len(row[column]) for row in [headings, *rows]) + 2 for column in range(len(headings) - 1))
    width = max(30, shutil.get_terminal_size().columns - taken)
    found = []
    for row in rows:
        first, *others = textwrap.wrap(row[-1], width) or [""]
        found += [[*row[:-1], first], *([""] * (len(row) - 1) + [line] for line in others)]
    return found


def readable_bytes(count: float) -> str:
    """Return a number of bytes for people.

    >>> readable_bytes(1536)
    '1.5 KiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


@contextmanager
def shown_progress(lead: str, quiet: bool) -> Iterator[Observer | None]:
    """Show how far a run is: a bar on a terminal, now and then a line elsewhere, nothing when quiet.

    Every party reports; the lead's word is shown.
    """
    if quiet:
        yield None
    elif sys.stderr.isatty():
        yield from _bar(lead)
    else:
        yield _plain_lines(lead)


def _bar(lead: str) -> Iterator[Observer]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Bar(*columns, console=Console(stderr=True, markup=False), transient=True)
    task = bar.add_task("training", total=None)

    def show(progress: Progress) -> None:
        if progress.party == lead:
            # Not before: until the first step, questions are asked and answered on the same terminal.
            bar.start()
            words = spelt_out(" ".join([progress.stage, *_numbers(progress)]))
            bar.update(task, completed=progress.step, total=progress.total, description=words)

    try:
        yield show
    finally:
        bar.stop()


def _plain_lines(lead: str) -> Callable[[Progress], None]:
    last = time.monotonic()

    def show(progress: Progress) -> None:
        nonlocal last
        if progress.party == lead and time.monotonic() - last > _PLAIN_SECONDS:
            last = time.monotonic()
            total = f" of at most {progress.total}" if progress.total else ""
            say(" ".join([f"{progress.stage}: step {progress.step}{total}", *_numbers(progress)]))

    return show


class Waiting(Watcher):
    """Tell the operator whom the run waits for, once for each change."""

    def __init__(self, home: PartyHome, quiet: bool) -> None:
        self._home, self._quiet, self._said = home, quiet, ""

    def told(self, text: str) -> None:
        """Say it."""
        self._say(text)

    def connecting(self, links: Mapping[str, GrpcLink], trouble: Mapping[str, str]) -> None:
        """Say who is not there yet, and why if that is known."""
        absent = [peer for peer, link in links.items() if not link.is_up]
        self._say("Waiting for " + ", ".join(self._described(peer, trouble.get(peer)) for peer in absent))

    def connected(self, links: Mapping[str, GrpcLink]) -> None:
        """Say that all are there."""
        self._say(f"Connected to {', '.join(links)}.")

    def interrupted(self, error: PeerFailed | PeerLost) -> None:
        """Say that the run waits, and that nothing is lost."""
        self._say(f"{error} Nothing is lost: the run goes on when all are back. Ctrl-C stops waiting.")

    def _described(self, peer: str, trouble: str | None) -> str:
        address = self._home.partners.get(peer)
        where = f" at {address}" if address else " to connect"
        return f"{peer}{where}" + (f" ({trouble})" if trouble else "")

    def _say(self, text: str) -> None:
        if text != self._said and not self._quiet:
            self._said = text
            say(text)


def _numbers(progress: Progress) -> list[str]:
    return [
        f"{name.replace('_', ' ')} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in progress.latest.items()
    ]
