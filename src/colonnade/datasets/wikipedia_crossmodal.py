"""Wikipedia's featured articles, each seen twice: as an image and as a text; 2866 articles of 10 categories.

N. Rasiwasia and others, "A New Approach to Cross-Modal Multimedia Retrieval", 2010; for research. An image is a
histogram of 128 SIFT words, a text is its share of 10 topics (latent Dirichlet allocation).
"""

from __future__ import annotations

import pandas as pd

from colonnade.datasets.files import data_file
from colonnade.errors import ConfigError, did_you_mean

__all__ = ["WIKIPEDIA_CATEGORIES", "wikipedia_crossmodal"]

WIKIPEDIA_CATEGORIES = (
    "art",
    "biology",
    "geography",
    "history",
    "literature",
    "media",
    "music",
    "royalty",
    "sport",
    "warfare",
)
"""The categories, in the order of the data's label numbers 1 to 10."""

_ORIGIN = "svcl.ucsd.edu/projects/crossmodal (labels, split, SIFT words and topics in one Parquet file)"
_PREFIXES = {"image": "sift_", "text": "lda_"}


def wikipedia_crossmodal(*, label_at: str = "text") -> dict[str, pd.DataFrame]:
    """Return the tables of the images (128 columns) and of the texts (10 columns), all articles.

    Both carry the article's `id`; the side `label_at` also carries the label `category`, a word.
    """
    if label_at not in _PREFIXES:
        raise ConfigError(f"There is no side '{label_at}' to carry the label. {did_you_mean(label_at, _PREFIXES)}")
    everything = pd.read_parquet(data_file("wikipedia_crossmodal/wikipedia.parquet", _ORIGIN))
    tables = {}
    for side, prefix in _PREFIXES.items():
        table = everything.filter(regex=f"^{prefix}").astype("float64")
        table.insert(0, "id", range(1, len(table) + 1))
        if side == label_at:
            table["category"] = [WIKIPEDIA_CATEGORIES[number - 1] for number in everything["label"]]
        tables[side] = table
    return tables
