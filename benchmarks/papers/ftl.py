"""The experiments of "Secure Federated Transfer Learning" on real data, written to docs/results-ftl.md with figures.

Default-Credit with both assignments of its columns, and Wikipedia's images and texts in place of NUS-WIDE, which is not
to be had. Transfer is the plaintext reference (benchmarks/papers/ftl_reference.py), which one cell holds against the
product; the time of an iteration is the product's own, encrypted. Needs the data (see colonnade.datasets).
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC

from benchmarks.form import Findings, main, say
from benchmarks.papers.ftl_reference import Array, Model, Rows, Settings, auto_encoder, pretrain, train
from colonnade.data import PartyTable, TableEncoder
from colonnade.datasets import WIKIPEDIA_CATEGORIES, default_credit, wikipedia_crossmodal

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results-ftl.md"

# Chosen on the tuning rows, see `tuning`. The weights and the width are those of the sheet's section 8, the weight of
# the auto-encoder is the one of its section 5.
CREDIT = Settings(widths=(32,), autoencoder_weight=0.1, learning_rate=0.03, iterations=30)
WIKIPEDIA = replace(CREDIT, widths=(64,), weight_decay=0.03)

TUNING_ROWS = 7500  # of 30000 clients; no table of results has any of them
TUNING_SEEDS = tuple(range(9000, 9005))
SEEDS = (1, 2, 3, 4, 5)
SIDES = {"profile": "payment", "payment": "profile"}
CATEGORIES = ("warfare", "biology", "geography")
LABELS = {"profile": (50, 100, 200, 500), "payment": (50, 100, 200, 500)} | dict.fromkeys(CATEGORIES, (100, 200))
PAIRS = (250, 500, 1000, 2000, 4000)
FOLDS = (3, 5, 10)
LARGEST_COLUMN = 10.0  # the product cuts encoded columns off here
SELF_LEARNERS = ("LR", "SVM", "AE")
L2 = 0.03  # of the safeguard's regression, in terms of the mean loss

# What the paper's Table 1 says about NUS-WIDE: weighted F1 with 100 and with 200 labels.
PAPER = {
    "water": ((0.692, 0.691, 0.685, 0.640, 0.677), (0.702, 0.701, 0.672, 0.643, 0.662)),
    "person": ((0.697, 0.697, 0.694, 0.619, 0.657), (0.733, 0.735, 0.720, 0.706, 0.707)),
    "sky": ((0.700, 0.713, 0.694, 0.679, 0.667), (0.718, 0.718, 0.696, 0.680, 0.684)),
}


@dataclass(frozen=True)
class Sizes:
    """How much to do."""

    seeds: tuple[int, ...] = SEEDS
    labels: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=lambda: LABELS)
    pairs: tuple[int, ...] = PAIRS
    folds: tuple[int, ...] = FOLDS
    curve: int = 100
    tuning_seeds: tuple[int, ...] = TUNING_SEEDS
    classes_labels: tuple[int, ...] = (100, 200, 500)
    timed: Mapping[str, tuple[int, ...]] = dataclasses.field(
        default_factory=lambda: {"width": (8, 16, 32), "columns": (8, 16, 32), "rows": (125, 250, 500)}
    )
    key_size: Any = 2048
    has_bars: bool = True


QUICK = Sizes(
    seeds=(1,),
    labels={"profile": (100,), "payment": (100,), "warfare": (100,)},
    pairs=(500,),
    folds=(3,),
    curve=5,
    tuning_seeds=TUNING_SEEDS[:1],
    classes_labels=(100,),
    timed={"width": (4,), "columns": (4,), "rows": (40,)},
    key_size="insecure_test",
    has_bars=False,
)


# --- Rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """One partition: the source's rows, of which the first are shared, the target's shared rows, and its test rows."""

    source: Array
    labels: Array  # of the source's rows: class numbers
    target: Array
    labelled: Array  # positions among the shared rows
    test: Array
    test_labels: Array
    settings: Settings
    classes: int = 2

    @property
    def shared(self) -> Array:
        """Return the positions of the shared rows, the same on both sides."""
        return np.arange(len(self.target))

    def signs(self, rows: Array) -> Array:
        """Return +1 and -1 for the source's rows, a column per class (one for two classes)."""
        if self.classes == 2:
            return np.where(self.labels[rows] == 1, 1.0, -1.0)[:, None]
        return np.where(self.labels[rows][:, None] == np.arange(self.classes), 1.0, -1.0)


@cache
def _credit() -> tuple[dict[str, pd.DataFrame], Array]:
    tables = default_credit(label_at="payment")
    labels = tables["payment"]["default"].to_numpy()
    return {"profile": tables["profile"], "payment": tables["payment"].drop(columns="default")}, labels


@cache
def _wikipedia() -> tuple[dict[str, pd.DataFrame], Array]:
    tables = wikipedia_crossmodal(label_at="text")
    labels = tables["text"]["category"].map(WIKIPEDIA_CATEGORIES.index).to_numpy()
    return {"image": tables["image"], "text": tables["text"].drop(columns="category")}, labels


def encoded(frame: pd.DataFrame, training: Array, others: Array) -> tuple[Array, Array]:
    """Return columns as a party encodes them: means, scales and categories from its training rows."""
    table = PartyTable(frame.iloc[np.concatenate([training, others])].reset_index(drop=True), id="id")
    encoder = TableEncoder.fit(table, np.arange(len(training)))
    columns = np.clip(encoder.transform(table, dtype=np.float64), -LARGEST_COLUMN, LARGEST_COLUMN)
    return columns[: len(training)], columns[len(training) :]


@dataclass(frozen=True)
class Partition:
    """Which rows of a data set are shared, the source's only, and for testing; the first `labels` are in the loss."""

    shared: Array
    source_only: Array
    test: Array
    labelled: Array


def balanced(
    generator: np.random.Generator, rows: Array, labels: Array, counts: tuple[int, int, int], labelled: int
) -> Partition:
    """Draw rows with equally many of each of two classes in every part."""
    drawn = [generator.permutation(rows[labels[rows] == value]) for value in (0, 1)]
    parts, start = [], 0
    for count in counts:
        half = count // 2
        if min(len(one) for one in drawn) < start + half:
            raise ValueError(f"there are not {sum(counts)} rows, half of them of each class")
        parts.append(generator.permutation(np.concatenate([one[start : start + half] for one in drawn])))
        start += half
    places = [np.flatnonzero(labels[parts[0]] == value)[: labelled // 2] for value in (0, 1)]
    return Partition(*parts, np.sort(np.concatenate(places)))


def credit_partition(labelled: int, seed: int, *, pairs: int = 2000, is_tuning: bool = False) -> Partition:
    """Draw clients: from the tuning rows, or from all the others."""
    _, labels = _credit()
    order = np.random.default_rng(20200).permutation(len(labels))
    rows = order[:TUNING_ROWS] if is_tuning else order[TUNING_ROWS:]
    counts = (1000, 1200, 1000) if is_tuning else (pairs, 6000 - pairs, 3000)
    return balanced(np.random.default_rng(seed), rows, labels, counts, labelled)


def credit_task(target: str, labelled: int, seed: int, **rows: Any) -> Task:
    """Return a partition of the clients, encoded."""
    tables, labels = _credit()
    part = credit_partition(labelled, seed, **rows)
    training = np.concatenate([part.shared, part.source_only])
    source, _ = encoded(tables[SIDES[target]], training, part.test[:1])
    shared, test = encoded(tables[target], part.shared, part.test)
    settings = replace(CREDIT, seed=seed)
    return Task(source, labels[training], shared, part.labelled, test, labels[part.test], settings)


def wikipedia_task(category: str, labelled: int, seed: int) -> Task:
    """Return articles of a category and as many others: half of them shared, a quarter to test, all texts' labels."""
    tables, numbers = _wikipedia()
    labels = (numbers == WIKIPEDIA_CATEGORIES.index(category)).astype(np.int64)
    size = 2 * int(labels.sum())
    counts = (size // 2, size // 4, size // 4)
    part = balanced(np.random.default_rng(seed), np.arange(len(labels)), labels, counts, labelled)
    return _wikipedia_rows(tables, labels, part, replace(WIKIPEDIA, seed=seed), 2)


def classes_task(labelled: int, seed: int) -> Task:
    """Return all articles with all ten categories: half of them shared, a quarter to test."""
    tables, labels = _wikipedia()
    order = np.random.default_rng(seed).permutation(len(labels))
    half, quarter = len(order) // 2, len(order) // 4
    # The first of each class, in turn, so that few labels still cover all classes.
    shared = order[:half]
    rank = pd.Series(labels[shared]).groupby(labels[shared]).cumcount().to_numpy()
    chosen = np.sort(np.argsort(rank, kind="stable")[:labelled])
    part = Partition(shared, order[half : len(order) - quarter], order[len(order) - quarter :], chosen)
    return _wikipedia_rows(tables, labels, part, replace(WIKIPEDIA, seed=seed), len(WIKIPEDIA_CATEGORIES))


def _wikipedia_rows(
    tables: dict[str, pd.DataFrame], labels: Array, part: Partition, settings: Settings, classes: int
) -> Task:
    training = np.concatenate([part.shared, part.source_only])
    source, _ = encoded(tables["text"], training, part.test[:1])
    shared, test = encoded(tables["image"], part.shared, part.test)
    return Task(source, labels[training], shared, part.labelled, test, labels[part.test], settings, classes)


def task_named(name: str, labelled: int, seed: int) -> Task:
    """Return a partition of the task of that name."""
    return (credit_task if name in SIDES else wikipedia_task)(name, labelled, seed)


# --- Learners ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """Weighted F1 and area under the curve; with several classes the mean over classes against the rest."""

    f1: float
    auc: float


def judged(labels: Array, scores: Array) -> Score:
    """Judge scores: one column for two classes, positive for the second, or a column per class."""
    if scores.shape[1] == 1:
        found = (scores[:, 0] > 0).astype(np.int64)
        return Score(f1_score(labels, found, average="weighted"), roc_auc_score(labels, scores[:, 0]))
    areas = [roc_auc_score(labels == kind, column) for kind, column in enumerate(scores.T)]
    return Score(f1_score(labels, scores.argmax(axis=1), average="weighted"), float(np.mean(areas)))


def transfer(
    task: Task,
    settings: Settings | None = None,
    *,
    pairs: Array | None = None,
    left_out: Array | None = None,
    **more: Any,
) -> Model:
    """Train FTL; `left_out` are source rows whose labels may not be used at all."""
    known = np.arange(len(task.source))
    labelled = task.labelled
    if left_out is not None:
        known, labelled = np.setdiff1d(known, left_out), np.setdiff1d(labelled, left_out)
    return train(
        settings or task.settings,
        Rows(task.source, known, task.signs(known)),
        Rows(task.target, labelled, task.signs(labelled)),
        (task.shared, task.shared if pairs is None else pairs),
        **more,
    )


def alone(task: Task, kind: str) -> Array:
    """Learn from the labelled rows' target columns only, tuned by cross-validation on them; return test scores."""
    columns, test = task.target, task.test
    if kind == "AE":
        columns, test = _codes(task)
    model, grid = (
        (SVC(), {"C": [0.1, 1.0, 10.0], "gamma": ["scale", 0.01]})
        if kind == "SVM"
        else (LogisticRegression(max_iter=5000), {"C": [0.003, 0.03, 0.3, 3.0, 30.0]})
    )
    labels = task.labels[task.labelled]
    folds = StratifiedKFold(max(2, min(5, int(np.bincount(labels).min()))), shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an optimiser that stops early is judged by its result
        search = GridSearchCV(model, grid, scoring="f1_weighted", cv=folds).fit(columns[task.labelled], labels)
        return _decision(search.decision_function(test))


def _codes(task: Task) -> tuple[Array, Array]:
    """Pre-train the target's encoder on all its shared rows, and return codes of them and of the test rows."""
    encoder, decoder = auto_encoder(task.settings, task.target.shape[1], 1)
    columns = torch.from_numpy(task.target)
    pretrain(encoder, decoder, columns, 50, task.settings.seed)
    with torch.no_grad():
        codes, test = encoder(columns).numpy(), encoder(torch.from_numpy(task.test)).numpy()
    mean, scale = codes.mean(axis=0), codes.std(axis=0) + 1e-9
    return (codes - mean) / scale, (test - mean) / scale


def distilled(task: Task) -> Array:
    """Hand the source's scores of all shared rows to the target, which learns them: simple, and shows all of them."""
    teacher = LogisticRegression(max_iter=5000).fit(task.source, task.labels)
    likely = teacher.predict_proba(task.source[: len(task.target)])
    rows = np.tile(task.target, (likely.shape[1], 1))
    classes = np.repeat(teacher.classes_, len(task.target))
    student = LogisticRegression(max_iter=5000).fit(rows, classes, sample_weight=likely.T.ravel())
    return _decision(student.decision_function(task.test))


def direct(task: Task) -> Array:
    """Let the target learn the true labels of all shared rows: what no protection at all would give."""
    model = LogisticRegression(max_iter=5000).fit(task.target, task.labels[: len(task.target)])
    return _decision(model.decision_function(task.test))


def _decision(values: Array) -> Array:
    return values[:, None] if values.ndim == 1 else values


def shuffled_pairs(task: Task) -> Array:
    """Return a wrong partner for every shared row."""
    return np.random.default_rng(task.settings.seed).permutation(task.shared)


# --- Studies: each gives one partition's numbers -----------------------------------------------------------------------

Numbers: TypeAlias = dict[str, Score]


def compare(name: str, labelled: int, seed: int) -> Numbers:
    """Judge transfer and everything it is held against."""
    task = task_named(name, labelled, seed)
    settings = task.settings
    models = {
        "FTL": transfer(task),
        "no alignment": transfer(task, replace(settings, alignment_weight=0.0)),
        "exact loss": transfer(task, replace(settings, loss="logistic")),
        "shuffled pairs": transfer(task, pairs=shuffled_pairs(task)),
    }
    scores = {key: model.scores(task.test) for key, model in models.items()}
    scores |= {kind: alone(task, kind) for kind in SELF_LEARNERS}
    scores |= {"distillation": distilled(task), "direct": direct(task)}
    return {key: judged(task.test_labels, values) for key, values in scores.items()}


def classes(labelled: int, seed: int) -> Numbers:
    """The same with ten categories."""
    task = classes_task(labelled, seed)
    scores = {"FTL": transfer(task).scores(task.test), "distillation": distilled(task), "direct": direct(task)}
    scores |= {kind: alone(task, kind) for kind in ("LR", "SVM")}
    return {key: judged(task.test_labels, values) for key, values in scores.items()}


def iterations(name: str, length: int, seed: int) -> dict[str, list[tuple[float, float, float]]]:
    """Return loss, F1 and AUC after every iteration: both losses, one and two layers, and without the auto-encoder."""
    task = task_named(name, 100, seed)
    settings = replace(task.settings, iterations=length)
    last = settings.widths[-1]
    variants = {
        "Taylor, 1 layer": settings,
        "exact, 1 layer": replace(settings, loss="logistic"),
        "Taylor, 2 layers": replace(settings, widths=(2 * last, last)),
        "exact, 2 layers": replace(settings, widths=(2 * last, last), loss="logistic"),
        "Adam 0.01": replace(settings, learning_rate=0.01),
        "no auto-encoder": replace(settings, autoencoder_weight=0.0),
        "no auto-encoder, Adam 0.01": replace(settings, autoencoder_weight=0.0, learning_rate=0.01),
    }
    found: dict[str, list[tuple[float, float, float]]] = {}
    for key, variant in variants.items():
        curve: list[tuple[float, float, float]] = []

        def watch(_: int, loss: float, model: Model, curve: list[tuple[float, float, float]] = curve) -> None:
            score = judged(task.test_labels, model.scores(task.test))
            curve.append((loss, score.f1, score.auc))

        transfer(task, variant, watch=watch)
        found[key] = curve
    return found


def number_of_pairs(name: str, pairs: int, seed: int) -> Numbers:
    """Judge transfer with so many shared rows, 100 of them labelled."""
    task = credit_task(name, 100, seed, pairs=pairs)
    scores = {"FTL": transfer(task).scores(task.test), "LR": alone(task, "LR"), "distillation": distilled(task)}
    return {key: judged(task.test_labels, values) for key, values in scores.items()}


def tuning(name: str, seed: int) -> Numbers:
    """Judge settings on tuning rows."""
    task = credit_task(name, 100, seed, is_tuning=True)
    base = task.settings
    variants = {
        f"{alignment:g} {decay:g}": replace(base, alignment_weight=alignment, weight_decay=decay)
        for alignment in (0.0, 0.01, 0.1, 1.0)
        for decay in (1e-4, 1e-3, 1e-2)
    }
    variants |= {
        "width 8": replace(base, widths=(8,)),
        "auto-encoder 0": replace(base, autoencoder_weight=0.0),
        "auto-encoder 0, 100 iterations": replace(base, autoencoder_weight=0.0, iterations=100),
        "auto-encoder 1": replace(base, autoencoder_weight=1.0),
        "Adam 0.01, 100 iterations": replace(base, learning_rate=0.01, iterations=100),
        "Adam 0.03, 10 iterations": replace(base, iterations=10),
        "Adam 0.03, 100 iterations": replace(base, iterations=100),
        "batches of 256": replace(base, batch_size=256),
        "dot alignment": replace(base, alignment="dot"),
        "no offset": replace(base, offset="none"),
        "offset in predictions only": replace(base, offset="prediction"),
        "pre-training, 50 epochs": replace(base, pretraining_epochs=50),
    }
    found = {
        key: judged(task.test_labels, transfer(task, variant).scores(task.test)) for key, variant in variants.items()
    }
    return found | {"distillation": judged(task.test_labels, distilled(task))}


def safeguard(name: str, labelled: int, seed: int, is_shuffled: bool = False) -> dict[str, float]:
    """Hold transfer against a regression by five folds of the labelled rows; labels of a fold are used by neither."""
    task = credit_task(name, labelled, seed)
    if is_shuffled:
        others = np.setdiff1d(np.arange(len(task.source)), task.labelled)
        labels = task.labels.copy()
        labels[others] = np.random.default_rng(seed).permutation(labels[others])
        task = replace(task, labels=labels)
    validated = cross_validation(task, task.settings, 5)
    own = _regression_validation(task, 5)
    tested = {
        "transfer": transfer(task).scores(task.test),
        "regression": _decision(_regression(task, task.labelled).decision_function(task.test)),
    }
    return {
        "validated transfer": validated,
        "validated regression": own,
        "tested transfer": judged(task.test_labels, tested["transfer"]).f1,
        "tested regression": judged(task.test_labels, tested["regression"]).f1,
        "chooses transfer": float(validated >= own),
    }


def _regression(task: Task, rows: Array, l2: float = L2) -> LogisticRegression:
    return LogisticRegression(C=1 / (l2 * len(rows)), max_iter=5000).fit(task.target[rows], task.labels[rows])


def _folds(task: Task, rows: Array, count: int) -> list[tuple[Array, Array]]:
    split = StratifiedKFold(count, shuffle=True, random_state=task.settings.seed)
    return [(rows[kept], rows[held]) for kept, held in split.split(rows, task.labels[rows])]


def _regression_validation(task: Task, folds: int, l2: float = L2) -> float:
    found = [
        judged(task.labels[held], _decision(_regression(task, kept, l2).decision_function(task.target[held]))).f1
        for kept, held in _folds(task, task.labelled, folds)
    ]
    return float(np.mean(found))


def cross_validation(task: Task, settings: Settings, folds: int) -> float:
    """Return the mean F1 of transfer on folds of the labelled rows."""
    found = []
    for _, held in _folds(task, task.labelled, folds):
        model = transfer(task, settings, left_out=held)
        found.append(judged(task.labels[held], model.scores(task.target[held])).f1)
    return float(np.mean(found))


def transfer_cross_validation(task: Task, settings: Settings, folds: int) -> float:
    """Return the mean F1 by Algorithm 3: label the target's rows by transfer, and transfer back to held-out source rows."""
    found = []
    everyone = np.arange(len(task.source))
    for kept, held in _folds(task, everyone, folds):
        forth = transfer(task, settings, left_out=held)
        guessed = np.where(forth.scores(task.target) > 0, 1.0, -1.0)
        back = train(
            settings,
            Rows(task.target, task.shared, guessed),
            Rows(task.source, kept, task.signs(kept)),
            (task.shared, task.shared),
            start=Model(forth.scored, forth.labelled, forth.translator, forth.centre),
        )
        found.append(judged(task.labels[held], back.scores(task.source[held])).f1)
    return float(np.mean(found))


def validation(name: str, folds: int, seed: int) -> dict[str, float]:
    """Let TrCV and CV choose the weight of alignment, and judge their choices; LR chooses its penalty by CV."""
    task = credit_task(name, 200, seed)
    candidates = [replace(task.settings, alignment_weight=weight) for weight in (0.0, 0.01, 0.1, 1.0)]
    tests = [judged(task.test_labels, transfer(task, one).scores(task.test)).f1 for one in candidates]
    found: dict[str, float] = {"best": max(tests)}
    for key, estimate in (("TrCV", transfer_cross_validation), ("CV", cross_validation)):
        estimates = [estimate(task, one, folds) for one in candidates]
        chosen = int(np.argmax(estimates))
        found |= {f"{key} estimate": estimates[chosen], f"{key} test": tests[chosen]}
        found[f"{key} weight"] = candidates[chosen].alignment_weight
    penalties = (0.001, 0.01, 0.1, 1.0)
    estimates = [_regression_validation(task, folds, l2) for l2 in penalties]
    chosen = int(np.argmax(estimates))
    model = _regression(task, task.labelled, penalties[chosen])
    found |= {"LR estimate": estimates[chosen]}
    found["LR test"] = judged(task.test_labels, _decision(model.decision_function(task.test))).f1
    return found


def product_difference(labelled: int = 500, source_only: int = 1000) -> float:
    """Train one cell with the product in plaintext, and return how far any parameter is from the reference's."""
    import colonnade as cn

    tables, labels = _credit()
    part = credit_partition(labelled, SEEDS[0], pairs=labelled)
    training = np.concatenate([part.shared, part.source_only[:source_only]])
    settings = replace(CREDIT, seed=SEEDS[0])
    config = cn.FTL(
        protection="none",
        width=settings.widths[-1],
        gamma=settings.alignment_weight,
        decay=settings.weight_decay,
        reconstruction=settings.autoencoder_weight,
        learning_rate=settings.learning_rate,
        iterations=settings.iterations,
        tolerance=0.0,
        safeguard=False,
    )
    source = tables["payment"].iloc[training].assign(default=labels[training])
    parties = {
        "source": cn.PartyTable(source, id="id", label="default"),
        "target": cn.PartyTable(tables["profile"].iloc[part.shared], id="id"),
    }
    whole = cn.Evaluate(test_fraction=0.0, validation_fraction=0.0)
    run = cn.simulate(config, parties, seed=settings.seed, evaluate=whole)

    columns, _ = encoded(tables["payment"], training, part.test[:1])
    shared, test = encoded(tables["profile"], part.shared, part.test)
    everyone = np.arange(labelled)
    model = transfer(Task(columns, labels[training], shared, everyone, test, labels[part.test], settings))
    pairs = [(run.parts["source"].tensors["translator"], model.translator)]
    for party, prefix, encoder in (("source", "", model.labelled), ("target", "source/", model.scored)):
        layer = encoder[0]
        for name in ("weight", "bias"):
            found = run.parts[party].tensors[f"{prefix}encoder.linears.0.{name}"]
            pairs.append((found, getattr(layer, name).detach()))
    return max(float((first - second).abs().max()) for first, second in pairs)


def running_time(width: int, columns: int, rows: int, key_size: Any) -> float:
    """Return the seconds of one encrypted iteration of the product, all rows shared and labelled, in one process."""
    import colonnade as cn

    generator = np.random.default_rng(0)
    names = [f"C{number}" for number in range(max(columns, 18))]
    values = pd.DataFrame(generator.normal(size=(rows, len(names))), columns=names)
    labels = (values.iloc[:, 0] + generator.normal(size=rows) > 0).astype(int)
    people = pd.Series(np.arange(rows), name="id")
    parties = {
        "source": cn.PartyTable(pd.concat([people, values.iloc[:, :18]], axis=1).assign(y=labels), id="id", label="y"),
        "target": cn.PartyTable(pd.concat([people, values.iloc[:, :columns]], axis=1), id="id"),
    }
    whole = cn.Evaluate(test_fraction=0.0, validation_fraction=0.0)

    def seconds(count: int) -> float:
        config = cn.FTL(
            width=width, iterations=count, tolerance=0.0, safeguard=False, key_size=key_size, allow_leak=True
        )
        start = time.perf_counter()
        cn.simulate(config, parties, evaluate=whole)
        return time.perf_counter() - start

    # Keys and alignment take the same time in both runs.
    return (seconds(3) - seconds(1)) / 2
