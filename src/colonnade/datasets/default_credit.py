"""Default of credit card clients: 30000 clients of a bank in Taiwan, 6636 of whom did not pay in the next month.

I-C. Yeh and C. Lien, 2009; UCI Machine Learning Repository (2016), CC BY 4.0. The columns fall into two natural sides:
who the client is (profile), and how the client has paid for half a year (payment).
"""

from __future__ import annotations

import pandas as pd

from colonnade.datasets.files import data_file
from colonnade.errors import ConfigError, did_you_mean

__all__ = ["default_credit"]

_FILE = "default_credit/default_of_credit_card_clients.parquet"
_ORIGIN = "archive.ics.uci.edu/dataset/350 (the table saved as Parquet, with the column names of the Kaggle copy)"
_PROFILE = ("LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE")
_SIDES = ("profile", "payment")

# Codes that the data's own description does not explain keep their number.
_WORDS = {
    "SEX": {1: "male", 2: "female"},
    "EDUCATION": {1: "graduate school", 2: "university", 3: "high school", 4: "others"},
    "MARRIAGE": {1: "married", 2: "single", 3: "others"},
}


def default_credit(*, label_at: str = "payment") -> dict[str, pd.DataFrame]:
    """Return the tables of the profile (5 columns, 15 when encoded) and of the payments (18 columns), all clients.

    Both carry the client's `id`; the side `label_at` also carries the label `default` (1 for those who did not pay).
    """
    if label_at not in _SIDES:
        raise ConfigError(f"There is no side '{label_at}' to carry the label. {did_you_mean(label_at, _SIDES)}")
    everyone = pd.read_parquet(data_file(_FILE, _ORIGIN)).rename(
        columns={"ID": "id", "default.payment.next.month": "default"}
    )
    for column, words in _WORDS.items():
        everyone[column] = [words.get(code, f"code {code}") for code in everyone[column]]
    payment = [name for name in everyone.columns if name not in ("id", "default", *_PROFILE)]
    columns = {"profile": list(_PROFILE), "payment": payment}
    return {side: everyone[["id", *columns[side], *(["default"] if side == label_at else [])]] for side in _SIDES}
