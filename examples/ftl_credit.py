"""A bank's labels score a shop's customers, of whom the bank knows few: federated transfer learning in one process.

The shop has no label at all. Codes and signals cross encrypted, with keys of 2048 bits, so this takes a little while.
The clients are made up; `examples/ftl_credit/` has homes and real ones. Run it with `python examples/ftl_credit.py`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import colonnade as cn


def main() -> None:
    bank, shop, new, truth = made_up(np.random.default_rng(5))
    tables = {
        "bank": cn.PartyTable(bank, id="client", label="default", name="bank"),
        "shop": cn.PartyTable(shop, id="client", name="shop"),
    }
    # Twenty shared customers bring a label. Few to learn from; the run compares.
    config = cn.FTL(width=4, iterations=8, learning_rate=0.1, labelled_rows=20)
    run = cn.simulate(config, tables, seed=7, launch=cn.Launch(engine="auto"))

    print(f"AUC {run.metrics['auc']:.3f} on {run.rows['test']} held-out shared rows")
    safeguard = run.findings["safeguard"]
    print(f"\n{safeguard.title}")
    for row in (safeguard.columns, *safeguard.rows):
        print("  " + "".join(f"{cell:15}" for cell in row))

    # Only the shop gives rows. It gets predictions and no scores; the bank gets scores and no ids.
    found = run.predict({"shop": cn.PartyTable(new, id="client", name="shop")}, engine="auto")
    hits = (found["prediction"].to_numpy() == truth).mean()
    print(f"\n{len(found)} customers that the bank does not know: {hits:.0%} are predicted right")

    print("\nWhat each party sent, by protection:")
    for party in tables:
        sent = run.ledgers[party].bytes_sent()
        print(f"  {party:6}" + ", ".join(f"{kind} {count:,} bytes" for kind, count in sorted(sent.items())))
    run.verify()


def made_up(random: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, np.ndarray]:
    """Return the bank's clients, the shop's customers, new customers, and the truth about these."""
    clients = np.arange(900)
    reliable = random.normal(size=len(clients))
    default = np.where(random.normal(0, 0.4, len(clients)) > reliable, "defaults", "pays")
    late = np.rint(random.normal(-reliable, 0.5))
    bank = pd.DataFrame({"client": clients, "late": late, "limit": random.normal(reliable), "default": default})
    shop = pd.DataFrame({"client": clients, "spent": random.normal(reliable), "visits": random.normal(reliable)})
    for department in range(6):
        shop[f"department_{department}"] = random.normal(0.3 * reliable)
    # 200 are known to both, and 300 to the shop only; of these, 200 come in later.
    return bank[:600], shop[400:700], shop[700:], default[700:]


if __name__ == "__main__":
    main()
