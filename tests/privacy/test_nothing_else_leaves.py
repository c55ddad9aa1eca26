"""What could leave beside the gate, and does not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from skdpadmm import (
    DPAdmmElasticNet,
    DPAdmmHuberRegressor,
    DPAdmmLasso,
    DPAdmmLinearSVC,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
)
from skdpadmm.algorithms import ConsensusADMM
from skdpadmm.noise import CryptographicNoise
from skdpadmm.privacy import GaussianDP, Mixture, PoissonSubsampledGaussian, gaussian_mu
from skdpadmm.protocol import Gate, PlanViolation
from skdpadmm.records import Rows, declared_coordinates

ESTIMATORS = [
    DPAdmmElasticNet,
    DPAdmmHuberRegressor,
    DPAdmmLasso,
    DPAdmmLinearSVC,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
]


def data(seed=0, n=40):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 3)), np.arange(n) % 2


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_number_of_iterations_and_the_report_do_not_depend_on_data(estimator):
    models = [estimator(max_iter=7).fit(*data(seed)) for seed in range(4)]
    assert [model.n_iter_ for model in models] == [7] * 4
    assert len({repr(model.privacy_) for model in models}) == 1
    assert (
        models[0].privacy_.observers[0].sees == "everything that was released, and the final model"
    )


def test_an_algorithm_object_is_the_same_after_a_fit():
    algorithm = ConsensusADMM()
    before = dict(vars(algorithm))
    DPAdmmRidge(algorithm=algorithm).fit(*data())
    assert vars(algorithm) == before


def test_floating_point_states_of_the_caller_turn_nothing_into_an_exception():
    # An exception for one value and none for another would tell the two apart.
    X, y = data()
    X[3] = [1e-200, 5e-324, -1e300]
    for convert in (np.asarray, sparse.csr_matrix):
        for bounds in (None, (-2, 2)):
            with np.errstate(all="raise"):
                DPAdmmRidge(feature_bounds=bounds).fit(convert(X), y)


def test_columns_that_a_dict_names_are_clipped_to_their_range_and_the_others_are_not():
    X, y = data()
    frame = pd.DataFrame(5 * X, columns=["a", "b", "c"])
    clipped = frame.assign(b=frame["b"].clip(-1, 2))
    fits = [
        DPAdmmRidge(feature_bounds={"b": (-1, 2)}, random_state=0).fit(part, y)
        for part in (frame, clipped)
    ]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-10)
    assert "not for every column" in repr(fits[0].privacy_)


@pytest.mark.parametrize("classes", [None, [0, 1]])
def test_the_report_says_whether_classes_are_assumed_to_be_public(classes):
    report = DPAdmmLogisticRegression(classes=classes).fit(*data()).privacy_
    assert ("classes not declared" in repr(report)) == (classes is None)


def test_the_report_prints_the_largest_sensitivity_of_a_release():
    model = DPAdmmRidge(algorithm=ConsensusADMM(relaxation=0.2)).fit(*data())
    planned = DPAdmmRidge(algorithm=ConsensusADMM(relaxation=0.2)).plan(40, 3).releases[-1]
    assert model.privacy_.releases[-1].sensitivity == max(planned.sensitivities)
    assert min(planned.sensitivities) < max(planned.sensitivities)


@pytest.mark.parametrize("values", [[1.7e308, 1.7e308], [1.7e308, 1.7e308, -1.7e308, -1.7e308]])
def test_repeated_entries_whose_sum_overflows_stay_finite_and_below_the_norm(values):
    k = len(values)
    X = sparse.csr_matrix((values, np.zeros(k, dtype=int), [0, k]), shape=(1, 2))
    coordinates = declared_coordinates(n_features=2, fit_intercept=True, has_target_scale=False)
    rows = Rows(X, coordinates)
    row = rows.collect(rows.adjoint(0, np.ones(1)))
    assert np.isfinite(row).all()
    assert np.linalg.norm(row) <= coordinates.row_norm * (1 + 1e-12)


def test_a_stale_flag_of_a_sparse_matrix_does_not_hide_repeated_entries():
    X = sparse.csr_matrix(np.ones((2, 40)))
    X.sum_duplicates()
    X.indices[:] = 0
    coordinates = declared_coordinates(n_features=40, fit_intercept=True, has_target_scale=False)
    rows = Rows(X, coordinates)
    np.testing.assert_allclose(rows.weight, coordinates.row_norm / np.sqrt(1601))


def test_norms_of_centred_sparse_rows_are_never_too_small():
    n_features = 2**18
    X = sparse.csr_matrix((np.ones(1), [5], [0, 1]), shape=(1, n_features))
    coordinates = declared_coordinates(
        n_features=n_features,
        fit_intercept=True,
        feature_bounds=(-0.137, 1.033),
        has_target_scale=False,
    )
    rows = Rows(X, coordinates)
    of_zero = (coordinates.offset[0] / coordinates.scale[0]) ** 2
    of_one = ((1 - coordinates.offset[0]) / coordinates.scale[0]) ** 2
    exact = (n_features - 1) * of_zero + of_one + 1
    assert rows.squared_norm[0] >= exact * (1 - 1e-15)
    np.testing.assert_allclose(rows.squared_norm[0], exact, rtol=1e-9)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_gate_lets_nothing_through_that_is_not_finite(value):
    plan = DPAdmmRidge().plan(10, 1)
    gate = Gate(plan, CryptographicNoise())
    with pytest.raises(PlanViolation, match="not finite"):
        gate.release("mean displacement", np.array([[1.0], [value]]))


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 3.0, 10.0, 100.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_calibration_and_the_printed_epsilon_are_on_the_safe_side(epsilon, delta):
    assert GaussianDP(gaussian_mu(epsilon, delta)).delta(epsilon) <= delta
    plan = DPAdmmRidge(epsilon=epsilon, delta=delta).plan(2, 3)
    assert plan.guarantee().epsilon(delta) <= epsilon


def test_missing_weight_of_a_mixture_counts_as_delta():
    mixture = Mixture((0.5, 0.5 - 5e-13), (GaussianDP(0.1), GaussianDP(0.2)))
    assert mixture.delta(50.0) >= 4e-13


def test_a_sampled_gaussian_never_claims_more_than_its_exact_curve_at_large_epsilon():
    exact = GaussianDP(40.0)
    sampled = PoissonSubsampledGaussian(1.0, 1 / 40, 1, "zero_out")
    for epsilon in (100.0, 701.0, 1e300):
        assert sampled.delta(epsilon) >= exact.delta(epsilon) * (1 - 1e-9)


def test_the_score_at_the_default_budget_is_what_the_estimator_tags_say():
    # scikit-learn's check asks for 0.5 at one seed; here it is the median over twenty.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 10))
    y = X[:, 0] + 0.5 * rng.standard_normal(200)
    y = (y - y.mean()) / y.std()
    for estimator in (DPAdmmRidge, DPAdmmLasso, DPAdmmElasticNet):
        scores = [
            estimator(alpha=0.01, random_state=seed).fit(X, y).score(X, y) for seed in range(20)
        ]
        assert np.median(scores) > 0.5
