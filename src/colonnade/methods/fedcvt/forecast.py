"""What a training sends, stage by stage; where codes are encrypted, also how long it takes.

Encryption and messages are counted. What networks take is not: it is little beside the encryption, and without it
depends on the networks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from colonnade.exchanges.epochs import EpochVerdict
from colonnade.exchanges.public_keys import largest_modulus
from colonnade.exchanges.secure_linear import LinearFormat
from colonnade.exchanges.split_linear import fit_sums, split_formats
from colonnade.exchanges.split_linear_forecast import ArrayForecast, Sizes, SplitForecast
from colonnade.methods.fedcvt import open_cut, sealed_cut
from colonnade.methods.fedcvt.config import FEDCVT, SCORES_ALONE, FedCVT, Variant
from colonnade.methods.fedcvt.estimates import GRADIENTS, LOGITS
from colonnade.methods.fedcvt.guards import fit_is_hidden, hidden_rows
from colonnade.methods.fedcvt.messages import (
    AlignedGradient,
    AlignedLogits,
    Choice,
    CodeGradient,
    Codes,
    EstimatedLogits,
    EstimateGradient,
    FitCodes,
    FitGradient,
    HeldOutCodes,
    NoisedCodeGradient,
    NoisedCodes,
    NoisedHeldOutCodes,
    OwnRows,
    Schedule,
    SharedCodes,
)
from colonnade.methods.fedcvt.networks import dtype_of
from colonnade.methods.fedcvt.rows import batch_rows, steps_of
from colonnade.nn.regression import outputs_for
from colonnade.session import Crossing, Facts, Forecaster, RunPlan, StageForecast, crossing

__all__ = ["FORECASTER", "assumes", "key", "stages"]

_LEAD, _HOLDER = "label_holder", "feature_holder"


def stages(facts: Facts, plan: RunPlan, config: FedCVT) -> tuple[StageForecast, ...]:
    """Forecast a training of all candidates."""
    return _Forecast(facts, plan, config).stages()


def key(config: FedCVT) -> str | None:
    """Return the key size by name; None if nothing is encrypted."""
    return config.key if config.is_sealed and config.joint_candidates else None


def assumes(plan: RunPlan, config: FedCVT) -> tuple[str, ...]:
    """Say what is not counted, or not known before the run."""
    found = []
    if config.is_sealed:
        found.append("networks take no time of their own")
        if FEDCVT in config.candidates and config.variant(FEDCVT).uses_partner_rows and config.pseudo_labels:
            found.append("every row that only a feature holder knows gets a label")
    return (*found, "all rows of the label holder have a label")


FORECASTER = Forecaster(key=key, stages=stages, assumes=assumes)

Rows = tuple[int, tuple[int, ...], int]
"""Of one step: shared rows, each feature holder's own, and the label holder's own."""


class _Work:
    """What the parties do, what crosses meanwhile, and how many messages wait for one another."""

    def __init__(self, facts: Facts, lead: str, partners: Sequence[str]) -> None:
        self._machines, self._lead, self._partners = facts.machines, lead, partners
        self.seconds, self.hops = 0.0, 0
        self.busy = dict.fromkeys((lead, *partners), 0.0)
        self._counts: dict[tuple[str, str, str], Crossing] = {}

    def at_partners(self, work: Sequence[float], times: int = 1) -> None:
        """Let all feature holders work at the same time."""
        self._spend(0.0, work, self._machines.side_by_side(work), times)

    def at_lead(self, work: float, times: int = 1) -> None:
        """Let the label holder work while all wait."""
        self._spend(work, (), work, times)

    def in_turn(
        self, asked: Sequence[float], answered: Sequence[float], times: int = 1, *, before: Sequence[float] = ()
    ) -> None:
        """Let the label holder prepare a question for each in turn, and each answer as soon as it has its own.

        ``before`` is what each must do before the next one's turn comes.
        """
        first = before or [0.0] * len(asked)
        turns = [one + other for one, other in zip(asked, first, strict=True)]
        theirs = [one + other for one, other in zip(answered, first, strict=True)]
        self._spend(sum(asked), theirs, self._machines.one_after_another(turns, answered), times)

    def up(self, partner: str, message: Any, times: int = 1) -> None:
        """Send from a feature holder to the label holder."""
        self._send(partner, self._lead, message, times)

    def down(self, partner: str, message: Any, times: int = 1) -> None:
        """Send from the label holder to a feature holder."""
        self._send(self._lead, partner, message, times)

    @property
    def sent(self) -> tuple[Crossing, ...]:
        """Return what crosses, by kind."""
        return tuple(self._counts.values())

    def _spend(self, lead: float, work: Sequence[float], seconds: float, times: int) -> None:
        self.busy[self._lead] += times * lead
        for partner, one in zip(self._partners, work, strict=False):
            self.busy[partner] += times * one
        self.seconds += times * seconds

    def _send(self, sender: str, receiver: str, message: Any, times: int) -> None:
        one = crossing(sender, receiver, (message, times))
        kind = (sender, receiver, one.message)
        before = self._counts.get(kind)
        count, size = (0, 0) if before is None else (before.count, before.bytes)
        self._counts[kind] = Crossing(sender, receiver, one.message, count + one.count, size + one.bytes)
        self.hops += times


@dataclass(frozen=True)
class _Sealed:
    """One candidate between the label holder and one feature holder, where codes are encrypted."""

    partner: str
    layer: SplitForecast
    """Under the feature holder's key."""
    estimates: ArrayForecast
    """Under the label holder's."""


class _Forecast:
    """One run: candidates, one after the other."""

    def __init__(self, facts: Facts, plan: RunPlan, config: FedCVT) -> None:
        self._facts, self._config, self._machines = facts, config, facts.machines
        (self._lead,) = plan.roles[_LEAD]
        self._partners = tuple(plan.roles.get(_HOLDER, ()))
        self._parties = 1 + len(self._partners)
        self._outputs = outputs_for(facts.known_task, facts.classes)
        self._own = {party: facts.rows[party] - facts.shared for party in (self._lead, *self._partners)}
        self._steps = steps_of(config, facts.training, list(self._own.values()))
        self._anchors = min(config.anchors, facts.training)

    def stages(self) -> tuple[StageForecast, ...]:
        """Return all stages in order."""
        if not self._partners:
            return ()
        config, found = self._config, [self._setting_up()]
        for name in config.joint_candidates:
            variant = config.variant(name)
            warming = min(config.warmup_epochs, config.epochs)
            if not config.is_sealed or not variant.uses_partner_rows:
                warming = 0
            elif not config.pseudo_labels:
                warming = config.epochs
            for title, epochs, is_labelled in (
                (f"warm-up of {name}", warming, False),
                (f"training of {name}", config.epochs - warming, variant.uses_partner_rows),
            ):
                if epochs:
                    found.append(self._epoch(title, variant, epochs, is_labelled))
        return (*found, self._evaluating())

    # --- what the parties say to one another ------------------------------------------------------------------------

    def _setting_up(self) -> StageForecast:
        config, work = self._config, self._work()
        for partner in self._partners:
            work.up(partner, OwnRows(self._own[partner]))
            work.down(partner, Schedule(self._steps, self._outputs))
        if config.is_sealed and config.joint_candidates:
            costs = self._machines.crypto
            for partner in self._partners:
                work.up(partner, largest_modulus(_HOLDER, _LEAD, costs.key_bits))
                work.down(partner, largest_modulus(_LEAD, _HOLDER, costs.key_bits))
                for name in config.joint_candidates:
                    work.up(partner, self._sealed(config.variant(name), partner).layer.opening_shares())
            # A feature holder needs tables for the label holder's key only where it returns something under it.
            tables = costs.tables if FEDCVT in config.candidates and config.estimate else 0.0
            own = costs.key_generation + costs.owner_tables
            every = [own + costs.tables * len(self._partners), *[own + tables] * len(self._partners)]
            work.seconds += self._machines.side_by_side(every)
            work.busy |= dict(zip((self._lead, *self._partners), every, strict=True))
        return self._stage("keys and set-up" if config.is_sealed else "set-up", work)

    def _epoch(self, title: str, variant: Variant, epochs: int, is_labelled: bool) -> StageForecast:
        work = self._work()
        for rows, times in self._batches.items():
            if self._config.is_sealed:
                self._sealed_step(variant, rows, is_labelled, work, times)
            else:
                self._open_step(variant, rows, work, times)
        self._score(variant, self._facts.validation, work)
        for partner in self._partners:
            work.down(partner, EpochVerdict(True, False))
        return self._stage(f"{title}, one epoch", work, epochs)

    def _evaluating(self) -> StageForecast:
        config, facts, work = self._config, self._facts, self._work()
        for name in config.joint_candidates:
            variant = config.variant(name)
            if config.is_sealed:
                self._score_sealed(variant, (self._anchors, 0), work)
            else:
                self._score(variant, self._anchors, work)
            for rows in (facts.validation, facts.test):
                self._score(variant, rows, work)
            if config.is_sealed and variant.name == FEDCVT and variant.uses_partner_rows:
                self._estimate_held_out(variant, work)
        # Nobody knows yet which it will be: the longest name of those it can be.
        choice = Choice(max(config.candidates, key=len), max(self._alone, key=len, default=""), "0" * 16)
        for partner in self._partners:
            work.down(partner, choice)
        return self._stage("evaluation", work)

    def _score(self, variant: Variant, rows: int, work: _Work) -> None:
        """Have the label holder score rows it does not learn from."""
        config = self._config
        most = sealed_cut.SCORED_AT_ONCE if config.is_sealed else open_cut.SCORED_AT_ONCE
        for size, times in Counter(min(most, rows - start) for start in range(0, rows, most)).items():
            if config.is_sealed:
                self._score_sealed(variant, (0, size), work, times)
                continue
            message = NoisedHeldOutCodes if config.is_noised else HeldOutCodes
            for partner in self._partners:
                work.up(partner, message(self._codes(variant, size)), times)

    # --- levels 0 and 1 ---------------------------------------------------------------------------------------------

    def _open_step(self, variant: Variant, rows: Rows, work: _Work, times: int) -> None:
        config, (shared, own, _) = self._config, rows
        codes = NoisedCodes if config.is_noised else Codes
        gradient = CodeGradient if config.defence == "none" else NoisedCodeGradient
        for partner, count in zip(self._partners, own, strict=True):
            extra = count if variant.uses_partner_rows else int(variant.name == "mean_fill")
            values = self._codes(variant, shared + extra)
            work.up(partner, codes(values), times)
            work.down(partner, gradient(values), times)

    def _codes(self, variant: Variant, rows: int) -> torch.Tensor:
        width = sum(self._config.width_of(kind) for kind in variant.kinds)
        return torch.zeros(rows, width, dtype=dtype_of(self._config))

    # --- level 2 ----------------------------------------------------------------------------------------------------

    def _sealed_step(self, variant: Variant, rows: Rows, is_labelled: bool, work: _Work, times: int) -> None:
        shared, own, _ = rows
        fewest = hidden_rows(self._missing(variant))
        counts = [(shared, count if is_labelled and count > fewest else 0) for count in own]
        sides = [self._sealed(variant, partner) for partner in self._partners]
        if self._pulls(variant):
            codes = torch.zeros(shared, self._config.shared_width, dtype=dtype_of(self._config))
            for side in sides:
                work.up(side.partner, SharedCodes(codes), times)
        both = list(zip(sides, counts, strict=True))
        for side in sides:
            work.up(side.partner, side.layer.sealed_shares(), times)
        fits = variant.name == FEDCVT and fit_is_hidden(self._config, shared, self._parties)
        is_fitted = fits and self._config.partner_fit > 0.0
        self._logits(both, work, times, trains=True, fits=is_fitted)
        estimated = [(side, one) for side, one in both if one[1]]
        if estimated:
            self._estimate(variant, estimated, rows, work, times)
        if fits and self._config.own_fit:
            self._fit(variant, sides[0], shared, work, times)
        taught, updated, learned = [], [], []
        for side, one in both:
            sizes = self._sizes(side.layer.formats[0], rows, one)
            taught.append(side.layer.teaching(one, sizes, fits=is_fitted))
            updated.append(side.layer.updating())
            learned.append(side.layer.learning(one, fits=is_fitted))
            work.down(side.partner, side.layer.masked_weight_gradient(), times)
            work.down(side.partner, side.layer.sealed_code_gradient(one, fits=is_fitted), times)
            work.up(side.partner, side.layer.weight_update(), times)
        work.in_turn(taught, learned, times, before=updated)

    def _logits(
        self,
        both: Sequence[tuple[_Sealed, tuple[int, int]]],
        work: _Work,
        times: int,
        *,
        trains: bool,
        fits: bool = False,
    ) -> None:
        """Have all feature holders' codes of a batch scored."""
        work.at_partners([side.layer.sealing_codes(one, trains=trains, fits=fits) for side, one in both], times)
        asked = [side.layer.asking(one, trains=trains, fits=fits) for side, one in both]
        work.in_turn(asked, [side.layer.answering(one) for side, one in both], times)
        work.at_lead(sum(side.layer.reading(one) for side, one in both), times)
        for side, one in both:
            work.up(side.partner, side.layer.sealed_codes(one, trains=trains, fits=fits), times)
            work.down(side.partner, side.layer.masked_logits(one), times)
            work.up(side.partner, side.layer.opened_logits(one), times)

    def _score_sealed(self, variant: Variant, counts: tuple[int, int], work: _Work, times: int = 1) -> None:
        both = [(self._sealed(variant, partner), counts) for partner in self._partners]
        self._logits(both, work, times, trains=False)

    def _estimate(
        self,
        variant: Variant,
        both: Sequence[tuple[_Sealed, tuple[int, int]]],
        rows: Rows,
        work: _Work,
        times: int,
    ) -> None:
        """Have every feature holder estimate what others' codes of its own rows add, and carry the gradient back."""
        kinds, missing = len(variant.kinds), self._missing(variant)
        asked, answered, taken = [], [], []
        sent, carried, opened = [], [], []
        for side, (shared, own) in both:
            of, bits = side.estimates, self._attention_bits(shared)
            logits = LOGITS.layout((kinds * shared, missing), self._bits)
            estimates = LOGITS.sums(logits, own)
            asked.append(of.sealing([logits]))
            answered.append(of.checking([logits]) + of.left_product(logits, own, bits, dense=True))
            answered[-1] += of.blurring([estimates])
            taken.append(of.opening([estimates]))
            gradient = GRADIENTS.layout((own, missing), self._bits)
            returned = GRADIENTS.sums(gradient, kinds * shared)
            sent.append(of.sealing([gradient]))
            carried.append(of.checking([gradient]) + of.left_product(gradient, kinds * shared, bits, dense=True))
            carried[-1] += of.blurring([returned])
            opened.append(of.opening([returned]))
            work.down(side.partner, AlignedLogits(of.array(logits)), times)
            work.up(side.partner, EstimatedLogits(of.array(estimates)), times)
            work.down(side.partner, EstimateGradient(of.array(gradient)), times)
            work.up(side.partner, AlignedGradient(of.array(returned)), times)
        for questions, answers, read in ((asked, answered, taken), (sent, carried, opened)):
            work.in_turn(questions, answers, times)
            work.at_lead(sum(read), times)

    def _estimate_held_out(self, variant: Variant, work: _Work) -> None:
        """Have every feature holder estimate what others' codes of held-out rows add, by its attention to anchors."""
        shape = (len(variant.kinds) * self._anchors, self._missing(variant))
        layout, chunk = LOGITS.layout(shape, self._bits), sealed_cut.SCORED_AT_ONCE
        sizes = Counter(
            min(chunk, rows - start)
            for rows in (self._facts.validation, self._facts.test)
            for start in range(0, rows, chunk)
        )
        # One feature holder after the other.
        for partner in self._partners:
            of = ArrayForecast(self._lead, partner, self._machines)
            spent = {self._lead: of.sealing([layout]), partner: of.checking([layout])}
            work.down(partner, AlignedLogits(of.array(layout)))
            for rows, times in sizes.items():
                estimates = LOGITS.sums(layout, rows)
                averaging = of.left_product(layout, rows, self._attention_bits(self._anchors), dense=True)
                spent[partner] += times * (averaging + of.blurring([estimates]))
                spent[self._lead] += times * of.opening([estimates])
                work.up(partner, EstimatedLogits(of.array(estimates)), times)
            for party, seconds in spent.items():
                work.busy[party] += seconds
                work.seconds += seconds

    def _fit(self, variant: Variant, side: _Sealed, shared: int, work: _Work, times: int) -> None:
        """Have the feature holder say how its estimates of the label holder's codes miss them."""
        sums, of = fit_sums(shared), side.estimates
        layouts = [sums.layout((shared, width), self._bits) for width in self._widths(variant)]
        answers = [sums.sums(layout, shared) for layout in layouts]
        products = sum(of.left_product(layout, shared, self._fit_bits(shared), dense=True) for layout in layouts)
        work.at_lead(sum(of.sealing([layout]) for layout in layouts), times)
        work.in_turn([0.0], [of.checking(layouts) + products + of.blurring(answers)], times)
        work.at_lead(of.opening(answers), times)
        work.down(side.partner, FitCodes(tuple(of.array(layout) for layout in layouts)), times)
        work.up(side.partner, FitGradient(tuple(of.array(layout) for layout in answers)), times)

    # --- how large the numbers of products are ------------------------------------------------------------------------

    def _sizes(self, format: LinearFormat, rows: Rows, counts: tuple[int, int]) -> Sizes:
        """Slopes of all scores but one are about as small as there are classes; every loss is a mean over all rows."""
        shared, own, lead = rows
        all_rows = shared + lead + (sum(own) if counts[1] else 0)
        scores = max(self._outputs, 2)
        slope = -math.log2(max(all_rows, 1)) - (scores - 1) / scores * math.log2(scores)
        return Sizes(
            steps=format.step_format.fraction_bits + slope + math.log2(self._config.head_rate),
            slopes=format.slope_format.fraction_bits + slope,
            fits=self._fit_bits(shared),
        )

    def _attention_bits(self, keys: int) -> float:
        return LOGITS.weights.fraction_bits - math.log2(max(keys, 1))

    def _fit_bits(self, shared: int) -> float:
        return fit_sums(shared).weights.fraction_bits - math.log2(max(shared, 1))

    # --- sizes --------------------------------------------------------------------------------------------------------

    @cached_property
    def _batches(self) -> Counter[Rows]:
        """Count an epoch's steps by how many rows they have."""
        facts, size = self._facts, self._config.own_batch_size
        return Counter(
            (
                batch_rows(facts.training, self._config.batch_size, step),
                tuple(batch_rows(self._own[partner], size, step) for partner in self._partners),
                batch_rows(self._own[self._lead], size, step),
            )
            for step in range(self._steps)
        )

    @property
    def _bits(self) -> int:
        return self._machines.crypto.key_bits

    def _sealed(self, variant: Variant, partner: str) -> _Sealed:
        config = self._config
        columns = self._outputs * (2 if variant.has_party_heads else 1)
        formats = split_formats(self._widths(variant), columns, config.batch_size + config.own_batch_size, self._bits)
        layer = SplitForecast(partner, self._lead, self._machines, tuple(formats))
        return _Sealed(partner, layer, ArrayForecast(self._lead, partner, self._machines))

    def _widths(self, variant: Variant) -> list[int]:
        return [self._config.width_of(kind) for kind in variant.kinds]

    def _missing(self, variant: Variant) -> int:
        return self._outputs * (self._parties if variant.has_party_heads else 1)

    def _pulls(self, variant: Variant) -> bool:
        config = self._config
        wanted = config.sealed_pull == "one_sided" and config.pull > 0.0
        return wanted and variant.name == FEDCVT and "shared" in variant.kinds

    @property
    def _alone(self) -> Sequence[str]:
        """Return the candidates that can score rows which only a feature holder knows."""
        config = self._config
        found = [name for name in config.candidates if name in SCORES_ALONE]
        if not (config.estimate or (config.cross_view and not config.is_sealed)):
            found = [name for name in found if name != FEDCVT]
        return found

    def _work(self) -> _Work:
        return _Work(self._facts, self._lead, self._partners)

    def _stage(self, name: str, work: _Work, times: int = 1) -> StageForecast:
        # The label holder speaks with all partners over one line; those that wait for one another are on one channel.
        waiting = work.hops * (1 + 1 / len(self._partners)) / 2
        line = self._machines.line.seconds(waiting, sum(one.bytes for one in work.sent))
        seconds = work.seconds + line if self._config.is_sealed else None
        return StageForecast(name=name, seconds=seconds, busy=work.busy, sent=work.sent, times=times)
