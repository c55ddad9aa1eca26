"""Theorems about federations: who hides whom, sampled rounds, and what is printed and wrong."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import Lasso

import skdpadmm.algorithms._federated_admm as federated_admm
from skdpadmm import DPFedLasso, DPFedRidge
from skdpadmm.algorithms import FederatedADMM
from skdpadmm.algorithms.planning._messages import draw_schedule
from skdpadmm.privacy import (
    Composed,
    GaussianDP,
    Mixture,
    Neighboring,
    PoissonSubsampledGaussian,
)
from skdpadmm.protocol import Gate, PlanViolation
from tests.contract.harness import SilentGate, fit_through, moves, record, replay, scale_of
from tests.contract.registry import ROWS
from tests.privacy.densities import delta_lower_bound

OBSERVERS = ("server", "sums", "model")


def model_of(**knobs):
    return DPFedRidge(**{"conditioning": None, **knobs})


# Who hides whom.


def linear_row(**params):
    (row,) = (row for row in ROWS if row.id == "federated-server")
    return replace(row, params={"conditioning": None, **params})


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("epsilon", [1.0, [0.5, 1.0, 2.0, 4.0]], ids=["one", "own"])
def test_each_observer_learns_of_an_agent_what_its_noise_and_that_of_the_least_others_hide(
    unit, epsilon
):
    row = linear_row(privacy_unit=unit, epsilon=epsilon, n_honest=2)
    X, y = np.ones((row.n_samples, 2)), np.full(row.n_samples, 2.0)
    y2 = np.where(np.isin(np.arange(len(y)), row.first_unit), -2.0, y)
    recorded = record(row, X, y, algorithm=row.linear)
    found = list(moves(recorded, replay(row, recorded, X, y2, algorithm=row.linear)))
    plan = recorded.plan
    kind = plan.facts.agents.kind[0]
    for observer in OBSERVERS:
        scale = scale_of(plan, plan.releases[0], observer)
        exact = math.hypot(*(move.distance for move in found)) / scale
        claimed = plan.guarantees(observer)[kind].mu
        assert exact <= claimed * (1 + 1e-9)
        assert exact == pytest.approx(claimed, rel=1e-6)


VARIANTS = [
    {"participation": 0.4},
    {"participation": 0.4, "algorithm": FederatedADMM(sampling="fixed")},
    {"participation": 0.4, "algorithm": FederatedADMM(max_participations=3)},
    {"dropout": 0.2, "n_honest": 2, "conditioning": "private", "neighboring": "zero_out"},
    {"algorithm": FederatedADMM(message="increment", relaxation=0.8), "scale": "private"},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=range(len(VARIANTS)))
@pytest.mark.parametrize(
    ("observer", "unit"), [("server", "agent"), ("sums", "record"), ("model", "agent")]
)
def test_the_budget_is_used_up_and_no_observer_learns_more_than_the_server(observer, unit, variant):
    model = model_of(adversary=observer, privacy_unit=unit, max_iter=10, **variant)
    plan = model.plan(400, 3, agent_sizes=[5, 40, 10, 300, 45])
    epsilon = {name: plan.guarantee(name).epsilon(1e-5) for name in OBSERVERS}
    assert 0.99 <= epsilon[observer] <= 1.0
    assert epsilon["model"] <= epsilon["sums"] * (1 + 1e-9)
    assert epsilon["sums"] <= epsilon["server"] * (1 + 1e-9)
    for name in OBSERVERS:
        for average, worst in zip(plan.guarantees(name), plan.worst_cases(name), strict=True):
            # Loss distributions are on a grid.
            assert worst.epsilon(1e-5) >= average.epsilon(1e-5) * (1 - 1e-6)


def test_the_gate_refuses_fewer_messages_than_are_planned():
    plan = model_of(n_agents=6, dropout=0.2).plan(60, 3)
    release = plan.releases[0]
    assert 1 < release.fewest < 6
    with pytest.raises(PlanViolation, match="their noise is too little"):
        Gate(plan, QuickNoise()).release(
            release.name, np.zeros(release.shape), np.arange(6) < release.fewest - 1
        )


# Sampled rounds.


def sampled(**knobs):
    settings = {"n_agents": 20, "participation": 0.1, "privacy_unit": "agent", "max_iter": 1000}
    return model_of(**{**settings, "adversary": "model", "delta": 1e-6, **knobs})


@pytest.mark.parametrize("message", ["state", "increment"])
@pytest.mark.parametrize(("neighboring", "epsilon"), [("zero_out", 1.379), ("replace_one", 2.92)])
def test_hidden_poisson_rounds_of_agents_are_a_subsampled_gaussian(neighboring, epsilon, message):
    relaxation = 0.5 if message == "state" else 0.3
    algorithm = FederatedADMM(message=message, relaxation=relaxation)
    model = sampled(neighboring=neighboring, epsilon=epsilon, algorithm=algorithm)
    plan = model.plan(400, 3)
    guarantee = plan.guarantee("model")
    assert isinstance(guarantee, PoissonSubsampledGaussian)
    assert guarantee.neighboring == Neighboring(neighboring)
    assert (guarantee.sampling_probability, guarantee.n_rounds) == (0.1, 1000)
    assert guarantee.noise_multiplier == pytest.approx(10, rel=2e-3)
    # All of an agent's 20 rows of 400, zeroed out; noise of all 20 agents.
    exact = math.sqrt(20) * plan.releases[0].shares[0] / (2 * relaxation * 20 / 400)
    assert guarantee.noise_multiplier <= exact
    assert guarantee.noise_multiplier == pytest.approx(exact, rel=1e-8)


@pytest.mark.parametrize("neighboring", ["zero_out", "replace_one"])
def test_without_sampling_the_subsampled_bound_is_that_of_all_rounds(neighboring):
    plan = sampled(participation=1.0, neighboring=neighboring, max_iter=20).plan(400, 3)
    multiplier = math.sqrt(20) * plan.releases[0].shares[0] / (20 / 400)
    pld = PoissonSubsampledGaussian(1.0, multiplier, 20, Neighboring(neighboring))
    assert isinstance(plan.guarantee("model"), GaussianDP)
    assert plan.guarantee("model").epsilon(1e-6) == pytest.approx(pld.epsilon(1e-6), rel=1e-3)


@pytest.mark.parametrize(
    ("knobs", "sampling", "observer"),
    [
        ({}, "fixed", "model"),
        ({"privacy_unit": "record"}, "poisson", "model"),
        ({}, "poisson", "sums"),
        ({}, "poisson", "server"),
        # Noise that only the sample sends would show it.
        ({"adversary": "server"}, "poisson", "model"),
    ],
    ids=["fixed size", "record", "sums", "server", "noise of the sample"],
)
def test_nothing_is_gained_from_a_sample_that_is_known_or_does_not_hide_the_unit(
    knobs, sampling, observer
):
    plan = sampled(max_iter=50, algorithm=FederatedADMM(sampling=sampling), **knobs).plan(400, 3)
    guarantee, full = plan.guarantee(observer), plan.worst_cases(observer)[0].mu
    assert isinstance(guarantee, Mixture)
    squares = [part.mu**2 / full**2 * plan.releases[0].times for part in guarantee.components]
    # Rounds that an agent takes part in, on average; rare numbers of them are rounded up.
    assert np.dot(guarantee.weights, squares) == pytest.approx(0.1 * 50, abs=1e-3)


def test_preparations_compose_with_hidden_rounds():
    plan = sampled(max_iter=50, conditioning="private", epsilon=2.0).plan(400, 3)
    assert isinstance(plan.guarantee("model"), Composed)
    assert 1.98 <= plan.guarantee("model").epsilon(1e-6) <= 2.0


class QuickNoise:
    """Noise and a schedule in no time."""

    rng = np.random.default_rng(0)

    def add_gaussian(self, value, scale, stream):
        return value + scale * self.rng.standard_normal(value.shape)

    def uniform(self, shape, stream):
        return self.rng.random(shape)


def sampled_sums(plan, slope, n_runs, *, everyone=True):
    """Sums of all that is released where agent 0 says `slope` and all others nothing."""
    federation, release = plan.facts.agents, plan.releases[0]
    size = slope * max(release.sensitivities) / plan.facts.neighboring.sensitivity_factor
    totals = np.zeros(n_runs)
    for run in range(n_runs):
        gate = Gate(plan, QuickNoise())
        schedule = draw_schedule(plan.settings.rounds, federation, gate)
        for senders, takes_part in zip(schedule.sends, schedule.takes_part, strict=True):
            senders = senders if everyone else takes_part
            value = np.full((1, 1), size * takes_part[0])
            if senders.any():
                totals[run] += gate.release(release.name, value, senders)[0, 0]
            else:
                gate.skip(release.name)
    return totals


SAMPLED = {"n_agents": 4, "participation": 0.3, "max_iter": 3, "fit_intercept": False}


@pytest.mark.filterwarnings("ignore:Got delta")
def test_a_sampled_mechanism_stays_below_its_delta_and_noise_of_the_sample_alone_does_not():
    for neighboring, other in (("zero_out", 0.0), ("replace_one", -1.0)):
        plan = sampled(**SAMPLED, delta=0.02, neighboring=neighboring).plan(4, 1)
        having, without = (sampled_sums(plan, slope, 1000) for slope in (1.0, other))
        for epsilon in (0.0, 0.5, 1.0):
            assert delta_lower_bound(without, having, epsilon) <= plan.guarantee().delta(epsilon)
    with pytest.raises(PlanViolation, match="their noise is too little"):
        sampled_sums(plan, 1.0, 50, everyone=False)
    careless = replace(plan, releases=(replace(plan.releases[0], fewest=1),))
    having, without = (sampled_sums(careless, slope, 4000, everyone=False) for slope in (1.0, -1.0))
    assert delta_lower_bound(without, having, 1.0) > plan.guarantee("model").delta(1.0)


def test_what_is_stored_of_hidden_rounds_does_not_depend_on_the_sample(monkeypatch):
    X, y = np.random.default_rng(0).standard_normal((60, 3)), np.arange(60.0)
    stored = []
    for participants in (0, 1):

        def draw(rounds, federation, gate, participants=participants):
            schedule = draw_schedule(rounds, federation, gate)
            takes_part = np.zeros_like(schedule.takes_part)
            takes_part[:, :participants] = True
            return replace(schedule, takes_part=takes_part)

        monkeypatch.setattr(federated_admm, "draw_schedule", draw)
        model = sampled(max_iter=20, random_state=0).fit(X, y)
        stored.append((model.n_messages_, model.bytes_sent_, model.n_rounds_, model.n_iter_))
    assert stored[0] == stored[1]


# The printed algorithm.


def test_printed_algorithm_3_finds_zero_where_the_corrected_one_finds_the_lasso(monkeypatch):
    rng, alpha = np.random.default_rng(0), 0.05
    X = rng.standard_normal((40, 4))
    y = X @ [1.0, -0.5, 0.0, 0.0] + 0.05 * rng.standard_normal(40)
    optimum = Lasso(alpha=alpha, fit_intercept=False, tol=1e-13).fit(X, y).coef_
    assert np.abs(optimum).max() > 0.4
    # As printed the server adds changes of states to the point after its proximal step.
    states, z, squared = np.zeros(X.shape), np.zeros(4), np.einsum("ij,ij->i", X, X)
    for _ in range(4000):
        v = 2 * z - states
        slope = (np.einsum("ij,ij->i", X, v) - y) / (1 + squared)
        change = v - slope[:, None] * X - z
        states += change
        z = z + change.mean(axis=0)
        z = np.sign(z) * np.maximum(np.abs(z) - alpha, 0)
    np.testing.assert_allclose(z, 0, atol=1e-12)

    # Nothing is thresholded that is small beside noise, and rows are not clipped.
    monkeypatch.setattr(federated_admm, "drop_noise", lambda parameters, *args: parameters)
    knobs = {"message": "increment", "step_size": 1.0, "clip_norm": 1e6, "tail_fraction": 1e-3}
    for unit, participation in itertools.product(["record", "agent"], [1.0, 0.5]):
        model = DPFedLasso(
            alpha=alpha, fit_intercept=False, n_agents=8, privacy_unit=unit, random_state=0,
            participation=participation, feature_bounds=(-4, 4), target_bounds=(-4, 4),
            conditioning=None, max_iter=1500, algorithm=FederatedADMM(**knobs),
        )  # fmt: skip
        fit_through(SilentGate, linear_row_without_agents(), model, X, y)
        np.testing.assert_allclose(model.coef_, optimum, atol=1e-7)


def linear_row_without_agents():
    return replace(linear_row(), has_agents=False)
