"""Hand over a public key with the proof that it hides, and check the one that arrives."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from colonnade.crypto import INSECURE_TEST, PrivateKey, PublicKey, key_bits, ring_elements
from colonnade.crypto.modulus_proof import ROOTS
from colonnade.messages import GIVEN, PLAIN, Between, Carries, Dims, message
from colonnade.session import Channel, Session

__all__ = ["PublicModulus", "make_key", "receive_key", "send_key"]


@message(sender=GIVEN, receiver=GIVEN, protection=PLAIN, step="set-up", carries=Carries.KEY)
class PublicModulus:
    """The sender's Paillier public key, and n-th roots that show that masks hide under it.

    Reveals: nothing about any table; the key is drawn anew for every run.
    """

    modulus: Annotated[int, Between(1, "largest_modulus")]
    proof: Annotated[np.ndarray[Any, Any], Dims(ROOTS, "modulus_bytes", kind="u")]


def make_key(session: Session, size: str | int) -> PrivateKey:
    """Draw this party's key for this attempt at the run. It is never written anywhere."""
    key = PrivateKey.generate(size, session.engine)
    _note(session, session.party, key, size)
    return key


def send_key(peer: Channel, key: PrivateKey) -> None:
    """Send the public part."""
    peer.send(PublicModulus(int(key.n), ring_elements(key.proof, key)))


def receive_key(session: Session, peer: Channel, size: str | int) -> PublicKey:
    """Receive a partner's key and refuse one that cannot protect anything, before anything is encrypted under it."""
    bits = key_bits(size)
    offered = peer.receive(PublicModulus, largest_modulus=2**bits, modulus_bytes=-(-bits // 8))
    proof = [int.from_bytes(root.tobytes(), "little") for root in offered.proof]
    key = PublicKey.check(offered.modulus, proof, size, session.engine)
    _note(session, peer.peer, key, size)
    return key


def _note(session: Session, party: str, key: PublicKey, size: str | int) -> None:
    # The ledger says under which key ciphertexts were, and whether it was one that could be broken.
    is_insecure = size == INSECURE_TEST
    session.ledger.mark("key", party=party, bits=key.bits, fingerprint=key.fingerprint.hex(), insecure_test=is_insecure)
