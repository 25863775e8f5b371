"""What `colonnade demo` shows: for every method tables at hand, and what its model is held against."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from colonnade.data import PartyTable
from colonnade.datasets import (
    BREAST_CANCER_BOUNDS,
    TOWN_GROUPS,
    breast_cancer,
    breast_cancer_hospitals,
    digits_few_shared,
    town_attributes,
    town_labels_elsewhere,
    town_later,
    town_sister_banks,
)
from colonnade.launch.run import Run
from colonnade.metrics import Evaluation, evaluate, headline, interval, proportion_interval

__all__ = [
    "DEMOS",
    "Demo",
    "Figures",
    "first_line",
    "judge_controls",
    "rows_to_score",
    "tables_of",
    "verdict",
    "write_demo",
]

Tables = Mapping[str, PartyTable]


class Measured(NamedTuple):
    """A number, and how far it may be off by the chance that fell on these rows; 0 where that is not known."""

    value: float
    reach: float = 0.0


Figures = dict[str, Measured]
"""How good a model is, by what is measured."""
Control = Callable[["Demo", Mapping[str, Run], Tables], Figures]
"""Trains what a model is held against: from the demo, its runs by stage, and all parties' tables."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """A method's tables, the parties' agreement, and what its model is held against on the same held-out rows."""

    method: str
    name: str
    """Of the run."""
    about: str
    """Who does what with whom, in one sentence."""
    data: str
    """Where the tables come from, in one sentence."""
    tables: Callable[[], dict[str, pd.DataFrame]]
    roles: Mapping[str, str | list[str]]
    id: str
    labels: Mapping[str, str]
    """By party, the column to predict."""
    later: Callable[[], dict[str, pd.DataFrame]] | None = None
    """People who came later, with the label that only the demo knows; by them the model is judged, where it is given
    few held-out rows."""
    files: Mapping[str, str] = field(default_factory=dict)
    """By party, the name of its file where it is not `customers.csv`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the method's defaults."""
    because: str = ""
    """Why it does."""
    evaluate: Mapping[str, float]
    note: str = ""
    """What is to be said first, on screen."""
    stages: tuple[str, ...] = ("train",)
    compares: bool = False
    """Whether the run itself trains the label holder's columns alone, and all columns in one place."""
    measure: Callable[[Mapping[str, Run]], Figures]
    """Reads off the finished runs what the verdict is about."""
    controls: Mapping[str, Control]
    """By what it is in words."""
    ceilings: tuple[str, ...] = ()
    """Controls that need what no party would give, so that the model need not win against them."""
    lower_is_better: tuple[str, ...] = ()
    """Measures of which less is better."""
    costs: tuple[str, ...] = ()
    """Measures of which the method gives something up for the others."""

    @property
    def parties(self) -> tuple[str, ...]:
        """Return all parties in the order of roles."""
        return tuple(party for given in self.roles.values() for party in ([given] if isinstance(given, str) else given))

    def file_of(self, party: str) -> str:
        """Return the name of a party's file."""
        return self.files.get(party, "customers.csv")


# What the verdict is about


def _headline(runs: Mapping[str, Run]) -> Figures:
    return _main(runs["train"].evaluation)


def _main(evaluation: Evaluation | None) -> Figures:
    name = "" if evaluation is None else headline(evaluation.task)
    if evaluation is None or name not in evaluation.metrics:
        return {}
    low, high = interval(evaluation, name) or (0.0, 0.0)
    spoken = {"auc": "AUC", "r2": "R²"}.get(name, name.replace("_", " "))
    return {spoken: Measured(evaluation.metrics[name], (high - low) / 2.0)}


def _by_who_knows(runs: Mapping[str, Run]) -> Figures:
    """Of rows that all know, and of rows that one party alone knows, how many the model that serves gets right."""
    run = runs["train"]
    found, chosen = run.findings["situations"].values, run.findings["comparison"].values["chosen"]
    figures = {}
    for who, models in found.items():
        value = models[chosen if who == "shared" else "completed"]
        low, high = proportion_interval(value, run.rows["test"])
        spoken = "both know" if who == "shared" else f"{who} only"
        figures[f"accuracy, {spoken}"] = Measured(value, (high - low) / 2.0)
    return figures


def _with_reading(runs: Mapping[str, Run]) -> Figures:
    read = runs["audit"].findings["fairness"].values["attributes"]
    return _headline(runs) | {f"{name} as read": Measured(one["read"]) for name, one in read.items()}


def _of_later(demo: Demo, runs: Mapping[str, Run]) -> Figures:
    """Score people who came later, as `colonnade predict` does, and hold that against how it went."""
    from colonnade.data import LabelEncoder

    if demo.later is None:
        return {}
    run, frames = runs["train"], demo.later()
    ((judge, label),) = ((party, column) for party, column in demo.labels.items() if party in frames)
    scored = run.predict(
        {
            party: PartyTable(frame.drop(columns=label, errors="ignore"), id=demo.id, name=party)
            for party, frame in frames.items()
        }
    )
    classes = LabelEncoder.from_json(run.parts[judge].document["label_encoder"]).classes
    went = frames[judge].set_index(demo.id)[label][scored[demo.id]].to_numpy()
    scores = scored.select_dtypes("float").iloc[:, 0].to_numpy()
    return _main(evaluate("binary", (went == classes[1]).astype(int), scores, classes))


# What it is held against


def _evaluated(name: str) -> Control:
    """Take what the run has trained for comparison already."""
    return lambda demo, runs, tables: _main(runs["train"].evaluations.get(name))


def _plain(*parties: str) -> Control:
    """Train the better of a regression and a forest on some parties' columns."""

    def train(demo: Demo, runs: Mapping[str, Run], tables: Tables) -> Figures:
        from colonnade.launch.baselines import judge_plain

        later = None if demo.later is None else tables_of(demo, demo.later())
        return _main(judge_plain(runs["train"].plan, tables, parties, later))

    return train


def _instead(
    method: str,
    *,
    changes: Mapping[str, Any] | None = None,
    roles: Mapping[str, tuple[str, ...]] | None = None,
    measure: Callable[[Mapping[str, Run]], Figures] = _headline,
) -> Control:
    """Train another method, or the same with other settings, on the same tables and shared rows, in this process."""

    def train(demo: Demo, runs: Mapping[str, Run], tables: Tables) -> Figures:
        from colonnade.launch.simulation import simulate_plan
        from colonnade.methods import method_named
        from colonnade.session import Party
        from colonnade.settings import config_to_json, validated

        plan, own = runs["train"].plan, method_named(method)
        config = {**(plan.config if method == plan.method else {}), **(changes or {})}
        other = replace(
            plan,
            method=method,
            roles=plan.roles if roles is None else roles,
            config=config_to_json(validated(own.config, config, "config")),
        )
        parties = {party: Party(tables[party]) for party in own.parties_with_rows(other)}
        return measure({"train": simulate_plan(other, parties)})

    return train


def _nothing_removed(demo: Demo, runs: Mapping[str, Run], tables: Tables) -> Figures:
    """Train FairVFL as a plain vertical model; what is read from such a one, the audit has found out."""
    plain = {"removal": "paper", "removal_weight": 0.0, "removal_weights": {}}
    read = runs["audit"].findings["fairness"].values["attributes"]
    return _instead("fairvfl", changes=plain)(demo, runs, tables) | {
        f"{name} as read": Measured(one["plain"]) for name, one in read.items()
    }


def _north_alone(demo: Demo, runs: Mapping[str, Run], tables: Tables) -> Figures:
    """Train on north's columns, which say the same of a patient whether south knows it or not."""
    from colonnade.launch.baselines import judge_plain

    accuracy = judge_plain(runs["train"].plan, tables, ("north",)).metrics["accuracy"]
    return {f"accuracy, {who}": Measured(accuracy) for who in ("both know", "north only")}


_MADE_UP = "The people are made up, by a seed (colonnade.datasets.town_people)."
_FEW_TO_LEARN_FROM = {"test_fraction": 0.8, "validation_fraction": 0.1}
"""Few shared rows to learn from are the point; that the others are held out lets the comparison mean something."""
_PATIENTS = "The patients are those of scikit-learn's breast cancer data."
_IN_THE_CLEAR = (
    'This demo sets protection = "none", so that it takes seconds: what the default encrypts crosses in the clear.'
)

DEMOS: Mapping[str, Demo] = {
    one.method: one
    for one in (
        Demo(
            method="splitnn",
            name="breast-cancer",
            about="A hospital with diagnoses and a laboratory with measurements train one model; neither sees the "
            "other's table.",
            data=_PATIENTS,
            tables=breast_cancer,
            roles={"label_holder": "hospital", "feature_holder": "laboratory"},
            id="patient",
            labels={"hospital": "diagnosis"},
            files={"hospital": "patients.csv", "laboratory": "measurements.csv"},
            evaluate={"test_fraction": 0.25, "validation_fraction": 0.1},
            compares=True,
            measure=_headline,
            controls={"the hospital alone": _evaluated("alone"), "all columns in one place": _evaluated("central")},
            ceilings=("all columns in one place",),
        ),
        Demo(
            method="secure_lr",
            name="breast-cancer-encrypted",
            about="A hospital with diagnoses and a laboratory with measurements train one regression; what crosses is "
            "encrypted or masked.",
            data=_PATIENTS,
            tables=breast_cancer,
            roles={"label_holder": "hospital", "feature_holder": "laboratory"},
            id="patient",
            labels={"hospital": "diagnosis"},
            files={"hospital": "patients.csv", "laboratory": "measurements.csv"},
            evaluate={"test_fraction": 0.25, "validation_fraction": 0.1},
            compares=True,
            measure=_headline,
            controls={"the hospital alone": _evaluated("alone"), "all columns in one place": _evaluated("central")},
            ceilings=("all columns in one place",),
        ),
        Demo(
            method="fedcvt",
            name="few-shared",
            about="Two archives keep the left and the right halves of handwritten numerals. Few of them have both "
            "halves in common; both learn from those that only one of them has, too.",
            data="The numerals are scikit-learn's digits.",
            tables=digits_few_shared,
            roles={"label_holder": "left", "feature_holder": "right"},
            id="id",
            labels={"left": "digit"},
            files={"left": "halves.csv", "right": "halves.csv"},
            evaluate=_FEW_TO_LEARN_FROM,
            measure=_headline,
            controls={
                "the left archive alone, with all its rows": _plain("left"),
                "splitnn on the shared rows": _instead("splitnn"),
            },
        ),
        Demo(
            method="mpdl",
            name="two-hospitals",
            about="Two hospitals measure different things of few of the same patients, and each learns to generate "
            "what the other would have measured; an institute without a table helps.",
            data=_PATIENTS,
            tables=breast_cancer_hospitals,
            roles={"label_holder": "north", "feature_holder": "south", "collaborator": "institute"},
            id="patient",
            labels={"north": "diagnosis"},
            files={"north": "patients.csv", "south": "patients.csv"},
            settings={"bounds": {name: list(pair) for name, pair in BREAST_CANCER_BOUNDS.items()}},
            because="How large each measurement can be: from what is known about it, never from the tables.",
            evaluate={"test_fraction": 0.7, "validation_fraction": 0.0},
            measure=_by_who_knows,
            controls={
                "means filled in for what is not known": _instead(
                    "mpdl", changes={"generator": "mean"}, measure=_by_who_knows
                ),
                "north alone, with all its rows": _north_alone,
            },
        ),
        Demo(
            method="ftl",
            name="labels-elsewhere",
            about="A bank knows who paid back, a shop has no label at all, and few people are customers of both: the "
            "bank's labels score the shop's customers.",
            data=_MADE_UP,
            tables=town_labels_elsewhere,
            roles={"source": "bank", "target": "shop"},
            id="customer",
            labels={"bank": "paid_back"},
            settings={"protection": "none"},
            because="So that this takes seconds; the default encrypts.",
            note=_IN_THE_CLEAR,
            evaluate=_FEW_TO_LEARN_FROM,
            measure=_headline,
            controls={"the shop's columns and the labels of the shared rows": _plain("shop")},
        ),
        Demo(
            method="prada",
            name="sister-bank",
            about="A new bank knows of few customers who paid back; its sister bank knows it of many, who are other "
            "people; a data company has rich columns of all.",
            data=_MADE_UP,
            tables=town_sister_banks,
            roles={"target": "bank", "source": "sister", "feature_holder": "data"},
            id="customer",
            labels={"bank": "paid_back", "sister": "paid_back"},
            files={"data": "people.csv"},
            settings={"protection": "none", "groups": TOWN_GROUPS},
            because="So that this takes seconds; the default encrypts. Groups are the company's columns by subject.",
            note=_IN_THE_CLEAR,
            evaluate={"test_fraction": 0.1, "validation_fraction": 0.1},
            later=town_later,
            measure=_headline,
            controls={
                "the bank alone": _plain("bank"),
                "without the sister: the columns of bank and company, the bank's labels": _plain("bank", "data"),
            },
        ),
        Demo(
            method="fairvfl",
            name="fair-loans",
            about="An employer, a shop and a bank predict who pays back, from a code that shall not tell gender, which "
            "only a registry knows; a server without a table makes the code.",
            data=_MADE_UP,
            tables=town_attributes,
            roles={
                "label_holder": "bank",
                "feature_holder": ["employer", "shop"],
                "aggregator": "server",
                "attribute_holder": "registry",
            },
            id="customer",
            labels={"bank": "paid_back"},
            files=dict.fromkeys(("employer", "shop", "registry"), "people.csv"),
            settings={"attributes": ["gender"]},
            because="The sensitive column, wherever it is.",
            evaluate={"test_fraction": 0.25, "validation_fraction": 0.15},
            stages=("train", "audit"),
            measure=_with_reading,
            controls={"the same with nothing removed": _nothing_removed},
            lower_is_better=("gender as read",),
            costs=("AUC",),
        ),
    )
}


# Files, as real parties would have them

_NEW = "new.csv"


def write_demo(folder: Path, demo: Demo) -> None:
    """Write the parties' homes and the agreed run."""
    frames, later = demo.tables(), {} if demo.later is None else demo.later()
    for party in demo.parties:
        home = folder / party
        home.mkdir(parents=True, exist_ok=True)
        (home / "party.toml").write_text(_party_file(demo, party, frames.get(party)), encoding="utf-8")
        if party in frames:
            frames[party].to_csv(home / demo.file_of(party), index=False)
        if party in later:
            later[party].drop(columns=demo.labels.get(party, []), errors="ignore").to_csv(home / _NEW, index=False)
    (folder / "run.toml").write_text(_run_file(demo), encoding="utf-8")


def rows_to_score(folder: Path, demo: Demo) -> dict[str, Path]:
    """Return by party a file of rows to score: new ones where the demo has some, else those of the training."""
    return {
        party: folder / party / (demo.file_of(party) if demo.later is None else _NEW)
        for party in (demo.tables if demo.later is None else demo.later)()
    }


def first_line(demo: Demo) -> str:
    """Return the line that `run.toml` begins with, by which a demo's folder is known again."""
    return f"# What {_listed(demo.parties)} agreed on. All hold the same copy of this file."


def _run_file(demo: Demo) -> str:
    roles = ", ".join(f"{role} = {json.dumps(given)}" for role, given in demo.roles.items())
    config = {name: value for name, value in demo.settings.items() if not isinstance(value, Mapping)}
    tables = {name: value for name, value in demo.settings.items() if isinstance(value, Mapping)}
    return "\n".join(
        [
            first_line(demo),
            "[run]",
            f"name = {json.dumps(demo.name)}",
            f"method = {json.dumps(demo.method)}",
            f"roles = {{ {roles} }}",
            "seed = 7",
            "",
            f"# Every setting has a default: 'colonnade methods {demo.method}' lists them.",
            *([f"# {demo.because}"] if demo.because else []),
            "[config]",
            *(f"{name} = {json.dumps(value)}" for name, value in config.items()),
            *(
                line
                for name, value in tables.items()
                for line in (
                    "",
                    f"[config.{name}]",
                    *(f"{json.dumps(key)} = {json.dumps(one)}" for key, one in value.items()),
                )
            ),
            "",
            "[evaluate]",
            *(f"{name} = {value}" for name, value in demo.evaluate.items()),
            "",
        ]
    )


def _party_file(demo: Demo, party: str, frame: pd.DataFrame | None) -> str:
    lines = [f"# The {party}'s own file. It never leaves the {party}.", "[party]", f"name = {json.dumps(party)}", ""]
    if frame is not None:
        lines += ["[table]", f"source = {json.dumps(demo.file_of(party))}", f"id = {json.dumps(demo.id)}"]
        if party in demo.labels:
            lines.append(f"label = {json.dumps(demo.labels[party])}")
            lines += ["unlabelled = true"] if frame[demo.labels[party]].isna().any() else []
        lines.append("")
    partners = [one for one in demo.parties if one != party]
    lines += ["[policy]", f"methods = {json.dumps([demo.method])}", f"partners = {json.dumps(partners)}"]
    lines += [] if frame is None else ["minimum_shared_rows = 100"]
    return "\n".join([*lines, ""])


def tables_of(demo: Demo, frames: Mapping[str, pd.DataFrame]) -> dict[str, PartyTable]:
    """Return the tables as the homes' files say they are to be read."""
    return {
        party: PartyTable(
            frame,
            id=demo.id,
            label=demo.labels.get(party),
            unlabelled=party in demo.labels and bool(frame[demo.labels[party]].isna().any()),
            name=party,
        )
        for party, frame in frames.items()
    }


# The verdict


def judge_controls(demo: Demo, runs: Mapping[str, Run], tables: Tables) -> dict[str, Figures]:
    """Train what the model is held against, and return what all of them come to, the model that serves first."""
    own = demo.measure(runs) if demo.later is None else _of_later(demo, runs)
    return {_served(runs["train"]): own} | {
        words: control(demo, runs, tables) for words, control in demo.controls.items()
    }


def _served(run: Run) -> str:
    return {"together": "the federated model", "alone": "own columns alone"}.get(run.served, f"the {run.served}")


def verdict(demo: Demo, found: Mapping[str, Figures]) -> tuple[str, ...]:
    """Say of every measure whether the model that serves is ahead of the best of what it is held against."""
    (model, figures), *others = found.items()
    said = []
    for what, own in figures.items():
        sign = -1.0 if what in demo.lower_is_better else 1.0
        rivals = {name: one[what] for name, one in others if what in one and name not in demo.ceilings}
        if not rivals:
            said.append(f"{what} {own.value:.3f}: nothing else scores these rows.")
            continue
        best = max(rivals, key=lambda name: sign * rivals[name].value)
        lead = round(sign * (own.value - rivals[best].value), 3)
        reach = max(own.reach, rivals[best].reach)
        doubt = f" By chance alone each number may be {reach:.3f} off." if abs(lead) < reach else ""
        if lead > 0.0 and what in demo.lower_is_better:
            said.append(f"{what}: {lead:.3f} less from {model} than from {best}.{doubt}")
        elif lead > 0.0:
            said.append(f"{what}: {model} is {lead:.3f} better than {best}.{doubt}")
        elif what in demo.costs:
            said.append(f"{what}: {-lead:.3f} less than {best}, which is the price.{doubt}")
        else:
            said.append(
                f"{what}: {demo.method} does not win here: {best} is "
                f"{f'{-lead:.3f} better' if lead else 'as good'}.{doubt}"
            )
    return tuple(said)


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
