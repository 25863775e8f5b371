"""SIGKILL in the middle of FedCVT between two homes, then the same command again: the same model.

At level 0 the model is the same byte for byte; at level 2, within what shares are rounded by. Nobody but the two sides
together knows the weights of the shop's codes, so those are compared as the sum of both shares.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.torch

from colonnade.launch.identity import make_home, pin_partner
from tests.kills.harness import NAME, Homes, free_ports

PARTIES = ("bank", "shop")
_RUN = """\
[run]
name = "{name}"
method = "fedcvt"
roles = {{ label_holder = "bank", feature_holder = "shop" }}
seed = 7

[config]
level = {level}
candidates = ["fedcvt", "vanilla", "local"]
shared_width = 4
unique_width = 4
epochs = 6
batch_size = 16
own_batch_size = 24
warmup_epochs = 1
threshold = 0.5
least_keys = 3.0
checkpoint_every = 2
secret_start = false
precision = "float64"
key_size = "insecure_test"
"""


@dataclass
class Shops(Homes):
    """Homes of a bank with labels and of a shop; some customers are shared."""

    level: int = 0

    def make(self) -> None:
        generator = np.random.default_rng(3)
        count, shared = 260, 100
        traits = generator.normal(size=(count, 3))
        label = np.where(traits.sum(axis=1) + 0.5 * generator.normal(size=count) > 0, "yes", "no").astype(object)
        frames = {
            "bank": pd.DataFrame(traits[:, :2], columns=["n0", "n1"]).assign(label=label)[:180],
            "shop": pd.DataFrame(traits[:, 1:], columns=["m0", "m1"]).assign(job=generator.choice(list("abc"), count)),
        }
        frames["shop"] = pd.concat([frames["shop"][:shared], frames["shop"][180:]])
        ports = free_ports(len(PARTIES))
        for party, port in zip(PARTIES, ports, strict=True):
            make_home(self.folder / party, party, f"127.0.0.1:{port}")
            frames[party].rename_axis("id").to_csv(self.folder / party / "table.csv")
            text = (
                f'[party]\nname = "{party}"\nlisten = "127.0.0.1:{port}"\n\n[table]\nsource = "table.csv"\nid = "id"\n'
            )
            text += 'label = "label"\n' if party == "bank" else ""
            (self.folder / party / "party.toml").write_text(text + "\n[policy]\n")
        for party, peer, port in (("bank", "shop", ports[1]), ("shop", "bank", ports[0])):
            certificate = (self.folder / peer / "certificate.pem").read_bytes()
            pin_partner(self.folder / party, certificate, f"127.0.0.1:{port}")
        (self.folder / "run.toml").write_text(_RUN.format(name=NAME, level=self.level))

    def wait_for_step(self, party: str, step: int) -> None:
        """Wait until a party has kept a checkpoint of this step."""
        kept = self.run_folder(party).path / "checkpoints" / "train"
        process = self.processes[party]
        while process.poll() is None:
            found = [int(path.stem.removeprefix("step-")) for path in kept.glob("step-*.json")] if kept.is_dir() else []
            if max(found, default=0) >= step:
                return
        raise AssertionError(self.logs())

    def tensors(self) -> dict[str, np.ndarray]:
        return {
            f"{party}/{name}": value.numpy()
            for party in PARTIES
            for file in (self.run_folder(party).path / "model").glob("*.safetensors")
            for name, value in safetensors.torch.load_file(file).items()
        }

    def document(self, party: str) -> dict[str, Any]:
        (file,) = (self.run_folder(party).path / "model").glob("*.json")
        found = json.loads(file.read_text())
        return dict(found.get("document", found))

    def documents(self) -> dict[str, Any]:
        """Return all parts but for what is drawn anew in every training, its mark and keys, and digests of it."""
        drawn = {"mark": "", "noise_key": "", "document_sha256": "", "created": ""}
        return {party: {**self.document(party), **drawn} for party in PARTIES}

    def weights(self) -> np.ndarray:
        """Return the weights of the shop's codes, from both sides' shares."""
        mine = self.document("shop")["parts"]["fedcvt"]["shares"]
        (theirs,) = self.document("bank")["parts"]["fedcvt"]["shares"]
        return np.array(
            [
                (int(a) + int(b)) / 2**52
                for one, two in zip(mine, theirs, strict=True)
                for a, b in zip(one["share"], two["share"], strict=True)
            ]
        )


def homes_in(folder: Path, level: int) -> Shops:
    folder.mkdir()
    homes = Shops(folder, PARTIES, level=level)
    homes.make()
    return homes


def finish_with_kills(homes: Shops, kills: tuple[tuple[list[str], int], ...]) -> None:
    """Run to the end, and kill at checkpoints of these steps: 5 in each of 6 epochs of each of two models."""
    for party in PARTIES:
        homes.start(party)
    for victims, step in kills:
        homes.wait_for_step(victims[0], step)
        assert [homes.kill(party) for party in victims] == [True] * len(victims)
        for party in victims:
            homes.start(party)
    homes.wait()
    homes.check_ledgers()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_in_mid_epoch_it_ends_with_the_same_bytes_in_the_clear(tmp_path: Path) -> None:
    """Check 10 of the sheet, with processes that are killed: either side, in either model, and both at once."""
    whole, cut = homes_in(tmp_path / "whole", 0), homes_in(tmp_path / "cut", 0)
    try:
        finish_with_kills(whole, ())
        finish_with_kills(cut, ((["shop"], 2), (["bank"], 12), (list(PARTIES), 24), (["shop"], 34)))
        one, two = whole.tensors(), cut.tensors()
        assert one.keys() == two.keys()
        assert all(value.tobytes() == two[name].tobytes() for name, value in one.items())
        assert whole.documents() == cut.documents()
    finally:
        whole.stop()
        cut.stop()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_in_mid_epoch_it_ends_with_the_same_weights_encrypted(tmp_path: Path) -> None:
    """First weights come from a secret, so both runs begin as copies of one that was killed at its first checkpoint."""
    whole = homes_in(tmp_path / "whole", 2)
    cut = Shops(tmp_path / "cut", PARTIES, level=2)
    try:
        for party in PARTIES:
            whole.start(party)
        for party in PARTIES:
            whole.wait_for_step(party, 2)
        assert all(whole.kill(party) for party in PARTIES)
        shutil.copytree(whole.folder, cut.folder)
        finish_with_kills(whole, ())
        finish_with_kills(cut, ((["shop"], 6), (["bank"], 14), (list(PARTIES), 24), (["shop"], 36)))
        one, two = whole.tensors(), cut.tensors()
        assert one.keys() == two.keys()
        assert max(float(np.abs(value - two[name]).max(initial=0.0)) for name, value in one.items()) < 1e-3
        assert np.abs(whole.weights() - cut.weights()).max() < 1e-3
    finally:
        whole.stop()
        cut.stop()
