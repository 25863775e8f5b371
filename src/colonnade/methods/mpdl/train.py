"""Learn generators and the classifier, compare with shared rows alone, and keep the better: all roles side by side.

For some parts of the shared rows in turn: generators and two classifiers learn from the other parts, one of them also
from completed rows, and both are judged on the part. In the end all is learned once more from all shared rows.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from colonnade.errors import ConfigError, WrongContent
from colonnade.exchanges.course import Course
from colonnade.exchanges.holdings import first_seeds, own_part, scores_in_terms_of
from colonnade.exchanges.labels import OwnLabels, own_labels
from colonnade.exchanges.masked_sums import Collector, Contributor
from colonnade.methods.mpdl.asking import AskedSegments, Asking
from colonnade.methods.mpdl.central import CollaboratorSide, HolderSide, LabelSide, receive_scores, train_central
from colonnade.methods.mpdl.choice import (
    SHARED,
    SPOKEN,
    Comparison,
    Quality,
    budget_finding,
    generator_finding,
    quality_of,
    situations_finding,
)
from colonnade.methods.mpdl.completion import Completion, RowsOf
from colonnade.methods.mpdl.config import COLLABORATOR, COMPLETED, JOINT, MPDL
from colonnade.methods.mpdl.dual import DualLearning, Others, exchange_tables
from colonnade.methods.mpdl.messages import MOST_ROWS, Choice, Columns, FoldVerdict, RowOrder, Schedule
from colonnade.methods.mpdl.networks import hidden_width
from colonnade.methods.mpdl.pictures import MOST_PICTURES, pictures_finding
from colonnade.methods.mpdl.rows import OwnTable, Places, fold_parts, own_table
from colonnade.nn import tensors_under
from colonnade.nn.regression import scores_of
from colonnade.session import Channel, Finding, Holding, ModelPart, Result, Session

__all__ = ["MODELS", "collaborator", "feature_holder", "label_holder", "told_columns"]

Scored = dict[tuple[str, str], torch.Tensor]
"""Scores of rows, by who knows them and by model."""

MODELS = (JOINT, COMPLETED)
_MOST_NUMBERS = 2**31
_GENERATOR = "generator"


def feature_holder(session: Session, holding: Holding, config: MPDL) -> Result:
    """Play a party that brings columns."""
    peer = session.channel("label_holder")
    table = own_table(session, holding, config)
    peer.send(Columns(table.space.own_width, table.space.common_digest))
    # Rows of the label holder stand for nothing here, but take memory.
    amounts = peer.receive(Schedule, most_own=min(MOST_ROWS, _MOST_NUMBERS // table.space.width))
    found = tuple(map(len, (table.shared, table.validation, table.test)))
    if (amounts.shared, amounts.validation, amounts.test) != found:
        raise WrongContent(f"'{peer.peer}' announces other shared rows than were found together.")
    holder = _Holder(session, holding, config, table, amounts)
    if session.stage == "dual":
        holder.learn_generator(np.arange(amounts.shared), "final", 0)
        return Result(ModelPart(*holder.part({})), findings=holder.findings())
    for place, part in enumerate(holder.parts):
        if not holder.course.is_done(_fold(place)):
            holder.judge_fold(place, part)
            holder.end_fold(place, peer.receive(FoldVerdict).is_enough)
        if holder.is_enough(place):
            break
    sides = holder.learn_all()
    holder.score_held_out(sides)
    tensors, document = holder.part(sides)
    document |= _told_choice(session)
    return Result(ModelPart(tensors, document), findings=holder.findings())


def label_holder(session: Session, holding: Holding, config: MPDL) -> Result:
    """Play the party that brings columns and labels."""
    table = own_table(session, holding, config)
    learned, held_out = np.concatenate([table.shared, table.own]), np.concatenate([table.validation, table.test])
    labels = own_labels(session, holding, config.task, config.precision, learned, held_out)
    amounts = _announce(session, config, table, labels)
    holder = _LabelHolder(session, holding, config, table, amounts, labels)
    if session.stage == "dual":
        holder.learn_generator(np.arange(amounts.shared), "final", 0)
        return Result(ModelPart(*holder.part({})), findings=holder.findings())
    for place, part in enumerate(holder.parts):
        if not holder.course.is_done(_fold(place)):
            gain = holder.compare(table.shared[part], holder.judge_fold(place, part))
            for peer in session.all_channels:
                peer.send(FoldVerdict(gain > config.fold_gain))
            holder.end_fold(place, gain > config.fold_gain)
        if holder.is_enough(place):
            break
    sides = holder.learn_all()
    validation, test = holder.score_held_out(sides)
    if len(table.validation):
        holder.compare(table.validation, validation)
    chosen, mark = holder.comparison.chosen, secrets.token_hex(8)
    for peer in session.all_channels:
        peer.send(Choice(chosen, mark))
    tensors, document = holder.part(sides)
    document |= {"chosen": chosen, "mark": mark, "label_encoder": labels.encoder.to_json()}
    logits = test[SHARED, chosen].numpy()
    values = scores_of(labels.task, logits) if len(logits) else np.empty(0)
    truth = labels.values[table.test]
    scores = scores_in_terms_of(labels.encoder, values, holding.split.test, truth)
    findings = (*holder.verdicts(test), *holder.findings())
    return Result(ModelPart(tensors, document), scores, findings)


def collaborator(session: Session, holding: Holding, config: MPDL) -> Result:
    """Play the party that adds up and has the upper layers."""
    peer = session.channel("label_holder")
    amounts = peer.receive(Schedule, most_own=MOST_ROWS)
    course, collector = Course(session), Collector(session)
    parts = fold_parts(amounts.shared, config) if session.stage == "train" else []
    seeds = first_seeds(session, config.secret_start)
    holders = len(session.plan.roles["feature_holder"])
    _expect_steps(session, config, amounts, parts, holders)

    def learn(name: str, model: str, learned: int) -> CollaboratorSide:
        side = CollaboratorSide(session, config, amounts.hidden, amounts.outputs, collector, seeds(f"{name}/upper"))
        train_central(session, course, name, side, _rows_for(model, amounts, learned, config, holders), config)
        return side

    for place, part in enumerate(parts):
        if not course.is_done(_fold(place)):
            for model in MODELS:
                learn(f"{_fold(place)}/{model}", model, amounts.shared - len(part)).send_scores(len(part))
            _end_fold(course, place, peer.receive(FoldVerdict).is_enough)
        if course.noted(_fold(place))[1]["is_enough"]:
            break
    sides = {model: learn(model, model, amounts.shared) for model in MODELS}
    for side in sides.values():
        side.send_scores(amounts.validation)
        side.send_scores(amounts.test)
    for channel in session.all_channels:
        if config.completes_alone(channel.peer_role):
            sides[COMPLETED].send_scores_alone(channel, amounts.test)
    tensors = {
        f"{model}/{key}": value for model, side in sides.items() for key, value in side.learner.weights().items()
    }
    document = _document(session, config) | {"hidden": amounts.hidden, "outputs": amounts.outputs}
    return Result(ModelPart(tensors, document | _told_choice(session)))


class _Holder:
    """A party with columns, through all trainings of a run."""

    def __init__(self, session: Session, holding: Holding, config: MPDL, table: OwnTable, amounts: Schedule) -> None:
        self._session, self._config, self._table, self._amounts = session, config, table, amounts
        self._seeds = first_seeds(session, config.secret_start)
        self.course = Course(session)
        self._order = 0 if session.stage == "dual" else _row_order(session, self._seeds)
        self.parts = [] if session.stage != "train" else fold_parts(amounts.shared, config, self._order)
        holders = len(session.plan.roles["feature_holder"])
        if session.stage != "dual":
            _expect_steps(session, config, amounts, self.parts, holders)
        self._contributor = None if session.stage == "dual" else Contributor.agree(session)
        self._others = self._other_columns(holding)
        self._dual = DualLearning(session, config, table, self._others)
        if session.stage == "central":
            self._dual.generator.load(tensors_under(f"{_GENERATOR}/", own_part(session, holding).tensors))
        self.completion = Completion(
            session, config, table.space, table.units, table.scale, self._others, self._dual.generator
        )
        self.comparison = Comparison()
        self._asking: Asking | None = None
        if config.completion == "secure_block" and session.stage != "dual":
            self._asking = Asking.prepare(session, config, self.completion, amounts.hidden)

    def learn_generator(self, rows: Places, name: str, counter: int) -> None:
        """Learn from these shared rows, unless that was done before the run was taken up again."""
        if self._session.stage == "central":
            self.completion.measure(self._table.shared)
            return
        is_done = self.course.is_done(_GENERATOR) and self.course.noted(_GENERATOR)[1]["after"] == name
        if self.course.is_done(_GENERATOR):
            tensors, document = self.course.noted(_GENERATOR)
            self._dual.generator.load_state(tensors, document["state"])
        if not is_done:
            self._dual.learn(rows, name, counter)
            tensors, state = self._dual.generator.state()
            kept = {key: value.clone() for key, value in tensors.items()}
            self.course.note(_GENERATOR, {"after": name, "state": state}, kept)
        self.completion.generator = self._dual.generator
        self.completion.measure(self._table.shared[rows])

    def judge_fold(self, place: int, part: Places) -> Scored:
        """Train both models without a part of the shared rows, and score that part."""
        learned = np.setdiff1d(np.arange(self._amounts.shared), part)
        self.learn_generator(learned, _fold(place), place)
        found: Scored = {}
        for model in MODELS:
            side = self._learn(f"{_fold(place)}/{model}", model, learned)
            found |= self._score(side, model, self._table.shared[part])
        return found

    def end_fold(self, place: int, is_enough: bool) -> None:
        """Note that a part was tried."""
        _end_fold(self.course, place, is_enough, self.comparison.to_json())

    def is_enough(self, place: int) -> bool:
        """Tell whether no further part need be tried, after a part that was."""
        document = self.course.noted(_fold(place))[1]
        self.comparison = Comparison.from_json(document["rounds"])
        return bool(document["is_enough"])

    def learn_all(self) -> dict[str, HolderSide]:
        """Train both models on all shared rows."""
        every = np.arange(self._amounts.shared)
        self.learn_generator(every, "final", len(self.parts))
        return {model: self._learn(model, model, every) for model in MODELS}

    def score_held_out(self, sides: dict[str, HolderSide]) -> tuple[Scored, Scored]:
        """Score validation and test rows in all situations, with both models."""
        validation: Scored = {}
        test: Scored = {}
        for model, side in sides.items():
            validation |= self._score(side, model, self._table.validation)
            test |= self._score(side, model, self._table.test)
        return validation, test | self._score_alone(sides[COMPLETED])

    def findings(self) -> tuple[Finding, ...]:
        """Say what was released and how well columns can be generated."""
        is_noised = self._config.mechanism != "none"
        found = [] if self._session.stage == "central" else [budget_finding(self._table)]
        if self._others.values is not None and self._session.stage != "central":
            generated = self._dual.generate(self._table.units[torch.from_numpy(self._table.shared)])
            names = tuple(name for names in self._others.names for name in names)
            found.append(generator_finding(names, generated, self._others.values, is_noised=is_noised))
        own = self._table.units[torch.from_numpy(self._table.own[:MOST_PICTURES])]
        names = tuple(name for names in self._others.names for name in names)
        shown = pictures_finding(self._config, own, self._table.space.names, self._dual.generate(own), names)
        return (*found, shown) if shown is not None else tuple(found)

    def part(self, sides: dict[str, HolderSide]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return what this party keeps."""
        table, generated = self._table, self.completion.generated_scale
        tensors = {f"{_GENERATOR}/{key}": value for key, value in self._dual.generator.tensors().items()}
        tensors |= {"scale/mean": table.scale.mean, "scale/spread": table.scale.spread}
        if generated is not None:
            tensors |= {"generated/mean": generated.mean, "generated/spread": generated.spread}
        for model, side in sides.items():
            tensors |= {f"{model}/{key}": value for key, value in side.learner.weights().items()}
        document = _document(self._session, self._config) | {
            "types": table.space.types,
            "space": table.space.to_json(),
            "others": [list(names) for names in self._others.names],
            "hidden": self._amounts.hidden,
            "outputs": self._amounts.outputs,
        }
        return tensors, document

    def _other_columns(self, holding: Holding) -> Others:
        if self._session.stage != "central":
            return exchange_tables(self._session, self._config, self._table)
        peers = [channel.peer for channel in self._session.all_channels if channel.peer_role != COLLABORATOR]
        names = own_part(self._session, holding).document["others"]
        return Others(tuple(peers), tuple(tuple(one) for one in names), None)

    def _learn(self, name: str, model: str, learned: Places) -> HolderSide:
        rows = RowsOf(self._table.shared[learned], self._own_rows())
        side = self._side(name, model, self.completion.inputs(model, rows), learned)
        if self._asking is not None and model == COMPLETED:
            side.seal(AskedSegments(self._asking, self.completion.owned(model, rows)))
        total = _rows_for(
            model, self._amounts, len(learned), self._config, len(self._session.plan.roles["feature_holder"])
        )
        train_central(self._session, self.course, name, side, total, self._config, self._order)
        return side

    def _own_rows(self) -> Places:
        return np.zeros(self._amounts.own, np.int64)

    def _side(self, name: str, model: str, inputs: torch.Tensor, learned: Places) -> HolderSide:
        return HolderSide(
            self._session, self._config, inputs, self._amounts.hidden, self._mask(), self._block_seed(name)
        )

    def _block_seed(self, name: str) -> int:
        if self._config.kernels == "tied":
            # Kernels that are tied start alike, so all holders must know them.
            return self._session.seed(f"{name}/block")
        return self._seeds(f"{name}/block")

    def _mask(self) -> Contributor:
        if self._contributor is None:
            raise ConfigError("This stage has no collaborator to contribute to.")
        return self._contributor

    def _score(self, side: HolderSide, model: str, rows: Places) -> Scored:
        """Contribute to rows that all holders know."""
        side.contribute(self.completion.whole_with(rows, model))
        return {}

    def _score_alone(self, side: HolderSide) -> Scored:
        """Give test rows as if only this holder knew them: with its columns and what it generates, nothing else."""
        if self._config.completes_alone(self._session.role):
            side.contribute_alone(self.completion.alone(self._table.test, COMPLETED))
        return {}


class _LabelHolder(_Holder):
    """The party with columns that also has the labels."""

    def __init__(
        self,
        session: Session,
        holding: Holding,
        config: MPDL,
        table: OwnTable,
        amounts: Schedule,
        labels: OwnLabels,
    ) -> None:
        super().__init__(session, holding, config, table, amounts)
        self._labels = labels

    def compare(self, rows: Places, scores: Scored) -> float:
        """Judge both models on some rows, and return what completed rows gained."""
        return self.comparison.add(self._qualities(rows, scores)[SHARED])

    def verdicts(self, scores: Scored) -> tuple[Finding, ...]:
        """Say which model is used and why, and how good it is for whom."""
        found = [self.comparison.finding(self._config, self._labels.task)]
        if len(self._table.test):
            qualities = self._qualities(self._table.test, scores)
            found.append(situations_finding(self._labels, qualities, self.comparison))
        return tuple(found)

    def _qualities(self, rows: Places, scores: Scored) -> dict[str, dict[str, Quality]]:
        targets = self._labels.targets[torch.from_numpy(rows)]
        found: dict[str, dict[str, Quality]] = {}
        for (situation, model), logits in scores.items():
            found.setdefault(situation, {})[model] = quality_of(self._labels, logits, targets)
        return found

    def _alone(self) -> list[str]:
        """Return the holders that can score rows by themselves, in the agreed order."""
        role_of = self._session.plan.role_of
        return [party for party in _holders(self._session) if self._config.completes_alone(role_of(party))]

    def _own_rows(self) -> Places:
        return self._table.own

    def _side(self, name: str, model: str, inputs: torch.Tensor, learned: Places) -> HolderSide:
        own, table = self._labels.targets, self._table
        shared = own[torch.from_numpy(table.shared[learned])]
        parts, weights = [shared], [torch.ones(len(shared))]
        if model == COMPLETED:
            copies = len(self._session.plan.roles["feature_holder"]) if self._config.augment else 0
            parts += [own[torch.from_numpy(table.own)], *[shared] * copies]
            weights += [self._weight() * torch.ones(len(table.own)), *[torch.ones(len(shared))] * copies]
        return LabelSide(
            self._session,
            self._config,
            inputs,
            self._amounts.hidden,
            self._mask(),
            self._block_seed(name),
            self._labels,
            torch.cat(parts),
            torch.cat(weights).to(inputs.dtype),
            ", ".join([*name.split("/")[:-1], SPOKEN[model]]),
        )

    def _weight(self) -> float:
        """Return how much a completed row counts: less, the worse its columns can be generated."""
        if self._config.completed_weight == "equal" or self._others.values is None:
            return 1.0
        generated = self._dual.generate(self._table.units[torch.from_numpy(self._table.shared)]).double()
        spread = torch.nanmean((self._others.values - torch.nanmean(self._others.values, dim=0)) ** 2)
        variance = torch.nanmean((generated - self._others.values) ** 2)
        return float(1.0 / (1.0 + variance / spread.clamp(min=1e-12)))

    def _score(self, side: HolderSide, model: str, rows: Places) -> Scored:
        super()._score(side, model, rows)
        return {(SHARED, model): receive_scores(side, self._labels.outputs, len(rows))}

    def _score_alone(self, side: HolderSide) -> Scored:
        super()._score_alone(side)
        rows = len(self._table.test)
        return {(party, COMPLETED): receive_scores(side, self._labels.outputs, rows) for party in self._alone()}


def _announce(session: Session, config: MPDL, table: OwnTable, labels: OwnLabels) -> Schedule:
    """Gather how many columns there are, and tell all others how much there is to do."""
    inputs = table.space.width
    for peer in session.channels("feature_holder"):
        inputs += told_columns(session, peer, table)
    hidden = hidden_width(config, inputs, labels.outputs)
    rows = (len(table.shared), len(table.validation), len(table.test), len(table.own))
    amounts = Schedule(*rows, hidden, labels.outputs)
    for peer in session.all_channels:
        peer.send(amounts)
    return amounts


def _row_order(session: Session, seeds: Callable[..., int]) -> int:
    """Return the seed of folds and batches, which the label holder draws and tells the other holders."""
    if session.role == "label_holder":
        order = (seeds("row order") >> 1) % 2**63
        for peer in session.channels("feature_holder"):
            peer.send(RowOrder(order))
        return order
    return session.channel("label_holder").receive(RowOrder).seed


def told_columns(session: Session, peer: Channel, table: OwnTable) -> int:
    """Return how many columns a feature holder brings, and make sure that those which all have are the same."""
    told = peer.receive(Columns)
    if told.common != table.space.common_digest:
        raise ConfigError(
            f"Columns that all holders have (config.common_columns) are others at '{peer.peer}' than at "
            f"'{session.party}': names, bounds and categories must be the same. Correct the settings, or the tables."
        )
    return told.own


def _expect_steps(session: Session, config: MPDL, amounts: Schedule, parts: list[Places], holders: int) -> None:
    total = 0
    for learned in [*(amounts.shared - len(part) for part in parts), amounts.shared]:
        for model in MODELS:
            total += -(-_rows_for(model, amounts, learned, config, holders) // config.batch_size) * config.epochs
    session.expect_steps(total)


def _rows_for(model: str, amounts: Schedule, learned: int, config: MPDL, feature_holders: int) -> int:
    """Return how many rows a classifier learns from, of whatever kind."""
    if model == JOINT:
        return learned
    return learned * (1 + (feature_holders if config.augment else 0)) + amounts.own


def _fold(place: int) -> str:
    return f"fold {place + 1}"


def _end_fold(course: Course, place: int, is_enough: bool, rounds: list[dict[str, Any]] | None = None) -> None:
    for model in MODELS:
        course.forget(f"{_fold(place)}/{model}")
    course.note(_fold(place), {"is_enough": bool(is_enough), "rounds": rounds or []})


def _holders(session: Session) -> tuple[str, ...]:
    """Return the parties that bring columns, in the agreed order."""
    return tuple(party for party in session.plan.parties if session.plan.role_of(party) != COLLABORATOR)


def _told_choice(session: Session) -> dict[str, Any]:
    """Return which models the label holder chose, and the mark of this training."""
    told = session.channel("label_holder").receive(Choice)
    return {"chosen": told.model, "mark": told.mark}


def _document(session: Session, config: MPDL) -> dict[str, Any]:
    return {
        "method": "mpdl",
        "role": session.role,
        "party": session.party,
        "config": dataclasses.asdict(config),
    }
