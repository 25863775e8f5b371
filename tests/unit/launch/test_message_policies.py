"""A party that forbids single messages: plain codes of fedcvt must not leave, protected ones may."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.parties import with_policies
from tests.worlds import integers_for_ciphertexts, name_of

import colonnade as cn
from colonnade.errors import ConfigError, PolicyRefused
from colonnade.session import Channel

PLAIN_CODES = ("PLAIN Codes", "PLAIN HeldOutCodes")


def tables(rows: int = 120, with_label: bool = True) -> dict[str, cn.PartyTable]:
    random = np.random.default_rng(3)
    worth = random.normal(size=rows)
    bank = pd.DataFrame({"id": range(rows), "income": worth, "pays": np.where(worth > 0, "yes", "no")})
    shop = pd.DataFrame({"id": range(rows), "spent": worth + random.normal(size=rows)})[20:]
    label = {"label": "pays"} if with_label else {"drop": ["pays"]}
    return {
        "bank": cn.PartyTable(bank[:100], id="id", name="bank", **label),
        "shop": cn.PartyTable(shop, id="id", name="shop"),
    }


def train(level: int, policies: dict[str, cn.Policy], **more: Any) -> cn.Run:
    few = {"epochs": 1, "shared_width": 2, "unique_width": 2, "candidates": ("fedcvt",), "warmup_epochs": 0}
    config = cn.FedCVT(level=level, key_size="insecure_test", **few)
    with integers_for_ciphertexts():
        return cn.simulate(config, with_policies(tables(), policies), seed=7, **more)


@pytest.mark.parametrize("rule", ["PLAIN", "Codes", "PLAIN Codes"])
def test_a_party_refuses_plain_codes_before_any_message(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, str]] = []
    send = Channel.send

    def noted(channel: Channel, message: Any) -> None:
        sent.append((channel.party, name_of(message)))
        send(channel, message)

    monkeypatch.setattr(Channel, "send", noted)
    with pytest.raises(PolicyRefused, match=r"'shop' refuses this run by its rule policy\.never_send"):
        train(0, {"shop": cn.Policy(never_send=(rule,))})
    assert {name for party, name in sent if party == "shop"} <= {"Failed"}, "it only says that it stops"
    train(0, {})
    assert {"Codes", "BlindedIds"} <= {name for _, name in sent}, "else it would have sent them"


@pytest.mark.parametrize("level", [1, 2])
def test_a_party_that_forbids_plain_codes_takes_part_where_they_are_protected(level: int) -> None:
    policies = {"shop": cn.Policy(never_send=PLAIN_CODES)}
    run = train(level, policies)
    sent = {f"{one.protection} {one.message}" for one in run.ledgers["shop"].summary() if one.direction == "sent"}
    assert not sent & set(PLAIN_CODES)
    assert ("NOISED Codes" in sent) is (level == 1)
    with integers_for_ciphertexts():
        assert len(run.predict(with_policies(tables(with_label=False), policies)))


def test_codes_of_new_rows_are_another_message_than_those_of_training() -> None:
    run = train(0, {})
    with pytest.raises(PolicyRefused, match="the message HeldOutCodes is in its list"):
        run.predict(with_policies(tables(with_label=False), {"shop": cn.Policy(never_send=("HeldOutCodes",))}))
    assert len(run.predict(with_policies(tables(with_label=False), {"shop": cn.Policy(never_send=("Codes",))})))


@pytest.mark.parametrize(("name", "rule"), [("bank", "CodeGradient"), ("shop", "Codes"), ("shop", "NOISED Codes")])
def test_whoever_sends_a_message_may_forbid_it(name: str, rule: str) -> None:
    with pytest.raises(PolicyRefused, match=f"the message {rule} is in its list"):
        train(1, {name: cn.Policy(never_send=(rule,))})


def test_a_simulation_refuses_policies_that_name_no_message() -> None:
    slip = {"shop": cn.Policy(never_send=("HeldOutCode",))}
    with pytest.raises(ConfigError, match=r"Did you mean 'HeldOutCodes'\?"):
        train(0, slip)
    run = train(0, {})
    with pytest.raises(ConfigError, match=r"Did you mean 'HeldOutCodes'\?"):
        run.predict(with_policies(tables(with_label=False), slip))
