"""Score one party's rows with the other's translator: Algorithm 2 of the paper."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from colonnade.crypto import CipherArray, FixedPoint, Format, Layout, Mask, PublicKey
from colonnade.exchanges.secure_product import Opening, ProductFormat, ask_to_open, open_for, take_opened
from colonnade.methods.ftl import sealed
from colonnade.methods.ftl.link import Keys
from colonnade.methods.ftl.messages import CodesToScore, MaskedScores, OpenedScores
from colonnade.session import Channel

__all__ = [
    "OFFSET",
    "Scorer",
    "ask_for_scores",
    "chunks",
    "give_scores",
    "mask_scores",
    "open_scores",
    "probabilities",
    "score_layout",
    "send_codes",
]

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

# Rows per message, so that many rows need few round trips and little memory.
_CHUNK = 2048
_TRANSLATOR = Format(sealed.FRACTION_BITS, 16)
OFFSET = Format(2 * sealed.FRACTION_BITS, 24)


@dataclass(frozen=True)
class Scorer:
    """A translator as it scores: one row and one offset per score."""

    phi: Numbers
    offset: Numbers

    def scaled(self, slope: Numbers | float, more: Numbers | float) -> Scorer:
        """Return the same with scores multiplied by a slope, and more added."""
        return Scorer(self.phi * np.reshape(slope, (-1, 1)), self.offset * slope + more)

    def scores(self, codes: Numbers) -> Numbers:
        """Return rows by scores."""
        return codes @ self.phi.T + self.offset


def ask_for_scores(peer: Channel, keys: Keys | None, codes: Numbers, scores: int) -> None:
    """Have rows scored by the partner, who learns the scores; nothing comes back yet."""
    for rows in chunks(len(codes)):
        send_codes(peer, keys, codes[rows])
        if keys is not None:
            layout = score_layout(len(rows), codes.shape[1], scores, keys.own)
            with peer.openings.at(f"rows from {rows[0]}"):
                open_for(peer, MaskedScores, OpenedScores, keys.own, layout)


def give_scores(peer: Channel, keys: Keys | None, scorer: Scorer, count: int) -> Numbers:
    """Score rows that the partner sends, and return the scores: rows by scores."""
    found = [np.empty((0, len(scorer.offset)))]
    for rows in chunks(count):
        if keys is None:
            codes = peer.receive(CodesToScore, rows=len(rows)).values
            found.append(scorer.scores(np.asarray(codes)))
        else:
            mask = mask_scores(peer, keys, scorer, len(rows))
            found.append(take_opened(peer, OpenedScores, mask).decode())
    return np.concatenate(found)


def send_codes(peer: Channel, keys: Keys | None, codes: Numbers) -> None:
    """Send codes, encrypted with many rows to a ciphertext where anything is."""
    if keys is None:
        peer.send(CodesToScore(codes))
    else:
        format = _format(len(codes), codes.shape[1], keys.own)
        peer.send(CodesToScore(format.seal(keys.own, codes.T).T))


def mask_scores(peer: Channel, keys: Keys, scorer: Scorer, count: int) -> Mask:
    """Receive codes, and send their scores back behind a mask."""
    received = cast(CipherArray, peer.receive(CodesToScore, rows=count).values)
    format = _format(count, scorer.phi.shape[1], keys.theirs)
    codes = received.under(keys.theirs, format.sealed().transposed)
    offset = FixedPoint.encode(np.broadcast_to(scorer.offset[:, None], (len(scorer.offset), count)), OFFSET)
    return ask_to_open(peer, MaskedScores, (format.weigh(codes.T, scorer.phi) + offset).T)


def open_scores(peer: Channel, keys: Keys, count: int, width: int, scores: int) -> list[Any]:
    """Receive masked scores and return them opened, as integers, without sending them back."""
    layout = score_layout(count, width, scores, keys.own)
    opening = Opening(peer, MaskedScores, keys.own)
    return list(opening.integers(opening.received.values, layout))


def score_layout(rows: int, width: int, scores: int, key: PublicKey) -> Layout:
    """Return how scores lie in ciphertexts."""
    return _format(rows, width, key).sums(scores).transposed


def _format(rows: int, width: int, key: PublicKey) -> ProductFormat:
    """Return the scales of scores, of codes whose rows lie side by side."""
    return ProductFormat(
        terms=width,
        columns=rows,
        key_bits=key.bits,
        numbers=sealed.CODES,
        factors=_TRANSLATOR,
        noise=OFFSET.bound,
    )


def chunks(count: int) -> Iterator[Places]:
    """Cut so many rows into messages of bearable size."""
    for start in range(0, count, _CHUNK):
        yield np.arange(start, min(start + _CHUNK, count))


def probabilities(task: str, scores: Numbers) -> Numbers:
    """Return scores as the rest of the product takes them: probabilities, or standardised numbers."""
    if task == "regression":
        return scores[:, 0]
    likely = 1.0 / (1.0 + np.exp(-np.clip(scores, -500.0, 500.0)))
    return likely[:, 0] if task == "binary" else likely / likely.sum(axis=1, keepdims=True)
