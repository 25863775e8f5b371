"""Who can find out links: the owner of the columns in the paper's flow, and nobody where sums are shared."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.unit.methods.mpdl.graph_worlds import graph_run, graph_world, settings
from tests.worlds import received

from colonnade import Launch
from colonnade.crypto import PrivateKey
from colonnade.exchanges.secure_product import SharedFormat
from colonnade.methods.mpdl import link_sums
from colonnade.methods.mpdl.link_sums import flip_chance, noisy_answers, truthful_sums
from colonnade.methods.mpdl.links import link_overlap, recover_links
from colonnade.privacy import SecretNoise

# As many columns as make a linear programme sure of itself.
WORLD: dict[str, Any] = {"shared": 80, "a_only": 20, "b_only": 6, "b_columns": 40, "density": 0.06}


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Keep what b itself knows: its key, and the columns it brought in the order of the alignment."""
    found: dict[str, Any] = {}
    make_key, exchange = link_sums.make_key, link_sums._by_shares

    def keep_key(session: Any, size: str) -> PrivateKey:
        found[f"key of {session.party}"] = key = make_key(session, size)
        return key

    def keep_cross(function: Any) -> Any:
        def exchanged(session: Any, peer: Any, config: Any, cross: Any) -> Any:
            found[session.party] = cross
            return function(session, peer, config, cross)

        return exchanged

    monkeypatch.setattr(link_sums, "make_key", keep_key)
    monkeypatch.setattr(link_sums, "_by_shares", keep_cross(exchange))
    monkeypatch.setattr(link_sums, "_by_confusion", keep_cross(link_sums._by_confusion))
    return found


def true_links(cross: link_sums.CrossLinks) -> np.ndarray:
    links = np.zeros((len(cross.links), len(cross.features)), bool)
    for row, places in enumerate(cross.links):
        links[row, places] = True
    return links


def test_the_label_holder_finds_the_others_links_in_the_papers_flow(watched: dict[str, Any]) -> None:
    world = graph_world(**WORLD)
    run = graph_run(world, settings(links="confusion", paper_mode=True, epochs=1), launch=Launch(keep_views=True))
    features, links = watched["b"].features, true_links(watched["a"])
    # What b multiplied with it knows; here it is told from what a received.
    (sent,) = received(run, "a", "ConfusedFeatures")
    confusion = np.linalg.lstsq(features, sent.values, rcond=None)[0]
    (answer,) = received(run, "b", "ConfusedSums")
    found = recover_links(features, np.linalg.solve(confusion.T, answer.values.T).T)
    assert (found & links).sum() / links.sum() > 0.9
    assert link_overlap(found, links) > 0.9


def test_shared_sums_show_the_label_holder_nothing_of_the_links(watched: dict[str, Any]) -> None:
    world = graph_world(**WORLD)
    run = graph_run(world, settings(epochs=1), launch=Launch(keep_views=True))
    features, links, key = watched["b"].features, true_links(watched["a"]), watched["key of b"]
    (answer,) = received(run, "b", "HiddenSums")
    format = SharedFormat(
        terms=len(features),
        columns=features.shape[1],
        key_bits=key.bits,
        numbers=link_sums.Format(link_sums.SUM_BITS, link_sums._UNIT_BITS),
    )
    opening = SimpleNamespace(integers=lambda array, layout: key.decrypt_integers(array.under(key, layout).ciphertexts))
    share = format.open_share(opening, answer.values, len(links))  # type: ignore[arg-type]
    seen = share.view(np.int64) * 2.0**-link_sums.SUM_BITS
    chance = links.mean() / (2.0 - links.mean())
    for product in (seen, seen * 2.0**-40):
        found = recover_links(features, product)
        assert link_overlap(found, links) < chance + 0.06
    sums = links @ features
    assert abs(np.corrcoef(seen.ravel(), sums.ravel())[0, 1]) < 4.0 / math.sqrt(sums.size)
    tops = np.bincount((share >> np.uint64(60)).astype(int).ravel(), minlength=16)
    assert stats.chisquare(tops).pvalue > 1e-4


@pytest.mark.slow
def test_the_same_answers_are_as_likely_for_other_links(watched: dict[str, Any]) -> None:
    """The label holder's share of a full row and of an empty one look alike."""
    world = graph_world(**WORLD)
    world.adjacency[np.ix_(world.a_only[:10], world.shared)] = True
    world.adjacency[np.ix_(world.shared, world.a_only[:10])] = True
    world.adjacency[np.ix_(world.a_only[10:], world.shared)] = False
    world.adjacency[np.ix_(world.shared, world.a_only[10:])] = False
    shares: list[np.ndarray] = []
    receive_sums = link_sums.receive_sums

    def keep(peer: Any, key: Any, format: Any, rows: int) -> Any:
        share = receive_sums(peer, key, format, rows)
        if peer.role == "label_holder":
            shares.append(share)
        return share

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link_sums, "receive_sums", keep)
        graph_run(world, settings(epochs=1))
    (share,) = shares
    assert stats.ks_2samp(share[:10].ravel().astype(float), share[10:].ravel().astype(float)).pvalue > 1e-4


@pytest.mark.parametrize("hidden", [80, 24])
def test_why_the_first_weights_are_not_trained(hidden: int) -> None:
    """Their gradient and the errors give away the sums, and these the links: at once, or after a few batches."""
    random = np.random.default_rng(hidden)
    features, links = random.random((80, 40)), random.random((64, 80)) < 0.06
    sums = links @ features
    errors, gradients = [], []
    for _ in range(math.ceil(64 / hidden)):
        # Errors of a hidden layer differ from epoch to epoch, and both holders get them.
        delta = random.normal(size=(64, hidden)) * (random.random((64, hidden)) < 0.5)
        errors.append(delta)
        gradients.append(sums.T @ delta)
    solved = np.linalg.lstsq(np.hstack(errors).T, np.hstack(gradients).T, rcond=None)[0]
    assert np.abs(solved - sums).max() < 1e-6
    assert link_overlap(recover_links(features, solved[:15]), links[:15]) > 0.9


# Links under randomised response


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_an_answer_about_a_link_is_no_more_likely_than_epsilon_allows(epsilon: float) -> None:
    count = 40_000
    linked = noisy_answers(SecretNoise(bytes(32)), [np.arange(count)], count, epsilon).mean()
    other = noisy_answers(SecretNoise(b"1" * 32), [np.empty(0, np.int64)], count, epsilon).mean()
    slack = 1.0 + 6.0 / math.sqrt(count * flip_chance(epsilon))
    assert math.exp(epsilon) / slack < linked / other < math.exp(epsilon) * slack
    assert math.exp(epsilon) / slack < (1 - other) / (1 - linked) < math.exp(epsilon) * slack


def test_lies_about_links_cancel_on_average_and_repeat() -> None:
    random = np.random.default_rng(0)
    features, links = random.random((60, 3)), [np.array([3, 4, 5]), np.empty(0, np.int64)]
    truth = np.stack([features[[3, 4, 5]].sum(axis=0), np.zeros(3)])
    drawn = [
        truthful_sums(noisy_answers(SecretNoise(bytes([place] * 32)), links, 60, 1.0), features, 1.0)
        for place in range(200)
    ]
    error = np.mean(drawn, axis=0) - truth
    assert np.abs(error).max() < 5.0 * np.std(drawn, axis=0).max() / math.sqrt(200)
    again = noisy_answers(SecretNoise(bytes(32)), links, 60, 1.0)
    assert (again == noisy_answers(SecretNoise(bytes(32)), links, 60, 1.0)).all()


def test_noisy_links_are_on_the_ledger_and_no_column_leaves() -> None:
    world = graph_world()
    run = graph_run(world, settings(links="edge_ldp", link_epsilon=2.0), launch=Launch(keep_views=True))
    (mark,) = [entry.content for entry in run.ledgers["a"].entries if entry.kind == "links"]
    assert (mark["epsilon"], mark["person"], mark["answers"]) == (2.0, 2.0 * 48, 12 * 48)
    (answers,) = received(run, "b", "NoisyLinks")
    assert answers.values.shape == (12, 6)
    assert not received(run, "a", "ConfusedFeatures")


@pytest.mark.slow
def test_much_noise_costs_and_little_does_not() -> None:
    world = graph_world(shared=120, density=0.2)
    exact = graph_run(world, settings(epochs=10))
    near = graph_run(world, settings(epochs=10, links="edge_ldp", link_epsilon=30.0))
    assert near.metrics["log_loss"] == pytest.approx(exact.metrics["log_loss"], abs=1e-6)
