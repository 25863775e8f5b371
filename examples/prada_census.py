"""A sister bank's labels help a bank that has few, over groups of a data company's columns: PrADA in one process.

The people are those of a made-up town, for which PrADA's assumption holds: what tells who pays back is the same at both
banks, the sister knows it of many and the bank of few, and the columns are the company's. What the method does on real
people is on the page of its results. The groups' numbers cross in the clear here (`protection = "none"`), so that this
takes about a minute. `examples/prada_census/` has the same as three homes. Run it with
`python examples/prada_census.py`.
"""

from __future__ import annotations

from typing import Any

import colonnade as cn
from colonnade.datasets import TOWN_GROUPS, town_sister_banks
from colonnade.demos import DEMOS, judge_controls, tables_of, verdict


def main() -> None:
    demo = DEMOS["prada"]
    tables = tables_of(demo, town_sister_banks())
    # The company's columns by subject; `cn.propose_groups` proposes some. Every two groups make a third.
    groups = {name: tuple(columns) for name, columns in TOWN_GROUPS.items()}
    config = cn.PrADA(groups=groups, protection="none", explanations=True, pictures=False)
    evaluate = cn.Evaluate(test_fraction=0.1, validation_fraction=0.1)
    run = cn.simulate(config, tables, roles=demo.roles, seed=7, evaluate=evaluate)
    for name in ("transfer", "label protection"):
        show(run.findings[name])

    # The bank's few labelled rows say little about how good its model is. So customers who came later are scored, and
    # that is held against how it went with them, beside what the bank could do without its sister.
    print("\nAUC on customers who came later")
    found = judge_controls(demo, {"train": run}, tables)
    for model, figures in found.items():
        print(f"  {model:76}{figures['AUC'].value:.3f}")
    for sentence in verdict(demo, found):
        print(f"Verdict: {sentence}")

    # Only the bank sees what each group adds to a score, and only because all parties agreed to it.
    here = {party: tables[party] for party in ("bank", "data")}
    part = {"target": "bank", "feature_holder": "data"}
    explained = cn.simulate(config, here, roles=part, seed=7, evaluate=evaluate, stage="explain", after=run)
    show(explained.findings["explanation"])

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


if __name__ == "__main__":
    main()
