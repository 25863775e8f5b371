"""The experiments of "Secure Federated Transfer Learning" on real data, written to docs/results-ftl.md with figures.

Default-Credit with both assignments of its columns, and Wikipedia's images and texts in place of NUS-WIDE, which is not
to be had. Transfer is the plaintext reference (benchmarks/papers/ftl_reference.py), which one cell holds against the
product; the time of an iteration is the product's own, encrypted. Needs the data (see colonnade.datasets); `--quick`
makes small tables up.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
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
    sides: tuple[str, ...] = tuple(SIDES)
    guarded: tuple[tuple[str, int, bool], ...] = (
        ("payment", 500, False),
        ("profile", 100, False),
        ("payment", 500, True),
    )
    labels: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=lambda: LABELS)
    pairs: tuple[int, ...] = PAIRS
    folds: tuple[int, ...] = FOLDS
    curve: int = 100
    tuning_seeds: tuple[int, ...] = TUNING_SEEDS
    classes_labels: tuple[int, ...] = (100, 200, 500)
    timed: Mapping[str, tuple[int, ...]] = dataclasses.field(
        default_factory=lambda: {"width": (4, 8, 16), "columns": (6, 12, 18), "rows": (50, 100, 200)}
    )
    timed_base: Mapping[str, int] = dataclasses.field(default_factory=lambda: {"width": 8, "columns": 18, "rows": 100})
    key_size: Any = 2048


QUICK = Sizes(
    seeds=(1,),
    sides=("profile",),
    guarded=(("profile", 100, False),),
    labels={"profile": (100,), "warfare": (100,)},
    pairs=(120,),
    folds=(3,),
    curve=4,
    tuning_seeds=TUNING_SEEDS[:1],
    classes_labels=(100,),
    timed={"width": (2,), "columns": (4,), "rows": (20,)},
    timed_base={"width": 2, "columns": 4, "rows": 20},
    key_size="insecure_test",
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


@dataclass(frozen=True)
class Draws:
    """How many clients are drawn for what."""

    apart: int = 7500
    """To choose settings by; no table of results has any of them."""
    shared: int = 2000
    source: int = 6000
    """With those that are shared."""
    test: int = 3000
    tuning: tuple[int, int, int] = (1000, 1200, 1000)


_FEW = Draws(apart=300, shared=220, source=400, test=100, tuning=(120, 60, 60))
_draws = Draws()


def begin(draws: Draws) -> None:
    """Say for this process how many clients are drawn, of whom few are made up, and take one core."""
    global _draws
    _draws = draws
    torch.set_num_threads(1)


def _made_up(rows: int, widths: Mapping[str, int], classes: int) -> tuple[dict[str, pd.DataFrame], Array]:
    """Return tables whose columns follow traits, of which each class has one."""
    generator = np.random.default_rng(0)
    labels = np.arange(rows) % classes
    traits = np.eye(classes)[labels] + 0.5 * generator.normal(size=(rows, classes))
    tables = {}
    for name, width in widths.items():
        values = traits @ generator.normal(size=(classes, width)) + generator.normal(size=(rows, width))
        tables[name] = pd.DataFrame(values, columns=[f"{name}{place}" for place in range(width)])
        tables[name].insert(0, "id", np.arange(rows))
    return tables, labels


@cache
def _credit() -> tuple[dict[str, pd.DataFrame], Array]:
    if _draws == _FEW:
        return _made_up(900, {"profile": 3, "payment": 5}, 2)
    tables = default_credit(label_at="payment")
    labels = tables["payment"]["default"].to_numpy()
    return {"profile": tables["profile"], "payment": tables["payment"].drop(columns="default")}, labels


@cache
def _wikipedia() -> tuple[dict[str, pd.DataFrame], Array]:
    if _draws == _FEW:
        return _made_up(1100, {"image": 8, "text": 6}, len(WIKIPEDIA_CATEGORIES))
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
    return Partition(parts[0], parts[1], parts[2], np.sort(np.concatenate(places)))


def credit_partition(labelled: int, seed: int, *, pairs: int = 0, is_tuning: bool = False) -> Partition:
    """Draw clients: from the tuning rows, or from all the others."""
    _, labels = _credit()
    order = np.random.default_rng(20200).permutation(len(labels))
    rows = order[: _draws.apart] if is_tuning else order[_draws.apart :]
    pairs = pairs or _draws.shared
    counts = _draws.tuning if is_tuning else (pairs, _draws.source - pairs, _draws.test)
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
        warnings.simplefilter("ignore")  # an optimizer that stops early is judged by its result
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


# --- Studies: each gives one partition's numbers ----------------------------------------------------------------------

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


def score_range(name: str, seed: int) -> dict[str, float]:
    """Return how large scores are, and how far the two losses' scores are apart, with 100 labels."""
    task = task_named(name, 100, seed)
    ours = transfer(task).scores(task.test)
    exact = transfer(task, replace(task.settings, loss="logistic")).scores(task.test)
    return {"largest": float(np.abs(ours).max()), "apart": float(np.abs(ours - exact).max())}


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
    """Let the product's stage validate hold transfer against a regression by five folds, in the clear.

    Where labels are mixed up, all shared rows are labelled, and the labels of all other rows of the source are wrong.
    """
    import colonnade as cn

    tables, labels = _credit()
    rows: dict[str, Any] = {"pairs": labelled} if is_shuffled else {}
    part = credit_partition(labelled, seed, **rows)
    task = credit_task(name, labelled, seed, **rows)
    wrong = labels[part.source_only]
    if is_shuffled:
        wrong = np.random.default_rng(seed).permutation(wrong)
        task = replace(task, labels=np.concatenate([task.labels[: len(part.shared)], wrong]))
    training = np.concatenate([part.shared, part.source_only])
    source = tables[SIDES[name]].iloc[training].assign(default=np.concatenate([labels[part.shared], wrong]))
    parties = {
        "source": cn.PartyTable(source, id="id", label="default"),
        "target": cn.PartyTable(tables[name].iloc[part.shared], id="id"),
    }
    config = _product_settings(task.settings, labelled_rows=labelled, folds=5)
    whole = cn.Evaluate(test_fraction=0.0, validation_fraction=0.0)
    run = cn.simulate(config, parties, seed=seed, evaluate=whole, stage="validate")
    (finding,) = run.findings.values()
    validated, own = finding.values["means"]["cross-validation"], finding.values["means"]["self-learning"]
    tested = {
        "transfer": transfer(task).scores(task.test),
        "regression": _decision(_regression(task, task.labelled).decision_function(task.test)),
    }
    return {
        "validated transfer": validated,
        "validated regression": own,
        "tested transfer": judged(task.test_labels, tested["transfer"]).f1,
        "tested regression": judged(task.test_labels, tested["regression"]).f1,
        "chooses transfer": float(finding.values["chosen"] == "transfer"),
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
    """Return the mean F1 by Algorithm 3: label the target's rows by transfer, then transfer back to held-out rows."""
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
    candidates = [replace(task.settings, alignment_weight=weight) for weight in (0.0, 0.1, 1.0)]
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


def _product_settings(settings: Settings, **more: Any) -> Any:
    """Return the reference's settings as the product has them, in the clear."""
    import colonnade as cn

    return cn.FTL(
        protection="none",
        width=settings.widths[-1],
        gamma=settings.alignment_weight,
        decay=settings.weight_decay,
        reconstruction=settings.autoencoder_weight,
        learning_rate=settings.learning_rate,
        iterations=settings.iterations,
        tolerance=0.0,
        secret_start=False,
        **more,
    )


def product_difference(labelled: int = 500, source_only: int = 1000) -> float:
    """Train one cell with the product in plaintext, and return how far any parameter is from the reference's."""
    import colonnade as cn

    tables, labels = _credit()
    part = credit_partition(labelled, SEEDS[0], pairs=labelled)
    training = np.concatenate([part.shared, part.source_only[:source_only]])
    settings = replace(CREDIT, seed=SEEDS[0])
    config = _product_settings(settings, safeguard=False)
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


@cache
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

    config = cn.FTL(width=width, iterations=4, tolerance=0.0, safeguard=False, key_size=key_size, allow_leak=True)
    ends: dict[int, float] = {}

    def note(progress: Any) -> None:
        if progress.party == "source" and progress.stage == "train":
            ends.setdefault(progress.step, time.process_time())

    cn.simulate(config, parties, evaluate=whole, observer=note)
    # Between one iteration's end and the next: keys and alignment, which vary more than this, are left out. Processor
    # time of both parties, as others may share the machine.
    return statistics.median(ends[step + 1] - ends[step] for step in range(1, config.iterations))


# --- All of it --------------------------------------------------------------------------------------------------------

Found: TypeAlias = dict[tuple[Any, ...], Any]
STUDIES: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (compare, score_range, classes, iterations, number_of_pairs, tuning, safeguard, validation)
}


def jobs(sizes: Sizes) -> list[tuple[Any, ...]]:
    """List everything to do: the name of a study, its arguments, a seed."""
    names: list[tuple[Any, ...]] = [
        ("compare", name, count) for name, counts in sizes.labels.items() for count in counts
    ]
    names += [("score_range", name) for name in sizes.labels]
    names += [("classes", count) for count in sizes.classes_labels]
    names += [("iterations", name, sizes.curve) for name in sizes.sides]
    names += [("number_of_pairs", name, count) for name in sizes.sides for count in sizes.pairs]
    listed = [(*name, seed) for name in names for seed in sizes.seeds]
    # As many partitions as the paper's: this is the longest of all studies.
    folds = [("validation", name, count) for name in sizes.sides for count in sizes.folds]
    listed += [(*name, seed) for name in folds for seed in sizes.seeds[:3]]
    listed += [("safeguard", name, count, seed, mixed) for name, count, mixed in sizes.guarded for seed in sizes.seeds]
    return listed + [("tuning", name, seed) for name in sizes.sides for seed in sizes.tuning_seeds]


def carry_out(job: tuple[Any, ...]) -> Any:
    """Do one of the jobs."""
    return STUDIES[job[0]](*job[1:])


def run_studies(listed: Sequence[tuple[Any, ...]], results: Iterable[Any]) -> Found:
    """Take the results of all jobs, as they are done."""
    found: Found = {}
    for number, (job, result) in enumerate(zip(listed, results, strict=True), start=1):
        found[job] = result
        if number % 25 == 0 or number == len(listed):
            say(f"{number} of {len(listed)} done …")
    return found


def over(found: Found, *start: Any) -> list[Any]:
    """Return what all partitions of one study gave."""
    return [result for job, result in found.items() if job[: len(start)] == start]


def f1s(results: Sequence[Numbers], key: str) -> Array:
    """Return the F1 of every partition."""
    return np.array([one[key].f1 for one in results])


def aucs(results: Sequence[Numbers], key: str) -> Array:
    """Return the AUC of every partition."""
    return np.array([one[key].auc for one in results])


def best_alone(results: Sequence[Numbers], kinds: Sequence[str] = SELF_LEARNERS) -> str:
    """Name the self-learner with the best mean F1."""
    return max(kinds, key=lambda kind: float(f1s(results, kind).mean()))


def measure(arguments: argparse.Namespace) -> Findings:
    sizes, draws = (QUICK, _FEW) if arguments.quick else (Sizes(), _draws)
    findings = Findings(figures={"partitions": len(sizes.seeds), "load_average": os.getloadavg()[0]})
    begin(draws)
    say("Holding the reference against the product …")
    findings.figures["product_difference"] = product_difference(*((100, 100) if arguments.quick else ()))
    listed = jobs(sizes)
    if arguments.quick:
        found = run_studies(listed, map(carry_out, listed))
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(arguments.workers, context, initializer=begin, initargs=(draws,)) as pool:
            found = run_studies(listed, pool.map(carry_out, listed))
    times = {}
    for what, values in sizes.timed.items():
        say(f"Timing encrypted iterations against {what} …")
        times[what] = [running_time(**{**sizes.timed_base, what: value}, key_size=sizes.key_size) for value in values]
    findings.figures["load_average_while_timing"] = os.getloadavg()[0]
    findings.figures |= figures_of(found, sizes, times)
    hold_bars(findings, found, sizes)
    with TemporaryDirectory() as folder:
        page = arguments.page or (Path(folder) / PAGE.name if arguments.quick else PAGE)
        Page(found, sizes, times, findings).write(page)
    return findings


def figures_of(found: Found, sizes: Sizes, times: Mapping[str, list[float]]) -> dict[str, float]:
    """Name the means of everything, for a machine to read."""
    figures: dict[str, float] = {}
    for study, names in (("compare", sizes.labels), ("number_of_pairs", dict.fromkeys(sizes.sides, sizes.pairs))):
        for name, counts in names.items():
            for count in counts:
                results = over(found, study, name, count)
                for key in results[0]:
                    what = f"{name}_{count}_{'pairs_' if study != 'compare' else ''}{key.replace(' ', '_')}"
                    figures |= {f"{what}_f1": f1s(results, key).mean(), f"{what}_auc": aucs(results, key).mean()}
    for count in sizes.classes_labels:
        results = over(found, "classes", count)
        figures |= {f"classes_{count}_{key}_f1": f1s(results, key).mean() for key in results[0]}
    for name in sizes.sides:
        for folds in sizes.folds:
            for key, value in _means(over(found, "validation", name, folds)).items():
                figures[f"{name}_{folds}_folds_{key.replace(' ', '_')}"] = value
    for name, count, mixed in sizes.guarded:
        kept = [found["safeguard", name, count, seed, mixed] for seed in sizes.seeds]
        what = f"safeguard_{name}_{count}{'_shuffled' if mixed else ''}"
        figures |= {f"{what}_{key.replace(' ', '_')}": value for key, value in _means(kept).items()}
    for what, values in times.items():
        for value, seconds in zip(sizes.timed[what], values, strict=True):
            figures[f"seconds_{what}_{value}"] = seconds
    return {key: float(value) for key, value in figures.items()}


def _means(results: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([one[key] for one in results])) for key in results[0]}


def hold_bars(findings: Findings, found: Found, sizes: Sizes) -> None:
    """Hold the figures against what the issue asks for."""
    results = over(found, "compare", "profile", 100)
    ours = f1s(results, "FTL")
    findings.bar("profile_100_f1", float(ours.mean()), at_least=0.58)
    rival = f1s(results, best_alone(results))
    findings.bar("profile_100_above_best_self_learner", float((ours - rival).mean()), at_least=0.015)
    shuffled = f1s(results, "shuffled pairs")
    findings.bar("profile_100_above_shuffled_pairs", float((ours - shuffled).mean()), at_least=0.02)
    both = [over(found, "compare", name, 100) for name in sizes.sides]
    gaps = [abs(f1s(one, "FTL") - f1s(one, "exact loss")) for one in both]
    findings.bar("taylor_against_exact_loss", float(np.mean(gaps)), at_most=0.005)
    curves = over(found, "iterations", "profile")
    at = np.mean([one["Taylor, 1 layer"][min(30, sizes.curve) - 1][2] for one in curves])
    for what, key in (("", "Taylor, 1 layer"), ("_adam_0.01", "Adam 0.01")):
        late = np.mean([one[key][sizes.curve - 1][2] for one in curves])
        findings.bar(f"profile_auc_30_against_100_iterations{what}", float(abs(late - at)), at_most=0.01)
    name, count, mixed = sizes.guarded[0]
    kept = [found["safeguard", name, count, seed, mixed] for seed in sizes.seeds]
    alone_count = sum(1.0 - one["chooses transfer"] for one in kept)
    findings.bar(f"{name}_{count}_safeguard_chooses_self_learning", alone_count, at_least=float(len(kept)))
    findings.bar("product_difference", findings.figures["product_difference"], at_most=1e-9, at_any_size=True)


# --- The page ---------------------------------------------------------------------------------------------------------

REVEALS = "distillation shows the target the source's score of every shared row, and so nearly all labels"


def spread(values: Array) -> str:
    """Return mean and sample standard deviation."""
    deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return f"{values.mean():.3f} ± {deviation:.3f}"


def cell(results: Sequence[Numbers], key: str) -> str:
    """Return F1 with its spread, and AUC."""
    return f"{spread(f1s(results, key))} / {aucs(results, key).mean():.3f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


class Page:
    """Write every number of the studies as a page with figures."""

    def __init__(self, found: Found, sizes: Sizes, times: Mapping[str, list[float]], findings: Findings) -> None:
        self.found, self.sizes, self.times, self.findings = found, sizes, times, findings

    def write(self, path: Path) -> None:
        """Write the page, and its figures into the folder beside it."""
        figures = path.parent / "figures"
        figures.mkdir(parents=True, exist_ok=True)
        self.draw(figures)
        path.write_text(self.text() + "\n", encoding="utf-8")

    def text(self) -> str:
        """Return the page."""
        parts = [self.opening(), self.bars(), self.comparison(), self.controls(), self.losses(), self.lengths()]
        parts += [self.pairs(), self.validations(), self.guards(), self.many_classes(), self.speed(), self.settings()]
        return "\n\n".join(parts)

    def opening(self) -> str:
        """Say what was done."""
        return f"""# Results: federated transfer learning

*First weights of these runs follow from their seeds (`secret_start = false`), so that they repeat. Since 2026-11-18 the
shipped default draws them in secret, and these tables have not been rerun with it.*

Written by `python -m benchmarks.papers.ftl`, every number of it. The paper: Y. Liu and others, "A Secure Federated
Transfer Learning Framework", 2020; how the method works is told on [its own page](method-ftl.md).

**Data.** Default-Credit (30000 clients) with both assignments of its columns: the target holds the *profile* (credit
limit, sex, education, marriage, age) and the source the payments, or the other way round. NUS-WIDE is not to be had, so
Wikipedia's featured articles stand in: *image* at the target, *text* at the source, one category against the rest.
Classes are balanced by sampling, as in the paper. Credit: 2000 shared rows, 4000 that only the source knows, 3000 of
the target's to test. Wikipedia: half of a task's articles shared, a quarter to test.

**Rows that were not used for tuning.** {_draws.apart} clients, a random quarter, were set apart for choosing settings
([below](#choice-of-settings)). The {len(self.sizes.seeds)} partitions (seeds {", ".join(map(str, self.sizes.seeds))})
of every other table on Default-Credit are drawn from the rest. Not all choices are that clean. The weights of alignment
({CREDIT.alignment_weight:g}) and decay ({CREDIT.weight_decay:g}) are those of an earlier prototype, which had seen all
clients; on the tuning rows alone, the best of twelve such pairs by F1 is
{" and ".join(map(self.best_weights, self.sizes.sides))}. That the auto-encoder's loss is needed while training was
first seen on other partitions of all clients, too. Wikipedia is too small to set rows apart: the
prototype's decay ({WIKIPEDIA.weight_decay:g}) and width ({WIKIPEDIA.widths[-1]}) were chosen on other partitions of the
same articles, which flatters FTL a little.

**Numbers.** Weighted F1, mean ± sample standard deviation of the partitions, and the area under the curve (AUC).
A score above 0 means the second class; no threshold is tuned.
The *FTL* columns come from the plaintext reference. It equals the product with `protection = "none"`: after
{CREDIT.iterations} iterations no parameter of one cell differs by more than
{self.findings.figures["product_difference"]:.0e}; that the encrypted run equals the plaintext run is tested.

**Rivals.** LR, SVM and AE (the auto-encoder's codes, then a regression) learn from the labelled rows' target columns
alone, tuned by cross-validation on these. *Distillation* is a control without any protection: a regression of the
source scores all shared rows, and the target learns these scores. It is far simpler, and its mean F1 is at least FTL's
in {self.distillation_wins()} rows of the first table; but {REVEALS}.
*Direct* is a regression on the true labels of all shared rows."""

    def best_weights(self, name: str) -> str:
        """Name the best weights of alignment and decay on the tuning rows."""
        results = over(self.found, "tuning", name)
        best = max((key for key in results[0] if key[0].isdigit()), key=lambda key: float(f1s(results, key).mean()))
        alignment, decay = best.split()
        return f"{alignment} and {decay} ({name} at the target)"

    def distillation_wins(self) -> str:
        """Count the cells in which the control without protection is at least as good."""
        cells = [over(self.found, "compare", name, one) for name, counts in self.sizes.labels.items() for one in counts]
        wins = sum(f1s(one, "distillation").mean() >= f1s(one, "FTL").mean() for one in cells)
        return f"{wins} of {len(cells)}"

    def bars(self) -> str:
        """Show what must hold."""
        rows = []
        for name, bar in self.findings.bars.items():
            limit = f"at least {bar['at_least']:g}" if "at_least" in bar else f"at most {bar['at_most']:g}"
            rows.append(
                (
                    name.replace("_", " "),
                    f"{bar['value']:.2g}" if bar["value"] < 1e-4 else f"{bar['value']:.4g}",
                    limit,
                    "yes" if bar["holds"] else "**no**",
                )
            )
        return "## What must hold\n\n" + table(("figure", "value", "limit", "holds"), rows)

    def comparison(self) -> str:
        """Show transfer against all rivals, and the paper's table."""
        keys = ("FTL", "no alignment", *SELF_LEARNERS, "distillation", "direct")
        rows = []
        for name, counts in self.sizes.labels.items():
            for count in counts:
                results = over(self.found, "compare", name, count)
                best = best_alone(results)
                difference = f1s(results, "FTL") - f1s(results, best)
                rows.append(
                    (
                        name,
                        str(count),
                        *(cell(results, key) for key in keys),
                        f"{spread(difference)} ({best}; {(difference > 0).sum()} of {len(difference)})",
                    )
                )
        paper = [
            (name, str(count), *(f"{value:.3f}" for value in values))
            for name, both in PAPER.items()
            for count, values in zip((100, 200), both, strict=True)
        ]
        return f"""## Transfer against learning alone

The target's task, the number of labels in the loss, then F1 ± deviation / AUC. The last column is FTL's F1 less that of
the best self-learner, with the partitions in which FTL is ahead. In the column *distillation*, {REVEALS}.

{table(("target", "labels", *keys, "FTL less best alone"), rows)}

The paper's Table 1, on NUS-WIDE, which we cannot repeat (weighted F1; TLT is FTL with the Taylor loss, TLL with the
exact one; it has no control by distillation):

{table(("task", "labels", "TLT", "TLL", "LR", "SVM", "SAE"), paper)}"""

    def controls(self) -> str:
        """Show what wrong pairs do."""
        rows = []
        for name, counts in self.sizes.labels.items():
            if 100 in counts:
                results = over(self.found, "compare", name, 100)
                difference = f1s(results, "FTL") - f1s(results, "shuffled pairs")
                rows.append(
                    (
                        name,
                        cell(results, "FTL"),
                        cell(results, "shuffled pairs"),
                        spread(difference),
                        cell(results, "distillation"),
                    )
                )
        return f"""## Do the pairs carry it?

100 labels. If shared rows are paired wrongly, at random, what alignment teaches is noise; all else is equal.
{REVEALS.capitalize()}.

{table(("target", "true pairs", "shuffled pairs", "difference of F1", "distillation"), rows)}"""

    def losses(self) -> str:
        """Show Taylor's loss against the exact one."""
        rows = []
        for name, counts in self.sizes.labels.items():
            for count in counts:
                results = over(self.found, "compare", name, count)
                gaps = abs(f1s(results, "FTL") - f1s(results, "exact loss"))
                rows.append(
                    (
                        name,
                        str(count),
                        cell(results, "FTL"),
                        cell(results, "exact loss"),
                        f"{gaps.mean():.4f}",
                        f"{gaps.max():.4f}",
                        cell(results, "distillation"),
                    )
                )
        return f"""## Taylor's loss against the exact one

Encryption needs a loss of second degree. The exact logistic loss has no encrypted form, and serves as reference only.
{REVEALS.capitalize()}.

{table(("target", "labels", "Taylor", "exact", "mean gap of F1", "largest gap", "distillation"), rows)}

{self.ranges()}

![Loss and F1 after each iteration, by Taylor's and by the exact loss, with one and two layers](figures/ftl-losses.svg)

The profile at the target, 100 labels, mean of the partitions. The loss includes alignment, penalty and auto-encoder.
The dotted lines of the exact loss lie on those of Taylor's."""

    def ranges(self) -> str:
        """Say why the two losses can hardly differ."""
        rows = []
        for name in self.sizes.labels:
            found = over(self.found, "score_range", name)
            largest, apart = (max(one[key] for one in found) for key in ("largest", "apart"))
            rows.append((name, f"{largest:.3f}", f"{apart:.1e}"))
        return f"""Where scores are near 0, this is no hard test: there, the two losses are the same function but for
terms of the fourth order. So small gaps say little about data with larger scores. 100 labels, all partitions:

{table(("target", "largest score", "largest difference of a score"), rows)}"""

    def lengths(self) -> str:
        """Show how many iterations are needed."""
        marks = [mark for mark in (10, 20, 30, 50, 100) if mark <= self.sizes.curve] or [self.sizes.curve]
        labels = {
            "Taylor, 1 layer": "as everywhere here (Adam 0.03)",
            "Adam 0.01": "Adam 0.01",
            "no auto-encoder": "without the auto-encoder's loss",
            "no auto-encoder, Adam 0.01": "the same, Adam 0.01",
            "Taylor, 2 layers": "two layers",
        }
        rows = []
        for name in self.sizes.sides:
            curves = over(self.found, "iterations", name)
            control = over(self.found, "compare", name, 100)
            for key, label in labels.items():
                means = np.mean([one[key] for one in curves], axis=0)
                rows.append(
                    (
                        name,
                        label,
                        *(f"{means[mark - 1][1]:.3f} / {means[mark - 1][2]:.3f}" for mark in marks),
                        cell(control, "distillation"),
                    )
                )
        return f"""## How many iterations?

F1 / AUC with 100 labels after so many iterations. {REVEALS.capitalize()}.

{table(("target", "training", *(f"{mark}" for mark in marks), "distillation"), rows)}

![AUC after each iteration, with and without the auto-encoder's loss](figures/ftl-iterations.svg)

Where the auto-encoder's loss is left out, both encoders can agree on a constant code, which aligns perfectly and says
nothing. The paper keeps that loss while training; it needs no message."""

    def pairs(self) -> str:
        """Show the effect of the number of shared rows."""
        rows = []
        for name in self.sizes.sides:
            for count in self.sizes.pairs:
                results = over(self.found, "number_of_pairs", name, count)
                rows.append((name, str(count), *(cell(results, key) for key in ("FTL", "LR", "distillation"))))
        return f"""## The number of shared rows

100 labels; the source has 6000 rows in all. The paper reports a rise. LR uses the labelled rows only; it moves
because every number of shared rows is another draw of clients. {REVEALS.capitalize()}.

{table(("target", "shared rows", "FTL", "LR", "distillation"), rows)}

![F1 against the number of shared rows](figures/ftl-pairs.svg)"""

    def validations(self) -> str:
        """Show TrCV against CV."""
        rows = []
        for name in self.sizes.sides:
            control = over(self.found, "compare", name, 200)
            for folds in self.sizes.folds:
                means = _means(over(self.found, "validation", name, folds))
                rows.append(
                    (
                        name,
                        str(folds),
                        *(
                            f"{means[f'{key} estimate']:.3f} → {means[f'{key} test']:.3f}"
                            for key in ("TrCV", "CV", "LR")
                        ),
                        f"{means['best']:.3f}",
                        cell(control, "distillation") if control else "-",
                    )
                )
        return f"""## Transfer cross-validation

Which weight of alignment (0, 0.1, 1)? TrCV (the paper's Algorithm 3) needs no label at the target: it labels the
target's rows by transfer, transfers back, and judges on held-out rows of the source. CV judges on folds of the 200
labelled rows. LR is tuned by CV. Each cell: the estimate for the chosen model → its F1 on test rows. *Best* is the
best of the three by test rows, which nobody may choose by. A fold's labels are used nowhere, not even in the
translator. Means of {len(self.sizes.seeds[:3])} partitions.
TrCV's estimate is about the source's columns, so it cannot be compared with an F1 of the target's rows.
{REVEALS.capitalize()}.

{table(("target", "folds", "TrCV", "CV", "LR", "best", "distillation"), rows)}

![F1 on test rows of the models chosen by TrCV, by CV, and of LR](figures/ftl-validation.svg)"""

    def guards(self) -> str:
        """Show what the safeguard chooses."""
        rows = []
        for name, count, mixed in self.sizes.guarded:
            kept = [self.found["safeguard", name, count, seed, mixed] for seed in self.sizes.seeds]
            means = _means(kept)
            control = over(self.found, "compare", name, count)
            chosen = int(sum(one["chooses transfer"] for one in kept))
            rows.append(
                (
                    name,
                    str(count),
                    "shuffled" if mixed else "true",
                    *(
                        f"{means[f'{stage} {kind}']:.3f}"
                        for stage in ("validated", "tested")
                        for kind in ("transfer", "regression")
                    ),
                    f"{len(kept) - chosen} of {len(kept)}",
                    cell(control, "distillation") if control and not mixed else "-",
                )
            )
        kinds = ("transfer, validated", "regression, validated", "transfer, test", "regression, test")
        head = ("target", "labels", "source's labels", *kinds, "chooses self-learning", "distillation")
        return f"""## The safeguard against negative transfer

The product's stage `validate`, in the clear: five folds of the labelled rows judge transfer and a regression on the
same rows (*validated*: AUC; *test*: F1), and the better one serves. The regression's penalty is fixed
({L2:g}/2 times the squared coefficients beside the mean loss). *Shuffled*: all shared rows are labelled, and the labels
of all other rows of the source are mixed up.
{REVEALS.capitalize()}.

{table(head, rows)}"""

    def many_classes(self) -> str:
        """Show ten classes."""
        rows = []
        for count in self.sizes.classes_labels:
            results = over(self.found, "classes", count)
            rows.append((str(count), *(cell(results, key) for key in ("FTL", "LR", "SVM", "distillation", "direct"))))
        return f"""## Several classes

All ten categories of Wikipedia at once, natural shares, image at the target; reported without a claim.
The AUC is the mean over categories against the rest. {REVEALS.capitalize()}.

{table(("labels", "FTL", "LR", "SVM", "distillation", "direct"), rows)}"""

    def speed(self) -> str:
        """Show the time of an iteration."""
        base = self.sizes.timed_base
        rows = [
            (what, str(value), f"{seconds:.2f}")
            for what, values in self.sizes.timed.items()
            for value, seconds in zip(values, self.times[what], strict=True)
        ]
        return f"""## Time of an encrypted iteration

The product, {self.sizes.key_size}-bit keys, source with 18 columns, all rows shared and labelled: seconds of processor
time of both parties together, the median of three iterations. What does not vary: width {base["width"]},
{base["columns"]} target columns, {base["rows"]} rows.
Columns are made up, so there is no control here. How fast this is against the paper's own schedule:
`python -m benchmarks.ftl_speed`.

{table(("varied", "value", "seconds"), rows)}

![Seconds per iteration against width, target columns and shared rows](figures/ftl-time.svg)"""

    def settings(self) -> str:
        """Show the grid on tuning rows."""
        rows = []
        both = {name: over(self.found, "tuning", name) for name in self.sizes.sides}
        for key in next(iter(both.values()))[0]:
            label = f"alignment {key.split()[0]}, decay {key.split()[1]}" if key[0].isdigit() else key
            is_ours = key == f"{CREDIT.alignment_weight:g} {CREDIT.weight_decay:g}"
            label = f"**{label}** (used here)" if is_ours else label
            rows.append((label, *(cell(results, key) for results in both.values())))
        ours = CREDIT
        return f"""## Choice of settings

On the tuning rows only: 1000 shared rows, 1200 of the source's only, 1000 to test, 100 labels,
{len(self.sizes.tuning_seeds)} partitions. Where nothing else is said: width {ours.widths[-1]}, alignment
{ours.alignment_weight:g}, decay {ours.weight_decay:g}, auto-encoder {ours.autoencoder_weight:g}, Adam
{ours.learning_rate:g}, {ours.iterations} iterations, full batch. {REVEALS.capitalize()}.

{table(("settings", "profile", "payment"), rows)}"""

    def draw(self, folder: Path) -> None:
        """Draw the figures."""
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot

        plain: dict[Any, Any] = {
            "svg.hashsalt": "colonnade",
            "svg.fonttype": "none",
            "font.size": 9,
            "axes.spines.top": False,
        }
        with pyplot.rc_context(plain | {"axes.spines.right": False, "legend.frameon": False}):
            for name, paint in (
                ("losses", self._draw_losses),
                ("iterations", self._draw_iterations),
                ("pairs", self._draw_pairs),
                ("validation", self._draw_validation),
                ("time", self._draw_time),
            ):
                figure = paint(pyplot)
                figure.savefig(folder / f"ftl-{name}.svg", metadata={"Date": None})
                pyplot.close(figure)

    def _panels(self, pyplot: Any) -> Any:
        """Return a figure with one panel for each assignment of the columns."""
        return pyplot.subplots(1, len(self.sizes.sides), figsize=(8, 3.2), layout="constrained", squeeze=False)

    def _draw_losses(self, pyplot: Any) -> Any:
        figure, axes = pyplot.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
        curves = over(self.found, "iterations", "profile")
        for layers, colour in (("1 layer", "C0"), ("2 layers", "C1")):
            for loss, line in (("Taylor", "-"), ("exact", ":")):
                means = np.mean([one[f"{loss}, {layers}"] for one in curves], axis=0)
                for axis, column in zip(axes, (0, 1), strict=True):
                    steps = np.arange(1, len(means) + 1)
                    axis.plot(steps, means[:, column], line, color=colour, label=f"{loss}, {layers}", linewidth=1.8)
        for axis, label in zip(axes, ("loss", "weighted F1"), strict=True):
            axis.set(xlabel="iteration", ylabel=label)
        axes[0].legend()
        return figure

    def _draw_iterations(self, pyplot: Any) -> Any:
        figure, axes = self._panels(pyplot)
        for axis, name in zip(axes[0], self.sizes.sides, strict=True):
            curves = over(self.found, "iterations", name)
            for key, label in (
                ("Taylor, 1 layer", "Adam 0.03"),
                ("Adam 0.01", "Adam 0.01"),
                ("no auto-encoder", "Adam 0.03, no auto-encoder"),
                ("no auto-encoder, Adam 0.01", "Adam 0.01, no auto-encoder"),
            ):
                means = np.mean([one[key] for one in curves], axis=0)
                axis.plot(np.arange(1, len(means) + 1), means[:, 2], label=label)
            axis.set(xlabel="iteration", ylabel="AUC", title=f"{name} at the target")
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        return figure

    def _draw_pairs(self, pyplot: Any) -> Any:
        figure, axes = self._panels(pyplot)
        for axis, name in zip(axes[0], self.sizes.sides, strict=True):
            for key in ("FTL", "LR", "distillation"):
                values = [f1s(over(self.found, "number_of_pairs", name, count), key) for count in self.sizes.pairs]
                means, deviations = [one.mean() for one in values], [one.std() for one in values]
                axis.errorbar(self.sizes.pairs, means, deviations, marker="o", capsize=3, label=key)
            axis.set(xlabel="shared rows", ylabel="weighted F1", title=f"{name} at the target", xscale="log")
            axis.set_xticks(self.sizes.pairs, [str(count) for count in self.sizes.pairs])
            axis.minorticks_off()
        axes[0, 0].legend()
        return figure

    def _draw_validation(self, pyplot: Any) -> Any:
        figure, axes = self._panels(pyplot)
        for axis, name in zip(axes[0], self.sizes.sides, strict=True):
            means = [_means(over(self.found, "validation", name, folds)) for folds in self.sizes.folds]
            for key, mark in (("TrCV", "o"), ("CV", "s"), ("LR", "^")):
                heights = [one[f"{key} test"] for one in means]
                axis.plot(np.arange(len(heights)), heights, marker=mark, label=key)
            axis.set(xlabel="folds", ylabel="weighted F1 on test rows", title=f"{name} at the target")
            axis.set_xticks(np.arange(len(means)), [str(folds) for folds in self.sizes.folds])
        axes[0, 0].legend()
        return figure

    def _draw_time(self, pyplot: Any) -> Any:
        figure, axes = pyplot.subplots(1, 3, figsize=(8, 2.8), layout="constrained")
        for axis, (what, values) in zip(axes, self.sizes.timed.items(), strict=True):
            axis.plot(values, self.times[what], marker="o")
            names = {"width": "width of the code (d)", "columns": "target columns", "rows": "shared rows"}
            axis.set(xlabel=names[what], ylabel="seconds", xlim=(0, None), ylim=(0, None))
        return figure


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--page", type=Path, help=f"where to write the page ({PAGE.relative_to(ROOT)}; quick: nowhere)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (one for each core)")


if __name__ == "__main__":
    main(__doc__ or "", measure, add_options)
