"""Federated equals central: FedCVT against `tests.fedcvt_reference`, where one process has all rows.

The two share nothing but facts: encoded columns, networks as they were drawn, and which rows each step takes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from tests import fedcvt_reference as central
from tests.unit.methods.fedcvt.worlds import (
    Watched,
    fixed_secret,
    frames,
    run_of,
    settings,
    watched,
    whole_weights,
)
from tests.worlds import integers_for_ciphertexts, received
from torch import nn

import colonnade as cn
from colonnade.methods.fedcvt import watch
from colonnade.methods.fedcvt.open_cut import CodeSender
from colonnade.privacy import RowBudget, clip_rows

STEPS = 20
F64 = torch.float64


class Nothing(nn.Module):
    """An encoder of a kind of code that is not used."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs[:, :0]


class Blocks(nn.Module):
    """A linear head whose weights belong to several parties."""

    def __init__(self, blocks: Sequence[torch.Tensor], bias: torch.Tensor) -> None:
        super().__init__()
        self.blocks = nn.ParameterList([nn.Parameter(one.clone()) for one in blocks])
        self.bias = nn.Parameter(bias.clone())

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        parts = torch.split(codes, [one.shape[1] for one in self.blocks], dim=1)
        return sum((part @ one.T for part, one in zip(parts, self.blocks, strict=True)), self.bias)


def reference_settings(config: cn.FedCVT, task: str, steps_per_epoch: int) -> central.Settings:
    is_sealed = config.level == 2
    return central.Settings(
        pull=0.0 if is_sealed else config.pull,
        fit_label_party=config.own_fit,
        fit_feature_party=config.partner_fit,
        orthogonal_label_party=config.own_orthogonality,
        orthogonal_feature_party=config.partner_orthogonality,
        temperature=config.temperature,
        threshold=config.threshold,
        task=task,
        self_mask=config.self_mask,
        # Of a single kind of code there is no pair; this form bears an empty one.
        orthogonality=config.orthogonality if config.codes == "both" else "dsn",
        pair_reduction=config.pair_reduction,
        anchored=is_sealed or config.attention == "anchored",
        detached=is_sealed or config.detached,
        pseudo_from_step=config.warmup_epochs * steps_per_epoch if config.pseudo_labels else None,
        tolerance=config.agreement,
        estimated_weight=config.estimated_weight,
    )


def batches_of(found: Watched) -> list[central.Batch]:
    every = [found.steps[party] for party in found.parties]
    return [
        central.Batch([one[0].tolist() for one in step], [one[1].tolist() for one in step])
        for step in zip(*every, strict=True)
    ]


def encoders_of(found: Watched, kind: str) -> list[nn.Module]:
    return [
        copy.deepcopy(found.encoders[party][kind]) if kind in found.encoders[party] else Nothing()
        for party in found.parties
    ]


def compared(found: Watched, networks: central.Networks) -> dict[str, torch.Tensor]:
    """Return the reference's encoders under the names of the product's parts."""
    return {
        f"{party}: fedcvt/encoders.{kind}.{name}": value
        for kind in ("shared", "unique")
        for party, module in zip(found.parties, getattr(networks, kind), strict=True)
        for name, value in module.state_dict().items()
    }


def parameters(run: cn.Run) -> dict[str, torch.Tensor]:
    return {f"{party}: {name}": one for party, part in run.parts.items() for name, one in part.tensors.items()}


@pytest.fixture(autouse=True)
def _trusted_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never switch labels of partners' rows off, as the reference does not either; begin alike in every run."""
    monkeypatch.setattr(watch, "largest_share", lambda share: math.inf)
    fixed_secret(monkeypatch)


# Level 0

CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "the paper's attention": ("multiclass", 2, {"threshold": 0.36}),
    "anchored and detached": ("multiclass", 2, {"threshold": 0.36, "attention": "anchored", "detached": True}),
    "anchored": ("multiclass", 2, {"threshold": 0.36, "attention": "anchored"}),
    "gram": ("multiclass", 2, {"threshold": 0.36, "orthogonality": "gram"}),
    "dsn, mean of pairs": ("multiclass", 2, {"threshold": 0.36, "orthogonality": "dsn", "pair_reduction": "mean"}),
    "estimates count less": ("multiclass", 2, {"threshold": 0.36, "estimated_weight": 0.2}),
    "without self-mask": ("multiclass", 2, {"threshold": 0.36, "self_mask": False}),
    "two classes": ("binary", 2, {"threshold": 0.52}),
    "numbers": ("regression", 2, {"agreement": 0.4}),
    "three parties": ("binary", 3, {"threshold": 0.5}),
    "three parties, numbers, anchored": ("regression", 3, {"agreement": 0.8, "attention": "anchored"}),
    "unique codes only": ("regression", 2, {"agreement": 0.4, "codes": "unique"}),
    "shared codes only, weight decay": ("multiclass", 2, {"threshold": 0.36, "codes": "shared", "weight_decay": 0.01}),
    "hidden layer, SGD": ("binary", 2, {"threshold": 0.52, "hidden": (6,), "optimizer": "SGD", "learning_rate": 0.1}),
    "no pseudo-labels": ("multiclass", 2, {"pseudo_labels": False}),
}


def open_reference(found: Watched, config: cn.FedCVT, task: str) -> tuple[central.Networks, list[central.Terms]]:
    heads = copy.deepcopy(found.heads)
    assert isinstance(heads, nn.ModuleDict)
    networks = central.Networks(
        encoders_of(found, "shared"),
        encoders_of(found, "unique"),
        [heads[f"party{place}"] for place in range(len(found.parties))],
        heads["joint"],
    )
    optimizers = [
        getattr(torch.optim, config.optimizer)(
            networks.party(place), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        for place in range(len(found.parties))
    ]
    batches = batches_of(found)
    about = reference_settings(config, task, len(batches) // config.epochs)
    tables = [found.features[party] for party in found.parties]
    return networks, central.train(networks, tables, found.targets, batches, about, optimizers)


def check_open(name: str) -> None:
    task, parties, changes = CASES[name]
    config = settings(**changes)
    with watched() as found:
        run = run_of(frames(task, parties), config)
    assert all(len(steps) == STEPS for steps in found.steps.values())
    networks, history = open_reference(found, config, task)
    if config.pseudo_labels:
        kept = torch.cat([torch.cat(one.kept) for one in history[config.warmup_epochs * 5 :]])
        assert 0 < kept.sum() < len(kept), "some rows get a label, and some do not"
        assert not any(one["off"] for one in run.findings["pseudo-labels"].values["epochs"])
    expected = compared(found, networks)
    for place, head in enumerate(networks.heads):
        expected |= {f"bank: fedcvt/heads.party{place}.{key}": value for key, value in head.state_dict().items()}
    expected |= {f"bank: fedcvt/heads.joint.{key}": value for key, value in networks.joint.state_dict().items()}
    made = {key: value for key, value in parameters(run).items() if "anchors" not in key}
    assert made.keys() == expected.keys()
    for key, value in expected.items():
        assert (made[key] - value).abs().max() < 1e-9, key
    check_situations(found, networks, config, task, 1e-9)


def check_situations(found: Watched, networks: central.Networks, config: cn.FedCVT, task: str, limit: float) -> None:
    """Compare the scores of test rows with all views, and with those of one party only."""
    about = reference_settings(config, task, 5)
    anchors = [found.features[party][torch.from_numpy(found.tables[party].anchors)] for party in found.parties]
    tests = [found.features[party][torch.from_numpy(found.tables[party].test)] for party in found.parties]
    nobody = [one[:0] for one in anchors]
    for situation in ("shared", *found.parties):
        given = [
            one if situation in ("shared", party) else None for party, one in zip(found.parties, tests, strict=True)
        ]
        with torch.no_grad():
            joint, heads = central.predict(networks, given, anchors, nobody, about)
        outputs = found.outputs[situation]
        assert (outputs["fedcvt"][1] - joint).abs().max() < limit, situation
        if situation != "shared":
            own = heads[found.parties.index(situation)]
            assert (outputs["fedcvt, its own head"][1] - own).abs().max() < limit, situation


LATER = ("anchored", "without self-mask", "three parties, numbers, anchored", "hidden layer, SGD", "no pseudo-labels")


def named(cases: Iterable[str]) -> list[Any]:
    """Return cases, those marked that are much like others."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in LATER else name for name in cases]


@pytest.mark.parametrize("name", named(CASES))
def test_every_parameter_equals_central_training_after_20_steps(name: str) -> None:
    """Check 2 of the sheet."""
    check_open(name)


def test_shared_rows_of_a_step_are_the_same_customers_at_all_parties() -> None:
    """The reference takes every party's own list; that they fit together is checked here."""
    tables = frames("multiclass", 3)
    with watched() as found:
        run_of(tables, settings(epochs=2))
    ids = {
        party: [tables[party]["id"].to_numpy()[shared] for shared, _ in found.steps[party]] for party in found.parties
    }
    for bank, shop, telco in zip(*ids.values(), strict=True):
        assert (bank == shop).all()
        assert (bank == telco).all()
        assert (bank < 60).all()
    for party in found.parties:
        own = np.concatenate([tables[party]["id"].to_numpy()[rows] for _, rows in found.steps[party]])
        assert (own >= 60).all()
    assert len({tuple(one) for one in ids["bank"]}) == len(ids["bank"])


def test_two_runs_of_one_seed_are_the_same_bit_for_bit() -> None:
    one, two = (parameters(run_of(frames(), settings(precision="float32", epochs=2))) for _ in range(2))
    assert all(torch.equal(value, two[key]) for key, value in one.items())


# Level 2

# 2 batches of 25 of the bank's own rows make an epoch.
SEALED: dict[str, Any] = {"level": 2, "least_keys": 0.0, "threshold": 0.34, "own_batch_size": 30, "epochs": 5}
SEALED_OWN = {"shop": 60, "telco": 60}


@contextmanager
def enough_kept(columns: int) -> Iterator[None]:
    """Let the reference, too, keep no row where so few would be kept that their attention could be worked out."""
    original = central.agreed

    def agreed(outputs: Sequence[torch.Tensor], about: central.Settings) -> tuple[torch.Tensor, torch.Tensor]:
        keep, labels = original(outputs, about)
        return keep & (int(keep.sum()) > 2 * columns), labels

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(central, "agreed", agreed)
        yield


@contextmanager
def spread_keys(least: float) -> Iterator[None]:
    """Let the reference, too, raise the temperature of rows of feature parties whose attention is too sharp."""

    def weights(queries: torch.Tensor, keys: torch.Tensor, temperature: float) -> torch.Tensor:
        logits = (queries @ keys.T / (math.sqrt(queries.shape[1]) * temperature)).detach()
        rows = []
        for row in logits:
            for rises in range(25):
                found = torch.softmax(row / 1.5**rises if rises < 24 else 0.0 * row, 0)
                if math.exp(-float(torch.xlogy(found, found).sum())) >= least:
                    break
            rows.append(found)
        return torch.stack(rows)

    def estimated(rows: central.Codes, keys: central.Codes, values: central.Codes, temperature: float) -> central.Codes:
        return central.Codes(
            weights(rows.shared, keys.shared, temperature) @ values.shared,
            weights(rows.unique, keys.unique, temperature) @ values.unique,
        )

    original = central._completed

    def completed(present: int, both: Any, settings: central.Settings) -> list[central.Codes]:
        if present == 0:
            return original(present, both, settings)
        rows = both[present][1]
        return [
            rows if party == present else estimated(rows, both[present][0], one[0], settings.temperature)
            for party, one in enumerate(both)
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(central, "_completed", completed)
        yield


def sealed_reference(found: Watched, config: cn.FedCVT, task: str, outputs: int) -> tuple[central.Networks, Any]:
    """Train with the weights of feature parties' codes under SGD with momentum, everything else as before."""
    own = copy.deepcopy(found.heads)
    assert own is not None
    width = config.shared_width + config.unique_width
    bank, partners = found.parties[0], found.parties[1:]
    opened = []
    for place, party in enumerate(partners):
        kinds = whole_weights(found.shares[party], found.shares[bank][place], 2 * outputs)
        opened.append(torch.from_numpy(np.concatenate(kinds)).T)
    joint = Blocks([own.own["joint"].weight, *(one[outputs:] for one in opened)], own.own["joint"].bias)
    heads: list[nn.Module] = [Blocks([own.own["party0"].weight], own.own["party0"].bias)]
    heads += [Blocks([one[:outputs]], torch.zeros(outputs, dtype=F64)) for one in opened]
    assert joint.blocks[1].shape == (outputs, width)
    networks = central.Networks(encoders_of(found, "shared"), encoders_of(found, "unique"), heads, joint)
    slow = [*joint.blocks[1:], *(head.blocks[0] for head in heads[1:])]
    others = [one for one in networks.everything() if not any(one is other for other in slow)]
    optimizers = [
        torch.optim.Adam(others, lr=config.learning_rate),
        torch.optim.SGD(slow, lr=config.head_rate, momentum=config.head_momentum),
    ]
    batches = batches_of(found)
    about = reference_settings(config, task, len(batches) // config.epochs)
    if len(found.parties) > 2 or config.sealed_fit == "off":
        about = central.Settings(**{**vars(about), "fit_label_party": 0.0, "fit_feature_party": 0.0})
    tables = [found.features[party] for party in found.parties]
    return networks, central.train(networks, tables, found.targets, batches, about, optimizers)


def check_sealed(
    task: str, parties: int, config: cn.FedCVT, *, is_real: bool = False, binds: bool = False, **world: Any
) -> None:
    with watched() as found, nullcontext() if is_real else integers_for_ciphertexts():
        run = run_of(frames(task, parties, **{"own": SEALED_OWN, **world}), config)
    assert all(len(steps) == STEPS for steps in found.steps.values())
    outputs = int(run.parts["bank"].document["outputs"])
    with enough_kept(outputs * parties), spread_keys(config.least_keys) if binds else nullcontext():
        networks, history = sealed_reference(found, config, task, outputs)
    kept = torch.cat([torch.cat(one.kept) for one in history])
    assert 0 < kept.sum() < len(kept)
    expected = compared(found, networks)
    made = parameters(run)
    for key, value in expected.items():
        assert (made[key] - value).abs().max() < 1e-3, key
    states = {party: part.document["parts"]["fedcvt"]["shares"] for party, part in run.parts.items()}
    for place, party in enumerate(found.parties[1:], start=1):
        found_weights = np.concatenate(whole_weights(states[party], states["bank"][place - 1], 2 * outputs)).T
        wanted = torch.cat([networks.heads[place].blocks[0], networks.joint.blocks[place]]).detach().numpy()
        assert np.abs(found_weights - wanted).max() < 1e-3
    if not binds:
        check_situations(found, networks, config, task, 1e-4)


def test_encrypted_parameters_and_scores_equal_central_training() -> None:
    """Check 3 of the sheet, with real ciphertexts under a short key."""
    narrow = {"shared_width": 3, "unique_width": 3, "threshold": 0.5, "own_batch_size": 10, "epochs": 10}
    check_sealed("binary", 2, settings(**{**SEALED, **narrow}), is_real=True, shared=30, own={"bank": 20, "shop": 20})


SEALED_CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "two classes": ("binary", 2, {"threshold": 0.52}),
    "numbers": ("regression", 2, {"agreement": 0.4}),
    "three parties": ("multiclass", 3, {}),
    "estimates count less, mean of pairs": ("multiclass", 2, {"estimated_weight": 0.2, "pair_reduction": "mean"}),
    "without fit": ("multiclass", 2, {"sealed_fit": "off"}),
    "without self-mask": ("multiclass", 2, {"self_mask": False, "temperature": 1.0}),
}


@pytest.mark.parametrize("name", named(SEALED_CASES))
def test_encrypted_variants_equal_central_training(name: str) -> None:
    """Check 3, with all arithmetic but the encryption itself."""
    task, parties, changes = SEALED_CASES[name]
    check_sealed(task, parties, settings(**{**SEALED, **changes}))


def test_attention_spread_over_enough_rows_equals_central_training_with_the_same_rule() -> None:
    config = settings(**{**SEALED, "least_keys": 9.0, "temperature": 0.1})
    check_sealed("multiclass", 2, config, binds=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_encrypted_with_a_key_of_2048_bits_equals_central_training() -> None:
    check_sealed("multiclass", 2, settings(**SEALED, key_size=2048), is_real=True)


def test_neither_share_alone_tells_the_weights() -> None:
    """Check 3: over many weights, neither the bank's share nor the shop's correlates with their sum."""
    wide = {"shared_width": 192, "unique_width": 192, "epochs": 1, "sealed_fit": "off"}
    with integers_for_ciphertexts():
        run = run_of(frames(), settings(**{**SEALED, **wide}))
    owner = run.parts["shop"].document["parts"]["fedcvt"]["shares"]
    (partner,) = run.parts["bank"].document["parts"]["fedcvt"]["shares"]
    theta = np.concatenate([one.reshape(-1) for one in whole_weights(owner, partner, 6)])
    assert len(theta) == 2304
    assert 0.01 < np.abs(theta).max() < 10
    for held in (owner, partner):
        share = np.concatenate([[float(int(each)) for each in kind["share"]] for kind in held])
        assert abs(np.corrcoef(share, theta)[0, 1]) < 0.1, "its deviation is 1 / sqrt(2304) = 0.021"


# Level 1


def test_noised_codes_are_clipped_and_carry_noise_of_the_agreed_size() -> None:
    config = settings(level=1, clip=0.7, noise=1.5, epochs=4)
    sent: list[tuple[np.ndarray, np.ndarray]] = []
    original = CodeSender.noised

    def noised(sender: CodeSender, values: torch.Tensor, *rest: Any) -> torch.Tensor:
        found = original(sender, values, *rest)
        sent.append((clip_rows(values.detach().numpy(), config.clip), found.numpy()))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CodeSender, "noised", noised)
        run = run_of(frames(), config, launch=cn.Launch(keep_views=True))
    noise = np.concatenate([(found - clipped).reshape(-1) for clipped, found in sent]) / (0.7 * 1.5)
    assert abs(noise.mean()) < 4 / math.sqrt(len(noise))
    assert abs(noise.std() - 1.0) < 3 / math.sqrt(len(noise))
    assert max(np.linalg.norm(clipped, axis=1).max() for clipped, _ in sent) < 0.7 + 1e-12
    crossed = [one.values.numpy() for one in received(run, "bank", "Codes")]
    crossed += [one.values.numpy() for one in received(run, "bank", "HeldOutCodes")]
    assert len(crossed) == len(sent)
    for (_, made), got in zip(sent, crossed, strict=True):
        assert np.array_equal(made, got), "what is computed is what crosses"


def test_gradients_of_noised_codes_go_straight_through() -> None:
    """The feature party learns as if its codes had crossed as they are, from the gradient at what crossed."""
    config = settings(level=1, epochs=1, partner_orthogonality=0.0, optimizer="SGD", learning_rate=0.1)
    with watched() as found:
        run = run_of(frames(), config, launch=cn.Launch(keep_views=True))
    encoders = copy.deepcopy(found.encoders["shop"])
    optimizer = torch.optim.SGD(encoders.parameters(), lr=0.1)
    gradients = received(run, "shop", "CodeGradient")
    assert len(gradients) == len(found.steps["shop"])
    for (shared, own), one in zip(found.steps["shop"], gradients, strict=True):
        batch = found.features["shop"][torch.from_numpy(np.concatenate([shared, own]))]
        optimizer.zero_grad()
        codes = torch.cat([encoders["shared"](batch), encoders["unique"](batch)], dim=1)
        codes.backward(one.values)
        optimizer.step()
    for name, value in encoders.state_dict().items():
        assert (run.parts["shop"].tensors[f"fedcvt/encoders.{name}"] - value).abs().max() < 1e-12


@pytest.mark.parametrize(("epochs", "noise", "delta"), [(1, 1.0, 1e-5), (3, 4.0, 1e-6)])
def test_epsilon_is_that_of_the_row_released_most_often(epochs: int, noise: float, delta: float) -> None:
    """By the sheet: replace-one, 2 alpha k C^2 / sigma^2, converted by log(1 / delta) / (alpha - 1)."""
    config = settings(level=1, epochs=epochs, noise=noise, delta=delta)
    with watched() as found:
        run = run_of(frames(), config)
    table = found.tables["shop"]
    counts = np.zeros(len(found.features["shop"]), dtype=int)
    for shared, own in found.steps["shop"]:
        np.add.at(counts, np.concatenate([shared, own]), 1)
    counts[table.validation] += epochs + 1
    counts[table.test] += 1
    counts[table.anchors] += 1
    values = run.findings["privacy budget"].values
    assert values["releases"] == counts.max()
    orders = np.linspace(1.0001, 200.0, 2_000_000)
    divergence = 2.0 * counts.max() / noise**2
    least = (divergence * orders + math.log(1 / delta) / (orders - 1)).min()
    assert values["epsilon"] == pytest.approx(least, rel=1e-5)


def test_the_sheets_example_of_a_budget() -> None:
    budget = RowBudget(clip=1.0, sigma=10.0)
    for _ in range(10):
        budget.released(np.arange(3))
    assert budget.epsilon(1e-5) == pytest.approx(3.2, abs=0.05)
