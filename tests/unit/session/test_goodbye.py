"""A party leaves when its result is kept and all others keep theirs; from then on nobody needs anybody."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.session.toys import Play, helper, lead, play_honestly

from colonnade.errors import LedgersDisagree, OutOfStep, PeerFailed, PeerLost, RoleFailed, RunFolderError
from colonnade.ledger import Ledger, compare
from colonnade.messages import declaration_of, open_frame
from colonnade.session import Result, Session
from colonnade.session.control import Finished, Goodbye
from colonnade.session.handshake import agree_on_resume, greet

Code = Callable[[Session], Any]


def kinds(session: Session) -> list[str]:
    """Return the ledger's marks, and its messages by name."""
    return [entry.content.get("message", entry.kind) for entry in session.ledger.read().entries]


def up_to_the_end(session: Session) -> None:
    """Play honestly until the goodbye is due."""
    session.ledger.mark("opened", party=session.party, digest=session.plan.digest())
    greet(session)
    agree_on_resume(session)
    (helper if session.role == "helper" else lead)(session, None, None)  # type: ignore[arg-type]


def vanish_before_finished(session: Session) -> None:
    up_to_the_end(session)


def vanish_after_finished(session: Session) -> None:
    up_to_the_end(session)
    session.channel("lead").send(Finished())


def vanish_after_the_leads_goodbye(session: Session) -> None:
    vanish_after_finished(session)
    session.channel("lead").receive(Goodbye)


def vanish_after_its_own_goodbye(session: Session) -> None:
    vanish_after_finished(session)
    transcript = session.channel("lead").transcript()
    session.channel("lead").receive(Goodbye)
    session.channel("lead").send(Goodbye(*transcript))


@pytest.mark.parametrize("parties", [("bank", "shop"), ("bank", "shop", "telco")], ids=len)
def test_everyone_ends_with_complete_then_goodbyes_then_closed(parties: tuple[str, ...]) -> None:
    played = Play(parties)
    outcomes = played.run()
    assert all(isinstance(one, Result) for one in outcomes.values()), outcomes
    for party, session in played.sessions.items():
        seen = kinds(session)
        peers = len(session.all_channels)
        complete = seen.index("complete")
        last = ["Finished"] * peers if party == "bank" else ["Finished", "Goodbye"]
        assert seen[complete - len(last) : complete] == last
        assert seen[complete:].count("disconnected") == peers
        assert seen[-1] == "closed"
        assert "unconfirmed" not in seen
        session.ledger.read().verify()
    for one, other in itertools.combinations(played.sessions.values(), 2):
        compare(one.ledger.read(), other.ledger.read())


def test_a_peer_lost_before_all_have_finished_is_a_loss() -> None:
    for parties in (("bank", "shop"), ("bank", "shop", "telco")):
        played = Play(parties, code={"shop": vanish_before_finished})
        outcomes = played.run()
        assert type(outcomes["bank"]) is PeerLost
        assert "complete" not in kinds(played.sessions["bank"])
        assert kinds(played.sessions["bank"])[-1] == "failed"
        if "telco" in parties:
            # It has finished, but not everyone has: the run is not over for it either.
            assert isinstance(outcomes["telco"], PeerFailed)
            assert outcomes["telco"].returns
            assert "complete" not in kinds(played.sessions["telco"])


@pytest.mark.parametrize("parties", [("bank", "shop"), ("bank", "shop", "telco")], ids=len)
@pytest.mark.parametrize(
    "gone", [vanish_after_finished, vanish_after_the_leads_goodbye], ids=lambda code: code.__name__
)
def test_a_peer_lost_after_all_have_finished_is_unconfirmed(parties: tuple[str, ...], gone: Code) -> None:
    played = Play(parties, code={"shop": gone})
    outcomes = played.run()
    for party in set(parties) - {"shop"}:
        assert isinstance(outcomes[party], Result), outcomes[party]
        played.sessions[party].ledger.read().verify()
    marks = [
        one for one in played.sessions["bank"].ledger.read().entries if one.kind in ("unconfirmed", "disconnected")
    ]
    assert [(one.kind, one.content["peer"]) for one in marks] == [
        ("unconfirmed", "shop"),
        *[("disconnected", party) for party in parties[2:]],
    ]
    seen = kinds(played.sessions["bank"])
    assert seen.index("complete") < seen.index("unconfirmed") < seen.index("closed") == len(seen) - 1
    compare(played.sessions["bank"].ledger.read(), played.sessions["shop"].ledger.read())


def test_a_goodbye_that_is_on_its_way_when_its_sender_leaves_counts() -> None:
    played = Play(code={"shop": vanish_after_its_own_goodbye})
    assert isinstance(played.run()["bank"], Result)
    assert "unconfirmed" not in kinds(played.sessions["bank"])


def test_a_goodbye_lost_on_its_way_leaves_ledgers_that_agree() -> None:
    """The sender had everything and closed; only its last word never arrived, and nothing is wrong with either."""

    def code(session: Session) -> Any:
        link = session.channel("lead")._link
        through = link.send

        def send(parts: Any, body_digest: bytes) -> None:
            if open_frame(b"".join(parts))[0].schema != declaration_of(Goodbye).schema:
                through(parts, body_digest)

        link.send = send  # type: ignore[method-assign]
        return play_honestly(session)

    played = Play(code={"shop": code})
    assert all(isinstance(one, Result) for one in played.run().values())
    bank, shop = (played.sessions[party].ledger.read() for party in ("bank", "shop"))
    assert "unconfirmed" in kinds(played.sessions["bank"])
    for ledger in (bank, shop):
        ledger.verify()
    compare(bank, shop)
    compare(shop, bank)


@pytest.mark.parametrize("gone", [vanish_after_finished, vanish_after_the_leads_goodbye], ids=["before", "after"])
def test_ledgers_agree_when_the_lost_party_closes_its_own_later(gone: Code) -> None:
    def closed_later(session: Session) -> None:
        gone(session)
        session.ledger.mark("unconfirmed", peer="bank")
        session.ledger.mark("closed")

    played = Play(code={"shop": closed_later})
    assert isinstance(played.run()["bank"], Result)
    bank, shop = (played.sessions[party].ledger.read() for party in ("bank", "shop"))
    shop.verify()
    compare(bank, shop)
    compare(shop, bank)


def test_a_lead_lost_before_its_goodbye_is_a_loss_and_after_it_is_not() -> None:
    def before(session: Session) -> None:
        up_to_the_end(session)
        session.channel("helper").receive(Finished)

    def after(session: Session) -> None:
        before(session)
        session.channel("helper").send(Goodbye(*session.channel("helper").transcript()))

    played = Play(code={"bank": before})
    assert type(played.run()["shop"]) is PeerLost
    assert "complete" not in kinds(played.sessions["shop"])
    played = Play(code={"bank": after})
    assert isinstance(played.run()["shop"], Result)
    played.sessions["shop"].ledger.read().verify()


def test_a_goodbye_before_the_peer_has_finished_is_out_of_step() -> None:
    def hasty(session: Session) -> None:
        up_to_the_end(session)
        session.channel("lead").send(Goodbye(*session.channel("lead").transcript()))

    assert type(Play(code={"shop": hasty}).run()["bank"]) is OutOfStep


@pytest.mark.parametrize("liar", ["bank", "shop"])
def test_a_goodbye_about_other_messages_is_never_taken_for_sound(liar: str) -> None:
    def lie(session: Session) -> None:
        up_to_the_end(session)
        (channel,) = session.all_channels
        channel.send(Finished()) if liar == "shop" else channel.receive(Finished)
        channel.send(Goodbye(bytes(32), bytes(32)))
        if liar == "shop":
            channel.receive(Goodbye)

    played = Play(code={liar: lie})
    honest = "shop" if liar == "bank" else "bank"
    assert type(played.run()[honest]) is LedgersDisagree
    assert kinds(played.sessions[honest])[-1] == "failed"


@pytest.mark.parametrize("parties", [("bank", "shop"), ("bank", "shop", "telco")], ids=len)
def test_a_result_is_kept_before_anyone_is_told_that_it_is(parties: tuple[str, ...]) -> None:
    known: dict[str, list[str]] = {}

    def keep(session: Session, holding: Any, result: Result) -> None:
        assert isinstance(result, Result)
        known[session.party] = kinds(session)

    played = Play(parties, keep=keep)
    assert all(isinstance(one, Result) for one in played.run().values())
    assert known.keys() == set(parties)
    for party, before in known.items():
        assert not {"Finished", "Goodbye", "complete"} & set(before)
        assert {"Finished", "Goodbye", "complete"} <= set(kinds(played.sessions[party]))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyError("secret")])
@pytest.mark.parametrize("party", ["bank", "shop"])
def test_a_result_that_cannot_be_kept_ends_the_run_for_everyone(party: str, error: Exception) -> None:
    def keep(session: Session, holding: Any, result: Result) -> None:
        if session.party == party:
            raise error

    parties = ("bank", "shop", "telco")
    played = Play(parties, keep=keep)
    outcomes = played.run()
    assert isinstance(outcomes.pop(party), RunFolderError | RoleFailed)
    for heard in outcomes.values():
        assert isinstance(heard, PeerFailed)
        assert (heard.party, heard.returns) == (party, isinstance(error, OSError))
    assert not any("complete" in kinds(session) for session in played.sessions.values())


def test_a_kept_result_outlives_the_loss_of_the_peer(tmp_path: Path) -> None:
    def keep(session: Session, holding: Any, result: Result) -> None:
        (tmp_path / f"{session.party}.result").write_text("kept")

    for gone in (vanish_before_finished, vanish_after_finished):
        played = Play(code={"shop": gone}, keep=keep, folder=tmp_path / gone.__name__)
        played.run()
        assert (tmp_path / "bank.result").read_text() == "kept"
        (tmp_path / "bank.result").unlink()
        ledger = Ledger.read(tmp_path / gone.__name__ / "bank" / "ledger.jsonl")
        assert ledger.entries[-1].kind == ("closed" if gone is vanish_after_finished else "failed")
