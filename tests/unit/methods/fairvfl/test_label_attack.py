"""An aggregator that groups the directions of gradients reads sensitive values, or what was answered in their place."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from tests.unit.methods.fairvfl.worlds import frames, run_of, settings
from tests.worlds import received

from colonnade import Launch
from colonnade.data import batches
from colonnade.methods.fairvfl import train
from colonnade.privacy import flip_bound

ROWS, BATCH, EPOCHS = 640, 128, 3
EPSILONS = {2: 1.0, 4: 1.5}
KINDS = ("DiscriminatorGradient", "AdversarialGradient")
Steps = list[tuple[np.ndarray, np.ndarray]]
"""The rows of every step and the gradients at their protected codes."""


@functools.cache
def seen_by_the_server(classes: int, epsilon: float | None) -> tuple[dict[str, Steps], np.ndarray]:
    """Return what the server received, by kind, and the true classes to compare guesses with.

    Which rows are in a step follows from the run's seed, which the server knows.
    """
    found = {name: frame for name, frame in frames(rows=ROWS).items() if name != "bureau"}
    # At random, so that nothing but the gradients can tell them.
    truth = np.random.default_rng(9).integers(0, classes, ROWS)
    found["state"]["gender"] = [f"class {one}" for one in truth]
    facts: dict[str, Any] = {}
    own_attributes = train.own_attributes

    def attributes(session: Any, holding: Any, config: Any) -> Any:
        if session.party == "state":
            seeds = [session.seed("batches", epoch) for epoch in range(EPOCHS)]
            facts["rows"] = [rows for seed in seeds for rows in batches(holding.split.train, BATCH, seed)]
            facts["truth"] = truth[holding.aligned.positions]
        return own_attributes(session, holding, config)

    # Protected codes as the paper has them: wide, and without noise.
    config = settings(
        attributes=("gender",),
        protected_width=16,
        protected_noise=0.0,
        discriminator_hidden=(128,),
        batch_size=BATCH,
        epochs=EPOCHS,
        learning_rate=5e-4,
        label_epsilon=epsilon,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "own_attributes", attributes)
        run = run_of(found, config, launch=Launch(keep_views=True))
    seen = {}
    for kind in KINDS:
        gradients = [one.values.numpy() for one in received(run, "server", kind, "state")]
        seen[kind] = list(zip(facts["rows"], gradients, strict=True))
    return seen, facts["truth"]


def grouped(gradients: np.ndarray, classes: int) -> np.ndarray:
    """Group rows by the direction of their gradients."""
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    directions = (gradients / np.maximum(lengths, 1e-30)).astype(np.float64)
    return np.asarray(KMeans(classes, n_init=5, random_state=0).fit_predict(directions))


def named(groups: np.ndarray, truth: np.ndarray, classes: int) -> np.ndarray:
    """Give groups the names that suit them best; who attacks knows none of them better."""
    table = np.zeros((classes, classes))
    np.add.at(table, (groups, truth), 1)
    return np.asarray(linear_sum_assignment(-table)[1][groups])


@functools.cache
def guesses(classes: int, epsilon: float | None, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return what the server takes every training row for, epoch by epoch, and what it is."""
    seen, truth = seen_by_the_server(classes, epsilon)
    found = np.full((EPOCHS, len(truth)), -1)
    per_epoch = len(seen[kind]) // EPOCHS
    for step, (rows, gradients) in enumerate(seen[kind]):
        found[step // per_epoch, rows] = named(grouped(gradients, classes), truth[rows], classes)
    learned = (found >= 0).all(axis=0)
    return found[:, learned], truth[learned]


def margin(share: float, rows: int) -> float:
    """Return how far a share of so many rows may be from its expectation: once in ten thousand times it is farther."""
    return 3.9 * math.sqrt(share * (1.0 - share) / rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", EPSILONS)
def test_without_randomised_answers_gradients_give_sensitive_values_away(classes: int, kind: str) -> None:
    found, truth = guesses(classes, None, kind)
    assert len(truth) > 350
    assert (found == truth).mean() > 0.95


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", EPSILONS)
def test_with_randomised_answers_no_more_is_read_than_they_allow(classes: int, kind: str) -> None:
    epsilon = EPSILONS[classes]
    found, truth = guesses(classes, epsilon, kind)
    bound = flip_bound(epsilon, classes)
    right = (found == truth).mean(axis=1)
    assert (np.abs(right - bound) < margin(bound, len(truth))).all(), right


@pytest.mark.parametrize("classes", EPSILONS)
def test_more_epochs_tell_no_more_as_answers_are_drawn_once(classes: int) -> None:
    """Answers drawn anew in every epoch would be told apart from the truth by counting."""
    epsilon = EPSILONS[classes]
    every = np.concatenate([guesses(classes, epsilon, kind)[0] for kind in KINDS])
    truth = guesses(classes, epsilon, KINDS[0])[1]
    votes = np.stack([(every == one).sum(axis=0) for one in range(classes)])
    bound = flip_bound(epsilon, classes)
    assert (votes.max(axis=0) == len(every)).mean() > 0.9, "the same answer, however often"
    assert (votes.argmax(axis=0) == truth).mean() < bound + margin(bound, len(truth))
