"""Learners of this library beside those of diffprivlib, with the same public bounds.

    python benchmarks/private_learners.py            forty splits, three minutes on one core
    python benchmarks/private_learners.py --quick    three splits

Breast cancer (569 rows, 30 columns) and diabetes (442 rows, 10 columns), a quarter of the rows for
the test. Both libraries are told the same ranges of columns and of the target, from textbooks and
not from the data, and have their defaults. "scaled" are rows that were mapped from these ranges to
[-1, 1] first, which is free; here it makes no difference. "not private" is scikit-learn's logistic
or ridge regression of standardised rows.

What differs: this library has delta 1e-5, diffprivlib 0, which is a stronger promise. Both replace
one row. diffprivlib has learners that this library lacks: forests, naive Bayes, clustering and
components; two of them are in the table of classifiers.

diffprivlib runs on scikit-learn 1.6 and 1.7, in an environment of its own:

    make .venv-peer/.installed
    .venv-peer/bin/python benchmarks/private_learners.py
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _data
import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge

try:
    from diffprivlib import models as peer
except ImportError as error:
    raise SystemExit(
        f"Got no diffprivlib ({error}). It has an environment of its own:\n"
        "    make .venv-peer/.installed && .venv-peer/bin/python benchmarks/private_learners.py"
    ) from None

OUTPUT = Path(__file__).parent / "output" / "private_learners.png"
EPSILONS, DELTA = (0.5, 1.0, 2.0, 5.0, 10.0), 1e-5
Array = NDArray[np.float64]
# By name: whether rows are scaled first, and the model at a budget.
Learners = dict[str, tuple[bool, Callable[[float], BaseEstimator]]]


def classifiers(data: _data.Data) -> Learners:
    bounds = (data.lower, data.upper)
    p = len(data.upper)

    def ours(epsilon: float) -> BaseEstimator:
        return DPAdmmLogisticRegression(
            epsilon=epsilon, delta=DELTA, classes=[0, 1], feature_bounds=bounds
        )

    return {
        "DPAdmmLogisticRegression": (False, ours),
        "diffprivlib logistic, scaled": (
            True,
            lambda epsilon: peer.LogisticRegression(epsilon=epsilon, data_norm=p**0.5),
        ),
        "diffprivlib logistic": (
            False,
            lambda epsilon: peer.LogisticRegression(
                epsilon=epsilon, data_norm=float(np.linalg.norm(data.upper))
            ),
        ),
        "diffprivlib naive Bayes": (
            False,
            lambda epsilon: peer.GaussianNB(epsilon=epsilon, bounds=bounds),
        ),
        "diffprivlib forest": (
            False,
            lambda epsilon: peer.RandomForestClassifier(
                epsilon=epsilon, bounds=bounds, classes=[0, 1]
            ),
        ),
    }


def regressors(data: _data.Data) -> Learners:
    bounds, target = (data.lower, data.upper), data.target_bounds

    def ours(epsilon: float) -> BaseEstimator:
        return DPAdmmRidge(
            epsilon=epsilon, delta=DELTA, feature_bounds=bounds, target_bounds=target
        )

    def theirs(bounds: Any) -> Callable[[float], BaseEstimator]:
        return lambda epsilon: peer.LinearRegression(
            epsilon=epsilon, bounds_X=bounds, bounds_y=target
        )

    return {
        "DPAdmmRidge": (False, ours),
        "diffprivlib linear, scaled": (True, theirs((-1, 1))),
        "diffprivlib linear": (False, theirs(bounds)),
    }


TASKS = {
    "breast_cancer": ("Breast cancer, accuracy", classifiers, LogisticRegression()),
    "diabetes": ("Diabetes, R2", regressors, Ridge()),
}


def scores(
    data: _data.Data, learners: Learners, reference: BaseEstimator, n_splits: int
) -> dict[str, Array]:
    """Scores of test rows, of shape (budgets, splits), by learner; and of two without privacy."""
    raw = np.clip(data.X, data.lower, data.upper)
    scaled = 2 * (raw - data.lower) / (data.upper - data.lower) - 1
    exact = make_pipeline(StandardScaler(), reference)
    found = {name: np.empty((len(EPSILONS), n_splits)) for name in learners}
    found |= {"constant": np.empty((1, n_splits)), "not private": np.empty((1, n_splits))}
    for split in range(n_splits):
        train, test = train_test_split(np.arange(len(raw)), random_state=split)
        y, y_test = data.y[train], data.y[test]
        for name, (is_scaled, make) in learners.items():
            X = scaled if is_scaled else raw
            for k, epsilon in enumerate(EPSILONS):
                found[name][k, split] = make(epsilon).fit(X[train], y).score(X[test], y_test)
        found["not private"][0, split] = exact.fit(raw[train], y).score(raw[test], y_test)
        is_class = data.target_bounds is None
        share = np.mean(y_test == np.bincount(y).argmax()) if is_class else 0.0
        found["constant"][0, split] = share
    return found


def shown(scores_of_learner: Array) -> list[str]:
    """Medians over splits, by budget: one broken split would decide a mean."""
    return [f"{m:.3f}" if m > -100 else f"{m:.0e}" for m in np.median(scores_of_learner, axis=1)]


def draw(found: dict[str, dict[str, Array]]) -> None:
    """Two panels, one above the other, with names at the curves: phones are narrow."""
    mpl.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(
        2, 1, figsize=(4.8, 5.4), height_ratios=(3, 2), sharex=True, layout="constrained"
    )
    figure.suptitle(
        "From epsilon 1 on, private models\ncome close to those without noise", fontweight="bold"
    )
    for ax, (key, (title, *_)) in zip(axes, TASKS.items(), strict=True):
        low, high = (0.38, 1.02) if key == "breast_cancer" else (-0.07, 0.53)
        below = []
        for name, values in found[key].items():
            middle = np.median(values, axis=1)
            if len(middle) == 1:
                style = {"constant": ":", "not private": "--"}[name]
                ax.axhline(middle[0], color="0.5", linestyle=style, lw=1, zorder=1)
                words = {"constant": "constant model"}.get(name, name)
                side = "top" if name == "constant" else "bottom"
                ax.text(31, middle[0], words, va=side, ha="right", color="0.35")
                continue
            ours = name.startswith("DP")
            if (middle < low).all():
                below.append(max(middle))
                continue
            color, words = ("#0a7d91", name) if ours else ("#b45309", name.split(" ", 1)[1])
            ax.plot(EPSILONS, middle, "o-", color=color, lw=3 if ours else 1.2, ms=5 if ours else 3)
            if ours:
                ax.text(EPSILONS[0], middle[0] - 0.02, words, va="top", color=color, weight="bold")
            else:
                ax.text(1.12 * EPSILONS[-1], middle[-1], words, va="center", color=color)
        if below:
            note = f"diffprivlib linear: {float(f'{max(below):.0e}'):,.0f} at best"
            ax.text(EPSILONS[0], 0.09, note, color="#b45309")
        ax.set(xscale="log", ylim=(low, high), xlim=(0.44, 32))
        ax.set_title(title, loc="left", fontsize=10)
        ax.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        ax.minorticks_off()
    axes[0].text(31, 0.4, "orange: diffprivlib", color="#b45309", ha="right")
    axes[1].set_xlabel("epsilon of each fit")
    OUTPUT.parent.mkdir(exist_ok=True)
    figure.savefig(OUTPUT, dpi=150)
    print(f"Wrote {OUTPUT}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three splits")
    n_splits = 3 if parser.parse_args().quick else 40
    # Both libraries warn of what is known here: small budgets, and wide bounds.
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    found = {}
    for key, (title, learners_of, reference) in TASKS.items():
        data = _data.load(key)
        found[key] = scores(data, learners_of(data), reference, n_splits)
        print(f"\n{title}, medians of {n_splits} splits")
        print(f"{'epsilon':30}" + "".join(f"{epsilon:>9g}" for epsilon in EPSILONS))
        for name, values in found[key].items():
            print(f"{name:30}" + "".join(f"{text:>9}" for text in shown(values)))
    draw(found)


if __name__ == "__main__":
    main()
