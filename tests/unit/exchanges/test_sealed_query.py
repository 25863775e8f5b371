"""Sealed queries against plain products, what each party sees of them, and partners that lie."""

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
from colonnade.exchanges.public_keys import PublicModulus, receive_key, send_key
from colonnade.exchanges.sealed_query import (
    EncryptedQuery,
    QueryAnswer,
    QueryFormat,
    answer_query,
    receive_answer,
    send_query,
)
from colonnade.messages import between
from colonnade.session import Session

SIZE = "insecure_test"
HOLDERS = ("label_holder", "feature_holder")
ASKED = (PublicModulus, EncryptedQuery, QueryAnswer)
MESSAGES = (*masked_sum_messages(HOLDERS), *(between(one, HOLDERS, HOLDERS, same_role=True) for one in ASKED))


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return PrivateKey.generate(SIZE)


@pytest.fixture(scope="module")
def public(key: PrivateKey) -> PublicKey:
    return key.public


def room_of(*features: str) -> Room:
    roles = {"label_holder": ("bank",), "feature_holder": features or ("shop",), "collaborator": ("helper",)}
    return Room(roles, MESSAGES)


def format_of(inputs: int, rows: int, **changes: Any) -> QueryFormat:
    return QueryFormat(**{"terms": inputs, "columns": rows, "key_bits": key_bits(SIZE), **changes})


def ask(
    key: PrivateKey, public: PublicKey, rows: np.ndarray, weights: np.ndarray, room: Room | None = None, **changes: Any
) -> tuple[Words, Words]:
    """Return both shares of a product: the asking and the answering party's."""
    format = format_of(len(weights), len(rows), **changes)
    room = room or room_of()
    asking, answering = room.session("shop").channel("label_holder"), room.session("bank").channel("feature_holder")
    send_query(asking, key, format, rows)
    share = answer_query(answering, public, format, weights)
    return receive_answer(asking, key, format, weights.shape[1]), share


def exact(rows: np.ndarray, weights: np.ndarray, format: QueryFormat) -> np.ndarray:
    one = FixedPoint.encode(rows, format.numbers).integers.astype(object)
    other = FixedPoint.encode(weights, format.factors).integers.astype(object)
    return one @ other


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"), [(1, 5, 17), (1, 3, 1), (2, 4, 7), (3, 4, 5), (6, 3, 4), (13, 2, 3)]
)
def test_shares_add_up_to_the_product_of_the_rounded_numbers(
    key: PrivateKey, public: PublicKey, rows: int, inputs: int, outputs: int
) -> None:
    random = np.random.default_rng(rows)
    values, weights = random.uniform(-4, 5, size=(rows, inputs)), random.normal(size=(inputs, outputs))
    one, other = ask(key, public, values, weights)
    assert one.dtype == other.dtype == np.uint64
    assert one.shape == other.shape == (rows, outputs)
    assert (one + other).view(np.int64).tolist() == exact(values, weights, format_of(inputs, rows)).tolist()
    assert np.abs(Ring(2).decode(one + other) - values @ weights).max() < inputs * (5 + 4) * 2.0**-21


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20), st.integers(1, 9), st.integers(1, 30), st.integers(0, 2**32), st.booleans())
def test_any_shape_is_exact_with_integers_for_ciphertexts(
    rows: int, inputs: int, outputs: int, seed: int, is_extreme: bool
) -> None:
    random = np.random.default_rng(seed)
    values, weights = random.uniform(-8, 8, size=(rows, inputs)), random.uniform(-8, 8, size=(inputs, outputs))
    if is_extreme:
        values, weights = 8 * np.sign(values), 8 * np.sign(weights)
    with integers_for_ciphertexts():
        key = PrivateKey.generate(SIZE)
        one, other = ask(key, key.public, values, weights)
    assert (one + other).view(np.int64).tolist() == exact(values, weights, format_of(inputs, rows)).tolist()


def test_two_partners_and_the_asking_party_meet_at_the_collaborator(key: PrivateKey) -> None:
    random = np.random.default_rng(1)
    rows = {"bank": random.uniform(-4, 5, size=(3, 4)), "post": random.uniform(-4, 5, size=(3, 2))}
    weights = {"bank": random.normal(size=(4, 5)), "post": random.normal(size=(2, 5))}
    own = random.normal(size=(3, 5))
    formats = {party: format_of(len(weight), 3) for party, weight in weights.items()}
    room = room_of("shop", "post")

    def asking(session: Session) -> None:
        contributor = Contributor.agree(session)
        peers = [channel for channel in session.all_channels if channel.peer in rows]
        for peer in peers:
            send_key(peer, key)
            send_query(peer, key, formats[peer.peer], rows[peer.peer])
        words = contributor.ring.encode(own)
        for peer in peers:
            words = words + receive_answer(peer, key, formats[peer.peer], 5)
        contributor.send_words(words)

    def answering(session: Session) -> None:
        contributor = Contributor.agree(session)
        (peer,) = [channel for channel in session.all_channels if channel.peer == "shop"]
        public = receive_key(session, peer, SIZE)
        share = answer_query(peer, public, formats[session.party], weights[session.party])
        contributor.send_words(share)

    def helping(session: Session) -> np.ndarray:
        return Collector(session).receive((3, 5))

    found = room.play({"shop": asking, "bank": answering, "post": answering, "helper": helping})["helper"]
    expected = own + sum(rows[party] @ weights[party] for party in rows)
    assert np.abs(found - expected).max() < 1e-4


def test_a_query_at_2048_bits_gives_the_plain_product() -> None:
    key = PrivateKey.generate("2048")
    random = np.random.default_rng(3)
    rows, weights = random.uniform(-4, 5, size=(1, 12)), random.normal(size=(12, 30))
    one, other = ask(key, key.public, rows, weights, key_bits=2048)
    format = format_of(12, 1, key_bits=2048)
    assert format.sums(30).count == 3
    assert (one + other).view(np.int64).tolist() == exact(rows, weights, format).tolist()


def test_what_the_asking_party_decrypts_is_uniform_and_so_is_the_partners_share(
    key: PrivateKey, public: PublicKey
) -> None:
    rows = np.full((120, 1), 5.0)
    for weight in (0.0, 7.9):
        for words in ask(key, public, rows, np.full((1, 60), weight)):
            for shift in (56, 24, 0):
                counts = np.bincount((words.reshape(-1) >> np.uint64(shift) & np.uint64(255)).astype(np.int64))
                assert stats.chisquare(counts).pvalue > 1e-6


def test_slots_are_104_bits_wider_than_the_largest_product() -> None:
    format = format_of(280, 1, key_bits=2048)
    largest = 2**23 * 2**23 * 280
    assert format.bound == largest
    layout = format.sums(128)
    assert 2**layout.slot_bits >= largest << 104
    assert layout.slot_bits * layout.slots < 2047


def test_answers_to_equal_queries_differ_in_every_ciphertext(key: PrivateKey, public: PublicKey) -> None:
    room = room_of()
    for _ in range(2):
        ask(key, public, np.ones((1, 2)), np.zeros((2, 9)), room)
    answers = [message.products.ciphertexts for _, message in room.seen["shop"]]
    assert len({one for answer in answers for one in answer}) == sum(map(len, answers))


def test_few_rows_share_ciphertexts_by_result_and_many_by_row() -> None:
    formats = {rows: format_of(280, rows, key_bits=2048) for rows in (1, 2, 4, 12, 13, 100)}
    assert formats[1].sealed().slots == 12
    assert [formats[rows].sums(128).lines for rows in (1, 2, 4, 12, 100)] == [12, 6, 3, 1, 1]
    assert [formats[rows].sums(128).count for rows in (1, 2, 12, 13)] == [11, 22, 128, 256]
    assert [formats[rows].sealed().count for rows in (1, 12, 13)] == [280, 280, 560]


def test_rows_and_weights_beyond_their_range_or_shape_are_refused(key: PrivateKey, public: PublicKey) -> None:
    rows, weights = np.ones((2, 3)), np.ones((3, 4))
    for wrong in (np.full((2, 3), 8.1), np.full((2, 3), np.nan)):
        with pytest.raises(OutOfRange):
            ask(key, public, wrong, weights)
    with pytest.raises(OutOfRange):
        ask(key, public, rows, np.full((3, 4), -9.0))
    for shape in ((2, 4), (0, 3), (4097, 3)):
        with pytest.raises(ConfigError):
            ask(key, public, np.ones(shape), weights)
    session = room_of().session("bank")
    with pytest.raises(ConfigError, match="do not fit"):
        answer_query(session.channel("feature_holder"), public, format_of(4, 2), weights)


@pytest.mark.parametrize(
    "changes",
    [
        {"numbers": Format(24, 3)},
        {"factors": Format(24, 3)},
        {"terms": 0},
        {"columns": 0},
        {"columns": 4097},
        {"terms": 2**13},
    ],
)
def test_formats_that_cannot_work_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        format_of(3, 4, **changes)


def queried(room: Room, rows: CipherArray) -> Any:
    room.session("shop").channel("label_holder").send(EncryptedQuery(rows))
    return room.session("bank")


def sealed(key: PrivateKey, rows: int, columns: int, format: QueryFormat) -> CipherArray:
    return replace(format, terms=columns, columns=rows).seal(key, np.ones((columns, rows))).T


def test_a_partner_refuses_queries_of_other_sizes_keys_and_layouts(key: PrivateKey, public: PublicKey) -> None:
    weights = np.ones((3, 4))
    format, single = format_of(3, 2), format_of(3, 1).sealed().transposed
    other = PrivateKey.generate(SIZE)
    cases: list[tuple[CipherArray, type[Exception]]] = [
        (sealed(key, 2, 4, format), WrongContent),
        (sealed(other, 2, 3, format), CiphertextRefused),
        (encrypt(key, np.ones((2, 3)), format.numbers, packed_axis=0), CiphertextRefused),
        (CipherArray(key, single, [key.n + 1] * 3), CiphertextRefused),
        (CipherArray(key, single, [key.n] * 3), CiphertextRefused),
    ]
    for rows, error in cases:
        room = room_of()
        session = queried(room, rows)
        size = replace(format, columns=rows.shape[0])
        with pytest.raises(error):
            answer_query(session.channel("feature_holder"), public, size, weights)
        assert not [entry for entry in session.ledger.read().messages() if entry.kind == "sent"]


@pytest.mark.parametrize("asked", [1, 3])
def test_a_partner_multiplies_no_other_number_of_rows_than_it_was_told(
    key: PrivateKey, public: PublicKey, asked: int
) -> None:
    format = format_of(3, 2)
    session = queried(room_of(), sealed(key, asked, 3, format))
    with pytest.raises(WrongContent, match=rf"the shape \({asked}, 3\) where \(2, 3\) belongs"):
        answer_query(session.channel("feature_holder"), public, format, np.ones((3, 4)))
    assert not [entry for entry in session.ledger.read().messages() if entry.kind == "sent"]


def test_the_asking_party_refuses_answers_that_are_none(key: PrivateKey) -> None:
    format = format_of(3, 2)
    layout = format.sums(4)
    other = PrivateKey.generate(SIZE)
    cases: list[tuple[CipherArray, type[Exception]]] = [
        (CipherArray(other, layout, other.encrypt_integers([1] * layout.count)), CiphertextRefused),
        (CipherArray(key, layout, [key.n + 1] * layout.count), CiphertextRefused),
        (encrypt(key, np.ones((4, 2)), packed_axis=1), CiphertextRefused),
        (encrypt(key, np.ones((2, 4))), WrongContent),
    ]
    for products, error in cases:
        room = room_of()
        room.session("bank").channel("feature_holder").send(QueryAnswer(products))
        with pytest.raises(error):
            receive_answer(room.session("shop").channel("label_holder"), key, format, 4)
