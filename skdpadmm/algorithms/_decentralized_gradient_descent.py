"""Decentralised gradient descent: agents mix models with their neighbours and step downhill.

Source: Nedic & Ozdaglar, "Distributed subgradient methods for multi-agent optimization", IEEE
Transactions on Automatic Control 54, 2009, with noise on clipped gradients and a proximal step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np

from skdpadmm._sklearn import AUTO, FRACTION, SIZE, Interval, OneOf, parameter
from skdpadmm.algorithms import _network_steps as graph
from skdpadmm.algorithms._algorithm import Algorithm, Released
from skdpadmm.algorithms._messages import EDGE_NOISE, with_edge_noise
from skdpadmm.network import mixing_matrix
from skdpadmm.protocol import Agents, Budget, Facts, Gate, Plan, Problem, Solution, network_of

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
        Weights W, see :func:`~skdpadmm.network.mixing_matrix`.
    batch_fraction : float, default=1.0
        In [1e-6, 1]: chance of each record to be in a step, drawn anew for every step and kept
        secret. Below 1 the guarantee is that of Poisson sampling; it takes the extra
        ``skdpadmm[accounting]``.
    tail_fraction : float, default=0.5
        In (0, 1]: fraction of steps, at the end, that is averaged. It uses no budget: all steps
        count as released.

    Notes
    -----
    **Guarantee.** As for :class:`MultiStepADMM`, with T = `max_iter` steps: what is released are
    the same noisy gradients, and models and mixtures of them are post-processing.

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

    setting = "decentralized"
    releases_path = True  # Every observer counts as seeing all noisy gradients.
    noiseless = True

    step_size: float | str = parameter("auto", AUTO, SIZE)
    clip_norm: float | str = parameter("auto", AUTO, SIZE)
    mixing: str = parameter("metropolis", OneOf("metropolis", "max_degree", "laplacian"))
    batch_fraction: float = parameter(1.0, Interval(Real, 1e-6, 1.0, closed="both"))
    tail_fraction: float = parameter(0.5, FRACTION)
    edge_noise: float | str = parameter("auto", AUTO, EDGE_NOISE)

    def share_among(self, agents: Agents) -> Agents:
        """The same agents with the noise that neighbours share."""
        self.check_parameters()
        return with_edge_noise(agents, self.edge_noise)

    def check_facts(self, facts: Facts) -> None:
        """Batches protect records."""
        graph.check_batches(self.batch_fraction, facts)

    def released(self, facts: Facts, budget: Budget) -> Released:
        """Every agent's gradient, in each round."""
        n_iter, sampling = facts.max_iter, float(self.batch_fraction)
        messages = graph.gradient_messages(facts, budget, n_times=n_iter, sampling=sampling)
        step_size, clip_norm = graph.default_network_steps(facts, messages, sampling=sampling)
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
        mixing = mixing_matrix(network_of(facts).topology, settings.mixing)
        proximal, tail = graph.proximal_steps(facts, rows), graph.TailAverage(plan, rows, eta)
        models = np.zeros(plan.releases[-1].shape)
        curvature = np.full(len(models), 1 / eta)
        # What neighbours share cancels where models are mixed after the step.
        n_mixing = settings.n_mixing if facts.agents.edge_noise else 0
        for k in range(settings.n_iter):
            points = (models if n_mixing else mixing.dot(models)) - eta * gradient(models)
            for _ in range(n_mixing):
                points = mixing.dot(points)
            models = proximal(points, curvature)
            tail.add(k, models, points, curvature)
            problem.progress(k + 1, rows.to_coordinates(models))
        noise_std = graph.noise_of_messages(plan, clip_norm)
        n_rounds = settings.n_iter * max(n_mixing, 1)
        return tail.solution(noise_std=noise_std, clip_norm=clip_norm, n_rounds=n_rounds)
