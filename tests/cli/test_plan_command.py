"""`colonnade plan`: a rehearsal on made-up tables; its findings on stdout, talk on stderr; nothing is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colonnade.ledger import Ledger

SECURE = """\
[config]
key_size = "insecure_test"
epochs = 2
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


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_messages_and_bytes_are_those_of_the_run_that_follows_and_nothing_is_kept(colonnade: Any, secure: Any) -> None:
    before = files(secure.folder)
    shown = colonnade("plan", "run.toml", "--json")
    assert shown.code == 0, shown.err
    assert files(secure.folder) == before
    assert "Beware: insecure_test" in shown.err
    found = shown.json
    outcome = colonnade("run", "--simulate", "run.toml", "--quiet", "--no-compare", "--json").json
    assert found["digest"] == outcome["digest"]
    assert found["seconds"] > 0
    for party, expected in found["bytes_sent"].items():
        totals = Ledger.read(secure.run_folder / party / "ledger.jsonl").summary()
        sent = {(one.peer, one.message): (one.count, one.bytes) for one in totals if one.direction == "sent"}
        planned = {
            (one["receiver"], one["message"]): (one["count"], one["bytes"])
            for one in found["messages"]
            if one["sender"] == party
        }
        assert {name: count for name, (count, _) in planned.items()} == {
            name: count for name, (count, _) in sent.items()
        }
        assert expected == pytest.approx(sum(size for _, size in sent.values()), rel=0.01)


def test_a_party_without_a_home_here_is_described_by_options(colonnade: Any, secure: Any) -> None:
    home = ("--home", "bank=bank", "--shared-rows", "100")
    (secure.folder / "shop" / "party.toml").unlink()
    refused = colonnade("plan", "run.toml", *home)
    assert refused.code == 2
    assert "--columns shop=20" in refused.err
    shown = colonnade("plan", "run.toml", *home, "--columns", "shop=6", "--bandwidth", "10", "--latency", "5")
    assert shown.code == 0, shown.err
    assert "in all, at most" in shown.out
    assert "10 Mbit/s and 5 ms one way" in shown.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--shared-rows", "0"), "greater than or equal to 1"),
        (("--classes", "1"), "--classes must be 2 or more"),
        (("--bandwidth", "nan"), "valid integer"),
        (("--columns", "nobody=3"), "nobody"),
        (("--stage", "finetune"), "has no stage 'finetune'"),
        (("--shared-rows", "1000000"), "is more than the"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    colonnade: Any, project: Any, options: tuple[str, ...], said: str
) -> None:
    refused = colonnade("plan", "run.toml", *options)
    assert refused.code == 2
    assert said in refused.err
    assert "Traceback" not in refused.err
