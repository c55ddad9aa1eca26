"""Consensus ADMM whose agents mix what they heard with secret random weights.

Source: Xiao, "Local Differential Privacy in Decentralized Optimization", MIT 2019, Algorithm 1 and
equations (2.2) and (3.1), corrected: the dual variable descends (its sign is misprinted, and
diverges), and noise goes by a norm of the vector, not by its dimension times the largest entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from skdpadmm.algorithms._algorithm import (
    Algorithm,
    Released,
    check_zero_at_zero,
    choice,
    number,
    share,
    size,
)
from skdpadmm.algorithms._certified_solves import (
    LossBounds,
    accelerated_gradient,
    loss_bounds,
    open_clip,
    planned_steps,
    score_rounding,
    step_rounding,
    sum_rounding,
    typical_norm,
)
from skdpadmm.algorithms._messages import unit_limits
from skdpadmm.algorithms._network_steps import (
    GRADIENTS,
    Array,
    Step,
    agent_gradients,
    descend,
    disagreement,
    into_ball,
    proximal_steps,
)
from skdpadmm.algorithms._random_aggregators import (
    GradientTurns,
    Turns,
    check_noise_decay,
    clipped,
    decay_weights,
    default_aggregator_steps,
    law_factor,
    neighbors_box,
    noise_of_mean,
    smoothness_of_agents,
)
from skdpadmm.algorithms._turns import agent_turns
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Settings, Solution, network_of

DISPLACEMENTS = "displacements of agents"
# Bound of a gradient where nothing is private and the inner solution needs one.
OPEN_CLIP = 100.0
# What is certified leaves room for the rounding of differences.
CERTIFIED = 0.9


@dataclass(kw_only=True, eq=False, repr=False)
class RandomizedADMM(Algorithm):
    r"""ADMM over a graph, in which nobody knows how an agent mixed what it heard.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` over the records of all A agents. Agent a
    holds :math:`F_a = \frac A n \sum_{i \in a} f_i`, a model :math:`w_a` and a dual variable
    :math:`\lambda_a`, both 0 at first. In each round it draws secret weights
    :math:`\rho \sim U(0, 1)`, one for each entry, and broadcasts

    .. math::

        v_a &= \rho \odot w_a + (1 - \rho) \odot \frac1{|N_a|} \sum_{b \in N_a} w_b
             + \frac{\lambda_a - \nabla F_a(w_a)}{D_a} + \text{noise},

    where gradients of records are clipped to norm C. Everybody takes the proximal step
    :math:`w_a \leftarrow \mathrm{prox}_{r / D_a}(v_a)` and keeps the duals,

    .. math:: \lambda_a \leftarrow \lambda_a - \zeta \sum_{b \in N_a} (w_a - w_b).

    Random weights :math:`\rho` are random penalties of ADMM, with the same fixed point. An agent's
    answer is the average of its models over the last rounds, the common answer the average over
    agents.

    Parameters
    ----------
    aggregator : {"random", "fixed"}, default="random"
        Weights drawn anew, or :math:`\rho = \frac12`.
    local_step : {"linearized", "exact"}, default="linearized"
        "exact": :math:`w_a = \arg\min_w F_a(w) + r(w) + \frac{D_a}2 \|w - m_a\|^2 -
        \langle \lambda_a, w \rangle` plus noise, where :math:`m_a` is the mix: the paper's (3.1).
        The derivative of the loss is then clipped as a number, and C must not bind where there are
        several scores.
    curvature : float or "auto", default="auto"
        :math:`D_a`, the inverse of a step, in [1e-100, 1e100]: the larger, the less noise is in
        models. "auto" is one over the step of the common rule, and no less than the public bound
        of the curvature of :math:`F_a`.
    dual_step : float or "auto", default="auto"
        :math:`\zeta`, in [1e-100, 1e100]. "auto": a third of the smallest :math:`D_a` over the
        largest number of neighbours.
    clip_norm : float or "auto", default="auto"
        Bound C of the Euclidean norm of a record's gradient, in units of the typical norm of a row;
        for Laplace noise of the L1 norm, in units of that times the root of the number of
        parameters. In [1e-100, 1e100].
    noise : {"laplace", "gaussian"}, default="laplace"
        Law of the noise. Laplace noise goes by the L1 norm, in which records are then clipped.
    noise_decay : float, default=1.0
        Noise of a round over that of the next one, in [0.5, 2]: 1.02 is the paper's.
    tail_fraction : float, default=0.5
        In (0, 1]: share of all rounds, at their end, that is averaged. Free: all count as released.
    tolerance : float, default=0.01
        In [1e-6, 1]: how far an exact step may be from the minimiser, in units of the distance that
        one record can move that. Twice as much is added to the sensitivity.

    Notes
    -----
    **Guarantee.** As for :class:`RandomizedGradientDescent`, whose sketch of a proof it shares:
    given the weights and what was said before, a broadcast is a public function of the noisy
    gradient. "fixed" weights have the same figure. The exact minimiser moves by at most
    :math:`c\,C A / (n D_a)` in the Euclidean norm, :math:`\sqrt d` times that in the L1 norm, and
    a computed one by a factor ``1 + 2 tolerance`` more. Other agents need not be honest. The
    estimator's ``expected_privacy_loss_`` is explained there too, for linearised steps: it is no
    guarantee.

    The mix is added to what has noise already, which has the same law and rounds nothing that the
    noise is calibrated for.

    References
    ----------
    .. [1] H. Xiao, "Local Differential Privacy in Decentralized Optimization", SM thesis, MIT,
       2019, Algorithm 1, corrected as said above.

    Examples
    --------
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> model = DPDecentralizedRegressor(algorithm="randomized-admm", topology="ring", max_iter=50)
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> plan.releases[-1].name, plan.releases[-1].times, plan.releases[-1].law
    ('gradients of agents', 50, 'laplace')
    """

    setting = "decentralized"
    conditionable = False

    aggregator: Literal["random", "fixed"] = choice("random", "fixed")
    local_step: Literal["linearized", "exact"] = choice("linearized", "exact")
    curvature: float | Literal["auto"] = size()
    dual_step: float | Literal["auto"] = size()
    clip_norm: float | Literal["auto"] = size()
    noise: Literal["laplace", "gaussian"] = choice("laplace", "gaussian")
    noise_decay: float = number(1.0, 0.5, 2.0)
    tail_fraction: float = share(0.5)
    tolerance: float = number(0.01, 1e-6, 1.0)

    def check_facts(self, facts: Facts) -> None:
        """Noise of all rounds can be added."""
        check_noise_decay(self.noise_decay, facts.max_iter)

    def released(self, facts: Facts, budget: Budget) -> Released:
        """Every agent's gradient, or displacement of its minimiser, in each round."""
        network, is_exact = network_of(facts), self.local_step == "exact"
        turns = agent_turns(
            facts,
            budget,
            name=DISPLACEMENTS if is_exact else GRADIENTS,
            weights=decay_weights(self.noise_decay, facts.max_iter),
            law=self.noise,
        )
        step_size, clip_norm = default_aggregator_steps(facts, turns)
        several = is_exact and facts.loss.n_outputs > 1 and facts.unit == "record"
        never_binds = 0.0
        if several:
            clip_norm = never_binds = open_clip(facts.loss, facts.row_norm) / typical_norm(facts)
        elif is_exact and math.isinf(clip_norm):
            clip_norm = OPEN_CLIP
        curvature = np.full(network.n_agents, 1.0 / step_size)
        if self.curvature != "auto":
            curvature = np.full(network.n_agents, float(self.curvature))
        elif not is_exact:
            curvature = np.maximum(curvature, smoothness_of_agents(facts))
        most = max(int(network.topology.degrees.max()), 1)
        settings = self.resolved(
            n_iter=facts.max_iter,
            curvature=None,
            curvatures=tuple(curvature.tolist()),
            dual_step=float(curvature.min()) / (3.0 * most),
            clip_norm=clip_norm,
        )
        if settings.clip_norm < never_binds:
            raise ValueError(
                f"Got clip_norm={settings.clip_norm:g} for {facts.loss.n_outputs} scores, expected"
                f" at least {never_binds:.6g}, which never binds: a loss whose vector of"
                " derivatives is clipped has no minimiser. Use 'auto', or"
                " local_step='linearized'."
            )
        if is_exact:
            inner = self._inner_steps(facts, settings, turns.noise_std)
            settings = Settings((*settings, *inner.items()))
        return settings, turns

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Run the rounds as planned; symbols as above."""
        facts, settings, network = plan.facts, plan.settings, network_of(plan.facts)
        topology, everybody = network.topology, np.arange(network.n_agents)
        clip_norm = settings.clip_norm * problem.rows.clip_unit
        curvature = np.asarray(settings.curvatures)
        column, step_size = curvature[:, None, None], float(np.mean(1 / curvature))
        weights = decay_weights(settings.noise_decay, settings.n_iter)
        is_exact, is_random = settings.local_step == "exact", settings.aggregator == "random"
        if is_exact:
            minimise = _exact_steps(plan, problem, gate, clip_norm=clip_norm, weights=weights)
        else:
            turns = GradientTurns(plan, problem, gate, clip_norm=clip_norm, weights=weights)
        duals = np.zeros((network.n_agents, facts.n_parameters, facts.loss.n_outputs))

        def step(k: int, models: Array) -> Step:
            nonlocal duals
            # What the last round's models say; nothing at first, where all of them are zero.
            duals = duals - settings.dual_step * disagreement(topology, models)
            box = neighbors_box(topology, models)
            mix = box.draw(gate.uniform) if is_random else box.center
            if is_exact:
                return Step(points=minimise(column * mix + duals), curvature=None)
            points = mix + (duals - turns.gradient(everybody, models)) / column
            turns.count_losses(everybody, box.widths * is_random, 1 / curvature)
            return Step(points=points, curvature=curvature, longer=column * step_size)

        widened = 1.0
        if is_exact:
            widened = _widened(facts, settings.tolerance, settings.noise)
            widened /= law_factor(facts, settings.noise)
        solution = descend(
            plan,
            problem,
            step,
            step_size=step_size,
            noise_std=noise_of_mean(plan, clip_norm, weights[-settings.n_averaged :], widened),
            clip_norm=clip_norm,
            has_zeros=False if is_exact else None,
        )
        return replace(solution, expected_privacy_loss=None if is_exact else turns.expected_loss)

    def _inner_steps(self, facts: Facts, settings: Settings, noise_std: float) -> dict[str, float]:
        """Accelerated steps that bring every agent within the tolerance of its minimiser.

        In units of v, see `_exact_steps`: their number, the smoothness of the smooth part for every
        data set and agent, and the radius of the ball that public linear terms are projected onto.
        """
        if not math.isfinite(facts.row_norm):
            raise ValueError(
                f"Got row_norm={facts.row_norm}, expected a finite bound: the number of inner steps"
                " follows from it."
            )
        check_zero_at_zero(facts.penalty)
        network, curvature = network_of(facts), np.asarray(settings.curvatures)
        least = float(curvature.min())
        weights = decay_weights(settings.noise_decay, settings.n_iter)
        n_entries = facts.n_parameters * facts.loss.n_outputs
        spread = noise_std * _widened(facts, settings.tolerance, settings.noise)
        # Up to draws that never come; tails of Laplace noise are heavier.
        noise = 16.0 * (spread / float(weights.min()))
        noise = noise * float(unit_limits(facts).max()) * math.sqrt(n_entries)
        bound = settings.clip_norm * typical_norm(facts)
        of_record = loss_bounds(facts.loss, row_norm=facts.row_norm, clip_norm=bound).curvature
        largest = float(max(network.agent_sizes))
        share = network.n_agents / facts.n_samples
        smoothness = 1.0 + largest * (share * of_record / least)
        radius = 8.0 * settings.n_iter * float(curvature.max() / least) * (largest + noise)
        unit_bounds = LossBounds(
            row_norm=1.0, gradient_norm=1.0, curvature=(smoothness - 1.0) / facts.n_samples
        )
        relative = 2 * step_rounding(smoothness) + score_rounding(facts, unit_bounds)
        n_steps = planned_steps(
            f"Got curvature={least:g} and tolerance={self.tolerance:g}, expected a larger curvature"
            " or tolerance",
            CERTIFIED * (settings.tolerance * facts.neighboring.sensitivity_factor),
            strong_convexity=1.0,
            smoothness=smoothness,
            initial_distance=largest * facts.working_rounding,
            gradient_error=sum_rounding(facts, unit_bounds) + relative * (radius + largest + noise),
            relative_error=relative,
        )
        return {"inner_steps": n_steps, "inner_smoothness": smoothness, "inner_radius": radius}


def _widened(facts: Facts, tolerance: float, law: str) -> float:
    """How far the computed minimiser moves in the norm of the noise, over the exact one's bound."""
    if facts.unit == "agent":
        return law_factor(facts, law)
    return (1.0 + 2.0 * tolerance) * law_factor(facts, law)


def _exact_steps(
    plan: Plan, problem: Problem, gate: Gate, *, clip_norm: float, weights: Array
) -> Callable[[Array], Array]:
    """Noisy minimisers of agents' problems, for public linear terms p of them.

    Agent a minimises ``F_a(w) + r(w) + D_a / 2 |w|^2 - <p_a, w>``. With :math:`w = u_a v`,
    ``u_a = C A / (n D_a)``, the quadratic is ``|v|^2 / 2``, and a record moves the minimiser v by
    at most the share of C that its gradient is. Without clipped records nothing is certified.
    """
    facts, settings = plan.facts, plan.settings
    network, of_records = network_of(facts), facts.unit == "record"
    gradient = agent_gradients(
        problem, loss=facts.loss, clip_norm=clip_norm if of_records else math.inf
    )
    curvature, everybody = np.asarray(settings.curvatures), np.arange(network.n_agents)
    units = (clip_norm * network.n_agents / facts.n_samples / curvature)[:, None, None]
    prox = proximal_steps(facts, problem.rows)
    limits = unit_limits(facts)[network.kind]
    limits = limits * _widened(facts, settings.tolerance, settings.noise)
    turns = Turns(plan, gate, weights=weights, units=limits)

    def step(pull: Array) -> Array:
        # Only draws of noise that never come would leave the ball: so rounding has a bound.
        linear = into_ball(pull / (units * curvature[:, None, None]), settings.inner_radius)
        without = prox(units * linear, curvature) / units
        minimisers = accelerated_gradient(
            lambda v: gradient(units * v) / clip_norm + v - linear,
            without,
            settings.inner_steps,
            strong_convexity=1.0,
            smoothness=settings.inner_smoothness,
            prox=lambda v: prox(units * v, curvature * settings.inner_smoothness) / units,
        )
        moved = minimisers - without
        if not of_records:
            moved = clipped(moved, limits, settings.noise)
        return np.asarray(units * (without + turns(everybody, moved)))

    return step
