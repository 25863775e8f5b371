"""What a long way between two parties costs a split network, and what batches sent ahead save of it.

Two parties of one process over gRPC and mutual TLS, through the fault proxy of the tests, which lets every byte take
150 ms longer each way. The same training, of 160 steps in ten epochs with early stopping's messages, waits for each
gradient, or has one or two batches under way beyond that (`look_ahead`). Counted is the whole run with its handshake
and with the model of own columns alone. Two batches ahead are what such a way asks for, and what is held to the bars.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd
from tests.faults.proxy import through_proxies

import colonnade as cn
from benchmarks.form import Findings, main, say

COLUMNS = 8


def tables(rows: int) -> dict[str, cn.PartyTable]:
    """Return two tables of which only both together tell the label well."""
    generator = np.random.default_rng(0)
    values = generator.normal(size=(rows, COLUMNS))
    signal = values @ generator.choice([-1.0, 1.0], COLUMNS) + np.abs(values[:, :2]).sum(1)
    label = generator.random(rows) < 1 / (1 + np.exp(np.median(signal) - signal))
    half = COLUMNS // 2
    own = pd.DataFrame(values[:, :half], columns=[f"a{place}" for place in range(half)])
    other = pd.DataFrame(values[:, half:], columns=[f"b{place}" for place in range(half)])
    own = own.assign(y=label.astype(int)).rename_axis("id").reset_index()
    return {
        "bank": cn.PartyTable(own, id="id", label="y"),
        "shop": cn.PartyTable(other.rename_axis("id").reset_index(), id="id"),
    }


def train(rows: int, epochs: int, delay: float, look_ahead: int) -> tuple[float, float]:
    """Return the seconds of a run and its AUC."""
    config = cn.SplitNN(
        epochs=epochs,
        batch_size=rows * 7 // 160,  # of 70 % of the rows, so that an epoch has 16
        minimum_steps=0,
        learning_rate=0.01,
        patience=epochs,
        look_ahead=look_ahead,
        secret_start=False,
    )
    launch = cn.Launch(transport="grpc", alignment=cn.Alignment(protocol="given"))
    with through_proxies(delay=delay):
        started = time.perf_counter()
        run = cn.simulate(config, tables(rows), seed=1, launch=launch)
        return time.perf_counter() - started, run.metrics["auc"]


def add_to(findings: Findings, *, quick: bool) -> None:
    """Measure, and hold against the bars."""
    rows, epochs, delay = (300, 1, 0.01) if quick else (20_000, 10, 0.15)
    train(300, 1, 0.0, 0)  # imports and first-call costs are not what is compared
    found = {}
    for look_ahead in (0, 1, 2):
        found[look_ahead] = seconds, auc = train(rows, epochs, delay, look_ahead)
        say(f"{delay * 1000:g} ms each way, {look_ahead} batches ahead: {seconds:.1f} s, AUC {auc:.4f}")
        findings.figures |= {f"ahead_{look_ahead}_seconds": seconds, f"ahead_{look_ahead}_auc": auc}
    findings.figures["delay_ms"] = delay * 1000
    findings.figures["ahead_1_time_ratio"] = found[1][0] / found[0][0]
    findings.bar("ahead_2_time_ratio", found[2][0] / found[0][0], at_most=0.6)
    findings.bar("ahead_2_auc_lost", found[0][1] - found[2][1], at_most=0.005)


def measure(arguments: argparse.Namespace) -> Findings:
    findings = Findings()
    add_to(findings, quick=arguments.quick)
    return findings


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure)
