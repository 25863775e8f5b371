"""How long secure regression takes and what it sends, stage by stage."""

from __future__ import annotations

from collections import Counter

import numpy as np

from colonnade.exchanges.epochs import EpochVerdict
from colonnade.exchanges.public_keys import largest_modulus
from colonnade.exchanges.secure_linear_forecast import LayerForecast
from colonnade.methods.secure_lr.config import MOST_EPOCHS, SecureLR
from colonnade.methods.secure_lr.guard import most_epochs
from colonnade.methods.secure_lr.messages import (
    LINEAR,
    ColumnCount,
    HeldOutLogits,
    NoisedShare,
    PartnerShare,
    TrainingExtent,
)
from colonnade.methods.secure_lr.predict import chunks
from colonnade.methods.secure_lr.train import linear_format
from colonnade.nn.regression import outputs_for
from colonnade.session import Crossing, Facts, Forecaster, RunPlan, StageForecast, batch_sizes, crossing

__all__ = ["FORECASTER"]


def stages(facts: Facts, plan: RunPlan, config: SecureLR) -> tuple[StageForecast, ...]:
    """Forecast a run from the keys to the evaluation."""
    return _Forecast(facts, plan, config).stages()


def key(config: SecureLR) -> str:
    """Return the key size by name."""
    return config.key


FORECASTER = Forecaster(key=key, stages=stages)


class _Forecast:
    """One run: a layer for every feature holder, and batches of at most two sizes."""

    def __init__(self, facts: Facts, plan: RunPlan, config: SecureLR) -> None:
        (self._lead,) = plan.roles["label_holder"]
        self._outputs = outputs_for(facts.known_task, facts.classes)
        # Columns that depend on one another, and earlier runs, may make the epochs fewer.
        widths = [facts.columns_of(owner) for owner in plan.roles.get("feature_holder", ())]
        allowed = [] if config.allow_leak else [most_epochs(width, self._outputs, 0) for width in widths]
        config = config.for_epochs(config.epochs or max(1, min([MOST_EPOCHS, *allowed])))
        self._facts, self._config, self._machines = facts, config, facts.machines
        self._layers = [
            LayerForecast(
                owner,
                self._lead,
                linear_format(config, facts.columns_of(owner), self._outputs),
                LINEAR,
                facts.machines,
            )
            for owner in plan.roles.get("feature_holder", ())
        ]
        self._training = batch_sizes(facts.training, config.batch_size)
        self._validation = Counter(len(rows) for rows in chunks(np.arange(facts.validation)))
        self._test = Counter(len(rows) for rows in chunks(np.arange(facts.test)))

    def stages(self) -> tuple[StageForecast, ...]:
        """Return all stages in order."""
        return (self._setting_up(), self._sealing(), self._epoch(), self._evaluating())

    def _setting_up(self) -> StageForecast:
        costs, own, theirs = self._machines.crypto, "feature_holder", "label_holder"
        modulus = largest_modulus(own, theirs, costs.key_bits)
        sent = []
        for layer in self._layers:
            format = layer.format
            for message in (modulus, ColumnCount(format.inputs, format.inputs, 0), layer.opening_share()):
                sent.append(crossing(layer.owner, self._lead, (message, 1)))
            sent.append(crossing(self._lead, layer.owner, (TrainingExtent(format.outputs, self._config.epochs), 1)))
        busy = {layer.owner: costs.key_generation + costs.owner_tables for layer in self._layers}
        tables = costs.tables * len(self._layers)
        seconds = self._machines.side_by_side(list(busy.values())) + tables + self._line(4, sent)
        return StageForecast(
            name="keys and set-up", seconds=seconds, busy={self._lead: tables, **busy}, sent=tuple(sent)
        )

    def _sealing(self) -> StageForecast:
        """Every batch is encrypted when it is first used, and then kept."""
        seconds, busy, sent = 0.0, dict.fromkeys([self._lead, *self._owners], 0.0), []
        for sizes, trains in ((self._training, True), (self._validation, False)):
            for rows, number in sizes.items():
                sealing = {layer.owner: layer.sealing(rows, trains=trains) for layer in self._layers}
                receiving = sum(layer.receiving(rows, trains=trains) for layer in self._layers)
                seconds += number * (self._machines.side_by_side(list(sealing.values())) + receiving)
                busy[self._lead] += number * receiving
                for owner, work in sealing.items():
                    busy[owner] += number * work
        for layer in self._layers:
            messages = [
                (layer.sealed_inputs(rows, trains=trains), number)
                for sizes, trains in ((self._training, True), (self._validation, False))
                for rows, number in sizes.items()
            ]
            sent.append(crossing(layer.owner, self._lead, *messages))
        hops = self._training.total() + self._validation.total()
        return StageForecast(
            name="encrypting columns", seconds=seconds + self._line(hops, sent), busy=busy, sent=tuple(sent)
        )

    def _epoch(self) -> StageForecast:
        seconds, busy = 0.0, dict.fromkeys([self._lead, *self._owners], 0.0)
        # What is asked, what is answered, and how often.
        exchanges: list[tuple[list[float], list[float], int]] = []
        for rows, number in (*self._training.items(), *self._validation.items()):
            asked = [layer.asking(rows) for layer in self._layers]
            exchanges.append((asked, [layer.answering(rows) for layer in self._layers], number))
        for rows, number in self._training.items():
            asked = [self._teaching(layer, rows) for layer in self._layers]
            exchanges.append((asked, [layer.learning() for layer in self._layers], number))
        for asked, answered, number in exchanges:
            seconds += number * self._machines.one_after_another(asked, answered)
            busy[self._lead] += number * sum(asked)
            for owner, work in zip(self._owners, answered, strict=True):
                busy[owner] += number * work
        sent = [one for layer in self._layers for one in self._epoch_messages(layer)]
        hops = 4 * self._training.total() + 2 * self._validation.total() + 1
        return StageForecast(
            name="training, one epoch",
            seconds=seconds + self._line(hops, sent),
            busy=busy,
            sent=tuple(sent),
            times=self._config.epochs,
        )

    def _epoch_messages(self, layer: LayerForecast) -> list[Crossing]:
        every = list((self._training + self._validation).items())
        batches = self._training.total()
        return [
            crossing(self._lead, layer.owner, *[(layer.masked_logits(rows), number) for rows, number in every]),
            crossing(layer.owner, self._lead, *[(layer.opened_logits(rows), number) for rows, number in every]),
            crossing(self._lead, layer.owner, (layer.masked_gradient(), batches)),
            crossing(layer.owner, self._lead, (layer.share_update(), batches)),
            crossing(self._lead, layer.owner, (EpochVerdict(True, False), 1)),
        ]

    def _evaluating(self) -> StageForecast:
        sent = []
        for layer in self._layers:
            shares = (layer.format.share_limit,) * (layer.format.inputs * self._outputs)
            given_up = NoisedShare(shares) if self._config.coefficient_noise else PartnerShare(shares)
            sent.append(crossing(self._lead, layer.owner, (given_up, 1)))
            logits = [(HeldOutLogits(np.zeros((rows, self._outputs))), number) for rows, number in self._test.items()]
            if logits:
                sent.append(crossing(layer.owner, self._lead, *logits))
        return StageForecast(name="evaluation", seconds=self._line(1 + self._test.total(), sent), sent=tuple(sent))

    def _teaching(self, layer: LayerForecast, rows: int) -> float:
        # Slopes of single rows reach 1; the schedule makes the numbers smaller from epoch to epoch, and so the work.
        epochs = self._config.epochs
        rates = [self._config.rate_at((epoch + 0.5) / epochs) for epoch in range(epochs)]
        sizes = Counter(round(rate / rows, 9) for rate in rates)
        return sum(layer.teaching(rows, step) * number for step, number in sizes.items()) / epochs

    def _line(self, hops: int, sent: list[Crossing]) -> float:
        # The label holder speaks with all partners over one line; those that wait for one another are on one channel.
        others = max(0, len(self._layers) - 1) / 2
        waiting = hops * (1 + others) if self._layers else 0
        return self._machines.line.seconds(waiting, sum(one.bytes for one in sent))

    @property
    def _owners(self) -> list[str]:
        return [layer.owner for layer in self._layers]
