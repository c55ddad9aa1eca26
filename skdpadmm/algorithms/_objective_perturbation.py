"""Objective perturbation: a random linear term in the objective, solved once.

Sources: Chaudhuri, Monteleoni & Sarwate, "Differentially private empirical risk minimization", JMLR
2011; Iyengar et al., "Towards practical differentially private convex optimization", IEEE S&P 2019,
for approximate minimisers; Redberg, Koskela & Wang, "Improving the privacy and practicality of
objective perturbation for differentially private linear learners", NeurIPS 2023, for the accounting
of linear predictors, which `PerturbedObjectiveDP` proves and tightens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from skdpadmm import privacy
from skdpadmm._sklearn import AUTO, SIZE, Interval, parameter
from skdpadmm.algorithms import _certified_solves as solves
from skdpadmm.algorithms._algorithm import Algorithm, Operator, check_zero_at_zero, refuse
from skdpadmm.algorithms._defaults import derivative_unit, largest_weight
from skdpadmm.algorithms._last_iterate import LONGEST_DRAW, path_release, seen_in_model
from skdpadmm.losses import LogisticLoss, Loss, SmoothedHinge, WeightedLoss
from skdpadmm.noise import GRID_CELL
from skdpadmm.privacy import GaussianDP, LossDerivative, PerturbedObjectiveDP
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Release, Settings, Solution

LINEAR_TERM = "linear term"
MINIMISER = "minimiser"
# Share of the squared budget that covers the inexact solution, and how much noise that may add
# beside the effect of the linear term where the objective is as curved as it can be.
OUTPUT_SHARE, OUTPUT_NOISE = 0.02, 0.1
# What is charged to delta for linear terms longer than `LONGEST_DRAW`.
NEVER = 1e-9


@dataclass(kw_only=True, eq=False, repr=False)
class ObjectivePerturbation(Algorithm):
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
    >>> known = {"classes": [0, 1], "feature_bounds": (-1, 1)}
    >>> model = DPAdmmLogisticRegression(algorithm=ObjectivePerturbation(), **known)
    >>> [release.name for release in model.plan(n_samples=10_000, n_features=5).releases]
    ['second moment', 'linear term', 'minimiser']
    """

    setting = "central"
    units = ("record",)  # The theorem is about the gradient of one record.

    clip_norm: float | str = parameter("auto", AUTO, SIZE)
    ridge: float | str = parameter("auto", AUTO, Interval(Real, 1e-3, 1e12, closed="both"))
    row_bound: float = parameter(1.5, Interval(Real, 1e-2, 1e2, closed="both"))

    def released(self, facts: Facts, budget: Budget) -> tuple[Settings, Release, Release]:
        """The linear term, which stays hidden, and the minimiser; settings say how accurate."""
        _check_facts(facts)
        if facts.inference is not None:
            raise ValueError(
                "Got intervals=True with ObjectivePerturbation, expected an algorithm of Gaussian"
                " releases alone, which share a budget better. Use algorithm='consensus-admm'."
            )
        ridge, clip_norm = default_perturbation(facts, budget)
        settings = self.resolved(ridge=ridge, clip_norm=clip_norm)
        # The ridge that the penalty provides, and a little more: the rest of the penalty has a
        # proximal step of length one over the whole only as long as that is larger than what is
        # taken out of the penalty.
        provided = facts.n_samples * solves.usable_ridge(facts) * (1 + 1e-6)
        provided /= solves.settled_bounds(facts, settings).curvature
        settings = settings.but(ridge=max(settings.ridge, provided))
        mu = privacy.gaussian_mu(budget.epsilon, budget.delta) * math.sqrt(OUTPUT_SHARE)
        before = [release.view().guarantees[0] for release in facts.preparations]

        def at(noise: float) -> privacy.Guarantee:
            minimiser = minimiser_guarantee(facts, settings, noise)
            return privacy.compose(*before, minimiser, GaussianDP(mu))

        if at(1e100).delta(budget.epsilon) > 0.5 * budget.delta:
            raise ValueError(
                f"Got ridge={settings.ridge:g} at epsilon={budget.epsilon:g}, expected a larger"
                " one: the curvature of one record reveals more than the budget allows. Use 'auto'"
                f" or more than {2 / budget.epsilon:.3g}."
            )
        noise_std = privacy.calibrate_noise(at, budget.epsilon, budget.delta * (1 - NEVER))
        noise_std *= 1 + 1e-12
        tolerance, n_steps = accuracy(facts, settings, noise_std)
        sensitivity = 2 * tolerance
        if sensitivity / mu > noise_std:
            raise ValueError(
                f"Got n_samples={facts.n_samples} with ridge={settings.ridge:g}, expected fewer"
                " records or a stronger ridge: to cover rounding errors would take more noise than"
                " the linear term has. Subtract a public constant from features whose bounds are"
                " not around 0, choose another algorithm, or conditioning=None."
            )
        shape = facts.model_shape
        guarantee = minimiser_guarantee(facts, settings, noise_std)
        term = Release(
            name=LINEAR_TERM,
            shape=shape,
            sensitivities=(),
            noise_std=noise_std,
            door="hidden_term",
            repeats=1,
            views=seen_in_model(guarantee),
        )
        solution = path_release(MINIMISER, shape, sensitivity, 1, mu)
        return settings.but(tolerance=tolerance, n_steps=n_steps), term, solution

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Solve the perturbed problem as planned."""
        settings = plan.settings
        facts, rows, n = plan.facts, problem.rows, plan.facts.n_samples
        bounds = solves.settled_bounds(facts, settings, rows)
        # Parameters in units of L / lambda, gradients in units of L.
        convexity = settings.ridge * bounds.curvature
        unit = bounds.gradient_norm / convexity
        kappa = 1 + n / settings.ridge
        linear = gate.hidden_term(LINEAR_TERM)
        gradient = bounds.gradient(facts, problem)
        ridge = solves.usable_ridge(facts)

        def prox(step: float) -> Operator:
            """Of the penalty, less the ridge that counts as part of the smooth function."""
            apply = solves.remaining_prox(facts, step * n / convexity, ridge, rows)
            return lambda w: rows.from_coordinates(apply(w * unit)) / unit

        def slope(w: NDArray[np.float64]) -> NDArray[np.float64]:
            return gradient(w * unit) / bounds.gradient_norm + w + linear

        # The minimiser without data: the losses move it by at most n, in these units.
        start = prox(1.0)(-linear)
        solution = solves.accelerated_gradient(
            slope,
            start,
            settings.n_steps,
            strong_convexity=1.0,
            smoothness=kappa,
            prox=prox(1.0 / kappa),
            progress=problem.progress,
        )
        released = unit * gate.release(MINIMISER, solution)
        return Solution(
            parameters=rows.to_coordinates(released),
            n_iter=settings.n_steps,
            derivative_bound=settings.clip_norm,
        )


def derivative_kind(loss: Loss) -> LossDerivative:
    """What is known of the sign and the curvature of a loss of one score, clipped or not."""
    # A class derived from one of them may have another derivative.
    if type(loss) is LogisticLoss:
        return LossDerivative.LOGISTIC
    # Of a weighted logistic loss derivative and curvature are in no single relation.
    inner = loss.loss if type(loss) is WeightedLoss else loss
    is_of_margin = type(inner) in (LogisticLoss, SmoothedHinge)
    return LossDerivative.ONE_SIGN if is_of_margin else LossDerivative.ANY


def default_perturbation(facts: Facts, budget: Budget) -> tuple[float, float]:
    """Ridge in units of the largest curvature of a record, and clip bound in those of its norm.

    The determinant uses about 1 / ridge of epsilon, so a fixed share of epsilon goes there: a
    sixth was near the best on four data sets at epsilon 0.1 to 10. A ridge has a use of its own: it
    holds what the linear term would move, so none is weaker than half of the curvature of a record.
    The clip keeps most gradients of a logistic loss as they are; those of residuals are mostly far
    smaller than the largest, so it can be tighter there.
    """
    regression = derivative_kind(facts.loss) is LossDerivative.ANY
    weight = derivative_unit(facts.loss) if regression else largest_weight(facts.loss)
    clip_norm = (0.4 if regression else 0.7) * weight
    return max(6.0 / budget.epsilon, 0.5), clip_norm


def minimiser_guarantee(facts: Facts, settings: Settings, noise_std: float) -> PerturbedObjectiveDP:
    """The guarantee of the exact minimiser, with noise in units of the gradient bound."""
    kind, bounds = derivative_kind(facts.loss), solves.settled_bounds(facts, settings)
    saturation = min(1.0, bounds.gradient_norm / bounds.row_norm)
    # Clipped contributions and norms of rows hold up to rounding.
    return PerturbedObjectiveDP(
        gradient_ratio=facts.working_rounding / noise_std,
        curvature_ratio=1 / settings.ridge,
        neighboring=facts.neighboring,
        derivative=kind,
        saturation=saturation if kind is LossDerivative.LOGISTIC else 1.0,
    )


def _check_facts(facts: Facts) -> None:
    """Refuse what the theorem, or the bound of a solution's accuracy, does not cover."""
    image, _ = facts.penalty.splitting()
    of_step = math.inf
    if image is None:
        of_step = facts.penalty.proximal_rounding(np.ones(facts.n_parameters), 1.0)
    several, unbounded = facts.loss.n_outputs > 1, not facts.row_norm < math.inf
    one = "one: with several the direction of a record's gradient depends on the noise"
    single = "a penalty of single coefficients: a solution is as accurate as proximal steps are"
    refuse(
        "Choose another algorithm than ObjectivePerturbation.",
        (several, f"{facts.loss.n_outputs} scores", one),
        (unbounded, f"row_norm={facts.row_norm}", "a finite bound: curvature has to have one"),
        (of_step == math.inf, repr(facts.penalty), single),
    )
    check_zero_at_zero(facts.penalty, facts.coordinates.n_features)


def longest_solution(facts: Facts, settings: Settings, noise_std: float) -> float:
    """Bound of the norm of the minimiser, in units of L / lambda.

    It is what the linear term alone gives, moved by at most n gradients. Where losses have a bound
    at 0, it can not be so far away that the ridge costs more than it gains.
    """
    n, bounds = facts.n_samples, solves.settled_bounds(facts, settings)
    linear = noise_std * (math.sqrt(facts.n_parameters) + LONGEST_DRAW)
    if derivative_kind(facts.loss) is LossDerivative.ANY:
        return linear + n
    # A clip lowers the losses of a margin.
    at_zero = float(facts.loss.value(np.zeros(2), np.array([-1.0, 1.0])).max())
    convexity = settings.ridge * bounds.curvature
    return min(
        linear + n, 2 * linear + math.sqrt(2 * n * at_zero * convexity) / bounds.gradient_norm
    )


def accuracy(facts: Facts, settings: Settings, noise_std: float) -> tuple[float, int]:
    """Certified distance of a solution from the minimiser, in units of L / lambda, and its steps.

    Everything is in units in which lambda = L = 1, so it does not depend on released coordinates.
    """
    n, kappa = facts.n_samples, 1 + facts.n_samples / settings.ridge
    unit_bounds = solves.LossBounds(row_norm=1.0, gradient_norm=1.0, curvature=1 / settings.ridge)
    relative = solves.step_rounding(kappa) + solves.score_rounding(facts, unit_bounds)
    error = solves.sum_rounding(facts, unit_bounds) + relative * longest_solution(
        facts, settings, noise_std
    )
    mu_share = math.sqrt(OUTPUT_SHARE) * facts.neighboring.sensitivity_factor
    # A gate rounds the linear term by half a cell: the minimiser moves as far, at most.
    rounded = noise_std * (GRID_CELL / 2) * math.sqrt(facts.n_parameters)
    tolerance = max(0.5 * OUTPUT_NOISE * mu_share / kappa, 8 * error, rounded)
    n_steps = solves.steps_to_reach(
        tolerance,
        strong_convexity=1.0,
        smoothness=kappa,
        initial_distance=float(n),
        gradient_error=error,
        relative_error=relative,
    )
    return tolerance + rounded, n_steps
