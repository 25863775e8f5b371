"""SIGKILL in the middle of an alignment, then the same command again: the same rows, and nothing is sent anew."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from colonnade.ledger import Ledger
from tests.kills.harness import Homes, environment

ROWS, SHARED, PIECE = 6000, 300, 50
# As the command, but in many pieces.
SMALL_PIECES = f"import colonnade.alignment.ecdh as e; e.PIECE = {PIECE}; from colonnade.cli import main; main()"


@dataclass
class ManyIds(Homes):
    """Homes whose tables share few of many rows, so that finding these takes a while and training does not."""

    def make(self) -> None:
        super().make()
        generator = np.random.default_rng(2)
        for place, party in enumerate(self.parties):
            path = self.folder / party / "table.csv"
            frame = pd.read_csv(path).head(SHARED)
            own = pd.DataFrame({"id": np.arange(ROWS - SHARED) + 10**6 * (place + 1)})
            for column in frame.columns.drop("id"):
                own[column] = generator.choice(frame[column], size=len(own))
            pd.concat([frame, own]).sample(frac=1, random_state=place).to_csv(path, index=False)

    def start(self, party: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", SMALL_PIECES, "run", "--yes", "--no-compare", *options]
        command += ["--home", str(self.folder / party), str(self.folder / "run.toml")]
        with (self.folder / f"{party}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment())
        self.processes[party] = process
        return process

    def pieces(self, party: str) -> int:
        """Count the pieces that a party has kept of an unfinished alignment."""
        return len([path for path in (self.folder / party).rglob("piece-*") if path.suffix != ".part"])

    def sent(self, party: str) -> int:
        """Count the pieces that a party has ever sent."""
        entries = Ledger.read(self.run_folder(party).ledger).entries
        points = "BlindedIds" if party == "bank" else "TwiceBlindedIds"
        return sum(entry.kind == "sent" and entry.content.get("message") == points for entry in entries)

    def wait_for_pieces(self, party: str, count: int) -> None:
        limit = time.monotonic() + 60
        while self.pieces(party) < count:
            assert self.processes[party].poll() is None, self.logs()
            assert time.monotonic() < limit, self.logs()
            time.sleep(0.001)


def homes_in(folder: Path) -> ManyIds:
    homes = ManyIds(folder, ("bank", "shop"), epochs=1)
    homes.make()
    return homes


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_kills_in_the_middle_of_an_alignment(tmp_path: Path) -> None:
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    whole, cut = homes_in(tmp_path / "whole"), homes_in(tmp_path / "cut")
    try:
        for party in whole.parties:
            whole.start(party)
        whole.wait()
        assert [whole.sent(party) for party in whole.parties] == [ROWS // PIECE] * 2

        for party in cut.parties:
            cut.start(party)
        for victims, count in ((["shop"], 20), (["bank", "shop"], 60)):
            cut.wait_for_pieces(victims[0], count)
            assert [cut.kill(party) for party in victims] == [True] * len(victims)
            assert cut.pieces(victims[0]) < ROWS // PIECE, "not in the middle"
            assert list((cut.folder / victims[0]).rglob("state.json"))
            for party in victims:
                cut.start(party)
        cut.wait()
        for party in cut.parties:
            # Each interruption may cost the piece that was under way, and one on its way.
            assert ROWS // PIECE <= cut.sent(party) <= ROWS // PIECE + 2 * 3
            assert not list((cut.folder / party).rglob("state.json")), "the secret is gone"
            assert not cut.pieces(party)
        assert cut.models() == whole.models()
        cut.check_ledgers()
    finally:
        whole.stop()
        cut.stop()
