"""A partner that chooses its words to be obeyed by a terminal, a spreadsheet or a browser.

Class names, names in ledgers and in certificates, and everything else that a partner writes: what could do harm is
refused on its way in, and on its way out whatever is left is text.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import math
import shutil
import stat
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cryptography import x509
from tests.adversary import test_hostile_fedcvt as fedcvt
from tests.adversary import test_hostile_ftl as ftl
from tests.adversary import test_hostile_mpdl as mpdl
from tests.adversary.hostile import Lie, lying, with_field
from tests.cli.conftest import colonnade as colonnade  # a fixture
from tests.reports.conftest import binary_evaluation, content, multiclass_evaluation, record_of
from tests.worlds import integers_for_ciphertexts

from colonnade.cli import main
from colonnade.cli.output import echo, print_json, print_table, say
from colonnade.data import LabelEncoder
from colonnade.errors import ConfigError, WrongContent
from colonnade.exchanges.answers import described, told_labels
from colonnade.launch.identity import make_home
from colonnade.launch.status import StatusFile, Watcher
from colonnade.ledger.entries import GENESIS, chain
from colonnade.reports import render, write
from colonnade.session import Figure, Finding
from colonnade.session.files import write_whole
from colonnade.transport.grpc import certificates

FORMULAS = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "'=1+1", "''@x"]
"""What a spreadsheet would compute, or would compute once a mark of ours was taken off."""
OBEYED = {
    "a terminal escape": "\x1b[2Jpays",
    "a title for the window": "\x1b]0;evil\x07",
    "an eight-bit escape": "\x9b2Jpays",
    "a line of its own": "pays\nThe ledgers agree.",
    "a line over ours": "pays\rThe ledgers agree.",
    "a line break of Unicode": "pays\u2028The ledgers agree.",
    "letters that turn round": "\u202esyap",
    "an isolate": "\u2066pays",
    "letters that nobody sees": "pa\u200bys",
    "nothing at all": "pays\x00",
    "half a character": "pays\ud800",
    "500 kB": "x" * 500_000,
}
NO_NAMES: dict[str, Any] = {
    "a dictionary": {"a": 1},
    "a list": ["pays"],
    "nothing": None,
    "not a number": math.nan,
    "without end": math.inf,
    "a number of 400 digits": 10**400,
}
CLASSES = {case: ["does not", name] for case, name in OBEYED.items()}
CLASSES |= {case: [0, name] for case, name in NO_NAMES.items()}
CLASSES["a name and a number"] = ["pays", 1]


def named(classes: list[Any]) -> Any:
    return with_field(labels=lambda text: json.dumps({**json.loads(text), "classes": classes}))


# Class names, through every exchange that tells them


@pytest.mark.parametrize("case", CLASSES)
def test_class_names_that_could_do_harm_are_refused_in_ftl(case: str) -> None:
    ftl.refused(Lie("bank0", "PredictedLabels", named(CLASSES[case])), WrongContent, stage="predict")


@pytest.mark.parametrize("case", CLASSES)
def test_class_names_that_could_do_harm_are_refused_where_the_target_keeps_them(case: str) -> None:
    lie = Lie("bank0", "OwnLabels", named(CLASSES[case]))
    ftl.refused(lie, WrongContent, safeguard=True, margin=1.0, labelled_rows=8, iterations=1)


@pytest.mark.parametrize("case", CLASSES)
def test_class_names_that_could_do_harm_are_refused_in_fedcvt(case: str) -> None:
    fedcvt.refused(Lie("bank", "AnswersAlone", named(CLASSES[case])), WrongContent, stage="predict")


@pytest.mark.parametrize("case", CLASSES)
def test_class_names_that_could_do_harm_are_refused_in_mpdl(case: str) -> None:
    mpdl.refused(Lie("bank", "Classes", named(CLASSES[case])), stage="predict")


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_class_name_that_is_a_formula_arrives_as_it_is(formula: str) -> None:
    """Plus and minus are names of classes, too: it is the file that must not compute them."""
    lie = Lie("bank0", "PredictedLabels", named(["does not", formula]))
    with integers_for_ciphertexts(), lying(lie):
        scores = ftl.trained(1, "binary").predict({"shop0": ftl.tables_of(ftl.frames(**ftl.WORLD))["shop0"]})
    assert set(scores["prediction"]) == {"does not", formula}


class Peer:
    peer = "bank"


@pytest.mark.parametrize(
    ("classes", "arrive"),
    [
        (("+", "-"), ("+", "-")),
        ((False, True), (False, True)),
        ((0.5, 3), (0.5, 3)),
        (("a\tb", "\u200fשלום"), ("a\\tb", "\\u200fשלום")),
        (("x" * 300, "y"), ("x" * 255 + "…", "y")),
    ],
)
def test_own_classes_that_a_partner_would_refuse_are_spelt_out_for_it(classes: Any, arrive: Any) -> None:
    own = LabelEncoder("binary", classes)
    for with_scale in (False, True):
        assert told_labels(described(own, with_scale=with_scale), Peer()).classes == arrive


def test_mean_and_scale_are_told_only_where_asked_for() -> None:
    own = LabelEncoder("regression", (), 1234.5, 67.8)
    assert "1234.5" not in described(own)
    assert "67.8" not in described(own)
    assert told_labels(described(own, with_scale=True), Peer()) == own


# Scores in files


MARKET = """\
[run]
name = "credit"
method = "ftl"
roles = { source = "bank", target = "shop" }
seed = 7

[config]
width = 2
iterations = 2
folds = 2
protection = "none"
safeguard = false
secret_start = false
"""


class Market:
    """A bank whose classes have names of its choice, and a shop that gets predictions."""

    def __init__(self, folder: Path, classes: list[str]) -> None:
        random = np.random.default_rng(3)
        worth = random.normal(size=300)
        ids = [f"+49-{number:05d}" for number in range(300)]
        bank = pd.DataFrame({"customer": ids, "income": worth + random.normal(0, 0.5, 300)})
        bank["pays"] = np.array(classes)[
            np.digitize(worth, np.quantile(worth, np.linspace(0, 1, len(classes) + 1)[1:-1]))
        ]
        shop = pd.DataFrame({"customer": ids, "spent": worth + random.normal(0, 0.7, 300)})
        tables = {
            "bank": (bank[:220], 'source = "table.csv"\nid = "customer"\nlabel = "pays"\n'),
            "shop": (shop[100:], 'source = "table.csv"\nid = "customer"\n'),
        }
        for name, (frame, table) in tables.items():
            (folder / name).mkdir()
            frame.to_csv(folder / name / "table.csv", index=False)
            (folder / name / "party.toml").write_text(f'[party]\nname = "{name}"\n\n[table]\n{table}')
        (folder / "run.toml").write_text(MARKET)


@pytest.fixture(scope="module")
def _traded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("market")
    Market(folder, FORMULAS)
    with pytest.raises(SystemExit) as ending:
        main(["run", "--simulate", str(folder / "run.toml"), "--quiet"])
    assert ending.value.code == 0
    return folder


@pytest.fixture
def market(_traded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a market whose run is done."""
    shutil.copytree(_traded, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cells(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_no_cell_of_the_scores_is_a_formula_and_every_name_can_be_had_back(market: Path, colonnade: Any) -> None:
    words = ("predict", "runs/credit", "--table", "shop=shop/table.csv")
    exact = {row["customer"]: row["prediction"] for row in colonnade(*words, "--json").json["scores"]}
    assert set(exact.values()) <= set(FORMULAS)
    assert len(set(exact.values())) > 2, "several names must be seen"
    assert colonnade(*words, "--output", "scores.csv").code == 0
    for text in ((market / "scores.csv").read_text(), colonnade(*words).out):
        written = {row["customer"]: row["prediction"] for row in cells(text)}
        assert all(name.startswith("'") for name in written.values())
        assert {customer: name.removeprefix("'") for customer, name in written.items()} == exact
        assert all(customer.startswith("+49-") for customer in written), "own ids stay as they are in the own table"
    assert colonnade(*words, "--output", "scores.parquet").code == 0
    kept = pd.read_parquet(market / "scores.parquet")
    assert dict(zip(kept["customer"], kept["prediction"], strict=True)) == exact


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("file", ["scores.csv", "scores.parquet"])
def test_scores_are_for_their_owner_also_where_a_wider_file_was(market: Path, colonnade: Any, file: str) -> None:
    for leftover in (market / file, market / f"{file}.part"):
        leftover.write_text("older")
        leftover.chmod(0o666)
    outcome = colonnade("predict", "runs/credit", "--table", "shop=shop/table.csv", "--output", file)
    assert outcome.code == 0, outcome.err
    assert oct(rights(market / file)) == "0o600"
    assert not (market / f"{file}.part").exists()


def test_reports_are_for_their_owner_wherever_they_are_written(market: Path, colonnade: Any) -> None:
    for given in ((), ("--output", "sent.html")):
        place = market / (given[1] if given else "runs/credit/report.html")
        place.write_text("older")
        place.chmod(0o644)
        assert colonnade("report", "runs/credit", *given).code == 0
        assert oct(rights(place)) == "0o600"


def test_every_file_of_a_run_is_for_its_owner(market: Path, colonnade: Any) -> None:
    colonnade("predict", "runs/credit", "--table", "shop=shop/table.csv")
    wider = [str(path) for path in (market / "runs").rglob("*") if path.is_file() and rights(path) & 0o077]
    assert not wider


def test_what_a_run_says_of_itself_is_for_its_owner(tmp_path: Path) -> None:
    (tmp_path / "status.json.part").write_text("left over")
    (tmp_path / "status.json.part").chmod(0o666)
    StatusFile(tmp_path, "bank", watcher=Watcher(), observer=None).connected({})
    assert rights(tmp_path / "status.json") == 0o600


@pytest.mark.parametrize("place", ["a folder", "a device"])
def test_what_is_no_file_is_not_replaced_by_one(place: str, tmp_path: Path) -> None:
    path = tmp_path if place == "a folder" else tmp_path / "null"
    if place == "a device":
        path.symlink_to("/dev/null")
    with pytest.raises(OSError, match="no file"):
        write_whole(path, b"scores")
    assert sorted(one.name for one in tmp_path.parent.glob(f"{tmp_path.name}*")) == [tmp_path.name]
    assert [one.name for one in tmp_path.iterdir()] == ([] if place == "a folder" else ["null"])


def test_a_link_that_waits_in_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    """In a folder that others can write to, a link could lead what is written to where they can read it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    elsewhere.chmod(0o666)
    for name in ("scores.csv", "scores.csv.part"):
        (tmp_path / name).symlink_to(elsewhere)
    write_whole(tmp_path / "scores.csv", b"secret")
    assert elsewhere.read_bytes() == b""
    assert (tmp_path / "scores.csv").read_bytes() == b"secret"
    assert rights(tmp_path / "scores.csv") == 0o600


# Terminals


def forged_ledger(path: Path, party: str, message: str) -> None:
    """Write a ledger whose chain holds and whose words are a partner's."""
    about = {"peer": "bank", "message": message, "protection": message, "step": 0, "connection": "c", "sequence": 0}
    lines: list[dict[str, Any]] = [
        {"kind": "opened", "party": party, "digest": "d"},
        {"kind": "sent", **about, "shapes": {}, "bytes": 1, "payload": "p"},
        {"kind": "closed"},
    ]
    head, written = GENESIS, b""
    for index, line in enumerate(lines):
        line, head = chain(head, {"index": index, "time": "t", **line})
        written += line
    path.write_bytes(written)


def is_quiet(text: str) -> bool:
    """Tell whether a terminal would only show this."""
    return all(line.isprintable() for line in text.removesuffix("\n").split("\n"))


TERMINAL = [case for case in OBEYED if case not in ("half a character", "500 kB")]


@pytest.mark.parametrize("case", [*TERMINAL, "500 kB"])
def test_a_ledger_with_words_that_could_do_harm_is_refused(case: str, tmp_path: Path, colonnade: Any) -> None:
    """No party writes such names, and its own lists are what they would be shown in."""
    path = tmp_path / "shop.jsonl"
    forged_ledger(path, "shop", "Codes")
    assert colonnade("audit", "verify", path).code == 0
    for party, message in ((OBEYED[case], "Codes"), ("shop", OBEYED[case])):
        forged_ledger(path, party, message)
        outcome = colonnade("audit", "verify", path)
        assert outcome.code == 5
        assert is_quiet(outcome.out + outcome.err)
        assert len(outcome.err) < 1000


@pytest.mark.parametrize("case", OBEYED)
def test_what_is_printed_is_shown_and_not_obeyed(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = OBEYED[case]
    say(words.replace("\n", ""))
    echo(words.replace("\n", ""))
    print_table([words, "heading"], [[words, words]])
    assert len([line for line in capsys.readouterr().out.split("\n") if line]) == 4, "one line each, and a rule"
    say(words)
    echo(words)
    print_table([words], [[words]])
    print_json({words: words})
    printed = capsys.readouterr()
    assert is_quiet(printed.out)
    assert is_quiet(printed.err)
    assert json.loads(printed.out.splitlines()[-1]) == {words: words}, "what programs read is exact"


@pytest.mark.parametrize("case", TERMINAL)
def test_an_error_shows_somebodys_words_and_does_not_obey_them(
    case: str, tmp_path: Path, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> Any:
        raise ConfigError(f"'{OBEYED[case]}' is no name.")

    monkeypatch.setattr("colonnade.cli.pair.read_party_home", fail)
    (tmp_path / "party.toml").write_text("")
    outcome = colonnade("pair", "--list", "--home", tmp_path)
    assert outcome.code == 2
    assert outcome.err.startswith("Error: '")
    assert is_quiet(outcome.err)
    assert outcome.err.count("\n") == 1
    assert is_quiet(colonnade("pair", "--list", "--home", tmp_path, "--traceback").err)


def hostile_certificate(name: str, monkeypatch: pytest.MonkeyPatch) -> bytes:
    attribute = functools.partial(x509.NameAttribute, _validate=False)
    monkeypatch.setattr(certificates.x509, "NameAttribute", attribute)
    monkeypatch.setattr(certificates, "server_name", lambda name: "evil.colonnade.invalid")
    try:
        return certificates.make_identity(name).certificate
    finally:
        monkeypatch.undo()


@pytest.mark.filterwarnings("ignore:Attribute's length")
@pytest.mark.parametrize("case", [case for case in OBEYED if case not in ("half a character", "nothing at all")])
def test_a_certificates_name_is_shown_and_not_obeyed(
    case: str, tmp_path: Path, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.pem").write_bytes(hostile_certificate(OBEYED[case][:40_000], monkeypatch))
    make_home(tmp_path / "bank", "bank", None)
    outcome = colonnade("pair", "--home", tmp_path / "bank", tmp_path / "shop.pem", "--fingerprint", "0" * 64)
    assert outcome.code == 2
    assert is_quiet(outcome.err)
    assert len(outcome.err) < 1000
    (tmp_path / "bank" / "partners" / "shop.pem").write_bytes((tmp_path / "shop.pem").read_bytes())
    for command in (("pair", "--list"), ("doctor",)):
        outcome = colonnade(*command, "--home", tmp_path / "bank")
        assert outcome.code != 0
        assert is_quiet(outcome.out + outcome.err)


# Reports

MARKUP = [
    "<img src=x onerror=alert(1)>",
    "\" onfocus=\"alert(1)' onfocus='x",
    "</title></svg><script>x</script>",
    "]]>--><svg onload=evil><!--",
]


class Elements(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.comments: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


def record_naming(name: str) -> Any:
    """Return a run in which every text that anybody chose is this one."""
    found = content({"together": multiclass_evaluation(0.5), "alone": multiclass_evaluation(0.2)})
    for evaluation in found["evaluations"].values():
        for curve in evaluation.curves["roc"]:
            curve["class"] = name
        confusion = evaluation.curves["confusion"]
        confusion["classes"] = [name for _ in confusion["classes"]]
    for party in found["parties"]:
        party["name"] = party["role"] = name
        party["label"] = party["label"] and name
        party["coefficients"] = {name: [0.5, -0.5]}
        for column in party["columns"]:
            column["name"] = column["kind"] = name
    for crossed in found["crossed"]:
        crossed |= dict.fromkeys(("message", "sender", "receiver", "protection", "paper_step", "reveals"), name)
        crossed["shapes"] = (name,)
    for ledger in found["ledgers"]:
        ledger |= {"party": name, "head": name, "agrees_with": (name,)}
    trade_off = {"series": [{"name": name, "x": [0.0], "y": [1.0], "marks": [name]}], "across": name, "up": name}
    values: dict[str, dict[str, Any]] = {
        "bars": {"names": [name], "lengths": [1.0]},
        "scatter": {"series": [{"name": name, "x": [0.0], "y": [1.0]}]},
        "beeswarm": {"names": [name], "values": [[1.0]], "levels": [[0]]},
        "trade_off": trade_off,
    }
    figures = tuple(Figure(kind=kind, title=name, values=one) for kind, one in values.items())
    finding = Finding(name=name, title=name, text=name, columns=(name,), rows=((name,),), figures=figures)
    changed: dict[str, Any] = {
        "name": name,
        "title": name,
        "alignment": name,
        "label_holders": [name],
        "digest": name,
        "launch": name,
    }
    curves = [{**point, "part": name} for point in found["curves"]]
    found |= {
        **changed,
        "marks": [name],
        "findings": {name: finding},
        "curves": curves,
        "settings": {name: {name: [name]}},
    }
    return record_of(found)


@functools.cache
def harmless() -> Elements:
    return Elements(render(record_naming("harmless")))


@pytest.mark.parametrize("markup", MARKUP)
def test_no_markup_of_a_partner_survives_in_a_report(markup: str) -> None:
    page = render(record_naming(markup))
    found = Elements(page)
    assert found.tags == harmless().tags
    assert found.attributes == harmless().attributes
    assert not [one for one in found.comments if "evil" in one]


def test_letters_that_are_not_seen_are_spelt_out_in_a_report() -> None:
    name = "".join(OBEYED[case][:8] for case in OBEYED)
    page = render(record_naming(name))
    assert page.replace("\n", "").replace("\xa0", "").isprintable()


def test_a_report_written_by_hand_is_for_its_owner(tmp_path: Path) -> None:
    place = tmp_path / "report.html"
    place.write_text("older")
    place.chmod(0o644)
    write(record_of(content({"together": binary_evaluation(3.0)})), place)
    assert oct(rights(place)) == "0o600"
