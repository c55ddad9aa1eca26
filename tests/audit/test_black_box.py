"""Black boxes and canaries: planted bugs are found, and sound fits of any library not accused."""

import itertools
import os

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression

import skdpadmm
from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import ConsensusADMM
from skdpadmm.audit import audit
from skdpadmm.noise import SeededNoise
from skdpadmm.privacy import gaussian_mu
from tests.bugs.table import gaussian, no_clip, noise, same_for_every_class, scaled

pytestmark = pytest.mark.usefixtures("fixed_entropy")
ESTIMATORS = [getattr(skdpadmm, name) for name in skdpadmm.__all__ if name.startswith("DP")]
MU = gaussian_mu(1.0, 1e-2)
# The last iterate alone tells as much as the whole path, and the claimed mu is exact.
LINEAR = {
    "algorithm": ConsensusADMM(step_size=0.01, clip_norm=0.01, tail_fraction=1 / 3),
    "max_iter": 3, "delta": 1e-3, "epsilon": 3.0, "fit_intercept": False,
}  # fmt: skip


def black_box(model, n_runs, **options):
    return audit(model, method="black-box", n_runs=n_runs, **options)


# This library's own fits.


def ridge():
    return DPAdmmRidge(alpha=0.0, **LINEAR)


def multinomial():
    # What conditioning spends on second moments, which are equal here, a model does not show.
    return DPAdmmLogisticRegression(C=np.inf, classes=[0, 1, 2], conditioning=None, **LINEAR)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "n_runs"), [(ridge, 1000), (multinomial, 1200)])
def test_a_sound_fit_shows_nearly_what_is_claimed_and_no_more(make, n_runs):
    report = black_box(make(), n_runs, random_state=0)
    assert not report.is_violation
    assert report.observer == "model"
    assert 0 < report.lower_bound <= report.claimed_epsilon
    assert 0.5 * report.claimed_mu < report.mu_lower_bound <= report.claimed_mu
    # Gradients of two classes out of three are 120 degrees apart, those of opposite rows 180.
    words = "the opposite target" if make is ridge else "another row as long"
    assert report.neighbors.endswith(f"which has {words}")


FITS = itertools.count()
ONE_SEED = noise(lambda: SeededNoise((0,), b""))
ONE_FOR_ALL = noise(gaussian(same_for_every_class))
FIVE_SEEDS = noise(lambda: SeededNoise((next(FITS) % 5,), b""))


@pytest.mark.parametrize(
    ("plant", "make", "n_runs"),
    [
        (noise(scaled(0.5)), ridge, 800),
        (no_clip("skdpadmm.algorithms._agent_blocks"), ridge, 400),
        (FIVE_SEEDS, ridge, 200),
        pytest.param(ONE_FOR_ALL, multinomial, 1000, marks=pytest.mark.slow),
        pytest.param(ONE_SEED, ridge, 400, marks=pytest.mark.slow),
    ],
    ids=["half the noise", "no clip", "five seeds", "one noise for all classes", "one seed"],
)
def test_a_planted_bug_is_found(monkeypatch, plant, make, n_runs):
    plant(monkeypatch)
    report = black_box(make(), n_runs)
    assert report.is_violation
    assert report.verdict.startswith("VIOLATION")


def test_canaries_find_no_more_than_is_claimed_and_find_noise_that_is_missing(monkeypatch):
    model, own = DPAdmmRidge(epsilon=2.0, delta=1e-6), {"method": "canaries", "random_state": 0}
    assert not audit(model, **own).is_violation
    noise(scaled(1e-3))(monkeypatch)
    assert audit(model, **own).is_violation


@pytest.mark.slow
@pytest.mark.parametrize("make", ESTIMATORS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("method", ["black-box", "canaries"])
def test_nothing_is_found_in_what_is_shipped(make, method):
    model = make(epsilon=2.0, delta=1e-4, max_iter=5)
    if hasattr(model, "power"):
        model.set_params(target_bounds=(0.1, 10.0))
    n_runs = 2000 if method == "black-box" else None
    report = audit(model, method=method, n_runs=n_runs, random_state=1)
    assert not report.is_violation, report


# Fits of others.


class Bare:
    """The mean of targets in [-1, 1], in as much of scikit-learn's manner as `fit` and `coef_`."""

    epsilon, delta, share = 1.0, 1e-2, 1.0

    def fit(self, X, y):
        scale = self.share * 2 / len(y) / MU
        self.coef_ = np.array([np.clip(y, -1, 1).mean() + scale * self.normal()])
        return self

    def normal(self):
        return np.random.default_rng([*os.urandom(16)]).standard_normal()


class LittleNoise(Bare):
    share = 0.3


class SeededByWorker(Bare):
    seeds = iter(np.arange(10_000) % 7)

    def normal(self):
        return np.random.default_rng(next(SeededByWorker.seeds)).standard_normal()


@pytest.mark.slow
def test_a_right_mean_is_bounded_below_the_truth_and_above_half_of_it():
    report = black_box(Bare(), 12_000)
    assert not report.is_violation
    assert 0.5 < report.lower_bound <= report.claimed_epsilon == 1.0
    assert report.delta == 1e-2


@pytest.mark.parametrize(("make", "n_runs"), [(LittleNoise, 1000), (SeededByWorker, 800)])
def test_a_wrong_mean_is_found(make, n_runs):
    report = black_box(make(), n_runs)
    assert report.is_violation
    assert report.lower_bound > 1.0
    assert ("equal models" in report.event) == (make is SeededByWorker)


class HoldsAGenerator(Bare):
    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.old = np.random.RandomState(0)

    def normal(self):
        return (self.rng.standard_normal() + self.old.standard_normal()) / np.sqrt(2)


class TwoRows(Bare):
    def fit(self, X, y):
        super().fit(X, y)
        self.coef_ = sparse.csr_array(np.tile(self.coef_, (2, 1)))


class NotClonable(Bare, BaseEstimator):
    def __init__(self, epsilon=1.0):
        self.epsilon = epsilon * np.ones(1)[0] + 0.0


@pytest.mark.parametrize(
    ("make", "random_state"), [(HoldsAGenerator, 0), (TwoRows, 0), (NotClonable, None)]
)
def test_what_is_no_estimator_of_scikit_learn_is_audited_too(make, random_state):
    model = make()
    before = dict(vars(model))
    assert not black_box(model, 400, random_state=random_state).is_violation
    assert vars(model) == before
    less = type("Less", (make,), {"share": 0.2})()
    assert black_box(less, 400, random_state=random_state).is_violation


class Sums(Bare):
    delta = 1e-5

    def fit(self, X, y):
        self.coef_ = (X * np.asarray(y)[:, None]).sum(axis=0)[None]


class Exact(LinearRegression):
    epsilon, delta = 1.0, 1e-5


def test_models_without_noise_are_told_apart():
    report = audit(Sums(), method="canaries", random_state=0)
    assert report.is_violation
    assert "125 of 125 guesses" in report.event
    with pytest.raises(ValueError, match="a coefficient for each of"):
        audit(Bare(), method="canaries")
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 2)), rng.normal(size=50)
    for given in ({"X": X, "y": y}, {"neighbors": ((X, y), (X, np.r_[9.0, y[1:]]))}):
        assert black_box(Exact(), 200, **given).is_violation
