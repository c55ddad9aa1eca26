"""
Your own algorithm
==================

Private gradient descent with momentum (Polyak's heavy ball, 1964), written outside the package:
what it releases, the sensitivity of that, and a run whose noise comes from the gate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes

from skdpadmm import DPAdmmRidge
from skdpadmm.algorithms import (
    AUTO,
    SIZE,
    Algorithm,
    ClippedSum,
    Interval,
    parameter,
    penalty_operator,
)
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Release, Solution


@dataclass(kw_only=True, eq=False, repr=False)
class HeavyBall(Algorithm):
    r"""``w' = prox(w - step * gradient + momentum * (w - w_before))``, all gradients released.

    **Guarantee.** Gradients of records are clipped to norm C, so the sensitivity of their sum is
    2 C under replace-one, and C under zero-out. With noise of standard deviation s, T steps
    are Gaussian-DP with :math:`\mu = \sqrt T \, 2 C / s`. It needs no convexity.

    Parameters
    ----------
    step_size : float or "auto", default="auto"
        "auto" is one over the largest curvature that any data set can have.
    clip_norm : float, default=0.3
        C, in units of the typical norm of a row.
    momentum : float, default=0.8
        In [0, 1).
    """

    setting, units = "central", ("record",)
    conditionable = False

    step_size: float | str = parameter("auto", AUTO, SIZE)
    clip_norm: float = parameter(0.3, SIZE)
    momentum: float = parameter(0.8, Interval(Real, 0, 1, closed="left"))

    def check_facts(self, facts: Facts) -> None:
        if not math.isfinite(facts.row_norm):
            raise ValueError("Got rows without a bound, expected feature_bounds or scale=None.")

    def released(self, facts: Facts, budget: Budget) -> tuple[Any, ...]:
        # A plan depends on public facts alone: no data is available here.
        settings = self.resolved(
            step_size=1 / (facts.loss.smoothness * facts.row_norm**2), n_iter=facts.max_iter
        )
        sensitivity = ClippedSum(facts).sensitivity  # in units of C
        mu = facts.remaining_mu(budget)
        noise_std = sensitivity * math.sqrt(facts.max_iter) / mu * (1 + 1e-12)
        gradients = Release(
            name="gradients",
            shape=(facts.n_parameters, facts.loss.n_outputs),
            sensitivities=(sensitivity,) * facts.max_iter,
            noise_std=noise_std,
        )
        return settings, gradients

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        facts, settings, rows = plan.facts, plan.settings, problem.rows
        clip = settings.clip_norm * rows.typical_norm
        gradients = ClippedSum(facts, clip).over(problem)
        prox = penalty_operator(facts.penalty, settings.step_size, rows)
        w = before = np.zeros((facts.n_parameters, facts.loss.n_outputs))
        for k in range(settings.n_iter):
            # Iterates depend on releases alone.
            noisy = clip / facts.n_samples * gate.release("gradients", gradients(w) / clip)
            ahead = w + settings.momentum * (w - before)
            w, before = prox(ahead - settings.step_size * noisy), w
            problem.progress(k + 1)
        return Solution(parameters=w, n_iter=settings.n_iter, derivative_bound=settings.clip_norm)


if __name__ == "__main__":
    import matplotlib.pyplot as plt

    from skdpadmm.inspection import PrivacyUtilityDisplay

    X, y = load_diabetes(return_X_y=True)
    model = DPAdmmRidge(
        algorithm=HeavyBall(momentum=0.9),
        epsilon=2.0,
        feature_bounds=(-0.2, 0.2),
        target_bounds=(0, 350),
        max_iter=50,
        random_state=0,
    )
    print(model.fit(X, y).privacy_)

    # Beside the default, over several budgets.
    fig, ax = plt.subplots()
    for name, algorithm in {"HeavyBall": model.algorithm, "default": "consensus-admm"}.items():
        PrivacyUtilityDisplay.from_estimator(
            model.set_params(algorithm=algorithm), X, y, epsilons=(1, 2, 4, 8), ax=ax,
            name=name, plot_baselines=name == "default",
        )  # fmt: skip
    ax.set(title="Heavy ball catches up at epsilon 2", ylim=(-0.6, 0.6))
    ax.legend(fontsize=9, loc="lower right")
    plt.show()
