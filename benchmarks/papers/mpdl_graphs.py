"""Multi-party dual learning on graphs: links between people whom no party knows both, and what kind a person is.

    python -m benchmarks.papers.mpdl_graphs --json

Hamilton46, as in the paper, and an ego network of Facebook in place of its Google+. Variants: raw (everything in one
place), joint (all columns, but no link between one party's people and the other's), MPDL, the same with noise on what
generators learn from, columns filled in by their mean, and codes aligned as in federated transfer learning.

The sweep is in one place and without encryption. It is the product's arithmetic: `check_product` plays the product's
stage with shares under encryption and compares every score.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from benchmarks.form import Findings, main, say
from benchmarks.papers.playing import play_parties
from colonnade import MPDL, PartyTable
from colonnade.data import AlignedRows, Split, batches
from colonnade.datasets import SocialGraph, ego_facebook, hamilton46
from colonnade.methods.mpdl.generators import Ridge
from colonnade.methods.mpdl.graph import first_weights, standardised_nodes
from colonnade.methods.mpdl.link_sums import SUM_BITS, noisy_answers, truthful_sums
from colonnade.methods.mpdl.links import link_overlap, recover_links
from colonnade.methods.mpdl.networks import hidden_width
from colonnade.methods.mpdl.rows import Scale
from colonnade.metrics import area_under_roc
from colonnade.nn import mlp, row_losses
from colonnade.nn.regression import scores_of
from colonnade.privacy import SecretNoise
from colonnade.session import Holding, RunPlan, derive_seed
from colonnade.settings import config_to_json

Rows = np.ndarray[Any, Any]

GAMMAS = (0.05, 0.2, 0.4, 0.8)
SHARES = (0.05, 0.2, 0.8)
SEEDS = (0, 1, 2)
VARIANTS = ("raw", "joint", "MPDL", "MPDL, epsilon 1", "mean-fill", "FTL-like")
EPSILONS = (1.0, 2.0, 4.0, 8.0)
GRAPHS: Mapping[str, Callable[[], SocialGraph]] = {"Hamilton46": hamilton46, "ego-Facebook": ego_facebook}
MADE_UP = "made up"
# Each party has some of the columns that go with links, and about half of all.
_HAMILTON_A = ("gender", "second_major", "year")
_FEWEST = 20
_ROLES = {"label_holder": ("b",), "feature_holder": ("a",), "collaborator": ("c",)}


@dataclass(frozen=True)
class World:
    """A graph and who knows what of it."""

    name: str
    features: Rows
    adjacency: Rows
    labels: Rows
    classes: int
    a_columns: Rows
    b_columns: Rows
    shared: Rows
    b_only: Rows
    a_only: Rows
    seed: int

    @property
    def known(self) -> Rows:
        """Return the adjacency without links between one party's own people and the other's."""
        found = self.adjacency.copy()
        found[np.ix_(self.a_only, self.b_only)] = 0.0
        found[np.ix_(self.b_only, self.a_only)] = 0.0
        return found

    def labelled(self, share: float) -> tuple[Rows, Rows]:
        """Return which shared people and which of b's own have a label to learn from: so many of b's people."""
        draw = np.random.default_rng(500 + self.seed)
        people = draw.permutation(np.concatenate([self.shared, self.b_only]))
        chosen = people[: max(2, round(share * len(people)))]
        return np.flatnonzero(np.isin(self.shared, chosen)), self.b_only[np.isin(self.b_only, chosen)]

    @property
    def task(self) -> str:
        return "binary" if self.classes == 2 else "multiclass"

    @property
    def outputs(self) -> int:
        return 1 if self.classes == 2 else self.classes


def made_up() -> SocialGraph:
    """Return a small graph of people of two kinds, who are linked rather to their own."""
    random = np.random.default_rng(4)
    count, width = 120, 14
    labels = random.integers(0, 2, count)
    features = (random.random((count, width)) < 0.2 + 0.5 * labels[:, None] * random.random(width)).astype(np.float32)
    chance = np.where(labels[:, None] == labels, 0.25, 0.05)
    edges = np.argwhere(np.triu(random.random((count, count)) < chance, 1))
    people, columns = (tuple(f"{kind}{place}" for place in range(many)) for kind, many in (("p", count), ("c", width)))
    return SocialGraph(people, features, columns, {}, edges, labels, ("no", "yes"))


@cache
def graph_of(name: str) -> SocialGraph:
    """Return a graph; kinds of fewer than 20 people are one kind."""
    graph = made_up() if name == MADE_UP else GRAPHS[name]()
    counts = np.bincount(graph.labels)
    kept = np.flatnonzero(counts >= _FEWEST)
    places = np.full(len(counts), len(kept))
    places[kept] = np.arange(len(kept))
    return replace(graph, labels=places[graph.labels])


def make_world(name: str, gamma: float, seed: int) -> World:
    """Divide people: shared, b's own, a's own, as in the paper."""
    graph = graph_of(name)
    count = len(graph.ids)
    adjacency = np.zeros((count, count))
    adjacency[graph.edges[:, 0], graph.edges[:, 1]] = adjacency[graph.edges[:, 1], graph.edges[:, 0]] = 1.0
    order = np.random.default_rng(1000 + seed).permutation(count)
    shared, b_only, a_only = np.split(order, [round(gamma * count), round((0.5 + gamma / 2) * count)])
    kinds = np.array([column.split("=")[0] for column in graph.columns])
    is_a = np.isin(kinds, _HAMILTON_A) if graph.levels else np.arange(len(kinds)) < len(kinds) // 2
    return World(
        name,
        # As in the product, a's columns come first.
        graph.features[:, np.argsort(~is_a, kind="stable")].astype(np.float64),
        adjacency,
        graph.labels,
        int(graph.labels.max()) + 1,
        np.arange(is_a.sum()),
        np.arange(is_a.sum(), len(is_a)),
        shared,
        b_only,
        a_only,
        seed,
    )


# What each variant knows of people


def completed(
    world: World, *, epsilon: float | None = None, is_mean: bool = False, labelled: Rows | None = None
) -> Rows:
    """Return all columns of all people, those that a party does not have being generated as in the product.

    The product's label holder scales columns by shared people and by its own with a label, where these are given.
    """
    found = world.features.copy()
    for party, own, missing, rest in (
        ("a", world.a_columns, world.b_columns, world.a_only),
        ("b", world.b_columns, world.a_columns, world.b_only),
    ):
        targets = torch.from_numpy(world.features[np.ix_(world.shared, missing)])
        if epsilon is not None:
            noise = np.random.default_rng(derive_seed(world.seed, party)).laplace(0.0, 1.0 / epsilon, targets.shape)
            targets = targets + torch.from_numpy(noise)
        people = np.concatenate([world.shared, rest])
        known = torch.from_numpy(world.features[np.ix_(people, own)])
        is_left_out = np.isin(people, world.b_only) & ~np.isin(people, world.b_only if labelled is None else labelled)
        inputs = Scale.of(known[~is_left_out]).standardised(known)
        generator = Ridge(len(own), len(missing))
        penalties = MPDL().penalties
        generator.fit(inputs[: len(world.shared)], targets, penalties, derive_seed(world.seed, f"ridge/{party}"))
        columns = targets.mean(dim=0).expand(len(rest), -1) if is_mean else generator(inputs[len(world.shared) :])
        found[np.ix_(rest, missing)] = columns.numpy()
    return found


def aligned_codes(world: World, *, width: int = 64, epochs: int = 60) -> Rows:
    """Return a code for everyone, from an auto-encoder for each party whose codes of shared people are alike."""
    inputs = {}
    for party, columns in (("a", world.a_columns), ("b", world.b_columns)):
        known = torch.from_numpy(world.features[:, columns])
        inputs[party] = Scale.of(known).standardised(known).float()
    own = {"a": np.concatenate([world.shared, world.a_only]), "b": np.concatenate([world.shared, world.b_only])}
    parts = nn.ModuleDict()
    for place, (party, columns) in enumerate(inputs.items()):
        parts[f"{party} in"] = mlp((columns.shape[1], 128, width), seed=world.seed * 10 + place)
        parts[f"{party} out"] = mlp((width, 128, columns.shape[1]), seed=world.seed * 10 + 3 + place)
    optimizer = torch.optim.Adam(parts.parameters(), lr=1e-3)
    draw = np.random.default_rng(world.seed)
    for _ in range(epochs * max(len(one) for one in own.values()) // 128):
        common = draw.choice(world.shared, min(128, len(world.shared)), replace=False)
        loss = nn.functional.mse_loss(parts["a in"](inputs["a"][common]), parts["b in"](inputs["b"][common]))
        for party in ("a", "b"):
            rows = inputs[party][draw.choice(own[party], 128)]
            loss = loss + nn.functional.mse_loss(parts[f"{party} out"](parts[f"{party} in"](rows)), rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        codes = {party: parts[f"{party} in"](inputs[party]).double().numpy() for party in inputs}
    found: Rows = (codes["a"] + codes["b"]) / 2.0
    found[world.a_only], found[world.b_only] = codes["a"][world.a_only], codes["b"][world.b_only]
    return found


def features_of(world: World, variant: str) -> Rows:
    """Return what a variant knows of everyone."""
    if variant in ("raw", "joint"):
        return world.features
    if variant == "FTL-like":
        return aligned_codes(world)
    return completed(world, epsilon=1.0 if "epsilon" in variant else None, is_mean=variant == "mean-fill")


# What is asked


def link_auc(world: World, vectors: Rows) -> float:
    """Return how often a linked pair of one's own and the other's own people is more alike than one that is not."""
    links = world.adjacency[np.ix_(world.a_only, world.b_only)] > 0.0
    draw = np.random.default_rng(world.seed)
    pairs, others = np.argwhere(links), np.argwhere(~links)
    others = others[draw.permutation(len(others))[: len(pairs)]]
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    first, second = unit[world.a_only], unit[world.b_only]
    asked = np.concatenate([pairs, others])
    scores = np.concatenate(
        [(first[part[:, 0]] * second[part[:, 1]]).sum(axis=1) for part in np.array_split(asked, 20)]
    )
    return float(area_under_roc(np.repeat([True, False], [len(pairs), len(others)]), scores))


@dataclass(frozen=True)
class Scored:
    """Scores of held-out people: shared ones, b's own without a label, and a's own."""

    people: Rows
    logits: Rows

    def accuracy(self, world: World, people: Rows | None = None) -> float:
        """Return how many are right, of all or of some."""
        chosen = np.isin(self.people, self.people if people is None else people)
        guessed = self.logits[:, 0] >= 0 if world.classes == 2 else self.logits.argmax(axis=1)
        return float((guessed == world.labels[self.people])[chosen].mean())


def classified(world: World, sums: Rows, share: float, config: MPDL, *, is_trained: bool = False) -> Scored:
    """Train as the product does, with all its seeds, and score everyone without a label.

    `is_trained` also trains the first layer, which the product cannot do without giving sums away.
    """
    columns, seed = sums.shape[1], world.seed
    hidden = hidden_width(config, columns, world.outputs)
    places, own = world.labelled(share)
    learned = np.concatenate([world.shared[places], own])
    test = np.setdiff1d(np.arange(len(sums)), learned)
    people = np.concatenate([learned, test])
    products = sums if is_trained else sums @ first_weights(columns, hidden, derive_seed(seed, "graph/weights/b"))
    dtype = torch.float64 if config.precision == "float64" else torch.float32
    inputs = torch.from_numpy(standardised_nodes(products[people], len(learned), config)).to(dtype)
    widths = (inputs.shape[1], hidden, world.outputs)
    network = mlp(widths, seed=derive_seed(seed, "graph/upper/c"), dtype=dtype)
    optimizer = torch.optim.SGD(network.parameters(), lr=config.learning_rate)
    targets = torch.from_numpy(world.labels[people])
    targets = targets.to(dtype) if world.classes == 2 else targets
    for epoch in range(config.epochs):
        for batch in batches(len(learned), config.batch_size, derive_seed(seed, "graph/batches", epoch)):
            rows = torch.from_numpy(batch)
            loss = row_losses(world.task, network(inputs[rows]), targets[rows]).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), config.clip_gradient)
            optimizer.step()
    with torch.no_grad():
        return Scored(test, network(inputs[len(learned) :]).double().numpy())


def with_noisy_links(world: World, features: Rows, epsilon: float) -> Rows:
    """Return sums of which those made together come from links under randomised response."""
    sums: Rows = world.known @ features
    for place, (rest, columns) in enumerate(((world.a_only, world.b_columns), (world.b_only, world.a_columns))):
        links = world.adjacency[np.ix_(rest, world.shared)]
        shared = features[np.ix_(world.shared, columns)]
        noise = SecretNoise(bytes([world.seed, place] * 16))
        answers = noisy_answers(noise, [np.flatnonzero(row) for row in links], len(world.shared), epsilon)
        sums[np.ix_(rest, columns)] += truthful_sums(answers, shared, epsilon) - links @ shared
    return sums


# The product itself


def _table(world: World, party: str, labelled: Rows) -> PartyTable:
    rest, columns = (world.a_only, world.a_columns) if party == "a" else (world.b_only, world.b_columns)
    people = np.concatenate([world.shared, rest])
    frame = pd.DataFrame(world.features[np.ix_(people, columns)], columns=[f"c{place:03d}" for place in columns])
    frame.insert(0, "id", people)
    if party == "b":
        is_known = np.isin(people, labelled) | np.isin(people, world.shared)
        frame["kind"] = pd.array(np.where(is_known, world.labels[people], -1), dtype="Int64")
        frame.loc[~is_known, "kind"] = pd.NA
    pairs = np.argwhere(np.triu(world.adjacency, 1) > 0.0)
    pairs = pairs[np.isin(pairs, people).all(axis=1)]
    links = pd.DataFrame({"from": pairs[:, 0], "to": pairs[:, 1]})
    return PartyTable(frame, id="id", label="kind" if party == "b" else None, links=links, unlabelled=True, name=party)


def check_product(
    name: str, gamma: float = 0.2, share: float = 0.6, seed: int = 0, **settings: Any
) -> dict[str, float]:
    """Play the product's stage, with shares under test keys, and compare its scores with the plain ones."""
    world = make_world(name, gamma, seed)
    config = MPDL(
        mechanism="none",
        bounds={"*": (0.0, 1.0)},
        secret_start=False,
        precision="float64",
        task="binary" if world.classes == 2 else "multiclass",
        **{"key_size": "insecure_test", **settings},
    )
    places, own = world.labelled(share)
    held_out = np.setdiff1d(np.arange(len(world.shared)), places)
    nothing = np.empty(0, np.int64)
    tables = {party: _table(world, party, own) for party in ("a", "b")}

    def holding_of(party: str) -> Holding:
        if party == "c":
            return Holding(PartyTable.nothing("c"), AlignedRows(nothing, nothing, "no rows"), Split(*[nothing] * 3))
        count = tables[party].rows
        aligned = AlignedRows(np.arange(len(world.shared)), np.arange(len(world.shared), count), "given")
        return Holding(tables[party], aligned, Split(places, nothing, held_out))

    plan = RunPlan(name="graph", method="mpdl", roles=_ROLES, seed=seed, config=config_to_json(config), stage="graph")
    started = time.monotonic()
    results = play_parties(plan, config, holding_of)
    seconds = time.monotonic() - started
    # As in shares: what training makes of such a step is no difference between the two.
    sums = np.rint(world.known @ completed(world, labelled=own) * 2.0**SUM_BITS) * 2.0**-SUM_BITS
    plain = classified(world, sums, share, config)
    expected = dict(zip(plain.people.tolist(), plain.logits, strict=True))
    differences: list[Rows] = []
    right, count = 0, 0
    for party, people in (("b", world.shared[held_out]), ("a", world.a_only)):
        scores = results[party].scores
        if scores is None:
            raise RuntimeError(f"'{party}' got no scores")
        wanted = scores_of(world.task, np.stack([expected[one] for one in people.tolist()]))
        differences.append(np.abs(np.asarray(scores.values) - wanted).ravel())
        guessed = scores.values >= 0.5 if world.classes == 2 else scores.values.argmax(axis=1)
        right, count = right + int((guessed == world.labels[people]).sum()), count + len(people)
    asked = np.concatenate([world.shared[held_out], world.a_only])
    return {
        "seconds": seconds,
        "largest difference of a score": float(np.concatenate(differences).max()),
        "median difference of a score": float(np.median(np.concatenate(differences))),
        "accuracy": right / count,
        "accuracy in one place": plain.accuracy(world, asked),
    }


def recovered_links(name: str, gamma: float = 0.2, seed: int = 0, people: int = 15) -> dict[str, float]:
    """Return how much b finds out of a's links to shared people (Jaccard index), by what the protocol shows it.

    People with equal columns cannot be told apart by any attack, and real columns are often equal.
    """
    world = make_world(name, gamma, seed)
    features = world.features[np.ix_(world.shared, world.b_columns)]
    links = world.adjacency[np.ix_(world.a_only, world.shared)][:people] > 0.0
    share = np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, size=(people, features.shape[1]))
    return {
        "confusion": link_overlap(recover_links(features, links @ features), links),
        "he_share": link_overlap(recover_links(features, share * 2.0**-SUM_BITS), links),
        "links at random": float(links.mean() / (2.0 - links.mean())),
        "people that differ in b's columns": len(np.unique(features, axis=0)) / len(features),
    }


# The sweep


def measure_graphs(
    names: Iterable[str] = tuple(GRAPHS),
    *,
    gammas: Iterable[float] = GAMMAS,
    shares: Iterable[float] = SHARES,
    seeds: Iterable[int] = SEEDS,
    products: bool = True,
) -> dict[str, Any]:
    """Return all figures by graph: lists over seeds, by what is measured, variant, gamma and share of labels."""
    return {name: _measure(name, tuple(gammas), tuple(shares), tuple(seeds), products=products) for name in names}


def _measure(
    name: str, gammas: tuple[float, ...], shares: tuple[float, ...], seeds: tuple[int, ...], *, products: bool
) -> dict[str, Any]:
    config = MPDL()
    kinds = ("links by features", "links by sums", "links by products", "nodes", "majority", "noisy links")
    found: dict[str, Any] = {kind: {} for kind in kinds}

    def note(kind: str, key: tuple[Any, ...], value: float) -> None:
        found[kind].setdefault(" / ".join(map(str, key)), []).append(round(value, 4))

    for gamma in gammas:
        for seed in seeds:
            world = make_world(name, gamma, seed)
            for variant in VARIANTS:
                features = features_of(world, variant)
                sums = (world.adjacency if variant == "raw" else world.known) @ features
                note("links by features", (variant, gamma), link_auc(world, features))
                note("links by sums", (variant, gamma), link_auc(world, sums))
                width = hidden_width(config, sums.shape[1], world.outputs)
                weights = first_weights(sums.shape[1], width, derive_seed(seed, "graph/weights/b"))
                note("links by products", (variant, gamma), link_auc(world, sums @ weights))
                for share in shares:
                    note("nodes", (variant, gamma, share), classified(world, sums, share, config).accuracy(world))
            for share in shares:
                places, own = world.labelled(share)
                test = np.setdiff1d(np.arange(len(world.labels)), np.concatenate([world.shared[places], own]))
                note("majority", (gamma, share), float(np.bincount(world.labels[test]).max() / len(test)))
            if gamma == 0.2:
                _measure_links(world, config, note)
        say(f"{name}, gamma {gamma}: done")
    if products:
        found["product"] = check_product(name)
        found["recovered"] = recovered_links(name)
    return found


def _measure_links(world: World, config: MPDL, note: Callable[[str, tuple[Any, ...], float], None]) -> None:
    """Note what the links' protection costs people whom only a knows, and what an untrained first layer costs."""
    features, share = completed(world), 0.2
    exact = world.known @ features
    note("noisy links", ("he_share",), classified(world, exact, share, config).accuracy(world, world.a_only))
    for epsilon in EPSILONS:
        scored = classified(world, with_noisy_links(world, features, epsilon), share, config)
        note("noisy links", (f"edge_ldp {epsilon:g}",), scored.accuracy(world, world.a_only))
    without = exact.copy()
    for rest, columns in ((world.a_only, world.b_columns), (world.b_only, world.a_columns)):
        without[np.ix_(rest, columns)] -= (
            world.adjacency[np.ix_(rest, world.shared)] @ features[np.ix_(world.shared, columns)]
        )
    note(
        "noisy links",
        ("no sums made together",),
        classified(world, without, share, config).accuracy(world, world.a_only),
    )
    trained = classified(world, exact, share, config, is_trained=True)
    note("noisy links", ("he_share, first layer trained",), trained.accuracy(world, world.a_only))


# Tables


def graph_tables(measured: Mapping[str, Any]) -> str:
    """Return the figures as Markdown tables: means, and standard deviations over seeds."""
    lines: list[str] = []
    for name, found in measured.items():
        gammas = sorted({float(key.split(" / ")[1]) for key in found["nodes"]})
        shares = sorted({float(key.split(" / ")[2]) for key in found["nodes"]})
        for kind, title in (
            ("links by features", "link AUC by the cosine of (completed) features"),
            ("links by sums", "link AUC by the cosine of sums over neighbours"),
            ("links by products", "link AUC by the cosine of what the collaborator has of these sums"),
        ):
            rows = [
                [variant, *(_cell(found[kind][f"{variant} / {gamma}"]) for gamma in gammas)] for variant in VARIANTS
            ]
            lines += _table_lines([f"{name}: {title}", *(f"gamma {gamma:g}" for gamma in gammas)], rows)
        for share in shares:
            rows = [
                [variant, *(_cell(found["nodes"][f"{variant} / {gamma} / {share}"]) for gamma in gammas)]
                for variant in VARIANTS
            ]
            rows.append(["largest class", *(_cell(found["majority"][f"{gamma} / {share}"]) for gamma in gammas)])
            title = f"{name}: node accuracy, {share:g} of b's people labelled"
            lines += _table_lines([title, *(f"gamma {gamma:g}" for gamma in gammas)], rows)
        rows = [[about, _cell(values)] for about, values in found["noisy links"].items()]
        lines += _table_lines(
            [f"{name}: sums made together, gamma 0.2, 0.2 labelled", "accuracy, a's own people"], rows
        )
        if "product" in found:
            rows = [[about, f"{value:.3g}"] for about, value in found["product"].items()]
            lines += _table_lines([f"{name}: the product's stage with he_share, test keys", "value"], rows)
        if "recovered" in found:
            rows = [[about, f"{value:.3g}"] for about, value in found["recovered"].items()]
            lines += _table_lines([f"{name}: a's links as b finds them out", "Jaccard index, or share"], rows)
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values):.3f}"


def _table_lines(head: list[str], rows: list[list[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
    ]


def measure(arguments: argparse.Namespace) -> Findings:
    """Measure, and hold what must hold against its bars."""
    few = {"names": (MADE_UP,), "gammas": (0.2,), "shares": (0.5,), "seeds": (0,)} if arguments.quick else {}
    measured = measure_graphs(**few)
    findings = Findings()
    for name, found in measured.items():
        findings.figures[name] = found

        def mean(kind: str, variant: str, among: Mapping[str, Any] = found) -> float:
            return float(np.mean([np.mean(one) for key, one in among[kind].items() if key.split(" / ")[0] == variant]))

        product, recovered = found["product"], found["recovered"]
        findings.bar(f"{name}: links found, paper's flow", recovered["confusion"], at_least=0.15, at_any_size=True)
        findings.bar(f"{name}: links found, he_share", recovered["he_share"], at_most=0.1)
        off = product["largest difference of a score"]
        findings.bar(f"{name}: product against one place", off, at_most=1e-4, at_any_size=True)
        for kind in ("links by features", "links by sums", "links by products"):
            findings.bar(f"{name}: {kind}, joint - MPDL", mean(kind, "joint") - mean(kind, "MPDL"), at_least=0.0)
            findings.bar(
                f"{name}: {kind}, MPDL - mean-fill", mean(kind, "MPDL") - mean(kind, "mean-fill"), at_least=0.0
            )
    tables = graph_tables(measured)
    if arguments.markdown:
        say(tables)
    return findings


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--markdown", action="store_true", help="print tables on stderr too")


if __name__ == "__main__":
    main(__doc__ or "", measure, _add)
