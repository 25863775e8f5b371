"""Train a split network: both roles, message by message."""

from __future__ import annotations

from collections import deque
from functools import partial

import numpy as np
import torch
from torch import nn

from colonnade.exchanges.holdings import encoded_labels, without_columns
from colonnade.methods.splitnn.config import SplitNN
from colonnade.methods.splitnn.messages import CutActivations, CutGradient, CutWidth
from colonnade.methods.splitnn.network import LabelDefence, OwnEncoder, build_head, gather
from colonnade.nn import backpropagate
from colonnade.session import Holding, Result, Session
from colonnade.training import Budget, Inputs, Kept, Patience, Serving, TrainedModel, steps

__all__ = ["feature_holder", "label_holder"]


def feature_holder(session: Session, holding: Holding, config: SplitNN) -> Result:
    """Play a party that brings columns."""
    peer, split = session.channel("label_holder"), holding.split
    kept = Kept(session, secret_start=config.secret_start)
    own = OwnEncoder.of(session, holding, config, kept.seed("encoder"))
    if own is None:
        raise without_columns(session)
    peer.send(CutWidth(own.width))
    learner = kept.learner({"encoder": own.module}, config.optimizer, config.learning_rate, config.optimizer_options)

    validate = partial(own.give, peer, split.validation)
    unanswered: deque[tuple[int, float, torch.Tensor, torch.Tensor]] = deque()
    for step in steps(session, kept, split.train, Budget.of(config), validate=validate, hears=peer):
        batch = step.take(own.features)
        codes = own.module(batch)
        peer.send(CutActivations(codes))
        unanswered.append((step.number, step.rate, batch, codes))
        while len(unanswered) > (0 if step.is_followed else config.look_ahead):
            number, rate, batch, codes = unanswered.popleft()
            slopes = peer.receive(CutGradient, rows=len(batch)).values
            if config.look_ahead:
                # Weights have moved since these codes were sent: the slopes go to what they make of the batch now.
                kept.begin_step(number, rate)
                codes = own.module(batch)
            backpropagate(codes, slopes)
            learner.step()

    own.give(peer, np.concatenate([split.validation, split.test]))
    return Result(kept.part(config, **vars(peer.receive(TrainedModel)), **own.about(holding)))


def label_holder(session: Session, holding: Holding, config: SplitNN) -> Result:
    """Play the party that brings the labels."""
    peers, split = session.channels("feature_holder"), holding.split
    kept = Kept(session, secret_start=config.secret_start)
    labels, label_encoder = encoded_labels(session, holding, config.task)
    own = OwnEncoder.of(session, holding, config, kept.seed("encoder"))
    widths = [*([] if own is None else [own.width]), *(peer.receive(CutWidth).width for peer in peers)]
    outputs = len(label_encoder.classes) if label_encoder.task == "multiclass" else 1
    head = build_head(config, widths, outputs, kept.seed("head"))
    modules: dict[str, nn.Module] = {"head": head} if own is None else {"encoder": own.module, "head": head}
    learner = kept.learner(modules, config.optimizer, config.learning_rate, config.optimizer_options)
    defence = LabelDefence(session, kept, config, label_encoder, labels, split.train)
    targets, places = defence.targets, torch.arange(len(labels))

    def validate() -> float | None:
        found = gather(peers, own, head, split.validation)
        defence.end_epoch()
        return defence.judge(found, split.validation)

    rule = Patience(config.patience)
    for step in steps(session, kept, split.train, Budget.of(config), validate=validate, rule=rule, tells=peers):
        rows = step.take(places)
        encoded = [] if own is None else [own.module(step.take(own.features))]
        received = [peer.receive(CutActivations, rows=step.count).values.to(config.dtype) for peer in peers]
        # Our own encoder learns only after the gradients are on their way, so that the peers need not wait for it.
        codes = [one.detach().requires_grad_() for one in (*encoded, *received)]
        loss = defence.loss(head(torch.cat(codes, dim=1)), step.take(targets), rows)
        step.loss = loss.item()
        backpropagate(loss, torch.ones_like(loss))
        # A head whose every unit is dead passes nothing back.
        slopes = [torch.zeros_like(one) if one.grad is None else one.grad for one in codes]
        protected = defence.protect(received, slopes[len(encoded) :], step.number, rows)
        for peer, slope in zip(peers, protected, strict=True):
            peer.send(CutGradient(slope))
        for one, slope in zip(encoded, slopes, strict=False):
            backpropagate(one, slope)
        learner.step()

    held_out = np.concatenate([split.validation, split.test])
    together = defence.scores(gather(peers, own, head, held_out))
    about = {"inputs": Inputs().to_json(), "is_custom": False} if own is None else own.about(holding)
    # A model that shall see classes in other shares than they have is not to be compared with one that does not.
    columns = own.features.numpy() if own is not None and config.class_weights == "none" else None
    served = Serving.settle(session, holding, label_encoder, labels, together, columns, peers, learner.weights())
    return served.result(kept, config, defence.kept(), *defence.findings(), **about, widths=widths)
