"""Bank marketing: 41188 telephone calls of a Portuguese bank from 2008 to 2010, 4640 of which sold a term deposit.

S. Moro, P. Cortez and P. Rita, 2014; UCI Machine Learning Repository (2012), CC BY 4.0. The columns fall into two
natural sides: who the client is (the bank), and how and when the client was called (the campaign). An older file of the
same bank, with 16 columns of 45211 calls and 5289 sales, is the one of the paper on multi-party dual learning.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from colonnade.datasets.files import data_file
from colonnade.errors import ConfigError, did_you_mean

__all__ = ["BANK_FULL_BOUNDS", "BANK_FULL_LEVELS", "bank_full", "bank_marketing"]

_FILE = "bank_marketing/bank_additional_full.parquet"
_ORIGIN = "archive.ics.uci.edu/dataset/222 (bank-additional-full.csv saved as Parquet)"
_SIDES = {
    "bank": ("age", "job", "marital", "education", "default", "housing", "loan"),
    "campaign": (
        *("contact", "month", "day_of_week", "campaign", "pdays", "previous", "poutcome"),
        *("emp.var.rate", "cons.price.idx", "cons.conf.idx", "euribor3m", "nr.employed"),
    ),
}

_FULL_FILE = "bank_marketing/bank_full.parquet"
_FULL_ORIGIN = "archive.ics.uci.edu/dataset/222 (bank-full.csv saved as Parquet)"
_BITS = ("default", "housing", "loan")

BANK_FULL_BOUNDS = {
    "age": (18.0, 100.0),
    "balance": (-2000.0, 20000.0),
    "day": (1.0, 31.0),
    "duration": (0.0, 1800.0),
    "campaign": (1.0, 20.0),
    "pdays": (-1.0, 400.0),
    "previous": (0.0, 20.0),
    **dict.fromkeys(_BITS, (0.0, 1.0)),
}
"""Bounds of the numbers of `bank_full` to clip at, by judgement and not from the data: less than 1 % of a column lies
outside. In euros, days, and seconds up to half an hour."""

BANK_FULL_LEVELS = {
    "job": (
        *("admin.", "blue-collar", "entrepreneur", "housemaid", "management", "retired", "self-employed"),
        *("services", "student", "technician", "unemployed", "unknown"),
    ),
    "marital": ("divorced", "married", "single"),
    "education": ("primary", "secondary", "tertiary", "unknown"),
    "contact": ("cellular", "telephone", "unknown"),
    "month": ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    "poutcome": ("failure", "other", "success", "unknown"),
}
"""The categories of `bank_full`, as its description lists them."""


def bank_marketing(*, label_at: str = "bank") -> dict[str, pd.DataFrame]:
    """Return the tables of the bank (7 columns of the client) and of the campaign (12 columns of the call), all calls.

    Both carry the call's `id`; the side `label_at` also carries the label `y`, `yes` where the client bought. Left out
    is `duration`: it is known only once the call is over, and a call that lasts gives the answer away. `pdays` is 999
    for clients who had not been called before.
    """
    if label_at not in _SIDES:
        raise ConfigError(f"There is no side '{label_at}' to carry the label. {did_you_mean(label_at, _SIDES)}")
    everyone = pd.read_parquet(data_file(_FILE, _ORIGIN))
    everyone.insert(0, "id", range(1, len(everyone) + 1))
    return {side: everyone[["id", *columns, *(["y"] if side == label_at else [])]] for side, columns in _SIDES.items()}


def bank_full(*, seed: int = 0, coded: bool = False, label_at: str = "b") -> dict[str, pd.DataFrame]:
    """Return the tables of parties `a` and `b`, 8 columns each of the older file's 16, assigned at random by `seed`.

    So does the paper on multi-party dual learning, anew in each trial. Both carry the call's `id`; the party `label_at`
    also carries the label `y`, `yes` where the client bought. `default`, `housing` and `loan` are 0 and 1. With `coded`
    there are 48 columns from 0 to 1 in all: numbers clipped to `BANK_FULL_BOUNDS` and scaled, and one column for each
    of `BANK_FULL_LEVELS`, named such as `job=student`. As in the paper, `duration` is among the columns, although it is
    known only once the call is over.
    """
    if label_at not in ("a", "b"):
        raise ConfigError(f"There is no party '{label_at}' to carry the label. {did_you_mean(label_at, ('a', 'b'))}")
    everyone = pd.read_parquet(data_file(_FULL_FILE, _FULL_ORIGIN))
    everyone = everyone.assign(**{bit: (everyone[bit] == "yes").astype("int64") for bit in _BITS})
    attributes = everyone.columns.drop("y").to_numpy()
    is_first = np.random.default_rng(seed).permutation(len(attributes)) < len(attributes) // 2
    tables = {}
    for party, names in (("a", attributes[is_first]), ("b", attributes[~is_first])):
        table = _coded(everyone[names]) if coded else everyone[list(names)].copy()
        table.insert(0, "id", range(1, len(table) + 1))
        if party == label_at:
            table["y"] = everyone["y"]
        tables[party] = table
    return tables


def _coded(table: pd.DataFrame) -> pd.DataFrame:
    """Return all columns as numbers from 0 to 1."""
    columns = {}
    for name in table.columns:
        if name in BANK_FULL_BOUNDS:
            low, high = BANK_FULL_BOUNDS[name]
            columns[name] = ((table[name] - low) / (high - low)).clip(0.0, 1.0)
        else:
            columns |= {f"{name}={level}": (table[name] == level).astype("float64") for level in BANK_FULL_LEVELS[name]}
    return pd.DataFrame(columns)
