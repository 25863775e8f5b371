"""What the paper's benchmark is made of, and the order of methods on halves of digits: check 8 of the sheet."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.papers.fedcvt import FULL, QUICK, jobs, judge, name_of
from benchmarks.papers.fedcvt_world import make_world


@pytest.mark.parametrize("nonaligned", ["disjoint", "hidden_overlap"])
def test_a_world_shares_what_it_says_and_hides_the_overlap_it_says(nonaligned: str) -> None:
    world = make_world("digits", 40, 0, nonaligned)
    ids = {party: table.ids for party, table in world.tables.items()}
    shared = {party: ids[party][rows.positions].tolist() for party, rows in world.aligned.items()}
    own = {party: set(ids[party][rows.rest].tolist()) for party, rows in world.aligned.items()}
    assert shared["a"] == shared["b"]
    assert (len(world.split.train), len(world.split.validation), len(world.split.test)) == (40, 200, 540)
    assert not own["a"] & set(shared["a"])
    assert own["a"] == own["b"] if nonaligned == "hidden_overlap" else not own["a"] & own["b"]
    assert world.distinct == 1797 - 200 - 540


def test_every_job_has_a_name_of_its_own_and_the_quick_ones_are_few() -> None:
    names = [name_of(job) for job in jobs(FULL)]
    assert len(set(names)) == len(names)
    assert 0 < len(jobs(QUICK)) < 20


@pytest.mark.slow
@pytest.mark.parametrize("shared", [40, 80, 160])
def test_fedcvt_is_above_its_baselines_on_halves_of_digits(shared: int) -> None:
    def accuracy(row: str) -> float:
        found = [judge((row, "digits", shared, seed, "disjoint"))["situations"]["shared"] for seed in (0, 1, 2)]
        return float(np.mean([max(way["test"] for way in ways.values()) for ways in found]))

    fedcvt = accuracy("FedCVT")
    assert fedcvt > accuracy("local")
    if shared < 160:
        assert fedcvt > accuracy("vanilla") + 0.03
