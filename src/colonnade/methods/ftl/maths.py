"""The equations of federated transfer learning in plain numbers, corrected. No session and no ciphertext here.

The source has codes u^A of all its rows and labels y, the target codes u^B of the shared rows. With centred labels

    translator  Phi = mean of y_j u_j^A          (one row per score)
    offset      beta = Phi mean(u^A)
    score       phi_i = Phi u_i^B - beta
    loss        l(y, phi) = l0(y) + a1(y) phi + a2/2 phi^2, summed over labelled rows and scores
    alignment   gamma (kappa u_i^A u_i^B + q(u_i^A) + q(u_i^B)), summed over shared rows

Everything one party needs of the other is linear in: the row signals R and the moment M (of the source), the codes u^B
and their moment S (of the target).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colonnade.methods.ftl.encoder import Layers

__all__ = [
    "Cotangents",
    "LossSums",
    "Objective",
    "Translator",
    "known_loss",
    "loss_factors",
    "loss_of",
    "mirrored_cotangents",
    "mirrored_loss_factors",
    "mirrored_row_gradients",
    "mirrored_translator_factors",
    "moment_cotangents",
    "source_cotangents",
    "source_factors",
    "source_offset_gradients",
    "source_row_gradients",
    "square",
    "target_factors",
    "target_row_gradients",
    "targets_of",
    "triangle",
    "unit_cotangents",
    "upper",
]

Numbers = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Cotangents = Iterator[Numbers]
"""Pieces of sets by rows by code entries: how rows weigh in sums of derivatives."""


@dataclass(frozen=True)
class Objective:
    """What is minimised, as the paper's sums: public numbers that both parties derive."""

    loss: str
    alignment: str
    gamma: float

    @property
    def a2(self) -> float:
        """Return the loss's curvature, the same for every label."""
        return 0.25 if self.loss == "taylor" else 1.0

    @property
    def kappa(self) -> float:
        """Return the weight of the product of both codes."""
        return -2.0 if self.alignment == "distance" else -1.0

    def a1(self, targets: Numbers) -> Numbers:
        """Return the loss's slope at a score of zero."""
        return -0.5 * targets if self.loss == "taylor" else -targets

    def l0(self, targets: Numbers) -> Numbers:
        """Return the loss at a score of zero."""
        return np.full_like(targets, math.log(2.0)) if self.loss == "taylor" else targets**2 / 2.0

    def own_alignment(self, codes: Numbers) -> float:
        """Return the part of the alignment loss that one party knows by itself."""
        return self.gamma * float((codes**2).sum()) if self.alignment == "distance" else 0.0

    def own_alignment_gradient(self, codes: Numbers) -> Numbers:
        """Return its gradient at the codes."""
        return 2.0 * self.gamma * codes if self.alignment == "distance" else np.zeros_like(codes)


@dataclass(frozen=True)
class Translator:
    """What turns codes into scores, with the labels that made it."""

    centred: Numbers
    """Centred targets of all rows it was made from: rows by scores."""
    phi: Numbers
    mean: Numbers
    """The mean code of these rows."""

    @classmethod
    def of(cls, codes: Numbers, targets: Numbers) -> Translator:
        """Make it from codes and targets."""
        centred = targets - targets.mean(axis=0)
        return cls(centred, centred.T @ codes / len(codes), codes.mean(axis=0))

    @property
    def beta(self) -> Numbers:
        """Return the offset of every score."""
        return self.phi @ self.mean

    def scores(self, codes: Numbers) -> Numbers:
        """Return rows by scores."""
        return codes @ self.phi.T - self.beta

    def moment(self, objective: Objective) -> Numbers:
        """Return the paper's M."""
        return objective.a2 * self.phi.T @ self.phi

    def row_weights(self, objective: Objective, targets: Numbers, labelled: Mask) -> Numbers:
        """Return what each shared row's score counts for at a score of zero; nothing without a label."""
        weights: Numbers = np.where(labelled[:, None], objective.a1(targets) - objective.a2 * self.beta, 0.0)
        return weights


def targets_of(task: str, encoded: Numbers, classes: int) -> Numbers:
    """Return one column per score: the class as -1 and +1, or the standardised number."""
    if task == "multiclass":
        return 2.0 * np.eye(classes)[encoded.astype(np.int64)] - 1.0
    column = encoded.astype(np.float64).reshape(-1, 1)
    return column if task == "regression" else 2.0 * column - 1.0


def triangle(width: int) -> npt.NDArray[np.int64]:
    """Return where a symmetric matrix's entries lie in its upper triangle, written row by row."""
    rows, columns = np.triu_indices(width)
    places = np.zeros((width, width), dtype=np.int64)
    places[rows, columns] = places[columns, rows] = np.arange(len(rows))
    return places


def upper(square: Numbers) -> Numbers:
    """Return the upper triangle of a symmetric matrix, row by row: how moments cross."""
    return square[np.triu_indices(len(square))]


def square(upper: Numbers, width: int) -> Numbers:
    """Return a symmetric matrix by its upper triangle."""
    return upper[triangle(width)]


def loss_of(
    objective: Objective,
    translator: Translator,
    source_codes: Numbers,
    target_codes: Numbers,
    targets: Numbers,
    labelled: Mask,
) -> float:
    """Return the sum that is minimised over some shared rows, without what either party adds by itself."""
    scores = translator.scores(target_codes[labelled])
    y = targets[labelled]
    supervised = objective.l0(y) + objective.a1(y) * scores + objective.a2 / 2.0 * scores**2
    return float(supervised.sum() + objective.gamma * objective.kappa * (source_codes * target_codes).sum())


def target_row_gradients(rows: Numbers, moment: Numbers, codes: Numbers, labelled: Mask) -> Numbers:
    """Return the gradient at the target's codes, from the source's signals; what the target adds itself is missing."""
    return rows + np.where(labelled[:, None], codes @ moment, 0.0)


def source_row_gradients(
    objective: Objective,
    translator: Translator,
    target_codes: Numbers,
    targets: Numbers,
    labelled: Mask,
    shared: npt.NDArray[np.int64],
    count: int,
) -> Numbers:
    """Return the gradient at the source's codes of so many rows, from the target's codes.

    The translator was made from the first rows; ``shared`` are the places of the shared ones.
    """
    codes = target_codes[labelled]
    slopes = objective.a1(targets[labelled]) + objective.a2 * translator.scores(codes)
    at_phi = slopes.T @ (codes - translator.mean)
    at_mean = -slopes.sum(axis=0) @ translator.phi
    gradients = np.zeros((count, codes.shape[1]))
    gradients[: len(translator.centred)] = (translator.centred @ at_phi + at_mean) / len(translator.centred)
    gradients[shared] += objective.gamma * objective.kappa * target_codes
    return gradients


def source_offset_gradients(translator: Translator, known: Numbers, count: int) -> Numbers:
    """Return the part of these gradients that needs no code of the target: from the known part of the slopes' sums."""
    at_phi = -known[:, None] * translator.mean
    gradients = np.zeros((count, translator.phi.shape[1]))
    made_from = len(translator.centred)
    gradients[:made_from] = (translator.centred @ at_phi - known @ translator.phi) / made_from
    return gradients


def source_factors(
    objective: Objective, translator: Translator, weights: Numbers, every: Layers, shared: npt.NDArray[np.int64]
) -> Numbers:
    """Return the factors of the source's last layer: code entries by (shared rows, moment, code sums) by inputs.

    The gradient of output l and input m is the sum of the target's codes u_il, moments S_kl and sums s_k over labelled
    rows, each times its factor.
    """
    by_score, along = _own_sums(translator, every)
    on_codes = np.einsum("ic,clm->lim", weights, by_score) + _pull(objective, every, shared)
    return np.concatenate([on_codes, *_translator_factors(objective, translator, by_score, along)], axis=1)


def target_factors(layers: Layers, labelled: Mask) -> Numbers:
    """Return the factors of the target's last layer: code entries by (shared rows, moment) by inputs."""
    on_rows = np.einsum("il,im->lim", layers.slopes[-1], layers.inputs[-1])
    return np.concatenate([on_rows, _moment_factors(layers, labelled)], axis=1)


def mirrored_translator_factors(
    objective: Objective, translator: Translator, every: Layers, shared: npt.NDArray[np.int64]
) -> Numbers:
    """Return the last layer's factors of the party that owns the translator while the other owns the labels.

    Code entries by (shared rows, moment, code sums, slope-weighted code sums, slope sums) by inputs.
    """
    by_score, along = _own_sums(translator, every)
    on_moment, on_sums = _translator_factors(objective, translator, by_score, along)
    own = -objective.a2 * np.einsum("c,clm->lm", translator.beta, by_score)
    entries = np.arange(len(own))
    on_sums[entries, entries] += own
    by_code = np.moveaxis(by_score, 0, 1)
    parts = [_pull(objective, every, shared), on_moment, on_sums, by_code, -np.moveaxis(along, 0, 1)]
    return np.concatenate(parts, axis=1)


def mirrored_loss_factors(
    objective: Objective, every: Layers, targets: Numbers, rows: npt.NDArray[np.int64], shared: npt.NDArray[np.int64]
) -> Numbers:
    """Return the last layer's factors of the party that owns the labels, but not the translator.

    ``rows`` are its labelled rows, ``shared`` those that both know. Code entries by (shared rows, moment, translator,
    offset) by inputs.
    """
    slopes, inputs = every.slopes[-1], every.inputs[-1]
    is_labelled = np.zeros(len(inputs), dtype=bool)
    is_labelled[rows] = True
    on_translator = np.stack(
        [(slopes[rows] * column[:, None]).T @ inputs[rows] for column in objective.a1(targets[rows]).T], axis=1
    )
    on_offset = -(slopes[rows].T @ inputs[rows])[:, None]
    return np.concatenate(
        [_pull(objective, every, shared), _moment_factors(every, is_labelled), on_translator, on_offset], axis=1
    )


def _moment_factors(layers: Layers, labelled: Mask) -> Numbers:
    codes, slopes, inputs = layers.codes[labelled], layers.slopes[-1][labelled], layers.inputs[-1][labelled]
    return np.stack([(codes * column[:, None]).T @ inputs for column in slopes.T])


def _pull(objective: Objective, every: Layers, shared: npt.NDArray[np.int64]) -> Numbers:
    """Return how the other party's codes of shared rows pull at this party's."""
    slopes, inputs = every.slopes[-1][shared], every.inputs[-1][shared]
    return np.asarray(objective.gamma * objective.kappa * np.einsum("il,im->lim", slopes, inputs))


def _own_sums(translator: Translator, every: Layers) -> tuple[Numbers, Numbers]:
    """Return the last layer's derivatives of the translator, and of what each score's slopes push it along."""
    count = len(translator.centred)
    slopes, inputs = every.slopes[-1][:count], every.inputs[-1][:count]
    by_score = np.stack([(slopes * column[:, None]).T @ inputs for column in translator.centred.T]) / count
    by_mean = slopes.T @ inputs / count
    along = translator.mean[None, :, None] * by_score + translator.phi[:, :, None] * by_mean[None]
    return by_score, along


def _translator_factors(
    objective: Objective, translator: Translator, by_score: Numbers, along: Numbers
) -> tuple[Numbers, Numbers]:
    on_moment = objective.a2 * np.einsum("ck,clm->lkm", translator.phi, by_score)
    on_sums = -objective.a2 * np.einsum("ck,clm->lkm", translator.phi, along)
    return on_moment, on_sums


def loss_factors(
    objective: Objective, translator: Translator, weights: Numbers, source_codes: Numbers
) -> tuple[Numbers, Numbers]:
    """Return the loss's factors: on the target's codes, and on the moment's upper triangle."""
    on_codes = weights @ translator.phi + objective.gamma * objective.kappa * source_codes
    rows, columns = np.triu_indices(translator.phi.shape[1])
    twice = np.where(rows == columns, 0.5, 1.0)
    on_moment = objective.a2 * twice * (translator.phi[:, rows] * translator.phi[:, columns]).sum(axis=0)
    return on_codes, on_moment


def known_loss(objective: Objective, translator: Translator, targets: Numbers, labelled: Mask) -> float:
    """Return the part of the loss that needs no code of the target."""
    y, beta = targets[labelled], translator.beta
    return float((objective.l0(y) - objective.a1(y) * beta + objective.a2 / 2.0 * beta**2).sum())


def source_cotangents(objective: Objective, translator: Translator) -> tuple[Cotangents, Cotangents, Cotangents]:
    """Return, for layers below the last, how all source rows weigh in the derivatives of the small sums.

    For the sums of weighted codes, score by score; for the moment's upper triangle; for the sums of codes. Each comes
    in pieces of sets by rows by code entries.
    """
    by_score = translator.centred / len(translator.centred)
    along = by_score[:, :, None] * translator.mean + translator.phi[None] / len(by_score)
    on_sums = (-objective.a2 * np.einsum("c,jce->je", column, along)[None] for column in translator.phi.T)
    return (
        unit_cotangents(by_score, translator.phi.shape[1]),
        moment_cotangents(objective.a2 * (by_score @ translator.phi)),
        on_sums,
    )


def mirrored_cotangents(objective: Objective, translator: Translator) -> tuple[Cotangents, Cotangents]:
    """Return the same for the party that owns the translator while the other owns the labels.

    For the moment's upper triangle; for the sums of codes, of slope-weighted codes and of slopes, one after another.
    """
    on_weighted, on_moment, on_sums = source_cotangents(objective, translator)
    by_score = translator.centred / len(translator.centred)
    offset = -objective.a2 * (by_score @ translator.beta)
    along = by_score[:, :, None] * translator.mean + translator.phi[None] / len(by_score)

    def sums() -> Cotangents:
        for entry, piece in enumerate(on_sums):
            piece[0, :, entry] += offset
            yield piece
        yield from on_weighted
        yield -np.moveaxis(along, 1, 0)

    return on_moment, sums()


def mirrored_row_gradients(
    objective: Objective, translator: Translator, signals: LossSums, shared: npt.NDArray[np.int64], count: int
) -> Numbers:
    """Return the gradient at the codes of the translator's owner, from the other party's sums over labelled rows."""
    slopes = signals.slopes + objective.a2 * (translator.phi @ signals.codes - signals.rows * translator.beta)
    at_phi = (
        signals.weighted
        - objective.a2 * np.outer(translator.beta, signals.codes)
        + objective.a2 * translator.phi @ signals.moment
        - np.outer(slopes, translator.mean)
    )
    gradients = np.zeros((count, len(translator.mean)))
    made_from = len(translator.centred)
    gradients[:made_from] = (translator.centred @ at_phi - slopes @ translator.phi) / made_from
    gradients[shared] += objective.gamma * objective.kappa * signals.shared
    return gradients


@dataclass(frozen=True)
class LossSums:
    """What the owner of the labels adds up over its labelled rows while the other party owns the translator."""

    rows: int
    shared: Numbers
    """Its codes of shared rows."""
    moment: Numbers
    codes: Numbers
    weighted: Numbers
    """Codes weighted by the loss's slope at a score of zero: scores by code entries."""
    slopes: Numbers

    @classmethod
    def of(cls, objective: Objective, codes: Numbers, targets: Numbers, shared: Numbers) -> LossSums:
        """Add up over labelled rows."""
        a1 = objective.a1(targets)
        return cls(len(codes), shared, codes.T @ codes, codes.sum(axis=0), a1.T @ codes, a1.sum(axis=0))

    @property
    def flat(self) -> Numbers:
        """Return the sums that are not the moment, one after another."""
        return np.concatenate([self.codes, self.weighted.reshape(-1), self.slopes])


def unit_cotangents(weights: Numbers, width: int) -> Cotangents:
    """Return rows' weights at one code entry after the other, for one column of weights after the other."""
    for column in weights.T:
        yield np.einsum("j,le->lje", column, np.eye(width))


def moment_cotangents(values: Numbers) -> Cotangents:
    """Return, for entries (k, l) of the upper triangle: value k at code entry l, and value l at entry k."""
    width = values.shape[1]
    for k in range(width):
        piece = np.zeros((width - k, len(values), width))
        for place, entry in enumerate(range(k, width)):
            piece[place, :, entry] = values[:, k]
            if entry != k:
                piece[place, :, k] = values[:, entry]
        yield piece
