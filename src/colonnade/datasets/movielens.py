"""MovieLens 100K: 100000 ratings that 943 people gave films in 1997 and 1998, with their gender and age.

F. M. Harper and J. A. Konstan, "The MovieLens Datasets" (ACM TiiS, 2015), GroupLens Research; for research, not to be
redistributed for revenue. Real behaviour, titles and attributes, made into the task of FairVFL's NEWS experiment, whose
logs are not to be had: which of a few titles will this person like, seen from three platforms' histories?
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.datasets.adult import age_classes
from colonnade.datasets.files import data_file
from colonnade.datasets.titles import join_titles, title_words
from colonnade.errors import ConfigError, did_you_mean

__all__ = ["movielens_platforms"]

_ORIGIN = "grouplens.org/datasets/movielens/100k (u.data, u.user and u.item saved as Parquet, with column names added)"
_LIKED = 4
_NOTHING_KNOWN = "unknown"
_YEAR_OR_VIDEO = r"\s*\((?:\d{4}|V)\)"
_GENDERS = {"M": "male", "F": "female"}
_MOST_CANDIDATES = 100
_NEGATIVES = ("popular", "uniform")


def movielens_platforms(
    *,
    seed: int = 0,
    rows: int | None = None,
    history: int = 20,
    candidates: int = 5,
    test_candidates: int = 20,
    held_out: int = 4,
    negatives: str = "popular",
) -> dict[str, pd.DataFrame]:
    """Return the tables of three behaviour platforms, of the task platform, and of two sensitive platforms.

    A row is an impression: the moment a person rated a film 4 or 5, the positive, among films the person never rated.
    All tables have the same `id` in the same order, which is random.

    `liked` holds the titles the person had rated 4 or 5, `disliked` those rated 1 to 3, and `genres` the genres of
    films with any rating, each as `history`: at most so many, the most recent last, with `" | "` between two, and empty
    if there were none. Only ratings strictly before the impression count; three quarters of all ratings share their
    second with another of the same person, and such ratings do not know of one another. All three know the `user`.

    `task` holds the titles to choose from as `candidates`, in random order, `clicks` such as `0 0 1 0 0`, and the
    `part` of the row. A person's last `held_out` impressions are `test`, as many before them `validation`, and the
    others `train`, of which `rows` are drawn at random if given. Who has no more than twice `held_out` is in `train`
    only. Each person's own time counts: another's training may be later. In training there are `candidates` titles to
    choose from, else `test_candidates`.

    `gender` and `age` hold one column of their own name each, as in `adult_platforms`.

    Among `uniform` negatives the choice is easy without knowing the person: in 83 % of the test's pairs of a positive
    and a negative, the film liked by more people is the positive. `popular` negatives are drawn by how many people
    liked them in the training part, whatever `rows`, plus one, and that rule falls to 49 %.

    Left out are the film without a title and impressions before which the person had rated nothing. Years and
    punctuation are taken from titles; films of the same words then count as one.
    """
    _check(history, candidates, test_candidates, held_out, negatives)
    generator = np.random.default_rng(seed)
    ratings, titles = _ratings(generator)
    likes = _impressions(ratings, held_out)
    weights = np.ones(len(titles))
    if negatives == "popular":
        weights += np.bincount(likes.loc[likes["part"] == "train", "title"], minlength=len(titles))
    if rows is not None:
        likes = _thinned(generator, likes, rows)
    likes = likes.iloc[generator.permutation(len(likes))].reset_index(drop=True)
    likes.insert(0, "id", [f"impression_{place:05d}" for place in range(len(likes))])

    users = pd.read_parquet(data_file("movielens_100k/users.parquet", _ORIGIN)).set_index("user_id")
    known = users.loc[likes["user_id"]]
    sizes = {"train": candidates, "validation": test_candidates, "test": test_candidates}
    return {
        **_histories(ratings, likes, titles, history),
        "task": _task(generator, ratings, likes, titles, sizes, weights),
        "gender": pd.DataFrame({"id": likes["id"], "gender": known["gender"].map(_GENDERS).to_numpy()}),
        "age": pd.DataFrame({"id": likes["id"], "age": age_classes(known["age"].to_numpy())}),
    }


def _check(history: int, candidates: int, test_candidates: int, held_out: int, negatives: str) -> None:
    for name, count in (("candidates", candidates), ("test_candidates", test_candidates)):
        if not 2 <= count <= _MOST_CANDIDATES:
            raise ConfigError(f"{name} is {count}; give 2 to {_MOST_CANDIDATES}, the film that was liked among them.")
    for name, count in (("history", history), ("held_out", held_out)):
        if count < 1:
            raise ConfigError(f"{name} is {count}; give at least 1.")
    if negatives not in _NEGATIVES:
        raise ConfigError(f"There are no '{negatives}' negatives. {did_you_mean(negatives, _NEGATIVES)}")


def _ratings(generator: np.random.Generator) -> tuple[pd.DataFrame, list[str]]:
    """Return the ratings by person and time, with numbers for titles, and the titles.

    What the person had rated in the seconds before are the rows from `begin` to `end`.
    """
    ratings = pd.read_parquet(data_file("movielens_100k/ratings.parquet", _ORIGIN))
    films = pd.read_parquet(data_file("movielens_100k/items.parquet", _ORIGIN)).set_index("item_id")
    films = films[films["title"] != _NOTHING_KNOWN]
    words = films["title"].str.replace(_YEAR_OR_VIDEO, "", regex=True).map(title_words)
    numbers, titles = pd.factorize(words)
    flags = films.filter(regex="^genre_")
    names = np.array([name.removeprefix("genre_").replace("_", " ") for name in flags.columns])
    genres = [" ".join(names[row]) for row in flags.to_numpy(bool)]
    described = pd.DataFrame({"title": numbers, "genres": genres}, index=films.index)

    # Within a second the file's order says nothing, so chance decides.
    ratings = ratings.iloc[generator.permutation(len(ratings))].join(described, on="item_id", how="inner")
    ratings = ratings.sort_values(["user_id", "timestamp"], kind="stable", ignore_index=True)
    own = ratings.groupby("user_id")
    begin = ratings.index - own.cumcount()
    end = begin + own["timestamp"].rank(method="min").astype("int64") - 1
    return ratings.assign(begin=begin, end=end), list(titles)


def _impressions(ratings: pd.DataFrame, held_out: int) -> pd.DataFrame:
    """Return the ratings that are impressions, with their part."""
    likes = ratings[(ratings["rating"] >= _LIKED) & (ratings["end"] > ratings["begin"])]
    own = likes.groupby("user_id")["timestamp"]
    later = own.cumcount(ascending=False).to_numpy()
    is_enough = own.transform("size").to_numpy() > 2 * held_out
    part = np.select(
        [is_enough & (later < held_out), is_enough & (later < 2 * held_out)], ["test", "validation"], "train"
    )
    return likes.assign(part=part)


def _thinned(generator: np.random.Generator, likes: pd.DataFrame, rows: int) -> pd.DataFrame:
    """Return impressions with only so many training ones."""
    train = np.flatnonzero(likes["part"] == "train")
    if not 1 <= rows <= len(train):
        raise ConfigError(
            f"There are {len(train)} training impressions, so {rows} cannot be drawn. Give 1 to {len(train)}."
        )
    judged = np.flatnonzero(likes["part"] != "train")
    return likes.iloc[np.concatenate([judged, generator.choice(train, rows, replace=False)])]


def _histories(ratings: pd.DataFrame, likes: pd.DataFrame, titles: list[str], history: int) -> dict[str, pd.DataFrame]:
    """Return what each behaviour platform knew before each impression."""
    is_liked = (ratings["rating"] >= _LIKED).to_numpy()
    words, genres = np.array(titles, dtype=object)[ratings["title"]], ratings["genres"].to_numpy(object)
    moments = likes[["begin", "end"]].to_numpy()
    texts: dict[str, dict[tuple[int, int], str]] = {"liked": {}, "disliked": {}, "genres": {}}
    for begin, end in np.unique(moments, axis=0):
        past = slice(begin, end)
        texts["liked"][begin, end] = join_titles(words[past][is_liked[past]][-history:])
        texts["disliked"][begin, end] = join_titles(words[past][~is_liked[past]][-history:])
        texts["genres"][begin, end] = join_titles(genres[past][-history:])
    users = [f"user_{user:03d}" for user in likes["user_id"]]
    return {
        platform: pd.DataFrame(
            {"id": likes["id"], "user": users, "history": [known[begin, end] for begin, end in moments]}
        )
        for platform, known in texts.items()
    }


def _task(
    generator: np.random.Generator,
    ratings: pd.DataFrame,
    likes: pd.DataFrame,
    titles: list[str],
    sizes: Mapping[str, int],
    weights: npt.NDArray[np.float64],
) -> pd.DataFrame:
    """Return the titles to choose from at each impression, and which of them was liked."""
    rated = np.zeros((ratings["user_id"].max() + 1, len(titles)), np.bool_)
    rated[ratings["user_id"], ratings["title"]] = True
    table = pd.DataFrame({"id": likes["id"], "candidates": "", "clicks": "", "part": likes["part"]})
    for part, size in sizes.items():
        rows = np.flatnonzero(likes["part"] == part)
        own = likes.iloc[rows]
        others = _never_rated(generator, rated[own["user_id"]], weights, size - 1)
        choice = np.column_stack([own["title"].to_numpy(), others])
        places = generator.permuted(np.tile(np.arange(size), (len(rows), 1)), axis=1)
        choice = np.take_along_axis(choice, places, axis=1)
        table.loc[rows, "candidates"] = [join_titles(titles[number] for number in row) for row in choice]
        table.loc[rows, "clicks"] = [" ".join("1" if place == 0 else "0" for place in row) for row in places]
    return table


def _never_rated(
    generator: np.random.Generator, rated: npt.NDArray[np.bool_], weights: npt.NDArray[np.float64], count: int
) -> npt.NDArray[np.int64]:
    """Draw so many different titles for each row by their weights, none of which is `rated` in that row."""
    fewest = len(weights) - int(rated.sum(axis=1).max(initial=0))
    if count > fewest:
        raise ConfigError(
            f"Someone never rated only {fewest} titles, so {count} cannot be drawn. Give fewer candidates."
        )
    taken = rated.copy()
    drawn = np.zeros((len(taken), count), np.int64)
    for column in range(count):
        left = np.arange(len(taken))
        while len(left):
            drawn[left, column] = generator.choice(len(weights), len(left), p=weights / weights.sum())
            left = left[taken[left, drawn[left, column]]]
        taken[np.arange(len(taken)), drawn[:, column]] = True
    return drawn
