"""One iteration after the other: Algorithm 1 of the paper, both roles, message by message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colonnade.crypto import CipherArray, concatenate
from colonnade.methods.ftl import maths, sealed
from colonnade.methods.ftl.config import FTL
from colonnade.methods.ftl.encoder import Apprentice, Encoder, Layers
from colonnade.methods.ftl.link import Link
from colonnade.methods.ftl.maths import Objective, Translator
from colonnade.methods.ftl.messages import SourceSignals, TargetSignals, Verdict
from colonnade.nn import Learner
from colonnade.session import Channel, Session

__all__ = [
    "Batch",
    "SourceLink",
    "SourceTrainer",
    "StopRule",
    "TargetTrainer",
    "add_answers",
    "apply_verdict",
    "batch_for",
    "looks_at_loss",
    "objective_for",
]

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_CALM_CHECKS, _RISING_CHECKS = 3, 10


@dataclass(kw_only=True)
class StopRule:
    """When to stop: the loss hardly moves, or rises again and again."""

    tolerance: float
    best: float | None = None
    previous: float | None = None
    calm: int = 0
    rising: int = 0

    def judge(self, loss: float, is_last: bool) -> Verdict:
        """Look at the loss of this iteration's beginning."""
        is_best = self.best is None or loss < self.best
        self.best = loss if is_best else self.best
        if self.previous is not None:
            is_calm = abs(self.previous - loss) <= self.tolerance * max(1.0, abs(self.previous))
            self.calm = self.calm + 1 if is_calm else 0
            self.rising = self.rising + 1 if loss > self.previous else 0
        self.previous = loss
        goes_back = self.rising >= _RISING_CHECKS
        return Verdict(is_best, is_last or goes_back or self.calm >= _CALM_CHECKS, goes_back)


@dataclass(frozen=True)
class Batch:
    """The rows of one step: places among the link's shared rows, and what makes sums over them a mean."""

    places: Places
    scale: float


def objective_for(config: FTL, task: str, rows: int, labelled: int) -> Objective:
    """Return what is minimised over so many shared rows, of which some lend their label."""
    loss = "squared" if task == "regression" else config.loss
    return Objective(loss, config.alignment, config.gamma * labelled / rows)


def batch_for(config: FTL, seed: int, rows: int, labelled: int) -> Batch:
    """Return one iteration's rows, the same at both parties."""
    size = config.batch_size
    if not size or size >= rows:
        return Batch(np.arange(rows), 1.0 / labelled)
    generator = np.random.default_rng(seed)
    return Batch(np.sort(generator.choice(rows, size, replace=False)), rows / size / labelled)


def looks_at_loss(config: FTL, iteration: int) -> bool:
    """Tell whether the loss is computed in this iteration."""
    return bool(config.loss_every) and iteration % config.loss_every == 0


@dataclass(frozen=True)
class SourceLink:
    """What the source has in common with one target."""

    peer: Channel
    shared: Places
    """Places of the shared rows among the source's rows."""
    labelled: Mask
    objective: Objective
    link: Link


@dataclass(frozen=True)
class _Turn:
    """What the source knows of one link in one iteration."""

    link: SourceLink
    batch: Batch
    shared: Places
    labelled: Mask
    targets: Numbers
    weights: Numbers


class SourceTrainer:
    """The source's side: one encoder, and a link to every target."""

    def __init__(
        self,
        session: Session,
        config: FTL,
        apprentice: Apprentice,
        rows: Numbers,
        targets: Numbers,
        used: int,
        links: Sequence[SourceLink],
        fold: int | None = None,
    ) -> None:
        """Take the source's rows; the first ``used`` of them make the translator."""
        self._fold = fold
        self._session, self._config, self._apprentice = session, config, apprentice
        self._encoder, self._learner = apprentice.encoder, apprentice.learner
        self._rows, self._targets, self._used, self._links = rows, targets, used, links

    def translator(self) -> Translator:
        """Return what turns codes into scores now."""
        return Translator.of(self._encoder.codes(self._rows[: self._used]), self._targets[: self._used])

    def train(self, rule: StopRule, begin: int, after: Callable[[int, bool], None]) -> None:
        """Go on from an iteration until the rule says stop; ``after`` is told every iteration that is over."""
        config = self._config
        for iteration in self._session.passes("iterations", config.iterations, begin):
            self._session.next_step()
            is_last = iteration + 1 >= config.iterations
            loss = self._step(iteration, looks_at_loss(config, iteration))
            if loss is None or config.batch_size:
                verdict = Verdict(False, is_last, False)
            else:
                verdict = rule.judge(loss, is_last)
            if loss is not None:
                self._session.record(**{"epoch": iteration + 1, _name_of_loss(self._fold): loss})
            for link in self._links:
                link.peer.send(verdict)
            apply_verdict(self._learner, verdict)
            after(iteration + 1, verdict.is_last)
            if verdict.is_last:
                return

    def _step(self, iteration: int, with_loss: bool) -> float | None:
        every = self._encoder.layers(self._rows)
        translator = Translator.of(every.codes[: self._used], self._targets[: self._used])
        turns = [self._begin(link, iteration, translator, every) for link in self._links]
        self._learner.zero_gradients()
        if self._config.is_sealed:
            losses = self._sealed(turns, translator, every, with_loss)
        else:
            losses = [self._clear(turn, translator, every) for turn in turns]
        self._encoder.add_decay(self._config.decay)
        own = self._apprentice.rebuild() + self._config.decay / 2.0 * self._encoder.squared_weights()
        return float(sum(losses) + own) if with_loss else None

    def _begin(self, link: SourceLink, iteration: int, translator: Translator, every: Layers) -> _Turn:
        """Step 1: send the row signals and the translator's moment."""
        count = len(link.shared)
        seed = self._session.seed(_name_of_batches(link.peer.peer, self._fold), iteration)
        batch = batch_for(self._config, seed, count, int(link.labelled.sum()))
        shared, labelled = link.shared[batch.places], link.labelled[batch.places]
        targets = self._targets[shared]
        weights = translator.row_weights(link.objective, targets, labelled)
        rows = weights @ translator.phi + link.objective.gamma * link.objective.kappa * every.codes[shared]
        moment = maths.upper(translator.moment(link.objective))
        link.peer.send(SourceSignals(link.link.seal(rows, sealed.ROWS), link.link.seal(moment, sealed.ROWS)))
        return _Turn(link, batch, shared, labelled, targets, weights)

    def _clear(self, turn: _Turn, translator: Translator, every: Layers) -> float:
        """Steps 2 to 6 in the clear: the target's codes give everything."""
        signals = turn.link.peer.receive(TargetSignals, rows=len(turn.shared))
        codes, remainder = np.asarray(signals.codes), np.asarray(signals.remainder)
        return self._learn_from_codes(turn, translator, every, codes, float(remainder[0]))

    def _learn_from_codes(
        self, turn: _Turn, translator: Translator, every: Layers, codes: Numbers, remainder: float
    ) -> float:
        objective = turn.link.objective
        gradients = maths.source_row_gradients(
            objective, translator, codes, turn.targets, turn.labelled, turn.shared, len(self._rows)
        )
        gradients[turn.shared] += objective.own_alignment_gradient(every.codes[turn.shared])
        self._encoder.add_row_gradients(self._rows, gradients, turn.batch.scale)
        loss = maths.loss_of(
            objective, translator, every.codes[turn.shared], codes, turn.targets, turn.labelled
        ) + objective.own_alignment(every.codes[turn.shared])
        return turn.batch.scale * (loss + remainder)

    def _sealed(self, turns: Sequence[_Turn], translator: Translator, every: Layers, with_loss: bool) -> list[float]:
        """Steps 2 to 6 with ciphertexts; all targets are asked before the first answer is awaited."""
        config = self._config
        for turn in turns:
            link, rows = turn.link.link, len(turn.shared)
            signals = turn.link.peer.receive(TargetSignals, rows=rows)
            codes = link.take(signals.codes, sealed.CODES)
            moment = link.take(signals.moment, sealed.moment_format(rows))
            remainder = link.take(signals.remainder, sealed.REMAINDER)
            if config.reveal == "rows":
                link.ask([codes, remainder])
                continue
            asked = self._gradients(turn, translator, every, codes, moment)
            if with_loss:
                factors = maths.loss_factors(turn.link.objective, translator, turn.weights, every.codes[turn.shared])
                asked[0] = concatenate([asked[0], sealed.loss_on_codes(codes, moment, remainder, factors)])
            link.ask(asked)
        for turn in turns:
            link = turn.link.link
            if config.reveal == "rows":
                link.open(0.0, link.row_layouts(len(turn.shared)))
            else:
                link.open(config.noise / turn.batch.scale, link.partner_layouts())
        return [self._finish(turn, translator, every, with_loss) for turn in turns]

    def _gradients(
        self, turn: _Turn, translator: Translator, every: Layers, codes: CipherArray, moment: CipherArray
    ) -> list[CipherArray]:
        objective, width = turn.link.objective, self._config.width
        sums = sealed.code_sums(codes, turn.labelled)
        repeated = np.tile(np.arange(width), (width, 1))
        factors = maths.source_factors(objective, translator, turn.weights, every, turn.shared)
        parts = [
            (codes, sealed.by_entry(len(turn.shared), width)),
            (moment, maths.triangle(width)),
            (sums, repeated),
        ]
        found = [sealed.last_layer(parts, factors)]
        weights = self._encoder.weights
        if len(weights) > 1:
            used = self._rows[: self._used]
            small = [sealed.weighted_sums(codes, turn.weights), moment, sums]
            jacobians = [
                self._encoder.jacobian_sums(used, one) for one in maths.source_cotangents(objective, translator)
            ]
            smalls = [sealed.Small(values, one) for values, one in zip(small, jacobians, strict=True)]
            pull = objective.gamma * objective.kappa
            found += sealed.hidden_layers(codes, pull, every.take(turn.shared), weights, smalls)
        return found

    def _finish(self, turn: _Turn, translator: Translator, every: Layers, with_loss: bool) -> float:
        objective, answers = turn.link.objective, turn.link.link.answers()
        if self._config.reveal == "rows":
            codes = answers[0].reshape(len(turn.shared), -1)
            return self._learn_from_codes(turn, translator, every, codes, float(answers[1][0]))
        own = maths.source_offset_gradients(translator, turn.weights.sum(axis=0), len(self._rows))
        own[turn.shared] += objective.own_alignment_gradient(every.codes[turn.shared])
        self._encoder.add_row_gradients(self._rows, own, turn.batch.scale)
        loss = 0.0
        if with_loss:
            answers[0], opened = answers[0][:-1], float(answers[0][-1])
            known = maths.known_loss(objective, translator, turn.targets, turn.labelled)
            loss = opened + known + objective.own_alignment(every.codes[turn.shared])
        add_answers(self._encoder, answers, turn.batch.scale)
        return turn.batch.scale * loss


class TargetTrainer:
    """The target's side of one link."""

    def __init__(
        self,
        session: Session,
        config: FTL,
        apprentice: Apprentice,
        peer: Channel,
        link: Link,
        rows: Numbers,
        labelled: Mask,
        objective: Objective,
        fold: int | None = None,
    ) -> None:
        """Take the shared rows, of which some lend their label."""
        self._fold = fold
        self._session, self._config, self._apprentice = session, config, apprentice
        self._encoder, self._learner = apprentice.encoder, apprentice.learner
        self._peer, self._link, self._rows, self._labelled, self._objective = peer, link, rows, labelled, objective

    def step(self, iteration: int) -> Verdict:
        """Play one iteration; the caller counts the steps."""
        count = len(self._rows)
        seed = self._session.seed(_name_of_batches(self._session.party, self._fold), iteration)
        batch = batch_for(self._config, seed, count, int(self._labelled.sum()))
        rows, labelled = self._rows[batch.places], self._labelled[batch.places]
        layers = self._encoder.layers(rows)
        self._learner.zero_gradients()
        own = self._apprentice.rebuild() + self._config.decay / 2.0 * self._encoder.squared_weights()
        remainder = self._objective.own_alignment(layers.codes) + own / batch.scale
        signals = self._exchange(layers.codes, labelled, remainder)
        if self._config.is_sealed:
            gradients = self._sealed(signals, layers, labelled, batch, looks_at_loss(self._config, iteration))
        else:
            moment = maths.square(np.asarray(signals.moment), self._config.width)
            gradients = maths.target_row_gradients(np.asarray(signals.rows), moment, layers.codes, labelled)
        gradients = gradients + self._objective.own_alignment_gradient(layers.codes)
        self._encoder.add_row_gradients(rows, gradients, batch.scale)
        self._encoder.add_decay(self._config.decay)
        return self._peer.receive(Verdict)

    def _exchange(self, codes: Numbers, labelled: Mask, remainder: float) -> SourceSignals:
        seal, moment = self._link.seal, maths.upper(codes[labelled].T @ codes[labelled])
        self._peer.send(
            TargetSignals(
                seal(codes, sealed.CODES),
                seal(moment, sealed.moment_format(len(codes))),
                seal([remainder], sealed.REMAINDER),
            )
        )
        return self._peer.receive(SourceSignals, rows=len(codes))

    def _sealed(self, signals: SourceSignals, layers: Layers, labelled: Mask, batch: Batch, with_loss: bool) -> Numbers:
        """Return what row gradients are opened; gradients of parameters go to the encoder at once."""
        config, link, codes = self._config, self._link, layers.codes
        rows, moment = link.take(signals.rows, sealed.ROWS), link.take(signals.moment, sealed.ROWS)
        if config.reveal == "rows":
            link.ask([sealed.row_gradients(rows, moment, codes, labelled)])
            link.open(0.0, link.code_layouts(len(codes)))
            return link.answers()[0].reshape(codes.shape)
        link.ask(self._gradients(rows, moment, layers, labelled, batch))
        more = 1 if with_loss else 0
        link.open(config.noise / batch.scale, link.partner_layouts(more), spared=more)
        add_answers(self._encoder, link.answers(), batch.scale)
        return np.zeros_like(codes)

    def _gradients(
        self, rows: CipherArray, moment: CipherArray, layers: Layers, labelled: Mask, batch: Batch
    ) -> list[CipherArray]:
        count, width = layers.codes.shape
        parts = [(rows, sealed.by_entry(count, width)), (moment, maths.triangle(width))]
        found = [sealed.last_layer(parts, maths.target_factors(layers, labelled))]
        weights = self._encoder.weights
        if len(weights) > 1:
            jacobians = self._encoder.jacobian_sums(
                self._rows[batch.places][labelled], maths.moment_cotangents(layers.codes[labelled])
            )
            found += sealed.hidden_layers(rows, 1.0, layers, weights, [sealed.Small(moment, jacobians)])
        return found


def apply_verdict(learner: Learner, verdict: Verdict) -> None:
    """Keep the best weights and take the step, or go back and take none."""
    if verdict.is_best:
        learner.keep_best()
    if verdict.goes_back:
        learner.restore_best()
    else:
        learner.step()


def add_answers(encoder: Encoder, answers: Sequence[Numbers], scale: float) -> None:
    """Add opened gradients, which come last layer first."""
    outputs = (*encoder.widths[1:], encoder.weights[-1].shape[0])
    shaped = [values.reshape(units, -1) for values, units in zip(answers[::-1], outputs, strict=True)]
    encoder.add_gradients(shaped, scale)


def _name_of_batches(target: str, fold: int | None) -> str:
    return f"batches/{target}" if fold is None else f"batches/{target}/fold {fold}"


def _name_of_loss(fold: int | None) -> str:
    return "training_loss" if fold is None else f"fold_{fold + 1}_loss"
