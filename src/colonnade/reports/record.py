"""Everything a report says about a run, before it is put into words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from typing import Any, TypeVar

from colonnade.errors import RunFolderError, did_you_mean
from colonnade.metrics import Evaluation

__all__ = [
    "ColumnNote",
    "CrossedNote",
    "FigureNote",
    "FindingNote",
    "LedgerNote",
    "MethodNote",
    "PartyNote",
    "RunRecord",
]

Note = TypeVar("Note")


@dataclass(frozen=True, kw_only=True)
class MethodNote:
    """The method that was run. ``roles`` maps a role to a sentence on what its holder has and does."""

    name: str
    title: str
    citation: str = ""
    roles: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ColumnNote:
    """One column of a party's table: counts only, never a value."""

    name: str
    kind: str
    missing: int | None = None
    distinct: int | None = None


@dataclass(frozen=True, kw_only=True)
class PartyNote:
    """One party and the shape of its table. A party without one has no rows and no columns."""

    name: str
    role: str
    rows: int | None = None
    shared_rows: int | None = None
    features: int = 0
    columns: tuple[ColumnNote, ...] = ()
    label: str | None = None
    encoded_width: int | None = None
    coefficients: tuple[tuple[str, tuple[float, ...]], ...] = ()
    """For a linear model: each encoded column with its coefficients, one per class where there are several."""
    is_elsewhere: bool = False
    """Whether this party is another organisation, whose table nobody here has seen."""
    has_table: bool = True
    """Whether its role brings a table at all."""

    @property
    def holds_data(self) -> bool:
        """Say whether this party brings columns or a label."""
        return self.has_table and (self.features > 0 or self.label is not None or self.is_elsewhere)


@dataclass(frozen=True, kw_only=True)
class CrossedNote:
    """All messages of one declaration between one sender and one receiver, as the ledgers counted them.

    ``shapes`` are the distinct shapes of what was carried, as text: ``"64 × 8"``.
    """

    message: str
    sender: str
    receiver: str
    protection: str
    paper_step: str = ""
    reveals: str = ""
    count: int = 0
    bytes: int = 0
    shapes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LedgerNote:
    """The state of one party's ledger when the report was made."""

    party: str
    entries: int
    head: str
    verified: bool
    agrees_with: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FigureNote:
    """Something to draw beside a finding: points, a trade-off, bars, a beeswarm or pictures, by values that fit."""

    kind: str
    title: str
    values: dict[str, Any]

    def __post_init__(self) -> None:
        checks = {
            "scatter": _is_scatter,
            "trade_off": _is_trade_off,
            "bars": _is_bars,
            "beeswarm": _is_beeswarm,
            "pictures": _are_pictures,
        }
        if self.kind not in checks:
            raise RunFolderError(
                f"A report cannot draw a figure of the kind '{self.kind}'. Known: {', '.join(checks)}."
            )
        try:
            is_sound = checks[self.kind](self.values)
        except (KeyError, TypeError, ValueError, AttributeError):
            is_sound = False
        if not is_sound:
            raise RunFolderError(f"The values of the figure '{self.title}' do not fit its kind, {self.kind}.")


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(
        isinstance(one, int | float) and not isinstance(one, bool) and isfinite(one) for one in values
    )


def _is_scatter(values: Mapping[str, Any]) -> bool:
    series = values["series"]
    return 0 < len(series) <= 3 and all(
        _are_numbers(one["x"]) and _are_numbers(one["y"]) and len(one["x"]) == len(one["y"]) and "name" in one
        for one in series
    )


def _is_trade_off(values: Mapping[str, Any]) -> bool:
    marks = [len(one["marks"]) == len(one["x"]) for one in values["series"]]
    return _is_scatter(values) and all(marks) and isinstance(values["across"], str) and isinstance(values["up"], str)


def _is_bars(values: Mapping[str, Any]) -> bool:
    return len(values["names"]) == len(values["lengths"]) and _are_numbers(values["lengths"])


def _is_beeswarm(values: Mapping[str, Any]) -> bool:
    rows = list(zip(values["names"], values["values"], values["levels"], strict=True))
    return all(_are_numbers(one) and len(one) == len(levels) for _, one, levels in rows)


# Pictures are small: a page holds every pixel of them.
_MOST_PICTURES, _LONGEST_SIDE = 12, 256


def _are_pictures(values: Mapping[str, Any]) -> bool:
    channels, height, width = values["shape"]
    count, rows = len(values["captions"]), values["rows"]
    fits = channels in (1, 3) and 1 <= height <= _LONGEST_SIDE and 1 <= width <= _LONGEST_SIDE
    if not (fits and 0 < count <= _MOST_PICTURES and 0 < len(rows) <= _MOST_PICTURES):
        return False
    return all(
        "name" in row
        and len(row["pictures"]) == count
        and all(_is_picture(one, channels * height * width) for one in row["pictures"])
        for row in rows
    )


def _is_picture(pixels: Any, size: int) -> bool:
    return len(pixels) == size and all(
        pixel is None or (isinstance(pixel, int) and not isinstance(pixel, bool) and 0 <= pixel <= 255)
        for pixel in pixels
    )


@dataclass(frozen=True, kw_only=True)
class FindingNote:
    """Something the method found out beside the model: a table for people, and the same numbers by name."""

    name: str
    title: str
    text: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    values: dict[str, Any] = field(default_factory=dict)
    figures: tuple[FigureNote, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One finished run.

    ``evaluations`` is keyed ``together`` (the federated model), ``alone`` (the same model with the label holder's
    columns only) and ``central`` (all columns in one place); the last two may be absent. ``curves`` has one dict for
    each logged point, with ``step``, ``epoch``, ``train_loss``, ``validation_loss`` and ``validation_metric`` where
    known. ``settings`` may be nested; the page flattens it. ``alone_party`` names whose columns the model alone used,
    and is needed only when more than one party holds a label. Of a ``stage`` that makes no model, all there is to say
    is in ``findings``. A point of ``curves`` may name its ``part``, where training has several, and ``chosen_epoch`` is
    for training that has one.
    """

    name: str
    title: str
    method: MethodNote
    created: str
    launch: str
    version: str
    seed: int | None
    digest: str
    other_versions: dict[str, str] = field(default_factory=dict)
    """Partners that ran another version, and which."""
    stage: str = "train"
    makes_model: bool = True
    duration_seconds: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    alignment: str = ""
    marks: tuple[str, ...] = ()
    parties: tuple[PartyNote, ...] = ()
    rows: dict[str, int] = field(default_factory=dict)
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    alone_party: str | None = None
    curves: tuple[dict[str, Any], ...] = ()
    chosen_epoch: int | None = None
    findings: tuple[FindingNote, ...] = ()
    crossed: tuple[CrossedNote, ...] = ()
    ledgers: tuple[LedgerNote, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the content as plain dicts and lists, sharing nothing with this object."""
        content = asdict(self)
        content["evaluations"] = {name: value.to_json() for name, value in self.evaluations.items()}
        copied: dict[str, Any] = json.loads(json.dumps(content))
        return copied

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> RunRecord:
        """Build a record from what :meth:`to_json` returned, or from equal content written by hand."""
        values = dict(content)
        values["method"] = _note(MethodNote, values.get("method", {}))
        values["parties"] = tuple(_party(party) for party in values.get("parties", ()))
        values["evaluations"] = {
            name: value if isinstance(value, Evaluation) else Evaluation.from_json(value)
            for name, value in values.get("evaluations", {}).items()
        }
        values["curves"] = tuple(dict(point) for point in values.get("curves", ()))
        values["marks"] = tuple(values.get("marks", ()))
        values["findings"] = tuple(_finding(one) for one in values.get("findings", ()))
        values["crossed"] = tuple(_crossed(entry) for entry in values.get("crossed", ()))
        values["ledgers"] = tuple(
            _note(LedgerNote, {**ledger, "agrees_with": tuple(ledger.get("agrees_with", ()))})
            for ledger in values.get("ledgers", ())
        )
        return _note(cls, values)


def _party(content: Mapping[str, Any]) -> PartyNote:
    columns = tuple(_note(ColumnNote, column) for column in content.get("columns", ()))
    coefficients = tuple((name, tuple(values)) for name, values in content.get("coefficients", ()))
    return _note(PartyNote, {**content, "columns": columns, "coefficients": coefficients})


def _finding(content: Mapping[str, Any]) -> FindingNote:
    rows = tuple(tuple(row) for row in content.get("rows", ()))
    figures = tuple(_note(FigureNote, one) for one in content.get("figures", ()))
    columns = tuple(content.get("columns", ()))
    return _note(FindingNote, {**content, "columns": columns, "rows": rows, "figures": figures})


def _crossed(content: Mapping[str, Any]) -> CrossedNote:
    shapes = content.get("shapes", ())
    if isinstance(shapes, str):
        shapes = (shapes,) if shapes else ()
    written = (shape if isinstance(shape, str) else " × ".join(str(length) for length in shape) for shape in shapes)
    return _note(CrossedNote, {**content, "shapes": tuple(written)})


def _note(kind: type[Note], content: Mapping[str, Any]) -> Note:
    known = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    for name in content:
        if name not in known:
            raise RunFolderError(f"A report's {kind.__name__} has no '{name}'. {did_you_mean(name, known)}")
    try:
        return kind(**content)
    except TypeError as problem:
        raise RunFolderError(f"A report's {kind.__name__} is incomplete: {problem}.") from problem
