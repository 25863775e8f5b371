"""The parts of a split network: each party's encoder, the head, and what it learns and sends about labels."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from colonnade.data import LabelEncoder
from colonnade.errors import CheckpointBroken, ConfigError
from colonnade.exchanges.holdings import nobody_has_columns
from colonnade.exchanges.label_protection import protection_finding
from colonnade.methods.splitnn.config import SplitNN, check_weights
from colonnade.methods.splitnn.messages import HeldOutActivations
from colonnade.metrics import area_under_roc
from colonnade.nn import Heads, balanced_weights, mlp, supervised_loss, tensors_under
from colonnade.privacy import LabelDisguise, LeakMeter, Marvell, SecretNoise
from colonnade.session import Channel, Finding, Holding, ModelPart, Session
from colonnade.training import Inputs, Kept, in_parts, parts_of, row_losses

__all__ = ["LabelDefence", "OwnEncoder", "build_encoder", "build_head", "gather", "load_into", "scores_of"]

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

_DISGUISE = "disguise."


@dataclass(frozen=True)
class OwnEncoder:
    """A party's columns as numbers, and the network that makes codes of them."""

    inputs: Inputs
    features: torch.Tensor
    """The inputs of all shared rows."""
    module: nn.Module
    width: int
    """How many numbers a code has."""

    @classmethod
    def of(cls, session: Session, holding: Holding, config: SplitNN, seed: int = 0) -> OwnEncoder | None:
        """Build the configured perceptron or copy the user's own module, with the weights of a trained part if there is
        one; None without usable columns."""
        # A module of the user's own gets as few numbers for a column as there can be.
        inputs = Inputs.of(holding, splines=holding.module is None)
        if not inputs.width:
            return None
        party, module = session.party, holding.module
        values = inputs.transform(holding.table, holding.aligned.positions, dtype=np.dtype(config.precision).type)
        features = torch.from_numpy(values)
        if holding.part is not None and holding.part.document["is_custom"] != (module is not None):
            origin = "is a module of your own. Pass it again" if module is None else "is none of your own. Pass none"
            raise ConfigError(f"The encoder of '{party}' {origin} to predict, as modules={{'{party}': …}}.")
        encoder = build_encoder(config, party, inputs.width, seed) if module is None else copy.deepcopy(module)
        encoder = encoder.to(config.dtype)
        if holding.part is not None:
            load_into({"encoder": encoder}, holding.part.tensors)
        return cls(inputs, features, encoder, _width_of(encoder, party, features))

    def give(self, peer: Channel, rows: Places) -> None:
        """Send codes of rows to be scored, part by part."""
        with torch.no_grad():
            for part in parts_of(rows):
                peer.send(HeldOutActivations(self.module(self.features[part])))

    def about(self, holding: Holding) -> dict[str, Any]:
        """Return what a part of the model holds beside weights."""
        return {"inputs": self.inputs.to_json(), "is_custom": holding.module is not None}


def build_encoder(config: SplitNN, party: str, inputs: int, seed: int) -> nn.Module:
    """Return a party's encoder as the settings describe it."""
    widths = (inputs, *config.hidden, config.cut_width)
    check_weights(f"The encoder of '{party}'", widths, "hidden or cut_width, or drop columns of many categories")
    return mlp(widths, seed=seed, dropout=config.dropout, dtype=config.dtype)


def build_head(config: SplitNN, widths: Sequence[int], outputs: int, seed: int) -> Heads:
    """Return the head, of several members, over all parties' codes, whose widths are given."""
    if not widths:
        raise nobody_has_columns()
    layers = (sum(widths), *config.head_hidden, outputs)
    check_weights("The head", layers, "head_hidden or cut_width")
    hidden, dropout, dtype = config.head_hidden, config.dropout, config.dtype
    return Heads(widths, hidden, outputs, members=config.members, seed=seed, dropout=dropout, dtype=dtype)


def gather(peers: Sequence[Channel], own: OwnEncoder | None, head: nn.Module, rows: Places) -> torch.Tensor:
    """Receive all parties' codes of rows to be scored and return the head's outputs."""

    def outputs(part: Places) -> torch.Tensor:
        codes = [] if own is None else [own.module(own.features[part])]
        codes += [peer.receive(HeldOutActivations, rows=len(part)).values for peer in peers]
        found: torch.Tensor = head(torch.cat(codes, dim=1))
        return found

    return in_parts(rows, outputs)


def load_into(modules: Mapping[str, nn.Module], tensors: Mapping[str, torch.Tensor]) -> None:
    """Fill modules with a saved part's tensors."""
    for name, module in modules.items():
        try:
            module.load_state_dict(tensors_under(f"{name}.", tensors))
        except RuntimeError:
            raise CheckpointBroken(
                f"The saved weights of '{name}' do not fit the network they should fill. "
                "Use the settings and module of the run that made them."
            ) from None
        module.eval()


def _width_of(encoder: nn.Module, party: str, features: torch.Tensor) -> int:
    """Return how many numbers an encoder gives per row, by trying it."""
    encoder.eval()
    try:
        with torch.no_grad():
            tried = encoder(features[:2])
    except RuntimeError as error:
        raise ConfigError(
            f"The module of '{party}' cannot take its {features.shape[1]} encoded columns. Give it that many inputs."
        ) from error
    if tried.ndim != 2 or len(tried) != len(features[:2]) or tried.dtype != features.dtype:
        raise ConfigError(f"The module of '{party}' must return one row of {features.dtype} numbers per row of input.")
    return int(tried.shape[1])


class LabelDefence:
    """Targets to learn, gradients to send and scores to keep, with the defence that the settings ask for, or none.

    Where no one else takes part, nothing crosses and nothing is defended.
    """

    def __init__(
        self,
        session: Session,
        kept: Kept,
        config: SplitNN,
        labels: LabelEncoder,
        values: npt.NDArray[Any],
        train: Places,
    ) -> None:
        """Take the labels of all shared rows, and which of them are trained on."""
        self._task, self._dtype, known = labels.task, config.dtype, labels.encode(values)
        targets = torch.from_numpy(known)
        self._labels = targets.long() if labels.task == "multiclass" else targets.to(self._dtype)
        self._weights = _class_weights(config, labels, self._labels[torch.from_numpy(train)])
        self._partners = [channel.peer for channel in session.channels("feature_holder")]
        parts = config.defence.split("+") if self._partners else []
        if "coae" in parts and labels.task == "regression":
            raise ConfigError("config.defence = 'coae' disguises classes, and these labels are numbers. Use 'marvell'.")
        self._marvells: list[Marvell] = []
        self._meters: list[LeakMeter] = []
        classes = 0 if labels.task == "regression" else max(len(labels.classes), 2)
        for partner in self._partners if "marvell" in parts else ():
            meter = LeakMeter(known.astype(np.int64 if classes else np.float64), classes, area_under_roc)
            noise, purpose = SecretNoise(session.secret("label noise")), f"cut gradient for {partner}"
            marvell = Marvell(config.label_budget, noise, classes=classes, purpose=purpose, meter=meter)
            self._marvells.append(kept.plain(f"noise for {partner}", marvell))
            self._meters.append(kept.plain(f"what {partner} saw", meter))
        self._disguise: LabelDisguise | None = None
        self.targets = self._labels
        """What the network learns: the labels, or their codes."""
        if "coae" in parts:
            # From a secret that lasts as long as the run, so that one that is taken up again has the same codes.
            self._disguise = LabelDisguise.train(classes, session.secret("label disguise"))
            codes = self._disguise.codes[self._labels.long()]
            self.targets = (codes[:, 1] if self._task == "binary" else codes).to(self._dtype)

    def loss(self, outputs: torch.Tensor, wanted: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return a batch's loss, the mean of all members'. A class keeps its weight whatever its code."""
        members = outputs.shape[1]
        outputs = outputs.flatten(0, 1)
        if members > 1:
            wanted, rows = wanted.repeat_interleave(members, 0), rows.repeat_interleave(members)
        if self._disguise is None or self._weights is None:
            return supervised_loss(self._task, outputs, wanted, self._weights)
        weights = self._weights[self._labels[rows].long()]
        if self._task == "binary":
            losses = functional.binary_cross_entropy_with_logits(outputs.squeeze(1), wanted, reduction="none")
        else:
            losses = functional.cross_entropy(outputs, wanted, reduction="none")
        return (weights * losses).sum() / weights.sum()

    def judge(self, outputs: torch.Tensor, rows: Places) -> float | None:
        """Return the loss of the members' mean on validation rows, if there are any."""
        if not len(rows):
            return None
        known = self._labels[torch.from_numpy(rows)].double().numpy()
        losses = row_losses(self._task, known, self.scores(outputs))
        weights = None if self._weights is None else self._weights.double().numpy()[known.astype(np.int64)]
        return float(np.average(losses, weights=weights))

    def protect(
        self, codes: list[torch.Tensor], gradients: list[torch.Tensor], step: int, rows: torch.Tensor
    ) -> list[torch.Tensor]:
        """Return the partners' gradients of a batch, with noise where the settings ask for it."""
        if not self._marvells:
            return gradients
        labels, places = self._labels[rows].numpy(), rows.numpy()
        for meter, received in zip(self._meters, codes, strict=True):
            meter.saw(places, received.numpy())
        return [
            torch.from_numpy(marvell.protect(gradient.double().numpy(), labels, step, places)).to(self._dtype)
            for marvell, gradient in zip(self._marvells, gradients, strict=True)
        ]

    def scores(self, outputs: torch.Tensor) -> Numbers:
        """Return the head's outputs as probabilities, or as standardised predictions."""
        return _scores(self._task, outputs, self._disguise)

    def end_epoch(self) -> None:
        """Close the meters' epoch."""
        for meter in self._meters:
            meter.end_epoch()

    def kept(self) -> dict[str, torch.Tensor]:
        """Return what scoring needs later."""
        state = {} if self._disguise is None else self._disguise.state()
        return {f"{_DISGUISE}{name}": value for name, value in state.items()}

    def findings(self) -> tuple[Finding, ...]:
        """Say what was hidden how well, if anything was."""
        if not self._marvells and self._disguise is None:
            return ()
        pairs = zip(self._partners, self._marvells, strict=False)
        measured = {partner: found for partner, marvell in pairs if (found := marvell.measured()) is not None}
        warnings = () if self._disguise is None else self._disguise.warnings
        return (protection_finding(measured, is_disguised=self._disguise is not None, warnings=warnings),)


def scores_of(part: ModelPart, task: str, outputs: torch.Tensor) -> Numbers:
    """Return a trained head's outputs as probabilities, or as standardised predictions."""
    kept = tensors_under(_DISGUISE, part.tensors)
    return _scores(task, outputs, LabelDisguise.from_state(kept) if kept else None)


def _scores(task: str, outputs: torch.Tensor, disguise: LabelDisguise | None) -> Numbers:
    """Return the mean of what members say."""
    outputs = outputs.double()
    if task == "multiclass":
        probabilities = outputs.softmax(2).mean(1)
        return (probabilities if disguise is None else disguise.decode(probabilities)).numpy()
    values = (outputs.sigmoid() if task == "binary" else outputs).mean(1).squeeze(1)
    if task == "binary" and disguise is not None:
        return disguise.decode(torch.stack([1.0 - values, values], dim=1))[:, 1].numpy()
    return values.numpy()


def _class_weights(config: SplitNN, labels: LabelEncoder, targets: torch.Tensor) -> torch.Tensor | None:
    if config.class_weights == "none":
        return None
    if labels.task == "regression":
        raise ConfigError("config.class_weights has no meaning for regression. Remove it.")
    if config.class_weights == "balanced":
        return balanced_weights(targets, len(labels.classes)).to(config.dtype)
    if len(config.class_weights) != len(labels.classes):
        raise ConfigError(
            f"config.class_weights has {len(config.class_weights)} entries for {len(labels.classes)} classes. "
            "Give one weight per class: of two the positive one last, of more in their order."
        )
    return torch.tensor(config.class_weights, dtype=config.dtype)
