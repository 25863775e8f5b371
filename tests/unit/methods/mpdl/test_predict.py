"""Rows that are scored later: who gets which scores, how many, and that they are the model's."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.adversary.hostile import Lie, lying, with_field
from tests.parties import with_policies
from tests.unit.methods.mpdl.worlds import COMPARED, fixed_secret, frames, overheard, run_of, settings, tables_of
from tests.worlds import integers_for_ciphertexts, name_of

import colonnade as cn
from colonnade.errors import ColonnadeError, ConfigError, PolicyRefused
from colonnade.session import Policy


def new_frames(task: str = "binary", parties: int = 2, **options: Any) -> dict[str, pd.DataFrame]:
    found = frames(task, parties, shared=9, own={"bank": 4, "shop": 5, "telco": 3}, seed=3, **options)
    return {name: one.drop(columns="y", errors="ignore") for name, one in found.items()}


def new_rows(task: str = "binary", parties: int = 2, **options: Any) -> dict[str, cn.PartyTable]:
    return tables_of(new_frames(task, parties, **options))


@functools.cache
def trained(task: str = "binary", parties: int = 2, **changes: Any) -> cn.Run:
    with integers_for_ciphertexts():
        return run_of(frames(task, parties), settings(**changes))


FORMS: dict[str, dict[str, Any]] = {
    "own copies": {},
    "own copies, not augmented": {"augment": False},
    "shipped": {"completion": "ship"},
    "noise on everything": {"dp_scope": "all"},
}


@pytest.mark.parametrize(
    ("task", "form"),
    [
        ("binary", "own copies"),
        ("multiclass", "own copies, not augmented"),
        ("regression", "shipped"),
        ("multiclass", "noise on everything"),
        pytest.param("regression", "own copies", marks=pytest.mark.slow),
        pytest.param("multiclass", "shipped", marks=pytest.mark.slow),
    ],
)
def test_every_row_gets_a_score_and_is_marked_by_who_knows_it(task: str, form: str) -> None:
    with integers_for_ciphertexts():
        found = trained(task, **FORMS[form]).predict(new_rows(task))
    assert len(found) == 9 + 4 + 5
    assert found["known to"].value_counts().to_dict() == {"all parties": 9, "bank only": 4, "shop only": 5}
    assert found["prediction"].notna().all()
    if task == "binary":
        assert found["probability_1"].between(0, 1).all()


@pytest.mark.parametrize("form", ["own copies", "own copies, not augmented"])
def test_three_holders_score_rows_of_each(form: str) -> None:
    with integers_for_ciphertexts():
        found = trained("binary", 3, **FORMS[form]).predict(new_rows("binary", 3))
    assert found["known to"].value_counts().to_dict() == {
        "all parties": 9,
        "bank only": 4,
        "shop only": 5,
        "telco only": 3,
    }


def test_a_row_that_one_holder_knows_is_scored_the_same_alone_and_among_others() -> None:
    run, found = trained(), new_frames()
    every = run.predict(tables_of(found))
    alone = every[every["known to"] == "shop only"]
    fewer = {"bank": found["bank"], "shop": found["shop"][~found["shop"]["id"].isin(alone["id"][1:])]}
    again = run.predict(tables_of(fewer))
    one = again[again["id"] == alone["id"].iloc[0]]
    assert len(one) == 1
    assert one["probability_1"].iloc[0] == pytest.approx(alone["probability_1"].iloc[0], abs=1e-9)


def test_scores_under_encryption_are_those_of_the_weights() -> None:
    """A sealed query gives what the same columns in the clear would."""
    run, tables = trained(completion="ship"), new_rows()
    with integers_for_ciphertexts():
        quick = run.predict(tables)
    real = run.predict(tables)
    assert np.abs(quick["probability_1"].to_numpy(float) - real["probability_1"].to_numpy(float)).max() < 1e-9


# Limits


@pytest.mark.parametrize("form", ["own copies", "shipped"])
def test_more_rows_than_a_day_allows_are_refused(form: str) -> None:
    run = trained(**FORMS[form])
    with integers_for_ciphertexts(), pytest.raises(PolicyRefused, match="at most 4 rows for 'shop'"):
        run.predict(with_policies(new_rows(), {"bank": Policy(predictions_per_day=4)}))


@pytest.mark.parametrize("form", ["own copies", "shipped"])
def test_a_shop_counts_rows_that_all_know_and_those_that_it_multiplies_for_the_bank(form: str) -> None:
    run, found = trained(**FORMS[form]), new_frames()
    shared = int(found["bank"]["id"].isin(found["shop"]["id"]).sum())
    count = shared if form == "own copies" else len(found["bank"])
    with integers_for_ciphertexts():
        run.predict(with_policies(new_rows(), {"shop": Policy(predictions_per_day=count)}))
        with pytest.raises(PolicyRefused, match=f"'shop' refuses .* at most {count - 1} rows for 'bank'"):
            run.predict(with_policies(new_rows(), {"shop": Policy(predictions_per_day=count - 1)}))


def test_who_completes_its_rows_alone_tells_other_holders_not_how_many_they_are() -> None:
    with overheard() as heard:
        trained().predict(new_rows())
    (told,) = [one for receiver, _, one in heard if receiver == "shop" and name_of(one) == "ModelMark"]
    assert told.own == 0


@pytest.mark.parametrize("said", [0, 1, 4])
def test_a_shop_that_asks_for_fewer_rows_than_it_sends_gets_no_score(said: int) -> None:
    """Who scores goes by what the label holder allowed, not by what the shop tells it."""
    limited = {"bank": Policy(predictions_per_day=4)}
    with overheard() as heard, lying(Lie("shop", "RowsAlone", with_field(count=said))), pytest.raises(ColonnadeError):
        trained().predict(with_policies(new_rows(), limited))
    told = [one for receiver, _, one in heard if receiver == "shop" and name_of(one) == "AloneScores"]
    assert not told


def test_nobody_without_rows_of_its_own_is_told_about_labels() -> None:
    found = new_frames()
    found["shop"] = found["shop"][found["shop"]["id"].isin(found["bank"]["id"])]
    with overheard() as heard:
        trained().predict(tables_of(found))
    assert not any(name_of(one) in ("Classes", "AloneScores") for _, _, one in heard)


def test_what_is_told_of_labels_is_what_its_declaration_says() -> None:
    with overheard() as heard:
        trained("multiclass").predict(new_rows("multiclass"))
    (told,) = [json.loads(one.labels) for _, _, one in heard if name_of(one) == "Classes"]
    assert told["task"] == "multiclass"
    assert {name: told[name] for name in told if name not in ("task", "classes", "version")} == {"mean": 0, "scale": 1}


# Stages


@pytest.mark.parametrize("folds", [0, 3])
def test_generators_and_classifier_in_two_runs(folds: int) -> None:
    """The collaborator has no part in the first."""
    found, config = frames(), settings(folds=folds)
    first = run_of(found, config, stage="dual", launch=cn.Launch(name="first"))
    assert set(first.parts) == {"bank", "shop"}
    second = run_of(found, config, stage="central", launch=cn.Launch(name="second"), after=first, evaluate=COMPARED)
    assert set(second.parts) == {"bank", "shop", "helper"}
    for party in ("bank", "shop"):
        for name, value in first.parts[party].tensors.items():
            if name.startswith("generator/"):
                assert (value == second.parts[party].tensors[name]).all()
    scores = second.predict(new_rows())
    assert len(scores) == 18
    assert len(second.findings["comparison"].values["rounds"]) == 1


def test_both_stages_give_what_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed_secret(monkeypatch)
    found, config = frames(), settings()
    whole = run_of(found, config)
    first = run_of(found, config, stage="dual", launch=cn.Launch(name="first"))
    second = run_of(found, config, stage="central", after=first)
    for party, part in whole.parts.items():
        assert part.tensors.keys() == second.parts[party].tensors.keys()
        for name, value in part.tensors.items():
            assert (value == second.parts[party].tensors[name]).all(), (party, name)


def test_central_without_generators_is_refused() -> None:
    with pytest.raises(ConfigError):
        run_of(frames(), settings(), stage="central")
