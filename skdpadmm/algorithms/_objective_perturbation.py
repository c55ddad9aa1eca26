"""Objective perturbation: a random linear term in the objective, solved once.

Sources: Chaudhuri, Monteleoni & Sarwate, "Differentially private empirical risk minimization", JMLR
2011; Iyengar et al., "Towards practical differentially private convex optimization", IEEE S&P 2019,
for approximate minimisers; Redberg, Koskela & Wang, "Improving the privacy and practicality of
objective perturbation for differentially private linear learners", NeurIPS 2023, for the accounting
of linear predictors, which `PerturbedObjectiveDP` proves and tightens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skdpadmm.algorithms._accelerated_gradient import (
    Map,
    accelerated_gradient,
    step_rounding,
    steps_to_reach,
)
from skdpadmm.algorithms._averaged_admm import remaining_prox, usable_ridge
from skdpadmm.algorithms._clipped_loss import (
    LossBounds,
    bounds_in_basis,
    clipped_gradient,
    derivative_kind,
    score_rounding,
    sum_rounding,
)
from skdpadmm.algorithms._knobs import check_range
from skdpadmm.algorithms._linear_terms import HALF_CELL, LONGEST_DRAW, NEVER
from skdpadmm.privacy import (
    GaussianDP,
    LossDerivative,
    PerturbedObjectiveDP,
    calibrate_noise,
    compose,
    gaussian_mu,
)
from skdpadmm.protocol import MODEL, Budget, Facts, Gate, Plan, Problem, Release, Solution, View
from skdpadmm.records import Rows

LINEAR_TERM = "linear term"
MINIMISER = "minimiser"
# Share of the squared budget that covers the inexact solution, and how much noise that may add
# beside the effect of the linear term where the objective is as curved as it can be.
OUTPUT_SHARE, OUTPUT_NOISE = 0.02, 0.1


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbationSettings:
    """Constants of one run, resolved.

    Attributes
    ----------
    n_steps : int
        Accelerated gradient steps.
    clip_norm : float
        Bound of the norm of a record's gradient, in units of the typical norm of a row [L].
    row_bound : float
        In conditioned coordinates: bound of the norm of a row, in units of the typical norm.
    ridge : float
        Strong convexity of the sum of losses and penalty, in units of the largest curvature of one
        record [lambda / beta]. What the penalty does not provide is added.
    tolerance : float
        Certified distance of the computed minimiser from the exact one for a linear term that is
        not rounded, in units of L / lambda.
    """

    n_steps: int
    clip_norm: float
    row_bound: float
    ridge: float
    tolerance: float


class ObjectivePerturbation(BaseEstimator):
    r"""Minimises the clipped losses, the penalty, a ridge and a random linear term.

    .. math::

        \hat w = \arg\min_w \sum_i f_i(w) + n r(w) + \frac{\lambda'}2 \|w\|^2 + b' w, \qquad
        b \sim N(0, \sigma^2 I),

    in the coordinates that it works in, each f_i clipped. Divided by n it is the objective of the
    estimator, with a ridge :math:`\lambda' / n`, intercept included. It is solved by a public
    number of accelerated gradient steps and released with a little noise, which covers the
    distance that these leave; so no coefficient is exactly zero. The number of steps grows like
    ``sqrt(n_samples / ridge)``, and nothing else has to be tuned.

    Parameters
    ----------
    clip_norm : float or "auto", default="auto"
        Bound of the Euclidean norm of a record's gradient (L), in units of the typical norm of a
        row; in [1e-100, 1e100]. It clips the derivative of the loss as a number, which Huberises
        the loss.
    ridge : float or "auto", default="auto"
        Strong convexity of the whole (lambda), in units of the largest curvature of one record;
        in [1e-3, 1e12]. A penalty with more than that needs nothing added.
    row_bound : float, default=1.5
        Rows of conditioned coordinates are scaled down to this many times the typical norm, in
        [0.01, 100]. Without conditioning rows have a bound already.

    Notes
    -----
    Unit: one record; adversary "model", who sees the solution but neither b nor the minimiser
    without noise. The guarantee of the exact minimiser is `PerturbedObjectiveDP`, where it is
    proven: it needs one score, convex losses with bounded gradients (L) and curvature (beta), and
    ``lambda > 0`` in all directions. The computed one is within a certified distance t of it on
    every data set, rounding of b to the gate's grid included, so what is released with noise is,
    given the exact minimiser, a Gaussian mechanism of sensitivity 2 t; both compose with what
    prepared the coordinates. (An intercept is not penalised by r but is by the ridge.)

    The noise of b is calibrated on the composition. Its size in units of L, and lambda in units of
    beta, are planned; L and beta themselves may follow from released coordinates.

    References
    ----------
    .. [1] R. Redberg, A. Koskela, Y.-X. Wang, "Improving the privacy and practicality of objective
       perturbation for differentially private linear learners", NeurIPS 2023.
    .. [2] R. Iyengar, J. Near, D. Song, O. Thakkar, A. Thakurta, L. Wang, "Towards practical
       differentially private convex optimization", IEEE S&P 2019.

    Examples
    --------
    >>> from skdpadmm import DPAdmmLogisticRegression
    >>> from skdpadmm.algorithms import ObjectivePerturbation
    >>> model = DPAdmmLogisticRegression(algorithm=ObjectivePerturbation(), classes=[0, 1])
    >>> [release.name for release in model.plan(n_samples=10_000, n_features=5).releases]
    ['second moment', 'linear term', 'minimiser']
    """

    conditionable = True
    setting = "central"
    exact = False

    def __init__(
        self,
        *,
        clip_norm: float | Literal["auto"] = "auto",
        ridge: float | Literal["auto"] = "auto",
        row_bound: float = 1.5,
    ) -> None:
        self.clip_norm = clip_norm
        self.ridge = ridge
        self.row_bound = row_bound

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_range("clip_norm", self.clip_norm, 1e-100, 1e100)
        check_range("ridge", self.ridge, 1e-3, 1e12)
        check_range("row_bound", self.row_bound, 1e-2, 1e2, auto=False)

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide ridge, clip bound, noise and the number of steps from public facts.

        Parameters
        ----------
        facts : Facts
        budget : Budget
            With a finite epsilon.

        Returns
        -------
        Plan

        Raises
        ------
        ValueError
            Where a knob is outside its range, or the loss or a bound outside that of the theorem.
        """
        self.check(facts)
        _check_facts(facts)
        ridge, clip_norm = default_perturbation(facts, budget)
        settings = ObjectivePerturbationSettings(
            n_steps=0,
            clip_norm=clip_norm if self.clip_norm == "auto" else float(self.clip_norm),
            row_bound=float(self.row_bound),
            ridge=ridge if self.ridge == "auto" else float(self.ridge),
            tolerance=0.0,
        )
        settings = replace(settings, ridge=max(settings.ridge, penalty_ridge(facts, settings)))
        mu = gaussian_mu(budget.epsilon, budget.delta) * math.sqrt(OUTPUT_SHARE)
        solution = GaussianDP(mu)
        before = [release.view().guarantees[0] for release in facts.preparations]

        def at(noise: float) -> PerturbedObjectiveDP:
            guarantee = compose(*before, minimiser_guarantee(facts, settings, noise), solution)
            assert isinstance(guarantee, PerturbedObjectiveDP)
            return guarantee

        if at(1e100).delta(budget.epsilon) > 0.5 * budget.delta:
            raise ValueError(
                f"Got ridge={settings.ridge:g} at epsilon={budget.epsilon:g}, expected a larger"
                " one: the curvature of one record beside it tells more than the budget allows."
                f" Use 'auto' or more than {2 / budget.epsilon:.3g}."
            )
        noise_std = calibrate_noise(at, budget.epsilon, budget.delta * (1 - NEVER)) * (1 + 1e-12)
        settings = _with_accuracy(facts, settings, noise_std)
        shape = (facts.n_parameters, facts.loss.n_outputs)
        guarantee = minimiser_guarantee(facts, settings, noise_std)
        term = Release(
            name=LINEAR_TERM,
            shape=shape,
            sensitivities=(),
            noise_std=noise_std,
            door="hidden_term",
            repeats=1,
            views=(View(observer=MODEL, guarantees=(guarantee,)),),
        )
        sensitivity = 2 * settings.tolerance
        if sensitivity / mu > noise_std:
            raise ValueError(
                f"Got n_samples={facts.n_samples} with ridge={settings.ridge:g}, expected fewer"
                " records or a stronger ridge: to cover rounding errors would take more noise than"
                " the linear term has. Subtract a public constant from features whose bounds are"
                " not around 0, choose another algorithm, or conditioning=None."
            )
        release = Release(
            name=MINIMISER,
            shape=shape,
            sensitivities=(sensitivity,),
            noise_std=sensitivity / mu * (1 + 1e-12),
        )
        return Plan(
            algorithm="ObjectivePerturbation",
            facts=facts,
            budget=budget,
            settings=settings,
            releases=(*facts.preparations, term, release),
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Solve the perturbed problem as planned.

        Parameters
        ----------
        plan : Plan
        problem : Problem
        gate : Gate

        Returns
        -------
        Solution
        """
        settings: ObjectivePerturbationSettings = plan.settings
        facts, rows, n = plan.facts, problem.rows, plan.facts.n_samples
        bounds = _bounds(facts, settings, rows)
        # Parameters in units of L / lambda, gradients in units of L.
        convexity = settings.ridge * bounds.curvature
        unit = bounds.gradient_norm / convexity
        kappa = 1 + n / settings.ridge
        linear = gate.hidden_term(LINEAR_TERM)
        gradient = clipped_gradient(facts.loss, problem, bounds)
        ridge = _penalty_curvature(facts)

        def prox(step: float) -> Map:
            """Of the penalty, less the ridge that counts as part of the smooth function."""
            apply = remaining_prox(facts, step * n / convexity, ridge, rows)
            return lambda w: rows.from_coordinates(apply(w * unit)) / unit

        steps = 0

        def slope(w: NDArray[np.float64]) -> NDArray[np.float64]:
            nonlocal steps
            steps += 1
            problem.progress(steps)
            return gradient(w * unit) / bounds.gradient_norm + w + linear

        # The minimiser without data: the losses move it by at most n, in these units.
        start = prox(1.0)(-linear)
        solution = accelerated_gradient(
            slope,
            start,
            settings.n_steps,
            strong_convexity=1.0,
            smoothness=kappa,
            prox=prox(1.0 / kappa),
        )
        released = unit * gate.release(MINIMISER, solution)
        return Solution(
            parameters=rows.to_coordinates(released),
            n_iter=settings.n_steps,
            derivative_bound=settings.clip_norm,
        )


def default_perturbation(facts: Facts, budget: Budget) -> tuple[float, float]:
    """Ridge and clip bound.

    The determinant costs about 1 / ridge of epsilon, so a fixed share of epsilon goes there: a
    sixth was near the best on four data sets at epsilon 0.1 to 10. A ridge has a use of its own: it
    holds what the linear term would move, so none is weaker than half of the curvature of a record.
    The clip keeps most gradients of a logistic loss as they are; those of residuals are mostly far
    smaller than the largest, so it can be tighter there.

    Parameters
    ----------
    facts : Facts
    budget : Budget

    Returns
    -------
    ridge : float
        In units of the largest curvature of one record.
    clip_norm : float
        In units of the typical norm of a row.
    """
    regression = derivative_kind(facts.loss) is LossDerivative.ANY
    return max(6.0 / budget.epsilon, 0.5), 0.4 if regression else 0.7


def minimiser_guarantee(
    facts: Facts, settings: ObjectivePerturbationSettings, noise_std: float
) -> PerturbedObjectiveDP:
    """What the exact minimiser costs, with noise in units of the gradient bound.

    Parameters
    ----------
    facts : Facts
    settings : ObjectivePerturbationSettings
    noise_std : float
    """
    kind, bounds = derivative_kind(facts.loss), _bounds(facts, settings, None)
    saturation = min(1.0, bounds.gradient_norm / bounds.row_norm)
    # Clipped contributions and norms of rows hold up to rounding.
    return PerturbedObjectiveDP(
        gradient_ratio=facts.working_rounding / noise_std,
        curvature_ratio=1 / settings.ridge,
        neighboring=facts.neighboring,
        derivative=kind,
        saturation=saturation if kind is LossDerivative.LOGISTIC else 1.0,
    )


def penalty_ridge(facts: Facts, settings: ObjectivePerturbationSettings) -> float:
    """Strong convexity that the penalty provides, in units of the largest curvature.

    A little more, because the rest of the penalty has a proximal step of length one over the whole
    only as long as that is larger than what is taken out of the penalty.
    """
    provided = facts.n_samples * _penalty_curvature(facts) * (1 + 1e-6)
    return provided / _bounds(facts, settings, None).curvature


def _penalty_curvature(facts: Facts) -> float:
    """Strong convexity of the penalty in the coordinates that are worked in, if it is public."""
    return usable_ridge(facts, math.inf)


def _bounds(facts: Facts, settings: ObjectivePerturbationSettings, rows: Rows | None) -> LossBounds:
    return bounds_in_basis(facts, rows, clip_norm=settings.clip_norm, row_bound=settings.row_bound)


def _check_facts(facts: Facts) -> None:
    if facts.unit != "record":
        raise ValueError(
            f"Got unit={facts.unit!r} for ObjectivePerturbation, expected 'record': the theorem is"
            " about the gradient of one record."
        )
    if facts.loss.n_outputs > 1:
        raise ValueError(
            f"Got {facts.loss.n_outputs} scores for ObjectivePerturbation, expected one: with"
            " several the direction of a record's gradient depends on the noise. Choose another"
            " algorithm for more than two classes."
        )
    if not math.isfinite(facts.row_norm):
        raise ValueError(
            f"Got row_norm={facts.row_norm} for ObjectivePerturbation, expected a finite bound:"
            " curvature has to have one."
        )
    of_image = facts.penalty.splitting()[0] is not None
    if of_image or facts.penalty.proximal_rounding(np.ones(facts.n_parameters), 1.0) == math.inf:
        raise ValueError(
            f"Got {facts.penalty!r} for ObjectivePerturbation, expected a penalty of single"
            " coefficients: the accuracy of a solution rests on that of proximal steps, in any"
            " basis. Choose another algorithm."
        )
    if facts.penalty.value(np.zeros(1)) != 0:
        raise ValueError(
            f"Got {facts.penalty!r} for ObjectivePerturbation, expected a penalty that is 0 at 0:"
            " the size of a solution has to have a bound."
        )


def longest_solution(
    facts: Facts, settings: ObjectivePerturbationSettings, noise_std: float
) -> float:
    """Bound of the norm of the minimiser, in units of L / lambda.

    It is what the linear term alone gives, moved by at most n gradients. Where losses have a bound
    at 0, it can not be so far away that the ridge costs more than it gains.

    Parameters
    ----------
    facts : Facts
    settings : ObjectivePerturbationSettings
    noise_std : float
    """
    n, bounds = facts.n_samples, _bounds(facts, settings, None)
    linear = noise_std * (math.sqrt(facts.n_parameters) + LONGEST_DRAW)
    if derivative_kind(facts.loss) is LossDerivative.ANY:
        return linear + n
    # A clip lowers the losses of a margin.
    at_zero = float(facts.loss.value(np.zeros(2), np.array([-1.0, 1.0])).max())
    convexity = settings.ridge * bounds.curvature
    return min(
        linear + n, 2 * linear + math.sqrt(2 * n * at_zero * convexity) / bounds.gradient_norm
    )


def _with_accuracy(
    facts: Facts, settings: ObjectivePerturbationSettings, noise_std: float
) -> ObjectivePerturbationSettings:
    """Settings with the tolerance and the number of steps that reaches it.

    Everything is in units in which lambda = L = 1, so it does not depend on released coordinates.
    """
    n, kappa = facts.n_samples, 1 + facts.n_samples / settings.ridge
    unit_bounds = LossBounds(row_norm=1.0, gradient_norm=1.0, curvature=1 / settings.ridge)
    relative = step_rounding(kappa) + score_rounding(facts, unit_bounds)
    error = sum_rounding(facts, unit_bounds) + relative * longest_solution(
        facts, settings, noise_std
    )
    mu_share = math.sqrt(OUTPUT_SHARE) * facts.neighboring.sensitivity_factor
    # The linear term is a rounded one: the minimiser for the other is as far away, at most.
    rounded = noise_std * HALF_CELL * math.sqrt(facts.n_parameters)
    tolerance = max(0.5 * OUTPUT_NOISE * mu_share / kappa, 8 * error, rounded)
    n_steps = steps_to_reach(
        tolerance,
        strong_convexity=1.0,
        smoothness=kappa,
        initial_distance=float(n),
        gradient_error=error,
        relative_error=relative,
    )
    return replace(settings, tolerance=tolerance + rounded, n_steps=n_steps)
