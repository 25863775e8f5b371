"""Where transfer does harm, the target's own regression serves, and the source is not asked any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.methods.ftl.worlds import frames, run_of, settings, tables_of
from tests.worlds import integers_for_ciphertexts, name_of, received

import colonnade as cn
from colonnade.methods.ftl import train
from colonnade.methods.ftl.choice import Calibration, judge, weighted_f1
from colonnade.session import CONTROL, Channel


@pytest.fixture(autouse=True)
def _without_encryption() -> Iterator[None]:
    with integers_for_ciphertexts():
        yield


def harmful(task: str = "binary") -> dict[str, pd.DataFrame]:
    """Labels of rows that only the source has are shuffled; those of shared rows are right."""
    found = frames(task, shared=150, own=600, columns=(3, 6))
    bank = found["bank0"].copy()
    alone = bank["id"] >= 10_000
    values = bank.loc[alone, "y"].to_numpy()
    bank.loc[alone, "y"] = np.random.default_rng(1).permutation(values)
    return found | {"bank0": bank}


SETTINGS: dict[str, Any] = {"safeguard": True, "iterations": 5, "learning_rate": 0.03}


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_with_shuffled_labels_the_targets_own_model_is_chosen_and_needs_nobody(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = harmful(task)
    run = run_of(found, settings(**SETTINGS), launch=cn.Launch(keep_views=True))
    about = run.findings["safeguard"].values["shop0"]
    assert about["chosen"] == "self-learning"
    assert about["validation"]["self-learning"] > about["validation"]["transfer"]
    assert run.parts["bank0"].document["chosen"] == {"shop0": "self-learning"}
    assert len(received(run, "shop0", "OpenedFit")) == len(received(run, "shop0", "OwnLabels")) == 1

    sent: list[str] = []
    send = Channel.send

    def noted(channel: Channel, message: Any) -> None:
        if type(message) not in CONTROL:
            sent.append(name_of(message))
        send(channel, message)

    monkeypatch.setattr(Channel, "send", noted)
    shop = found["shop0"]
    predictions = run.predict({"shop0": tables_of(found)["shop0"]})
    assert sent == []
    truth = frames(task, shared=150, own=600, columns=(3, 6))["bank0"].set_index("id")["y"]
    known = predictions[predictions["id"] < 150].set_index("id")["prediction"]
    truth = truth.loc[known.index]
    if task == "regression":
        assert np.corrcoef(truth, known)[0, 1] > 0.8
        assert abs(float((known - truth).mean())) < 1.0
    else:
        assert (truth == known).mean() > (0.85 if task == "binary" else 0.7)
    assert len(predictions) == len(shop)


def test_the_margin_decides() -> None:
    for margin, chosen in ((-1.0, "transfer"), (1.0, "self-learning")):
        run = run_of(frames(), settings(**SETTINGS, margin=margin))
        assert run.findings["safeguard"].values["shop0"]["chosen"] == chosen
        assert run.parts["shop0"].document["sources"]["bank0"]["chosen"] == chosen
        assert ("bank0/coefficients" in run.parts["shop0"].tensors) == (chosen == "self-learning")


def test_the_regression_is_the_same_in_the_clear() -> None:
    found = harmful()
    runs = [run_of(found, settings(**SETTINGS, margin=1.0, protection=one)) for one in ("paillier", "none")]
    one, two = (run.parts["shop0"].tensors["bank0/coefficients"].numpy() for run in runs)
    assert np.abs(one - two).max() < 1e-7
    predictions = [run.predict({"shop0": tables_of(found)["shop0"]}) for run in runs]
    pd.testing.assert_frame_equal(*predictions)


def test_one_source_may_serve_by_transfer_and_another_not() -> None:
    """The regression's scores join the weighted sum, and one label comes back."""
    found = frames(sources=2, shared=120, own=300)
    bank = found["bank1"].copy()
    rest = bank["id"] >= 10_000
    bank.loc[rest, "y"] = np.random.default_rng(1).permutation(bank.loc[rest, "y"])
    found["bank1"] = bank
    with pytest.MonkeyPatch.context() as patch:
        verdicts = [True, False]
        patch.setattr(train, "judge", lambda *facts: (verdicts.pop(), judge(*facts)[1]))
        run = run_of(found, settings(**SETTINGS))
        chosen = {name: one["chosen"] for name, one in run.parts["shop0"].document["sources"].items()}
        assert sorted(chosen.values()) == ["self-learning", "transfer"]
        predictions = run.predict({"shop0": tables_of(found)["shop0"]})
    truth = found["bank0"].set_index("id")["y"]
    known = predictions[predictions["id"] < 120].set_index("id")["prediction"]
    assert (truth.loc[known.index] == known).mean() > 0.75


def test_without_validation_rows_nothing_is_compared_and_transfer_serves() -> None:
    run = run_of(frames(), settings(**SETTINGS), evaluate=cn.Evaluate(test_fraction=0.3, validation_fraction=0.0))
    about = run.findings["safeguard"].values["shop0"]
    assert about["chosen"] == "transfer"
    assert "nothing was compared" in about["note"]


def test_weighted_f1_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import f1_score

    generator = np.random.default_rng(0)
    for classes in (2, 5):
        truth, found = generator.integers(0, classes, 60), generator.integers(0, classes, 60)
        assert abs(weighted_f1(truth, found) - f1_score(truth, found, average="weighted")) < 1e-12
    assert weighted_f1(np.array([1, 1]), np.array([0, 0])) == 0.0


def test_calibration_fits_a_rising_curve_or_leaves_scores_alone() -> None:
    generator = np.random.default_rng(2)
    scores = generator.normal(size=(4000, 1)) * 0.01
    likely = 1 / (1 + np.exp(-200 * scores[:, 0]))
    targets = np.where(generator.random(4000) < likely, 1.0, -1.0)[:, None]
    for share in (0.5, 0.2):
        found = Calibration.fit("binary", scores, targets, share)
        # A penalty pulls it towards zero a little.
        assert 130 < found.slope < 215
        assert abs(found.intercept - np.log(share / (1 - share))) < 1e-12
    assert Calibration.fit("binary", scores, -targets, 0.5) == Calibration()
    assert Calibration.fit("binary", np.zeros((100, 1)), targets[:100], 0.5).slope == 1.0
    assert Calibration.fit("multiclass", scores, targets, 0.5) == Calibration()
    numbers = 3 * scores + 0.5
    found = Calibration.fit("regression", scores, numbers, 0.5)
    assert np.abs(found.apply(scores) - numbers).max() < 1e-9
