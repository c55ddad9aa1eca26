"""Who sends, whose noise arrives, and what it is promised to protect: pure functions of facts."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom

from skdpadmm.algorithms import FederatedADMM
from skdpadmm.algorithms import _messages as messages
from skdpadmm.algorithms._messages import VOID_ROUNDS, draw_schedule
from skdpadmm.losses import SquaredLoss
from skdpadmm.privacy import participation_mixture
from skdpadmm.protocol import MODEL, SERVER, Budget, Curator, Federation
from tests.algorithms.runs import BUDGET, coordinates_of, facts_for

OBSERVERS = Federation.observers


def draws(seed=0):
    """Uniform numbers for a schedule."""
    return SimpleNamespace(uniform=np.random.default_rng(seed).random)


def federation(n_agents=10, **trust):
    return Federation(agent_sizes=(7,) * n_agents, **{"n_honest": n_agents, **trust})


def rounds_of(fed, *, observer=SERVER, sampling="poisson", cap=None, max_rounds=50):
    facts, budget = facts_of(fed, max_iter=max_rounds), replace(BUDGET, observer=observer)
    return messages.plan_rounds(facts, budget, sampling=sampling, cap=cap)


def facts_of(fed, unit="record", max_iter=20):
    n = sum(fed.agent_sizes) or 70
    return facts_for(coordinates_of(2), n, SquaredLoss(), agents=fed, unit=unit, max_iter=max_iter)


@pytest.mark.parametrize(
    ("n_agents", "participation", "chance"),
    [(10, 0.01, 0.1), (3, 0.5, 2 / 3), (10, 0.35, 0.4), (10, 0.25, 0.2), (1, 0.2, 1), (3, 0.9, 1)],
)
def test_fixed_size_rounds_are_accounted_with_the_chance_that_is_drawn(
    n_agents, participation, chance
):
    # A whole number of agents is drawn: one of ten is no sample of one in a hundred.
    fed = federation(n_agents, participation=participation)
    for observer in OBSERVERS:
        rounds = rounds_of(fed, sampling="fixed", observer=observer, max_rounds=20)
        assert rounds.participation == pytest.approx(chance)
        drawn = draw_schedule(rounds, fed, draws()).takes_part
        assert np.all(drawn.sum(axis=1) == round(chance * n_agents))
    plan = FederatedADMM(sampling="fixed").plan(facts_of(fed), BUDGET)
    release = plan.releases[-1]
    noise = release.agent_noise_std[0] * np.sqrt(n_agents)
    exact = participation_mixture(release.sensitivities, noise, probability=chance, n_rounds=20)
    assert plan.guarantee(MODEL).epsilon(1e-5) == pytest.approx(exact.epsilon(1e-5), rel=1e-9)


@pytest.mark.parametrize(("sampling", "cap"), [("poisson", 4), ("fixed", None)])
def test_expected_shares_are_those_of_many_schedules(sampling, cap):
    fed = federation(10, participation=0.3, dropout=0.1)
    rounds = rounds_of(fed, sampling=sampling, cap=cap, observer=MODEL, max_rounds=12)
    drawn = np.array([draw_schedule(rounds, fed, draws(s)).takes_part for s in range(2000)])
    expected = rounds.expected_shares(fed)
    np.testing.assert_allclose(drawn.mean(axis=(0, 2)), expected, atol=0.02)
    if sampling == "poisson":  # each by itself, in the first round
        np.testing.assert_allclose(drawn[:, 0].mean(axis=0), expected[0], atol=0.05)
        law = expected[0] * (1 - expected[0]) * np.eye(10)
        np.testing.assert_allclose(np.cov(drawn[:, 0].T.astype(float)), law, atol=0.03)


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_no_agent_takes_part_more_often_than_its_cap(sampling):
    fed = federation(participation=0.5, dropout=0.2)
    rounds = rounds_of(fed, sampling=sampling, cap=5, max_rounds=40)
    assert rounds.n_rounds == 10
    for seed in range(20):
        drawn = draw_schedule(rounds, fed, draws(seed))
        assert drawn.takes_part.sum(axis=0).max() <= 5
        assert np.all(drawn.sends | ~drawn.takes_part)
    # Where everyone takes part in each round a cap shortens the run.
    rounds = rounds_of(federation(), cap=7)
    assert (rounds.n_rounds, rounds.cap) == (7, None)


@pytest.mark.parametrize("observer", OBSERVERS)
def test_rounds_are_void_or_have_their_fewest_messages(observer):
    fed = federation(8, dropout=0.4)
    rounds = rounds_of(fed, observer=observer, max_rounds=20_000)
    assert binom.cdf(rounds.fewest - 1, 8, 0.6) <= VOID_ROUNDS < binom.cdf(rounds.fewest, 8, 0.6)
    drawn = draw_schedule(rounds, fed, draws())
    arrived = drawn.sends.sum(axis=1)
    assert np.all((arrived == 0) | (arrived >= rounds.fewest))
    assert 0 < np.mean(arrived == 0) < 2 * VOID_ROUNDS
    assert not drawn.takes_part[arrived == 0].any()


def test_who_arrives_says_nothing_of_who_was_drawn():
    fed = federation(6, participation=0.4, dropout=0.3)
    drawn = draw_schedule(rounds_of(fed, observer=MODEL, max_rounds=40_000), fed, draws())
    assert drawn.takes_part.sum() / drawn.sends.sum() == pytest.approx(0.4, abs=0.01)
    n_arrived = drawn.sends.sum(axis=1)
    valid = drawn.sends[:, 0] & (n_arrived > 0)
    mine = drawn.takes_part[valid, 0]
    for count in (n_arrived[valid], drawn.takes_part[valid, 1:].sum(axis=1)):
        assert np.mean(count[mine]) == pytest.approx(np.mean(count[~mine]), abs=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_sure_noise_is_the_least_over_all_who_may_arrive(seed):
    rng = np.random.default_rng(seed)
    shares, kind = 10.0 ** rng.uniform(-3, 3, 4), np.append(np.arange(4), rng.integers(4, size=3))
    for count in range(1, 8):
        found = messages.surely_noise(shares, np.sort(shares[kind]), count)
        for k in range(4):  # the first of its kind
            chosen = itertools.combinations(np.delete(shares[kind], k), count - 1)
            least = min(shares[k] ** 2 + np.square(others).sum() for others in chosen)
            assert found[k] == pytest.approx(np.sqrt(least), rel=1e-12)


@pytest.mark.parametrize("observer", OBSERVERS)
@pytest.mark.parametrize("unit", ["record", "agent"])
def test_a_preparation_costs_each_agent_its_share_of_the_budget(observer, unit):
    fed = Federation(agent_sizes=(1, 5, 20), n_honest=2, dropout=0.3)
    budget = Budget(epsilon=1.0, delta=1e-5, observer=observer)
    asked = {"name": "sum", "shape": (2,), "sensitivity": 0.1, "mu": 0.05}
    release = messages.plan_release(facts_of(fed, unit), budget, **asked)
    assert release.fewest == 3
    assert max(g.mu for g in release.view(observer).guarantees) == pytest.approx(0.05)
    # Preparations wait for everyone: drop-outs take nothing of their noise.
    arrives = np.square(np.asarray(release.agent_noise_std)[fed.kind]).sum()
    assert release.noise_std == pytest.approx(np.sqrt(arrives))
    plain = messages.plan_release(facts_of(Curator()), BUDGET, **asked)
    assert (plain.guarantee.mu, plain.noise_std) == (pytest.approx(0.05), pytest.approx(2.0))
