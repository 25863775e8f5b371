"""Classify people in a graph of which each holder knows a part: all roles side by side.

What is known of a person is what is known of the people it is linked to, M_rep = M_adj M_feat. Columns of a person whom
only one holder knows are completed by its generator; links between people of whom neither holder knows both count as
absent. Each holder adds up along its own links what it has or generates, and both make the rest together: sums of the
other's columns along links from people whom only one of them knows to shared ones (`link_sums`). M_rep then is the sum
of two matrices, one at each holder.

Both multiply theirs with the same weights, behind masks, and the collaborator gets the product M_rep W and nothing else
about M_rep. W is drawn at random, unknown to the collaborator and never trained: the gradient of trained weights is
M_rep' delta, and whoever gets it and delta solves for M_rep within a batch or a few, and then for the links. What is
trained is above W, at the collaborator, with scores and errors from the label holder. The other holder sees none of it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colonnade.crypto.ring import FRACTION_BITS, Words
from colonnade.data import Split, batches, linked_rows
from colonnade.errors import ConfigError, TableError, WrongContent
from colonnade.exchanges.answers import described, told_labels
from colonnade.exchanges.epochs import check_finite
from colonnade.exchanges.holdings import first_seeds, scores_in_terms_of
from colonnade.exchanges.labels import OwnLabels, own_labels
from colonnade.exchanges.masked_sums import Collector, Contributor
from colonnade.exchanges.shared_sums import times_weights
from colonnade.methods.mpdl.choice import budget_finding, generator_finding
from colonnade.methods.mpdl.config import COLLABORATOR, MPDL
from colonnade.methods.mpdl.dual import DualLearning, exchange_tables
from colonnade.methods.mpdl.link_sums import SUM_BITS, CrossLinks, exchange_sums, to_words
from colonnade.methods.mpdl.messages import (
    AloneScores,
    Classes,
    Columns,
    FirstWeights,
    GraphSchedule,
    LikelyLinks,
    LogitGradient,
    Logits,
    RowsAlone,
)
from colonnade.methods.mpdl.networks import dtype_of, hidden_width
from colonnade.methods.mpdl.rows import OwnTable, own_table
from colonnade.methods.mpdl.train import told_columns
from colonnade.nn import Learner, backpropagate, mlp, row_losses
from colonnade.nn.regression import scores_of
from colonnade.session import Channel, Finding, Holding, ModelPart, Result, Session

__all__ = [
    "collaborator",
    "feature_holder",
    "first_weights",
    "label_holder",
    "likely_pairs",
    "neighbour_sums",
    "standardised_nodes",
]

Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]

# Words in one message of a masked sum.
_MOST_WORDS = 2**20
_LEAST_SPREAD = 1e-3
_SHOWN = 20
# Rows whose likeness to all others is in memory at once.
_AT_A_TIME = 256


def feature_holder(session: Session, holding: Holding, config: MPDL) -> Result:
    """Play the holder that has columns and links."""
    peer = _other_holder(session)
    people = _people(session, holding, config)
    table = people.table
    peer.send(Columns(table.space.own_width, table.space.common_digest))
    peer.send(RowsAlone(len(table.own)))
    nodes = peer.receive(GraphSchedule)
    if (nodes.learned, nodes.test, nodes.alone) != (len(people.learned), len(people.test), len(table.own)):
        raise WrongContent(f"'{peer.peer}' announces other nodes than were found together.")
    holder = _Holder(session, holding, config, people, nodes)
    weights = peer.receive(FirstWeights, columns=holder.columns, hidden=nodes.hidden).values
    holder.contribute(weights.astype(np.float64))
    about = told_labels(peer.receive(Classes).labels, peer, nodes.outputs)
    logits = torch.empty(0, nodes.outputs, dtype=torch.float64)
    if nodes.alone:
        helper = session.channel(COLLABORATOR)
        logits = helper.receive(AloneScores, rows=nodes.alone, outputs=nodes.outputs).values.double()
    values = scores_of(about.task, logits.numpy()) if len(logits) else np.empty(0)
    scores = scores_in_terms_of(about, values, np.arange(nodes.alone))
    known = (f"{session.party} only",) * nodes.alone
    # Whose scores these are: the part is all that a run folder keeps of them.
    part = holder.part({"own/logits": logits, "own/rows": torch.from_numpy(table.own)} | holder.suggestions())
    return Result(part, dataclasses.replace(scores, positions=table.own, known_to=known), holder.findings())


def label_holder(session: Session, holding: Holding, config: MPDL) -> Result:
    """Play the holder that has columns, links and labels."""
    peer = _other_holder(session)
    people = _people(session, holding, config)
    learned = np.concatenate([people.learned, people.table.own])
    labels = own_labels(session, holding, config.task, config.precision, learned, people.test)
    nodes = _announce(session, config, people, labels)
    holder = _Holder(session, holding, config, people, nodes)
    seed = first_seeds(session, config.secret_start)("graph/weights")
    weights = first_weights(holder.columns, nodes.hidden, seed)
    peer.send(FirstWeights(weights))
    holder.contribute(weights)
    peer.send(Classes(described(labels.encoder, with_scale=True)))
    logits = _judge(session, config, labels, labels.targets[torch.from_numpy(learned)], nodes)
    values = scores_of(labels.task, logits) if len(logits) else np.empty(0)
    scores = scores_in_terms_of(labels.encoder, values, holding.split.test, labels.values[people.test])
    return Result(holder.part(holder.suggestions()), scores, holder.findings())


def collaborator(session: Session, holding: Holding, config: MPDL) -> Result:
    """Play the party that gets M_rep W, and trains what is above it."""
    peer = session.channel("label_holder")
    nodes = peer.receive(GraphSchedule)
    collector = Collector(session)
    products = np.concatenate([collector.receive((part.stop - part.start, nodes.hidden)) for part in _chunks(nodes)])
    inputs = torch.from_numpy(standardised_nodes(products, nodes.trained, config)).to(dtype_of(config))
    seed = first_seeds(session, config.secret_start)("graph/upper")
    network = mlp((nodes.hidden, *(config.dense or (nodes.hidden,)), nodes.outputs), seed=seed, dtype=dtype_of(config))
    learner = Learner({"network": network}, config.optimizer, config.learning_rate, config.optimizer_options)
    learner.train(True)
    for batch in _steps(session, config, nodes):
        learner.zero_gradients()
        logits = network(inputs[batch])
        peer.send(Logits(logits))
        gradient = peer.receive(LogitGradient, rows=len(batch), outputs=nodes.outputs).values
        check_finite(gradient.sum().item(), session)
        backpropagate(logits, gradient.to(logits.dtype))
        if config.clip_gradient:
            learner.clip_gradients(config.clip_gradient)
        learner.step()
    with torch.no_grad():
        scored = network(inputs[nodes.trained :])
    peer.send(Logits(scored[: nodes.test]))
    if nodes.alone:
        session.channel("feature_holder").send(AloneScores(scored[nodes.test :]))
    if config.suggested_links:
        first, second = products[nodes.trained + nodes.test :], products[nodes.learned : nodes.trained]
        pairs = likely_pairs(first, second, config.suggested_links)
        for holder in session.all_channels:
            holder.send(LikelyLinks(pairs))
    return Result(ModelPart(dict(learner.weights()), _document(session, config)))


@dataclass(frozen=True)
class _People:
    """A holder's people: places in its table of shared ones whose label is learned from, and of those held out."""

    table: OwnTable
    learned: Places
    test: Places


class _Holder:
    """A party with columns and links: its part of M_rep."""

    def __init__(self, session: Session, holding: Holding, config: MPDL, people: _People, nodes: GraphSchedule) -> None:
        self._session, self._config, self._people, self._nodes = session, config, people, nodes
        self._table = table = people.table
        self._suggested: list[tuple[int, int]] = []
        self._is_label_holder = session.role == "label_holder"
        self._contributor = Contributor.agree(session)
        self._pairs = linked_rows(holding.table, holding.table.links)
        self._shared, self._rest = holding.aligned.positions, holding.aligned.rest
        self._others = exchange_tables(session, config, table)
        self._dual = DualLearning(session, config, table, self._others)
        self._dual.learn(np.arange(len(table.shared)), "graph", 0)
        own, common = table.space.own_width, table.space.width - table.space.own_width
        widths = (self._others.width, own) if self._is_label_holder else (own, self._others.width)
        self.columns = sum(widths) + common
        starts = (0, widths[0], sum(widths), self.columns)
        first, second, self._common = (slice(*ends) for ends in pairwise(starts))
        self._own, self._generated = (second, first) if self._is_label_holder else (first, second)

    def contribute(self, weights: Numbers) -> None:
        """Send this holder's part of the product of M_rep with weights that both have."""
        words = times_weights(self._part_of_nodes(), weights, SUM_BITS, magnitude_bits=2)
        for part in _chunks(self._nodes):
            self._contributor.send_words(words[part])

    def findings(self) -> tuple[Finding, ...]:
        """Say what was released, how well columns can be generated, and what the links were worth."""
        found = [self._graph_finding(), budget_finding(self._table)]
        if self._suggested:
            found.insert(1, self._suggestion_finding())
        if self._others.values is not None:
            generated = self._dual.generate(self._table.units[torch.from_numpy(self._table.shared)])
            names = tuple(name for names in self._others.names for name in names)
            is_noised = self._config.mechanism != "none"
            found.append(generator_finding(names, generated, self._others.values, is_noised=is_noised))
        return tuple(found)

    def part(self, further: dict[str, torch.Tensor]) -> ModelPart:
        """Return what this party keeps."""
        tensors = {f"generator/{key}": value for key, value in self._dual.generator.tensors().items()}
        return ModelPart(tensors | further, _document(self._session, self._config))

    def suggestions(self) -> dict[str, torch.Tensor]:
        """Receive which links are likely: rows of this holder's table, and the other's people by number."""
        if not self._config.suggested_links:
            return {}
        helper, limits = self._session.channel(COLLABORATOR), (self._nodes.alone, self._nodes.own)
        count = min(self._config.suggested_links, math.prod(limits))
        pairs = helper.receive(LikelyLinks, suggested=count).pairs.astype(np.int64)
        if not (pairs < limits).all():
            raise WrongContent(f"'{helper.peer}' suggests links between people that nobody has.")
        own, other = (1, 0) if self._is_label_holder else (0, 1)
        rows = torch.from_numpy(self._table.own[pairs[:, own]])
        self._suggested = list(zip(rows.tolist(), pairs[:, other].tolist(), strict=True))
        return {"suggested/rows": rows, "suggested/partners": torch.from_numpy(pairs[:, other].copy())}

    def _part_of_nodes(self) -> Words:
        """Return this holder's part of M_rep, a row for every node in the order of all messages."""
        mine, theirs = self._cross()
        local = to_words(self._local())
        own_sums = np.zeros((len(self._table.own), self.columns), np.uint64)
        own_sums[:, self._generated] = mine
        own_rows = local[self._table.own] + own_sums
        their_rows = np.zeros((len(theirs), self.columns), np.uint64)
        their_rows[:, self._own] = theirs
        rest = (own_rows, their_rows) if self._is_label_holder else (their_rows, own_rows)
        return np.concatenate([local[self._people.learned], rest[0], local[self._people.test], rest[1]])

    def _local(self) -> Numbers:
        """Add up what this holder has or generates along its own links, a row for each of its people.

        Columns of shared people are added along their owner's links, and those that both have along the label holder's.
        """
        units = _filled(self._table)
        generated = self._dual.generate(self._table.units).double().numpy()
        count, width = len(units), self._table.space.own_width
        is_rest = np.zeros(count, np.bool_)
        is_rest[self._rest] = True
        # From here on, a pair is a person and one of its neighbours.
        both = np.concatenate([self._pairs, self._pairs[:, ::-1]])
        to_rest = both[is_rest[both[:, 1]]]
        found = np.zeros((count, self.columns))
        found[:, self._own] = neighbour_sums(both, units[:, :width])
        found[:, self._generated] = neighbour_sums(to_rest, generated)
        counted = both if self._is_label_holder else both[is_rest[both].any(axis=1)]
        found[:, self._common] = neighbour_sums(counted, units[:, width:])
        return found

    def _cross(self) -> tuple[Words, Words]:
        nodes, width = self._nodes, self._table.space.own_width
        cross = CrossLinks(
            _filled(self._table)[self._shared][:, :width],
            self.shared_neighbours(),
            nodes.alone if self._is_label_holder else nodes.own,
            self._others.width,
        )
        return exchange_sums(self._session, _other_holder(self._session), self._config, cross)

    def shared_neighbours(self) -> list[Places]:
        """Return, for each person of its own, the shared neighbours by their place in the agreed order."""
        place_of = np.full(len(self._table.units), -1)
        place_of[self._shared] = np.arange(len(self._shared))
        both = np.concatenate([self._pairs, self._pairs[:, ::-1]])
        places = place_of[both[:, 1]]
        kept, places = both[places >= 0, 0], places[places >= 0]
        order = np.argsort(kept, kind="stable")
        kept, places = kept[order], places[order]
        starts, stops = (np.searchsorted(kept, self._table.own, side=side) for side in ("left", "right"))
        return [places[start:stop] for start, stop in zip(starts, stops, strict=True)]

    def _graph_finding(self) -> Finding:
        crossing = sum(map(len, self.shared_neighbours()))
        rows = (
            ("people", str(len(self._table.units))),
            ("links", str(len(self._pairs))),
            ("of these between people of its own and shared ones, for the sums made together", str(crossing)),
        )
        return Finding(
            name="graph",
            title="What this holder's links were used for",
            text=_SPOKEN[self._config.links].format(
                epsilon=self._config.link_epsilon, person=self._config.link_epsilon * len(self._shared)
            ),
            columns=("of this holder", "count"),
            rows=rows,
            values={"people": len(self._table.units), "links": len(self._pairs), "crossing": crossing}
            | {"protocol": self._config.links},
        )

    def _suggestion_finding(self) -> Finding:
        shown = tuple((str(row), str(partner)) for row, partner in self._suggested[:_SHOWN])
        return Finding(
            name="likely links",
            title="People who are likely to be linked",
            text=f"The {len(self._suggested)} pairs whose neighbours are most alike, the likeliest first: one person "
            "of this holder and one of the other's, by numbers that both holders have. Whether they are linked nobody "
            "here knows.",
            columns=("row of this holder's table", "person of the other holder"),
            rows=shown,
            values={"pairs": [list(pair) for pair in self._suggested]},
        )


_SPOKEN = {
    "he_share": "The other holder's columns were added up along these links under encryption: neither holder saw the "
    "sums, and the other holder nothing of the links.",
    "edge_ldp": "Links to shared people were told under randomised response: epsilon {epsilon:g} for one link, at most "
    "{person:g} for all links of one person.",
    "confusion": "The paper's flow was used: the other holder can find out the links to shared people by a linear "
    "programme, and this holder saw the space that the other's columns span.",
}


def neighbour_sums(pairs: Places, features: Numbers) -> Numbers:
    """Return for each row the sum of its neighbours' features; a pair is a row and one neighbour."""
    sums = torch.zeros(features.shape, dtype=torch.float64)
    sums.index_add_(0, torch.from_numpy(pairs[:, 0].copy()), torch.from_numpy(features[pairs[:, 1]]))
    return sums.numpy()


def first_weights(columns: int, hidden: int, seed: int) -> Numbers:
    """Return weights whose columns are at right angles, as far as there is room, as multiples of what a share keeps."""
    draw = np.random.default_rng(seed)
    found = np.empty((columns, 0))
    while found.shape[1] < hidden:
        # QR gives at most as many directions as there are columns.
        turned, _ = np.linalg.qr(draw.normal(size=(columns, columns)))
        found = np.concatenate([found, turned[:, : hidden - found.shape[1]]], axis=1)
    scale = 2.0 ** (FRACTION_BITS - SUM_BITS)
    rounded: Numbers = np.rint(found * scale) / scale
    return rounded


def standardised_nodes(products: Numbers, trained: int, config: MPDL) -> Numbers:
    """Return the products as the collaborator's network takes them, scaled by the nodes that are learned from."""
    if config.graph_rows == "unit_length":
        lengths = np.linalg.norm(products, axis=1, keepdims=True)
        products = products / np.where(lengths > 0.0, lengths, 1.0)
    mean, spread = products[:trained].mean(axis=0), products[:trained].std(axis=0)
    standardised: Numbers = (products - mean) / np.maximum(spread, max(_LEAST_SPREAD * float(spread.max()), 1e-12))
    return standardised


def likely_pairs(first: Numbers, second: Numbers, count: int) -> Places:
    """Return the pairs of rows with the largest cosine, the largest first; of equal ones the first in order."""
    ones, others = (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12) for rows in (first, second))
    best, values = np.empty((0, 2), np.int64), np.empty(0)
    for start in range(0, len(ones) if len(others) else 0, _AT_A_TIME):
        cosines = (ones[start : start + _AT_A_TIME] @ others.T).ravel()
        places = np.argsort(-cosines, kind="stable")[:count]
        pairs = np.stack([places // len(others) + start, places % len(others)], axis=1)
        best, values = np.concatenate([best, pairs]), np.concatenate([values, cosines[places]])
        kept = np.argsort(-values, kind="stable")[:count]
        best, values = best[kept], values[kept]
    return best


def _judge(session: Session, config: MPDL, labels: OwnLabels, targets: torch.Tensor, nodes: GraphSchedule) -> Numbers:
    """Say how wrong the scores of every batch are, and return those of held-out nodes."""
    helper = session.channel(COLLABORATOR)
    per_epoch, total = math.ceil(nodes.trained / config.batch_size), 0.0
    for place, batch in enumerate(_steps(session, config, nodes), 1):
        logits = helper.receive(Logits, rows=len(batch), outputs=nodes.outputs).values
        scores = logits.to(dtype_of(config)).requires_grad_()
        loss = row_losses(labels.task, scores, targets[batch]).mean()
        check_finite(loss.item(), session)
        loss.backward()  # type: ignore[no-untyped-call]
        helper.send(LogitGradient(torch.zeros_like(scores) if scores.grad is None else scores.grad))
        total += loss.item() * len(batch)
        if place % per_epoch == 0:
            session.record(phase="graph", epoch=place // per_epoch, training_loss=total / nodes.trained)
            total = 0.0
    return helper.receive(Logits, rows=nodes.test, outputs=nodes.outputs).values.double().numpy()


def _steps(session: Session, config: MPDL, nodes: GraphSchedule) -> Iterator[torch.Tensor]:
    """Return all batches of all epochs, in the order that all parties derive from the seed."""
    session.expect_steps(math.ceil(nodes.trained / config.batch_size) * config.epochs)
    for epoch in session.passes("epochs", config.epochs):
        for batch in batches(nodes.trained, config.batch_size, session.seed("graph/batches", epoch)):
            session.next_step()
            yield torch.from_numpy(batch)


def _announce(session: Session, config: MPDL, people: _People, labels: OwnLabels) -> GraphSchedule:
    """Gather how much the other holder brings, and tell all others how much there is to do."""
    peer, table = _other_holder(session), people.table
    told_own = told_columns(session, peer, table)
    alone = peer.receive(RowsAlone).count
    hidden = hidden_width(config, table.space.width + told_own, labels.outputs)
    nodes = GraphSchedule(len(people.learned), len(table.own), len(people.test), alone, hidden, labels.outputs)
    for channel in session.all_channels:
        channel.send(nodes)
    return nodes


def _people(session: Session, holding: Holding, config: MPDL) -> _People:
    """Encode a holder's people. Generators learn from all shared ones: only labels are held out in a graph."""
    if holding.table.links is None:
        raise TableError(
            f"'{session.party}' has no list of links. A graph needs one at each holder: give PartyTable(links=…) a "
            "frame with the columns 'from' and 'to', or add links = \"FILE\" to [table] in party.toml."
        )
    split, nobody = holding.split, np.empty(0, np.int64)
    everyone = dataclasses.replace(holding, split=Split(np.arange(len(holding.aligned)), nobody, nobody))
    positions = holding.aligned.positions
    return _People(own_table(session, everyone, config), positions[split.train], positions[split.test])


def _other_holder(session: Session) -> Channel:
    found = [channel for channel in session.all_channels if channel.peer_role != COLLABORATOR]
    if len(found) != 1:
        raise ConfigError(f"The stage graph is between two holders of columns. The run names {len(found) + 1}.")
    return found[0]


def _filled(table: OwnTable) -> Numbers:
    """Return all rows in unit space, with the mean for what is missing."""
    units = torch.where(torch.isnan(table.units), table.scale.mean, table.units)
    return units.double().numpy()


def _chunks(nodes: GraphSchedule) -> list[slice]:
    size, rows = max(1, _MOST_WORDS // nodes.hidden), nodes.trained + nodes.test + nodes.alone
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def _document(session: Session, config: MPDL) -> dict[str, Any]:
    return {
        "method": "mpdl",
        "stage": "graph",
        "role": session.role,
        "party": session.party,
        "config": dataclasses.asdict(config),
    }
