"""What gradients at the cut give away about labels, without a defence and with MARVELL, and what is left of the model.

Split networks of two parties, with the feature holder as the curious one. Everything is measured on the frames it
really received. The direction attack knows the labels of every second row of a batch, the norm attack knows which class
has the longer gradients; see `colonnade.metrics.leakage`. A batch's AUC counts by its pairs of rows. The last figures
of each run are the label holder's own: its attacker knows where the classes lie, and puts together all releases of a
row.

Two tables: breast cancer data (scikit-learn's 569 patients), and synthetic rows of which one in twenty is positive, as
norms tell the classes apart where one of them is rare.

Noise is secret, so figures under a defence differ from one time to the next by a few hundredths.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd
import torch

import colonnade as cn
from benchmarks.form import Findings, main, say
from colonnade.data import batches
from colonnade.datasets import breast_cancer
from colonnade.launch.baselines import join_tables
from colonnade.messages import declaration_of, decode_body, open_frame
from colonnade.methods.splitnn.messages import gradient_message
from colonnade.metrics import direction_attack_auc, norm_attack_auc
from colonnade.privacy import LabelDisguise, auc_bound, new_key
from colonnade.session import derive_seed

BUDGET, EPOCHS, BATCH, SEED = 0.25, 12, 128, 7
# What chance may add to an attack's AUC on so few rows.
MARGIN = 0.03

Tables = dict[str, cn.PartyTable]


def patients() -> Tables:
    frames = breast_cancer()
    return {
        "bank": cn.PartyTable(frames["hospital"], id="patient", label="diagnosis"),
        "shop": cn.PartyTable(frames["laboratory"], id="patient"),
    }


def rare_positives(rows: int = 4000) -> Tables:
    generator = np.random.default_rng(0)
    own, other = generator.normal(size=(rows, 4)), generator.normal(size=(rows, 4))
    score = own.sum(1) + other.sum(1) + generator.normal(size=rows)
    frames = [pd.DataFrame(one, columns=[f"c{place}" for place in range(4)]) for one in (own, other)]
    for frame in frames:
        frame["id"] = np.arange(rows)
    frames[0]["label"] = (score > np.quantile(score, 0.95)).astype(int)
    return {"bank": cn.PartyTable(frames[0], id="id", label="label"), "shop": cn.PartyTable(frames[1], id="id")}


TABLES = {"breast cancer": patients, "rare positives": rare_positives}


def train(tables: Tables, defence: str) -> cn.Run:
    config = cn.SplitNN(
        epochs=EPOCHS, batch_size=BATCH, learning_rate=0.005, patience=0, defence=defence, label_budget=BUDGET
    )
    return cn.simulate(config, tables, seed=SEED, keep_views=True)


def attacks(run: cn.Run, tables: Tables) -> dict[str, float]:
    """Return the AUC of both attacks on the gradients that crossed, batch by batch."""
    holding = join_tables(run.method, run.plan, tables)
    is_positive = holding.table.labels == np.unique(holding.table.labels)[1]
    order = np.concatenate(
        [
            rows
            for epoch in range(EPOCHS)
            for rows in batches(holding.split.train, BATCH, derive_seed(SEED, "batches", epoch))
        ]
    )
    declaration = declaration_of(gradient_message(run.plan.config["defence"]))
    totals = np.zeros(3)
    start = 0
    for _, frame in run.views["shop"]:
        header, body = open_frame(frame)
        if header.schema != declaration.schema:
            continue
        gradients = decode_body(declaration, body).values.double().numpy()
        classes = is_positive[order[start : start + len(gradients)]]
        start += len(gradients)
        positives = int(classes.sum())
        pairs = positives * (len(classes) - positives)
        if min(positives, len(classes) - positives) >= 2:
            totals += pairs * np.array(
                [1.0, direction_attack_auc(gradients, classes), norm_attack_auc(gradients, classes)]
            )
    if start != len(order):
        raise RuntimeError("not every gradient was found")
    return {"direction": float(totals[1] / totals[0]), "norm": float(totals[2] / totals[0])}


def measure(arguments: argparse.Namespace) -> Findings:
    torch.set_num_threads(1)
    findings = Findings()
    bound = auc_bound(BUDGET)
    findings.figures |= {"budget": BUDGET, "bound_of_one_release": bound, "epochs": EPOCHS, "batch": BATCH}
    for name, make in TABLES.items():
        tables = make()
        for defence in ("none", "marvell", "coae"):
            say(f"{name}, defence {defence} …")
            run = train(tables, defence)
            found = attacks(run, tables)
            findings.figures[f"{name}: training rows"] = run.rows["train"]
            figures: dict[str, Any] = {f"{attack} AUC": value for attack, value in found.items()}
            figures["model AUC"] = run.metrics["auc"]
            if defence == "marvell":
                (own,) = run.findings["label protection"].values["partners"].values()
                figures["own meter, one release"] = own["of_one_release"]
                figures["own meter, all releases"] = own["over_all_releases"]
                figures["own meter, right of the surest 5%"] = own["surest_right"]
                figures["bound of all releases"] = own["bound_over_all_releases"]
                findings.bar(f"{name}: own meter, one release", own["of_one_release"], at_most=bound + MARGIN)
            for what, value in figures.items():
                findings.figures[f"{name}, {defence}: {what}"] = value
            for attack, value in found.items():
                if defence == "marvell":
                    findings.bar(f"{name}: {attack} AUC with marvell", value, at_most=bound + MARGIN)
                elif defence == "none" and (attack == "direction" or name == "rare positives"):
                    findings.bar(f"{name}: {attack} AUC without", value, at_least=0.95)
    say("label disguises …")
    started = time.perf_counter()
    disguise = LabelDisguise.train(2, new_key())
    findings.figures["coae, 2 classes: seconds to train"] = time.perf_counter() - started
    findings.bar("coae, 2 classes: surest code", float(disguise.codes.max()), at_most=0.9)
    findings.bar("coae, 2 classes: decoded", float(disguise.decode(disguise.codes).diagonal().min()), at_least=0.99)
    return findings


if __name__ == "__main__":
    main(__doc__ or "", measure)
