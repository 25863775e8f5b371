"""Train federated transfer learning: both roles, from keys to the held-out evaluation."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colonnade.data import LabelEncoder, TableEncoder
from colonnade.errors import ConfigError, WrongContent
from colonnade.exchanges.holdings import scores_in_terms_of, without_columns
from colonnade.methods.ftl.choice import Calibration, judge, safeguard_finding
from colonnade.methods.ftl.config import FTL
from colonnade.methods.ftl.encoder import LARGEST_INPUT, Apprentice, Encoder, build_encoder
from colonnade.methods.ftl.link import Keys, Link, Sizes, check_guard, exchange_keys, exchange_sizes
from colonnade.methods.ftl.maths import Translator, targets_of
from colonnade.methods.ftl.messages import Choice, LabelledRows
from colonnade.methods.ftl.scoring import Scorer, ask_for_scores, give_scores, probabilities
from colonnade.methods.ftl.self_learning import give_up, learn_as_source, learn_as_target, take_over
from colonnade.methods.ftl.steps import (
    SourceLink,
    SourceTrainer,
    StopRule,
    TargetTrainer,
    apply_verdict,
    objective_for,
)
from colonnade.session import Channel, Holding, ModelPart, Pair, Result, Session

__all__ = [
    "MOST_SCORES",
    "SourceRows",
    "apprentice_for",
    "choose_labelled",
    "encoded",
    "source",
    "source_rows",
    "target",
]

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MOST_SCORES = 4096


@dataclass(frozen=True)
class SourceRows:
    """The source's rows for training: those that make the translator first, then others that are shared."""

    table_encoder: TableEncoder
    label_encoder: LabelEncoder
    positions: Places
    columns: Numbers
    targets: Numbers
    used: int

    def places_of(self, positions: Places) -> Places:
        """Return where rows of the table stand among these."""
        order = np.argsort(self.positions)
        return np.asarray(order[np.searchsorted(self.positions, positions, sorter=order)])


def source(session: Session, holding: Holding, config: FTL) -> Result:
    """Play the party that has labels."""
    peers = session.channels("target")
    pairs = [holding.pair(peer.peer) for peer in peers]
    rows = source_rows(session, holding, config, pairs)
    labels, task = rows.label_encoder, rows.label_encoder.task
    apprentice = apprentice_for(session, holding, config, rows.columns)
    learner = apprentice.learner
    keys = exchange_keys(session, peers, config)
    links, sizes = _source_links(session, config, peers, pairs, rows, apprentice.encoder, keys)
    trainer = SourceTrainer(session, config, apprentice, rows.columns, rows.targets, rows.used, links)
    rule, begin = StopRule(tolerance=config.tolerance), 0
    session.expect_steps(config.iterations)
    if session.resumed is not None:
        document = session.resumed.document
        learner.load_state(session.resumed.tensors, document)
        rule, begin = StopRule(**document["rule"]), document["iteration"]
    else:
        apprentice.pretrain()

    def keep(iteration: int, is_over: bool) -> None:
        tensors, document = learner.state()
        progress = {"iteration": iteration, "rule": dataclasses.asdict(rule), "is_over": is_over}
        if is_over or iteration % config.checkpoint_every == 0:
            session.checkpoint(ModelPart(tensors, document | progress))

    if session.resumed is None or not session.resumed.document["is_over"]:
        trainer.train(rule, begin, keep)

    translator = trainer.translator()
    _warn_of_large_scores(session, translator)
    table_labels = _labels_of(session, holding)
    found: dict[str, Any] = {}
    scored: list[tuple[Places, Numbers, Numbers]] = []
    calibrations: dict[str, Calibration] = {}
    for peer, pair, link, key, size in zip(peers, pairs, links, keys, sizes, strict=True):
        truth = {
            part: targets_of(task, labels.encode(table_labels[pair.aligned.positions[places]]), len(labels.classes))
            for part, places in (("validation", pair.split.validation), ("test", pair.split.test))
            if len(places)
        }
        counts = {part: len(values) for part, values in truth.items()}
        scorer = Scorer(translator.phi, -translator.beta)
        transferred = (
            dict(
                zip(
                    counts,
                    np.split(
                        give_scores(peer, key, scorer, sum(counts.values())), np.cumsum(list(counts.values()))[:-1]
                    ),
                    strict=True,
                )
            )
            if counts
            else {}
        )
        calibration = Calibration.fit(task, transferred.get("validation"), truth.get("validation"))
        transferred = {part: calibration.apply(values) for part, values in transferred.items()}
        chosen, is_transfer = transferred, True
        if config.safeguard:
            own = learn_as_source(
                peer, key, task, rows.targets[link.shared[link.labelled]], list(counts.values()), size.columns
            )
            alone = dict(zip(counts, own.scores, strict=True))
            is_transfer, found[peer.peer] = judge(task, truth, transferred, alone, config.margin)
            peer.send(Choice(is_transfer))
            if not is_transfer:
                give_up(peer, own, json.dumps(labels.to_json()))
                chosen = alone
        calibrations[peer.peer] = calibration
        if "test" in chosen:
            scored.append((pair.split.test, chosen["test"], table_labels[pair.aligned.positions[pair.split.test]]))
        found.setdefault(peer.peer, {})["chosen"] = "transfer" if is_transfer else "self-learning"
    document = _document(session, holding, config, rows.table_encoder)
    document |= {
        "label_encoder": labels.to_json(),
        "calibrations": {peer: one.to_json() for peer, one in calibrations.items()},
        "chosen": {peer: one["chosen"] for peer, one in found.items()},
    }
    tensors = apprentice.weights() | {
        "translator": torch.from_numpy(translator.phi),
        "offset": torch.from_numpy(-translator.beta),
    }
    scores = None
    if scored:
        values = probabilities(task, np.concatenate([one for _, one, _ in scored]))
        truths = np.concatenate([one for _, _, one in scored])
        scores = scores_in_terms_of(labels, values, np.concatenate([one for one, _, _ in scored]), truths)
    return Result(ModelPart(tensors, document), scores, (safeguard_finding(found),) if config.safeguard else ())


def target(session: Session, holding: Holding, config: FTL) -> Result:
    """Play the party that has columns, but no labels."""
    peers = session.channels("source")
    sides = [_TargetSide(session, holding, config, peer, holding.pair(peer.peer)) for peer in peers]
    keys = exchange_keys(session, peers, config)
    for side, key in zip(sides, keys, strict=True):
        side.meet(key)
    session.expect_steps(config.iterations)
    resumed = session.resumed
    begin = 0
    if resumed is not None:
        begin = resumed.document["iteration"]
        for side in sides:
            side.load_state(resumed.tensors, resumed.document["learners"][side.peer.peer])
    else:
        for side in sides:
            side.pretrain()
    still = [side for side in sides if not side.is_over]
    for iteration in range(begin, config.iterations):
        if not still:
            break
        session.next_step()
        for side in still:
            side.step(iteration)
        still = [side for side in still if not side.is_over]
        if not still or (iteration + 1) % config.checkpoint_every == 0:
            session.checkpoint(_state_of(sides, iteration + 1))
    for side in sides:
        side.evaluate()
    parts = {side.peer.peer: side.document() for side in sides}
    tensors = {f"{side.peer.peer}/{name}": value for side in sides for name, value in side.tensors().items()}
    document = _document(session, holding, config, sides[0].table_encoder) | {"sources": parts}
    return Result(ModelPart(tensors, document))


class _TargetSide:
    """The target's side of one link: with several sources, one encoder for each."""

    def __init__(self, session: Session, holding: Holding, config: FTL, peer: Channel, pair: Pair) -> None:
        self._session, self._config, self.peer, self._pair = session, config, peer, pair
        held = np.concatenate([pair.aligned.positions[pair.split.validation], pair.aligned.positions[pair.split.test]])
        positions = np.setdiff1d(np.arange(holding.table.rows), held)
        self.table_encoder, self._own = encoded(session, holding, positions)
        shared = self.table_encoder.transform(holding.table, pair.aligned.positions, dtype=np.float64)
        self._shared = _cut_off(shared)
        self._apprentice = apprentice_for(session, holding, config, self._own, peer.peer)
        self._encoder, self._learner = self._apprentice.encoder, self._apprentice.learner
        self.is_over = False
        self._keys: Keys | None = None
        self._regression: tuple[Numbers, Numbers, str] | None = None

    def meet(self, keys: Keys | None) -> None:
        """Learn which rows are labelled and how large the source's encoder is."""
        config, split = self._config, self._pair.split
        self._keys = keys
        own = Sizes(self._encoder.widths, self.table_encoder.width)
        theirs = exchange_sizes(self.peer, own)
        said = self.peer.receive(LabelledRows, rows=(len(split.train),))
        if said.rows.dtype != np.bool_ or not said.rows.any() or not 1 <= said.scores <= MOST_SCORES:
            raise WrongContent(f"'{self.peer.peer}' names labelled rows in a way no version of colonnade does.")
        self._labelled, self._scores = said.rows, said.scores
        rows = len(split.train) if not config.batch_size else min(config.batch_size, len(split.train))
        check_guard(self._session, self.peer, config, rows, own, theirs)
        link = None if keys is None else Link(self.peer, keys, config, theirs)
        # The source knows the task; the loss's shape is part of the settings, and regression is always squared.
        self._trainer = TargetTrainer(
            self._session,
            config,
            self._apprentice,
            self.peer,
            link,
            self._shared[split.train],
            self._labelled,
            objective_for(config, "", len(split.train), int(said.rows.sum())),
        )

    def pretrain(self) -> None:
        """Prepare the encoder on all of this party's own rows."""
        self._apprentice.pretrain()

    def step(self, iteration: int) -> None:
        """Play one iteration."""
        verdict = self._trainer.step(iteration)
        apply_verdict(self._learner, verdict)
        self.is_over = verdict.is_last

    def evaluate(self) -> None:
        """Have held-out rows scored, and help to judge whether transfer helped."""
        split, train = self._pair.split, self._shared[self._pair.split.train]
        held = [self._shared[places] for places in (split.validation, split.test) if len(places)]
        if held:
            ask_for_scores(self.peer, self._keys, self._encoder.codes(np.concatenate(held)), self._scores)
        if self._config.safeguard:
            learned = learn_as_target(self.peer, self._keys, train[self._labelled], held, self._scores)
            if not self.peer.receive(Choice).is_transfer:
                self._regression = take_over(self.peer, learned, self._scores)

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return everything a checkpoint needs."""
        tensors, document = self._learner.state()
        return {f"{self.peer.peer}/{name}": value for name, value in tensors.items()}, document | {
            "is_over": self.is_over
        }

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        start = f"{self.peer.peer}/"
        own = {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}
        self._learner.load_state(own, document)
        self.is_over = document["is_over"]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return what scores this party's rows: an encoder, or the regression."""
        found = self._apprentice.weights()
        if self._regression is not None:
            coefficients, intercept, _ = self._regression
            found |= {"coefficients": torch.from_numpy(coefficients), "intercept": torch.from_numpy(intercept)}
        return found

    def document(self) -> dict[str, Any]:
        """Return what else there is to know."""
        found: dict[str, Any] = {"chosen": "transfer", "scores": self._scores}
        return found if self._regression is None else found | {"chosen": "self-learning", "labels": self._regression[2]}


def source_rows(session: Session, holding: Holding, config: FTL, pairs: Sequence[Pair]) -> SourceRows:
    """Choose and encode the source's rows: held-out ones of any link never lend their label."""
    labels = _labels_of(session, holding)
    held = [pair.aligned.positions[np.concatenate([pair.split.validation, pair.split.test])] for pair in pairs]
    used = np.setdiff1d(np.arange(holding.table.rows), np.concatenate(held))
    shared = np.concatenate([pair.aligned.positions[pair.split.train] for pair in pairs])
    positions = np.concatenate([used, np.setdiff1d(shared, used)])
    table_encoder, columns = encoded(session, holding, used, positions)
    label_encoder = LabelEncoder.fit(labels[used], config.task)
    targets = targets_of(label_encoder.task, label_encoder.encode(labels[positions]), len(label_encoder.classes))
    return SourceRows(table_encoder, label_encoder, positions, columns, targets, len(used))


def encoded(
    session: Session, holding: Holding, fitted: Places, positions: Places | None = None
) -> tuple[TableEncoder, Numbers]:
    """Fit the table's encoder on rows that may be learned from, and encode these or others."""
    encoder = TableEncoder.fit(holding.table, fitted) if holding.table.columns else None
    if encoder is None or encoder.width == 0:
        raise without_columns(session)
    rows = fitted if positions is None else positions
    return encoder, _cut_off(encoder.transform(holding.table, rows, dtype=np.float64))


def apprentice_for(
    session: Session, holding: Holding, config: FTL, columns: Numbers, peer: str = "", counter: int = 0
) -> Apprentice:
    """Build this party's encoder, ready to learn; with several sources, one for each."""
    where = f"/{peer}" if peer else ""
    encoder = build_encoder(
        config, session.party, columns.shape[1], session.own_seed(f"encoder{where}", counter), holding.module
    )
    return Apprentice(config, encoder, columns, session.own_seed(f"decoder{where}", counter))


def choose_labelled(targets: Numbers, may: Mask, count: int, task: str, seed: int) -> Mask:
    """Choose which rows lend their label: as many of each class as can be."""
    candidates = np.flatnonzero(may)
    if not count or count >= len(candidates):
        return may.copy()
    order = np.random.default_rng(seed).permutation(candidates)
    chosen = np.zeros(len(may), dtype=bool)
    if task == "regression":
        chosen[order[:count]] = True
        return chosen
    kinds = targets[order].argmax(axis=1) if task == "multiclass" else (targets[order, 0] > 0).astype(np.int64)
    # The first of every class, then the second of every class, and so on.
    rank = np.zeros(len(order), dtype=np.int64)
    for kind in np.unique(kinds):
        rank[kinds == kind] = np.arange(int((kinds == kind).sum()))
    chosen[order[np.argsort(rank, kind="stable")[:count]]] = True
    return chosen


def _source_links(
    session: Session,
    config: FTL,
    peers: Sequence[Channel],
    pairs: Sequence[Pair],
    rows: SourceRows,
    encoder: Encoder,
    keys: Sequence[Keys | None],
) -> tuple[list[SourceLink], list[Sizes]]:
    """Tell every target which rows are labelled, and make the links."""
    links, sizes = [], []
    own, task = Sizes(encoder.widths, rows.columns.shape[1]), rows.label_encoder.task
    for peer, pair, key in zip(peers, pairs, keys, strict=True):
        theirs = exchange_sizes(peer, own)
        shared = rows.places_of(pair.aligned.positions[pair.split.train])
        seed = session.own_seed(f"labelled/{peer.peer}")
        labelled = choose_labelled(rows.targets[shared], shared < rows.used, config.labelled_rows, task, seed)
        if not labelled.any():
            raise ConfigError(
                f"None of the {len(shared)} rows shared with '{peer.peer}' may lend its label: all are held out for "
                "another target. Lower evaluate.test_fraction."
            )
        peer.send(LabelledRows(labelled, rows.targets.shape[1]))
        count = len(shared) if not config.batch_size else min(config.batch_size, len(shared))
        check_guard(session, peer, config, count, own, theirs)
        objective = objective_for(config, task, len(shared), int(labelled.sum()))
        link = None if key is None else Link(peer, key, config, theirs)
        links.append(SourceLink(peer, shared, labelled, objective, link, peer.peer))
        sizes.append(theirs)
    return links, sizes


def _labels_of(session: Session, holding: Holding) -> np.ndarray[Any, Any]:
    if holding.table.labels is None:
        raise ConfigError(f"'{session.party}' is the source but its table has no label column. Set label = ….")
    return holding.table.labels


def _warn_of_large_scores(session: Session, translator: Translator) -> None:
    # Codes lie between -1 and 1, so that this bounds every score; beyond 2 the quadratic loss turns upwards again.
    largest = float(np.abs(translator.phi).sum(axis=1).max())
    session.record(score_bound=largest, scores_may_be_too_large=largest > 2.0)


def _cut_off(columns: Numbers) -> Numbers:
    return np.clip(columns, -LARGEST_INPUT, LARGEST_INPUT)


def _state_of(sides: Sequence[_TargetSide], iteration: int) -> ModelPart:
    tensors: dict[str, torch.Tensor] = {}
    learners = {}
    for side in sides:
        own, document = side.state()
        tensors |= own
        learners[side.peer.peer] = document
    return ModelPart(tensors, {"iteration": iteration, "learners": learners})


def _document(session: Session, holding: Holding, config: FTL, table_encoder: TableEncoder) -> dict[str, Any]:
    return {
        "method": "ftl",
        "role": session.role,
        "party": session.party,
        "config": dataclasses.asdict(config),
        "table_encoder": table_encoder.to_json(),
        "is_custom": holding.module is not None,
    }
