"""Gather what a report says from a finished run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from colonnade import __version__, alignment
from colonnade.errors import LedgerBroken
from colonnade.ledger import Ledger, compare
from colonnade.messages import Declaration, declaration_of
from colonnade.reports import ColumnNote, CrossedNote, LedgerNote, MethodNote, PartyNote, RunRecord
from colonnade.session import CONTROL

if TYPE_CHECKING:
    from colonnade.launch.run import Run

__all__ = ["crossed_notes", "ledger_notes", "record_of"]


def record_of(run: Run) -> RunRecord:
    """Return the record of a run, made from its ledgers, its declarations and its numbers."""
    plan, method = run.plan, run.method
    lead = method.leader_of(plan)
    # Only the lead knows losses; another party's own report has its own numbers, if any.
    history = run.history.get(lead, next(iter(run.history.values())))
    return RunRecord(
        name=plan.name,
        title=f"{plan.name}: {method.title}",
        method=MethodNote(
            name=method.name,
            title=method.title,
            citation=method.citation,
            roles={role.name: role.holds for role in method.roles},
        ),
        created=run.started,
        duration_seconds=run.seconds,
        launch=run.launch,
        version=__version__,
        seed=plan.seed,
        digest=plan.digest(),
        settings={"config": dict(plan.config), "evaluate": vars(plan.evaluate)},
        alignment=run.alignment,
        marks=_marks(run),
        parties=tuple(_party_note(run, party) for party in plan.parties),
        rows=run.rows,
        evaluations=run.evaluations,
        alone_party=lead,
        curves=tuple(
            {
                "step": line["step"],
                "epoch": line["epoch"],
                "train_loss": line["training_loss"],
                "validation_loss": line.get("validation_loss"),
            }
            for line in history
            if "training_loss" in line
        ),
        chosen_epoch=_chosen_epoch(history, plan.config.get("patience")),
        crossed=crossed_notes(run.ledgers, [*CONTROL, *alignment.MESSAGES, *method.messages]),
        ledgers=ledger_notes(run.ledgers),
    )


def crossed_notes(ledgers: dict[str, Ledger], messages: list[type]) -> tuple[CrossedNote, ...]:
    """Return what every party's ledger says it sent, with the declaration's words beside it."""
    declared: dict[str, Declaration] = {cls.__name__: declaration_of(cls) for cls in messages}
    return tuple(
        CrossedNote(
            message=total.message,
            sender=party if total.direction == "sent" else total.peer,
            receiver=total.peer if total.direction == "sent" else party,
            protection=total.protection,
            paper_step=declared[total.message].step if total.message in declared else "",
            reveals=declared[total.message].reveals if total.message in declared else "",
            count=total.count,
            bytes=total.bytes,
            shapes=tuple("up to " + " × ".join(map(str, shape)) for shape in total.shapes.values()),
        )
        for party, ledger in ledgers.items()
        for total in ledger.summary()
        # What a party sent stands in its own ledger; where that is in another building, the receiver's has it too.
        if total.direction == "sent" or total.peer not in ledgers
    )


def ledger_notes(ledgers: dict[str, Ledger]) -> tuple[LedgerNote, ...]:
    """Verify every ledger, compare every two, and note the outcome."""
    notes = []
    for party, ledger in ledgers.items():
        agreeing = tuple(
            other for other, theirs in ledgers.items() if other != party and _holds(partial(compare, ledger, theirs))
        )
        notes.append(
            LedgerNote(
                party=party,
                entries=len(ledger.entries),
                head=ledger.head,
                verified=_holds(ledger.verify),
                agrees_with=agreeing,
            )
        )
    return tuple(notes)


def _holds(check: Callable[[], None]) -> bool:
    try:
        check()
    except LedgerBroken:
        return False
    return True


def _party_note(run: Run, party: str) -> PartyNote:
    if party not in run.tables:
        return PartyNote(name=party, role=run.plan.role_of(party), is_elsewhere=True)
    about = run.tables[party]
    encoder = run.parts[party].document.get("table_encoder") if party in run.parts else None
    return PartyNote(
        name=party,
        role=run.plan.role_of(party),
        rows=about["rows"],
        shared_rows=about["shared_rows"],
        features=len(about["columns"]),
        columns=tuple(ColumnNote(**column) for column in about["columns"]),
        label=about["label"],
        encoded_width=None if encoder is None else _encoded_width(encoder),
        coefficients=tuple((name, tuple(values)) for name, values in run.coefficients.get(party, {}).items()),
    )


def _encoded_width(encoder: dict[str, Any]) -> int:
    from colonnade.data import TableEncoder

    return TableEncoder.from_json(encoder).width


def _marks(run: Run) -> tuple[str, ...]:
    marks = []
    keys = [entry.content for ledger in run.ledgers.values() for entry in ledger.entries if entry.kind == "key"]
    if any(key["insecure_test"] for key in keys):
        marks.append("Insecure test keys: what was encrypted in this run can be read with some effort. Tests only.")
    if run.launch.startswith("simulation"):
        marks.append("Simulation: all parties ran as threads of one process, exchanging the same recorded messages.")
    if any(part.document.get("is_custom") for part in run.parts.values()) and "central" in run.evaluations:
        marks.append(
            "The model with all columns in one place uses the configured encoder: a custom one fits one party."
        )
    return tuple(marks)


def _chosen_epoch(history: list[dict[str, Any]], patience: int | None) -> int | None:
    if patience == 0:
        # Without early stopping the last weights are kept, whatever the validation loss says.
        return None
    judged = [line for line in history if line.get("validation_loss") is not None]
    best = min(judged, key=lambda line: line["validation_loss"], default=None)
    return None if best is None else int(best["epoch"])
