from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.adversary.hostile import any_text
from tests.unit.session.toys import Answer, Ask, Play, helper, method, plan

from colonnade import __version__
from colonnade.errors import (
    ConfigError,
    FrameRefused,
    HandshakeRefused,
    LedgersDisagree,
    OtherVersion,
    PeerFailed,
    PolicyRefused,
    WrongContent,
)
from colonnade.ledger import compare
from colonnade.messages import PLAIN, WIRE_VERSION, declaration_of, message, seal
from colonnade.session import Alignment, Evaluate, Policy, Result, handshake
from colonnade.session.control import AgreedField, Failed, Finished, Goodbye, HeldCheckpoints, Hello, ResumeFrom


def changed_hello(monkeypatch: pytest.MonkeyPatch, who: str, /, **changes: Any) -> None:
    real = handshake._hello

    def hello(session: Any) -> Hello:
        made = real(session)
        return dataclasses.replace(made, **changes) if session.party == who else made

    monkeypatch.setattr(handshake, "_hello", hello)


def versions_in(session: Any) -> dict[str, str]:
    """Return what a ledger says of partners with another package."""
    marks = [entry.content for entry in session.ledger.read().entries if entry.kind == "version"]
    return {mark["peer"]: mark["version"] for mark in marks}


def refused(outcomes: dict[str, Any], *words: str) -> None:
    """Both parties refuse, and each says what differs."""
    for party, error in outcomes.items():
        assert isinstance(error, HandshakeRefused), (party, error)
        for word in words:
            assert word in str(error), str(error)


def test_parties_that_agree_finish_and_their_ledgers_agree() -> None:
    played = Play(("bank", "shop", "telco"))
    outcomes = played.run()
    assert all(isinstance(one, Result) for one in outcomes.values()), outcomes
    ledgers = {name: session.ledger.read() for name, session in played.sessions.items()}
    for ledger in ledgers.values():
        ledger.verify()
    compare(ledgers["bank"], ledgers["shop"])
    compare(ledgers["telco"], ledgers["bank"])


@pytest.mark.parametrize("version", ["9.9.9", "0.0.1"])
def test_a_partner_with_another_package_is_noted_and_not_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    changed_hello(monkeypatch, "shop", version=version)
    played = Play(("bank", "shop", "telco"))
    with pytest.warns(OtherVersion) as noted:
        outcomes = played.run()
    assert all(isinstance(one, Result) for one in outcomes.values()), outcomes
    marks = {name: versions_in(session) for name, session in played.sessions.items()}
    assert marks == {"bank": {"shop": version}, "shop": {"bank": __version__}, "telco": {}}
    told = [str(one.message) for one in noted]
    assert (
        f"'bank' runs colonnade {__version__} and 'shop' {version}. Both speak the same protocol" in told[0] + told[1]
    )
    assert len(told) == 2, "one note at each of the two"


def test_a_hostile_version_is_kept_and_shown_short_and_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    changed_hello(monkeypatch, "shop", version="<b>" + "x" * 250)
    played = Play()
    with pytest.warns(OtherVersion) as noted:
        outcomes = played.run()
    assert all(isinstance(one, Result) for one in outcomes.values()), outcomes
    shown = [versions_in(played.sessions["bank"])["shop"], *(str(one.message) for one in noted)]
    assert all(one.isprintable() and len(one) < 400 for one in shown), shown


def test_another_wire_version_is_refused_and_says_what_to_do() -> None:
    """Whatever else has changed, the fifth byte of a frame says how to read it."""

    def code(session: Any) -> None:
        hello = handshake._hello(session)
        (parts,) = [b"".join(seal(declaration_of(hello), hello, context=bytes(16), sequence=0, step=0)[1])]
        front = parts[:4] + bytes([WIRE_VERSION + 1]) + parts[5:96]
        session.channel("lead")._link.send([front + hashlib.sha256(front).digest() + parts[128:]])
        session.channel("lead").receive(Hello)

    error = Play(code={"shop": code}).run()["bank"]
    assert isinstance(error, FrameRefused)
    assert f"wire version {WIRE_VERSION + 1} arrived; this side speaks version {WIRE_VERSION}. Install" in str(error)


def test_another_party_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    changed_hello(monkeypatch, "shop", party="stranger")
    error = Play().run()["bank"]
    assert isinstance(error, HandshakeRefused)
    assert "expected helper 'shop' but was greeted by helper 'stranger'" in str(error)


def test_another_role_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    changed_hello(monkeypatch, "shop", role="lead")
    error = Play().run()["bank"]
    assert isinstance(error, HandshakeRefused)
    assert "greeted by lead 'shop'" in str(error)


def test_another_run_name_is_refused_by_both() -> None:
    refused(Play(plans={"shop": plan(name="another")}).run(), "'another'", "'run'", "Start the same run")


def test_another_stage_is_refused_by_both() -> None:
    refused(Play(plans={"shop": plan(stage="other")}).run(), "(other)", "(train)")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"seed": 2}, "run.seed"),
        ({"method": "toys"}, "run.method"),
        ({"alignment": Alignment(protocol="given")}, "alignment.protocol"),
        ({"alignment": Alignment(case="fold")}, "alignment.case"),
        ({"evaluate": Evaluate(test_fraction=0.3)}, "evaluate.test_fraction"),
        ({"evaluate": Evaluate(validation_fraction=0.3)}, "evaluate.validation_fraction"),
        ({"config": {"epochs": 3}}, "config.epochs"),
    ],
)
def test_each_differing_setting_is_named_at_both(changes: dict[str, Any], name: str) -> None:
    refused(Play(plans={"shop": plan(**changes)}).run(), f"disagree on {name}. Use the same run.toml")


def test_all_differing_settings_are_named() -> None:
    ours, theirs = {"epochs": 1, "width": 2, "same": 3}, {"epochs": 2, "width": 3, "same": 3}
    plans = {"bank": plan(config=ours), "shop": plan(config=theirs, seed=5)}
    refused(Play(plans=plans).run(), "disagree on config.epochs, config.width, run.seed.")


def test_another_set_of_messages_is_refused() -> None:
    @message(sender="lead", receiver="helper", protection=PLAIN, step="extra")
    class Extra:
        """More. Reveals: more."""

        values: np.ndarray

    refused(Play(methods={"shop": method(messages=(Ask, Answer, Extra))}).run(), "declare different messages for toy")


@pytest.mark.parametrize("differs", ["messages", "fields"])
def test_what_differs_between_versions_says_that_they_do(monkeypatch: pytest.MonkeyPatch, differs: str) -> None:
    changes = {"messages": {"messages": bytes(32)}, "fields": {"fields": (AgreedField("config.new", bytes(16)),)}}
    changed_hello(monkeypatch, "shop", version="9.9.9", **changes[differs])
    words = (f"'bank' runs colonnade {__version__} and 'shop' 9.9.9", "nstall the same version at both")
    error = Play().run()["bank"]
    assert isinstance(error, HandshakeRefused)
    for word in words:
        assert word in str(error), str(error)


def test_methods_of_other_packages_are_told_apart_by_package_and_version() -> None:
    played = Play(methods={"shop": dataclasses.replace(method(messages=(Ask,)), package="toys 0.3")})
    refused(played.run(), f"{__version__} with toys 0.3", "Install the same version at both")


def test_a_message_of_another_form_is_refused() -> None:
    @message(sender="helper", receiver="lead", protection=PLAIN, step="answer")
    class Answer:
        """An answer. Reveals: it, now in the clear."""

        values: np.ndarray

    refused(Play(methods={"shop": method(messages=(Ask, Answer))}).run(), "declare different messages for toy")


def test_our_own_nonce_back_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake.secrets, "token_bytes", lambda size: bytes(size))
    refused(Play().run(), "invalid nonce")


def test_nonces_are_fresh_in_every_run() -> None:
    contexts = set()
    for _ in range(3):
        played = Play()
        played.run()
        contexts |= set(played.sessions["bank"]._channels["shop"].connections)
    assert len(contexts) == 6


def test_a_third_party_learns_who_refused_whom() -> None:
    """The lead quarrels with one helper while the other has already taken its greeting for sound."""
    parties = ("bank", "shop", "telco")
    for odd in ("shop", "telco"):
        outcomes = Play(parties, plans={odd: plan(parties, seed=2)}).run()
        other = "telco" if odd == "shop" else "shop"
        assert isinstance(outcomes["bank"], HandshakeRefused)
        assert isinstance(outcomes[other], PeerFailed), outcomes[other]
        assert outcomes[other].party == "bank"
        assert f"'{odd}' disagree on run.seed" in str(outcomes[other])


def test_a_third_party_learns_whose_policy_refused() -> None:
    parties = ("bank", "shop", "telco")
    for strict in ("shop", "telco"):
        outcomes = Play(parties, policies={strict: Policy(minimum_shared_rows=1000)}).run()
        assert isinstance(outcomes.pop(strict), PolicyRefused)
        for error in outcomes.values():
            assert isinstance(error, PeerFailed), error
            assert (error.party, error.step, error.cause) == (strict, 0, "its policy refuses this run.")


def test_the_lead_announces_the_highest_common_step(tmp_path: Path) -> None:
    def code(session: Any) -> Any:
        handshake.greet(session)
        session.channel("lead").send(HeldCheckpoints((5, 7, 9)))
        return session.channel("lead").receive(ResumeFrom).step

    assert Play(code={"shop": code}).run()["shop"] is None


@pytest.mark.parametrize("step", [3, 0])
def test_a_lead_cannot_send_us_to_a_step_we_do_not_hold(step: int) -> None:
    def code(session: Any) -> None:
        handshake.greet(session)
        session.channel("helper").receive(HeldCheckpoints)
        session.channel("helper").send(ResumeFrom(step))
        session.channel("helper").receive(Failed)

    error = Play(code={"bank": code}).run()["shop"]
    assert isinstance(error, HandshakeRefused)
    assert "holds no checkpoint" in str(error)


def test_a_goodbye_that_does_not_fit_is_refused() -> None:
    def code(session: Any) -> None:
        handshake.greet(session)
        handshake.agree_on_resume(session)
        helper(session, None, None)  # type: ignore[arg-type]
        session.channel("lead").send(Finished())
        session.channel("lead").send(Goodbye(bytes(32), bytes(32)))
        session.channel("lead").receive(Goodbye)
        session.channel("lead").receive(Failed)

    error = Play(code={"shop": code}).run()["bank"]
    assert isinstance(error, LedgersDisagree)
    assert "did not see the same messages" in str(error)


def test_an_unknown_stage_is_named() -> None:
    outcomes = Play(plans={name: plan(stage="dance") for name in ("bank", "shop")}).run()
    errors = [error for error in outcomes.values() if isinstance(error, ConfigError)]
    assert errors
    assert "no stage 'dance'" in str(errors[0])


def test_a_hello_of_thousands_of_fields_makes_a_short_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = tuple(AgreedField(f"field {number} " + "x" * 100, bytes(16)) for number in range(4000))
    changed_hello(monkeypatch, "shop", fields=fields)
    error = Play().run()["bank"]
    assert isinstance(error, HandshakeRefused)
    assert "disagree on alignment.case, alignment.mode, alignment.protocol" in str(error)
    assert "more" in str(error)
    assert len(str(error)) < 5000
    assert str(error).isprintable()


@pytest.mark.parametrize("name", ["party", "role", "run", "stage"])
def test_hostile_text_in_a_greeting_is_shown_short_and_harmless(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    changed_hello(monkeypatch, "shop", **{name: "x" * 250})
    error = Play().run()["bank"]
    assert isinstance(error, HandshakeRefused)
    assert "x" * 65 not in str(error)
    changed_hello(monkeypatch, "shop", **{name: "\x1b[2J\r\n\u202e" + "x" * 500_000})
    with any_text():
        error = Play().run()["bank"]
    assert isinstance(error, WrongContent)
    assert len(str(error)) < 1000
    assert str(error).isprintable()


def test_frames_after_the_greeting_are_bound_to_it() -> None:
    """The same party, run and message from an earlier encounter is refused."""
    first = Play()
    first.run()
    old = [frame for sender, receiver, frame in first.frames if (sender, receiver) == ("shop", "bank")]

    def code(session: Any) -> None:
        handshake.greet(session)
        session.channel("lead")._link.send([old[1]])
        session.channel("lead").receive(Failed)

    error = Play(code={"shop": code}).run()["bank"]
    assert isinstance(error, FrameRefused)
    assert "another run, connection or direction" in str(error)
