"""Multi-step ADMM over a graph on Adult: Figures 1 to 3."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import _data
import numpy as np
from baselines import (
    DualPerturbationADMM,
    GrowingPenaltyADMM,
    PrimalPerturbationADMM,
    RecycledADMM,
)
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from scipy import sparse

from figures._page import Comparison, rst_table, run_all, save
from skdpadmm import DPDecentralizedClassifier
from skdpadmm.algorithms import MultiStepADMM

TITLE = "Multi-step ADMM over a graph"
SOURCE = """\
Z. Huang, Y. Gong, "Differentially Private ADMM for Convex Distributed Learning: Improved Accuracy
via Multi-Step Approximation", 2020. Ours: `skdpadmm.algorithms.MultiStepADMM`.
"""
SETTING = """\
The setting is the paper's: Adult with 45,222 rows and 104 columns, rows of norm at most 1, 100
agents on a complete graph, logistic loss with penalty 1e-4, rho 1e-3, replace-one, delta 1e-5. The
paper leaves some choices open; here they are 20 rounds, a ball of diameter 10, and baselines with 5
steps towards each minimiser. Columns are divided by public bounds rather than by their maxima.
"Paper's weights" are the growing weights of the utility theorem with all steps averaged, "our
steps" the defaults of the library with ``row_norm=1``. Every method meets the same budget by its
own exact composition. Risk is the mean logistic loss of the training rows; "no noise" is epsilon
10,000.

The paper's baselines are in ``benchmarks/baselines``: PVP and DVP (Zhang and Zhu 2017), RADMM
(Zhang, Khalili and Liu 2020), and DPADMM (Huang et al. 2019), which takes one inner step. A growing
penalty (Zhang, Khalili and Liu 2018) is added to them. :doc:`errata` lists theorems that fail as
printed.
"""

Array = NDArray[np.float64]
N_AGENTS, N_ROUNDS, DELTA, STRENGTH, RHO, DIAMETER = 100, 20, 1e-5, 1e-4, 1e-3, 10.0
EPSILONS, INNER_STEPS, BY_ROUND = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0), (1, 5, 10, 25), (0.5, 1.0)
STEPS, NO_NOISE, LOG_2 = 10, 1e4, math.log(2)
PAPER, OURS = "paper's weights", "our steps"


@dataclass(frozen=True)
class Task:
    """What is fitted at once."""

    method: str
    epsilon: float
    inner_steps: int = STEPS
    seed: int = 0


RIVALS = {
    "DPADMM": Task(PAPER, 0.0, 1),
    "PVP": Task("PVP", 0.0),
    "DVP": Task("DVP", 0.0),
    "RADMM": Task("RADMM", 0.0),
    "growing penalty": Task("growing penalty", 0.0),
}
LINES = {PAPER: Task(PAPER, 0.0), OURS: Task(OURS, 0.0), **RIVALS}


@functools.cache
def rows() -> tuple[Any, NDArray[Any]]:
    """Adult with rows of norm 1 at most, and classes -1 and 1."""
    data = _data.load("adult")
    X = np.clip(data.X, data.lower, data.upper) / data.upper
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    return sparse.csr_array(X), data.target()


def algorithm(task: Task, norm: float) -> Any:
    """Of rows of that norm: rho and the diameter are those of rows of norm 1."""
    rho = RHO * norm**2
    if task.method == OURS:
        return MultiStepADMM(inner_steps=task.inner_steps, trace=True)
    if task.method == PAPER:
        return MultiStepADMM(
            inner_steps=task.inner_steps,
            clip_norm=1.0,
            proximal_weight="growing",
            diameter=DIAMETER / norm,
            penalty_weight=rho,
            tail_fraction=1.0,
            trace=True,
        )
    kinds = {
        "PVP": PrimalPerturbationADMM,
        "RADMM": RecycledADMM,
        "growing penalty": GrowingPenaltyADMM,
    }
    if task.method == "DVP":
        return DualPerturbationADMM(
            max_rounds=N_ROUNDS, clip_norm=1.0, penalty_weight=rho, trace=True
        )
    return kinds[task.method](inner_steps=5, clip_norm=1.0, penalty_weight=rho, trace=True)


def risks(task: Task) -> Array:
    """After each round, of the agents' average; the last one is of the model that is returned."""
    X, y = rows()
    is_default = task.method == OURS
    # Undeclared rows are clipped to this norm, which makes the units of algorithms known.
    norm = 1.0 if is_default else math.sqrt(X.shape[1])
    model = DPDecentralizedClassifier(
        # The paper adds up the losses of agents, each with a share of the penalty.
        alpha=STRENGTH / N_AGENTS * norm**2,
        epsilon=task.epsilon,
        delta=DELTA,
        topology="complete",
        n_agents=N_AGENTS,
        classes=[-1, 1],
        row_norm=1.0 if is_default else None,
        fit_intercept=False,
        algorithm=algorithm(task, norm),
        conditioning=None,
        scale=None,
        max_iter=N_ROUNDS,
        random_state=task.seed,
    ).fit(X * norm, y)
    coefs = np.vstack([model.coef_path_[:, 0], model.coef_])
    return np.asarray(np.logaddexp(0.0, -y * (X @ coefs.T * norm).T).mean(axis=1))


def comparisons(n_jobs: int, quick: bool) -> list[Comparison]:
    epsilons = (0.1, 1.0) if quick else EPSILONS
    inner_steps = (1, STEPS) if quick else INNER_STEPS
    seeds = range(1 if quick else 2)
    # Dual perturbation solves problems for many seconds.
    lines = {name: line for name, line in LINES.items() if not (quick and name == "DVP")}
    tasks = {
        Task(task.method, epsilon, k, seed)
        for seed in seeds
        for task, grid, steps in (
            *((LINES[name], (*epsilons, NO_NOISE), (STEPS,)) for name in (PAPER, OURS)),
            *((LINES[name], (1.0,), inner_steps) for name in (PAPER, OURS)),
            *((line, BY_ROUND, (line.inner_steps,)) for line in lines.values()),
        )
        for epsilon in grid
        for k in steps
    }
    # The long ones first, so that no process is left with one of them at the end.
    order = sorted(tasks, key=lambda t: (-25 * (t.method == "DVP") - t.inner_steps, t.seed))
    done = dict(zip(order, run_all(risks, order, n_jobs, "multi-step"), strict=True))

    def curve(task: Task, epsilon: float, steps: int | None = None) -> Array:
        k = steps or task.inner_steps
        found = [done[Task(task.method, epsilon, k, seed)] for seed in seeds]
        return np.asarray(np.mean(found, axis=0))

    budgets = {
        name: [curve(LINES[name], e)[-1] for e in (*epsilons, NO_NOISE)] for name in (PAPER, OURS)
    }
    by_steps = {name: [curve(LINES[name], 1.0, k)[-1] for k in inner_steps] for name in budgets}
    by_round = {
        epsilon: {name: curve(line, epsilon) for name, line in lines.items()}
        for epsilon in BY_ROUND
    }
    optimum = best_risk()
    image = draw(epsilons, inner_steps, budgets, by_steps, by_round, optimum)
    return compare(epsilons, inner_steps, budgets, by_steps, by_round, optimum, image)


def best_risk() -> float:
    """Without privacy: what exact ADMM converges to."""
    X, y = rows()
    model = DPDecentralizedClassifier(
        alpha=STRENGTH / N_AGENTS,
        epsilon=math.inf,
        n_agents=N_AGENTS,
        classes=[-1, 1],
        fit_intercept=False,
        random_state=0,
    ).fit(X, y)
    return float(np.logaddexp(0.0, -y * (X @ model.coef_[0])).mean())


def unrest(curve: Array) -> float:
    """Standard deviation of the risk over the later half of the rounds."""
    return float(curve[N_ROUNDS // 2 : N_ROUNDS].std())


def series(values: Any) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


def compare(
    epsilons: Any, inner_steps: Any, budgets: Any, by_steps: Any, by_round: Any, optimum: float,
    image: str,
) -> list[Comparison]:  # fmt: skip
    labels = [*(f"epsilon {e:g}" for e in epsilons), "no noise"]
    rows_ = [
        [
            name,
            *(text for e in BY_ROUND for text in (f"{by_round[e][name][-1]:.3f}",
                                                 f"{unrest(by_round[e][name]):.4f}")),
        ]
        for name in by_round[BY_ROUND[0]]
    ]  # fmt: skip
    ends = {e: {name: found[-1] for name, found in by_round[e].items()} for e in BY_ROUND}
    below = {
        name: [
            [r for r in RIVALS if r in ends[e] and not ends[e][name] < ends[e][r]] for e in BY_ROUND
        ]
        for name in (PAPER, OURS)
    }

    def not_beaten(name: str) -> str:
        both = [", ".join(found) or "none" for found in below[name]]
        return f"{both[0]} at epsilon .5 and {both[1]} at epsilon 1"

    above = [f"{e:g}" for e, risk in zip(epsilons, budgets[OURS], strict=False) if risk > LOG_2]
    calm = [min(by_round[e], key=lambda name, e=e: unrest(by_round[e][name])) for e in BY_ROUND]
    return [
        Comparison(
            "Figure 1",
            f"With {STEPS} inner steps the empirical risk falls as epsilon grows.",
            f"{PAPER}: {series(budgets[PAPER])}; {OURS}: {series(budgets[OURS])}, for epsilon"
            f" {', '.join(f'{e:g}' for e in epsilons)} and without noise. Without privacy the"
            f" minimum is {optimum:.3f}. The zero model has log 2 = 0.693: {OURS} are above it at"
            f" epsilon {', '.join(above) or 'none'}.",
            "They agree. With the weights of the theorem most of the distance to the minimum is"
            " not noise: after 20 rounds the algorithm has not converged without noise either.",
            table=rst_table(
                ["", *labels],
                [[name, *(f"{v:.3f}" for v in budgets[name])] for name in budgets],
            ),
        ),
        Comparison(
            "Figure 2",
            "At epsilon 1 the risk falls with the number of inner steps, from 1 to 25.",
            f"{PAPER}: {series(by_steps[PAPER])}; {OURS}: {series(by_steps[OURS])}, for"
            f" {', '.join(map(str, inner_steps))} inner steps.",
            "They agree up to 10 steps; beyond, noise offsets the gain of more steps. An inner"
            " step spends as much budget as a round with one step; it only saves messages.",
        ),
        Comparison(
            "Figure 3",
            "At epsilon .5 and 1 multi-step ADMM has less risk, and moves less from round to round,"
            " than PVP, DVP, RADMM and DPADMM.",
            f"Not below it in risk, {PAPER}: {not_beaten(PAPER)}; {OURS}: {not_beaten(OURS)}. The"
            f" calmest are {calm[0]} at epsilon .5 and {calm[1]} at epsilon 1.",
            "The paper does not state the composition of its baselines. By exact composition PVP,"
            " DVP and RADMM spend the budget on 20 or 10 solutions instead of 200 gradients. DVP"
            " takes several times as long as the others.",
            table=rst_table(
                ["", *(f"{what}, epsilon {e:g}" for e in BY_ROUND for what in ("risk", "unrest"))],
                rows_,
            ),
            image=image,
            caption="Risk on Adult against epsilon, inner steps and rounds",
        ),
    ]


def draw(
    epsilons: Any, inner_steps: Any, budgets: Any, by_steps: Any, by_round: Any, optimum: float
) -> str:
    fig, axes = plt.subplots(2, 2, figsize=(7, 5.4), layout="constrained")
    for k, name in enumerate(budgets):
        axes[0, 0].semilogx(epsilons, budgets[name][:-1], f"C{k}o-", label=name)
        axes[0, 0].axhline(budgets[name][-1], color=f"C{k}", linestyle=":", linewidth=1)
        axes[0, 1].plot(inner_steps, by_steps[name], f"C{k}o-", label=name)
    axes[0, 0].set_title("Figure 1 (dotted: no noise)")
    axes[0, 0].set_xlabel("epsilon")
    axes[0, 1].set_title("Figure 2: epsilon 1")
    axes[0, 1].set_xlabel("inner steps")
    for axis, (epsilon, curves) in zip(axes[1], by_round.items(), strict=True):
        for k, (name, found) in enumerate(curves.items()):
            axis.plot(np.arange(1, N_ROUNDS + 1), found[:-1], color=f"C{k}", label=name)
        axis.axhline(optimum, color="0.2", linestyle="-.", linewidth=1, label="not private")
        axis.set_title(f"Figure 3: epsilon {epsilon:g}")
        axis.set_xlabel("round")
        axis.set_ylim(0.3, 0.9)
    for axis in axes.ravel():
        axis.set_ylabel("risk")
    axes[0, 0].legend()
    axes[1, 1].legend(ncols=2)
    return save(fig, "multi_step")
