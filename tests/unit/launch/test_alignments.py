"""Where a home keeps alignments: the history that limits them, results, and what was cut short."""

from __future__ import annotations

import json
import os
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.kills.harness import agreed
from tests.unit.launch.test_joining import Group, edit, group_in, has_finished, new_rows, together
from tests.unit.session.trials import Trial

from colonnade.alignment.ecdh import Side, answer_partner
from colonnade.alignment.history import AlignmentHistory
from colonnade.alignment.messages import BlindedIds, IdMarks, TwiceBlindedIds
from colonnade.alignment.store import AlignmentStore
from colonnade.crypto.blinding import POINT_BYTES, blind, draw_secret, join_ids, prepare_blinder
from colonnade.engine import INLINE
from colonnade.errors import ConfigError, PolicyRefused, WrongContent
from colonnade.launch.home import read_party_home
from colonnade.launch.join import Joining
from colonnade.launch.run_folder import RunFolder, alignment_plan, held_alignment
from colonnade.session import Policy

pytestmark = pytest.mark.timeout(180)


def allow(count: int) -> None:
    """Refuse nothing."""


# --- history ------------------------------------------------------------------------------------------------------


def test_a_history_counts_what_was_begun_by_partner(tmp_path: Path) -> None:
    history = AlignmentHistory(tmp_path / "home" / "history.jsonl")
    assert history.begun_with("shop") == 0
    assert [history.begin("shop", allow, run="churn") for _ in range(2)] == [0, 1]
    history.note("found", "shop", shared=3)
    history.begin("telco", allow)
    assert (history.begun_with("shop"), history.begun_with("telco"), history.begun_with("lab")) == (2, 1, 0)
    path = tmp_path / "home" / "history.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["event"], line["partner"]) for line in lines] == [
        *[("begun", "shop")] * 2,
        *[("found", "shop"), ("begun", "telco")],
    ]


def test_what_is_refused_is_not_begun(tmp_path: Path) -> None:
    history, policy = AlignmentHistory(tmp_path / "history.jsonl"), Policy(maximum_alignments=2)
    for _ in range(2):
        history.begin("shop", lambda count: policy.check_earlier_alignments("bank", "shop", count))
    with pytest.raises(PolicyRefused, match=r"policy.maximum_alignments .*2 of at most 2 alignments with 'shop'"):
        history.begin("shop", lambda count: policy.check_earlier_alignments("bank", "shop", count))
    assert history.begun_with("shop") == 2


def test_two_runs_at_once_cannot_both_have_the_last_one(tmp_path: Path) -> None:
    policy, refused = Policy(maximum_alignments=10), []

    def begin() -> None:
        for _ in range(5):
            try:
                AlignmentHistory(tmp_path / "h").begin(
                    "shop", lambda count: policy.check_earlier_alignments("bank", "shop", count)
                )
            except PolicyRefused as error:
                refused.append(error)

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert AlignmentHistory(tmp_path / "h").begun_with("shop") == 10
    assert len(refused) == 10


@pytest.mark.parametrize("damage", ['{"time": "2026', "[]", '{"event": 1}', "\x00\x00"])
def test_a_damaged_line_counts_and_does_not_swallow_the_next(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "history.jsonl"
    history = AlignmentHistory(path)
    history.begin("shop", allow)
    with path.open("a") as file:
        file.write(damage)
    history.begin("shop", allow)
    assert history.begun_with("shop") == 3
    assert json.loads(path.read_text().splitlines()[-1])["event"] == "begun"


def test_without_a_file_nothing_is_remembered() -> None:
    history = AlignmentHistory(None)
    assert [history.begin("shop", allow) for _ in range(2)] == [0, 0]
    with pytest.raises(PolicyRefused):
        history.begin(
            "shop", lambda count: Policy(maximum_alignments=0).check_earlier_alignments("bank", "shop", count)
        )


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match="maximum_alignments must not be negative"):
        Policy(maximum_alignments=-1)


# --- what was cut short -------------------------------------------------------------------------------------------


def test_alignments_of_two_runs_at_once_do_not_mix(tmp_path: Path) -> None:
    store = AlignmentStore(tmp_path / "alignments")
    first, second = (store.unfinished("shop", identity * 64) for identity in "ab")
    first.begin(b"1" * 16, np.arange(3), 5)
    second.begin(b"2" * 16, np.arange(3), 5)
    first.keep(0, b"first")
    second.keep(0, b"second")
    assert store.unfinished("shop", "a" * 64).kept() == [b"first"]
    assert store.unfinished("shop", "b" * 64).salt == b"2" * 16
    for state in (first, second):
        state.discard()
    assert list((tmp_path / "alignments").iterdir()) == []


def test_the_secret_of_a_forgotten_alignment_is_deleted_in_the_end(tmp_path: Path) -> None:
    store = AlignmentStore(tmp_path)
    for identity, days in (("a", 31), ("b", 29)):
        state = store.unfinished("shop", identity * 64)
        state.begin(b"1" * 16, np.arange(3), 5)
        path = next(tmp_path.glob(f"{identity * 16}/*/state.json"))
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - days * 24 * 3600))
    assert store.unfinished("shop", "c" * 64).salt == b""
    assert [path.parent.parent.name for path in tmp_path.rglob("state.json")] == ["b" * 16]


class _Lead:
    """A lead that asks about one piece and notes the answer."""

    peer = "bank"

    def __init__(self, points: Any) -> None:
        self.points, self.heard = points, []

    def receive(self, kind: type, **shapes: Any) -> BlindedIds:
        return BlindedIds(self.points)

    def send(self, message: Any) -> None:
        self.heard.append(type(message))


def test_a_lead_that_comes_back_cannot_ask_about_other_ids_in_the_same_alignment(tmp_path: Path) -> None:
    """Else it could rewind as often as it likes, and never begin anew."""

    def asked(*ids: bytes) -> Any:
        content = blind(prepare_blinder(memoryview(secret + b"1" * 16)), join_ids(list(ids)))
        return np.frombuffer(content, np.uint8).reshape(-1, POINT_BYTES)

    def answer(lead: _Lead) -> None:
        state = AlignmentStore(tmp_path).unfinished("bank", "a" * 64)
        if not state.salt:
            state.begin(b"1" * 16, np.arange(1), 2)
        answer_partner(Side(lead, INLINE, [b"i7"], state, lambda *_: None), 0)  # type: ignore[arg-type]

    secret = draw_secret()
    for _ in range(2):
        lead = _Lead(asked(b"i1", b"i2"))
        answer(lead)
        assert lead.heard == [TwiceBlindedIds, IdMarks]
    lead = _Lead(asked(b"i3", b"i4"))
    with pytest.raises(WrongContent, match="asks about other ids than before"):
        answer(lead)
    assert lead.heard == []


# --- homes and simulations ----------------------------------------------------------------------------------------


def align(group: Group, party: str) -> dict[str, Any]:
    home = read_party_home(group.home(party))
    with held_alignment(home.folder, "churn", b"agreed") as folder:
        joining = agreed(Joining(alignment_plan(group.plan()), home, folder))
        end = joining.take_part()
    assert end.overlap is not None
    return end.overlap


def test_three_parties_align_and_the_lead_knows_most(tmp_path: Path) -> None:
    group = group_in(tmp_path, ("bank", "shop", "telco"))
    for party, rows in (("shop", 300), ("telco", 350)):
        table = group.home(party) / "table.csv"
        table.write_text("\n".join(table.read_text().splitlines()[: rows + 1]) + "\n")
    found = together({party: lambda party=party: align(group, party) for party in group.homes.parties})
    assert found["bank"]["partners"] == {"shop": {"rows": 300, "shared": 300}, "telco": {"rows": 350, "shared": 350}}
    assert found["telco"]["partners"] == {"bank": {"rows": 400, "shared": None}}
    assert {found[party]["shared"] for party in found} == {300}
    assert [found[party]["rest"] for party in ("bank", "shop", "telco")] == [100, 0, 50]
    assert AlignmentHistory(group.home("bank") / "alignments" / "history.jsonl").begun_with("telco") == 1


def test_a_home_keeps_results_across_runs_and_a_run_of_another_name_uses_them(tmp_path: Path) -> None:
    group = group_in(tmp_path)
    has_finished(group.all())
    for party in ("bank", "shop"):
        assert len(list((group.home(party) / "alignments").glob("*.rows"))) == 1
        assert not (group.folder(party) / "alignment").exists()
    edit(tmp_path / "run.toml", 'name = "churn"', 'name = "again"')
    plan = group.plan()

    def take_part(party: str) -> Any:
        folder = RunFolder(group.home(party) / "runs" / "again")
        with folder.held():
            joining = agreed(Joining(plan, read_party_home(group.home(party)), folder))
            return joining.run()

    runs = together({party: lambda party=party: take_part(party) for party in ("bank", "shop")})
    has_finished(runs)
    assert "used again" in runs["bank"].alignment
    for party, peer in (("bank", "shop"), ("shop", "bank")):
        assert AlignmentHistory(group.home(party) / "alignments" / "history.jsonl").begun_with(peer) == 1


def test_rows_to_score_are_aligned_anew_and_count(tmp_path: Path) -> None:
    group = group_in(tmp_path)
    has_finished(group.all())
    edit(group.home("shop") / "party.toml", "[policy]\n", "[policy]\nmaximum_alignments = 2\n")
    files, plan = new_rows(group), replace(group.plan(), stage="predict")
    score = {
        party: lambda party=party: agreed(group.joining(party, plan)).predict(files[party])
        for party in ("bank", "shop")
    }
    assert len(together(score)["bank"]) == 6
    assert len(together(score)["bank"]) == 6, "the same rows again are no new question"
    bank = Path(files["bank"])
    bank.write_text("\n".join(bank.read_text().splitlines()[:-1]) + "\n")
    refused = together(score)["shop"]
    assert isinstance(refused, PolicyRefused), refused
    assert "maximum_alignments" in str(refused)


def test_a_simulation_keeps_results_in_its_run_folder_and_no_history(tmp_path: Path) -> None:
    Trial(tmp_path / "run").run()
    assert len(list(tmp_path.glob("run/*/alignment/*.rows"))) == 2
    assert not list(tmp_path.rglob("history.jsonl"))


def test_an_alignment_has_a_folder_of_its_own_each_time_and_leaves_none_if_nothing_happened(tmp_path: Path) -> None:
    for number in (1, 2):
        with held_alignment(tmp_path, "churn", b"agreed") as folder:
            assert folder.path == tmp_path / "alignments" / "runs" / f"churn-{number:04d}"
            (folder.path / "bank").mkdir()
            (folder.path / "bank" / "ledger.jsonl").write_text("")
    with held_alignment(tmp_path, "churn", b"agreed") as folder:
        (folder.path / "consent.json").write_text("{}")
    with held_alignment(tmp_path, "churn-2", b"agreed") as other:
        assert other.path.name == "churn-2-0001"
    assert sorted(path.name for path in (tmp_path / "alignments" / "runs").iterdir()) == ["churn-0001", "churn-0002"]
