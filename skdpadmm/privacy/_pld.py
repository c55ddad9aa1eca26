"""Privacy loss distributions of dp-accounting, from curves of delta."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def library(module: str) -> Any:
    """Return a module of dp-accounting."""
    try:
        return importlib.import_module(f"dp_accounting.{module}")
    except ImportError as error:
        raise ImportError(
            "This guarantee needs dp-accounting: pip install 'skdpadmm[accounting]'"
        ) from error


def from_curve(
    deltas: Callable[[NDArray[np.float64]], NDArray[np.float64]], widest: float, interval: float
) -> Any:
    r"""Return the privacy loss distribution of a curve of delta, rounded up to a grid.

    A guarantee bounds the hockey-stick divergence H(a), a = e^epsilon, of two neighbours in both
    directions: H(1/a) = 1 - (1 - H(a)) / a. H is convex, so below the convex hull of its bounds at
    the points of the grid, both ways. That hull is the divergence of a pair of discrete laws with
    a loss at each vertex (Zhu, Dong and Wang, AISTATS 2022, Proposition 8; Doroshenko et al., PETS
    2022), and what dominates one by one dominates in adaptive composition (ibid., Theorem 10).
    """
    n = math.ceil(widest / interval) + 1
    epsilons = np.arange(n + 1) * np.float64(interval)
    delta = np.minimum.accumulate(deltas(epsilons))
    ratios = np.exp(epsilons)
    # H(a) - 1 goes over to itself, divided by a, where a becomes 1/a. So the hull of both halves is
    # a line, 1 - slope (1 + a), up to its first vertex: the steepest one.
    steepness = (1.0 - delta) / (1.0 + ratios)
    start = int(np.argmax(steepness))
    vertices, convex = np.arange(start, n + 1), False
    while not convex:
        slopes = np.diff(delta[vertices]) / np.diff(ratios[vertices])
        below = np.append(True, slopes[1:] >= slopes[:-1])
        convex = bool(below.all())
        vertices = vertices[np.append(below, True)]
    slopes = np.concatenate([[-steepness[start]], slopes, [0.0]])
    first = int(start == 0)  # the mass at a loss of zero is what is left
    vertices, masses = vertices[first:], np.diff(slopes)[first:] * ratios[vertices[first:]]
    probabilities = np.zeros(2 * n + 1)
    probabilities[n + vertices] = masses
    probabilities[n - vertices] = masses / ratios[vertices]
    probabilities[n] = max(0.0, 1.0 - probabilities.sum() - delta[-1])
    pmf = library("pld.pld_pmf").DensePLDPmf(interval, -n, probabilities, delta[-1], True)
    return library("pld.privacy_loss_distribution").PrivacyLossDistribution(pmf)
