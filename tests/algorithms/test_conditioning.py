"""Private conditioning: its sensitivity, its basis, and that optima do not depend on it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import ElasticNet as SklearnElasticNet
from sklearn.linear_model import Lasso, LogisticRegression, Ridge

import skdpadmm.algorithms._consensus_admm as consensus
from skdpadmm import DPAdmmLasso, DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import ConsensusADMM, condition
from skdpadmm.algorithms.preparations._conditioning import (
    SECOND_MOMENT,
    basis_of,
    plan_conditioning,
)
from skdpadmm.algorithms.preparations._preparation import LARGEST_MATRIX
from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, MultinomialLoss, SquaredLoss
from skdpadmm.penalties import L1, ElasticNet, NoPenalty, SquaredL2
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Gate, Problem
from skdpadmm.records import Rows, declared_coordinates, rounding_factor

BUDGET = Budget(epsilon=1.0, delta=1e-5)
VAST = Budget(epsilon=1e14, delta=0.5)  # noise that tests of optima leave out has to be planned


class NoNoise:
    simulation = True

    def __init__(self):
        self.values = []

    def add_gaussian(self, value, scale, stream):
        self.values.append(value.copy())
        return value


@pytest.fixture
def keep_noise(monkeypatch):
    """What is planned as noise is not added, so nothing is taken for it."""
    monkeypatch.setattr(consensus, "drop_noise", lambda parameters, rows, variance: parameters)


def setting(X, *, loss=None, penalty=None, relation="replace_one", max_iter=50, fit_intercept=True):
    """Public coordinates and facts of undeclared features."""
    loss, penalty = loss or LogisticLoss(), penalty or NoPenalty()
    coordinates = declared_coordinates(
        n_features=X.shape[1], fit_intercept=fit_intercept, has_target_scale=False
    )  # fmt: skip
    facts = Facts(
        n_samples=X.shape[0], n_parameters=coordinates.n_parameters, loss=loss, penalty=penalty,
        neighboring=Neighboring(relation), row_norm=coordinates.row_norm,
        rounding=rounding_factor(n_samples=X.shape[0], coordinates=coordinates), max_iter=max_iter,
    )  # fmt: skip
    return coordinates, facts


def released_moment(X, relation="replace_one", null=None):
    """The exact value that passes the gate, and what was planned for it."""
    coordinates, facts = setting(X, relation=relation)
    conditioning = plan_conditioning(facts, BUDGET, mu=0.1, row_norm=0.8, floor=0.5)
    plan = ConsensusADMM().plan(dataclasses.replace(facts, conditioning=conditioning), BUDGET)
    rows, source = Rows(X, coordinates), NoNoise()
    if null is not None:
        rows.weight[null] = rows.squared_norm[null] = 0.0
    condition(rows, conditioning, Engine(), Gate(plan, source))
    return source.values[0], conditioning


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e6, 1e200])
@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_the_second_moment_moves_by_at_most_its_sensitivity_in_frobenius_norm(relation, scale):
    rng = np.random.default_rng(0)
    for _ in range(20):
        X = rng.standard_normal((6, 4)) * scale
        X2 = X.copy()
        X2[0] = -3 * rng.standard_normal(4) * scale
        first, conditioning = released_moment(X, relation)
        second, _ = (
            released_moment(X2) if relation == "replace_one" else released_moment(X, relation, 0)
        )
        moved = np.linalg.norm(first - second)
        assert moved <= conditioning.release.sensitivities[0]


def test_the_sensitivity_of_the_second_moment_is_attained_by_orthogonal_rows():
    # A huge feature leaves nothing of the intercept, so rows are orthogonal.
    X = np.zeros((5, 2))
    X[0] = [1e9, 0.0]
    X2 = X.copy()
    X2[0] = [0.0, 1e9]
    (first, conditioning), (second, _) = released_moment(X), released_moment(X2)
    declared = conditioning.release.sensitivities[0]
    assert np.linalg.norm(first - second) == pytest.approx(declared, rel=1e-6)
    assert declared == pytest.approx(math.sqrt(2) / 5, rel=1e-6)
    (first, conditioning), (second, _) = (released_moment(X, "zero_out", i) for i in (None, 0))
    declared = conditioning.release.sensitivities[0]
    assert np.linalg.norm(first - second) == pytest.approx(declared, rel=1e-6)
    assert declared == pytest.approx(1 / 5, rel=1e-6)


def test_sparse_and_dense_rows_have_one_second_moment():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((30, 5)) * (rng.random((30, 5)) < 0.4)
    dense, _ = released_moment(X)
    stored, _ = released_moment(sparse.csr_matrix(X))
    np.testing.assert_allclose(stored, dense, rtol=1e-12, atol=1e-15)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.floats(-8, 8), st.floats(-6, 4))
def test_whatever_is_released_gives_a_basis_within_the_planned_condition(seed, d, log_size, log_mu):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((50, d))
    _, facts = setting(X, fit_intercept=False)
    choices = {
        "floor": rng.uniform(0.1, 2), "floor_power": rng.uniform(0, 1),
        "clip_power": rng.uniform(-1, 0), "resolution": rng.uniform(0, 4),
    }  # fmt: skip
    conditioning = plan_conditioning(
        facts, BUDGET, mu=10.0**log_mu, row_norm=0.4 * d**0.5, **choices
    )
    matrix = 10.0**log_size * rng.standard_normal((d, d))
    basis = basis_of(matrix + matrix.T, conditioning)
    ratio = np.linalg.cond(basis.transform)
    assert ratio <= conditioning.condition * (1 + 1e-6)
    assert 1 <= conditioning.condition <= 3e4
    assert 0 < basis.effective_dimension < math.inf
    np.testing.assert_allclose(basis.transform @ basis.inverse, np.eye(d), atol=1e-9)
    np.testing.assert_allclose(
        basis.transform.T @ basis.metric @ basis.transform, np.eye(d), atol=1e-6
    )


def test_without_noise_the_rows_have_the_identity_as_second_moment():
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (4000, 5)) @ np.diag([0.3, 0.1, 0.05, 0.2, 0.01])
    coordinates, facts = setting(X)
    conditioning = plan_conditioning(facts, BUDGET, mu=1e6, row_norm=10.0, floor=0.5)
    plan = ConsensusADMM().plan(dataclasses.replace(facts, conditioning=conditioning), VAST)
    rows = condition(Rows(X, coordinates), conditioning, Engine(), Gate(plan, NoNoise()))
    assert rows.n_blocks == 1
    seen = rows.scores(0, rows.prepare(np.eye(6)))
    np.testing.assert_allclose(seen.T @ seen / len(X), np.eye(6), atol=1e-5)
    np.testing.assert_allclose(np.square(seen).sum(axis=1), rows.squared_norm, rtol=1e-12)
    assert rows.typical_norm == pytest.approx(math.sqrt(6), rel=0.01)


def test_a_noisy_eigenvalue_is_freed_of_what_noise_adds_to_it():
    rng = np.random.default_rng(3)
    d, std = 200, 0.005
    _, facts = setting(np.zeros((10, d)), fit_intercept=False)
    conditioning = plan_conditioning(facts, BUDGET, mu=1.0, row_norm=1.0, floor=0.5)
    release = dataclasses.replace(conditioning.release, noise_std=std)
    conditioning = dataclasses.replace(conditioning, release=release)
    edge = conditioning.edge
    noise = rng.standard_normal((d, d)) * std / math.sqrt(2)
    symmetric = np.triu(noise) + np.triu(noise, 1).T
    symmetric[np.diag_indices(d)] *= math.sqrt(2)
    assert np.linalg.eigvalsh(symmetric)[-1] == pytest.approx(2 * edge, rel=0.1)
    signal = np.zeros((d, d))
    signal[0, 0] = 4 * edge
    assert basis_of(signal + symmetric, conditioning).eigenvalues[-1] == pytest.approx(
        4 * edge, rel=0.1
    )


def conditioned_solution(X, y, loss, penalty, *, n_iter=600, algorithm=None, fit_intercept=True):
    """The conditioned iteration without noise and with the clip wide open."""
    coordinates, facts = setting(
        X, loss=loss, penalty=penalty, max_iter=n_iter, fit_intercept=fit_intercept
    )
    conditioning = plan_conditioning(facts, BUDGET, mu=1e6, row_norm=10.0, floor=0.5)
    facts = dataclasses.replace(facts, conditioning=conditioning)
    algorithm = algorithm or ConsensusADMM(
        step_size=0.9 / loss.smoothness, clip_norm=1e8, tail_fraction=1e-9
    )
    plan = algorithm.plan(facts, VAST)
    source = NoNoise()
    with Engine().running() as engine:
        gate = Gate(plan, source)
        rows = condition(Rows(X, coordinates), conditioning, engine, gate)
        solution = algorithm.run(plan, Problem(rows=rows, target=y, engine=engine), gate)
    gate.close()
    return solution.parameters


PENALTIES = {
    "l1": (L1(0.02), Lasso(alpha=0.02, tol=1e-12, max_iter=10**5)),
    "l2": (SquaredL2(0.1), Ridge(alpha=0.1 * 300, solver="cholesky")),
    "elastic net": (
        ElasticNet(0.01, 0.05),
        SklearnElasticNet(alpha=0.06, l1_ratio=1 / 6, tol=1e-12, max_iter=10**5),
    ),
}


@pytest.mark.parametrize("record_step", ["exact", "linearized"])
@pytest.mark.parametrize(("penalty", "reference"), PENALTIES.values(), ids=PENALTIES)
def test_penalties_stay_in_the_users_coordinates(keep_noise, penalty, reference, record_step):
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, (300, 5)) @ (np.eye(5) + 0.3) * [0.4, 0.1, 0.3, 0.05, 0.4]
    y = X @ [1.0, 0.0, -2.0, 0.0, 0.0] + 0.1 * rng.standard_normal(300) + 0.5
    algorithm = ConsensusADMM(
        step_size=0.9, clip_norm=1e8, record_step=record_step, tail_fraction=1e-9
    )
    found = conditioned_solution(X, y, SquaredLoss(), penalty, n_iter=2000, algorithm=algorithm)
    reference.fit(X, y)
    np.testing.assert_allclose(found[:-1, 0], reference.coef_, atol=1e-6)
    np.testing.assert_allclose(found[-1, 0], reference.intercept_, atol=1e-6)
    assert np.array_equal(found[:-1, 0] == 0, reference.coef_ == 0)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classification_reaches_the_optimum_without_noise(n_classes):
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (400, 4)) @ (np.eye(4) + 0.5) * 0.3
    y = np.digitize(X[:, 0] - X[:, 1] + 0.3 * rng.standard_normal(400), [0.0, 0.4][: n_classes - 1])
    loss = LogisticLoss() if n_classes == 2 else MultinomialLoss(3)
    target = 2.0 * y - 1 if n_classes == 2 else y
    found = conditioned_solution(X, target, loss, SquaredL2(1 / 400), n_iter=1500)
    reference = LogisticRegression(tol=1e-10, max_iter=10**4).fit(X, y)
    np.testing.assert_allclose(found[:-1].T, reference.coef_, atol=1e-4)
    shift = found[-1] - reference.intercept_
    np.testing.assert_allclose(shift, shift.mean(), atol=1e-4)


def test_conditioning_helps_where_features_are_correlated():
    rng = np.random.default_rng(6)
    common = rng.uniform(-1, 1, (4000, 1))
    X = np.clip(0.9 * common + 0.1 * rng.uniform(-1, 1, (4000, 8)), -1, 1)
    y = X[:, 0] - X[:, 1] > 0
    score = {
        choice: np.mean([
            DPAdmmLogisticRegression(
                conditioning=choice, feature_bounds=(-1, 1), random_state=seed
            ).fit(X, y).score(X, y)
            for seed in range(5)
        ])
        for choice in ("private", None)
    }  # fmt: skip
    assert score["private"] > score[None] + 0.1


def test_the_choice_of_conditioning_is_seen_in_the_plan():
    names = [r.name for r in DPAdmmRidge(conditioning="private").plan(1000, 3).releases]
    assert names == [SECOND_MOMENT, "mean displacement"]
    assert len(DPAdmmRidge(conditioning=None).plan(1000, 3).releases) == 1
    assert len(DPAdmmRidge().plan(10**4, 3).releases) == 2
    wide = DPAdmmRidge().plan(10**4, LARGEST_MATRIX)
    assert len(wide.releases) == 1


@pytest.mark.parametrize("choice", ["public", True, 0])
def test_an_unknown_choice_is_refused(choice):
    with pytest.raises(ValueError, match="conditioning"):
        DPAdmmRidge(conditioning=choice).plan(100, 3)


DEGENERATE = {
    "collinear": lambda X: np.column_stack([X, X]),
    "constant": lambda X: np.column_stack([X, np.full(len(X), 0.7)]),
    "all zero": lambda X: np.zeros_like(X),
    "zero rows": lambda X: X * (np.arange(len(X)) % 3 > 0)[:, None],
    "duplicated": lambda X: np.repeat(X[:10], len(X) // 10, axis=0),
    "wide": lambda X: np.random.default_rng(0).uniform(-1, 1, (len(X), 2 * len(X))),
    "one column": lambda X: X[:, :1],
    "units 100 times too large": lambda X: 100 * X,
    "units 100 times too small": lambda X: X / 100,
    "one column in other units": lambda X: X * [1e6, 1, 1, 1],
    "one row": lambda X: X[:1],
    "two rows": lambda X: X[:2],
}


@pytest.mark.filterwarnings("ignore:Got delta")
@pytest.mark.parametrize("spoil", DEGENERATE.values(), ids=DEGENERATE)
@pytest.mark.parametrize("scale", [None, "private"])
def test_degenerate_rows_give_finite_models_near_or_below_the_size_of_the_target(spoil, scale):
    rng = np.random.default_rng(7)
    X = spoil(rng.uniform(-1, 1, (120, 4)))
    y = np.clip(X[:, 0], -1, 1)
    for model in (DPAdmmRidge(), DPAdmmLasso(alpha=0.01)):
        model.set_params(random_state=0, epsilon=3.0, scale=scale).fit(X, y)
        predicted = model.predict(X)
        assert np.isfinite(predicted).all()
    if len(X) > 2:
        labels = np.arange(len(X)) % 2
        model = DPAdmmLogisticRegression(random_state=0, epsilon=3.0, scale=scale).fit(X, labels)
        assert np.isfinite(model.predict_proba(X)).all()
