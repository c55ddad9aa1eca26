"""The one adapter to dp-accounting's privacy loss distributions."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

from skdpadmm.privacy._neighboring import Neighboring

# Measured: a discretised round may lack mass of order 1e-13 and a Fourier convolution scatters
# errors that add up to 1e-13. Both would be optimistic, so both are charged to delta.
_LOST_PER_ROUND = 1e-12
_CONVOLUTION_ERROR = 1e-12
# Differences of the curve over a finer interval drown in rounding errors, which are optimistic.
_FINEST_INTERVAL = 1e-7
# More noise than this is credited as this much: the density of such a law cannot be resolved.
_LARGEST_MULTIPLIER = 1e9
# Beyond it exp(loss) overflows. The curve is flat there, and so is our answer, from above.
_LARGEST_LOSS = 700.0


class SampledRounds(NamedTuple):
    """Poisson sampled Gaussian rounds; an unsampled release has probability 1."""

    sampling_probability: float
    noise_multiplier: float
    n_rounds: int
    neighboring: Neighboring


class LaplaceRounds(NamedTuple):
    """Releases of one number each, a shift of ``epsilon`` under Laplace noise of scale 1."""

    epsilon: float
    n_rounds: int


class ResponseRounds(NamedTuple):
    """Labels told by randomised response of a pure ``epsilon``."""

    epsilon: float
    n_labels: int
    n_rounds: int


Rounds = SampledRounds | LaplaceRounds | ResponseRounds


def pld_delta(rounds: tuple[Rounds, ...], epsilon: float) -> float:
    """Return a delta which the composed rounds do not exceed at ``epsilon``."""
    if math.isinf(epsilon):
        return 0.0
    if _is_hopeless(rounds):
        return 1.0
    delta = _composed(rounds).get_delta_for_epsilon(min(epsilon, _LARGEST_LOSS))
    return float(min(1.0, max(0.0, delta) * _inflation(rounds) + _CONVOLUTION_ERROR))


def pld_epsilon(rounds: tuple[Rounds, ...], delta: float) -> float:
    """Return an epsilon which the composed rounds do not exceed at ``delta``."""
    if delta >= 1.0:
        return 0.0
    if delta <= _CONVOLUTION_ERROR or _is_hopeless(rounds):
        return math.inf
    target = (delta - _CONVOLUTION_ERROR) / _inflation(rounds)
    return float(_composed(rounds).get_epsilon_for_delta(target))


def _inflation(rounds: tuple[Rounds, ...]) -> float:
    return 1.0 + _LOST_PER_ROUND * sum(part.n_rounds for part in rounds)


def _is_hopeless(rounds: tuple[Rounds, ...]) -> bool:
    """Whether one round's loss leaves the range of exp; claiming nothing is then safe."""
    return any(_single_range(part) > _LARGEST_LOSS for part in rounds)


def _single_range(part: Rounds) -> float:
    if isinstance(part, LaplaceRounds | ResponseRounds):
        return part.epsilon
    shift = part.neighboring.sensitivity_factor / part.noise_multiplier
    return 0.5 * shift * shift + 10.0 * shift


def _single_spread(part: Rounds) -> float:
    if isinstance(part, LaplaceRounds | ResponseRounds):
        return part.epsilon
    shift = part.sampling_probability * part.neighboring.sensitivity_factor
    return shift / part.noise_multiplier


def _interval(rounds: tuple[Rounds, ...]) -> float:
    """Return a discretisation as fine as the composed loss asks for, at a bounded cost.

    In exact arithmetic the estimate is pessimistic for every interval. Public parameters alone
    decide it.
    """
    spread = math.sqrt(sum(part.n_rounds * _single_spread(part) ** 2 for part in rounds))
    widest = max(_single_range(part) for part in rounds)
    return max(spread / 2**11, widest / 2**16, _FINEST_INTERVAL)


@lru_cache(maxsize=64)
def _composed(rounds: tuple[Rounds, ...]) -> Any:
    interval = _interval(rounds)
    first, *others = (_self_composed(part, interval) for part in rounds)
    composed = first
    for other in others:
        composed = composed.compose(other)
    return composed


def _self_composed(part: Rounds, interval: float) -> Any:
    try:
        from dp_accounting import privacy_accountant
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError as error:
        raise ImportError(
            "A privacy loss distribution needs dp-accounting: pip install 'skdpadmm[accounting]'"
        ) from error
    if isinstance(part, LaplaceRounds):
        one = privacy_loss_distribution.from_laplace_mechanism(
            parameter=1.0, sensitivity=part.epsilon, value_discretization_interval=interval
        )
        return one.self_compose(part.n_rounds)
    if isinstance(part, ResponseRounds):
        # The library speaks of the probability to answer at random, the truth included.
        n_labels, small = part.n_labels, math.exp(-part.epsilon)
        response = privacy_loss_distribution.from_randomized_response(
            noise_parameter=n_labels * small / (1.0 + (n_labels - 1) * small),
            num_buckets=n_labels,
            value_discretization_interval=interval,
        )
        return response.self_compose(part.n_rounds)
    relations = privacy_accountant.NeighboringRelation
    # REPLACE_ONE selects the antipodal pair (1-q) N(0) + q N(+-1): the library doubles the
    # sensitivity by itself, so the multiplier is the zero-out one in both relations.
    relation = {
        Neighboring.REPLACE_ONE: relations.REPLACE_ONE,
        Neighboring.ZERO_OUT: relations.REPLACE_SPECIAL,
    }[part.neighboring]
    single = privacy_loss_distribution.from_gaussian_mechanism(
        standard_deviation=min(part.noise_multiplier, _LARGEST_MULTIPLIER),
        sampling_prob=part.sampling_probability,
        neighboring_relation=relation,
        value_discretization_interval=interval,
    )
    return single.self_compose(part.n_rounds)
