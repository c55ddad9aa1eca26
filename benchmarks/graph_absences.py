"""Adult over a graph whose agents are absent: accuracy round by round.

    python benchmarks/graph_absences.py            five splits, some minutes
    python benchmarks/graph_absences.py --quick    one split of 30 rounds, for a look

40 agents hold 1,000 rows of Adult each, over a ring and over a random graph in which everybody has
four neighbours. In each round an agent is absent with probability 0, 0.2 or 0.5. The budget is
epsilon=2 against an eavesdropper, and absences do not change it: the script checks that plans with
them have the same guarantee. "round k" is the accuracy on test rows of the models that agents have
after that round, averaged over agents; "agents" and "average" are those of the fit: each agent's
tail average, and the average over agents.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from pathlib import Path
from typing import Any

import _data
import matplotlib as mpl
import numpy as np
import threadpoolctl
from matplotlib import pyplot as plt
from numpy.typing import NDArray

from skdpadmm import DPDecentralizedClassifier
from skdpadmm.algorithms import Algorithm, DecentralizedGradientDescent, MultiStepADMM

OUTPUT = Path(__file__).parent / "output" / "graph_absences.png"
N_AGENTS, N_TRAIN, EPSILON, DELTA = 40, 40_000, 2.0, 1e-5
GRAPHS = ("ring", "regular")
ALGORITHMS: tuple[type[Algorithm], ...] = (MultiStepADMM, DecentralizedGradientDescent)
ABSENT = (0.0, 0.2, 0.5)
SHOWN = (1, 3, 10, 30, 100)

Array = NDArray[np.float64]
Case = tuple[str, type[Algorithm], float]


def model_of(case: Case, n_rounds: int, split: int) -> Any:
    graph, algorithm, absent = case
    data = _data.load("adult")
    return DPDecentralizedClassifier(
        epsilon=EPSILON,
        delta=DELTA,
        topology=graph,
        participation=1 - absent,
        n_agents=N_AGENTS,
        algorithm=algorithm(trace=True),
        classes=[0, 1],
        feature_bounds=(data.lower, data.upper),
        max_iter=n_rounds,
        random_state=split,
    )


def accuracies(case: Case, n_rounds: int, split: int) -> tuple[Array, Array]:
    """Mean accuracy of agents after each round; that of the fit's own models and of their mean."""
    data = _data.load("adult")
    order = np.random.default_rng(split).permutation(len(data.y))
    train, test = order[:N_TRAIN], order[N_TRAIN:]
    model = model_of(case, n_rounds, split).fit(data.X[train], data.y[train])
    X, y = data.X[test], data.y[test] == 1

    def correct(coef: Array, intercept: Array) -> Array:
        scores = X @ coef.reshape(-1, X.shape[1]).T + intercept.reshape(-1)
        return np.asarray(np.mean((scores > 0) == y[:, None], axis=0))

    path = [
        correct(model.coef_per_agent_path_[k], model.intercept_per_agent_path_[k]).mean()
        for k in range(n_rounds)
    ]
    own = correct(model.coef_per_agent_, model.intercept_per_agent_).mean()
    return np.array(path), np.array([own, model.score(data.X[test], data.y[test])])


def check_guarantees(n_rounds: int) -> None:
    """Absences change nothing in what a plan guarantees."""
    n_features = _data.load("adult").X.shape[1]
    for graph, algorithm in itertools.product(GRAPHS, ALGORITHMS):
        models = [model_of((graph, algorithm, absent), n_rounds, 0) for absent in ABSENT]
        plans = [model.plan(N_TRAIN, n_features) for model in models]
        assert len({plan.guarantee() for plan in plans}) == 1
        epsilon = plans[0].guarantee().epsilon(DELTA)
        print(f"{algorithm.__name__:30}{graph:9} epsilon={epsilon:.3f}")


def draw(found: dict[Case, Array], n_rounds: int) -> None:
    fig, axes = plt.subplots(
        1, 4, figsize=(12, 3.2), layout="constrained", sharex=True, sharey=True
    )
    rounds = np.arange(1, n_rounds + 1)
    panels = zip(axes, itertools.product(ALGORITHMS, GRAPHS), strict=True)
    for axis, (algorithm, graph) in panels:
        for absent, color in zip(ABSENT, ("0.2", "C0", "C3"), strict=True):
            path = found[graph, algorithm, absent]
            axis.plot(rounds, path, color=color, label=f"{absent:.0%} absent")
        axis.set_xscale("log")
        axis.set_xlabel("round")
        axis.set_title(f"{algorithm.__name__}\n{graph}", loc="left", fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("mean accuracy of agents, Adult")
    axes[0].legend(frameon=False, fontsize=8)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(OUTPUT, dpi=120)
    print(f"\nWrote {OUTPUT}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one split of 30 rounds")
    parser.add_argument("--n-splits", type=int, default=5)
    options = parser.parse_args()
    mpl.use("Agg")
    warnings.simplefilter("ignore", UserWarning)
    n_rounds, n_splits = (30, 1) if options.quick else (100, options.n_splits)
    check_guarantees(n_rounds)
    print(f"\nAdult, accuracy on test rows, means over {n_splits} splits")
    shown = [k for k in SHOWN if k <= n_rounds]
    head = "".join(f"{f'round {k}':>10}" for k in shown)
    print(f"{'':48}{head}{'agents':>10}{'average':>10}")
    found: dict[Case, Array] = {}
    for algorithm, graph, absent in itertools.product(ALGORITHMS, GRAPHS, ABSENT):
        case = (graph, algorithm, absent)
        with threadpoolctl.threadpool_limits(1):
            runs = [accuracies(case, n_rounds, split) for split in range(n_splits)]
        found[case] = np.mean([path for path, _ in runs], axis=0)
        ends = np.mean([end for _, end in runs], axis=0)
        values = [*(found[case][k - 1] for k in shown), *ends]
        name = f"{algorithm.__name__:30}{graph:9}{absent:4.0%}"
        print(f"{name:48}" + "".join(f"{value:10.3f}" for value in values), flush=True)
    draw(found, n_rounds)


if __name__ == "__main__":
    main()
