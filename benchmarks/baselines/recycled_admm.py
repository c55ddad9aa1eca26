"""Recycled ADMM: every second round makes its models of what is already public.

Source: X. Zhang, M. M. Khalili, M. Liu, "Recycled ADMM: improving the privacy and accuracy of
distributed algorithms", IEEE Transactions on Information Forensics and Security 15, 2020,
Algorithm 2, with Gaussian noise on what is sent, as in `PrimalPerturbationADMM`, and exact
composition.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

from skdpadmm.algorithms import Interval, parameter

from . import _network as consensus
from .primal_perturbation_admm import PrimalPerturbationADMM


@dataclass(kw_only=True, eq=False, repr=False)
class RecycledADMM(PrimalPerturbationADMM):
    r"""Primal perturbation in rounds 1, 3, 5, ..., and post-processing in those between.

    A minimiser :math:`w_a` of :math:`F_a(w) + r(w) + \frac{c_a}2 |w|^2 - \langle p_a, w \rangle`
    reveals the gradient of :math:`F_a + r` there, :math:`p_a - c_a w_a`: up to the noise, which is
    in :math:`w_a` already. The next round minimises that linear function, with
    :math:`\frac\gamma2 |w - w_a|^2`, in place of :math:`F_a + r`.

    **Guarantee.** That of primal perturbation with half as many releases: a round that uses no data
    is post-processing. So its noise is smaller by the root of two.

    Parameters
    ----------
    proximal_weight : float, default=0
        Gamma, beside ``c_a = 1``.
    """

    proximal_weight: float = parameter(0.0, Interval(Real, 0, 1e6, closed="both"))

    def n_noisy(self, n_rounds: int) -> int:
        return (n_rounds + 1) // 2

    def sent(self, solve: consensus.Solve) -> consensus.Solve:
        last: list[Any] = []

        def send(linear: Any, curvature: Any) -> Any:
            if last:
                models, slope = last
                last.clear()
                weight = self.proximal_weight * curvature
                return (linear - slope + weight * models) / (curvature + weight)
            models = solve(linear, curvature)
            last.extend([models, linear - curvature * models])
            return models

        return send
