"""What each party gets to see, kind by kind and stage by stage, and what can be worked out from it."""

from __future__ import annotations

import dataclasses
import functools
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from tests.unit.methods.mpdl.worlds import (
    COMPARED,
    Heard,
    fixed_secret,
    frames,
    overheard,
    pictures,
    run_of,
    settings,
    tables_of,
    watched,
)
from tests.worlds import integers_for_ciphertexts, name_of, received, view

import colonnade as cn
from colonnade.errors import ConfigError
from colonnade.messages import declaration_of
from colonnade.methods.mpdl import METHOD, dual
from colonnade.session import CONTROL, Method, RunPlan

_CONTROL = {declaration_of(cls).name for cls in CONTROL}


def kinds(heard: Heard) -> dict[str, set[str]]:
    """Return the kinds of messages each party received."""
    found: dict[str, set[str]] = {}
    for receiver, _, message in heard:
        found.setdefault(receiver, set()).add(name_of(message))
    return found


def new_rows(parties: int = 2, task: str = "binary", **options: Any) -> dict[str, cn.PartyTable]:
    found = frames(task, parties, shared=9, own={"bank": 4, "shop": 5, "telco": 3}, seed=3, **options)
    return tables_of({name: one.drop(columns="y", errors="ignore") for name, one in found.items()})


def default(**changes: Any) -> cn.MPDL:
    """Return the defaults, but for what makes them slow."""
    return cn.MPDL(
        **{"bounds": {"*": (-30.0, 50.0)}, "epochs": 2, "batch_size": 16, "key_size": "insecure_test", **changes}
    )


# Check 7 of the sheet

SEEN: dict[str, dict[str, set[str]]] = {
    "train": {
        "bank": {"Columns", "MaskKey", "ReleasedTable", "Logits", "FirstGradient"},
        "shop": {"Schedule", "RowOrder", "MaskKey", "ReleasedTable", "FirstGradient", "FoldVerdict", "Choice"},
        "helper": {"Schedule", "MaskedValues", "LogitGradient", "AloneInputs", "FoldVerdict", "Choice"},
    },
    "dual": {"bank": {"Columns", "ReleasedTable"}, "shop": {"Schedule", "ReleasedTable"}},
    "central": {
        "bank": {"Columns", "MaskKey", "Logits", "FirstGradient"},
        "shop": {"Schedule", "RowOrder", "MaskKey", "FirstGradient", "Choice"},
        "helper": {"Schedule", "MaskedValues", "LogitGradient", "AloneInputs", "Choice"},
    },
    "predict": {
        "bank": {"MaskKey", "RowsAlone", "Logits"},
        "shop": {"ModelMark", "MaskKey", "Classes", "AloneScores"},
        "helper": {"ModelMark", "MaskedValues", "AllowedRows", "AloneInputs"},
    },
}


@functools.cache
def played(stage: str) -> tuple[Heard, cn.Run]:
    """Play a stage with the default settings, and return what was heard."""
    found = frames()
    if stage in ("train", "dual"):
        with overheard() as heard:
            run = run_of(found, default(), stage=stage, launch=cn.Launch(keep_views=True))
    elif stage == "central":
        earlier = run_of(found, default(), stage="dual", launch=cn.Launch(name="first"))
        with overheard() as heard:
            run = run_of(found, default(), stage="central", after=earlier, launch=cn.Launch(keep_views=True))
    else:
        run = played("train")[1]
        with overheard() as heard:
            run.predict(new_rows())
    return heard, run


@pytest.mark.parametrize("stage", SEEN)
def test_each_party_receives_these_kinds_and_no_other(stage: str) -> None:
    assert kinds(played(stage)[0]) == SEEN[stage]


def arrays(heard: Heard, receiver: str) -> np.ndarray:
    """Return every number that a party received, whatever it was in."""
    found: list[np.ndarray] = []
    for party, _, message in heard:
        if party != receiver:
            continue
        for field in dataclasses.fields(message):
            value = getattr(message, field.name)
            if isinstance(value, torch.Tensor):
                value = value.detach().numpy()
            if isinstance(value, np.ndarray):
                found.append(value.view(np.float64).reshape(-1) if value.dtype == np.uint64 else value.reshape(-1))
            elif isinstance(value, int | float):
                found.append(np.array([value]))
    return np.unique(np.concatenate([one.astype(np.float64) for one in found]))


@pytest.mark.parametrize("stage", SEEN)
def test_no_raw_or_scaled_cell_and_no_id_reaches_anybody(stage: str) -> None:
    heard, run = played(stage)
    found = frames()
    for receiver in kinds(heard):
        numbers = arrays(heard, receiver)
        for party, frame in found.items():
            if party == receiver:
                continue
            raw = frame[[name for name in frame if name.startswith(party)]].to_numpy().reshape(-1)
            scaled = (raw + 30.0) / 80.0
            for cells in (raw, scaled):
                assert not np.isin(cells, numbers).any(), (receiver, party)
            # Among as many secret numbers of 24 bits one may happen to be a cell's, but not several.
            for cells in (raw.astype(np.float32), scaled.astype(np.float32)):
                assert np.isin(cells.astype(np.float64), numbers).mean() < 0.01, (receiver, party)
    if run.views and stage != "predict":
        helper = b"".join(frame for sender, frame in run.views.get("helper", []))
        # Ids are short, and three bytes may happen to be among so many masked ones; a list of ids would have them all.
        assert sum(f'"{row}"'.encode() in helper for row in found["shop"]["id"]) <= 3


def test_the_collaborator_has_no_part_in_finding_shared_rows() -> None:
    _, run = played("train")
    names = {entry.content["message"] for entry in run.ledgers["helper"].messages()}
    assert names <= SEEN["train"]["helper"] | {"Logits", "FirstGradient"} | _CONTROL


def test_a_holder_learns_no_label_but_by_gradients() -> None:
    """What the shop gets of the labels: how many classes, which model won, and gradients at the first layer."""
    heard, _ = played("train")
    for receiver, _, message in heard:
        if receiver == "shop" and name_of(message) == "FirstGradient":
            assert message.values.shape[1] > 1
            assert message.values.is_floating_point()


def test_what_one_holder_sends_behind_masks_looks_like_chance() -> None:
    """Check 5 of the sheet, on a recorded view; and both together are numbers of the size of first layers."""
    _, run = played("train")
    parts = {
        party: [one.values for one in received(run, "helper", "MaskedValues", party)] for party in ("bank", "shop")
    }
    for several in parts.values():
        words = np.concatenate([one.reshape(-1) for one in several])
        counts = np.bincount((words >> np.uint64(59)).astype(int), minlength=32)
        expected = len(words) / 32
        assert expected > 50
        assert ((counts - expected) ** 2 / expected).sum() < 85, "31 degrees of freedom: once in a million runs"
    for one, other in zip(*parts.values(), strict=True):
        assert np.abs((one + other).view(np.int64) * 2.0**-40).max() < 100.0
        assert np.abs(one.view(np.int64) * 2.0**-40).max() > 1e4


# Every setting

EVERY: dict[str, tuple[int, dict[str, Any]]] = {
    "defaults": (2, {}),
    "three holders": (3, {"folds": 2, "fold_rounds": 1}),
    "no folds": (2, {"folds": 0}),
    "shipped, three holders": (3, {"completion": "ship", "folds": 0}),
    "in the clear, three holders": (3, {"mechanism": "none", "folds": 0, "augment": False}),
    "under encryption, three holders": (
        3,
        {"completion": "secure_block", "block_consent": True, "folds": 0, "hidden": 1, "epochs": 1, "batch_size": 64},
    ),
    "penalty": (2, {"generator": "mlp", "generator_epochs": 1, "dual_weight": 0.01, "dual_consent": True, "folds": 0}),
    "interactive": (
        2,
        {
            "generator": "mlp",
            "generator_epochs": 1,
            "exchange": "interactive",
            "dual_weight": 0.01,
            "dual_consent": True,
            "folds": 0,
            "batch_size": 64,
        },
    ),
}


def role_of(party: str) -> str:
    return {"bank": "label_holder", "helper": "collaborator"}.get(party, "feature_holder")


def named(heard: Heard) -> frozenset[tuple[str, str, str]]:
    return frozenset((name_of(one), role_of(sender), role_of(receiver)) for receiver, sender, one in heard)


def declared(method: Method, plan: RunPlan | None = None) -> frozenset[tuple[str, str, str]]:
    every = method.declarations if plan is None else method.declarations_in(plan)
    return frozenset((one.name, one.sender, one.receiver) for one in every)


@functools.cache
def crossing(case: str) -> tuple[frozenset[Any], frozenset[Any], frozenset[Any], frozenset[Any]]:
    """Return what crossed and what may, in training and in prediction."""
    if case == "pictures":
        found, config = (
            pictures(),
            default(
                bounds={"*": (0.0, 1.0)}, image=(1, 6, 6), channels=(2,), kernel_size=3, dense=(3,), kernels="tied"
            ),
        )
        new = tables_of({name: one.drop(columns="y", errors="ignore") for name, one in found.items()})
    else:
        parties, changes = EVERY[case]
        found, config = frames("binary", parties, shared=20, own={"bank": 6}), default(**changes)
        new = new_rows(parties)
    with integers_for_ciphertexts():
        with overheard() as training:
            run = run_of(found, config)
        with overheard() as predicting:
            run.predict(new)
    learned, scored = (declared(METHOD, plan) for plan in (run.plan, METHOD.in_stage(run.plan, "predict")))
    return named(training), learned, named(predicting), scored


@pytest.mark.parametrize("case", [*EVERY, "pictures"])
def test_what_crosses_is_what_the_settings_let_cross(case: str) -> None:
    sent, may, sent_then, may_then = crossing(case)
    assert sent <= may
    assert sent_then <= may_then
    both = {sender for _, sender, _ in sent | may} | {receiver for _, _, receiver in sent | may}
    assert both <= {"label_holder", "feature_holder", "collaborator"}
    assert {name for name, _, _ in may} == {name for name, _, _ in sent}


def test_every_declared_message_crosses_in_some_setting() -> None:
    found = {one for case in [*EVERY, "pictures"] for part in crossing(case)[::2] for one in part}
    found |= {one for stage in ("dual", "central") for one in named(played(stage)[0])}
    others = {name: stage for name, stage in METHOD.stages.items() if name != "graph"}
    assert found == declared(dataclasses.replace(METHOD, stages=others))


# What can be worked out: the privacy report's (i)


def raw_cells(party: str, table: Any) -> np.ndarray:
    frame = frames()[party]
    columns = [name for name in frame if name.startswith(party)]
    return ((frame[columns].to_numpy() + 30.0) / 80.0)[table.shared]


@pytest.mark.parametrize("receiver", ["bank", "shop"])
def test_traffic_of_a_release_gives_the_released_copy_and_nothing_nearer(receiver: str) -> None:
    sender = {"bank": "shop", "shop": "bank"}[receiver]
    with watched() as facts:
        run = run_of(frames(), settings(epsilon=2.0, folds=3), launch=cn.Launch(keep_views=True))
    (message,) = received(run, receiver, "ReleasedTable", sender)
    raw = raw_cells(sender, facts.tables[sender])
    assert np.array_equal(message.values, facts.tables[sender].released.numpy())
    assert (message.values != raw).all()
    assert 0.3 < np.abs(message.values - raw).mean() < 0.75, "Laplace noise of scale 1/2"
    # Nothing else that it receives has a number for every cell.
    others = [one for _, one in view(run, receiver) if name_of(one) not in ("ReleasedTable", "FirstGradient", "Logits")]
    assert all(not isinstance(getattr(one, "values", None), np.ndarray | torch.Tensor) for one in others)


@pytest.mark.parametrize("weight", [0.0, 0.05])
def test_gradients_of_the_interactive_exchange_give_the_released_copy_and_nothing_nearer(weight: float) -> None:
    """Who takes the gradient off its own prediction finds what was released, not what is in the table."""
    opened: dict[str, list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]] = {}
    opening = dual._Interactive._opened
    call = dual._Interactive.__call__

    def called(self: Any, rows: torch.Tensor) -> None:
        self._rows_now = rows
        call(self, rows)

    def noted(self: Any, rows: int, columns: int) -> torch.Tensor:
        gradient = opening(self, rows, columns)
        generated = self._generator.outputs(self._dual._inputs[self._rows_now]).detach()
        opened.setdefault(self._dual._session.party, []).append((self._rows_now, generated, gradient))
        return gradient

    with pytest.MonkeyPatch.context() as patch:
        fixed_secret(patch)
        patch.setattr(dual._Interactive, "_opened", noted)
        patch.setattr(dual._Interactive, "__call__", called)
        changes: dict[str, Any] = {"dual_weight": weight, "dual_consent": True, "generator_epochs": 1, "epochs": 1}
        with watched() as facts:
            run_of(frames(), settings(generator="mlp", exchange="interactive", epsilon=2.0, **changes))
    for party, other in (("shop", "bank"), ("bank", "shop")):
        released, raw = facts.tables[other].released.numpy(), raw_cells(other, facts.tables[other])
        worked_out = np.full_like(raw, np.nan)
        for rows, generated, gradient in opened[party]:
            worked_out[rows.numpy()] = (generated - gradient * generated.numel() / 2).numpy()
        assert np.isfinite(worked_out).all()
        if weight == 0.0:
            assert np.abs(worked_out - released).max() < 1e-9
        assert np.abs(worked_out - raw).mean() > 0.8 * np.abs(released - raw).mean()
        assert np.abs(released - raw).mean() > 0.3


# What the collaborator can work out


def inner_products(steps: list[tuple[np.ndarray, np.ndarray, np.ndarray]], rows: int, rate: float) -> np.ndarray:
    """Solve for the inner products of rows, from the sums and gradients of every step and which rows it took.

    Between two visits the sum of a row changes by the rate times its inner products with all rows in between, each
    times the gradient at that row: linear equations, of which every visit gives as many as there are hidden units.
    """
    hidden = steps[0][1].shape[1]
    so_far, seen = np.zeros((rows, hidden)), {}
    left: dict[int, list[np.ndarray]] = {row: [] for row in range(rows)}
    right: dict[int, list[np.ndarray]] = {row: [] for row in range(rows)}
    for batch, sums, gradients in steps:
        for place, row in enumerate(batch):
            if row in seen:
                before, spent = seen[row]
                left[row].append((so_far - spent).T)
                right[row].append((before - sums[place]) / rate)
            seen[row] = sums[place].copy(), so_far.copy()
        for place, row in enumerate(batch):
            so_far[row] += gradients[place]
    solved = [np.linalg.lstsq(np.vstack(left[row]), np.concatenate(right[row]), rcond=1e-10)[0] for row in range(rows)]
    return np.array(solved)


def linked(epochs: list[np.ndarray]) -> list[np.ndarray]:
    """Follow rows from epoch to epoch by how little their sums move; rows are named by their place in the first."""
    found = [np.arange(len(epochs[0]))]
    for before, after in pairwise(epochs):
        one, other = linear_sum_assignment(((before[:, None] - after[None]) ** 2).sum(axis=2))
        names = np.empty(len(after), np.int64)
        names[other] = found[-1][one]
        found.append(names)
    return found


def test_the_collaborator_can_work_out_how_alike_rows_are() -> None:
    """A limit of the method that its page must state: all columns up to one rotation, though masks hold.

    The order of rows is a secret of the holders, and the collaborator finds it out all the same.
    """
    config = settings(epochs=8, hidden=12)
    with watched() as facts:
        run = run_of(frames(), config, launch=cn.Launch(keep_views=True))
    assert not received(run, "helper", "RowOrder")
    # The first training is that with shared rows alone. The gradients are the collaborator's own.
    orders = facts.trainings["bank", "joint"].orders
    rows, size = len(orders[0]), config.batch_size
    per_epoch = -(-rows // size)
    parts = [received(run, "helper", "MaskedValues", party) for party in ("bank", "shop")]
    sums = [(one.values + other.values).view(np.int64) * 2.0**-40 for one, other in zip(*parts, strict=True)]
    sums = sums[: len(orders) * per_epoch]
    gradients = [one.values.numpy() for one in received(run, "shop", "FirstGradient")][: len(sums)]
    epochs = [np.concatenate(sums[start : start + per_epoch]) for start in range(0, len(sums), per_epoch)]
    taken = [names[start : start + size] for names in linked(epochs) for start in range(0, rows, size)]
    found = inner_products(list(zip(taken, sums, gradients, strict=True)), rows, config.learning_rate)
    columns = np.concatenate([table.inputs(table.shared).numpy() for table in facts.tables.values()], axis=1)[orders[0]]
    truth = columns @ columns.T
    assert np.abs(found - truth).max() < 1e-6 * np.abs(truth).max()


def test_the_order_of_rows_is_a_secret_of_the_holders() -> None:
    """Two runs of one seed take rows in other orders, and all holders of a run in the same."""
    found = []
    for _ in range(2):
        with watched() as facts:
            run_of(frames("binary", 3), default(folds=2, fold_rounds=1, epochs=1))
        orders = [facts.trainings[party, "completed"].orders[0] for party in ("bank", "shop", "telco")]
        assert all(np.array_equal(orders[0], one) for one in orders[1:])
        found.append((orders[0], facts.lessons["bank"][0][1]))
    assert not np.array_equal(found[0][0], found[1][0])
    assert not np.array_equal(found[0][1], found[1][1]), "parts too"


# What no noise covers needs a word of consent


@pytest.mark.parametrize(
    "changes",
    [
        {"generator": "mlp", "dual_weight": 0.1},
        {"generator": "mlp", "dual_weights": {"shop": 0.1}},
        {"generator": "mlp", "exchange": "interactive"},
        {"generator": "mlp", "exchange": "interactive", "mechanism": "none"},
        {"generator": "mlp", "exchange": "interactive", "mechanism": "none", "dp_scope": "all"},
        {"completion": "secure_block"},
        {"mechanism": "lemma_shared"},
        {"mechanism": "lemma"},
    ],
    ids=str,
)
def test_settings_that_leave_something_open_are_refused_without_consent(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"consent|paper_mode"):
        default(**changes)


def test_three_holders_with_a_penalty_are_refused_before_anything_is_released() -> None:
    with overheard() as heard, pytest.raises(ConfigError, match="two holders"):
        run_of(frames("binary", 3), default(generator="mlp", dual_weight=0.1, dual_consent=True))
    assert not any(name_of(one) in ("ReleasedTable", "ColumnNames") for _, _, one in heard)


def test_with_noise_on_everything_two_stages_never_draw_for_the_same_cells() -> None:
    """Either refused, or the same noise: two draws for one cell would halve what hides it."""
    found, config = frames(), default(dp_scope="all")
    with watched() as first:
        earlier = run_of(found, config, stage="dual", launch=cn.Launch(name="first"))
    try:
        with watched() as second:
            run_of(found, config, stage="central", after=earlier, evaluate=COMPARED)
    except ConfigError:
        return
    assert torch.equal(first.tables["shop"].units, second.tables["shop"].units)
