"""Randomised response on labels: how often it flips, that a row keeps its draw, and losses right on average."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from colonnade.errors import ConfigError, OutOfRange
from colonnade.privacy import UNKNOWN_LABEL, LabelResponse, SecretNoise, flip_bound

NOISE = SecretNoise(bytes(range(32)))
ROWS = 20_000


def spread_labels(classes: int, rows: int = ROWS) -> np.ndarray:
    return np.arange(rows) * 7 % classes


# The draws.


@pytest.mark.parametrize(("epsilon", "classes"), [(1.0, 2), (3.0, 2), (0.5, 4), (2.0, 4)])
def test_labels_flip_as_often_as_epsilon_says(epsilon: float, classes: int) -> None:
    labels = spread_labels(classes)
    responses = LabelResponse(epsilon, classes).respond(labels, range(ROWS), NOISE)
    keep = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    for label in range(classes):
        counts = np.bincount(responses[labels == label], minlength=classes)
        expected = np.where(np.arange(classes) == label, keep, (1 - keep) / (classes - 1)) * counts.sum()
        assert stats.chisquare(counts, expected).pvalue > 1e-6


def test_a_row_keeps_its_draw_in_any_order_and_after_a_resume() -> None:
    labels, response = spread_labels(4, 500), LabelResponse(1.0, 4)
    first = response.respond(labels, range(500), NOISE)
    again = LabelResponse(1.0, 4).respond(labels, np.arange(500), SecretNoise(bytes(range(32))))
    assert first.tolist() == again.tolist()
    order = np.random.default_rng(0).permutation(500)[:40]
    assert response.respond(labels[order], order, NOISE).tolist() == first[order].tolist()


def test_ids_have_draws_of_their_own() -> None:
    labels, response = np.zeros(400, np.int64), LabelResponse(0.5, 2)
    ids = [str(place) for place in range(400)]
    by_id = response.respond(labels, ids, NOISE)
    assert by_id.tolist() == response.respond(labels[::-1], ids[::-1], NOISE)[::-1].tolist()
    assert by_id.tolist() == response.respond(labels, np.array(ids), NOISE).tolist()
    assert by_id.tolist() != response.respond(labels, range(400), NOISE).tolist()


def test_other_secrets_and_settings_have_other_draws() -> None:
    labels = np.zeros(400, np.int64)
    first = LabelResponse(0.5, 2).respond(labels, range(400), NOISE)
    for other in (
        LabelResponse(0.5, 2).respond(labels, range(400), SecretNoise(bytes(32))),
        LabelResponse(0.51, 2).respond(labels, range(400), NOISE),
    ):
        # Independent, and not the same draws behind another threshold.
        assert 60 < (first != other).sum() < 260


@pytest.mark.parametrize("classes", [2, 4])
def test_a_large_epsilon_is_the_truth(classes: int) -> None:
    labels, response = spread_labels(classes, 2000), LabelResponse(60.0, classes)
    assert response.respond(labels, range(2000), NOISE).tolist() == labels.tolist()
    losses = torch.rand(2000, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    corrected = response.corrected_losses(losses, torch.from_numpy(labels))
    assert torch.allclose(corrected, losses[torch.arange(2000), torch.from_numpy(labels)], atol=1e-12, rtol=0)


def test_an_unknown_label_has_any_response_and_its_row_looks_like_others() -> None:
    labels = np.full(ROWS, UNKNOWN_LABEL)
    responses = LabelResponse(1.0, 4).respond(labels, range(ROWS), NOISE)
    assert stats.chisquare(np.bincount(responses, minlength=4)).pvalue > 1e-6


def test_unknown_labels_may_stay_unknown_and_then_count_for_nothing() -> None:
    response = LabelResponse(1.0, 3, draws_unknown=False)
    labels = np.array([0, UNKNOWN_LABEL, 2, UNKNOWN_LABEL])
    responses = response.respond(labels, range(4), NOISE)
    drawn = LabelResponse(1.0, 3).respond(labels, range(4), NOISE)
    assert responses[[1, 3]].tolist() == [UNKNOWN_LABEL] * 2
    assert responses[[0, 2]].tolist() == drawn[[0, 2]].tolist()
    losses = torch.ones(4, 3, dtype=torch.float64)
    losses[1] = math.inf
    losses.requires_grad_(True)
    corrected = response.corrected_losses(losses, torch.from_numpy(responses))
    assert corrected[[1, 3]].tolist() == [0.0, 0.0]
    corrected.sum().backward()
    assert losses.grad is not None
    assert not losses.grad[[1, 3]].any()
    assert losses.grad.isfinite().all()


# The matrix and the losses.


@settings(max_examples=60, deadline=None)
@given(st.floats(0.05, 12.0), st.integers(2, 9))
def test_the_matrix_has_the_stated_ratio_and_its_inverse_is_one(epsilon: float, classes: int) -> None:
    response = LabelResponse(epsilon, classes)
    matrix, inverse = response.transition(), response.inverse()
    assert np.allclose(matrix.sum(axis=1), 1.0, atol=1e-14)
    assert np.allclose(matrix.max() / matrix.min(), math.exp(epsilon), rtol=1e-12)
    assert np.allclose(inverse, np.linalg.inv(matrix), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("epsilon", "classes"), [(0.3, 2), (3.0, 2), (0.3, 4), (3.0, 4)])
def test_the_corrected_loss_is_the_true_one_in_expectation(epsilon: float, classes: int) -> None:
    """The sum over all responses of how likely each is, times its corrected loss."""
    response = LabelResponse(epsilon, classes)
    losses = torch.rand(50, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(classes)) * 3
    keep = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    at = [response.corrected_losses(losses, torch.full((50,), answer)) for answer in range(classes)]
    for label in range(classes):
        likely = [keep if answer == label else (1 - keep) / (classes - 1) for answer in range(classes)]
        expected = sum(chance * loss for chance, loss in zip(likely, at, strict=True))
        assert (expected - losses[:, label]).abs().max() < 1e-12
    # An unknown label, whose responses are all as likely, counts for the mean of all classes.
    assert (sum(at) / classes - losses.mean(dim=1)).abs().max() < 1e-12


@pytest.mark.parametrize(("epsilon", "classes"), [(1.0, 2), (1.0, 4)])
def test_the_corrected_loss_and_its_gradient_are_right_on_average_over_draws(epsilon: float, classes: int) -> None:
    # Nine in ten of one class: else flips would cancel, and nothing would need to be corrected.
    labels = np.where(np.arange(ROWS) % 10 == 0, spread_labels(classes), 0)
    response = LabelResponse(epsilon, classes)
    logits = torch.linspace(-1, 1, classes, dtype=torch.float64).requires_grad_(True)
    per_class = -torch.log_softmax(logits, 0).expand(ROWS, classes)
    responses = torch.from_numpy(response.respond(labels, range(ROWS), NOISE))
    corrected = response.corrected_losses(per_class, responses)
    true, naive = (per_class[torch.arange(ROWS), chosen] for chosen in (torch.from_numpy(labels), responses))
    error = (corrected - true).detach()
    assert abs(error.mean()) < 5 * error.std() / math.sqrt(ROWS)
    found, expected, uncorrected = (
        torch.autograd.grad(loss.mean(), logits, retain_graph=True)[0] for loss in (corrected, true, naive)
    )
    assert (found - expected).abs().max() < 0.03
    assert (uncorrected - expected).abs().max() > 0.15


def test_losses_keep_their_precision() -> None:
    losses = torch.ones(3, 2, dtype=torch.float32)
    assert LabelResponse(1.0, 2).corrected_losses(losses, torch.tensor([0, 1, 1])).dtype == torch.float32


# What it costs.


@pytest.mark.parametrize(("epsilon", "classes"), [(3.0, 2), (1.0, 4)])
def test_nobody_tells_more_labels_than_the_bound(epsilon: float, classes: int) -> None:
    """Whoever sees the responses does best by believing them, where classes are as likely as another."""
    labels = spread_labels(classes)
    responses = LabelResponse(epsilon, classes).respond(labels, range(ROWS), NOISE)
    bound = flip_bound(epsilon, classes)
    assert bound == pytest.approx(math.exp(epsilon) / (math.exp(epsilon) + classes - 1))
    assert abs((responses == labels).mean() - bound) < 5 * math.sqrt(bound * (1 - bound) / ROWS)
    # Bayes: the best guess from a response, by the matrix alone.
    assert LabelResponse(epsilon, classes).transition().max(axis=0).sum() / classes == pytest.approx(bound)


def test_the_budget_can_be_written_and_says_what_it_is() -> None:
    budget = LabelResponse(3.0, 4).budget(1000)
    told = json.loads(json.dumps(budget.to_json()))
    assert (told["epsilon"], told["classes"], told["rows"], told["unknown_drawn"]) == (3.0, 4, 1000, True)
    assert told["keep_probability"] == pytest.approx(flip_bound(3.0, 4))
    assert "epsilon 3 (label-DP)" in budget.text()
    assert "have responses as well" in budget.text()
    assert "which rows these are is not hidden" in LabelResponse(3.0, 4, draws_unknown=False).budget(1).text()


@pytest.mark.parametrize(
    ("epsilon", "classes"), [(0.0, 2), (-1.0, 2), (math.nan, 2), (math.inf, 2), (1e-6, 2), (1.0, 1), (1.0, 0)]
)
def test_budgets_and_classes_that_are_none_are_refused(epsilon: float, classes: int) -> None:
    with pytest.raises(ConfigError):
        LabelResponse(epsilon, classes)
    with pytest.raises(ConfigError):
        flip_bound(epsilon, classes)


def test_labels_and_losses_that_do_not_fit_are_refused() -> None:
    response = LabelResponse(1.0, 3)
    for labels in (np.array([3]), np.array([-2])):
        with pytest.raises(OutOfRange):
            response.respond(labels, [0], NOISE)
    for labels in (np.array([0.5]), np.array([[1]]), np.array(["0"])):
        with pytest.raises(ConfigError):
            response.respond(labels, [0], NOISE)
    with pytest.raises(ConfigError):
        response.respond(np.array([0, 1]), [0], NOISE)
    with pytest.raises(TypeError):
        response.respond(np.array([0]), np.array([0.5]), NOISE)
    for losses, responses in ((torch.ones(2, 2), torch.zeros(2).long()), (torch.ones(2, 3), torch.zeros(1).long())):
        with pytest.raises(ConfigError):
            response.corrected_losses(losses, responses)
    with pytest.raises(OutOfRange):
        response.corrected_losses(torch.ones(1, 3), torch.tensor([3]))
    with pytest.raises(ConfigError):
        response.budget(-1)
