"""Write paillier.json: known answers from a textbook Paillier that shares no code with colonnade.

Only Python's own integers are used. Everything is derived from fixed labels, so that the file is always the same:
``python -m tests.vectors.make_paillier``.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

Case = dict[str, Any]

FILE = Path(__file__).parent / "paillier.json"


def number(label: str, bits: int) -> int:
    """A fixed number that nobody chose."""
    return int.from_bytes(hashlib.shake_256(label.encode()).digest(-(-bits // 8)), "big") >> (-bits % 8)


def is_prime(n: int) -> bool:
    if n < 2 or any(n % small == 0 for small in SMALL):
        return n in SMALL
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in SMALL[:30]:
        power = pow(base, odd, n)
        if power in (1, n - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % n
            if power == n - 1:
                break
        else:
            return False
    return True


SMALL: list[int] = []
for candidate in range(2, 2000):
    if all(candidate % one for one in SMALL):
        SMALL.append(candidate)


def prime(label: str, bits: int, *, step: int = 4) -> int:
    """The first prime from a fixed number on, 3 modulo 4, with its two highest bits set."""
    found = number(label, bits) | (3 << (bits - 2)) | 3
    while not is_prime(found):
        found += step
    return found


def other_prime(label: str, bits: int, p: int) -> int:
    found = prime(label, bits)
    while math.gcd(p - 1, found - 1) != 2 or not is_prime(found):
        found += 4
    return found


class Textbook:
    """Paillier as in the 1999 paper, with g = 1 + n."""

    def __init__(self, p: int, q: int) -> None:
        self.p, self.q, self.n = p, q, p * q
        self.square = self.n**2
        self.order = math.lcm(p - 1, q - 1)

    def encrypt(self, m: int, r: int) -> int:
        return pow(1 + self.n, m, self.square) * pow(r, self.n, self.square) % self.square

    def decrypt(self, c: int) -> int:
        def log(u: int) -> int:
            return (u - 1) // self.n

        return (
            log(pow(c, self.order, self.square))
            * pow(log(pow(1 + self.n, self.order, self.square)), -1, self.n)
            % self.n
        )

    def fingerprint(self) -> bytes:
        width = -(-self.n.bit_length() // 8)
        return hashlib.sha256(b"colonnade paillier" + self.n.to_bytes(width, "little")).digest()[:16]


def challenges(n: int) -> list[int]:
    """What a proof takes roots of: hashes of a label, a number and the modulus."""
    width = -(-n.bit_length() // 8)
    label = b"colonnade paillier modulus, gcd(n, phi(n)) = 1, root "
    hashes = [
        hashlib.shake_256(label + bytes([at]) + n.to_bytes(width, "little")).digest(width + 32) for at in range(8)
    ]
    return [int.from_bytes(one, "little") % n for one in hashes]


def proof(p: int, q: int) -> list[str]:
    exponent = pow(p * q, -1, math.lcm(p - 1, q - 1))
    return [hex(pow(one, exponent, p * q)) for one in challenges(p * q)]


def keys(small: Textbook, large: Textbook) -> list[Case]:
    n, m = small.n, large.n
    third, beside_fermat = prime("third", 512), prime("beside 65537", 1008)
    proofs = {p * q: proof(p, q) for p, q in ((small.p, small.q), (large.p, large.q), (small.p, third))}
    proofs[65537 * beside_fermat] = proof(65537, beside_fermat)
    above = number("1 modulo 65537", 1008) | 1 << 1007
    above -= (above - 1) % (2 * 65537)
    while not is_prime(above):
        above += 2 * 65537
    prime_1024, prime_2048 = prime("a prime of 1024 bits", 1024), prime("a prime of 2048 bits", 2048)
    cases: list[tuple[str, int, str, str]] = [
        ("valid", n, "insecure_test", "ok"),
        ("valid", m, "2048", "ok"),
        ("another valid one", small.p * third, "insecure_test", "ok"),
        ("half the agreed size", n, "2048", "KeyTooSmall"),
        ("a third of the agreed size", n, "3072", "KeyTooSmall"),
        ("two thirds of the agreed size", m, "3072", "KeyTooSmall"),
        ("twice the agreed size", m, "insecure_test", "KeyRefused"),
        ("one bit short", n >> 1 | 1, "insecure_test", "KeyTooSmall"),
        ("one bit long", n << 1 | 1, "insecure_test", "KeyRefused"),
        ("enormous", 1 << 20_000 | 1, "2048", "KeyRefused"),
        ("a prime", prime_1024, "insecure_test", "KeyRefused"),
        ("a prime", prime_2048, "2048", "KeyRefused"),
        ("even", n + 1, "insecure_test", "KeyRefused"),
        ("even", m - 1, "2048", "KeyRefused"),
        ("a power of two", 1 << 1023, "insecure_test", "KeyRefused"),
        ("a power of two", 1 << 2047, "2048", "KeyRefused"),
        ("all bits set", (1 << 1024) - 1, "insecure_test", "KeyRefused"),
        ("negative", -n, "insecure_test", "KeyTooSmall"),
        ("negative", -m, "2048", "KeyTooSmall"),
        ("a factor just too large to find", 65537 * beside_fermat, "insecure_test", "ok"),
        ("65537 and a prime that is 1 modulo 65537", 65537 * above, "insecure_test", "KeyRefused"),
    ]
    cases += [
        (f"the number {one}", one, size, "KeyTooSmall")
        for one in (-1, 0, 1, 2, 3, 15)
        for size in ("insecure_test", "2048")
    ]
    for small_factor in (2, 3, 5, 7, 11, 13, 17, 101, 251, 257, 4093, 32749, 65519, 65521):
        beside = (1 << 1024) // small_factor | 1
        while (beside * small_factor).bit_length() > 1024 or not is_prime(beside):
            beside -= 2
        cases.append((f"the factor {small_factor}", beside * small_factor, "insecure_test", "KeyRefused"))
    for power, bits in ((2, 512), (3, 342), (4, 256), (5, 205), (8, 128)):
        base = (1 << bits) - 1
        while (base**power).bit_length() > 1024:
            base -= 1 << (bits - 12)
        while not is_prime(base):
            base -= 2
        assert (base**power).bit_length() == 1024
        cases.append((f"a perfect power {power}", base**power, "insecure_test", "KeyRefused"))
    cases.append(("a perfect square", prime("square", 1024) ** 2, "2048", "KeyRefused"))
    cases += [
        ("a size that does not exist", n, size, "ConfigError") for size in ("", "1024", "512", "4096", "INSECURE_TEST")
    ]
    return [
        {"name": name, "n": hex(one), "size": size, "verdict": verdict, "proof": proofs.get(one, proofs[n])}
        if one in proofs or "65537" in name
        else {"name": name, "n": hex(one), "size": size, "verdict": verdict}
        for name, one, size, verdict in cases
    ]


def private_keys(small: Textbook) -> list[Case]:
    p, q = small.p, small.q
    follower = next(k * p + 1 for k in range(2, 100_000, 2) if is_prime(k * p + 1))
    pairs = [
        ("valid", p, q, "ok"),
        ("exchanged", q, p, "ok"),
        ("unequal lengths", p, prime("short", 200), "ok"),
        ("the same prime twice", p, p, "KeyRefused"),
        ("p divides q - 1", p, follower, "KeyRefused"),
        ("q divides p - 1", follower, p, "KeyRefused"),
        ("tiny: 3 divides 7 - 1", 3, 7, "KeyRefused"),
    ]
    return [{"name": name, "p": hex(a), "q": hex(b), "verdict": verdict} for name, a, b, verdict in pairs]


def ciphertexts(key: Textbook) -> list[Case]:
    n, square = key.n, key.square
    refused = {
        "0": 0,
        "1": 1,
        "-1": -1,
        "n": n,
        "2n": 2 * n,
        "n (n - 1)": n * (n - 1),
        "n**2": square,
        "n**2 + 1": square + 1,
        "n**2 + n": square + n,
        "2 n**2": 2 * square,
        "p": key.p,
        "q": key.q,
        "p**2": key.p**2,
        "q**2": key.q**2,
        "p**2 q": key.p**2 * key.q,
        "3 p": 3 * key.p,
        "p n": key.p * n,
        "n**2 - p": square - key.p,
        "n**2 - n": square - n,
        "far too long": 1 << 5000,
    }
    for at in range(6):
        valid = key.encrypt(at, 2 + number(f"refused {at}", 1000))
        refused[f"valid + n**2 ({at})"] = valid + square
        refused[f"valid - n**2 ({at})"] = valid - square
        refused[f"valid times p ({at})"] = valid * key.p % square
        refused[f"random multiple of q ({at})"] = number(f"multiple {at}", 1400) * key.q % square
    for m in (0, 1, 2, 12345, n - 1, n // 2, n // 2 + 1, *(number(f"bare {at}", 1023) for at in range(4))):
        refused[f"no randomness, plaintext {m % 997}"] = pow(1 + n, m, square)
    cases = [{"name": name, "c": hex(c), "verdict": "CiphertextRefused"} for name, c in refused.items()]
    for at in range(20):
        c = key.encrypt(number(f"accepted {at}", 1020), 2 + number(f"accepted random {at}", 1000))
        cases.append({"name": f"valid {at}", "c": hex(c), "verdict": "ok"})
    cases.append({"name": "the smallest", "c": "0x2", "verdict": "ok"})
    cases.append({"name": "the largest", "c": hex(square - 2), "verdict": "ok"})
    return cases


def edge_plaintexts(n: int) -> dict[str, int]:
    return {
        "0": 0,
        "1": 1,
        "2": 2,
        "n-1": n - 1,
        "n-2": n - 2,
        "n//2": n // 2,
        "n//2+1": n // 2 + 1,
        "n//2-1": n // 2 - 1,
        "-1": -1,
        "-2": -2,
        "-(n//2)": -(n // 2),
        "-n": -n,
        "n": n,
        "n+1": n + 1,
        "2n-1": 2 * n - 1,
        "-n-1": -n - 1,
        "3n+7": 3 * n + 7,
        "2**64": 1 << 64,
        "-2**63": -(1 << 63),
        "2**1000": 1 << 1000,
        "-2**1000": -(1 << 1000),
        "n**2": n * n,
        "n**2-1": n * n - 1,
    }


def plaintexts(name: str, key: Textbook, more: int) -> list[Case]:
    chosen = edge_plaintexts(key.n)
    chosen |= {f"random {at}": number(f"{name} plain {at}", key.n.bit_length() + 8) for at in range(more)}
    cases = []
    for label, m in chosen.items():
        r = 2 + number(f"{name} {label} random", key.n.bit_length() - 2)
        c = key.encrypt(m, r)
        assert key.decrypt(c) == m % key.n
        cases.append({"key": name, "name": label, "m": hex(m), "r": hex(r), "c": hex(c), "plain": hex(m % key.n)})
    return cases


def random_powers(name: str, key: Textbook, count: int) -> list[Case]:
    """Encryption with everything given: (1+n)**m * h**(n*r), and for the owner with an exponent for each prime."""
    h = -pow(2 + number(f"{name} base", key.n.bit_length() - 2), 2) % key.n
    width = -(-key.n.bit_length() // 16)
    chosen = [0, 1, 255, 256, (1 << (8 * width)) - 1]
    chosen += [number(f"{name} exponent {at}", 8 * width) for at in range(count)]
    p_square, q_square = key.p**2, key.q**2
    cases = []
    for at, r in enumerate(chosen):
        m, s = number(f"{name} known {at}", key.n.bit_length() - 1), chosen[-1 - at]
        c = pow(1 + key.n, m, key.square) * pow(h, key.n * r, key.square) % key.square
        at_p = pow(1 + key.n, m, p_square) * pow(h, key.n * r, p_square) % p_square
        at_q = pow(1 + key.n, m, q_square) * pow(h, key.n * s, q_square) % q_square
        owner = (
            at_p * q_square * pow(q_square, -1, p_square) + at_q * p_square * pow(p_square, -1, q_square)
        ) % key.square
        cases.append(
            {"key": name, "h": hex(h), "m": hex(m), "r": hex(r), "s": hex(s), "c": hex(c), "owner": hex(owner)}
        )
    return cases


def sums(key: Textbook) -> list[Case]:
    n = key.n
    pairs = [
        (0, 0),
        (1, -1),
        (n - 1, 1),
        (n - 1, n - 1),
        (n // 2, 1),
        (n // 2, n // 2),
        (n // 2 + 1, n // 2),
        (n // 2 + 1, n // 2 + 1),
    ]
    pairs += [(-1, -1), (1, n), (-n, n), (n - 2, 3), (-(n // 2), -1), (-(n // 2), -(n // 2)), (1 << 1000, 1 << 1000)]
    pairs += [(number(f"left {at}", 1030), -number(f"right {at}", 1030)) for at in range(25)]
    cases = []
    for at, (a, b) in enumerate(pairs):
        one, two = (key.encrypt(m, 2 + number(f"sum {at} {m}", 1000)) for m in (a, b))
        cases.append(
            {
                "one": hex(one),
                "two": hex(two),
                "plain": hex(b),
                "sum": hex(one * two % key.square),
                "with_plain": hex(one * pow(1 + n, b, key.square) % key.square),
                "negated": hex(pow(one, -1, key.square)),
                "total": hex((a + b) % n),
            }
        )
    return cases


def products(key: Textbook) -> list[Case]:
    n = key.n
    draw = random.Random(20261)
    plain_bases = [number(f"base {at}", 1023) for at in range(8)]
    bases = [key.encrypt(m, 2 + number(f"base random {at}", 1000)) for at, m in enumerate(plain_bases)]
    rows: list[list[list[int]]] = [
        [[0] * 8],
        [[1] + [0] * 7],
        [[-1] + [0] * 7],
        [[1] * 8],
        [[-1] * 8],
        [[n] + [0] * 7],
        [[n - 1] + [0] * 7],
        [[-n, n] + [0] * 6],
        [[n + 1, -n - 1] * 4],
        [[1 << 1000] * 8],
        [[-(1 << 1000)] * 8],
        [[2**32 - 1] * 8],
        [[-(2**32)] * 8],
        [[1, -1] * 4, [0] * 8],
        [[0] * 8, [0] * 8],
        [[2**at for at in range(8)], [-(2**at) for at in range(8)]],
    ]
    for at in range(34):
        bits = (1, 2, 7, 8, 9, 16, 33, 64, 200)[at % 9]
        rows.append(
            [[draw.randint(-(2**bits), 2**bits) * draw.randint(0, 3) for _ in range(8)] for _ in range(1 + at % 5)]
        )
    cases = []
    for exponents in rows:
        found, plains = [], []
        for row in exponents:
            c = 1
            for base, exponent in zip(bases, row, strict=True):
                c = c * pow(base, exponent, key.square) % key.square
            found.append(hex(c))
            plains.append(hex(sum(m * one for m, one in zip(plain_bases, row, strict=True)) % n))
        cases.append(
            {"exponents": [[hex(one) for one in row] for row in exponents], "results": found, "plains": plains}
        )
    return [{"bases": [hex(one) for one in bases], "cases": cases}]


def layouts() -> list[Case]:
    """Packed integers by the definition: the sum of value * 2**(slot_bits * slot)."""
    draw = random.Random(20262)
    cases = []

    def add(shape: list[int], axis: int | None, slot_bits: int, slots: int, lines: int, values: list[int]) -> None:
        bound = (1 << (slot_bits - 1)) - 1

        def at(*place: int) -> int:
            return values[place[0] if len(shape) == 1 else place[0] * shape[1] + place[1]]

        if axis is None:
            runs = [[one] for one in values]
        else:
            if len(shape) == 1:
                long_lines = [[at(i) for i in range(shape[0])]]
            elif axis == 1:
                long_lines = [[at(i, j) for j in range(shape[1])] for i in range(shape[0])]
            else:
                long_lines = [[at(i, j) for i in range(shape[0])] for j in range(shape[1])]
            if lines > 1:
                groups = [long_lines[start : start + lines] for start in range(0, len(long_lines), lines)]
                runs = [[value for line in group for value in line] for group in groups]
            else:
                runs = [line[start : start + slots] for line in long_lines for start in range(0, len(line), slots)]
        packed = [sum(value * 2 ** (slot_bits * slot) for slot, value in enumerate(run)) for run in runs]
        cases.append(
            {
                "shape": shape,
                "axis": axis,
                "slot_bits": slot_bits,
                "slots": slots,
                "lines": lines,
                "bound": hex(bound),
                "values": [hex(one) for one in values],
                "packed": [hex(one) for one in packed],
            }
        )

    add([1], None, 100, 1, 1, [-5])
    add([3], 0, 8, 3, 1, [1, -1, 127])
    add([3], 0, 8, 3, 1, [-127, -127, -127])
    add([4], 0, 8, 3, 1, [127, 127, 127, -127])
    add([2], 0, 2, 10, 1, [-1, 1])
    add([0], 0, 8, 3, 1, [])
    add([0, 3], 0, 8, 3, 1, [])
    add([3, 0], 1, 8, 3, 1, [])
    add([3, 0], 0, 8, 3, 1, [])
    add([0, 3], None, 100, 1, 1, [])
    add([1, 1], 0, 64, 5, 1, [2**63 - 1])
    add([1, 1], 1, 65, 5, 1, [-(2**64) + 1])
    for number_of_case in range(48):
        rows, columns = draw.randint(1, 7), draw.randint(1, 7)
        slot_bits = draw.choice([2, 3, 8, 17, 62, 63, 64, 65, 90])
        axis = (0, 1, None)[number_of_case % 3]
        slots, lines = 1 if axis is None else draw.randint(1, 9), 1
        if axis is not None and number_of_case % 4 == 3:
            lines = draw.randint(2, 4)
            slots = lines * (rows, columns)[axis] + draw.randint(0, 2)
        bound = (1 << (slot_bits - 1)) - 1
        values = [draw.choice([-bound, bound, 0, draw.randint(-bound, bound)]) for _ in range(rows * columns)]
        add([rows, columns], axis, slot_bits, slots, lines, values)
    return cases


def refused_packings() -> list[Case]:
    """Packed integers that no honest partner makes: three slots of 8 bits, values of at most 100."""

    def joined(*values: int) -> int:
        return sum(value * 256**slot for slot, value in enumerate(values))

    cases = {
        "low value above": joined(101, 0, 0),
        "low value below": joined(-101, 0, 0),
        "middle above": joined(0, 101, 0),
        "high above": joined(0, 0, 101),
        "high below": joined(100, 100, -101),
        "a fourth slot": joined(0, 0, 0, 1),
        "a negative fourth slot": joined(0, 0, 0, -1),
        "far above": 1 << 900,
        "far below": -(1 << 900),
        "wraps within a slot": joined(128, 0, 0),
        "all ones": (1 << 24) - 1 + (1 << 24),
        "just above all": joined(127, 127, 127) + 1,
    }
    return [{"name": name, "packed": hex(one)} for name, one in cases.items()]


FIELDS = (
    "version",
    "fingerprint",
    "width",
    "dimensions",
    "axis",
    "slot_bits",
    "slots",
    "lines",
    "fraction_bits",
    "share",
    "bound_bytes",
)


def written(head: dict[str, Any], shape: list[int], bound: bytes, body: bytes) -> bytes:
    return (
        struct.pack("<B16sHBbHHHhBH", *(head[field] for field in FIELDS))
        + struct.pack(f"<{len(shape)}Q", *shape)
        + bound
        + body
    )


def arrays(key: Textbook, foreign: Textbook) -> list[Case]:
    width = 128
    draw = random.Random(20263)

    def plain_head(
        axis: int, slot_bits: int, slots: int, lines: int, fraction_bits: int, share: int, bound: int, dimensions: int
    ) -> dict[str, Any]:
        return {
            "version": 1,
            "fingerprint": key.fingerprint(),
            "width": width,
            "dimensions": dimensions,
            "axis": axis,
            "slot_bits": slot_bits,
            "slots": slots,
            "lines": lines,
            "fraction_bits": fraction_bits,
            "share": share,
            "bound_bytes": -(-bound.bit_length() // 8),
        }

    def body(label: str, values: list[int]) -> list[int]:
        return [key.encrypt(value, 2 + number(f"{label} {at}", 1000)) for at, value in enumerate(values)]

    good: list[tuple[str, list[int], int, int, int, int, int, int, int, list[int]]] = [
        ("a vector", [2], -1, 1022, 1, 1, 24, 0, 1 << 32, [3, -4]),
        ("a packed vector", [3], 0, 34, 30, 1, 24, 0, 1 << 32, [1 + (2 << 34) - (3 << 68)]),
        ("one number", [1], -1, 1022, 1, 1, 0, 0, 1, [1]),
        ("a matrix", [2, 1], -1, 1022, 1, 1, 48, 0, 1 << 100, [7, -7]),
        ("a matrix packed down", [5, 1], 0, 511, 2, 1, 0, 0, 9, [1, -1, 9]),
        ("a matrix packed across", [1, 5], 1, 511, 2, 1, 0, 0, 9, [1, -1, 9]),
        ("lines side by side", [3, 2], 1, 100, 10, 2, 12, 0, 255, [5, -5]),
        ("shares", [1], -1, 1022, 1, 1, 24, 1, 1 << 60, [1 << 900]),
        ("no rows", [0, 4], 0, 34, 30, 1, 24, 0, 1 << 32, []),
        ("no columns", [4, 0], 1, 34, 30, 1, 24, 0, 1 << 32, []),
        ("no numbers", [0], -1, 1022, 1, 1, 24, 0, 1 << 32, []),
        ("a bound of nothing", [1], -1, 1022, 1, 1, 24, 0, 0, [0]),
        ("a bound of one byte", [1], -1, 1022, 1, 1, 24, 0, 255, [255]),
        ("a bound of two bytes", [1], -1, 1022, 1, 1, 24, 0, 256, [-256]),
    ]
    cases: list[Case] = []
    for name, shape, axis, slot_bits, slots, lines, fraction_bits, share, bound, values in good:
        head = plain_head(axis, slot_bits, slots, lines, fraction_bits, share, bound, len(shape))
        found = body(name, values)
        content = written(
            head,
            shape,
            bound.to_bytes(head["bound_bytes"], "little"),
            b"".join(c.to_bytes(256, "little") for c in found),
        )
        cases.append(
            {
                "name": name,
                "verdict": "ok",
                "shape": shape,
                "axis": axis,
                "slot_bits": slot_bits,
                "slots": slots,
                "lines": lines,
                "fraction_bits": fraction_bits,
                "share": share,
                "bound": hex(bound),
                "plains": [hex(value) for value in values],
                "bytes": content.hex(),
            }
        )

    # All damaged ones start from this: a packed matrix of four rows and two columns.
    shape, bound = [4, 2], 1 << 32
    expected = plain_head(0, 34, 30, 1, 24, 0, bound, 2)
    cipher = b"".join(c.to_bytes(256, "little") for c in body("damaged", [1, 2]))
    bound_content = bound.to_bytes(5, "little")
    whole = written(expected, shape, bound_content, cipher)

    def damaged(name: str, verdict: str, content: bytes) -> None:
        cases.append({"name": name, "verdict": verdict, "bytes": content.hex()})

    cases.append(
        {"name": "undamaged", "verdict": "expected", "bytes": whole.hex(), "shape": shape, "bound": hex(bound)}
    )
    # What reading refuses, and what only the agreed key and layout tell.
    wrong: dict[str, tuple[list[Any], list[Any]]] = {
        "version": ([0, 2, 255], []),
        "fingerprint": ([], [bytes(16), foreign.fingerprint(), key.fingerprint()[::-1]]),
        "width": ([0, 1, 64, 127, 129, 256, 65535], []),
        "dimensions": ([0, 1, 3, 255], []),
        "axis": ([-1, 1, 2, -2, -128], []),
        "slot_bits": ([0, 33, 35, 65535], []),
        "slots": ([0, 1, 3, 31, 65535], [4, 29]),
        "lines": ([0, 2, 8, 65535], []),
        "fraction_bits": ([], [23, 0, -24]),
        "share": ([2, 255], [1]),
        "bound_bytes": ([0, 4, 6, 65535], []),
    }
    for field, (unreadable, not_agreed) in wrong.items():
        for value in unreadable + not_agreed:
            told = value.hex() if isinstance(value, bytes) else value
            verdict = "ValueError" if value in unreadable else "CiphertextRefused"
            damaged(f"{field} is {told}", verdict, written({**expected, field: value}, shape, bound_content, cipher))
    # 1020 bits at most may be used, but 1024 fit the bytes: only the agreed layout tells that this is wrong.
    damaged(
        "30 slots of 34 become 32 of 32",
        "ValueError",
        written({**expected, "slot_bits": 32, "slots": 32}, shape, bound_content, cipher),
    )
    for wrong_shape, verdict in (
        ([2, 4], "ValueError"),
        ([2, 2], "CiphertextRefused"),
        ([30, 2], "CiphertextRefused"),
        ([31, 2], "ValueError"),
        ([4, 1], "ValueError"),
        ([4, 3], "ValueError"),
        ([0, 2], "ValueError"),
        ([2**40, 2], "ValueError"),
        ([2**40 + 1, 0], "ValueError"),
        ([2**64 - 1, 2**64 - 1], "ValueError"),
        ([2**63, 2], "ValueError"),
    ):
        damaged(f"shape {wrong_shape}", verdict, written(expected, wrong_shape, bound_content, cipher))
    damaged("an endless array of nothing", "CiphertextRefused", written(expected, [2**40, 0], bound_content, b""))
    damaged("endless lines of nothing", "CiphertextRefused", written(expected, [0, 2**40], bound_content, b""))
    damaged("nothing with something", "ValueError", written(expected, [2**40, 0], bound_content, cipher))
    damaged(
        "another bound",
        "CiphertextRefused",
        written(expected, shape, (bound - 1).to_bytes(4, "little") + b"\x01", cipher),
    )
    damaged(
        "a bound too large for its slot",
        "ValueError",
        written(expected, shape, (1 << 33).to_bytes(5, "little"), cipher),
    )
    damaged(
        "a bound with a zero at its end",
        "ValueError",
        written({**expected, "bound_bytes": 6}, shape, bound_content + b"\x00", cipher),
    )
    damaged("a bound of zero bytes", "ValueError", written(expected, shape, bytes(5), cipher))
    for cut in (
        0,
        1,
        16,
        17,
        31,
        32,
        40,
        47,
        48,
        49,
        52,
        53,
        54,
        300,
        len(whole) - 257,
        len(whole) - 256,
        len(whole) - 1,
    ):
        damaged(f"cut off after {cut}", "ValueError", whole[:cut])
    for extra in (1, 8, 255, 256, 512):
        damaged(f"{extra} bytes left over", "ValueError", whole + bytes(extra))
    damaged(
        "wider numbers, same content",
        "CiphertextRefused",
        written(
            {**expected, "width": 129},
            shape,
            bound_content,
            b"".join(cipher[at : at + 256] + bytes(2) for at in (0, 256)),
        ),
    )
    for name, c in (
        ("0", 0),
        ("1", 1),
        ("n", key.n),
        ("n**2", key.square),
        ("n**2 + 5", key.square + 5),
        ("all bits", (1 << 2048) - 1),
        ("1 + n", 1 + key.n),
        ("p", key.p),
    ):
        for place in (0, 1):
            pieces = [cipher[:256], cipher[256:]]
            pieces[place] = c.to_bytes(256, "little")
            damaged(
                f"ciphertext {place} is {name}",
                "CiphertextRefused",
                written(expected, shape, bound_content, b"".join(pieces)),
            )
    for at in range(10):
        damaged(f"noise {at}", "ValueError", b"\x01" + draw.randbytes(draw.randint(31, 200)))
    return cases


def ring(key: Textbook) -> list[Case]:
    """What a partner opened, against the mask that is to be taken off: one slot, values of at most 1000."""
    n = key.n
    cases: list[Case] = []

    def add(
        name: str, rows: list[int], masks: list[int], verdict: str, values: list[int] | None = None, width: int = 128
    ) -> None:
        cases.append(
            {
                "name": name,
                "rows": [one.to_bytes(width, "little").hex() for one in rows],
                "masks": [hex(one) for one in masks],
                "verdict": verdict,
                "values": values,
            }
        )

    for value in (0, 1, -1, 999, 1000, -1000):
        for label, mask in (
            ("none", 0),
            ("one", 1),
            ("the largest", n - 1),
            ("half", n // 2),
            ("random", number("ring mask", 1020)),
        ):
            add(f"{value} under a mask of {label}", [(value + mask) % n], [mask], "ok", [value])
    for value in (1001, -1001, n // 2, n // 2 + 1, 1 << 500):
        add(f"out of bounds {value % 1009}", [(value + 5) % n], [5], "WrongContent")
    for label, element in (("n", n), ("n + 1", n + 1), ("all bits", (1 << 1024) - 1), ("n + 1000", n + 1000)):
        add(f"the element {label}", [element], [0], "WrongContent")
        add(f"the element {label} at the end", [1, element], [1, 0], "WrongContent")
    add("two of two", [5, n - 5], [0, 0], "ok", [5, -5])
    add("one of two", [5], [0, 0], "WrongContent")
    add("three of two", [5, 6, 7], [0, 0], "WrongContent")
    add("none of one", [], [0], "WrongContent")
    add("too wide", [5], [0], "WrongContent", width=129)
    add("too narrow", [5], [0], "WrongContent", width=127)
    return cases


def fixed_points() -> list[Case]:
    cases: list[Case] = []
    draw = random.Random(20264)
    formats = [(0, 0), (0, 8), (4, 2), (24, 8), (40, 20), (52, 9), (60, 10), (200, 30), (3, -2)]
    for fraction_bits, magnitude_bits in formats:
        limit = 2.0**magnitude_bits
        step = 2.0**-fraction_bits
        values = [
            0.0,
            -0.0,
            limit,
            -limit,
            step,
            -step,
            step / 2,
            -step / 2,
            step * 1.5,
            step * 2.5,
            -step * 2.5,
            5e-324,
            limit / 3,
        ]
        values += [draw.uniform(-limit, limit) for _ in range(5)]
        values = [value for value in values if abs(value) <= limit]
        integers = [round(Fraction(value) * 2**fraction_bits) for value in values]
        # Division of Python's integers gives the nearest float.
        decoded = [integer / 2**fraction_bits for integer in integers]
        cases.append(
            {
                "fraction_bits": fraction_bits,
                "magnitude_bits": magnitude_bits,
                "values": [value.hex() for value in values],
                "verdict": "ok",
                "integers": [hex(one) for one in integers],
                "decoded": [one.hex() for one in decoded],
            }
        )
        above = math.nextafter(limit, math.inf)
        for bad in (above, -above, 2 * limit, 1e300, -1e300, math.inf, -math.inf, math.nan):
            cases.append(
                {
                    "fraction_bits": fraction_bits,
                    "magnitude_bits": magnitude_bits,
                    "values": [(0.0).hex(), bad.hex()],
                    "verdict": "OutOfRange",
                }
            )
    return cases


def made() -> dict[str, Any]:
    p = prime("colonnade test key p", 512)
    small = Textbook(p, other_prime("colonnade test key q", 512, p))
    p = prime("colonnade test key of 2048 bits p", 1024)
    large = Textbook(p, other_prime("colonnade test key of 2048 bits q", 1024, p))
    p = prime("colonnade foreign key p", 512)
    foreign = Textbook(p, other_prime("colonnade foreign key q", 512, p))
    named = {"small": small, "large": large, "foreign": foreign}
    return {
        "primes": {name: [hex(key.p), hex(key.q)] for name, key in named.items()},
        "fingerprints": {name: key.fingerprint().hex() for name, key in named.items()},
        "keys": keys(small, large),
        "challenges": [{"n": hex(key.n), "found": list(map(hex, challenges(key.n)))} for key in (small, large)],
        "private_keys": private_keys(small),
        "ciphertexts": ciphertexts(small),
        "plaintexts": plaintexts("small", small, 30) + plaintexts("large", large, 5),
        "random_powers": random_powers("small", small, 15) + random_powers("large", large, 3),
        "sums": sums(small),
        "products": products(small),
        "layouts": layouts(),
        "refused_packings": refused_packings(),
        "arrays": arrays(small, foreign),
        "ring": ring(small),
        "fixed_points": fixed_points(),
    }


def text(content: dict[str, Any]) -> str:
    """JSON with a case per line, so that a change shows where it is."""
    blocks = []
    for name, block in content.items():
        if isinstance(block, list):
            lines = ",\n  ".join(json.dumps(one, separators=(",", ":")) for one in block)
            blocks.append(f'"{name}": [\n  {lines}\n]')
        else:
            blocks.append(f'"{name}": {json.dumps(block)}')
    return "{\n" + ",\n".join(blocks) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text(made()))
