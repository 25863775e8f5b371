"""Train FairVFL: all roles side by side.

One step: holders send codes of their columns, the aggregator makes one code of them and sends it to the label holder,
which returns the task's gradient. For each attribute the aggregator sends a protected code to its holder, whose
discriminator learns from it and returns gradients: first for the mapper, then, after the mapper has learned, for the
code. The aggregator goes back with the task's gradient less what the attributes' holders learned, and sends every
holder the gradient at its codes.
"""

from __future__ import annotations

import dataclasses
import secrets
from typing import Any

import numpy as np
import torch

from colonnade.data import batches
from colonnade.errors import ConfigError, WrongContent, did_you_mean
from colonnade.exchanges.epochs import Epochs, EpochVerdict
from colonnade.exchanges.holdings import first_seeds, scores_in_terms_of
from colonnade.methods.fairvfl.aggregator import AggregatorSide, Fusion
from colonnade.methods.fairvfl.config import AGGREGATOR, FairVFL
from colonnade.methods.fairvfl.findings import privacy_finding, protection_finding, ranking_finding, safeguard_finding
from colonnade.methods.fairvfl.maths import cooled_down, warmed_up
from colonnade.methods.fairvfl.messages import MARK_BYTES, Amounts, Mark, Offer
from colonnade.methods.fairvfl.sides import (
    Adversary,
    CodeSide,
    Learners,
    Places,
    TaskSide,
    own_attributes,
    own_columns,
)
from colonnade.methods.fairvfl.tasks import Ranking, Supervised, make_task
from colonnade.metrics import evaluate, headline
from colonnade.nn.regression import scores_of
from colonnade.privacy import SecretNoise
from colonnade.session import Channel, Finding, Holding, ModelPart, Result, Scores, Session

__all__ = [
    "ROWS_TO_JUDGE",
    "AggregatorTraining",
    "HolderTraining",
    "aggregator",
    "attribute_holder",
    "coders_among",
    "constant_quality",
    "document_of",
    "feature_holder",
    "label_holder",
    "label_side",
    "noise_of",
    "quality_of",
    "ranking_scores",
    "told_amounts",
]

ROWS_TO_JUDGE = 100
"""On fewer held-out rows a good model may look worse than a constant answer, and a fair one unfair."""
_REFUSED_TASK = (
    "This model was no better than a constant answer on held-out rows, so it is refused to be used: removing the "
    "attributes left nothing of the task. Train again with a lower removal_weight or more epochs; the stage sweep "
    "shows what each weight costs."
)


def feature_holder(session: Session, holding: Holding, config: FairVFL) -> Result:
    """Play a party that brings columns, and sensitive ones if it has any."""
    holder = HolderTraining(session, holding, config)
    if holder.code is None:
        raise ConfigError(
            f"'{session.party}' is a feature holder but has no column that its model could read. Check its table, or "
            "leave it out."
        )
    holder.train()
    return Result(holder.part(), findings=holder.findings())


def attribute_holder(session: Session, holding: Holding, config: FairVFL) -> Result:
    """Play a party that brings sensitive columns only."""
    holder = HolderTraining(session, holding, config)
    holder.train()
    return Result(holder.part(), findings=holder.findings())


def label_holder(session: Session, holding: Holding, config: FairVFL) -> Result:
    """Play the party that brings the labels, and columns if it has any."""
    holder, task = label_side(session, holding, config)
    split = holding.split
    test = holder.train()
    truth = task.labels[split.test]
    findings = (protection_finding(config), *holder.findings(), *safeguard(task, test, split.test, config))
    if isinstance(task, Ranking):
        findings = (*findings, ranking_finding(test, task.clicks[torch.from_numpy(split.test)]))
        scores = ranking_scores(test, split.test, task)
    else:
        values = scores_of(task.kind, test.double().numpy()) if len(test) else np.empty(0)
        scores = scores_in_terms_of(task.encoder, values, split.test, truth)
    is_refused = any(one.values.get("refused", False) for one in findings)
    return Result(holder.part(), scores, findings, refusal=_REFUSED_TASK if is_refused else "")


def aggregator(session: Session, holding: Holding, config: FairVFL) -> Result:
    """Play the party without rows that makes one code of all codes."""
    training = AggregatorTraining(session, config)
    training.play()
    return Result(training.part())


def label_side(session: Session, holding: Holding, config: FairVFL) -> tuple[HolderTraining, Supervised | Ranking]:
    """Say how much there is to do, and return the label holder's side of a training."""
    for party in config.locals:
        if party not in session.plan.parties:
            raise ConfigError(
                f"config.locals names '{party}', no party of this run. {did_you_mean(party, session.plan.parties)}"
            )
    task = make_task(session, holding, config, first_seeds(session, config.secret_start))
    split = holding.split
    session.channel(AGGREGATOR).send(Amounts(len(split.train), len(split.validation), len(split.test), task.outputs))
    return HolderTraining(session, holding, config, task), task


def quality_of(task: Supervised | Ranking, logits: torch.Tensor, rows: Places) -> tuple[str, float | None]:
    """Return the name and value of the number by which models of a task are compared; None where rows do not give it.

    Rows of one class have no AUC, and labels without spread no R².
    """
    if isinstance(task, Ranking):
        found = ranking_finding(logits, task.clicks[torch.from_numpy(rows)]).values
        return "auc", found.get("auc")
    values = scores_of(task.kind, logits.double().numpy())
    truth = task.encoder.encode(task.labels[rows])
    measured = evaluate(task.kind, truth, values, tuple(range(len(task.encoder.classes)))).metrics
    name = headline(task.kind)
    return name, measured.get(name)


def constant_quality(task: Supervised | Ranking, rows: Places) -> float:
    """Return what the same number would be for one answer for all rows."""
    if isinstance(task, Ranking) or task.kind == "binary":
        return 0.5
    if task.kind == "regression":
        return 0.0
    truth = task.encoder.encode(task.labels[rows])
    return float(np.bincount(np.asarray(truth, np.int64)).max() / len(rows))


def safeguard(task: Supervised | Ranking, logits: torch.Tensor, rows: Places, config: FairVFL) -> tuple[Finding, ...]:
    """Say whether the model is better than a constant answer, where there are rows enough to tell."""
    if len(rows) < ROWS_TO_JUDGE:
        return ()
    (measure, found), constant = quality_of(task, logits, rows), constant_quality(task, rows)
    if found is None:
        return ()
    is_refused = config.safeguard and found <= constant
    return (safeguard_finding(measure, found, constant, len(rows), is_refused),)


class AggregatorTraining:
    """The aggregator through a whole training."""

    def __init__(self, session: Session, config: FairVFL) -> None:
        self._session, self._config = session, config
        self.amounts = told_amounts(session)
        self.offers = {
            channel.peer: channel.receive(Offer, sensitive=config.attributes) for channel in session.all_channels
        }
        coders = [channel for channel in session.all_channels if self.offers[channel.peer].has_columns]
        seeds, noise = first_seeds(session, config.secret_start), noise_of(session, config)
        secret = session.secret("serving noise") if config.secret_start else _derived(session, "serving noise")
        fusion = Fusion(config, coders_among(session, coders), seeds("aggregator"), secret)
        self._owners, self._serving_key = _owners(session, config, self.offers), secret
        self.side = AggregatorSide(session, config, fusion, self._owners, self.amounts.outputs, seeds, noise)
        self._model = secrets.token_hex(MARK_BYTES)

    def play(self) -> None:
        """Play all steps, score test rows, and give the model its name."""
        session, config, side, rows = self._session, self._config, self.side, self.amounts.train
        epochs = Epochs.begin(session, side.learners, rows, config)
        while not epochs.is_over:
            for start in range(epochs.steps_done(session) * config.batch_size, rows, config.batch_size):
                session.next_step()
                side.learners.set_rate(_rate(session, config, epochs))
                side.step(min(config.batch_size, rows - start), _share(session, config, epochs))
                epochs.keep_between_epochs(session, side.learners)
            epochs.end_epoch(session, side.learners, EpochVerdict(True, epochs.epoch + 1 >= config.epochs))
        side.score(self.amounts.test)
        for channel in session.all_channels:
            channel.send(Mark(self._model))

    def part(self) -> ModelPart:
        """Return what the aggregator keeps."""
        tensors = {f"learned/{key}": value for key, value in self.side.learner.weights().items()}
        for mapper in self.side.mappers:
            tensors |= {f"mapper/{mapper.name}/{key}": value for key, value in mapper.learner.weights().items()}
        document = document_of(self._session, self._config) | {
            "model": self._model,
            "coders": [channel.peer for channel in self.side.fusion.coders],
            "attributes": {attribute: channel.peer for attribute, channel in self._owners},
            "outputs": self.amounts.outputs,
            "serving_key": self._serving_key.hex(),
        }
        return ModelPart(tensors, document)


class HolderTraining:
    """A party with rows: its local model, its adversaries, and the task if the labels are its own."""

    def __init__(
        self, session: Session, holding: Holding, config: FairVFL, task: Supervised | Ranking | None = None
    ) -> None:
        self._session, self._holding, self._config = session, holding, config
        seeds = first_seeds(session, config.secret_start)
        attributes = own_attributes(session, holding, config)
        coder = None if session.role == "attribute_holder" else own_columns(session, holding, config)
        session.channel(AGGREGATOR).send(Offer(coder is not None, tuple(one.name for one in attributes), ""))
        self.code = None
        if coder is not None:
            inputs = coder.transform(holding.table, holding.aligned.positions)
            self.code = CodeSide(session, config, coder, inputs, seeds)
        self.task = None if task is None else TaskSide(session, config, task)
        self.adversaries = [
            Adversary(session, config, one, seeds, noise_of(session, config, one.name))
            for one in attributes
            if one.name in config.removed
        ]
        budgets = {one.attribute.name: one.budget for one in self.adversaries if one.budget is not None}
        against = {f"bias/{one.attribute.name}": one.learner for one in self.adversaries}
        self.learners = Learners(self._model_learners(), against, budgets)
        self._model = ""

    def train(self) -> torch.Tensor:
        """Play all steps, and score test rows; return the scores at the party that may know them."""
        session, config, split = self._session, self._config, self._holding.split
        epochs = Epochs.begin(session, self.learners, len(split.train), config)
        if self.task is not None:
            self.task.loss_so_far = epochs.loss_so_far
        while not epochs.is_over:
            seed = session.seed("batches", epochs.epoch)
            order = np.concatenate(list(batches(split.train, config.batch_size, seed)))
            for start in range(epochs.steps_done(session) * config.batch_size, len(order), config.batch_size):
                session.next_step()
                self.learners.set_rate(_rate(session, config, epochs))
                self._step(order[start : start + config.batch_size], _share(session, config, epochs))
                epochs.loss_so_far = 0.0 if self.task is None else self.task.loss_so_far
                epochs.keep_between_epochs(session, self.learners)
            if self.task is not None:
                # Models that are trained for comparison have no place among the learning curves of a run.
                name = "training_loss" if session.stage == "train" else "loss_of_comparison"
                session.record(epoch=epochs.epoch + 1, **{name: self.task.loss_so_far / len(order)})
                self.task.loss_so_far = 0.0
            epochs.end_epoch(session, self.learners, EpochVerdict(True, epochs.epoch + 1 >= config.epochs))
        found = self._score(split.test)
        self._model = session.channel(AGGREGATOR).receive(Mark).name
        return found

    def part(self) -> ModelPart:
        """Return what this party keeps."""
        document = document_of(self._session, self._config) | {"model": self._model}
        tensors: dict[str, torch.Tensor] = {}
        read: list[str] = []
        if self.code is not None:
            tensors |= self.code.learner.weights()
            document["coder"] = self.code.coder.to_json()
            read += self.code.coder.columns
        if self.task is not None:
            document |= self.task.task.document()
            read += self.task.task.columns
            for learner in self.task.task.learners():
                tensors |= learner.weights()
        for one in self.adversaries:
            tensors |= {f"{one.attribute.name}/{key}": value for key, value in one.learner.weights().items()}
        # In a table of a few new rows a category may look like a number.
        document["types"] = {one.name: one.kind for one in self._holding.table.all_columns if one.name in read}
        return ModelPart(tensors, document)

    def findings(self) -> tuple[Any, ...]:
        """Say what the attributes' values cost."""
        return () if not self.adversaries else (privacy_finding(self._config, self.adversaries),)

    def _step(self, batch: Places, share: float) -> None:
        if self.code is not None:
            self.code.send(batch)
        if self.task is not None:
            self.task.answer(batch)
        if share > 0.0:
            for one in self.adversaries:
                one.learn(batch)
            if self._config.mapper_step != "merged":
                for one in self.adversaries:
                    one.answer(batch)
        if self.code is not None:
            self.code.learn()

    def received(self, rows: Places) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scores of rows that are only scored, and what came of them, at the party that may know them."""
        return (torch.empty(0), torch.empty(0)) if self.task is None else self.task.receive_all(rows)

    def _score(self, rows: Places) -> torch.Tensor:
        if self.code is not None:
            self.code.send_all(rows)
        return self.received(rows)[0]

    def _model_learners(self) -> dict[str, Any]:
        found: dict[str, Any] = {} if self.code is None else {"code": self.code.learner}
        if self.task is not None:
            found |= {f"task {number}": one for number, one in enumerate(self.task.task.learners())}
        return found


def ranking_scores(logits: torch.Tensor, rows: Places, task: Ranking | None) -> Scores:
    """Return how likely each candidate is to be chosen: classes are the candidates' places."""
    values = torch.softmax(logits.double(), dim=1).numpy()
    truth = None if task is None else task.clicks[torch.from_numpy(rows)].clamp(min=0).argmax(dim=1).numpy()
    classes = tuple(f"candidate {place}" for place in range(1, logits.shape[1] + 1))
    return Scores("multiclass", rows, values, truth, classes)


def _share(session: Session, config: FairVFL, epochs: Epochs) -> float:
    """Return how much of its weight removal has at this step; 0 where attributes are left alone."""
    step = session.step - epochs.first_step
    if not config.removed or step % config.adversary_every:
        return 0.0
    return config.adversary_every * warmed_up(step, epochs.steps_per_epoch, config.warm_up)


def _rate(session: Session, config: FairVFL, epochs: Epochs) -> float:
    """Return the model's learning rate at this step."""
    step, steps = session.step - epochs.first_step, epochs.steps_per_epoch * config.epochs
    return config.learning_rate * cooled_down(step, steps, config.cool_down)


def told_amounts(session: Session) -> Amounts:
    """Receive how much the label holder says there is to do."""
    return session.channel("label_holder").receive(Amounts, fewest_rows=int(session.stage == "train"))


def coders_among(session: Session, coders: list[Channel]) -> list[Channel]:
    """Check that somebody brings columns."""
    wrong = [channel for channel in coders if channel.peer_role == "attribute_holder"]
    if wrong:
        raise WrongContent(f"'{wrong[0].peer}' plays attribute_holder and offers columns.")
    if not coders:
        raise ConfigError("No party of this run has columns to learn from. Give one of them columns.")
    return coders


def _owners(session: Session, config: FairVFL, offers: dict[str, Any]) -> list[tuple[str, Channel]]:
    """Return, for each attribute that is removed, the channel to the one party that has it."""
    channels = {channel.peer: channel for channel in session.all_channels}
    found = []
    for attribute in config.attributes:
        having = [party for party, one in offers.items() if attribute in one.attributes]
        if len(having) != 1:
            who = "no party" if not having else " and ".join(having)
            raise ConfigError(
                f"config.attributes names '{attribute}', which {who} of this run has. Exactly one party must have it."
            )
        if attribute in config.removed:
            found.append((attribute, channels[having[0]]))
    return found


def noise_of(session: Session, config: FairVFL, about: str = "") -> SecretNoise:
    """Return this party's noise: secret, or, for runs that must repeat, derived from the run's seed."""
    purpose = f"noise/{about}"
    return SecretNoise(session.secret(purpose) if config.secret_start else _derived(session, purpose))


def _derived(session: Session, purpose: str) -> bytes:
    return b"".join(session.own_seed(purpose, counter).to_bytes(8, "little") for counter in range(4))


def document_of(session: Session, config: FairVFL) -> dict[str, Any]:
    """Return what every part is kept with."""
    return {
        "method": "fairvfl",
        "role": session.role,
        "party": session.party,
        "config": dataclasses.asdict(config),
    }
