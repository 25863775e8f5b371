"""Whether `colonnade plan` tells the truth: what it says against the run that follows, for all methods and protections.

For each case homes with synthetic tables are made in a folder of their own; then `colonnade plan --json` and
`colonnade run --local --no-compare` follow one another a few times. Seconds are those each party's outcome.json
records: from the greeting to its kept result, without the start of the processes and the reading of the tables; of
all parties the longest. Bytes are those of the ledgers. No case stops early, as a plan is of the most that a run takes.

The ratio of times is the larger of plan over run and run over plan. The speed of a shared machine changes from second
to second, so the bar holds the median over the rounds; all of them are shown. With --quick tables and keys are tiny and
the parties are threads of this process, so that only bytes and messages are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.form import Findings, main, say
from colonnade.engine import EngineSettings
from colonnade.launch.home import read_party_home, read_run_file
from colonnade.launch.made_up import World
from colonnade.launch.rehearsal import rehearse
from colonnade.launch.simulation import simulate_plan
from colonnade.ledger import Ledger
from colonnade.methods import method_named
from colonnade.session import Party

MOST_TIMES_OFF, MOST_BYTES_OFF, MOST_EXTRAPOLATED_OFF, MOST_SECONDS = 1.5, 0.01, 0.02, 30.0
Group = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A method with settings, and the shapes of its tables."""

    method: str
    name: str
    roles: Mapping[str, Any]
    groups: Mapping[Group, int]
    """How many rows exactly these parties have."""
    columns: Mapping[str, int]
    settings: Mapping[str, Any] = field(default_factory=dict)
    labels: Group = ("bank",)
    further: Mapping[str, str] = field(default_factory=dict)
    """A column of two categories that a party has beside its numbers."""
    links: int = 0
    """Links per person, where tables have links."""
    stage: str = "train"
    is_quick: bool = False
    """Whether --quick plays it."""

    def quick(self) -> Case:
        """Return the same with tiny tables and keys."""
        keys = {"key_size": "insecure_test"} if "key_size" in self.settings else {}
        groups = {group: min(80, count) for group, count in self.groups.items()}
        columns = {party: min(4, count) for party, count in self.columns.items()}
        return replace(self, groups=groups, columns=columns, settings={**self.settings, **_SMALL[self.method], **keys})

    def make(self, folder: Path) -> Path:
        """Write homes and run.toml, and return the latter."""
        random, start = np.random.default_rng(0), 0
        people = {}
        for group, count in self.groups.items():
            people[group] = np.arange(start, start + count)
            start += count
        traits = random.normal(size=start)
        for party, width in self.columns.items():
            rows = np.concatenate([rows for group, rows in people.items() if party in group])
            values = 0.5 * traits[rows, None] + random.normal(size=(len(rows), width))
            frame = pd.DataFrame(values, columns=[f"{party}_{place}" for place in range(width)])
            if party in self.further:
                frame[self.further[party]] = np.where(random.random(len(rows)) < 0.5, "one", "other")
            frame.insert(0, "id", [f"c{row:06}" for row in rows])
            about = f'[party]\nname = "{party}"\n[table]\nsource = "table.csv"\nid = "id"\n'
            if party in self.labels:
                frame["label"] = (traits[rows] + random.normal(size=len(rows)) > 0).astype(int)
                about += 'label = "label"\n'
            (folder / party).mkdir(parents=True)
            if self.links:
                ends = random.integers(0, len(rows), (self.links * len(rows), 2))
                ends = frame["id"].to_numpy()[ends[ends[:, 0] != ends[:, 1]]]
                pd.DataFrame(ends, columns=["from", "to"]).to_csv(folder / party / "links.csv", index=False)
                about += 'links = "links.csv"\n'
            frame.to_csv(folder / party / "table.csv", index=False)
            (folder / party / "party.toml").write_text(about)
        for party in {one for named in self.roles.values() for one in _listed(named)} - set(self.columns):
            (folder / party).mkdir()
            (folder / party / "party.toml").write_text(f'[party]\nname = "{party}"\n')
        file, settings = folder / "run.toml", "".join(f"{name} = {_toml(one)}\n" for name, one in self.settings.items())
        file.write_text(
            f'[run]\nname = "plan"\nmethod = "{self.method}"\nroles = {_toml(self.roles)}\nseed = 7\n'
            f'stage = "{self.stage}"\n[config]\n{settings}'
        )
        return file


def _listed(one: Any) -> list[str]:
    return [one] if isinstance(one, str) else list(one)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(name)} = {_toml(one)}" for name, one in value.items()) + " }"
    return json.dumps(value)


_JOINT: dict[str, Any] = {
    "roles": {"label_holder": "bank", "feature_holder": "shop"},
    "columns": {"bank": 10, "shop": 12},
}
_OWN = {("bank", "shop"): 400, ("bank",): 500, ("shop",): 500}
_FTL: dict[str, Any] = {
    "roles": {"source": "bank", "target": "shop"},
    "columns": {"bank": 8, "shop": 8},
    "groups": {("bank", "shop"): 300, ("bank",): 400, ("shop",): 200},
}
_PRADA: dict[str, Any] = {
    "roles": {"feature_holder": "data", "target": "bank", "source": "sister"},
    "columns": {"data": 12, "bank": 4, "sister": 4},
    "groups": {("data", "bank"): 800, ("data", "sister"): 2400},
    "labels": ("bank", "sister"),
}
_MPDL: dict[str, Any] = {
    "roles": {"label_holder": "bank", "feature_holder": "shop", "collaborator": "helper"},
    "columns": {"bank": 8, "shop": 8},
    "groups": {("bank", "shop"): 600, ("bank",): 400, ("shop",): 300},
}
_FAIR: dict[str, Any] = {
    "roles": {
        "label_holder": "bank",
        "feature_holder": ["shop"],
        "aggregator": "server",
        "attribute_holder": ["state"],
    },
    "columns": {"bank": 4, "shop": 8, "state": 0},
    "groups": {("bank", "shop", "state"): 3000},
    "further": {"state": "gender"},
}
_UNITS = {"bounds": {"*": [-6.0, 6.0]}, "fold_gain": 1000.0}
_SPLITNN = {"epochs": 20, "patience": 0}
_PAILLIER = {"key_size": 2048}
_SHORT = {"patience": 0, "epochs": 5, "batch_size": 70, "own_batch_size": 125}

CASES = (
    Case(
        method="splitnn",
        name="in the clear",
        groups={("bank", "shop"): 20000},
        settings=_SPLITNN,
        is_quick=True,
        **_JOINT,
    ),
    Case(
        method="splitnn",
        name="marvell",
        groups={("bank", "shop"): 8000},
        settings={**_SPLITNN, "defence": "marvell"},
        **_JOINT,
    ),
    Case(
        method="splitnn",
        name="coae",
        groups={("bank", "shop"): 8000},
        settings={**_SPLITNN, "defence": "coae"},
        **_JOINT,
    ),
    Case(
        method="secure_lr",
        name="paillier",
        groups={("bank", "shop"): 3000},
        settings=_PAILLIER,
        is_quick=True,
        **_JOINT,
    ),
    Case(method="ftl", name="in the clear", settings={"protection": "none", "tolerance": 0.0}, **_FTL),
    Case(
        method="ftl",
        name="paillier",
        settings={**_PAILLIER, "width": 16, "iterations": 8, "tolerance": 0.0},
        is_quick=True,
        **_FTL,
    ),
    Case(
        method="ftl",
        name="paillier, rows revealed",
        settings={**_PAILLIER, "width": 16, "iterations": 8, "tolerance": 0.0, "reveal": "rows"},
        **_FTL,
    ),
    Case(method="prada", name="in the clear", settings={"protection": "none"}, **_PRADA),
    Case(method="prada", name="paillier", settings=_PAILLIER, is_quick=True, **_PRADA),
    Case(method="fedcvt", name="level 0", groups=_OWN, settings={"patience": 0}, **_JOINT),
    Case(method="fedcvt", name="level 1", groups=_OWN, settings={"patience": 0, "level": 1}, **_JOINT),
    Case(
        method="fedcvt",
        name="level 2",
        groups=_OWN,
        settings={**_PAILLIER, "level": 2, "shared_width": 16, "unique_width": 16, **_SHORT},
        is_quick=True,
        **_JOINT,
    ),
    Case(method="mpdl", name="released with noise", settings=_UNITS, is_quick=True, **_MPDL),
    Case(
        method="mpdl",
        name="interactive, paillier",
        settings={**_UNITS, **_PAILLIER, "generator": "mlp", "exchange": "interactive", "dual_consent": True},
        **_MPDL,
    ),
    Case(
        method="mpdl",
        name="secure block, paillier",
        settings={**_UNITS, **_PAILLIER, "completion": "secure_block", "block_consent": True, "epochs": 6},
        **_MPDL,
    ),
    Case(
        method="mpdl",
        name="graph, paillier",
        settings={**_UNITS, **_PAILLIER, "mechanism": "none", "folds": 0},
        links=3,
        stage="graph",
        **_MPDL,
    ),
    Case(method="fairvfl", name="robust", settings={"attributes": ["gender"]}, is_quick=True, **_FAIR),
)
_SMALL: dict[str, dict[str, Any]] = {
    "splitnn": {"epochs": 6, "minimum_steps": 40, "batch_size": 16},
    "secure_lr": {"epochs": 3, "minimum_support": 2, "allow_leak": True},
    "ftl": {"width": 3, "iterations": 4, "allow_leak": True},
    "prada": {"epochs": 3, "fine_epochs": 3, "batch_size": 16, "fine_batch_size": 16}
    | {"interactions": False, "pictures": False},
    "fedcvt": {"epochs": 3, "shared_width": 3, "unique_width": 3, "candidates": ["fedcvt"], "least_keys": 0.0},
    "mpdl": {"epochs": 5, "hidden": 4, "fold_rounds": 1},
    "fairvfl": {"epochs": 3, "width": 16, "heads": 2, "batch_size": 32},
}


def measure(arguments: argparse.Namespace) -> Findings:
    findings = Findings()
    findings.figures |= {"rounds": arguments.rounds, "cores": len(os.sched_getaffinity(0))}
    for case in CASES:
        title = f"{case.method}, {case.name}"
        if (arguments.quick and not case.is_quick) or arguments.only not in title:
            continue
        say(f"{title} …")
        with tempfile.TemporaryDirectory() as folder:
            file = (case.quick() if arguments.quick else case).make(Path(folder))
            if arguments.quick:
                _compare_here(title, file, findings)
            else:
                _compare(title, file, arguments.rounds, findings)
    findings.figures["load_average_after"] = round(os.getloadavg()[0], 2)
    return findings


def _compare(title: str, file: Path, rounds: int, findings: Findings) -> None:
    ratios, off, took, figures = [], [], [], []
    for _ in range(rounds):
        began = time.monotonic()
        plan = _command("plan", str(file))
        took.append(time.monotonic() - began)
        # A kept alignment would be used again, and the plan is of a first run.
        for kept in (*file.parent.glob("*/alignments"), *file.parent.glob("*/contributions.jsonl")):
            shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
        outcome = _command("run", str(file), "--local", "--no-compare", "--quiet", "--overwrite")
        folder = Path(outcome["folder"])
        ledgers = {party: Ledger.read(folder / party / "ledger.jsonl") for party in outcome["parties"]}
        seconds = max(json.loads((folder / party / "outcome.json").read_text())["seconds"] for party in ledgers)
        ratios.append(max(plan["seconds"] / seconds, seconds / plan["seconds"]))
        off += [_off(plan["bytes_sent"][party], sum(one.bytes_sent().values())) for party, one in ledgers.items()]
        figures.append({"plan_seconds": round(plan["seconds"], 2), "run_seconds": round(seconds, 2)})
        say(f"  {figures[-1]}, bytes off by {max(off):.4f}, the plan took {took[-1]:.1f} s")
    findings.figures[title] = {
        "rounds": figures,
        "rehearsed": plan["rehearsed"],
        "took": [round(one, 1) for one in took],
    }
    is_whole = plan["rehearsed"]["rows"] == plan["rehearsed"]["of_rows"]
    findings.bar(f"{title}: time", statistics.median(ratios), at_most=MOST_TIMES_OFF)
    findings.bar(f"{title}: bytes", max(off), at_most=MOST_BYTES_OFF if is_whole else MOST_EXTRAPOLATED_OFF)
    findings.bar(f"{title}: the plan's own seconds", statistics.median(took), at_most=MOST_SECONDS)


def _compare_here(title: str, file: Path, findings: Findings) -> None:
    """Compare messages and bytes of a rehearsal and a simulation in this process."""
    agreed = read_run_file(file)
    parties = method_named(agreed.method).parties_with_rows(agreed)
    tables = {
        party: read_party_home(file.parent / party).table_for(method_named(agreed.method), agreed) for party in parties
    }
    found = rehearse([agreed], World.of(agreed, tables, {}, None, None), EngineSettings())
    run = simulate_plan(agreed, {party: Party(table) for party, table in tables.items()})
    sent = {party: sum(ledger.bytes_sent().values()) for party, ledger in run.ledgers.items()}
    planned = Counter[str]()
    for one in found.messages:
        planned[one["sender"]] += one["bytes"]
    findings.figures[title] = {"bytes": sum(sent.values()), "plan_bytes": sum(planned.values())}
    findings.bar(
        f"{title}: bytes", max(_off(planned[one], sent[one]) for one in sent), at_most=MOST_BYTES_OFF, at_any_size=True
    )


def _off(one: float, other: float) -> float:
    return abs(one - other) / max(other, 1.0)


def _command(*words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "colonnade", *words, "--json"],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"colonnade {' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, help="how often each case is planned and run")
    parser.add_argument("--only", default="", help="play only cases with this in their name")


if __name__ == "__main__":
    main(__doc__ or "", measure, _options)
