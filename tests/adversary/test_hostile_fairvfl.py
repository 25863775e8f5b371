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
    KeyTooSmall,
    OutOfRange,
    OutOfStep,
    RoleFailed,
    TrainingFailed,
    WrongContent,
)
from colonnade.methods.fairvfl.messages import TaskGradient, local_gradient, mark

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

AMOUNTS: list[dict[str, int]] = [
    *[{name: value} for name in ("train", "validation", "test") for value in (-1, 2**40, 2**70)],
    {"train": 0},
    {"outputs": 0},
    {"outputs": -1},
    {"outputs": 2**40},
    {"outputs": 2**70},
]


@pytest.mark.parametrize("fields", mostly_slow(AMOUNTS, *AMOUNTS[::3]), ids=str)
def test_amounts_that_cannot_be_are_refused(fields: dict[str, int]) -> None:
    refused(Lie("bank", "Amounts", with_field(**fields)), words="'bank' announces")


@pytest.mark.parametrize("stage", ["predict", "audit"])
@pytest.mark.parametrize("fields", [{"test": -1}, {"test": 2**40}, {"outputs": 0}], ids=str)
def test_amounts_that_cannot_be_are_refused_in_other_stages(fields: dict[str, int], stage: str) -> None:
    refused(Lie("bank", "Amounts", with_field(**fields)), words="'bank' announces", stage=stage)


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


@pytest.mark.parametrize("name", ["n" * 2**20, "\x1b[2J"], ids=["long", "cursor"])
def test_names_of_attributes_that_could_do_harm_are_refused(name: str) -> None:
    refused(Lie("state", "Offer", with_field(attributes=(name,))), words="refused Offer from 'state'")


def test_an_attribute_of_another_is_refused() -> None:
    refused(Lie("one", "Offer", with_field(attributes=("gender",))), ConfigError, "one and state")


# Numbers

ARRAYS: dict[str, Change] = {
    "a row more": lambda values: torch.cat([values, values[:1]]),
    "a row less": lambda values: values[1:].clone(),
    "a column less": lambda values: values[:, 1:].clone(),
    "nothing": lambda values: values[:0].clone(),
    "flat": lambda values: values.reshape(-1).clone(),
    "not a number": lambda values: torch.full_like(values, torch.nan),
    "one that is infinite": lambda values: torch.where(values == values.reshape(-1)[0], torch.inf, values),
}
TENSORS: list[tuple[str, str, str, str]] = [
    ("one", "LocalCode", "robust", "train"),
    ("server", "NoisedUnifiedCode", "robust", "train"),
    ("bank", "TaskGradient", "robust", "train"),
    ("server", "NoisedProtectedCode", "robust", "train"),
    ("server", "NoisedProtectedCodeAgain", "robust", "train"),
    ("state", "NoisedDiscriminatorGradient", "robust", "train"),
    ("bureau", "NoisedAdversarialGradient", "robust", "train"),
    ("server", "LocalGradient", "robust", "train"),
    ("server", "UnifiedCode", "paper", "train"),
    ("server", "ProtectedCode", "paper", "train"),
    ("server", "ProtectedCodeAgain", "paper", "train"),
    ("state", "DiscriminatorGradient", "paper", "train"),
    ("state", "AdversarialGradient", "paper", "train"),
    ("state", "NoisedDiscriminatorGradient", "merged", "train"),
    ("server", "TaskScores", "scores", "train"),
    ("bank", "TaskScoreGradient", "scores", "train"),
    ("one", "LocalCode", "robust", "predict"),
    ("server", "NoisedUnifiedCode", "robust", "predict"),
    ("server", "TaskScores", "scores", "predict"),
    ("two", "LocalCode", "robust", "audit"),
    ("server", "NoisedUnifiedCode", "robust", "audit"),
]


@pytest.mark.parametrize(
    ("case", "place"),
    [
        (case, place) if place < 2 or case == "not a number" else pytest.param(case, place, marks=pytest.mark.slow)
        for place in range(len(TENSORS))
        for case in ARRAYS
    ],
)
def test_numbers_of_another_shape_or_none_at_all_are_refused(case: str, place: int) -> None:
    party, name, setting, stage = TENSORS[place]
    refused(Lie(party, name, with_field(values=ARRAYS[case])), setting=setting, stage=stage)


@pytest.mark.parametrize("place", [0, 2, 5, 7])
@pytest.mark.parametrize(
    "kind", mostly_slow([torch.float64, torch.int64, torch.bool, torch.uint8], torch.int64), ids=str
)
def test_numbers_of_another_kind_are_taken_as_numbers_or_refused(place: int, kind: torch.dtype) -> None:
    party, name, setting, stage = TENSORS[place]
    run = survived(Lie(party, name, with_field(values=lambda values: values.to(kind))), setting, stage)
    if run is not None:
        assert all(value.isfinite().all() for part in run.parts.values() for value in part.tensors.values())


HUGE = [place for place, (_, _, _, stage) in enumerate(TENSORS) if stage == "train"]


@pytest.mark.parametrize("size", mostly_slow([1e300, 3e38], 1e300))
@pytest.mark.parametrize("place", HUGE)
def test_numbers_far_out_of_range_never_break_anything_but_the_run(place: int, size: float) -> None:
    """Gradients are shortened, so that a run may survive; its weights are numbers then."""
    party, name, setting, stage = TENSORS[place]
    huge = with_field(values=lambda values: torch.full(values.shape, size, dtype=torch.float64))
    run = survived(Lie(party, name, huge), setting, stage)
    if run is not None:
        for who, part in run.parts.items():
            assert all(value.isfinite().all() for value in part.tensors.values()), who


PRESENCE: dict[str, Change] = {
    "whole numbers": lambda there: there.astype(np.int64),
    "numbers": lambda there: there.astype(np.float64),
    "bytes": lambda there: there.astype(np.uint8),
    "one more": lambda there: np.append(there, True),
    "nothing": lambda there: there[:0].copy(),
    "two columns": lambda there: np.stack([there, there], axis=1),
}


@pytest.mark.parametrize("stage", ["train", pytest.param("predict", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", PRESENCE)
def test_what_does_not_say_which_rows_are_known_is_refused(case: str, stage: str) -> None:
    lie = Lie("two", "LocalCode", with_field(is_there=PRESENCE[case]))
    refused(lie, words="'two' does not say", stage=stage)


def test_a_party_that_says_it_knows_nothing_does_no_harm() -> None:
    lie = Lie("two", "LocalCode", with_field(is_there=np.zeros_like))
    assert survived(lie) is not None


# Marks

MARKS = ["", "0" * 15, "0" * 17, "g" * 16, "A" * 16, "\x1b[2J" * 4, "m" * 2**20]


@pytest.mark.parametrize("name", mostly_slow(MARKS, *MARKS[::2]), ids=lambda name: repr(name[:16]))
def test_marks_that_are_none_are_refused(name: str) -> None:
    words = "marks the model" if len(name) < 99 and name.isprintable() else "refused Mark"
    refused(Lie("server", "Mark", with_field(name=name)), words=words)


def test_a_mark_that_differs_between_parties_is_found_when_the_model_is_used() -> None:
    lie = Lie("server", "Mark", with_field(name="0" * 16), 1)
    with lying(lie):
        run = simulated("robust")
    with pytest.raises(WrongContent, match="part of another model"):
        scored(run, frames(rows=24, seed=3))


@pytest.mark.parametrize("stage", ["predict", "audit"])
@pytest.mark.parametrize("party", ["one", "bank"])
def test_a_part_of_another_training_is_refused(party: str, stage: str) -> None:
    refused(Lie(party, "Offer", with_field(model="0" * 16)), words=f"'{party}' has a part of another", stage=stage)


@pytest.mark.parametrize("model", ["", "m" * 2**20, "\x1b[2J"], ids=["none", "long", "cursor"])
def test_names_of_models_that_are_none_are_refused_and_not_shown(model: str) -> None:
    refused(Lie("one", "Offer", with_field(model=model)), words="Offer" if model else "another model", stage="predict")


def test_who_had_columns_in_training_must_bring_them() -> None:
    refused(Lie("one", "Offer", with_field(has_columns=False)), words="needs the codes of one, two", stage="predict")


# The audit

COUNTABLE: dict[str, dict[str, Any]] = {
    "no attribute of this run": {"attributes": ("height",)},
    "an attribute that moves the cursor": {"attributes": ("\x1b[2J",)},
    "the same twice": {"attributes": ("gender", "gender"), "groups": (2, 2)},
    "a group count more": {"groups": (2, 2)},
    "no group count": {"groups": ()},
    "no group": {"groups": (0,)},
    "fewer than none": {"groups": (-1,)},
    "too many": {"groups": (2**40,)},
    "far too many": {"groups": (2**70,)},
    "many attributes": {"attributes": ("gender",) * 2**16, "groups": (2,) * 2**16},
}


@pytest.mark.parametrize("case", mostly_slow(COUNTABLE, *list(COUNTABLE)[::2]))
def test_groups_that_cannot_be_are_refused(case: str) -> None:
    refused(Lie("state", "Countable", with_field(**COUNTABLE[case])), words="'state' offers to count", stage="audit")


@pytest.mark.parametrize("setting", ["robust", "noisy counts"])
def test_groups_that_another_has_counted_by_are_refused(setting: str) -> None:
    lie = Lie("bureau", "Countable", with_field(attributes=("gender",)))
    refused(lie, words="'bureau' offers to count", setting=setting, stage="audit")


def test_a_count_that_is_not_wanted_after_all_ends_the_audit() -> None:
    refused(Lie("bank", "CountRequest", with_field(is_wanted=False), 2), OutOfStep, stage="audit")


def test_a_count_that_is_wanted_of_who_has_no_groups_does_no_harm() -> None:
    assert survived(Lie("bank", "CountRequest", with_field(is_wanted=False)), stage="audit") is not None


@pytest.mark.parametrize(("modulus", "kind"), [(0, KeyTooSmall), (-5, KeyTooSmall), (2**1023 + 2, KeyRefused)])
def test_keys_that_protect_nothing_are_refused(modulus: int, kind: type[ColonnadeError]) -> None:
    refused(Lie("bank", "PublicModulus", with_field(modulus=modulus)), kind, stage="audit")


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
        ("state", "ExactCounts", "robust"),
        pytest.param("state", "NoisyCounts", "noisy counts", marks=pytest.mark.slow),
    ],
)
def test_ciphertexts_of_another_layout_or_key_are_refused(party: str, name: str, setting: str, case: str) -> None:
    lie = Lie(party, name, with_field(values=LAYOUTS[case]))
    refused(lie, (CiphertextRefused, FrameRefused, WrongContent), setting=setting, stage="audit")


GIVEN: dict[str, Change] = {
    "whole numbers": lambda given: given.astype(np.int64),
    "one more": lambda given: np.append(given, True),
    "one less": lambda given: given[1:].copy(),
    "none": np.zeros_like,
    "a thousand": lambda given: np.ones(1000, bool),
    "two columns": lambda given: np.stack([given, given]),
}


@pytest.mark.parametrize("case", mostly_slow(GIVEN, "whole numbers", "one more"))
def test_what_does_not_say_which_groups_are_given_is_refused(case: str) -> None:
    refused(
        Lie("state", "ExactCounts", with_field(is_given=GIVEN[case])), (CiphertextRefused, WrongContent), stage="audit"
    )


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


OTHERS = ["age", "\x1b[2J", "height", "", "n" * 2**20]


@pytest.mark.parametrize("attribute", mostly_slow(OTHERS, *OTHERS[:2]), ids=lambda name: repr(name[:8]))
def test_results_on_what_the_sender_has_not_are_refused(attribute: str) -> None:
    lie = Lie("state", "AttackResult", with_field(attribute=attribute))
    words = "'state' tells of an attack" if len(attribute) < 99 and attribute.isprintable() else "refused AttackResult"
    refused(lie, words=words, stage="audit")


CODES: dict[str, dict[str, Any]] = {
    **{f"codes: {case}": {"unified": change} for case, change in ARRAYS.items() if case != "a column less"},
    "codes without columns": {"unified": lambda values: values[:, :0].clone()},
    "codes far out of range": {"unified": lambda values: torch.full(values.shape, 1e300, dtype=torch.float64)},
    "no protected codes": {"protected": ()},
    "one of them less": {"protected": lambda codes: codes[1:]},
    "one of them more": {"protected": lambda codes: (*codes, codes[0])},
    **{
        f"protected: {case}": {"protected": lambda codes, change=change: (change(codes[0]), *codes[1:])}
        for case, change in ARRAYS.items()
        if case != "a column less"
    },
}


@pytest.mark.parametrize("case", mostly_slow(CODES, *list(CODES)[::3]))
def test_codes_to_attack_of_another_form_are_refused(case: str) -> None:
    # To the bank, then to one, which has columns of its own.
    refused(Lie("server", "AttackCodes", with_field(**CODES[case]), 1), words="'one' got", stage="audit")


OF_PLAIN = [case for case in ARRAYS if case != "a column less"]


@pytest.mark.parametrize("case", mostly_slow(OF_PLAIN, *OF_PLAIN[:2]))
def test_codes_of_a_plain_model_of_another_form_are_refused(case: str) -> None:
    lie = Lie("server", "PlainCodes", with_field(values=ARRAYS[case]))
    refused(lie, words="'state' got", stage="audit")


def test_protected_codes_for_who_has_no_columns_are_refused() -> None:
    def added(honest: Any) -> Any:
        return type(honest)(honest.unified, (honest.unified,))

    refused(Lie("server", "AttackCodes", added, 3), words="protected codes", stage="audit")


# Order


def test_a_gradient_in_place_of_a_mark_is_out_of_step() -> None:
    lie = Lie("server", "Mark", lambda honest: local_gradient("feature_holder")(torch.zeros(2, 2)), 1)
    refused(lie, OutOfStep)


def test_a_mark_in_place_of_a_gradient_is_out_of_step() -> None:
    refused(Lie("server", "LocalGradient", lambda honest: mark("feature_holder")("0" * 16)), OutOfStep)


def test_a_gradient_of_the_task_in_place_of_a_discriminators_is_out_of_step() -> None:
    refused(Lie("state", "NoisedDiscriminatorGradient", lambda honest: TaskGradient(honest.values)), OutOfStep)
