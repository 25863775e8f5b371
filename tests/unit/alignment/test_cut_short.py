"""An alignment that was cut short goes on where it was, and one that was finished is not made again."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.alignment.intersecting import Intersected, expected_rows, intersect, table, tables_of

from colonnade.alignment import count_shared, ecdh
from colonnade.alignment.messages import (
    AlignmentOffer,
    AlignmentOpening,
    BlindedIds,
    IdMarks,
    SharedRows,
    TwiceBlindedIds,
)
from colonnade.alignment.store import AlignmentStore, Unfinished, identity_of
from colonnade.errors import PeerLost, PolicyRefused
from colonnade.session import Alignment, Channel, Policy

TABLES = tables_of([f"c{number}" for number in range(40)], [f"c{number}" for number in range(60, 9, -1)])
EXPECTED = expected_rows(TABLES)
PIECES = {"bank": 6, "shop": 6}


class Cut(Exception):
    """Stands for a lost machine."""


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ecdh, "PIECE", 7)


@contextmanager
def cut_at(party: str, action: str, kind: type, number: int) -> Iterator[None]:
    """Let a party fail when it sends or receives its so-many-th message of a kind, before or after it is done."""
    name = {"sending": "send", "receiving": "receive"}[action]
    original = getattr(Channel, name)
    count = 0

    def send(channel: Channel, message: Any) -> None:
        nonlocal count
        original(channel, message)
        if channel.party == party and isinstance(message, kind):
            count += 1
            if count == number:
                raise Cut

    def receive(channel: Channel, message_class: type, **shapes: Any) -> Any:
        nonlocal count
        if channel.party == party and message_class is kind:
            count += 1
            if count == number:
                raise Cut
        return original(channel, message_class, **shapes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Channel, name, send if action == "sending" else receive)
        yield


def blinded(met: Intersected) -> dict[str, int]:
    return {"bank": len(met.crossed(BlindedIds, "bank")), "shop": len(met.crossed(TwiceBlindedIds, "shop"))}


def first_piece(met: Intersected) -> int:
    return met.crossed(AlignmentOpening)[0].first_piece


CUTS = [
    ("bank", "sending", BlindedIds, 1),
    ("bank", "sending", BlindedIds, 4),
    ("bank", "receiving", TwiceBlindedIds, 4),
    ("bank", "receiving", IdMarks, 1),
    ("bank", "receiving", IdMarks, 8),
    ("bank", "sending", SharedRows, 1),
    ("shop", "receiving", BlindedIds, 1),
    ("shop", "sending", TwiceBlindedIds, 1),
    ("shop", "sending", TwiceBlindedIds, 3),
    ("shop", "receiving", BlindedIds, 6),
    ("shop", "sending", IdMarks, 2),
    ("shop", "receiving", SharedRows, 1),
]


@pytest.mark.parametrize(
    ("party", "action", "kind", "number"), CUTS, ids=[f"{p}-{a}-{k.__name__}-{n}" for p, a, k, n in CUTS]
)
def test_an_alignment_cut_short_ends_with_the_same_rows(
    party: str, action: str, kind: type, number: int, tmp_path: Path
) -> None:
    with cut_at(party, action, kind, number):
        cut = intersect(TABLES, folder=tmp_path)
    assert type(cut.outcomes[party]) is Cut
    other = "shop" if party == "bank" else "bank"
    told_already = (party, kind) == ("bank", SharedRows)
    assert told_already or type(cut.outcomes[other]) is PeerLost
    again = intersect(TABLES, folder=tmp_path)
    assert again.rows() == EXPECTED
    assert not list(tmp_path.rglob("state.json")), "the secrets are gone"
    done = first_piece(again)
    if kind is SharedRows and party == "shop":
        # The lead had told and forgotten everything; only the partner did not hear it.
        assert done in (0, 6)
    elif kind is IdMarks:
        assert done == 6, "only the marks are sent again"
    elif not told_already:
        assert number - 2 <= done <= number, "no more than one piece is lost"
    sent = blinded(again)
    if told_already:
        assert sent == {"bank": 0, "shop": 0}
    else:
        assert sent == {name: max(0, pieces - done) for name, pieces in PIECES.items()}
        # Nothing crossed twice with another secret.
        assert len(set(again.points("bank", "shop"))) == len(again.points("bank", "shop"))
    # What was made twice, if anything, is the same: no partner gets two looks at one row.
    if done:
        assert len(set(cut.points("bank", "shop") + again.points("bank", "shop"))) == 40
        assert len(set(cut.marks("shop", "bank") + again.marks("shop", "bank"))) == 51


def test_it_may_be_cut_short_many_times(tmp_path: Path) -> None:
    points: list[bytes] = []
    for _ in range(5):
        with cut_at("shop", "sending", TwiceBlindedIds, 2):
            cut = intersect(TABLES, folder=tmp_path)
        points += cut.points("bank", "shop")
        if not isinstance(cut.outcomes["shop"], Cut):
            break
    met = intersect(TABLES, folder=tmp_path)
    assert met.rows() == EXPECTED
    assert len(set(points + met.points("bank", "shop"))) == 40


def test_three_parties_go_on_with_the_one_that_was_cut_short(tmp_path: Path) -> None:
    tables = TABLES | {"telco": table([f"c{number}" for number in range(5, 50)], "telco")}
    with cut_at("telco", "sending", TwiceBlindedIds, 3):
        intersect(tables, folder=tmp_path)
    again = intersect(tables, folder=tmp_path)
    assert again.rows() == expected_rows(tables)
    openings = {party: again.crossed(AlignmentOpening, "bank", party)[0].first_piece for party in ("shop", "telco")}
    assert openings["shop"] == 6, "all was done with the shop"
    assert openings["telco"] in (1, 2, 3)
    assert not again.crossed(TwiceBlindedIds, "shop")


def test_without_a_folder_it_begins_anew() -> None:
    with cut_at("bank", "sending", BlindedIds, 4):
        intersect(TABLES)
    again = intersect(TABLES)
    assert again.rows() == EXPECTED
    assert blinded(again) == PIECES


@pytest.mark.parametrize("loser", ["bank", "shop"])
def test_when_one_has_lost_its_state_both_begin_anew(loser: str, tmp_path: Path) -> None:
    with cut_at("bank", "sending", BlindedIds, 4):
        cut = intersect(TABLES, folder=tmp_path)
    (tmp_path / loser).rename(tmp_path / "elsewhere")
    again = intersect(TABLES, folder=tmp_path)
    assert again.rows() == EXPECTED
    assert blinded(again) == PIECES
    assert not set(cut.points("bank", "shop")) & set(again.points("bank", "shop")), "with new secrets"


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_other_ids_begin_anew(party: str, tmp_path: Path) -> None:
    with cut_at("shop", "sending", TwiceBlindedIds, 4):
        cut = intersect(TABLES, folder=tmp_path)
    ids = TABLES[party].ids.tolist()
    changed = TABLES | {party: table([*ids[1:], "new"], party)}
    again = intersect(changed, folder=tmp_path)
    assert again.rows() == expected_rows(changed)
    assert blinded(again) == PIECES
    assert not set(cut.points("bank", "shop")) & set(again.points("bank", "shop"))


def test_another_run_or_another_rule_begins_anew(tmp_path: Path) -> None:
    for changes in ({"name": "other"}, {"seed": 2}, {"rule": Alignment(case="fold")}):
        folder = tmp_path / next(iter(changes))
        with cut_at("shop", "sending", TwiceBlindedIds, 4):
            cut = intersect(TABLES, folder=folder)
        again = intersect(TABLES, folder=folder, **changes)
        assert blinded(again) == PIECES
        assert not set(cut.points("bank", "shop")) & set(again.points("bank", "shop"))
        assert sorted(again.rows()["bank"]) == sorted(EXPECTED["bank"])


def test_the_secret_is_for_its_owner_only_and_gone_in_the_end(tmp_path: Path) -> None:
    with cut_at("shop", "sending", TwiceBlindedIds, 4):
        intersect(TABLES, folder=tmp_path)
    states = list(tmp_path.rglob("state.json"))
    assert {path.parent.name for path in states} == {"unfinished-shop", "unfinished-bank"}
    for path in states:
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    intersect(TABLES, folder=tmp_path)
    left = sorted(path.suffix for path in tmp_path.rglob("*") if path.is_file())
    assert left == [".jsonl", ".jsonl", ".rows", ".rows"], "the history, and the results"
    for path in tmp_path.rglob("*.rows"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_secret_is_gone_too_when_nothing_is_shared_and_when_sizes_are_counted(tmp_path: Path) -> None:
    intersect(tables_of([1, 2], [3]), folder=tmp_path / "none")
    assert not list((tmp_path / "none" / "bank").rglob("state.json"))
    met = intersect(tables_of([1, 2], [2]), folder=tmp_path, step=count_shared, rule=Alignment(mode="size_only"))
    assert met.outcomes["shop"] == {"bank": 1}
    assert not list((tmp_path / "bank").rglob("state.json")) + list((tmp_path / "shop").rglob("state.json"))


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_the_secret_is_gone_too_when_a_policy_refuses_the_result(party: str, tmp_path: Path) -> None:
    met = intersect(TABLES, folder=tmp_path, policies={party: Policy(minimum_shared_rows=35)})
    assert type(met.outcomes[party]) is PolicyRefused
    assert not list((tmp_path / party).rglob("state.json"))


@pytest.mark.parametrize("has_folder", [False, True])
def test_every_beginning_has_a_secret_of_its_own(has_folder: bool, tmp_path: Path) -> None:
    state = Unfinished.open(tmp_path / "state" if has_folder else None, "identity")
    secrets = {state.secret}
    for number in range(5):
        state.begin(bytes([number]) * 16, np.arange(3), 5)
        secrets.add(state.secret)
        assert not has_folder or Unfinished.open(tmp_path / "state", "identity").secret == state.secret
    assert len(secrets) == 6
    assert Unfinished.open(tmp_path / "state", "another identity").secret not in secrets


def test_a_secret_does_not_show_in_a_state() -> None:
    state = Unfinished.open(None, "identity")
    assert state.secret.hex() not in repr(state)
    assert repr(state.secret) not in repr(state)


@pytest.mark.parametrize("left", ["order", "piece-000000", "asked-000003", "state.json.part"])
def test_a_kill_while_the_state_is_removed_does_no_harm(
    left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files go in any order; whatever remains of them must not be taken for a state."""
    state = Unfinished.open(tmp_path / "state", "identity")
    state.begin(b"s" * 16, np.arange(3), 5)
    for number in range(5):
        state.keep(number, b"outputs")
        state.note_asked(number, b"digest")
    (tmp_path / "state" / "state.json.part").touch()

    def killed(folder: Path) -> None:
        for file in list(folder.iterdir()):
            if file.name != left:
                file.unlink()
        raise Cut

    monkeypatch.setattr("colonnade.alignment.store.rmtree", killed)
    with pytest.raises(Cut):
        state.discard()
    monkeypatch.undo()
    again = Unfinished.open(tmp_path / "state", "identity")
    assert (again.salt, again.pieces, again.answered) == (b"", 0, 0)
    again.begin(b"t" * 16, np.arange(3), 5)
    assert Unfinished.open(tmp_path / "state", "identity").salt == b"t" * 16


def test_a_kill_while_a_state_begins_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from colonnade.alignment import store

    real, written = store.write_whole, []

    def killed(path: Path, content: bytes) -> None:
        if path.name == "state.json":
            raise Cut
        real(path, content)
        written.append(path.name)

    monkeypatch.setattr(store, "write_whole", killed)
    with pytest.raises(Cut):
        Unfinished.open(tmp_path / "state", "identity").begin(b"s" * 16, np.arange(3), 5)
    assert written == ["order"]
    monkeypatch.undo()
    assert Unfinished.open(tmp_path / "state", "identity").salt == b""


# Results


def test_a_result_that_both_still_have_is_used_again(tmp_path: Path) -> None:
    first = intersect(TABLES, folder=tmp_path)
    again = intersect(TABLES, folder=tmp_path, name="another-run")
    assert again.rows() == first.rows() == EXPECTED
    assert not again.crossed(BlindedIds)
    assert [type(message) for message in again.crossed()] == [AlignmentOffer, AlignmentOpening]
    names = {
        entry.content["message"] for session in again.sessions.values() for entry in session.ledger.read().messages()
    }
    assert names == {"Hello", "AlignmentOffer", "AlignmentOpening"}
    # Named by a random number, not by anything of the ids.
    assert first.crossed(SharedRows)[0].result == again.crossed(AlignmentOpening)[0].reuse
    elsewhere = intersect(TABLES, folder=tmp_path / "elsewhere")
    assert elsewhere.crossed(SharedRows)[0].result != first.crossed(SharedRows)[0].result


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_a_result_is_not_used_for_other_ids(party: str, tmp_path: Path) -> None:
    intersect(TABLES, folder=tmp_path)
    ids = TABLES[party].ids.tolist()
    for changed in ([*ids[1:], ids[0]], [*ids, "new"], ids[:-1]):
        tables = TABLES | {party: table(changed, party)}
        again = intersect(tables, folder=tmp_path)
        assert again.rows() == expected_rows(tables)
        assert again.crossed(BlindedIds)


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_a_result_that_one_has_lost_is_made_again(party: str, tmp_path: Path) -> None:
    intersect(TABLES, folder=tmp_path)
    (tmp_path / party).rename(tmp_path / "lost")
    again = intersect(TABLES, folder=tmp_path)
    assert again.rows() == EXPECTED
    assert blinded(again) == PIECES
    assert not intersect(TABLES, folder=tmp_path).crossed(BlindedIds)


def test_a_result_is_not_used_with_another_seed_rule_or_group(tmp_path: Path) -> None:
    intersect(TABLES, folder=tmp_path)
    assert intersect(TABLES, folder=tmp_path, seed=2).crossed(BlindedIds)
    assert intersect(TABLES, folder=tmp_path, rule=Alignment(trim=False)).crossed(BlindedIds)
    three = TABLES | {"telco": table(["c11", "c12"], "telco")}
    met = intersect(three, folder=tmp_path)
    assert met.rows() == expected_rows(three)
    assert met.crossed(TwiceBlindedIds, "shop")
    assert not intersect(three, folder=tmp_path).crossed(BlindedIds)
    (tmp_path / "telco").rename(tmp_path / "lost")
    assert intersect(three, folder=tmp_path).crossed(BlindedIds, "bank", "shop")


def test_only_the_last_results_are_kept(tmp_path: Path) -> None:
    store = AlignmentStore(tmp_path / "kept")
    identity = identity_of([b"a"], "fact")
    assert store.results(identity) == ()
    for number in range(12):
        store.save(identity, bytes([number]) * 16, np.array([number, 1]))
    assert set(store.results(identity)) <= {bytes([number]) * 16 for number in range(12)}
    assert len(store.results(identity)) == 8
    assert bytes([11]) * 16 in store.results(identity)
    assert store.load(identity, bytes([11]) * 16).tolist() == [11, 1]
    assert store.results(identity_of([b"b"], "fact")) == ()


def test_an_identity_depends_on_every_id_and_fact() -> None:
    lists = ([], [b""], [b"", b""], [b"a"], [b"ab"], [b"a", b"b"], [b"b", b"a"])
    found = [identity_of(ids, *facts) for ids in lists for facts in ((), ("x",), ("x", "y"), ("xy",))]
    assert len(set(found)) == len(found)
