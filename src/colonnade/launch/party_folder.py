"""One party's folder of one run. Nothing in it contains another party's data.

::

    runs/churn/
      run.toml            the agreement, as given
      plan.json           every agreed setting, defaults written out
      table.json          the shape and digest of the party's own table
      ledger.jsonl        everything that crossed
      metrics.jsonl       losses by epoch
      checkpoints/        where an interrupted run goes on
      secret.key          where noise comes from, if a method adds any
      model/              this party's part of the model
      evaluation.json     at the label holder only
      findings.json       what the method found out beside the model, such as validations
      refusal.json        why the model must not score rows, where this run or a later one found that
      alignment.json      where the run was an alignment only: what this party learnt
      outcome.json        rows, duration; written when the party needs no one any more
      report.html
      predictions/0001/   ledgers of later predictions
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from colonnade.alignment import Overlap
from colonnade.data import Kind, PartyTable, linked_rows, matched_rows
from colonnade.errors import CheckpointBroken, ConfigError, LedgerBroken, RunFolderError
from colonnade.launch.settings import validated
from colonnade.ledger import Ledger
from colonnade.metrics import Evaluation
from colonnade.session import Alignment, Evaluate, Finding, MetricsLog, ModelPart, RunPlan, read_json, write_json

__all__ = ["PARTY_FILES", "PartyEnd", "PartyFolder", "PartyRecord", "next_prediction", "overlap_to_json"]

PARTY_FILES = (
    "run.toml",
    "report.html",
    "plan.json",
    "table.json",
    "ledger.jsonl",
    "metrics.jsonl",
    "checkpoints",
    "secret.key",
    "model",
    "evaluation.json",
    "findings.json",
    "refusal.json",
    "outcome.json",
    "status.json",
    "consent.json",
    "predictions",
    "alignment.json",
    "alignment",
)
_ELSEWHERE = "Choose another name in run.toml, another --folder, or --overwrite the earlier run."


@dataclass(frozen=True)
class PartyRecord:
    """What one party keeps of a run."""

    party: str
    started: str
    seconds: float
    alignment: str
    rows: dict[str, int]
    table: dict[str, Any]
    """The shape of the party's table, with the number of its rows that are shared."""
    evaluations: dict[str, Evaluation]
    part: ModelPart | None
    overlap: dict[str, Any] | None = None
    """What this party learnt about shared rows, where that was all the run was for."""
    findings: tuple[Finding, ...] = ()
    """What the method found out beside the model."""
    refusals: dict[str, str] = field(default_factory=dict)
    """Why the model must not score rows, by the stage that found it; empty texts lift what that stage said before."""


@dataclass(frozen=True)
class PartyEnd:
    """What one party has when a run is over: what it keeps, and what was written down on the way."""

    record: PartyRecord
    ledger: Ledger
    history: list[dict[str, Any]]


# What the files of a finished party say; who edits them by hand gets an error, not a strange report.


@dataclass(frozen=True, kw_only=True)
class _Rows:
    train: int
    validation: int
    test: int


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    party: str
    started: str
    seconds: float
    alignment: str
    rows: _Rows
    shared_rows: int


@dataclass(frozen=True, kw_only=True)
class _Column:
    name: str
    kind: Kind
    missing: int
    distinct: int


@dataclass(frozen=True, kw_only=True)
class _PartnerId:
    id: str
    missing: int


@dataclass(frozen=True, kw_only=True)
class _Table:
    digest: str
    name: str
    rows: int
    id: str
    label: str | None
    columns: list[_Column]
    partner_ids: dict[str, _PartnerId] = field(default_factory=dict)


class PartyFolder:
    """Where one party keeps its things of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def ledger(self) -> Path:
        """Return where the ledger lies."""
        return self.path / "ledger.jsonl"

    @property
    def queries(self) -> Path:
        """Return the file that says how many rows were scored for whom, where the party has no home."""
        return self.path / "predictions" / "queries.jsonl"

    @property
    def holds_run(self) -> bool:
        """Tell whether a run was begun here: known by a plan that can be read."""
        try:
            return (self.path / "plan.json").is_file() and bool(self.plan())
        except (CheckpointBroken, ConfigError):
            return False

    @property
    def is_finished(self) -> bool:
        """Tell whether this party is through: its result is kept and its ledger closed."""
        if not self.keeps_result:
            return False  # before the ledger, which may be long
        try:
            Ledger.read(self.ledger).verify()
        except (LedgerBroken, RunFolderError):
            return False
        return True

    @property
    def keeps_result(self) -> bool:
        """Tell whether this party's result is on disk, whatever became of the others."""
        return (self.path / "outcome.json").exists()

    def plan(self) -> RunPlan:
        """Return the agreed plan."""
        try:
            return _plan_from_json(read_json(self.path / "plan.json"))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise CheckpointBroken(f"{self.path / 'plan.json'} was changed. Restore it or run again.") from None

    def begin(self, plan: RunPlan, table: PartyTable) -> None:
        """Make the folder, or take up an interrupted run whose plan and table are unchanged."""
        about = {"digest": _digest(table), **table.describe()}
        is_new = not self.holds_run
        if not is_new:
            self._check_same(plan, about)
        try:
            # The plan makes a folder count as a run's, so it comes last.
            write_json(self.path / "table.json", about)
            write_json(self.path / "plan.json", _plan_to_json(plan))
        except OSError:
            if is_new:
                # Half a beginning would count as something else, and no run could ever begin here again.
                for name in ("table.json", "table.json.part", "plan.json.part"):
                    (self.path / name).unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    self.path.rmdir()
            raise

    def keep(self, record: PartyRecord) -> None:
        """Put a result where a crash cannot reach it."""
        if record.part is not None:
            # What was said of another model that lay here is not about this one.
            (self.path / "refusal.json").unlink(missing_ok=True)
            record.part.save(self.path / "model")
        if record.evaluations:
            found = {name: evaluation.to_json() for name, evaluation in record.evaluations.items()}
            write_json(self.path / "evaluation.json", found)
        if record.overlap is not None:
            write_json(self.path / "alignment.json", record.overlap)
        if record.findings:
            write_json(self.path / "findings.json", {"findings": [asdict(one) for one in record.findings]})
        for stage, reason in record.refusals.items():
            self.refuse(stage, reason)
        write_json(
            self.path / "outcome.json",
            {
                "party": record.party,
                "started": record.started,
                "seconds": record.seconds,
                "alignment": record.alignment,
                "rows": record.rows,
                "shared_rows": record.table["shared_rows"],
            },
        )

    def refuse(self, stage: str, reason: str) -> None:
        """Keep with the model why a stage found that it must not score rows; an empty text lifts that."""
        reasons = self._refusals() | {stage: reason}
        path = self.path / "refusal.json"
        if any(reasons.values()):
            write_json(path, {one: text for one, text in reasons.items() if text})
        else:
            path.unlink(missing_ok=True)

    def load(self) -> PartyEnd:
        """Read what a finished party has."""
        if not self.keeps_result:
            raise RunFolderError(
                f"{self.path} holds no finished run. If a run was interrupted, start it again with the same command."
            )
        try:
            return self._load()
        except (KeyError, TypeError, ValueError, AttributeError, ConfigError):
            raise CheckpointBroken(
                f"The files of the run in {self.path} are incomplete or were changed. Restore them or run again."
            ) from None

    def _load(self) -> PartyEnd:
        about: _Outcome = validated(_Outcome, read_json(self.path / "outcome.json"), "outcome")
        table: _Table = validated(_Table, read_json(self.path / "table.json"), "table")
        self.plan().role_of(about.party)
        evaluation = self.path / "evaluation.json"
        found = read_json(evaluation) if evaluation.exists() else {}
        overlap = self.path / "alignment.json"
        shape = {name: value for name, value in asdict(table).items() if name != "digest"}
        record = PartyRecord(
            party=about.party,
            started=about.started,
            seconds=about.seconds,
            alignment=about.alignment,
            rows=asdict(about.rows),
            table={**shape, "shared_rows": about.shared_rows},
            evaluations={name: Evaluation.from_json(one) for name, one in found.items()},
            part=ModelPart.load(self.path / "model") if (self.path / "model").exists() else None,
            overlap=read_json(overlap) if overlap.exists() else None,
            findings=self._findings(),
            refusals=self._refusals(),
        )
        return PartyEnd(record, Ledger.read(self.ledger), MetricsLog(self.path / "metrics.jsonl").lines)

    def _findings(self) -> tuple[Finding, ...]:
        path = self.path / "findings.json"
        found = read_json(path)["findings"] if path.exists() else []
        return tuple(validated(Finding, one, "findings") for one in found)

    def _refusals(self) -> dict[str, str]:
        path = self.path / "refusal.json"
        return {str(stage): str(reason) for stage, reason in read_json(path).items()} if path.exists() else {}

    def _check_same(self, plan: RunPlan, about: dict[str, Any]) -> None:
        theirs, ours = self.plan().fields(), plan.fields()
        if theirs != ours:
            keys = sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key))
            raise RunFolderError(
                f"{self.path} holds an interrupted run with other settings ({', '.join(keys)}). "
                f"Restore them to resume it. {_ELSEWHERE}"
            )
        kept = read_json(self.path / "table.json")
        if not isinstance(kept, dict) or kept.get("digest") != about["digest"]:
            raise RunFolderError(
                f"The table of '{self.path.name}' has changed since the run in {self.path} was interrupted. "
                f"Restore it to resume. {_ELSEWHERE}"
            )


def overlap_to_json(overlap: Overlap) -> dict[str, Any]:
    """Return what a party learnt, as JSON values; None where it is not told."""
    return {
        "rows": overlap.rows,
        "partners": {partner: asdict(one) for partner, one in overlap.partners.items()},
        "shared": overlap.shared,
        "rest": None if overlap.shared is None else overlap.rows - overlap.shared,
        "reused": overlap.is_reused,
    }


def _digest(table: PartyTable) -> str:
    """Return what stands for a table and, where it has them, for its lists of matched rows and of links."""
    if table.matches is None and table.links is None:
        return table.digest()
    digest = hashlib.sha256(table.digest().encode())
    if table.matches is not None:
        matched = matched_rows(table, table.matches)
        digest.update(matched.positions.astype("<i8").tobytes())
        for key in matched.keys:
            digest.update(len(key).to_bytes(4, "little") + key)
    if table.links is not None:
        digest.update(b"links" + linked_rows(table, table.links).astype("<i8").tobytes())
    return digest.hexdigest()


def next_prediction(run: Path) -> Path:
    """Return a fresh folder for the ledgers of one prediction."""
    base = run / "predictions"
    base.mkdir(mode=0o700, exist_ok=True)
    while True:
        taken = [int(child.name) for child in base.iterdir() if child.name.isdigit()]
        fresh = base / f"{max(taken, default=0) + 1:04d}"
        try:
            fresh.mkdir(mode=0o700)
        except FileExistsError:
            continue  # another prediction began at the same moment
        return fresh


def _plan_to_json(plan: RunPlan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "method": plan.method,
        "roles": {role: list(parties) for role, parties in plan.roles.items()},
        "seed": plan.seed,
        "config": dict(plan.config),
        "evaluate": vars(plan.evaluate),
        "alignment": vars(plan.alignment),
        "stage": plan.stage,
        "after": plan.after,
    }


def _plan_from_json(document: dict[str, Any]) -> RunPlan:
    agreed = {"evaluate": Evaluate(**document["evaluate"]), "alignment": Alignment(**document["alignment"])}
    plan = RunPlan(**{**document, **agreed})
    return replace(plan, roles={role: tuple(parties) for role, parties in plan.roles.items()})
