"""Privacy loss distributions: the one adapter to dp-accounting, which rounds upwards."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.privacy import _numbers as numbers

if TYPE_CHECKING:
    from skdpadmm.privacy._guarantee import Guarantee

# Measured: a discretised round may lack mass of order 1e-13 and a Fourier convolution scatters
# errors that add up to 1e-13. Both would be optimistic, so both are charged to delta.
_LOST_PER_ROUND = 1e-12
_CONVOLUTION_ERROR = 1e-12
# Differences of the curve over a finer interval drown in rounding errors, which are optimistic.
_FINEST_INTERVAL = 2.0**-23
# Beyond it exp(loss) overflows. The curve is flat there, and so is our answer, from above.
_LARGEST_LOSS = 700.0
_DIGIT, _CACHED = 32, 512
# Guarantees, and how often each occurs.
Rounds = tuple[tuple["Guarantee", int], ...]


def library(module: str) -> Any:
    """Return a module of dp-accounting."""
    try:
        return importlib.import_module(f"dp_accounting.{module}")
    except ImportError as error:
        raise ImportError(
            "This guarantee needs dp-accounting: pip install 'skdpadmm[accounting]'"
        ) from error


@numbers.quiet_underflow
def composed_delta(rounds: Rounds, epsilon: float) -> float:
    """Return a delta which the composition of ``rounds`` does not exceed at ``epsilon``."""
    if math.isinf(epsilon):
        return 0.0
    if (distribution := _composed(rounds)) is None:
        return 1.0
    delta = distribution.get_delta_for_epsilon(min(epsilon, _LARGEST_LOSS))
    return float(min(1.0, max(0.0, delta) * _inflation(rounds) + _CONVOLUTION_ERROR))


@numbers.quiet_underflow
def composed_epsilon(rounds: Rounds, delta: float) -> float:
    """Return an epsilon which the composition of ``rounds`` does not exceed at ``delta``."""
    if delta >= 1.0:
        return 0.0
    if delta <= _CONVOLUTION_ERROR or (distribution := _composed(rounds)) is None:
        return math.inf
    target = (delta - _CONVOLUTION_ERROR) / _inflation(rounds)
    return float(distribution.get_epsilon_for_delta(target))


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


def _inflation(rounds: Rounds) -> float:
    return 1.0 + _LOST_PER_ROUND * sum(count for _, count in rounds)


def _interval(rounds: Rounds, widest: float) -> float:
    """Return a discretisation as fine as the composed loss asks for, at a bounded cost.

    It errs upwards whatever the interval, by about (interval / standard deviation of a round)^2 /
    12 of epsilon, 2e-5 up to 10^6 rounds. In steps: sums of about one size share their parts.
    """
    total_std = math.sqrt(sum(count * leaf.loss_std() ** 2 for leaf, count in rounds))
    round_std = total_std / math.sqrt(sum(count for _, count in rounds))
    accurate = max(min(total_std / 2**11, round_std / 2**6), total_std / 2**15)
    finest = max(accurate, widest / 2**16, _FINEST_INTERVAL)
    return float(2.0 ** (math.floor(8.0 * math.log2(finest)) / 8.0))


def _composed(rounds: Rounds) -> Any:
    """Return the distribution of all rounds; None where one round's loss leaves exp's range."""
    if (widest := max(_widest(leaf) for leaf, _ in rounds)) > _LARGEST_LOSS:
        return None
    interval = _interval(rounds, widest)
    return _product(rounds, interval) if widest + 2.0 * interval <= _LARGEST_LOSS else None


@lru_cache(maxsize=_CACHED)
def _widest(leaf: Guarantee) -> float:
    return leaf.widest_loss()


@lru_cache(maxsize=_CACHED)
def _product(rounds: Rounds, interval: float) -> Any:
    """Compose by halves, and equal rounds by digits: a longer account shares most of its parts.

    Tails are cut at each step, so that arrays stay short.
    """
    if len(rounds) > 1:
        half = len(rounds) // 2
        return _product(rounds[:half], interval).compose(_product(rounds[half:], interval))
    ((leaf, count),) = rounds
    if count == 1:
        return leaf.loss_distribution(interval)
    if count < _DIGIT:
        return _product(((leaf, 1),), interval).self_compose(count)
    distribution = _product(((leaf, count // _DIGIT),), interval).self_compose(_DIGIT)
    rest = ((leaf, count % _DIGIT),)
    return distribution.compose(_product(rest, interval)) if count % _DIGIT else distribution
