"""Convolution of privacy loss distributions, with every error of its arithmetic upwards."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from skdpadmm import _numbers as numbers
from skdpadmm.privacy._guarantee import Guarantee, Rounds

# Measured: a discretised round may lack mass of order 1e-13 and a Fourier convolution scatters
# errors that add up to 1e-13. Both would be optimistic, so both are charged to delta.
_LOST_PER_ROUND = 1e-12
_CONVOLUTION_ERROR = 1e-12
# Differences of the curve over a finer interval drown in rounding errors, which are optimistic.
_FINEST_INTERVAL = 2.0**-23
# Beyond it exp(loss) overflows. The curve is flat there, and so is our answer, from above.
_LARGEST_LOSS = 700.0
_DIGIT, _CACHED = 32, 512


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
    """Return the distribution of all rounds; None where the loss is infinite or beyond exp."""
    finite = math.prod((1.0 - leaf.infinite_loss()) ** count for leaf, count in rounds)
    widest = max(_widest(leaf) for leaf, _ in rounds)
    if finite < _CONVOLUTION_ERROR or widest > _LARGEST_LOSS:
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
