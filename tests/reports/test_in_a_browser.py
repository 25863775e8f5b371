"""The page of a small run fits a desk, a telephone and a sheet of paper: nothing is wider than what shows it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.reports.browser import FOUND, Browser

import colonnade as cn

pytestmark = pytest.mark.skipif(FOUND is None, reason="Chromium is not installed here")

LONG = "a_column_whose_name_somebody_made_from_a_whole_sentence_without_any_space"
# An element is cut off if it ends beyond the page and nothing around it can be scrolled.
CUT_OFF = """[...document.querySelectorAll("body *")].filter(one =>
  one.getBoundingClientRect().width && one.getBoundingClientRect().right > innerWidth + 1
  && !one.closest(".scroll, pre, svg") && !one.closest(".stack thead")).map(one => one.outerHTML.slice(0, 99))"""
HIDDEN = """[...document.querySelectorAll(".scroll, pre")].filter(one => one.scrollWidth > one.clientWidth + 1)
  .map(one => one.innerText.slice(0, 99))"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of parties and columns with long names."""
    generator, rows = np.random.default_rng(0), 120
    numbers = generator.normal(size=(rows, 10))
    frames = [
        pd.DataFrame(
            {"id": np.arange(rows), LONG: numbers[:, 0], "label": np.where(numbers[:, :3].sum(axis=1) > 0, "y", "n")}
        ),
        pd.DataFrame({"id": np.arange(rows), **{f"{LONG}_{place}": numbers[:, place] for place in range(1, 10)}}),
    ]
    tables = {
        "a-bank-with-a-long-name": cn.PartyTable(frames[0], id="id", label="label", name="a-bank-with-a-long-name"),
        "a-shop-with-an-even-longer-name": cn.PartyTable(frames[1], id="id", name="a-shop-with-an-even-longer-name"),
    }
    run = cn.simulate(cn.SplitNN(epochs=2, minimum_steps=0, members=1), tables)
    return run.report(tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize("width", [1200, 390])
def test_nothing_is_wider_than_the_screen(browser: Browser, report: Path, width: int) -> None:
    browser.open(report, width)
    assert browser.value("document.documentElement.scrollWidth") == width
    assert browser.value(CUT_OFF) == []
    assert browser.value("document.querySelector('h1').innerText.length") > 5


def test_on_a_telephone_rows_of_wide_tables_become_lists_with_their_headings(browser: Browser, report: Path) -> None:
    browser.open(report, 390)
    assert browser.value(HIDDEN) == []
    shown = browser.value("getComputedStyle(document.querySelector('.crossed td'), '::before').content")
    assert shown == '"From → to"'


def test_on_paper_nothing_is_cut_off_or_folded(browser: Browser, report: Path) -> None:
    browser.open(report, 690, media="print")  # A4 without its margins
    assert browser.value(CUT_OFF) == []
    wide = """[...document.querySelectorAll("table, pre, figure")]
      .filter(one => one.getBoundingClientRect().right > innerWidth + 1).map(one => one.innerText.slice(0, 99))"""
    assert browser.value(wide) == []
    assert browser.value("document.querySelectorAll('details:not([open])').length") == 1
    folded = "[...document.querySelectorAll('details table')].filter(one => !one.checkVisibility()).length"
    assert browser.value(folded) == 0
    assert browser.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    printed = base64.b64decode(browser.ask("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert printed.startswith(b"%PDF")
