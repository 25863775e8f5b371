"""One step of FairVFL's networks: what learns from which loss, in which direction, and what is left alone."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.methods.fairvfl.parity_worlds import settings
from torch import nn
from torch.nn import functional

import colonnade as cn
from colonnade.methods.fairvfl.aggregator import AggregatorSide, Fusion, MapperSide
from colonnade.methods.fairvfl.maths import pair_loss
from colonnade.methods.fairvfl.messages import DiscriminatorGradient, LocalCode, TaskGradient
from colonnade.methods.fairvfl.sides import Adversary, Attribute
from colonnade.privacy import SecretNoise
from colonnade.session.seeds import derive_seed

F64 = torch.float64
ROWS = 24
BATCH = np.arange(ROWS)
ORDERS = ["joint", "sequential", "merged"]


class End:
    """One end of a channel within a thread: whoever waits lets the other end act first."""

    def __init__(self, role: str, inbox: deque[Any], outbox: deque[Any]) -> None:
        self.peer, self.peer_role, self._in, self._out = role, role, inbox, outbox
        self.ask: Callable[[], None] = lambda: None

    def send(self, message: Any) -> None:
        self._out.append(message)

    def receive(self, kind: type[Any], rows: int, width: int) -> Any:
        if not self._in:
            self.ask()
        message = self._in.popleft()
        assert isinstance(message, kind)
        assert tuple(message.values.shape) == (rows, width)
        return message


def line(here: str, there: str) -> tuple[End, End]:
    one, other = deque[Any](), deque[Any]()
    return End(there, one, other), End(here, other, one)


def seeds(purpose: str, counter: int = 0) -> int:
    return derive_seed(3, purpose, counter)


def draw(rows: int, width: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed), dtype=F64)


@dataclass
class Pair:
    """A mapper, the adversary that it works against, and codes that tell the attribute."""

    mapper: MapperSide
    adversary: Adversary
    codes: torch.Tensor
    classes: torch.Tensor

    def begin_and_learn(self) -> torch.Tensor | None:
        """Play a step up to where the mapper has learned."""
        self.mapper.begin(self.codes)
        return self.mapper.learn()

    def forget(self) -> torch.Tensor:
        """Play the rest, and return what the codes are to forget."""
        self.mapper.send_again(self.codes)
        return self.mapper.removal()

    def weights(self) -> dict[str, dict[str, torch.Tensor]]:
        networks = {"mapper": self.mapper.mapper, "bias": self.adversary.network}
        if hasattr(self.mapper, "contrastive"):
            networks["contrastive"] = self.mapper.contrastive
        return {name: copy.deepcopy(one.state_dict()) for name, one in networks.items()}

    def bias_loss(self, codes: torch.Tensor, mapper: nn.Module | None = None) -> torch.Tensor:
        """Return L^d = L^a of codes, by a formula of our own."""
        scores = self.adversary.network((mapper or self.mapper.mapper)(codes))
        return functional.cross_entropy(scores, self.classes)


def adversary_of(config: cn.FairVFL, codes: torch.Tensor, end: End) -> Adversary:
    classes = (codes[:, 0] > codes[:, 1]).long()
    values = np.array(["f" if one else "m" for one in classes.tolist()], object)
    attribute = Attribute("gender", values, BATCH, [str(one) for one in BATCH])
    session: Any = SimpleNamespace(step=1, party="registry", role="attribute_holder", channel=lambda role: end)
    return Adversary(session, config, attribute, seeds, SecretNoise(bytes(32)))


def pair_of(**changes: Any) -> Pair:
    config = settings(attributes=("gender",), **changes)
    codes = functional.layer_norm(draw(ROWS, config.unified_width), (config.unified_width,)).requires_grad_()
    here, there = line("aggregator", "attribute_holder")
    adversary = adversary_of(config, codes, there)
    session: Any = SimpleNamespace(step=1, party="helper", role="aggregator")
    mapper = MapperSide(session, config, "gender", here, seeds, SecretNoise(bytes(32)))  # type: ignore[arg-type]
    turns = [adversary.learn, adversary.answer]
    here.ask = lambda: turns.pop(0)(BATCH)
    found = Pair(mapper, adversary, codes, (codes[:, 0] <= codes[:, 1]).long())
    # Who has learned a little has a loss worth speaking of.
    for _ in range(5):
        turns[:] = [adversary.learn, adversary.answer]
        found.begin_and_learn()
        if config.mapper_step != "merged":
            found.forget()
        session.step += 1
    turns[:] = [adversary.learn, adversary.answer]
    return found


def contrastive_loss(pair: Pair, mapper: nn.Module) -> float:
    others = pair.mapper._others
    assert others is not None
    codes = pair.codes.detach()
    scores = [
        pair.mapper.contrastive(torch.cat([mapper(codes), one], dim=1)).squeeze(1) for one in (codes, codes[others])
    ]
    return float(-functional.log_softmax(torch.stack(scores, dim=1), dim=1)[:, 0].mean().detach())


# What is left alone


@pytest.mark.parametrize("order", ["joint", "merged"])
def test_the_step_of_the_contrastive_discriminator_changes_nothing_else(order: str) -> None:
    pair = pair_of(mapper_step=order)
    before = pair.weights()
    for parameter in pair.mapper.mapper.parameters():
        parameter.grad = None
    pair.mapper.begin(pair.codes)
    after = pair.weights()
    assert any(not torch.equal(one, after["contrastive"][name]) for name, one in before["contrastive"].items())
    for kind in ("mapper", "bias"):
        assert all(torch.equal(one, after[kind][name]) for name, one in before[kind].items())
    assert all(parameter.grad is None for parameter in pair.mapper.mapper.parameters())
    assert pair.codes.grad is None


@pytest.mark.parametrize("order", ORDERS)
def test_neither_loss_of_the_mapper_gives_a_gradient_at_the_codes(order: str) -> None:
    pair = pair_of(mapper_step=order, contrastive_weight=5.0)
    told = pair.begin_and_learn()
    assert pair.codes.grad is None
    assert (told is None) == (order != "merged")
    # There would be one: the discriminator of pairs does look at both codes.
    assert pair.mapper._others is not None
    own, other = pair.codes.detach().requires_grad_(), pair.codes.detach()[pair.mapper._others].requires_grad_()
    pair_loss(pair.mapper.contrastive, pair.mapper.mapper(own), own, other).backward()
    assert own.grad is not None
    assert other.grad is not None
    assert min(float(own.grad.abs().max()), float(other.grad.abs().max())) > 1e-6


def test_the_mappers_step_leaves_all_discriminators_alone() -> None:
    pair = pair_of()
    pair.mapper.begin(pair.codes)
    pair.adversary.learn(BATCH)
    before = pair.weights()
    pair.mapper.learn()
    after = pair.weights()
    for kind in ("contrastive", "bias"):
        assert all(torch.equal(one, after[kind][name]) for name, one in before[kind].items())
    assert any(not torch.equal(one, after["mapper"][name]) for name, one in before["mapper"].items())


@pytest.mark.parametrize("order", ["joint", "sequential"])
@pytest.mark.parametrize("confusion", [False, True])
def test_what_the_codes_are_to_forget_changes_no_network_and_is_of_the_adversarys_loss_alone(
    order: str, confusion: bool
) -> None:
    pair = pair_of(mapper_step=order, confusion=confusion, contrastive_weight=5.0)
    pair.begin_and_learn()
    before = pair.weights()
    found = pair.forget()
    after = pair.weights()
    for kind, several in before.items():
        assert all(torch.equal(one, after[kind][name]) for name, one in several.items())
    assert pair.codes.grad is None
    codes = pair.codes.detach().requires_grad_()
    if confusion:
        shares = pair.adversary.network(pair.mapper.mapper(codes)).softmax(dim=1)
        loss = -(shares * shares.log()).sum(dim=1).mean()
    else:
        loss = pair.bias_loss(codes)
    (expected,) = torch.autograd.grad(loss, codes)
    assert torch.allclose(found, expected, rtol=0, atol=1e-15)
    assert float(expected.abs().max()) > 1e-4


def test_in_merged_steps_the_contrastive_weight_does_not_reach_the_codes() -> None:
    """The gradient at the codes goes through the mapper as it was before its step."""
    found = []
    for weight in (0.0, 0.25, 50.0):
        config = settings(attributes=("gender",), mapper_step="merged", contrastive_weight=weight)
        codes = draw(ROWS, config.unified_width).requires_grad_()
        here, there = line("aggregator", "attribute_holder")
        adversary = adversary_of(config, codes, there)
        session: Any = SimpleNamespace(step=1, party="helper", role="aggregator")
        mapper = MapperSide(session, config, "gender", here, seeds, SecretNoise(bytes(32)))  # type: ignore[arg-type]
        here.ask = lambda adversary=adversary: adversary.learn(BATCH)
        mapper.begin(codes)
        before = copy.deepcopy(mapper.mapper)
        found.append(mapper.learn())
        again = codes.detach().requires_grad_()
        scores = adversary.network(before(again))
        loss = functional.cross_entropy(scores, (again[:, 0] <= again[:, 1]).long())
        (expected,) = torch.autograd.grad(loss, again)
        assert found[-1] is not None
        assert torch.allclose(found[-1], expected, rtol=0, atol=1e-15)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


# Directions


def test_the_mappers_ascent_raises_the_contrastive_loss() -> None:
    pair = pair_of(mapper_step="sequential", learning_rate=1e-3, contrastive_weight=1.0)
    before = copy.deepcopy(pair.mapper.mapper)
    pair.mapper.begin(pair.codes)
    assert contrastive_loss(pair, pair.mapper.mapper) > contrastive_loss(pair, before) + 1e-6


def test_a_joint_step_of_an_adversary_that_is_silent_raises_the_contrastive_loss() -> None:
    # Adam would still go where the adversary sent it before.
    pair = pair_of(learning_rate=0.05, optimizer="SGD")
    before = copy.deepcopy(pair.mapper.mapper)
    pair.mapper.begin(pair.codes)
    here = pair.mapper._holder
    here.ask = lambda: here._in.append(DiscriminatorGradient(torch.zeros(ROWS, 3, dtype=F64)))
    pair.mapper.learn()
    assert contrastive_loss(pair, pair.mapper.mapper) > contrastive_loss(pair, before) + 1e-6


@pytest.mark.parametrize("is_right", [True, False])
def test_confusion_aims_at_a_discriminator_of_pairs_that_cannot_decide(is_right: bool) -> None:
    """A loss below log 2 rises, and one above it falls, which plain ascent would never do."""
    pair = pair_of(mapper_step="sequential", learning_rate=1e-3, contrastive_weight=1.0, confusion=True)
    codes, mapper = pair.codes.detach(), pair.mapper.mapper
    optimizer = torch.optim.Adam(pair.mapper.contrastive.parameters(), lr=0.02)
    for number in range(1, 400):
        optimizer.zero_grad()
        pair_loss(pair.mapper.contrastive, mapper(codes).detach(), codes, codes.roll(number % 23 + 1, 0)).backward()
        optimizer.step()
    if not is_right:
        with torch.no_grad():
            pair.mapper.contrastive[-1].weight.neg_()
    before = copy.deepcopy(mapper)
    pair.mapper.begin(pair.codes)
    first, last = contrastive_loss(pair, before), contrastive_loss(pair, mapper)
    assert (first < math.log(2.0)) == is_right
    assert abs(last - math.log(2.0)) < abs(first - math.log(2.0)) - 1e-6


@pytest.mark.parametrize("order", ORDERS)
def test_the_mapper_descends_the_adversarys_loss(order: str) -> None:
    pair = pair_of(mapper_step=order, learning_rate=0.05, contrastive_weight=0.0, optimizer="SGD")
    before = copy.deepcopy(pair.mapper.mapper)
    pair.begin_and_learn()
    codes = pair.codes.detach()
    assert pair.bias_loss(codes) < pair.bias_loss(codes, before) - 1e-6


@dataclass
class Whole:
    """An aggregator with its mapper, a fixed task, and an adversary."""

    side: AggregatorSide
    adversary: Adversary | None
    locals: list[torch.Tensor]
    classes: torch.Tensor
    sent: list[End]

    def step(self) -> tuple[nn.Module, list[torch.Tensor]]:
        """Play a step; return the network before it, and the gradients at parties' codes."""
        before = copy.deepcopy(self.side.fusion.network)
        self.side.step(ROWS, 1.0 if self.adversary is not None else 0.0)
        return before, [end._in.popleft().values for end in self.sent]

    def unified(self, network: nn.Module, codes: list[torch.Tensor]) -> torch.Tensor:
        return network(torch.stack(codes, dim=1), torch.ones(ROWS, len(codes), dtype=torch.bool))


def task_loss(codes: torch.Tensor) -> torch.Tensor:
    return functional.softplus(codes[:, 0] - 2.0 * codes[:, 1]).mean()


def whole_of(*, has_task: bool, has_removal: bool, **changes: Any) -> Whole:
    config = settings(attributes=("gender",), **changes)
    locals_ = [draw(ROWS, config.width, seed) for seed in (5, 6, 7)]
    coders, ends = [], []
    for values in locals_:
        here, there = line("aggregator", "feature_holder")
        there.send(LocalCode(values.clone(), np.ones(ROWS, bool)))
        coders.append(here)
        ends.append(there)
    bank, label_holder = line("aggregator", "label_holder")
    here, there = line("aggregator", "attribute_holder")
    adversary = adversary_of(config, locals_[0], there) if has_removal else None
    plan = SimpleNamespace(stage="train")
    session: Any = SimpleNamespace(step=1, party="helper", role="aggregator", channel=lambda role: bank, plan=plan)
    fusion = Fusion(config, coders, seeds("aggregator"), bytes(32))  # type: ignore[arg-type]
    owners: Any = [("gender", here)] if has_removal else []
    side = AggregatorSide(session, config, fusion, owners, 1, seeds, SecretNoise(bytes(32)))

    def answer() -> None:
        codes = label_holder._in.popleft().values.clone().requires_grad_()
        loss = task_loss(codes) if has_task else 0.0 * codes.sum()
        label_holder.send(TaskGradient(torch.autograd.grad(loss, codes)[0]))

    bank.ask = answer
    if adversary is not None:
        turns = [adversary.learn, adversary.answer]
        here.ask = lambda: turns.pop(0)(BATCH)
    return Whole(side, adversary, locals_, (locals_[0][:, 0] <= locals_[0][:, 1]).long(), ends)


@pytest.mark.parametrize("order", ["joint", "sequential"])
@pytest.mark.parametrize("confusion", [False, True])
@pytest.mark.parametrize("removal", ["robust", "paper"])
def test_a_step_against_the_gradient_of_removal_raises_what_the_adversary_loses(
    order: str, confusion: bool, removal: str
) -> None:
    whole = whole_of(has_task=False, has_removal=True, mapper_step=order, confusion=confusion, removal=removal)
    network, gradients = whole.step()
    assert whole.adversary is not None

    def lost(codes: list[torch.Tensor]) -> float:
        assert whole.adversary is not None
        scores = whole.adversary.network(whole.side.mappers[0].mapper(whole.unified(network, codes)))
        shares = scores.softmax(dim=1)
        entropy = -(shares * shares.log()).sum(dim=1).mean()
        return float((entropy if confusion else functional.cross_entropy(scores, whole.classes)).detach())

    # At the beginning a discriminator of two classes is all but undecided, and its entropy all but flat.
    longest = max(float(one.abs().max()) for one in gradients)
    stepped = [one - 1e-2 / longest * gradient for one, gradient in zip(whole.locals, gradients, strict=True)]
    assert lost(stepped) > lost(whole.locals) + 1e-9


def test_without_removal_a_step_against_the_gradient_lowers_the_tasks_loss() -> None:
    whole = whole_of(has_task=True, has_removal=False)
    network, gradients = whole.step()
    stepped = [one - 1e-2 * gradient for one, gradient in zip(whole.locals, gradients, strict=True)]
    assert task_loss(whole.unified(network, stepped)) < task_loss(whole.unified(network, whole.locals)) - 1e-7
    # And so does the aggregator's own step.
    after = whole.side.fusion.network
    assert task_loss(whole.unified(after, whole.locals)) < task_loss(whole.unified(network, whole.locals)) - 1e-7


@pytest.mark.parametrize("order", ORDERS)
def test_gradients_add_up_with_the_weight_of_removal(order: str) -> None:
    """The task's gradient less the weighted one of removal, which is the same whatever the task is."""

    def gradients(has_task: bool, weight: float) -> torch.Tensor:
        whole = whole_of(has_task=has_task, has_removal=True, mapper_step=order, removal_weight=weight)
        return torch.stack(whole.step()[1])

    task = torch.stack(whole_of(has_task=True, has_removal=False).step()[1])
    removal = gradients(False, 1.0)
    assert float(removal.abs().max()) > 1e-5
    assert torch.allclose(gradients(True, 3.0), task + 3.0 * removal, rtol=0, atol=1e-14)


# The contrastive weight


def mapper_after(weight: float, **changes: Any) -> torch.Tensor:
    pair = pair_of(contrastive_weight=weight, **changes)
    return torch.cat([one.detach().flatten() for one in pair.mapper.mapper.parameters()])


def test_an_adam_of_its_own_cancels_a_weight_in_the_loss() -> None:
    """Why the weight is in the rate of sequential steps, and not in their loss."""
    pair = pair_of()
    pair.mapper.begin(pair.codes)
    codes = pair.codes.detach()
    assert pair.mapper._others is not None
    found = []
    for weight in (1.0, 0.25, 0.01):
        mapper = copy.deepcopy(pair.mapper.mapper)
        optimizer = torch.optim.Adam(mapper.parameters(), lr=1e-3, eps=1e-20)
        for _ in range(3):
            optimizer.zero_grad()
            (-weight * pair_loss(pair.mapper.contrastive, mapper(codes), codes, codes[pair.mapper._others])).backward()
            optimizer.step()
        found.append(torch.cat([one.detach().flatten() for one in mapper.parameters()]))
    assert float((found[0] - found[1]).abs().max()) < 1e-9
    assert float((found[0] - found[2]).abs().max()) < 1e-9


@pytest.mark.parametrize("order", ORDERS)
def test_the_contrastive_weight_has_an_effect_on_mappers(order: str) -> None:
    found = [mapper_after(weight, mapper_step=order) for weight in (0.0, 0.25, 1.0)]
    for one, other in ((0, 1), (1, 2)):
        assert float((found[one] - found[other]).abs().max()) > 1e-3
