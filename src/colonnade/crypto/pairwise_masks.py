"""Masks that two parties derive alike and that cancel when their words are added up.

After K. Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS 2017, without its
recovery of parties that drop out: here all parties of a run must be there anyway.

Every two parties agree on a key by X25519, with secrets that are drawn for one attempt at a run and never written. From
it and from everything both know about the run, HKDF makes one AES-256 key for each purpose, and AES in counter mode
makes the masks. The words of one counter never meet those of another: the counter is the upper half of the block
number. A counter serves once; the difference of two values behind the same mask would be open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from colonnade.crypto.ring import Words
from colonnade.errors import LeakRefused, WrongContent

__all__ = ["MASK_KEY_BYTES", "MaskPair", "MaskSecret", "PairwiseMasks"]

MASK_KEY_BYTES = 32
"""How long the public part of a secret is."""

_KEY_BYTES = 32
_BLOCK_BYTES = 16
_COUNTERS = 2**64


class MaskSecret:
    """One party's secret for one attempt at a run. It stays in memory and serves no other attempt."""

    def __init__(self) -> None:
        self._secret = X25519PrivateKey.generate()

    @cached_property
    def public(self) -> bytes:
        """Return the part that is sent to the others."""
        return self._secret.public_key().public_bytes_raw()

    def agree(self, run: str, own: str, peer: str, offered: bytes, *, adds: bool) -> MaskPair:
        """Agree with one peer that offered its public part; of the two, the one that ``adds`` comes first."""
        if len(offered) != MASK_KEY_BYTES or offered == self.public:
            raise _refused(peer)
        try:
            shared = self._secret.exchange(X25519PublicKey.from_public_bytes(offered))
        except ValueError:
            raise _refused(peer) from None
        # A point of low order makes this secret known to everybody.
        if not any(shared):
            raise _refused(peer)
        sides = [(own, self.public), (peer, offered)]
        (first, first_public), (second, second_public) = sides if adds else sides[::-1]
        facts = [run.encode(), first.encode(), second.encode(), first_public, second_public]
        return MaskPair(shared, b"".join(len(fact).to_bytes(4, "little") + fact for fact in facts), adds)


@dataclass(frozen=True, repr=False, eq=False)
class MaskPair:
    """What two parties derive their masks from."""

    secret: bytes
    about: bytes
    """Everything both know: the run, both names and both public parts."""
    adds: bool
    """Whether this party adds the masks; the other subtracts them."""

    def cipher_key(self, purpose: str) -> bytes:
        """Return the key of the masks for one purpose."""
        about = b"colonnade pairwise mask 1" + self.about + purpose.encode()
        return HKDF(SHA256(), _KEY_BYTES, None, about).derive(self.secret)


class PairwiseMasks:
    """One party's masks for one purpose, with all others of its run."""

    def __init__(self, pairs: Sequence[MaskPair], purpose: str) -> None:
        self._streams = [(_stream(pair.cipher_key(purpose)), pair.adds) for pair in pairs]
        self._next = 0
        self._zeros, self._drawn = b"", bytearray(_BLOCK_BYTES)

    def hide(self, words: Words, counter: int | None = None) -> None:
        """Add the masks of a counter to words, in place; without one, those of the next."""
        counter = self._next if counter is None else counter
        if not self._next <= counter < _COUNTERS:
            raise LeakRefused(
                f"Mask {counter} was used before. Values that are masked alike can be compared, so that each takes "
                "a new one. This is a fault in the method."
            )
        # Before anything is hidden: a mask that may have been seen is spent, whatever happens next.
        self._next = counter + 1
        for stream, adds in self._streams:
            mask = self._draw(stream, counter, words.nbytes).reshape(words.shape)
            (np.add if adds else np.subtract)(words, mask, out=words)

    def _draw(self, stream: CipherContext, counter: int, size: int) -> Words:
        # The memory is kept: fresh one for every batch would cost as much as the masks.
        if len(self._zeros) != size:
            self._zeros, self._drawn = bytes(size), bytearray(size + _BLOCK_BYTES - 1)
        stream.reset_nonce(_first_block(counter))
        stream.update_into(self._zeros, self._drawn)
        return np.frombuffer(self._drawn, "<u8", size // 8)


def _stream(key: bytes) -> CipherContext:
    return Cipher(algorithms.AES(key), modes.CTR(_first_block(0))).encryptor()


def _first_block(counter: int) -> bytes:
    return counter.to_bytes(_BLOCK_BYTES // 2, "big") + bytes(_BLOCK_BYTES // 2)


def _refused(peer: str) -> WrongContent:
    return WrongContent(
        f"'{peer}' sent a key for masks that hides nothing, or none at all. It was refused; compare 'colonnade "
        "--version' at both parties, and run again."
    )
