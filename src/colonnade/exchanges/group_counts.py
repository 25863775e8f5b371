"""Count one party's yes-or-no columns by another party's groups, while neither sees the other's rows.

The asking party holds indicators: for each of n rows some columns of 0 or 1, such as what was decided and what was
true. The counting party holds the group of every row, such as a gender; where it does not know it, the row has none.

1. asking to counting party: [[indicators]] under the asking party's key, the columns of a row side by side;
2. the counting party multiplies the ciphertexts of each group's rows, which adds up the hidden columns, adds noise if
   that was agreed on, and returns the sums freshly randomised. Rows without a group are added to none;
3. the asking party decrypts the counts by group.

There is one ciphertext per row, because only the counting party knows which rows go together. 10,000 rows at 2048 bits
take the asking party five to ten seconds of one core to encrypt, and the counting party about one to add up.

Small groups. A group of fewer rows than agreed is withheld, by the counting party's own count and before anything is
returned. The asking party knows the counts over all rows, so a group withheld alone would be the rest of a subtraction:
where the rows in no given group, unknown ones among them, are fewer than that number, the smallest group that would
have been given is withheld too. Of two groups with one too small, none is given.

What counts give away. A count of a large group may still be small, or be the whole group, and then tells the groups of
all rows that it counts. *Two exact replies about the same rows tell more than each*: where few decisions changed in
between, or two thresholds have few rows between them, the difference has the groups of just these rows. Ask once, for
everything at the same time, or agree on noise. A row costs epsilon for one reply: discrete Laplace noise is drawn from
a durable secret, for a row that has ones in at most so many columns and might be in another group. Which groups are
withheld is decided by exact sizes, and is not covered by it. The same counter always has the same noise, so that a
reply repeated after an interruption is no second draw; never use one counter for two questions.

All this assumes an asking party that sends zeros and ones. A liar could mark a single row, or give each row a power of
two of its own, and nothing in a ciphertext would show it. So everything above the counts is hidden by a random number:
a reply tells such a liar no more bits than honest counts take, a few dozen for each group and not two thousand.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from colonnade.crypto import CipherArray, FixedPoint, Format, Layout, PrivateKey, PublicKey
from colonnade.errors import ConfigError, SlotOverflow, WrongContent
from colonnade.exchanges.secure_product import Opening, ProductFormat
from colonnade.messages import ENCRYPTED, GIVEN, NOISED, PLAIN, Carries, Dims, message, when
from colonnade.metrics.curves import SMALLEST_GROUP
from colonnade.privacy import SecretNoise, largest_whole_laplace, whole_laplace
from colonnade.session import Channel, Session

__all__ = [
    "NO_GROUP",
    "CountFormat",
    "CountsByGroup",
    "GroupCounts",
    "GroupsGiven",
    "SealedColumns",
    "SealedIndicators",
    "count_by_group",
    "groups_to_give",
    "outcome_columns",
    "outcome_margins",
    "receive_counts",
    "seal_indicators",
    "send_indicators",
]

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NO_GROUP = -1
"""Stands for the group of a row whose value is unknown."""


@dataclass(frozen=True, kw_only=True)
class CountFormat:
    """What both parties agree on before any value is seen."""

    rows: int
    columns: int
    key_bits: int
    smallest_group: int = SMALLEST_GROUP
    """Counts of groups with fewer rows are withheld."""
    epsilon: float | None = None
    """The privacy loss of a row in one reply, or None for exact counts."""
    most_ones: int | None = None
    """In how many columns a row may have a one; None for all. Noise grows with it, so disjoint columns have less."""
    most_groups: int = 256

    def __post_init__(self) -> None:
        if min(self.rows, self.columns, self.smallest_group, self.most_groups) < 1:
            raise ConfigError("Counts need rows, columns, groups and a smallest group of at least 1 row.")
        if self.most_ones is not None and not 1 <= self.most_ones <= self.columns:
            raise ConfigError(f"A row has ones in 1 to {self.columns} columns. Got {self.most_ones} instead.")
        # Refuses an epsilon that no noise can be drawn for.
        _ = self.largest_noise

    @property
    def ones(self) -> int:
        """Return in how many columns a row may have a one."""
        return self.columns if self.most_ones is None else self.most_ones

    @property
    def count_epsilon(self) -> float | None:
        """Return the privacy loss in a single count: a row in another group changes each of its columns twice."""
        return None if self.epsilon is None else self.epsilon / (2 * self.ones)

    @property
    def largest_noise(self) -> int:
        """Return the largest noise of a count, which its place in a ciphertext must have room for."""
        return 0 if self.count_epsilon is None else largest_whole_laplace(self.count_epsilon)

    @property
    def product(self) -> ProductFormat:
        """Return the sizes and scales of indicators and of their sums."""
        return ProductFormat(
            terms=self.rows,
            columns=self.columns,
            key_bits=self.key_bits,
            numbers=Format(0, 0),
            noise=self.largest_noise,
        )

    def counts(self, groups: int) -> Layout:
        """Lay out the counts of so many groups, each in ciphertexts of its own."""
        return replace(self.product.sums(groups), lines=1)


@message(sender=GIVEN, receiver=GIVEN, protection=ENCRYPTED, step="group counts", carries=Carries.ROW_LABEL)
class SealedColumns:
    """For every row some columns of 0 or 1, such as its decision, under the sender's key.

    Reveals: how many rows and columns.
    """

    values: Annotated[CipherArray, Dims("rows", "columns")]


# The receiver owns the key, so that encryption hides nothing from it: only noise would.
@message(
    sender=GIVEN,
    receiver=GIVEN,
    protection=when("count_epsilon", NOISED, PLAIN),
    step="group counts",
    carries=Carries.SUM,
)
class CountsByGroup:
    """The receiver's columns, added up by the sender's groups, with discrete Laplace noise if that was agreed on.

    Reveals: how many groups there are, which of them are too small to be given, and the others' exact counts; of a
    count that is as large as the group or the column, the groups of all its rows. Two replies about the same rows also
    reveal the counts over the rows that changed in between.
    Reveals when NOISED: how many groups there are, which are too small to be given, and the others' noisy counts.
    """

    values: Annotated[CipherArray, Dims(None, "columns")]
    is_given: Annotated[np.ndarray[Any, Any], Dims("groups", kind="b")]


@dataclass(frozen=True, eq=False)
class SealedIndicators:
    """Indicators under one's own key, and what they add up to over all rows; one may go to several partners."""

    values: CipherArray
    totals: Integers


@dataclass(frozen=True, eq=False)
class GroupCounts:
    """What the asking party learns: the counts of those groups that are given, by the numbers of these groups."""

    given: Integers
    values: Integers
    """Of shape (groups given, columns); with noise they may lie below 0."""


@dataclass(frozen=True, eq=False)
class GroupsGiven:
    """What the counting party knows of its reply: the groups whose counts it gave, and how many rows they have."""

    given: Integers
    sizes: Integers


def outcome_columns(decided: npt.ArrayLike, actual: npt.ArrayLike) -> Integers:
    """Return four columns, of which every row has a one in just one: neither, only actual, only decided, both.

    >>> outcome_columns([0, 1, 1], [1, 0, 1]).tolist()
    [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    """
    decisions, truths = np.asarray(decided), np.asarray(actual)
    for one in (decisions, truths):
        if one.ndim != 1 or len(one) != len(decisions) or not np.isin(one, (0, 1)).all():
            raise ConfigError("Decisions and true labels are two columns of equal length, of 0 and 1.")
    places = 2 * decisions.astype(np.int64) + truths.astype(np.int64)
    columns: Integers = (places[:, None] == np.arange(4)).astype(np.int64)
    return columns


def outcome_margins(counts: Integers) -> Integers:
    """Turn counts of `outcome_columns` into those of all rows, of decided, of actual, and of both.

    >>> outcome_margins(np.array([[5, 2, 1, 4]])).tolist()
    [[12, 5, 6, 4]]
    """
    neither, actual, decided, both = counts.T
    margins: Integers = np.stack([neither + actual + decided + both, decided + both, actual + both, both], axis=1)
    return margins


def groups_to_give(sizes: Integers, rows: int, smallest: int) -> Flags:
    """Return which groups are given: none of fewer rows, nor one that would leave such a group alone in the rest.

    >>> groups_to_give(np.array([3, 40, 7]), 50, 5).tolist(), groups_to_give(np.array([3, 4, 7]), 14, 5).tolist()
    ([False, True, False], [False, False, True])
    """
    is_given: Flags = sizes >= smallest
    rest = rows - int(sizes[is_given].sum())
    if sizes[~is_given].any() and rest < smallest and is_given.any():
        is_given[np.where(is_given, sizes, rows + 1).argmin()] = False
    return is_given


def seal_indicators(key: PrivateKey, format: CountFormat, indicators: npt.ArrayLike) -> SealedIndicators:
    """Encrypt columns of 0 and 1 under one's own key."""
    columns = np.asarray(indicators)
    if columns.shape != (format.rows, format.columns) or not np.isin(columns, (0, 1)).all():
        raise ConfigError(f"Indicators are {format.rows} rows of {format.columns} columns of 0 and 1.")
    whole = columns.astype(np.int64)
    if int(whole.sum(axis=1).max()) > format.ones:
        raise ConfigError(f"A row has ones in more than {format.ones} columns: the noise agreed on would not hide it.")
    return SealedIndicators(format.product.seal(key, whole), whole.sum(axis=0))


def send_indicators(peer: Channel, sealed: SealedIndicators) -> None:
    """Send sealed indicators to a party that has groups."""
    peer.send(SealedColumns(sealed.values))


def count_by_group(
    session: Session,
    peer: Channel,
    key: PublicKey,
    format: CountFormat,
    groups: npt.ArrayLike,
    group_count: int,
    *,
    counter: int = 0,
) -> GroupsGiven:
    """Add up a partner's columns by one's own groups, and return the counts of all groups that are large enough.

    Groups are numbers from 0, or -1 for a row without one. Noise, if agreed on, is that of the counter: give another to
    every question, and the same to the same question asked again after an interruption.
    """
    places = _checked_groups(groups, group_count, format)
    received = peer.receive(SealedColumns, rows=format.rows, columns=format.columns).values
    columns = received.under(key, format.product.sealed())
    sizes = np.bincount(places[places != NO_GROUP], minlength=group_count)
    is_given = groups_to_give(sizes, format.rows, format.smallest_group)
    given = np.flatnonzero(is_given)
    added = columns.row_sums([np.flatnonzero(places == group) for group in given])
    noised = added + _noise(session, peer, format, places, len(given), counter)
    session.ledger.mark(
        "group counts",
        party=peer.peer,
        groups=group_count,
        withheld=group_count - len(given),
        epsilon=format.epsilon,
        counter=counter,
    )
    peer.send(CountsByGroup(_hidden_above(noised), is_given))
    return GroupsGiven(given, sizes[given])


def receive_counts(
    peer: Channel, key: PrivateKey, format: CountFormat, sealed: SealedIndicators, groups: int
) -> GroupCounts:
    """Decrypt the counts of one's own columns by a partner's groups, or refuse what cannot be such counts."""
    opening = Opening(peer, CountsByGroup, key, groups=groups, columns=format.columns)
    reply = opening.received
    given = np.flatnonzero(reply.is_given)
    layout = format.counts(len(given))
    try:
        counts = layout.unpack(_below(layout, key, opening.integers(reply.values, layout))).integers
    except SlotOverflow:
        raise _impossible(peer) from None
    # A row is in one group at most, so that all groups together cannot have more than all rows.
    if format.epsilon is None and (counts.min(initial=0) < 0 or (counts.sum(axis=0) > sealed.totals).any()):
        raise _impossible(peer)
    return GroupCounts(given, counts.astype(np.int64))


def _noise(
    session: Session, peer: Channel, format: CountFormat, groups: Integers, given: int, counter: int
) -> FixedPoint:
    """Return what is added to the counts: noise that belongs to this partner's question about these rows' groups."""
    shape = given, format.columns
    if format.count_epsilon is None:
        return FixedPoint(np.zeros(shape, np.int64), 0, 0)
    # Groups that changed have other noise; the same would leave the difference bare.
    about = hashlib.sha256(f"{peer.peer!r} {format!r} {groups.tolist()!r}".encode()).hexdigest()
    words = SecretNoise(session.secret("group counts")).words(f"counts {about}", counter, (*shape, 2))
    return FixedPoint(whole_laplace(format.count_epsilon, words).astype(np.int64), 0, format.largest_noise)


def _hidden_above(array: CipherArray) -> CipherArray:
    """Return the same array with fresh randomness, and with a random number above the columns of each ciphertext.

    Honest columns leave nothing there. The random numbers go nearly all the way around the modulus, so that what
    dishonest ones left there is told by little more than whether it was carried past the end.
    """
    key, layout = array.key, array.layout
    above = []
    for width in _widths(layout):
        most = max((int(key.n >> width) // 2) - 1, 0)
        above.append((secrets.randbelow(2 * most + 1) - most) << width)
    return CipherArray(key, layout, key.multiply_in(array.ciphertexts, key.encrypt_integers(above)))


def _below(layout: Layout, key: PublicKey, integers: list[int]) -> list[int]:
    """Return what lies below the random numbers, with its sign."""
    half, found = int(key.n) >> 1, []
    for integer, width in zip(integers, _widths(layout), strict=True):
        signed = integer - int(key.n) if integer > half else integer
        low = signed & ((1 << width) - 1)
        found.append(low - (1 << width) if low >> (width - 1) else low)
    return found


def _widths(layout: Layout) -> list[int]:
    """Return how many bits the columns take in each ciphertext."""
    groups, columns = layout.shape
    held = [min(layout.slots, columns - block * layout.slots) for block in range(layout.blocks)]
    return [layout.slot_bits * one for one in held] * groups


def _checked_groups(groups: npt.ArrayLike, group_count: int, format: CountFormat) -> Integers:
    places = np.asarray(groups)
    if places.shape != (format.rows,) or places.dtype.kind not in "iu":
        raise ConfigError(f"Groups are whole numbers, one for each of {format.rows} rows.")
    if not 1 <= group_count <= format.most_groups:
        raise ConfigError(f"There are 1 to {format.most_groups} groups. Got {group_count} instead.")
    if not NO_GROUP <= int(places.min()) <= int(places.max()) < group_count:
        raise ConfigError(f"Groups are numbered from 0 to {group_count - 1}, with {NO_GROUP} for unknown ones.")
    return places.astype(np.int64)


def _impossible(peer: Channel) -> WrongContent:
    return WrongContent(
        f"'{peer.peer}' sent counts that cannot be: below nothing, or of more rows than there are. It computed "
        "something else, or used other rows; nothing of it was used."
    )
