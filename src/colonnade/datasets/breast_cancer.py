"""Breast cancer (Wisconsin, diagnostic): 569 patients, bundled with scikit-learn.

W. N. Street, W. H. Wolberg and O. L. Mangasarian, 1993; UCI Machine Learning Repository, CC BY 4.0.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

__all__ = ["BREAST_CANCER_BOUNDS", "breast_cancer", "breast_cancer_hospitals", "breast_cancer_views"]

# What a hospital sees under its own microscope; the laboratory measures the shape of the nuclei.
_HOSPITAL = ("texture", "smoothness", "symmetry", "fractal dimension")

_LARGEST = {
    "radius": (30.0, 3.0, 40.0),
    "texture": (40.0, 5.0, 50.0),
    "perimeter": (200.0, 30.0, 300.0),
    "area": (3000.0, 600.0, 5000.0),
    "smoothness": (0.2, 0.04, 0.3),
    "compactness": (0.4, 0.15, 1.5),
    "concavity": (0.5, 0.4, 1.5),
    "concave points": (0.3, 0.06, 0.3),
    "symmetry": (0.4, 0.08, 0.8),
    "fractal dimension": (0.1, 0.03, 0.3),
}

BREAST_CANCER_BOUNDS = {
    name: (0.0, largest)
    for word, (mean, error, worst) in _LARGEST.items()
    for name, largest in ((f"mean {word}", mean), (f"{word} error", error), (f"worst {word}", worst))
}
"""Bounds of the 30 columns: from 0 to the largest published value, rounded up. Real parties would agree on them from
what is known of such measurements, not from their tables."""


def breast_cancer(*, hospital_rows: int = 500, laboratory_rows: int = 510, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Return the tables of a hospital (labels, some columns) and a laboratory (other columns).

    Each knows only some of the patients, in an order of its own.
    """
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer(as_frame=True)
    everyone = data.frame.drop(columns="target")
    everyone.insert(0, "patient", [f"P{number:04d}" for number in range(len(everyone))])
    generator = np.random.default_rng(seed)
    diagnosis = np.where(data.target == 1, "benign", "malignant")

    own = [name for name in everyone.columns[1:] if any(word in name for word in _HOSPITAL)]
    other = [name for name in everyone.columns[1:] if name not in own]
    hospital = everyone[["patient", *own]].assign(diagnosis=diagnosis)
    laboratory = everyone[["patient", *other]]
    return {
        "hospital": hospital.iloc[generator.permutation(len(hospital))[:hospital_rows]].reset_index(drop=True),
        "laboratory": laboratory.iloc[generator.permutation(len(laboratory))[:laboratory_rows]].reset_index(drop=True),
    }


def breast_cancer_views() -> dict[str, pd.DataFrame]:
    """Return the tables of party `a` (the last 15 columns) and of party `b` (the first 15 and `diagnosis`), everyone.

    Both carry the `patient`. The paper on multi-party dual learning assigns columns at random, each trial anew.
    """
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer(as_frame=True)
    patients = [f"P{number:04d}" for number in range(len(data.data))]
    tables = {}
    for party, columns in (("a", data.data.iloc[:, 15:]), ("b", data.data.iloc[:, :15])):
        tables[party] = columns.copy()
        tables[party].insert(0, "patient", patients)
    tables["b"]["diagnosis"] = np.where(data.target == 1, "benign", "malignant")
    return tables


def breast_cancer_hospitals(*, shared: int = 230, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Return the tables of two hospitals that share few patients; each knows one half of the others.

    `north` has the first 15 columns and `diagnosis`, `south` the other columns.
    """
    views = breast_cancer_views()
    order = np.random.default_rng(seed).permutation(len(views["b"]))
    middle = shared + (len(order) - shared) // 2
    places = {"north": order[:middle], "south": np.concatenate([order[:shared], order[middle:]])}
    return {
        hospital: views[view].iloc[np.sort(places[hospital])].reset_index(drop=True)
        for hospital, view in (("north", "b"), ("south", "a"))
    }
