"""What the label holder does so that targets and gradients tell less about labels. No message is sent from here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from colonnade.data import LabelEncoder
from colonnade.errors import ConfigError
from colonnade.exchanges.label_protection import protection_finding
from colonnade.methods.splitnn.config import SplitNN
from colonnade.methods.splitnn.network import dtype_of
from colonnade.metrics import area_under_roc
from colonnade.nn import Learner, supervised_loss, tensors_under
from colonnade.privacy import LabelDisguise, LeakMeter, Marvell, SecretNoise
from colonnade.session import Finding, ModelPart, Session

__all__ = ["DefendedLearner", "LabelDefence", "kept_disguise"]

Rows = np.ndarray[Any, Any]

_DISGUISE = "disguise."


class LabelDefence:
    """Targets to learn, gradients to send and scores to keep, with the defence that the settings ask for, or none.

    Where no one else takes part, nothing crosses and nothing is defended.
    """

    def __init__(
        self,
        session: Session,
        config: SplitNN,
        labels: LabelEncoder,
        targets: torch.Tensor,
        class_weights: torch.Tensor | None,
    ) -> None:
        self._task, self._labels, self._weights, self._dtype = labels.task, targets, class_weights, dtype_of(config)
        self._partners = [channel.peer for channel in session.channels("feature_holder")]
        parts = config.defence.split("+") if self._partners else []
        if "coae" in parts and labels.task == "regression":
            raise ConfigError("config.defence = 'coae' disguises classes, and these labels are numbers. Use 'marvell'.")
        self._marvells: list[Marvell] = []
        self._meters: list[LeakMeter] = []
        if "marvell" in parts:
            noise = SecretNoise(session.secret("label noise"))
            classes = 0 if labels.task == "regression" else max(len(labels.classes), 2)
            known = targets.numpy().astype(np.int64 if classes else np.float64)
            for partner in self._partners:
                meter = LeakMeter(known, classes, area_under_roc)
                purpose = f"cut gradient for {partner}"
                self._marvells.append(
                    Marvell(config.label_budget, noise, classes=classes, purpose=purpose, meter=meter)
                )
                self._meters.append(meter)
        self.disguise: LabelDisguise | None = None
        self.targets = targets
        """What the network learns: the labels, or their codes."""
        if "coae" in parts:
            kept = None if session.resumed is None else kept_disguise(session.resumed)
            self.disguise = kept or LabelDisguise.train(max(len(labels.classes), 2), session.secret("label disguise"))
            codes = self.disguise.codes[targets.long()]
            self.targets = (codes[:, 1] if labels.task == "binary" else codes).to(self._dtype)

    @property
    def places(self) -> torch.Tensor | None:
        """Return the place of every row, if anything depends on which rows a batch has."""
        return torch.arange(len(self._labels)) if self._marvells or self.disguise else None

    def loss(self, outputs: torch.Tensor, wanted: torch.Tensor, rows: torch.Tensor | Rows) -> torch.Tensor:
        """Return a batch's loss. A class keeps its weight whatever its code."""
        if self.disguise is None or self._weights is None:
            return supervised_loss(self._task, outputs, wanted, self._weights)
        weights = self._weights[self._labels[rows].long()]
        if self._task == "binary":
            losses = functional.binary_cross_entropy_with_logits(outputs.squeeze(1), wanted, reduction="none")
        else:
            losses = functional.cross_entropy(outputs, wanted, reduction="none")
        return (weights * losses).sum() / weights.sum()

    def protect(
        self, activations: list[torch.Tensor], gradients: list[torch.Tensor], step: int, rows: torch.Tensor
    ) -> list[torch.Tensor]:
        """Return the partners' gradients of a batch, with noise where the settings ask for it."""
        if not self._marvells:
            return gradients
        labels, places = self._labels[rows].numpy(), rows.numpy()
        for meter, received in zip(self._meters, activations, strict=True):
            meter.saw(places, received.detach().numpy())
        return [
            torch.from_numpy(marvell.protect(gradient.double().numpy(), labels, step, places)).to(self._dtype)
            for marvell, gradient in zip(self._marvells, gradients, strict=True)
        ]

    def end_epoch(self) -> None:
        """Close the meters' epoch."""
        for meter in self._meters:
            meter.end_epoch()

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return everything a checkpoint needs."""
        tensors = self.kept()
        for number, meter in enumerate(self._meters):
            tensors |= {f"meter.{number}.{name}": value for name, value in meter.state().items()}
        return tensors, {"marvell": [marvell.state() for marvell in self._marvells]}

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        for number, (marvell, meter) in enumerate(zip(self._marvells, self._meters, strict=True)):
            marvell.load_state(document["marvell"][number])
            meter.load_state(tensors_under(f"meter.{number}.", tensors))

    def kept(self) -> dict[str, torch.Tensor]:
        """Return what scoring needs later."""
        state = {} if self.disguise is None else self.disguise.state()
        return {f"{_DISGUISE}{name}": value for name, value in state.items()}

    def findings(self) -> tuple[Finding, ...]:
        """Say what was hidden how well, if anything was."""
        if not self._marvells and self.disguise is None:
            return ()
        pairs = zip(self._partners, self._marvells, strict=False)
        measured = {partner: found for partner, marvell in pairs if (found := marvell.measured()) is not None}
        warnings = () if self.disguise is None else self.disguise.warnings
        return (protection_finding(measured, is_disguised=self.disguise is not None, warnings=warnings),)


class DefendedLearner:
    """A learner together with the defence, as one thing to make checkpoints of."""

    def __init__(self, learner: Learner, defence: LabelDefence) -> None:
        self._learner, self._defence = learner, defence

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return everything a checkpoint needs."""
        tensors, document = self._learner.state()
        more, about = self._defence.state()
        return tensors | more, document | about

    def load_state(self, tensors: dict[str, torch.Tensor], document: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._learner.load_state(tensors, document)
        self._defence.load_state(tensors, document)

    def keep_best(self) -> None:
        """Remember the weights as they are now."""
        self._learner.keep_best()


def kept_disguise(part: ModelPart) -> LabelDisguise | None:
    """Return the disguise that a checkpoint or a trained part holds, if any."""
    tensors = tensors_under(_DISGUISE, part.tensors)
    return LabelDisguise.from_state(tensors) if tensors else None
