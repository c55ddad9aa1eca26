"""A stream of records, each used once as it arrives: how fast, and in how much memory.

    python benchmarks/streaming.py            1,000,000 records of 50 features
    python benchmarks/streaming.py --quick    20,000 records: no verdict

Records come from a generator in chunks, none of which is kept, and go to `partial_fit`. Beside the
compiled loop stand the loop of numpy, on fewer records; scikit-learn's SGDRegressor, which adds no
noise; and one product ``X @ w``. All see the same chunks in turn, in one process with one thread
for linear algebra. Each rate is that of the time inside its calls; the generator is not counted.
The first chunk warms up, and compiles. Where other work holds the cores, so that the process does
not get all of one, the verdict on the clock is "busy"; time of the processor stands beside it.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import threadpoolctl
from numpy.typing import NDArray
from sklearn.linear_model import SGDRegressor

from skdpadmm import DPAdmmLasso
from skdpadmm.algorithms import GradientADMM

N_RECORDS, N_FEATURES, CHUNK = 1_000_000, 50, 50_000
RATE_BAR, DIFFERENCE_BAR, MEMORY_BAR = 200_000, 1e-12, 50.0
# What goes to the loop of numpy, which is slow.
N_INTERPRETED = 20_000
TITLES = {
    "compiled": "partial_fit, compiled",
    "numpy": "partial_fit, loop of numpy",
    "peer": "SGDRegressor.partial_fit, not private",
    "product": "one product X @ w",
}

Array = NDArray[np.float64]


def arriving(n_records: int, chunk: int) -> Iterator[tuple[Array, Array]]:
    """Records in [-1, 1], and a target in [-1, 1] that depends on a tenth of the features."""
    rng = np.random.default_rng(0)
    w = np.zeros(N_FEATURES)
    w[: N_FEATURES // 10] = 0.3
    for first in range(0, n_records, chunk):
        X = rng.uniform(-1, 1, (min(chunk, n_records - first), N_FEATURES))
        yield X, np.clip(X @ w + 0.1 * rng.standard_normal(len(X)), -1, 1)


def learner(*, compiled: bool, seed: int | None = None) -> Any:
    return DPAdmmLasso(
        alpha=1e-3,
        epsilon=1.0,
        delta=1e-8,
        feature_bounds=(-1, 1),
        target_bounds=(-1, 1),
        algorithm=GradientADMM(schedule="stream", horizon=N_RECORDS, compiled=compiled),
        random_state=seed,
    )


def seconds(work: Callable[[], object]) -> Array:
    """By the clock, and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return np.array([time.perf_counter() - clock, time.process_time() - processor])


def peak_memory() -> float:
    """Most that the process has held so far, in MB."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def largest_difference(n_records: int) -> float:
    """Between the two loops, over coefficients, after the same records and noise."""
    models = [learner(compiled=compiled, seed=0) for compiled in (True, False)]
    for X, y in arriving(n_records, n_records // 2):
        for model in models:
            model.partial_fit(X, y)
    first, second = ((model.coef_, model.intercept_) for model in models)
    return float(max(np.abs(a - b).max() for a, b in zip(first, second, strict=True)))


def line(what: str, found: str, processor: str = "", bar: str = "", verdict: str = "") -> None:
    print(f"{what:42}{found:>14}{processor:>14}  {bar:14}{verdict}", flush=True)


def measure(n_records: int, chunk: int, n_interpreted: int) -> tuple[dict[str, Array], float]:
    """Seconds by the clock and of the processor, and by how much the peak of memory has grown."""
    compiled, interpreted = learner(compiled=True), learner(compiled=False)
    peer = SGDRegressor(penalty="l1", alpha=1e-3)
    w = np.random.default_rng(1).standard_normal(N_FEATURES)
    spent = {name: np.zeros(2) for name in ("compiled", "numpy", "peer", "product")}
    memory = 0.0
    for k, (X, y) in enumerate(arriving(n_records + chunk, chunk)):
        works: dict[str, Callable[[], object]] = {
            "compiled": partial(compiled.partial_fit, X, y),
            "peer": partial(peer.partial_fit, X, y),
            "product": partial(np.matmul, X, w),
        }
        for name, work in works.items():
            spent[name] += seconds(work) if k > 0 else 0.0 * seconds(work)
        if k == 0:
            few = slice(0, n_interpreted)
            spent["numpy"] += seconds(partial(interpreted.partial_fit, X[few], y[few]))
        if k == 2:
            # All that one chunk takes has been taken by now.
            memory = peak_memory()
    return spent, peak_memory() - memory


def show(n_records: int, chunk: int, n_interpreted: int, *, has_bars: bool) -> None:
    def verdict(passes: bool) -> str:
        return ("pass" if passes else "MISS") if has_bars else "no verdict"

    spent, grown = measure(n_records, chunk, n_interpreted)
    line("records per second", "clock", "processor", "bar")
    for name, title in TITLES.items():
        clock, processor = (n_interpreted if name == "numpy" else n_records) / spent[name]
        end = []
        if name == "compiled":
            is_busy = clock < RATE_BAR <= processor and clock < 0.9 * processor
            end = [f">= {RATE_BAR:,}", "busy" if is_busy else verdict(clock >= RATE_BAR)]
        line(title, f"{clock:,.0f}", f"{processor:,.0f}", *end)
    difference = largest_difference(n_interpreted)
    bar = f"<= {DIFFERENCE_BAR:g}"
    line("\ncompiled - numpy", f"{difference:.2g}", "", bar, verdict(difference <= DIFFERENCE_BAR))
    bar = f"<= {MEMORY_BAR:g} MB"
    line("peak memory, growth", f"{grown:.1f} MB", "", bar, verdict(grown <= MEMORY_BAR))
    line("    where the records would take", f"{8 * n_records * N_FEATURES / 2**20:,.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few records: no verdict")
    options = parser.parse_args()
    n_records, chunk = (20_000, 5_000) if options.quick else (N_RECORDS, CHUNK)
    n_interpreted = 2_000 if options.quick else N_INTERPRETED
    load = os.getloadavg()[0]
    print(
        f"{n_records:,} records x {N_FEATURES} in chunks of {chunk:,}, {os.cpu_count()} cores, load"
        f" {load:.1f} before the start"
    )
    with threadpoolctl.threadpool_limits(1):
        show(n_records, chunk, n_interpreted, has_bars=not options.quick)


if __name__ == "__main__":
    main()
