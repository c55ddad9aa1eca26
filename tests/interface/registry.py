"""Every public estimator, and one algorithm of each other kind, with settings for quick fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.linear_model import (
    ElasticNet,
    GammaRegressor,
    Lasso,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    TweedieRegressor,
)
from sklearn.utils.validation import _get_feature_names

import skdpadmm as dp
from skdpadmm.algorithms import GradientADMM, GradientDescent

# Old versions of scikit-learn ask frames for a protocol that new ones of polars lack.
SEES_POLARS = _get_feature_names(pl.DataFrame({"a": [1.0]})) is not None
STREAM = GradientADMM(schedule="stream")
SMALL = {"random_state": 0, "max_iter": 5}
THREE = {"classes": [0, 1, 2]}
MEAN = {"alpha": 0.05}
# Within them all rates are.
RATES = [f"DPAdmm{name}Regressor" for name in ("Poisson", "Gamma", "Tweedie")]
OF_RATES = {**MEAN, "target_bounds": (1e-3, 40.0)}
NEWTON = {**MEAN, "solver": "newton-cholesky", "tol": 1e-12}


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

    @property
    def is_rate(self) -> bool:
        """Whether logarithms of targets follow the features."""
        return type(self.estimator).__name__ in RATES

    def make(self, **changed: Any) -> BaseEstimator:
        """A fresh estimator."""
        return clone(self.estimator).set_params(**changed)

    def data(self, n: int = 60, p: int = 3, seed: int = 0) -> tuple[Any, Any]:
        """Features of which some are zero, and numbers or classes that follow from them."""
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, size=(n, p))
        X[np.abs(X) < 0.3] = 0.0
        scores = 0.2 + X @ np.resize([1.0, -2.0, 0.5], p) + 0.5 * rng.normal(size=n)
        if self.is_rate:
            scores = np.exp(scores / 2)
        cuts = {1: None, 2: [0.0], 3: [-0.5, 0.8]}[self.n_classes]
        return X, scores if cuts is None else np.digitize(scores, cuts)


def logistic(C: float) -> BaseEstimator:
    return LogisticRegression(C=C, solver="newton-cg", tol=1e-12, max_iter=1000)


AGENTS = {
    "central": {},
    "federated": {"n_agents": 4},
    "decentralized": {"n_agents": 4, "topology": "ring"},
    "personalized": {},
}


def _row(family: str, estimator: BaseEstimator, counterpart: str = "") -> Row:
    made = estimator.set_params(**AGENTS[family], **SMALL)
    return Row(made, family, COUNTERPARTS.get(counterpart))


# What scikit-learn calls them, for a number of rows.
COUNTERPARTS: dict[str, Callable[[int], BaseEstimator]] = {
    "lasso": lambda n: Lasso(alpha=0.05, tol=1e-14),
    "mixed": lambda n: ElasticNet(alpha=0.1, l1_ratio=0.7, tol=1e-14),
    "ridge": lambda n: Ridge(alpha=2.0),
    "mean ridge": lambda n: Ridge(alpha=0.05 * n, solver="cholesky"),
    "logistic": lambda n: logistic(0.5),
    "poisson": lambda n: PoissonRegressor(**NEWTON),
    "gamma": lambda n: GammaRegressor(**NEWTON),
    "tweedie": lambda n: TweedieRegressor(power=1.5, link="log", **NEWTON),
    "mean logistic": lambda n: logistic(1 / (0.05 * n)),
    "linear": lambda n: LinearRegression(),
}
MIXED = {"alpha": 0.1, "l1_ratio": 0.7}
SHARING = "secret-sharing-gradient-descent"

# Every public estimator with its default algorithm.
DEFAULTS: dict[str, Row] = {
    "ridge": _row("central", dp.DPAdmmRidge(alpha=2.0), "ridge"),
    "lasso": _row("central", dp.DPAdmmLasso(alpha=0.05), "lasso"),
    "elastic net": _row("central", dp.DPAdmmElasticNet(**MIXED), "mixed"),
    "fused": _row("central", dp.DPAdmmGeneralizedLasso(alpha=0.0), "linear"),
    "huber": _row("central", dp.DPAdmmHuberRegressor()),
    "poisson": _row("central", dp.DPAdmmPoissonRegressor(**OF_RATES), "poisson"),
    "gamma": _row("central", dp.DPAdmmGammaRegressor(**OF_RATES), "gamma"),
    "tweedie": _row("central", dp.DPAdmmTweedieRegressor(**OF_RATES), "tweedie"),
    "quantile": _row("central", dp.DPAdmmQuantileRegressor(quantile=0.3, alpha=0.05)),
    "linear svc": _row("central", dp.DPAdmmLinearSVC()),
    "three hinges": _row("central", dp.DPAdmmLinearSVC(**THREE)),
    "logistic": _row("central", dp.DPAdmmLogisticRegression(C=0.5), "logistic"),
    "multinomial": _row("central", dp.DPAdmmLogisticRegression(C=0.5, **THREE), "logistic"),
    "fed ridge": _row("federated", dp.DPFedRidge(alpha=2.0), "ridge"),
    "fed lasso": _row("federated", dp.DPFedLasso(alpha=0.05), "lasso"),
    "fed elastic net": _row("federated", dp.DPFedElasticNet(**MIXED), "mixed"),
    "fed logistic": _row("federated", dp.DPFedLogisticRegression(C=0.5), "logistic"),
    "network": _row("decentralized", dp.DPDecentralizedRegressor(**MEAN), "mean ridge"),
    "network of classes": _row(
        "decentralized", dp.DPDecentralizedClassifier(**MEAN, **THREE), "mean logistic"
    ),
    "personal": _row("personalized", dp.DPPersonalizedRegressor(**MEAN), "mean ridge"),
    "personal classes": _row("personalized", dp.DPPersonalizedClassifier(**MEAN), "mean logistic"),
}
# One algorithm of each other kind.
KINDS: dict[str, Row] = {
    "stream": _row("central", dp.DPAdmmLasso(alpha=0.05, algorithm=STREAM), "lasso"),
    "path of gradients": _row(
        "central", dp.DPAdmmRidge(alpha=2.0, algorithm=GradientDescent()), "ridge"
    ),
    "perturbed objective": _row(
        "central", dp.DPAdmmRidge(alpha=2.0, algorithm="objective-perturbation"), "ridge"
    ),
    "fed sharing": _row("federated", dp.DPFedRidge(alpha=2.0, algorithm=SHARING), "ridge"),
    "walk": _row(
        "decentralized",
        dp.DPDecentralizedRegressor(**MEAN, algorithm="random-walk-admm"),
        "mean ridge",
    ),
    "alone": _row(
        "personalized", dp.DPPersonalizedRegressor(**MEAN, algorithm="local-models"), "mean ridge"
    ),
}
ROWS = DEFAULTS | KINDS


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
