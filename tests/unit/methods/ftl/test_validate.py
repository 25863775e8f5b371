"""Transfer cross-validation: each label is left out once, and a left-out label has no say in its fold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.unit.methods.ftl.worlds import assert_same_parameters, frames, modulus_of, run_of, settings
from tests.worlds import hidden, integers_for_ciphertexts, received

import colonnade as cn
from colonnade.errors import ConfigError
from colonnade.methods.ftl import validate

FOLDS, STEPS = 3, 3


@pytest.fixture(autouse=True)
def _without_encryption() -> Iterator[None]:
    with integers_for_ciphertexts():
        yield


def validation(found: dict[str, Any], **changes: Any) -> cn.Run:
    facts = {"folds": FOLDS, "iterations": STEPS, "tolerance": 0.0, **changes}
    return run_of(found, settings(**facts), stage="validate", launch=cn.Launch(keep_views=True))


def about(run: cn.Run, target: str = "shop0") -> dict[str, Any]:
    return dict(run.findings[f"validation of {target}"].values)


@pytest.mark.parametrize(
    ("world", "changes"),
    [
        pytest.param({}, {}, marks=pytest.mark.slow),
        ({}, {"hidden": (3,), "alignment": "dot", "loss": "squared"}),
        ({"task": "multiclass"}, {"hidden": (2,)}),
        ({"task": "regression"}, {"labelled_rows": 30}),
        pytest.param({}, {"batch_size": 24}, marks=pytest.mark.slow),
    ],
)
def test_encrypted_validation_finds_what_the_plain_one_finds(world: dict[str, Any], changes: dict[str, Any]) -> None:
    found = frames(**world)
    sealed, plain = (about(validation(found, protection=one, **changes)) for one in ("paillier", "none"))
    assert sealed.keys() == plain.keys()
    for name, folds in sealed["folds"].items():
        assert len(folds) == FOLDS
        # Where a number is rounded to a sixteenth or a class, what is nearly equal may differ in a row or so.
        assert np.allclose(folds, plain["folds"][name], atol=0.02), name
        assert abs(sealed["means"][name] - np.mean(folds)) < 1e-12
        assert abs(sealed["deviations"][name] - np.std(folds, ddof=1)) < 1e-12
    chosen = sealed["means"]["cross-validation"] >= sealed["means"]["self-learning"]
    assert sealed["chosen"] == ("transfer" if chosen else "self-learning")


def test_codes_of_both_passes_are_the_same_in_the_clear_and_encrypted() -> None:
    """What crosses in the swapped pass depends on all of the first one."""
    found = frames()
    sealed, plain = validation(found, hidden=(3,)), validation(found, hidden=(3,), protection="none")
    modulus = modulus_of(sealed, "bank0")
    ours = [hidden(one.codes, modulus) / 2**32 for one in received(sealed, "shop0", "MirroredSignals")]
    theirs = [one.codes for one in received(plain, "shop0", "MirroredSignals")]
    assert len(ours) == len(theirs) == FOLDS * STEPS
    for one, other in zip(ours, theirs, strict=True):
        assert np.abs(one.astype(float) - other).max() < 1e-6
    assert_same_parameters(sealed, plain)


@pytest.mark.parametrize("labelled", [0, 20])
def test_every_labelled_row_is_left_out_exactly_once(labelled: int) -> None:
    found = frames()
    run = validation(found, labelled_rows=labelled)
    every = [one.rows for one in received(run, "shop0", "LabelledRows")]
    folds = received(run, "shop0", "FoldRows")
    assert len(every) == len(folds) == FOLDS
    for one in every[1:]:
        assert (one == every[0]).all()
    assert every[0].sum() == (labelled or 50)
    left = np.array([one & ~fold.rows for one, fold in zip(every, folds, strict=True)])
    assert (left.sum(axis=0) == every[0]).all()
    # Of the source's 91 rows, 21 are held out; all others are left out once.
    assert sum(70 - fold.count for fold in folds) == 70
    assert max(fold.count for fold in folds) - min(fold.count for fold in folds) <= 1


def test_folds_spread_classes_evenly() -> None:
    class Rows:
        class label_encoder:  # noqa: N801
            task = "binary"

        targets = np.where(np.arange(100) < 30, 1.0, -1.0)[:, None]
        used = 90
        positions = np.arange(100)

    found = validate._folds(Rows(), 4, 3)  # type: ignore[arg-type]
    assert (found[90:] == -1).all()
    for fold in range(4):
        members = np.flatnonzero(found == fold)
        assert len(members) in (22, 23)
        assert (members < 30).sum() in (7, 8)


def test_labels_of_a_fold_have_no_say_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that crosses in a fold stays the same when the labels of its left-out rows are turned round."""

    def fixed(rows: Any, folds: int, seed: int) -> np.ndarray:
        made = np.arange(len(rows.positions)) % folds
        made[rows.used :] = -1
        seen.append((rows.positions, made))
        return made

    seen: list[tuple[np.ndarray, np.ndarray]] = []
    monkeypatch.setattr(validate, "_folds", fixed)
    found = frames()
    before = validation(found, hidden=(2,))
    positions, folds = seen[0]
    bank = found["bank0"].copy()
    turned = positions[folds == 1]
    column = bank.columns.get_loc("y")
    bank.iloc[turned, column] = 1 - bank.iloc[turned, column]
    after = validation({**found, "bank0": bank}, hidden=(2,))

    def crossed(run: cn.Run, name: str, field: str) -> list[Any]:
        modulus = modulus_of(run, "bank0")
        return [hidden(getattr(one, field), modulus).tolist() for one in received(run, "shop0", name)]

    for name, fields in (("SourceSignals", ("rows", "moment")), ("MirroredSignals", ("codes", "moment", "sums"))):
        for field in fields:
            one, two = crossed(before, name, field), crossed(after, name, field)
            in_fold = slice(STEPS, 2 * STEPS)
            assert one[in_fold] == two[in_fold], name
            assert one[:STEPS] != two[:STEPS], "the labels matter elsewhere"
    labels = [received(run, "shop0", "PredictedLabels")[1].values.tolist() for run in (before, after)]
    assert labels[0] == labels[1]
    assert before.findings["validation of shop0"].values != after.findings["validation of shop0"].values


def test_several_targets_are_validated_one_after_another() -> None:
    run = validation(frames(targets=2))
    assert set(run.findings) == {"validation of shop0", "validation of shop1"}
    run.verify()


def test_several_sources_are_validated_one_after_another() -> None:
    run = validation(frames(sources=2))
    assert len(run.findings) == 2
    run.verify()


def test_a_fold_without_labelled_rows_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no labelled shared row"):
        validation(frames(), labelled_rows=2, folds=5)
