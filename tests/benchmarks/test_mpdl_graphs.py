"""The benchmark of graphs on a small one: the product equals one place, and the tables are whole."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.papers import mpdl_graphs

from colonnade.datasets import SocialGraph


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    count, width = 120, 14
    labels = random.integers(0, 2, count)
    features = (random.random((count, width)) < 0.2 + 0.5 * labels[:, None] * random.random(width)).astype(np.float32)
    chance = np.where(labels[:, None] == labels, 0.25, 0.05)
    edges = np.argwhere(np.triu(random.random((count, count)) < chance, 1))
    graph = SocialGraph(
        tuple(f"p{place}" for place in range(count)),
        features,
        tuple(f"c{place}" for place in range(width)),
        {},
        edges,
        labels,
        ("no", "yes"),
    )
    mpdl_graphs.graph_of.cache_clear()
    monkeypatch.setattr(mpdl_graphs, "GRAPHS", {"small": lambda: graph})


def test_the_products_stage_equals_one_place() -> None:
    found = mpdl_graphs.check_product("small", gamma=0.4)
    assert found["largest difference of a score"] < 1e-3
    assert found["accuracy"] == pytest.approx(found["accuracy in one place"], abs=0.02)


def test_every_variant_has_its_place_in_the_tables() -> None:
    found = mpdl_graphs.measure_graphs(["small"], gammas=(0.2,), shares=(0.5,), seeds=(0,), products=False)
    page = mpdl_graphs.graph_tables(found)
    for variant in mpdl_graphs.VARIANTS:
        assert page.count(f"| {variant} |") == 4
    assert "edge_ldp 8" in page
    assert "nan" not in page
