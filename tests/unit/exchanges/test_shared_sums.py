"""Sums along links against plain ones, what the owner of the features sees of the links, and partners that lie."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.unit.exchanges.rooms import Room
from tests.worlds import integers_for_ciphertexts

from colonnade.crypto import CipherArray, FixedPoint, Format, PrivateKey, PublicKey, encrypt, key_bits
from colonnade.crypto.ring import Ring, Words
from colonnade.errors import CiphertextRefused, ConfigError, OutOfRange, WrongContent
from colonnade.exchanges.masked_sums import Collector, Contributor, masked_sum_messages
from colonnade.exchanges.secure_product import SharedFormat
from colonnade.exchanges.shared_sums import (
    HiddenSums,
    SealedFeatures,
    add_along_links,
    receive_sums,
    send_features,
    times_weights,
)
from colonnade.messages import between
from colonnade.methods.mpdl.links import confusion_flow_messages, link_overlap, recover_links
from colonnade.session import Session

SIZE = "insecure_test"
HOLDERS = ("label_holder", "feature_holder")
MESSAGES = (*masked_sum_messages(HOLDERS), *(between(one, HOLDERS, HOLDERS) for one in (SealedFeatures, HiddenSums)))


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return PrivateKey.generate(SIZE)


@pytest.fixture(scope="module")
def public(key: PrivateKey) -> PublicKey:
    return key.public


def room() -> Room:
    roles = {"label_holder": ("bank",), "feature_holder": ("shop",), "collaborator": ("helper",)}
    return Room(roles, MESSAGES)


def format_of(rows: int, columns: int, **changes: Any) -> SharedFormat:
    given = {"terms": rows, "columns": columns, "key_bits": key_bits(SIZE), "numbers": Format(20, 3), **changes}
    return SharedFormat(**given)


def places_of(adjacency: np.ndarray) -> list[np.ndarray]:
    return [np.flatnonzero(row) for row in adjacency]


def play(
    key: PrivateKey, public: PublicKey, features: np.ndarray, adjacency: np.ndarray, used: Room | None = None
) -> tuple[Words, Words]:
    """Return both shares: the one of the features' owner and the one of the party with the links."""
    used, format = used or room(), format_of(*features.shape)
    owner, adding = used.session("bank").channel("feature_holder"), used.session("shop").channel("label_holder")
    send_features(owner, key, format, features)
    share = add_along_links(adding, public, format, places_of(adjacency))
    return receive_sums(owner, key, format, len(adjacency)), share


def exact(features: np.ndarray, adjacency: np.ndarray) -> list[list[int]]:
    rounded = FixedPoint.encode(features, Format(20, 3)).integers
    found: list[list[int]] = (adjacency.astype(np.int64) @ rounded).tolist()
    return found


@pytest.mark.parametrize(("rows", "columns", "count"), [(5, 3, 4), (4, 17, 3), (7, 1, 20), (1, 1, 1)])
def test_shares_add_up_to_the_sums_along_links(
    key: PrivateKey, public: PublicKey, rows: int, columns: int, count: int
) -> None:
    random = np.random.default_rng(rows)
    features, adjacency = random.uniform(-4, 5, size=(rows, columns)), random.random((count, rows)) < 0.4
    adjacency[0] = False
    one, other = play(key, public, features, adjacency)
    assert one.shape == other.shape == (count, columns)
    assert (one + other).view(np.int64).tolist() == exact(features, adjacency)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 20), st.integers(1, 9), st.floats(0, 1), st.integers(0, 2**32))
def test_any_links_are_exact_with_integers_for_ciphertexts(
    rows: int, columns: int, count: int, density: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    features, adjacency = 8 * np.sign(random.normal(size=(rows, columns))), random.random((count, rows)) < density
    # An integer has no encryption of nothing: rows without neighbours are for real ciphertexts.
    adjacency[:, 0] |= ~adjacency.any(axis=1)
    with integers_for_ciphertexts():
        key = PrivateKey.generate(SIZE)
        one, other = play(key, key.public, features, adjacency)
    assert (one + other).view(np.int64).tolist() == exact(features, adjacency)


def test_at_2048_bits_shares_add_up_too() -> None:
    key = PrivateKey.generate("2048")
    random = np.random.default_rng(2)
    features, adjacency = random.uniform(-4, 5, size=(6, 20)), random.random((4, 6)) < 0.5
    used, format = room(), format_of(6, 20, key_bits=2048)
    owner, adding = used.session("bank").channel("feature_holder"), used.session("shop").channel("label_holder")
    send_features(owner, key, format, features)
    share = add_along_links(adding, key.public, format, places_of(adjacency))
    found = receive_sums(owner, key, format, 4) + share
    assert found.view(np.int64).tolist() == exact(features, adjacency)


def test_shares_go_on_through_a_linear_layer_to_the_collaborator(key: PrivateKey, public: PublicKey) -> None:
    random = np.random.default_rng(3)
    features, adjacency = random.uniform(-4, 5, size=(6, 5)), random.random((4, 6)) < 0.5
    weights = random.normal(size=(5, 3))
    used, format = room(), format_of(6, 5)

    def owner(session: Session) -> None:
        contributor = Contributor.agree(session)
        peer = session.channel("feature_holder")
        send_features(peer, key, format, features)
        contributor.send_words(times_weights(receive_sums(peer, key, format, 4), weights, 20))

    def adding(session: Session) -> None:
        contributor = Contributor.agree(session)
        share = add_along_links(session.channel("label_holder"), public, format, places_of(adjacency))
        contributor.send_words(times_weights(share, weights, 20))

    def helper(session: Session) -> np.ndarray:
        return Collector(session).receive((4, 3))

    found = used.play({"bank": owner, "shop": adding, "helper": helper})["helper"]
    assert np.abs(found - adjacency @ features @ weights).max() < 1e-3


def test_what_the_owner_decrypts_is_uniform_for_no_links_and_for_all(key: PrivateKey, public: PublicKey) -> None:
    features = np.full((4, 40), 5.0)
    seen = []
    for adjacency in (np.zeros((80, 4), bool), np.ones((80, 4), bool), np.eye(4, dtype=bool)[np.arange(80) % 4]):
        words, share = play(key, public, features, adjacency)
        for one in (words, share):
            for shift in (56, 24, 0):
                counts = np.bincount((one.reshape(-1) >> np.uint64(shift) & np.uint64(255)).astype(np.int64))
                assert stats.chisquare(counts).pvalue > 1e-6
        seen.append(np.bincount((words.reshape(-1) >> np.uint64(56)).astype(np.int64), minlength=256))
    assert stats.chi2_contingency(np.array(seen)).pvalue > 1e-6


def test_whole_decrypted_numbers_are_distributed_alike_for_different_links(key: PrivateKey, public: PublicKey) -> None:
    """Not only modulo 2**64: the owner sees all bits of the masked number."""
    features, found = np.full((4, 30), 5.0), []
    for adjacency in (np.zeros((50, 4), bool), np.ones((50, 4), bool)):
        used = room()
        play(key, public, features, adjacency, used)
        ((_, message),) = used.seen["bank"]
        opened = key.decrypt_integers(message.values.ciphertexts)
        found.append(np.array([one / int(key.n) for one in opened]))
    assert stats.ks_2samp(*found).pvalue > 1e-6
    assert stats.kstest(found[1], "uniform").pvalue > 1e-6


def test_rows_without_neighbours_have_ciphertexts_like_all_others(key: PrivateKey, public: PublicKey) -> None:
    used = room()
    adjacency = np.array([[0, 0], [1, 0], [0, 0], [1, 1]], bool)
    play(key, public, np.ones((2, 20)), adjacency, used)
    ((_, message),) = used.seen["bank"]
    ciphertexts = message.values.ciphertexts
    assert len(set(ciphertexts)) == len(ciphertexts)
    assert all(one % key.n != 1 for one in ciphertexts)


def test_the_link_attack_reads_the_papers_flow_and_fails_on_shares(key: PrivateKey, public: PublicKey) -> None:
    random = np.random.default_rng(4)
    features = random.normal(size=(200, 60)).round(3)
    adjacency = random.random((20, 200)) < 0.05
    flow = confusion_flow_messages(features, adjacency, random.normal(size=(60, 60)))
    assert link_overlap(recover_links(features, flow.opened), adjacency) > 0.9
    words, share = play(key, public, features, adjacency)
    # As numbers in the ring, and as far as they could be sums of so few rows.
    view = Ring(1, 20)
    seen = words.view(np.int64).astype(np.float64) * 2.0**-20
    for scale in (1.0, 2.0**-40):
        assert link_overlap(recover_links(features, seen * scale), adjacency) < 0.12
    assert np.abs(view.decode(words + share) - adjacency @ features).max() < 1e-4


def test_links_and_features_that_cannot_be_meant_are_refused(key: PrivateKey, public: PublicKey) -> None:
    format = format_of(3, 2)
    used = room()
    adding = used.session("shop").channel("label_holder")
    for places in (np.array([3]), np.array([-1]), np.array([0, 0]), np.array([0.5]), np.array([[0]])):
        with pytest.raises(ConfigError):
            add_along_links(adding, public, format, [np.array([0]), places])
    owner = used.session("bank").channel("feature_holder")
    for features in (np.full((3, 2), 9.0), np.full((3, 2), np.nan)):
        with pytest.raises(OutOfRange):
            send_features(owner, key, format, features)
    with pytest.raises(ConfigError, match="are not 3 rows of 2"):
        send_features(owner, key, format, np.ones((2, 2)))


@pytest.mark.parametrize("changes", [{"rows": 0}, {"columns": 0}, {"rows": 2**40}])
def test_formats_that_cannot_work_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        format_of(**{"rows": 3, "columns": 2, **changes})


def test_features_of_other_shapes_keys_and_layouts_are_refused(key: PrivateKey, public: PublicKey) -> None:
    format, other = format_of(3, 2), PrivateKey.generate(SIZE)
    layout = format.sealed()
    cases: list[tuple[CipherArray, type[Exception]]] = [
        (encrypt(key, np.ones((3, 2)), packed_axis=1), CiphertextRefused),
        (CipherArray(other, layout, other.encrypt_integers([1] * layout.count)), CiphertextRefused),
        (CipherArray(key, layout, [key.n + 1] * layout.count), CiphertextRefused),
        (CipherArray(key, replace(layout, shape=(4, 2)), key.encrypt_integers([1] * 4)), WrongContent),
    ]
    for array, error in cases:
        used = room()
        used.session("bank").channel("feature_holder").send(SealedFeatures(array))
        with pytest.raises(error):
            add_along_links(used.session("shop").channel("label_holder"), public, format, [np.array([0])])


def test_sums_that_are_none_are_refused(key: PrivateKey) -> None:
    format = format_of(3, 2)
    layout = format.sums(4)
    cases: list[tuple[CipherArray, type[Exception]]] = [
        (CipherArray(key, layout, [key.n + 1] * layout.count), CiphertextRefused),
        (encrypt(key, np.ones((4, 2)), packed_axis=1), CiphertextRefused),
        (CipherArray(key, format.sums(5), key.encrypt_integers([1] * format.sums(5).count)), WrongContent),
    ]
    for array, error in cases:
        used = room()
        used.session("shop").channel("label_holder").send(HiddenSums(array))
        with pytest.raises(error):
            receive_sums(used.session("bank").channel("feature_holder"), key, format, 4)
