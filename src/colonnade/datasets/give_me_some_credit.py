"""Give me some credit: 150000 borrowers, 10026 of whom were 90 days late or worse within two years.

Kaggle competition of 2011, its training file; the competition's rules apply. The columns fall into two natural sides:
what a client states when applying (application), and what a credit bureau knows (bureau).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from colonnade.datasets.files import data_file
from colonnade.errors import ConfigError, did_you_mean

__all__ = ["give_me_some_credit"]

_FILE = "give_me_some_credit/cs_training.parquet"
_ORIGIN = "kaggle.com/c/GiveMeSomeCredit (cs-training.csv saved as Parquet, its first column named id)"
_APPLICATION = ("age", "MonthlyIncome", "DebtRatio", "NumberOfDependents")
_SIDES = ("application", "bureau")


def give_me_some_credit(*, label_at: str = "bureau", rows: int | None = None, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Return the tables of the application (4 columns) and of the bureau (6), all borrowers or `rows` drawn at random.

    Both carry the borrower's `id`; the side `label_at` also carries the label `late` (1 for those who were late). As
    published: incomes and dependents are missing in many rows, where an income is missing the debt ratio is an amount,
    and the codes 96 and 98 stand among the times past due.
    """
    if label_at not in _SIDES:
        raise ConfigError(f"There is no side '{label_at}' to carry the label. {did_you_mean(label_at, _SIDES)}")
    everyone = pd.read_parquet(data_file(_FILE, _ORIGIN)).rename(columns={"SeriousDlqin2yrs": "late"})
    if rows is not None:
        if not 1 <= rows <= len(everyone):
            raise ConfigError(
                f"There are {len(everyone)} borrowers, so {rows} cannot be drawn. Give 1 to {len(everyone)}."
            )
        drawn = np.sort(np.random.default_rng(seed).choice(len(everyone), rows, replace=False))
        everyone = everyone.iloc[drawn].reset_index(drop=True)
    bureau = [name for name in everyone.columns if name not in ("id", "late", *_APPLICATION)]
    columns = {"application": list(_APPLICATION), "bureau": bureau}
    return {side: everyone[["id", *columns[side], *(["late"] if side == label_at else [])]] for side in _SIDES}
