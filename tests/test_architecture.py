"""What the import contract of setup.cfg cannot say."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import skdpadmm

PACKAGE = Path(skdpadmm.__file__).parent
OPTIONAL = ["dask", "distributed", "dp_accounting", "matplotlib", "numba", "opendp", "pandas"]


def private_sklearn_imports(path: Path) -> list[str]:
    """Private names of scikit-learn that a module imports: ``from a import b`` is ``a.b``."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return [
        name
        for name in names
        if re.match(r"sklearn\.(.*\.)?_", name) and not name.endswith("__version__")
    ]


def test_only_one_file_imports_private_helpers_of_scikit_learn():
    found = [path for path in sorted(PACKAGE.rglob("*.py")) if private_sklearn_imports(path)]
    assert found == [PACKAGE / "_sklearn.py"], "Import these through skdpadmm._sklearn instead."
    assert (PACKAGE / "py.typed").is_file()


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


@pytest.mark.slow
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


def test_no_package_imports_a_private_module_of_another():
    seen = []
    for path in PACKAGE.rglob("*.py"):
        own = path.relative_to(PACKAGE).parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [f"{node.module}.{alias.name}".split(".") for alias in node.names]
                for root, package, *rest in (name for name in names if len(name) > 2):
                    is_private = (
                        root == "skdpadmm" and rest[0].startswith("_") and package[0] != "_"
                    )
                    seen += [(path.name, package)] if is_private and package != own else []
    assert not seen, "Export the name from its package."


def test_no_name_at_the_top_of_modules_has_two_meanings():
    places = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                places[node.name].append(path.name)
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_every_class_that_a_package_exports_is_in_the_reference():
    pages = sorted((PACKAGE.parent / "docs").glob("api_*.rst"))
    reference = "".join(page.read_text(encoding="utf-8") for page in pages)
    parts = re.split(r"^skdpadmm\.(\w+)\n-+$", reference, flags=re.MULTILINE)
    listed = dict(zip(parts[1::2], parts[2::2], strict=True))
    packages = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    for name in packages + [path.stem for path in PACKAGE.glob("[!_]*.py")]:
        module = importlib.import_module(f"skdpadmm.{name}")
        exported = getattr(module, "__all__", ())
        classes = {each for each in exported if inspect.isclass(getattr(module, each))}
        assert classes <= set(re.findall(r"^   (\w+)$", listed.get(name, ""), flags=re.MULTILINE))
