"""A finished run, with which rows can be scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade import alignment
from colonnade.data import PartyTable
from colonnade.engine import Engine, opened
from colonnade.errors import ConfigError, RunFolderError
from colonnade.messages import declaration_of
from colonnade.methods import method_named
from colonnade.reports import PartyRun, RunRecord, as_markup, as_text, check_format, write
from colonnade.session import CONTROL, Party, RunPlan, parties_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Run", "make_run"]


@dataclass(frozen=True, kw_only=True)
class Run(RunRecord):
    """What is left when a run is over: numbers, ledgers, and every party's part of the model.

    In a simulation all parties' things are here, side by side; in their folders they stay apart.
    """

    def predict(
        self,
        tables: Mapping[str, PartyTable | Party],
        *,
        threshold: float | None = None,
        engine: Engine | str = "inline",
    ) -> pd.DataFrame:
        """Score new rows; return ids with scores and predictions, as the party that may know them gets them.

        Usually every party gives a table, rows that all of them know are scored, and the label holder gets the scores.
        With `FTL` only targets give one: all their rows are scored, and each target gets predictions and no scores.
        With several targets the first column, ``party``, says whose row it is. ``attrs["notes"]`` of the frame says, by
        party, in which columns new rows differ from those of training.
        A `Party` in place of a table brings its policy or network, as in `simulate`; ``engine`` means the same too. Of
        two classes a row is predicted to be of the positive one from ``threshold`` on, or else from that of the run.
        """
        from colonnade.launch.simulation import predict_in_threads

        with opened(engine) as shared:
            return predict_in_threads(self.at_threshold(threshold), parties_of(tables), shared)

    def at_threshold(self, threshold: float | None) -> Run:
        """Return this run with another threshold for predictions, if one is given."""
        if threshold is None:
            return self
        if self.method.predicting.rows_of is not None:
            raise ConfigError(
                f"Predictions of {self.method.name} are made without the scores being known here, so no threshold can "
                "be set for them. Leave it out."
            )
        return replace(self, plan=self.plan.at_threshold(threshold))

    @property
    def can_score(self) -> bool:
        """Tell whether this run made a model to score with; a party without rows may have no part of it."""
        lacks_model = set(self.method.parties_with_rows(self.plan)) & set(self.tables) and not self.parts
        return not lacks_model and self.plan.stage in self.method.scored_after

    def check_model(self) -> None:
        """Refuse to score with a run that made no model, or one that this version cannot use."""
        where = "This run" if self.folder is None else str(self.folder)
        check_format(self.format, where)
        if not self.can_score:
            raise RunFolderError(
                f"{where} holds the stage {self.plan.stage}, which makes no model to score with. Train first, with the "
                f"same run.toml and the stage {' or '.join(self.method.scored_after)}, and score with the run that "
                "this gives."
            )

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return as_markup(self)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the HTML report and return where it lies."""
        if path is None and self.folder is None:
            raise RunFolderError("This run has no folder. Say where the report shall go: run.report('report.html').")
        return write(self, Path(path) if path is not None else Path(str(self.folder)) / "report.html")


def make_run(
    plan: RunPlan,
    parties: Mapping[str, PartyRun],
    *,
    launch: str,
    started: str | None = None,
    seconds: float | None = None,
    **more: Any,
) -> Run:
    """Put together what parties ended with: all of them in a simulation, or the one party that is here."""
    method = method_named(plan.method)
    first = parties.get(method.leader_of(plan)) or next(iter(parties.values()))
    return Run(
        plan=plan,
        method=method,
        declared=(*map(declaration_of, (*CONTROL, *alignment.MESSAGES)), *method.declarations),
        parties=parties,
        launch=launch,
        started=started or first.started,
        seconds=first.seconds if seconds is None else seconds,
        **more,
    )
