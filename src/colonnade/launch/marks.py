"""What a reader of a report must know first."""

from __future__ import annotations

from collections import defaultdict

from colonnade.reports import RunRecord
from colonnade.session import ALIGN, RunPlan

__all__ = ["known_start", "marks_of"]


def marks_of(run: RunRecord) -> tuple[str, ...]:
    """Return what a reader of a report must know first, by what the run's settings meant and what crossed."""
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


def _split_marks(run: RunRecord) -> list[str]:
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


def _level_marks(run: RunRecord) -> list[str]:
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


def _learns_from_rest(run: RunRecord) -> bool:
    """Tell whether rows that only feature holders know took part in a run of fedcvt."""
    return "fedcvt" in run.plan.config["candidates"] and bool(run.plan.config["estimate"])


def _budget_place(run: RunRecord, sender: str) -> str:
    for found in run.findings.values():
        if "epsilon" in found.values and found.values.get("party") == sender:
            return f"epsilon {found.values['epsilon']:.1f} at delta {found.values['delta']:g}, see the finding on it"
    return f"in {sender}'s own report"


def _dual_marks(run: RunRecord) -> list[str]:
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


def _fair_marks(run: RunRecord) -> list[str]:
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


def _label_marks(run: RunRecord) -> list[str]:
    """Say who could read labels, by what crossed, and where nothing that crossed depends on them."""
    return [_readable(run, *one) for one in _unprotected(run).items()] + _untraced(run)


# Messages from which, without noise, the receiver can read the labels of rows.
_TELLING = frozenset({"CutGradient", "TrainedGradients", "ClearGradients", "CodeGradient", "SealedCodeGradient"})


def _unprotected(run: RunRecord) -> dict[str, set[str]]:
    """Return who got gradients without noise, and from whom."""
    found: dict[str, set[str]] = defaultdict(set)
    for party, ledger in run.ledgers.items():
        for total in ledger.summary():
            if total.message in _TELLING and total.protection == "PLAIN":
                sender, receiver = (party, total.peer) if total.direction == "sent" else (total.peer, party)
                found[receiver].add(sender)
    return found


def _readable(run: RunRecord, receiver: str, senders: set[str]) -> str:
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


def _untraced(run: RunRecord) -> list[str]:
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


def _overrides(run: RunRecord, guard: str) -> bool:
    entries = [entry for ledger in run.ledgers.values() for entry in ledger.entries if entry.kind == "override"]
    return any(entry.content.get("guard") == guard for entry in entries)
