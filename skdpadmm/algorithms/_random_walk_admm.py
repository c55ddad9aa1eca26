"""Fully decentralised private ADMM: a token walks over agents, each of which keeps its own state.

Source: Cyffers, Bellet & Basu, "From Noisy Fixed-Point Iterations to Private ADMM for Centralized
and Federated Learning" (ICML 2023), Algorithm 4, corrected: the token carries the mean of states
before the proximal step of the penalty. As printed it carries the mean after it, and its fixed
points minimise the penalty alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from sklearn.base import BaseEstimator

from skdpadmm.algorithms._agent_proximal_steps import (
    ProximalStepsSettings,
    agent_proximal_steps,
    longest_step,
    proximal_settings,
)
from skdpadmm.algorithms._algorithm import penalty_operator
from skdpadmm.algorithms._clipped_loss import bounds_in_basis
from skdpadmm.algorithms._knobs import (
    check_count,
    check_range,
    check_steps,
    check_tail_fraction,
    is_number,
    tail_length,
)
from skdpadmm.algorithms._messages import calibrated_multiplier, spent_before
from skdpadmm.algorithms._network_steps import into_ball, noisy_solution
from skdpadmm.algorithms._noise_left import parameter_variance
from skdpadmm.algorithms._walks import (
    check_walk,
    contribution_cap,
    draw_hops,
    walk_length,
    walk_steps,
)
from skdpadmm.privacy import GaussianDP
from skdpadmm.protocol import (
    Budget,
    Facts,
    Gate,
    Plan,
    Problem,
    Release,
    Solution,
    View,
    network_of,
)

UPDATE = "update of the token"


@dataclass(frozen=True, kw_only=True)
class RandomWalkADMMSettings:
    """Constants of one run, resolved; symbols of the paper in brackets.

    Attributes
    ----------
    n_hops : int
        Length of the walk [K].
    max_contributions : int
        Visits of an agent at which it takes a step, a bound of [K_i].
    step_size : float
        Step of both proximal operators [gamma].
    relaxation : float
        [lambda].
    clip_norm : float
        Bound of the norm of a record's gradient, in units of the typical norm of a row [L].
    tolerance : float
        Certified distance of an inner solution from the exact one, in units of the distance that
        taking one record away can move that.
    n_averaged : int
        Hops at the end of the walk whose tokens are averaged.
    radius : float
        Of the ball that tokens and states are projected onto, in units of the distance that one
        record can move a state.
    inner : ProximalStepsSettings
    """

    n_hops: int
    max_contributions: int
    step_size: float
    relaxation: float
    clip_norm: float
    tolerance: float
    n_averaged: int
    radius: float
    inner: ProximalStepsSettings


class RandomWalkADMM(BaseEstimator):
    r"""Consensus ADMM without a server: a token carries the mean of the states of all agents.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all A agents. Agent a
    holds :math:`F_a = \frac A n \sum_{i \in a} f_i`, each f_i clipped, and a state :math:`u_a`.
    From zero, in each of K hops the holder a of the token :math:`\hat z` computes

    .. math::

        z &= \mathrm{prox}_{\gamma r}(\hat z), \qquad x = \mathrm{prox}_{\gamma F_a}(2 z - u_a) \\
        D &= 2 \lambda (x - z) + N(0, s^2 I), \qquad
        u_a \leftarrow u_a + D, \qquad \hat z \leftarrow \hat z + D / A

    and hands the token to a neighbour, by Metropolis weights, or keeps it. After its first
    `max_contributions` visits it hands it on as it is. The answer is :math:`\mathrm{prox}_{\gamma
    r}` of the average of the last tokens; an agent's own is the last z that it held, and 0 if the
    token never came. ``K = max_iter A``: the token is with each agent `max_iter` times on average.
    x is found by a public number of accelerated gradient steps.

    Parameters
    ----------
    step_size : float or "auto", default="auto"
        Step of the proximal operators (gamma), in [1e-100, 1e100]. One that takes more than 2,000
        inner steps at a hop is refused.
    clip_norm : float or "auto", default="auto"
        Bound of the Euclidean norm of a record's gradient (L), in units of the typical norm of a
        row; in [1e-100, 1e100]. It clips the derivative of the loss as a number, which Huberises
        the loss. With several scores it must not bind.
    relaxation : float, default=0.5
        lambda in (0, 1]: 0.5 is Douglas-Rachford, 1 Peaceman-Rachford.
    max_contributions : int or "auto", default="auto"
        Visits of an agent at which it uses its data, at least 1. "auto" is `max_iter`, the mean
        number of visits: more noise would cost more than the visits beyond.
    tail_fraction : float, default=0.5
        In (0, 1]: share of the walk, at its end, that is averaged. Free: all tokens count as
        released.
    tolerance : float, default=0.01
        In [1e-6, 1]: how far an inner solution may be from the exact one, in units of the distance
        that taking one record away can move that. Twice as much is added to the sensitivity.

    Notes
    -----
    **Guarantee.** Observers "eavesdropper" (sees the token after every hop), "peer" and "model":
    one figure for all three. Unit: one record. With c = 2 for replace-one and 1 for zero-out, where
    a record's loss becomes the zero function, a record moves the gradient of F_a by at most
    ``c L A / n``, and a proximal step by gamma times that. The states follow from what was
    released, so given the past an update is a Gaussian mechanism of sensitivity ``Delta = 2 lambda
    (gamma c L A / n + 2 tol)``, where tol is the certified distance of a computed x from the exact
    one. An agent takes part at most kappa times, so its records have GDP with ``mu = sqrt(kappa)
    Delta / s``, by exact composition, whatever the others do.

    A smaller figure against peers, who do not see all tokens, is printed in the paper and not
    proven: agents remember earlier tokens, and the token expands at a first visit. See
    :func:`skdpadmm.privacy.literature.token_admm_printed_rdp`. `RandomWalkProximalPoint` has no
    states, and figures against peers that hold.

    References
    ----------
    .. [1] E. Cyffers, A. Bellet, D. Basu, "From Noisy Fixed-Point Iterations to Private ADMM for
       Centralized and Federated Learning", ICML 2023, Algorithm 4, corrected as said above.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> model = DPDecentralizedRegressor(algorithm="random-walk-admm", n_agents=50, max_iter=20)
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> plan.settings.n_hops, plan.settings.max_contributions
    (1000, 20)
    >>> plan.guarantee("eavesdropper") == plan.guarantee("peer") == plan.guarantee("model")
    True
    """

    conditionable = False
    setting = "decentralized"
    exact = False

    def __init__(
        self,
        *,
        step_size: float | Literal["auto"] = "auto",
        clip_norm: float | Literal["auto"] = "auto",
        relaxation: float = 0.5,
        max_contributions: int | Literal["auto"] = "auto",
        tail_fraction: float = 0.5,
        tolerance: float = 0.01,
    ) -> None:
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.relaxation = relaxation
        self.max_contributions = max_contributions
        self.tail_fraction = tail_fraction
        self.tolerance = tolerance

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide the length of the walk, steps and noise from public facts.

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
            Where a knob is outside its range, inner problems cannot be solved to the tolerance, or
            a token cannot protect what is asked for.
        """
        self.check(facts)
        check_walk(facts, "RandomWalkADMM")
        network, n_hops = network_of(facts), walk_length(facts)
        cap = contribution_cap(self.max_contributions, facts)
        # In units of what taking one record away moves.
        factor = facts.neighboring.sensitivity_factor
        sensitivity = factor * facts.working_rounding + 2 * float(self.tolerance)
        (prior,) = spent_before(facts, budget)
        noise_std = calibrated_multiplier(
            lambda noise: GaussianDP(math.sqrt(cap) * sensitivity / noise),
            budget.epsilon,
            budget.delta,
            prior,
        )
        guarantees = (GaussianDP(math.sqrt(cap) * sensitivity / noise_std),)
        step_size, clip_norm = walk_steps(
            facts,
            sensitivity / noise_std,
            facts.max_iter,
            step_size=self.step_size,
            clip_norm=self.clip_norm,
        )
        bounds = bounds_in_basis(facts, None, clip_norm=clip_norm, row_bound=1.0)
        if self.step_size == "auto":
            step_size = min(step_size, longest_step(facts, bounds))
        shape = (facts.n_parameters, facts.loss.n_outputs)
        radius = _farthest(facts, cap, noise_std * math.sqrt(math.prod(shape)))
        inner = proximal_settings(
            facts,
            bounds,
            step_size=step_size,
            tolerance=float(self.tolerance),
            # Of 2 z - u, in units of a step.
            farthest=3 * 2 * self.relaxation * radius,
            advice=f"Got step_size={step_size:g} and tolerance={self.tolerance:g}, expected a"
            " shorter step or a larger tolerance",
        )
        release = Release(
            name=UPDATE,
            shape=shape,
            sensitivities=(sensitivity,) * n_hops,
            noise_std=noise_std,
            agent_noise_std=(noise_std,),
            views=tuple(View(observer=o, guarantees=guarantees) for o in network.observers),
        )
        return Plan(
            algorithm="RandomWalkADMM",
            facts=facts,
            budget=budget,
            settings=RandomWalkADMMSettings(
                n_hops=n_hops,
                max_contributions=cap,
                step_size=step_size,
                relaxation=float(self.relaxation),
                clip_norm=clip_norm,
                tolerance=float(self.tolerance),
                n_averaged=tail_length(self.tail_fraction, n_hops),
                radius=radius,
                inner=inner,
            ),
            releases=(*facts.preparations, release),
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Walk as planned; every number in the solution has passed the gate.

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
        settings: RandomWalkADMMSettings = plan.settings
        n_agents, gamma = network_of(facts).n_agents, settings.step_size
        bounds = bounds_in_basis(facts, None, clip_norm=settings.clip_norm, row_bound=1.0)
        length = 2 * settings.relaxation * gamma * bounds.gradient_norm * n_agents / facts.n_samples
        prox = penalty_operator(facts.penalty, gamma, rows)
        token = tail = np.zeros((facts.n_parameters, facts.loss.n_outputs))
        states, own = np.zeros((2, n_agents, *token.shape))
        # Projections onto a public ball, which only a draw of the noise that never comes would
        # leave: so the rounding of scores has a bound.
        radius = length * settings.radius
        proximal_step = agent_proximal_steps(
            facts, problem, bounds, settings.inner, step_size=gamma
        )
        hops = draw_hops(facts, settings.max_contributions, gate)
        for hop, (agent, contributes) in enumerate(zip(*hops, strict=True), start=1):
            own[agent] = z = prox(token)
            if contributes:
                moved = proximal_step(int(agent), 2 * z - states[agent]) - z
                update = gate.release(UPDATE, 2 * settings.relaxation * moved / length)
                states[agent] += length * update
                states[agent] = into_ball(states[[agent]], radius)[0]
                token = into_ball((token + length * update / n_agents)[None], radius)[0]
            else:
                gate.skip(UPDATE)
            if hop > settings.n_hops - settings.n_averaged:
                tail = tail + token / settings.n_averaged
            if hop % n_agents == 0:
                problem.progress(hop // n_agents)
        parameters = prox(tail)
        variance = parameter_variance(
            rows=rows,
            smoothness=facts.loss.smoothness,
            step_size=2 * settings.relaxation * gamma,
            noise_std=bounds.gradient_norm
            * plan.releases[-1].noise_std
            * math.sqrt(n_agents)
            / facts.n_samples,
            n_iter=facts.max_iter,
            n_averaged=max(1, settings.n_averaged // n_agents),
        )
        return noisy_solution(
            facts,
            rows,
            parameters,
            variance,
            has_zeros=facts.penalty.is_sparse,
            parameters_per_agent=own,
            n_iter=settings.n_hops,
            n_rounds=settings.n_hops,
            n_messages=hops.n_messages(n_agents),
            derivative_bound=settings.clip_norm,
        )

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_steps(self.step_size, self.clip_norm)
        check_range("tolerance", self.tolerance, 1e-6, 1.0, auto=False)
        check_tail_fraction(self.tail_fraction)
        if self.max_contributions != "auto":
            check_count("max_contributions", self.max_contributions)
        if not (is_number(self.relaxation) and 0 < self.relaxation <= 1):
            raise ValueError(f"Got relaxation={self.relaxation!r}, expected a float in (0, 1].")


def _farthest(facts: Facts, cap: int, noise: float) -> float:
    """Bound of the norm of a state, in units of what one record moves: signal and noise."""
    return 4.0 * (cap * max(network_of(facts).agent_sizes) + noise * math.sqrt(cap))
