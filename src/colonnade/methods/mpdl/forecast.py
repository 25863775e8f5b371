"""What a training sends, stage by stage. How long it computes depends on the networks, and is not forecast.

Columns of tables that are here are known by name; of others, as many are taken as the user says, with names of eight
letters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from colonnade.errors import ConfigError
from colonnade.exchanges.masked_sums import mask_key, masked_values
from colonnade.methods.mpdl.central import chunks
from colonnade.methods.mpdl.config import COLLABORATOR, COMPLETED, MPDL, found_by
from colonnade.methods.mpdl.messages import (
    Columns,
    LogitGradient,
    Logits,
    RowOrder,
    alone_inputs,
    choice,
    dual_scalars,
    first_gradient,
    fold_verdict,
    kernel_gradient,
    schedule,
    shipped_rows,
    table_message,
)
from colonnade.methods.mpdl.networks import dtype_of, first_shape, hidden_width
from colonnade.methods.mpdl.rows import fold_parts
from colonnade.methods.mpdl.train import MODELS, Amounts
from colonnade.methods.mpdl.units import UnitColumn
from colonnade.nn.regression import outputs_for
from colonnade.session import Crossing, Facts, Forecaster, RunPlan, StageForecast, batch_sizes, crossing, crossings

__all__ = ["FORECASTER"]

_NAME = "x" * 8
_MARK = "0" * 16


def stages(facts: Facts, plan: RunPlan, config: MPDL) -> tuple[StageForecast, ...]:
    """Forecast a training, or one of its two halves."""
    for name, value, instead in (("exchange", "interactive", "release"), ("completion", "secure_block", "own_copy")):
        if getattr(config, name) == value:
            raise ConfigError(
                f"Trainings with config.{name} = '{value}' are not forecast yet. With {name} = '{instead}' they are, "
                "and send less."
            )
    return _Forecast(facts, plan, config).stages()


def key(config: MPDL) -> None:
    """Say that what is forecast encrypts nothing."""


def assumes(plan: RunPlan, config: MPDL) -> tuple[str, ...]:
    """Say what is not known before the run."""
    found = [] if plan.stage == "dual" else ["all rows of the label holder have a label"]
    if plan.stage == "train" and config.folds and config.fold_rounds > 1:
        found.append("no part of the cross-validation gains so much that the rest is left out")
    if config.mechanism == "none":
        found.append("categories that the settings do not name have names of eight letters")
    return tuple(found)


FORECASTER = Forecaster(key=key, stages=stages, covers=("train", "dual", "central"), assumes=assumes)

Sizes = Counter[int]
"""How many messages there are of so many rows."""


class _Forecast:
    """One run: who brings how many columns, and what all send."""

    def __init__(self, facts: Facts, plan: RunPlan, config: MPDL) -> None:
        self._facts, self._plan, self._config = facts, plan, config
        (self._lead,) = plan.roles["label_holder"]
        self._others = tuple(plan.roles["feature_holder"])
        self._holders = [party for party in plan.parties if plan.role_of(party) != COLLABORATOR]
        self._helper = "".join(plan.roles.get(COLLABORATOR, ()))
        self._names = {party: self._names_of(party) for party in self._holders}
        self._common = self._common_width()
        outputs = outputs_for(facts.known_task, facts.classes)
        inputs = sum(len(names) for names in self._names.values()) + self._common
        self._amounts = Amounts(
            facts.training,
            facts.validation,
            facts.test,
            facts.rows[self._lead] - facts.shared,
            hidden_width(config, inputs, outputs),
            outputs,
        )
        self._shape = first_shape(config, self._amounts.hidden)

    def stages(self) -> tuple[StageForecast, ...]:
        """Return all stages in order."""
        stage, shared = self._plan.stage, self._amounts.shared
        parts = [len(part) for part in fold_parts(shared, self._config)] if stage == "train" else []
        lessons = [*(shared - part for part in parts), shared]
        found = [("set-up", self._setting_up())]
        if stage != "central":
            found.append(("dual learning", [*self._released(), *self._penalties(lessons)]))
        if stage == "dual":
            return _stages(found)
        if parts:
            compared = [one for part in parts for one in (*self._trainings(shared - part), *self._scoring(part))]
            verdicts = self._to_all(lambda role: fold_verdict(role)(False), len(parts))
            found.append(("cross-validation", [*compared, *verdicts]))
        found.append(("training, all epochs", self._trainings(shared)))
        found.append(("evaluation", self._evaluating()))
        return _stages(found)

    def _setting_up(self) -> list[Crossing]:
        amounts = self._amounts
        rows = (amounts.shared, amounts.validation, amounts.test, amounts.own)
        found = [crossing(party, self._lead, (Columns(self._own(party), bytes(32)), 1)) for party in self._others]
        found += self._to_all(lambda role: schedule(role)(*rows, amounts.hidden, amounts.outputs))
        if self._plan.stage != "dual":
            found += [crossing(self._lead, party, (RowOrder(2**63 - 1), 1)) for party in self._others]
            for sender, receiver in self._pairs():
                message = mask_key(self._role(sender), self._role(receiver))
                found.append(crossing(sender, receiver, (message(bytes(32)), 1)))
        return found

    def _released(self) -> list[Crossing]:
        """Return the columns that holders let each other learn from."""
        found = []
        for sender, receiver in self._pairs():
            message = table_message(self._config.mechanism, self._role(sender), self._role(receiver))
            names = self._names[sender]
            values = np.zeros((self._amounts.shared, len(names)))
            found.append(crossing(sender, receiver, (message(names, values), 1)))
        return found

    def _penalties(self, lessons: Iterable[int]) -> list[Crossing]:
        """Return what two holders tell each other in every step, where generators have a dual penalty."""
        config, sizes = self._config, Sizes()
        if not config.dual_is_on:
            return []
        for rows in lessons:
            sizes += _times(batch_sizes(rows, config.batch_size), config.generator_epochs)
        found = []
        for sender, receiver in self._pairs():
            message = dual_scalars(self._role(sender), self._role(receiver))
            found += crossings(sender, receiver, message, sizes, np.zeros)
        return found

    def _trainings(self, learned: int) -> list[Crossing]:
        """Return what both models take that learn from so many shared rows."""
        config, sizes = self._config, Sizes()
        for model in MODELS:
            rows = self._amounts.rows(model, learned, config, len(self._others))
            sizes += _times(batch_sizes(rows, config.batch_size), config.epochs)
        outputs = (self._amounts.outputs,)
        found = [*self._sums(sizes), *self._tensors(self._helper, self._lead, Logits, sizes, outputs)]
        found += self._tensors(self._lead, self._helper, LogitGradient, sizes, outputs)
        for party in self._holders:
            found += self._tensors(self._helper, party, first_gradient(self._role(party)), sizes, self._shape)
        if config.kernels == "tied" and config.image is not None:
            found += self._tied(sizes.total(), (config.image[0], config.kernel_size, config.kernel_size))
        if config.completion == "ship":
            found += self._shipped(learned)
        return found

    def _tied(self, steps: int, kernel: tuple[int, ...]) -> list[Crossing]:
        once = Sizes({self._amounts.hidden: steps})
        found = self._sums(once, kernel)
        for party in self._holders:
            found += self._tensors(self._helper, party, kernel_gradient(self._role(party)), once, kernel)
        return found

    def _shipped(self, learned: int) -> list[Crossing]:
        """Return generated columns, which go to the holders that have such columns."""
        found = []
        for sender, receiver in self._pairs():
            if sender != self._lead and not self._config.augment:
                continue
            rows = self._amounts.own if sender == self._lead else learned
            width = self._own(receiver) + (self._common if receiver == self._lead else 0)
            message = shipped_rows(self._role(sender), self._role(receiver))
            found.append(crossing(sender, receiver, (message(np.zeros((rows, width))), 1)))
        return found

    def _scoring(self, rows: int) -> list[Crossing]:
        """Return what it takes to have rows scored that all holders know, by both models."""
        sizes = _times(self._chunks(rows), len(MODELS))
        outputs = (self._amounts.outputs,)
        return [*self._sums(sizes), *self._tensors(self._helper, self._lead, Logits, sizes, outputs)]

    def _evaluating(self) -> list[Crossing]:
        amounts = self._amounts
        found = [*self._scoring(amounts.validation), *self._scoring(amounts.test)]
        sizes = self._chunks(amounts.test)
        for party in self._holders:
            role = self._role(party)
            if self._config.completes_alone(role):
                found += self._tensors(party, self._helper, alone_inputs(role), sizes, self._shape)
                found += self._tensors(self._helper, self._lead, Logits, sizes, (amounts.outputs,))
        # Nobody knows yet which it will be: the longer name.
        return found + self._to_all(lambda role: choice(role)(COMPLETED, _MARK))

    def _sums(self, sizes: Sizes, shape: tuple[int, ...] | None = None) -> list[Crossing]:
        found = []
        for party in self._holders:
            message = masked_values(self._role(party), COLLABORATOR)
            found += crossings(
                party,
                self._helper,
                message,
                sizes,
                lambda rows: np.zeros((rows, *(shape or self._shape)), np.uint64),
            )
        return found

    def _tensors(
        self, sender: str, receiver: str, message: type[Any], sizes: Sizes, shape: tuple[int, ...]
    ) -> list[Crossing]:
        dtype = dtype_of(self._config)
        return crossings(sender, receiver, message, sizes, lambda rows: torch.zeros(rows, *shape, dtype=dtype))

    def _to_all(self, made: Any, times: int = 1) -> list[Crossing]:
        """Return what the label holder tells everyone."""
        peers = [party for party in self._plan.parties if party != self._lead]
        return [crossing(self._lead, party, (made(self._role(party)), times)) for party in peers]

    def _chunks(self, rows: int) -> Sizes:
        return Counter(part.stop - part.start for part in chunks(rows, self._shape))

    def _pairs(self) -> list[tuple[str, str]]:
        return [(one, other) for one in self._holders for other in self._holders if one != other]

    def _own(self, party: str) -> int:
        return len(self._names[party])

    def _names_of(self, party: str) -> tuple[str, ...]:
        """Return what the numbers are called that only this party brings."""
        if party not in self._facts.names:
            return (_NAME,) * (self._facts.columns_of(party) - self._common_width())
        columns = [self._column(name) for name in self._facts.names[party]]
        names = [name for column in columns if not column.is_common for name in column.names]
        if self._config.mechanism == "none":
            # Text columns may have categories that the settings do not name, and columns without any are left out.
            common = sum(column.width for column in columns if column.is_common)
            more = self._facts.columns_of(party) - common - len(names)
            names = [*names, *[_NAME] * more] if more >= 0 else names[:more]
        return tuple(names)

    def _common_width(self) -> int:
        known = next((names for party, names in self._facts.names.items() if party in self._holders), ())
        return sum(column.width for column in map(self._column, known) if column.is_common)

    def _column(self, name: str) -> UnitColumn:
        return UnitColumn(
            name, "numeric", self._config.is_common(name), levels=tuple(found_by(name, self._config.levels) or ())
        )

    def _role(self, party: str) -> str:
        return self._plan.role_of(party)


def _times(sizes: Sizes, times: int) -> Sizes:
    return Counter({rows: number * times for rows, number in sizes.items()})


def _stages(found: list[tuple[str, list[Crossing]]]) -> tuple[StageForecast, ...]:
    return tuple(StageForecast(name=name, seconds=None, sent=tuple(sent)) for name, sent in found)
