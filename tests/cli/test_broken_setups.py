"""Broken set-ups: what is printed, followed to the letter by `advice.follow`, mends them, and the command succeeds.

What only wording is about is in `test_wrong_inputs`.
"""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.cli.advice import follow

from colonnade.errors import PolicyRefused, UsageError
from colonnade.launch.run import Run

USAGE, POLICY, FAILED_CHECK = UsageError.exit_code, PolicyRefused.exit_code, 1

RUN = ("run", "--simulate", "run.toml", "--quiet", "--no-compare")
PREDICT = ("predict", "runs/churn", "--table", "bank=bank/customers.csv", "--table", "shop=shop/baskets.csv")
DOCTOR = ("doctor", "--home", "bank")
BANK, SHOP = "bank/customers.csv", "shop/baskets.csv"


@dataclass(frozen=True)
class Broken:
    """One broken set-up: the command of a user, how it is broken, and what is to come of it."""

    name: str
    words: tuple[str, ...]
    change: Callable[[Any], object] = lambda project: None
    code: int = USAGE
    mends: bool = True
    """Whether the letter of the advice is enough; else it asks for what only people have or decide."""
    start: str = "project"
    """What is broken: a `project`, one whose run is `finished`, or one whose parties are `paired`."""


def run_toml(name: str, old: str, new: str, **about: Any) -> Broken:
    return Broken(name, RUN, lambda project: project.edit("run.toml", old, new), **about)


def party_toml(name: str, old: str, new: str, **about: Any) -> Broken:
    return Broken(name, RUN, lambda project: project.edit("bank/party.toml", old, new), **about)


def config(name: str, line: str, **about: Any) -> Broken:
    return run_toml(name, "epochs = 2", f"epochs = 2\n{line}", **about)


def typed(name: str, *words: str, **about: Any) -> Broken:
    return Broken(name, words, **about)


def interrupted(project: Any) -> None:
    """Make a finished run look as if it had been stopped."""
    for path in project.run_folder.glob("*/ledger.jsonl"):
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-3]))
    (project.run_folder / "simulation.json").unlink()


def resaved(file: str, encoding: str, old: str, new: str) -> Callable[[Any], object]:
    def apply(project: Any) -> None:
        path = project.folder / file
        path.write_bytes(path.read_text().replace(old, new).encode(encoding))

    return apply


RUN_TOML = [
    run_toml("table misspelt", "[evaluate]", "[evalute]"),
    run_toml("key misspelt", "seed = 7", "sed = 7"),
    run_toml("method misspelt", '"splitnn"', '"splitn"'),
    run_toml("role misspelt", "feature_holder", "feature_hodler"),
    run_toml("protocol misspelt", '"ecdh"', '"ecdhe"'),
    run_toml("setting misspelt", "epochs = 2", "epoch = 2"),
    config("schedule misspelt", 'schedule = "cosin"'),
    config("optimizer misspelt", 'optimizer = "Adamm"'),
    config("option of the optimizer misspelt", "optimizer_options = { weight_deca = 0.1 }"),
    run_toml("text without quotation marks", 'name = "churn"', "name = churn"),
    run_toml("a colon as in YAML", 'name = "churn"', "name: churn"),
    run_toml("quotation marks of a word processor", 'name = "churn"', "name = “churn”"),
    run_toml("false as in Python", "secret_start = false", "secret_start = False"),
    config("decimal comma", "learning_rate = 0,003"),
    run_toml("heading not closed", "[evaluate]", "[evaluate"),
    run_toml("number in quotation marks", "seed = 7", 'seed = "7"'),
    config("number as text with a comma", 'learning_rate = "0,003"'),
    run_toml("truth in quotation marks", "secret_start = false", 'secret_start = "no"'),
    run_toml("list without brackets", "hidden = [8]", "hidden = 8"),
    run_toml("setting of another table", "seed = 7\n", "seed = 7\ntest_fraction = 0.2\n"),
    run_toml("setting before the first table", "[run]", "test_fraction = 0.3\n[run]"),
    run_toml("method's setting among those of the run", "seed = 7\n", "seed = 7\ndropout = 0.1\n"),
    run_toml("epochs zero", "epochs = 2", "epochs = 0"),
    config("dropout of all", "dropout = 1.0"),
    run_toml("held-out share of all", "test_fraction = 0.2", "test_fraction = 1.2"),
    run_toml("name that climbs out", '"churn"', '"../churn"'),
    run_toml("party name with a space", '"bank", f', '"the bank", f', mends=False),
    Broken("run.toml from Windows", RUN, resaved("run.toml", "cp1252", "[run]", "# Größe\n[run]")),
    run_toml("method missing", 'method = "splitnn"\n', "", mends=False),
    run_toml("role missing", 'label_holder = "bank", ', "", mends=False),
]

PARTY_TOML = [
    party_toml("home: table misspelt", "[policy]", "[polices]"),
    party_toml("home: key misspelt", "label =", "lable ="),
    party_toml("home: rule misspelt", "minimum_shared_rows", "minimum_shared_row"),
    party_toml("home: rule without brackets", '["splitnn"]', '"splitnn"'),
    party_toml("home: protection misspelt", "[policy]", '[policy]\nnever_send = ["NOISD"]'),
    party_toml("home: setting of another table", "[policy]\n", '[policy]\nlabel = "churned"\n'),
    party_toml("home: of another name", 'name = "bank"', 'name = "banc"'),
    party_toml("home: file misspelt", "customers.csv", "customer.csv"),
    party_toml("home: id misspelt", 'id = "customer"', 'id = "custommer"'),
    party_toml("home: label misspelt", '"churned"', '"churnd"'),
    party_toml("home: typed column misspelt", "[policy]", '[table.types]\nagge = "numeric"\n[policy]'),
    party_toml("home: dropped column misspelt", "[policy]", 'drop = ["agee"]\n[policy]'),
    party_toml("home: policy without the method", '["splitnn"]', '["ftl"]', code=POLICY),
    party_toml("home: policy without the partner", '["shop"]', '["telco"]', code=POLICY),
    party_toml("home: policy of no runs", "[policy]", "[policy]\nmaximum_runs = 0", code=POLICY),
    party_toml("home: policy of more shared rows", "rows = 20", "rows = 5000", code=POLICY, mends=False),
    party_toml(
        "home: policy of nothing plain", "[policy]", '[policy]\nnever_send = ["PLAIN"]', code=POLICY, mends=False
    ),
    Broken("home renamed", RUN, lambda p: (p.folder / "bank").rename(p.folder / "banks")),
]

COMMANDS = [
    typed("command misspelt", "rnu", *RUN[1:]),
    typed("option misspelt", "run", "--simulat", *RUN[2:]),
    typed("run.toml misspelt", "run", "--simulate", "rum.toml", *RUN[3:]),
    typed("two launches at once", "run", "--local", *RUN[1:]),
    typed("home of no party", *RUN, "--home", "bnak=bank"),
    typed("stage misspelt", *RUN, "--stage", "trian"),
    typed("run where a file is", *RUN, "--folder", "run.toml"),
    typed("method to show misspelt", "methods", "splitn"),
    typed("groups: too many", "groups", "shop", "--count", "9"),
    typed("a finished run again", *RUN, start="finished"),
    typed("report of a misspelt run", "report", "runs/chrun", start="finished"),
    typed("predict: file misspelt", *PREDICT[:5], "shop=shop/basket.csv", start="finished"),
    typed("predict: party misspelt", *PREDICT[:4], "--table", "shp=shop/baskets.csv", start="finished"),
    typed("predict: into a workbook", *PREDICT, "--output", "scores.xlsx", start="finished"),
    typed("predict: into a missing folder", *PREDICT, "--output", "scores/all.csv", start="finished"),
    Broken(
        "interrupted, then another setting",
        RUN,
        lambda p: (interrupted(p), p.edit("run.toml", "epochs = 2", "epochs = 3")),
        start="finished",
    ),
    Broken(
        "interrupted, then another table",
        RUN,
        lambda p: (interrupted(p), p.frame(BANK, lambda t: t.assign(age=t.age + 1))),
        start="finished",
    ),
]


def listening_elsewhere(project: Any) -> None:
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    project.taken = taken
    text = (project.folder / "bank/party.toml").read_text()
    place = f'listen = "127.0.0.1:{taken.getsockname()[1]}"'
    (project.folder / "bank/party.toml").write_text(re.sub("listen = .*", place, text, count=1))


KEYS = [
    Broken(
        "doctor: key that others can read",
        DOCTOR,
        lambda p: (p.folder / "bank/key.pem").chmod(0o644),
        code=FAILED_CHECK,
        start="paired",
    ),
    Broken("doctor: port taken", DOCTOR, listening_elsewhere, code=FAILED_CHECK, start="paired"),
    Broken(
        "doctor: table misspelt",
        DOCTOR,
        lambda p: p.edit("bank/party.toml", "customers.csv", "customer.csv"),
        code=FAILED_CHECK,
        start="paired",
    ),
    typed("pair: partner to remove misspelt", "pair", "--home", "bank", "--remove", "shp", start="paired"),
    typed("pair: two tasks", "pair", "--home", "bank", "--invite", "--list", start="paired"),
    typed(
        "pair: option of another task", "pair", "--home", "bank", "--list", "--listen", "127.0.0.1:1", start="paired"
    ),
    typed("pair: activate nothing", "pair", "--home", "bank", "--rotate", "--activate", start="paired"),
    Broken(
        "pair: certificate file misspelt",
        ("pair", "shp.pem", "--home", "bank", "--fingerprint", "FINGERPRINT"),
        start="paired",
    ),
    Broken(
        "join: partner not paired",
        ("run", "run.toml", "--home", "bank", "--yes"),
        lambda p: (p.folder / "bank/partners/shop.pem").unlink(),
        start="paired",
        mends=False,
    ),
]


def bank(name: str, change: Callable[[pd.DataFrame], pd.DataFrame], **about: Any) -> Broken:
    return Broken(name, RUN, lambda project: project.frame(BANK, change), **about)


def shop(name: str, change: Callable[[pd.DataFrame], pd.DataFrame], **about: Any) -> Broken:
    return Broken(name, RUN, lambda project: project.frame(SHOP, change), **about)


def in_a_folder(project: Any) -> None:
    (project.folder / "bank/tables").mkdir()
    (project.folder / BANK).rename(project.folder / "bank/tables/customers.csv")
    project.edit("bank/party.toml", "customers.csv", "tables")


def called(name: str, as_parquet: bool = False) -> Callable[[Any], object]:
    """Give the bank's table another name than its content should have."""

    def apply(project: Any) -> None:
        frame = pd.read_csv(project.folder / BANK)
        (project.folder / BANK).unlink()
        path = project.folder / "bank" / name
        if as_parquet:
            path.write_bytes(frame.to_parquet(index=False))
        else:
            frame.to_csv(path, index=False)
        if name != "customers.csv":
            project.edit("bank/party.toml", "customers.csv", name)

    return apply


TABLES = [
    bank("ids twice", lambda t: pd.concat([t, t.head(3)])),
    shop("ids in capitals", lambda t: t.assign(customer=t.customer.str.upper())),
    shop("ids without the hyphen", lambda t: t.assign(customer=t.customer.str.replace("-", ""))),
    shop("ids that nobody else has", lambda t: t.assign(customer=[f"x{n}" for n in range(len(t))]), mends=False),
    bank("words among the amounts", lambda t: t.assign(age=[*["unknown?", "see file"], *t.age[2:].astype(str)])),
    party_toml("town said to be a number", "[policy]", '[table.types]\ntown = "numeric"\n[policy]', mends=False),
    party_toml("label among what is dropped", "[policy]", 'drop = ["churned"]\n[policy]'),
    party_toml("encoding nobody knows", "[policy]", 'encoding = "utf9"\n[policy]'),
    Broken("a folder for a file", RUN, in_a_folder),
    Broken("a table called .txt", RUN, called("customers.txt")),
    Broken("a Parquet file called .csv", RUN, called("customers.csv", as_parquet=True)),
    bank("a header only", lambda t: t.head(0), mends=False),
    bank("label constant", lambda t: t.assign(churned="staying"), mends=False),
    bank("label empty in some rows", lambda t: t.assign(churned=t.churned.where(t.index > 3)), mends=False),
    shop("two columns of one name", lambda t: t.set_axis(["customer", "spent", "spent"], axis=1), mends=False),
]

ALL = [*RUN_TOML, *PARTY_TOML, *COMMANDS, *KEYS, *TABLES]


@pytest.fixture(scope="session")
def _paired_once(tmp_path_factory: pytest.TempPathFactory, _finished_once: Path) -> Path:
    """Two homes with keys that are paired, beside the files of a run."""
    from colonnade.launch.identity import make_home, own_certificate, pin_partner

    folder = tmp_path_factory.mktemp("paired")
    shutil.copytree(_finished_once, folder, dirs_exist_ok=True)
    shutil.rmtree(folder / "runs")
    for place, party in enumerate(("bank", "shop")):
        make_home(folder / party, party, None)
        text = (folder / party / "party.toml").read_text()
        listen = f'name = "{party}"\nlisten = "127.0.0.1:{17443 + place}"'
        (folder / party / "party.toml").write_text(text.replace(f'name = "{party}"', listen))
    for party, partner in (("bank", "shop"), ("shop", "bank")):
        certificate = own_certificate(folder / partner).certificate
        pin_partner(folder / party, certificate, f"127.0.0.1:{17444 if partner == 'shop' else 17443}")
        (folder / f"{partner}.pem").write_bytes(certificate)
    return folder


@pytest.fixture
def paired(_paired_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: Any) -> Any:
    shutil.rmtree(tmp_path)
    shutil.copytree(_paired_once, tmp_path)
    monkeypatch.chdir(tmp_path)
    return project


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_advice_that_is_followed_to_the_letter_mends(
    case: Broken, request: pytest.FixtureRequest, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if case.words[0] != "report":
        # Drawing its figures takes most of such a run.
        monkeypatch.setattr(Run, "report", lambda run, output=None: Path(str(run.folder)) / "report.html")
    project = request.getfixturevalue(case.start)
    cells = project.cells()
    case.change(project)
    if hasattr(project, "taken"):
        request.addfinalizer(project.taken.close)
    words = list(case.words)
    if "FINGERPRINT" in words:
        from colonnade.launch.identity import own_certificate

        words[words.index("FINGERPRINT")] = own_certificate(project.folder / "shop").fingerprint
    outcome = colonnade(*words)
    everything = outcome.out + outcome.err
    assert outcome.code == case.code, everything
    assert "Traceback" not in everything
    assert "unforeseen" not in everything
    assert not {cell for cell in cells if cell in everything}, "cells of a table are shown"
    said = " ".join(re.sub(r"^PASS .*$", "", everything, flags=re.MULTILINE).split())
    if case.code != FAILED_CHECK:
        said = " ".join(outcome.message.split()).removeprefix("Error: ")
        assert len(re.findall(r"[.?!](?=\s|$)", said)) <= 4, said
        assert len(said) < 520, said
    if not case.mends:
        return
    followed = follow(said, words, colonnade)
    assert followed is not None, f"nothing to be done by the letter in: {said}"
    outcome = colonnade(*followed)
    assert outcome.code == 0, f"{said}\n→ {followed}\n→ {outcome.out}{outcome.err}"


def test_the_letter_of_the_advice_mends_nearly_all() -> None:
    assert len({case.name for case in ALL}) == len(ALL) >= 60
    assert sum(case.mends for case in ALL) >= 50
