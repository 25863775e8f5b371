"""The aggregator's part of a step: one code of all codes, and for each attribute a mapper with its adversaries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from colonnade.exchanges.epochs import check_finite
from colonnade.methods.fairvfl.config import FairVFL
from colonnade.methods.fairvfl.maths import counterparts, noise_by_row, pair_loss
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
from colonnade.methods.fairvfl.networks import (
    build_aggregator,
    build_contrastive,
    build_mapper,
    build_task,
    dtype_of,
)
from colonnade.methods.fairvfl.sides import Learners, Seeds, chunks, code_message, learn
from colonnade.nn import Learner, backpropagate, find_dropouts, reseed_dropout
from colonnade.nn.draws import seeded_generator
from colonnade.privacy import SecretNoise
from colonnade.session import Channel, Session

__all__ = ["AggregatorSide", "Fusion", "MapperSide", "send_in_use"]


class Fusion:
    """The aggregator's network, in use: codes of all parties in, one code out."""

    def __init__(self, config: FairVFL, coders: Sequence[Channel], seed: int, serving_key: bytes) -> None:
        self._config, self.coders, self._serving_key = config, tuple(coders), serving_key
        self.network = build_aggregator(config, len(self.coders), seed)

    def receive(self, rows: int) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Return all parties' codes of a batch, and by row and party whether there is one."""
        values, there = [], []
        for channel in self.coders:
            found = channel.receive(LocalCode, rows=rows, width=self._config.width)
            values.append(found.values.to(dtype_of(self._config)))
            there.append(torch.from_numpy(found.is_there))
        return values, torch.stack(there, dim=1)

    def codes_in_use(self, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the codes of rows that are scored, without and with the noise with which they leave."""
        values, there = self.receive(rows)
        self.network.eval()
        with torch.no_grad():
            clear: torch.Tensor = self.network(torch.stack(values, dim=1), there)
            if not self._config.noise:
                return clear, clear
            # By the code, which is normalised: parties' codes are many numbers of any size, and in batches of another
            # size one of them is too often rounded to another side.
            drawn = noise_by_row(self._serving_key, clear, clear.shape[1])
            return clear, clear + drawn.to(clear.dtype) * self._config.noise


class MapperSide:
    """An attribute's mapper and the discriminator that tells of which code its protected code was made."""

    def __init__(
        self, session: Session, config: FairVFL, name: str, holder: Channel, seeds: Seeds, noise: SecretNoise
    ) -> None:
        self._session, self._config, self.name, self._holder = session, config, name, holder
        self._seeds, self._noise = seeds, noise
        self.mapper = build_mapper(config, name, seeds(f"mapper/{name}"))
        settings = (config.optimizer, config.learning_rate, config.optimizer_options)
        # A mapper is the adversary's first layers: were it slower than the code, codes would outrun both.
        self.learner = Learner(
            {"mapper": self.mapper}, config.optimizer, config.adversary_rate, config.optimizer_options
        )
        self.learners = {f"mapper/{name}": self.learner}
        self._has_contrast = config.contrastive_weight > 0.0
        if self._has_contrast:
            self.contrastive = build_contrastive(config, name, seeds(f"contrastive/{name}"))
            self._contrast = self.learners[f"contrastive/{name}"] = Learner(
                {"contrastive": self.contrastive}, *settings
            )
            self._pair_dropouts = find_dropouts([self.contrastive])
        if self._has_contrast and config.mapper_step == "sequential":
            # One Adam for both directions would forget which was which, and its own cancels a weight in the loss: so
            # the weight is in the rate.
            rate = config.contrastive_weight * config.learning_rate
            self._ascent = Learner({"mapper": self.mapper}, config.optimizer, rate, config.optimizer_options)
            self.learners[f"ascent/{name}"] = self._ascent
        self._dropouts = find_dropouts([self.mapper])
        self._codes = torch.empty(0)
        self._protected = torch.empty(0)
        self._others: torch.Tensor | None = None

    def begin(self, codes: torch.Tensor) -> None:
        """Make the protected codes of a batch, let the contrastive discriminator learn, and send them."""
        merged = self._config.mapper_step == "merged"
        self._codes = codes if merged else codes.detach()
        self.learner.train(True)
        self._protected = self._map("mapper")
        self._others = self._draw_others() if self._has_contrast else None
        if self._others is not None:
            self._contrast.zero_gradients()
            self._contrast.train(True)
            loss = self._pair_loss(self._protected.detach(), self._others, "learn")
            loss.backward()  # type: ignore[no-untyped-call]
            learn(self._contrast, self._config)
            if self._config.mapper_step == "sequential":
                self._hide_preimage(self._others)
        self._send(ProtectedCode, self._protected.detach(), "first")

    def learn(self) -> torch.Tensor | None:
        """Learn from the bias discriminator's gradient; with merged steps, return that gradient at the codes."""
        gradient = self._receive(DiscriminatorGradient)
        at_codes = None
        if self._config.mapper_step == "merged":
            pulled = (self._protected * gradient).sum()
            (at_codes,) = torch.autograd.grad(pulled, self._codes, retain_graph=True)
        if self._others is not None and self._config.mapper_step != "sequential":
            gradient = gradient - self._config.contrastive_weight * self._contrastive_gradient(self._others)
        self.learner.zero_gradients()
        if self._config.mapper_step == "merged":
            parameters = list(self.mapper.parameters())
            found = torch.autograd.grad((self._protected * gradient).sum(), parameters)
            for parameter, own in zip(parameters, found, strict=True):
                parameter.grad = own
        else:
            backpropagate(self._protected, gradient)
        learn(self.learner, self._config)
        return at_codes

    def send_again(self, codes: torch.Tensor) -> None:
        """Send the protected codes of the mapper that has learned."""
        self.learner.train(False)
        self._codes = codes.detach().requires_grad_()
        self._protected = self.mapper(self._codes)
        self._send(ProtectedCodeAgain, self._protected.detach(), "again")

    def removal(self) -> torch.Tensor:
        """Return what the code is to forget, at the codes."""
        gradient = self._receive(AdversarialGradient)
        (found,) = torch.autograd.grad((self._protected * gradient).sum(), self._codes)
        return found

    def _map(self, purpose: str) -> torch.Tensor:
        reseed_dropout(self._dropouts, self._seeds(f"dropout/{self.name}/{purpose}", self._session.step))
        mapped: torch.Tensor = self.mapper(self._codes)
        return mapped

    def _draw_others(self) -> torch.Tensor | None:
        generator = seeded_generator(self._seeds(f"counterparts/{self.name}", self._session.step))
        config, rows = self._config, len(self._protected)
        same = torch.zeros(rows, rows, dtype=torch.bool)
        return counterparts(self._protected.detach(), same, config.nearest, config.relevance, generator)

    def _pair_loss(self, protected: torch.Tensor, others: torch.Tensor, purpose: str) -> torch.Tensor:
        about = f"dropout/{self.name}/contrastive {purpose}"
        reseed_dropout(self._pair_dropouts, self._seeds(about, self._session.step))
        codes = self._codes.detach()
        loss = pair_loss(self.contrastive, protected, codes, codes[others])
        check_finite(loss.item(), self._session)
        return loss

    def _contrastive_gradient(self, others: torch.Tensor) -> torch.Tensor:
        """Return the gradient at the protected codes along which the mapper ascends."""
        values = self._protected.detach().requires_grad_()
        loss = self._pair_loss(values, others, "hide")
        if self._config.confusion:
            loss = -((loss - math.log(2.0)) ** 2)
        (found,) = torch.autograd.grad(loss, values)
        return found

    def _hide_preimage(self, others: torch.Tensor) -> None:
        """Ascend the contrastive loss, and map the codes anew."""
        gradient = self._contrastive_gradient(others)
        self._ascent.zero_gradients()
        backpropagate(self._protected, -gradient)
        learn(self._ascent, self._config)
        self._protected = self._map("mapper again")

    def _send(self, message: type[Any], protected: torch.Tensor, purpose: str) -> None:
        strength = self._config.protected_noise
        if strength:
            about = f"protected/{self.name}/{purpose}"
            drawn = self._noise.gaussian(about, self._session.step, tuple(protected.shape))
            protected = protected + torch.from_numpy(drawn).to(protected.dtype) * strength
        self._holder.send(message(protected))

    def _receive(self, message: type[Any]) -> torch.Tensor:
        rows, width = self._protected.shape
        values: torch.Tensor = self._holder.receive(message, rows=rows, width=width).values
        return values.to(dtype_of(self._config))


class AggregatorSide:
    """All that the aggregator trains."""

    def __init__(
        self,
        session: Session,
        config: FairVFL,
        fusion: Fusion,
        holders: Sequence[tuple[str, Channel]],
        outputs: int,
        seeds: Seeds,
        noise: SecretNoise,
    ) -> None:
        """Take the codes' network, and for each attribute that is removed the channel to the party that has it."""
        self._session, self._config, self.fusion = session, config, fusion
        self._seeds, self._noise = seeds, noise
        self._label_holder, self.code_message = session.channel("label_holder"), code_message(session, config)
        modules: dict[str, torch.nn.Module] = {"aggregator": fusion.network}
        self.task = None
        if config.task_cut == "server":
            self.task = modules["task"] = build_task(config, outputs, seeds("task"))
        self.learner = Learner(modules, config.optimizer, config.learning_rate, config.optimizer_options)
        self._dropouts = find_dropouts(modules.values())
        self.mappers = [MapperSide(session, config, name, holder, seeds, noise) for name, holder in holders]
        adversaries = {name: learner for one in self.mappers for name, learner in one.learners.items()}
        self.learners = Learners({"aggregator": self.learner}, adversaries)
        self._outputs = outputs

    def step(self, rows: int, share: float) -> None:
        """Play one step; ``share`` is how much of its weight removal has, or 0 where attributes are left alone."""
        self.learner.zero_gradients()
        self.learner.train(True)
        reseed_dropout(self._dropouts, self._seeds("dropout/aggregator", self._session.step))
        values, there = self.fusion.receive(rows)
        for one in values:
            one.requires_grad_()
        code = self._noised(self.fusion.network(torch.stack(values, dim=1), there))
        leaf = code.detach().requires_grad_()
        scores = None if self.task is None else self.task(leaf)
        if scores is None:
            self._label_holder.send(self.code_message(leaf.detach()))
        else:
            self._label_holder.send(TaskScores(scores.detach()))
        mappers = self.mappers if share > 0.0 else []
        for mapper in mappers:
            mapper.begin(leaf)
        total = self._task_gradient(leaf, scores)
        at_codes = [mapper.learn() for mapper in mappers]
        if self._config.mapper_step != "merged":
            for mapper in mappers:
                mapper.send_again(leaf)
            at_codes = [mapper.removal() for mapper in mappers]
        for mapper, found in zip(mappers, at_codes, strict=True):
            if found is not None:
                total = total - share * self._config.weight_of(mapper.name) * found
        check_finite(float(total.sum()), self._session)
        backpropagate(code, total)
        for channel, one in zip(self.fusion.coders, values, strict=True):
            gradient = torch.zeros_like(one) if one.grad is None else one.grad
            channel.send(LocalGradient(gradient))
        learn(self.learner, self._config)

    def score(self, rows: int) -> None:
        """Send the label holder what it needs of rows that are only scored."""
        self.learner.train(False)
        for part in chunks(rows):
            clear, noised = self.fusion.codes_in_use(part.stop - part.start)
            send_in_use(self._label_holder, self.code_message, self.task, clear, noised)

    def _noised(self, code: torch.Tensor) -> torch.Tensor:
        if not self._config.noise:
            return code
        drawn = self._noise.gaussian("code", self._session.step, tuple(code.shape))
        return code + torch.from_numpy(drawn).to(code.dtype) * self._config.noise

    def _task_gradient(self, leaf: torch.Tensor, scores: torch.Tensor | None) -> torch.Tensor:
        rows, width = (leaf if scores is None else scores).shape
        gradient = self._label_holder.receive(TaskGradient, rows=rows, width=width).values.to(leaf.dtype)
        if scores is None:
            return gradient
        backpropagate(scores, gradient)
        return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.clone()


def send_in_use(
    label_holder: Channel,
    message: type[UnifiedCode | PlainCodes],
    task: torch.nn.Module | None,
    clear: torch.Tensor,
    noised: torch.Tensor,
) -> None:
    """Send the code of rows behind its noise or, where the task's model is here, scores of the code without it."""
    if task is None:
        label_holder.send(message(noised))
        return
    task.eval()
    with torch.no_grad():
        label_holder.send(TaskScores(task(clear)))
