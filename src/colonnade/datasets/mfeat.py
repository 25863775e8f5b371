"""Multiple Features: 2000 handwritten numerals, each described six times; 200 of every digit.

R. P. W. Duin, UCI Machine Learning Repository, CC BY 4.0. The descriptions are natural views for two to six parties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from colonnade.datasets.files import data_file
from colonnade.errors import ConfigError, did_you_mean

__all__ = ["MFEAT_VIEWS", "mfeat"]

MFEAT_VIEWS = {
    "fac": "216 profile correlations",
    "fou": "76 Fourier coefficients of the shape",
    "kar": "64 Karhunen-Loeve coefficients",
    "mor": "6 morphological features",
    "pix": "240 averages of pixels",
    "zer": "47 Zernike moments",
}
"""The descriptions of a numeral, by the word their columns begin with."""

_ORIGIN = "archive.ics.uci.edu/dataset/72 (the six files side by side in one Parquet file, with the column 'label')"
_TWO_PARTIES = {"a": ("fou",), "b": ("kar",)}


def mfeat(*, views: Mapping[str, Sequence[str]] = _TWO_PARTIES, label_at: str | None = None) -> dict[str, pd.DataFrame]:
    """Return one table per party of `views`, all numerals, with the columns of the descriptions it is given.

    All carry the numeral's `id`; the party `label_at`, by default the first, also carries the label `digit`. The rows
    are in the order of their digits, as published: divide them at random.
    """
    label_at = next(iter(views), "") if label_at is None else label_at
    if label_at not in views:
        raise ConfigError(f"There is no party '{label_at}' to carry the label. {did_you_mean(label_at, views)}")
    for party, prefixes in views.items():
        # A string is a sequence too, and would be read letter by letter.
        if isinstance(prefixes, str) or not prefixes:
            raise ConfigError(f"Give the views of '{party}' as a tuple with at least one of {', '.join(MFEAT_VIEWS)}.")
        for prefix in prefixes:
            if prefix not in MFEAT_VIEWS:
                raise ConfigError(f"There is no view '{prefix}' for '{party}'. {did_you_mean(prefix, MFEAT_VIEWS)}")
    everything = pd.read_parquet(data_file("mfeat/mfeat.parquet", _ORIGIN))
    tables = {}
    for party, prefixes in views.items():
        table = everything.filter(regex=f"^({'|'.join(prefixes)})_").astype("float64")
        table.insert(0, "id", range(1, len(table) + 1))
        if party == label_at:
            table["digit"] = everything["label"].astype("int64")
        tables[party] = table
    return tables
