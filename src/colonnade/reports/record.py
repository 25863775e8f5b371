"""A finished run: what every party has of it, and what a report says about it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.errors import LedgerBroken, RunFolderError
from colonnade.ledger import Ledger, MessageTotal, compare
from colonnade.messages import ANYONE, Declaration, warnings_of
from colonnade.metrics import Evaluation, Gain
from colonnade.session import Finding, Method, ModelPart, PolicyRules, RunPlan

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FORMAT", "CheckedLedger", "Consent", "Crossed", "PartyRun", "RunRecord", "check_format"]

FORMAT = 4
"""The form of a run folder, which plan.json names: counted up with every change after which a model of before cannot be
used, or a file means something else. The first had no number."""


def check_format(found: int, where: str) -> None:
    """Refuse to score with a model, or to go on from it, that another version has kept in another form."""
    if found < FORMAT:
        raise RunFolderError(
            f"{where} is of format {found}, which an older version wrote, and this one goes on from format {FORMAT} "
            "only. 'colonnade report' and 'colonnade audit' still read it. To go on or to score rows, train anew in "
            "another folder, or use the version that wrote it."
        )
    if found > FORMAT:
        raise RunFolderError(
            f"{where} is of format {found}, which a newer version wrote; this one knows formats up to {FORMAT}. "
            "Install the newer version here."
        )


@dataclass(frozen=True, kw_only=True)
class Consent:
    """The word that a party's messages may leave, given before the first of them."""

    digest: str = ""
    """Of the agreement for which it was given."""
    how: str = ""
    """At the terminal, by an option, by the policy, or in words of the caller."""
    when: str = ""
    account: str = ""
    """The account of the operating system under which it was given."""


@dataclass(frozen=True, kw_only=True)
class PartyRun:
    """What one party has of a run."""

    party: str
    started: str
    seconds: float
    alignment: str
    """How the shared rows were found."""
    rows: dict[str, int]
    label: dict[str, Any] = field(default_factory=dict)
    """What the label was taken for, where it lies: ``task``, which class is ``positive`` of two, and a ``sentence``."""
    table: dict[str, Any]
    """The shape of the party's table, with the number of its rows that are shared."""
    ledger: Ledger
    history: list[dict[str, Any]] = field(default_factory=list)
    """What it wrote down while it trained."""
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    part: ModelPart | None = None
    overlap: dict[str, Any] | None = None
    """What it learnt about shared rows, where that was all the run was for."""
    findings: tuple[Finding, ...] = ()
    refusals: dict[str, str] = field(default_factory=dict)
    """Why the model must not score rows, by the stage that found it; empty texts lift what that stage said before."""
    served: str = "together"
    """The name of the model that serves, among those that were judged."""
    gains: dict[str, Gain] = field(default_factory=dict)
    """By how much that model, or the federated one where own columns alone serve, is ahead of own columns alone on the
    same held-out rows, by metric."""
    consent: Consent | None = None
    """None where nobody was asked, as in a simulation."""
    rules: PolicyRules | None = None
    """The policy in force when the party ended; None where an earlier version did not keep it."""
    predictions: pd.DataFrame | None = None
    """Ids and scores, where the run was a prediction and this party gets them."""


@dataclass(frozen=True, kw_only=True)
class Crossed:
    """All messages of one declaration between one sender and one receiver, as the ledgers counted them."""

    message: str
    sender: str
    receiver: str
    protection: str
    paper_step: str = ""
    reveals: str = ""
    count: int = 0
    bytes: int = 0
    shapes: tuple[str, ...] = ()
    """The distinct shapes of what was carried, as text: ``"64 × 8"``."""


@dataclass(frozen=True, kw_only=True)
class CheckedLedger:
    """The state of one party's ledger when it was looked at."""

    party: str
    entries: int
    head: str
    verified: bool
    agrees_with: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What is left when a run is over: numbers, ledgers, and every party's part of the model.

    In a simulation all parties' things are here, side by side; in their folders they stay apart.
    """

    plan: RunPlan
    method: Method
    declared: tuple[Declaration, ...]
    """Everything that could cross."""
    parties: Mapping[str, PartyRun]
    """What each party has, as far as it is here."""
    launch: str
    started: str
    seconds: float
    central: Mapping[str, Evaluation] = field(default_factory=dict)
    """How good the same model is with all columns in one place, which no single party can know."""
    folder: Path | None = None
    format: int = FORMAT
    """The form in which it was kept."""
    views: Mapping[str, list[tuple[str, bytes]]] = field(default_factory=dict, repr=False)
    """What each party received, sender and frame, where that was kept."""

    @cached_property
    def _first(self) -> PartyRun:
        """The lead speaks with everyone, so that its counts cover all rows where they are shared pair by pair."""
        return self.parties.get(self.method.leader_of(self.plan)) or next(iter(self.parties.values()))

    @property
    def alignment(self) -> str:
        """Say how the shared rows were found."""
        return self._first.alignment

    @property
    def rows(self) -> dict[str, int]:
        """Count the shared rows for training, validation and test."""
        return self._first.rows

    @cached_property
    def tables(self) -> dict[str, dict[str, Any]]:
        """Return the shapes of the tables that are known here, by party."""
        return {party: one.table for party, one in self.parties.items()}

    @cached_property
    def evaluations(self) -> dict[str, Evaluation]:
        """Return how good the models are: ``together``, ``alone`` (the label holder's columns only), their ``average``
        where it serves, and ``central``."""
        found = {name: one for run in self.parties.values() for name, one in run.evaluations.items()}
        found |= self.central
        return {name: found[name] for name in ("together", "alone", "average", "central") if name in found}

    @property
    def label(self) -> dict[str, Any]:
        """Return what the label was taken for, as the party says that judges the model."""
        known = {party: one.label for party, one in self.parties.items() if one.label}
        return next((known[party] for party in self.label_holders if party in known), {})

    @property
    def positive(self) -> str | int | float | bool | None:
        """Return the class whose probability scores are, where there are two and the label is known here."""
        found: str | int | float | bool | None = self.label.get("positive")
        return found

    @property
    def served(self) -> str:
        """Return the name of the model that serves, among the evaluations."""
        return next((one.served for one in self.parties.values() if one.served in one.evaluations), "together")

    @property
    def evaluation(self) -> Evaluation | None:
        """Return how good the model is that serves, where that is known here."""
        return self.evaluations.get(self.served)

    @property
    def gains(self) -> dict[str, Gain]:
        """Return by how much federating is ahead of own columns alone, by metric, where the party that judged knows."""
        return next((one.gains for one in self.parties.values() if one.gains), {})

    @property
    def consents(self) -> dict[str, Consent | None]:
        """Return who agreed to what left, by party that is known here."""
        return {party: one.consent for party, one in self.parties.items()}

    @property
    def rules(self) -> dict[str, PolicyRules | None]:
        """Return the policies that were in force, by party that is known here."""
        return {party: one.rules for party, one in self.parties.items()}

    @cached_property
    def history(self) -> dict[str, list[dict[str, Any]]]:
        """Return what parties wrote down while they trained."""
        return {party: one.history for party, one in self.parties.items()}

    @cached_property
    def ledgers(self) -> dict[str, Ledger]:
        """Return everything that crossed, as each party wrote it down."""
        return {party: one.ledger for party, one in self.parties.items()}

    @cached_property
    def parts(self) -> dict[str, ModelPart]:
        """Return the parts of the model, by party."""
        return {party: one.part for party, one in self.parties.items() if one.part is not None}

    @property
    def refusals(self) -> dict[str, dict[str, str]]:
        """Return why the model must not score rows, by the party that says so and the stage that found it."""
        return {
            party: {stage: reason for stage, reason in one.refusals.items() if reason}
            for party, one in self.parties.items()
            if any(one.refusals.values())
        }

    @cached_property
    def findings(self) -> dict[str, Finding]:
        """Return what the method found out beside the model; where several parties found it, names say whose it is."""
        every: list[tuple[str, Finding]] = []
        for party, one in ((party, one) for party, run in self.parties.items() for one in run.findings):
            # A mere sentence that several parties say in the same words is said once.
            if one.rows or one.values or one not in (other for _, other in every):
                every.append((party, one))
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

    @property
    def metrics(self) -> dict[str, float]:
        """Return the metrics on held-out rows of the model that serves."""
        if self.evaluation is None and self.plan.stage not in self.method.scored_after:
            raise RunFolderError(f"The stage {self.plan.stage} has no metrics. See Run.findings.")
        if self.evaluation is None:
            raise RunFolderError("This run held out no test rows, so it has no metrics. Set evaluate.test_fraction.")
        return self.evaluation.metrics

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

    # What a report says beside these

    @property
    def title(self) -> str:
        """Name the run and its method."""
        stage = "" if self.plan.stage == "train" else f", stage {self.plan.stage}"
        return f"{self.plan.name}: {self.method.title}{stage}"

    @property
    def makes_model(self) -> bool:
        """Tell whether the stage makes a model; of one that does not, all there is to say is in ``findings``."""
        stages, stage = self.method.stages, self.plan.stage
        return self.method.stage(stage).makes_model or any(stage in one.after for one in stages.values())

    @property
    def settings(self) -> dict[str, Any]:
        """Return what the parties agreed on."""
        return {"config": dict(self.plan.config), "evaluate": vars(self.plan.evaluate)}

    @cached_property
    def other_versions(self) -> dict[str, str]:
        """Return the versions of partners' packages that differ from this one, as ledgers noted them."""
        entries = chain.from_iterable(ledger.entries for ledger in self.ledgers.values())
        noted = [entry.content for entry in entries if entry.kind == "version"]
        return {one["peer"]: one["version"] for one in noted if one["version"] != self.method.version}

    @property
    def label_holders(self) -> list[str]:
        """Return the parties that judge held-out rows."""
        return list(self.method.judges_in(self.plan))

    @cached_property
    def brought(self) -> dict[str, dict[str, Any]]:
        """Return what each party brought, in counts and names: never a value of a cell."""
        return {party: self._brought_by(party) for party in self.plan.parties}

    def _brought_by(self, party: str) -> dict[str, Any]:
        about: dict[str, Any] = {
            "role": self.plan.role_of(party),
            "rows": None,
            "shared_rows": None,
            "columns": [],
            "label": None,
            "encoded_width": None,
            "coefficients": self.coefficients.get(party, {}),
            # Another organisation, whose table nobody here has seen.
            "is_elsewhere": party not in self.tables,
            "has_table": party in self.method.parties_with_rows(self.plan),
        }
        if about["has_table"] and not about["is_elsewhere"]:
            about |= {name: self.tables[party][name] for name in ("rows", "shared_rows", "columns", "label")}
            if party in self.parts:
                from colonnade.training import Inputs  # here, as it brings torch
                from colonnade.training.legacy import encoder_of

                encoder = encoder_of(self.parts[party])
                about["encoded_width"] = None if encoder is None else encoder.width
                encoded = {one["name"]: one for one in encoder.describe()} if isinstance(encoder, Inputs) else {}
                about["columns"] = [
                    {**one, **{key: encoded.get(one["name"], {}).get(key) for key in ("encoded", "outputs")}}
                    for one in about["columns"]
                ]
        return about

    # Not kept: a later audit may refuse the model.
    @property
    def marks(self) -> tuple[str, ...]:
        """Return what readers must know first: what was weakened, what parties could read, and what this run is not."""
        marks = []
        if self.format != FORMAT:
            marks.append(
                f"Another version: this run is kept in format {self.format} and was read by a version that writes "
                f"format {FORMAT}. What its settings and messages meant is told as far as that one knows them."
            )
        entries = [entry for ledger in self.ledgers.values() for entry in ledger.entries]
        if any(entry.content["insecure_test"] for entry in entries if entry.kind == "key"):
            marks.append("Insecure test keys: what was encrypted in this run can be read with some effort. Tests only.")
        marks += dict.fromkeys(
            f"A guard was overridden: all parties accepted settings under which {entry.content['what']} (allow_leak = "
            "true). See the method's page on its guard."
            for entry in entries
            if entry.kind == "override" and "what" in entry.content
        )
        marks += [f"Refused: {reason}" for said in self.refusals.values() for reason in said.values()]
        with suppress(KeyError) if self.format != FORMAT else nullcontext():
            # Another version may have had other settings.
            marks += self.method.warnings(self.plan)
        marks += warnings_of((one, sender, to) for sender, to, _, about in self._declared_totals() for one in about)
        if self.launch.startswith("simulation"):
            marks.append(
                "Simulation: all parties ran as threads of one process, exchanging the same recorded messages."
            )
        if any(part.document.get("is_custom") for part in self.parts.values()) and "central" in self.evaluations:
            marks.append(
                "The model with all columns in one place uses the configured encoder: a custom one fits one party."
            )
        return tuple(marks)

    @cached_property
    def crossed(self) -> tuple[Crossed, ...]:
        """Return what every party's ledger says it sent, with the declaration's words beside it."""
        return tuple(
            Crossed(
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
            for sender, receiver, total, about in self._declared_totals()
        )

    def _declared_totals(self) -> Iterator[tuple[str, str, MessageTotal, list[Declaration]]]:
        """Give sender, receiver and totals of what crossed, with how it was declared."""
        roles = {party: self.plan.role_of(party) for party in self.plan.parties}
        # By sender too: a message may go both ways under one name, and tell other things in each direction.
        known: dict[tuple[str, str, str], list[Declaration]] = defaultdict(list)
        for one in self.declared:
            known[one.name, one.sender, one.protection].append(one)
        for party, ledger in self.ledgers.items():
            for total in ledger.summary():
                # What a party sent stands in its own ledger; where that is elsewhere, the receiver's has it too.
                if total.direction != "sent" and total.peer in self.ledgers:
                    continue
                sender, receiver = (party, total.peer) if total.direction == "sent" else (total.peer, party)
                own = known[total.message, roles.get(sender, ""), total.protection]
                fitting = [one for one in own if one.receiver == roles.get(receiver)]
                yield sender, receiver, total, fitting or known[total.message, ANYONE, total.protection]

    @cached_property
    def checked_ledgers(self) -> tuple[CheckedLedger, ...]:
        """Verify every ledger, compare every two, and return the outcome."""
        return tuple(
            CheckedLedger(
                party=party,
                entries=len(ledger.entries),
                head=ledger.head,
                verified=_holds(ledger.verify),
                agrees_with=tuple(
                    other
                    for other, theirs in self.ledgers.items()
                    if other != party and _holds(partial(compare, ledger, theirs))
                ),
            )
            for party, ledger in self.ledgers.items()
        )

    @cached_property
    def _trainings(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """Return the lines that tell of losses, by the party that wrote them and the phase.

        Who has labels knows losses; another party's own report has its own numbers, if any.
        """
        parts: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for party in sorted(self.history, key=lambda one: one not in self.label_holders):
            for line in self.history[party]:
                if "training_loss" in line:
                    parts.setdefault((party, str(line.get("phase", ""))), []).append(line)
        if any(phase for _, phase in parts):
            return dict(sorted(parts.items(), key=lambda one: float(one[1][0]["step"])))
        # Methods without phases have one training; where several parties know its loss, the first is enough.
        return dict(list(parts.items())[:1])

    @cached_property
    def curves(self) -> tuple[dict[str, Any], ...]:
        """Return losses by epoch; each point names its part, where training has several."""
        has_phases = any(phase for _, phase in self._trainings)
        return tuple(
            {
                "step": line["step"],
                "epoch": line["epoch"],
                "train_loss": line["training_loss"],
                "validation_loss": line.get("validation_loss"),
                **({"part": f"{phase} of {party}"} if has_phases else {}),
            }
            for (party, phase), lines in self._trainings.items()
            for line in lines
        )

    @cached_property
    def chosen_epoch(self) -> int | None:
        """Return the epoch whose model was kept, where training had one part and stopped early."""
        if len(self._trainings) != 1:
            return None
        (lines,) = self._trainings.values()
        # Without early stopping the last weights are kept, whatever the validation loss says, and nothing was best.
        return max((int(line["epoch"]) for line in lines if line.get("is_best")), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return everything that a report says, as JSON values."""
        method = self.method
        return {
            "name": self.plan.name,
            "title": self.title,
            "method": {
                "name": method.name,
                "title": method.title,
                "citation": method.citation,
                "roles": {role.name: role.holds for role in method.roles},
            },
            "created": self.started,
            "launch": self.launch,
            "version": method.version,
            "other_versions": self.other_versions,
            "seed": self.plan.seed,
            "digest": self.plan.digest(),
            "stage": self.plan.stage,
            "purpose": self.plan.purpose,
            "retention": self.plan.retention,
            "keep_until": None if self.plan.keep_until is None else self.plan.keep_until.isoformat(),
            "consents": {party: one and asdict(one) for party, one in self.consents.items()},
            "policies": {party: one and asdict(one) for party, one in self.rules.items()},
            "makes_model": self.makes_model,
            "duration_seconds": self.seconds,
            "settings": self.settings,
            "alignment": self.alignment,
            "marks": self.marks,
            "parties": [{"name": party, **about} for party, about in self.brought.items()],
            "rows": self.rows,
            "label": self.label,
            "evaluations": {name: one.to_json() for name, one in self.evaluations.items()},
            "served": self.served if self.evaluations else None,
            "gains": {name: asdict(one) for name, one in self.gains.items()},
            "alone_party": " and ".join(self.label_holders) or None,
            "curves": self.curves,
            "chosen_epoch": self.chosen_epoch,
            "findings": [asdict(one) for one in self.findings.values()],
            "crossed": [asdict(one) for one in self.crossed],
            "ledgers": [asdict(one) for one in self.checked_ledgers],
        }


def _holds(check: Callable[[], None]) -> bool:
    try:
        check()
    except LedgerBroken:
        return False
    return True
