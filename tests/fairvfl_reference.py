"""FairVFL as one process would compute it: everybody's rows in one place, gradients by autograd.

Written from the method's description alone, so that the product can be held against it. What the description leaves to
the run is given as facts: rows in whole numbers, weights as they were drawn, which rows each step takes, one uniform
number per row for the draw of its counterpart, and the seeds of dropout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

Drop = Callable[[Tensor, int], Tensor]
"""Dropout of what the so many-th hidden layer gives."""
Layers = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Settings:
    """What the description names, with its letters."""

    lambdas: Mapping[str, float]
    gamma: float = 0.25
    mapper_step: str = "joint"
    confusion: bool = False
    nearest: int = 5
    relevance: str = "cosine"
    every: int = 1
    warm_up: float = 1.0  # in epochs
    cool_down: float = 0.0  # the last share of the steps
    rate: float = 5e-3
    bias_rate: float = 5e-3
    bias_steps: int = 1
    clip: float = 5.0
    dropout: float = 0.0
    is_narrow: bool = True
    heads: int = 2
    is_scaled: bool = True
    is_attention: bool = True
    task: str = "binary"
    task_at_server: bool = False


@dataclass(frozen=True)
class Attribute:
    """One sensitive column: classes with -1 for unknown, or standardised numbers."""

    values: Tensor
    is_known: Tensor
    party: str
    epsilon: float | None = None  # the values are randomised responses then
    classes: int = 0  # 0 for numbers


@dataclass(frozen=True)
class Facts:
    """What the run gives: columns by party with the first place of each field's embeddings, labels, attributes."""

    columns: Mapping[str, tuple[Tensor, Tensor]]  # codes with each field's first place added, and what is there
    labels: Tensor
    attributes: Mapping[str, Attribute]
    steps: Sequence[Tensor]
    steps_per_epoch: int
    seed: Callable[[str, str, int], int]  # of a party's purpose and step
    helper: str = "helper"
    label_holder: str = "bank"


class Adam:
    """Kingma and Ba, after the gradient of all tensors together was shortened."""

    def __init__(self, tensors: Sequence[Tensor], rate: float, clip: float) -> None:
        self.tensors, self.rate, self.clip, self.count = list(tensors), rate, clip, 0
        self.first = [torch.zeros_like(one) for one in self.tensors]
        self.second = [torch.zeros_like(one) for one in self.tensors]

    def step(self, loss: Tensor, *, retain: bool = False) -> None:
        """Descend a loss, whose gradient reaches nothing but these tensors."""
        self.apply(torch.autograd.grad(loss, self.tensors, retain_graph=retain))

    def apply(self, gradients: Sequence[Tensor]) -> None:
        length = math.sqrt(sum(float((one * one).sum()) for one in gradients))
        factor = self.clip / (length + 1e-6) if self.clip and length > self.clip else 1.0
        self.count += 1
        with torch.no_grad():
            for tensor, first, second, gradient in zip(self.tensors, self.first, self.second, gradients, strict=True):
                own = gradient * factor
                first += 0.1 * (own - first)
                second += 0.001 * (own * own - second)
                mean, square = first / (1 - 0.9**self.count), second / (1 - 0.999**self.count)
                tensor -= self.rate * mean / (square.sqrt() + 1e-8)


@dataclass
class Masks:
    """Dropout whose layers draw from streams of their own, one call after the other."""

    probability: float
    seed: int
    first: int = 0
    _streams: dict[int, torch.Generator] = field(default_factory=dict)

    def __call__(self, values: Tensor, layer: int) -> Tensor:
        if not self.probability:
            return values
        layer += self.first
        if layer not in self._streams:
            self._streams[layer] = torch.Generator().manual_seed(self.seed + layer)
        drawn = torch.rand(values.shape, generator=self._streams[layer], dtype=values.dtype)
        return torch.where(drawn < self.probability, torch.zeros_like(values), values / (1 - self.probability))


def without_dropout(values: Tensor, layer: int) -> Tensor:
    return values


# Networks


def dense(layers: Layers, values: Tensor, drop: Drop = without_dropout) -> Tensor:
    for place, (weight, bias) in enumerate(layers):
        values = values @ weight.T + bias
        if place < len(layers) - 1:
            values = drop(values * (values > 0), place)
    return values


def softmax(values: Tensor) -> Tensor:
    raised = (values - values.detach().amax(dim=-1, keepdim=True)).exp()
    return raised / raised.sum(dim=-1, keepdim=True)


def attend(tokens: Tensor, queries: Tensor, keys: Tensor, values: Tensor, heads: int, is_scaled: bool) -> Tensor:
    """Return s^_i = concat_p sum_j alpha_ij v_j."""
    width = len(queries) // heads
    found = []
    for head in range(heads):
        own = slice(head * width, (head + 1) * width)
        products = torch.einsum("eid,ejd->eij", tokens @ queries[own].T, tokens @ keys[own].T)
        alpha = softmax(products / math.sqrt(width) if is_scaled else products)
        found.append(torch.einsum("eij,ejd->eid", alpha, tokens @ values[own].T))
    return torch.cat(found, dim=2)


def pool(tokens: Tensor, project: Tensor, offset: Tensor, direction: Tensor) -> Tensor:
    """Return sum_i beta_i s^_i with beta_i = softmax_i(w . tanh(V s^_i + b))."""
    beta = softmax(torch.tanh(tokens @ project.T + offset) @ direction)
    return torch.einsum("ei,eid->ed", beta, tokens)


def layer_norm(values: Tensor) -> Tensor:
    centred = values - values.mean(dim=1, keepdim=True)
    return centred / ((centred**2).mean(dim=1, keepdim=True) + 1e-5).sqrt()


# Losses


def cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of every row."""
    return torch.logsumexp(scores, dim=1) - scores[torch.arange(len(scores)), targets]


def task_loss(task: str, scores: Tensor, labels: Tensor) -> Tensor:
    if task == "multiclass":
        return cross_entropy(scores, labels.long()).mean()
    if task == "regression":
        return ((scores[:, 0] - labels) ** 2).mean()
    # Two classes are cross-entropy over the scores 0 and z.
    return cross_entropy(torch.cat([torch.zeros_like(scores), scores], dim=1), labels.long()).mean()


def attribute_loss(attribute: Attribute, scores: Tensor, rows: Tensor) -> Tensor:
    """Return the mean loss of known rows; of responses, corrected by the inverse of their transitions."""
    values, known = attribute.values[rows], attribute.is_known[rows]
    if not attribute.classes:
        losses = (scores[:, 0] - values) ** 2
        if attribute.epsilon is not None:
            known = torch.ones_like(known)
    elif attribute.epsilon is None:
        losses = cross_entropy(scores, values.clamp(min=0))
    else:
        count = attribute.classes
        keep = math.exp(attribute.epsilon) / (math.exp(attribute.epsilon) + count - 1)
        transition = np.full((count, count), (1 - keep) / (count - 1))
        np.fill_diagonal(transition, keep)
        inverse = torch.from_numpy(np.linalg.inv(transition))
        of_class = torch.stack([cross_entropy(scores, torch.full_like(values, one)) for one in range(count)], dim=1)
        losses = (inverse[values] * of_class).sum(dim=1)
        known = torch.ones_like(known)
    return losses[known].sum() / max(int(known.sum()), 1)


def entropy(scores: Tensor) -> Tensor:
    shares = softmax(scores)
    return -(shares * shares.log()).sum(dim=1).mean()


def negatives(protected: Tensor, settings: Settings, drawn: Tensor) -> Tensor | None:
    """Return for every row the place of its counterpart: of those nearest to it, the one that its number points at."""
    rows = len(protected)
    if rows < 3:
        return None
    found = []
    for row in range(rows):
        alike = protected @ protected[row]
        if settings.relevance == "cosine":
            alike = alike / (protected.norm(dim=1) * protected[row].norm())
        order = [int(one) for one in torch.argsort(alike, descending=True) if int(one) != row][: settings.nearest]
        found.append(order[int(float(drawn[row]) * len(order))])
    return torch.tensor(found)


class Central:
    """All networks in one place. Weights have the names that the parties give them."""

    def __init__(self, weights: Mapping[str, Mapping[str, Tensor]], facts: Facts, settings: Settings) -> None:
        self.facts, self.settings = facts, settings
        self.weights = {
            party: {name: one.clone().requires_grad_() for name, one in several.items()}
            for party, several in weights.items()
        }
        rate, clip = settings.rate, settings.clip
        helper = self.weights[facts.helper]
        self.locals = {party: Adam(list(self.weights[party].values()), rate, clip) for party in facts.columns}
        self.fusion = Adam([one for name, one in helper.items() if name.startswith("aggregator/")], rate, clip)
        self.task_learner = None
        if not settings.task_at_server:
            self.task_learner = Adam(list(self.weights[facts.label_holder].values()), rate, clip)
        self.mappers, self.ascents, self.contrasts, self.biases = {}, {}, {}, {}
        for name in settings.lambdas:
            mapper = [one for key, one in helper.items() if key.startswith(f"mapper/{name}/")]
            self.mappers[name] = Adam(mapper, settings.bias_rate, clip)
            self.ascents[name] = Adam(mapper, settings.gamma * rate, clip)
            contrast = [one for key, one in helper.items() if key.startswith(f"contrastive/{name}/")]
            self.contrasts[name] = Adam(contrast, rate, clip)
            bias = list(self.weights[facts.attributes[name].party].values())
            self.biases[name] = Adam(bias, settings.bias_rate, clip)

    def layers(self, party: str, prefix: str) -> Layers:
        own = self.weights[party]
        places = sorted(
            int(name.removeprefix(prefix).removesuffix(".weight"))
            for name in own
            if name.startswith(prefix) and name.endswith(".weight")
        )
        return [(own[f"{prefix}{one}.weight"], own[f"{prefix}{one}.bias"]) for one in places]

    # Forward

    def masks(self, party: str, purpose: str, step: int, first: int = 0) -> Masks:
        return Masks(self.settings.dropout, self.facts.seed(party, purpose, step), first)

    def local(self, party: str, rows: Tensor, step: int) -> Tensor:
        own, (codes, _) = self.weights[party], self.facts.columns[party]
        embedded = own["code/local.embeddings.table"][codes[rows]].flatten(1)
        dropped = self.masks(party, "dropout/local", step)(embedded, 0)
        return dropped @ own["code/local.dense.1.weight"].T + own["code/local.dense.1.bias"]

    def aggregate(self, tokens: Tensor, there: Tensor, step: int) -> Tensor:
        """Return s from s^l, without the tokens that are absent."""
        own = {
            name.removeprefix("aggregator/aggregator."): one for name, one in self.weights[self.facts.helper].items()
        }
        if self.settings.is_attention:
            pooled = torch.zeros(len(tokens), len(own["attention.values"]), dtype=tokens.dtype)
            for pattern in torch.unique(there, dim=0):
                rows = (there == pattern).all(dim=1)
                if not pattern.any():
                    continue
                present = tokens[rows][:, pattern]
                three = (own["attention.queries"], own["attention.keys"], own["attention.values"])
                mixed = attend(present, *three, self.settings.heads, self.settings.is_scaled)
                three = (own["pooling.project.weight"], own["pooling.project.bias"], own["pooling.direction"])
                pooled = pooled.index_put((rows.nonzero()[:, 0],), pool(mixed, *three))
        else:
            together = torch.cat([tokens[:, one] * there[:, one, None] for one in range(tokens.shape[1])], dim=1)
            layers = self.layers(self.facts.helper, "aggregator/aggregator.dense.")
            pooled = dense(layers, together, self.masks(self.facts.helper, "dropout/aggregator", step))
        if not self.settings.is_narrow:
            return pooled
        return layer_norm(pooled @ own["narrow.0.weight"].T + own["narrow.0.bias"])

    def unified(self, rows: Tensor, step: int) -> Tensor:
        tokens = torch.stack([self.local(party, rows, step) for party in self.facts.columns], dim=1)
        there = torch.stack([there[rows] for _, there in self.facts.columns.values()], dim=1)
        return self.aggregate(tokens, there, step)

    def task(self, code: Tensor, rows: Tensor, step: int) -> Tensor:
        if self.settings.task_at_server:
            # The aggregator's own layers of dropout come first.
            first = 0 if self.settings.is_attention else 1
            masks = self.masks(self.facts.helper, "dropout/aggregator", step, first)
            scores = dense(self.layers(self.facts.helper, "aggregator/task."), code, masks)
        else:
            masks = self.masks(self.facts.label_holder, "dropout/task", step)
            scores = dense(self.layers(self.facts.label_holder, "task 0/task."), code, masks)
        return task_loss(self.settings.task, scores, self.facts.labels[rows])

    def mapped(self, name: str, code: Tensor, drop: Drop) -> Tensor:
        return dense(self.layers(self.facts.helper, f"mapper/{name}/mapper."), code, drop)

    def pair(self, name: str, protected: Tensor, code: Tensor, others: Tensor, purpose: str, step: int) -> Tensor:
        """Return L^p = L^c: cross-entropy over {D^c(a, s), D^c(a, s^-)} with target s."""
        layers = self.layers(self.facts.helper, f"contrastive/{name}/contrastive.")
        masks = self.masks(self.facts.helper, f"dropout/{name}/contrastive {purpose}", step)
        true = dense(layers, torch.cat([protected, code], dim=1), masks)
        false = dense(layers, torch.cat([protected, code[others]], dim=1), masks)
        return cross_entropy(torch.cat([true, false], dim=1), torch.zeros(len(code), dtype=torch.int64)).mean()

    def judged(self, name: str, protected: Tensor, drop: Drop) -> Tensor:
        return dense(self.layers(self.facts.attributes[name].party, f"bias/{name}/discriminator."), protected, drop)

    # One step

    def step(self, rows: Tensor, step: int) -> None:
        settings = self.settings
        self.cool(step)
        unified = self.unified(rows, step)
        code = unified.detach().requires_grad_()
        loss = self.task(code, rows, step)
        task_tensors = self._task_tensors()
        at_code, *at_task = torch.autograd.grad(loss, [code, *task_tensors])
        if self.task_learner is not None:
            self.task_learner.apply(at_task)
        if step % settings.every == 0:
            last = settings.warm_up * self.facts.steps_per_epoch
            share = settings.every * (min(1.0, step / last) if last else 1.0)
            for name, weight in settings.lambdas.items():
                at_code = at_code - share * weight * self._remove(name, code.detach(), rows, step)
        fusion = [one for one in self.fusion.tensors if not any(one is other for other in task_tensors)]
        learners = list(self.locals.values())
        wanted = [*fusion, *(one for learner in learners for one in learner.tensors)]
        found = list(torch.autograd.grad((unified * at_code).sum(), wanted))
        own = {id(one): found.pop(0) for one in fusion}
        own |= {id(one): gradient for one, gradient in zip(task_tensors, at_task, strict=True)}
        self.fusion.apply([own[id(one)] for one in self.fusion.tensors])
        for learner in learners:
            learner.apply([found.pop(0) for _ in learner.tensors])

    def cool(self, step: int) -> None:
        steps, share = len(self.facts.steps), self.settings.cool_down
        left = (steps + 1 - step) / (share * steps) if share else 1.0
        for learner in (*self.locals.values(), self.fusion, self.task_learner):
            if learner is not None:
                learner.rate = self.settings.rate * min(1.0, left)

    def _task_tensors(self) -> list[Tensor]:
        if self.task_learner is not None:
            return self.task_learner.tensors
        return [one for name, one in self.weights[self.facts.helper].items() if name.startswith("aggregator/task.")]

    def _remove(self, name: str, code: Tensor, rows: Tensor, step: int) -> Tensor:
        """Let all of an attribute's networks learn, and return dL^a/ds."""
        settings, attribute = self.settings, self.facts.attributes[name]
        helper, party = self.facts.helper, attribute.party
        source = code.clone().requires_grad_()
        protected = self.mapped(name, source, self.masks(helper, f"dropout/{name}/mapper", step))
        others = None
        if settings.gamma:
            drawn = torch.rand(
                len(rows),
                generator=torch.Generator().manual_seed(self.facts.seed(helper, f"counterparts/{name}", step)),
                dtype=torch.float64,
            )
            others = negatives(protected.detach(), settings, drawn)
        if others is not None:
            self.contrasts[name].step(self.pair(name, protected.detach(), code, others, "learn", step))
            if settings.mapper_step == "sequential":
                self.ascents[name].step(self._hiding(name, protected, code, others, step))
                protected = self.mapped(name, source, self.masks(helper, f"dropout/{name}/mapper again", step))
        for number in range(settings.bias_steps):
            masks = self.masks(party, f"dropout/{name}/step {number}", step)
            scores = self.judged(name, protected.detach(), masks)
            self.biases[name].step(attribute_loss(attribute, scores, rows))
        masks = self.masks(party, f"dropout/{name}/gradient", step)
        told = attribute_loss(attribute, self.judged(name, protected, masks), rows)
        at_code = None
        if settings.mapper_step == "merged":
            (at_code,) = torch.autograd.grad(told, source, retain_graph=True)
        if others is not None and settings.mapper_step != "sequential":
            told = told + settings.gamma * self._hiding(name, protected, code, others, step)
        self.mappers[name].step(told)
        if at_code is not None:
            return at_code
        scores = self.judged(name, self.mapped(name, source, without_dropout), without_dropout)
        if settings.confusion and attribute.classes:
            removed = entropy(scores)
        else:
            removed = attribute_loss(attribute, scores, rows)
        return torch.autograd.grad(removed, source)[0]

    def _hiding(self, name: str, protected: Tensor, code: Tensor, others: Tensor, step: int) -> Tensor:
        """Return what the mapper descends to hide its preimage."""
        loss = self.pair(name, protected, code, others, "hide", step)
        return (loss - math.log(2.0)) ** 2 if self.settings.confusion else -loss

    def train(self) -> None:
        for number, rows in enumerate(self.facts.steps, start=1):
            self.step(rows, number)


def train_plain(central: Central) -> None:
    """Train local models, aggregator and task's model by one loss through all of them: nobody else is there."""
    groups = [*central.locals.values(), central.fusion]
    if central.task_learner is not None:
        groups.append(central.task_learner)
    for number, rows in enumerate(central.facts.steps, start=1):
        central.cool(number)
        loss = central.task(central.unified(rows, number), rows, number)
        found = list(torch.autograd.grad(loss, [one for group in groups for one in group.tensors]))
        for group in groups:
            group.apply([found.pop(0) for _ in group.tensors])


def weights_of(central: Central) -> dict[str, dict[str, Any]]:
    return {party: {name: one.detach() for name, one in several.items()} for party, several in central.weights.items()}
