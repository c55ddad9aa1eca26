"""The one adapter to dp-accounting's privacy loss distributions, and Poisson sampled rounds."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Any, NamedTuple

from skdpadmm.privacy import _numbers as numbers
from skdpadmm.privacy._guarantee import Guarantee, Neighboring
from skdpadmm.privacy._numbers import require

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


class Rounds(NamedTuple):
    """Equal rounds, by the law of one's loss of these parameters on a grid of a given interval."""

    law: Callable[..., Any]
    parameters: tuple[Any, ...]
    n_rounds: int
    # How far and how widely the loss of one round spreads.
    widest: float
    spread: float


def sampled_rounds(
    probability: float, multiplier: float, n_rounds: int, neighboring: Neighboring
) -> Rounds:
    """Poisson sampled Gaussian rounds; an unsampled release has probability 1."""
    shift = neighboring.sensitivity_factor / multiplier
    return Rounds(
        _sampled_law,
        (probability, min(multiplier, _LARGEST_MULTIPLIER), neighboring),
        n_rounds,
        widest=0.5 * shift * shift + 10.0 * shift,
        spread=probability * neighboring.sensitivity_factor / multiplier,
    )


def laplace_rounds(epsilon: float, n_rounds: int) -> Rounds:
    """Releases of one number each, a shift of ``epsilon`` under Laplace noise of scale 1."""
    return Rounds(_laplace_law, (epsilon,), n_rounds, widest=epsilon, spread=epsilon)


@numbers.quiet_underflow
def pld_delta(rounds: tuple[Rounds, ...], epsilon: float) -> float:
    """Return a delta which the composed rounds do not exceed at ``epsilon``."""
    if math.isinf(epsilon):
        return 0.0
    if _is_hopeless(rounds):
        return 1.0
    delta = _composed(rounds).get_delta_for_epsilon(min(epsilon, _LARGEST_LOSS))
    return float(min(1.0, max(0.0, delta) * _inflation(rounds) + _CONVOLUTION_ERROR))


@numbers.quiet_underflow
def pld_epsilon(rounds: tuple[Rounds, ...], delta: float) -> float:
    """Return an epsilon which the composed rounds do not exceed at ``delta``."""
    if delta >= 1.0:
        return 0.0
    if delta <= _CONVOLUTION_ERROR or _is_hopeless(rounds):
        return math.inf
    target = (delta - _CONVOLUTION_ERROR) / _inflation(rounds)
    return float(_composed(rounds).get_epsilon_for_delta(target))


def smaller(closed: float | None, composed: Callable[[], float]) -> float:
    """Return the smaller of two bounds; the first where dp-accounting is not installed."""
    try:
        return composed() if closed is None else min(closed, composed())
    except ImportError:
        if closed is None:
            raise
        return closed


def library(module: str) -> Any:
    """Return a module of dp-accounting."""
    try:
        return importlib.import_module(f"dp_accounting.{module}")
    except ImportError as error:
        raise ImportError(
            "This guarantee needs dp-accounting: pip install 'skdpadmm[accounting]'"
        ) from error


def _inflation(rounds: tuple[Rounds, ...]) -> float:
    return 1.0 + _LOST_PER_ROUND * sum(part.n_rounds for part in rounds)


def _is_hopeless(rounds: tuple[Rounds, ...]) -> bool:
    """Whether one round's loss leaves the range of exp; claiming nothing is then safe."""
    return any(part.widest > _LARGEST_LOSS for part in rounds)


def _interval(rounds: tuple[Rounds, ...]) -> float:
    """Return a discretisation as fine as the composed loss asks for, at a bounded cost.

    In exact arithmetic the estimate is pessimistic for every interval. Public parameters alone
    decide it.
    """
    spread = math.sqrt(sum(part.n_rounds * part.spread**2 for part in rounds))
    return max(spread / 2**11, max(part.widest for part in rounds) / 2**16, _FINEST_INTERVAL)


@lru_cache(maxsize=64)
def _composed(rounds: tuple[Rounds, ...]) -> Any:
    pld, interval = library("pld.privacy_loss_distribution"), _interval(rounds)
    first, *others = (p.law(pld, *p.parameters, interval).self_compose(p.n_rounds) for p in rounds)
    return reduce(lambda one, other: one.compose(other), others, first)


def _laplace_law(pld: Any, epsilon: float, interval: float) -> Any:
    return pld.from_laplace_mechanism(
        parameter=1.0, sensitivity=epsilon, value_discretization_interval=interval
    )


def _sampled_law(
    pld: Any, probability: float, multiplier: float, neighboring: Neighboring, interval: float
) -> Any:
    relations = library("privacy_accountant").NeighboringRelation
    # REPLACE_ONE selects the antipodal pair (1-q) N(0) + q N(+-1): the library doubles the
    # sensitivity by itself, so the multiplier is the zero-out one in both relations.
    relation = {
        Neighboring.REPLACE_ONE: relations.REPLACE_ONE,
        Neighboring.ZERO_OUT: relations.REPLACE_SPECIAL,
    }[neighboring]
    return pld.from_gaussian_mechanism(
        standard_deviation=multiplier,
        sampling_prob=probability,
        neighboring_relation=relation,
        value_discretization_interval=interval,
    )


@dataclass(frozen=True)
class PoissonSubsampledGaussian(Guarantee, kind="poisson_subsampled_gaussian"):
    """Gaussian rounds in each of which every unit takes part with probability q, unseen.

    Computed from dp-accounting's pessimistic privacy loss distribution (Doroshenko et al., PETS
    2022). Zero-out compares N(0, s^2) with (1-q) N(0, s^2) + q N(1, s^2), both ways; replace-one
    compares (1-q) N(0, s^2) + q N(1, s^2) with (1-q) N(0, s^2) + q N(-1, s^2). Accurate for delta
    well above 1e-12, the arithmetic's own error, which is part of every delta.

    Parameters
    ----------
    sampling_probability : float
        In (0, 1]: the chance to take part in a round. The sampled unit is the protected unit, and
        noise is added whatever the sample.
    noise_multiplier : float
        Noise standard deviation over the zero-out sensitivity, under BOTH relations.
    n_rounds : int
        At least 1.
    neighboring : Neighboring
        ``ZERO_OUT`` means that the participant is absent.

    Examples
    --------
    >>> from skdpadmm.privacy import Neighboring, PoissonSubsampledGaussian
    >>> sampled = PoissonSubsampledGaussian(0.1, 10.0, 1000, Neighboring.ZERO_OUT)
    >>> f"{sampled.epsilon(1e-6):.2f}"
    '1.38'
    """

    sampling_probability: float
    noise_multiplier: float
    n_rounds: int
    neighboring: Neighboring

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighboring", Neighboring(self.neighboring))
        q = self.sampling_probability
        require(0 < q <= 1, "sampling_probability", q, "a float in (0, 1]")
        numbers.require_positive(self.noise_multiplier, "noise_multiplier")
        numbers.require_count(self.n_rounds, "n_rounds")

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of delta at ``epsilon`` in [0, inf]."""
        numbers.require_epsilon(epsilon)
        return pld_delta(self._rounds(), epsilon)

    def epsilon(self, delta: float) -> float:
        """Return an upper bound of epsilon at ``delta`` in [0, 1]."""
        numbers.require_delta(delta)
        return pld_epsilon(self._rounds(), delta)

    def dominates(self, other: Guarantee) -> bool:
        """Whether its delta is plainly at least another's: the same rounds, with less noise."""
        return (
            isinstance(other, PoissonSubsampledGaussian)
            and self.noise_multiplier <= other.noise_multiplier
            and replace(self, noise_multiplier=1.0) == replace(other, noise_multiplier=1.0)
        )

    def describe(self) -> str:
        return (
            f"Poisson(q={numbers.round_up(self.sampling_probability)}) sampled Gaussian("
            f"multiplier={numbers.round_down(self.noise_multiplier)}), {self.n_rounds} rounds"
        )

    def _rounds(self) -> tuple[Rounds, ...]:
        q, noise, n = self.sampling_probability, self.noise_multiplier, int(self.n_rounds)
        return (sampled_rounds(q, noise, n, self.neighboring),)
