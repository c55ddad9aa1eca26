"""Sums of agents' messages by secret sharing: their noise, their grid, and who sees what."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm._sklearn import Interval
from skdpadmm.algorithms._algorithm import Algorithm, spent_before
from skdpadmm.algorithms._messages import CERTAIN, SLIGHTLY_MORE, Rounds, surely_noise
from skdpadmm.noise import grid_cell
from skdpadmm.privacy import GaussianDP, gaussian_mu
from skdpadmm.protocol import Agents, Budget, Facts, Plan, Release, View, not_private
from skdpadmm.secret_sharing import PRIME

# Standard deviation of the least noise, in cells of the coarsest grid.
FEWEST_CELLS = 32.0
# Whole numbers beyond it are not exact in float64, and additive shares are numbers modulo a word.
EXACT_INTEGERS, WORD = 2.0**53, 2**64
# No noise is longer, with any sampler, but with a probability below exp(-800).
LONGEST_NOISE = 40.0
CURATORS = Interval(Integral, 2, None, closed="left")
# With two, each knows the other's message: the sum without its own.
FEWEST_AGENTS = 3


class SharesMessages(Algorithm):
    """An algorithm whose messages are shared out among curators, by these two parameters."""

    n_curators: int | None
    threshold: int | None

    def share_among(self, agents: Agents) -> Agents:
        """The same agents with their curators, which decide who sees what."""
        self.check_parameters()
        # Fewer agents are refused by `check`.
        if agents.n_agents < FEWEST_AGENTS:
            return agents
        n_curators = agents.n_agents if self.n_curators is None else int(self.n_curators)
        return replace(agents, n_curators=n_curators, threshold=int(self.threshold or 0))

    def check_sharing(self, facts: Facts) -> None:
        """At least three agents, of whom nobody is missed by the curators."""
        agents = facts.agents
        if agents.n_agents < FEWEST_AGENTS:
            raise ValueError(
                f"Got {agents.n_agents} agents with n_samples={facts.n_samples} rows in all,"
                f" expected at least {FEWEST_AGENTS} agents: of two, each knows the message of the"
                " other."
            )
        if agents.participation < 1 or (agents.dropout > 0 and not agents.threshold):
            raise ValueError(
                "Got agents that sit rounds out or drop out, expected participation='auto' (or 1)"
                " and dropout=0: without one share nobody can reconstruct a sum. With a threshold"
                " agents may drop out."
            )

    def planned_sum(self, facts: Facts, *more: Any, **known: Any) -> Release:
        """The `shared_sum` of facts that are about the curators of this algorithm."""
        expected = self.share_among(facts.agents)
        if facts.agents != expected:
            raise ValueError(
                f"Got facts of {facts.agents.n_curators} curators, expected {expected.n_curators},"
                f" of whom {expected.n_needed} are needed: who sees what follows from them. Make"
                " facts of the agents of `share_among`."
            )
        return shared_sum(facts, *more, **known)

    def assumptions(self, facts: Facts, budget: Budget) -> tuple[str, ...]:
        """Secure channels, and whose budget protects whom."""
        agents = facts.agents
        if not agents.n_curators:
            return ()
        needed = f"all that {agents.n_curators} curators got sees"
        fails = "Where an agent drops out the fit fails."
        if agents.threshold:
            needed = f"what {agents.threshold} of them got sees"
            fails = (
                "In each round curators agree whose shares all of them add up, and each sends one"
                " sum."
            )
        lines = [
            f"Every message is shared out among {agents.n_curators} curators through secure"
            f" channels, and everybody follows the protocol. Whoever has {needed}"
            f" every message; figures about sums are for others. {fails}"
        ]
        if len(set(agents.epsilons)) > 1 and not agents.sees_each_message(budget.observer):
            lines.append(
                "A sum has one noise: it protects all agents by the smallest of their budgets."
            )
        return tuple(lines)


def traffic(plan: Plan, sends: NDArray[np.bool_]) -> dict[str, int]:
    """Rounds that were completed, messages of agents and answers, and their size.

    `sends` of shape (n_rounds, n_agents) says whose messages arrived; none in a round that is void.
    """
    agents, n_rounds = plan.facts.agents, int(sends.any(axis=1).sum())
    if agents.n_curators:
        # Preparations are shared out too: the message of one agent alone has too little noise.
        n_before = agents.n_messages_per_sum
        n_lost = agents.n_curators * int(n_rounds * agents.n_agents - sends.sum())
        n_messages = n_before * n_rounds - n_lost
    else:
        # Each preparation is sent by everyone, and its sum to everyone.
        n_before = 2 * agents.n_agents
        n_messages = int(sends.sum()) + agents.n_agents * len(sends)
    *before, size = (math.prod(release.shape) for release in plan.releases)
    return {
        "n_iter": n_rounds,
        "n_rounds": n_rounds,
        "n_messages": n_messages + n_before * len(before),
        "bytes_sent": 8 * (n_messages * size + n_before * sum(before)),
    }


def shared_sum(
    facts: Facts, budget: Budget, rounds: Rounds, *, name: str, sensitivities: Sequence[float]
) -> Release:
    """Plan sums of messages by secret sharing: the noise and the grid of each agent.

    `sensitivities` are those of a unit whose limit is one, in each round, before the grid.

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
    agents, limits, n_times = facts.agents, facts.unit_limits, len(sensitivities)
    known: dict[str, Any] = {
        "door": "share",
        "made_of": "sum",
        "fewest": rounds.fewest,
        "modulus": PRIME if agents.threshold else WORD,
        "n_curators": agents.n_curators,
        "threshold": agents.threshold,
    }
    if not budget.is_private:
        known |= {"agent_noise_std": (0.0,) * len(limits), "cell": 1.0}
        return not_private(name, facts.model_shape, agents.observers, times=n_times, **known)
    # Of two neighbouring messages each is rounded by half a cell in every entry; a cell is at most
    # that of noise of size one times the noise.
    diagonal = math.sqrt(math.prod(facts.model_shape))
    rounding, left = grid_cell(1.0) * diagonal, []
    before, budgets = spent_before(facts, budget), agents.budgets(budget.epsilon)
    for epsilon, spent in zip(budgets, before, strict=True):
        assert isinstance(spent, GaussianDP)
        left.append(math.sqrt(gaussian_mu(epsilon, budget.delta) ** 2 - spent.mu**2))
    mu = np.asarray(left) / math.sqrt(n_times) * CERTAIN
    if not (mu > rounding).all():
        raise ValueError(
            f"Got epsilon={budget.epsilon:g} for {n_times} sums, expected a larger one, or fewer"
            " rounds: the grid of the noise alone uses as much."
        )
    # By the triangle inequality for the vectors of all rounds. A little more than enough, so that
    # no rounding takes epsilon above the budget.
    noise_std = limits * root_mean_square(np.array(sensitivities)) / (mu - rounding) * SLIGHTLY_MORE
    if not agents.sees_each_message(budget.observer):
        # A sum has one noise: that which protects whoever needs the most.
        together = agents.together(budget.observer, rounds.fewest)
        noise_std = np.full(len(limits), float(noise_std.max()) / math.sqrt(together))
    # A record is a part of its agent's message, and agents of one kind may have other numbers of
    # them; an agent's message is no larger than its limit.
    of_agents, n_rows = facts.unit == "agent", np.array(agents.agent_sizes, dtype=np.float64)
    for release in facts.preparations:
        # Their sensitivities count the grid already.
        longest = max(release.sensitivities) * (np.ones(len(n_rows)) if of_agents else n_rows)
        _finest_cell(agents, np.asarray(release.agent_noise_std), longest, known["modulus"])
    longest = limits[agents.kind] if of_agents else n_rows
    # Half of how far it moves, and no less than all of it where it may become zero.
    moved = facts.neighboring.sensitivity_factor * facts.working_rounding
    longest = longest * (max(sensitivities) / moved)
    cell = _finest_cell(agents, noise_std, longest, known["modulus"])
    per_agent = np.sort(noise_std[agents.kind])
    cells = np.array([grid_cell(std) for std in noise_std.tolist()])
    shifts = np.outer(sensitivities, limits) + cells * diagonal
    views, norms = [], math.sqrt(n_times) * root_mean_square(shifts)
    for observer in agents.observers:
        together = agents.together(observer, rounds.fewest)
        left_noise = surely_noise(noise_std, per_agent, together) * CERTAIN
        mus = (norms / left_noise).tolist()
        views.append(View(observer=observer, guarantees=tuple(map(GaussianDP, mus))))
    return Release(
        name=name,
        shape=facts.model_shape,
        sensitivities=tuple(shifts.max(axis=1).tolist()),
        noise_std=float(np.linalg.norm(per_agent)) * math.sqrt(1 - agents.dropout),
        agent_noise_std=tuple(noise_std.tolist()),
        views=tuple(views),
        cell=cell,
        **known,
    )


def root_mean_square(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of the first axis; of equal values exactly that value."""
    largest = values.max(axis=0)
    return np.asarray(largest * np.sqrt(np.mean(np.square(values / largest), axis=0)))


def _finest_cell(
    agents: Agents, noise_std: NDArray[np.float64], longest: NDArray[np.float64], modulus: int
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
    if float(n_cells.max()) >= EXACT_INTEGERS or 2 * float(n_cells.sum()) >= modulus:
        raise ValueError(
            f"Got messages of up to {n_cells.max():.3g} cells of the grid of the noise, expected"
            f" fewer than {EXACT_INTEGERS:.3g}, and {modulus / 2:.3g} in all: the noise is too"
            " small. Choose a smaller epsilon."
        )
    return cell
