"""How long a training takes and what it sends, stage by stage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from gmpy2 import mpz

from colonnade.crypto import CipherArray, Format, Layout, PublicKey, ring_elements
from colonnade.exchanges.public_keys import largest_modulus
from colonnade.methods.ftl import sealed, self_learning
from colonnade.methods.ftl.config import FTL
from colonnade.methods.ftl.link import parameter_counts
from colonnade.methods.ftl.messages import (
    Choice,
    ClearLabels,
    ClearScoresAlone,
    ClearSourceSignals,
    ClearTargetSignals,
    LabelledRows,
    ScoresAlone,
    SealedLabels,
    SourceSignals,
    TargetSignals,
    Verdict,
    layer_inputs,
    opening,
    scoring,
)
from colonnade.methods.ftl.scoring import chunks, code_layout, score_layout
from colonnade.session import Crossing, Facts, Forecaster, RunPlan, StageForecast, crossing

__all__ = ["FORECASTER", "key", "stages"]

# The factors of a product are derivatives of an activation times columns of a few standard deviations. The work goes
# by their size, in binary places below one: how far on average a slope, a column and a code lie below it.
_SLOPE_BITS = {"sigmoid": -2.2, "tanh": -0.6}
_COLUMN_BITS, _CODE_BITS = -0.9, -1.1
_SCORE_BITS = -3.0
"""A translator's entries are smaller: means of codes with labels of both signs."""


def stages(facts: Facts, plan: RunPlan, config: FTL) -> tuple[StageForecast, ...]:
    """Forecast a training from the keys to the safeguard."""
    return _Forecast(facts, plan, config).stages()


def key(config: FTL) -> str | None:
    """Return the key size by name; None if nothing is encrypted."""
    return config.key if config.is_sealed else None


FORECASTER = Forecaster(key=key, stages=stages)


@dataclass(frozen=True)
class _Side:
    """One party's encoder and the size of what its products need."""

    name: str
    role: str
    columns: int
    config: FTL
    small: int
    """Terms of the last layer's products beside those of the shared rows."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the inputs of each trained layer."""
        every = (self.columns, *self.config.hidden)
        return every[-self.config.trained_layers :] if self.config.trained_layers else every

    @property
    def counts(self) -> list[int]:
        """Return the parameters of each trained layer, last to first."""
        return parameter_counts(self.widths, self.config.width)


@dataclass
class _Work:
    """Seconds of work of a stage: what happens at the same time is one phase."""

    facts: Facts
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.busy: dict[str, float] = {}

    def phase(self, work: Sequence[tuple[str, float]], times: int = 1) -> None:
        """Let parties work side by side; one that has several things to do does them one after the other."""
        each: dict[str, float] = {}
        for party, seconds in work:
            each[party] = each.get(party, 0.0) + seconds
        self.seconds += times * self.facts.machines.side_by_side(list(each.values()))
        for party, seconds in each.items():
            self.busy[party] = self.busy.get(party, 0.0) + times * seconds


class _Forecast:
    """One run: a link between every source and every target, of which one or the other is single."""

    def __init__(self, facts: Facts, plan: RunPlan, config: FTL) -> None:
        self._facts, self._config, self._machines = facts, config, facts.machines
        width = config.width
        self._links = [
            (
                _Side(source, "source", facts.columns_of(source), config, 2 * width),
                _Side(target, "target", facts.columns_of(target), config, width),
            )
            for source in plan.roles["source"]
            for target in plan.roles["target"]
        ]
        self._parties = plan.parties
        self._scores = facts.classes if facts.known_task == "multiclass" else 1
        self._rows = min(config.batch_size or facts.training, facts.training)
        self._labelled = min(config.labelled_rows or facts.training, facts.training)
        self._held = [count for count in (facts.validation, facts.test) if count]

    def stages(self) -> tuple[StageForecast, ...]:
        """Return all stages in order."""
        config = self._config
        with_loss = len(range(0, config.iterations, config.loss_every)) if config.loss_every else 0
        iterations = [
            self._iteration(is_looked_at, times)
            for is_looked_at, times in ((True, with_loss), (False, config.iterations - with_loss))
            if times
        ]
        return (
            self._setting_up(),
            *iterations,
            self._evaluating(),
            *([self._self_learning()] if config.safeguard else []),
        )

    # --- messages, and the work on them ---------------------------------------------------------------------------

    def _setting_up(self) -> StageForecast:
        sent, work = [], _Work(self._facts)
        for source, target in self._links:
            for one, other in ((source, target), (target, source)):
                if self._config.is_sealed:
                    modulus = largest_modulus(one.role, other.role, self._key.bits)
                    sent.append(crossing(one.name, other.name, (modulus, 1)))
                sizes = layer_inputs(one.role, other.role)(one.widths, one.columns)
                sent.append(crossing(one.name, other.name, (sizes, 1)))
            rows = LabelledRows(np.zeros(self._facts.training, dtype=bool), self._scores)
            sent.append(crossing(source.name, target.name, (rows, 1)))
        if self._config.is_sealed:
            costs = self._machines.crypto
            links = {
                party: sum(party in (source.name, target.name) for source, target in self._links)
                for party in self._parties
            }
            own = costs.key_generation + costs.owner_tables
            work.phase([(party, own + links[party] * costs.tables) for party in self._parties])
        return self._stage("keys and set-up", work, sent, 3)

    def _iteration(self, with_loss: bool, times: int) -> StageForecast:
        sent, work = [], _Work(self._facts)
        for source, target in self._links:
            sent += self._iteration_messages(source, target, with_loss)
        if self._config.is_sealed:
            costs, more = self._machines.crypto, 1 if with_loss else 0
            seal, multiply, open_ = [], [], []
            for source, target in self._links:
                for one, other in ((source, target), (target, source)):
                    own = sum(layout.count for layout in self._signals(one.role))
                    theirs = sum(layout.count for layout in self._signals(other.role))
                    seal.append((one.name, self._machines.divided(one.name, own, costs.owner_encryption)))
                    multiply.append((one.name, theirs * costs.check + self._multiplying(one, with_loss)))
                    asked = self._asked(one, more if one.role == "source" else 0)
                    multiply.append((one.name, self._masking(one.name, asked)))
                    open_.append((other.name, self._opening(other.name, asked)))
            work.phase(seal)
            work.phase(multiply)
            work.phase(open_)
        name = "training, one iteration" if with_loss or not self._config.loss_every else "one iteration, no loss"
        return self._stage(name, work, sent, 4, times)

    def _iteration_messages(self, source: _Side, target: _Side, with_loss: bool) -> list[Crossing]:
        width, rows = self._config.width, self._rows
        verdict = crossing(source.name, target.name, (Verdict(True, False, False), 1))
        if not self._config.is_sealed:
            signals = ClearSourceSignals(np.zeros((rows, width)), np.zeros((width, width)))
            codes = ClearTargetSignals(np.zeros((rows, width)), 0.0)
            return [
                crossing(source.name, target.name, (signals, 1)),
                crossing(target.name, source.name, (codes, 1)),
                verdict,
            ]
        found = [
            self._signal(source, target, SourceSignals),
            self._signal(target, source, TargetSignals),
            verdict,
        ]
        for one, other in ((source, target), (target, source)):
            masked, opened = opening(one.role, other.role)
            layouts = self._asked(one, 1 if with_loss and one.role == "source" else 0)
            found.append(crossing(one.name, other.name, *[(masked(self._array(layout)), 1) for layout in layouts]))
            rings = [(opened(self._ring(layout)), 1) for layout in layouts]
            found.append(crossing(other.name, one.name, *rings))
        return found

    def _evaluating(self) -> StageForecast:
        sent, work = [], _Work(self._facts)
        for source, target in self._links:
            codes, masked, opened, clear = scoring("target", "source")
            parts = [len(rows) for rows in chunks(self._labelled + sum(self._held))]
            width = self._config.width
            if not self._config.is_sealed:
                messages = [(clear(np.zeros((rows, width))), 1) for rows in parts]
                sent.append(crossing(target.name, source.name, *messages))
                continue
            layouts = [
                (code_layout(rows, width, self._key)[0], score_layout(rows, width, self._scores, self._key))
                for rows in parts
            ]
            sent += [
                crossing(target.name, source.name, *[(codes(self._array(one)), 1) for one, _ in layouts]),
                crossing(source.name, target.name, *[(masked(self._array(one)), 1) for _, one in layouts]),
                crossing(target.name, source.name, *[(opened(self._ring(one)), 1) for _, one in layouts]),
            ]
            costs = self._machines.crypto
            bits = round(sealed.FRACTION_BITS + _SCORE_BITS)
            for sent_codes, scores in layouts:
                sealing = self._machines.divided(target.name, sent_codes.count, costs.owner_encryption)
                work.phase([(target.name, sealing + math.prod(sent_codes.shape) * costs.packing)])
                product = self._products(source.name, sent_codes.blocks, width, self._scores, bits)
                work.phase(
                    [(source.name, sent_codes.count * costs.check + product + self._masking(source.name, [scores]))]
                )
                work.phase([(target.name, self._opening(target.name, [scores]))])
        hops = 3 * len(list(chunks(self._labelled + sum(self._held)))) * len(self._links)
        return self._stage("evaluation", work, sent, hops)

    def _self_learning(self) -> StageForecast:
        sent, work, hops = [], _Work(self._facts), 0
        shape = (self._labelled, self._scores)
        for source, target in self._links:
            choice = crossing(source.name, target.name, (Choice(True), 1))
            if not self._config.is_sealed:
                scored = [(ClearScoresAlone(np.zeros((rows, self._scores))), 1) for rows in self._held]
                sent += [
                    crossing(source.name, target.name, (ClearLabels(np.zeros(shape)), 1)),
                    *([crossing(target.name, source.name, *scored)] if scored else []),
                    choice,
                ]
                continue
            costs, labels = self._machines.crypto, self._plan(shape, self_learning.LABELS)
            held = [len(rows) for part in self._held for rows in chunks(part)]
            scale = 3 * sealed.FRACTION_BITS
            layouts = [sealed.gradient_layouts([rows * self._scores], [scale], self._key)[0] for rows in held]
            answers = [(ScoresAlone(self._array(layout)), 1) for layout in layouts]
            sent += [
                crossing(source.name, target.name, (SealedLabels(self._array(labels)), 1)),
                *([crossing(target.name, source.name, *answers)] if answers else []),
                choice,
            ]
            # Entries of the fit are about one over the number of labelled rows; rows to be scored are of order one.
            inputs, bits = target.columns + 1, round(sealed.FRACTION_BITS - math.log2(self._labelled))
            fitting = self._products(target.name, self._scores, self._labelled, inputs, bits)
            scoring_rows = [
                self._products(target.name, self._scores, inputs, rows, sealed.FRACTION_BITS) for rows in held
            ]
            work.phase([(source.name, self._machines.divided(source.name, labels.count, costs.owner_encryption))])
            masking = [self._masking(target.name, [layout]) for layout in layouts]
            work.phase([(target.name, labels.count * costs.check + fitting + sum(scoring_rows) + sum(masking))])
            work.phase([(source.name, self._opening(source.name, layouts))])
            hops += 3
        return self._stage("learning alone", work, sent, hops)

    # --- what one step's products cost ----------------------------------------------------------------------------

    def _signals(self, role: str) -> list[Layout]:
        """Return the form of what a party seals in one iteration."""
        width, rows = self._config.width, self._rows
        entries = (width * (width + 1) // 2,)
        if role == "source":
            return [self._plan((rows, width), sealed.ROWS), self._plan(entries, sealed.ROWS)]
        return [
            self._plan((rows, width), sealed.CODES),
            self._plan(entries, sealed.moment_format(rows)),
            self._plan((1,), sealed.REMAINDER),
        ]

    def _signal(self, sender: _Side, receiver: _Side, message: type[Any]) -> Crossing:
        """Weigh signals; not with all their ciphertexts, which may be hundreds of megabytes."""
        layouts = self._signals(sender.role)
        empty = [self._array(replace(layout, shape=(0,) * len(layout.shape))) for layout in layouts]
        one = crossing(sender.name, receiver.name, (message(*empty), 1))
        return replace(one, bytes=one.bytes + self._count(layouts) * 2 * self._key.width)

    def _asked(self, side: _Side, more: int) -> list[Layout]:
        """Return the form of what a party has opened in one iteration."""
        width, rows, bits = self._config.width, self._rows, sealed.FRACTION_BITS
        if self._config.reveal == "rows":
            if side.role == "source":
                return sealed.gradient_layouts([rows * width, 1], [bits, bits], self._key)
            return sealed.gradient_layouts([rows * width], [2 * bits], self._key)
        counts = side.counts
        counts[0] += more
        return sealed.gradient_layouts(counts, [bits * (2 + place) for place in range(len(counts))], self._key)

    def _multiplying(self, side: _Side, with_loss: bool) -> float:
        """Return a party's work on the other's ciphertexts, up to the packed gradients."""
        config, costs, rows = self._config, self._machines.crypto, self._rows
        width, layouts = config.width, self._asked(side, 1 if with_loss and side.role == "source" else 0)
        slot = sum(layout.shape[0] * layout.slot_bits for layout in layouts) * costs.multiplication
        total = self._machines.divided(side.name, sum(layout.count for layout in layouts), slot / self._count(layouts))
        if config.reveal == "rows":
            if side.role == "source":
                return total
            bits = round(sealed.FRACTION_BITS + _CODE_BITS)
            return total + self._products(side.name, width, width, rows, bits) + rows * width * costs.product(1, 1, 33)
        pull = math.log2(max(2.0 * config.gamma * self._labelled / self._facts.training, 1e-9))
        slope = _SLOPE_BITS[config.activation]
        bits = round(sealed.FRACTION_BITS + slope + _COLUMN_BITS + (pull if side.role == "source" else 0.0))
        results, terms = side.widths[-1] + 1, rows + side.small
        total += (
            self._products(side.name, width, terms, results, max(bits, 1)) + terms * width * results * costs.packing
        )
        if side.role == "source":
            total += self._products(side.name, width, rows, 1, 1)
            if with_loss:
                loss = round(sealed.FRACTION_BITS + pull + _CODE_BITS)
                total += self._products(side.name, 1, rows * width + width * (width + 1) // 2 + 1, 1, max(loss, 1))
        return total + self._hidden(side, slope, pull if side.role == "source" else 0.0)

    def _hidden(self, side: _Side, slope: float, pull: float) -> float:
        """Return the work of the layers below the last one."""
        widths, rows, width = side.widths, self._rows, self._config.width
        if len(widths) == 1:
            return 0.0
        bits = sealed.FRACTION_BITS
        small = [width * (width + 1) // 2]
        total = 0.0
        if side.role == "source":
            small += [self._scores * width, width]
            total += self._products(side.name, width, rows, self._scores, bits - 1)
        # A weight is of the order of one over the root of its inputs.
        weight = -0.5 * math.log2(widths[-1])
        total += self._products(side.name, rows, width, widths[-1], max(round(bits + 2 * slope + weight + pull), 1))
        for layer in range(len(widths) - 2, -1, -1):
            outputs, inputs = widths[layer + 1], widths[layer] + 1
            total += self._products(side.name, outputs, rows, inputs, round(bits + _COLUMN_BITS))
            # What all rows add is lifted to the scale of this layer.
            lifted = bits * (len(widths) - layer)
            total += sum(self._products(side.name, 1, entries, outputs * inputs, lifted) for entries in small)
            if layer:
                weight = -0.5 * math.log2(widths[layer])
                total += self._products(side.name, rows, outputs, widths[layer], round(bits + slope + weight))
        return total

    def _products(self, party: str, groups: int, terms: int, results: int, bits: int) -> float:
        each = self._machines.crypto.product(terms, results, bits)
        pieces = groups if groups > 1 else results
        return self._machines.divided(party, pieces, each * groups / pieces)

    def _masking(self, party: str, layouts: Sequence[Layout]) -> float:
        return self._machines.divided(party, self._count(layouts), self._machines.crypto.encryption)

    def _opening(self, party: str, layouts: Sequence[Layout]) -> float:
        costs = self._machines.crypto
        values = sum(layout.line_count * layout.line_length for layout in layouts)
        opened = self._machines.divided(party, self._count(layouts), costs.decryption + costs.check)
        return opened + values * costs.packing

    def _stage(self, name: str, work: _Work, sent: list[Crossing], hops: int, times: int = 1) -> StageForecast:
        seconds = None
        if self._config.is_sealed:
            seconds = work.seconds + self._machines.line.seconds(hops, sum(one.bytes for one in sent))
        return StageForecast(name=name, seconds=seconds, busy=work.busy, sent=tuple(sent), times=times)

    @staticmethod
    def _count(layouts: Sequence[Layout]) -> int:
        return sum(layout.count for layout in layouts)

    @cached_property
    def _key(self) -> PublicKey:
        # Only its size matters: nothing is encrypted here.
        return PublicKey((1 << self._machines.crypto.key_bits) - 1)

    def _plan(self, shape: tuple[int, ...], format: Format) -> Layout:
        return sealed.plan(shape, format, self._key)

    def _array(self, layout: Layout) -> CipherArray:
        return CipherArray(self._key, layout, [mpz(1)] * layout.count)

    def _ring(self, layout: Layout) -> Any:
        return ring_elements([0] * layout.count, self._key)
