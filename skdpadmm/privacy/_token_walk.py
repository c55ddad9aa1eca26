"""A noisy token that walks over agents, and what each agent learns of the others from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.special import betainc

from skdpadmm._numbers import quiet_underflow, require, require_count
from skdpadmm.privacy._composition import compose
from skdpadmm.privacy._gaussian import GaussianDP
from skdpadmm.privacy._guarantee import Guarantee
from skdpadmm.privacy._mixture import Mixture

Array = NDArray[np.floating[Any]]
# All pairs of a larger graph that is not complete take more than a second or two.
MOST_AGENTS = 64
# Sums of costs are rounded up to this many values; what is returned, to fewer, so that two walks
# still compose.
_INNER_VALUES = 1500
_LABELS = 300
# Rare costs share one value, the worst among them. What that adds to delta is at most this part of
# delta for small costs, and at most this probability for large ones.
_SMALL_COSTS = 1e-9
_LARGE_COSTS = 1e-18
# More than the rounding of a logarithm; every returned cost is raised by it.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class WalkCost:
    """The law of what a walk costs an agent, in units of one direct hand-over.

    It does not depend on the noise, so a calibration computes it once.

    Parameters
    ----------
    weights : tuple of float
        Probabilities.
    costs : tuple of float
        Increasing; ``c`` means that ``mu^2`` is c times that of one direct hand-over. The last one
        is the number of contributions.

    Examples
    --------
    >>> from skdpadmm.privacy import WalkCost
    >>> WalkCost((1.0,), (4.0,)).guarantee(0.1)
    GaussianDP(mu=0.2)
    """

    weights: tuple[float, ...]
    costs: tuple[float, ...]

    def guarantee(self, mu: float) -> Guarantee:
        """Return the average over the path, for the agent's own mu in [0, inf).

        mu is how far one contribution moves the token, at most, by the noise of a hop. The last
        component is the worst path.
        """
        components = tuple(GaussianDP(mu * math.sqrt(cost)) for cost in self.costs)
        return components[0] if len(components) == 1 else Mixture(self.weights, components)

    def worst(self, mu: float) -> GaussianDP:
        """Return the guarantee of the worst path; it belongs beside :meth:`guarantee`."""
        return GaussianDP(mu * math.sqrt(self.costs[-1]))

    @classmethod
    def direct(cls, cap: int) -> WalkCost:
        """Return the cost of direct hand-overs at all of ``cap`` contributions."""
        return cls((1.0,), (float(cap),))


@dataclass(frozen=True)
class TokenWalk:
    r"""A token that is passed on at random, noised at every hop, and forgets where it was.

    Hop t: its holder applies a map that is non-expansive and depends on the token and on the
    holder's own data alone, adds ``N(0, s^2 I)``, and passes the token on. An agent uses its data
    at its first ``cap`` visits; at later ones it adds noise only. A peer sees the token when it
    arrives; everybody sees it after the last hop.

    Parameters
    ----------
    n_agents : int
        At least 1.
    n_hops : int
        At least 1: the length of the walk.
    cap : int
        At least 1: the largest number of visits at which an agent uses its data.
    transition : array-like of shape (n_agents, n_agents) or None, default=None
        Chances to pass the token from the agent of the row to that of the column: symmetric, and
        connected. None is the complete graph, ``1 / n_agents`` everywhere (an agent may keep it).

    Notes
    -----
    **Conditions.** The first holder is uniform, and everybody, the observers included, passes the
    token on by ``transition``, whatever the data. All holders but the observers add their noise.
    Between neighbouring data sets the map of the agent in question moves by at most Delta at every
    point; ``mu = Delta / s``. A proximal step that follows the noise belongs to the next map. State
    that an agent keeps between its visits would break the argument.

    **A known path.** Let the agent i contribute at hops t_1 < t_2 < ..., at most ``cap`` of them,
    and let m_e be the number of hops from t_e until the token reaches i or an observer, or the walk
    ends. All these hops add noise that no observer knows. By shifted interpolation (Bok, Su and
    Altschuler, ICML 2024) a shift of Delta is absorbed in m_e equal parts before the token is seen
    or i contributes again, so from one observation to the next, and by composition altogether,
    :math:`\mu_{path}^2 = \mu^2 S` with :math:`S = \sum_e 1 / m_e`. The path does not depend on the
    data, so :math:`\delta(\epsilon) = E\,\delta_{GDP(\mu_{path})}(\epsilon)` even if it is known.

    **Its law.** Let tau be the first hop at which the chain from i meets i or an observer, and N
    the number of visits of i. Excursions from i are independent.

    - If N > cap, visit cap + 1 ends the last gap that counts: S is the sum of the first cap
      of an infinite sequence of independent gaps with the law of tau.
    - If N <= cap, look from the end. The chain is stationary and reversible. A gap is the time from
      i or an observer, whichever was met last, to i; reversing each excursion from i, it has the
      law of tau. Only the gap next to the end differs. Paths that end at i, reversed, have
      the chance :math:`(1/n) [P_i(\tau \ge m) + \sum_j P_i(\tau = m, X_\tau = j) E_j T_i]` that it
      is m: the walk ends before anybody is met, or observer j is met and then anything happens
      before i. Adding the gaps that an infinite past would have had, S is at most the sum of this
      gap and cap - 1 independent ones.

    With p = P(N > cap) the second law therefore loses its smallest mass p, and the first one gives
    its largest mass p. Where this swap would lower the bound it stops, so that an upper bound of p
    suffices: a binomial tail on the complete graph, elsewhere Chernoff's bound for the first visit
    and cap returns. On the complete graph both laws are geometric with success
    ``(1 + observers) / n``.

    Every 1/m and every sum of them is rounded up, and rare sums share a worse label; mu is about
    one percent too large.

    At delta far below 1 / n it is the chance of direct hand-overs that decides, and little is
    gained.

    Examples
    --------
    >>> from skdpadmm.privacy import TokenWalk
    >>> walk = TokenWalk(n_agents=100, n_hops=1000, cap=20)
    >>> cost = walk.cost(0, 1)
    >>> f"{cost.guarantee(0.2).epsilon(1e-5):.1f}, {cost.worst(0.2).epsilon(1e-5):.1f} at worst"
    '1.2, 3.8 at worst'
    """

    n_agents: int
    n_hops: int
    cap: int
    transition: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        for name in ("n_agents", "n_hops", "cap"):
            require_count(getattr(self, name), name)
        if self.transition is None:
            return
        n, matrix = self.n_agents, np.array(self.transition, dtype=np.float64)
        valid = (
            matrix.shape == (n, n)
            and bool((matrix >= 0).all())
            and np.abs(matrix.sum(axis=1) - 1.0).max() <= 1e-12
            and np.abs(matrix - matrix.T).max() <= 1e-12
            and connected_components(matrix, directed=False)[0] == 1
        )
        expected = f"({n}, {n}), symmetric, connected, its rows laws: Metropolis weights"
        require(valid, "a transition of shape", matrix.shape, expected)
        object.__setattr__(self, "transition", tuple(map(tuple, matrix.tolist())))

    @quiet_underflow
    def cost(self, agent: int, *peers: int) -> WalkCost:
        """Return what a coalition of peers learns of an agent, all by their numbers.

        Without peers, the observer is whoever sees nothing but the token after the last hop.
        """
        members = (agent, *peers)
        valid = all(isinstance(m, Integral) and 0 <= int(m) < self.n_agents for m in members)
        expected = f"ints in [0, {self.n_agents}), none its own peer: an agent knows its own rows"
        require(valid and agent not in peers, "agents", members, expected)
        observers = tuple(sorted({int(peer) for peer in peers}))
        if self.transition is None:
            return self.worst_cost(len(observers))
        return _pair_cost(self, int(agent), observers)

    @quiet_underflow
    def worst_cost(self, n_peers: int = 1) -> WalkCost:
        """Return a bound for every agent and every coalition of ``n_peers`` others.

        Where it is not computed, which is for coalitions of several and for more than
        ``MOST_AGENTS`` agents on a graph that is not complete, it is the cost of direct hand-overs
        at every contribution; this holds for everybody.
        """
        valid = isinstance(n_peers, Integral) and 0 <= int(n_peers) < self.n_agents
        require(valid, "n_peers", n_peers, f"an int in [0, {self.n_agents})")
        return _worst_cost(self, int(n_peers))


@dataclass(frozen=True, kw_only=True)
class StatelessToken:
    r"""The guarantee of a walk whose maps are only nearly non-expansive, from what it costs.

    Parameters
    ----------
    n_hops, cap : int
        As of `TokenWalk`.
    drift : float
        Two tokens on the same data are at most this much further apart after a hop, in units of the
        sensitivity of a contribution without it.
    grid : float
        The same by rounding, in noise standard deviations.

    Notes
    -----
    With c the sum of the two, a gap of m hops absorbs ``Delta / m + c`` in each hop, so
    :math:`\mu_{path}^2 = \mu^2 (S + 2 \kappa c + K c^2)`, where S is the cost of the path,
    :math:`\kappa` the cap, K the number of hops and :math:`\mu` that of one contribution. It is
    at most :math:`\kappa (1 + drift)^2 \mu^2`, what the tokens of all hops reveal.

    Examples
    --------
    >>> from skdpadmm.privacy import StatelessToken, WalkCost
    >>> token = StatelessToken(n_hops=100, cap=4, drift=0.0, grid=0.0)
    >>> token.guarantee(WalkCost((1.0,), (1.0,)), 0.1), token.direct(0.1)
    (GaussianDP(mu=0.1), GaussianDP(mu=0.2))
    """

    n_hops: int
    cap: int
    drift: float
    grid: float

    def guarantee(self, cost: WalkCost, mu: float) -> Guarantee:
        """Return the average over the path, for the mu of a contribution that is seen at once."""
        excess = self.drift + self.grid / mu
        added = 2 * self.cap * excess + self.n_hops * excess**2
        most = self.cap * (1.0 + self.drift) ** 2
        raised = tuple(min(value + added, most) for value in cost.costs)
        return WalkCost(cost.weights, raised).guarantee(mu)

    def direct(self, mu: float) -> Guarantee:
        """Return the guarantee against an observer of every token."""
        return self.guarantee(WalkCost.direct(self.cap), mu)


@dataclass(frozen=True)
class TokenPairs:
    """The guarantee of each agent against each peer: of a token, and of what came before.

    Parameters
    ----------
    walk : TokenWalk
    token : StatelessToken
    mu : float
        That of a contribution that is seen at once.
    prior : Guarantee
        Of all other releases.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, StatelessToken, TokenPairs, TokenWalk
    >>> token = StatelessToken(n_hops=50, cap=5, drift=0.0, grid=0.0)
    >>> pairs = TokenPairs(TokenWalk(10, 50, 5), token, 0.2, GaussianDP(0.0))
    >>> pairs.guarantee(0, 1).epsilon(1e-5) < token.direct(0.2).epsilon(1e-5)
    True
    """

    walk: TokenWalk
    token: StatelessToken
    mu: float
    prior: Guarantee

    def guarantee(self, agent: int, peer: int) -> Guarantee:
        """Return what ``peer`` can learn of ``agent``, by their positions among sorted labels."""
        return compose(self.prior, self.token.guarantee(self.walk.cost(agent, peer), self.mu))


class Gaps(NamedTuple):
    """Laws (m,) of 1, 2, ..., m hops until an agent or an observer is met; the rest is given to m.

    ``last`` is the law of the gap that the end of the walk may cut.
    """

    inner: Array
    last: Array


class _Law(NamedTuple):
    """A law of costs: increasing values (k,) and their weights (k,)."""

    values: Array
    weights: Array


_NO_COST = _Law(np.zeros(1), np.ones(1))


@lru_cache(maxsize=256)
def _pair_cost(walk: TokenWalk, agent: int, peers: tuple[int, ...]) -> WalkCost:
    watched = np.zeros((1, walk.n_agents), dtype=bool)
    watched[0, [agent, *peers]] = True
    return _cost_on_a_graph(walk, np.array([agent]), watched)


@lru_cache(maxsize=64)
def _worst_cost(walk: TokenWalk, n_peers: int) -> WalkCost:
    n, own = walk.n_agents, np.eye(walk.n_agents, dtype=bool)
    if walk.transition is None:
        # The first success, later ones counted at the horizon.
        success, horizon = (1 + n_peers) / n, _horizon(walk)
        gap = success * (1.0 - success) ** np.arange(horizon)
        gap[-1] = (1.0 - success) ** (horizon - 1)
        excess = 0.0
        if walk.cap < walk.n_hops:
            excess = float(betainc(walk.cap + 1, walk.n_hops - walk.cap, 1.0 / n))
        return walk_cost(Gaps(gap, gap), walk.n_hops, walk.cap, excess * (1.0 + _ROUNDING))
    if n_peers > 1 or n > MOST_AGENTS:
        return WalkCost.direct(min(walk.cap, walk.n_hops))
    if n_peers == 0:
        return _cost_on_a_graph(walk, np.arange(n), own)
    agents, peers = np.nonzero(~own)
    return _cost_on_a_graph(walk, agents, own[agents] | own[peers])


def _cost_on_a_graph(
    walk: TokenWalk, agents: NDArray[np.intp], watched: NDArray[np.bool_]
) -> WalkCost:
    """A bound for each of the agents (b,), each with a set (b, n) that is watched."""
    transition = np.array(walk.transition)
    laws = hitting_gaps(transition, agents, watched, _horizon(walk))
    # Laws of gaps that are shorter than those of each agent.
    gaps = Gaps(*(np.diff(np.cumsum(law, axis=1).max(axis=0), prepend=0.0) for law in laws))
    excess = visit_excess(transition, np.unique(agents), walk.n_hops, walk.cap)
    return walk_cost(gaps, walk.n_hops, walk.cap, float(excess.max()))


def _horizon(walk: TokenWalk) -> int:
    """A label beyond which little is gained: on average an agent is visited every n hops."""
    return int(min(walk.n_hops, max(4 * walk.n_agents, 16)))


def hitting_gaps(
    transition: Array, agents: NDArray[np.intp], watched: NDArray[np.bool_], horizon: int
) -> Gaps:
    """Return laws (b, horizon) of the gaps of agents (b,), each with a set (b, n) that is watched.

    A set holds its agent and the observers.
    """
    n = len(transition)
    rows = np.arange(len(agents))
    # E_j T_i, by the fundamental matrix; the stationary law is uniform.
    inverse = np.linalg.inv(np.eye(n) - transition + 1.0 / n)
    expected = n * np.maximum(inverse[agents, agents][:, None] - inverse[:, agents].T, 0.0)
    weight = np.where(watched, expected, 0.0)
    weight[rows, agents] = 0.0
    inner, last = np.empty((len(agents), horizon)), np.empty((len(agents), horizon))
    free = ~watched
    state = transition[agents]
    for m in range(horizon):
        alive = state.sum(axis=1)
        last[:, m] = (alive + np.einsum("bn,bn->b", state, weight)) / n
        inner[:, m] = np.einsum("bn,bn->b", state, watched) if m < horizon - 1 else alive
        state = (state * free) @ transition
    last[:, -1] += np.maximum(1.0 - last.sum(axis=1), 0.0)
    return Gaps(*(law / law.sum(axis=1, keepdims=True) for law in (inner, last)))


def visit_excess(transition: Array, agents: NDArray[np.intp], n_hops: int, cap: int) -> Array:
    """Return Chernoff bounds (b,) of the chance of more than ``cap`` visits of each agent.

    More than cap visits are a first one and cap returns within the walk. Reversed, the first visit
    has the law ``P(return >= t) / n``.
    """
    if cap >= n_hops:
        return np.zeros(len(agents))
    rows = np.arange(len(agents))
    slope = np.append(0.0, np.geomspace(0.01 / n_hops, 10.0, 100))
    arrival, back = np.zeros((2, len(agents), slope.size))
    state = transition[agents]
    for t in range(1, n_hops + 1):
        weight = np.exp(-slope * t)
        arrival += state.sum(axis=1)[:, None] * weight / len(transition)
        back += state[rows, agents][:, None] * weight
        state[rows, agents] = 0.0
        state = state @ transition
    with np.errstate(divide="ignore"):
        bound = slope * n_hops + np.log(arrival) + cap * np.log(back)
    return np.asarray(np.exp(np.minimum(bound.min(axis=1) + _ROUNDING, 0.0)))


def walk_cost(gaps: Gaps, n_hops: int, cap: int, excess: float) -> WalkCost:
    """Return the law of the sum of reciprocal gaps.

    ``excess`` bounds the chance of more than ``cap`` visits.
    """
    count = min(cap, n_hops)
    inner, last = _reciprocal(gaps.inner), _reciprocal(gaps.last)
    common = _multiple(inner, count - 1)
    law = _swap(_add(last, common), _add(inner, common), excess)
    law = _gather(law.values, law.weights, _LABELS)
    costs = np.minimum(law.values * (1.0 + _ROUNDING), float(count))
    costs[-1] = count
    return WalkCost(tuple((law.weights / law.weights.sum()).tolist()), tuple(costs.tolist()))


def _reciprocal(gap: Array) -> _Law:
    return _gather(1.0 / np.arange(gap.size, 0, -1), gap[::-1], _INNER_VALUES)


def _multiple(law: _Law, count: int) -> _Law:
    """Return the law of a sum of ``count`` independent copies."""
    total = _NO_COST
    while count:
        if count % 2:
            total = _add(law, total)
        count //= 2
        if count:
            law = _add(law, law)
    return total


def _add(first: _Law, second: _Law) -> _Law:
    values = np.add.outer(first.values, second.values)
    weights = np.multiply.outer(first.weights, second.weights)
    return _gather(values.ravel(), weights.ravel(), _INNER_VALUES)


def _gather(values: Array, weights: Array, most: int) -> _Law:
    """Add the weights of equal values, after rounding up if they are more than ``most``."""
    if values.size > most:
        values = _rounded_up(values, weights, most)
    distinct, label = np.unique(values, return_inverse=True)
    weights = np.asarray(np.bincount(label, weights), dtype=np.float64)
    kept = weights > 0.0
    kept[-1] = True
    return _Law(distinct[kept], weights[kept])


def _rounded_up(values: Array, weights: Array, most: int) -> Array:
    """Round up to a grid (most,), equally spaced in the logarithm where neither end is rare."""
    top = float(values.max())
    depth = np.log(top / values)
    mass, edges = np.histogram(depth, 20 * most, weights=weights)
    first = edges[np.searchsorted(np.cumsum(mass), _LARGE_COSTS)]
    last = edges[mass.size - np.searchsorted(np.cumsum(mass[::-1]), _SMALL_COSTS)]
    step = max((last - first) / (most - 2), 1e-12)
    label = np.clip(np.floor((depth - first) / step), -1, most - 2).astype(np.intp)
    return np.where(label < 0, top, top * np.exp(-(first + step * label)))


def _swap(law: _Law, other: _Law, probability: float) -> _Law:
    """Take the smallest mass from a law and give it the largest mass of another one.

    The mass is ``probability``, or less where more would lower the result.
    """
    values = np.union1d(law.values, other.values)
    weights, others = (
        np.bincount(np.searchsorted(values, each.values), each.weights, values.size)
        for each in (law, other)
    )
    below = np.cumsum(weights)
    above = np.cumsum(others[::-1])[::-1]
    beyond = np.append(above[1:], 0.0)
    meet = int(np.argmax(below >= beyond))
    mass = min(probability, max(float(beyond[meet]), float(below[meet - 1]) if meet else 0.0))
    taken = np.diff(np.minimum(below, mass), prepend=0.0)
    given = np.diff(np.minimum(above[::-1], mass), prepend=0.0)[::-1]
    swapped = np.maximum(weights - taken, 0.0) + given
    return _Law(values, swapped)
