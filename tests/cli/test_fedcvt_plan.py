"""`colonnade plan` for FedCVT: what crosses at every level, and how long it takes where codes are encrypted."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.test_plan_command import unmeasured

from colonnade.ledger import Ledger

__all__ = ["unmeasured"]

SETTINGS = """\
[config]
level = LEVEL
key_size = "insecure_test"
shared_width = 3
unique_width = 3
epochs = 2
batch_size = 32
own_batch_size = 32
patience = 0
candidates = ["fedcvt"]

"""


@pytest.fixture
def few_shared(project: Any) -> Any:
    """A project whose parties share some rows only."""
    project.edit("run.toml", '"splitnn"', '"fedcvt"')
    project.edit("bank/party.toml", '["splitnn"]', '["fedcvt"]')
    project.frame("bank/customers.csv", lambda frame: frame[:100])
    project.frame("shop/baskets.csv", lambda frame: frame[20:])
    return project


def at_level(project: Any, level: int) -> None:
    text = project.run_toml.read_text()
    start, end = text.index("[config]"), text.index("[evaluate]")
    project.run_toml.write_text(text[:start] + SETTINGS.replace("LEVEL", str(level)) + text[end:])


@pytest.mark.parametrize("level", [0, 1, 2])
def test_bytes_are_those_of_the_run_that_follows(colonnade: Any, few_shared: Any, unmeasured: None, level: int) -> None:
    at_level(few_shared, level)
    found = colonnade("plan", "run.toml", "--json").json
    outcome = colonnade("run", "--simulate", "run.toml", "--quiet", "--no-compare", "--json").json
    assert (found["digest"], found["rows"]) == (outcome["digest"], outcome["rows"])
    assert (found["seconds"] is None) == (level < 2)
    for party, expected in found["bytes_sent"].items():
        sent = sum(Ledger.read(few_shared.run_folder / party / "ledger.jsonl").bytes_sent().values())
        assert expected == pytest.approx(sent, rel=0.001)


def test_people_see_the_stages_of_an_encrypted_run(colonnade: Any, few_shared: Any, unmeasured: None) -> None:
    at_level(few_shared, 2)
    shown = colonnade("plan", "run.toml")
    assert shown.code == 0, shown.err
    for words in (
        "key size insecure_test (1024 bits)",
        "keys and set-up",
        "warm-up of fedcvt, one epoch",
        "training of fedcvt, one epoch",
        "evaluation",
        "in all, at most",
    ):
        assert words in shown.out
    assert "networks take no time of their own" in shown.err
