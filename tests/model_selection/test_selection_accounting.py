"""The best of a random number of trials: against brute force, and against the papers' formulas."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from skdpadmm.privacy import (
    GaussianDP,
    LaplaceDP,
    Mixture,
    NegativeBinomialTrials,
    NonPrivate,
    PerturbedObjectiveDP,
    PoissonTrials,
    RenyiDP,
    Worst,
    any_of,
    best_of_trials,
    calibrate_trial,
    compose,
    renyi_divergences,
    worst,
)

ORDERS = (1.05, 1.3, 2.0, 3.0, 5.0, 10.0, 30.0)
LAWS = [PoissonTrials(0.3), PoissonTrials(12.0), NegativeBinomialTrials(1.0, 0.05),
        NegativeBinomialTrials(0.0, 0.1), NegativeBinomialTrials(-0.5, 0.01),
        NegativeBinomialTrials(3.0, 0.2)]  # fmt: skip
NAMES = [law.describe() for law in LAWS]


def probabilities(law, tail=1e-14):
    """Of 1, 2, ... trials, until hardly anything is left."""
    found, reached = [], 0.0
    while reached < 1 - tail and len(found) < 200_000:
        found.append(law.probability(len(found) + 1))
        reached += found[-1]
    return np.array(found)


def best_of(output, law):
    """Law of the largest of K independent outputs, summed over K: no generating function.

    ``c_i^k - c_(i-1)^k`` is ``c_i^k`` times one minus a power of ``1 - p_i / c_i``, so that small
    probabilities keep their digits.
    """
    below = np.cumsum(output)
    output, below = output / below[-1], np.minimum(below / below[-1], 1.0)
    logs = np.log(below)
    with np.errstate(divide="ignore"):
        shrunk = np.log1p(-np.minimum(output / below, 1.0))
    shrunk[0] = -np.inf
    best = np.zeros(len(output))
    for k, weight in enumerate(probabilities(law), start=1):
        best += weight * np.exp(k * logs) * -np.expm1(k * shrunk)
    return best


def binned(mu, n_bins=1_200):
    """Probabilities of bins under N(0, 1) and N(mu, 1), with all their digits."""
    edges = np.linspace(-7, 7 + mu, n_bins - 1)
    found = []
    for shift in (0.0, mu):
        low = np.concatenate([[0.0], ndtr(edges - shift), [1.0]])
        high = np.concatenate([[1.0], ndtr(shift - edges), [0.0]])
        found.append(np.where(low[1:] < 0.5, np.diff(low), -np.diff(high)))
    return found


def divergence(p, q, order):
    with np.errstate(divide="ignore"):
        logs = order * np.log(p) + (1 - order) * np.log(q)
    top = logs.max()
    return max(0.0, float(top + math.log(np.exp(logs - top).sum())) / (order - 1))


def renyi_of_pair(p, q):
    both = tuple(max(divergence(p, q, a), divergence(q, p, a)) for a in ORDERS)
    return RenyiDP(ORDERS, both)


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_laws_sum_to_one_have_their_mean_and_are_sampled_by_inversion(law):
    weights = probabilities(law)
    assert weights.sum() == pytest.approx(1.0, abs=1e-9)
    assert (weights * np.arange(1, len(weights) + 1)).sum() == pytest.approx(law.mean, rel=1e-6)
    drawn = np.array([law.sample(u) for u in (np.arange(20_000) + 0.5) / 20_000])
    for n in (1, 2, 3, 5):
        assert np.mean(drawn == n) == pytest.approx(law.probability(n), abs=2e-4)
    assert law.sample(0.0) == 1
    assert law.sample(1 - 2.0**-53) >= drawn.max()


def require_bound(p, q, law, bound):
    """The best of trials with these laws of outputs is no farther apart than the bound says."""
    best_p, best_q = best_of(p, law), best_of(q, law)
    for order, claimed in zip(bound.orders, bound.divergences, strict=True):
        exact = max(divergence(best_p, best_q, order), divergence(best_q, best_p, order))
        assert exact <= claimed + 1e-9


@given(
    rows=st.lists(st.tuples(st.floats(0.02, 1), st.floats(0.02, 1)), min_size=2, max_size=6),
    law=st.sampled_from(LAWS),
)
def test_no_pair_of_discrete_trials_exceeds_the_bound(rows, law):
    # Outputs in any order of their scores, with any two laws.
    p, q = (np.array(column) / sum(column) for column in zip(*rows, strict=True))
    require_bound(p, q, law, best_of_trials(renyi_of_pair(p, q), law))


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_no_pure_and_no_gaussian_trial_exceeds_the_bound(law):
    for epsilon in (0.1, 3.0):
        bound = best_of_trials(LaplaceDP(epsilon), law, ORDERS)
        small = 0.5 * math.exp(-epsilon / 2)  # of an answer by the sign of a release
        # Scores reveal the answer, or hide it behind one that anybody can have.
        for p in ([small, 1 - small], [0.5, 0.5 * small, 0.5 * (1 - small)], [1 - small, small]):
            require_bound(np.array(p), np.array([*p[:-2], p[-1], p[-2]]), law, bound)
    # A binned Gaussian is at most as far apart as the Gaussian. Orders of scores: by the output,
    # against it, by its distance from the middle, and by chance.
    for mu in (0.05, 3.0):
        p, q = binned(mu, 300)
        bound, cells = best_of_trials(GaussianDP(mu), law, ORDERS), np.arange(len(p))
        middle = np.argsort(np.abs(cells - len(p) / 2))
        for by in (cells, cells[::-1], middle, np.random.default_rng(0).permutation(cells)):
            require_bound(p[by], q[by], law, bound)


@pytest.mark.parametrize(("eta", "gamma"), [(1.0, 0.1), (0.0, 0.01), (-0.5, 0.001)])
def test_the_bound_is_theorem_2_for_renyi_trials(eta, gamma):
    law, curve = NegativeBinomialTrials(eta, gamma), {a: 0.1 * a + 0.01 for a in ORDERS}
    bound = best_of_trials(RenyiDP(ORDERS, tuple(curve.values())), law)
    printed = [(1 - 1 / b) * curve[b] + math.log(1 / gamma) / b for b in ORDERS]
    least = min([*printed, math.log(1 / gamma)])
    for order, claimed in zip(ORDERS, bound.divergences, strict=True):
        expected = curve[order] + (1 + eta) * least + math.log(law.mean) / (order - 1)
        assert claimed == pytest.approx(expected, rel=1e-8)


def test_the_bound_is_theorem_6_for_many_poisson_trials_and_never_below_one_trial():
    law, trial, order = PoissonTrials(40.0), GaussianDP(0.1), 8.0
    missing = trial.delta(math.log(1 + 1 / (order - 1)))
    expected = 0.5 * order * 0.01 + 40.0 * missing + math.log(40.0) / (order - 1)
    claimed = best_of_trials(trial, law, (order,)).divergences[0]
    assert claimed == pytest.approx(expected, rel=1e-7)
    # Theorem 6 alone, without the case that no trial is drawn, would be negative here.
    few = best_of_trials(GaussianDP(0.3), PoissonTrials(0.05), ORDERS).divergences
    one = renyi_divergences(GaussianDP(0.3), ORDERS).divergences
    assert all(b >= a for a, b in zip(one, few, strict=True))


def test_divergences_of_kinds_of_trials():
    x, step = np.linspace(-40, 40, 800_001, retstep=True)
    integral = (0.5 * np.exp(-2 * np.abs(x) + np.abs(x - 1.5))).sum() * step
    mixture = Mixture((0.5, 0.5), (GaussianDP(0.0), GaussianDP(1.0)))
    of_mixture = math.log(0.5 + 0.5 * math.exp(1.0))
    for kind, expected in (
        (GaussianDP(2.0), 4.0),
        (compose(*[LaplaceDP(1.5)] * 3), 3 * math.log(integral)),
        (compose(GaussianDP(2.0), LaplaceDP(1.5)), 4.0 + math.log(integral)),
        (mixture, of_mixture),
        (Worst((mixture, GaussianDP(0.5))), of_mixture),
    ):
        assert renyi_divergences(kind, (2.0,)).divergences[0] == pytest.approx(expected, rel=1e-6)


def exact_delta_of_two_kinds(mu, response_epsilon, law, epsilon):
    """A trial is a Gaussian or a response, by equal chances; responses score below or above."""
    edges = np.concatenate([[-60.0], np.linspace(-9.0, 9.0, 1201), [60.0]])
    one, other = (np.diff(ndtr(edges - mean))[::-1] for mean in (0.0, mu))
    p, deltas = 1.0 / (1.0 + math.exp(-response_epsilon)), []
    for q in (p, 1.0 - p):
        pair = []
        for gaussian, answer in ((one, q), (other, 1.0 - q)):
            trial = np.concatenate([[0.0, answer], gaussian, [1.0 - answer]]) / 2
            below = np.minimum(np.cumsum(trial), 1.0)
            pair.append(np.diff(law.gamma * below / (1.0 - (1.0 - law.gamma) * below)))
        for a, b in (pair, pair[::-1]):
            deltas.append(np.maximum(a - math.exp(epsilon) * b, 0.0).sum())
    return max(deltas)


def test_the_best_of_trials_of_several_kinds_costs_what_any_of_them_may():
    kinds, law, delta = (GaussianDP(0.8), LaplaceDP(2.0)), LAWS[2].of_mean(1.0, 100.0), 1e-8
    epsilon = best_of_trials(any_of(*kinds), law).epsilon(delta)
    assert exact_delta_of_two_kinds(0.8, 2.0, law, epsilon) <= delta
    # Case by case, as though all trials were of one kind: no bound.
    epsilon = best_of_trials(worst(*kinds), law).epsilon(delta)
    assert exact_delta_of_two_kinds(0.8, 2.0, law, epsilon) > 2.0 * delta


def test_kinds_that_imply_each_other_stay_as_they_are():
    cases = worst(GaussianDP(0.8), LaplaceDP(2.0))
    assert any_of(cases, cases) is cases
    assert any_of(GaussianDP(0.2), GaussianDP(0.8)) == GaussianDP(0.8)
    # What may be one case for one pair, and another one for the next, is drawn with another kind.
    assert any_of(cases, GaussianDP(0.8)) == renyi_divergences(cases)
    together = best_of_trials(cases, LAWS[3], ORDERS).divergences
    alone = [best_of_trials(case, LAWS[3], ORDERS).divergences for case in cases.components]
    assert together == tuple(np.max(alone, axis=0).tolist())


@pytest.mark.parametrize(
    ("eta", "beside"), [(None, GaussianDP(0.01)), (0.0, GaussianDP(0.01)), (1.0, None)]
)
def test_a_calibrated_trial_meets_the_budget_and_uses_it(eta, beside):
    for epsilon in (0.1, 8.0):
        found = []
        for mean in (1.5, 100.0):
            kind = NegativeBinomialTrials
            law = PoissonTrials.of_mean(mean) if eta is None else kind.of_mean(eta, mean)
            trial = calibrate_trial(law, epsilon, 1e-6, beside)
            total = best_of_trials(trial, law)
            total = total if beside is None else compose(total, beside)
            assert 0.999 * epsilon < total.epsilon(1e-6) <= epsilon
            found.append(trial.mu)
        # More trials leave less for each.
        assert found == sorted(found, reverse=True)


def test_what_has_no_bound_and_no_budget_is_refused():
    law, kind = PoissonTrials.of_mean(6.0), NegativeBinomialTrials
    assert best_of_trials(NonPrivate(), law) == NonPrivate()
    with pytest.raises(TypeError, match="Renyi divergences are known"):
        best_of_trials(PerturbedObjectiveDP(0.1, 0.01, "replace_one"), law)
    with pytest.raises(ValueError, match="Ask for fewer trials, or for a larger budget"):
        calibrate_trial(law, 0.5, 1e-6, GaussianDP(1.0))
    for make, *bad in (
        (PoissonTrials, 0.0), (PoissonTrials.of_mean, 1.0), (kind, -1.0, 0.5), (kind, 1.0, 1.0),
        (kind.of_mean, 0.0, math.inf), (law.sample, 1.0),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"Got (rate|mean|eta|gamma|uniform)"):
            make(*bad)
