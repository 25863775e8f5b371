"""Write the tables of both homes: a bank that knows who paid, and a shop that knows whom it has to score.

The clients are those of the default-of-credit-card data where `colonnade.datasets.default_credit` finds it, and made up
otherwise. Run it with `python examples/ftl_credit/make_tables.py`; give a folder to write elsewhere than beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from colonnade.datasets import default_credit
from colonnade.errors import TableError

SHARED, BANK_ONLY, SHOP_ONLY, NEW = 500, 1500, 500, 200


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    count = SHARED + BANK_ONLY + SHOP_ONLY + NEW
    random = np.random.default_rng(11)
    try:
        sides = default_credit()
        bank, shop = (sides[side].rename(columns={"id": "client"}) for side in ("payment", "profile"))
        origin = "real clients"
    except TableError:
        bank, shop = made_up(4 * count, random)
        origin = "made-up clients; the real ones are not on this machine"
    # As many of one class as of the other: few default, and a model that says "pays" would look good.
    places = [random.permutation(np.flatnonzero(bank["default"] == kind))[: count // 2] for kind in (0, 1)]
    chosen = random.permutation(np.concatenate(places))
    at_bank = chosen[: SHARED + BANK_ONLY]
    at_shop = np.concatenate([chosen[:SHARED], chosen[SHARED + BANK_ONLY : -NEW]])
    for frame, rows, file in (
        (bank, at_bank, "bank/clients.csv"),
        (shop, at_shop, "shop/customers.csv"),
        (shop, chosen[-NEW:], "shop/new.csv"),
    ):
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.iloc[np.sort(rows)].to_csv(path, index=False)
        print(f"{path}: {len(rows)} {origin}")


def made_up(count: int, random: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return payments with the label, and profiles, of clients that never lived."""
    reliable = random.normal(size=count)
    ids = np.arange(1, count + 1)
    payments = {f"PAY_{month}": np.rint(random.normal(-0.6 * reliable, 1.0)) for month in range(1, 7)}
    bills = {f"BILL_AMT{month}": random.lognormal(10 - 0.2 * reliable, 1.0).round() for month in range(1, 7)}
    amounts = {f"PAY_AMT{month}": random.lognormal(7 + 0.4 * reliable, 1.0).round() for month in range(1, 7)}
    default = (random.normal(size=count) > 0.6 + reliable).astype(int)
    bank = pd.DataFrame({"client": ids, **payments, **bills, **amounts, "default": default})
    age = random.integers(21, 70, count)
    profile = {"LIMIT_BAL": random.lognormal(11.7 + 0.5 * reliable, 0.5).round(-4), "AGE": age}
    schools = np.array(["high school", "university", "graduate school"])
    level = np.clip(np.rint(1 + 0.5 * reliable + random.normal(0, 0.6, count)), 0, 2).astype(int)
    status = random.choice(["married", "single"], count)
    return bank, pd.DataFrame({"client": ids, **profile, "EDUCATION": schools[level], "MARRIAGE": status})


if __name__ == "__main__":
    main()
