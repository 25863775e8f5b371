"""A party that lies in FairVFL: each case ends with a sentence, at once, or does no harm."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.adversary.hostile import Change, Lie, lying, other_key, same_key, with_field
from tests.unit.methods.fairvfl.worlds import frames, run_of, scored, settings
from tests.worlds import integers_for_ciphertexts

import colonnade as cn
from colonnade.errors import (
    CiphertextRefused,
    ColonnadeError,
    ConfigError,
    FrameRefused,
    KeyRefused,
    OutOfRange,
    OutOfStep,
    RoleFailed,
    TrainingFailed,
    WrongContent,
)
from colonnade.methods.fairvfl.messages import LocalGradient, Mark, TaskGradient

ROWS = 40
SETTINGS: dict[str, dict[str, Any]] = {
    "robust": {},
    "paper": {"removal": "paper", "label_epsilon": None, "protected_noise": 0.0, "mapper_step": "sequential"},
    "merged": {"mapper_step": "merged"},
    "scores": {"task_cut": "server"},
    "noisy counts": {"count_epsilon": 1.0},
}


def configured(setting: str) -> cn.FairVFL:
    return settings(**{"epochs": 1, "smallest_group": 1, **SETTINGS[setting]})


def simulated(setting: str) -> cn.Run:
    return run_of(frames(rows=ROWS), configured(setting))


@functools.cache
def trained(setting: str) -> cn.Run:
    return simulated(setting)


def audited(setting: str) -> cn.Run:
    return run_of(frames(rows=ROWS), configured(setting), stage="audit", after=trained(setting))


def play_of(setting: str, stage: str) -> Callable[[], Any]:
    if stage == "predict":
        return functools.partial(scored, trained(setting), frames(rows=24, seed=3))
    if stage == "audit":
        # Before anybody lies: a model that is not there yet would be trained with the lie.
        trained(setting)
    return functools.partial(audited if stage == "audit" else simulated, setting)


def refused(
    lie: Lie,
    kinds: type[ColonnadeError] | tuple[type[ColonnadeError], ...] = WrongContent,
    words: str = "",
    *,
    setting: str = "robust",
    stage: str = "train",
) -> None:
    """Let one party lie, and check that somebody says so: no fault of ours, no traceback, nothing that hangs."""
    play = play_of(setting, stage)
    with integers_for_ciphertexts(), lying(lie), pytest.raises(ColonnadeError) as error:
        play()
    said = error.value
    assert lie.was_told
    assert not isinstance(said, RoleFailed), repr(said)
    assert isinstance(said, kinds), repr(said)
    assert words in str(said), str(said)
    assert str(said).isprintable()
    assert len(str(said)) < 1000


def survived(lie: Lie, setting: str = "robust", stage: str = "train") -> Any:
    """Return what came of it if the lie did no harm, and None if it ended with a sentence; the rest are faults."""
    found, said = None, None
    play = play_of(setting, stage)
    with integers_for_ciphertexts(), lying(lie):
        try:
            found = play()
        except ColonnadeError as error:
            said = error
    assert lie.was_told
    assert not isinstance(said, RoleFailed), repr(said)
    assert isinstance(said, WrongContent | OutOfRange | TrainingFailed | None), repr(said)
    return found


def mostly_slow(cases: Any, *quick: Any) -> list[Any]:
    """Leave all but some cases to `make test-slow`: they differ in a word from those."""
    return [one if one in quick else pytest.param(one, marks=pytest.mark.slow) for one in cases]


# What is announced


@pytest.mark.parametrize("fields", [{"train": 7}, {"train": 10**8}, {"test": 3}, {"test": 99}], ids=str)
def test_other_rows_than_were_found_end_the_run(fields: dict[str, int]) -> None:
    refused(Lie("bank", "Amounts", with_field(**fields)), (WrongContent, OutOfStep))


@pytest.mark.parametrize(
    ("stage", "fields"),
    [("predict", {"test": 3}), ("predict", {"test": 10**8}), ("audit", {"train": 3}), ("audit", {"validation": 10**8})],
)
def test_other_rows_than_were_found_end_other_stages(stage: str, fields: dict[str, int]) -> None:
    refused(Lie("bank", "Amounts", with_field(**fields)), (WrongContent, OutOfStep), stage=stage)


def test_another_number_of_scores_than_the_task_has_ends_the_run() -> None:
    refused(Lie("bank", "Amounts", with_field(outputs=3)), setting="scores")


def test_a_holder_of_attributes_may_not_offer_columns() -> None:
    refused(Lie("state", "Offer", with_field(has_columns=True)), words="'state' plays attribute_holder and offers")


def test_columns_that_are_not_offered_are_not_taken() -> None:
    refused(Lie("one", "Offer", with_field(has_columns=False)), OutOfStep)


@pytest.mark.parametrize("names", [(), ("age",)], ids=["none", "age"])
def test_an_attribute_that_is_withheld_is_missed(names: tuple[str, ...]) -> None:
    refused(Lie("state", "Offer", with_field(attributes=names)), ConfigError, "'gender'")


def test_an_attribute_of_another_is_refused() -> None:
    refused(Lie("one", "Offer", with_field(attributes=("gender",))), ConfigError, "one and state")


# Numbers

TENSORS: list[tuple[str, str, str]] = [
    ("one", "LocalCode", "robust"),
    ("server", "UnifiedCode", "robust"),
    ("bank", "TaskGradient", "robust"),
    ("server", "ProtectedCode", "robust"),
    ("server", "ProtectedCodeAgain", "robust"),
    ("state", "DiscriminatorGradient", "robust"),
    ("bureau", "AdversarialGradient", "robust"),
    ("server", "LocalGradient", "robust"),
    ("server", "UnifiedCode", "paper"),
    ("server", "ProtectedCode", "paper"),
    ("server", "ProtectedCodeAgain", "paper"),
    ("state", "DiscriminatorGradient", "paper"),
    ("state", "AdversarialGradient", "paper"),
    ("state", "DiscriminatorGradient", "merged"),
    ("server", "TaskScores", "scores"),
    ("bank", "TaskGradient", "scores"),
]


@pytest.mark.parametrize("place", [0, 2, 5, 7])
@pytest.mark.parametrize(
    "kind", mostly_slow([torch.float64, torch.int64, torch.bool, torch.uint8], torch.int64), ids=str
)
def test_numbers_of_another_kind_are_taken_as_numbers_or_refused(place: int, kind: torch.dtype) -> None:
    party, name, setting = TENSORS[place]
    run = survived(Lie(party, name, with_field(values=lambda values: values.to(kind))), setting)
    if run is not None:
        assert all(value.isfinite().all() for part in run.parts.values() for value in part.tensors.values())


@pytest.mark.parametrize("size", mostly_slow([1e300, 3e38], 1e300))
@pytest.mark.parametrize("place", range(len(TENSORS)))
def test_numbers_far_out_of_range_never_break_anything_but_the_run(place: int, size: float) -> None:
    """Gradients are shortened, so that a run may survive; its weights are numbers then."""
    party, name, setting = TENSORS[place]
    huge = with_field(values=lambda values: torch.full(values.shape, size, dtype=torch.float64))
    run = survived(Lie(party, name, huge), setting)
    if run is not None:
        for who, part in run.parts.items():
            assert all(value.isfinite().all() for value in part.tensors.values()), who


def test_a_party_that_says_it_knows_nothing_does_no_harm() -> None:
    lie = Lie("two", "LocalCode", with_field(is_there=np.zeros_like))
    assert survived(lie) is not None


# Marks


def test_a_mark_that_differs_between_parties_is_found_when_the_model_is_used() -> None:
    lie = Lie("server", "Mark", with_field(name="0" * 16), 1)
    with lying(lie):
        run = simulated("robust")
    with pytest.raises(ConfigError, match="part of another model"):
        scored(run, frames(rows=24, seed=3))


@pytest.mark.parametrize("stage", ["predict", "audit"])
@pytest.mark.parametrize("party", ["one", "bank"])
def test_a_part_of_another_training_is_refused(party: str, stage: str) -> None:
    lie = Lie(party, "Offer", with_field(model="0" * 16))
    refused(lie, ConfigError, f"'{party}' has a part of another", stage=stage)


def test_who_had_columns_in_training_must_bring_them() -> None:
    refused(Lie("one", "Offer", with_field(has_columns=False)), words="needs the codes of one, two", stage="predict")


# The audit


def test_another_number_of_groups_than_of_attributes_is_refused() -> None:
    refused(Lie("state", "Countable", with_field(groups=(2, 2))), words="'state' offers to count", stage="audit")


@pytest.mark.parametrize("setting", ["robust", "noisy counts"])
def test_groups_that_another_has_counted_by_are_refused(setting: str) -> None:
    lie = Lie("bureau", "Countable", with_field(attributes=("gender",)))
    refused(lie, words="refused Countable from 'bureau'", setting=setting, stage="audit")


def test_a_count_that_is_not_wanted_after_all_ends_the_audit() -> None:
    refused(Lie("bank", "CountRequest", with_field(is_wanted=False), 2), OutOfStep, stage="audit")


def test_a_count_that_is_wanted_of_who_has_no_groups_does_no_harm() -> None:
    assert survived(Lie("bank", "CountRequest", with_field(is_wanted=False)), stage="audit") is not None


def test_keys_that_protect_nothing_are_refused() -> None:
    refused(Lie("bank", "PublicModulus", with_field(modulus=2**1023 + 2)), KeyRefused, stage="audit")


LAYOUTS: dict[str, Change] = {
    "one row more": lambda array: same_key(array, shape=(array.shape[0] + 1, *array.shape[1:])),
    "a column less": lambda array: same_key(array, shape=(array.shape[0], array.shape[1] - 1)),
    "another key": other_key,
    "another scale": lambda array: same_key(array, fraction_bits=array.layout.fraction_bits + 1),
    "another bound": lambda array: same_key(array, bound=array.layout.bound * 2),
    "nothing": lambda array: same_key(array, shape=(0, *array.shape[1:])),
}


@pytest.mark.parametrize("case", mostly_slow(LAYOUTS, "one row more", "another key"))
@pytest.mark.parametrize(
    ("party", "name", "setting"),
    [
        ("bank", "SealedColumns", "robust"),
        ("state", "CountsByGroup", "robust"),
        pytest.param("state", "CountsByGroup", "noisy counts", marks=pytest.mark.slow),
    ],
)
def test_ciphertexts_of_another_layout_or_key_are_refused(party: str, name: str, setting: str, case: str) -> None:
    lie = Lie(party, name, with_field(values=LAYOUTS[case]))
    refused(lie, (CiphertextRefused, FrameRefused, WrongContent), setting=setting, stage="audit")


@pytest.mark.parametrize("change", [np.zeros_like, lambda given: ~given | (np.arange(len(given)) == 0)])
def test_counts_of_other_groups_than_are_given_are_refused(change: Change) -> None:
    refused(Lie("state", "CountsByGroup", with_field(is_given=change)), CiphertextRefused, stage="audit")


def test_another_number_of_groups_than_was_announced_is_refused() -> None:
    refused(Lie("state", "Countable", with_field(groups=(3,))), words="refused CountsByGroup", stage="audit")


RESULTS: dict[str, Any] = {
    "nothing": "",
    "no JSON": "{",
    "a number": "7",
    "a list": "[1, 2]",
    "null": "null",
    "numbers by kind": json.dumps({"strong": 0.5}),
    "a list by kind": json.dumps({"strong": [0.5]}),
    "deep": "[" * 19_000,
    "deep below": '{"strong": ' + "[" * 19_000,
    "long": json.dumps({"strong": {"auc": 0.5, "more": "x" * 20_000}}),
    "an area that is text": json.dumps({"strong": {"auc": "0.5"}}),
    "an area that is a list": json.dumps({"strong": {"auc": [0.5]}}),
    "an area that is no number": '{"strong": {"auc": NaN}}',
    "an infinite area": '{"strong": {"auc": Infinity}}',
    "an area beyond measure": '{"strong": {"auc": 1' + "0" * 400 + "}}",
    "an area with too many digits": '{"strong": {"auc": 1' + "0" * 9000 + "}}",
    "an area above 1": json.dumps({"strong": {"auc": 1.5}}),
    "more explained than there is": json.dumps({"strong": {"r2": 7.0}}),
    "explained by a list": json.dumps({"strong": {"r2": [0.1]}}),
    "an unknown attacker": json.dumps({"stronger": {"auc": 0.5}}),
    "an attacker that moves the cursor": json.dumps({"\x1b[2J": {"auc": 0.9}}),
}


@pytest.mark.parametrize("case", mostly_slow(RESULTS, *list(RESULTS)[::3]))
def test_results_that_are_none_are_refused(case: str) -> None:
    words = "refused AttackResult" if len(RESULTS[case]) > 20_000 else "'state' tells of an attack"
    refused(Lie("state", "AttackResult", with_field(found=RESULTS[case])), words=words, stage="audit")


def test_a_result_on_an_attribute_of_another_is_refused() -> None:
    lie = Lie("state", "AttackResult", with_field(attribute="age"))
    refused(lie, words="refused AttackResult from 'state'", stage="audit")


UNREADABLE: dict[str, Change] = {
    "no columns": lambda values: values[:, :0].clone(),
    "far out of range": lambda values: torch.full(values.shape, 1e300, dtype=torch.float64),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_codes_that_nobody_can_attack_are_refused(case: str) -> None:
    # To the bank, then to one, which has columns of its own.
    lie = Lie("server", "AttackCodes", with_field(unified=UNREADABLE[case]), 1)
    refused(lie, words="'one' got have no columns, or numbers out of range", stage="audit")


# Order


def test_a_gradient_in_place_of_a_mark_is_out_of_step() -> None:
    lie = Lie("server", "Mark", lambda honest: LocalGradient(torch.zeros(2, 2)), 1)
    refused(lie, OutOfStep)


def test_a_mark_in_place_of_a_gradient_is_out_of_step() -> None:
    refused(Lie("server", "LocalGradient", lambda honest: Mark("0" * 16)), OutOfStep)


def test_a_gradient_of_the_task_in_place_of_a_discriminators_is_out_of_step() -> None:
    refused(Lie("state", "DiscriminatorGradient", lambda honest: TaskGradient(honest.values)), OutOfStep)
