"""Private selection: the best of a random number of private trials."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from skdpadmm import _numbers as numbers
from skdpadmm._numbers import require
from skdpadmm.privacy._composition import Composed, compose
from skdpadmm.privacy._gaussian import GaussianDP, calibrate_noise
from skdpadmm.privacy._guarantee import Guarantee, NonPrivate
from skdpadmm.privacy._laplace import LaplaceDP
from skdpadmm.privacy._mixture import Mixture, Worst, worst
from skdpadmm.privacy._renyi import RenyiDP, common_orders

# Small budgets are decided at high orders, large ones at low orders.
_ORDERS = tuple((1.0 + np.geomspace(0.02, 1e6, 200)).tolist())
# More than the rounding of the sums and logarithms here; every divergence is raised by it.
_ROUNDING = 1e-9
# How finely, in units of mu, the trade-off of a Gaussian trial is bracketed; how many steps at
# most.
_STEP, _MOST_STEPS = 0.01, 40_000
_SURELY_BEYOND = 1e-18
_RENYI_KINDS = "GaussianDP, LaplaceDP, RenyiDP, and Composed, Mixture and Worst of them"


class TrialLaw(ABC):
    """Law of the number of trials of which the best is released; the number stays hidden.

    There is one trial at least.
    """

    @property
    @abstractmethod
    def mean(self) -> float:
        """The mean number of trials."""

    @abstractmethod
    def probability(self, n_trials: int) -> float:
        """Return the probability of so many trials, at least one."""

    @abstractmethod
    def describe(self) -> str:
        """Return one short phrase."""

    @abstractmethod
    def _log_selection(
        self, trial: Guarantee, curve: NDArray[np.float64], orders: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Bound log(f'(q)^order f'(q')^(1 - order)), order by order; see `best_of_trials`."""

    def sample(self, uniform: float) -> int:
        """Return the number of trials that a number in [0, 1) stands for, by inversion."""
        require(0 <= uniform < 1, "uniform", uniform, "a float in [0, 1)")
        n_trials, reached = 1, self.probability(1)
        while uniform >= reached:
            n_trials += 1
            step = self.probability(n_trials)
            if step < _SURELY_BEYOND and n_trials > self.mean:
                break  # rounding keeps the sum below the last few numbers
            reached += step
        return n_trials


@dataclass(frozen=True)
class PoissonTrials(TrialLaw):
    r"""A Poisson number of trials, and one where that is zero: :math:`K = \max(1, N)`.

    Parameters
    ----------
    rate : float
        m in (0, inf), the mean of N.

    Notes
    -----
    N = 0 is no reason to return nothing: one trial is run then. The generating function is
    :math:`f(x) = e^{m (x - 1)} + (x - 1) e^{-m}`, its slope
    :math:`m e^{m (x - 1)} + e^{-m}`. As :math:`(u, v) \mapsto u^\alpha v^{1-\alpha}` is convex and
    homogeneous, it is subadditive, and what one trial adds is :math:`e^{-m}` at most. With
    :math:`p = 1 - q, p' = 1 - q'`, the rest has the logarithm

    .. math:: \log m + m ((\alpha - 1) p' - \alpha p)
              = \log m + (\alpha - 1) m (p' - e^{\hat\epsilon} p)
              \le \log m + (\alpha - 1) m \delta(\hat\epsilon), \qquad
              e^{\hat\epsilon} = \frac{\alpha}{\alpha - 1},

    where :math:`\delta` is that of a trial: Theorem 6 of [1]_, but for the case N = 0.

    References
    ----------
    .. [1] N. Papernot, T. Steinke, "Hyperparameter Tuning with Renyi Differential Privacy", ICLR
       2022.

    Examples
    --------
    >>> from skdpadmm.privacy import PoissonTrials
    >>> round(PoissonTrials.of_mean(10.0).mean, 9)
    10.0
    """

    rate: float

    def __post_init__(self) -> None:
        numbers.require_positive(self.rate, "rate")

    @classmethod
    def of_mean(cls, mean: float) -> PoissonTrials:
        """Return the law with a mean number of trials, above 1."""
        _require_mean(mean)
        # The mean grows with the rate, and exceeds both it and 1.
        return cls(numbers.bisect(lambda rate: cls(rate).mean >= mean, 0.0, float(mean)))

    @property
    def mean(self) -> float:
        """The mean number of trials: m + exp(-m)."""
        return self.rate + math.exp(-self.rate)

    def probability(self, n_trials: int) -> float:
        log_probability = n_trials * math.log(self.rate) - self.rate - math.lgamma(n_trials + 1)
        return math.exp(log_probability) + (math.exp(-self.rate) if n_trials == 1 else 0.0)

    def describe(self) -> str:
        return f"a Poisson number of trials, {self.mean:.4g} on average"

    def _log_selection(
        self, trial: Guarantee, curve: NDArray[np.float64], orders: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        deltas = np.array([trial.delta(math.log1p(1.0 / (a - 1.0))) for a in orders.tolist()])
        several = math.log(self.rate) + (orders - 1.0) * self.rate * deltas
        return np.asarray(np.logaddexp(several, -self.rate))


@dataclass(frozen=True)
class NegativeBinomialTrials(TrialLaw):
    r"""A number of trials of a negative binomial law without its zero.

    .. math:: P(K = k) = \frac{(1 - \gamma)^k}{\gamma^{-\eta} - 1}
              \prod_{l=0}^{k-1} \frac{l + \eta}{l + 1}, \qquad k \ge 1,

    and :math:`(1 - \gamma)^k / (k \log(1 / \gamma))` in the limit :math:`\eta = 0`, the logarithmic
    law. :math:`\eta = 1` is the geometric law.

    Parameters
    ----------
    eta : float
        In (-1, inf). Smaller ones spread K more widely and cost less.
    gamma : float
        In (0, 1).

    Notes
    -----
    The slope of the generating function is
    :math:`f'(x) = E[K] (\gamma / (1 - (1 - \gamma) x))^{1 + \eta}`. With :math:`f'(q) \le E[K]`,
    what selection adds at order :math:`\alpha` is at most
    :math:`\log E[K] + (\alpha - 1) (1 + \eta) \log(s' / s)`, where
    :math:`s = \gamma + (1 - \gamma)(1 - q) \ge \gamma` and s' are probabilities of one event under
    a trial on one and on the other data set. The divergence of that event is no larger than the
    trial's, so :math:`s'^{\hat\alpha} s^{1 - \hat\alpha} \le e^{(\hat\alpha - 1) \hat\epsilon}`,
    and

    .. math:: \log \frac{s'}{s} \le \Bigl(1 - \frac{1}{\hat\alpha}\Bigr) \hat\epsilon
              + \frac{\log (1 / \gamma)}{\hat\alpha}

    for every order :math:`\hat\alpha \ge 1` of the trial: Theorem 2 of [1]_. For a Gaussian trial
    nothing has to be bounded: :math:`p' \le \Phi(\Phi^{-1}(p) + \mu)` is all that the probabilities
    of an event can be, and the largest :math:`f'(q)^\alpha f'(q')^{1 - \alpha}` is bracketed on a
    grid of p: between two points s is at least that of the lower, s' at most that of the upper.

    References
    ----------
    .. [1] N. Papernot, T. Steinke, "Hyperparameter Tuning with Renyi Differential Privacy", ICLR
       2022.

    Examples
    --------
    >>> from skdpadmm.privacy import NegativeBinomialTrials
    >>> NegativeBinomialTrials(1.0, 0.1).mean, NegativeBinomialTrials.of_mean(1.0, 10.0)
    (10.0, NegativeBinomialTrials(eta=1.0, gamma=0.1))
    """

    eta: float
    gamma: float

    def __post_init__(self) -> None:
        require(-1 < self.eta < math.inf, "eta", self.eta, "a float in (-1, inf)")
        require(0 < self.gamma < 1, "gamma", self.gamma, "a float in (0, 1)")

    @classmethod
    def of_mean(cls, eta: float, mean: float) -> NegativeBinomialTrials:
        """Return the law of that eta with a mean number of trials, above 1."""
        _require_mean(mean)
        if eta == 1:
            return cls(1.0, 1.0 / mean)
        low = 0.5
        while cls(eta, low).mean < mean:
            low *= 0.5
        return cls(eta, numbers.bisect(lambda g: cls(eta, g).mean >= mean, 1.0 - 2.0**-53, low))

    @property
    def mean(self) -> float:
        """The mean number of trials."""
        if self.eta == 1:
            return 1.0 / self.gamma
        return math.exp(math.log1p(-self.gamma) - math.log(self.gamma)) / self._normaliser

    def probability(self, n_trials: int) -> float:
        # Gamma(k + eta) / (k! Gamma(1 + eta)) (1 - gamma)^k, over the normaliser.
        log_probability = (
            n_trials * math.log1p(-self.gamma)
            + math.lgamma(n_trials + self.eta)
            - math.lgamma(1.0 + self.eta)
            - math.lgamma(n_trials + 1)
            - self.eta * math.log(1.0 / self.gamma)
        )
        return math.exp(log_probability) / self._normaliser

    def describe(self) -> str:
        names = {0.0: "logarithmic", 1.0: "geometric"}
        name = names.get(float(self.eta), f"negative binomial (eta={self.eta:g})")
        return f"a {name} number of trials, {self.mean:.4g} on average"

    @property
    def _normaliser(self) -> float:
        """(1 - gamma^eta) / eta, which is log(1 / gamma) at eta = 0."""
        log_gamma = math.log(self.gamma)
        return -log_gamma if self.eta == 0 else -math.expm1(self.eta * log_gamma) / self.eta

    def _log_selection(
        self, trial: Guarantee, curve: NDArray[np.float64], orders: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        # Order 1, where gamma alone bounds the ratio, belongs to every guarantee.
        log_ratio = -math.log(self.gamma)
        finite = curve < math.inf
        at = orders[finite]
        if at.size:
            bounds = (1.0 - 1.0 / at) * curve[finite] + log_ratio / at
            log_ratio = min(log_ratio, float(bounds.min()))
        if isinstance(trial, GaussianDP | LaplaceDP | Composed):  # the epsilon at delta = 0
            log_ratio = min(log_ratio, trial.epsilon(0.0))
        general = math.log(self.mean) + (orders - 1.0) * (1.0 + self.eta) * log_ratio
        if isinstance(trial, GaussianDP):
            return np.minimum(general, self._log_selection_of_gaussian(trial.mu, orders))
        return np.asarray(general)

    def _log_selection_of_gaussian(
        self, mu: float, orders: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        if mu == 0:
            return np.full(len(orders), math.log(self.mean))
        # Below the first point s is gamma, and s' hardly more; above the last one both are 1.
        first, last = float(ndtri(1e-3 * self.gamma)) - mu, 6.0
        n_steps = min(_MOST_STEPS, math.ceil((last - first) / (_STEP * mu)))
        z = np.linspace(first, last, n_steps + 1)
        least = np.concatenate([[0.0], ndtr(z)])
        most = np.concatenate([ndtr(z + mu), [1.0]])
        log_s = np.log(self.gamma + (1.0 - self.gamma) * least)
        log_s_other = np.log(self.gamma + (1.0 - self.gamma) * most)
        worst = [float(np.max((a - 1.0) * log_s_other - a * log_s)) for a in orders.tolist()]
        return np.asarray(
            math.log(self.mean) + (1.0 + self.eta) * (math.log(self.gamma) + np.array(worst))
        )


@numbers.quiet_underflow
def best_of_trials(
    trial: Guarantee, law: TrialLaw, orders: Sequence[float] | None = None
) -> RenyiDP | NonPrivate:
    r"""Return the guarantee of the best of a random number of independent private trials.

    A trial draws a candidate in a way that does not depend on data, runs it and scores it; its
    output is all of that. Released is the output of the trial with the best score. Neither the
    number of trials nor any other output is.

    Parameters
    ----------
    trial : Guarantee
        Of one trial: of what it fits and of its score together.
    law : TrialLaw
        Of the number of trials.
    orders : sequence of float, default=200 orders in [1.02, 1000001]
        Increasing, above 1. Where `trial` is a RenyiDP, or made of one, they are its own.

    Returns
    -------
    RenyiDP
        NonPrivate where `trial` is not private.

    Raises
    ------
    TypeError
        If no Renyi divergence of `trial` is known.

    Notes
    -----
    Papernot and Steinke (ICLR 2022), Lemma 7. Let Q be the law of a trial's output, Q' that on a
    neighbouring data set, both on a totally ordered set: by score, ties by a public rule. With the
    generating function :math:`f(x) = E[x^K]` the best output y has the probability

    .. math:: A(y) = f(Q(\le y)) - f(Q(< y)) = Q(y) \, E_U f'(Q(< y) + U Q(y)),

    with U uniform in [0, 1], and A' likewise with the same U. As
    :math:`(u, v) \mapsto u^\alpha v^{1 - \alpha}` is convex,

    .. math:: A(y)^\alpha A'(y)^{1 - \alpha} \le Q(y)^\alpha Q'(y)^{1 - \alpha} \,
              E_U f'(q)^\alpha f'(q')^{1 - \alpha},

    where q and q' are the probabilities of one and the same event, "a trial is not better than
    (y, U)", under Q and Q'. Summed over y,

    .. math:: D_\alpha(A \| A') \le D_\alpha(Q \| Q') + \frac{1}{\alpha - 1}
              \sup_{q, q'} \log f'(q)^\alpha f'(q')^{1 - \alpha},

    over all pairs that the trial's guarantee leaves possible. The laws of K bound the supremum.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, NegativeBinomialTrials, best_of_trials
    >>> trial = GaussianDP(0.1)
    >>> best = best_of_trials(trial, NegativeBinomialTrials(1.0, 0.1))
    >>> f"{trial.epsilon(1e-6):.3f} {best.epsilon(1e-6):.3f}"
    '0.397 0.626'
    """
    if isinstance(trial, NonPrivate):
        return trial
    if isinstance(trial, Worst):
        # A pair of neighbours is in one of the cases, in every trial.
        shared = _own_orders(trial) or orders
        of_cases = [best_of_trials(case, law, shared) for case in trial.components]
        return _largest(of_cases)
    known = _orders_of(trial, orders)
    at = np.array(known, dtype=np.float64)
    curve = _divergences(trial, at)
    added = law._log_selection(trial, curve, at) / (at - 1.0)
    best = np.maximum((curve + added) * (1.0 + _ROUNDING), 0.0)
    return RenyiDP(known, tuple(best.tolist()))


def any_of(*guarantees: Guarantee) -> Guarantee:
    """Return what holds for a trial that is one of several, drawn by public chances and named.

    It is the weakest where it implies all others, else the largest Renyi divergence at every order.
    One alone is returned as it is: cases within it are of pairs of neighbours, not of draws.

    A trial draws anew which one it is, so that :func:`best_of_trials` may not take them case by
    case, as it does with :func:`worst`: the divergence of a trial may be that of one kind, and the
    ranks of its answer may differ as those of another. The divergence of a law that is drawn and
    named is at most the largest one of those that it is drawn from.

    Raises
    ------
    TypeError
        If Renyi divergences are needed and not known.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, LaplaceDP, any_of
    >>> any_of(GaussianDP(0.1), GaussianDP(0.3))
    GaussianDP(mu=0.3)
    >>> any_of(GaussianDP(0.3), LaplaceDP(1.0)).describe()
    'Renyi DP at 200 orders'
    """
    different = list(dict.fromkeys(guarantees))
    if len(different) == 1:
        return different[0]
    weakest = worst(*different)
    return renyi_divergences(weakest) if isinstance(weakest, Worst) else weakest


def renyi_divergences(
    guarantee: Guarantee, orders: Sequence[float] | None = None
) -> RenyiDP | NonPrivate:
    """Return a guarantee as Renyi divergences, which is how the best of trials composes.

    ``orders`` are 200 in [1.02, 1000001] by default; those of a RenyiDP are its own. NonPrivate
    stays as it is.

    Raises
    ------
    TypeError
        If no divergences are known.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, renyi_divergences
    >>> renyi_divergences(GaussianDP(1.0), (2.0, 4.0)).divergences
    (1.0, 2.0)
    """
    if isinstance(guarantee, NonPrivate):
        return guarantee
    known = _orders_of(guarantee, orders)
    curve = _divergences(guarantee, np.array(known, dtype=np.float64))
    return RenyiDP(known, tuple(curve.tolist()))


@lru_cache(maxsize=64)
def calibrate_trial(
    law: TrialLaw, epsilon: float, delta: float, beside: Guarantee | None = None
) -> GaussianDP:
    """Return the weakest Gaussian trial of which the best meets a budget.

    ``epsilon`` in (0, inf) at ``delta`` in (0, 1) is that of the selection and of what is
    ``beside`` it, such as a last fit on the same records, together.

    Raises
    ------
    ValueError
        If a parameter is out of range, or if no trial is private enough.

    Examples
    --------
    >>> from skdpadmm.privacy import NegativeBinomialTrials, best_of_trials, calibrate_trial
    >>> law = NegativeBinomialTrials.of_mean(1.0, 8.0)
    >>> trial = calibrate_trial(law, epsilon=1.0, delta=1e-5)
    >>> f"{trial.epsilon(1e-5):.3f} {best_of_trials(trial, law).epsilon(1e-5):.3f}"
    '0.626 1.000'
    """
    numbers.require_target(epsilon, delta)
    other = None if beside is None else renyi_divergences(beside)

    def total(scale: float) -> Guarantee:
        trial = GaussianDP(1.0 / scale)
        if other is None:
            return best_of_trials(trial, law)
        orders = other.orders if isinstance(other, RenyiDP) else None
        return compose(best_of_trials(trial, law, orders), other)

    if not total(1e9).epsilon(delta) <= epsilon:
        raise ValueError(
            f"Got epsilon={epsilon!r} at delta={delta!r}, expected more: a selection from"
            f" {law.describe()}, needs epsilon={total(1e9).epsilon(delta):.3g} even if a trial"
            " reveals next to nothing. Ask for fewer trials, or for a larger budget."
        )
    scale = calibrate_noise(total, epsilon, delta)
    # Delta at epsilon and epsilon at delta are two computations: both have to agree.
    while total(scale).epsilon(delta) > epsilon:
        scale *= 1.0 + 1e-9
    return GaussianDP(1.0 / scale)


def _require_mean(mean: float) -> None:
    require(1 < mean < math.inf, "mean", mean, "a float in (1, inf): there is one trial at least")


def _largest(guarantees: Sequence[RenyiDP | NonPrivate]) -> RenyiDP | NonPrivate:
    """The largest divergence, order by order, at the orders that all have in common."""
    known = [guarantee for guarantee in guarantees if isinstance(guarantee, RenyiDP)]
    if len(known) < len(guarantees):
        return NonPrivate()
    orders = common_orders(known)
    return RenyiDP(orders, tuple(max(each.at(order) for each in known) for order in orders))


def _orders_of(guarantee: Guarantee, orders: Sequence[float] | None) -> tuple[float, ...]:
    given = _ORDERS if orders is None else tuple(float(order) for order in orders)
    return _own_orders(guarantee) or given


def _own_orders(guarantee: Guarantee) -> tuple[float, ...] | None:
    """The orders at which alone a guarantee is known; None: at all."""
    if isinstance(guarantee, RenyiDP):
        return guarantee.orders
    parts = guarantee.components if isinstance(guarantee, Mixture | Worst) else ()
    own = [orders for part in parts if (orders := _own_orders(part)) is not None]
    return tuple(sorted(set(own[0]).intersection(*own[1:]))) if own else None


def _divergences(guarantee: Guarantee, orders: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bounds of the divergences of a guarantee at `orders`, of which a RenyiDP has to know all."""
    if isinstance(guarantee, GaussianDP):
        return 0.5 * guarantee.mu**2 * orders
    if isinstance(guarantee, RenyiDP):
        return np.array([guarantee.at(order) for order in orders.tolist()])
    if isinstance(guarantee, LaplaceDP):
        # The integral of the two densities, one shifted by epsilon, in closed form.
        epsilon = guarantee.pure_epsilon
        up = np.log(orders / (2.0 * orders - 1.0)) + (orders - 1.0) * epsilon
        down = np.log((orders - 1.0) / (2.0 * orders - 1.0)) - orders * epsilon
        return np.asarray(np.logaddexp(up, down) / (orders - 1.0))
    if isinstance(guarantee, Composed):
        pairs = zip(guarantee.leaves, guarantee.counts, strict=True)
        return np.asarray(sum(count * _divergences(leaf, orders) for leaf, count in pairs))
    if isinstance(guarantee, Mixture):
        weighted = [
            math.log(weight) + (orders - 1.0) * _divergences(part, orders)
            for weight, part in zip(guarantee.weights, guarantee.components, strict=True)
            if weight > 0
        ]
        # The label is revealed: likelihoods of the outputs average over it.
        return np.asarray(np.logaddexp.reduce(weighted) / (orders - 1.0))
    if isinstance(guarantee, Worst):
        return np.max([_divergences(part, orders) for part in guarantee.components], axis=0)
    raise TypeError(
        f"Got a trial with {guarantee.describe()}, expected one whose Renyi divergences are known:"
        f" {_RENYI_KINDS}. Use an algorithm with such a guarantee."
    )
