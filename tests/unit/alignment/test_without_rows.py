"""A party without rows has no part in finding shared ones, whatever the protocol and the mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unit.alignment.intersecting import Intersected, expected_rows, intersect, tables_of

from colonnade.alignment import MESSAGES, Overlap, align, align_with_each, count_shared, find_overlap
from colonnade.alignment.messages import AlignmentOffer, DeclaredFormat
from colonnade.data import PartyTable
from colonnade.errors import DeclarationError
from colonnade.messages import declaration_of
from colonnade.session import Alignment, Policy, Session

IDS = ["a", "b", "c", "d"], ["d", "b", "e"]


def met(**options: Any) -> Intersected:
    return intersect(tables_of(*IDS), without_rows=("judge",), **options)


def names(session: Session) -> set[str]:
    return {entry.content["message"] for entry in session.ledger.read().messages()}


ALIGNING = {declaration_of(one).name for one in MESSAGES}


def test_it_gets_nothing_and_the_others_find_what_they_find_without_it() -> None:
    meeting = met()
    rows = meeting.rows()
    assert {party: rows[party] for party in ("bank", "shop")} == expected_rows(tables_of(*IDS))
    nothing = meeting.outcomes["judge"]
    assert (len(nothing), len(nothing.rest)) == (0, 0)
    assert "holds no table" in nothing.protocol


@pytest.mark.parametrize(
    ("step", "mode"),
    [
        (align, "both_learn"),
        (align_with_each, "both_learn"),
        (align_with_each, "one_learns"),
        (count_shared, "size_only"),
        (find_overlap, "both_learn"),
        (find_overlap, "one_learns"),
        (find_overlap, "size_only"),
    ],
)
def test_no_message_of_alignment_crosses_to_or_from_it(step: Any, mode: str) -> None:
    meeting = met(step=step, rule=Alignment(mode=mode))  # type: ignore[arg-type]
    assert not [one for one in meeting.outcomes.values() if isinstance(one, BaseException)]
    assert meeting.crossed(sender="bank", receiver="shop")
    assert not meeting.crossed(sender="judge")
    assert not meeting.crossed(receiver="judge")
    assert not names(meeting.sessions["judge"]) & ALIGNING
    assert names(meeting.sessions["shop"]) & ALIGNING


def test_two_parties_with_rows_count_as_two() -> None:
    meeting = met(step=find_overlap, rule=Alignment(mode="size_only"))
    found: dict[str, Overlap] = meeting.outcomes
    assert (found["bank"].shared, found["shop"].shared) == (2, 2), "the only partner's count is the count"
    assert set(found["bank"].partners) == {"shop"}
    assert (found["judge"].rows, found["judge"].partners, found["judge"].shared) == (0, {}, None)


def test_rows_that_another_tool_matched_are_compared_without_it() -> None:
    tables = tables_of(*IDS)
    for table in tables.values():
        table.matches = pd.DataFrame({"id": ["b", "d"]})
    meeting = intersect(tables, without_rows=("judge",), rule=Alignment(protocol="given"))
    assert meeting.rows() == {"bank": [1, 3], "shop": [1, 0], "judge": []}
    assert not meeting.crossed(receiver="judge")


def test_a_lead_whose_partners_have_no_rows_has_all_its_rows() -> None:
    meeting = intersect({"bank": tables_of(*IDS)["bank"]}, without_rows=("judge",))
    assert sorted(meeting.rows()["bank"]) == [0, 1, 2, 3]
    assert not meeting.crossed()


def test_its_rules_on_shared_rows_refuse_nothing_and_those_of_others_do() -> None:
    strict = Policy(minimum_shared_rows=500, maximum_alignments=0)
    assert met(policies={"judge": strict}).rows()["judge"] == []
    assert isinstance(met(policies={"shop": strict}).outcomes["shop"], Exception)


def test_a_result_is_used_again_with_and_without_it(tmp_path: Path) -> None:
    first = intersect(tables_of(*IDS), folder=tmp_path)
    again = met(folder=tmp_path)
    assert {party: again.rows()[party] for party in ("bank", "shop")} == first.rows()
    assert not again.points("bank", "shop"), "ids were blinded anew"
    assert not (tmp_path / "judge").exists()


def test_the_channel_refuses_to_carry_a_message_of_alignment_to_it() -> None:
    offer = AlignmentOffer(
        3,
        bytes(32),
        DeclaredFormat(True, "none", 1, 1, 1, 1, False, False, False, False, (), "lower", True, 1),
        (),
        b"",
        0,
    )

    def tell(session: Session, table: PartyTable) -> None:
        (peer,) = session.channels("collaborator")
        peer.send(offer)

    assert isinstance(met(step={"bank": tell}).outcomes["bank"], DeclarationError)
