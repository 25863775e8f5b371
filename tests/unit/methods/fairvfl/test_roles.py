"""Who receives what, who may have which columns, and that every task comes out of training, prediction and audit."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.adversary.hostile import Lie, lying
from tests.unit.methods.fairvfl.worlds import (
    ROLES,
    Ended,
    Heard,
    by_id,
    frames,
    overheard,
    run_of,
    scored,
    settings,
    texts,
    watched,
)
from tests.worlds import name_of, received, view

import colonnade as cn
from colonnade.errors import ConfigError, OutOfStep, TableError
from colonnade.messages import HEADER_BYTES
from colonnade.methods.fairvfl import audit
from colonnade.methods.fairvfl.aggregator import Fusion
from colonnade.methods.splitnn.messages import CutActivations
from colonnade.metrics import GroupCounts
from colonnade.session import Channel

PARTIES = ("bank", "one", "two", "server", "state", "bureau")


def kinds(run: cn.Run) -> dict[str, set[str]]:
    """Return the kinds of messages each party received, and which of them are noised."""
    names = {one.name for one in run.method.declarations}
    found: dict[str, set[str]] = {}
    for party in run.views:
        crossed = [one for one in run.ledgers[party].summary() if one.direction == "received" and one.message in names]
        found[party] = {("noised " if one.protection == "NOISED" else "") + one.message for one in crossed}
    return found


@functools.cache
def trained(**changes: Any) -> tuple[cn.Run, Ended]:
    with watched() as ended:
        return run_of(frames(), settings(**changes), launch=cn.Launch(keep_views=True)), ended


def audit_of(found: dict[str, pd.DataFrame], config: cn.FairVFL, run: cn.Run, **options: Any) -> cn.Run:
    """Audit a trained model."""
    return run_of(found, config, stage="audit", after=run, **options)


@contextmanager
def counted() -> Iterator[dict[str, dict[str, GroupCounts]]]:
    """Note the counts by attribute and threshold that the bank learns."""
    counts: dict[str, dict[str, GroupCounts]] = {}
    gaps = audit.gaps_finding

    def noted(found: Any, **further: Any) -> Any:
        counts.update(found)
        return gaps(found, **further)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "gaps_finding", noted)
        yield counts


@functools.cache
def audited(**changes: Any) -> tuple[cn.Run, Ended, dict[str, dict[str, GroupCounts]]]:
    """Return an audit, what the bank ended with, and the counts that it learned."""
    with watched("audit") as ended, counted() as counts:
        run = audit_of(frames(), settings(**changes), trained(**changes)[0], launch=cn.Launch(keep_views=True))
    return run, ended, counts


def removed_at(run: cn.Run, party: str) -> set[str]:
    """Return for which attributes a party has a discriminator."""
    return {name.split("/")[0] for name in run.parts[party].tensors if "/discriminator" in name}


# Check 7 of the sheet

HOLDER = {"noised ProtectedCode", "noised ProtectedCodeAgain", "Mark"}
TRAINED = {
    "bank": {"noised UnifiedCode", "Mark"},
    "one": {"LocalGradient", "Mark"},
    "two": {"LocalGradient", "Mark"},
    "server": {
        "Amounts",
        "Offer",
        "LocalCode",
        "TaskGradient",
        "noised DiscriminatorGradient",
        "noised AdversarialGradient",
    },
    "state": HOLDER,
    "bureau": HOLDER,
}


def test_in_training_each_party_receives_these_kinds_and_no_other() -> None:
    assert kinds(trained()[0]) == TRAINED


def test_with_the_papers_settings_kinds_are_the_same_but_open() -> None:
    opened = {party: {name.removeprefix("noised ") for name in names} for party, names in TRAINED.items()}
    run, _ = trained(removal="paper", label_epsilon=None, protected_noise=0.0, mapper_step="sequential")
    assert kinds(run) == opened


def test_with_merged_steps_half_of_the_adversaries_messages_are_left() -> None:
    run, _ = trained(mapper_step="merged")
    assert kinds(run)["state"] == {"noised ProtectedCode", "Mark"}
    assert "noised AdversarialGradient" not in kinds(run)["server"]


def test_in_an_audit_each_party_receives_these_kinds_and_no_other() -> None:
    counted = {"AttackCodes", "CountRequest", "PublicModulus", "SealedColumns"}
    alone = {
        "bank": {"noised UnifiedCode", "AttackCodes", "Countable", "CountsByGroup", "AttackResult"},
        "one": {"AttackCodes", "CountRequest"},
        "two": {"AttackCodes", "CountRequest"},
        "server": {"Amounts", "Offer", "LocalCode"},
        "state": counted,
        "bureau": counted,
    }
    run = trained()[0]
    assert kinds(audit_of(frames(), settings(audit_plain=False), run, launch=cn.Launch(keep_views=True))) == alone
    # A plain model is trained for comparison: without adversaries, and its code goes to those with attributes.
    of_plain = {
        "bank": {"PlainCodes", "Mark"},
        "one": {"LocalGradient", "Mark"},
        "two": {"LocalGradient", "Mark"},
        "server": {"TaskGradient"},
        "state": {"PlainCodes", "Mark"},
        "bureau": {"PlainCodes", "Mark"},
    }
    assert kinds(audited()[0]) == {party: names | of_plain[party] for party, names in alone.items()}


def heard_kinds(heard: Heard) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for receiver, _, message in heard:
        found.setdefault(receiver, set()).add(name_of(message))
    return found


def test_in_prediction_each_party_receives_these_kinds_and_holders_of_attributes_are_not_asked() -> None:
    with overheard() as heard:
        scored(trained()[0], frames())
    assert heard_kinds(heard) == {"bank": {"UnifiedCode"}, "server": {"Amounts", "Offer", "LocalCode"}}


def floats_of(frames_received: Iterable[tuple[str, bytes]]) -> dict[type, np.ndarray]:
    """Return every number that the bytes a party received could be read as."""
    found: dict[type, list[np.ndarray]] = {np.float32: [], np.float64: []}
    for _, frame in frames_received:
        body = frame[HEADER_BYTES:]
        for kind, parts in found.items():
            size = np.dtype(kind).itemsize
            for offset in range(0, size, 4):
                usable = max(0, len(body) - offset) // size * size
                parts.append(np.frombuffer(body[offset : offset + usable], kind))
    return {kind: np.concatenate(parts) for kind, parts in found.items()}


def standardised(values: np.ndarray) -> np.ndarray:
    return np.asarray((values - values.mean()) / values.std())


@pytest.mark.parametrize("stage", ["train", "audit"])
def test_no_cell_sensitive_value_label_or_id_reaches_anybody(stage: str) -> None:
    run = trained()[0] if stage == "train" else audited()[0]
    for party in PARTIES:
        seen = b"".join(frame[HEADER_BYTES:] for _, frame in run.views[party])
        assert b"canary" not in seen, party
        assert b"row-" not in seen, party
        floats = floats_of(run.views[party])
        for other, frame in frames().items():
            for name in frame.select_dtypes(np.number):
                values = frame[name].to_numpy()
                for cells in (values, standardised(values)):
                    for kind, numbers in floats.items():
                        assert other == party or not np.isin(cells.astype(kind), numbers).any(), (party, name)


def test_labels_that_are_numbers_do_not_reach_the_server() -> None:
    found = frames("regression")
    run = run_of(found, settings(), launch=cn.Launch(keep_views=True))
    labels = by_id(found["bank"])["y"].to_numpy()
    floats = floats_of(run.views["server"])
    for cells in (labels, standardised(labels)):
        assert not any(np.isin(cells.astype(kind), numbers).any() for kind, numbers in floats.items())


def test_holders_of_attributes_get_a_few_numbers_per_row_and_nothing_else() -> None:
    run, ended = trained()
    steps = -(-len(ended.train) // 16) * 2
    for party in ("state", "bureau"):
        for name in ("ProtectedCode", "ProtectedCodeAgain"):
            codes = received(run, party, name, "server")
            assert len(codes) == steps
            assert {one.values.shape[1] for one in codes} == {3}
            assert sum(len(one.values) for one in codes) == 2 * len(ended.train)
        assert {sender for sender, _ in view(run, party)} == {"server"}


def test_an_unknown_kind_of_message_ends_the_run() -> None:
    """A message of another method, in place of a code."""
    lie = Lie("one", "LocalCode", lambda honest: CutActivations(honest.values))
    with lying(lie), pytest.raises(OutOfStep, match="'one'"):
        run_of(frames(), settings())
    assert lie.was_told


# Who has what


def moved(found: dict[str, pd.DataFrame], column: str, giver: str, taker: str) -> dict[str, pd.DataFrame]:
    """Give a party another one's column; who has none left is no longer there."""
    given = found[giver].set_index("id")[column]
    found = {**found, taker: found[taker].assign(**{column: given.loc[found[taker]["id"]].to_numpy()})}
    found[giver] = found[giver].drop(columns=column)
    return {name: frame for name, frame in found.items() if list(frame.columns) != ["id"]}


def test_a_party_may_hold_several_attributes() -> None:
    found = moved(frames(), "age", "bureau", "state")
    run = run_of(found, settings(), launch=cn.Launch(keep_views=True))
    assert removed_at(run, "state") == {"gender", "age"}
    codes = received(run, "state", "ProtectedCode")
    assert len(codes) == 2 * len(received(run, "one", "LocalGradient"))
    assert kinds(run)["state"] == HOLDER


@pytest.mark.parametrize(("holder", "code"), [("one", {"LocalGradient"}), ("bank", {"noised UnifiedCode"})])
def test_who_brings_columns_or_labels_may_hold_an_attribute_too(holder: str, code: set[str]) -> None:
    found = moved(frames(), "gender", "state", holder)
    run = run_of(found, settings(), launch=cn.Launch(keep_views=True))
    assert removed_at(run, holder) == {"gender"}
    assert kinds(run)[holder] == HOLDER | code
    coder = run.parts[holder].document.get("coder", {"fields": []})
    assert "gender" not in coder["fields"], "a sensitive column is no input"
    scores = scored(run, {name: one.drop(columns="gender", errors="ignore") for name, one in found.items()})
    assert len(scores) == 80


def test_a_label_holder_may_bring_columns_and_attributes() -> None:
    found = moved(moved(frames(), "gender", "state", "bank"), "a", "one", "bank")
    with watched() as ended:
        run = run_of(found, settings(), launch=cn.Launch(keep_views=True))
    assert kinds(run)["bank"] == HOLDER | {"noised UnifiedCode", "LocalGradient"}
    assert removed_at(run, "bank") == {"gender"}
    assert run.parts["bank"].document["coder"]["fields"] == ["a"]
    check_same_scores(ended, scored(run, found))
    done = audit_of(found, settings(), run)
    assert {"audit", "gaps", "attack_gender", "attack_columns of bank"} <= set(done.findings)


def test_there_may_be_no_attribute_at_all() -> None:
    found = {name: frame for name, frame in frames().items() if name in ("bank", "one", "two")}
    with watched() as ended:
        run = run_of(found, settings(attributes=()), launch=cn.Launch(keep_views=True))
    assert kinds(run)["server"] == {"Amounts", "Offer", "LocalCode", "TaskGradient"}
    check_same_scores(ended, scored(run, found))
    done = audit_of(found, settings(attributes=()), run)
    assert "no attribute" in done.findings["audit"].text


def test_an_attribute_without_weight_is_left_alone_but_audited() -> None:
    config = settings(removal_weights={"age": 0.0})
    run = run_of(frames(), config, launch=cn.Launch(keep_views=True))
    assert kinds(run)["bureau"] == {"Mark"}
    assert removed_at(run, "bureau") == set()
    done = audit_of(frames(), config, run)
    assert "attack_age" in done.findings


def test_an_attribute_that_nobody_has_is_named() -> None:
    with pytest.raises(ConfigError, match="names 'height', which no party of this run has"):
        run_of(frames(), settings(attributes=("gender", "age", "height")))


def test_an_attribute_that_two_have_is_named_with_both() -> None:
    found = frames()
    given = found["state"].set_index("id")["gender"]
    found["one"]["gender"] = given.loc[found["one"]["id"]].to_numpy()
    with pytest.raises(ConfigError, match="'gender', which one and state of this run has"):
        run_of(found, settings())


def test_another_column_at_a_holder_of_attributes_is_refused_by_name() -> None:
    found = frames()
    found["state"]["income"] = 1.0
    with pytest.raises(ConfigError, match="'state' plays attribute_holder and has the column 'income'"):
        run_of(found, settings())


def test_a_holder_of_attributes_without_any_is_refused() -> None:
    found = frames()
    found["bureau"] = found["bureau"][["id"]]
    with pytest.raises(ConfigError, match="'bureau' plays attribute_holder but has no column"):
        run_of(found, settings(attributes=("gender",)))


def test_a_feature_holder_without_columns_is_refused() -> None:
    found = moved(moved(frames(), "a", "one", "two"), "b", "one", "two")
    found["one"] = frames()["one"][["id"]]
    with pytest.raises(ConfigError, match="'one' is a feature holder but has no column"):
        run_of(found, settings())


def test_an_attribute_of_one_value_is_refused() -> None:
    found = frames()
    found["state"]["gender"] = "canary-f"
    with pytest.raises(TableError, match="'gender' has fewer than two different values"):
        run_of(found, settings())


def test_nobody_with_columns_is_said_in_a_sentence() -> None:
    found = {name: frame for name, frame in frames().items() if name in ("bank", "state", "bureau")}
    with pytest.raises(ConfigError, match="No party of this run has columns"):
        run_of(found, settings())


# Values that are not there


# Wide and without dropout, so that no row happens to have no gradient.
ALIVE: dict[str, Any] = {"discriminator_hidden": (64,), "dropout": 0.0}


def gradients(run: cn.Run, party: str, name: str) -> np.ndarray:
    return np.concatenate([one.values.numpy() for one in received(run, "server", name, party)])


@pytest.mark.parametrize(("party", "column"), [("state", "gender"), ("bureau", "age")])
def test_unknown_sensitive_values_count_for_nothing(party: str, column: str) -> None:
    found = frames()
    unknown = found[party]["id"].iloc[:20].tolist()
    found[party].loc[found[party]["id"].isin(unknown), column] = None
    with watched() as ended:
        run = run_of(found, settings(label_epsilon=None, **ALIVE), launch=cn.Launch(keep_views=True))
    for name in ("DiscriminatorGradient", "AdversarialGradient"):
        rows = gradients(run, party, name)
        assert (np.abs(rows).max(axis=1) == 0).sum() == 2 * len(set(ended.train) & set(unknown)) > 0


@pytest.mark.parametrize(("party", "column"), [("state", "gender"), ("bureau", "age")])
def test_which_sensitive_values_are_unknown_does_not_show_where_answers_are_drawn(party: str, column: str) -> None:
    found = frames()
    found[party].loc[found[party].index[:20], column] = None
    run = run_of(found, settings(**ALIVE), launch=cn.Launch(keep_views=True))
    for name in ("DiscriminatorGradient", "AdversarialGradient"):
        assert (np.abs(gradients(run, party, name)).max(axis=1) > 0).all()


def test_rows_with_unknown_sensitive_values_are_in_no_group() -> None:
    found = frames()
    found["state"].loc[found["state"].index[:20], "gender"] = None
    config = settings(smallest_group=1)
    with watched() as ended:
        run = run_of(found, config)
    with counted() as counts:
        audit_of(found, config, run)
    known = set(found["state"]["id"][found["state"]["gender"].notna()])
    assert sum(counts["gender"]["at 0.5"].rows) == len(known & set(ended.test)) < 20
    assert sum(counts["age"]["at 0.5"].rows) == 20


def test_a_row_of_which_a_platform_knows_nothing_is_masked() -> None:
    found = frames()
    found["two"].loc[found["two"]["id"].isin(["row-3", "row-4", "row-5"]), ["c", "d", "kind"]] = None
    found["two"].loc[found["two"]["id"].isin(["row-6"]), ["c", "d"]] = None
    with watched() as ended:
        run = run_of(found, settings(), launch=cn.Launch(keep_views=True))
    there = np.concatenate([one.is_there for one in received(run, "server", "LocalCode", "two")])
    gone = {"row-3", "row-4", "row-5"}
    expected = 2 * len(gone & set(ended.train)) + len(gone & set(ended.test))
    assert (~there).sum() == expected
    trained_rows = 2 * len(ended.train)
    pulled = np.concatenate([one.values.numpy() for one in received(run, "two", "LocalGradient")])
    assert np.array_equal(np.abs(pulled).max(axis=1) > 0, there[:trained_rows])


def test_what_a_platform_says_of_a_row_it_knows_nothing_of_does_not_matter() -> None:
    found = frames()
    found["two"].loc[found["two"]["id"].isin(["row-3", "row-4", "row-5"]), ["c", "d", "kind"]] = None
    honest = run_of(found, settings(epochs=1))
    send = Channel.send

    def sent(channel: Channel, message: Any) -> None:
        if channel.party == "two" and name_of(message) == "LocalCode":
            message.values[torch.from_numpy(~message.is_there)] = 1e6
        send(channel, message)

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(Channel, "send", sent)
        lied = run_of(found, settings(epochs=1))
    for party, part in honest.parts.items():
        assert all((value == lied.parts[party].tensors[name]).all() for name, value in part.tensors.items()), party


def test_a_row_of_which_nobody_knows_anything_harms_nobody() -> None:
    found = frames()
    gone = ["row-3", "row-4", "row-5"]
    found["two"].loc[found["two"]["id"].isin(gone), ["c", "d", "kind"]] = None
    found["one"].loc[found["one"]["id"].isin(gone), ["a", "b"]] = None
    for aggregation in ("attention", "concat_mlp"):
        with watched() as ended:
            run = run_of(found, settings(aggregation=aggregation))
        assert all(value.isfinite().all() for part in run.parts.values() for value in part.tensors.values())
        check_same_scores(ended, scored(run, found))


# Tasks


def check_same_scores(ended: Ended, scores: pd.DataFrame) -> None:
    """Held-out rows have the same scores when they are scored again, among others."""
    columns = [name for name in scores if name.startswith("probability_")] or ["prediction"]
    again = scores.set_index("id")[columns]
    found = ended.values()
    assert len(found) > 8
    for row, values in found.items():
        np.testing.assert_allclose(again.loc[row].to_numpy(float), values, atol=1e-5)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("cut", ["label_holder", "server"])
def test_every_task_is_learned_and_scored_alike(task: str, cut: str) -> None:
    found = frames(task)
    with watched() as ended:
        run = run_of(found, settings(task_cut=cut), launch=cn.Launch(keep_views=True))
    check_same_scores(ended, scored(run, found))
    seen = kinds(run)
    if cut == "server":
        assert seen["bank"] == {"TaskScores", "Mark"}
        assert not run.parts["bank"].tensors, "the task's model is at the server"
        widths = {one.values.shape[1] for one in received(run, "bank", "TaskScores")}
        assert widths == {3 if task == "multiclass" else 1}
    else:
        assert seen == TRAINED


@pytest.mark.parametrize("task", ["multiclass", "regression"])
def test_what_is_not_decided_in_two_ways_is_attacked_but_not_counted(task: str) -> None:
    run = run_of(frames(task), settings())
    done = audit_of(frames(task), settings(), run, launch=cn.Launch(keep_views=True))
    assert {"audit", "fairness", "attack_gender", "attack_age"} <= set(done.findings)
    assert "gaps" not in done.findings
    assert kinds(done)["state"] == {"AttackCodes", "CountRequest", "PlainCodes", "Mark"}


@pytest.mark.parametrize("local", ["naml", "lstur", "nrms"])
def test_candidates_are_ranked_by_what_was_read_elsewhere(local: str) -> None:
    found = texts()
    with watched() as ended:
        run = run_of(found, settings(task="ranking", local=local), launch=cn.Launch(keep_views=True))
    assert kinds(run) == TRAINED
    seen = b"".join(frame[HEADER_BYTES:] for _, frame in run.views["server"])
    assert b"alpha" not in seen
    assert b"user-" not in seen
    scores = scored(run, found)
    check_same_scores(ended, scores)
    counts = by_id(found["bank"])["candidates"].str.count(r"\|") + 1
    given = by_id(scores)[[name for name in scores if name.startswith("probability_")]]
    assert ((given > 0).sum(axis=1) == counts).all()
    np.testing.assert_allclose(given.sum(axis=1), 1.0)
    assert 0.0 <= run.findings["ranking"].values["auc"] <= 1.0
    assert (run.parts["one"].document["coder"]["reader"] == "user") is (local == "lstur")


def test_ranking_is_learned() -> None:
    """Who reads a word chooses the candidate with it: far better than by chance on rows that were held out."""
    found = texts(rows=240)
    config = settings(
        task="ranking",
        local="naml",
        removal_weight=0.0,
        code_width=8,
        width=16,
        code_noise=0.1,
        learning_rate=0.02,
        epochs=12,
        dropout=0.0,
    )
    run = run_of(found, config)
    assert run.findings["ranking"].values["auc"] > 0.8


def test_an_audit_of_a_ranking_counts_by_group_how_often_a_chosen_candidate_comes_first() -> None:
    found, config = texts(rows=240), settings(task="ranking", local="naml", learning_rate=0.02, epochs=6)
    run = run_of(found, config)
    done = audit_of(found, config, run)
    assert {"audit", "attack_gender", "gaps"} <= set(done.findings)
    gaps = done.findings["gaps"]
    assert {row[1] for row in gaps.rows} == {"first", "among the first 5"}
    assert "ranked first" in done.findings["audit"].text
    # At most four candidates are shown, so that everybody's is among the first five.
    assert [one for name, one in gaps.values.items() if name.endswith("among the first 5")] == [0.0, 0.0]


def test_a_chosen_candidate_is_a_hit_where_no_other_is_as_good() -> None:
    clicks = torch.tensor([[1, 0, 0], [0, 1, -1], [1, 0, 1], [0, 0, 1]])
    logits = np.array([[3.0, 1.0, 2.0], [5.0, 4.0, -np.inf], [0.0, 1.0, 1.5], [1.0, 0.0, 1.0]])
    hits = audit._hits(logits, clicks)
    assert hits["first"].tolist() == [True, False, True, False]
    assert hits["among the first 5"].all()


def test_candidates_of_new_rows_keep_their_places() -> None:
    """A candidate without a known word must not give its place to the next."""
    found = texts()
    run = run_of(found, settings(task="ranking", local="naml"))
    is_seventh = found["bank"]["id"] == "row-7"
    found["bank"].loc[is_seventh, "candidates"] = "alpha beta | omega | gamma delta"
    mixed = scored(run, found).set_index("id").loc["row-7"]
    found["bank"].loc[is_seventh, "candidates"] = "alpha beta | gamma delta | omega"
    swapped = scored(run, found).set_index("id").loc["row-7"]
    columns = [name for name in mixed.index if "candidate" in name][:3]
    assert mixed[columns].tolist() == pytest.approx(swapped[[columns[0], columns[2], columns[1]]].tolist())
    assert len(set(mixed[columns])) == 3


def test_a_candidate_without_a_word_is_refused() -> None:
    found = texts()
    run = run_of(found, settings(task="ranking", local="naml"))
    found["bank"].loc[found["bank"]["id"] == "row-7", "candidates"] = "alpha beta |  | gamma delta"
    with pytest.raises(TableError, match="candidates"):
        scored(run, found)


def test_more_candidates_than_ever_before_are_refused() -> None:
    found = texts()
    run = run_of(found, settings(task="ranking", local="naml"))
    found["bank"].loc[found["bank"]["id"] == "row-7", "candidates"] = " | ".join(["alpha beta"] * 5)
    with pytest.raises(TableError, match="candidates"):
        scored(run, found)


def test_new_rows_without_candidates_are_refused() -> None:
    found = texts()
    run = run_of(found, settings(task="ranking", local="naml"))
    found["bank"].loc[found["bank"]["id"] == "row-7", "candidates"] = None
    with pytest.raises(TableError, match="no candidates"):
        scored(run, found)


@pytest.mark.parametrize("clicks", ["0 0", "1 2", "yes", "1 0 0 0 0"])
def test_clicks_that_are_none_or_fit_no_candidates_are_refused(clicks: str) -> None:
    found = texts()
    found["bank"].loc[found["bank"].index[:3], "y"] = clicks
    with pytest.raises(TableError, match="candidate"):
        run_of(found, settings(task="ranking", local="naml"))


def test_a_party_may_have_another_local_model() -> None:
    for local in ("tabnet", "autoint"):
        with watched() as ended:
            run = run_of(frames(), settings(locals={"two": local}))
        check_same_scores(ended, scored(run, frames()))
    with pytest.raises(ConfigError, match="locals names 'tow', no party"):
        run_of(frames(), settings(locals={"tow": "tabnet"}))


def test_a_row_has_the_same_score_in_other_company() -> None:
    """Noise belongs to a row's code: who asks many times, for ever other rows beside it, cannot average it away."""
    run, _ = trained()
    among = scored(run, frames()).set_index("id")["probability_canary-no"]
    for size in (1, 1, 7):
        some = set(among.index[:size])
        again = scored(run, {name: frame[frame["id"].isin(some)] for name, frame in frames().items()})
        np.testing.assert_allclose(again.set_index("id")["probability_canary-no"], among.loc[again["id"]], atol=1e-5)


def test_noise_on_a_code_survives_sums_that_are_rounded_differently() -> None:
    """In batches of another size the last bits of codes differ; of many numbers some are then on another side."""
    generator = torch.Generator().manual_seed(3)
    codes = torch.randn(400, 3, 128, generator=generator)
    fusion = Fusion(settings(width=128, heads=8, code_width=8), [None] * 3, 1, bytes(32))  # type: ignore[list-item]
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for _ in range(2):
            shaken = codes * (1 + 1e-7 * torch.randn(codes.shape, generator=generator))
            patch.setattr(fusion, "receive", lambda rows, own=shaken: (list(own.unbind(1)), torch.ones(400, 3).bool()))
            clear, noised = fusion.codes_in_use(400)
            assert (noised - clear).std() == pytest.approx(0.5, rel=0.05)
            found.append(noised)
    assert ((found[0] - found[1]).abs().amax(dim=1) > 1e-3).sum() <= 2, "of 400 rows"


def test_few_new_rows_are_read_as_the_many_were() -> None:
    """The kinds of columns are kept: in a file of a few rows a category may look like a number."""
    run, _ = trained()
    assert run.parts["two"].document["types"] == {"c": "numeric", "d": "numeric", "kind": "categorical"}
    ranked = run_of(texts(), settings(task="ranking", local="lstur"))
    assert ranked.parts["one"].document["types"] == {"history": "categorical", "user": "categorical"}
    assert ranked.parts["bank"].document["types"] == {"candidates": "categorical"}


# The audit


def plain_counts(ended: Ended, groups: dict[str, Any], decided: np.ndarray) -> list[tuple[int, ...]]:
    """Count by group in the clear: rows, decided, positive, both."""
    scores = ended.scores
    assert scores is not None
    assert scores.truth is not None
    of_rows = np.array([groups[ended.ids[row]] for row in scores.rows])
    found = []
    for group in sorted(set(groups.values())):
        mine = of_rows == group
        columns = (mine, mine & decided, mine & (scores.truth == 1), mine & decided & (scores.truth == 1))
        found.append(tuple(int(one.sum()) for one in columns))
    return found


def test_counts_by_group_are_those_in_the_clear() -> None:
    """Check 9: classes and quarters of numbers, at two thresholds, counted under encryption."""
    _, ended, counts = audited(smallest_group=1)
    scores = ended.scores
    assert scores is not None
    assert scores.truth is not None
    genders = dict(zip(frames()["state"]["id"], frames()["state"]["gender"], strict=True))
    ages = dict(zip(frames()["bureau"]["id"], frames()["bureau"]["age"], strict=True))
    learned = np.array([ages[row] for row in ended.train])
    quarters = {row: int((age >= np.quantile(learned, [0.25, 0.5, 0.75])).sum()) for row, age in ages.items()}
    base = np.quantile(scores.values, 1.0 - scores.truth.mean())
    for name, threshold in (("at 0.5", 0.5), ("at base rate", base)):
        decided = scores.values >= threshold
        for attribute, groups in (("gender", genders), ("age", quarters)):
            one = counts[attribute][name]
            told = list(zip(one.rows, one.decided, one.positive, one.both, strict=True))
            assert told == plain_counts(ended, groups, decided), (attribute, name)


def test_groups_that_are_too_small_are_not_counted() -> None:
    run, _, counts = audited(smallest_group=12)
    assert "age" not in counts, "quarters of twenty rows"
    assert "attack_age" in run.findings


def test_an_audit_finds_the_scores_of_training() -> None:
    _, before = trained()
    _, after, _ = audited()
    for row, values in before.values().items():
        np.testing.assert_allclose(after.values()[row], values, atol=1e-5)


def test_an_audit_with_noise_on_its_counts_says_so_in_its_messages() -> None:
    run, _, counts = audited(count_epsilon=1.0, smallest_group=1)
    assert "noised CountsByGroup" in kinds(run)["bank"]
    assert "CountsByGroup" not in kinds(run)["bank"]
    assert set(counts) == {"gender", "age"}


def test_an_audit_does_without_rows_for_validation() -> None:
    rows = cn.Evaluate(validation_fraction=0.0, test_fraction=0.3)
    run = run_of(frames(), settings(), evaluate=rows)
    done = audit_of(frames(), settings(), run, evaluate=rows)
    assert "attack_gender" in done.findings


def test_an_audit_without_held_out_rows_is_refused() -> None:
    rows = cn.Evaluate(validation_fraction=0.2, test_fraction=0.0)
    run = run_of(frames(), settings(), evaluate=rows)
    with pytest.raises(ConfigError, match=r"evaluate\.test_fraction"):
        audit_of(frames(), settings(), run, evaluate=rows)


def test_an_audit_leaves_out_columns_of_which_too_little_is_known() -> None:
    found, learned = frames(), trained()[1].train
    found["two"].loc[~found["two"]["id"].isin(learned), "c"] = None
    run = run_of(found, settings())
    done = audit_of(found, settings(), run)
    assert {row[0] for row in done.findings["attack_columns of two"].rows} == {"d", "kind"}


def test_an_audit_does_without_an_attribute_that_held_out_rows_lack() -> None:
    found, learned = frames(), trained()[1].train
    found["state"].loc[~found["state"]["id"].isin(learned), "gender"] = None
    run = run_of(found, settings())
    done = audit_of(found, settings(), run)
    assert done.findings["attack_gender"].rows == ()
    assert "age" in done.findings["audit"].text


def test_an_audit_of_scores_attacks_scores() -> None:
    run, _, _ = audited(task_cut="server")
    assert {one.unified.shape[1] for one in received(run, "state", "AttackCodes")} == {1}
    assert "without noise" not in run.findings["audit"].text


def test_holders_of_attributes_are_not_given_protected_codes_to_attack() -> None:
    run, _, _ = audited()
    assert all(one.protected == () for one in received(run, "state", "AttackCodes"))
    assert [len(one.protected) for one in received(run, "one", "AttackCodes")] == [2]


def test_every_party_keeps_a_part_of_the_same_model() -> None:
    run, _ = trained()
    assert set(run.parts) == set(PARTIES)
    assert len({part.document["model"] for part in run.parts.values()}) == 1
    assert set(ROLES) == {part.document["role"] for part in run.parts.values()}


def test_parts_of_two_trainings_do_not_fit() -> None:
    run, other = trained()[0], trained(epochs=1)[0]

    def mixed(party: str, found: cn.Run) -> cn.Run:
        return dataclasses.replace(run, parties={**run.parties, party: found.parties[party]})

    with pytest.raises(ConfigError, match="'one' has a part of another model"):
        scored(mixed("one", other), frames())
    again = run_of(frames(), settings())
    with pytest.raises(ConfigError, match="'state' has a part of another model"):
        audit_of(frames(), settings(), mixed("state", again))
    with pytest.raises(ConfigError, match=r"trained with other settings .*\(epochs\)"):
        audit_of(frames(), settings(), mixed("state", other))
