"""Vertical federated learning: every organisation keeps its columns, together they carry one model.

Public names are loaded when first used, so that the command answers at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "FTL": "colonnade.methods.ftl",
    "MPDL": "colonnade.methods.mpdl",
    "Alignment": "colonnade.session",
    "Evaluate": "colonnade.session",
    "FairVFL": "colonnade.methods.fairvfl",
    "FedCVT": "colonnade.methods.fedcvt",
    "Holding": "colonnade.session",
    "Launch": "colonnade.launch.simulation",
    "Ledger": "colonnade.ledger",
    "Method": "colonnade.session",
    "ModelPart": "colonnade.session",
    "Party": "colonnade.session",
    "PartyTable": "colonnade.data",
    "Policy": "colonnade.session",
    "PrADA": "colonnade.methods.prada",
    "Result": "colonnade.session",
    "Role": "colonnade.session",
    "Run": "colonnade.launch.run",
    "Scores": "colonnade.session",
    "SecureLR": "colonnade.methods.secure_lr",
    "Session": "colonnade.session",
    "SplitNN": "colonnade.methods.splitnn",
    "Stage": "colonnade.session",
    "VerticalClassifier": "colonnade.estimator",
    "VerticalRegressor": "colonnade.estimator",
    "join": "colonnade.launch.join",
    "load_run": "colonnade.launch.run_folder",
    "message": "colonnade.messages",
    "propose_groups": "colonnade.methods.prada",
    "simulate": "colonnade.launch.simulation",
}

if TYPE_CHECKING:
    from colonnade.data import PartyTable
    from colonnade.estimator import VerticalClassifier, VerticalRegressor
    from colonnade.launch.join import join
    from colonnade.launch.run import Run
    from colonnade.launch.run_folder import load_run
    from colonnade.launch.simulation import Launch, simulate
    from colonnade.ledger import Ledger
    from colonnade.messages import message
    from colonnade.methods.fairvfl import FairVFL
    from colonnade.methods.fedcvt import FedCVT
    from colonnade.methods.ftl import FTL
    from colonnade.methods.mpdl import MPDL
    from colonnade.methods.prada import PrADA, propose_groups
    from colonnade.methods.secure_lr import SecureLR
    from colonnade.methods.splitnn import SplitNN
    from colonnade.session import (
        Alignment,
        Evaluate,
        Holding,
        Method,
        ModelPart,
        Party,
        Policy,
        Result,
        Role,
        Scores,
        Session,
        Stage,
    )

__all__ = [
    "FTL",
    "MPDL",
    "Alignment",
    "Evaluate",
    "FairVFL",
    "FedCVT",
    "Holding",
    "Launch",
    "Ledger",
    "Method",
    "ModelPart",
    "Party",
    "PartyTable",
    "Policy",
    "PrADA",
    "Result",
    "Role",
    "Run",
    "Scores",
    "SecureLR",
    "Session",
    "SplitNN",
    "Stage",
    "VerticalClassifier",
    "VerticalRegressor",
    "__version__",
    "join",
    "load_run",
    "message",
    "propose_groups",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'colonnade' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
