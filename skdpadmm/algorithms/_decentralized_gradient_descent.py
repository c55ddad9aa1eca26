"""Decentralised gradient descent: agents mix models with their neighbours and step downhill.

Source: Nedic & Ozdaglar, "Distributed subgradient methods for multi-agent optimization", IEEE
Transactions on Automatic Control 54, 2009, with noise on clipped gradients and a proximal step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from numbers import Real

import numpy as np

from skdpadmm._sklearn import AUTO, FRACTION, SIZE, Interval, OneOf, parameter
from skdpadmm.algorithms import _network_steps as graph
from skdpadmm.algorithms._algorithm import Algorithm, Released
from skdpadmm.algorithms._messages import EDGE_NOISE, with_edge_noise
from skdpadmm.network import mixing_matrix, push_matrix
from skdpadmm.protocol import Agents, Budget, Facts, Gate, Plan, Problem, Solution, network_of

# Steps are shortened by the least mass of an agent in push-sum.
LEAST_MASS = 0.01
# Noise of more of them takes long to simulate.
MOST_EDGES = 20_000
# Of a step: messages, where noise that neighbours share has to cancel.
MOST_MIXING = 20


@dataclass(kw_only=True, eq=False, repr=False)
class DecentralizedGradientDescent(Algorithm):
    r"""Each agent averages models with its neighbours and takes a private gradient step.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all A agents, roughly:
    agent a holds :math:`F_a = \frac A n \sum_{i \in a} f_i` and a model :math:`w_a` (0 at first),
    and in each round

    .. math:: w_a \leftarrow \mathrm{prox}_{\eta r}\Big(\sum_b W_{ab} w_b
              - \eta \tilde g_a(w_a)\Big),

    where :math:`\tilde g_a` is the gradient of :math:`F_a` with records clipped to norm C, plus
    noise, and W are symmetric weights of neighbours whose rows sum to one. It broadcasts
    :math:`w_a` to its neighbours. An agent's answer is the average of its models over the last
    rounds, the common answer the average over agents.

    The step is constant, so that where agents differ the models settle at the minimum of
    :math:`\sum_a (F_a(w_a) + r(w_a)) + \frac{1}{2 \eta} \sum_{ab} w_a (I - W)_{ab} w_b` instead:
    even without noise they disagree, and their average is off, in proportion to
    :math:`\eta` over the spectral gap of W. On the complete graph W takes the mean and is the least
    of it.

    Parameters
    ----------
    step_size : float or "auto", default="auto"
        :math:`\eta`, in the coordinates of the run; in [1e-100, 1e100].
    clip_norm : float or "auto", default="auto"
        Bound of the Euclidean norm of a record's gradient, in units of the typical norm of a row:
        the square root of the number of parameters, or in conditioned coordinates of the effective
        dimension. In [1e-100, 1e100].
    mixing : {"metropolis", "max_degree", "laplacian"}, default="metropolis"
        Weights W, see :func:`~skdpadmm.network.mixing_matrix`. Graphs that fail, change or are
        directed need "metropolis".
    batch_fraction : float, default=1.0
        In [1e-6, 1]: chance of each record to be in a step, drawn anew for every step and kept
        secret. Below 1 the guarantee is that of Poisson sampling; it takes the extra
        ``skdpadmm[accounting]``.
    tail_fraction : float, default=0.5
        In (0, 1]: fraction of steps, at the end, that is averaged. It uses no budget: all steps
        count as released.
    edge_noise : float or "auto", default="auto"
        0, or in [1, 1e6]: variance of the noise r that neighbours share, one of them adding what
        the other subtracts, over that of an agent's own noise. Then models are mixed after each
        step, as often as one over the spectral gap, at most 20 times, so that it cancels. "auto" is
        100, or 1000 where 100 hides messages less than half as well as a sum of all honest agents
        would. It is 0 with secret batches, where pairs hide nothing, where one budget is far
        smaller than others, and for more than 20,000 edges, whose noise takes long to simulate.

    Notes
    -----
    **Guarantee.** What is released are noisy gradients in T = `max_iter` steps, and models and
    mixtures of them are post-processing. With ``edge_noise=0`` it is that of
    :class:`MultiStepADMM`, against all other agents together. Otherwise an eavesdropper, and a
    peer, know all of `coalition` agents, whichever these are. To them the noise of the others has
    the covariance :math:`s^2 (I + r L)`, with the Laplacian L of the graph without the coalition,
    so the steps are GDP with :math:`\mu = \sqrt T \, 2 C \sqrt{[(I + r L)^{-1}]_{aa}} / s` for
    agent a (half of it for zero-out). The largest value over agents and coalitions counts: exact,
    or by a bound where there are too many of them
    (:func:`~skdpadmm.network.honest_messages`). Neighbours share a secret seed, and a generator
    makes the guarantee computational. Preparations are messages of the same kind.

    **Graphs that fail or change.** W are the Metropolis weights of the links of the round, and an
    absent agent keeps its model. On directed graphs this is push-sum [3]_: with
    :math:`P_{ab} = 1 / (1 + d_b)` for each agent a that b reaches, itself included, where
    :math:`d_b` is their number without b, and masses :math:`m_a` (1 at first),

    .. math:: m_a' = \sum_b P_{ab} m_b, \qquad w_a \leftarrow \mathrm{prox}_{\eta r}\Big(
              \frac1{m_a'} \Big(\sum_b P_{ab} m_b w_b - \eta \tilde g_a(w_a)\Big)\Big).

    The default step is multiplied by the smallest mass, a public number. Absences are refused
    there: an agent that hears from nobody soon has hardly any mass.

    References
    ----------
    .. [1] A. Nedic, A. Ozdaglar, "Distributed subgradient methods for multi-agent optimization",
       IEEE Transactions on Automatic Control 54, 2009.
    .. [2] K. Yuan, Q. Ling, W. Yin, "On the convergence of decentralized gradient descent", SIAM
       Journal on Optimization 26, 2016, for the error that a constant step leaves.
    .. [3] A. Nedic, A. Olshevsky, "Distributed optimization over time-varying directed graphs",
       IEEE Transactions on Automatic Control 60, 2015, with a proximal step.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> model = DPDecentralizedRegressor(algorithm="decentralized-gradient-descent", max_iter=50)
    >>> model.plan(n_samples=10_000, n_features=5).releases[-1].times
    50
    """

    setting = "decentralized"
    releases_path = True  # Every observer counts as seeing all noisy gradients.
    noiseless = True
    supports = ("absences", "changes", "directions")

    step_size: float | str = parameter("auto", AUTO, SIZE)
    clip_norm: float | str = parameter("auto", AUTO, SIZE)
    mixing: str = parameter("metropolis", OneOf("metropolis", "max_degree", "laplacian"))
    batch_fraction: float = parameter(1.0, Interval(Real, 1e-6, 1.0, closed="both"))
    tail_fraction: float = parameter(0.5, FRACTION)
    edge_noise: float | str = parameter("auto", AUTO, EDGE_NOISE)

    def share_among(self, agents: Agents) -> Agents:
        """The same agents with the noise that neighbours share."""
        self.check_parameters()
        needs_none = agents.pairs.n_edges > MOST_EDGES or self.batch_fraction < 1
        if self.edge_noise == "auto" and needs_none:
            return agents
        return with_edge_noise(agents, self.edge_noise)

    def check_facts(self, facts: Facts) -> None:
        """Batches protect records, and weights of every round follow from its links."""
        graph.check_batches(self.batch_fraction, facts)
        if facts.agents.edge_noise and self.batch_fraction < 1:
            raise ValueError(
                f"Got batch_fraction={self.batch_fraction} with edge_noise={self.edge_noise},"
                " expected 1.0, or edge_noise=0: what pairs hide is proven for all records."
            )
        if facts.agents.needs and self.mixing != "metropolis":
            raise ValueError(
                f"Got mixing={self.mixing!r} for a graph with {' and '.join(facts.agents.needs)},"
                " expected 'metropolis', weights that follow from the links of each round."
            )
        if {"absences", "directions"} <= set(facts.agents.needs):
            raise ValueError(
                "Got a directed graph with participation < 1 or dropout > 0, expected 1 and 0: the"
                " mass of an agent that hears from nobody for a while vanishes."
            )
        if (mass := least_mass(facts)) < LEAST_MASS:
            raise ValueError(
                f"Got a directed graph in which the mass of an agent falls to {mass:.2g} of the"
                f" average, expected at least {LEAST_MASS:g}. Add links to agents that few reach."
            )

    def released(self, facts: Facts, budget: Budget) -> Released:
        """Every agent's gradient, in each round."""
        n_iter, sampling = facts.max_iter, float(self.batch_fraction)
        messages = graph.gradient_messages(facts, budget, n_times=n_iter, sampling=sampling)
        step_size, clip_norm = graph.default_network_steps(facts, messages, sampling=sampling)
        # Push-sum divides an agent's step by its mass.
        step_size *= least_mass(facts)
        settings = self.resolved(n_iter=n_iter, step_size=step_size, clip_norm=clip_norm)
        if facts.agents.edge_noise:
            gap = mixing_matrix(network_of(facts).topology, self.mixing).spectral_gap
            settings = settings.but(n_mixing=min(math.ceil(1 / gap), MOST_MIXING))
        return settings, messages

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Run the rounds as planned; symbols as above."""
        facts, settings, rows = plan.facts, plan.settings, problem.rows
        eta, clip_norm = settings.step_size, settings.clip_norm * rows.clip_unit
        gradient = graph.noisy_gradients(plan, problem, gate, clip_norm=clip_norm)
        network, rounds = network_of(facts), graph.draw_rounds(plan, gate, settings.n_iter)
        proximal, tail = graph.proximal_steps(facts, rows), graph.TailAverage(plan, rows, eta)
        mixing = lru_cache(maxsize=max(len(network.graphs), 1))(
            push_matrix if network.is_directed else partial(mixing_matrix, rule=settings.mixing)
        )
        # What neighbours share cancels where models are mixed after the step.
        n_sent, n_mixing = 0, settings.n_mixing if network.edge_noise else 0
        models = points = np.zeros(plan.releases[-1].shape)
        curvature, mass = np.full(len(models), 1 / eta), np.ones((len(models), 1, 1))
        for k, now in enumerate(rounds):
            mix, descent = mixing(now.links).dot, eta * gradient(models)
            if network.is_directed:
                mixed, mass = mix(mass * models), mix(mass)
                target = (mixed - descent) / mass
            else:
                target = (models if n_mixing else mix(models)) - descent
            for _ in range(n_mixing):
                target = mix(target)
            points = graph.update(now.present, points, target)
            models = proximal(points, curvature)
            n_sent += now.links.n_messages * max(n_mixing, 1)
            tail.add(k, models, points, curvature)
            problem.progress(k + 1, rows.to_coordinates(models))
        return tail.solution(
            noise_std=graph.noise_of_messages(plan, clip_norm),
            clip_norm=clip_norm,
            n_rounds=settings.n_iter * max(n_mixing, 1),
            n_messages=n_sent,
        )


def least_mass(facts: Facts) -> float:
    """Least mass of an agent in push-sum over the rounds, whose average is 1."""
    network, least = network_of(facts), 1.0
    mass = np.ones(network.n_agents)
    for k in range(facts.max_iter if network.is_directed else 0):
        mass = push_matrix(network.links_in(k)).dot(mass)
        least = min(least, float(mass.min()))
    return least
