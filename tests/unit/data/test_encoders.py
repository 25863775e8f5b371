from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.data import LabelEncoder, PartyTable, TableEncoder
from colonnade.errors import ConfigError, TableError


def table(most_categories: int = 50, **columns: object) -> PartyTable:
    frame = pd.DataFrame(columns)
    return PartyTable(frame.assign(id=range(len(frame))), id="id", name="bank", most_categories=most_categories)


def test_numbers_are_standardised_by_training_rows_only() -> None:
    source = table(age=[1.0, 3.0, None, 101.0])
    encoder = TableEncoder.fit(source, np.array([0, 1]))
    assert encoder.names == ("age",)
    np.testing.assert_allclose(encoder.transform(source, dtype=np.float64), [[-1], [1], [0], [99]])


def test_missing_numbers_become_the_mean_and_are_marked_if_training_had_some() -> None:
    encoder = TableEncoder.fit(table(age=[1.0, 3.0, None]))
    assert encoder.names == ("age", "age is missing")
    encoded = encoder.transform(table(age=[None, 1.0]))
    assert encoded.dtype == np.float32
    np.testing.assert_allclose(encoded, [[0, 1], [-1, 0]])


def test_categories_are_one_hot_in_sorted_order() -> None:
    encoder = TableEncoder.fit(table(job=["clerk", "baker", None, "clerk"]))
    assert encoder.names == ("job=baker", "job=clerk", "job is missing")
    np.testing.assert_array_equal(
        encoder.transform(table(job=["clerk", "unseen", None, "baker"])), [[0, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0]]
    )


def test_rare_categories_share_one_output() -> None:
    encoder = TableEncoder.fit(table(2, job=["c", "c", "b", "b", "a", "d"]))
    assert encoder.names == ("job=b", "job=c", "job is other")
    np.testing.assert_array_equal(
        encoder.transform(table(job=["a", "c", "unseen", None])), [[0, 0, 1], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    )


def test_ties_in_frequency_go_by_name() -> None:
    assert TableEncoder.fit(table(2, job=["d", "c", "b", "a"])).names[:2] == ("job=a", "job=b")


def test_columns_without_content_are_dropped_and_listed() -> None:
    source = table(empty=[None, None, None], same=[0.1, 0.1, 0.1], word=["a", "a", "a"], age=[1, 2, 3])
    encoder = TableEncoder.fit(source)
    assert (encoder.names, encoder.dropped, encoder.width) == (("age",), ("empty", "same", "word"), 1)
    assert encoder.transform(table(age=[1.0, 2.0])).shape == (2, 1), "dropped columns are not needed later"


def test_a_constant_beside_missing_cells_gives_zeros_and_the_mark() -> None:
    encoder = TableEncoder.fit(table(age=[4.0, 4.0, None]))
    np.testing.assert_array_equal(encoder.transform(table(age=[4.0, 5.0, None])), [[0, 0], [0, 0], [0, 1]])


def test_a_later_table_with_only_missing_cells_fits_any_kind() -> None:
    encoder = TableEncoder.fit(table(job=["a", "b", None], age=[1.0, 2.0, 4.0]))
    later = PartyTable(pd.DataFrame({"id": [1], "job": [None], "age": [None]}), id="id", types={"age": "categorical"})
    np.testing.assert_array_equal(encoder.transform(later), [[0, 0, 1, 0]])


def test_tables_that_do_not_fit_are_refused() -> None:
    encoder = TableEncoder.fit(table(income=[1.0, 2.0], job=["a", "b"]))
    with pytest.raises(TableError, match="Did you mean 'incomes'"):
        encoder.transform(table(incomes=[1.0], job=["a"]))
    with pytest.raises(TableError, match=r'types = \{job = "categorical"\}'):
        encoder.transform(table(income=[1.0], job=["8191"]))
    with pytest.raises(TableError, match="is categorical, but was numeric") as caught:
        encoder.transform(table(income=["canary8191"], job=["a"]))
    assert "canary" not in str(caught.value)
    assert encoder.types == {"income": "numeric", "job": "categorical"}
    with pytest.raises(TableError, match="no training rows"):
        TableEncoder.fit(table(age=[1.0]), np.array([], dtype=np.int64))
    with pytest.raises(TableError, match="Choose a whole number from 1 on"):
        table(0, age=[1.0])


def test_encoders_print_no_value() -> None:
    encoder = TableEncoder.fit(table(age=[8191.0, 8191.5], job=["canary", "b"]))
    labels = LabelEncoder.fit(["canary", "8191"])
    shown = repr(encoder) + repr(encoder.parts) + repr(labels)
    assert "canary" not in shown
    assert "8191" not in shown


def test_huge_numbers_stay_finite() -> None:
    encoder = TableEncoder.fit(table(age=[1e308, -1e308, 1.7e308]))
    assert np.isfinite(encoder.transform(table(age=[1e308, -1.7e308]))).all()
    small = TableEncoder.fit(table(age=[1.0, 1.0 + 1e-9]))
    assert np.isfinite(small.transform(table(age=[1e308]))).all()


numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
words = st.none() | st.text(max_size=3)
rows = st.lists(st.tuples(numbers, words), min_size=1, max_size=20)


def mixed(cells: list[tuple[float | None, str | None]], most_categories: int = 50) -> PartyTable:
    frame = pd.DataFrame({"id": range(len(cells))})
    frame["n"] = pd.Series([number for number, _ in cells], dtype=float)
    frame["w"] = pd.Series([word for _, word in cells], dtype=object)
    return PartyTable(frame, id="id", types={"n": "numeric", "w": "categorical"}, most_categories=most_categories)


@settings(deadline=None)
@given(rows, rows, st.integers(1, 4))
def test_json_brings_back_an_encoder_that_transforms_alike(
    train: list[tuple[float | None, str | None]], later: list[tuple[float | None, str | None]], most: int
) -> None:
    encoder = TableEncoder.fit(mixed(train, most))
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again == encoder
    one, two = (each.transform(mixed(later), dtype=np.float64) for each in (encoder, again))
    assert one.shape == (len(later), encoder.width) == (len(later), len(encoder.names))
    assert np.isfinite(one).all()
    assert one.tobytes() == two.tobytes()


@settings(deadline=None)
@given(rows, st.data())
def test_positions_give_the_rows_of_the_whole(
    cells: list[tuple[float | None, str | None]], data: st.DataObject
) -> None:
    source = mixed(cells)
    positions = np.array(data.draw(st.permutations(range(source.rows))), dtype=np.int64)
    encoder = TableEncoder.fit(source)
    np.testing.assert_array_equal(encoder.transform(source, positions), encoder.transform(source)[positions])
    np.testing.assert_array_equal(encoder.transform(source.take(positions)), encoder.transform(source, positions))


@pytest.mark.parametrize("encoder", [TableEncoder.fit(table(age=[1.0, 2.0])), LabelEncoder.fit([0, 1])])
def test_saved_encoders_of_another_version_or_shape_are_refused(encoder: TableEncoder | LabelEncoder) -> None:
    saved = encoder.to_json()
    with pytest.raises(TableError, match="version 2"):
        type(encoder).from_json(saved | {"version": 2})
    with pytest.raises(TableError, match="version None"):
        type(encoder).from_json({})
    for key in saved.keys() - {"version"}:
        with pytest.raises(TableError, match="incomplete or changed"):
            type(encoder).from_json({name: value for name, value in saved.items() if name != key})
        with pytest.raises(TableError, match="incomplete or changed"):
            type(encoder).from_json(saved | {key: None})


@pytest.mark.parametrize(
    ("labels", "task", "classes"),
    [
        ([0, 1, 1], "binary", (0, 1)),
        ([0.0, 1.0, 1.0], "binary", (0, 1)),
        ([0.5, 1.5, 0.5], "binary", (0.5, 1.5)),
        ([True, False], "binary", (False, True)),
        (["no", "yes"], "binary", ("no", "yes")),
        (["c", "a", "b"], "multiclass", ("a", "b", "c")),
        ([3, 1, 2], "multiclass", (1, 2, 3)),
        (list(range(10)), "multiclass", tuple(range(10))),
        (list(range(11)), "regression", ()),
        ([0.5, 1.5, 2.5], "regression", ()),
    ],
)
def test_the_task_follows_from_the_labels(labels: list[object], task: str, classes: tuple[object, ...]) -> None:
    encoder = LabelEncoder.fit(np.array(labels, dtype=object if isinstance(labels[0], str) else None))
    assert (encoder.task, encoder.classes) == (task, classes)
    assert [type(name) for name in encoder.classes] == [type(name) for name in classes]
    assert LabelEncoder.from_json(json.loads(json.dumps(encoder.to_json()))) == encoder
    decoded = encoder.decode(encoder.encode(labels))
    assert decoded.tolist() == (pytest.approx(labels) if task == "regression" else labels)


@pytest.mark.parametrize(
    ("labels", "positive", "classes", "why"),
    [
        (["ja"] * 3 + ["nein"] * 5, None, ("nein", "ja"), "'ja' counts as positive: the rarer class, 3 of 8 labels."),
        (["ja"] * 5 + ["nein"] * 3, None, ("ja", "nein"), "'nein' counts as positive: the rarer class, 3 of 8 labels."),
        (["ja"] * 5 + ["nein"] * 3, "ja", ("nein", "ja"), "'ja' counts as positive, as set: 5 of 8 labels."),
        ([0] * 2 + [1] * 5, None, (0, 1), "1 counts as positive: labels are 0 and 1, 5 of 7 labels."),
        ([0] * 2 + [1] * 5, "0", (1, 0), "0 counts as positive, as set: 2 of 7 labels."),
        (
            [True] * 5 + [False],
            None,
            (False, True),
            "True counts as positive: labels are False and True, 5 of 6 labels.",
        ),
        ([True] * 5 + [False], "false", (True, False), "False counts as positive, as set: 1 of 6 labels."),
        ([1, 2, 2], None, (2, 1), "1 counts as positive: the rarer class, 1 of 3 labels."),
        (["a", "b"], None, ("a", "b"), "'b' counts as positive: both classes are as frequent, and it is the second"),
    ],
)
def test_of_two_classes_the_positive_one_comes_second_and_why_is_said(
    labels: list[Any], positive: Any, classes: tuple[Any, ...], why: str
) -> None:
    frame = pd.DataFrame({"id": range(len(labels)), "x": 1.5, "y": labels})
    source = PartyTable(frame, id="id", label="y", positive=positive)
    encoder = LabelEncoder.of(source, "auto", np.arange(1))
    assert encoder.classes == classes
    assert encoder.sentence.startswith(why)
    assert ("Set positive in [table]" in encoder.sentence) == (positive is None)
    assert encoder.encode(source.labels).tolist() == [float(one == classes[1]) for one in labels]
    assert encoder.decode(encoder.encode(source.labels)).tolist() == labels
    assert source.take([0]).positive == source.positive
    assert (source.digest() == PartyTable(frame, id="id", label="y").digest()) == (positive is None)


@pytest.mark.parametrize(
    ("labels", "positive", "expected"),
    [
        (["canary", "b", "c"], "canary", "3 different values.*Leave out positive"),
        ([0.5, 1.5, 2.5], 0.5, "3 different values"),
        (["ja", "nein"], "neim", "2 classes, and positive = 'neim' is neither.*'nein'"),
        ([1, 2], True, "2 classes"),
    ],
)
def test_a_positive_class_that_is_none_of_two_is_refused(labels: list[Any], positive: Any, expected: str) -> None:
    frame = pd.DataFrame({"id": range(len(labels)), "y": labels})
    with pytest.raises(TableError, match=expected):
        PartyTable(frame, id="id", label="y", positive=positive)
    with pytest.raises(TableError, match="no label"):
        PartyTable(frame.assign(x=1.5), id="id", positive=positive)


def test_zero_and_one_and_false_and_true_say_themselves_which_is_positive_however_they_are_kept() -> None:
    assert LabelEncoder.fit(["0"] + ["1"] * 5).classes == ("0", "1")
    assert LabelEncoder.fit(["False"] + ["True"] * 5).classes == ("False", "True")


def test_numbers_have_no_positive_class() -> None:
    with pytest.raises(ConfigError, match="regression has none"):
        LabelEncoder.fit([0.5, 1.5], "regression", 0.5)


def test_what_the_task_was_taken_for_is_said_with_what_changes_it() -> None:
    grades = LabelEncoder.fit(list(range(21))).sentence
    assert "numbers to predict: whole numbers with 21 different values, more than 10" in grades
    assert 'Set task = "multiclass" in [config]' in grades
    assert 'at most 10. Set task = "regression" in [config]' in LabelEncoder.fit([1, 2, 3]).sentence
    assert LabelEncoder.fit(["a", "b", "c"]).sentence == "The labels are taken for 3 classes: they are text."
    assert LabelEncoder.fit([1, 2, 3], "regression").sentence == "The labels are numbers to predict, as task says."


def test_encoded_labels_have_the_type_a_loss_needs() -> None:
    assert LabelEncoder.fit(["a", "b"]).encode(["b", "a"]).dtype == np.float64
    assert LabelEncoder.fit([1, 2, 3]).encode([3.0, 1.0]).dtype == np.int64
    assert LabelEncoder.fit(["a", "b"]).decode([0.2, 0.7]).tolist() == ["a", "b"]
    regression = LabelEncoder.fit([1.0, 3.0], task="regression")
    assert (regression.mean, regression.scale) == (2.0, 1.0)
    assert regression.encode([1, 3]).tolist() == [-1.0, 1.0]


@settings(deadline=None)
@given(st.lists(st.floats(-1e100, 1e100), min_size=2).filter(lambda labels: len(set(labels)) > 1))
def test_regression_labels_come_back(labels: list[float]) -> None:
    encoder = LabelEncoder.fit(labels, task="regression")
    spread = max(map(abs, labels))
    np.testing.assert_allclose(encoder.decode(encoder.encode(labels)), labels, rtol=1e-9, atol=1e-12 * spread)


@pytest.mark.parametrize(
    ("labels", "task", "expected"),
    [
        ([1, 2, 3, 4, 5], "binary", "have 5"),
        (["a", "b"], "regression", "numbers"),
        ([True, False], "regression", "numbers"),
        ([1, 1], "auto", "1 different"),
        ([1.0, None], "auto", "1 of 2 labels are missing"),
        ([1.0, float("inf")], "auto", "1 of 2 labels are infinite"),
        (["canary8191", 1], "auto", "int, str"),
        ([[1, 2]], "auto", "shape"),
    ],
)
def test_labels_that_do_not_fit_the_task_are_refused(labels: list[object], task: str, expected: str) -> None:
    array = np.array(labels, dtype=float if None in labels else object if isinstance(labels[0], str) else None)
    with pytest.raises(TableError, match=expected) as caught:
        LabelEncoder.fit(array, task=task)
    assert "canary" not in str(caught.value)


def test_an_unknown_task_suggests_one() -> None:
    with pytest.raises(ConfigError, match="'regression'"):
        LabelEncoder.fit([0, 1], task="regresion")


@pytest.mark.parametrize(
    ("fitted", "later"), [(["a", "b"], ["a", "canary8191"]), ([0, 1], [0, 8191]), ([0, 1], ["0", "1"])]
)
def test_unseen_classes_are_counted_not_shown(fitted: list[object], later: list[object]) -> None:
    with pytest.raises(TableError, match=r"[12] of 2 labels") as caught:
        LabelEncoder.fit(fitted).encode(later)
    assert "8191" not in str(caught.value)


def test_class_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(TableError, match="1 of 2 class numbers"):
        LabelEncoder.fit(["a", "b", "c"]).decode([0, 3])


def test_an_output_that_tells_too_few_rows_apart_is_left_out() -> None:
    job = ["a"] * 6 + ["b"] * 5 + ["c"] * 3 + ["d"] * 2 + [None] * 4
    source = table(
        job=job,
        flag=["yes"] * 18 + ["no"] * 2,
        age=[40.0] * 18 + [1e9, 2.0],
        size=[*np.arange(15.0), *[None] * 5],
        income=[*np.arange(17.0), *[None] * 3],
    )
    encoder = TableEncoder.fit(source, minimum_support=5)
    assert encoder.names == ("job=a", "job=b", "job is other", "size", "size is missing", "income")
    assert encoder.dropped == ("flag", "age")
    encoded = encoder.transform(source)
    assert encoded[:, :3].sum(axis=0).tolist() == [6, 5, 5]
    assert not encoded[16:, :3].any(), "four missing cells have no output of their own"
    assert (encoded[:5, 3] == encoded[0, 3]).all(), "the five lowest of a column are alike"
    assert (encoded[10:15, 3] == encoded[14, 3]).all(), "and the five highest"
    assert encoder.transform(table(job=["a"], size=[1e12], income=[0.0]))[0, 3] == encoded[14, 3]
    assert TableEncoder.from_json(encoder.to_json()) == encoder
    assert TableEncoder.fit(source, minimum_support=6).names == ("job=a", "job is other", "size", "income")


def test_the_rest_of_the_categories_is_left_out_if_it_is_too_small_together() -> None:
    encoder = TableEncoder.fit(table(job=["a"] * 8 + ["b"] * 7 + ["c"] * 3), minimum_support=5)
    assert encoder.names == ("job=a", "job=b")
    assert not encoder.transform(table(job=["c", "unknown"])).any()
