"""Write the tables of six parties that know different things about the same people; the seventh has none.

The people are those of the Adult data (US census of 1994), dealt as in FairVFL's experiment: three platforms have what
a model may use, the tax office the income, the registry gender and the insurer age. Run it with
`python examples/fairvfl_income/make_tables.py`; give a folder to write elsewhere than beside it, and a number of people
to write fewer or more.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from colonnade.datasets import adult_platforms
from colonnade.errors import TableError

PEOPLE = 4000
# How many of them come in later, to be scored.
NEW = 100
HOMES = {
    "platform_1": "platform_1",
    "platform_2": "platform_2",
    "platform_3": "platform_3",
    "tax": "task",
    "registry": "gender",
    "insurer": "age",
}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    people = int(sys.argv[2]) if len(sys.argv) > 2 else PEOPLE
    try:
        tables = adult_platforms(rows=people, seed=0)
    except TableError as error:
        raise SystemExit(str(error)) from None
    for home, name in HOMES.items():
        frame = tables[name]
        write(folder / home / "people.csv", frame[:-NEW])
        # Who has nothing but an attribute has no part in scoring, and nobody knows the new people's income.
        if home not in ("registry", "insurer"):
            write(folder / home / "new.csv", frame[-NEW:].drop(columns="income", errors="ignore"))


def write(path: Path, frame: pd.DataFrame) -> None:
    """Write the table of one party, and say what is in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False)
    print(f"{path}: {len(frame)} people, {', '.join(frame.columns[1:]) or 'ids only'}")


if __name__ == "__main__":
    main()
