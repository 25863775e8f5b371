"""Multiply rows that only one party may see with weights that only another has, into shares that meet in a masked sum.

The asking party holds rows X (n by d) of a partner's columns, such as generated ones of somebody who is no customer of
the partner; the partner holds weights W (d by h). With some own part Z of the asking party:

1. asking party to partner: [[X]] under the asking party's key, rounded to 2**-20;
2. the partner rounds W to 2**-20 too, so that the product has the 40 fraction bits of the ring, and draws a mask S that
   is uniform modulo n; it returns [[X W + S]], freshly randomised;
3. the asking party decrypts X W + S, takes it slot by slot modulo 2**64, adds Z as words of the ring, and sends this as
   its part of a masked sum; the partner's part is -S likewise. The collaborator gets X W + Z, exact in the rounded
   numbers but with a probability of 2**-104.

Several partners answer the same way, each for its own columns, and the asking party adds up what it decrypts.

The asking party sees X W + S, uniform whatever it has encrypted. The partner sees ciphertexts under a key it does not
have, and how many rows were asked for. The collaborator sees the sum.

Rounded so, a product of 280 columns of unit variance with weights below 1 is off by about 5e-6, and never by more than
8e-6 for each column. Weights cost time by their bits, rows do not; the 40 bits may be divided otherwise.

Packing: rows that are asked together share ciphertexts, so that one power serves them all. With few rows, the results
of several weights are put side by side before they are returned, so that few ciphertexts are left to decrypt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from colonnade.crypto import CipherArray, Format, PrivateKey, PublicKey
from colonnade.crypto.ring import FRACTION_BITS, WORD_BITS, Words
from colonnade.errors import ConfigError
from colonnade.exchanges.secure_product import Opening, SharedFormat
from colonnade.messages import ENCRYPTED, GIVEN, MASKED, Carries, Dims, message
from colonnade.session import Channel

__all__ = ["EncryptedQuery", "QueryAnswer", "QueryFormat", "answer_query", "receive_answer", "send_query"]

Numbers = np.ndarray[Any, Any]

# The largest product in the ring, so that those of several partners and the asking party's own part fit together.
_LARGEST_PRODUCT = 2**58
_MOST_ROWS = 4096


@dataclass(frozen=True, kw_only=True)
class QueryFormat(SharedFormat):
    """Sums over the columns of rows that are asked for: a term is a column, and there is a column for each row."""

    numbers: Format = Format(fraction_bits=20, magnitude_bits=3)  # noqa: RUF009 - frozen
    factors: Format = Format(fraction_bits=20, magnitude_bits=3)  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fraction_bits != FRACTION_BITS:
            raise ConfigError(f"The fraction bits of rows and weights must add up to {FRACTION_BITS}.")
        if self.columns > _MOST_ROWS:
            raise ConfigError(f"A query takes 1 to {_MOST_ROWS} rows. Ask in parts.")
        if self.bound > _LARGEST_PRODUCT:
            raise ConfigError(
                f"Products of {self.terms} columns could leave the ring of {WORD_BITS}-bit words. Use fewer columns, "
                "or formats of smaller magnitude."
            )


@message(sender=GIVEN, receiver=GIVEN, protection=ENCRYPTED, step="sealed query", carries=Carries.ROW_CODE)
class EncryptedQuery:
    """Rows of the receiver's columns as the sender generated them, under the sender's key.

    Reveals: how many rows the sender asks for.
    """

    rows: Annotated[CipherArray, Dims("rows", "inputs")]


# The receiver owns the key: what hides the content from it is the mask.
@message(sender=GIVEN, receiver=GIVEN, protection=MASKED, step="sealed query", carries=Carries.SHARE)
class QueryAnswer:
    """The receiver's rows times the sender's weights, behind a mask that only the collaborator's sum takes off.

    Reveals: nothing.
    """

    products: Annotated[CipherArray, Dims("outputs", "rows")]


def send_query(peer: Channel, key: PrivateKey, format: QueryFormat, rows: Numbers) -> None:
    """Encrypt rows of a partner's columns and send them to it."""
    if rows.shape != (format.columns, format.terms):
        raise ConfigError(f"A query to '{peer.peer}' takes {format.columns} rows of {format.terms} columns.")
    peer.send(EncryptedQuery(format.seal(key, rows.T).T))


def answer_query(peer: Channel, key: PublicKey, format: QueryFormat, weights: Numbers) -> Words:
    """Multiply a partner's rows with weights, and return this party's share of the products.

    It is of shape (rows, results). A partner that asks for another number of rows than was agreed gets nothing.
    """
    if len(weights) != format.terms:
        raise ConfigError(f"Weights of shape {weights.shape} do not fit {format.terms} columns.")
    received = peer.receive(EncryptedQuery, rows=format.columns, inputs=format.terms).rows
    sealed = received.under(key, format.sealed().transposed).T
    answer, share = format.share(format.weigh(sealed, weights.T))
    peer.send(QueryAnswer(answer))
    return share.T


def receive_answer(peer: Channel, key: PrivateKey, format: QueryFormat, outputs: int) -> Words:
    """Decrypt a partner's answer, and return this party's share of the products, of shape (rows, results)."""
    opening = Opening(peer, QueryAnswer, key, outputs=outputs, rows=format.columns)
    return format.open_share(opening, opening.received.products, outputs).T
