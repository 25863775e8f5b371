from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from colonnade.data import IdFormat, IdRule, PartyTable, explain_few_shared, explain_nothing_shared


def format_of(*ids: object) -> IdFormat:
    return IdFormat.of(np.fromiter(ids, dtype=object, count=len(ids)))


def explained(left: tuple[object, ...], right: tuple[object, ...], **rule: Any) -> str:
    return explain_nothing_shared({"bank": format_of(*left), "shop": format_of(*right)}, IdRule(**rule))


@pytest.mark.parametrize(
    ("left", "right", "rule", "hint"),
    [
        (("8191", "7"), ("008191", "007"), {}, 'type = "number"'),
        (("8191", "17"), ("008191", "0017"), {"type": "text"}, 'type = "number"'),
        (("0008191", "0000017"), ("08191", "00017"), {}, 'type = "number"'),
        (("8191", "A17"), ("008191", "A17"), {}, 'type = "number"'),
        (("8191", "17"), ("008191", "0017"), {"type": "number"}, "different people"),
        (("AB8191", "AC"), ("ab8191", "ac"), {}, 'case = "fold"'),
        (("AB8191", "AC1234"), ("ab8191", "ac1234"), {"case": "fold"}, "different people"),
        (("8191", "17"), ("8191 ", "17 "), {"trim": False}, "trim = true"),
        (("8191", "1234"), ("8191 ", "1234 "), {}, "different people"),
        (("8191", "1234"), ("x-8191", "x-1234"), {}, "prefix"),
        (("8191", "1234"), ("8192", "4321"), {}, "different people"),
        ((8191, 7), ("8191", "7"), {}, 'type = "text"'),
        ((8191, 1234), ("8191", "1234"), {"type": "text"}, "different people"),
        ((8191, 1234), ("canary", "ab12"), {}, "another column"),
        (("8191.0", "A17"), ("8191", "A17"), {}, 'type = "text"'),
        (("81-91", "12-34"), ("8191", "1234"), {}, 'separators = "drop"'),
        (("81-91", "12-34"), ("81 91", "12 34"), {}, "hyphens and spaces inside"),
        (("81-91", "12-34"), ("81 91", "12 34"), {"separators": "drop"}, "different people"),
        (("8.191E+11", "7.3E+11"), ("819100000000", "730000000000"), {}, "as text"),
        ((("Zoe", 1990),), (("Zoe", "1990"),), {}, 'type = "text"'),
        ((("Zoe", 1990),), (("Zoe", "1990"),), {"type": "text"}, "different people"),
        ((("Zoe", 1990),), ("Zoe 1990",), {}, "ids are made of 2 and 1 columns"),
    ],
)
def test_an_empty_alignment_names_the_rule_that_would_help_and_no_id(
    left: tuple[object, ...], right: tuple[object, ...], rule: dict[str, Any], hint: str
) -> None:
    message = explained(left, right, **rule)
    assert hint in message or (hint == "different people" and 'case = "fold"' in message and "Zoe" in str(left))
    assert "bank: " in message
    assert "shop: " in message
    assert not any(str(one).strip() in message for one in (*left, *right) if len(str(one)) > 3)


def test_few_shared_rows_give_a_hint_only_where_formats_differ() -> None:
    formats = {"bank": format_of("AB8191", "AC1234"), "shop": format_of("ab8191", "ac1234")}
    hint = explain_few_shared(3, 20, formats, IdRule())
    assert hint.startswith("Of the 20 rows of the smaller table, the parties share only 3. The ids look like this: ")
    assert hint.endswith('all parties write in run.toml, under [alignment]: case = "fold".')
    assert not explain_few_shared(3, 20, formats, IdRule(case="fold"))
    assert "[alignment]" not in explain_few_shared(3, 20, formats, IdRule(), is_agreed=True)


def test_who_would_get_equal_ids_is_told_so() -> None:
    assert "Some ids of 'bank' may then be equal" in explained(("AB8191", "ab8191"), ("AB8191", "AC1234"))
    assert "may then be equal" not in explained(("AB8191", "ab8192"), ("AB8191", "AC1234"))


def test_a_format_counts_nothing_and_reads_well() -> None:
    one = format_of("00 12", "1234.0", " 17")
    assert str(one) == (
        "text, all digits, length 3-6, some with leading zeros, some with spaces around, some ending in .0, some with "
        "spaces inside (length 2-4 without)"
    )
    assert str(format_of(("Zoe", 1990), ("Ann ", 19900))) == (
        "2 columns of text and whole numbers, length 7-9, mixed case, some with spaces around"
    )
    assert str(format_of((1, 2))) == "2 columns of whole numbers, length 2"
    assert str(format_of(("030", "17"))).startswith("2 columns of text, all digits, length 5, some with")
    assert format_of(-5).separators == ()


def test_ids_that_are_missing_do_not_count_in_a_format() -> None:
    assert format_of(None, "ab", None) == format_of("ab")
    assert format_of(None) == format_of()


def test_ids_that_became_floats_are_whole_numbers_again(tmp_path: Any) -> None:
    frame = pd.DataFrame({"id": [123.0, 8191.0], "other": [5.0, np.nan], "x": [1, 2]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    options: dict[str, Any] = {"id": "id", "partner_ids": {"shop": "other"}}
    tables = [PartyTable.read(tmp_path / name, **options) for name in ("t.csv", "t.parquet")]
    for one in (*tables, PartyTable(frame, **options)):
        assert one.ids.tolist() == [123, 8191]
        assert one.ids_for("shop").tolist() == [5, None]
