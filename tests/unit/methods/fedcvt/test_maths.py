"""Formulas of FedCVT against what can be worked out by hand: checks 1, 4, 6 and 7 of the sheet."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.unit.methods.fedcvt.worlds import settings

from colonnade.errors import ConfigError
from colonnade.methods.fedcvt import METHOD
from colonnade.methods.fedcvt.objective import (
    Step,
    agreed_labels,
    build_heads,
    estimate_views,
    objective,
    orthogonality_loss,
    party_head,
    row_losses,
)
from colonnade.methods.fedcvt.sealed_cut import miss_matrix
from colonnade.methods.fedcvt.sealed_heads import SealedHeads
from colonnade.nn import attention_weights, key_counts
from colonnade.settings import validated

F64 = torch.float64


def drawn(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


# Attention


def test_dividing_logits_by_a_temperature_is_sharpening_the_softmax() -> None:
    queries, keys = drawn(7, 5), drawn(9, 5, seed=1)
    plain = attention_weights(queries, keys, 1.0)
    for temperature in (0.1, 0.5, 2.0):
        sharpened = plain ** (1.0 / temperature)
        sharpened = sharpened / sharpened.sum(dim=1, keepdim=True)
        assert (attention_weights(queries, keys, temperature) - sharpened).abs().max() < 1e-14


def test_attention_by_hand() -> None:
    queries, keys = torch.tensor([[2.0, 0.0]], dtype=F64), torch.eye(2, dtype=F64)
    first = 1.0 / (1.0 + math.exp(-2.0 / (math.sqrt(2.0) * 0.5)))
    found = attention_weights(queries, keys, 0.5)
    assert found.tolist() == [[pytest.approx(first), pytest.approx(1.0 - first)]]


def test_hidden_keys_get_no_weight_and_a_row_without_keys_gets_none_at_all() -> None:
    hidden = torch.tensor([[True, False, False], [True, True, True]])
    found = attention_weights(drawn(2, 4), drawn(3, 4, seed=1), 0.5, hidden=hidden)
    assert found[0, 0] == 0.0
    assert found[0].sum() == pytest.approx(1.0)
    assert (found[1] == 0.0).all()


def test_attention_of_huge_codes_stays_finite() -> None:
    found = attention_weights(drawn(4, 3, scale=1e4).float(), drawn(6, 3, seed=1, scale=1e4).float(), 0.01)
    assert found.isfinite().all()
    assert found.sum(dim=1).tolist() == pytest.approx([1.0] * 4)


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0, 1e6])
@pytest.mark.parametrize("least", [5.0, 8.0, 12.0, 40.0])
def test_rows_spread_over_enough_keys_however_sharp_they_are(scale: float, least: float) -> None:
    queries, keys = drawn(20, 6, scale=scale), drawn(12, 6, seed=1)
    found = attention_weights(queries, keys, 0.1, least_keys=least)
    assert (key_counts(found) >= min(least, 12.0) - 1e-6).all()
    untouched = key_counts(attention_weights(queries, keys, 0.1)) >= least
    assert torch.equal(found[untouched], attention_weights(queries, keys, 0.1)[untouched])


def test_spreading_leaves_hidden_keys_hidden() -> None:
    hidden = torch.eye(8, dtype=torch.bool)
    codes = drawn(8, 3, scale=100.0)
    found = attention_weights(codes, codes, 0.1, hidden=hidden, least_keys=5.0)
    assert (found.diagonal() == 0.0).all()
    assert (key_counts(found) >= 5.0 - 1e-9).all()


def energy_missed(codes: torch.Tensor, **changes: Any) -> float:
    """Return the error of estimating shared rows from one another, as a share of their energy."""
    config = settings(temperature=0.01, **changes)
    one = {"shared": codes, "unique": drawn(*codes.shape, seed=3)}
    other = {"shared": codes, "unique": drawn(*codes.shape, seed=4)}
    found = estimate_views(config, one, other, len(codes), of_shared=True)
    missed = sum((found[kind] - other[kind]).square().sum() for kind in other)
    return float(missed / sum(other[kind].square().sum() for kind in other))


@pytest.mark.parametrize("attention", ["paper", "anchored"])
def test_a_shared_row_that_could_look_at_itself_would_copy_the_answer(attention: str) -> None:
    """Check 4: at T = .01 the masked error stays at .5 of the energy or more, the other falls below .01."""
    codes = drawn(32, 64)
    assert energy_missed(codes, attention=attention) >= 0.5
    assert energy_missed(codes, attention=attention, self_mask=False) < 0.01


def test_rows_of_one_party_may_look_at_all_keys() -> None:
    """The mask is for shared rows only: an own row's counterpart is not among the keys."""
    config, codes = settings(), {"shared": drawn(10, 4), "unique": drawn(10, 4, seed=1)}
    found = estimate_views(config, codes, codes, 6, of_shared=False)
    weights = attention_weights(codes["shared"][6:], codes["shared"], config.temperature)
    assert (found["shared"] - weights @ codes["shared"]).abs().max() < 1e-15
    assert (weights > 0).all()


# Orthogonality

U, C = torch.tensor([[1.0, 2.0], [0.0, 3.0]], dtype=F64), torch.tensor([[3.0, -1.0], [2.0, 1.0]], dtype=F64)


def test_orthogonality_of_two_rows_by_hand() -> None:
    """Rows: u.c = 1 and 3. U C' = [[1, 4], [-3, 3]]. U' C = [[3, -1], [12, 1]]."""
    assert orthogonality_loss("inner", C, U) == pytest.approx((1 + 9) / 2)
    assert orthogonality_loss("gram", C, U) == pytest.approx(math.sqrt(1 + 16 + 9 + 9) / 2)
    assert orthogonality_loss("dsn", C, U) == pytest.approx((9 + 1 + 144 + 1) / 2)


@pytest.mark.parametrize("form", ["inner", "gram", "dsn"])
def test_orthogonality_is_nothing_of_no_rows_and_of_orthogonal_codes(form: str) -> None:
    zero = torch.zeros(0, 2, dtype=F64, requires_grad=True)
    loss = orthogonality_loss(form, zero, zero)
    assert loss == 0.0
    one = torch.tensor([[1.0, 0.0]], dtype=F64, requires_grad=True)
    other = torch.tensor([[0.0, 2.0]], dtype=F64)
    if form != "dsn":
        loss = orthogonality_loss(form, one, other)
        loss.backward()
        assert loss == 0.0
        assert one.grad is not None
        assert one.grad.isfinite().all()


def test_the_outer_form_is_refused() -> None:
    """It only shrinks norms; its gradient is parallel to the code."""
    with pytest.raises(ConfigError, match="orthogonality"):
        validated(METHOD.config, {"orthogonality": "outer"}, "config")


# Heads


@pytest.mark.parametrize("attention", ["paper", "anchored"])
def test_scores_of_estimated_codes_are_estimates_of_scores(attention: str) -> None:
    """Check 6: linear heads commute with averaging, offsets included."""
    config = settings(attention=attention)
    heads = build_heads(config, config.variant("fedcvt"), 2, 3, 7)
    source = {kind: drawn(14, 4, seed=place) for place, kind in enumerate(("shared", "unique"))}
    wanted = {kind: drawn(14, 4, seed=2 + place) for place, kind in enumerate(("shared", "unique"))}
    found = estimate_views(config, source, wanted, 9, of_shared=False)
    head = heads[party_head(1)]
    direct = head(torch.cat([found["shared"], found["unique"]], dim=1))
    averaged = head.bias.clone()
    for at, kind in enumerate(("shared", "unique")):
        within = attention == "anchored" or kind == "unique"
        keys, values = (source[kind][:9], wanted[kind][:9]) if within else (wanted[kind],) * 2
        weights = attention_weights(source[kind][9:], keys, config.temperature)
        averaged = averaged + weights @ (values @ head.weight[:, 4 * at : 4 * at + 4].T)
    assert (direct - averaged).abs().max() < 1e-10


def test_sealed_heads_give_the_scores_of_whole_heads() -> None:
    config = settings(level=2)
    sealed = SealedHeads(config, config.variant("fedcvt"), 3, 2, 5)
    views = [{"shared": drawn(6, 4, seed=10 * place), "unique": drawn(6, 4, seed=10 * place + 1)} for place in range(3)]
    weights = [drawn(8, 4, seed=50 + place) for place in range(3)]
    by_party = [torch.stack(sealed.parts(views[0])).sum(dim=0)]
    by_party += [torch.cat(list(view.values()), dim=1) @ one for view, one in zip(views[1:], weights[1:], strict=True)]
    whole = sealed.whole(by_party)
    own = torch.cat(list(views[0].values()), dim=1)
    joint = own @ sealed.own["joint"].weight.T + sum(one[:, 2:] for one in by_party[1:]) + sealed.own["joint"].bias
    assert (whole["joint"] - joint).abs().max() < 1e-12
    assert (whole[party_head(0)] - sealed.own[party_head(0)](own)).abs().max() < 1e-12
    assert (whole[party_head(2)] - by_party[2][:, :2]).abs().max() < 1e-12
    for place in range(3):
        again = sealed.split_missing(place, sealed.gather_missing(place, by_party))
        filled = iter(again)
        views_again = [by_party[other] if other == place else next(filled) for other in range(3)]
        for name, value in sealed.whole(views_again).items():
            assert (value - whole[name]).abs().max() < 1e-12, (place, name)


def test_the_miss_matrix_is_the_slope_of_the_fit() -> None:
    config, codes = settings(level=2), drawn(9, 4)
    values = drawn(9, 4, seed=1).requires_grad_()
    weights = attention_weights(codes, codes, config.temperature, hidden=torch.eye(9, dtype=torch.bool))
    (weights @ values - values).square().sum(dim=1).mean().backward()
    assert values.grad is not None
    by_matrix = 2.0 / 9 * torch.from_numpy(miss_matrix(config, codes)) @ values.detach()
    assert (values.grad - by_matrix).abs().max() < 1e-14


# Labels of partners' rows

SURE, SURER, OTHER, UNSURE = [4.0, 0.0, 0.0], [9.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.2, 0.0, 0.0]


@pytest.mark.parametrize(
    ("rows", "is_kept"),
    [
        ((SURE, SURER, SURE), True),
        ((SURE, OTHER, SURE), False),
        ((OTHER, SURE, SURE), False),
        ((SURE, SURE, UNSURE), False),
        ((OTHER, OTHER, OTHER), True),
    ],
)
def test_a_row_gets_a_label_where_all_agree_and_are_sure(rows: tuple[list[float], ...], is_kept: bool) -> None:
    """Check 7."""
    outputs = [torch.tensor([row], dtype=F64) for row in rows]
    kept, labels = agreed_labels(settings(threshold=0.5), "multiclass", outputs)
    assert kept.tolist() == [is_kept]
    if is_kept:
        assert labels.tolist() == [int(torch.tensor(rows[0]).argmax())]


def test_two_classes_agree_on_either_side_of_a_half() -> None:
    outputs = [torch.tensor([[3.0], [-3.0], [3.0], [0.1]]), torch.tensor([[2.0], [-2.0], [-2.0], [0.1]])]
    kept, labels = agreed_labels(settings(threshold=0.6), "binary", outputs)
    assert kept.tolist() == [True, True, False, False]
    assert labels[:2].tolist() == [1.0, 0.0]


def test_numbers_agree_within_the_agreement_and_get_their_mean() -> None:
    outputs = [torch.tensor([[1.0], [1.0]]), torch.tensor([[1.2], [1.3]]), torch.tensor([[1.1], [1.0]])]
    kept, labels = agreed_labels(settings(agreement=0.25), "regression", outputs)
    assert kept.tolist() == [True, False]
    assert labels[0] == pytest.approx(1.1)


def test_no_gradient_comes_from_the_choice_of_labels() -> None:
    outputs = torch.tensor([SURE], requires_grad=True)
    kept, labels = agreed_labels(settings(), "multiclass", [outputs, outputs])
    assert not kept.requires_grad
    assert not labels.requires_grad


def test_rows_without_a_label_teach_nothing_but_through_attention() -> None:
    """A dropped row is no row of the loss; with anchored attention its gradient is nothing at all."""
    config = settings(attention="anchored", threshold=0.99, own_orthogonality=0.0)
    heads = build_heads(config, config.variant("fedcvt"), 2, 3, 1)
    codes = [{kind: drawn(12, 4, seed=place).requires_grad_() for kind in ("shared", "unique")} for place in range(2)]
    targets = torch.tensor([0, 1, 2] * 4)
    outcome = objective(Step(config, config.variant("fedcvt"), "multiclass", heads, codes, 8), targets[:8], targets[:4])
    outcome.total.backward()
    assert not outcome.kept[0].any()
    assert all((one.grad[8:] == 0.0).all() for one in codes[1].values() if one.grad is not None)
    assert all((one.grad[8:] != 0.0).any() for one in codes[0].values() if one.grad is not None)


def test_the_terms_of_a_step_add_up_and_skip_the_fit_of_a_single_shared_row() -> None:
    """Check 11: n1 = 1."""
    config = settings()
    heads = build_heads(config, config.variant("fedcvt"), 2, 3, 1)
    for shared, has_fit in ((1, False), (2, True)):
        codes = [{kind: drawn(5, 4, seed=place) for kind in ("shared", "unique")} for place in range(2)]
        step = Step(config, config.variant("fedcvt"), "multiclass", heads, codes, shared)
        outcome = objective(step, torch.tensor([0, 1][:shared]), torch.tensor([0] * (5 - shared)))
        assert outcome.total.isfinite()
        assert outcome.total.item() == pytest.approx(sum(outcome.terms.values()))
        assert ("fit 0" in outcome.terms) is has_fit
        assert ("fit 1" in outcome.terms) is has_fit


def test_losses_of_rows_by_hand() -> None:
    two = row_losses("binary", torch.tensor([[0.0], [2.0]]), torch.tensor([1.0, 0.0]))
    assert two.tolist() == pytest.approx([math.log(2), math.log(1 + math.exp(2))], rel=1e-6)
    three = row_losses("multiclass", torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([2]))
    assert three.tolist() == pytest.approx([math.log(3)], rel=1e-6)
    number = row_losses("regression", torch.tensor([[3.0]]), torch.tensor([1.0]))
    assert number.tolist() == [4.0]
