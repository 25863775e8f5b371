"""Train federated transfer learning: both roles, from keys to the held-out evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colonnade.data import TableEncoder
from colonnade.errors import ConfigError
from colonnade.exchanges.holdings import scores_in_terms_of, table_labels
from colonnade.methods.ftl.choice import Calibration, judge, safeguard_finding
from colonnade.methods.ftl.config import FTL
from colonnade.methods.ftl.encoder import Apprentice
from colonnade.methods.ftl.link import Keys, Sizes, exchange_keys
from colonnade.methods.ftl.maths import Translator, targets_of
from colonnade.methods.ftl.messages import Choice
from colonnade.methods.ftl.preparing import (
    SourceRows,
    agree_as_source,
    agree_as_target,
    apprentice_for,
    choose_labelled,
    encode,
    source_rows,
    target_rows,
)
from colonnade.methods.ftl.scoring import Scorer, ask_for_scores, give_scores, probabilities
from colonnade.methods.ftl.self_learning import give_up, learn_as_source, learn_as_target, odds, take_over
from colonnade.methods.ftl.steps import (
    SourceLink,
    SourceTrainer,
    StopRule,
    TargetTrainer,
    apply_verdict,
    objective_for,
)
from colonnade.nn import tensors_under
from colonnade.session import Channel, Holding, ModelPart, Pair, Result, Scores, Session

__all__ = ["source", "target"]

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


def source(session: Session, holding: Holding, config: FTL) -> Result:
    """Play the party that has labels."""
    peers = session.channels("target")
    pairs = [holding.pair(peer.peer) for peer in peers]
    rows = source_rows(session, holding, config, pairs)
    apprentice = apprentice_for(session, holding, config, rows.columns)
    meetings = [
        _meet(session, config, peer, pair, key, rows, apprentice)
        for peer, pair, key in zip(peers, pairs, exchange_keys(session, peers, config), strict=True)
    ]
    links = [meeting.link for meeting in meetings]
    trainer = SourceTrainer(session, config, apprentice, rows.columns, rows.targets, rows.used, links)
    rule, begin, is_over = StopRule(tolerance=config.tolerance), 0, False
    session.expect_steps(config.iterations)
    if session.resumed is None:
        apprentice.pretrain()
    else:
        document = session.resumed.document
        apprentice.learner.load_state(session.resumed.tensors, document)
        rule, begin, is_over = StopRule(**document["rule"]), document["iteration"], document["is_over"]

    def keep(iteration: int, is_over: bool) -> None:
        if is_over or iteration % config.checkpoint_every == 0:
            tensors, document = apprentice.learner.state()
            progress = {"iteration": iteration, "rule": dataclasses.asdict(rule), "is_over": is_over}
            session.checkpoint(ModelPart(tensors, document | progress))

    if not is_over:
        trainer.train(rule, begin, keep)

    translator = trainer.translator()
    _note_large_scores(session, translator)
    served = [_serve(session, holding, config, meeting, rows, translator) for meeting in meetings]
    tensors = {"translator": torch.from_numpy(translator.phi), "offset": torch.from_numpy(-translator.beta)}
    document = _document(session, holding, config, rows.table_encoder) | {
        "label_encoder": rows.label_encoder.to_json(),
        "calibrations": {one.target: one.calibration.to_json() for one in served},
        "chosen": {one.target: one.chosen for one in served},
    }
    judged = {one.target: {**one.judged, "chosen": one.chosen} for one in served}
    findings = (safeguard_finding(judged),) if config.safeguard else ()
    return Result(ModelPart(apprentice.weights() | tensors, document), _scores_of(rows, served), findings)


def target(session: Session, holding: Holding, config: FTL) -> Result:
    """Play the party that has columns, but no labels."""
    peers = session.channels("source")
    keys = exchange_keys(session, peers, config)
    sides = [_TargetSide(session, holding, config, peer, key) for peer, key in zip(peers, keys, strict=True)]
    session.expect_steps(config.iterations)
    begin = 0
    if session.resumed is None:
        for side in sides:
            side.apprentice.pretrain()
    else:
        begin = session.resumed.document["iteration"]
        for side in sides:
            side.load_state(session.resumed.tensors, session.resumed.document["sides"][side.peer.peer])
    for iteration in session.passes("iterations", config.iterations, begin):
        going_on = [side for side in sides if not side.is_over]
        if not going_on:
            break
        session.next_step()
        for side in going_on:
            side.step(iteration)
        if all(side.is_over for side in sides) or (iteration + 1) % config.checkpoint_every == 0:
            session.checkpoint(_state_of(sides, iteration + 1))
    for side in sides:
        side.evaluate()
    tensors = {name: value for side in sides for name, value in side.named(side.tensors()).items()}
    document = _document(session, holding, config, sides[0].rows.table_encoder)
    return Result(ModelPart(tensors, document | {"sources": {side.peer.peer: side.document() for side in sides}}))


@dataclass(frozen=True)
class _Meeting:
    """What the source and one target have agreed on."""

    peer: Channel
    pair: Pair
    keys: Keys | None
    link: SourceLink
    sizes: Sizes


def _meet(
    session: Session,
    config: FTL,
    peer: Channel,
    pair: Pair,
    keys: Keys | None,
    rows: SourceRows,
    apprentice: Apprentice,
) -> _Meeting:
    """Choose the rows that lend their label to a target's loss, and make the link."""
    shared = rows.places_of(pair.aligned.positions[pair.split.train])
    seed = session.own_seed(f"labelled/{peer.peer}")
    labelled = choose_labelled(shared < rows.used, config.labelled_rows, seed)
    if not labelled.any():
        raise ConfigError(
            f"None of the {len(shared)} rows shared with '{peer.peer}' has a label that may be used: all are held out "
            "for another target. Lower evaluate.test_fraction."
        )
    link, sizes = agree_as_source(session, config, peer, keys, apprentice, labelled, rows.targets.shape[1])
    objective = objective_for(config, rows.label_encoder.task, len(shared), int(labelled.sum()))
    return _Meeting(peer, pair, keys, SourceLink(peer, shared, labelled, objective, link), sizes)


@dataclass(frozen=True)
class _Served:
    """How one target is served: by which model, and how well."""

    target: str
    calibration: Calibration
    chosen: str
    judged: Mapping[str, Any]
    test_rows: Places
    test_scores: Numbers
    test_labels: np.ndarray[Any, Any]


def _serve(
    session: Session, holding: Holding, config: FTL, meeting: _Meeting, rows: SourceRows, translator: Translator
) -> _Served:
    """Score held-out rows of one target, by transfer and by learning alone, and choose."""
    peer, split, labels = meeting.peer, meeting.pair.split, rows.label_encoder
    parts = {part: getattr(split, part) for part in ("validation", "test")}
    known = {
        part: table_labels(session, holding)[meeting.pair.aligned.positions[places]] for part, places in parts.items()
    }
    truth = {
        part: targets_of(labels.task, labels.encode(values), len(labels.classes))
        for part, values in known.items()
        if len(values)
    }
    targets = rows.targets[meeting.link.shared[meeting.link.labelled]]
    # The labelled rows calibrate, so that validation rows are left to judge.
    ends = np.cumsum([len(targets), len(split.validation), len(split.test)])
    scored = give_scores(peer, meeting.keys, Scorer(translator.phi, -translator.beta), int(ends[-1]))
    own_rows, *held = np.split(scored, ends[:-1])
    calibration = Calibration.fit(labels.task, own_rows, targets, rows.share())
    found = {part: calibration.apply(values) for part, values in zip(parts, held, strict=True)}
    is_transfer, judged = True, dict[str, Any]()
    if config.safeguard:
        counts = [len(values) for values in truth.values()]
        scored_alone = learn_as_source(peer, meeting.keys, targets, counts)
        alone = {part: odds(labels.task, one) for part, one in zip(truth, scored_alone, strict=True)}
        is_transfer, judged = judge(labels.task, truth, found, alone, config.margin)
        peer.send(Choice(is_transfer))
        if not is_transfer:
            give_up(peer, meeting.keys, labels, meeting.sizes.columns, targets.shape[1])
            found |= alone
    chosen = "transfer" if is_transfer else "self-learning"
    return _Served(peer.peer, calibration, chosen, judged, split.test, found["test"], known["test"])


def _scores_of(rows: SourceRows, served: Sequence[_Served]) -> Scores | None:
    """Return the test rows' scores of all targets together."""
    labels = rows.label_encoder
    places = np.concatenate([one.test_rows for one in served])
    if not len(places):
        return None
    values = probabilities(labels.task, np.concatenate([one.test_scores for one in served]))
    return scores_in_terms_of(labels, values, places, np.concatenate([one.test_labels for one in served]))


class _TargetSide:
    """The target's side of one link: with several sources, one encoder for each."""

    def __init__(self, session: Session, holding: Holding, config: FTL, peer: Channel, keys: Keys | None) -> None:
        pair = holding.pair(peer.peer)
        self.peer, self._keys, self._config = peer, keys, config
        self.rows = target_rows(session, holding, pair)
        self.apprentice = apprentice_for(session, holding, config, self.rows.columns, peer.peer)
        shared = self.rows.columns[self.rows.shared]
        link, labelled, self._scores = agree_as_target(session, config, peer, keys, self.apprentice, len(shared))
        self._labelled = shared[labelled]
        held = [pair.aligned.positions[places] for places in (pair.split.validation, pair.split.test) if len(places)]
        self._held = [encode(self.rows.table_encoder, holding, positions) for positions in held]
        # Only the source knows the task, and only its side of the objective depends on it.
        objective = objective_for(config, "", len(shared), int(labelled.sum()))
        self._trainer = TargetTrainer(session, config, self.apprentice, peer, link, shared, labelled, objective)
        self.is_over = False
        self._regression: tuple[Numbers, str] | None = None

    def step(self, iteration: int) -> None:
        """Play one iteration."""
        verdict = self._trainer.step(iteration)
        apply_verdict(self.apprentice.learner, verdict)
        self.is_over = verdict.is_last

    def evaluate(self) -> None:
        """Have labelled and held-out rows scored, and help to judge whether transfer helped."""
        codes = self.apprentice.encoder.codes(np.concatenate([self._labelled, *self._held]))
        ask_for_scores(self.peer, self._keys, codes, self._scores)
        if self._config.safeguard:
            fit = learn_as_target(self.peer, self._keys, self._labelled, self._held)
            if not self.peer.receive(Choice).is_transfer:
                self._regression = take_over(self.peer, fit, self._labelled.shape[1], self._scores)

    def named(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Put the source's name before tensors' names."""
        return {f"{self.peer.peer}/{name}": value for name, value in tensors.items()}

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        start = f"{self.peer.peer}/"
        own = tensors_under(start, tensors)
        self.apprentice.learner.load_state(own, document)
        self.is_over = document["is_over"]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return what scores this party's rows: an encoder, or the regression."""
        found = self.apprentice.weights()
        if self._regression is not None:
            found["coefficients"] = torch.from_numpy(self._regression[0])
        return found

    def document(self) -> dict[str, Any]:
        """Return what else there is to know."""
        found: dict[str, Any] = {"chosen": "transfer", "scores": self._scores}
        return found if self._regression is None else found | {"chosen": "self-learning", "labels": self._regression[1]}


def _state_of(sides: Sequence[_TargetSide], iteration: int) -> ModelPart:
    tensors: dict[str, torch.Tensor] = {}
    documents = {}
    for side in sides:
        own, document = side.apprentice.learner.state()
        tensors |= side.named(own)
        documents[side.peer.peer] = document | {"is_over": side.is_over}
    return ModelPart(tensors, {"iteration": iteration, "sides": documents})


def _note_large_scores(session: Session, translator: Translator) -> None:
    # Codes lie between -1 and 1, so that this bounds every score; beyond 2 the quadratic loss turns upwards again.
    largest = float(np.abs(translator.phi).sum(axis=1).max())
    session.record(score_bound=largest, scores_may_be_too_large=largest > 2.0)


def _document(session: Session, holding: Holding, config: FTL, table_encoder: TableEncoder) -> dict[str, Any]:
    return {
        "method": "ftl",
        "role": session.role,
        "party": session.party,
        "config": dataclasses.asdict(config),
        "table_encoder": table_encoder.to_json(),
        "is_custom": holding.module is not None,
    }
