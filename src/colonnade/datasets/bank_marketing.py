"""Bank marketing: 41188 telephone calls of a Portuguese bank from 2008 to 2010, 4640 of which sold a term deposit.

S. Moro, P. Cortez and P. Rita, 2014; UCI Machine Learning Repository (2012), CC BY 4.0. The columns fall into two
natural sides: who the client is (the bank), and how and when the client was called (the campaign).
"""

from __future__ import annotations

import pandas as pd

from colonnade.datasets.files import data_file
from colonnade.errors import ConfigError, did_you_mean

__all__ = ["bank_marketing"]

_FILE = "bank_marketing/bank_additional_full.parquet"
_ORIGIN = "archive.ics.uci.edu/dataset/222 (bank-additional-full.csv saved as Parquet)"
_SIDES = {
    "bank": ("age", "job", "marital", "education", "default", "housing", "loan"),
    "campaign": (
        *("contact", "month", "day_of_week", "campaign", "pdays", "previous", "poutcome"),
        *("emp.var.rate", "cons.price.idx", "cons.conf.idx", "euribor3m", "nr.employed"),
    ),
}


def bank_marketing(*, label_at: str = "bank") -> dict[str, pd.DataFrame]:
    """Return the tables of the bank (7 columns of the client) and of the campaign (12 columns of the call), all calls.

    Both carry the call's `id`; the side `label_at` also carries the label `y`, `yes` where the client bought. Left out
    is `duration`: it is known only once the call is over, and a call that lasts gives the answer away. `pdays` is 999
    for clients who had not been called before.
    """
    if label_at not in _SIDES:
        raise ConfigError(f"There is no side '{label_at}' to carry the label. {did_you_mean(label_at, _SIDES)}")
    everyone = pd.read_parquet(data_file(_FILE, _ORIGIN))
    everyone.insert(0, "id", range(1, len(everyone) + 1))
    return {side: everyone[["id", *columns, *(["y"] if side == label_at else [])]] for side, columns in _SIDES.items()}
