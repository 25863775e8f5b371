"""Whether the right model serves: many small runs of `splitnn` and `secure_lr`, whose partners help or do not.

A draw is a run with 20 to 300 validation rows, some three to seven times as many training rows, and many test rows.
The partner's columns are its own, or their rows are shuffled, or they are noise. On the test rows the federated model
(`together`), the label holder's own columns (`alone`) and what the product chose to serve (`served`) are judged by the
task's headline metric; a number that is predicted worse than by its mean counts as 0, so that no single run decides.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.form import Findings, main, say
from colonnade.errors import TableError

DRAWS, QUICK_DRAWS = 320, 3
FEWEST, MOST = 20, 300
MOST_TEST_ROWS = 1500
METHODS = ("splitnn", "secure_lr")
PARTNERS = ("real", "shuffled", "real", "noise")
LOSS = 0.05
CANDIDATES = ("together", "alone", "served")


@dataclass(frozen=True)
class Table:
    """Two parties' frames in the same order of rows, without ids; the own one has `label`."""

    own: pd.DataFrame
    other: pd.DataFrame


@dataclass(frozen=True)
class Draw:
    """One small run: how good each candidate is on test rows, and which of them served."""

    method: str
    table: str
    partner: str
    rows: int
    qualities: Mapping[str, float]
    served: str

    @property
    def better(self) -> float:
        """Return the quality of the better of the federated model and own columns alone."""
        return max(self.qualities["together"], self.qualities["alone"])

    @property
    def is_lost(self) -> bool:
        """Tell whether what served is much worse than the better of both."""
        return self.qualities["served"] < self.better - LOSS


def split_table(frame: pd.DataFrame, own: list[str], label: Any) -> Table:
    return Table(frame[own].assign(label=np.asarray(label)), frame[[name for name in frame if name not in own]])


def breast_cancer() -> Table:
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer(as_frame=True)
    words = ("texture", "smoothness", "symmetry", "fractal")
    return split_table(data.data, [name for name in data.data if any(word in name for word in words)], data.target)


def digits() -> Table:
    from sklearn.datasets import load_digits

    data = load_digits(as_frame=True)
    return split_table(data.data, [name for name in data.data if int(name[-1]) < 4], data.target)


def diabetes() -> Table:
    from sklearn.datasets import load_diabetes

    data = load_diabetes(as_frame=True)
    return split_table(data.data, ["age", "sex", "s1", "s2", "s3", "s4"], data.target)


def adult() -> Table:
    from colonnade.datasets import adult

    frame = adult(rows=20_000)
    own = ["education", "education_num", "occupation", "workclass", "hours_per_week"]
    return split_table(frame.drop(columns=["id", "income", "fnlwgt"]), own, frame["income"].str.contains(">50K"))


def _sides(tables: Mapping[str, pd.DataFrame], own: str, label: str) -> Table:
    sides = {side: frame.set_index(frame.columns[0]).sort_index() for side, frame in tables.items()}
    other = next(side for side in sides if side != own)
    return Table(
        sides[own].rename(columns={label: "label"}).reset_index(drop=True), sides[other].reset_index(drop=True)
    )


def credit(label_at: str) -> Table:
    from colonnade.datasets import default_credit

    return _sides(default_credit(label_at=label_at), label_at, "default")


def bank() -> Table:
    from colonnade.datasets import bank_marketing

    return _sides(bank_marketing(), "bank", "y")


def motor() -> Table:
    from colonnade.datasets import fate_example

    return _sides(fate_example("motor_hetero"), "guest", "motor_speed")


BUNDLED: dict[str, Callable[[], Table]] = {"breast cancer": breast_cancer, "digits": digits, "diabetes": diabetes}
TABLES: dict[str, Callable[[], Table]] = BUNDLED | {
    "adult": adult,
    "credit, payments": lambda: credit("payment"),
    "credit, profiles": lambda: credit("profile"),
    "bank": bank,
    "motor": motor,
}


def partner_columns(frame: pd.DataFrame, partner: str, generator: np.random.Generator) -> pd.DataFrame:
    """Return the partner's columns, or what looks like them and says nothing about the label."""
    if partner == "shuffled":
        return frame.iloc[generator.permutation(len(frame))].reset_index(drop=True)
    if partner == "noise":
        return pd.DataFrame(generator.normal(size=frame.shape), columns=frame.columns)
    return frame


def settings(method: str) -> Any:
    import colonnade as cn

    # What the key protects is not measured here.
    return cn.SplitNN() if method == "splitnn" else cn.SecureLR(key_size="insecure_test")


def draw(method: str, name: str, table: Table, partner: str, rows: int, seed: int) -> Draw:
    """Train and judge one small run with so many validation rows."""
    import colonnade as cn
    from colonnade.metrics import headline

    generator = np.random.default_rng(seed)
    everyone = len(table.own)
    train = round(rows * generator.uniform(3, 7))
    if rows + train > 0.6 * everyone:
        rows, train = (max(FEWEST, round(part * 0.6 * everyone / (rows + train))) for part in (rows, train))
    test = min(MOST_TEST_ROWS, everyone - rows - train)
    count = rows + train + test
    drawn = generator.permutation(everyone)[:count]
    ids = np.arange(count)
    other = partner_columns(table.other, partner, generator)
    tables = {
        "own": cn.PartyTable(table.own.iloc[drawn].assign(id=ids), id="id", label="label"),
        "other": cn.PartyTable(other.iloc[drawn].assign(id=ids), id="id"),
    }
    parts = cn.Evaluate(test_fraction=test / count, validation_fraction=rows / count)
    # Private alignment has a benchmark of its own.
    launch = cn.Launch(alignment=cn.Alignment(protocol="given"))
    run = cn.simulate(settings(method), tables, seed=seed, evaluate=parts, launch=launch)
    found = {"together": run.evaluations["together"], "alone": run.evaluations["alone"], "served": run.evaluation}
    metric = headline(found["together"].task)
    qualities = {candidate: max(0.0, one.metrics[metric]) for candidate, one in found.items()}
    return Draw(method, name, partner, rows, qualities, run.served)


def measure(arguments: argparse.Namespace) -> Findings:
    import torch

    torch.set_num_threads(1)
    tables = {}
    for name, make in (BUNDLED if arguments.quick else TABLES).items():
        try:
            tables[name] = make()
        except TableError as missing:
            say(f"{name} is left out. {missing}")
    count, started, draws, number = QUICK_DRAWS if arguments.quick else DRAWS, time.perf_counter(), [], 0
    while len(draws) < count:
        generator = np.random.default_rng(number)
        name = list(tables)[number // 2 % len(tables)]
        partner = PARTNERS[generator.integers(len(PARTNERS))]
        rows = round(float(np.exp(generator.uniform(np.log(FEWEST), np.log(MOST)))))
        try:
            draws.append(draw(METHODS[number % len(METHODS)], name, tables[name], partner, rows, number))
        except TableError as unfit:
            # Few training rows may lack a class that test rows have.
            say(f"Draw {number} of {name} is left out. {unfit}")
        number += 1
        if number % 20 == 0:
            say(f"{len(draws)} of {count} draws, {time.perf_counter() - started:.0f} s")
    return judge(draws)


def judge(draws: list[Draw]) -> Findings:
    """Hold what served against always taking the federated model, always own columns, and the better of both."""
    findings = Findings({"draws": len(draws), "data sets": len({one.table for one in draws})})
    means = {name: float(np.mean([one.qualities[name] for one in draws])) for name in CANDIDATES}
    findings.figures |= {f"mean quality, {name}": value for name, value in means.items()}
    findings.figures["mean quality, better of both"] = float(np.mean([one.better for one in draws]))
    for kind in ("method", "partner", "table", "served"):
        for value in sorted({getattr(one, kind) for one in draws}):
            some = [one for one in draws if getattr(one, kind) == value]
            text = ", ".join(f"{name} {np.mean([one.qualities[name] for one in some]):.4f}" for name in CANDIDATES)
            lost = sum(one.is_lost for one in some)
            findings.figures[f"{kind} {value}"] = f"{len(some)} draws: {text}, {lost} worse by {LOSS}"
    findings.bar("draws", len(draws), at_least=300)
    findings.bar("data sets", findings.figures["data sets"], at_least=6)
    for name in ("together", "alone"):
        findings.bar(f"mean of served above always {name}", means["served"] - means[name], at_least=-0.003)
    findings.bar(f"share of draws worse by {LOSS}", float(np.mean([one.is_lost for one in draws])), at_most=0.05)
    return findings


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure)
