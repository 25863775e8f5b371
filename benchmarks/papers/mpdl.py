"""The comparisons of multi-party dual learning on MNIST, CIFAR-10, Bank Marketing, Breast Cancer and two graphs.

Written to docs/results-mpdl.md. Every MPDL model is the product's own code, played with rows that are given. Scores of
rows that one side knows are put together from the trained parts, without the encryption that would give the same sums.
`--keep FOLDER` keeps what is done, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.form import Findings, main
from benchmarks.papers.jobs import keep_and_run, name_of, options
from benchmarks.papers.mpdl_graphs import GRAPHS as GRAPH_NAMES
from benchmarks.papers.mpdl_graphs import graph_tables, measure_graphs
from benchmarks.papers.mpdl_page import write_page
from benchmarks.papers.mpdl_world import Assembled, Rows, World, direct, ftl, make_world, played, targets_of
from colonnade import MPDL
from colonnade.datasets import BREAST_CANCER_BOUNDS
from colonnade.methods.mpdl.choice import SHARED
from colonnade.metrics import evaluate
from colonnade.session import Result

GAMMAS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
SHIP, OWN, MEAN, GRAPHS = "ship", "own_copy", "mean-fill", "graphs"
NOISE: dict[str, Any] = {"mechanism": "cell_ldp", "bounds": {"*": (0.0, 1.0)}}
NO_NOISE: dict[str, Any] = {"mechanism": "none"}
MLP_GENERATOR: dict[str, Any] = {
    "generator": "mlp",
    "generator_optimizer": "Adam",
    "generator_rate": 0.003,
    "generator_epochs": 40,
}
VARIANTS: dict[str, dict[str, Any]] = {
    SHIP: {"completion": "ship"},
    "ship, no augment": {"completion": "ship", "augment": False},
    OWN: {},
    MEAN: {"completion": "ship", "augment": False, "generator": "mean"},
    "mlp generator": {"completion": "ship", **MLP_GENERATOR},
    "dual penalty": {"completion": "ship", **MLP_GENERATOR, "dual_weight": 0.005},
    "dual penalty, conditional": {
        "completion": "ship",
        **MLP_GENERATOR,
        "dual_weight": 0.005,
        "dual_form": "gaussian_conditional",
    },
    "dual penalty, raw": {"completion": "ship", **MLP_GENERATOR, "dual_weight": 0.005, "dual_scale": "raw"},
}
EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0)
for epsilon in EPSILONS:
    VARIANTS[f"targets, epsilon {epsilon:g}"] = {"completion": "ship", **NOISE, "epsilon": epsilon}
    VARIANTS[f"all, epsilon {epsilon:g}"] = {"completion": "ship", **NOISE, "epsilon": epsilon, "dp_scope": "all"}
for name in ("lemma", "lemma_shared"):
    VARIANTS[f"{name}, epsilon 0.5"] = {
        "completion": "ship",
        **NOISE,
        "mechanism": name,
        "paper_mode": True,
        "epsilon": 0.5,
        "dp_scope": "all",
    }
CNN: dict[str, dict[str, Any]] = {
    "mnist": {"image": (1, 28, 28), "epochs": 6},
    "cifar10": {"image": (3, 32, 32), "channels": (16, 32, 32), "kernel_size": 3, "epochs": 8},
}
HIDDEN_DIRECT = 256


@dataclass(frozen=True)
class Sizes:
    """How much is measured: by data, which shares of common rows and how many seeds."""

    tables: Mapping[str, Mapping[float, int]]
    networks: Mapping[str, Mapping[float, int]]
    noise: Mapping[str, int]
    ablations: int
    graphs: tuple[str, ...] = tuple(GRAPH_NAMES)


FULL = Sizes(
    {
        "mnist": dict.fromkeys(GAMMAS, 5),
        "breast": dict.fromkeys(GAMMAS, 24),
        "breast swapped": dict.fromkeys(GAMMAS[:2], 8),
        "bank": dict.fromkeys(GAMMAS, 5),
        "cifar10": dict.fromkeys((0.05, 0.2), 5),
    },
    {"mnist": {0.2: 5}},
    {"breast": 8, "mnist": 1},
    5,
)
QUICK = Sizes({"breast": {0.1: 1}}, {}, {}, 0, graphs=())

Job = tuple[str, str, float, int]
"""What, on which data, at which share of common rows, and the seed."""


def settings(row: str, data: str, world: World) -> MPDL:
    """Return the settings of a row of a table."""
    name, _, kind = row.partition(" | ")
    own = dict(VARIANTS[name])
    if data.startswith("breast") and own.get("mechanism", "none") != "none":
        own["bounds"] = BREAST_CANCER_BOUNDS
    common: dict[str, Any] = {"folds": 0, "common_columns": world.source.common, "bounds": {"common_*": (0.0, 1.0)}}
    return MPDL(**NO_NOISE | common | (CNN[data] if kind == "cnn" else {}) | own)


def judge(job: Job) -> dict[str, Any]:
    """Train one row of a table and return what it scores, by model and by who knows a row."""
    row, data, gamma, seed = job
    if row == GRAPHS:
        return {"measured": measure_graphs((data,))[data]}
    world = make_world(data, gamma, seed)
    if row == "FTL":
        return {"a": ftl(world, seed)}
    if row == "FTL, labels on both":
        return {"a": ftl(world, seed, with_own_labels=True)}
    if row == "direct a":
        return {"a": direct(world, "a", world.shared, seed, HIDDEN_DIRECT)}
    if row == "b alone":
        return {"both": direct(world, "b", np.concatenate([world.shared, world.b_only]), seed, HIDDEN_DIRECT)}
    if row == "all real":
        return {"both": direct(world, "both", np.concatenate([world.shared, world.b_only]), seed, HIDDEN_DIRECT)}
    config = settings(row, data, world)
    results = played(world, config, seed)
    if config.dp_scope == "all":
        return noised_everywhere(results)
    model = Assembled.of(world, config, results)
    targets = targets_of(world)
    found: dict[str, Any] = {}
    for name in ("joint", "completed"):
        logits = model.logits(name, "both")
        if name == model.parts["b"].document["chosen"]:
            _check_same(logits, results["b"].scores)
        found[name] = {who: scores(model.logits(name, who), targets) for who in _situations(config)}
    found["errors"] = {party: model.inference_errors(party) for party in ("a", "b")}
    return found


def noised_everywhere(results: Mapping[str, Result]) -> dict[str, Any]:
    """Return what the product itself found where noise is on all inputs, of test rows too: parts alone cannot."""
    (found,) = [one.values for one in results["b"].findings if one.name == "situations"]
    shared = {model: {"both": {"accuracy": value}} for model, value in found[SHARED].items()}
    return {**shared, "errors": None}


def _situations(config: MPDL) -> tuple[str, ...]:
    return ("both", "a", "b") if config.image is None or config.completes_alone("feature_holder") else ("both",)


def scores(logits: torch.Tensor, targets: Rows) -> dict[str, float]:
    """Return accuracy and, for two classes, the area under the curve and balanced accuracy."""
    if logits.shape[1] > 1:
        return {"accuracy": float(np.mean(logits.argmax(dim=1).numpy() == targets))}
    values = torch.sigmoid(logits[:, 0]).double().numpy()
    decided = values >= 0.5
    balanced = float(np.mean([np.mean(decided[targets == one] == one) for one in (0, 1)]))
    found = evaluate("binary", targets, values, (0, 1))
    return {"accuracy": float(np.mean(decided == targets)), "auc": float(found.metrics["auc"]), "balanced": balanced}


def _check_same(logits: torch.Tensor, product: Any) -> None:
    """Make sure that the parts put together score as the product does."""
    if logits.shape[1] > 1:
        mine = torch.softmax(logits.double(), dim=1).numpy()
    else:
        mine = torch.sigmoid(logits[:, 0].double()).numpy()
    difference = float(np.abs(mine - product.values).max())
    if difference > 1e-3:
        raise AssertionError(f"The parts put together differ from the product's scores by {difference:.2g}.")


BASELINES = ("FTL", "direct a", "b alone", "all real")


def jobs(sizes: Sizes) -> list[Job]:
    """Return all there is to do, what is held against bars first."""
    found: list[Job] = []
    for data, seeds in sizes.tables.items():
        for gamma, count in seeds.items():
            for seed in range(count):
                rows = [SHIP, MEAN, OWN, *BASELINES]
                if data == "breast":
                    rows += ["FTL, labels on both"]
                if data == "breast" or (data, seed) == ("mnist", 0):
                    rows += ["ship, no augment"]
                found += [(row, data, gamma, seed) for row in rows]
    for data, seeds in sizes.noise.items():
        found += [(row, data, 0.1, seed) for seed in range(seeds) for row in VARIANTS if "epsilon" in row]
    found += [
        (row, "breast", 0.1, seed)
        for seed in range(sizes.ablations)
        for row in VARIANTS
        if row.startswith(("mlp", "dual penalty"))
    ]
    found += [(GRAPHS, name, 0.0, 0) for name in sizes.graphs]
    for data, seeds in sizes.networks.items():
        found += [
            (f"{row} | cnn", data, gamma, seed)
            for gamma, count in seeds.items()
            for seed in range(count)
            for row in (OWN, MEAN)
        ]
    return found


def values_of(found: Mapping[str, Any], row: str, data: str, gamma: float, where: str, what: str = "accuracy") -> Rows:
    """Return one number of all seeds of a row; ``where`` is "both", or a model and who knows a row."""
    values = []
    for name, one in found.items():
        if not name.startswith(f"{row}|{data}|{gamma}|"):
            continue
        model, _, who = where.rpartition(" ")
        value = one[model].get(who, {}) if model else one[who]
        values.append(value.get(what, np.nan) if isinstance(value, dict) else value)
    return np.array(values)


def measure(arguments: argparse.Namespace) -> Findings:
    sizes = QUICK if arguments.quick else FULL
    every = [job for job in jobs(sizes) if arguments.only in job[1]]
    found = keep_and_run(every, judge, arguments, "mpdl")
    findings = Findings()
    if arguments.only:
        return findings
    for data, seeds in sizes.tables.items():
        for gamma in seeds:
            for label, row, where in SHOWN:
                values = values_of(found, row, data, gamma, where)
                if len(values):
                    findings.figures[f"{data}, gamma {gamma:g}, {label}"] = float(values.mean())
    set_bars(findings, found, sizes)
    if not arguments.quick:
        graphs = {name: found[name_of((GRAPHS, name, 0.0, 0))]["measured"] for name in sizes.graphs}
        write_page(found, findings, sizes, values_of, graph_tables(graphs))
    return findings


SHOWN = (
    ("joint", SHIP, "joint both"),
    ("dual", SHIP, "completed both"),
    ("mean-fill", MEAN, "completed both"),
    ("b alone", "b alone", "both"),
    ("MPDL for a's rows", SHIP, "completed a"),
    ("FTL for a's rows", "FTL", "a"),
    ("direct a", "direct a", "a"),
)


def set_bars(findings: Findings, found: Mapping[str, Any], sizes: Sizes) -> None:
    """Hold what was found against what must hold."""

    def mean(data: str, gamma: float, row: str, where: str) -> float:
        return float(values_of(found, row, data, gamma, where).mean())

    for gamma in (0.05, 0.1, 0.2):
        if gamma not in sizes.tables.get("mnist", {}):
            continue
        gain = mean("mnist", gamma, SHIP, "completed both") - mean("mnist", gamma, SHIP, "joint both")
        findings.bar(f"mnist_{gamma:g}_dual_above_joint", gain, at_least=0.02)
        alone = mean("mnist", gamma, SHIP, "completed a")
        findings.bar(f"mnist_{gamma:g}_a_only_above_ftl", alone - mean("mnist", gamma, "FTL", "a"), at_least=0.005)
        findings.bar(
            f"mnist_{gamma:g}_a_only_above_direct", alone - mean("mnist", gamma, "direct a", "a"), at_least=0.02
        )
    gains = [
        mean("breast", gamma, SHIP, "completed both") - mean("breast", gamma, SHIP, "joint both")
        for gamma in (0.05, 0.1)
        if gamma in sizes.tables["breast"]
    ]
    findings.bar("breast_dual_above_joint", float(np.mean(gains)), at_least=0.01)
    for data in ("mnist", "breast"):
        for gamma in sizes.tables.get(data, {}):
            above = mean(data, gamma, SHIP, "completed both") - mean(data, gamma, MEAN, "completed both")
            findings.bar(f"{data}_{gamma:g}_dual_above_mean_fill", above, at_least=-0.005)


if __name__ == "__main__":
    main(__doc__ or "", measure, options)
