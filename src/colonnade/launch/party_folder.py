"""One party's folder of one run, as docs/ref-run-folder.md shows it. Nothing in it contains another party's data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from colonnade.data import Kind, PartyTable, digest_with_lists
from colonnade.errors import CheckpointBroken, ConfigError, LedgerBroken, RunFolderError
from colonnade.ledger import Ledger
from colonnade.metrics import Evaluation, Gain
from colonnade.reports import FORMAT, Consent, PartyRun, check_format
from colonnade.session import (
    Alignment,
    Evaluate,
    Finding,
    Method,
    MetricsLog,
    ModelPart,
    PolicyRules,
    RunPlan,
    read_json,
    write_json,
)
from colonnade.settings import validated

__all__ = [
    "ELSEWHERE",
    "PARTY_FILES",
    "PartyFolder",
    "check_earlier",
    "earlier_folder",
    "earlier_folders",
    "next_prediction",
    "unchanged",
]

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
ELSEWHERE = "Choose another name in run.toml or another --folder, or add --overwrite to replace the earlier run."


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
    served: str = "together"
    label: dict[str, str | bool | int | float | None] = field(default_factory=dict)
    gains: dict[str, Gain] = field(default_factory=dict)
    policy: PolicyRules | None = None


@dataclass(frozen=True, kw_only=True)
class _Column:
    name: str
    kind: Kind
    missing: int
    distinct: int
    left_out: str = ""
    notes: list[str] = field(default_factory=list)


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
    dialect: dict[str, str] = field(default_factory=dict)
    partner_ids: dict[str, _PartnerId] = field(default_factory=dict)


# Of the outcome, what a PartyRun has under another name.
_OTHERWISE = ("shared_rows", "policy")


@contextlib.contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """Say of a run's files that they were changed, if they are not as they were written."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError):
        raise CheckpointBroken(
            f"The files of the run in {path} are incomplete or were changed. Restore them or run again."
        ) from None


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
            return _plan_from_json(dict(read_json(self.path / "plan.json")))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise CheckpointBroken(f"{self.path / 'plan.json'} was changed. Restore it or run again.") from None

    @property
    def format(self) -> int:
        """Return the form in which this folder was written."""
        return int(read_json(self.path / "plan.json").get("format", 1))

    @property
    def consent(self) -> Consent | None:
        """Return who agreed to what this party sends, where anybody was asked."""
        found = self._read("consent.json", None)
        return None if found is None else validated(Consent, found, "consent")

    def _read(self, name: str, missing: Any) -> Any:
        """Return what a file says that not every run has."""
        path = self.path / name
        return read_json(path) if path.exists() else missing

    def begin(self, plan: RunPlan, table: PartyTable) -> None:
        """Make the folder, or take up an interrupted run whose plan and table are unchanged."""
        from colonnade.training import described  # here, as it brings torch

        about = {"digest": digest_with_lists(table), **described(table)}
        is_new = not self.holds_run
        if not is_new:
            check_format(self.format, str(self.path))
            self._check_same(plan, about)
        try:
            # The plan makes a folder count as a run's, so it comes last.
            write_json(self.path / "table.json", about)
            rules = {"evaluate": vars(plan.evaluate), "alignment": vars(plan.alignment)}
            write_json(self.path / "plan.json", {"format": FORMAT, **vars(plan), **rules})
        except OSError:
            if is_new:
                # Half a beginning would count as something else, and no run could ever begin here again.
                for name in ("table.json", "table.json.part", "plan.json.part"):
                    (self.path / name).unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    self.path.rmdir()
            raise

    def keep(self, run: PartyRun) -> None:
        """Put a result where a crash cannot reach it."""
        if run.part is not None:
            # What was said of another model that lay here is not about this one.
            (self.path / "refusal.json").unlink(missing_ok=True)
            run.part.save(self.path / "model")
        if run.evaluations:
            found = {name: evaluation.to_json() for name, evaluation in run.evaluations.items()}
            write_json(self.path / "evaluation.json", found)
        if run.overlap is not None:
            write_json(self.path / "alignment.json", run.overlap)
        if run.findings:
            write_json(self.path / "findings.json", {"findings": [asdict(one) for one in run.findings]})
        for stage, reason in run.refusals.items():
            self.refuse(stage, reason)
        same = {one.name: getattr(run, one.name) for one in fields(_Outcome) if one.name not in _OTHERWISE}
        outcome = _Outcome(**same, shared_rows=run.table["shared_rows"], policy=run.rules)
        write_json(self.path / "outcome.json", asdict(outcome))

    def refuse(self, stage: str, reason: str) -> None:
        """Keep with the model why a stage found that it must not score rows; an empty text lifts that."""
        reasons = self._read("refusal.json", {}) | {stage: reason}
        path = self.path / "refusal.json"
        if any(reasons.values()):
            write_json(path, {one: text for one, text in reasons.items() if text})
        else:
            path.unlink(missing_ok=True)

    def load(self) -> PartyRun:
        """Read what a finished party has."""
        if not self.keeps_result:
            raise RunFolderError(
                f"{self.path} holds no finished run. If a run was interrupted, start it again with the same command."
            )
        with unchanged(self.path):
            return self._load()

    def _load(self) -> PartyRun:
        about: _Outcome = validated(_Outcome, read_json(self.path / "outcome.json"), "outcome")
        table: _Table = validated(_Table, read_json(self.path / "table.json"), "table")
        self.plan().role_of(about.party)
        same = {name: value for name, value in vars(about).items() if name not in _OTHERWISE}
        shape = {name: value for name, value in asdict(table).items() if name != "digest"}
        found = self._read("findings.json", {"findings": []})["findings"]
        return PartyRun(
            **same | {"rows": asdict(about.rows)},
            table={**shape, "shared_rows": about.shared_rows},
            ledger=Ledger.read(self.ledger),
            history=MetricsLog(self.path / "metrics.jsonl").lines,
            evaluations={name: Evaluation.from_json(one) for name, one in self._read("evaluation.json", {}).items()},
            part=ModelPart.load(self.path / "model") if (self.path / "model").exists() else None,
            overlap=self._read("alignment.json", None),
            findings=tuple(validated(Finding, one, "findings") for one in found),
            refusals={str(stage): str(reason) for stage, reason in self._read("refusal.json", {}).items()},
            consent=self.consent,
            rules=about.policy,
        )

    def _check_same(self, plan: RunPlan, about: dict[str, Any]) -> None:
        theirs, ours = self.plan().fields(), plan.fields()
        if theirs != ours:
            keys = sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key))
            # A JSON value of one of these is a TOML value.
            simple = [key for key in keys if theirs.get(key, "null")[0] in '"[0123456789-tf' and key != "run.roles"]
            tables = [(one.partition(".")[0], f"{one.partition('.')[2]} = {theirs[one]}") for one in simple]
            back = " and ".join(f"write {setting} in [{table}]" for table, setting in tables[:3])
            raise RunFolderError(
                f"{self.path} holds an interrupted run with other settings ({', '.join(keys)}). "
                f"To resume it, {back or 'restore them'}. {ELSEWHERE}"
            )
        kept = read_json(self.path / "table.json")
        if not isinstance(kept, dict) or kept.get("digest") != about["digest"]:
            raise RunFolderError(
                f"The table of '{self.path.name}' has changed since the run in {self.path} was interrupted. "
                f"Restore it to resume. {ELSEWHERE}"
            )


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


def _plan_from_json(document: dict[str, Any]) -> RunPlan:
    if document.pop("format", 1) > FORMAT:
        # What a newer version agreed on beside it is not known here; what is left names the run.
        document = {one.name: document[one.name] for one in fields(RunPlan) if one.name in document}
        for name, kind in (("evaluate", Evaluate), ("alignment", Alignment)):
            document[name] = {one.name: document[name][one.name] for one in fields(kind) if one.name in document[name]}
    agreed = {"evaluate": Evaluate(**document["evaluate"]), "alignment": Alignment(**document["alignment"])}
    roles = {role: tuple(parties) for role, parties in document["roles"].items()}
    return RunPlan(**{**document, **agreed, "roles": roles})


# The model of an earlier stage that another stage goes on from


def check_earlier(method: Method, plan: RunPlan, earlier: RunPlan | None) -> None:
    """Refuse to go on from a run that does not fit, or from none where one is needed."""
    wanted = method.stage(plan.stage).after
    if not wanted:
        if earlier is not None:
            raise ConfigError(f"The stage {plan.stage} begins from nothing; it does not go on from another run.")
        return
    stages = " or ".join(wanted)
    if earlier is None:
        raise ConfigError(f"The stage {plan.stage} goes on from a run of the stage {stages}. Pass it as after = ….")
    if earlier.method != plan.method or earlier.stage not in wanted:
        raise ConfigError(
            f"The stage {plan.stage} of {plan.method} goes on from its stage {stages}, not from the stage "
            f"{earlier.stage} of {earlier.method}."
        )


def earlier_folder(method: Method, plan: RunPlan, runs: Path, party: str, *, is_apart: bool) -> PartyFolder | None:
    """Return where a party keeps its part of the model to go on from, in a folder of runs.

    ``is_apart`` where the folder is this party's own, and not one that several parties share.
    """
    stages, role = method.stage(plan.stage).after, plan.role_of(party)
    # Who takes part in no stage that this one can go on from has nothing to bring.
    if plan.after is None or all(role not in method.stage(one).roles for one in stages):
        return None
    path = runs / plan.after
    folder = PartyFolder(path if is_apart else path / party)
    if not folder.keeps_result:
        raise RunFolderError(
            f"The stage {plan.stage} goes on from a finished run of the stage {' or '.join(stages)}, and there is none "
            f"in {folder.path}. Run that first, with the same run.toml, or name the run in [run] after = …."
        )
    check_earlier(method, plan, folder.plan())
    check_format(folder.format, str(folder.path))
    return folder


def earlier_folders(method: Method, plan: RunPlan, folder: Path) -> dict[str, PartyFolder]:
    """Return where all parties keep their parts of the model to go on from, where they lie side by side."""
    found = {party: earlier_folder(method, plan, folder.parent, party, is_apart=False) for party in plan.parties}
    return {party: one for party, one in found.items() if one is not None}
