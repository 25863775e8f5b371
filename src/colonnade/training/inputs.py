"""What a party's table is to a model: one encoder for all methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from colonnade.data import Kind, PartyTable
from colonnade.data.parts import Categories, check_fits, check_version, damaged, rows_of, typed
from colonnade.errors import TableError
from colonnade.training.numbers import Numbers
from colonnade.training.shift import Training, differences

if TYPE_CHECKING:
    from colonnade.session import Holding, ModelPart

__all__ = ["Inputs", "differences_of"]

_VERSION = 2
_WHAT = "encoder of inputs"


@dataclass(frozen=True, repr=False)
class Inputs:
    """Turn a party's feature columns into one array, by what its training rows look like.

    Numbers are put on a scale without skew, bounded and standardised, dates also show where in the year, the week and
    the day they are, categories are one-hot encoded, and missing cells are marked. `names` says what each output is,
    `column_of` from which column it comes, and `dropped` which columns carried nothing in training (constant, empty, or
    too rarely different).

    It holds means, quantiles and category names of the party. It belongs to this party's part of the model and is never
    sent; keep its JSON as you keep the table.
    """

    parts: tuple[Numbers | Categories, ...] = ()
    dropped: tuple[str, ...] = ()
    training: tuple[Training, ...] = ()
    """What the training rows had in the columns of `parts`."""

    @classmethod
    def fit(
        cls,
        table: PartyTable,
        positions: npt.NDArray[np.int64] | None = None,
        *,
        splines: bool = False,
        minimum_support: int = 0,
    ) -> Inputs:
        """Learn from the rows at `positions` (all by default); pass the training rows only.

        With `splines` a number also gives ramps between its quantiles, by which a linear model can follow a curve. The
        most frequent categories of a column, as many as `table.most_categories`, get an output of their own, the others
        share one. No output tells fewer than `minimum_support` rows apart from the others: rarer categories share an
        output, numbers are cut off where so many rows lie beyond, and an output that would still do so is left out.
        """
        count = table.rows if positions is None else len(positions)
        if not count:
            raise TableError(f"{table.name} has no training rows to fit an encoder on. Use a smaller held-out part.")
        parts: list[Numbers | Categories] = []
        training, dropped = [], []
        for column in table.columns:
            values = rows_of(table, column.name, positions)
            part: Numbers | Categories | None
            if column.kind == "categorical":
                part = Categories.fit(column.name, values, table.most_categories, minimum_support)
            else:
                part = Numbers.fit(
                    column.name, values, kind=column.kind, splines=splines, minimum_support=minimum_support
                )
            if part is None:
                dropped.append(column.name)
            else:
                parts.append(part)
                training.append(Training.of(part, values))
        return cls(tuple(parts), tuple(dropped), tuple(training))

    @classmethod
    def of(cls, holding: Holding, *, splines: bool = False, minimum_support: int = 0) -> Inputs:
        """Return the inputs of a trained part, or fit them on the training rows; of no width without usable columns."""
        if holding.part is not None and "inputs" in holding.part.document:
            return cls.from_json(holding.part.document["inputs"])
        training = holding.aligned.positions[holding.split.train]
        return cls.fit(holding.table, training, splines=splines, minimum_support=minimum_support)

    @property
    def names(self) -> tuple[str, ...]:
        """Name the outputs: `age`, `age is missing`, `job=clerk`, `job is other`, `job is missing`."""
        return tuple(name for part in self.parts for name in part.names)

    @property
    def column_of(self) -> tuple[str, ...]:
        """Return the column of the table that each output comes from."""
        return tuple(part.column for part in self.parts for _ in part.names)

    @property
    def width(self) -> int:
        """Count the outputs."""
        return sum(len(part.names) for part in self.parts)

    @property
    def types(self) -> dict[str, Kind]:
        """Return the kind of each column in use, to read later tables with the same `types`."""
        return {part.column: part.kind for part in self.parts}

    def transform(
        self,
        table: PartyTable,
        positions: npt.NDArray[np.int64] | None = None,
        dtype: npt.DTypeLike = np.float32,
    ) -> npt.NDArray[Any]:
        """Return the rows at `positions` (all by default) as an array of shape (rows, width)."""
        check_fits(table, self.types)
        count = table.rows if positions is None else len(positions)
        encoded = np.zeros((count, self.width), dtype=dtype)
        start = 0
        for part in self.parts:
            width = len(part.names)
            part.write(self._cells(part, table, positions), encoded[:, start : start + width])
            start += width
        return encoded

    def differences(self, table: PartyTable) -> tuple[str, ...]:
        """Say of each column in which new rows differ from training rows how they do, by the rules of `shift`."""
        check_fits(table, self.types)
        pairs = zip(self.parts, self.training, strict=True)
        said = (differences(part, one, self._cells(part, table, None)) for part, one in pairs)
        return tuple(filter(None, said))

    def describe(self) -> list[dict[str, Any]]:
        """Say of each column in use how it is encoded and how many numbers it gives, without a value of it."""
        return [
            {"name": part.column, "kind": part.kind, "encoded": part.describe(), "outputs": len(part.names)}
            for part in self.parts
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the encoder for JSON; `from_json` gives back an equal one."""
        return {
            "version": _VERSION,
            "columns": [part.to_json() for part in self.parts],
            "dropped": list(self.dropped),
            "training": [one.to_json() for one in self.training],
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Inputs:
        """Return the encoder that `to_json` wrote, refusing other versions and damaged content."""
        if not isinstance(saved, Mapping):
            raise damaged(_WHAT)
        check_version(saved, _VERSION, _WHAT)
        try:
            parts = tuple(_FORMS[one["kind"]].from_json(one) for one in saved["columns"])
            dropped = tuple(typed(name, str) for name in saved["dropped"])
            inputs = cls(parts, dropped, tuple(Training.from_json(one) for one in saved["training"]))
            if inputs.to_json() != saved or len(inputs.training) != len(parts):
                raise ValueError
        except (AttributeError, KeyError, TypeError, ValueError):
            raise damaged(_WHAT) from None
        return inputs

    def __repr__(self) -> str:  # quantiles and category names stay out of logs and tracebacks
        return f"Inputs(width={self.width}, columns={len(self.parts)}, dropped={len(self.dropped)})"

    def _cells(
        self, part: Numbers | Categories, table: PartyTable, positions: npt.NDArray[np.int64] | None
    ) -> npt.NDArray[Any]:
        values = rows_of(table, part.column, positions)
        if (values.dtype == object) != (part.kind == "categorical"):  # every cell is missing, see check_fits
            missing = (None, object) if part.kind == "categorical" else (np.nan, np.float64)
            values = np.full(len(values), *missing)
        return values


def differences_of(part: ModelPart, table: PartyTable) -> tuple[str, ...]:
    """Say how new rows differ from those that a part of a model was trained on, where it keeps what tells."""
    saved = part.document.get("inputs")
    return () if saved is None else Inputs.from_json(saved).differences(table)


_FORMS: dict[str, type[Numbers] | type[Categories]] = {
    "numeric": Numbers,
    "date": Numbers,
    "boolean": Numbers,
    "categorical": Categories,
}
