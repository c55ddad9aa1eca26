"""What privacy costs in time and memory, in units that do not depend on the machine.

    python benchmarks/iteration_cost.py                      1,000,000 x 100, some minutes
    python benchmarks/iteration_cost.py --n-samples 100000   a quick look

Time is counted in products ``X @ w`` with as many BLAS threads as the fit has workers, memory in
vectors of length n. Iterations and products alternate inside one run, so that other work on the
machine slows both. Where ``X @ w`` itself gains little from its threads, because other work holds
the cores or because the data is small, the verdict is "busy". The bars are meant for the default
size. Nothing printed here depends on the values in the data.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import threadpoolctl
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from sklearn.linear_model import Lasso, LogisticRegression, Ridge

from skdpadmm import DPAdmmLasso, DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import ConsensusADMM
from skdpadmm.engine import Engine
from skdpadmm.noise import noise_source
from skdpadmm.protocol import Gate, Problem
from skdpadmm.records import Rows

OUTPUT = Path(__file__).parent / "output" / "iteration_cost.png"
ITERATION_BAR, FIT_BAR, MEMORY_BAR = 2.5, 250.0, 10.0
N_JOBS = (1, 2)
PUBLIC: dict[str, Any] = {"feature_bounds": (0, 1), "delta": 1e-8}

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Figure:
    """One measured figure beside the bar that it should stay below."""

    name: str
    n_jobs: int
    value: float
    bar: float
    detail: str
    is_quiet: bool = True

    def __str__(self) -> str:
        verdict = ("pass" if self.value <= self.bar else "MISS") if self.is_quiet else "busy"
        figure = f"{self.value:9.2f} {self.bar:7.4g}  {verdict}"
        return f"{self.name:34} {self.n_jobs:6} {figure}  {self.detail}"


def make_data(n_samples: int, n_features: int) -> tuple[Array, Array]:
    """Features in [0, 1], and a target in [-1, 1] that depends on a tenth of them."""
    rng = np.random.default_rng(0)
    X = rng.random((n_samples, n_features))
    w = np.zeros(n_features)
    w[: max(1, n_features // 10)] = 1.0
    score = (X - 0.5) @ w + 0.5 * rng.standard_normal(n_samples)
    return X, np.clip(score / 4, -1, 1)


def squared(**parameters: Any) -> Any:
    return DPAdmmRidge(**PUBLIC, target_bounds=(-1, 1), **parameters)


def logistic(**parameters: Any) -> Any:
    return DPAdmmLogisticRegression(**PUBLIC, classes=[-1, 1], **parameters)


def iteration_cost(
    model: Any, X: Array, y: Array, w: Array, *, n_jobs: int, repeats: int
) -> tuple[float, float]:
    """Seconds of one private iteration and of one ``X @ w``: medians of an interleaved run.

    The run is the one of `fit`, but that its progress callback times a product after every second
    iteration. Only iterations that follow an iteration are timed: idle BLAS threads spin on for a
    while after a product, on the core that the next iteration needs.
    """
    model.set_params(max_iter=2 * repeats + 2)
    classes = {"n_classes": 2} if hasattr(model, "classes") else {}
    shape = {"n_samples": X.shape[0], "n_features": X.shape[1], "feature_names": None}
    planned = model._plan_fit(**shape, **classes)
    target = np.where(y > 0, 1.0, -1.0) if classes else planned.coordinates.target(y)
    noise = noise_source(None, planned.plan.digest())
    iterations: list[float] = []
    products: list[float] = []
    started = 0.0

    def interleave(done: int) -> None:
        nonlocal started
        if done % 2 == 0:
            iterations.append(time.perf_counter() - started)
            with threadpoolctl.threadpool_limits(n_jobs, user_api="blas"):
                products.append(seconds(lambda: X @ w))
        started = time.perf_counter()

    with Engine(n_jobs).running() as engine:
        rows = Rows(X, planned.coordinates)
        problem = Problem(rows=rows, target=target, engine=engine, report=interleave)
        planned.algorithm.run(planned.plan, problem, Gate(planned.plan, noise))
    # The first pair warms up.
    return statistics.median(iterations[1:]), statistics.median(products[1:])


def fit_cost(
    private: Any, public: Any, X: Array, y: Array, w: Array, *, n_jobs: int
) -> tuple[float, float, float]:
    """Seconds of a private fit, of a non-private one, and of one ``X @ w`` around the two."""
    with threadpoolctl.threadpool_limits(n_jobs, user_api="blas"):
        products = [seconds(lambda: X @ w) for _ in range(3)]
        private_seconds = seconds(lambda: private.fit(X, y))
        products += [seconds(lambda: X @ w) for _ in range(3)]
        public_seconds = seconds(lambda: public.fit(X, y))
        products += [seconds(lambda: X @ w) for _ in range(3)]
    return private_seconds, public_seconds, statistics.median(products)


def peak_memory(make_model: Callable[..., Any], n_samples: int, n_features: int) -> float:
    """Peak of what a whole `fit` allocates beyond X and y, in vectors of length n."""
    X, y = make_data(n_samples, n_features)
    model = make_model(max_iter=3)
    target = np.where(y > 0, 1, -1) if hasattr(model, "classes") else y
    tracemalloc.start()
    model.fit(X, target)
    return tracemalloc.get_traced_memory()[1] / (8 * n_samples)


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure_iterations(X: Array, y: Array, repeats: int) -> list[Figure]:
    heading("One private iteration, in products X @ w", "ratio", "median iteration | X @ w")
    w = np.random.default_rng(1).standard_normal(X.shape[1:])
    figures = []
    for make_model in (squared, logistic):
        for step in ("exact", "linearized"):
            products: dict[int, float] = {}
            for n_jobs in N_JOBS:
                model = make_model(algorithm=ConsensusADMM(record_step=step))
                iteration, product = iteration_cost(model, X, y, w, n_jobs=n_jobs, repeats=repeats)
                products[n_jobs] = product
                detail = f"{1e3 * iteration:.4g} ms | {1e3 * product:.4g} ms"
                name = f"{make_model.__name__}, {step}"
                quiet = is_quiet(products, n_jobs)
                ratio = iteration / product
                figures.append(Figure(name, n_jobs, ratio, ITERATION_BAR, detail, quiet))
                print(figures[-1], flush=True)
    return figures


def measure_fits(X: Array, y: Array) -> list[Figure]:
    heading("A whole default fit, in products X @ w", "ratio", "fit | scikit-learn's own | X @ w")
    w = np.random.default_rng(1).standard_normal(X.shape[1:])
    labels = np.where(y > 0, 1, -1)
    lasso = DPAdmmLasso(alpha=1e-3, target_bounds=(-1, 1), **PUBLIC)
    pairs = [
        (squared(), Ridge(), y),
        (lasso, Lasso(alpha=1e-3), y),
        (logistic(), LogisticRegression(), labels),
    ]
    figures = []
    for private, public, target in pairs:
        products: dict[int, float] = {}
        for n_jobs in N_JOBS:
            private.set_params(n_jobs=n_jobs)
            fit, reference, product = fit_cost(private, public, X, target, w, n_jobs=n_jobs)
            products[n_jobs] = product
            detail = f"{fit:.4g} s | {reference:.4g} s | {1e3 * product:.4g} ms"
            name, quiet = type(private).__name__, is_quiet(products, n_jobs)
            figures.append(Figure(name, n_jobs, fit / product, FIT_BAR, detail, quiet))
            print(figures[-1], flush=True)
    return figures


def measure_adult() -> None:
    """A default fit of Adult beside scikit-learn's to its default tolerance, side by side."""
    sys.path.insert(0, str(Path(__file__).parent))
    import _data

    try:
        data = _data.load("adult")
    except (ImportError, SystemExit, FileNotFoundError) as error:
        print(f"\nAdult is not measured: {error}")
        return
    X = data.rows()[:, :-1]
    private = DPAdmmLogisticRegression(
        classes=[0, 1], feature_bounds=(data.lower, data.upper), delta=1e-6
    )
    ours, theirs = [], []
    for _ in range(3):
        ours.append(seconds(lambda: private.fit(data.X, data.y)))
        theirs.append(seconds(lambda: LogisticRegression(max_iter=1000).fit(X, data.y)))
    ratio = statistics.median(ours) / statistics.median(theirs)
    verdict = "PASS" if ratio <= 1 else "MISS"
    print(
        f"\nAdult, {data.X.shape[0]} x {data.X.shape[1]}: default fit"
        f" {statistics.median(ours):.3g} s, scikit-learn on features in [-1, 1]"
        f" {statistics.median(theirs):.3g} s, ratio {ratio:.2f}, bar 1: {verdict}"
    )


def is_quiet(products: dict[int, float], n_jobs: int) -> bool:
    """Whether the product gained from its threads; if not, ratios flatter or harm at random."""
    return n_jobs == 1 or products[1] / products[n_jobs] > 0.75 * n_jobs


def measure_memory(n_samples: int, n_features: int) -> list[Figure]:
    heading("Peak memory of a fit beyond X and y, in vectors of length n", "vectors", "")
    figures = []
    for make_model in (squared, logistic):
        # A process of its own: tracing slows down everything after it.
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            peak = pool.submit(peak_memory, make_model, n_samples, n_features).result()
        figures.append(Figure(f"{make_model.__name__}, exact", 1, peak, MEMORY_BAR, ""))
        print(figures[-1], flush=True)
    return figures


def heading(title: str, unit: str, detail: str) -> None:
    print(f"\n{title}\n{'':34} {'n_jobs':>6} {unit:>9} {'bar':>7}        {detail}", flush=True)


def draw(panels: dict[str, list[Figure]], title: str) -> None:
    fig, axes = plt.subplots(1, len(panels), figsize=(12, 3.6), layout="constrained")
    for axis, (label, figures) in zip(axes, panels.items(), strict=True):
        names = list(dict.fromkeys(figure.name for figure in figures))
        jobs = sorted({figure.n_jobs for figure in figures})
        height = 0.8 / len(jobs)
        for k, n_jobs in enumerate(jobs):
            chosen = [figure for figure in figures if figure.n_jobs == n_jobs]
            places = [
                names.index(figure.name) + (k - (len(jobs) - 1) / 2) * height for figure in chosen
            ]
            bars = axis.barh(
                places,
                [figure.value for figure in chosen],
                0.9 * height,
                color=[(f"C{k}", 1.0 if figure.is_quiet else 0.3) for figure in chosen],
                label=f"n_jobs={n_jobs}",
            )
            background = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
            axis.bar_label(bars, fmt="%.3g", padding=3, fontsize=8, bbox=background)
        axis.axvline(figures[0].bar, color="black", linestyle="--", linewidth=1, label="bar")
        axis.set_yticks(range(len(names)), names)
        axis.invert_yaxis()
        axis.margins(x=0.15)
        axis.set_xlabel(label)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(
        loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=3, frameon=False, fontsize=8
    )
    fig.suptitle(f"{title}; pale: busy, no verdict", fontsize=10)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(OUTPUT, dpi=120)
    print(f"\nWrote {OUTPUT}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--n-samples", type=int, default=1_000_000)
    parser.add_argument("--n-features", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5, help="iterations behind each median")
    options = parser.parse_args()
    mpl.use("Agg")
    n, p = options.n_samples, options.n_features
    load = os.getloadavg()[0]
    title = f"{n:,} x {p}, float64, {os.cpu_count()} cores, load {load:.1f} before the start"
    print(title)
    memory = measure_memory(n, p)
    X, y = make_data(n, p)
    iterations = measure_iterations(X, y, options.repeats)
    fits = measure_fits(X, y)
    if n >= 1_000_000:
        measure_adult()
    draw(
        {
            "one iteration / (X @ w)": iterations,
            "one fit / (X @ w)": fits,
            "peak memory / (8 n bytes)": memory,
        },
        title,
    )


if __name__ == "__main__":
    main()
