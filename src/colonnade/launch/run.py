"""A finished run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.data import PartyTable
from colonnade.engine import Engine, opened
from colonnade.errors import RunFolderError
from colonnade.launch.party_folder import PartyEnd, PartyRecord
from colonnade.launch.predict import predict_in_threads
from colonnade.ledger import Ledger, compare
from colonnade.methods import method_named
from colonnade.metrics import Evaluation
from colonnade.session import Finding, Method, ModelPart, Party, RunPlan, parties_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Run"]


@dataclass(frozen=True)
class Run:
    """What is left when a run is over: numbers, ledgers, and every party's part of the model.

    In a simulation all parties' things are here, side by side; in their folders they stay apart.
    """

    plan: RunPlan
    method: Method
    started: str
    seconds: float
    launch: str
    alignment: str
    rows: dict[str, int]
    tables: dict[str, dict[str, Any]]
    evaluations: dict[str, Evaluation]
    history: dict[str, list[dict[str, Any]]]
    ledgers: dict[str, Ledger]
    parts: dict[str, ModelPart]
    findings: dict[str, Finding] = field(default_factory=dict)
    """What the method found out beside the model, by name."""
    refusals: dict[str, dict[str, str]] = field(default_factory=dict)
    """Why the model must not score rows, by the party that says so and the stage that found it."""
    folder: Path | None = None
    views: dict[str, list[tuple[str, bytes]]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        plan: RunPlan,
        ends: Mapping[str, PartyEnd],
        *,
        launch: str,
        started: str | None = None,
        seconds: float | None = None,
        evaluations: Mapping[str, Evaluation] | None = None,
        folder: Path | None = None,
        views: dict[str, list[tuple[str, bytes]]] | None = None,
    ) -> Run:
        """Put together what parties ended with: all of them in a simulation, or the one party in its own building."""
        records = {party: end.record for party, end in ends.items()}
        found = {name: one for record in records.values() for name, one in record.evaluations.items()}
        found |= evaluations or {}
        method = method_named(plan.method)
        # The lead meets everyone, so that its counts cover all rows where they are shared pair by pair.
        first = records.get(method.leader_of(plan)) or next(iter(records.values()))
        return cls(
            plan=plan,
            method=method,
            started=first.started if started is None else started,
            seconds=first.seconds if seconds is None else seconds,
            launch=launch,
            alignment=first.alignment,
            rows=first.rows,
            tables={party: record.table for party, record in records.items()},
            evaluations={name: found[name] for name in ("together", "alone", "central") if name in found},
            history={party: end.history for party, end in ends.items()},
            ledgers={party: end.ledger for party, end in ends.items()},
            parts={party: record.part for party, record in records.items() if record.part is not None},
            findings=_findings_of(records),
            refusals={
                party: {stage: reason for stage, reason in record.refusals.items() if reason}
                for party, record in records.items()
                if any(record.refusals.values())
            },
            folder=folder,
            views=views or {},
        )

    @property
    def metrics(self) -> dict[str, float]:
        """Return the federated model's metrics on held-out rows."""
        if "together" not in self.evaluations and self.plan.stage not in self.method.scored_after:
            raise RunFolderError(f"The stage {self.plan.stage} has no metrics. See Run.findings.")
        if "together" not in self.evaluations:
            raise RunFolderError("This run held out no test rows, so it has no metrics. Set evaluate.test_fraction.")
        return self.evaluations["together"].metrics

    @property
    def coefficients(self) -> dict[str, dict[str, list[float]]]:
        """Return a linear model's coefficients by party and column, one per class where there are several.

        They are in standard deviations of each column, as the encoders standardise; other methods have none.
        """
        return {
            party: part.document["coefficients"]
            for party, part in self.parts.items()
            if "coefficients" in part.document
        }

    def bytes_sent(self, party: str) -> int:
        """Return how many bytes a party sent in all."""
        return sum(self.ledgers[party].bytes_sent().values())

    def verify(self) -> None:
        """Raise LedgerBroken unless all ledgers are whole and every two of them agree."""
        for ledger in self.ledgers.values():
            ledger.verify()
        parties = list(self.ledgers)
        for position, first in enumerate(parties):
            for second in parties[position + 1 :]:
                compare(self.ledgers[first], self.ledgers[second])

    def predict(
        self,
        tables: Mapping[str, PartyTable | Party],
        *,
        engine: Engine | str = "inline",
    ) -> pd.DataFrame:
        """Score new rows; return ids with scores and predictions, as the party that may know them gets them.

        Usually every party gives a table, rows that all of them know are scored, and the label holder gets the scores.
        With `FTL` only targets give one: all their rows are scored, and each target gets predictions and no scores.
        With several targets the first column, ``party``, says whose row it is.
        A `Party` in place of a table brings its policy or network, as in `simulate`; ``engine`` means the same too.
        """
        with opened(engine) as shared:
            return predict_in_threads(self, parties_of(tables), shared)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the HTML report and return where it lies."""
        from colonnade.launch.record import record_of
        from colonnade.reports import write

        if path is None and self.folder is None:
            raise RunFolderError("This run has no folder. Say where the report shall go: run.report('report.html').")
        target = Path(path) if path is not None else Path(str(self.folder)) / "report.html"
        write(record_of(self), target)
        return target


def _findings_of(records: Mapping[str, PartyRecord]) -> dict[str, Finding]:
    """Return all parties' findings by name; where several parties found the same thing, each name says whose it is."""
    every = [(party, one) for party, record in records.items() for one in record.findings]
    count = Counter(one.name for _, one in every)
    found: dict[str, Finding] = {}
    for party, one in every:
        own = one
        if count[one.name] > 1:
            own = replace(one, name=f"{one.name} of {party}", title=f"{one.title}: {party}")
        if own.name in found:
            own = replace(own, name=f"{own.name} ({len(found) + 1})")
        found[own.name] = own
    return found
