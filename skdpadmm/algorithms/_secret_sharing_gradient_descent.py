"""Gradient descent on sums that agents take by secret sharing, so that their noise adds up.

Source: Xiao, "Local Differential Privacy in Decentralized Optimization" (MIT, 2019), section 2.1,
with the gradients taken at the public mean, where fresh noise makes every round an adaptive
Gaussian mechanism, and with noise on the grid that shares are made on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np

from skdpadmm._sklearn import AUTO, FRACTION, SIZE, Interval, parameter
from skdpadmm.algorithms._algorithm import Released, penalty_operator
from skdpadmm.algorithms._clipped_sums import ClippedSum
from skdpadmm.algorithms._defaults import agent_clip_factor, default_descent
from skdpadmm.algorithms._messages import EVERYONE, draw_schedule, plan_rounds
from skdpadmm.algorithms._noise_left import Tail, averaged_solution
from skdpadmm.algorithms._shared_sums import CURATORS, SharesMessages, traffic
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Solution

GRADIENT = "sum of agents' gradients, by secret sharing"


@dataclass(kw_only=True, eq=False, repr=False)
class SecretSharingGradientDescent(SharesMessages):
    r"""Proximal gradient descent on sums of noisy gradients that nobody sees one by one.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all agents. The model w
    is public. In each round every agent computes the sum of the clipped gradients of its records at
    w, rounds it to a grid, and adds discrete noise of its own, :math:`G_a`. It splits the result
    into shares that are uniform modulo :math:`2^{64}` and add up to it, and sends one to each
    curator. A curator adds up the shares that it received and sends the sum. The sums add up to

    .. math:: \tilde g = \sum_a \Big(\sum_{i \in a} \mathrm{clip}(\nabla f_i(y), C) + G_a\Big),
              \qquad y = w_k + \beta (w_k - w_{k-1}),

    and everybody takes the step
    :math:`u = y - \frac{\eta}{n} \tilde g, \; w_{k+1} = \mathrm{prox}_{\eta r}(u)`. The answer is
    :math:`\mathrm{prox}_{\eta r}` of the average of the last u. All agents end up with it.

    Parameters
    ----------
    step_size : float or "auto", default="auto"
        :math:`\eta`, in the coordinates of the run; in [1e-100, 1e100].
    clip_norm : float or "auto", default="auto"
        C, in units of the typical norm of a row: the square root of the number of parameters, or in
        conditioned coordinates of the effective dimension. In [1e-100, 1e100].
    momentum : float or "auto", default="auto"
        Nesterov's, in [0, 1). "auto" is 0.8 in coordinates that are not conditioned and 0 in
        others.
    tail_fraction : float, default=0.5
        In (0, 1]: fraction of steps, at the end, that is averaged. It uses no budget: all sums
        count as released.
    n_curators : int or None, default=None
        Among how many each message is shared out, from 2 to the number of agents; None: as many as
        there are agents. In a network they are the first agents in the order of their labels, in a
        federation they are servers.
    threshold : int or None, default=None
        Curators whose shares are enough to reconstruct a sum, from 2 to `n_curators`; shares are
        then Shamir's, and agents may drop out. None: all curators are needed, with additive shares.

    Notes
    -----
    **Guarantee.** Unit: one record, or all records of an agent, whose gradient is then clipped as a
    whole. Neighbouring: replace-one, or zero-out. Given what was released before a unit moves its
    agent's message by at most :math:`\Delta = 2 C` (C for zero-out), and by half a cell of the grid
    more in each of the d entries of both messages. Agents that are not honest know their own noise,
    so against a coalition of c others a sum has the noise of N - c agents, the victim's included:

    .. math:: \mu = \sqrt K \frac{\Delta + g \sqrt d}{\sqrt{\sum_{a \notin C} (s_a^2 - 4 g_a^2)}}

    for K rounds, by exact composition; g is a cell and :math:`s_a` an agent's noise. The cells are
    what discrete noise costs. In a network "peer" and "eavesdropper", who is in league with peers,
    are up against the noise of all agents but `coalition`; in a federation "model" against all,
    "sums" against that of `n_honest`, "server" (all curators together) against an agent's own.
    Whoever has all curators' shares sees each message. It needs secure channels from agents to
    curators, and agents that do as they should. Without a `threshold` it needs all of them: where
    one drops out the round fails. Preparations are sums of the same kind.

    With a `threshold` t, any t curators together see each message, and fewer see uniform numbers.
    Up to ``n_curators - t`` curators may fail. An agent whose shares do not reach all curators is
    left out of the round, with its noise: the figures count the noise of as few agents as a round
    may have, and a round of fewer is void. Which agents are in a sum is agreed upon before anything
    is reconstructed, because two sums of one round would reveal what one has more than the other.

    Gradients at hidden models, as in print, would let the noise of a round come back in the next
    one: for two rounds of two agents, and a step of one over the curvature, mu squared is 1.4
    times what was claimed.

    References
    ----------
    .. [1] H. Xiao, "Local Differential Privacy in Decentralized Optimization", MIT, 2019, section
       2.1, Theorem 2.1.1 (corrected as stated above).
    .. [2] C. Canonne, G. Kamath, T. Steinke, "The Discrete Gaussian for Differential Privacy",
       NeurIPS 2020.
    .. [3] A. Shamir, "How to Share a Secret", Communications of the ACM, 1979.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> model = DPDecentralizedRegressor(algorithm="secret-sharing-gradient-descent", coalition=4)
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> round(plan.guarantee("peer").epsilon(1e-5), 3), plan.settings.n_iter
    (1.0, 100)
    >>> round(plan.guarantee("model").epsilon(1e-5), 3)
    0.756
    """

    setting = ("decentralized", "federated")
    releases_path = True  # Every sum counts, against every observer.
    noiseless = True

    step_size: float | str = parameter("auto", AUTO, SIZE)
    clip_norm: float | str = parameter("auto", AUTO, SIZE)
    momentum: float | str = parameter("auto", AUTO, Interval(Real, 0, 1, closed="left"))
    tail_fraction: float = parameter(0.5, FRACTION)
    n_curators: int | None = parameter(None, None, CURATORS)
    threshold: int | None = parameter(None, None, CURATORS, is_later=True)

    def check_facts(self, facts: Facts) -> None:
        """Agents that are all there, or a threshold of curators who agree on those who are."""
        self.check_sharing(facts)

    def released(self, facts: Facts, budget: Budget) -> Released:
        """The shared sum of gradients, in each round."""
        sensitivity = ClippedSum(facts).sensitivity
        messages = self.planned_sum(
            facts,
            budget,
            plan_rounds(facts, budget, sampling="poisson", cap=None),
            name=GRADIENT,
            sensitivities=(sensitivity,) * facts.max_iter,
        )
        # What a curator of all rows would spend on a record, for as much noise in the sum.
        mu = math.inf
        if budget.is_private:
            mu = math.sqrt(facts.max_iter) * sensitivity / messages.noise_std
        given = None if self.momentum == "auto" else float(self.momentum)
        step_size, clip_norm, momentum = default_descent(facts, mu, facts.max_iter, momentum=given)
        # Gradients of agents are shorter than those of their records; the travel is the same.
        factor = agent_clip_factor(facts) if budget.is_private else 1.0
        settings = self.resolved(
            n_iter=facts.max_iter,
            step_size=step_size / factor,
            clip_norm=clip_norm * factor,
            momentum=momentum,
        )
        return settings, messages

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Run the rounds as planned; symbols as above."""
        facts, rows, settings = plan.facts, problem.rows, plan.settings
        clip_norm = settings.clip_norm * rows.clip_unit
        sums = ClippedSum(facts, clip_norm).of_agents(problem)
        fewest, n_iter = plan.releases[-1].fewest, settings.n_iter
        rounds = replace(EVERYONE, n_rounds=n_iter, fewest=fewest)
        sends = draw_schedule(rounds, facts.agents, gate).sends
        n_completed = int(sends[-settings.n_averaged :].any(axis=1).sum())
        arriving = float(rounds.expected_shares(facts.agents)[0])
        # Sums are in units of the clip bound.
        scale = settings.step_size * clip_norm / (facts.n_samples * arriving)
        prox = penalty_operator(facts.penalty, settings.step_size, rows)
        w = previous = u = np.zeros(facts.model_shape)
        tail = Tail(n_completed)
        for k in range(n_iter):
            if not sends[k].any():
                gate.skip(GRADIENT)
                problem.progress(k + 1)
                continue
            point = w + settings.momentum * (w - previous)
            models = np.broadcast_to(point, (facts.agents.n_agents, *point.shape))
            u = point - scale * gate.share(GRADIENT, sums(models), sends[k])
            model = prox(u)
            previous, w = w, rows.from_coordinates(model)
            if k >= n_iter - settings.n_averaged:
                tail.add(u)
            problem.progress(k + 1, model)
        return averaged_solution(
            plan,
            rows,
            prox(tail.mean if n_completed else u),
            # Momentum makes a step that much longer.
            step_size=settings.step_size / (1 - settings.momentum),
            noise_std=plan.releases[-1].noise_std / (facts.n_samples * arriving),
            path_variance=tail.score_variance(rows),
            **traffic(plan, sends),
        )
