"""The verdict follows from the numbers, and numbers are readable."""

from __future__ import annotations

from typing import Any

import pytest
from tests.reports.conftest import changed

from colonnade.metrics import Evaluation, Gain
from colonnade.reports.wording import (
    bytes_text,
    duration_text,
    listed,
    number,
    served_model,
    uncertainty_note,
    verdict,
)
from colonnade.session import Finding


def scored(rows: int = 70, task: str = "binary", **metrics: float) -> Evaluation:
    extra = {"positive_rate": 0.4} if task == "binary" else {}
    return Evaluation(task=task, rows=rows, metrics={**metrics, **extra})


def found_out(title: str) -> Finding:
    return Finding(name="x", title=title, text="")


def said(record: Any, **evaluations: Evaluation) -> tuple[str, str]:
    return verdict(changed(record, evaluations=evaluations))


def test_better_than_alone(binary):
    first, second = said(
        binary, together=scored(5000, auc=0.991), alone=scored(5000, auc=0.962), central=scored(5000, auc=0.993)
    )
    assert first == (
        "Together, hospital and laboratory reach AUC 0.991 on 5,000 held-out rows; "
        "hospital alone 0.962; all columns in one place 0.993."
    )
    assert second == "Federating is ahead of hospital alone by 0.029."


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (Gain(0.029, 0.011, 0.047), "ahead of hospital alone by 0.029 (95% interval +0.011 to +0.047)."),
        (
            Gain(0.029, -0.004, 0.06),
            "by 0.029 (95% interval −0.004 to +0.060), but with 5,000 held-out rows a difference this small may be",
        ),
    ],
)
def test_how_much_better_has_an_interval_that_decides_whether_it_may_be_chance(binary, gain, expected):
    models = {"together": scored(5000, auc=0.991), "alone": scored(5000, auc=0.962)}
    assert expected in verdict(changed(binary, evaluations=models, gains={"auc": gain}))[1]


def test_where_own_columns_serve_federating_is_compared_all_the_same(binary):
    models = {"together": scored(auc=0.95), "alone": scored(auc=0.962)}
    record = changed(binary, evaluations=models, served="alone", gains={"auc": Gain(-0.012, -0.03, 0.002)})
    assert "the federated model differs by −0.012 (95% interval −0.030 to +0.002)" in verdict(record)[1]
    assert served_model(record) == "The model of hospital's columns alone; scores need no partner."


def test_better_but_perhaps_by_chance(binary):
    _, second = said(binary, together=scored(auc=0.991), alone=scored(auc=0.962))
    assert "ahead of hospital alone by 0.029" in second
    assert "with 70 held-out rows a difference this small may be chance" in second


@pytest.mark.parametrize(
    ("alone", "expected"),
    [
        (0.962, "Federating did not help here: hospital alone does as well."),
        (0.9621, "Federating did not help here: hospital alone does as well."),
        (0.970, "Federating did not help here: hospital alone is better by 0.008."),
    ],
)
def test_not_better_is_said_plainly(binary, alone, expected):
    assert said(binary, together=scored(auc=0.962), alone=scored(auc=alone))[1] == expected


def test_alone_missing(binary):
    first, second = said(binary, together=scored(auc=0.9))
    assert first == "Together, hospital and laboratory reach AUC 0.900 on 70 held-out rows."
    assert "cannot say whether federating helped" in second


def test_findings_stand_where_there_is_no_model_alone(binary):
    found = changed(binary, findings={"x": found_out("Transfer against learning alone")})
    _, second = said(found, together=scored(auc=0.9))
    assert second == "What else was found out stands below: Transfer against learning alone."
    _, second = said(found, together=scored(auc=0.9), alone=scored(auc=0.8))
    assert "alone by 0.100" in second


def test_what_several_parties_found_is_named_once(binary):
    titles = ("Do rows help?", "Columns: hospital", "Columns: laboratory")
    found = changed(binary, findings={one: found_out(one) for one in titles})
    _, second = said(found, together=scored(auc=0.9))
    assert second == "What else was found out stands below: Do rows help?; Columns."


def test_a_stage_that_makes_no_model_says_what_it_found(binary):
    found = {"x": found_out("Validation of transfer")}
    staged = changed(binary, plan=changed(binary.plan, stage="validate"), makes_model=False, findings=found)
    assert said(staged) == (
        "This run was the stage validate, which makes no model.",
        "It found out: Validation of transfer.",
    )
    assert said(changed(staged, findings={}, label_holders=["bank"]))[1] == "What it finds out, bank has."


def test_nothing_evaluated(binary):
    assert "no evaluation" in said(binary)[0]


def test_a_lower_error_is_better_when_r2_is_missing(binary):
    models = {"together": scored(task="regression", rmse=2.5), "alone": scored(task="regression", rmse=3.0)}
    first, second = said(binary, **models)
    assert "reach RMSE 2.5 on 70 held-out rows; hospital alone 3" in first
    assert second == "Federating is ahead of hospital alone by 0.5."


def test_one_class_has_no_headline(binary):
    assert said(binary, together=scored(accuracy=1.0))[0] == (
        "The model that serves was evaluated on 70 held-out rows."
    )


def test_an_aggregator_is_not_named_as_a_contributor(binary):
    nothing = {"columns": [], "label": None, "is_elsewhere": False, "has_table": True}
    first, _ = verdict(changed(binary, brought={**binary.brought, "broker": nothing}))
    assert first.startswith("Together, hospital and laboratory reach")


def test_two_label_holders_need_a_name(binary):
    brought = {party: {**about, "label": "y"} for party, about in binary.brought.items()}
    assert "the label holder alone" in verdict(changed(binary, brought=brought))[0]
    assert "laboratory alone" in verdict(changed(binary, brought=brought, label_holders=["laboratory"]))[0]


def test_the_uncertainty_note_names_only_what_was_used():
    assert uncertainty_note([scored(5000, auc=0.9)]) is None
    assert uncertainty_note([]) is None
    note = uncertainty_note([scored(auc=0.9)])
    assert "about 95% intervals" in note
    assert "Wilson" not in note
    assert "small print" not in uncertainty_note([scored(task="regression", r2=0.5)])


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1048575, "1.0 MiB"),
        (3 * 1024**3, "3.0 GiB"),
        (1024**4, "1.0 TiB"),
    ],
)
def test_bytes(count, text):
    assert bytes_text(count) == text


def test_other_units():
    assert [duration_text(value) for value in (0.04, 59.97, 3600)] == ["0.0 s", "1 min 0 s", "1 h 0 min"]
    assert [listed(names) for names in ([], ["a"], ["a", "b"])] == ["", "a", "a and b"]
    assert [number("rmse", 12345.6), number("rmse", 0.00123456), number("r2", -4000.2)] == [
        "12,346",
        "0.001235",
        "-4,000",
    ]
