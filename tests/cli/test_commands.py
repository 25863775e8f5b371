"""Every command doing what it is for."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file
from tests.docs.test_tutorial import in_this_process

from colonnade import __version__
from colonnade.cli import COMMANDS
from colonnade.launch.run_folder import load_run

RUN = ("run", "--simulate", "run.toml")
FAST = (*RUN, "--no-compare", "--quiet")
PREDICT = ("predict", "runs/churn", "--table", "bank=bank/customers.csv", "--table", "shop=shop/baskets.csv")
INSTALLED = str(Path(sys.executable).parent / "colonnade")


def weights(run_folder: Path) -> dict[str, dict[str, np.ndarray]]:
    return {path.parent.parent.name: load_file(path) for path in run_folder.glob("*/model/part.safetensors")}


def assert_same_model(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys() != set()
    for party in first:
        assert first[party].keys() == second[party].keys()
        for name, values in first[party].items():
            np.testing.assert_array_equal(values, second[party][name])


# Help and version


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)])
def test_the_overview_lists_every_command(words: tuple[str, ...], colonnade: Any) -> None:
    shown = colonnade(*words)
    assert shown.code == 0
    assert shown.err == ""
    for command in COMMANDS:
        assert f"\n  {command} " in shown.out
    assert "colonnade demo" in shown.out


@pytest.mark.parametrize("command", [*COMMANDS, "audit verify"])
def test_help_of_a_command_has_an_example_and_says_what_it_does(command: str, colonnade: Any) -> None:
    for words in ([*command.split(), "--help"], [*command.split(), "-h"], ["help", *command.split()]):
        shown = colonnade(*words)
        assert shown.code == 0
        assert shown.err == ""
        assert "Usage: colonnade" in shown.out
        assert re.search(rf"Examples:\n\s+colonnade {command}", shown.out)
        assert "list[str]" not in shown.out, "PARTY=FILE says more than a Python type"


@pytest.mark.parametrize("word", ["--version", "version"])
def test_version_is_told(word: str, colonnade: Any) -> None:
    assert colonnade(word).out == f"colonnade {__version__}\n"


def test_the_overview_and_the_version_load_nothing_heavy() -> None:
    program = """
import sys
from colonnade.cli import main
try:
    main([sys.argv[1]])
except SystemExit:
    pass
heavy = {"torch", "pandas", "numpy", "typer", "rich", "sklearn", "pydantic", "sqlalchemy"} & set(sys.modules)
sys.stderr.write(" ".join(sorted(heavy)))
"""
    for word in ("--help", "--version"):
        done = subprocess.run([sys.executable, "-c", program, word], capture_output=True, text=True, timeout=60)
        assert done.stdout
        assert done.stderr == ""


# Methods


def test_methods_lists_and_shows(colonnade: Any) -> None:
    listed = colonnade("methods")
    assert listed.code == 0
    assert "splitnn" in listed.out
    one = colonnade("methods", "splitnn")
    (document,) = colonnade("methods", "splitnn", "--json").json
    assert colonnade("methods", "--json").json[0] == document
    for role in document["roles"]:
        assert role in one.out
    for setting, about in document["settings"].items():
        assert (
            f"  {setting}: {about['takes']}; default {json.dumps(about['default'])}\n    {about['meaning']}" in one.out
        )
    for message in document["messages"]:
        assert message["message"] in one.out
        assert message["reveals"] in one.out


# A run and all that follows


def test_run_then_predict_report_and_audit(project: Any, colonnade: Any) -> None:
    run = colonnade(*RUN)
    assert run.code == 0, run.err
    assert re.search(r"^bank +label_holder +120 +108 +2 ", run.out, re.MULTILINE)
    assert "bank alone" in run.out
    assert "together (federated)" in run.out
    assert "central (all columns in one place)" in run.out
    first, about, second, *progress = run.err.splitlines()
    assert first == "bank: 120 rows, 2 columns used (1 number, 1 category), label churned"
    assert second == "shop: 108 rows, 2 columns used (2 numbers)"
    assert about == "'leaving' counts as positive, as set: 60 of 120 labels."
    assert about in (project.run_folder / "report.html").read_text().replace("&#x27;", "'")
    assert (project.run_folder / "shop" / "outcome.json").read_text().count("leaving") == 0
    assert all(line.startswith(("train: step ", "comparison: step ")) for line in progress), (
        "only a slow machine has time for such lines"
    )
    assert (project.run_folder / "run.toml").read_bytes() == project.run_toml.read_bytes()

    scored = colonnade(*PREDICT)
    assert scored.code == 0, scored.err
    frame = pd.read_csv(io.StringIO(scored.out))
    assert list(frame.columns) == ["customer", "probability_leaving", "prediction"]
    assert len(frame) == 108
    threshold = load_run(project.run_folder).evaluation.operating.threshold
    assert ((frame["prediction"] == "leaving") == (frame["probability_leaving"] >= threshold)).all()
    assert "108 rows scored; bank gave 120" in scored.err

    for file, read in (("scores.csv", pd.read_csv), ("scores.parquet", pd.read_parquet)):
        written = colonnade(*PREDICT, "--output", file)
        assert (written.code, written.out) == (0, "")
        assert file in written.err
        pd.testing.assert_frame_equal(read(project.folder / file), frame)

    as_json = colonnade(*PREDICT, "--json").json
    assert as_json["rows"] == 108
    pd.testing.assert_frame_equal(pd.DataFrame(as_json["scores"]), frame)

    report = colonnade("report", "runs/churn", "--output", "page.html")
    assert (report.code, report.out, report.err) == (0, "page.html\n", "")
    assert "bank" in (project.folder / "page.html").read_text()
    told = colonnade("report", "runs/churn", "--json").json
    assert told["name"] == "churn"
    assert [party["name"] for party in told["parties"]] == ["bank", "shop"]

    audit = colonnade("audit", "verify", "runs/churn")
    assert audit.code == 0
    assert "The ledgers agree" in audit.out
    checked = colonnade("audit", "verify", "runs/churn", "--json").json
    assert checked["verified"] is True
    for party in ("bank", "shop"):
        about = checked["ledgers"][party]
        assert f"{party}: {about['entries']} entries, chain intact and closed, head {about['head'][:16]}" in audit.out
        for total in about["messages"]:
            assert total["message"] in audit.out
    files = [f"runs/churn/{party}/ledger.jsonl" for party in ("bank", "shop")]
    assert colonnade("audit", "verify", *files, "--json").json == checked
    assert colonnade("audit", "verify", "runs/churn/bank").code == 0
    assert colonnade("audit", "verify", "runs/churn/predictions/0004").code == 0


def test_run_as_json_says_what_the_text_says(project: Any, colonnade: Any) -> None:
    text = colonnade(*RUN, "--folder", "runs/a")
    document = colonnade(*RUN, "--folder", "runs/b", "--json", "--quiet")
    assert document.err == ""
    told = document.json
    assert told["run"] == "churn"
    assert told["method"] == "splitnn"
    assert told["parties"]["shop"]["shared_rows"] == 108
    assert Path(told["report"]).exists()
    for name in ("auc", "ks", "accuracy", "log_loss"):
        assert f"{told['metrics']['together'][name]:.4f}" in text.out
    assert set(told["metrics"]) - {"average"} == {"together", "alone", "central"}
    calls = told["operating"][told["served"]]
    about = f"on {told['rows']['test']} held-out rows, {calls['positives']} of them '{calls['positive']}'"
    assert about in text.out
    said = " ".join(text.out.split())
    for words in (f"From a score of {calls['threshold']:.6g} on", calls["rule"], *told["warnings"]):
        assert words in said
    assert told["headline"] == "auc"
    assert_same_model(Path("runs/a"), Path("runs/b"))


def test_a_threshold_that_is_given_goes_before_the_one_that_validation_rows_chose(project: Any, colonnade: Any) -> None:
    told = colonnade(*FAST, "--threshold", "0.99999", "--json").json
    assert told["operating"]["together"]["threshold"] == 0.99999
    positive = told["operating"]["together"]["positive"]
    assert f"calls every held-out row '{told['operating']['together']['negative']}'" in " ".join(told["warnings"])
    never, always = (
        {one["prediction"] for one in colonnade(*PREDICT, *given, "--json").json["scores"]}
        for given in ((), ("--threshold", "0"))
    )
    assert always == {positive} != never
    refused = colonnade(*PREDICT, "--threshold", "5")
    assert refused.code == 2
    assert "threshold must be from 0 to 1" in refused.message


def test_run_from_another_folder_and_homes_elsewhere(project: Any, colonnade: Any, monkeypatch: Any) -> None:
    (project.folder / "bank").rename(project.folder / "moved")
    (project.folder / "elsewhere").mkdir()
    monkeypatch.chdir(project.folder / "elsewhere")
    run = colonnade("run", "--simulate", "../run.toml", "--home", "bank=../moved", "--no-compare", "--quiet")
    assert run.code == 0, run.err
    assert project.run_folder.is_dir()
    tables = ("--table", "bank=../moved/customers.csv", "--table", "shop=../shop/baskets.csv")
    assert colonnade("predict", project.run_folder, *tables, "--home", "bank=../moved").code == 0


def test_overwrite_makes_the_run_anew(finished: Any, colonnade: Any) -> None:
    before = colonnade("audit", "verify", "runs/churn", "--json").json
    assert colonnade(*PREDICT).code == 0
    assert colonnade(*FAST, "--overwrite").code == 0
    after = colonnade("audit", "verify", "runs/churn", "--json").json
    assert after["ledgers"]["bank"]["head"] != before["ledgers"]["bank"]["head"]
    assert not (finished.run_folder / "predictions").exists()
    assert not (finished.run_folder / ".earlier").exists()


def test_overwriting_a_live_run_is_refused_and_does_it_no_harm(project: Any, colonnade: Any) -> None:
    project.edit("run.toml", "epochs = 2", "epochs = 30\npatience = 0")
    command = [INSTALLED, *FAST]
    with subprocess.Popen(command, cwd=project.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as first:
        limit = time.monotonic() + 120
        while not list(project.run_folder.glob("bank/checkpoints/train/*.json")):
            assert first.poll() is None
            assert time.monotonic() < limit
            time.sleep(0.01)
        first.send_signal(signal.SIGSTOP)  # so that it is alive for as long as the others try
        time.sleep(0.5)  # its other threads stop a moment later
        try:
            before = {str(path): path.read_bytes() for path in project.run_folder.rglob("*") if path.is_file()}
            for more in ([], ["--overwrite"]):
                second = colonnade(*FAST, *more)
                assert second.code == 2
                assert second.err.startswith("Error: Another process is at work in runs/churn.")
                assert second.out == ""
            after = {str(path): path.read_bytes() for path in project.run_folder.rglob("*") if path.is_file()}
            assert after == before
        finally:
            first.send_signal(signal.SIGCONT)
        out, err = first.communicate(timeout=120)
    assert first.returncode == 0, err
    assert b"together (federated)" in out
    assert colonnade("audit", "verify", "runs/churn").code == 0


def test_rows_to_score_may_lack_the_label_and_have_other_columns(finished: Any, colonnade: Any) -> None:
    expected = colonnade(*PREDICT).out
    finished.frame("bank/customers.csv", lambda t: t.drop(columns="churned").assign(extra=1.5))
    assert colonnade(*PREDICT).out == expected


# The demo


def test_what_new_rows_differ_in_is_said_by_party_and_in_json(finished: Any, colonnade: Any) -> None:
    finished.frame("bank/customers.csv", lambda t: t.assign(town=t.town.replace({"Zwickau": "canary"}), age=t.age + 30))
    outcome = colonnade(*PREDICT, "--json")
    assert outcome.code == 0, outcome.err
    assert list(outcome.json["notes"]) == ["bank"], "the shop's rows are like those of training"
    age, town = outcome.json["notes"]["bank"]
    assert "the mean lies" in age
    assert "hold a category that no training row had" in town
    assert f"bank: {town}" in outcome.err
    assert "canary" not in outcome.err + outcome.out


def test_demo_goes_from_nothing_to_a_report(tmp_path: Path, monkeypatch: Any, colonnade: Any) -> None:
    monkeypatch.chdir(tmp_path)
    shown = colonnade("demo")
    assert shown.code == 0, shown.err
    assert (tmp_path / "colonnade-demo/runs/breast-cancer/report.html").exists()
    assert "together (federated)" in shown.out
    assert "Verdict: AUC" in shown.out
    for line in shown.out.splitlines():
        if line.startswith(("Ledgers:", "Score:")):
            words = re.split(r"(?=audit|predict)", line, maxsplit=1)[1].split()
            assert colonnade(*words).code == 0, "what the demo proposes must work"
    monkeypatch.setattr("colonnade.launch.local.run_locally", in_this_process)
    again = colonnade("demo", "--json")
    assert again.code == 0, "the demo may be repeated"
    metrics = again.json["metrics"]
    assert metrics["together"]["auc"] > metrics["alone"]["auc"]


# Going on after an interruption


def interrupt_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Interrupt the whole process when a party reaches a step, as Ctrl-C on a terminal does."""
    from colonnade.session import Session

    original = Session.next_step

    def next_step(session: Session) -> None:
        original(session)
        if session.step == step and session.role == "label_holder":
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.5)

    monkeypatch.setattr(Session, "next_step", next_step)


def test_an_interrupt_waits_until_every_party_has_stopped(
    project: Any, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        interrupt_at(patched, step=4)
        assert colonnade(*FAST).code == 130
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("party ")]
    assert left == [], "it would write into the ledger of the resumed run"


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_interrupted_run_goes_on_and_ends_with_the_same_model(
    overwrite: bool, project: Any, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.edit("run.toml", "epochs = 2", "epochs = 4")
    assert colonnade(*FAST, "--folder", "runs/undisturbed").code == 0
    with monkeypatch.context() as patched:
        interrupt_at(patched, step=8)  # three steps are an epoch
        stopped = colonnade(*FAST, *(["--overwrite"] if overwrite else []))
    assert stopped.code == 130
    assert stopped.out == ""
    assert "run the same command again" in stopped.err
    assert ("without --overwrite" in stopped.err) is overwrite
    assert "Error" not in stopped.err
    assert colonnade("audit", "verify", "runs/churn").code == 5

    again = colonnade(*FAST)
    assert again.code == 0, again.err
    assert_same_model(project.run_folder, project.folder / "runs/undisturbed")
    assert colonnade("audit", "verify", "runs/churn").code == 0
    lines = (project.run_folder / "bank/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3, 4]


def test_a_run_interrupted_in_its_comparison_goes_on(
    project: Any, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("colonnade.launch.simulation.ceiling", interrupt)
        assert colonnade(*RUN).code == 130
    again = colonnade(*RUN)
    assert again.code == 0, again.err
    assert "bank alone" in again.out
    assert colonnade("audit", "verify", "runs/churn").code == 0
    assert colonnade(*PREDICT).code == 0


def test_interrupting_something_else_is_told_in_a_word(colonnade: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("colonnade.cli.report.load_run", interrupt)
    stopped = colonnade("report", "runs/churn")
    assert (stopped.code, stopped.out, stopped.err) == (130, "", "Interrupted.\n")


# Errors nobody foresaw


@pytest.mark.parametrize("place", [0, 2])
def test_traceback_shows_where_an_error_came_from(place: int, project: Any, colonnade: Any) -> None:
    project.edit("run.toml", "seed = 7", "seed = -1")
    words = [*FAST]
    words.insert(place, "--traceback")
    shown = colonnade(*words)
    assert shown.code == 2, "the exit code stays the same"
    assert "Traceback" in shown.err
    assert shown.err.rstrip().splitlines()[-1].startswith("Error: run.toml: run.seed")


def test_a_fault_of_our_own_is_called_one(colonnade: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret cell")

    monkeypatch.setattr("colonnade.cli.report.load_run", fail)
    shown = colonnade("report", "runs/churn")
    assert shown.code == 1
    assert "unforeseen ZeroDivisionError" in shown.err
    assert "secret cell" not in shown.err
    assert "secret cell" in colonnade("report", "runs/churn", "--traceback").err


# Other parties, other tasks, other sources


def write_project(folder: Path, run: str, homes: dict[str, tuple[str, Callable[[Path], object]]]) -> None:
    (folder / "run.toml").write_text(run)
    for name, (about, write) in homes.items():
        (folder / name).mkdir()
        (folder / name / "party.toml").write_text(f'[party]\nname = "{name}"\n[table]\n{about}\n')
        write(folder / name)


def run_toml(roles: str, config: str = "") -> str:
    config = f"hidden = [8]\ncut_width = 4\nepochs = 3\nminimum_steps = 0\nbatch_size = 32\n{config}\n"
    return f'[run]\nname = "churn"\nmethod = "splitnn"\nroles = {roles}\n[config]\n{config}'


def numbers(columns: int, rows: int = 150, seed: int = 1) -> pd.DataFrame:
    values = np.random.default_rng(seed).normal(size=(rows, columns)).round(4)
    frame = pd.DataFrame(values, columns=[f"x{number}" for number in range(columns)])
    frame.insert(0, "key", np.arange(rows) + 1000)
    return frame


def csv(frame: pd.DataFrame) -> Callable[[Path], object]:
    return lambda folder: frame.to_csv(folder / "t.csv", index=False)


def test_three_parties_of_which_the_label_holder_has_no_columns(
    tmp_path: Path, monkeypatch: Any, colonnade: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = numbers(3, seed=1), numbers(2, seed=2)
    total = first["x0"] + second["x1"]
    labels = pd.DataFrame({"key": first["key"], "digit": np.digitize(total, [-0.7, 0.7])})
    write_project(
        tmp_path,
        run_toml('{ label_holder = "post", feature_holder = ["scan", "lab"] }'),
        {
            "post": ('source = "t.csv"\nid = "key"\nlabel = "digit"', csv(labels)),
            "scan": ('source = "t.csv"\nid = "key"', csv(first.sample(frac=0.9, random_state=1))),
            "lab": ('source = "t.csv"\nid = "key"', csv(second.sample(frac=0.9, random_state=2))),
        },
    )
    run = colonnade(*RUN, "--json", "--quiet")
    assert run.code == 0, run.err
    assert set(run.json["metrics"]) == {"together", "central"}, "no columns, so nothing alone"
    assert "macro_f1" in run.json["metrics"]["together"]
    words = [word for party in ("post", "scan", "lab") for word in ("--table", f"{party}={party}/t.csv")]
    scored = colonnade("predict", "runs/churn", *words)
    assert scored.code == 0, scored.err
    frame = pd.read_csv(io.StringIO(scored.out))
    assert list(frame.columns) == ["key", "probability_0", "probability_1", "probability_2", "prediction"]
    labels.drop(columns="digit").to_csv(tmp_path / "post" / "ids.csv", index=False)
    words[1] = "post=post/ids.csv"
    assert colonnade("predict", "runs/churn", *words).out == scored.out
    assert colonnade("audit", "verify", "runs/churn").code == 0
    assert colonnade("report", "runs/churn").code == 0


def test_regression_from_csv(tmp_path: Path, monkeypatch: Any, colonnade: Any) -> None:
    monkeypatch.chdir(tmp_path)
    own, other = numbers(2, seed=1), numbers(2, seed=2)
    write_project(
        tmp_path,
        run_toml('{ label_holder = "bank", feature_holder = "shop" }', "learning_rate = 0.05"),
        {
            "bank": (
                'source = "t.csv"\nid = "key"\nlabel = "income"',
                csv(own.assign(income=3000 + 500 * own["x0"] + 500 * other["x1"])),
            ),
            "shop": ('source = "t.csv"\nid = "key"', csv(other)),
        },
    )
    run = colonnade(*RUN, "--quiet")
    assert run.code == 0, run.err
    assert "rmse" in run.out
    scored = colonnade("predict", "runs/churn", "--table", "bank=bank/t.csv", "--table", "shop=shop/t.csv")
    frame = pd.read_csv(io.StringIO(scored.out))
    assert list(frame.columns) == ["key", "prediction"]
    assert 1000 < frame["prediction"].mean() < 5000


def test_tables_from_sqlite_and_parquet_give_the_same_model_as_csv(project: Any, colonnade: Any) -> None:
    assert colonnade(*FAST, "--folder", "runs/csv").code == 0
    bank, shop = (pd.read_csv(project.folder / file) for file in ("bank/customers.csv", "shop/baskets.csv"))
    with closing(sqlite3.connect(project.folder / "bank/bank.db")) as connection:
        bank.to_sql("customers", connection, index=False)
    shop.to_parquet(project.folder / "shop/baskets.parquet", index=False)
    query = 'query = "select * from customers"'
    project.edit("bank/party.toml", '"customers.csv"', f'"sqlite:///bank.db"\n{query}')
    project.edit("shop/party.toml", "baskets.csv", "baskets.parquet")
    other = colonnade(*FAST, "--folder", "runs/other")
    assert other.code == 0, other.err
    assert_same_model(Path("runs/csv"), Path("runs/other"))


# Terminals and pipes


def test_on_a_terminal_a_bar_shows_and_the_data_stays_clean(project: Any) -> None:
    project.edit("run.toml", "epochs = 2", "epochs = 40\npatience = 0")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    command = [INSTALLED, *RUN, "--no-compare"]
    with subprocess.Popen(
        command, cwd=project.folder, stdout=subprocess.PIPE, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        shown = b""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            ready, _, _ = select.select([ours], [], [], 1)
            try:
                piece = os.read(ours, 65536) if ready else b""
            except OSError:  # the other side is closed
                break
            shown += piece
        assert process.stdout is not None
        data = process.stdout.read()
    os.close(ours)
    assert process.returncode == 0
    assert b"\x1b[" in shown
    assert b"epoch" in shown
    assert b"\x1b[" not in data
    assert b"together (federated)" in data


def test_a_reader_that_stops_early_sees_no_error(finished: Any) -> None:
    with subprocess.Popen(
        [INSTALLED, *PREDICT], cwd=finished.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read().decode()
    assert "Traceback" not in said
    assert "Error" not in said
    assert "Exception" not in said
