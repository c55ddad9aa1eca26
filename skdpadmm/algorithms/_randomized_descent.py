"""Decentralised gradient descent whose agents mix with secret random weights: in rounds, or once.

Source: Xiao, "Local Differential Privacy in Decentralized Optimization", MIT 2019: equation (3.8)
with its generators of weights, whose rows are made to sum to one, and Algorithm 2*; Algorithm 2,
with sensitivity and noise in the units of one and the same scaling of the objective.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from skdpadmm.algorithms._algorithm import Algorithm, Released, choice, count, number, share, size
from skdpadmm.algorithms._defaults import typical_row
from skdpadmm.algorithms._network_steps import GRADIENTS, Array, Step, descend
from skdpadmm.algorithms._random_aggregators import (
    Agents,
    GradientTurns,
    between,
    boxes_of,
    check_noise_decay,
    decay_weights,
    default_aggregator_steps,
    noise_of_gradients,
    noise_of_mean,
)
from skdpadmm.algorithms._turns import agent_turns
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Release, Solution, network_of

# Norm of the mean gradient of agents, beside the clip bound.
TYPICAL_MEAN = 0.5


@dataclass(kw_only=True, eq=False, repr=False)
class RandomizedGradientDescent(Algorithm):
    r"""Agents average with random weights that nobody knows, and take private gradient steps.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all A agents, roughly:
    agent a holds :math:`F_a = \frac A n \sum_{i \in a} f_i` and a model :math:`w_a` (0 at first),
    and in round k broadcasts

    .. math:: v_a = \sum_b W^k_{ab} w_b - \eta_k \nabla F_a(u_a) + \text{noise},
              \qquad u_a = \sum_b E[W^k_{ab}] w_b,

    where gradients of records are clipped to norm C. Rows of the random weights :math:`W^k` sum to
    one, they are drawn for each entry of the models, and nobody but the agent ever knows them: so
    the gradient is taken at the expected mix, which everybody knows. All take the proximal step
    :math:`w_a \leftarrow \mathrm{prox}_{\eta_k r}(v_a)`. An agent's answer is the average of its
    models over the last rounds, the common answer the average over agents.

    With a constant step agents that differ neither agree in the end nor settle, as what they
    disagree about is mixed at random; steps that shrink lead to the optimum.

    Parameters
    ----------
    mixing : {"metropolis", "neighbors", "pair", "interval"}, default="metropolis"
        Law of the weights, with :math:`\rho \sim U(0, 1)`.

        - "metropolis": :math:`\rho` for oneself, :math:`1 - \rho` for what Metropolis weights make
          of the neighbourhood. The expected weights are doubly stochastic, on any graph.
        - "neighbors": :math:`1 - \rho` for the mean of the neighbours. Agents with many neighbours
          count for more, unless all have equally many.
        - "pair": of an agent and its d neighbours two, who are drawn in public, have
          :math:`2 \rho / (d + 1)` and :math:`2 (1 - \rho) / (d + 1)`, the others
          :math:`1 / (d + 1)`. The same holds.
        - "interval": :math:`\rho` for the smallest entry in the neighbourhood and :math:`1 - \rho`
          for the largest, entry by entry, with the gradient at the agent's own model: the paper's
          Algorithm 2*. It keeps no mean, and agents far from the others drag all along.
    step_size : float or "auto", default="auto"
        :math:`\eta_1`, in public coordinates; in [1e-100, 1e100].
    step_power : float, default=0.0
        In [0, 1]: :math:`\eta_k` shrinks like :math:`k^{-\text{step\_power}}`.
    step_decay : float, default=1.0
        In [0.5, 1]: what each step is of the one before, beside that.
    clip_norm : float or "auto", default="auto"
        Bound C of the Euclidean norm of a record's gradient, in units of the typical norm of a row;
        for Laplace noise of the L1 norm, in units of that times the root of the number of
        parameters. In [1e-100, 1e100].
    noise : {"laplace", "gaussian"}, default="laplace"
        Law of the noise. Laplace noise goes by the L1 norm, in which records are then clipped.
    noise_decay : float, default=1.0
        Noise of a gradient over that of the next one, in [0.5, 2]. In models it is multiplied by
        the step: with the paper's :math:`\beta_k` it is :math:`\beta_{k+1} \eta_{k+1}` over
        :math:`\beta_k \eta_k`.
    order_seed : int, default=0
        Public seed of the pairs of ``mixing="pair"``; no part of the privacy.
    tail_fraction : float, default=0.5
        In (0, 1]: share of all steps, at their end, that is averaged. Free: all steps count as
        released.

    Notes
    -----
    **Guarantee.** Observers "eavesdropper" (sees every message), "peer" and "model": one figure for
    all three. Unit: one record, or all records of an agent, whose gradient is then clipped as a
    whole. Let c = 2 for replace-one and 1 for zero-out. Random weights depend on nothing private
    and are drawn afresh. Given them and what was said before, a broadcast is a public function of
    the noisy gradient, which a record moves by at most :math:`c\,C A / n`: in the L1 norm for
    Laplace noise, in the Euclidean one for Gaussian noise. So the steps are
    :class:`~skdpadmm.privacy.LaplaceDP` with :math:`\epsilon_k = c\,C A / (n s_k)`, or
    GDP with :math:`\mu^2 = \sum_k (c\,C A / (n s_k))^2`, whatever the mix: what random weights hide
    beyond that is not counted. It needs neither convexity nor honest neighbours.

    **No guarantee.** The estimator's ``expected_privacy_loss_`` is, for Laplace noise, each agent's
    sum over steps and entries of what the absolute privacy loss is expected to be at most where a
    record moves all entries alike, given the intervals that its mixes came from: by
    :func:`~skdpadmm.privacy.expected_privacy_loss_factor_ceiling`. It is a function of the path
    that was released, and says nothing at any level of confidence.

    References
    ----------
    .. [1] H. Xiao, "Local Differential Privacy in Decentralized Optimization", SM thesis, MIT,
       2019, Sections 3.2 and 3.3 and Appendix E, corrected as said above.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> model = DPDecentralizedRegressor(algorithm="randomized-gradient-descent", max_iter=50)
    >>> model.plan(n_samples=10_000, n_features=5).releases[-1].times
    50
    """

    setting = "decentralized"
    conditionable = False

    mixing: Literal["metropolis", "neighbors", "pair", "interval"] = choice(
        "metropolis", "neighbors", "pair", "interval"
    )
    step_size: float | Literal["auto"] = size()
    step_power: float = number(0.0, 0.0, 1.0)
    step_decay: float = number(1.0, 0.5, 1.0)
    clip_norm: float | Literal["auto"] = size()
    noise: Literal["laplace", "gaussian"] = choice("laplace", "gaussian")
    noise_decay: float = number(1.0, 0.5, 2.0)
    order_seed: int = count(0, least=0)
    tail_fraction: float = share(0.5)

    def check_facts(self, facts: Facts) -> None:
        """Noise of all rounds can be added."""
        check_noise_decay(self.noise_decay, facts.max_iter)

    def released(self, facts: Facts, budget: Budget) -> Released:
        """Every agent's gradient, in each round."""
        weights = decay_weights(self.noise_decay, facts.max_iter)
        turns = agent_turns(facts, budget, name=GRADIENTS, weights=weights, law=self.noise)
        step_size, clip_norm = default_aggregator_steps(facts, turns)
        settings = self.resolved(n_iter=facts.max_iter, step_size=step_size, clip_norm=clip_norm)
        return settings, turns

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Run the rounds as planned; symbols as above."""
        settings, network = plan.settings, network_of(plan.facts)
        everybody, clip_norm = (
            np.arange(network.n_agents),
            settings.clip_norm * problem.rows.clip_unit,
        )
        weights = decay_weights(settings.noise_decay, settings.n_iter)
        turns = GradientTurns(plan, problem, gate, clip_norm=clip_norm, weights=weights)
        boxes = boxes_of(network.topology, settings.mixing, settings.order_seed)
        k = np.arange(settings.n_iter)
        steps = settings.step_size * (k + 1.0) ** -settings.step_power * settings.step_decay**k
        tail = slice(settings.n_iter - settings.n_averaged, None)
        step_size = float(steps[tail].mean())

        def step(k: int, models: Array) -> Step:
            box, eta = boxes(models), float(steps[k])
            at = models if settings.mixing == "interval" else box.center
            points = box.draw(gate.uniform) - eta * turns.gradient(everybody, at)
            turns.count_losses(everybody, box.widths, eta)
            curvature = np.full(network.n_agents, 1 / eta)
            return Step(points=points, curvature=curvature, longer=step_size / eta)

        solution = descend(
            plan,
            problem,
            step,
            step_size=step_size,
            noise_std=noise_of_mean(plan, clip_norm, weights[tail]),
            clip_norm=clip_norm,
        )
        return replace(solution, expected_privacy_loss=turns.expected_loss)


@dataclass(kw_only=True, eq=False, repr=False)
class RandomizedSGD(Algorithm):
    r"""Each agent takes part once, and mixes two models with secret random weights.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all A agents. Agent a
    holds :math:`F_a = \frac A n \sum_{i \in a} f_i`. Agents are split at random, in public, into
    2K groups. In round k all agents a of the next two groups broadcast

    .. math:: v_a = \rho \odot y_1 + (1 - \rho) \odot y_2
              - \eta_k \nabla F_a\Big(\frac{y_1 + y_2}2\Big) + \text{noise},
              \qquad \eta_k = \frac{\eta_1}{\sqrt k},

    with secret weights :math:`\rho \sim U(0, 1)` for each entry and gradients of records clipped to
    norm C. Then :math:`y_1` and :math:`y_2` become the means of the two groups, after a proximal
    step; both are 0 at first. The answer is the average of the midpoints
    :math:`\frac12 (y_1 + y_2)` over the last rounds, the same for all agents.

    It is made for many agents: with few of them there are few steps. How many is up to `rounds`
    and the number of agents; the estimator's `max_iter` plays no part.

    Parameters
    ----------
    rounds : int or "auto", default="auto"
        K, at least 1 and at most half of the number of agents. "auto": fewer where noise in a round
        would be larger than gradients.
    step_size : float or "auto", default="auto"
        :math:`\eta_1`, in public coordinates; in [1e-100, 1e100].
    clip_norm : float or "auto", default="auto"
        Bound C of the Euclidean norm of a record's gradient, in units of the typical norm of a row;
        for Laplace noise of the L1 norm, in units of that times the root of the number of
        parameters. In [1e-100, 1e100].
    noise : {"laplace", "gaussian"}, default="laplace"
        Law of the noise. Laplace noise goes by the L1 norm, in which records are then clipped.
    order_seed : int, default=0
        Public seed of the groups; no part of the privacy.
    tail_fraction : float, default=0.5
        In (0, 1]: share of all rounds, at their end, that is averaged; 1 is the paper's. Free: all
        agents count as heard.

    Notes
    -----
    **Guarantee.** As for :class:`RandomizedGradientDescent`, whose sketch of a proof it shares. An
    agent speaks once, so its whole budget goes into one broadcast: with noise s it is
    :class:`~skdpadmm.privacy.LaplaceDP` with :math:`\epsilon = c\,C A / (n s)`, or GDP with
    :math:`\mu = c\,C A / (n s)`. Who is in which group is public, and amplifies nothing. The
    estimator's ``expected_privacy_loss_`` is explained there too: it is no guarantee.

    Broadcasts are passed on along all edges of the graph, which is all that it is for.

    References
    ----------
    .. [1] H. Xiao, "Local Differential Privacy in Decentralized Optimization", SM thesis, MIT,
       2019, Algorithm 2 and Theorem 3.2.1.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> model = DPDecentralizedRegressor(algorithm="randomized-sgd", n_agents=100)
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> plan.settings.rounds, plan.releases[-1].times
    (50, 1)
    """

    setting = "decentralized"
    conditionable = False

    rounds: int | Literal["auto"] = count("auto")
    step_size: float | Literal["auto"] = size()
    clip_norm: float | Literal["auto"] = size()
    noise: Literal["laplace", "gaussian"] = choice("laplace", "gaussian")
    order_seed: int = count(0, least=0)
    tail_fraction: float = share(0.5)

    def check_facts(self, facts: Facts) -> None:
        """A round takes two groups of agents, of whom each takes part once."""
        n_agents = network_of(facts).n_agents
        held = f"n_agents={n_agents} that hold n_samples={facts.n_samples} rows"
        if n_agents < 2:
            raise ValueError(
                f"Got {held}, expected at least 2 agents: a round takes two groups of them."
            )
        if self.rounds != "auto" and int(self.rounds) > n_agents // 2:
            raise ValueError(
                f"Got rounds={self.rounds} for {held}, expected at most {n_agents // 2}: a round"
                " takes two groups of agents, and each agent takes part once."
            )

    def released(self, facts: Facts, budget: Budget) -> Released:
        """Every agent's gradient, once."""
        turns = agent_turns(facts, budget, name=GRADIENTS, weights=np.ones(1), law=self.noise)
        rounds = default_rounds(facts, turns) if self.rounds == "auto" else int(self.rounds)
        whole, clip_norm = default_aggregator_steps(facts, turns, longest=math.inf)
        # Steps that shrink like roots go as far as a single one, where a typical row allows.
        first = whole / float(np.sum(1.0 / np.sqrt(np.arange(rounds) + 1.0)))
        step_size = min(first, 1.0 / (facts.loss.smoothness * typical_row(facts) ** 2))
        settings = self.resolved(
            n_iter=rounds, rounds=rounds, step_size=step_size, clip_norm=clip_norm
        )
        return settings, turns

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Let all agents speak as planned; symbols as above."""
        settings, n_rounds = plan.settings, plan.settings.n_iter
        clip_norm = settings.clip_norm * problem.rows.clip_unit
        turns = GradientTurns(plan, problem, gate, clip_norm=clip_norm, weights=np.ones(1))
        groups = groups_of_agents(network_of(plan.facts).n_agents, n_rounds, settings.order_seed)
        steps = settings.step_size / np.sqrt(np.arange(n_rounds) + 1.0)
        step_size = float(steps[n_rounds - settings.n_averaged :].mean())

        def step(k: int, heard: Array) -> Step:
            who, eta = np.concatenate(groups[2 * k : 2 * k + 2]), float(steps[k])
            shape = (len(who), *heard.shape[1:])
            box = between(np.broadcast_to(heard[0], shape), np.broadcast_to(heard[1], shape))
            said = box.draw(gate.uniform) - eta * turns.gradient(who, box.center)
            turns.count_losses(who, box.widths, eta)
            half = len(groups[2 * k])
            points = np.stack([said[:half].mean(axis=0), said[half:].mean(axis=0)])
            return Step(points=points, curvature=np.full(2, 1 / eta), longer=step_size / eta)

        solution = descend(
            plan,
            problem,
            step,
            step_size=step_size,
            # A round hears one agent in so many.
            noise_std=noise_of_mean(plan, clip_norm, np.ones(1)) * math.sqrt(n_rounds),
            clip_norm=clip_norm,
            n_groups=2,
        )
        return replace(solution, expected_privacy_loss=turns.expected_loss)


def default_rounds(facts: Facts, turns: Release) -> int:
    """Rounds in which agents speak once, at most half as many as agents.

    The more rounds, the fewer agents in each, and the more noise. The bound of Theorem 3.2.1 is the
    least where noise in a round is as large as the gradient.
    """
    agents = network_of(facts)
    most = agents.n_agents // 2
    if turns.noise_std == 0:
        return most
    noise = noise_of_gradients(facts, turns)[agents.kind] * (agents.n_agents / facts.n_samples)
    n_entries = facts.n_parameters * facts.loss.n_outputs
    variance = 2 * n_entries * float(np.mean(np.square(noise)))
    return int(min(max(agents.n_agents * TYPICAL_MEAN**2 / variance, 1), most))


def groups_of_agents(n_agents: int, n_rounds: int, seed: int) -> list[Agents]:
    """Split agents at random into two groups for each round, whose sizes differ by at most one."""
    order = np.random.Generator(np.random.Philox(seed)).permutation(n_agents)
    cuts = np.arange(2 * n_rounds + 1) * n_agents // (2 * n_rounds)
    return [np.sort(order[low:high]).astype(np.intp) for low, high in pairwise(cuts.tolist())]
