"""SIGKILL in the middle of multi-party dual learning between three homes, then the same command again: the same model.

First weights and noise come from secrets, so both runs begin as copies of one that was killed at its first checkpoint.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.torch

from colonnade.launch.identity import make_home, pin_partner
from tests.kills.harness import NAME, Homes, free_ports

PARTIES = ("bank", "shop", "helper")
# Of 94 steps the first part takes 28, the second as many, and the last phase the rest.
_RUN = """\
[run]
name = "{name}"
method = "mpdl"
roles = {{ label_holder = "bank", feature_holder = "shop", collaborator = "helper" }}
seed = 7

[config]
bounds = {{ "*" = [-6.0, 6.0] }}
epsilon = 4.0
generator = "mlp"
generator_epochs = 3
generator_optimiser = "Adam"
generator_rate = 0.02
dual_weight = 0.1
dual_consent = true
folds = 3
fold_gain = 1.0
hidden = 6
epochs = 2
batch_size = 16
optimiser_options = {{ momentum = 0.9 }}
checkpoint_every = 2
key_size = "insecure_test"
"""


@dataclass
class Three(Homes):
    """Homes of a bank with labels, of a shop, and of a helper without a table."""

    def make(self) -> None:
        generator = np.random.default_rng(3)
        count, shared = 260, 100
        traits = generator.normal(size=(count, 3))
        label = np.where(traits.sum(axis=1) + 0.5 * generator.normal(size=count) > 0, "yes", "no").astype(object)
        frames = {
            "bank": pd.DataFrame(traits[:, :2], columns=["n0", "n1"]).assign(label=label)[:180],
            "shop": pd.DataFrame(traits[:, 1:], columns=["m0", "m1"]),
        }
        frames["shop"] = pd.concat([frames["shop"][:shared], frames["shop"][180:]])
        ports = dict(zip(PARTIES, free_ports(len(PARTIES)), strict=True))
        for party, port in ports.items():
            make_home(self.folder / party, party, f"127.0.0.1:{port}")
            text = f'[party]\nname = "{party}"\nlisten = "127.0.0.1:{port}"\n'
            if party in frames:
                frames[party].rename_axis("id").to_csv(self.folder / party / "table.csv")
                text += '\n[table]\nsource = "table.csv"\nid = "id"\n' + ('label = "label"\n' * (party == "bank"))
            (self.folder / party / "party.toml").write_text(text + "\n[policy]\n")
        for party in PARTIES:
            for peer, port in ports.items():
                if peer != party:
                    certificate = (self.folder / peer / "certificate.pem").read_bytes()
                    pin_partner(self.folder / party, certificate, f"127.0.0.1:{port}")
        (self.folder / "run.toml").write_text(_RUN.format(name=NAME))

    def wait_for_step(self, party: str, step: int) -> None:
        """Wait until a party has kept a checkpoint of this step."""
        kept = self.run_folder(party).path / "checkpoints" / "train"
        process = self.processes[party]
        while process.poll() is None:
            found = [int(path.stem.removeprefix("step-")) for path in kept.glob("step-*.json")] if kept.is_dir() else []
            if max(found, default=0) >= step:
                return
            time.sleep(0.005)
        raise AssertionError(self.logs())

    def tensors(self) -> dict[str, bytes]:
        return {
            f"{party}/{name}": value.numpy().tobytes()
            for party in PARTIES
            for file in (self.run_folder(party).path / "model").glob("*.safetensors")
            for name, value in safetensors.torch.load_file(file).items()
        }

    def documents(self) -> dict[str, Any]:
        """Return all parts but for the mark of the training, which is drawn anew, and digests of it."""
        found = {}
        for party in PARTIES:
            (file,) = (self.run_folder(party).path / "model").glob("*.json")
            told = json.loads(file.read_text())
            found[party] = {**told.get("document", told), "mark": "", "document_sha256": "", "created": ""}
        return found


def finish_with_kills(homes: Three, kills: tuple[tuple[list[str], int], ...]) -> None:
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
def test_killed_at_any_moment_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """In the first part, in the second, in the last phase; each party, and all at once; Adam, momentum, a penalty."""
    (tmp_path / "whole").mkdir()
    whole, cut = Three(tmp_path / "whole", PARTIES), Three(tmp_path / "cut", PARTIES)
    whole.make()
    try:
        for party in PARTIES:
            whole.start(party)
        for party in PARTIES:
            whole.wait_for_step(party, 2)
        assert all(whole.kill(party) for party in PARTIES)
        shutil.copytree(whole.folder, cut.folder)
        finish_with_kills(whole, ())
        finish_with_kills(
            cut, ((["shop"], 6), (["helper"], 18), (["bank"], 34), (list(PARTIES), 44), (["shop"], 62), (["bank"], 80))
        )
        one, two = whole.tensors(), cut.tensors()
        assert len(one) > 10
        assert one == two
        assert whole.documents() == cut.documents()
    finally:
        whole.stop()
        cut.stop()
