"""Noise from a secret key: it repeats, it is independent, and it has the shape it should have."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from colonnade.errors import ConfigError
from colonnade.privacy import SecretNoise, new_key

KINDS = ("uniform", "gaussian", "laplace")
NOISE = SecretNoise(bytes(range(32)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_key_purpose_and_counter_give_the_same_noise(kind: str) -> None:
    first = getattr(NOISE, kind)("gradients", 7, (5, 3))
    again = getattr(SecretNoise(bytes(range(32))), kind)("gradients", 7, (5, 3))
    assert first.shape == (5, 3)
    assert first.dtype == np.float64
    assert first.tobytes() == again.tobytes()
    assert np.array_equal(getattr(NOISE, kind)("gradients", 7, (2, 3)), first[:2])


def test_anything_else_gives_other_noise() -> None:
    draws = [
        NOISE.gaussian("gradients", 7, (4000,)),
        NOISE.gaussian("gradients", 8, (4000,)),
        NOISE.gaussian("gradients7", 7, (4000,)),
        SecretNoise(bytes(31) + b"\1").gaussian("gradients", 7, (4000,)),
        stats.norm.ppf(NOISE.uniform("gradients", 7, (4000,))),
        NOISE.laplace("gradients", 7, (4000,)),
    ]
    for one, other in combinations(draws, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.08


@given(st.text(max_size=5), st.text(max_size=5), st.integers(0, 9999), st.integers(0, 9999))
def test_no_two_purposes_and_counters_run_into_each_other(one: str, other: str, first: int, second: int) -> None:
    are_same = (one, first) == (other, second)
    assert are_same == (NOISE.uniform(one, first, (4,)).tobytes() == NOISE.uniform(other, second, (4,)).tobytes())


@pytest.mark.parametrize(
    ("kind", "expected"), [("uniform", stats.uniform), ("gaussian", stats.norm), ("laplace", stats.laplace)]
)
def test_the_noise_has_its_distribution(kind: str, expected: stats.rv_continuous) -> None:
    draws = getattr(NOISE, kind)("distribution", 0, (50_000,))
    assert stats.kstest(draws, expected.cdf).pvalue > 0.001
    assert abs(draws.mean() - expected.mean()) < 4 * expected.std() / np.sqrt(50_000)


def test_the_ends_of_the_uniform_are_never_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ends:
        def update(self, _: bytes) -> None: ...

        def digest(self, length: int) -> bytes:
            return bytes(length // 2) + b"\xff" * (length // 2)

    monkeypatch.setattr("colonnade.privacy.noise.hashlib.shake_256", Ends)
    low, high = NOISE.uniform("", 0, (2,))
    assert 0.0 < low == 1.0 - high < 1e-15
    assert np.isfinite(NOISE.gaussian("", 0, (2,))).all()
    assert np.isfinite(NOISE.laplace("", 0, (2,))).all()


def test_keys_are_fresh_long_enough_and_never_shown() -> None:
    key = new_key()
    assert len(key) == 32
    assert key != new_key()
    assert key.hex() not in repr(SecretNoise(key))
    with pytest.raises(ConfigError, match="at least 32 bytes; this one has 16"):
        SecretNoise(bytes(16))


def test_words_use_all_their_bits_and_are_none_of_the_other_draws() -> None:
    words = NOISE.words("words", 3, (5000, 2))
    assert words.dtype == np.uint64
    assert np.array_equal(NOISE.words("words", 3, (70, 2)), words[:70])
    ones = ((words.reshape(-1, 1) >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 4.5 * 0.5 / np.sqrt(words.size)
    parts = words.astype(np.float64) * 2.0**-64
    assert abs(np.corrcoef(parts.ravel(), NOISE.uniform("words", 3, (5000, 2)).ravel())[0, 1]) < 0.04
