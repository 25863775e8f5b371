"""Which model serves which rows: the best of all candidates on validation rows, situation by situation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colonnade.exchanges.holdings import first_seeds
from colonnade.exchanges.labels import OwnLabels
from colonnade.methods.fedcvt.config import FEDCVT, LOCAL, FedCVT
from colonnade.methods.fedcvt.networks import build_encoders, check_module, codes_of, scored_codes
from colonnade.methods.fedcvt.objective import build_heads
from colonnade.methods.fedcvt.open_cut import make_learner
from colonnade.methods.fedcvt.rows import Batches, OwnTable
from colonnade.methods.fedcvt.watch import PseudoLabelWatch
from colonnade.metrics import area_under_roc
from colonnade.nn import row_losses
from colonnade.nn.regression import scores_of
from colonnade.privacy import RowBudget
from colonnade.session import Figure, Finding, Holding, Session

__all__ = ["Chosen", "Way", "Ways", "budget_finding", "choose", "goodness", "local_ways"]

Numbers = npt.NDArray[np.float64]
Ways = dict[str, tuple[str, torch.Tensor, torch.Tensor]]
"""By name of a way to score: the model, and its outputs for validation and test rows."""

# Names that fit beside a bar.
_SHORT = {
    "fedcvt": "FedCVT",
    "fedcvt, its own head": "own head",
    "vanilla": "split network",
    "wide": "wide split network",
    "mean_fill": "means filled in",
    "mftl": "mFTL",
    "ftl": "FTL",
    LOCAL: "own columns",
}
_MEASURES = {"binary": "AUC", "multiclass": "accuracy", "regression": "R²"}


@dataclass(frozen=True)
class Way:
    """How rows of one situation are scored."""

    name: str
    model: str


@dataclass(frozen=True)
class Chosen:
    """The way for every situation, the scores of test rows that all parties know, and what to tell about it."""

    ways: dict[str, Way]
    test: Numbers
    findings: tuple[Finding, ...]


def goodness(task: str, outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return how well rows are predicted: AUC of two classes, accuracy of more, the explained share of numbers."""
    if not len(targets):
        return 0.0
    predicted = scores_of(task, outputs.double().numpy())
    truth = targets.double().numpy()
    if task == "multiclass":
        return float(np.mean(predicted.argmax(axis=1) == truth))
    if task == "regression":
        spread = float(np.mean((truth - truth.mean()) ** 2))
        return 1.0 - float(np.mean((predicted - truth) ** 2)) / spread if spread else 0.0
    is_positive = truth > 0.5
    if is_positive.all() or not is_positive.any():
        return float(np.mean((predicted >= 0.5) == is_positive))
    return area_under_roc(is_positive, predicted)


def choose(
    config: FedCVT,
    table: OwnTable,
    labels: OwnLabels,
    ways: Mapping[str, Ways],
    sides: Mapping[str, Any],
) -> Chosen:
    """Take for every situation what did best on validation rows; the first of equals, so FedCVT where it is one."""
    validation, test = (labels.targets[torch.from_numpy(rows)] for rows in (table.validation, table.test))
    chosen: dict[str, Way] = {}
    rows: list[tuple[str, ...]] = []
    values: dict[str, dict[str, Any]] = {}
    for situation, found in ways.items():
        if not found:
            continue
        judged = {way: goodness(labels.task, outputs, validation) for way, (_, outputs, _) in found.items()}
        best = max(judged, key=lambda way: judged[way]) if len(validation) else next(iter(found))
        chosen[situation] = Way(best, found[best][0])
        for way, (_, _, outputs) in found.items():
            on_test = goodness(labels.task, outputs, test) if len(test) else None
            rows.append(
                (
                    _situation(situation),
                    _spoken(way),
                    f"{judged[way]:.3f}" if len(validation) else "",
                    "" if on_test is None else f"{on_test:.3f}",
                    "used" if way == best else "",
                )
            )
            values.setdefault(situation, {})[way] = {"validation": judged[way], "test": on_test, "used": way == best}
    measure = _MEASURES[labels.task]
    text = (
        f"By {measure}, on shared rows that were held out; for a situation with one party only, the other parties' "
        "columns of these rows were not used. In each situation the best on validation rows is used."
    )
    if not len(validation):
        text = "There are no validation rows, so that nothing could be compared: the first model is used."
    drawn = [
        (f"{_whose(situation)}{', used' if one['used'] else ''}: {_SHORT.get(way, way)}", one["test"])
        for situation, found in values.items()
        for way, one in found.items()
        if one["test"] is not None
    ]
    figure = Figure(
        kind="bars",
        title=f"Test {measure}, by who knows a row and how it is scored",
        values={"names": [name for name, _ in drawn], "lengths": [length for _, length in drawn]},
    )
    situations = Finding(
        name="situations",
        title="Who knows a row, and how well it is scored",
        text=text,
        columns=("rows known to", "scored by", f"validation {measure}", f"test {measure}", ""),
        rows=tuple(rows),
        values={"measure": measure, **values},
        figures=(figure,) if drawn else (),
    )
    logits = ways["shared"][chosen["shared"].name][2].double().numpy()
    scores = scores_of(labels.task, logits) if len(logits) else np.empty(0)
    findings = [situations]
    if FEDCVT in sides and config.variant(FEDCVT).uses_partner_rows:
        findings.append(_pseudo_labels(config, sides[FEDCVT].watch))
    return Chosen(chosen, scores, tuple(findings))


def local_ways(
    session: Session, holding: Holding, config: FedCVT, table: OwnTable, labels: OwnLabels, steps: int
) -> tuple[dict[str, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Train on this party's columns and all its labelled rows alone; nothing crosses."""
    variant, seed = config.variant(LOCAL), first_seeds(session, config.secret_start)
    encoders = build_encoders(config, variant, session.party, table.features.shape[1], seed, holding.module)
    check_module(config, encoders, session.party, table.features)
    heads = build_heads(config, variant, 1, labels.outputs, seed("local/heads"))
    learner = make_learner(config, {"encoders": encoders, "heads": heads})
    rows = np.concatenate([table.train, table.own])
    batches = Batches(rows, config.own_batch_size, lambda epoch: seed("local batches", epoch))
    held, targets = torch.from_numpy(table.validation), labels.targets
    best, waited = None, 0
    for epoch in range(config.epochs):
        for step in range(max(steps, batches.per_pass)):
            batch = torch.from_numpy(batches.at(epoch, step))
            learner.zero_gradients()
            codes = codes_of(encoders, table.features[batch])
            loss = row_losses(labels.task, heads["joint"](codes["shared"]), targets[batch]).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            if config.gradient_clip:
                learner.clip_gradients(config.gradient_clip)
            learner.step()
        session.show("the label holder alone", epoch + 1, config.epochs)
        if not len(held) or not config.patience:
            continue
        with torch.no_grad():
            outputs = heads["joint"](scored_codes(encoders, table.features[held])["shared"])
            found = row_losses(labels.task, outputs, targets[held]).mean().item()
        if best is None or found < best:
            best, waited = found, 0
            learner.keep_best()
        else:
            waited += 1
            if waited >= config.patience:
                break
    learner.restore_best()
    with torch.no_grad():
        outputs = [
            heads["joint"](scored_codes(encoders, table.features[torch.from_numpy(one)])["shared"])
            for one in (table.validation, table.test)
        ]
    return learner.weights(), (outputs[0], outputs[1])


def budget_finding(session: Session, config: FedCVT, sides: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Say what a row's releases with noise add up to, over all candidates together."""
    counts = [side.sender.budget.releases for side in sides.values() if getattr(side, "sender", None) is not None]
    if not counts or not (config.is_noised or config.sealed_pull == "one_sided"):
        return ()
    total = np.zeros(max(map(len, counts)), dtype=np.int64)
    for one in counts:
        total[: len(one)] += one
    budget = RowBudget(config.clip, config.clip * config.noise)
    budget.load_state({"releases": torch.from_numpy(total)})
    epsilon = budget.epsilon(config.delta)
    return (
        Finding(
            name="privacy budget",
            title="What codes with noise add up to",
            text=f"A row's codes were clipped to norm {config.clip:g} and got noise of standard deviation "
            f"{config.clip * config.noise:g}. The row released most often was released {budget.most} times: epsilon "
            f"{epsilon:.1f} at delta {config.delta:g}, against another row in its place, if other rows' codes tell "
            "nothing about it. Scoring releases more.",
            values={"epsilon": epsilon, "delta": config.delta, "releases": budget.most, "party": session.party},
        ),
    )


def _pseudo_labels(config: FedCVT, watch: PseudoLabelWatch) -> Finding:
    history, last = watch.history, watch.final_precision()
    rows = tuple(
        (
            str(one["epoch"]),
            f"{one['kept']:.3f}" if "kept" in one else "",
            f"{one['precision']:.3f}" if "precision" in one else "",
            {"precision": "too few were right", "one class": "one class took over"}.get(one["off"], ""),
        )
        for one in history
    )
    rule = f"all classifiers agree and are surer than {config.threshold:g}"
    if watch.is_of_numbers:
        rule = f"all predictions are within {config.agreement:g} standard deviations of each other"
    judged = "Precision is estimated on validation rows, treated as if only the partner knew them."
    if config.is_sealed:
        found = "could not be, as too few got one" if last is None else f"is {last:.3f}"
        judged = (
            "Precision was estimated once, after training, on validation rows treated as if only the partner knew "
            f"them: it {found}."
        )
    return Finding(
        name="pseudo-labels",
        title="Labels given to rows that only a partner knows",
        text=f"A row gets a label where {rule}. {judged}",
        columns=("epoch", "share of rows kept", "estimated precision", "switched off after it because"),
        rows=rows,
        values={"epochs": history, "final_precision": last},
    )


def _whose(situation: str) -> str:
    return "all" if situation == "shared" else situation


def _situation(situation: str) -> str:
    if situation == "shared":
        return "all parties"
    return f"{situation} only"


def _spoken(way: str) -> str:
    names = {
        "fedcvt": "FedCVT",
        "fedcvt, its own head": "FedCVT, that party's own head",
        "vanilla": "split network on shared rows",
        "wide": "split network on shared rows, double width",
        "mean_fill": "split network, missing columns at their mean",
        "mftl": "multi-party FTL",
        "ftl": "FTL, from the partner's columns",
        LOCAL: "own columns alone",
    }
    return names.get(way, way)
