"""Write the tables of two hospitals that know different things about different patients, some of them the same.

The patients are those of the breast cancer data that comes with scikit-learn. The third home, the institute's, has no
table. Run it with `python examples/mpdl_hospitals/make_tables.py`; give a folder to write elsewhere than beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from colonnade.datasets import breast_cancer_views

SHARED, NORTH_ONLY, SOUTH_ONLY = 150, 150, 150
# Of the patients that come in later, so many are known to both, and so many to each one only.
NEW = 39


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    views = breast_cancer_views()
    north, south = views["b"], views["a"]
    order = np.random.default_rng(11).permutation(len(north))
    shared, at_north, at_south, *new = np.split(
        order[: SHARED + NORTH_ONLY + SOUTH_ONLY + 3 * NEW],
        np.cumsum([SHARED, NORTH_ONLY, SOUTH_ONLY, NEW, NEW]),
    )
    for frame, rows, file in (
        (north, [shared, at_north], "north/patients.csv"),
        (north.drop(columns="diagnosis"), new[:2], "north/new.csv"),
        (south, [shared, at_south], "south/patients.csv"),
        (south, new[::2], "south/new.csv"),
    ):
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        chosen = frame.iloc[np.sort(np.concatenate(rows))]
        chosen.to_csv(path, index=False)
        print(f"{path}: {len(chosen)} patients")


if __name__ == "__main__":
    main()
