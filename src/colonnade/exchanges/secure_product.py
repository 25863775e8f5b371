"""The encrypted product: sums over the rows of a sealed array, weighted by another party's numbers.

The owner of a key seals an array; the other party multiplies, and adds what is its own. Sizes and scales are public, so
that both derive the same layouts (`ProductFormat`). There are three ways to end:

- *to the key's owner*, with random digits beyond the precision of the weights and fresh randomness (`blurred`): exact
  sums of integers would tell far more about the weights than sums of rounded numbers do;
- *to the multiplying party* (`ask_to_open`, `open_for`, `take_opened`): it adds a mask that is uniform modulo n; the
  owner decrypts, sees a uniform integer, may add something of its own, and returns it; the mask is taken off;
- *shared* (`SharedFormat`): the mask stays on. It hides whatever a ciphertext holds, also what an owner that deviates
  has put into it beyond all ranges. Each party takes its share from its own slots modulo 2**64. Slots are
  2**hiding_bits times as wide as sums, so that a mask in the slots below carries into a share, which then is off by one
  in its last place, with a probability of 2**-hiding_bits; as rarely the mask wraps modulo n, and the shares of one
  ciphertext are lost.

Every decryption of what a partner sent is an `Opening`: it is counted, and has the agreed form.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import numpy as np

from colonnade.crypto import (
    CipherArray,
    FixedPoint,
    Format,
    Layout,
    Mask,
    PrivateKey,
    RingElements,
    decrypt_fixed,
    open_masked,
)
from colonnade.crypto.ring import WORD_BITS, Words
from colonnade.errors import ConfigError, SlotOverflow, WrongContent
from colonnade.messages import Dims
from colonnade.session import Channel

__all__ = [
    "Opened",
    "Opening",
    "ProductFormat",
    "SharedFormat",
    "ask_to_open",
    "blurred",
    "open_for",
    "seal",
    "take_opened",
]

Numbers = np.ndarray[Any, Any]
Opened: TypeAlias = Annotated[Numbers, Dims("ciphertexts", "modulus_bytes", kind="u")]
"""What the owner of a key returns: integers modulo n as rows of bytes. `take_opened` knows how many."""


@dataclass(frozen=True, kw_only=True)
class ProductFormat:
    """Sizes and scales of weighted sums over rows: both parties derive them before any value is seen."""

    terms: int
    """How many rows are added up at most, those of all parts of the array together."""
    columns: int
    key_bits: int
    numbers: Format
    """Of the sealed array."""
    factors: Format = Format(0, 0)  # noqa: RUF009 - frozen
    """Of the weights."""
    noise: int | None = None
    """The largest number that is added to a sum, if it is not the random digits of `blurred`."""

    @property
    def bound(self) -> int:
        """Return the largest sum."""
        return self.numbers.bound * self.factors.bound * max(self.terms, 1)

    @property
    def limit(self) -> int:
        """Return the largest number that a slot must hold in the end."""
        return self.bound + (_blur(self.factors) if self.noise is None else self.noise)

    @property
    def fraction_bits(self) -> int:
        """Return the fraction bits of the sums."""
        return self.numbers.fraction_bits + self.factors.fraction_bits

    def sealed(self, rows: int | None = None) -> Layout:
        """Lay out so many rows, or all: neighbours in a row share a ciphertext."""
        return Layout.plan(
            (self.terms if rows is None else rows, self.columns),
            1,
            modulus_bits=self.key_bits,
            fraction_bits=self.numbers.fraction_bits,
            bound=self.numbers.bound,
            room=-(-self.limit // self.numbers.bound),
        )

    def sums(self, count: int) -> Layout:
        """Lay out so many sums of every column, as many in a ciphertext as fit."""
        return self.sealed(count).grown(self.limit, self.fraction_bits).dense

    def seal(self, key: PrivateKey, values: Numbers) -> CipherArray:
        """Encrypt rows under one's own key."""
        (sealed,) = seal(key, (self.sealed(len(values)), FixedPoint.encode(values, self.numbers)))
        return sealed

    def weigh(self, array: CipherArray, weights: Numbers) -> CipherArray:
        """Return weighted sums of a partner's rows, which are to be masked or blurred before they are sent."""
        return array.left_product(FixedPoint.encode(weights, self.factors), dense=True)

    def blurred(self, array: CipherArray, weights: Numbers) -> CipherArray:
        """Return weighted sums of a partner's rows, ready to be sent to it."""
        return blurred(self.weigh(array, weights), self.factors)


@dataclass(frozen=True, kw_only=True)
class SharedFormat(ProductFormat):
    """The same for sums of which each party gets a share, in the ring of 64-bit words."""

    hiding_bits: int = WORD_BITS + 40
    """How much wider slots are than sums."""

    def __post_init__(self) -> None:
        if min(self.terms, self.columns) < 1:
            raise ConfigError("Shared sums need rows and columns.")
        if self.bound.bit_length() >= WORD_BITS - 1:
            raise ConfigError(
                f"Sums over {self.terms} terms could leave the ring of {WORD_BITS}-bit words. Use fewer of them, or "
                "formats of smaller magnitude."
            )

    @property
    def limit(self) -> int:
        """Return the largest number that a slot must hold, so that masks hardly ever carry between slots."""
        return self.bound + (1 << (max(self.bound.bit_length() + self.hiding_bits, WORD_BITS) - 1))

    def share(self, sums: CipherArray) -> tuple[CipherArray, Words]:
        """Mask sums for the owner of their key, and return this party's share of them."""
        masked, mask = sums.widened(self.limit).mask()
        return masked, -masked.layout.words(mask.integers)

    def open_share(self, opening: Opening, array: CipherArray, count: int) -> Words:
        """Decrypt so many masked sums, which are the owner's share."""
        layout = self.sums(count)
        return layout.words(opening.integers(array, layout))


def seal(key: PrivateKey, *pieces: tuple[Layout, FixedPoint]) -> list[CipherArray]:
    """Encrypt arrays under one's own key, in one go, so that an engine can divide all of it."""
    found = iter(key.encrypt_integers([one for layout, values in pieces for one in layout.pack(values)]))
    return [CipherArray(key, layout, [next(found) for _ in range(layout.count)]) for layout, _ in pieces]


def blurred(product: CipherArray, factors: Format) -> CipherArray:
    """Return a product with random digits beyond the precision of its factors, and fresh randomness."""
    bound = _blur(factors)
    drawn = [secrets.randbelow(2 * bound) - bound for _ in range(math.prod(product.shape))]
    noise: Numbers = np.array(drawn, dtype=object).reshape(product.shape)
    return (product + FixedPoint(noise, product.layout.fraction_bits, bound)).rerandomise()


def _blur(factors: Format) -> int:
    return 1 << factors.fraction_bits


class Opening:
    """One message that a partner sends for this party to decrypt with its key.

    It is refused where the method has no opening, or had it already. ``known`` is what the rules of its fields go by.
    """

    def __init__(self, peer: Channel, message_class: type[Any], key: PrivateKey, **known: Any) -> None:
        peer.openings.begin(message_class)
        self.peer, self.received = peer, peer.receive(message_class, **known)
        self._message_class, self._key, self._is_first = message_class, key, True

    def masked(self, array: CipherArray, layout: Layout, plus: FixedPoint | None = None) -> RingElements:
        """Decrypt what lies behind a mask, with this party's own part added if there is one."""
        return open_masked(self._key, self._agreed(array, layout), plus)

    def fixed(self, array: CipherArray, layout: Layout) -> FixedPoint:
        """Decrypt numbers for this party itself; refuse what cannot be the agreed ones."""
        try:
            return decrypt_fixed(self._key, self._agreed(array, layout))
        except SlotOverflow:
            raise WrongContent(
                f"'{self.peer.peer}' sent numbers beyond their range in {self._message_class.__name__}: it computed "
                "something else, used other data, or its weights have grown too large. If the last, lower the learning "
                "rates and run again."
            ) from None

    def integers(self, array: CipherArray, layout: Layout) -> list[int]:
        """Decrypt the integers of whole ciphertexts."""
        return self._key.decrypt_integers(self._agreed(array, layout).ciphertexts)

    def _agreed(self, array: CipherArray, layout: Layout) -> CipherArray:
        found = array.under(self._key, layout)
        self.peer.openings.add(self._message_class, math.prod(layout.shape), is_first=self._is_first)
        self._is_first = False
        return found


def ask_to_open(peer: Channel, masked_message: type[Any], values: CipherArray) -> Mask:
    """Mask values and send them to the owner of their key; the mask is needed to read the answer."""
    masked, mask = values.mask()
    peer.send(masked_message(masked))
    return mask


def open_for(
    peer: Channel,
    masked_message: type[Any],
    opened_message: type[Any],
    key: PrivateKey,
    layout: Layout,
    plus: FixedPoint | None = None,
    **known: Any,
) -> None:
    """Open what a partner masked, add this party's own part if there is one, and return it."""
    opening = Opening(peer, masked_message, key, **known)
    peer.send(opened_message(opening.masked(opening.received.values, layout, plus)))


def take_opened(peer: Channel, opened_message: type[Any], mask: Mask) -> FixedPoint:
    """Receive what the owner opened and take off the mask."""
    return mask.remove(peer.receive(opened_message, ciphertexts=mask.layout.count, modulus_bytes=mask.key.width).values)
