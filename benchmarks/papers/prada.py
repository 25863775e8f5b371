"""The PrADA paper's tables on Census-Income (KDD) and a stand-in for its loan data, written to docs/results-prada.md.

Every model that is called PrADA, and its ablations, is the product's own code with ``protection = "none"``; one setting
is trained with encryption beside it and must come out the same. Rows to validate and test on are fixed; a seed draws
labelled rows, source rows and initial weights. `--keep FOLDER` keeps what is done, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.form import Findings, main
from benchmarks.papers.jobs import keep_and_run, name_of, options
from benchmarks.papers.prada_page import write_page
from benchmarks.papers.prada_world import (
    CENSUS,
    CREDIT,
    MADE_UP,
    SOURCE,
    TARGET,
    Rows,
    World,
    as_one,
    census_world,
    credit_world,
    made_up_world,
    parts_of,
    play_stage,
)
from colonnade import PrADA
from colonnade.metrics import area_under_roc, widest_gap
from colonnade.session import Finding, Result

WORLDS: Mapping[str, tuple[Callable[[int, int], World], dict[str, Any]]] = {
    "census": (census_world, {**CENSUS, "novelties": 3, "fine_epochs": 12}),
    "credit": (credit_world, {**CREDIT, "fine_epochs": 5}),
    "made up": (made_up_world, {**MADE_UP, "fine_epochs": 2, "epochs": 1}),
}
# The paper's Table 2: widths of the extractors' layers.
TABLE_2 = {
    "emp": (56, 28, 14),
    "demo": (50, 25, 12),
    "migr": (86, 56, 18),
    "house": (54, 27, 13),
    "emp-demo": (78, 53, 15),
    "emp-migr": (120, 84, 20),
    "emp-house": (81, 55, 15),
    "demo-migr": (120, 81, 20),
    "demo-house": (78, 52, 15),
    "migr-house": (120, 83, 20),
}
COMMON: dict[str, Any] = {"protection": "none", "pictures": False, "secret_start": False, "defence": "none"}
VARIANTS: dict[str, dict[str, Any]] = {
    "PrADA": {},
    "PrADA, default defence": {"defence": "marvell"},
    "no adversarial step": {"adaptation": False},
    # Fewer inputs allow fewer epochs beside new categories; smaller batches make up for the steps.
    "no interactions": {"interactions": False, "fine_epochs": 6, "fine_batch_size": 128},
    "no groups, no interactions": {"interactions": False, "grouped": False, "fine_epochs": 3, "fine_batch_size": 64},
    "discriminators only": {"domain_weight": 0.0},
}
FEW = ("the paper's settings", "discriminators only")
NETWORK: dict[str, Any] = {
    "adaptation": False,
    "grouped": False,
    "interactions": False,
    "tune": "all",
    "tune_rate": 3e-3,
    "novelties": 0,
}
# The target's few rows need more epochs, until the best on validation rows.
EPOCHS = {"A": {"fine_epochs": 40, "fine_patience": 8}, "AB": {"fine_epochs": 6, "fine_patience": 2}}


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    worlds: tuple[str, ...] = ("census", "credit")
    """The first is held against bars."""
    positives: tuple[int, ...] = (40, 80, 160)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    credit_seeds: tuple[int, ...] = (0, 1, 2)
    few: tuple[int, ...] = (0,)
    """Seeds of what takes long and is not compared in its details."""

    def seeds_of(self, world: str, row: str = "") -> tuple[int, ...]:
        """Return the seeds of a row of a table; none where it has no such row."""
        if row in FEW or row == "PrADA, default defence":
            return () if world == "credit" else self.few if row in FEW else self.seeds
        return self.seeds if world == self.worlds[0] and row != "AB-VFL network" else self.credit_seeds


QUICK = Sizes(worlds=("made up",), positives=(12,), seeds=(0,), credit_seeds=(0,))


def settings(world: str, **changes: Any) -> PrADA:
    return PrADA(**{**WORLDS[world][1], **COMMON, **changes})


def judged(truth: np.ndarray, scores: np.ndarray) -> list[float]:
    """Return AUC and KS in per cent."""
    is_positive = truth == 1
    return [100 * area_under_roc(is_positive, scores), 100 * widest_gap(is_positive, scores)]


def judged_result(result: Result) -> list[float]:
    scores = result.scores
    return judged(np.asarray(scores.truth), scores.values)


def finding_of(results: Mapping[str, Result], name: str) -> Finding | None:
    return next((one for result in results.values() for one in result.findings if one.name == name), None)


def adapted(world: str, variant: str, seed: int, positives: tuple[int, ...]) -> dict[str, Any]:
    """Pre-train once, fine-tune for every number of positives, and judge on the target's test rows."""
    make, _ = WORLDS[world]
    if variant == "the paper's settings":
        plain = {name: value for name, value in WORLDS[world][1].items() if name not in ("novelties", "fine_epochs")}
        more = {"widths": TABLE_2} if world == "census" else {}
        config = PrADA.paper(**plain, **COMMON, **more, tie_unseen=False, novelties=0)
    else:
        config = settings(world, **VARIANTS[variant])
    lines: dict[str, list[dict[str, Any]]] = {}
    before = play_stage(make(seed, positives[0]), config, "pretrain", seed=seed, lines=lines)
    found: dict[str, Any] = {"scores": {}, "domain_accuracy": [], "chosen": {}}
    for line in lines["company"]:
        if "domain_accuracy" in line:
            found["domain_accuracy"].append(line["domain_accuracy"])
    for name in ("domains", "label protection"):
        one = finding_of(before, name)
        found[name] = None if one is None else dict(one.values)
    for count in positives:
        after = play_stage(make(seed, count), config, "finetune", seed=seed, parts=parts_of(before), banks=(TARGET,))
        transfer = finding_of(after, "transfer")
        found["scores"][str(count)] = judged_result(after[TARGET])
        found["chosen"][str(count)] = None if transfer is None else transfer.values["chosen"]
    return found


def network(world: str, banks: str, seed: int, positives: int) -> dict[str, list[float]]:
    """Judge one network on all of the company's columns that learns from the target's labels, or from both banks'."""
    made = WORLDS[world][0](seed, positives)
    made = as_one(made) if banks == "AB" else World(made.company, {TARGET: made.banks[TARGET]}, made.rows)
    config = settings(world, **NETWORK, **EPOCHS[banks], compare="none")
    return {"scores": judged_result(play_stage(made, config, "train", seed=seed, banks=(TARGET,))[TARGET])}


def rivals(world: str, seed: int, positives: tuple[int, ...]) -> dict[str, dict[str, list[float]]]:
    """Judge regressions and trees, by number of positives."""
    from benchmarks.papers.prada_rivals import Joined, continued, regression, trees

    made = {count: Joined(WORLDS[world][0](seed, count)) for count in positives}
    # The same source rows for every number, so that its trees are grown once.
    handed, scores_of_handed = trees(made[positives[0]], [SOURCE], company=True)
    found = {}
    for count, joined in made.items():
        both = [TARGET, SOURCE]
        scores = {
            "A-Local LR": regression(joined, [TARGET], company=False),
            "A-Local XGBoost": trees(joined, [TARGET], company=False)[1],
            "A-VFL LR": regression(joined, [TARGET], company=True),
            "A-VFL XGBoost": trees(joined, [TARGET], company=True)[1],
            "AB-VFL LR": regression(joined, both, company=True),
            "AB-VFL XGBoost": trees(joined, both, company=True)[1],
            "source's XGBoost": scores_of_handed,
            "source's XGBoost, continued": continued(joined, handed),
        }
        truth = joined.labels(TARGET, "test")
        found[str(count)] = {name: judged(truth, values) for name, values in scores.items()}
    return found


def equality(name: str, seed: int, positives: int, batches: int = 20) -> dict[str, float]:
    """Train with and without encryption on a part of the rows, and return the largest difference of a parameter."""
    world = WORLDS[name][0](seed, positives)
    few = {
        bank: Rows(rows.train[: 64 * batches], rows.validation[:50], rows.test[:50])
        for bank, rows in world.rows.items()
    }
    labelled = np.flatnonzero(world.banks[TARGET].is_labelled)
    ids = world.banks[TARGET].ids[labelled]
    few[TARGET] = Rows(np.intersect1d(world.rows[TARGET].train, ids)[:600], few[TARGET].validation, few[TARGET].test)
    small = World(world.company, world.banks, few)
    found = {}
    for protection in ("none", "paillier"):
        more = {"precision": "float64", "batch_size": 64, "epochs": 1, "fine_epochs": 2, "compare": "none"}
        config = settings(name, **more | {"protection": protection})
        found[protection] = play_stage(small, config, "train", seed=seed)
    clear, sealed = (parts_of(found[one]) for one in ("none", "paillier"))
    own = [
        float((clear[party].tensors[name] - sealed[party].tensors[name]).abs().max())
        for party in clear
        for name in clear[party].tensors
        if clear[party].tensors[name].is_floating_point() and clear[party].tensors[name].numel()
    ]
    shared = []
    for party in (SOURCE, TARGET):
        for phase, state in clear[party].document["heads"].items():
            shares = [
                sealed[party].document["heads"][phase],
                sealed["company"].document["banks"][party]["heads"][phase],
            ]
            whole = np.array(
                [sum(int(one) for one in pair) for pair in zip(*(one["share"] for one in shares), strict=True)]
            )
            shared.append(float(np.abs(whole.astype(float) / 2.0**48 - np.array(state["weights"]).reshape(-1)).max()))
    return {"networks_and_own_weights": max(own), "shared_weights": max(shared)}


def pictures(of: str, seed: int, positives: int) -> dict[str, Any]:
    """Return what the figures show: representations with and without adaptation, and an explanation."""
    world = WORLDS[of][0](seed, positives)
    found: dict[str, Any] = {}
    for name, changes in (("adapted", {}), ("not adapted", {"adaptation": False})):
        config = settings(of, pictures=True, explanations=True, **changes)
        before = play_stage(world, config, "pretrain", seed=seed)
        domains = finding_of(before, "domains")
        found[name] = [{"title": one.title, **one.values} for one in domains.figures]
        if name == "adapted":
            after = play_stage(world, config, "finetune", seed=seed, parts=parts_of(before), banks=(TARGET,))
            told = play_stage(world, config, "explain", seed=seed, parts=parts_of(after), banks=(TARGET,))
            found["explanation"] = [dict(one.values) for one in finding_of(told, "explanation").figures]
    return found


STUDIES: dict[str, Callable[..., Any]] = {
    "adapted": adapted,
    "network": network,
    "rivals": rivals,
    "equality": equality,
    "pictures": pictures,
}


def jobs(sizes: Sizes) -> list[tuple[Any, ...]]:
    """Return all there is to do, the longest first."""
    found: list[tuple[Any, ...]] = []
    for world in sizes.worlds:
        for variant in ("the paper's settings", *VARIANTS):
            found += [("adapted", world, variant, seed, sizes.positives) for seed in sizes.seeds_of(world, variant)]
    for world in sizes.worlds:
        found += [("rivals", world, seed, sizes.positives) for seed in sizes.seeds_of(world)]
        for banks in ("AB", "A"):
            seeds = sizes.seeds_of(world, f"{banks}-VFL network")
            found += [("network", world, banks, seed, count) for seed in seeds for count in sizes.positives]
    return [*once(sizes).values(), *found]


def once(sizes: Sizes) -> dict[str, tuple[Any, ...]]:
    """Return what is done once, by name: with the fewest positives, and with the most."""
    few, *_, many = (*sizes.positives, sizes.positives[-1])
    return {"equality": ("equality", sizes.worlds[0], 0, few), "pictures": ("pictures", sizes.worlds[0], 0, many)}


def judge(job: tuple[Any, ...]) -> dict[str, Any]:
    """Do one of the jobs."""
    found: dict[str, Any] = STUDIES[job[0]](*job[1:])
    return found


def mean_of(found: Mapping[str, Any], world: str, variant: str, count: int, sizes: Sizes) -> np.ndarray:
    names = [name_of(("adapted", world, variant, seed, sizes.positives)) for seed in sizes.seeds_of(world, variant)]
    every = [found[name]["scores"][str(count)] for name in names]
    return np.mean(every, axis=0)


def measure(arguments: argparse.Namespace) -> Findings:
    sizes = QUICK if arguments.quick else Sizes()
    every = [job for job in jobs(sizes) if arguments.only in job[1]]
    found = keep_and_run(every, judge, arguments, "prada")
    findings = Findings()
    if arguments.only:
        return findings
    world, fewest = sizes.worlds[0], sizes.positives[0]
    for count in sizes.positives:
        auc, ks = mean_of(found, world, "PrADA", count, sizes)
        findings.bar(f"{world}_{count}_auc", float(auc), at_least=82.5)
        findings.bar(f"{world}_{count}_ks", float(ks), at_least=49.5)
        auc, ks = mean_of(found, world, "PrADA, default defence", count, sizes)
        findings.figures |= {f"{world}_{count}_auc_defended": float(auc), f"{world}_{count}_ks_defended": float(ks)}
    network_auc = np.mean([found[name_of(("network", world, "A", seed, fewest))]["scores"][0] for seed in sizes.seeds])
    gain = mean_of(found, world, "PrADA", fewest, sizes)[0] - network_auc
    findings.bar(f"{world}_{fewest}_above_network_without_source", float(gain), at_least=4.0)
    first = ("adapted", world, "discriminators only", sizes.few[0], sizes.positives)
    findings.bar("discriminator_accuracy_at_lambda_0", found[name_of(first)]["domain_accuracy"][-1], at_least=0.55)
    undefended, defended = (
        found[name_of(("adapted", world, variant, sizes.seeds[0], sizes.positives))]["label protection"]
        for variant in ("PrADA", "PrADA, default defence")
    )
    findings.bar("label_attack_undefended", undefended["without_noise"], at_least=0.99)
    findings.bar("label_attack_with_marvell", defended["of_one_release"], at_most=0.5 + 0.25 - 0.031 + 0.03)
    equal = found[name_of(once(sizes)["equality"])]
    for name in ("networks_and_own_weights", "shared_weights"):
        findings.bar(f"encrypted_against_clear_{name}", equal[name], at_most=1e-6, at_any_size=True)
    if not arguments.quick:
        write_page(found, findings, sizes, name_of, once(sizes))
    return findings


if __name__ == "__main__":
    main(__doc__ or "", measure, options)
