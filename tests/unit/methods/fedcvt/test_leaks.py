"""Attacks that must fail, and those that the declarations admit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.methods.fedcvt.worlds import fixed_secret, frames, run_of, settings, watched
from tests.worlds import integers_for_ciphertexts, received

import colonnade as cn
from colonnade.errors import LeakRefused
from colonnade.exchanges import secure_product, split_linear
from colonnade.messages import declaration_of
from colonnade.methods.fedcvt import sealed_cut
from colonnade.methods.fedcvt.config import FedCVT
from colonnade.methods.fedcvt.guards import hidden_rows
from colonnade.methods.fedcvt.networks import build_encoders
from colonnade.methods.fedcvt.open_cut import OpenLabelSide
from colonnade.methods.fedcvt.sealed_cut import SealedLabelSide, SealedPartnerSide
from colonnade.nn import key_counts
from colonnade.session import derive_seed

SEALED: dict[str, Any] = {"level": 2, "threshold": 0.34, "own_batch_size": 30, "warmup_epochs": 0}


# First weights


def guessed_encoders(config: FedCVT, party: str, inputs: int, seed: int) -> torch.nn.ModuleDict:
    """Return networks as one would build them who knows the run's seed, as everybody does."""
    return build_encoders(
        config,
        config.variant("fedcvt"),
        party,
        inputs,
        lambda purpose, counter=0: derive_seed(seed, f"{purpose}/{party}", counter),
        None,
    )


@pytest.mark.parametrize("secret", [True, False])
def test_columns_cannot_be_read_off_the_first_codes_unless_first_weights_are_public(secret: bool) -> None:
    """Every active unit of a known network is a linear equation about the columns."""
    config = settings(secret_start=secret, shared_width=32, unique_width=32, epochs=1)
    with watched() as found:
        run = run_of(frames(), config, launch=cn.Launch(keep_views=True))
    codes = received(run, "bank", "Codes")[0].values
    rows = np.concatenate(found.steps["shop"][0])
    truth = found.features["shop"][torch.from_numpy(rows)]
    encoders = guessed_encoders(config, "shop", truth.shape[1], 11)
    weights = torch.cat([encoders[kind][0].weight for kind in ("shared", "unique")]).detach()
    offsets = torch.cat([encoders[kind][0].bias for kind in ("shared", "unique")]).detach()
    errors = []
    for row, code in zip(truth, codes, strict=True):
        active = code > 0
        solved = torch.linalg.lstsq(weights[active], (code - offsets)[active]).solution
        errors.append(float((solved - row).abs().max()))
    assert (max(errors) < 1e-9) is not secret
    if secret:
        assert np.median(errors) > 0.1


def test_the_order_of_unmatched_rows_is_secret() -> None:
    orders = []
    for _ in range(2):
        with watched() as found:
            run_of(frames(), settings(secret_start=True, epochs=1))
        orders.append([own.tolist() for _, own in found.steps["shop"]])
        shared = [one.tolist() for one, _ in found.steps["shop"]]
    assert orders[0] != orders[1]
    assert shared, "those of shared rows are agreed"


# Attention at level 2


def attention_of_run(**changes: Any) -> tuple[list[dict[str, Any]], cn.Run]:
    """Return, step by step, the shop's attention, what the bank asked with, and what came back."""
    steps: list[dict[str, Any]] = []
    weights_of, returned, gradient_of = SealedPartnerSide._weights, SealedLabelSide._returned, sealed_cut._gradient

    def weights(side: Any, codes: Any, anchors: Any, rows: slice) -> Any:
        found = weights_of(side, codes, anchors, rows)
        steps.append({"weights": found})
        return found

    def carried(side: Any, estimates: Any, *rest: Any) -> Any:
        found = returned(side, estimates, *rest)
        (guess,) = estimates
        if guess is not None:
            steps[-1] |= {"asked": gradient_of(guess).double().numpy(), "back": found[0][1]}
        return found

    with pytest.MonkeyPatch.context() as patch, integers_for_ciphertexts():
        fixed_secret(patch)
        patch.setattr(SealedPartnerSide, "_weights", weights)
        patch.setattr(SealedLabelSide, "_returned", carried)
        run = run_of(frames(own={"shop": 60}), settings(**{**SEALED, **changes}))
    return [one for one in steps if "asked" in one], run


def test_the_gradient_that_comes_back_is_of_no_row_or_of_too_many_to_take_apart() -> None:
    """From k rows' gradients in c columns, attention of all k follows where k <= c."""
    steps, run = attention_of_run(epochs=4, least_keys=2.0)
    kept = [int((np.abs(one["asked"]).max(axis=1) > 0).sum()) for one in steps]
    columns = steps[0]["asked"].shape[1]
    assert columns == 6
    assert all(count == 0 or count > 2 * columns for count in kept), kept
    assert any(count > 0 for count in kept), "the rule does not stop everything"
    for one in steps:
        is_kept = np.abs(one["asked"]).max(axis=1) > 0
        if is_kept.any():
            truth = one["weights"][is_kept]
            solved = np.linalg.pinv(one["asked"][is_kept]).T @ np.concatenate([back.numpy() for back in one["back"]]).T
            # Roughly it follows, as the declaration says; exactly it must not.
            assert np.linalg.norm(solved - truth) > 0.1 * np.linalg.norm(truth - truth.mean())
    assert run.findings["pseudo-labels"]


def test_with_few_kept_rows_the_attack_would_succeed() -> None:
    """So that the rule is known to be needed. At which threshold few rows are kept is a matter of first weights."""
    worst = 1.0
    for threshold in (0.34, 0.36, 0.37):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sealed_cut, "hidden_rows", lambda columns: 0)
            steps, _ = attention_of_run(epochs=4, least_keys=2.0, threshold=threshold)
        for one in steps:
            is_kept = np.abs(one["asked"]).max(axis=1) > 0
            if 0 < is_kept.sum() <= 4:
                returned = np.concatenate([back.numpy() for back in one["back"]]).T
                solved = np.linalg.pinv(one["asked"][is_kept]).T @ returned
                worst = min(worst, float(np.abs(solved - one["weights"][is_kept]).max()))
    assert worst < 1e-3


def test_a_partner_with_a_small_batch_of_its_own_rows_takes_no_part_in_labels() -> None:
    """Twelve rows and six columns: too few for the attention to stay hidden."""
    config = settings(**{**SEALED, "own_batch_size": hidden_rows(6), "epochs": 2, "least_keys": 2.0})
    with integers_for_ciphertexts():
        run = run_of(frames(own={"shop": 60}), config, launch=cn.Launch(keep_views=True))
    assert not received(run, "bank", "AlignedGradient")
    # One estimate at the end for the test rows; validation has none here.
    assert len(received(run, "bank", "EstimatedLogits")) == 1


@pytest.mark.parametrize("least", [5.0, 8.0])
def test_attention_that_leaves_a_partner_spreads_over_enough_rows(least: float) -> None:
    steps, _ = attention_of_run(epochs=2, least_keys=least, temperature=0.02)
    assert steps
    for one in steps:
        for kind in np.split(one["weights"], 2, axis=1):
            assert (key_counts(torch.from_numpy(np.ascontiguousarray(kind))) >= least - 1e-6).all()


def test_estimates_carry_no_digits_beyond_their_precision() -> None:
    """Exact products of integers would tell far more of attention than the numbers that are needed."""
    answered: list[tuple[Any, Any, Any]] = []
    blur = secure_product.blurred

    def blurred(product: Any, plain: Any) -> Any:
        found = blur(product, plain)
        answered.append((product, found, plain))
        return found

    with pytest.MonkeyPatch.context() as patch, integers_for_ciphertexts():
        patch.setattr(secure_product, "blurred", blurred)
        run_of(frames(own={"shop": 60}), settings(**{**SEALED, "epochs": 2, "least_keys": 2.0}))
    assert len(answered) > 3
    for product, found, plain in answered:
        assert found.layout.fraction_bits == product.layout.fraction_bits
        assert plain.fraction_bits >= 20
        same = [int(a) == int(b) for a, b in zip(product.ciphertexts, found.ciphertexts, strict=True)]
        assert not any(same)


# Label noise


def test_with_marvell_dropped_rows_carry_noise_too() -> None:
    """Rows without a label have no gradient of their own where attention is anchored; noise hides which they are."""
    options = {"attention": "anchored", "threshold": 0.36, "warmup_epochs": 0, "epochs": 3}
    with watched() as found:
        plain = run_of(frames(), settings(**options), launch=cn.Launch(keep_views=True))
    shared = [len(one) for one, _ in found.steps["shop"]]
    bare = [one.values[count:] for one, count in zip(received(plain, "shop", "CodeGradient"), shared, strict=True)]
    is_zero = torch.cat([(one == 0.0).all(dim=1) for one in bare])
    assert 0 < is_zero.sum() < len(is_zero), "without it, kept rows are known"
    noised = run_of(frames(), settings(**options, defence="marvell"), launch=cn.Launch(keep_views=True))
    hidden = [one.values[count:] for one, count in zip(received(noised, "shop", "CodeGradient"), shared, strict=True)]
    assert not torch.cat([(one == 0.0).all(dim=1) for one in hidden]).any()


@pytest.mark.parametrize("level", [0, 1])
def test_the_finding_counts_all_candidates_and_what_codes_add(level: int) -> None:
    options = {"level": level, "noise": 0.1, "defence": "marvell", "candidates": ("fedcvt", "vanilla"), "epochs": 3}
    run = run_of(
        frames(shared=1000), settings(**options, batch_size=200, own_batch_size=30), launch=cn.Launch(keep_views=True)
    )
    finding = run.findings["label protection"]
    (found,) = finding.values["partners"].values()
    assert found["releases_per_row"] >= 6
    assert len(found["by_epoch"]) == 6
    assert found["without_noise"] > found["over_all_releases"] > found["of_one_release"] > 0.5
    assert found["with_columns"] > found["over_all_releases"] + 0.05
    assert "The bounds are about gradients alone" in finding.text
    assert "label protection" not in run_of(frames(), settings(epochs=1)).findings


def test_at_level_2_the_shop_sees_which_of_its_rows_got_a_label() -> None:
    """As SealedCodeGradient says."""
    assert "which of its own rows got a label" in declaration_of(split_linear.SealedCodeGradient).reveals


def test_without_knowing_which_rows_got_a_label_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of these rows would have crossed as they are, under a declaration that says NOISED."""
    protected = OpenLabelSide._protected

    def forgetful(side: OpenLabelSide, place: int, gradient: Any, shared: Any, outcome: Any) -> Any:
        outcome.kept = [one[:-1] for one in outcome.kept]
        return protected(side, place, gradient, shared, outcome)

    monkeypatch.setattr(OpenLabelSide, "_protected", forgetful)
    with pytest.raises(LeakRefused, match="no noise can hide it"):
        run_of(frames(), settings(defence="marvell", warmup_epochs=0, epochs=1))
