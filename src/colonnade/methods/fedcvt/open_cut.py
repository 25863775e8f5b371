"""Levels 0 and 1: codes and gradients cross, in the clear or with noise; the label holder computes every loss."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from colonnade.errors import LeakRefused
from colonnade.exchanges.epochs import check_finite
from colonnade.exchanges.holdings import first_seeds
from colonnade.exchanges.label_protection import protection_finding
from colonnade.exchanges.labels import OwnLabels
from colonnade.methods.fedcvt.config import FedCVT, Variant
from colonnade.methods.fedcvt.memory import Memory
from colonnade.methods.fedcvt.messages import CodeGradient, Codes, HeldOutCodes
from colonnade.methods.fedcvt.networks import (
    build_encoders,
    check_module,
    codes_of,
    dtype_of,
    scored_codes,
    split_codes,
)
from colonnade.methods.fedcvt.objective import (
    Outcome,
    Step,
    agreed_labels,
    build_heads,
    objective,
    orthogonality_loss,
    outputs_by_situation,
)
from colonnade.methods.fedcvt.rows import OwnTable
from colonnade.methods.fedcvt.watch import PseudoLabelWatch
from colonnade.nn import Learner, tensors_under
from colonnade.privacy import LeakMeter, Marvell, RowBudget, SecretNoise, clip_rows
from colonnade.session import Channel, Finding, Session

__all__ = [
    "SCORED_AT_ONCE",
    "CodeSender",
    "OpenLabelSide",
    "OpenPartnerSide",
    "ScoredCodeSender",
    "classes_to_hide",
    "make_learner",
    "receive_held_out",
]

Places = npt.NDArray[np.int64]

# Rows per message that are only scored, so that neither side needs much memory.
SCORED_AT_ONCE = 8192
# Codes are the same if they agree to this part of the norm they are clipped to.
_COARSE = 64.0


def make_learner(config: FedCVT, modules: Mapping[str, nn.Module]) -> Learner:
    """Return what learns, with the settings' optimizer."""
    options = dict(config.optimizer_options)
    if config.weight_decay:
        options["weight_decay"] = config.weight_decay
    learner = Learner(modules, config.optimizer, config.learning_rate, options)
    learner.train(True)
    return learner


class ScoredCodeSender:
    """How codes of new rows leave: with noise that a row has always, so that asking again tells nothing more."""

    def __init__(self, config: FedCVT, peer: Channel, key: str) -> None:
        """Take the secret from which the noise of all predictions with a model is drawn."""
        self._config, self._peer = config, peer
        self._noise = SecretNoise(bytes.fromhex(key)) if config.is_noised else None

    def send(self, values: torch.Tensor, model: str) -> None:
        """Send codes in messages of bearable size."""
        for piece in torch.split(values, SCORED_AT_ONCE) if len(values) else ():
            sent = piece if self._noise is None else self._noised(piece, self._noise, model)
            self._peer.send(HeldOutCodes(sent))

    def _noised(self, values: torch.Tensor, noise: SecretNoise, model: str) -> torch.Tensor:
        clip = self._config.clip
        clipped = clip_rows(values.detach().numpy(), clip)
        drawn = np.stack([noise.gaussian(f"{model}/{_content(row, clip)}", 0, row.shape) for row in clipped])
        return torch.from_numpy(clipped + clip * self._config.noise * drawn).to(values.dtype)


class CodeSender:
    """How a feature holder's codes leave: as they are, or clipped, with noise, and counted."""

    def __init__(self, session: Session, config: FedCVT, peer: Channel, purpose: str) -> None:
        self._session, self._config, self._peer, self._purpose = session, config, peer, purpose
        self._noise = SecretNoise(session.secret("codes")) if config.is_noised else None
        self.budget = RowBudget(config.clip, config.clip * config.noise)

    def send(self, values: torch.Tensor, rows: Places) -> None:
        """Send a batch's codes."""
        sent = values if self._noise is None else self.noised(values, rows, "batch", self._session.step)
        self._peer.send(Codes(sent))

    def send_held_out(self, values: torch.Tensor, rows: Places, what: str) -> None:
        """Send codes of rows that are only scored, in messages of bearable size; ``what`` tells two releases apart."""
        for start in range(0, len(rows), SCORED_AT_ONCE):
            piece, places = values[start : start + SCORED_AT_ONCE], rows[start : start + SCORED_AT_ONCE]
            if self._noise is not None:
                piece = self.noised(piece, places, f"{what} from {start}", self._session.step)
            self._peer.send(HeldOutCodes(piece))

    def noised(self, values: torch.Tensor, rows: Places, what: str, counter: int) -> torch.Tensor:
        """Return codes clipped and with noise, the same for the same codes of the same step, and count the release."""
        if self._noise is None:
            self._noise = SecretNoise(self._session.secret("codes"))
        clipped = clip_rows(values.detach().numpy(), self._config.clip)
        content = _content(clipped, self._config.clip)
        drawn = self._noise.gaussian(f"{self._purpose}/{what}/{content}", counter, clipped.shape)
        self.budget.released(rows)
        scale = self._config.clip * self._config.noise
        return torch.from_numpy(clipped + scale * drawn).to(values.dtype)


def _content(clipped: npt.NDArray[np.float64], clip: float) -> str:
    """Return a mark of codes, the same for those that differ by rounding only.

    A resumed step that computes other codes must not carry the same noise: their difference would be bare. Codes that
    differ by rounding, as at level 2, must: a second draw would be a second release.
    """
    return hashlib.sha256(np.rint(clipped * (_COARSE / clip)).astype("<i4").tobytes()).hexdigest()


def receive_held_out(config: FedCVT, peer: Channel, count: int, width: int) -> torch.Tensor:
    """Receive codes of rows that are only scored."""
    pieces = [torch.zeros(0, width, dtype=dtype_of(config))]
    for start in range(0, count, SCORED_AT_ONCE):
        received = peer.receive(HeldOutCodes, rows=min(SCORED_AT_ONCE, count - start), width=width)
        pieces.append(received.values.to(dtype_of(config)))
    return torch.cat(pieces)


class OpenPartnerSide:
    """A feature holder with one candidate under training."""

    def __init__(
        self, session: Session, config: FedCVT, variant: Variant, table: OwnTable, module: nn.Module | None
    ) -> None:
        self._session, self._config, self._variant, self._table = session, config, variant, table
        self._peer = session.channel("label_holder")
        inputs = table.features.shape[1]
        encoders = build_encoders(
            config, variant, session.party, inputs, first_seeds(session, config.secret_start), module
        )
        check_module(config, encoders, session.party, table.features)
        self.learner = make_learner(config, {"encoders": encoders})
        self._encoders = encoders
        self.sender = CodeSender(session, config, self._peer, variant.name)
        learned = np.concatenate([table.train, table.own])
        self._mean = table.features[torch.from_numpy(learned)].mean(dim=0, keepdim=True)

    def open(self) -> None:
        """Begin; nothing is shared out at this level."""

    def step(self, shared: Places, own: Places, epoch: int) -> None:
        """Send a batch's codes, and learn from the gradient that comes back."""
        config, variant = self._config, self._variant
        rows = np.concatenate([shared, own if variant.uses_partner_rows else own[:0]])
        batch = self._table.features[torch.from_numpy(rows)]
        if variant.name == "mean_fill":
            batch = torch.cat([batch, self._mean])
        self.learner.zero_gradients()
        codes = codes_of(self._encoders, batch)
        values = torch.cat(list(codes.values()), dim=1)
        check_finite(values.detach().sum().item(), self._session)
        # The mean of all rows, where it is sent, is no release of any one.
        self.sender.send(values, rows)
        received = self._peer.receive(CodeGradient, rows=values.shape[0], width=values.shape[1])
        gradient = received.values.to(values.dtype)
        loss = (values * gradient).sum()
        if variant.name == "fedcvt" and len(codes) == 2 and config.partner_orthogonality:
            own_loss = orthogonality_loss(config.orthogonality, codes["shared"], codes["unique"])
            loss = loss + config.partner_orthogonality * own_loss
        loss.backward()  # type: ignore[no-untyped-call]
        if config.gradient_clip:
            self.learner.clip_gradients(config.gradient_clip)
        self.learner.step()

    def validate(self) -> None:
        """Send codes of validation rows."""
        self._send(self._table.validation, "validation")

    def finish(self) -> None:
        """Send what the best model gives for anchors, validation and test rows."""
        self.learner.restore_best()
        table = self._table
        for what, rows in (("anchors", table.anchors), ("final", table.validation), ("test", table.test)):
            self._send(rows, what)

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return everything a checkpoint needs."""
        tensors, document = self.learner.state()
        if self._config.is_noised:
            tensors |= {f"budget.{name}": value for name, value in self.sender.budget.state().items()}
        return tensors, document

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.learner.load_state(tensors, document)
        if self._config.is_noised:
            self.sender.budget.load_state(tensors_under("budget.", tensors))

    def keep_best(self) -> None:
        """Remember the weights as they are now."""
        self.learner.keep_best()

    def part(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return what scoring needs later."""
        return self.learner.weights(), {}

    def _send(self, rows: Places, what: str) -> None:
        codes = scored_codes(self._encoders, self._table.features[torch.from_numpy(rows)])
        self.sender.send_held_out(torch.cat(list(codes.values()), dim=1), rows, what)


def classes_to_hide(labels: OwnLabels) -> int:
    """Return how many classes label noise hides; 0 for numbers."""
    return 0 if labels.task == "regression" else max(len(labels.encoder.classes), 2)


class OpenLabelSide:
    """The label holder with one candidate under training."""

    def __init__(
        self,
        session: Session,
        config: FedCVT,
        variant: Variant,
        table: OwnTable,
        labels: OwnLabels,
        module: nn.Module | None,
        meters: Sequence[LeakMeter],
    ) -> None:
        self._session, self._config, self._variant = session, config, variant
        self._table, self._labels, self._meters = table, labels, meters
        self._peers = session.channels("feature_holder")
        inputs = table.features.shape[1]
        encoders = build_encoders(
            config, variant, session.party, inputs, first_seeds(session, config.secret_start), module
        )
        check_module(config, encoders, session.party, table.features)
        parties = 1 + len(self._peers)
        heads = build_heads(
            config, variant, parties, labels.outputs, first_seeds(session, config.secret_start)(f"{variant.name}/heads")
        )
        self.learner = make_learner(config, {"encoders": encoders, "heads": heads})
        self._encoders, self._heads = encoders, heads
        self._width = sum(config.width_of(kind) for kind in variant.kinds)
        self._memory = Memory(config.memory_bank) if config.memory_bank and variant.name == "fedcvt" else None
        self._recent: list[dict[str, torch.Tensor]] = []
        self._anchors: list[dict[str, torch.Tensor]] = []
        self.watch = PseudoLabelWatch(config, labels, table)
        self._defences: list[tuple[Marvell, Marvell]] = []
        if config.defence == "marvell" and variant.name != "local":
            noise = SecretNoise(session.secret("label noise"))
            for peer, meter in zip(self._peers, meters, strict=True):
                purpose, classes = f"{variant.name} for {peer.peer}", classes_to_hide(labels)
                of_shared = f"{purpose}, shared rows"
                self._defences.append(
                    (
                        Marvell(config.label_budget, noise, classes=classes, purpose=of_shared, meter=meter),
                        Marvell(config.label_budget, noise, classes=2, purpose=f"{purpose}, own rows"),
                    )
                )

    def open(self) -> None:
        """Begin; nothing is shared out at this level."""

    def step(self, shared: Places, own: Places, partner_rows: Sequence[int], epoch: int) -> float:
        """Take one step with all feature holders and return its loss."""
        config, variant, dtype = self._config, self._variant, dtype_of(self._config)
        own = own if variant.uses_own_rows else own[:0]
        rows = torch.from_numpy(np.concatenate([shared, own]))
        self.learner.zero_gradients()
        mine = codes_of(self._encoders, self._table.features[rows])
        cuts = []
        for peer, count in zip(self._peers, partner_rows, strict=True):
            extra = count if variant.uses_partner_rows else int(variant.name == "mean_fill")
            received = peer.receive(Codes, rows=len(shared) + extra, width=self._width)
            cuts.append(received.values.to(dtype).requires_grad_())
        codes = [mine, *(split_codes(config, variant, cut) for cut in cuts)]
        if self._memory is not None:
            self._memory.look(torch.from_numpy(shared))
        outcome = objective(
            Step(config, variant, self._labels.task, self._heads, codes, len(shared), self._memory),
            self._labels.targets[torch.from_numpy(shared)],
            self._labels.targets[torch.from_numpy(own)],
            labels_partners=epoch >= config.warmup_epochs and self.watch.is_on,
        )
        check_finite(outcome.total.item(), self._session)
        outcome.total.backward()  # type: ignore[no-untyped-call]
        for place, (peer, cut) in enumerate(zip(self._peers, cuts, strict=True)):
            gradient = torch.zeros_like(cut) if cut.grad is None else cut.grad
            if self._meters:
                self._meters[place].saw(shared, cut.detach().numpy()[: len(shared)], variant.name)
            peer.send(CodeGradient(self._protected(place, gradient, shared, outcome)))
        if config.gradient_clip:
            self.learner.clip_gradients(config.gradient_clip)
        self.learner.step()
        detached = [{kind: values.detach() for kind, values in one.items()} for one in codes]
        if self._memory is not None:
            self._memory.add(detached)
        self._recent = [{kind: values[: len(shared)] for kind, values in one.items()} for one in detached]
        self.watch.saw(outcome)
        return float(outcome.total.item())

    def validate(self) -> torch.Tensor:
        """Return the outputs for validation rows, as they are now; look at how sure labels of partners' rows are."""
        codes = self._held_out(self._table.validation)
        outputs = self._outputs("shared", dict(enumerate(codes)), self._recent)
        if self._variant.name == "fedcvt" and self._variant.uses_partner_rows and len(self._table.validation):
            for place in range(1, len(codes)):
                found = list(self._outputs("alone", {place: codes[place]}, self._recent, every=True).values())
                self.watch.judge(*agreed_labels(self._config, self._labels.task, found))
        for meter in self._meters:
            meter.end_epoch()
        return outputs[self._variant.name]

    def finish(self) -> dict[str, dict[str, tuple[torch.Tensor, torch.Tensor]]]:
        """Return, by situation and way of scoring, the best model's outputs for validation and test rows."""
        self.learner.restore_best()
        self._anchors = self._held_out(self._table.anchors)
        validation, test = self._held_out(self._table.validation), self._held_out(self._table.test)
        found = {}
        situations = {"shared": None, **{name: place for place, name in enumerate(self.parties)}}
        for situation, place in situations.items():
            parts = []
            for codes in (validation, test):
                given = dict(enumerate(codes)) if place is None else {place: codes[place]}
                kind = "shared" if place is None else "alone"
                parts.append(self._outputs(kind, given, self._anchors))
            found[situation] = {way: (parts[0][way], parts[1][way]) for way in parts[0]}
        return found

    @property
    def parties(self) -> tuple[str, ...]:
        """Return all parties, this one first."""
        return (self._session.party, *(peer.peer for peer in self._peers))

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return everything a checkpoint needs."""
        tensors, document = self.learner.state()
        if self._memory is not None:
            tensors |= {f"memory.{name}": value for name, value in self._memory.state().items()}
        for place, one in enumerate(self._recent):
            tensors |= {f"recent.{place}.{kind}": value for kind, value in one.items()}
        for place, meter in enumerate(self._meters):
            tensors |= {f"meter.{place}.{name}": value for name, value in meter.state().items()}
        marvells = [[one.state() for one in pair] for pair in self._defences]
        return tensors, document | {"watch": self.watch.state(), "marvells": marvells}

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.learner.load_state(tensors, document)
        if self._memory is not None:
            self._memory.load_state(tensors_under("memory.", tensors))
        recent = [tensors_under(f"recent.{place}.", tensors) for place in range(1 + len(self._peers))]
        self._recent = [{kind: one[kind] for kind in self._variant.kinds} for one in recent if one]
        self.watch.load_state(document["watch"])
        for place, meter in enumerate(self._meters):
            meter.load_state(tensors_under(f"meter.{place}.", tensors))
        for pair, states in zip(self._defences, document["marvells"], strict=True):
            for one, state in zip(pair, states, strict=True):
                one.load_state(state)

    def keep_best(self) -> None:
        """Remember the weights as they are now."""
        self.learner.keep_best()

    def protection(self) -> tuple[Finding, ...]:
        """Say how well labels of shared rows were hidden, over all candidates so far, if they were."""
        pairs = zip(self._peers, self._defences, strict=False)
        measured = {peer.peer: found for peer, (one, _) in pairs if (found := one.measured()) is not None}
        return (protection_finding(measured),) if measured else ()

    def part(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return what scoring needs later: the networks, and all parties' codes of anchors."""
        tensors = dict(self.learner.weights())
        for place, one in enumerate(self._anchors):
            tensors |= {f"anchors.{place}.{kind}": value for kind, value in one.items()}
        return tensors, {}

    def _outputs(
        self,
        situation: str,
        codes: Mapping[int, Mapping[str, torch.Tensor]],
        anchors: Sequence[Mapping[str, torch.Tensor]],
        every: bool = False,
    ) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            return outputs_by_situation(
                self._config, self._variant, self._heads, situation, codes, anchors, every_head=every
            )

    def _held_out(self, rows: Places) -> list[dict[str, torch.Tensor]]:
        """Return all parties' codes of rows that are not learned from."""
        mine = scored_codes(self._encoders, self._table.features[torch.from_numpy(rows)])
        theirs = [receive_held_out(self._config, peer, len(rows), self._width) for peer in self._peers]
        return [mine, *(split_codes(self._config, self._variant, one) for one in theirs)]

    def _protected(self, place: int, gradient: torch.Tensor, shared: Places, outcome: Outcome) -> torch.Tensor:
        """Return a gradient as it may be sent."""
        if not self._defences:
            return gradient
        of_shared, of_own = self._defences[place]
        labels = self._labels.targets[torch.from_numpy(shared)].numpy()
        step, count = self._session.step, len(shared)
        values = gradient.double().numpy()
        kinds = labels.astype(np.int64) if self._labels.task != "regression" else labels.astype(np.float64)
        sent = [of_shared.protect(values[:count], kinds, step, shared)]
        if len(values) > count:
            # Which rows got a label is hidden like a label: dropped rows carry noise of the size of kept ones.
            kept = outcome.kept[place] if outcome.kept else torch.zeros(len(values) - count)
            flags = kept.numpy().astype(np.int64)
            if len(flags) != len(values) - count:
                raise LeakRefused(
                    f"'{self._session.party}' does not know which of {len(values) - count} rows got a label, so "
                    "that no noise can hide it. Nothing of them was sent; please report this as a fault of colonnade."
                )
            sent.append(of_own.protect(values[count:], flags, step, np.arange(len(flags))))
        return torch.from_numpy(np.concatenate(sent)).to(gradient.dtype)
