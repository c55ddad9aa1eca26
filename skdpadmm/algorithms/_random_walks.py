"""A token that walks over the agents of a network, each of whom changes it with its own rows.

Source: Cyffers, Bellet & Basu, "From Noisy Fixed-Point Iterations to Private ADMM for Centralized
and Federated Learning" (ICML 2023), Algorithm 4, corrected: the token carries the mean of states
before the proximal step of the penalty (as printed, after it, and its fixed points minimise the
penalty alone). `RandomWalkADMM` is that; the printed bound against peers does not hold for it.
`RandomWalkProximalPoint` is the variant without states, for which bounds that depend on the path
hold. Its proximal step of the penalty is ``theta * gamma`` long, as far as the relaxed step of an
agent goes: with gamma the fixed points would be those of a penalty that is 1 / theta times as
strong. A hop without data leaves the penalty out as well, so the two are always in proportion.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skdpadmm._sklearn import AUTO, COUNT, FRACTION, SIZE, Interval, parameter
from skdpadmm.algorithms import _algorithm as base
from skdpadmm.algorithms import _certified_solves as solves
from skdpadmm.algorithms._certified_solves import LossBounds, bounds_in_basis
from skdpadmm.algorithms._clipped_sums import ClippedSum
from skdpadmm.algorithms._defaults import default_steps, is_regression, usual_smoothness
from skdpadmm.algorithms._messages import calibrated_multiplier
from skdpadmm.algorithms._network_steps import into_ball, network_solution
from skdpadmm.algorithms._noise_left import parameter_variance
from skdpadmm.network import draw_walk, mixing_matrix
from skdpadmm.noise import GRID_CELL
from skdpadmm.privacy import (
    GaussianDP,
    Guarantee,
    NonPrivate,
    StatelessToken,
    TokenPairs,
    TokenWalk,
    WalkCost,
    compose,
)
from skdpadmm.protocol import (
    EAVESDROPPER,
    MODEL,
    PEER,
    Budget,
    Facts,
    Gate,
    Network,
    Plan,
    Problem,
    Release,
    Settings,
    Solution,
    View,
    network_of,
    not_private,
)
from skdpadmm.records import Rows

Array = NDArray[np.float64]
# A token, the agent that holds it and whether it uses its data there; the token that it hands on.
Hop = Callable[[Array, int, bool], Array]
UPDATE, TOKEN = "update of the token", "token"
# Roundings of a token in one hop, each by at most its length times 2**-53; a generous count.
ROUNDINGS = 64
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


@dataclass(kw_only=True, eq=False, repr=False)
class _RandomWalk(base.Algorithm):
    """What tokens share: who holds them when, and the proximal steps of agents."""

    setting = "decentralized"
    conditionable = False
    noiseless = True

    step_size: float | str = parameter("auto", AUTO, SIZE)
    clip_norm: float | str = parameter("auto", AUTO, SIZE)
    max_contributions: int | str = parameter("auto", AUTO, COUNT)
    tolerance: float = parameter(0.01, Interval(Real, 1e-6, 1.0, closed="both"))

    def check_facts(self, facts: Facts) -> None:
        """One epsilon for records, whose rows have a bound."""
        name = type(self).__name__
        if facts.unit != "record":
            raise ValueError(
                f"Got privacy_unit={facts.unit!r} for {name}, expected 'record': a proximal step"
                " has a bound for one record of an agent, and none for all of them. Use"
                " MultiStepADMM."
            )
        if network_of(facts).epsilons:
            raise ValueError(
                f"Got budgets of single agents for {name}, expected one epsilon: the noise of a"
                " token protects all of them. Use MultiStepADMM."
            )
        if not math.isfinite(facts.row_norm):
            raise ValueError(
                f"Got row_norm={facts.row_norm} for {name}, expected a finite bound: the number of"
                " inner steps follows from it. Use MultiStepADMM."
            )

    def _walk(self, facts: Facts) -> tuple[int, int]:
        """Hops of a walk with `max_iter` visits of an agent on average, and the cap of visits.

        At later visits an agent does not use its data. A cap of the mean number leaves out
        ``0.4 / sqrt(max_iter)`` of all visits on the complete graph, and a larger one takes more
        noise than those are worth.
        """
        n_hops, cap = facts.max_iter * network_of(facts).n_agents, self.max_contributions
        return n_hops, min(facts.max_iter if cap == "auto" else int(cap), n_hops)

    def _settings(
        self,
        facts: Facts,
        mu: float,
        n_steps: int,
        *,
        radius: float,
        farthest: float,
        tolerance: float,
        n_averaged: int = 1,
        relaxation: float = 1.0,
    ) -> Settings:
        """Settings of a walk whose steps are those of a curator with as much noise.

        Points of proximal steps are in a ball of a radius, `farthest`.
        """
        n_hops, cap = self._walk(facts)
        step_size, clip_norm = walk_steps(facts, mu, n_steps, self.clip_norm)
        bounds = bounds_in_basis(facts, None, clip_norm=clip_norm, row_bound=1.0)
        step_size = min(step_size / relaxation, longest_well_conditioned_step(facts, bounds))
        if self.step_size != "auto":
            step_size = float(self.step_size)
        return self.resolved(
            n_hops=n_hops,
            n_averaged=n_averaged,
            max_contributions=cap,
            step_size=step_size,
            clip_norm=clip_norm,
            radius=radius,
            inner=inner_steps(
                facts, bounds, step_size=step_size, tolerance=tolerance, farthest=farthest
            ),
        )

    @abstractmethod
    def _hop(
        self, plan: Plan, gate: Gate, rows: Rows, proximal_step: Callable[[int, Array], Array]
    ) -> tuple[Hop, Array | None]:
        """What the holder of a token does with it; and models that agents end up with."""

    @abstractmethod
    def _variance(self, plan: Plan, rows: Rows) -> Array:
        """Variance that noise leaves in each parameter, in the basis of the rows."""

    def _penalty_step(self, plan: Plan) -> float:
        """Length of the proximal step of the penalty."""
        return float(plan.settings.step_size)

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Walk as planned; symbols as in the class."""
        facts, rows, settings = plan.facts, problem.rows, plan.settings
        n_agents, n_averaged = network_of(facts).n_agents, settings.n_averaged
        proximal_step = agent_proximal_steps(plan, problem)
        prox = base.penalty_operator(facts.penalty, self._penalty_step(plan), rows)
        hop, per_agent = self._hop(plan, gate, rows, proximal_step)
        token = tail = np.zeros(facts.model_shape)
        hops = draw_hops(facts, settings.max_contributions, gate)
        for k, (agent, contributes) in enumerate(zip(*hops, strict=True), start=1):
            token = hop(token, int(agent), bool(contributes))
            if k > settings.n_hops - n_averaged:
                tail = tail + token / n_averaged
            if k % n_agents == 0:
                problem.progress(k // n_agents, partial(prox, token))
        return network_solution(
            facts,
            rows,
            prox(tail),
            self._variance(plan, rows),
            parameters_per_agent=per_agent,
            n_iter=settings.n_hops,
            n_rounds=settings.n_hops,
            n_messages=hops.n_messages(n_agents),
            derivative_bound=settings.clip_norm,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class RandomWalkADMM(_RandomWalk):
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
        In (0, 1]: fraction of the walk, at its end, that is averaged. It uses no budget: all tokens
        count as released.
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
    proven: agents remember earlier tokens, and the token expands at a first visit.
    `RandomWalkProximalPoint` has no states, and figures against peers that hold.

    References
    ----------
    .. [1] E. Cyffers, A. Bellet, D. Basu, "From Noisy Fixed-Point Iterations to Private ADMM for
       Centralized and Federated Learning", ICML 2023, Algorithm 4, corrected as stated above.

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

    releases_path = True  # Every observer counts as seeing the token after every hop.

    relaxation: float = parameter(0.5, FRACTION)
    tail_fraction: float = parameter(0.5, FRACTION)

    def released(self, facts: Facts, budget: Budget) -> base.Released:
        """The update of the token, at each hop."""
        network, (n_hops, cap) = network_of(facts), self._walk(facts)
        # In units of the sensitivity to taking one record away.
        sensitivity = ClippedSum(facts).sensitivity + 2 * float(self.tolerance)
        (prior,) = base.spent_before(facts, budget)
        noise_std = calibrated_multiplier(
            lambda noise: GaussianDP(math.sqrt(cap) * sensitivity / noise), budget, prior
        )
        mu, guarantees = math.inf, tuple[Guarantee, ...]([NonPrivate()])
        if budget.is_private:
            mu = sensitivity / noise_std
            guarantees = (GaussianDP(math.sqrt(cap) * sensitivity / noise_std),)
        shape = facts.model_shape
        # Bound of the norm of a state, in units of what one record moves: signal and noise.
        noise = noise_std * math.sqrt(math.prod(shape))
        radius = 4.0 * (cap * max(network.agent_sizes) + noise * math.sqrt(cap))
        settings = self._settings(
            facts,
            mu,
            facts.max_iter,
            radius=radius,
            farthest=3 * 2 * self.relaxation * radius,  # Of 2 z - u, in units of a step.
            tolerance=float(self.tolerance),
            n_averaged=base.tail_length(self.tail_fraction, n_hops),
        )
        return settings, Release(
            name=UPDATE,
            shape=shape,
            sensitivities=(sensitivity,) * n_hops,
            noise_std=noise_std,
            agent_noise_std=(noise_std,),
            views=tuple(View(observer=o, guarantees=guarantees) for o in network.observers),
        )

    def _hop(
        self, plan: Plan, gate: Gate, rows: Rows, proximal_step: Callable[[int, Array], Array]
    ) -> tuple[Hop, Array]:
        facts, settings = plan.facts, plan.settings
        stride, n_agents = 2 * settings.relaxation, network_of(facts).n_agents
        length = _length(plan, stride)
        prox = base.penalty_operator(facts.penalty, settings.step_size, rows)
        states, own = np.zeros((2, n_agents, facts.n_parameters, facts.loss.n_outputs))
        # Projections onto a public ball, which only a draw of the noise that never comes would
        # leave: so the rounding of scores has a bound.
        radius = length * settings.radius

        def hop(token: Array, agent: int, contributes: bool) -> Array:
            own[agent] = z = prox(token)
            if not contributes:
                gate.skip(UPDATE)
                return token
            change = proximal_step(agent, 2 * z - states[agent]) - z
            update = gate.release(UPDATE, stride * change / length)
            states[agent] += length * update
            states[agent] = into_ball(states[[agent]], radius)[0]
            return into_ball((token + length * update / n_agents)[None], radius)[0]

        return hop, own

    def _variance(self, plan: Plan, rows: Rows) -> Array:
        facts, settings, n_agents = plan.facts, plan.settings, network_of(plan.facts).n_agents
        noise_std = _bounds(plan).gradient_norm * plan.releases[-1].noise_std
        return parameter_variance(
            facts.loss,
            rows,
            step_size=2 * settings.relaxation * settings.step_size,
            noise_std=noise_std * math.sqrt(n_agents) / facts.n_samples,
            n_iter=facts.max_iter,
            n_averaged=max(1, settings.n_averaged // n_agents),
        )


@dataclass(kw_only=True, eq=False, repr=False)
class RandomWalkProximalPoint(_RandomWalk):
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

    relaxation: float = parameter(1.0, FRACTION)

    def released(self, facts: Facts, budget: Budget) -> base.Released:
        """The token, at each hop."""
        network, (n_hops, cap) = network_of(facts), self._walk(facts)
        walk, shape = token_walk(network, n_hops, cap), facts.model_shape
        costs, root = walk_costs(network, walk, cap), math.sqrt(math.prod(shape))
        # Lengths in units of the sensitivity to taking one record away.
        tolerance, delta = float(self.tolerance) / network.n_agents, ClippedSum(facts).sensitivity
        token = StatelessToken(
            n_hops=n_hops, cap=cap, drift=2 * tolerance / delta, grid=GRID * root
        )
        (prior,) = base.spent_before(facts, budget)
        multiplier = calibrated_multiplier(
            lambda noise: token.guarantee(costs[budget.observer], 1.0 / noise), budget, prior
        )
        mu = 1.0 / multiplier if budget.is_private else math.inf
        noise_std = multiplier * delta
        # Bound of the norm of a token, in units of what one record moves: signal and noise.
        radius = 4.0 * (cap * facts.n_samples + noise_std * root * math.sqrt(n_hops))
        if budget.is_private:
            check_resolution(facts, radius, noise_std)
        settings = self._settings(
            facts,
            mu,
            n_hops,
            radius=radius,
            farthest=self.relaxation * radius,
            tolerance=tolerance,
            relaxation=self.relaxation,
        )
        if not budget.is_private:
            return settings, not_private(TOKEN, shape, network.observers, times=n_hops)
        return settings, Release(
            name=TOKEN,
            shape=shape,
            # Of a hop that uses data: at most `cap` of those of an agent.
            sensitivities=(delta * (1 + token.drift),) * n_hops,
            noise_std=noise_std,
            agent_noise_std=(noise_std,),
            views=token_views(facts, token, walk, costs, mu),
        )

    def assumptions(self, facts: Facts, budget: Budget) -> tuple[str, ...]:
        """What figures of a walk rest on."""
        return walk_assumptions(network_of(facts))

    def _penalty_step(self, plan: Plan) -> float:
        return float(plan.settings.relaxation * plan.settings.step_size)

    def _hop(
        self, plan: Plan, gate: Gate, rows: Rows, proximal_step: Callable[[int, Array], Array]
    ) -> tuple[Hop, None]:
        facts, theta = plan.facts, plan.settings.relaxation
        length = _length(plan, theta)
        prox = base.penalty_operator(facts.penalty, self._penalty_step(plan), rows)
        # As for states of ADMM.
        radius = length * plan.settings.radius

        def hop(y: Array, agent: int, contributes: bool) -> Array:
            if contributes:
                z = prox(y)
                y = z + theta * (proximal_step(agent, z) - z)
            return into_ball((length * gate.release(TOKEN, y / length))[None], radius)[0]

        return hop, None

    def _variance(self, plan: Plan, rows: Rows) -> Array:
        """That of the last token, to which all hops add noise."""
        step, n_hops = self._penalty_step(plan), plan.settings.n_hops
        shrinks = 1.0 - 0.5 * step * usual_smoothness(plan.facts.loss) * rows.loading
        kept = np.square(np.clip(shrinks, 0.0, 1.0))
        with np.errstate(invalid="ignore"):
            total = np.where(kept < 1.0, (1.0 - kept**n_hops) / (1.0 - kept), float(n_hops))
        return np.asarray(
            (_length(plan, plan.settings.relaxation) * plan.releases[-1].noise_std) ** 2 * total
        )


def _bounds(plan: Plan) -> LossBounds:
    """Of a record's loss, for all data."""
    return bounds_in_basis(plan.facts, None, clip_norm=plan.settings.clip_norm, row_bound=1.0)


def _length(plan: Plan, stride: float) -> float:
    """The sensitivity of an agent's update, a stride times its step, to taking one record away."""
    facts, gradient_norm = plan.facts, _bounds(plan).gradient_norm
    length = stride * plan.settings.step_size * gradient_norm * network_of(facts).n_agents
    return float(length / facts.n_samples)


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
    never_binds = solves.open_clip(facts.loss, facts.row_norm) / solves.typical_norm(facts)
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
    direct = WalkCost.direct(cap)
    if walk is None:
        return dict.fromkeys(network.observers, direct)
    return {
        EAVESDROPPER: direct,
        PEER: walk.worst_cost(network.coalition),
        MODEL: walk.worst_cost(0),
    }


def token_views(
    facts: Facts,
    token: StatelessToken,
    walk: TokenWalk | None,
    costs: Mapping[str, WalkCost],
    mu: float,
) -> tuple[View, ...]:
    """What each observer learns of a token, where `mu` is that of a contribution seen at once."""
    pairs = None
    if walk is not None:
        before = [release.view(PEER).guarantees[0] for release in facts.preparations]
        pairs = TokenPairs(walk, token, mu, compose(*before))
    return tuple(
        View(
            observer=observer,
            guarantees=(token.guarantee(cost, mu),),
            worst_cases=(token.direct(mu),),
            pairs=pairs if observer == PEER else None,
        )
        for observer, cost in costs.items()
    )


def check_resolution(facts: Facts, radius: float, noise_std: float) -> None:
    """Refuse tokens that arithmetic would move by more than a cell."""
    if ROUNDINGS * 2.0**-53 * radius > GRID_CELL * noise_std:
        raise ValueError(
            f"Got n_samples={facts.n_samples} for RandomWalkProximalPoint, expected fewer: the"
            " rounding of a token would not be small beside its noise. Use MultiStepADMM."
        )


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


def longest_well_conditioned_step(facts: Facts, bounds: LossBounds) -> float:
    """Proximal step at which inner problems are as badly conditioned as a default may make them."""
    return (LARGEST_CONDITION - 1.0) / (_weight(facts) * bounds.curvature * _sizes(facts)[-1])


def inner_steps(
    facts: Facts, bounds: LossBounds, *, step_size: float, tolerance: float, farthest: float
) -> tuple[int, ...]:
    """Decide the number of inner steps that brings every agent within a tolerance of its step.

    Lengths are in units of the distance that taking one record away can move a step.
    """
    base.check_zero_at_zero(facts.penalty)
    advice = f"Got step_size={step_size:g}, expected a shorter step or a larger tolerance"
    curvature = step_size * _weight(facts) * bounds.curvature
    unit_bounds = LossBounds(row_norm=1.0, gradient_norm=1.0, curvature=curvature)

    def steps_of(n_rows: int) -> int:
        share, smoothness = n_rows / facts.n_samples, 1.0 + curvature * n_rows
        of_step = solves.step_rounding(smoothness)
        of_score = share * solves.score_rounding(facts, unit_bounds)
        of_sum = share * solves.sum_rounding(facts, unit_bounds) + CLIPPING
        try:
            return solves.steps_to_reach(
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


def agent_proximal_steps(plan: Plan, problem: Problem) -> Callable[[int, Array], Array]:
    """Proximal steps of ``F_a = (A / n) sum_{i in a} f_i``, each f_i clipped if private."""
    facts, bounds, ownership = plan.facts, _bounds(plan), problem.ownership
    assert ownership is not None
    is_private = plan.budget.is_private
    weight, convexity = _weight(facts), 1.0 / plan.settings.step_size
    gradients, clips = [], bounds if is_private else solves.NO_BOUNDS
    for agent in range(ownership.n_agents):
        group = ownership.rows_of(agent)
        own = replace(problem, rows=problem.rows.take([group]), target=problem.target[group])
        gradients.append(clips.gradient(facts, own))
    smoothness = convexity + weight * bounds.curvature * ownership.sizes
    n_steps = np.asarray(plan.settings.inner)[np.searchsorted(_sizes(facts), ownership.sizes)]
    n_steps = n_steps * (1 if is_private else solves.STEPS_WITHOUT_NOISE)

    def step(agent: int, point: Array) -> Array:
        gradient = gradients[agent]
        # In terms of the displacement d rounding is relative to d.
        return point + solves.accelerated_gradient(
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
