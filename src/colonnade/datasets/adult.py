"""Adult: 48842 people of the US census of 1994, 11687 of whom earn over 50000 dollars a year.

B. Becker and R. Kohavi, UCI Machine Learning Repository (1996), CC BY 4.0. Dealt to platforms as in FairVFL's
experiment: some know what the model may use, one knows the income, and two know what must not be read from the model.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.datasets.files import data_file
from colonnade.errors import ConfigError

__all__ = ["ADULT_FIELDS", "AGE_CLASSES", "adult", "adult_platforms", "age_classes"]

ADULT_FIELDS = (
    *("workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship", "race"),
    *("capital_gain", "capital_loss", "hours_per_week", "native_country"),
)
"""The fields the model may use: all but sex and age. `relationship` still tells the sex of husbands and wives."""

AGE_CLASSES = ("<=24", "25-34", "35-49", ">=50")
"""Classes of age in years. FairVFL does not state its own; these are those of its authors' code."""

_ORIGIN = "archive.ics.uci.edu/dataset/2 (adult.data and adult.test saved as Parquet, with column names added)"
_OLDEST = (24, 34, 49)


def adult(*, rows: int | None = None, seed: int = 0) -> pd.DataFrame:
    """Return all people, or as many as `rows` drawn at random, in the order of their ids.

    An `id`, the `ADULT_FIELDS`, `age` in years, `gender` (`male` or `female`) and `income` (`<=50K` or `>50K`). What
    was not answered is the category `?`. The published training and test rows are put together: ids below
    `person_32561` are of the former.
    """
    parts = [pd.read_parquet(data_file(f"adult/adult_{part}.parquet", _ORIGIN)) for part in ("train", "test")]
    everyone = pd.concat(parts, ignore_index=True).rename(columns=lambda name: name.replace("-", "_"))
    everyone.insert(0, "id", [f"person_{place:05d}" for place in range(len(everyone))])
    everyone["gender"] = everyone["sex"].str.lower()
    everyone["income"] = everyone["income"].str.removesuffix(".")  # the published test rows alone end in a dot
    table = everyone[["id", *ADULT_FIELDS, "age", "gender", "income"]]
    if rows is None:
        return table
    if not 1 <= rows <= len(table):
        raise ConfigError(f"There are {len(table)} people, so {rows} cannot be drawn. Give 1 to {len(table)}.")
    drawn = np.sort(np.random.default_rng(seed).choice(len(table), rows, replace=False))
    return table.iloc[drawn].reset_index(drop=True)


def adult_platforms(*, rows: int = 30_000, seed: int = 0, platforms: int = 3) -> dict[str, pd.DataFrame]:
    """Return the tables of FairVFL's platforms: people drawn at random, and fields dealt at random, both by `seed`.

    `platform_1`, `platform_2` and so on hold the `ADULT_FIELDS`, as evenly as possible and each field once; `task`
    holds `income`; `gender` and `age`, the sensitive platforms, hold one column of their own name each, `age` in
    `AGE_CLASSES`. All have the same `id` in the same order. Numbers stay numbers: to bin them is up to the method.
    """
    if not 1 <= platforms <= len(ADULT_FIELDS):
        raise ConfigError(
            f"The {len(ADULT_FIELDS)} fields cannot be dealt to {platforms} platforms. Give 1 to {len(ADULT_FIELDS)}."
        )
    people = adult(rows=rows, seed=seed)
    (dealer,) = np.random.default_rng(seed).spawn(1)
    hands = np.array_split(dealer.permutation(len(ADULT_FIELDS)), platforms)
    tables = {
        f"platform_{number}": people[["id", *(ADULT_FIELDS[place] for place in sorted(hand))]]
        for number, hand in enumerate(hands, start=1)
    }
    tables["task"] = people[["id", "income"]]
    tables["gender"] = people[["id", "gender"]]
    tables["age"] = pd.DataFrame({"id": people["id"], "age": age_classes(people["age"].to_numpy())})
    return tables


def age_classes(years: npt.NDArray[np.int64]) -> list[str]:
    """Return the class of each age in whole years.

    >>> age_classes(np.array([17, 24, 25, 49, 50]))
    ['<=24', '<=24', '25-34', '35-49', '>=50']
    """
    return [AGE_CLASSES[place] for place in np.searchsorted(_OLDEST, years)]
