"""The split network's settings and networks, beyond what parity and conformance show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.parties import with_modules, with_policies
from torch import nn

import colonnade as cn
from colonnade.errors import (
    CheckpointBroken,
    ConfigError,
    PolicyRefused,
    RoleFailed,
    TableError,
    TrainingFailed,
    WrongContent,
)
from colonnade.methods.splitnn.network import build_encoder, build_head
from colonnade.nn import SeededDropout, mlp
from colonnade.session import Session


def settings(**changes: Any) -> cn.SplitNN:
    """Return settings of runs that repeat."""
    return cn.SplitNN(**{"secret_start": False, "minimum_steps": 0, **changes})


def tables(rows: int = 200, label: str = "binary") -> dict[str, cn.PartyTable]:
    generator = np.random.default_rng(0)
    own, other = generator.normal(size=(rows, 3)), generator.normal(size=(rows, 2))
    signal = own.sum(1) + 2 * other.sum(1)
    values = {
        "binary": np.where(signal > 0, "yes", "no"),
        "multiclass": np.digitize(signal, [-1, 1]),
        "regression": 1000 + 50 * signal,
    }
    bank = pd.DataFrame(own, columns=list("abc")).assign(id=np.arange(rows), y=values[label])
    shop = pd.DataFrame(other, columns=list("de")).assign(id=np.arange(rows))
    return {"bank": cn.PartyTable(bank, id="id", label="y"), "shop": cn.PartyTable(shop, id="id")}


class Normalised(nn.Module):
    """A network with buffers and a residual connection, unlike anything the settings can describe."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.first = nn.Linear(inputs, outputs)
        self.second = nn.Linear(outputs, outputs)
        self.norm = nn.BatchNorm1d(outputs)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.first(values)))
        return hidden + torch.tanh(self.second(hidden))


def test_a_module_of_the_users_own_is_trained_saved_and_used_again(tmp_path: Path) -> None:
    modules = {"shop": Normalised(2, 5), "bank": Normalised(3, 4)}
    before = {name: value.clone() for name, value in modules["shop"].state_dict().items()}
    config = settings(epochs=25, learning_rate=0.02, batch_size=64)
    run = cn.simulate(config, with_modules(tables(), modules), seed=1, folder=tmp_path / "run")

    assert run.metrics["auc"] > 0.9
    assert all(torch.equal(before[name], value) for name, value in modules["shop"].state_dict().items()), (
        "a copy learns"
    )
    assert "encoder.norm.running_mean" in run.parts["shop"].tensors
    loaded = cn.load_run(tmp_path / "run")
    first, again = run.predict(with_modules(tables(), modules)), loaded.predict(with_modules(tables(), modules))
    pd.testing.assert_frame_equal(first, again)
    with pytest.raises(ConfigError, match="module of your own"):
        loaded.predict(tables())


def test_a_module_that_does_not_fit_is_refused_with_what_it_should_take() -> None:
    with pytest.raises(ConfigError, match="cannot take its 2 encoded columns"):
        cn.simulate(settings(epochs=1), with_modules(tables(), {"shop": nn.Linear(7, 3)}))
    with pytest.raises(ConfigError, match="one row"):
        cn.simulate(settings(epochs=1), with_modules(tables(), {"shop": nn.Sequential(nn.Linear(2, 3), nn.Flatten(0))}))
    with pytest.raises(ConfigError, match="differ in shap"):
        cn.simulate(settings(epochs=1), with_modules(tables(), {"shap": nn.Linear(2, 3)}))


def test_each_party_keeps_only_its_own_part(tmp_path: Path) -> None:
    cn.simulate(settings(epochs=2), tables(), folder=tmp_path / "run")
    shop = (tmp_path / "run/shop/model/part.json").read_text()
    assert "label_encoder" not in shop
    assert '"column": "a"' not in shop
    assert not (tmp_path / "run/shop/evaluation.json").exists()
    for path in (tmp_path / "run/shop").rglob("*.json*"):
        text = path.read_text()
        assert '"yes"' not in text, path
        assert '"c"' not in text, path


@pytest.mark.parametrize("label", ["binary", "multiclass", "regression"])
def test_predictions_come_back_in_the_labels_own_terms(label: str) -> None:
    run = cn.simulate(settings(epochs=60, learning_rate=0.02, batch_size=32), tables(label=label), seed=2)
    found = run.predict(tables(label=label)).set_index("id").sort_index()
    truth = tables(label=label)["bank"].labels
    if label == "regression":
        assert np.corrcoef(found["prediction"], truth)[0, 1] > 0.95
        assert abs(found["prediction"].mean() - 1000) < 30
    else:
        assert (found["prediction"].to_numpy() == truth).mean() > 0.85


def test_class_weights_move_the_model_towards_the_rare_class() -> None:
    rows = 600
    generator = np.random.default_rng(1)
    own = generator.normal(size=(rows, 2))
    rare = (own[:, 0] + generator.normal(size=rows) > 1.9).astype(int)
    bank = pd.DataFrame(own, columns=["a", "b"]).assign(id=np.arange(rows), y=rare)
    shop = pd.DataFrame({"c": generator.normal(size=rows), "id": np.arange(rows)})
    both = {"bank": cn.PartyTable(bank, id="id", label="y"), "shop": cn.PartyTable(shop, id="id")}
    plain = cn.simulate(settings(epochs=30), both, seed=1).predict(both)["probability_1"].mean()
    weighted = (
        cn.simulate(settings(epochs=30, class_weights="balanced"), both, seed=1).predict(both)["probability_1"].mean()
    )
    assert weighted > plain + 0.1


def test_divergence_is_named_not_trained_through() -> None:
    config = settings(epochs=30, optimizer="SGD", learning_rate=1e12)
    with pytest.raises((TrainingFailed, WrongContent), match="learning"):
        cn.simulate(config, tables(label="regression"))


def test_the_central_reference_and_the_model_alone_use_the_same_held_out_rows() -> None:
    run = cn.simulate(settings(epochs=30, learning_rate=0.02), tables(), compare=True)
    rows = {name: found.rows for name, found in run.evaluations.items() if name != "average"}
    assert rows == {"together": 40, "alone": 40, "central": 40}
    assert run.evaluations["central"].metrics["auc"] > run.evaluations["alone"].metrics["auc"] + 0.1


def test_a_tampered_part_is_refused(tmp_path: Path) -> None:
    cn.simulate(settings(epochs=1), tables(), folder=tmp_path / "run")
    path = tmp_path / "run/bank/model/part.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointBroken, match="digest"):
        cn.load_run(tmp_path / "run")


def test_a_policy_made_stricter_after_training_stops_prediction() -> None:
    run = cn.simulate(settings(epochs=1), tables())
    with pytest.raises(PolicyRefused, match="never_send"):
        run.predict(with_policies(tables(), {"shop": cn.Policy(never_send=("PLAIN",))}))
    few = {name: table.take(np.arange(3)) for name, table in tables().items()}
    assert len(run.predict(with_policies(few, {"shop": cn.Policy(minimum_shared_rows=100)}))) == 3


def test_a_custom_module_with_seeded_dropout_resumes_exactly(tmp_path: Path) -> None:
    def module() -> nn.Module:
        return nn.Sequential(mlp((2, 8, 4), seed=3), SeededDropout(0.5))

    config = settings(epochs=4, batch_size=32, patience=0)
    whole = cn.simulate(config, with_modules(tables(), {"shop": module()}))
    with pytest.MonkeyPatch.context() as patch:
        original = Session.next_step

        def failing(session: Session) -> None:
            original(session)
            if session.step == 11:
                raise ZeroDivisionError

        patch.setattr(Session, "next_step", failing)
        with pytest.raises(RoleFailed):
            cn.simulate(config, with_modules(tables(), {"shop": module()}), folder=tmp_path / "run")
    resumed = cn.simulate(config, with_modules(tables(), {"shop": module()}), folder=tmp_path / "run")
    for party, part in whole.parts.items():
        for name, value in part.tensors.items():
            assert torch.equal(value, resumed.parts[party].tensors[name])


def test_a_run_with_batches_ahead_resumes_exactly_wherever_it_was_interrupted(tmp_path: Path) -> None:
    config = settings(
        epochs=2, batch_size=28, minimum_steps=0, dropout=0.2, look_ahead=2, checkpoint_every=3, schedule="cosine"
    )
    whole, original = cn.simulate(config, tables()), Session.next_step
    for at, party in ((1, "bank"), (4, "shop"), (5, "bank"), (6, "shop"), (9, "bank")):
        with pytest.MonkeyPatch.context() as patch:

            def failing(session: Session, at: int = at, party: str = party) -> None:
                original(session)
                if session.party == party and session.step == at:
                    raise ZeroDivisionError

            patch.setattr(Session, "next_step", failing)
            with pytest.raises(RoleFailed):
                cn.simulate(config, tables(), folder=tmp_path / str(at))
        resumed = cn.simulate(config, tables(), folder=tmp_path / str(at))
        for name, part in whole.parts.items():
            for key, value in part.tensors.items():
                assert torch.equal(value, resumed.parts[name].tensors[key]), f"interrupted at {at}"


def ids_of(table: cn.PartyTable, **columns: object) -> cn.PartyTable:
    return cn.PartyTable(pd.DataFrame({"id": table.ids, **columns}), id="id", label="y" if "y" in columns else None)


def test_a_label_holder_without_columns_needs_only_ids_to_predict() -> None:
    both = tables()
    alone = {"bank": ids_of(both["bank"], y=both["bank"].labels), "shop": both["shop"]}
    run = cn.simulate(settings(epochs=20, learning_rate=0.02), alone, compare=True)
    with_label = run.predict(alone)
    pd.testing.assert_frame_equal(with_label, run.predict({"bank": ids_of(both["bank"]), "shop": both["shop"]}))
    assert len(with_label) == 200


def test_a_party_that_must_bring_columns_is_told_so() -> None:
    both = tables()
    nothing = {"bank": both["bank"], "shop": ids_of(both["shop"])}
    with pytest.raises(ConfigError, match="'shop' has no usable feature columns"):
        cn.simulate(settings(epochs=1), nothing)
    run = cn.simulate(settings(epochs=1), both)
    with pytest.raises(TableError, match=r"lacks 2 columns: d, e, .* Add them; cells may be empty"):
        run.predict(nothing)
    only_ids = {"bank": ids_of(both["bank"]), "shop": both["shop"]}
    with pytest.raises(ConfigError, match="no label column"):
        cn.simulate(settings(epochs=1), only_ids, roles={"label_holder": "bank", "feature_holder": "shop"})


def test_a_rare_number_may_be_held_out_in_a_regression() -> None:
    run = cn.simulate(settings(epochs=1), tables(60, "regression"))
    assert run.plan.config["task"] == "auto"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hidden": (100_000_000,)}, "config.hidden must hold .* at most 65536. Got 100000000"),
        ({"cut_width": 65_537}, "config.cut_width must hold .* at most 65536"),
        ({"hidden": (60_000, 60_000)}, "Each encoder needs .* weights, and at most 100,000,000"),
        ({"head_hidden": (60_000, 60_000)}, "The head needs .* weights.* Lower head_hidden"),
    ],
)
def test_networks_that_cannot_fit_are_refused_with_the_settings(settings: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        cn.SplitNN(**settings)


def test_networks_that_cannot_fit_the_tables_are_refused_before_they_are_made() -> None:
    config = cn.SplitNN(hidden=(60_000,), head_hidden=(60_000,))
    with pytest.raises(ConfigError, match=r"The encoder of 'shop' needs 601,980,032 weights.*drop columns"):
        build_encoder(config, "shop", 10_000, 0)
    with pytest.raises(ConfigError, match=r"The head needs .* weights"):
        build_head(config, [10_000, 10_000], 2, 0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, {"Columns in effect: bank", "Labels can be read: shop"}),
        ({"secret_start": False}, {"Known start", "Columns in effect: bank", "Labels can be read: shop"}),
        ({"defence": "marvell"}, {"Columns in effect: bank"}),
    ],
)
def test_a_report_says_first_what_crossed_in_the_clear(changes: dict[str, Any], said: set[str]) -> None:
    marks = cn.simulate(cn.SplitNN(epochs=1, minimum_steps=0, **changes), tables()).marks
    every = ("Known start", "Columns in effect: bank", "Labels can be read: shop")
    assert {one for one in every if any(mark.startswith(one) for mark in marks)} == said
