"""What a party with rows does in a step: its local model, its adversaries, the task's model. One class for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from colonnade.errors import ConfigError, TableError, TrainingFailed
from colonnade.exchanges.epochs import check_finite
from colonnade.methods.fairvfl.config import AGGREGATOR, FairVFL, trains_plain_model
from colonnade.methods.fairvfl.inputs import FieldCoder, Inputs, TextCoder
from colonnade.methods.fairvfl.maths import adversary_losses, doubts
from colonnade.methods.fairvfl.messages import (
    AdversarialGradient,
    DiscriminatorGradient,
    LocalCode,
    LocalGradient,
    PlainCodes,
    ProtectedCode,
    ProtectedCodeAgain,
    TaskGradient,
    TaskScores,
    UnifiedCode,
)
from colonnade.methods.fairvfl.networks import build_discriminator, build_local, dtype_of
from colonnade.nn import Learner, backpropagate, find_dropouts, reseed_dropout, tensors_under
from colonnade.privacy import LabelResponse, RowBudget, SecretNoise, clip_rows
from colonnade.session import Channel, Holding, Session

__all__ = [
    "Adversary",
    "Attribute",
    "CodeSide",
    "Learners",
    "Seeds",
    "Task",
    "TaskSide",
    "chunks",
    "code_message",
    "learn",
    "own_attributes",
    "own_columns",
    "read_columns",
    "send_codes",
]

Places = npt.NDArray[np.int64]
Seeds = Callable[..., int]

# Models that read texts.
_READERS = ("naml", "lstur", "nrms")
# Rows per message where rows are only scored.
_CHUNK = 4096
# A task's loss that stays above that of a constant answer for so many steps is destroyed, not unlucky.
_PATIENCE_STEPS = 200
# Numbers of a sensitive attribute, standardised, are kept within this before noise.
_FARTHEST = 3.0


def chunks(rows: int) -> list[slice]:
    """Divide rows that are only scored into messages of bearable size."""
    return [slice(start, min(start + _CHUNK, rows)) for start in range(0, rows, _CHUNK)]


def code_message(session: Session, config: FairVFL) -> type[UnifiedCode | PlainCodes]:
    """Return how a model's code crosses: that of a plain one, trained for comparison, is a message of its own."""
    return PlainCodes if config.is_plain and trains_plain_model(session.plan) else UnifiedCode


class Learners:
    """All of a party's learners, and what was released, as one thing to make checkpoints of."""

    def __init__(
        self,
        model: Mapping[str, Learner],
        adversaries: Mapping[str, Learner],
        budgets: Mapping[str, RowBudget] | None = None,
    ) -> None:
        self._model, self._learners = tuple(model.values()), {**model, **adversaries}
        self._budgets = dict(budgets or {})

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the model; adversaries keep theirs."""
        for one in self._model:
            one.set_rate(rate)

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return everything a checkpoint needs."""
        tensors: dict[str, torch.Tensor] = {}
        documents = {}
        for name, learner in self._learners.items():
            own, documents[name] = learner.state()
            # Two learners may train one module, and a file refuses the same memory twice.
            taken = {value.data_ptr() for value in tensors.values()}
            tensors |= {
                f"{name}/{key}": value.clone() if value.data_ptr() in taken else value for key, value in own.items()
            }
        for name, budget in self._budgets.items():
            tensors |= {f"budget/{name}/{key}": value for key, value in budget.state().items()}
        return tensors, {"learners": documents}

    def load_state(self, tensors: dict[str, torch.Tensor], document: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        for name, learner in self._learners.items():
            learner.load_state(tensors_under(f"{name}/", tensors), document["learners"][name])
        for name, budget in self._budgets.items():
            budget.load_state(tensors_under(f"budget/{name}/", tensors))

    def keep_best(self) -> None:
        """All epochs are trained, and the last weights count."""


def learn(learner: Learner, config: FairVFL) -> None:
    """Take a step from the gradients there are."""
    if config.clip_gradient:
        learner.clip_gradients(config.clip_gradient)
    learner.step()


def own_columns(session: Session, holding: Holding, config: FairVFL) -> FieldCoder | TextCoder | None:
    """Fit this party's inputs on its training rows; None where it has no columns beside sensitive ones."""
    # Texts are read because the settings name them; a table by itself takes none for a feature.
    is_reading = config.local_of(session.party) in _READERS
    names = holding.table.names if is_reading else holding.table.feature_names
    columns = read_columns(names, session.party, session.role, config)
    if not columns:
        return None
    positions = holding.aligned.positions[holding.split.train]
    if is_reading:
        whose = config.reader if config.local_of(session.party) == "lstur" else None
        return TextCoder.fit(
            holding.table, config.text, positions, longest=config.words, items=config.items, reader=whose
        )
    return FieldCoder.fit(holding.table, columns, positions, config.bins)


def read_columns(names: Sequence[str], party: str, role: str, config: FairVFL) -> list[str]:
    """Return the columns of a party's table that become its code; none where it has nothing but sensitive ones."""
    columns = [name for name in names if name not in config.attributes]
    columns = [name for name in columns if not (role == "label_holder" and name == config.candidates)]
    is_reading = config.local_of(party) in _READERS
    return columns if not is_reading or config.text in columns else []


class CodeSide:
    """A local model that makes codes of a party's columns and learns from gradients at them."""

    def __init__(self, session: Session, config: FairVFL, coder: FieldCoder | TextCoder, inputs: Inputs, seeds: Seeds):
        self._session, self._config, self._inputs, self._seeds = session, config, inputs, seeds
        self.coder = coder
        self.module = build_local(config, session.party, coder, seeds("local"))
        self.learner = Learner({"local": self.module}, config.optimizer, config.learning_rate, config.optimizer_options)
        self._dropouts = find_dropouts([self.module])
        self._channel = session.channel(AGGREGATOR)
        self._sent: torch.Tensor | None = None

    def send(self, batch: Places) -> None:
        """Send the codes of a batch."""
        self.learner.zero_gradients()
        self.learner.train(True)
        reseed_dropout(self._dropouts, self._seeds("dropout/local", self._session.step))
        self._sent = self.module(*self._inputs.take(torch.from_numpy(batch)))
        self._channel.send(LocalCode(self._sent, self._inputs.is_there[batch]))

    def learn(self) -> None:
        """Learn from the gradient at the codes that were sent last."""
        if self._sent is None:
            raise ConfigError("A gradient was awaited before any code was sent. This is a fault in the method.")
        rows, width = self._sent.shape
        gradient = self._channel.receive(LocalGradient, rows=rows, width=width).values
        backpropagate(self._sent, gradient.to(self._sent.dtype))
        self._sent = None
        learn(self.learner, self._config)

    def send_all(self, rows: Places) -> None:
        """Send the codes of rows that are only scored."""
        send_codes(self._channel, self.module, self._inputs, rows)


def send_codes(channel: Channel, module: nn.Module, inputs: Inputs, rows: Places) -> None:
    """Send the codes of rows that are only scored, in parts."""
    module.eval()
    with torch.no_grad():
        for part in chunks(len(rows)):
            values = module(*inputs.take(torch.from_numpy(rows[part])))
            channel.send(LocalCode(values, inputs.is_there[rows[part]]))


class Attribute:
    """A sensitive column of all shared rows: classes or standardised numbers, and which of them are known."""

    def __init__(self, name: str, values: npt.NDArray[Any], train: Places, ids: Sequence[str]) -> None:
        self.name, self.is_numeric, self.ids = name, values.dtype != object, ids
        self.classes: tuple[str, ...] = ()
        if self.is_numeric:
            numbers = np.asarray(values, float)
            self.is_known = np.isfinite(numbers)
            learned = numbers[train][self.is_known[train]]
            self._check(len(np.unique(learned)))
            scaled = (numbers - learned.mean()) / max(float(learned.std()), 1e-9)
            self.targets = torch.from_numpy(np.where(self.is_known, scaled, 0.0))
            return
        there = {str(one) for one in values[train] if one is not None}
        self._check(len(there))
        self.classes = tuple(sorted(there))
        place = {one: number for number, one in enumerate(self.classes)}
        found = np.array([-1 if one is None else place.get(str(one), -1) for one in values], np.int64)
        self.is_known = found >= 0
        self.targets = torch.from_numpy(found)

    @property
    def outputs(self) -> int:
        """Return how many scores a discriminator gives."""
        return 1 if self.is_numeric else len(self.classes)

    def _check(self, different: int) -> None:
        if different < 2:
            raise TableError(
                f"The sensitive column '{self.name}' has fewer than two different values in the training rows, so that "
                "there is nothing to remove. Take it out of config.attributes."
            )


def own_attributes(session: Session, holding: Holding, config: FairVFL) -> tuple[Attribute, ...]:
    """Return this party's sensitive columns, in the agreed order."""
    table, positions = holding.table, holding.aligned.positions
    found = [name for name in config.attributes if name in table.names]
    if session.role == "attribute_holder":
        others = [name for name in table.feature_names if name not in found]
        if others:
            raise ConfigError(
                f"'{session.party}' plays attribute_holder and has the column '{others[0]}' beside sensitive ones. "
                "Drop it, or give the party the role feature_holder, which may have both."
            )
        if not found:
            raise ConfigError(f"'{session.party}' plays attribute_holder but has no column of config.attributes.")
    ids = [str(one) for one in table.ids[positions]]
    return tuple(Attribute(name, table.values(name)[positions], holding.split.train, ids) for name in found)


class Adversary:
    """A discriminator that learns to tell one attribute from protected codes, and says what helped it."""

    def __init__(self, session: Session, config: FairVFL, attribute: Attribute, seeds: Seeds, noise: SecretNoise):
        self._session, self._config, self._seeds, self._noise = session, config, seeds, noise
        self.attribute = attribute
        self.network = build_discriminator(config, attribute.name, attribute.outputs, seeds(f"bias/{attribute.name}"))
        self.learner = Learner(
            {"discriminator": self.network}, config.optimizer, config.adversary_rate, config.optimizer_options
        )
        self._dropouts = find_dropouts([self.network])
        self._known = torch.from_numpy(attribute.is_known)
        self._channel, self._width = session.channel(AGGREGATOR), config.width_of(attribute.name)
        self.response: LabelResponse | None = None
        self.budget = None
        if config.gradient_noise:
            self.budget = RowBudget(config.gradient_clip, config.gradient_noise * config.gradient_clip)
        self._answers = attribute.targets.to(dtype_of(config)) if attribute.is_numeric else attribute.targets
        if config.label_epsilon:
            self._answer_at_random(config.label_epsilon)
            session.ledger.mark(
                "randomised answers",
                attribute=attribute.name,
                rows=len(attribute.targets),
                classes=len(attribute.classes),
                epsilon=config.label_epsilon if config.secret_start else None,
            )

    def _answer_at_random(self, epsilon: float) -> None:
        """Replace values by randomised ones, drawn once for the run from a secret that survives a crash."""
        attribute = self.attribute
        if attribute.is_numeric:
            drawn = self._noise.laplace("answers", 0, (len(attribute.targets),))
            kept = attribute.targets.clamp(-_FARTHEST, _FARTHEST)
            noised = kept + torch.from_numpy(drawn) * (2 * _FARTHEST / epsilon)
            self._answers = noised.to(dtype_of(self._config))
        else:
            self.response = LabelResponse(epsilon, len(attribute.classes))
            drawn = self.response.respond(attribute.targets.numpy(), attribute.ids, self._noise)
            self._answers = torch.from_numpy(drawn)
        # Unknown values have answers as well, so that nobody sees which they are.
        self._known = torch.ones_like(self._known)

    def learn(self, batch: Places) -> None:
        """Learn from the protected codes of a batch, and return what the mapper learns from."""
        codes = self._receive(ProtectedCode, batch)
        self.learner.train(True)
        for number in range(self._config.adversary_steps):
            self.learner.zero_gradients()
            self._reseed(f"step {number}")
            loss = self._loss(codes, batch)
            check_finite(loss.item(), self._session)
            loss.backward()  # type: ignore[no-untyped-call]
            learn(self.learner, self._config)
        self._reseed("gradient")
        gradient = self._gradient(codes, lambda values: self._loss(values, batch))
        self._send(DiscriminatorGradient, gradient, batch, "learned")

    def answer(self, batch: Places) -> None:
        """Return what the code is to forget, at the protected codes of the mapper that has learned."""
        codes = self._receive(ProtectedCodeAgain, batch)
        self.learner.train(False)
        gradient = self._gradient(codes, lambda values: self._removal(values, batch))
        self._send(AdversarialGradient, gradient, batch, "removed")

    def _receive(self, message: type[ProtectedCode | ProtectedCodeAgain], batch: Places) -> torch.Tensor:
        values = self._channel.receive(message, rows=len(batch), width=self._width).values
        return values.to(dtype_of(self._config))

    def _gradient(self, codes: torch.Tensor, loss_of: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        values = codes.detach().requires_grad_()
        self.learner.zero_gradients()
        loss_of(values).backward()  # type: ignore[no-untyped-call]
        self.learner.zero_gradients()
        return torch.zeros_like(values) if values.grad is None else values.grad

    def _send(self, message: type[Any], gradient: torch.Tensor, batch: Places, purpose: str) -> None:
        config = self._config
        if config.gradient_clip:
            gradient = torch.from_numpy(clip_rows(gradient.numpy(), config.gradient_clip)).to(gradient.dtype)
        if config.gradient_noise:
            drawn = self._noise.gaussian(f"gradient/{purpose}", self._session.step, tuple(gradient.shape))
            gradient = gradient + torch.from_numpy(drawn).to(gradient.dtype) * (
                config.gradient_noise * config.gradient_clip
            )
        if self.budget is not None:
            self.budget.released(batch)
        self._channel.send(message(gradient))

    def _loss(self, codes: torch.Tensor, batch: Places) -> torch.Tensor:
        """Return the mean loss of rows whose value is known, corrected for what was answered at random."""
        places = torch.from_numpy(batch)
        answers, known = self._answers[places], self._known[places]
        losses = adversary_losses(self.network(codes), answers, self.attribute.is_numeric)
        if self.attribute.is_numeric:
            rows = losses.squeeze(1)
        elif self.response is not None:
            rows = self.response.corrected_losses(losses, answers)
        else:
            rows = losses.gather(1, answers.clamp(min=0)[:, None]).squeeze(1)
        return (rows * known).sum() / max(int(known.sum()), 1)

    def _removal(self, codes: torch.Tensor, batch: Places) -> torch.Tensor:
        if self._config.confusion and not self.attribute.is_numeric:
            return doubts(self.network(codes)).mean()
        return self._loss(codes, batch)

    def _reseed(self, purpose: str) -> None:
        reseed_dropout(self._dropouts, self._seeds(f"dropout/{self.attribute.name}/{purpose}", self._session.step))


class Task(Protocol):
    """What the label holder wants: a loss of scores, and how many scores a row has."""

    outputs: int
    constant_loss: float

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that the task's model reads."""

    def document(self) -> dict[str, Any]:
        """Return what is kept with the weights."""

    def loss(self, code: torch.Tensor, batch: Places) -> torch.Tensor:
        """Return the loss of a batch from its codes or, where the task's model is elsewhere, its scores."""

    def learners(self) -> Sequence[Learner]:
        """Return what learns here."""

    def score(self, code: torch.Tensor, rows: Places) -> torch.Tensor:
        """Return the scores of rows."""

    def reseed(self, step: int) -> None:
        """Set dropout for a step."""


class TaskSide:
    """The label holder's part of a step."""

    def __init__(self, session: Session, config: FairVFL, task: Task) -> None:
        self._session, self._config, self.task = session, config, task
        self._channel = session.channel(AGGREGATOR)
        self._is_elsewhere = config.task_cut == "server"
        self._code: type[Any] = TaskScores if self._is_elsewhere else code_message(session, config)
        self._width = task.outputs if self._is_elsewhere else config.unified_width
        self.loss_so_far = 0.0
        self._bad_steps = 0

    def answer(self, batch: Places) -> None:
        """Say how wrong the codes of a batch are, and learn from it."""
        code = self._receive(len(batch)).requires_grad_()
        for learner in self.task.learners():
            learner.zero_gradients()
            learner.train(True)
        self.task.reseed(self._session.step)
        loss = self.task.loss(code, batch)
        value = loss.item()
        check_finite(value, self._session)
        self._watch(value)
        loss.backward()  # type: ignore[no-untyped-call]
        # The gradient is that of the model before its own step.
        self._channel.send(TaskGradient(torch.zeros_like(code) if code.grad is None else code.grad))
        for learner in self.task.learners():
            learn(learner, self._config)
        self.loss_so_far += value * len(batch)

    def receive_all(self, rows: Places) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scores of rows that are only scored, and what came of them."""
        for learner in self.task.learners():
            learner.train(False)
        scores, codes = [], []
        with torch.no_grad():
            for part in chunks(len(rows)):
                code = self._receive(part.stop - part.start)
                codes.append(code)
                scores.append(self.task.score(code, rows[part]))
        if not codes:
            return torch.empty(0, self.task.outputs), torch.empty(0, self._width)
        return torch.cat(scores), torch.cat(codes)

    def _receive(self, rows: int) -> torch.Tensor:
        values: torch.Tensor = self._channel.receive(self._code, rows=rows, width=self._width).values
        return values.to(dtype_of(self._config))

    def _watch(self, loss: float) -> None:
        self._bad_steps = self._bad_steps + 1 if loss > self.task.constant_loss else 0
        if self._bad_steps >= _PATIENCE_STEPS:
            raise TrainingFailed(
                f"For {_PATIENCE_STEPS} steps the task's loss was above that of a constant answer: removing the "
                "attributes destroys the task. Lower removal_weight, or raise warm_up."
            )
