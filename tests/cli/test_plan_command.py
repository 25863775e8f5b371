"""`colonnade plan`: a forecast on stdout, talk on stderr; nothing is sent and nothing is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colonnade.crypto.calibration import CryptoCosts
from colonnade.launch import forecast
from colonnade.ledger import Ledger

SECURE = """\
[config]
key_size = "insecure_test"
epochs = 2
batch_size = 32
allow_leak = true
"""


@pytest.fixture
def secure(project: Any) -> Any:
    """A project whose run is encrypted."""
    project.edit("run.toml", '"splitnn"', '"secure_lr"')
    text = project.run_toml.read_text()
    start, end = text.index("[config]"), text.index("[evaluate]")
    project.run_toml.write_text(text[:start] + SECURE + text[end:])
    project.edit("bank/party.toml", '["splitnn"]', '["secure_lr"]')
    return project


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the time of measuring out of tests about something else."""

    def costs(size: str) -> CryptoCosts:
        made = forecast.without_costs(size).crypto
        return replace(made, key_generation=0.25, encryption=0.01, decryption=0.02, owner_encryption=0.005)

    monkeypatch.setattr(forecast, "measure_costs", costs)
    monkeypatch.setattr(forecast, "measure_speedup", lambda size, workers: float(workers))
    monkeypatch.setattr(forecast, "measure_message_seconds", lambda: 0.001)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_forecast_measures_for_real_and_writes_nothing(colonnade: Any, secure: Any) -> None:
    before = files(secure.folder)
    shown = colonnade("plan", "run.toml", "--json")
    assert shown.code == 0, shown.err
    assert files(secure.folder) == before
    found = shown.json
    assert (found["key_bits"], found["insecure_test"], found["launch"]) == (1024, True, "local")
    assert found["seconds"] > 0
    assert found["line"]["message_seconds"] > 0
    assert "Beware: insecure_test" in shown.err


def test_bytes_are_those_of_the_run_that_follows(colonnade: Any, secure: Any, unmeasured: None) -> None:
    found = colonnade("plan", "run.toml", "--json").json
    outcome = colonnade("run", "--simulate", "run.toml", "--quiet", "--no-compare", "--json").json
    assert (found["digest"], found["rows"]) == (outcome["digest"], outcome["rows"])
    for party, expected in found["bytes_sent"].items():
        sent = sum(Ledger.read(secure.run_folder / party / "ledger.jsonl").bytes_sent().values())
        assert expected == pytest.approx(sent, rel=0.02)
    for stage in found["stages"]:
        for party, expected in stage["bytes_sent"].items():
            assert expected == sum(one["bytes"] for one in stage["messages"] if one["sender"] == party)


def test_people_see_stages_epochs_key_and_totals(colonnade: Any, secure: Any, unmeasured: None) -> None:
    shown = colonnade("plan", "run.toml")
    assert shown.code == 0, shown.err
    for words in (
        "key size insecure_test (1024 bits)",
        "bank computes",
        "shop sends",
        "keys and set-up",
        "encrypting columns",
        "training, one epoch",
        "training, all 2 epochs",
        "in all, at most",
    ):
        assert words in shown.out
    assert "All parties share the" in shown.err


def test_a_party_forecasts_from_its_own_home(
    colonnade: Any, secure: Any, unmeasured: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (secure.folder / "shop").rename(secure.folder / "elsewhere")
    monkeypatch.chdir(secure.folder / "bank")
    asked = colonnade("plan", "../run.toml")
    assert asked.code == 2
    assert "--columns shop=N" in asked.message
    shown = colonnade("plan", "../run.toml", "--columns", "shop=2", "--shared-rows", "100")
    assert shown.code == 0, shown.err
    assert "Each party has a machine like this one; between them 100 Mbit/s and 20 ms" in shown.err
    near = colonnade("plan", "../run.toml", "--columns", "shop=2", "--local", "--json").json
    far = colonnade("plan", "../run.toml", "--columns", "shop=2", "--bandwidth", "1", "--latency", "200", "--json").json
    assert near["seconds"] < far["seconds"]
    assert near["bytes_sent"] == far["bytes_sent"]
    named = colonnade("plan", "../run.toml", "--home", "../elsewhere", "--home", "bank=.", "--json")
    assert named.json["columns"] == {"bank": 4, "shop": 2}


def test_a_method_without_encryption_says_what_it_does_not_forecast(
    colonnade: Any, project: Any, unmeasured: None
) -> None:
    shown = colonnade("plan", "run.toml")
    assert shown.code == 0, shown.err
    assert "nothing is encrypted" in shown.out
    assert "Times are forecast for encrypted methods only" in shown.err
    found = colonnade("plan", "run.toml", "--json").json
    assert found["seconds"] is None
    assert found["bytes_sent"]["shop"] > 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--shared-rows", "0"), "--shared-rows must be at least 1"),
        (("--shared-rows", "5000"), "rows of 'bank'"),
        (("--shared-rows", "3"), "3 shared rows"),
        (("--columns", "shop"), "--columns PARTY=NUMBER"),
        (("--columns", "shop=many"), "does not say how many"),
        (("--columns", "shop=0"), "does not say how many"),
        (("--columns", "shap=3"), "Did you mean 'shop'?"),
        (("--classes", "1"), "--classes must be 2 or more"),
        (("--classes", "-2"), "--classes must be at least 0"),
        (("--bandwidth", "0"), "--bandwidth must be at least"),
        (("--bandwidth", "nan"), "--bandwidth must be at least"),
        (("--latency", "-1"), "--latency must be at least 0"),
        (("--home", "shap=shop"), "Did you mean 'shop'?"),
        (("--home", "shop=nowhere"), "not at nowhere"),
        (("--home", "bank=shop"), "belongs to 'shop'"),
        (("--home", "."), "no party.toml"),
    ],
)
def test_wrong_words_give_one_sentence(
    colonnade: Any, secure: Any, unmeasured: None, words: tuple[str, ...], says: str
) -> None:
    shown = colonnade("plan", "run.toml", *words)
    assert shown.code == 2
    assert shown.out == ""
    assert says in shown.message
    assert "Traceback" not in shown.err


def test_a_home_of_a_stranger_is_refused(colonnade: Any, secure: Any, unmeasured: None) -> None:
    (secure.folder / "telco").mkdir()
    home = (secure.folder / "shop" / "party.toml").read_text().replace('"shop"', '"telco"')
    (secure.folder / "telco" / "party.toml").write_text(home)
    shown = colonnade("plan", "run.toml", "--home", "telco")
    assert shown.code == 2
    assert "home of 'telco', which is not a party" in shown.message
