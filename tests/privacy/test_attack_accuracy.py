"""What epsilon means: how often the best attack is right, and which errors it has to make."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import laplace, norm

from skdpadmm import privacy
from skdpadmm.privacy import GaussianDP, LaplaceDP, Mixture, NonPrivate, Worst, gaussian_mu

RATES = np.linspace(0.0, 1.0, 41)
PRIORS = [0.5, 0.3, 0.9]
GRID = np.linspace(-30.0, 30.0, 600_001)
MIXTURE = Mixture((0.25, 0.75), (GaussianDP(2.0), LaplaceDP(1.0)))
# Probabilities of cells of what is released under two neighbouring data sets; of a mixture the
# label is released too.
PAIRS = {"gaussian": (norm, 2.0), "laplace": (laplace, 1.0)}


def cells(law, shift):
    return np.diff(law.cdf(GRID)), np.diff(law.cdf(GRID - shift))


def pairs_of(guarantee):
    if guarantee is not MIXTURE:
        return cells(*PAIRS[guarantee.kind])
    parts = [cells(*PAIRS[kind]) for kind in ("gaussian", "laplace")]
    return [np.concatenate([0.25 * a, 0.75 * b]) for a, b in zip(*parts, strict=True)]


@pytest.mark.parametrize("guarantee", [GaussianDP(2.0), LaplaceDP(1.0), MIXTURE])
def test_the_best_attack_by_brute_force_is_as_good_as_the_bound_and_no_better(guarantee):
    p, q = pairs_of(guarantee)
    for prior in PRIORS:
        best = np.maximum((1 - prior) * p, prior * q).sum()
        assert guarantee.attack_accuracy(prior) == pytest.approx(best, abs=1e-4)
    # Neyman and Pearson: reject where the ratio is largest.
    order = np.argsort(-q / np.maximum(p, 1e-300), kind="stable")
    rates, powers = np.cumsum(p[order]), np.cumsum(q[order])
    least = 1.0 - np.interp(RATES, np.append(0.0, rates), np.append(0.0, powers))
    assert_allclose(guarantee.trade_off(RATES), least, atol=2e-3)
    assert (guarantee.trade_off(RATES) <= least + 1e-4).all()


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_best_attack_on_gaussian_noise_is_a_threshold_half_way(epsilon):
    mu = gaussian_mu(epsilon, 1e-5)
    assert GaussianDP(mu).attack_accuracy() == pytest.approx(norm.cdf(mu / 2), rel=1e-12)


@pytest.mark.parametrize("mu", [0.0, 0.3, 2.0, 20.0])
def test_the_dual_of_the_curve_is_the_closed_form_of_gaussian_noise(mu):
    closed = GaussianDP(mu).trade_off(RATES)
    dual = privacy.Guarantee.trade_off(GaussianDP(mu), RATES)
    assert_allclose(dual, closed, atol=2e-4)
    assert (dual <= closed + 1e-12).all()
    assert closed.min() + RATES.min() == 0.0


def test_the_limits_are_a_guess_and_certainty():
    assert (NonPrivate().attack_accuracy(), NonPrivate().trade_off(RATES).max()) == (1.0, 0.0)
    assert_allclose(GaussianDP(0.0).trade_off(RATES), 1 - RATES)
    for prior in (0.0, 1e-320, 0.2, 0.5, 1.0):
        assert GaussianDP(0.0).attack_accuracy(prior) == pytest.approx(max(prior, 1 - prior))
    worst = Worst((GaussianDP(0.5), LaplaceDP(1.0)))
    assert worst.attack_accuracy() == LaplaceDP(1.0).attack_accuracy()
    for call in (lambda: worst.attack_accuracy(1.1), lambda: worst.trade_off([-0.1])):
        with pytest.raises(ValueError, match=r"Got .*, expected .*\[0, 1\]"):
            call()


def test_of_a_curve_known_from_above_the_accuracy_uses_every_epsilon():
    pytest.importorskip("dp_accounting")
    renyi = privacy.renyi_divergences(GaussianDP(0.25))
    accuracy = renyi.attack_accuracy()
    assert GaussianDP(0.25).attack_accuracy() < accuracy < 0.5 + 0.5 * renyi.delta(0.0)
    # The errors of the best attack at equal odds are those of its trade-off function.
    sums = (RATES + renyi.trade_off(RATES)).min()
    assert accuracy == pytest.approx(1 - sums / 2, abs=2e-3)
