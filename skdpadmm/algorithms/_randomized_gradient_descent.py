"""Decentralised gradient descent whose agents mix with secret random weights.

Source: Xiao, "Local Differential Privacy in Decentralized Optimization", MIT 2019, equation (3.8)
with its generators of weights, whose rows are made to sum to one, and Algorithm 2*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skdpadmm.algorithms._aggregator_defaults import (
    check_noise_decay,
    decay_weights,
    default_aggregator_steps,
)
from skdpadmm.algorithms._algorithm import penalty_operator
from skdpadmm.algorithms._knobs import (
    check_choice,
    check_range,
    check_seed,
    check_steps,
    check_tail_fraction,
    tail_length,
)
from skdpadmm.algorithms._network_steps import network_solution, proximal_steps
from skdpadmm.algorithms._random_aggregators import (
    Box,
    closed_neighborhoods,
    gradient_turns,
    metropolis_box,
    neighbors_box,
    noise_of_mean,
)
from skdpadmm.algorithms._turn_noise import agent_turns
from skdpadmm.network import Topology, mixing_matrix
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Solution, network_of

Array = NDArray[np.float64]
GRADIENTS = "gradients of agents"
MIXING = ("metropolis", "neighbors", "pair", "interval")


@dataclass(frozen=True, kw_only=True)
class RandomizedGradientDescentSettings:
    """Constants of one run, resolved; symbols of the paper in brackets.

    Attributes
    ----------
    n_rounds : int
        Steps, each followed by a broadcast [K].
    step_size : float
        Of the first step [xi].
    step_power, step_decay : float
        Step k is ``step_size * k**-step_power * step_decay**(k - 1)``.
    clip_norm : float
        Bound of the Euclidean norm of a unit's gradient, in units of `Rows.clip_unit`; with
        Laplace noise of its L1 norm, at ``clip_norm * law_factor`` in these units.
    mixing : {"metropolis", "neighbors", "pair", "interval"}
    noise_decay : float
        Noise of a gradient over that of the next one.
    order_seed : int
    n_averaged : int
        Length of the averaged tail of the path.
    """

    n_rounds: int
    step_size: float
    step_power: float
    step_decay: float
    clip_norm: float
    mixing: str
    noise_decay: float
    order_seed: int
    n_averaged: int

    @property
    def steps(self) -> Array:
        """Lengths of all steps, of shape (n_rounds,)."""
        k = np.arange(self.n_rounds)
        return np.asarray(self.step_size * (k + 1.0) ** -self.step_power * self.step_decay**k)


class RandomizedGradientDescent(BaseEstimator):
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

    conditionable = False
    setting = "decentralized"
    exact = False

    def __init__(
        self,
        *,
        mixing: Literal["metropolis", "neighbors", "pair", "interval"] = "metropolis",
        step_size: float | Literal["auto"] = "auto",
        step_power: float = 0.0,
        step_decay: float = 1.0,
        clip_norm: float | Literal["auto"] = "auto",
        noise: Literal["laplace", "gaussian"] = "laplace",
        noise_decay: float = 1.0,
        order_seed: int = 0,
        tail_fraction: float = 0.5,
    ) -> None:
        self.mixing = mixing
        self.step_size = step_size
        self.step_power = step_power
        self.step_decay = step_decay
        self.clip_norm = clip_norm
        self.noise = noise
        self.noise_decay = noise_decay
        self.order_seed = order_seed
        self.tail_fraction = tail_fraction

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_choice("mixing", self.mixing, MIXING)
        check_choice("noise", self.noise, ("laplace", "gaussian"))
        check_steps(self.step_size, self.clip_norm)
        check_range("step_power", self.step_power, 0.0, 1.0, auto=False)
        check_range("step_decay", self.step_decay, 0.5, 1.0, auto=False)
        check_noise_decay(self.noise_decay, facts.max_iter)
        check_seed("order_seed", self.order_seed)
        check_tail_fraction(self.tail_fraction)

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide steps and each agent's noise from public facts.

        Parameters
        ----------
        facts : Facts
            Of a network.
        budget : Budget
            Without privacy there is no noise, and nothing is clipped unless `clip_norm` says so.

        Returns
        -------
        Plan

        Raises
        ------
        ValueError
            Where a knob is outside its range.
        """
        self.check(facts)
        turns = agent_turns(
            facts,
            budget,
            name=GRADIENTS,
            weights=decay_weights(self.noise_decay, facts.max_iter),
            law=self.noise,
        )
        step_size, clip_norm = default_aggregator_steps(facts, turns)
        settings = RandomizedGradientDescentSettings(
            n_rounds=facts.max_iter,
            step_size=step_size if self.step_size == "auto" else float(self.step_size),
            step_power=float(self.step_power),
            step_decay=float(self.step_decay),
            clip_norm=clip_norm if self.clip_norm == "auto" else float(self.clip_norm),
            mixing=self.mixing,
            noise_decay=float(self.noise_decay),
            order_seed=int(self.order_seed),
            n_averaged=tail_length(self.tail_fraction, facts.max_iter),
        )
        return Plan(
            algorithm="RandomizedGradientDescent",
            facts=facts,
            budget=budget,
            settings=settings,
            releases=(*facts.preparations, turns),
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Run the rounds as planned; every number in the solution has passed the gate.

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
        settings: RandomizedGradientDescentSettings = plan.settings
        network = network_of(facts)
        everybody = np.arange(network.n_agents)
        (release,) = (r for r in plan.releases if r.door == "take_turns")
        clip_norm = settings.clip_norm * rows.clip_unit
        weights = decay_weights(settings.noise_decay, settings.n_rounds)
        turns, gradient = gradient_turns(
            plan, problem, gate, name=GRADIENTS, clip_norm=clip_norm, weights=weights
        )
        boxes = boxes_of(network.topology, settings.mixing, settings.order_seed)
        proximal, sparse = proximal_steps(facts, rows), facts.penalty.is_sparse
        steps = settings.steps
        averaged = slice(settings.n_rounds - settings.n_averaged, None)
        step_size = float(steps[averaged].mean())
        models = np.zeros((network.n_agents, facts.n_parameters, facts.loss.n_outputs))
        tail = np.zeros(models.shape)
        for k, step in enumerate(steps.tolist()):
            box = boxes(models)
            at = models if settings.mixing == "interval" else box.center
            points = box.draw(gate.uniform) - step * gradient(everybody, at)
            turns.count_losses(everybody, box.widths, step)
            models = proximal(points, np.full(network.n_agents, 1 / step))
            if k >= settings.n_rounds - settings.n_averaged:
                # An average of sparse models is not sparse. One more step from an average of points
                # is, where all of them are brought to its length.
                tail += models + step_size / step * (points - models) if sparse else models
            problem.progress(k + 1)
        noise = 0.0
        if release.noise_std > 0:
            noise = clip_norm * noise_of_mean(plan, release, weights[averaged])
        solution = network_solution(
            plan,
            rows,
            tail / settings.n_averaged,
            last_step=penalty_operator(facts.penalty, step_size, rows) if sparse else None,
            noise_std=noise,
            step_size=step_size,
            n_iter=settings.n_rounds,
            n_averaged=settings.n_averaged,
            n_rounds=settings.n_rounds,
            derivative_bound=clip_norm / rows.typical_norm,
        )
        return replace(solution, expected_privacy_loss=turns.expected_loss)


def boxes_of(topology: Topology, mixing: str, seed: int) -> Callable[[Array], Box]:
    """Where mixes of models are, round by round.

    Parameters
    ----------
    topology : Topology
    mixing : {"metropolis", "neighbors", "pair", "interval"}
    seed : int
        Of the pairs; public.

    Returns
    -------
    callable
        Maps models to a `Box`; called once in each round.
    """
    if mixing == "neighbors":
        return lambda models: neighbors_box(topology, models)
    if mixing == "metropolis":
        weights = mixing_matrix(topology)
        return lambda models: metropolis_box(weights, models)
    closed = closed_neighborhoods(topology)
    if mixing == "interval":
        return closed.interval_box
    random = np.random.Generator(np.random.Philox(seed))
    return lambda models: closed.pair_box(topology, models, closed.pairs(random))
