"""Transfer cross-validation (Algorithm 3): judge transfer with few labels at the target, and learning alone beside it.

For each fold of the source's labelled rows: train without the fold's labels; score the left-out labelled shared rows
(cross-validation proper) and let a regression on the others score them too (self-learning); give the target labels for
all its own rows; swap roles, train on from there with the target's translator, and have it score the source's fold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colonnade.errors import ConfigError
from colonnade.exchanges.answers import checked_answer, decided_by, described, told
from colonnade.methods.ftl.choice import Calibration, quality, quality_name, quality_of_decided, word_for
from colonnade.methods.ftl.config import FTL
from colonnade.methods.ftl.link import Keys, exchange_keys
from colonnade.methods.ftl.maths import targets_of
from colonnade.methods.ftl.messages import FoldRows, PredictedLabels, RowCount
from colonnade.methods.ftl.mirrored import LossSide, TranslatorSide
from colonnade.methods.ftl.preparing import (
    SourceRows,
    agree_as_source,
    agree_as_target,
    apprentice_for,
    check_labelled,
    choose_labelled,
    source_rows,
    target_rows,
)
from colonnade.methods.ftl.scoring import Scorer, ask_for_scores, give_scores
from colonnade.methods.ftl.self_learning import learn_as_source, learn_as_target
from colonnade.methods.ftl.steps import (
    SourceLink,
    SourceTrainer,
    StopRule,
    TargetTrainer,
    apply_verdict,
    objective_for,
)
from colonnade.session import Channel, Finding, Holding, Pair, Result, Session

__all__ = ["source", "target"]

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def source(session: Session, holding: Holding, config: FTL) -> Result:
    """Play the party that has labels; it learns how good transfer is."""
    peers = session.channels("target")
    pairs = [holding.pair(peer.peer) for peer in peers]
    rows = source_rows(session, holding, config, pairs)
    keys = exchange_keys(session, peers, config)
    session.expect_steps(2 * config.folds * config.iterations * len(peers))
    findings = []
    for peer, pair, key in zip(peers, pairs, keys, strict=True):
        folds = [
            _source_fold(session, holding, config, peer, pair, key, rows, number) for number in range(config.folds)
        ]
        findings.append(_finding(config, peer.peer, rows.label_encoder.task, folds))
    return Result(findings=tuple(findings))


def target(session: Session, holding: Holding, config: FTL) -> Result:
    """Play the party that has columns, but no labels."""
    peers = session.channels("source")
    keys = exchange_keys(session, peers, config)
    session.expect_steps(2 * config.folds * config.iterations * len(peers))
    for peer, key in zip(peers, keys, strict=True):
        for number in range(config.folds):
            _target_fold(session, holding, config, peer, key, number)
    return Result()


@dataclass(frozen=True)
class _Fold:
    """One fold's numbers at the source."""

    transfer: float
    plain: float
    alone: float


def _source_fold(
    session: Session,
    holding: Holding,
    config: FTL,
    peer: Channel,
    pair: Pair,
    keys: Keys | None,
    rows: SourceRows,
    number: int,
) -> _Fold:
    labels, task = rows.label_encoder, rows.label_encoder.task
    left_out = _folds(rows, config.folds, session.own_seed("folds")) == number
    kept = np.flatnonzero(~left_out[: rows.used])
    # Rows that make the translator first; those of the fold stay among the shared ones, without their labels.
    order = np.concatenate([kept, np.setdiff1d(np.arange(len(rows.positions)), kept)])
    place = np.argsort(order)
    columns, targets = rows.columns[order], rows.targets[order]
    shared = place[rows.places_of(pair.aligned.positions[pair.split.train])]
    seed = session.own_seed(f"labelled/{peer.peer}")
    every = choose_labelled(order[shared] < rows.used, config.labelled_rows, seed)
    labelled = every & (shared < len(kept))
    if not labelled.any() or not (every & ~labelled).any():
        raise ConfigError(
            f"Fold {number + 1} of {config.folds} has no labelled shared row inside or outside it. Lower config.folds, "
            "or raise config.labelled_rows."
        )
    apprentice = apprentice_for(session, holding, config, columns, counter=number)
    link, _ = agree_as_source(session, config, peer, keys, apprentice, every, targets.shape[1])
    peer.send(FoldRows(labelled, len(kept)))
    objective = objective_for(config, task, len(shared), int(labelled.sum()))
    apprentice.pretrain()
    trainer = SourceTrainer(
        session,
        config,
        apprentice,
        columns,
        targets,
        len(kept),
        [SourceLink(peer, shared, labelled, objective, link)],
        fold=number,
    )
    trainer.train(StopRule(tolerance=config.tolerance), 0, _ignore)

    translator = trainer.translator()
    scorer = Scorer(translator.phi, -translator.beta)
    # The labelled rows of this fold set the threshold, the left-out ones judge.
    scores = give_scores(peer, keys, scorer, int(every.sum()))
    is_left = ~labelled[every]
    truth = targets[shared[every]]
    calibration = Calibration.fit(task, scores[~is_left], truth[~is_left], float((targets[: len(kept), 0] > 0).mean()))
    plain = quality(task, truth[is_left], calibration.apply(scores[is_left]))
    (scored_alone,) = learn_as_source(peer, keys, truth[~is_left], [int(is_left.sum())])
    alone = quality(task, truth[is_left], scored_alone)

    found = calibration.apply(give_scores(peer, keys, scorer, peer.receive(RowCount).count))
    peer.send(PredictedLabels(decided_by(task, found), described(labels)))
    swapped = objective_for(config, task, len(shared), len(kept))
    apprentice = apprentice.anew(config)
    side = LossSide(config, apprentice, peer, link, swapped, columns, targets[: len(kept)], len(kept), shared)
    for _ in session.passes("iterations", config.iterations):
        session.next_step()
        side.step()
    fold = place[np.flatnonzero(left_out[: rows.used])]
    peer.send(RowCount(len(fold)))
    ask_for_scores(peer, keys, apprentice.encoder.codes(columns[fold]), targets.shape[1])
    answer = peer.receive(PredictedLabels, rows=len(fold))
    transfer = quality_of_decided(task, targets[fold], checked_answer(task, answer.values, len(labels.classes), peer))
    session.record(fold=number + 1, transfer=transfer, cross_validation=plain, self_learning=alone)
    return _Fold(transfer, plain, alone)


def _target_fold(
    session: Session, holding: Holding, config: FTL, peer: Channel, keys: Keys | None, number: int
) -> None:
    rows = target_rows(session, holding, holding.pair(peer.peer))
    own, shared = rows.columns, rows.shared
    apprentice = apprentice_for(session, holding, config, own, peer.peer, counter=number)
    link, every, scores = agree_as_target(session, config, peer, keys, apprentice, len(shared))
    fold = peer.receive(FoldRows, rows=len(shared))
    labelled = fold.rows
    check_labelled(peer, labelled, every)
    apprentice.pretrain()
    objective = objective_for(config, "", len(shared), int(labelled.sum()))
    trainer = TargetTrainer(session, config, apprentice, peer, link, own[shared], labelled, objective, fold=number)
    for iteration in session.passes("iterations", config.iterations):
        session.next_step()
        verdict = trainer.step(iteration)
        apply_verdict(apprentice.learner, verdict)
        if verdict.is_last:
            break
    codes = apprentice.encoder.codes(own)
    with peer.openings.at("labelled rows"):
        ask_for_scores(peer, keys, codes[shared[every]], scores)
    learn_as_target(peer, keys, own[shared[labelled]], [own[shared[every & ~labelled]]])
    peer.send(RowCount(len(own)))
    ask_for_scores(peer, keys, codes, scores)
    given = told(peer.receive(PredictedLabels, rows=len(own)), peer, scores)
    task = given.task
    targets = targets_of(task, given.values.astype(np.float64), len(given.classes))
    swapped = objective_for(config, task, len(shared), fold.count)
    apprentice = apprentice.anew(config)
    side = TranslatorSide(config, apprentice, peer, link, swapped, own, targets, fold.count, shared)
    for _ in session.passes("iterations", config.iterations):
        session.next_step()
        side.step()
    translator = side.translator()
    found = give_scores(peer, keys, Scorer(translator.phi, -translator.beta), peer.receive(RowCount).count)
    peer.send(PredictedLabels(decided_by(task, found), ""))


def _ignore(iteration: int, is_over: bool) -> None:
    """Keep no checkpoint: a validation that is cut short begins again, and gives the same numbers."""


def _folds(rows: SourceRows, folds: int, seed: int) -> Places:
    """Return every row's fold, with each class spread evenly; rows that lend no label belong to none."""
    # The target sees which shared rows a fold leaves out. A seed that it knows would then tell it who is of one class.
    secret = hashlib.sha256(b"folds %d" % seed + rows.targets.tobytes()).digest()
    generator = np.random.default_rng(int.from_bytes(secret, "little"))
    found = np.full(len(rows.positions), -1, dtype=np.int64)
    task, targets = rows.label_encoder.task, rows.targets[: rows.used]
    if task == "regression":
        kinds = np.argsort(np.argsort(targets[:, 0])) * folds // len(targets)
    else:
        kinds = targets.argmax(axis=1) if task == "multiclass" else (targets[:, 0] > 0).astype(np.int64)
    start = 0
    for kind in np.unique(kinds):
        members = generator.permutation(np.flatnonzero(kinds == kind))
        found[members] = (start + np.arange(len(members))) % folds
        start += len(members)
    return found


def _finding(config: FTL, peer: str, task: str, folds: Sequence[_Fold]) -> Finding:
    """Return all folds, their means and spreads, and the verdict."""
    metric, back = quality_name(task), "r2" if task == "regression" else "weighted_f1"
    numbers: dict[str, list[float]] = {
        "transfer cross-validation": [one.transfer for one in folds],
        "cross-validation": [one.plain for one in folds],
        "self-learning": [one.alone for one in folds],
    }
    means = {name: float(np.mean(values)) for name, values in numbers.items()}
    spreads = {name: float(np.std(values, ddof=1)) for name, values in numbers.items()}
    is_transfer = means["cross-validation"] >= means["self-learning"] + config.margin
    chosen = "transfer" if is_transfer else "self-learning"
    rows = [
        (str(number + 1), *[f"{values[number]:.4f}" for values in numbers.values()]) for number in range(len(folds))
    ]
    rows.append(("mean", *[f"{one:.4f}" for one in means.values()]))
    rows.append(("standard deviation", *[f"{one:.4f}" for one in spreads.values()]))
    return Finding(
        name=f"validation of {peer}",
        title=f"Validation of transfer to {peer}",
        text="Transfer cross-validation judges the source's left-out rows by labels that came back from the target "
        f"({word_for(back)}); cross-validation and self-learning judge the target's columns of left-out labelled "
        f"shared rows by scores ({word_for(metric)}), so that these two decide: {chosen}. As config.source_weights "
        "take the first column's means.",
        columns=("fold", *numbers),
        rows=tuple(rows),
        values={"metric": metric, "folds": numbers, "means": means, "deviations": spreads, "chosen": chosen},
    )
