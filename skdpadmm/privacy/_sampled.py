"""Poisson sampled Gaussian rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from skdpadmm import _numbers as numbers
from skdpadmm._numbers import require
from skdpadmm.privacy import _pld as pld
from skdpadmm.privacy._convolution import composed_delta, composed_epsilon
from skdpadmm.privacy._guarantee import Guarantee, Neighboring, Rounds

# More noise than this is credited as this much: the density of such a law cannot be resolved.
_LARGEST_MULTIPLIER = 1e9


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
        return composed_delta(self.rounds(), epsilon)

    def epsilon(self, delta: float) -> float:
        """Return an upper bound of epsilon at ``delta`` in [0, 1]."""
        numbers.require_delta(delta)
        return composed_epsilon(self.rounds(), delta)

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

    def rounds(self) -> Rounds:
        return ((replace(self, n_rounds=1), int(self.n_rounds)),)

    def widest_loss(self) -> float:
        shift = self.neighboring.sensitivity_factor / self.noise_multiplier
        return 0.5 * shift * shift + 10.0 * shift

    def infinite_loss(self) -> float:
        return 0.0

    def loss_std(self) -> float:
        shift = self.neighboring.sensitivity_factor / self.noise_multiplier
        return self.sampling_probability * shift * math.sqrt(self.n_rounds)

    def loss_distribution(self, interval: float) -> Any:
        """Return the distribution of one round: of the exact pair, in each direction."""
        relations = pld.library("privacy_accountant").NeighboringRelation
        # REPLACE_ONE selects the antipodal pair (1-q) N(0) + q N(+-1): the library doubles the
        # sensitivity by itself, so the multiplier is the zero-out one in both relations.
        is_replace_one = self.neighboring is Neighboring.REPLACE_ONE
        relation = relations.REPLACE_ONE if is_replace_one else relations.REPLACE_SPECIAL
        return pld.library("pld.privacy_loss_distribution").from_gaussian_mechanism(
            standard_deviation=min(self.noise_multiplier, _LARGEST_MULTIPLIER),
            sampling_prob=self.sampling_probability,
            neighboring_relation=relation,
            value_discretization_interval=interval,
        )
