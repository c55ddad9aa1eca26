"""Theorems about federations: who hides whom, sampled rounds, and what is printed and wrong."""

import math
from dataclasses import replace

import numpy as np
import pytest

import skdpadmm.algorithms._consensus_admm as federated_admm
from skdpadmm import DPFedRidge
from skdpadmm.algorithms import FederatedADMM
from skdpadmm.algorithms._messages import draw_schedule
from skdpadmm.privacy import Mixture, Neighboring, PoissonSubsampledGaussian
from skdpadmm.protocol import Gate, PlanViolation
from tests.contract.harness import moves, record, replay, scale_of
from tests.contract.registry import ROWS
from tests.divergence.densities import QuickNoise, delta_lower_bound

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


@pytest.mark.parametrize(
    ("observer", "unit", "variant"),
    zip(
        ("model", "sums", "server", "sums", "model"),
        ("agent", "record", "agent", "agent", "record"),
        VARIANTS,
        strict=True,
    ),
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


# Sampled rounds.


def sampled(**knobs):
    settings = {"n_agents": 20, "participation": 0.1, "privacy_unit": "agent", "max_iter": 1000}
    return model_of(**{**settings, "adversary": "model", "delta": 1e-6, **knobs})


@pytest.mark.parametrize("message", ["state", pytest.param("increment", marks=pytest.mark.slow)])
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
    exact = math.sqrt(20) * plan.releases[0].agent_noise_std[0] / (2 * relaxation * 20 / 400)
    assert guarantee.noise_multiplier <= exact
    assert guarantee.noise_multiplier == pytest.approx(exact, rel=1e-8)


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


def sampled_sums(plan, slope, n_runs, *, everyone=True):
    """Sums of all that is released where agent 0 says `slope` and all others nothing."""
    federation, release = plan.facts.agents, plan.releases[0]
    size = slope * max(release.sensitivities) / plan.facts.neighboring.sensitivity_factor
    totals, noise = np.zeros(n_runs), QuickNoise([n_runs, int(slope > 0)])
    for run in range(n_runs):
        gate = Gate(plan, noise)
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Got delta")
def test_a_sampled_mechanism_stays_below_its_delta_and_noise_of_the_sample_alone_does_not():
    for neighboring, other in (("zero_out", 0.0), ("replace_one", -1.0)):
        plan = sampled(**SAMPLED, delta=0.02, neighboring=neighboring).plan(4, 1)
        having, without = (sampled_sums(plan, slope, 1000) for slope in (1.0, other))
        for epsilon in (0.0, 0.5, 1.0):
            assert delta_lower_bound(without, having, epsilon) <= plan.guarantee().delta(epsilon)
    with pytest.raises(PlanViolation, match="their noise is too small"):
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


def test_messages_follow_from_sums_that_were_released_and_from_no_hidden_model():
    (row,) = (row for row in ROWS if row.id == "sharing-graph-coalition")
    row = replace(row, params={"conditioning": None, "max_iter": 5, "alpha": 0.0})
    X, y = row.data()
    knobs = {"clip_norm": 5.0, "step_size": 0.7, "momentum": 0.5}
    still = record(row, X, y, algorithm=knobs)
    for gate in still.gates:
        gate.passages = [replace(p, out=np.zeros_like(p.out)) for p in gate.passages]
    # Sums of zero leave the public model where it is, and so all that agents say.
    values = [passage.value for passage in replay(row, still, X, y, algorithm=knobs).passages]
    for value in values[1:]:
        np.testing.assert_array_equal(value, values[0])
