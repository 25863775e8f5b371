"""A bank's labels: what the loss makes of them, and what is done so that the feature holder cannot read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colonnade.data import LabelEncoder
from colonnade.errors import ConfigError
from colonnade.exchanges.label_protection import about_columns
from colonnade.methods.prada.config import PrADA
from colonnade.metrics import area_under_roc, widest_gap
from colonnade.nn.regression import loss_of, outputs_for, scores_of, targets_of
from colonnade.privacy import LabelDisguise, LeakMeter, Marvell, SecretNoise, content_of
from colonnade.session import Finding, Session

__all__ = ["Labels", "goodness", "undisguised"]

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


class Labels:
    """The labels of one bank's shared rows; places without one are never asked for."""

    def __init__(
        self,
        session: Session,
        config: PrADA,
        encoder: LabelEncoder,
        values: np.ndarray[Any, Any],
        known: Places,
    ) -> None:
        self.encoder = encoder
        self.task, self.classes = self.encoder.task, len(self.encoder.classes)
        self.scores = outputs_for(self.task, self.classes)
        self._session, self._config = session, config
        encoded = np.zeros(len(values))
        encoded[known] = self.encoder.encode(values[known])
        self.encoded = encoded
        self._targets = np.zeros((len(values), self.scores))
        self._targets[known] = targets_of(self.task, encoded[known], self.classes)
        self._soft = self._targets
        self._disguise: LabelDisguise | None = None
        hidden = 0 if self.task == "regression" else self.classes
        self._meter = LeakMeter(encoded if not hidden else encoded.astype(np.int64), hidden, area_under_roc)
        self._noise: SecretNoise | None = None
        self._marvell: Marvell | None = None
        if config.uses_marvell:
            self._noise = SecretNoise(session.secret("label noise"))
            self._marvell = Marvell(
                config.label_budget, self._noise, classes=hidden, purpose=session.role, meter=self._meter
            )
        if config.uses_disguise:
            self._wear(LabelDisguise.train(self._classes_to_hide("coae"), session.secret("label disguise")))

    def slopes(self, logits: Numbers, places: Places) -> Numbers:
        """Return the derivative of the mean loss at every score."""
        predicted = scores_of(self.task, logits).reshape(logits.shape)
        return (predicted - self._soft[places]) / max(len(logits), 1)

    def loss(self, logits: Numbers, places: Places) -> float:
        """Return the mean loss against what the model learns."""
        if self.task == "binary" or not self.classes:
            return loss_of(self.task, logits, self._soft[places])
        highest = logits.max(axis=1, keepdims=True)
        normaliser = highest + np.log(np.exp(logits - highest).sum(axis=1, keepdims=True))
        return float(np.mean(((normaliser - logits) * self._soft[places]).sum(axis=1)))

    def protected(self, slopes: Numbers, places: Places) -> Numbers:
        """Return slopes as the feature holder may see them, and measure what it could make of them."""
        labels = self.encoded[places] if self.task == "regression" else self.encoded[places].astype(np.int64)
        if self._marvell is None:
            # Slopes are negative at the true class, and at numbers that are too low.
            self._meter.add(places, -slopes, -slopes)
            return slopes
        return self._marvell.protect(slopes, labels, self._session.step, places)

    def saw(self, scores: Numbers, places: Places) -> None:
        """Note what the feature holder's columns added to the scores of some rows, for the measurement."""
        if self._marvell is not None:
            self._meter.saw(places, scores)

    def direction_noise(self, slopes: Numbers, places: Places, inputs: int) -> Numbers | None:
        """Return noise for every number of the gradient that the feature holder gets; None without a defence."""
        if self._noise is None:
            return None
        size = self._config.direction_noise * float(np.sqrt(np.mean(slopes**2)))
        purpose = f"{self._session.role}/direction/{content_of(slopes, self.encoded[places])}"
        return np.asarray(size * self._noise.gaussian(purpose, self._session.step, (len(slopes), inputs)))

    def predicted(self, logits: Numbers) -> Numbers:
        """Return probabilities, or standardised numbers, in terms of the true labels."""
        return undisguised(self.task, scores_of(self.task, logits) if len(logits) else np.empty(0), self._disguise)

    def goodness(self, logits: Numbers, places: Places) -> float:
        """Return how well rows are predicted; higher is better."""
        return goodness(self.task, self.predicted(logits), self.encoded[places])

    def end_epoch(self) -> dict[str, float]:
        """Close an epoch and return how well an attack on its gradients did."""
        found = self._meter.end_epoch()
        return {} if found is None else {"label_attack": found}

    def finding(self, peer: str) -> Finding | None:
        """Say how well labels were hidden from the feature holder, or that they were not."""
        warnings = self._disguise.warnings if self._disguise is not None else ()
        if self._marvell is None:
            found = self._meter.measured(0.0, 1.0, lambda _, __: 1.0)
            text = (
                f"Labels were not hidden: '{peer}' can read the training labels from the gradients it got. Set "
                "defence = 'marvell', or send no gradients (tune = 'nothing')."
            )
        else:
            measured = self._marvell.measured()
            if measured is None:
                return None
            found = measured
            text = (
                f"What '{peer}' could tell about training labels from the gradients it got, with a label budget of "
                f"{found.budget:g} for each release (MARVELL). The attacker measured here knows where the classes lie. "
                "The bound holds for Gaussian classes; it says nothing about what a trained network itself knows. "
                + about_columns(found, "what its groups added to our scores")
            )
        if not found.releases_per_row:
            return None
        has_noise = self._marvell is not None
        rows = [("one release without noise", _shown(found.without_noise), "")]
        if has_noise:
            rows.append(("one release", _shown(found.of_one_release), _shown(found.bound)))
        every = f"all {found.releases_per_row} releases of a row together"
        bound = _shown(found.bound_over_all_releases) if has_noise else ""
        rows.append((every, _shown(found.over_all_releases), bound))
        if found.with_columns is not None:
            rows.append((f"all releases, and columns of '{peer}'", _shown(found.with_columns), ""))
        return Finding(
            name="label protection",
            title="How well labels were hidden",
            text=" ".join([text, *warnings]),
            columns=("what the attacker uses", "AUC" if found.measure == "auc" else "share of variance", "bound"),
            rows=tuple(rows),
            values=found.to_json(),
        )

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return what a checkpoint needs."""
        return self._meter.state(), {} if self._marvell is None else self._marvell.state()

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._meter.load_state(tensors)
        if self._marvell is not None:
            self._marvell.load_state(document)

    @property
    def disguise(self) -> LabelDisguise | None:
        """Return the disguise that labels wear, if any."""
        return self._disguise

    def _wear(self, disguise: LabelDisguise) -> None:
        self._disguise = disguise
        codes = disguise.codes.numpy()
        of_rows = codes[self.encoded.astype(np.int64)]
        self._soft = of_rows if self.task == "multiclass" else of_rows[:, 1:]

    def _classes_to_hide(self, defence: str) -> int:
        if self.task == "regression":
            raise ConfigError(f"config.defence = '{defence}' disguises classes, and these labels are numbers.")
        return self.classes


def undisguised(task: str, scores: Numbers, disguise: LabelDisguise | None) -> Numbers:
    """Return scores in terms of the true labels, where the model learned disguised ones."""
    if disguise is None or not len(scores):
        return scores
    if task == "multiclass":
        return disguise.decode(torch.from_numpy(scores)).numpy()
    return disguise.decode(torch.from_numpy(np.stack([1.0 - scores, scores], axis=1))).numpy()[:, 1]


def goodness(task: str, predicted: Numbers, encoded: Numbers) -> float:
    """Return how well rows are predicted: the mean of AUC and KS, or the loss with its sign turned."""
    if not len(encoded):
        return 0.0
    if task == "regression":
        return -float(np.mean((predicted - encoded) ** 2))
    truth = encoded.astype(np.int64)
    if task == "binary" and 0 < truth.sum() < len(truth):
        is_positive = truth == 1
        return (area_under_roc(is_positive, predicted) + widest_gap(is_positive, predicted)) / 2.0
    chances = (
        predicted[np.arange(len(truth)), truth] if task == "multiclass" else np.where(truth, predicted, 1 - predicted)
    )
    return float(np.mean(np.log(np.clip(chances, 1e-12, 1.0))))


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
