"""Every public estimator, and one algorithm of each other kind, with settings for quick fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, LogisticRegression, Ridge

import skdpadmm as dp
from skdpadmm.algorithms import GradientADMM, GradientDescent

STREAM = GradientADMM(schedule="stream")
SMALL = {"random_state": 0, "max_iter": 5}
THREE = {"classes": [0, 1, 2]}
MEAN = {"alpha": 0.05}


@dataclass(frozen=True, eq=False)
class Row:
    """An estimator with a small budget of time, and what it is at ``epsilon=inf``."""

    estimator: BaseEstimator
    family: str
    # What scikit-learn calls it, for a number of rows.
    counterpart: Callable[[int], BaseEstimator] | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes; 1 for a regression."""
        if not is_classifier(self.estimator):
            return 1
        return 3 if self.estimator.classes else 2

    def make(self, **changed: Any) -> BaseEstimator:
        """A fresh estimator."""
        return clone(self.estimator).set_params(**changed)

    def data(self, n: int = 60, p: int = 3, seed: int = 0) -> tuple[Any, Any]:
        """Features of which some are zero, and numbers or classes that follow from them."""
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, size=(n, p))
        X[np.abs(X) < 0.3] = 0.0
        scores = 0.2 + X @ np.resize([1.0, -2.0, 0.5], p) + 0.5 * rng.normal(size=n)
        cuts = {1: None, 2: [0.0], 3: [-0.5, 0.8]}[self.n_classes]
        return X, scores if cuts is None else np.digitize(scores, cuts)


def logistic(C: float) -> BaseEstimator:
    return LogisticRegression(C=C, solver="newton-cg", tol=1e-12, max_iter=1000)


def _central(estimator: BaseEstimator, counterpart: Any = None) -> Row:
    return Row(estimator.set_params(**SMALL), "central", counterpart)


def _federated(estimator: BaseEstimator, counterpart: Any = None) -> Row:
    return Row(estimator.set_params(n_agents=4, **SMALL), "federated", counterpart)


def _decentralized(estimator: BaseEstimator, counterpart: Any = None) -> Row:
    estimator.set_params(n_agents=4, topology="ring", **SMALL)
    return Row(estimator, "decentralized", counterpart)


def _personalized(estimator: BaseEstimator, counterpart: Any = None) -> Row:
    return Row(estimator.set_params(**SMALL), "personalized", counterpart)


def _lasso(n: int) -> BaseEstimator:
    return Lasso(alpha=0.05, tol=1e-14)


def _mixed(n: int) -> BaseEstimator:
    return ElasticNet(alpha=0.1, l1_ratio=0.7, tol=1e-14)


MIXED = {"alpha": 0.1, "l1_ratio": 0.7}
SHARING = "secret-sharing-gradient-descent"

# Every public estimator with its default algorithm.
DEFAULTS: dict[str, Row] = {
    "ridge": _central(dp.DPAdmmRidge(alpha=2.0), lambda n: Ridge(alpha=2.0)),
    "lasso": _central(dp.DPAdmmLasso(alpha=0.05), _lasso),
    "elastic net": _central(dp.DPAdmmElasticNet(**MIXED), _mixed),
    "fused": _central(dp.DPAdmmGeneralizedLasso(alpha=0.0), lambda n: LinearRegression()),
    "huber": _central(dp.DPAdmmHuberRegressor()),
    "linear svc": _central(dp.DPAdmmLinearSVC()),
    "three hinges": _central(dp.DPAdmmLinearSVC(**THREE)),
    "logistic": _central(dp.DPAdmmLogisticRegression(C=0.5), lambda n: logistic(0.5)),
    "multinomial": _central(dp.DPAdmmLogisticRegression(C=0.5, **THREE), lambda n: logistic(0.5)),
    "fed ridge": _federated(dp.DPFedRidge(alpha=2.0), lambda n: Ridge(alpha=2.0)),
    "fed lasso": _federated(dp.DPFedLasso(alpha=0.05), _lasso),
    "fed elastic net": _federated(dp.DPFedElasticNet(**MIXED), _mixed),
    "fed logistic": _federated(dp.DPFedLogisticRegression(C=0.5), lambda n: logistic(0.5)),
    "network": _decentralized(
        dp.DPDecentralizedRegressor(**MEAN), lambda n: Ridge(alpha=0.05 * n, solver="cholesky")
    ),
    "network of classes": _decentralized(
        dp.DPDecentralizedClassifier(**MEAN, **THREE), lambda n: logistic(1 / (0.05 * n))
    ),
    "personal": _personalized(
        dp.DPPersonalizedRegressor(**MEAN), lambda n: Ridge(alpha=0.05 * n, solver="cholesky")
    ),
    "personal classes": _personalized(
        dp.DPPersonalizedClassifier(**MEAN), lambda n: logistic(1 / (0.05 * n))
    ),
}
# One algorithm of each other kind.
KINDS: dict[str, Row] = {
    "stream": _central(dp.DPAdmmLasso(alpha=0.05, algorithm=STREAM), _lasso),
    "path of gradients": _central(
        dp.DPAdmmRidge(alpha=2.0, algorithm=GradientDescent()), lambda n: Ridge(alpha=2.0)
    ),
    "perturbed objective": _central(
        dp.DPAdmmRidge(alpha=2.0, algorithm="objective-perturbation"), lambda n: Ridge(alpha=2.0)
    ),
    "fed sharing": _federated(
        dp.DPFedRidge(alpha=2.0, algorithm=SHARING), lambda n: Ridge(alpha=2.0)
    ),
    "walk": _decentralized(
        dp.DPDecentralizedRegressor(**MEAN, algorithm="random-walk-admm"),
        lambda n: Ridge(alpha=0.05 * n, solver="cholesky"),
    ),
    "alone": _personalized(
        dp.DPPersonalizedRegressor(**MEAN, algorithm="local-models"),
        lambda n: Ridge(alpha=0.05 * n, solver="cholesky"),
    ),
}
ROWS = DEFAULTS | KINDS
OF_AGENTS = {name: row for name, row in ROWS.items() if row.family != "central"}


def parameters(model: Any) -> np.ndarray:
    """All that a fit found, in one vector: the model, and those of agents where there are some."""
    names = ("coef_", "intercept_", "coef_per_agent_", "intercept_per_agent_")
    return np.concatenate([np.ravel(getattr(model, name, ())) for name in names])


def assert_alike(found: Any, expected: Any) -> None:
    """Equal but for rounding: where rows lie in memory changes last bits."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def plan_of(model: Any, n_samples: int, n_features: int, **more: Any) -> Any:
    """The plan of an estimator, of two classes where it declares none."""
    if is_classifier(model) and not model.classes:
        more = {"n_classes": 2} | more
    return model.plan(n_samples, n_features, **more)


def all_pairs(*factors: Any) -> list[tuple[Any, ...]]:
    """Tuples, few of them, such that every pair of values of two factors is in one of them."""
    factors = [list(values) for values in factors]
    columns = range(len(factors))

    def pairs(row: tuple[int, ...]) -> set[tuple[int, int, int, int]]:
        return {(i, row[i], j, row[j]) for i in columns for j in columns if i < j}

    missing = {
        (i, a, j, b)
        for i in columns for j in columns if i < j
        for a in range(len(factors[i])) for b in range(len(factors[j]))
    }  # fmt: skip
    rng, rows = np.random.default_rng(0), []
    while missing:
        i, a, j, b = min(missing)
        trials = rng.integers([len(values) for values in factors], size=(30, len(factors)))
        trials[:, i], trials[:, j] = a, b
        best = max(map(tuple, trials.tolist()), key=lambda row: len(pairs(row) & missing))
        missing -= pairs(best)
        rows.append(tuple(values[k] for values, k in zip(factors, best, strict=True)))
    return rows
