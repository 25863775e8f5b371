"""MIND: which news readers of Microsoft News were shown and clicked in 2019, and what they had clicked before.

F. Wu et al., "MIND: A Large-scale Dataset for News Recommendation" (ACL 2020); Microsoft Research licence, for research
only. A log of impressions and a list of news, as the published tab-separated files or as Parquet with column names. It
knows one kind of behaviour, clicks, and neither gender nor age.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pandas as pd

from colonnade.datasets.files import data_file
from colonnade.datasets.titles import join_titles, title_words
from colonnade.errors import ConfigError, TableError, did_you_mean

__all__ = [
    "MIND_NO_TITLE",
    "MindImpression",
    "MindNews",
    "MindPlatforms",
    "mind_platforms",
    "mind_sample",
    "read_mind_impressions",
    "read_mind_news",
]

MIND_NO_TITLE = "untitled"
"""What stands in a table for news of which the list has no title."""

_ORIGIN = "msnews.github.io (behaviors.tsv and news.tsv, or a sample of them, saved as Parquet with column names)"
_IMPRESSION_COLUMNS = ("impression_id", "user_id", "time", "history", "impressions")
_NEWS_COLUMNS = (
    *("news_id", "category", "subcategory", "title", "abstract"),
    *("url", "title_entities", "abstract_entities"),
)
_TIME = "%m/%d/%Y %I:%M:%S %p"
_SHOWN = re.compile(r"(\S+)-([01])")
_PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class MindNews:
    """One piece of news, in the words it was published in; the abstract may be empty."""

    news: str
    category: str
    subcategory: str
    title: str
    abstract: str


@dataclass(frozen=True)
class MindImpression:
    """What one reader was shown at one time, which of it was clicked, and what the reader had clicked before."""

    impression: int
    user: str
    time: datetime
    """MIND does not say in which zone."""
    history: tuple[str, ...]
    """Ids of news, the most recent last; empty for a reader not seen before."""
    shown: tuple[str, ...]
    clicks: tuple[int, ...]


@dataclass(frozen=True)
class MindPlatforms:
    """Hold the tables of the platforms, and say how much of the news in them has no title."""

    tables: dict[str, pd.DataFrame]
    shown: int
    shown_untitled: int
    read: int
    read_untitled: int


def mind_sample(*, history: int = 50) -> MindPlatforms:
    """Return a third party's sample of MIND-small: 5000 impressions and 2000 news, drawn separately.

    Only 3 % of the news shown and 4 % of the news read before has a title; the rest is `MIND_NO_TITLE`. Fit to try the
    format, not to report how well a model does.
    """
    impressions = read_mind_impressions(data_file("mind_sample/behaviors.parquet", _ORIGIN))
    news = read_mind_news(data_file("mind_sample/news.parquet", _ORIGIN))
    return mind_platforms(impressions, news, history=history, allow_untitled=True)


def mind_platforms(
    impressions: Iterable[MindImpression],
    news: Mapping[str, MindNews],
    *,
    part: str = "train",
    history: int = 50,
    allow_untitled: bool = False,
) -> MindPlatforms:
    """Return the tables `clicked` and `task`, in the shape of `movielens_platforms`, one row per impression.

    `clicked` holds the `user` and as `history` the titles clicked before, at most so many, the most recent last.
    `task` holds the titles shown as `candidates`, their `clicks`, and the `part`, the same in all rows: MIND has a file
    for each. Ids begin with the part, since all files count from 1. News that is not in the list, or whose title has
    no words, is refused; with `allow_untitled` it keeps its place as `MIND_NO_TITLE`, and is counted.
    """
    if part not in _PARTS:
        raise ConfigError(f"There is no part '{part}'. {did_you_mean(part, _PARTS)}")
    if history < 1:
        raise ConfigError(f"history is {history}; give at least 1.")
    titles = {item: words for item, one in news.items() if (words := title_words(one.title))}
    log = list(impressions)
    past = [one.history[-history:] for one in log]
    shown, read = sum(len(one.shown) for one in log), sum(map(len, past))
    shown_untitled = sum(item not in titles for one in log for item in one.shown)
    read_untitled = sum(item not in titles for items in past for item in items)
    if (shown_untitled or read_untitled) and not allow_untitled:
        raise TableError(
            f"{shown_untitled} of {shown} news shown and {read_untitled} of {read} news read before have no title in "
            "the list of news. Give the list that belongs to this log, or set allow_untitled to go on without them."
        )
    ids = [f"{part}_{one.impression:07d}" for one in log]
    if len(set(ids)) < len(ids):
        raise TableError(f"{len(ids) - len(set(ids))} impressions repeat the id of another. Give one file at a time.")

    def text(items: Iterable[str]) -> str:
        return join_titles(titles.get(item, MIND_NO_TITLE) for item in items)

    tables = {
        "clicked": pd.DataFrame({"id": ids, "user": [one.user for one in log], "history": [text(one) for one in past]}),
        "task": pd.DataFrame(
            {
                "id": ids,
                "candidates": [text(one.shown) for one in log],
                "clicks": [" ".join(map(str, one.clicks)) for one in log],
                "part": part,
            }
        ),
    }
    return MindPlatforms(tables, shown, shown_untitled, read, read_untitled)


def read_mind_impressions(path: str | Path) -> list[MindImpression]:
    """Return the impressions of a file such as `behaviors.tsv`, or of Parquet with the columns' usual names."""
    return [_impression(fields, where) for fields, where in _lines(Path(path), _IMPRESSION_COLUMNS)]


def read_mind_news(path: str | Path) -> dict[str, MindNews]:
    """Return the news of a file such as `news.tsv` by their id, or of Parquet with the columns' usual names."""
    news: dict[str, MindNews] = {}
    for fields, where in _lines(Path(path), _NEWS_COLUMNS):
        one = MindNews(*fields[:5])
        if not one.news or one.news in news:
            raise TableError(f"{where} has no id of its own. Every piece of news needs one; mend or get the file anew.")
        news[one.news] = one
    return news


def _impression(fields: tuple[str, ...], where: str) -> MindImpression:
    number, user, time, history, impressions = fields
    if not number.isdecimal() or not user:
        raise TableError(f"{where} does not begin with the number of an impression and a user. Mend or leave it out.")
    try:
        moment = datetime.strptime(time, _TIME)
    except ValueError:
        raise TableError(f"The time in {where} is not like '11/12/2019 2:14:46 PM'. Mend or leave it out.") from None
    shown = [_SHOWN.fullmatch(item) for item in impressions.split()]
    pairs = [item.groups() for item in shown if item]
    if not pairs or len(pairs) < len(shown):
        raise TableError(
            f"{len(shown) - len(pairs)} of {len(shown)} news shown in {where} are not an id and a click, such as "
            "'N1-0 N2-1'. MIND's test file has no clicks: use those for training and validation."
        )
    return MindImpression(
        impression=int(number),
        user=user,
        time=moment,
        history=tuple(history.split()),
        shown=tuple(item for item, _ in pairs),
        clicks=tuple(int(click) for _, click in pairs),
    )


def _lines(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the fields of each line, and the words to name that line by in an error."""
    if not path.is_file():
        raise TableError(f"There is no file {path}. Get MIND from {_ORIGIN}.")
    if path.suffix == ".parquet":
        table = pd.read_parquet(path)
        absent = [name for name in columns if name not in table.columns]
        if absent:
            raise TableError(f"{path} has no column {', '.join(absent)}. It needs {', '.join(columns)}.")
        rows = table[list(columns)].astype("string").fillna("").itertuples(index=False, name=None)
        for number, fields in enumerate(rows, start=1):
            yield tuple(fields), f"row {number} of {path}"
        return
    # Decoded line by line, so that a file in another encoding is refused by the line where it shows.
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                fields = tuple(line.decode("utf-8").rstrip("\r\n").split("\t"))
            except UnicodeDecodeError:
                raise TableError(f"Line {number} of {path} is not in UTF-8. Save the file in UTF-8.") from None
            if len(fields) != len(columns):
                raise TableError(
                    f"Line {number} of {path} has {len(fields)} fields between tabs, not {len(columns)}: "
                    f"{', '.join(columns)}. Mend or leave it out."
                )
            yield fields, f"line {number} of {path}"
