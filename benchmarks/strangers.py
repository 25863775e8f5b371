"""How good shipped defaults are on tables nobody here prepared, against the best simple model of scikit-learn.

Sixteen tables of 269 to 4,137 rows (`benchmarks.strangers_tables`), ten repeated splits each. The product runs at its
defaults. Its rivals (`benchmarks.strangers_rivals`) are regularised linear models and gradient boosting, on the label
holder's own columns and on all columns joined, fitted on the same training rows; the best on the same validation rows
is the one compared with, on the same test rows: AUC for two classes, the mean of one class against the rest for
several, R² for numbers. A gap is what the served model has more than that rival, in the mean over a table's splits.
`splitnn` is held against all rivals, `secure_lr` against linear ones; its keys are short here, which changes no number
but the time. Where it refuses a table, as too few columns would be worked out from what it opens, it runs with
`allow_leak`, and the figures say so. Rivals' results are kept in the folder of temporary files, as they do not change.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import tempfile
import time
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

import colonnade as cn
from benchmarks import strangers_rivals
from benchmarks.form import Findings, main, say
from benchmarks.strangers_rivals import MEASURES, Rival, rivals
from benchmarks.strangers_tables import TABLES, Stranger, tables
from colonnade.errors import LeakRefused

METHODS: dict[str, tuple[Any, tuple[str, ...], float]] = {
    "splitnn": (cn.SplitNN(), ("linear", "boosting"), -0.01),
    "secure_lr": (cn.SecureLR(key_size="insecure_test"), ("linear",), -0.005),
}
"""By name: the settings, the kinds of rivals, and the least the mean of gaps may be."""
WORST = -0.04
"""The least that the gap on any one table may be."""


def measure(arguments: argparse.Namespace) -> Findings:
    if arguments.quick:
        arguments.tables, arguments.splits = ["breast_cancer"], 1
    findings = Findings()
    figures = findings.figures
    gaps: dict[str, dict[str, float]] = {method: {} for method in arguments.methods}
    seconds = dict.fromkeys(arguments.methods, 0.0)
    unseen = set()
    for table in tables(*arguments.tables):
        by_split = [kept_rivals(table, seed) for seed in range(arguments.splits)]
        entry: dict[str, Any] = {"task": table.task, "rows": len(table.label_holder), "unseen": table.is_unseen}
        unseen |= {table.name} if table.is_unseen else set()
        for method in arguments.methods:
            config, kinds, _ = METHODS[method]
            started = time.perf_counter()
            try:
                served = [run_product(config, table, seed) for seed in range(arguments.splits)]
                refuses = False
            except LeakRefused:
                config = replace(config, allow_leak=True)
                served = [run_product(config, table, seed) for seed in range(arguments.splits)]
                refuses = True
            seconds[method] += time.perf_counter() - started
            chosen = [best(one, kinds) for one in by_split]
            values = [metrics[MEASURES[table.task]] for metrics in served]
            gaps[method][table.name] = statistics.mean(values) - statistics.mean(rival.test for rival in chosen)
            entry[method] = {
                "gap": gaps[method][table.name],
                MEASURES[table.task]: statistics.mean(values),
                "rival": statistics.mean(rival.test for rival in chosen),
                "rival_in_hindsight": in_hindsight(by_split, kinds),
            }
            if refuses:
                entry[method]["refused_without_allow_leak"] = True
            if table.task != "regression":
                entry[method]["accuracy"] = statistics.mean(metrics["accuracy"] for metrics in served)
                entry[method]["rival_accuracy"] = statistics.mean(rival.accuracy for rival in chosen)
        say(f"{table.name}: " + ", ".join(f"{method} {gaps[method][table.name]:+.4f}" for method in arguments.methods))
        figures[table.name] = entry
    figures["splits"] = arguments.splits
    for method, found in gaps.items():
        figures[f"{method}_seconds"] = seconds[method]
        for half, names in (("seen", found.keys() - unseen), ("unseen", found.keys() & unseen)):
            if names:
                figures[f"{method}_mean_gap_{half}"] = statistics.mean(found[name] for name in names)
        findings.bar(f"{method}_mean_gap", statistics.mean(found.values()), at_least=METHODS[method][2])
        findings.bar(f"{method}_worst_gap", min(found.values()), at_least=WORST)
    return findings


def run_product(config: Any, table: Stranger, seed: int) -> dict[str, float]:
    """Return what the served model of a run is worth on its test rows."""
    parties = {
        "bank": cn.PartyTable(table.label_holder, id="row", label="label"),
        "shop": cn.PartyTable(table.feature_holder, id="row"),
    }
    # Rows are given in one order, so that the split of a seed is the rivals'.
    given = cn.Launch(alignment=cn.Alignment(protocol="given"))
    return cn.simulate(config, parties, seed=seed, launch=given, evaluate=cn.Evaluate(stratify=False)).metrics


def best(found: list[Rival], kinds: tuple[str, ...]) -> Rival:
    """Return the best rival of these kinds on the validation rows."""
    return max((rival for rival in found if rival.kind in kinds), key=lambda rival: rival.validation)


def in_hindsight(by_split: list[list[Rival]], kinds: tuple[str, ...]) -> float:
    """Return the highest mean over splits that one rival of these kinds has on the test rows."""
    return max(
        statistics.mean(rival.test for rival in same) for same in zip(*by_split, strict=True) if same[0].kind in kinds
    )


def kept_rivals(table: Stranger, seed: int) -> list[Rival]:
    """Fit the rivals of one split, or read what they were worth the last time."""
    content = [
        pd.util.hash_pandas_object(part).to_numpy().tobytes() for part in (table.label_holder, table.feature_holder)
    ]
    source = Path(strangers_rivals.__file__).read_bytes()
    key = hashlib.sha256(b"".join([*content, source, version("scikit-learn").encode(), str(seed).encode()])).hexdigest()
    file = Path(tempfile.gettempdir()) / "colonnade-strangers" / f"{table.name}-{seed}-{key[:16]}.json"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps([asdict(rival) for rival in rivals(table, seed)]))
    return [Rival(**rival) for rival in json.loads(file.read_text())]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--splits", type=int, default=10)


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure, add_arguments)
