"""Estimators of another library, some known to be wrong, as an audit sees them.

    python benchmarks/audit_third_party.py             10,000 fits on each of two data sets
    python benchmarks/audit_third_party.py --quick     a twentieth of that: no verdict
    python benchmarks/audit_third_party.py --n-jobs 4  the same in as many processes

The bar: where the code is wrong, a lower bound of epsilon above the claim, at 99 % confidence;
where it is right, none. Each estimator that is wrong stands beside itself with bounds or neighbours
that the error does not touch. The last line is a mean, attacked as hard as can be.

The library is diffprivlib 0.6.6. It takes the number of rows as public, so its neighbours replace
one row, with its label, and so do those here. Every row lies within the bounds that are given, no
fit warns of a leak, and settings are the defaults unless a line says otherwise. Where a line
publishes something else than coefficients, it is computed from them alone, which costs nothing.

It runs on scikit-learn 1.6 and 1.7: from 1.8 on there is no argument `multi_class`, which its
logistic regression passes. So it is no extra of this library:

    python -m venv peer
    peer/bin/pip install "scikit-learn==1.6.1" "numpy==2.0.2" "scipy==1.14.1" -e .
    peer/bin/pip install --no-deps diffprivlib==0.6.6
    peer/bin/python benchmarks/audit_third_party.py
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.fixes import parse_version

from skdpadmm.audit import AuditReport, audit

Array = NDArray[np.float64]
Data = tuple[Array, NDArray[Any]]

VERSION = "0.6.6"
INSTALL = (
    'pip install "scikit-learn==1.6.1" "numpy==2.0.2" "scipy==1.14.1"'
    f" && pip install --no-deps diffprivlib=={VERSION}"
)
EXPECTED = (
    f"diffprivlib {VERSION} on scikit-learn 1.6 or 1.7. Install them in an environment of their"
    f" own, beside this library:\n    {INSTALL}"
)
N_RUNS = 10_000
CONFIDENCE = 0.99
# The norm that rows are said to have, and one has: far from 1, as unscaled features are.
NORM = 100.0
BOUNDS = (99.0, 101.0)


class Published(BaseEstimator):
    """A model, and what is computed from it alone, as coefficients.

    Parameters
    ----------
    model : estimator
    function : callable
        Of the fitted model.
    random_state : int, default=None
        The model's.
    """

    def __init__(
        self,
        model: Any = None,
        function: Callable[[Any], Array] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.model = model
        self.function = function
        self.random_state = random_state

    @property
    def epsilon(self) -> float:
        """What the model claims."""
        return float(self.model.epsilon)

    def fit(self, X: Array, y: NDArray[Any]) -> Published:
        assert self.function is not None
        model = clone(self.model).set_params(random_state=self.random_state)
        self.coef_ = self.function(model.fit(X, y))
        return self


class Mean(BaseEstimator):
    """A private mean of the targets, by the peer's own function.

    Parameters
    ----------
    mean : callable
    epsilon : float, default=1.0
    random_state : int, default=None
    """

    def __init__(
        self, mean: Any = None, epsilon: float = 1.0, random_state: int | None = None
    ) -> None:
        self.mean = mean
        self.epsilon = epsilon
        self.random_state = random_state

    def fit(self, X: Array, y: NDArray[Any]) -> Mean:
        bounds = (-1.0, 1.0)
        found = self.mean(y, epsilon=self.epsilon, bounds=bounds, random_state=self.random_state)
        self.coef_ = np.array([found])
        return self


def score_of_the_longest_row(model: Any) -> Array:
    """How large the score of a row at the bound of norms is: its logarithm."""
    return np.log(np.abs(model.decision_function([[model.data_norm]])))


def count_where_the_mean_is_free(model: Any) -> Array:
    """The noisy count of the first class, or 0 where its noisy mean is at a bound."""
    lower, upper = model.bounds
    is_free = (lower < model.theta_[0]) & (model.theta_[0] < upper)
    return np.where(is_free, model.class_count_[0], 0.0)


def means_of_the_first_class(model: Any) -> Array:
    """Noisy means."""
    return np.asarray(model.theta_[0])


@dataclass(frozen=True, eq=False)
class Case:
    """An estimator, two data sets that differ in one row, and the analysis of its code."""

    name: str
    model: Any
    first: Data
    second: Data
    is_wrong: bool
    why: str


@dataclass(frozen=True)
class Line:
    """What an audit found."""

    case: Case
    report: AuditReport
    n_runs: int
    seconds: float

    @property
    def is_as_expected(self) -> bool:
        return self.report.is_violation == self.case.is_wrong

    def text(self, *, is_quick: bool) -> str:
        verdict = "" if is_quick else ("PASS" if self.is_as_expected else "MISS")
        expected = "violation" if self.case.is_wrong else "nothing"
        return (
            f"{self.case.name:48} {self.report.claimed_epsilon:5.2f}"
            f" {self.report.lower_bound:7.2f} {2 * self.n_runs:7} {self.seconds:7.1f}"
            f" {expected:>10}  {verdict}"
        )


def column(*values: float) -> Array:
    return np.array(values, dtype=np.float64)[:, None]


def cases(peer: Any, tools: Any) -> list[Case]:
    """What is audited, each wrong one before the right one that shows the cause."""
    ones = np.ones(4)
    # A row moves along its feature; the second moment goes from 1e-4 to 1.
    short, long = (column(0, 0, 0, 0.01), ones), (column(0, 0, 0, 1), ones)
    plain = {"fit_intercept": False, "bounds_y": (-1, 1)}
    halves = np.array([0, 1, 1])

    def logistic(norm: float) -> tuple[Any, Data, Data]:
        model = peer.LogisticRegression(epsilon=1.0, data_norm=norm)
        first, second = column(0, 0, 0), column(0, 0, norm)
        return Published(model, score_of_the_longest_row), (first, halves), (second, halves)

    level = np.full((6, 1), NORM)
    return [
        Case(
            "LinearRegression, features in [0, 1]",
            peer.LinearRegression(epsilon=0.5, bounds_X=(0, 1), bounds_y=(-1, 1)),
            short,
            long,
            True,
            "the noise of a squared feature goes by its lower bound, which is read twice, and not"
            " by the larger one",
        ),
        Case(
            "LinearRegression, [0, 1], no intercept",
            peer.LinearRegression(epsilon=0.5, bounds_X=(0, 1), **plain),
            short,
            long,
            True,
            "the same: a lower bound of 0 gives the second moment no noise at all",
        ),
        Case(
            "LinearRegression, [-1, 1], no intercept",
            peer.LinearRegression(epsilon=0.5, bounds_X=(-1, 1), **plain),
            short,
            long,
            False,
            "both bounds are as large, and the noise is right",
        ),
        Case(
            f"LogisticRegression, rows up to {NORM:g}",
            *logistic(NORM),
            True,
            "the change of the Hessian is taken as a quarter of the norm of a row, and it is a"
            " quarter of its square",
        ),
        Case(
            "LogisticRegression, rows up to 1, no intercept",
            Published(
                peer.LogisticRegression(epsilon=1.0, data_norm=1.0, fit_intercept=False),
                score_of_the_longest_row,
            ),
            *logistic(1.0)[1:],
            False,
            "1 is its own square",
        ),
        Case(
            f"GaussianNB, features in [{BOUNDS[0]:g}, {BOUNDS[1]:g}]",
            Published(
                peer.GaussianNB(epsilon=1.0, bounds=BOUNDS), count_where_the_mean_is_free
            ),
            (level, np.array([0, 0, 0, 1, 1, 1])),
            (level, np.array([0, 0, 1, 1, 1, 1])),
            True,
            "a changed label changes the sum of a class by a whole feature, and the noise of"
            " sums goes by upper minus lower bound",
        ),
        Case(
            "GaussianNB, where a feature changes",
            Published(peer.GaussianNB(epsilon=1.0, bounds=BOUNDS), means_of_the_first_class),
            (level, np.array([0, 0, 0, 1, 1, 1])),
            (np.vstack([column(BOUNDS[1]), level[1:]]), np.array([0, 0, 0, 1, 1, 1])),
            False,
            "labels stay, and the sensitivity of a sum is what its noise assumes",
        ),
        Case(
            "tools.mean, targets in [-1, 1]",
            Mean(tools.mean),
            (np.zeros((4, 1)), np.array([0.5, -0.5, 0.5, 1.0])),
            (np.zeros((4, 1)), np.array([0.5, -0.5, 0.5, -1.0])),
            False,
            "Laplace noise of the width that a row moves it by",
        ),
    ]  # fmt: skip


def audited(case: Case, n_runs: int, n_jobs: int, leak: type[Warning]) -> Line:
    """Attack an estimator that says nothing of leaks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", leak)
        for data in (case.first, case.second):
            clone(case.model).fit(*data)
    start = time.perf_counter()
    report = audit(
        case.model,
        method="black-box",
        neighbors=(case.first, case.second),
        delta=0.0,
        n_runs=n_runs,
        confidence=CONFIDENCE,
        n_jobs=n_jobs,
        random_state=0,
    )
    return Line(case, report, n_runs, time.perf_counter() - start)


def spent_by_a_search(peer: Any, accountant: Any) -> tuple[float, float]:
    """The accountant's figure for a search, and the sum over its fits: not an audit."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-0.5, 0.5, (60, 2)), np.resize([0, 1], 60)
    model = peer.LogisticRegression(epsilon=1.0, data_norm=1.0, accountant=accountant)
    search = GridSearchCV(model, {"C": [0.1, 1.0]}, cv=3).fit(X, y)
    n_fits = search.n_splits_ * len(search.cv_results_["params"]) + 1
    return float(accountant.total()[0]), n_fits * model.epsilon


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a twentieth of the fits: no verdict")
    parser.add_argument("--n-jobs", type=int, default=1, help="processes (default: 1)")
    options = parser.parse_args()
    try:
        import diffprivlib
        from diffprivlib import models, tools
        from diffprivlib.utils import PrivacyLeakWarning
    except ImportError as error:
        raise SystemExit(f"Got no diffprivlib ({error}), expected {EXPECTED}") from None
    if parse_version(sklearn.__version__) >= parse_version("1.8"):
        raise SystemExit(f"Got scikit-learn {sklearn.__version__}, expected {EXPECTED}")
    if diffprivlib.__version__ != VERSION:
        print(f"Got diffprivlib {diffprivlib.__version__}; what is expected is of {VERSION}.")
    n_runs = N_RUNS // 20 if options.quick else N_RUNS
    print(
        f"diffprivlib {diffprivlib.__version__}, scikit-learn {sklearn.__version__}: pure epsilon,"
        " one row replaced"
    )
    print(f"{'':48} {'claim':>5} {'at least':>8} {'fits':>6} {'s':>7} {'expected':>10}")
    lines = []
    for case in cases(models, tools):
        lines.append(audited(case, n_runs, options.n_jobs, PrivacyLeakWarning))
        print(lines[-1].text(is_quick=options.quick), flush=True)
    print("\nWhy")
    for line in lines:
        print(f"{line.case.name:48} {line.case.why}.")
    told, spent = spent_by_a_search(models, diffprivlib.BudgetAccountant())
    print(
        f"\nIts accountant after a grid search: epsilon {told:g}. Its fits: {spent:g}."
        " `clone` copies accountants."
    )
    if options.quick:
        print("Violations where the code is wrong, none where it is right: no verdict")
        return 0
    return int(not all(line.is_as_expected for line in lines))


if __name__ == "__main__":
    sys.exit(main())
