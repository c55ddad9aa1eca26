"""Poisson subsampled Gaussian rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

from skdpadmm.privacy._formatting import round_down, round_up
from skdpadmm.privacy._guarantee import Guarantee
from skdpadmm.privacy._neighboring import Neighboring
from skdpadmm.privacy._pld import SampledRounds, pld_delta, pld_epsilon
from skdpadmm.privacy._validation import require, require_delta, require_epsilon


@dataclass(frozen=True)
class PoissonSubsampledGaussian(Guarantee):
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
        """Check the ranges."""
        object.__setattr__(self, "neighboring", Neighboring(self.neighboring))
        q, multiplier, n_rounds = self.sampling_probability, self.noise_multiplier, self.n_rounds
        require(0 < q <= 1, "sampling_probability", q, "a float in (0, 1]")
        require(0 < multiplier < math.inf, "noise_multiplier", multiplier, "a float in (0, inf)")
        require(
            isinstance(n_rounds, Integral) and n_rounds >= 1, "n_rounds", n_rounds, "an int >= 1"
        )

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of delta at ``epsilon`` in [0, inf]."""
        require_epsilon(epsilon)
        return pld_delta((self._rounds(),), epsilon)

    def epsilon(self, delta: float) -> float:
        """Return an upper bound of epsilon at ``delta`` in [0, 1]."""
        require_delta(delta)
        return pld_epsilon((self._rounds(),), delta)

    def dominates(self, other: Guarantee) -> bool:
        """Whether its delta is plainly at least another's: the same rounds, with less noise."""
        return (
            isinstance(other, PoissonSubsampledGaussian)
            and self.noise_multiplier <= other.noise_multiplier
            and replace(self, noise_multiplier=1.0) == replace(other, noise_multiplier=1.0)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and the four parameters."""
        return {
            "kind": "poisson_subsampled_gaussian",
            "sampling_probability": float(self.sampling_probability),
            "noise_multiplier": float(self.noise_multiplier),
            "n_rounds": int(self.n_rounds),
            "neighboring": str(self.neighboring),
        }

    def describe(self) -> str:
        """Return the three numbers in one phrase."""
        return (
            f"Poisson(q={round_up(self.sampling_probability)}) sampled Gaussian("
            f"multiplier={round_down(self.noise_multiplier)}), {self.n_rounds} rounds"
        )

    def _rounds(self) -> SampledRounds:
        return SampledRounds(
            self.sampling_probability, self.noise_multiplier, int(self.n_rounds), self.neighboring
        )
