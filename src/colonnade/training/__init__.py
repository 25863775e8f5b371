"""The spine: what every method gets, so that a method is its paper and nothing else."""

from colonnade.training.alone import Alone
from colonnade.training.choice import Choice, choose, row_losses
from colonnade.training.inputs import Inputs, differences_of
from colonnade.training.inspection import InspectedColumn, InspectedLabel, Inspection, described, inspect_table
from colonnade.training.joined import JoinedRegression
from colonnade.training.kept import Kept, Leaf
from colonnade.training.scoring import (
    ModelToScore,
    Served,
    Serving,
    TrainedModel,
    agree_on_model,
    asked_model,
    in_parts,
    parts_of,
)
from colonnade.training.steps import Budget, Patience, Plateau, Seen, Step, StopRule, Verdict, Waits, steps, wait

__all__ = [
    "Alone",
    "Budget",
    "Choice",
    "Inputs",
    "InspectedColumn",
    "InspectedLabel",
    "Inspection",
    "JoinedRegression",
    "Kept",
    "Leaf",
    "ModelToScore",
    "Patience",
    "Plateau",
    "Seen",
    "Served",
    "Serving",
    "Step",
    "StopRule",
    "TrainedModel",
    "Verdict",
    "Waits",
    "agree_on_model",
    "asked_model",
    "choose",
    "described",
    "differences_of",
    "in_parts",
    "inspect_table",
    "parts_of",
    "row_losses",
    "steps",
    "wait",
]
