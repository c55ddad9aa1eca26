"""Last iterates of noisy iterations whose maps contract, and records that are used once."""

from __future__ import annotations

import math
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from skdpadmm.privacy._validation import require

# A handful of roundings, each of half a unit in the last place of a number up to 1.
_SLACK = 2.0**-50


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

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> from skdpadmm.privacy import last_iterate_mu
    >>> round(last_iterate_mu(1.0, 0.9, 100), 3), last_iterate_mu(1.0, 1.0, 100)
    (4.359, 10.0)
    """
    _require_ratio(ratio)
    _require_contraction(contraction)
    _require_count(n_iter, "n_iter")
    if contraction == 0.0:
        return float(ratio)
    if contraction == 1.0:
        return ratio * math.sqrt(n_iter)
    # (1 - c^K) / (1 + c^K) = tanh(K t) with t = -log(c) / 2.
    half_rate = -0.5 * math.log(contraction)
    return ratio * math.sqrt(math.tanh(n_iter * half_rate) / math.tanh(half_rate))


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

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> from skdpadmm.privacy import single_use_mu
    >>> single_use_mu(1.0, 4).round(3)
    array([0.5  , 0.577, 0.707, 1.   ])
    """
    _require_ratio(ratio)
    _require_contraction(contraction)
    _require_count(n_steps, "n_steps")
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

    Raises
    ------
    ValueError
        If an argument is out of range.

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

    .. math:: c = 1 - \lambda (1 - \tau)

    Conditions: ``R_f R_r`` is tau-Lipschitz, where tau is the product of the constants of the two
    reflected proximal operators (`reflected_prox_contraction`, 1 for any convex function).

    Parameters
    ----------
    relaxation : float
        lambda in (0, 1].
    reflected : float
        tau in [0, 1].

    Returns
    -------
    float
        In [0, 1], rounded up.

    Raises
    ------
    ValueError
        If an argument is out of range.

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
    r"""Return a Lipschitz constant of ``prox_{eta r}(w - eta grad f(w))``.

    .. math:: c = \frac{\max(|1 - \eta m|, |1 - \eta \beta|)}{1 + \eta a}

    Conditions: f is m-strongly convex and beta-smooth for EVERY data set, by public constants, and
    r is a-strongly convex, smooth or not. A step size above 2 / beta can give c > 1, for which
    `last_iterate_mu` has no theorem.

    Parameters
    ----------
    step_size : float
        eta in (0, inf).
    strong_convexity : float
        m in [0, beta].
    smoothness : float
        beta in [m, inf).
    penalty_strong_convexity : float, default=0.0
        a in [0, inf).

    Returns
    -------
    float
        At least 0, rounded up; above 1 where the step is too long.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> from skdpadmm.privacy import proximal_gradient_contraction
    >>> round(proximal_gradient_contraction(0.25, 1.0, 4.0, 1.0), 6)
    0.6
    """
    _require_curvature(step_size, strong_convexity, smoothness)
    require(smoothness < math.inf, "smoothness", smoothness, "a finite float")
    require(
        0 <= penalty_strong_convexity < math.inf,
        "penalty_strong_convexity",
        penalty_strong_convexity,
        "a float in [0, inf)",
    )
    slowest = max(abs(1.0 - step_size * strong_convexity), abs(1.0 - step_size * smoothness))
    constant = slowest / (1.0 + step_size * penalty_strong_convexity)
    return _round_up(constant) if constant <= 1 else constant * (1.0 + _SLACK)


def _round_up(constant: float) -> float:
    return min(constant + _SLACK, 1.0)


def _require_ratio(ratio: float) -> None:
    require(0 <= ratio < math.inf, "ratio", ratio, "a float in [0, inf)")


def _require_contraction(contraction: float) -> None:
    require(
        0 <= contraction <= 1,
        "contraction",
        contraction,
        "a float in [0, 1]; compose the whole path where the maps do not contract",
    )


def _require_count(count: int, name: str) -> None:
    require(isinstance(count, Integral) and count >= 1, name, count, "an int >= 1")


def _require_curvature(step_size: float, strong_convexity: float, smoothness: float) -> None:
    require(0 < step_size < math.inf, "step_size", step_size, "a float in (0, inf)")
    require(
        0 <= strong_convexity < math.inf, "strong_convexity", strong_convexity, "a finite float"
    )
    require(
        smoothness >= strong_convexity,
        "smoothness",
        smoothness,
        f"at least strong_convexity={strong_convexity!r}",
    )
