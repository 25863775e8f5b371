"""The label disguise: it decodes exactly, it is soft, and it says what it does not do."""

from __future__ import annotations

import pytest
import torch

from colonnade.errors import CheckpointBroken, ConfigError, TrainingFailed
from colonnade.privacy import LabelDisguise, coae

KEY = bytes(range(32))


@pytest.fixture(scope="module")
def two() -> LabelDisguise:
    return LabelDisguise.train(2, KEY)


def test_two_classes_have_soft_codes_that_decode_exactly_and_a_warning(two: LabelDisguise) -> None:
    assert two.codes.shape == (2, 2)
    assert torch.allclose(two.codes.sum(1), torch.ones(2, dtype=torch.float64))
    assert two.codes.max() < 0.7
    assert two.decode(two.codes).diagonal().min() > 0.99
    (warning,) = two.warnings
    assert "sign of a slope still splits the rows" in warning
    assert "marvell" in warning
    score = two.decode(torch.stack([torch.linspace(1, 0, 101), torch.linspace(0, 1, 101)], 1))[:, 1]
    assert (score.diff() >= 0).all() or (score.diff() <= 0).all(), "ranks of a network's outputs are kept or turned"


def test_the_key_alone_decides_and_the_global_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    first, again, other = (LabelDisguise.train(3, key, steps=1200) for key in (KEY, KEY, bytes(32)))
    assert torch.equal(first.codes, again.codes)
    assert not torch.equal(first.codes, other.codes)
    assert torch.equal(before, torch.random.get_rng_state())
    assert first.decode(first.codes).argmax(1).tolist() == [0, 1, 2]


def test_contrast_with_two_classes_ends_in_a_swap_and_says_so() -> None:
    swapped = LabelDisguise.train(2, KEY, contrast=2.0, keep_renaming=True, steps=1500)
    assert swapped.codes.argmax(1).tolist() == [1, 0]
    assert swapped.codes.max() > 0.99
    assert "exchange (swap)" in swapped.warnings[0]


def test_a_code_of_no_use_is_tried_again_and_then_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coae, "_ATTEMPTS", 2)
    with pytest.raises(TrainingFailed, match=r"after 2 attempts: the code is only another name"):
        LabelDisguise.train(2, KEY, contrast=2.0, steps=800)
    with pytest.raises(TrainingFailed, match=r"same code|not decoded"):
        LabelDisguise.train(2, KEY, steps=1)


def test_a_second_attempt_has_another_start(monkeypatch: pytest.MonkeyPatch) -> None:
    flaws = iter(["two classes have the same code", ""])
    starts = []
    real = coae._fit

    def fit(classes: int, generator: torch.Generator, *settings: float) -> dict[str, torch.Tensor]:
        starts.append(generator.initial_seed())
        return real(classes, generator, 0.0, 0.5, 2e-3, 1)

    monkeypatch.setattr(coae, "_fit", fit)
    monkeypatch.setattr(LabelDisguise, "_flaw", lambda *_: next(flaws))
    LabelDisguise.train(2, KEY)
    assert len(set(starts)) == 2


def test_it_goes_into_a_checkpoint_and_back(two: LabelDisguise) -> None:
    back = LabelDisguise.from_state(two.state())
    assert torch.equal(back.codes, two.codes)
    assert torch.equal(back.decode(two.codes), two.decode(two.codes))
    assert repr(two) == "LabelDisguise(2 classes)"
    with pytest.raises(CheckpointBroken, match="missing"):
        LabelDisguise.from_state({})


@pytest.mark.parametrize("classes", [0, 1, 21])
def test_too_few_or_too_many_classes_are_refused(classes: int) -> None:
    with pytest.raises(ConfigError, match="2 to 20 classes"):
        LabelDisguise.train(classes, KEY)
