"""Pictures of rows before and after completion: own pixels only, then generated ones too."""

from __future__ import annotations

import math

import torch

from colonnade.methods.mpdl.config import MPDL
from colonnade.methods.mpdl.pictures import MOST_PICTURES, pictures_finding
from colonnade.reports import FigureNote

CONFIG = MPDL(image=(1, 2, 2), channels=(2,), kernel_size=1, bounds={"*": (0.0, 1.0)})


def test_own_pixels_come_first_and_generated_ones_fill_what_was_not_known() -> None:
    own, generated = torch.tensor([[0.0, 1.0], [0.5, math.nan]]), torch.tensor([[0.2, 1.7], [-0.4, 0.6]])
    found = pictures_finding(CONFIG, own, ("a_3", "common_0"), generated, ("b_1", "b_2"), captions=("x",))
    assert found is not None
    (figure,) = found.figures
    before, after = (row["pictures"] for row in figure.values["rows"])
    assert before == [[255, None, None, 0], [None, None, None, 128]]
    assert after == [[255, 51, 255, 0], [None, 0, 153, 128]]
    assert figure.values["captions"] == ["x", "2"]
    assert FigureNote(kind=figure.kind, title=figure.title, values=dict(figure.values))
    assert found.text.startswith("2 rows that only this holder knows: their own pixels")
    assert found.values == {"rows": 2, "own_pixels": 2, "generated_pixels": 2}


def test_there_are_never_many() -> None:
    rows = torch.zeros(MOST_PICTURES + 5, 2)
    found = pictures_finding(CONFIG, rows, ("a_0", "a_1"), rows, ("b_2", "b_3"))
    assert found is not None
    assert [len(row["pictures"]) for row in found.figures[0].values["rows"]] == [MOST_PICTURES] * 2
    one = pictures_finding(CONFIG, rows[:1], ("a_0", "a_1"), rows[:1], ("b_2", "b_3"))
    assert one is not None
    assert one.text.startswith("1 row that only this holder knows: its own pixels")


def test_where_there_is_no_picture_there_is_no_finding() -> None:
    rows, names = torch.zeros(3, 1), ("a_0",)
    assert pictures_finding(MPDL(), rows, names, rows, ("b_1",)) is None
    assert pictures_finding(CONFIG, rows[:0], names, rows[:0], ("b_1",)) is None
    two = MPDL(image=(2, 2, 2), channels=(2,), kernel_size=1)
    assert pictures_finding(two, rows, names, rows, ("b_1",)) is None, "two channels are no colours"
