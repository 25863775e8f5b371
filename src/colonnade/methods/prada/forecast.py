"""How long a training takes and what it sends, stage by stage.

Encryption and messages are counted. What the feature holder's networks take is not: they learn beside the encryption,
which takes longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, cast

import numpy as np

from colonnade.exchanges.public_keys import largest_modulus
from colonnade.exchanges.secure_linear_forecast import LayerForecast
from colonnade.methods.prada.config import PrADA
from colonnade.methods.prada.head import chunks, head_format
from colonnade.methods.prada.lessons import Phase, batches_of, phase_of
from colonnade.methods.prada.messages import HOLDER, BankMessages, Chosen, bank_messages
from colonnade.nn.regression import outputs_for
from colonnade.session import Crossing, Facts, Forecaster, Portion, RunPlan, Session, StageForecast, crossing

__all__ = ["FORECASTER"]

# How many groups a feature holder proposes where nobody names any.
_PROPOSED = 4
# MARVELL's noise makes slopes larger, by about so much with the usual budget.
_NOISE = 8.0


def stages(facts: Facts, plan: RunPlan, config: PrADA) -> tuple[StageForecast, ...]:
    """Forecast the stages train, pretrain or finetune."""
    return _Forecast(facts, plan, config).stages()


def key(config: PrADA) -> str | None:
    """Return the key size by name; None if nothing is encrypted."""
    return config.key if config.is_sealed else None


def assumes(plan: RunPlan, config: PrADA) -> tuple[str, ...]:
    """Say what is not counted, or not known before the run."""
    found = ["the feature holder's networks take no time of their own"] if config.is_sealed else []
    if not config.groups and config.grouped:
        found.append(f"the feature holder proposes {_PROPOSED} groups, as config.groups names none")
    if config.novelties and plan.stage != "pretrain":
        found.append("no category is new to the sources (novelties)")
    return tuple(found)


FORECASTER = Forecaster(
    key=key, stages=stages, covers=("train", "pretrain", "finetune"), is_by_pair=True, assumes=assumes
)


class _SameSeed:
    """As much of a session as the sizes of batches depend on: not even on this."""

    def seed(self, purpose: str, counter: int = 0) -> int:
        return 0


@dataclass(frozen=True)
class _Pupil:
    """One bank with the feature holder, in one phase."""

    bank: str
    phase: Phase
    portion: Portion
    messages: BankMessages
    layer: LayerForecast | None
    inputs: int
    scores: int

    @property
    def batches(self) -> Counter[int]:
        """Count an epoch's batches by size."""
        rows = np.arange(self.portion.training)
        cut = batches_of(cast(Session, _SameSeed()), self.phase, self.bank, rows, 0)
        return Counter(len(places) for _, places in cut)

    @property
    def numbers(self) -> np.ndarray[Any, Any]:
        """Return the weights' shape, filled with anything."""
        return np.zeros((self.inputs, self.scores))


@dataclass
class _Work:
    """What both sides of a pair do, one after the other, and what crosses meanwhile."""

    holder: str
    bank: str

    def __post_init__(self) -> None:
        self.busy = {self.holder: 0.0, self.bank: 0.0}
        self.sent: list[Crossing] = []
        self.hops = 0

    def add(self, holder: float, bank: float, times: int = 1) -> None:
        """Let both work."""
        self.busy[self.holder] += times * holder
        self.busy[self.bank] += times * bank

    def down(self, *messages: tuple[Any, int]) -> None:
        """Send from the feature holder to the bank."""
        self._send(self.holder, self.bank, messages)

    def up(self, *messages: tuple[Any, int]) -> None:
        """Send from the bank to the feature holder."""
        self._send(self.bank, self.holder, messages)

    def _send(self, sender: str, receiver: str, messages: Sequence[tuple[Any, int]]) -> None:
        if messages:
            self.sent.append(crossing(sender, receiver, *messages))
            self.hops += self.sent[-1].count


class _Forecast:
    """One run: lessons of banks with the feature holder, of which only one is given at a time."""

    def __init__(self, facts: Facts, plan: RunPlan, config: PrADA) -> None:
        self._facts, self._plan, self._config, self._machines = facts, plan, config, facts.machines
        (self._holder,) = plan.roles[HOLDER]
        sources = plan.roles.get("source", ()) if plan.stage != "finetune" else ()
        targets = plan.roles["target"]
        phases = ("finetune", "vfl") if config.compare == "vfl" else ("finetune",)
        self._banks = (*targets, *sources)
        self._pupils = [self._pupil(party, "source", "pretrain") for party in sources]
        if plan.stage != "pretrain":
            self._pupils += [self._pupil(party, "target", phase) for party in targets for phase in phases]

    def stages(self) -> tuple[StageForecast, ...]:
        """Return all stages in order."""
        found = [self._setting_up()]
        for pupil in self._pupils:
            if not pupil.phase.trains_inputs:
                found.append(self._sealing(pupil))
            found.append(self._epoch(pupil))
        return (*found, self._evaluating())

    def _pupil(self, bank: str, role: str, phase: str) -> _Pupil:
        config, facts = self._config, self._facts
        messages, scores = bank_messages(role, config.uses_marvell), outputs_for(facts.known_task, facts.classes)
        inputs = len(self._names) * config.aggregate
        layer = None
        if config.is_sealed:
            format = head_format(config, inputs, scores)
            layer = LayerForecast(self._holder, bank, format, messages.linear, self._machines)
        return _Pupil(bank, phase_of(config, phase), facts.portion_of(bank), messages, layer, inputs, scores)

    @property
    def _names(self) -> list[str]:
        if not self._config.grouped:
            return ["all"]
        single = list(self._config.groups) or [f"group{number + 1}" for number in range(_PROPOSED)]
        pairs = combinations(single, 2) if self._config.interactions else ()
        return [*single, *(f"{one}-{other}" for one, other in pairs)]

    def _setting_up(self) -> StageForecast:
        sent: list[Crossing] = []
        busy: dict[str, float] = {}
        hops, seconds = 0, 0.0
        first = {pupil.bank: pupil for pupil in reversed(self._pupils)}
        for bank, pupil in first.items():
            work, portion = _Work(self._holder, bank), pupil.portion
            if pupil.layer is not None:
                costs = self._machines.crypto
                work.down((largest_modulus(HOLDER, pupil.messages.bank, costs.key_bits), 1))
                work.add(0.0, costs.tables)
            names = (tuple(self._names), self._config.aggregate, ())
            work.down((pupil.messages.GroupNames(*names), 1))
            known = np.arange(portion.training + portion.validation + portion.test)
            work.up((pupil.messages.LabelledRows(known, pupil.scores), 1))
            sent, hops, busy = [*sent, *work.sent], hops + work.hops, busy | work.busy
            seconds += sum(work.busy.values())
        for pupil in self._pupils:
            work = _Work(self._holder, pupil.bank)
            layer = pupil.layer
            work.down((pupil.messages.ClearStart(pupil.numbers) if layer is None else layer.opening_share(), 1))
            sent, hops = [*sent, *work.sent], hops + work.hops
        if self._config.is_sealed:
            costs = self._machines.crypto
            busy[self._holder] = costs.key_generation + costs.owner_tables
            seconds += busy[self._holder]
        return self._stage("keys and set-up", seconds, busy, sent, hops)

    def _sealing(self, pupil: _Pupil) -> StageForecast:
        """Numbers that never change are encrypted when they are first used, and then kept."""
        work, layer = _Work(self._holder, pupil.bank), pupil.layer
        for rows, number in pupil.batches.items():
            if layer is not None:
                work.add(layer.sealing(rows), layer.receiving(rows), number)
        work.down(*[(self._inputs(pupil, rows, trains=True), number) for rows, number in pupil.batches.items()])
        return self._ended(f"{self._title(pupil)}, encrypting numbers", work)

    def _epoch(self, pupil: _Pupil) -> StageForecast:
        work, layer, sizes = _Work(self._holder, pupil.bank), pupil.layer, pupil.batches
        every = list(sizes.items())
        if pupil.phase.trains_inputs:
            self._trained_batches(pupil, work)
        elif layer is not None:
            work.up((layer.masked_gradient(), sizes.total()))
            work.down((layer.share_update(), sizes.total()))
            for rows, number in every:
                step = self._step(pupil, rows)
                asked = layer.asking(rows) + layer.teaching(rows, step)
                work.add(layer.answering(rows) + layer.learning(), asked, number)
        if layer is not None:
            work.up(*[(layer.masked_logits(rows), number) for rows, number in every])
            work.down(*[(layer.opened_logits(rows), number) for rows, number in every])
        self._score(pupil, pupil.portion.validation, work)
        work.up((pupil.messages.EpochEnd(True, False), 1))
        for idle in self._banks:
            if idle != pupil.bank:
                messages = bank_messages(self._plan.role_of(idle), self._config.uses_marvell)
                work.sent.append(crossing(self._holder, idle, (messages.Turn(1000, True, False), 1)))
                work.sent.append(crossing(idle, self._holder, (messages.TurnSeen(1000), 1)))
        return self._ended(f"{self._title(pupil)}, one epoch", work, pupil.phase.epochs)

    def _trained_batches(self, pupil: _Pupil, work: _Work) -> None:
        layer, messages = pupil.layer, pupil.messages
        every = list(pupil.batches.items())
        if layer is None:
            shapes = [(np.zeros((rows, pupil.inputs)), number) for rows, number in every]
            work.down(*[(messages.ClearInputs(values), number) for values, number in shapes])
            work.up(*[(messages.ClearGradients(values), number) for values, number in shapes])
            return
        # An epoch's first batch carries no update: the last one's went after it.
        largest = max(pupil.batches)
        first = [(layer.trained_inputs(largest, is_first=True), 1)]
        others = [
            (layer.trained_inputs(rows, is_first=False), number - (rows == largest))
            for rows, number in every
            if number > (rows == largest)
        ]
        work.down(*first, *others)
        work.up(*[(layer.trained_gradients(rows), number) for rows, number in every])
        work.down((layer.share_update(), 1))
        for rows, number in every:
            slope = min(1.0, (_NOISE if self._config.uses_marvell else 1.0) / rows)
            teaching = layer.teaching_trained(rows, self._step(pupil, rows), slope)
            asked = layer.receiving_trained(rows) + layer.asking(rows) + teaching
            work.add(layer.sealing_trained(rows) + layer.answering(rows) + layer.learning_trained(rows), asked, number)

    def _evaluating(self) -> StageForecast:
        sent: list[Crossing] = []
        busy = dict.fromkeys((self._holder, *self._banks), 0.0)
        hops, seconds = 0, 0.0
        for pupil in self._pupils:
            is_target = pupil.messages.bank == "target"
            if not is_target and self._plan.stage != "pretrain":
                continue
            work = _Work(self._holder, pupil.bank)
            self._score(pupil, pupil.portion.test + (pupil.portion.validation if is_target else 0), work)
            if pupil.phase.name == "finetune":
                work.up((Chosen("transfer", "0" * 32), 1))
            sent, hops = [*sent, *work.sent], hops + work.hops
            seconds += sum(work.busy.values())
            busy = {party: busy[party] + work.busy.get(party, 0.0) for party in busy}
        return self._stage("evaluation", seconds, busy, sent, hops)

    def _score(self, pupil: _Pupil, rows: int, work: _Work) -> None:
        layer = pupil.layer
        sizes = list(Counter(len(one) for one in chunks(rows)).items())
        work.down(*[(self._inputs(pupil, size, trains=False), number) for size, number in sizes])
        if layer is None:
            return
        work.up(*[(layer.masked_logits(size), number) for size, number in sizes])
        work.down(*[(layer.opened_logits(size), number) for size, number in sizes])
        for size, number in sizes:
            asked = layer.receiving(size, trains=False) + layer.asking(size)
            work.add(layer.sealing(size, trains=False) + layer.answering(size), asked, number)

    def _inputs(self, pupil: _Pupil, rows: int, *, trains: bool) -> Any:
        if pupil.layer is None:
            return pupil.messages.ClearInputs(np.zeros((rows, pupil.inputs)))
        return pupil.layer.sealed_inputs(rows, trains=trains)

    def _step(self, pupil: _Pupil, rows: int) -> float:
        # A schedule that falls to zero has about half its rate on average.
        return 0.5 * pupil.phase.head_rate / rows

    def _title(self, pupil: _Pupil) -> str:
        name = {"pretrain": "pre-training", "finetune": "fine-tuning", "vfl": "training without a source"}
        return f"{name[pupil.phase.name]} of {pupil.bank}"

    def _ended(self, name: str, work: _Work, times: int = 1) -> StageForecast:
        return self._stage(name, sum(work.busy.values()), work.busy, work.sent, work.hops, times)

    def _stage(
        self, name: str, seconds: float, busy: dict[str, float], sent: list[Crossing], hops: int, times: int = 1
    ) -> StageForecast:
        line = self._machines.line.seconds(hops, sum(one.bytes for one in sent))
        whole = seconds + line if self._config.is_sealed else None
        return StageForecast(name=name, seconds=whole, busy=busy, sent=tuple(sent), times=times)
