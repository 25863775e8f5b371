"""Both halves of the scoring layer, encrypted and in the clear, against autograd and against exact integers."""

from __future__ import annotations

from typing import Any

import gmpy2
import numpy as np
import pytest
import torch
from scipy import stats
from tests.unit.methods.prada.worlds import Line, settings
from tests.worlds import integers_for_ciphertexts
from torch.nn import functional

from colonnade.crypto import CipherArray, FixedPoint, PrivateKey
from colonnade.errors import CheckpointBroken, TrainingFailed
from colonnade.methods.prada.head import SealedBankHead, SealedHolderHead, chunks, head_format, rounded

INPUTS = 6


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return PrivateKey.generate("insecure_test")


def slopes_by_autograd(mu: np.ndarray, weights: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the loss's derivative at the scores and at mu."""
    at = torch.from_numpy(mu).requires_grad_()
    z = at @ torch.from_numpy(weights)
    z.retain_grad()
    wanted = torch.from_numpy(labels)
    loss = (
        functional.binary_cross_entropy_with_logits(z[:, 0], wanted.double())
        if weights.shape[1] == 1
        else functional.cross_entropy(z, wanted)
    )
    loss.backward()
    assert z.grad is not None
    assert at.grad is not None
    return z.grad.numpy(), at.grad.numpy()


@pytest.mark.parametrize("scores", [1, 3])
@pytest.mark.parametrize("is_sealed", [True, False])
def test_with_a_rate_of_one_gradients_are_those_of_the_weights_that_scored(
    key: PrivateKey, is_sealed: bool, scores: int
) -> None:
    """Checks 1 and 3 of the sheet: with W_{t+1} in delta^C (the paper's line 22) this fails by far."""
    generator = np.random.default_rng(1)
    batches = [
        (rounded(generator.normal(size=(7, INPUTS))).decode(), generator.integers(0, max(scores, 2), 7))
        for _ in range(6)
    ]
    starts = [generator.normal(size=(INPUTS, scores)) for _ in range(2)]
    line, config = Line(), settings(momentum=0.5)
    holder, bank = line.heads(config, INPUTS, scores, key if is_sealed else None)

    def teach() -> list[np.ndarray]:
        holder.open(starts[0])
        found = [holder.teach_trained(mu) for mu, _ in batches]
        holder.settle()
        return found

    def learn() -> list[np.ndarray]:
        bank.open(starts[1])
        found = []
        for mu, labels in batches:
            logits = bank.trained_logits(len(mu))
            slopes = slopes_by_autograd(np.eye(7), logits, labels)[0]
            bank.learn_trained(slopes, slopes, None)
            found.append(logits)
        bank.settle()
        return found

    gradients, logits = line.play(teach, learn)
    within = 2e-6 if is_sealed else 1e-12
    weights, speed, moved = starts[0] + starts[1], np.zeros((INPUTS, scores)), 0.0
    for (mu, labels), gradient, seen in zip(batches, gradients, logits, strict=True):
        delta, expected = slopes_by_autograd(mu, weights, labels)
        assert np.abs(seen - mu @ weights).max() < within
        assert np.abs(gradient - expected).max() < within
        speed = 0.5 * speed + mu.T @ delta
        weights = weights - speed
        moved = max(moved, float(np.abs(gradient - delta @ weights.T).max()))
    assert moved > 0.01, "the next weights would have been noticed"


@pytest.mark.parametrize("scores", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_shares_add_up_to_the_integer_twin_for_a_thousand_batches_and_stay_bounded(
    key: PrivateKey, scores: int
) -> None:
    """Check 4 of the sheet, in PrADA's own format and schedule; the arithmetic is that of ciphertexts, exactly."""
    generator = np.random.default_rng(2)
    count, steps = 3, 1000
    mus = generator.normal(size=(steps, count, 2))
    slopes = generator.normal(size=(steps, count, scores)) * 1e-3
    starts = [generator.normal(size=(2, scores)) for _ in range(2)]
    line, config = Line(), settings(momentum=0.0)
    holder, bank = line.heads(config, 2, scores, key)
    assert isinstance(holder, SealedHolderHead)
    assert isinstance(bank, SealedBankHead)
    shares: list[Any] = []
    held: list[Any] = []

    def teach() -> None:
        holder.open(starts[0])
        shares.append(holder.layer.share)
        for mu in mus:
            holder.teach_trained(mu)
            shares.append(holder.layer.share)
        holder.settle()

    def learn() -> None:
        bank.open(starts[1])
        for mu, one in zip(mus, slopes, strict=True):
            bank.trained_logits(len(mu))
            held.append(bank.layer.share)
            bank.learn_trained(one, one, None)
        bank.settle()
        held.append(bank.layer.share)

    with integers_for_ciphertexts():
        line.play(teach, learn)
    format = holder.layer.format
    scale = format.weight_bits
    twin = sum(np.vectorize(int, otypes=[object])(np.rint(np.ldexp(start, scale))) for start in starts)
    for place in range(steps + 1):
        assert (shares[place] + held[place] == twin).all()
        assert all(abs(one) <= format.share_limit for one in shares[place].reshape(-1))
        if place < steps:
            step = FixedPoint.encode(slopes[place], format.step_format).integers.astype(object)
            twin = twin - rounded(mus[place]).integers.astype(object).T @ step
    large = [np.abs(shares[place].astype(float)).mean() for place in range(steps + 1)]
    assert np.mean(large[-100:]) < 1.3 * np.mean(large[:100]), "shares do not grow"


def test_momentum_of_hundreds_of_batches_drifts_less_than_a_billionth(key: PrivateKey) -> None:
    generator = np.random.default_rng(3)
    steps, line, config = 300, Line(), settings(momentum=0.99)
    mu, slopes = generator.normal(size=(4, 2)), generator.normal(size=(steps, 4, 1)) * 1e-4
    holder, bank = line.heads(config, 2, 1, key)
    assert isinstance(holder, SealedHolderHead)
    assert isinstance(bank, SealedBankHead)

    def teach() -> None:
        holder.open(np.zeros((2, 1)))
        for _ in range(steps):
            holder.teach_fixed(0, mu)

    def learn() -> None:
        bank.open(np.zeros((2, 1)))
        for one in slopes:
            bank.fixed_logits(0, 4)
            bank.learn_fixed(0, one)

    with integers_for_ciphertexts():
        line.play(teach, learn)
    whole = (holder.layer.share + bank.layer.share).astype(float) / 2.0**holder.layer.format.weight_bits
    weights, speed = np.zeros((2, 1)), np.zeros((2, 1))
    for one in slopes:
        step = FixedPoint.encode(one, holder.layer.format.step_format).decode()
        speed = 0.99 * speed + rounded(mu).decode().T @ step
        weights = weights - speed
    assert np.abs(whole - weights).max() < 1e-9


def test_a_banks_share_is_the_same_noise_whatever_the_weights(key: PrivateKey) -> None:
    """Check 5 of the sheet: the shares of two different W_0 cannot be told apart at ten thousand samples."""
    samples = []
    for start in (0.0, 15.0):
        line = Line()
        holder, bank = line.heads(settings(), 10_000, 1, key)
        assert isinstance(bank, SealedBankHead)
        line.play(
            lambda holder=holder, start=start: holder.open(np.full((10_000, 1), start)),
            lambda bank=bank: bank.open(np.zeros((10_000, 1))),
        )
        samples.append([float(one) for one in bank.layer.share.reshape(-1)])
    assert stats.ks_2samp(*samples).pvalue > 1e-3


def random_part(key: PrivateKey, ciphertext: Any) -> Any:
    """Extract, as only the key's owner can, the randomness of a ciphertext."""
    order = gmpy2.lcm(key._p - 1, key._q - 1)
    return gmpy2.powmod(ciphertext % key.n, gmpy2.invert(key.n, order), key.n)


@pytest.mark.parametrize("is_careless", [False, True])
def test_the_feature_holder_cannot_confirm_a_slope_by_the_randomness_it_knows(
    key: PrivateKey, is_careless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check 6 of the sheet. Even the true slopes are not confirmed; without fresh randomness they are."""
    if is_careless:
        monkeypatch.setattr(CipherArray, "rerandomise", lambda array: array)
    line, config = Line(), settings()
    holder, bank = line.heads(config, INPUTS, 1, key)
    assert isinstance(holder, SealedHolderHead)
    slopes = np.array([[0.25], [-0.5]])

    def teach() -> None:
        holder.open(np.ones((INPUTS, 1)))
        holder.teach_trained(np.ones((2, INPUTS)))

    def learn() -> None:
        bank.open(np.zeros((INPUTS, 1)))
        bank.trained_logits(2)
        bank.learn_trained(slopes, slopes, None)

    line.play(teach, learn)
    format = holder.layer.format
    shares = line.seen["bank"][1].shares
    reply = line.seen["holder"][-1].inputs
    lines = format.input_gradient(2).lines
    shift = 1 << (format.shares().slot_bits * INPUTS)
    wanted = [int(one * 2**format.slope_format.fraction_bits) for one in slopes[:, 0]]
    exponent = sum(one * shift**place for place, one in enumerate(wanted[:lines]))
    known, answer = random_part(key, shares.ciphertexts[0]), random_part(key, reply.ciphertexts[0])
    assert (gmpy2.powmod(known, exponent, key.n) == answer) is is_careless


def test_a_batch_of_the_sheets_size_takes_no_more_ciphertexts_than_the_sheet_says() -> None:
    """Check 11: n = 128, g = 10, 2048 bits. The sheet has 199 to the bank and 72 back, 271 in all."""
    for defence in ("none", "marvell"):
        format = head_format(settings(key_size=2048, batch_size=128, fine_batch_size=128, defence=defence), 10, 1)
        to_bank = format.columns(128).count + format.rows(128).count + format.shares().count
        back = format.logits(128).count + format.gradient().count + format.input_gradient(128).count
        assert to_bank <= 199
        assert back <= 72
        assert to_bank + back <= 220, (to_bank, back)
        # Frozen, after the first epoch: nothing to the bank, and back only the scores and one gradient.
        assert format.logits(128).count + format.gradient().count <= 8


@pytest.mark.parametrize("is_sealed", [True, False])
def test_rows_are_scored_in_pieces_and_no_rows_too(key: PrivateKey, is_sealed: bool) -> None:
    generator = np.random.default_rng(4)
    mu, start = generator.normal(size=(9, 3)), generator.normal(size=(3, 2))
    line = Line()
    holder, bank = line.heads(settings(), 3, 2, key if is_sealed else None)

    def teach() -> None:
        holder.open(start)
        holder.score(mu[:0])
        holder.score(mu)

    def learn() -> tuple[np.ndarray, np.ndarray]:
        bank.open(np.zeros((3, 2)))
        return bank.score(0), bank.score(9)

    _, (nothing, found) = line.play(teach, learn)
    assert nothing.shape == (0, 2)
    assert np.abs(found - mu @ start).max() < 1e-4
    assert [len(one) for one in chunks(9000)] == [4096, 4096, 808]


def test_large_numbers_of_groups_are_cut_off_and_large_scores_end_training(key: PrivateKey) -> None:
    assert rounded(np.array([1e9, -1e9])).decode().tolist() == pytest.approx([15.99, -15.99], abs=1e-4)
    line = Line()
    holder, bank = line.heads(settings(), 4, 1, key)

    def teach() -> None:
        holder.open(np.full((4, 1), 15.0))
        holder.score(np.full((1, 4), 15.0))

    def learn() -> None:
        bank.open(np.zeros((4, 1)))
        bank.score(1)

    with pytest.raises(TrainingFailed, match="diverged"):
        line.play(teach, learn)


def test_weights_of_another_shape_in_a_checkpoint_are_refused(key: PrivateKey) -> None:
    for one in (key, None):
        line = Line()
        _, bank = line.heads(settings(), 3, 1, one)
        state = bank.state()
        _, other = line.heads(settings(), 4, 1, one)
        with pytest.raises(CheckpointBroken):
            other.load_state(state)
