from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.session.toys import Ask, Play, helper, lead, method, plan

from colonnade.errors import ConfigError, PeerFailed, PolicyRefused
from colonnade.launch.home import read_party_home
from colonnade.messages import ANYONE, declaration_of
from colonnade.session import CONTROL, Policy, Result

HEAD = """\
[party]
name = "bank"

[table]
source = "customers.csv"
id = "customer"

[policy]
# a comment, to move the lines
"""


@pytest.fixture(autouse=True)
def _toy_is_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let policies name the messages of these tests."""
    monkeypatch.setattr("colonnade.methods.METHODS", (method(),))


def policy_of(folder: Path, rules: str) -> Policy:
    folder.mkdir(exist_ok=True)
    (folder / "party.toml").write_text(HEAD + rules)
    return read_party_home(folder).policy


@pytest.mark.parametrize(
    ("rule", "content", "reason"),
    [
        ("methods", '["secure_lr"]', "the method 'toy' is not in its list"),
        ("methods", "[]", "the method 'toy' is not in its list"),
        ("partners", '["telco"]', "the partner 'shop' is not in its list"),
        ("partners", "[]", "the partner 'shop' is not in its list"),
        ("never_send", '["PLAIN"]', "the message Ask is PLAIN"),
        ("never_send", '[\n  "MASKED",\n  "Ask",\n]', "the message Ask is in its list"),
        ("minimum_shared_rows", "101", "only 100 rows are shared"),
        ("maximum_runs", "3", "3 runs have been made already"),
        ("maximum_runs", "0", "3 runs have been made already"),
    ],
)
def test_each_rule_refuses_by_name_and_line(tmp_path: Path, rule: str, content: str, reason: str) -> None:
    policy = policy_of(tmp_path / "bank", f"\n{rule} = {content}\n")
    played = Play(policies={"bank": policy}, earlier_runs=3)
    outcomes = played.run()
    error = outcomes["bank"]
    assert isinstance(error, PolicyRefused)
    assert f"'bank' refuses this run by its rule policy.{rule}" in str(error)
    assert f"party.toml, line {HEAD.count(chr(10)) + 2}" in str(error)
    assert reason in str(error)
    # The peer learns that it was refused, not by which rule; and nothing of the method was sent.
    assert isinstance(outcomes["shop"], PeerFailed)
    assert outcomes["shop"].cause == "its policy refuses this run."
    sent = [entry.content["message"] for entry in played.sessions["bank"].ledger.read().messages()]
    assert "Ask" not in sent
    # How many rows are shared is known only after the greeting; all else before.
    assert ("Hello" in sent) is (rule == "minimum_shared_rows")


def test_rules_that_are_met_refuse_nothing(tmp_path: Path) -> None:
    rules = 'methods = ["toy"]\npartners = ["shop"]\nnever_send = ["MASKED", "NOISED", "ENCRYPTED"]\n'
    policy = policy_of(tmp_path / "bank", rules + "minimum_shared_rows = 100\nmaximum_runs = 4\n")
    outcomes = Play(policies={"bank": policy}, earlier_runs=3).run()
    assert all(isinstance(one, Result) for one in outcomes.values()), outcomes


def test_the_line_is_that_of_the_rule_and_not_of_a_key_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "bank"
    folder.mkdir()
    table, party = '[table]\nsource = "a.csv"\nid = "methods"\n', '[party]\nname = "bank"\n'
    rules = '[policy]\npartners = [\n  "telco",\n]\nmethods = ["x"]\n'
    (folder / "party.toml").write_text(table + rules + party)
    with pytest.raises(PolicyRefused, match=r"party\.toml, line 8\)"):
        read_party_home(folder).policy.check_run("bank", "toy", [], [])
    with pytest.raises(PolicyRefused, match=r"party\.toml, line 5\)"):
        read_party_home(folder).policy.check_run("bank", "x", ["shop"], [])


def test_never_send_holds_at_every_send_even_without_the_check_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["colonnade.session.play"], "_check_policy", lambda session: None)
    played = Play(policies={"bank": Policy(never_send=("PLAIN",))})
    outcomes = played.run()
    assert isinstance(outcomes["bank"], PolicyRefused)
    assert "policy.never_send" in str(outcomes["bank"])
    sent = [entry.content["message"] for entry in played.sessions["bank"].ledger.read().messages()]
    assert "Ask" not in sent
    assert "Hello" in sent, "the session's own messages are exempt"
    assert isinstance(outcomes["shop"], PeerFailed)


@pytest.mark.parametrize("rule", ["MASKED", "Answer", "MASKED Answer"])
def test_never_send_holds_for_a_message_that_is_sent_late(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    monkeypatch.setattr(sys.modules["colonnade.session.play"], "_check_policy", lambda session: None)
    outcomes = Play(policies={"shop": Policy(never_send=(rule,))}).run()
    assert isinstance(outcomes["shop"], PolicyRefused)
    assert isinstance(outcomes["bank"], PeerFailed)
    assert (outcomes["bank"].party, outcomes["bank"].step) == ("shop", 1)


def test_control_messages_are_exempt_and_carry_no_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(never_send=("PLAIN", "NOISED", "MASKED", "ENCRYPTED"))
    for cls in CONTROL:
        declaration = declaration_of(cls)
        assert (declaration.sender, declaration.receiver) == (ANYONE, ANYONE)
        assert "array" not in declaration.body.describe()
        assert "tensor" not in declaration.body.describe()
    outcomes = Play(policies={"bank": policy}).run()
    assert "the message Ask is PLAIN" in str(outcomes["bank"])
    monkeypatch.setattr(sys.modules["colonnade.session.play"], "_check_policy", lambda session: None)
    silent = method(lambda *_: Result(), lambda *_: Result())
    outcomes = Play(policies={"bank": policy, "shop": policy}, methods={"bank": silent, "shop": silent}).run()
    assert all(isinstance(one, Result) for one in outcomes.values()), outcomes


@pytest.mark.parametrize("rule", ["PLAIN", "Ask", "PLAIN Answer"])
def test_a_party_that_sends_nothing_forbidden_need_not_refuse_what_others_send(rule: str) -> None:
    outcomes = Play(policies={"shop": Policy(never_send=(rule,))}).run()
    assert all(isinstance(one, Result) for one in outcomes.values()), outcomes


@pytest.mark.parametrize(
    "rules",
    [
        *(
            {"never_send": (name,)}
            for name in ("PLAN", "plain", "Plain", "codes", "", "A", "Ask ", "Ask.Answer", "Plain Ask")
        ),
        {"minimum_shared_rows": -1},
        {"maximum_runs": -1},
    ],
)
def test_a_rule_that_cannot_be_is_refused(rules: Any) -> None:
    with pytest.raises(ConfigError, match=r"policy\."):
        Policy(**rules)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Answr", "Did you mean 'Answer'?"),
        ("BlindedId", "Did you mean 'BlindedIds'?"),
        ("Plane", "Did you mean 'PLAIN'?"),
        ("Zzzzz", "'colonnade methods NAME' lists a method's messages"),
        ("Hello", "a message of the session itself"),
    ],
)
def test_a_file_that_forbids_a_message_nobody_has_is_refused(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=f"party.toml: policy.never_send names '{name}'") as refused:
        policy_of(tmp_path / "bank", f'never_send = ["PLAIN", "{name}"]\n')
    assert told in str(refused.value)


def test_messages_of_methods_and_of_alignment_may_be_forbidden(tmp_path: Path) -> None:
    policy = policy_of(tmp_path / "bank", 'never_send = ["Ask", "BlindedIds", "MASKED"]\n')
    assert policy.unsent_messages == ("Ask", "BlindedIds")


def test_what_is_not_declared_by_the_method_cannot_be_sent() -> None:
    from colonnade.errors import DeclarationError
    from colonnade.messages import PLAIN, message

    @message(sender="lead", receiver="helper", protection=PLAIN, step="aside")
    class Aside:
        """A secret. Reveals: it."""

        values: np.ndarray

    @message(sender="helper", receiver="lead", protection=PLAIN, step="aside")
    class Backwards:
        """A secret. Reveals: it."""

        values: np.ndarray

    for undeclared in (Aside, Backwards):

        def code(session: Any, holding: Any, config: Any, cls: type = undeclared) -> Any:
            session.channel("helper").send(cls(np.zeros(2)))

        messages = (Ask, Backwards, *method().messages[1:])
        methods = {name: method(code, helper, messages) for name in ("bank", "shop")}
        outcomes = Play(methods=methods).run()
        assert isinstance(outcomes["bank"], DeclarationError), outcomes["bank"]
        assert "may not send" in str(outcomes["bank"])
        assert isinstance(outcomes["shop"], PeerFailed)


def test_a_method_whose_messages_or_stages_name_other_roles_is_refused() -> None:
    import dataclasses

    from colonnade.errors import DeclarationError
    from colonnade.methods.splitnn.messages import CutWidth
    from colonnade.session import Stage

    for wrong in (
        {"stages": {"train": Stage(roles={"lead": lead, "helper": helper}, messages=(CutWidth,))}},
        {"lead": "nobody"},
        {"stages": {"train": Stage(roles={})}},
        {"stages": {"train": Stage(roles={"lead": lead, "helper": helper, "third": helper})}},
        {"stages": {"train": Stage(roles={"lead": lead, "helper": helper}, after=("dual",))}},
        {"stages": {"train": Stage(roles={"lead": lead, "helper": helper}, rows="own")}},
    ):
        with pytest.raises(DeclarationError):
            dataclasses.replace(method(), **wrong)


@pytest.mark.parametrize("parties", [("bank",), ("bank", "bank")])
def test_a_plan_that_does_not_fit_the_roles_is_refused(parties: Any) -> None:
    with pytest.raises(ConfigError):
        method().check_roles(plan(parties))


@pytest.mark.parametrize("name", ["", "a b", "../x", ".hidden", "a/b", "x" * 65, "naïve", "a\n"])
def test_names_that_could_not_be_a_folder_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        plan(name=name)
    with pytest.raises(ConfigError, match="name"):
        plan((name, "shop"))


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True, "7", None])
def test_a_seed_that_is_not_one_is_refused(seed: Any) -> None:
    with pytest.raises(ConfigError, match="seed"):
        plan(seed=seed)
