"""Three kinds of totals against analysts who decide by results: optimal stopping, and replay."""

import math

import numpy as np
import pytest
from scipy.signal import fftconvolve

from skdpadmm.ledger import PrivacyLedger
from skdpadmm.privacy import (
    GaussianDP,
    LaplaceDP,
    PoissonSubsampledGaussian,
    RenyiDP,
    gaussian_mu,
)
from skdpadmm.privacy._odometer import Spent
from tests.ledger.conftest import entry_of

DELTA = 1e-5


def odometer(mu, delta=DELTA):
    return Spent.of({GaussianDP(mu): 1}).odometer_epsilon(delta)


def stopped_delta(least, most, claim, per_octave=16):
    """The largest E (1 - exp(claim - L))^+ over rules that stop between two totals."""
    n = math.ceil(2 * per_octave * math.log2(most / least))
    clock = np.geomspace(least**2, most**2, n + 1)
    x = np.linspace(-6 * most, 9 * most + most**2, 4000)
    step = x[1] - x[0]

    def gain(m):
        return np.maximum(-np.expm1(np.minimum(claim(math.sqrt(m)) - x, 0.0)), 0.0)

    value = gain(clock[-1])
    for now, dt in zip(clock[-2::-1], np.diff(clock)[::-1], strict=True):
        half = math.ceil((8 * math.sqrt(dt) + dt) / step)
        kernel = np.exp(-((np.arange(-half, half + 1) * step - dt / 2) ** 2) / (2 * dt))
        padded = np.pad(value, half, mode="edge")
        later = fftconvolve(padded, kernel[::-1] / kernel.sum(), mode="valid")
        value = np.maximum(gain(now), later.clip(0.0, 1.0))
    start = np.exp(-((x - clock[0] / 2) ** 2) / (2 * clock[0]))
    return float(start @ value / start.sum())


@pytest.mark.parametrize(("least", "most"), [(0.2, 0.4), (0.05, 1.0), (0.02, 2.0)])
def test_no_rule_to_stop_passes_an_odometer(least, most):
    assert stopped_delta(least, most, odometer) <= DELTA
    # It is not idle: the composition is passed, and much less than the odometer would be.
    assert stopped_delta(least, most, lambda mu: GaussianDP(mu).epsilon(DELTA)) > 4.5 * DELTA
    assert stopped_delta(least, most, lambda mu: odometer(mu, 8 * DELTA)) > DELTA


def test_no_rule_to_stop_passes_a_filter_or_a_fixed_total():
    limit = GaussianDP(0.4).epsilon(DELTA)
    assert stopped_delta(0.05, 0.4, lambda mu: limit) <= DELTA * 1.001
    fixed = stopped_delta(0.4, 0.4001, lambda mu: GaussianDP(0.4).epsilon(DELTA))
    assert fixed == pytest.approx(DELTA, rel=0.02)


def replayed(path, n_studies, claim, limit=None):
    """Delta of an analyst who adds fits while the loss looks low, and stops where it is high.

    Every study releases N(mu, 1) where its neighbour releases N(0, 1), at mu of its own choice.
    """
    rng, loss, spent = np.random.default_rng(0), np.zeros(n_studies), np.zeros(n_studies)
    grid = np.linspace(0.0, 0.7, 351)
    printed = np.array([claim(mu) for mu in grid])
    for _ in range(40):
        # Large steps where little was lost, small ones near the printed total.
        figures = printed[np.searchsorted(grid, np.sqrt(spent) - 1e-9).clip(max=350)]
        left = 0.36 - spent
        mu = np.where(loss > 0.5 * figures, 0.06, 0.12)
        mu = np.where((loss > figures) | (mu**2 > left), 0.0, mu)
        seen = mu + rng.normal(size=n_studies)
        loss += mu * seen - mu**2 / 2
        spent += mu**2
    figures = printed[np.searchsorted(grid, np.sqrt(spent) - 1e-9).clip(max=350)]
    return np.maximum(-np.expm1(np.minimum(figures - loss, 0.0)), 0.0)


@pytest.mark.parametrize(
    "n_studies", [100_000, pytest.param(2_000_000, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_a_replayed_analyst_passes_no_adaptive_total(path, n_studies):
    delta = 1e-2
    limit = GaussianDP(0.6).epsilon(delta)

    def mean(claim):
        gains = replayed(path, n_studies, claim)
        return gains.mean(), 3 * gains.std() / math.sqrt(n_studies)

    for claim in (lambda mu: odometer(mu, delta), lambda mu: limit):
        found, error = mean(claim)
        assert found - error <= delta
    # The same analyst passes the composition.
    found, error = mean(lambda mu: GaussianDP(mu).epsilon(delta) if mu else 0.0)
    assert found - error > 1.5 * delta


def test_a_limit_before_the_first_fit_is_a_filter(ledger, entry):
    ledger.limit(2.0, DELTA)
    assert ledger.total() == 0.0
    ledger.reserve(entry(GaussianDP(0.1)))
    assert ledger.total() == 2.0
    # What holds is GDP of the limit, and lowering it after a look changes nothing.
    mu = gaussian_mu(2.0, DELTA)
    assert ledger.total(1e-7) == pytest.approx(GaussianDP(mu).epsilon(1e-7))
    ledger.limit(1.0, DELTA)
    assert ledger.total() == 2.0
    assert ledger.total(kind="fixed") == GaussianDP(0.1).epsilon(DELTA)
    # Pure epsilons are on top of it.
    ledger.limit(2.0, DELTA)
    ledger.reserve(entry(LaplaceDP(0.25)))
    assert ledger.total() == 2.25
    with pytest.raises(ValueError, match="kind='sum'"):
        ledger.total(kind="sum")


@pytest.mark.parametrize("raised", [(2.1, DELTA), (2.0, 2 * DELTA)], ids=["epsilon", "delta"])
def test_a_raised_limit_leaves_an_odometer_and_its_delta(tmp_path, raised):
    ledger = PrivacyLedger(tmp_path / "study.db")
    ledger.limit(2.0, DELTA)
    ledger.reserve(entry_of(GaussianDP(0.2)))
    ledger.limit(*raised)
    for again in range(2):
        assert ledger.total() == pytest.approx(odometer(0.2, raised[1]))
        assert ledger.total(3 * DELTA) == pytest.approx(odometer(0.2, 2 * DELTA))
        with pytest.raises(ValueError, match="have used delta=1e-05"):
            ledger.total(DELTA)
        assert f"delta={raised[1] + DELTA:g}, odometer" in ledger.summary()
        if not again:  # to set it back brings nothing back
            ledger.limit(2.0, raised[1])


def test_without_a_limit_or_after_fits_it_is_an_odometer(path, entry):
    ledger = PrivacyLedger(f"{path}::adult")
    ledger.reserve(entry(GaussianDP(0.3)))
    assert ledger.total(DELTA) == odometer(0.3)
    ledger.limit(9.0, DELTA)
    assert ledger.total() == odometer(0.3)
    # A limit on everything that came before the fits of a data set is no filter either.
    PrivacyLedger(path).limit(9.0, DELTA)
    assert PrivacyLedger(path).total() == odometer(0.3)
    other = PrivacyLedger(f"{path}::bank")
    other.limit(2.0, DELTA)
    other.reserve(entry(GaussianDP(0.3)))
    assert other.total() == 2.0
    # A fit without a name counts for all.
    late = PrivacyLedger(f"{path}::late")
    PrivacyLedger(path).reserve(entry(GaussianDP(0.1)))
    late.limit(3.0, DELTA)
    assert late.total() == odometer(0.1)


def test_other_kinds_leave_a_filter_or_have_no_total(ledger, entry):
    ledger.limit(9.0, DELTA)
    ledger.reserve(entry(GaussianDP(0.3)))
    orders = tuple(float(a) for a in range(2, 200))
    ledger.reserve(entry(RenyiDP(orders, tuple(0.02 * a for a in orders))))
    both = ledger.total(2 * DELTA)
    # Divergences between orders are bounded by those at the next one.
    alike = odometer(math.hypot(0.3, 0.2))
    assert alike <= both <= 1.1 * alike
    assert ledger.total() == both
    ledger.reserve(entry(PoissonSubsampledGaussian(0.1, 20.0, 10, "replace_one")))
    with pytest.raises(ValueError, match=r"no total for budgets that follow results.*fixed"):
        ledger.total()
    assert "none. There is no total for budgets" in ledger.summary()
    assert ledger.total(kind="fixed") < 9.0


def test_pure_epsilons_add_up_in_every_kind(ledger, entry):
    for _ in range(3):
        ledger.reserve(entry_of(LaplaceDP(0.5)))
    assert ledger.total(0.0) == ledger.total(DELTA) == 1.5
    ledger.reserve(entry(GaussianDP(0.2)))
    assert ledger.total(DELTA) == 1.5 + odometer(0.2)
    assert ledger.total(0.0) == math.inf


def test_an_odometer_is_above_the_composition_and_grows():
    for delta in (1e-2, 1e-5, 1e-10):
        figures = [odometer(mu, delta) for mu in (1e-4, 0.01, 0.1, 1.0, 10.0, 100.0)]
        assert figures == sorted(figures)
        for mu, figure in zip((1e-4, 0.01, 0.1, 1.0, 10.0, 100.0), figures, strict=True):
            assert figure >= GaussianDP(mu).epsilon(delta)


def test_a_filter_asked_at_a_larger_delta_claims_its_own():
    # A raised limit loses the delta of the limit, and so no more may have been claimed.
    spent = Spent.of({GaussianDP(gaussian_mu(1.0, 1e-5)): 1})
    assert spent.filter_epsilon(1.0, 1e-5, 1e-3) == 1.0
    assert spent.filter_epsilon(1.0, 1e-5, 1e-7) > 1.0
