"""The paper's flow gives the sums it promises, and the links it does not."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade.methods.mpdl.links import confusion_flow_messages, link_overlap, recover_links


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize("is_sparse", [True, False])
def test_the_owner_of_the_features_recovers_the_links_of_the_papers_flow(columns: int, is_sparse: bool) -> None:
    random = np.random.default_rng(columns)
    features = random.normal(size=(200, columns)) * (random.random((200, columns)) < 0.2 if is_sparse else 1.0)
    adjacency = random.random((25, 200)) < 0.05
    flow = confusion_flow_messages(features, adjacency, random.normal(size=(columns, columns)))
    assert np.abs(flow.opened - adjacency @ features).max() < 1e-6
    found = recover_links(features, flow.opened)
    assert (found & adjacency).sum() / adjacency.sum() > 0.9
    assert link_overlap(found, adjacency) > 0.9


def test_what_has_nothing_to_do_with_the_links_recovers_none() -> None:
    random = np.random.default_rng(1)
    features, adjacency = random.normal(size=(200, 60)), random.random((15, 200)) < 0.05
    noise = random.integers(-(2**63), 2**63 - 1, size=(15, 60)).astype(np.float64) * 2.0**-20
    for product in (noise, noise * 2.0**-40):
        assert link_overlap(recover_links(features, product), adjacency) < 0.12


def test_the_flow_also_shows_the_other_party_equal_and_empty_rows() -> None:
    random = np.random.default_rng(2)
    features = random.normal(size=(6, 4))
    features[3], features[5] = features[1], 0.0
    confused = confusion_flow_messages(features, np.eye(6), random.normal(size=(4, 4))).confused
    assert (confused[3] == confused[1]).all()
    assert not confused[5].any()


def test_overlap_counts_links_that_are_missing_and_links_that_are_made_up() -> None:
    truth = np.array([[1, 1, 0, 0]], bool)
    assert link_overlap(truth, truth) == 1.0
    assert link_overlap(np.array([[1, 0, 0, 0]], bool), truth) == 0.5
    assert link_overlap(np.array([[1, 1, 1, 1]], bool), truth) == 0.5
    assert link_overlap(np.zeros((1, 4), bool), np.zeros((1, 4), bool)) == 1.0


def test_no_rows_give_no_links() -> None:
    assert recover_links(np.ones((5, 2)), np.empty((0, 2))).shape == (0, 5)
