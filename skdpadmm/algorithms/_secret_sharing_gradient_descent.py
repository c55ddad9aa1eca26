"""Gradient descent on sums that agents take by secret sharing, so that their noise adds up.

Source: Xiao, "Local Differential Privacy in Decentralized Optimization" (MIT, 2019), section 2.1,
with the gradients taken at the public mean, where fresh noise makes every round an adaptive
Gaussian mechanism, and with noise on the grid that shares are made on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Integral, Real

import numpy as np
from numpy.typing import NDArray

from skdpadmm._sklearn import AUTO, FRACTION, SIZE, Interval, parameter
from skdpadmm.algorithms import _algorithm as base
from skdpadmm.algorithms._algorithm import Algorithm, Released
from skdpadmm.algorithms._clipped_sums import ClippedSum
from skdpadmm.algorithms._defaults import agent_clip_factor, default_descent
from skdpadmm.algorithms._messages import CERTAIN, surely_noise
from skdpadmm.algorithms._noise_left import Tail, averaged_solution
from skdpadmm.noise import grid_cell
from skdpadmm.privacy import GaussianDP, gaussian_mu
from skdpadmm.protocol import (
    Agents,
    Budget,
    Facts,
    Gate,
    Plan,
    Problem,
    Release,
    Settings,
    Solution,
    View,
    not_private,
    unit_limits,
)

GRADIENT = "sum of agents' gradients, by secret sharing"
# Standard deviation of the least noise, in cells of the coarsest grid.
FEWEST_CELLS = 32.0
# Whole numbers beyond it are not exact in float64, and shares are numbers modulo a word.
EXACT_INTEGERS, MODULUS = 2.0**53, 2**64
# No noise is longer, with any sampler, but with a probability below exp(-800).
LONGEST_NOISE = 40.0
# With two, each knows the other's message: the sum without its own.
FEWEST_AGENTS = 3


@dataclass(kw_only=True, eq=False, repr=False)
class SecretSharingGradientDescent(Algorithm):
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
    curators, agents that do as they should, and all of them: where one drops out the round fails.
    Preparations are sums of the same kind.

    Gradients at hidden models, as in print, would let the noise of a round come back in the next
    one: for two rounds of two agents, and a step of one over the curvature, mu squared is 1.4
    times what was claimed.

    References
    ----------
    .. [1] H. Xiao, "Local Differential Privacy in Decentralized Optimization", MIT, 2019, section
       2.1, Theorem 2.1.1 (corrected as stated above).
    .. [2] C. Canonne, G. Kamath, T. Steinke, "The Discrete Gaussian for Differential Privacy",
       NeurIPS 2020.

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
    n_curators: int | None = parameter(None, None, Interval(Integral, 2, None, closed="left"))

    def share_among(self, agents: Agents) -> Agents:
        """The same agents with their curators, which decide who sees what."""
        self.check_parameters()
        # Fewer agents are refused by `check`.
        if agents.n_agents < FEWEST_AGENTS:
            return agents
        return replace(agents, n_curators=self._n_curators(agents))

    def check_facts(self, facts: Facts) -> None:
        """Agents that are all there, at least three, of whom some are curators."""
        agents = facts.agents
        if agents.n_agents < FEWEST_AGENTS:
            raise ValueError(
                f"Got {agents.n_agents} agents with n_samples={facts.n_samples} rows in all,"
                f" expected at least {FEWEST_AGENTS} agents: of two, each knows the message of the"
                " other."
            )
        if agents.sit_out:
            raise ValueError(
                "Got agents that sit rounds out or drop out, expected participation='auto' (or 1)"
                " and dropout=0: without one share nobody can reconstruct a sum."
            )

    def released(self, facts: Facts, budget: Budget) -> Released:
        """The shared sum of gradients, in each round."""
        agents = facts.agents
        if agents.n_curators != self._n_curators(agents):
            raise ValueError(
                f"Got facts of {agents.n_curators} curators, expected {self._n_curators(agents)}:"
                " who sees what follows from them. Make facts of the agents of `share_among`."
            )
        messages = shared_sum(facts, budget)
        # What a curator of all rows would spend on a record, for as much noise in the sum.
        sensitivity = ClippedSum(facts).sensitivity
        mu = math.inf
        if budget.is_private:
            mu = math.sqrt(facts.max_iter) * sensitivity / messages.noise_std
        step_size, clip_norm, momentum = default_descent(
            facts,
            mu,
            facts.max_iter,
            momentum=None if self.momentum == "auto" else float(self.momentum),
        )
        # Gradients of agents are shorter than those of their records; the travel is the same.
        factor = agent_clip_factor(facts) if budget.is_private else 1.0
        settings = self.resolved(
            n_iter=facts.max_iter,
            step_size=step_size / factor,
            clip_norm=clip_norm * factor,
            momentum=momentum,
        )
        return settings, messages

    def assumptions(self, facts: Facts, budget: Budget) -> tuple[str, ...]:
        """Secure channels, and whose budget protects whom."""
        agents = facts.agents
        lines = [
            f"Every message is shared out among {agents.n_curators} curators through secure"
            " channels, and everybody follows the protocol. Whoever has all that curators got sees"
            " every message; figures about sums are for others. Where an agent drops out the fit"
            " fails.",
        ]
        if len(set(agents.epsilons)) > 1 and not agents.sees_each_message(budget.observer):
            lines.append(
                "A sum has one noise: it protects all agents by the smallest of their budgets."
            )
        return tuple(lines)

    def n_messages(self, facts: Facts, settings: Settings) -> float:
        """Shares, and their sums, of gradients and of preparations."""
        return facts.agents.n_messages_per_sum * (settings.n_iter + len(facts.preparations))

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Run the rounds as planned; symbols as above."""
        facts, rows, settings = plan.facts, problem.rows, plan.settings
        clip_norm = settings.clip_norm * rows.clip_unit
        sums = ClippedSum(facts, clip_norm).of_agents(problem)
        # Sums are in units of the clip bound.
        scale = settings.step_size * clip_norm / facts.n_samples
        prox = base.penalty_operator(facts.penalty, settings.step_size, rows)
        shape = (facts.n_parameters, facts.loss.n_outputs)
        w = previous = np.zeros(shape)
        tail = Tail(settings.n_averaged)
        for k in range(settings.n_iter):
            point = w + settings.momentum * (w - previous)
            models = np.broadcast_to(point, (facts.agents.n_agents, *shape))
            u = point - scale * gate.share(GRADIENT, sums(models))
            model = prox(u)
            previous, w = w, rows.from_coordinates(model)
            if k >= settings.n_iter - settings.n_averaged:
                tail.add(u)
            problem.progress(k + 1, model)
        n_messages, n_numbers = _traffic(plan)
        return averaged_solution(
            plan,
            rows,
            prox(tail.mean),
            clip_norm=clip_norm,
            # Momentum makes a step that much longer.
            step_size=settings.step_size / (1 - settings.momentum),
            noise_std=plan.releases[-1].noise_std / facts.n_samples,
            path_variance=tail.score_variance(rows),
            n_iter=settings.n_iter,
            n_rounds=settings.n_iter,
            n_messages=n_messages,
            bytes_sent=8 * n_numbers,
        )

    def _n_curators(self, agents: Agents) -> int:
        return agents.n_agents if self.n_curators is None else int(self.n_curators)


def _traffic(plan: Plan) -> tuple[int, int]:
    """Messages along edges or to and from servers, and the numbers in them."""
    facts, agents, (*before, sums) = plan.facts, plan.facts.agents, plan.releases
    each = agents.n_messages_per_sum
    # Preparations are shared out too: the message of one agent alone has too little noise.
    n_numbers = facts.max_iter * math.prod(sums.shape)
    n_numbers += sum(math.prod(release.shape) for release in before)
    return each * (facts.max_iter + len(before)), each * n_numbers


def shared_sum(facts: Facts, budget: Budget) -> Release:
    """Plan sums of gradients by secret sharing: the noise and the grid of each agent.

    An agent's message and its noise are whole numbers of cells of a public grid, that of its noise.
    What is reconstructed is their sum, exactly, so that it carries the noise of all agents outside
    of a coalition. The law of noise on a grid is not quite that of a Gaussian:

    - Gaussian numbers rounded to their grids, as the samplers in floating point make them: where
      all standard deviations are at least r cells of the coarsest grid, a sum of k of them has the
      probabilities of one rounded number, of a Gaussian with all their variances and of k - 1
      uniform numbers of a cell each, to a relative error of ``2 exp(-pi^2 r^2)`` for each,
      everywhere. (The probabilities of a sum of two are sums over the coarser grid of products of
      densities, which differ from integrals by what Poisson's formula says.) A message on its
      sender's grid shifts it by whole cells. So it is post-processing of a Gaussian mechanism with
      the variances of all.
    - A discrete Gaussian is that with 4 squared cells less, to errors that are as small.

    The figures take off the 4 squared cells for either. `FEWEST_CELLS` makes r so large that the
    relative error is below ``exp(-10000)``, and no float can tell.
    """
    agents, n_times, limits = facts.agents, facts.max_iter, unit_limits(facts)
    shape = (facts.n_parameters, facts.loss.n_outputs)
    if not budget.is_private:
        return not_private(
            GRADIENT,
            shape,
            agents.observers,
            times=n_times,
            door="share",
            made_of="sum",
            agent_noise_std=(0.0,) * len(limits),
            fewest=agents.n_agents,
            cell=1.0,
            modulus=MODULUS,
            n_curators=agents.n_curators,
        )
    sensitivity = ClippedSum(facts).sensitivity
    # Of two neighbouring messages each is rounded by half a cell in every entry; a cell is at most
    # that of noise of size one times the noise.
    diagonal = math.sqrt(math.prod(shape))
    rounding = grid_cell(1.0) * diagonal
    left = []
    spent_by_kind = base.spent_before(facts, budget)
    for epsilon, spent in zip(agents.budgets(budget.epsilon), spent_by_kind, strict=True):
        assert isinstance(spent, GaussianDP)
        left.append(math.sqrt(gaussian_mu(epsilon, budget.delta) ** 2 - spent.mu**2))
    mu = np.asarray(left) / math.sqrt(n_times) * CERTAIN
    if not (mu > rounding).all():
        raise ValueError(
            f"Got epsilon={budget.epsilon:g} for {n_times} sums, expected a larger one, or fewer"
            " rounds: the grid of the noise alone uses as much."
        )
    # A little more than enough, so that no rounding takes epsilon above the budget.
    noise_std = limits * sensitivity / (mu - rounding) * (1 + 1e-12)
    if not agents.sees_each_message(budget.observer):
        # A sum has one noise: that which protects whoever needs the most.
        together = agents.together(budget.observer, agents.n_agents)
        noise_std = np.full(len(limits), float(noise_std.max()) / math.sqrt(together))
    # A record is a part of its agent's message, and agents of one kind may have other numbers of
    # them; an agent's message is no larger than its limit.
    of_agents, n_rows = facts.unit == "agent", np.array(agents.agent_sizes, dtype=np.float64)
    for release in facts.preparations:
        # Their sensitivities count the grid already.
        longest = max(release.sensitivities) * (np.ones(len(n_rows)) if of_agents else n_rows)
        _finest_cell(agents, np.asarray(release.agent_noise_std), longest)
    cell = _finest_cell(agents, noise_std, limits[agents.kind] if of_agents else n_rows)
    per_agent = np.sort(noise_std[agents.kind])
    cells = np.array([grid_cell(std) for std in noise_std.tolist()])
    shifts, views = limits * sensitivity + cells * diagonal, []
    for observer in agents.observers:
        together = agents.together(observer, agents.n_agents)
        left_noise = surely_noise(noise_std, per_agent, together) * CERTAIN
        mus = (math.sqrt(n_times) * shifts / left_noise).tolist()
        views.append(View(observer=observer, guarantees=tuple(map(GaussianDP, mus))))
    return Release(
        name=GRADIENT,
        shape=shape,
        sensitivities=(float(shifts.max()),) * n_times,
        noise_std=float(np.linalg.norm(per_agent)),
        door="share",
        made_of="sum",
        agent_noise_std=tuple(noise_std.tolist()),
        fewest=agents.n_agents,
        views=tuple(views),
        cell=cell,
        modulus=MODULUS,
        n_curators=agents.n_curators,
    )


def _finest_cell(
    agents: Agents, noise_std: NDArray[np.float64], longest: NDArray[np.float64]
) -> float:
    """The cell of a shared sum; refuses what its grid, or the modulus, cannot hold.

    Noise is given for each kind of agent, the norm of the longest message for each agent.
    """
    least, most = float(noise_std.min()), float(noise_std.max())
    if least < FEWEST_CELLS * grid_cell(most):
        raise ValueError(
            f"Got noise of agents from {least:.3g} to {most:.3g}, expected a ratio of at most"
            f" {1 / (FEWEST_CELLS * grid_cell(1.0)):g}: their noise lies on grids that have to fit"
            " each other. Choose budgets that are less unequal."
        )
    cell = grid_cell(least)
    # Rounding adds half a cell to each, and the sums of floats a little.
    n_cells = ((longest + LONGEST_NOISE * noise_std[agents.kind]) / cell + 1) * (1 + 1e-9)
    if float(n_cells.max()) >= EXACT_INTEGERS or 2 * float(n_cells.sum()) >= MODULUS:
        raise ValueError(
            f"Got messages of up to {n_cells.max():.3g} cells of the grid of the noise, expected"
            f" fewer than {EXACT_INTEGERS:.3g}, and {MODULUS / 2:.3g} in all: the noise is too"
            " small. Choose a smaller epsilon."
        )
    return cell
