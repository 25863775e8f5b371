"""Train a split network: both roles, message by message."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from colonnade.data import LabelEncoder, Split, TableEncoder, batches
from colonnade.errors import ConfigError, TableError, TrainingFailed, WrongContent, did_you_mean
from colonnade.methods.splitnn.config import WIDEST, SplitNN
from colonnade.methods.splitnn.messages import CutActivations, CutGradient, CutWidth, EpochVerdict
from colonnade.methods.splitnn.network import (
    build_encoder,
    build_head,
    dtype_of,
    encode,
    merge,
    outputs_for,
    width_of,
)
from colonnade.methods.splitnn.predict import gather_outputs, make_scores, send_held_out
from colonnade.nn import Learner, backpropagate, balanced_weights, find_dropouts, reseed_dropout, supervised_loss
from colonnade.session import Holding, ModelPart, Result, Session

__all__ = ["feature_holder", "label_holder"]

Rows = np.ndarray[Any, Any]

# What stands for the batch of a party without columns.
_NOTHING = torch.empty(0)


def feature_holder(session: Session, holding: Holding, config: SplitNN) -> Result:
    """Play a party that brings columns."""
    peer = session.channel("label_holder")
    _check_encoders(session, config)
    table_encoder, features = _own_features(session, holding, config)
    if features is None:
        raise ConfigError(
            f"'{session.party}' has no usable feature columns: it has none, or each is constant in the training rows. "
            "Check its table and its drop list, or leave this party out."
        )
    encoder = build_encoder(config, session.party, features.shape[1], session.own_seed("encoder"), holding.module)
    width = width_of(encoder, session.party, features)
    peer.send(CutWidth(width))

    learner = _learner({"encoder": encoder}, config)
    dropouts = find_dropouts([encoder])
    progress = _Progress.begin(session, learner, config, len(holding.split.train))
    while not progress.is_over:
        for (batch,) in progress.batches_left(session, holding.split.train, config, features):
            session.next_step()
            learner.zero_gradients()
            reseed_dropout(dropouts, session.own_seed("dropout", session.step))
            activations = encoder(batch)
            _check_finite(activations.detach().sum().item(), session)
            peer.send(CutActivations(activations))
            backpropagate(activations, peer.receive(CutGradient, values=(len(batch), width)).values)
            learner.step()
            progress.keep_between_epochs(session, learner, config)

        learner.train(False)
        send_held_out(peer, encoder, features, holding.split.validation)
        verdict = peer.receive(EpochVerdict)
        progress.end_epoch(session, learner, verdict)

    learner.restore_best()
    learner.train(False)
    send_held_out(peer, encoder, features, holding.split.test)
    document = _document(session, config, table_encoder, holding)
    return Result(ModelPart(learner.weights(), document))


def label_holder(session: Session, holding: Holding, config: SplitNN) -> Result:
    """Play the party that brings the labels."""
    peers = session.channels("feature_holder")
    _check_encoders(session, config)
    split, dtype = holding.split, dtype_of(config)
    labels, label_encoder, targets = _own_labels(session, holding, config)
    task = label_encoder.task
    class_weights = _class_weights(config, label_encoder, targets[torch.from_numpy(split.train)])

    table_encoder, features = _own_features(session, holding, config)
    modules: dict[str, nn.Module] = {}
    widths = []
    if features is not None:
        seed = session.own_seed("encoder")
        modules["encoder"] = build_encoder(config, session.party, features.shape[1], seed, holding.module)
        widths.append(width_of(modules["encoder"], session.party, features))
    peer_widths = [_announced_width(peer.receive(CutWidth), peer.peer) for peer in peers]
    outputs = outputs_for(task, len(label_encoder.classes))
    head = modules["head"] = build_head(config, [*widths, *peer_widths], outputs, session.own_seed("head"))
    encoder = modules.get("encoder")

    learner = _learner(modules, config)
    dropouts = find_dropouts(modules.values())
    progress = _Progress.begin(session, learner, config, len(split.train))
    while not progress.is_over:
        for batch, wanted in progress.batches_left(session, split.train, config, features, targets):
            session.next_step()
            learner.zero_gradients()
            reseed_dropout(dropouts, session.own_seed("dropout", session.step))
            own = encoder(batch) if encoder is not None else None
            cuts = [
                peer.receive(CutActivations, values=(len(wanted), width)).values.to(dtype).requires_grad_()
                for peer, width in zip(peers, peer_widths, strict=True)
            ]
            # Our own encoder learns only after the gradients are on their way, so that the peers need not wait for it.
            own_cut = [] if own is None else [own.detach().requires_grad_()]
            loss = supervised_loss(task, head(merge(config, [*own_cut, *cuts])), wanted, class_weights)
            loss_value = loss.item()
            _check_finite(loss_value, session)
            loss.backward()  # type: ignore[no-untyped-call]
            for peer, cut in zip(peers, cuts, strict=True):
                peer.send(CutGradient(_gradient_of(cut)))
            if own is not None:
                backpropagate(own, _gradient_of(own_cut[0]))
            learner.step()
            progress.loss_so_far += loss_value * len(wanted)
            progress.keep_between_epochs(session, learner, config)

        learner.train(False)
        held_out = gather_outputs(peers, peer_widths, modules, features, split.validation, config)
        validation_loss = None
        if len(split.validation):
            validation_loss = supervised_loss(task, held_out, targets[split.validation], class_weights).item()
        verdict = progress.judge(session, config, progress.loss_so_far / len(split.train), validation_loss)
        for peer in peers:
            peer.send(verdict)
        progress.end_epoch(session, learner, verdict)

    learner.restore_best()
    learner.train(False)
    test_outputs = gather_outputs(peers, peer_widths, modules, features, split.test, config)
    document = _document(session, config, table_encoder, holding)
    document |= {"label_encoder": label_encoder.to_json(), "widths": [*widths, *peer_widths]}
    scores = make_scores(label_encoder, test_outputs, split.test, labels[split.test])
    return Result(ModelPart(learner.weights(), document), scores)


@dataclasses.dataclass
class _Progress:
    """Where training stands. Every party keeps the same, so that all checkpoint and stop at the same steps."""

    steps_per_epoch: int
    epochs: int
    epoch: int = 0
    is_over: bool = False
    best_loss: float | None = None
    epochs_since_best: int = 0
    loss_so_far: float = 0.0
    """The sum of this epoch's losses; only the label holder knows losses."""

    @classmethod
    def begin(cls, session: Session, learner: Learner, config: SplitNN, training_rows: int) -> _Progress:
        """Start at the beginning, or where the checkpoint left off."""
        steps_per_epoch = math.ceil(training_rows / config.batch_size)
        session.expect_steps(steps_per_epoch * config.epochs)
        progress = cls(steps_per_epoch, config.epochs)
        if session.resumed is not None:
            document = session.resumed.document
            learner.load_state(session.resumed.tensors, document)
            progress = cls(steps_per_epoch, config.epochs, **document["progress"])
        return progress

    def batches_left(
        self, session: Session, rows: Rows, config: SplitNN, *columns: torch.Tensor | None
    ) -> Iterator[tuple[torch.Tensor, ...]]:
        """Iterate over what is left of this epoch's batches, in the order all parties derive from the seed.

        The rows are put in order once per epoch, so that every batch is a slice and not a search through memory.
        """
        order = np.concatenate(list(batches(rows, config.batch_size, session.seed("batches", self.epoch))))
        shuffled = [None if one is None else one.index_select(0, torch.from_numpy(order)) for one in columns]
        done = session.step - self.epoch * self.steps_per_epoch
        for start in range(done * config.batch_size, len(order), config.batch_size):
            yield tuple(_NOTHING if one is None else one[start : start + config.batch_size] for one in shuffled)

    def judge(
        self, session: Session, config: SplitNN, training_loss: float, validation_loss: float | None
    ) -> EpochVerdict:
        """Decide on this epoch's weights and on going on; only the label holder can."""
        _check_finite(validation_loss or 0.0, session)
        values = {"epoch": self.epoch + 1, "training_loss": training_loss}
        is_best = True
        if validation_loss is not None:
            values["validation_loss"] = validation_loss
            is_best = config.patience == 0 or self.best_loss is None or validation_loss < self.best_loss
            self.best_loss = validation_loss if is_best else self.best_loss
        self.epochs_since_best = 0 if is_best else self.epochs_since_best + 1
        stops_early = config.patience > 0 and self.epochs_since_best >= config.patience
        session.record(**values)
        return EpochVerdict(is_best, stops_early or self.epoch + 1 >= self.epochs)

    def end_epoch(self, session: Session, learner: Learner, verdict: EpochVerdict) -> None:
        """Follow the verdict and make the epoch's checkpoint."""
        if verdict.is_best:
            learner.keep_best()
        self.epoch += 1
        self.loss_so_far = 0.0
        self.is_over = verdict.is_last
        learner.train(True)
        self._keep(session, learner)

    def keep_between_epochs(self, session: Session, learner: Learner, config: SplitNN) -> None:
        """Make a checkpoint where the settings ask for one within an epoch."""
        at_epoch_end = session.step % self.steps_per_epoch == 0
        if config.checkpoint_every and session.step % config.checkpoint_every == 0 and not at_epoch_end:
            self._keep(session, learner)

    def _keep(self, session: Session, learner: Learner) -> None:
        tensors, document = learner.state()
        progress = dataclasses.asdict(self)
        del progress["steps_per_epoch"], progress["epochs"]
        session.checkpoint(ModelPart(tensors, document | {"progress": progress}))


def _own_features(
    session: Session, holding: Holding, config: SplitNN
) -> tuple[TableEncoder | None, torch.Tensor | None]:
    """Fit the table's encoder on the training rows only, and encode all shared rows."""
    if not holding.table.columns:
        return None, None
    positions = holding.aligned.positions
    encoder = TableEncoder.fit(holding.table, positions[holding.split.train])
    if encoder.width == 0:
        return None, None
    return encoder, encode(config, encoder, holding.table, positions)


def _check_finite(value: float, session: Session) -> None:
    if not math.isfinite(value):
        raise TrainingFailed(
            f"Training diverged: '{session.party}' no longer gets numbers at step {session.step}. "
            "Lower learning_rate and run again."
        )


def _check_encoders(session: Session, config: SplitNN) -> None:
    for party in config.encoders:
        if party not in session.plan.parties:
            raise ConfigError(
                f"[config.encoders.{party}] is for no party of this run. {did_you_mean(party, session.plan.parties)}"
            )


def _gradient_of(cut: torch.Tensor) -> torch.Tensor:
    # A head whose every unit is dead passes nothing back.
    return torch.zeros_like(cut) if cut.grad is None else cut.grad


def _own_labels(session: Session, holding: Holding, config: SplitNN) -> tuple[Rows, LabelEncoder, torch.Tensor]:
    """Return the labels of all shared rows, their encoder fitted on the training rows only, and the targets."""
    if holding.table.labels is None:
        raise ConfigError(f"'{session.party}' is the label holder but its table has no label column. Set label = ….")
    labels = holding.table.labels[holding.aligned.positions]
    encoder = _fit_labels(labels, holding.split, config)
    targets = torch.from_numpy(encoder.encode(labels))
    return labels, encoder, targets.long() if encoder.task == "multiclass" else targets.to(dtype_of(config))


def _fit_labels(labels: Rows, split: Split, config: SplitNN) -> LabelEncoder:
    """Fit on the training rows, and refuse a split that keeps a class out of them: nobody could learn it."""
    there, learned = len(np.unique(labels)), len(np.unique(labels[split.train]))
    if learned > 1 or there == 1:
        encoder = LabelEncoder.fit(labels[split.train], config.task)
        if learned == there or encoder.task == "regression":
            return encoder
    held_out = {"evaluate.validation_fraction": split.validation, "evaluate.test_fraction": split.test}
    remedies = " or ".join(name for name, rows in held_out.items() if len(rows))
    raise TableError(
        f"The training rows have {learned} of the {there} different labels; all rows of the others are held out. "
        f"Lower {remedies}, choose another run.seed, or leave out labels of so few rows."
    )


def _learner(modules: dict[str, nn.Module], config: SplitNN) -> Learner:
    learner = Learner(modules, config.optimiser, config.learning_rate, config.optimiser_options)
    learner.train(True)
    return learner


def _class_weights(config: SplitNN, labels: LabelEncoder, targets: torch.Tensor) -> torch.Tensor | None:
    if config.class_weights == "none":
        return None
    if labels.task == "regression":
        raise ConfigError("config.class_weights has no meaning for regression. Remove it.")
    if config.class_weights == "balanced":
        return balanced_weights(targets, len(labels.classes)).to(dtype_of(config))
    if len(config.class_weights) != len(labels.classes):
        raise ConfigError(
            f"config.class_weights has {len(config.class_weights)} entries for {len(labels.classes)} classes. "
            "Give one weight per class, in the order of the sorted classes."
        )
    return torch.tensor(config.class_weights, dtype=dtype_of(config))


def _announced_width(announcement: CutWidth, peer: str) -> int:
    # A hostile width would make us build a head of any size.
    if not 1 <= announcement.width <= WIDEST:
        raise WrongContent(f"'{peer}' announces a cut width of {announcement.width}; 1 to {WIDEST} are accepted.")
    return announcement.width


def _document(
    session: Session, config: SplitNN, table_encoder: TableEncoder | None, holding: Holding
) -> dict[str, Any]:
    return {
        "method": "splitnn",
        "role": session.role,
        "party": session.party,
        "config": dataclasses.asdict(config),
        "table_encoder": None if table_encoder is None else table_encoder.to_json(),
        "is_custom": holding.module is not None,
    }
