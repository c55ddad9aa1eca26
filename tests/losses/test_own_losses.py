"""Losses of a user's own: which target they receive, and which theorems hold for them."""

import dataclasses
import math

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.svm import LinearSVC

import skdpadmm
from skdpadmm import (
    DPAdmmElasticNet,
    DPAdmmGammaRegressor,
    DPAdmmLinearSVC,
    DPAdmmLogisticRegression,
    DPAdmmQuantileRegressor,
    DPAdmmRidge,
    DPDecentralizedClassifier,
    DPFedLogisticRegression,
    DPPersonalizedClassifier,
)
from skdpadmm import algorithms as alg
from skdpadmm.algorithms._objective_perturbation import derivative_kind
from skdpadmm.losses import (
    HuberLoss,
    LogisticLoss,
    Loss,
    SmoothedPinball,
    SquaredLoss,
    TweedieLoss,
    WeightedLoss,
)
from skdpadmm.penalties import SquaredL2
from skdpadmm.privacy import LossDerivative
from tests.contract import test_contract as contract
from tests.contract.registry import BY_ID


def test_only_losses_of_a_residual_get_a_scaled_target():
    seen = {}

    class Recorded(HuberLoss):
        smoothness = lipschitz = 1.0

        def derivative(self, scores, target):
            seen[self.is_of_residual] = (target.min(), target.max())
            return super().derivative(scores, target)

    class Plain(Recorded):
        is_of_residual = False

    for loss in (Recorded(1.0), Plain(1.0)):
        model = type("Own", (DPAdmmRidge,), {"_loss": lambda self, n_classes, loss=loss: loss})
        known = {"feature_bounds": (-1, 1), "target_bounds": (0, 8), "random_state": 0}
        model(**known).fit(np.linspace(-1, 1, 40)[:, None], np.linspace(-1, 9, 40))
    # Both are clipped to their bounds.
    assert seen == {True: (-1.0, 1.0), False: (0.0, 8.0)}


@dataclasses.dataclass(frozen=True)
class OwnRates(TweedieLoss):
    """Declares nothing of the power of its unit, and that it is of a residual."""

    is_of_residual = True
    degree = 2.0


class OwnQuantile(SmoothedPinball):
    degree = 2.0


class OwnRegressor(DPAdmmRidge):
    def _loss(self, n_classes):
        return OwnRates(1.5, 0.5, 40.0)


@pytest.mark.parametrize(
    "bounds", [None, (-1.0, 5.0), (1e-300, 1e100), (1e10, 1e10 * (1 + 1e-15)), (0.5, 0.5 + 1e-7)]
)
def test_rates_without_a_range_that_has_logarithms_are_refused(bounds):
    # Logarithms that floats do not tell apart would fail, or not, by the targets.
    with pytest.raises(ValueError, match="for a log link, expected lower < upper"):
        OwnRegressor(feature_bounds=(-1, 1), target_bounds=bounds).plan(20_000, 3)


@pytest.mark.parametrize("loss", [OwnRates(1.5, 0.5, 40.0), OwnQuantile(0.9, 0.1)])
def test_whatever_a_loss_declares_no_theorem_has_constants_in_a_released_unit(loss):
    own = type("Own", (OwnRegressor,), {"_loss": lambda self, n_classes: loss})
    known = {"feature_bounds": (-1, 1), "target_bounds": (0.5, 40.0)}
    for name, is_released in (("ConsensusADMM", True), ("ObjectivePerturbation", False)):
        plan = own(algorithm=getattr(alg, name)(), **known).plan(20_000, 3)
        assert (plan.facts.centering is not None) == is_released
        # Coefficients of logarithms have no unit of the target.
        assert (plan.facts.coordinates.target_scale == 1.0) == loss.has_log_link


def test_a_loss_derived_from_a_logistic_one_has_no_theorem_of_it():
    class Steep(LogisticLoss):
        smoothness, lipschitz = 25.0, 10.0

        def derivative(self, scores, target):
            return 10 * super().derivative(10 * scores, target)

    class Own(DPAdmmLogisticRegression):
        def _loss(self, n_classes):
            return Steep()

    known = {"classes": [0, 1], "feature_bounds": (-1, 1), "algorithm": "objective-perturbation"}
    kinds = [
        cls(**known).plan(1_000, 3).guarantee().derivative
        for cls in (DPAdmmLogisticRegression, Own)
    ]
    assert kinds == [LossDerivative.LOGISTIC, LossDerivative.ANY]


def test_a_weighted_loss_with_a_derivative_of_its_own_has_no_theorem_of_the_weighted_one():
    class Tilted(WeightedLoss):
        smoothness, lipschitz = 2.0, 3.0

        def derivative(self, scores, target):
            return super().derivative(scores, target) + 0.5 * np.tanh(scores)

    weights = (1.0, 2.0)
    assert derivative_kind(WeightedLoss(LogisticLoss(), weights)) is LossDerivative.ONE_SIGN
    assert derivative_kind(Tilted(LogisticLoss(), weights)) is LossDerivative.ANY


@pytest.mark.parametrize("bounds", [{}, {"smoothness": 1e3}, {"lipschitz": 1e3}])
def test_a_loss_with_a_derivative_of_its_own_states_its_bounds(bounds):
    # Objective perturbation, averaged ADMM, random walks and the last iterate rest on them.
    own = {"derivative": lambda self, scores, target: 1e3 * (scores - target)}
    with pytest.raises(TypeError, match=r"^Got a class Steep with .* expected its (smooth|lip)"):
        type("Steep", (SquaredLoss,), own | bounds)


# Losses with corners: the hinge, and the absolute value of residuals.


@dataclasses.dataclass(frozen=True)
class PlainHinge(Loss):
    smoothness, lipschitz = math.inf, 1.0

    def value(self, scores, target):
        return np.maximum(1 - target * scores, 0)

    def derivative(self, scores, target):
        return np.where(target * scores < 1, -target, 0.0)

    def curvature(self, scores, target):
        return np.zeros(scores.shape)

    def proximal_derivative(self, scores, target, step, start=None, n_steps=1):
        with np.errstate(all="ignore"):
            return -target * np.clip((1 - target * scores) / np.maximum(step, 1e-300), 0, 1)


@dataclasses.dataclass(frozen=True)
class AbsoluteLoss(Loss):
    smoothness, lipschitz, is_of_residual = math.inf, 1.0, True
    weight: float = 1.0

    def in_units(self, unit):
        return dataclasses.replace(self, weight=self.weight / unit)

    def value(self, scores, target):
        return self.weight * np.abs(scores - target)

    def derivative(self, scores, target):
        return self.weight * np.sign(scores - target)

    def curvature(self, scores, target):
        return np.zeros(scores.shape)

    def proximal_derivative(self, scores, target, step, start=None, n_steps=1):
        with np.errstate(all="ignore"):
            g = (scores - target) / np.maximum(step, 1e-300)
            return np.clip(g, -self.weight, self.weight)


class PlainSVC(DPAdmmLinearSVC):
    def _loss(self, n_classes):
        return PlainHinge()


class AbsoluteRegressor(DPAdmmElasticNet):
    def _loss(self, n_classes):
        return AbsoluteLoss()


CORNERS = {
    "consensus": ("consensus-exact", "PlainSVC", "ConsensusADMM", {"record_step": "exact"}),
    "linearized": ("consensus-exact", "PlainSVC", "ConsensusADMM", {"record_step": "linearized"}),
    "absolute": ("consensus-exact", "AbsoluteRegressor", "ConsensusADMM", {}),
    "descent": ("gradient-path", "PlainSVC", "GradientDescent", {}),
    "batches": ("gradient-batches", "PlainSVC", "GradientDescent", {"batch_fraction": 0.5}),
}


@pytest.mark.parametrize("promise", ["replay_within_sensitivity", "linear_losses_attain_the_claim"])
@pytest.mark.parametrize("name", CORNERS)
def test_a_path_is_as_private_where_losses_have_corners(name, promise, monkeypatch):
    row_id, estimator, algorithm, knobs = CORNERS[name]
    monkeypatch.setattr(skdpadmm, f"DPAdmm{estimator}", globals()[estimator], raising=False)
    target = "two" if estimator == "PlainSVC" else "number"
    own = {"estimator": f"DPAdmm{estimator}", "algorithm": algorithm, "knobs": knobs}
    row = dataclasses.replace(BY_ID[row_id], target=target, **own)
    getattr(contract, promise)(row)


OF_AGENTS = {"agent_sizes": [50] * 4}
NEEDS_CURVATURE = [
    *(({}, DPAdmmLinearSVC, each) for each in (
        "coordinate-descent", "averaged-admm", "gradient-admm", "objective-perturbation",
        alg.GradientDescent(guarantee="last", step_size=0.1), alg.AveragedADMM(guarantee="path"),
        alg.GradientDescent(schedule="cyclic"), alg.GradientADMM(release="path"),
    )),
    (OF_AGENTS, DPFedLogisticRegression, "federated-admm"),
    *((OF_AGENTS, DPDecentralizedClassifier, each) for each in (
        "multi-step-admm", "decentralized-gradient-descent", "randomized-admm", "random-walk-admm"
    )),
    (OF_AGENTS, DPPersonalizedClassifier, "personalized-coordinate-descent"),
    (OF_AGENTS, DPPersonalizedClassifier, "local-models"),
]  # fmt: skip


@pytest.mark.parametrize(("sizes", "estimator", "algorithm"), NEEDS_CURVATURE)
def test_theorems_and_steps_that_need_curvature_refuse_corners(sizes, estimator, algorithm):
    own = type("Own", (estimator,), {"_loss": lambda self, n_classes: PlainHinge()})
    model = own(classes=[0, 1], feature_bounds=(-1, 1), algorithm=algorithm)
    with pytest.raises(
        ValueError, match=r"PlainHinge\(\) with smoothness=inf .* bound of the curv"
    ):
        model.plan(200, 3, **sizes)


def test_by_default_corners_count_as_parabolas_of_width_one():
    known = {"classes": [0, 1], "feature_bounds": (-1, 1), "max_iter": 50}
    weights = {"class_weight": {0: 1.0, 1: 4.0}}
    for params in ({}, {"conditioning": None}, weights, {**weights, "conditioning": None}):
        plan = PlainSVC(**known, **params).plan(2000, 3)
        settings = dict(plan.settings)
        assert 0 < settings["step_size"] < 100
        assert 0 < settings["clip_norm"] < 10


def test_without_noise_a_corner_is_fitted_exactly():
    X, y = BY_ID["consensus-exact"].data()
    y = (y > 0).astype(int)
    known = {"fit_intercept": False, "feature_bounds": (-1, 1), "classes": [0, 1], "C": 1.0}
    model = PlainSVC(
        algorithm=alg.ConsensusADMM(), epsilon=math.inf, max_iter=2000, conditioning=None, **known
    )
    exact = LinearSVC(loss="hinge", fit_intercept=False, tol=1e-10, max_iter=10**6).fit(X, y)
    np.testing.assert_allclose(model.fit(X, y).coef_, exact.coef_, atol=1e-3)
    named = clone(model).set_params(algorithm="consensus-admm")
    with pytest.raises(ValueError, match=r"ProximalNewton.* Pass ConsensusADMM"):
        named.fit(X, y)


@pytest.mark.parametrize(
    ("base", "bounds"),
    [
        (DPAdmmRidge, (-0.01, 0.01)),
        (DPAdmmQuantileRegressor, (-0.01, 0.01)),
        (DPAdmmGammaRegressor, (0.01, 90.0)),
        (OwnRegressor, (0.01, 90.0)),
    ],
)
def test_the_convexity_of_a_penalty_that_theorems_use_is_that_of_the_objective(base, bounds):
    class Squared(base):
        def _penalty(self, n_samples, n_features):
            return SquaredL2(0.5)

    known = {"fit_intercept": False, "feature_bounds": (-2, 2), "target_bounds": bounds}
    facts = Squared(**known).plan(n_samples=100, n_features=1).facts
    # In public coordinates: of the target's unit, and of columns with bounds of -1 and 1.
    ridge = facts.penalty.strength * (facts.coordinates.coefficient_scale**2).max()
    assert facts.penalty_curvature == pytest.approx(ridge, rel=1e-9)
