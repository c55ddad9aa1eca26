"""A token that walks over the agents of a network: its hops, inner solutions and privacy loss.

`RandomWalkProximalPoint` and `RandomWalkADMM` share the walk and what they refuse. Bounds that
depend on the path hold for a token that nobody keeps a state of, so they are the first one's alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms import _certified_solves as certified
from skdpadmm.algorithms._algorithm import check_zero_at_zero
from skdpadmm.algorithms._certified_solves import LossBounds
from skdpadmm.algorithms._defaults import default_steps, is_regression
from skdpadmm.network import draw_walk, mixing_matrix
from skdpadmm.noise import GRID_CELL
from skdpadmm.privacy import Guarantee, TokenWalk, WalkCost, compose
from skdpadmm.protocol import EAVESDROPPER, MODEL, PEER, Facts, Gate, Network, Problem, network_of

Array = NDArray[np.float64]
# Two roundings to the gate's grid differ by a cell, in units of the noise, in every entry; another
# cell is more than arithmetic can move a token.
GRID = 2 * GRID_CELL
# Off the complete graph, the law of all pairs is not computed for more agents; see `TokenWalk`.
LARGEST_LAW = 64
# A matrix of transitions is stored for at most this many agents.
LARGEST_TRANSITION = 256


# A record's clipped gradient is this close to its bound.
CLIPPING = 1e-11
# Inner steps that an agent may take at one hop.
MOST_STEPS = 2000
# Takes fewer than those, whatever the tolerance and the rows.
LARGEST_CONDITION = 500.0


class Hops(NamedTuple):
    """A walk: who holds the token at each hop, and who uses data there, both of shape (n_hops,)."""

    holder: NDArray[np.intp]
    contributes: NDArray[np.bool_]

    def n_messages(self, n_agents: int) -> int:
        """Hops that take the token to another agent, and the broadcast of the model at the end."""
        return int(np.count_nonzero(np.diff(self.holder))) + n_agents - 1


def walk_steps(
    facts: Facts, mu: float, n_steps: int, clip_norm: float | str
) -> tuple[float, float]:
    """Default step size, and the clip bound, by the rule of a curator with as much noise in steps.

    That rule ends the travel of a classifier, and clips, for the sake of noise. Much signal per
    parameter affords derivatives nearly as they are; the step grows by the root only, because inner
    steps cost more with it, and a proximal point's bias is in proportion. Several scores are not
    clipped and meet more noise, so they start later.
    """
    total = mu * math.sqrt(facts.max_iter / network_of(facts).n_agents)
    step, clip = default_steps(replace(facts, max_iter=n_steps), total)
    if is_regression(facts):
        # The rule is for a path that is averaged over many passes; a token settles less. Half the
        # step was better where noise counts, and no worse elsewhere.
        step /= 2
    else:
        signal = facts.signal(total)
        per_parameter = signal / (facts.n_parameters * facts.loss.n_outputs**2)
        plenty = min(max(0.18 * math.sqrt(per_parameter), 1.0), 4.0)
        step, clip = step * math.sqrt(plenty), clip * plenty
    several = facts.loss.n_outputs > 1
    never_binds = certified.open_clip(facts.loss, facts.row_norm) / certified.typical_norm(facts)
    if isinstance(clip_norm, str):
        return step, never_binds if several else clip
    if several and clip_norm < never_binds:
        raise ValueError(
            f"Got clip_norm={clip_norm:g} for {facts.loss.n_outputs} scores, expected at least"
            f" {never_binds:.6g}, which never binds: a loss whose vector of derivatives is clipped"
            " has no proximal step. Use 'auto'."
        )
    return step, float(clip_norm)


def draw_hops(facts: Facts, cap: int, gate: Gate) -> Hops:
    """Draw the walk, before the first hop; nothing here sees data."""
    n_hops = facts.max_iter * network_of(facts).n_agents
    holder = draw_walk(network_of(facts).topology, gate.uniform((n_hops + 1,)))
    order = np.argsort(holder, kind="stable")
    sizes = np.bincount(holder)
    visit = np.empty(n_hops, dtype=np.intp)
    visit[order] = np.arange(n_hops) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return Hops(holder, visit < cap)


@dataclass(frozen=True, kw_only=True)
class StatelessToken:
    """The privacy loss of a walk, where maps of the token are all but non-expansive.

    Between two runs on the same data a hop takes two tokens further apart by at most `drift`, and
    by `grid` noise standard deviations; the sensitivity of an agent's own hop is one more.
    """

    n_hops: int
    cap: int
    drift: float
    grid: float

    def guarantee(self, cost: WalkCost, mu: float) -> Guarantee:
        """What holds by the law of the walk, where ``mu`` is that of a direct hand-over."""
        excess = self.drift + self.grid / mu
        added = 2 * self.cap * excess + self.n_hops * excess**2
        most = self.cap * (1.0 + self.drift) ** 2
        raised = tuple(min(value + added, most) for value in cost.costs)
        return WalkCost(cost.weights, raised).guarantee(mu)

    def direct(self, mu: float) -> Guarantee:
        """What holds for whoever sees every token."""
        return self.guarantee(direct_cost(self.cap), mu)


@dataclass(frozen=True)
class TokenPairs:
    """What each peer learns of each agent from a token, beside what it learns otherwise."""

    walk: TokenWalk
    token: StatelessToken
    mu: float
    prior: Guarantee

    def guarantee(self, agent: int, peer: int) -> Guarantee:
        """Return what ``peer`` can learn of ``agent``, by their positions among sorted labels."""
        return compose(self.prior, self.token.guarantee(self.walk.cost(agent, peer), self.mu))


def direct_cost(cap: int) -> WalkCost:
    """Cost of a walk whose every token is seen."""
    return WalkCost((1.0,), (float(cap),))


def token_walk(network: Network, n_hops: int, cap: int) -> TokenWalk | None:
    """The law of the walk; None where nobody meets, or too many for their chances to be stored."""
    n_agents = network.n_agents
    if n_agents == 1 or (n_agents > LARGEST_TRANSITION and not network.topology.is_complete):
        return None
    transition = None
    if not network.topology.is_complete:
        matrix = mixing_matrix(network.topology, "metropolis").to_sparse().toarray()
        transition = tuple(map(tuple, matrix.tolist()))
    return TokenWalk(n_agents=n_agents, n_hops=n_hops, cap=cap, transition=transition)


def walk_costs(network: Network, walk: TokenWalk | None, cap: int) -> Mapping[str, WalkCost]:
    """The cost of a walk for any agent, for each observer; that of direct hand-overs at most."""
    direct = direct_cost(cap)
    if walk is None:
        return dict.fromkeys(network.observers, direct)
    return {
        EAVESDROPPER: direct,
        PEER: walk.worst_cost(network.coalition),
        MODEL: walk.worst_cost(0),
    }


def walk_assumptions(network: Network) -> tuple[str, ...]:
    """What figures of a walk rest on, in words; and where they are no better than without one."""
    unknown, lines = [], []
    if not network.topology.is_complete:
        too_large = network.n_agents > LARGEST_LAW
        unknown = [PEER] * (network.coalition > 1 or too_large) + [MODEL] * too_large
    known = [observer for observer in (PEER, MODEL) if observer not in unknown]
    if known:
        lines.append(
            f"{', '.join(known)}: the token walks at random by the weights of the graph, whatever"
            " the data, and all agents but the observers add their noise."
        )
    if unknown:
        lines.append(
            f"{', '.join(unknown)}: as for the eavesdropper, because how long a token walks before"
            f" it meets somebody is not computed for a coalition, or for more than {LARGEST_LAW}"
            " agents, unless the graph is complete."
        )
    return tuple(lines)


def longest_step(facts: Facts, bounds: LossBounds) -> float:
    """Proximal step at which inner problems are as badly conditioned as a default may make them."""
    return (LARGEST_CONDITION - 1.0) / (_weight(facts) * bounds.curvature * _sizes(facts)[-1])


def inner_steps(
    facts: Facts, bounds: LossBounds, *, step_size: float, tolerance: float, farthest: float
) -> tuple[int, ...]:
    """Decide the number of inner steps that brings every agent within a tolerance of its step.

    Lengths are in units of the distance that taking one record away can move a step.
    """
    check_zero_at_zero(facts.penalty)
    advice = f"Got step_size={step_size:g}, expected a shorter step or a larger tolerance"
    curvature = step_size * _weight(facts) * bounds.curvature
    unit_bounds = LossBounds(row_norm=1.0, gradient_norm=1.0, curvature=curvature)

    def steps_of(n_rows: int) -> int:
        share, smoothness = n_rows / facts.n_samples, 1.0 + curvature * n_rows
        of_step = certified.step_rounding(smoothness)
        of_score = share * certified.score_rounding(facts, unit_bounds)
        of_sum = share * certified.sum_rounding(facts, unit_bounds) + CLIPPING
        try:
            return certified.steps_to_reach(
                tolerance,
                strong_convexity=1.0,
                smoothness=smoothness,
                initial_distance=float(n_rows),
                gradient_error=of_sum + of_step * n_rows + of_score * (farthest + n_rows),
                relative_error=of_step + of_score,
            )
        except ValueError as error:
            raise ValueError(f"{advice}: floats cannot solve agents' problems.") from error

    n_steps = tuple(steps_of(n_rows) for n_rows in _sizes(facts))
    if max(n_steps) > MOST_STEPS:
        raise ValueError(
            f"{advice}: an agent would take {max(n_steps)} inner steps at each hop, more than"
            f" {MOST_STEPS}."
        )
    return n_steps


def agent_proximal_steps(
    facts: Facts,
    problem: Problem,
    bounds: LossBounds,
    inner: tuple[int, ...],
    *,
    step_size: float,
    is_private: bool = True,
) -> Callable[[int, Array], Array]:
    """Proximal steps of ``F_a = (A / n) sum_{i in a} f_i``, each f_i clipped if private."""
    ownership = problem.ownership
    assert ownership is not None
    weight, convexity = _weight(facts), 1.0 / step_size
    gradients, clips = [], bounds if is_private else certified.NO_BOUNDS
    for agent in range(ownership.n_agents):
        group = ownership.rows_of(agent)
        own = replace(problem, rows=problem.rows.take([group]), target=problem.target[group])
        gradients.append(certified.clipped_gradient(facts.loss, own, clips))
    smoothness = convexity + weight * bounds.curvature * ownership.sizes
    n_steps = np.asarray(inner)[np.searchsorted(_sizes(facts), ownership.sizes)]
    n_steps = n_steps * (1 if is_private else certified.STEPS_WITHOUT_NOISE)

    def step(agent: int, point: Array) -> Array:
        gradient = gradients[agent]
        # In terms of the displacement d rounding is relative to d.
        return point + certified.accelerated_gradient(
            lambda d: weight * gradient(point + d) + convexity * d,
            np.zeros_like(point),
            int(n_steps[agent]),
            strong_convexity=convexity,
            smoothness=float(smoothness[agent]),
        )

    return step


def _weight(facts: Facts) -> float:
    """Of a record in the loss of its agent."""
    return network_of(facts).n_agents / facts.n_samples


def _sizes(facts: Facts) -> list[int]:
    """Numbers of rows that agents have, ascending."""
    return sorted(set(network_of(facts).agent_sizes))
