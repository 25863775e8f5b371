"""Gradient assisted learning with linear models: what the label holder's model misses, others fit by their columns.

E. Diao, J. Ding and V. Tarokh, "GAL: Gradient Assisted Learning for Decentralized Multi-Organization Collaborations",
NeurIPS 2022. Differs from the paper: two classes only, every party fits a ridge regression, the step is as long as is
safe instead of searched for, and all parties count alike. A row's noise is the same in all rounds: it cannot average
away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch

import colonnade as cn
from colonnade.data import LabelEncoder, TableEncoder
from colonnade.errors import ConfigError
from colonnade.exchanges.holdings import encoded_columns, encoded_labels, own_part, scores_in_terms_of, without_columns
from colonnade.messages import NOISED, PLAIN, Carries, Dims, Warns, when
from colonnade.privacy import SecretNoise
from colonnade.settings import described

__all__ = ["METHOD", "Assisted"]

Array = np.ndarray[Any, Any]
OfRows = Annotated[Array, Dims("rows", kind="f")]


@described
@dataclass(frozen=True, kw_only=True)
class Assisted:
    """Settings of gradient assisted learning, agreed by all parties."""

    rounds: int = 20
    """How often residuals are sent and fitted."""
    l2: float = 0.01
    """How strongly large weights are held back, per training row."""
    noise: float = 0.5
    """The standard deviation of what is added to residuals before they leave; 0 sends them as they are."""

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.l2 <= 0.0 or self.noise < 0.0:
            raise ConfigError("config.rounds must be at least 1, config.l2 above 0 and config.noise not below 0.")


@cn.message(
    sender="label_holder",
    receiver="feature_holder",
    protection=when("noise", NOISED, PLAIN),
    step="pseudo-residuals",
    carries=Carries.ROW_GRADIENT,
    warns=Warns.LABELS,
)
class Residuals:
    """How far the model is from the label of every training row.

    Reveals: the label of every training row.
    Reveals when NOISED: a hint at every label, and exactly how the model's answer for a row changes between rounds.
    """

    values: OfRows


@cn.message(
    sender="feature_holder",
    receiver="label_holder",
    protection=PLAIN,
    step="fitted values",
    carries=Carries.ROW_CODE,
    warns=Warns.COLUMNS,
)
class Fitted:
    """What the sender's weights make of its columns: of training rows in every round, and of rows to be scored.

    Reveals: a sum of the sender's columns for every row, with other weights in every round. As many rounds as there are
    columns give them all, up to a linear map that whoever knows some rows can work out.
    """

    values: OfRows


def label_holder(session: cn.Session, holding: cn.Holding, config: Assisted) -> cn.Result:
    """Train: send what is missed, and add up what all parties make of it."""
    peers, rows, test = session.channels("feature_holder"), holding.split.train, holding.split.test
    labels, label_encoder = encoded_labels(session, holding, "binary")
    encoder, features = own_columns(session, holding)
    targets, noise = label_encoder.encode(labels)[rows], np.zeros(len(rows))
    if config.noise:
        # From a secret that outlives an interruption: a second draw for the same rows would undo part of the first.
        noise = config.noise * SecretNoise(session.secret("noise")).gaussian("residuals", 0, noise.shape)
    weights, total = begin(session, config, weights=features.shape[1], total=len(rows))
    while session.step < config.rounds:
        session.next_step()
        residuals = targets - probability(total)
        for peer in peers:
            peer.send(Residuals(residuals + noise))
        change = fit(session, config, features[rows], residuals)
        weights, total = weights + change, total + features[rows] @ change
        for peer in peers:
            total = total + peer.receive(Fitted, rows=len(rows)).values
        session.record(epoch=session.step, training_loss=float(np.mean(residuals**2)))
        session.checkpoint(keep(weights=weights, total=total))
    total = features[test] @ weights + sum(peer.receive(Fitted, rows=len(test)).values for peer in peers)
    document = {"table_encoder": encoder.to_json(), "label_encoder": label_encoder.to_json()}
    scores = scores_in_terms_of(label_encoder, probability(total), test, labels[test])
    return cn.Result(keep(document, weights=weights), scores)


def feature_holder(session: cn.Session, holding: cn.Holding, config: Assisted) -> cn.Result:
    """Train: fit what is missed by the own columns, and tell what they make of it."""
    peer, rows = session.channel("label_holder"), holding.split.train
    encoder, features = own_columns(session, holding)
    (weights,) = begin(session, config, weights=features.shape[1])
    while session.step < config.rounds:
        session.next_step()
        change = fit(session, config, features[rows], peer.receive(Residuals, rows=len(rows)).values)
        weights = weights + change
        peer.send(Fitted(features[rows] @ change))
        session.checkpoint(keep(weights=weights))
    peer.send(Fitted(features[holding.split.test] @ weights))
    return cn.Result(keep({"table_encoder": encoder.to_json()}, weights=weights))


def predict(session: cn.Session, holding: cn.Holding, config: Assisted) -> cn.Result:
    """Score new rows: tell the label holder what the own weights make of them, or be it and add up."""
    part = own_part(session, holding)
    encoder = TableEncoder.from_json(part.document["table_encoder"])
    total = encoded(session, holding, encoder) @ part.tensors["weights"].numpy()
    if session.role == "feature_holder":
        session.channel("label_holder").send(Fitted(total))
        return cn.Result()
    for peer in session.channels("feature_holder"):
        total = total + peer.receive(Fitted, rows=len(total)).values
    label_encoder = LabelEncoder.from_json(part.document["label_encoder"])
    return cn.Result(scores=scores_in_terms_of(label_encoder, probability(total), np.arange(len(total))))


def fit(session: cn.Session, config: Assisted, features: Array, residuals: Array) -> Array:
    """Return how weights change in a round: a ridge regression, times the longest step that is safe.

    The logistic loss bends by at most 1/4, and all parties move at once without knowing of one another.
    """
    held_back = config.l2 * len(features) * np.eye(features.shape[1])
    best = np.linalg.solve(features.T @ features + held_back, features.T @ residuals)
    return 4.0 / len(session.plan.parties) * best


def probability(total: Array) -> Array:
    """Return the probability of the second class."""
    return 1.0 / (1.0 + np.exp(-total))


def own_columns(session: cn.Session, holding: cn.Holding) -> tuple[TableEncoder, Array]:
    """Fit an encoder to the training rows of the own table; return it and all shared rows, encoded."""
    encoder, _ = encoded_columns(holding, np.float64)
    if encoder is None:
        raise without_columns(session)
    return encoder, encoded(session, holding, encoder)


def encoded(session: cn.Session, holding: cn.Holding, encoder: TableEncoder) -> Array:
    """Return the own columns of the shared rows as numbers; the label holder's have a constant among them."""
    columns = encoder.transform(holding.table, holding.aligned.positions, dtype=np.float64)
    return np.column_stack([np.ones(len(columns)), columns]) if session.role == "label_holder" else columns


def begin(session: cn.Session, config: Assisted, **sizes: int) -> list[Array]:
    """Return what the last checkpoint holds, or zeros where a run begins."""
    session.expect_steps(config.rounds)
    if session.resumed is None:
        return [np.zeros(size) for size in sizes.values()]
    return [session.resumed.tensors[name].numpy() for name in sizes]


def keep(document: dict[str, Any] | None = None, **arrays: Array) -> cn.ModelPart:
    """Return arrays in the form in which a party keeps its part of a model, or of a checkpoint."""
    return cn.ModelPart({name: torch.from_numpy(array) for name, array in arrays.items()}, document or {})


METHOD = cn.Method(
    name="assisted",
    title="Gradient assisted learning",
    citation='E. Diao, J. Ding, V. Tarokh, "GAL: Gradient Assisted Learning …", NeurIPS 2022',
    situation="many shared rows and a linear model will do, within seconds; labels and columns are hardly hidden",
    config=Assisted,
    roles=(
        cn.Role("label_holder", "the labels, and columns of its own", has_label=True),
        cn.Role("feature_holder", "columns about the same rows", at_least=0, at_most=None),
    ),
    lead="label_holder",
    stages={
        "train": cn.Stage(
            roles={"label_holder": label_holder, "feature_holder": feature_holder},
            messages=(Residuals, Fitted),
            makes_model=True,
        ),
        "predict": cn.Stage(
            roles={"label_holder": predict, "feature_holder": predict}, messages=(Fitted,), scores=True
        ),
    },
)
