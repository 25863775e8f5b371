"""The heavy work, cut into pieces of bytes that any engine can carry out: pure functions, the same bytes everywhere.

Randomness is drawn by the caller and comes with the piece, so that a piece that is done twice, because a worker died,
gives the same ciphertexts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import gmpy2
from gmpy2 import mpz

from colonnade.crypto.products import power_products
from colonnade.crypto.window_table import WindowTable

__all__ = [
    "decrypt",
    "encrypt",
    "encrypt_as_owner",
    "join_numbers",
    "join_parts",
    "multiply",
    "multiply_groups",
    "pack_products",
    "prepare_encryptor",
    "prepare_modulus",
    "prepare_owner",
    "raise_to_n",
    "shift_and_add",
    "split_numbers",
    "split_parts",
]

_LENGTH = 8


def join_parts(parts: Sequence[bytes]) -> bytes:
    """Put byte strings into one."""
    return b"".join(len(part).to_bytes(_LENGTH, "little") + part for part in parts)


def split_parts(content: bytes | memoryview) -> list[memoryview]:
    """Take apart what `join_parts` put together."""
    view, at, parts = memoryview(content), 0, []
    while at < len(view):
        size = int.from_bytes(view[at : at + _LENGTH], "little")
        at += _LENGTH
        parts.append(view[at : at + size])
        at += size
    return parts


def join_numbers(numbers: Sequence[int | mpz], width: int) -> bytes:
    """Write numbers that are not negative, each in so many bytes."""
    return b"".join(one.to_bytes(width, "little") for one in numbers)


def split_numbers(content: bytes | memoryview, width: int) -> list[mpz]:
    """Read what `join_numbers` wrote."""
    view = memoryview(content)
    return [mpz.from_bytes(view[at : at + width], "little") for at in range(0, len(view), width)]


@dataclass(frozen=True, repr=False)
class EncryptorContext:
    """A public key's modulus and the powers of the encryptor's base."""

    n: mpz
    square: mpz
    table: WindowTable


@dataclass(frozen=True, repr=False)
class OwnerContext:
    """A private key's factors, and where needed the powers of the base modulo their squares."""

    p: mpz
    q: mpz
    p_square: mpz
    q_square: mpz
    q_square_inverse: mpz
    p_table: WindowTable | None
    q_table: WindowTable | None
    p_factor: mpz
    q_factor: mpz
    q_inverse: mpz


def prepare_encryptor(context: memoryview) -> EncryptorContext:
    """Read the context of `encrypt`."""
    n_bytes, table = split_parts(context)
    n = mpz.from_bytes(n_bytes, "little")
    return EncryptorContext(n, n * n, WindowTable.from_bytes(table, n * n))


def prepare_owner(context: memoryview) -> OwnerContext:
    """Read the context of `encrypt_as_owner` and `decrypt`."""
    p_bytes, q_bytes, p_table, q_table = split_parts(context)
    p, q = mpz.from_bytes(p_bytes, "little"), mpz.from_bytes(q_bytes, "little")
    n, p_square, q_square = p * q, p * p, q * q
    return OwnerContext(
        p,
        q,
        p_square,
        q_square,
        gmpy2.invert(q_square, p_square),
        WindowTable.from_bytes(p_table, p_square) if p_table else None,
        WindowTable.from_bytes(q_table, q_square) if q_table else None,
        # (1 + n)**(p-1) mod p**2 is 1 + (p-1)n; its logarithm to the base 1 + p must be undone.
        gmpy2.invert((gmpy2.powmod_sec(1 + n, p - 1, p_square) - 1) // p, p),
        gmpy2.invert((gmpy2.powmod_sec(1 + n, q - 1, q_square) - 1) // q, q),
        gmpy2.invert(q, p),
    )


@dataclass(frozen=True, repr=False)
class Modulus:
    """The square of a public key's modulus, and how many bytes a ciphertext takes."""

    value: mpz
    width: int


def prepare_modulus(context: memoryview) -> Modulus:
    """Read the context of `multiply` and `shift_and_add`: a modulus in as many bytes as a ciphertext takes."""
    return Modulus(mpz.from_bytes(context, "little"), len(context))


def encrypt(context: EncryptorContext, chunk: bytes) -> bytes:
    """Encrypt plaintexts, each followed by its random exponent."""
    n, square, table = context.n, context.square, context.table
    plain_width, exponent_width = _width(n), len(table.windows)
    return join_numbers(
        [
            # (1 + n)**m is 1 + m*n modulo n**2.
            (1 + plain * n) * table.power(exponent) % square
            for plain, exponent in _plain_and_random(chunk, plain_width, exponent_width)
        ],
        2 * plain_width,
    )


def encrypt_as_owner(context: OwnerContext, chunk: bytes) -> bytes:
    """Encrypt with the factors known: the random power modulo both squares, put together."""
    if context.p_table is None or context.q_table is None:
        raise ValueError("this context was made for decryption only")
    n = context.p * context.q
    square = n * n
    p_square, q_square, inverse = context.p_square, context.q_square, context.q_square_inverse
    half = len(context.p_table.windows)
    ciphertexts = []
    for plain, exponents in _plain_and_random(chunk, _width(n), 2 * half):
        at_p, at_q = context.p_table.power(exponents[:half]), context.q_table.power(exponents[half:])
        power = at_q + q_square * ((at_p - at_q) * inverse % p_square)
        ciphertexts.append((1 + plain * n) * power % square)
    return join_numbers(ciphertexts, 2 * _width(n))


def decrypt(context: OwnerContext, chunk: bytes) -> bytes:
    """Decrypt ciphertexts modulo both primes."""
    p, q = context.p, context.q
    n = p * q
    plains = []
    for ciphertext in split_numbers(chunk, 2 * _width(n)):
        # The exponents are the secret, so their powers take the same time whatever they are.
        at_p = (gmpy2.powmod_sec(ciphertext, p - 1, context.p_square) - 1) // p * context.p_factor % p
        at_q = (gmpy2.powmod_sec(ciphertext, q - 1, context.q_square) - 1) // q * context.q_factor % q
        plains.append(at_q + q * ((at_p - at_q) * context.q_inverse % p))
    return join_numbers(plains, _width(n))


def raise_to_n(modulus: Modulus, chunk: bytes | memoryview) -> bytes:
    """Raise units to the n-th power modulo n**2."""
    units = split_numbers(chunk, modulus.width // 2)
    return join_numbers(gmpy2.powmod_base_list(units, gmpy2.isqrt(modulus.value), modulus.value), modulus.width)


def multiply(modulus: Modulus, chunk: bytes | memoryview) -> bytes:
    """Compute products of powers for several sets of bases and the same exponents; see `pack_products`."""
    head, bases, exponents = split_parts(chunk)
    count, results, width = (int.from_bytes(head[at : at + 8], "little") for at in (0, 8, 16))
    rows = _signed_rows(exponents, count, results, width)
    numbers = split_numbers(bases, modulus.width)
    found: list[mpz] = []
    for at in range(0, len(numbers), max(count, 1)):
        found += power_products(numbers[at : at + count], rows, modulus.value)
    return join_numbers(found, modulus.width)


def multiply_groups(modulus: Modulus, chunk: bytes) -> bytes:
    """Do the same for several pieces in one, each with exponents of its own."""
    return b"".join(multiply(modulus, piece) for piece in split_parts(chunk))


def shift_and_add(modulus: Modulus, chunk: bytes) -> bytes:
    """Put the integers of each group of ciphertexts side by side in one."""
    head, *groups = split_parts(chunk)
    shift = mpz(1) << int.from_bytes(head, "little")
    found = []
    for group in groups:
        total = mpz(1)
        for one in reversed(split_numbers(group, modulus.width)):
            total = (gmpy2.powmod(total, shift, modulus.value) if total != 1 else total) * one % modulus.value
        found.append(total)
    return join_numbers(found, modulus.width)


def pack_products(bases: Sequence[mpz], count: int, exponents: Sequence[Sequence[int]], base_width: int) -> bytes:
    """Write a piece for `multiply`: sets of ``count`` bases one after the other, and exponents for every result."""
    width = max((abs(one).bit_length() for row in exponents for one in row), default=0) // 8 + 1
    head = b"".join(one.to_bytes(8, "little") for one in (count, len(exponents), width))
    rows = b"".join(int(one).to_bytes(width, "little", signed=True) for row in exponents for one in row)
    return join_parts([head, join_numbers(bases, base_width), rows])


def _signed_rows(content: memoryview, count: int, results: int, width: int) -> list[list[int]]:
    numbers = [int.from_bytes(content[at : at + width], "little", signed=True) for at in range(0, len(content), width)]
    return [numbers[at * count : (at + 1) * count] for at in range(results)]


def _plain_and_random(chunk: bytes, plain_width: int, random_width: int) -> Iterator[tuple[mpz, bytes]]:
    step = plain_width + random_width
    for at in range(0, len(chunk), step):
        yield mpz.from_bytes(chunk[at : at + plain_width], "little"), chunk[at + plain_width : at + step]


def _width(modulus: mpz) -> int:
    return -(-int(modulus.bit_length()) // 8)
