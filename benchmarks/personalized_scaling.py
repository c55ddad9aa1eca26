"""Running time of a wake-up of a personalised agent, for a hundred to a hundred thousand agents.

    python benchmarks/personalized_scaling.py            100 to 100,000 agents, some minutes
    python benchmarks/personalized_scaling.py --quick    100 and 1,000, for a look

Agents are points in the plane, each like its ten nearest ones; every one has 20 rows of 20
features, or they share 2,000,000 rows. A sweep is one noisy turn of every agent
(`PersonalizedCoordinateDescent`, from zero). Its time is the difference of a long and a short fit
over the difference of their turns, so that nothing counts that happens once, and a wake-up is a
sweep over the number of agents. Passes are products ``X @ w`` with one BLAS thread in the same run,
beside each difference; figures are medians.

Agents that are no neighbours are computed at once, in waves, and a sweep has the more of them, the
longer the longest chain of neighbours is who woke up one after another: hardly more for more
agents. The number of waves is public and shown. Nothing printed here depends on the values in the
data.
"""

from __future__ import annotations

import argparse
import os
import statistics
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import threadpoolctl
from federated_scaling import seconds
from matplotlib import pyplot as plt
from numpy.typing import NDArray

from skdpadmm import DPPersonalizedClassifier, DPPersonalizedRegressor
from skdpadmm.algorithms import PersonalizedCoordinateDescent
from skdpadmm.network import Similarity, knn_similarity

OUTPUT = Path(__file__).parent / "output" / "personalized_scaling.png"
N_NEIGHBORS, ROWS_EACH, N_FEATURES = 10, 20, 20
ROWS_IN_ALL = 2_000_000
# The long fit has enough wake-ups to be measured, and uses not too many rows.
SHORT, MOST_ROWS, LEAST_WAKES = 1, 20_000_000, 20_000
MODELS = ("ridge", "logistic")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Agents:
    """Rows of agents, and who is like whom."""

    X: Array
    targets: dict[str, Array]
    labels: NDArray[np.intp]
    similarity: Similarity

    @property
    def n_agents(self) -> int:
        return self.similarity.n_agents

    @property
    def long(self) -> int:
        """Turns of the long fit."""
        return SHORT + max(2, min(LEAST_WAKES // self.n_agents, MOST_ROWS // len(self.X)))

    def estimator(self, model: str, turns: int) -> Any:
        settings: dict[str, Any] = {
            "similarity": self.similarity,
            "feature_bounds": (-1, 1),
            "delta": 1e-8,
            "algorithm": PersonalizedCoordinateDescent(
                turns=turns, warm_start=None, averaging_wakes=0
            ),
            "max_iter": turns,
            "random_state": 0,
        }
        if model == "ridge":
            return DPPersonalizedRegressor(target_bounds=(-1, 1), **settings)
        return DPPersonalizedClassifier(classes=[-1, 1], **settings)


def make_agents(n_agents: int, rows_each: int = ROWS_EACH) -> Agents:
    """Directions that change slowly over the unit square."""
    rng = np.random.default_rng(0)
    places = rng.random((n_agents, 2))
    directions = np.cos(places @ rng.uniform(-3, 3, size=(2, N_FEATURES)))
    labels = np.repeat(np.arange(n_agents), rows_each)
    X = rng.uniform(-1, 1, size=(len(labels), N_FEATURES))
    scores = np.einsum("ij,ij->i", X, directions[labels]) / N_FEATURES
    targets = {"ridge": scores, "logistic": np.where(scores > 0, 1.0, -1.0)}
    return Agents(X, targets, labels, knn_similarity(places, N_NEIGHBORS))


@dataclass(frozen=True)
class Sweep:
    """What a turn of every agent costs: differences of times, and passes beside each."""

    model: str
    n_agents: int
    n_waves: float
    times: tuple[float, ...]
    ratios: tuple[float, ...]

    @property
    def seconds(self) -> float:
        return statistics.median(self.times)

    @property
    def passes(self) -> float:
        return statistics.median(self.ratios)

    @property
    def microseconds(self) -> float:
        """Of one wake-up."""
        return 1e6 * self.seconds / self.n_agents


def waves_of_sweep(agents: Agents) -> float:
    """Waves of independent wake-ups in a sweep, in the long run."""
    rng, n_sweeps = np.random.default_rng(0), agents.long - SHORT
    order = rng.permuted(np.repeat(np.arange(agents.n_agents), n_sweeps))
    # Steps that heed noise are adjusted after as many wake-ups as there are agents.
    parts = order.reshape(n_sweeps, agents.n_agents)
    return statistics.fmean(int(agents.similarity.wave_numbers(p).max()) + 1 for p in parts)


def measure(agents: Agents, model: str, repeats: int) -> Sweep:
    """A sweep by the difference of a long and a short fit, beside passes over the data."""
    w = np.random.default_rng(1).standard_normal(N_FEATURES)
    short, long = (agents.estimator(model, turns) for turns in (SHORT, agents.long))
    X, y = agents.X, agents.targets[model]
    times, ratios = [], []
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        for _ in range(repeats):
            products = [seconds(lambda: X @ w) for _ in range(5)]
            few = seconds(lambda: short.fit(X, y, agents=agents.labels))
            products += [seconds(lambda: X @ w) for _ in range(5)]
            many = seconds(lambda: long.fit(X, y, agents=agents.labels))
            products += [seconds(lambda: X @ w) for _ in range(5)]
            times.append((many - few) / (agents.long - SHORT))
            ratios.append(times[-1] / statistics.median(products))
    return Sweep(model, agents.n_agents, waves_of_sweep(agents), tuple(times), tuple(ratios))


def show(title: str, sizes: list[int], rows: list[int], *, repeats: int) -> list[Sweep]:
    print(f"\n{title}")
    print(
        f"{'model':9} {'agents':>7} {'ms a sweep':>11} {'us a wake-up':>13} {'passes':>8}"
        f"  {'range':16} {'waves':>7}"
    )
    found = []
    for n_agents, rows_each in zip(sizes, rows, strict=True):
        agents = make_agents(n_agents, rows_each)
        for model in MODELS:
            one = measure(agents, model, repeats)
            spread = f"{min(one.ratios):.1f} to {max(one.ratios):.1f}"
            print(
                f"{model:9} {n_agents:7,} {1e3 * one.seconds:11.2f} {one.microseconds:13.2f}"
                f" {one.passes:8.1f}  {spread:16} {one.n_waves:7.1f}",
                flush=True,
            )
            found.append(one)
    return found


def show_growth(found: list[Sweep]) -> None:
    print(f"\nA wake-up with {ROWS_EACH} rows, from the fewest agents to the most")
    for model in MODELS:
        costs = [one.microseconds for one in found if one.model == model]
        print(
            f"{model:9} dearest over cheapest {max(costs) / min(costs):.2f};"
            f" {found[-1].n_agents:,} over {found[0].n_agents:,} agents {costs[-1] / costs[0]:.2f}"
        )


def draw(found: list[Sweep], shared: list[Sweep], title: str) -> None:
    fig, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for k, model in enumerate(MODELS):
        chosen = [one for one in found if one.model == model]
        sizes = [one.n_agents for one in chosen]
        style: dict[str, Any] = {"color": f"C{k}", "marker": "o", "label": model}
        axes[0].plot(sizes, [one.microseconds for one in chosen], **style)
        axes[1].plot(sizes, [one.passes for one in chosen], **style)
        passes = [one.passes for one in shared if one.model == model]
        style |= {"linestyle": "--", "label": f"{model}, {ROWS_IN_ALL:,} rows in all"}
        axes[1].plot(sizes, passes, **style)
    axes[0].set_ylabel("microseconds of a wake-up")
    axes[1].set_ylabel("a sweep, in passes over the data")
    for axis in axes:
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("agents")
        axis.legend(frameon=False, fontsize=6)
        axis.spines[["top", "right"]].set_visible(False)
    fig.suptitle(title, fontsize=10)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(OUTPUT, dpi=120)
    print(f"\nWrote {OUTPUT}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few agents")
    parser.add_argument("--repeats", type=int, default=3, help="differences behind each median")
    options = parser.parse_args()
    mpl.use("Agg")
    # Agents of twenty rows: noise is large here, and of no importance.
    warnings.simplefilter("ignore", UserWarning)
    quick = options.quick
    sizes = [100, 1_000] if quick else [100, 1_000, 10_000, 100_000]
    load = os.getloadavg()[0]
    title = f"{N_FEATURES} features, float64, {os.cpu_count()} cores, load {load:.1f} at the start"
    print(title)
    warm = make_agents(100)
    for model in MODELS:
        warm.estimator(model, 2).fit(warm.X, warm.targets[model], agents=warm.labels)
    repeats = 1 if quick else options.repeats
    found = show(f"{ROWS_EACH} rows each", sizes, [ROWS_EACH] * len(sizes), repeats=repeats)
    show_growth(found)
    total = ROWS_IN_ALL // 20 if quick else ROWS_IN_ALL
    rows = [total // n_agents for n_agents in sizes]
    shared = show(f"{total:,} rows in all", sizes, rows, repeats=repeats)
    draw(found, shared, title)


if __name__ == "__main__":
    main()
