"""A stream of records, each used once as it arrives: how fast, in how much memory, how accurate.

    python benchmarks/streaming.py             1,000,000 records of 50 features
    python benchmarks/streaming.py --accuracy  streams beside fits of stored records
    python benchmarks/streaming.py --quick     20,000 records, and one small table: no verdict

Records come from a generator in chunks, none of which is kept, and go to `partial_fit`. Beside the
compiled loop stand the loop of numpy, on fewer records; scikit-learn's SGDRegressor, which adds no
noise; and one product ``X @ w``. All see the same chunks in turn, in one process with one thread
for linear algebra. Each rate is that of the time inside its calls; the generator is not counted.
Dual averaging goes first, with a process whose peak of memory no other loop has raised. The time of
a fit of 40,000 records by it is for one, two and three classes.
The first chunk warms up, and compiles. Where other work holds the cores, so that the process does
not get all of one, the verdict on the clock is "busy"; time of the processor stands beside it.

Accuracy is that of test rows, R2 in regression, in means over seeds that split, draw and order: of
drawn records, and of tables with all defaults but epsilon and the public ranges. A fifth
of the rows of a table is for the test.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import _data
import numpy as np
import threadpoolctl
from numpy.typing import NDArray
from sklearn.linear_model import SGDRegressor

from skdpadmm import DPAdmmHuberRegressor, DPAdmmLasso, DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import GradientADMM

N_RECORDS, N_FEATURES, CHUNK = 1_000_000, 50, 50_000
RATE_BAR, DIFFERENCE_BAR, MEMORY_BAR = 200_000, 1e-12, 50.0
N_SEEDS = 5
# What goes to the loop of numpy, which is slow.
N_INTERPRETED = 20_000
# Seconds of a fit of so many records by dual averaging, for one, two and three classes.
N_FITTED, SECONDS_BAR = 40_000, 2.0
# Tables with estimators, and the largest loss beside stored records.
CASES = {
    "adult": (DPAdmmLogisticRegression, 0.01),
    "credit": (DPAdmmLogisticRegression, 0.01),
    "diamonds": (DPAdmmRidge, 0.02),
    "crime": (DPAdmmRidge, 0.02),
    "diamonds, Huber": (DPAdmmHuberRegressor, 0.02),
    "crime, Huber": (DPAdmmHuberRegressor, 0.02),
}
ALGORITHMS = {
    "stored": "consensus-admm",
    "dual averaging": "dual-averaging",
    "gradient ADMM": GradientADMM(schedule="stream"),
}
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


def show_dual_averaging(n_records: int, chunk: int, *, has_bars: bool) -> None:
    """Records a second and memory of a stream by dual averaging, and seconds of whole fits."""
    model = learner(compiled=False).set_params(algorithm="dual-averaging")
    spent, memory = np.zeros(2), 0.0
    for k, (X, y) in enumerate(arriving(n_records, chunk)):
        spent += seconds(partial(model.partial_fit, X, y))
        memory = peak_memory() if k == 2 else memory
    clock, processor = n_records / spent
    line("dual averaging, records per second", f"{clock:,.0f}", f"{processor:,.0f}")
    line("dual averaging, peak memory, growth", f"{peak_memory() - memory:.1f} MB")
    for n_classes in (1, 2, 3):
        (X, y), *_ = arriving(min(N_FITTED, n_records), N_FITTED)
        fitted: Any = model
        if n_classes > 1:
            y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
            fitted = DPAdmmLogisticRegression(
                feature_bounds=(-1, 1), classes=list(range(n_classes)), algorithm="dual-averaging"
            )
        clock, processor = np.median([seconds(partial(fitted.fit, X, y)) for _ in range(3)], axis=0)
        verdict = ("pass" if processor <= SECONDS_BAR else "MISS") if has_bars else "no verdict"
        what = f"seconds of a fit, {n_classes} scores" if n_classes > 2 else "seconds of a fit"
        line(what, f"{clock:.2f}", f"{processor:.2f}", f"<= {SECONDS_BAR:g}", verdict)


def scores(fit: Callable[[str, int], float], n_seeds: int) -> dict[str, float]:
    return {
        name: float(np.mean([fit(name, seed) for seed in range(n_seeds)])) for name in ALGORITHMS
    }


def of_drawn(n: int, p: int, epsilon: float) -> Callable[[str, int], float]:
    """Accuracies of two classes with an accuracy of about .8 at the true model."""

    def fit(name: str, seed: int) -> float:
        rng = np.random.default_rng(seed)
        w = rng.standard_normal(p)
        w *= 2.4 * np.sqrt(3) / np.linalg.norm(w)
        X = rng.uniform(-1, 1, (n + 20_000, p))
        y = (rng.logistic(size=len(X)) < X @ w).astype(int)
        if name == "true":
            return float(np.mean((X[n:] @ w > 0) == y[n:]))
        model = DPAdmmLogisticRegression(
            epsilon=epsilon, feature_bounds=(-1, 1), classes=[0, 1], random_state=seed
        )
        model.set_params(algorithm=ALGORITHMS[name])
        return float(model.fit(X[:n], y[:n]).score(X[n:], y[n:]))

    return fit


def of_table(name: str, make: Any, epsilon: float) -> Callable[[str, int], float]:
    data = _data.load(name.split(",")[0])
    public = {"feature_bounds": (data.lower, data.upper), "epsilon": epsilon}
    public |= {"target_bounds": data.target_bounds} if data.target_bounds else {"classes": [0, 1]}

    def fit(algorithm: str, seed: int) -> float:
        order = np.random.default_rng(seed).permutation(len(data.y))
        train, test = np.split(order, [int(0.8 * len(order))])
        model = make(**public, random_state=seed, algorithm=ALGORITHMS[algorithm])
        return float(model.fit(data.X[train], data.y[train]).score(data.X[test], data.y[test]))

    return fit


def show_accuracy(n_seeds: int, *, quick: bool) -> None:
    names = list(ALGORITHMS)
    print(f"\n{'accuracy or R2':24}{'epsilon':>8}" + "".join(f"{name:>16}" for name in names))
    cases: Any = {"breast_cancer": (DPAdmmLogisticRegression, 1.0)} if quick else CASES
    for n, p in () if quick else ((5_000, 10), (20_000, 20)):
        for epsilon in (0.5, 1.0, 3.0):
            found = scores(of_drawn(n, p, epsilon), n_seeds)
            true = np.mean([of_drawn(n, p, epsilon)("true", seed) for seed in range(n_seeds)])
            row = "".join(f"{found[name]:16.3f}" for name in names)
            print(f"{f'drawn, {n:,} x {p}':24}{epsilon:8g}{row}   true {true:.3f}", flush=True)
    for name, (make, bar) in cases.items():
        for epsilon in (1.0,) if quick else (0.3, 1.0, 3.0):
            found = scores(of_table(name, make, epsilon), n_seeds)
            verdict = "pass" if found["stored"] - found["dual averaging"] <= bar else "MISS"
            row = "".join(f"{found[each]:16.4f}" for each in names)
            end = "no verdict" if quick else f"<= {bar:g} {verdict}"
            print(f"{name:24}{epsilon:8g}{row}   {end}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few records: no verdict")
    parser.add_argument("--accuracy", action="store_true", help="scores, and no times")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    n_records, chunk = (20_000, 5_000) if options.quick else (N_RECORDS, CHUNK)
    n_interpreted = 2_000 if options.quick else N_INTERPRETED
    load = os.getloadavg()[0]
    print(
        f"{n_records:,} records x {N_FEATURES} in chunks of {chunk:,}, {os.cpu_count()} cores, load"
        f" {load:.1f} before the start"
    )
    with threadpoolctl.threadpool_limits(1):
        if options.accuracy or options.quick:
            show_accuracy(1 if options.quick else N_SEEDS, quick=options.quick)
        if options.accuracy:
            return
        show_dual_averaging(n_records, chunk, has_bars=not options.quick)
        show(n_records, chunk, n_interpreted, has_bars=not options.quick)


if __name__ == "__main__":
    main()
