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

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

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

__all__ = ["EncryptedQuery", "QueryAnswer", "QueryFormat", "answer_query", "receive_answer", "send_query"]

Numbers = np.ndarray[Any, Any]

# The largest product in the ring, so that those of several partners and the asking party's own part fit together.
_LARGEST_PRODUCT = 2**58


@dataclass(frozen=True, kw_only=True)
class QueryFormat:
    """The ranges and scales of a product: both parties derive them from the settings, before any value is seen."""

    inputs: int
    """How many columns a row has."""
    outputs: int
    """How many weights there are for each column."""
    key_bits: int
    most_rows: int = 4096
    """The most rows that are asked for at once."""
    input_format: Format = Format(fraction_bits=20, magnitude_bits=3)  # noqa: RUF009 - frozen
    weight_format: Format = Format(fraction_bits=20, magnitude_bits=3)  # noqa: RUF009 - frozen
    hiding_bits: int = HIDING_BITS
    """How much wider slots are than products."""

    def __post_init__(self) -> None:
        if self.input_format.fraction_bits + self.weight_format.fraction_bits != FRACTION_BITS:
            raise ConfigError(f"The fraction bits of rows and weights must add up to {FRACTION_BITS}.")
        if min(self.inputs, self.outputs, self.most_rows) < 1 or self.hiding_bits < WORD_BITS:
            raise ConfigError(f"A product needs columns, results, rows and a mask of at least {WORD_BITS} bits.")
        if self.product_bound > _LARGEST_PRODUCT:
            raise ConfigError(
                f"Products of {self.inputs} columns could leave the ring of {WORD_BITS}-bit words. Use fewer columns, "
                "or formats of smaller magnitude."
            )

    @property
    def product_bound(self) -> int:
        """Return the largest product."""
        return self.input_format.bound * self.weight_format.bound * self.inputs

    def query(self, rows: int) -> Layout:
        """Lay out the rows: neighbours in a column share a ciphertext."""
        return Layout.plan(
            (rows, self.inputs),
            0,
            modulus_bits=self.key_bits,
            fraction_bits=self.input_format.fraction_bits,
            bound=self.input_format.bound,
            room=-(-masked_bound(self.product_bound, self.hiding_bits) // self.input_format.bound),
        )

    def answer(self, rows: int) -> Layout:
        """Lay out the answer, one line for each weight of a column; short lines share a ciphertext where that pays."""
        grown = self.query(rows).grown(masked_bound(self.product_bound, self.hiding_bits), FRACTION_BITS)
        layout = replace(grown, shape=(self.outputs, rows), packed_axis=1)
        return replace(layout, lines=lines_that_pay(layout, self.key_bits))


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
    if rows.shape != (len(rows), format.inputs) or not 1 <= len(rows) <= format.most_rows:
        raise ConfigError(
            f"A query to '{peer.peer}' takes 1 to {format.most_rows} rows of {format.inputs} columns. Ask in parts."
        )
    layout = format.query(len(rows))
    packed = layout.pack(FixedPoint.encode(rows, format.input_format))
    peer.send(EncryptedQuery(CipherArray(key, layout, key.encrypt_integers(packed))))


def answer_query(peer: Channel, key: PublicKey, format: QueryFormat, weights: Numbers, rows: int) -> Words:
    """Multiply so many of a partner's rows with weights, and return this party's share of the products.

    It is of shape (rows, results). A partner that asks for another number of rows than was agreed gets nothing.
    """
    encoded = FixedPoint.encode(weights, format.weight_format)
    if encoded.shape != (format.inputs, format.outputs):
        raise ConfigError(
            f"Weights of shape {encoded.shape} do not fit {format.inputs} columns, {format.outputs} each."
        )
    received = peer.receive(EncryptedQuery, rows=rows, inputs=format.inputs).rows
    products = side_by_side((received.under(key, format.query(rows)) @ encoded).T, format.answer(rows).lines)
    answer, share = hide(products, format.answer(rows).bound)
    peer.send(QueryAnswer(answer))
    return share.T


def receive_answer(peer: Channel, key: PrivateKey, format: QueryFormat, rows: int) -> Words:
    """Decrypt a partner's answer, and return this party's share of the products, of shape (rows, results)."""
    opening = Opening(peer, QueryAnswer, key, outputs=format.outputs, rows=rows)
    return open_share(opening, opening.received.products, format.answer(rows)).T
