"""Score rows that only the target knows: it gets labels and no scores, the source gets scores and no ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.crypto import FixedPoint, Mask, ring_elements, ring_integers
from colonnade.data import LabelEncoder, TableEncoder
from colonnade.errors import WrongContent
from colonnade.exchanges.answers import decided, described, predictions, told
from colonnade.exchanges.holdings import own_part
from colonnade.methods.ftl.choice import Calibration
from colonnade.methods.ftl.config import FTL
from colonnade.methods.ftl.encoder import LARGEST_INPUT, build_encoder
from colonnade.methods.ftl.link import Keys, exchange_keys
from colonnade.methods.ftl.messages import AnswerParts, PredictedLabels, RowsToScore, ScoreParts
from colonnade.methods.ftl.scoring import (
    OFFSET,
    Scorer,
    ask_for_scores,
    chunks,
    give_scores,
    mask_scores,
    open_scores,
    score_layout,
    send_codes,
)
from colonnade.methods.ftl.self_learning import odds, regression_scores
from colonnade.nn import tensors_under
from colonnade.session import Channel, Holding, ModelPart, Result, Session

__all__ = ["source", "target"]

Numbers = npt.NDArray[np.float64]

# The dimensions of parts of a sum: rows and scores or, where they are masked, integers and their bytes.
_PARTS = ("parts", "part_width")


def source(session: Session, holding: Holding, config: FTL) -> Result:
    """Play a party that scores."""
    part = own_part(session, holding)
    peers = [peer for peer in session.channels("target") if part.document["chosen"][peer.peer] == "transfer"]
    labels = LabelEncoder.from_json(part.document["label_encoder"])
    keys = exchange_keys(session, peers, config) if peers else []
    for peer, key in zip(peers, keys, strict=True):
        sources = {one.peer: one for one in session.channels("source")}
        asked = peer.receive(RowsToScore, sources=(session.party, *sources), other_sources=tuple(sources))
        if asked.collector not in (session.party, *asked.others) or (asked.is_summed and not sources):
            raise WrongContent(f"'{peer.peer}' has scores added up by a party that is no source of this prediction.")
        calibration, weight = Calibration(**part.document["calibrations"][peer.peer]), _weight(session, config)
        scorer = Scorer(part.tensors["translator"].numpy(), part.tensors["offset"].numpy())
        scorer = scorer.scaled(weight * calibration.slope, weight * calibration.intercept)
        if asked.collector == session.party:
            scores = (
                _collect(peer, [sources[name] for name in asked.others], key, scorer, asked.count)
                if asked.is_summed
                else give_scores(peer, key, scorer, asked.count)
            )
            peer.send(PredictedLabels(decided(labels, scores), described(labels)))
        else:
            _contribute(peer, sources[asked.collector], key, scorer, asked.count)
    return Result()


def target(session: Session, holding: Holding, config: FTL) -> Result:
    """Play the party whose rows are scored."""
    part = own_part(session, holding)
    encoder = TableEncoder.from_json(part.document["table_encoder"])
    rows = encoder.transform(holding.table, holding.aligned.positions, dtype=np.float64)
    every = part.document["sources"]
    cut = np.clip(rows, -LARGEST_INPUT, LARGEST_INPUT)
    own = [_weight(session, config, name) * _regression(part, name, cut) for name in every if _is_alone(every, name)]
    peers = [peer for peer in session.channels("source") if not _is_alone(every, peer.peer)]
    if not peers:
        labels = _labels(part, next(iter(every)))
        return Result(scores=predictions(labels.task, decided(labels, np.sum(own, axis=0)), labels.classes))
    keys = exchange_keys(session, peers, config)
    codes = [_codes(session, holding, config, part, peer.peer, cut) for peer in peers]
    scores = every[peers[0].peer]["scores"]
    is_summed = len(peers) > 1 or bool(own)
    for peer in peers:
        peer.dims["scores"] = scores
        others = tuple(one.peer for one in peers if one is not peer)
        peer.send(RowsToScore(len(rows), peers[0].peer, others, is_summed))
    if is_summed:
        _gather(peers, keys, codes, np.sum([np.zeros((len(rows), scores)), *own], axis=0))
    else:
        ask_for_scores(peers[0], keys[0], codes[0], scores)
    answer = peers[0].receive(PredictedLabels, rows=len(rows))
    return Result(scores=told(answer, peers[0]))


def _collect(peer: Channel, others: Sequence[Channel], keys: Keys | None, scorer: Scorer, count: int) -> Numbers:
    """Add up all sources' scores: the target sends their sum behind all masks, the other sources send their masks."""
    found = [np.empty((0, len(scorer.offset)))]
    for rows in chunks(count):
        if keys is None:
            total = give_scores(peer, None, scorer, len(rows))
            parts = dict(zip(_PARTS, total.shape, strict=True))
            for one in others:
                total = total + one.receive(ScoreParts, **parts).values
            found.append(total + peer.receive(AnswerParts, **parts).values)
            continue
        mask = mask_scores(peer, keys, scorer, len(rows))
        integers = list(mask.integers)
        parts = dict(zip(_PARTS, (len(integers), keys.theirs.width), strict=True))
        for one in others:
            theirs = ring_integers(one.receive(ScoreParts, **parts).values, keys.theirs, len(integers))
            integers = [int((own + their) % keys.theirs.n) for own, their in zip(integers, theirs, strict=True)]
        whole = Mask(mask.layout, keys.theirs, tuple(integers))
        found.append(whole.remove(peer.receive(AnswerParts, **parts).values).decode())
    return np.concatenate(found)


def _contribute(peer: Channel, collector: Channel, keys: Keys | None, scorer: Scorer, count: int) -> None:
    """Score rows for another source to add up."""
    for rows in chunks(count):
        if keys is None:
            collector.send(ScoreParts(give_scores(peer, None, scorer, len(rows))))
        else:
            mask = mask_scores(peer, keys, scorer, len(rows))
            collector.send(ScoreParts(ring_elements(mask.integers, keys.theirs)))


def _gather(peers: Sequence[Channel], keys: Sequence[Keys | None], codes: Sequence[Numbers], own: Numbers) -> None:
    """Have rows scored by all sources, add up what they answer behind their masks, and give the sum to the first."""
    scores = own.shape[1]
    for rows in chunks(len(own)):
        opened: list[list[Any]] = []
        for peer, key, mine in zip(peers, keys, codes, strict=True):
            send_codes(peer, key, mine[rows])
        if keys[0] is None:
            peers[0].send(AnswerParts(own[rows]))
            continue
        for peer, key, mine in zip(peers, keys, codes, strict=True):
            if key is not None:
                with peer.openings.at(f"rows from {rows[0]}"):
                    opened.append(open_scores(peer, key, len(rows), mine.shape[1], scores))
        layout = score_layout(len(rows), codes[0].shape[1], scores, keys[0].own)
        added = layout.pack(FixedPoint.encode(own[rows], OFFSET))
        total = [sum(parts) for parts in zip(added, *opened, strict=True)]
        peers[0].send(AnswerParts(ring_elements(total, keys[0].own)))


def _weight(session: Session, config: FTL, source_name: str | None = None) -> float:
    """Return how much a source's score counts among all."""
    weights = {name: config.source_weights.get(name, 1.0) for name in session.plan.roles["source"]}
    total = sum(weights.values())
    return weights[source_name or session.party] / total if total else 0.0


def _is_alone(every: dict[str, Any], name: str) -> bool:
    return bool(every[name]["chosen"] == "self-learning")


def _regression(part: ModelPart, name: str, rows: Numbers) -> Numbers:
    scores = regression_scores(rows, part.tensors[f"{name}/coefficients"].numpy())
    return odds(_labels(part, name).task, scores)


def _labels(part: ModelPart, name: str) -> LabelEncoder:
    return LabelEncoder.from_json(json.loads(part.document["sources"][name]["labels"]))


def _codes(session: Session, holding: Holding, config: FTL, part: ModelPart, name: str, rows: Numbers) -> Numbers:
    encoder = build_encoder(config, session.party, rows.shape[1], 0, holding.module)
    start = f"{name}/encoder."
    encoder.load_state_dict(tensors_under(start, part.tensors))
    return encoder.codes(rows)
