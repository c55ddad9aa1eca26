"""Personalised models: similar agents learn from each other.

python examples/plot_personalized.py        writes examples/output/personalized.png

A hundred agents have a line each in the plane that parts two classes, 10 to 100 rows of them, and
publicly known interests: the more the angles of two lines agree, the more alike are the agents. It
takes a few seconds.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from skdpadmm import DPPersonalizedClassifier
from skdpadmm.network import Similarity, angle_similarity

OUTPUT = Path(__file__).parent / "output" / "personalized.png"
N_AGENTS, N_TEST, FLIPPED = 100, 100, 0.05
EPSILONS = [0.3, 1.0, 3.0, 10.0]
SEEDS = range(3)
PUBLIC: dict[str, Any] = {
    "alpha": 0.04,
    "trade_off": 10.0,
    "delta": 1e-5,
    "feature_bounds": (-1, 1),
    "classes": [-1, 1],
    "fit_intercept": False,
}

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Data:
    """Rows of agents, what they look for, and rows to judge by."""

    targets: Array
    X: Array
    y: NDArray[np.intp]
    owner: NDArray[np.intp]
    X_test: Array
    y_test: NDArray[np.intp]
    similarity: Similarity

    @property
    def sizes(self) -> NDArray[np.intp]:
        return np.bincount(self.owner, minlength=N_AGENTS)

    def rows_of(self, agent: int) -> tuple[Array, NDArray[np.intp]]:
        own = self.owner == agent
        return self.X[own], self.y[own]

    def accuracies(self, coef: Array) -> Array:
        """Of each agent's model on clean rows of its own."""
        scores = np.einsum("aij,aj->ai", self.X_test, coef)
        return np.asarray(np.mean(np.where(scores > 0, 1, -1) == self.y_test, axis=1))


def generate(seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    targets = rng.standard_normal((N_AGENTS, 2))
    owner = np.repeat(np.arange(N_AGENTS), rng.integers(10, 101, N_AGENTS))
    X = rng.uniform(-1, 1, size=(len(owner), 2))
    y = np.where(np.einsum("ij,ij->i", X, targets[owner]) > 0, 1, -1)
    y = np.where(rng.random(len(y)) < FLIPPED, -y, y)
    X_test = rng.uniform(-1, 1, size=(N_AGENTS, N_TEST, 2))
    y_test = np.where(np.einsum("aij,aj->ai", X_test, targets) > 0, 1, -1)
    return Data(targets, X, y, owner, X_test, y_test, angle_similarity(targets))


def personalized(data: Data, **parameters: Any) -> Any:
    model = DPPersonalizedClassifier(**{**PUBLIC, "similarity": data.similarity, **parameters})
    return model.fit(data.X, data.y, agents=data.owner)


def coefs(model: Any) -> Array:
    return np.asarray(model.coef_per_agent_[:, 0])


def at_home(data: Data, model: Any) -> Array:
    """What each agent keeps for itself: a model of its own rows and its neighbours' models."""
    own = [model.local_model(agent, *data.rows_of(agent)) for agent in range(N_AGENTS)]
    return np.stack([one.coef_[0] for one in own])


def show_plan(data: Data) -> None:
    title("1. Who is like whom, and the plan")
    print(data.similarity.describe())
    model = DPPersonalizedClassifier(**PUBLIC, similarity=data.similarity, epsilon=1.0)
    print(model.plan(len(data.X), 2, agent_sizes=data.sizes))


def learn(data: Data) -> dict[str, Array]:
    title("2. Models of agents")
    private = personalized(data, epsilon=1.0, random_state=0)
    alone = personalized(data, epsilon=1.0, algorithm="local-models", random_state=0)
    found = {
        "targets": data.targets,
        "local": coefs(personalized(data, epsilon=math.inf, algorithm="local-models")),
        "collaborative": coefs(personalized(data, epsilon=math.inf)),
        "local, epsilon 1": coefs(alone),
        "released, epsilon 1": coefs(private),
        "at home, epsilon 1": at_home(data, private),
    }
    few = data.sizes < 40
    print(f"{'accuracy on clean rows':24}{'all':>9}{'few rows':>10}{'angle':>8}")
    for name, coef in found.items():
        accuracies = data.accuracies(coef)
        off = np.degrees(angles(data.targets, coef)).mean()
        print(f"{name:24}{accuracies.mean():9.3f}{accuracies[few].mean():10.3f}{off:8.1f}")
    print(
        """
Agents with few rows gain most from their neighbours. What is released has noise; what an agent fits
again at home, beside its neighbours' released models, has none of its own, and costs nothing as
long as it stays there. Angles are those between models and targets, in degrees."""
    )
    return found


def angles(targets: Array, coef: Array) -> Array:
    products = np.einsum("ij,ij->i", targets, coef)
    lengths = np.linalg.norm(targets, axis=1) * np.linalg.norm(coef, axis=1)
    return np.arccos(np.clip(products / lengths, -1, 1))


def by_budget(data: Data) -> dict[str, Array]:
    """Mean accuracies, of shape (budgets,)."""
    title("3. What privacy costs")
    found = {name: np.empty((len(EPSILONS), len(SEEDS))) for name in ("local", "released", "home")}
    for i, epsilon in enumerate(EPSILONS):
        for j, seed in enumerate(SEEDS):
            # Seeds, to repeat the figure: these fits are simulations.
            model = personalized(data, epsilon=epsilon, random_state=seed)
            alone = personalized(data, epsilon=epsilon, algorithm="local-models", random_state=seed)
            found["local"][i, j] = data.accuracies(coefs(alone)).mean()
            found["released"][i, j] = data.accuracies(coefs(model)).mean()
            found["home"][i, j] = data.accuracies(at_home(data, model)).mean()
    means = {name: values.mean(axis=1) for name, values in found.items()}
    print(f"{'epsilon':24}" + "".join(f"{epsilon:9g}" for epsilon in EPSILONS))
    for name, values in means.items():
        print(f"{name:24}" + "".join(f"{value:9.3f}" for value in values))
    return means


def draw(data: Data, models: dict[str, Array], budgets: dict[str, Array]) -> None:
    fig, axes = plt.subplots(2, 4, figsize=(16, 8), layout="constrained")
    # Hues are periodic as directions are: a wrong model differs in colour from its neighbours.
    hues = plt.colormaps["hsv"]((np.arctan2(*data.targets.T[::-1]) / (2 * np.pi)) % 1)
    thick = 0.5 + 2.5 * data.sizes / data.sizes.max()
    for axis, (name, coef) in zip(axes.ravel(), models.items(), strict=False):
        # Only directions part classes.
        ends = coef / np.linalg.norm(coef, axis=1, keepdims=True)
        rays = [[(0.0, 0.0), tuple(end)] for end in ends * (0.4 + 0.6 * thick / 3)[:, None]]
        axis.add_collection(LineCollection(rays, colors=hues, linewidths=thick))
        axis.set_xlim(-1.05, 1.05)
        axis.set_ylim(-1.05, 1.05)
        axis.set_aspect("equal")
        axis.set_xticks([])
        axis.set_yticks([])
        accuracy = data.accuracies(coef).mean()
        axis.set_title(f"{name}: {accuracy:.3f}", loc="left", fontsize=10)
    rows, costs = axes[1, 2:]
    base = data.accuracies(models["local"])
    for k, name in enumerate(("collaborative", "at home, epsilon 1")):
        gains = data.accuracies(models[name]) - base
        rows.scatter(data.sizes, gains, s=12, color=f"C{k}", label=name)
    rows.axhline(0, color="0.5", linewidth=1)
    rows.set_xlabel("rows of the agent")
    rows.set_ylabel("accuracy above that of its local model")
    for k, (name, values) in enumerate(budgets.items()):
        costs.plot(EPSILONS, values, "o-", color=f"C{k}", label=f"private, {name}")
    for name, style in (("local", ":"), ("collaborative", "--")):
        mean = data.accuracies(models[name]).mean()
        costs.axhline(mean, color="0.5", linestyle=style, linewidth=1, label=f"{name}, not private")
    costs.set_xscale("log")
    costs.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    costs.minorticks_off()
    costs.set_xlabel("epsilon")
    costs.set_ylabel("mean accuracy")
    for axis in (rows, costs):
        axis.legend(frameon=False, fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    fig.suptitle("Directions of models; hue: the target, length and width: the number of rows")
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(OUTPUT, dpi=110)
    print(f"\nWrote {OUTPUT}")


def title(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


def main() -> None:
    mpl.use("Agg")
    warnings.simplefilter("error")
    data = generate()
    show_plan(data)
    models = learn(data)
    draw(data, models, by_budget(data))


if __name__ == "__main__":
    main()
