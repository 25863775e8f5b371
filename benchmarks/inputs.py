"""Whether regression on our inputs is as good as on a tuned scikit-learn pipeline, on public tables and one made up.

Ours is `colonnade.training.Inputs`, with splines and without, under scikit-learn's logistic regression. The rival is
the best, by cross-validated AUC on the training rows, of six pipelines: numbers standardised, mapped to a normal
distribution, expanded in cubic splines of 5 or 8 knots, or cut into 10 or 20 bins, all with medians and marks for
missing numbers, one-hot categories, and for dates days, months and weekdays. Strength of the penalty is chosen for each
model from one grid, in the same three folds.

The made-up table (8,000 rows) has skewed amounts, many of them zero, dates with seasons, codes, categories and gaps.
Adult, Default-Credit (either side alone), Bank-Marketing and Give-Me-Some-Credit come from COLONNADE_DATA; what is
missing there is left out and named. 8,000 rows, or half of a smaller table, are trained on, and up to 12,000 others
judge; mean of two such splits, and of ten of breast cancer, scikit-learn's 569 patients. Gaps are rival minus ours, in
AUC on rows not trained on.
`--quick` has a smaller made-up table and breast cancer, one split.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    OneHotEncoder,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
)

from benchmarks.form import Findings, main, say
from colonnade.data import PartyTable
from colonnade.datasets import adult, bank_marketing, breast_cancer_views, default_credit, give_me_some_credit
from colonnade.errors import TableError
from colonnade.training import Inputs

Array = npt.NDArray[Any]

LARGEST_GAP = 0.005
PAYMENT_WITH_SPLINES, PAYMENT_WITHOUT = 0.76, 0.735
PENALTIES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""The grid of scikit-learn's C."""
FOLDS = 3
TRAINING, JUDGED = 8000, 12_000
SPLITS, SPLITS_OF_FEW = 2, 10
"""How often a table is split into training and other rows: of 8,000 rows or more, and of fewer."""


# Tables: features and, beside them, a label of zeros and ones


def of_adult() -> tuple[pd.DataFrame, Array]:
    people = adult()
    return people.drop(columns=["id", "income"]), (people["income"] == ">50K").to_numpy(int)


def of_credit(side: str) -> tuple[pd.DataFrame, Array]:
    tables = default_credit(label_at=side)
    return tables[side].drop(columns=["id", "default"]), tables[side]["default"].to_numpy(int)


def of_bank() -> tuple[pd.DataFrame, Array]:
    tables = bank_marketing()
    both = pd.concat([tables["bank"], tables["campaign"].drop(columns="id")], axis=1)
    return both.drop(columns=["id", "y"]), (both["y"] == "yes").to_numpy(int)


def of_borrowers() -> tuple[pd.DataFrame, Array]:
    tables = give_me_some_credit()
    both = pd.concat([tables["application"], tables["bureau"].drop(columns="id")], axis=1)
    return both.drop(columns=["id", "late"]), both["late"].to_numpy(int)


def of_patients() -> tuple[pd.DataFrame, Array]:
    tables = breast_cancer_views()
    both = pd.concat([tables["a"], tables["b"].drop(columns="patient")], axis=1)
    return both.drop(columns=["patient", "diagnosis"]), (both["diagnosis"] == "malignant").to_numpy(int)


def made_up(rows: int) -> tuple[pd.DataFrame, Array]:
    """Draw customers: who earns little, pays in winter or at weekends, or has an odd code, is more often late."""
    generator = np.random.default_rng(20)
    income = generator.lognormal(8, 0.8, rows)
    saved = np.where(generator.random(rows) < 0.6, 0.0, generator.lognormal(6, 2, rows))
    balance = generator.standard_t(2, rows) * 1000
    since = pd.Timestamp("2019-01-01") + pd.to_timedelta(generator.integers(0, 1200, rows), unit="D")
    code = generator.choice([0, 1, 2, 3, 9], rows, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    frequency = 1 / np.arange(1, 81)
    region = generator.choice([f"region {place}" for place in range(80)], rows, p=frequency / frequency.sum())
    frame = pd.DataFrame(
        {
            "income": income,
            "saved": saved,
            "balance": balance,
            "since": since,
            "code": code,
            "region": region,
            "member": generator.random(rows) < 0.3,
            "noise": generator.normal(size=rows),
        }
    )
    logits = (
        -1.0 * (np.log(income) - 8)
        - 0.8 * (saved > 0)
        - 0.15 * np.log1p(saved)
        - 0.6 * np.arcsinh(balance / 1000)
        + 0.8 * np.cos(2 * np.pi * (since.month - 1) / 12)
        + 0.7 * (since.day_of_week >= 5)
        + np.array([0.0, 0.5, -0.5, 0.5, 1.5])[np.searchsorted([0, 1, 2, 3, 9], code)]
        + 0.5 * (region == "region 0")
        + 0.6 * frame["member"]
    )
    frame.loc[generator.random(rows) < 0.2, "income"] = np.nan
    frame.loc[generator.random(rows) < 0.1, ["since"]] = pd.NaT
    late = generator.random(rows) < 1 / (1 + np.exp(-(logits - logits.mean() - 0.5)))
    return frame, np.asarray(late, dtype=int)


TABLES: dict[str, Callable[[], tuple[pd.DataFrame, Array]]] = {
    "made_up": lambda: made_up(8000),
    "breast_cancer": of_patients,
    "adult": of_adult,
    "default_credit profile": lambda: of_credit("profile"),
    "default_credit payment": lambda: of_credit("payment"),
    "bank_marketing": of_bank,
    "give_me_some_credit": of_borrowers,
}
QUICK = {"made_up": lambda: made_up(900), "breast_cancer": of_patients}


# Models: what turns rows into numbers, fitted on some rows and used on others

Encode = Callable[[Array, Array], tuple[Array, Array]]
"""Fit on the first rows and return the numbers of the first and of the second ones."""


def ours(frame: pd.DataFrame, *, splines: bool) -> Encode:
    table = PartyTable(frame.assign(row=range(len(frame))), id="row")

    def encode(fitted: Array, others: Array) -> tuple[Array, Array]:
        inputs = Inputs.fit(table, fitted, splines=splines)
        return inputs.transform(table, fitted, np.float64), inputs.transform(table, others, np.float64)

    return encode


def rivals(frame: pd.DataFrame) -> Iterator[tuple[str, Encode]]:
    numeric = {
        "standardised": [StandardScaler()],
        "normal quantiles": [QuantileTransformer(n_quantiles=100, output_distribution="normal")],
        "5 spline knots": [StandardScaler(), SplineTransformer(n_knots=5, knots="quantile"), StandardScaler()],
        "8 spline knots": [StandardScaler(), SplineTransformer(n_knots=8, knots="quantile"), StandardScaler()],
        "10 bins": [KBinsDiscretizer(10, quantile_method="averaged_inverted_cdf")],
        "20 bins": [KBinsDiscretizer(20, quantile_method="averaged_inverted_cdf")],
    }
    plain = frame.copy()
    for name in frame.select_dtypes("datetime"):
        days = (frame[name] - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
        parts = {"month": frame[name].dt.month, "weekday": frame[name].dt.day_of_week}
        plain[name] = days
        for part, values in parts.items():
            plain[f"{name} {part}"] = values.astype("Int64").astype("string").fillna("none").astype(object)
    words = list(plain.select_dtypes(["object", "string"]))
    numbers = [name for name in plain if name not in words]
    plain = plain.astype(dict.fromkeys(numbers, float))
    one_hot = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=50, sparse_output=False)
    for name, steps in numeric.items():
        transformer = make_column_transformer(
            (make_pipeline(SimpleImputer(strategy="median"), *steps), numbers),
            (one_hot, words),
            sparse_threshold=0.0,
        )
        yield name, _fitted(transformer, plain)


def _fitted(transformer: BaseEstimator, frame: pd.DataFrame) -> Encode:
    gaps = frame.isna().loc[:, lambda missing: missing.any()].to_numpy(float)

    def encode(fitted: Array, others: Array) -> tuple[Array, Array]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Bins whose width")  # of columns with few values
            transformer.fit(frame.iloc[fitted])
        one, two = (
            np.concatenate([transformer.transform(frame.iloc[rows]), gaps[rows]], axis=1) for rows in (fitted, others)
        )
        return one, two

    return encode


# Judging


def cross_validated(encode: Encode, labels: Array, training: Array) -> tuple[float, float]:
    """Return the best mean AUC over the folds, and the penalty that reaches it."""
    reached = np.zeros(len(PENALTIES))
    for fitted, held_out in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(training, labels[training]):
        ones, others = encode(training[fitted], training[held_out])
        for place, penalty in enumerate(PENALTIES):
            scores = regression(penalty).fit(ones, labels[training[fitted]]).decision_function(others)
            reached[place] += roc_auc_score(labels[training[held_out]], scores) / FOLDS
    return float(reached.max()), PENALTIES[int(reached.argmax())]


def regression(penalty: float) -> LogisticRegression:
    return LogisticRegression(C=penalty, max_iter=1000, tol=1e-3)


def judged(encode: Encode, labels: Array, training: Array, test: Array, penalty: float) -> tuple[float, int]:
    """Return the AUC on rows not trained on, and how many numbers a row gives."""
    ones, others = encode(training, test)
    scores = regression(penalty).fit(ones, labels[training]).decision_function(others)
    return float(roc_auc_score(labels[test], scores)), ones.shape[1]


def compare(frame: pd.DataFrame, labels: Array, seed: int) -> dict[str, Any]:
    """Return what one split into training and other rows says."""
    order = np.random.default_rng(seed).permutation(len(frame))
    count = min(TRAINING, len(frame) // 2)
    training, test = np.sort(order[:count]), np.sort(order[count : count + JUDGED])
    said: dict[str, Any] = {"training_rows": len(training), "judged_rows": len(test)}
    for name, splines in (("ours", False), ("ours_splines", True)):
        encode = ours(frame, splines=splines)
        penalty = cross_validated(encode, labels, training)[1]
        said[name], said[f"{name}_width"] = judged(encode, labels, training, test, penalty)
    found = [(*cross_validated(encode, labels, training), name, encode) for name, encode in rivals(frame)]
    _, penalty, name, encode = max(found, key=lambda one: one[0])
    said["rival"], said["rival_width"] = judged(encode, labels, training, test, penalty)
    said["rival_is"] = name
    return said


def measure(arguments: argparse.Namespace) -> Findings:
    findings = Findings()
    left_out = []
    began = time.perf_counter()
    for name, load in (QUICK if arguments.quick else TABLES).items():
        say(f"{name} …")
        try:
            frame, labels = load()
        except TableError as missing:
            say(str(missing))
            left_out.append(name)
            continue
        splits = 1 if arguments.quick else SPLITS if len(frame) >= 8000 else SPLITS_OF_FEW
        said = [compare(frame, labels, seed) for seed in range(splits)]
        mean = {key: float(np.mean([one[key] for one in said])) for key in ("ours", "ours_splines", "rival")}
        findings.figures[name] = {**said[0], **mean, "rival_is": sorted({one["rival_is"] for one in said})}
        findings.bar(f"{name}: gap with splines", mean["rival"] - mean["ours_splines"], at_most=LARGEST_GAP)
        if name == "default_credit payment":
            findings.bar(f"{name}: AUC with splines", mean["ours_splines"], at_least=PAYMENT_WITH_SPLINES)
            findings.bar(f"{name}: AUC without splines", mean["ours"], at_least=PAYMENT_WITHOUT)
    findings.figures["left_out"] = left_out
    findings.figures["seconds"] = time.perf_counter() - began
    return findings


if __name__ == "__main__":
    main(__doc__ or "", measure)
