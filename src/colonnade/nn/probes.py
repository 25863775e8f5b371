"""Attackers that read an attribute from frozen representations.

How fair or private a representation looks depends on who looks. A network without standardised inputs overlooks what
lies in directions of little variance, which is just where adversarial training leaves it; so a strong attacker, a weak
one, a linear one and trees are all asked. What none of them finds may still be there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from colonnade.errors import ConfigError, OutOfRange, did_you_mean
from colonnade.nn.draws import seeded_generator
from colonnade.nn.learner import Learner
from colonnade.nn.mlp import mlp

__all__ = ["ATTACKS", "Attack", "attack", "attack_value"]

Numbers = npt.NDArray[np.float64]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

ATTACKS = ("strong", "whitened", "weak", "linear", "boosting")

_WIDTHS = (256, 128)
_BATCH = 256


@dataclass(frozen=True, eq=False)
class Attack:
    """What an attacker says about validation and test rows: one row of class probabilities each, or a number each."""

    kind: str
    validation: Numbers
    test: Numbers


@dataclass(frozen=True)
class _Network:
    """How an attacking network is trained; it keeps its best epoch on validation rows if it may stop early."""

    learning_rate: float
    epochs: int
    standardise: bool
    # Epochs without a lower validation loss after which it stops; none for training to the end.
    patience: int | None


_STRONG = _Network(learning_rate=1e-3, epochs=20, standardise=True, patience=5)
_WEAK = _Network(learning_rate=1e-4, epochs=5, standardise=False, patience=None)


@overload
def attack(
    kind: str,
    train_codes: npt.ArrayLike,
    train_labels: npt.ArrayLike,
    validation_codes: npt.ArrayLike,
    validation_labels: npt.ArrayLike,
    test_codes: npt.ArrayLike,
    *,
    classes: int,
    seed: int,
    members: int = 5,
    average: Literal[False] = False,
) -> Attack: ...


@overload
def attack(
    kind: str,
    train_codes: npt.ArrayLike,
    train_labels: npt.ArrayLike,
    validation_codes: npt.ArrayLike,
    validation_labels: npt.ArrayLike,
    test_codes: npt.ArrayLike,
    *,
    classes: int,
    seed: int,
    members: int = 5,
    average: Literal[True],
) -> list[Attack]: ...


def attack(
    kind: str,
    train_codes: npt.ArrayLike,
    train_labels: npt.ArrayLike,
    validation_codes: npt.ArrayLike,
    validation_labels: npt.ArrayLike,
    test_codes: npt.ArrayLike,
    *,
    classes: int,
    seed: int,
    members: int = 5,
    average: bool = False,
) -> Attack | list[Attack]:
    """Train an attacker on representations whose attribute it knows, and let it name that of others.

    ========  ======================================================================================================
    strong    network on standardised inputs, D-256-128-classes, Adam at 1e-3, up to 20 epochs, best on validation rows
    whitened  the same network on inputs whose directions all vary alike, not only their columns
    weak      the same network on inputs as they are, Adam at 1e-4, 5 epochs; near to FairVFL's released code
    linear    logistic regression on standardised inputs
    boosting  gradient-boosted trees
    ========  ======================================================================================================

    The networks are ensembles of ``members`` with seeds of their own, whose probabilities are averaged; with
    ``average`` each member's answer is returned by itself, for numbers that are averaged instead. Of the other two
    there is always one.
    """
    if kind not in ATTACKS:
        raise ConfigError(f"There is no attack '{kind}'. {did_you_mean(kind, ATTACKS)}")
    codes = _checked_codes(train_codes, validation_codes, test_codes)
    labels = _checked_labels(train_labels, len(codes[0]), classes)
    held = _checked_labels(validation_labels, len(codes[1]), classes)
    if len(np.unique(labels)) < 2:
        raise ConfigError("An attack needs training rows of at least two classes.")
    if kind == "linear":
        found = [_linear(codes, labels, classes)]
    elif kind == "boosting":
        found = [_boosting(codes, labels, classes, seed)]
    else:
        settings = _WEAK if kind == "weak" else _STRONG
        codes = _whitened(codes) if kind == "whitened" else codes
        outputs = _networks(
            settings, codes, labels, held, loss=functional.cross_entropy, outputs=classes, seed=seed, members=members
        )
        found = [Attack(kind, *(functional.softmax(said, dim=1).numpy() for said in pair)) for pair in outputs]
    return found if average else _ensemble(found)


def attack_value(
    train_codes: npt.ArrayLike,
    train_values: npt.ArrayLike,
    validation_codes: npt.ArrayLike,
    validation_values: npt.ArrayLike,
    test_codes: npt.ArrayLike,
    *,
    seed: int,
    members: int = 5,
) -> Attack:
    """Train the strong attacker to name an attribute that is a number, in that number's units; members are averaged."""
    codes = _checked_codes(train_codes, validation_codes, test_codes)
    values = [np.asarray(given, np.float64) for given in (train_values, validation_values)]
    if any(own.shape != (len(rows),) or not np.all(np.isfinite(own)) for own, rows in zip(values, codes, strict=False)):
        raise ConfigError("An attack on a number needs one finite value for each training and validation row.")
    centre, spread = float(values[0].mean()), float(values[0].std()) or 1.0
    wanted, held = (((own - centre) / spread).astype(np.float32).reshape(-1, 1) for own in values)
    outputs = _networks(_STRONG, codes, wanted, held, loss=functional.mse_loss, outputs=1, seed=seed, members=members)
    return _ensemble([Attack("strong", *(said[:, 0].numpy() * spread + centre for said in pair)) for pair in outputs])


def _networks(
    settings: _Network,
    codes: list[Numbers],
    labels: npt.NDArray[Any],
    held: npt.NDArray[Any],
    *,
    loss: Loss,
    outputs: int,
    seed: int,
    members: int,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Train networks that differ in their seeds; return what each says about validation and test rows."""
    if members < 1:
        raise ConfigError(f"An attack needs at least one member. Got {members}.")
    codes = _standardised(codes) if settings.standardise else codes
    train, validation, test = (torch.from_numpy(own).float() for own in codes)
    wanted, expected = torch.from_numpy(labels), torch.from_numpy(held)
    found = []
    for member in range(members):
        for_weights, for_order = np.random.SeedSequence([seed, member]).generate_state(2).tolist()
        network = mlp([train.shape[1], *_WIDTHS, outputs], seed=for_weights)
        _train(network, settings, train, wanted, validation, expected, loss, for_order)
        with torch.no_grad():
            said = network(validation).double(), network(test).double()
        if not all(bool(one.isfinite().all()) for one in said):
            raise OutOfRange("An attacking network diverged: the representations are too large for it.")
        found.append(said)
    return found


def _train(
    network: nn.Sequential,
    settings: _Network,
    train: torch.Tensor,
    wanted: torch.Tensor,
    validation: torch.Tensor,
    expected: torch.Tensor,
    loss: Loss,
    seed: int,
) -> None:
    learner = Learner({"probe": network}, "Adam", settings.learning_rate, {})
    generator = seeded_generator(seed)
    lowest, waited = float("inf"), 0
    for _ in range(settings.epochs):
        order = torch.randperm(len(train), generator=generator)
        # Put in order once for the whole epoch: batches are then mere views.
        rows, targets = train[order], wanted[order]
        for start in range(0, len(rows), _BATCH):
            batch = slice(start, start + _BATCH)
            learner.zero_gradients()
            loss(network(rows[batch]), targets[batch]).backward()  # type: ignore[no-untyped-call]
            learner.step()
        if settings.patience is None:
            continue
        with torch.no_grad():
            now = float(loss(network(validation), expected))
        waited += 1
        if now < lowest:
            lowest, waited = now, 0
            learner.keep_best()
        if waited >= settings.patience:
            break
    learner.restore_best()


def _linear(codes: list[Numbers], labels: npt.NDArray[np.int64], classes: int) -> Attack:
    from sklearn.linear_model import LogisticRegression

    train, *others = _standardised(codes)
    return _fitted("linear", LogisticRegression(max_iter=2000), train, labels, others, classes)


def _boosting(codes: list[Numbers], labels: npt.NDArray[np.int64], classes: int, seed: int) -> Attack:
    from sklearn.ensemble import HistGradientBoostingClassifier

    # To stop in time it sets aside a tenth of every class, which takes a few rows of each.
    can_stop = int(np.unique(labels, return_counts=True)[1].min()) >= 10
    state = int(np.random.SeedSequence([seed]).generate_state(1)[0])
    model = HistGradientBoostingClassifier(early_stopping=can_stop, random_state=state)
    return _fitted("boosting", model, codes[0], labels, codes[1:], classes)


def _fitted(
    kind: str, model: Any, train: Numbers, labels: npt.NDArray[np.int64], others: list[Numbers], classes: int
) -> Attack:
    """Fit a model of scikit-learn; a class that it has not seen gets probability 0."""
    model.fit(train, labels)
    found = []
    for rows in others:
        chances = np.zeros((len(rows), classes))
        chances[:, model.classes_] = model.predict_proba(rows)
        found.append(chances)
    return Attack(kind, *found)


def _ensemble(members: list[Attack]) -> Attack:
    return Attack(
        members[0].kind,
        np.mean([member.validation for member in members], axis=0),
        np.mean([member.test for member in members], axis=0),
    )


def _standardised(codes: list[Numbers]) -> list[Numbers]:
    """Bring every column to mean 0 and standard deviation 1 over training rows, however little it varies."""
    centre, spread = codes[0].mean(axis=0), codes[0].std(axis=0)
    # A constant column has a spread too, from rounding.
    spread = np.where(np.ptp(codes[0], axis=0) > 0, spread, 1.0)
    return [(own - centre) / spread for own in codes]


def _whitened(codes: list[Numbers]) -> list[Numbers]:
    """Bring every direction to standard deviation 1 over training rows: a bit may hide in one of little variance."""
    centre = codes[0].mean(axis=0)
    _, lengths, directions = np.linalg.svd(codes[0] - centre, full_matrices=False)
    # Directions in which rows do not differ at all would only be rounding.
    kept = lengths > max(float(lengths.max(initial=0.0)) * 1e-9, 1e-12)
    turned = directions[kept].T / lengths[kept] * np.sqrt(len(codes[0]))
    return [(own - centre) @ turned for own in codes] if kept.any() else codes


def _checked_codes(*given: npt.ArrayLike) -> list[Numbers]:
    codes = [np.asarray(own, np.float64) for own in given]
    if any(own.ndim != 2 or not len(own) or own.shape[1] != codes[0].shape[1] for own in codes):
        shapes = ", ".join(str(own.shape) for own in codes)
        raise ConfigError(f"Representations to attack must be rows of one width, some of each part. Got {shapes}.")
    if not all(np.all(np.isfinite(own)) for own in codes):
        raise OutOfRange("Representations to attack are not all finite: the model that made them diverged.")
    return codes


def _checked_labels(given: npt.ArrayLike, rows: int, classes: int) -> npt.NDArray[np.int64]:
    labels = np.asarray(given)
    if labels.shape != (rows,) or labels.dtype.kind not in "biu":
        raise ConfigError(f"An attack needs a class number for each of {rows} rows. Got shape {labels.shape}.")
    if labels.min() < 0 or labels.max() >= classes:
        raise ConfigError(f"Classes to attack must lie between 0 and {classes - 1}. Leave out unknown ones.")
    return labels.astype(np.int64)
