"""Let the owner of a key open a value for us without seeing it.

1. The asking party adds a mask that is uniform over the plaintext ring, and sends the ciphertext.
2. The owner decrypts, sees a uniform integer, may add something of its own, and returns it.
3. The asking party takes off the mask.

Every decryption of what a partner sent is an `Opening`: it is counted, and has the agreed form.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeAlias

import numpy as np

from colonnade.crypto import (
    CipherArray,
    FixedPoint,
    Layout,
    Mask,
    PrivateKey,
    RingElements,
    decrypt_fixed,
    open_masked,
)
from colonnade.errors import SlotOverflow, WrongContent
from colonnade.messages import Dims
from colonnade.session import Channel

__all__ = ["Opened", "Opening", "ask_to_open", "open_for", "take_opened"]

Opened: TypeAlias = Annotated[np.ndarray[Any, Any], Dims("ciphertexts", "modulus_bytes", kind="u")]
"""What the owner of a key returns: integers modulo n as rows of bytes. `take_opened` knows how many."""


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
