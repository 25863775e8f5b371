"""The stage sweep: several weights of removal in one run, and what they cost."""

from __future__ import annotations

import pytest
from tests.unit.methods.fairvfl.worlds import frames, run_of, settings

import colonnade as cn
from colonnade.errors import ConfigError
from colonnade.messages import NOISED


@pytest.fixture(scope="module")
def run() -> cn.Run:
    """A sweep over a plain model, the run's own weights and ten times as much."""
    return run_of(frames(), settings(sweep=(0.0, 1.0, 10.0)), stage="sweep")


def test_a_sweep_says_for_every_weight_how_good_the_task_is_and_what_is_read(run: cn.Run) -> None:
    finding = run.findings["trade_off"]
    assert [row[0] for row in finding.rows] == ["0", "1", "10"]
    assert len({len(row) for row in finding.rows} | {len(finding.columns)}) == 1
    (figure,) = finding.figures
    assert [one["name"] for one in figure.values["series"]] == ["gender", "age"]
    assert figure.values["series"][0]["marks"] == ["0", "1", "10"]


def test_a_sweep_counts_nothing_by_group_and_keeps_no_model(run: cn.Run) -> None:
    sent = {entry.content["message"] for entry in run.ledgers["bank"].entries if entry.is_message}
    assert not sent & {"SealedColumns", "CountsByGroup"}
    assert all(part is None for part in run.parts.values())


def test_the_first_model_of_a_sweep_is_plain_and_starts_as_the_others_do(run: cn.Run) -> None:
    """No adversary takes part in it: as many protected codes cross as two of the three models need."""
    received = [entry for entry in run.ledgers["state"].entries if entry.kind == "received"]
    codes = [one for one in received if one.content["message"] == "ProtectedCode"]
    gradients = [entry for entry in run.ledgers["one"].entries if entry.content.get("message") == "LocalGradient"]
    assert len(codes) * 3 == len(gradients) * 2


def test_the_plain_model_has_a_whole_code_without_noise(run: cn.Run) -> None:
    sent = [entry.content for entry in run.ledgers["server"].entries if entry.kind == "sent"]
    widths: dict[str, set[int]] = {}
    for one in sent:
        if one["message"] in ("UnifiedCode", "PlainCodes", "VariantCodes"):
            widths.setdefault(f"{one['protection']} {one['message']}", set()).add(one["shapes"]["values"][1])
    assert widths == {"NOISED UnifiedCode": {4}, "PLAIN PlainCodes": {8}, "PLAIN VariantCodes": {4}}


def test_without_a_plain_model_no_plain_code_is_declared() -> None:
    config = settings(sweep=(1.0,))
    done = run_of(frames(), config, stage="sweep")
    declared = {one.name: one.protection for one in done.method.declarations_in(done.plan)}
    assert "PlainCodes" not in declared
    assert declared["UnifiedCode"] == NOISED


def test_a_sweep_without_anything_to_remove_is_refused() -> None:
    with pytest.raises(ConfigError, match="weights of removal"):
        run_of(frames(), settings(removal_weight=0.0), stage="sweep")


def test_factors_below_zero_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"config\.sweep"):
        settings(sweep=(-1.0,))
