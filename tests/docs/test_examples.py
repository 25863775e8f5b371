"""Every example runs as a user would run it, without a warning."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

import colonnade as cn
from colonnade import datasets
from colonnade.cli import main
from colonnade.datasets import adult, town_later, town_sister_banks
from colonnade.demos import DEMOS, tables_of
from colonnade.errors import PolicyRefused, TableError
from colonnade.launch.baselines import judge_plain
from colonnade.launch.home import read_run_file
from colonnade.metrics import area_under_roc

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


# These take most of a minute.
LONG = ("ftl_credit", "prada_census", "fairvfl_income")
# Another process takes longer to load torch than most of them to run, so that one stands for all there.
AS_A_PROCESS = "two_parties"


def needs_adult() -> None:
    try:
        adult(rows=1)
    except TableError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[Path], None]:
    """Run a script in this process, where warnings are errors."""

    def run(script: Path) -> None:
        monkeypatch.chdir(tmp_path)
        capsys.readouterr()
        runpy.run_path(str(script), run_name="__main__")
        assert capsys.readouterr().out
        assert not list(tmp_path.iterdir()), "an example leaves files behind"

    return run


def test_an_example_runs_as_a_process(tmp_path: Path) -> None:
    words = [sys.executable, "-W", "error", str(ROOT / "examples" / f"{AS_A_PROCESS}.py")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not list(tmp_path.iterdir()), "an example leaves files behind"


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(one, id=one.stem, marks=[pytest.mark.slow] if one.stem in LONG else [])
        for one in EXAMPLES
        if one.stem != AS_A_PROCESS
    ],
)
def test_example_runs(script: Path, runs: Callable[[Path], None]) -> None:
    if script.stem == "fairvfl_income":
        needs_adult()
    runs(script)


@pytest.mark.parametrize("name", ["ftl_credit", "prada_census"])
def test_example_runs_with_small_keys_or_tables(
    name: str, runs: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cn, "FTL", partial(cn.FTL, key_size="insecure_test"))
    monkeypatch.setattr(datasets, "town_sister_banks", partial(town_sister_banks, source=1000))
    runs(ROOT / "examples" / f"{name}.py")


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Give a command in this process."""

    def give(*words: str) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ending:
            main(list(words))
        captured = capsys.readouterr()
        assert ending.value.code == 0, captured.err
        return captured.out

    return give


@pytest.fixture
def make_tables(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Go to the folder of an example and run its script that makes the tables, with or without real data."""

    def make(folder: Path, *, is_real: bool = False) -> str:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["make_tables.py"])
        if not is_real:
            monkeypatch.setenv("COLONNADE_DATA", str(folder / "nowhere"))
        runpy.run_path("make_tables.py", run_name="__main__")
        return capsys.readouterr().out

    return make


@pytest.mark.parametrize(
    "is_real", [pytest.param(False, id="made up"), pytest.param(True, id="real", marks=pytest.mark.slow)]
)
def test_the_homes_of_the_credit_example_train_and_score(
    tmp_path: Path, is_real: bool, make_tables: Callable[..., str], command: Callable[..., str]
) -> None:
    """With small keys and few steps; `colonnade run --local run.toml` in the folder itself takes about two minutes."""
    folder, example = tmp_path / "ftl_credit", ROOT / "examples" / "ftl_credit"
    shutil.copytree(example, folder, ignore=shutil.ignore_patterns("runs", "*.csv", "alignments"))
    settings = (folder / "run.toml").read_text()
    for name, value in (("width", '2\nkey_size = "insecure_test"'), ("iterations", "2"), ("labelled_rows", "40")):
        settings, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", settings, flags=re.MULTILINE)
        assert count == 1
    (folder / "run.toml").write_text(settings)
    said = make_tables(folder, is_real=is_real)
    assert ("made-up" in said) != ("real clients" in said.replace("the real ones", ""))
    if is_real and "made-up" in said:
        pytest.skip("the data is not on this machine")
    assert "Transfer against learning alone" in command("run", "--simulate", "run.toml", "--quiet")
    predict = ("predict", "runs/credit", "--table", "shop=shop/new.csv", "--output", "scores.csv")
    command(*predict)
    scores = pd.read_csv(folder / "scores.csv")
    assert list(scores.columns) == ["client", "prediction"]
    assert len(scores) == len(pd.read_csv(folder / "shop" / "new.csv"))
    command("audit", "verify", "runs/credit")


def judged_by_outcomes(folder: Path) -> float:
    """Return how well the scores of people who came later order them by how it went, as AUC."""
    scores = pd.read_csv(folder / "scores.csv").set_index("customer")
    went = pd.read_csv(folder / "outcomes.csv").set_index("customer")["paid_back"]
    assert list(scores.index) == list(went.index)
    values = scores.select_dtypes("float").iloc[:, 0]
    # The class that is predicted where the score is highest is the one that the score is of.
    return float(area_under_roc((went == scores["prediction"][values.idxmax()]).to_numpy(), values.to_numpy()))


def go_through_census(folder: Path, command: Callable[..., str]) -> None:
    assert "[config.groups]" in command("groups", "data", "--count", "3")
    run = ("run", "--simulate", "run.toml", "--quiet")
    assert "Whether transfer helped" in command(*run)
    assert "What moves the score" in command(*run, "--stage", "explain")
    tables = ("--table", "bank=bank/new.csv", "--table", "data=data/new.csv")
    command("predict", "runs/census", *tables, "--output", "scores.csv")
    command("audit", "verify", "runs/census")


@pytest.fixture
def census(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The homes of the census example, without tables yet."""
    folder, example = tmp_path / "prada_census", ROOT / "examples" / "prada_census"
    shutil.copytree(example, folder, ignore=shutil.ignore_patterns("runs", "*.csv", "alignments"))
    monkeypatch.chdir(folder)
    return folder


def test_the_homes_of_the_census_example_train_explain_and_score(
    census: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., str]
) -> None:
    """With few rows and steps; `colonnade run --local run.toml` in the folder itself takes about a minute."""
    settings = (census / "run.toml").read_text()
    few = "[config]\nepochs = 1\nfine_epochs = 2\npictures = false\nmargin = 100.0\n"
    (census / "run.toml").write_text(settings.replace("[config]\n", few))
    monkeypatch.setattr(sys, "argv", ["make_tables.py", ".", "1000"])
    runpy.run_path("make_tables.py", run_name="__main__")
    go_through_census(census, command)
    assert 0.0 <= judged_by_outcomes(census) <= 1.0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_census_example_shows_what_a_sister_bank_is_good_for(
    census: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., str]
) -> None:
    """The model that serves, as shipped, against the best the bank can do without the sister, on later customers."""
    monkeypatch.setattr(sys, "argv", ["make_tables.py"])
    runpy.run_path("make_tables.py", run_name="__main__")
    go_through_census(census, command)
    plan, demo = read_run_file(census / "run.toml"), DEMOS["prada"]
    tables, later = tables_of(demo, town_sister_banks()), tables_of(demo, town_later())
    without = max(judge_plain(plan, tables, who, later).metrics["auc"] for who in (("bank",), ("bank", "data")))
    assert judged_by_outcomes(census) > without + 0.01


def test_the_homes_of_the_deposit_example_train_and_score_all_situations(
    tmp_path: Path, make_tables: Callable[..., str], command: Callable[..., str]
) -> None:
    """With two epochs; `colonnade run --local run.toml` in the folder itself takes about a minute."""
    folder, example = tmp_path / "fedcvt_bank", ROOT / "examples" / "fedcvt_bank"
    shutil.copytree(example, folder, ignore=shutil.ignore_patterns("runs", "*.csv", "alignments"))
    settings = (folder / "run.toml").read_text()
    (folder / "run.toml").write_text(settings.replace("[config]\n", "[config]\nepochs = 2\n"))

    assert "made-up" in make_tables(folder)
    assert "Who knows a row" in command("run", "--simulate", "run.toml", "--quiet", "--no-compare")
    tables = ("--table", "bank=bank/new.csv", "--table", "agency=agency/new.csv")
    command("predict", "runs/deposit", *tables, "--output", "scores.csv")
    scores = pd.read_csv(folder / "scores.csv")
    assert list(scores.columns) == ["party", "customer", "known to", "probability_yes", "prediction"]
    assert scores["known to"].value_counts().to_dict() == {"all parties": 50, "bank only": 50, "agency only": 50}
    command("audit", "verify", "runs/deposit")


def test_the_homes_of_the_hospitals_train_and_score_patients_whom_one_knows(
    tmp_path: Path, make_tables: Callable[..., str], command: Callable[..., str]
) -> None:
    """With two epochs and without parts; `colonnade run --local run.toml` in the folder itself takes about a minute."""
    folder, example = tmp_path / "mpdl_hospitals", ROOT / "examples" / "mpdl_hospitals"
    shutil.copytree(example, folder, ignore=shutil.ignore_patterns("runs", "*.csv", "alignments"))
    settings = (folder / "run.toml").read_text()
    (folder / "run.toml").write_text(settings.replace("[config]\n", "[config]\nepochs = 2\nfolds = 0\n"))

    assert make_tables(folder).count("patients") >= 4
    said = command("run", "--simulate", "run.toml", "--quiet")
    assert "a whole row, summed over its cells" in said
    tables = ("--table", "north=north/new.csv", "--table", "south=south/new.csv")
    command("predict", "runs/cells", *tables, "--output", "scores.csv")
    scores = pd.read_csv(folder / "scores.csv")
    assert list(scores.columns) == ["party", "patient", "known to", "probability_malignant", "prediction"]
    assert scores["known to"].value_counts().to_dict() == {"all parties": 39, "north only": 39, "south only": 39}
    command("audit", "verify", "runs/cells")

    # Both hospitals refuse to show columns without noise, whatever run.toml says.
    (folder / "run.toml").write_text(settings.replace("epsilon = 0.5", 'mechanism = "none"').replace("cells", "open"))
    with pytest.raises(SystemExit) as ending:
        main(["run", "--simulate", "run.toml", "--quiet"])
    assert ending.value.code == PolicyRefused.exit_code


@pytest.mark.slow
def test_the_homes_of_the_income_example_train_are_audited_and_score(
    tmp_path: Path, make_tables: Callable[..., str], command: Callable[..., str]
) -> None:
    """With few people and one epoch; `colonnade run --local run.toml` in the folder itself takes a minute or two."""
    needs_adult()
    # After one epoch a model may be no better than a constant answer, and would not score.
    folder = income_homes(tmp_path, epochs='1\nkey_size = "insecure_test"\nsafeguard = false', attackers="1")
    assert make_tables(folder, is_real=True).count("people,") == 10
    run = ("run", "--simulate", "run.toml", "--quiet")
    said = command(*run)
    assert "gender: 1200 labels of 2 classes were each kept with probability" in said
    said = command(*run, "--stage", "audit")
    assert "The audit in plain words" in said
    assert "demographic parity" in said
    parties = ("tax", "platform_1", "platform_2", "platform_3")
    tables = [word for party in parties for word in ("--table", f"{party}={party}/new.csv")]
    command("predict", "runs/income", *tables, "--output", "scores.csv")
    scores = pd.read_csv(folder / "scores.csv")
    assert list(scores.columns) == ["id", "probability_>50K", "prediction"]
    assert len(scores) == len(pd.read_csv(folder / "tax" / "new.csv"))
    for name in ("income", "income-audit"):
        command("audit", "verify", f"runs/{name}")


def test_the_income_example_says_where_its_data_is_to_be_had(tmp_path: Path, make_tables: Callable[..., str]) -> None:
    with pytest.raises(SystemExit, match="COLONNADE_DATA"):
        make_tables(income_homes(tmp_path))


def income_homes(place: Path, **changes: str) -> Path:
    """Copy the seven homes, for fewer people and with other settings."""
    folder, example = place / "fairvfl_income", ROOT / "examples" / "fairvfl_income"
    shutil.copytree(example, folder, ignore=shutil.ignore_patterns("runs", "*.csv", "alignments"))
    for file, given in (("make_tables.py", {"PEOPLE": "1300"}), ("run.toml", changes)):
        text = (folder / file).read_text()
        for name, value in given.items():
            text, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
            assert count == 1
        (folder / file).write_text(text)
    return folder
