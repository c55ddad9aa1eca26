"""What is known of the accuracy of multi-step ADMM before it runs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def multi_step_bound(
    *,
    n_rounds: int,
    inner_steps: int,
    degrees: ArrayLike,
    gradient_bound: ArrayLike,
    noise_std: ArrayLike,
    n_entries: int,
    diameter: float,
    penalty_weight: float,
    dual_bound: float,
) -> float:
    r"""Return a bound of what `MultiStepADMM` leaves of excess loss and of disagreement.

    .. math::

        E\Big[ \sum_a F_a(\hat w_a) - F_a(w^*) \Big]
        + \beta\, E \sum_a \sum_{b \in N_a} \|\hat w_a - \hat w_b\|
        \le \sum_a \Big( \frac{\sqrt2 D G_a}{\sqrt{t l}}
        + \frac{|N_a| (\rho D^2 + \beta^2 / \rho)}{t} + \frac{\beta |N_a| D}{t l} \Big), \qquad
        G_a^2 = g_a^2 + d s_a^2 .

    Parameters
    ----------
    n_rounds, inner_steps : int
        t and l.
    degrees : array-like of shape (n_agents,)
        Neighbours of each agent.
    gradient_bound : float or array-like of shape (n_agents,)
        g: bound of the norm of the gradient of F over the ball.
    noise_std : float or array-like of shape (n_agents,)
        s: of the noise on each entry of an agent's gradient.
    n_entries : int
        d: entries of a model.
    diameter : float
        D: of the ball that models are projected onto, which contains the optimum.
    penalty_weight : float
        :math:`\rho`.
    dual_bound : float
        :math:`\beta`, at least 0: how much disagreement weighs. Duals need no bound.

    Returns
    -------
    float

    Notes
    -----
    Theorem 7 of Huang and Gong, "Differentially Private ADMM for Convex Distributed Learning",
    corrected. It holds for convex F, ``proximal_weight="growing"`` with this G, the average over
    all steps (``tail_fraction=1``), and no penalty besides F. As printed, the schedule
    ``sqrt(2 k r)`` starts anew in every round, so that the sum which has to telescope does not;
    ``sqrt(2 s)`` over all steps s gives the printed constant. The average that is returned leaves
    the last step out, which costs the last term. The bound of the gradient that is printed, c2 / n,
    holds by symmetry at best.

    Examples
    --------
    >>> from skdpadmm.algorithms import multi_step_bound
    >>> bound = multi_step_bound(
    ...     n_rounds=100, inner_steps=4, degrees=[1, 2, 1], gradient_bound=1.0, noise_std=0.1,
    ...     n_entries=5, diameter=2.0, penalty_weight=0.5, dual_bound=1.0,
    ... )
    >>> round(bound, 3)
    0.615
    """
    degrees = np.asarray(degrees, dtype=np.float64)
    n_steps = n_rounds * inner_steps
    size = np.sqrt(np.square(gradient_bound) + n_entries * np.square(noise_std))
    pulled = penalty_weight * diameter**2 + dual_bound**2 / penalty_weight
    per_agent = (
        math.sqrt(2 / n_steps) * diameter * size
        + degrees * pulled / n_rounds
        + dual_bound * degrees * diameter / n_steps
    )
    return float(np.sum(np.broadcast_to(per_agent, degrees.shape)))


def useful_steps(*, gradient_bound: float, n_entries: int, sensitivity: float, mu: float) -> float:
    r"""Return the number of steps beyond which noise, not optimisation, limits `MultiStepADMM`.

    .. math:: T_0 = \frac{g^2 \mu^2}{d \Delta^2}

    With T steps the noise on a gradient has a squared norm of :math:`d T \Delta^2 / \mu^2`; at
    :math:`T_0` it equals that of the gradient. Rounds times inner steps that are far beyond it buy
    communication and computation, not accuracy: with t rounds, about ``useful_steps / t`` inner
    steps are enough.

    Parameters
    ----------
    gradient_bound : float
        g: bound of the norm of an agent's gradient.
    n_entries : int
        d: entries of a model.
    sensitivity : float
        :math:`\Delta`: how far one record moves an agent's gradient.
    mu : float
        The budget as a Gaussian-DP parameter, see :func:`~skdpadmm.privacy.gaussian_mu`.

    Returns
    -------
    float

    Examples
    --------
    Agents of 452 rows, 104 features, gradients of norm one, replace-one:

    >>> from skdpadmm.algorithms import useful_steps
    >>> from skdpadmm.privacy import gaussian_mu
    >>> mus = [gaussian_mu(epsilon, 1e-5) for epsilon in (0.5, 1.0, 2.0)]
    >>> [round(useful_steps(gradient_bound=1.0, n_entries=104, sensitivity=2 / 452, mu=mu))
    ...  for mu in mus]
    [10, 35, 124]
    """
    return gradient_bound**2 * mu**2 / (n_entries * sensitivity**2)
