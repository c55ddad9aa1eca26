"""What a round over a graph costs: agents from ten to ten thousand over the same rows.

    python benchmarks/decentralized_scaling.py            1,000,000 x 50, some minutes
    python benchmarks/decentralized_scaling.py --quick    20,000 x 20, for a look: no verdict

A round is one noisy gradient step of every agent and a broadcast along all edges
(`MultiStepADMM(inner_steps=1)`), over a ring, a random graph in which everybody has four
neighbours, and a small world. Time is counted as in `federated_scaling.py`: in passes over the
data, products ``X @ w`` with one BLAS thread in the same run, from the difference of a long and a
short fit. It passes where a round costs at most 3 passes, whatever the graph and the number of
agents. Nothing printed here depends on the values in the data.
"""

from __future__ import annotations

import argparse
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from federated_scaling import (
    BAR,
    PUBLIC,
    Case,
    Round,
    make_data,
    show_rounds,
)
from matplotlib import pyplot as plt

from skdpadmm import DPDecentralizedClassifier, DPDecentralizedRegressor
from skdpadmm.algorithms import MultiStepADMM

OUTPUT = Path(__file__).parent / "output" / "decentralized_scaling.png"
GRAPHS = ("ring", "regular", "watts-strogatz")


@dataclass(frozen=True)
class OverGraph(Case):
    """One network; its variant is the graph."""

    def estimator(self, n_rounds: int) -> Any:
        settings: dict[str, Any] = {
            "n_agents": self.n_agents,
            "topology": self.variant,
            "privacy_unit": self.unit,
            "algorithm": MultiStepADMM(inner_steps=1),
            "max_iter": n_rounds,
            **PUBLIC,
        }
        if self.model == "ridge":
            return DPDecentralizedRegressor(target_bounds=(-1, 1), **settings)
        return DPDecentralizedClassifier(classes=[-1, 1], **settings)


def draw(found: list[Round], title: str) -> None:
    fig, axis = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
    for k, model in enumerate(("ridge", "logistic")):
        for graph, style in zip(GRAPHS, ("-", "--", ":"), strict=True):
            chosen = [r for r in found if (r.case.model, r.case.variant) == (model, graph)]
            agents, ratios = [r.case.n_agents for r in chosen], [r.ratio for r in chosen]
            label = f"{model}, {graph}"
            axis.plot(agents, ratios, color=f"C{k}", linestyle=style, marker="o", label=label)
    axis.axhline(BAR, color="black", linewidth=1, label="bar")
    axis.set_xscale("log")
    axis.set_ylim(0, None)
    axis.set_xlabel("agents")
    axis.set_ylabel("a round, in passes over the data")
    axis.legend(frameon=False, fontsize=8, ncols=2)
    axis.spines[["top", "right"]].set_visible(False)
    fig.suptitle(title, fontsize=10)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(OUTPUT, dpi=120)
    print(f"\nWrote {OUTPUT}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small data, no verdict")
    parser.add_argument("--repeats", type=int, default=5, help="differences behind each median")
    options = parser.parse_args()
    mpl.use("Agg")
    # Many agents at a small epsilon: noise is large here, and of no importance.
    warnings.simplefilter("ignore", UserWarning)
    quick = options.quick
    n, p = (20_000, 20) if quick else (1_000_000, 50)
    agents = [10, 1_000] if quick else [10, 100, 1_000, 10_000]
    repeats = 1 if quick else options.repeats
    size: dict[str, Any] = {"rounds": (2, 52) if quick else (2, 17)}
    load = os.getloadavg()[0]
    title = f"{n:,} x {p}, float64, {os.cpu_count()} cores, load {load:.1f} before the start"
    print(title)
    data = make_data(n, p)
    OverGraph("ridge", 10, "ring").estimator(2).fit(data[0], data[1]["ridge"])  # warms up
    cases: list[Case] = [
        OverGraph(model, n_agents, graph)
        for model in ("ridge", "logistic")
        for graph in GRAPHS
        for n_agents in agents
    ]
    bar = None if quick else BAR
    found = show_rounds("One round, unit record", cases, data, bar=bar, repeats=repeats, **size)
    draw(found, title)


if __name__ == "__main__":
    main()
