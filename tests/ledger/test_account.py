"""What composes, by which rule, and what is never claimed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpadmm.ledger import LedgerError, Summed, _account, compose_all
from skdpadmm.ledger._account import _coarsened, converted, is_within, left_of, total_of
from skdpadmm.ledger._entry import Claim, Relation
from skdpadmm.privacy import (
    Composed,
    GaussianDP,
    LaplaceDP,
    Mixture,
    Neighboring,
    NonPrivate,
    PerturbedObjectiveDP,
    PoissonSubsampledGaussian,
    RandomizedResponseDP,
    RenyiDP,
    UniformLaplaceDP,
    Worst,
    compose,
    compose_uniform_laplace,
    gaussian_mu,
)

REPLACE = Relation("record", Neighboring.REPLACE_ONE)
ZERO = Relation("record", Neighboring.ZERO_OUT)
AGENT = Relation("agent", Neighboring.REPLACE_ONE)
AGENT_ZERO = Relation("agent", Neighboring.ZERO_OUT)
ORDERS = tuple(float(a) for a in range(2, 64))
RENYI = RenyiDP(ORDERS, tuple(0.01 * a for a in ORDERS))
OBJECTIVE = PerturbedObjectiveDP(0.1, 0.02, "zero_out", "one_sign")
UNIFORM = UniformLaplaceDP((2.0,), (1.0,), (0.1,))
SAMPLED = PoissonSubsampledGaussian(0.1, 10.0, 20, "replace_one")
MIXTURE = Mixture((0.5, 0.5), (GaussianDP(0.1), GaussianDP(0.2)))
KINDS = [
    GaussianDP(0.2),
    LaplaceDP((0.1,), (3,)),
    RENYI,
    OBJECTIVE,
    UNIFORM,
    SAMPLED,
    MIXTURE,
    RandomizedResponseDP(0.2, 3),
    Worst((LaplaceDP((0.1,)), GaussianDP(0.1))),
]


def test_what_composes_elsewhere_composes_likewise_here():
    for parts in [
        (GaussianDP(0.3), GaussianDP(0.4)),
        (GaussianDP(0.3), SAMPLED, SAMPLED),
        (RENYI, RENYI, GaussianDP(0.1)),
        (OBJECTIVE, GaussianDP(0.1)),
        (MIXTURE, MIXTURE),
        (),
    ]:
        assert compose_all(*parts) == compose(*parts)
    assert compose_all(UNIFORM, LaplaceDP((0.1,))) == compose_uniform_laplace(
        UNIFORM, LaplaceDP((0.1,))
    )


@pytest.mark.parametrize("one", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_every_pair_has_a_sum_that_is_at_least_each_and_at_most_basic_composition(one, other):
    both = compose_all(one, other)
    for delta in (1e-6, 1e-3):
        epsilon = both.epsilon(delta)
        # Of one's own error of numbers, such as what a loss distribution charges to delta.
        assert epsilon >= max(one.epsilon(delta), other.epsilon(delta)) * (1 - 1e-3) - 1e-6
        assert epsilon <= (one.epsilon(delta / 2) + other.epsilon(delta / 2)) * (1 + 1e-3) + 1e-5


def test_everything_at_once_has_a_sum_in_any_order():
    epsilons = [
        compose_all(*(KINDS[i] for i in np.random.default_rng(seed).permutation(len(KINDS))))
        .epsilon(1e-6)
        for seed in range(3)
    ]  # fmt: skip
    assert epsilons == pytest.approx([epsilons[0]] * 3, rel=1e-6)
    assert math.isfinite(epsilons[0])


def test_without_privacy_nothing_is_left():
    assert compose_all(RENYI, UNIFORM, NonPrivate()) == NonPrivate()


def test_what_reveals_nothing_costs_nothing():
    assert compose_all(GaussianDP(0.0), OBJECTIVE, LaplaceDP(())).epsilon(1e-6) == (
        pytest.approx(OBJECTIVE.epsilon(1e-6), rel=1e-6)
    )


WIDE = Mixture((1 / 500,) * 500, tuple(GaussianDP(0.1 + 1e-4 * i) for i in range(500)))


@pytest.mark.parametrize("n", [2, 5, 40, 400])
def test_more_labels_than_can_be_combined_are_bounded_by_fewer(n):
    mus = [component.mu for component in WIDE.components]
    epsilon = compose_all(*([WIDE] * n), GaussianDP(0.1)).epsilon(1e-6)
    # At least that of the root of the mean of mu^2, at most that of the largest mu.
    least = GaussianDP(math.sqrt(n * np.mean(np.square(mus)) + 0.01)).epsilon(1e-6)
    assert least <= epsilon <= GaussianDP(math.hypot(0.1, math.sqrt(n) * max(mus))).epsilon(1e-6)


@pytest.mark.parametrize("n_labels", [1, 2, 7, 64])
@pytest.mark.parametrize("seed", range(3))
def test_fewer_labels_never_promise_more(n_labels, seed):
    generator = np.random.default_rng(seed)
    weights = generator.dirichlet(np.ones(300))
    mixture = Mixture(weights, tuple(map(GaussianDP, generator.exponential(0.3, 300).tolist())))
    coarse = _coarsened(mixture, n_labels)
    assert len(coarse.components) <= n_labels
    for epsilon in (0.0, 0.1, 1.0, 5.0):
        assert coarse.delta(epsilon) >= mixture.delta(epsilon) * (1 - 1e-12)
    finer = _coarsened(mixture, 2 * n_labels)
    assert finer.epsilon(1e-6) <= coarse.epsilon(1e-6) * (1 + 1e-9)


def test_a_long_mixture_beside_what_needs_a_loss_distribution_is_a_sum_of_two():
    total = compose_all(WIDE, LaplaceDP((0.1,)), GaussianDP(0.1), SAMPLED, WIDE)
    assert isinstance(total, Summed)
    assert len(total.groups) == 2


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.01, 2.0), min_size=1, max_size=6), st.floats(1e-9, 1e-2))
def test_a_sum_of_groups_is_never_below_the_exact_composition(mus, delta):
    exact = GaussianDP(math.hypot(*mus)).epsilon(delta)
    assert Summed(tuple(GaussianDP(mu) for mu in mus)).epsilon(delta) >= exact * (1 - 1e-12)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.sampled_from([GaussianDP(0.1), GaussianDP(0.7), LaplaceDP((0.2,)), SAMPLED]),
        min_size=2,
        max_size=5,
    ),
    st.sampled_from([1e-8, 1e-5, 1e-2]),
)
def test_a_total_is_never_below_what_its_parts_compose_to(parts, delta):
    claims = [(Claim("model", REPLACE, part), 1) for part in parts]
    assert total_of(claims, None).epsilon(delta) >= compose(*parts).epsilon(delta) * (1 - 1e-9)
    assert Summed(tuple(parts)).epsilon(delta) >= compose(*parts).epsilon(delta) * (1 - 1e-3)


def test_pure_groups_add_up_and_leave_delta_to_the_others():
    both = Summed((LaplaceDP((0.1,)), LaplaceDP((0.2,))))
    assert both.epsilon(0.0) == pytest.approx(0.3)
    assert both.delta(0.31) == 0.0
    mixed = Summed((LaplaceDP((1e-6,)), GaussianDP(0.5)))
    assert mixed.epsilon(1e-6) == pytest.approx(GaussianDP(0.5).epsilon(1e-6), rel=1e-4)


@pytest.mark.parametrize("n", [2, 5, 50])
@pytest.mark.parametrize("mu", [1e-3, 0.1])
def test_groups_share_one_delta(n, mu):
    groups = Summed((GaussianDP(mu),) * n)
    for delta in (1e-9, 1e-4, 0.3 * mu):
        assert groups.epsilon(delta) == pytest.approx(
            n * GaussianDP(mu).epsilon(delta / n), rel=1e-6
        )
    # Enough of a delta for any one of them, and too little for all together.
    delta = 1.01 * GaussianDP(mu).delta(0.0)
    assert GaussianDP(mu).epsilon(delta) == 0.0
    assert groups.epsilon(delta) >= GaussianDP(math.sqrt(n) * mu).epsilon(delta) > 0.0
    assert groups.delta(0.0) >= GaussianDP(math.sqrt(n) * mu).delta(0.0) * (1 - 1e-5)


def test_no_split_of_delta_spends_more_than_all_of_it(monkeypatch):
    splits, each = [], Summed._each

    def watch(groups, deltas):
        splits.append(math.fsum(deltas))
        return each(groups, deltas)

    monkeypatch.setattr(Summed, "_each", watch)
    Summed((RENYI, OBJECTIVE, LaplaceDP((0.1,)), GaussianDP(0.3))).epsilon(1e-6)
    # The pure one, and three that spend nearly all.
    assert splits == [0.0, *[pytest.approx(1e-6, rel=1e-9)] * 3]
    assert max(splits) <= 1e-6


def test_a_sum_of_groups_keeps_its_limit_and_no_smaller_one():
    both = Summed((RENYI, OBJECTIVE))
    for delta in (1e-8, 1e-4):
        epsilon = both.epsilon(delta)
        assert is_within(both, epsilon, delta)
        assert not is_within(both, epsilon * (1 - 1e-6), delta)
        assert not is_within(both, epsilon, 0.99 * delta)


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0])
def test_without_a_delta_no_gaussian_guarantee_keeps_a_limit(mu):
    assert GaussianDP(mu).delta(1e4) == 0.0  # it underflows
    assert not is_within(GaussianDP(mu), 1e4, 0.0)
    assert is_within(GaussianDP(0.0), 0.0, 0.0)
    assert is_within(LaplaceDP((0.5,)), 0.5, 0.0)
    assert not is_within(LaplaceDP((0.5,)), 0.49, 0.0)


def test_both_directions_of_a_sum_of_groups_agree():
    both = Summed((RENYI, OBJECTIVE))
    for delta in (1e-8, 1e-4):
        epsilon = both.epsilon(delta)
        assert both.delta(epsilon) == pytest.approx(delta, rel=1e-4)
        assert both.epsilon(both.delta(0.9 * epsilon)) <= 0.9 * epsilon
    assert both.delta(math.inf) == 0.0
    assert both.epsilon(1.0) == 0.0
    with pytest.raises(ValueError, match="delta"):
        both.epsilon(math.nan)


def test_zero_out_costs_twice_under_replace_one():
    assert converted(GaussianDP(0.3), ZERO, REPLACE) == GaussianDP(0.6)
    assert converted(MIXTURE, ZERO, REPLACE) == Mixture(
        (0.5, 0.5), (GaussianDP(0.2), GaussianDP(0.4))
    )
    worst = Worst((MIXTURE, GaussianDP(0.1)))
    assert converted(worst, ZERO, REPLACE).components[1] == GaussianDP(0.2)
    assert converted(GaussianDP(0.3), AGENT_ZERO, REPLACE) == GaussianDP(0.6)


def test_the_double_is_attained_by_a_sum_of_clipped_numbers():
    # A sum of numbers in [-1, 1]: zero-out moves it by 1, replace-one by 2.
    noise_std = 7.0
    assert converted(GaussianDP(1 / noise_std), ZERO, REPLACE) == GaussianDP(2 / noise_std)


def test_a_guarantee_of_agents_holds_for_their_records():
    assert converted(SAMPLED, AGENT, REPLACE) == SAMPLED


def test_no_privacy_is_none_between_any_neighbours():
    assert converted(NonPrivate(), REPLACE, AGENT_ZERO) == NonPrivate()


@pytest.mark.parametrize(
    ("guarantee", "source", "target"),
    [
        (GaussianDP(0.1), REPLACE, ZERO),
        (GaussianDP(0.1), REPLACE, AGENT),
        (GaussianDP(0.1), AGENT_ZERO, ZERO),
        (GaussianDP(0.1), ZERO, AGENT),
        (LaplaceDP((0.1,)), ZERO, REPLACE),
        (SAMPLED, ZERO, REPLACE),
        (RENYI, ZERO, REPLACE),
        (OBJECTIVE, ZERO, REPLACE),
        (Worst((GaussianDP(0.1), LaplaceDP((0.1,)))), ZERO, REPLACE),
        (Composed((GaussianDP(0.1), LaplaceDP((0.1,)))), ZERO, REPLACE),
    ],
)
def test_what_no_theorem_converts_is_refused(guarantee, source, target):
    with pytest.raises(LedgerError, match="expected one that says something about"):
        converted(guarantee, source, target)


def test_relations_are_never_mixed_silently():
    claims = [(Claim("model", r, GaussianDP(0.1)), 1) for r in (REPLACE, ZERO)]
    with pytest.raises(LedgerError, match="record, replace one; record, zero out"):
        total_of(claims, None)
    assert total_of(claims, REPLACE).mu == pytest.approx(math.hypot(0.1, 0.2))


def test_what_is_left_can_be_spent_and_no_more():
    whole = gaussian_mu(1.0, 1e-6)
    spent = GaussianDP(0.6 * whole)
    left = left_of(spent, 1.0, 1e-6)
    assert left == pytest.approx(GaussianDP(0.8 * whole).epsilon(1e-6), rel=1e-6)
    more = GaussianDP(gaussian_mu(left, 1e-6))
    assert is_within(compose(spent, more), 1.0, 1e-6)
    assert not is_within(compose(spent, GaussianDP(0.801 * whole)), 1.0, 1e-6)
    assert left_of(NonPrivate(), 1.0, 1e-6) == 0.0
    assert left_of(LaplaceDP((0.1,)), 1.0, 0.0) == 0.0
    assert 0 < left_of(SAMPLED, 1.0, 1e-6) < 1.0


@pytest.fixture
def no_room(monkeypatch):
    """Sums that may do hardly any work, and that nothing is remembered of."""

    def limit(most):
        monkeypatch.setattr(_account, "_MOST_WORK", most)
        _account._attempt.cache_clear()

    yield limit
    _account._attempt.cache_clear()


@pytest.mark.parametrize("most", [2, 20, 200])
@pytest.mark.parametrize("seed", range(6))
def test_fewer_labels_in_a_sum_never_promise_more_than_the_exact_one(no_room, most, seed):
    generator = np.random.default_rng(seed)
    mixtures = [
        Mixture(
            tuple(generator.dirichlet(np.ones(k))),
            tuple(map(GaussianDP, generator.exponential(0.3, k).tolist())),
        )
        for k in (2, 3, 6)
    ]
    parts = [mixtures[i] for i in generator.integers(0, 3, 7)] + [GaussianDP(0.2)]
    exact = compose(*parts)
    no_room(most)
    bound = compose_all(*parts)
    for epsilon in (0.0, 0.3, 1.0, 3.0):
        assert bound.delta(epsilon) >= exact.delta(epsilon) * (1 - 1e-12)
    for delta in (1e-9, 1e-6, 1e-2):
        assert bound.epsilon(delta) >= exact.epsilon(delta) * (1 - 1e-12)


@pytest.mark.parametrize("n_labels", [2, 3, 5, 40, 500])
@pytest.mark.parametrize("n", [1, 3, 30, 300, 3000])
def test_the_work_of_a_sum_is_bounded_whatever_the_number_of_fits(n_labels, n, monkeypatch):
    work, composed = [], _account.compose

    def count(*parts):
        whole = composed(*parts)
        n_components = len(whole.components) if isinstance(whole, Mixture) else 1
        n_told = max(len(part.components) for part in parts if isinstance(part, Mixture))
        work.append(n_components * min(len(parts), n_told))
        return whole

    monkeypatch.setattr(_account, "compose", count)
    _account._attempt.cache_clear()
    weights = (1 / n_labels,) * n_labels
    mixture = Mixture(weights, tuple(GaussianDP(0.01 * (i + 1)) for i in range(n_labels)))
    total = compose_all(*[mixture] * n)
    assert not isinstance(total, Summed)
    assert len(work) == 1
    assert n == 1 or work[0] <= _account._MOST_WORK


def test_what_is_left_of_a_long_mixture_can_be_spent():
    mixture = Mixture((0.2, 0.3, 0.5), tuple(map(GaussianDP, (0.01, 0.02, 0.03))))
    spent = compose_all(*[mixture] * 60)
    assert len(spent.components) > 1000
    limit = 1.5 * spent.epsilon(1e-6)
    left = left_of(spent, limit, 1e-6)
    assert left > 0.3 * limit
    more = GaussianDP(gaussian_mu(left, 1e-6))
    assert is_within(compose(spent, more), limit, 1e-6)
