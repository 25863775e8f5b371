"""Small parties that train within a second, with their state kept in one folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tests.parties import with_policies

from colonnade import PartyTable, Policy, SplitNN
from colonnade.launch.run import Run
from colonnade.launch.simulation import simulate
from colonnade.session import Evaluate, Progress

ROWS = 48
BATCH = 8
# 48 rows: 32 to train in 4 steps an epoch, 8 to validate, 8 to test.
SPLIT = Evaluate(test_fraction=8 / 48, validation_fraction=8 / 48)


def tables(parties: int = 2) -> dict[str, PartyTable]:
    rng = np.random.default_rng(3)
    ids = [f"c{number}" for number in range(ROWS)]
    hidden = rng.normal(size=ROWS)
    frame = pd.DataFrame({"id": ids, "x": rng.normal(size=ROWS), "y": (hidden > 0).astype(int)})
    made = {"bank": PartyTable(frame, id="id", label="y", name="bank")}
    for name in ("shop", "telco")[: parties - 1]:
        columns = {"id": ids, "u": hidden + rng.normal(size=ROWS), "v": rng.normal(size=ROWS)}
        made[name] = PartyTable(pd.DataFrame(columns), id="id", name=name)
    return made


@dataclass
class Trial:
    """One run that may be tried more than once."""

    folder: Path | None
    parties: int = 2
    settings: dict[str, Any] = field(default_factory=dict)

    def config(self) -> SplitNN:
        small: dict[str, Any] = {"epochs": 3, "batch_size": BATCH, "hidden": (4,), "cut_width": 3, "dropout": 0.25}
        fixed = {"checkpoint_every": 2, "patience": 2, "secret_start": False, "minimum_steps": 0}
        return SplitNN(**{**small, **fixed, **self.settings})

    def run(
        self, observer: Callable[[Progress], None] | None = None, policies: dict[str, Policy] | None = None, **more: Any
    ) -> Run:
        return simulate(
            self.config(),
            with_policies(tables(self.parties), policies or {}),
            seed=11,
            evaluate=SPLIT,
            folder=self.folder,
            observer=observer,
            **more,
        )
