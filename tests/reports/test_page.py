"""The page stands alone, escapes what it is given, and is the same for the same record."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from tests.reports.conftest import changed, content, multiclass_evaluation, record_of

import colonnade.reports
from colonnade.metrics import OperatingPoint, Threshold, evaluate
from colonnade.reports import CheckedLedger, Consent, render, write

HOSTILE = "<script>alert('$x_1$')</script>\"&"
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Collect what a browser would act on, and check that elements nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module", params=["binary", "multiclass", "regression", "bare"])
def record(request):
    if request.param == "bare":
        nothing = {"crossed": [], "ledgers": [], "parties": [], "rows": {}, "curves": [], "settings": {}}
        return record_of({**content({}), **nothing, "chosen_epoch": None})
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def rendered(record) -> str:
    """The record's page, which takes a second or two to draw."""
    return render(record)


def test_the_page_refers_to_nothing_outside_itself(rendered):
    text = rendered
    page = Page(text)
    assert not {"link", "script", "iframe", "object", "embed", "base"} & set(page.tags)
    for tag, name, value in page.attributes:
        assert not name.startswith("on")
        if name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster"):
            assert value.startswith(("#", "data:image/png")), (tag, name)
    assert "@import" not in text
    assert not re.search(r"url\(\s*['\"]?(?!#)", text)
    assert "http:" not in text
    assert "https:" not in text
    policies = [value for tag, name, value in page.attributes if (tag, name) == ("meta", "content")]
    assert any("default-src 'none'" in value for value in policies)


def test_ids_are_unique_and_links_lead_somewhere(rendered):
    page = Page(rendered)
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    wanted = {value[1:] for _, name, value in page.attributes if name.endswith("href") and value.startswith("#")}
    assert wanted <= set(ids)
    clips = set(re.findall(r"url\(#([^)]+)\)", rendered))
    assert clips <= set(ids)


def test_the_page_is_accessible(rendered):
    page = Page(rendered)
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.tags.count("table") == page.tags.count("caption")
    scopes = [value for tag, name, value in page.attributes if (tag, name) == ("th", "scope")]
    assert len(scopes) == page.tags.count("th")
    labels = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]
    assert len(labels) == page.tags.count("svg") == page.tags.count("figure")
    assert all(len(label) > 30 for label in labels)
    assert ("html", "lang", "en") in page.attributes


def test_the_page_is_small_and_deterministic(record, rendered, tmp_path):
    assert len(rendered.encode()) < 1_500_000
    path = write(record, tmp_path / "report.html")
    assert path.read_text(encoding="utf-8") == rendered


def test_a_reader_finds_every_section_and_number(binary):
    text = Page(render(binary)).text
    for title in (
        "Agreement",
        "What was trained, and by whom",
        "Data at each party",
        "How good it is",
        "Learning curves",
        "What crossed",
        "Settings and digest",
        "How to check this report",
    ):
        assert text.count(title) >= 2  # in the list of sections, and as a heading
    for wanted in (
        "insecure test keys",
        "colonnade audit verify RUN",
        "9f2c" * 16,
        "ab12" * 16,
        "hidden_widths",
        "made from the parties' ledgers",
        "Reveals: the number of rows.",
        "64\u00a0×\u00a016",
        "3.8 MiB",
        "13.5 KiB",
        "about 0.",
        "224 for training, 56 for validation and 70 for the held-out test",
        "Vepakomma",
    ):
        assert wanted.replace("\u00a0", " ") in text
    assert "fully private" not in text.lower()


def test_each_task_has_its_figures(binary, multiclass, regression):
    def captions(record):
        return set(re.findall(r"<figcaption><strong>([^<]+)\.</strong>", render(record)))

    learning = {"Loss"}
    of_two = {"ROC curves", "Separation of the classes", "Calibration", "Precision and recall", "Validation AUC"}
    assert captions(binary) == learning | of_two
    assert captions(multiclass) == learning | {"ROC curves by class", "Calibration", "Validation accuracy"}
    assert captions(regression) == learning | {"Predicted and observed", "Errors", "Validation R²"}
    assert "Confusion matrix of the model that serves" in render(multiclass)


def test_many_classes_are_drawn_instead_of_tabled():
    record = record_of(content({"together": multiclass_evaluation(0.5, classes=30, rows=600)}))
    text = render(record)
    Page(text)
    assert "<strong>Confusion matrix.</strong>" in text
    assert len(text.encode()) < 1_500_000


def test_names_from_users_are_escaped_everywhere():
    classes = [f"{HOSTILE}{index}" for index in range(3)]
    truth = np.arange(30) % 3
    models = {key: evaluate("multiclass", truth, np.full((30, 3), 1 / 3), classes) for key in ("together", "alone")}

    def hostile(value):
        if isinstance(value, str):
            return HOSTILE + value
        if isinstance(value, dict):
            return {key: hostile(item) for key, item in value.items()}
        return [hostile(item) for item in value] if isinstance(value, list | tuple) else value

    honest = content(models)
    made = hostile({key: value for key, value in honest.items() if key not in ("evaluations", "makes_model")})
    made["settings"] = {HOSTILE: {HOSTILE: HOSTILE}}
    made["rows"] = {HOSTILE: 3}
    made["evaluations"] = {**honest["evaluations"], HOSTILE: honest["evaluations"]["alone"]}
    text = render(record_of({**made, "makes_model": True}))
    page = Page(text)
    assert "script" not in page.tags
    assert "<script" not in text
    assert "&lt;script&gt;alert" in text


def test_names_in_any_script_or_with_broken_characters_do_not_stop_the_report(tmp_path):
    made = content({key: multiclass_evaluation(0.4, rows=60) for key in ("together", "alone")})
    for party, name in zip(made["parties"], ("医院\n病院 🏥", "_lab\ud800 $"), strict=True):
        party["name"] = name
    path = write(record_of(made), tmp_path / "report.html")
    assert "医院" in path.read_text(encoding="utf-8")


def test_a_broken_ledger_is_the_first_thing_said(binary):
    broken = CheckedLedger(party="laboratory", entries=3, head="ee" * 32, verified=False)
    text = Page(render(changed(binary, checked_ledgers=(broken,)))).text
    assert "The ledger of laboratory does not verify: do not rely on this report." in text
    assert text.index("does not verify") < text.index("insecure test keys")


def test_what_was_decided_comes_first_then_warnings_then_what_was_agreed(binary):
    point = OperatingPoint(0.31, "Where most is right.", "ill", "well", 9, 3, 0, 58)
    served = replace(binary.evaluations["together"], operating=point, warnings=("Few are ill: 9 rows.",))
    text = Page(render(changed(binary, evaluations={**binary.evaluations, "together": served}), date(2027, 2, 1))).text
    order = (
        "What was decided",
        "The federated model of hospital and laboratory.",
        "From a probability of 0.31 on, a row is called 'ill': 12 rows, 75% of them rightly, 5.83 times as often",
        "What to be warned of",
        "Retention is over: this run was to be kept until 2027-01-31.",
        "Few are ill: 9 rows.",
        "Find malignant tumours earlier.",
        "2027-01-31 has passed",
        "Nobody was asked",
        "minimum_shared_rows",
        "What was trained, and by whom",
    )
    places = [text.index(words) for words in order[:-1]] + [text.rindex(order[-1])]
    assert places == sorted(places)
    assert "Retention is over" not in render(binary, date(2027, 1, 31))


def test_who_agreed_to_what_is_told_as_far_as_it_is_known(binary):
    consent = Consent(
        digest=binary.plan.digest(), how="given at the terminal", when="2026-11-18T20:35:48+00:00", account="ada"
    )
    own = changed(binary, consents={"hospital": consent}, rules={"hospital": binary.rules["hospital"]})
    text = Page(render(own)).text
    assert "hospital given at the terminal 2026-11-18 20:35 UTC ada laboratory known there only" in text
    assert "What laboratory allowed is not known here" in text
    other = changed(own, consents={"hospital": replace(consent, digest="ab" * 32)})
    assert "given at the terminal, for another agreement (abababababababab…)" in render(other)


def test_one_class_in_the_test_rows_is_explained(binary):
    only = evaluate("binary", [0] * 20, np.linspace(0, 0.9, 20))
    text = Page(render(changed(binary, evaluations={"together": only}))).text
    assert "All 20 held-out rows are '0', so that no number here says how well" in text


def test_calls_are_counted_at_the_threshold_and_what_makes_them_say_little_comes_first(binary):
    truth, scores = [0] * 92 + [1] * 8, np.r_[np.full(80, 0.1), np.full(12, 0.4), np.full(6, 0.4), 0.1, 0.1]
    few = evaluate("binary", truth, scores, ["nein", "ja"], Threshold(0.3, "By a rule."))
    text = Page(render(changed(binary, evaluations={"together": few}))).text
    assert "A row is called 'ja' from a probability of 0.3 on. By a rule." in text
    assert "18 are called so, 6 of them rightly: 4.2 times as often as without a model. 2 of the 8 'ja' rows" in text
    assert "8 of 100 held-out rows are 'ja'" in text[: text.index("What was trained")]
    warned = text[text.index("What to be warned of") : text.index("What was trained")]
    assert "only 8 are 'ja'" in warned
    assert "called nein called ja nein 80 12 ja 2 6" in text


def test_gaps_in_the_learning_curve_do_not_stop_the_report(binary):
    points = (
        {"step": 0, "epoch": None, "train_loss": 0.5},
        {"step": 1, "epoch": 0, "train_loss": float("nan")},
        {"step": 2, "epoch": 0, "train_loss": 0.4, "validation_loss": None},
    )
    text = render(changed(binary, curves=points, chosen_epoch=0))
    assert "By step: training from 0.5 to 0.4." in text
    assert "This run recorded no learning curve." in render(changed(binary, curves=()))


def test_a_long_run_is_thinned():
    points = [{"step": step, "epoch": 0, "train_loss": 1 / (1 + step)} for step in range(50_000)]
    text = render(record_of({**content({}), "curves": points}))
    assert len(text.encode()) < 300_000


def test_importing_reports_does_not_import_matplotlib():
    check = "import sys, colonnade.reports; sys.exit('matplotlib' in sys.modules or 'sklearn' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_every_exported_name_exists():
    names = colonnade.reports.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert all(hasattr(colonnade.reports, name) for name in names)
