"""SIGKILL in the middle of FairVFL between six homes, then the same command again: the same model, byte for byte.

First weights, noise and randomised answers come from secrets, so both runs begin as copies of one that was killed at
its first checkpoint.
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

PARTIES = ("bank", "one", "two", "server", "state", "bureau")
KILLS = ((["one"], 6), (["server"], 12), (["state"], 18), (["bank"], 24), (list(PARTIES), 30), (["bureau"], 38))
# Twelve steps an epoch, 48 in all.
_RUN = """\
[run]
name = "{name}"
method = "fairvfl"
seed = 7

[run.roles]
label_holder = "bank"
feature_holder = ["one", "two"]
aggregator = "server"
attribute_holder = ["state", "bureau"]

[config]
attributes = ["gender", "age"]
epochs = 4
batch_size = 16
width = 16
heads = 2
embedding = 4
bins = 8
task_hidden = [8]
mapper_hidden = [8]
contrastive_hidden = [8]
discriminator_hidden = [8]
gradient_clip = 0.5
gradient_noise = 0.1
mapper_step = "{step}"
checkpoint_every = 2
key_size = "insecure_test"
"""


@dataclass
class Six(Homes):
    """Homes of a bank with labels, two shops, a server without a table, and two offices with an attribute each."""

    step: str = "joint"

    def make(self) -> None:
        frames = self._frames()
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
        (self.folder / "run.toml").write_text(_RUN.format(name=NAME, step=self.step))

    def _frames(self) -> dict[str, pd.DataFrame]:
        generator = np.random.default_rng(3)
        values = generator.normal(size=(270, 4))
        gender = (values[:, 0] + 0.5 * generator.normal(size=270) > 0).astype(int)
        return {
            "bank": pd.DataFrame({"label": np.where(values.sum(axis=1) > 0, "yes", "no")}),
            "one": pd.DataFrame(values[:, :2], columns=["a", "b"]),
            "two": pd.DataFrame(values[:, 2:], columns=["c", "d"]),
            "state": pd.DataFrame({"gender": np.where(gender == 1, "f", "m")}),
            "bureau": pd.DataFrame({"age": generator.normal(size=270) * 12 + 40}),
        }

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
            found[party] = {**told.get("document", told), "model": "", "document_sha256": "", "created": ""}
        return found

    def marks(self) -> set[str]:
        """Return the marks of all parts, which must be of one model."""
        files = [file for party in PARTIES for file in (self.run_folder(party).path / "model").glob("*.json")]
        told = [json.loads(file.read_text()) for file in files]
        return {one.get("document", one)["model"] for one in told}


def finish_with_kills(homes: Six, kills: tuple[tuple[list[str], int], ...]) -> None:
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
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("step", ["joint", "sequential"])
def test_killed_at_any_moment_it_ends_with_the_same_bytes(step: str, tmp_path: Path) -> None:
    """Each kind of party, and all at once; randomised answers, noise on codes and on gradients."""
    (tmp_path / "whole").mkdir()
    whole, cut = Six(tmp_path / "whole", PARTIES, step=step), Six(tmp_path / "cut", PARTIES, step=step)
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
            cut,
            ((["one"], 6), (["server"], 12), (["state"], 18), (["bank"], 24), (list(PARTIES), 30), (["bureau"], 38)),
        )
        one, two = whole.tensors(), cut.tensors()
        assert len(one) > 10
        assert one == two
        assert whole.documents() == cut.documents()
        assert len(whole.marks()) == len(cut.marks()) == 1
    finally:
        whole.stop()
        cut.stop()
