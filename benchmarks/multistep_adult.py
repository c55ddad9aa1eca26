"""Figures 1 to 3 of multi-step private ADMM on Adult: budgets, inner steps, and other algorithms.

    python benchmarks/multistep_adult.py            ten seeds, two hours on two cores
    python benchmarks/multistep_adult.py --quick    two seeds, fewer points and rivals: no verdict

The setting is that of Huang and Gong: 45,222 rows, 104 columns, a hundred agents of equal size, all
linked, delta 1e-5, replace-one, logistic loss, 1e-4 over the number of agents as the penalty of
each. Columns are divided by public bounds, where the paper takes their maxima from the data; rows
are then divided by their norm where it is above 1. The paper does not say how many rounds there
are: here 20. Privacy is calibrated exactly, and nothing is spent on anything but gradients
(``conditioning=None``).

Multi-step ADMM stands there with three settings. "theorem" has the growing weights of the utility
theorem, a ball of diameter 10, rho 1e-3, no gradient that could be clipped, and the average of all
steps. "defaults" has what the library does unasked; it expects rows of norm ``sqrt(n_features)``,
so it gets them. "short steps" are the defaults with steps of one over the bound of the curvature.
"No noise" is epsilon 1e4. The risk is the mean logistic loss of the rows that were learned from, by
the average model of the agents. Baselines have their defaults, on the rows that these expect;
dual perturbation stops after ten rounds by itself.

Risks by round are those of one fit, not of shorter ones, whose noise would differ: a wrapper of
what carries messages keeps the mean of all broadcasts of a round, which whoever listens can
compute. Of the paper's baselines RADMM, which recycles rounds, is not implemented.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _data
import matplotlib as mpl
import numpy as np
import threadpoolctl
from baselines import DualPerturbationADMM, PrimalPerturbationADMM
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from tqdm import tqdm

from skdpadmm import DPDecentralizedClassifier
from skdpadmm.algorithms import DecentralizedGradientDescent, MultiStepADMM
from skdpadmm.network import MixingMatrix, Topology

OUTPUT = Path(__file__).parent / "output" / "multistep_adult.png"
N_AGENTS, N_ROUNDS, N_SEEDS, DELTA, STRENGTH = 100, 20, 10, 1e-5, 1e-4
EPSILONS, INNER_STEPS, BY_ROUND = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0), (1, 5, 10, 15, 20, 25), (0.5, 1.0)
NO_NOISE, PAPER_STEPS = 1e4, 10
SETTINGS = ("theorem", "short steps", "defaults")
BASELINES = {
    "primal perturbation": PrimalPerturbationADMM(),
    "dual perturbation": DualPerturbationADMM(),
    "gradient descent": DecentralizedGradientDescent(),
}

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """What is fitted at once; everything is named, so that it can be sent to a process."""

    method: str
    epsilon: float
    inner_steps: int = 1
    seed: int = 0
    n_rounds: int = N_ROUNDS


@dataclass(frozen=True)
class Run:
    """Risk of the model, and of the mean of the broadcasts of each round, the start included."""

    risk: float
    by_round: Array


@dataclass(frozen=True)
class Score:
    """Mean and standard error over seeds."""

    mean: float
    error: float

    def __str__(self) -> str:
        return f"{self.mean:.4f} +- {self.error:.4f}"


def score_of(values: Iterable[float]) -> Score:
    found = np.array(list(values))
    return Score(float(found.mean()), float(found.std(ddof=1) / np.sqrt(len(found))))


# --------------------------------------------------------------------------------------------------
# Data and models


@functools.cache
def rows(norm: float = 1.0) -> tuple[Array, NDArray[Any]]:
    """Adult with rows of this norm at most, and classes -1 and 1."""
    data = _data.load("adult")
    X = np.clip(data.X, data.lower, data.upper) / data.upper
    X *= norm / np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    return X, data.target()


def expected_norm() -> float:
    """Of the rows that defaults are made for."""
    return math.sqrt(_data.load("adult").X.shape[1])


def multi_step(setting: str, inner_steps: int) -> MultiStepADMM:
    if setting == "defaults":
        return MultiStepADMM(inner_steps=inner_steps)
    if setting == "short steps":
        # The logistic loss has curvature 1/4 at most.
        return MultiStepADMM(inner_steps=inner_steps, step_size=4.0 / expected_norm() ** 2)
    return MultiStepADMM(
        inner_steps=inner_steps,
        # In units of the norm that is expected of a row; a gradient has norm 1 at most.
        clip_norm=1.0 / expected_norm(),
        proximal_weight="growing",
        diameter=10.0,
        penalty_weight=1e-3,
        tail_fraction=1.0,
    )


def make(task: Task) -> tuple[Any, float]:
    """A model, and the norm of the rows that it is made for."""
    norm = 1.0 if task.method == "theorem" else expected_norm()
    is_ours = task.method in SETTINGS
    model = DPDecentralizedClassifier(
        # The paper adds up the losses of agents, each with a share of the penalty.
        alpha=STRENGTH / N_AGENTS * norm**2,
        epsilon=task.epsilon,
        delta=DELTA,
        topology="complete",
        n_agents=N_AGENTS,
        classes=[-1, 1],
        fit_intercept=False,
        algorithm=multi_step(task.method, task.inner_steps) if is_ours else BASELINES[task.method],
        conditioning=None,
        max_iter=task.n_rounds,
        random_state=task.seed,
    )
    return model, norm


def risk(X: Array, y: Array, coef: Array) -> float:
    return float(np.mean(np.logaddexp(0.0, -y * (X @ coef))))


# --------------------------------------------------------------------------------------------------
# Runs


@contextmanager
def listening() -> Iterator[list[Array]]:
    """Keep the mean over agents of each broadcast of a fit, as whoever hears them all could."""
    heard: list[Array] = []
    last: list[Any] = []

    def keep(carry: Callable[[Any, Array], Array]) -> Callable[[Any, Array], Array]:
        def kept(network: Any, values: Array) -> Array:
            # A broadcast is used where it is made and where the next one starts.
            if values.ndim == 3 and not (last and last[0] is values):
                last[:] = [values]
                heard.append(values.mean(axis=0)[:, 0])
            return carry(network, values)

        return kept

    carriers: list[tuple[Any, str]] = [(Topology, "neighbor_sum"), (MixingMatrix, "dot")]
    before = [getattr(owner, name) for owner, name in carriers]
    for (owner, name), carry in zip(carriers, before, strict=True):
        setattr(owner, name, keep(carry))
    try:
        yield heard
    finally:
        for (owner, name), carry in zip(carriers, before, strict=True):
            setattr(owner, name, carry)


def run(task: Task) -> Run:
    """Fit once; the seed is that of the noise and of who holds which row."""
    # Agents of 452 rows at a small epsilon: noise is large here, and that is the question.
    warnings.simplefilter("ignore", UserWarning)
    model, norm = make(task)
    X, y = rows(norm)
    with threadpoolctl.threadpool_limits(1), listening() as heard:
        model.fit(X, y)
    traced = heard if task.epsilon in BY_ROUND else []
    return Run(
        risk(X, y, model.coef_[0]),
        np.array([risk(X, y, coef) for coef in traced]),
    )


def run_all(tasks: Iterable[Task], n_jobs: int) -> dict[Task, Run]:
    # The long ones first, so that no process is left with one of them at the end.
    chosen = sorted(set(tasks), key=lambda task: -task.inner_steps)
    with ProcessPoolExecutor(n_jobs) as pool:
        runs = list(tqdm(pool.map(run, chosen), total=len(chosen), desc="fits"))
    return dict(zip(chosen, runs, strict=True))


@dataclass(frozen=True)
class Grid:
    """What is measured, and the runs of it."""

    epsilons: tuple[float, ...]
    inner_steps: tuple[int, ...]
    n_seeds: int
    n_rounds: int
    has_bars: bool
    baselines: tuple[str, ...] = tuple(BASELINES)

    @property
    def optimum(self) -> Task:
        """Without privacy a fit is exact, whatever the algorithm: what exact ADMM converges to."""
        return Task("defaults", math.inf, n_rounds=self.n_rounds)

    def seeds_of(self, method: str, epsilon: float, inner_steps: int = 1) -> list[Task]:
        seeds = range(self.n_seeds)
        return [Task(method, epsilon, inner_steps, seed, self.n_rounds) for seed in seeds]

    def tasks(self) -> Iterator[Task]:
        for method in SETTINGS:
            for epsilon in (*self.epsilons, *BY_ROUND, NO_NOISE):
                yield from self.seeds_of(method, epsilon, PAPER_STEPS)
            for inner_steps in self.inner_steps:
                yield from self.seeds_of(method, 1.0, inner_steps)
            yield from self.seeds_of(method, BY_ROUND[0], 1)
        for epsilon in BY_ROUND:
            for name in self.baselines:
                yield from self.seeds_of(name, epsilon)
        yield self.optimum


# --------------------------------------------------------------------------------------------------
# Tables


def verdict(passes: bool, grid: Grid) -> str:
    return ("PASS" if passes else "MISS") if grid.has_bars else "no verdict"


def scores(grid: Grid, found: dict[Task, Run], *case: Any) -> Score:
    return score_of(found[task].risk for task in grid.seeds_of(*case))


def show_budgets(grid: Grid, found: dict[Task, Run]) -> None:
    print(f"\nFigure 1: risk against epsilon, {PAPER_STEPS} inner steps")
    print(f"{'epsilon':>10}" + "".join(f"{name:>20}" for name in SETTINGS))
    points = (*grid.epsilons, NO_NOISE)
    table = {m: [scores(grid, found, m, e, PAPER_STEPS) for e in points] for m in SETTINGS}
    for k, epsilon in enumerate(points):
        label = "no noise" if epsilon == NO_NOISE else f"{epsilon:g}"
        print(f"{label:>10}" + "".join(f"{table[m][k]!s:>20}" for m in SETTINGS))
    for method in SETTINGS:
        line = table[method]
        falls = all(
            b.mean <= a.mean + max(a.error, b.error) for a, b in itertools.pairwise(line[:-1])
        )
        left, at_first = line[-2].mean - line[-1].mean, line[0].mean - line[-1].mean
        print(
            f"{method}: falls with epsilon up to one s.e.: {verdict(falls, grid)};"
            f" at the largest epsilon {left:.4f} above no noise, of {at_first:.4f} at the smallest"
            f" (bar: a tenth): {verdict(left <= 0.1 * at_first, grid)}"
        )


def show_inner_steps(grid: Grid, found: dict[Task, Run]) -> None:
    print("\nFigure 2: risk against inner steps, epsilon 1")
    print(f"{'inner steps':>12}" + "".join(f"{name:>20}" for name in SETTINGS))
    for k in grid.inner_steps:
        row = [scores(grid, found, method, 1.0, k) for method in SETTINGS]
        print(f"{k:>12}" + "".join(f"{score!s:>20}" for score in row))
    for method in SETTINGS:
        one, ten, most = (
            scores(grid, found, method, 1.0, k) for k in (1, PAPER_STEPS, max(grid.inner_steps))
        )
        gain, more = one.mean - ten.mean, abs(most.mean - ten.mean)
        error = 2 * math.hypot(one.error, ten.error)
        print(
            f"{method}: risk(1) - risk({PAPER_STEPS}) = {gain:+.4f}, 2 s.e. {error:.4f}:"
            f" {verdict(gain > error, grid)}; |risk({max(grid.inner_steps)}) - risk({PAPER_STEPS})|"
            f" = {more:.4f} (bar .02): {verdict(more <= 0.02, grid)}"
        )


@dataclass(frozen=True)
class Line:
    """One method of the third figure."""

    title: str
    method: str
    inner_steps: int = 1


def lines(grid: Grid) -> list[Line]:
    ours = [
        Line(f"{method}, {k} inner step{'s' * (k > 1)}", method, k)
        for method in SETTINGS
        for k in (PAPER_STEPS, 1)
    ]
    return ours + [Line(name, name) for name in grid.baselines]


def unrest(run: Run) -> float:
    """Standard deviation of risk over the later half of the rounds."""
    return float(np.std(run.by_round[len(run.by_round) // 2 :]))


def show_rounds(grid: Grid, found: dict[Task, Run]) -> None:
    for epsilon in BY_ROUND:
        print(f"\nFigure 3: after {grid.n_rounds} rounds, epsilon {epsilon:g}")
        print(
            f"{'':30}{'risk of the model':>20}{'unrest over rounds':>20}{'of last broadcast':>20}"
        )
        table = {}
        for line in lines(grid):
            runs = [found[t] for t in grid.seeds_of(line.method, epsilon, line.inner_steps)]
            table[line.title] = [
                score_of(run.risk for run in runs),
                score_of(unrest(run) for run in runs),
                score_of(run.by_round[-1] for run in runs),
            ]
            print(f"{line.title:30}" + "".join(f"{score!s:>20}" for score in table[line.title]))
        print(f"{'exact, not private':30}{found[grid.optimum].risk:>10.4f}")
        for method in SETTINGS:
            own = f"{method}, {PAPER_STEPS} inner steps"
            rivals = [f"{method}, 1 inner step", *grid.baselines]
            for k, what in enumerate(("risk", "unrest")):
                beaten = [r for r in rivals if table[own][k].mean < table[r][k].mean]
                others = [r for r in rivals if r not in beaten]
                rest = f"; not below {', '.join(others)}" * bool(others)
                print(f"{own}: lowest {what}: {verdict(not others, grid)}{rest}")


# --------------------------------------------------------------------------------------------------
# The picture


def draw(grid: Grid, found: dict[Task, Run]) -> None:
    fig, axes = plt.subplots(1, 4, figsize=(15, 3.8), layout="constrained")
    for k, method in enumerate(SETTINGS):
        style: dict[str, Any] = {"color": f"C{k}", "marker": "o", "capsize": 3, "label": method}
        line = [scores(grid, found, method, e, PAPER_STEPS) for e in grid.epsilons]
        errors = [s.error for s in line]
        axes[0].errorbar(grid.epsilons, [s.mean for s in line], yerr=errors, **style)
        without = scores(grid, found, method, NO_NOISE, PAPER_STEPS).mean
        axes[0].axhline(without, color=f"C{k}", linestyle=":", linewidth=1)
        line = [scores(grid, found, method, 1.0, steps) for steps in grid.inner_steps]
        errors = [s.error for s in line]
        axes[1].errorbar(grid.inner_steps, [s.mean for s in line], yerr=errors, **style)
    axes[0].set_xscale("log")
    axes[0].set_xticks(grid.epsilons, [f"{epsilon:g}" for epsilon in grid.epsilons])
    axes[0].minorticks_off()
    axes[0].set_xlabel("epsilon (dotted: without noise)")
    axes[0].set_ylabel("mean logistic loss, Adult")
    axes[0].set_title(f"{PAPER_STEPS} inner steps", loc="left", fontsize=10)
    axes[1].set_xlabel("inner steps")
    axes[1].set_title("epsilon 1", loc="left", fontsize=10)
    axes[0].legend(frameon=False, fontsize=8)
    for axis, epsilon in zip(axes[2:], BY_ROUND, strict=True):
        for k, line_ in enumerate(lines(grid)):
            runs = [found[t] for t in grid.seeds_of(line_.method, epsilon, line_.inner_steps)]
            curves = np.array([run.by_round for run in runs])
            ours = line_.method in SETTINGS
            axis.plot(
                curves.mean(axis=0),
                color=f"C{k // 2}" if ours else f"C{k}",
                linestyle="--" if ours and line_.inner_steps == 1 else "-",
                label=line_.title,
            )
        best = found[grid.optimum].risk
        axis.axhline(best, color="0.2", linestyle="-.", linewidth=1, label="exact, not private")
        axis.set_ylim(0.3, 1.2)
        axis.set_xlabel("round")
        axis.set_title(f"mean of the broadcasts, epsilon {epsilon:g}", loc="left", fontsize=10)
    axes[3].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(OUTPUT, dpi=120)
    print(f"\nWrote {OUTPUT}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two seeds, fewer points, no verdict")
    parser.add_argument("--n-seeds", type=int, default=N_SEEDS)
    parser.add_argument("--n-rounds", type=int, default=N_ROUNDS)
    parser.add_argument("--n-jobs", type=int, default=2, help="processes")
    options = parser.parse_args()
    mpl.use("Agg")
    grid = Grid(
        epsilons=(0.1, 1.0, 5.0) if options.quick else EPSILONS,
        inner_steps=(1, PAPER_STEPS) if options.quick else INNER_STEPS,
        n_seeds=2 if options.quick else options.n_seeds,
        n_rounds=options.n_rounds,
        has_bars=not options.quick,
        # The first one solves problems for many seconds.
        baselines=tuple(BASELINES)[1:] if options.quick else tuple(BASELINES),
    )
    print(
        f"Adult at {N_AGENTS} agents, {grid.n_rounds} rounds, delta {DELTA:g}: mean and standard"
        f" error over {grid.n_seeds} seeds"
    )
    found = run_all(grid.tasks(), options.n_jobs)
    show_budgets(grid, found)
    show_inner_steps(grid, found)
    show_rounds(grid, found)
    draw(grid, found)


if __name__ == "__main__":
    main()
