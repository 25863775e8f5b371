"""`cn.join`: one party of a real run from Python, over mutual TLS on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.launch.test_joining import BOTH, Group, group_in, together

import colonnade as cn
from colonnade.errors import PolicyRefused, RunFolderError
from colonnade.launch import join as join_module
from colonnade.launch.join import Joining
from colonnade.ledger import Ledger, compare
from colonnade.session import Progress, read_json

pytestmark = pytest.mark.timeout(180)
WORDS = "The officer agreed on Monday"


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return group_in(tmp_path)


def join(group: Group, party: str, **options: Any) -> cn.Run:
    return cn.join(group.homes.folder / "run.toml", group.home(party), **{"consent": WORDS, **options})


def test_both_parties_join_and_each_has_its_own_things_only(group: Group) -> None:
    seen: list[Progress] = []
    runs = together(
        {
            "bank": lambda: join(group, "bank", observer=seen.append, compare=True),
            "shop": lambda: join(group, "shop"),
        }
    )
    for party in BOTH:
        run = runs[party]
        assert isinstance(run, cn.Run), run
        assert list(run.parties) == list(run.parts) == list(run.ledgers) == [party]
        assert run.folder == group.folder(party)
        assert read_json(run.folder / "consent.json")["how"] == WORDS
        assert (run.folder / "report.html").exists()
        again = cn.load_run(run.folder)
        assert (again.plan, again.metrics if party == "bank" else {}) == (run.plan, run.evaluations and run.metrics)
    assert set(runs["bank"].evaluations) - {"average"} == {"together", "alone"}
    assert runs["shop"].evaluations == {}, "only the label holder can judge"
    assert {one.party for one in seen} == {"bank"}
    compare(*(runs[party].ledgers[party] for party in BOTH))
    with pytest.raises(RunFolderError, match="The parts of shop are not here"):
        runs["bank"].predict({})
    with pytest.raises(RunFolderError, match="holds a finished run already"):
        join(group, "bank")


def test_nothing_leaves_without_consent(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_module, "Endpoint", lambda *_, **__: pytest.fail("something was opened"))
    for consent in (None, ""):
        with pytest.raises(PolicyRefused, match=r"policy\.consent"):
            join(group, "bank", consent=consent)

    def refuse(joining: Joining) -> str:
        assert joining.table.rows == 400
        assert ("CutGradient", "shop") in {(one.name, peer) for one, peer in joining.sends()}
        raise PolicyRefused("The officer says no.")

    with pytest.raises(PolicyRefused, match="The officer says no"):
        join(group, "bank", consent=refuse)
    assert not group.folder("bank").exists(), "a run that was refused leaves no trace"


def test_a_partner_that_is_killed_is_waited_for_and_the_run_resumes(tmp_path: Path) -> None:
    group = group_in(tmp_path)
    text = (tmp_path / "run.toml").read_text().replace("epochs = 2", "epochs = 20").replace("every = 50", "every = 10")
    (tmp_path / "run.toml").write_text(text)

    def disturb() -> None:
        group.homes.start("shop")
        group.homes.wait_for_entries("shop", 250)
        assert group.homes.kill("shop"), group.homes.logs()
        group.homes.start("shop")
        group.homes.wait()

    try:
        ended = together({"bank": lambda: join(group, "bank"), "shop": disturb})
    finally:
        group.homes.stop()
    run = ended["bank"]
    assert isinstance(run, cn.Run), run
    assert "resumed" in {entry.kind for entry in run.ledgers["bank"].entries}
    compare(run.ledgers["bank"], Ledger.read(group.folder("shop") / "ledger.jsonl"))
    assert run.metrics["auc"] > 0.7
