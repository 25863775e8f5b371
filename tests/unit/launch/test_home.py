"""run.toml and party.toml."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from colonnade.data import Kind
from colonnade.engine import EngineSettings
from colonnade.errors import ConfigError, TableError
from colonnade.launch.home import new_party_file, read_party_home, read_run_file
from colonnade.session import Alignment, ModelPart

RUN = """\
[run]
name = "churn"
method = "splitnn"
roles = { label_holder = "bank", feature_holder = ["shop", "post"] }
"""

HOME = """\
# A comment with [policy] in it
[party]
name = "bank"

[partners.shop]
address = "shop.example:7443"

[table]
source = "t.csv"
id = "key"
label = "y"
drop = ["note"]
types = { town = "categorical" }

  [policy]  # rules
methods = [
  "splitnn",
]
minimum_shared_rows = 3
"""


def write_home(folder: Path, text: str = HOME) -> Path:
    folder.mkdir()
    (folder / "party.toml").write_text(text)
    return folder


def test_a_run_file_becomes_a_plan_with_every_default(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(RUN)
    plan = read_run_file(path)
    assert plan.parties == ("bank", "shop", "post")
    assert plan.seed == 0
    assert plan.alignment == Alignment()
    assert plan.config["epochs"] == 60


def test_the_digest_does_not_depend_on_what_is_written_out(tmp_path: Path) -> None:
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text(RUN)
    second.write_text(RUN.replace("[run]", "# same\n[run]\nseed = 0") + "[config]\nepochs = 60\npatience = 10\n")
    assert read_run_file(first).digest() == read_run_file(second).digest()


def test_a_home_knows_its_rules_and_their_lines(tmp_path: Path) -> None:
    home = read_party_home(write_home(tmp_path / "bank"), "bank")
    assert home.policy.methods == ("splitnn",)
    assert home.policy.minimum_shared_rows == 3
    assert home.policy.lines == {"methods": 16, "minimum_shared_rows": 19}


def test_a_mistake_in_a_home_names_its_file(tmp_path: Path) -> None:
    folder = write_home(tmp_path / "bank", HOME.replace("minimum_shared_rows", "minimum_rows"))
    with pytest.raises(ConfigError) as caught:
        read_party_home(folder, "bank")
    assert str(caught.value).startswith(f"{folder / 'party.toml'}: There is no setting 'minimum_rows' in [policy]")


def trained_with(types: dict[str, Kind]) -> ModelPart:
    return ModelPart({}, {"types": types})


def test_new_rows_are_read_as_the_model_was_trained(tmp_path: Path) -> None:
    folder = write_home(tmp_path / "bank")
    pd.DataFrame({"key": [1, 2], "town": [10, 20], "age": [3, 4], "y": [0, 0], "note": ["a", "b"]}).to_csv(
        folder / "t.csv", index=False
    )
    table = read_party_home(folder).read_new_rows(
        str(folder / "t.csv"), trained_with({"town": "categorical", "age": "numeric"})
    )
    assert [(column.name, column.kind) for column in table.columns] == [("town", "categorical"), ("age", "numeric")]
    assert not table.has_label


@pytest.mark.parametrize("columns", [["key"], ["key", "y"], ["key", "y", "note"]])
def test_a_label_holder_without_columns_gives_ids_only(tmp_path: Path, columns: list[str]) -> None:
    folder = write_home(tmp_path / "bank")
    pd.DataFrame({"key": [1, 2], "y": [0, 0], "note": ["a", "b"]})[columns].to_csv(folder / "t.csv", index=False)
    table = read_party_home(folder).read_new_rows(str(folder / "t.csv"), trained_with({}))
    assert list(table.ids) == [1, 2]
    assert table.columns == ()


def test_a_column_the_model_does_not_use_may_be_unreadable(tmp_path: Path) -> None:
    folder = write_home(tmp_path / "bank")
    pd.DataFrame({"key": [1, 2], "age": [3.0, float("inf")]}).to_csv(folder / "t.csv", index=False)
    table = read_party_home(folder).read_new_rows(str(folder / "t.csv"), trained_with({}))
    assert list(table.ids) == [1, 2]


def test_new_rows_without_the_id_column_are_refused(tmp_path: Path) -> None:
    folder = write_home(tmp_path / "bank")
    pd.DataFrame({"kez": [1, 2]}).to_csv(folder / "t.csv", index=False)
    with pytest.raises(TableError, match="Did you mean 'kez'"):
        read_party_home(folder).read_new_rows(str(folder / "t.csv"), trained_with({}))


SEVERAL_IDS = HOME.replace('id = "key"', 'id = ["first", "born"]').replace(
    'address = "shop.example:7443"',
    'address = "shop.example:7443"\nid = "loyalty"\n\n[partners.telco]\nid = ["area", "number"]\n\n'
    '[partners.post]\naddress = "post.example:7443"',
)
ROWS = pd.DataFrame(
    {
        "first": ["Zoe", "Ann"],
        "born": ["0190", "0191"],
        "loyalty": ["007", None],
        "area": ["030", "040"],
        "number": [1, 2],
        "town": [10, 20],
        "y": [0, 1],
        "note": ["a", "b"],
    }
)


def test_a_home_may_name_several_id_columns_and_others_for_a_partner(tmp_path: Path) -> None:
    folder = write_home(tmp_path / "bank", SEVERAL_IDS)
    ROWS.to_csv(folder / "t.csv", index=False)
    home = read_party_home(folder)
    assert home.partners == {"shop": "shop.example:7443", "post": "post.example:7443"}
    table = home.read_table()
    assert table.ids.tolist() == [("Zoe", "0190"), ("Ann", "0191")]
    assert table.ids_for("shop").tolist() == ["007", None]
    assert table.ids_for("telco").tolist() == [("030", 1), ("040", 2)]
    assert table.ids_for("post") is table.ids
    assert table.feature_names == ("town",)


@pytest.mark.parametrize("types", [{}, {"town": "categorical"}])
def test_new_rows_have_all_ids_of_the_run(tmp_path: Path, types: dict[str, Kind]) -> None:
    folder = write_home(tmp_path / "bank", SEVERAL_IDS.replace("types = {", "types = { number = 'categorical',"))
    home, path = read_party_home(folder), folder / "new.csv"
    ROWS.to_csv(path, index=False)
    table = home.read_new_rows(str(path), trained_with(types))
    assert table.ids.tolist() == [("Zoe", "0190"), ("Ann", "0191")]
    assert table.ids_for("shop").tolist() == ["007", None]
    assert table.ids_for("telco").tolist() == [("030", "1"), ("040", "2")]
    assert table.feature_names == tuple(types)
    ROWS.drop(columns="loyalty").to_csv(path, index=False)
    without = home.read_new_rows(str(path), trained_with(types), parties=("bank", "telco"))
    assert without.ids_for("telco").tolist() == [("030", "1"), ("040", "2")]
    assert without.feature_names == tuple(types)
    with pytest.raises(TableError, match="no column 'loyalty', named under the id for partner 'shop'"):
        home.read_new_rows(str(path), trained_with(types), parties=("bank", "shop"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('id = "key"', "id = 5", "The setting table.id is wrong: it should be a text"),
        ('id = "key"', 'id = ["a", 5]', "The setting table.id"),
        ("[table]", "id = true\n[table]", "The setting partners.shop.id is wrong"),
        ("[table]", 'ids = "loyalty"\n[table]', "There is no setting 'ids' in [partners.shop]. Did you mean 'id'?"),
    ],
)
def test_wrong_id_settings_are_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_party_home(write_home(tmp_path / "bank", HOME.replace(old, new, 1)))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("", EngineSettings(kind="auto")),
        ('[engine]\nkind = "pool"\nworkers = 3\n', EngineSettings(kind="pool", workers=3)),
        ('[engine]\nkind = "ray"\naddress = "head:6379"\n', EngineSettings(kind="ray", address="head:6379")),
    ],
)
def test_a_home_says_where_heavy_work_runs(tmp_path: Path, table: str, expected: EngineSettings) -> None:
    assert read_party_home(write_home(tmp_path / "bank", HOME + table)).engine == expected


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('kind = "pol"', "Did you mean 'pool'?"),
        ("worker = 2", "There is no setting 'worker' in [engine]. Did you mean 'workers'?"),
        ("workers = 0", "engine.workers must be a whole number of 1 or more"),
        ('workers = "2"', "The setting engine.workers is wrong"),
        ('address = "head:6379"', "The engine 'auto' has no address"),
    ],
)
def test_a_wrong_engine_names_file_and_setting(tmp_path: Path, line: str, said: str) -> None:
    folder = write_home(tmp_path / "bank", HOME + f"[engine]\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        read_party_home(folder)
    assert str(caught.value).startswith(f"{folder / 'party.toml'}: ")
    assert said in str(caught.value)


@pytest.mark.parametrize("has_table", [True, False])
def test_a_new_party_file_can_be_read_also_with_every_example_in_use(tmp_path: Path, *, has_table: bool) -> None:
    table = {"source": "rows.csv", "id": "person", "label": None} if has_table else None
    text = new_party_file({"name": "bank", "listen": None}, table)
    (tmp_path / "party.toml").write_text(text)
    home = read_party_home(tmp_path)
    assert (home.name, home.listen, home.has_table) == ("bank", None, has_table)
    # An engine has an address only on Ray; a source has no query unless it is a database.
    used = re.sub(r"^#(?! )", "", text, flags=re.MULTILINE).replace('kind = "pool"', 'kind = "ray"')
    (tmp_path / "party.toml").write_text(used)
    home = read_party_home(tmp_path)
    assert (home.listen, home.partners) == ("0.0.0.0:7443", {"shop": "shop.example:7443"})
    assert home.policy.minimum_shared_rows == 500
    assert home.engine.workers == 4
