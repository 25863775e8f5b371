"""A party that lies in FedCVT: each case is refused with a sentence, at once, without much memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.adversary.hostile import Change, Lie, check_refused, other_key, same_key, with_field
from tests.unit.methods.fedcvt.worlds import frames, run_of, settings, tables_of
from tests.worlds import integers_for_ciphertexts

import colonnade as cn
from colonnade.crypto import CipherArray
from colonnade.errors import (
    CiphertextRefused,
    ColonnadeError,
    ConfigError,
    KeyRefused,
    OutOfStep,
    TrainingFailed,
    WrongContent,
)
from colonnade.exchanges.epochs import EpochVerdict
from colonnade.methods.fedcvt.messages import CodeGradient

WORLD: dict[str, Any] = {"shared": 24, "own": {"bank": 16, "shop": 16}}
SMALL: dict[str, Any] = {
    "shared_width": 3,
    "unique_width": 3,
    "epochs": 1,
    "batch_size": 24,
    "own_batch_size": 16,
    "warmup_epochs": 0,
    "least_keys": 2.0,
    "threshold": 0.5,
}
VALIDATED = cn.Evaluate(validation_fraction=0.2, test_fraction=0.2)


def simulated(**changes: Any) -> cn.Run:
    return run_of(frames("binary", **WORLD), settings(**{**SMALL, **changes}), evaluate=VALIDATED)


@functools.cache
def trained(level: int) -> cn.Run:
    with integers_for_ciphertexts():
        return simulated(level=level)


def new_rows() -> dict[str, cn.PartyTable]:
    found = frames("binary", shared=9, own={"bank": 4, "shop": 5}, seed=3)
    return tables_of({name: one.drop(columns="y", errors="ignore") for name, one in found.items()})


def refused(
    lie: Lie,
    kind: type[ColonnadeError],
    words: str = "",
    *,
    stage: str = "train",
    level: int = 0,
    is_measured: bool = False,
    **changes: Any,
) -> None:
    """Let one party lie, and check what the honest one says about it."""
    if stage == "predict":
        earlier = trained(level)
        play: Callable[[], Any] = functools.partial(earlier.predict, new_rows())
    else:
        play = functools.partial(simulated, level=level, **changes)
    with integers_for_ciphertexts():
        check_refused(play, lie, kind, words, seconds=60, is_measured=is_measured)


def first(change: Change) -> Change:
    """Return a change of the first of several arrays."""
    return lambda values: (change(values[0]), *values[1:])


# What is announced


@pytest.mark.parametrize("level", [0, 2])
def test_another_number_of_rows_than_announced_is_refused(level: int) -> None:
    kind = WrongContent if level == 0 else CiphertextRefused
    refused(Lie("shop", "OwnRows", with_field(count=15)), kind, level=level)


def test_a_schedule_of_so_many_scores_that_attention_would_follow_is_refused() -> None:
    """The feature holder checks by what it was told."""
    refused(Lie("bank", "Schedule", with_field(outputs=30)), ConfigError, "shared", level=2)


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_keys_that_protect_nothing_are_refused(party: str) -> None:
    refused(Lie(party, "PublicModulus", with_field(modulus=2**1023 + 2)), KeyRefused, level=2)


# Codes and gradients


def test_codes_and_gradients_far_out_of_range_end_the_run() -> None:
    huge = with_field(values=lambda values: torch.full_like(values, 1e200))
    refused(Lie("shop", "Codes", huge), TrainingFailed, "diverged")


# Ciphertexts

LAYOUTS: dict[str, Change] = {
    "one row more": lambda array: same_key(array, shape=(array.shape[0] + 1, *array.shape[1:])),
    "another key": other_key,
    "another scale": lambda array: same_key(array, fraction_bits=array.layout.fraction_bits + 1),
    "another bound": lambda array: same_key(array, bound=array.layout.bound // 2),
    "nothing": lambda array: same_key(array, shape=(0, *array.shape[1:])),
}
ARRAYS: list[tuple[str, str, str, bool, dict[str, Any]]] = [
    ("shop", "SealedCodes", "shared", True, {}),
    ("shop", "SealedCodes", "others", True, {}),
    ("shop", "SealedCodes", "rows", True, {}),
    ("shop", "SealedShares", "values", True, {}),
    ("bank", "MaskedLogits", "shared", True, {}),
    ("bank", "MaskedLogits", "others", False, {}),
    ("bank", "AlignedLogits", "values", False, {}),
    ("shop", "EstimatedLogits", "values", False, {}),
    ("bank", "EstimateGradient", "values", False, {}),
    ("shop", "AlignedGradient", "values", False, {}),
    ("bank", "FitCodes", "values", True, {}),
    ("shop", "FitGradient", "values", True, {}),
    ("bank", "MaskedWeightGradient", "values", True, {}),
    ("bank", "SealedCodeGradient", "values", True, {}),
    ("bank", "SealedCodeGradient", "fits", True, {}),
    ("shop", "SealedCodes", "others", True, {"stage": "predict"}),
    ("bank", "MaskedLogits", "others", False, {"stage": "predict"}),
    ("bank", "AlignedLogits", "values", False, {"stage": "predict"}),
    ("shop", "EstimatedLogits", "values", False, {"stage": "predict"}),
]


@pytest.mark.parametrize(
    ("case", "place"),
    [
        (case, place) if case == "one row more" else pytest.param(case, place, marks=pytest.mark.slow)
        for place in range(len(ARRAYS))
        for case in LAYOUTS
    ],
)
def test_ciphertexts_of_another_layout_or_key_are_refused(case: str, place: int) -> None:
    party, name, field, is_several, options = ARRAYS[place]
    change = first(LAYOUTS[case]) if is_several else LAYOUTS[case]
    refused(Lie(party, name, with_field(**{field: change})), CiphertextRefused, level=2, **options)


def test_a_ciphertext_under_another_key_is_refused() -> None:
    refused(Lie("shop", "SealedCodes", with_field(shared=first(other_key))), CiphertextRefused, level=2)
    refused(Lie("bank", "AlignedLogits", with_field(values=other_key)), CiphertextRefused, level=2)


def out_of_range(array: CipherArray) -> CipherArray:
    """Return an array that claims the agreed layout and hides integers far beyond it."""
    made = CipherArray.__new__(CipherArray)
    key = array._checked_key
    # Three bits of every four are set, so that every slot is full.
    whole = [one * 0 + int("7" * 250, 16) for one in array.ciphertexts]
    made._set(array.layout, whole, array._fingerprint, array._width, key)
    return made


@pytest.mark.parametrize(
    ("party", "name", "field", "is_several"),
    [
        ("shop", "EstimatedLogits", "values", False),
        ("shop", "AlignedGradient", "values", False),
        ("shop", "FitGradient", "values", True),
        ("bank", "SealedCodeGradient", "values", True),
        ("bank", "SealedCodeGradient", "fits", True),
    ],
)
def test_hidden_numbers_beyond_their_range_are_refused(party: str, name: str, field: str, is_several: bool) -> None:
    change = first(out_of_range) if is_several else out_of_range
    refused(Lie(party, name, with_field(**{field: change})), WrongContent, "beyond", level=2)


# What is opened

OPENED: dict[str, Change] = {
    "one more": lambda values: np.vstack([values, values[:1]]),
    "larger than the key": lambda values: np.full_like(values, 255),
    "something else": lambda values: np.random.default_rng(1).integers(0, 100, values.shape).astype(np.uint8),
}
OPENINGS: list[tuple[str, str, bool, dict[str, Any]]] = [
    ("OpenedLogits", "shared", True, {}),
    ("OpenedLogits", "others", False, {}),
    ("WeightUpdate", "values", True, {}),
    ("OpenedLogits", "others", False, {"stage": "predict"}),
]


@pytest.mark.parametrize(
    ("case", "place"),
    [
        (case, place) if place == 0 or case == "something else" else pytest.param(case, place, marks=pytest.mark.slow)
        for place in range(len(OPENINGS))
        for case in OPENED
    ],
)
def test_opened_values_of_another_form_are_refused(case: str, place: int) -> None:
    name, field, is_several, options = OPENINGS[place]
    change = first(OPENED[case]) if is_several else OPENED[case]
    refused(Lie("shop", name, with_field(**{field: change})), WrongContent, level=2, **options)


# Ends

ENDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "never the last": ({"is_last": False}, {}),
    "not the best though nothing is compared": ({"is_best": False}, {}),
    "the last too early": ({"is_last": True}, {"epochs": 2}),
    "never the last, with patience": ({"is_last": False}, {"patience": 1}),
}


@pytest.mark.parametrize("case", ENDS)
@pytest.mark.parametrize("level", [0, 1])
def test_epochs_that_end_as_they_cannot_are_refused(case: str, level: int) -> None:
    """A label holder could otherwise have codes released for ever."""
    fields, changes = ENDS[case]
    refused(Lie("bank", "EpochVerdict", with_field(**fields)), WrongContent, level=level, **changes)


# Prediction


@pytest.mark.parametrize("level", [0, 2])
def test_a_mark_of_another_training_is_refused(level: int) -> None:
    lie = Lie("bank", "ModelMark", with_field(mark="0" * 16))
    refused(lie, ConfigError, "another training", stage="predict", level=level)


def test_rows_to_score_where_no_answers_were_agreed_are_refused() -> None:
    earlier = simulated(partner_answers="none")
    lie = Lie("shop", "RowsAlone", with_field(count=5))
    check_refused(lambda: earlier.predict(new_rows()), lie, WrongContent, "0 to 0 is accepted", seconds=60)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_more_rows_than_announced_are_refused(level: int) -> None:
    kind = CiphertextRefused if level == 2 else WrongContent
    refused(Lie("shop", "RowsAlone", with_field(count=4)), kind, stage="predict", level=level)


ANSWERS: dict[str, dict[str, Any]] = {
    "a class too many": {"values": lambda values: values + 2},
    "negative": {"values": lambda values: values - 5},
    "numbers": {"values": lambda values: values.astype(np.float64)},
    "no description": {"labels": ""},
    "another description": {"labels": "[]"},
    "no task": {"labels": '{"classes": [1]}'},
    "an unknown task": {"labels": '{"task": "ranking", "classes": [1]}'},
    "deep": {"labels": "[" * 100_000},
}


@pytest.mark.parametrize("case", ANSWERS)
def test_answers_that_cannot_be_are_refused(case: str) -> None:
    refused(Lie("bank", "AnswersAlone", with_field(**ANSWERS[case])), WrongContent, stage="predict")


# Order


def test_a_verdict_in_place_of_a_gradient_is_out_of_step() -> None:
    refused(Lie("bank", "CodeGradient", lambda honest: EpochVerdict(True, True)), OutOfStep, "EpochVerdict")


def test_gradients_in_the_clear_are_out_of_step_in_an_encrypted_run() -> None:
    clear = CodeGradient(torch.zeros(4, 6, dtype=torch.float64))
    refused(Lie("bank", "MaskedWeightGradient", lambda honest: clear), OutOfStep, "may not send here", level=2)
