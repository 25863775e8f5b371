"""A party that lies in PrADA: each case is refused with a sentence, at once, without much memory."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.adversary.hostile import Change, Lie, check_refused, other_key, same_key, with_field
from tests.unit.methods.prada.worlds import HOLDER, PLAIN_SPLIT, SEED, frames, roles_of, settings, tables_of
from tests.worlds import integers_for_ciphertexts

import colonnade as cn
from colonnade.errors import (
    CiphertextRefused,
    ColonnadeError,
    ConfigError,
    FrameRefused,
    KeyRefused,
    KeyTooSmall,
    OutOfStep,
    WrongContent,
)
from colonnade.exchanges.epochs import EpochVerdict
from colonnade.exchanges.secure_linear import TrainedInputs
from colonnade.methods.prada import shift
from colonnade.methods.prada.messages import MARK_BYTES, GroupGradients
from colonnade.session import Channel, derive_seed

WORLD: dict[str, Any] = {"source_rows": 24, "target_rows": 24, "labelled": 20}
CLEAR: dict[str, Any] = {"protection": "none"}


@pytest.fixture(autouse=True, scope="module")
def _without_pictures() -> Iterator[None]:
    """Nothing here is about how far domains lie apart."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shift, "proxy_distance", lambda source, target, seed: 0.0)
        yield


def config_with(**changes: Any) -> cn.PrADA:
    return settings(**{"epochs": 1, "fine_epochs": 1, "batch_size": 10, "explanations": True, **changes})


def simulated(config: cn.PrADA, **options: Any) -> cn.Run:
    found = frames(**WORLD)
    options = {"evaluate": PLAIN_SPLIT, **options}
    return cn.simulate(config, tables_of(found), roles=roles_of(list(found)), seed=SEED, **options)


@functools.cache
def trained(protection: str) -> cn.Run:
    with integers_for_ciphertexts():
        return simulated(config_with(protection=protection))


def refused(
    lie: Lie,
    kind: type[ColonnadeError] | tuple[type[ColonnadeError], ...],
    words: str = "",
    *,
    stage: str = "train",
    is_measured: bool = False,
    **changes: Any,
) -> None:
    """Let one party lie, and check what the honest one says about it."""
    config = config_with(**changes)
    tables = {party: one for party, one in tables_of(frames(**WORLD)).items() if party != "sister0"}
    earlier = trained(config.protection) if stage in ("predict", "explain") else None

    def play() -> None:
        if stage == "predict" and earlier is not None:
            earlier.predict(tables)
        elif stage == "explain":
            roles = roles_of(list(tables))
            cn.simulate(config, tables, roles=roles, seed=SEED, stage="explain", after=earlier)
        else:
            simulated(config, stage=stage)

    with integers_for_ciphertexts():
        check_refused(play, lie, kind, words, seconds=60, is_measured=is_measured)


# What is announced


def test_new_categories_of_groups_that_do_not_exist_are_refused() -> None:
    refused(Lie(HOLDER, "GroupNames", with_field(new=("z",))), WrongContent, "does not have", **CLEAR, novelties=1)


def test_labelled_rows_that_are_all_held_out_are_refused() -> None:
    """Both sides know which rows train; a bank that has none of them cannot learn."""

    def held_out(rows: np.ndarray) -> np.ndarray:
        order = np.random.Generator(np.random.PCG64(derive_seed(SEED, "split"))).permutation(24)
        return np.intersect1d(rows, order[: round(24 * 0.2) + round(24 * 0.1)])

    refused(Lie("bank0", "LabelledRows", with_field(rows=held_out)), WrongContent, "labelled training row", **CLEAR)


def test_keys_that_protect_nothing_are_refused() -> None:
    for modulus, kind in ((5, KeyTooSmall), (2**1023 + 2, KeyRefused)):
        refused(Lie(HOLDER, "PublicModulus", with_field(modulus=modulus)), kind)
    refused(Lie(HOLDER, "PublicModulus", with_field(modulus=5)), KeyTooSmall, stage="predict")


# Shares, ciphertexts, and what is opened


LAYOUTS: dict[str, Change] = {
    "another key": other_key,
    "one row more": lambda array: same_key(array, shape=(array.shape[0] + 1, *array.shape[1:])),
    "another scale": lambda array: same_key(array, fraction_bits=array.layout.fraction_bits + 1),
    "another bound": lambda array: same_key(array, bound=array.layout.bound * 2),
}
ARRAYS: list[tuple[str, str, str, dict[str, Any]]] = [
    (HOLDER, "TrainedInputs", "columns", {}),
    (HOLDER, "TrainedInputs", "rows", {}),
    (HOLDER, "TrainedInputs", "shares", {}),
    ("sister0", "MaskedLogits", "values", {}),
    ("sister0", "TrainedGradients", "weights", {}),
    ("sister0", "TrainedGradients", "inputs", {}),
    ("sister0", "TrainedGradients", "inputs", {"defence": "marvell"}),
    (HOLDER, "SealedInputs", "columns", {}),
    ("bank0", "MaskedGradient", "values", {}),
    (HOLDER, "SealedInputs", "columns", {"stage": "predict"}),
    ("bank0", "MaskedLogits", "values", {"stage": "predict"}),
    (HOLDER, "SealedInputs", "columns", {"stage": "explain"}),
    ("bank0", "MaskedContributions", "values", {"stage": "explain"}),
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
    party, name, field, options = ARRAYS[place]
    # With another bound as many numbers may need another count of ciphertexts, and then already the frame is refused.
    kinds = {"another bound": (CiphertextRefused, FrameRefused), "one row more": (WrongContent,)}
    refused(Lie(party, name, with_field(**{field: LAYOUTS[case]})), kinds.get(case, CiphertextRefused), **options)


def test_inputs_packed_for_another_use_are_refused() -> None:
    refused(Lie(HOLDER, "SealedInputs", with_field(rows=lambda rows: None), place=1), WrongContent, "another use")


def test_share_updates_where_none_is_due_or_none_where_one_is_are_refused() -> None:
    ring = np.zeros((1, 128), np.uint8)
    refused(Lie(HOLDER, "TrainedInputs", with_field(update=ring)), WrongContent, "none was due")
    refused(Lie(HOLDER, "TrainedInputs", with_field(update=None), place=1), WrongContent, "none where one was")


OPENED: dict[str, Change] = {
    "larger than the key": lambda values: np.full_like(values, 255),
    "something else": lambda values: np.random.default_rng(1).integers(0, 100, values.shape).astype(np.uint8),
}
OPENINGS = [
    ("OpenedLogits", {}),
    ("ShareUpdate", {}),
    ("OpenedLogits", {"stage": "predict"}),
    ("OpenedContributions", {"stage": "explain"}),
]


@pytest.mark.parametrize(
    ("case", "place"),
    [
        (case, place) if place == 0 or case == "something else" else pytest.param(case, place, marks=pytest.mark.slow)
        for place in range(len(OPENINGS))
        for case in OPENED
    ],
)
def test_opened_values_that_are_something_else_are_refused(case: str, place: int) -> None:
    name, options = OPENINGS[place]
    refused(Lie(HOLDER, name, with_field(values=OPENED[case])), WrongContent, **options)


# Whose turn it is, and when it ends


def test_a_turn_that_is_never_over_is_refused() -> None:
    """The same step again and again would keep a bank busy for ever, with a checkpoint each time."""

    class Again(Lie):
        def send(self, channel: Channel, message: Any) -> Any:
            said = super().send(channel, message)
            if said is not message:
                Channel.send(channel, said)
            return said

    refused(Again(HOLDER, "Turn", with_field(is_over=False)), WrongContent, "step is", **CLEAR)


def test_a_turn_without_end_is_out_of_step_when_the_next_message_comes() -> None:
    refused(Lie(HOLDER, "Turn", with_field(is_over=False)), OutOfStep, "expected Turn", **CLEAR)


ENDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "never the last": ({"is_last": False}, {}),
    "not the best though nothing was compared": ({"is_best": False}, {}),
    "the last too early": ({"is_last": True}, {"epochs": 2, "fine_epochs": 2}),
    "never the last, with patience": ({"is_last": False}, {"patience": 1, "fine_patience": 1}),
}


@pytest.mark.parametrize("case", ENDS)
@pytest.mark.parametrize("party", ["sister0", pytest.param("bank0", marks=pytest.mark.slow)])
def test_epochs_that_end_as_they_cannot_are_refused(case: str, party: str) -> None:
    fields, changes = ENDS[case]
    refused(Lie(party, "EpochVerdict", with_field(**fields)), WrongContent, **CLEAR, **changes)


@pytest.mark.parametrize(
    ("model", "compare"),
    [
        pytest.param("vfl", "local", marks=pytest.mark.slow),
        ("local", "none"),
        ("vfl", "none"),
    ],
)
def test_a_choice_that_does_not_exist_is_refused(model: str, compare: str) -> None:
    refused(Lie("bank0", "Chosen", with_field(model=model)), WrongContent, "model", **CLEAR, compare=compare)


def test_a_mark_of_another_training_is_refused() -> None:
    lie = Lie("bank0", "ModelMark", with_field(mark="0" * 2 * MARK_BYTES))
    refused(lie, ConfigError, "another training", stage="predict", **CLEAR)


# Order


def test_gradients_in_the_clear_are_out_of_step_in_an_encrypted_run() -> None:
    clear = GroupGradients(np.zeros((10, 3)))
    refused(Lie("sister0", "TrainedGradients", lambda honest: clear), OutOfStep, "may not send here")


def test_a_frozen_target_cannot_be_made_to_take_trained_inputs() -> None:
    """A feature holder that asks for gradients where none are agreed gets none, whatever it sends."""

    def change(honest: Any) -> Any:
        return TrainedInputs(honest.columns, honest.rows, honest.columns, None)

    refused(Lie(HOLDER, "SealedInputs", change, place=1), OutOfStep, "may not send here")


def test_an_end_that_comes_too_early_is_out_of_step() -> None:
    end = EpochVerdict(True, True)
    refused(Lie("sister0", "GroupGradients", lambda honest: end), OutOfStep, "EpochVerdict", **CLEAR)
