"""Secret sharing and random aggregators: sums that hide each agent, and secret mixing weights.

python examples/plot_local_privacy.py        writes examples/output/local_privacy.png

Twenty agents on a random graph part two classes in the plane. It takes half a minute.
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
from numpy.typing import NDArray
from plot_federated import first_lines, title

from skdpadmm import DPDecentralizedClassifier
from skdpadmm.algorithms import RandomizedADMM, SecretSharingGradientDescent
from skdpadmm.privacy import GaussianDP, LaplaceDP, compose

OUTPUT = Path(__file__).parent / "output" / "local_privacy.png"
N_AGENTS, ROWS, N_FEATURES, DELTA = 20, 500, 5, 1e-5
# Of each round, if all entries attain their sensitivity.
LOSS, LENGTHS = 0.05, (1, 2, 5, 10, 20, 50, 100)
COALITION = 4
EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0)
SEEDS = range(3)
PUBLIC: dict[str, Any] = {
    "delta": DELTA,
    "topology": "erdos-renyi",
    "n_agents": N_AGENTS,
    "feature_bounds": (-1, 1),
    "classes": [-1, 1],
    "alpha": 1e-3,
}
METHODS = {
    "secret sharing": ("secret-sharing-gradient-descent", "C0"),
    "multi-step ADMM": ("multi-step-admm", "C1"),
    "random aggregators": (RandomizedADMM(noise="gaussian"), "C2"),
    "fixed aggregators": (RandomizedADMM(noise="gaussian", aggregator="fixed"), "C3"),
}

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Losses:
    """Privacy losses of an agent after so many rounds."""

    worst: Array
    epsilon: Array
    random: Array
    fixed: Array


@dataclass(frozen=True)
class Sums:
    """Epsilon after so many rounds with the same noise of every agent."""

    own: Array
    peers: Array
    model: Array


def generate(n: int, seed: int) -> tuple[Array, NDArray[np.intp]]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, N_FEATURES))
    score = X @ np.linspace(1, -1, N_FEATURES) + 0.3 * rng.logistic(size=n)
    return X, np.where(score > 0, 1, -1)


def classifier(algorithm: Any, epsilon: float, seed: int = 0, **parameters: Any) -> Any:
    # Seeds, to repeat the figure: these fits are simulations.
    return DPDecentralizedClassifier(
        **PUBLIC, algorithm=algorithm, epsilon=epsilon, random_state=seed, **parameters
    )


def by_rounds() -> Losses:
    """Longer and longer runs, each with a budget that leaves a round the same noise."""
    X, y = generate(N_AGENTS * ROWS, 0)
    budgets = [compose(*[LaplaceDP(LOSS)] * k).epsilon(DELTA) for k in LENGTHS]
    averages = {
        aggregator: [
            classifier(RandomizedADMM(aggregator=aggregator), epsilon, max_iter=k)
            .fit(X, y)
            .expected_privacy_loss_.mean()
            for k, epsilon in zip(LENGTHS, budgets, strict=True)
        ]
        for aggregator in ("random", "fixed")
    }
    return Losses(
        worst=LOSS * np.array(LENGTHS),
        epsilon=np.array(budgets),
        random=np.array(averages["random"]),
        fixed=np.array(averages["fixed"]),
    )


def show_losses(found: Losses) -> None:
    title("1. Nobody knows how an agent mixed")
    print(f"{'rounds':32}" + "".join(f"{k:>8}" for k in LENGTHS))
    for name, values in (
        ("worst case of all losses", found.worst),
        ("average loss, fixed weights", found.fixed),
        ("average loss, random weights", found.random),
        (f"epsilon at delta {DELTA:g}, either", found.epsilon),
    ):
        print(f"{name:32}" + "".join(f"{value:8.3f}" for value in values))
    print(
        f"""
Random weights take {1 - found.random[-1] / found.worst[-1]:.0%} off the average of the absolute \
loss. That is a diagnostic,
`expected_privacy_loss_`, and promises nothing to anybody. What is promised is epsilon, the same for
both; in long runs exact composition takes far more off the worst case than any mix does."""
    )


def show_sums() -> Sums:
    title("2. Nobody sees more than a sum")
    K = LENGTHS[-1]
    model = classifier(
        SecretSharingGradientDescent(), 1.0, coalition=COALITION, conditioning=None, max_iter=K
    )
    plan = model.plan(n_samples=N_AGENTS * ROWS, n_features=N_FEATURES)
    print(first_lines(plan, 8))
    gradients = plan.releases[-1]
    # With visible messages the agent's own noise alone would protect it.
    own = gradients.sensitivities[0] * math.sqrt(K) / gradients.agent_noise_std[0]
    totals = {
        "own": own,
        "peers": plan.guarantee("peer").mu,
        "model": plan.guarantee("model").mu,
    }
    found = {
        name: np.array([GaussianDP(mu * math.sqrt(k / K)).epsilon(DELTA) for k in LENGTHS])
        for name, mu in totals.items()
    }
    print(f"\n{'rounds':32}" + "".join(f"{k:>8}" for k in LENGTHS))
    for name, label in (
        ("own", "visible messages"),
        ("peers", f"sums, {COALITION} colluding peers"),
        ("model", "sums, the public"),
    ):
        print(f"{label:32}" + "".join(f"{value:8.3f}" for value in found[name]))
    print(
        f"""
The same noise, of the same agents. Where only sums are seen an agent is hidden by the noise of all
who are not in league: {N_AGENTS - COALITION} of {N_AGENTS} here, its own included."""
    )
    return Sums(**found)


def by_budget() -> dict[str, Array]:
    """Accuracies on other rows, of shape (n_epsilons, n_seeds)."""
    title("3. Accuracy at the same total budget")
    X_test, y_test = generate(20_000, 10**6)
    found = {}
    print(f"{'epsilon':32}" + "".join(f"{epsilon:>8g}" for epsilon in EPSILONS))
    for name, (algorithm, _) in METHODS.items():
        values = [
            [
                classifier(algorithm, epsilon, seed)
                .fit(*generate(N_AGENTS * ROWS, seed))
                .score(X_test, y_test)
                for seed in SEEDS
            ]
            for epsilon in EPSILONS
        ]
        found[name] = np.array(values)
        print(f"{name:32}" + "".join(f"{mean:8.3f}" for mean in found[name].mean(axis=1)))
    return found


def draw(losses: Losses, sums: Sums, scores: dict[str, Array]) -> None:
    fig, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
    left.plot(LENGTHS, losses.worst, "k:", label="worst case, and average of fixed weights")
    left.plot(LENGTHS, losses.random, "C2", label="average, random weights: no guarantee")
    left.plot(LENGTHS, losses.epsilon, "C0", label=f"epsilon at delta {DELTA:g}, either")
    left.set_title("Losses of an agent, random aggregators", loc="left", fontsize=10)
    middle.plot(LENGTHS, sums.own, "k:", label="visible messages")
    middle.plot(LENGTHS, sums.peers, "C1", label=f"sums, {COALITION} of {N_AGENTS} in league")
    middle.plot(LENGTHS, sums.model, "C0", label="sums, the public")
    middle.set_title("Epsilon with the same noise, secret sharing", loc="left", fontsize=10)
    for axis in (left, middle):
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("rounds")
    for name, (_, color) in METHODS.items():
        style = "--" if name.startswith("fixed") else "-"
        right.plot(EPSILONS, scores[name].mean(axis=1), style, color=color, marker="o", label=name)
    right.set_xscale("log")
    right.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    right.minorticks_off()
    right.set_xlabel(f"epsilon at delta {DELTA:g}")
    right.set_title("Accuracy on other rows", loc="left", fontsize=10)
    for axis in (left, middle, right):
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(OUTPUT, dpi=110)
    print(f"\nWrote {OUTPUT}")


def main() -> None:
    mpl.use("Agg")
    # Small budgets are the question here.
    warnings.simplefilter("ignore", UserWarning)
    losses = by_rounds()
    show_losses(losses)
    sums = show_sums()
    draw(losses, sums, by_budget())


if __name__ == "__main__":
    main()
