"""SIGKILL in the middle of PrADA between three homes, then the same command again: the same model.

In the clear the model is the same byte for byte; encrypted, within what shares are rounded by.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.torch

from colonnade.launch.identity import make_home, pin_partner
from colonnade.ledger import Ledger, compare
from tests.kills.harness import NAME, Homes, free_ports

PARTIES = ("data", "sister", "bank")
_RUN = """\
[run]
name = "{name}"
method = "prada"
roles = {{ feature_holder = "data", source = "sister", target = "bank" }}
seed = 7

[config]
epochs = 3
fine_epochs = 4
batch_size = 40
fine_batch_size = 20
checkpoint_every = 2
expansion = "none"
tune = "all"
defence = "none"
compare = "none"
secret_start = false
pictures = false
precision = "float64"
protection = "{protection}"
key_size = "insecure_test"

[config.groups]
one = ["n0", "job"]
two = ["n1", "n2"]
"""


@dataclass
class Banks(Homes):
    """Homes of a data company, a source with many labels and a target with few."""

    protection: str = "none"

    def make(self) -> None:
        generator = np.random.default_rng(3)
        count, split = 400, 240
        traits = generator.normal(size=(count, 3))
        label = np.where(traits.sum(axis=1) + generator.normal(size=count) > 0, "yes", "no").astype(object)
        frames = {
            "data": pd.DataFrame(traits, columns=["n0", "n1", "n2"]).assign(job=generator.choice(list("abc"), count)),
            "sister": pd.DataFrame({"own": generator.normal(size=count), "label": label}),
            "bank": pd.DataFrame({"own": generator.normal(size=count), "label": label}),
        }
        frames["sister"], frames["bank"] = frames["sister"][:split], frames["bank"][split:]
        frames["bank"].loc[frames["bank"].index[::3], "label"] = None
        ports = free_ports(len(PARTIES))
        for party, port in zip(PARTIES, ports, strict=True):
            make_home(self.folder / party, party, f"127.0.0.1:{port}")
            frames[party].rename_axis("id").to_csv(self.folder / party / "table.csv")
            text = (
                f'[party]\nname = "{party}"\nlisten = "127.0.0.1:{port}"\n\n[table]\nsource = "table.csv"\nid = "id"\n'
            )
            text += 'label = "label"\n' if party != "data" else ""
            text += "unlabelled = true\n" if party == "bank" else ""
            (self.folder / party / "party.toml").write_text(text + "\n[policy]\n")
        for party in PARTIES:
            for peer, port in zip(PARTIES, ports, strict=True):
                if peer != party:
                    certificate = (self.folder / peer / "certificate.pem").read_bytes()
                    pin_partner(self.folder / party, certificate, f"127.0.0.1:{port}")
        (self.folder / "run.toml").write_text(_RUN.format(name=NAME, protection=self.protection))

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

    def weights(self) -> np.ndarray:
        """Return the weights of groups, from both sides' shares."""

        def document(party: str) -> Any:
            (file,) = (self.run_folder(party).path / "model").glob("*.json")
            return json.loads(file.read_text())

        mine, theirs = document("bank"), document("data")
        mine, theirs = mine.get("document", mine), theirs.get("document", theirs)
        own, other = mine["heads"]["finetune"], theirs["banks"]["bank"]["heads"]["finetune"]
        return np.array([(int(one) + int(two)) / 2**48 for one, two in zip(own["share"], other["share"], strict=True)])

    def check_ledgers(self) -> None:
        """Raise unless every ledger verifies and that of the data company agrees with each bank's."""
        ledgers = {party: Ledger.read(self.run_folder(party).ledger) for party in PARTIES}
        for ledger in ledgers.values():
            ledger.verify()
        for bank in PARTIES[1:]:
            compare(ledgers["data"], ledgers[bank])


def homes_in(folder: Path, protection: str) -> Banks:
    folder.mkdir()
    homes = Banks(folder, PARTIES, protection=protection)
    homes.make()
    return homes


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("protection", ["none", "paillier"])
def test_killed_in_every_phase_it_ends_with_the_same_model(protection: str, tmp_path: Path) -> None:
    """Check 14 of the sheet, with processes that are killed: in pre-training, in fine-tuning, and all at once."""
    whole, cut = homes_in(tmp_path / "whole", protection), homes_in(tmp_path / "cut", protection)
    try:
        for party in PARTIES:
            whole.start(party)
        whole.wait()
        for party in PARTIES:
            cut.start(party)
        # 5 steps in each of 3 epochs of pre-training, then 4 in each of 4 of fine-tuning.
        for victims, step in ((["sister"], 2), (["bank"], 6), (["data"], 16), (list(PARTIES), 22)):
            cut.wait_for_step(victims[0], step)
            assert [cut.kill(party) for party in victims] == [True] * len(victims)
            for party in victims:
                cut.start(party)
        cut.wait()
        cut.check_ledgers()
        if protection == "none":
            assert cut.models() == whole.models()
        else:
            one, two = whole.tensors(), cut.tensors()
            assert one.keys() == two.keys()
            assert max(float(np.abs(value - two[name]).max(initial=0.0)) for name, value in one.items()) < 1e-6
            assert np.abs(whole.weights() - cut.weights()).max() < 1e-6
    finally:
        whole.stop()
        cut.stop()
