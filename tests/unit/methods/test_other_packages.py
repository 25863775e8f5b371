"""Methods that other packages bring: found by entry points, and what is wrong with one stops no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import tally

import colonnade as cn
from colonnade import methods
from colonnade.cli import main
from colonnade.errors import ConfigError
from colonnade.methods import METHODS, known_methods, method_for, method_named

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put packages where Python looks for installed ones: a name, the method's name, and the code that defines it."""

    def put(package: str, method: str, code: str = "from tests.tally import METHOD") -> None:
        module = package.replace("-", "_")
        about = tmp_path / f"{module}-0.3.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.3\n")
        (about / "entry_points.txt").write_text(f"[{methods.GROUP}]\n{method} = {module}:METHOD\n")
        (tmp_path / f"{module}.py").write_text(code)

    monkeypatch.syspath_prepend(tmp_path)
    caches = (methods._entry_points, methods._loaded)
    for one in caches:
        one.cache_clear()
    yield put
    for one in caches:
        one.cache_clear()


def test_a_method_of_another_package_is_known_by_name_and_by_settings(install: Install) -> None:
    install("tallies", "tally")
    found = method_named("tally")
    assert found.package == "tallies 0.3"
    assert method_for(tally.Tally()) is found
    assert known_methods() == ((*METHODS, found), ())
    assert tally.simulate().method is found


def test_reports_and_consent_say_whose_it_is(install: Install) -> None:
    install("tallies", "tally")
    run = tally.simulate()
    assert any("the package tallies 0.3 brings it" in mark for mark in run.marks)
    assert run.ledgers["bank"].entries[0].content["version"] == f"{cn.__version__} with tallies 0.3"


@pytest.mark.parametrize(
    ("method", "code", "words"),
    [
        ("broken", "import nowhere_at_all", "'broken' of others 0.3 cannot be loaded: ModuleNotFoundError"),
        ("broken", "1 / 0", "'broken' of others 0.3 cannot be loaded: ZeroDivisionError"),
        ("broken", "METHOD = 3", "others 0.3 offers as 'broken' what is no Method of that name"),
        ("another", "from tests.tally import METHOD", "others 0.3 offers as 'another' what is no Method of that name"),
        ("splitnn", "from tests.tally import METHOD", "others 0.3 offers a method 'splitnn', which is the name of one"),
    ],
)
def test_a_package_that_cannot_be_used_is_named_and_stops_nothing_else(
    install: Install, method: str, code: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    install("others", method, code)
    install("tallies", "tally")
    found, faults = known_methods()
    assert [one.name for one in found] == [*(one.name for one in METHODS), "tally"]
    assert len(faults) == 1
    assert words in faults[0]
    assert method_named("splitnn") is METHODS[0]
    if method != "splitnn":
        with pytest.raises(ConfigError) as error:
            method_named(method)
        assert words in str(error.value)
    with pytest.raises(SystemExit) as ending:
        main(["methods"])
    said = capsys.readouterr()
    assert ending.value.code == 0
    assert words in said.err
    assert "(from tallies 0.3)" in said.out


def test_two_packages_with_one_name_are_both_named(install: Install) -> None:
    install("tallies", "tally")
    install("more-tallies", "tally")
    with pytest.raises(ConfigError, match=r"tallies 0.3 and .*tallies 0.3 each offer a method 'tally'. Uninstall"):
        method_named("tally")
    assert known_methods()[0] == METHODS


def test_a_method_that_a_partner_has_and_this_party_lacks_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="needs its package at every party: ask your partners"):
        method_named("assisted")
