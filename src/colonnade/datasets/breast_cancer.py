"""Breast cancer (Wisconsin, diagnostic): 569 patients, bundled with scikit-learn.

W. N. Street, W. H. Wolberg and O. L. Mangasarian, 1993; UCI Machine Learning Repository, CC BY 4.0.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

__all__ = ["breast_cancer"]

# What a hospital sees under its own microscope; the laboratory measures the shape of the nuclei.
_HOSPITAL = ("texture", "smoothness", "symmetry", "fractal dimension")


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
