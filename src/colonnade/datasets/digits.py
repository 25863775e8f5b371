"""Digits: 1797 handwritten numerals of 8 x 8 pixels, bundled with scikit-learn, cut into a left and a right half.

E. Alpaydin and C. Kaynak, 1998; UCI Machine Learning Repository, CC BY 4.0 (the test part of the set).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

__all__ = ["digits_few_shared", "digits_halves"]


def digits_halves() -> dict[str, pd.DataFrame]:
    """Return the tables of the left and of the right halves, 32 pixels each, all numerals.

    Both carry the numeral's `id`; the left one also carries the label `digit`.
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    tables = {}
    for side, columns in (("left", range(4)), ("right", range(4, 8))):
        names = [f"pixel_{row}_{column}" for row in range(8) for column in columns]
        table = pd.DataFrame(data.images[:, :, columns].reshape(len(data.images), -1), columns=names)
        table.insert(0, "id", range(1, len(table) + 1))
        tables[side] = table
    tables["left"]["digit"] = data.target.astype("int64")
    return tables


def digits_few_shared(*, shared: int = 700, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Return the tables of `left` and `right` of which each lacks one half of the numerals that are not shared."""
    order = np.random.default_rng(seed).permutation(len(digits_halves()["left"]))
    middle = shared + (len(order) - shared) // 2
    places = {"left": order[:middle], "right": np.concatenate([order[:shared], order[middle:]])}
    return {side: table.iloc[np.sort(places[side])].reset_index(drop=True) for side, table in digits_halves().items()}
