from __future__ import annotations

import csv
import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.text import csv_cell, is_plain, shown, spelt_out

ANYTHING = st.text(st.characters(), max_size=40)
CELLS = st.text(st.sampled_from("=+-@'\";,\t\r\n 1.eaＤ＝＠"), max_size=12)
SIGNS = "=+-@＝＋－＠\t\r\n"
# What a user does to have a text back: our apostrophe stands where a cell begins, before a sign.
OURS = re.compile(r"(?:^|(?<=[,;\t\r\n]))'(?=['\"\s]*[=+\-@＝＋－＠]|'*[\t\r\n])")


@pytest.mark.parametrize("text", ["naïve", "東京", "שלום", "نه‌تنها", "क्‍ष", "a b", "👩‍🔬", "<=50K", ""])
def test_words_of_any_language_are_plain(text: str) -> None:
    assert is_plain(text)
    assert spelt_out(text) == shown(text) == text


@given(ANYTHING)
@settings(deadline=None)
def test_what_is_spelt_out_is_plain_and_stays_so(text: str) -> None:
    found = spelt_out(text)
    assert is_plain(found)
    assert spelt_out(found) == found
    assert (found == text) == is_plain(text)


@given(ANYTHING, st.integers(1, 50))
@settings(deadline=None)
def test_what_is_shown_is_no_longer_than_asked_for(text: str, longest: int) -> None:
    found = shown(text, longest)
    assert is_plain(found)
    assert len(found) <= longest
    assert found == spelt_out(text) or found.endswith("…")


@given(st.one_of(CELLS, ANYTHING))
@settings(deadline=None, max_examples=300)
def test_no_cell_is_a_formula_and_every_text_can_be_had_back(text: str) -> None:
    found = csv_cell(text)
    if found == text and text[:1] in ("+", "-"):
        float(text)
    for cut in (found, *found.split(";"), *found.split(","), *found.split("\t")):
        assert cut == text or cut.strip(' "')[:1] not in (*SIGNS[:8],), cut
    assert OURS.sub("", found) == text
    written = io.StringIO()
    csv.writer(written).writerow([found])
    assert next(csv.reader(io.StringIO(written.getvalue(), newline=""))) == [found]


@pytest.mark.parametrize("number", ["-1.5", "+3", "0", "-2e-10", "1.", "17"])
def test_numbers_stay_numbers(number: str) -> None:
    assert csv_cell(number) == number
