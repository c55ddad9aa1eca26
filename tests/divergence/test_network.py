"""Theorems about agents on a graph: preparations, budgets of agents, and secret batches."""

import math

import numpy as np
import pytest

from skdpadmm import DPDecentralizedRegressor, DPPersonalizedRegressor
from skdpadmm.algorithms import (
    DecentralizedGradientDescent,
    LocalModels,
    MultiStepADMM,
    PersonalizedCoordinateDescent,
    RandomizedSGD,
)
from skdpadmm.privacy import (
    Composed,
    GaussianDP,
    LaplaceDP,
    Neighboring,
    PoissonSubsampledGaussian,
    compose,
)
from skdpadmm.privacy import gaussian_mu as mu_of
from tests.contract.harness import record, scale_of
from tests.contract.registry import AGENTS, ROWS

OBSERVERS = ("eavesdropper", "peer", "model")


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("budget", [1.0, [0.5, 1.0, 2.0, 4.0]], ids=["one", "own"])
def test_an_eavesdropper_meets_each_agents_own_noise_in_preparations_too(unit, budget):
    sizes = np.array([3, 7, 20, 30])
    model = DPDecentralizedRegressor(
        epsilon=budget, privacy_unit=unit, scale="private", conditioning="private", max_iter=4
    )
    plan = model.plan(60, 3, agent_sizes=sizes)
    *preparations, gradients = plan.releases
    assert len(preparations) == 2
    epsilons, kinds = np.broadcast_to(budget, 4), plan.facts.agents.kind
    units = sizes if unit == "agent" else np.ones(4)
    limits = np.minimum(units, 2 * 60 / 4)
    for agent in range(4):
        # The sensitivity to a unit, over the noise of its agent alone: each message is seen.
        spent = [
            max(release.sensitivities) * most[agent] / most.max() * math.sqrt(release.times)
            / np.asarray(release.agent_noise_std)[kinds][agent]
            for release, most in [(r, units) for r in preparations] + [(gradients, limits)]
        ]  # fmt: skip
        assert math.hypot(*spent) == pytest.approx(mu_of(epsilons[agent], 1e-5), rel=1e-9)
        for observer in OBSERVERS:
            claimed = plan.guarantees(observer)[kinds[agent]].mu
            assert claimed == pytest.approx(math.hypot(*spent), rel=1e-9)


OWN = [
    (DPDecentralizedRegressor, DecentralizedGradientDescent()),
    (DPDecentralizedRegressor, RandomizedSGD()),
    (DPDecentralizedRegressor, RandomizedSGD(noise="gaussian")),
    (DPPersonalizedRegressor, LocalModels()),
    (DPPersonalizedRegressor, PersonalizedCoordinateDescent(noise="laplace")),
    (DPPersonalizedRegressor, PersonalizedCoordinateDescent(split="optimal")),
]


@pytest.mark.parametrize(("estimator", "algorithm"), OWN, ids=repr)
def test_agents_with_budgets_of_their_own_spend_them(estimator, algorithm):
    epsilons, delta = [0.5, 2.0, 1.0, 4.0], 1e-5
    model = estimator(algorithm=algorithm, epsilon=epsilons, max_iter=4)
    model.set_params(**{"conditioning": None} if "conditioning" in model.get_params() else {})
    plan = model.plan(200, 3, agent_sizes=[20, 80, 40, 60])
    (release,) = plan.releases
    for agent, epsilon in enumerate(epsilons):
        steps = np.asarray(release.sensitivities) / scale_of(plan, release, agent=agent)
        is_gaussian = release.law == "gaussian"
        spent = compose(*map(GaussianDP if is_gaussian else LaplaceDP, map(float, steps)))
        claimed = plan.guarantees("eavesdropper")[plan.facts.agents.kind[agent]]
        assert (
            0.99 * epsilon < spent.epsilon(delta) <= claimed.epsilon(delta) <= epsilon * (1 + 1e-9)
        )


# Batches.


def batched(**knobs):
    settings = {"n_agents": 4, "conditioning": None, "delta": 1e-6, "max_iter": 500}
    return DPDecentralizedRegressor(
        **{**settings, "algorithm": MultiStepADMM(batch_fraction=0.1), **knobs}
    )


def multiplier_of(plan):
    """Noise over the clip bound, without the allowance for rounding."""
    return plan.releases[-1].agent_noise_std[0] / plan.facts.rounding


@pytest.mark.parametrize(
    ("neighboring", "epsilon", "multiplier"),
    [("zero_out", 1.379, 10), ("replace_one", 2.92, 10), ("zero_out", 3.87, 4)],
)
def test_secret_batches_are_a_subsampled_gaussian(neighboring, epsilon, multiplier):
    plan = batched(neighboring=neighboring, epsilon=epsilon).plan(400, 3)
    assert plan.releases[0].times == 1000
    for observer in OBSERVERS:
        guarantee = plan.guarantee(observer)
        assert isinstance(guarantee, PoissonSubsampledGaussian)
        assert guarantee.neighboring == Neighboring(neighboring)
        assert (guarantee.sampling_probability, guarantee.n_rounds) == (0.1, 1000)
        assert guarantee.noise_multiplier == pytest.approx(multiplier, rel=2e-3)
        assert guarantee.noise_multiplier == pytest.approx(multiplier_of(plan), rel=1e-9)
        assert guarantee.epsilon(1e-6) <= epsilon


@pytest.mark.slow
def test_all_records_in_every_batch_are_no_batches_and_preparations_compose_with_batches():
    whole, nearly = (
        batched(algorithm=MultiStepADMM(batch_fraction=share), max_iter=20).plan(400, 3)
        for share in (1.0, 1 - 1e-9)
    )
    assert isinstance(whole.guarantee(), GaussianDP)
    assert multiplier_of(whole) == pytest.approx(multiplier_of(nearly), rel=1e-3)
    plan = batched(conditioning="private", epsilon=2.0, max_iter=20).plan(400, 3)
    assert isinstance(plan.guarantee(), Composed)
    assert 1.98 <= plan.guarantee().epsilon(1e-6) <= 2.0


@pytest.mark.slow
def test_what_enters_a_batch_is_what_the_gate_draws():
    (row,) = (row for row in ROWS if row.id == "multi-step-batches")
    X, y = np.ones((row.n_samples, 2)), np.zeros(row.n_samples, dtype=int)
    params = {"algorithm": row.linear, "conditioning": None, "max_iter": 60}
    recorded = record(row, X, y, **params)
    drawn = [p.out for p in recorded.passages if p.method == "uniform"]
    # All rows are clipped: an agent releases how many of its rows are in the batch.
    released = [p.value for p in recorded.passages if p.method == "release"]
    assert len(drawn) == len(released) == 120
    for uniform, value in zip(drawn, released, strict=True):
        expected = np.bincount(AGENTS, weights=np.ravel(uniform) < 0.5)
        np.testing.assert_allclose(np.linalg.norm(value, axis=1)[:, 0], expected, rtol=1e-6)
    assert np.mean(np.array(drawn) < 0.5) == pytest.approx(0.5, abs=0.07)
