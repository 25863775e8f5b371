"""A party's columns as the whole numbers that local models take: fields in bins and categories, or words of texts.

Everything here is fitted by one party on its own training rows and stays with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colonnade.data import PartyTable
from colonnade.data.codes import CodeEncoder
from colonnade.errors import ConfigError, TableError, did_you_mean

__all__ = ["FieldCoder", "Inputs", "TextCoder", "coder_from_json", "split_texts"]

Places = npt.NDArray[np.int64]
SEPARATOR = "|"
# More words than this are names rather than words; the rarest count as unknown.
_MOST_WORDS = 30_000
_MOST_READERS = 100_000


@dataclass(frozen=True)
class Inputs:
    """What a local model takes, by row, and of which rows anything is known."""

    by_row: tuple[torch.Tensor, ...]
    is_there: npt.NDArray[np.bool_]
    texts: torch.Tensor | None = None
    """All different texts once, where rows name them by their place."""

    def take(self, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the arguments of the model for some rows."""
        own = tuple(one.index_select(0, places) for one in self.by_row)
        return own if self.texts is None else (self.texts, *own)


@dataclass(frozen=True)
class FieldCoder:
    """Columns as fields: categories by their place, numbers by their bin; 0 for what is missing or unknown."""

    fields: tuple[str, ...]
    encoder: CodeEncoder
    edges: Mapping[str, tuple[float, ...]]

    @classmethod
    def fit(cls, table: PartyTable, columns: Sequence[str], positions: Places, bins: int) -> FieldCoder:
        """Learn categories and bins from training rows."""
        kinds = {column.name: column.kind for column in table.all_columns}
        edges = {}
        for name in columns:
            if kinds[name] != "categorical":
                values = np.asarray(table.values(name)[positions], float)
                known = values[np.isfinite(values)]
                quantiles = np.quantile(known, np.linspace(0, 1, bins + 1)[1:-1]) if len(known) else np.empty(0)
                edges[name] = tuple(np.unique(quantiles).tolist())
        categorical = [name for name in columns if kinds[name] == "categorical"]
        return cls(tuple(columns), CodeEncoder.fit(table, positions, categorical), edges)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns it reads."""
        return self.fields

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return how many codes each field has."""
        categories = {one.column: len(self.encoder.tables[one.table]) for one in self.encoder.coded}
        return tuple(
            (len(self.edges[name]) + 2 if name in self.edges else categories[name] + 1) for name in self.fields
        )

    def transform(self, table: PartyTable, positions: Places) -> Inputs:
        """Return the codes of rows."""
        _check_columns(table, self.fields)
        places = {one.column: place for place, one in enumerate(self.encoder.coded)}
        categories = self.encoder.codes(table, positions)
        found = np.zeros((len(positions), len(self.fields)), np.int64)
        is_there = np.zeros(len(positions), bool)
        for place, name in enumerate(self.fields):
            values = table.values(name)[positions]
            if name in self.edges:
                numbers = np.asarray(values, float) if values.dtype != object else np.full(len(values), np.nan)
                known = np.isfinite(numbers)
                found[known, place] = np.searchsorted(np.array(self.edges[name]), numbers[known], side="right") + 1
            else:
                found[:, place] = categories[:, places[name]]
                known = np.array([one is not None and one == one for one in values], bool)
            is_there |= known
        return Inputs((torch.from_numpy(found),), is_there)

    def to_json(self) -> dict[str, Any]:
        """Return the coder for JSON."""
        edges = {name: list(values) for name, values in self.edges.items()}
        return {"kind": "fields", "fields": list(self.fields), "encoder": self.encoder.to_json(), "edges": edges}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> FieldCoder:
        """Return the coder that `to_json` wrote."""
        edges = {str(name): tuple(map(float, values)) for name, values in saved["edges"].items()}
        return cls(tuple(saved["fields"]), CodeEncoder.from_json(saved["encoder"]), edges)


@dataclass(frozen=True)
class TextCoder:
    """A column of texts as words: items of a row separated by a bar, words by their place; 0 for nothing.

    Words that are not known share the place after the last, so that a text of none but such words is still a text.
    """

    column: str
    words: Mapping[str, int]
    longest: int
    items: int
    readers: Mapping[str, int] | None = None
    reader: str | None = None

    @classmethod
    def fit(
        cls, table: PartyTable, column: str, positions: Places, *, longest: int, items: int, reader: str | None = None
    ) -> TextCoder:
        """Learn words, and whose texts they are, from training rows."""
        _check_columns(table, (column,))
        counts: Counter[str] = Counter()
        for text, rows in Counter(table.values(column)[positions].tolist()).items():
            for word in {word for item in split_texts(text) for word in item}:
                counts[word] += rows
        # What only one row has says nothing about others; such words teach what an unknown one stands for.
        repeated = [word for word, count in counts.items() if count > 1]
        kept = sorted(repeated, key=lambda word: (-counts[word], word))[:_MOST_WORDS]
        words = {word: place for place, word in enumerate(sorted(kept), start=1)}
        if reader is None or reader not in table.names:
            return cls(column, words, longest, items)
        known = sorted({str(one) for one in table.values(reader)[positions] if one is not None})[:_MOST_READERS]
        return cls(column, words, longest, items, {one: place for place, one in enumerate(known, start=1)}, reader)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns it reads."""
        return (self.column,) if self.reader is None else (self.column, self.reader)

    def transform(self, table: PartyTable, positions: Places) -> Inputs:
        """Return the words of rows, every different text once."""
        _check_columns(table, (self.column,))
        texts: dict[tuple[int, ...], int] = {(0,) * self.longest: 0}
        known: dict[Any, tuple[int, ...]] = {}
        places = np.zeros((len(positions), self.items), np.int64)
        for row, text in enumerate(table.values(self.column)[positions]):
            if text not in known:
                known[text] = tuple(texts.setdefault(self._coded(item), len(texts)) for item in split_texts(text))
            latest = [one for one in known[text] if one][-self.items :]
            places[row, : len(latest)] = latest
        inputs = [torch.from_numpy(places)]
        if self.readers is not None and self.reader is not None:
            _check_columns(table, (self.reader,))
            own = [self.readers.get(str(one), 0) for one in table.values(self.reader)[positions]]
            inputs.append(torch.tensor(own, dtype=torch.int64))
        return Inputs(tuple(inputs), (places > 0).sum(axis=1) > 0, torch.tensor(list(texts), dtype=torch.int64))

    def _coded(self, item: Sequence[str]) -> tuple[int, ...]:
        found = [self.words.get(word, self.vocabulary - 1) for word in item[: self.longest]]
        return (*found, *(0,) * (self.longest - len(found)))

    @property
    def vocabulary(self) -> int:
        """Return how many places words have: nothing, every known word, and one for all others."""
        return len(self.words) + 2

    def to_json(self) -> dict[str, Any]:
        """Return the coder for JSON."""
        readers = None if self.readers is None else list(self.readers)
        return {
            "kind": "texts",
            "column": self.column,
            "words": list(self.words),
            "longest": self.longest,
            "items": self.items,
            "readers": readers,
            "reader": self.reader,
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> TextCoder:
        """Return the coder that `to_json` wrote."""
        words = {str(word): place for place, word in enumerate(saved["words"], start=1)}
        readers = saved["readers"]
        whose = None if readers is None else {str(one): place for place, one in enumerate(readers, start=1)}
        return cls(saved["column"], words, int(saved["longest"]), int(saved["items"]), whose, saved["reader"])


def coder_from_json(saved: Mapping[str, Any]) -> FieldCoder | TextCoder:
    """Return the coder that was written."""
    if saved["kind"] == "fields":
        return FieldCoder.from_json(saved)
    if saved["kind"] == "texts":
        return TextCoder.from_json(saved)
    raise ConfigError("The saved inputs are of another version of colonnade. Train again.")


def split_texts(text: Any) -> list[list[str]]:
    """Return the words of each item of a row."""
    if text is None or text != text:
        return []
    return [item.lower().split() for item in str(text).split(SEPARATOR)]


def _check_columns(table: PartyTable, names: Sequence[str]) -> None:
    for name in names:
        if name not in table.names:
            raise TableError(f"{table.name} has no column '{name}'. {did_you_mean(name, table.names)}")
