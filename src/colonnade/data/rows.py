"""Shared rows, their split into training and held-out parts, and batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colonnade.data.ids import IdRule, canonical_ids
from colonnade.errors import AlignmentError, ConfigError

__all__ = [
    "AlignedRows",
    "Split",
    "batches",
    "id_marks",
    "most_even_split",
    "rows_of_marks",
    "split_rows",
]

_AS_WRITTEN = IdRule(trim=False)


@dataclass(frozen=True, eq=False)
class AlignedRows:
    """Say which of a party's rows are shared, in the order all parties agreed on, and which are not.

    `positions[k]` is this party's row of the k-th shared id; `rest` are its other rows in its own order; `protocol`
    says how the shared rows were found, and `hint`, where they are few, by which rule there might be more.
    """

    positions: npt.NDArray[np.int64]
    rest: npt.NDArray[np.int64]
    protocol: str
    hint: str = ""

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True, eq=False)
class Split:
    """Divide the aligned rows: three ascending arrays of places in the agreed order."""

    train: npt.NDArray[np.int64]
    validation: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]


def rows_of_marks(
    own: npt.NDArray[np.uint64], shared: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return a party's rows of the shared marks, in their order, and its other rows in its own."""
    order = np.argsort(own, kind="stable")
    places = np.searchsorted(own, shared, sorter=order)
    positions = order[np.minimum(places, len(own) - 1)] if len(own) else np.empty(0, np.int64)
    if (len(own) == 0 and len(shared)) or not np.array_equal(own[positions], shared):
        raise AlignmentError("Shared rows were announced that this party does not have. Start the run again.")
    is_rest = np.ones(len(own), dtype=bool)
    is_rest[positions] = False
    return positions, np.flatnonzero(is_rest)


def id_marks(ids: npt.NDArray[np.object_], seed: int, rule: IdRule = _AS_WRITTEN) -> npt.NDArray[np.uint64]:
    """Return a 64-bit mark for every id, the same at every party that knows the seed. It hides no id from such a party.

    Ids that the rule makes equal have one mark. Whole numbers of 64 bits are mixed by a keyed permutation, all at once.
    Other ids get the first bytes of the SHA-256 of the seed and their canonical bytes, one by one.
    """
    numbers = [one if type(one) is int and rule.type != "text" else None for one in ids]
    others = [place for place, one in enumerate(numbers) if one is None]
    canonical = dict(zip(others, canonical_ids([ids[place] for place in others], rule), strict=True))
    for place, written in canonical.items():
        if written.startswith(b"i"):
            numbers[place] = int(written[1:])
    is_number = np.fromiter((one is not None and -(2**63) <= one < 2**63 for one in numbers), bool, len(ids))
    marks = np.empty(len(ids), np.uint64)
    small = [one for one, fits in zip(numbers, is_number.tolist(), strict=True) if fits]
    marks[is_number] = _mixed(np.array(small, np.int64), seed)
    start = b"%d\x00" % seed
    for place in np.flatnonzero(~is_number).tolist():
        written = canonical[place] if place in canonical else f"i{numbers[place]}".encode()
        marks[place] = int.from_bytes(hashlib.sha256(start + written).digest()[:8], "big")
    if len(np.unique(marks)) != len(marks):
        raise AlignmentError("Two different ids of one table have the same mark. Choose another seed for this run.")
    return marks


def _mixed(numbers: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.uint64]:
    """Mix 64-bit numbers by a permutation that the seed chooses (the finaliser of SplitMix64, after a keyed shift)."""
    key = int.from_bytes(hashlib.sha256(b"%d" % seed).digest()[:8], "little")
    mixed = numbers.view(np.uint64) ^ np.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def split_rows(count: int, *, validation_fraction: float, test_fraction: float, seed: int) -> Split:
    """Divide `count` aligned rows by a seeded shuffle; the same arguments give the same split at every party."""
    parts = _shuffled_parts(count, validation_fraction, test_fraction, seed)
    test, validation, train = (np.sort(part) for part in parts)
    return Split(train=train, validation=validation, test=test)


def most_even_split(
    classes: npt.NDArray[np.int64], seeds: Iterable[int], *, validation_fraction: float, test_fraction: float
) -> int:
    """Return the place of the seed by which `split_rows` has every class's share most alike in all parts.

    First of all every class comes up in training. How far a part is off is told by chi-square, in which a rare class
    weighs as much as others.
    """
    shares = np.bincount(classes) / len(classes)
    there = np.flatnonzero(shares)

    def badness(seed: int) -> tuple[int, float]:
        parts = _shuffled_parts(len(classes), validation_fraction, test_fraction, seed)
        counts = [np.bincount(classes[part], minlength=len(shares))[there] for part in parts]
        off = (((one - one.sum() * shares[there]) ** 2 / (max(1, one.sum()) * shares[there])).sum() for one in counts)
        return int(np.count_nonzero(counts[-1] == 0)), float(sum(off))

    found = [badness(seed) for seed in seeds]
    return found.index(min(found))


def _shuffled_parts(
    count: int, validation_fraction: float, test_fraction: float, seed: int
) -> list[npt.NDArray[np.int64]]:
    """Return the rows for test, validation and training, in random order."""
    for setting, fraction in [("validation_fraction", validation_fraction), ("test_fraction", test_fraction)]:
        if not 0.0 <= fraction < 1.0:
            raise ConfigError(f"{setting} is {fraction}. Choose a number from 0 up to, but not including, 1.")
    if validation_fraction + test_fraction >= 1.0:
        raise ConfigError(
            f"validation_fraction and test_fraction add up to {validation_fraction + test_fraction}. "
            f"Leave something to train on: choose fractions that add up to less than 1."
        )
    test_count, validation_count = round(count * test_fraction), round(count * validation_fraction)
    wanted = {
        "training": (1.0 - validation_fraction - test_fraction, count - test_count - validation_count),
        "validation": (validation_fraction, validation_count),
        "test": (test_fraction, test_count),
    }
    for part, (fraction, size) in wanted.items():
        if fraction > 0 and size < 1:
            raise AlignmentError(
                f"With {count} shared rows the {part} part would be empty. Use larger tables or change the fractions."
            )
    shuffled = _generator(seed).permutation(count).astype(np.int64)
    return np.split(shuffled, [test_count, test_count + validation_count])


def batches(rows: int | npt.NDArray[np.int64], size: int, seed: int) -> Iterator[npt.NDArray[np.int64]]:
    """Shuffle rows (positions, or a count of them) by the seed and return batches; the last may be smaller."""
    if size < 1:
        raise ConfigError(f"The batch size is {size}. Choose at least 1.")
    shuffled = _generator(seed).permutation(rows).astype(np.int64)
    return (shuffled[start : start + size] for start in range(0, len(shuffled), size))


def _generator(seed: int) -> np.random.Generator:
    if seed < 0:
        raise ConfigError(f"The seed is {seed}. Choose 0 or a positive whole number.")
    return np.random.Generator(np.random.PCG64(seed))
