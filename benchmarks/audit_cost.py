"""What thousands of fits of a tiny model cost, as an audit runs them.

    python benchmarks/audit_cost.py            2 x 20,000 fits on 2 processes
    python benchmarks/audit_cost.py --quick    a tenth of that: no verdict

The bar is for the first line: 2 x 20,000 fits in a minute on two cores. An audit plans a fit and
validates its data once, and runs the rest of it again and again in batches. The other lines are for
comparison: the same in one process, more iterations, and `fit` as users call it, of which fewer are
run and whose time is scaled.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.audit import audit

BAR = 60.0
N_RUNS = 20_000
TINY: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-3, "max_iter": 3, "fit_intercept": False}


@dataclass(frozen=True)
class Line:
    """Seconds for two times as many fits as the bar is about."""

    name: str
    n_fits: int
    seconds: float
    bar: float | None = None

    @property
    def scaled(self) -> float:
        return self.seconds * 2 * N_RUNS / self.n_fits

    def __str__(self) -> str:
        verdict = "" if self.bar is None else ("pass" if self.scaled <= self.bar else "MISS")
        bar = "" if self.bar is None else f"{self.bar:g}"
        each = 1e3 * self.seconds / self.n_fits
        return f"{self.name:44} {self.n_fits:7} {each:9.3f} {self.scaled:9.1f} {bar:>5}  {verdict}"


def audited(name: str, model: Any, n_runs: int, n_jobs: int, bar: float | None = None) -> Line:
    start = time.perf_counter()
    report = audit(model, method="black-box", n_runs=n_runs, n_jobs=n_jobs)
    seconds = time.perf_counter() - start
    assert not report.is_violation
    return Line(name, 2 * n_runs, seconds, bar)


def fitted(name: str, model: Any, n_fits: int) -> Line:
    X, y = np.ones((4, 1)), np.array([3.0, -3.0, 3.0, -3.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        for _ in range(n_fits):
            clone(model).fit(X, y)
        return Line(name, n_fits, time.perf_counter() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the fits: no verdict")
    is_quick = parser.parse_args().quick
    # Few fits are mostly the start of processes, which is scaled with them.
    n_runs, limit = (N_RUNS // 10, None) if is_quick else (N_RUNS, BAR)
    ridge = DPAdmmRidge(**TINY)
    print(f"{'':44} {'fits':>7} {'ms / fit':>9} {'s / 40,000':>9} {'bar':>5}")
    lines = []
    for make in (
        lambda: audited("ridge, 3 iterations, 2 processes", ridge, n_runs, 2, limit),
        lambda: audited("ridge, 3 iterations, 1 process", ridge, n_runs // 4, 1),
        lambda: audited(
            "logistic regression, 3 iterations, 2 processes",
            DPAdmmLogisticRegression(conditioning=None, **TINY),
            n_runs // 4,
            2,
        ),
        lambda: audited(
            "ridge, 100 iterations, 2 processes",
            clone(ridge).set_params(max_iter=100),
            n_runs // 10,
            2,
        ),
        lambda: fitted("fit of ridge, 3 iterations, 1 process", ridge, n_runs // 20),
    ):
        lines.append(make())
        print(lines[-1], flush=True)
    if is_quick:
        print("2 x 20,000 fits in a minute: no verdict")
    return int(any(line.bar is not None and line.scaled > line.bar for line in lines))


if __name__ == "__main__":
    sys.exit(main())
