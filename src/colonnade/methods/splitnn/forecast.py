"""What a split network sends, stage by stage. How long it computes depends on the networks, and is not forecast."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch

from colonnade.exchanges.epochs import EpochVerdict
from colonnade.methods.splitnn.config import SplitNN
from colonnade.methods.splitnn.messages import CutActivations, CutGradient, CutWidth, HeldOutActivations
from colonnade.methods.splitnn.network import dtype_of
from colonnade.methods.splitnn.predict import chunks
from colonnade.session import Crossing, Facts, Forecaster, RunPlan, StageForecast, batch_sizes, crossing, crossings

__all__ = ["FORECASTER"]


def stages(facts: Facts, plan: RunPlan, config: SplitNN) -> tuple[StageForecast, ...]:
    """Forecast what crosses, with the configured encoders."""
    (lead,) = plan.roles["label_holder"]
    training = batch_sizes(facts.training, config.batch_size)
    validation, test = (Counter(map(len, chunks(np.arange(rows)))) for rows in (facts.validation, facts.test))
    set_up, epoch, evaluation = [], [], []
    for party in plan.roles.get("feature_holder", ()):
        width = config.encoder_of(party).cut_width

        def crossed(
            sender: str, receiver: str, message: type[Any], sizes: Counter[int], width: int = width
        ) -> list[Crossing]:
            return crossings(
                sender, receiver, message, sizes, lambda rows: torch.zeros(rows, width, dtype=dtype_of(config))
            )

        set_up.append(crossing(party, lead, (CutWidth(width), 1)))
        epoch += crossed(party, lead, CutActivations, training)
        epoch += crossed(lead, party, CutGradient, training)
        epoch += crossed(party, lead, HeldOutActivations, validation)
        epoch.append(crossing(lead, party, (EpochVerdict(True, False), 1)))
        evaluation += crossed(party, lead, HeldOutActivations, test)
    return (
        StageForecast(name="set-up", seconds=None, sent=tuple(set_up)),
        StageForecast(name="training, one epoch", seconds=None, sent=tuple(epoch), times=config.epochs),
        StageForecast(name="evaluation", seconds=None, sent=tuple(evaluation)),
    )


def key(config: SplitNN) -> None:
    """Say that nothing is encrypted."""


FORECASTER = Forecaster(key=key, stages=stages)
