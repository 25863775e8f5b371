"""What a party should know about its table before it is used: each column, how it is encoded, and what looks wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.data import IdFormat, LabelEncoder, PartyTable
from colonnade.data.columns import Kind
from colonnade.metrics.counting import area_under_roc
from colonnade.training.inputs import Inputs

__all__ = ["InspectedColumn", "InspectedLabel", "Inspection", "described", "inspect_table"]

Array = npt.NDArray[Any]

_FEW_ROWS = 100
_RARE = 20
"""A class of fewer rows is hardly learnt, and hardly judged on those held out."""
_USUAL = 0.99
_AUC = 0.99
"""A column that tells classes so well by itself is probably known only after them."""
_LEAST_OF_CLASS = 10
_MOST_CLASSES = 20
_BINS = 20
_FAR, _GAP = 10.0, 7.0
"""An outlier lies so many quartile distances from the median, and so many times farther than all that are none."""
_OUTLIERS = 0.01
_LONG_AGO = -25_566
"""The first of January 1900, in days since 1970, and the day after it."""
_KINDS: dict[Kind, tuple[str, str]] = {
    "numeric": ("number", "numbers"),
    "date": ("date", "dates"),
    "boolean": ("boolean", "booleans"),
    "categorical": ("category", "categories"),
}
_SHOWN_NOTES = 3


@dataclass(frozen=True, kw_only=True)
class InspectedColumn:
    """One column beside ids and label: what it holds, how networks get it, and what looks wrong."""

    name: str
    kind: Kind
    missing: int
    distinct: int
    encoded: str = ""
    """How it is encoded, if it is."""
    outputs: int = 0
    """Into how many numbers."""
    left_out: str = ""
    """Why it is no feature."""
    tells_label: bool = False
    """Whether it nearly determines the label by itself."""
    notes: tuple[str, ...] = ()
    """Sentences with counts and no values."""


@dataclass(frozen=True, kw_only=True)
class InspectedLabel:
    """What is to be predicted."""

    name: str
    task: str
    missing: int
    distinct: int
    classes: dict[str, int]
    """How many rows each class has: the only values of a table that are shown, on its own party's screen."""
    sentence: str = ""
    """What a run takes it for, and why, unless its settings say otherwise."""


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What can be said of a table. But for classes of the label it holds names, kinds and counts."""

    name: str
    rows: int
    id: str
    id_format: str
    label: InspectedLabel | None
    dialect: dict[str, str]
    columns: tuple[InspectedColumn, ...]
    notes: tuple[str, ...]

    @property
    def used(self) -> tuple[InspectedColumn, ...]:
        """Return the columns that are features."""
        return tuple(one for one in self.columns if not one.left_out)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return asdict(self)

    def in_short(self, title: str) -> str:
        """Return a line of counts, and some of what looks wrong on lines of its own, without any value."""
        line = f"{title}: {self.rows:,} rows, {_plural(len(self.used), 'column')} used"
        by_kind = [(sum(one.kind == kind for one in self.used), words) for kind, words in _KINDS.items()]
        line += (
            f" ({', '.join(f'{count} {words[count > 1]}' for count, words in by_kind if count)})" if self.used else ""
        )
        line += "" if self.label is None else f", label {self.label.name}"
        left_out = [f"{one.name} ({one.left_out})" for one in self.columns if one.left_out]
        if left_out:
            others = [] if len(left_out) <= 2 * _SHOWN_NOTES else [f"{len(left_out) - 2 * _SHOWN_NOTES} others"]
            line += f", {len(left_out)} left out: {', '.join(left_out[: 2 * _SHOWN_NOTES] + others)}"
        notes = self.looks_wrong
        more = len(notes) - _SHOWN_NOTES
        shown = notes[:_SHOWN_NOTES] + ([f"{more} more: see 'colonnade inspect'"] if more > 0 else [])
        return "\n".join([line, *(f"  {note}" for note in shown)])

    @property
    def looks_wrong(self) -> list[str]:
        """Say what looks wrong with the table and with its columns in use, what tells the label first."""
        columns = sorted(self.used, key=lambda one: not one.tells_label)
        return [*self.notes, *(f"{one.name}: {note}" for one in columns for note in one.notes)]


def described(table: PartyTable) -> dict[str, Any]:
    """Return `table.describe()` with the notes of an inspection: names, kinds and counts."""
    about, notes = table.describe(), {one.name: list(one.notes) for one in inspect_table(table).columns}
    return about | {"columns": [one | {"notes": notes[one["name"]]} for one in about["columns"]]}


_INSPECTED: WeakKeyDictionary[PartyTable, Inspection] = WeakKeyDictionary()


def inspect_table(table: PartyTable) -> Inspection:
    """Look at a table once; its encoding is what all of its rows would give."""
    found = _INSPECTED.get(table)
    if found is None:
        found = _INSPECTED[table] = _inspect(table)
    return found


def _inspect(table: PartyTable) -> Inspection:
    inputs = Inputs.fit(table) if table.rows else Inputs((), (), ())
    encoded = {one["name"]: one for one in inputs.describe()}
    label = _label(table)
    columns = []
    for column in table.all_columns:
        one = InspectedColumn(**{name: getattr(column, name) for name in ("name", "kind", "missing", "distinct")})
        one = replace(one, left_out=column.left_out, notes=column.notes)
        if not column.left_out and table.rows:
            about = encoded.get(column.name, {"encoded": "not at all: too few rows differ", "outputs": 0})
            one = replace(one, encoded=about["encoded"], outputs=about["outputs"])
            one = replace(one, tells_label=_tells_label(table, one, label))
            one = replace(one, notes=(*column.notes, *_looks_wrong(table, one, label)))
        columns.append(one)
    ids = IdFormat.of(table.ids)
    dialect = {name: value for name, value in asdict(table.dialect).items() if value is not None}
    notes = () if not table.rows else tuple(_of_table(table, ids, label, columns))
    return Inspection(
        name=table.name,
        rows=table.rows,
        id=table.id_column,
        id_format=str(ids),
        label=label,
        dialect=dialect,
        columns=tuple(columns),
        notes=notes,
    )


def _label(table: PartyTable) -> InspectedLabel | None:
    if table.labels is None or table.label_column is None:
        return None
    known = table.labels[table.is_labelled]
    codes, values = pd.factorize(known, sort=True)
    missing = table.rows - len(known)
    if len(values) < 2:
        return InspectedLabel(name=table.label_column, task="", missing=missing, distinct=len(values), classes={})
    encoder = LabelEncoder.fit(known, positive=table.positive)
    names = [str(int(one) if isinstance(one, float) and one.is_integer() else one) for one in values.tolist()]
    counts = np.bincount(codes).tolist()
    classes = {} if encoder.task == "regression" else dict(zip(names, counts, strict=True))
    return InspectedLabel(
        name=table.label_column,
        task=encoder.task,
        missing=missing,
        distinct=len(values),
        classes=classes,
        sentence=encoder.sentence,
    )


def _of_table(
    table: PartyTable, ids: IdFormat, label: InspectedLabel | None, columns: list[InspectedColumn]
) -> Iterator[str]:
    """Say what looks wrong with a table as a whole."""
    if table.rows < _FEW_ROWS:
        yield f"There are only {_plural(table.rows, 'row')}: another draw of so few may teach something else."
    outputs = sum(one.outputs for one in columns)
    if outputs > table.rows:
        yield f"Columns become {outputs:,} numbers, which is more than there are rows. Leave some out with drop."
    if ids.has_exponents:
        yield (
            f"Some ids of '{table.id_column}' have an exponent, such as 1.2E+11: a spreadsheet has cut off their last "
            "digits. Export them again as text."
        )
    repeated = _repeated_rows(table, columns)
    if repeated:
        yield f"{_plural(repeated, 'row', 'repeats')} another one in all columns but the id."
    if label is not None:
        if label.missing:
            yield f"{label.missing:,} of {table.rows:,} rows have no label."
        rare = sum(count < _RARE for count in label.classes.values())
        if rare:
            yield f"{rare} of {len(label.classes)} classes of '{label.name}' have fewer than {_RARE} rows each."


def _repeated_rows(table: PartyTable, columns: list[InspectedColumn]) -> int:
    used = [one.name for one in columns if not one.left_out and one.distinct > 1]
    # Of few columns with few values, rows repeat without anything being wrong.
    if sum(np.log2(one.distinct) for one in columns if one.name in used) < 2 * np.log2(table.rows + 1) + 10:
        return 0
    return int(pd.DataFrame({name: table.values(name) for name in used}).duplicated().sum())


def _looks_wrong(table: PartyTable, column: InspectedColumn, label: InspectedLabel | None) -> Iterator[str]:
    """Say what looks wrong with a column in use."""
    values, rows = table.values(column.name), table.rows
    if column.tells_label and label is not None:
        yield (
            f"It alone nearly determines the label '{label.name}'. If it is known only afterwards, list it under drop: "
            "new rows will not have it."
        )
    if 2 * column.missing >= rows:
        yield f"{column.missing:,} of {rows:,} cells are missing."
    present = values[~pd.isna(values)]
    if not len(present):
        return
    codes, different = pd.factorize(present)
    counts = np.bincount(codes)
    if len(different) > 1 and counts.max() > _USUAL * len(present):
        yield f"One value is in {int(counts.max()):,} of {len(present):,} cells."
    if column.kind == "date":
        old, ahead = int((present <= _LONG_AGO + 1).sum()), int((present > time.time() / 86_400).sum())
        if old:
            yield f"{_plural(old, 'date', 'is')} of 1900 or before, as placeholders for missing ones often are."
        if ahead:
            yield f"{_plural(ahead, 'date', 'lies')} in the future."
    if column.kind == "numeric":
        yield from _outliers(present)


def _outliers(present: Array) -> Iterator[str]:
    low, middle, high = np.quantile(present, [0.25, 0.5, 0.75])
    apart = np.sort(np.abs(present - middle))
    first = max(0, len(apart) - max(1, int(_OUTLIERS * len(apart))) - 1)
    if high <= low or len(apart) < _RARE:
        return
    unit = high - low
    far = [
        place
        for place in range(first, len(apart) - 1)
        if apart[place + 1] > max(_FAR, _GAP * apart[place] / unit) * unit
    ]
    if far:
        count = len(apart) - far[0] - 1
        beyond = present[np.abs(present - middle) > apart[far[0]]]
        alike = (
            ", all with one value, which may stand for missing ones"
            if count > 1 and len(set(beyond.tolist())) == 1
            else ""
        )
        yield f"{_plural(count, 'number', 'lies')} far away from all others{alike}."


def _tells_label(table: PartyTable, column: InspectedColumn, label: InspectedLabel | None) -> bool:
    """Tell whether a column nearly determines the label, as what is only known after it does."""
    if label is None or table.labels is None or not label.task:
        return False
    known = table.is_labelled
    values, labels = table.values(column.name)[known], table.labels[known]
    if label.task == "regression":
        present = ~pd.isna(values)
        if column.kind == "categorical" or present.sum() < _FEW_ROWS:
            return False
        one, other = (pd.Series(cells[present].astype(np.float64)).rank() for cells in (values, labels))
        return abs(one.corr(other)) > _AUC
    codes, different = pd.factorize(labels)
    if len(different) > _MOST_CLASSES or np.bincount(codes).min() < _LEAST_OF_CLASS:
        return False
    wanted = range(1, 2) if len(different) == 2 else range(len(different))
    return all(_area(values, codes == one) > _AUC for one in wanted)


def _area(values: Array, is_one: npt.NDArray[np.bool_]) -> float:
    """Return how well a column ranks one class: by how often its value had that class in the other half of the rows."""
    if values.dtype == object:
        groups = pd.factorize(values)[0] + 1
    else:
        known = values[~np.isnan(values)]
        edges = np.unique(np.quantile(known, np.linspace(0, 1, _BINS + 1)[1:-1])) if len(known) else known
        groups = np.where(np.isnan(values), 0, np.searchsorted(edges, values, side="right") + 1)
    half = np.arange(len(values)) % 2 == 0
    scores = np.zeros(len(values))
    for learnt, judged in ((half, ~half), (~half, half)):
        rows = np.bincount(groups[learnt], minlength=groups.max() + 1)
        ones = np.bincount(groups[learnt], weights=is_one[learnt], minlength=groups.max() + 1)
        scores[judged] = ((ones + is_one.mean()) / (rows + 1))[groups[judged]]
    found = area_under_roc(is_one, scores)
    if values.dtype != object and not np.isnan(values).any():
        plain = area_under_roc(is_one, values)
        found = max(found, plain, 1 - plain)
    return found


def _plural(count: int, noun: str, verb: str = "") -> str:
    """Count something; the verb is given for one of it."""
    verbs = verb if count == 1 else {"is": "are"}.get(verb, verb.removesuffix("s"))
    return f"{count:,} {noun}{'' if count == 1 else 's'} {verbs}".rstrip()
