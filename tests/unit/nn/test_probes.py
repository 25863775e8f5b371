"""Attackers on frozen representations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from colonnade.errors import ConfigError, OutOfRange
from colonnade.metrics import area_under_roc
from colonnade.nn import ATTACKS, Attack, attack, attack_value

ROWS, COLUMNS = 1200, 12


def planted(seed: int, *, shift: float, scale: float = 1.0, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return codes whose last column, of this scale, moves with the bit; the others are noise."""
    generator = np.random.default_rng(seed)
    bits = generator.integers(2, size=ROWS)
    codes = generator.normal(size=(ROWS, COLUMNS)) * noise
    codes[:, -1] = scale * (shift * (2 * bits - 1) + generator.normal(size=ROWS))
    return codes, bits


def area_of(kind: str, seed: int = 0, members: int = 1, **options: float) -> float:
    parts = [planted(3 * seed + part, **options) for part in range(3)]
    found = attack(kind, *parts[0], *parts[1], parts[2][0], classes=2, seed=seed, members=members)
    return area_under_roc(parts[2][1] == 1, found.test[:, 1])


@pytest.mark.parametrize("kind", ATTACKS)
def test_every_attacker_reads_a_planted_bit(kind: str) -> None:
    assert area_of(kind, shift=3.0, noise=0.3) > 0.95


@pytest.mark.parametrize("kind", ATTACKS)
def test_no_attacker_reads_what_is_not_there(kind: str) -> None:
    assert abs(area_of(kind, shift=0.0) - 0.5) < 0.1


def test_in_a_direction_of_little_variance_the_strong_attacker_reads_what_the_weak_one_does_not() -> None:
    """The sheet's point: only the weak attacker calls such a representation fair."""
    options = {"shift": 2.0, "scale": 0.01}
    assert area_of("strong", **options) > 0.95
    assert area_of("linear", **options) > 0.95
    assert area_of("weak", members=3, **options) < 0.65


def small(kind: str, **options: Any) -> Any:
    codes, bits = planted(1, shift=1.0)
    given = {"classes": 2, "seed": 4, "members": 2, **options}
    return attack(kind, codes[:300], bits[:300], codes[300:400], bits[300:400], codes[400:500], **given)


@pytest.mark.parametrize("kind", ATTACKS)
def test_a_seed_repeats_an_attack_and_torchs_own_numbers_are_left_alone(kind: str) -> None:
    before, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()
    one, other = small(kind), small(kind)
    assert np.array_equal(one.test, other.test)
    assert np.array_equal(one.validation, other.validation)
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(numbers, np.random.get_state()[1])
    assert one.kind == kind
    assert one.test.shape == one.validation.shape == (100, 2)
    assert one.test.sum(axis=1) == pytest.approx(1.0)


def test_an_ensemble_is_the_mean_probability_of_members_with_seeds_of_their_own() -> None:
    each = small("strong", members=3, average=True)
    together = small("strong", members=3)
    assert len(each) == 3
    assert all(isinstance(member, Attack) for member in each)
    assert not np.array_equal(each[0].test, each[1].test)
    assert together.test == pytest.approx(np.mean([member.test for member in each], axis=0))
    assert together.validation == pytest.approx(np.mean([member.validation for member in each], axis=0))
    first = small("strong", members=1)
    assert np.array_equal(first.test, each[0].test), "members do not depend on how many there are"
    assert not np.array_equal(first.test, small("strong", members=1, seed=5).test)


@pytest.mark.parametrize("kind", ["linear", "boosting"])
def test_attackers_that_are_no_networks_come_alone(kind: str) -> None:
    assert len(small(kind, members=3, average=True)) == 1


@pytest.mark.parametrize("kind", ATTACKS)
def test_a_class_without_training_rows_still_has_its_column(kind: str) -> None:
    codes, bits = planted(2, shift=2.0)
    found = attack(kind, codes[:300], bits[:300] * 2, codes[300:400], bits[300:400] * 2, codes[400:], classes=4, seed=0)
    assert found.test.shape == (800, 4)
    assert found.test.sum(axis=1) == pytest.approx(1.0)
    if kind in ("linear", "boosting"):
        assert found.test[:, [1, 3]].max() == 0.0


def test_several_classes_are_told_apart() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(3, size=900)
    codes = generator.normal(size=(900, 4))
    codes[:, 0] += 4 * labels
    for kind in ("strong", "linear", "boosting"):
        found = attack(kind, codes[:500], labels[:500], codes[500:600], labels[500:600], codes[600:], classes=3, seed=0)
        assert np.mean(found.test.argmax(axis=1) == labels[600:]) > 0.9, kind


def test_the_strong_attacker_keeps_its_best_epoch_and_does_not_learn_noise_by_heart() -> None:
    """Few rows of pure noise: with more epochs it would be surer of itself, and wrong half of the time."""
    generator = np.random.default_rng(0)
    codes, bits = generator.normal(size=(700, 60)), generator.integers(2, size=700)
    found = attack(
        "strong", codes[:300], bits[:300], codes[300:500], bits[300:500], codes[500:], classes=2, seed=0, members=1
    )
    assert np.abs(found.test[:, 1] - 0.5).mean() < 0.05


def test_constant_columns_and_shifted_scales_do_no_harm() -> None:
    codes, bits = planted(1, shift=1.0)
    wide = np.concatenate([codes * 1e-3 + 50.0, np.full((ROWS, 1), 0.1), np.zeros((ROWS, 1))], axis=1)
    for kind in ("strong", "linear"):
        plain, moved = (
            attack(kind, own[:900], bits[:900], own[900:1000], bits[900:1000], own[1000:], classes=2, seed=0, members=1)
            for own in (codes, wide)
        )
        areas = [area_under_roc(bits[1000:] == 1, found.test[:, 1]) for found in (plain, moved)]
        assert areas[1] == pytest.approx(areas[0], abs=0.05)
        assert areas[1] > 0.8


def test_a_number_is_read_in_its_own_units() -> None:
    generator = np.random.default_rng(0)
    ages = generator.uniform(20, 60, size=1500)
    codes = generator.normal(size=(1500, 6))
    codes[:, 2] += ages / 10
    found = attack_value(codes[:900], ages[:900], codes[900:1100], ages[900:1100], codes[1100:], seed=0, members=2)
    errors = found.test - ages[1100:]
    assert found.test.shape == (400,)
    # The column says the age with an error of 10; the best answer explains a little over half of its variance.
    assert 0.4 < 1 - np.mean(errors**2) / np.var(ages[1100:]) < 0.75
    shuffled = generator.permutation(ages)
    blind = attack_value(
        codes[:900], shuffled[:900], codes[900:1100], shuffled[900:1100], codes[1100:], seed=0, members=2
    )
    assert 1 - np.mean((blind.test - shuffled[1100:]) ** 2) / np.var(shuffled[1100:]) < 0.1


def test_what_cannot_be_attacked_is_refused() -> None:
    codes, bits = planted(0, shift=1.0)
    fine: dict[str, Any] = {
        "train_codes": codes[:10],
        "train_labels": bits[:10],
        "validation_codes": codes[10:20],
        "validation_labels": bits[10:20],
        "test_codes": codes[20:30],
        "classes": 2,
        "seed": 0,
    }
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"kind": "strnog"}, ConfigError, "Did you mean 'strong'"),
        ({"members": 0}, ConfigError, "at least one member"),
        ({"train_labels": np.zeros(10, int)}, ConfigError, "two classes"),
        ({"train_labels": bits[:9]}, ConfigError, "class number for each of 10"),
        ({"validation_labels": bits[10:20] + 1}, ConfigError, "between 0 and 1"),
        ({"train_labels": bits[:10].astype(float)}, ConfigError, "class number"),
        ({"test_codes": codes[20:30, :3]}, ConfigError, "one width"),
        ({"test_codes": codes[:0]}, ConfigError, "some of each part"),
        ({"train_codes": codes[:10] * np.nan}, OutOfRange, "diverged"),
    ]
    for change, error, said in wrong:
        with pytest.raises(error, match=said):
            attack(**{"kind": "strong", **fine, **change})
    with pytest.raises(OutOfRange, match="too large"):
        attack("weak", **{**fine, "test_codes": np.full((3, COLUMNS), 1e39)})
    with pytest.raises(ConfigError, match="one finite value"):
        attack_value(codes[:10], np.full(10, np.nan), codes[10:20], np.zeros(10), codes[20:], seed=0)
