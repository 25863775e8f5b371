"""A demo's files, as real parties would have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from colonnade.demos.demo import Demo

__all__ = ["first_line", "rows_to_score", "write_demo"]

_NEW = "new.csv"


def write_demo(folder: Path, demo: Demo) -> None:
    """Write the parties' homes and the agreed run."""
    frames, later = demo.tables(), {} if demo.later is None else demo.later()
    for party in demo.parties:
        home = folder / party
        home.mkdir(parents=True, exist_ok=True)
        (home / "party.toml").write_text(_party_file(demo, party, frames.get(party)), encoding="utf-8")
        if party in frames:
            frames[party].to_csv(home / demo.file_of(party), index=False)
        if party in later:
            later[party].drop(columns=demo.labels.get(party, []), errors="ignore").to_csv(home / _NEW, index=False)
    (folder / "run.toml").write_text(_run_file(demo), encoding="utf-8")


def rows_to_score(folder: Path, demo: Demo) -> dict[str, Path]:
    """Return by party a file of rows to score: new ones where the demo has some, else those of the training."""
    return {
        party: folder / party / (demo.file_of(party) if demo.later is None else _NEW)
        for party in (demo.tables if demo.later is None else demo.later)()
    }


def first_line(demo: Demo) -> str:
    """Return the line that `run.toml` begins with, by which a demo's folder is known again."""
    return f"# What {_listed(demo.parties)} agreed on. All hold the same copy of this file."


def _run_file(demo: Demo) -> str:
    roles = ", ".join(f"{role} = {json.dumps(given)}" for role, given in demo.roles.items())
    config = {name: value for name, value in demo.settings.items() if not isinstance(value, Mapping)}
    tables = {name: value for name, value in demo.settings.items() if isinstance(value, Mapping)}
    return "\n".join(
        [
            first_line(demo),
            "[run]",
            f"name = {json.dumps(demo.name)}",
            f"method = {json.dumps(demo.method)}",
            f"roles = {{ {roles} }}",
            "seed = 7",
            "",
            f"# Every setting has a default: 'colonnade methods {demo.method}' lists them.",
            *([f"# {demo.because}"] if demo.because else []),
            "[config]",
            *(f"{name} = {json.dumps(value)}" for name, value in config.items()),
            *(
                line
                for name, value in tables.items()
                for line in (
                    "",
                    f"[config.{name}]",
                    *(f"{json.dumps(key)} = {json.dumps(one)}" for key, one in value.items()),
                )
            ),
            "",
            "[evaluate]",
            *(f"{name} = {value}" for name, value in demo.evaluate.items()),
            "",
        ]
    )


def _party_file(demo: Demo, party: str, frame: pd.DataFrame | None) -> str:
    lines = [f"# The {party}'s own file. It never leaves the {party}.", "[party]", f"name = {json.dumps(party)}", ""]
    if frame is not None:
        lines += ["[table]", f"source = {json.dumps(demo.file_of(party))}", f"id = {json.dumps(demo.id)}"]
        if party in demo.labels:
            lines.append(f"label = {json.dumps(demo.labels[party])}")
            lines += ["unlabelled = true"] if frame[demo.labels[party]].isna().any() else []
        lines.append("")
    partners = [one for one in demo.parties if one != party]
    lines += ["[policy]", f"methods = {json.dumps([demo.method])}", f"partners = {json.dumps(partners)}"]
    lines += [] if frame is None else ["minimum_shared_rows = 100"]
    return "\n".join([*lines, ""])


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
