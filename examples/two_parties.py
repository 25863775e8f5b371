"""Two parties train one model in one process, and we look at what crossed.

A hospital holds diagnoses and some columns; a laboratory holds other columns about partly the same patients. The data
is scikit-learn's breast cancer set, split vertically. Run it with `python examples/two_parties.py`.
"""

from __future__ import annotations

import colonnade as cn
from colonnade.datasets import breast_cancer


def main() -> None:
    frames = breast_cancer()
    hospital = cn.PartyTable(frames["hospital"], id="patient", label="diagnosis", name="hospital")
    laboratory = cn.PartyTable(frames["laboratory"], id="patient", name="laboratory")

    config = cn.SplitNN(hidden=(32,), cut_width=16, batch_size=64, learning_rate=0.003, epochs=20)
    run = cn.simulate(config, {"hospital": hospital, "laboratory": laboratory}, seed=7, compare=True)

    print(f"Rows shared and used: {run.rows}")
    for name, evaluation in run.evaluations.items():
        print(f"{name:10} AUC {evaluation.metrics['auc']:.3f} on {evaluation.rows} held-out rows")

    print("\nWhat left each party, as its own ledger counted it:")
    for party, ledger in run.ledgers.items():
        for total in ledger.summary():
            if total.direction == "sent":
                what = f"{total.count:4} x {total.message:18} {total.protection}"
                print(f"{party:10} -> {total.peer:10} {what} {total.bytes:8} bytes")

    run.verify()
    print("\nBoth ledgers are whole, and they agree with each other.")


if __name__ == "__main__":
    main()
