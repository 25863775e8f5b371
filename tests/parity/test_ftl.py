"""Encrypted equals plain: federated transfer learning against autograd of the whole objective in one place.

The reference shares nothing with the product but the agreed facts: which rows are shared, which of them train, which
lend their label, which are in a batch, and the weights that training begins with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.references import order_key
from tests.unit.methods.ftl.worlds import SEED, assert_same_parameters, frames, parameters, roles_of, run_of
from tests.worlds import integers_for_ciphertexts
from torch import nn

import colonnade as cn
from colonnade.nn import mlp
from colonnade.session import derive_seed

STEPS = 20
ROWS, WIDTH = 50, 8

Network = tuple[nn.Sequential, nn.Sequential | None]


def settings(**changes: Any) -> cn.FTL:
    base = {
        "width": WIDTH,
        "iterations": STEPS,
        "tolerance": 0.0,
        "gamma": 0.3,
        "decay": 0.01,
        "safeguard": False,
        "secret_start": False,
        "allow_leak": True,
        "key_size": "insecure_test",
    }
    return cn.FTL(**{**base, **changes})


class Central:
    """All tables in one place, and one objective for all encoders."""

    def __init__(self, found: dict[str, pd.DataFrame], config: cn.FTL, modules: dict[str, nn.Module]) -> None:
        self.config, self.found, self.modules = config, found, modules
        roles = roles_of(list(found))
        self.links = [(source, target) for source in roles["source"] for target in roles["target"]]
        held: dict[str, set[int]] = {party: set() for party in found}
        self.rows: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
        for source, target in self.links:
            ids = set(found[source]["id"]) & set(found[target]["id"])
            agreed = sorted(ids, key=lambda one: order_key(one, derive_seed(SEED, "alignment")))
            count = len(agreed)
            order = np.random.Generator(np.random.PCG64(derive_seed(SEED, "split"))).permutation(count)
            out = round(count * 0.2) + round(count * 0.1)
            train, rest = np.sort(order[out:]), order[:out]
            assert len(train) == ROWS
            places = [[list(found[party]["id"]).index(one) for one in agreed] for party in (source, target)]
            self.rows[source, target] = ([places[0][i] for i in train], [places[1][i] for i in train])
            for party, where in zip((source, target), places, strict=True):
                held[party] |= {where[i] for i in rest}
        self.used = {party: [i for i in range(len(found[party])) if i not in held[party]] for party in found}
        self.columns = {party: self._columns(party) for party in found}
        labels = {party: self._targets(found[party]["y"].to_numpy(), self.used[party]) for party in roles["source"]}
        self.targets = {party: torch.from_numpy(values) for party, values in labels.items()}
        self.networks: dict[tuple[str, str], Network] = {}
        for source, target in self.links:
            if (source, "") not in self.networks:
                self.networks[source, ""] = self._network(source, "")
            self.networks[target, source] = self._network(target, source)

    def _columns(self, party: str) -> torch.Tensor:
        values = self.found[party].drop(columns=["id", "y"], errors="ignore").to_numpy(float)
        fitted = values[self.used[party]]
        return torch.from_numpy(np.clip((values - fitted.mean(0)) / fitted.std(0), -10, 10))

    def _targets(self, labels: np.ndarray, used: list[int]) -> np.ndarray:
        if labels.dtype.kind == "f":
            return ((labels - labels[used].mean()) / labels[used].std())[:, None]
        if len(np.unique(labels)) == 2:
            return (2.0 * labels - 1.0)[:, None]
        return 2.0 * np.eye(len(np.unique(labels)))[labels] - 1.0

    def _network(self, party: str, partner: str) -> Network:
        config, where = self.config, f"/{partner}" if partner else ""
        inputs = self.columns[party].shape[1]
        encoder = mlp(
            (inputs, *config.hidden, config.width),
            seed=derive_seed(SEED, f"encoder{where}/{party}"),
            activation=config.activation,
            activate_output=True,
            dtype=torch.float64,
        )
        if party in self.modules:
            encoder = self.modules[party].to(torch.float64)  # type: ignore[assignment]
        decoder = None
        if config.reconstruction:
            seed = derive_seed(SEED, f"decoder{where}/{party}")
            decoder = mlp((config.width, inputs), seed=seed, dtype=torch.float64)
        return encoder, decoder

    def train(self) -> dict[str, np.ndarray]:
        config = self.config
        trained = [
            parameter
            for encoder, decoder in self.networks.values()
            for layer in (*self._trained(encoder), *(() if decoder is None else [decoder]))
            for parameter in layer.parameters()
        ]
        optimizer = getattr(torch.optim, config.optimizer)(trained, lr=config.learning_rate)
        self.losses = []
        for iteration in range(config.iterations):
            optimizer.zero_grad()
            loss = self.objective(iteration)
            loss.backward()
            self.losses.append(float(loss.detach()))
            optimizer.step()
        return {
            f"{party}: {partner + '/' if partner else ''}encoder.{name}": value.detach().numpy()
            for (party, partner), (encoder, _) in self.networks.items()
            for name, value in self._names(encoder)
        }

    def _trained(self, encoder: nn.Sequential) -> list[nn.Module]:
        linears = [layer for layer in encoder if isinstance(layer, nn.Linear)]
        return list(linears[-self.config.trained_layers :])

    def _names(self, encoder: nn.Sequential) -> list[tuple[str, torch.Tensor]]:
        found = []
        for place, layer in enumerate(self._trained(encoder)):
            found += [(f"linears.{place}.weight", layer.weight), (f"linears.{place}.bias", layer.bias)]
        return found

    def objective(self, iteration: int) -> torch.Tensor:
        config, total = self.config, torch.zeros((), dtype=torch.float64)
        for (party, _), (encoder, decoder) in self.networks.items():
            for layer in self._trained(encoder):
                total = total + config.decay / 2 * (layer.weight**2).sum()
            if decoder is not None:
                rows = self.columns[party][self._rebuilt(party)]
                error = ((decoder(encoder(rows)) - rows) ** 2).mean()
                total = total + config.reconstruction * error
        for source, target in self.links:
            total = total + self._link(source, target, iteration)
        return total

    def _rebuilt(self, party: str) -> list[int]:
        """Rows of a source that are held out for one target may be trained on with another, without their labels."""
        more = {row for (source, _), rows in self.rows.items() if source == party for row in rows[0]}
        return sorted({*self.used[party], *more})

    def _link(self, source: str, target: str, iteration: int) -> torch.Tensor:
        config, targets = self.config, self.targets[source]
        encoder = self.networks[source, ""][0]
        own = encoder(self.columns[source][self.used[source]])
        y = targets[self.used[source]]
        translator = (y - y.mean(0)).T @ own / len(y)
        at, bt = (np.array(rows) for rows in self.rows[source, target])
        may = np.isin(at, self.used[source])
        candidates = np.flatnonzero(may)
        generator = np.random.default_rng(derive_seed(SEED, f"labelled/{target}/{source}"))
        chosen = np.zeros(len(at), dtype=bool)
        chosen[generator.permutation(candidates)[: config.labelled_rows or len(candidates)]] = True
        scale, gamma = 1.0 / chosen.sum(), config.gamma * chosen.sum() / len(at)
        if config.batch_size:
            generator = np.random.default_rng(derive_seed(SEED, f"batches/{target}", iteration))
            batch = np.sort(generator.choice(len(at), config.batch_size, replace=False))
            scale = scale * len(at) / config.batch_size
            at, bt, chosen = at[batch], bt[batch], chosen[batch]
        u_a = encoder(self.columns[source][at])
        u_b = self.networks[target, source][0](self.columns[target][bt])
        scores = (u_b - own.mean(0)) @ translator.T
        margin = (targets[at] * scores)[chosen]
        if targets.dtype == torch.float64 and config.loss == "taylor" and config.task != "regression":
            supervised = (np.log(2) - margin / 2 + margin**2 / 8).sum()
        else:
            supervised = ((targets[at] - scores)[chosen] ** 2).sum() / 2
        together = ((u_a - u_b) ** 2).sum() if config.alignment == "distance" else -(u_a * u_b).sum()
        return scale * (supervised + gamma * together)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "as it is": ({}, {}),
    "dot": ({}, {"alignment": "dot"}),
    "squared loss": ({}, {"loss": "squared"}),
    "batches": ({}, {"batch_size": 24}),
    "few labels": ({}, {"labelled_rows": 12}),
    "two layers": ({}, {"hidden": (3,)}),
    "three layers": ({}, {"hidden": (3, 2), "learning_rate": 0.1}),
    "two layers, one of them trained": ({}, {"hidden": (6,), "trained_layers": 1}),
    "tanh": ({}, {"activation": "tanh", "hidden": (3,)}),
    "dot, squared, batches, two layers": (
        {},
        {"alignment": "dot", "loss": "squared", "batch_size": 36, "hidden": (3,)},
    ),
    "nothing rebuilt": ({}, {"reconstruction": 0.0}),
    "another optimizer": ({}, {"optimizer": "SGD", "learning_rate": 1.0}),
    "three classes": ({"task": "multiclass"}, {"hidden": (3,)}),
    "regression": ({"task": "regression"}, {"task": "regression", "hidden": (3,)}),
    "two targets": ({"targets": 2}, {"batch_size": 30}),
    "two targets, two layers": ({"targets": 2}, {"hidden": (3,), "labelled_rows": 20}),
    "two sources": ({"sources": 2}, {"hidden": (3,)}),
    "row gradients revealed": ({}, {"reveal": "rows", "hidden": (3,)}),
    "row gradients revealed, batches": ({}, {"reveal": "rows", "batch_size": 7}),
    "loss at times": ({}, {"loss_every": 3}),
    "loss never": ({}, {"loss_every": 0}),
}


QUICK = (
    "as it is",
    "dot, squared, batches, two layers",
    "three layers",
    "tanh",
    "three classes",
    "regression",
    "two targets, two layers",
    "two sources",
    "row gradients revealed, batches",
    "loss at times",
)


def difference(run: cn.Run, expected: dict[str, np.ndarray]) -> float:
    found = parameters(run)
    assert expected.keys() <= found.keys()
    return max(float(np.abs(found[name] - value).max()) for name, value in expected.items())


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_every_parameter_matches_autograd(name: str) -> None:
    """In exact integers, which equal what is encrypted bit for bit, and in the clear."""
    world, changes = CASES[name]
    if name in QUICK[1:]:
        changes = {**changes, "iterations": 4, "width": 4}
    found, config = frames(**world), settings(**changes)
    central = Central(found, config, {})
    expected = central.train()
    with integers_for_ciphertexts():
        run = run_of(found, config)
    assert difference(run, expected) < 1e-6
    if config.reveal == "gradients":
        clear = run_of(found, settings(**changes, protection="none"))
        assert difference(clear, expected) < 1e-10
    if len(central.links) == 1 and config.loss_every:
        losses = [line["training_loss"] for line in run.history["bank0"] if "training_loss" in line]
        assert np.allclose(losses, central.losses[:: config.loss_every], atol=1e-7)


ENCRYPTED = ("as it is", "dot, squared, batches, two layers", "three classes", "row gradients revealed")


@pytest.mark.parametrize("name", ENCRYPTED)
def test_encrypted_training_equals_its_integer_twin_bit_for_bit(name: str) -> None:
    world, changes = CASES[name]
    found, config = frames(**world), settings(**{**changes, "iterations": 2, "width": 4})
    run = run_of(found, config)
    with integers_for_ciphertexts():
        twin = run_of(found, config)
    assert_same_parameters(run, twin)
    assert [line.get("training_loss") for line in run.history["bank0"]] == [
        line.get("training_loss") for line in twin.history["bank0"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_setting_equals_its_integer_twin_bit_for_bit(name: str) -> None:
    world, changes = CASES[name]
    found, config = frames(**world), settings(**changes)
    run = run_of(found, config)
    with integers_for_ciphertexts():
        assert_same_parameters(run, run_of(found, config))


@pytest.mark.slow
def test_training_at_2048_bits_equals_autograd_and_the_integer_twin() -> None:
    found, config = frames(), settings(key_size=2048)
    run = run_of(found, config)
    assert difference(run, Central(found, config, {}).train()) < 1e-6
    with integers_for_ciphertexts():
        assert_same_parameters(run, run_of(found, config))


def test_a_module_of_ones_own_matches_autograd() -> None:
    found = frames()

    def module() -> nn.Sequential:
        torch.manual_seed(3)
        last = (nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, WIDTH), nn.Tanh())
        return nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), *last)

    config = settings(reconstruction=0.0, hidden=(3,), trained_layers=2)
    with integers_for_ciphertexts():
        run = run_of(found, config, modules={"shop0": module()})
    expected = Central(found, config, {"shop0": module()}).train()
    assert difference(run, expected) < 1e-6
    body = module()
    untouched = run.parts["shop0"].tensors["bank0/encoder.body.0.weight"]
    assert torch.equal(untouched, body[0].weight.detach().to(torch.float64))


def test_a_user_module_without_the_layers_we_need_is_refused() -> None:
    found = frames()
    for module in (
        nn.Sequential(nn.Linear(4, WIDTH)),
        nn.Sequential(nn.Linear(4, WIDTH), nn.ReLU()),
        nn.Sequential(nn.Linear(4, WIDTH, bias=False), nn.Sigmoid()),
        nn.Sequential(nn.Linear(4, 3), nn.Sigmoid()),
        nn.Sequential(nn.Linear(5, WIDTH), nn.Sigmoid()),
        nn.Linear(4, WIDTH),
    ):
        with pytest.raises(cn.errors.ConfigError, match=r"module|encoder"):
            run_of(found, settings(iterations=1), modules={"shop0": module})


@pytest.mark.slow
def test_encrypted_validation_finds_what_its_integer_twin_finds() -> None:
    found, config = frames(), settings(width=3, iterations=3, folds=3, hidden=(2,))
    run = run_of(found, config, stage="validate")
    with integers_for_ciphertexts():
        twin = run_of(found, config, stage="validate")
    ours, theirs = (dict(one.findings["validation of shop0"].values["folds"]) for one in (run, twin))
    # The regression's secret shares are rounded at random.
    assert np.allclose(ours.pop("self-learning"), theirs.pop("self-learning"), atol=0.1)
    assert ours == theirs


def test_inputs_far_out_are_cut_off_at_ten_deviations_and_still_match_autograd() -> None:
    found = frames()
    for party in found:
        found[party].iloc[::9, 0] = 1e6
        found[party].iloc[1, 1] = -1e9
    config = settings(iterations=4, hidden=(3,))
    with integers_for_ciphertexts():
        run = run_of(found, config)
    assert difference(run, Central(found, config, {}).train()) < 1e-6
