"""A party that lies in federated transfer learning where no rule of a field sees it: refused by name, at once."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import gmpy2
import numpy as np
import pytest
from tests.adversary.hostile import Change, Lie, check_refused, other_key, same_key, with_field
from tests.unit.methods.ftl.worlds import SEED, frames, roles_of, settings, tables_of
from tests.worlds import integers_for_ciphertexts

import colonnade as cn
from colonnade.crypto import CipherArray
from colonnade.errors import (
    CiphertextRefused,
    ColonnadeError,
    KeyRefused,
    KeyTooSmall,
    OutOfStep,
    WrongContent,
)
from colonnade.messages import PLAIN, template_of
from colonnade.methods.ftl.messages import SourceSignals, TargetSignals, Verdict
from colonnade.session import Channel

WORLD: dict[str, Any] = {"shared": 43, "own": 6}
"""30 shared rows to train on."""
ROWS, WIDTH = 30, 3


@functools.cache
def trained(sources: int, task: str) -> cn.Run:
    with integers_for_ciphertexts():
        return simulated(frames(task, sources=sources, **WORLD), settings())


def simulated(found: Any, config: cn.FTL, **options: Any) -> cn.Run:
    return cn.simulate(config, tables_of(found), roles=roles_of(list(found)), seed=SEED, **options)


def refused(
    lie: Lie,
    kind: type[ColonnadeError] | tuple[type[ColonnadeError], ...],
    words: str = "",
    *,
    stage: str = "train",
    sources: int = 1,
    task: str = "binary",
    is_encrypted: bool = False,
    is_measured: bool = False,
    **changes: Any,
) -> None:
    """Let one party lie, and check what the honest one says about it."""
    found = frames(task, sources=sources, **WORLD)
    config = settings(**{"iterations": 2, "folds": 2, **changes})
    run = trained(sources, task) if stage == "predict" else None

    def play() -> None:
        if run is not None:
            run.predict({"shop0": tables_of(found)["shop0"]})
        else:
            simulated(found, config, stage=stage)

    with nullcontext() if is_encrypted else integers_for_ciphertexts():
        check_refused(play, lie, kind, words, seconds=30, is_measured=is_measured)


def test_an_encoder_with_more_layers_than_the_settings_have_is_refused() -> None:
    for party in ("bank0", "shop0"):
        refused(Lie(party, "LayerInputs", with_field(widths=(1, 1, 1))), CiphertextRefused)


def test_no_labelled_row_at_all_is_refused() -> None:
    refused(Lie("bank0", "LabelledRows", with_field(rows=np.zeros_like)), WrongContent, "names no labelled row")


# Ciphertexts


def numbers(of: Callable[[CipherArray], Any]) -> Change:
    def change(array: CipherArray) -> CipherArray:
        made = CipherArray.__new__(CipherArray)
        entries = [gmpy2.mpz(of(array)), *array.ciphertexts[1:]]
        made._set(array.layout, entries, array._fingerprint, array._width, array._checked_key)
        return made

    return change


LAYOUTS: dict[str, Change] = {
    "another key": other_key,
    "another scale": lambda array: same_key(array, fraction_bits=array.layout.fraction_bits + 1),
    "another bound": lambda array: same_key(array, bound=array.layout.bound - 1),
    "shares": lambda array: same_key(array, is_share=True),
}
SHAPES: dict[str, Change] = {
    "one row more": lambda array: same_key(array, shape=(array.shape[0] + 1, *array.shape[1:])),
    "nothing": lambda array: same_key(array, shape=(0, *array.shape[1:])),
}
ENTRIES: dict[str, Change] = {
    "zero": numbers(lambda array: 0),
    "one": numbers(lambda array: 1),
    "no randomness": numbers(lambda array: 1 + 5 * array.key.n),
    "the modulus": numbers(lambda array: array.key.n),
    "beyond the group": numbers(lambda array: array.key.square),
    "largest": numbers(lambda array: 2 ** (16 * array._width) - 1),
}
ARRAYS = [
    ("shop0", "TargetSignals", "codes"),
    ("shop0", "TargetSignals", "moment"),
    ("shop0", "TargetSignals", "remainder"),
    ("bank0", "SourceSignals", "rows"),
    ("bank0", "SourceSignals", "moment"),
    ("bank0", "MaskedEncoderGradient", "values"),
    ("shop0", "MaskedEncoderGradient", "values"),
    ("shop0", "CodesToScore", "values"),
    ("bank0", "MaskedScores", "values"),
]


@pytest.mark.parametrize(("party", "name", "field"), ARRAYS)
def test_ciphertexts_of_another_layout_or_key_are_refused(party: str, name: str, field: str) -> None:
    for case, change in LAYOUTS.items():
        if field in ("codes", "values") or case in ("another key", "another scale"):
            refused(Lie(party, name, with_field(**{field: change})), CiphertextRefused, iterations=1)
    for change in SHAPES.values():
        refused(Lie(party, name, with_field(**{field: change})), (CiphertextRefused, WrongContent), iterations=1)


@pytest.mark.parametrize(
    ("case", "party", "name", "field"),
    [*[(case, *ARRAYS[0]) for case in ENTRIES], *[("no randomness", *ARRAYS[place]) for place in (3, 5, 8)]],
)
def test_what_is_no_ciphertext_is_refused(case: str, party: str, name: str, field: str) -> None:
    lie = Lie(party, name, with_field(**{field: ENTRIES[case]}))
    refused(lie, CiphertextRefused, "It was refused", iterations=1, is_encrypted=True, labelled_rows=4, width=1)


@pytest.mark.slow
@pytest.mark.parametrize("party", ["bank0", "shop0"])
def test_ciphertexts_of_another_layout_are_refused_with_swapped_roles(party: str) -> None:
    for field in ("codes", "moment", "sums"):
        for change in (LAYOUTS["another key"], SHAPES["one row more"]):
            lie = Lie(party, "MirroredSignals", with_field(**{field: change}))
            refused(lie, (CiphertextRefused, WrongContent), stage="validate", iterations=1)


@pytest.mark.parametrize("party", ["bank0", "shop0"])
def test_keys_that_protect_nothing_are_refused(party: str) -> None:
    for modulus, kind in ((5, KeyTooSmall), (2**1023 + 2, KeyRefused)):
        refused(Lie(party, "PublicModulus", with_field(modulus=modulus)), kind)
        refused(Lie(party, "PublicModulus", with_field(modulus=modulus)), kind, stage="predict")


# What is opened


def ring(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    return with_field(values=change)


OPENED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "larger than the key": lambda values: np.full_like(values, 255),
    "something else": lambda values: np.random.default_rng(1).integers(0, 100, values.shape).astype(np.uint8),
    "nothing opened": np.zeros_like,
}


@pytest.mark.parametrize("case", OPENED)
@pytest.mark.parametrize(
    ("party", "name"),
    [
        ("shop0", "OpenedEncoderGradient"),
        pytest.param("bank0", "OpenedEncoderGradient", marks=pytest.mark.slow),
        pytest.param("shop0", "OpenedScores", marks=pytest.mark.slow),
    ],
)
def test_opened_values_of_another_form_are_refused(case: str, party: str, name: str) -> None:
    refused(Lie(party, name, ring(OPENED[case])), WrongContent, iterations=1)


# Order


def test_a_verdict_that_comes_too_early_is_out_of_step() -> None:
    lie = Lie("bank0", "SourceSignals", lambda honest: Verdict(True, True, False))
    refused(lie, OutOfStep, "expected SourceSignals from 'bank0' at step 1 but got Verdict")


class InTheClear(Lie):
    """A lie that crosses as it does in a run without encryption."""

    def send(self, channel: Channel, message: Any) -> Any:
        said = super().send(channel, message)
        if said is not message:
            every = template_of(said).every_declaration()
            channel._sends[type(said)] = next(one for one in every if one.protection is PLAIN)
        return said


def test_codes_in_the_clear_are_out_of_step_in_an_encrypted_run() -> None:
    clear = TargetSignals(np.zeros((ROWS, WIDTH)), np.zeros(6), np.zeros(1))
    refused(InTheClear("shop0", "TargetSignals", lambda honest: clear), OutOfStep, "may not send here")
    back = SourceSignals(np.zeros((ROWS, WIDTH)), np.zeros(6))
    refused(InTheClear("bank0", "SourceSignals", lambda honest: back), OutOfStep, "may not send here")


# The regression that takes over

DEEP = "[" * 100_000
MODELS: dict[str, dict[str, Any]] = {
    "no JSON": {"labels": "{"},
    "nested": {"labels": DEEP},
    "one class": {"labels": lambda text: json.dumps({**json.loads(text), "classes": [1]})},
    "classes that are lists": {"labels": lambda text: json.dumps({**json.loads(text), "classes": [[1], [2]]})},
}


@pytest.mark.parametrize("case", MODELS)
def test_a_model_that_makes_no_sense_is_refused(case: str) -> None:
    lie = Lie("bank0", "OwnLabels", with_field(**MODELS[case]))
    refused(lie, WrongContent, safeguard=True, margin=1.0, labelled_rows=8, iterations=1)


@pytest.mark.parametrize("case", OPENED)
def test_coefficients_of_another_form_are_refused(case: str) -> None:
    lie = Lie("bank0", "OpenedFit", ring(OPENED[case]))
    refused(lie, WrongContent, safeguard=True, margin=1.0, labelled_rows=8, iterations=1)


@pytest.mark.parametrize(
    ("party", "name"), [("bank0", "LabelsToFit"), ("shop0", "ScoresAlone"), ("shop0", "MaskedFit")]
)
def test_labels_and_scores_of_another_layout_or_key_are_refused(party: str, name: str) -> None:
    for change in (*LAYOUTS.values(), SHAPES["nothing"]):
        lie = Lie(party, name, with_field(values=change))
        refused(lie, (CiphertextRefused, WrongContent), safeguard=True, margin=1.0, labelled_rows=8, iterations=1)


# Prediction

ASKED: dict[str, dict[str, Any]] = {
    "2^30": {"count": 2**30},
    "more than are sent": {"count": 100},
    "fewer than are sent": {"count": 5},
    "itself among the others": {"others": ("bank0",)},
    "a sum of one": {"is_summed": True},
}


@pytest.mark.parametrize("case", ASKED)
def test_questions_that_make_no_sense_are_refused(case: str) -> None:
    refused(Lie("shop0", "RowsToScore", with_field(**ASKED[case])), WrongContent, stage="predict", is_measured=True)


def test_a_collector_that_is_not_asked_is_refused() -> None:
    lie = Lie("shop0", "RowsToScore", with_field(collector="bank1", others=()))
    refused(lie, WrongContent, "no source of this prediction", stage="predict", sources=2)


@pytest.mark.parametrize("case", OPENED)
@pytest.mark.parametrize(
    ("party", "name"), [("shop0", "AnswerParts"), pytest.param("bank1", "ScoreParts", marks=pytest.mark.slow)]
)
def test_parts_of_a_sum_of_another_form_are_refused(case: str, party: str, name: str) -> None:
    refused(Lie(party, name, ring(OPENED[case])), WrongContent, stage="predict", sources=2)


def classes(**changes: Any) -> dict[str, Any]:
    return {"labels": lambda text: json.dumps({**json.loads(text), **changes})}


ANSWERS: dict[str, dict[str, Any]] = {
    "beyond the classes": {"values": lambda values: values + 2},
    "below the classes": {"values": lambda values: values - 5},
    "floats": {"values": lambda values: values.astype(np.float64)},
    "small integers": {"values": lambda values: values.astype(np.int8)},
    "truths": {"values": lambda values: values > 0},
    "no JSON": {"labels": "{"},
    "an empty text": {"labels": ""},
    "a list": {"labels": "[]"},
    "a number": {"labels": "17"},
    "null": {"labels": "null"},
    "nested": {"labels": DEEP},
    "nested inside": {"labels": '{"task":' * 50_000},
    "no classes": {"labels": '{"task": "binary"}'},
    "classes that are a number": classes(classes=5),
    "classes that are null": classes(classes=None),
    "an unknown task": classes(task="survival"),
    "a task that is a list": classes(task=["binary"]),
    "another task": classes(task="regression"),
    "empty classes": classes(classes=[]),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_answers_that_make_no_sense_are_refused(case: str) -> None:
    refused(Lie("bank0", "PredictedLabels", with_field(**ANSWERS[case])), WrongContent, stage="predict")


# Validation


@pytest.mark.slow
def test_folds_without_a_labelled_row_are_refused() -> None:
    refused(Lie("bank0", "FoldRows", with_field(rows=np.zeros_like)), WrongContent, stage="validate")


@pytest.mark.slow
def test_folds_of_rows_that_have_no_label_are_refused() -> None:
    lie = Lie("bank0", "FoldRows", with_field(rows=np.ones_like))
    refused(lie, WrongContent, stage="validate", labelled_rows=12)


@pytest.mark.parametrize(
    "count", [2**30, pytest.param(5, marks=pytest.mark.slow), pytest.param(100, marks=pytest.mark.slow)]
)
def test_other_counts_than_are_sent_are_refused_without_memory_for_them(count: int) -> None:
    lie = Lie("shop0", "RowCount", with_field(count=count))
    refused(lie, WrongContent, stage="validate", iterations=1, is_measured=True)


@pytest.mark.parametrize(
    "case", ["three classes", "many classes", "nested", *[pytest.param(one, marks=pytest.mark.slow) for one in ANSWERS]]
)
def test_labels_given_in_validation_that_make_no_sense_are_refused(case: str) -> None:
    more = {"three classes": {"task": "multiclass", "classes": [0, 1, 2]}}
    more["many classes"] = {"task": "multiclass", "classes": list(range(100_000))}
    fields = classes(**more[case]) if case in more else ANSWERS[case]
    lie = Lie("bank0", "PredictedLabels", with_field(**fields))
    refused(lie, WrongContent, stage="validate", iterations=1, is_measured=case in more)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["beyond the classes", "below the classes", "floats", "truths"])
def test_labels_that_come_back_in_validation_and_make_no_sense_are_refused(case: str) -> None:
    lie = Lie("shop0", "PredictedLabels", with_field(**ANSWERS[case]))
    refused(lie, WrongContent, stage="validate", iterations=1)
