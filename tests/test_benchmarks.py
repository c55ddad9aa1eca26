"""The benchmarks run: at a small size, for what they print says nothing there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.slow
def test_the_cost_of_an_iteration_is_measured_and_printed():
    pytest.importorskip("matplotlib")
    command = [sys.executable, str(BENCHMARKS / "iteration_cost.py")]
    size = ["--n-samples", "20000", "--n-features", "20", "--repeats", "3"]
    done = subprocess.run([*command, *size], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for row in ("squared, exact", "logistic, linearized", "DPAdmmLogisticRegression"):
        assert row in done.stdout
