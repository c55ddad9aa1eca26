"""Private consensus ADMM with noise on the released mean and none in the hidden states.

Source: Cyffers, Bellet & Basu, "From Noisy Fixed-Point Iterations to Private ADMM for Centralized
and Federated Learning" (ICML 2023), Algorithm 2, changed where its printed guarantee fails: there
each record's state keeps noise of its own, which averages out in the mean along with the signal
and returns through later iterations. Here a state is a function of its own record and of what was
released, and fresh noise goes on the released mean, so that composition over the path is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from skdpadmm.algorithms._algorithm import (
    Algorithm,
    choice,
    penalty_operator,
    relaxation_knob,
    share,
    size,
)
from skdpadmm.algorithms._defaults import default_steps
from skdpadmm.algorithms._noise_left import (
    doubt,
    drop_noise,
    parameter_variance,
    score_variance,
)
from skdpadmm.algorithms._record_blocks import path_sensitivities, record_blocks
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Release, Settings, Solution

DISPLACEMENT = "mean displacement"


@dataclass(kw_only=True, eq=False, repr=False)
class ConsensusADMM(Algorithm):
    r"""Consensus ADMM over records, private by fresh noise on the released mean.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` with one block for each record. From
    :math:`u_i = z = 0`, each of K iterations computes, for all records at once,

    .. math::

        v_i &= 2 z - u_i, \qquad d_i = \mathrm{clip}(v_i - \mathrm{prox}_{\gamma f_i}(v_i), C) \\
        u_i &\leftarrow (1 - 2 \lambda) u_i + 2 \lambda (z - d_i) \\
        \hat z &= \tfrac1n \sum_i u_i + N(0, s^2 I), \qquad z = \mathrm{prox}_{\gamma r}(\hat z)

    and returns :math:`\mathrm{prox}_{\gamma r}` of the average of the last :math:`\hat z`. What
    passes the gate is the part of the mean that depends on data, in units of C, so the release is
    bounded, by 1 where lambda is at most 1/2.

    Parameters
    ----------
    step_size : float or "auto", default="auto"
        Step of the proximal operators (gamma), in the coordinates that it works in, conditioned or
        not; in [1e-100, 1e100].
    clip_norm : float or "auto", default="auto"
        Bound of the Euclidean norm of a record's gradient, in units of the typical norm of a row:
        the square root of the number of parameters, or in conditioned coordinates of the effective
        dimension, wider where rows share one direction. In [1e-100, 1e100]. The displacement is
        clipped at `step_size` times the bound.
    relaxation : float, default=0.5
        In (0, 1): 0.5 is the usual ADMM (Douglas-Rachford).
    record_step : {"auto", "exact", "linearized"}, default="auto"
        "exact" solves each record's proximal step, stable for any step size; "linearized" replaces
        it by a gradient step, ``d_i = clip(gamma * grad f_i(z), C)``: with relaxation 0.5 that is
        the proximal gradient method. "auto" linearises in conditioned coordinates, where it is as
        good and costs less.
    tail_fraction : float, default=0.5
        In (0, 1]: share of the path, at its end, that is averaged. Free: all of it is released.

    Notes
    -----
    **Guarantee.** Adversary "model", who sees the whole released path; unit: one record. Given
    what was released before, two neighbouring data sets differ in one record's state only, and
    ``du' = (1 - 2 lambda) du - 2 lambda (d - d')`` bounds how far the k-th mean moves:
    ``Delta_k = c C (1 - (1 - 2 lambda)^k) / n`` for lambda <= 1/2, and
    ``c lambda C (1 - (2 lambda - 1)^k) / ((1 - lambda) n)`` above, with c = 2 for replace-one and
    1 for zero-out (the record's loss becomes the zero function). By adaptive composition of
    Gaussian mechanisms the path is GDP with ``mu = sqrt(sum_k Delta_k^2) / s``. This needs neither
    convexity nor accurate inner solutions: clipping comes after solving. At lambda = 1 nothing
    contracts a state and the bound is lost, so it is refused.

    References
    ----------
    .. [1] E. Cyffers, A. Bellet, D. Basu, "From Noisy Fixed-Point Iterations to Private ADMM for
       Centralized and Federated Learning", ICML 2023, Algorithm 2 (corrected as said above).

    Examples
    --------
    >>> from skdpadmm import DPAdmmRidge
    >>> from skdpadmm.algorithms import ConsensusADMM
    >>> model = DPAdmmRidge(algorithm=ConsensusADMM(record_step="linearized"), epsilon=2.0)
    >>> model.plan(n_samples=10_000, n_features=5).settings.record_step
    'linearized'
    """

    setting = "central"
    units = ("record",)  # Records are blocks.

    step_size: float | Literal["auto"] = size()
    clip_norm: float | Literal["auto"] = size()
    relaxation: float = relaxation_knob()
    record_step: Literal["auto", "exact", "linearized"] = choice("auto", "exact", "linearized")
    tail_fraction: float = share(0.5)

    def released(self, facts: Facts, budget: Budget) -> tuple[Settings, Release]:
        """The displacement of the mean, in each iteration."""
        mu = facts.remaining_mu(budget)
        step_size, clip_norm = default_steps(facts, mu)
        settings = self.resolved(
            n_iter=facts.max_iter,
            step_size=step_size,
            clip_norm=clip_norm,
            record_step="exact" if facts.conditioning is None else "linearized",
        )
        sensitivities = path_sensitivities(facts, settings.relaxation, settings.n_iter)
        return settings, Release(
            name=DISPLACEMENT,
            shape=(facts.n_parameters, facts.loss.n_outputs),
            sensitivities=sensitivities,
            # A little more than enough, so that no rounding takes epsilon above the budget.
            noise_std=math.hypot(*sensitivities) / mu * (1 + 1e-12),
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Iterate as planned; symbols as above."""
        settings = plan.settings
        gamma, lam = settings.step_size, settings.relaxation
        loss, penalty = plan.facts.loss, plan.facts.penalty
        rows = problem.rows
        clip_norm = settings.clip_norm * rows.clip_unit
        prox = penalty_operator(penalty, gamma, rows)
        shape = (plan.facts.n_parameters, loss.n_outputs)
        z = np.zeros(shape)
        shared, tail = z, np.zeros(shape)
        placed = problem.engine.place(
            record_blocks(
                problem,
                loss=loss,
                step_size=gamma,
                relaxation=lam,
                clip_norm=clip_norm,
                exact=settings.record_step == "exact",
            )
        )
        for iteration in range(settings.n_iter):
            total = rows.collect(placed.sum("advance", z, shared)).reshape(shape)
            shared = (1 - 2 * lam) * shared + 2 * lam * z
            released = gate.release(DISPLACEMENT, total / (clip_norm * rows.n_samples))
            mean = shared - gamma * clip_norm * released
            z = rows.from_coordinates(prox(mean))
            if iteration >= settings.n_iter - settings.n_averaged:
                tail += mean / settings.n_averaged
            problem.progress(iteration + 1)
        # One proximal step after averaging: an average of sparse vectors would not be sparse.
        parameters = prox(tail)
        variance = parameter_variance(
            rows=rows,
            smoothness=loss.smoothness,
            step_size=gamma,
            noise_std=clip_norm * plan.releases[-1].noise_std,
            n_iter=settings.n_iter,
            n_averaged=settings.n_averaged,
        )
        return Solution(
            parameters=drop_noise(parameters, rows, variance) if penalty.is_sparse else parameters,
            n_iter=settings.n_iter,
            derivative_bound=clip_norm / rows.typical_norm,
            score_variance=score_variance(rows, variance),
            doubt=doubt(rows, parameters, variance),
        )
