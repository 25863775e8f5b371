"""What each party sees of an alignment: group elements and counts, and of other rows nothing but randomness."""

from __future__ import annotations

import hashlib
import hmac
from itertools import product

import numpy as np
import pytest
from scipy.stats import chisquare
from tests.unit.alignment.intersecting import Intersected, expected_rows, intersect, tables_of

from colonnade.alignment import count_shared, ecdh
from colonnade.alignment.messages import (
    AlignmentOffer,
    AlignmentOpening,
    BlindedIds,
    IdMarks,
    SharedRows,
    ShuffledMarks,
    TwiceBlindedIds,
)
from colonnade.alignment.store import Unfinished
from colonnade.crypto.blinding import (
    Blinder,
    blind,
    blind_each,
    draw_secret,
    evaluate,
    expand_message,
    join_ids,
    multiply,
)
from colonnade.data import canonical_id_bytes
from colonnade.session import Alignment, derive_seed

SEED = 1
P = 2**256 - 2**32 - 977
OWN, SHARED, THEIRS = ([f"{kind}-{number}" for number in range(300)] for kind in ("own", "both", "theirs"))


@pytest.fixture(scope="module")
def met() -> Intersected:
    """Three parties, of which each has rows of its own and rows that all have."""
    return intersect(tables_of(OWN + SHARED, THEIRS + SHARED, SHARED + [f"third-{number}" for number in range(300)]))


def is_point(content: bytes) -> bool:
    """Tell whether bytes are a compressed point of y^2 = x^3 + 7 over the field of secp256k1."""
    x = int.from_bytes(content[1:], "big")
    square = (pow(x, 3, P) + 7) % P
    return len(content) == 33 and content[0] in (2, 3) and x < P and pow(square, (P - 1) // 2, P) == 1


def hashes_of(ids: list[str], keys: list[bytes]) -> set[bytes]:
    """Return what a careless protocol could have sent: hashes of ids in every form, with everything else that crossed.

    Their first eight bytes, so that shortened ones are found as well.
    """
    found = set()
    for one, key in product(ids, keys):
        for form in (one.encode(), canonical_id_bytes(one)):
            found.add(form)
            for name in ("md5", "sha1", "sha256", "sha512", "blake2b"):
                for content in (key + form, form + key, key + b"\x00" + form):
                    found.add(hashlib.new(name, content).digest()[:8])
                found.add(hmac.digest(key or b"\x00", form, name)[:8])
            suite = b"colonnade-psi-v1-secp256k1_XMD:SHA-256_ELLSWIFT_RO_"
            stretched = expand_message(key + form, suite, 64)
            found |= {stretched[:8], stretched[32:40]}
            # The hashed point before anyone's secret: multiplied with one.
            one_as_secret = (1).to_bytes(32, "big")
            found.add(blind(Blinder(one_as_secret, key), join_ids([form]))[1:9])
    return found


def test_every_message_is_of_points_short_hashes_and_counts(met: Intersected) -> None:
    for message in met.crossed():
        match message:
            case BlindedIds(points):
                assert points.dtype == np.uint8
                assert points.shape == (600, 33)
                assert all(is_point(row.tobytes()) for row in points)
            case TwiceBlindedIds(points):
                assert (points.dtype, points.shape) == (np.uint8, (600, 33))
                assert all(is_point(row.tobytes()) for row in points)
            case IdMarks(marks):
                assert (marks.dtype, marks.shape) == (np.uint8, (600, 12))
            case SharedRows(tokens, result):
                assert (tokens.dtype, tokens.shape, len(result)) == (np.uint8, (300, 12), 16)
            case AlignmentOffer(count, salt, _, held, unfinished, finished_pieces):
                assert (count, len(salt), held, unfinished, finished_pieces) == (600, 32, (), b"", 0)
            case AlignmentOpening(count, salt, _, reuse, first_piece):
                assert (count, len(salt), reuse, first_piece) == (600, 32, None, 0)
            case _:
                raise AssertionError(f"{type(message).__name__} crossed")


@pytest.mark.parametrize("party", ["bank", "shop", "telco"])
def test_no_hash_of_an_id_reaches_anyone(met: Intersected, party: str) -> None:
    salts = salts_of(met)
    results = [message.result for message in met.crossed(SharedRows)]
    seeds = [
        form for seed in (SEED, derive_seed(SEED, "alignment")) for form in (b"%d" % seed, seed.to_bytes(8, "little"))
    ]
    seen = met.seen_by(party)
    assert b"own-" not in seen
    assert b"both-" not in seen
    windows = {seen[at : at + 8] for at in range(len(seen) - 7)}
    for ids in (OWN[:8], SHARED[:8], THEIRS[:8]):
        hashes = hashes_of(ids, [b"", *salts, *results[:1], *seeds])
        assert len(hashes) > 500
        assert not {one[:8] for one in hashes if len(one) >= 8} & windows


def test_two_alignments_of_the_same_ids_have_nothing_in_common(met: Intersected) -> None:
    again = intersect(tables_of(OWN + SHARED, THEIRS + SHARED, SHARED + THEIRS))
    points = [set(one.points("bank", other)) for one in (met, again) for other in ("shop", "telco")]
    points += [{row.tobytes() for row in m.points} for one in (met, again) for m in one.crossed(TwiceBlindedIds)]
    assert sum(map(len, points)) == len(set.union(*points)) == 8 * 600, "also not the lead's to two partners"
    marks = [mark for one in (met, again) for other in ("shop", "telco") for mark in one.marks(other, "bank")]
    assert len(set(marks)) == len(marks) == 4 * 600
    assert len({*salts_of(met), *salts_of(again)}) == 3 * 4


def joint(met: Intersected, other: str) -> bytes:
    """Return the salt that the bank and another party made together."""
    (offer,), (opening,) = met.crossed(AlignmentOffer, other), met.crossed(AlignmentOpening, "bank", other)
    return hashlib.sha256(opening.salt + offer.salt).digest()


def salts_of(met: Intersected) -> list[bytes]:
    shares = [message.salt for message in met.crossed() if isinstance(message, AlignmentOffer | AlignmentOpening)]
    return [*shares, joint(met, "shop"), joint(met, "telco")]


def test_points_and_marks_look_random(met: Intersected) -> None:
    points = met.points("bank", "shop") + met.points("bank", "telco")
    marks = met.marks("shop", "bank") + met.marks("telco", "bank")
    for few in (points, marks):
        digits = np.frombuffer(b"".join(one[1:] for one in few), np.uint8)
        assert chisquare(np.bincount(digits, minlength=256)).pvalue > 1e-4
        for column in np.frombuffer(b"".join(few), np.uint8).reshape(len(few), -1)[:, 1:].T:
            assert chisquare(np.bincount(column >> 5, minlength=8)).pvalue > 1e-6
    signs = np.bincount([point[0] - 2 for point in points], minlength=2)
    assert chisquare(signs).pvalue > 1e-4


def test_points_of_other_rows_cannot_be_linked_to_ids_without_the_secret(met: Intersected) -> None:
    """Whoever guesses all of the partner's ids finds none of them in what it received, by any secret but the right."""
    salt = joint(met, "shop")
    candidates = join_ids([canonical_id_bytes(one) for one in OWN + SHARED + THEIRS])
    xs, marks = {point[1:] for point in met.points("bank", "shop")}, set(met.marks("shop", "bank"))
    for secret in ((1).to_bytes(32, "big"), draw_secret(), salt):
        for guess in (salt, b"", joint(met, "telco")):
            for made in (blind(Blinder(secret, guess), candidates), blind_each(Blinder(secret, guess), candidates)):
                assert not {made[at + 1 : at + 33] for at in range(0, len(made), 33)} & xs
            made = evaluate(Blinder(secret, guess), candidates)
            assert not {made[at : at + 12] for at in range(0, len(made), 12)} & marks


def test_what_is_linkable_is_linkable_with_the_secret_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would not notice a wrong way of guessing; with the right secret, the same guess works."""
    secrets: dict[str, bytes] = {}
    begin = Unfinished.begin

    def remembered(state: Unfinished, salt: bytes, order: np.ndarray, their_count: int) -> None:
        begin(state, salt, order, their_count)
        secrets[state.secret.hex()] = salt

    monkeypatch.setattr(Unfinished, "begin", remembered)
    met = intersect(tables_of(OWN + SHARED, THEIRS + SHARED, SHARED))
    assert len(secrets) == 4, "the lead has a secret for each partner, and each partner one"
    assert len(set(secrets.values())) == 2, "a salt for each pair"
    assert set(secrets.values()) == {joint(met, "shop"), joint(met, "telco")}
    candidates = join_ids([canonical_id_bytes(one) for one in OWN + SHARED])
    found = []
    for secret, salt in secrets.items():
        blinder = Blinder(bytes.fromhex(secret), salt)
        points, outputs = blind_each(blinder, candidates), evaluate(blinder, candidates)
        made = {points[at : at + 33] for at in range(0, len(points), 33)}
        made |= {outputs[at : at + 12] for at in range(0, len(outputs), 24)}
        for other in ("shop", "telco"):
            found += [len(made & set(met.points("bank", other))), len(made & set(met.marks(other, "bank")))]
    assert sorted(found) == [0] * 12 + [300, 300, 600, 600]
    # And no secret crossed.
    assert not any(bytes.fromhex(secret) in frame for secret in secrets for _, _, frame in met.frames)


def test_rows_are_sent_in_an_order_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[np.ndarray] = []
    begin = Unfinished.begin

    def remembered(state: Unfinished, salt: bytes, order: np.ndarray, their_count: int) -> None:
        orders.append(order)
        begin(state, salt, order, their_count)

    monkeypatch.setattr(Unfinished, "begin", remembered)
    for _ in range(2):
        intersect(tables_of(list(range(500)), list(range(500))))
    assert len(orders) == 4
    assert all(sorted(order) == list(range(500)) for order in orders)
    for place, one in enumerate(orders):
        for other in [np.arange(500), *orders[:place]]:
            assert (one == other).sum() < 20
            assert abs(np.corrcoef(one, other)[0, 1]) < 0.25


def test_a_token_is_no_mark_and_means_nothing_to_another_partner(met: Intersected) -> None:
    expected = expected_rows(tables_of(OWN + SHARED, THEIRS + SHARED, SHARED))
    assert met.outcomes["shop"].positions.tolist() == expected["shop"]
    tokens = [row.tobytes() for other in ("shop", "telco") for row in announced_to(met, other)]
    assert len(set(tokens)) == 600
    assert not set(tokens) & {*met.marks("shop", "bank"), *met.marks("telco", "bank")}


def announced_to(met: Intersected, party: str) -> np.ndarray:
    (announced,) = met.crossed(SharedRows, "bank", party)
    return announced.tokens


def test_marks_come_only_when_all_of_the_leads_ids_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lead that knew some of them could choose its next ids by what it found so far."""
    monkeypatch.setattr(ecdh, "PIECE", 50)
    for sizes in ((300, 120), (120, 300)):
        met = intersect(tables_of(*(list(range(size)) for size in sizes)))
        kinds = [type(message) for message in met.crossed() if not isinstance(message, AlignmentOffer)]
        first = kinds.index(IdMarks)
        assert kinds[:first].count(TwiceBlindedIds) == kinds.count(TwiceBlindedIds) == -(-sizes[0] // 50)
        assert BlindedIds not in kinds[first:]


@pytest.mark.parametrize("piece", [50, ecdh.PIECE])
def test_where_only_sizes_count_the_lead_cannot_tell_which_rows(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ecdh, "PIECE", piece)
    secrets: list[bytes] = []
    begin = Unfinished.begin

    def remembered(state: Unfinished, salt: bytes, order: np.ndarray, their_count: int) -> None:
        begin(state, salt, order, their_count)
        secrets.append(state.secret)

    monkeypatch.setattr(Unfinished, "begin", remembered)
    met = intersect(tables_of(OWN + SHARED, SHARED), step=count_shared, rule=Alignment(mode="size_only"))
    assert met.outcomes == {"bank": {"shop": 300}, "shop": {"bank": 300}}
    sent = b"".join(met.points("bank", "shop"))
    returned = [row.tobytes() for message in met.crossed(ShuffledMarks) for row in message.marks]
    in_order = []
    for secret in secrets:
        points = multiply(Blinder(secret, b""), sent)
        cut = [points[at : at + 33] for at in range(0, len(points), 33)]
        in_order.append([hashlib.sha256(point).digest()[:12] for point in cut])
    (honest,) = [one for one in in_order if set(one) == set(returned)]
    # A random order keeps about one in its place; within each piece it would keep the pieces' content.
    assert sum(one == other for one, other in zip(honest, returned, strict=True)) < 10
    if piece == 50:
        kept = [len(set(honest[at : at + 50]) & set(returned[at : at + 50])) for at in range(0, 600, 50)]
        assert max(kept) < 25
    # All of them come at the end, so that the time between them tells nothing either.
    kinds = [type(message) for message in met.crossed(sender="shop")]
    assert kinds.index(ShuffledMarks) > max(place for place, kind in enumerate(kinds) if kind is BlindedIds)
