from __future__ import annotations

import dataclasses
import itertools
import re
import traceback
import unicodedata

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.data import Id, IdRule, PartyTable, canonical_id_bytes, normalised_ids
from colonnade.errors import ConfigError, TableError

RULES = [
    IdRule(trim=trim, case=case, type=type, separators=separators)
    for trim, case, type, separators in itertools.product(
        [True, False], ["keep", "fold"], ["keep", "text", "number"], ["keep", "drop"]
    )
]
# Lone surrogates are text, too: broken exports have them.
texts = st.text(st.characters(), max_size=6) | st.sampled_from(
    ["é", "é", "ẞ", "ß", "SS", " a", "A", "\ud800", "007", "7.0", "1-2", "1 2"]
)
numbers = st.integers(0, 12) | st.integers(-(2**70), 2**70)
parts = texts | numbers
single_ids = st.lists(parts, unique_by=lambda one: (type(one), one))
composite_ids = st.lists(st.tuples(parts, parts), unique_by=lambda one: tuple((type(part), part) for part in one))
rules = st.sampled_from(RULES)


def array(ids: list[object]) -> np.ndarray:
    return np.fromiter(ids, dtype=object, count=len(ids))


def normalised(*ids: object, **rule: object) -> list[bytes]:
    return normalised_ids(array([*ids]), IdRule(**rule), where="The id column 'key' of bank")


def refused(*ids: object, **rule: object) -> str:
    """Return the error's text, having checked that not even its traceback shows an id."""
    with pytest.raises(TableError) as caught:
        normalised(*ids, **rule)
    message = str(caught.value)
    shown = "".join(traceback.format_exception(caught.value))
    assert not any(canary in shown.lower() for canary in ("canary", "8191"))
    assert message.startswith("The id column 'key' of bank has ")
    assert message.count(". ") >= 1, "one sentence what happened, one what to do"
    return message


def obvious(identifier: Id, rule: IdRule) -> Id:
    """Apply a rule to one id, by the letter."""
    if isinstance(identifier, tuple):
        return tuple(obvious(part, rule) for part in identifier)  # type: ignore[misc]
    if isinstance(identifier, int):
        return str(identifier) if rule.type == "text" else identifier
    text = unicodedata.normalize("NFC", identifier.strip() if rule.trim else identifier)
    if rule.type != "keep" and re.fullmatch(r"[+-]?\d+[.,]0+", text):
        text = re.split("[.,]", text)[0]
    if rule.separators == "drop":
        is_separator = [one.isspace() or one in "-./\\_‐‑‒–—―−" for one in text]
        ends = [at for at, separates in enumerate(is_separator) if not separates] or [0]
        text = "".join(
            one
            for at, one in enumerate(text)
            if not is_separator[at] or at < ends[0] or at > ends[-1] or len(ends) == 1
        )
    if rule.type == "number" and re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    if rule.case == "fold":
        text = unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())
    return text


@settings(deadline=None)
@given(single_ids | composite_ids, rules)
def test_normalised_ids_are_the_canonical_bytes_of_what_the_rule_makes(ids: list[Id], rule: IdRule) -> None:
    expected = [obvious(one, rule) for one in ids]
    made = [canonical_id_bytes(one) for one in expected]
    repeated = {one for one in made if made.count(one) > 1}
    if repeated:
        rows = sum(one in repeated for one in made)
        # The whole text, made of counts alone, so that no id can be in it.
        assert refused(*ids, **dataclasses.asdict(rule)) == (
            f"The id column 'key' of bank has {len(repeated)} ids that occur more than once, in {rows} rows, when they "
            f"are compared as the run does ([alignment] {rule}). Keep one row for each id, or agree with all parties "
            "on a rule that tells them apart."
        )
        return
    assert normalised(*ids, **dataclasses.asdict(rule)) == made


@given(composite_ids | single_ids)
def test_canonical_bytes_are_unambiguous(ids: list[Id]) -> None:
    assert len({canonical_id_bytes(one) for one in ids}) == len(ids)
    assert b"" not in {canonical_id_bytes(one) for one in ids}


@given(st.lists(st.lists(texts, min_size=2, max_size=4).map(tuple), unique=True))
def test_canonical_bytes_of_composite_ids_keep_columns_apart(ids: list[tuple[str, ...]]) -> None:
    assert len({canonical_id_bytes(one) for one in ids}) == len(ids)


def test_canonical_bytes_are_fixed_for_ever() -> None:
    """Known answers: both sides must get them in every version."""
    assert canonical_id_bytes(("Zoé", 7)) == b"t2:5:sZo\xc3\xa9:2:i7"
    assert canonical_id_bytes(("a:1:sb",)) == b"t1:7:sa:1:sb"
    assert canonical_id_bytes("\ud800") == b"s\xed\xa0\x80"
    assert normalised(("Zoé ", 7), type="text", case="fold") == [b"t2:5:szo\xc3\xa9:2:s7"]


def test_by_default_spaces_around_and_the_form_of_accents_do_not_matter() -> None:
    assert normalised(" \tab\xa0", "e\u0301") == [b"sab", b"s\xc3\xa9"]
    assert normalised("Ab", "ab", "7", 7, "007") == [b"sAb", b"sab", b"s7", b"i7", b"s007"]


def test_trim_can_be_left_out() -> None:
    assert normalised("a", " a", trim=False) == [b"sa", b"s a"]
    assert "1 ids that occur more than once, in 2 rows" in refused("canary", " canary", "beta")


def test_case_fold_goes_beyond_lower_case() -> None:
    for one, other in [("STRASSE", "straße"), ("ÉMILE", "e\u0301mile"), ("ΣΊΣΥΦΟΣ", "σίσυφος"), ("K", "k")]:
        assert normalised(one, case="fold") == normalised(other, case="fold")
        assert normalised(one) != normalised(other)


def test_case_fold_does_not_depend_on_the_order_of_marks() -> None:
    # U+0345 folds to a letter, so folding before decomposing would keep these two apart.
    one, other = "\u1f80", "\u03b1\u0345\u0313"
    assert unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", other)
    assert normalised(one, case="fold") == normalised(other, case="fold")


def test_separators_inside_ids_can_be_dropped() -> None:
    assert normalised("12-34", "12 3.4/5_6\u20137", "AB -- 9", separators="drop") == [b"s1234", b"s1234567", b"sAB9"]
    assert normalised("-12", "7-", separators="drop") == [b"s-12", b"s7-"]
    assert normalised("12-34", separators="drop", type="number") == normalised(1234) == [b"i1234"]
    assert normalised("12.0", separators="drop", type="number") == [b"i12"]


def test_a_whole_number_written_as_a_float_is_one() -> None:
    assert normalised("123.0", "-7,00", type="text") == [b"s123", b"s-7"]
    assert normalised("0123.0", "1.5", type="number") == [b"i123", b"s1.5"]
    assert normalised("123.0") == [b"s123.0"]


def test_type_text_lets_numbers_meet_text_but_keeps_zeros() -> None:
    assert normalised(7, type="text") == normalised("7", type="text") == [b"s7"]
    assert normalised(2**70, type="text") == normalised(str(2**70), type="text")
    assert normalised("007", type="text") == [b"s007"]


def test_type_number_lets_padded_text_meet_numbers() -> None:
    assert normalised("007", " 8 ", "+9", "-010", "٣", 11, str(2**70), type="number") == [
        *(b"i7", b"i8", b"i9", b"i-10", b"i3", b"i11"),
        b"i%d" % 2**70,
    ]


def test_type_number_leaves_what_is_no_whole_number_as_text() -> None:
    for text in ("canary", "1_000", "12.5", "1e9", "9" * 5000, "8191x"):
        assert normalised(text, type="number") == [b"s" + text.encode()]
    assert normalised("AB", "7", type="number", case="fold") == [b"sab", b"i7"]


def test_ids_that_coincide_are_counted_and_the_rule_is_named() -> None:
    said = refused("canary", "Canary", "CANARY", "delta", "DELTA", "epsilon", case="fold")
    assert "2 ids that occur more than once, in 5 rows" in said
    assert '[alignment] trim = true, case = "fold", type = "keep", separators = "keep"' in said
    assert "1 ids that occur more than once, in 2 rows" in refused(8191, "8191", type="text")
    assert "1 ids that occur more than once, in 2 rows" in refused(("canary", 7), ("canary", "7"), type="text")


def test_rows_without_an_id_stay_empty_and_do_not_coincide() -> None:
    assert normalised(None, "a", None) == [b"", b"sa", b""]
    assert normalised(None, ("a", 1)) == [b"", b"t2:2:sa:2:i1"]
    assert normalised(None) == [b""]
    assert normalised() == []


@pytest.mark.parametrize("setting", [{"case": "lower"}, {"type": "int"}, {"trim": "yes"}, {"separators": "none"}])
def test_unknown_rules_are_refused(setting: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"alignment.{next(iter(setting))} must be"):
        IdRule(**setting)


def test_a_table_reads_ids_so_that_the_rule_can_join_them() -> None:
    frame = pd.DataFrame({"id": pd.Series([7, 2**70], dtype=object), "x": 1.0})
    padded = pd.DataFrame({"id": ["007", str(2**70)], "x": 1.0})
    rule = IdRule(type="number")
    one, other = (normalised_ids(PartyTable(each, id="id").ids, rule, where="") for each in (frame, padded))
    assert one == other
