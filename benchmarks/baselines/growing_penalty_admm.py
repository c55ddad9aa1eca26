"""ADMM with a penalty that grows from round to round, so that noise in what is sent shrinks.

Source: X. Zhang, M. M. Khalili, M. Liu, "Improving the privacy and accuracy of ADMM-based
distributed algorithms", ICML 2018, M-ADMM, with Gaussian noise on what is sent, as in
`PrimalPerturbationADMM`, and exact composition.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from skdpadmm.algorithms import Interval, parameter

from .primal_perturbation_admm import PrimalPerturbationADMM


@dataclass(kw_only=True, eq=False, repr=False)
class GrowingPenaltyADMM(PrimalPerturbationADMM):
    r"""Primal perturbation with :math:`\rho_k = \rho_1 \, \text{growth}^{k - 1}`.

    Duals move by :math:`\rho_1` in all rounds.

    **Guarantee.** That of primal perturbation. A record moves a minimiser by at most
    ``C A / (n c_a)``, where ``c_a`` grows with rho: noise has the same size in those units in all
    rounds, and in models it shrinks as rho grows.

    Parameters
    ----------
    growth : float, default=1.05
        At least 1. `penalty_weight` is that of the first round.
    """

    growth: float = parameter(1.05, Interval(Real, 1, 2, closed="both"))

    def penalty_weights(self, first: float, n_rounds: int) -> list[float]:
        return [first * self.growth**k for k in range(n_rounds)]
