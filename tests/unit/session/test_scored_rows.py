"""Rows that a party helps to score are counted before it does, whatever becomes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.cases import CASES
from tests.parties import with_policies
from tests.unit.session.toys import Ask, Play, method

from colonnade.errors import DeclarationError, PeerFailed, PolicyRefused, RoleFailed, WrongContent
from colonnade.messages import PLAIN, declaration_of, message
from colonnade.session import Policy, Result, ScoredRows, Session
from colonnade.testing import toy_tables, train


@message(sender="lead", receiver="helper", protection=PLAIN, step="ask", asks_for="count")
class RowsWanted:
    """How many rows shall be scored. Reveals: that number."""

    count: int


def asked(path: Path | None, *requests: tuple[str, int], limit: int | None = 10) -> ScoredRows:
    counted = ScoredRows("bank", Policy(predictions_per_day=limit), path)
    for partner, rows in requests:
        counted.count(partner, rows)
    return counted


@pytest.mark.parametrize("has_file", [True, False])
def test_rows_add_up_by_partner_and_what_was_refused_does_not_count(tmp_path: Path, has_file: bool) -> None:
    counted = asked(tmp_path / "home" / "queries.jsonl" if has_file else None, ("shop", 6), ("telco", 10), ("shop", 0))
    with pytest.raises(PolicyRefused, match=r"policy\.predictions_per_day .* 6 were scored and 5 more are asked for"):
        counted.count("shop", 5)
    counted.count("shop", 4)
    with pytest.raises(PolicyRefused):
        counted.count("telco", 1)


def test_other_runs_of_a_home_count_and_a_damaged_line_costs_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "queries.jsonl"
    asked(path, ("shop", 6))
    path.write_bytes(path.read_bytes() + b'{"time": "cut off')
    with pytest.raises(PolicyRefused):
        asked(path, ("shop", 5))
    asked(path, ("shop", 4))
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("count", [-1, -(2**70), 2**31 + 1, 2**12000])
@pytest.mark.parametrize("limit", [None, 10])
def test_a_number_of_rows_that_cannot_be_is_refused(count: int, limit: int | None) -> None:
    with pytest.raises(WrongContent, match="'shop' announces rows to score"):
        asked(None, ("shop", count), limit=limit)


def test_the_channel_counts_what_a_message_asks_for_before_anybody_can_answer(tmp_path: Path) -> None:
    reached = []

    def asking(session: Session, holding: Any, config: Any) -> Result:
        for _ in range(3):
            session.channel("helper").send(RowsWanted(4))
        return Result()

    def answering(session: Session, holding: Any, config: Any) -> Result:
        for _ in range(3):
            reached.append(session.channel("lead").receive(RowsWanted).count)
        return Result()

    toy = method(asking, answering, (RowsWanted,))
    outcomes = Play(
        methods={"bank": toy, "shop": toy}, policies={"shop": Policy(predictions_per_day=11, file="party.toml")}
    ).run()
    assert reached == [4, 4]
    assert "at most 11 rows for 'bank' within 24 hours; 8 were scored and 4 more" in str(outcomes["shop"])
    assert isinstance(outcomes["bank"], PeerFailed)
    assert outcomes["bank"].cause == "its policy refuses this run.", "and not which rule"


def test_only_a_whole_number_can_say_for_how_many_rows_a_message_asks() -> None:
    for name in ("rows", "missing"):
        with pytest.raises(DeclarationError, match="type int"):

            @message(sender="lead", receiver="helper", protection=PLAIN, step="ask", asks_for=name)
            class Wanted:
                """Rows. Reveals: them."""

                rows: str

    assert declaration_of(Ask).asks_for is None


def test_a_prediction_that_fails_has_counted_and_a_repeated_one_counts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a partner would get the answers, break the line before the end, and ask anew."""
    case = CASES[0]
    run, tables = train(case, folder=tmp_path / "run"), toy_tables(case, with_label=False)
    count = run.tables["feature_holder-0"]["shared_rows"]
    policies = {"feature_holder-0": Policy(predictions_per_day=2 * count + 1)}
    with monkeypatch.context() as patch:
        patch.setattr("colonnade.methods.splitnn.predict.scores_of", lambda *_, **__: 1 / 0)
        with pytest.raises(RoleFailed):
            run.predict(with_policies(tables, policies))
    run.predict(with_policies(tables, policies))
    with pytest.raises(PolicyRefused, match=f"{2 * count} were scored and {count} more are asked for"):
        run.predict(with_policies(tables, policies))
    log = tmp_path / "run" / "feature_holder-0" / "predictions" / "queries.jsonl"
    assert [json.loads(line)["event"] for line in log.read_text().splitlines()] == ["scored", "scored", "refused"]
