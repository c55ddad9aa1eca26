"""A tour in under a minute: plan, fit, report, accuracy against epsilon, sparse coefficients.

python examples/quickstart.py        writes examples/output/quickstart.png
"""

import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import Lasso
from sklearn.model_selection import train_test_split

from skdpadmm import DPAdmmLasso, DPAdmmLogisticRegression
from skdpadmm.exceptions import WeakSignalWarning
from skdpadmm.inspection import PrivacyUtilityDisplay

OUTPUT = Path(__file__).parent / "output" / "quickstart.png"
# Ten things are measured on each nucleus of a cell, and what they can be is known before: a radius
# up to 50 micrometres, grey values of 0 to 255, shares. Values outside are clipped. The
# columns are the mean over nuclei, its standard error, and the mean of the three largest.
NUCLEUS = np.array([50, 64, 400, 8000, 1, 1, 1, 1, 1, 1])
UPPER = np.concatenate([NUCLEUS, NUCLEUS / 6, NUCLEUS])


def title(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


def classify() -> None:
    X, X_test, y, y_test = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
    model = DPAdmmLogisticRegression(
        epsilon=1.0, delta=1e-5, classes=[0, 1], feature_bounds=(0, UPPER)
    )
    title("1. The plan, before any data")
    print(model.plan(n_samples=len(X), n_features=30))

    title("2. A private fit, and its report")
    print(model.fit(X, y).privacy_)

    title("3. Accuracy against epsilon")
    epsilons = [0.1, 0.3, 1.0, 3.0, 10.0]
    with warnings.catch_warnings():
        # Epsilon 0.1 is too small for so few rows, which the curve is to show.
        warnings.simplefilter("ignore", WeakSignalWarning)
        display = PrivacyUtilityDisplay.from_estimator(
            model, X, y, X_test=X_test, y_test=y_test, epsilons=epsilons, n_seeds=5
        )
    print(f"constant     {display.constant_score:.3f}")
    for epsilon, scores in zip(epsilons, display.scores, strict=True):
        print(f"epsilon {epsilon:<4} {scores.mean():.3f} +- {scores.std():.3f}")
    print(f"not private  {display.non_private_scores.mean():.3f}, {display.non_private_name}")
    print(
        """
Each of these fits spends its own epsilon. Draw such a curve from public or simulated rows: scores
of private rows carry no noise, so choosing epsilon by them would itself leak information."""
    )
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    display.figure_.savefig(OUTPUT, dpi=110)
    print(f"\nWrote {OUTPUT.relative_to(Path(__file__).parents[1])}")


def select() -> None:
    title("4. A private Lasso: sparse coefficients")
    rng = np.random.default_rng(0)
    X, truth = rng.uniform(-1, 1, size=(20_000, 20)), np.zeros(20)
    truth[[2, 7, 11]] = [2.0, -1.5, 1.0]
    y = X @ truth + 0.3 * rng.standard_normal(len(X))
    model = DPAdmmLasso(
        alpha=0.05, epsilon=1.0, delta=1e-6, feature_bounds=(-1, 1), target_bounds=(-5, 5)
    ).fit(X, y)
    exact = Lasso(alpha=0.05).fit(X, y)
    print("20,000 generated rows, 20 features of which 3 matter; epsilon=1, delta=1e-06\n")
    print(f"{'feature':>11} {'truth':>8} {'Lasso':>8} {'DPAdmmLasso':>12}")
    shown = np.flatnonzero((truth != 0) | (exact.coef_ != 0) | (model.coef_ != 0))
    for j in shown:
        print(f"{j:11} {truth[j]:8.2f} {exact.coef_[j]:8.2f} {model.coef_[j]:12.2f}")
    print(f"{f'{20 - len(shown)} others':>11} {'0':>8} {'0':>8} {'0':>12}")


if __name__ == "__main__":
    mpl.use("Agg")
    classify()
    select()
    plt.close("all")
