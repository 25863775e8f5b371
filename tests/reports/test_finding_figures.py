"""Figures that come with a finding: drawn inside the page, safe, and refused where their values do not fit."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.reports.conftest import changed
from tests.reports.test_page import HOSTILE, Page

from colonnade.errors import RunFolderError
from colonnade.reports import render
from colonnade.reports.figure_values import check_figure
from colonnade.reports.figures import _colours, _swarm
from colonnade.session import Figure, Finding

SCATTER = {
    "series": [{"name": "source", "x": [0, 1.5], "y": [2, 3]}, {"name": "target", "x": [0.5], "y": [0.25]}],
}
BARS = {"names": ["work", "age"], "lengths": [0.5, 0.25]}
BEESWARM = {
    "names": ["work", "age"],
    "values": [[-0.5, 0.5, 0.5, 0.1, 0.2], [1, 2, 3, 4, 5]],
    "levels": [[0, 1, 2, 3, 4]] * 2,
}
PICTURES: dict[str, Any] = {
    "shape": [1, 2, 2],
    "captions": ["1", "2"],
    "rows": [
        {"name": "before", "pictures": [[0, 255, None, None], [10, 20, None, None]]},
        {"name": "after", "pictures": [[0, 255, 9, 9], [10, 20, 9, 9]]},
    ],
}
TRADE_OFF = {
    "series": [{"name": "gender", "x": [0.9, 0.6], "y": [0.91, 0.88], "marks": ["0", "1"]}],
    "across": "what is read",
    "up": "task, auc",
}
KINDS: dict[str, dict[str, Any]] = {
    "scatter": SCATTER,
    "trade_off": TRADE_OFF,
    "bars": BARS,
    "beeswarm": BEESWARM,
    "pictures": PICTURES,
}


@pytest.fixture(scope="module")
def without(binary: Any) -> Page:
    """The page of a finding without a figure."""
    return Page(render(changed(binary, findings={"x": found()})))


@pytest.fixture
def plain(binary: Any) -> Any:
    """A record without figures of its own, which take longer to draw than those in question here."""
    return changed(binary, evaluations={}, curves=())


def found(*figures: Figure) -> Finding:
    return Finding(name="explanation", title="What moves the score", text="", figures=figures)


def drawn(kind: str, title: str = "A figure", **values: Any) -> Figure:
    return Figure(kind=kind, title=title, values=KINDS[kind] | values)


@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_is_drawn_once_with_a_caption_and_words_for_who_cannot_see_it(
    binary: Any, without: Page, kind: str
) -> None:
    page = Page(render(changed(binary, findings={"x": found(drawn(kind))})))
    assert page.tags.count("svg") == without.tags.count("svg") + 1
    labels = [value for element, name, value in page.attributes if (element, name) == ("svg", "aria-label")]
    assert sum(label.startswith("A figure. ") for label in labels) == 1
    assert "A figure." in page.text
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)), "ids of one figure do not meet those of another"


def test_both_domains_have_a_name_and_a_colour(plain: Any) -> None:
    page = render(changed(plain, findings={"x": found(drawn("scatter"))}))
    figure = page[page.index('class="figures small"') :]
    assert "2 rows of source, 1 rows of target." in figure
    assert "#b8332f" in figure
    assert "#2f6fb0" in figure
    assert re.search(r"<text[^>]*>source</text>", figure)


def test_scatters_stand_side_by_side_and_others_have_more_room(plain: Any) -> None:
    page = render(changed(plain, findings={"x": found(drawn("bars"), drawn("scatter"), drawn("scatter"))}))
    small = page.index('class="figures small"')
    assert page[small:].count("A figure. ") >= 3
    assert page.index('class="figures"', small) > small, "what is compared comes first"


def test_a_beeswarm_has_its_zero_line_and_five_colours(plain: Any) -> None:
    page = render(changed(plain, findings={"x": found(drawn("beeswarm"))}))
    for colour in ("#2166ac", "#6ea6cd", "#b9b4bd", "#e8896b", "#b2182b", "#8a9098"):
        assert colour in page
    assert "A dot is one of 5 rows." in page


def test_dots_of_equal_value_lie_beside_each_other_around_the_middle() -> None:
    heights = _swarm([1.0, 1.0, 1.0, 9.0], 0.5)
    assert len(set(heights[:3])) == 3
    assert sum(heights[:3]) == pytest.approx(0.0)
    assert heights[3] == 0.0
    assert max(map(abs, _swarm([1.0] * 1000, 0.5))) < 0.5, "a row does not grow into the next"
    assert _swarm([], 1.0) == []


def test_pictures_have_captions_rows_with_names_and_stripes_where_nothing_is_known(plain: Any) -> None:
    page = render(changed(plain, findings={"x": found(drawn("pictures"))}))
    figure = page[page.index('<figure class="wide"') :]
    assert figure.count("<image") == 4
    assert figure.count("data:image/png;base64,") == 4
    for text in ("before", "after", "1", "2"):
        assert re.search(rf"<text[^>]*>{text}</text>", figure)
    assert "2 pictures. From top to bottom: before, after. Pixels that are not known are striped." in figure
    whole = drawn("pictures", captions=["1"], rows=[{"name": "one", "pictures": [[1, 2, 3, 4]]}])
    assert "1 picture. From top to bottom: one.<" in render(changed(plain, findings={"x": found(whole)}))


def test_a_picture_is_grey_coloured_or_striped() -> None:
    grey = _colours([0, 255, None, 7], (1, 2, 2))
    assert grey.shape == (8, 8, 3)
    assert (grey[:4, :4] == 0).all()
    assert (grey[:4, 4:] == 255).all()
    assert (grey[4:, 4:] == 7).all()
    stripes = {tuple(pixel) for pixel in grey[4:, :4].reshape(-1, 3).tolist()}
    assert all(len(set(one)) == 3 for one in stripes), "no grey picture has such a colour"
    assert _colours([1, 2, 3], (3, 1, 1))[0, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_names_from_people_we_do_not_know_are_text(plain: Any, kind: str) -> None:
    hostile: dict[str, Any] = {"names": [HOSTILE, HOSTILE]}
    if kind == "scatter":
        hostile = {"series": [{"name": HOSTILE, "x": [1], "y": [1]}]}
    if kind == "trade_off":
        hostile = {"series": [{"name": HOSTILE, "x": [1], "y": [1], "marks": [HOSTILE]}], "across": HOSTILE}
    if kind == "pictures":
        hostile = {"captions": [HOSTILE], "rows": [{"name": HOSTILE, "pictures": [[0, 1, 2, 3]]}]}
    page = Page(render(changed(plain, findings={"x": found(drawn(kind, HOSTILE, **hostile))})))
    assert "script" not in page.tags


def test_nothing_to_draw_is_drawn_without_a_fault(plain: Any) -> None:
    empty = (
        Figure(kind="bars", title="a", values={"names": [], "lengths": []}),
        Figure(kind="beeswarm", title="b", values={"names": [], "values": [], "levels": []}),
        Figure(kind="beeswarm", title="c", values={"names": ["x"], "values": [[]], "levels": [[]]}),
        Figure(kind="scatter", title="d", values={"series": [{"name": "source", "x": [], "y": []}]}),
    )
    assert render(changed(plain, findings={"x": found(*empty)}))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("pie", {}),
        ("bars", {"names": ["a"], "lengths": []}),
        ("trade_off", {"series": [{"name": "a", "x": [1], "y": [1], "marks": []}], "across": "a", "up": "b"}),
        ("trade_off", {"series": [{"name": "a", "x": [1], "y": [1], "marks": ["1"]}], "across": "a"}),
        ("bars", {"names": ["a"], "lengths": [float("nan")]}),
        ("bars", {"names": ["a"], "lengths": ["1"]}),
        ("bars", {}),
        ("scatter", {"series": []}),
        ("scatter", {"series": [{"name": "a", "x": [1], "y": []}]}),
        ("beeswarm", {"names": ["a"], "values": [[1]], "levels": [[]]}),
        ("beeswarm", {"names": ["a"], "values": [], "levels": []}),
        ("pictures", {}),
        ("pictures", PICTURES | {"rows": []}),
        ("pictures", PICTURES | {"captions": []}),
        ("pictures", PICTURES | {"captions": ["1"]}),
        ("pictures", PICTURES | {"shape": [2, 2, 1]}),
        ("pictures", PICTURES | {"shape": [1, 2]}),
        ("pictures", PICTURES | {"shape": [1, 4, 2]}),
        ("pictures", PICTURES | {"rows": [{"name": "a", "pictures": [[0, 0, 0, 256]] * 2}]}),
        ("pictures", PICTURES | {"rows": [{"name": "a", "pictures": [[0, 0, 0, 0.5]] * 2}]}),
        ("pictures", PICTURES | {"rows": [{"pictures": [[0, 0, 0, 0]] * 2}]}),
        ("pictures", {"shape": [1, 1, 100_000], "captions": ["1"], "rows": [{"name": "a", "pictures": [[0] * 10**5]}]}),
    ],
)
def test_values_that_do_not_fit_are_refused(kind: str, values: dict[str, Any]) -> None:
    with pytest.raises(RunFolderError, match="figure"):
        check_figure(Figure(kind=kind, title="x", values=values))


def test_each_part_of_a_training_has_its_own_loss_curve(plain: Any) -> None:
    points = tuple(
        {"step": step, "epoch": step, "train_loss": 1 / (1 + step), "validation_loss": None, "part": part}
        for part in ("pretrain of sister", f"finetune of {HOSTILE}")
        for step in range(3)
    )
    page = Page(render(changed(plain, curves=points, chosen_epoch=None)))
    assert "Loss, pretrain of sister." in page.text
    assert "Loss, finetune of" in page.text
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert "script" not in page.tags


def test_a_stage_that_makes_a_model_says_how_good_it_is(binary: Any) -> None:
    page = Page(render(changed(binary, plan=changed(binary.plan, stage="pretrain")))).text
    assert "What was trained, and by whom" in page
    assert "makes no model" not in page
    assert "reach AUC" in page
