"""Train a split network: both roles, message by message."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from colonnade.data import LabelEncoder, TableEncoder, batches
from colonnade.errors import ConfigError, did_you_mean
from colonnade.exchanges.epochs import Epochs, EpochVerdict, check_finite
from colonnade.exchanges.holdings import encoded_columns, encoded_labels, first_seeds, without_columns
from colonnade.methods.splitnn.config import SplitNN
from colonnade.methods.splitnn.defence import DefendedLearner, LabelDefence
from colonnade.methods.splitnn.messages import CutActivations, CutGradient, CutWidth
from colonnade.methods.splitnn.network import (
    build_encoder,
    build_head,
    dtype_of,
    merge,
    outputs_for,
    width_of,
)
from colonnade.methods.splitnn.predict import gather_outputs, make_scores, send_held_out
from colonnade.nn import Learner, backpropagate, balanced_weights, find_dropouts, reseed_dropout
from colonnade.session import Holding, ModelPart, Result, Session

__all__ = ["feature_holder", "label_holder"]

Rows = np.ndarray[Any, Any]

# What stands for the batch of a party without columns.
_NOTHING = torch.empty(0)


def feature_holder(session: Session, holding: Holding, config: SplitNN) -> Result:
    """Play a party that brings columns."""
    peer = session.channel("label_holder")
    _check_encoders(session, config)
    table_encoder, features = _own_features(holding, config)
    if features is None:
        raise without_columns(session)
    seeds = first_seeds(session, config.secret_start)
    encoder = build_encoder(config, session.party, features.shape[1], seeds("encoder"), holding.module)
    peer.send(CutWidth(width_of(encoder, session.party, features)))

    learner = _learner({"encoder": encoder}, config)
    dropouts = find_dropouts([encoder])
    epochs = Epochs.begin(session, learner, len(holding.split.train), config)
    while not epochs.is_over:
        for (batch,) in _batches_left(session, epochs, holding.split.train, config, features):
            session.next_step()
            learner.zero_gradients()
            reseed_dropout(dropouts, seeds("dropout", session.step))
            activations = encoder(batch)
            check_finite(activations.detach().sum().item(), session)
            peer.send(CutActivations(activations))
            backpropagate(activations, peer.receive(CutGradient, rows=len(batch)).values)
            learner.step()
            epochs.keep_between_epochs(session, learner)

        learner.train(False)
        send_held_out(peer, encoder, features, holding.split.validation)
        verdict = peer.receive(EpochVerdict)
        epochs.end_epoch(session, learner, verdict)
        learner.train(True)

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
    defence = LabelDefence(session, config, label_encoder, targets, class_weights)

    table_encoder, features = _own_features(holding, config)
    seeds = first_seeds(session, config.secret_start)
    modules: dict[str, nn.Module] = {}
    widths = []
    if features is not None:
        modules["encoder"] = build_encoder(config, session.party, features.shape[1], seeds("encoder"), holding.module)
        widths.append(width_of(modules["encoder"], session.party, features))
    peer_widths = [peer.receive(CutWidth).width for peer in peers]
    outputs = outputs_for(task, len(label_encoder.classes))
    head = modules["head"] = build_head(config, [*widths, *peer_widths], outputs, seeds("head"))
    encoder = modules.get("encoder")

    learner = _learner(modules, config)
    trainee = DefendedLearner(learner, defence)
    dropouts = find_dropouts(modules.values())
    epochs = Epochs.begin(session, trainee, len(split.train), config)
    columns = (features, defence.targets, defence.places)
    while not epochs.is_over:
        for batch, wanted, rows in _batches_left(session, epochs, split.train, config, *columns):
            session.next_step()
            learner.zero_gradients()
            reseed_dropout(dropouts, seeds("dropout", session.step))
            own = encoder(batch) if encoder is not None else None
            cuts = [peer.receive(CutActivations, rows=len(wanted)).values.to(dtype).requires_grad_() for peer in peers]
            # Our own encoder learns only after the gradients are on their way, so that the peers need not wait for it.
            own_cut = [] if own is None else [own.detach().requires_grad_()]
            loss = defence.loss(head(merge(config, [*own_cut, *cuts])), wanted, rows)
            loss_value = loss.item()
            check_finite(loss_value, session)
            loss.backward()  # type: ignore[no-untyped-call]
            slopes = defence.protect(cuts, [*map(_gradient_of, cuts)], session.step, rows)
            for peer, values in zip(peers, slopes, strict=True):
                peer.send(CutGradient(values))
            if own is not None:
                backpropagate(own, _gradient_of(own_cut[0]))
            learner.step()
            epochs.loss_so_far += loss_value * len(wanted)
            epochs.keep_between_epochs(session, trainee)

        learner.train(False)
        held_out = gather_outputs(peers, modules, features, split.validation, config)
        validation_loss = None
        if len(split.validation):
            validation_loss = defence.loss(held_out, defence.targets[split.validation], split.validation).item()
        verdict = epochs.judge(session, epochs.loss_so_far / len(split.train), validation_loss)
        for peer in peers:
            peer.send(verdict)
        defence.end_epoch()
        epochs.end_epoch(session, trainee, verdict)
        learner.train(True)

    learner.restore_best()
    learner.train(False)
    test_outputs = gather_outputs(peers, modules, features, split.test, config)
    document = _document(session, config, table_encoder, holding)
    document |= {"label_encoder": label_encoder.to_json(), "widths": [*widths, *peer_widths]}
    scores = make_scores(label_encoder, test_outputs, split.test, labels[split.test], defence.disguise)
    return Result(ModelPart(learner.weights() | defence.kept(), document), scores, defence.findings())


def _batches_left(
    session: Session, epochs: Epochs, rows: Rows, config: SplitNN, *columns: torch.Tensor | None
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Iterate over what is left of this epoch's batches, in the order all parties derive from the seed.

    The rows are put in order once per epoch, so that every batch is a slice and not a search through memory.
    """
    order = np.concatenate(list(batches(rows, config.batch_size, session.seed("batches", epochs.epoch))))
    shuffled = [None if one is None else one.index_select(0, torch.from_numpy(order)) for one in columns]
    for start in range(epochs.steps_done(session) * config.batch_size, len(order), config.batch_size):
        yield tuple(_NOTHING if one is None else one[start : start + config.batch_size] for one in shuffled)


def _own_features(holding: Holding, config: SplitNN) -> tuple[TableEncoder | None, torch.Tensor | None]:
    encoder, columns = encoded_columns(holding, config.precision)
    return encoder, None if columns is None else torch.from_numpy(columns)


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
    """Return the labels of all shared rows, their encoder, and the targets."""
    labels, encoder = encoded_labels(session, holding, config.task)
    targets = torch.from_numpy(encoder.encode(labels))
    return labels, encoder, targets.long() if encoder.task == "multiclass" else targets.to(dtype_of(config))


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
