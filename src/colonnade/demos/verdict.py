"""Whether the model that serves is better than what it is held against."""

from __future__ import annotations

from collections.abc import Mapping

from colonnade.demos.controls import of_later
from colonnade.demos.demo import Demo, Figures, Tables
from colonnade.launch.run import Run

__all__ = ["judge_controls", "verdict"]


def judge_controls(demo: Demo, runs: Mapping[str, Run], tables: Tables) -> dict[str, Figures]:
    """Train what the model is held against, and return what all of them come to, the model that serves first."""
    own = demo.measure(runs) if demo.later is None else of_later(demo, runs)
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
