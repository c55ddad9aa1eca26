"""Adult against epsilon: a federation under its three adversaries, and the curator it does without.

    python benchmarks/federated_tradeoff.py            ten splits, about ten minutes on one core
    python benchmarks/federated_tradeoff.py --quick    two splits and two budgets

36,000 training rows at 100 agents of equal size, the rest is the test set; unit record,
replace-one, delta 1e-5, public bounds, defaults throughout. Beside each adversary stands a curator
whose model has as much noise: whoever sees the model of a fit learns no more than the report says
under "model", and that is the epsilon which the curator spends. So a difference of the two is
what a federation costs beyond its noise. There is none by design, and a column that falls behind
shows bad defaults.

A second table protects whole agents, a thousand of them, against "sums" and "model". There each
agent takes a gradient step in a round, because to solve its problem exactly takes many times as
long (`FederatedADMM(local_step="linearized")`); all else is a default.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _data
import matplotlib as mpl
import numpy as np
import threadpoolctl
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from tqdm import tqdm

from skdpadmm import DPAdmmLogisticRegression, DPFedLogisticRegression
from skdpadmm.algorithms import FederatedADMM

OUTPUT = Path(__file__).parent / "output" / "federated_tradeoff.png"
EPSILONS, DELTA = (0.5, 1.0, 2.0, 4.0, 8.0), 1e-5
N_TRAIN, N_AGENTS, N_PROTECTED_AGENTS, N_SPLITS = 36_000, 100, 1_000, 10
ADVERSARIES = ("server", "sums", "model")
# Agents that share no noise, and so assume nothing about each other.
ALONE = "server, edge_noise=0"

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """Mean and standard error of accuracies on test rows."""

    mean: float
    error: float

    def __str__(self) -> str:
        return f"{self.mean:.4f} +- {self.error:.4f}"


@dataclass(frozen=True)
class Task:
    """What is fitted at once; everything is named, so that it can be sent to a process."""

    title: str
    epsilon: float
    split: int
    n_rounds: int


def score_of(values: Iterable[float]) -> Score:
    found = np.array(list(values))
    return Score(float(found.mean()), float(found.std(ddof=1) / np.sqrt(len(found))))


# --------------------------------------------------------------------------------------------------
# Models


def federated(adversary: str, epsilon: float, **parameters: Any) -> Any:
    settings = {"n_agents": N_AGENTS, "neighboring": "replace_one", "delta": DELTA, **parameters}
    return DPFedLogisticRegression(epsilon=epsilon, adversary=adversary, **schema(), **settings)


def curator(epsilon: float) -> Any:
    return DPAdmmLogisticRegression(
        epsilon=epsilon, delta=DELTA, neighboring="replace_one", **schema()
    )


def curator_with_noise_of(adversary: str, epsilon: float) -> Any:
    """A curator who spends what the model of a federation reveals."""
    return curator(plan_of(federated(adversary, epsilon)).guarantee("model").epsilon(DELTA))


def protecting_agents(adversary: str, epsilon: float) -> Any:
    return federated(
        adversary,
        epsilon,
        n_agents=N_PROTECTED_AGENTS,
        privacy_unit="agent",
        algorithm=FederatedADMM(local_step="linearized"),
    )


def plan_of(model: Any) -> Any:
    return model.plan(n_samples=N_TRAIN, n_features=_data.load("adult").X.shape[1])


def schema() -> dict[str, Any]:
    data = _data.load("adult")
    return {"classes": [0, 1], "feature_bounds": (data.lower, data.upper)}


def models() -> dict[str, Callable[[float], Any]]:
    """A model of epsilon for each line of the tables."""
    found: dict[str, Callable[[float], Any]] = {}
    for name in ADVERSARIES:
        found[name] = lambda epsilon, name=name: federated(name, epsilon)
    for name in ADVERSARIES:
        found[noise_of(name)] = lambda epsilon, name=name: curator_with_noise_of(name, epsilon)
    found["curator"] = curator
    found[ALONE] = lambda epsilon: federated(
        "server", epsilon, algorithm=FederatedADMM(edge_noise=0)
    )
    for name in ADVERSARIES[1:]:
        found[agents(name)] = lambda epsilon, name=name: protecting_agents(name, epsilon)
    return found


def noise_of(adversary: str) -> str:
    return f"curator, noise of {adversary}"


def agents(adversary: str) -> str:
    return f"{adversary}, unit agent"


# --------------------------------------------------------------------------------------------------
# Runs


def rows_of(split: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    order = np.random.default_rng(split).permutation(len(_data.load("adult").y))
    return order[:N_TRAIN], order[N_TRAIN:]


def run(task: Task) -> float:
    """Accuracy on the test rows of a split, which is the seed too."""
    data = _data.load("adult")
    train, test = rows_of(task.split)
    model = models()[task.title](task.epsilon)
    model.set_params(random_state=task.split, max_iter=task.n_rounds)
    with threadpoolctl.threadpool_limits(1):
        return float(model.fit(data.X[train], data.y[train]).score(data.X[test], data.y[test]))


def run_all(
    titles: Iterable[str], epsilons: Iterable[float], n_splits: int, options: argparse.Namespace
) -> dict[tuple[str, float], Score]:
    cells = itertools.product(titles, epsilons, range(n_splits))
    tasks = [Task(*cell, n_rounds=options.n_rounds) for cell in cells]
    with ProcessPoolExecutor(options.n_jobs) as pool:
        values = list(tqdm(pool.map(run, tasks), total=len(tasks), desc="fits"))
    found: dict[tuple[str, float], list[float]] = {}
    for task, value in zip(tasks, values, strict=True):
        found.setdefault((task.title, task.epsilon), []).append(value)
    return {cell: score_of(scores) for cell, scores in found.items()}


def references(n_splits: int) -> dict[str, Score]:
    """Without privacy, and without looking at the features."""
    data = _data.load("adult")
    rows = data.rows()[:, :-1]
    fitted, constant = [], []
    for split in range(n_splits):
        train, test = rows_of(split)
        model = LogisticRegression(max_iter=200).fit(rows[train], data.y[train])
        fitted.append(float(model.score(rows[test], data.y[test])))
        constant.append(float(np.mean(data.y[test] == round(data.y[train].mean()))))
    return {"not private": score_of(fitted), "constant": score_of(constant)}


# --------------------------------------------------------------------------------------------------
# Tables and the picture


def show(
    title: str, lines: Iterable[str], found: dict[tuple[str, float], Score], epsilons: list[float]
) -> None:
    print(f"\n{title}")
    print(f"{'':26}" + "".join(f"{f'epsilon={epsilon:g}':>20}" for epsilon in epsilons))
    for line in lines:
        print(f"{line:26}" + "".join(f"{found[line, e]!s:>20}" for e in epsilons))


def show_figures(epsilons: list[float]) -> None:
    """What each observer learns, whichever the budget is spent against."""
    print("\nEpsilon that the report gives each observer, for epsilon=1 spent against one of them")
    print(f"{'spent against':16}" + "".join(f"{name:>10}" for name in ADVERSARIES))
    for name in ADVERSARIES:
        plan = plan_of(federated(name, 1.0))
        figures = [plan.guarantee(observer).epsilon(DELTA) for observer in ADVERSARIES]
        print(f"{name:16}" + "".join(f"{figure:10.3f}" for figure in figures))


def draw(
    found: dict[tuple[str, float], Score], lines: dict[str, Score], epsilons: list[float]
) -> None:
    fig, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
    panels = [
        (axes[0], (*ADVERSARIES, "curator"), f"unit record, {N_AGENTS} agents"),
        (axes[1], [agents(a) for a in ADVERSARIES[1:]], f"unit agent, {N_PROTECTED_AGENTS:,}"),
    ]
    colors = {"server": "C3", "sums": "C1", "model": "C0", "curator": "0.2"}
    for axis, titles, heading in panels:
        for title in titles:
            name = title.partition(",")[0]
            scores = [found[title, epsilon] for epsilon in epsilons]
            axis.errorbar(
                epsilons,
                [score.mean for score in scores],
                yerr=[score.error for score in scores],
                color=colors[name],
                linestyle="--" if name == "curator" else "-",
                marker="o",
                capsize=3,
                label=name,
            )
        for (name, score), style in zip(lines.items(), ("-.", ":"), strict=True):
            axis.axhline(score.mean, color="0.6", linestyle=style, linewidth=1, label=name)
        axis.set_xscale("log")
        axis.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        axis.minorticks_off()
        axis.set_xlabel(f"epsilon against the adversary, delta={DELTA:g}")
        axis.set_title(heading, loc="left", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("accuracy on test rows, Adult")
    axes[0].legend(frameon=False, fontsize=8)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(OUTPUT, dpi=120)
    print(f"\nWrote {OUTPUT}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two splits and two budgets")
    parser.add_argument("--n-splits", type=int, default=N_SPLITS)
    parser.add_argument("--n-rounds", type=int, default=100, help="100 is the default of fits")
    parser.add_argument("--n-jobs", type=int, default=2, help="processes")
    options = parser.parse_args()
    mpl.use("Agg")
    epsilons = [1.0, 8.0] if options.quick else list(EPSILONS)
    n_splits = 2 if options.quick else options.n_splits
    print(f"Adult: accuracy on test rows, mean and standard error over {n_splits} splits")
    show_figures(epsilons)
    per_record = [*ADVERSARIES, "curator", *map(noise_of, ADVERSARIES), ALONE]
    per_agent = [agents(name) for name in ADVERSARIES[1:]]
    lines = references(n_splits)
    found = run_all(per_record, epsilons, n_splits, options)
    # A fit of agents that are units takes long: a few splits.
    found |= run_all(per_agent, epsilons, min(n_splits, 3), options)
    show(f"Unit record, {N_AGENTS} agents of equal size", per_record, found, epsilons)
    show(f"Unit agent, {N_PROTECTED_AGENTS:,} agents, up to 3 splits", per_agent, found, epsilons)
    print()
    for name, score in lines.items():
        print(f"{name:26}{score!s:>20}")
    draw(found, lines, epsilons)


if __name__ == "__main__":
    main()
