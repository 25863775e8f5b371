from __future__ import annotations

import pytest
import torch
from torch import nn

from colonnade.errors import ConfigError
from colonnade.nn import (
    Learner,
    SeededDropout,
    balanced_weights,
    find_dropouts,
    make_optimizer,
    mlp,
    reseed_dropout,
    supervised_loss,
)


def test_a_seed_gives_the_same_network_in_either_precision_and_whatever_the_global_generator() -> None:
    torch.manual_seed(1)
    single = mlp((5, 4, 2), seed=3)
    torch.manual_seed(2)
    double = mlp((5, 4, 2), seed=3, dtype=torch.float64)
    for one, other in zip(single.parameters(), double.parameters(), strict=True):
        assert torch.equal(one, other.float())
    before = torch.get_rng_state()
    mlp((5, 4, 2), seed=4)
    assert torch.equal(before, torch.get_rng_state()), "the global generator is left alone"


def test_initial_weights_lie_within_torchs_bounds() -> None:
    weights = mlp((400, 300), seed=0)[0].weight.detach()
    assert weights.abs().max() <= 1 / 20
    assert abs(float(weights.mean())) < 1e-3
    assert float(weights.std()) == pytest.approx(1 / 20 / 3**0.5, rel=0.02)


def test_dropout_repeats_by_seed_and_is_silent_in_evaluation() -> None:
    network = mlp((6, 50, 50, 3), seed=0, dropout=0.4, activate_output=True)
    values = torch.ones(8, 6)
    reseed_dropout(find_dropouts([network]), 9)
    first = network(values)
    assert not torch.equal(first, network(values))
    reseed_dropout(find_dropouts([network]), 9)
    assert torch.equal(first, network(values))
    network.eval()
    assert torch.equal(network(values), network(values))


def test_dropout_keeps_the_mean() -> None:
    layer = SeededDropout(0.25)
    layer.generator.manual_seed(0)
    assert float(layer(torch.ones(100_000)).mean()) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    "name", ["Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop"]
)
def test_a_learner_restored_from_its_state_goes_on_exactly(name: str) -> None:
    def make() -> Learner:
        return Learner({"net": mlp((3, 4, 1), seed=1, dtype=torch.float64)}, name, 0.01, {})

    def train(learner: Learner, steps: range) -> None:
        for step in steps:
            learner.zero_gradients()
            batch = torch.randn(16, 3, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
            supervised_loss("regression", learner.modules["net"](batch), batch.sum(1)).backward()
            learner.step()
            if step == 2:
                learner.keep_best()

    whole, first, second = make(), make(), make()
    train(whole, range(10))
    train(first, range(5))
    tensors, document = first.state()
    second.load_state({key: value.clone() for key, value in tensors.items()}, document)
    train(second, range(5, 10))
    for key, value in whole.weights().items():
        assert torch.equal(value, second.weights()[key])
    whole.restore_best()
    second.restore_best()
    for key, value in whole.weights().items():
        assert torch.equal(value, second.weights()[key])


@pytest.mark.parametrize("sizes", [(3, 1), (3, 4, 1)])
@pytest.mark.parametrize("norm", [0.0, 1e-3, 1e6])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.5}])
def test_a_learner_steps_as_torch_does(sizes: tuple[int, ...], norm: float, options: dict[str, float]) -> None:
    network, other = (mlp(sizes, seed=1, dtype=torch.float64) for _ in range(2))
    learner = Learner({"net": network}, "SGD", 0.1, options)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1, **options)
    for step in range(4):
        if step == 2:
            learner.set_rate(0.02)
            optimizer.param_groups[0]["lr"] = 0.02
        batch = torch.randn(16, 3, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        learner.zero_gradients()
        optimizer.zero_grad()
        for one in (network, other):
            supervised_loss("regression", one(batch), batch.sum(1)).backward()
        if norm:
            learner.clip_gradients(norm)
            nn.utils.clip_grad_norm_(other.parameters(), norm)
        learner.step()
        optimizer.step()
        for one, two in zip(network.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-12, atol=0.0)


def test_a_learner_without_gradients_stays_as_it_is() -> None:
    learner = Learner({"net": mlp((3, 1), seed=1)}, "SGD", 0.1, {})
    before = {name: value.clone() for name, value in learner.weights().items()}
    learner.zero_gradients()
    learner.clip_gradients(1.0)
    learner.step()
    assert all(torch.equal(value, before[name]) for name, value in learner.weights().items())


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("Adan", {}, "Did you mean 'Adam'"),
        ("LBFGS", {}, "does not fit"),
        ("SparseAdam", {}, "does not fit"),
        ("Adam", {"beta": 1}, "no option 'beta'"),
        ("SGD", {"momentum": -1}, "refuses"),
        ("Optimizer", {}, "no optimizer"),
        ("Muon", {}, "weight matrices only.*Use Adam"),
        ("Adam", {"maximize": "a"}, "maximize must be true or false. Got 'a'"),
        ("Adam", {"amsgrad": 1}, "amsgrad must be true or false"),
        ("Adam", {"foreach": "yes"}, "foreach must be true or false"),
        ("Adam", {"differentiable": True}, "differentiable serves no method here. Remove it"),
        ("Adam", {"betas": [0.9]}, "betas must be a list of 2 numbers"),
        ("Adam", {"betas": ["a", 0.9]}, "betas must be a list of 2 numbers"),
        ("Adam", {"weight_decay": True}, "weight_decay must be a number"),
        ("Adam", {"fused": True, "foreach": True}, "refuses its options.*together"),
    ],
)
def test_wrong_optimizers_are_named(name: str, options: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_optimizer(name, [nn.Parameter(torch.ones(2))], 0.1, options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Adam", {"betas": (0.8, 0.9), "amsgrad": True, "foreach": None}),
        ("Adam", {"differentiable": False, "maximize": True}),
        ("Adafactor", {"eps": [None, 1e-3], "d": 1}),
    ],
)
def test_options_of_the_right_kind_are_passed_on(name: str, options: dict) -> None:
    group = make_optimizer(name, [nn.Parameter(torch.ones(2))], 0.1, options).param_groups[0]
    assert {option: group[option] for option in options} == options


def test_what_only_the_first_step_would_refuse_is_refused_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(optimizer: torch.optim.Optimizer) -> None:
        raise RuntimeError("no such step.\nA long story.")

    monkeypatch.setattr(torch.optim.Adamax, "step", step)
    with pytest.raises(ConfigError, match=r"refuses its options: no such step\. Correct"):
        make_optimizer("Adamax", [nn.Parameter(torch.ones(2))], 0.1, {})


def test_balanced_weights_give_every_class_the_same_total() -> None:
    targets = torch.tensor([0, 0, 0, 1, 2, 2])
    weights = balanced_weights(targets, 4)
    totals = [float(weights[k] * (targets == k).sum()) for k in range(4)]
    assert totals == pytest.approx([1.5, 1.5, 1.5, 0.0])


def test_weighted_binary_loss_is_the_weighted_mean() -> None:
    outputs, targets = torch.tensor([[0.3], [-1.2], [2.0]]), torch.tensor([1.0, 0.0, 1.0])
    weights = torch.tensor([0.5, 3.0])
    rows = torch.nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none")
    chosen = torch.tensor([3.0, 0.5, 3.0])
    expected = (rows * chosen).sum() / chosen.sum()
    assert torch.allclose(supervised_loss("binary", outputs, targets, weights), expected)
