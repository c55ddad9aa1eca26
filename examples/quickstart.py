"""A tour in under a minute: plan, fit, report, accuracy against epsilon, sparse coefficients.

python examples/quickstart.py        writes examples/output/quickstart.png
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_breast_cancer
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.model_selection import GridSearchCV, ShuffleSplit, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from tqdm import tqdm

from skdpadmm import DPAdmmLasso, DPAdmmLogisticRegression
from skdpadmm.preprocessing import BoundedScaler
from skdpadmm.privacy import compose

OUTPUT = Path(__file__).parent / "output" / "quickstart.png"
EPSILONS = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0]
SEEDS = range(20)
SPLITS = ShuffleSplit(n_splits=5, test_size=0.25, random_state=0)
DELTA = 1e-5

# Each image shows several cell nuclei, and ten things are measured on each nucleus. What these can
# be follows from what they are; values outside are clipped, so no bound has to be perfect.
NUCLEUS = {
    "radius": 50.0,  # no nucleus of a human cell is 100 micrometres across
    "texture": 64.0,  # standard deviation of grey values in 0..255: a quarter of the scale
    "perimeter": 400.0,  # of a circle of that radius, 314, and a quarter more for a ragged edge
    "area": 8000.0,  # of a circle of that radius: 7854
    "smoothness": 1.0,  # shares and ratios, from here on
    "compactness": 1.0,
    "concavity": 1.0,
    "concave points": 1.0,
    "symmetry": 1.0,
    "fractal dimension": 1.0,  # of an outline, minus 1: between a line and a plane
}
# The columns are the mean over the nuclei, its standard error, and the mean of the three largest.
# A quantity in [0, u] has a standard deviation of at most u / 2; ten nuclei or more divide it by 3.
MEASURED = np.array(list(NUCLEUS.values()))
UPPER = np.concatenate([MEASURED, MEASURED / 6, MEASURED])


@dataclass(frozen=True)
class Score:
    """Mean and standard deviation of accuracies on held-out rows."""

    mean: float
    spread: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} +- {self.spread:.3f}"


def score_of(values: NDArray[np.float64]) -> Score:
    return Score(float(np.mean(values)), float(np.std(values)))


def private_pipeline(**parameters: Any) -> Pipeline:
    """Bounds that are public, then a private model: nothing in it learns without noise."""
    return make_pipeline(
        BoundedScaler(lower=0.0, upper=UPPER),
        DPAdmmLogisticRegression(classes=[0, 1], feature_bounds=(-1, 1), delta=DELTA, **parameters),
    )


def show_plan(n_samples: int, n_features: int) -> None:
    title("1. The plan, before any data")
    model = private_pipeline(epsilon=1.0)[-1]
    print(model.plan(n_samples=n_samples, n_features=n_features))


def show_report(X: NDArray[np.float64], y: NDArray[np.int64]) -> None:
    title("2. A private fit, and its report")
    model = private_pipeline(epsilon=1.0).fit(X, y)
    print(model[-1].privacy_)
    seeded = private_pipeline(epsilon=1.0, random_state=0).fit(X, y)
    print(
        f"""
This fit drew its noise from the operating system: under the figure above its model may be
published, and another run gives another one. With a seed the report begins differently:

SIMULATION: {seeded[-1].privacy_.simulation}"""
    )


def search_epsilons(X: NDArray[np.float64], y: NDArray[np.int64]) -> dict[float, Score]:
    """Accuracy for each budget, over seeds and splits: one grid search for each seed."""
    scores = []
    for seed in tqdm(SEEDS, desc="GridSearchCV over epsilon, once for each seed"):
        search = GridSearchCV(
            private_pipeline(random_state=seed),
            {"dpadmmlogisticregression__epsilon": EPSILONS},
            cv=SPLITS,
            n_jobs=2,
            refit=False,  # there is nothing to choose: more epsilon is better
        ).fit(X, y)
        results = search.cv_results_
        scores.append([results[f"split{k}_test_score"] for k in range(SPLITS.get_n_splits())])
    return {
        epsilon: score_of(values)
        for epsilon, values in zip(EPSILONS, np.moveaxis(np.array(scores), -1, 0), strict=True)
    }


def cost_of_search(n_samples: int, n_features: int) -> float:
    """Epsilon of all fits of the search together, by composition of their guarantees."""
    n_fits = len(SEEDS) * SPLITS.get_n_splits()
    guarantees = [
        private_pipeline(epsilon=epsilon)[-1].plan(n_samples, n_features).guarantee()
        for epsilon in EPSILONS
    ]
    return compose(*(guarantees * n_fits)).epsilon(DELTA)


def references(X: NDArray[np.float64], y: NDArray[np.int64]) -> dict[str, Score]:
    """What the same splits give without privacy, and without looking at the features."""
    models: dict[str, ClassifierMixin | Pipeline] = {
        "LogisticRegression, standardised": make_pipeline(StandardScaler(), LogisticRegression()),
        "LogisticRegression, same bounds": make_pipeline(
            BoundedScaler(lower=0.0, upper=UPPER), LogisticRegression()
        ),
        "constant (most frequent class)": DummyClassifier(),
    }
    return {
        name: score_of(cross_val_score(model, X, y, cv=SPLITS)) for name, model in models.items()
    }


def show_accuracy(X: NDArray[np.float64], y: NDArray[np.int64]) -> None:
    title("3. Accuracy against epsilon")
    n_fits = len(EPSILONS) * len(SEEDS) * SPLITS.get_n_splits()
    private = search_epsilons(X, y)
    public = references(X, y)
    print(f"\n{'model':34} {'epsilon':>7}   accuracy on held-out rows")
    for name, score in public.items():
        print(f"{name:34} {'-' if 'constant' in name else 'inf':>7}   {score}")
    for epsilon, score in private.items():
        print(f"{'DPAdmmLogisticRegression':34} {epsilon:7g}   {score}")
    total = math.ceil(cost_of_search(*X.shape))
    print(
        f"""
Mean and standard deviation over {SPLITS.get_n_splits()} splits, and for the private model also over
{len(SEEDS)} seeds; delta={DELTA:g}.

Such a search costs privacy itself. Each fit spends its epsilon on the rows that it is given, and
the costs add up: had the rows been private and the noise unknown, these {n_fits} fits together
would be ({total}, {DELTA:g})-differentially private, which protects nobody. The scores on held-out
rows carry no noise, so a choice made by them is outside any guarantee. Search on public or
simulated data, and spend the budget on one fit. Here the data is public, and every fit has a seed:
it is a simulation, because whoever knows the seed can subtract the noise."""
    )
    draw(private, public)


def show_lasso() -> None:
    title("4. A private Lasso: sparse coefficients")
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(20_000, 20))
    truth = np.zeros(20)
    truth[[2, 7, 11]] = [2.0, -1.5, 1.0]
    y = X @ truth + 0.3 * rng.standard_normal(len(X))
    model = DPAdmmLasso(
        alpha=0.05, delta=1e-6, feature_bounds=(-1, 1), target_bounds=(-5, 5), random_state=0
    ).fit(X, y)
    reference = Lasso(alpha=0.05).fit(X, y)
    print("20,000 generated rows, 20 features of which 3 matter; epsilon=1, delta=1e-06\n")
    print(f"{'feature':>11} {'truth':>8} {'Lasso':>8} {'DPAdmmLasso':>12}")
    shown = np.flatnonzero((truth != 0) | (reference.coef_ != 0) | (model.coef_ != 0))
    for j in shown:
        print(f"{j:11} {truth[j]:8.2f} {reference.coef_[j]:8.2f} {model.coef_[j]:12.2f}")
    print(f"{f'{20 - len(shown)} others':>11} {'0':>8} {'0':>8} {'0':>12}")


def draw(private: dict[float, Score], public: dict[str, Score]) -> None:
    fig, axis = plt.subplots(figsize=(7.2, 4.0), layout="constrained")
    axis.errorbar(
        list(private),
        [score.mean for score in private.values()],
        yerr=[score.spread for score in private.values()],
        marker="o",
        capsize=4,
        color="C0",
    )
    axis.annotate(
        "DPAdmmLogisticRegression",
        (3.0, private[3.0].mean),
        xytext=(8, -26),
        textcoords="offset points",
        color="C0",
    )
    # Names stand above or below their lines, at the end where the curve is far.
    left, right = EPSILONS[0], EPSILONS[-1]
    places = [("C2", left, 3, "bottom"), ("C1", left, -3, "top"), ("0.4", right, -3, "top")]
    for (name, score), (color, edge, shift, vertical) in zip(public.items(), places, strict=True):
        axis.axhline(score.mean, color=color, linestyle="--", linewidth=1.2)
        axis.annotate(
            name,
            (edge, score.mean),
            xytext=(0, shift),
            textcoords="offset points",
            va=vertical,
            ha="left" if edge == left else "right",
            color=color,
        )
    axis.set_ylim(None, 1.0)
    axis.set_xscale("log")
    axis.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axis.minorticks_off()
    axis.set_xlabel(f"epsilon (total of one fit, delta={DELTA:g})")
    axis.set_ylabel("accuracy on held-out rows")
    axis.set_title("Breast cancer, 569 x 30: mean and standard deviation", loc="left", fontsize=11)
    axis.spines[["top", "right"]].set_visible(False)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(OUTPUT, dpi=110)
    print(f"\nWrote {OUTPUT}")


def title(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


def main() -> None:
    mpl.use("Agg")
    X, y = load_breast_cancer(return_X_y=True)
    show_plan(*X.shape)
    show_report(X, y)
    show_accuracy(X, y)
    show_lasso()


if __name__ == "__main__":
    main()
