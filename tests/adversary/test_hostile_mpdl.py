"""A party that lies in multi-party dual learning: each case ends with a sentence, at once, without much memory."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.adversary.hostile import Change, Lie, lying, other_key, same_key, with_field
from tests.unit.methods.mpdl.worlds import frames, pictures, run_of, settings, tables_of
from tests.worlds import integers_for_ciphertexts

import colonnade as cn
from colonnade.errors import (
    CiphertextRefused,
    ColonnadeError,
    ConfigError,
    KeyRefused,
    KeyTooSmall,
    OutOfRange,
    OutOfStep,
    RoleFailed,
    TrainingFailed,
    WrongContent,
)
from colonnade.methods.mpdl.messages import Choice, FoldVerdict, Logits

WORLD: dict[str, Any] = {"shared": 20, "own": {"bank": 8, "shop": 6}}
SMALL: dict[str, Any] = {"epochs": 1, "batch_size": 10, "generator_epochs": 1, "hidden": 3}
SETTINGS: dict[str, dict[str, Any]] = {
    "release": {},
    "folds": {"folds": 3, "fold_gain": 1.0},
    "in the clear": {"mechanism": "none"},
    "mlp": {"generator": "mlp"},
    "penalty": {"generator": "mlp", "dual_weight": 0.1, "dual_consent": True},
    "interactive": {"generator": "mlp", "exchange": "interactive", "dual_consent": True},
    "interactive penalty": {
        "generator": "mlp",
        "exchange": "interactive",
        "dual_weight": 0.1,
        "dual_consent": True,
    },
    "ship": {"completion": "ship"},
    "sealed": {"completion": "secure_block", "block_consent": True},
    "not augmented": {"augment": False},
}


def simulated(setting: str, task: str = "binary") -> cn.Run:
    if setting == "tied":
        changes: dict[str, Any] = {
            "bounds": {"*": (0.0, 1.0)},
            "image": (1, 6, 6),
            "channels": (2,),
            "kernel_size": 3,
            "dense": (3,),
            "kernels": "tied",
        }
        return run_of(pictures(12, 6), settings(**{**SMALL, **changes}))
    return run_of(frames(task, **WORLD), settings(**{**SMALL, **SETTINGS[setting]}))


@functools.cache
def trained(setting: str, task: str) -> cn.Run:
    with integers_for_ciphertexts():
        return simulated(setting, task)


def new_rows(task: str) -> dict[str, cn.PartyTable]:
    found = frames(task, shared=9, own={"bank": 4, "shop": 5}, seed=3)
    return tables_of({name: one.drop(columns="y", errors="ignore") for name, one in found.items()})


def refused(
    lie: Lie,
    kinds: type[ColonnadeError] | tuple[type[ColonnadeError], ...] = WrongContent,
    words: str = "",
    *,
    setting: str = "release",
    stage: str = "train",
    task: str = "binary",
) -> None:
    """Let one party lie, and check that somebody says so: no fault of ours, no traceback, nothing that hangs."""
    play: Callable[[], Any] = functools.partial(simulated, setting, task)
    if stage == "predict":
        play = functools.partial(trained(setting, task).predict, new_rows(task))
    with integers_for_ciphertexts(), lying(lie), pytest.raises(ColonnadeError) as error:
        play()
    said = error.value
    assert lie.was_told
    assert not isinstance(said, RoleFailed), repr(said)
    assert isinstance(said, kinds), repr(said)
    assert words in str(said), str(said)
    assert str(said).isprintable()
    assert len(str(said)) < 1000


def mostly_slow(cases: Any, *quick: Any) -> list[Any]:
    """Leave all but some cases to `make test-slow`: they differ in a word from those."""
    return [one if one in quick else pytest.param(one, marks=pytest.mark.slow) for one in cases]


TO_BOTH = pytest.mark.parametrize(
    "place", [0, pytest.param(1, marks=pytest.mark.slow)], ids=["to the shop", "to the helper"]
)


# What is announced


def test_other_common_columns_are_refused() -> None:
    refused(Lie("shop", "Columns", with_field(common=bytes(32))), ConfigError, "common_columns")


@pytest.mark.parametrize("fields", [{"shared": 17}, {"test": 5}, {"validation": 1}], ids=str)
def test_other_shared_rows_than_were_found_are_refused(fields: dict[str, int]) -> None:
    refused(Lie("bank", "Schedule", with_field(**fields)), words="other shared rows")


@pytest.mark.parametrize("fields", [{"own": 7}, {"shared": 15}, {"test": 3}, {"hidden": 4}, {"outputs": 2}], ids=str)
def test_a_schedule_that_differs_between_parties_ends_the_run(fields: dict[str, int]) -> None:
    refused(Lie("bank", "Schedule", with_field(**fields), 1), (WrongContent, OutOfStep))


# Tables

TABLES: dict[str, dict[str, Any]] = {
    "a column less": {"values": lambda values: values[:, 1:].copy()},
    "one that is infinite": {"values": lambda values: np.where(values == values[0, 0], np.inf, values)},
    "a name more": {"names": lambda names: (*names, "more")},
}


@pytest.mark.parametrize("case", TABLES)
@pytest.mark.parametrize("setting", ["release", "in the clear"])
def test_released_tables_that_do_not_fit_their_names_are_refused(setting: str, case: str) -> None:
    refused(Lie("shop", "ReleasedTable", with_field(**TABLES[case])), setting=setting)


def test_only_a_table_without_noise_may_lack_cells() -> None:
    lie = Lie(
        "shop", "ReleasedTable", with_field(values=lambda values: np.where(values == values[0, 0], np.nan, values))
    )
    refused(lie)
    assert survived(Lie("shop", "ReleasedTable", lie.change), "in the clear") is not None


@pytest.mark.parametrize("size", mostly_slow([1e300, 1.7e308], 1.7e308))
@pytest.mark.parametrize("setting", ["release", "mlp", "penalty"])
def test_tables_far_out_of_range_end_the_run_or_do_no_harm(setting: str, size: float) -> None:
    """Numbers are numbers: what comes of them is clipped to where columns can be, or the run ends with a sentence."""
    huge = with_field(values=lambda values: np.where(np.arange(values.size).reshape(values.shape) % 3, size, -size))
    run = survived(Lie("shop", "ReleasedTable", huge), setting)
    if run is not None:
        assert all(value.isfinite().all() for name, value in run.parts["bank"].tensors.items() if "completed" in name)


def survived(lie: Lie, setting: str) -> cn.Run | None:
    """Return the run if it bears the lie, and None if it ends with a sentence; anything else is a fault."""
    run: cn.Run | None = None
    said: ColonnadeError | None = None
    with integers_for_ciphertexts(), lying(lie):
        try:
            run = simulated(setting)
        except ColonnadeError as error:
            said = error
    assert lie.was_told
    assert not isinstance(said, RoleFailed), repr(said)
    assert isinstance(said, WrongContent | OutOfRange | TrainingFailed | None), repr(said)
    return run


# Arrays


def of_either_kind(change: Change) -> Change:
    """Return a change of a tensor that also does for an array."""
    return lambda values: (
        change(values) if isinstance(values, torch.Tensor) else change(torch.from_numpy(values)).numpy()
    )


@pytest.mark.parametrize(
    ("party", "name", "setting"),
    [("shop", "DualScalars", "penalty"), ("shop", "GeneratedColumns", "interactive"), ("shop", "ShippedRows", "ship")],
)
def test_numbers_of_another_precision_do_no_harm(party: str, name: str, setting: str) -> None:
    lie = Lie(party, name, with_field(values=lambda values: values.astype(np.float32)))
    assert survived(lie, setting) is not None


HUGE: list[tuple[str, str, str]] = [
    ("helper", "Logits", "release"),
    ("bank", "LogitGradient", "release"),
    ("helper", "FirstGradient", "release"),
    ("helper", "KernelGradient", "tied"),
    ("bank", "BlockGradient", "sealed"),
    ("shop", "DualScalars", "penalty"),
    ("shop", "GeneratedColumns", "interactive"),
    ("shop", "GeneratedColumns", "interactive penalty"),
    ("shop", "ShippedRows", "ship"),
    ("shop", "AloneInputs", "release"),
]


@pytest.mark.parametrize("place", range(len(HUGE)))
def test_numbers_far_out_of_range_never_break_anything_but_the_run(place: int) -> None:
    """Gradients are shortened, so that a run may survive; its weights are numbers then."""
    party, name, setting = HUGE[place]
    lie = Lie(party, name, with_field(values=of_either_kind(lambda values: torch.full_like(values, 1e300))))
    run = survived(lie, setting)
    if run is not None:
        assert all(value.isfinite().all() for part in run.parts.values() for value in part.tensors.values())


# Masked sums


@pytest.mark.parametrize("stage", mostly_slow(["train", "predict"], "train"))
def test_masked_values_that_do_not_cancel_are_refused(stage: str) -> None:
    draw = np.random.default_rng(1)
    change = with_field(values=lambda values: draw.integers(0, 2**64 - 1, values.shape, dtype=np.uint64))
    refused(Lie("shop", "MaskedValues", change), stage=stage)


@pytest.mark.parametrize("key", [bytes(32), b"\x01" + bytes(31)], ids=["nothing", "one"])
def test_keys_for_masks_that_hide_nothing_are_refused(key: bytes) -> None:
    refused(Lie("shop", "MaskKey", with_field(public=key)), words="key for masks")


# Ciphertexts

LAYOUTS: dict[str, Change] = {
    "one row more": lambda array: same_key(array, shape=(array.shape[0] + 1, *array.shape[1:])),
    "another key": other_key,
    "another scale": lambda array: same_key(array, fraction_bits=array.layout.fraction_bits + 1),
    "another bound": lambda array: same_key(array, bound=array.layout.bound // 2),
    "nothing": lambda array: same_key(array, shape=(0, *array.shape[1:])),
}
SEALED: list[tuple[str, str, str, str, str]] = [
    ("bank", "EncryptedQuery", "rows", "sealed", "train"),
    ("shop", "EncryptedQuery", "rows", "sealed", "train"),
    ("shop", "QueryAnswer", "products", "sealed", "train"),
    ("shop", "DualScalars", "values", "interactive penalty", "train"),
    ("shop", "ColumnGradient", "values", "interactive penalty", "train"),
    ("bank", "ColumnGradient", "values", "interactive", "train"),
    ("shop", "EncryptedQuery", "rows", "not augmented", "predict"),
    ("bank", "QueryAnswer", "products", "not augmented", "predict"),
]


@pytest.mark.parametrize(
    ("case", "place"),
    [
        (case, place) if case == "one row more" else pytest.param(case, place, marks=pytest.mark.slow)
        for place in range(len(SEALED))
        for case in LAYOUTS
    ],
)
def test_ciphertexts_of_another_layout_or_key_are_refused(case: str, place: int) -> None:
    party, name, field, setting, stage = SEALED[place]
    lie = Lie(party, name, with_field(**{field: LAYOUTS[case]}))
    refused(lie, (CiphertextRefused, WrongContent), setting=setting, stage=stage)


@pytest.mark.parametrize(("modulus", "kind"), [(1, KeyTooSmall), (2**1023 + 2, KeyRefused)])
@pytest.mark.parametrize("setting", mostly_slow(["interactive", "sealed"], "interactive"))
def test_keys_that_protect_nothing_are_refused(setting: str, modulus: int, kind: type[ColonnadeError]) -> None:
    refused(Lie("shop", "PublicModulus", with_field(modulus=modulus)), kind, setting=setting)


# Verdicts and choices


@pytest.mark.parametrize("place", [0, 1], ids=["to the shop", "to the helper"])
def test_a_verdict_that_differs_between_parties_ends_the_run(place: int) -> None:
    lie = Lie("bank", "FoldVerdict", with_field(is_enough=True), place)
    refused(lie, (WrongContent, OutOfStep), setting="folds")


# Prediction


@pytest.mark.parametrize("fields", [{"mark": "0" * 16}, {"model": "joint"}], ids=str)
@TO_BOTH
def test_another_model_than_was_trained_or_chosen_is_refused(fields: dict[str, str], place: int) -> None:
    """Weights of two models would fit, and give nonsense."""
    refused(Lie("bank", "ModelMark", with_field(**fields), place), ConfigError, stage="predict")


def test_other_shared_rows_than_are_scored_are_refused() -> None:
    refused(Lie("bank", "ModelMark", with_field(shared=8)), words="other shared rows", stage="predict")


@pytest.mark.parametrize("setting", mostly_slow(["release", "not augmented"], "release"))
@pytest.mark.parametrize("count", [1, 4, 6, 300])
def test_another_number_of_rows_than_announced_is_refused(count: int, setting: str) -> None:
    """More rows than were allowed are never scored, whatever the shop tells whom."""
    lie = Lie("shop", "RowsAlone", with_field(count=count))
    refused(lie, (WrongContent, OutOfStep, CiphertextRefused), stage="predict", setting=setting)


@pytest.mark.parametrize("counts", [(4,), (6,)], ids=str)
def test_allowed_rows_that_were_not_asked_for_are_refused(counts: tuple[int, ...]) -> None:
    lie = Lie("bank", "AllowedRows", with_field(counts=counts))
    refused(lie, (WrongContent, OutOfStep), stage="predict")


def changed(**fields: Any) -> Change:
    """Change some fields of what is said about the labels."""
    return with_field(labels=lambda text: json.dumps({**json.loads(text), **fields}))


LABELS: dict[str, tuple[str, Change]] = {
    "no description": ("binary", with_field(labels="")),
    "another description": ("binary", with_field(labels="[]")),
    "a number": ("binary", with_field(labels="7")),
    "no task": ("binary", with_field(labels='{"classes": [1]}')),
    "an unknown task": ("binary", changed(task="ranking")),
    "deep": ("binary", with_field(labels="[" * 100_000)),
    "no classes": ("binary", changed(classes=[])),
    "one class": ("binary", changed(classes=[1])),
    "three classes for two": ("binary", changed(classes=[0, 1, 2])),
    "classes that are lists": ("binary", changed(classes=[[1], [2]])),
    "a class less": ("multiclass", changed(classes=[0, 1])),
    "classes, but one score": ("binary", changed(task="multiclass", classes=[0, 1, 2])),
    "two classes, but three scores": ("multiclass", changed(task="binary", classes=[0, 1])),
    "numbers, but three scores": ("multiclass", changed(task="regression", classes=[], mean=0.0, scale=1.0)),
    "a mean that is none": ("regression", changed(mean="x")),
    "a mean that is not a number": ("regression", changed(mean=float("nan"))),
    "an infinite scale": ("regression", changed(scale=float("inf"))),
    "a scale of nothing": ("regression", changed(scale=0.0)),
    "a scale that is a list": ("regression", changed(scale=[1.0])),
}


@pytest.mark.parametrize("case", LABELS)
def test_descriptions_of_labels_that_cannot_be_are_refused(case: str) -> None:
    task, change = LABELS[case]
    refused(Lie("bank", "Classes", change), stage="predict", task=task)


# Order


def test_a_verdict_in_place_of_a_gradient_is_out_of_step() -> None:
    lie = Lie("bank", "LogitGradient", lambda honest: FoldVerdict(True))
    refused(lie, OutOfStep, setting="folds")


def test_a_choice_in_place_of_a_verdict_is_out_of_step() -> None:
    lie = Lie("bank", "FoldVerdict", lambda honest: Choice("joint", "0" * 16))
    refused(lie, OutOfStep, setting="folds")


def test_scores_in_place_of_gradients_are_out_of_step() -> None:
    lie = Lie("helper", "FirstGradient", lambda honest: Logits(torch.zeros(10, 1, dtype=torch.float64)))
    refused(lie, OutOfStep)
