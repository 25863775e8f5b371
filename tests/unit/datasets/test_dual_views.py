"""The data of multi-party dual learning: images with parts lost, random halves of a bank's columns, and graphs."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pytest

from colonnade.data import PartyTable, TableEncoder
from colonnade.datasets import (
    BANK_FULL_BOUNDS,
    BANK_FULL_LEVELS,
    BREAST_CANCER_BOUNDS,
    CIFAR10_CLASSES,
    CIFAR10_VIEWS,
    MNIST_VIEWS,
    ImageViews,
    bank_full,
    breast_cancer_views,
    cifar10,
    cifar10_views,
    ego_facebook,
    hamilton46,
    mnist,
    mnist_views,
)
from colonnade.errors import ConfigError, TableError

Loaded = TypeVar("Loaded")


def loaded(load: Callable[..., Loaded], **settings: Any) -> Loaded:
    try:
        return load(**settings)
    except TableError as missing:
        pytest.skip(str(missing))


def put_together(tables: dict[str, pd.DataFrame], pixels: int) -> np.ndarray:
    """Return whole images from the parties' columns, by the places in their names; -1 where none holds a pixel."""
    whole = np.full((len(tables["a"]), pixels), -1.0, np.float32)
    for table in tables.values():
        names = [name for name in table.columns if "_" in name]
        whole[:, [int(name.rsplit("_", 1)[1]) for name in names]] = table[names].to_numpy()
    return whole


@pytest.mark.parametrize(
    ("views", "sizes"),
    [(MNIST_VIEWS, {"common": 280, "a": 224, "b": 280}), (CIFAR10_VIEWS, {"common": 1056, "a": 864, "b": 1152})],
)
def test_views_have_the_sizes_of_the_paper_and_name_what_both_hold(views: ImageViews, sizes: dict[str, int]) -> None:
    first, second = set(views.columns("a")), set(views.columns("b"))
    found = {"common": first & second, "a": first - second, "b": second - first}
    assert {which: len(names) for which, names in found.items()} == sizes
    assert all(name.startswith(f"{which}_") for which, names in found.items() for name in names)
    assert len({int(name.rsplit("_", 1)[1]) for name in first | second}) == views.colours * views.side**2
    for party in ("a", "b"):
        assert [int(name.rsplit("_", 1)[1]) for name in views.columns(party)] == views.places(party).tolist()
    with pytest.raises(ConfigError, match="no party 'c'"):
        views.places("c")


def test_a_holds_the_lower_rows_and_b_lacks_the_lower_right_corner() -> None:
    picture = np.zeros(784, int)
    picture[MNIST_VIEWS.places("a")] += 1
    picture[MNIST_VIEWS.places("b")] += 2
    rows = picture.reshape(28, 28)
    assert (rows[:10] == 2).all()
    assert (rows[10:14] == 3).all()
    assert (rows[14:, :12] == 3).all()
    assert (rows[14:, 12:] == 1).all()
    colours = np.zeros(3072, int)
    colours[CIFAR10_VIEWS.places("a")] += 1
    colours[CIFAR10_VIEWS.places("b")] += 2
    for colour in colours.reshape(3, 32, 32):
        assert (colour[:12] == 2).all()
        assert (colour[12:16] == 3).all()
        assert (colour[16:, 14:] == 1).all()


def test_digits_put_together_from_both_views_are_whole() -> None:
    tables = loaded(mnist_views, rows=300, seed=5)
    images, digits, places = mnist(rows=300, seed=5)
    assert (tables["a"].shape, tables["b"].shape) == ((300, 505), (300, 562))
    assert np.array_equal(put_together(tables, 784), images)
    assert (images.dtype, images.min(), images.max()) == (np.float32, 0.0, 1.0)
    assert np.array_equal(tables["b"]["digit"], digits)
    assert "digit" not in tables["a"]
    assert tables["a"]["id"].tolist() == tables["b"]["id"].tolist() == [f"train_{place:05d}" for place in places]
    table = PartyTable(tables["b"], id="id", label="digit")
    assert {column.kind for column in table.columns} == {"numeric"}


def test_digits_are_those_published() -> None:
    images, digits, places = loaded(mnist)
    assert (images.shape, images.dtype, digits.dtype) == ((60_000, 784), np.float32, np.int64)
    assert digits[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert np.bincount(digits).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert images.mean() == pytest.approx(0.1307, abs=1e-4)
    assert np.array_equal(places, np.arange(60_000))
    # The first, a five, has ink in the middle and none at the edge.
    assert images[0].reshape(28, 28)[[0, -1]].max() == 0.0
    assert (images[0].reshape(28, 28)[5, 12:16] * 255).round().tolist() == [3, 18, 18, 18]
    test_images, test_digits, _ = mnist(part="test")
    assert len(test_images) == 10_000
    assert test_digits[:5].tolist() == [7, 2, 1, 0, 4]


def test_digits_are_drawn_by_the_seed() -> None:
    first, again, other = (loaded(mnist, part="test", rows=100, seed=seed)[2] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len(np.unique(first)) == 100
    for rows in (0, 10_001):
        with pytest.raises(ConfigError, match="Give 1 to 10000"):
            mnist(part="test", rows=rows)
    with pytest.raises(ConfigError, match="'train'"):
        mnist(part="trian")


def test_a_file_of_digits_that_is_not_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    sound = (0x803).to_bytes(4) + b"".join(size.to_bytes(4) for size in (2, 28, 28)) + bytes(2 * 784)
    labels = (0x801).to_bytes(4) + (2).to_bytes(4) + b"\1\2"
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    images = tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz"
    images.write_bytes(gzip.compress(sound))
    assert mnist(part="test")[1].tolist() == [1, 2]
    for broken in (sound[:-1], labels, b"", sound[:10]):
        images.write_bytes(gzip.compress(broken))
        with pytest.raises(TableError, match="not what it should be"):
            mnist(part="test")
    packed = gzip.compress(sound)
    for broken in (sound, packed[:-9], packed[:12] + b"\xff\xff" + packed[14:]):
        images.write_bytes(broken)
        with pytest.raises(TableError, match="not what it should be"):
            mnist(part="test")


def test_photographs_put_together_from_both_views_are_whole() -> None:
    tables = loaded(cifar10_views, rows=60)
    photographs, numbers, _ = cifar10(rows=60)
    assert np.array_equal(put_together(tables, 3072), photographs)
    # The first training photograph, a frog: its upper left corner in red, green and blue.
    assert (photographs[0].reshape(3, 32, 32)[:, 0, 0] * 255).round().tolist() == [59, 62, 63]
    assert tables["b"]["label"].tolist() == [CIFAR10_CLASSES[number] for number in numbers]
    assert "label" not in tables["a"]
    assert tables["a"]["id"].tolist() == tables["b"]["id"].tolist()
    assert tables["a"]["id"][0] == "photograph_00000"


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_banks_columns_are_dealt_to_two_parties_and_code_into_48(seed: int) -> None:
    tables, coded = (loaded(bank_full, seed=seed, coded=is_coded) for is_coded in (False, True))
    own = {party: set(table.columns) - {"id", "y"} for party, table in tables.items()}
    assert [len(names) for names in own.values()] == [8, 8]
    assert not own["a"] & own["b"]
    assert own["a"] | own["b"] == {*BANK_FULL_BOUNDS, *BANK_FULL_LEVELS}
    assert tables["b"]["y"].value_counts().to_dict() == {"no": 39922, "yes": 5289}
    assert "y" not in tables["a"]
    values = {party: table.drop(columns=["id", "y"], errors="ignore") for party, table in coded.items()}
    assert sum(table.shape[1] for table in values.values()) == 48
    for party, table in values.items():
        assert {name.split("=")[0] for name in table.columns} == own[party]
        assert (table.to_numpy().min(), table.to_numpy().max()) == (0.0, 1.0)
        # The product's own encoder finds as many columns in the words.
        label = "y" if party == "b" else None
        assert TableEncoder.fit(PartyTable(tables[party], id="id", label=label)).width == table.shape[1]
    for name in BANK_FULL_LEVELS:
        block = next(table for table in values.values() if f"{name}={BANK_FULL_LEVELS[name][0]}" in table)
        assert (block[[f"{name}={level}" for level in BANK_FULL_LEVELS[name]]].sum(axis=1) == 1.0).all()


def test_a_banks_bounds_leave_few_outside_and_other_seeds_deal_other_columns() -> None:
    first, second = (loaded(bank_full, seed=seed) for seed in (0, 1))
    assert set(first["a"].columns) != set(second["a"].columns)
    for table in first.values():
        for name in table.columns.intersection(list(BANK_FULL_BOUNDS)):
            assert table[name].between(*BANK_FULL_BOUNDS[name]).mean() > 0.99
    assert "y" in loaded(bank_full, label_at="a")["a"]
    with pytest.raises(ConfigError, match="no party 'c'"):
        bank_full(label_at="c")


def test_breast_cancer_views_are_the_last_and_the_first_columns() -> None:
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer(as_frame=True)
    tables = breast_cancer_views()
    assert np.array_equal(tables["a"].iloc[:, 1:], data.data.iloc[:, 15:])
    assert np.array_equal(tables["b"].iloc[:, 1:-1], data.data.iloc[:, :15])
    assert tables["b"]["diagnosis"].value_counts().to_dict() == {"benign": 357, "malignant": 212}
    assert tables["a"]["patient"].tolist() == tables["b"]["patient"].tolist()
    assert set(BREAST_CANCER_BOUNDS) == set(data.data.columns)
    assert all(data.data[name].between(*bounds).all() for name, bounds in BREAST_CANCER_BOUNDS.items())


def test_hamilton_has_the_people_links_and_columns_of_the_paper() -> None:
    graph = loaded(hamilton46)
    assert graph.features.shape == (2118, 144)
    assert graph.edges.shape == (87_486, 2)
    assert list(graph.levels.items()) == [
        ("gender", 3),
        ("major_index", 48),
        ("second_major", 50),
        ("dorm", 27),
        ("year", 16),
    ]
    assert set(np.unique(graph.features)) == {0.0, 1.0}
    start = 0
    for name, width in graph.levels.items():
        assert (graph.features[:, start : start + width].sum(axis=1) == 1.0).all()
        assert all(column.startswith(f"{name}=") for column in graph.columns[start : start + width])
        start += width
    assert np.bincount(graph.labels).tolist() == [1708, 397, 2, 2, 8, 1]
    assert len(graph.classes) == 6
    assert len(set(graph.ids)) == 2118


def test_the_friends_of_107_are_labelled_by_gender_and_not_described_by_it() -> None:
    graph = loaded(ego_facebook)
    assert graph.features.shape == (1033, 574)
    assert graph.classes == ("gender_77", "gender_78")
    assert np.bincount(graph.labels).tolist() == [357, 676]
    assert not any(name.startswith("gender") for name in graph.columns)
    assert not graph.levels


@pytest.mark.parametrize("load", [hamilton46, ego_facebook])
def test_links_join_two_known_people_once(load: Callable[..., Any]) -> None:
    graph = loaded(load)
    assert graph.edges.min() >= 0
    assert graph.edges.max() < len(graph.ids)
    assert (graph.edges[:, 0] < graph.edges[:, 1]).all()
    assert len(np.unique(graph.edges, axis=0)) == len(graph.edges)


def test_links_join_the_people_that_they_join_in_the_file() -> None:
    graph = loaded(hamilton46)
    from colonnade.datasets.files import data_file

    nodes = pd.read_parquet(data_file("facebook100/Hamilton46_nodes.parquet", "")).set_index("node")
    links = pd.read_parquet(data_file("facebook100/Hamilton46_edges.parquet", ""))
    numbers = np.array([int(name.removeprefix("node_")) for name in graph.ids])
    linked = set(map(tuple, links.to_numpy().tolist()))
    assert all(tuple(pair) in linked for pair in numbers[graph.edges].tolist())
    dorms = [column for column in graph.columns if column.startswith("dorm=")]
    start = graph.columns.index(dorms[0])
    lived = [dorms[place] for place in graph.features[:, start : start + len(dorms)].argmax(axis=1)]
    assert lived == [f"dorm={dorm}" for dorm in nodes.loc[numbers, "dorm"]]


@pytest.mark.parametrize("load", [mnist_views, mnist, cifar10_views, cifar10, bank_full, hamilton46, ego_facebook])
def test_missing_data_says_where_to_get_it(
    load: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    with pytest.raises(TableError, match=r"Get it from .*COLONNADE_DATA"):
        load()
