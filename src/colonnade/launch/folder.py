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
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.errors import LedgerUnfinished, RunFolderError
from colonnade.ledger import Ledger
from colonnade.metrics import Evaluation
from colonnade.session import Evaluate, Holding, MetricsLog, ModelPart, RunPlan, read_json, write_json

if TYPE_CHECKING:
    from colonnade.launch.run import Run

__all__ = ["RunFolder"]

# The ceiling needs all parties' columns, so no party's own folder may hold it.
_NOT_A_PARTYS = ("central",)


class RunFolder:
    """Where a simulated run keeps its things."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def party(self, name: str) -> Path:
        """Return a party's own run folder."""
        return self.path / name

    def begin(self, plan: RunPlan, holdings: Mapping[str, Holding]) -> None:
        """Make the folders, or take up an interrupted run whose plan and tables are unchanged."""
        for party, holding in holdings.items():
            folder = self.party(party)
            about = {"digest": holding.table.digest(), **holding.table.describe(), "shared_rows": len(holding.aligned)}
            if (folder / "plan.json").exists():
                self._check_same(folder, plan, about)
            write_json(folder / "plan.json", plan_to_json(plan))
            write_json(folder / "table.json", about)

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
            "evaluations": {name: evaluation for name, evaluation in found.items() if name in _NOT_A_PARTYS},
        }
        write_json(self.path / "simulation.json", about)

    def discard(self) -> None:
        """Delete an earlier run of this name; refuse to delete anything that is not one."""
        if not self.path.exists():
            return
        if not any((child / "plan.json").exists() for child in self.path.iterdir() if child.is_dir()):
            raise RunFolderError(f"{self.path} is not a run folder, so it will not be overwritten. Choose another one.")
        shutil.rmtree(self.path)

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
        if not self.path.is_dir():
            raise RunFolderError(f"There is no run folder {self.path}. Check the path; runs lie in 'runs/' by default.")
        if not about_path.exists():
            raise RunFolderError(
                f"{self.path} holds no finished run. If a run was interrupted, start it again with the same command."
            )
        about = read_json(about_path)
        parties = about["parties"]
        plan = plan_from_json(read_json(self.party(parties[0]) / "plan.json"))
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
        """Return the ledgers of all parties in this folder, finished or not."""
        if not self.path.is_dir():
            raise RunFolderError(f"There is no run folder {self.path}. Check the path; runs lie in 'runs/' by default.")
        found = {path.parent.name: Ledger.read(path) for path in sorted(self.path.glob("*/ledger.jsonl"))}
        if not found:
            raise RunFolderError(f"{self.path} holds no ledgers. Give the folder of one run, such as runs/churn.")
        return found

    def _check_same(self, folder: Path, plan: RunPlan, about: dict[str, Any]) -> None:
        elsewhere = "Choose another name in run.toml, another --folder, or --overwrite the earlier run."
        try:
            Ledger.read(folder / "ledger.jsonl").verify()
        except (LedgerUnfinished, RunFolderError):
            pass
        else:
            raise RunFolderError(f"{self.path} holds a finished run already. {elsewhere}")
        theirs, ours = read_json(folder / "plan.json"), plan_to_json(plan)
        if theirs != ours:
            keys = sorted(
                key for key, value in plan_from_json(theirs).fields().items() if plan.fields().get(key) != value
            )
            raise RunFolderError(
                f"{self.path} holds an interrupted run with other settings ({', '.join(keys) or 'a new one'}). "
                f"Restore them to resume it. {elsewhere}"
            )
        if read_json(folder / "table.json")["digest"] != about["digest"]:
            raise RunFolderError(
                f"The table of '{folder.name}' has changed since the run in {self.path} was interrupted. "
                f"Restore it to resume. {elsewhere}"
            )


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
