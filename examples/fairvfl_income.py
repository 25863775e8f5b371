"""Three platforms and a tax office predict income from a code that tells less of gender and age than a plain one.

Gender and age sit at two further parties, which help to remove them; a server without a table makes the code. An audit
then tries what attackers still read, and counts decisions by group. The people are those of the Adult data, which must
be on this machine. `examples/fairvfl_income/` has the same as seven homes. Run it with
`python examples/fairvfl_income.py`.
"""

from __future__ import annotations

import pandas as pd

import colonnade as cn
from colonnade.datasets import adult_platforms
from colonnade.errors import TableError

# Who has which of the tables that the data is dealt into; the server has none.
HOLDERS = {
    "tax": "task",
    "platform_1": "platform_1",
    "platform_2": "platform_2",
    "platform_3": "platform_3",
    "registry": "gender",
    "insurer": "age",
}
ROLES = {
    "label_holder": "tax",
    "feature_holder": ["platform_1", "platform_2", "platform_3"],
    "aggregator": "server",
    "attribute_holder": ["registry", "insurer"],
}
EVALUATE = cn.Evaluate(test_fraction=0.25, validation_fraction=0.15)
SETTINGS = {"attributes": ("gender", "age"), "width": 64, "epochs": 8, "batch_size": 32, "attackers": 1}


def main() -> None:
    people = adult()
    tables = {party: table(party, people[name][:-100]) for party, name in HOLDERS.items()}
    # Who has nothing but a sensitive column has no part in scoring.
    new = {party: table(party, people[HOLDERS[party]][-100:]) for party in list(HOLDERS)[:4]}

    for name, config in (
        # A plain vertical model: nothing is removed, and the code is wide and without noise.
        ("Nothing removed", cn.FairVFL(**SETTINGS, removal="paper", removal_weight=0.0, contrastive_weight=0.0)),
        ("Gender and age removed", cn.FairVFL(**SETTINGS, removal_weights={"gender": 2.0, "age": 0.1})),
    ):
        run = cn.simulate(config, tables, roles=ROLES, seed=7, evaluate=EVALUATE)
        accuracy, area, rows = run.metrics["accuracy"], run.metrics["auc"], run.rows["test"]
        print(f"{name}: accuracy {accuracy:.3f}, AUC {area:.3f} on {rows} held-out people")

        # The holders of attributes and of columns are given codes, and try what they can read.
        audit = cn.simulate(config, tables, roles=ROLES, seed=7, evaluate=EVALUATE, stage="audit", after=run)
        for attribute in config.attributes:
            read = audit.findings[f"attack_{attribute}"].values
            areas = ", ".join(f"{kind} {found['auc']:.2f}" for kind, found in read.items())
            print(f"  {attribute} as attackers read it from the code, by AUC: {areas}")
        gaps = audit.findings["gaps"]
        for attribute, decided, gap, found, interval in gaps.rows:
            if decided == "at base rate" and gap != "equal opportunity":
                print(f"  {attribute}: {gap} gap {found} ({interval})")
        print(f"  {audit.findings['audit'].text}")

        scored = run.predict(new)
        print(
            f"  {len(scored)} new people scored, {(scored['prediction'] == '>50K').sum()} of them above 50,000 dollars"
        )
        for party in ("tax", "registry", "server"):
            sent = run.ledgers[party].bytes_sent()
            counts = ", ".join(f"{kind} {count:,} bytes" for kind, count in sorted(sent.items()))
            print(f"  {party} sent {counts}")
        run.verify()
        audit.verify()
        print()


def adult() -> dict[str, pd.DataFrame]:
    """Return the tables of all platforms, or say where the data is to be had."""
    try:
        return adult_platforms(rows=2100, seed=0)
    except TableError as error:
        raise SystemExit(str(error)) from None


def table(party: str, frame: pd.DataFrame) -> cn.PartyTable:
    """Return a party's table."""
    return cn.PartyTable(frame, id="id", label="income" if "income" in frame else None, name=party)


if __name__ == "__main__":
    main()
