"""What gradients at the cut give away about labels, with each defence, and with noise beside a partner's columns.

Split networks of two parties, with the feature holder as the curious one. Everything is measured on the frames it
really received. A batch's AUC counts by its pairs of rows. Attacks on a batch, see `colonnade.metrics.leakage`: the
direction attack knows the labels of every second row, the norm attack which class has the longer gradients, the
spectral attack no label, only which class is rarer.

The posterior attack is on all noised releases of a row and on the feature holder's own columns. No label is known. What
the releases say of a row is a weak label; trees learn from it what columns say, two folds of rows for each other; both
together rank the rows. How much noise there is follows from the budget, which is public; the base rate counts as known,
and so does which end is positive. The skew of what columns say usually tells the latter, and we count how often. Beside
it stands what the run itself measures, with activations for columns, which must not be much lower.

Tables: breast cancer data (scikit-learn's 569 patients), synthetic rows of which one in twenty is positive, as norms
tell the classes apart where one of them is rare; and Adult, Default-Credit and Bank-Marketing, 8,000 rows each, from
COLONNADE_DATA; what is missing there is left out and named. `--quick` plays synthetic tables only, with noise that
repeats. Otherwise noise is secret, so figures under a defence differ from one time to the next by a few hundredths.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from tests.worlds import the_same_secrets

import colonnade as cn
from benchmarks.form import Findings, main, say
from colonnade.alignment import align_in_one_place
from colonnade.data import TableEncoder, batches
from colonnade.datasets import breast_cancer
from colonnade.datasets.adult import adult
from colonnade.datasets.bank_marketing import bank_marketing
from colonnade.datasets.default_credit import default_credit
from colonnade.errors import TableError
from colonnade.launch.baselines import join_tables
from colonnade.messages import decode_body, open_frame
from colonnade.methods.splitnn.messages import CutGradient
from colonnade.metrics import area_under_roc, direction_attack_auc, norm_attack_auc, spectral_attack_auc
from colonnade.privacy import LabelDisguise, auc_bound, new_key
from colonnade.session import derive_seed
from colonnade.settings import validated
from colonnade.training import Budget

BUDGET, EPOCHS, BATCH, SEED = 0.25, 12, 128, 7
# Epochs and budgets of the posterior attack: few epochs, many at the default, many as the docs advise.
PLANS = ((3, 0.25), (12, 0.25), (20, 0.05))
ROWS = 8000
# What chance may add to an attack's AUC on so few rows.
MARGIN = 0.03
# How far below the posterior attack the run's own measurement may lie.
FLATTERY = 0.02
REPEATS = 4
# Attacks that must succeed where nothing defends, or their failing elsewhere would say nothing.
CONTROLS = ("direction", "spectral, first epoch")

Array = np.ndarray[Any, Any]
Tables = dict[str, cn.PartyTable]


def patients() -> Tables:
    frames = breast_cancer()
    return {
        "bank": cn.PartyTable(frames["hospital"], id="patient", label="diagnosis"),
        "shop": cn.PartyTable(frames["laboratory"], id="patient"),
    }


def synthetic(rows: int = 4000, share: float = 0.05, weight: float = 1.0) -> Tables:
    """Return rows of which a share is positive, by the columns of both; the shop's count by a weight."""
    generator = np.random.default_rng(0)
    own, other = generator.normal(size=(rows, 4)), generator.normal(size=(rows, 4))
    score = own.sum(1) + weight * other.sum(1) + generator.normal(size=rows)
    frames = [pd.DataFrame(one, columns=[f"c{place}" for place in range(4)]) for one in (own, other)]
    for frame in frames:
        frame["id"] = np.arange(rows)
    frames[0]["label"] = (score > np.quantile(score, 1.0 - share)).astype(int)
    return {"bank": cn.PartyTable(frames[0], id="id", label="label"), "shop": cn.PartyTable(frames[1], id="id")}


def census() -> Tables:
    frame = adult()
    own = ["workclass", "education", "education_num", "occupation", "hours_per_week", "income"]
    return drawn(frame[["id", *own]], frame.drop(columns=own), "income")


def credit() -> Tables:
    frames = default_credit(label_at="profile")
    return drawn(frames["profile"], frames["payment"], "default")


def campaign() -> Tables:
    frames = bank_marketing()
    return drawn(frames["bank"], frames["campaign"], "y")


def drawn(own: pd.DataFrame, other: pd.DataFrame, label: str) -> Tables:
    places = np.sort(np.random.default_rng(0).choice(len(own), ROWS, replace=False))
    own, other = (one.iloc[places].reset_index(drop=True) for one in (own, other))
    return {"bank": cn.PartyTable(own, id="id", label=label), "shop": cn.PartyTable(other, id="id")}


SMALL: dict[str, Callable[[], Tables]] = {"breast cancer": patients, "rare positives": synthetic}
REAL: dict[str, Callable[[], Tables]] = {"adult": census, "default_credit": credit, "bank_marketing": campaign}
QUICK_SMALL = {"rare positives": lambda: synthetic(2000)}
QUICK_REAL = {"synthetic": lambda: synthetic(2000, 0.25, 2.0)}


@dataclass(frozen=True)
class Seen:
    """What the feature holder has, and beside it the truth: everything by place among the shared rows."""

    releases: tuple[tuple[int, Array, Array], ...]
    """Epoch, rows and gradients of every batch."""
    columns: Array
    training: Array
    is_positive: Array

    @classmethod
    def of(cls, run: cn.Run, tables: Tables) -> Seen:
        """Read the frames that arrived at the shop."""
        holding = join_tables(run.method, run.plan, tables)
        lead, seed = run.method.leader_of(run.plan), derive_seed(run.plan.seed, "alignment")
        positions = align_in_one_place(tables, lead, run.plan.alignment, seed)["shop"].positions
        encoder = TableEncoder.fit(tables["shop"], positions[holding.split.train])
        rows, budget = holding.split.train, Budget.of(validated(cn.SplitNN, run.plan.config, "config"))
        order = [
            (epoch, chosen)
            for epoch in range(budget.epochs)
            for chosen in batches(rows, budget.size(len(rows)), derive_seed(run.plan.seed, "batches", epoch))
        ]
        found = [one.values.double().numpy() for one in received(run, CutGradient)]
        return cls(
            tuple((epoch, rows, gradients) for (epoch, rows), gradients in zip(order, found, strict=True)),
            encoder.transform(tables["shop"], positions, dtype=np.float32),
            np.sort(holding.split.train),
            holding.table.labels == np.unique(holding.table.labels)[1],
        )


def received(run: cn.Run, kind: type) -> Iterator[Any]:
    """Yield the messages of a kind that arrived at the shop."""
    (declaration,) = (one for one in run.method.declarations_in(run.plan) if one.cls is kind)
    for _, frame in run.views["shop"]:
        header, body = open_frame(frame)
        if header.schema == declaration.schema:
            yield decode_body(declaration, body)


def train(tables: Tables, defence: str, **settings: Any) -> cn.Run:
    # An epoch is one pass, so that a row is released once in it.
    config = cn.SplitNN(patience=0, minimum_steps=0, defence=defence, **settings)
    return cn.simulate(config, tables, seed=SEED, launch=cn.Launch(keep_views=True))


def attacks(seen: Seen) -> dict[str, float]:
    """Return the AUC of the attacks on single batches."""
    rarer = int(seen.is_positive[seen.training].mean() <= 0.5)
    found: dict[str, list[tuple[float, int]]] = {}
    for epoch, rows, gradients in seen.releases:
        classes = seen.is_positive[rows]
        positives = int(classes.sum())
        if min(positives, len(classes) - positives) < 2:
            continue
        spectral = spectral_attack_auc(gradients, classes, rarer=rarer)
        measured = {
            "direction": direction_attack_auc(gradients, classes),
            "norm": norm_attack_auc(gradients, classes),
            "spectral": spectral,
        }
        if epoch == 0:
            measured["spectral, first epoch"] = spectral
        for name, value in measured.items():
            found.setdefault(name, []).append((value, positives * (len(classes) - positives)))
    averages = {}
    for name, pairs in found.items():
        values, weights = np.array(pairs).T
        averages[name] = float(np.average(values, weights=weights))
    return averages


def evidence(seen: Seen) -> Array:
    """Return what all releases say of each training row, without a label: either end may be the positive one.

    Each batch is laid along the line on which it differs most. Heads change slowly, so that a line keeps its sign by
    the lines before it.
    """
    total, count = np.zeros(len(seen.is_positive)), np.zeros(len(seen.is_positive))
    earlier = None
    for _, rows, gradients in seen.releases:
        centred = gradients - gradients.mean(axis=0)
        line = np.linalg.svd(centred, full_matrices=False)[2][0]
        if earlier is not None and line @ earlier < 0.0:
            line = -line
        earlier = line if earlier is None else 0.9 * earlier + 0.1 * line
        along = centred @ line
        total[rows] += along / (along.std() + 1e-30)
        count[rows] += 1.0
    return (total / np.sqrt(np.maximum(count, 1.0)))[seen.training]


def posterior(seen: Seen, budget: float, epochs: int) -> dict[str, float]:
    """Return the AUC of releases and own columns together; section 4 of the attacks' sheet, number L5."""
    found, columns, is_positive = evidence(seen), seen.columns[seen.training], seen.is_positive[seen.training]
    guess = np.zeros(len(found))
    for repeat in range(REPEATS):
        order = np.random.default_rng(repeat).permutation(len(found))
        first, second = np.array_split(order, 2)
        for known, asked in ((first, second), (second, first)):
            trees = HistGradientBoostingRegressor(
                max_iter=60, learning_rate=0.06, max_leaf_nodes=8, min_samples_leaf=60, l2_regularization=5.0
            )
            guess[asked] += trees.fit(columns[known], found[known]).predict(columns[asked]) / REPEATS
    guess -= guess.mean()
    share = float(is_positive.mean())
    by_skew = 1.0 if ((guess**3).mean() > 0.0) == (share <= 0.5) else -1.0
    end = 1.0 if area_under_roc(is_positive, found) >= 0.5 else -1.0
    found, guess = end * found, end * guess
    # Evidence has variance 1 in all: noise, and the classes' distance from each other.
    width, spread = math.sqrt(budget * epochs), share * (1.0 - share)
    distance = width / math.sqrt(1.0 + width**2 * spread)
    chance = np.clip(share + guess / distance, 0.01, 0.99)
    score = distance / (1.0 - distance**2 * spread) * found + np.log(chance / (1.0 - chance))
    return {
        "releases alone": area_under_roc(is_positive, found),
        "releases and own columns": area_under_roc(is_positive, score),
        "end told by skew": float(by_skew == end),
    }


def own_meter(run: cn.Run) -> dict[str, Any]:
    """Return what the label holder measured itself."""
    (found,) = run.findings["label protection"].values["partners"].values()
    return dict(found)


def measure_batches(findings: Findings, small: Mapping[str, Callable[[], Tables]], epochs: int) -> None:
    """Attack single batches of small tables, with each defence."""
    bound = auc_bound(BUDGET)
    findings.figures |= {"budget": BUDGET, "bound_of_one_release": bound, "epochs": epochs, "batch": BATCH}
    settings = {"epochs": epochs, "batch_size": BATCH, "learning_rate": 0.005, "label_budget": BUDGET}
    for name, make in small.items():
        tables = make()
        for defence in ("none", "marvell", "coae"):
            say(f"{name}, defence {defence} …")
            run = train(tables, defence, **settings)
            found = attacks(Seen.of(run, tables))
            findings.figures[f"{name}: training rows"] = run.rows["train"]
            figures: dict[str, Any] = {f"{attack} AUC": value for attack, value in found.items()}
            figures["model AUC"] = run.metrics["auc"]
            if defence == "marvell":
                own = own_meter(run)
                figures["own meter, one release"] = own["of_one_release"]
                figures["own meter, all releases"] = own["over_all_releases"]
                figures["own meter, all releases and columns"] = own["with_columns"]
                figures["own meter, right of the surest 5%"] = own["surest_right"]
                figures["bound of all releases"] = own["bound_over_all_releases"]
                findings.bar(
                    f"{name}: own meter, one release", own["of_one_release"], at_most=bound + MARGIN, at_any_size=True
                )
            for what, value in figures.items():
                findings.figures[f"{name}, {defence}: {what}"] = value
            for attack, value in found.items():
                if defence == "marvell":
                    findings.bar(f"{name}: {attack} AUC with marvell", value, at_most=bound + MARGIN, at_any_size=True)
                elif defence == "none" and (attack in CONTROLS or (attack, name) == ("norm", "rare positives")):
                    findings.bar(f"{name}: {attack} AUC without", value, at_least=0.95, at_any_size=True)


def measure_columns(findings: Findings, name: str, tables: Tables, plans: tuple[tuple[int, float], ...]) -> None:
    """Attack all noised releases together with the partner's real columns, and compare the run's own measurement."""
    for epochs, budget in plans:
        what = f"{name}, {epochs} epochs of {budget:g}"
        say(f"{what} …")
        run = train(tables, "marvell", epochs=epochs, label_budget=budget)
        found = posterior(Seen.of(run, tables), budget, epochs)
        own = own_meter(run)
        findings.figures |= {f"{what}: {attack}": value for attack, value in found.items()}
        findings.figures |= {
            f"{what}: own meter, all releases": own["over_all_releases"],
            f"{what}: own meter, all releases and columns": own["with_columns"],
            f"{what}: bound of all releases": own["bound_over_all_releases"],
            f"{what}: model AUC": run.metrics["auc"],
        }
        real = found["releases and own columns"]
        findings.bar(f"{what}: columns add to releases", real, at_least=own["over_all_releases"], at_any_size=True)
        findings.bar(f"{what}: own meter with columns", own["with_columns"], at_least=real - FLATTERY, at_any_size=True)


def measure(arguments: argparse.Namespace) -> Findings:
    torch.set_num_threads(1)
    if arguments.quick:
        with the_same_secrets():
            return _measure(QUICK_SMALL, QUICK_REAL, PLANS[:1], epochs=3)
    return _measure(SMALL, REAL, PLANS, EPOCHS)


def _measure(
    small: Mapping[str, Callable[[], Tables]],
    real: Mapping[str, Callable[[], Tables]],
    plans: tuple[tuple[int, float], ...],
    epochs: int,
) -> Findings:
    findings = Findings()
    measure_batches(findings, small, epochs)
    for name, make in real.items():
        try:
            tables = make()
        except TableError as missing:
            say(f"{name} is left out. {missing}")
            findings.figures[f"{name}: left out"] = str(missing)
            continue
        measure_columns(findings, name, tables, plans)
        for defence in ("none", "coae"):
            say(f"{name}, defence {defence} …")
            found = attacks(Seen.of(train(tables, defence, epochs=epochs), tables))
            findings.figures |= {f"{name}, {defence}: {attack} AUC": value for attack, value in found.items()}
            if defence == "none":
                for attack in CONTROLS:
                    findings.bar(f"{name}: {attack} AUC without", found[attack], at_least=0.95, at_any_size=True)
    say("label disguises …")
    started = time.perf_counter()
    disguise = LabelDisguise.train(2, new_key())
    findings.figures["coae, 2 classes: seconds to train"] = time.perf_counter() - started
    findings.bar("coae, 2 classes: surest code", float(disguise.codes.max()), at_most=0.9, at_any_size=True)
    decoded = float(disguise.decode(disguise.codes).diagonal().min())
    findings.bar("coae, 2 classes: decoded", decoded, at_least=0.99, at_any_size=True)
    return findings


if __name__ == "__main__":
    main(__doc__ or "", measure)
