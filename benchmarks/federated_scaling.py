"""What a round of a federation costs: agents from ten to ten thousand over the same rows.

    python benchmarks/federated_scaling.py            1,000,000 x 50, some minutes
    python benchmarks/federated_scaling.py --quick    20,000 x 20, for a look: no verdict

Time is counted in passes over the data, products ``X @ w`` with one BLAS thread, as a fit has. A
round is the difference between a long and a short fit, over the difference of their rounds, so that
nothing counts that happens once. Products stand between the fits, and each difference is divided by
the products beside it, so that other work on the machine slows both; the figure is the median. With
records as the unit it passes where a round costs at most 3 passes, whatever the number of agents.
With agents as the unit each solves a problem of its own, which is shown and has no bar.
Nothing printed here depends on the values in the data.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import threadpoolctl
from matplotlib import pyplot as plt
from numpy.typing import NDArray

from skdpadmm import DPFedLogisticRegression, DPFedRidge

OUTPUT = Path(__file__).parent / "output" / "federated_scaling.png"
BAR = 3.0
PUBLIC: dict[str, Any] = {"feature_bounds": (0, 1), "delta": 1e-8}

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """One federation."""

    model: str
    n_agents: int
    variant: str = "everyone"
    unit: str = "record"

    def estimator(self, n_rounds: int) -> Any:
        make, bounds = {
            "ridge": (DPFedRidge, {"target_bounds": (-1, 1)}),
            "logistic": (DPFedLogisticRegression, {"classes": [-1, 1]}),
        }[self.model]
        return make(
            n_agents=self.n_agents,
            privacy_unit=self.unit,
            max_iter=n_rounds,
            **VARIANTS[self.variant],
            **bounds,
            **PUBLIC,
        )


VARIANTS: dict[str, dict[str, Any]] = {
    "everyone": {},
    "participation=.2": {"participation": 0.2},
    "dropout=.1": {"dropout": 0.1},
}


@dataclass(frozen=True)
class Round:
    """What a round of a federation costs."""

    case: Case
    conditioned: bool
    seconds: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


def make_data(n_samples: int, n_features: int) -> tuple[Array, dict[str, Array]]:
    """Features in [0, 1], and a target in [-1, 1] or its sign."""
    rng = np.random.default_rng(0)
    X = rng.random((n_samples, n_features))
    score = (X - 0.5) @ rng.standard_normal(n_features)
    y = np.clip(score / np.sqrt(n_features), -1, 1)
    return X, {"ridge": y, "logistic": np.where(y > 0, 1.0, -1.0)}


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(case: Case, X: Array, y: Array, *, rounds: tuple[int, int], repeats: int) -> Round:
    """A round by the difference of a long and a short fit, beside passes over the data."""
    w = np.random.default_rng(1).standard_normal(X.shape[1])
    short, long = (case.estimator(n_rounds) for n_rounds in rounds)
    between, ratios, times = rounds[1] - rounds[0], [], []
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        for _ in range(repeats):
            products = [seconds(lambda: X @ w) for _ in range(3)]
            few = seconds(lambda: short.fit(X, y))
            products += [seconds(lambda: X @ w) for _ in range(3)]
            many = seconds(lambda: long.fit(X, y))
            products += [seconds(lambda: X @ w) for _ in range(3)]
            times.append((many - few) / between)
            ratios.append(times[-1] / statistics.median(products))
    return Round(
        case,
        conditioned=len(short.privacy_.releases) > 1,
        seconds=statistics.median(times),
        ratios=tuple(ratios),
    )


# --------------------------------------------------------------------------------------------------
# Tables


def show_rounds(
    title: str,
    cases: list[Case],
    data: tuple[Array, dict[str, Array]],
    *,
    bar: float | None,
    **size: Any,
) -> list[Round]:
    print(f"\n{title}")
    print(f"{'model':9} {'agents':>7}  {'variant':17} {'path':12} {'ms':>8} {'passes':>7}  range")
    found = []
    X, targets = data
    for case in cases:
        one = measure(case, X, targets[case.model], **size)
        verdict = "" if bar is None else "  pass" if one.ratio <= bar else "  MISS"
        path = "conditioned" if one.conditioned else "plain"
        print(
            f"{case.model:9} {case.n_agents:7,}  {case.variant:17} {path:12}"
            f" {1e3 * one.seconds:8.2f} {one.ratio:7.2f}"
            f"  {min(one.ratios):.2f} to {max(one.ratios):.2f}{verdict}",
            flush=True,
        )
        found.append(one)
    return found


def draw(found: list[Round], title: str) -> None:
    fig, axis = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
    styles = {"everyone": "-", "participation=.2": "--", "dropout=.1": ":"}
    for k, model in enumerate(("ridge", "logistic")):
        for variant, style in styles.items():
            chosen = [r for r in found if (r.case.model, r.case.variant) == (model, variant)]
            axis.plot(
                [r.case.n_agents for r in chosen],
                [r.ratio for r in chosen],
                color=f"C{k}",
                linestyle=style,
                marker="o",
                label=f"{model}, {variant}",
            )
    axis.axhline(BAR, color="black", linewidth=1, label="bar")
    axis.set_ylim(0, None)
    axis.set_ylabel("a round, in passes over the data")
    axis.legend(frameon=False, fontsize=8, ncols=2)
    axis.set_xscale("log")
    axis.set_xlabel("agents")
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
    # Many messages at a small epsilon: noise is large here, and of no importance.
    warnings.simplefilter("ignore", UserWarning)
    quick = options.quick
    n, p = (20_000, 20) if quick else (1_000_000, 50)
    repeats = 1 if quick else options.repeats
    agents = [10, 1_000] if quick else [10, 100, 1_000, 10_000]
    bar = None if quick else BAR
    size: dict[str, Any] = {"rounds": (2, 202) if quick else (2, 32), "repeats": repeats}
    load = os.getloadavg()[0]
    title = f"{n:,} x {p}, float64, {os.cpu_count()} cores, load {load:.1f} before the start"
    print(title)
    data = make_data(n, p)
    Case("ridge", 10).estimator(2).fit(data[0], data[1]["ridge"])  # warms up
    models = ("ridge", "logistic")
    cases = [Case(model, m, variant) for model in models for variant in VARIANTS for m in agents]
    found = show_rounds("One round, unit record", cases, data, bar=bar, **size)
    cases = [Case(model, m, unit="agent") for model in models for m in agents[1:3]]
    few: dict[str, Any] = {"rounds": (1, 4), "repeats": 1}
    show_rounds("One round, unit agent", cases, data, bar=None, **few)
    draw(found, title)


if __name__ == "__main__":
    main()
