"""Parties in homes of their own, killed at any moment and started again with the same command."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from colonnade.launch.identity import make_home, pin_partner
from colonnade.launch.join import Joining
from colonnade.launch.party_folder import PartyFolder
from colonnade.ledger import Ledger, compare

NAME = "churn"
LIMIT_SECONDS = 240.0
_LINE_BYTES = 420

_RUN = """\
[run]
name = "{name}"
method = "splitnn"
roles = {{ label_holder = "{lead}", feature_holder = {others} }}
seed = 7

[config]
hidden = [16]
cut_width = 8
batch_size = 16
epochs = {epochs}
minimum_steps = 0
patience = 0
secret_start = false
checkpoint_every = 50
"""


@dataclass
class Restart:
    """One party started again, and how long it took until it did something new."""

    party: str
    seconds: float | None


@dataclass
class Homes:
    """The homes of all parties of one run."""

    folder: Path
    parties: tuple[str, ...]
    epochs: int = 40
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def frames(self) -> dict[str, pd.DataFrame]:
        """Return tables by party, with a column `label` at who has one; who is not there brings none."""
        generator = np.random.default_rng(1)
        blocks = {party: generator.normal(size=(400, 3)) for party in self.parties}
        found = {
            party: pd.DataFrame(block, columns=[f"{party}_{place}" for place in range(3)]).rename_axis("id")
            for party, block in blocks.items()
        }
        signal_of = sum(block.sum(axis=1) for block in blocks.values())
        found[self.parties[0]]["label"] = np.where(signal_of > 0, "yes", "no")
        return found

    def run_file(self) -> str:
        """Return what run.toml says."""
        lead, *others = self.parties
        return _RUN.format(name=NAME, lead=lead, others=json.dumps(others), epochs=self.epochs)

    def make(self) -> None:
        """Give every party a key, its table and its partners' certificates."""
        frames, ports = self.frames(), dict(zip(self.parties, free_ports(len(self.parties)), strict=True))
        for party, port in ports.items():
            make_home(self.folder / party, party, f"127.0.0.1:{port}")
            text = f'[party]\nname = "{party}"\nlisten = "127.0.0.1:{port}"\n'
            if party in frames:
                frames[party].to_csv(self.folder / party / "table.csv")
                text += '\n[table]\nsource = "table.csv"\nid = "id"\n'
                labels = frames[party].get("label", pd.Series())
                text += 'label = "label"\n' * (labels.size > 0) + "unlabelled = true\n" * bool(labels.isna().any())
            (self.folder / party / "party.toml").write_text(text + "\n[policy]\n")
        for party in self.parties:
            for peer, port in ports.items():
                if peer != party:
                    certificate = (self.folder / peer / "certificate.pem").read_bytes()
                    pin_partner(self.folder / party, certificate, f"127.0.0.1:{port}")
        (self.folder / "run.toml").write_text(self.run_file())

    def start(self, party: str, *options: str) -> subprocess.Popen[bytes]:
        """Give a party's command."""
        command = [sys.executable, "-m", "colonnade", "run", "--yes", "--no-compare", *options]
        command += ["--home", str(self.folder / party), str(self.folder / "run.toml")]
        with (self.folder / f"{party}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment())
        self.processes[party] = process
        return process

    def wait_for_entries(self, party: str, count: int) -> None:
        """Wait until a party has written about this many more lines, or ended, or is stuck."""
        ledger, limit = self.run_folder(party).ledger, time.monotonic() + 30.0
        # By its size: to read it again and again would take the time of those who are watched.
        enough = _size(ledger) + count * _LINE_BYTES
        while _size(ledger) < enough and self.processes[party].poll() is None and time.monotonic() < limit:
            time.sleep(0.01)

    def wait_for_step(self, party: str, step: int) -> None:
        """Wait until a party has kept a checkpoint of this step."""
        kept = self.run_folder(party).path / "checkpoints" / "train"
        while self.processes[party].poll() is None:
            if max((int(path.stem.removeprefix("step-")) for path in kept.glob("step-*.json")), default=0) >= step:
                return
            time.sleep(0.005)
        raise AssertionError(self.logs())

    def kill(self, party: str) -> bool:
        """Kill a party, if it still runs, and say whether it did."""
        process = self.processes[party]
        if process.poll() is not None:
            return False
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True

    def stop(self) -> None:
        """End everything, whatever happened."""
        for party in self.processes:
            self.kill(party)

    def wait(self, seconds: float = LIMIT_SECONDS) -> None:
        """Wait until all parties have ended well."""
        limit = time.monotonic() + seconds
        for party, process in self.processes.items():
            try:
                code = process.wait(max(0.1, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{party} hangs.\n{self.logs()}") from None
            assert code == 0, f"{party} ended with {code}.\n{self.logs()}"

    def logs(self) -> str:
        """Return what all parties said."""
        return "\n".join(f"--- {party}\n{(self.folder / f'{party}.log').read_text()}" for party in self.parties)

    def run_folder(self, party: str) -> PartyFolder:
        """Return where a party keeps the run."""
        return PartyFolder(self.folder / party / "runs" / NAME)

    def models(self) -> dict[str, bytes]:
        """Return every party's part of the model, byte for byte."""
        return {
            f"{party}/{file.name}": file.read_bytes()
            for party in self.parties
            for file in sorted((self.run_folder(party).path / "model").iterdir())
        }

    def check_ledgers(self) -> None:
        """Raise unless every ledger verifies and every two agree."""
        ledgers = {party: Ledger.read(self.run_folder(party).ledger) for party in self.parties}
        for ledger in ledgers.values():
            ledger.verify()
        lead, *others = self.parties
        for other in others:
            compare(ledgers[lead], ledgers[other])


def disturb(homes: Homes, kills: int, seed: int, *, longest_pause: float = 3.0) -> list[Restart]:
    """Run to the end with this many kills at seeded random moments, of one party or sometimes of all."""
    chooser = random.Random(seed)
    restarted: list[tuple[str, float]] = []
    killed_at: list[float] = []
    for party in homes.parties:
        homes.start(party)
    done = 0
    limit = time.monotonic() + LIMIT_SECONDS
    while done < kills and any(process.poll() is None for process in homes.processes.values()):
        assert time.monotonic() < limit, f"The run makes no progress.\n{homes.logs()}"
        victims = list(homes.parties) if chooser.random() < 0.2 else [chooser.choice(homes.parties)]
        if chooser.random() < 0.3:
            time.sleep(chooser.uniform(0.0, longest_pause))  # often before it has done anything
        else:
            homes.wait_for_entries(victims[0], chooser.randrange(1, 300))
        killed = [party for party in victims if homes.kill(party)]
        killed_at.append(time.time())
        done += len(killed)
        time.sleep(chooser.uniform(0.0, 0.3))
        for party in killed:
            restarted.append((party, time.time()))
            homes.start(party)
    homes.wait()
    found = []
    for party, moment in restarted:
        # Nobody makes a new step while another party is away, so a kill that came before it spoils the measurement.
        until = min((other for other in killed_at if other > moment), default=float("inf"))
        found.append(Restart(party, _first_new_step(homes, party, moment, until)))
    return found


def _first_new_step(homes: Homes, party: str, moment: float, until: float) -> float | None:
    """Return the seconds from a start to the first message of a step the party had not made before it."""
    reached = 0
    for entry in Ledger.read(homes.run_folder(party).ledger).entries:
        when = datetime.fromisoformat(entry.content["time"]).timestamp()
        step = int(entry.content.get("step", 0)) if entry.is_message else 0
        if when < moment:
            reached = max(reached, step)
        elif step > reached:
            return when - moment if when < until else None
    return None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def environment() -> dict[str, str]:
    """Return the environment of a party: one thread of arithmetic, so that results do not depend on the machine."""
    return os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "120"}


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    import socket

    sockets: list[Any] = []
    for _ in range(count):
        one = socket.socket()
        one.bind(("127.0.0.1", 0))
        sockets.append(one)
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def agreed(joining: Joining) -> Joining:
    """Return a party that may send: its operator has agreed."""
    joining.agree("given in a test")
    return joining
