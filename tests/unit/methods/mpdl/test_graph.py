"""The graph stage against a plain reference with everything in one place, and inputs that do not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.adversary.hostile import Lie, lying, with_field
from tests.unit.methods.mpdl.graph_worlds import EVALUATE, ROLES, GraphWorld, graph_run, graph_world, settings
from tests.worlds import name_of, view

import colonnade as cn
from colonnade.data import batches, split_rows
from colonnade.errors import ConfigError, TableError, WrongContent
from colonnade.methods.mpdl import METHOD
from colonnade.methods.mpdl.generators import Ridge
from colonnade.methods.mpdl.graph import first_weights, likely_pairs, standardised_nodes
from colonnade.methods.mpdl.rows import Scale
from colonnade.nn import mlp
from colonnade.session import derive_seed

SEED = 7


def generated(world: GraphWorld, party: str, shared: np.ndarray, config: cn.MPDL) -> np.ndarray:
    """Return the other party's own columns for all people of a party, as its generator gives them."""
    other = "b" if party == "a" else "a"
    names = np.array(world.names())
    wanted = np.array([place for place, name in enumerate(names) if name.startswith(other)])
    people = world.people(party)
    own = world.columns(party)
    rest = world.a_only if party == "a" else world.b_only
    scale = Scale.of(torch.from_numpy(world.features[np.ix_(np.concatenate([shared, rest]), own)]))
    inputs = scale.standardised(torch.from_numpy(world.features[np.ix_(people, own)]))
    ridge = Ridge(len(own), len(wanted))
    places = torch.from_numpy(np.searchsorted(people, shared))
    targets = torch.from_numpy(world.features[np.ix_(shared, wanted)])
    ridge.fit(inputs[places], targets, config.penalties, derive_seed(SEED, f"ridge/{party}"))
    full = np.full((len(world.features), len(wanted)), np.nan)
    full[people] = ridge(inputs).numpy()
    return full


def representations(world: GraphWorld, shared: np.ndarray, config: cn.MPDL) -> np.ndarray:
    """Return M_adj M_feat with completed features and without links that nobody knows."""
    features, names = world.features.copy(), np.array(world.names())
    for party, rest in (("a", world.a_only), ("b", world.b_only)):
        other = "b" if party == "a" else "a"
        missing = np.array([name.startswith(other) for name in names])
        features[np.ix_(rest, np.flatnonzero(missing))] = generated(world, party, shared, config)[rest]
    adjacency = world.adjacency.astype(float)
    adjacency[np.ix_(world.a_only, world.b_only)] = 0.0
    adjacency[np.ix_(world.b_only, world.a_only)] = 0.0
    return adjacency @ features


def reference(world: GraphWorld, order: np.ndarray, config: cn.MPDL) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Return scores of held-out shared people and of a's own, in one place; `order` is that of the alignment."""
    split = split_rows(len(order), validation_fraction=0.0, test_fraction=0.25, seed=derive_seed(SEED, "split"))
    learned, test = order[split.train], order[split.test]
    products = representations(world, order, config)
    width = config.hidden or max(2, (world.features.shape[1] + 1) // 2)
    products = products @ first_weights(products.shape[1], width, derive_seed(SEED, "graph/weights/b"))
    people = np.concatenate([learned, world.b_only, test, world.a_only])
    trained = len(learned) + len(world.b_only)
    inputs = torch.from_numpy(standardised_nodes(products[people], trained, config))
    network = mlp((width, width, 1), seed=derive_seed(SEED, "graph/upper/c"), dtype=torch.float64)
    optimizer = torch.optim.SGD(network.parameters(), lr=config.learning_rate)
    targets = torch.from_numpy(world.labels[people]).double()
    for epoch in range(config.epochs):
        for batch in batches(trained, config.batch_size, derive_seed(SEED, "graph/batches", epoch)):
            rows = torch.from_numpy(batch)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(network(inputs[rows])[:, 0], targets[rows])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip_gradient)
            optimizer.step()
    with torch.no_grad():
        scored = network(inputs[trained:])
    return scored[: len(test)], scored[len(test) :], test


@pytest.mark.parametrize("links", ["he_share", "confusion"])
@pytest.mark.parametrize("changes", [{}, {"common": 2}])
@pytest.mark.parametrize("graph_rows", ["unit_length", "sums"])
def test_the_stage_equals_one_place_that_knows_everything(
    links: str, changes: dict[str, int], graph_rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = graph_world(**changes)
    common = {"common_columns": ("common*",)} if world.common else {}
    config = settings(links=links, paper_mode=links == "confusion", graph_rows=graph_rows, **common)
    found: dict[str, Any] = {}

    def keep(function: Any) -> Any:
        def role(session: Any, holding: Any, config: Any) -> Any:
            result = function(session, holding, config)
            found[session.party] = (holding, result)
            return result

        return role

    functions = {role: keep(function) for role, function in METHOD.stages["graph"].roles.items()}
    monkeypatch.setitem(METHOD.stages, "graph", replace(METHOD.stages["graph"], roles=functions))
    graph_run(world, config)
    holding, result = found["b"]
    order = world.people("b")[holding.aligned.positions]
    test_logits, own_logits, test = reference(world, order, config)
    assert (order[result.scores.rows] == test).all()
    assert np.abs(result.scores.values - torch.sigmoid(test_logits[:, 0]).numpy()).max() < 1e-5
    alone = found["a"][1].scores
    assert (world.people("a")[alone.positions] == world.a_only).all()
    assert np.abs(alone.values - torch.sigmoid(own_logits[:, 0]).numpy()).max() < 1e-5
    assert alone.known_to == ("a only",) * len(world.a_only)


@pytest.mark.slow
def test_people_of_one_kind_are_told_apart_by_their_neighbours() -> None:
    run = graph_run(graph_world(shared=120, density=0.2), settings(epochs=30))
    assert run.metrics["auc"] > 0.8
    assert run.findings["graph of a"].values["protocol"] == "he_share"
    run.verify()


@pytest.mark.parametrize(("b_only", "a_only"), [(0, 10), (10, 0), (0, 0)])
def test_a_holder_without_people_of_its_own(b_only: int, a_only: int) -> None:
    for links in ("he_share", "edge_ldp", "confusion"):
        config = settings(links=links, paper_mode=links == "confusion", epochs=1)
        assert "auc" in graph_run(graph_world(b_only=b_only, a_only=a_only), config).metrics


def test_every_party_gets_only_what_its_role_needs() -> None:
    world = graph_world()
    run = graph_run(world, settings(mechanism="cell_ldp"), launch=cn.Launch(keep_views=True))
    got = {party: {(sender, name_of(one)) for sender, one in view(run, party)} for party in ("a", "b", "c")}
    keys = {"MaskKey", "PublicModulus", "ReleasedTable", "SealedFeatures", "HiddenSums"}
    assert {name for sender, name in got["a"] if sender == "b"} == keys | {"GraphSchedule", "FirstWeights", "Classes"}
    assert {name for sender, name in got["a"] if sender == "c"} == {"AloneScores"}
    assert {name for sender, name in got["b"] if sender == "a"} == keys | {"Columns", "RowsAlone"}
    assert {name for sender, name in got["b"] if sender == "c"} == {"Logits"}
    assert got["c"] == {
        ("b", "GraphSchedule"),
        ("b", "MaskedValues"),
        ("a", "MaskedValues"),
        ("b", "LogitGradient"),
    }


def test_a_run_repeats_whatever_the_shares_were() -> None:
    world = graph_world()
    first, second = (graph_run(world, settings()) for _ in range(2))
    assert first.metrics == second.metrics


@pytest.mark.slow
def test_noise_on_everything_still_fits_the_ring() -> None:
    run = graph_run(graph_world(), settings(mechanism="cell_ldp", dp_scope="all", epsilon=0.1))
    assert 0.0 <= run.metrics["auc"] <= 1.0


# Likely links


def test_pairs_with_the_largest_cosine_come_first() -> None:
    random = np.random.default_rng(0)
    first, second = random.normal(size=(600, 4)), random.normal(size=(30, 4))
    first[7] = 0.0
    unit = [rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12) for rows in (first, second)]
    cosines = unit[0] @ unit[1].T
    wanted = np.argsort(-cosines.ravel(), kind="stable")[:50]
    pairs = likely_pairs(first, second, 50)
    assert (pairs == np.stack([wanted // 30, wanted % 30], axis=1)).all()
    assert likely_pairs(first, second[:0], 5).shape == (0, 2)
    assert likely_pairs(first[:2], second[:3], 50).shape == (6, 2)


def test_both_holders_are_told_the_same_likely_links_and_they_are_likelier_than_chance() -> None:
    world = graph_world(shared=60, b_only=60, a_only=60, density=0.15, b_columns=12, a_columns=12)
    run = graph_run(world, settings(suggested_links=300, epochs=1))
    of_a, of_b = run.findings["likely links of a"], run.findings["likely links of b"]
    rows_a, rows_b = (world.people(party)[run.parts[party].tensors["suggested/rows"].numpy()] for party in "ab")
    assert np.isin(rows_a, world.a_only).all()
    assert np.isin(rows_b, world.b_only).all()
    partners = run.parts["a"].tensors["suggested/partners"].numpy()
    assert (world.people("b")[60 + partners] == rows_b).all()
    assert len(of_a.values["pairs"]) == len(of_b.values["pairs"]) == 300
    links = world.adjacency[rows_a, rows_b].mean()
    assert links > 1.2 * world.adjacency[np.ix_(world.a_only, world.b_only)].mean()


def test_nobody_is_told_of_likely_links_unless_they_are_asked_for() -> None:
    run = graph_run(graph_world(), settings(epochs=1), launch=cn.Launch(keep_views=True))
    assert "LikelyLinks" not in {name_of(one) for party in "ab" for _, one in view(run, party)}
    assert "suggested/rows" not in run.parts["a"].tensors


# What does not fit


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (Lie("b", "GraphSchedule", with_field(test=lambda test: test + 1)), "other nodes than were found together"),
        (Lie("c", "LikelyLinks", with_field(pairs=lambda pairs: pairs + 99)), "people that nobody has"),
    ],
    ids=["nodes", "pairs"],
)
def test_partners_that_lie_are_refused(lie: Lie, words: str) -> None:
    with lying(lie), pytest.raises(WrongContent, match=words):
        graph_run(graph_world(), settings(epochs=1, suggested_links=5))


def test_a_holder_without_links_is_told_how_to_give_them() -> None:
    world = graph_world()
    tables = world.tables() | {"a": world.table("a", links=None)}
    with pytest.raises(TableError, match="'a' has no list of links"):
        graph_run(world, settings(), tables=tables)


def test_the_papers_flow_needs_paper_mode() -> None:
    with pytest.raises(ConfigError, match="finds out links"):
        settings(links="confusion")


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("inf"), float("nan")])
def test_the_noise_of_links_needs_an_epsilon(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="link_epsilon"):
        settings(link_epsilon=epsilon)


def test_three_holders_are_too_many() -> None:
    world = graph_world()
    tables = world.tables() | {"d": world.table("a")}
    with pytest.raises(ConfigError, match="between two holders"):
        cn.simulate(
            settings(),
            tables,
            roles=ROLES | {"feature_holder": ("a", "d")},
            stage="graph",
            evaluate=EVALUATE,
        )


@pytest.mark.parametrize(
    ("links", "words"),
    [
        (pd.DataFrame({"from": ["p000"], "to": ["nobody"]}), "1 of 1 links for a name an id"),
        (pd.DataFrame({"from": ["p000"], "to": ["p000"]}), "join a row to itself"),
        (pd.DataFrame({"source": ["p000"], "to": ["p001"]}), "no column 'from'"),
    ],
)
def test_links_that_do_not_fit_the_table(links: pd.DataFrame, words: str) -> None:
    world = graph_world()
    tables = world.tables() | {"a": world.table("a", links=links)}
    with pytest.raises(TableError, match=words):
        graph_run(world, settings(), tables=tables)
