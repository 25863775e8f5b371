"""Write the tables of the three homes: a bank with few labels, a sister bank with many, and a company with columns.

The people are those of a made-up town (`colonnade.datasets.town_people`). The bank's clients are better off than the
sister's. Run it with `python examples/prada_census/make_tables.py`; give a folder to write elsewhere than beside it,
and a number of the sister's clients to write fewer or more.
"""

from __future__ import annotations

import sys
from pathlib import Path

from colonnade.datasets import town_later, town_sister_banks


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    tables = town_sister_banks(source=int(sys.argv[2])) if len(sys.argv) > 2 else town_sister_banks()
    # They come in later. How it went with them is kept apart, to hold their scores against it.
    later = town_later()
    outcomes = later["bank"][["customer", "paid_back"]]
    for file, frame in (
        ("sister/clients.csv", tables["sister"]),
        ("bank/clients.csv", tables["bank"]),
        ("bank/new.csv", later["bank"].drop(columns="paid_back")),
        ("data/people.csv", tables["data"]),
        ("data/new.csv", later["data"]),
        ("outcomes.csv", outcomes),
    ):
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.to_csv(path, index=False)
        print(f"{path}: {len(frame)} made-up people")


if __name__ == "__main__":
    main()
