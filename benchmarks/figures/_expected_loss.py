"""The thesis' average privacy loss, which secret random weights lower: it is no guarantee.

No epsilon and delta follow from an average of losses, and the realised loss depends on private
data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def loss_ceiling(rates: ArrayLike, widths: ArrayLike, shifts: ArrayLike) -> Array:
    r"""Return upper bounds of the expected absolute privacy loss of entries, by their largest loss.

    .. math:: \gamma = \frac{1}{\beta t} E_{x \sim p} \max_{\pm}
              \Big| \log \frac{p(x)}{p(x \mp t)} \Big|
              \le \min\Big\{1, \frac{1 - e^{-u/2}}{u/2} \, \frac{e^s - 1}s\Big\},
              \qquad u = \beta \omega, \quad s = \beta t

    with p the density of a uniform number on an interval of width :math:`\omega` plus Laplace noise
    of rate :math:`\beta`, which t moves. Left of its middle p rises along the shift, by a factor of
    at most :math:`e^s`. So the loss there, the integral of :math:`p'/p` along the shift, is at most
    :math:`e^s` times the mean that :math:`p'` itself gives it. Where s is small it is exact.
    """
    rate, width, shift = (np.asarray(x, dtype=np.float64) for x in (rates, widths, shifts))
    with np.errstate(over="ignore"):
        half, s = np.maximum(0.5 * rate * width, 1e-300), np.maximum(rate * shift, 1e-300)
    # Beyond it nothing but one is claimed.
    rise = np.expm1(np.minimum(s, 50.0)) / np.minimum(s, 50.0)
    return np.where(s > 50.0, 1.0, np.minimum(-np.expm1(-half) / half * rise, 1.0))


def expected_losses(path: Array, adjacency: Array, rates: Array, shift: float) -> Array:
    """Bound the expected absolute privacy loss of each agent of ADMM with random penalties.

    Parameters
    ----------
    path : ndarray of shape (n_rounds, n_agents, n_entries)
        The released models, which are 0 at first.
    adjacency : ndarray of shape (n_agents, n_agents)
    rates : ndarray of shape (n_rounds,)
        Of the Laplace noise in models.
    shift : float
        How far a record moves each entry of a model.
    """
    models = np.concatenate([np.zeros_like(path[:1]), path[:-1]])
    widths = np.abs(models - adjacency @ models / adjacency.sum(axis=1)[:, None])
    factors = loss_ceiling(rates[:, None, None], widths, shift)
    return np.asarray(shift * rates @ factors.sum(axis=2))
