"""What secure_lr gives away of columns and of labels, with its guards and without, and what the guards cost.

Two parties, the bank with the labels and the shop with columns only, run `simulate` with integers in place of
ciphertexts; everything else is the product's.

Columns: a curious bank looks for two-valued columns of the shop in what the shop's columns add to rows' scores in each
epoch: independent components and random directions, rounded and projected on their span. It knows no row, and, but with
default settings, steps at random, so that every opening is another one. Played with default settings, with as many
openings as half the rank of the columns, with one more, and with more epochs than the rank and no direction left out,
where it must succeed or its failing elsewhere would say nothing. Numbers have no two values, so breast cancer's are cut
at their medians. A table has at most eight columns before encoding: of all of breast cancer's, which resemble each
other, the attack finds few with as many epochs either, as a figure shows.

Labels: rows of the shop have a category of their own. The unchanged shop has no coefficient of it. A shop with another
encoder has, and gives the category's column any value; the AUC is of coefficients as scores of the rows' labels.

Cost: held-out AUC of default settings against `CONTROL`, on the same draws of rows.

Data but breast cancer from COLONNADE_DATA; what is missing there is left out and named. `--quick` plays breast cancer
only, once, with noise that repeats. Otherwise noise is secret, so figures under it differ from one time to the next.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.unit.methods.secure_lr.worlds import (
    columns_found,
    encode_otherwise,
    seen_contributions,
    steps_at_random,
    sums_by_name,
)
from tests.worlds import integers_for_ciphertexts, the_same_secrets

import colonnade as cn
from benchmarks.form import Findings, main, say
from colonnade.alignment import align_in_one_place
from colonnade.datasets import adult, bank_marketing, breast_cancer, default_credit
from colonnade.errors import LeakRefused, TableError
from colonnade.metrics import area_under_roc
from colonnade.nn import regression
from colonnade.session import derive_seed
from colonnade.training import Inputs

SEED = 7
# Without guards.
CONTROL: dict[str, Any] = {"epochs": 8}
CONTROL |= {"minimum_support": 0, "coefficient_noise": 0.0, "allow_leak": True}
MOST_LOST = 0.01
LEAST_SHARE = 1 / 3
# Of the attack on columns.
MOST_COLUMNS, STARTS = 8, 300
# With the usual one as many categories as an encoder gives a column of their own.
PER_COLUMN = 49

Frames = tuple[pd.DataFrame, pd.DataFrame]
"""The bank's and the shop's columns by id; the bank's label is `y`."""


def patients() -> Frames:
    found = breast_cancer(hospital_rows=569, laboratory_rows=569)
    return _frames(found["hospital"], found["laboratory"], "diagnosis", "patient")


def cut_patients() -> Frames:
    own, other = patients()
    return own, (other > other.median()).astype(float)


def census() -> Frames:
    frame = adult()
    own = ["workclass", "education", "education_num", "occupation", "hours_per_week", "income"]
    other = ["age", "marital_status", "relationship", "race", "gender", "capital_gain", "capital_loss"]
    return _frames(frame[["id", *own]], frame[["id", *other]], "income")


def profiles() -> Frames:
    found = default_credit(label_at="payment")
    return _frames(found["payment"], found["profile"], "default")


def payments() -> Frames:
    found = default_credit(label_at="profile")
    return _frames(found["profile"], found["payment"], "default")


def campaign() -> Frames:
    found = bank_marketing(label_at="bank")
    return _frames(found["bank"], found["campaign"], "y")


def _frames(own: pd.DataFrame, other: pd.DataFrame, label: str, identifier: str = "id") -> Frames:
    own = own.rename(columns={label: "y"}).set_index(identifier)
    return own, other.set_index(identifier).loc[own.index]


Sources = dict[str, Callable[[], Frames]]
OF_COLUMNS: Sources = {"breast_cancer cut": cut_patients, "adult": census, "default_credit profile": profiles}
OF_LABELS: Sources = {"breast_cancer": patients, "adult": census, "default_credit": payments}
OF_COST: Sources = {"breast_cancer": patients, "adult": census, "default_credit": payments, "bank_marketing": campaign}


def loaded(findings: Findings, sources: Sources, quick: bool) -> dict[str, Frames]:
    """Load the data sets that are there, in the quick form the first, and name those that are not."""
    found = {}
    for name, source in list(sources.items())[: 1 if quick else None]:
        try:
            found[name] = source()
        except TableError as missing:
            say(f"{name} is left out. {missing}")
            findings.figures[f"{name}: left out"] = str(missing)
    return found


def drawn(frames: Frames, rows: int, seed: int) -> Frames:
    places = np.random.default_rng(seed).choice(len(frames[0]), min(rows, len(frames[0])), replace=False)
    return frames[0].iloc[places], frames[1].iloc[places]


def tables_of(frames: Frames) -> dict[str, cn.PartyTable]:
    own, other = (one.rename_axis("id").reset_index() for one in frames)
    return {"bank": cn.PartyTable(own, id="id", label="y"), "shop": cn.PartyTable(other, id="id")}


def trained(tables: dict[str, cn.PartyTable], seed: int, **settings: Any) -> cn.Run:
    config = cn.SecureLR(key_size="insecure_test", **settings)
    with integers_for_ciphertexts():
        return cn.simulate(config, tables, seed=seed, evaluate=cn.Evaluate(stratify=False))


# --- columns


def attacked(tables: dict[str, cn.PartyTable], starts: int, **settings: Any) -> tuple[int, int, cn.Run]:
    """Train, and return how many of the shop's two-valued columns the bank finds, of how many."""
    with seen_contributions() as seen, nullcontext() if not settings else steps_at_random():
        run = trained(tables, SEED, **settings)
    lead, seed = run.method.leader_of(run.plan), derive_seed(SEED, "alignment")
    places = align_in_one_place(tables, lead, run.plan.alignment, seed)["shop"].positions
    columns = Inputs.from_json(run.parts["shop"].document["inputs"]).transform(tables["shop"], places, dtype=np.float64)
    two_valued = sum(len(np.unique(column)) == 2 for column in columns.T)
    return columns_found(np.hstack(seen), columns, starts), two_valued, run


def measure_columns(findings: Findings, name: str, frames: Frames, tables: int, starts: int) -> None:
    """Count the columns found, over so many tables, all but the first of columns drawn at random."""
    counts: dict[str, list[tuple[int, int]]] = {}
    ranks, refused = [], 0
    generator = np.random.default_rng(0)
    names = list(frames[1].columns)
    most = min(len(names), MOST_COLUMNS)
    for draw in range(tables):
        say(f"columns of {name}, table {draw + 1} …")
        kept = names[:most] if draw == 0 else list(generator.permutation(names)[: generator.integers(2, most)])
        brought = tables_of(drawn((frames[0], frames[1][kept]), 2000, draw))
        try:
            found, two_valued, run = attacked(brought, starts)
        except LeakRefused:
            refused += 1
            continue
        counts.setdefault("default settings", []).append((found, two_valued))
        rank = run.parts["shop"].document["contributions"]["rank"]
        ranks.append(rank)
        for what, epochs in (("half the rank", rank // 2), ("one above half", rank // 2 + 1), ("epochs = rank", rank)):
            if epochs:
                changes: dict[str, Any] = {"epochs": epochs, "allow_leak": what != "half the rank"}
                if what == "epochs = rank":
                    # No direction is left out, so that all columns lie in the span of what is opened.
                    changes |= {"epochs": 2 * most, "minimum_support": 0, "coefficient_noise": 0.0}
                with pytest.MonkeyPatch.context() as patch:
                    if what == "epochs = rank":
                        # Nor is anything cut off that can be encrypted.
                        patch.setattr(regression, "LARGEST", 7.9)
                    found, two_valued, _ = attacked(brought, starts, **changes)
                counts.setdefault(what, []).append((found, two_valued))
    findings.figures[f"{name}: tables, refused by default"] = f"{tables}, {refused}"
    findings.figures[f"{name}: ranks"] = " ".join(map(str, sorted(ranks)))
    for what, pairs in counts.items():
        found, two_valued = (sum(column) for column in zip(*pairs, strict=True))
        findings.figures[f"{name}: columns found, {what}"] = f"{found} of {two_valued}"
        if what in ("default settings", "half the rank"):
            findings.bar(f"{name}: columns found, {what}", found, at_most=0, at_any_size=True)
        elif what == "epochs = rank":
            findings.bar(f"{name}: share found, {what}", found / two_valued, at_least=LEAST_SHARE, at_any_size=True)


# --- labels


def measure_labels(findings: Findings, name: str, frames: Frames, draws: int, values: tuple[int, ...]) -> None:
    """Read labels from coefficients of categories that one row has."""
    readable = targets = 0
    areas: dict[str, list[float]] = {}
    for draw in range(draws):
        say(f"labels of {name}, draw {draw + 1} …")
        tables, truth = with_own_categories(drawn(frames, 1000, draw))
        readable += len(truth.keys() & trained(tables, draw).coefficients["shop"].keys())
        for value in values:
            for what, noise in (("without noise", 0.0), ("with noise", 1.0)):
                with pytest.MonkeyPatch.context() as patch:
                    encode_otherwise(patch, value)
                    found = sums_by_name(trained(tables, draw, coefficient_noise=noise).parts["shop"])
                aimed = [one for one in found if one in truth]
                area = area_under_roc(np.array([truth[one] for one in aimed]), np.array([found[one] for one in aimed]))
                areas.setdefault(f"value {value}, {what}", []).append(area)
        targets += len(aimed)
    findings.figures[f"{name}: rows aimed at, {draws} draws"] = targets
    findings.bar(f"{name}: columns to read, unchanged shop", readable, at_most=0, at_any_size=True)
    for what, each in areas.items():
        if what.endswith("without noise"):
            findings.bar(f"{name}: label AUC, {what}", float(np.mean(each)), at_least=0.99, at_any_size=True)
        elif what == "value 1, with noise":
            findings.bar(f"{name}: label AUC, {what}", float(np.mean(each)), at_most=0.85, at_any_size=True)
        else:
            findings.figures[f"{name}: label AUC, {what}"] = float(np.mean(each))
        findings.figures[f"{name}: label AUC, {what}, single draws"] = f"{min(each):.2f} to {max(each):.2f}"


def with_own_categories(frames: Frames) -> tuple[dict[str, cn.PartyTable], dict[str, bool]]:
    """Give rows of the shop a category of their own, and return whether the row of each is positive."""
    own, shop = frames[0], frames[1].copy()
    is_positive, truth = own["y"] == np.unique(own["y"])[1], {}
    for number in range(3):
        values = np.full(len(shop), "usual", dtype=object)
        for row in range(PER_COLUMN * number, PER_COLUMN * (number + 1)):
            values[row] = f"x{row}"
            truth[f"branch{number}=x{row}"] = bool(is_positive.iloc[row])
        shop[f"branch{number}"] = values
    return tables_of((own, shop)), truth


# --- cost


def measure_cost(findings: Findings, name: str, frames: Frames, rows: int, draws: int) -> None:
    """Compare the held-out AUC of default settings with the control's."""
    pairs = []
    for draw in range(draws):
        say(f"cost for {name}, {rows} rows, draw {draw + 1} …")
        tables = tables_of(drawn(frames, rows, draw))
        pairs.append([trained(tables, draw, **settings).metrics["auc"] for settings in (CONTROL, {})])
    control, default = np.array(pairs).T
    what = f"{name}, {min(rows, len(frames[0]))} rows"
    findings.figures |= {
        f"{what}: draws": draws,
        f"{what}: AUC of the control": float(control.mean()),
        f"{what}: AUC of default settings": float(default.mean()),
        f"{what}: standard error of the loss": float((control - default).std(ddof=1) / np.sqrt(draws)),
    }
    findings.bar(f"{what}: mean loss", float((control - default).mean()), at_most=MOST_LOST, at_any_size=True)


def measure(arguments: argparse.Namespace) -> Findings:
    torch.set_num_threads(1)
    with the_same_secrets() if arguments.quick else nullcontext():
        return _measure(arguments.quick)


def _measure(quick: bool) -> Findings:
    findings = Findings(figures={"load_average": os.getloadavg()[0]})
    for name, frames in loaded(findings, OF_COLUMNS, quick).items():
        measure_columns(findings, name, frames, *((1, STARTS) if quick else (6, STARTS)))
    if not quick:
        own, other = cut_patients()
        found, two_valued, _ = attacked(tables_of((own, other)), STARTS, epochs=other.shape[1], allow_leak=True)
        findings.figures["breast_cancer cut: all columns, epochs = columns"] = f"{found} of {two_valued}"
    for name, frames in loaded(findings, OF_LABELS, quick).items():
        measure_labels(findings, name, frames, draws=1 if quick else 5, values=(1,) if quick else (1, 4, 16))
    for name, frames in loaded(findings, OF_COST, quick).items():
        for rows, draws in ((1000, 1),) if quick else ((1000, 24), (5000, 6)):
            if rows == 1000 or len(frames[0]) > 1000:
                measure_cost(findings, name, frames, rows, draws)
    return findings


if __name__ == "__main__":
    main(__doc__ or "", measure)
