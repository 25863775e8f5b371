"""What the target's columns give without transfer: a regression on the labelled shared rows alone.

Labels lie at the source, columns at the target, so that this is itself a small federated model, by the secure linear
layer. It judges transfer, and takes its place where transfer does harm.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colonnade.crypto import Format
from colonnade.data import LabelEncoder
from colonnade.errors import CheckpointBroken, TableError, WrongContent
from colonnade.exchanges.secure_linear import LinearFormat, LinearOwner, LinearPartner
from colonnade.methods.ftl.link import Keys
from colonnade.methods.ftl.messages import LINEAR, ClearLogits, ClearSlopes, OwnModel
from colonnade.methods.ftl.scoring import chunks
from colonnade.session import Channel

__all__ = [
    "L2",
    "MOMENTUM",
    "RATE",
    "STEPS",
    "Regression",
    "give_up",
    "learn_as_source",
    "learn_as_target",
    "linear_format",
    "regression_scores",
    "take_over",
]

Numbers = npt.NDArray[np.float64]

STEPS, RATE, MOMENTUM, L2 = 80, 0.3, 0.9, 0.03
_LARGEST_VALUE = 64.0


@dataclass(frozen=True)
class Regression:
    """What the source knows of the model: its intercept, and scores of rows that it asked for."""

    intercept: Numbers
    scores: list[Numbers]
    layer: LinearPartner | None


def linear_format(inputs: int, outputs: int, rows: int, keys: Keys) -> LinearFormat:
    """Return the ranges and scales of the layer."""
    return LinearFormat(
        inputs=inputs,
        outputs=outputs,
        most_rows=max(rows, 1),
        key_bits=keys.own.bits,
        input_format=Format(fraction_bits=20, magnitude_bits=6),
        step_format=Format(fraction_bits=28, magnitude_bits=0),
        forward_bits=None,
    )


def learn_as_target(
    peer: Channel, keys: Keys | None, rows: Numbers, scored: list[Numbers], outputs: int
) -> LinearOwner | Numbers:
    """Play the party that brings columns: of the labelled rows, and of rows to be scored afterwards."""
    rows = np.clip(rows, -_LARGEST_VALUE, _LARGEST_VALUE)
    if keys is None:
        weights = np.zeros((rows.shape[1], outputs))
        velocity = np.zeros_like(weights)
        for _ in range(STEPS):
            peer.send(ClearLogits(rows @ weights))
            slopes = peer.receive(ClearSlopes, values=(len(rows), outputs)).values
            velocity = MOMENTUM * velocity + rows.T @ slopes + RATE * L2 * weights
            weights = weights - velocity
        for part in scored:
            peer.send(ClearLogits(np.clip(part, -_LARGEST_VALUE, _LARGEST_VALUE) @ weights))
        return weights
    layer = LinearOwner(
        peer, LINEAR, linear_format(rows.shape[1], outputs, len(rows), keys), keys.own, momentum=MOMENTUM
    )
    layer.open()
    inputs = layer.encode(rows)
    layer.send_inputs(inputs)
    for _ in range(STEPS):
        layer.answer(inputs)
        layer.learn(RATE * L2)
    for part in scored:
        for chosen in chunks(len(part)):
            sent = layer.encode(np.clip(part[chosen], -_LARGEST_VALUE, _LARGEST_VALUE))
            layer.send_inputs(sent, trains=False)
            layer.answer(sent)
    return layer


def learn_as_source(
    peer: Channel,
    keys: Keys | None,
    task: str,
    targets: Numbers,
    scored: list[int],
    inputs: int,
) -> Regression:
    """Play the party that brings labels, and return the scores of rows the target was to bring: so many per part."""
    count, outputs = targets.shape
    intercept, velocity = np.zeros(outputs), np.zeros(outputs)
    layer = None
    if keys is not None:
        format = linear_format(inputs, outputs, count, keys)
        layer = LinearPartner(peer, LINEAR, format, keys.theirs, momentum=MOMENTUM)
        layer.open()
        batch = layer.receive_inputs(count)
    for _ in range(STEPS):
        if layer is None:
            logits = peer.receive(ClearLogits, values=(count, outputs)).values + intercept
        else:
            logits = layer.logits(layer.ask(batch)) + intercept
        steps = RATE * _slopes(task, logits, targets)
        if layer is None:
            peer.send(ClearSlopes(steps))
        else:
            layer.teach(batch, steps)
            layer.receive_update(RATE * L2)
        velocity = MOMENTUM * velocity + steps.sum(axis=0)
        intercept = intercept - velocity
    scores = [_scores(peer, layer, rows, outputs) + intercept for rows in scored]
    return Regression(intercept, scores, layer)


def give_up(peer: Channel, regression: Regression, labels: str) -> None:
    """Let the target have the whole model: the source's shares of its coefficients, and the intercept."""
    shares = () if regression.layer is None else regression.layer.give_up_share()
    peer.send(OwnModel(shares, regression.intercept, labels))


def take_over(peer: Channel, learned: LinearOwner | Numbers, outputs: int) -> tuple[Numbers, Numbers, str]:
    """Return coefficients, intercept, and the labels' encoder as JSON."""
    message = peer.receive(OwnModel, intercept=(outputs,))
    try:
        LabelEncoder.from_json(json.loads(message.labels))
    except (ValueError, TypeError, AttributeError, RecursionError, CheckpointBroken, TableError):
        raise WrongContent(f"'{peer.peer}' describes its labels in a way no version of colonnade does.") from None
    if isinstance(learned, LinearOwner):
        return learned.weights(message.shares), message.intercept, message.labels
    return learned, message.intercept, message.labels


def regression_scores(rows: Numbers, coefficients: Numbers, intercept: Numbers) -> Numbers:
    """Return rows by scores."""
    return np.clip(rows, -_LARGEST_VALUE, _LARGEST_VALUE) @ coefficients + intercept


def _scores(peer: Channel, layer: LinearPartner | None, rows: int, outputs: int) -> Numbers:
    if layer is None:
        values: Numbers = peer.receive(ClearLogits, values=(rows, outputs)).values
        return values
    found = [np.empty((0, outputs))]
    for chosen in chunks(rows):
        batch = layer.receive_inputs(len(chosen), trains=False)
        found.append(layer.logits(layer.ask(batch)))
    return np.concatenate(found)


def _slopes(task: str, logits: Numbers, targets: Numbers) -> Numbers:
    """Return the mean loss's slopes; targets are -1 and +1, each class by itself, or standardised numbers."""
    if task == "regression":
        return (logits - targets) / len(targets)
    return (1.0 / (1.0 + np.exp(-np.clip(logits, -500.0, 500.0))) - (targets + 1.0) / 2.0) / len(targets)
