"""A bank and a call agency have few customers in common; cross-view training learns from all of them, in one process.

The customers are those of the Bank Marketing data where `colonnade.datasets.bank_marketing` finds it, and made up
otherwise. `examples/fedcvt_bank/` has the same as two homes. Run it with `python examples/fedcvt_bank.py`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import colonnade as cn
from colonnade.datasets import bank_marketing
from colonnade.errors import TableError


def main() -> None:
    random = np.random.default_rng(5)
    bank, agency = customers(random)
    # Both know 300 of them, each one knows 700 others; 90 come in later, a third of them known to both.
    tables = {"bank": table("bank", bank[:1000], label="y"), "agency": table("agency", agency[700:1700])}
    new = {"bank": table("bank", bank[1700:1760].drop(columns="y")), "agency": table("agency", agency[1730:1790])}

    # The agency knows more about who buys: sharper attention and weaker penalties than the paper's.
    config = cn.FedCVT.sharp(shared_width=16, unique_width=16, epochs=20)
    evaluate = cn.Evaluate(test_fraction=0.25, validation_fraction=0.2)
    run = cn.simulate(config, tables, seed=7, evaluate=evaluate)
    print(f"AUC {run.metrics['auc']:.3f} on {run.rows['test']} held-out customers that both know\n")
    situations = run.findings["situations"]
    for row in (situations.columns, *situations.rows):
        print("  {:16}{:44}{:18}{:12}{}".format(*row).rstrip())

    # The bank gets scores; the agency gets predictions for those whom only it knows, and no scores.
    found = run.predict(new)
    truth = bank.set_index("customer")["y"]
    found["right"] = found["prediction"].to_numpy() == truth[found["customer"]].to_numpy()
    print("\nNew customers, and how many are predicted right:")
    for known, rows in found.groupby("known to"):
        print(f"  {known:16}{len(rows):4}{rows['right'].mean():8.0%}")

    # The same with noise on what the agency sends, and on the gradients that come back.
    careful = cn.FedCVT.sharp(level=1, noise=2.0, defence="marvell", shared_width=16, unique_width=16, epochs=5)
    noised = cn.simulate(careful, tables, seed=7, evaluate=evaluate)
    print(f"\nWith noise: AUC {noised.metrics['auc']:.3f}. {noised.findings['privacy budget'].text}")

    print("\nWhat each party sent, by protection:")
    for name, one in (("without noise", run), ("with noise", noised)):
        for party in tables:
            sent = one.ledgers[party].bytes_sent()
            counts = ", ".join(f"{kind} {count:,} bytes" for kind, count in sorted(sent.items()))
            print(f"  {name:15}{party:8}{counts}")
        one.verify()


def table(party: str, frame: pd.DataFrame, label: str | None = None) -> cn.PartyTable:
    """Return a party's table."""
    return cn.PartyTable(frame, id="customer", label=label, name=party)


def customers(random: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return 1790 customers as the bank and as the agency know them, half of whom bought."""
    try:
        sides = bank_marketing()
        bank, agency = (sides[side].rename(columns={"id": "customer"}) for side in ("bank", "campaign"))
        print("Customers of the Bank Marketing data")
    except TableError:
        bank, agency = made_up(9000, random)
        print("Made-up customers; the real ones are not on this machine")
    halves = [random.permutation(np.flatnonzero(bank["y"] == bought))[:895] for bought in ("yes", "no")]
    chosen = random.permutation(np.concatenate(halves))
    return bank.iloc[chosen], agency.iloc[chosen]


def made_up(count: int, random: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return profiles with the label, and calls, of customers that never lived."""
    keen = random.normal(size=count)
    ids = np.arange(1, count + 1)
    jobs = np.array(["services", "technician", "admin.", "retired"])
    job = jobs[np.digitize(0.5 * keen + random.normal(0, 0.6, count), (-0.5, 0.0, 0.7))]
    bought = np.where(keen + random.normal(0, 0.6, count) > 0.5, "yes", "no")
    bank = pd.DataFrame({"customer": ids, "age": random.normal(42 + 3 * keen, 10).round(), "job": job, "y": bought})
    agency = pd.DataFrame({"customer": ids, "previous": random.poisson(np.exp(0.6 * keen - 1.0))})
    agency["euribor3m"] = (3.0 - 0.9 * keen + random.normal(0, 0.9, count)).round(3)
    agency["month"] = np.where(keen + random.normal(0, 1.0, count) > 0.4, "oct", "may")
    return bank, agency


if __name__ == "__main__":
    main()
