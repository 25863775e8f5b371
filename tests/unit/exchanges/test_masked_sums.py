"""Masked sums against plain ones, what the collaborator sees of each holder, and holders that lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.unit.exchanges.rooms import Room

from colonnade.crypto.pairwise_masks import MaskSecret, PairwiseMasks
from colonnade.errors import ColonnadeError, ConfigError, LeakRefused, OutOfRange, WrongContent
from colonnade.exchanges.masked_sums import Collector, Contributor, MaskedValues, MaskKey, masked_sum_messages
from colonnade.session import Session

FEATURES = ("shop", "post", "club")
MESSAGES = masked_sum_messages(("label_holder", "feature_holder"))


def room_of(holders: int, name: str = "run") -> Room:
    roles = {"label_holder": ("bank",), "feature_holder": FEATURES[: holders - 1], "collaborator": ("helper",)}
    return Room(roles, MESSAGES, name)


def seats(room: Room) -> dict[str, Any]:
    """Let all holders agree, and return their contributors and the collector."""
    holders = room.plan.parties[:-1]
    return room.play({"helper": Collector, **dict.fromkeys(holders, Contributor.agree)})


def words_from(room: Room, party: str) -> list[np.ndarray]:
    return [message.values for peer, message in room.seen["helper"] if peer == party]


@pytest.mark.parametrize("holders", [2, 3, 4])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_collaborator_gets_the_sum(holders: int, kind: type) -> None:
    random = np.random.default_rng(1)
    room = room_of(holders)
    seated = seats(room)
    for shape in ((64, 128), (64, 128), (5, 3), (4, 2, 3, 3), (0, 7), (6,)):
        parts = {party: random.normal(size=shape).astype(kind) for party in room.plan.parties[:-1]}
        for party, part in parts.items():
            seated[party].send(part)
        expected = np.sum([part.astype(np.float64) for part in parts.values()], axis=0)
        found = seated["helper"].receive(shape)
        assert found.dtype == np.float64
        assert found.shape == shape
        assert not expected.size or np.abs(found - expected).max() < 2.0**-39


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 4), st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=9), st.integers(0, 2**32))
def test_sums_are_right_for_any_numbers(holders: int, values: list[float], seed: int) -> None:
    room = room_of(holders)
    seated = seats(room)
    order = np.random.default_rng(seed)
    parts = {party: order.permutation(values) for party in room.plan.parties[:-1]}
    for party, part in parts.items():
        seated[party].send(part)
    exact = np.sum(list(parts.values()), axis=0)
    # Beyond 2^12 a float64 itself has no steps of 2^-40.
    tolerance = holders * 2.0**-41 + 2 * holders * np.spacing(np.abs(values).max())
    assert np.abs(seated["helper"].receive((len(values),)) - exact).max() <= tolerance


def test_tensors_are_sent_with_their_gradients_left_behind() -> None:
    room = room_of(2)
    seated = seats(room)
    values = torch.randn(3, 4, requires_grad=True)
    seated["bank"].send(values)
    seated["shop"].send(torch.randn(4, 3).T)
    assert seated["helper"].receive((3, 4)).shape == (3, 4)
    assert values.grad is None


def test_words_that_wrap_and_numbers_add_up_together() -> None:
    room = room_of(2)
    seated = seats(room)
    share = np.array([[2**63 + 5, 2**64 - 1, 7]], np.uint64)
    kept = share.copy()
    seated["bank"].send_words(share)
    seated["shop"].send_words(seated["shop"].ring.encode(np.array([[1.0, -2.0, 0.5]])) - share)
    assert seated["helper"].receive((1, 3)).tolist() == [[1.0, -2.0, 0.5]]
    assert (share == kept).all()


@pytest.mark.parametrize("holders", [2, 3])
@pytest.mark.parametrize("value", [0.0, 1.0, -1e6, "normal", "sparse"])
def test_what_one_holder_sends_is_uniform_whatever_its_numbers(holders: int, value: float | str) -> None:
    random = np.random.default_rng(1)
    shape = (400, 128)
    parts: Mapping[Any, Any] = {
        "normal": random.normal(size=shape),
        "sparse": (random.random(shape) < 0.01) * 1.0,
    }
    part = parts[value] if value in parts else np.full(shape, value)
    room = room_of(holders)
    seated = seats(room)
    for party in room.plan.parties[:-1]:
        seated[party].send(part)
    seated["helper"].receive(shape)
    for party in room.plan.parties[:-1]:
        (words,) = words_from(room, party)
        for shift in (56, 32, 0):
            counts = np.bincount((words.reshape(-1) >> np.uint64(shift) & np.uint64(255)).astype(np.int64))
            assert stats.chisquare(counts).pvalue > 1e-6


def test_equal_numbers_look_different_every_time_and_at_every_attempt() -> None:
    found = []
    for _ in range(2):
        room = room_of(2)
        seated = seats(room)
        for _ in range(2):
            for party in ("bank", "shop"):
                seated[party].send(np.ones((2, 3)))
            seated["helper"].receive((2, 3))
        found += [tuple(words.reshape(-1).tolist()) for party in ("bank", "shop") for words in words_from(room, party)]
    words = [word for message in found for word in message]
    assert len(set(words)) == len(words)


def test_a_holder_less_than_all_leaves_nothing_to_read() -> None:
    """Whoever lacks one part of three holds uniform words, also with the other two added up."""
    room = room_of(3)
    seated = seats(room)
    shape = (400, 64)
    for party in room.plan.parties[:-1]:
        seated[party].send(np.zeros(shape))
    seated["helper"].receive(shape)
    bank, shop, post = (words_from(room, party)[0] for party in room.plan.parties[:-1])
    for pair in (bank + shop, shop + post, bank + post):
        counts = np.bincount((pair.reshape(-1) >> np.uint64(56)).astype(np.int64), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-6
    assert not (bank + shop + post).any()


def test_a_single_holder_sends_its_numbers_as_they_are_and_the_ledger_says_so() -> None:
    room = room_of(1)
    seated = seats(room)
    seated["bank"].send(np.array([[0.5]]))
    assert seated["helper"].receive((1, 1)).tolist() == [[0.5]]
    assert words_from(room, "bank")[0].tolist() == [[2**39]]
    (mark,) = [entry for entry in room.places["bank"].ledger.read().entries if entry.kind == "masks"]
    assert mark.content["partners"] == 0


def test_numbers_beyond_the_range_are_refused_before_anything_is_sent() -> None:
    room = room_of(3)
    seated = seats(room)
    for value in (2.0**22 / 3, np.nan, np.inf):
        with pytest.raises(OutOfRange, match="Scale the columns down"):
            seated["bank"].send(np.full((2, 2), value))
    with pytest.raises(OutOfRange, match="float32 or float64"):
        seated["bank"].send(np.ones((2, 2), np.int64))
    with pytest.raises(OutOfRange, match="uint64"):
        seated["bank"].send_words(np.ones((2, 2), np.int64))
    assert len([entry for entry in room.places["bank"].ledger.read().messages() if entry.kind == "sent"]) == 2


def test_a_mask_cannot_be_used_twice() -> None:
    seated = seats(room_of(2))
    seated["bank"].send(np.ones((2, 3)))
    masks: PairwiseMasks = seated["bank"]._masks
    with pytest.raises(LeakRefused):
        masks.hide(np.zeros((5, 5), np.uint64), 0)


@pytest.mark.parametrize("offered", [bytes(32), b"\x01" + bytes(31)])
def test_a_holder_refuses_a_key_that_hides_nothing(offered: bytes) -> None:
    room = room_of(2)

    def lie(session: Session) -> None:
        session.channel("label_holder").send(MaskKey(offered))

    with pytest.raises(WrongContent, match="'shop' sent a key for masks"):
        room.play({"bank": Contributor.agree, "shop": lie})


def test_a_reflected_key_is_refused() -> None:
    room = room_of(2)

    def reflect(session: Session) -> None:
        peer = session.channel("label_holder")
        public = peer.receive(MaskKey).public
        peer.send(MaskKey(public))

    with pytest.raises(WrongContent):
        room.play({"bank": Contributor.agree, "shop": reflect})


@pytest.mark.parametrize("wrong", [np.zeros((2, 4), np.uint64), np.zeros((2, 3), np.int64)])
def test_the_collaborator_refuses_other_shapes_and_types(wrong: np.ndarray) -> None:
    room = room_of(2)
    room.session("bank").channel("collaborator").send(MaskedValues(wrong))
    with pytest.raises(WrongContent):
        Collector(room.session("helper")).receive((2, 3))


def test_words_of_another_size_add_up_all_the_same() -> None:
    room = room_of(2)
    for party, kind in (("bank", np.uint8), ("shop", np.uint64)):
        room.session(party).channel("collaborator").send(MaskedValues(np.full((2, 3), 200, kind)))
    assert (Collector(room.session("helper")).receive_words((2, 3)) == 400).all()


def test_holders_that_are_out_of_step_are_noticed() -> None:
    room = room_of(2)
    seated = seats(room)
    seated["bank"]._masks.hide(np.zeros(1, np.uint64))
    for party in ("bank", "shop"):
        seated[party].send(np.ones((8, 8)))
    with pytest.raises(WrongContent, match="do not cancel"):
        seated["helper"].receive((8, 8))


def test_holders_of_two_different_runs_do_not_get_the_same_masks() -> None:
    """The key agreement is bound to everything the parties agreed on, not only to the secrets."""
    one, other = MaskSecret(), MaskSecret()
    runs = [room_of(2, name).plan.digest() for name in ("run", "other")]
    keys = [one.agree(run, "bank", "shop", other.public, adds=True).cipher_key("sum") for run in runs]
    assert keys[0] != keys[1]


def test_every_two_holders_need_a_channel() -> None:
    room = room_of(3)
    room.places["post"].all_channels = room.places["post"].all_channels[:1]
    with pytest.raises(ConfigError, match="no channel to shop"):
        Contributor.agree(room.session("post"))
    room.places["helper"].all_channels = room.places["helper"].all_channels[:1]
    with pytest.raises(ConfigError, match="no channel to shop, post"):
        Collector(room.session("helper"))


def test_a_holder_that_leaves_ends_the_sum_for_the_others() -> None:
    room = room_of(3)

    def leave(session: Session) -> None:
        raise RuntimeError("gone")

    with pytest.raises((RuntimeError, ColonnadeError)):
        room.play({"bank": Contributor.agree, "shop": leave, "post": Contributor.agree, "helper": Collector})
