"""Generators of secret seeds: all bits of the seed count, and draws are those of a Mersenne twister in that state."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from colonnade.errors import ConfigError
from colonnade.nn import draws
from colonnade.nn.draws import reseed, seeded_generator

SECRET = int.from_bytes(hashlib.sha256(b"secret").digest(), "little") | 1 << 256


def drawn(seed: int) -> torch.Tensor:
    return torch.rand(700, generator=seeded_generator(seed), dtype=torch.float32)


@pytest.mark.parametrize("bit", [32, 40, 63, 64, 200, 255, 257])
def test_no_bit_of_a_secret_seed_is_lost(bit: int) -> None:
    """torch itself takes the lowest 32 bits, which a partner can try out within hours."""
    assert not torch.equal(drawn(SECRET), drawn(SECRET ^ 1 << bit))
    assert torch.equal(drawn(SECRET), drawn(SECRET))


def test_draws_are_those_of_the_twister_in_the_state_that_the_seed_makes() -> None:
    content = b"colonnade generator" + SECRET.to_bytes(33, "little")
    words = np.frombuffer(hashlib.shake_256(content).digest(4 * 624), "<u4")
    twister = np.random.MT19937()
    twister.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": 624}}
    # torch keeps 24 bits of each number.
    expected = (twister.random_raw(700) & 0xFFFFFF).astype(np.float32) / 2**24
    assert np.array_equal(drawn(SECRET).numpy(), expected)


def test_seeds_of_a_run_draw_what_torch_draws() -> None:
    for seed in (0, 7, 2**63 - 1):
        assert torch.equal(drawn(seed), torch.rand(700, generator=torch.Generator().manual_seed(seed)))


def test_a_generator_begins_anew_whatever_it_drew_before() -> None:
    generator = seeded_generator(SECRET)
    torch.randn(11, generator=generator)
    reseed(generator, SECRET)
    assert torch.equal(torch.randn(50, generator=generator), torch.randn(50, generator=seeded_generator(SECRET)))


def test_a_torch_with_other_states_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    draws._check_layout.cache_clear()
    monkeypatch.setattr(draws, "_FIRST", 32)
    with pytest.raises(ConfigError, match="could not be kept secret"):
        seeded_generator(SECRET)
    draws._check_layout.cache_clear()
