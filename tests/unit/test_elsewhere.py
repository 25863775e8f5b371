"""Outside the checkout, and on systems that lack what Linux has."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from colonnade.errors import RunFolderError
from colonnade.launch.lock import alone_in
from colonnade.ledger import locks

ROOT = Path(__file__).resolve().parents[2]

# Every module is imported where neither locks, nor limits, nor cores can be asked for, and a simulation needs none.
_WITHOUT = """
import os, pkgutil, sys
sys.modules["fcntl"] = sys.modules["resource"] = None
del os.sched_getaffinity
import colonnade
for found in pkgutil.walk_packages(colonnade.__path__, "colonnade."):
    if found.name not in ("colonnade.__main__", "colonnade.engine.ray_engine"):
        __import__(found.name)
import numpy, pandas
ids, values = range(60), numpy.random.default_rng(1).normal(size=(60, 2))
bank = colonnade.PartyTable(
    pandas.DataFrame({"id": ids, "a": values[:, 0], "y": values.sum(1) > 0}), id="id", label="y", name="bank"
)
shop = colonnade.PartyTable(pandas.DataFrame({"id": ids, "b": values[:, 1]}), id="id", name="shop")
run = colonnade.simulate(colonnade.SplitNN(epochs=1, hidden=(4,)), {"bank": bank, "shop": shop})
print(len(run.metrics) > 0)
"""


def test_no_module_needs_at_import_what_only_some_systems_have() -> None:
    for path in (ROOT / "src" / "colonnade").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            assert not {"fcntl", "grp", "pwd", "resource", "termios"} & {*names}, path


@pytest.mark.slow
def test_where_locks_limits_and_cores_are_unknown_all_is_imported_and_a_simulation_runs(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_where_there_are_no_locks_a_run_folder_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    with pytest.raises(RunFolderError, match=r"WSL 2"), alone_in(tmp_path / "run"):
        pass


@pytest.mark.slow
def test_the_wheel_installs_and_runs_outside_the_checkout(tmp_path: Path) -> None:
    def do(*words: str | Path) -> str:
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(list(map(str, words)), cwd=tmp_path, env=clean, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    # Of a copy, as building leaves files beside the sources.
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    written = {str(path.relative_to(source / "src")) for path in (source / "src").rglob("*.*") if path.is_file()}
    build = ("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", tmp_path, source)
    do(sys.executable, "-m", "pip", *build)
    (wheel,) = tmp_path.glob("*.whl")
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("colonnade/")}
    assert shipped == written
    assert {"colonnade/py.typed", "colonnade/reports/report.css"} <= shipped
    shutil.rmtree(source)

    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    (site,) = (tmp_path / "venv").glob("lib/*/site-packages")
    # What it depends on is taken from here; the editable colonnade beside it is not, as a .pth file's .pth is not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    do(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    where = do(python, "-c", "import colonnade; print(colonnade.__file__)")
    assert Path(where.strip()).is_relative_to(site)
    command = tmp_path / "venv" / "bin" / "colonnade"
    assert "splitnn" in do(command, "methods")
    assert "report.html" in do(command, "demo")
    assert (tmp_path / "colonnade-demo" / "runs" / "breast-cancer" / "report.html").stat().st_size > 10_000
