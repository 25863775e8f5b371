"""Who knows a network's first weights works out what it was fed. By default nobody else does.

Each attack knows the run's seed and the schema, as every party does, and plays twice: with first weights that follow
from the seed, where it must succeed, and with the shipped default, where the same code must find nothing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.unit.methods.ftl import worlds as ftl_worlds
from tests.unit.methods.ftl.test_guard import Source
from tests.unit.methods.ftl.test_guard import source as source  # a fixture
from tests.unit.methods.prada import worlds as prada_worlds
from tests.worlds import integers_for_ciphertexts, received

import colonnade as cn
from colonnade.data import batches
from colonnade.methods.ftl import train as ftl_train
from colonnade.methods.ftl.encoder import build_encoder as build_ftl_encoder
from colonnade.methods.prada.school import School
from colonnade.methods.splitnn.network import LabelDefence, OwnEncoder, build_encoder, build_head
from colonnade.session import Session, derive_seed
from colonnade.training import Inputs

SEED = 7
ROWS = 300


@pytest.fixture(autouse=True)
def _same_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the same secrets whenever these tests run, as a wrong guess may come close by chance."""
    drawn: Counter[str] = Counter()

    def secret(session: Session) -> bytes:
        drawn[session.party] += 1
        return hashlib.sha256(f"{session.party} {drawn[session.party]}".encode()).digest()

    monkeypatch.setattr(Session, "_durable_secret", secret)


def tables(label: str = "binary") -> dict[str, cn.PartyTable]:
    generator = np.random.default_rng(0)
    own, other = generator.normal(size=(ROWS, 3)), generator.normal(size=(ROWS, 2))
    signal = own.sum(1) + other.sum(1)
    bank = pd.DataFrame(own, columns=list("abc")).assign(id=np.arange(ROWS))
    bank["y"] = np.where(signal > 0, "yes", "no") if label == "binary" else 50 + 9 * signal
    shop = pd.DataFrame(other, columns=list("de")).assign(id=np.arange(ROWS))
    return {"bank": cn.PartyTable(bank, id="id", label="y"), "shop": cn.PartyTable(shop, id="id")}


def solved(encoder: torch.nn.Module, activations: torch.Tensor, columns: int) -> torch.Tensor:
    """Return inputs that give these activations, row by row, by Levenberg and Marquardt's method from a few starts."""
    kept = [one.double() for one in encoder.state_dict().values()]

    def forward(inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(inputs @ kept[0].T + kept[1])
        return hidden @ kept[2].T + kept[3]

    def derivative(inputs: torch.Tensor) -> torch.Tensor:
        hidden = inputs @ kept[0].T + kept[1]
        return torch.einsum("ch,bh,hi->bci", kept[2], (hidden > 0).double(), kept[0])

    wanted, count = activations.double(), len(activations)
    best, found = torch.full((count,), torch.inf, dtype=torch.float64), torch.zeros(count, columns).double()
    for start in (0.0, 1.2, -1.2):
        inputs = torch.full((count, columns), start, dtype=torch.float64)
        error = ((forward(inputs) - wanted) ** 2).sum(1)
        damping = torch.full((count, 1, 1), 1e-3, dtype=torch.float64)
        for _ in range(40):
            jacobian = derivative(inputs)
            system = jacobian.mT @ jacobian + damping * torch.eye(columns).double()
            step = torch.linalg.solve(system, jacobian.mT @ (forward(inputs) - wanted)[:, :, None])[:, :, 0]
            tried = ((forward(inputs - step) - wanted) ** 2).sum(1)
            better = tried < error
            inputs, error = torch.where(better[:, None], inputs - step, inputs), torch.where(better, tried, error)
            damping = torch.where(better[:, None, None], damping / 3, damping * 4)
        found, best = torch.where((error < best)[:, None], inputs, found), torch.minimum(best, error)
    return found


@pytest.mark.parametrize("settings", [{"secret_start": False}, {}], ids=["public", "shipped"])
def test_a_label_holder_follows_a_known_encoder_from_batch_to_batch(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It solves batch 1 for the partner's columns, repeats the partner's step, solves batch 2, and so on.

    Without splines: with these it has more numbers to find, which all follow from the same columns.
    """
    features: list[torch.Tensor] = []
    give, of = OwnEncoder.give, Inputs.of
    monkeypatch.setattr(Inputs, "of", lambda holding, **how: of(holding, **how | {"splines": False}))

    def kept(own: OwnEncoder, *arguments: Any) -> None:
        features.append(own.features)
        give(own, *arguments)

    monkeypatch.setattr(OwnEncoder, "give", kept)
    config = cn.SplitNN(epochs=1, batch_size=64, minimum_steps=0, dropout=0.0, **settings)
    run = cn.simulate(
        config, tables(), seed=SEED, launch=cn.Launch(keep_views=True), evaluate=cn.Evaluate(stratify=False)
    )
    truth = features[0]
    encoder = build_encoder(config, "shop", 2, derive_seed(SEED, "encoder/shop"))
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=config.learning_rate)
    order = list(batches(run.plan.split(ROWS).train, 64, derive_seed(SEED, "batches", 0)))
    exact: list[bool] = []
    seen = zip(order, received(run, "bank", "CutActivations"), received(run, "shop", "CutGradient"), strict=True)
    for rows, sent, answer in seen:
        guess = solved(encoder, sent.values, 2)
        exact += ((guess - truth[torch.from_numpy(rows)]).abs().max(dim=1).values < 0.02).tolist()
        optimizer.zero_grad()
        encoder(guess.float()).backward(answer.values)
        optimizer.step()
    share = float(np.mean(exact))
    assert len(order) == 4
    assert share > 0.9 if settings else share < 0.02


@pytest.mark.parametrize("settings", [{"secret_start": False}, {}], ids=["public", "shipped"])
def test_a_feature_holder_reads_numbers_to_predict_off_the_first_gradient_of_a_known_head(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their scale and sign, that is: what is left is their order or its reverse, as limits.md says."""
    targets: list[torch.Tensor] = []
    findings = LabelDefence.findings

    def kept(defence: LabelDefence) -> Any:
        targets.append(defence.targets)
        return findings(defence)

    monkeypatch.setattr(LabelDefence, "findings", kept)
    config = cn.SplitNN(epochs=1, batch_size=256, minimum_steps=0, members=1, head_hidden=(), **settings)
    run = cn.simulate(config, tables("regression"), seed=SEED, launch=cn.Launch(keep_views=True))
    (rows,) = batches(run.plan.split(ROWS).train, 256, derive_seed(SEED, "batches", 0))
    truth = targets[0][torch.from_numpy(rows)].double().numpy()
    head = build_head(config, [32, 32], 1, derive_seed(SEED, "head/bank"))
    weights = head.weights[0].detach().double().numpy()[0, 32:, 0]
    gradient = received(run, "shop", "CutGradient")[0].values.double().numpy()
    guess = -(gradient @ weights) / (weights @ weights) * len(rows) / 2
    explained = 1 - ((truth - guess) ** 2).sum() / ((truth - truth.mean()) ** 2).sum()
    assert explained > 0.9 if settings else explained < 0.6


def columns_from_gradient(source: Source, config: cn.FTL, columns: int) -> np.ndarray:
    """Solve the source's first gradient for the target's columns, taking its encoder from the public seed."""
    objective, translator, every, shared = (source.own[name] for name in ("objective", "translator", "every", "shared"))
    slopes, inputs = (torch.tensor(one[-1]) for one in (every.slopes, every.inputs))
    centred, phi, mean = (torch.tensor(one) for one in (translator.centred, translator.phi, translator.mean))
    count, width = len(centred), phi.shape[1]
    weights = torch.tensor(source.own["weights"])
    gradient = torch.tensor(source.answers[0][: width * inputs.shape[1]].reshape(width, -1))
    seed = derive_seed(ftl_worlds.SEED, "encoder/bank0/shop0")
    encoder = build_ftl_encoder(config, "shop0", columns, seed, None).double().requires_grad_(False)
    pull = objective.gamma * objective.kappa * slopes[shared][:, :, None] * inputs[shared][:, None, :]
    by_mean = torch.einsum("ie,ik->ek", slopes[:count], inputs[:count]) / count
    by_score = torch.einsum("is,ie,ik->sek", centred, slopes[:count], inputs[:count]) / count

    def residual(cells: torch.Tensor) -> torch.Tensor:
        codes = encoder(cells.reshape(len(shared), columns))
        scores = codes @ phi.T
        at_phi = (weights + objective.a2 * scores).T @ codes - objective.a2 * scores.sum(0)[:, None] * mean
        at_mean = -(objective.a2 * scores).sum(0) @ phi
        found = torch.einsum("iek,ie->ek", pull, codes) + torch.einsum("se,sek->ek", at_phi, by_score)
        return ((found + at_mean[:, None] * by_mean - gradient) / gradient.abs().mean()).reshape(-1)

    cells = torch.zeros(len(shared) * columns, dtype=torch.float64)
    for prior in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
        for _ in range(30):
            error, jacobian = residual(cells), torch.autograd.functional.jacobian(residual, cells)
            system = jacobian.T @ jacobian + prior**2 * torch.eye(len(cells)).double()
            step = torch.linalg.solve(system, jacobian.T @ error + prior**2 * cells)
            cost = error @ error + prior**2 * cells @ cells
            for factor in (1.0, 0.5, 0.25, 0.1, 0.02):
                tried = (cells - factor * step).clamp(-5, 5)
                after = residual(tried)
                if after @ after + prior**2 * tried @ tried < cost:
                    break
            else:
                break
            cells = tried
    return cells.reshape(len(shared), columns).numpy()


@pytest.mark.parametrize("settings", [{"secret_start": False, "allow_leak": True}, {}], ids=["public", "shipped"])
def test_a_source_solves_its_first_gradient_for_columns_behind_a_known_encoder(
    source: Source, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more than twice as many code entries as equations, as the guard asks, and fewer cells of columns."""
    columns: list[np.ndarray] = []
    target_rows = ftl_train.target_rows

    def kept(*arguments: Any) -> Any:
        rows = target_rows(*arguments)
        columns.append(rows.columns[rows.shared])
        return rows

    monkeypatch.setattr(ftl_train, "target_rows", kept)
    config = cn.FTL(width=8, iterations=1, safeguard=False, key_size="insecure_test", **settings)
    with integers_for_ciphertexts():
        ftl_worlds.run_of(ftl_worlds.frames(shared=43, own=60, columns=(10, 2)), config)
    (truth,) = columns
    guess = columns_from_gradient(source, config, 2)
    explained = 1 - ((truth - guess) ** 2).sum() / ((truth - truth.mean(0)) ** 2).sum()
    assert explained > 0.95 if settings else explained < 0.1


@pytest.mark.parametrize("is_secret", [True, False])
def test_first_weights_of_feature_groups_follow_from_the_seed_only_if_the_run_says_so(
    is_secret: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: list[torch.Tensor] = []
    network = School._network

    def kept(school: School, purpose: str) -> Any:
        built = network(school, purpose)
        first.append(torch.cat([one.detach().reshape(-1).clone() for one in built.parameters()]))
        return built

    monkeypatch.setattr(School, "_network", kept)
    for _ in range(2):
        prada_worlds.run_of(prada_worlds.frames(), prada_worlds.settings(secret_start=is_secret, protection="none"))
    assert torch.equal(first[0], first[-1]) is not is_secret
