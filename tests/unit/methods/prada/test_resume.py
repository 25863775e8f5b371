"""A run that was cut short, in any phase and in mid-epoch, goes on to the same parameters."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
from tests.unit.methods.prada.worlds import HOLDER, frames, parameters, run_of, settings
from tests.worlds import integers_for_ciphertexts

import colonnade as cn
from colonnade.errors import RoleFailed
from colonnade.methods.prada.labels import Labels
from colonnade.session import Session

CLEAR: dict[str, Any] = {"protection": "none"}
MARVELL: dict[str, Any] = {**CLEAR, "defence": "marvell", "tune": "all"}
TWO: dict[str, Any] = {"sources": 2}


def cut_at(patch: pytest.MonkeyPatch, party: str, step: int) -> None:
    original = Session.next_step

    def next_step(session: Session) -> None:
        original(session)
        if session.party == party and session.step == step:
            raise ZeroDivisionError

    patch.setattr(Session, "next_step", next_step)


def steps_of(run: cn.Run) -> dict[str, tuple[int, int]]:
    """Return the first and last step of each phase."""
    found: dict[str, tuple[int, int]] = {}
    before = 0
    for line in run.history[HOLDER]:
        if "phase" in line:
            name = f"{line['phase']} with {line['with']}"
            found[name] = (found.get(name, (before + 1, 0))[0], line["step"])
            before = line["step"]
    return found


# By name: the world, the settings, the phase to cut in and who fails.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "the second of two sources": (TWO, {**CLEAR, "defence": "marvell"}, "pretrain with sister1", "sister1"),
    "fine-tuning, frozen": ({}, CLEAR, "finetune with bank0", HOLDER),
    "fine-tuning of everything, with noise": ({}, MARVELL, "finetune with bank0", "bank0"),
    "the model without source": ({}, {**MARVELL, "compare": "vfl", "tune": "unseen"}, "vfl with bank0", HOLDER),
    "the second of two targets": ({"targets": 2}, {**CLEAR, "tune": "all"}, "finetune with bank1", "bank1"),
    "pre-training, patience": ({}, {**CLEAR, "patience": 1, "epochs": 3}, "pretrain with sister0", "sister0"),
}
QUICK = tuple(CASES)[:3]


@pytest.mark.parametrize(
    "name", [*QUICK, *[pytest.param(name, marks=pytest.mark.slow) for name in CASES if name not in QUICK]]
)
def test_in_the_clear_a_run_cut_in_mid_epoch_ends_with_the_same_bits(name: str, tmp_path: Path) -> None:
    """Check 14 of the sheet, MARVELL's noise included: it comes from the same secret, which is kept in the folder."""
    world, changes, phase, party = CASES[name]
    found, config = frames(**world), settings(**{"checkpoint_every": 2, **changes})
    with pytest.MonkeyPatch.context() as patch:
        # The same secret for both runs; each has a folder, and so a secret, of its own.
        patch.setattr(Session, "_durable_secret", lambda session: b"tests/prada" + bytes(21))
        whole = run_of(found, config, folder=tmp_path / "whole")
        first, last = steps_of(whole)[phase]
        # In the last epoch of the phase, after a checkpoint of it and before its end.
        step = last - 1 if (last - 2) >= first else last
        with pytest.MonkeyPatch.context() as cut:
            cut_at(cut, party, step)
            with pytest.raises(RoleFailed):
                run_of(found, config, folder=tmp_path / "cut")
        resumed = run_of(found, config, folder=tmp_path / "cut")
    marks = [entry.content for entry in resumed.ledgers[party].entries if entry.kind == "resumed"]
    assert len(marks) == 1
    assert 0 < marks[0]["step"] < step
    one, two = parameters(whole), parameters(resumed)
    assert one.keys() == two.keys()
    for key, value in one.items():
        assert value.tobytes() == two[key].tobytes(), key
    assert whole.metrics == resumed.metrics
    for finding in whole.findings:
        if finding.startswith("label protection"):
            assert whole.findings[finding].values == resumed.findings[finding].values
    resumed.verify()


def test_encrypted_a_run_cut_twice_in_mid_epoch_ends_with_the_same_parameters(tmp_path: Path) -> None:
    """Check 14, sealed: shares are drawn anew, so that parameters agree within what shares are rounded by."""
    found, config = frames(), settings(checkpoint_every=2, tune="all", tune_rate=1e-3)
    with integers_for_ciphertexts():
        whole = run_of(found, config)
        phases = steps_of(whole)
        cuts = [("sister0", phases["pretrain with sister0"][1] - 1), (HOLDER, phases["finetune with bank0"][1] - 1)]
        for party, step in cuts:
            with pytest.MonkeyPatch.context() as patch:
                cut_at(patch, party, step)
                with pytest.raises(RoleFailed):
                    run_of(found, config, folder=tmp_path / "cut")
        resumed = run_of(found, config, folder=tmp_path / "cut")
    marks = [entry.content for entry in resumed.ledgers["bank0"].entries if entry.kind == "resumed"]
    assert len(marks) == 2
    one, two = parameters(whole), parameters(resumed)
    for key, value in one.items():
        assert np.abs(value - two[key]).max(initial=0.0) < 1e-6, key
    resumed.verify()


def test_a_repeated_step_sends_the_same_noise_again(tmp_path: Path) -> None:
    """Two releases of one batch with fresh noise would have half the variance on average; a resume must not do that."""
    found, config = frames(), settings(defence="marvell", epochs=1, fine_epochs=1)
    sent: list[np.ndarray] = []
    original = Labels.protected

    def protected(labels: Labels, slopes: np.ndarray, places: np.ndarray) -> np.ndarray:
        sent.append(original(labels, slopes, places) - slopes)
        return slopes + sent[-1]

    with pytest.MonkeyPatch.context() as patch, integers_for_ciphertexts():
        patch.setattr(Labels, "protected", protected)
        with pytest.MonkeyPatch.context() as cut:
            cut_at(cut, "sister0", 3)
            with pytest.raises(RoleFailed):
                run_of(found, config, folder=tmp_path / "cut")
        assert len(sent) == 2
        run_of(found, config, folder=tmp_path / "cut")
    # From the beginning, as there was no checkpoint yet: the first two batches are sent once more.
    for first, again in zip(sent[:2], sent[2:4], strict=True):
        assert np.abs(first).max() > 1e-3
        assert np.abs(first - again).max() < 1e-6


def test_a_checkpoint_holds_shares_and_no_key_and_no_row(tmp_path: Path) -> None:
    found, config = frames(), settings(epochs=1, fine_epochs=1)
    with pytest.MonkeyPatch.context() as patch, integers_for_ciphertexts():
        cut_at(patch, "bank0", 5)
        with pytest.raises(RoleFailed):
            run_of(found, config, folder=tmp_path / "run")
    for party in (HOLDER, "sister0", "bank0"):
        kept = sorted((tmp_path / "run").rglob(f"{party}/checkpoints/train/*.json"))
        assert kept
        for path in kept:
            text = path.read_text().lower()
            document = json.loads(text)
            assert "modulus" not in text
            assert "prime" not in text
            assert "inputs" not in document
    for path in sorted((tmp_path / "run").rglob("sister0/checkpoints/train/*.safetensors")):
        for name in safetensors.torch.load_file(path):
            assert name.startswith(("pretrain/", "labels/"))


def test_a_bank_alone_cannot_tell_the_weights_from_what_it_keeps() -> None:
    """Nothing in a bank's part of the model is larger than noise allows: its share is far from the weights."""
    run = run_of(frames(), settings(epochs=1, fine_epochs=1))
    share = [abs(int(one)) for one in run.parts["bank0"].document["heads"]["finetune"]["share"]]
    assert np.median(share) > 2**80, "weights take 53 bits, shares 92"


def test_a_checkpoint_from_before_the_run_went_back_is_not_taken_for_one_from_after(tmp_path: Path) -> None:
    """Shares are drawn anew: a bank's share of step 4 and the feature holder's of another try at step 4 do not fit.

    The run is cut at 5; the feature holder loses its checkpoint of step 4, so that all go back to 2; at step 4 the
    source fails before it has kept the step again, and the feature holder after.
    """
    found, config = frames(), settings(checkpoint_every=2, epochs=2, fine_epochs=1)
    folder = tmp_path / "cut"
    original = Session.checkpoint

    def checkpoint(session: Session, state: Any) -> None:
        if session.party == "sister0" and session.step == 4:
            # Give the other side the time to keep what it has.
            time.sleep(1.0)
            raise ZeroDivisionError
        original(session, state)

    with integers_for_ciphertexts():
        whole = run_of(found, config)
        with pytest.MonkeyPatch.context() as patch:
            cut_at(patch, "sister0", 5)
            with pytest.raises(RoleFailed):
                run_of(found, config, folder=folder)
        (lost,) = folder.rglob(f"{HOLDER}/checkpoints/train/step-000000004.json")
        lost.unlink()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Session, "checkpoint", checkpoint)
            with pytest.raises(RoleFailed):
                run_of(found, config, folder=folder)
        assert lost.exists(), "kept once more by the feature holder"
        resumed = run_of(found, config, folder=folder)
    one, two = parameters(whole), parameters(resumed)
    for key, value in one.items():
        assert np.abs(value - two[key]).max(initial=0.0) < 1e-6, key
