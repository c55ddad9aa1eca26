"""Multi-step private ADMM over a graph: several noisy gradient steps between two broadcasts.

Source: Huang & Gong, "Differentially Private ADMM for Convex Distributed Learning: Improved
Accuracy via Multi-Step Approximation", Algorithm 1, corrected: the gradient enters with a minus
sign, a step uses one proximal weight in its update and in its noise, the projection follows the
noise, and the growing schedule counts all steps. The noise is calibrated exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from skdpadmm._sklearn import AUTO, COUNT, FRACTION, SIZE, Interval, OneOf, parameter
from skdpadmm.algorithms import _network_steps as graph
from skdpadmm.algorithms._algorithm import Algorithm, Released
from skdpadmm.algorithms._network_steps import Array
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Solution, network_of
from skdpadmm.records import Rows


@dataclass(kw_only=True, eq=False, repr=False)
class MultiStepADMM(Algorithm):
    r"""Consensus ADMM over a graph, each agent with several private gradient steps in a round.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all A agents. Agent a
    holds :math:`F_a = \frac A n \sum_{i \in a} f_i`, a dual variable :math:`\gamma_a` (0 at first)
    and a model :math:`w_a` (0 at first). In each of t rounds it takes l steps,

    .. math::

        v &= \frac{\eta w_a - \tilde g_a(w_a) + 2 \gamma_a
             + \rho \sum_{b \in N_a} (\bar w_a + \bar w_b)}{2 \rho |N_a| + \eta}, \qquad
        w_a \leftarrow \Pi_W \mathrm{prox}_{r / (2 \rho |N_a| + \eta)}(v)

    where :math:`\tilde g_a` is the gradient of :math:`F_a` with records clipped to norm C, plus
    noise. It broadcasts the average :math:`\bar w_a` of the round's models to its neighbours, and
    all update :math:`\gamma_a \leftarrow \gamma_a - \frac\rho2 \sum_{b \in N_a} (\bar w_a -
    \bar w_b)`, so that the duals sum to zero. An agent's answer is the average of its models over
    the last steps, the common answer the average over agents.

    Parameters
    ----------
    inner_steps : int, default=2
        Steps between two broadcasts (l), at least 1. More of them spend the budget faster than
        messages; 1 is linearised private ADMM.
    step_size : float or "auto", default="auto"
        Of every agent's step, :math:`1 / (2 \rho |N_a| + \eta_a)`: the proximal weights
        :math:`\eta_a` make up for different numbers of neighbours. In the coordinates of the run;
        in [1e-100, 1e100].
    clip_norm : float or "auto", default="auto"
        Bound of the Euclidean norm of a record's gradient, in units of the typical norm of a row:
        the square root of the number of parameters, or in conditioned coordinates of the effective
        dimension. In [1e-100, 1e100].
    penalty_weight : float or "auto", default="auto"
        How strongly neighbours are pulled together (rho), in (0, 1e100]. With a `step_size` at most
        ``1 / (2 * step_size * most_neighbors)``. "auto" is that bound divided by `inner_steps`.
    proximal_weight : float, "growing" or None, default=None
        None: given by `step_size`. A float: eta, the same for all agents and steps. "growing": the
        schedule of the utility theorem, ``sqrt(2 s) G / diameter`` in step s, where G bounds the
        noisy gradient. With one of the last two, `step_size` must be "auto" and `penalty_weight` a
        float.
    diameter : float, default=inf
        Of the ball around zero that models are projected onto, after the noise, in the coordinates
        of the run. In (0, inf]; "growing" needs a finite one.
    batch_fraction : float, default=1.0
        In (0, 1]: chance of each record to be in a step, drawn anew for every step and kept secret.
        Below 1 the guarantee is that of Poisson sampling; it takes the extra
        ``skdpadmm[accounting]``.
    tail_fraction : float, default=0.5
        In (0, 1]: fraction of steps, at the end, that is averaged. 1 is the average of the paper.
        It uses no budget: all steps count as released.

    Notes
    -----
    **Guarantee.** Observers "eavesdropper" (sees every message), "peer" and "model": one figure for
    all three. Unit: one record, or all records of an agent, whose gradient is then clipped as a
    whole. Given what was released before, the sensitivity of an agent's gradient is 2C under
    replace-one and C under zero-out, so with noise of standard deviation s the T = t l steps are
    GDP with :math:`\mu = \sqrt T \, 2 C / s`, by exact composition; in units of the models the
    noise of a step is :math:`s / (2 \rho |N_a| + \eta)`. Models, averages, duals and projections
    are post-processing, whatever the steps and weights. It needs neither convexity nor honest
    neighbours: all other agents may work together. Agents hold different rows, so each has a
    guarantee, and if it likes a budget, of its own. With batches a step is a Poisson-sampled
    Gaussian mechanism. (Batches drawn with replacement have no such guarantee.)

    **Graphs that fail or change.** :math:`N_a` is then the set of neighbours of the round: an
    absent agent neither steps nor sends, and keeps its model. A dual changes along the links that
    both ends have used, so the duals still sum to zero; an agent that hears from nobody goes on
    with the sums that it computed last. All of the T steps of every agent are planned and counted,
    those that it misses too, and absences must not depend on data: dropping a step is
    post-processing, so the guarantee is the same.

    References
    ----------
    .. [1] Z. Huang, Y. Gong, "Differentially Private ADMM for Convex Distributed Learning:
       Improved Accuracy via Multi-Step Approximation", Algorithm 1 and Theorems 6 and 7, corrected
       as stated above.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> from skdpadmm.algorithms import MultiStepADMM
    >>> model = DPDecentralizedRegressor(algorithm=MultiStepADMM(inner_steps=4), max_iter=50)
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> plan.settings.n_rounds, plan.releases[-1].times
    (50, 200)
    """

    setting = "decentralized"
    releases_path = True  # Every observer counts as seeing all noisy gradients.
    noiseless = True
    supports = ("absences", "changes")

    inner_steps: int = parameter(2, COUNT)
    step_size: float | str = parameter("auto", AUTO, SIZE)
    clip_norm: float | str = parameter("auto", AUTO, SIZE)
    penalty_weight: float | str = parameter("auto", AUTO, SIZE)
    proximal_weight: float | str | None = parameter(
        None, None, OneOf("growing"), Interval(Real, 0, 1e100, closed="right")
    )
    diameter: float = parameter(math.inf, Interval(Real, 1e-100, math.inf, closed="both"))
    batch_fraction: float = parameter(1.0, Interval(Real, 1e-6, 1.0, closed="both"))
    tail_fraction: float = parameter(0.5, FRACTION)

    def check_facts(self, facts: Facts) -> None:
        """Weights make up steps, and batches protect records."""
        graph.check_batches(self.batch_fraction, facts)
        if self.proximal_weight is None:
            return
        if self.step_size != "auto" or self.penalty_weight == "auto":
            raise ValueError(
                f"Got proximal_weight={self.proximal_weight!r} with step_size={self.step_size!r}"
                f" and penalty_weight={self.penalty_weight!r}, expected step_size='auto' and a"
                " float: the two weights make up the step."
            )
        if self.proximal_weight == "growing" and math.isinf(self.diameter):
            raise ValueError(
                "Got proximal_weight='growing' with diameter=inf, expected a finite diameter: the"
                " schedule is a multiple of 1 / diameter."
            )

    def released(self, facts: Facts, budget: Budget) -> Released:
        """Every agent's gradient, in each step."""
        n_iter, sampling = facts.max_iter * int(self.inner_steps), float(self.batch_fraction)
        messages = graph.gradient_messages(facts, budget, n_times=n_iter, sampling=sampling)
        step_size, clip_norm = graph.default_network_steps(facts, messages, sampling=sampling)
        if self.proximal_weight == "growing" and not budget.is_private:
            raise ValueError(
                "Got proximal_weight='growing' at epsilon=inf, expected a float or None: the"
                " schedule is a multiple of a bound of gradients, and nothing is clipped there."
            )
        if self.step_size != "auto":
            step_size = float(self.step_size)
        most = max(int(network_of(facts).topology.degrees.max()), 1)
        largest = 1.0 / (2.0 * step_size * most)
        settings = self.resolved(
            n_iter=n_iter,
            n_rounds=facts.max_iter,
            # Steps that weights make up differ.
            step_size=step_size if self.proximal_weight is None else None,
            clip_norm=clip_norm,
            penalty_weight=largest / self.inner_steps,
        )
        if self.proximal_weight is None and settings.penalty_weight > largest * (1 + 1e-12):
            raise ValueError(
                f"Got penalty_weight={settings.penalty_weight:g} with step_size={step_size:.4g} on"
                f" a graph whose agents have up to {most} neighbours, expected at most"
                f" {largest:.4g}. Shorten the step, or leave penalty_weight at 'auto'."
            )
        return settings, messages

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Run the rounds as planned; symbols as above."""
        facts, settings, rows = plan.facts, plan.settings, problem.rows
        clip_norm = settings.clip_norm * rows.clip_unit
        gradient = graph.noisy_gradients(plan, problem, gate, clip_norm=clip_norm)
        rho, rounds = settings.penalty_weight, graph.draw_rounds(plan, gate, settings.n_rounds)
        degrees = network_of(facts).links_in(0).degrees
        step_size = float(1 / np.mean(step_curvatures(plan, rows, settings.n_iter, degrees)))
        proximal, tail = graph.proximal_steps(facts, rows), graph.TailAverage(plan, rows, step_size)
        n_sent = 0
        models = points = pull = duals = np.zeros(plan.releases[-1].shape)
        curvature = step_curvatures(plan, rows, 1, degrees)
        # Averaged are the models at the start of steps.
        tail.add(0, models, points, curvature)
        for t, now in enumerate(rounds):
            total = np.zeros(models.shape)
            for s in range(t * settings.inner_steps + 1, (t + 1) * settings.inner_steps + 1):
                longer = step_curvatures(plan, rows, s, degrees)
                curvature = graph.update(now.present, curvature, longer)
                eta = (curvature - 2.0 * rho * degrees)[:, None, None]
                target = (pull + eta * models - gradient(models)) / curvature[:, None, None]
                points = graph.update(now.present, points, target)
                models = graph.into_ball(proximal(points, curvature), settings.diameter / 2)
                total = total + models
                tail.add(s, models, points, curvature)
            means = total / settings.inner_steps
            differences, heard = rho * graph.disagreement(now.links, means), now.links.degrees
            duals = duals - differences / 2
            weight = 2.0 * rho * heard[:, None, None]
            # Whoever hears from nobody goes on with what it heard last.
            pull = graph.update(heard > 0, pull, 2 * duals + weight * means - differences)
            degrees = graph.update(heard > 0, degrees, heard)
            n_sent += now.links.n_messages
            problem.progress(t + 1, rows.to_coordinates(models))
        noise_std = graph.noise_of_messages(plan, clip_norm)
        return tail.solution(
            noise_std=noise_std, clip_norm=clip_norm, n_rounds=settings.n_rounds, n_messages=n_sent
        )


def step_curvatures(plan: Plan, rows: Rows, step: int, degrees: NDArray[np.intp]) -> Array:
    """``2 rho deg + eta`` of each agent in a step, counted from 1: the inverse of its length."""
    settings = plan.settings
    eta = settings.proximal_weight
    if eta is None:
        return np.full(len(degrees), 1.0 / settings.step_size)
    if eta == "growing":
        bound = noisy_gradient_bound(plan) / settings.diameter * rows.clip_unit
        eta = bound * math.sqrt(2 * step)
    return np.asarray(2 * settings.penalty_weight * degrees + eta)


def noisy_gradient_bound(plan: Plan) -> float:
    """G of the utility theorem, where noise is largest, in units of `Rows.clip_unit`."""
    facts, settings, network = plan.facts, plan.settings, network_of(plan.facts)
    weight = network.n_agents / facts.n_samples * settings.clip_norm
    exact = weight * max(network.agent_sizes)
    n_entries = facts.n_parameters * facts.loss.n_outputs
    noise = weight * max(plan.releases[-1].agent_noise_std) * math.sqrt(n_entries)
    return math.hypot(exact, noise / settings.batch_fraction)
