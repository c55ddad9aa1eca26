"""Audits of estimators that need not be of this library, of which one is right and others wrong."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.linear_model import LinearRegression

from skdpadmm.audit import audit
from skdpadmm.privacy import gaussian_mu

MU = gaussian_mu(1.0, 1e-2)


class GaussianMean(RegressorMixin, BaseEstimator):
    """The mean of targets clipped to [-1, 1], with noise that is `share` of what it takes."""

    epsilon, delta = 1.0, 1e-2

    def __init__(self, share=1.0, random_state=None):
        self.share = share
        self.random_state = random_state

    def fit(self, X, y):
        rng = np.random.default_rng(self.random_state)
        noise = self.share * 2 / len(y) / MU
        self.coef_ = np.array([np.clip(y, -1, 1).mean() + noise * rng.standard_normal()])
        return self


class PerturbedObjective(ClassifierMixin, BaseEstimator):
    """Logistic regression with a random linear term, for records of norm 1.

    `factor` is what stands before the term: 1 is right, and 1 / n is a term of the mean that was
    meant for the sum.
    """

    def __init__(self, epsilon=2.0, ridge=1.0, is_wrong=False):
        self.epsilon = epsilon
        self.ridge = ridge
        self.is_wrong = is_wrong

    def fit(self, X, y):
        # Chaudhuri, Monteleoni and Sarwate: epsilon less what the Hessian of one record tells.
        left = self.epsilon - 2 * np.log(1 + 0.25 / self.ridge)
        term = np.random.default_rng().laplace(scale=2 / left)
        term = term / len(y) if self.is_wrong else term
        signs = np.where(np.asarray(y) > 0, 1.0, -1.0)
        margins = signs * X[:, 0]

        def objective(w):
            scores = margins * w[0]
            value = np.logaddexp(0, -scores).sum() + 0.5 * self.ridge * w[0] ** 2 + term * w[0]
            slope = -(margins / (1 + np.exp(scores))).sum() + self.ridge * w[0] + term
            return value, np.array([slope])

        self.coef_ = minimize(objective, np.zeros(1), jac=True, tol=1e-10).x
        self.intercept_ = np.zeros(1)
        return self


def test_a_right_mean_is_bounded_below_the_truth_and_above_half_of_it():
    report = audit(GaussianMean(), method="black-box", n_runs=12_000, random_state=0)
    assert not report.is_violation
    assert 0.5 < report.lower_bound <= 1.0
    assert report.claimed_epsilon == 1.0
    assert report.delta == 1e-2
    assert "No violation" in repr(report)


def test_a_mean_with_half_the_noise_is_found():
    report = audit(GaussianMean(share=0.5), method="black-box", n_runs=6000, random_state=0)
    assert report.is_violation
    assert report.lower_bound > 1.0
    assert "VIOLATION: epsilon is at least" in report.verdict


def test_a_seed_of_the_estimator_is_not_shared_by_runs():
    report = audit(GaussianMean(random_state=3), method="black-box", n_runs=1000)
    assert not report.is_violation


def test_noise_of_a_hidden_seed_is_found():
    class Seeded(GaussianMean):
        def fit(self, X, y):
            self.random_state = 0
            return super().fit(X, y)

    assert audit(Seeded(), method="black-box", n_runs=1000).is_violation


@pytest.mark.parametrize("is_wrong", [False, True])
def test_objective_perturbation_without_its_factor_is_found_and_with_it_is_not(is_wrong):
    model = PerturbedObjective(is_wrong=is_wrong)
    report = audit(model, method="black-box", n_runs=3000)
    assert report.is_violation == is_wrong
    if is_wrong:
        assert report.lower_bound > 2.0


class Bare:
    """The right mean, in as much of scikit-learn's manner as `fit` and `coef_`."""

    epsilon, delta = 1.0, 1e-2

    def fit(self, X, y):
        noise = 2 / len(y) / MU * self.normal()
        self.coef_ = np.array([np.clip(y, -1, 1).mean() + noise])
        return self

    def normal(self):
        return np.random.default_rng().standard_normal()


class HoldsAGenerator(Bare):
    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.old = np.random.RandomState(0)

    def normal(self):
        return (self.rng.standard_normal() + self.old.standard_normal()) / np.sqrt(2)


class TwoRows(Bare):
    def fit(self, X, y):
        super().fit(X, y)
        self.coef_ = np.tile(self.coef_, (2, 1))


class SparseCoef(Bare):
    def fit(self, X, y):
        self.coef_ = sparse.csr_array(super().fit(X, y).coef_[None])
        return self


class NotClonable(Bare, BaseEstimator):
    def __init__(self, epsilon=1.0):
        self.epsilon = epsilon * np.ones(1)[0] + 0.0


@pytest.mark.parametrize("make", [Bare, HoldsAGenerator, TwoRows, SparseCoef, NotClonable])
@pytest.mark.parametrize("random_state", [None, 0])
def test_what_is_no_estimator_of_scikit_learn_is_audited_too(make, random_state):
    model = make()
    before = dict(vars(model))
    report = audit(model, method="black-box", n_runs=1000, random_state=random_state)
    assert not report.is_violation
    assert vars(model) == before
    half = type("Half", (make,), {"normal": lambda self: 0.3 * make.normal(self)})
    assert audit(half(), method="black-box", n_runs=2000, random_state=random_state).is_violation


def test_canaries_need_a_coefficient_for_each_feature_and_no_more_of_scikit_learn():
    class Sums:
        epsilon, delta = 2.0, 1e-5

        def fit(self, X, y):
            self.coef_ = (X * np.asarray(y)[:, None]).sum(axis=0)[None]

    report = audit(Sums(), method="canaries", random_state=0)
    assert report.is_violation
    assert "125 of 125 guesses" in report.event
    with pytest.raises(ValueError, match="a coefficient for each of"):
        audit(Bare(), method="canaries")


def test_neighbours_may_be_given_and_models_without_noise_are_told_apart():
    class Exact(LinearRegression):
        epsilon, delta = 1.0, 1e-5

    X = np.arange(6.0)[:, None]
    pair = ((X, np.arange(6.0)), (X, np.r_[9.0, np.arange(1.0, 6.0)]))
    report = audit(Exact(), method="black-box", n_runs=200, neighbors=pair)
    assert report.is_violation
    assert report.neighbors == "as they were given"
    # Scikit-learn's own model is as wrong about one record among many.
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 2)), rng.standard_normal(50)
    assert audit(Exact(), X, y, method="black-box", n_runs=200).is_violation


def test_workers_with_the_same_seed_are_found():
    seeds = iter(np.arange(100_000) % 7)

    class SeededByWorker(GaussianMean):
        def fit(self, X, y):
            self.random_state = int(next(seeds))
            return super().fit(X, y)

    report = audit(SeededByWorker(), method="black-box", n_runs=2000)
    assert report.is_violation
    assert "equal models" in report.event
