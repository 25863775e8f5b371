"""A stranger's first hour: two awkward files, made up here with a known truth, and commands that a user would type."""

from __future__ import annotations

import html
import io
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from tests.cli.advice import follow
from tests.cli.conftest import Outcome

from colonnade.cli import main

USES = {
    "Küche": -0.3,
    "Möbel": 0.0,
    "Auto, gebraucht": 0.4,
    "Auto, neu": -0.6,
    "Umschuldung": 0.9,
    "Führerschein": 0.2,
}
REMARK = "Kunde zahlt meist; über das Konto der Frau Müller, Rückruf am Dienstag wegen größerer Änderung ohne Bürgen"
RUN = """\
[run]
name = "credit"
method = "splitnn"
roles = { label_holder = "bank", feature_holder = "agency" }
"""
SCORED = "scores.csv"


def people(count: int, seed: int) -> pd.DataFrame:
    """Return people whose loans turn bad by a logistic score of what both parties know of them."""
    random = np.random.default_rng(seed)
    known = pd.DataFrame(
        {
            "number": random.permutation(10_000_000 * seed + 773_747 + 7 * np.arange(count)),
            "amount": np.exp(random.normal(8.2, 0.9, count)).round(2),
            "months": random.integers(6, 73, count),
            "paid_out": np.datetime64("2015-01-01") + random.integers(0, 1600, count),
            "income": np.exp(random.normal(7.7, 0.4, count)).round(),
            "use": random.choice(list(USES), count),
            "branch": random.integers(1, 61, count),
            "points": random.normal(500, 100, count).round(1),
            "late_before": random.random(count) < 0.15,
            "since": np.datetime64("1990-01-01") + random.integers(0, 9000, count),
            "owed": np.exp(random.normal(7, 1.3, count)).round(2),
            "gaps": random.random(count),
            "remark": [" ".join(random.choice(REMARK.split(), size)) for size in random.integers(5, 10, count)],
            "at_bank": random.random(count) < 0.92,
            "at_agency": random.random(count) < 0.92,
        }
    )
    score = (
        -2.1
        + 0.9 * (np.log(known.amount) - 8.2)
        + 0.025 * (known.months - 39)
        - 1.5 * (np.log(known.income) - 7.7)
        + known.use.map(USES)
        + np.random.default_rng(0).normal(0, 0.5, 61)[known.branch]
        - 0.01 * (known.points - 500)
        + 1.4 * known.late_before
        + 0.4 * (np.log(known.owed) - 7)
        - 0.0002 * ((known.since - pd.Timestamp("1990-01-01")).dt.days - 4500)
    )
    return known.assign(bad=random.random(count) < 1 / (1 + np.exp(-score)))


def german(number: float, grouped: bool) -> str:
    text = f"{number:,.2f}" if grouped else f"{number:.2f}"
    return text.translate(str.maketrans({",": ".", ".": ","}))


def quoted(text: str) -> str:
    return f'"{text}"' if ";" in text else text


def awkward_bank(known: pd.DataFrame) -> bytes:
    """Return the bank's file as its core system exports it."""
    columns = {
        "lfd_nr": [f"{place}" for place in range(1, len(known) + 1)],
        "Kunden-Nr": [f" kd{number:08d}" for number in known.number],
        "Kreditbetrag": [german(amount, place % 2 == 0) for place, amount in enumerate(known.amount)],
        "Auszahlung am": known.paid_out.dt.strftime("%d.%m.%Y"),
        "Laufzeit": [
            "k.A." if gap < 0.12 else f"{months}" for gap, months in zip(known.gaps, known.months, strict=True)
        ],
        "Einkommen": [german(income, True) for income in known.income],
        "Zweck": known.use,
        "Filiale": [f"{branch:04d}" for branch in known.branch],
        "Währung": ["EUR"] * len(known),
        "Bemerkung": [quoted(remark) for remark in known.remark],
        "Zahlungsverzug": np.where(known.bad, "ja", "nein"),
    }
    lines = [";".join(columns), *(";".join(row) for row in zip(*columns.values(), strict=True))]
    return "".join(f"{line}\r\n" for line in lines).encode("cp1252")


def clean_bank(known: pd.DataFrame) -> bytes:
    """Return what somebody who prepares data by hand would make of it."""
    table = pd.DataFrame(
        {
            "Kunden-Nr": [f"KD{number:08d}" for number in known.number],
            "Kreditbetrag": known.amount,
            "Auszahlung am": known.paid_out.dt.strftime("%Y-%m-%d"),
            "Laufzeit": known.months.where(known.gaps >= 0.12),
            "Einkommen": known.income,
            "Zweck": known.use,
            "Filiale": [f"F{branch:02d}" for branch in known.branch],
            "Zahlungsverzug": np.where(known.bad, "ja", "nein"),
        }
    )
    return table.to_csv(index=False).encode()


def agency(known: pd.DataFrame) -> bytes:
    """Return the agency's file, which has gaps and is in another order."""
    known = known.sample(frac=1, random_state=1)
    table = pd.DataFrame(
        {
            "customer_id": [f"KD{number:08d}" for number in known.number],
            "points": known.points.where(known.gaps < 0.9),
            "late_before": known.late_before.map({True: "true", False: "false"}).where(known.gaps.between(0.1, 0.99)),
            "known_since": known.since.dt.strftime("%Y-%m-%d").where(known.gaps > 0.06),
            "owed": known.owed,
        }
    )
    return table.to_csv(index=False).encode()


def typed(*words: str) -> Outcome:
    """Give a command, and tell what it came to."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ending:
        main(list(words))
    code = ending.value.code
    assert isinstance(code, int)
    return Outcome(code, out.getvalue(), err.getvalue())


def colonnade(line: str) -> Outcome:
    outcome = typed(*shlex.split(line))
    assert outcome.code == 0, outcome.err
    return outcome


def line_of(text: str, start: str) -> str:
    return next(line.removeprefix(start).strip() for line in text.splitlines() if line.startswith(start))


@dataclass(frozen=True)
class Journey:
    """What was printed on the way from two files to scores."""

    folder: Path
    inspected: dict[str, Any]
    refused: Outcome
    ran: Outcome
    predicted: Outcome
    scores: pd.DataFrame

    def run(self, method: str, name: str = "", *, settings: str = "", options: Sequence[str] = ()) -> Outcome:
        """Carry out another run of the same files."""
        name = name or method
        text = (self.folder / "run.toml").read_text().replace("credit", name).replace("splitnn", method)
        (self.folder / f"{name}.toml").write_text(f"{text}\n{settings}\n")
        with chdir(self.folder):
            outcome = typed("run", "--simulate", f"{name}.toml", "--no-compare", *options)
        assert outcome.code == 0, outcome.err
        return outcome

    def page(self, name: str) -> str:
        """Return the words of a run's report."""
        page = (self.folder / "runs" / name / "report.html").read_text()
        return html.unescape(re.sub(r"<[^>]+>", "", page))

    def score(self, name: str, bank: str = "new_kredite.csv", agency: str = "new_auskunft.csv") -> Outcome:
        tables = ("--table", f"bank={bank}", "--table", f"agency={agency}", "--output", SCORED)
        with chdir(self.folder):
            return typed("predict", f"runs/{name}", *tables)

    def scored(self, name: str) -> pd.DataFrame:
        assert self.score(name).code == 0
        return pd.read_csv(self.folder / SCORED)


PAST, NEW = people(1400, 1), people(3000, 2)


def write_files(folder: Path, bank: Any) -> None:
    # One of fifty new loans is for something that no earlier one was.
    new = NEW.assign(use=NEW.use.where(NEW.index % 50 > 0, "Hörgerät"))
    for start, known in (("", PAST), ("new_", new)):
        (folder / f"{start}kredite.csv").write_bytes(bank(known[known.at_bank]))
        (folder / f"{start}auskunft.csv").write_bytes(agency(known[known.at_agency]))


def make_homes() -> None:
    colonnade("init bank --table kredite.csv --id Kunden-Nr --label Zahlungsverzug")
    colonnade("init agency --table auskunft.csv --id customer_id")


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journey]:
    """Go from the two files to scores, at default settings, by what every command says is next."""
    folder = tmp_path_factory.mktemp("awkward")
    write_files(folder, awkward_bank)
    with chdir(folder):
        make_homes()
        inspected = {party: colonnade(f"inspect {party} --json").json for party in ("bank", "agency")}
        Path("run.toml").write_text(RUN)
        command = ["run", "--simulate", "run.toml"]
        refused = typed(*command)
        again = follow(refused.err, command, typed)
        assert again == command
        ran = typed(*command)
        assert ran.code == 0, ran.err
        line = line_of(ran.out, "Score:").partition(" predict ")[2]
        line = line.replace("bank=FILE", "bank=new_kredite.csv").replace("agency=FILE", "agency=new_auskunft.csv")
        predicted = colonnade(f"predict {line} --output {SCORED}")
        yield Journey(folder, inspected, refused, ran, predicted, pd.read_csv(SCORED))


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, awkward: Journey) -> Journey:
    """Hold the same people in files that somebody has prepared by hand."""
    folder = tmp_path_factory.mktemp("clean")
    write_files(folder, clean_bank)
    with chdir(folder):
        make_homes()
    (folder / "run.toml").write_text((awkward.folder / "run.toml").read_text())
    return Journey(folder, {}, awkward.refused, awkward.ran, awkward.predicted, awkward.scores)


def truth_of(scores: pd.DataFrame) -> pd.Series:
    numbers = scores["Kunden-Nr"].str.strip().str[2:].astype(int)
    return NEW.set_index("number").bad[numbers].reset_index(drop=True)


def area(scores: pd.DataFrame) -> float:
    return float(roc_auc_score(truth_of(scores), scores.probability_ja))


def test_no_column_is_misread(awkward: Journey) -> None:
    bank, shop = awkward.inspected["bank"], awkward.inspected["agency"]
    assert {one["name"]: (one["kind"], one["left_out"]) for one in bank["columns"]} == {
        "lfd_nr": ("numeric", "identifier"),
        "Kreditbetrag": ("numeric", ""),
        "Auszahlung am": ("date", ""),
        "Laufzeit": ("numeric", ""),
        "Einkommen": ("numeric", ""),
        "Zweck": ("categorical", ""),
        "Filiale": ("categorical", ""),
        "Währung": ("categorical", "constant"),
        "Bemerkung": ("categorical", "free text"),
    }
    assert {one["name"]: (one["kind"], one["left_out"]) for one in shop["columns"]} == {
        "points": ("numeric", ""),
        "late_before": ("boolean", ""),
        "known_since": ("date", ""),
        "owed": ("numeric", ""),
    }
    assert bank["dialect"] == {
        "separator": ";",
        "quote": '"',
        "encoding": "cp1252",
        "decimal": ",",
        "dates": "day first",
    }
    customers, known = PAST[PAST.at_bank], PAST[PAST.at_agency]
    missing = {one["name"]: one["missing"] for one in (*bank["columns"], *shop["columns"])}
    assert missing["Laufzeit"] == (customers.gaps < 0.12).sum() > 100
    assert [missing[name] for name in ("points", "late_before", "known_since")] == [
        (~(known.gaps < 0.9)).sum(),
        (~known.gaps.between(0.1, 0.99)).sum(),
        (known.gaps <= 0.06).sum(),
    ]
    assert bank["label"]["classes"] == {"ja": customers.bad.sum(), "nein": (~customers.bad).sum()}
    assert (bank["id_format"], shop["id_format"]) == (
        "text, length 11, lower case, some with spaces around",
        "text, length 10, upper case",
    )


def test_what_is_decided_is_said_before_the_run(awkward: Journey) -> None:
    customers = PAST[PAST.at_bank]
    notes = {one["name"]: " ".join(one["notes"]) for one in awkward.inspected["bank"]["columns"]}
    assert "hold a word such as n/a" in notes["Laufzeit"]
    assert "60 categories, of which the 50 most frequent are told apart" in notes["Filiale"]
    assert 'types = {lfd_nr = "numeric"} takes it in' in notes["lfd_nr"]
    assert not notes["Kreditbetrag"] + notes["Auszahlung am"] + notes["Einkommen"] + notes["Zweck"]
    counted = f"'ja' counts as positive: the rarer class, {customers.bad.sum():,} of {len(customers):,} labels."
    assert awkward.inspected["bank"]["label"]["sentence"].startswith(counted)
    assert counted in awkward.ran.err
    assert "3 left out: lfd_nr (identifier), Währung (constant), Bemerkung (free text)" in awkward.ran.err
    page = awkward.page("credit")
    for said in ("counts as positive", "3 left out", "left out: free text", "left out: identifier", "2 to look at"):
        assert said in page


def test_ids_written_differently_are_told_and_the_hint_works(awkward: Journey) -> None:
    assert awkward.refused.code == 2
    assert "share no row" in awkward.refused.message
    assert 'under [alignment]: case = "fold"' in awkward.refused.message
    assert not re.search(r"kd0\d+", awkward.refused.err + awkward.ran.err + awkward.ran.out, re.IGNORECASE)
    shared = int((PAST.at_bank & PAST.at_agency).sum())
    assert re.search(rf"^agency +feature_holder +{PAST.at_agency.sum()} +{shared} ", awkward.ran.out, re.MULTILINE)


def test_good_customers_do_not_score_above_bad_ones(awkward: Journey) -> None:
    assert list(awkward.scores.columns) == ["Kunden-Nr", "probability_ja", "prediction"]
    assert len(awkward.scores) == (NEW.at_bank & NEW.at_agency).sum()
    is_bad = truth_of(awkward.scores)
    assert awkward.scores.probability_ja[is_bad].mean() > awkward.scores.probability_ja[~is_bad].mean() + 0.1
    assert area(awkward.scores) > 0.76
    assert set(awkward.scores.prediction) == {"ja", "nein"}
    threshold = float(re.search(r"From a score of ([\d.]+) on a row is called 'ja'", awkward.ran.out)[1])  # type: ignore[index]
    assert ((awkward.scores.prediction == "ja") == (awkward.scores.probability_ja >= threshold)).all()
    assert re.search(r"on \d+ held-out rows, \d+ of them 'ja'", awkward.ran.out)
    assert re.search(
        r"In column 'Zweck' \d+ of .* cells .* hold a category that no training row had", awkward.predicted.err
    )
    assert awkward.predicted.err.count("In column") == 1


# First weights of the seed, and no noise, so that two runs differ by their files only.
@pytest.mark.parametrize(
    ("method", "config"),
    [
        pytest.param("splitnn", "secret_start = false", marks=pytest.mark.slow),
        ("secure_lr", 'key_size = "insecure_test"\ncoefficient_noise = 0.0'),
    ],
)
def test_awkward_files_give_the_model_that_clean_ones_give(
    awkward: Journey, clean: Journey, method: str, config: str
) -> None:
    areas = []
    for journey in (awkward, clean):
        journey.run(method, settings=f"[config]\n{config}")
        areas.append(area(journey.scored(method)))
    assert min(areas) > 0.76
    assert abs(areas[0] - areas[1]) < 0.01


@pytest.fixture(scope="module")
def cautioned(awkward: Journey) -> Outcome:
    """Hold too few rows out, and ask for a threshold that no row reaches; the model itself is sound."""
    settings = '[config]\nkey_size = "insecure_test"\n[evaluate]\ntest_fraction = 0.03'
    return awkward.run("secure_lr", "cautioned", settings=settings, options=["--threshold", "1"])


def test_a_run_that_judges_on_too_little_says_so(awkward: Journey, cautioned: Outcome) -> None:
    printed, page = " ".join(cautioned.out.split()), awkward.page("cautioned")
    for said in (
        r"Of \d+ held-out rows only \d+ are 'ja': another split would give other numbers\.",
        r"The model calls every held-out row 'nein', so that nothing can be decided by its calls\.",
    ):
        assert re.search(f"Mind: {said}", printed)
        assert re.search(said, page)
        assert not re.search(said, awkward.page("credit"))


def test_new_rows_that_differ_are_told_of(awkward: Journey, cautioned: Outcome) -> None:
    folder, new = awkward.folder, NEW[NEW.at_bank]
    (folder / "shifted.csv").write_bytes(awkward_bank(new.assign(amount=1000 * new.amount)))
    shorter = pd.read_csv(folder / "new_auskunft.csv", dtype=str).drop(columns="known_since")
    shorter.to_csv(folder / "shorter.csv", index=False)
    refused = awkward.score("cautioned", agency="shorter.csv")
    assert refused.code == 2
    assert "agency lacks the column 'known_since'" in refused.message
    assert "Add it; cells may be empty" in refused.message
    shorter.assign(known_since="").to_csv(folder / "shorter.csv", index=False)
    told = awkward.score("cautioned", bank="shifted.csv", agency="shorter.csv")
    assert told.code == 0
    rows = len(shorter)
    assert f"agency: In column 'known_since' {rows:,} of {rows:,} cells (100.0%) are missing" in told.err
    assert re.search(
        r"bank: In column 'Kreditbetrag' .* lie beyond the range of training and count as its end", told.err
    )
    assert "standard deviations above that of training" in told.err


def test_a_few_new_rows_are_read_as_those_of_training(awkward: Journey, cautioned: Outcome) -> None:
    """Nothing in the second file says that `1.603` is more than a thousand: it has no comma, and no semicolon."""
    few = NEW[NEW.at_bank & NEW.at_agency].head(5).assign(amount=1603.0, income=2000.0, remark="gut")
    written = awkward_bank(few)
    bare = written.replace(b",00;", b";").replace(b";", b"\t")
    assert b"\t1.603\t" in bare
    scores = []
    for content in (written, bare):
        (awkward.folder / "few.csv").write_bytes(content)
        told = awkward.score("cautioned", bank="few.csv")
        assert told.code == 0
        assert "Kreditbetrag" not in told.err
        scores.append(pd.read_csv(awkward.folder / SCORED).probability_ja)
    assert len(scores[0]) == 5
    np.testing.assert_array_equal(*scores)
