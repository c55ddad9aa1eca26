"""Private conditioning: one noisy second moment of the rows, turned into public coordinates.

In the user's coordinates some directions hold most of the variance of the rows and others next to
none. A step that suits the first takes for ever in the others, while noise is the same in all. So
a share of the budget buys the second moment with noise. All that follows from it is public: a basis
in which the second moment is near the identity, where gradients are clipped and noise is added.

The sensitivity of the sum of ``a a'`` over rows of norm at most R is ``R**2`` for zero-out and
``sqrt(2) R**2`` for replace-one, in Frobenius norm. The upper triangle with off-diagonal entries
times sqrt(2) has that norm as its Euclidean one, so noise off the diagonal is smaller by sqrt(2).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._messages import plan_release
from skdpadmm.engine import Engine
from skdpadmm.protocol import SMALLEST_SPREAD, Budget, Conditioning, Facts, Gate
from skdpadmm.records import Basis, Rows

SECOND_MOMENT = "second moment"


def plan_conditioning(
    facts: Facts,
    budget: Budget,
    *,
    mu: float,
    row_norm: float,
    floor: float = 0.5,
    floor_power: float = 0.0,
    clip_power: float = 0.0,
    resolution: float = 0.0,
) -> Conditioning:
    """Plan the release of the second moment.

    Parameters
    ----------
    facts : Facts
    budget : Budget
    mu : float
        What it may cost, as a Gaussian-DP parameter.
    row_norm, floor, floor_power, clip_power, resolution : float
        See `Conditioning`.

    Returns
    -------
    Conditioning
    """
    d = facts.n_parameters
    sensitivity = facts.neighboring.second_moment_factor * facts.rounding / facts.n_samples
    release = plan_release(
        facts,
        budget,
        name=SECOND_MOMENT,
        shape=(d * (d + 1) // 2,),
        sensitivity=sensitivity,
        mu=mu,
    )
    return Conditioning(
        row_norm=row_norm,
        floor=floor,
        floor_power=floor_power,
        clip_power=clip_power,
        resolution=resolution,
        release=release,
    )


def condition(rows: Rows, conditioning: Conditioning, engine: Engine, gate: Gate) -> Rows:
    """Release the second moment and see the rows in the basis that it gives.

    Parameters
    ----------
    rows : Rows
    conditioning : Conditioning
    engine : Engine
    gate : Gate

    Returns
    -------
    Rows
    """
    d, norm = rows.coordinates.n_parameters, conditioning.row_norm
    with np.errstate(divide="ignore"):
        weight = np.minimum(1.0, norm / np.sqrt(rows.squared_norm))

    def second_moment(block: int) -> NDArray[np.float64]:
        A = rows.augmented(block)
        A *= (weight[rows.slices[block]] / norm)[:, None]
        return np.asarray(A.T @ A)

    exact = engine.sum(second_moment, rows.n_blocks) / rows.n_samples
    upper = np.triu_indices(d)
    length = np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
    noisy = gate.release(SECOND_MOMENT, exact[upper] * length) / length
    matrix = np.zeros((d, d))
    matrix[upper] = noisy
    matrix = matrix + np.triu(matrix, 1).T
    return rows.in_basis(basis_of(matrix, conditioning), engine.run)


def basis_of(matrix: NDArray[np.float64], conditioning: Conditioning) -> Basis:
    """Coordinates from the released matrix; nothing here sees data.

    Noise of edge e shows an eigenvalue t > e as about ``t + e**2 / t`` (Benaych-Georges &
    Nadakuditi, "The eigenvalues and eigenvectors of finite, low rank perturbations of large random
    matrices", 2011). That is undone for eigenvalues that stand out of the noise; all others count
    as the floor.

    Parameters
    ----------
    matrix : ndarray of shape (n_parameters, n_parameters)
        Noisy second moment in units of the squared norm bound.
    conditioning : Conditioning

    Returns
    -------
    Basis
    """
    scale, edge = conditioning.row_norm**2, conditioning.edge
    values, vectors = np.linalg.eigh(matrix)
    detected = values > 2 * edge
    shrunk = np.where(detected, (values + np.sqrt(np.maximum(values**2 - 4 * edge**2, 0))) / 2, 0.0)
    # The trace is at most 1 in these units, and known up to about the edge.
    trace = min(max(float(np.trace(matrix)), 2 * edge), 1.0)
    spread = min(max(1 - float(shrunk[-1]) / trace, SMALLEST_SPREAD), 1.0)
    floor = conditioning.floor_at(spread, trace)
    loading = detected.astype(np.float64)
    if not detected.all():
        # What is left of the trace is spread over all directions in which nothing is seen.
        loading[~detected] = max(trace - float(shrunk.sum()), 0.0) / floor / np.sum(~detected)
    dimension = min(max(float(loading.sum()), 1.0), trace / floor)
    loading *= dimension / loading.sum() if loading.any() else 1.0
    return Basis(
        vectors=vectors,
        eigenvalues=np.clip(np.maximum(shrunk, floor), floor, 1.0) * scale,
        loading=loading,
        spread=spread,
        clip_unit=math.sqrt(dimension) * spread**conditioning.clip_power,
    )
