"""The equations against autograd of the whole objective, and the reduced messages against the paper's own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

import colonnade as cn
from colonnade.methods.ftl import maths, sealed
from colonnade.methods.ftl.encoder import Encoder, build_encoder
from colonnade.methods.ftl.maths import LossSums, Objective, Translator

CLOSE = 1e-12


@dataclass
class World:
    """Two encoders, rows and labels; the first rows of the source make the translator."""

    objective: Objective
    source: Encoder
    target: Encoder
    source_rows: np.ndarray
    target_rows: np.ndarray
    targets: np.ndarray
    used: int
    shared: np.ndarray
    """Places of the shared rows among the source's."""
    labelled: np.ndarray

    def loss(self) -> torch.Tensor:
        """Return the objective, written down as the module's docstring says it."""
        own, theirs = (
            encoder(torch.from_numpy(rows))
            for encoder, rows in ((self.source, self.source_rows), (self.target, self.target_rows))
        )
        y, shared = torch.from_numpy(self.targets), own[self.shared]
        made_from, centred = own[: self.used], y[: self.used] - y[: self.used].mean(0)
        phi = torch.stack([(centred[:, c, None] * made_from).mean(0) for c in range(y.shape[1])])
        beta = phi @ made_from.mean(0)
        total = torch.zeros((), dtype=torch.float64)
        for place in np.flatnonzero(self.labelled):
            for c in range(y.shape[1]):
                total = total + loss_of_one(
                    self.objective.loss, y[self.shared[place], c], phi[c] @ theirs[place] - beta[c]
                )
        if self.objective.alignment == "distance":
            return total + self.objective.gamma * ((shared - theirs) ** 2).sum()
        return total - self.objective.gamma * (shared * theirs).sum()

    def expected(self) -> tuple[list[np.ndarray], list[np.ndarray], float]:
        """Return all gradients, source and target, and the loss."""
        loss = self.loss()
        found = []
        for encoder in (self.source, self.target):
            encoder.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for encoder in (self.source, self.target):
            found.append([np.column_stack([linear.weight.grad, linear.bias.grad]) for linear in encoder.linears])
            encoder.zero_grad()
        return found[0], found[1], float(loss.detach())


def loss_of_one(kind: str, y: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
    if kind == "taylor":
        return math.log(2) - y * score / 2 + score**2 / 8
    return (y - score) ** 2 / 2


def world(
    loss: str, alignment: str, scores: int, hidden: tuple[int, ...], *, width: int = 3, rows: int = 6, seed: int = 0
) -> World:
    generator = np.random.default_rng(seed)
    config = cn.FTL(
        width=width, hidden=hidden, loss=loss, alignment=alignment, activation="tanh" if seed % 2 else "sigmoid"
    )
    inputs = (int(generator.integers(1, 5)), int(generator.integers(1, 5)))
    encoders = [build_encoder(config, "party", one, seed + place, None) for place, one in enumerate(inputs)]
    more = int(generator.integers(1, 5))
    used = int(generator.integers(2, rows + more + 1))
    # Shared rows lie anywhere among the source's, also among those that do not make the translator.
    shared = generator.permutation(rows + more)[:rows]
    targets = generator.choice([-1.0, 1.0], size=(rows + more, scores))
    if loss == "squared":
        targets = generator.normal(size=targets.shape)
    labelled = (shared < used) & (generator.random(rows) < 0.7)
    return World(
        Objective(loss, alignment, float(generator.uniform(0.0, 2.0))),
        *encoders,
        generator.normal(size=(rows + more, inputs[0])) * 2,
        generator.normal(size=(rows, inputs[1])) * 2,
        targets,
        used,
        shared,
        labelled,
    )


WORLDS = st.builds(
    world,
    st.sampled_from(["taylor", "squared"]),
    st.sampled_from(["distance", "dot"]),
    st.sampled_from([1, 4]),
    st.sampled_from([(), (2,), (3, 2)]),
    width=st.integers(1, 4),
    rows=st.integers(1, 7),
    seed=st.integers(0, 10_000),
)


class Floats:
    """What CipherArray does, with numbers that anyone can read and nobody rounds."""

    def __init__(self, values: np.ndarray, fraction_bits: int = 32) -> None:
        self.values, self.fraction_bits = np.asarray(values, dtype=np.float64), fraction_bits

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def layout(self) -> Floats:
        return self

    def gather(self, places: np.ndarray) -> Floats:
        return Floats(self.values.reshape(-1)[places], self.fraction_bits)

    def each_product(self, factors: Plain) -> Floats:
        found = np.einsum("gt,gtr->gr", self.values, factors.values)
        return Floats(found, self.fraction_bits + factors.fraction_bits)

    def __matmul__(self, factors: Plain) -> Floats:
        return Floats(self.values @ factors.values, self.fraction_bits + factors.fraction_bits)

    def left_product(self, factors: Plain) -> Floats:
        return Floats(factors.values @ self.values, self.fraction_bits + factors.fraction_bits)

    def __add__(self, other: Floats) -> Floats:
        assert self.fraction_bits == other.fraction_bits
        return Floats(self.values + other.values, self.fraction_bits)


class Plain:
    """What FixedPoint does, without rounding."""

    def __init__(self, integers: np.ndarray, fraction_bits: int, bound: int) -> None:
        self.values, self.fraction_bits = integers.astype(np.float64) / 2.0**fraction_bits, fraction_bits

    @classmethod
    def encode(cls, values: np.ndarray, format: Any) -> Plain:
        made = cls(np.zeros(0), format.fraction_bits, format.bound)
        made.values = np.asarray(values, dtype=np.float64)
        return made


def join(arrays: list[Floats]) -> Floats:
    assert len({one.fraction_bits for one in arrays}) == 1
    return Floats(np.concatenate([one.values.reshape(-1) for one in arrays]), arrays[0].fraction_bits)


@pytest.fixture(scope="module", autouse=True)
def without_rounding() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealed, "FixedPoint", Plain)
        patch.setattr(sealed, "concatenate", join)
        yield


def added_up(encoder: Encoder, answers: list[np.ndarray], rows: np.ndarray, own: np.ndarray) -> list[np.ndarray]:
    """Return the whole gradient: what was computed on ciphertexts, last layer first, and what a party adds itself."""
    encoder.zero_grad()
    encoder.add_row_gradients(rows, own, 1.0)
    found = []
    for linear, answer in zip(encoder.linears, answers[::-1], strict=True):
        local = np.column_stack([linear.weight.grad, linear.bias.grad])
        found.append(answer.reshape(local.shape) + local)
    encoder.zero_grad()
    return found


def assert_close(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert np.abs(one - other).max() <= CLOSE * max(1.0, np.abs(other).max())


def of_rows(encoder: Encoder, rows: np.ndarray, gradients: np.ndarray) -> list[np.ndarray]:
    encoder.zero_grad()
    encoder.add_row_gradients(rows, gradients, 1.0)
    found = [np.column_stack([linear.weight.grad, linear.bias.grad]) for linear in encoder.linears]
    encoder.zero_grad()
    return found


@given_settings(max_examples=60, deadline=None)
@given(WORLDS)
def test_row_gradients_and_the_loss_are_those_of_autograd(one: World) -> None:
    at_source, at_target, loss = one.expected()
    objective = one.objective
    codes, theirs = one.source.codes(one.source_rows), one.target.codes(one.target_rows)
    translator = Translator.of(codes[: one.used], one.targets[: one.used])
    y = one.targets[one.shared]
    own = objective.own_alignment(codes[one.shared]) + objective.own_alignment(theirs)
    found = maths.loss_of(objective, translator, codes[one.shared], theirs, y, one.labelled) + own
    assert abs(found - loss) <= CLOSE * max(1.0, abs(loss))

    gradients = maths.source_row_gradients(
        objective, translator, theirs, y, one.labelled, one.shared, len(one.source_rows)
    )
    gradients[one.shared] += objective.own_alignment_gradient(codes[one.shared])
    assert_close(of_rows(one.source, one.source_rows, gradients), at_source)

    weights = translator.row_weights(objective, y, one.labelled)
    signals = weights @ translator.phi + objective.gamma * objective.kappa * codes[one.shared]
    gradients = maths.target_row_gradients(signals, translator.moment(objective), theirs, one.labelled)
    gradients += objective.own_alignment_gradient(theirs)
    assert_close(of_rows(one.target, one.target_rows, gradients), at_target)


@given_settings(max_examples=60, deadline=None)
@given(WORLDS)
def test_gradients_on_ciphertexts_are_those_of_autograd(one: World) -> None:
    at_source, at_target, loss = one.expected()
    objective, width = one.objective, one.target.codes(one.target_rows).shape[1]
    every, layers = one.source.layers(one.source_rows), one.target.layers(one.target_rows)
    translator = Translator.of(every.codes[: one.used], one.targets[: one.used])
    y, upper = one.targets[one.shared], np.triu_indices(width)
    weights = translator.row_weights(objective, y, one.labelled)

    codes, moment = Floats(layers.codes), layers.codes[one.labelled].T @ layers.codes[one.labelled]
    moment = Floats(moment[upper])
    sums: Any = sealed.code_sums(codes, one.labelled)  # type: ignore[arg-type]
    assert np.allclose(sums.values, layers.codes[one.labelled].sum(0))
    parts: Any = [
        (codes, sealed.by_entry(len(one.shared), width)),
        (moment, maths.triangle(width)),
        (sums, np.tile(np.arange(width), (width, 1))),
    ]
    asked: Any = [sealed.last_layer(parts, maths.source_factors(objective, translator, weights, every, one.shared))]
    if len(one.source.weights) > 1:
        jacobians = [
            one.source.jacobian_sums(one.source_rows[: one.used], each)
            for each in maths.source_cotangents(objective, translator)
        ]
        values: Any = [sealed.weighted_sums(codes, weights), moment, sums]  # type: ignore[arg-type]
        small = [sealed.Small(value, each) for value, each in zip(values, jacobians, strict=True)]
        pull = objective.gamma * objective.kappa
        asked += sealed.hidden_layers(codes, pull, every.take(one.shared), one.source.weights, small)  # type: ignore[arg-type]
    own = maths.source_offset_gradients(translator, weights.sum(axis=0), len(one.source_rows))
    own[one.shared] += objective.own_alignment_gradient(every.codes[one.shared])
    found = added_up(one.source, [each.values for each in asked], one.source_rows, own)
    assert_close(found, at_source)

    factors = maths.loss_factors(objective, translator, weights, every.codes[one.shared])
    opened: Any = sealed.loss_on_codes(codes, moment, Floats(np.array([0.75])), factors)  # type: ignore[arg-type]
    known = maths.known_loss(objective, translator, y, one.labelled)
    both = objective.own_alignment(every.codes[one.shared]) + objective.own_alignment(layers.codes)
    assert abs(float(opened.values[0]) - 0.75 + known + both - loss) <= CLOSE * max(1.0, abs(loss))

    signals = Floats(weights @ translator.phi + objective.gamma * objective.kappa * every.codes[one.shared])
    square = Floats(translator.moment(objective)[upper])
    parts = [(signals, sealed.by_entry(len(one.shared), width)), (square, maths.triangle(width))]
    asked = [sealed.last_layer(parts, maths.target_factors(layers, one.labelled))]
    if len(one.target.weights) > 1:
        chosen = one.target_rows[one.labelled]
        jacobians = one.target.jacobian_sums(chosen, maths.moment_cotangents(layers.codes[one.labelled]))
        small = [sealed.Small(square, jacobians)]  # type: ignore[arg-type]
        asked += sealed.hidden_layers(signals, 1.0, layers, one.target.weights, small)  # type: ignore[arg-type]
    own = objective.own_alignment_gradient(layers.codes)
    found = added_up(one.target, [each.values for each in asked], one.target_rows, own)
    assert_close(found, at_target)

    rows: Any = sealed.row_gradients(signals, square, layers.codes, one.labelled)  # type: ignore[arg-type]
    plain = maths.target_row_gradients(signals.values, translator.moment(objective), layers.codes, one.labelled)
    assert np.allclose(rows.values.reshape(plain.shape), plain, atol=CLOSE)


def mirrored_loss(one: World, targets: np.ndarray) -> torch.Tensor:
    """Return the objective with swapped roles: the target's codes and given labels make the translator."""
    own, theirs = one.source(torch.from_numpy(one.source_rows)), one.target(torch.from_numpy(one.target_rows))
    given, y = torch.from_numpy(targets), torch.from_numpy(one.targets)
    phi = (given - given.mean(0)).T @ theirs / len(theirs)
    scores = (own[: one.used] - theirs.mean(0)) @ phi.T
    total = loss_of_one(one.objective.loss, y[: one.used], scores).sum()
    shared = own[one.shared]
    if one.objective.alignment == "distance":
        return total + one.objective.gamma * ((shared - theirs) ** 2).sum()
    return total - one.objective.gamma * (shared * theirs).sum()


@given_settings(max_examples=60, deadline=None)
@given(WORLDS)
def test_gradients_with_swapped_roles_are_those_of_autograd(one: World) -> None:
    generator = np.random.default_rng(one.used)
    given_labels = generator.choice([-1.0, 1.0], size=(len(one.target_rows), one.targets.shape[1]))
    loss = mirrored_loss(one, given_labels)
    for encoder in (one.source, one.target):
        encoder.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    at_source, at_target = (
        [np.column_stack([linear.weight.grad, linear.bias.grad]) for linear in encoder.linears]
        for encoder in (one.source, one.target)
    )
    objective, count, pull = one.objective, one.used, one.objective.gamma * one.objective.kappa
    every, layers = one.source.layers(one.source_rows), one.target.layers(one.target_rows)
    width, scores = layers.codes.shape[1], one.targets.shape[1]
    upper, common = np.triu_indices(width), np.arange(len(one.target_rows))
    translator = Translator.of(layers.codes, given_labels)
    sums = LossSums.of(objective, every.codes[:count], one.targets[:count], every.codes[one.shared])

    # The target owns the translator.
    gradients = maths.mirrored_row_gradients(objective, translator, sums, common, len(common))
    gradients += objective.own_alignment_gradient(layers.codes)
    assert_close(of_rows(one.target, one.target_rows, gradients), at_target)
    codes, moment, flat = Floats(sums.shared), Floats(sums.moment[upper]), Floats(sums.flat)
    sum_places = np.concatenate(
        [
            np.tile(np.arange(width), (width, 1)),
            width + np.arange(width)[:, None] + width * np.arange(scores)[None],
            np.tile(width + scores * width + np.arange(scores), (width, 1)),
        ],
        axis=1,
    )
    parts: Any = [(codes, sealed.by_entry(*codes.shape)), (moment, maths.triangle(width)), (flat, sum_places)]
    asked: Any = [sealed.last_layer(parts, maths.mirrored_translator_factors(objective, translator, layers, common))]
    if len(one.target.weights) > 1:
        on_moment, on_sums = maths.mirrored_cotangents(objective, translator)
        small: Any = [
            sealed.Small(moment, one.target.jacobian_sums(one.target_rows, on_moment)),  # type: ignore[arg-type]
            sealed.Small(flat, one.target.jacobian_sums(one.target_rows, on_sums)),  # type: ignore[arg-type]
        ]
        asked += sealed.hidden_layers(codes, pull, layers, one.target.weights, small)  # type: ignore[arg-type]
    own = maths.source_offset_gradients(translator, -objective.a2 * count * translator.beta, len(common))
    own += objective.own_alignment_gradient(layers.codes)
    assert_close(added_up(one.target, [each.values for each in asked], one.target_rows, own), at_target)

    # The source owns the labels.
    sent = Floats(np.concatenate([translator.phi.reshape(-1), objective.a2 * translator.beta @ translator.phi]))
    codes, square = Floats(layers.codes), Floats(translator.moment(objective)[upper])
    entries = np.arange(width)[:, None] + width * np.arange(scores + 1)[None]
    parts = [(codes, sealed.by_entry(*codes.shape)), (square, maths.triangle(width)), (sent, entries)]
    factors = maths.mirrored_loss_factors(objective, every, one.targets[:count], np.arange(count), one.shared)
    asked = [sealed.last_layer(parts, factors)]
    if len(one.source.weights) > 1:
        rows = one.source_rows[:count]
        weights = np.hstack([objective.a1(one.targets[:count]), -np.ones((count, 1))])
        on_moment, on_sent = maths.moment_cotangents(every.codes[:count]), maths.unit_cotangents(weights, width)
        small = [
            sealed.Small(square, one.source.jacobian_sums(rows, on_moment)),  # type: ignore[arg-type]
            sealed.Small(sent, one.source.jacobian_sums(rows, on_sent)),  # type: ignore[arg-type]
        ]
        asked += sealed.hidden_layers(codes, pull, every.take(one.shared), one.source.weights, small)  # type: ignore[arg-type]
    own = np.zeros_like(every.codes)
    own[one.shared] += objective.own_alignment_gradient(every.codes[one.shared])
    assert_close(added_up(one.source, [each.values for each in asked], one.source_rows, own), at_source)


def exact_logistic(one: World) -> float:
    codes, theirs = one.source.codes(one.source_rows), one.target.codes(one.target_rows)
    translator = Translator.of(codes[: one.used], one.targets[: one.used])
    margins = (one.targets[one.shared] * translator.scores(theirs))[one.labelled]
    return float(np.log1p(np.exp(-margins)).sum())


@pytest.mark.parametrize("seed", range(8))
def test_a_step_against_the_gradient_lowers_the_exact_logistic_loss_and_the_papers_sign_raises_it(seed: int) -> None:
    one = world("taylor", "dot", 1, (), rows=8, seed=3 * seed)
    one.objective = Objective("taylor", "dot", 0.0)
    one.labelled = one.shared < one.used
    if not one.labelled.any():
        one.used, one.labelled = len(one.source_rows), np.ones(8, dtype=bool)
    before = exact_logistic(one)
    for sign in (1.0, -1.0):
        theirs = one.target.codes(one.target_rows)
        translator = Translator.of(one.source.codes(one.source_rows)[: one.used], one.targets[: one.used])
        y = sign * one.targets[one.shared]
        weights = translator.row_weights(one.objective, y, one.labelled)
        gradients = maths.target_row_gradients(
            weights @ translator.phi, translator.moment(one.objective), theirs, one.labelled
        )
        saved = [value.detach().clone() for value in one.target.parameters()]
        one.target.zero_grad()
        one.target.add_row_gradients(one.target_rows, gradients, 1.0)
        with torch.no_grad():
            for value in one.target.parameters():
                value -= 0.01 * value.grad  # type: ignore[operator]
        after = exact_logistic(one)
        assert (after < before) if sign > 0 else (after > before)
        with torch.no_grad():
            for value, old in zip(one.target.parameters(), saved, strict=True):
                value.copy_(old)


@pytest.mark.parametrize("alignment", ["distance", "dot"])
@pytest.mark.parametrize("seed", range(5))
def test_reduced_messages_give_the_gradient_of_the_papers_own(alignment: str, seed: int) -> None:
    """The paper sends, for every row, a d x d matrix and two vectors; corrected by the sheet's errata."""
    one = world("taylor", alignment, 1, (), rows=7, seed=seed)
    objective = one.objective
    codes, theirs = one.source.codes(one.source_rows), one.target.codes(one.target_rows)
    translator = Translator.of(codes[: one.used], one.targets[: one.used])
    (phi,), (beta,), y = translator.phi, translator.beta, one.targets[one.shared, 0]
    centred, mean = translator.centred[:, 0], translator.mean

    expected = np.zeros_like(theirs)
    at_phi, at_mean = np.zeros_like(phi), np.zeros_like(phi)
    for i in range(len(theirs)):
        expected[i] = objective.gamma * objective.kappa * codes[one.shared[i]]
        if one.labelled[i]:
            # Of the source: C(y) Phi with C(y) = -y/2, and D(y) Phi'Phi with D(y) = y^2/4, both of every row.
            matrix, vector = y[i] ** 2 / 4 * np.outer(phi, phi), -y[i] / 2 * phi
            expected[i] += vector + theirs[i] @ matrix - y[i] ** 2 / 4 * beta * phi
            # Of the target: u'u and u of every row.
            slope = -y[i] / 2 + y[i] ** 2 / 4 * (theirs[i] @ phi - beta)
            at_phi += slope * (theirs[i] - mean)
            at_mean -= slope * phi
    weights = translator.row_weights(objective, y[:, None], one.labelled)
    rows = weights @ translator.phi + objective.gamma * objective.kappa * codes[one.shared]
    found = maths.target_row_gradients(rows, translator.moment(objective), theirs, one.labelled)
    assert np.abs(found - expected).max() <= CLOSE

    at_source = np.zeros_like(codes)
    at_source[: one.used] = (centred[:, None] * at_phi + at_mean) / one.used
    for i, place in enumerate(one.shared):
        at_source[place] += objective.gamma * objective.kappa * theirs[i]
    found = maths.source_row_gradients(objective, translator, theirs, y[:, None], one.labelled, one.shared, len(codes))
    assert np.abs(found - at_source).max() <= CLOSE


def test_the_quadratic_loss_is_as_close_to_the_logistic_one_as_the_sheet_says() -> None:
    objective = Objective("taylor", "dot", 0.0)
    t = np.linspace(-4, 4, 8001)
    for y in (-1.0, 1.0):
        ys, scores = np.full_like(t, y), t * y
        loss = objective.l0(ys) + objective.a1(ys) * scores + objective.a2 / 2 * scores**2
        slope = (objective.a1(ys) + objective.a2 * scores) * y
        exact, exact_slope = np.log1p(np.exp(-t)), -1 / (1 + np.exp(t))
        assert (np.abs(loss - exact) <= t**4 / 192 + 1e-15).all()
        assert (np.abs(slope - exact_slope) <= np.abs(t) ** 3 / 48 + 1e-15).all()
        for at, gap, slope_gap in ((1.0, 0.0049, 0.0189), (2.0, 0.0662, 0.1192)):
            place = int(np.argmin(np.abs(t - at)))
            assert abs(abs(loss[place] - exact[place]) - gap) < 5e-5
            assert abs(abs(slope[place] - exact_slope[place]) - slope_gap) < 5e-5


def test_targets_are_one_column_per_score() -> None:
    assert maths.targets_of("binary", np.array([0.0, 1.0]), 2).tolist() == [[-1.0], [1.0]]
    assert maths.targets_of("regression", np.array([0.5, -2.0]), 0).tolist() == [[0.5], [-2.0]]
    assert maths.targets_of("multiclass", np.array([2, 0]), 3).tolist() == [[-1.0, -1.0, 1.0], [1.0, -1.0, -1.0]]
