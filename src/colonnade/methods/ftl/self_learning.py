"""What the target's columns give without transfer: a least-squares fit to the labelled shared rows alone.

Its coefficients are a matrix that the target knows times the labels, and so can be had from encrypted labels at once.
The source learns the scores of held-out rows and nothing else; the target learns nothing, unless the fit takes the
place of a transfer that does harm: then it gets the coefficients, opened behind its mask.

(A logistic regression would show the source the scores of all labelled rows at every step, and by them how alike any
two rows of the target are.)
"""

from __future__ import annotations

import json
from typing import cast

import numpy as np
import numpy.typing as npt

from colonnade.crypto import CipherArray, FixedPoint, Format, encrypt
from colonnade.data import LabelEncoder
from colonnade.exchanges.answers import described, told_labels
from colonnade.exchanges.secure_product import Opening, ask_to_open, open_for, take_opened
from colonnade.methods.ftl import sealed
from colonnade.methods.ftl.link import Keys
from colonnade.methods.ftl.messages import LabelsToFit, MaskedFit, OpenedFit, OwnLabels, ScoresAlone
from colonnade.methods.ftl.scoring import chunks
from colonnade.session import Channel

__all__ = [
    "LABELS",
    "PENALTY",
    "Fit",
    "coefficients_from",
    "give_up",
    "learn_as_source",
    "learn_as_target",
    "odds",
    "regression_scores",
    "take_over",
]

Numbers = npt.NDArray[np.float64]

PENALTY = 0.03
"""What is added to the mean of the squared columns, so that few rows do not decide too much."""
LABELS = Format(sealed.FRACTION_BITS, 8)
_MAP = Format(sealed.FRACTION_BITS, 16)
_ROWS = Format(sealed.FRACTION_BITS, 4)
# A least-squares score is an expected label between -1 and 1, and now and then a little beyond.
_SUREST = 0.995


class Fit:
    """The target's fit: coefficients that it can use, or only carry, because they are encrypted."""

    def __init__(self, hidden: CipherArray | None, plain: Numbers | None) -> None:
        self.hidden, self.plain = hidden, plain


def learn_as_target(peer: Channel, keys: Keys | None, rows: Numbers, scored: list[Numbers]) -> Fit:
    """Play the party that brings columns: of the labelled rows, and of rows to be scored."""
    fitting, labels = coefficients_from(rows), peer.receive(LabelsToFit, rows=len(rows)).values
    if keys is None:
        fit = Fit(None, fitting @ np.asarray(labels))
    else:
        encrypted = cast(CipherArray, labels).under(keys.theirs, sealed.plan(labels.shape, LABELS, keys.theirs))
        fit = Fit(encrypted.left_product(FixedPoint.encode(fitting, _MAP)), None)
    for part in scored:
        for chosen in chunks(len(part)):
            peer.send(ScoresAlone(_scores_by(fit, _with_ones(part[chosen]))))
    return fit


def _scores_by(fit: Fit, rows: Numbers) -> CipherArray | Numbers:
    if fit.hidden is None:
        return np.reshape(rows @ np.asarray(fit.plain), -1)
    scores = fit.hidden.left_product(FixedPoint.encode(rows, _ROWS))
    # Under the receiver's own key: without fresh randomness it could read this party's columns from it.
    return sealed.ready(scores).rerandomise()


def learn_as_source(peer: Channel, keys: Keys | None, targets: Numbers, scored: list[int]) -> list[Numbers]:
    """Play the party that brings labels, and return the scores of rows the target was to bring: so many per part."""
    outputs = targets.shape[1]
    peer.send(LabelsToFit(targets if keys is None else encrypt(keys.own, targets, LABELS)))
    found = []
    for part, rows in enumerate(scored):
        parts = [np.empty((0, outputs))]
        for chosen in chunks(rows):
            with peer.openings.at(f"part {part}, rows from {chosen[0]}"):
                parts.append(_scores_alone(peer, keys, len(chosen) * outputs).reshape(len(chosen), outputs))
        found.append(np.concatenate(parts))
    return found


def _scores_alone(peer: Channel, keys: Keys | None, numbers: int) -> Numbers:
    if keys is None:
        return np.asarray(peer.receive(ScoresAlone, numbers=numbers).values)
    (layout,) = sealed.gradient_layouts([numbers], [3 * sealed.FRACTION_BITS], keys.own)
    opening = Opening(peer, ScoresAlone, keys.own, numbers=numbers)
    return opening.fixed(opening.received.values, layout).decode()


def give_up(peer: Channel, keys: Keys | None, labels: LabelEncoder, columns: int, outputs: int) -> None:
    """Let the target have the whole model: open its coefficients, which it masks, and name the labels."""
    if keys is not None:
        count, scale = (columns + 1) * outputs, 2 * sealed.FRACTION_BITS
        (layout,) = sealed.gradient_layouts([count], [scale], keys.own)
        open_for(peer, MaskedFit, OpenedFit, keys.own, layout)
    peer.send(OwnLabels(described(labels, with_scale=True)))


def take_over(peer: Channel, fit: Fit, columns: int, outputs: int) -> tuple[Numbers, str]:
    """Return the coefficients, the last row for the intercept, and the labels' encoder as JSON."""
    if fit.hidden is not None:
        mask = ask_to_open(peer, MaskedFit, sealed.ready(fit.hidden))
        plain = take_opened(peer, OpenedFit, mask).decode().reshape(columns + 1, outputs)
    else:
        plain = np.asarray(fit.plain)
    labels = told_labels(peer.receive(OwnLabels).labels, peer, outputs)
    return plain, json.dumps(labels.to_json())


def coefficients_from(rows: Numbers) -> Numbers:
    """Return the matrix that turns labels into coefficients; the intercept is not penalised."""
    design = _with_ones(rows)
    penalty = PENALTY * len(rows) * np.eye(design.shape[1])
    penalty[-1, -1] = 0.0
    return np.asarray(np.linalg.solve(design.T @ design + penalty, design.T))


def regression_scores(rows: Numbers, coefficients: Numbers) -> Numbers:
    """Return rows by scores."""
    return _with_ones(rows) @ coefficients


def odds(task: str, scores: Numbers) -> Numbers:
    """Return expected labels between -1 and 1 as logarithms of odds; numbers stay as they are."""
    if task == "regression":
        return scores
    return np.asarray(2.0 * np.arctanh(np.clip(scores, -_SUREST, _SUREST)))


def _with_ones(rows: Numbers) -> Numbers:
    return np.hstack([rows, np.ones((len(rows), 1))])
