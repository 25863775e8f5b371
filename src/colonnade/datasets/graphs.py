"""Social networks with personal features: who knows whom, what is known of each, and a label.

Hamilton46 of Facebook100 (A. L. Traud, P. J. Mucha and M. A. Porter, 2012) and ego 107 of SNAP ego-Facebook (J. McAuley
and J. Leskovec, 2012); for research. The paper on multi-party dual learning uses the first; the second stands in for
its network of Google+, which is not to be had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.datasets.files import data_file

__all__ = ["SocialGraph", "ego_facebook", "hamilton46"]

_FACEBOOK100 = "archive.org/details/oxford-2005-facebook-matrix (Hamilton46.mat as Parquet: nodes, and edges once each)"
_SNAP = "snap.stanford.edu/data/ego-Facebook.html (ego 107 as Parquet: nodes, and edges once each)"
_HAMILTON = ("gender", "major_index", "second_major", "dorm", "year")


@dataclass(frozen=True)
class SocialGraph:
    """People by place: features of 0 and 1, pairs who know each other (once, the lower place first), and labels."""

    ids: tuple[str, ...]
    features: npt.NDArray[np.float32]
    columns: tuple[str, ...]
    levels: Mapping[str, int]
    """How many of the columns each category takes, in their order: exactly one of them is 1. Empty if they are free."""
    edges: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    classes: tuple[str, ...]


def hamilton46() -> SocialGraph:
    """Return the 2118 people of Hamilton College with a known year, their 87486 links and their status as label.

    Gender, major, second major, dormitory and year take 3 + 48 + 50 + 27 + 16 = 144 columns, as many as in the paper,
    if unknown counts as a category and categories are those of all 2314 people; the column of the unknown year is
    then empty. Left out is the high school, with 1038 categories. The paper counts five kinds of status; there are six,
    of 1708, 397, 2, 2, 8 people and 1.
    """
    everyone = pd.read_parquet(data_file("facebook100/Hamilton46_nodes.parquet", _FACEBOOK100))
    links = pd.read_parquet(data_file("facebook100/Hamilton46_edges.parquet", _FACEBOOK100))
    columns = {
        f"{name}={level}": everyone[name] == level for name in _HAMILTON for level in sorted(everyone[name].unique())
    }
    is_kept = everyone["year"] > 0
    nodes = everyone[is_kept]
    status = [f"student_fac={flag}" for flag in nodes["student_fac"]]
    levels = {name: int(everyone[name].nunique()) for name in _HAMILTON}
    return _graph(nodes["node"], pd.DataFrame(columns)[is_kept], links, status, levels)


def ego_facebook() -> SocialGraph:
    """Return the 1033 friends of person 107 with a known gender, their links, and the gender as label.

    The 574 other features may hold several at a time, or none.
    """
    everyone = pd.read_parquet(data_file("ego_facebook/107_nodes.parquet", _SNAP))
    links = pd.read_parquet(data_file("ego_facebook/107_edges.parquet", _SNAP))
    genders = everyone.filter(regex="^gender_")
    nodes = everyone[genders.sum(axis=1) == 1]
    features = nodes.drop(columns=["node", *genders.columns])
    return _graph(nodes["node"], features, links, [str(name) for name in genders.loc[nodes.index].idxmax(axis=1)], {})


def _graph(
    nodes: pd.Series[int], features: pd.DataFrame, links: pd.DataFrame, labels: list[str], levels: Mapping[str, int]
) -> SocialGraph:
    """Return the part of a graph that has these nodes, numbered from 0."""
    places = pd.Series(np.arange(len(nodes)), index=nodes.to_numpy())
    known = links[links["src"].isin(places.index) & links["dst"].isin(places.index)]
    ends = np.stack([places[known["src"]].to_numpy(), places[known["dst"]].to_numpy()], axis=1)
    classes, numbers = np.unique(labels, return_inverse=True)
    return SocialGraph(
        ids=tuple(f"node_{node:04d}" for node in nodes),
        features=features.to_numpy(np.float32),
        columns=tuple(features.columns),
        levels=levels,
        edges=np.sort(ends, axis=1).astype(np.int64),
        labels=numbers.astype(np.int64),
        classes=tuple(classes.tolist()),
    )
