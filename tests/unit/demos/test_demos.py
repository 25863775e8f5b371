"""Every demo at tiny size: its files can be read, its parties meet, its controls are judged on the run's rows."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from colonnade.data import PartyTable
from colonnade.datasets import digits_few_shared, town_attributes, town_labels_elsewhere, town_later, town_sister_banks
from colonnade.demos import DEMOS, Demo, Measured, judge_controls, rows_to_score, verdict, write_demo
from colonnade.launch.baselines import judge_plain
from colonnade.launch.home import read_party_home, read_run_file
from colonnade.launch.run import Run
from colonnade.launch.simulation import simulate_plan
from colonnade.methods import METHODS, method_named
from colonnade.session import Party

# Fewer rows and steps: what is learned from them does not matter here.
TINY: dict[str, dict[str, Any]] = {
    "splitnn": {"epochs": 1, "minimum_steps": 1},
    "secure_lr": {"key_size": "insecure_test"},
    "fedcvt": {"epochs": 1},
    "mpdl": {"epochs": 1, "folds": 0},
    "ftl": {"iterations": 2},
    "prada": {"epochs": 1, "fine_epochs": 1, "pictures": False},
    "fairvfl": {"epochs": 1, "attackers": 1, "key_size": "insecure_test"},
}
FEW: dict[str, Callable[[], Any]] = {
    "fedcvt": partial(digits_few_shared, shared=900),
    "ftl": partial(town_labels_elsewhere, shared=300, own=100),
    "prada": partial(town_sister_banks, source=600, labelled=150, unlabelled=200),
    "fairvfl": partial(town_attributes, rows=500),
}
# Whose columns a plain model is made of, where the party that judges has none that the method scores by.
PLAIN = {"ftl": "shop"}


def tiny(method: str) -> Demo:
    demo = DEMOS[method]
    later = None if demo.later is None else partial(town_later, rows=60)
    settings = {**demo.settings, **TINY[method]}
    return replace(demo, tables=FEW.get(method, demo.tables), settings=settings, later=later)


def played(demo: Demo, folder: Path) -> tuple[dict[str, Run], dict[str, PartyTable]]:
    """Write the demo's files, and carry it out from them in this process."""
    write_demo(folder, demo)
    method, homes = method_named(demo.method), {one: read_party_home(folder / one, one) for one in demo.parties}
    runs: dict[str, Run] = {}
    tables: dict[str, PartyTable] = {}
    for stage in demo.stages:
        plan = read_run_file(folder / "run.toml", stage)
        tables = {party: homes[party].table_for(method, plan) for party in method.parties_with_rows(plan)}
        parties = {party: Party(tables.get(party), policy=homes[party].policy) for party in plan.parties}
        with_tables = {party: one for party, one in parties.items() if one.table is not None}
        runs[stage] = simulate_plan(plan, with_tables, compare=demo.compares, after=runs.get("train"))
    return runs, tables


def test_every_method_has_a_demo() -> None:
    assert set(DEMOS) == {method.name for method in METHODS}


@pytest.mark.parametrize("method", DEMOS)
def test_a_demo_is_carried_out_from_its_files_and_held_against_its_controls(method: str, tmp_path: Path) -> None:
    demo = tiny(method)
    runs, tables = played(demo, tmp_path)
    for party, file in rows_to_score(tmp_path, demo).items():
        assert file.exists(), f"{party} has no rows to score"
    found = judge_controls(demo, runs, tables)
    (_, own), *controls = found.items()
    assert own
    assert [name for name, _ in controls] == list(demo.controls)
    for name, figures in controls:
        assert figures, f"{name} was not judged"
        assert set(figures) <= set(own), f"{name} is judged by other measures than the model"
    assert len(verdict(demo, found)) == len(own)
    if demo.later is None:
        judge = method_named(method).judges_in(runs["train"].plan)[0]
        run, plain = runs["train"], judge_plain(runs["train"].plan, tables, (PLAIN.get(method, judge),))
        assert run.evaluation is not None
        assert plain.rows == run.evaluation.rows == run.rows["test"], "both are judged on the same rows"
        assert plain.metrics.get("positive_rate") == run.evaluation.metrics.get("positive_rate")


# The verdict


def said(own: float, *others: float, reach: float = 0.0, **changes: Any) -> str:
    controls = {f"control {place}": Measured(value) for place, value in enumerate(others)}
    demo = replace(DEMOS["ftl"], **changes)
    found = {"the model": {"AUC": Measured(own, reach)}} | {name: {"AUC": one} for name, one in controls.items()}
    (sentence,) = verdict(demo, found)
    return sentence


def test_the_verdict_names_the_best_control_and_the_lead() -> None:
    assert said(0.80, 0.70, 0.75) == "AUC: the model is 0.050 better than control 1."


def test_the_verdict_says_where_the_method_does_not_win() -> None:
    assert "ftl does not win here: control 0 is 0.020 better." in said(0.70, 0.72)
    assert "does not win here: control 0 is as good" in said(0.70, 0.70)


def test_the_verdict_says_where_a_lead_may_be_chance() -> None:
    assert "By chance alone each number may be 0.040 off" in said(0.72, 0.70, reach=0.04)
    assert "chance" not in said(0.80, 0.70, reach=0.04)


def test_the_verdict_knows_ceilings_prices_and_measures_of_which_less_is_better() -> None:
    assert "better than control 0" in said(0.80, 0.70, 0.95, ceilings=("control 1",))
    assert "nothing else scores these rows" in said(0.80)
    assert "0.050 less than control 0, which is the price" in said(0.75, 0.80, costs=("AUC",))
    assert "0.200 less from the model than from control 0" in said(0.6, 0.8, lower_is_better=("AUC",))
    assert "does not win" in said(0.8, 0.6, lower_is_better=("AUC",))


# As a user sees them


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("method", DEMOS)
def test_a_demo_takes_a_minute_and_ends_with_a_verdict(method: str, tmp_path: Path) -> None:
    def seconds() -> float:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime

    before = seconds()
    done = subprocess.run(
        [sys.executable, "-m", "colonnade", "demo", method, "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["verdict"]
    assert len(outcome["held against"]) == 1 + len(DEMOS[method].controls)
    # Two cores have so much time in a minute; by the clock it would depend on what else the machine does.
    assert seconds() - before < 120.0
