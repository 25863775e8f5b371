"""What a run and its report make of findings, overrides, several targets and messages that go both ways."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

import colonnade as cn
from colonnade.errors import ConfigError, RunFolderError
from colonnade.launch.run import Run
from colonnade.messages import PLAIN, declaration_of, message
from colonnade.methods.ftl import METHOD
from colonnade.reports import RunRecord, render
from colonnade.session import CONTROL, Evaluate, Finding, RunPlan

QUICK: dict[str, Any] = {"width": 2, "iterations": 1, "protection": "none", "margin": -1.0}
NO_TEST = Evaluate(test_fraction=0.2, validation_fraction=0.2)


def tables(targets: tuple[str, ...] = ("shop",), sources: tuple[str, ...] = ("bank",)) -> dict[str, cn.PartyTable]:
    random = np.random.default_rng(4)
    worth = random.normal(size=120)
    ids = np.arange(120)
    found = {}
    for name in sources:
        frame = pd.DataFrame({"party": ids, "income": worth + random.normal(0, 0.5, 120), "pays": worth > 0})
        found[name] = cn.PartyTable(frame, id="party", label="pays", name=name)
    for name in targets:
        frame = pd.DataFrame({"party": ids, "spent": worth + random.normal(0, 0.5, 120)})
        found[name] = cn.PartyTable(frame, id="party", name=name)
    return found


def rows_of(table: cn.PartyTable, count: int) -> cn.PartyTable:
    return table.take(np.arange(count))


# --- findings -----------------------------------------------------------------------------------------------------


def test_findings_are_read_back_as_they_were(tmp_path: Path) -> None:
    run = cn.simulate(cn.FTL(**QUICK), tables(), folder=tmp_path / "run", evaluate=NO_TEST)
    found = cn.load_run(tmp_path / "run")
    assert found.findings == run.findings
    (finding,) = found.findings.values()
    assert isinstance(finding, Finding)
    assert isinstance(finding.rows, tuple)
    assert isinstance(finding.rows[0], tuple)
    assert finding.values["shop"]["chosen"] == "transfer"


def test_a_record_with_findings_round_trips_and_its_page_escapes_them() -> None:
    run = cn.simulate(cn.FTL(**QUICK), tables(), evaluate=NO_TEST)
    hostile = "<script>alert(1)</script>"
    bad = Finding(name="x", title=hostile, text=hostile, columns=(hostile, "b"), rows=((hostile, "1.5"),))
    run.findings["x"] = bad
    assert json.loads(json.dumps(run.to_json()))["findings"][-1]["title"] == hostile
    page = render(run)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 4
    assert '<td class="n">1.5</td>' in page, "numbers stand to the right"


def test_findings_of_several_parties_keep_apart() -> None:
    run = cn.simulate(
        cn.FTL(**QUICK),
        tables(sources=("bank", "fund")),
        roles={"source": ["bank", "fund"], "target": "shop"},
        evaluate=NO_TEST,
    )
    assert set(run.findings) == {"safeguard of bank", "safeguard of fund"}
    assert {one.title.rpartition(": ")[2] for one in run.findings.values()} == {"bank", "fund"}
    assert run.to_json()["alone_party"] == "bank and fund"


# --- stages -------------------------------------------------------------------------------------------------------


def test_a_stage_without_a_model_says_so_in_python_too(tmp_path: Path) -> None:
    run = cn.simulate(cn.FTL(**QUICK, folds=2), tables(), stage="validate", folder=tmp_path / "run")
    assert run.parts == {}
    with pytest.raises(RunFolderError, match="makes no model"):
        run.predict(tables())
    with pytest.raises(RunFolderError, match=r"See Run\.findings"):
        _ = run.metrics
    loaded = cn.load_run(tmp_path / "run")
    assert loaded.plan.stage == "validate"
    assert loaded.findings == run.findings
    assert "stage validate" in render(loaded)


@pytest.mark.parametrize(
    ("stage", "words"),
    [("validat", "Did you mean 'validate'"), ("predict", "Run.predict"), ("align", "colonnade align")],
)
def test_an_unknown_stage_is_refused_in_python_too(stage: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        cn.simulate(cn.FTL(**QUICK), tables(), stage=stage)
    with pytest.raises(ConfigError, match=r"The method splitnn has no stage 'validate'\. Known: train"):
        cn.simulate(cn.SplitNN(), tables(), stage="validate")


# --- predictions --------------------------------------------------------------------------------------------------


def test_several_targets_predictions_come_in_one_frame() -> None:
    given = tables(("shop", "club"))
    run = cn.simulate(cn.FTL(**QUICK), given, evaluate=NO_TEST)
    found = run.predict({"shop": rows_of(given["shop"], 5), "club": rows_of(given["club"], 3)})
    assert list(found.columns) == ["party", "shop: party", "prediction", "club: party"], "an id may have that name"
    assert list(found["party"]) == ["shop"] * 5 + ["club"] * 3
    with pytest.raises(ConfigError, match="one table each of shop, club; check club"):
        run.predict({"shop": given["shop"]})
    alone = cn.simulate(cn.FTL(**QUICK), tables(), evaluate=NO_TEST)
    assert list(alone.predict({"shop": rows_of(given["shop"], 5)}).columns) == ["party", "prediction"]


def test_parties_stand_in_the_agreed_order_and_the_lead_counts_rows() -> None:
    given = tables(("shop", "club"))
    roles = {"target": ["club", "shop"], "source": "bank"}
    run = cn.simulate(cn.FTL(**QUICK), given, roles=roles, evaluate=NO_TEST)
    assert list(run.tables) == ["club", "shop", "bank"]
    assert sum(run.rows.values()) == 240, "rows shared with each target"


def test_a_comparison_in_one_place_is_not_tried_where_it_means_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets need not share a row with one another."""
    given = tables(("shop", "club"))
    given["shop"], given["club"] = given["shop"].take(np.arange(60)), given["club"].take(np.arange(60, 120))
    run = cn.simulate(cn.FTL(**QUICK), given, evaluate=NO_TEST, compare=True)
    assert set(run.evaluations) == {"together"}


# --- marks --------------------------------------------------------------------------------------------------------


def marks_with(**settings: Any) -> str:
    return " ".join(cn.simulate(cn.FTL(**settings), tables(), evaluate=NO_TEST).marks)


SEALED: dict[str, Any] = {"width": 1, "iterations": 1, "key_size": "insecure_test", "safeguard": False}


def test_what_weakens_a_run_stands_at_the_top_of_its_report() -> None:
    assert "Not encrypted" in marks_with(**QUICK)
    plain = marks_with(**SEALED)
    assert "Insecure test keys" in plain
    assert not any(words in plain for words in ("Not encrypted", "overridden", "Rows revealed"))
    assert "A guard was overridden: all parties accepted" in marks_with(**SEALED, guard=1000.0, allow_leak=True)
    assert "Rows revealed" in marks_with(**SEALED, reveal="rows")


# --- messages of one name -----------------------------------------------------------------------------------------


def test_messages_of_one_name_are_told_apart_by_who_sends_them() -> None:
    def declared(sender: str, receiver: str, step: str, words: str) -> type:
        @message(sender=sender, receiver=receiver, protection=PLAIN, step=step)
        class Answer:
            __doc__ = f"An answer. Reveals: {words}."

            value: int

        return Answer

    both = [declared("source", "target", "1", "nothing"), declared("target", "source", "2", "everything")]
    shapes: dict[str, list[int]] = {}

    def ledger(*totals: tuple[str, str]) -> Any:
        made = [
            SimpleNamespace(
                direction=direction, peer=peer, message="Answer", protection="PLAIN", count=1, bytes=2, shapes=shapes
            )
            for direction, peer in totals
        ]
        return SimpleNamespace(summary=lambda: made)

    plan = RunPlan(name="both", method="ftl", roles={"source": ("bank",), "target": ("shop",)})
    own = cast(Any, SimpleNamespace(ledger=ledger(("sent", "shop"), ("received", "shop"))))
    facts: dict[str, Any] = {"launch": "", "started": "", "seconds": 0.0}
    declared = tuple(map(declaration_of, (*CONTROL, *both)))
    run = RunRecord(plan=plan, method=METHOD, declared=declared, parties={"bank": own}, **facts)
    assert [(one.sender, one.paper_step, one.reveals) for one in run.crossed] == [
        ("bank", "1", "nothing."),
        ("shop", "2", "everything."),
    ]


def test_every_line_of_what_crossed_says_what_it_reveals() -> None:
    run = cn.simulate(cn.FTL(**SEALED), tables(), evaluate=NO_TEST)
    assert all(one.reveals for one in run.crossed)
    opened = {one.sender: one.paper_step for one in run.crossed if one.message.startswith("Opened") and one.paper_step}
    assert set(opened) == {"bank", "shop"}
    assert opened["bank"] != opened["shop"]
    assert isinstance(run, Run)
