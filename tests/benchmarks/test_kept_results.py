"""A kept result is taken again only while the code and the settings are those that it follows from."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.papers import jobs
from benchmarks.papers.jobs import files_of, keep_and_run, what_is_kept

JOBS = [("FedCVT", "digits", 40), ("local", "digits", 40)]


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a file that stands for all code that results follow from."""
    path = tmp_path / "settings.py"
    path.write_text("EPOCHS = 3\n")
    monkeypatch.setattr(jobs, "files_of", lambda method: [path])
    return path


@pytest.fixture
def done(tmp_path: Path) -> Callable[[], list[str]]:
    """Return what says which jobs were really done in a run that keeps its results."""

    def run() -> list[str]:
        names: list[str] = []

        def judge(job: Any) -> dict[str, Any]:
            names.append(job[0])
            return {"accuracy": 0.5}

        found = keep_and_run(JOBS, judge, Namespace(keep=tmp_path / "kept", workers=1, quick=False), "fedcvt")
        assert [one["accuracy"] for one in found.values()] == [0.5, 0.5]
        return names

    return run


def test_what_is_kept_is_not_done_again(code: Path, done: Callable[[], list[str]]) -> None:
    assert (done(), done()) == (["FedCVT", "local"], [])


def test_a_stale_result_is_named_and_done_again(
    code: Path, done: Callable[[], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done()
    code.write_text("EPOCHS = 4\n")
    with pytest.raises(SystemExit, match=r"2 results in .* other code or settings: FedCVT\|digits\|40, local.* --kept"):
        what_is_kept(JOBS, Namespace(keep=tmp_path / "kept"), "fedcvt")
    assert done() == ["FedCVT", "local"]
    assert "FedCVT|digits|40, local|digits|40" in capsys.readouterr().err
    assert what_is_kept(JOBS, Namespace(keep=tmp_path / "kept"), "fedcvt") == JOBS


def test_a_result_without_a_digest_is_stale(code: Path, done: Callable[[], list[str]], tmp_path: Path) -> None:
    done()
    next((tmp_path / "kept" / "fedcvt").iterdir()).write_text('{"accuracy": 0.9}')
    assert len(done()) == 1


def test_results_follow_from_the_product_and_the_benchmark_but_not_from_what_only_shows_them() -> None:
    names = {f"{path.parent.name}/{path.name}" for path in files_of("fedcvt")}
    assert {"fedcvt/train.py", "crypto/paillier.py", "session/channel.py", "colonnade/settings.py"} <= names
    assert {"papers/fedcvt.py", "papers/fedcvt_world.py", "papers/playing.py", "methods/__init__.py"} <= names
    assert not names & {"papers/fedcvt_page.py", "papers/prada_world.py", "prada/config.py", "cli/run.py"}
