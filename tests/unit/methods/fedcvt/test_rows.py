"""Batches, what is remembered of earlier ones, and the watch over labels of partners' rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.methods.fedcvt.worlds import (
    EVERYTHING,
    SEED,
    fixed_secret,
    frames,
    run_of,
    settings,
    tables_of,
    watched,
)
from tests.worlds import integers_for_ciphertexts

import colonnade as cn
from colonnade.data import LabelEncoder
from colonnade.exchanges.labels import OwnLabels
from colonnade.methods.fedcvt.memory import Memory
from colonnade.methods.fedcvt.objective import Outcome, Step, build_heads, estimate_views, objective
from colonnade.methods.fedcvt.rows import Batches, OwnTable, batch_rows, steps_of
from colonnade.methods.fedcvt.watch import PseudoLabelWatch, largest_share

F64 = torch.float64

# Batches


@pytest.mark.parametrize(("count", "size"), [(50, 12), (48, 12), (7, 7), (3, 10), (1, 1), (100, 33), (101, 100)])
def test_every_pass_has_all_rows_once_in_batches_of_nearly_one_size(count: int, size: int) -> None:
    rows = np.arange(count) * 3 + 1
    batches = Batches(rows, size, lambda epoch: 7 + epoch)
    for epoch in range(2):
        for turn in range(2):
            found = [batches.at(epoch, turn * batches.per_pass + step) for step in range(batches.per_pass)]
            assert sorted(np.concatenate(found)) == rows.tolist()
            sizes = {len(one) for one in found}
            assert max(sizes) - min(sizes) <= 1
            assert max(sizes) <= size
            assert (min(sizes), max(sizes)) == (batches.smallest, batches.largest)


def test_passes_and_epochs_have_orders_of_their_own_and_any_step_can_be_asked_for() -> None:
    rows = np.arange(60)
    one, two = (Batches(rows, 20, lambda epoch: epoch) for _ in range(2))
    straight = {(epoch, step): one.at(epoch, step) for epoch in range(3) for step in range(9)}
    for (epoch, step), found in reversed(straight.items()):
        assert np.array_equal(two.at(epoch, step), found)
    passes = [[straight[epoch, 3 * turn + k] for k in range(3)] for epoch in range(3) for turn in range(3)]
    orders = {tuple(np.concatenate(one)) for one in passes}
    assert len(orders) == 9


def test_no_rows_give_empty_batches() -> None:
    batches = Batches(np.empty(0, np.int64), 10, lambda epoch: 0)
    assert len(batches.at(0, 0)) == len(batches.at(3, 17)) == 0
    assert batches.smallest == 0


def test_an_epoch_is_as_long_as_the_longest_list_needs() -> None:
    config = settings(batch_size=10, own_batch_size=20)
    assert steps_of(config, 35, [10, 10]) == 4
    assert steps_of(config, 35, [10, 101]) == 6
    assert steps_of(config, 1, [0, 0]) == 1


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 31, 100])
def test_the_size_of_a_batch_follows_from_the_number_of_rows(count: int) -> None:
    batches = Batches(np.arange(count), 10, lambda epoch: 3)
    for step in range(25):
        assert batch_rows(count, 10, step) == len(batches.at(1, step))
    assert batch_rows(2**31, 10, 10**6) in (9, 10)


def test_the_label_holder_expects_the_sizes_that_partners_send() -> None:
    """It knows only their number of rows: 31 rows in batches of 10 are three of 8 and one of 7."""
    with watched() as found:
        run_of(frames(own={"shop": 31}), settings(epochs=1))
    assert [len(own) for _, own in found.steps["shop"]] == [8, 8, 8, 7, 8]


def test_shared_rows_train_or_are_held_out_and_own_rows_train() -> None:
    with watched() as found:
        run_of(frames(), settings(epochs=1), evaluate=cn.Evaluate(validation_fraction=0.1, test_fraction=0.2))
    for party in found.parties:
        table: Any = found.tables[party]
        parts = [table.train, table.validation, table.test, table.own]
        assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts)) == len(found.features[party])
        assert set(table.anchors) <= set(table.train)
        learned = found.features[party][torch.from_numpy(np.concatenate([table.train, table.own]))]
        assert learned.mean(dim=0).abs().max() < 1e-9, "columns are standardised by training rows, shared or not"


def test_rows_without_a_label_are_not_learned_from_at_the_label_holder() -> None:
    tables = frames(own={"bank": 20, "shop": 10})
    rest = tables["bank"].index[tables["bank"]["id"] >= 60]
    tables["bank"]["y"] = tables["bank"]["y"].astype(float)
    tables["bank"].loc[rest[:8], "y"] = np.nan
    with watched() as found:
        run = cn.simulate(settings(epochs=1), tables_of(tables, unlabelled=True), seed=SEED, evaluate=EVERYTHING)
    assert len(found.tables["bank"].own) == 12
    assert not set(rest[:8]) & {row for _, own in found.steps["bank"] for row in own}
    scores = run.predict(tables_of(tables, unlabelled=True))
    assert len(scores[scores["party"] == "bank"] if "party" in scores else scores) == 80


def test_anchors_are_the_same_customers_everywhere_and_no_more_than_asked_for() -> None:
    tables = frames("multiclass", 3)
    with watched() as found:
        run_of(tables, settings(epochs=1, anchors=7))
    ids = [tables[party]["id"].to_numpy()[found.tables[party].anchors].tolist() for party in found.parties]
    assert ids[0] == ids[1] == ids[2]
    assert len(ids[0]) == 7


# Memory


def codes_of(rows: int, seed: int, shared: int = 4) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        {kind: torch.randn(rows, 3, generator=generator, dtype=F64) for kind in ("shared", "unique")} for _ in range(2)
    ]


def test_a_shared_row_does_not_look_at_its_own_earlier_code() -> None:
    memory = Memory(100)
    memory.look(torch.tensor([5, 6, 7, 8]))
    memory.add(codes_of(6, 1))
    memory.look(torch.tensor([7, 1, 5, 2]))
    now = codes_of(6, 2)
    hidden = torch.eye(4, dtype=torch.bool)
    keys, values, after = memory.extend("unique", True, (1, 0), now[1]["unique"][:4], now[0]["unique"][:4], hidden)
    assert keys.shape == values.shape == (8, 3)
    assert after is not None
    earlier = after[:, 4:]
    assert earlier.tolist() == [
        [False, False, True, False],
        [False, False, False, False],
        [True, False, False, False],
        [False, False, False, False],
    ]
    whole = torch.cat([now[0]["shared"], torch.zeros(0, 3)])
    pad = torch.zeros(4, 6, dtype=torch.bool)
    pad.fill_diagonal_(True)
    keys, values, after = memory.extend("shared", False, (1, 0), whole, whole, pad)
    assert keys is not values or torch.equal(keys, values)
    assert keys.shape == (12, 3), "six of now, four earlier shared and two earlier own rows"
    assert after is not None
    assert after[:, 6:10].tolist() == earlier.tolist()
    assert not after[:, 10:].any()


def test_the_memory_forgets_the_oldest_and_carries_no_gradient() -> None:
    memory = Memory(5)
    for number in range(3):
        memory.look(torch.arange(4) + 10 * number)
        memory.add([{kind: one.requires_grad_() for kind, one in codes.items()} for codes in codes_of(7, number)])
    state = memory.state()
    assert state["places"].tolist() == [13, 20, 21, 22, 23]
    kept = state["shared rows/1/unique"]
    assert torch.equal(kept[1:], codes_of(7, 2)[1]["unique"][:4])
    assert torch.equal(kept[0], codes_of(7, 1)[1]["unique"][3])
    assert not any(one.requires_grad for one in state.values())
    assert len(state["own rows/0/shared"]) == 5
    other = Memory(5)
    other.load_state(state)
    assert all(torch.equal(value, other.state()[name]) for name, value in state.items())


def test_an_empty_memory_changes_nothing() -> None:
    config = settings()
    one, two = codes_of(9, 3)
    plain = estimate_views(config, one, two, 4, of_shared=True)
    with_memory = estimate_views(config, one, two, 4, of_shared=True, memory=Memory(10), places=(0, 1))
    assert all(torch.equal(plain[kind], with_memory[kind]) for kind in plain)


def test_remembered_rows_are_looked_at_and_a_copy_of_the_row_itself_is_not() -> None:
    """With the same batch remembered, a row's own earlier code is as hidden as the present one."""
    config = settings(temperature=0.01)
    codes = codes_of(9, 3)
    memory = Memory(50)
    memory.look(torch.arange(4))
    memory.add(codes)
    found = estimate_views(config, codes[0], codes[1], 4, of_shared=True, memory=memory, places=(0, 1))
    missed = (found["unique"] - codes[1]["unique"][:4]).square().sum() / codes[1]["unique"][:4].square().sum()
    assert missed > 0.3
    alone = estimate_views(config, codes[0], codes[1], 4, of_shared=True)
    assert (found["unique"] - alone["unique"]).abs().max() < 1e-12, "the same three others, each twice"


def test_a_run_with_memory_learns_other_weights_and_the_bank_uses_what_it_remembers() -> None:
    plain, remembering = (run_of(frames(), settings(memory_bank=size)) for size in (0, 40))
    assert not torch.equal(
        plain.parts["shop"].tensors["fedcvt/encoders.shared.0.weight"],
        remembering.parts["shop"].tensors["fedcvt/encoders.shared.0.weight"],
    )


def test_steps_with_memory_go_on_as_it_fills() -> None:
    config = settings(shared_width=3, unique_width=3)
    heads = build_heads(config, config.variant("fedcvt"), 2, 2, 0)
    memory = Memory(9)
    for number in range(2):
        codes = codes_of(7, number)
        memory.look(torch.arange(4) + 4 * number)
        targets = torch.tensor([0, 1, 0, 1])
        step = Step(config, config.variant("fedcvt"), "multiclass", heads, codes, 4, memory)
        outcome = objective(step, targets, targets[:3])
        assert outcome.total.isfinite()
        memory.add(codes)


# The watch


def watch_of(task: str = "multiclass", *, threshold: float = 0.5, validation: int = 20) -> PseudoLabelWatch:
    values = np.array([0, 1, 2] * 20 if task == "multiclass" else np.linspace(0, 1, 60), dtype=object)
    encoder = LabelEncoder.fit(values, task)  # type: ignore[arg-type]
    targets = torch.from_numpy(np.array(encoder.encode(values)))
    labels = OwnLabels(encoder, targets.long() if task == "multiclass" else targets, values)
    nothing = np.empty(0, np.int64)
    table = OwnTable(
        None,  # type: ignore[arg-type]
        torch.zeros(60, 1),
        np.arange(validation, 60),
        np.arange(validation),
        nothing,
        nothing,
        nothing,
    )
    return PseudoLabelWatch(settings(threshold=threshold), labels, table)


def outcome_of(kept: list[bool], labels: list[int]) -> Outcome:
    return Outcome(torch.zeros(()), kept=[torch.tensor(kept)], labels=[torch.tensor(labels)])


def test_labels_are_switched_off_when_too_few_are_right_and_on_again() -> None:
    watch = watch_of(threshold=0.6)
    truth = torch.tensor(([0, 1, 2] * 20)[:20])
    watch.judge(torch.ones(20, dtype=torch.bool), (truth + (torch.arange(20) % 2)) % 3)
    assert watch.end_epoch(0)["precision"] == pytest.approx(0.5)
    assert not watch.is_on
    watch.judge(torch.ones(20, dtype=torch.bool), truth)
    assert watch.end_epoch(0)["precision"] == 1.0
    assert watch.is_on
    assert [one["off"] for one in watch.history] == ["precision", ""]


def test_a_few_judged_rows_decide_nothing() -> None:
    watch = watch_of()
    kept = torch.zeros(20, dtype=torch.bool)
    kept[:9] = True
    watch.judge(kept, torch.full((20,), 5))
    assert "precision" not in watch.end_epoch(0)
    assert watch.is_on


def test_labels_are_switched_off_when_one_class_takes_over() -> None:
    watch = watch_of()
    watch.saw(outcome_of([True] * 12, [1] * 9 + [0, 2, 0]))
    found = watch.end_epoch(0)
    assert found["kept"] == 1.0
    assert not watch.is_on
    assert watch.history[-1]["off"] == "one class"
    watch.saw(outcome_of([True] * 12 + [False] * 4, [1] * 7 + [0, 2, 0, 2, 0]))
    assert watch.end_epoch(0)["kept"] == 0.75
    assert watch.is_on, "seven of twelve is less than twice the class's share"


def test_the_watch_goes_on_from_a_checkpoint() -> None:
    one, two = watch_of(), watch_of()
    one.saw(outcome_of([True, False], [1]))
    two.load_state(one.state())
    assert one.end_epoch(0) == two.end_epoch(0)
    assert one.state() == two.state()


def test_while_labels_are_off_what_would_be_kept_decides_when_they_are_on_again() -> None:
    watch = watch_of()
    watch.saw(outcome_of([True] * 12, [1] * 12))
    watch.end_epoch(0)
    assert not watch.is_on
    watch.saw(outcome_of([False] * 12, [1] * 12))
    assert watch.end_epoch(1)["kept"] == 0.0
    assert not watch.is_on
    watch.saw(outcome_of([False] * 12, [0, 1, 2] * 4))
    watch.end_epoch(2)
    assert watch.is_on


@pytest.mark.parametrize(("share", "most"), [(0.1, 0.2), (1 / 3, 2 / 3), (0.5, 0.75), (0.9, 0.95)])
def test_a_class_may_take_twice_its_share_and_never_all(share: float, most: float) -> None:
    assert largest_share(share) == pytest.approx(most)


def test_numbers_are_judged_by_the_agreement_and_never_switched_off() -> None:
    watch = watch_of("regression")
    watch.judge(torch.ones(20, dtype=torch.bool), torch.full((20,), 99.0))
    assert watch.end_epoch(0)["precision"] == 0.0
    assert watch.is_on


@pytest.mark.parametrize("level", [0, 2])
def test_while_labels_are_switched_off_no_row_of_a_partner_is_kept(level: int) -> None:
    """The watch's verdict holds at every level."""
    config = settings(level=level, threshold=0.34, least_keys=0.0, own_batch_size=30)
    tables = frames(own={"shop": 60})

    def off(watch: PseudoLabelWatch, epoch: int) -> dict[str, float]:
        watch.is_on = False
        watch.history.append({"kept": watch._kept, "epoch": epoch + 1, "off": "precision"})
        watch._kept = watch._seen = 0
        return {}

    with pytest.MonkeyPatch.context() as patch, integers_for_ciphertexts():
        fixed_secret(patch)
        before = run_of(tables, config).findings["pseudo-labels"].values["epochs"]
        assert sum(one["kept"] for one in before) > 0
        patch.setattr(PseudoLabelWatch, "end_epoch", off)
        run = run_of(tables, config)
    assert [one["kept"] for one in run.findings["pseudo-labels"].values["epochs"]] == [0, 0, 0, 0]
