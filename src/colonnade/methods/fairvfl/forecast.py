"""What a training sends, stage by stage. How long it computes depends on the networks, and is not forecast.

Where a sensitive column lies is known of tables that are here. Those that none of them has are taken to lie, one after
the other, at attribute holders whose tables are elsewhere, or at such feature holders where there are none.
"""

from __future__ import annotations

from collections import Counter
from itertools import cycle
from typing import Any

import numpy as np
import torch

from colonnade.errors import ConfigError
from colonnade.methods.fairvfl.config import AGGREGATOR, FairVFL
from colonnade.methods.fairvfl.messages import (
    HOLDERS,
    Amounts,
    TaskGradient,
    TaskScoreGradient,
    TaskScores,
    adversarial_gradient,
    discriminator_gradient,
    local_code,
    local_gradient,
    mark,
    offer,
    protected_code,
    protected_code_again,
    unified_code,
)
from colonnade.methods.fairvfl.networks import dtype_of
from colonnade.methods.fairvfl.sides import chunks, read_columns
from colonnade.methods.fairvfl.train import MARK_BYTES
from colonnade.session import Crossing, Facts, Forecaster, RunPlan, StageForecast, batch_sizes, crossing, crossings

__all__ = ["FORECASTER"]


def stages(facts: Facts, plan: RunPlan, config: FairVFL) -> tuple[StageForecast, ...]:
    """Forecast a training."""
    return _Forecast(facts, plan, config).stages()


def key(config: FairVFL) -> None:
    """Say that a training encrypts nothing; audits do."""


FORECASTER = Forecaster(key=key, stages=stages)

Sizes = Counter[int]
"""How many messages there are of so many rows."""


class _Forecast:
    """One training: who brings columns, who has which attribute, and what they send for it."""

    def __init__(self, facts: Facts, plan: RunPlan, config: FairVFL) -> None:
        self._facts, self._plan, self._config = facts, plan, config
        (self._lead,), (self._server,) = plan.roles["label_holder"], plan.roles[AGGREGATOR]
        self._holders = [party for party in plan.parties if plan.role_of(party) in HOLDERS]
        self._attributes = self._divide_attributes()
        self._coders = [party for party in self._holders if self._has_columns(party)]
        if facts.task == "ranking" or facts.known_task != "multiclass":
            self._outputs = 1
        else:
            self._outputs = facts.classes

    def stages(self) -> tuple[StageForecast, ...]:
        """Return all stages in order."""
        config, facts = self._config, self._facts
        epoch = batch_sizes(facts.training, config.batch_size)
        steps = epoch.total() * config.epochs
        every = Counter({rows: number * config.epochs for rows, number in epoch.items()})
        contested = every if config.adversary_every == 1 else self._contested(steps, epoch.total())
        test = Counter(part.stop - part.start for part in chunks(facts.test))
        return (
            self._stage("set-up", self._setting_up()),
            self._stage("training, all epochs", [*self._steps(every), *self._removal(contested)]),
            self._stage("evaluation", [*self._codes(test), *self._towards_task(test), *self._marks()]),
        )

    def _setting_up(self) -> list[Crossing]:
        facts = self._facts
        amounts = Amounts(facts.training, facts.validation, facts.test, self._outputs)
        found = [crossing(self._lead, self._server, (amounts, 1))]
        for party in self._holders:
            offered = offer(self._role(party))(party in self._coders, self._attributes[party], "")
            found.append(crossing(party, self._server, (offered, 1)))
        return found

    def _steps(self, sizes: Sizes) -> list[Crossing]:
        config, found = self._config, [*self._codes(sizes), *self._towards_task(sizes)]
        is_elsewhere = config.task_cut == "server"
        width = self._outputs if is_elsewhere else config.unified_width
        gradient = TaskScoreGradient if is_elsewhere else TaskGradient
        found += self._tensors(self._lead, self._server, gradient, sizes, width)
        for party in self._coders:
            found += self._tensors(self._server, party, local_gradient(self._role(party)), sizes, config.width)
        return found

    def _removal(self, sizes: Sizes) -> list[Crossing]:
        """Return what crosses for each attribute, in the steps in which it is removed."""
        config, found = self._config, []
        is_noised, hides = config.protected_noise > 0, config.hides_attributes
        for party, attributes in self._attributes.items():
            role = self._role(party)
            pairs = [(protected_code(role, is_noised), discriminator_gradient(role, hides))]
            if config.mapper_step != "merged":
                pairs.append((protected_code_again(role, is_noised), adversarial_gradient(role, hides)))
            widths = [config.width_of(one) for one in attributes if one in config.removed]
            for there, back in pairs:
                found += self._tensors(self._server, party, there, sizes, *widths)
                found += self._tensors(party, self._server, back, sizes, *widths)
        return found

    def _codes(self, sizes: Sizes) -> list[Crossing]:
        config, found = self._config, []
        for party in self._coders:
            found += crossings(
                party,
                self._server,
                local_code(self._role(party)),
                sizes,
                lambda rows: torch.zeros(rows, config.width, dtype=dtype_of(config)),
                lambda rows: np.zeros(rows, bool),
            )
        return found

    def _towards_task(self, sizes: Sizes) -> list[Crossing]:
        config = self._config
        if config.task_cut == "server":
            return self._tensors(self._server, self._lead, TaskScores, sizes, self._outputs)
        return self._tensors(self._server, self._lead, unified_code(config.noise > 0), sizes, config.unified_width)

    def _marks(self) -> list[Crossing]:
        name = "0" * 2 * MARK_BYTES
        return [crossing(self._server, party, (mark(self._role(party))(name), 1)) for party in self._holders]

    def _tensors(self, sender: str, receiver: str, message: type[Any], sizes: Sizes, *widths: int) -> list[Crossing]:
        dtype = dtype_of(self._config)
        samples = [
            (message(torch.zeros(rows, width, dtype=dtype)), number)
            for rows, number in sizes.items()
            for width in widths
        ]
        return [crossing(sender, receiver, *samples)] if samples else []

    def _contested(self, steps: int, steps_per_epoch: int) -> Sizes:
        """Count the batches of the steps in which attributes are removed: every so many-th."""
        config, rest = self._config, self._facts.training % self._config.batch_size
        places = Counter(
            step % steps_per_epoch == 0 for step in range(1, steps + 1) if step % config.adversary_every == 0
        )
        return Counter({config.batch_size: places[False]}) + Counter({rest or config.batch_size: places[True]})

    def _divide_attributes(self) -> dict[str, tuple[str, ...]]:
        """Return who has which attributes."""
        names, wanted = self._facts.names, self._config.attributes
        found = {party: [one for one in wanted if one in names.get(party, ())] for party in self._holders}
        missing = [one for one in wanted if not any(one in own for own in found.values())]
        absent = [party for party in self._holders if party not in names]
        elsewhere = [party for party in absent if self._role(party) == "attribute_holder"] or absent
        if missing and not elsewhere:
            raise ConfigError(f"config.attributes names '{missing[0]}', which no party of this run has.")
        for attribute, party in zip(missing, cycle(elsewhere), strict=False):
            found[party].append(attribute)
        return {party: tuple(one for one in wanted if one in own) for party, own in found.items()}

    def _has_columns(self, party: str) -> bool:
        if self._role(party) == "attribute_holder":
            return False
        if party in self._facts.names:
            return bool(read_columns(self._facts.names[party], party, self._role(party), self._config))
        return self._role(party) == "feature_holder" or self._facts.columns_of(party) > 0

    def _role(self, party: str) -> str:
        return self._plan.role_of(party)

    def _stage(self, name: str, sent: list[Crossing]) -> StageForecast:
        return StageForecast(name=name, seconds=None, sent=tuple(sent))
