"""The Lasso against epsilon: every central algorithm under one accountant, and a sparse design.

    python benchmarks/lasso_tradeoff.py            both tables, some minutes on one core
    python benchmarks/lasso_tradeoff.py --quick    a coarse look, about a minute

The first table has 800 training and 200 test rows, 64 features and 8 non-zero coefficients. Each
algorithm is tuned over a grid of 36 settings, on the TEST rows of 12 data sets of their own (one
for all settings, four for the best 12, all for the best four of these). No budget pays for that,
nor for the penalty, which scikit-learn's LassoCV picks on the training rows: the table compares
algorithms, and does not say what a user gets. What a user gets is the line of the defaults, which
are not tuned. Figures are half the mean squared error on test rows; the answer of a path is the
estimator's own, a proximal step from the average of its last half. The second table asks the
defaults for a sparse model of many rows, with a penalty of LassoCV again.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import threadpoolctl
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm
from sklearn.linear_model import Lasso, LassoCV
from sklearn.metrics import r2_score
from tqdm import tqdm

from skdpadmm import DPAdmmLasso
from skdpadmm.algorithms._registry import ALGORITHMS
from skdpadmm.privacy import GaussianDP, PrivacyReport

OUTPUT = Path(__file__).parent / "output" / "lasso_tradeoff.png"

N_SAMPLES, N_TRAIN, N_FEATURES, N_NONZERO, LABEL_NOISE = 1_000, 800, 64, 8, 0.1
EPSILONS: tuple[float, ...] = tuple(np.geomspace(0.01, 5, 7).tolist())
DELTA = 1e-6
SEEDS, TUNING_SEEDS = range(10), range(100, 112)
# Seeds that a setting is judged on, and settings that stay: noise would choose among few seeds.
STAGES = ((1, 12), (4, 4), (12, 1))
DATA = {"G": "G: rows N(0, I)", "S": "S: rows uniform on a sphere"}
# Public bounds of the target: three standard deviations, sqrt(E|w|^2 + noise^2) = 1.6 on G and an
# eighth of the first part on S, of the model that makes the data; larger values are clipped.
TARGET_BOUND = {"G": 5.0, "S": 0.7}
# Largest ratio to the zero model that passes.
RATIO_BARS = {
    "G": dict(zip(EPSILONS[4:], (0.65, 0.25, 0.15), strict=True)),
    "S": dict(zip(EPSILONS[4:], (0.9, 0.6, 0.45), strict=True)),
}
ZERO_BAR = 1.05

Array = NDArray[np.float64]
Knobs = dict[str, Any]


# --------------------------------------------------------------------------------------------------
# Data


@dataclass(frozen=True, eq=False)
class Data:
    """Training and test rows with the penalty of LassoCV."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array
    alpha: float

    @property
    def zero(self) -> float:
        """Half mean squared error of the model that predicts 0."""
        return half_mse(self.y_test, 0.0)

    @property
    def non_private(self) -> float:
        """The same of scikit-learn's Lasso with the same penalty."""
        model = Lasso(alpha=self.alpha, fit_intercept=False).fit(self.X, self.y)
        return half_mse(self.y_test, model.predict(self.X_test))


@functools.cache
def make_data(name: str, seed: int) -> Data:
    """One draw: rows, sparse coefficients uniform on [0, 1], labels with noise.

    The unit sphere is inflated to radius 8 = sqrt(p), which is public, and the coefficients shrink
    alike: rows then have the size that undeclared features are expected to have.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N_SAMPLES, N_FEATURES))
    w = np.zeros(N_FEATURES)
    w[rng.choice(N_FEATURES, N_NONZERO, replace=False)] = rng.random(N_NONZERO)
    if name == "S":
        radius = math.sqrt(N_FEATURES)
        X *= radius / np.linalg.norm(X, axis=1, keepdims=True)
        w /= radius
    y = X @ w + LABEL_NOISE * rng.standard_normal(N_SAMPLES)
    X_train, y_train = X[:N_TRAIN], y[:N_TRAIN]
    alpha = float(LassoCV(fit_intercept=False).fit(X_train, y_train).alpha_)
    return Data(X_train, y_train, X[N_TRAIN:], y[N_TRAIN:], alpha)


def half_mse(y: Array, predicted: Array | float) -> float:
    return 0.5 * float(np.mean((y - predicted) ** 2))


# --------------------------------------------------------------------------------------------------
# Methods: an algorithm with its grid


@dataclass(frozen=True, eq=False)
class Method:
    """Something to fit: parameters of the estimator for each setting of a grid."""

    title: str
    grid: tuple[Knobs, ...]
    style: Mapping[str, Any]

    def model(self, setting: Knobs, name: str, data: Data, epsilon: float, seed: int) -> Any:
        return DPAdmmLasso(
            alpha=data.alpha,
            epsilon=epsilon,
            delta=DELTA,
            neighboring="replace_one",
            target_bounds=(-TARGET_BOUND[name], TARGET_BOUND[name]),
            # The data has no intercept, and that is known.
            fit_intercept=False,
            random_state=seed,
            **setting,
        )


STEPS, CLIPS = (0.001, 0.004, 0.016, 0.06, 0.25, 1.0), (0.02, 0.06, 0.2)


def path_grid(
    algorithm: str, n_iter: tuple[int, int], step_unit: float = 1.0, **fixed: Any
) -> tuple[Knobs, ...]:
    """36 settings: six steps, three clip bounds, two lengths."""
    grid = itertools.product(STEPS, CLIPS, n_iter)
    return tuple(
        {
            "algorithm": ALGORITHMS[algorithm]().set_params(  # type: ignore[attr-defined]
                step_size=step_unit * step, clip_norm=clip, **fixed
            ),
            "conditioning": None,
            "max_iter": length,
        }
        for step, clip, length in grid
    )


def perturbation_grid(algorithm: str) -> tuple[Knobs, ...]:
    """36 settings: nine ridges, four clip bounds. It has neither steps nor a length to tune."""
    grid = itertools.product(np.geomspace(0.1, 1e4, 9).tolist(), (*CLIPS, 0.6))
    return tuple(
        {
            "algorithm": ALGORITHMS[algorithm]().set_params(  # type: ignore[attr-defined]
                ridge=ridge, clip_norm=clip
            ),
            "conditioning": None,
        }
        for ridge, clip in grid
    )


def find_methods() -> dict[str, Method]:
    """Every algorithm of the registry that is known here, and the defaults."""
    grids: dict[str, dict[str, Callable[[str], tuple[Knobs, ...]]]] = {
        "consensus-admm": {
            "ADMM, exact": lambda key: path_grid(key, (30, 100), record_step="exact"),
            "ADMM, linearised": lambda key: path_grid(key, (30, 100), record_step="linearized"),
        },
        # Momentum 0.8 travels five times as far.
        "gradient-descent": {
            "gradient, momentum": lambda key: path_grid(key, (30, 100), 0.2, momentum=0.8)
        },
        # A pass takes 64 steps, and an averaged step many gradients: they need fewer.
        "coordinate-descent": {"coordinates": lambda key: path_grid(key, (2, 6))},
        "averaged-admm": {"averaged ADMM": lambda key: path_grid(key, (3, 9))},
        "objective-perturbation": {"objective pert.": perturbation_grid},
    }
    for name in sorted(set(ALGORITHMS) - set(grids)):
        print(f"Not compared, because it has no grid here: {name}")
    methods = {"defaults": Method("defaults, untuned", ({},), {"color": "black", "linewidth": 2.5})}
    markers = itertools.cycle("os^vdP*")
    for name, variants in grids.items():
        if name in ALGORITHMS:
            for title, grid in variants.items():
                style = {"color": f"C{len(methods) - 1}", "marker": next(markers)}
                methods[title] = Method(title, grid(name), style)
    return methods


# --------------------------------------------------------------------------------------------------
# Tuning and evaluation


@dataclass(frozen=True, eq=False)
class Point:
    """One method on one kind of data at one epsilon: a figure for each seed."""

    objective: Array
    # Epsilon by the report, and by the noise and sensitivities of its lines where all are Gaussian.
    epsilon: float
    epsilon_of_lines: float
    setting: Knobs
    # Settings that the plan refuses: no noise is large enough for a small ridge at this epsilon.
    n_refused: int


@dataclass(frozen=True)
class Task:
    """What is computed at once; everything is named, so that it can be sent to a process."""

    method: str
    data: str
    epsilon: float
    n_seeds: int
    n_stages: int
    stride: int


def run(task: Task) -> Point:
    """Choose a setting on the tuning seeds, and fit it on the others."""
    method = methods_of_process()[task.method]
    grid = method.grid[:: task.stride]

    def fit(setting: Knobs, seed: int) -> tuple[float, PrivacyReport]:
        data = make_data(task.data, seed)
        model = method.model(setting, task.data, data, task.epsilon, seed).fit(data.X, data.y)
        return half_mse(data.y_test, model.predict(data.X_test)), model.privacy_

    def is_possible(setting: Knobs) -> bool:
        first = make_data(task.data, TUNING_SEEDS[0])
        try:
            method.model(setting, task.data, first, task.epsilon, 0).plan(N_TRAIN, N_FEATURES)
        except ValueError:
            return False
        return True

    possible = [setting for setting in grid if is_possible(setting)]
    setting = possible[0]
    if len(possible) > 1:
        setting = tune(possible, lambda *pair: fit(*pair)[0], STAGES[: task.n_stages])
    fits = [fit(setting, seed) for seed in SEEDS[: task.n_seeds]]
    return Point(
        objective=np.array([objective for objective, _ in fits]),
        epsilon=max(report.epsilon() for _, report in fits),
        epsilon_of_lines=max(epsilon_of_lines(report) for _, report in fits),
        setting=setting,
        n_refused=len(grid) - len(possible),
    )


@functools.cache
def methods_of_process() -> dict[str, Method]:
    return find_methods()


def tune(
    settings: list[Knobs],
    objective: Callable[[Knobs, int], float],
    stages: Iterable[tuple[int, int]],
) -> Knobs:
    """The setting with the best mean; in each stage more seeds judge fewer settings."""
    found: list[list[float]] = [[] for _ in settings]
    alive = list(range(len(settings)))
    for n_seeds, n_kept in stages:
        for i in alive:
            seeds = TUNING_SEEDS[len(found[i]) : n_seeds]
            found[i] += [objective(settings[i], seed) for seed in seeds]
        alive = sorted(alive, key=lambda i: np.mean(found[i]))[:n_kept]
    return settings[alive[0]]


def epsilon_of_lines(report: PrivacyReport) -> float:
    """Epsilon of the releases in the report, by the formula for a sum of Gaussian mechanisms.

    It is worked out apart from the package's accountant, from sensitivities that the report states.
    NaN where a release is no Gaussian mechanism.
    """
    if not isinstance(report.guarantee(), GaussianDP):
        return math.nan
    parts = []
    for line in report.releases:
        if line.sensitivity is None:
            return math.nan
        parts.append(math.sqrt(line.times) * line.sensitivity / line.noise_std)
    mu = math.hypot(*parts)

    def excess(epsilon: float) -> float:
        below = norm.cdf(mu / 2 - epsilon / mu)
        above = math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
        return float(below - above - report.delta)

    return float(brentq(excess, 0.0, 100.0, xtol=1e-12))


def one_thread() -> None:
    """A worker is one core: BLAS threads of several workers would fight."""
    threadpoolctl.threadpool_limits(1)
    # That known seeds make simulations is no news here.
    warnings.simplefilter("ignore")


# --------------------------------------------------------------------------------------------------
# The first table


@dataclass(frozen=True, eq=False)
class Tradeoff:
    """All points of one kind of data, and the two models that spend nothing."""

    name: str
    epsilons: tuple[float, ...]
    points: dict[str, list[Point]]
    zero: Array
    non_private: Array

    def ratios(self, method: str) -> list[float]:
        """Mean objective at each epsilon over that of the zero model."""
        return [float(p.objective.mean() / self.zero.mean()) for p in self.points[method]]


def compute_tradeoffs(options: argparse.Namespace) -> list[Tradeoff]:
    """Run everything in a pool; the result does not depend on the number of processes."""
    methods = methods_of_process()
    epsilons = EPSILONS[::2] if options.quick else EPSILONS
    counts = (3, 2, 5) if options.quick else (len(SEEDS), len(STAGES), 1)
    tasks = [
        Task(method, name, epsilon, *counts)
        for method in methods
        for name in DATA
        for epsilon in epsilons
    ]
    with ProcessPoolExecutor(options.jobs, initializer=one_thread) as pool:
        done = tqdm(pool.map(run, tasks), total=len(tasks), unit="point", mininterval=5)
        points = dict(zip(tasks, done, strict=True))
    found = []
    for name in DATA:
        draws = [make_data(name, seed) for seed in SEEDS[: counts[0]]]
        by_method = {
            method: [points[Task(method, name, epsilon, *counts)] for epsilon in epsilons]
            for method in methods
        }
        zero = np.array([data.zero for data in draws])
        non_private = np.array([data.non_private for data in draws])
        found.append(Tradeoff(name, epsilons, by_method, zero, non_private))
    return found


def print_tradeoff(tradeoff: Tradeoff) -> None:
    methods, epsilons = methods_of_process(), tradeoff.epsilons
    head = "".join(f"{f'eps {epsilon:.3g}':>16}" for epsilon in epsilons)
    print(
        f"\n{DATA[tradeoff.name]}: half-MSE on test rows, mean ± std of {len(tradeoff.zero)} seeds"
    )
    print(f"{'':20}{head}")
    for key, points in tradeoff.points.items():
        print(f"{methods[key].title:20}" + "".join(mean_and_std(p.objective) for p in points))
    for title, values in (("zero model", tradeoff.zero), ("non-private", tradeoff.non_private)):
        print(f"{title:20}{mean_and_std(values)}")
    print(f"\n{DATA[tradeoff.name]}: ratio of the means to that of the zero model")
    for key in tradeoff.points:
        print(f"{methods[key].title:20}" + "".join(f"{r:16.3f}" for r in tradeoff.ratios(key)))
    print(f"\n{DATA[tradeoff.name]}: chosen settings, step/clip/length or ridge/clip")
    for key, points in tradeoff.points.items():
        if len(methods[key].grid) > 1:
            print(f"{methods[key].title:20}" + "".join(f"{brief(p.setting):>16}" for p in points))
        if any(p.n_refused for p in points):
            print(f"{'  refused by plan':20}" + "".join(f"{p.n_refused:16}" for p in points))


def mean_and_std(values: Array) -> str:
    return f"{f'{values.mean():.4f} ± {values.std(ddof=1):.4f}':>16}"


def brief(setting: Knobs) -> str:
    parameters: Knobs = {**setting["algorithm"].get_params(), **setting}
    names = ("step_size", "ridge", "clip_norm", "max_iter")
    return "/".join(
        f"{parameters[name]:.{3 if name == 'max_iter' else 2}g}"
        for name in names
        if name in parameters
    )


# --------------------------------------------------------------------------------------------------
# What has to hold


def print_verdicts(tradeoffs: list[Tradeoff]) -> None:
    """A line for each criterion, a column for each method."""
    titles = "".join(f"{method.title:>20}" for method in methods_of_process().values())
    for tradeoff in tradeoffs:
        heading = f"{DATA[tradeoff.name]}: verdicts"
        print(f"\n{heading:42}{'bar':>6}{titles}")
        for title, bar, figures in criteria(tradeoff):
            cells = "".join(f"{verdict(figures[key], bar):>20}" for key in methods_of_process())
            print(f"{title:42}{bar:6g}{cells}")


def verdict(figure: float, bar: float) -> str:
    return "-" if math.isnan(figure) else f"{figure:.3g} {'PASS' if figure <= bar else 'MISS'}"


def criteria(tradeoff: Tradeoff) -> Iterable[tuple[str, float, dict[str, float]]]:
    """Title, bar, and the worst figure of each method."""
    points, epsilons = tradeoff.points, tradeoff.epsilons
    reported, recomputed = (
        {
            key: max(getattr(p, name) / e - 1 for p, e in zip(path, epsilons, strict=True))
            for key, path in points.items()
        }
        for name in ("epsilon", "epsilon_of_lines")
    )
    yield "epsilon of the report / given - 1", 0.0, reported
    # The last digits of a root that was found on another way say nothing.
    yield "the same, from the lines of the report", 1e-9, recomputed
    rises = {
        key: max(rise(before, after) for before, after in itertools.pairwise(path))
        for key, path in points.items()
    }
    yield "rise with epsilon, in paired std. errors", 2.0, rises
    largest = {key: max(tradeoff.ratios(key)) for key in points}
    yield "ratio to the zero model, largest", ZERO_BAR, largest
    for k, epsilon in enumerate(epsilons):
        if epsilon in RATIO_BARS[tradeoff.name]:
            ratios = {key: tradeoff.ratios(key)[k] for key in points}
            yield f"ratio at epsilon {epsilon:.3g}", RATIO_BARS[tradeoff.name][epsilon], ratios


def rise(before: Point, after: Point) -> float:
    return paired(after.objective - before.objective)[2]


def paired(differences: Array) -> tuple[float, float, float]:
    """Mean, its standard error, and their quotient."""
    mean = float(differences.mean())
    error = float(differences.std(ddof=1) / math.sqrt(len(differences)))
    return mean, error, mean / error


def print_hypothesis(tradeoffs: list[Tradeoff]) -> None:
    """Whether ADMM beats gradient descent where privacy is high: reported, not required."""
    ours, other = "ADMM, exact", "gradient, momentum"
    print(f"\nHypothesis 'ADMM beats gradient descent at high privacy': {ours} - {other}, half-MSE")
    for tradeoff in tradeoffs:
        if other not in tradeoff.points:
            continue
        print(f"  {DATA[tradeoff.name]}")
        for k, epsilon in enumerate(tradeoff.epsilons):
            a, b = (tradeoff.points[key][k].objective for key in (ours, other))
            mean, error, quotient = paired(a - b)
            seen = (
                "ADMM better"
                if quotient < -2
                else "ADMM worse"
                if quotient > 2
                else "no difference"
            )
            print(f"    eps {epsilon:<8.3g}{mean:+10.5f} ± {error:.5f}   {seen}")


def draw(tradeoffs: list[Tradeoff]) -> None:
    fig, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for axis, tradeoff in zip(axes, tradeoffs, strict=True):
        for key, points in tradeoff.points.items():
            method = methods_of_process()[key]
            means = [p.objective.mean() for p in points]
            axis.plot(tradeoff.epsilons, means, label=method.title, markersize=4, **method.style)
        axis.axhline(tradeoff.zero.mean(), color="0.6", linestyle=":", label="zero model")
        axis.axhline(tradeoff.non_private.mean(), color="0.3", linestyle="--", label="non-private")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("epsilon")
        axis.set_title(DATA[tradeoff.name], fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("half mean squared error on test rows")
    axes[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    fig.suptitle(
        f"Lasso, {N_TRAIN} rows, {N_FEATURES} features, delta {DELTA:g}, replace one; mean of"
        f" {len(tradeoffs[0].zero)} seeds; all but the defaults tuned for free",
        fontsize=10,
    )
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(OUTPUT, dpi=120)
    plt.close(fig)


# --------------------------------------------------------------------------------------------------
# The second table: a sparse design of many rows, with the defaults


@dataclass(frozen=True)
class SparseFit:
    """Held-out R2 and non-zero coefficients, with and without privacy."""

    r2: float
    r2_non_private: float
    n_nonzero: int
    n_nonzero_non_private: int
    n_found: int


DESIGNS = {
    "uniform": "features uniform on [-1, 1]",
    "correlated": "Gaussian, correlation 0.5^|i-j|",
}
SPARSE_ROWS, SPARSE_TEST, SPARSE_FEATURES, SPARSE_NONZERO = 20_000, 5_000, 50, 5
R2_BAR, NONZERO_BAR = 0.03, 2.0


def fit_sparse(design: str, seed: int) -> SparseFit:
    """One draw of a design: coefficients of size 1/2 to 1 with signs, label noise of std 1/2."""
    rng = np.random.default_rng(seed)
    n, p = SPARSE_ROWS + SPARSE_TEST, SPARSE_FEATURES
    if design == "uniform":
        X, feature_bound = rng.uniform(-1, 1, (n, p)), 1.0
    else:
        places = np.arange(p)
        factor = np.linalg.cholesky(0.5 ** np.abs(places[:, None] - places))
        X, feature_bound = rng.standard_normal((n, p)) @ factor.T, 3.0
    support = rng.choice(p, SPARSE_NONZERO, replace=False)
    w = np.zeros(p)
    w[support] = rng.uniform(0.5, 1, SPARSE_NONZERO) * rng.choice([-1, 1], SPARSE_NONZERO)
    y = X @ w + 0.5 * rng.standard_normal(n)
    train, test = slice(SPARSE_ROWS), slice(SPARSE_ROWS, None)
    public = LassoCV().fit(X[train], y[train])
    # Five coefficients of at most 1 on features of at most 1: a bound that is known beforehand. For
    # Gaussian features it is two to three standard deviations.
    target_bounds = (-5, 5)
    private = DPAdmmLasso(
        alpha=float(public.alpha_),
        epsilon=1.0,
        feature_bounds=(-feature_bound, feature_bound),
        target_bounds=target_bounds,
        random_state=seed,
    ).fit(X[train], y[train])
    return SparseFit(
        r2=r2_score(y[test], private.predict(X[test])),
        r2_non_private=r2_score(y[test], public.predict(X[test])),
        n_nonzero=int(np.count_nonzero(private.coef_)),
        n_nonzero_non_private=int(np.count_nonzero(public.coef_)),
        n_found=int(np.count_nonzero(private.coef_[support])),
    )


def print_sparse(options: argparse.Namespace) -> None:
    n_seeds = 2 if options.quick else 5
    tasks = list(itertools.product(DESIGNS, range(n_seeds)))
    with ProcessPoolExecutor(options.jobs, initializer=one_thread) as pool:
        done = tqdm(pool.map(fit_sparse, *zip(*tasks, strict=True)), total=len(tasks), unit="fit")
        fits = list(zip(tasks, done, strict=True))
    print(
        f"\nSparse design: {SPARSE_ROWS:,} rows, {SPARSE_FEATURES} features, {SPARSE_NONZERO}"
        " non-zeros, epsilon 1, delta 1e-05, defaults with declared bounds"
    )
    for design, title in DESIGNS.items():
        print(
            f"  {title}\n  {'seed':>6}{'R2':>9}{'non-private':>13}{'non-zeros':>11}"
            f"{'non-private':>13}{'of the true ones':>18}"
        )
        chosen = [fit for (name, _), fit in fits if name == design]
        for seed, fit in enumerate(chosen):
            print(
                f"  {seed:6}{fit.r2:9.4f}{fit.r2_non_private:13.4f}{fit.n_nonzero:11}"
                f"{fit.n_nonzero_non_private:13}{fit.n_found:18}"
            )
        loss = max(fit.r2_non_private - fit.r2 for fit in chosen)
        growth = max(fit.n_nonzero / fit.n_nonzero_non_private for fit in chosen)
        for name, figure, bar in (
            ("R2 lost, worst seed", loss, R2_BAR),
            ("non-zeros / non-private ones, worst seed", growth, NONZERO_BAR),
        ):
            print(f"  {name:42}{figure:8.4f}   bar {bar:g}   {'PASS' if figure <= bar else 'MISS'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes of one thread each")
    parser.add_argument("--quick", action="store_true", help="few seeds, a thin grid")
    options = parser.parse_args()
    mpl.use("Agg")
    tradeoffs = compute_tradeoffs(options)
    for tradeoff in tradeoffs:
        print_tradeoff(tradeoff)
    print_verdicts(tradeoffs)
    print_hypothesis(tradeoffs)
    print_sparse(options)
    draw(tradeoffs)
    print(f"\nWrote {OUTPUT}")


if __name__ == "__main__":
    main()
