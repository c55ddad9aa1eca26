"""What composes, by which rule, and what is never claimed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpadmm.ledger import LedgerError, Summed, _account, compose_all
from skdpadmm.ledger._account import (
    Claim,
    Relation,
    converted,
    is_within,
    total_of,
)
from skdpadmm.privacy import (
    Composed,
    GaussianDP,
    LaplaceDP,
    Mixture,
    Neighboring,
    NonPrivate,
    PerturbedObjectiveDP,
    PoissonSubsampledGaussian,
    RenyiDP,
    Worst,
    compose,
)

REPLACE = Relation("record", Neighboring.REPLACE_ONE)
ZERO = Relation("record", Neighboring.ZERO_OUT)
AGENT = Relation("agent", Neighboring.REPLACE_ONE)
AGENT_ZERO = Relation("agent", Neighboring.ZERO_OUT)
ORDERS = tuple(float(a) for a in range(2, 64))
RENYI = RenyiDP(ORDERS, tuple(0.01 * a for a in ORDERS))
OBJECTIVE = PerturbedObjectiveDP(0.1, 0.02, "zero_out", "one_sign")
SAMPLED = PoissonSubsampledGaussian(0.1, 10.0, 20, "replace_one")
MIXTURE = Mixture((0.5, 0.5), (GaussianDP(0.1), GaussianDP(0.2)))
WORST = Worst((LaplaceDP((0.1,)), GaussianDP(0.1)))
BOTH = Composed((GaussianDP(0.1), LaplaceDP((0.1,))))
KINDS = [GaussianDP(0.2), LaplaceDP((0.1,), (3,)), RENYI, OBJECTIVE, SAMPLED, MIXTURE, WORST]


def test_what_composes_elsewhere_composes_likewise_here():
    parts = [(GaussianDP(0.3), SAMPLED, SAMPLED), (RENYI, RENYI, GaussianDP(0.1)), (MIXTURE,) * 2]
    for each in (*parts, (OBJECTIVE, GaussianDP(0.1)), ()):
        assert compose_all(*each) == compose(*each)
    assert compose_all(RENYI, OBJECTIVE, NonPrivate()) == NonPrivate()


def test_every_pair_costs_at_least_each_and_at_most_basic_composition():
    for first, second in itertools.combinations_with_replacement(KINDS, 2):
        epsilon = compose_all(first, second).epsilon(1e-4)
        # Of one's own error of numbers, such as what a loss distribution charges to delta.
        least = max(first.epsilon(1e-4), second.epsilon(1e-4))
        most = first.epsilon(5e-5) + second.epsilon(5e-5)
        assert least * (1 - 1e-3) - 1e-6 <= epsilon <= most * (1 + 1e-3) + 1e-5


@pytest.mark.parametrize("most", [2, 20, 200])
def test_fewer_labels_in_a_sum_never_promise_more_than_the_exact_one(monkeypatch, most):
    rng = np.random.default_rng(most)
    mixtures = [
        Mixture(rng.dirichlet(np.ones(k)), tuple(map(GaussianDP, rng.exponential(0.3, k).tolist())))
        for k in (2, 3, 6)
    ]
    parts = [mixtures[i] for i in rng.integers(0, 3, 5)] + [GaussianDP(0.2)]
    exact = compose(*parts)
    monkeypatch.setattr(_account, "_MOST_COMBINATIONS", most)
    monkeypatch.setattr(_account, "_attempt", _account._attempt.__wrapped__)
    bound = compose_all(*parts)
    for epsilon in (0.0, 1.0, 3.0):
        assert bound.delta(epsilon) >= exact.delta(epsilon) * (1 - 1e-12)
    for delta in (1e-9, 1e-2):
        assert bound.epsilon(delta) >= exact.epsilon(delta) * (1 - 1e-12)


PARTS = [*map(GaussianDP, (0.01, 0.1, 0.7, 2.0)), LaplaceDP((0.2,)), SAMPLED]


@settings(max_examples=10)
@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=5), st.sampled_from([1e-8, 1e-2]))
def test_totals_and_sums_of_groups_are_never_below_the_exact_composition(parts, delta):
    claims = [Claim("model", REPLACE, part) for part in parts]
    exact = compose(*parts).epsilon(delta)
    assert total_of(claims, None).epsilon(delta) >= exact * (1 - 1e-9)
    assert Summed(tuple(parts)).epsilon(delta) >= exact * (1 - 1e-3)


def test_a_sum_of_groups_keeps_its_limit_and_no_smaller_one_in_both_directions():
    both, delta = Summed((RENYI, OBJECTIVE)), 1e-6
    epsilon = both.epsilon(delta)
    assert is_within(both, epsilon, delta)
    assert not is_within(both, epsilon * (1 - 1e-6), delta)
    assert not is_within(both, epsilon, 0.99 * delta)
    assert both.delta(epsilon) == pytest.approx(delta, rel=1e-4)
    assert both.epsilon(both.delta(0.9 * epsilon)) <= 0.9 * epsilon
    assert (both.delta(math.inf), both.epsilon(1.0)) == (0.0, 0.0)
    with pytest.raises(ValueError, match="delta"):
        both.epsilon(math.nan)


@pytest.mark.parametrize(
    ("guarantee", "source", "target", "expected"),
    [
        # A sum of numbers in [-1, 1] moves by 1 where one is zeroed, and by 2 where it is replaced.
        (GaussianDP(0.3), ZERO, REPLACE, GaussianDP(0.6)),
        (GaussianDP(0.3), AGENT_ZERO, REPLACE, GaussianDP(0.6)),
        (MIXTURE, ZERO, REPLACE, Mixture((0.5, 0.5), (GaussianDP(0.2), GaussianDP(0.4)))),
        (Worst((MIXTURE, GaussianDP(0.1))), ZERO, REPLACE,
         Worst((Mixture((0.5, 0.5), (GaussianDP(0.2), GaussianDP(0.4))), GaussianDP(0.2)))),
        (SAMPLED, AGENT, REPLACE, SAMPLED),
        (NonPrivate(), REPLACE, AGENT_ZERO, NonPrivate()),
        *[(GaussianDP(0.1), *pair, None) for pair in
          ((REPLACE, ZERO), (REPLACE, AGENT), (AGENT_ZERO, ZERO), (ZERO, AGENT))],
        *[(part, ZERO, REPLACE, None) for part in
          (LaplaceDP((0.1,)), SAMPLED, RENYI, OBJECTIVE, WORST, BOTH)],
    ],
)  # fmt: skip
def test_what_a_theorem_converts_is_converted_and_all_else_refused(
    guarantee, source, target, expected
):
    if expected is not None:
        assert converted(guarantee, source, target) == expected
        return
    with pytest.raises(LedgerError, match="expected one that says something about"):
        converted(guarantee, source, target)
