"""What each party receives: kinds, order, number and shapes, and that what is masked looks like noise."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from tests.unit.methods.prada.worlds import HOLDER, frames, run_of, settings, tables_of
from tests.worlds import name_of, received, view

import colonnade as cn
from colonnade.crypto import CipherArray, PrivateKey, PublicKey, ring_integers
from colonnade.errors import LeakRefused
from colonnade.messages import NOISED, PLAIN, Warns, open_frame
from colonnade.methods.prada import METHOD, school
from colonnade.methods.prada.head import head_format
from colonnade.session import RunPlan

SOURCE_BATCHES, EPOCHS, FINE_EPOCHS = 3, 2, 3
GRADIENTS = {"TrainedGradients", "GroupGradients"}


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return PrivateKey.generate("insecure_test")


@pytest.fixture(scope="module")
def run(key: PrivateKey) -> cn.Run:
    """Return an encrypted run with frozen groups, whose key the test knows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(school, "make_key", lambda session, size: key)
        return run_of(frames(), settings(epochs=EPOCHS, fine_epochs=FINE_EPOCHS), launch=cn.Launch(keep_views=True))


def names(run: cn.Run, party: str, sender: str) -> list[str]:
    return [name_of(one) for origin, one in view(run, party) if origin == sender]


def test_messages_are_those_of_the_sheet_in_kind_order_and_number(run: cn.Run) -> None:
    """Checks 5 and 11: four messages per trained batch; frozen, four and once more the inputs in the first epoch."""
    epoch = ["TrainedInputs", "OpenedLogits"] * SOURCE_BATCHES + ["ShareUpdate", "SealedInputs", "OpenedLogits"]
    fine_batches = len(received(run, "bank0", "ShareUpdate")) // FINE_EPOCHS
    assert names(run, "sister0", HOLDER) == [
        "PublicModulus",
        "GroupNames",
        "OpeningShare",
        *epoch * EPOCHS,
        *["Turn"] * FINE_EPOCHS,
    ]
    taught = ["MaskedLogits", "TrainedGradients"] * SOURCE_BATCHES + ["MaskedLogits", "EpochVerdict"]
    assert names(run, HOLDER, "sister0") == ["LabelledRows", *taught * EPOCHS, *["TurnSeen"] * FINE_EPOCHS]
    first = ["SealedInputs", "OpenedLogits", "ShareUpdate"] * fine_batches + ["SealedInputs", "OpenedLogits"]
    later = ["OpenedLogits", "ShareUpdate"] * fine_batches + ["SealedInputs", "OpenedLogits"]
    assert names(run, "bank0", HOLDER) == [
        "PublicModulus",
        "GroupNames",
        *["Turn"] * EPOCHS,
        "OpeningShare",
        *first,
        *later * (FINE_EPOCHS - 1),
        "SealedInputs",
        "OpenedLogits",
    ]
    taught = ["MaskedLogits", "MaskedGradient"] * fine_batches + ["MaskedLogits", "EpochVerdict"]
    assert names(run, HOLDER, "bank0") == [
        "LabelledRows",
        *["TurnSeen"] * EPOCHS,
        *taught * FINE_EPOCHS,
        "MaskedLogits",
        "Chosen",
    ]
    assert {sender for sender, _ in view(run, "bank0")} == {HOLDER}
    assert {sender for sender, _ in view(run, "sister0")} == {HOLDER}, "banks never speak with each other"


def test_arrays_have_the_shapes_that_both_sides_derive(run: cn.Run) -> None:
    """Check 5: nothing but the layouts that follow from sizes and settings."""
    config = settings(epochs=EPOCHS, fine_epochs=FINE_EPOCHS)
    format = head_format(config, 3, 1)
    for one in received(run, "sister0", "TrainedInputs"):
        rows = one.columns.shape[0]
        assert (one.columns.layout, one.rows.layout, one.shares.layout) == (
            format.columns(rows),
            format.rows(rows),
            format.shares(),
        )
    for one in received(run, HOLDER, "TrainedGradients"):
        assert one.weights.shape == (1, 3)
        assert one.inputs.layout == format.input_gradient(one.inputs.shape[0])
    assert received(run, "sister0", "TrainedInputs")[0].update is None
    inputs = received(run, "bank0", "SealedInputs")[0].columns.shape[1]
    assert all(one.values.shape == (1, inputs) for one in received(run, HOLDER, "MaskedGradient"))
    for sender, one in view(run, HOLDER):
        if name_of(one) == "MaskedLogits":
            assert one.values.shape[1] == 1, sender


def low_bytes(integers: list[int]) -> np.ndarray:
    return np.frombuffer(b"".join(int(one).to_bytes(256, "little")[:96] for one in integers), dtype=np.uint8)


def test_what_the_feature_holder_can_decrypt_is_uniform(run: cn.Run, key: PrivateKey) -> None:
    """Check 5: masked scores and gradients of weights, of both banks, by bytes and by their top bits."""
    arrays: list[CipherArray] = [one.values for one in received(run, HOLDER, "MaskedLogits")]
    arrays += [one.values for one in received(run, HOLDER, "MaskedGradient")]
    arrays += [one.weights for one in received(run, HOLDER, "TrainedGradients")]
    found = [int(one) for array in arrays for one in key.decrypt_integers(array.ciphertexts)]
    assert len(found) > 40
    assert len(set(found)) == len(found)
    assert stats.chisquare(np.bincount(low_bytes(found), minlength=256)).pvalue > 1e-3
    assert stats.chisquare(np.bincount([16 * one // int(key.n) for one in found], minlength=16)).pvalue > 1e-4


def test_what_is_opened_for_banks_is_uniform_to_everybody_else(run: cn.Run, key: PrivateKey) -> None:
    """Check 5: the opened scores and share updates, which each bank's own mask hides on the way."""
    public = PublicKey(int(key.n))
    found = [
        int(one)
        for party in ("bank0", "sister0")
        for name in ("OpenedLogits", "ShareUpdate")
        for message in received(run, party, name)
        for one in ring_integers(message.values, public, len(message.values))
    ]
    updates = [one.update for one in received(run, "sister0", "TrainedInputs") if one.update is not None]
    found += [int(one) for update in updates for one in ring_integers(update, public, len(update))]
    assert stats.chisquare(np.bincount(low_bytes(found), minlength=256)).pvalue > 1e-3


def arrays_of(message: Any) -> list[CipherArray]:
    return [value for value in vars(message).values() if isinstance(value, CipherArray)]


def test_the_same_run_twice_has_no_ciphertext_and_no_masked_value_twice(run: cn.Run) -> None:
    """Check 6: identical inputs give different replies."""
    again = run_of(frames(), settings(epochs=EPOCHS, fine_epochs=FINE_EPOCHS), launch=cn.Launch(keep_views=True))
    seen: Counter[bytes] = Counter()
    for one in (run, again):
        for party in (HOLDER, "bank0", "sister0"):
            for _, message in view(one, party):
                seen.update(bytes(str(cipher), "ascii") for array in arrays_of(message) for cipher in array.ciphertexts)
                if name_of(message) in ("OpenedLogits", "ShareUpdate"):
                    seen.update(bytes(row) for row in np.asarray(message.values))
    assert max(seen.values()) == 1


# Frozen groups: no trace of the target's labels


def flipped(found: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the same tables with every label of the target exchanged."""
    bank = found["bank0"].copy()
    bank["y"] = 1.0 - bank["y"]
    return {**found, "bank0": bank}


def shape_of_view(run: cn.Run) -> list[tuple[str, str, Any]]:
    """Return the sender, kind and shapes, or content, of all that the feature holder received; marks are random."""
    return [
        (sender, name_of(one), [array.shape for array in arrays_of(one)] or {**vars(one), "mark": ""})
        for sender, one in view(run, HOLDER)
    ]


def sizes(run: cn.Run) -> list[tuple[str, int]]:
    """Return sender and length of every frame of the method that the feature holder received."""
    known = {one.schema for one in run.method.declarations}
    return [(sender, len(frame)) for sender, frame in run.views[HOLDER] if open_frame(frame)[0].schema in known]


def test_frozen_groups_get_no_gradient_and_other_labels_change_nothing_in_the_clear(run: cn.Run) -> None:
    """Check 7. Kinds, number and sizes are the same, all that is not masked is equal, and the rest is uniform (above).

    For this compare must be "none" and fine_patience 0, as here: a choice between models and a stop say something
    about validation labels.
    """
    plan = run.plan
    declared = {one.name for one in METHOD.declarations_in(plan) if one.sender == "target"}
    assert not declared & GRADIENTS
    assert not set(names(run, HOLDER, "bank0")) & GRADIENTS
    other = run_of(
        flipped(frames()), settings(epochs=EPOCHS, fine_epochs=FINE_EPOCHS), launch=cn.Launch(keep_views=True)
    )

    def without_masked(one: cn.Run) -> list[Any]:
        found = [(sender, name, about) for sender, name, about in shape_of_view(one) if sender == "bank0"]
        return [str(entry) for entry in found]

    assert without_masked(run) == without_masked(other)
    assert sizes(run) == sizes(other)
    clear = {name_of(one) for sender, one in view(run, HOLDER) if sender == "bank0" and not arrays_of(one)}
    assert clear == {"LabelledRows", "TurnSeen", "EpochVerdict", "Chosen"}
    assert {one.model for one in received(run, HOLDER, "Chosen")} == {"transfer"}


@pytest.mark.parametrize(
    ("changes", "sent"),
    [
        ({"tune": "nothing"}, {}),
        ({"tune": "nothing", "defence": "marvell"}, {}),
        ({"tune": "all"}, {"TrainedGradients": PLAIN}),
        ({"tune": "unseen", "defence": "marvell"}, {"TrainedGradients": NOISED}),
        ({"tune": "nothing", "compare": "vfl"}, {"TrainedGradients": PLAIN}),
        ({"tune": "nothing", "protection": "none"}, {}),
        ({"tune": "all", "protection": "none", "defence": "coae"}, {"GroupGradients": PLAIN}),
        ({"tune": "all", "protection": "none", "defence": "marvell+coae"}, {"GroupGradients": NOISED}),
    ],
)
def test_declarations_say_when_the_targets_labels_leave_a_trace(changes: dict[str, Any], sent: dict[str, Any]) -> None:
    """Check 7: what is not declared cannot be sent, so that the consent screen is right."""
    from colonnade.settings import config_to_json

    roles = {"feature_holder": ("data",), "target": ("bank",), "source": ("sister",)}
    config = config_to_json(settings(**changes))
    plan = RunPlan(name="run", method="prada", roles=roles, seed=1, config=config)
    found = [one for one in METHOD.declarations_in(plan) if one.sender == "target" and one.name in GRADIENTS]
    assert {one.name: one.protection for one in found} == sent
    assert {one.warns for one in found} == {Warns.LABELS if PLAIN in sent.values() else Warns.NOTHING for _ in sent}


def test_predictions_take_three_kinds_of_messages_and_tell_the_feature_holder_nothing(
    run: cn.Run, key: PrivateKey
) -> None:
    tables = {party: one for party, one in tables_of(frames()).items() if party != "sister0"}
    scores = run.predict(tables)
    assert len(scores) == 48
    assert scores["probability_1"].between(0, 1).all()


def test_explanations_need_consent(run: cn.Run) -> None:
    tables = {party: one for party, one in tables_of(frames()).items() if party != "sister0"}
    roles = {"feature_holder": HOLDER, "target": "bank0"}
    config = settings(epochs=EPOCHS, fine_epochs=FINE_EPOCHS)
    with pytest.raises(LeakRefused, match="explanations = true"):
        cn.simulate(config, tables, roles=roles, seed=11, stage="explain", after=run)
