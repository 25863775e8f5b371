"""Whether transfer helped: a target's model against its own columns alone, and against one without any source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.methods.prada.bank import Bank
from colonnade.methods.prada.labels import goodness
from colonnade.nn.regression import scores_of
from colonnade.session import Finding

__all__ = ["JOINT", "LOCAL", "WITHOUT_SOURCE", "Choice", "choose_model", "local_weights"]

Numbers = npt.NDArray[np.float64]

JOINT, LOCAL, WITHOUT_SOURCE = "transfer", "local", "vfl"
_NAMES = {
    JOINT: "transfer from the source",
    LOCAL: "own columns alone",
    WITHOUT_SOURCE: "with the feature holder, without any source",
}
_DRAWS = 200


@dataclass(frozen=True)
class Choice:
    """The model that a target takes, its scores of test rows, and why."""

    model: str
    test: Numbers
    local: dict[str, Any] | None
    findings: tuple[Finding, ...]


def choose_model(bank: Bank, logits: Mapping[str, Numbers]) -> Choice:
    """Choose the transferred model, unless another is better on validation rows by more than chance explains."""
    labels, config = bank.labels, bank.config
    cut = len(bank.validation)
    found = {JOINT: labels.predicted(logits["finetune"])}
    local = None
    if config.compare != "none":
        local = _fit_local(bank)
        held = np.concatenate([bank.validation, bank.test])
        coefficients, intercept = local_weights(local)
        found[LOCAL] = (
            scores_of(labels.task, bank.columns[held] @ coefficients + intercept) if len(held) else np.empty(0)
        )
    if "vfl" in logits:
        found[WITHOUT_SOURCE] = labels.predicted(logits["vfl"])
    truth = {"validation": labels.encoded[bank.validation], "test": labels.encoded[bank.test]}
    parts = {name: {"validation": values[:cut], "test": values[cut:]} for name, values in found.items()}
    chosen, losses = JOINT, {}
    for name in found:
        if name != JOINT and cut:
            losses[name] = _loss_against(bank, parts[JOINT]["validation"], parts[name]["validation"])
    worse = {name: loss for name, (loss, deviation) in losses.items() if loss > config.margin * deviation}
    if worse:
        chosen = max(worse, key=lambda name: worse[name])
    if len(found) == 1:
        return Choice(chosen, parts[chosen]["test"], local, ())
    return Choice(chosen, parts[chosen]["test"], local, (_finding(bank, parts, truth, losses, chosen),))


def local_weights(local: Mapping[str, Any]) -> tuple[Numbers, Numbers]:
    """Return coefficients and intercept of a model of own columns alone."""
    intercept = np.array(local["intercept"], dtype=np.float64)
    return np.array(local["coefficients"], dtype=np.float64).reshape(-1, len(intercept)), intercept


def _fit_local(bank: Bank) -> dict[str, Any]:
    """Fit a linear model to the bank's own columns and labelled training rows."""
    from sklearn.linear_model import LogisticRegression, Ridge

    columns, encoded = bank.columns[bank.training], bank.labels.encoded[bank.training]
    scores = bank.labels.scores
    if not columns.shape[1]:
        if bank.labels.task == "regression":
            odds = [float(encoded.mean())]
        else:
            # Every class with one row more, so that none is impossible.
            shares = np.bincount(encoded.astype(np.int64), minlength=bank.labels.classes) + 1.0
            odds = np.log(shares / shares.sum()).tolist() if scores > 1 else [float(np.log(shares[1] / shares[0]))]
        return {"coefficients": np.zeros((0, scores)).tolist(), "intercept": odds}
    if bank.labels.task == "regression":
        fitted = Ridge(alpha=1.0).fit(columns, encoded)
        return {"coefficients": fitted.coef_.reshape(-1, 1).tolist(), "intercept": [float(fitted.intercept_)]}
    fitted = LogisticRegression(C=0.1, max_iter=2000).fit(columns, encoded.astype(np.int64))
    return {"coefficients": fitted.coef_.T.tolist(), "intercept": fitted.intercept_.tolist()}


def _loss_against(bank: Bank, joint: Numbers, other: Numbers) -> tuple[float, float]:
    """Return by how much the transferred model is worse on validation rows, and the standard deviation of that."""
    task, encoded = bank.labels.task, bank.labels.encoded[bank.validation]
    draw = np.random.default_rng(bank.session.own_seed("choice"))

    def gap(rows: npt.NDArray[np.int64]) -> float:
        return goodness(task, other[rows], encoded[rows]) - goodness(task, joint[rows], encoded[rows])

    # Within classes, so that every draw has rows of each and is judged alike.
    kinds = [np.flatnonzero(encoded == one) for one in np.unique(encoded)] if task != "regression" else []
    kinds = kinds or [np.arange(len(encoded))]
    drawn = [gap(np.concatenate([draw.choice(kind, len(kind)) for kind in kinds])) for _ in range(_DRAWS)]
    return gap(np.arange(len(encoded))), float(np.std(drawn))


def _finding(
    bank: Bank,
    parts: Mapping[str, Mapping[str, Numbers]],
    truth: Mapping[str, Numbers],
    losses: Mapping[str, tuple[float, float]],
    chosen: str,
) -> Finding:
    task = bank.labels.task
    measures = {"binary": "mean of AUC and KS", "multiclass": "log likelihood", "regression": "minus squared error"}
    rows, values = [], {}
    for name, one in parts.items():
        judged = {part: goodness(task, one[part], truth[part]) if len(truth[part]) else None for part in truth}
        deviation = losses.get(name, (0.0, 0.0))[1]
        rows.append(
            (
                _NAMES[name],
                *("" if value is None else f"{value:.3f}" for value in judged.values()),
                "" if name == JOINT else f"{deviation:.3f}",
                "used" if name == chosen else "",
            )
        )
        values[name] = judged | {"deviation": deviation}
    if not len(truth["validation"]):
        text = "There are no labelled validation rows, so that transfer could not be held against anything: it is used."
    else:
        text = (
            f"Transfer is used unless it loses against another model, on validation rows, by more than "
            f"{bank.config.margin:g} standard deviations of the difference."
        )
    return Finding(
        name="transfer",
        title="Whether transfer helped",
        text=text,
        columns=("model", f"validation: {measures[task]}", "test", "deviation of the difference", ""),
        rows=tuple(rows),
        values=values | {"chosen": chosen},
    )
