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

Shares have as many fraction bits as features. With 20, a linear layer can follow: `times_weights` multiplies a share
with weights of the other 20, and the two results are parts of a masked sum. Whoever holds the weights may not learn
Adj F, so that both parties must multiply their own share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from colonnade.crypto import CipherArray, FixedPoint, Format, PrivateKey, PublicKey
from colonnade.crypto.ring import FRACTION_BITS, Words
from colonnade.errors import ConfigError
from colonnade.exchanges.secure_product import Opening, SharedFormat
from colonnade.messages import ENCRYPTED, GIVEN, MASKED, Carries, Dims, message
from colonnade.session import Channel

__all__ = [
    "HiddenSums",
    "SealedFeatures",
    "add_along_links",
    "receive_sums",
    "send_features",
    "times_weights",
]

Numbers = np.ndarray[Any, Any]
Links = Sequence[npt.NDArray[np.integer[Any]]]
"""For each row, the places of its neighbours."""


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


def send_features(peer: Channel, key: PrivateKey, format: SharedFormat, features: Numbers) -> None:
    """Encrypt features and send them to the party with the links."""
    if features.shape != (format.terms, format.columns):
        raise ConfigError(f"Features of shape {features.shape} are not {format.terms} rows of {format.columns}.")
    peer.send(SealedFeatures(format.seal(key, features)))


def add_along_links(peer: Channel, key: PublicKey, format: SharedFormat, links: Links) -> Words:
    """Add up a partner's features along links, and return this party's share of the sums, of shape (links, columns)."""
    checked = [_checked(places, format.terms) for places in links]
    sealed = peer.receive(SealedFeatures, rows=format.terms, columns=format.columns).values
    hidden, share = format.share(sealed.under(key, format.sealed()).row_sums(checked).dense())
    peer.send(HiddenSums(hidden))
    return share


def receive_sums(peer: Channel, key: PrivateKey, format: SharedFormat, rows: int) -> Words:
    """Decrypt the sums of so many rows, and return this party's share of them, of shape (rows, columns)."""
    opening = Opening(peer, HiddenSums, key, rows=rows, columns=format.columns)
    return format.open_share(opening, opening.received.values, rows)


def times_weights(share: Words, weights: Numbers, fraction_bits: int, *, magnitude_bits: int = 3) -> Words:
    """Multiply a share of so many fraction bits with weights that both parties have.

    The products are shares too, at the scale of masked sums. They add up to the product of the sums with the rounded
    weights, as long as that lies within the ring.
    """
    precision = Format(FRACTION_BITS - fraction_bits, magnitude_bits)
    # Modulo 2**64 a negative weight is as good as any other.
    factors = FixedPoint.encode(weights, precision).integers.astype(np.int64).view(np.uint64)
    product: Words = share @ factors
    return product


def _checked(places: npt.NDArray[np.integer[Any]], rows: int) -> npt.NDArray[np.integer[Any]]:
    found = np.asarray(places)
    is_whole = found.ndim == 1 and (found.dtype.kind in "iu" or not found.size)
    if not is_whole or (found.size and not 0 <= int(found.min()) <= int(found.max()) < rows):
        raise ConfigError(f"The neighbours of a row are places from 0 to {rows - 1}.")
    if len(np.unique(found)) != len(found):
        raise ConfigError("A row has the same neighbour twice. Give every link once.")
    return found
