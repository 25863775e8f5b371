"""A made-up town: people whom a bank, a telephone company, a shop and others each know from another side.

Nobody in it lives. What a person is like (how well off, how orderly, how settled) shows in many columns, in each a
little, and decides with some luck whether a loan is paid back. So every side tells something about the others, none
tells all, and what method is for whom can be shown on tables of any size. Everything follows from `seed`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = [
    "TOWN_GROUPS",
    "town_attributes",
    "town_labels_elsewhere",
    "town_later",
    "town_people",
    "town_sister_banks",
]

Numbers = npt.NDArray[np.float64]

# By side: the columns it knows.
_SIDES: Mapping[str, tuple[str, ...]] = {
    "bank": ("age", "income", "savings", "months_overdrawn", "years_at_bank", "standing_orders"),
    "telephone": (
        *("tariff", "monthly_bill", "late_bills", "reminders", "gigabytes", "calls_at_night", "top_ups"),
        *("handset_price", "years_at_telephone", "times_moved"),
    ),
    "shop": (
        *("visits", "spent", "share_on_offer", "returns", "by_instalments", "groceries", "electronics"),
        *("clothing", "cosmetics", "tools"),
    ),
    "employer": ("job", "industry", "hours", "work_contract", "schooling", "years_in_job"),
    "household": ("home", "household", "children", "district", "car"),
}
TOWN_GROUPS = {
    "work": ["job", "industry", "hours", "work_contract", "years_in_job"],
    "person": ["schooling", "children", "car"],
    "home": ["home", "household", "district"],
}
"""What the data company of `town_sister_banks` knows, by subject."""

_JOBS = {
    # How well off, and what share of those who have it are women.
    "cleaner": (-1.1, 0.8),
    "driver": (-0.6, 0.15),
    "cashier": (-0.7, 0.75),
    "builder": (-0.3, 0.1),
    "nurse": (0.1, 0.85),
    "clerk": (0.0, 0.65),
    "technician": (0.3, 0.15),
    "teacher": (0.4, 0.7),
    "sales agent": (0.2, 0.4),
    "engineer": (0.9, 0.2),
    "manager": (1.1, 0.35),
    "doctor": (1.3, 0.5),
}
_NEW_BANK = 0.8
# What both banks know, and the label.
_OF_BANKS = ("customer", "age", "income", "savings", "paid_back")
_INDUSTRIES = ("farming", "building", "trade", "transport", "catering", "health", "schools", "finance", "technology")
_DISTRICTS = ("harbour", "old town", "mill quarter", "north", "hill", "station", "garden city", "east")


def town_people(rows: int, *, seed: int = 0, well_off: float = 0.0, first: int = 1) -> pd.DataFrame:
    """Return people with all their columns, `gender`, `age_class` and the label `paid_back` (`yes` or `no`).

    Ids are words such as `C000017`, counted from `first`. `well_off` shifts the mean of how well off people are, in
    standard deviations, as where another bank has other customers.
    """
    random = np.random.default_rng(seed)
    wealth, order, settled = random.normal(size=(3, rows)) + np.array([[well_off], [0.0], [0.3 * well_off]])
    is_woman = random.random(rows) < 0.5
    woman = is_woman.astype(np.float64)
    age = np.clip(random.normal(43 + 7 * settled, 11), 19, 85)

    def seen(signal: Numbers, noise: float = 0.8) -> Numbers:
        return signal + random.normal(0.0, noise, rows)

    def amount(signal: Numbers, typical: float, spread: float, noise: float = 0.8) -> Numbers:
        return np.round(typical * np.exp(spread * seen(signal, noise)), 2)

    def count(signal: Numbers, typical: float, spread: float = 0.5) -> Numbers:
        return random.poisson(typical * np.exp(np.clip(spread * signal, -3.0, 3.0)), rows).astype(np.float64)

    def level(words: tuple[str, ...], signal: Numbers, noise: float = 0.8) -> npt.NDArray[np.object_]:
        cuts = np.linspace(-1.2, 1.2, len(words) + 1)[1:-1]
        return np.array(words, dtype=object)[np.digitize(seen(signal, noise), cuts)]

    # The job that fits best, by how well off a person is and by gender, with much chance.
    pay, women = np.array(list(_JOBS.values())).T
    fit = -np.abs(wealth[:, None] - pay) + np.log(np.where(is_woman[:, None], women, 1.0 - women))
    job = (fit + random.gumbel(0.0, 0.5, fit.shape)).argmax(axis=1)
    industry = random.integers(0, len(_INDUSTRIES), rows)
    district = random.integers(0, len(_DISTRICTS), rows)
    home = level(("with parents", "rented room", "rented flat", "own flat", "own house"), 0.5 * (wealth + settled))
    contract = level(("agency", "fixed term", "permanent", "civil service"), 0.6 * (settled + order))
    # Work and district matter by themselves: not every trade and quarter is equally safe.
    trade = np.array([0.1, -0.9, 0.2, -0.5, -1.4, 0.7, 1.1, 0.5, 0.3])[industry]
    quarter = np.array([-1.0, 0.1, -0.6, 0.3, 1.0, -0.8, 0.8, 0.2])[district]
    safety = 0.9 * wealth + 1.1 * order + 0.6 * settled + trade + quarter
    return pd.DataFrame(
        {
            "customer": [f"C{number:06d}" for number in range(first, first + rows)],
            "age": age.round(),
            "income": amount(wealth - 0.25 * woman, 31_000, 0.45),
            "savings": amount(wealth + 0.5 * order, 4_000, 1.1, 1.0),
            "months_overdrawn": np.minimum(12, count(-order - 0.6 * wealth, 1.2)),
            "years_at_bank": np.clip(0.3 * age + 3 * seen(settled) - 8, 0, None).round(),
            "standing_orders": count(0.7 * settled + 0.4 * order, 3.0, 0.4),
            "tariff": level(("prepaid", "monthly", "two years"), 0.6 * wealth + 0.6 * settled),
            "monthly_bill": amount(wealth, 24, 0.3),
            "late_bills": count(-order, 1.0, 0.8),
            "reminders": count(-order - 0.3 * settled, 0.6, 0.8),
            "gigabytes": amount(-settled - 0.3 * order, 11, 0.6),
            "calls_at_night": count(-order - settled, 3.0, 0.4),
            "top_ups": count(-wealth - 0.5 * order, 2.0, 0.5),
            "handset_price": amount(wealth - 0.3 * order, 320, 0.4),
            "years_at_telephone": np.clip(4 + 3 * seen(settled), 0, None).round(),
            "times_moved": count(-settled, 1.0, 0.7),
            "visits": count(0.4 * settled + 0.2 * woman, 14, 0.3),
            "spent": amount(wealth, 210, 0.4),
            "share_on_offer": np.round(1 / (1 + np.exp(0.7 * seen(wealth + 0.4 * order))), 3),
            "returns": count(-order, 1.2, 0.6),
            "by_instalments": np.where(seen(-order - 0.5 * wealth, 1.0) > 0.5, "yes", "no").astype(object),
            "groceries": amount(settled + 0.2 * woman, 120, 0.4),
            "electronics": amount(0.4 * wealth - 0.5 * order - 0.5 * woman, 30, 0.7),
            "clothing": amount(0.3 * wealth + 0.8 * woman, 35, 0.5),
            "cosmetics": amount(1.4 * woman, 9, 0.7),
            "tools": amount(-1.2 * woman + 0.3 * settled, 12, 0.7),
            "job": np.array(list(_JOBS), dtype=object)[job],
            "industry": np.array(_INDUSTRIES, dtype=object)[industry],
            "hours": np.clip(random.normal(38 - 7 * woman + 1.5 * wealth, 6), 6, 60).round(),
            "work_contract": contract,
            "schooling": level(("none", "basic", "vocational", "college", "university"), 0.9 * wealth),
            "years_in_job": np.clip(5 + 4 * seen(settled), 0, None).round(),
            "home": home,
            "household": level(("alone", "flat share", "couple", "family"), 0.8 * settled),
            "children": count(0.5 * settled, 1.0),
            "district": np.array(_DISTRICTS, dtype=object)[district],
            "car": level(("none", "old", "leased", "new"), 0.7 * wealth),
            "gender": np.where(is_woman, "female", "male").astype(object),
            "age_class": np.array(["under 30", "30 to 49", "50 or over"], dtype=object)[np.digitize(age, (30, 50))],
            "paid_back": np.where(safety + random.logistic(0.0, 0.4, rows) > -0.8, "yes", "no").astype(object),
        }
    )


def _side(people: pd.DataFrame, *sides: str, more: tuple[str, ...] = ()) -> pd.DataFrame:
    """Return what some sides know of people."""
    return people[["customer", *(column for side in sides for column in _SIDES[side]), *more]].reset_index(drop=True)


def town_labels_elsewhere(*, shared: int = 800, own: int = 1500, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Return the tables of a bank (with `paid_back`) and of a shop without any label, whose customers are others.

    The bank knows `own` customers that the shop does not know, and the shop as many that the bank does not know.
    """
    people = town_people(shared + 2 * own, seed=seed)
    return {
        "bank": _side(people[: shared + own], "bank", "telephone", more=("paid_back",)),
        "shop": _side(pd.concat([people[:shared], people[shared + own :]]), "shop"),
    }


def town_sister_banks(
    *, source: int = 48_000, labelled: int = 120, unlabelled: int = 2000, seed: int = 0
) -> dict[str, pd.DataFrame]:
    """Return the tables of a new `bank`, of its `sister` with many labels, and of a `data` company that knows all.

    The bank's customers are better off than the sister's, and few of them have a label yet: `paid_back` is empty for
    the others. The banks have no customer in common and know little of theirs; the company knows work and household.
    """
    sister = town_people(source, seed=seed)
    bank = town_people(labelled + unlabelled, seed=seed + 1, well_off=_NEW_BANK, first=source + 1)
    bank.loc[labelled:, "paid_back"] = None
    return {
        "bank": bank[[*_OF_BANKS]],
        "sister": sister[[*_OF_BANKS]],
        "data": _side(pd.concat([sister, bank]), "employer", "household"),
    }


def town_later(*, rows: int = 2000, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Return people who came to the `bank` of `town_sister_banks` later, and what the `data` company knows of them."""
    people = town_people(rows, seed=seed + 2, well_off=_NEW_BANK, first=900_001)
    return {"bank": people[[*_OF_BANKS]], "data": _side(people, "employer", "household")}


def town_attributes(*, rows: int = 3600, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Return the tables of an `employer` and a `shop`, of a `bank` with `paid_back`, and of a `registry` with `gender`.

    All know the same people. Gender is in no table but the registry's, and jobs, hours and purchases tell it.
    """
    people = town_people(rows, seed=seed)
    return {
        "bank": _side(people, "bank", more=("paid_back",)),
        "employer": _side(people, "employer"),
        "shop": _side(people, "shop"),
        "registry": people[["customer", "gender"]],
    }
