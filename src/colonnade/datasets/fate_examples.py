"""FATE's own vertical example data: the same people at a guest, who has the labels, and at a host.

The tables are those of the FATE project's examples/data folder, stored as Parquet.
"""

from __future__ import annotations

import pandas as pd

from colonnade.datasets.files import data_file
from colonnade.errors import ConfigError, did_you_mean

__all__ = ["FATE_EXAMPLES", "fate_example"]

FATE_EXAMPLES = {
    "breast_hetero": ("id", "y"),
    "default_credit_hetero": ("id", "y"),
    "motor_hetero": ("idx", "motor_speed"),
}
"""The id column and the guest's label column of each pair of tables."""

_ORIGIN = "github.com/FederatedAI/FATE, folder examples/data (each CSV file saved as Parquet)"


def fate_example(name: str) -> dict[str, pd.DataFrame]:
    """Return the tables of the guest (labels, some columns) and the host (other columns)."""
    if name not in FATE_EXAMPLES:
        raise ConfigError(f"There is no FATE example '{name}'. {did_you_mean(name, FATE_EXAMPLES)}")
    return {
        side: pd.read_parquet(data_file(f"fate_vertical_examples/{name}_{side}.parquet", _ORIGIN))
        for side in ("guest", "host")
    }
