"""Who sends, whose noise arrives, and what it is promised to protect: pure functions of facts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import binom

from skdpadmm.algorithms import FederatedADMM
from skdpadmm.algorithms.planning._messages import (
    VOID_ROUNDS,
    Rounds,
    draw_schedule,
    plan_release,
    plan_rounds,
    sample_size,
    surely_noise,
)
from skdpadmm.losses import SquaredLoss
from skdpadmm.penalties import SquaredL2
from skdpadmm.privacy import GaussianDP, Neighboring, participation_mixture
from skdpadmm.protocol import MODEL, SERVER, SUMS, Budget, Facts, Federation, MessageSum


class Draws:
    """Uniform numbers for a schedule."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def uniform(self, shape):
        return self.rng.random(shape)


def federation(n_agents=10, **knobs):
    return Federation(agent_sizes=(7,) * n_agents, **{"n_honest": n_agents, **knobs})


def rounds_of(fed, *, observer=SERVER, sampling="poisson", cap=None, max_rounds=50):
    return plan_rounds(fed, max_rounds=max_rounds, sampling=sampling, cap=cap, observer=observer)


def make_facts(fed, unit="record", neighboring="replace_one", max_iter=20):
    return Facts(
        n_samples=70 if fed is None else sum(fed.agent_sizes),
        n_parameters=3,
        loss=SquaredLoss(),
        penalty=SquaredL2(0.1),
        neighboring=Neighboring(neighboring),
        row_norm=2.0,
        rounding=1.0 + 1e-10,
        max_iter=max_iter,
        unit=unit,
        agents=fed,
    )


@pytest.mark.parametrize("observer", Federation.observers)
def test_everyone_sends_where_everyone_takes_part(observer):
    rounds = rounds_of(federation(), observer=observer)
    assert rounds.everyone_sends
    assert rounds.fewest == 10


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_noise_comes_from_everyone_where_sums_are_to_hide_the_sample(sampling):
    fed = federation(participation=0.3)
    for observer in (SUMS, MODEL):
        rounds = rounds_of(fed, observer=observer, sampling=sampling)
        assert rounds.everyone_sends
        assert rounds.fewest == 10
    rounds = rounds_of(fed, sampling=sampling)
    assert not rounds.everyone_sends
    assert rounds.fewest == (1 if sampling == "poisson" else 3)


@pytest.mark.parametrize(
    ("n_agents", "participation", "chance"),
    [(10, 0.01, 0.1), (3, 0.5, 2 / 3), (10, 0.35, 0.4), (10, 0.25, 0.2), (1, 0.2, 1), (3, 0.9, 1)],
)
@pytest.mark.parametrize("observer", Federation.observers)
def test_fixed_size_rounds_are_accounted_with_the_chance_that_is_drawn(
    n_agents, participation, chance, observer
):
    # A whole number of agents is drawn: one of ten is no sample of one in a hundred.
    fed = federation(n_agents, participation=participation)
    rounds = rounds_of(fed, sampling="fixed", observer=observer, max_rounds=20)
    assert rounds.participation == pytest.approx(chance)
    drawn = draw_schedule(rounds, fed, Draws()).takes_part
    assert np.all(drawn.sum(axis=1) == round(chance * n_agents))

    plan = FederatedADMM(sampling="fixed").plan(make_facts(fed), Budget(epsilon=1.0, delta=1e-5))
    release = plan.releases[-1]
    exact = participation_mixture(
        release.sensitivities,
        release.shares[0] * np.sqrt(n_agents),
        probability=chance,
        n_rounds=20,
    )
    assert plan.guarantee(MODEL).epsilon(1e-5) == pytest.approx(exact.epsilon(1e-5), rel=1e-9)


def test_poisson_rounds_draw_each_agent_by_itself():
    fed = federation(6, participation=0.3)
    drawn = draw_schedule(rounds_of(fed, max_rounds=20_000), fed, Draws()).takes_part
    together = np.cov(drawn.T.astype(float))
    np.testing.assert_allclose(drawn.mean(axis=0), 0.3, atol=0.02)
    np.testing.assert_allclose(together, 0.21 * np.eye(6), atol=0.02)


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_no_agent_takes_part_more_often_than_its_cap(sampling):
    fed = federation(participation=0.5, dropout=0.2)
    rounds = rounds_of(fed, sampling=sampling, cap=5, max_rounds=40)
    assert rounds.n_rounds == 10
    for seed in range(20):
        drawn = draw_schedule(rounds, fed, Draws(seed))
        assert drawn.takes_part.sum(axis=0).max() <= 5
        assert np.all(drawn.sends | ~drawn.takes_part)


def test_a_cap_shortens_a_run_in_which_everyone_takes_part():
    rounds = rounds_of(federation(), cap=7)
    assert (rounds.n_rounds, rounds.cap) == (7, None)
    assert rounds_of(federation(), cap=70).n_rounds == 50


@pytest.mark.parametrize("observer", Federation.observers)
def test_rounds_are_void_or_have_their_fewest_messages(observer):
    fed = federation(8, dropout=0.4)
    rounds = rounds_of(fed, observer=observer, max_rounds=20_000)
    assert binom.cdf(rounds.fewest - 1, 8, 0.6) <= VOID_ROUNDS < binom.cdf(rounds.fewest, 8, 0.6)
    drawn = draw_schedule(rounds, fed, Draws())
    arrived = drawn.sends.sum(axis=1)
    assert np.all((arrived == 0) | (arrived >= rounds.fewest))
    assert 0 < np.mean(arrived == 0) < 2 * VOID_ROUNDS
    assert not drawn.takes_part[arrived == 0].any()


def test_who_arrives_says_nothing_of_who_was_drawn():
    fed = federation(6, participation=0.4, dropout=0.3)
    drawn = draw_schedule(rounds_of(fed, observer=MODEL, max_rounds=40_000), fed, Draws())
    given_arrival = drawn.takes_part.sum() / drawn.sends.sum()
    assert given_arrival == pytest.approx(0.4, abs=0.01)
    n_drawn, n_arrived = drawn.takes_part[:, 1:].sum(axis=1), drawn.sends.sum(axis=1)
    valid = drawn.sends[:, 0] & (n_arrived > 0)
    mine = drawn.takes_part[valid, 0]
    assert np.mean(n_arrived[valid][mine]) == pytest.approx(
        np.mean(n_arrived[valid][~mine]), abs=0.05
    )
    assert np.mean(n_drawn[valid][mine]) == pytest.approx(np.mean(n_drawn[valid][~mine]), abs=0.05)


@pytest.mark.parametrize(("sampling", "cap"), [("poisson", None), ("poisson", 4), ("fixed", None)])
def test_expected_shares_are_those_of_many_schedules(sampling, cap):
    fed = federation(10, participation=0.3, dropout=0.1)
    rounds = rounds_of(fed, sampling=sampling, cap=cap, observer=MODEL, max_rounds=12)
    shares = [
        draw_schedule(rounds, fed, Draws(seed)).takes_part.mean(axis=1) for seed in range(3000)
    ]
    np.testing.assert_allclose(np.mean(shares, axis=0), rounds.expected_shares(fed), atol=0.015)


def test_each_observer_counts_the_noise_that_surely_arrives():
    fed = federation(10, n_honest=7, dropout=0.2)
    rounds = rounds_of(fed, observer=MODEL)
    assert rounds.fewest < 10
    assert fed.together(SERVER, rounds.fewest) == 1
    assert fed.together(SUMS, rounds.fewest) == rounds.fewest - 3
    assert fed.together(MODEL, rounds.fewest) == rounds.fewest
    alone = federation(10, n_honest=1, dropout=0.2)
    assert alone.together(SUMS, rounds.fewest) == 1


@pytest.mark.parametrize("seed", range(5))
def testsurely_noise_is_the_least_over_all_who_may_arrive(seed):
    rng = np.random.default_rng(seed)
    shares = 10.0 ** rng.uniform(-3, 3, 4)
    kind = rng.integers(4, size=7)
    kind[:4] = np.arange(4)
    per_agent = np.sort(shares[kind])
    for count in range(1, 8):
        found = surely_noise(shares, per_agent, count)
        for k in range(4):
            victim = int(np.flatnonzero(kind == k)[0])
            others = np.delete(shares[kind], victim)
            least = min(
                shares[k] ** 2 + sum(s**2 for s in chosen)
                for chosen in itertools.combinations(others, count - 1)
            )
            assert found[k] == pytest.approx(np.sqrt(least), rel=1e-12)


@pytest.mark.parametrize("observer", Federation.observers)
@pytest.mark.parametrize("unit", ["record", "agent"])
def test_a_preparation_costs_each_agent_its_share_of_the_budget(observer, unit):
    fed = Federation(agent_sizes=(1, 5, 20), n_honest=2, dropout=0.3)
    facts, budget = make_facts(fed, unit), Budget(epsilon=1.0, delta=1e-5, observer=observer)
    release = plan_release(facts, budget, name="sum", shape=(2,), sensitivity=0.1, mu=0.05)
    assert isinstance(release, MessageSum)
    assert release.fewest == 3
    assert max(g.mu for g in release.guarantees(observer)) == pytest.approx(0.05)
    assert all(g.mu <= 0.05 for g in release.guarantees(observer))
    # Preparations wait for everyone: drop-outs take nothing of their noise.
    arrives = np.square(np.asarray(release.shares)[fed.kind]).sum()
    assert release.noise_std == pytest.approx(np.sqrt(arrives))


def test_a_curator_gets_a_plain_release():
    release = plan_release(
        make_facts(None),
        Budget(epsilon=1.0, delta=1e-5),
        name="sum",
        shape=(2,),
        sensitivity=0.1,
        mu=0.05,
    )
    assert release.guarantee.mu == pytest.approx(0.05)
    assert release.noise_std == pytest.approx(2.0)


def test_agents_with_budgets_of_their_own_spend_them():
    epsilons = (0.5, 1.0, 4.0)
    fed = Federation(agent_sizes=(5, 5, 20), n_honest=2, epsilons=epsilons)
    for unit in ("record", "agent"):
        plan = FederatedADMM().plan(
            make_facts(fed, unit), Budget(epsilon=4.0, delta=1e-5, observer=SERVER)
        )
        spent = [plan.guarantees(SERVER)[k].epsilon(1e-5) for k in fed.kind]
        np.testing.assert_allclose(spent, epsilons, rtol=1e-9)
        assert all(s <= e for s, e in zip(spent, epsilons, strict=True))


def test_rounds_of_one_agent_are_those_of_a_curator():
    fed = federation(1)
    plan = FederatedADMM().plan(make_facts(fed), Budget(epsilon=1.0, delta=1e-5, observer=SERVER))
    assert all(plan.guarantee(o) == plan.guarantee(SERVER) for o in Federation.observers)
    assert isinstance(plan.guarantee(SERVER), GaussianDP)
    assert plan.settings.rounds == Rounds(
        n_rounds=20, participation=1.0, sampling="poisson", cap=None, everyone_sends=True, fewest=1
    )
    assert sample_size(fed) == 1
