"""What crosses when multi-party dual learning works on graphs, beside generators, masked sums and scores."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from colonnade.exchanges.masked_sums import HOLDERS, masked_sum_messages
from colonnade.exchanges.public_keys import public_modulus
from colonnade.exchanges.shared_sums import sum_messages
from colonnade.messages import NOISED, PLAIN, message
from colonnade.methods.mpdl.config import COLLABORATOR

__all__ = [
    "GRAPH_MESSAGES",
    "FirstWeights",
    "OwnNodes",
    "confused_features",
    "confused_sums",
    "graph_messages",
    "graph_schedule",
    "likely_links",
    "noisy_links",
]

_BOTH_WAYS = (("label_holder", "feature_holder"), ("feature_holder", "label_holder"))


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="graph: set-up", asks_for="count")
class OwnNodes:
    """How many people only the sender knows, who get scores. Reveals: that number."""

    count: int


@cache
def graph_schedule(receiver: str) -> type[Any]:
    """Declare how the label holder says how many nodes there are of each kind."""

    @message(sender="label_holder", receiver=receiver, protection=PLAIN, step="graph: set-up")
    class GraphSchedule:
        """How many nodes there are of each kind, and how wide the first layer is.

        Reveals: how many shared nodes are learned from and held out, how many labelled ones only the sender has, how
        many only the other holder has, and the number of classes.
        """

        learned: int
        own: int
        test: int
        alone: int
        hidden: int
        outputs: int

    return GraphSchedule


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="graph: first layer")
class FirstWeights:
    """The first layer's weights, drawn at random, the same at both holders and never trained.

    Reveals: nothing about any table. The collaborator must not get them.
    """

    values: np.ndarray[Any, Any]


@cache
def noisy_links(sender: str, receiver: str) -> type[Any]:
    """Declare links under randomised response."""

    @message(sender=sender, receiver=receiver, protection=NOISED, step="graph: links = edge_ldp")
    class NoisyLinks:
        """For each pair of a person whom only the sender knows and a shared one, whether they are linked, or a lie.

        Reveals: each of these links as far as link_epsilon says.
        """

        values: np.ndarray[Any, Any]

    return NoisyLinks


@cache
def confused_features(sender: str, receiver: str) -> type[Any]:
    """Declare the paper's first message: features behind a matrix."""

    @message(sender=sender, receiver=receiver, protection=PLAIN, step="graph: links = confusion (paper)")
    class ConfusedFeatures:
        """The sender's columns of shared people, multiplied with a secret matrix.

        Reveals: the space that the columns span, which rows are equal and which are empty.
        """

        values: np.ndarray[Any, Any]

    return ConfusedFeatures


@cache
def confused_sums(sender: str, receiver: str) -> type[Any]:
    """Declare the paper's second message: these features added up along links."""

    @message(sender=sender, receiver=receiver, protection=PLAIN, step="graph: links = confusion (paper)")
    class ConfusedSums:
        """The receiver's columns, added up along the sender's links, behind the receiver's matrix.

        Reveals: in effect the sender's links to shared people, which a linear programme finds.
        """

        values: np.ndarray[Any, Any]

    return ConfusedSums


@cache
def likely_links(receiver: str) -> type[Any]:
    """Declare which links the collaborator finds likely."""

    @message(sender=COLLABORATOR, receiver=receiver, protection=PLAIN, step="graph: link prediction")
    class LikelyLinks:
        """Pairs of people whose neighbours are most alike, the likeliest first, by their places in messages.

        Reveals: which of the receiver's own people are like which of the other holder's own, not who these are.
        """

        pairs: np.ndarray[Any, Any]

    return LikelyLinks


_SUGGESTED = tuple(likely_links(role) for role in HOLDERS)
_SET_UP: tuple[type[Any], ...] = (
    OwnNodes,
    *(graph_schedule(role) for role in ("feature_holder", COLLABORATOR)),
    FirstWeights,
)
_KEYS = tuple(public_modulus(*pair) for pair in _BOTH_WAYS)
_SUMS = tuple(one for pair in _BOTH_WAYS for one in sum_messages(*pair).all)
_NOISY = tuple(noisy_links(*pair) for pair in _BOTH_WAYS)
_CONFUSED = (
    *(confused_features(*pair) for pair in _BOTH_WAYS),
    *(confused_sums(*pair) for pair in _BOTH_WAYS),
)
_BY_PROTOCOL: Mapping[str, tuple[type[Any], ...]] = {
    "he_share": (*_KEYS, *_SUMS),
    "edge_ldp": _NOISY,
    "confusion": _CONFUSED,
}

GRAPH_MESSAGES: tuple[type[Any], ...] = (
    *_SET_UP,
    *_SUMS,
    *_NOISY,
    *_CONFUSED,
    *_SUGGESTED,
)
"""All messages that no other stage has."""


def graph_messages(config: Mapping[str, Any]) -> tuple[type[Any], ...]:
    """Return what can cross for sums along links, by the protocol that makes them, and for what comes of them."""
    suggested = _SUGGESTED if config["suggested_links"] else ()
    sums = masked_sum_messages(HOLDERS, COLLABORATOR)
    return (*_SET_UP, *_BY_PROTOCOL[config["links"]], *sums, *suggested)
