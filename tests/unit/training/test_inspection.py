from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from colonnade.data import PartyTable
from colonnade.training import described, inspect_table

ROWS = 1000
random = np.random.default_rng(5)
LABEL = random.random(ROWS) < 0.2


def table(label: Any = None, **columns: Any) -> PartyTable:
    frame = pd.DataFrame({"id": [f"KD{row:05}" for row in range(ROWS)], **columns})
    if label is not None:
        frame["churned"] = label
    return PartyTable(frame, id="id", label=None if label is None else "churned", name="bank")


def noted(values: Any, label: Any = None) -> list[str]:
    return inspect_table(table(label, column=values)).looks_wrong


def with_some(values: Any, places: slice, value: Any) -> Any:
    changed = pd.Series(values)
    changed.iloc[places] = value
    return changed


def days(count: int, first: str) -> pd.Series[Any]:
    return (
        pd.Series(pd.date_range(first, periods=count, freq="3D")).sample(frac=1, random_state=1).reset_index(drop=True)
    )


WRONG: dict[str, tuple[Any, str]] = {
    "half missing": (with_some(random.normal(size=ROWS), slice(0, 500), np.nan), "500 of 1,000 cells are missing."),
    "one value": (with_some(np.zeros(ROWS), slice(0, 9), 1.0), "One value is in 991 of 1,000 cells."),
    "code for missing": (
        with_some(random.normal(40, 9, ROWS), slice(0, 4), 9999.0),
        "4 numbers lie far away from all others, all with one value, which may stand for missing ones.",
    ),
    "slip": (with_some(random.normal(40, 9, ROWS), slice(0, 1), -4000.0), "1 number lies far away from all others."),
    "placeholder": (
        with_some(days(ROWS, "2001-01-01"), slice(0, 12), pd.Timestamp("1900-01-01")),
        "12 dates are of 1900 or before, as placeholders for missing ones often are.",
    ),
    "future": (
        with_some(days(ROWS, "2001-01-01"), slice(0, 2), pd.Timestamp("2199-12-31")),
        "2 dates lie in the future.",
    ),
    "categories": (
        random.choice([f"w{place}" for place in range(80)], ROWS),
        "80 categories, of which the 50 most frequent are told apart",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_looks_wrong_with_a_column_is_said_in_counts(name: str) -> None:
    values, expected = WRONG[name]
    (note,) = noted(values)
    assert note.startswith(f"column: {expected}")


SOUND = {
    "numbers": random.normal(size=ROWS),
    "amounts": np.exp(2 * random.normal(size=ROWS)),
    "counts": random.poisson(0.3, ROWS),
    "months": days(ROWS, "2001-01-01"),
    "choices": random.choice(["a", "b", "c"], ROWS),
    "gaps": with_some(random.normal(size=ROWS), slice(0, 400), np.nan),
    "flags": random.random(ROWS) < 0.5,
    "useful": random.normal(size=ROWS) + 2 * LABEL,
}


@pytest.mark.parametrize("name", SOUND)
def test_nothing_looks_wrong_with_a_sound_column(name: str) -> None:
    assert noted(SOUND[name], np.where(LABEL, "ja", "nein")) == []


LEAKS = {
    "number": 3.0 * LABEL + random.random(ROWS),
    "number, downwards": -3.0 * LABEL + random.random(ROWS),
    "in the middle": np.where(LABEL, 0.0, np.where(random.random(ROWS) < 0.5, -5.0, 5.0)) + random.random(ROWS),
    "category": np.where(LABEL, "left", random.choice(["here", "there"], ROWS)),
    "missing unless": pd.Series(np.where(LABEL, random.random(ROWS), np.nan)),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_column_that_tells_the_label_is_named_first_where_the_label_is(name: str) -> None:
    one = table(np.where(LABEL, "ja", "nein"), gaps=with_some(np.ones(ROWS), slice(0, 600), np.nan), leak=LEAKS[name])
    found = inspect_table(one)
    assert found.looks_wrong[0].startswith("leak: It alone nearly determines the label 'churned'.")
    assert [column.name for column in found.columns if column.tells_label] == ["leak"]


def test_leaks_of_classes_and_numbers_are_found_too() -> None:
    classes = random.integers(0, 4, ROWS)
    amounts = random.normal(size=ROWS)
    assert "determines" in noted(classes * 2.0 + random.random(ROWS), [f"class {one}" for one in classes])[0]
    assert "determines" in noted(np.exp(amounts), amounts)[0]
    assert not noted(amounts + random.normal(size=ROWS), amounts)


def test_the_table_as_a_whole_is_looked_at() -> None:
    frame = pd.DataFrame({"id": [f"{row}.5E+11" for row in range(60)], "word": random.choice(list("abcdefgh"), 60)})
    frame["y"] = [None, "rare", *["usual"] * 58]
    frame = frame.assign(**{f"n{place}": random.normal(size=60) for place in range(60)})
    frame.iloc[1, 3:] = frame.iloc[0, 3:]
    frame.loc[1, "word"] = frame.loc[0, "word"]
    notes = inspect_table(PartyTable(frame, id="id", label="y", unlabelled=True)).notes
    assert [note.split(".")[0].split(":")[0] for note in notes] == [
        "There are only 60 rows",
        "Columns become 68 numbers, which is more than there are rows",
        "Some ids of 'id' have an exponent, such as 1",
        "1 row repeats another one in all columns but the id",
        "1 of 60 rows have no label",
        "1 of 2 classes of 'y' have fewer than 20 rows each",
    ]


def test_it_holds_no_value_but_the_classes_of_the_label_and_is_made_once() -> None:
    canaries = [f"canary{place % 7}" for place in range(ROWS)]
    one = table(np.where(LABEL, "ja", "nein"), words=canaries, number=np.full(ROWS, 8191.5) + random.random(ROWS))
    found = inspect_table(one)
    assert found is inspect_table(one)
    assert found.label is not None
    assert found.label.classes == {"ja": int(LABEL.sum()), "nein": int(ROWS - LABEL.sum())}
    said = json.dumps(found.to_json()) + found.in_short("bank")
    assert not any(value in said for value in ("canary", "8191", "KD0"))
    assert "nein" not in json.dumps(described(one)) + found.in_short("bank")
    assert {name: (column.encoded, column.outputs) for name, column in zip(["w", "n"], found.columns, strict=True)} == {
        "w": ("7 categories", 7),
        "n": ("number, bounded", 1),
    }


def test_the_short_form_counts_kinds_and_names_what_is_left_out() -> None:
    remarks = [f"The customer number {row} has called about {row * 7919}" for row in range(ROWS)]
    one = table(
        LABEL,
        age=random.integers(18, 90, ROWS),
        since=days(ROWS, "2001-01-01"),
        flag=random.random(ROWS) < 0.5,
        city=random.choice(["a", "b"], ROWS),
        remark=remarks,
        **{f"gap{place}": with_some(random.normal(size=ROWS), slice(0, 600), np.nan) for place in range(5)},
    )
    lines = inspect_table(one).in_short("customers.csv").splitlines()
    assert lines[0] == (
        "customers.csv: 1,000 rows, 9 columns used (6 numbers, 1 date, 1 boolean, 1 category), label churned, 1 left "
        "out: remark (free text)"
    )
    assert lines[1:] == [
        *(f"  gap{place}: 600 of 1,000 cells are missing." for place in range(3)),
        "  2 more: see 'colonnade inspect'",
    ]
