"""One encrypted batch of PrADA's pre-training, end to end, against the same code in the clear and against the paper.

128 rows, 10 groups (4 and their pairs) with the columns' sizes and the networks of the Census experiment, adversarial
step and label defence included; 2048-bit keys. A source, a target and a feature holder are processes of their own that
speak over mutual TLS (`colonnade run --local --stage pretrain`). The time of a batch is that between two batches as the
source's ledger has it; the median over all batches but the first five, which make tables. In the clear (protection =
"none") the same run does the same arithmetic without encryption.

The paper's schedule is that of `benchmarks.secure_linear`, written with python-paillier: every number in a ciphertext
of its own, in one process, not charged for writing messages; the networks' time, which it needs too, is that of the run
in the clear. Precision: inputs 2**-16, slopes 2**-32, weights in the logits 2**-24, at both. All times are by the wall
clock, rounds are interleaved, and ratios are those of medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.form import Findings, main, say
from benchmarks.secure_linear import BITS, INPUTS, QUICK_BITS, QUICK_ROWS, ROWS, Paper, made_up
from colonnade.datasets import CENSUS_GROUPS, CENSUS_SHARED, CENSUS_WIDTHS
from colonnade.ledger import Ledger

CENSUS_BATCHES = 625
# How many categories the Census's columns have, about: as many as their embedding's width tells.
CATEGORIES = {1: 2, 2: 3, 3: 5, 4: 8, 5: 9, 6: 14, 8: 24, 10: 40}


def make_homes(folder: Path, rows: int, batches: int, key: str) -> dict[str, Path]:
    """Write three homes with made-up rows of the Census's shape, and a run.toml with and without encryption."""
    random = np.random.default_rng(0)
    targets = 3 * rows + 40
    # A tenth of the source's rows is held out.
    sources = int(rows * batches / 0.9)
    count = sources + targets
    company = pd.DataFrame({"id": np.arange(count)})
    for column, width in CENSUS_WIDTHS.items():
        company[column] = [f"category {one}" for one in random.integers(0, CATEGORIES[width], count)]
    banks = pd.DataFrame({"id": np.arange(count), "age": random.normal(45, 12, count)})
    banks["gain"] = random.exponential(1000, count) * (random.random(count) < 0.1)
    banks["label"] = (random.random(count) < 0.3).astype(int)
    tables = {"company": company, "sister": banks[:sources], "bank": banks[sources:]}
    for party, table in tables.items():
        (folder / party).mkdir(parents=True)
        table.to_csv(folder / party / "table.csv", index=False)
        label = "" if party == "company" else 'label = "label"\n'
        about = f'[party]\nname = "{party}"\n[table]\nsource = "table.csv"\nid = "id"\n{label}'
        (folder / party / "party.toml").write_text(about)
    groups = "\n".join(f"{name} = {json.dumps(columns)}" for name, columns in CENSUS_GROUPS.items())
    widths = "\n".join(f"{name} = {width}" for name, width in CENSUS_WIDTHS.items())
    files = {}
    for protection in ("paillier", "none"):
        files[protection] = folder / f"{protection}.toml"
        files[protection].write_text(
            f'[run]\nname = "{protection}"\nmethod = "prada"\nseed = 7\n'
            'roles = { feature_holder = "company", target = "bank", source = "sister" }\n'
            "[evaluate]\ntest_fraction = 0.05\nvalidation_fraction = 0.05\n"
            f'[config]\nprotection = "{protection}"\nkey_size = {key}\nbatch_size = {rows}\nepochs = 1\n'
            f"pictures = false\nshared_tables = {json.dumps(CENSUS_SHARED)}\n"
            f"[config.groups]\n{groups}\n[config.embeddings]\n{widths}\n"
        )
    return files


def seconds_per_batch(file: Path, launch: str, left_out: int) -> list[float]:
    """Carry out a run and return the times between batches but some, as the source's ledger has them."""
    command = [sys.executable, "-m", "colonnade", "run", str(file), launch, "--no-compare", "--quiet", "--json"]
    done = subprocess.run(
        [*command, "--stage", "pretrain", "--overwrite"], stdout=subprocess.PIPE, timeout=1800, check=True
    )
    ledger = Ledger.read(Path(json.loads(done.stdout)["folder"]) / "sister" / "ledger.jsonl")
    first: dict[int, datetime] = {}
    for entry in ledger.messages():
        if entry.kind == "received" and entry.content["message"] in ("TrainedInputs", "GroupNumbers"):
            first.setdefault(entry.content["step"], datetime.fromisoformat(entry.time))
    times = [first[step] for step in sorted(first) if step]
    return [(after - before).total_seconds() for before, after in pairwise(times)][left_out:]


def measure(arguments: argparse.Namespace) -> Findings:
    key, bits, rows = ('"insecure_test"', QUICK_BITS, QUICK_ROWS) if arguments.quick else (str(BITS), BITS, ROWS)
    rounds, batches, left_out = (1, 12, 1) if arguments.quick else (arguments.rounds, 30, 5)
    # So many processes take seconds to begin.
    launch = "--simulate" if arguments.quick else "--local"
    seconds: dict[str, list[float]] = {"paillier": [], "none": [], "paper": []}
    paper = Paper(bits)
    inputs, labels = made_up(rows)
    with tempfile.TemporaryDirectory() as folder:
        files = make_homes(Path(folder), rows, batches, key)
        for number in range(rounds):
            for protection, file in files.items():
                say(f"Round {number + 1} of {rounds}: protection = {protection} …")
                seconds[protection] += seconds_per_batch(file, launch, left_out)
            say(f"Round {number + 1} of {rounds}: the paper's schedule …")
            seconds["paper"].append(paper.batch(inputs, labels)[0])
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    findings = Findings()
    findings.figures |= {
        "key_bits": key.strip('"'),
        "rows": rows,
        "groups": INPUTS,
        "cores": len(os.sched_getaffinity(0)),
        "encrypted_batch_seconds": medians["paillier"],
        "clear_batch_seconds": medians["none"],
        "paper_schedule_seconds": medians["paper"],
        "census_epoch_minutes": medians["paillier"] * CENSUS_BATCHES / 60,
        "census_epoch_minutes_paper_schedule": (medians["paper"] + medians["none"]) * CENSUS_BATCHES / 60,
        "load_average": os.getloadavg()[0],
    }
    findings.bar("encrypted_over_clear", medians["paillier"] / medians["none"], at_most=30)
    findings.bar("paper_over_encrypted", (medians["paper"] + medians["none"]) / medians["paillier"], at_least=30)
    return findings


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured")


if __name__ == "__main__":
    main(__doc__ or "", measure, options)
