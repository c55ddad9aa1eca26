"""A Renyi budget spent on public widths: it is never exceeded, and adaptive rounds stay within."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpadmm.privacy import RenyiDP, RenyiFilter, UniformLaplace, UniformLaplaceDP
from skdpadmm.privacy._uniform_laplace import laplace_divergence, renyi_brackets


def test_the_cost_of_a_round_is_the_sum_over_entries():
    budget = RenyiFilter(8.0, 1.0)
    widths = [0.3, 0.0, 2.0, 0.3]
    exact = sum(renyi_brackets(2 * w, 0.2, (8.0,), 1e-8)[0][1] for w in widths)
    cost = budget.cost(2.0, widths, shift=0.1)
    assert exact * (1 - 1e-7) <= cost <= exact * (1 + 2e-4)
    same = UniformLaplaceDP((2.0,) * 4, tuple(widths), (0.1,) * 4).renyi((8.0,)).divergences[0]
    assert cost == pytest.approx(same, rel=2e-4)


def test_a_move_in_the_l1_norm_counts_on_the_narrowest_interval():
    budget = RenyiFilter(4.0, 1.0)
    widths = [0.5, 3.0]
    narrow = renyi_brackets(0.5, 0.15, (4.0,), 1e-8)[0][1]
    assert budget.cost(1.0, widths, l1_shift=0.15) == pytest.approx(narrow, rel=2e-4)
    separate = budget.cost(1.0, widths, shift=0.1)
    both = budget.cost(1.0, widths, shift=0.1, l1_shift=0.15)
    assert both == min(separate, budget.cost(1.0, widths, l1_shift=0.15))
    # Entries that all move by the largest move of one would be the loose way.
    assert budget.cost(1.0, [0.5] * 14, l1_shift=0.2) < budget.cost(1.0, [0.5] * 14, shift=0.1)


@pytest.mark.parametrize("order", [1.5, 8.0, 100.0])
def test_no_width_costs_more_than_none(order):
    budget = RenyiFilter(order, 10.0)
    plain = budget.cost(3.0, np.zeros(3), shift=0.2)
    assert plain == pytest.approx(3 * laplace_divergence(0.6, order), rel=1e-9)
    costs = [budget.cost(3.0, np.full(3, w), shift=0.2) for w in (0.0, 1e-9, 0.1, 1.0, 10.0)]
    assert costs == sorted(costs, reverse=True)
    assert budget.cost(0.0, [1.0], shift=0.2) == 0.0


@given(
    st.lists(st.floats(0, 5), min_size=1, max_size=4),
    st.floats(1e-3, 1.0),
    st.floats(1e-4, 2.0),
)
@settings(max_examples=30, deadline=None)
def test_the_largest_rate_is_admitted_and_no_larger_one(widths, shift, amount):
    budget = RenyiFilter(6.0, amount)
    rate = budget.largest_rate(widths, shift=shift)
    assert budget.admits(rate, widths, shift=shift)
    assert not budget.admits(rate * 1.001, widths, shift=shift)
    after = budget.spend(rate, widths, shift=shift)
    assert 0.999 * amount <= after.spent <= amount
    assert after.remaining == amount - after.spent
    assert rate >= budget.largest_rate(np.zeros(len(widths)), shift=shift) * (1 - 1e-9)


def test_rounds_beyond_the_budget_are_refused():
    budget = RenyiFilter(4.0, 0.1)
    cost = budget.cost(1.0, [0.5, 0.5], shift=0.1)
    rounds = 0
    while budget.admits(1.0, [0.5, 0.5], shift=0.1):
        budget = budget.spend(1.0, [0.5, 0.5], shift=0.1)
        rounds += 1
    assert rounds == int(0.1 / cost)
    assert budget.spent <= budget.budget
    with pytest.raises(ValueError, match=r"^Got a round of divergence .*largest_rate tells which"):
        budget.spend(1.0, [0.5, 0.5], shift=0.1)
    last = budget.largest_rate([0.5, 0.5], shift=0.1)
    assert last < 1.0
    spent = RenyiFilter(4.0, 0.1, 0.1)
    with pytest.raises(ValueError, match=r"expected room for a round\. Stop here"):
        spent.largest_rate([0.5], shift=0.1)
    assert not spent.admits(1e-3, [0.5], shift=0.1)
    assert spent.spend(0.0, [0.5], shift=0.1) == spent


def test_nothing_changes_in_place():
    budget = RenyiFilter(4.0, 0.1)
    after = budget.spend(1.0, [0.5], shift=0.1)
    assert budget == RenyiFilter(4.0, 0.1, 0.0)
    assert after.spent > 0
    with pytest.raises(FrozenInstanceError):
        after.spent = 0.0
    assert hash(after) != hash(budget)


def test_the_guarantee_is_that_of_the_budget_whatever_is_spent():
    budget = RenyiFilter(4.0, 0.1)
    assert budget.guarantee == RenyiDP((4.0,), (0.1,))
    assert budget.spend(1.0, [0.5], shift=0.1).guarantee == budget.guarantee


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
@pytest.mark.parametrize("order", [None, 2.0, 20.0, 300.0])
def test_a_target_is_met_by_its_whole_budget(epsilon, delta, order):
    pytest.importorskip("dp_accounting")
    if order is not None:
        floor = math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
        if floor >= epsilon:
            with pytest.raises(ValueError, match="leaves no budget"):
                RenyiFilter.of_target(epsilon, delta, order)
            return
    budget = RenyiFilter.of_target(epsilon, delta, order)
    assert budget.guarantee.epsilon(delta) <= epsilon
    assert budget.guarantee.epsilon(delta) == pytest.approx(epsilon, rel=1e-6)
    assert order is None or budget.order == order


def test_the_order_that_is_chosen_leaves_room_for_most_small_rounds():
    chosen = RenyiFilter.of_target(1.0, 1e-5)
    for order in (2.0, 5.0, 10.0, 40.0, 100.0):
        try:
            other = RenyiFilter.of_target(1.0, 1e-5, order)
        except ValueError:
            continue
        assert other.budget / order <= chosen.budget / chosen.order * (1 + 1e-9)


def adaptive_divergence(order, first, rest):
    """Exact divergence of two rounds: the second one depends on the first one's output.

    ``first`` is its width and shift in units of the noise, ``rest(x)`` the second divergence.
    """
    u, s = first
    x = np.linspace(-60, u + s + 60, 400_001)
    law = UniformLaplace(1.0, u)
    p, q = law.log_density(x), law.log_density(x - s)
    further = np.array([rest(True), rest(False)])[(x > 0.5 * u).astype(int)]
    values = np.exp(order * p + (1 - order) * q + (order - 1) * further)
    return math.log(np.trapezoid(values, x)) / (order - 1)


@pytest.mark.parametrize("order", [2.0, 8.0])
def test_adaptive_rounds_stay_within_the_budget(order):
    """The second width, and rate, depend on what the first round released."""
    budget = RenyiFilter(order, 0.2)
    widths = {True: 0.2, False: 4.0}
    first = budget.spend(1.0, [1.0], shift=0.25)
    rates = {low: first.largest_rate([width], shift=0.25) for low, width in widths.items()}
    assert rates[True] < rates[False]

    def exact(low, width=None):
        u = rates[low] * (widths[low] if width is None else width)
        return renyi_brackets(u, 0.25 * rates[low], (order,), 1e-8)[0][1]

    total = adaptive_divergence(order, (1.0, 0.25), exact)
    assert 0.995 * 0.2 < total <= 0.2
    # Were the interval narrower than the width that was counted, the budget would not hold.
    assert adaptive_divergence(order, (1.0, 0.25), lambda low: exact(low, 0.0)) > 0.2


def test_random_public_widths_never_spend_more_than_the_budget():
    rng = np.random.default_rng(0)
    budget = RenyiFilter.of_target(1.0, 1e-5)
    total, plain = 0.0, 0.0
    for _ in range(200):
        rate, widths = float(rng.uniform(0.5, 3.0)), rng.exponential(1.0, 3)
        if not budget.admits(rate, widths, shift=0.1):
            rate = budget.largest_rate(widths, shift=0.1)
            budget = budget.spend(rate, widths, shift=0.1)
            break
        budget = budget.spend(rate, widths, shift=0.1)
        exact = sum(
            renyi_brackets(rate * w, 0.1 * rate, (budget.order,), 1e-5)[0][0] for w in widths
        )
        total += exact
        plain += 3 * laplace_divergence(0.1 * rate, budget.order)
        assert total <= budget.spent <= budget.budget
    assert budget.spent == pytest.approx(budget.budget, rel=1e-3)
    # Little is gained at an order that is large beside 1 / epsilon of a round: its tails count.
    assert plain > 1.05 * total


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, 1.0), "Got order="),
        ((math.inf, 1.0), "Got order="),
        ((2.0, -1.0), "Got budget="),
        ((2.0, math.inf), "Got budget="),
        ((2.0, 1.0, 1.1), "Got spent="),
        ((2.0, 1.0, -0.1), "Got spent="),
        ((2.0, 1.0, math.nan), "Got spent="),
    ],
)
def test_budgets_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        RenyiFilter(*arguments)


def test_rounds_out_of_range_are_refused():
    budget = RenyiFilter(2.0, 1.0)
    with pytest.raises(ValueError, match="Got neither shift nor l1_shift"):
        budget.cost(1.0, [1.0])
    with pytest.raises(ValueError, match="Got neither shift nor l1_shift"):
        budget.largest_rate([1.0])
    for rate in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="Got rate="):
            budget.spend(rate, [1.0], shift=0.1)
    for widths in ([-1.0], [math.nan], [], [math.inf], [[1.0]]):
        with pytest.raises(ValueError, match="Got widths="):
            budget.cost(1.0, widths, shift=0.1)
    for move in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="Got shift="):
            budget.cost(1.0, [1.0], shift=move)
        with pytest.raises(ValueError, match="Got l1_shift="):
            budget.cost(1.0, [1.0], l1_shift=move)
    with pytest.raises(ValueError, match="Got shift=0"):
        budget.largest_rate([1.0], shift=0.0)
    with pytest.raises(ValueError, match="Got allowance="):
        budget.largest_rate([1.0], shift=0.1, allowance=0.0)
    assert budget.cost(1e300, [1e300], shift=0.1) == math.inf
    for epsilon, delta, order in ((-1.0, 1e-5, None), (1.0, 0.0, None), (1.0, 1e-5, 1.0)):
        with pytest.raises(ValueError, match=r"^Got"):
            RenyiFilter.of_target(epsilon, delta, order)
