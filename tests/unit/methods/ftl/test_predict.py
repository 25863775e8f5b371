"""Prediction: the target gets labels and nothing else, the source scores and no ids, within a daily limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.parties import with_policies
from tests.unit.methods.ftl.worlds import frames, run_of, settings, tables_of
from tests.worlds import integers_for_ciphertexts, name_of

import colonnade as cn
from colonnade.crypto import Mask
from colonnade.errors import PolicyRefused, WrongContent
from colonnade.methods.ftl import predict, scoring
from colonnade.session import CONTROL, Channel, Policy

NEW = {"shared": 40, "own": 30, "seed": 5}


@pytest.fixture(autouse=True)
def _without_encryption() -> Iterator[None]:
    with integers_for_ciphertexts():
        yield


@dataclass
class Heard:
    """Everything that parties receive."""

    messages: list[tuple[str, str, Any]] = field(default_factory=list)

    def names(self, party: str) -> list[str]:
        return [name_of(one) for receiver, _, one in self.messages if receiver == party]

    def of(self, party: str, name: str) -> list[Any]:
        return [one for receiver, _, one in self.messages if receiver == party and name_of(one) == name]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    kept, receive = Heard(), Channel.receive

    def noted(channel: Channel, message_class: Any, **shapes: Any) -> Any:
        message = receive(channel, message_class, **shapes)
        if type(message) not in CONTROL:
            kept.messages.append((channel.party, channel.peer, message))
        return message

    monkeypatch.setattr(Channel, "receive", noted)
    return kept


def new_rows(found: dict[str, pd.DataFrame]) -> dict[str, cn.PartyTable]:
    return {name: table for name, table in tables_of(found).items() if name.startswith("shop")}


def scores_of(run: cn.Run, source: str, target: str, found: pd.DataFrame) -> np.ndarray:
    """Score rows in one place, with both parties' parts."""
    from colonnade.data import TableEncoder

    part, theirs = run.parts[target], run.parts[source]
    table = cn.PartyTable(found, id="id", name="all")
    rows = TableEncoder.from_json(part.document["table_encoder"]).transform(table, dtype=np.float64)
    rows = np.clip(rows, -10, 10)
    values = torch.from_numpy(rows)
    weights = [part.tensors[f"{source}/encoder.linears.0.{name}"] for name in ("weight", "bias")]
    codes = torch.sigmoid(values @ weights[0].T + weights[1]).numpy()
    raw = codes @ theirs.tensors["translator"].numpy().T + theirs.tensors["offset"].numpy()
    calibration = theirs.document["calibrations"][target]
    return calibration["slope"] * raw + calibration["intercept"]


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_labels_and_only_labels_reach_the_target(task: str, heard: Heard) -> None:
    found = frames(task)
    run = run_of(found, settings())
    heard.messages.clear()
    predictions = run.predict(new_rows(found))
    assert heard.names("shop0") == ["PublicModulus", "MaskedScores", "PredictedLabels"]
    assert heard.names("bank0") == ["PublicModulus", "RowsToScore", "CodesToScore", "OpenedScores"]
    (answer,) = heard.of("shop0", "PredictedLabels")
    expected = scores_of(run, "bank0", "shop0", found["shop0"])
    if task == "regression":
        encoder = run.parts["bank0"].document["label_encoder"]
        steps = (answer.values - encoder["mean"]) / encoder["scale"] * 16
        assert np.allclose(steps, np.rint(steps), atol=1e-9)
        assert np.abs(steps / 16 - expected[:, 0]).max() <= 1 / 32 + 1e-6
    else:
        classes = expected.argmax(1) if task == "multiclass" else (expected[:, 0] >= 0).astype(int)
        assert answer.values.dtype == np.int64
        assert answer.values.tolist() == classes.tolist()
        assert predictions["prediction"].tolist() == classes.tolist()
    assert json.loads(answer.labels)["task"] == task
    assert len(predictions) == len(found["shop0"])
    assert predictions["id"].tolist() == found["shop0"]["id"].tolist()
    plain = run_of(found, settings(protection="none")).predict(new_rows(found))
    pd.testing.assert_frame_equal(plain, predictions)


def test_many_rows_cross_in_pieces(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    found = frames()
    run = run_of(found, settings())
    whole = run.predict(new_rows(found))
    monkeypatch.setattr(scoring, "_CHUNK", 7)
    heard.messages.clear()
    pd.testing.assert_frame_equal(run.predict(new_rows(found)), whole)
    assert len(heard.of("bank0", "CodesToScore")) == -(-len(found["shop0"]) // 7)


def test_the_source_keeps_a_log_and_refuses_more_rows_than_a_day_allows(tmp_path: Path) -> None:
    found = frames()
    count = len(found["shop0"])
    run = run_of(found, settings(), folder=tmp_path / "run")
    policies = {"bank0": Policy(predictions_per_day=2 * count)}
    for _ in range(2):
        run.predict(with_policies(new_rows(found), policies))
    with pytest.raises(PolicyRefused, match=f"at most {2 * count} rows for 'shop0' within 24 hours; {2 * count} were"):
        run.predict(with_policies(new_rows(found), policies))
    log = tmp_path / "run" / "bank0" / "predictions" / "queries.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["event"], line["partner"], line["rows"]) for line in lines] == [
        ("scored", "shop0", count),
        ("scored", "shop0", count),
        ("refused", "shop0", count),
    ]
    # A day later the same rows are scored again; those of others never counted.
    old = (datetime.now(UTC) - timedelta(days=1, minutes=1)).isoformat(timespec="seconds")
    lines[0]["time"] = old
    lines[1]["partner"] = "someone else"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for _ in range(2):
        run.predict(with_policies(new_rows(found), policies))
    with pytest.raises(PolicyRefused):
        run.predict(with_policies(new_rows(found), policies))


@pytest.mark.parametrize("weights", [{}, {"bank0": 3.0, "bank1": 1.0}])
def test_the_collecting_source_gets_the_weighted_sum_and_can_decode_nothing_else(
    weights: dict[str, float], heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = frames(sources=2)
    run = run_of(found, settings(source_weights=weights))
    sums: list[np.ndarray] = []
    masks: list[Mask] = []
    collect, mask_scores = predict._collect, predict.mask_scores

    def collected(*arguments: Any) -> np.ndarray:
        sums.append(collect(*arguments))
        return sums[-1]

    def masked(peer: Channel, *rest: Any) -> Mask:
        mask = mask_scores(peer, *rest)
        if peer.party == "bank0":
            masks.append(mask)
        return mask

    monkeypatch.setattr(predict, "_collect", collected)
    monkeypatch.setattr(predict, "mask_scores", masked)
    heard.messages.clear()
    predictions = run.predict(new_rows(found))
    each = [scores_of(run, source, "shop0", found["shop0"]) for source in ("bank0", "bank1")]
    share = 0.75 if weights else 0.5
    expected = share * each[0] + (1 - share) * each[1]
    (total,) = sums
    assert np.abs(total - expected).max() < 1e-6
    assert predictions["prediction"].tolist() == (expected[:, 0] >= 0).astype(int).tolist()

    assert sorted(heard.names("bank0")) == sorted(
        ["PublicModulus", "RowsToScore", "CodesToScore", "ScoreParts", "AnswerParts"]
    )
    assert heard.names("bank1") == ["PublicModulus", "RowsToScore", "CodesToScore"]
    assert heard.names("shop0").count("PredictedLabels") == 1
    # Without the other source's mask the sum is noise, and that mask alone says nothing of the other's scores.
    (parts,), (own,) = heard.of("bank0", "AnswerParts"), masks
    with pytest.raises(WrongContent):
        own.remove(parts.values)
    plain = run_of(found, settings(source_weights=weights, protection="none")).predict(new_rows(found))
    pd.testing.assert_frame_equal(plain, predictions)


def test_several_targets_are_scored_apart(heard: Heard) -> None:
    found = frames(targets=2)
    run = run_of(found, settings())
    heard.messages.clear()
    predictions = run.predict(new_rows(found))
    assert predictions["party"].tolist() == ["shop0"] * len(found["shop0"]) + ["shop1"] * len(found["shop1"])
    for target in ("shop0", "shop1"):
        expected = (scores_of(run, "bank0", target, found[target])[:, 0] >= 0).astype(int)
        assert predictions.loc[predictions["party"] == target, "prediction"].tolist() == expected.tolist()
        assert heard.names(target) == ["PublicModulus", "MaskedScores", "PredictedLabels"]


def test_predicted_rows_need_not_have_been_there_in_training() -> None:
    found = frames()
    run = run_of(found, settings())
    other = frames(**NEW)["shop0"]
    predictions = run.predict({"shop0": cn.PartyTable(other, id="id", name="shop0")})
    assert len(predictions) == 70
    assert set(predictions["prediction"]) <= {0, 1}
