r"""A token without a memory: each agent that it meets takes a noisy proximal step with it.

Source: the stateless variant of the fully decentralised ADMM of Cyffers, Bellet & Basu, "From Noisy
Fixed-Point Iterations to Private ADMM for Centralized and Federated Learning" (ICML 2023),
Algorithm 4, for whose own token the printed bound against peers does not hold.

The proximal step of the penalty is ``theta * gamma`` long, as far as the relaxed step of an agent
goes. With gamma the fixed points would be those of a penalty that is 1 / theta times as strong. A
hop without data leaves the penalty out as well, so the two are always in proportion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
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
    is_number,
)
from skdpadmm.algorithms._messages import calibrated_multiplier, spent_before
from skdpadmm.algorithms._network_steps import into_ball, noisy_solution
from skdpadmm.algorithms._walks import (
    GRID,
    StatelessToken,
    TokenPairs,
    check_walk,
    contribution_cap,
    draw_hops,
    token_walk,
    walk_assumptions,
    walk_costs,
    walk_length,
    walk_steps,
)
from skdpadmm.noise import GRID_CELL
from skdpadmm.privacy import compose
from skdpadmm.protocol import (
    PEER,
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
from skdpadmm.records import Rows

TOKEN = "token"
# Roundings of a token in one hop, each by at most its length times 2**-53; a generous count.
ROUNDINGS = 64


@dataclass(frozen=True, kw_only=True)
class RandomWalkProximalPointSettings:
    """Constants of one run, resolved; symbols of the docstring in brackets.

    Attributes
    ----------
    n_hops : int
        Length of the walk [K].
    max_contributions : int
        Visits of an agent at which it uses its data [kappa].
    step_size : float
        Of agents' proximal operators [gamma].
    relaxation : float
        [theta].
    clip_norm : float
        Bound of the norm of a record's gradient, in units of the typical norm of a row [C].
    tolerance : float
        Certified distance of an inner solution from the exact one, in units of the distance that
        taking one record away can move that.
    radius : float
        Of the ball that tokens are projected onto, in units of the distance that one record can
        move a token.
    inner : ProximalStepsSettings
    """

    n_hops: int
    max_contributions: int
    step_size: float
    relaxation: float
    clip_norm: float
    tolerance: float
    radius: float
    inner: ProximalStepsSettings


class RandomWalkProximalPoint(BaseEstimator):
    r"""Stochastic proximal point by a token that walks over the graph and takes noise at each hop.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all A agents, up to a
    bias that is proportional to the step. Agent a holds :math:`F_a = \frac A n \sum_{i \in a} f_i`,
    each f_i clipped. From :math:`y = 0`, in each of K hops the holder a computes

    .. math::

        z = \mathrm{prox}_{\theta \gamma r}(y), \qquad x = \mathrm{prox}_{\gamma F_a}(z), \qquad
        y \leftarrow z + \theta (x - z) + N(0, s^2 I)

    and hands y to a neighbour, by Metropolis weights, or keeps it. After its first
    `max_contributions` visits it adds noise only: :math:`y \leftarrow y + N(0, s^2 I)`. All agents
    end up with :math:`\mathrm{prox}_{\theta \gamma r}` of the last y. ``K = max_iter A``: the token
    is with each agent `max_iter` times on average. x is found by a public number of accelerated
    gradient steps.

    Parameters
    ----------
    step_size : float or "auto", default="auto"
        Step of agents' proximal operators (gamma), in [1e-100, 1e100]. One that takes more than
        2,000 inner steps at a hop is refused.
    clip_norm : float or "auto", default="auto"
        Bound of the Euclidean norm of a record's gradient (C), in units of the typical norm of a
        row; in [1e-100, 1e100]. It clips the derivative of the loss as a number, which Huberises
        the loss. With several scores it must not bind.
    relaxation : float, default=1.0
        theta in (0, 1].
    max_contributions : int or "auto", default="auto"
        Visits of an agent at which it uses its data (kappa), at least 1. "auto" is `max_iter`, the
        mean number of visits: more noise would cost more than the visits beyond.
    tolerance : float, default=0.01
        In [1e-6, 1]: how far an inner solution may be from the exact one, in units of the distance
        that taking one record away can move that, divided by the number of agents.

    Notes
    -----
    Unit: one record. Let c = 2 for replace-one and 1 for zero-out, where a record's loss becomes
    the zero function. There are three observers, each at its own figure: "eavesdropper" sees y
    after every hop; "peer" is any agent, or a coalition, that sees y whenever it arrives, and the
    model; "model" sees the model alone.

    **Sensitivity.** One record moves the gradient of F_a by at most ``c C A / n``, so it moves x by
    at most gamma times that and y by ``Delta = theta gamma c C A / n``, from the same token.

    **Eavesdropper.** At most kappa of an agent's hops depend on its data: GDP with ``mu =
    sqrt(kappa) Delta / s``, by exact composition, whatever the others do.

    **Peer, model.** A proximal operator of a convex function is firmly non-expansive, and clipped
    losses are convex; so each hop is non-expansive. Hops that follow a contribution add noise that
    hides it: met again after m hops, it costs ``mu^2 / m``, see `TokenWalk`, which averages over
    the walk. This needs the walk to be as random as planned, and all agents but the observers to
    add their noise. Where `TokenWalk` has no law of the walk, the figure is that of the
    eavesdropper. The figure "at worst" is that of the worst walk.

    **Inner accuracy.** Let tol be the distance of a computed x from the exact one, certified for
    every point in the public ball that tokens are projected onto. A hop takes two tokens apart by
    ``2 theta tol`` at most, and by the rounding to the gate's grid, even where it does not touch
    the record. So the shift grows as it is absorbed: with c the sum of the two, a gap of m hops
    absorbs ``Delta / m + c`` in each, and altogether ``mu^2 s^2 = Delta^2 S + 2 kappa Delta c + K
    c^2``, where S is the sum of 1 / m over contributions. The tolerance is divided by the number of
    agents because a gap is about as long.

    References
    ----------
    .. [1] E. Cyffers, A. Bellet, D. Basu, "From Noisy Fixed-Point Iterations to Private ADMM for
       Centralized and Federated Learning", ICML 2023, Algorithm 4, without states of agents.
    .. [2] J. Bok, W. Su, J. Altschuler, "Shifted interpolation for differential privacy",
       ICML 2024, arXiv 2403.00278.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> model = DPDecentralizedRegressor(
    ...     algorithm="random-walk-proximal-point", n_agents=50, max_iter=20, adversary="peer"
    ... )
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> plan.settings.n_hops, plan.settings.max_contributions
    (1000, 20)
    >>> [round(plan.guarantee(who).epsilon(1e-5), 1) for who in ("eavesdropper", "peer")]
    [2.4, 1.0]
    """

    conditionable = False
    setting = "decentralized"
    exact = False

    def __init__(
        self,
        *,
        step_size: float | Literal["auto"] = "auto",
        clip_norm: float | Literal["auto"] = "auto",
        relaxation: float = 1.0,
        max_contributions: int | Literal["auto"] = "auto",
        tolerance: float = 0.01,
    ) -> None:
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.relaxation = relaxation
        self.max_contributions = max_contributions
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
        check_walk(facts, "RandomWalkProximalPoint")
        network, n_hops = network_of(facts), walk_length(facts)
        cap = contribution_cap(self.max_contributions, facts)
        walk = token_walk(network, n_hops, cap)
        costs = walk_costs(network, walk, cap)
        # Lengths in units of what taking one record away moves.
        tolerance = float(self.tolerance) / network.n_agents
        delta = facts.neighboring.sensitivity_factor * facts.working_rounding
        shape = (facts.n_parameters, facts.loss.n_outputs)
        token = StatelessToken(
            n_hops=n_hops,
            cap=cap,
            drift=2 * tolerance / delta,
            grid=GRID * math.sqrt(math.prod(shape)),
        )
        (prior,) = spent_before(facts, budget)
        multiplier = calibrated_multiplier(
            lambda noise: token.guarantee(costs[budget.observer], 1.0 / noise),
            budget.epsilon,
            budget.delta,
            prior,
        )
        mu = 1.0 / multiplier
        step_size, clip_norm = walk_steps(
            facts, mu, n_hops, step_size=self.step_size, clip_norm=self.clip_norm
        )
        bounds = bounds_in_basis(facts, None, clip_norm=clip_norm, row_bound=1.0)
        if self.step_size == "auto":
            step_size = min(step_size / self.relaxation, longest_step(facts, bounds))
        noise_std = multiplier * delta
        radius = _farthest(facts, n_hops, cap, noise_std * math.sqrt(math.prod(shape)))
        _require_resolution(facts, radius / noise_std)
        inner = proximal_settings(
            facts,
            bounds,
            step_size=step_size,
            tolerance=tolerance,
            farthest=self.relaxation * radius,
            advice=f"Got step_size={step_size:g} and tolerance={self.tolerance:g}, expected a"
            " shorter step or a larger tolerance",
        )
        pairs = None
        if walk is not None:
            before = [release.view(PEER).guarantees[0] for release in facts.preparations]
            pairs = TokenPairs(walk, token, mu, compose(*before))
        release = Release(
            name=TOKEN,
            shape=shape,
            sensitivities=(delta * (1 + token.drift),) * n_hops,
            noise_std=noise_std,
            agent_noise_std=(noise_std,),
            views=tuple(
                View(
                    observer=observer,
                    guarantees=(token.guarantee(costs[observer], mu),),
                    worst_cases=(token.direct(mu),),
                    pairs=pairs if observer == PEER else None,
                )
                for observer in network.observers
            ),
        )
        return Plan(
            algorithm="RandomWalkProximalPoint",
            facts=facts,
            budget=budget,
            settings=RandomWalkProximalPointSettings(
                n_hops=n_hops,
                max_contributions=cap,
                step_size=step_size,
                relaxation=float(self.relaxation),
                clip_norm=clip_norm,
                tolerance=tolerance,
                radius=radius,
                inner=inner,
            ),
            releases=(*facts.preparations, release),
            assumptions=walk_assumptions(network),
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
        settings: RandomWalkProximalPointSettings = plan.settings
        n_agents, theta = network_of(facts).n_agents, settings.relaxation
        bounds = bounds_in_basis(facts, None, clip_norm=settings.clip_norm, row_bound=1.0)
        step = theta * settings.step_size
        length = step * bounds.gradient_norm * n_agents / facts.n_samples
        prox = penalty_operator(facts.penalty, step, rows)
        y = np.zeros((facts.n_parameters, facts.loss.n_outputs))
        # A projection onto a public ball, which only a draw of the noise that never comes would
        # leave: so the rounding of scores has a bound.
        radius = length * settings.radius
        proximal_step = agent_proximal_steps(
            facts, problem, bounds, settings.inner, step_size=settings.step_size
        )
        hops = draw_hops(facts, settings.max_contributions, gate)
        for hop, (agent, contributes) in enumerate(zip(*hops, strict=True), start=1):
            if contributes:
                z = prox(y)
                y = z + theta * (proximal_step(int(agent), z) - z)
            y = length * gate.release(TOKEN, y / length)
            y = into_ball(y[None], radius)[0]
            if hop % n_agents == 0:
                problem.progress(hop // n_agents)
        parameters = prox(y)
        noise_std = length * plan.releases[-1].noise_std
        variance = _last_variance(rows, facts.loss.smoothness, step, noise_std, settings.n_hops)
        return noisy_solution(
            facts,
            rows,
            parameters,
            variance,
            has_zeros=facts.penalty.is_sparse,
            parameters_per_agent=None,
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
        if self.max_contributions != "auto":
            check_count("max_contributions", self.max_contributions)
        if not (is_number(self.relaxation) and 0 < self.relaxation <= 1):
            raise ValueError(f"Got relaxation={self.relaxation!r}, expected a float in (0, 1].")


def _farthest(facts: Facts, n_hops: int, cap: int, noise: float) -> float:
    """Bound of the norm of a token, in units of what one record moves: signal and noise."""
    return 4.0 * (cap * facts.n_samples + noise * math.sqrt(n_hops))


def _require_resolution(facts: Facts, length: float) -> None:
    """Refuse tokens so long beside their noise that arithmetic moves them by more than a cell."""
    if ROUNDINGS * 2.0**-53 * length > GRID_CELL:
        raise ValueError(
            f"Got n_samples={facts.n_samples} for RandomWalkProximalPoint, expected fewer: the"
            " rounding of a token would not be small beside its noise. Use MultiStepADMM."
        )


def _last_variance(
    rows: Rows, smoothness: float, step_size: float, noise_std: float, n_hops: int
) -> NDArray[np.float64]:
    """Variance that the noise of all hops leaves in the last token, by the rule of averages."""
    kept = np.square(np.clip(1.0 - 0.5 * step_size * smoothness * rows.loading, 0.0, 1.0))
    with np.errstate(invalid="ignore"):
        total = np.where(kept < 1.0, (1.0 - kept**n_hops) / (1.0 - kept), float(n_hops))
    return np.asarray(noise_std**2 * total)
