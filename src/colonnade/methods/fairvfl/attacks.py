"""What an audit and a sweep have in common: the rows that attackers get, the attacks, and how holders tell of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colonnade.errors import ConfigError, WrongContent
from colonnade.methods.fairvfl.config import FairVFL
from colonnade.methods.fairvfl.messages import AttackResult, Countable
from colonnade.methods.fairvfl.sides import Attribute, Places
from colonnade.metrics import measure_inference, measure_value_inference
from colonnade.nn import ATTACKS, attack, attack_value
from colonnade.session import Channel, Holding, Session

__all__ = ["Audited", "attack_attribute", "checked_codes", "send_result", "told_countable", "told_results"]

_SHARE_KEPT = 5
_TOLD = ("auc", "r2", "is_above_chance")


@dataclass(frozen=True)
class Audited:
    """The rows of an audit, by their purpose, as places among shared rows."""

    train: Places
    validation: Places
    test: Places

    @classmethod
    def of(cls, holding: Holding, config: FairVFL) -> Audited:
        """Return the rows that all parties take alike."""
        split = holding.split
        if not len(split.test):
            raise ConfigError("An audit judges attackers on held-out rows. Train with evaluate.test_fraction above 0.")
        train, validation = split.train[: config.audit_rows], split.validation
        if not len(validation):
            # Attackers stop by rows that they do not learn from, also where the model had no use for such rows.
            kept = max(1, len(train) // _SHARE_KEPT)
            train, validation = train[:-kept], train[-kept:]
        return cls(train, validation, split.test)

    @property
    def rows(self) -> Places:
        """Return all of them, in the order in which they are sent."""
        return np.concatenate([self.train, self.validation, self.test])

    def divide(self, values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], ...]:
        """Divide what came for all of them."""
        ends = np.cumsum([len(self.train), len(self.validation)])
        return tuple(np.split(values, ends))


def checked_codes(session: Session, values: torch.Tensor) -> npt.NDArray[np.float32]:
    """Return codes to attack in single precision, as attackers take them, or refuse what nothing can be read from."""
    found = values.float()
    if not found.shape[1] or not bool(found.isfinite().all()):
        raise WrongContent(f"The codes to attack that '{session.party}' got have no columns, or numbers out of range.")
    return found.numpy()


def attack_attribute(
    attribute: Attribute,
    codes: npt.NDArray[Any],
    audited: Audited,
    seed: int,
    *,
    kinds: Sequence[str] = ATTACKS,
    members: int,
) -> dict[str, Any]:
    """Return what each kind of attacker reads, by kind."""
    parts = []
    for rows, own in zip((audited.train, audited.validation, audited.test), audited.divide(codes), strict=True):
        known = attribute.is_known[rows]
        parts.append((own[known], attribute.targets.numpy()[rows][known]))
    (train, learned), (validation, checked), (test, truth) = parts
    if not (len(learned) and len(checked) and len(truth)):
        return {}
    if attribute.is_numeric:
        said = attack_value(train, learned, validation, checked, test, seed=seed, members=members)
        return {"strong": measure_value_inference(truth, said.test).to_json()}
    found = {}
    for kind in kinds:
        guessed = attack(
            kind,
            train,
            learned,
            validation,
            checked,
            test,
            classes=len(attribute.classes),
            seed=seed,
            members=members,
        )
        found[kind] = measure_inference(truth, guessed.test, checked, guessed.validation).to_json()
    return found


def told_countable(peer: Channel, config: FairVFL, having: dict[str, tuple[str, ...]]) -> Countable:
    """Receive by which attributes a holder can count."""
    # Everybody has attributes of its own: one that another has already offered would replace what that one counted.
    told = peer.receive(Countable, sensitive=set(config.attributes).difference(*having.values()))
    if len(told.attributes) != len(told.groups):
        raise WrongContent(f"'{peer.peer}' offers to count by {len(told.attributes)} attributes, with other groups.")
    return told


def told_results(session: Session, config: FairVFL, expected: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """Receive what attackers read at the holders of attributes."""
    found: dict[str, Any] = {}
    for peer in session.all_channels:
        for attribute in expected.get(peer.peer, ()):
            found[attribute] = _read(peer, peer.receive(AttackResult, attribute=attribute).found)
    return found


def send_result(peer: Channel, attribute: str, found: dict[str, Any]) -> None:
    """Tell the label holder what the verdict needs, and not how many rows each class has."""
    told = {kind: {name: one.get(name) for name in _TOLD} for kind, one in found.items()}
    peer.send(AttackResult(attribute, json.dumps(told)))


def _read(peer: Channel, text: str) -> dict[str, dict[str, Any]]:
    """Return what the verdict needs of each attacker: areas under the curve, or shares that were explained."""
    try:
        content = json.loads(text)
        found = {kind: {name: numbers.get(name) for name in _TOLD} for kind, numbers in content.items()}
        told = [value for one in found.values() for value in one.values() if value is not None]
        fits = set(found) <= set(ATTACKS) and all(math.isfinite(value) and value <= 1.0 for value in told)
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError):
        fits, found = False, {}
    if not fits:
        raise WrongContent(f"'{peer.peer}' tells of an attack in a way that no version of colonnade does.")
    return found
