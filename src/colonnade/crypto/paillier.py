"""Paillier keys: encryption that lets others add what they cannot read.

P. Paillier, "Public-key cryptosystems based on composite degree residuosity classes", EUROCRYPT 1999, with the
faster randomness of I. Damgård, M. Jurik and J. B. Nielsen, "A generalization of Paillier's public-key system with
applications to electronic voting", IJIS 9, 2010, for the key's owner: an encryption of m is (1+n)**m * (h**n)**r modulo
n**2, where h is minus a random square and r is random with half as many bits as n.

A public key is n alone, and a proof that n and phi(n) share no factor.

Who does not own the key also re-randomises against its owner, who may have chosen the factors of n such that it sees
far more than others: with p-1 and q-1 made of small primes, all logarithms. The owner could then solve for r, and for
the plain operand's integers. So a partner draws some hundred random units and multiplies n-th powers of random powers
of them, with 128 bits more to choose than the group has elements. By the leftover hash lemma (R. Impagliazzo,
L. A. Levin and M. Luby, STOC 1989) the result differs from a uniform n-th power by less than 2**-64, whatever n is.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NoReturn

import gmpy2
from gmpy2 import mpz

from colonnade.crypto import chunks
from colonnade.crypto.costs import multiplication_seconds
from colonnade.crypto.fixed_point import Integers
from colonnade.crypto.modulus_proof import prove_modulus, verify_modulus
from colonnade.crypto.products import cost_of, largest_bits
from colonnade.crypto.window_table import WINDOW_BITS, build_table, table_multiplications
from colonnade.engine import INLINE, Engine, Work
from colonnade.errors import CiphertextRefused, ConfigError, KeyRefused, KeyTooSmall

__all__ = ["DEFAULT_KEY", "INSECURE_TEST", "KEY_SIZES", "PrivateKey", "PublicKey", "key_bits"]

INSECURE_TEST = "insecure_test"
"""The name of a key size that is quick and can be broken: it marks the run and its report."""
DEFAULT_KEY = "2048"
KEY_SIZES = {DEFAULT_KEY: 2048, "3072": 3072, INSECURE_TEST: 1024}

_PRIME_ROUNDS = 40
_ROOM = "colonnade.crypto.chunks"
_SPARE_BITS = 128
"""How many more bits a partner's randomness has than the group of the ciphertexts: twice those of what it may show."""


def key_bits(size: str | int) -> int:
    """Return how many bits a key size has, as it stands in settings."""
    if str(size) not in KEY_SIZES:
        raise ConfigError(f"There is no key size '{size}'. Use one of: {', '.join(KEY_SIZES)}.")
    return KEY_SIZES[str(size)]


class _kept(cached_property[Work]):  # noqa: N801 - used as cached_property is
    """A cached property that keys compute side by side: before Python 3.12 all of them would share one lock."""

    def __init__(self, compute: Callable[[Any], Work]) -> None:
        super().__init__(compute)
        self.lock = nullcontext()


class PublicKey:
    """The modulus to encrypt under and to compute with."""

    def __init__(self, n: int, engine: Engine = INLINE) -> None:
        self.n = mpz(n)
        self.square = self.n * self.n
        self.bits = self.n.bit_length()
        self.width = -(-self.bits // 8)
        """How many bytes a plaintext takes; a ciphertext takes twice as many."""
        self.fingerprint = hashlib.sha256(b"colonnade paillier" + self.n.to_bytes(self.width, "little")).digest()[:16]
        self.random_bits = 8 * self.width + _SPARE_BITS
        """How many random bits a partner puts into a ciphertext."""
        self.engine = engine

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.bits} bits, {self.fingerprint.hex()[:8]})"

    @classmethod
    def check(cls, n: int, proof: Sequence[int], size: str | int, engine: Engine = INLINE) -> PublicKey:
        """Accept a partner's modulus of an agreed size with its proof, or say what is wrong with it.

        This finds keys under which a mask would not hide, whether they are careless or made to deceive. A modulus of
        more than two primes can pass: that weakens what its owner encrypts, and nobody else's numbers.
        """
        wanted = key_bits(size)
        modulus = mpz(n)
        if modulus < 2 or modulus.bit_length() < wanted:
            raise KeyTooSmall(
                f"The Paillier key has {max(modulus, 0).bit_length()} bits; the parties agreed on {wanted}."
            )
        if modulus.bit_length() != wanted:
            raise KeyRefused(f"The Paillier key has {modulus.bit_length()} bits; the parties agreed on {wanted}.")
        if modulus.is_power():
            raise KeyRefused("The Paillier key is a power, so anyone can find its secret. It was refused.")
        if modulus.is_prime(_PRIME_ROUNDS):
            raise KeyRefused("The Paillier key is a prime, so it hides nothing. It was refused.")
        verify_modulus(int(modulus), tuple(proof))
        return cls(n, engine)

    def encrypt_integers(self, plains: Sequence[int]) -> list[mpz]:
        """Encrypt integers modulo n, each with fresh randomness."""
        exponent_bytes = self.random_bits // 8
        pieces = [
            int(plain % self.n).to_bytes(self.width, "little") + secrets.token_bytes(exponent_bytes) for plain in plains
        ]
        seconds = table_multiplications(8 * exponent_bytes) * multiplication_seconds(2 * self.bits)
        return self._in_parts(self._encryption, pieces, seconds)

    def multiply_in(self, ciphertexts: Sequence[mpz], others: Sequence[mpz]) -> list[mpz]:
        """Add the hidden integers of two lists, one by one."""
        return [one * other % self.square for one, other in zip(ciphertexts, others, strict=True)]

    def add_plain(self, ciphertexts: Sequence[mpz], plains: Sequence[int]) -> list[mpz]:
        """Add known integers; the randomness stays what it was."""
        return [
            one * (1 + int(plain % self.n) * self.n) % self.square
            for one, plain in zip(ciphertexts, plains, strict=True)
        ]

    def products(self, bases: Sequence[mpz], count: int, exponents: Sequence[Sequence[int]]) -> list[mpz]:
        """Multiply hidden integers with known ones and add up: for each set of ``count`` bases, all results."""
        if not count:
            raise ValueError("no bases to multiply")
        bits = max((abs(one).bit_length() for row in exponents for one in row), default=0)
        sets = len(bases) // count
        one_multiplication = multiplication_seconds(2 * self.bits)
        # Either the sets of bases are divided among the workers, or, with one set, the results.
        if sets > 1:
            parts = self.engine.parts(sets, cost_of(count, len(exponents), bits) * one_multiplication)
            pieces = [
                chunks.pack_products(bases[part.start * count : part.stop * count], count, exponents, 2 * self.width)
                for part in parts
            ]
        else:
            each = cost_of(count, len(exponents), bits) * one_multiplication / max(len(exponents), 1)
            parts = self.engine.parts(len(exponents), each)
            pieces = [chunks.pack_products(bases, count, exponents[part], 2 * self.width) for part in parts]
        found = self.engine.map(self._multiplication, pieces)
        return [one for piece in found for one in chunks.split_numbers(piece, 2 * self.width)]

    def group_products(self, groups: Sequence[Sequence[mpz]], exponents: Integers) -> list[mpz]:
        """Do the same for groups of bases with exponents of their own, of shape (groups, bases, results)."""
        count, terms, results = exponents.shape
        each = cost_of(terms, results, largest_bits(exponents)) * multiplication_seconds(2 * self.bits)
        parts = self.engine.parts(count, each)
        spans = [slice(0, results)]
        if count < self.engine.workers and results and self.engine.parts(results, count * each / results)[1:]:
            # Too few groups for all workers: their results are divided as well.
            number = min(-(-self.engine.workers // count), results)
            edges = [place * results // number for place in range(number + 1)]
            spans = [slice(start, end) for start, end in pairwise(edges)]
            parts = [slice(at, at + 1) for at in range(count)]
        pieces = [
            chunks.join_parts(
                [
                    chunks.pack_products(groups[at], terms, exponents[at, :, span].T.tolist(), 2 * self.width)
                    for at in range(part.start, part.stop)
                ]
            )
            for part in parts
            for span in spans
        ]
        found = self.engine.map(replace(self._multiplication, function=f"{_ROOM}:multiply_groups"), pieces)
        return [one for piece in found for one in chunks.split_numbers(piece, 2 * self.width)]

    def shifted_sums(self, groups: Sequence[Sequence[mpz]], slot_bits: int) -> list[mpz]:
        """Put the hidden integers of each group side by side in one ciphertext, the first one lowest."""
        head = slot_bits.to_bytes(4, "little")
        pieces = [chunks.join_numbers(group, 2 * self.width) for group in groups]
        longest = max((len(group) for group in groups), default=0)
        parts = self.engine.parts(len(pieces), longest * slot_bits * multiplication_seconds(2 * self.bits))
        work = replace(self._multiplication, function=f"{_ROOM}:shift_and_add")
        found = self.engine.map(work, [chunks.join_parts([head, *pieces[part]]) for part in parts])
        return [one for piece in found for one in chunks.split_numbers(piece, 2 * self.width)]

    def check_ciphertexts(self, ciphertexts: Sequence[mpz]) -> None:
        """Refuse what is no ciphertext under this key, or one without any randomness."""
        product = mpz(1)
        for one in ciphertexts:
            if not 1 < one < self.square or one % self.n == 1:
                raise CiphertextRefused(
                    "A ciphertext lies outside the key's group or carries no randomness. It was refused."
                )
            product = product * one % self.n
        if gmpy2.gcd(product, self.n) != 1:
            raise CiphertextRefused("A ciphertext shares a factor with the key. It was refused.")

    def prepare(self) -> None:
        """Build the tables now instead of at the first encryption."""
        _ = self._encryption

    @_kept
    def _encryption(self) -> Work:
        # One unit for each window of the exponent: their number also exceeds that of the primes that n may have.
        units = [self._random_unit() for _ in range(self.random_bits // WINDOW_BITS)]
        work = replace(self._multiplication, function=f"{_ROOM}:raise_to_n")
        seconds = 1.2 * self.bits * multiplication_seconds(2 * self.bits)
        powers = self._in_parts(work, [unit.to_bytes(self.width, "little") for unit in units], seconds)
        table = b"".join(build_table(power, self.square, WINDOW_BITS) for power in powers)
        context = chunks.join_parts([self.n.to_bytes(self.width, "little"), table])
        return Work(f"{_ROOM}:encrypt", f"{_ROOM}:prepare_encryptor", context)

    @cached_property
    def _multiplication(self) -> Work:
        return Work(f"{_ROOM}:multiply", f"{_ROOM}:prepare_modulus", self.square.to_bytes(2 * self.width, "little"))

    def _random_unit(self) -> mpz:
        while True:
            value = mpz(secrets.randbelow(int(self.n)))
            if value > 1 and gmpy2.gcd(value, self.n) == 1:
                return value

    def _in_parts(self, work: Work, pieces: Sequence[bytes], seconds_each: float) -> list[mpz]:
        parts = self.engine.parts(len(pieces), seconds_each)
        found = self.engine.map(work, [b"".join(pieces[part]) for part in parts])
        return [one for piece in found for one in chunks.split_numbers(piece, 2 * self.width)]


class PrivateKey(PublicKey):
    """A public key together with its factors. It stays with its owner and cannot be written anywhere."""

    def __init__(self, p: int, q: int, engine: Engine = INLINE) -> None:
        super().__init__(p * q, engine)
        self._p, self._q = mpz(p), mpz(q)
        if p == q or gmpy2.gcd(self.n, (self._p - 1) * (self._q - 1)) != 1:
            raise KeyRefused("These two numbers do not make a Paillier key.")

    @classmethod
    def generate(cls, size: str | int = DEFAULT_KEY, engine: Engine = INLINE) -> PrivateKey:
        """Draw a key: two primes that are 3 modulo 4 and whose predecessors share no factor but 2."""
        half = key_bits(size) // 2
        while True:
            p, q = _random_prime(half), _random_prime(half)
            # Primes close together would be found by Fermat's method.
            if math.gcd(p - 1, q - 1) == 2 and abs(p - q) >> (half - 100):
                return cls(p, q, engine)

    @property
    def public(self) -> PublicKey:
        """Return the part that may be shared."""
        return PublicKey(int(self.n), self.engine)

    @cached_property
    def proof(self) -> tuple[int, ...]:
        """Return what shows a partner that its masks hide under this key."""
        return prove_modulus(int(self._p), int(self._q))

    def encrypt_integers(self, plains: Sequence[int]) -> list[mpz]:
        """Encrypt integers modulo n, faster with the factors known."""
        exponent_bytes = -(-self.bits // 16)
        pieces = [
            int(plain % self.n).to_bytes(self.width, "little") + secrets.token_bytes(2 * exponent_bytes)
            for plain in plains
        ]
        seconds = 2 * table_multiplications(8 * exponent_bytes) * multiplication_seconds(self.bits)
        return self._in_parts(self._encryption, pieces, seconds)

    def decrypt_integers(self, ciphertexts: Sequence[mpz]) -> list[int]:
        """Return the hidden integers, from 0 to n - 1."""
        pieces = [one.to_bytes(2 * self.width, "little") for one in ciphertexts]
        # A power of half the bits modulo each square: about one squaring per bit and a fifth more.
        seconds = 1.2 * self.bits * multiplication_seconds(self.bits)
        parts = self.engine.parts(len(pieces), seconds)
        found = self.engine.map(self._decryption, [b"".join(pieces[part]) for part in parts])
        return [int(one) for piece in found for one in chunks.split_numbers(piece, self.width)]

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key is never serialised")

    @_kept
    def _encryption(self) -> Work:
        unit, bits = self._random_unit(), 8 * -(-self.bits // 16)
        tables = [
            build_table(gmpy2.powmod(-(unit**2), self.n, prime * prime), prime * prime, bits)
            for prime in (self._p, self._q)
        ]
        return Work(f"{_ROOM}:encrypt_as_owner", f"{_ROOM}:prepare_owner", self._context(*tables))

    @cached_property
    def _decryption(self) -> Work:
        return Work(f"{_ROOM}:decrypt", f"{_ROOM}:prepare_owner", self._context(b"", b""))

    def _context(self, p_table: bytes, q_table: bytes) -> bytes:
        width = -(-max(self._p, self._q).bit_length() // 8)
        factors = [prime.to_bytes(width, "little") for prime in (self._p, self._q)]
        return chunks.join_parts([*factors, p_table, q_table])


def _random_prime(bits: int) -> int:
    while True:
        # The two highest bits give the product its full length; the two lowest make it 3 modulo 4.
        candidate = secrets.randbits(bits) | (3 << (bits - 2)) | 3
        if gmpy2.is_prime(candidate, _PRIME_ROUNDS):
            return candidate
