"""Add up rows of one party's table along another party's links, into shares that neither can read.

The owner holds features F (n by f) and a key; the adding party holds links: for each of its m rows, which of the n rows
are its neighbours.

1. owner to adding party: [[F]] under the owner's key, the columns of a row side by side;
2. the adding party multiplies the ciphertexts of each row's neighbours, which adds the hidden rows, subtracts a share S
   that is uniform modulo n, and returns [[Adj F - S]], freshly randomised. A row without neighbours is a fresh
   encryption of -S, as all others are to whoever lacks S;
3. the owner decrypts Adj F - S. Both take their shares slot by slot modulo 2**64: there they add up to Adj F, exactly
   but with a probability of 2**-104 each.

The owner sees numbers that are uniform whatever the links are, and how many rows there are. The time the adding party
takes grows with the number of all its links together, not shown by row. The adding party sees ciphertexts under a key
it does not have.

Shares have 20 fraction bits by default, so that a linear layer can follow: `times_weights` multiplies a share with
weights of the other 20, and the two results are parts of a masked sum. Whoever holds the weights may not learn Adj F,
so that both parties must multiply their own share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from colonnade.crypto import CipherArray, FixedPoint, Format, Layout, PrivateKey, PublicKey
from colonnade.crypto.ring import FRACTION_BITS, WORD_BITS, Words
from colonnade.errors import ConfigError
from colonnade.exchanges.open_masked import Opening
from colonnade.exchanges.wide_masks import (
    HIDING_BITS,
    hide,
    lines_that_pay,
    masked_bound,
    open_share,
    side_by_side,
)
from colonnade.messages import ENCRYPTED, GIVEN, MASKED, Carries, Dims, message
from colonnade.session import Channel

__all__ = [
    "HiddenSums",
    "SealedFeatures",
    "SumFormat",
    "add_along_links",
    "receive_sums",
    "send_features",
    "times_weights",
]

Numbers = np.ndarray[Any, Any]
Links = Sequence[npt.NDArray[np.integer[Any]]]
"""For each row, the places of its neighbours."""


@dataclass(frozen=True, kw_only=True)
class SumFormat:
    """The ranges and scales of the sums: both parties derive them from the settings, before any value is seen."""

    rows: int
    """How many rows the features have."""
    columns: int
    key_bits: int
    feature_format: Format = Format(fraction_bits=20, magnitude_bits=3)  # noqa: RUF009 - frozen
    hiding_bits: int = HIDING_BITS
    """How much wider slots are than sums."""

    def __post_init__(self) -> None:
        if min(self.rows, self.columns) < 1 or self.hiding_bits < WORD_BITS:
            raise ConfigError(f"Sums need rows, columns and a share of at least {WORD_BITS} bits more than they have.")
        if self.sum_bound.bit_length() >= WORD_BITS - 1:
            raise ConfigError(
                f"Sums of {self.rows} rows could leave the ring of {WORD_BITS}-bit words. Use fewer fraction bits."
            )

    @property
    def sum_bound(self) -> int:
        """Return the largest sum: every row may be a neighbour."""
        return self.feature_format.bound * self.rows

    def features(self) -> Layout:
        """Lay out the features: neighbours in a row share a ciphertext."""
        return Layout.plan(
            (self.rows, self.columns),
            1,
            modulus_bits=self.key_bits,
            fraction_bits=self.feature_format.fraction_bits,
            bound=self.feature_format.bound,
            room=-(-masked_bound(self.sum_bound, self.hiding_bits) // self.feature_format.bound),
        )

    def sums(self, rows: int) -> Layout:
        """Lay out so many sums; short ones share a ciphertext where that pays."""
        grown = self.features().grown(masked_bound(self.sum_bound, self.hiding_bits))
        layout = replace(grown, shape=(rows, self.columns))
        return replace(layout, lines=lines_that_pay(layout, self.key_bits))


@message(sender=GIVEN, receiver=GIVEN, protection=ENCRYPTED, step="graph: shared sums", carries=Carries.ROW_COLUMN)
class SealedFeatures:
    """The sender's features of all nodes, under its own key. Reveals: how many rows and columns."""

    values: Annotated[CipherArray, Dims("rows", "columns")]


# The receiver owns the key: what hides the content from it is the share.
@message(sender=GIVEN, receiver=GIVEN, protection=MASKED, step="graph: shared sums", carries=Carries.LINK)
class HiddenSums:
    """The receiver's features added up along the sender's links, less a share that the sender keeps.

    Reveals: how many rows the sender has, and nothing about links.
    """

    values: Annotated[CipherArray, Dims("rows", "columns")]


def send_features(peer: Channel, key: PrivateKey, format: SumFormat, features: Numbers) -> None:
    """Encrypt features and send them to the party with the links."""
    layout = format.features()
    packed = layout.pack(FixedPoint.encode(features, format.feature_format))
    array = CipherArray(key, layout, key.encrypt_integers(packed))
    peer.send(SealedFeatures(array))


def add_along_links(peer: Channel, key: PublicKey, format: SumFormat, links: Links) -> Words:
    """Add up a partner's features along links, and return this party's share of the sums, of shape (links, columns)."""
    checked = [_checked(places, format.rows) for places in links]
    sealed = peer.receive(SealedFeatures, rows=format.rows, columns=format.columns).values
    features = sealed.under(key, format.features())
    layout = format.sums(len(links))
    sums = side_by_side(_added(features, checked, format), layout.lines)
    hidden, share = hide(sums, layout.bound)
    peer.send(HiddenSums(hidden))
    return share


def receive_sums(peer: Channel, key: PrivateKey, format: SumFormat, rows: int) -> Words:
    """Decrypt the sums of so many rows, and return this party's share of them, of shape (rows, columns)."""
    opening = Opening(peer, HiddenSums, key, rows=rows, columns=format.columns)
    return open_share(opening, opening.received.values, format.sums(rows))


def times_weights(share: Words, weights: Numbers, format: SumFormat, *, magnitude_bits: int = 3) -> Words:
    """Multiply a share with weights that both parties have: the products are shares too, at the scale of masked sums.

    They add up to the product of the sums with the rounded weights, as long as that lies within the ring.
    """
    precision = Format(FRACTION_BITS - format.feature_format.fraction_bits, magnitude_bits)
    # Modulo 2**64 a negative weight is as good as any other.
    factors = FixedPoint.encode(weights, precision).integers.astype(np.int64).view(np.uint64)
    product: Words = share @ factors
    return product


def _added(features: CipherArray, links: Links, format: SumFormat) -> CipherArray:
    """Return the sums, not yet hidden: a row without neighbours is a bare zero here."""
    key, blocks, ciphertexts = features.key, features.layout.blocks, features.ciphertexts
    found: list[mpz] = []
    for places in links:
        rows: list[Sequence[mpz]] = [ciphertexts[place * blocks : (place + 1) * blocks] for place in places.tolist()]
        added = rows[0] if rows else [mpz(1)] * blocks
        for row in rows[1:]:
            added = key.multiply_in(added, row)
        found += added
    layout = replace(features.layout.grown(format.sum_bound), shape=(len(links), format.columns))
    return CipherArray(key, layout, found)


def _checked(places: npt.NDArray[np.integer[Any]], rows: int) -> npt.NDArray[np.integer[Any]]:
    found = np.asarray(places)
    is_whole = found.ndim == 1 and (found.dtype.kind in "iu" or not found.size)
    if not is_whole or (found.size and not 0 <= int(found.min()) <= int(found.max()) < rows):
        raise ConfigError(f"The neighbours of a row are places from 0 to {rows - 1}.")
    if len(np.unique(found)) != len(found):
        raise ConfigError("A row has the same neighbour twice. Give every link once.")
    return found
