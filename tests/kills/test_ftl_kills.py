"""SIGKILL in the middle of federated transfer learning, then the same command again: the same model, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from colonnade.ledger import Ledger
from tests.kills.harness import NAME, Homes, disturb

ITERATIONS = 20

_RUN = """\
[run]
name = "{name}"
method = "ftl"
roles = {{ {lead_role} = "{lead}", {other_role} = {others} }}
seed = 7

[config]
width = 4
hidden = [3]
iterations = {iterations}
tolerance = 0.0
batch_size = 120
labelled_rows = 60
safeguard = false
secret_start = false
allow_leak = true
key_size = "insecure_test"
"""


@dataclass
class Transferring(Homes):
    """Homes of a source and one or two targets."""

    def make(self) -> None:
        super().make()
        lead, *others = self.parties
        text = _RUN.format(
            name=NAME,
            lead=lead,
            lead_role="source",
            other_role="target",
            others=str(others).replace("'", '"'),
            iterations=ITERATIONS,
        )
        (self.folder / "run.toml").write_text(text)

    def steps(self, party: str) -> list[int]:
        """Return the steps at which a party went on."""
        entries = Ledger.read(self.run_folder(party).ledger).entries
        return [int(entry.content["step"]) for entry in entries if entry.kind == "resumed"]

    def wait_for_step(self, party: str, step: int) -> None:
        """Wait until a party has kept a checkpoint of this step."""
        kept = self.run_folder(party).path / "checkpoints" / "train"
        process = self.processes[party]
        while process.poll() is None:
            found = [int(path.stem.removeprefix("step-")) for path in kept.glob("step-*.json")] if kept.is_dir() else []
            if max(found, default=0) >= step:
                return
        raise AssertionError(self.logs())


def homes_in(folder: Path, parties: tuple[str, ...]) -> Transferring:
    folder.mkdir()
    homes = Transferring(folder, parties)
    homes.make()
    return homes


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("parties", [("bank", "shop"), ("bank", "shop", "telecom")], ids=len)
def test_killed_at_iteration_7_and_12_it_ends_with_the_same_model(parties: tuple[str, ...], tmp_path: Path) -> None:
    whole, cut = homes_in(tmp_path / "whole", parties), homes_in(tmp_path / "cut", parties)
    try:
        for party in parties:
            whole.start(party)
        whole.wait()
        for party in parties:
            cut.start(party)
        for victims, step in ((["shop"], 7), (["bank"], 12), (list(parties), 15)):
            cut.wait_for_step(victims[0], step)
            assert [cut.kill(party) for party in victims] == [True] * len(victims)
            for party in victims:
                cut.start(party)
        cut.wait()
        assert cut.models() == whole.models()
        assert len(cut.steps("shop")) >= 2
        assert any(7 <= step < ITERATIONS for step in cut.steps("shop"))
        cut.check_ledgers()
    finally:
        whole.stop()
        cut.stop()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_moment_it_ends_with_the_same_model(seed: int, tmp_path: Path) -> None:
    parties = ("bank", "shop")
    whole, cut = homes_in(tmp_path / "whole", parties), homes_in(tmp_path / "cut", parties)
    try:
        for party in parties:
            whole.start(party)
        whole.wait()
        # With some seeds the run ends before all four.
        assert len(disturb(cut, 4, seed)) >= 2
        assert cut.models() == whole.models()
        cut.check_ledgers()
    finally:
        whole.stop()
        cut.stop()
