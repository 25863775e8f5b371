"""The folder of a simulated run: one folder per party inside, as each would have it in its own building.

::

    runs/churn/
      run.toml                  the plan as given, where it came from a file
      simulation.json           when, how long, and the comparison no single party could make
      report.html
      bank/                     a party's run folder: nothing in it contains another party's data
        plan.json               every agreed setting, defaults written out
        table.json              the shape and digest of the party's own table
        ledger.jsonl            everything that crossed
        metrics.jsonl           losses by epoch
        checkpoints/  model/
        evaluation.json         at the label holder only
      predictions/0001/bank/    ledgers of later predictions
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.errors import (
    CheckpointBroken,
    ConfigError,
    LedgerBroken,
    PolicyRefused,
    RunFolderError,
    UsageError,
    did_you_mean,
)
from colonnade.ledger import Ledger
from colonnade.metrics import Evaluation
from colonnade.session import Evaluate, Holding, MetricsLog, ModelPart, RunPlan, read_json, write_json

if TYPE_CHECKING:
    from colonnade.launch.run import Run

__all__ = ["RunFolder"]

# The ceiling needs all parties' columns, so no party's own folder may hold it.
_NOT_A_PARTYS = ("central",)

# What a run folder holds beside the parties' folders.
_OWN = ("run.toml", "simulation.json", "report.html", "predictions")
_ASIDE = ".earlier"
_ELSEWHERE = "Choose another name in run.toml, another --folder, or --overwrite the earlier run."


class RunFolder:
    """Where a simulated run keeps its things."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def party(self, name: str) -> Path:
        """Return a party's own run folder."""
        return self.path / name

    def begin(self, plan: RunPlan, holdings: Mapping[str, Holding]) -> None:
        """Make the folders, or take up an interrupted run whose plan and tables are unchanged."""
        taken = sorted(set(plan.parties) & set(_OWN))
        if taken:
            raise ConfigError(f"A run folder has a '{taken[0]}' of its own, so no party can be called that. Rename it.")
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for party, holding in holdings.items():
            folder = self.party(party)
            about = {"digest": holding.table.digest(), **holding.table.describe(), "shared_rows": len(holding.aligned)}
            if (folder / "plan.json").exists():
                self._check_same(folder, plan, about)
            # The plan makes a folder count as a run's, so it comes last.
            write_json(folder / "table.json", about)
            write_json(folder / "plan.json", plan_to_json(plan))

    def finish(self, run: Run) -> None:
        """Keep model parts, evaluations and the facts of the simulation."""
        for party, part in run.parts.items():
            part.save(self.party(party) / "model")
        (lead,) = run.plan.roles[run.method.lead]
        found = {name: evaluation.to_json() for name, evaluation in run.evaluations.items()}
        own = {name: evaluation for name, evaluation in found.items() if name not in _NOT_A_PARTYS}
        write_json(self.party(lead) / "evaluation.json", own)
        about = {
            "launch": run.launch,
            "started": run.started,
            "seconds": run.seconds,
            "alignment": run.alignment,
            "rows": run.rows,
            "parties": list(run.plan.parties),
            # A resumed ledger may hold more than one closing; this says which was the last.
            "heads": {party: ledger.head for party, ledger in run.ledgers.items()},
            "evaluations": {name: evaluation for name, evaluation in found.items() if name in _NOT_A_PARTYS},
        }
        write_json(self.path / "simulation.json", about)

    def check_place(self, *, overwrite: bool) -> None:
        """Refuse a place that cannot take a run, before any work is done: a file, other things, a finished run."""
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError(f"{self.path} is a file, so no run can be kept there. Choose another --folder.")
        if self.path.is_dir() and any(self.path.iterdir()) and not self._party_folders():
            raise RunFolderError(
                f"{self.path} holds other things and no run, so nothing will be written or deleted there. "
                "Choose another --folder."
            )
        if not overwrite:
            self._refuse_finished()

    @contextmanager
    def replacing(self, *, overwrite: bool) -> Iterator[None]:
        """Put an earlier run aside while a new one is made; delete it at the end, or bring it back.

        A new run that is refused for a setting, a table or a policy, or cannot be written, before its first checkpoint,
        leaves no trace.
        Only what belongs to a run is ever moved or deleted.
        """
        is_new = overwrite or not self._party_folders()
        aside = self.path / _ASIDE
        if overwrite:
            shutil.rmtree(aside, ignore_errors=True)
            for part in self._parts():
                aside.mkdir(exist_ok=True)
                part.rename(aside / part.name)
        try:
            yield
        except (UsageError, PolicyRefused, OSError):
            if is_new and not any((folder / "checkpoints").exists() for folder in self._party_folders()):
                self._delete_parts()
                for part in aside.iterdir() if aside.is_dir() else ():
                    part.rename(self.path / part.name)
            raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)
            if self.path.is_dir() and not any(self.path.iterdir()):
                self.path.rmdir()

    def discard(self) -> None:
        """Delete an earlier run; leave everything that is not part of one, and refuse a folder that holds none."""
        if not self.path.exists():
            return
        self.check_place(overwrite=True)
        self._delete_parts()
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def earlier_runs(self, party: str) -> int:
        """Count the other runs of this party in the same place, for the policy's limit."""
        if not self.path.parent.is_dir():
            return 0
        return sum((run / party / "ledger.jsonl").exists() for run in self.path.parent.iterdir() if run != self.path)

    def next_prediction(self) -> Path:
        """Return a fresh folder for the ledgers of one prediction."""
        base = self.path / "predictions"
        taken = [int(child.name) for child in base.iterdir() if child.name.isdigit()] if base.is_dir() else []
        return base / f"{max(taken, default=0) + 1:04d}"

    def load(self) -> dict[str, Any]:
        """Read everything a `Run` is made of."""
        about_path = self.path / "simulation.json"
        self._check_exists()
        if not about_path.exists():
            raise RunFolderError(
                f"{self.path} holds no finished run. If a run was interrupted, start it again with the same command."
            )
        try:
            return self._load(read_json(about_path))
        except (KeyError, TypeError, ValueError, AttributeError, ConfigError):
            raise CheckpointBroken(
                f"The files of the run in {self.path} are incomplete or were changed. Restore them or run again."
            ) from None

    def _load(self, about: dict[str, Any]) -> dict[str, Any]:
        parties = about["parties"]
        plan = plan_from_json(read_json(self.party(parties[0]) / "plan.json"))
        if tuple(parties) != plan.parties:
            raise ValueError("parties")
        evaluations = dict(about["evaluations"])
        for party in parties:
            path = self.party(party) / "evaluation.json"
            evaluations |= read_json(path) if path.exists() else {}
        order = ("together", "alone", "central")
        return {
            "plan": plan,
            "started": about["started"],
            "seconds": about["seconds"],
            "launch": about["launch"],
            "alignment": about["alignment"],
            "rows": about["rows"],
            "tables": {party: read_json(self.party(party) / "table.json") for party in parties},
            "evaluations": {name: Evaluation.from_json(evaluations[name]) for name in order if name in evaluations},
            "history": {party: MetricsLog(self.party(party) / "metrics.jsonl").lines for party in parties},
            "ledgers": {party: Ledger.read(self.party(party) / "ledger.jsonl") for party in parties},
            "parts": {party: ModelPart.load(self.party(party) / "model") for party in parties},
            "folder": self.path,
        }

    def ledgers(self) -> dict[str, Ledger]:
        """Return the ledgers of all parties in this folder, finished or not; a missing one is a broken one."""
        self._check_exists()
        found = {path.parent.name: Ledger.read(path) for path in sorted(self.path.glob("*/ledger.jsonl"))}
        if (self.path / "ledger.jsonl").exists():
            found = {self.path.name: Ledger.read(self.path / "ledger.jsonl")}
        for folder in self._party_folders():
            if folder.name not in found:
                raise LedgerBroken(
                    f"The ledger of '{folder.name}' is missing from {folder}. Restore it, or do not rely on this run."
                )
        heads = read_json(self.path / "simulation.json")["heads"] if (self.path / "simulation.json").exists() else {}
        for party, head in heads.items():
            if party not in found:
                raise LedgerBroken(f"The ledger of '{party}' is missing from {self.path}. Do not rely on this run.")
            found[party].verify()
            if found[party].head != head:
                raise LedgerBroken(
                    f"The ledger of '{party}' in {self.path} is not the one the run ended with. It was cut off at an "
                    "earlier end or replaced; do not rely on this run's report."
                )
        if not found:
            raise RunFolderError(f"{self.path} holds no ledgers. Give the folder of one run, such as runs/churn.")
        return found

    def _check_exists(self) -> None:
        if self.path.is_dir():
            return
        if self.path.exists():
            raise RunFolderError(f"{self.path} is a file. Give the folder of a run, such as runs/churn.")
        above = self.path.parent
        near = [one.name for one in above.iterdir() if RunFolder(one)._party_folders()] if above.is_dir() else []
        hint = did_you_mean(self.path.name, near) if near else "Runs lie in 'runs/' beside run.toml by default."
        raise RunFolderError(f"There is no run folder {self.path}. {hint}")

    def _party_folders(self) -> list[Path]:
        """Return the folders of parties, known by a plan that can be read."""
        children = sorted(self.path.iterdir()) if self.path.is_dir() else []
        return [child for child in children if _is_plan(child / "plan.json")]

    def _parts(self) -> list[Path]:
        own = [self.path / name for name in _OWN if (self.path / name).exists()]
        return [*own, *self._party_folders()] if self._party_folders() else []

    def _delete_parts(self) -> None:
        for part in self._parts():
            shutil.rmtree(part) if part.is_dir() and not part.is_symlink() else part.unlink()

    def _refuse_finished(self) -> None:
        # The last file to be written; a closed ledger alone is not enough, the comparison comes after it.
        if (self.path / "simulation.json").exists():
            raise RunFolderError(f"{self.path} holds a finished run already. {_ELSEWHERE}")

    def _check_same(self, folder: Path, plan: RunPlan, about: dict[str, Any]) -> None:
        self._refuse_finished()
        theirs, ours = read_json(folder / "plan.json"), plan_to_json(plan)
        if theirs != ours:
            keys = sorted(
                key for key, value in plan_from_json(theirs).fields().items() if plan.fields().get(key) != value
            )
            raise RunFolderError(
                f"{self.path} holds an interrupted run with other settings ({', '.join(keys) or 'a new one'}). "
                f"Restore them to resume it. {_ELSEWHERE}"
            )
        if read_json(folder / "table.json")["digest"] != about["digest"]:
            raise RunFolderError(
                f"The table of '{folder.name}' has changed since the run in {self.path} was interrupted. "
                f"Restore it to resume. {_ELSEWHERE}"
            )


def _is_plan(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        plan_from_json(read_json(path))
    except (CheckpointBroken, ConfigError, KeyError, TypeError, AttributeError):
        return False
    return True


def plan_to_json(plan: RunPlan) -> dict[str, Any]:
    """Return a plan as JSON values."""
    return {
        "name": plan.name,
        "method": plan.method,
        "roles": {role: list(parties) for role, parties in plan.roles.items()},
        "seed": plan.seed,
        "config": dict(plan.config),
        "evaluate": vars(plan.evaluate),
        "alignment": plan.alignment,
        "stage": plan.stage,
    }


def plan_from_json(document: dict[str, Any]) -> RunPlan:
    """Rebuild a plan."""
    plan = RunPlan(**{**document, "evaluate": Evaluate(**document["evaluate"])})
    return replace(plan, roles={role: tuple(parties) for role, parties in plan.roles.items()})
