"""Show that a Paillier modulus has no factor in common with the order of its group, without showing its factors.

A modulus such as 65537 * q, with q = 1 modulo 65537, looks like any other. Under it masks and fresh randomness reach
only a part of the ciphertexts' group: its owner can mark ciphertexts outside that part, and then reads from every
result, masked or not, sums of the partner's numbers modulo 65537.

S. Goldberg, L. Reyzin, O. Sagga and F. Baldimtsi, "Efficient noninteractive certification of RSA moduli and beyond",
ASIACRYPT 2019: x -> x**n permutes the units modulo n if and only if gcd(n, phi(n)) = 1. Otherwise at most one unit in d
is an n-th power, where d is the smallest prime that divides both. So the owner returns the n-th roots of numbers that a
hash of n picks, which it can do for n alone and only once it has chosen it.

Trial division leaves no prime divisor of n below 2**16, so that d is larger than that, and a modulus without the
property has all its `ROOTS` roots with a probability below 2**-128 for each modulus that its owner tries.
"""

from __future__ import annotations

import functools
import hashlib
import math

import gmpy2
from gmpy2 import mpz

from colonnade.errors import KeyRefused

__all__ = ["ROOTS", "modulus_challenges", "prove_modulus", "verify_modulus"]

_TRIAL_BITS = 16
ROOTS = 128 // _TRIAL_BITS
"""How many n-th roots make a proof."""

_SMALL_PRIMES = gmpy2.primorial(2**_TRIAL_BITS)
_ABOUT = b"colonnade paillier modulus, gcd(n, phi(n)) = 1, root "
# Bits beyond the modulus, so that reduced challenges are uniform but for 2**-256.
_SPARE_BYTES = 32


def modulus_challenges(n: int) -> list[mpz]:
    """Return the numbers modulo n whose roots are asked for."""
    modulus = mpz(n)
    width = -(-modulus.bit_length() // 8)
    written = modulus.to_bytes(width, "little")
    found = []
    for number in range(ROOTS):
        digest = hashlib.shake_256(_ABOUT + bytes([number]) + written).digest(width + _SPARE_BYTES)
        found.append(mpz.from_bytes(digest, "little") % modulus)
    return found


def prove_modulus(p: int, q: int) -> tuple[int, ...]:
    """Return the n-th roots of the challenges, with the factors of n known."""
    n, inverse = mpz(p) * q, gmpy2.invert(q, p)
    to_p, to_q = gmpy2.invert(n, p - 1), gmpy2.invert(n, q - 1)
    roots = []
    for challenge in modulus_challenges(int(n)):
        # The exponents are the secret, so their powers take the same time whatever they are.
        at_p, at_q = gmpy2.powmod_sec(challenge, to_p, p), gmpy2.powmod_sec(challenge, to_q, q)
        roots.append(int(at_q + q * ((at_p - at_q) * inverse % p)))
    return tuple(roots)


@functools.lru_cache(maxsize=256)
def verify_modulus(n: int, proof: tuple[int, ...]) -> None:
    """Refuse a modulus with a small factor, or one without a proof. What has passed is not computed again."""
    if gmpy2.gcd(n, _SMALL_PRIMES) != 1:
        raise KeyRefused("The Paillier key has a small factor, so anyone can find its secret. It was refused.")
    challenges = modulus_challenges(n)
    is_proved = (
        len(proof) == ROOTS
        and all(0 < root < n for root in proof)
        and gmpy2.powmod_base_list(list(proof), n, n) == challenges
        and gmpy2.gcd(math.prod(challenges), n) == 1
    )
    if not is_proved:
        raise KeyRefused(
            "The proof that came with the Paillier key does not hold: under such a key its owner may read what others "
            "mask. It was refused. Ask the partner how it made its key before you run with it again."
        )
