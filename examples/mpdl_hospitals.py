"""Two hospitals know different things about few of the same patients; each learns to generate the other's columns.

So a patient whom only one of them knows can be scored. A third party, which has no table, adds up and has the upper
layers. The patients are those of the breast cancer data that comes with scikit-learn. `examples/mpdl_hospitals/` has
the same as three homes. Run it with `python examples/mpdl_hospitals.py`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import colonnade as cn
from colonnade.datasets import BREAST_CANCER_BOUNDS, breast_cancer_views

ROLES = {"label_holder": "north", "feature_holder": "south", "collaborator": "institute"}
EVALUATE = cn.Evaluate(test_fraction=0.2)


def main() -> None:
    views = breast_cancer_views()
    order = np.random.default_rng(5).permutation(len(views["b"]))
    north, south = (views[side].iloc[order] for side in ("b", "a"))
    # Both know 150 of them, each one knows 150 others; 117 come in later, a third of them known to both.
    tables = {"north": table("north", north[:300], label="diagnosis"), "south": table("south", south[150:450])}
    new = {
        "north": table("north", north[450:528].drop(columns="diagnosis")),
        "south": table("south", pd.concat([south[450:489], south[528:567]])),
    }
    truth = north.set_index("patient")["diagnosis"]

    # Bounds are agreed on, from what is known about such measurements; they must not come from the tables.
    for name, protection in (("noise in every cell", {"epsilon": 0.5}), ("no noise", {"mechanism": "none"})):
        config = cn.MPDL(bounds=BREAST_CANCER_BOUNDS, batch_size=32, **protection)
        run = cn.simulate(config, tables, roles=ROLES, seed=7, evaluate=EVALUATE)
        print(f"With {name}: accuracy {run.metrics['accuracy']:.3f} on {run.rows['test']} held-out patients")
        print(f"  {run.findings['privacy of south'].text.split(' The paper')[0]}")
        for party in tables:
            found = run.findings[f"generated columns of {party}"].values
            print(
                f"  {party} generates {found['columns']} columns: R² {found['r_squared']:.2f} against what was released"
            )

        # Both hospitals get scores of the patients whom only they know; the others' columns of them are generated.
        scored = run.predict(new)
        scored["right"] = scored["prediction"].to_numpy() == truth[scored["patient"]].to_numpy()
        print("  New patients, and how many are predicted right:")
        for known, rows in scored.groupby("known to"):
            print(f"    {known:16}{len(rows):4}{rows['right'].mean():8.0%}")
        print("  What each party sent, by protection:")
        for party in ("north", "south", "institute"):
            sent = run.ledgers[party].bytes_sent()
            counts = ", ".join(f"{kind} {count:,} bytes" for kind, count in sorted(sent.items()))
            print(f"    {party:12}{counts}")
        run.verify()
        print()


def table(party: str, frame: pd.DataFrame, label: str | None = None) -> cn.PartyTable:
    """Return a hospital's table."""
    return cn.PartyTable(frame, id="patient", label=label, name=party)


if __name__ == "__main__":
    main()
