"""Sums over rows that only one party sees, weighted by numbers that only another has, opened with noise.

The owner holds rows X (n by d) and a Paillier key; the partner holds weights V (k by n):

1. owner to partner: [[X]], once, for any number of sums (`SealedRows`);
2. partner to owner: [[V X + M]], freshly randomised, with a mask M that is uniform modulo n (`MaskedSums`). The owner
   keeps what it decrypts, the partner -M plus noise, both slot by slot modulo 2**64;
3. partner to owner: what it kept (`SumShare`), when both have kept theirs, such as after a checkpoint.

So an owner that has a sum computed once more, of other rows, gets another mask and other noise, and one that asks for a
share once more the same. Step 2 shows it nothing, whatever it has encrypted; step 3 at most 64 bits for each sum, of
which noise covers the lower ones: more than one row's weight, where it has encrypted rows beyond their range. The
partner sees ciphertexts under a key it does not have. Sums are exact in the rounded numbers, but for the last place
with a probability of 2**-40 each; the more rows, the fewer digits their weights keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch

from colonnade.crypto import CipherArray, Format, PrivateKey, PublicKey
from colonnade.errors import OpeningRefused
from colonnade.exchanges.secure_product import Opening, SharedFormat
from colonnade.messages import ENCRYPTED, GIVEN, MASKED, NOISED, PLAIN, Carries, Dims, message, when
from colonnade.privacy import SecretNoise
from colonnade.session import Channel, Session
from colonnade.session.openings import MOST_ATTEMPTS

__all__ = ["MaskedSums", "SealedRows", "SumOwner", "SumPartner", "SumShare", "sum_format"]

Numbers = npt.NDArray[np.float64]

_NUMBERS = Format(fraction_bits=20, magnitude_bits=2)
_WEIGHTS = Format(fraction_bits=20, magnitude_bits=5)
_HIDING_BITS = 40
# Up to 2**14 rows weights keep all their digits.
_ROWS_BITS = 14


def sum_format(rows: int, columns: int, key_bits: int) -> SharedFormat:
    """Return the scales of sums over so many rows, those of all parts together."""
    dropped = min(max(rows.bit_length() - _ROWS_BITS, 0), _WEIGHTS.fraction_bits)
    return SharedFormat(
        terms=rows,
        columns=columns,
        key_bits=key_bits,
        numbers=_NUMBERS,
        factors=replace(_WEIGHTS, fraction_bits=_WEIGHTS.fraction_bits - dropped),
        hiding_bits=_HIDING_BITS,
    )


@message(sender=GIVEN, receiver=GIVEN, protection=ENCRYPTED, step="set-up", carries=Carries.ROW_CODE)
class SealedRows:
    """The sender's encoded columns of some training rows, under the sender's key.

    Reveals: how many training rows, and independent columns of them, the sender has.
    """

    values: Annotated[CipherArray, Dims("rows", "columns")]


# The receiver owns the key: what hides the content from it is the mask.
@message(sender=GIVEN, receiver=GIVEN, protection=MASKED, step="every epoch", carries=Carries.SUM)
class MaskedSums:
    """Sums over the receiver's rows, weighted by the slopes of the loss, behind a mask.

    Reveals: nothing.
    """

    values: Annotated[CipherArray, Dims("sums", "columns")]


@message(
    sender=GIVEN,
    receiver=GIVEN,
    protection=when("coefficient_noise", NOISED, PLAIN),
    step="every epoch",
    carries=Carries.WEIGHTS,
)
class SumShare:
    """What takes the mask off sums, once both parties have kept the masked ones.

    Reveals: sums over the training rows, from which the labels of rows that a column sets apart can be read.
    Reveals when NOISED: sums over the training rows, give or take about what the label of one row moves where a column
    is 1. A column that is much larger in a single row still tells that row's label. A receiver that encrypted
    rows beyond their range may read about twenty labels from one sum.
    """

    values: Annotated[np.ndarray[Any, Any], Dims("sums", "columns", kind="u")]


class _Half:
    """What both sides keep: their shares of every release."""

    def __init__(self, peer: Channel, format: SharedFormat, sums: int, releases: int) -> None:
        self._peer, self.format = peer, format
        self._shares = np.zeros((releases, sums, format.columns), np.uint64)
        self._extents = {"sums": sums, "columns": format.columns}

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return the shares, for a checkpoint."""
        return {"shares": torch.from_numpy(self._shares.view(np.int64).copy())}, {}

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._shares = tensors["shares"].numpy().view(np.uint64).copy()


class SumOwner(_Half):
    """The side that holds the rows and the key."""

    def __init__(self, peer: Channel, format: SharedFormat, sums: int, releases: int, key: PrivateKey) -> None:
        super().__init__(peer, format, sums, releases)
        self._key = key

    def seal(self, rows: Numbers) -> None:
        """Encrypt a part of the rows and send it; numbers beyond 4 are cut off."""
        limit = 2.0**_NUMBERS.magnitude_bits
        self._peer.send(SealedRows(self.format.seal(self._key, np.clip(rows, -limit, limit))))

    def keep(self, release: int) -> None:
        """Decrypt masked sums and keep this party's share of them."""
        opening = Opening(self._peer, MaskedSums, self._key, **self._extents)
        self._shares[release] = self.format.open_share(opening, opening.received.values, self._extents["sums"])

    def open(self, release: int) -> Numbers:
        """Receive what takes the mask off, and return the sums, with the partner's noise."""
        words = self._shares[release] + self._peer.receive(SumShare, **self._extents).values
        sums: Numbers = np.ldexp(words.view(np.int64).astype(np.float64), -self.format.fraction_bits)
        return sums


class SumPartner(_Half):
    """The side that computes on the owner's ciphertexts."""

    def __init__(
        self, session: Session, peer: Channel, format: SharedFormat, sums: int, releases: int, key: PublicKey
    ) -> None:
        super().__init__(peer, format, sums, releases)
        self._session, self._key, self._parts = session, key, list[CipherArray]()

    def receive(self, rows: int) -> None:
        """Receive the next part of the rows."""
        received = self._peer.receive(SealedRows, rows=rows, columns=self.format.columns).values
        self._parts.append(received.under(self._key, self.format.sealed(rows)))

    def send(self, release: int, weights: Numbers, deviation: float) -> None:
        """Send the weighted sums over all parts, masked, and keep this party's share, with noise of this deviation.

        Weights are cut off beyond 32.
        """
        if self._peer.openings.attempts > MOST_ATTEMPTS:
            raise OpeningRefused(
                f"'{self._peer.peer}' would get sums of the same rows in attempt {self._peer.openings.attempts}: each "
                "time with other noise, or of other columns. Nothing was sent. Find out why the run breaks off; then "
                "begin a new run."
            )
        limit, at, products = 2.0**_WEIGHTS.magnitude_bits, 0, []
        for part in self._parts:
            own = np.clip(weights[:, at : at + part.shape[0]], -limit, limit)
            products.append(self.format.weigh(part, own))
            at += part.shape[0]
        masked, share = self.format.share(reduce(add, products))
        noise = deviation * self._drawn(share.shape) if deviation else np.zeros(share.shape)
        words = np.rint(np.ldexp(noise, self.format.fraction_bits)).astype(np.int64).view(np.uint64)
        self._shares[release] = share + words
        self._peer.send(MaskedSums(masked))

    def unmask(self, release: int) -> None:
        """Send this party's share, with the noise that was drawn for it."""
        self._peer.send(SumShare(self._shares[release]))

    def _drawn(self, shape: tuple[int, ...]) -> Numbers:
        """Return noise of variance 1, another for all sums that were sent, in earlier attempts at the run too.

        The same noise on sums that are computed anew, of other rows, could be taken off.
        """
        sent = (entry.content for entry in self._session.ledger.read().entries if entry.kind == "sent")
        count = sum((one["peer"], one["message"]) == (self._peer.peer, MaskedSums.__name__) for one in sent)
        return SecretNoise(self._session.secret("noise of sums")).gaussian(self._peer.peer, count, shape)
