"""A run that was interrupted ends with the model of one that was not: check 10 of the sheet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from tests.unit.methods.fedcvt.worlds import cut_at, fixed_secret, frames, run_of, settings, whole_weights
from tests.worlds import integers_for_ciphertexts, received

import colonnade as cn
from colonnade.errors import RoleFailed
from colonnade.launch import simulation
from colonnade.methods.fedcvt.open_cut import CodeSender
from colonnade.nn import Learner
from colonnade.privacy import clip_rows

VALIDATED = cn.Evaluate(validation_fraction=0.2, test_fraction=0.2)
# 5 steps make an epoch.
CUT: dict[str, Any] = {"checkpoint_every": 2, "epochs": 3, "threshold": 0.35}


def parameters(run: cn.Run) -> dict[str, np.ndarray]:
    return {f"{party}: {name}": one.numpy() for party, part in run.parts.items() for name, one in part.tensors.items()}


def cut_run(folder: Path, config: cn.FedCVT, cuts: list[tuple[str, int]], parties: int = 2, **options: Any) -> cn.Run:
    found = frames("multiclass", parties)
    for party, step in cuts:
        with pytest.MonkeyPatch.context() as patch:
            cut_at(patch, party, step)
            with pytest.raises(RoleFailed):
                run_of(found, config, folder=folder, evaluate=VALIDATED, **options)
    return run_of(found, config, folder=folder, evaluate=VALIDATED, **options)


CASES: dict[str, tuple[dict[str, Any], list[tuple[str, int]], int]] = {
    "mid-epoch": ({}, [("shop", 9)], 2),
    "twice, at either side": ({}, [("bank", 4), ("shop", 14)], 2),
    "at an epoch's end": ({"checkpoint_every": 0}, [("shop", 6)], 2),
    "memory": ({"memory_bank": 20}, [("bank", 9)], 2),
    "the second of three models": ({"candidates": ("fedcvt", "vanilla", "wide", "local")}, [("shop", 23)], 2),
    "patience": ({"patience": 1, "candidates": ("vanilla", "fedcvt")}, [("bank", 9)], 2),
    "three parties": ({}, [("telco", 8)], 3),
    "noise": ({"level": 1, "noise": 0.3}, [("shop", 9)], 2),
    "noise on gradients": ({"level": 1, "defence": "marvell"}, [("bank", 9)], 2),
    "marvell": ({"defence": "marvell", "label_budget": 1.0}, [("shop", 8)], 2),
    "marvell, the second of two models": (
        {"defence": "marvell", "label_budget": 1.0, "candidates": ("fedcvt", "vanilla")},
        [("shop", 20)],
        2,
    ),
    "secret start": ({"secret_start": True}, [("shop", 9)], 2),
}


QUICK = ("the second of three models", "noise", "marvell, the second of two models")


@pytest.mark.parametrize(
    "name", [*QUICK, *[pytest.param(name, marks=pytest.mark.slow) for name in CASES if name not in QUICK]]
)
def test_a_run_cut_in_mid_epoch_ends_with_the_same_bits(name: str, tmp_path: Path) -> None:
    """Levels 0 and 1, noise included: it comes from a secret that is kept in the folder."""
    changes, cuts, parties = CASES[name]
    config = settings(**{**CUT, **changes})
    with pytest.MonkeyPatch.context() as patch:
        fixed_secret(patch)
        whole = run_of(frames("multiclass", parties), config, evaluate=VALIDATED, folder=tmp_path / "whole")
        resumed = cut_run(tmp_path / "cut", config, cuts, parties)
    marks = [entry for entry in resumed.ledgers["bank"].entries if entry.kind == "resumed"]
    assert len(marks) == len(cuts)
    one, two = parameters(whole), parameters(resumed)
    assert one.keys() == two.keys()
    for key, value in one.items():
        assert value.tobytes() == two[key].tobytes(), key
    assert whole.metrics == resumed.metrics
    for finding in ("situations", "pseudo-labels", "privacy budget", "label protection"):
        if finding in whole.findings:
            assert whole.findings[finding].values == resumed.findings[finding].values, finding
    resumed.verify()


SEALED_CASES: dict[str, dict[str, Any]] = {
    "one-sided pull": {"sealed_pull": "one_sided", "noise": 0.1},
    "no pull": {},
    "after another model": {"candidates": ("vanilla", "fedcvt"), "epochs": 2},
}


@pytest.mark.parametrize(
    "changes",
    [
        SEALED_CASES["one-sided pull"],
        *[pytest.param(SEALED_CASES[name], marks=pytest.mark.slow) for name in ("no pull", "after another model")],
    ],
    ids=list(SEALED_CASES),
)
def test_encrypted_a_run_cut_twice_ends_with_the_same_parameters(changes: dict[str, Any], tmp_path: Path) -> None:
    """Level 2: shares are drawn anew, so that parameters agree within what shares are rounded by."""
    config = settings(**{**CUT, "level": 2, "least_keys": 2.0, "own_batch_size": 30, "checkpoint_every": 1, **changes})
    with pytest.MonkeyPatch.context() as patch, integers_for_ciphertexts():
        fixed_secret(patch)
        whole = run_of(frames(), config, evaluate=VALIDATED)
        resumed = cut_run(tmp_path / "cut", config, [("shop", 3), ("bank", 6)])
    one, two = parameters(whole), parameters(resumed)
    assert one.keys() == two.keys()
    for key, value in one.items():
        assert np.abs(value - two[key]).max(initial=0.0) < 1e-3, key
    weights = []
    for run in (whole, resumed):
        owner = run.parts["shop"].document["parts"]["fedcvt"]["shares"]
        (partner,) = run.parts["bank"].document["parts"]["fedcvt"]["shares"]
        weights.append(np.concatenate(whole_weights(owner, partner, 6)))
    assert np.abs(weights[0] - weights[1]).max() < 1e-3
    resumed.verify()


def test_a_repeated_step_sends_the_same_noise_and_another_content_other_noise(tmp_path: Path) -> None:
    """Two releases of the same codes with fresh noise would have half the variance on average."""
    config = settings(level=1, epochs=1, noise=0.5)
    sent: list[tuple[np.ndarray, np.ndarray, str]] = []
    original = CodeSender.noised

    def noised(sender: CodeSender, values: torch.Tensor, *rest: Any) -> torch.Tensor:
        found = original(sender, values, *rest)
        sent.append((values.detach().numpy().copy(), found.numpy(), rest[1]))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CodeSender, "noised", noised)
        cut_run(tmp_path / "cut", config, [("bank", 3)])
    # There was no checkpoint yet: the first batches are sent once more.
    by_content: dict[tuple[bytes, str], set[bytes]] = {}
    for values, found, what in sent:
        by_content.setdefault((values.tobytes(), what), set()).add(found.tobytes())
    assert len(by_content) < len(sent)
    assert all(len(found) == 1 for found in by_content.values())
    noises = {(found - values).tobytes() for values, found, _ in sent if len(values)}
    assert len(noises) == len({(values.tobytes(), what) for values, _, what in sent if len(values)})


def test_codes_of_two_models_never_carry_the_same_noise() -> None:
    """After training the best model's codes of validation rows are sent; those of the last one were sent before."""
    config = settings(level=1, epochs=1, noise=0.5)
    sent: list[tuple[np.ndarray, np.ndarray]] = []
    noised_by, restore = CodeSender.noised, Learner.restore_best

    def noised(sender: CodeSender, values: torch.Tensor, *rest: Any) -> torch.Tensor:
        found = noised_by(sender, values, *rest)
        sent.append((values.detach().numpy().copy(), found.numpy()))
        return found

    def restored(learner: Learner) -> None:
        restore(learner)
        with torch.no_grad():
            for module in learner.modules.values():
                for one in module.parameters():
                    one += 1e-6

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CodeSender, "noised", noised)
        patch.setattr(Learner, "restore_best", restored)
        run_of(frames(), config, evaluate=VALIDATED)
    noises = [np.round(found - clip_rows(values, config.clip), 9).tobytes() for values, found in sent if len(values)]
    assert len(set(noises)) == len(noises)


def test_repeated_releases_are_counted_once_more_than_needed_and_never_less(tmp_path: Path) -> None:
    config = settings(level=1, epochs=2, noise=0.5, checkpoint_every=2)
    with pytest.MonkeyPatch.context() as patch:
        fixed_secret(patch)
        whole = run_of(frames(), config, evaluate=VALIDATED).findings["privacy budget"].values
        resumed = cut_run(tmp_path / "cut", config, [("shop", 4)]).findings["privacy budget"].values
    assert resumed["releases"] >= whole["releases"]


def test_a_checkpoint_of_a_feature_holder_has_neither_key_nor_rows(tmp_path: Path) -> None:
    config = settings(**{**CUT, "level": 2, "least_keys": 2.0})
    with integers_for_ciphertexts(), pytest.MonkeyPatch.context() as patch:
        cut_at(patch, "shop", 5)
        with pytest.raises(RoleFailed):
            run_of(frames(), config, folder=tmp_path / "run", evaluate=VALIDATED)
    for path in sorted((tmp_path / "run").rglob("checkpoints/train/*.json")):
        text = path.read_text().lower()
        assert "modulus" not in text
        assert "prime" not in text
    for path in sorted((tmp_path / "run").rglob("bank/checkpoints/train/*.safetensors")):
        for name in safetensors.torch.load_file(path):
            assert not any(word in name for word in ("recent", "memory", "anchors")), "no codes at level 2"


def test_masks_and_shares_of_a_repeated_step_are_new(tmp_path: Path) -> None:
    """The same shares for another gradient would give their difference away."""
    config = settings(level=2, epochs=1, least_keys=2.0)
    views: dict[str, list[tuple[str, bytes]]] = {"bank": [], "shop": []}
    original = simulation.play_in_threads

    def play(*arguments: Any, **named: Any) -> Any:
        return original(*arguments, **{**named, "views": views})

    with integers_for_ciphertexts():
        with pytest.MonkeyPatch.context() as patch:
            cut_at(patch, "bank", 3)
            patch.setattr(simulation, "play_in_threads", play)
            with pytest.raises(RoleFailed):
                run_of(frames(), config, folder=tmp_path / "cut", evaluate=VALIDATED)
        run = run_of(frames(), config, folder=tmp_path / "cut", evaluate=VALIDATED, launch=cn.Launch(keep_views=True))
    first = {bytes(frame) for _, frame in views["bank"]}
    assert len(first) > 10
    updates = received(run, "bank", "WeightUpdate")
    assert updates
    again = {bytes(frame) for _, frame in run.views["bank"]}
    large = {frame for frame in first & again if len(frame) > 400}
    assert not large, "nothing that was masked or encrypted comes twice"
