"""Few rows are shared because ids are written differently: the hint, followed to the letter, finds them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.alignment.intersecting import Intersected, intersect

from colonnade.alignment import find_overlap
from colonnade.data import PartyTable
from colonnade.errors import AlignmentError, FewRowsShared, PolicyRefused
from colonnade.launch.home import read_run_file
from colonnade.session import Alignment, Policy

RUN = """\
[run]
name = "run"
method = "splitnn"
roles = { label_holder = "bank", feature_holder = "shop" }

[alignment]
"""
WRITTEN = {
    "case and spaces": (" kd007737{:02}", "KD007737{:02}"),
    "floats": ("12{:02}.0", "A12{:02}"),
    "leading zeros": ("0012{:02}", "12{:02}"),
    "hyphens": ("12-{:02}", "12{:02}"),
    "spaces": ("12 {:02}", "12{:02}"),
    "hyphens and spaces": ("A12-{:02}", "A12 {:02}"),
    "slashes, zeros and numbers": ("00/12/{:02}", "12{:02}"),
    "dots, hyphens and case": ("ab.12.{:02}", "AB-12-{:02}"),
    "text and numbers": ("12{:02}", "12{:02}"),
}
ROWS = 12


def tables(kind: str, folder: Path, alike: int) -> dict[str, PartyTable]:
    """Write two files of the same people, of whom some are written alike, and read them."""
    found = {}
    for party, form in zip(("bank", "shop"), WRITTEN[kind], strict=True):
        ids = [f"SAME{row}" if row < alike else form.format(row) for row in range(ROWS)]
        if kind == "floats":
            # One mixed column was taken for floats where it could be, by whoever wrote the bank's file.
            ids = [
                f"SAME{row}" if row < max(alike, 1) else f"12{row:02}{'.0' * (party == 'bank')}" for row in range(ROWS)
            ]
        (folder / f"{party}.csv").write_text("\n".join(["id,x", *(f"{one},1" for one in ids)]) + "\n")
        types = {"id": "categorical"} if (kind, party) == ("text and numbers", "bank") else None
        found[party] = PartyTable.read(folder / f"{party}.csv", id="id", types=types, name=party)
    return found


def follow(hint: str, file: Path) -> None:
    """Write under [alignment] what a hint says."""
    settings = re.search(r"all parties write in run.toml, under \[alignment\]: (.*?)\.(?: |$)", hint)
    assert settings is not None, hint
    file.write_text(file.read_text() + settings[1].replace(" and ", "\n") + "\n")


def hint_of(met: Intersected, *, is_error: bool) -> str:
    if is_error:
        (error,) = (one for one in met.outcomes.values() if isinstance(one, AlignmentError))
        return str(error)
    hints = {one.hint for one in met.outcomes.values()}
    assert len(hints) == 1, "both sides say the same"
    return hints.pop()


@pytest.mark.filterwarnings("ignore::colonnade.errors.FewRowsShared")
@pytest.mark.parametrize(
    ("kind", "alike"),
    # With one id that is text all others of the table are.
    [(kind, alike) for kind in WRITTEN for alike in (0, 3) if (kind, alike) != ("text and numbers", 3)],
)
def test_who_follows_the_hint_finds_all_rows(kind: str, alike: int, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(RUN)
    brought = tables(kind, tmp_path, alike)
    found = intersect(brought, rule=read_run_file(file).alignment)
    is_none = not alike and kind != "floats"
    hint = hint_of(found, is_error=is_none)
    assert not any(str(one).strip() in hint for table in brought.values() for one in table.ids)
    follow(hint, file)
    again = intersect(brought, rule=read_run_file(file).alignment)
    assert {party: len(rows) for party, rows in again.rows().items()} == {"bank": ROWS, "shop": ROWS}
    assert not hint_of(again, is_error=False)


def test_both_sides_are_warned_and_half_the_rows_are_not_few(tmp_path: Path) -> None:
    with pytest.warns(FewRowsShared, match="share only 5") as warned:
        intersect(tables("hyphens", tmp_path, 5))
    assert len({str(one.message) for one in warned}) == 1
    assert not hint_of(intersect(tables("hyphens", tmp_path, ROWS // 2)), is_error=False)


def test_a_policy_that_refuses_too_few_rows_says_what_would_help(tmp_path: Path) -> None:
    policies = {"shop": Policy(minimum_shared_rows=ROWS - 1)}
    met = intersect(tables("hyphens", tmp_path, ROWS // 2), policies=policies)
    assert isinstance(met.outcomes["shop"], PolicyRefused)
    assert 'separators = "drop"' in str(met.outcomes["shop"])


@pytest.mark.filterwarnings("ignore::colonnade.errors.FewRowsShared")
def test_who_only_counts_gets_the_hint_too(tmp_path: Path) -> None:
    met = intersect(tables("spaces", tmp_path, 3), rule=Alignment(mode="size_only"), step=find_overlap)
    assert all('separators = "drop"' in one.hints[0] for one in met.outcomes.values())
