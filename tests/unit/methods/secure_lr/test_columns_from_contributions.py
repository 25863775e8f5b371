"""A curious label holder looks for the feature holder's columns in the contributions to scores."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.references import shared_rows
from tests.unit.methods.secure_lr.worlds import (
    columns_found,
    frames,
    seen_contributions,
    steps_at_random,
    tables,
)
from tests.worlds import integers_for_ciphertexts, name_of

import colonnade as cn
from colonnade.errors import LeakRefused, PeerFailed, PeerLost
from colonnade.exchanges.weighted_sums import SumPartner
from colonnade.launch.simulation import play_in_threads
from colonnade.methods.secure_lr import METHOD, predict, train
from colonnade.methods.secure_lr.contributions import Contributions, most_opened
from colonnade.methods.secure_lr.messages import ColumnCount
from colonnade.reports import PartyRun
from colonnade.session import Channel, Participant, RunPlan, Session, derive_seed
from colonnade.settings import config_to_json
from colonnade.training import Inputs

QUICK: dict[str, Any] = {"key_size": "insecure_test"}
RANK = 7
BY_SEED = cn.Evaluate(stratify=False)
# The rank is that of these training rows.


def attacked(config: cn.SecureLR) -> tuple[int, cn.Run]:
    """Train, and count the shop's two-valued columns that the bank finds from what they add to scores."""
    brought = tables(frames())
    with integers_for_ciphertexts(), seen_contributions() as seen:
        run = cn.simulate(config, brought, seed=7)
    rows = np.array(shared_rows(brought, derive_seed(7, "alignment"))["shop"])
    columns = Inputs.from_json(run.parts["shop"].document["inputs"]).transform(brought["shop"], rows, dtype=np.float64)
    return columns_found(np.hstack(seen), columns), run


def test_with_default_settings_no_column_is_found() -> None:
    found, run = attacked(cn.SecureLR(**QUICK))
    assert found == 0
    assert run.ledgers["shop"].openings() == {"bank": {"MaskedSums": 2}}


def test_half_the_rank_is_too_little_also_for_a_label_holder_that_steps_at_random() -> None:
    with steps_at_random():
        assert attacked(cn.SecureLR(**QUICK, epochs=3))[0] == 0


def test_with_as_many_epochs_as_the_rank_most_columns_are_found_and_both_ledgers_say_that_they_may_be() -> None:
    """Contributions of an honest training hardly change from epoch to epoch; a curious one has others."""
    with steps_at_random():
        found, run = attacked(cn.SecureLR(**QUICK, epochs=8, allow_leak=True, coefficient_noise=0.0))
    assert found >= 6, "of 7"
    for party, partner in (("bank", "shop"), ("shop", "bank")):
        (mark,) = [entry.content for entry in run.ledgers[party].entries if entry.kind == "override"]
        expected = {"partner": partner, "guard": "contributions", "rank": RANK, "needed": 8, "opened": 0}
        assert expected.items() <= mark.items()


def test_such_a_run_is_refused_before_anything_but_sizes_has_crossed(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    send = Channel.send

    def noted(channel: Channel, message: Any) -> None:
        sent.append(name_of(message))
        send(channel, message)

    monkeypatch.setattr(Channel, "send", noted)
    with pytest.raises(LeakRefused, match=r"open 4 numbers .* rank 7: .* Lower config\.epochs to 3\."):
        cn.simulate(cn.SecureLR(**QUICK, epochs=4), tables(frames(120)), evaluate=BY_SEED)
    declared = {one.name for one in METHOD.declarations}
    assert declared & set(sent) == {"PublicModulus", "ColumnCount", "TrainingExtent"}


def test_a_label_holder_that_chooses_more_epochs_or_scores_than_the_guard_allows_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = frames(120)
    found["bank"]["y"] = np.arange(120) % 5
    monkeypatch.setattr(train, "_chosen_extent", lambda *_: (4, 2))
    with pytest.raises(LeakRefused, match=r"open 8 numbers .* rank 7"):
        cn.simulate(cn.SecureLR(**QUICK), tables(found), evaluate=BY_SEED)


@pytest.mark.parametrize(
    ("rank", "scores", "extent"),
    [
        (2, 1, (1, 1)),
        (3, 1, (1, 2)),
        (40, 1, (1, 2)),
        (4, 2, (2, 1)),
        (5, 2, (2, 2)),
        (3, 4, (2, 1)),
        (9, 4, (4, 2)),
    ],
)
def test_the_settings_left_open_take_what_the_rule_allows(rank: int, scores: int, extent: tuple[int, int]) -> None:
    assert train._chosen_extent(cn.SecureLR(), scores, [ColumnCount(rank, 0), ColumnCount(50, 0)]) == extent
    assert extent[0] * extent[1] <= most_opened(rank, 0, extent[1])
    assert not any(epochs * scores <= most_opened(rank, 0, epochs) for epochs in range(3, 30) if rank <= 5)


def test_after_other_runs_half_the_rank_is_left() -> None:
    counted = [ColumnCount(rank, 2) for rank in (8, 7, 6)]
    assert [train._chosen_extent(cn.SecureLR(), 1, [one]) for one in counted] == [(1, 2), (1, 1), (1, 1)]
    assert most_opened(5, 2, 1) < 2 + 1


def test_a_refusal_for_too_few_columns_says_so() -> None:
    found = frames(120)
    found["shop"] = found["shop"][["id", "s0"]]
    with pytest.raises(LeakRefused, match=r"rank 1: .* Bring more independent columns"):
        cn.simulate(cn.SecureLR(**QUICK), tables(found))


@pytest.mark.parametrize("columns", [2, 3])
def test_default_settings_are_not_refused_with_two_numbers(columns: int) -> None:
    draw = np.random.default_rng(1)
    found = frames(400)
    found["shop"] = found["shop"][["id", "s0", "s1"]].assign(s2=draw.normal(size=400)).iloc[:, : columns + 1]
    with integers_for_ciphertexts():
        run = cn.simulate(cn.SecureLR(**QUICK), tables(found), evaluate=BY_SEED)
    assert run.ledgers["shop"].openings()["bank"] == {"MaskedSums": columns - 1}
    assert run.metrics["auc"] > 0.75


def test_classes_take_one_score_less_than_there_are() -> None:
    found = frames(400)
    found["bank"]["y"] = np.digitize(found["bank"]["b0"] + found["shop"]["s0"], [-0.7, 0.7])
    with integers_for_ciphertexts():
        run = cn.simulate(cn.SecureLR(**QUICK), tables(found))
    assert run.parts["shop"].tensors["weights"].shape == (RANK, 4)
    assert run.parts["shop"].tensors["factors"].shape == (4, 2)
    assert all(len(row) == 3 for row in run.coefficients["shop"].values())
    assert run.metrics["macro_auc"] > 0.9


# --- over several runs


def played(folder: Path, found: dict[str, pd.DataFrame], config: cn.SecureLR, **more: Any) -> dict[str, PartyRun]:
    """Carry out a run, or a scoring, in which the shop has a home."""
    roles = {"label_holder": ("bank",), "feature_holder": ("shop",)}
    plan = RunPlan(name="run", method="secure_lr", roles=roles, config=config_to_json(config), seed=1)
    plan = replace(plan, stage=more.get("stage", "train"))
    parts = more.get("parts", {})
    brought = tables(found)
    if "secret" in more:
        more["monkeypatch"].setattr(Session, "_durable_secret", lambda session: more["secret"])
    parties = {
        party: Participant(party, table=brought[party], part=parts.get(party), contributions=folder / f"{party}.jsonl")
        for party in ("bank", "shop")
    }
    with integers_for_ciphertexts():
        return play_in_threads(plan, parties)


def test_runs_with_the_same_rows_are_counted_together_and_other_rows_are_not(tmp_path: Path) -> None:
    found = frames(200)
    early, late = ({name: frame[part] for name, frame in found.items()} for part in (slice(0, 100), slice(100, None)))
    first = played(tmp_path, early, cn.SecureLR(**QUICK, epochs=3))
    with pytest.raises(LeakRefused, match=r"open 3 numbers .*, after 3 opened before\. .* the model of an earlier run"):
        played(tmp_path, found, cn.SecureLR(**QUICK, epochs=3))
    played(tmp_path, late, cn.SecureLR(**QUICK, epochs=3))

    # What a run counted for scoring may be scored; rows that another run trained on may not.
    parts = {party: one.part for party, one in first.items()}
    played(tmp_path, early, cn.SecureLR(**QUICK, epochs=3), stage="predict", parts=parts)
    with pytest.raises(LeakRefused, match=r"open 1 numbers .* after 3"):
        played(tmp_path, late, cn.SecureLR(**QUICK, epochs=3), stage="predict", parts=parts)


def test_scoring_opens_nothing_that_rounding_kept_back_in_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A label holder chose sums of both epochs that differ by a small multiple of a column, and factors of 1 and -1."""
    trained = played(tmp_path, frames(200), cn.SecureLR(**QUICK))
    seen: list[np.ndarray] = []
    monkeypatch.setattr(predict, "gather_scores", lambda *about: seen.append(gather(*about)) or seen[-1])
    tensors, gather = trained["shop"].part.tensors, train.gather_scores
    tensors["weights"][:] = torch.zeros(RANK, 2)
    tensors["weights"][0], tensors["weights"][1, 0] = 1.0, 2.0**-30
    tensors["factors"][:] = torch.tensor([[1.0], [-1.0]])
    trained["bank"].part.document["is_needed"] = True
    parts = {party: one.part for party, one in trained.items()}
    played(tmp_path, frames(200), cn.SecureLR(**QUICK), stage="predict", parts=parts)
    assert np.count_nonzero(seen[0]) < 20, "of 200: the others are where rounding of both goes apart"


def test_scores_of_more_classes_than_numbers_that_they_are_made_of_count_as_these(tmp_path: Path) -> None:
    """Rank 3 allows two numbers about a row; from these follow four scores of five classes."""
    found = frames(300)
    own, shop = found["bank"], found["shop"][["id", "s0", "s1"]]
    own["y"] = pd.qcut(own["b0"] + 2 * shop["s0"] - 2 * shop["s1"], 5, labels=False)
    found["shop"] = shop.assign(s2=np.random.default_rng(1).normal(size=300))
    early, late = ({name: frame[part] for name, frame in found.items()} for part in (slice(0, 200), slice(200, None)))
    trained = played(tmp_path, early, cn.SecureLR(**QUICK))
    parts = {party: one.part for party, one in trained.items()}
    assert parts["shop"].tensors["factors"].shape == (2, 4)
    assert parts["shop"].document["is_needed"]
    played(tmp_path, late, cn.SecureLR(**QUICK), stage="predict", parts=parts)
    events = [json.loads(line) for line in (tmp_path / "shop.jsonl").read_text().splitlines()]
    assert [event["numbers"] for event in events] == [2, 2]


@pytest.fixture
def contributions(tmp_path: Path) -> Any:
    """Make contributions of a run about some rows, all in one home, of columns of rank 100."""

    def made(run: str, rows: range, partner: str = "bank", *, rank: int = 100, step: int = 0) -> Contributions:
        holding = SimpleNamespace(
            table=SimpleNamespace(ids=np.array([f"id{row}" for row in range(100)], dtype=object)),
            aligned=SimpleNamespace(positions=np.array(rows)),
        )
        session = SimpleNamespace(contributions=tmp_path / "home" / "contributions.jsonl", step=step, party="shop")
        peer = SimpleNamespace(peer=partner)
        return Contributions(session, peer, holding, cn.SecureLR(), run, rank)  # type: ignore[arg-type]

    return made


def test_a_row_counts_with_all_that_any_run_opened_about_it(contributions: Any) -> None:
    contributions("one", range(50)).open(4)
    contributions("two", range(40, 100)).open(3)
    contributions("three", range(45, 46), "another bank").open(9)
    assert [contributions("four", rows).earlier() for rows in (range(40), range(100), range(50, 100))] == [4, 7, 3]


def test_a_run_scores_its_own_rows_without_counting_them_again(contributions: Any) -> None:
    contributions("one", range(50)).open(2, 2, again=True)
    contributions("one", range(50), rank=1).open(1)
    contributions("one", range(60)).open(1)
    assert [contributions("two", rows).earlier() for rows in (range(50), range(50, 60))] == [4, 1]


def test_a_run_that_is_taken_up_again_counts_what_it_opens_once_more(contributions: Any) -> None:
    """A label holder that breaks off and trains on other labels gets other numbers each time."""
    contributions("other", range(10)).open(1, 2, again=True)
    contributions("one", range(50)).open(1, 4, again=True)
    for step, opened in ((1, 8), (4, 9)):
        contributions("one", range(50), step=step).open(1, 4, again=True)
        assert contributions("two", range(10, 50)).earlier() == opened
    assert contributions("two", range(50)).earlier() == 11
    with pytest.raises(LeakRefused, match=r"open 2 numbers .*, after 11"):
        contributions("one", range(50), rank=12, step=3).open(1, 4, again=True)


def test_a_run_cannot_be_taken_up_again_until_its_columns_are_spanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rank is 7: an epoch that opens and a scoring are 2 numbers, all again 4 and 6, and once more would be 8."""
    found, honest = frames(200), SumPartner.send

    def broken(sums: SumPartner, *rest: Any) -> None:
        if len(calls) == 1:
            raise PeerLost("gone")
        calls.append(1)
        honest(sums, *rest)

    monkeypatch.setattr(SumPartner, "send", broken)
    for attempt in range(4):
        calls: list[int] = []
        kinds, said = ((LeakRefused, PeerFailed), "after 6") if attempt == 3 else ((PeerLost, PeerFailed), "gone")
        with pytest.raises(kinds, match=said):
            played(tmp_path, found, cn.SecureLR(**QUICK, epochs=2), secret=b"s" * 32, monkeypatch=monkeypatch)


def test_what_is_refused_is_not_counted(contributions: Any) -> None:
    contributions("other", range(50)).open(1)
    for refused in (lambda one: one.open(4), lambda one: one.open(2, 2, again=True)):
        with pytest.raises(LeakRefused):
            refused(contributions("one", range(50), rank=5))
    assert contributions("two", range(50)).earlier() == 1
