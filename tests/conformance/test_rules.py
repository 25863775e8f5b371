"""Walk all rules of a policy over all methods and stages; a rule or a stage that nobody looks at fails here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

import colonnade as cn
from colonnade.errors import PolicyRefused
from colonnade.methods import METHODS
from colonnade.session import Policy
from colonnade.testing import OF_POLICIES, Case, toy_tables, train
from colonnade.testing.rules import RULES
from tests import tally
from tests.conformance.cases import CASES
from tests.parties import with_policies
from tests.unit.methods.mpdl import graph_worlds

TOY = Case("toy", tally.Tally(), {"label_holder": 1, "feature_holder": 1, "collaborator": 1}, learns=0.0)
# Rules are about who takes part in what, and who helps whom: the first case of every set of roles.
RULED = [*{(type(case.config), *case.roles, case.asks_all): case for case in reversed(CASES)}.values(), TOY]
LEARNING = {"train", "pretrain", "finetune", "dual", "central", "sweep"}
"""Stages that make models. Held-out rows are scored in some of them; `maximum_runs` limits these."""


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    tally.install(monkeypatch)


def test_every_rule_of_a_policy_has_a_check() -> None:
    assert {one.name for one in fields(Policy)} - {"file", "lines"} == set(RULES)


@pytest.mark.parametrize("check", OF_POLICIES)
@pytest.mark.parametrize("case", RULED, ids=str)
def test_every_rule_is_kept_in_every_method(check: str, case: Case) -> None:
    OF_POLICIES[check](case)


# Other stages that score


@dataclass(frozen=True)
class Scoring:
    """A stage that scores rows beside, or in place of, a prediction: how to play it, and who helps whom."""

    stage: str
    config: Any
    roles: Mapping[str, Any]
    tables: Mapping[str, cn.PartyTable]
    helping: Mapping[str, str]
    """Who helps to score, and who gets the scores."""
    cannot: tuple[str, ...] = ()
    """Parties that are not told whose rows are scored, and so refuse."""
    after: cn.Run | None = None
    """The model it goes on from."""

    def play(self, folder: Path | None = None, **limits: int) -> cn.Run:
        """Carry the stage out, with a limit on what some parties score."""
        policies = {party: Policy(predictions_per_day=limit) for party, limit in limits.items()}
        options: dict[str, Any] = {"stage": self.stage, "after": self.after, "folder": folder}
        brought = with_policies(self.tables, policies)
        return cn.simulate(self.config, brought, roles=self.roles, seed=5, **options)


def _validating() -> Scoring:
    """Every fold labels all of the target's rows, and is then judged by the target on the rows that it left out."""
    case = next(one for one in CASES if one.method.name == "ftl" and one.config.protection == "none")
    case = replace(case, config=replace(case.config, folds=2, iterations=2), roles={"source": 1, "target": 1})
    helping = {"source-0": "target-0", "target-0": "source-0"}
    return Scoring("validate", case.config, case.parties, toy_tables(case), helping)


def _graph() -> Scoring:
    tables = graph_worlds.graph_world().tables()
    return Scoring("graph", graph_worlds.settings(), graph_worlds.ROLES, tables, {"b": "a"}, cannot=("c",))


def _audit() -> Scoring:
    case = next(one for one in CASES if one.method.name == "fairvfl")
    case = replace(case, config=replace(case.config, epochs=1, attackers=1, audit_plain=False))
    tables = toy_tables(case)
    helping = {party: "label_holder-0" for party in tables if party != "label_holder-0"}
    return Scoring("audit", case.config, case.parties, tables, helping, ("aggregator-0",), train(case))


def _explanation() -> Scoring:
    case = next(one for one in CASES if one.method.name == "prada" and one.config.protection == "none")
    case = replace(case, config=replace(case.config, explanations=True, fine_epochs=1))
    helping = {"feature_holder-0": "target-0"}
    return Scoring("explain", case.config, case.parties, toy_tables(case), helping, (), train(case))


SCORING = {
    ("ftl", "validate"): _validating,
    ("mpdl", "graph"): _graph,
    ("fairvfl", "audit"): _audit,
    ("prada", "explain"): _explanation,
}


def test_every_stage_learns_or_is_known_to_score() -> None:
    found = {(method.name, stage) for method in METHODS for stage in method.stages}
    assert {one for one in found if one[1] not in {*LEARNING, "predict"}} == set(SCORING)


@pytest.mark.parametrize("stage", SCORING, ids="-".join)
def test_rows_that_another_stage_scores_are_counted(stage: tuple[str, str], tmp_path: Path) -> None:
    scoring, counts = SCORING[stage](), {}
    scoring.play(tmp_path / "run")
    for party, partner in scoring.helping.items():
        log = (tmp_path / "run" / party / "predictions" / "queries.jsonl").read_text()
        lines = [json.loads(line) for line in log.splitlines()]
        assert {(one["event"], one["partner"]) for one in lines} == {("scored", partner)}
        counts[party] = sum(one["rows"] for one in lines)
    scoring.play(**counts)
    for party, count in counts.items():
        with pytest.raises(PolicyRefused, match=rf"'{party}' refuses .* policy\.predictions_per_day "):
            scoring.play(**{party: count - 1})
    for party in scoring.cannot:
        with pytest.raises(PolicyRefused, match=rf"'{party}' refuses .* policy\.predictions_per_day "):
            scoring.play(**{party: 10**6})
