"""Whatever a user gets wrong: one short message, the right exit code, no traceback, no cell of a table."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from colonnade.errors import (
    CheckpointBroken,
    LedgerBroken,
    PolicyRefused,
    TrainingFailed,
    UsageError,
)

USAGE, POLICY, LEDGER = UsageError.exit_code, PolicyRefused.exit_code, LedgerBroken.exit_code
BROKEN, TRAINING = CheckpointBroken.exit_code, TrainingFailed.exit_code

RUN = ("run", "--simulate", "run.toml", "--quiet", "--no-compare")
PREDICT = ("predict", "runs/churn", "--table", "bank=bank/customers.csv", "--table", "shop=shop/baskets.csv")
BANK_TABLE, SHOP_TABLE = "bank/customers.csv", "shop/baskets.csv"


@dataclass(frozen=True)
class Case:
    """One mistake: what the user changed, what they typed, and what they must be told."""

    name: str
    words: tuple[str, ...]
    code: int
    says: tuple[str, ...]
    change: Callable[[Any], object] = lambda project: None


def toml(name: str, old: str, new: str, *says: str, code: int = USAGE) -> Case:
    """A mistake in run.toml."""
    return Case(name, RUN, code, says, lambda project: project.edit("run.toml", old, new))


def home(name: str, old: str, new: str, *says: str, code: int = USAGE) -> Case:
    """A mistake in the bank's party.toml."""
    return Case(name, RUN, code, says, lambda project: project.edit("bank/party.toml", old, new))


def table(name: str, file: str, change: Callable[[pd.DataFrame], pd.DataFrame], *says: str, code: int = USAGE) -> Case:
    """A mistake in a table."""
    return Case(name, RUN, code, says, lambda project: project.frame(file, change))


def raw(name: str, file: str, content: bytes, *says: str) -> Case:
    """A file with other content than expected."""
    return Case(name, RUN, USAGE, says, lambda project: (project.folder / file).write_bytes(content))


def typed(name: str, *words: str, says: tuple[str, ...], code: int = USAGE) -> Case:
    """A mistake on the command line alone."""
    return Case(name, words, code, says)


def as_parquet(project: Any) -> None:
    """Put a Parquet file where a CSV file is expected."""
    pd.read_csv(project.folder / BANK_TABLE).to_parquet(project.folder / "p")
    (project.folder / "p").rename(project.folder / BANK_TABLE)


def as_csv_named_parquet(project: Any) -> None:
    (project.folder / BANK_TABLE).rename(project.folder / "bank/customers.parquet")
    project.edit("bank/party.toml", "customers.csv", "customers.parquet")


def with_mixed_column(project: Any) -> None:
    """Move the bank's table into SQLite, which keeps numbers and texts in one column."""
    frame = pd.read_csv(project.folder / BANK_TABLE)
    frame["age"] = ["seventy", *frame["age"].astype(object)[1:]]
    with closing(sqlite3.connect(project.folder / "bank/bank.db")) as connection:
        frame.to_sql("customers", connection, index=False, dtype={"age": "BLOB"})
    project.edit("bank/party.toml", '"customers.csv"', '"sqlite:///bank.db"\ntable = "customers"')


COMMAND_LINE = [
    typed("unknown command", "fly", says=("no command 'fly'", "Known: align, audit, bench, demo")),
    typed("option before the command", "--json", "run", says=("no option '--json'", "colonnade COMMAND")),
    typed(
        "unknown option",
        "run",
        "run.toml",
        "--frobnicate",
        says=("No such option", "--frobnicate", "colonnade run --help"),
    ),
    typed("missing argument", "run", says=("Missing argument", "RUN.TOML")),
    typed("one argument too many", "run", "run.toml", "other.toml", says=("unexpected extra argument",)),
    typed("unknown benchmark", "bench", "nonsense", says=("no benchmark 'nonsense'", "Known: crypto.")),
    typed("no benchmark", "bench", says=("Missing argument", "NAME")),
    typed("audit without verify", "audit", "runs/churn", says=("No such command", "runs/churn")),
    typed("run.toml missing", "run", "nowhere.txt", says=("no file nowhere.txt", "run.toml")),
    typed("run.toml in a missing folder", "run", "gone/run.toml", says=("no file gone/run.toml", "Check the path")),
    typed("run.toml a folder", "run", "bank", says=("is a folder", "Give the file itself")),
    typed("home without a folder", *RUN, "--home", "bank", says=("--home PARTY=FOLDER",)),
    typed("home given twice", *RUN, "--home", "bank=bank", "--home", "bank=x", says=("'bank' twice",)),
    typed("home of another party", *RUN, "--home", "bank=shop", says=("belongs to 'shop'", "--home bank=FOLDER")),
    typed("folder of other things", *RUN, "--folder", "bank", says=("holds other things", "Choose another --folder")),
    typed("demo over other things", "demo", "--folder", ".", says=("holds other things", "--folder")),
    typed("demo over a file", "demo", "--folder", "run.toml", says=("is a file", "--folder")),
    typed("report of nothing", "report", "runs/none", says=("no run folder runs/none", "'runs/'")),
    typed("report of other things", "report", "bank", says=("holds no finished run",)),
    typed("audit of nothing", "audit", "verify", "runs/none", says=("no run folder",)),
    typed("audit of other things", "audit", "verify", "bank", says=("holds no ledgers", "such as runs/churn")),
    typed("audit of a file that is none", "audit", "verify", "run.toml", says=("not a ledger line",), code=LEDGER),
    typed("audit of two folders", "audit", "verify", "bank", "shop", says=("is a folder", "ledger files")),
    typed("predict with nothing", "predict", says=("Missing argument", "FOLDER")),
    typed("predict without tables", "predict", "runs/churn", says=("no run folder runs/churn",)),
    typed("predict from nothing", *PREDICT, says=("no run folder runs/churn",)),
]

RUN_TOML = [
    raw("run.toml not UTF-8", "run.toml", b'[run]\nname = "\xff\xfe"\n', "run.toml", "UTF-8"),
    raw("run.toml empty", "run.toml", b"", "[run] is missing", "colonnade demo"),
    Case(
        "a table that is none",
        RUN,
        USAGE,
        ("must be a table", "Write [alignment]"),
        lambda p: p.edit("run.toml", '[alignment]\nprotocol = "ecdh"', "").edit(
            "run.toml", "[run]", "alignment = 1\n[run]"
        ),
    ),
    toml("unknown key", "seed = 7", "sed = 7", "no setting 'sed' in [run]", "Did you mean 'seed'?"),
    toml("missing key", 'method = "splitnn"\n', "", "run.method is missing"),
    toml("seed a truth", "seed = 7", "seed = true", "run.seed", "a whole number"),
    toml("seed negative", "seed = 7", "seed = -7", "run.seed", "0 to 2^63"),
    toml("seed too large", "seed = 7", "seed = 9223372036854775808", "run.seed"),
    toml("party name climbs out", '"bank", f', '"../bank", f', "cannot be the name of a party", "letters"),
    toml("party name empty", '"bank", f', '"", f', "cannot be the name of a party"),
    toml("party name with a slash", '"bank", f', '"a/b", f', "cannot be the name of a party"),
    toml("the same party twice", '"shop"', '"bank"', "two roles", "exactly one role"),
    toml("missing role", 'label_holder = "bank", ', "", "exactly one party as label_holder", "roles in [run]"),
    toml("two label holders", '"bank", feature_holder = "shop"', '["bank", "shop"]', "exactly one", "names 2"),
    toml("roles a text", '{ label_holder = "bank", feature_holder = "shop" }', '"bank"', "run.roles", "Got"),
    toml("alignment in the open", '"ecdh"', '"plain"', "alignment.protocol", "'ecdh'"),
    toml("epochs a text", "epochs = 2", 'epochs = "two"', "config.epochs", "a whole number"),
    toml("epochs a fraction", "epochs = 2", "epochs = 2.5", "config.epochs", "a whole number"),
    toml("batches below none", "batch_size = 32", "batch_size = -1", "config.batch_size", "at least 0"),
    toml("hidden of width zero", "hidden = [8]", "hidden = [8, 0]", "config.hidden", "at least 1"),
    toml("learning rate zero", "epochs = 2", "epochs = 2\nlearning_rate = 0.0", "config.learning_rate", "above 0"),
    toml("learning rate no number", "epochs = 2", "epochs = 2\nlearning_rate = nan", "config.learning_rate"),
    toml("learning rate infinite", "epochs = 2", "epochs = 2\nlearning_rate = inf", "finite number"),
    toml("optimiser of before", "epochs = 2", 'epochs = 2\noptimiser = "Adam"', "'optimiser'", "Write optimizer"),
    toml("a date as a setting", "epochs = 2", "epochs = 2026-01-01", "config.epochs", "a whole number"),
    toml("fractions leave nothing", "test_fraction = 0.2", "test_fraction = 0.95", "leave no rows for training"),
    toml("optimizer LBFGS", "epochs = 2", 'epochs = 2\noptimizer = "LBFGS"', "LBFGS", "Use Adam"),
    toml(
        "optimizer option out of range",
        "epochs = 2",
        "epochs = 2\noptimizer_options = { weight_decay = -1.0 }",
        "AdamW refuses",
        "optimizer_options",
    ),
    toml("optimizer Muon", "epochs = 2", 'epochs = 2\noptimizer = "Muon"', "Muon", "weight matrices only", "Use Adam"),
    toml(
        "optimizer option of another kind",
        "epochs = 2",
        'epochs = 2\noptimizer_options = { maximize = "a" }',
        "optimizer_options.maximize",
        "true or false",
    ),
    toml(
        "optimizer option that cannot work",
        "epochs = 2",
        "epochs = 2\noptimizer_options = { differentiable = true }",
        "optimizer_options.differentiable",
        "Remove it",
    ),
    toml("hidden too wide", "hidden = [8]", "hidden = [100000000]", "config.hidden", "at most 65536"),
    toml("hidden too many weights", "hidden = [8]", "hidden = [60000, 60000]", "weights", "at most 100,000,000"),
    toml(
        "encoders of before",
        "[evaluate]",
        "[config.encoders.shop]\ncut_width = 3\n[evaluate]",
        "'encoders'",
        "pass a module of your own",
    ),
    toml("class weights of three", "epochs = 2", "epochs = 2\nclass_weights = [1.0, 2.0, 3.0]", "3 entries for 2"),
    toml("class weight zero", "epochs = 2", "epochs = 2\nclass_weights = [1.0, 0.0]", "class_weights", "above 0"),
    toml("regression on text", "epochs = 2", 'epochs = 2\ntask = "regression"', "regression needs numbers"),
    toml(
        "the loss runs away",
        ', feature_holder = "shop" }\nseed = 7\n\n[alignment]\nprotocol = "ecdh"\n\n[config]\n',
        ' }\n[config]\noptimizer = "SGD"\nlearning_rate = 1e30\n',
        "Training diverged",
        "Lower learning_rate",
        code=TRAINING,
    ),
]

PARTY_TOML = [
    Case("home missing", RUN, USAGE, ("home of 'bank'", "--home bank="), lambda p: shutil.rmtree(p.folder / "bank")),
    Case("party.toml missing", RUN, USAGE, ("party.toml",), lambda p: (p.folder / "bank/party.toml").unlink()),
    home("party.toml not TOML", "[table]", "[table", "bank/party.toml", "not valid TOML"),
    home("no table section", "[table]", "[partners.x]", "partners.x"),
    home("partner without a table", "[policy]", '[partners]\nshop = "s:1"\n[policy]', "partners.shop", "table"),
    home("rule below zero", "rows = 20", "rows = -1", "must not be negative"),
    home("unknown type", "[policy]", '[table.types]\nage = "number"\n[policy]', "table.types", "'numeric'"),
    home("source of unknown suffix", "customers.csv", "party.toml", "suffix"),
    home("label is the id", '"churned"', '"customer"', "both id and label"),
    home("no label at the label holder", 'label = "churned"\n', "", "no label", "label ="),
    home("query of a file", "[policy]", 'query = "select 1"\n[policy]', "is a file", "database"),
    home("database without query", "customers.csv", "sqlite:///none.db", "neither query nor table"),
    home(
        "database missing",
        'source = "customers.csv"',
        'source = "sqlite:///none.db"\ntable = "t"',
        "no SQLite file 'none.db'",
    ),
]

TABLES = [
    Case("Parquet named CSV", RUN, USAGE, ("customers.csv", "a Parquet file"), as_parquet),
    Case("CSV named Parquet", RUN, USAGE, ("customers.parquet", "should be a Parquet file"), as_csv_named_parquet),
    raw("CSV ragged", SHOP_TABLE, b"customer,spent\ncust-00001,77.125,88.125\n", "1 rows", "2 fields"),
    raw("CSV empty", SHOP_TABLE, b"", "empty file"),
    raw("CSV of a header only", SHOP_TABLE, b"customer,spent\n", "no rows"),
    raw("CSV in no known encoding", SHOP_TABLE, b"customer,spent\nM\x81ller,77.125\n", "encoding", "cp850"),
    raw("CSV with a nameless column", SHOP_TABLE, b",customer\n0,cust-00001\n", "no name", "index=False"),
    table("ids twice", BANK_TABLE, lambda t: pd.concat([t, t.head(3)]), "3 ids", "6 rows"),
    table("ids missing", BANK_TABLE, lambda t: t.assign(customer=t.customer.where(t.index > 1)), "empty in 2 of 120"),
    table("labels constant", BANK_TABLE, lambda t: t.assign(churned="staying"), "same value", "at least two"),
    table("labels empty", BANK_TABLE, lambda t: t.assign(churned=None), "empty in every row"),
    table("some labels empty", BANK_TABLE, lambda t: t.assign(churned=t.churned.where(t.index > 1)), "empty in 2 of"),
    Case("numbers and text", RUN, USAGE, ("'age'", "mixes", "row 1 of the table", 'drop = ["age"]'), with_mixed_column),
    table("numbers that are infinite", BANK_TABLE, lambda t: t.assign(age=["inf", *t.age[1:]]), "'age'", "infinite"),
    table("nothing shared", SHOP_TABLE, lambda t: t.assign(customer=range(9000, 9000 + len(t))), "share no row"),
    table("other case of ids", SHOP_TABLE, lambda t: t.assign(customer=t.customer.str.upper()), "upper and lower case"),
    Case(
        "too few rows to split",
        RUN,
        USAGE,
        ("2 shared rows", "larger tables"),
        lambda p: p.frame(SHOP_TABLE, lambda t: t.head(2)).edit("bank/party.toml", "rows = 20", "rows = 0"),
    ),
    Case(
        "columns that say nothing",
        RUN,
        USAGE,
        ("no usable feature columns",),
        lambda p: p.frame(SHOP_TABLE, lambda t: t.assign(spent=1, visits=2)).frame(
            BANK_TABLE, lambda t: t.drop(columns=["age", "town"])
        ),
    ),
    table(
        "a feature holder of ids only",
        SHOP_TABLE,
        lambda t: t[["customer"]],
        "'shop' has no usable feature columns",
        "leave this party out",
    ),
]

POLICIES = [
    home("policy: rows", "rows = 20", "rows = 5000", "minimum_shared_rows", "line 12", "only 108", code=POLICY),
]


def interrupted(change: Callable[[Any], object]) -> Callable[[Any], object]:
    """Make the finished run look as if it had been stopped, then change something."""

    def apply(project: Any) -> None:
        for path in project.run_folder.glob("*/ledger.jsonl"):
            path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-3]))
        (project.run_folder / "simulation.json").unlink()
        change(project)

    return apply


def cut(path: str, lines: int) -> Callable[[Any], object]:
    def apply(project: Any) -> None:
        file = project.folder / path
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:lines]))

    return apply


def replaced(path: str, old: bytes, new: bytes) -> Callable[[Any], object]:
    def apply(project: Any) -> None:
        file = project.folder / path
        content = file.read_bytes()
        assert old in content
        file.write_bytes(content.replace(old, new, 1))

    return apply


def without(file: str, column: str) -> Callable[[Any], object]:
    return lambda project: project.frame(file, lambda t: t.drop(columns=column))


def renamed(file: str, old: str, new: str) -> Callable[[Any], object]:
    return lambda project: project.frame(file, lambda t: t.rename(columns={old: new}))


def edited(path: str, change: Callable[[Any], object]) -> Callable[[Any], object]:
    """Change a JSON file as a person with an editor would."""

    def apply(project: Any) -> None:
        file = project.folder / path
        document = json.loads(file.read_text())
        changed = change(document)
        file.write_text(json.dumps(document if changed is None else changed))

    return apply


def written(path: str, text: str) -> Callable[[Any], object]:
    return lambda project: (project.folder / path).write_text(text)


def all_of(*changes: Callable[[Any], object]) -> Callable[[Any], object]:
    return lambda project: [change(project) for change in changes]


def removed(*paths: str) -> Callable[[Any], object]:
    def apply(project: Any) -> None:
        for path in (project.folder / one for one in paths):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return apply


LEDGER_FILE, PART = "runs/churn/bank/ledger.jsonl", "runs/churn/bank/model/part"
FACTS, TABLE, OUTCOME = "runs/churn/simulation.json", "runs/churn/shop/table.json", "runs/churn/bank/outcome.json"
AUDIT, REPORT = ("audit", "verify", "runs/churn"), ("report", "runs/churn")

AFTER_A_RUN = [
    Case("report into a missing folder", ("report", "runs/churn", "--output", "no/r.html"), USAGE, ("no/r.html",)),
    Case("report into a folder", ("report", "runs/churn", "--output", "bank"), USAGE, ("bank cannot be written",)),
    Case(
        "report of an interrupted run",
        ("report", "runs/churn"),
        USAGE,
        ("no finished run", "same command"),
        interrupted(lambda p: None),
    ),
    Case("predict with an interrupted run", PREDICT, USAGE, ("no finished run",), interrupted(lambda p: None)),
    Case("predict, one table missing", PREDICT[:4], USAGE, ("for shop", "--table shop=FILE")),
    Case("predict, two tables of one", (*PREDICT, "--table", "shop=x.csv"), USAGE, ("'shop' twice",)),
    Case("predict, malformed table", (*PREDICT[:4], "--table", "shop"), USAGE, ("--table PARTY=FILE",)),
    Case(
        "predict, output a folder",
        (*PREDICT, "--output", "d.csv"),
        USAGE,
        ("a folder",),
        lambda p: (p.folder / "d.csv").mkdir(),
    ),
    Case(
        "predict, column missing", PREDICT, USAGE, ("lacks the column 'spent'", "Known"), without(SHOP_TABLE, "spent")
    ),
    Case("predict, column misspelt", PREDICT, USAGE, ("Did you mean 'spend'?",), renamed(SHOP_TABLE, "spent", "spend")),
    Case("predict, id missing", PREDICT, USAGE, ("no column 'customer'",), without(SHOP_TABLE, "customer")),
    Case(
        "predict, other kind of column",
        PREDICT,
        USAGE,
        ("'spent'", "numeric"),
        lambda p: p.frame(SHOP_TABLE, lambda t: t.assign(spent="plenty")),
    ),
    Case(
        "predict, homes moved",
        PREDICT,
        USAGE,
        ("home of 'shop'", "--home shop="),
        lambda p: (p.folder / "shop").rename(p.folder / "moved") and None,
    ),
    Case(
        "weights changed",
        PREDICT,
        BROKEN,
        ("does not match the digest", "run again"),
        lambda p: (p.folder / f"{PART}.safetensors").write_bytes(
            (p.folder / f"{PART}.safetensors").read_bytes()[:-1] + b"x"
        ),
    ),
    Case("weights missing", PREDICT, BROKEN, ("missing",), lambda p: (p.folder / f"{PART}.safetensors").unlink()),
    Case("model part no JSON", PREDICT, BROKEN, ("not valid JSON",), cut(f"{PART}.json", 2)),
    Case(
        "model part of another format", PREDICT, BROKEN, ("format",), replaced(f"{PART}.json", b'mat": 1', b'mat": 9')
    ),
    Case("run facts cut off", ("report", "runs/churn"), BROKEN, ("JSON",), cut("runs/churn/simulation.json", 2)),
    Case(
        "run facts incomplete",
        ("report", "runs/churn"),
        BROKEN,
        ("incomplete",),
        replaced("runs/churn/simulation.json", b'"parties"', b'"partis"'),
    ),
    Case(
        "run plan changed",
        ("report", "runs/churn"),
        BROKEN,
        ("changed",),
        replaced("runs/churn/bank/plan.json", b'"seed"', b'"sed"'),
    ),
    Case("ledger changed", AUDIT, LEDGER, ("bank/ledger.jsonl: Entry 1",), replaced(LEDGER_FILE, b"sent", b"Sent")),
    Case(
        "ledger cut in a line",
        AUDIT,
        LEDGER,
        ("cut off",),
        lambda p: (p.folder / LEDGER_FILE).write_bytes((p.folder / LEDGER_FILE).read_bytes()[:-9]),
    ),
    Case("ledger without its end", AUDIT, LEDGER, ("never closed", "Resume the run"), cut(LEDGER_FILE, 9)),
    Case("ledger empty", AUDIT, LEDGER, ("is empty",), cut(LEDGER_FILE, 0)),
    Case(
        "ledger missing", AUDIT, LEDGER, ("ledger of 'bank' is missing",), lambda p: (p.folder / LEDGER_FILE).unlink()
    ),
    *[
        Case(f"{what} of facts that are {text}", words, code, says, written(FACTS, text))
        for text in ("{}", "[1]", "3", "null")
        for what, words, code, says in (
            ("audit", AUDIT, LEDGER, ("simulation.json was changed", "Restore")),
            ("report", REPORT, BROKEN, ("incomplete or were changed",)),
            ("predict", PREDICT, BROKEN, ("incomplete or were changed",)),
        )
    ],
    Case("audit of facts that are no JSON", AUDIT, BROKEN, ("simulation.json", "not valid JSON"), cut(FACTS, 2)),
    *[
        Case(
            f"audit without facts and the {what} of {party}",
            AUDIT,
            LEDGER,
            (f"ledger of '{party}' is missing",),
            removed(FACTS, f"runs/churn/{party}{file}"),
        )
        for party in ("bank", "shop")
        for what, file in (("folder", ""), ("ledger", "/ledger.jsonl"))
    ],
    Case(
        "report without a party's folder",
        REPORT,
        USAGE,
        ("holds no finished run",),
        removed("runs/churn/shop"),
    ),
    *[
        Case(f"report of a table {what}", REPORT, BROKEN, ("runs/churn/shop", "changed"), edited(TABLE, change))
        for what, change in (
            ("of nothing", lambda _: {}),
            ("that is a list", lambda _: [1]),
            ("without a digest", lambda about: about.pop("digest") and None),
            ("without columns", lambda about: about.pop("columns") and None),
            ("with columns of text", lambda about: about.update(columns="x")),
            ("with columns that are none", lambda about: about.update(columns=[1])),
            ("with an unknown fact", lambda about: about.update(colour="red")),
            ("with a column without a kind", lambda about: about["columns"][0].pop("kind") and None),
            ("with rows of text", lambda about: about.update(rows="many")),
        )
    ],
    *[
        Case(f"report of an outcome {what}", REPORT, BROKEN, ("runs/churn/bank", "changed"), edited(OUTCOME, change))
        for what, change in (
            ("of nothing", lambda _: {}),
            ("that is a list", lambda _: [1]),
            ("with rows of text", lambda about: about.update(rows="many")),
            ("without held-out rows", lambda about: about["rows"].pop("test") and None),
            ("with a duration of text", lambda about: about.update(seconds="long")),
            ("of a stranger", lambda about: about.update(party="stranger")),
        )
    ],
    Case(
        "report of an outcome of another party",
        REPORT,
        BROKEN,
        ("incomplete or were changed",),
        edited(OUTCOME, lambda about: about.update(party="shop")),
    ),
    Case(
        "resume with a table that is a list",
        RUN,
        USAGE,
        ("table of 'bank' has changed",),
        all_of(interrupted(lambda p: None), edited("runs/churn/bank/table.json", lambda _: [1])),
    ),
    Case("ledger file missing", ("audit", "verify", LEDGER_FILE, "x.jsonl"), USAGE, ("x.jsonl", "cannot be read")),
    Case("one ledger twice", ("audit", "verify", LEDGER_FILE, LEDGER_FILE), USAGE, ("given twice",)),
]

ALL = [*COMMAND_LINE, *RUN_TOML, *PARTY_TOML, *TABLES, *POLICIES, *AFTER_A_RUN]


def check(case: Case, project: Any, outcome: Any, cells: set[str]) -> None:
    everything = outcome.out + outcome.err
    assert outcome.code == case.code, everything
    assert "Traceback" not in everything
    assert "unforeseen" not in everything
    assert outcome.out == "", "a failed command has no data to print"
    message = " ".join(outcome.message.split())
    for words in case.says:
        assert words in message
    assert message.startswith("Error: ")
    sentences = re.findall(r"[.?!](?=\s|$)", message)
    assert 1 <= len(sentences) <= 4, message
    assert len(message) < 520, message
    shown = {cell for cell in cells if cell in everything}
    assert not shown, f"cells of a table are shown: {shown}"


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_a_mistake_is_told_in_a_few_words(case: Case, request: pytest.FixtureRequest, colonnade: Any) -> None:
    project = request.getfixturevalue("finished" if case in AFTER_A_RUN else "project")
    cells = project.cells()
    case.change(project)
    check(case, project, colonnade(*case.words), cells | project.cells())


def test_cases_have_different_names() -> None:
    assert len({case.name for case in ALL}) == len(ALL)


def test_a_loss_that_runs_away_between_parties_names_the_learning_rate(project: Any, colonnade: Any) -> None:
    project.edit("run.toml", "epochs = 2", 'epochs = 2\noptimizer = "SGD"\nlearning_rate = 1e30')
    outcome = colonnade(*RUN)
    # Which party notices first is not agreed: its own loss is 6, a peer's numbers that are none are 4.
    assert outcome.code in (4, TRAINING)
    assert "learning" in outcome.err


def test_ledgers_of_two_runs_disagree(finished: Any, colonnade: Any) -> None:
    finished.edit("run.toml", "seed = 7", "seed = 8")
    assert colonnade(*RUN, "--folder", "runs/second").code == 0
    outcome = colonnade("audit", "verify", LEDGER_FILE, "runs/second/shop/ledger.jsonl")
    assert outcome.code == LEDGER
    assert "different runs" in outcome.err


def test_an_unknown_positive_class_is_told_with_the_classes_before_anything_leaves(
    project: Any, colonnade: Any
) -> None:
    project.edit("bank/party.toml", '"leaving"', '"leavin"')
    outcome = colonnade(*RUN)
    assert outcome.code == USAGE
    assert "has 2 classes, and positive = 'leavin' is neither of them. Did you mean 'leaving'?" in outcome.message
    assert not project.run_folder.exists()


def test_a_fourth_run_is_refused_where_the_policy_allows_one(finished: Any, colonnade: Any) -> None:
    finished.edit("bank/party.toml", "[policy]", "[policy]\nmaximum_runs = 1")
    outcome = colonnade(*RUN, "--folder", "runs/second")
    assert outcome.code == POLICY
    assert "policy.maximum_runs (bank/party.toml, line 10): 1 runs" in outcome.err


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("place", ["precious", ".", "bank"])
def test_overwrite_never_deletes_what_is_not_a_run(place: str, project: Any, colonnade: Any) -> None:
    precious = project.folder / "precious"
    (precious / "module").mkdir(parents=True)
    (precious / "module" / "plan.json").write_text('{"resources": []}')
    (precious / "run.toml").write_text("mine")
    before = everything_in(project.folder)
    outcome = colonnade(*RUN, "--overwrite", "--folder", place)
    assert outcome.code == USAGE
    assert "holds other things" in outcome.err
    assert everything_in(project.folder) == before


def test_overwrite_leaves_the_users_own_files_in_a_run_folder(finished: Any, colonnade: Any) -> None:
    (finished.run_folder / "scores.csv").write_text("mine")
    (finished.run_folder / "notes").mkdir()
    (finished.run_folder / "notes" / "a.txt").write_text("mine too")
    outcome = colonnade(*RUN, "--overwrite")
    assert outcome.code == 0, outcome.err
    assert (finished.run_folder / "scores.csv").read_text() == "mine"
    assert (finished.run_folder / "notes" / "a.txt").read_text() == "mine too"
    assert colonnade(*AUDIT).code == 0


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("run.toml", "epochs = 2", "epoch = 2"),
        ("run.toml", "epochs = 2", "epochs = 2\nclass_weights = [1.0, 2.0, 3.0]"),
        ("bank/party.toml", "customers.csv", "customer.csv"),
        ("bank/party.toml", "rows = 20", "rows = 2000"),
        ("bank/party.toml", '["splitnn"]', "[]"),
    ],
)
def test_a_refused_run_with_overwrite_keeps_the_earlier_one(
    file: str, old: str, new: str, finished: Any, colonnade: Any
) -> None:
    before = everything_in(finished.run_folder)
    finished.edit(file, old, new)
    assert colonnade(*RUN, "--overwrite").code in (USAGE, POLICY)
    assert everything_in(finished.run_folder) == before


def test_a_run_refused_for_a_setting_leaves_no_trace_so_that_the_corrected_one_can_start(
    project: Any, colonnade: Any
) -> None:
    project.edit("run.toml", "epochs = 2", "epochs = 2\nclass_weights = [1.0, 2.0, 3.0]")
    assert colonnade(*RUN).code == USAGE
    assert not project.run_folder.exists()
    project.edit("run.toml", ", 3.0]", "]")
    assert colonnade(*RUN).code == 0


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the administrator may write everywhere")
def test_an_unwritable_folder_is_named(project: Any, colonnade: Any) -> None:
    locked = project.folder / "locked"
    locked.mkdir(mode=0o500)
    outcome = colonnade(*RUN, "--folder", "locked/run")
    assert outcome.code == USAGE
    assert "locked/run" in outcome.err


def test_a_full_disk_is_told_as_such(project: Any, colonnade: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "runs/churn/bank/plan.json")

    monkeypatch.setattr("colonnade.launch.party_folder.write_json", full)
    outcome = colonnade(*RUN)
    assert outcome.code == USAGE
    assert "runs/churn/bank/plan.json cannot be used (No space left on device)" in outcome.err
    assert "the free space" in outcome.err


def test_too_many_open_files_are_not_told_as_a_full_disk(
    project: Any, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crowded(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files", "runs/churn/bank/plan.json")

    monkeypatch.setattr("colonnade.launch.party_folder.write_json", crowded)
    outcome = colonnade(*RUN)
    assert outcome.code == USAGE
    assert "runs/churn/bank/plan.json cannot be used (Too many open files). Raise the limit" in outcome.err
    assert "ulimit -n" in outcome.err
    assert "firewall" in outcome.err
    assert "space" not in outcome.err


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case, id=case.name, marks=[pytest.mark.slow] if case.name in ("unknown command", "ids twice") else []
        )
        for case in ALL
        if case.name in ("unknown option", "unknown key", "ids twice", "policy: rows")
    ],
)
def test_a_mistake_is_told_the_same_by_the_installed_command(case: Case, project: Any) -> None:
    case.change(project)
    command = [str(Path(sys.executable).parent / "colonnade"), *case.words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=project.folder, timeout=120)
    assert done.returncode == case.code
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for words in case.says:
        assert words in done.stderr
