"""Consensus ADMM over a graph whose agents tilt their problems: dual perturbation.

Source: T. Zhang, Q. Zhu, "Dynamic differential privacy for ADMM-based distributed classification
learning", IEEE Transactions on Information Forensics and Security 12, 2017, Algorithm 1 (DVP), with
Gaussian noise, composition over rounds, and a proven accounting: `perturbed_objective_rdp`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skdpadmm.algorithms.blocks._agent_minimisers import (
    AgentMinimisersSettings,
    agent_minimisers,
    minimiser_bounds,
    minimiser_settings,
    record_curvature,
)
from skdpadmm.algorithms.blocks._clipped_loss import derivative_kind, typical_norm
from skdpadmm.algorithms.blocks._neighbor_consensus import NeighborConsensus, averaged_rounds
from skdpadmm.algorithms.blocks._network_steps import network_solution
from skdpadmm.algorithms.planning._defaults import default_steps, is_regression
from skdpadmm.algorithms.planning._knobs import (
    check_count,
    check_range,
    check_steps,
    check_tail_fraction,
    tail_length,
)
from skdpadmm.algorithms.planning._linear_terms import HALF_CELL, LONGEST_DRAW, NEVER
from skdpadmm.algorithms.planning._messages import spent_before
from skdpadmm.privacy import (
    GaussianDP,
    Guarantee,
    LossDerivative,
    PerturbedObjectiveDP,
    calibrate_noise,
    compose,
    gaussian_mu,
    perturbed_objective_rdp,
)
from skdpadmm.protocol import (
    AgentMessages,
    Budget,
    Facts,
    Gate,
    HiddenTerm,
    Plan,
    Problem,
    Solution,
    View,
    network_of,
)

LINEAR_TERMS = "linear terms of agents"
MINIMISERS = "minimisers of agents"
# Share of the squared budget that covers inexact solutions, and their tolerance beside the effect
# of one record on a problem as curved as it can be.
OUTPUT_SHARE, TOLERANCE = 0.02, 0.01
# Share of epsilon that the determinants, which noise does not hide, may cost.
DETERMINANT_SHARE = 1 / 6


@dataclass(frozen=True, kw_only=True)
class DualPerturbationADMMSettings:
    """Constants of one run, resolved; symbols of the paper in brackets.

    Attributes
    ----------
    n_rounds : int
        Broadcasts.
    penalty_weight : float
        Of the consensus constraint [rho].
    clip_norm : float
        Bound of the norm of a record's gradient, in units of the typical norm of a row [L].
    tolerance : float
        Certified distance of a computed minimiser from the exact one, in units of the distance that
        one record's gradient can move that.
    n_averaged : int
        Length of the averaged tail of the path.
    minimisers : AgentMinimisersSettings
    """

    n_rounds: int
    penalty_weight: float
    clip_norm: float
    tolerance: float
    n_averaged: int
    minimisers: AgentMinimisersSettings


class DualPerturbationADMM(BaseEstimator):
    r"""Each agent adds a random linear term to its problem, and sends the solution.

    The rounds of :class:`PrimalPerturbationADMM`, with :math:`\langle b_a, w \rangle`,
    :math:`b_a \sim N(0, \sigma^2 I)` drawn anew in every round, in the problem of agent a in place
    of noise on its solution. The solution takes a little noise as well, which covers the distance
    that a public number of accelerated gradient steps leaves.

    What it costs grows in proportion to the number of rounds, not to its root, because the linear
    term does not hide the curvature of a record's loss. It is a method of few rounds.

    Parameters
    ----------
    max_rounds : int, default=10
        At least 1: the number of rounds is the smaller of this and `max_iter` of the estimator.
    clip_norm : float or "auto", default="auto"
        Bound of the Euclidean norm of a record's gradient (L), in units of the typical norm of a
        row; in [1e-100, 1e100]. It clips the derivative of the loss as a number, which Huberises
        the loss.
    penalty_weight : float or "auto", default="auto"
        How strongly neighbours are pulled together (rho), in [1e-100, 1e100]. "auto" follows the
        common rule of step sizes, and is no less than what keeps a record's curvature beside it
        at a sixth of epsilon over all rounds.
    tail_fraction : float, default=0.5
        In (0, 1]: share of all rounds, at their end, that is averaged. Free: all count as released.

    Notes
    -----
    **Guarantee.** Observers "eavesdropper" (sees every message), "peer" and "model": one figure for
    all three. Unit: one record; losses of one score, for which `perturbed_objective_rdp` is proven.
    Given what was released before, agent a minimises a sum of convex losses with gradients of at
    most L and curvature of at most :math:`\beta`, plus what is public and has a curvature of
    :math:`\lambda_a = 2 \rho |N_a| n / A`, in units of that sum: the theorem is used with the
    smallest of them. The computed minimiser is within a certified distance t of the exact one on
    every data set, rounding of b to the gate's grid included. So given the exact minimiser, what is
    released is a Gaussian mechanism of sensitivity 2 t, and what agents go on with is made of that
    release alone. Renyi divergences of the rounds add. Where agents have budgets of their own, all
    add the noise that the smallest asks for.

    References
    ----------
    .. [1] T. Zhang, Q. Zhu, "Dynamic differential privacy for ADMM-based distributed classification
       learning", IEEE Transactions on Information Forensics and Security 12, 2017.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> model = DPDecentralizedRegressor(algorithm="dual-perturbation-admm", topology="ring")
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> [(release.name, release.times) for release in plan.releases]
    [('linear terms of agents', 10), ('minimisers of agents', 10)]
    """

    conditionable = False
    setting = "decentralized"
    exact = False

    def __init__(
        self,
        *,
        max_rounds: int = 10,
        clip_norm: float | Literal["auto"] = "auto",
        penalty_weight: float | Literal["auto"] = "auto",
        tail_fraction: float = 0.5,
    ) -> None:
        self.max_rounds = max_rounds
        self.clip_norm = clip_norm
        self.penalty_weight = penalty_weight
        self.tail_fraction = tail_fraction

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_count("max_rounds", self.max_rounds)
        check_steps("auto", self.clip_norm)
        check_range("penalty_weight", self.penalty_weight, 1e-100, 1e100)
        check_tail_fraction(self.tail_fraction)

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide weights, noise and the number of inner steps from public facts.

        Parameters
        ----------
        facts : Facts
            Of a network.
        budget : Budget
            With a finite epsilon.

        Returns
        -------
        Plan

        Raises
        ------
        ValueError
            Where a knob is outside its range, or the loss or a bound outside that of the theorem.
        """
        self.check(facts)
        _check_facts(facts)
        network = network_of(facts)
        n_rounds = min(facts.max_iter, int(self.max_rounds))
        epsilon = min(network.budgets(budget.epsilon))
        clip_norm, penalty_weight = self._weights(facts, replace(budget, epsilon=epsilon), n_rounds)
        consensus = NeighborConsensus(topology=network.topology, penalty_weight=penalty_weight)
        curvature = record_curvature(facts, clip_norm, consensus)
        output = GaussianDP(gaussian_mu(epsilon, budget.delta) * math.sqrt(OUTPUT_SHARE))
        noise_std = _calibrated(facts, budget, clip_norm, curvature, n_rounds, output)
        smoothness = 1 + max(network.agent_sizes) * curvature
        # The linear term is a rounded one: the minimiser for the other is as far away, at most.
        rounded = noise_std * HALF_CELL * math.sqrt(facts.n_parameters)
        tolerance = TOLERANCE * facts.neighboring.sensitivity_factor / smoothness
        settings = DualPerturbationADMMSettings(
            n_rounds=n_rounds,
            penalty_weight=penalty_weight,
            clip_norm=clip_norm,
            tolerance=tolerance + rounded,
            n_averaged=tail_length(self.tail_fraction, n_rounds),
            minimisers=minimiser_settings(
                facts,
                consensus,
                n_rounds=n_rounds,
                clip_norm=clip_norm,
                tolerance=tolerance,
                noise=noise_std * (math.sqrt(facts.n_parameters) + LONGEST_DRAW),
                advice=f"Got penalty_weight={penalty_weight:g}, expected a larger weight",
            ),
        )
        shape = (network.n_agents, facts.n_parameters, 1)
        term = HiddenTerm(
            name=LINEAR_TERMS,
            shape=shape,
            noise_std=noise_std,
            guarantee=_minimisers(facts, clip_norm, curvature, n_rounds, noise_std),
            seen_by=network.observers,
            times=n_rounds,
        )
        return Plan(
            algorithm="DualPerturbationADMM",
            facts=facts,
            budget=budget,
            settings=settings,
            releases=(*facts.preparations, term, _release(facts, settings, shape, output)),
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Run the rounds as planned; every number in the solution has passed the gate.

        Parameters
        ----------
        plan : Plan
        problem : Problem
            With an ownership.
        gate : Gate

        Returns
        -------
        Solution
        """
        facts, rows = plan.facts, problem.rows
        settings: DualPerturbationADMMSettings = plan.settings
        network = network_of(facts)
        consensus = NeighborConsensus(
            topology=network.topology, penalty_weight=settings.penalty_weight
        )
        clip_norm = settings.clip_norm * rows.clip_unit
        units, solve = agent_minimisers(
            facts, problem, consensus, settings.minimisers, clip_norm=clip_norm
        )

        def broadcast(pull: NDArray[np.float64]) -> NDArray[np.float64]:
            _, minimisers = solve(pull, gate.hidden_term(LINEAR_TERMS))
            return units * gate.release(MINIMISERS, minimisers)

        answers = averaged_rounds(
            consensus,
            broadcast,
            np.zeros((network.n_agents, facts.n_parameters, facts.loss.n_outputs)),
            n_rounds=settings.n_rounds,
            n_averaged=settings.n_averaged,
            progress=problem.progress,
        )
        (term,) = (r for r in plan.releases if isinstance(r, HiddenTerm))
        return network_solution(
            plan,
            rows,
            answers,
            last_step=None,
            noise_std=clip_norm * term.noise_std * math.sqrt(network.n_agents) / facts.n_samples,
            step_size=float(np.mean(1 / consensus.curvature)),
            n_iter=settings.n_rounds,
            n_averaged=settings.n_averaged,
            n_rounds=settings.n_rounds,
            derivative_bound=clip_norm / rows.typical_norm,
        )

    def _weights(self, facts: Facts, budget: Budget, n_rounds: int) -> tuple[float, float]:
        """Clip bound and penalty weight."""
        network = network_of(facts)
        clip_norm = 0.4 if is_regression(facts) else 0.7
        if self.clip_norm != "auto":
            clip_norm = float(self.clip_norm)
        # The theorem counts in units of the smallest bound of gradients that is known.
        clip_norm = minimiser_bounds(facts, clip_norm).gradient_norm / typical_norm(facts)
        if self.penalty_weight != "auto":
            return clip_norm, float(self.penalty_weight)
        mu = gaussian_mu(budget.epsilon, budget.delta) / math.sqrt(network.n_agents)
        step_size, _ = default_steps(replace(facts, max_iter=n_rounds), mu)
        fewest = max(int(network.topology.degrees.min()), 1)
        share = network.n_agents / facts.n_samples * minimiser_bounds(facts, clip_norm).curvature
        needed = share * n_rounds / (DETERMINANT_SHARE * budget.epsilon)
        return clip_norm, max(1 / step_size, needed) / (2.0 * fewest)


def _one_round(
    facts: Facts, clip_norm: float, curvature: float, noise_std: float
) -> PerturbedObjectiveDP:
    """What one exact minimiser costs, with noise in units of the gradient bound."""
    kind, bounds = derivative_kind(facts.loss), minimiser_bounds(facts, clip_norm)
    saturation = min(1.0, bounds.gradient_norm / bounds.row_norm)
    # Clipped contributions and norms of rows hold up to rounding.
    return PerturbedObjectiveDP(
        gradient_ratio=facts.working_rounding / noise_std,
        curvature_ratio=curvature,
        neighboring=facts.neighboring,
        derivative=kind,
        saturation=saturation if kind is LossDerivative.LOGISTIC else 1.0,
    )


def _minimisers(
    facts: Facts, clip_norm: float, curvature: float, n_rounds: int, noise_std: float
) -> Guarantee:
    """What the exact minimisers of all rounds cost a record of any agent."""
    return perturbed_objective_rdp(_one_round(facts, clip_norm, curvature, noise_std), n_rounds)


def _calibrated(
    facts: Facts,
    budget: Budget,
    clip_norm: float,
    curvature: float,
    n_rounds: int,
    output: GaussianDP,
) -> float:
    """Noise of the linear terms, in units of the gradient bound, that meets every budget."""

    @cache
    def calibrated(epsilon: float, prior: Guarantee) -> float:
        def at(noise_std: float) -> Guarantee:
            minimisers = _minimisers(facts, clip_norm, curvature, n_rounds, noise_std)
            return compose(prior, minimisers, output)

        if at(1e100).delta(epsilon) > 0.5 * budget.delta:
            raise ValueError(
                f"Got {n_rounds} rounds of problems in which the curvature of one record is"
                f" {curvature:.3g} of the penalty's at epsilon={epsilon:g}, expected less: that"
                " alone tells more than the budget allows. Use fewer max_rounds, or a larger"
                " penalty_weight or 'auto'."
            )
        return calibrate_noise(at, epsilon, budget.delta * (1 - NEVER)) * (1 + 1e-12)

    budgets = network_of(facts).budgets(budget.epsilon)
    return max(calibrated(*pair) for pair in zip(budgets, spent_before(facts, budget), strict=True))


def _release(
    facts: Facts,
    settings: DualPerturbationADMMSettings,
    shape: tuple[int, ...],
    output: GaussianDP,
) -> AgentMessages:
    """Noise on the solutions that covers what inner steps and rounding leave."""
    network = network_of(facts)
    sensitivity, n_kinds = 2 * settings.tolerance, len(network.sizes)
    noise_std = sensitivity * math.sqrt(settings.n_rounds) / output.mu * (1 + 1e-12)
    return AgentMessages(
        name=MINIMISERS,
        shape=shape,
        sensitivities=(sensitivity,) * settings.n_rounds,
        noise_std=noise_std,
        seen_by=network.observers,
        shares=(noise_std,) * n_kinds,
        views=tuple(
            View(observer=observer, guarantees=(output,) * n_kinds, worst_cases=(output,) * n_kinds)
            for observer in network.observers
        ),
    )


def _check_facts(facts: Facts) -> None:
    if facts.unit != "record":
        raise ValueError(
            f"Got privacy_unit={facts.unit!r} for DualPerturbationADMM, expected 'record': the"
            " theorem is about the gradient of one record. Use PrimalPerturbationADMM."
        )
    if facts.loss.n_outputs > 1:
        raise ValueError(
            f"Got {facts.loss.n_outputs} scores for DualPerturbationADMM, expected one: with"
            " several the direction of a record's gradient depends on the noise. Use"
            " PrimalPerturbationADMM for more than two classes."
        )
