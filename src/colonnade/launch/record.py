"""Gather what a report says from a finished run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from colonnade import __version__, alignment
from colonnade.errors import LedgerBroken
from colonnade.ledger import Ledger, MessageTotal, compare
from colonnade.messages import ANYONE, Declaration, declaration_of, warnings_of
from colonnade.reports import (
    ColumnNote,
    CrossedNote,
    FigureNote,
    FindingNote,
    LedgerNote,
    MethodNote,
    PartyNote,
    RunRecord,
)
from colonnade.session import CONTROL

if TYPE_CHECKING:
    from colonnade.launch.run import Run

__all__ = ["crossed_notes", "ledger_notes", "record_of"]


def record_of(run: Run) -> RunRecord:
    """Return the record of a run, made from its ledgers, its declarations and its numbers."""
    plan, method = run.plan, run.method
    holders = method.judges_in(plan)
    curves, chosen = _curves(run, holders)
    return RunRecord(
        name=plan.name,
        title=f"{plan.name}: {method.title}" + ("" if plan.stage == "train" else f", stage {plan.stage}"),
        stage=plan.stage,
        makes_model=method.stage(plan.stage).makes_model
        or any(plan.stage in one.after for one in method.stages.values()),
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
        other_versions=_other_versions(run),
        seed=plan.seed,
        digest=plan.digest(),
        settings={"config": dict(plan.config), "evaluate": vars(plan.evaluate)},
        alignment=run.alignment,
        marks=_marks(run),
        parties=tuple(_party_note(run, party) for party in plan.parties),
        rows=run.rows,
        evaluations=run.evaluations,
        alone_party=" and ".join(holders) or None,
        curves=curves,
        chosen_epoch=chosen,
        findings=tuple(
            FindingNote(
                name=one.name,
                title=one.title,
                text=one.text,
                columns=one.columns,
                rows=one.rows,
                values=dict(one.values),
                figures=tuple(
                    FigureNote(kind=drawn.kind, title=drawn.title, values=dict(drawn.values)) for drawn in one.figures
                ),
            )
            for one in run.findings.values()
        ),
        crossed=crossed_notes(
            run.ledgers,
            _declared(run),
            {party: plan.role_of(party) for party in plan.parties},
        ),
        ledgers=ledger_notes(run.ledgers),
    )


def crossed_notes(
    ledgers: Mapping[str, Ledger], declared: Iterable[Declaration], roles: Mapping[str, str]
) -> tuple[CrossedNote, ...]:
    """Return what every party's ledger says it sent, with the declaration's words beside it."""
    return tuple(
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
        for sender, receiver, total, about in _crossed(ledgers, declared, roles)
    )


def _crossed(
    ledgers: Mapping[str, Ledger], declared: Iterable[Declaration], roles: Mapping[str, str]
) -> Iterator[tuple[str, str, MessageTotal, list[Declaration]]]:
    """Give sender, receiver and totals of what crossed, with how it was declared."""
    # By sender too: a message may go both ways under one name, and tell other things in each direction.
    known: dict[tuple[str, str, str], list[Declaration]] = defaultdict(list)
    for one in declared:
        known[one.name, one.sender, one.protection].append(one)
    for party, ledger in ledgers.items():
        for total in ledger.summary():
            # What a party sent stands in its own ledger; where that is in another building, the receiver's has it too.
            if total.direction != "sent" and total.peer in ledgers:
                continue
            sender, receiver = (party, total.peer) if total.direction == "sent" else (total.peer, party)
            own = known[total.message, roles.get(sender, ""), total.protection]
            fitting = [one for one in own if one.receiver == roles.get(receiver)]
            yield sender, receiver, total, fitting or known[total.message, ANYONE, total.protection]


def _declared(run: Run) -> list[Declaration]:
    return [*map(declaration_of, (*CONTROL, *alignment.MESSAGES)), *run.method.declarations]


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
    if party not in run.method.parties_with_rows(run.plan):
        return PartyNote(
            name=party, role=run.plan.role_of(party), has_table=False, is_elsewhere=party not in run.tables
        )
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


def _other_versions(run: Run) -> dict[str, str]:
    """Return the versions of partners' packages that differ from this one, as ledgers noted them."""
    entries = [entry.content for ledger in run.ledgers.values() for entry in ledger.entries if entry.kind == "version"]
    return {one["peer"]: one["version"] for one in entries if one["version"] != __version__}


def _marks(run: Run) -> tuple[str, ...]:
    """Return what readers must know first: what was weakened, what parties could read, and what this run is not."""
    marks = []
    entries = [entry for ledger in run.ledgers.values() for entry in ledger.entries]
    if any(entry.content["insecure_test"] for entry in entries if entry.kind == "key"):
        marks.append("Insecure test keys: what was encrypted in this run can be read with some effort. Tests only.")
    marks += dict.fromkeys(
        f"A guard was overridden: all parties accepted settings under which {entry.content['what']} (allow_leak = "
        "true). See the method's page on its guard."
        for entry in entries
        if entry.kind == "override" and "what" in entry.content
    )
    marks += [f"Refused: {reason}" for said in run.refusals.values() for reason in said.values()]
    marks += run.method.cautions(run.plan)
    crossed = _crossed(run.ledgers, _declared(run), {party: run.plan.role_of(party) for party in run.plan.parties})
    marks += warnings_of((one, sender, receiver) for sender, receiver, _, about in crossed for one in about)
    if run.launch.startswith("simulation"):
        marks.append("Simulation: all parties ran as threads of one process, exchanging the same recorded messages.")
    if any(part.document.get("is_custom") for part in run.parts.values()) and "central" in run.evaluations:
        marks.append(
            "The model with all columns in one place uses the configured encoder: a custom one fits one party."
        )
    return tuple(marks)


def _curves(run: Run, holders: Sequence[str]) -> tuple[tuple[dict[str, Any], ...], int | None]:
    """Return losses by epoch, and the epoch whose model was kept where training had one part and stopped early.

    Who has labels knows losses; another party's own report has its own numbers, if any.
    """
    parts: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for party in sorted(run.history, key=lambda one: one not in holders):
        for line in run.history[party]:
            if "training_loss" in line:
                parts.setdefault((party, str(line.get("phase", ""))), []).append(line)
    has_phases = any(phase for _, phase in parts)
    if has_phases:
        parts = dict(sorted(parts.items(), key=lambda one: float(one[1][0]["step"])))
    else:
        # Methods without phases have one training; where several parties know its loss, the first is enough.
        parts = dict(list(parts.items())[:1])
    curves = tuple(
        {
            "step": line["step"],
            "epoch": line["epoch"],
            "train_loss": line["training_loss"],
            "validation_loss": line.get("validation_loss"),
            **({"part": f"{phase} of {party}"} if has_phases else {}),
        }
        for (party, phase), lines in parts.items()
        for line in lines
    )
    if len(parts) != 1:
        return curves, None
    (lines,) = parts.values()
    # Without early stopping the last weights are kept, whatever the validation loss says, and nothing was best.
    return curves, max((int(line["epoch"]) for line in lines if line.get("is_best")), default=None)
