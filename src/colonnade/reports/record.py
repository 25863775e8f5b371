"""Everything a report says about a run, before it is put into words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from colonnade.errors import RunFolderError, did_you_mean
from colonnade.metrics import Evaluation

__all__ = ["ColumnNote", "CrossedNote", "FindingNote", "LedgerNote", "MethodNote", "PartyNote", "RunRecord"]

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
    """One party and the shape of its table. An aggregator without a table has no rows and no columns."""

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

    @property
    def holds_data(self) -> bool:
        """Say whether this party brings columns or a label."""
        return self.features > 0 or self.label is not None or self.is_elsewhere


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
class FindingNote:
    """Something the method found out beside the model: a table for people, and the same numbers by name."""

    name: str
    title: str
    text: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One finished run.

    ``evaluations`` is keyed ``together`` (the federated model), ``alone`` (the same model with the label holder's
    columns only) and ``central`` (all columns in one place); the last two may be absent. ``curves`` has one dict for
    each logged point, with ``step``, ``epoch``, ``train_loss``, ``validation_loss`` and ``validation_metric`` where
    known. ``settings`` may be nested; the page flattens it. ``alone_party`` names whose columns the model alone used,
    and is needed only when more than one party holds a label. A ``stage`` other than training makes no model, so that
    all it has to say is in ``findings``.
    """

    name: str
    title: str
    method: MethodNote
    created: str
    launch: str
    version: str
    seed: int | None
    digest: str
    stage: str = "train"
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
    return _note(FindingNote, {**content, "columns": tuple(content.get("columns", ())), "rows": rows})


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
