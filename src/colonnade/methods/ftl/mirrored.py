"""Steps with swapped roles, for transfer cross-validation: the target owns the translator, the source the labels.

The translator is made from labels that the target was given for its own rows. The labels of the loss stay with the
source, which owns the codes of these rows too, so that the supervised part needs no message with a row per row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from colonnade.crypto import CipherArray, Format
from colonnade.methods.ftl import maths, sealed
from colonnade.methods.ftl.config import FTL
from colonnade.methods.ftl.encoder import Apprentice, Layers
from colonnade.methods.ftl.link import Link
from colonnade.methods.ftl.maths import LossSums, Objective, Translator
from colonnade.methods.ftl.messages import MirroredSignals
from colonnade.methods.ftl.steps import add_answers
from colonnade.session import Channel

__all__ = ["LossSide", "TranslatorSide", "finish", "sums_format"]

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


class _Side:
    """What both parties of these steps have: an encoder, rows with targets, and those rows that both know."""

    def __init__(
        self,
        config: FTL,
        apprentice: Apprentice,
        peer: Channel,
        link: Link,
        objective: Objective,
        rows: Numbers,
        targets: Numbers,
        loss_rows: int,
        shared: Places,
    ) -> None:
        """Take a party's rows; ``loss_rows`` of the source's make the loss, ``shared`` are places of shared rows."""
        self._config, self._apprentice, self._peer, self._link = config, apprentice, peer, link
        self._objective, self._rows, self._targets = objective, rows, targets
        self._count, self._shared = loss_rows, shared


class LossSide(_Side):
    """The source, with labels and codes of its own rows; as many targets as rows make the loss, the first ones."""

    def step(self) -> None:
        """Play one iteration."""
        encoder, learner, objective = self._apprentice.encoder, self._apprentice.learner, self._objective
        every = encoder.layers(self._rows)
        learner.zero_gradients()
        self._apprentice.rebuild()
        gradients = np.zeros_like(every.codes)
        gradients[self._shared] += objective.own_alignment_gradient(every.codes[self._shared])
        sums = LossSums.of(objective, every.codes[: self._count], self._targets, every.codes[self._shared])
        link, width, scores = self._link, self._config.width, self._targets.shape[1]
        self._peer.send(
            MirroredSignals(
                link.seal(sums.shared, sealed.CODES),
                link.seal(maths.upper(sums.moment), sealed.moment_format(self._count)),
                link.seal(sums.flat, sums_format(self._count)),
            )
        )
        signals = self._peer.receive(MirroredSignals, rows=len(self._shared), sums=(scores + 1) * width)
        if self._config.is_sealed:
            self._sealed(signals, every)
        else:
            gradients += self._clear(signals, every)
        encoder.add_row_gradients(self._rows, gradients, 1.0 / self._count)
        encoder.add_decay(self._config.decay)
        learner.step()

    def _clear(self, signals: MirroredSignals, every: Layers) -> Numbers:
        width, scores = self._config.width, self._targets.shape[1]
        moment, translator = maths.square(np.asarray(signals.moment), width), np.asarray(signals.sums)
        phi, offset = translator[: scores * width].reshape(scores, width), translator[scores * width :]
        gradients = np.zeros_like(every.codes)
        slopes = self._objective.a1(self._targets)
        gradients[: self._count] = slopes @ phi + every.codes[: self._count] @ moment - offset
        gradients[self._shared] += self._objective.gamma * self._objective.kappa * np.asarray(signals.codes)
        return gradients

    def _sealed(self, signals: MirroredSignals, every: Layers) -> None:
        link, width, scores, shared = self._link, self._config.width, self._targets.shape[1], self._shared
        codes = link.take(signals.codes, sealed.CODES)
        moment = link.take(signals.moment, sealed.ROWS)
        translator = link.take(signals.sums, sealed.ROWS)
        objective, encoder = self._objective, self._apprentice.encoder
        labelled = np.arange(self._count)
        factors = maths.mirrored_loss_factors(objective, every, self._targets, labelled, shared)
        entries = np.arange(width)[:, None] + width * np.arange(scores + 1)[None]
        parts = [
            (codes, sealed.by_entry(len(shared), width)),
            (moment, maths.triangle(width)),
            (translator, entries),
        ]
        asked = [sealed.last_layer(parts, factors)]
        if len(encoder.weights) > 1:
            rows = self._rows[: self._count]
            weights = np.hstack([objective.a1(self._targets), -np.ones((self._count, 1))])
            small = [
                sealed.Small(moment, encoder.jacobian_sums(rows, maths.moment_cotangents(every.codes[: self._count]))),
                sealed.Small(translator, encoder.jacobian_sums(rows, maths.unit_cotangents(weights, width))),
            ]
            pull = objective.gamma * objective.kappa
            asked += sealed.hidden_layers(codes, pull, every.take(shared), encoder.weights, small)
        finish(link, self._config, asked, self._apprentice, self._count)


class TranslatorSide(_Side):
    """The target, with a translator made from labels it was given for all its rows."""

    def translator(self) -> Translator:
        """Return what turns the source's codes into scores now."""
        return Translator.of(self._apprentice.encoder.codes(self._rows), self._targets)

    def step(self) -> None:
        """Play one iteration."""
        encoder, learner, objective = self._apprentice.encoder, self._apprentice.learner, self._objective
        every = encoder.layers(self._rows)
        translator = Translator.of(every.codes, self._targets)
        learner.zero_gradients()
        self._apprentice.rebuild()
        signals = self._exchange(translator, every.codes[self._shared])
        if self._config.is_sealed:
            self._sealed(signals, translator, every)
            known = -objective.a2 * self._count * translator.beta
            gradients = maths.source_offset_gradients(translator, known, len(self._rows))
        else:
            gradients = self._clear(signals, translator)
        gradients[self._shared] += objective.own_alignment_gradient(every.codes[self._shared])
        encoder.add_row_gradients(self._rows, gradients, 1.0 / self._count)
        encoder.add_decay(self._config.decay)
        learner.step()

    def _exchange(self, translator: Translator, shared: Numbers) -> MirroredSignals:
        seal, moment = self._link.seal, maths.upper(translator.moment(self._objective))
        flat = np.concatenate([translator.phi.reshape(-1), self._objective.a2 * translator.beta @ translator.phi])
        self._peer.send(MirroredSignals(seal(shared, sealed.CODES), seal(moment, sealed.ROWS), seal(flat, sealed.ROWS)))
        width, scores = self._config.width, self._targets.shape[1]
        return self._peer.receive(MirroredSignals, rows=len(shared), sums=width + scores * width + scores)

    def _clear(self, signals: MirroredSignals, translator: Translator) -> Numbers:
        width, scores = self._config.width, self._targets.shape[1]
        codes, weighted, slopes = np.split(np.asarray(signals.sums), [width, width + scores * width])
        moment = maths.square(np.asarray(signals.moment), width)
        shared = np.asarray(signals.codes)
        sums = LossSums(self._count, shared, moment, codes, weighted.reshape(scores, width), slopes)
        return maths.mirrored_row_gradients(self._objective, translator, sums, self._shared, len(self._rows))

    def _sealed(self, signals: MirroredSignals, translator: Translator, every: Layers) -> None:
        link, width, scores, shared = self._link, self._config.width, self._targets.shape[1], self._shared
        codes = link.take(signals.codes, sealed.CODES)
        theirs = link.take(signals.moment, sealed.moment_format(self._count))
        sums = link.take(signals.sums, sums_format(self._count))
        objective, encoder = self._objective, self._apprentice.encoder
        factors = maths.mirrored_translator_factors(objective, translator, every, shared)
        parts = [
            (codes, sealed.by_entry(len(shared), width)),
            (theirs, maths.triangle(width)),
            (sums, _sum_places(width, scores)),
        ]
        asked = [sealed.last_layer(parts, factors)]
        if len(encoder.weights) > 1:
            on_moment, on_sums = maths.mirrored_cotangents(objective, translator)
            small = [
                sealed.Small(theirs, encoder.jacobian_sums(self._rows, on_moment)),
                sealed.Small(sums, encoder.jacobian_sums(self._rows, on_sums)),
            ]
            pull = objective.gamma * objective.kappa
            asked += sealed.hidden_layers(codes, pull, every.take(shared), encoder.weights, small)
        finish(link, self._config, asked, self._apprentice, self._count)


def sums_format(rows: int) -> Format:
    """Return the format of sums over rows of codes and slopes."""
    return Format(sealed.FRACTION_BITS, max(rows, 1).bit_length() + 8)


def finish(link: Link, config: FTL, asked: list[CipherArray], apprentice: Apprentice, count: int) -> None:
    """Have this party's gradient opened, open the partner's, and take this party's."""
    link.ask(asked)
    link.open(config.noise * count, link.partner_layouts())
    add_answers(apprentice.encoder, link.answers(), 1.0 / count)


def _sum_places(width: int, scores: int) -> Places:
    """Return, code entry by code entry, the places of all code sums, of its weighted sums and of the slopes' sums."""
    every = np.tile(np.arange(width), (width, 1))
    weighted = width + np.arange(width)[:, None] + width * np.arange(scores)[None]
    slopes = np.tile(width + scores * width + np.arange(scores), (width, 1))
    return np.concatenate([every, weighted, slopes], axis=1)
