"""Sums by secret sharing: how much noise each agent adds, on which grid, and what that costs.

An agent's message and its noise are whole numbers of cells of a public grid, that of its noise.
What is reconstructed is their sum, exactly, so that it carries the noise of all agents outside of a
coalition. The law of noise on a grid is not quite that of a Gaussian:

- Gaussian numbers rounded to their grids, as the samplers in floating point make them: where all
  standard deviations are at least r cells of the coarsest grid, a sum of k of them has the
  probabilities of one rounded number, of a Gaussian with all their variances and of k - 1 uniform
  numbers of a cell each, to a relative error of ``2 exp(-pi^2 r^2)`` for each, everywhere. (The
  probabilities of a sum of two are sums over the coarser grid of products of densities, which
  differ from integrals by what Poisson's formula says.) A message on its sender's grid shifts it by
  whole cells. So it is what a Gaussian mechanism with the variances of all would release, after
  something was done to it.
- A discrete Gaussian is that with 4 squared cells less, to errors that are as small.

The figures take off the 4 squared cells for either. `FEWEST_CELLS` makes r so large that the
relative error is below ``exp(-10000)``, and no float can tell.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._messages import CERTAIN, spent_before, surely_noise
from skdpadmm.noise import grid_cell
from skdpadmm.privacy import GaussianDP, gaussian_mu
from skdpadmm.protocol import Budget, Facts, Release, View

# Standard deviation of the least noise, in cells of the coarsest grid.
FEWEST_CELLS = 32.0
# Whole numbers beyond it are not exact in float64.
EXACT_INTEGERS = 2.0**53
# No noise is longer, with any sampler, but with a probability below exp(-800).
LONGEST_NOISE = 40.0


def shared_sum(
    facts: Facts,
    budget: Budget,
    *,
    name: str,
    n_times: int,
    limits: NDArray[np.float64],
    modulus: int,
) -> Release:
    """Share the noise among agents and say what each observer learns.

    Parameters
    ----------
    facts : Facts
        Of agents who share their messages out.
    budget : Budget
        With a finite epsilon.
    name : str
    n_times : int
        How often messages are summed.
    limits : ndarray of shape (n_kinds,)
        Norm that a protected unit's part of a message may have, for each kind of agent.
    modulus : int

    Returns
    -------
    Release

    Raises
    ------
    ValueError
        Where the modulus is too small for the sum, or where the noise of some agents is so much
        larger than that of others that no grid serves both.
    """
    agents = facts.agents
    assert agents is not None
    moved = facts.neighboring.sensitivity_factor * facts.working_rounding
    shape = (facts.n_parameters, facts.loss.n_outputs)
    # Of two neighbouring messages each is rounded by half a cell in every entry; a cell is at most
    # that of noise of size one times the noise.
    spread = math.sqrt(math.prod(shape))
    rounding = grid_cell(1.0) * spread
    left = _left(facts, budget) / math.sqrt(n_times) * CERTAIN
    if not (left > rounding).all():
        raise ValueError(
            f"Got epsilon={budget.epsilon:g} for {n_times} sums, expected more: noise on a grid"
            " costs as much. Take fewer rounds."
        )
    # A little more than enough, so that no rounding takes epsilon above the budget.
    needed = limits * moved / (left - rounding) * (1 + 1e-12)
    if not agents.sees_each_message(budget.observer):
        # A sum has one noise: that which protects whoever needs the most.
        together = agents.together(budget.observer, agents.n_agents)
        needed = np.full(len(limits), float(needed.max()) / math.sqrt(together))
    cell = grid_cell(float(needed.min()))
    _check_grids(needed)
    # A record is a part of its agent's message, and agents of one kind may have other numbers of
    # them; an agent's message is no larger than its limit.
    of_agents = facts.unit == "agent"
    longest = limits[agents.kind] if of_agents else np.array(agents.agent_sizes, dtype=np.float64)
    longest = longest + LONGEST_NOISE * needed[agents.kind]
    _check_exact(cell, longest)
    _check_modulus(modulus, max(needed_modulus(cell, longest), _needed_before(facts)))
    per_agent = np.sort(needed[agents.kind])
    cells = np.array([grid_cell(share) for share in needed.tolist()])
    moves, views = limits * moved + cells * spread, []
    for observer in agents.observers:
        count = agents.together(observer, agents.n_agents)
        noise = surely_noise(needed, per_agent, count)
        guarantees = tuple(
            GaussianDP(mu) for mu in (math.sqrt(n_times) * moves / (noise * CERTAIN)).tolist()
        )
        views.append(View(observer=observer, guarantees=guarantees))
    return Release(
        name=name,
        shape=shape,
        sensitivities=(float(moves.max()),) * n_times,
        noise_std=float(np.linalg.norm(per_agent)),
        door="share",
        made_of="sum",
        agent_noise_std=tuple(needed.tolist()),
        fewest=agents.n_agents,
        views=tuple(views),
        cell=cell,
        modulus=modulus,
        n_curators=agents.n_curators,
    )


def needed_modulus(cell: float, longest: NDArray[np.float64]) -> int:
    """The least modulus that no sum of messages leaves.

    Parameters
    ----------
    cell : float
        Width of the grid.
    longest : ndarray of shape (n_agents,)
        Bound of an entry of each agent's message, its noise included.

    Returns
    -------
    int
    """
    # Rounding adds half a cell to each, and the sums of floats a little.
    return 2 * math.ceil((float(np.sum(longest)) / cell + len(longest)) * (1 + 1e-9)) + 1


def _left(facts: Facts, budget: Budget) -> NDArray[np.float64]:
    """What preparations leave of the budget of each kind of agent, as a Gaussian-DP parameter."""
    assert facts.agents is not None
    left = []
    for epsilon, spent in zip(
        facts.agents.budgets(budget.epsilon), spent_before(facts, budget), strict=True
    ):
        assert isinstance(spent, GaussianDP)
        total = gaussian_mu(epsilon, budget.delta)
        if not spent.mu < total:
            raise ValueError(
                f"Got preparations that cost mu={spent.mu:.3g} of epsilon={epsilon:g}, expected"
                " less. Use scale=None and conditioning=None."
            )
        left.append(math.sqrt(total**2 - spent.mu**2))
    return np.asarray(left)


def _check_grids(shares: NDArray[np.float64]) -> None:
    """Refuse noise that is too small for the grid of somebody else's."""
    coarsest = grid_cell(float(shares.max()))
    if float(shares.min()) < FEWEST_CELLS * coarsest:
        raise ValueError(
            f"Got noise of agents from {shares.min():.3g} to {shares.max():.3g}, expected a ratio"
            f" of at most {1 / (FEWEST_CELLS * grid_cell(1.0)):g}: their noise lies on grids that"
            " have to fit each other. Choose budgets that are less unequal."
        )


def _needed_before(facts: Facts) -> int:
    """The modulus that sums before need; their sensitivities count the grid already."""
    agents, needed = facts.agents, 2
    assert agents is not None
    units = np.ones(agents.n_agents) if facts.unit == "agent" else np.array(agents.agent_sizes)
    for release in facts.preparations:
        assert release.made_of == "sum"
        shares = np.asarray(release.agent_noise_std)
        _check_grids(shares)
        longest = units * max(release.sensitivities) + LONGEST_NOISE * shares[agents.kind]
        cell = grid_cell(float(shares.min()))
        _check_exact(cell, longest)
        needed = max(needed, needed_modulus(cell, longest))
    return needed


def _check_exact(cell: float, longest: NDArray[np.float64]) -> None:
    """Refuse messages of more cells than a float can count."""
    if float(longest.max()) / cell >= EXACT_INTEGERS:
        raise ValueError(
            f"Got messages of up to {longest.max() / cell:.3g} cells of the grid of the noise,"
            f" expected fewer than {EXACT_INTEGERS:.3g}: the noise is too little. Choose a smaller"
            " epsilon."
        )


def _check_modulus(modulus: int, needed: int) -> None:
    if modulus < needed:
        raise ValueError(
            f"Got modulus={modulus}, expected at least {needed} (2**{needed.bit_length()} will do):"
            " sums of messages and their noise leave its range."
        )
