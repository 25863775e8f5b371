"""Gather what a report says from a finished run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from colonnade import __version__, alignment
from colonnade.errors import LedgerBroken
from colonnade.ledger import Ledger, compare
from colonnade.messages import ANYONE, Declaration, declaration_of
from colonnade.reports import ColumnNote, CrossedNote, FindingNote, LedgerNote, MethodNote, PartyNote, RunRecord
from colonnade.session import CONTROL

if TYPE_CHECKING:
    from colonnade.launch.run import Run

__all__ = ["crossed_notes", "ledger_notes", "record_of"]


def record_of(run: Run) -> RunRecord:
    """Return the record of a run, made from its ledgers, its declarations and its numbers."""
    plan, method = run.plan, run.method
    # Who has labels knows losses and scores; another party's own report has its own numbers, if any.
    holders = [party for role in method.roles if role.has_label for party in plan.roles.get(role.name, ())]
    known = [party for party in holders if party in run.history] or list(run.history)
    history = run.history[known[0]]
    return RunRecord(
        name=plan.name,
        title=f"{plan.name}: {method.title}" + ("" if plan.stage == "train" else f", stage {plan.stage}"),
        stage=plan.stage,
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
        alone_party=" and ".join(holders) or None,
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
        findings=tuple(
            FindingNote(
                name=one.name,
                title=one.title,
                text=one.text,
                columns=one.columns,
                rows=one.rows,
                values=dict(one.values),
            )
            for one in run.findings.values()
        ),
        crossed=crossed_notes(
            run.ledgers,
            [*CONTROL, *alignment.MESSAGES, *method.messages],
            {party: plan.role_of(party) for party in plan.parties},
        ),
        ledgers=ledger_notes(run.ledgers),
    )


def crossed_notes(
    ledgers: dict[str, Ledger], messages: list[type], roles: Mapping[str, str]
) -> tuple[CrossedNote, ...]:
    """Return what every party's ledger says it sent, with the declaration's words beside it."""
    # By sender too: a message may go both ways under one name, and tell other things in each direction.
    declared: dict[tuple[str, str], list[Declaration]] = defaultdict(list)
    for one in map(declaration_of, messages):
        declared[one.name, one.sender].append(one)
    notes = []
    for party, ledger in ledgers.items():
        for total in ledger.summary():
            # What a party sent stands in its own ledger; where that is in another building, the receiver's has it too.
            if total.direction != "sent" and total.peer in ledgers:
                continue
            sender, receiver = (party, total.peer) if total.direction == "sent" else (total.peer, party)
            about = declared[total.message, roles.get(sender, "")] or declared[total.message, ANYONE]
            notes.append(
                CrossedNote(
                    message=total.message,
                    sender=sender,
                    receiver=receiver,
                    protection=total.protection,
                    # A ledger counts by name, so that two exchanges of one name are one line with both their words.
                    paper_step="; ".join(dict.fromkeys(one.step for one in about)),
                    reveals=" ".join(dict.fromkeys(one.reveals for one in about)),
                    count=total.count,
                    bytes=total.bytes,
                    shapes=tuple("up to " + " × ".join(map(str, shape)) for shape in total.shapes.values()),
                )
            )
    return tuple(notes)


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
    marks += [
        f"A guard was overridden: all parties accepted settings under which {what} (allow_leak = true). See the "
        "method's page on its guard."
        for guard, what in _GUARDS.items()
        if _overrides(run, guard)
    ]
    if run.plan.config.get("protection") == "none":
        marks.append(
            "Not encrypted: the parties read each other's codes and signals (protection = 'none'). For research only."
        )
    if run.plan.config.get("reveal") == "rows":
        marks.append(
            "Rows revealed: the source sees the target's codes, and the target can tell every label used (reveal = "
            "'rows'). This is not what the paper protects."
        )
    if run.launch.startswith("simulation"):
        marks.append("Simulation: all parties ran as threads of one process, exchanging the same recorded messages.")
    if any(part.document.get("is_custom") for part in run.parts.values()) and "central" in run.evaluations:
        marks.append(
            "The model with all columns in one place uses the configured encoder: a custom one fits one party."
        )
    return tuple(marks)


_GUARDS = {
    "linear system": "a party can work out the other's codes of shared rows from the gradients it gets",
    "scores": "the source can work out the target's codes from their scores",
    "labels": "the target can work out the labels of labelled rows from its gradients",
}


def _overrides(run: Run, guard: str) -> bool:
    entries = [entry for ledger in run.ledgers.values() for entry in ledger.entries if entry.kind == "override"]
    return any(entry.content.get("guard") == guard for entry in entries)


def _chosen_epoch(history: list[dict[str, Any]], patience: int | None) -> int | None:
    if patience == 0:
        # Without early stopping the last weights are kept, whatever the validation loss says.
        return None
    judged = [line for line in history if line.get("validation_loss") is not None]
    best = min(judged, key=lambda line: line["validation_loss"], default=None)
    return None if best is None else int(best["epoch"])
