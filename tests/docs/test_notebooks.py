"""Notebooks run as they stand, cell by cell, and are kept without what they showed."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def show(value: Any) -> str:
    """Show the last line of a cell as a notebook does."""
    return value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda one: one.stem)
def test_notebook_runs_and_is_kept_without_outputs(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [one for one in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if one["cell_type"] == "code"]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in cells:
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, cell["id"], "exec"), names)
        if isinstance(last, ast.Expr):
            shown.append(show(eval(compile(ast.Expression(last.value), cell["id"], "eval"), names)))
    assert any("1,100 shared rows" in one and "Read this first" in one for one in shown)
    assert any("probability_ja" in one for one in shown)
