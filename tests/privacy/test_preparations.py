"""Preparations: what follows from them follows from what was released, and nothing else."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import ConsensusADMM, condition, rescale
from skdpadmm.algorithms.preparations._conditioning import plan_conditioning
from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, SquaredLoss
from skdpadmm.penalties import NoPenalty
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Gate, Scaling
from skdpadmm.records import Rows, declared_coordinates, feature_norms, rounding_factor

BUDGET = Budget(epsilon=1.0, delta=1e-5)


class ConstantGate(Gate):
    """Releases the same whatever comes in."""

    def __init__(self, value):
        self.value = value

    def release(self, name, value):
        assert value.shape == self.value.shape
        return self.value


def facts_of(X, **changes):
    coordinates = declared_coordinates(
        n_features=X.shape[1], fit_intercept=True, has_target_scale=False
    )
    facts = Facts(
        n_samples=len(X), n_parameters=coordinates.n_parameters, loss=SquaredLoss(),
        penalty=NoPenalty(), neighboring=Neighboring.REPLACE_ONE, row_norm=coordinates.row_norm,
        rounding=rounding_factor(n_samples=len(X), coordinates=coordinates), max_iter=5,
    )  # fmt: skip
    return coordinates, dataclasses.replace(facts, **changes)


@pytest.mark.parametrize("seed", range(5))
def test_units_depend_on_the_released_histogram_alone(seed):
    rng = np.random.default_rng(seed)
    released = 100 * rng.standard_normal(42)
    plan = DPAdmmRidge(scale="private").plan(50, 3)
    scaling = plan.facts.scaling
    assert isinstance(scaling, Scaling)
    scales = []
    for size in (1e-6, 1.0, 1e9):
        X = size * rng.standard_normal((50, 3))
        coordinates, _ = facts_of(X)
        norms = feature_norms(X, coordinates.undeclared)
        scales.append(rescale(coordinates, norms, scaling, ConstantGate(released)).scale)
    np.testing.assert_array_equal(scales[0], scales[1])
    np.testing.assert_array_equal(scales[0], scales[2])


@pytest.mark.parametrize("seed", range(5))
def test_the_basis_depends_on_the_released_second_moment_alone(seed):
    rng = np.random.default_rng(seed)
    released = rng.standard_normal(10)
    seen = []
    for size in (1e-3, 1.0, 1e6):
        X = size * rng.standard_normal((50, 3))
        coordinates, facts = facts_of(X)
        planned = plan_conditioning(
            facts, BUDGET, mu=0.3, row_norm=1.0, floor_power=0.5, resolution=1.0
        )
        rows = condition(Rows(X, coordinates), planned, Engine(), ConstantGate(released))
        basis = rows.basis
        seen.append([basis.transform, basis.loading, basis.spread, basis.clip_unit])
        seen[-1].append(rows.typical_norm)
    for first, *others in zip(*seen, strict=True):
        for other in others:
            np.testing.assert_array_equal(first, other)


LOSSES = [SquaredLoss(), LogisticLoss()]


@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize("record_step", ["exact", "linearized"])
@pytest.mark.parametrize("loss", LOSSES, ids=["squared", "logistic"])
def test_releases_in_a_basis_move_by_at_most_their_sensitivity(
    replay, random_path, targets, loss, record_step, neighboring
):
    rng = np.random.default_rng(1)
    algorithm = ConsensusADMM(record_step=record_step, step_size=2.0, clip_norm=0.4)
    for seed in range(5):
        X = rng.standard_normal((8, 3)) * 10.0 ** rng.uniform(-3, 3, (8, 1))
        y = targets(loss, rng, 8)
        X2, y2, null = X.copy(), y.copy(), None
        if neighboring == "replace_one":
            X2[0], y2[0] = -5 * X[0], targets(loss, rng, 1)[0]
        else:
            null = 0
        # Ill-conditioned on purpose: one direction of full size and no other.
        moment = np.zeros(10) if seed % 2 else rng.standard_normal(10)
        moment[0] = 1.0
        first, second = (
            replay(
                algorithm, rows, target, loss, random_path(4, loss, seed), neighboring=neighboring,
                null_record=without, second_moment=moment, epsilon=50.0,
            )
            for rows, target, without in ((X, y, None), (X2, y2, null))
        )  # fmt: skip
        assert first.plan == second.plan
        declared = [s for release in first.plan.releases for s in release.sensitivities]
        moved = [np.linalg.norm(a - b) for a, b in zip(first.values, second.values, strict=True)]
        assert len(moved) == 7
        assert np.all(moved <= np.array(declared))


def test_rounding_is_amplified_by_the_condition_of_the_basis():
    _, facts = facts_of(np.zeros((50, 3)))
    planned = plan_conditioning(facts, BUDGET, mu=1e3, row_norm=1.0, floor=0.5)
    conditioned = dataclasses.replace(facts, conditioning=planned)
    assert planned.condition > 10
    widened = 1 + (facts.rounding - 1) * planned.condition
    assert conditioned.working_rounding == pytest.approx(widened, rel=1e-15)
    assert conditioned.working_rounding > facts.rounding
    plan = DPAdmmRidge(conditioning="private").plan(1000, 3)
    expected = 2 * plan.facts.working_rounding / 1000
    assert max(plan.releases[-1].sensitivities) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("power", [-0.5, -1e-9])
def test_a_floor_that_could_fall_below_the_planned_one_is_refused(power):
    _, facts = facts_of(np.zeros((50, 3)))
    with pytest.raises(ValueError, match=r"^Got floor="):
        plan_conditioning(facts, BUDGET, mu=1.0, row_norm=1.0, floor_power=power)


def test_what_a_classifier_keeps_of_clip_and_noise_is_the_same_for_all_data():
    rng = np.random.default_rng(3)
    kept = []
    for _ in range(3):
        X, y = rng.standard_normal((60, 3)), rng.integers(2, size=60)
        model = DPAdmmLogisticRegression(conditioning=None, random_state=0).fit(X, y)
        kept.append((model._derivative_bound, model._score_variance))
    assert len(set(kept)) == 1
