"""A small project of two parties, made anew for every test, and one that was run already."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from colonnade.cli import main

RUN = """\
[run]
name = "churn"
method = "splitnn"
roles = { label_holder = "bank", feature_holder = "shop" }
seed = 7

[alignment]
protocol = "ecdh"

[config]
hidden = [8]
cut_width = 4
secret_start = false
epochs = 2
minimum_steps = 0
batch_size = 32

[evaluate]
test_fraction = 0.2
validation_fraction = 0.1
"""

BANK = """\
[party]
name = "bank"
[table]
source = "customers.csv"
id = "customer"
label = "churned"
positive = "leaving"

[policy]
methods = ["splitnn"]
partners = ["shop"]
minimum_shared_rows = 20
"""

SHOP = """\
[party]
name = "shop"

[table]
source = "baskets.csv"
id = "customer"
"""


@dataclass(frozen=True)
class Outcome:
    """What one command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def message(self) -> str:
        """The error's own words, without click's reminder of the usage."""
        return self.err[self.err.rfind("Error: ") :] if "Error: " in self.err else self.err


class Project:
    """Files of a run as a user would have them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_toml = folder / "run.toml"
        self.run_folder = folder / "runs" / "churn"

    def write(self, customers: int = 120) -> Project:
        bank, shop = tables(customers)
        for name, text, file, frame in (("bank", BANK, "customers.csv", bank), ("shop", SHOP, "baskets.csv", shop)):
            (self.folder / name).mkdir(parents=True)
            (self.folder / name / "party.toml").write_text(text)
            frame.to_csv(self.folder / name / file, index=False)
        self.run_toml.write_text(RUN)
        return self

    def edit(self, file: str, old: str, new: str) -> Project:
        path = self.folder / file
        text = path.read_text()
        assert text.count(old) == 1, f"{file} has {text.count(old)} times {old!r}"
        path.write_text(text.replace(old, new))
        return self

    def frame(self, file: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Project:
        path = self.folder / file
        change(pd.read_csv(path)).to_csv(path, index=False)
        return self

    def cells(self) -> set[str]:
        """Every cell of every table that could not be mistaken for something else."""
        found: set[str] = set()
        for path in self.folder.glob("*/*.csv"):
            try:
                lines = path.read_text().splitlines()[1:]
            except UnicodeDecodeError:
                continue
            found |= {cell for line in lines for cell in line.split(",") if len(cell) >= 5}
        return found


def tables(customers: int = 120) -> tuple[pd.DataFrame, pd.DataFrame]:
    random = np.random.default_rng(3)
    ids = [f"cust-{number:05d}" for number in range(customers)]
    spent, visits = random.normal(50, 11, customers), random.normal(8, 3, customers)
    age = random.normal(40, 9, customers)
    leaves = (spent - 50) / 11 + (age - 40) / 9 + random.normal(0, 0.3, customers) > 0
    bank = pd.DataFrame(
        {
            "customer": ids,
            "age": age.round(5),
            "town": random.choice(["Zwickau", "Rostock", "Cottbus"], customers),
            "churned": np.where(leaves, "leaving", "staying"),
        }
    )
    shop = pd.DataFrame({"customer": ids, "spent": spent.round(5), "visits": visits.round(5)})
    return bank, shop.sample(frac=0.9, random_state=1)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path).write()


@pytest.fixture(scope="session")
def _finished_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    Project(folder).write()
    with pytest.raises(SystemExit) as ending:
        main(["run", "--simulate", str(folder / "run.toml"), "--quiet"])
    assert ending.value.code == 0
    return folder


@pytest.fixture
def finished(_finished_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy of a project whose run is done, to change at will."""
    shutil.copytree(_finished_once, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)


@pytest.fixture
def colonnade(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the command in this process."""

    def run(*words: str | os.PathLike[str]) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ending:
            main([str(word) for word in words])
        captured = capsys.readouterr()
        code = ending.value.code
        assert isinstance(code, int)
        assert not re.search(r"\x1b\[", captured.out + captured.err), "escape codes although this is no terminal"
        return Outcome(code, captured.out, captured.err)

    return run
