"""Which model serves is decided on rows that none has learned from, with uncertainty, and said in words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import numpy as np
import pytest

from colonnade.errors import UsageError
from colonnade.training import Choice, choose
from colonnade.training.choice import FEWEST_ROWS, Numbers


def probabilities(truth: Numbers, strength: float, seed: int) -> Numbers:
    """Return calibrated probabilities of a model that knows so much."""
    noise = np.random.default_rng(seed).normal(size=len(truth))
    signal = strength * (2 * truth - 1) + noise
    return 1 / (1 + np.exp(-2 * strength * signal))


def labels(rows: int, seed: int = 0) -> Numbers:
    return np.random.default_rng(seed).integers(0, 2, rows).astype(np.float64)


def binary(rows: int, together: float, alone: float) -> tuple[str, Numbers, dict[str, Numbers]]:
    truth = labels(rows)
    scores = {"together": probabilities(truth, together, 2), "alone": probabilities(truth, alone, 1)}
    return "binary", truth, scores


def multiclass(rows: int, together: float, alone: float) -> tuple[str, Numbers, dict[str, Numbers]]:
    generator = np.random.default_rng(3)
    truth = generator.integers(0, 4, rows).astype(np.float64)

    def softmax(strength: float) -> Numbers:
        powers = np.exp(strength * (np.eye(4)[truth.astype(int)] + generator.normal(size=(rows, 4)) * 0.5))
        return powers / powers.sum(axis=1, keepdims=True)

    return "multiclass", truth, {"together": softmax(together), "alone": softmax(alone)}


def regression(rows: int, together: float, alone: float) -> tuple[str, Numbers, dict[str, Numbers]]:
    generator = np.random.default_rng(4)
    truth = generator.normal(size=rows)

    def guess(strength: float) -> Numbers:
        share = strength / (1 + strength)
        return share * (truth + generator.normal(size=rows) / np.sqrt(strength + 1e-9) / 2)

    return "regression", truth, {"together": guess(together), "alone": guess(alone)}


EVERY_TASK = pytest.mark.parametrize("made", [binary, multiclass, regression])
Made = Callable[[int, float, float], tuple[str, Numbers, dict[str, Numbers]]]


@EVERY_TASK
def test_the_federated_model_is_kept_when_both_score_alike(made: Made) -> None:
    task, truth, scores = made(100, 1.0, 1.0)
    choice = choose(task, truth, {"together": scores["together"], "alone": scores["together"].copy()})
    assert choice.weights == {"together": 1.0, "alone": 0.0}
    assert choice.name == "together"


@EVERY_TASK
def test_the_federated_model_serves_when_it_is_clearly_better(made: Made) -> None:
    choice = choose(*made(200, 2.0, 0.2))
    assert choice.name == "together"
    assert choice.sentence.startswith("The federated model serves: on 200 validation rows the ")
    assert choice.sentence.endswith(", clearly worse.")


@EVERY_TASK
def test_own_columns_serve_when_the_federated_model_is_clearly_worse(made: Made) -> None:
    task, truth, scores = made(200, 0.2, 2.0)
    choice = choose(task, truth, scores)
    assert choice.weights == {"together": 0.0, "alone": 1.0}
    assert choice.name == "alone"
    assert choice.sentence.startswith("The model of own columns alone serves: on 200 validation rows the ")
    assert np.array_equal(choice.served(scores), scores["alone"])


@EVERY_TASK
def test_the_average_serves_when_the_rows_cannot_tell(made: Made) -> None:
    task, truth, scores = made(40, 1.0, 1.0)
    choice = choose(task, truth, scores)
    assert choice.weights == {"together": 0.5, "alone": 0.5}
    assert choice.name == "average of together and alone"
    assert choice.sentence.endswith(", perhaps by chance.")
    assert np.allclose(choice.served(scores), (scores["together"] + scores["alone"]) / 2)
    assert choice.qualities["average"] <= (choice.qualities["together"] + choice.qualities["alone"]) / 2


@pytest.mark.parametrize("seed", range(5))
def test_who_comes_first_does_not_change_who_is_clearly_better(seed: int) -> None:
    truth = labels(150, seed)
    strong, weak = probabilities(truth, 1.5, seed + 10), probabilities(truth, 0.1, seed + 20)
    assert choose("binary", truth, {"together": strong, "alone": weak}).name == "together"
    assert choose("binary", truth, {"together": weak, "alone": strong}).name == "alone"


def test_the_sentence_tells_the_numbers_that_decided() -> None:
    task, truth, scores = binary(120, 1.0, 0.3)
    choice = choose(task, truth, scores, rows_are="rows left out in turn")
    losses = {name: -np.log(np.where(truth == 1, p, 1 - p).clip(1e-3)) for name, p in scores.items()}
    difference = losses["alone"] - losses["together"]
    told = [float(number) for number in re.findall(r"\d\.\d{3}", choice.sentence)]
    error = difference.std(ddof=1) / np.sqrt(120)
    assert told == pytest.approx([losses["together"].mean(), difference.mean(), error], abs=5e-4)
    assert "on 120 rows left out in turn the log loss of the federated model is" in choice.sentence
    assert "that of the model of own columns alone is higher by" in choice.sentence
    assert choice.qualities["alone"] == pytest.approx(losses["alone"].mean())


@EVERY_TASK
def test_without_rows_the_federated_model_serves_and_that_is_said(made: Made) -> None:
    choice = choose(*made(0, 0.1, 3.0))
    assert choice.weights == {"together": 1.0, "alone": 0.0}
    assert choice.sentence == "The federated model serves: there are no validation rows to compare it on."
    assert choice.qualities == {}


@pytest.mark.parametrize("rows", [1, 2, FEWEST_ROWS - 1])
@EVERY_TASK
def test_few_rows_do_not_decide_and_that_is_said(made: Made, rows: int) -> None:
    choice = choose(*made(rows, 0.1, 3.0))
    assert choice.weights == {"together": 0.5, "alone": 0.5}
    assert choice.sentence.endswith(f"serves: too few validation rows ({rows}) to tell which is better.")
    assert all(np.isfinite(loss) for loss in choice.qualities.values())


@pytest.mark.parametrize("only", [0.0, 1.0])
def test_rows_of_one_class_only_are_compared_all_the_same(only: float) -> None:
    truth = np.full(60, only)
    good = np.abs(truth - 0.1) + np.random.default_rng(0).uniform(-0.05, 0.05, 60)
    bad = np.random.default_rng(1).uniform(0.3, 0.7, 60)
    assert choose("binary", truth, {"together": bad, "alone": good}).name == "alone"
    assert choose("binary", truth, {"together": good, "alone": bad}).name == "together"


def test_a_single_wild_row_does_not_decide() -> None:
    task, truth, scores = binary(60, 1.0, 0.9)
    before = choose(task, truth, scores)
    scores["together"][0] = 1.0 - truth[0]  # wrong, and quite sure
    assert choose(task, truth, scores).weights["together"] >= 0.5 * before.weights["together"] > 0


def test_three_candidates_leave_out_the_one_that_is_clearly_worse() -> None:
    truth = labels(80)
    scores = {
        "together": probabilities(truth, 1.2, 3),
        "alone": probabilities(truth, 0.05, 2),
        "joint": probabilities(truth, 1.2, 1),
    }
    choice = choose("binary", truth, scores)
    assert choice.weights == {"together": 0.5, "alone": 0.0, "joint": 0.5}
    del scores["alone"]
    assert len(choice.served(scores)) == 80


def test_one_candidate_serves_without_a_comparison() -> None:
    task, truth, scores = binary(50, 1.0, 1.0)
    choice = choose(task, truth, {"together": scores["together"]})
    assert choice.weights == {"together": 1.0}
    assert choice.sentence == "The federated model serves."


def test_a_choice_survives_json() -> None:
    choice = choose(*binary(90, 1.0, 0.6))
    assert Choice.from_json(json.loads(json.dumps(choice.to_json()))) == choice


@pytest.mark.parametrize(
    "damage", [{"weights": {}}, {"weights": {"together": 0.4}}, {"weights": 3}, {"qualities": None}]
)
def test_a_damaged_choice_is_refused(damage: dict[str, object]) -> None:
    saved = choose(*binary(90, 1.0, 0.6)).to_json() | damage
    with pytest.raises(UsageError, match="not a choice"):
        Choice.from_json(saved)


def test_missing_scores_of_a_serving_model_are_refused() -> None:
    choice = Choice({"together": 0.5, "alone": 0.5}, "", {})
    with pytest.raises(UsageError, match="no scores of alone"):
        choice.served({"together": np.ones(3)})


@pytest.mark.parametrize(
    ("task", "scores"),
    [("binary", np.ones((30, 2))), ("multiclass", np.ones(30)), ("regression", np.ones(29)), ("ranking", np.ones(30))],
)
def test_scores_that_do_not_fit_are_refused(task: str, scores: Numbers) -> None:
    with pytest.raises(UsageError):
        choose(task, np.zeros(30), {"together": scores, "alone": scores})


def test_scores_that_are_not_finite_are_refused() -> None:
    with pytest.raises(UsageError, match="diverged"):
        choose("regression", np.zeros(30), {"together": np.full(30, np.nan), "alone": np.zeros(30)})
