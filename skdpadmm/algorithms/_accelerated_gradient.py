"""A public number of accelerated gradient steps, and a proven bound of what they leave.

An algorithm whose privacy rests on the accuracy of an inner solution can neither stop on a residual
nor trust one: both depend on data. It fixes the number of steps from public constants instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

Map = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def accelerated_gradient(
    gradient: Map,
    start: NDArray[np.float64],
    n_steps: int,
    *,
    strong_convexity: float,
    smoothness: float,
    prox: Map | None = None,
) -> NDArray[np.float64]:
    r"""Approach the minimiser of f + r by a fixed number of steps of constant size.

    From :math:`x_0 = T(\text{start})`, :math:`T(y) = \mathrm{prox}_{r / \beta}(y - \nabla f(y) /
    \beta)`, and with :math:`q = \sqrt{m / \beta}`,

    .. math:: y_k = x_k + \frac{1 - q}{1 + q} (x_k - x_{k - 1}), \qquad x_{k + 1} = T(y_k) .

    (Nesterov, "Lectures on convex optimization", 2018, scheme 2.2.22; Beck, "First-order methods in
    optimization", 2017, section 10.7.7, with a penalty.) See `certified_distance` for what is left.

    Parameters
    ----------
    gradient : callable
        Gradient of f, in the shape of its argument. It is called n_steps times.
    start : ndarray
    n_steps : int
        At least 0.
    strong_convexity : float
        m in (0, beta].
    smoothness : float
        beta in [m, inf).
    prox : callable, default=None
        Proximal operator of r with step 1 / beta; by default r = 0.

    Returns
    -------
    ndarray in the shape of `start`

    Raises
    ------
    ValueError
        If a constant is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.algorithms._accelerated_gradient import accelerated_gradient
    >>> scales = np.array([1.0, 4.0])
    >>> found = accelerated_gradient(
    ...     lambda w: scales * (w - 1.0), np.zeros(2), 60, strong_convexity=1.0, smoothness=4.0
    ... )
    >>> bool(np.abs(found - 1.0).max() < 1e-8)
    True
    """
    _check(strong_convexity, smoothness)
    _check_count(n_steps)
    ratio = math.sqrt(strong_convexity / smoothness)
    momentum = (1.0 - ratio) / (1.0 + ratio)
    current = ahead = start
    for step in range(n_steps):
        following = ahead - gradient(ahead) / smoothness
        if prox is not None:
            following = prox(following)
        # The first step has no momentum: it brings the objective's value within reach of a bound.
        ahead = following + momentum * (following - current) if step else following
        current = following
    return current


def certified_distance(
    n_steps: int,
    *,
    strong_convexity: float,
    smoothness: float,
    initial_distance: float,
    gradient_error: float = 0.0,
    relative_error: float = 0.0,
) -> float:
    r"""Return a bound of the distance of `accelerated_gradient` to the minimiser.

    .. math:: \|x - x^*\| \le D (\sqrt{\kappa - 1} + 2 a) \rho^{N - 1}
              + \frac{4 e}{m (1 - 4 a)}, \qquad \kappa = \beta / m, \quad
              \rho = \sqrt{1 - \kappa^{-1/2}} + 2 a \kappa^{-1/2},

    for N >= 1 steps from a start within D of the minimiser :math:`x^*`, with gradients at y off by
    at most :math:`e + a m \|y - x^*\|` in norm.

    Parameters
    ----------
    n_steps : int
        N, at least 0. Without a step the distance is D.
    strong_convexity : float
        m in (0, beta].
    smoothness : float
        beta in [m, inf): f is m-strongly convex and beta-smooth; r is any convex function.
    initial_distance : float
        D in [0, inf).
    gradient_error : float, default=0.0
        e in [0, inf): what leaves a floor below which nothing is certified. It has to include
        beta times the rounding of a step, see `step_rounding`.
    relative_error : float, default=0.0
        a in [0, 1/8]: rounding that grows with the distance, in units of m.

    Returns
    -------
    float
        Rounded up.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    The rate is that of Nesterov (2018), theorem 2.2.3, and Beck (2017), theorem 10.42. Errors are
    carried along in the same proof. With :math:`F = f + r`, :math:`q = \kappa^{-1/2}`, an error
    :math:`e_k` in the gradient at :math:`y_k`, and :math:`z_0 = x_0`,
    :math:`x_{k+1} = (1 - q) x_k + q z_{k+1}`, the potential
    :math:`\Phi_k = F(x_k) - F(x^*) + \frac m2 \|z_k - x^*\|^2` obeys

    .. math:: \Phi_{k+1} \le (1 - q) \Phi_k - q \langle e_k, z_{k+1} - x^* \rangle
              \le (1 - q) \Phi_k + q \|e_k\| \sqrt{2 \Phi_{k+1} / m} .

    Solving the quadratic inequality gives
    :math:`\sqrt{\Phi_{k+1}} \le \sqrt{(1 - q) \Phi_k} + q \|e_k\| \sqrt{2 / m}`. Both
    :math:`\|x_k - x^*\|` and :math:`\|z_k - x^*\|` are at most :math:`\sqrt{2 \Phi_k / m}`, and
    :math:`y_k = (x_k + q z_k) / (1 + q)` lies between them, so

    .. math:: \sqrt{\Phi_{k+1}} \le \rho \sqrt{\Phi_k} + q e \sqrt{2 / m}, \qquad
              1 - \rho \ge q (\tfrac12 - 2 a) .

    Errors add up to at most :math:`2 e \sqrt{2 / m} / (1 - 4 a)`. The first step, from a start with
    an error of at most :math:`e + a m D`, gives
    :math:`\sqrt{\Phi_0} \le \sqrt{(\beta - m) / 2} D + (e + a m D) \sqrt{2 / m}`: no larger a share
    of e than that. Finally :math:`\frac m2 \|x_k - x^*\|^2 \le \Phi_k`.

    Examples
    --------
    >>> from skdpadmm.algorithms._accelerated_gradient import certified_distance
    >>> bound = certified_distance(
    ...     101, strong_convexity=1.0, smoothness=25.0, initial_distance=1.0
    ... )
    >>> print(f"{bound:.1e}")
    7.0e-05
    """
    _check(strong_convexity, smoothness)
    _check_count(n_steps)
    _check_size("initial_distance", initial_distance)
    _check_size("gradient_error", gradient_error)
    if n_steps == 0:
        return initial_distance
    _check_relative(relative_error)
    excess = math.sqrt((smoothness - strong_convexity) / strong_convexity)
    q = math.sqrt(strong_convexity / smoothness)
    rate = math.sqrt(1.0 - q) + 2.0 * relative_error * q
    left = initial_distance * (excess + 2.0 * relative_error) * rate ** (n_steps - 1)
    return (left + _floor(gradient_error, relative_error, strong_convexity)) * (1.0 + 1e-12)


def steps_to_reach(
    tolerance: float,
    *,
    strong_convexity: float,
    smoothness: float,
    initial_distance: float,
    gradient_error: float = 0.0,
    relative_error: float = 0.0,
) -> int:
    """Return the smallest number of steps whose `certified_distance` is at most a tolerance.

    Parameters
    ----------
    tolerance : float
        In (0, inf), above what the errors leave.
    strong_convexity, smoothness, initial_distance, gradient_error, relative_error : float
        As in `certified_distance`.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If an argument is out of range, or no number of steps reaches the tolerance.

    Examples
    --------
    >>> from skdpadmm.algorithms._accelerated_gradient import steps_to_reach
    >>> steps_to_reach(1e-6, strong_convexity=1.0, smoothness=25.0, initial_distance=1.0)
    140
    """
    _check(strong_convexity, smoothness)
    _check_size("initial_distance", initial_distance)
    _check_size("gradient_error", gradient_error)
    _check_relative(relative_error)
    if not 0 < tolerance < math.inf:
        raise ValueError(f"Got tolerance={tolerance!r}, expected a float in (0, inf).")

    def reached(n_steps: int) -> bool:
        distance = certified_distance(
            n_steps,
            strong_convexity=strong_convexity,
            smoothness=smoothness,
            initial_distance=initial_distance,
            gradient_error=gradient_error,
            relative_error=relative_error,
        )
        return distance <= tolerance

    low, high = -1, 1
    if reached(0):
        return 0
    limit = _floor(gradient_error, relative_error, strong_convexity) * (1.0 + 1e-12)
    if not limit < tolerance:
        raise ValueError(
            f"Got tolerance={tolerance!r}, expected more than {limit:.3g}, what rounding leaves."
            " Allow a larger tolerance or a stronger ridge."
        )
    while not reached(high):
        if high > 2**50:
            raise ValueError(
                f"Got tolerance={tolerance!r} with smoothness / strong_convexity ="
                f" {smoothness / strong_convexity:.3g}, expected a problem that can be solved."
                " Strengthen the ridge."
            )
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def planned_steps(advice: str, tolerance: float, **constants: float) -> int:
    """Return `steps_to_reach`, where what cannot be reached is refused in a user's words.

    Parameters
    ----------
    advice : str
        "Got ..., expected ...", of the knobs that the constants follow from.
    tolerance : float
    **constants : float
        As in `steps_to_reach`.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If no number of steps reaches the tolerance.
    """
    try:
        return steps_to_reach(tolerance, **constants)
    except ValueError as error:
        raise ValueError(
            f"{advice}: floats cannot solve an agent's problem to that accuracy."
        ) from error


def step_rounding(smoothness: float) -> float:
    """Return what rounding of a step costs, as an error of the gradient for each unit of norm.

    A step ``y - g / beta``, its prox and the extrapolation are each rounded to a few units in the
    last place of vectors as long as an iterate. In units of the gradient that is beta times as
    much.

    Parameters
    ----------
    smoothness : float
        beta.

    Returns
    -------
    float

    Examples
    --------
    >>> from skdpadmm.algorithms._accelerated_gradient import step_rounding
    >>> print(f"{step_rounding(10.0):.1e}")
    1.8e-14
    """
    return 16.0 * 2.0**-53 * smoothness


def _floor(gradient_error: float, relative_error: float, strong_convexity: float) -> float:
    return 4.0 * gradient_error / (strong_convexity * (1.0 - 4.0 * relative_error))


def _check(strong_convexity: float, smoothness: float) -> None:
    if not (0 < strong_convexity <= smoothness < math.inf):
        raise ValueError(
            f"Got strong_convexity={strong_convexity!r} and smoothness={smoothness!r}, expected"
            " 0 < strong_convexity <= smoothness < inf. Add a ridge."
        )


def _check_count(n_steps: int) -> None:
    if not (isinstance(n_steps, Integral) and n_steps >= 0):
        raise ValueError(f"Got n_steps={n_steps!r}, expected an int >= 0.")


def _check_size(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise ValueError(f"Got {name}={value!r}, expected a float in [0, inf).")


def _check_relative(relative_error: float) -> None:
    if not 0 <= relative_error <= 0.125:
        raise ValueError(
            f"Got relative_error={relative_error!r}, expected a float in [0, 0.125]: floats cannot"
            " resolve a problem as badly conditioned as this. Strengthen the ridge."
        )
