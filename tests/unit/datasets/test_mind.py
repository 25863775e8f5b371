"""MIND's files: lines written by hand, broken ones, and the sample."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pandas as pd
import pytest

from colonnade.datasets import (
    MIND_NO_TITLE,
    MindImpression,
    MindNews,
    MindPlatforms,
    mind_platforms,
    mind_sample,
    read_mind_impressions,
    read_mind_news,
)
from colonnade.errors import ConfigError, TableError

BEHAVIOURS = (
    "1\tU13740\t11/11/2019 9:05:58 AM\tN1 N2 N3\tN4-1 N2-0 N9-0\n2\tU91836\t11/12/2019 6:11:30 PM\t\tN1-0 N3-1 N4-1\n"
)
NEWS = (
    "N1\tlifestyle\tlifestyleroyals\tThe Queen's “Best” Brands | PHOTOS\tShop them.\thttps://a\t[]\t[]\n"
    "N2\thealth\tweightloss\t50 Worst Habits For Belly Fat\t\thttps://b\t[]\t[]\n"
    'N3\tnews\tnewsworld\t"The Cost of Trump"\tLt. Ivan\thttps://c\t[{"Label": "x"}]\t[]\n'
    "N4\tsports\tfootball_nfl\tNFL cheerleaders\tSee.\thttps://d\t\t[]\n"
)


def written(folder: Path, text: str, name: str = "file.tsv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def sample() -> MindPlatforms:
    try:
        return mind_sample()
    except TableError as missing:
        pytest.skip(str(missing))


def test_impressions_are_read_field_by_field(tmp_path: Path) -> None:
    assert read_mind_impressions(written(tmp_path, BEHAVIOURS)) == [
        MindImpression(
            1, "U13740", datetime(2019, 11, 11, 9, 5, 58), ("N1", "N2", "N3"), ("N4", "N2", "N9"), (1, 0, 0)
        ),
        MindImpression(2, "U91836", datetime(2019, 11, 12, 18, 11, 30), (), ("N1", "N3", "N4"), (0, 1, 1)),
    ]


def test_news_is_read_with_its_quotation_marks(tmp_path: Path) -> None:
    news = read_mind_news(written(tmp_path, NEWS))
    assert list(news) == ["N1", "N2", "N3", "N4"]
    assert news["N2"] == MindNews("N2", "health", "weightloss", "50 Worst Habits For Belly Fat", "")
    assert news["N3"].title == '"The Cost of Trump"'


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_parquet_and_either_line_ending_give_the_same(tmp_path: Path, ending: str) -> None:
    lines = [line.split("\t") for line in BEHAVIOURS.splitlines()]
    table = pd.DataFrame(lines, columns=["impression_id", "user_id", "time", "history", "impressions"])
    table = table.assign(impression_id=table["impression_id"].astype("int64"), history=["N1 N2 N3", None])
    table.to_parquet(tmp_path / "behaviors.parquet")
    text = written(tmp_path, BEHAVIOURS.replace("\n", ending))
    assert read_mind_impressions(tmp_path / "behaviors.parquet") == read_mind_impressions(text)


def test_tables_hold_titles_in_words_and_clicks(tmp_path: Path) -> None:
    log = read_mind_impressions(written(tmp_path, BEHAVIOURS))
    news = read_mind_news(written(tmp_path, NEWS))
    found = mind_platforms(log, news, part="validation", history=2, allow_untitled=True)
    assert found.tables["clicked"].to_dict("list") == {
        "id": ["validation_0000001", "validation_0000002"],
        "user": ["U13740", "U91836"],
        "history": ["50 worst habits for belly fat | the cost of trump", ""],
    }
    assert found.tables["task"].to_dict("list") == {
        "id": ["validation_0000001", "validation_0000002"],
        "candidates": [
            f"nfl cheerleaders | 50 worst habits for belly fat | {MIND_NO_TITLE}",
            "the queens best brands photos | the cost of trump | nfl cheerleaders",
        ],
        "clicks": ["1 0 0", "0 1 1"],
        "part": ["validation", "validation"],
    }
    assert (found.shown, found.shown_untitled, found.read, found.read_untitled) == (6, 1, 2, 0)


def test_news_without_a_title_is_refused_unless_allowed(tmp_path: Path) -> None:
    log = read_mind_impressions(written(tmp_path, BEHAVIOURS))
    news = read_mind_news(written(tmp_path, NEWS))
    with pytest.raises(TableError, match=r"1 of 6 news shown and 0 of 3 news read before .*allow_untitled"):
        mind_platforms(log, news)
    without_words = news | {"N1": MindNews("N1", "lifestyle", "", "...", "")}
    with pytest.raises(TableError, match="2 of 6 news shown and 1 of 3 news read"):
        mind_platforms(log, without_words)
    complete = news | {"N9": MindNews("N9", "news", "newsus", "All is well", "")}
    assert mind_platforms(log, complete).shown_untitled == 0


def test_settings_and_repeated_ids_are_refused(tmp_path: Path) -> None:
    log = read_mind_impressions(written(tmp_path, BEHAVIOURS))
    with pytest.raises(ConfigError, match="'validation'"):
        mind_platforms(log, {}, part="validaton")
    with pytest.raises(ConfigError, match="history is 0"):
        mind_platforms(log, {}, history=0)
    with pytest.raises(TableError, match="2 impressions repeat the id"):
        mind_platforms([*log, *log], {}, allow_untitled=True)


FIRST = BEHAVIOURS.splitlines()[0]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "has 1 fields between tabs, not 5"),
        (FIRST.replace("\t", " "), "has 1 fields"),
        (FIRST + "\tN1", "has 6 fields"),
        (FIRST.replace("1\tU13740", "one\tU13740"), "number of an impression"),
        (FIRST.replace("U13740", ""), "and a user"),
        (FIRST.replace("9:05:58 AM", "9:05:58"), "not like '11/12/2019 2:14:46 PM'"),
        (FIRST.replace("11/11/2019", "23/11/2019"), "not like"),
        (FIRST.replace("N2-0", "N2"), r"1 of 3 news shown .* are not an id and a click"),
        (FIRST.replace("N2-0", "N2-2"), "1 of 3 news shown"),
        (FIRST.replace("N2-0", "-0"), "1 of 3 news shown"),
        (FIRST.replace("N4-1 N2-0 N9-0", "N4 N2 N9"), "MIND's test file has no clicks"),
        (FIRST.replace("N4-1 N2-0 N9-0", ""), "0 of 0 news shown"),
    ],
)
def test_a_broken_impression_is_refused_by_its_line_and_without_its_content(
    tmp_path: Path, line: str, says: str
) -> None:
    path = written(tmp_path, f"{BEHAVIOURS}{line}\n{FIRST}\n")
    with pytest.raises(TableError, match=says) as refused:
        read_mind_impressions(path)
    assert "line 3 of" in str(refused.value).lower()
    assert "U13740" not in str(refused.value)


def test_broken_news_is_refused(tmp_path: Path) -> None:
    first = NEWS.splitlines()[0]
    for text, says in (
        (f"{NEWS}{first}\n", "line 5 of .* has no id of its own"),
        (NEWS + first.replace("N1\t", "\t", 1), "line 5 of .* has no id of its own"),
        (f"{NEWS}N5\tnews\tnewsus\tA title\n", "Line 5 of .* has 4 fields between tabs, not 8"),
    ):
        with pytest.raises(TableError, match=says):
            read_mind_news(written(tmp_path, text))


def test_files_that_are_not_mind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"There is no file .* Get MIND from"):
        read_mind_news(tmp_path / "news.tsv")
    path = tmp_path / "latin.tsv"
    path.write_bytes(NEWS.encode().replace("“".encode(), b"\x93"))
    with pytest.raises(TableError, match=r"Line 1 of .* is not in UTF-8"):
        read_mind_news(path)
    pd.DataFrame({"news_id": ["N1"], "title": ["A"]}).to_parquet(tmp_path / "news.parquet")
    with pytest.raises(TableError, match="has no column category, subcategory, abstract"):
        read_mind_news(tmp_path / "news.parquet")


def test_the_sample_has_its_published_counts_and_says_what_it_lacks() -> None:
    found = sample()
    assert set(found.tables) == {"clicked", "task"}
    assert all(len(table) == 5_000 for table in found.tables.values())
    assert found.tables["clicked"]["id"].equals(found.tables["task"]["id"])
    clicks = found.tables["task"]["clicks"].str.split()
    assert found.shown == clicks.str.len().sum() == 189_359
    assert sum(row.count("1") for row in clicks) / found.shown == pytest.approx(0.0398, abs=1e-4)
    assert (found.tables["task"]["candidates"].str.split(" | ", regex=False).str.len() == clicks.str.len()).all()
    assert 1 - found.shown_untitled / found.shown == pytest.approx(0.028, abs=1e-3)
    words = found.tables["task"]["candidates"].str.split(" | ", regex=False).explode()
    assert (words == MIND_NO_TITLE).sum() == found.shown_untitled
    histories = found.tables["clicked"]["history"]
    assert (histories == "").sum() == 107
    assert histories[histories != ""].str.split(" | ", regex=False).str.len().sum() == found.read


def test_missing_data_says_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    with pytest.raises(TableError, match=r"Get it from .*COLONNADE_DATA"):
        mind_sample()
