"""`colonnade plan`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.output import echo, examples, make_app, print_json, print_table, readable_bytes, say, words_by_party
from colonnade.errors import ConfigError, UsageError, did_you_mean
from colonnade.launch.home import PartyHome, read_party_home, read_run_file

if TYPE_CHECKING:
    from colonnade.launch.forecast import RunForecast
    from colonnade.session import Facts, Portion, RunPlan, StageForecast

app = make_app("Forecast how long a run will take and what each party will send.")

# What a line between two organisations is taken to be if the user says nothing.
_MEGABITS, _MILLISECONDS = 100.0, 20.0
_NOTEWORTHY = 1.25


@app.command(
    epilog=examples(
        "colonnade plan run.toml                  (homes beside run.toml, or this folder)",
        "colonnade plan run.toml --home bank=../bank --json",
        "colonnade plan run.toml --columns shop=40 --shared-rows 20000",
        "colonnade plan run.toml --apart --bandwidth 50 --latency 15",
    )
)
def plan(
    file: Annotated[Path, typer.Argument(metavar="RUN.TOML", help="What all parties agreed on.")],
    home: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[PARTY=]FOLDER",
            help="A home on this machine. Default: this folder, and folders of the parties' names beside run.toml.",
        ),
    ] = None,
    shared_rows: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="How many rows all parties share. Default: counted if all homes are here, else all of the smallest "
            "table that is here.",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARTY=N",
            help="How many columns a party without a home here brings; each category of a text column counts as one.",
        ),
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(metavar="N", help="How many classes the label has, 0 for a number, if its table is not here."),
    ] = None,
    local: Annotated[
        bool | None,
        typer.Option(
            "--local/--apart",
            help="Whether all parties share this machine, or each has one like it. Default: --local if all homes are "
            "here.",
        ),
    ] = None,
    bandwidth: Annotated[
        float | None,
        typer.Option(metavar="MBIT", help="Megabits per second between the parties. Default with --apart: 100."),
    ] = None,
    latency: Annotated[
        float | None,
        typer.Option(metavar="MS", help="Milliseconds one message is on its way. Default with --apart: 20."),
    ] = None,
    stage: Annotated[
        str | None,
        typer.Option(metavar="STAGE", help="The stage of the method. Default: the one in run.toml, or else train."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the forecast as JSON.")] = False,
) -> None:
    """Forecast how long a run will take and how many bytes each party will send, stage by stage.

    This measures encryption on this machine for a few seconds. Nothing is sent to anyone and nothing is written. Times
    are from the greeting to the goodbye, on a machine as busy as this one is now: starting the processes, reading the
    tables and --compare come on top. A run that stops early takes less.
    """
    _check_numbers(shared_rows=shared_rows, classes=classes, bandwidth=bandwidth, latency=latency)
    agreed = read_run_file(file, stage)
    numbers = _column_counts(columns or [], agreed)
    homes = _homes_here(agreed, file.parent, home or [])
    found = _forecast(
        agreed, homes, numbers, shared_rows=shared_rows, classes=classes, local=local, line=(bandwidth, latency)
    )
    if json:
        print_json(_document(found))
    else:
        _show(found)
    if found.is_insecure:
        say(
            "Beware: insecure_test keys can be broken by anyone with some computers. This is a forecast for a test; "
            "real keys take about ten times as long and twice the bytes."
        )


def _forecast(
    plan: RunPlan,
    homes: Mapping[str, PartyHome],
    columns: Mapping[str, int],
    *,
    shared_rows: int | None,
    classes: int | None,
    local: bool | None,
    line: tuple[float | None, float | None],
) -> RunForecast:
    from colonnade.launch.forecast import forecast_run, gather_knowledge, key_of, measure_machines, without_costs
    from colonnade.methods import method_named

    method = method_named(plan.method)
    tables = {party: homes[party].table_for(method, plan) for party in method.parties_with_rows(plan) if party in homes}
    known = gather_knowledge(plan, tables, columns=columns, shared_rows=shared_rows, classes=classes)
    # What is missing is asked for before anyone waits for the measurements.
    key = key_of(plan)
    forecast_run(plan, known, without_costs(key))
    is_local = len(homes) == len(plan.parties) if local is None else local
    megabits, milliseconds = line
    if not is_local:
        megabits, milliseconds = (
            _MEGABITS if megabits is None else megabits,
            _MILLISECONDS if milliseconds is None else milliseconds,
        )
    machines = measure_machines(
        plan,
        key,
        {party: one.engine for party, one in homes.items()},
        is_local=is_local,
        latency_seconds=(milliseconds or 0.0) / 1000,
        bytes_per_second=None if megabits is None else megabits * 1e6 / 8,
        say=say,
    )
    return forecast_run(plan, known, machines)


def _check_numbers(**given: float | None) -> None:
    least = {"shared_rows": 1, "classes": 0, "bandwidth": 0.001, "latency": 0}
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is not None and not (math.isfinite(value) and value >= least[name]):
            raise UsageError(f"{option} must be at least {least[name]}. Got {value} instead.")
    if given["classes"] == 1:
        raise UsageError("--classes must be 2 or more, or 0 for a label that is a number. Got 1 instead.")


def _column_counts(given: list[str], plan: RunPlan) -> dict[str, int]:
    from colonnade.methods import method_named

    method, counts = method_named(plan.method), {}
    with_rows, lead = method.parties_with_rows(plan), method.leader_of(plan)
    for party, word in words_by_party("--columns", "number", given, plan.parties).items():
        # The party with the labels may have nothing else.
        least = 0 if party == lead else 1
        if not word.isascii() or not word.isdigit() or int(word) < least:
            raise ConfigError(
                f"--columns {party}={word} does not say how many. Write a whole number of {least} or more."
            )
        if party not in with_rows:
            raise ConfigError(f"--columns names '{party}', whose role {plan.role_of(party)} has none. Leave it out.")
        counts[party] = int(word)
    return counts


def _homes_here(plan: RunPlan, beside: Path, given: list[str]) -> dict[str, PartyHome]:
    """Read every home that is here: those named, a folder of the party's name beside run.toml, and this folder."""
    named = [text for text in given if "=" in text and not Path(text).is_dir()]
    folders = words_by_party("--home", "folder", named, plan.parties)
    homes = {party: read_party_home(Path(folder), party) for party, folder in folders.items()}
    for text in given:
        if text not in named:
            one = read_party_home(Path(text))
            if one.name not in plan.parties:
                raise ConfigError(
                    f"{text} is the home of '{one.name}', which is not a party of this run. "
                    f"{did_you_mean(one.name, plan.parties)}"
                )
            homes[one.name] = one
    for party in plan.parties:
        if party not in homes and (beside / party / "party.toml").exists():
            homes[party] = read_party_home(beside / party, party)
    if not given and Path("party.toml").exists():
        one = read_party_home(Path())
        if one.name in plan.parties:
            homes.setdefault(one.name, one)
    return {party: homes[party] for party in plan.parties if party in homes}


def _show(found: RunForecast) -> None:
    facts, plan = found.facts, found.plan
    costs = facts.machines.costs
    key = "nothing is encrypted" if costs is None else f"key size {found.key} ({costs.key_bits} bits)"
    echo(f"{plan.name}: {plan.method}, {key}")
    if facts.portions:
        for party, portion in facts.portions.items():
            echo(f"rows of {party}: {portion.shared} shared; {_parts(portion)}")
    else:
        echo(f"rows: {_parts(facts)}")
    widths = ", ".join(f"{party} {facts.columns[party]}" for party in plan.parties if party in facts.columns)
    echo(f"encoded columns: {widths}\n")
    rows = []
    for stage in found.stages:
        rows.append(_row(stage, plan, 1))
        if stage.times > 1:
            rows.append(_row(stage, plan, stage.times))
    totals = [readable_bytes(found.bytes_sent(party)) for party in plan.parties]
    busy = [_readable_seconds(found.busy(party)) for party in plan.parties]
    rows.append(["in all, at most", _readable_seconds(found.seconds), *busy, *totals])
    headings = [f"{party} computes" for party in plan.parties] + [f"{party} sends" for party in plan.parties]
    if found.seconds is not None:
        print_table(["stage", "time", *headings], rows)
    else:
        # Without times, and often with many parties: only what each sends.
        echo("What each party sends:")
        print_table(["stage", *plan.parties], [[row[0], *row[-len(plan.parties) :]] for row in rows])
    _say_assumptions(found)


def _parts(rows: Facts | Portion) -> str:
    return f"{rows.training} for training, {rows.validation} for validation, {rows.test} for the test"


def _say_assumptions(found: RunForecast) -> None:
    machines = found.facts.machines
    if machines.cores is None:
        speed, latency = machines.line.bytes_per_second or math.inf, machines.line.latency_seconds
        say(
            f"Each party has a machine like this one; between them {speed * 8 / 1e6:.4g} Mbit/s and "
            f"{latency * 1000:.4g} ms one way (--bandwidth, --latency)."
        )
    else:
        say(f"All parties share the {machines.cores} cores of this machine (--apart forecasts one machine for each).")
    if machines.costs is not None and machines.costs.slowdown > _NOTEWORTHY:
        say(
            f"This machine is busy with other things: work takes {machines.costs.slowdown:.1f} times as long as it "
            "would otherwise, and the forecast includes that."
        )
    for assumption in found.assumptions:
        say(f"Taken for granted: {assumption}.")
    if found.seconds is None:
        say(f"Times are forecast for encrypted methods only; {found.plan.method} encrypts nothing.")


def _row(stage: StageForecast, plan: RunPlan, times: int) -> list[str]:
    name = stage.name if times == 1 else f"{stage.name.partition(',')[0]}, all {times} epochs"
    seconds = None if stage.seconds is None else stage.seconds * times
    busy = [
        _readable_seconds(None if seconds is None else stage.busy.get(party, 0.0) * times) for party in plan.parties
    ]
    sends = [readable_bytes(stage.bytes_sent(party) * times) for party in plan.parties]
    return [name, _readable_seconds(seconds), *busy, *sends]


def _document(found: RunForecast) -> dict[str, Any]:
    facts, plan = found.facts, found.plan
    machines = facts.machines
    return {
        "run": plan.name,
        "method": plan.method,
        "digest": plan.digest(),
        "key_size": found.key,
        "key_bits": None if machines.costs is None else machines.costs.key_bits,
        "insecure_test": found.is_insecure,
        "launch": "apart" if machines.cores is None else "local",
        "rows": {"train": facts.training, "validation": facts.validation, "test": facts.test},
        "portions": {party: asdict(portion) for party, portion in facts.portions.items()},
        "columns": dict(facts.columns),
        "seconds": found.seconds,
        "bytes_sent": {party: found.bytes_sent(party) for party in plan.parties},
        "stages": [_stage(stage, plan) for stage in found.stages],
        "assumptions": list(found.assumptions),
        "line": asdict(machines.line),
        "workers": dict(machines.workers),
        "speedups": {str(workers): found for workers, found in machines.speedups.items()},
        "costs": None if machines.costs is None else asdict(machines.costs),
    }


def _stage(stage: StageForecast, plan: RunPlan) -> dict[str, Any]:
    return {
        "name": stage.name,
        "times": stage.times,
        "seconds": stage.seconds,
        "busy": {party: stage.busy.get(party, 0.0) for party in plan.parties},
        "bytes_sent": {party: stage.bytes_sent(party) for party in plan.parties},
        "messages": [asdict(one) for one in stage.sent],
    }


def _readable_seconds(seconds: float | None) -> str:
    """Return a time for people.

    >>> _readable_seconds(0.25), _readable_seconds(75), _readable_seconds(7300)
    ('0.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds is None:
        return "—"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
