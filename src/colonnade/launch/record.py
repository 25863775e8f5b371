"""Gather what a report says from a finished run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from colonnade import __version__, alignment
from colonnade.errors import LedgerBroken
from colonnade.ledger import Ledger, compare
from colonnade.messages import ANYONE, Declaration, declaration_of
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
from colonnade.session import ALIGN, CONTROL, RunPlan

if TYPE_CHECKING:
    from colonnade.launch.run import Run

__all__ = ["crossed_notes", "known_start", "ledger_notes", "record_of"]

# Who judges held-out rows, where parties of several roles have labels.
_JUDGES = {("prada", "train"): "target", ("prada", "pretrain"): "source", ("prada", "finetune"): "target"}


def record_of(run: Run) -> RunRecord:
    """Return the record of a run, made from its ledgers, its declarations and its numbers."""
    plan, method = run.plan, run.method
    judges = _JUDGES.get((method.name, plan.stage))
    holders = [
        party
        for role in method.roles
        if role.has_label and judges in (None, role.name)
        for party in plan.roles.get(role.name, ())
    ]
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
            [*map(declaration_of, (*CONTROL, *alignment.MESSAGES)), *method.declarations],
            {party: plan.role_of(party) for party in plan.parties},
        ),
        ledgers=ledger_notes(run.ledgers),
    )


def crossed_notes(
    ledgers: dict[str, Ledger], messages: list[Declaration], roles: Mapping[str, str]
) -> tuple[CrossedNote, ...]:
    """Return what every party's ledger says it sent, with the declaration's words beside it."""
    # By sender too: a message may go both ways under one name, and tell other things in each direction.
    declared: dict[tuple[str, str], list[Declaration]] = defaultdict(list)
    for one in messages:
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
            "Not encrypted: what this method encrypts crossed in the clear, and its receivers could read it "
            "(protection = 'none'). For research only."
        )
    marks += [f"Refused: {reason}" for said in run.refusals.values() for reason in said.values()]
    marks += [known] if (known := known_start(run.plan)) else []
    marks += _split_marks(run)
    marks += _level_marks(run)
    marks += _dual_marks(run)
    marks += _fair_marks(run)
    marks += _label_marks(run)
    if _overrides(run, "explanations"):
        marks.append(
            "Explained: the target was shown what each group adds to each row's score, which is more than the score. "
            "All parties accepted that (explanations = true)."
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
    "contributions": "the label holder can work out a feature holder's columns from what they add to scores",
    "labels": "the target can work out the labels of labelled rows from its gradients",
}


# What partners can make of first weights that they know, by method.
_KNOWN_STARTS = {
    "splitnn": "The label holder can solve its first batch for the other parties' columns, repeat their steps and so "
    "follow them through every training row; a feature holder can read numbers to predict off its first gradient.",
    "ftl": "A party can solve its first gradients for the other's columns of shared rows.",
    "prada": "A bank can work out what its first scores say about the feature holder's columns.",
    "fedcvt": "The label holder can solve the first codes for the feature holders' columns.",
    "mpdl": "The collaborator can solve the first sums for columns, and holders the first gradients for labels.",
    "fairvfl": "Noise and randomised answers follow from it too and hide nothing; the aggregator can solve first "
    "codes for columns.",
}


def known_start(plan: RunPlan) -> str | None:
    """Say what first weights give away that follow from the run's seed, if they do."""
    if plan.config.get("secret_start", True) or plan.stage in ("predict", ALIGN):
        return None
    return (
        "Known start: first weights follow from the run's seed, which all parties know (secret_start = false). "
        f"{_KNOWN_STARTS[plan.method]} For research only."
    )


def _split_marks(run: Run) -> list[str]:
    """Say what activations of a split network gave away."""
    if run.plan.method != "splitnn" or not run.plan.roles.get("feature_holder"):
        return []
    (holder,), others = run.plan.roles["label_holder"], run.plan.roles["feature_holder"]
    told = (
        f"Columns in effect: {holder} got the activations of {' and '.join(others)} for every shared row without any "
        "protection. They are a learned summary of the columns; whoever knows the columns of some tens of rows can "
        "often work out those of the others from it."
    )
    return [told]


# What crosses of feature holders' columns in fedcvt, by level.
_LEVELS = {"Codes": 0, "NoisedCodes": 1, "OpenedLogits": 2}


def _level_marks(run: Run) -> list[str]:
    """Say what the level of a run of fedcvt means, by what crossed."""
    if run.plan.method != "fedcvt":
        return []
    crossed: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for party, ledger in run.ledgers.items():
        for total in ledger.summary():
            sender, receiver = (party, total.peer) if total.direction == "sent" else (total.peer, party)
            if total.message in _LEVELS or total.message == "SharedCodes":
                crossed[sender, receiver][total.message] = total.count
    marks = []
    for (sender, receiver), counts in crossed.items():
        if "Codes" in counts:
            marks.append(
                f"Level 0: codes of {sender} crossed in the clear. {receiver} has a learned summary of {sender}'s "
                + (
                    f"columns for all its rows, also for those that only {sender} knows; not whose these are."
                    if _learns_from_rest(run)
                    else "columns for every shared row."
                )
            )
        if "NoisedCodes" in counts:
            marks.append(
                f"Level 1: codes of {sender} crossed clipped and with noise. What the releases of one row add up to "
                f"is {_budget_place(run, sender)}."
            )
        if "OpenedLogits" in counts:
            marks.append(
                f"Level 2: codes of {sender} crossed encrypted only. {receiver} got what they add to scores, "
                f"{counts['OpenedLogits']} times for batches of rows, by weights that changed: the more of these, the "
                "more they tell about the codes. Fewer epochs give fewer."
            )
        if "SharedCodes" in counts:
            marks.append(
                f"Codes with noise: {sender} also sent its shared codes, clipped and with noise (sealed_pull). What "
                f"the releases of one row add up to is {_budget_place(run, sender)}."
            )
    return marks


def _learns_from_rest(run: Run) -> bool:
    """Tell whether rows that only feature holders know took part in a run of fedcvt."""
    return "fedcvt" in run.plan.config["candidates"] and bool(run.plan.config["estimate"])


def _budget_place(run: Run, sender: str) -> str:
    for found in run.findings.values():
        if "epsilon" in found.values and found.values.get("party") == sender:
            return f"epsilon {found.values['epsilon']:.1f} at delta {found.values['delta']:g}, see the finding on it"
    return f"in {sender}'s own report"


def _dual_marks(run: Run) -> list[str]:
    """Say what a run of mpdl let whom read, by what crossed."""
    if run.plan.method != "mpdl":
        return []
    marks = []
    crossed = {(total.message, party) for party, ledger in run.ledgers.items() for total in ledger.summary()}
    sent = {message: sorted(party for one, party in crossed if one == message) for message, _ in crossed}
    helpers = " and ".join(run.plan.roles.get("collaborator", ()))
    if "LogitGradient" in sent:
        marks.append(
            f"Labels at the collaborator: {helpers} got the loss's gradient at every training row's scores, which in "
            "effect tells its label, and the first layer's sums; not whose rows these are. It must not side with a "
            "holder."
        )
    if "FirstGradient" in sent:
        others = " and ".join(run.plan.roles["feature_holder"])
        marks.append(
            f"Labels can often be told: {others} got the gradient at the first layer of every training row without "
            "noise."
        )
    if run.plan.config["mechanism"] == "none" and {"OpenTable", "SealedGradient"} & sent.keys():
        marks.append(
            "Columns in the clear: holders gave each other their columns of shared rows as they are (mechanism = "
            "'none')."
        )
    if run.plan.config["mechanism"] in ("lemma", "lemma_shared"):
        marks.append(
            "Unsound noise: the noise of the paper's lemma does not give the privacy it claims (paper_mode = true). "
            "See the method's page."
        )
    return marks


def _fair_marks(run: Run) -> list[str]:
    """Say what a run of fairvfl let the aggregator read, by what crossed."""
    if run.plan.method != "fairvfl":
        return []
    from colonnade.methods.fairvfl.messages import trains_plain_model

    marks = []
    sent = {total.message for ledger in run.ledgers.values() for total in ledger.summary()}
    (server,) = run.plan.roles["aggregator"]
    if {"TaskGradient", "TaskScoreGradient"} & sent:
        marks.append(
            f"Labels at the aggregator: {server} got the task's gradient of every training row, which in most cases "
            "tells its label, and all parties' codes."
        )
    if {"DiscriminatorGradient", "AdversarialGradient"} & sent:
        marks.append(
            f"Sensitive values at the aggregator: {server} can read them, row by row, from gradients of true values "
            "without noise (label_epsilon is not set)."
        )
    if trains_plain_model(run.plan.stage, run.plan.config):
        receivers = "those" if run.plan.config["task_cut"] == "server" else "the label holder and those"
        marks.append(
            f"Codes of a plain model: it was trained for comparison, and {receivers} with attributes got its code, "
            "whole and without noise, which tells much of all parties' columns (audit_plain, or 0 in sweep)."
        )
    return marks


def _label_marks(run: Run) -> list[str]:
    """Say who could read labels, by what crossed, and where nothing that crossed depends on them."""
    return [_readable(run, *one) for one in _unprotected(run).items()] + _untraced(run)


# Messages from which, without noise, the receiver can read the labels of rows.
_TELLING = frozenset({"CutGradient", "TrainedGradients", "GroupGradients", "CodeGradient", "SealedCodeGradient"})


def _unprotected(run: Run) -> dict[str, set[str]]:
    """Return who got gradients without noise, and from whom."""
    found: dict[str, set[str]] = defaultdict(set)
    for party, ledger in run.ledgers.items():
        for total in ledger.summary():
            if total.message in _TELLING and total.protection == "PLAIN":
                sender, receiver = (party, total.peer) if total.direction == "sent" else (total.peer, party)
                found[receiver].add(sender)
    return found


def _readable(run: Run, receiver: str, senders: set[str]) -> str:
    defence = str(run.plan.config.get("defence", "none"))
    if run.plan.method == "fedcvt":
        remedy = "defence = 'marvell' adds noise that bounds what one gradient tells"
        if run.plan.config["level"] == 2:
            remedy = f"Encryption does not help, as {receiver} must know them to learn; {remedy}, at levels 0 and 1"
        return (
            f"Labels can be read: {receiver} got gradients of {' and '.join(sorted(senders))} without noise, and can "
            "read the labels of most shared training rows from them"
            f"{', and which of its own rows got a label' if _learns_from_rest(run) else ''}. {remedy}."
        )
    worn = " A disguise does not help by itself: it gives every class one code." if "coae" in defence else ""
    return (
        f"Labels can be read: {receiver} got gradients of {' and '.join(sorted(senders))} without noise, and can read "
        f"the label of every training row from them (defence = '{defence}').{worn} defence = 'marvell' adds noise that "
        "bounds what one gradient tells."
    )


def _untraced(run: Run) -> list[str]:
    plan, config = run.plan, run.plan.config
    if plan.method != "prada" or plan.stage not in ("train", "finetune"):
        return []
    if config["tune"] != "nothing" or config["compare"] == "vfl":
        return []
    targets, (holder,) = " and ".join(plan.roles["target"]), plan.roles["feature_holder"]
    first = (
        f"No gradient went back from the labels of {targets} (tune = 'nothing'): they leave no trace in what {holder} "
    )
    seen = "got" if config["protection"] == "none" else "got, all of which was uniformly masked"
    stops = ", in which epochs validation got better" if config["fine_patience"] else ""
    return [f"{first}{seen}. Beside it {holder} learned which rows have a label{stops} and which model was chosen."]


def _overrides(run: Run, guard: str) -> bool:
    entries = [entry for ledger in run.ledgers.values() for entry in ledger.entries if entry.kind == "override"]
    return any(entry.content.get("guard") == guard for entry in entries)


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
    (((_, phase), lines),) = parts.items()
    patience = run.plan.config.get("patience" if phase in ("", "pretrain") else "fine_patience")
    return curves, _chosen_epoch(lines, patience)


def _chosen_epoch(history: list[dict[str, Any]], patience: int | None) -> int | None:
    if patience == 0:
        # Without early stopping the last weights are kept, whatever the validation loss says.
        return None
    # The first of equals, as in training.
    judged = [line for line in history if line.get("validation_goodness") is not None]
    best = max(judged, key=lambda line: line["validation_goodness"], default=None)
    if best is None:
        judged = [line for line in history if line.get("validation_loss") is not None]
        best = min(judged, key=lambda line: line["validation_loss"], default=None)
    return None if best is None else int(best["epoch"])
