"""Iterations of which the last state alone is seen: later steps hide what was released before."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skdpadmm import _numbers as numbers
from skdpadmm._numbers import require
from skdpadmm.privacy._gaussian import GaussianDP
from skdpadmm.privacy._mixture import Mixture, mixture_of_slots

# A handful of roundings, each of half a unit in the last place of a number up to 1.
_SLACK = 2.0**-50
_POWERS = {"laplace": 1.0 / 3.0, "gaussian": 0.5}
# A share that is smaller buys nothing: noise of a trillion scales is as good as none spent.
_SMALLEST_SHARE = 1e-12


def last_iterate_mu(ratio: float, contraction: float, n_iter: int) -> float:
    r"""Return mu of the last iterate of a contractive noisy iteration.

    .. math:: \mu = \frac{\Delta}{s} \sqrt{\frac{(1 - c^K)(1 + c)}{(1 + c^K)(1 - c)}}

    for ``u <- T_k(u) + N(0, s^2 I)``, K times from a public start, of which only the last u (or a
    function of it) is seen. (Bok, Su & Altschuler, "Shifted interpolation for differential
    privacy", ICML 2024, arXiv 2403.00278, section 4.) Attained by linear maps; at c = 0 it is one
    release, at c = 1 it is the composition of all.

    Conditions: on each of two neighbouring data sets every ``T_k`` is c-Lipschitz for one PUBLIC
    c, and the two maps differ by at most Delta at every point. A norm clip of a vector gradient or
    prox is not non-expansive, so it breaks the first; the clip of a scalar derivative keeps it.

    Parameters
    ----------
    ratio : float
        ``Delta / s``, in [0, inf).
    contraction : float
        c in [0, 1]. The formula has the same value at c and 1/c, so it says nothing above 1:
        that is refused.
    n_iter : int
        K, at least 1.

    Examples
    --------
    >>> from skdpadmm.privacy import last_iterate_mu
    >>> round(last_iterate_mu(1.0, 0.9, 100), 3), last_iterate_mu(1.0, 1.0, 100)
    (4.359, 10.0)
    """
    numbers.require_finite(ratio, "ratio")
    _require_contraction(contraction)
    numbers.require_count(n_iter, "n_iter")
    if contraction == 0.0:
        return float(ratio)
    if contraction == 1.0:
        return ratio * math.sqrt(n_iter)
    # (1 - c^K) / (1 + c^K) = tanh(K t) with t = -log(c) / 2.
    half_rate = -0.5 * math.log(contraction)
    return ratio * math.sqrt(math.tanh(n_iter * half_rate) / math.tanh(half_rate))


@numbers.quiet_underflow
def single_use_mu(ratio: float, n_steps: int, contraction: float = 1.0) -> NDArray[np.float64]:
    r"""Return mu, by position, of records of which each is used in one step of a single pass.

    .. math:: \mu_t = \frac{\Delta}{s} c^{m - 1} \sqrt{\frac{1 - c^2}{1 - c^{2 m}}},
              \quad m = T - t + 1,

    which is ``Delta / (s sqrt(m))`` at c = 1: the noise of the record's step and of the m - 1 that
    follow hides it; nothing is claimed of the noise before, which maps may forget. (Feldman,
    Mironov, Talwar & Thakurta, "Privacy amplification by iteration", FOCS 2018, in the Gaussian
    form of Bok, Su & Altschuler, ICML 2024, arXiv 2403.00278, section 3.) Attained by linear maps,
    where the map of the record's own step is constant.

    Conditions: as for `last_iterate_mu`, and the record enters one step alone, at a position that
    does not depend on data: for a gradient step on a convex beta-smooth loss c = 1 needs a step
    size of at most 2 / beta. Only the last iterate is seen. Every record's guarantee is that of its
    position; the guarantee of all is the last entry, ``Delta / s``, where nothing follows to hide
    it. An average over random positions is a `Mixture`, and belongs beside that worst one.

    Parameters
    ----------
    ratio : float
        ``Delta / s``, in [0, inf).
    n_steps : int
        T, at least 1.
    contraction : float, default=1.0
        c in [0, 1].

    Returns
    -------
    ndarray of shape (n_steps,)
        Non-decreasing; the worst is the last.

    Examples
    --------
    >>> from skdpadmm.privacy import single_use_mu
    >>> single_use_mu(1.0, 4).round(3)
    array([0.5  , 0.577, 0.707, 1.   ])
    """
    numbers.require_finite(ratio, "ratio")
    _require_contraction(contraction)
    numbers.require_count(n_steps, "n_steps")
    masking = np.arange(n_steps, 0, -1, dtype=np.float64)
    if contraction == 1.0:
        return ratio / np.sqrt(masking)
    if contraction == 0.0:
        return np.where(masking == 1.0, float(ratio), 0.0)
    log_c = math.log(contraction)
    hidden = np.sqrt(math.expm1(2.0 * log_c) / np.expm1(2.0 * log_c * masking))
    return ratio * np.exp(log_c * (masking - 1.0)) * hidden


def reflected_prox_contraction(
    step_size: float, strong_convexity: float, smoothness: float
) -> float:
    r"""Return a Lipschitz constant of the reflected proximal operator ``2 prox_{gamma f} - I``.

    .. math:: \tau = \max\left(\frac{\gamma \beta - 1}{\gamma \beta + 1},
              \frac{1 - \gamma m}{1 + \gamma m}\right)

    (Giselsson & Boyd, "Linear convergence and metric selection for Douglas-Rachford splitting and
    ADMM", IEEE TAC 2017, Theorem 1.) Conditions: f is m-strongly convex and beta-smooth for EVERY
    data set that it can depend on, by public constants. A quadratic ``a |w|^2 / 2`` has
    m = beta = a. An l1 norm has m = 0, beta = inf; so has the elastic net (beta = inf), whose
    reflection is no contraction, strongly convex or not. An intercept without penalty means m = 0.

    Parameters
    ----------
    step_size : float
        gamma in (0, inf).
    strong_convexity : float
        m in [0, beta].
    smoothness : float
        beta in [m, inf].

    Returns
    -------
    float
        In [0, 1], rounded up.

    Examples
    --------
    >>> from skdpadmm.privacy import reflected_prox_contraction
    >>> round(reflected_prox_contraction(0.5, 1.0, 4.0), 6)
    0.333333
    """
    _require_curvature(step_size, strong_convexity, smoothness)
    # 1 - tau is a minimum of two positive terms, which does not cancel where tau is near 1.
    low = step_size * strong_convexity
    gap = min(2.0 / (step_size * smoothness + 1.0), 2.0 * low / (1.0 + low))
    return _round_up(1.0 - gap)


def averaged_admm_contraction(relaxation: float, reflected: float) -> float:
    r"""Return a Lipschitz constant of ``u + lambda (R_f(R_r(u)) - u)``, relaxed Douglas-Rachford.

    It is :math:`c = 1 - \lambda (1 - \tau)`, rounded up, for lambda in (0, 1] if ``R_f R_r`` is
    tau-Lipschitz: tau in [0, 1] is the product of the constants of the two reflected proximal
    operators (`reflected_prox_contraction`, 1 for any convex function).

    Examples
    --------
    >>> from skdpadmm.privacy import averaged_admm_contraction
    >>> round(averaged_admm_contraction(0.5, 0.8), 6)
    0.9
    """
    require(0 < relaxation <= 1, "relaxation", relaxation, "a float in (0, 1]")
    require(0 <= reflected <= 1, "reflected", reflected, "a float in [0, 1]")
    return _round_up(1.0 - relaxation * (1.0 - reflected))


def proximal_gradient_contraction(
    step_size: float,
    strong_convexity: float,
    smoothness: float,
    penalty_strong_convexity: float = 0.0,
) -> float:
    r"""Return a Lipschitz constant of ``prox_{eta r}(w - eta grad f(w))``, rounded up.

    .. math:: c = \frac{\max(|1 - \eta m|, |1 - \eta \beta|)}{1 + \eta a}

    Conditions: f is m-strongly convex and beta-smooth for EVERY data set, by public constants (0 <=
    m <= beta < inf), and r is a-strongly convex, smooth or not (0 <= a < inf). A step size eta
    above 2 / beta can give c > 1, for which `last_iterate_mu` has no theorem.

    Examples
    --------
    >>> from skdpadmm.privacy import proximal_gradient_contraction
    >>> round(proximal_gradient_contraction(0.25, 1.0, 4.0, 1.0), 6)
    0.6
    """
    _require_curvature(step_size, strong_convexity, smoothness)
    require(smoothness < math.inf, "smoothness", smoothness, "a finite float")
    numbers.require_finite(penalty_strong_convexity, "penalty_strong_convexity")
    slowest = max(abs(1.0 - step_size * strong_convexity), abs(1.0 - step_size * smoothness))
    constant = slowest / (1.0 + step_size * penalty_strong_convexity)
    return _round_up(constant) if constant <= 1 else constant * (1.0 + _SLACK)


def _round_up(constant: float) -> float:
    return min(constant + _SLACK, 1.0)


def _require_contraction(contraction: float) -> None:
    expected = "a float in [0, 1]; compose the whole path where the maps do not contract"
    require(0 <= contraction <= 1, "contraction", contraction, expected)


def _require_curvature(step_size: float, strong_convexity: float, smoothness: float) -> None:
    numbers.require_positive(step_size, "step_size")
    numbers.require_finite(strong_convexity, "strong_convexity")
    expected = f"at least strong_convexity={strong_convexity!r}"
    require(smoothness >= strong_convexity, "smoothness", smoothness, expected)


def amplification_constant(kappa: float) -> float:
    r"""Return the constant C* of amplification by iteration for gradient ADMM.

    .. math:: C^*(\kappa) = \frac{2 + \kappa + \sqrt{\kappa^2 + 4}}{2 \kappa}

    A contribution whose effect lasts over T pairs of steps costs ``sqrt(C* / T)`` of what it costs
    alone. The page of proofs derives it; Chan, Xie & Zhao, "Privacy Amplification by Iteration for
    ADMM with (Strongly) Convex Objective Functions", Lemma 6.10, have ``max(2, 3 / kappa)``.

    Parameters
    ----------
    kappa : float
        ``step_size * penalty_weight * s_min**2`` in (0, inf), where s_min is the smallest singular
        value of A, which has full row rank.

    Returns
    -------
    float
        Above 1, and decreasing in kappa.

    Examples
    --------
    >>> from skdpadmm.privacy import amplification_constant
    >>> [round(amplification_constant(kappa), 3) for kappa in (0.1, 1.0, 10.0)]
    [20.512, 2.618, 1.11]
    """
    numbers.require_positive(kappa, "kappa")
    # The larger root of the quadratic, its discriminant as a sum of squares, which does not cancel.
    difference = 2.0 / kappa - 1.0
    return 0.5 * (1.0 + 2.0 / kappa + math.sqrt(difference**2 + 4.0 / kappa))


def contribution_mu(
    step_size: float,
    sensitivity: float,
    noise_std: float,
    *,
    kappa: float = 0.0,
    square: bool = False,
) -> float:
    """Return mu of one contribution to gradient ADMM by itself: ``step * Delta / sigma``.

    Parameters
    ----------
    step_size : float
        eta in (0, inf).
    sensitivity : float
        Delta in [0, inf): how far the gradients of two neighbouring records differ, at every point.
    noise_std : float
        Standard deviation sigma of the noise on x, in (0, inf).
    kappa : float, default=0.0
        ``step_size * penalty_weight * s_min**2`` in [0, inf).
    square : bool, default=False
        Whether A is square. The figure is then divided by ``1 + kappa``; the amplification
        constant that goes with it stays the same.

    Examples
    --------
    >>> from skdpadmm.privacy import contribution_mu
    >>> contribution_mu(0.5, 2.0, 4.0), contribution_mu(0.5, 2.0, 4.0, kappa=1.0, square=True)
    (0.25, 0.125)
    """
    numbers.require_positive(step_size, "step_size")
    numbers.require_finite(sensitivity, "sensitivity")
    numbers.require_positive(noise_std, "noise_std")
    numbers.require_finite(kappa, "kappa")
    alone = step_size * sensitivity / noise_std
    return float(alone / (1.0 + kappa) if square else alone)


@dataclass(frozen=True)
class AmplifiedIteration:
    r"""What contributions to gradient ADMM cost where its last state alone is seen.

    .. math:: \mu_m = \min\left(r + g,\; r \sqrt{\frac{C^*}{\lfloor m / 2 \rfloor}}
              + g \sqrt{2 \lfloor m / 2 \rfloor}\right)

    for a contribution whose effect lasts over m steps, its own included, and never more than for
    fewer of them. Here r is `ratio` and g is `grid_shift`. (After Chan, Xie & Zhao, "Privacy
    Amplification by Iteration for ADMM with (Strongly) Convex Objective Functions", Corollary 6.2,
    with the constants that the page of proofs derives.)

    Conditions:

    - In each step one record's gradient is used. Every loss is convex and nu-smooth on every data
      set, and the step size is at most 2 / nu. A has full row rank.
    - Noise is independent from step to step, N(0, sigma^2 I) on x alone, also in steps of nobody
      or without a gradient.
    - Nothing but the last state, or a function of it, is seen. Averages, best iterates and the
      scores of a path are no functions of it. Nobody knows the noise of a later step.
    - The order of slots, and when to stop, do not depend on data.

    Parameters
    ----------
    ratio : float
        mu of a contribution by itself, in [0, inf): `contribution_mu`.
    amplification : float
        C*: `amplification_constant`. Infinite where the theorem does not apply.
    grid_shift : float, default=0.0
        Where states are rounded to a public grid before noise is added: how far rounding can move
        two of them apart in a step, in Euclidean norm over the standard deviation of the noise.

    Examples
    --------
    >>> from skdpadmm.privacy import AmplifiedIteration, amplification_constant
    >>> made = AmplifiedIteration(1.0, amplification_constant(1.0))
    >>> f"{made.local().epsilon(1e-6):.3f} alone, {made.first(1000).epsilon(1e-6):.3f} at first"
    '4.887 alone, 0.281 at first'
    """

    ratio: float
    amplification: float
    grid_shift: float = 0.0

    def __post_init__(self) -> None:
        numbers.require_finite(self.ratio, "ratio")
        require(self.amplification > 0, "amplification", self.amplification, "a float in (0, inf]")
        numbers.require_finite(self.grid_shift, "grid_shift")

    def local(self) -> GaussianDP:
        """Return the guarantee of a contribution to which nothing is added by later steps."""
        return GaussianDP(self._alone)

    def first(self, n_iterations: int) -> GaussianDP:
        """Return the guarantee of a record that contributes in the first step alone."""
        return GaussianDP(float(self.mu_after(n_iterations)))

    def mu_after(self, n_iterations: ArrayLike) -> NDArray[np.float64]:
        """Return mu of contributions whose effect lasts over so many steps, their own included.

        An array of integers of at least 1 gives one of the same shape. It does not increase with
        the steps: later ones work on what was hidden before.
        """
        steps = np.asarray(n_iterations)
        _require_integers(steps, "n_iterations")
        fewest = int(steps.min(initial=1))
        require(fewest >= 1, "n_iterations", fewest, "ints >= 1")
        pairs, mu = steps // 2, np.full(steps.shape, self._alone)
        if math.isinf(self.amplification):
            return mu
        # On a grid the bound falls up to some number of pairs, then rises: it is stopped there.
        root, best = math.sqrt(self.amplification), math.inf
        if self.grid_shift > 0:
            best = self.ratio * root / (math.sqrt(2.0) * self.grid_shift)
        for most in (math.floor(best), math.ceil(best)) if best < math.inf else (math.inf,):
            used = np.minimum(np.maximum(pairs, 1), max(most, 1))
            bound = self.ratio * (root / np.sqrt(used)) + self.grid_shift * np.sqrt(2.0 * used)
            mu = np.minimum(mu, np.where(pairs > 0, bound, mu))
        return mu

    def slots(self, sequence: ArrayLike, n_slots: int) -> NDArray[np.float64]:
        """Return mu (n_slots,) of the record in each slot of a public schedule.

        ``sequence`` (n_steps,) has the slot that each step uses; negative: nobody's. mu is 0 for a
        slot that is never used. Which record is in which slot is for the caller: the largest mu is
        the worst, and `mixture_of_slots` is the average over secret random slots.
        """
        numbers.require_count(n_slots, "n_slots")
        steps = np.asarray(sequence)
        _require_integers(steps, "sequence")
        require(steps.ndim == 1, "sequence of dimension", steps.ndim, "1")
        last_slot = int(steps.max(initial=-1))
        require(last_slot < n_slots, "a slot", last_slot, f"ints below n_slots={n_slots}")
        if self._alone == 0:
            return np.zeros(n_slots)
        when = np.flatnonzero(steps >= 0)
        when = when[np.argsort(steps[when], kind="stable")]
        slot = steps[when]
        # The next contribution of the same slot, or the end.
        until = np.full(when.size, steps.size)
        again = slot[1:] == slot[:-1]
        until[:-1][again] = when[1:][again]
        share = self.mu_after(until - when) / self._alone
        total = np.bincount(slot, weights=np.square(share), minlength=n_slots)
        return np.asarray(self._alone * np.sqrt(total), dtype=np.float64)

    def random_stopping(self, n: int) -> Mixture:
        r"""Return the guarantee of every record of one pass that ends at a secret random step.

        Each of n records is used once in a fixed order, and the number T of steps is uniform on ``n
        // 2 + 1, ..., n``. The mixture is over T, for the record at position ``n // 2 + 1``, the
        worst. Those that are used in the last step of a realisation have no more than `local`,
        which belongs beside it.

        With h = n // 2, position t lasts over ``L_t = T - t + 1`` steps, or it is never used. For
        every l, at most l values of T have ``L_t <= l``, so
        :math:`P(L_t \le l) \le \min(l, n - h) / (n - h)`, and t = h + 1 attains it: its L is the
        smallest in stochastic order, and mu does not increase in L, so its delta is the largest at
        every epsilon.
        """
        numbers.require_count(n, "n")
        return mixture_of_slots(self.mu_after(np.arange(1, n - n // 2 + 1)))

    @property
    def _alone(self) -> float:
        return float(self.ratio + self.grid_shift)


def _require_integers(values: NDArray[np.generic], name: str) -> None:
    if not (np.issubdtype(values.dtype, np.integer) or values.size == 0):
        raise ValueError(f"Got {name} of type {values.dtype}, expected integers.")


@numbers.quiet_underflow
def split_budget(
    kind: str, n_steps: int, contraction: float = 1.0, noise: str = "laplace"
) -> NDArray[np.float64]:
    r"""Return the share of a budget that each step of a contracting iteration gets.

    Parameters
    ----------
    kind : {"equal", "optimal"}
    n_steps : int
        T, at least 1.
    contraction : float, default=1.0
        C in (0, 1], public: the factor of the error from one step to the next. Equal steps do not
        depend on it.
    noise : {"laplace", "gaussian"}, default="laplace"
        What is shared: the sum of epsilons, or the sum of squares of mu.

    Returns
    -------
    ndarray of shape (n_steps,)
        Positive, with the sum 1.

    Notes
    -----
    The squared error that step k (0, ..., T - 1) adds is contracted by all later steps: what is
    left of it is :math:`C^{T-1-k} \epsilon_k^{-2}`, up to a constant, and
    :math:`C^{T-1-k} \mu_k^{-2}` for Gaussian noise. The sum of it is least, by a Lagrange
    multiplier, with

    .. math::

        \epsilon_k \propto C^{(T-1-k)/3} \text{ where } \textstyle\sum_k \epsilon_k
        \text{ is given}, \qquad
        \mu_k^2 \propto C^{(T-1-k)/2} \text{ where } \textstyle\sum_k \mu_k^2 \text{ is given:}

    noise decreases with time. For Laplace noise this is optimal at delta = 0; for a positive delta
    it is a split like any other.

    One of n agents that wake up at random, without a clock that they share, counts its own T
    wake-ups. Where a step of any agent contracts by c, what is to be expected from one of them to
    the next is :math:`C = c / (n - (n - 1) c)`, as the number of steps is geometric. With
    :math:`c = 1 - r / n` that is about :math:`1 / (1 + r)`, and for small r the epsilon of the
    k-th wake-up grows like :math:`e^{k r / 3}`.

    Examples
    --------
    >>> from skdpadmm.privacy import split_budget
    >>> split_budget("equal", 4).tolist()
    [0.25, 0.25, 0.25, 0.25]
    >>> split_budget("optimal", 3, contraction=0.125).round(3).tolist()
    [0.143, 0.286, 0.571]
    """
    require(kind in ("equal", "optimal"), "kind", kind, "'equal' or 'optimal'")
    require(noise in _POWERS, "noise", noise, "'laplace' or 'gaussian'")
    numbers.require_count(n_steps, "n_steps")
    require(0 < contraction <= 1, "contraction", contraction, "a float in (0, 1]")
    if kind == "equal":
        return np.full(n_steps, 1.0 / n_steps)
    later = np.arange(n_steps - 1, -1, -1, dtype=np.float64)
    weights = np.exp(_POWERS[noise] * later * math.log(contraction))
    weights = np.maximum(weights, _SMALLEST_SHARE)
    return np.asarray(weights / weights.sum(), dtype=np.float64)
