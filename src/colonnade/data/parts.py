"""What encoders of tables share: categories as zeros and ones, the rule of support, checks, and closed JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.data.columns import Column, Kind
from colonnade.data.table import PartyTable
from colonnade.errors import TableError, did_you_mean
from colonnade.text import toml_key

__all__ = [
    "Categories",
    "check_fits",
    "check_version",
    "damaged",
    "has_support",
    "mean_and_scale",
    "rows_of",
    "typed",
]


@dataclass(frozen=True, repr=False)
class Categories:
    """One-hot one categorical column; without `has_other` a category unseen in training is all zeros."""

    column: str
    categories: tuple[str, ...]
    has_other: bool
    marks_missing: bool

    kind: ClassVar[Kind] = "categorical"

    @classmethod
    def fit(
        cls, column: str, values: npt.NDArray[np.object_], max_categories: int, minimum_support: int
    ) -> Categories | None:
        """Learn the most frequent categories of training rows; None where there is nothing to tell apart."""
        codes, present = pd.factorize(values)
        has_missing = bool((codes < 0).any())
        if not len(present) or (len(present) == 1 and not has_missing):
            return None
        counts = np.bincount(codes[codes >= 0], minlength=len(present))
        by_frequency = sorted(zip(counts.tolist(), present, strict=True), key=lambda pair: (-pair[0], pair[1]))
        kept = {
            one: count
            for count, one in by_frequency[:max_categories]
            if has_support(count, len(values), minimum_support)
        }
        others, missing = int(counts.sum()) - sum(kept.values()), int((codes < 0).sum())
        has_other, marks_missing = (has_support(count, len(values), minimum_support) for count in (others, missing))
        if not kept and not has_other and not marks_missing:
            return None
        return cls(column=column, categories=tuple(sorted(kept)), has_other=has_other, marks_missing=marks_missing)

    @property
    def names(self) -> tuple[str, ...]:
        """Name the outputs."""
        shown = [f"{self.column}={category}" for category in self.categories]
        shown += [f"{self.column} is other"] if self.has_other else []
        shown += [f"{self.column} is missing"] if self.marks_missing else []
        return tuple(shown)

    def write(self, values: npt.NDArray[Any], block: npt.NDArray[Any]) -> None:
        """Write the outputs of these cells into a block of zeros."""
        codes, present = pd.factorize(values)
        # One place for each different text, and a last one, reached by the code -1, for missing cells.
        places = np.append(pd.Index(self.categories, dtype=object).get_indexer(pd.Index(present, dtype=object)), -1)
        if self.has_other:
            places[:-1][places[:-1] < 0] = len(self.categories)
        chosen = places[codes]
        rows = np.flatnonzero(chosen >= 0)
        block[rows, chosen[rows]] = 1
        if self.marks_missing:
            block[codes < 0, -1] = 1

    def describe(self) -> str:
        """Say how the column is encoded, without a value of it."""
        said = [f"{len(self.categories)} categories"]
        said += ["one output for all others"] if self.has_other else []
        said += ["a mark where it is missing"] if self.marks_missing else []
        return ", ".join(said)

    def to_json(self) -> dict[str, Any]:
        """Return the part for JSON."""
        return {
            "column": self.column,
            "kind": self.kind,
            "marks_missing": self.marks_missing,
            "categories": list(self.categories),
            "has_other": self.has_other,
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Categories:
        """Return the part that `to_json` wrote; KeyError, TypeError or ValueError where it is damaged."""
        return cls(
            column=typed(saved["column"], str),
            categories=tuple(typed(category, str) for category in saved["categories"]),
            has_other=typed(saved["has_other"], bool),
            marks_missing=typed(saved["marks_missing"], bool),
        )


def has_support(count: int, rows: int, support: int) -> bool:
    """Tell whether an output of so many ones among zeros exists, and tells enough rows apart."""
    return count > 0 and min(count, rows - count) >= support


def mean_and_scale(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return mean and population deviation; a constant has the exact deviation 0."""
    if values.min() == values.max():
        return float(values[0]), 0.0
    # Divided by the largest first, so that sums and squares of huge numbers stay finite.
    largest = np.abs(values).max()
    reduced = values / largest
    return float(reduced.mean() * largest), float(reduced.std() * largest)


def rows_of(table: PartyTable, column: str, positions: npt.NDArray[np.int64] | None) -> npt.NDArray[Any]:
    """Return a column's cells at the positions, by default all."""
    values = table.values(column)
    return values if positions is None else values[np.asarray(positions, dtype=np.int64)]


def check_fits(table: PartyTable, kinds: Mapping[str, Kind]) -> None:
    """Refuse a later table that lacks columns an encoder was fitted on, or has some of another kind; name them all."""
    columns = {column.name: column for column in table.all_columns}
    if lacking := [name for name in kinds if name not in columns]:
        hint = f"{did_you_mean(lacking[0], columns)} " if len(lacking) == 1 and columns else ""
        some = f"the column '{lacking[0]}'" if len(lacking) == 1 else f"{len(lacking)} columns: {', '.join(lacking)}"
        what = "it" if len(lacking) == 1 else "them"
        raise TableError(
            f"{table.name} lacks {some}, which the model was trained with. {hint}Add {what}; cells may "
            "be empty where nothing is known."
        )
    odd = {name: kind for name, kind in kinds.items() if _is_other(table, columns[name], kind)}
    if odd:
        said = "; ".join(f"'{name}' is {columns[name].kind}, but was {kind}" for name, kind in odd.items())
        types = ", ".join(f'{toml_key(name)} = "{kind}"' for name, kind in odd.items())
        raise TableError(
            f"{table.name} has other kinds of columns than when the model was trained: {said}. "
            f"Read the table with types = {{{types}}}."
        )


def _is_other(table: PartyTable, column: Column, kind: Kind) -> bool:
    """Tell whether a column is of another kind; one of missing cells only fits any, and 0 and 1 may be booleans."""
    if column.kind == kind or column.missing == table.rows:
        return False
    if {kind, column.kind} == {"numeric", "boolean"}:
        present = table.values(column.name)[~np.isnan(table.values(column.name))]
        return kind == "boolean" and not np.isin(present, (0.0, 1.0)).all()
    return True


def typed(value: Any, expected: type | tuple[type, ...]) -> Any:
    """Return a value of the expected type, a float being finite as well; TypeError for any other."""
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)  # another JSON writer may shorten 1.0 to 1
    if not isinstance(value, expected) or (isinstance(value, float) and not np.isfinite(value)):
        raise TypeError
    return value


def check_version(saved: Mapping[str, Any], version: int, what: str) -> None:
    """Refuse what another version of colonnade has saved."""
    found = saved.get("version")
    if found != version:
        raise TableError(
            f"The saved {what} has version {found!r} and this colonnade reads version {version}. "
            f"Use the colonnade version that wrote it, or train again."
        )


def damaged(what: str) -> TableError:
    """Say that something saved is not as it was written."""
    return TableError(f"The saved {what} is incomplete or changed. Restore the file or train again.")
