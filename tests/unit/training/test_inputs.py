from __future__ import annotations

import json
import re
from copy import deepcopy
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from colonnade.data import AlignedRows, PartyTable, Split
from colonnade.errors import TableError
from colonnade.session import Holding, ModelPart
from colonnade.training import Inputs

ROWS = 600


def table(**columns: object) -> PartyTable:
    frame = pd.DataFrame(columns)
    return PartyTable(frame.assign(id=range(len(frame))), id="id", name="bank")


def varied(seed: int = 0, rows: int = ROWS) -> PartyTable:
    generator = np.random.default_rng(seed)
    amount = generator.lognormal(8, 2, rows)
    amount[generator.random(rows) < 0.1] = np.nan
    days = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(generator.integers(0, 900, rows), unit="D"))
    return table(
        amount=amount,
        gain=np.where(generator.random(rows) < 0.8, 0.0, generator.lognormal(3, 1, rows)),
        code=generator.choice([-2, -1, 0, 1, 2, 8], rows, p=[0.2, 0.2, 0.3, 0.2, 0.09, 0.01]),
        age=generator.normal(40, 10, rows),
        member=generator.random(rows) < 0.3,
        since=days.where(generator.random(rows) < 0.95),
        job=generator.choice(["clerk", "baker", None], rows, p=[0.6, 0.3, 0.1]),
    )


def encoded(source: PartyTable, later: PartyTable | None = None, **settings: Any) -> dict[str, np.ndarray[Any, Any]]:
    inputs = Inputs.fit(source, **settings)
    return dict(zip(inputs.names, inputs.transform(later or source, dtype=np.float64).T, strict=True))


# Numbers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("splines", [False, True])
def test_names_columns_and_dtype_go_with_the_outputs(splines: bool, dtype: type) -> None:
    source = varied()
    inputs = Inputs.fit(source, splines=splines)
    outputs = inputs.transform(source, np.arange(50), dtype=dtype)
    assert outputs.shape == (50, inputs.width) == (50, len(inputs.names)) == (50, len(inputs.column_of))
    assert outputs.dtype == dtype
    assert len(set(inputs.names)) == inputs.width
    assert tuple(dict.fromkeys(inputs.column_of)) == source.feature_names == tuple(inputs.types)
    assert all(name.startswith(column) for name, column in zip(inputs.names, inputs.column_of, strict=True))


def test_skewed_amounts_lose_their_skew_and_plain_numbers_keep_their_form() -> None:
    generator = np.random.default_rng(0)
    source = table(
        amount=generator.lognormal(8, 2, ROWS),
        loss=-generator.lognormal(8, 2, ROWS),
        age=40.0 + generator.normal(0, 9, ROWS),
    )
    outputs = encoded(source)
    for column in ("amount", "loss"):
        assert abs(pd.Series(source.values(column)).skew()) > 5
        assert abs(pd.Series(outputs[column]).skew()) < 0.3
        assert pd.Series(source.values(column)).corr(pd.Series(outputs[column]), method="spearman") > 0.999
    np.testing.assert_allclose(np.corrcoef(outputs["age"], source.values("age"))[0, 1], 1.0)


@pytest.mark.parametrize("splines", [False, True])
def test_numbers_have_about_unit_variance_and_missing_cells_are_in_their_middle(splines: bool) -> None:
    source = varied()
    outputs = encoded(source, splines=splines)
    for name in ("amount", "gain", "code", "age", "member", "since"):
        present = ~np.isnan(source.values(name))
        assert outputs[name][present].mean() == pytest.approx(0, abs=1e-9)
        assert 0.7 < outputs[name][present].std() <= 1 + 1e-9
        assert (outputs[name][~present] == 0).all()
    np.testing.assert_array_equal(outputs["amount is missing"], np.isnan(source.values("amount")))
    assert max(np.abs(one).max() for one in outputs.values()) <= 10


def test_one_wrong_cell_does_not_press_the_others_together() -> None:
    ages = np.random.default_rng(0).normal(40, 10, 200)
    clean = encoded(table(age=ages))["age"]
    dirty = encoded(table(age=[*ages[:-1], 1e12]))["age"]
    np.testing.assert_allclose(clean[:-1], dirty[:-1], atol=0.3)
    assert dirty[-1] < 6


@pytest.mark.parametrize("splines", [False, True])
def test_rows_far_outside_the_training_range_are_bounded(splines: bool) -> None:
    source = varied()
    inputs = Inputs.fit(source, splines=splines)
    far = table(
        amount=[1e300, -1e300],
        gain=[1e300, -1e300],
        code=[99.0, -99.0],
        age=[1e300, -1e300],
        member=[True, False],
        since=pd.to_datetime(["2199-01-01", "1801-05-07"]),
        job=["unseen", None],
    )
    within, outside = inputs.transform(source), inputs.transform(far)
    assert np.isfinite(outside).all()
    waves = np.array(["of the" in name for name in inputs.names])
    assert (outside <= within.max(axis=0) + 1e-6)[:, ~waves].all()
    assert (outside >= within.min(axis=0) - 1e-6)[:, ~waves].all()


def test_a_value_most_rows_have_gets_a_mark() -> None:
    source = table(gain=[0.0] * 60 + list(range(1, 41)))
    outputs = encoded(source)
    assert list(outputs) == ["gain", "gain is not 0"]
    marks = outputs["gain is not 0"]
    assert len(np.unique(marks[:60])) == len(np.unique(marks[60:])) == 1
    assert marks[0] < 0 < marks[-1]


def test_two_values_stay_one_number_even_with_splines() -> None:
    source = table(member=[True] * 30 + [False] * 70, flag=[3.0] * 5 + [7.0] * 95)
    outputs = encoded(source, splines=True)
    assert list(outputs) == ["member", "flag"]
    assert all(len(np.unique(one)) == 2 for one in outputs.values())


def test_a_rare_value_does_not_become_a_huge_number() -> None:
    outputs = encoded(table(fraud=[True] + [False] * 4999, count=[9.0, 3.0, 3.0] + [0.0] * 4997), splines=True)
    assert 5 <= max(np.abs(one).max() for one in outputs.values()) <= 10


def test_splines_let_a_linear_model_follow_any_function_of_a_code() -> None:
    source = table(code=[-2, -1, 0, 1, 2, 8] * 20)
    outputs = np.stack([*encoded(source, splines=True).values(), np.ones(120)], axis=1)
    assert np.linalg.matrix_rank(outputs) == 6
    plain = np.stack([*encoded(source).values(), np.ones(120)], axis=1)
    assert np.linalg.matrix_rank(plain) == 2


def test_splines_rise_one_after_the_other() -> None:
    ages = np.sort(np.random.default_rng(0).normal(40, 10, ROWS))
    outputs = encoded(table(age=ages), splines=True)
    ramps = np.stack([one for name, one in outputs.items() if " from " in name])
    assert len(ramps) > 2
    np.testing.assert_allclose(ramps.std(axis=1), 0.5)
    assert (np.diff(ramps, axis=1) >= 0).all()
    moving = np.diff(ramps, axis=1) > 1e-12
    assert moving.any(axis=1).all()
    assert (moving.sum(axis=0) <= 2).all()


# Dates


def test_a_date_shows_its_place_in_the_year_and_in_the_week() -> None:
    days = pd.date_range("2021-01-01", "2022-12-31", freq="D")
    outputs = encoded(table(since=days))
    assert [name.removeprefix("since").strip() for name in outputs] == [
        "",
        *("sine of the year (1)", "cosine of the year (1)", "sine of the week (1)", "cosine of the week (1)"),
    ]
    waves = pd.DataFrame(outputs).drop(columns="since").round(6)
    assert len(waves.iloc[:, :2].drop_duplicates()) == 12
    assert len(waves.iloc[:, 2:].drop_duplicates()) == 7
    assert (np.diff(outputs["since"]) > 0).all()
    by_month = waves.groupby(days.month).nunique()
    assert (by_month.iloc[:, :2] == 1).all(axis=None)
    by_day = waves.groupby(days.day_of_week).nunique()
    assert (by_day.iloc[:, 2:] == 1).all(axis=None)


def test_a_wave_that_is_flat_on_the_training_rows_says_nothing() -> None:
    days = pd.to_datetime([f"202{year}-{month}-0{day}" for year in (0, 1) for month in ("01", "07") for day in (1, 2)])
    assert not encoded(table(since=days))["since sine of the year (1)"].any()


def test_moments_show_their_hour_and_dates_do_not() -> None:
    moments = encoded(table(at=pd.date_range("2021-01-01", periods=ROWS, freq="7h")))
    assert "at sine of the day (1)" in moments
    assert not any("of the day" in name for name in encoded(table(at=[date(2021, 1, 1), date(2021, 2, 5)] * 20)))


def test_a_date_that_became_a_number_is_refused() -> None:
    dates, numbers = table(since=pd.date_range("2021-01-01", periods=30)), table(since=np.arange(30.0))
    for fitted, later in ((dates, numbers), (numbers, dates)):
        with pytest.raises(TableError, match=r"since.* is (numeric|date), but was"):
            Inputs.fit(fitted).transform(later)
    empty = table(since=[None, None])
    assert Inputs.fit(dates).transform(empty).shape[0] == 2


# Categories, missing cells, later tables


@pytest.mark.parametrize("most", [50, 7])
def test_rare_categories_share_an_output_beyond_as_many_as_the_table_says(most: int) -> None:
    jobs = [f"job {place:02d}" for place in range(60) for _ in range(60 - place)]
    frame = pd.DataFrame({"id": range(len(jobs)), "job": jobs})
    inputs = Inputs.fit(PartyTable(frame, id="id", most_categories=most))
    assert inputs.width == most + 1
    assert inputs.names[-1] == "job is other"


def test_columns_without_content_are_dropped() -> None:
    source = table(empty=[None] * 4, same=[1.0] * 4, word=["a"] * 4, day=[date(2020, 1, 1)] * 4, age=[1, 2, 3, 9])
    inputs = Inputs.fit(source)
    assert inputs.dropped == ("empty", "same", "word", "day")
    assert inputs.names == ("age",)
    assert Inputs.fit(table(same=[1.0, None])).names == ("same is missing",)
    with pytest.raises(TableError, match="no training rows"):
        Inputs.fit(source, np.array([], dtype=np.int64))


def test_a_table_of_missing_cells_only_fits_any_kind() -> None:
    inputs = Inputs.fit(varied(), splines=True)
    later = table(**{column: [None, None] for column in inputs.types})
    outputs = dict(zip(inputs.names, inputs.transform(later).T, strict=True))
    assert {name for name, one in outputs.items() if one.any()} == {name for name in outputs if "is missing" in name}


def test_tables_that_do_not_fit_are_refused_without_a_value() -> None:
    inputs = Inputs.fit(table(income=[1.0, 2.0, 4.0], job=["a", "b", "b"]))
    with pytest.raises(TableError, match="Did you mean 'incomes'"):
        inputs.transform(table(incomes=[1.0], job=["a"]))
    with pytest.raises(TableError, match="is categorical, but was numeric") as caught:
        inputs.transform(table(income=["canary8191"], job=["a"]))
    assert "canary" not in str(caught.value)


# What is kept and shown


@pytest.mark.parametrize("splines", [False, True])
def test_json_brings_back_an_encoder_that_transforms_alike(splines: bool) -> None:
    source = varied()
    inputs = Inputs.fit(source, splines=splines)
    again = Inputs.from_json(json.loads(json.dumps(inputs.to_json(), allow_nan=False)))
    assert again == inputs
    assert again.transform(varied(1)).tobytes() == inputs.transform(varied(1)).tobytes()


def _places(saved: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = saved.items() if isinstance(saved, dict) else enumerate(saved) if isinstance(saved, list) else ()
    return [path, *(place for key, value in inner for place in _places(value, (*path, key)))]


def test_damaged_content_is_refused_wherever_it_is() -> None:
    saved = json.loads(json.dumps(Inputs.fit(varied(), splines=True).to_json()))
    for wrong in (float("nan"), {"x": 1}):
        for place in _places(saved)[1:]:
            changed = deepcopy(saved)
            inner = changed
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = wrong
            with pytest.raises(TableError, match=r"incomplete or changed|version"):
                Inputs.from_json(changed)
    for column in range(len(saved["columns"])):
        for key in saved["columns"][column]:
            changed = deepcopy(saved)
            del changed["columns"][column][key]
            with pytest.raises(TableError, match="incomplete or changed"):
                Inputs.from_json(changed)
    backwards = deepcopy(saved)
    backwards["columns"][0]["knots"].reverse()
    with pytest.raises(TableError, match="incomplete or changed"):
        Inputs.from_json(backwards)
    with pytest.raises(TableError, match="version 3"):
        Inputs.from_json(saved | {"version": 3})
    with pytest.raises(TableError, match="incomplete or changed"):
        Inputs.from_json(saved | {"more": 1})


def test_what_is_shown_has_no_value_of_a_cell() -> None:
    source = table(age=[8191.0, 8191.5, 8190.0] * 9, job=["canary", "b", "c"] * 9)
    inputs = Inputs.fit(source, splines=True)
    shown = repr(inputs) + repr(inputs.parts) + json.dumps(inputs.describe())
    assert "canary" not in shown
    assert "8191" not in shown
    assert [(one["name"], one["kind"], one["outputs"]) for one in inputs.describe()] == [
        ("age", "numeric", 3),
        ("job", "categorical", 3),
    ]


def test_a_holding_is_fitted_on_its_training_rows_and_a_trained_part_is_kept() -> None:
    source = varied()
    aligned = AlignedRows(np.arange(ROWS)[::-1].copy(), np.empty(0, np.int64), "none")
    split = Split(train=np.arange(0, 300), validation=np.arange(300, 400), test=np.arange(400, ROWS))
    holding = Holding(source, aligned, split)
    inputs = Inputs.of(holding, splines=True)
    assert inputs == Inputs.fit(source, aligned.positions[split.train], splines=True)
    part = ModelPart({}, {"inputs": json.loads(json.dumps(inputs.to_json()))})
    assert Inputs.of(Holding(varied(1), aligned, split, part)) == inputs
    bare = PartyTable(pd.DataFrame({"id": range(ROWS), "same": 1.0}), id="id")
    nothing = Inputs.of(Holding(bare, aligned, split))
    assert nothing.transform(bare, aligned.positions).shape == (ROWS, 0)
    saved = ModelPart({}, {"inputs": json.loads(json.dumps(nothing.to_json()))})
    assert Inputs.of(Holding(bare, aligned, split, saved)) == nothing
    without = PartyTable(pd.DataFrame({"id": range(ROWS)}), id="id")
    assert Inputs.of(Holding(without, aligned, split)) == Inputs()


# The rule of support


def least_told_apart(outputs: np.ndarray[Any, Any]) -> int:
    """Return the fewest rows that any threshold on any output tells apart from all others."""
    fewest = len(outputs)
    for one in outputs.T:
        _, counts = np.unique(one, return_counts=True)
        below = np.cumsum(counts)[:-1]
        fewest = min([fewest, *below.tolist(), *(len(one) - below).tolist()])
    return fewest


@pytest.mark.parametrize("splines", [False, True])
@pytest.mark.parametrize("support", [2, 20, 60])
@pytest.mark.parametrize("seed", range(3))
def test_no_output_tells_fewer_rows_apart_than_the_minimum_support(seed: int, support: int, splines: bool) -> None:
    source = varied(seed)
    inputs = Inputs.fit(source, splines=splines, minimum_support=support)
    assert inputs.width > 5
    assert least_told_apart(inputs.transform(source, dtype=np.float64)) >= support
    assert least_told_apart(Inputs.fit(source, splines=splines).transform(source, dtype=np.float64)) < 20


def test_a_value_that_only_bounds_make_usual_tells_no_few_rows_apart() -> None:
    # Nine lower numbers count as the four fours, so that thirteen of 25 rows have one value.
    source = table(gain=[*np.linspace(0, 3, 9), *[4.0] * 4, 5.0, 6.0, *range(10, 20)])
    outputs = encoded(source, minimum_support=10)
    assert "gain is not 4" in outputs
    assert least_told_apart(np.stack([*outputs.values()], axis=1)) >= 10


@pytest.mark.parametrize("support", [0, 20])
def test_ramps_together_do_not_tell_few_rows_apart_either(support: int) -> None:
    code = np.repeat([0.0, 1.0, 2.0, 5.0, 6.0, 7.0], [100, 3, 100, 50, 19, 20])
    outputs = np.stack([*encoded(table(code=code), splines=True, minimum_support=support).values(), code**0], axis=1)
    assert outputs.shape[1] > 3
    for value in (1.0, 6.0):
        rows = (code == value).astype(float)
        nearest = outputs @ np.linalg.lstsq(outputs, rows)[0]
        assert (np.abs(rows - nearest).max() > 0.3) == bool(support)


def test_few_missing_dates_are_not_told_apart_by_the_season() -> None:
    days = [*pd.date_range("2021-03-01", "2021-05-31", freq="D"), *[pd.NaT] * 3]
    inputs = Inputs.fit(table(since=days), minimum_support=10)
    assert {"since sine of the year (1)", "since cosine of the week (1)"} <= set(inputs.names)
    assert "since is missing" not in inputs.names
    assert least_told_apart(inputs.transform(table(since=days), dtype=np.float64)) >= 10


def test_a_season_of_few_rows_leaves_seasons_out() -> None:
    days = [*pd.date_range("2021-03-01", "2021-05-31", freq="D"), *pd.date_range("2021-08-01", "2021-08-03", freq="D")]
    outputs = encoded(table(since=days), minimum_support=10)
    assert not any("of the year" in name for name in outputs)
    assert any("of the week" in name for name in outputs)


def test_a_table_too_small_for_the_support_gives_nothing() -> None:
    source = varied(rows=30)
    assert Inputs.fit(source, splines=True, minimum_support=20).width == 0


# Any column


numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-2, 3).map(float)
days = st.none() | st.dates()
rows = st.lists(st.tuples(numbers, days, st.none() | st.text(max_size=2)), min_size=1, max_size=40)


def mixed(cells: list[tuple[float | None, date | None, str | None]]) -> PartyTable:
    frame = pd.DataFrame({"id": range(len(cells))})
    frame["n"] = pd.Series([one for one, _, _ in cells], dtype=float)
    frame["d"] = pd.Series([one for _, one, _ in cells], dtype=object)
    frame["w"] = pd.Series([one for _, _, one in cells], dtype=object)
    return PartyTable(frame, id="id", types={"n": "numeric", "w": "categorical"})


@settings(deadline=None, max_examples=300)
@given(rows, rows, st.booleans(), st.integers(0, 4))
# Two of these lie next to each other on the curve, and the third far away.
@example([(0.0, None, None), (6.5e-171, None, None), (1.2e138, None, None)], [(None, None, None)], True, 0)
# These are many times their unit, or their unit is next to nothing.
@example([(one, None, None) for one in (0.0, 0.0, 1.0, 2.1e-144, -8.6e9)], [(None, None, None)], False, 0)
@example([(one, None, None) for one in (0.0, 0.0, 1.6e142, 1e-12, 2.3e-313)], [(None, None, None)], False, 0)
def test_any_column_gives_finite_outputs_that_keep_the_rule(
    train: list[Any], later: list[Any], splines: bool, support: int
) -> None:
    source, new = mixed(train), mixed(later)
    inputs = Inputs.fit(source, splines=splines, minimum_support=support)
    again = Inputs.from_json(json.loads(json.dumps(inputs.to_json(), allow_nan=False)))
    outputs = inputs.transform(source, dtype=np.float64)
    assert outputs.shape == (len(train), inputs.width)
    assert np.abs(outputs).max(initial=0) <= 10
    assert least_told_apart(outputs) >= min(support, len(train))
    if "d" in inputs.types and all(one is None for _, one, _ in later):
        later = later[:0]
    single = again.transform(new)
    assert np.isfinite(single).all()
    assert single.tobytes() == inputs.transform(new).tobytes()


def test_the_usual_value_stays_apart_from_others_that_are_mostly_equal() -> None:
    children = np.repeat([0, 1, 2, 3], [606, 118, 26, 3])
    encoded = Inputs.fit(table(children=children)).transform(table(children=np.arange(4)))
    assert (np.diff(encoded[:, 0]) > 0).all()
    assert encoded[0, 1] < encoded[1, 1]


# What new rows differ in


def plain(seed: int = 0) -> dict[str, Any]:
    """Return columns whose kind can be told from their values."""
    source = varied(seed)
    return {name: source.values(name).copy() for name in ("amount", "gain", "code", "age", "job")}


def differing(source: PartyTable, later: PartyTable) -> dict[str, str]:
    """Return what is told of new rows, by column, of an encoder that was kept."""
    inputs = Inputs.from_json(json.loads(json.dumps(Inputs.fit(source).to_json())))
    told = inputs.differences(later)
    return {name: one for name in source.feature_names for one in told if f"column '{name}'" in one}


def test_new_rows_like_those_of_training_are_not_told_of() -> None:
    assert differing(varied(0), varied(1)) == {}
    assert differing(varied(0), varied(2).take(np.arange(8))) == {}, "nor is what chance does to a few"


def test_what_differs_in_new_rows_is_counted_by_column_without_a_value() -> None:
    columns = plain(1)
    columns["age"] += 20
    columns["code"][:40] = 1e6
    columns["amount"][:] = np.nan
    columns["job"][:300] = None
    columns["job"][300:340] = "canary8191"
    told = differing(table(**plain()), table(**columns))
    assert set(told) == {"amount", "code", "age", "job"}
    assert re.search(r"the mean lies [12]\.\d standard deviations above that of training", told["age"])
    assert "43 of 600 cells (7.2%) lie beyond the range of training" in told["code"], "three are rare ones"
    assert "40 of 600 cells (6.7%) hold a category that no training row had" in told["job"]
    assert re.search(r"\d+ of 600 cells \(5\d\.\d%\) are missing, of the training rows \d+\.\d%", told["job"])
    assert "600 of 600 cells (100.0%) are missing" in told["amount"]
    assert not any(word in one for one in told.values() for word in ("8191", "Warning"))


def test_more_than_half_of_the_cells_unseen_is_a_warning_and_rare_categories_are_not_unseen() -> None:
    towns, amount = [f"town {place}" for place in range(80)] * 3, np.arange(240.0)
    source = table(town=towns, amount=amount)
    assert differing(source, table(town=towns[::-1], amount=amount)) == {}
    renamed = [one.upper() if place % 5 else one for place, one in enumerate(towns)]
    told = differing(source, table(town=renamed, amount=amount))
    assert told["town"].startswith("Warning: in column 'town' 192 of 240 cells (80.0%) hold")


def test_all_columns_that_are_missing_or_of_another_kind_are_named_at_once() -> None:
    inputs, columns = Inputs.fit(table(**plain())), plain(1)
    fewer = {name: one for name, one in columns.items() if name not in ("gain", "job")}
    with pytest.raises(TableError, match=r"lacks 2 columns: gain, job, .* Add them; cells may be empty"):
        inputs.transform(table(**fewer))
    odd = columns | {"gain": ["x"] * ROWS, "age": ["y"] * ROWS}
    with pytest.raises(TableError, match=r"'gain' is categorical, but was numeric; 'age' is categorical, but was"):
        inputs.transform(table(**odd))
    empty = {"gain": [None] * ROWS, "job": [None] * ROWS}
    assert len(inputs.transform(table(**fewer | empty))) == ROWS
