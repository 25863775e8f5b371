"""Networks over categorical fields: embeddings, EmbeddingMLP, TabNet, AutoInt."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from colonnade.errors import ConfigError, TableError
from colonnade.nn import (
    AutoInt,
    EmbeddingMLP,
    FieldEmbeddings,
    TabNet,
    find_dropouts,
    reseed_dropout,
    sparsemax,
)

SIZES = (3, 5, 2)
NETWORKS = [EmbeddingMLP, TabNet, AutoInt]


def codes(rows: int = 7, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(size, (rows,), generator=generator) for size in SIZES], dim=1)


def check_gradients(network: nn.Module, taken: torch.Tensor) -> None:
    """Compare the gradient of every parameter with finite differences."""
    names = [name for name, _ in network.named_parameters()]

    def run(*parameters: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(network, dict(zip(names, parameters, strict=True)), (taken,))

    assert torch.autograd.gradcheck(run, tuple(network.parameters()))


def test_every_field_has_a_table_of_its_own() -> None:
    layer = FieldEmbeddings(SIZES, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = layer(torch.tensor([[0, 0, 0], [2, 4, 1]]))
    assert found.shape == (2, 3, 4)
    tables = layer.table.split(SIZES)
    for row, row_codes in enumerate([(0, 0, 0), (2, 4, 1)]):
        for field, code in enumerate(row_codes):
            assert torch.equal(found[row, field], tables[field][code])
    assert list(layer.state_dict()) == ["table"], "only what is learnt is kept"


def test_vectors_are_standard_normal() -> None:
    table = FieldEmbeddings((400,), 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64).table.detach()
    assert float(table.mean()) == pytest.approx(0.0, abs=0.02)
    assert float(table.std()) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("wrong", [[[0, 5, 0]], [[0, -1, 0]], [[0, 0, 0], [0, 9, 0]]])
def test_a_code_outside_its_field_is_refused_by_the_field_not_by_the_value(wrong: list[list[int]]) -> None:
    layer = FieldEmbeddings(SIZES, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    with pytest.raises(TableError, match=r"Field 1 .* outside its 5 codes\. Encode"):
        layer(torch.tensor(wrong))


def test_another_number_of_fields_is_refused() -> None:
    layer = FieldEmbeddings(SIZES, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    with pytest.raises(TableError, match="3 fields were expected but codes of 2 came"):
        layer(torch.zeros(4, 2, dtype=torch.long))


@pytest.mark.parametrize(("sizes", "width"), [((), 4), ((3, 0), 4), ((3,), 0)])
def test_embeddings_of_nothing_are_refused(sizes: tuple[int, ...], width: int) -> None:
    with pytest.raises(ConfigError, match="at least one field"):
        FieldEmbeddings(sizes, width, generator=torch.Generator(), dtype=torch.float32)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_seed_gives_the_same_network_in_either_precision_and_spares_the_global_generator(
    network: Callable[..., nn.Module],
) -> None:
    before = torch.get_rng_state()
    single, again = network(SIZES, 6, seed=3), network(SIZES, 6, seed=3)
    double, other = network(SIZES, 6, seed=3, dtype=torch.float64), network(SIZES, 6, seed=4)
    single(codes())
    assert torch.equal(before, torch.get_rng_state())
    state = single.state_dict()
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in state.items())
    assert all(torch.equal(value, double.state_dict()[name].float()) for name, value in state.items())
    assert not torch.equal(single(codes()), other(codes()))
    assert single(codes()).shape == (7, 6)
    assert single(codes()).dtype == torch.float32


@pytest.mark.parametrize("network", NETWORKS)
def test_a_row_comes_out_the_same_whoever_else_is_in_the_batch(network: Callable[..., nn.Module]) -> None:
    made, rows = network(SIZES, 6, seed=3, dtype=torch.float64), codes(9)
    together = made(rows)
    torch.testing.assert_close(together[4:5], made(rows[4:5]), rtol=0, atol=1e-12)
    torch.testing.assert_close(together.flip(0), made(rows.flip(0)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("network", NETWORKS)
def test_dropout_repeats_by_seed_and_is_silent_in_evaluation(network: Callable[..., nn.Module]) -> None:
    made, plain = network(SIZES, 6, seed=3, dropout=0.3), network(SIZES, 6, seed=3)
    reseed_dropout(find_dropouts([made]), 9)
    first = made(codes())
    assert not torch.equal(first, made(codes()))
    reseed_dropout(find_dropouts([made]), 9)
    assert torch.equal(first, made(codes()))
    assert torch.equal(made.eval()(codes()), plain(codes()))


@pytest.mark.parametrize("network", NETWORKS)
def test_every_parameter_learns(network: Callable[..., nn.Module]) -> None:
    made = network(SIZES, 6, seed=3, dtype=torch.float64)
    made(codes(40)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in made.parameters())


def test_the_embedding_mlp_is_its_layers_in_a_row() -> None:
    made, taken = EmbeddingMLP(SIZES, 4, seed=0, hidden=(5,), embedding_width=2, dtype=torch.float64), codes()
    state = made.state_dict()
    side_by_side = torch.cat([made.embeddings(taken)[:, field] for field in range(3)], dim=1)
    inner = (side_by_side @ state["dense.1.weight"].T + state["dense.1.bias"]).clamp(min=0)
    torch.testing.assert_close(made(taken), inner @ state["dense.4.weight"].T + state["dense.4.bias"])


def test_tabnet_looks_at_few_fields_and_its_decisions_follow_the_paper() -> None:
    made, taken = TabNet(SIZES, 4, seed=0, embedding_width=4, width=5, dtype=torch.float64), codes(50)
    masks = made.masks(taken)
    assert masks.shape == (3, 50, 3)
    torch.testing.assert_close(masks.sum(dim=2), torch.ones(3, 50, dtype=torch.float64))
    assert (masks >= 0).all()
    assert 0.2 < float((masks == 0).double().mean()) < 0.6, "sparse"

    # The paper's steps, row by row and field by field.
    def transform(step: int, values: torch.Tensor) -> torch.Tensor:
        transformer = made.transformers[step]
        for place, layer in enumerate([*made.shared, *transformer.own]):
            wide = layer(values)
            wide = (wide - wide.mean()) / (wide.var(unbiased=False) + 1e-5).sqrt()
            gated = wide[:10] * torch.sigmoid(wide[10:])
            values = gated if place == 0 else (values + gated) / math.sqrt(2.0)
        return values

    for row in range(3):
        fields = made.embeddings(taken[row : row + 1])[0]
        fields = (fields - fields.mean()) / (fields.var(unbiased=False) + 1e-5).sqrt()
        told, left, decision = transform(0, fields.flatten())[5:], [1.0] * 3, torch.zeros(5, dtype=torch.float64)
        for step in range(3):
            logits = made.attentions[step](told)
            mask = sparsemax(torch.stack([left[field] * logits[field] for field in range(3)]))
            torch.testing.assert_close(mask, masks[step, row])
            left = [left[field] * (1.5 - mask[field]) for field in range(3)]
            out = transform(step + 1, torch.cat([mask[field] * fields[field] for field in range(3)]))
            decision, told = decision + out[:5].clamp(min=0), out[5:]
        torch.testing.assert_close(made(taken)[row], made.output(decision))


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"width": 0}, {"relaxation": 0.9}])
def test_tabnet_refuses_settings_that_mean_nothing(wrong: dict) -> None:
    with pytest.raises(ConfigError, match="TabNet needs"):
        TabNet(SIZES, 4, seed=0, **wrong)


def test_autoint_adds_the_fields_themselves_to_what_attention_finds() -> None:
    made = AutoInt(SIZES, 4, seed=0, embedding_width=6, heads=2, head_width=3, layers=1, dtype=torch.float64)
    fields, layer = made.embeddings(codes()), made.layers[0]
    mixed = (layer.attention(fields) + fields @ layer.residual.T).clamp(min=0)
    torch.testing.assert_close(made(codes()), made.output(mixed.reshape(7, 18)))


@pytest.mark.parametrize(
    "network",
    [
        TabNet(SIZES, 2, seed=1, embedding_width=2, width=2, steps=2, dtype=torch.float64),
        AutoInt(SIZES, 2, seed=1, embedding_width=2, heads=2, head_width=2, dtype=torch.float64),
    ],
    ids=["TabNet", "AutoInt"],
)
def test_gradients_are_those_of_finite_differences(network: nn.Module) -> None:
    check_gradients(network, codes(3))
