"""Encrypted regression on FATE's own example data: `colonnade run --local` with 2048-bit keys against scikit-learn.

Each data set is trained by two processes over mutual TLS on loopback, with default settings. The same training rows,
joined in one place, are given to LogisticRegression; both are judged on the same held-out rows. Needs the data of the
FATE project (see colonnade.datasets.fate_examples); `--quick` makes a small table up.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks.form import Findings, main, say
from colonnade.data import PartyTable
from colonnade.datasets import FATE_EXAMPLES, fate_example
from colonnade.exchanges.holdings import encoded_columns
from colonnade.launch.baselines import join_tables
from colonnade.launch.home import read_run_file
from colonnade.methods import method_named

NAMES = ("breast_hetero", "default_credit_hetero")
MADE_UP = "made_up"
SEED = 3
# Default settings take few epochs and add noise to coefficients, which differs from run to run.
MOST_LOST = 0.01


def made_up(rows: int = 300) -> dict[str, pd.DataFrame]:
    """Return rows whose label follows from the columns of both sides."""
    generator = np.random.default_rng(0)
    values = generator.normal(size=(rows, 8))
    frames = {
        side: pd.DataFrame(own, columns=[f"{side}{place}" for place in range(4)]).assign(id=np.arange(rows))
        for side, own in (("guest", values[:, :4]), ("host", values[:, 4:]))
    }
    frames["guest"]["y"] = (values.sum(axis=1) + generator.normal(size=rows) > 0).astype(int)
    return frames


def write_homes(name: str, folder: Path) -> dict[str, PartyTable]:
    """Write two homes and a run file, and return the tables."""
    is_made_up = name == MADE_UP
    identifier, label = ("id", "y") if is_made_up else FATE_EXAMPLES[name]
    tables = {}
    for side, frame in (made_up() if is_made_up else fate_example(name)).items():
        home = folder / side
        home.mkdir()
        frame.to_parquet(home / "table.parquet")
        lines = [
            f'[party]\nname = "{side}"',
            f'[table]\nsource = "table.parquet"\nid = "{identifier}"',
            f'label = "{label}"' if side == "guest" else "",
        ]
        (home / "party.toml").write_text("\n".join(lines) + "\n")
        tables[side] = PartyTable(frame, id=identifier, label=label if side == "guest" else None)
    (folder / "run.toml").write_text(
        f'[run]\nname = "{name}"\nmethod = "secure_lr"\nseed = {SEED}\n'
        'roles = { label_holder = "guest", feature_holder = "host" }\n[config]\n'
        + ('key_size = "insecure_test"\n' if is_made_up else "")
    )
    return tables


def central_auc(folder: Path, tables: dict[str, PartyTable]) -> float:
    """Judge scikit-learn's regression on the joined columns, on the run's own split."""
    plan = read_run_file(folder / "run.toml")
    holding = join_tables(method_named("secure_lr"), plan, tables)
    _, columns = encoded_columns(holding, np.float64)
    labels, split = holding.table.labels, holding.split
    assert columns is not None
    assert labels is not None
    model = LogisticRegression(max_iter=5000).fit(columns[split.train], labels[split.train])
    return float(roc_auc_score(labels[split.test], model.predict_proba(columns[split.test])[:, 1]))


def measure(arguments: argparse.Namespace) -> Findings:
    key_bits = 1024 if arguments.quick else 2048
    findings = Findings(figures={"key_bits": key_bits, "load_average": os.getloadavg()[0]})
    for name in (MADE_UP,) if arguments.quick else NAMES:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            tables = write_homes(name, folder)
            say(f"Training {name} …")
            start = time.perf_counter()
            command = [sys.executable, "-m", "colonnade", "run", "run.toml", "--local", "--no-compare", "--json"]
            ran = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True, text=True)
            seconds = time.perf_counter() - start
            auc = json.loads(ran.stdout)["metrics"]["together"]["auc"]
            central = central_auc(folder, tables)
        findings.figures |= {f"{name}_auc": auc, f"{name}_central_auc": central, f"{name}_seconds": seconds}
        findings.bar(f"{name}_difference", abs(auc - central), at_most=MOST_LOST)
    return findings


if __name__ == "__main__":
    main(__doc__ or "", measure)
