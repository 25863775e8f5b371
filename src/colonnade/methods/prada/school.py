"""The feature holder's side of all lessons: its networks, and one half of a scoring layer for every bank and phase."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colonnade.crypto import PrivateKey
from colonnade.data import CodeEncoder
from colonnade.errors import LeakRefused, WrongContent
from colonnade.exchanges.epochs import EpochVerdict
from colonnade.exchanges.holdings import first_seeds
from colonnade.exchanges.labels import most_scores
from colonnade.exchanges.public_keys import make_key, send_key
from colonnade.methods.prada.bank import own_start
from colonnade.methods.prada.config import PrADA
from colonnade.methods.prada.extractors import Extractors, density_weights
from colonnade.methods.prada.groups import (
    Columns,
    NewCategory,
    build_network,
    check_structure,
    choose_groups,
    group_shapes,
    nearest_ties,
    settled,
    structure_of,
    ties_of,
)
from colonnade.methods.prada.head import ClearHolderHead, HolderHead, SealedHolderHead, head_format
from colonnade.methods.prada.lessons import Course, Lesson, batches_of, phase_of
from colonnade.methods.prada.messages import GroupNames, LabelledRows
from colonnade.nn import FeatureGroups, tensors_under
from colonnade.session import Channel, Holding, ModelPart, Pair, Session

__all__ = ["Pupil", "School", "holder_head"]

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

_MOST_SCORES = 2**12
# A category that fewer target rows have, in parts of all, gets no weight of its own: it would be about few people.
_FEWEST = 0.005


def holder_head(config: PrADA, peer: Channel, key: PrivateKey | None, inputs: int, scores: int) -> HolderHead:
    """Return the feature holder's half of a scoring layer."""
    if key is None:
        return ClearHolderHead(peer)
    return SealedHolderHead(peer, head_format(config, inputs, scores), key, config.momentum)


@dataclass
class Pupil:
    """One bank, as the feature holder knows it."""

    peer: Channel
    pair: Pair
    known: Places
    scores: int
    mark: str = ""
    """What the bank calls its model, so that later both use parts of the same one."""
    heads: dict[str, HolderHead] = field(default_factory=dict)
    best: dict[str, dict[str, Any]] = field(default_factory=dict)

    def rows(self, part: str) -> Places:
        """Return this party's own rows of the bank's labelled training, validation or test rows."""
        return self.pair.aligned.positions[self.places(part)]

    def places(self, part: str) -> Places:
        """Return places of the bank's labelled training, validation or test rows in the agreed order."""
        return np.intersect1d(getattr(self.pair.split, part), self.known)


class School:
    """The feature holder in training."""

    def __init__(self, session: Session, holding: Holding, config: PrADA, stage: str) -> None:
        self.session, self.config, self._table = session, config, holding.table
        self._sources = session.plan.roles.get("source", ()) if stage != "finetune" else ()
        self.pairs = {peer.peer: holding.pair(peer.peer) for peer in session.all_channels}
        self._seeds = first_seeds(session, config.secret_start)
        self._earlier = holding.part
        self.groups, self.encoder = self._groups_and_encoder()
        self._shapes = group_shapes(config, self.encoder, self.groups)
        self.names = tuple(shape.name for shape in self._shapes)
        self.columns = Columns.of(self.encoder, holding.table, config.precision)
        self._table_of = [one.table for one in self.encoder.coded]
        self._ties = self._all_ties()
        network = self._network("groups")
        if holding.part is not None:
            network.load_state_dict(tensors_under("groups/", holding.part.tensors))
        self.is_pretrained = not self._sources
        self.extractors = Extractors(
            config,
            network,
            self.columns if self.is_pretrained else self.columns.tied(self._ties, self._table_of),
            self._seeds,
            domains=1 + len(self._sources) if config.adaptation else 1,
            rate=config.learning_rate,
        )
        self._novelties = self._new_categories()
        self.new = self._with_weights()
        self._own: dict[tuple[str, str], Extractors] = {}
        self._values: dict[tuple[str, str], Numbers] = {}
        self._weights: dict[str, Numbers] = {}
        self.key = make_key(session, config.key_size) if config.is_sealed else None
        # A target only waits while sources teach.
        taught = [peer for peer in session.all_channels if stage != "pretrain" or peer.peer_role != "target"]
        self.pupils = {peer.peer: self._enrol(peer) for peer in taught}

    def inputs(self, phase: str) -> int:
        """Return how many numbers this party gives per row."""
        return len(self.names) * self.config.aggregate + (len(self.new) if phase == "finetune" else 0)

    def values(self, phase: str, extractors: Extractors, rows: Places) -> Numbers:
        """Return the groups' numbers of rows and, in fine-tuning, which of them have categories new to sources."""
        found = extractors.values(rows)
        return np.concatenate([found, self.columns.marks(self.new, rows)], axis=1) if phase == "finetune" else found

    @functools.cached_property
    def target_rows(self) -> Places:
        """Return this party's training rows of all targets, labelled or not."""
        targets = self.session.plan.roles["target"]
        rows = [self.pairs[party].aligned.positions[self.pairs[party].split.train] for party in targets]
        return np.unique(np.concatenate(rows))

    def source_rows(self, party: str) -> Places:
        """Return this party's training rows of one source, labelled or not."""
        pair = self.pairs[party]
        return pair.aligned.positions[pair.split.train]

    def teach(self, course: Course, lesson: Lesson, keep: Any) -> bool:
        """Give one lesson, from where it stands to its end; return whether its phase is over for this bank."""
        session, config, phase = self.session, self.config, phase_of(self.config, lesson.phase)
        pupil = self.pupils[lesson.party]
        head = self.head(pupil, lesson.phase)
        if course.begins:
            constant = len(self.names) * config.aggregate
            shape, is_secret = (self.inputs(lesson.phase), pupil.scores), config.secret_start
            head.open(own_start(session, phase, lesson.party, shape, is_secret=is_secret, constant=constant))
        places = pupil.places("train")
        left = batches_of(session, phase, lesson.party, places, lesson.epoch)
        extractors = self.extractors_for(lesson)
        for number, chosen in left[course.batch :]:
            session.next_step()
            rows = pupil.pair.aligned.positions[chosen]
            if phase.trains_inputs:
                progress = phase.progress(lesson.epoch, course.batch, len(left))
                if lesson.phase == "pretrain":
                    self._adapt(lesson, rows, progress)
                values = extractors.forward(session.step, rows)
                given = values.detach().double().numpy()
                if lesson.phase == "finetune":
                    given = np.concatenate([given, self.columns.marks(self.new, rows)], axis=1)
                gradient = head.teach_trained(given)
                extractors.learn(values, gradient[:, : values.shape[1]], progress)
            else:
                head.teach_fixed(number, self._fixed(lesson, pupil, chosen))
            course.batch += 1
            if course.is_due(config.checkpoint_every, len(left)):
                head.settle()
                keep()
        head.settle()
        with pupil.peer.openings.at("validation"):
            head.score(self.values(lesson.phase, extractors, pupil.rows("validation")))
        end = pupil.peer.receive(EpochVerdict)
        may_choose = phase.patience > 0 and len(pupil.places("validation")) > 0
        end.check(is_end=lesson.epoch + 1 >= phase.epochs, compares=may_choose, sender=f"'{lesson.party}'")
        about: dict[str, Any] = {"epoch": lesson.epoch + 1, "phase": lesson.phase, "with": lesson.party}
        session.record(**about, **extractors.domain_accuracy(), clipped=extractors.clipped)
        if end.is_best:
            pupil.best[lesson.phase] = copy.deepcopy(head.state())
            if phase.trains_inputs:
                extractors.keep_best()
        if end.is_last and lesson.phase in pupil.best:
            head.load_state(pupil.best[lesson.phase])
            if phase.trains_inputs and lesson.phase != "pretrain":
                extractors.settle()
        course.finish(lesson, end.is_last)
        return bool(end.is_last)

    def end_pretraining(self) -> None:
        """Take the best weights for good, and give categories that sources hardly have a vector of their own."""
        if self.is_pretrained:
            return
        self.extractors.settle()
        network = self.extractors.network
        with torch.no_grad():
            for name, likes in self._ties.items():
                table = network.table(name)
                for code, like in likes.items():
                    table[code] = table[like]
        self.is_pretrained = True
        self.extractors = Extractors(
            self.config, network, self.columns, self._seeds, domains=1, rate=self.config.learning_rate
        )

    def extractors_for(self, lesson: Lesson) -> Extractors:
        """Return the networks that a lesson uses: the shared ones, or the bank's own."""
        if lesson.phase == "pretrain":
            return self.extractors
        self.end_pretraining()
        if lesson.phase == "finetune" and self.config.tune == "nothing":
            return self.extractors
        return self.own_extractors(lesson.party, lesson.phase)

    def own_extractors(self, party: str, phase: str) -> Extractors:
        """Return networks that learn from one target only: the shared ones to start with, or new ones."""
        if (party, phase) not in self._own:
            config, purpose = self.config, f"{phase}/{party}/"
            only = None
            if phase == "vfl":
                network, rate = self._network(purpose), config.learning_rate
            else:
                network = copy.deepcopy(self.extractors.network)
                rate = config.tune_rate
                only = self.unseen() if config.tune == "unseen" else None
            self._own[party, phase] = Extractors(
                config,
                network,
                self.columns,
                self._seeds,
                domains=1,
                rate=rate,
                only=only,
                purpose=purpose,
            )
        return self._own[party, phase]

    def head(self, pupil: Pupil, phase: str) -> HolderHead:
        """Return this party's half of a bank's scoring layer."""
        if phase not in pupil.heads:
            pupil.heads[phase] = holder_head(self.config, pupil.peer, self.key, self.inputs(phase), pupil.scores)
        return pupil.heads[phase]

    def unseen(self) -> dict[str, list[int]]:
        """Return the codes of categories that no source row has, or that are tied to others, by table."""
        if self._earlier is not None:
            return {name: list(codes) for name, codes in self._earlier.document["unseen"].items()}
        rows = [self.source_rows(party) for party in self._sources]
        codes = self.columns.take(np.concatenate(rows)).codes.numpy() if rows else np.empty((0, len(self._table_of)))
        found = {}
        for name, categories in self.encoder.tables.items():
            places = [place for place, table in enumerate(self._table_of) if table == name]
            seen = set(np.unique(codes[:, places]).tolist())
            tied = self._ties.get(name, {})
            found[name] = [code for code in range(1, len(categories) + 1) if code not in seen or code in tied]
        return {name: codes for name, codes in found.items() if codes}

    def _new_categories(self) -> tuple[NewCategory, ...]:
        """Return the categories that many target rows have and no source row has, the most frequent first."""
        if self._earlier is not None:
            return tuple(NewCategory(*one) for one in self._earlier.document["new"])
        if not self._sources:
            return ()
        codes = self.columns.take(self.target_rows).codes.numpy()
        unseen = self.unseen()
        found = []
        for place, name in enumerate(self._table_of):
            group = next(number for number, shape in enumerate(self._shapes) if place in shape.codes)
            for code in unseen.get(name, ()):
                share = float((codes[:, place] == code).mean())
                if _FEWEST <= share <= 1.0 - _FEWEST:
                    found.append((share, NewCategory(place, code, group)))
        return tuple(one for _, one in sorted(found, key=lambda one: (-one[0], one[1].place, one[1].code)))

    def _with_weights(self) -> tuple[NewCategory, ...]:
        """Return the new categories that get a weight of their own, if the settings give any."""
        found = self._novelties[: self.config.novelties]
        inputs = len(self.names) * self.config.aggregate + len(found)
        if found and self.config.fine_epochs >= inputs:
            raise LeakRefused(
                f"With config.novelties a target could read from {self.config.fine_epochs} scores of each row, by a "
                f"layer of {inputs} inputs, which rows have a category. Set fine_epochs to {inputs - 1} or fewer, or "
                "novelties to 0."
            )
        return found

    def state(self, course: Course) -> ModelPart:
        """Return a checkpoint."""
        tensors, document = self.extractors.state()
        every = {f"shared/{name}": value for name, value in tensors.items()}
        own = []
        for place, ((party, phase), extractors) in enumerate(self._own.items()):
            found, about = extractors.state()
            every |= {f"own {place}/{name}": value for name, value in found.items()}
            own.append([party, phase, about])
        pupils = {
            party: {
                "heads": {phase: head.state() for phase, head in pupil.heads.items()},
                "best": pupil.best,
            }
            for party, pupil in self.pupils.items()
        }
        return ModelPart(
            every,
            {
                "course": course.state(),
                "shared": document,
                "is_pretrained": self.is_pretrained,
                "own": own,
                "pupils": pupils,
            },
        )

    def load_state(self, part: ModelPart) -> None:
        """Go on from a checkpoint."""
        document = part.document
        if document["is_pretrained"]:
            self.end_pretraining()
        self.extractors.load_state(tensors_under("shared/", part.tensors), document["shared"])
        for place, (party, phase, about) in enumerate(document["own"]):
            self.own_extractors(party, phase).load_state(tensors_under(f"own {place}/", part.tensors), about)
        for party, kept in document["pupils"].items():
            pupil = self.pupils[party]
            pupil.best = kept["best"]
            for phase, state in kept["heads"].items():
                self.head(pupil, phase).load_state(state)

    def part(self, findings: Mapping[str, Any] | None = None) -> ModelPart:
        """Return this party's part of the model."""
        tensors = {f"groups/{name}": value for name, value in self.extractors.network.state_dict().items()}
        chosen: dict[str, bool] = {}
        for (party, phase), extractors in self._own.items():
            whose = "groups of" if phase == "finetune" else "groups without source of"
            state = extractors.network.state_dict()
            tensors |= {f"{whose} {party}/{name}": value for name, value in state.items()}
            chosen[party] = chosen.get(party, False) or phase == "finetune"
        document = {
            "method": "prada",
            "role": self.session.role,
            "party": self.session.party,
            "groups": {name: list(columns) for name, columns in self.groups.items()},
            "names": list(self.names),
            "structure": structure_of(self.config),
            "code_encoder": self.encoder.to_json(),
            "types": {column.name: column.kind for column in self._table.all_columns if column.name in self._used()},
            "unseen": self.unseen(),
            "new": [[one.place, one.code, one.group] for one in self._novelties],
            "weighted": len(self.new),
            "banks": {
                party: {
                    "scores": pupil.scores,
                    "mark": pupil.mark,
                    "has_own_groups": chosen.get(party, False),
                    "heads": {phase: head.state() for phase, head in pupil.heads.items()},
                }
                for party, pupil in self.pupils.items()
            },
        }
        return ModelPart(tensors, document | dict(findings or {}))

    def _used(self) -> set[str]:
        return {column for columns in self.groups.values() for column in columns}

    def _network(self, purpose: str) -> FeatureGroups:
        return build_network(self.config, self.encoder, self._shapes, self._seeds(purpose))

    def _groups_and_encoder(self) -> tuple[dict[str, tuple[str, ...]], CodeEncoder]:
        """Choose groups and fit their columns' encoder, or take both from the model to go on from."""
        config, table = self.config, self._table
        if self._earlier is not None:
            document = self._earlier.document
            check_structure(config, document["structure"])
            groups = {name: tuple(columns) for name, columns in document["groups"].items()}
            return groups, CodeEncoder.from_json(document["code_encoder"])
        groups = choose_groups(config, table, self._seeds("groups"))
        columns = [column for names in groups.values() for column in names]
        training = [pair.aligned.positions[pair.split.train] for pair in self.pairs.values()]
        fitted = np.unique(np.concatenate(training))
        return groups, CodeEncoder.fit(table, fitted, columns, config.shared_tables)

    def _all_ties(self) -> dict[str, dict[int, int]]:
        """Return the user's ties, and beside them those of other categories that hardly any source row has."""
        ties = ties_of(self.config, self.encoder)
        if self.config.tie_unseen and self._sources:
            sources = np.concatenate([self.source_rows(party) for party in self._sources])
            every = np.unique(np.concatenate([sources, self.target_rows]))
            for name, likes in nearest_ties(self.columns, self.encoder, sources, every).items():
                ties[name] = {**likes, **ties.get(name, {})}
        return {name: settled(likes) for name, likes in ties.items()}

    def _enrol(self, peer: Channel) -> Pupil:
        """Tell a bank what there is, and learn which of its rows are labelled."""
        pair, limit = self.pairs[peer.peer], most_scores(self.config.task, _MOST_SCORES)
        if self.key is not None:
            send_key(peer, self.key)
        new = self.new if peer.peer_role == "target" else ()
        with_new = tuple(self.names[one.group] for one in new)
        peer.send(GroupNames(self.names, self.config.aggregate, with_new))
        told = peer.receive(LabelledRows, last_row=len(pair.aligned) - 1, most_scores=limit)
        pupil = Pupil(peer, pair, told.rows.astype(np.int64), told.scores)
        if len(pupil.places("train")) < 2:
            raise WrongContent(f"'{peer.peer}' has fewer than two labelled training rows.")
        return pupil

    def _fixed(self, lesson: Lesson, pupil: Pupil, places: Places) -> Numbers:
        """Return numbers that do not change, computed once for all of a bank's rows."""
        key = (lesson.party, lesson.phase)
        if key not in self._values:
            self._values[key] = self.values(lesson.phase, self.extractors, pupil.pair.aligned.positions)
        return self._values[key][places]

    def _adapt(self, lesson: Lesson, rows: Places, progress: float) -> None:
        """Take the adversarial step that goes before a batch."""
        config, session = self.config, self.session
        if not config.adaptation:
            return
        target = self.target_rows
        # Drawn anew for every step, so that a resumed run draws the same.
        draw = np.random.default_rng(self._seeds("adversarial rows", session.step))
        chosen = draw.choice(target, size=len(rows), replace=len(target) < len(rows))
        if config.domain_sampling == "density":
            every = self.source_rows(lesson.party)
            if lesson.party not in self._weights:
                seen = self.columns.tied(self._ties, self._table_of)
                sizes = [len(self.encoder.tables[name]) + 1 for name in self._table_of]
                seed = self._seeds("density")
                self._weights[lesson.party] = density_weights(seen, sizes, every, target, seed)
            rows = draw.choice(every, size=len(rows), p=self._weights[lesson.party])
        domain = 1 + self._sources.index(lesson.party)
        self.extractors.adapt(session.step, progress, rows, domain, chosen)
