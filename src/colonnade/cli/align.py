"""`colonnade align`."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from colonnade.cli.consent import ask_consent
from colonnade.cli.output import (
    Interrupted,
    Waiting,
    echo,
    examples,
    make_app,
    print_json,
    print_table,
    readable_bytes,
    say,
    shown_progress,
)
from colonnade.cli.run import YES, find_home, find_homes, lead_of, note_unused_matches, silent
from colonnade.errors import ConfigError, did_you_mean
from colonnade.launch.home import PartyHome, read_run_file
from colonnade.launch.run_folder import alignment_plan, held_alignment
from colonnade.reports import PartyRun
from colonnade.session import RunPlan
from colonnade.text import command

app = make_app("Find the rows that parties share, or only how many, before there is a run.")

_MODES = ("both_learn", "one_learns", "size_only")
_WORDS = {
    "both_learn": "All parties know which of their rows all of them share.",
    "one_learns": "Only {lead} knows which of its rows the others have; they are told nothing.",
    "size_only": "All parties know how many rows they share, and nobody knows which.",
}


@app.command(
    epilog=examples(
        "colonnade align run.toml                  (in a party's home: joins its partners)",
        "colonnade align --size-only run.toml      (is the partnership worth it? nobody learns which rows)",
        "colonnade align --mode one_learns run.toml",
        "colonnade align --local run.toml --json   (all parties on this machine, a process each)",
    )
)
def align(
    file: Annotated[Path, typer.Argument(metavar="RUN.TOML", help="What all parties agreed on.")],
    local: Annotated[
        bool, typer.Option("--local", help="All parties on this machine, each a process of its own, over mutual TLS.")
    ] = False,
    home: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER",
            help="The party's home. Default: this folder. With --local write PARTY=FOLDER, once for each party; "
            "default: a folder of the party's name beside run.toml.",
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="Who learns what: both_learn, one_learns (the lead only) or size_only. All parties must give the "
            "same. Default: as run.toml says, which is both_learn unless set.",
        ),
    ] = None,
    size_only: Annotated[bool, typer.Option("--size-only", help="The same as --mode size_only.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before the first message leaves.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Find the rows that the parties of a run share, by private set intersection, and train nothing.

    Partners give the same command in their own homes. Consent, policy and ledger are those of a run. A later 'colonnade
    run' of the same run.toml uses the result as long as no party's ids have changed. Interrupted, the same command
    again goes on where it stopped.
    """
    agreed = read_run_file(file)
    plan = alignment_plan(agreed, _mode(mode, size_only))
    if local:
        left_out = set(agreed.parties) - set(plan.parties)
        homes = [one for one in home or [] if one.partition("=")[0] not in left_out]
        ends, folder = _align_all(plan, file, homes, quiet)
    else:
        where = find_home(home or [], file)
        _check_has_rows(agreed, plan, where.name)
        ends, folder = _align_one(plan, file, where, yes, quiet)
    if json:
        print_json(_document(plan, ends, folder))
    else:
        _show(plan, ends, folder)


def _align_all(plan: RunPlan, file: Path, home: list[str], quiet: bool) -> tuple[dict[str, PartyRun], Path]:
    """Align with all parties on this machine."""
    from colonnade.launch.local import play_locally

    homes = find_homes(plan.parties, file.parent, home)
    note_unused_matches(plan, *homes.values())
    with (
        held_alignment(file.parent, plan.name, file.read_bytes()) as folder,
        _resumable(),
        shown_progress(lead_of(plan), quiet) as observer,
    ):
        ends = play_locally(plan, file, homes, folder, observer=observer, say=silent if quiet else say)
    return ends, folder.path


def _check_has_rows(agreed: RunPlan, plan: RunPlan, party: str) -> None:
    role = agreed.role_of(party)
    if party not in plan.parties:
        raise ConfigError(
            f"'{party}' has nothing to do in an alignment, as the role {role} of {plan.method} holds no table. "
            f"Only {' and '.join(plan.parties)} give this command."
        )


def _align_one(plan: RunPlan, file: Path, where: PartyHome, yes: bool, quiet: bool) -> tuple[dict[str, PartyRun], Path]:
    """Align as one party, from its home."""
    from colonnade.launch.join import Joining

    note_unused_matches(plan, where)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with held_alignment(where.folder, plan.name, file.read_bytes()) as folder, _resumable():
        joining = Joining(plan, where, folder, Waiting(where, quiet))
        joining.agree(YES if yes else ask_consent)
        with shown_progress(where.name, quiet) as observer:
            end = joining.take_part(observer=observer)
    return {where.name: end}, folder.path


@contextmanager
def _resumable() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("Interrupted. The same command again goes on where it stopped.") from None


def _mode(mode: str | None, size_only: bool) -> str | None:
    if size_only and mode not in (None, "size_only"):
        raise ConfigError(f"--size-only and --mode {mode} exclude each other. Leave out one of them.")
    if mode is not None and mode not in _MODES:
        raise ConfigError(f"There is no mode '{mode}'. {did_you_mean(mode, _MODES)}")
    return "size_only" if size_only else mode


def _document(plan: RunPlan, ends: Mapping[str, PartyRun], folder: Path) -> dict[str, Any]:
    return {
        "run": plan.name,
        "protocol": plan.alignment.protocol,
        "mode": plan.alignment.mode,
        "folder": str(folder),
        "seconds": max(end.seconds for end in ends.values()),
        "parties": {
            party: {"role": plan.role_of(party), **_learnt(end), "bytes_sent": end.ledger.bytes_sent()}
            for party, end in ends.items()
        },
    }


def _show(plan: RunPlan, ends: Mapping[str, PartyRun], folder: Path) -> None:
    print_table(
        ["party", "role", "rows", "shared by all", "rest", "sent"],
        [
            [
                party,
                plan.role_of(party),
                *(_count(_learnt(end)[name]) for name in ("rows", "shared", "rest")),
                readable_bytes(sum(end.ledger.bytes_sent().values())),
            ]
            for party, end in ends.items()
        ],
    )
    lead = lead_of(plan)
    # The lead knows most; where it is elsewhere, this party knows something about it.
    party = lead if lead in ends else next(iter(ends))
    partners = _learnt(ends[party])["partners"]
    echo()
    print_table(
        [f"partner of {party}", "rows there", f"shared with {party}"],
        [[partner, _count(known["rows"]), _count(known["shared"])] for partner, known in partners.items()],
    )
    echo(f"\n{_WORDS[plan.alignment.mode].format(lead=lead)}")
    if any(_learnt(end)["reused"] for end in ends.values()):
        echo("The result of an earlier alignment was used again: no party's ids have changed.")
    elif plan.alignment.protocol == "given":
        echo("The parties' lists of matched rows agree.")
    elif plan.alignment.mode == "both_learn":
        echo("The result is kept: a run of the same run.toml uses it as long as no party's ids change.")
    echo(f"Ledgers: {command('audit', 'verify', folder)}")


def _learnt(end: PartyRun) -> dict[str, Any]:
    return end.overlap or {}


def _count(number: int | None) -> str:
    return "—" if number is None else str(number)
