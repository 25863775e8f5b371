"""`colonnade inspect`, and what the first lines of other commands and the report take from it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pandas as pd
from tests.cli.conftest import Outcome, Project


def test_a_home_is_inspected(project: Project, colonnade: Any) -> None:
    outcome: Outcome = colonnade("inspect", "bank")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "bank: 120 rows, 2 columns used (1 number, 1 category), label churned"
    assert lines[1] == "id customer: text, length 10, lower case, some with hyphens inside (length 9 without)"
    assert lines[2].startswith("label churned: binary, ")
    assert {*lines[2].split()} > {"leaving", "staying"}
    assert lines[3].startswith("'leaving' counts as positive, as set: ")
    assert any(line.split() == ["town", "category", "0", "3", "3", "3", "categories"] for line in lines)
    assert lines[-1] == "Nothing looks wrong."
    shown = colonnade("inspect", "bank", "--json").json
    assert shown["label"]["classes"].keys() == {"leaving", "staying"}
    assert [(one["name"], one["outputs"], one["notes"]) for one in shown["columns"]] == [
        ("age", 1, []),
        ("town", 3, []),
    ]


def test_a_file_says_which_column_may_be_the_id_and_following_it_works(project: Project, colonnade: Any) -> None:
    file = project.folder / "our customers.csv"
    file.write_text((project.folder / "bank" / "customers.csv").read_text())
    refused: Outcome = colonnade("inspect", file)
    assert refused.code == 2
    assert "'customer', 'age'" in refused.message
    numbered = pd.read_csv(file)
    numbered.insert(0, "line", range(1, len(numbered) + 1))
    numbered.to_csv(project.folder / "numbered.csv", index=False)
    assert "'customer', 'age', 'line'" in colonnade("inspect", "numbered.csv").message
    words = shlex.split(refused.message.split("For the first: colonnade ")[1])
    assert colonnade(*words).out.startswith("our customers.csv: 120 rows, 3 columns used")
    with_label = colonnade(*words, "--label", "churned", "--drop", "age").out
    assert with_label.startswith("our customers.csv: 120 rows, 1 column used (1 category), label churned\n")


def test_what_cannot_be_inspected_is_explained(project: Project, colonnade: Any) -> None:
    assert "--id, --label and --drop are for a file" in colonnade("inspect", "bank", "--id", "customer").message
    project.edit("shop/party.toml", '[table]\nsource = "baskets.csv"\nid = "customer"\n', "")
    assert "'shop' holds no table" in colonnade("inspect", "shop").message
    assert "There is no file 'custmers.csv'" in colonnade("inspect", "bank/custmers.csv").message
    (project.folder / "twice.csv").write_text("a,b\n1,1\n1,2\n1,2\n")
    assert "give --id once for each" in colonnade("inspect", "twice.csv").message


def test_run_doctor_and_report_say_what_looks_wrong(project: Project, colonnade: Any, tmp_path: Path) -> None:
    project.frame(
        "bank/customers.csv", lambda table: table.assign(left=table.churned.where(table.churned == "leaving"))
    )
    note = "left: It alone nearly determines the label 'churned'."
    assert f"  {note}" in colonnade("doctor", "--home", "bank").out
    outcome: Outcome = colonnade("run", "--simulate", "run.toml")
    assert outcome.code == 0
    assert "bank: 120 rows, 3 columns used (1 number, 2 categories), label churned\n" in outcome.err
    assert f"  {note}" in outcome.err
    page = (project.run_folder / "report.html").read_text()
    assert '<span class="worse">1 to look at</span>' in page
    assert '<small class="worse"><strong>Look at this: </strong>It alone nearly determines the label' in page
    assert "number, bounded" in page
    # What one party's table looks like is that party's own.
    assert "determines" not in "".join(path.read_text() for path in (project.run_folder / "shop").glob("*.json*"))
