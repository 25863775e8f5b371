"""Facts about the package as a whole."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import colonnade

SOURCE = Path(colonnade.__file__).parent
MODULES = ["colonnade", *[found.name for found in pkgutil.walk_packages([str(SOURCE)], "colonnade.")]]


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_sorted_and_exist(name: str) -> None:
    module = importlib.import_module(name)
    if name.startswith("colonnade.cli.") and not hasattr(module, "__all__"):
        assert hasattr(module, "app")
        return
    assert hasattr(module, "__all__"), "every module says what it offers"
    constants = [one for one in module.__all__ if one.isupper()]
    classes = [one for one in module.__all__ if not one.isupper() and one[0].isupper()]
    others = [one for one in module.__all__ if one not in constants and one not in classes]
    assert list(module.__all__) == [*sorted(constants), *sorted(classes), *sorted(others)]
    for one in module.__all__:
        assert getattr(module, one) is not None


def test_every_public_definition_of_a_module_is_listed() -> None:
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        listed = next(
            (
                {element.value for element in node.value.elts}
                for node in tree.body
                if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
            ),
            None,
        )
        if listed is None or path.name == "__init__.py":
            continue
        defined = {
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        }
        used_elsewhere = {name for name in defined - listed if _is_imported(name, path)}
        assert not used_elsewhere, f"{path.name} offers {used_elsewhere} without listing it"


def _is_imported(name: str, home: Path) -> bool:
    pattern = re.compile(rf"from colonnade\.[\w.]*{home.stem} import [^\n]*\b{name}\b")
    return any(pattern.search(path.read_text()) for path in SOURCE.rglob("*.py"))


def test_no_pickle_family_no_unsafe_load_and_no_assert_in_the_product() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"^\s*(import|from)\s+(pickle|cloudpickle|dill|joblib|marshal|shelve)\b", text, re.M), path
        assert "torch.load" not in text, path
        assert "allow_pickle" not in text, path
        assert not any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(text))), path


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import colonnade, sys; print([m for m in ('torch', 'pandas', 'numpy', 'sklearn') if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Splitnn'"):
        _ = colonnade.Splitnn  # type: ignore[attr-defined]
