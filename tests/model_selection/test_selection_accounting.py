"""The best of a random number of trials: against brute force, and against the papers' formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from skdpadmm.privacy import (
    Composed,
    GaussianDP,
    LaplaceDP,
    Mixture,
    NegativeBinomialTrials,
    NonPrivate,
    PerturbedObjectiveDP,
    PoissonTrials,
    RandomizedResponseDP,
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
LAWS = [
    PoissonTrials(0.3),
    PoissonTrials(3.0),
    PoissonTrials(12.0),
    NegativeBinomialTrials(1.0, 0.5),
    NegativeBinomialTrials(1.0, 0.05),
    NegativeBinomialTrials(0.0, 0.1),
    NegativeBinomialTrials(-0.5, 0.01),
    NegativeBinomialTrials(3.0, 0.2),
]
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
def test_probabilities_sum_to_one_and_have_the_planned_mean(law):
    weights = probabilities(law)
    assert weights.sum() == pytest.approx(1.0, abs=1e-9)
    assert (weights * np.arange(1, len(weights) + 1)).sum() == pytest.approx(law.mean, rel=1e-6)


@pytest.mark.parametrize("mean", [1.01, 2.0, 7.5, 64.0, 1e4])
def test_laws_of_a_mean_have_that_mean(mean):
    laws = [PoissonTrials.of_mean(mean)]
    laws += [NegativeBinomialTrials.of_mean(eta, mean) for eta in (-0.5, 0.0, 1.0, 2.0)]
    for law in laws:
        assert law.mean == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_samples_follow_the_law(law):
    uniform = (np.arange(20_000) + 0.5) / 20_000
    drawn = np.array([law.sample(u) for u in uniform])
    for n in (1, 2, 3, 5):
        assert np.mean(drawn == n) == pytest.approx(law.probability(n), abs=2e-4)
    assert law.sample(0.0) == 1
    assert law.sample(1 - 2.0**-53) >= drawn.max()


@given(
    rows=st.lists(st.tuples(st.floats(0.02, 1), st.floats(0.02, 1)), min_size=2, max_size=6),
    which=st.integers(0, len(LAWS) - 1),
)
def test_no_pair_of_discrete_trials_exceeds_the_bound(rows, which):
    # Outputs in any order of their scores, with any two laws.
    law = LAWS[which]
    p, q = (np.array(column) / sum(column) for column in zip(*rows, strict=True))
    trial = renyi_of_pair(p, q)
    bound = best_of_trials(trial, law)
    best_p, best_q = best_of(p, law), best_of(q, law)
    for order, claimed in zip(bound.orders, bound.divergences, strict=True):
        exact = max(divergence(best_p, best_q, order), divergence(best_q, best_p, order))
        assert exact <= claimed + 1e-9


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_no_pure_trial_exceeds_the_bound(law, epsilon):
    # Scores reveal the answer, or hide it behind one that anybody can have.
    small = 1 / (1 + math.exp(epsilon))
    for p in ([small, 1 - small], [0.5, 0.5 * small, 0.5 * (1 - small)], [1 - small, small]):
        p, bound = np.array(p), best_of_trials(RandomizedResponseDP(epsilon), law, ORDERS)
        q = np.array([*p[:-2], p[-1], p[-2]])
        for order, claimed in zip(ORDERS, bound.divergences, strict=True):
            exact = divergence(best_of(p, law), best_of(q, law), order)
            assert exact <= claimed + 1e-9


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 3.0])
def test_no_gaussian_trial_exceeds_the_bound(law, mu):
    # A binned Gaussian is at most as far apart as the Gaussian. Orders of scores: by the output,
    # against it, by its distance from the middle, and by chance.
    p, q = binned(mu)
    middle = np.argsort(np.abs(np.arange(len(p)) - len(p) / 2))
    orders = [np.arange(len(p)), np.arange(len(p))[::-1], middle, middle[::-1]]
    orders.append(np.random.default_rng(0).permutation(len(p)))
    bound = best_of_trials(GaussianDP(mu), law, ORDERS)
    for by in orders:
        best_p, best_q = best_of(p[by], law), best_of(q[by], law)
        for order, claimed in zip(ORDERS, bound.divergences, strict=True):
            for a, b in ((best_p, best_q), (best_q, best_p)):
                assert divergence(a, b, order) <= claimed + 1e-9


def test_the_gaussian_bound_is_nearly_attained():
    # The score is the output: the order that reveals most.
    law, mu, order = NegativeBinomialTrials(1.0, 0.1), 1.0, 3.0
    p, q = binned(mu)
    exact = max(
        divergence(best_of(a, law), best_of(b, law), order)
        for a, b in ((p[::-1], q[::-1]), (p, q), (q, p), (q[::-1], p[::-1]))
    )
    claimed = best_of_trials(GaussianDP(mu), law, (order,)).divergences[0]
    assert 0.35 * claimed < exact <= claimed


@pytest.mark.parametrize("eta", [0.0, 1.0, 3.0])
def test_what_selection_adds_to_a_gaussian_trial_is_what_some_score_does(eta):
    # Best is what the neighbour makes likelier, next what the divergence of a trial is made of:
    # far on the other side. Where the two meet is tried out.
    law, mu, order = NegativeBinomialTrials.of_mean(eta, 10.0), 1.0, 5.0
    p, q = binned(mu)
    cells, exact = np.arange(len(p)), 0.0
    for cut in range(600, 900, 30):
        by = np.concatenate([cells[:cut][::-1], cells[cut:]])
        exact = max(exact, divergence(best_of(p[by], law), best_of(q[by], law), order))
    claimed = best_of_trials(GaussianDP(mu), law, (order,)).divergences[0]
    trial = 0.5 * order * mu**2
    assert 0.9 * (claimed - trial) < exact - trial <= claimed - trial


@pytest.mark.parametrize(("eta", "gamma"), [(1.0, 0.1), (0.0, 0.01), (-0.5, 0.001), (2.0, 0.3)])
def test_the_bound_is_theorem_2_for_renyi_trials(eta, gamma):
    law = NegativeBinomialTrials(eta, gamma)
    curve = {a: 0.1 * a + 0.01 for a in ORDERS}
    bound = best_of_trials(RenyiDP(ORDERS, tuple(curve.values())), law)
    printed = [(1 - 1 / b) * curve[b] + math.log(1 / gamma) / b for b in ORDERS]
    least = min([*printed, math.log(1 / gamma)])
    for order, claimed in zip(ORDERS, bound.divergences, strict=True):
        expected = curve[order] + (1 + eta) * least + math.log(law.mean) / (order - 1)
        assert claimed == pytest.approx(expected, rel=1e-8)


def test_the_bound_is_theorem_6_for_many_poisson_trials():
    law, trial, order = PoissonTrials(40.0), GaussianDP(0.1), 8.0
    missing = trial.delta(math.log(1 + 1 / (order - 1)))
    expected = 0.5 * order * 0.01 + 40.0 * missing + math.log(40.0) / (order - 1)
    claimed = best_of_trials(trial, law, (order,)).divergences[0]
    assert claimed == pytest.approx(expected, rel=1e-7)


def test_few_poisson_trials_do_not_cost_less_than_one():
    # Theorem 6 alone, without the case that no trial is drawn, would be negative here.
    bound = best_of_trials(GaussianDP(0.3), PoissonTrials(0.05), (2.0, 4.0, 8.0))
    one = renyi_divergences(GaussianDP(0.3), (2.0, 4.0, 8.0))
    assert all(b >= a for a, b in zip(one.divergences, bound.divergences, strict=True))


@pytest.mark.parametrize("eta", [-0.5, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("mu", [1e-6, 0.01, 0.2, 2.0, 20.0])
def test_a_gaussian_trial_costs_at_most_what_its_divergences_do(eta, mu):
    law = NegativeBinomialTrials.of_mean(eta, 10.0)
    exact = best_of_trials(GaussianDP(mu), law)
    general = best_of_trials(renyi_divergences(GaussianDP(mu)), law)
    pairs = zip(exact.divergences, general.divergences, strict=True)
    assert all(a <= b * (1 + 1e-9) + 1e-12 for a, b in pairs)


def test_divergences_of_kinds_of_trials():
    orders = (2.0, 5.0)
    assert renyi_divergences(GaussianDP(2.0), orders).divergences == (4.0, 10.0)
    # Integrals of densities on a grid, order 2.
    x = np.linspace(-40, 40, 800_001)
    step = x[1] - x[0]
    integral = (0.5 * np.exp(-2 * np.abs(x) + np.abs(x - 1.5))).sum() * step
    laplace = renyi_divergences(LaplaceDP((1.5,), (3,)), (2.0,)).divergences[0]
    assert laplace == pytest.approx(3 * math.log(integral), rel=1e-6)
    p = 1 / (1 + math.exp(-1.0))
    response = renyi_divergences(RandomizedResponseDP(1.0, 2), (2.0,)).divergences[0]
    assert response == pytest.approx(math.log(p**2 / (1 - p) + (1 - p) ** 2 / p))
    both = Composed((GaussianDP(1.0), LaplaceDP((0.5,))))
    parts = [renyi_divergences(part, orders).divergences for part in both.parts]
    assert renyi_divergences(both, orders).divergences == pytest.approx(np.sum(parts, axis=0))
    mixture = Mixture((0.5, 0.5), (GaussianDP(0.0), GaussianDP(1.0)))
    expected = math.log(0.5 + 0.5 * math.exp(1.0))
    assert renyi_divergences(mixture, (2.0,)).divergences[0] == pytest.approx(expected)
    of_worst = renyi_divergences(Worst((mixture, GaussianDP(0.5))), orders).divergences
    assert of_worst[1] == renyi_divergences(mixture, orders).divergences[1]


def best_of_two_kinds(gaussian, response, law):
    """Cells of the best trial's answer; a trial is a Gaussian or a response by equal chances.

    A response scores below or above all Gaussian answers.
    """
    trial = np.concatenate([[response], gaussian[::-1], [1.0 - response]]) / 2
    below = np.minimum(np.cumsum(np.concatenate([[0.0], trial])), 1.0)
    return np.diff(law.gamma * below / (1.0 - (1.0 - law.gamma) * below))


def exact_delta_of_two_kinds(mu, response_epsilon, law, epsilon):
    edges = np.concatenate([[-60.0], np.linspace(-9.0, 9.0, 1201), [60.0]])
    one, other = (np.diff(ndtr(edges - mean)) for mean in (0.0, mu))
    p = 1.0 / (1.0 + math.exp(-response_epsilon))
    pairs = [
        [best_of_two_kinds(one, q, law), best_of_two_kinds(other, 1.0 - q, law)]
        for q in (p, 1.0 - p)
    ]
    return max(
        np.maximum(a - math.exp(epsilon) * b, 0.0).sum()
        for pair in pairs
        for a, b in (pair, pair[::-1])
    )


@pytest.mark.parametrize("delta", [1e-5, 1e-7, 1e-8, 1e-10])
def test_the_best_of_trials_of_several_kinds_costs_what_any_of_them_may(delta):
    kinds = (GaussianDP(0.8), LaplaceDP((2.0,)))
    law = NegativeBinomialTrials.of_mean(1.0, 100.0)
    epsilon = best_of_trials(any_of(*kinds), law).epsilon(delta)
    assert exact_delta_of_two_kinds(0.8, 2.0, law, epsilon) <= delta
    if delta < 1e-6:
        # Case by case, as though all trials were of one kind: no bound.
        epsilon = best_of_trials(worst(*kinds), law).epsilon(delta)
        assert exact_delta_of_two_kinds(0.8, 2.0, law, epsilon) > 2.0 * delta


def test_kinds_that_imply_each_other_stay_as_they_are():
    cases = worst(GaussianDP(0.8), LaplaceDP((2.0,)))
    assert any_of(cases, cases) is cases
    assert any_of(GaussianDP(0.2), GaussianDP(0.8)) == GaussianDP(0.8)
    # What may be one case for one pair, and another one for the next, is drawn with another kind.
    assert any_of(cases, GaussianDP(0.8)) == renyi_divergences(cases)


def test_the_best_of_several_cases_is_the_worst_of_their_bests():
    law = NegativeBinomialTrials(1.0, 0.2)
    cases = (GaussianDP(0.5), LaplaceDP((0.4,)))
    together = best_of_trials(Worst(cases), law, ORDERS).divergences
    alone = [best_of_trials(case, law, ORDERS).divergences for case in cases]
    assert together == tuple(np.max(alone, axis=0).tolist())


def test_what_is_not_private_stays_so_and_what_is_unknown_is_refused():
    law = PoissonTrials(2.0)
    assert best_of_trials(NonPrivate(), law) == NonPrivate()
    objective = PerturbedObjectiveDP(0.1, 0.01, "replace_one")
    with pytest.raises(TypeError, match="Renyi divergences are known"):
        best_of_trials(objective, law)


@pytest.mark.parametrize("name", ["geometric", "logarithmic", "poisson"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("beside", [None, GaussianDP(0.01)])
def test_a_calibrated_trial_meets_the_budget_and_uses_it(name, epsilon, beside):
    law = {
        "geometric": NegativeBinomialTrials.of_mean(1.0, 6.0),
        "logarithmic": NegativeBinomialTrials.of_mean(0.0, 6.0),
        "poisson": PoissonTrials.of_mean(6.0),
    }[name]
    trial = calibrate_trial(law, epsilon, 1e-6, beside)
    total = best_of_trials(trial, law)
    if beside is not None:
        total = compose(total, beside)
    assert 0.999 * epsilon < total.epsilon(1e-6) <= epsilon
    assert trial.epsilon(1e-6) < epsilon


def test_a_budget_that_the_last_fit_uses_up_leaves_no_trial():
    law = PoissonTrials.of_mean(6.0)
    with pytest.raises(ValueError, match="Ask for fewer trials, or for a larger budget"):
        calibrate_trial(law, 0.5, 1e-6, GaussianDP(1.0))


def test_more_trials_leave_less_for_each():
    found = [
        calibrate_trial(NegativeBinomialTrials.of_mean(1.0, mean), 1.0, 1e-6).mu
        for mean in (1.5, 3.0, 10.0, 100.0)
    ]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PoissonTrials(0.0), "rate"),
        (lambda: PoissonTrials.of_mean(1.0), "mean"),
        (lambda: NegativeBinomialTrials(-1.0, 0.5), "eta"),
        (lambda: NegativeBinomialTrials(1.0, 1.0), "gamma"),
        (lambda: NegativeBinomialTrials.of_mean(0.0, math.inf), "mean"),
        (lambda: PoissonTrials(1.0).sample(1.0), "uniform"),
    ],
)
def test_what_is_no_law_is_refused(make, message):
    with pytest.raises(ValueError, match=f"Got {message}"):
        make()
