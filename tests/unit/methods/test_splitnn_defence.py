"""The split network's label defences: what crosses, what an attack makes of it, and going on after a crash."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.parties import with_policies

import colonnade as cn
from colonnade.errors import CheckpointBroken, ConfigError, PolicyRefused, RoleFailed
from colonnade.launch.party_folder import PartyFolder
from colonnade.launch.run_folder import RunFolder
from colonnade.launch.simulation import simulate_plan
from colonnade.methods.splitnn.network import LabelDefence
from colonnade.privacy import LabelDisguise, auc_bound
from colonnade.session import Session, parties_of

DEFENCES = ("marvell", "coae", "marvell+coae")
ROWS = 200


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def quick_disguise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train disguises in a moment, where only their being there matters."""
    real = LabelDisguise.train.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(
        LabelDisguise, "train", classmethod(lambda cls, classes, key: real(cls, classes, key, steps=400))
    )
    monkeypatch.setattr(LabelDisguise, "_flaw", lambda *_: "")


@pytest.fixture
def fixed_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take chance out of a run, whose noise is secret otherwise."""
    monkeypatch.setattr(Session, "_durable_secret", lambda _: bytes(range(32)))


def tables(label: str = "binary", parties: tuple[str, ...] = ("bank", "shop"), rows: int = ROWS) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    columns = {party: generator.normal(size=(rows, 3)) for party in parties}
    signal = sum(2.0 * one.sum(1) for one in columns.values())
    values = {
        "binary": np.where(signal > 2, "yes", "no"),
        "rare": np.where(signal > np.quantile(signal, 0.93), "yes", "no"),
        "multiclass": np.digitize(signal, [-3, 0, 3]),
        "regression": 1000 + 50 * signal,
    }
    made = {}
    for party, numbers in columns.items():
        frame = pd.DataFrame(numbers, columns=[f"{party}_{place}" for place in range(3)]).assign(id=np.arange(rows))
        if party == parties[0]:
            frame["y"] = values[label]
        made[party] = cn.PartyTable(frame, id="id", label="y" if party == parties[0] else None)
    return made


def config(defence: str, **settings: Any) -> cn.SplitNN:
    given = {"epochs": 3, "batch_size": 32, "hidden": (8,), "cut_width": 4, "patience": 0, "learning_rate": 0.02}
    given |= {"secret_start": False, "minimum_steps": 0}
    return cn.SplitNN(defence=defence, **{**given, **settings})  # type: ignore[arg-type]


def crossed(run: cn.Run, party: str = "shop") -> dict[str, str]:
    return {
        entry.content["message"]: entry.content["protection"]
        for entry in run.ledgers[party].entries
        if entry.is_message
    }


@pytest.mark.parametrize("defence", ["none", *DEFENCES])
@pytest.mark.usefixtures("quick_disguise")
def test_ledgers_say_whether_gradients_were_noised(defence: str) -> None:
    run = cn.simulate(config(defence), tables())
    seen = crossed(run)
    assert seen["CutGradient"] == ("NOISED" if "marvell" in defence else "PLAIN")
    assert ("label protection" in run.findings) == (defence != "none")


def test_a_policy_against_noise_stops_a_noised_run_and_not_a_plain_one() -> None:
    policies = {"bank": cn.Policy(never_send=("NOISED",))}
    cn.simulate(config("none"), with_policies(tables(), policies))
    with pytest.raises(PolicyRefused, match="CutGradient is NOISED"):
        cn.simulate(config("marvell"), with_policies(tables(), policies))


@pytest.mark.usefixtures("fixed_secret")
def test_the_finding_tells_the_attack_with_and_without_noise_and_its_bounds() -> None:
    run = cn.simulate(config("marvell", epochs=4), tables(parties=("bank", "shop", "telco"), rows=600))
    finding = run.findings["label protection"]
    assert [row[0] for row in finding.rows] == ["shop", "telco"]
    assert len(finding.columns) == len(finding.rows[0])
    for found in finding.values["partners"].values():
        assert found["without_noise"] > 0.95
        assert found["of_one_release"] < found["bound"] == auc_bound(0.25)
        assert found["releases_per_row"] == len(found["by_epoch"]) == 4
        assert found["bound_over_all_releases"] == auc_bound(1.0)
        assert found["with_columns"] > found["over_all_releases"] - 0.03, "here with few rows"
    assert "budgets add up" in finding.text
    assert "The bounds are about gradients alone" in finding.text
    assert "AUC with the partner's columns" in finding.columns
    assert run.metrics["auc"] > 0.8


@pytest.mark.usefixtures("fixed_secret")
@pytest.mark.parametrize("label", ["multiclass", "regression"])
def test_other_tasks_are_noised_too(label: str) -> None:
    run = cn.simulate(config("marvell", epochs=10), tables(label, rows=600))
    (found,) = run.findings["label protection"].values["partners"].values()
    assert found["measure"] == ("auc" if label == "multiclass" else "explained")
    assert found["of_one_release"] < found["bound"]
    assert ("explains at most" in run.findings["label protection"].text) == (label == "regression")


@pytest.mark.usefixtures("fixed_secret")
@pytest.mark.parametrize("label", ["binary", "multiclass"])
def test_disguised_labels_are_learned_and_scored_in_their_own_terms(label: str, tmp_path: Path) -> None:
    both = tables(label, rows=500)
    settings = config("coae", epochs=30, hidden=(32,), cut_width=16)
    run = cn.simulate(settings, both, seed=2, folder=tmp_path / "run")
    found = run.predict(both).set_index("id").sort_index()
    assert (found["prediction"].to_numpy() == both["bank"].labels).mean() > (0.85 if label == "binary" else 0.6)
    pd.testing.assert_frame_equal(run.predict(both), cn.load_run(tmp_path / "run").predict(both))
    assert any(name.startswith("disguise.") for name in run.parts["bank"].tensors)
    assert not any(name.startswith("disguise.") for name in run.parts["shop"].tensors)
    finding = run.findings["label protection"]
    assert "Gradients crossed without noise." in finding.text
    assert ("Combine coae with marvell" in finding.text) == (label == "binary")


@pytest.mark.usefixtures("quick_disguise")
@pytest.mark.parametrize("label", ["binary", "multiclass"])
def test_class_weights_stay_with_the_class_whatever_its_code(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[LabelDefence] = []
    real = LabelDefence.__init__
    monkeypatch.setattr(LabelDefence, "__init__", lambda self, *given: (real(self, *given), kept.append(self))[0])
    weights = (1.0, 5.0) if label == "binary" else (1.0, 5.0, 2.0, 0.5)
    cn.simulate(config("coae", class_weights=weights, precision="float64"), tables(label))
    (defence,) = kept
    rows = torch.arange(40)
    outputs = torch.linspace(-1, 1, 40 * (1 if label == "binary" else 4), dtype=torch.float64)
    outputs = outputs.reshape(40, -1)
    wanted = defence.targets[rows]
    by_row = torch.stack([defence.loss(outputs[r : r + 1], wanted[r : r + 1], rows[r : r + 1]) for r in range(40)])
    each = torch.tensor(weights, dtype=torch.float64)[defence._labels[rows].long()]
    assert torch.isclose(defence.loss(outputs, wanted, rows), (each * by_row).sum() / each.sum())


def test_numbers_cannot_be_disguised_and_a_budget_must_bound_something() -> None:
    with pytest.raises(ConfigError, match=r"these labels are numbers\. Use 'marvell'"):
        cn.simulate(config("coae"), tables("regression"))
    for budget in (0.0, -1.0, 4.0, float("nan")):
        with pytest.raises(ConfigError, match=r"config\.label_budget must be above 0 and below 4"):
            cn.SplitNN(label_budget=budget)


@pytest.mark.usefixtures("quick_disguise", "fixed_secret")
@pytest.mark.parametrize(("defence", "step"), [("marvell", 4), ("marvell", 9), ("marvell+coae", 17)])
def test_a_crashed_run_sends_the_same_noise_again_and_ends_with_the_same_model(
    defence: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two folders would have two secrets, and their runs could not be compared. Most batches have no positive row, so
    # that what earlier ones showed decides on the noise.
    settings, found = config(defence, checkpoint_every=2, batch_size=12, epochs=2), tables("rare")
    whole = cn.simulate(settings, found, folder=tmp_path / "whole")
    crash_at(step, settings, tmp_path / "run", monkeypatch, found)
    resumed = cn.simulate(settings, found, folder=tmp_path / "run")
    for party, part in whole.parts.items():
        assert part.document == resumed.parts[party].document
        for name, value in part.tensors.items():
            assert torch.equal(value, resumed.parts[party].tensors[name]), name
    assert resumed.findings == whole.findings
    assert resumed.metrics == whole.metrics


def crash_at(
    step: int, settings: cn.SplitNN, folder: Path, monkeypatch: pytest.MonkeyPatch, found: dict[str, Any] | None = None
) -> None:
    with monkeypatch.context() as patch:
        real = Session.next_step

        def failing(session: Session) -> None:
            real(session)
            if session.step == step and session.party == "shop":
                raise ZeroDivisionError

        patch.setattr(Session, "next_step", failing)
        with pytest.raises(RoleFailed):
            cn.simulate(settings, found or tables(), folder=folder)


def test_the_secret_outlives_a_crash_is_the_owners_only_and_turns_up_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config("marvell", checkpoint_every=2)
    crash_at(5, settings, tmp_path / "run", monkeypatch)
    file = tmp_path / "run/bank/secret.key"
    secret = file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    cn.simulate(settings, tables(), folder=tmp_path / "run")
    assert file.read_bytes() == secret
    assert not (tmp_path / "run/shop/secret.key").exists()
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file() and path != file:
            content = path.read_bytes()
            assert secret not in content, path
            assert secret.hex().encode() not in content.lower(), path


def test_a_run_in_place_of_another_has_another_secret(tmp_path: Path) -> None:
    run = cn.simulate(config("marvell"), tables(), folder=tmp_path / "run")
    file = tmp_path / "run/bank/secret.key"
    secret = file.read_bytes()
    folder = RunFolder(tmp_path / "run")
    with folder.held(overwrite=True):
        simulate_plan(run.plan, parties_of(tables()), folder=folder)
    assert file.read_bytes() != secret


def test_overwriting_a_partys_own_folder_takes_its_secret_away(tmp_path: Path) -> None:
    plan = cn.simulate(config("none", epochs=1), tables()).plan
    PartyFolder(tmp_path / "run").begin(plan, tables()["bank"])
    (tmp_path / "run/secret.key").write_bytes(bytes(32))
    with RunFolder(tmp_path / "run").held(overwrite=True):
        assert not (tmp_path / "run/secret.key").exists()


def test_a_run_whose_secret_is_lost_does_not_go_on_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config("marvell", checkpoint_every=2)
    crash_at(5, settings, tmp_path / "run", monkeypatch)
    (tmp_path / "run/bank/secret.key").unlink()
    with pytest.raises(CheckpointBroken, match=r"secret.key is missing"):
        cn.simulate(settings, tables(), folder=tmp_path / "run")
    (tmp_path / "run/bank/secret.key").write_bytes(b"short")
    with pytest.raises(CheckpointBroken, match=r"secret.key was changed"):
        cn.simulate(settings, tables(), folder=tmp_path / "run")


@pytest.mark.usefixtures("fixed_secret")
def test_secrets_differ_by_purpose_party_and_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[tuple[str, int, str], bytes] = {}
    real = Session.next_step

    def look(session: Session) -> None:
        real(session)
        for purpose in ("one", "other"):
            found[session.party, session.plan.seed, purpose] = session.secret(purpose)
            assert session.secret(purpose) == found[session.party, session.plan.seed, purpose]

    monkeypatch.setattr(Session, "next_step", look)
    for seed in (1, 2):
        cn.simulate(config("none", epochs=1), tables(), seed=seed)
    assert len(set(found.values())) == len(found) == 8
    assert {len(one) for one in found.values()} == {32}
