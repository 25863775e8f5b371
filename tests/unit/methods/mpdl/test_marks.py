"""What a run of MPDL warns of, by its settings."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.methods.mpdl.worlds import roles_of, settings

from colonnade.messages import Warns
from colonnade.methods.mpdl import METHOD
from colonnade.session import RunPlan
from colonnade.settings import config_to_json

INTERACTIVE: dict[str, Any] = {"generator": "mlp", "exchange": "interactive", "dual_consent": True}
PAPER: dict[str, Any] = {"mechanism": "lemma", "paper_mode": True}


def plan_of(stage: str, **changes: Any) -> RunPlan:
    roles = {role: (one,) if isinstance(one, str) else one for role, one in roles_of().items()}
    plan = RunPlan(name="run", method="mpdl", roles=roles, config=config_to_json(settings(**changes)))
    return METHOD.in_stage(plan, stage)


def warned(warning: Warns, stage: str = "train", **changes: Any) -> set[str]:
    return {one.name for one in METHOD.declarations_in(plan_of(stage, **changes)) if warning in one.warns}


def test_nobody_is_warned_that_the_label_holder_can_read_its_own_labels() -> None:
    every = METHOD.declarations
    assert not any(Warns.LABELS in one.warns for one in every if one.receiver == "label_holder")
    assert any(one.name == "FirstGradient" and one.receiver == "label_holder" for one in every)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, set()),
        ({"mechanism": "none"}, {"ReleasedTable"}),
        (INTERACTIVE, {"GeneratedColumns"}),
        ({**INTERACTIVE, "mechanism": "none"}, {"GeneratedColumns", "ColumnGradient"}),
        ({"completion": "ship"}, {"ShippedRows"}),
        ({"completion": "secure_block", "block_consent": True}, {"BlockGradient"}),
    ],
    ids=["with noise", "without", "interactive", "interactive without", "shipped", "under encryption"],
)
def test_what_lets_columns_be_read_says_so(changes: dict[str, Any], names: set[str]) -> None:
    alone = {"AloneInputs"} if "completion" not in changes else set()
    assert warned(Warns.COLUMNS, **changes) == names | alone


def test_gradients_of_every_row_say_that_labels_can_be_read() -> None:
    assert warned(Warns.LABELS) == {"LogitGradient", "FirstGradient"}
    assert warned(Warns.LABELS, "dual") == warned(Warns.LABELS, "predict") == set()


def test_the_papers_graph_flow_says_that_links_can_be_read() -> None:
    assert warned(Warns.LINKS, "graph") == set()
    assert warned(Warns.LINKS, "graph", links="confusion", paper_mode=True) == {"ConfusedSums"}


@pytest.mark.parametrize(
    ("stage", "changes", "words"),
    [
        ("train", {"secret_start": True}, []),
        ("train", {}, ["Known start"]),
        ("predict", {}, []),
        ("train", {**PAPER, "secret_start": True}, ["Unsound noise"]),
    ],
)
def test_cautions_name_known_starts_and_unsound_noise(stage: str, changes: dict[str, Any], words: list[str]) -> None:
    assert [said.split(":")[0] for said in METHOD.cautions(plan_of(stage, **changes))] == words
