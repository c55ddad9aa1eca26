"""A fitted estimator holds what its report says has been released, and says what it is."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import is_classifier

import skdpadmm
from skdpadmm import DPAdmmLasso, DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import ConsensusADMM
from skdpadmm.noise import CryptographicNoise
from skdpadmm.privacy import GaussianDP, Mixture, PoissonSubsampledGaussian
from skdpadmm.protocol import Gate, PlanViolation
from skdpadmm.records import Rows, declared_coordinates
from tests.contract.harness import record, unit_noise
from tests.contract.registry import ROWS

CENTRAL = [getattr(skdpadmm, name) for name in skdpadmm.__all__ if name.startswith("DPAdmm")]
LEARNED = {"coef_", "intercept_", "n_iter_", "privacy_", "n_features_in_"}


def data(model, n=40):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2 if is_classifier(model) else rng.standard_normal(n)
    return rng.standard_normal((n, 3)), y


@pytest.mark.parametrize("estimator", CENTRAL)
@pytest.mark.parametrize("epsilon", [1.0, np.inf])
def test_nothing_is_stored_but_parameters_and_what_was_released(estimator, epsilon):
    model = estimator(epsilon=epsilon)
    model.fit(*data(model))
    more = {"classes_"} if is_classifier(model) else set()
    if estimator is DPAdmmLogisticRegression:
        # Functions of the plan and of what was released.
        more |= {"_derivative_bound", "_doubt", "_score_variance"}
    assert set(vars(model)) == set(model.get_params()) | LEARNED | more


@pytest.mark.parametrize(
    "changes", [{"epsilon": 1.0001}, {"feature_bounds": (-7, 7)}, {"max_iter": 101}]
)
def test_fits_with_equal_seeds_and_other_plans_share_no_noise(changes):
    (row,) = (row for row in ROWS if row.id == "consensus-exact")
    X, y = row.data()
    drawn = [
        unit_noise(record(row, X, y, **{"max_iter": 100, **more}))["mean displacement"].ravel()
        for more in ({}, changes)
    ]
    # 300 pairs of independent entries: a correlation of .3 is five standard errors away.
    assert abs(np.corrcoef(drawn[0], drawn[1][:300])[0, 1]) < 0.3


def test_a_seeded_fit_is_marked_as_a_simulation_and_an_unseeded_one_is_not():
    for seed in (0, np.random.RandomState(0), np.random.default_rng(0), None):
        report = DPAdmmRidge(random_state=seed).fit(*data(DPAdmmRidge())).privacy_
        assert bool(report.simulation) == ("SIMULATION" in repr(report)) == (seed is not None)


def test_the_report_of_epsilon_inf_says_not_private():
    report = DPAdmmRidge(epsilon=np.inf).fit(*data(DPAdmmRidge())).privacy_
    assert "not private" in repr(report)
    assert report.epsilon() == np.inf


@pytest.mark.parametrize("estimator", CENTRAL)
def test_the_report_states_observer_unit_relation_budget_and_assumptions(estimator):
    model = estimator(epsilon=0.7, delta=1e-4, neighboring="zero_out")
    report = model.fit(*data(model)).privacy_
    assert report.epsilon() <= 0.7 * (1 + 1e-9)
    assert report.epsilon() == pytest.approx(0.7, rel=1e-6)
    for phrase in ("model", "record", "zero", "0.7", "0.0001", "pipeline"):
        assert phrase in repr(report)
    assert "<table" in report._repr_html_()
    assert report.to_dict()["delta"] == 1e-4
    assert report.observers[0].sees == "everything that was released, and the final model"


def test_the_plan_prints_what_the_report_will_assume():
    plan, report = DPAdmmRidge().plan(40, 3), DPAdmmRidge().fit(*data(DPAdmmRidge())).privacy_
    assert "targets are clipped to [-3, 3]" in repr(plan)
    assert plan.assumptions == report.assumptions
    declared = DPAdmmRidge(feature_bounds=(-5, 5), target_bounds=(-9, 9)).plan(40, 3)
    assert "not declared" not in repr(declared)
    far = DPAdmmRidge(feature_bounds=(1e9, 1e9 + 1), delta=1e-7).plan(10**6, 3)
    assert "times the noise, to cover rounding errors" in repr(far)
    with pytest.warns(UserWarning, match="Got delta"):
        assert "Got delta=0.5" in repr(DPAdmmRidge(delta=0.5).plan(40, 3))
    for classes in (None, [0, 1]):
        model = DPAdmmLogisticRegression(classes=classes)
        told = "classes not declared" in repr(model.fit(*data(model)).privacy_)
        assert told == (classes is None)


def test_the_report_prints_the_largest_sensitivity_of_a_release():
    model = DPAdmmRidge(algorithm=ConsensusADMM(relaxation=0.2))
    planned = model.plan(40, 3).releases[-1].sensitivities
    assert min(planned) < max(planned)
    assert model.fit(*data(model)).privacy_.releases[-1].sensitivity == max(planned)


def test_the_progress_bar_shows_iterations_and_nothing_else(capsys):
    DPAdmmRidge(verbose=1, max_iter=3).fit(*data(DPAdmmRidge()))
    told = capsys.readouterr().err
    assert "3/3" in told
    assert not any(word in told for word in ("loss", "objective", "residual", "coef"))


def test_columns_that_a_dict_names_are_clipped_to_their_range_and_the_others_are_not():
    X, y = data(DPAdmmRidge())
    frame = pd.DataFrame(5 * X, columns=["a", "b", "c"])
    clipped = frame.assign(b=frame["b"].clip(-1, 2))
    one, other = (
        DPAdmmRidge(feature_bounds={"b": (-1, 2)}, random_state=0).fit(part, y)
        for part in (frame, clipped)
    )
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-10)
    assert "not for every column" in repr(one.privacy_)


@pytest.mark.parametrize("values", [[1.7e308, 1.7e308], [1.7e308, 1.7e308, -1.7e308, -1.7e308]])
def test_repeated_entries_whose_sum_overflows_stay_finite_and_below_the_norm(values):
    k = len(values)
    X = sparse.csr_matrix((values, np.zeros(k, dtype=int), [0, k]), shape=(1, 2))
    coordinates = declared_coordinates(n_features=2, fit_intercept=True, has_target_scale=False)
    row = (rows := Rows(X, coordinates)).collect(rows.adjoint(0, np.ones(1)))
    assert np.isfinite(row).all()
    assert np.linalg.norm(row) <= coordinates.row_norm * (1 + 1e-12)


def test_a_stale_flag_of_a_sparse_matrix_does_not_hide_repeated_entries():
    X = sparse.csr_matrix(np.ones((2, 40)))
    X.sum_duplicates()
    X.indices[:] = 0
    coordinates = declared_coordinates(n_features=40, fit_intercept=True, has_target_scale=False)
    expected = coordinates.row_norm / np.sqrt(1601)
    np.testing.assert_allclose(Rows(X, coordinates).weight, expected)


def test_norms_of_centred_sparse_rows_are_never_too_small():
    n_features = 2**18
    X = sparse.csr_matrix((np.ones(1), [5], [0, 1]), shape=(1, n_features))
    coordinates = declared_coordinates(
        n_features=n_features, fit_intercept=True, feature_bounds=(-0.137, 1.033),
        has_target_scale=False,
    )  # fmt: skip
    of_zero = (coordinates.offset[0] / coordinates.scale[0]) ** 2
    of_one = ((1 - coordinates.offset[0]) / coordinates.scale[0]) ** 2
    exact, found = (n_features - 1) * of_zero + of_one + 1, Rows(X, coordinates).squared_norm[0]
    assert found >= exact * (1 - 1e-15)
    np.testing.assert_allclose(found, exact, rtol=1e-9)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_gate_lets_nothing_through_that_is_not_finite(value):
    gate = Gate(DPAdmmRidge().plan(10, 1), CryptographicNoise())
    with pytest.raises(PlanViolation, match="not finite"):
        gate.release("mean displacement", np.array([[1.0], [value]]))


def test_bounds_of_mixtures_and_sampled_mechanisms_are_on_the_safe_side():
    # Missing weight counts as delta; at large epsilon no more is claimed than by the exact curve.
    mixture = Mixture((0.5, 0.5 - 5e-13), (GaussianDP(0.1), GaussianDP(0.2)))
    assert mixture.delta(50.0) >= 4e-13
    exact, sampled = GaussianDP(40.0), PoissonSubsampledGaussian(1.0, 1 / 40, 1, "zero_out")
    for epsilon in (100.0, 701.0, 1e300):
        assert sampled.delta(epsilon) >= exact.delta(epsilon) * (1 - 1e-9)


@pytest.mark.slow
def test_the_score_at_the_default_budget_is_what_the_estimator_tags_say():
    # scikit-learn's check asks for 0.5 at one seed; here it is the median over twenty.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 10))
    y = X[:, 0] + 0.5 * rng.standard_normal(200)
    y = (y - y.mean()) / y.std()
    for estimator in (DPAdmmRidge, DPAdmmLasso):
        scores = [estimator(alpha=0.01, random_state=s).fit(X, y).score(X, y) for s in range(20)]
        assert np.median(scores) > 0.5
