"""A run shows itself in a few lines, and in a notebook as markup that can do nothing but be shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.reports.conftest import changed

from colonnade.reports import as_markup, as_text

HOSTILE = "<script>alert(1)</script>\x1b[2J"


def test_a_run_is_told_in_three_lines(binary: Any) -> None:
    first, second, third = as_text(changed(binary, folder=Path("runs/breast-2026"))).splitlines()
    assert first == (
        "Run breast-2026 of splitnn: hospital (label_holder), laboratory (feature_holder); 350 shared rows"
    )
    assert re.match(r"Together, hospital and laboratory reach AUC 0\.\d{3} on 70 held-out", second)
    assert third == "Folder: runs/breast-2026"
    assert len(as_text(changed(binary, folder=None)).splitlines()) == 2


def test_a_notebook_gets_what_each_party_sent_and_the_warnings(binary: Any) -> None:
    markup = as_markup(changed(binary, folder=None))
    assert "<td>laboratory</td><td>feature_holder</td><td>500</td><td>22</td><td>3.8 MiB</td>" in markup
    assert "<summary>Read this first: 2 remarks</summary>" in markup
    assert "insecure test keys" in markup
    assert len(markup) < 3000


def test_what_others_wrote_is_escaped(binary: Any) -> None:
    run = changed(binary, folder=Path(HOSTILE), marks=(HOSTILE,), title=HOSTILE)
    for shown in (as_markup(run), as_text(run)):
        assert "\x1b" not in shown
    assert "<script" not in as_markup(run)
    assert not re.search(r"(src|href|style|on\w+)=", as_markup(run))
