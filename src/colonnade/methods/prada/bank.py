"""A bank's side of all lessons: its rows, its own weights and its half of the scoring layer."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colonnade.crypto import PublicKey
from colonnade.data import StepEncoder
from colonnade.errors import TableError, WrongContent
from colonnade.exchanges.epochs import EpochVerdict, check_finite
from colonnade.exchanges.holdings import fit_labels, table_labels
from colonnade.exchanges.public_keys import receive_key
from colonnade.methods.prada.config import PrADA
from colonnade.methods.prada.head import STEEPEST, BankHead, ClearBankHead, SealedBankHead, head_format
from colonnade.methods.prada.labels import Labels
from colonnade.methods.prada.lessons import Course, Lesson, Phase, batches_of, phase_of
from colonnade.methods.prada.messages import HOLDER, GroupNames, LabelledRows
from colonnade.nn import tensors_under
from colonnade.nn.regression import OwnWeights
from colonnade.privacy import SecretNoise
from colonnade.session import Channel, Holding, ModelPart, Session

__all__ = ["LARGEST_COLUMN", "Bank", "BankModel", "bank_head", "cut_off", "own_start"]

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

LARGEST_COLUMN = 64.0
"""A bank's own columns are cut off here, in standard deviations."""


def cut_off(columns: Numbers) -> Numbers:
    """Bring a bank's own columns into a range in which no single row decides."""
    return np.clip(columns, -LARGEST_COLUMN, LARGEST_COLUMN)


def own_start(
    session: Session, phase: Phase, peer: str, shape: tuple[int, int], *, is_secret: bool, constant: int = 0
) -> Numbers:
    """Return one party's part of a layer's initial weights: a draw of its own, and a constant in the first so many."""
    purpose = f"start/{phase.name}/{peer}"
    if is_secret:
        draw = 0.05 * SecretNoise(session.secret(purpose)).gaussian(purpose, 0, shape)
    else:
        draw = np.random.default_rng(session.own_seed(purpose)).normal(0.0, 0.05, shape)
    draw[:constant] += phase.start
    return draw


def bank_head(config: PrADA, peer: Channel, key: PublicKey | None, inputs: int, scores: int) -> BankHead:
    """Return a bank's half of a scoring layer."""
    if key is None:
        return ClearBankHead(peer, inputs, scores, config.momentum)
    return SealedBankHead(peer, head_format(config, inputs, scores), key, config.momentum)


class BankModel:
    """What a bank trains in one phase, and the best of it so far."""

    def __init__(self, head: BankHead, own: OwnWeights, inputs: int) -> None:
        self.head, self.own, self.inputs = head, own, inputs
        self.best: tuple[dict[str, Any], dict[str, torch.Tensor]] | None = None
        self.best_goodness: float | None = None
        self.epochs_since_best = 0

    def keep_best(self) -> None:
        """Remember everything as it is now."""
        self.best = (copy.deepcopy(self.head.state()), self.own.tensors())

    def restore_best(self) -> None:
        """Go back to what was remembered."""
        if self.best is not None:
            self.head.load_state(self.best[0])
            self.own.load(self.best[1])

    def judge(self, goodness: float | None, phase: Phase, epoch: int) -> tuple[bool, bool]:
        """Decide whether these weights are kept and whether the phase is over."""
        is_best = goodness is None or not phase.patience or self.best_goodness is None or goodness > self.best_goodness
        if is_best:
            self.best_goodness, self.epochs_since_best = goodness, 0
            self.keep_best()
        else:
            self.epochs_since_best += 1
        stops = phase.patience > 0 and self.epochs_since_best >= phase.patience
        return is_best, stops or epoch + 1 >= phase.epochs

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return what a checkpoint needs."""
        tensors = {f"now/{name}": value for name, value in self.own.tensors().items()}
        document: dict[str, Any] = {
            "head": self.head.state(),
            "best_goodness": self.best_goodness,
            "epochs_since_best": self.epochs_since_best,
            "best_head": None,
        }
        if self.best is not None:
            tensors |= {f"best/{name}": value for name, value in self.best[1].items()}
            document["best_head"] = self.best[0]
        return tensors, document

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.head.load_state(document["head"])
        self.own.load(tensors_under("now/", tensors))
        if document["best_head"] is not None:
            self.best = (document["best_head"], tensors_under("best/", tensors))
        self.best_goodness, self.epochs_since_best = document["best_goodness"], document["epochs_since_best"]


class Bank:
    """A source or a target in training."""

    def __init__(self, session: Session, holding: Holding, config: PrADA) -> None:
        self.session, self.config = session, config
        self.peer = session.channel(HOLDER)
        pair = holding.pair(self.peer.peer)
        positions, split = pair.aligned.positions, pair.split
        values = table_labels(session, holding)[positions]
        self.known = np.flatnonzero(holding.table.is_labelled[positions])
        self.training, self.validation, self.test = (
            np.intersect1d(part, self.known) for part in (split.train, split.validation, split.test)
        )
        if len(self.training) < 2:
            raise TableError(
                f"{len(self.training)} of the {len(split.train)} training rows that '{session.party}' shares with the "
                "feature holder have a label. Label at least two, or lower what evaluate holds out."
            )
        self.encoder, self.columns = _own_columns(holding, config, positions, split.train)
        held_out = np.concatenate([self.validation, self.test])
        labels = fit_labels(session, holding, config.task, positions[self.training], positions[held_out])
        self.labels = Labels(session, config, labels, values, self.known)
        self.truth = values
        self.key = receive_key(session, self.peer, config.key_size) if config.is_sealed else None
        novelties = config.novelties if session.role == "target" else 0
        announced = self.peer.receive(GroupNames, aggregate=config.aggregate, novelties=novelties)
        self.groups, self.new = announced.names, announced.new
        if not set(self.new) <= set(self.groups):
            raise WrongContent(f"'{self.peer.peer}' announces new categories of groups that it does not have.")
        self.peer.send(LabelledRows(self.known, self.labels.scores))
        self.models: dict[str, BankModel] = {}
        self.cut = 0
        """How many steps were too large and cut off."""

    def inputs(self, phase: str) -> int:
        """Return how many numbers the feature holder gives per row."""
        return len(self.groups) * self.config.aggregate + (len(self.new) if phase == "finetune" else 0)

    def model(self, phase: str) -> BankModel:
        """Return what is trained in a phase."""
        if phase not in self.models:
            scores = self.labels.scores
            head = bank_head(self.config, self.peer, self.key, self.inputs(phase), scores)
            own = OwnWeights(self.columns.shape[1], scores, self.config.momentum)
            self.models[phase] = BankModel(head, own, self.inputs(phase))
        return self.models[phase]

    def learn(self, course: Course, lesson: Lesson, keep: Any) -> None:
        """Take one lesson, from where it stands to its end."""
        session, config, phase = self.session, self.config, phase_of(self.config, lesson.phase)
        model = self.model(lesson.phase)
        if course.begins:
            shape = (self.inputs(lesson.phase), self.labels.scores)
            start = own_start(session, phase, self.peer.peer, shape, is_secret=config.secret_start)
            model.head.open(start)
        left = batches_of(session, phase, session.party, self.training, lesson.epoch)
        total, rows = 0.0, 0
        for number, places in left[course.batch :]:
            session.next_step()
            rate = phase.head_rate * config.fall(phase.progress(lesson.epoch, course.batch, len(left)))
            loss = self._step(model, phase, number, places, rate)
            total, rows = total + loss * len(places), rows + len(places)
            course.batch += 1
            if course.is_due(config.checkpoint_every, len(left)):
                model.head.settle()
                keep()
        model.head.settle()
        goodness = None
        values: dict[str, Any] = {"epoch": lesson.epoch + 1, "phase": lesson.phase}
        if rows:
            values["training_loss"] = total / rows
        if len(self.validation):
            logits = self.logits(model, self.validation)
            goodness = self.labels.goodness(logits, self.validation)
            values |= {"validation_loss": self.labels.loss(logits, self.validation), "validation_goodness": goodness}
        if self.cut:
            values["cut_steps"] = self.cut
        is_best, is_last = model.judge(goodness, phase, lesson.epoch)
        values |= {"is_best": is_best} if phase.patience and goodness is not None else {}
        session.record(**values, **self.labels.end_epoch())
        self.peer.send(EpochVerdict(is_best, is_last))
        course.finish(lesson, is_last)
        if is_last:
            model.restore_best()

    def logits(self, model: BankModel, places: Places) -> Numbers:
        """Have rows scored by the groups, and add this party's own columns."""
        return model.head.score(len(places)) + model.own.logits(self.columns[places])

    def _step(self, model: BankModel, phase: Phase, number: int, places: Places, rate: float) -> float:
        if phase.trains_inputs:
            added = model.head.trained_logits(len(places))
        else:
            added = model.head.fixed_logits(number, len(places))
        logits = added + model.own.logits(self.columns[places])
        loss = self.labels.loss(logits, places)
        check_finite(loss, self.session)
        slopes = self.labels.slopes(logits, places)
        # Predicted numbers may be further off than the layer can take in one step.
        steps = np.clip(rate * slopes, -STEEPEST, STEEPEST)
        self.cut += int((steps != rate * slopes).sum())
        if phase.trains_inputs:
            self.labels.saw(added, places)
            shown = self.labels.protected(slopes, places)
            model.head.learn_trained(steps, shown, self.labels.direction_noise(slopes, places, model.inputs))
        else:
            model.head.learn_fixed(number, steps)
        model.own.learn(self.columns[places], steps, phase.l2 * rate)
        return loss

    def state(self, course: Course) -> ModelPart:
        """Return a checkpoint."""
        tensors: dict[str, torch.Tensor] = {}
        documents = {}
        for phase, model in self.models.items():
            own, documents[phase] = model.state()
            tensors |= {f"{phase}/{name}": value for name, value in own.items()}
        hidden, document = self.labels.state()
        tensors |= {f"labels/{name}": value for name, value in hidden.items()}
        return ModelPart(tensors, {"course": course.state(), "models": documents, "labels": document})

    def load_state(self, part: ModelPart) -> None:
        """Go on from a checkpoint."""
        for phase, document in part.document["models"].items():
            self.model(phase).load_state(tensors_under(f"{phase}/", part.tensors), document)
        self.labels.load_state(tensors_under("labels/", part.tensors), part.document["labels"])


def _own_columns(holding: Holding, config: PrADA, positions: Places, training: Places) -> tuple[StepEncoder, Numbers]:
    """Encode this bank's own columns, fitted on its training rows; it may have none, and then learns the intercept."""
    encoder = StepEncoder.fit(holding.table, positions[training], expands=config.expansion == "steps")
    return encoder, cut_off(encoder.transform(holding.table, positions))
