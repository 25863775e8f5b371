"""Add up one holder's columns of shared people along the other holder's links: three protocols, one result.

Each holder has links from people whom only it knows to shared people, and the other holder has columns of these. What
the sums come to is split over both holders: as words of the ring with 20 fraction bits that add up to them.

``he_share``: both hold uniform shares, and neither sees the sums; see `colonnade.exchanges.shared_sums`.

``edge_ldp``: the holder of the links sends them under randomised response, and the owner of the columns adds up by
itself and takes the lies out on average. The paper's matrix is left out: links that may be released need no hiding, and
so the columns need not leave at all.

``confusion``: the paper's flow, whose links are found by `colonnade.methods.mpdl.links.recover_links`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colonnade.crypto import Format
from colonnade.crypto.ring import Words
from colonnade.exchanges.public_keys import make_key, receive_key, send_key
from colonnade.exchanges.secure_product import SharedFormat
from colonnade.exchanges.shared_sums import add_along_links, receive_sums, send_features
from colonnade.methods.mpdl.config import MPDL
from colonnade.methods.mpdl.messages import ConfusedFeatures, ConfusedSums, NoisyLinks
from colonnade.privacy import SecretNoise
from colonnade.session import Channel, Session

__all__ = ["SUM_BITS", "CrossLinks", "exchange_sums", "flip_chance", "noisy_answers", "to_words", "truthful_sums"]

Numbers = npt.NDArray[np.float64]
Answers = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

SUM_BITS = 20
"""Fraction bits of sums; the first layer's weights have the other half of a masked sum's."""
_UNIT_BITS, _NOISED_BITS = 1, 12


@dataclass(frozen=True)
class CrossLinks:
    """What one holder brings to the sums, and how much the other does."""

    features: Numbers
    """Its own columns of all shared people, in the agreed order."""
    links: Sequence[Places]
    """For each person whom only it knows and whose sums are wanted, the shared neighbours by their place."""
    their_rows: int
    their_columns: int

    @property
    def adds(self) -> bool:
        """Tell whether this holder has sums to be made of the other's columns."""
        return bool(len(self.links)) and self.their_columns > 0

    @property
    def owns(self) -> bool:
        """Tell whether the other holder has sums to be made of this one's columns."""
        return self.their_rows > 0 and self.features.shape[1] > 0


Parts = tuple[Words, Words]
"""This holder's parts of the sums along its own links, and of those along the other's."""


def exchange_sums(session: Session, peer: Channel, config: MPDL, cross: CrossLinks) -> Parts:
    """Make the sums of both directions; both holders call this at the same time."""
    protocols: dict[str, Callable[[Session, Channel, MPDL, CrossLinks], Parts]] = {
        "he_share": _by_shares,
        "edge_ldp": _by_noisy_links,
        "confusion": _by_confusion,
    }
    return protocols[config.links](session, peer, config, cross)


def to_words(numbers: Numbers) -> Words:
    """Round numbers to words of the ring."""
    return np.rint(numbers * 2.0**SUM_BITS).astype(np.int64).view(np.uint64)


def _nothing(cross: CrossLinks) -> Parts:
    mine = np.zeros((len(cross.links), cross.their_columns), np.uint64)
    return mine, np.zeros((cross.their_rows, cross.features.shape[1]), np.uint64)


def _by_shares(session: Session, peer: Channel, config: MPDL, cross: CrossLinks) -> Parts:
    own_key = make_key(session, config.key_size)
    send_key(peer, own_key)
    their_key = receive_key(session, peer, config.key_size)
    mine, theirs = _nothing(cross)
    shared = len(cross.features)
    # Cells that have noise on them lie beyond 0 and 1.
    scale = Format(SUM_BITS, _NOISED_BITS if config.dp_scope == "all" else _UNIT_BITS)
    if cross.owns:
        width = cross.features.shape[1]
        own_format = SharedFormat(terms=shared, columns=width, key_bits=own_key.bits, numbers=scale)
        send_features(peer, own_key, own_format, cross.features)
    if cross.adds:
        width = cross.their_columns
        their_format = SharedFormat(terms=shared, columns=width, key_bits=their_key.bits, numbers=scale)
        mine = add_along_links(peer, their_key, their_format, cross.links)
    if cross.owns:
        with peer.openings.at("links"):
            theirs = receive_sums(peer, own_key, own_format, cross.their_rows)
    return mine, theirs


def flip_chance(epsilon: float) -> float:
    """Return how likely an answer about a link is a lie."""
    return 1.0 / (1.0 + math.exp(epsilon))


def noisy_answers(noise: SecretNoise, links: Sequence[Places], shared: int, epsilon: float) -> Answers:
    """Return for every row and shared person whether they are linked, or with some probability the contrary.

    The noise belongs to a row's place, so that a run that is taken up again gives the same answers.
    """
    below = np.uint64(int(flip_chance(epsilon) * 2.0**64))
    found = np.zeros((len(links), shared), np.bool_)
    for row, places in enumerate(links):
        found[row, places] = True
        found[row] ^= noise.words("links", row, (shared,)) < below
    return found


def truthful_sums(answers: Answers, features: Numbers, epsilon: float) -> Numbers:
    """Add up features along answers so that lies cancel on average."""
    lie = flip_chance(epsilon)
    sums: Numbers = (answers.astype(np.float64) @ features - lie * features.sum(axis=0)) / (1.0 - 2.0 * lie)
    return sums


def _by_noisy_links(session: Session, peer: Channel, config: MPDL, cross: CrossLinks) -> Parts:
    epsilon, shared = config.link_epsilon, len(cross.features)
    mine, theirs = _nothing(cross)
    if cross.adds:
        answers = noisy_answers(SecretNoise(session.secret("links")), cross.links, shared, epsilon)
        # Of a person's links only those to shared people are told: at most so many answers are about one person.
        session.ledger.mark("links", epsilon=epsilon, person=epsilon * shared, answers=answers.size)
        peer.send(NoisyLinks(np.packbits(answers, axis=1)))
    if cross.owns:
        packed = peer.receive(NoisyLinks, rows=cross.their_rows, bytes=math.ceil(shared / 8)).values
        told = np.unpackbits(packed.astype(np.uint8), axis=1, count=shared).astype(np.bool_)
        theirs = to_words(truthful_sums(told, cross.features, epsilon))
    return mine, theirs


def _by_confusion(session: Session, peer: Channel, config: MPDL, cross: CrossLinks) -> Parts:
    mine, theirs = _nothing(cross)
    width, shared = cross.features.shape[1], len(cross.features)
    draw = np.random.default_rng(int.from_bytes(session.secret("confusion"), "little"))
    confusion = draw.normal(size=(width, width))
    if cross.owns:
        peer.send(ConfusedFeatures(cross.features @ confusion))
    if cross.adds:
        features = peer.receive(ConfusedFeatures, rows=shared, columns=cross.their_columns).values
        sums = np.array([features[places].sum(axis=0) for places in cross.links])
        peer.send(ConfusedSums(sums))
    if cross.owns:
        answer = peer.receive(ConfusedSums, rows=cross.their_rows, columns=width).values
        # The transposed system: X M = R becomes M' X' = R'.
        opened = np.linalg.solve(confusion.T, answer.T).T
        theirs = to_words(opened.astype(np.float64))
    return mine, theirs
