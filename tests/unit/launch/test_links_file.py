"""Links in party.toml: read beside the table, refused where they do not fit, and part of what a resumed run needs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from tests.unit.methods.mpdl.graph_worlds import EVALUATE, ROLES, graph_world, settings

import colonnade as cn
from colonnade.data import digest_with_lists, linked_rows
from colonnade.errors import TableError
from colonnade.launch.home import read_party_home

HOME = """\
[party]
name = "bank"

[table]
source = "people.csv"
id = "id"
links = "{links}"
"""


def home(folder: Path, links: pd.DataFrame, name: str = "links.csv") -> Path:
    (folder / "party.toml").write_text(HOME.format(links=name))
    (folder / "people.csv").write_text("id,age\n007,30\n008,40\n009,50\n")
    links.to_parquet(folder / name) if name.endswith("parquet") else links.to_csv(folder / name, index=False)
    return folder


@pytest.mark.parametrize("name", ["links.csv", "links.parquet"])
def test_links_are_read_beside_the_table(tmp_path: Path, name: str) -> None:
    links = pd.DataFrame({"from": ["009", "007"], "to": ["007", "008"]})
    table = read_party_home(home(tmp_path, links, name)).read_table()
    assert linked_rows(table, table.links).tolist() == [[0, 1], [0, 2]]


def test_links_to_people_whom_the_table_does_not_have_are_refused_at_once(tmp_path: Path) -> None:
    links = pd.DataFrame({"from": ["009", "007"], "to": ["007", "010"]})
    with pytest.raises(TableError, match="1 of 2 links for bank name an id"):
        read_party_home(home(tmp_path, links)).read_table()


def test_a_run_is_not_resumed_with_other_links(tmp_path: Path) -> None:
    one = read_party_home(home(tmp_path, pd.DataFrame({"from": ["007"], "to": ["008"]}))).read_table()
    other = read_party_home(home(tmp_path, pd.DataFrame({"from": ["007"], "to": ["009"]}))).read_table()
    turned = read_party_home(home(tmp_path, pd.DataFrame({"from": ["008"], "to": ["007"]}))).read_table()
    assert digest_with_lists(one) != digest_with_lists(other)
    assert digest_with_lists(one) == digest_with_lists(turned)


def test_a_graph_run_has_a_folder_with_a_report(tmp_path: Path) -> None:
    world = graph_world()
    run = cn.simulate(
        settings(), world.tables(), roles=ROLES, stage="graph", evaluate=EVALUATE, folder=tmp_path / "run"
    )
    run.verify()
    page = (tmp_path / "run" / "report.html").read_text()
    assert "links were used for" in page
