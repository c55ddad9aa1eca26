"""Bounds and scores that are paid for, on real tables.

    python benchmarks/bounds_and_scores.py            ten draws, a quarter of an hour on one core
    python benchmarks/bounds_and_scores.py --quick    one draw of two tables

First `private_bounds`, of the columns whose code book has another range than [0, 1], and of the
target of a regression: the share of rows inside, of the worst column and in the mean, the columns
that noise hides, and accuracy or R2 of a default fit at epsilon 1 with them, beside that with the
ranges of the code book. Hidden columns get the range of the code book. Three quarters of the rows
are drawn for bounds and fit, the others judge. The fit's own budget is extra.

Then `private_score` at its defaults of a fit at epsilon 1, on 2,000 and 10,000 rows that are drawn
with replacement from those that it did not use: the median error against the exact score of these
rows, the median half-width of 95 % intervals, and how often they hold the score of all of the rows
that they are drawn from. Replace-one, delta 1e-5. Seeds are fixed: nothing printed is private.
"""

from __future__ import annotations

import argparse
import functools
import math
import warnings

import numpy as np
from _data import Data, load

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.metrics import private_score
from skdpadmm.preprocessing import private_bounds

BOUNDED = (
    *("adult", "credit", "magic", "law", "default"),
    *("diamonds", "census2000", "gpa2", "catholic", "txhousing"),
)
SCORED = ("adult", "credit", "magic", "diamonds", "census2000")
EPSILONS, SIZES = (0.1, 0.3, 1.0), (2_000, 10_000)


def fitted(data: Data, bounds, target_bounds, rows, seed: int):
    """A default fit at epsilon 1."""
    X, y = data.X[rows], data.y[rows]
    if data.n_classes:
        model = DPAdmmLogisticRegression(classes=[0, 1], feature_bounds=bounds, random_state=seed)
    else:
        model = DPAdmmRidge(feature_bounds=bounds, target_bounds=target_bounds, random_state=seed)
    return model.fit(X, y)


def split(data: Data, seed: int, share: float = 0.75):
    order = np.random.default_rng(seed).permutation(len(data.y))
    return np.split(order, [int(share * len(order))])


def of_bounds(name: str, epsilon: float, seed: int) -> tuple[float, ...]:
    """Shares of rows inside (least, mean), hidden columns, scores with them and with code book."""
    data = load(name)
    train, test = split(data, seed)
    paid = np.flatnonzero((data.lower != 0) | (data.upper != 1))
    columns = data.X[train][:, paid]
    if not data.n_classes:
        columns = np.column_stack([columns, data.y[train]])
    found = private_bounds(columns, epsilon, random_state=seed).schema
    lower, upper, target_bounds = data.lower.copy(), data.upper.copy(), data.target_bounds
    inside = []
    for k, (low, high) in found.items():
        inside.append(np.mean((columns[:, k] >= low) & (columns[:, k] <= high)))
        if k < len(paid):
            lower[paid[k]], upper[paid[k]] = low, high
        else:
            target_bounds = (low, high)
    own = fitted(data, (lower, upper), target_bounds, train, seed)
    score = own.score(data.X[test], data.y[test])
    hidden = columns.shape[1] - len(inside)
    least, mean = (min(inside), np.mean(inside)) if inside else (math.nan, math.nan)
    return least, float(mean), hidden, score, of_code_book(name, seed)


@functools.cache
def of_code_book(name: str, seed: int) -> float:
    """The score of a fit with the ranges of the code book."""
    data = load(name)
    train, test = split(data, seed)
    model = fitted(data, (data.lower, data.upper), data.target_bounds, train, seed)
    return model.score(data.X[test], data.y[test])


def of_scores(name: str, epsilon: float, size: int, draws: int) -> dict[str, np.ndarray]:
    """For each score: error, half-width, and whether the interval holds the population's."""
    data = load(name)
    train, rest = split(data, 0, 0.5)
    model = fitted(data, (data.lower, data.upper), data.target_bounds, train, 0)
    exact = private_score(model, data.X[rest], data.y[rest], math.inf).scores
    results: dict[str, list[tuple[float, ...]]] = {score: [] for score in exact}
    for seed in range(draws):
        rows = np.random.default_rng([seed, size]).choice(rest, size)
        X, y = data.X[rows], data.y[rows]
        found = private_score(model, X, y, epsilon, random_state=seed).scores
        own = private_score(model, X, y, math.inf).scores
        for score, (value, low, high, _) in found.items():
            error = abs(value - own[score].estimate)
            # Noise may hide a score and leave an end of its interval.
            holds = math.nan if math.isnan(low) else low <= exact[score].estimate <= high
            results[score].append((error, (high - low) / 2, holds))
    return {score: np.array(rows, dtype=float) for score, rows in results.items()}


def print_bounds(quick: bool) -> None:
    print("bounds        rows  paid  epsilon  inside: least   mean  hidden  with them  code book")
    for name in BOUNDED[:2] if quick else BOUNDED:
        data = load(name)
        paid = int(((data.lower != 0) | (data.upper != 1)).sum()) + (not data.n_classes)
        for epsilon in EPSILONS:
            draws = [of_bounds(name, epsilon, seed) for seed in range(1 if quick else 10)]
            least, mean, hidden, own, book = np.nanmean(draws, axis=0)
            print(
                f"{name:10} {3 * len(data.y) // 4:7,} {paid:5} {epsilon:8} {least:14.3f}"
                f" {mean:6.3f} {hidden:7.1f} {own:10.3f} {book:10.3f}",
                flush=True,
            )


def print_scores(quick: bool) -> None:
    print("\nscores       rows  epsilon  score                 error  half-width  coverage  hidden")
    for name in SCORED[:1] if quick else SCORED:
        for size in SIZES:
            for epsilon in EPSILONS:
                for score, rows in of_scores(name, epsilon, size, 5 if quick else 200).items():
                    seen = rows[~np.isnan(rows[:, 0])]
                    error, width = np.median(seen[:, :2], axis=0) if len(seen) else [math.nan] * 2
                    held = np.nanmean(rows[:, 2])
                    print(
                        f"{name:10} {size:6,} {epsilon:8}  {score:20} {error:6.4f} {width:11.4f}"
                        f" {held:9.3f} {1 - len(seen) / len(rows):7.2f}",
                        flush=True,
                    )


def main() -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore")
    print_bounds(quick)
    print_scores(quick)


if __name__ == "__main__":
    main()
