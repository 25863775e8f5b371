"""Let the owner of a key open a value for us without seeing it.

1. The asking party adds a mask that is uniform over the plaintext ring, and sends the ciphertext.
2. The owner decrypts, sees a uniform integer, may add something of its own, and returns it.
3. The asking party takes off the mask.
"""

from __future__ import annotations

from typing import Any

from colonnade.crypto import CipherArray, FixedPoint, Layout, Mask, PrivateKey, open_masked
from colonnade.session import Channel

__all__ = ["ask_to_open", "open_for", "take_opened"]


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
) -> None:
    """Open what a partner masked, add this party's own part if there is one, and return it."""
    masked = peer.receive(masked_message).values.under(key, layout)
    peer.send(opened_message(open_masked(key, masked, plus)))


def take_opened(peer: Channel, opened_message: type[Any], mask: Mask) -> FixedPoint:
    """Receive what the owner opened and take off the mask."""
    return mask.remove(peer.receive(opened_message).values)
