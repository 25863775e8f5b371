"""Write the tables of both homes: a bank that knows its customers, and an agency that knows how they were called.

The customers are those of the Bank Marketing data where `colonnade.datasets.bank_marketing` finds it, and made up
otherwise. Run it with `python examples/fedcvt_bank/make_tables.py`; give a folder to write elsewhere than beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from colonnade.datasets import bank_marketing
from colonnade.errors import TableError

SHARED, BANK_ONLY, AGENCY_ONLY = 400, 1500, 1500
# Of the customers that come in later, so many are known to both, and so many to each one only.
NEW = 50


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    random = np.random.default_rng(11)
    count = SHARED + BANK_ONLY + AGENCY_ONLY + 3 * NEW
    try:
        sides = bank_marketing()
        bank, agency = (sides[side].rename(columns={"id": "customer"}) for side in ("bank", "campaign"))
        origin = "real customers"
    except TableError:
        bank, agency = made_up(4 * count, random)
        origin = "made-up customers; the real ones are not on this machine"
    # As many who bought as not: few do, and a model that says "no" would look good.
    places = [random.permutation(np.flatnonzero(bank["y"] == bought))[: count // 2] for bought in ("yes", "no")]
    shared, at_bank, at_agency, *new = np.split(
        random.permutation(np.concatenate(places)),
        np.cumsum([SHARED, BANK_ONLY, AGENCY_ONLY, NEW, NEW]),
    )
    for frame, rows, file in (
        (bank, [shared, at_bank], "bank/customers.csv"),
        (bank.drop(columns="y"), new[:2], "bank/new.csv"),
        (agency, [shared, at_agency], "agency/calls.csv"),
        (agency, new[::2], "agency/new.csv"),
    ):
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        chosen = frame.iloc[np.sort(np.concatenate(rows))]
        chosen.to_csv(path, index=False)
        print(f"{path}: {len(chosen)} {origin}")


def made_up(count: int, random: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return profiles with the label, and calls, of customers that never lived."""
    keen = random.normal(size=count)
    ids = np.arange(1, count + 1)

    def level(words: tuple[str, ...], share: float) -> np.ndarray:
        noisy = share * keen + random.normal(0, 1 - share, count)
        return np.array(words, dtype=object)[np.digitize(noisy, np.linspace(-0.7, 0.7, len(words) - 1))]

    bank = pd.DataFrame(
        {
            "customer": ids,
            "age": np.clip(random.normal(42 + 3 * keen, 11), 18, 90).round().astype(int),
            "job": level(("services", "technician", "admin.", "management", "retired"), 0.4),
            "marital": random.choice(["married", "single", "divorced"], count),
            "education": level(("basic.4y", "high.school", "university.degree"), 0.3),
            "housing": random.choice(["yes", "no"], count),
            "y": np.where(keen + random.normal(0, 0.8, count) > 0.5, "yes", "no").astype(object),
        }
    )
    agency = pd.DataFrame(
        {
            "customer": ids,
            "contact": level(("telephone", "cellular"), 0.3),
            "month": level(("may", "jul", "aug", "mar", "oct"), 0.4),
            "campaign": np.clip(random.poisson(2.5, count) - (keen > 0.5), 1, None),
            "previous": random.poisson(np.exp(0.6 * keen - 1.5)),
            "poutcome": level(("failure", "nonexistent", "success"), 0.5),
            "euribor3m": (3.0 - 0.9 * keen + random.normal(0, 1.0, count)).round(3),
        }
    )
    return bank, agency


if __name__ == "__main__":
    main()
