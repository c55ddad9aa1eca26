"""Units that nobody declared, found from one noisy histogram of the norms of rows.

One record is in one bin, so the counts move by at most 1 in Euclidean norm for zero-out and by
sqrt(2) for replace-one.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._messages import plan_release
from skdpadmm.protocol import Budget, Facts, Gate, Scaling
from skdpadmm.records import Coordinates

ROW_NORMS = "histogram of row norms"
# Powers of two from 2^-20 to 2^20: units a million times off either way are still found.
EXPONENTS = np.arange(-20, 21)


def plan_scaling(facts: Facts, budget: Budget, *, mu: float, target: float) -> Scaling:
    """Plan the release of the histogram.

    Parameters
    ----------
    facts : Facts
    budget : Budget
    mu : float
        What it may cost, as a Gaussian-DP parameter.
    target : float
        What the median norm is brought to.

    Returns
    -------
    Scaling
    """
    sensitivity = math.sqrt(facts.neighboring.sensitivity_factor)
    release = plan_release(
        facts,
        budget,
        name=ROW_NORMS,
        shape=(len(EXPONENTS) + 1,),
        sensitivity=sensitivity,
        mu=mu,
    )
    return Scaling(target=target, release=release)


def rescale(
    coordinates: Coordinates, norms: NDArray[np.float64], scaling: Scaling, gate: Gate
) -> Coordinates:
    """Release the histogram and bring undeclared features to the scale that algorithms expect.

    Parameters
    ----------
    coordinates : Coordinates
    norms : ndarray of shape (n_samples,)
        Norms of the undeclared features of each row.
    scaling : Scaling
    gate : Gate

    Returns
    -------
    Coordinates
    """
    # Bin k holds norms in (2^(k-1), 2^k], the first one all below and the last one all above.
    bins = np.searchsorted(2.0**EXPONENTS, norms)
    counts = np.bincount(bins, minlength=len(EXPONENTS) + 1).astype(np.float64)
    released = gate.release(ROW_NORMS, counts)
    return coordinates.rescaled(
        scaling.target / median_norm(released, scaling.release.noise_std, default=scaling.target)
    )


def median_norm(counts: NDArray[np.float64], noise_std: float, *, default: float) -> float:
    """Median of the norms from noisy counts; nothing here sees data.

    Bins within the reach of noise count as empty, and rows in the lowest bin say nothing of units.

    Parameters
    ----------
    counts : ndarray of shape (n_bins,)
    noise_std : float
    default : float
        The answer where no bin stands out.

    Returns
    -------
    float
    """
    kept = np.where(counts > 3 * noise_std, counts, 0.0)
    kept[0] = 0.0
    total = float(kept.sum())
    if total == 0:
        return default
    before = np.cumsum(kept) - kept
    k = int(np.flatnonzero(before <= total / 2)[-1])
    while kept[k] == 0:
        k -= 1
    inside = (total / 2 - float(before[k])) / float(kept[k])
    return float(2.0 ** (EXPONENTS[min(k, len(EXPONENTS) - 1)] - 1 + min(inside, 1.0)))
