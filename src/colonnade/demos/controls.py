"""What a demo's verdict is about, read off finished runs, and what their model is held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from colonnade.data import LabelEncoder, PartyTable
from colonnade.demos.demo import Control, Demo, Figures, Measured, Tables, tables_of
from colonnade.launch.run import Run
from colonnade.metrics import Evaluation, evaluate, headline, interval, proportion_interval

__all__ = [
    "already_trained",
    "by_who_knows",
    "north_alone",
    "nothing_removed",
    "of_headline",
    "of_later",
    "other_run",
    "plain_model",
    "with_reading",
]

# What the verdict is about


def of_headline(runs: Mapping[str, Run]) -> Figures:
    """Read off what the run's own headline is about."""
    return _main(runs["train"].evaluation)


def _main(evaluation: Evaluation | None) -> Figures:
    name = "" if evaluation is None else headline(evaluation.task)
    if evaluation is None or name not in evaluation.metrics:
        return {}
    low, high = interval(evaluation, name) or (0.0, 0.0)
    spoken = {"auc": "AUC", "r2": "R²"}.get(name, name.replace("_", " "))
    return {spoken: Measured(evaluation.metrics[name], (high - low) / 2.0)}


def by_who_knows(runs: Mapping[str, Run]) -> Figures:
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


def with_reading(runs: Mapping[str, Run]) -> Figures:
    """Beside the headline, how well sensitive attributes are read from what the parties exchange."""
    read = runs["audit"].findings["fairness"].values["attributes"]
    return of_headline(runs) | {f"{name} as read": Measured(one["read"]) for name, one in read.items()}


def of_later(demo: Demo, runs: Mapping[str, Run]) -> Figures:
    """Score people who came later, as `colonnade predict` does, and hold that against how it went."""
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


def already_trained(name: str) -> Control:
    """Take what the run has trained for comparison already."""
    return lambda demo, runs, tables: _main(runs["train"].evaluations.get(name))


def plain_model(*parties: str) -> Control:
    """Train the better of a regression and a forest on some parties' columns."""

    def train(demo: Demo, runs: Mapping[str, Run], tables: Tables) -> Figures:
        from colonnade.launch.baselines import judge_plain

        later = None if demo.later is None else tables_of(demo, demo.later())
        return _main(judge_plain(runs["train"].plan, tables, parties, later))

    return train


def other_run(
    method: str,
    *,
    changes: Mapping[str, Any] | None = None,
    measure: Callable[[Mapping[str, Run]], Figures] = of_headline,
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
            config=config_to_json(validated(own.config, config, "config")),
        )
        parties = {party: Party(tables[party]) for party in own.parties_with_rows(other)}
        return measure({"train": simulate_plan(other, parties)})

    return train


def nothing_removed(demo: Demo, runs: Mapping[str, Run], tables: Tables) -> Figures:
    """Train FairVFL as a plain vertical model; what is read from such a one, the audit has found out."""
    plain = {"removal": "paper", "removal_weight": 0.0, "removal_weights": {}}
    read = runs["audit"].findings["fairness"].values["attributes"]
    return other_run("fairvfl", changes=plain)(demo, runs, tables) | {
        f"{name} as read": Measured(one["plain"]) for name, one in read.items()
    }


def north_alone(demo: Demo, runs: Mapping[str, Run], tables: Tables) -> Figures:
    """Train on north's columns, which say the same of a patient whether south knows it or not."""
    from colonnade.launch.baselines import judge_plain

    accuracy = judge_plain(runs["train"].plan, tables, ("north",)).metrics["accuracy"]
    return {f"accuracy, {who}": Measured(accuracy) for who in ("both know", "north only")}
