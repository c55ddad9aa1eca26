"""What composes, by which rule, and what is never claimed."""

import itertools
from collections import Counter

import pytest

from skdpadmm.privacy import (
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
from skdpadmm.privacy.claims import Claim, Relation, converted, is_within, keeps_limit, total_of

REPLACE = Relation("record", Neighboring.REPLACE_ONE)
ZERO = Relation("record", Neighboring.ZERO_OUT)
ADD = Relation("record", Neighboring.ADD_REMOVE)
AGENT = Relation("agent", Neighboring.REPLACE_ONE)
AGENT_ZERO = Relation("agent", Neighboring.ZERO_OUT)
ORDERS = tuple(float(a) for a in range(2, 64))
RENYI = RenyiDP(ORDERS, tuple(0.01 * a for a in ORDERS))
OBJECTIVE = PerturbedObjectiveDP(0.1, 0.02, "zero_out", "one_sign")
SAMPLED = PoissonSubsampledGaussian(0.1, 10.0, 20, "zero_out")
MIXTURE = Mixture((0.5, 0.5), (GaussianDP(0.1), GaussianDP(0.2)))
WORST = Worst((LaplaceDP(0.1), GaussianDP(0.1)))
BOTH = compose(GaussianDP(0.1), LaplaceDP(0.1))
KINDS = [GaussianDP(0.2), compose(*[LaplaceDP(0.1)] * 3), RENYI, OBJECTIVE, SAMPLED, MIXTURE, WORST]


def test_every_pair_spends_at_least_each_and_at_most_basic_composition():
    for first, second in itertools.combinations_with_replacement(KINDS, 2):
        claims = Counter([Claim("model", ZERO, part) for part in (first, second)])
        epsilon = total_of(claims, None).epsilon(1e-4)
        # Of one's own error of numbers, such as what a loss distribution charges to delta.
        least = max(first.epsilon(1e-4), second.epsilon(1e-4))
        most = first.epsilon(5e-5) + second.epsilon(5e-5)
        assert least * (1 - 1e-3) - 1e-6 <= epsilon <= most * (1 + 1e-3) + 1e-5


def test_a_limit_is_kept_at_the_sum_and_not_below_it():
    claims = Counter([Claim("model", REPLACE, part) for part in (RENYI, MIXTURE, MIXTURE)])
    total = total_of(claims, None)
    for epsilon in (0.2, 1.0):
        delta = total.delta(epsilon)
        assert keeps_limit(claims, None, epsilon, delta)
        assert not keeps_limit(claims, None, epsilon, 0.99 * delta)
    assert is_within(GaussianDP(0.2), GaussianDP(0.2).epsilon(1e-6), 1e-6)
    assert not is_within(GaussianDP(0.2), 300.0, 0.0)


@pytest.mark.parametrize(
    ("guarantee", "source", "target", "expected"),
    [
        # A sum of numbers in [-1, 1] moves by 1 where one is zeroed, and by 2 where it is replaced.
        (GaussianDP(0.3), ZERO, REPLACE, GaussianDP(0.6)),
        (GaussianDP(0.3), AGENT_ZERO, REPLACE, GaussianDP(0.6)),
        # One is removed, another one added.
        (GaussianDP(0.3), ADD, REPLACE, GaussianDP(0.6)),
        (MIXTURE, ZERO, REPLACE, Mixture((0.5, 0.5), (GaussianDP(0.2), GaussianDP(0.4)))),
        (Worst((MIXTURE, GaussianDP(0.1))), ZERO, REPLACE,
         Worst((Mixture((0.5, 0.5), (GaussianDP(0.2), GaussianDP(0.4))), GaussianDP(0.2)))),
        (SAMPLED, AGENT, REPLACE, SAMPLED),
        (NonPrivate(), REPLACE, AGENT_ZERO, NonPrivate()),
        *[(GaussianDP(0.1), *pair, None) for pair in
          ((REPLACE, ZERO), (REPLACE, AGENT), (AGENT_ZERO, ZERO), (ZERO, AGENT), (ZERO, ADD),
           (ADD, ZERO), (REPLACE, ADD), (AGENT_ZERO, ADD))],
        *[(part, ZERO, REPLACE, None) for part in
          (LaplaceDP(0.1), SAMPLED, RENYI, OBJECTIVE, WORST, BOTH)],
    ],
)  # fmt: skip
def test_what_a_theorem_converts_is_converted_and_all_else_refused(
    guarantee, source, target, expected
):
    if expected is not None:
        assert converted(guarantee, source, target) == expected
        return
    with pytest.raises(ValueError, match="expected one that says something about"):
        converted(guarantee, source, target)
