"""Decentralised gradient descent: agents mix models with their neighbours and step downhill.

Source: Nedic & Ozdaglar, "Distributed subgradient methods for multi-agent optimization", IEEE
Transactions on Automatic Control 54, 2009, with noise on clipped gradients and a proximal step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from sklearn.base import BaseEstimator

from skdpadmm.algorithms._agent_messages import agent_messages
from skdpadmm.algorithms._algorithm import penalty_operator
from skdpadmm.algorithms._knobs import (
    check_batches,
    check_choice,
    check_steps,
    check_tail_fraction,
    tail_length,
)
from skdpadmm.algorithms._messages import unit_limits
from skdpadmm.algorithms._network_defaults import default_network_steps
from skdpadmm.algorithms._network_steps import (
    network_solution,
    noisy_gradients,
    proximal_steps,
    summed_noise,
)
from skdpadmm.network import mixing_matrix
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Solution, network_of

GRADIENTS = "gradients of agents"


@dataclass(frozen=True, kw_only=True)
class DecentralizedGradientDescentSettings:
    """Constants of one run, resolved.

    Attributes
    ----------
    n_rounds : int
        Steps, each followed by a broadcast.
    step_size : float
    clip_norm : float
        Bound of the norm of a unit's gradient, in units of `Rows.clip_unit`.
    mixing : str
        Rule of the weights of neighbours.
    sampling : float
        Chance of each record to be in a step.
    n_averaged : int
        Length of the averaged tail of the path.
    """

    n_rounds: int
    step_size: float
    clip_norm: float
    mixing: str
    sampling: float
    n_averaged: int


class DecentralizedGradientDescent(BaseEstimator):
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
        :math:`\eta`, in the coordinates that it works in; in [1e-100, 1e100].
    clip_norm : float or "auto", default="auto"
        Bound of the Euclidean norm of a record's gradient, in units of the typical norm of a row:
        the square root of the number of parameters, or in conditioned coordinates of the effective
        dimension. In [1e-100, 1e100].
    mixing : {"metropolis", "max_degree", "laplacian"}, default="metropolis"
        Weights W, see :func:`~skdpadmm.network.mixing_matrix`.
    batch_fraction : float, default=1.0
        In (0, 1]: chance of each record to be in a step, drawn anew for every step and kept secret.
        Below 1 the guarantee is that of Poisson sampling; it takes the extra
        ``skdpadmm[accounting]``.
    tail_fraction : float, default=0.5
        In (0, 1]: share of all steps, at their end, that is averaged. Free: all steps count as
        released.

    Notes
    -----
    **Guarantee.** Observers "eavesdropper" (sees every message), "peer" and "model": one figure for
    all three. Unit: one record, or all records of an agent, whose gradient is then clipped as a
    whole. Given what was released before, a record moves its agent's gradient by at most 2C under
    replace-one and C under zero-out, so with noise of standard deviation s the T steps are GDP with
    :math:`\mu = \sqrt T \, 2 C / s`, by exact composition. Models and mixtures of them are
    post-processing. It needs neither convexity nor honest neighbours. Each agent has a guarantee,
    and if it likes a budget, of its own. With batches a step is a Poisson-sampled Gaussian
    mechanism.

    References
    ----------
    .. [1] A. Nedic, A. Ozdaglar, "Distributed subgradient methods for multi-agent optimization",
       IEEE Transactions on Automatic Control 54, 2009.
    .. [2] K. Yuan, Q. Ling, W. Yin, "On the convergence of decentralized gradient descent", SIAM
       Journal on Optimization 26, 2016, for the error that a constant step leaves.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> model = DPDecentralizedRegressor(algorithm="decentralized-gradient-descent", max_iter=50)
    >>> model.plan(n_samples=10_000, n_features=5).releases[-1].times
    50
    """

    conditionable = True
    setting = "decentralized"
    exact = False

    def __init__(
        self,
        *,
        step_size: float | Literal["auto"] = "auto",
        clip_norm: float | Literal["auto"] = "auto",
        mixing: Literal["metropolis", "max_degree", "laplacian"] = "metropolis",
        batch_fraction: float = 1.0,
        tail_fraction: float = 0.5,
    ) -> None:
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.mixing = mixing
        self.batch_fraction = batch_fraction
        self.tail_fraction = tail_fraction

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_steps(self.step_size, self.clip_norm)
        check_choice("mixing", self.mixing, ("metropolis", "max_degree", "laplacian"))
        check_batches(self.batch_fraction, facts)
        check_tail_fraction(self.tail_fraction)

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide steps and each agent's noise from public facts.

        Parameters
        ----------
        facts : Facts
            Of a network.
        budget : Budget
            With a finite epsilon.

        Returns
        -------
        Plan

        Raises
        ------
        ValueError
            Where a knob is outside its range.
        """
        self.check(facts)
        sampling = float(self.batch_fraction)
        messages = agent_messages(
            facts,
            budget,
            name=GRADIENTS,
            n_times=facts.max_iter,
            limits=unit_limits(facts),
            sampling=sampling,
        )
        step_size, clip_norm = default_network_steps(facts, messages, sampling=sampling)
        settings = DecentralizedGradientDescentSettings(
            n_rounds=facts.max_iter,
            step_size=step_size if self.step_size == "auto" else float(self.step_size),
            clip_norm=clip_norm if self.clip_norm == "auto" else float(self.clip_norm),
            mixing=self.mixing,
            sampling=sampling,
            n_averaged=tail_length(self.tail_fraction, facts.max_iter),
        )
        return Plan(
            algorithm="DecentralizedGradientDescent",
            facts=facts,
            budget=budget,
            settings=settings,
            releases=(*facts.preparations, messages),
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
        settings: DecentralizedGradientDescentSettings = plan.settings
        network, step_size = network_of(facts), settings.step_size
        clip_norm = settings.clip_norm * rows.clip_unit
        gradient = noisy_gradients(
            plan, problem, gate, name=GRADIENTS, clip_norm=clip_norm, sampling=settings.sampling
        )
        mixing = mixing_matrix(network.topology, settings.mixing)
        proximal, sparse = proximal_steps(facts, rows), facts.penalty.is_sparse
        curvature = np.full(network.n_agents, 1 / step_size)
        models = np.zeros((network.n_agents, facts.n_parameters, facts.loss.n_outputs))
        tail = np.zeros(models.shape)
        for k in range(settings.n_rounds):
            points = mixing.dot(models) - step_size * gradient(models)
            models = proximal(points, curvature)
            if k >= settings.n_rounds - settings.n_averaged:
                # An average of sparse models would not be sparse; that of points can be made so.
                tail += points if sparse else models
            problem.progress(k + 1)
        (noise,) = (r for r in plan.releases if r.made_of == "agents")
        return network_solution(
            plan,
            rows,
            tail / settings.n_averaged,
            last_step=penalty_operator(facts.penalty, step_size, rows) if sparse else None,
            noise_std=clip_norm * summed_noise(plan, noise) / (facts.n_samples * settings.sampling),
            step_size=step_size,
            n_iter=settings.n_rounds,
            n_averaged=settings.n_averaged,
            n_rounds=settings.n_rounds,
            derivative_bound=clip_norm / rows.typical_norm,
        )
