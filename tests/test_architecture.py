"""What the import contracts of pyproject.toml cannot say."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import skdpadmm

PACKAGE = Path(skdpadmm.__file__).parent
OPTIONAL = ["dask", "distributed", "dp_accounting", "matplotlib", "numba", "opendp", "pandas"]


def imported_names(source: str) -> list[str]:
    """Dotted names that a module imports: ``from a import b`` is ``a.b``."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def private_sklearn_imports(source: str) -> list[str]:
    return [
        name
        for name in imported_names(source)
        if name.split(".")[0] == "sklearn"
        and any(part.startswith("_") and part != "__version__" for part in name.split("."))
    ]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from sklearn.base import BaseEstimator, _fit_context", ["sklearn.base._fit_context"]),
        ("def f():\n    import sklearn._loss.loss", ["sklearn._loss.loss"]),
        (
            "from sklearn.utils._param_validation import Interval",
            ["sklearn.utils._param_validation.Interval"],
        ),
        ("from sklearn import __version__\nfrom .._sklearn import _fit_context", []),
    ],
)
def test_the_search_for_private_imports_finds_them(source, found):
    assert private_sklearn_imports(source) == found


def test_only_one_file_imports_private_helpers_of_scikit_learn():
    found = {
        str(path.relative_to(PACKAGE)): names
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != PACKAGE / "_sklearn.py"
        and (names := private_sklearn_imports(path.read_text(encoding="utf-8")))
    }
    assert not found, f"Import these through skdpadmm._sklearn instead: {found}"


IMPORT_EVERYTHING = """
import importlib, pkgutil, sys

class Refuse:
    asked = []
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            self.asked.append(name)
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refuse())
import sklearn.linear_model  # looks for pandas by itself
Refuse.asked.clear()
import skdpadmm
for _, name, _ in pkgutil.walk_packages(skdpadmm.__path__, "skdpadmm."):
    importlib.import_module(name)
print(*sorted(set(Refuse.asked)))
"""


def test_every_module_imports_without_optional_dependencies_and_asks_for_none():
    run = subprocess.run(
        [sys.executable, "-c", IMPORT_EVERYTHING, ",".join(OPTIONAL)],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "", "Import optional dependencies in the function that needs them."


def test_the_package_is_typed():
    assert (PACKAGE / "py.typed").is_file()


def rooms_with_names() -> list[str]:
    """Packages that export names."""
    found = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    return sorted(
        name for name in found if hasattr(importlib.import_module(f"skdpadmm.{name}"), "__all__")
    )


@pytest.mark.parametrize("room", rooms_with_names())
def test_every_class_that_a_room_exports_is_in_the_reference(room):
    reference = (PACKAGE.parent / "docs" / "api.rst").read_text(encoding="utf-8")
    parts = re.split(r"^skdpadmm\.(\w+)\n-+$", reference, flags=re.MULTILINE)
    listed = dict(zip(parts[1::2], parts[2::2], strict=True))
    module = importlib.import_module(f"skdpadmm.{room}")
    classes = {name for name in module.__all__ if inspect.isclass(getattr(module, name))}
    assert classes <= set(re.findall(r"^   (\w+)$", listed.get(room, ""), flags=re.MULTILINE))
