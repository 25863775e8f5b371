"""A feature holder looks for labels in the coefficients of columns that few rows carry."""

from __future__ import annotations

import numpy as np
import pandas as pd
from tests.unit.methods.secure_lr.worlds import frames, tables
from tests.worlds import integers_for_ciphertexts

import colonnade as cn

TARGETS = 99


def with_rare_categories(found: dict[str, pd.DataFrame]) -> tuple[dict[str, pd.DataFrame], dict[str, int]]:
    """Give many of the shop's rows a category of their own, and return the label of each such category."""
    shop, labels, truth = found["shop"].copy(), found["bank"]["y"].to_numpy(), {}
    for number, column in enumerate(("branch", "agent", "site")):
        values = np.full(len(shop), "usual", dtype=object)
        for row in range(49 * number, 49 * (number + 1)):
            values[row] = f"x{row}"
            truth[f"{column}=x{row}"] = labels[row]
        shop[column] = values
    return found | {"shop": shop}, truth


def test_an_unchanged_feature_holder_has_no_coefficient_of_a_column_that_few_rows_carry() -> None:
    found, truth = with_rare_categories(frames())
    with integers_for_ciphertexts():
        run = cn.simulate(cn.SecureLR(key_size="insecure_test"), tables(found), seed=7)
    read = {name: value[0] for name, value in run.coefficients["shop"].items() if name in truth}
    right = sum((value > 0) == truth[name] for name, value in read.items())
    print(right, len(read))
    assert not read
