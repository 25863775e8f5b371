"""What each party makes of its rows before the first step, and what the two of a link agree on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colonnade.data import LabelEncoder, TableEncoder
from colonnade.errors import ConfigError, WrongContent
from colonnade.exchanges.holdings import first_seeds, fit_labels, table_labels, without_columns
from colonnade.exchanges.labels import most_scores
from colonnade.methods.ftl.config import FTL
from colonnade.methods.ftl.encoder import LARGEST_INPUT, Apprentice, build_encoder
from colonnade.methods.ftl.link import Keys, Link, Sizes, check_guard, exchange_sizes
from colonnade.methods.ftl.maths import targets_of
from colonnade.methods.ftl.messages import LabelledRows
from colonnade.session import Channel, Holding, Pair, Session

__all__ = [
    "SourceRows",
    "TargetRows",
    "agree_as_source",
    "agree_as_target",
    "apprentice_for",
    "check_labelled",
    "choose_labelled",
    "encode",
    "sizes_of",
    "source_rows",
    "target_rows",
]

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_MOST_SCORES = 4096


@dataclass(frozen=True)
class SourceRows:
    """The source's rows for training: those that make the translator first, then others that are shared."""

    table_encoder: TableEncoder
    label_encoder: LabelEncoder
    positions: Places
    columns: Numbers
    targets: Numbers
    used: int

    def share(self) -> float:
        """Return how many of two classes' rows are of the second, among those that make the translator."""
        return float((self.targets[: self.used, 0] > 0).mean())

    def places_of(self, positions: Places) -> Places:
        """Return where rows of the table stand among these."""
        order = np.argsort(self.positions)
        return np.asarray(order[np.searchsorted(self.positions, positions, sorter=order)])


@dataclass(frozen=True)
class TargetRows:
    """The target's rows for training, all but those held out, and where the shared ones stand among them."""

    table_encoder: TableEncoder
    columns: Numbers
    shared: Places


def source_rows(session: Session, holding: Holding, config: FTL, pairs: list[Pair]) -> SourceRows:
    """Choose and encode the source's rows: held-out ones of any link never lend their label."""
    labels = table_labels(session, holding)
    held = [pair.aligned.positions[np.concatenate([pair.split.validation, pair.split.test])] for pair in pairs]
    used = np.setdiff1d(np.arange(holding.table.rows), np.concatenate(held))
    shared = np.concatenate([pair.aligned.positions[pair.split.train] for pair in pairs])
    positions = np.concatenate([used, np.setdiff1d(shared, used)])
    table_encoder = _fit(session, holding, used)
    label_encoder = fit_labels(session, holding, config.task, used, np.unique(np.concatenate(held)))
    targets = targets_of(label_encoder.task, label_encoder.encode(labels[positions]), len(label_encoder.classes))
    columns = encode(table_encoder, holding, positions)
    return SourceRows(table_encoder, label_encoder, positions, columns, targets, len(used))


def target_rows(session: Session, holding: Holding, pair: Pair) -> TargetRows:
    """Choose and encode the target's rows."""
    held = pair.aligned.positions[np.concatenate([pair.split.validation, pair.split.test])]
    positions = np.setdiff1d(np.arange(holding.table.rows), held)
    table_encoder = _fit(session, holding, positions)
    shared = np.searchsorted(positions, pair.aligned.positions[pair.split.train])
    return TargetRows(table_encoder, encode(table_encoder, holding, positions), shared)


def encode(encoder: TableEncoder, holding: Holding, positions: Places) -> Numbers:
    """Return rows as an encoder takes them, within the range that can be encrypted."""
    rows = encoder.transform(holding.table, positions, dtype=np.float64)
    return np.asarray(np.clip(rows, -LARGEST_INPUT, LARGEST_INPUT))


def apprentice_for(
    session: Session, holding: Holding, config: FTL, columns: Numbers, peer: str = "", counter: int = 0
) -> Apprentice:
    """Build this party's encoder, ready to learn; with several sources, one for each."""
    where, seeds = f"/{peer}" if peer else "", first_seeds(session, config.secret_start)
    encoder = build_encoder(config, session.party, columns.shape[1], seeds(f"encoder{where}", counter), holding.module)
    return Apprentice(config, encoder, columns, seeds(f"decoder{where}", counter))


def choose_labelled(may: Mask, count: int, seed: int) -> Mask:
    """Choose which shared rows lend their label.

    Not by class: the target sees the choice, and rows that are left out would tell which class is rare.
    """
    candidates = np.flatnonzero(may)
    chosen = np.zeros(len(may), dtype=bool)
    chosen[np.random.default_rng(seed).permutation(candidates)[: count or len(candidates)]] = True
    return chosen


def agree_as_source(
    session: Session,
    config: FTL,
    peer: Channel,
    keys: Keys | None,
    apprentice: Apprentice,
    labelled: Mask,
    scores: int,
) -> tuple[Link, Sizes]:
    """Tell sizes and labelled rows, pass the guard, and return the link and the target's sizes."""
    own = sizes_of(apprentice)
    theirs = exchange_sizes(session, peer, config, own)
    peer.send(LabelledRows(labelled, scores))
    return _link(session, config, peer, keys, len(labelled), scores, own, theirs), theirs


def agree_as_target(
    session: Session, config: FTL, peer: Channel, keys: Keys | None, apprentice: Apprentice, rows: int
) -> tuple[Link, Mask, int]:
    """Do the same as the target; return the link, the labelled rows, and how many scores a row has."""
    own = sizes_of(apprentice)
    theirs = exchange_sizes(session, peer, config, own)
    said = peer.receive(LabelledRows, rows=rows, most_scores=most_scores(config.task, _MOST_SCORES))
    check_labelled(peer, said.rows)
    return _link(session, config, peer, keys, rows, said.scores, own, theirs), said.rows, said.scores


def check_labelled(peer: Channel, rows: Mask, among: Mask | None = None) -> None:
    """Refuse labelled rows of which there are none, or that are others than were announced."""
    if not rows.any() or (among is not None and (rows & ~among).any()):
        raise WrongContent(f"'{peer.peer}' names no labelled row, or one that had no label before.")


def sizes_of(apprentice: Apprentice) -> Sizes:
    """Return how large a party's encoder is."""
    return Sizes(apprentice.encoder.widths, apprentice.columns)


def _fit(session: Session, holding: Holding, positions: Places) -> TableEncoder:
    """Fit the table's encoder on rows that may be learned from."""
    encoder = TableEncoder.fit(holding.table, positions) if holding.table.columns else None
    if encoder is None or encoder.width == 0:
        raise without_columns(session)
    return encoder


def _link(
    session: Session, config: FTL, peer: Channel, keys: Keys | None, rows: int, scores: int, own: Sizes, theirs: Sizes
) -> Link:
    in_step = min(config.batch_size or rows, rows)
    if session.stage == "validate" and config.is_sealed and not own.widths:
        raise ConfigError("Validation needs encoders whose last layers are nn.Linear and nn.Sigmoid or nn.Tanh.")
    check_guard(session, peer, config, in_step, scores, own, theirs)
    return Link(peer, keys, config, theirs)
