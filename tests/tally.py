"""A toy method with a role that holds no table: others each tell it numbers, and it tells one of them the sums."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pytest
import torch

import colonnade as cn
from colonnade.messages import PLAIN, Between, message
from colonnade.methods import METHODS
from colonnade.session import Holding, Method, ModelPart, Result, Role, Scores, Session, Stage
from tests.parties import with_policies

ROLES = {"label_holder": "bank", "feature_holder": "shop", "collaborator": "helper"}
HERE = Path(__file__).parent.parent
Number = Annotated[float, Between(0, 10_000)]


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How many numbers are told."""

    rounds: int = 3


@message(sender="label_holder", receiver="collaborator", protection=PLAIN, step="tell")
class LabelNumber:
    """A number of the label holder. Reveals: the number."""

    value: Number


@message(sender="feature_holder", receiver="collaborator", protection=PLAIN, step="tell")
class FeatureNumber:
    """A number of the feature holder. Reveals: the number."""

    value: Number


@message(sender="collaborator", receiver="label_holder", protection=PLAIN, step="answer")
class Sum:
    """All numbers together. Reveals: the sum of the others."""

    value: Number


def label_holder(session: Session, holding: Holding, config: Tally) -> Result:
    """Learn the sums, and score rows by its first column and them."""
    helper, total = session.channel("collaborator"), _total(session)
    for _ in range(session.step, config.rounds):
        session.next_step()
        helper.send(LabelNumber(float(session.own_seed("number", session.step) % 1000)))
        total += helper.receive(Sum).value
        session.checkpoint(_part(holding, total))
    table, labels = holding.table, holding.table.labels
    places = np.arange(len(holding.aligned)) if session.stage == "predict" else holding.split.test
    positions = holding.aligned.positions[places]
    column = table.values(table.columns[0].name).astype(float)
    values = 1.0 / (1.0 + np.exp((np.nanmean(column) - column[positions]) / np.nanstd(column)))
    part = holding.part or _part(holding, total)
    classes = tuple(part.document["classes"])
    truth = None if labels is None else (labels[positions] == classes[1]).astype(int)
    return Result(part, Scores("binary", places, values, truth, classes))


def feature_holder(session: Session, holding: Holding, config: Tally) -> Result:
    """Tell its numbers."""
    total = _total(session)
    for _ in range(session.step, config.rounds):
        session.next_step()
        number = float(session.own_seed("number", session.step) % 1000)
        session.channel("collaborator").send(FeatureNumber(number))
        total += number
        session.checkpoint(_part(holding, total))
    return Result(holding.part or _part(holding, total))


def collaborator(session: Session, holding: Holding, config: Tally) -> Result:
    """Add up, with nothing of its own."""
    asking, others = session.channel("label_holder"), session.channels("feature_holder")
    for _ in range(session.step, config.rounds):
        session.next_step()
        asking.send(Sum(asking.receive(LabelNumber).value + sum(one.receive(FeatureNumber).value for one in others)))
        session.checkpoint(_part(holding, 0.0))
    return Result()


def _total(session: Session) -> float:
    return 0.0 if session.resumed is None else float(session.resumed.tensors["total"])


def _part(holding: Holding, total: float) -> ModelPart:
    table = holding.table
    classes = [] if table.labels is None else sorted(set(table.labels.tolist()))
    types = {one.name: one.kind for one in table.columns}
    return ModelPart({"total": torch.tensor(total)}, {"classes": classes, "types": types})


_MESSAGES = (LabelNumber, FeatureNumber, Sum)
_STAGE = {"label_holder": label_holder, "feature_holder": feature_holder, "collaborator": collaborator}

METHOD = Method(
    name="tally",
    title="Tally",
    citation="nobody",
    situation="tests",
    config=Tally,
    roles=(
        Role("label_holder", "the labels", has_label=True),
        Role("feature_holder", "columns", at_most=None),
        Role("collaborator", "nothing: it adds up", has_rows=False),
    ),
    lead="label_holder",
    stages={
        "train": Stage(roles=_STAGE, messages=_MESSAGES, makes_model=True),
        "predict": Stage(roles=_STAGE, messages=_MESSAGES, scores=True),
    },
)


def install(patch: pytest.MonkeyPatch, method: Method = METHOD) -> None:
    """Put the toy among the methods, for the length of a test."""
    patch.setattr("colonnade.methods.METHODS", (*METHODS, method))


def install_in_processes(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Put the toy among the methods here, and of every Python process that this one starts."""
    install(patch)
    lines = ("import colonnade.methods, tests.tally", "colonnade.methods.METHODS += (tests.tally.METHOD,)")
    # Every Python process imports a module of this name, if there is one, before anything else.
    (folder / "sitecustomize.py").write_text("\n".join(lines))
    patch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{HERE}", prepend=os.pathsep)


def frames(rows: int = 120) -> dict[str, pd.DataFrame]:
    """Return tables that share some rows: one with a label, one without."""
    random = np.random.default_rng(3)
    bank = pd.DataFrame({"id": [f"row-{one}" for one in range(rows)], "age": random.normal(40, 9, rows)})
    bank["left"] = np.where(bank["age"] + random.normal(0, 5, rows) > 40, "yes", "no")
    shop = pd.DataFrame({"id": [f"row-{one}" for one in range(20, rows + 30)], "spent": random.normal(size=rows + 10)})
    return {"bank": bank, "shop": shop}


def tables(rows: int = 120) -> dict[str, cn.PartyTable]:
    """Return the same as tables of parties."""
    made = frames(rows)
    return {
        "bank": cn.PartyTable(made["bank"], id="id", label="left", name="bank"),
        "shop": cn.PartyTable(made["shop"], id="id", name="shop"),
    }


def simulate(**options: Any) -> cn.Run:
    """Carry out a run of the toy."""
    options = {"roles": ROLES, "seed": 5, "launch": cn.Launch(keep_views=True), **options}
    brought = with_policies(options.pop("tables", None) or tables(), options.pop("policies", {}))
    return cn.simulate(options.pop("config", Tally()), brought, **options)
