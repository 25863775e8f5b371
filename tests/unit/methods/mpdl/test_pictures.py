"""Pictures of rows before and after completion: own pixels only, then generated ones too."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

import colonnade as cn
from colonnade.methods.mpdl.config import MPDL
from colonnade.methods.mpdl.pictures import MOST_PICTURES, pictures_finding
from colonnade.reports.figure_values import check_figure

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
    check_figure(figure)
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


def test_every_holder_of_a_run_on_pictures_shows_rows_that_only_it_knows() -> None:
    draw = np.random.default_rng(0)
    whole = draw.random((60, 16)).round(2)
    tables = {
        "north": cn.PartyTable(_frame(whole, range(40), range(10)), id="id", label="digit", name="north"),
        "south": cn.PartyTable(_frame(whole, range(20, 60), range(10, 16)), id="id", name="south"),
    }
    config = cn.MPDL(
        image=(1, 4, 4), channels=(2,), dense=(4,), kernel_size=3, bounds={"*": (0.0, 1.0)}, epochs=1, folds=0
    )
    roles = {"label_holder": "north", "feature_holder": "south", "collaborator": "helper"}
    run = cn.simulate(config, tables, roles=roles, seed=3)
    for party, first, pixels in (("north", 0, slice(0, 10)), ("south", 40, slice(10, 16))):
        (figure,) = run.findings[f"pictures of {party}"].figures
        before, after = (row["pictures"] for row in figure.values["rows"])
        assert [picture.count(None) for picture in before] == [16 - (pixels.stop - pixels.start)] * MOST_PICTURES
        assert not any(None in picture for picture in after)
        assert before[0][pixels] == after[0][pixels] == (whole[first, pixels] * 255).round().astype(int).tolist()


def _frame(whole: npt.NDArray[np.float64], rows: range, pixels: range) -> pd.DataFrame:
    frame = pd.DataFrame({f"pixel_{place}": whole[rows, place] for place in pixels})
    frame.insert(0, "id", [f"p{row}" for row in rows])
    if 0 in pixels:
        frame["digit"] = np.where(whole[rows, 0] > 0.5, "one", "two")
    return frame
