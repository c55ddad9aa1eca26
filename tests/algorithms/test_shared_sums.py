"""Noise of sums by secret sharing: the law of sums on a grid, and what is planned of it."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from skdpadmm import DPDecentralizedClassifier, DPDecentralizedRegressor, DPFedRidge
from skdpadmm.algorithms import SecretSharingGradientDescent
from skdpadmm.algorithms.planning._messages import unit_limits
from skdpadmm.algorithms.planning._shared_sums import (
    CERTAIN,
    FEWEST_CELLS,
    LONGEST_NOISE,
    _check_grids,
    needed_modulus,
)
from skdpadmm.noise import grid_cell
from skdpadmm.privacy import GaussianDP
from skdpadmm.protocol import SharedSum
from skdpadmm.secret_sharing import centred, residues_of, share_and_sum

# Laws of integers: the probabilities of -reach, ..., reach.


def rounded_gaussian(std, cell, reach):
    """A Gaussian number rounded to multiples of a whole number of cells."""
    multiples = np.arange(0, reach // cell + 1) * cell
    # Differences in the lower tail, where they are exact.
    half = ndtr(-(multiples - cell / 2) / std) - ndtr(-(multiples + cell / 2) / std)
    law = np.zeros(2 * reach + 1)
    law[reach + multiples], law[reach - multiples] = half, half
    return law


def discrete_gaussian(std, cell, reach):
    multiples = np.arange(-(reach // cell), reach // cell + 1) * cell
    law = np.zeros(2 * reach + 1)
    law[reach + multiples] = np.exp(-np.square(multiples / std) / 2)
    return law / law.sum()


def sum_law(laws):
    total = laws[0]
    for law in laws[1:]:
        total = np.convolve(total, law)
    return total


def smoothed_gaussian(std, cells, at):
    """Density of a Gaussian number and uniform ones, of some widths, by quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(14)
    shift, weight = np.zeros(1), np.ones(1)
    for cell in cells:
        shift = np.add.outer(shift, nodes * cell / 2).ravel()
        weight = np.multiply.outer(weight, weights / 2).ravel()
    return np.array([np.dot(weight, norm.pdf(x + shift, scale=std)) for x in at])


CASES = [
    # Standard deviations in units of the finest cell, and cells.
    ([3.0, 3.0], [1, 1]),
    ([3.0, 3.0, 3.0], [1, 1, 1]),
    ([8.0, 8.0], [1, 1]),
    ([4.0, 11.0, 5.5], [1, 1, 1]),
    # Nested grids, the noise at least three cells of the coarsest.
    ([12.0, 12.0], [1, 4]),
    ([6.0, 7.0, 9.0], [1, 2, 2]),
    ([24.0, 40.0, 25.0], [1, 8, 4]),
]


@pytest.mark.parametrize(("stds", "cells"), CASES, ids=str)
def test_a_sum_of_rounded_gaussians_is_one_rounded_number_of_a_gaussian_and_uniform_ones(
    stds, cells
):
    total = math.hypot(*stds)
    reach = int(14 * total)
    law = sum_law([rounded_gaussian(s, c, reach) for s, c in zip(stds, cells, strict=True)])
    centre = len(law) // 2
    at = np.unique(np.linspace(-9 * total, 9 * total, 161).astype(int))
    # Rounding to the finest grid integrates over one more cell; others are those of the rest.
    np.testing.assert_allclose(
        law[centre + at], smoothed_gaussian(total, cells, at), rtol=1e-11, atol=0
    )


@pytest.mark.parametrize("r", [0.5, 0.7, 1.0, 1.3])
def test_the_error_of_that_law_is_as_stated_where_there_are_few_cells(r):
    reach = int(14 * r) + 20
    law = sum_law([rounded_gaussian(r, 1, reach)] * 2)
    at = np.arange(-int(6 * r), int(6 * r) + 1)
    expected = smoothed_gaussian(math.sqrt(2) * r, [1, 1], at)
    error = np.max(np.abs(law[len(law) // 2 + at] / expected - 1))
    stated = 2 * math.exp(-((math.pi * r) ** 2))
    assert error <= stated * (1 + 1e-3) + 1e-12
    # And it is there: with a coarser grid than planned it is no theorem.
    assert error > 0.2 * stated


def divergence(law, shift, epsilon):
    """Delta of a law on integers and itself, shifted by whole cells; in both directions."""
    gap = np.zeros(shift)
    one, other = np.concatenate([law, gap]), np.concatenate([gap, law])
    factor = math.exp(epsilon)
    return max(np.maximum(a - factor * b, 0).sum() for a, b in ((one, other), (other, one)))


def ratios(law, variance, shifts, n_epsilons=13):
    """Of exact deltas over those of a Gaussian mechanism with that variance."""
    for shift in shifts:
        claimed = GaussianDP(shift / math.sqrt(variance))
        for epsilon in np.linspace(0, claimed.mu**2 / 2 + 4 * claimed.mu, n_epsilons):
            delta = claimed.delta(float(epsilon))
            if delta > 1e-12:
                yield divergence(law, shift, epsilon) / delta


@pytest.mark.parametrize("make", [rounded_gaussian, discrete_gaussian])
@pytest.mark.parametrize(("stds", "cells"), CASES, ids=str)
def test_shifted_sums_are_no_further_apart_than_the_formula_says(make, stds, cells):
    reach = int(14 * math.hypot(*stds))
    law = sum_law([make(s, c, reach) for s, c in zip(stds, cells, strict=True)])
    left = sum(s**2 - 4 * c**2 for s, c in zip(stds, cells, strict=True))
    # Whoever is protected is on one of the grids.
    for cell in set(cells):
        shifts = [cell * k for k in (1, 2, 5, 12)]
        assert max(ratios(law, left, shifts)) <= 1 + 1e-6


@pytest.mark.parametrize(("std", "excess"), [(3.0, 1.14), (4.0, 1.1), (8.0, 1.02)])
def test_discrete_noise_alone_costs_more_than_a_gaussian_and_less_than_the_repaired_figure(
    std, excess
):
    law = discrete_gaussian(std, 1, int(40 * std))
    shifts = range(1, int(6 * std))
    assert max(ratios(law, std**2, shifts, 81)) > excess
    assert max(ratios(law, std**2 - 4, shifts, 81)) <= 1 + 1e-9
    # Rounded numbers are what a Gaussian mechanism releases, after rounding: they need no repair.
    law = rounded_gaussian(std, 1, int(14 * std))
    assert max(ratios(law, std**2, shifts)) <= 1 + 1e-6


# What is planned.


def planned(n_samples=400, sizes=None, *, cls=DPDecentralizedRegressor, **knobs):
    """The plan of a network or a federation, and its shared sum."""
    algorithm = SecretSharingGradientDescent(
        **{k: knobs.pop(k) for k in ("modulus", "n_curators") if k in knobs}
    )
    settings = {"max_iter": 7, "conditioning": None, "scale": None, "delta": 1e-6}
    settings |= {"algorithm": algorithm} | ({} if sizes else {"n_agents": 6}) | knobs
    shape = {"agent_sizes": sizes} if sizes else {}
    more = {"n_classes": 3} if cls is DPDecentralizedClassifier else {}
    plan = cls(**settings).plan(sum(sizes) if sizes else n_samples, 3, **shape, **more)
    return plan, plan.releases[-1]


def formula(plan, release, agent, count):
    """The docstring's mu for an agent, from what is public and the least noise of others."""
    facts, kind = plan.facts, plan.facts.agents.kind
    share = np.asarray(release.shares)[kind]
    cell = np.array([grid_cell(s) for s in share])
    certain = np.square(share) - 4 * np.square(cell)
    others = np.sort(np.delete(certain, agent))[: count - 1]
    delta = unit_limits(facts)[kind][agent] * facts.neighboring.sensitivity_factor
    delta *= facts.working_rounding
    spread = math.sqrt(math.prod(release.shape))
    noise = math.sqrt(certain[agent] + others.sum())
    return math.sqrt(release.times) * (delta + cell[agent] * spread) / noise


SHAPES = {
    "equal": {},
    "sizes": {"sizes": [3, 7, 20, 30, 40, 100]},
    "agents": {"sizes": [3, 7, 20, 30, 40, 100], "privacy_unit": "agent"},
    "budgets": {"epsilon": [0.5, 1.0, 2.0, 4.0, 1.0, 3.0], "coalition": 5, "n_curators": 5},
    "zero-out": {"neighboring": "zero_out"},
    "classes": {"cls": DPDecentralizedClassifier},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("adversary", ["eavesdropper", "peer"])
def test_figures_of_a_network_are_the_formula_for_every_coalition(shape, adversary):
    for coalition, n_curators in itertools.product(range(1, 6), (None, 2, 4)):
        knobs = {"coalition": coalition, "n_curators": n_curators, "adversary": adversary}
        plan, release = planned(**(knobs | SHAPES[shape]))
        agents = plan.facts.agents
        everything = agents.coalition >= agents.n_curators
        counts = {
            "model": 6,
            "peer": 1 if everything else 6 - agents.coalition,
            # In league with the coalition.
            "eavesdropper": 1 if everything else 6 - agents.coalition,
        }
        for observer, count in counts.items():
            claimed = plan.guarantees(observer)
            for agent in range(6):
                expected = formula(plan, release, agent, count)
                found = claimed[agents.kind[agent]].mu
                assert expected * (1 - 1e-12) <= found
                assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("adversary", ["server", "sums", "model"])
@pytest.mark.parametrize("unit", ["record", "agent"])
def test_figures_of_a_federation_are_the_formula(adversary, unit):
    sizes = [3, 7, 20, 30, 40, 100]
    for n_honest, n_curators in itertools.product((2, 3, 6), (None, 2, 5)):
        plan, release = planned(
            sizes=sizes, cls=DPFedRidge, adversary=adversary, n_honest=n_honest,
            privacy_unit=unit, n_curators=n_curators,
        )  # fmt: skip
        for observer, count in (("server", 1), ("sums", n_honest), ("model", 6)):
            claimed = plan.guarantees(observer)
            for agent in range(6):
                found = claimed[plan.facts.agents.kind[agent]].mu
                expected = formula(plan, release, agent, count)
                assert expected * (1 - 1e-12) <= found == pytest.approx(expected, rel=1e-9)
        assert release.n_curators == (6 if n_curators is None else n_curators)


@pytest.mark.parametrize("scale", [None, "private"])
@pytest.mark.parametrize("conditioning", [None, "private"])
@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
def test_the_budget_is_met_and_used_up(scale, conditioning, neighboring):
    shared = {"scale": scale, "conditioning": conditioning, "neighboring": neighboring}
    for epsilon, unit in itertools.product([0.1, 1.0, 10.0], ["record", "agent"]):
        knobs = {**shared, "epsilon": epsilon, "privacy_unit": unit}
        for observer, coalition in itertools.product(("eavesdropper", "peer"), range(1, 6)):
            plan, _ = planned(adversary=observer, coalition=coalition, **knobs)
            assert 0.99 * epsilon < plan.guarantee(observer).epsilon(1e-6) <= epsilon
            assert plan.guarantee("model").epsilon(1e-6) < epsilon
        for observer in ("server", "sums", "model"):
            plan, _ = planned(cls=DPFedRidge, adversary=observer, n_honest=4, **knobs)
            assert 0.99 * epsilon < plan.guarantee(observer).epsilon(1e-6) <= epsilon


def test_agents_with_budgets_of_their_own_are_within_them_and_the_strictest_uses_its_up():
    epsilons = [0.5, 2.0, 1.0, 4.0, 1.0, 3.0]
    for coalition, n_curators in ((1, None), (3, None), (5, 5), (2, 2)):
        plan, release = planned(epsilon=epsilons, coalition=coalition, n_curators=n_curators)
        kind = plan.facts.agents.kind
        found = np.array([g.epsilon(1e-6) for g in plan.guarantees("eavesdropper")])[kind]
        assert np.all(found <= epsilons)
        assert found[0] > 0.495
        if coalition == n_curators:
            # Each message is seen: every agent has noise of its own.
            assert len(set(release.shares)) == 5
            np.testing.assert_allclose(found, epsilons, rtol=0.01)
        else:
            assert len(set(release.shares)) == 1


def test_one_noise_for_all_is_that_of_the_largest_agent():
    sizes = [3, 7, 20, 30, 40, 100]
    plan, release = planned(sizes=sizes, privacy_unit="agent")
    assert np.ptp(release.shares) == 0
    found = np.array([g.epsilon(1e-6) for g in plan.guarantees("eavesdropper")])
    limits = unit_limits(plan.facts)
    assert found[limits == limits.max()] == pytest.approx(1.0, rel=0.01)
    assert np.all(np.diff(found[np.argsort(limits)]) >= 0)


def test_noise_of_the_sum_grows_with_the_coalition_and_not_with_the_agents():
    noise = [planned(coalition=c)[1].noise_std for c in range(1, 6)]
    ratio = np.array(noise) / noise[0]
    np.testing.assert_allclose(ratio, np.sqrt(5 / np.array([5, 4, 3, 2, 1])), rtol=1e-5)
    one = planned(n_samples=1000, n_agents=10)[1].noise_std
    many = planned(n_samples=1000, n_agents=1000)[1].noise_std
    # All but one: 10 / 9 and 1000 / 999.
    assert one / many == pytest.approx(math.sqrt(10 / 9 * 999 / 1000), rel=1e-4)


def test_the_noise_of_all_is_on_grids_that_fit_each_other():
    release = planned(epsilon=[0.01, 100.0] + [1.0] * 4, coalition=5, n_curators=5)[1]
    cells = np.array([grid_cell(s) for s in release.shares])
    assert release.cell == cells.min()
    assert min(release.shares) >= FEWEST_CELLS * cells.max()
    assert min(release.shares) / release.cell >= 2**20
    with pytest.raises(ValueError, match=r"^Got noise of agents from .* to .*, expected a ratio"):
        planned(
            epsilon=[1e-6, 1e3] + [1.0] * 4, coalition=5, n_curators=5, max_iter=1, modulus=2**64
        )


def test_the_coarsest_grid_is_fine_enough_for_the_theorem_on_sums():
    # The relative error of the theorem, in its logarithm, beside what no float can tell.
    assert math.log(2.0) - (math.pi * FEWEST_CELLS) ** 2 < -10_000
    for ratio, fits in ((0.9, True), (1.1, False)):
        largest = ratio / (FEWEST_CELLS * 2.0**-20)
        shares = np.array([1.0, 2.0 ** math.floor(math.log2(largest)) if fits else 2 * largest])
        if fits:
            _check_grids(shares)
        else:
            with pytest.raises(ValueError, match="expected a ratio"):
                _check_grids(shares)


def test_noise_that_a_modulus_does_not_hold_is_next_to_impossible():
    # The chance of a Gaussian number beyond it, in logarithms; each draw of every fit together.
    assert norm.logsf(LONGEST_NOISE) < -800


def test_a_budget_below_what_the_grid_costs_is_refused():
    with pytest.raises(ValueError, match=r"^Got epsilon=1e-09 for 7 sums, expected more: noise on"):
        planned(epsilon=1e-9, delta=1e-9)


def test_four_squared_cells_are_taken_off_for_every_agent():
    assert pytest.approx(1 - 4 * 2.0**-40, rel=1e-15) == CERTAIN**2
    for scale in (1.0, 1.5, 1.999, 2.0, 1e-9, 3e11):
        assert (CERTAIN * scale) ** 2 <= scale**2 - 4 * grid_cell(scale) ** 2 * (1 - 1e-12)


# Moduli.


@pytest.mark.parametrize("n_agents", [3, 4, 7])
@pytest.mark.parametrize("cell", [1.0, 0.25])
def test_the_needed_modulus_is_enough_for_messages_as_long_as_can_be(n_agents, cell):
    longest = np.random.default_rng(n_agents).uniform(1, 50, n_agents)
    modulus = needed_modulus(cell, longest)
    for sign in (1, -1):
        cells = sign * np.ceil(longest / cell).astype(np.int64)
        total = share_and_sum(residues_of(cells, modulus), 3, modulus)
        assert int(centred(total, modulus)) == cells.sum()
        # With half of it they wrap around.
        small = modulus // 2
        total = share_and_sum(residues_of(cells, small), 3, small)
        assert int(centred(total, small)) != cells.sum()


def test_a_modulus_is_enough_up_to_the_last_integer():
    for modulus in (101, 2**16, 2**64):
        top = (modulus - 1) // 2
        for numbers in ([top], [-top], [top - 5, 5], [-top + 5, -5]):
            secrets = np.array(numbers, dtype=np.int64)
            total = share_and_sum(residues_of(secrets, modulus), 2, modulus)
            assert int(centred(total, modulus)) == sum(numbers)
        if modulus < 2**64:
            secrets = np.array([top, 1], dtype=np.int64)
            total = share_and_sum(residues_of(secrets, modulus), 2, modulus)
            assert int(centred(total, modulus)) < 0 or modulus % 2 == 0


KINDS = {
    "equal": {},
    # All of one kind, the first of them the smallest.
    "records of unequal agents": {"sizes": [1, 5, 100_000]},
    "unequal agents": {"sizes": [1, 5, 100_000], "privacy_unit": "agent"},
    "a federation": {"cls": DPFedRidge, "sizes": [2, 3, 50_000], "n_honest": 2},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_modulus_that_is_too_small_is_refused_with_the_size_that_is_needed(kind):
    with pytest.raises(ValueError, match=r"^Got modulus=97, expected at least \d+ \(2\*\*") as info:
        planned(modulus=97, **KINDS[kind])
    needed, power = map(int, re.search(r"least (\d+) \(2\*\*(\d+) will", str(info.value)).groups())
    assert 2 ** (power - 1) <= needed <= 2**power
    for modulus in (needed, 2**power):
        plan, release = planned(modulus=modulus, **KINDS[kind])
        assert release.modulus == modulus
    with pytest.raises(ValueError, match=f"^Got modulus={needed - 1}, expected at least {needed}"):
        planned(modulus=needed - 1, **KINDS[kind])
    # All that can be said, of every agent at once, with the longest noise.
    agents = plan.facts.agents
    said = unit_limits(plan.facts)[agents.kind]
    said = said if plan.facts.unit == "agent" else np.array(agents.agent_sizes)
    total = np.sum(said + LONGEST_NOISE * np.asarray(release.shares)[agents.kind])
    assert total / release.cell < needed / 2
    assert total / release.cell > needed / 2 * (1 - 1e-5)


def test_noise_too_little_for_whole_numbers_is_refused():
    with pytest.raises(ValueError, match=r"^Got messages of up to .* cells of the grid"):
        planned(n_samples=6 * 10**11, epsilon=1e8, max_iter=1)


def test_what_is_released_says_how():
    plan, release = planned(n_curators=3)
    assert isinstance(release, SharedSum)
    assert (release.modulus, release.n_curators, release.fewest) == (2**64, 3, 6)
    assert release.times == 7
    assert release.noise_std == pytest.approx(math.sqrt(6) * release.shares[0])
    assert plan.to_dict()["releases"][-1]["modulus"] == 2**64
    assert plan.digest() != planned(n_curators=4)[0].digest()
    assert plan.digest() != planned(n_curators=3, modulus=2**63)[0].digest()
