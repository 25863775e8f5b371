"""MovieLens as impressions seen from three behaviour platforms, a task platform and two sensitive ones."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from colonnade.datasets import AGE_CLASSES, movielens_platforms
from colonnade.datasets.files import data_file
from colonnade.errors import ConfigError, TableError

BEHAVIOUR = ("liked", "disliked", "genres")


@cache
def loaded(**settings: Any) -> dict[str, pd.DataFrame]:
    try:
        return movielens_platforms(**{"rows": 1_000} | settings)
    except TableError as missing:
        pytest.skip(str(missing))


@cache
def published() -> pd.DataFrame:
    """Return the ratings with titles, in words written down independently of the loader."""
    loaded()  # skips where there is no data
    ratings, films = (pd.read_parquet(data_file(f"movielens_100k/{name}.parquet", "")) for name in ("ratings", "items"))
    titles = [re.sub(r"\(\d{4}\)|\(V\)", " ", title).replace("'", "").lower() for title in films["title"]]
    words = ["".join(letter if letter.isalnum() else " " for letter in title).split() for title in titles]
    films["words"] = [" ".join(one) for one in words]
    ratings = ratings.merge(films[["item_id", "words"]], on="item_id")
    return ratings[ratings["words"] != "unknown"]


def choices(tables: dict[str, pd.DataFrame]) -> list[tuple[str, list[str], list[int], str]]:
    """Return each row's user, candidates, clicks and part."""
    task = tables["task"]
    return [
        (user, titles.split(" | "), [int(click) for click in clicks.split(" ")], part)
        for user, titles, clicks, part in zip(
            tables["liked"]["user"], task["candidates"], task["clicks"], task["part"], strict=True
        )
    ]


def user_word(number: int) -> str:
    return f"user_{number:03d}"


def test_every_like_after_a_persons_first_second_is_an_impression() -> None:
    ratings = published()
    first = ratings.groupby("user_id")["timestamp"].transform("min")
    likes = ratings[(ratings["rating"] >= 4) & (ratings["timestamp"] > first)].groupby("user_id").size()
    held_out = 4 * int((likes > 8).sum())
    assert Counter(loaded()["task"]["part"]) == {"train": 1_000, "validation": held_out, "test": held_out}
    everything = likes.sum() - 2 * held_out
    assert (held_out, everything) == (3_564, 46_930)
    with pytest.raises(ConfigError, match=f"There are {everything} training impressions"):
        movielens_platforms(rows=int(everything) + 1)


def test_all_tables_have_the_same_ids_and_each_only_its_own_columns() -> None:
    tables = loaded()
    ids = tables["task"]["id"]
    assert ids.is_unique
    assert all(table["id"].equals(ids) for table in tables.values())
    assert {name: list(table.columns) for name, table in tables.items()} == {
        **{platform: ["id", "user", "history"] for platform in BEHAVIOUR},
        "task": ["id", "candidates", "clicks", "part"],
        "gender": ["id", "gender"],
        "age": ["id", "age"],
    }
    assert not any(table.isna().any(axis=None) for table in tables.values())


def test_one_liked_title_is_among_titles_the_person_never_rated() -> None:
    ratings = published()
    rated = {user_word(user): set(words) for user, words in ratings.groupby("user_id")["words"]}
    likes = ratings[ratings["rating"] >= 4]
    liked = {user_word(user): set(words) for user, words in likes.groupby("user_id")["words"]}
    for user, titles, clicks, part in choices(loaded()):
        assert len(titles) == len(clicks) == len(set(titles)) == (5 if part == "train" else 20)
        assert sorted(clicks)[-2:] == [0, 1]
        positive = titles.pop(clicks.index(1))
        assert positive in liked[user]
        assert not rated[user] & set(titles)


def test_the_place_of_the_liked_title_says_nothing() -> None:
    for part, size in (("train", 5), ("test", 20)):
        places = [clicks.index(1) for _, _, clicks, of in choices(loaded()) if of == part]
        shares = np.bincount(places, minlength=size) / len(places)
        assert abs(shares - 1 / size).max() < 5 * np.sqrt(1 / size / len(places))


def test_histories_are_the_most_recent_ratings_of_their_kind_before_the_impression() -> None:
    ratings = published()
    # A person who rated two films of the same words has two times for one title.
    ratings = ratings[~ratings.duplicated(["user_id", "words"], keep=False)]
    times = {(user_word(row.user_id), row.words): row.timestamp for row in ratings.itertuples()}
    kinds = {
        (user_word(user), "liked" if is_liked else "disliked"): np.sort(own["timestamp"])
        for (user, is_liked), own in ratings.assign(is_liked=ratings["rating"] >= 4).groupby(["user_id", "is_liked"])
    }
    tables, checked = loaded(), 0
    for platform in ("liked", "disliked"):
        rows = zip(choices(tables), tables[platform]["history"].tolist(), strict=True)
        for (user, titles, clicks, _), text in list(rows)[::3]:
            moment, history = times.get((user, titles[clicks.index(1)])), list(filter(None, text.split(" | ")))
            if moment is None or any((user, title) not in times for title in history):
                continue
            known = kinds.get((user, platform), np.array([]))
            assert [times[user, title] for title in history] == known[known < moment][-20:].tolist()
            checked += 1
    assert checked > 4_500


def test_later_parts_are_not_earlier_in_time() -> None:
    ratings = published()
    ratings = ratings[~ratings.duplicated(["user_id", "words"], keep=False)]
    times = {(user_word(row.user_id), row.words): row.timestamp for row in ratings.itertuples()}
    seen: dict[tuple[str, str], list[int]] = {}
    for user, titles, clicks, part in choices(loaded()):
        if moment := times.get((user, titles[clicks.index(1)])):
            seen.setdefault((user, part), []).append(moment)
    users = {user for user, part in seen if part == "test"}
    assert len(users) == 891
    for earlier, later in (("train", "validation"), ("validation", "test")):
        pairs = [(seen[user, earlier], seen[user, later]) for user in users if (user, earlier) in seen]
        assert len(pairs) > 300
        assert all(max(before) <= min(after) for before, after in pairs)


def test_gender_and_age_are_those_of_the_person() -> None:
    tables = loaded()
    users = pd.read_parquet(data_file("movielens_100k/users.parquet", ""))
    genders = {user_word(row.user_id): {"M": "male", "F": "female"}[row.gender] for row in users.itertuples()}
    assert tables["gender"]["gender"].tolist() == [genders[user] for user in tables["liked"]["user"]]
    is_old = {user_word(row.user_id): row.age >= 50 for row in users.itertuples()}
    assert (tables["age"]["age"] == ">=50").tolist() == [is_old[user] for user in tables["liked"]["user"]]
    assert set(tables["age"]["age"]) == set(AGE_CLASSES)
    test = (tables["task"]["part"] == "test").to_numpy()
    assert (tables["gender"]["gender"][test] == "female").mean() == pytest.approx(273 / 943, abs=0.02)


@pytest.mark.parametrize(("negatives", "share"), [("uniform", 0.83), ("popular", 0.49)])
def test_popularity_alone_decides_among_uniform_negatives_only(negatives: str, share: float) -> None:
    ratings = published()
    rows = choices(loaded(negatives=negatives, rows=10_000))
    likes = Counter(titles[clicks.index(1)] for _, titles, clicks, part in rows if part == "train")
    assert len(ratings) == 99_991
    wins = []
    for _, titles, clicks, part in rows:
        if part == "test":
            positive = likes[titles.pop(clicks.index(1))]
            wins += [float(positive > likes[title]) + 0.5 * (positive == likes[title]) for title in titles]
    assert np.mean(wins) == pytest.approx(share, abs=0.02)


def test_the_seed_decides_everything_drawn() -> None:
    first, other = loaded(), loaded(seed=1)
    again = movielens_platforms(rows=1_000)
    assert all(first[name].equals(again[name]) for name in first)
    assert not first["task"]["candidates"].equals(other["task"]["candidates"])


# A small published set that can be followed by hand: three people, a film without a title, two films of one name.
FILMS = [
    (1, "Toy Story (1995)", "animation comedy"),
    (2, "Sabrina (1954)", "comedy"),
    (3, "Sabrina (1995)", "romance"),
    (4, "unknown", "unknown"),
    (5, "Ulee's Gold (1997)", "drama film_noir"),
    (6, "Babe II: The Pig (1998) (V)", "childrens"),
    (7, "L.A. Story (1991)", "film_noir sci_fi"),
    (8, "187 (1997)", "drama"),
]
GENRES = ("animation", "childrens", "comedy", "drama", "film_noir", "romance", "sci_fi", "unknown")
RATINGS = [
    *[(1, 4, 5, 100), (1, 1, 5, 101), (1, 2, 2, 102), (1, 5, 4, 103), (1, 6, 5, 103), (1, 7, 4, 104)],
    *[(2, 4, 5, 100), (2, 1, 5, 101), (2, 8, 4, 101)],
    *[(3, 8, 1, 100), (3, 1, 3, 101)],
]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "movielens_100k"
    folder.mkdir()
    films = pd.DataFrame([film[:2] for film in FILMS], columns=["item_id", "title"])
    for genre in GENRES:
        films[f"genre_{genre}"] = [int(genre in film[2].split()) for film in FILMS]
    films.to_parquet(folder / "items.parquet")
    ratings = pd.DataFrame(RATINGS, columns=["user_id", "item_id", "rating", "timestamp"])
    ratings.to_parquet(folder / "ratings.parquet")
    users = [(1, 24, "F"), (2, 30, "M"), (3, 60, "M")]
    pd.DataFrame(users, columns=["user_id", "age", "gender"]).to_parquet(folder / "users.parquet")
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(5))
def test_a_small_set_gives_what_it_gives_by_hand(seed: int) -> None:
    tables = movielens_platforms(seed=seed, candidates=2, test_candidates=2, held_out=1)
    rows = {titles[clicks.index(1)]: row for row, (_, titles, clicks, _) in enumerate(choices(tables))}
    # The second person's likes are of the first second once the film without a title is gone, the third's are none.
    assert set(rows) == {"ulees gold", "babe ii the pig", "l a story"}
    assert set(tables["liked"]["user"]) == {"user_001"}
    # Two likes share a second: neither is in the other's history, and chance decides which is validated.
    for title in ("ulees gold", "babe ii the pig"):
        known = {platform: tables[platform]["history"][rows[title]] for platform in BEHAVIOUR}
        assert known == {"liked": "toy story", "disliked": "sabrina", "genres": "animation comedy | comedy"}
    last = {platform: tables[platform]["history"][rows["l a story"]] for platform in BEHAVIOUR}
    assert last["liked"] in {"toy story | ulees gold | babe ii the pig", "toy story | babe ii the pig | ulees gold"}
    assert last["disliked"] == "sabrina"
    assert tables["task"]["part"][rows["l a story"]] == "test"
    assert set(tables["task"]["part"]) == {"train", "validation", "test"}
    # She rated one of two films called Sabrina, so the other is no negative either: one title is left.
    assert set(tables["gender"]["gender"]) == {"female"}
    assert set(tables["age"]["age"]) == {"<=24"}
    negatives = [
        title
        for _, titles, clicks, _ in choices(tables)
        for title, click in zip(titles, clicks, strict=True)
        if not click
    ]
    assert set(negatives) == {"187"}


@pytest.mark.usefixtures("small")
def test_a_history_is_no_longer_than_asked() -> None:
    tables = movielens_platforms(candidates=2, test_candidates=2, held_out=1, history=1)
    assert not any(tables[platform]["history"].str.contains("|", regex=False).any() for platform in BEHAVIOUR)
    test = (tables["task"]["part"] == "test").to_numpy()
    last = tables["liked"]["history"][test].item()
    assert last in {"ulees gold", "babe ii the pig"}
    assert tables["genres"]["history"][test].item() == {"u": "drama film noir", "b": "childrens"}[last[0]]


@pytest.mark.usefixtures("small")
def test_more_candidates_than_there_are_titles_is_refused() -> None:
    with pytest.raises(ConfigError, match="never rated only 1 titles"):
        movielens_platforms(candidates=3, held_out=1)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"history": 0}, "history is 0"),
        ({"candidates": 1}, "candidates is 1; give 2 to 100"),
        ({"test_candidates": 101}, "test_candidates is 101"),
        ({"held_out": 0}, "held_out is 0"),
        ({"negatives": "populer"}, "popular"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        movielens_platforms(**settings)


def test_missing_data_says_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    with pytest.raises(TableError, match=r"Get it from .*COLONNADE_DATA"):
        movielens_platforms()
