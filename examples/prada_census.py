"""A sister bank's labels help a bank that has few, over groups of a data company's columns: PrADA in one process.

The label model's arithmetic is encrypted with keys of 2048 bits, so this takes a little while. The people are made up;
`examples/prada_census/` has three homes and real ones. Run it with `python examples/prada_census.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import colonnade as cn


def main() -> None:
    random = np.random.default_rng(5)
    sister, at_sister = made_up(1200, 0.0, 1, random)
    bank, at_bank = made_up(800, 0.6, 10_001, random)
    new, at_new = made_up(40, 0.6, 20_001, random)
    bank.loc[400:, "income"] = None  # half of its clients have no label
    tables = {
        "bank": cn.PartyTable(bank, id="person", label="income", unlabelled=True, name="bank"),
        "sister": cn.PartyTable(sister, id="person", label="income", name="sister"),
        "data": cn.PartyTable(pd.concat([at_sister, at_bank]), id="person", name="data"),
    }
    roles = {"target": "bank", "source": "sister", "feature_holder": "data"}
    # Columns by subject; `cn.propose_groups` proposes some. Every two groups make a third.
    groups = {"work": ("job", "hours"), "home": ("region", "house")}
    # Small tables, so small batches and large steps; and transfer is used unless it clearly loses.
    steps = {"epochs": 4, "batch_size": 64, "fine_batch_size": 64, "learning_rate": 0.01}
    config = cn.PrADA(groups=groups, margin=5.0, explanations=True, pictures=False, **steps)
    run = cn.simulate(config, tables, roles=roles, seed=7, launch=cn.Launch(engine="auto"))

    print(f"AUC {run.metrics['auc']:.3f} on held-out rows of the bank")
    for name in ("transfer", "label protection"):
        show(run.findings[name])

    fresh = {"bank": new.drop(columns="income"), "data": at_new}
    found = run.predict(
        {party: cn.PartyTable(frame, id="person", name=party) for party, frame in fresh.items()}, engine="auto"
    )
    hits = (found["prediction"].to_numpy() == new["income"].to_numpy()).mean()
    print(f"\n{len(found)} new clients: {hits:.0%} are predicted right")

    # Only the bank sees what each group adds to a score, and only because all parties agreed to it.
    here = {party: tables[party] for party in ("bank", "data")}
    part = {"target": "bank", "feature_holder": "data"}
    show(cn.simulate(config, here, roles=part, seed=7, stage="explain", after=run).findings["explanation"])

    print("\nWhat each party sent, by protection:")
    for party in tables:
        sent = run.ledgers[party].bytes_sent()
        print(f"  {party:7}" + ", ".join(f"{kind} {count:,} bytes" for kind, count in sorted(sent.items())))
    run.verify()


def show(finding: Any) -> None:
    """Print a finding's table."""
    print(f"\n{finding.title}")
    for row in (finding.columns, *finding.rows):
        print("  " + "".join(f"{cell:34}" for cell in row).rstrip())


def made_up(count: int, shift: float, first: int, random: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what a bank and what the company know of people that never lived."""
    worth = random.normal(shift, 1.0, count)
    ids = np.arange(first, first + count)
    jobs = np.array(["driver", "clerk", "nurse", "engineer"])
    job = jobs[np.digitize(worth + random.normal(0, 0.6, count), (-0.7, 0.2, 1.1))]
    rich = np.where(worth + random.normal(0, 0.5, count) > 0.6, "high", "low").astype(object)
    bank = pd.DataFrame({"person": ids, "age": random.normal(40 + 4 * worth, 9).round(), "income": rich})
    data = pd.DataFrame({"person": ids, "job": job, "hours": random.normal(38 + 3 * worth, 5).round(1)})
    data["region"] = random.choice(["north", "south", "east"], count)
    data["house"] = np.where(worth + random.normal(0, 1.0, count) > 0.3, "owner", "tenant")
    return bank, data


if __name__ == "__main__":
    main()
