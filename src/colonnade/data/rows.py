"""Shared rows, their split into training and held-out parts, and batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colonnade.data.ids import IdRule, canonical_id_bytes
from colonnade.errors import AlignmentError, ConfigError

__all__ = [
    "LETTERS",
    "AlignedRows",
    "IdFormat",
    "Split",
    "batches",
    "explain_nothing_shared",
    "id_marks",
    "most_even_split",
    "rows_of_marks",
    "split_rows",
]


@dataclass(frozen=True, eq=False)
class AlignedRows:
    """Say which of a party's rows are shared, in the order all parties agreed on, and which are not.

    `positions[k]` is this party's row of the k-th shared id; `rest` are its other rows in its own order; `protocol`
    says how the shared rows were found.
    """

    positions: npt.NDArray[np.int64]
    rest: npt.NDArray[np.int64]
    protocol: str

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True, eq=False)
class Split:
    """Divide the aligned rows: three ascending arrays of places in the agreed order."""

    train: npt.NDArray[np.int64]
    validation: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]


LETTERS = ("none", "upper", "lower", "mixed")
"""The cases of letters that ids may be written in."""


@dataclass(frozen=True)
class IdFormat:
    """Summarise what a party's ids look like, without any of them.

    `is_text` tells text from whole numbers. The other claims are about all ids, save `has_leading_zeros` and
    `has_spaces`, which need one id only. `parts` counts the columns that make an id together: then `is_text` says that
    all of them are text, lengths are added up, and the other claims are about every column.
    """

    is_text: bool
    is_digits: bool
    shortest: int
    longest: int
    has_leading_zeros: bool
    has_spaces: bool
    letters: str
    parts: int = 1

    @classmethod
    def of(cls, ids: npt.NDArray[np.object_]) -> IdFormat:
        """Summarise an array of ids as a PartyTable holds them; what is None is no id."""
        rows = [one if isinstance(one, tuple) else (one,) for one in ids if one is not None]
        texts = [str(part) for row in rows for part in row]
        lengths = [sum(len(str(part)) for part in row) for row in rows]
        has_upper = any(text != text.lower() for text in texts)
        has_lower = any(text != text.upper() for text in texts)
        letters = LETTERS[has_upper + 2 * has_lower]
        return cls(
            is_text=bool(rows) and all(isinstance(part, str) for row in rows for part in row),
            is_digits=all(text.isdecimal() for text in texts),
            shortest=min(lengths, default=0),
            longest=max(lengths, default=0),
            has_leading_zeros=any(len(text) > 1 and text[0] == "0" for text in texts),
            has_spaces=any(text != text.strip() for text in texts),
            letters=letters,
            parts=max(map(len, rows), default=1),
        )

    def __str__(self) -> str:
        length = str(self.shortest) if self.shortest == self.longest else f"{self.shortest}-{self.longest}"
        has_some_text = self.parts > 1 and not self.is_digits
        parts = ["text" if self.is_text else "text and whole numbers" if has_some_text else "whole numbers"]
        if self.parts > 1:
            parts[0] = f"{self.parts} columns of {parts[0]}"
        if self.is_text and self.is_digits:
            parts.append("all digits")
        parts.append(f"length {length}")
        if self.letters != "none":
            parts.append(f"{self.letters} case")
        if self.has_leading_zeros:
            parts.append("some with leading zeros")
        if self.has_spaces:
            parts.append("some with spaces around")
        return ", ".join(parts)


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


def id_marks(ids: npt.NDArray[np.object_], seed: int) -> npt.NDArray[np.uint64]:
    """Return a 64-bit mark for every id, the same at every party that knows the seed. It hides no id from such a party.

    Whole numbers of 64 bits are mixed by a keyed permutation, all at once. Other ids get the first bytes of the SHA-256
    of the seed and their canonical bytes, one by one.
    """
    is_number = np.fromiter((type(one) is int and -(2**63) <= one < 2**63 for one in ids), bool, len(ids))
    marks = np.empty(len(ids), np.uint64)
    marks[is_number] = _mixed(ids[is_number].astype(np.int64), seed)
    start = b"%d\x00" % seed
    for place in np.flatnonzero(~is_number):
        digest = hashlib.sha256(start + canonical_id_bytes(ids[place])).digest()
        marks[place] = int.from_bytes(digest[:8], "big")
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


def explain_nothing_shared(formats: Mapping[str, IdFormat], rule: IdRule | None = None) -> str:
    """Explain an empty alignment from the formats of the ids alone; what the rule made equal cannot be the cause."""
    described = "; ".join(f"{party}: {summary}" for party, summary in formats.items())
    causes = _likely_causes(list(formats.values()), rule or IdRule(trim=False))
    if not causes:
        causes.append("the formats agree, so the tables may be about different people or use different id systems")
    return f"The parties share no row. Their ids look like this: {described}. Likely: {'; '.join(causes)}."


def _likely_causes(seen: list[IdFormat], rule: IdRule) -> list[str]:
    causes = []
    if len({summary.parts for summary in seen}) > 1:
        causes.append("ids are made of more columns at one party than at another (name the same columns in table.id)")
    if rule.type == "keep" and len({summary.is_text for summary in seen}) > 1:
        causes.append(
            "some parties hold numbers and others text, which never equal one another "
            '(agree on type = "text" in [alignment])'
        )
    has_lost_zeros = len({summary.has_leading_zeros for summary in seen if summary.is_digits}) > 1
    if rule.type != "number" and has_lost_zeros:
        causes.append(
            "leading zeros may be kept at one party and lost at another "
            '(if zeros mean nothing, agree on type = "number" in [alignment])'
        )
    if rule.case == "keep" and len({summary.letters for summary in seen if summary.letters != "none"}) > 1:
        causes.append('upper and lower case may differ (agree on case = "fold" in [alignment])')
    if not rule.trim and len({summary.has_spaces for summary in seen}) > 1:
        causes.append("spaces around ids may be left at one party (agree on trim = true in [alignment])")
    # Zeros and spaces that the rule takes away make lengths differ without harm.
    may_lengths_differ = (rule.type == "number" and has_lost_zeros) or (
        rule.trim and any(summary.has_spaces for summary in seen)
    )
    if not may_lengths_differ and max(one.shortest for one in seen) > min(one.longest for one in seen):
        causes.append("no length occurs at all parties, so a prefix, padding or a hash may differ")
    return causes
