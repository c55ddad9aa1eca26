"""Private ADMM whose block of data is one: the proximal step of the averaged loss.

Source: Cyffers, Bellet & Basu, "From Noisy Fixed-Point Iterations to Private ADMM for Centralized
and Federated Learning" (ICML 2023), Algorithm 5 with A = I, B = -I, c = 0, for which the printed
rate of 1 / n**2 does hold: the state is one vector, and all of it takes noise in every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from skdpadmm._sklearn import AUTO, FRACTION, SIZE, Interval, OneOf, parameter
from skdpadmm.algorithms import _certified_solves as solves
from skdpadmm.algorithms import _last_iterate as last_iterate
from skdpadmm.algorithms._algorithm import Algorithm, refuse
from skdpadmm.algorithms._defaults import default_steps
from skdpadmm.privacy import averaged_admm_contraction, last_iterate_mu, reflected_prox_contraction
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Release, Settings, Solution
from skdpadmm.records import Rows

DISPLACEMENT = "displacement"
STATE = "state"


@dataclass(kw_only=True, eq=False, repr=False)
class AveragedADMM(Algorithm):
    r"""Douglas-Rachford ADMM on the averaged loss, private by noise on its one state.

    Solves :math:`\min_w F(w) + r(w)`, :math:`F = \frac1n \sum_i f_i`, each f_i clipped. From
    :math:`u = 0`, each of K updates computes

    .. math::

        z = \mathrm{prox}_{\gamma r}(u), \qquad x = \mathrm{prox}_{\gamma F}(2 z - u), \qquad
        u \leftarrow u + 2 \lambda (x - z) + \lambda N(0, \sigma^2 I)

    and :math:`\mathrm{prox}_{\gamma r}` of the last u, or of the average of the last ones, is the
    solution. x is found by a public number of accelerated gradient steps.

    Parameters
    ----------
    step_size : float or "auto", default="auto"
        Step of the proximal operators (gamma), in the coordinates that it works in, conditioned or
        not; in [1e-100, 1e100].
    clip_norm : float or "auto", default="auto"
        Bound of the Euclidean norm of a record's gradient (L), in units of the typical norm of a
        row; in [1e-100, 1e100]. It clips the derivative of the loss as a number, which Huberises
        the loss. With several scores it must not bind.
    relaxation : float, default=0.5
        lambda in (0, 1]: 0.5 is the usual ADMM (Douglas-Rachford), 1 Peaceman-Rachford.
    row_bound : float, default=2.0
        Rows of conditioned coordinates are scaled down to this many times the typical norm, in
        [0.01, 100], or to less where floats could not solve the inner problems. Without
        conditioning rows have a bound already.
    tail_fraction : float or "auto", default="auto"
        In (0, 1]: share of the path, at its end, that is averaged. "auto" is a half, or the last
        iterate alone where only that is seen.
    guarantee : {"path", "last"}, default="path"
        Whether every state counts as released, or the final model alone.
    tolerance : float, default=0.01
        In [1e-6, 1]: how far an inner solution may be from the exact one, in units of the distance
        that one record can move that. Twice as much is added to the sensitivity.

    Notes
    -----
    Unit: one record; adversary "model". Let c = 2 for replace-one and 1 for zero-out, where a
    record's loss becomes the zero function.

    **Sensitivity.** Two averaged losses differ by a function with gradients of at most c L / n, and
    a proximal objective is (1 / gamma + m)-strongly convex, m being the strong convexity of F: the
    exact x moves by at most ``gamma c L / (n (1 + gamma m))``. A computed x is within `tolerance`
    times that of the exact one on either data set: a factor ``1 + 2 tolerance``, by the proof of
    `certified_distance`, which needs a public bound of the curvature of F for every data set. It
    has one: clipped losses are convex, and rows are bounded.

    **Path.** Given the states so far, an update is a Gaussian mechanism, so K of them are GDP with
    ``mu = sqrt(K) Delta / s``, exactly. This is equation (26) of the paper with exact composition.

    **Last.** An update is a contraction with ``c' = 1 - lambda (1 - tau)``, ``tau = max((gamma beta
    - 1) / (gamma beta + 1), (1 - gamma m) / (1 + gamma m))``, on every data set, so the last state
    is GDP with ``mu = (Delta / s) sqrt((1 - c'^K) (1 + c') / ((1 + c'^K) (1 - c')))``. That needs
    m > 0: a ridge in the penalty and no intercept, whose direction it would leave out. The ridge is
    moved from r to F, as far as it is the same in all directions; an l1 norm stays in r. (An
    elastic net that stays in r is no contraction.) Scores must be single numbers, units declared,
    coordinates not conditioned. Iterates are not averaged: an average is not the last of them.
    Rounding counts as two cells of the gate's grid in each update, one of them for arithmetic, or
    as more where that can be off by more.

    References
    ----------
    .. [1] E. Cyffers, A. Bellet, D. Basu, "From Noisy Fixed-Point Iterations to Private ADMM for
       Centralized and Federated Learning", ICML 2023, Algorithm 5 and Theorem 7.
    .. [2] J. Bok, W. Su, J. Altschuler, "Shifted interpolation for differential privacy",
       ICML 2024, arXiv 2403.00278.

    Examples
    --------
    >>> from skdpadmm import DPAdmmRidge
    >>> from skdpadmm.algorithms import AveragedADMM
    >>> model = DPAdmmRidge(algorithm=AveragedADMM(guarantee="last"), fit_intercept=False)
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> plan.settings.contraction < 1
    True
    """

    setting = "central"
    units = ("record",)  # The averaged loss moves by one record.
    noiseless = True

    step_size: float | str = parameter("auto", AUTO, SIZE)
    clip_norm: float | str = parameter("auto", AUTO, SIZE)
    relaxation: float = parameter(0.5, FRACTION)
    row_bound: float = parameter(2.0, Interval(Real, 1e-2, 1e2, closed="both"))
    tail_fraction: float | str = parameter("auto", AUTO, FRACTION)
    guarantee: str = parameter("path", OneOf("path", "last"))
    tolerance: float = parameter(0.01, Interval(Real, 1e-6, 1.0, closed="both"))

    @property
    def releases_path(self) -> bool:
        """Whether every iterate counts as released: not where only the last state is seen."""
        return self.guarantee == "path"

    @property
    def conditionable(self) -> bool:
        """Whether it works in any basis: not where a ridge has to be the same in all directions."""
        return self.guarantee != "last"

    def check_facts(self, facts: Facts) -> None:
        """Refuse an average where only the last iterate is seen."""
        averages = self.guarantee == "last" and self.tail_fraction != "auto"
        got = f"tail_fraction={self.tail_fraction!r} with guarantee='last'"
        expected = "'auto': an average is not the last iterate"
        refuse("Use guarantee='path'.", (averages, got, expected))

    def released(self, facts: Facts, budget: Budget) -> tuple[Settings, Release]:
        """Each displacement, or the states of which only the last is seen."""
        several, no_bound = facts.loss.n_outputs > 1, not math.isfinite(facts.row_norm)
        refuse(
            "The number of inner steps of AveragedADMM follows from it.",
            (no_bound, f"row_norm={facts.row_norm}", "a finite bound"),
        )
        hidden, mu, n_iter = self.guarantee == "last", facts.remaining_mu(budget), facts.max_iter
        step_size, clip_norm = default_steps(facts, mu)
        open_clip = _open_clip(facts, self.row_bound)
        settings = self.resolved(
            n_iter=n_iter,
            step_size=step_size,
            clip_norm=open_clip if several else clip_norm,
            tail_fraction=0.0 if hidden else 0.5,
        )
        lam, clip_norm = settings.relaxation, settings.clip_norm
        if several and clip_norm < open_clip:
            raise ValueError(
                f"Got clip_norm={clip_norm:g} for {facts.loss.n_outputs} scores, expected at least"
                f" {open_clip:.6g}, which never binds. A loss whose vector of derivatives is"
                " clipped has no proximal step: use 'auto'."
            )
        settings = settings.but(ridge=solves.usable_ridge(facts, 0.5 / settings.step_size))
        # How far a computed proximal step can move, in units of the longest displacement.
        sensitivity = facts.neighboring.sensitivity_factor / facts.n_samples
        sensitivity *= facts.working_rounding + 2 * settings.tolerance
        shape = facts.model_shape
        release = last_iterate.path_release(DISPLACEMENT, shape, sensitivity, n_iter, mu)
        if hidden and budget.is_private:
            settings = settings.but(contraction=certified_contraction(facts, settings))
            longest = _longest_displacement(settings, solves.settled_bounds(facts, settings))
            # A step changes units, applies the penalty's operator once and doubles its value.
            error = 8 * last_iterate.certified_rounding(facts) + 4 * last_iterate.SUMS
            release = last_iterate.last_release(
                facts,
                STATE,
                (sensitivity,) * n_iter,
                mu,
                unit=2 * lam * longest,
                relative_error=error / min(lam, 0.5),
                worst=sensitivity,
                # The formula is linear in its first argument.
                amplified=last_iterate_mu(1.0, settings.contraction, n_iter),
            )
        _inner_problem(facts, settings, None, release.noise_std)
        return settings, release

    def assumptions(self, facts: Facts, budget: Budget) -> tuple[str, ...]:
        """What hides the states before the last."""
        return last_iterate.premises(facts) if self.guarantee == "last" else ()

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Iterate as planned; symbols as above."""
        settings = plan.settings
        facts, rows = plan.facts, problem.rows
        prox = solves.remaining_prox(facts, settings.step_size, settings.ridge, rows)
        lam = settings.relaxation
        u = tail = np.zeros(facts.model_shape)
        z = rows.from_coordinates(prox(u))
        noise_std, first = plan.releases[-1].noise_std, float(np.linalg.norm(z))
        bounds, radius, n_steps = _inner_problem(facts, settings, rows, noise_std, first)
        unit = _longest_displacement(settings, bounds)
        inner = _inner_solver(plan, problem, bounds, n_steps)
        for k in range(settings.n_iter):
            start, x = inner(2 * z - u)
            if plan.releases[-1].name == DISPLACEMENT:
                released = gate.release(DISPLACEMENT, (x - start) / unit)
                u = u + 2 * lam * (start + unit * released - z)
            else:
                # The state itself takes the noise and the rounding of the gate: with a noisy
                # displacement, what is left of the state below the grid would stay without any.
                length = 2 * lam * unit
                u = length * gate.release(STATE, u / length + (x - z) / unit)
            # A projection onto a public ball, which only a draw of the noise that never comes would
            # leave: so the rounding of scores has a bound.
            u = last_iterate.within(radius, u)
            model = prox(u)
            z = rows.from_coordinates(model)
            if k >= settings.n_iter - settings.n_averaged:
                tail = tail + u / settings.n_averaged
            problem.progress(k + 1, model)
        # One proximal step after averaging: an average of sparse vectors would not be sparse.
        return Solution(
            parameters=prox(tail), n_iter=settings.n_iter, derivative_bound=settings.clip_norm
        )


def certified_contraction(facts: Facts, settings: Settings) -> float:
    """A Lipschitz constant below 1 of an update, for every data set, or a refusal."""
    refuse(
        "Without a public contraction of every update the last iterate is no more private than the"
        " path. Use guarantee='path'.",
        (facts.loss.n_outputs > 1, f"{facts.loss.n_outputs} scores", "one score"),
        (facts.scaling is not None, "scale='private'", "declared units"),
        (
            not settings.ridge > 0,
            "a penalty that is not strongly convex in every parameter",
            "one with a ridge, and fit_intercept=False: an intercept is not penalised",
        ),
    )
    curvature = solves.settled_bounds(facts, settings).curvature
    reflected = reflected_prox_contraction(
        settings.step_size, settings.ridge, settings.ridge + curvature
    )
    return averaged_admm_contraction(settings.relaxation, reflected)


def _open_clip(facts: Facts, row_bound: float) -> float:
    """A clip bound, in units of the typical norm, that no gradient reaches."""
    if facts.conditioning is not None:
        return solves.open_clip(facts.loss, row_bound)
    return solves.open_clip(facts.loss, facts.row_norm) / solves.typical_norm(facts)


def _longest_displacement(settings: Settings, bounds: solves.LossBounds) -> float:
    """How far data can take the proximal step from where the ridge alone would."""
    gamma = settings.step_size
    return gamma * bounds.gradient_norm / (1 + gamma * settings.ridge)


def _inner_problem(
    facts: Facts, settings: Settings, rows: Rows | None, noise_std: float, first: float = 0.0
) -> tuple[solves.LossBounds, float, int]:
    """Bounds of losses and of the norm of states, and inner steps that reach the tolerance.

    Before data (rows is None) what floats can solve in no basis is refused. In a basis with rows so
    long that they cannot, these are scaled down further. The first z is `first` long.
    """
    n, bounds = facts.n_samples, solves.settled_bounds(facts, settings, rows)
    convexity = settings.ridge + 1 / settings.step_size
    smoothness = convexity + bounds.curvature
    unit, n_entries = _longest_displacement(settings, bounds), math.prod(facts.model_shape)
    radius = unit * last_iterate.state_radius(settings.n_iter, noise_std, n_entries)
    # No proximal operator expands, so the points of inner problems are bounded as states are.
    farthest = 3 * radius + 2 * first
    # Of the displacement d from the start, which is at most `unit` long where it is exact; scores
    # are those of start + d.
    of_step, of_score = solves.step_rounding(smoothness), solves.score_rounding(facts, bounds) / n
    error = solves.sum_rounding(facts, bounds) / n + of_step * unit
    error += of_score * (farthest + unit)
    try:
        n_steps = solves.steps_to_reach(
            settings.tolerance * facts.neighboring.sensitivity_factor * unit / n,
            strong_convexity=convexity,
            smoothness=smoothness,
            initial_distance=unit,
            gradient_error=error,
            relative_error=(of_step + of_score) / convexity,
        )
    except ValueError as refusal:
        if rows is not None and facts.conditioning is not None:
            shorter = settings.but(row_bound=settings.row_bound / math.sqrt(2))
            return _inner_problem(facts, shorter, rows, noise_std, first)
        raise ValueError(
            f"Got step_size={settings.step_size:g} and tolerance={settings.tolerance:g} for"
            f" {facts.loss!r}, expected a shorter step or a larger tolerance: floats cannot solve"
            " the inner problems of AveragedADMM."
        ) from refusal
    return bounds, radius, n_steps


def _inner_solver(
    plan: Plan, problem: Problem, bounds: solves.LossBounds, n_steps: int
) -> Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """The proximal step of the averaged loss, within the planned tolerance.

    It returns a start, which is public, and the solution.
    """
    settings, facts, n = plan.settings, plan.facts, plan.facts.n_samples
    convexity = settings.ridge + 1 / settings.step_size
    smoothness = convexity + bounds.curvature
    clips = bounds
    if not plan.budget.is_private:
        # No noise hides what is left of an inner solution.
        n_steps, clips = n_steps * solves.STEPS_WITHOUT_NOISE, solves.NO_BOUNDS
    gradient = clips.gradient(facts, problem)

    def solve(point: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        start = point / (1 + settings.step_size * settings.ridge)
        # In terms of the displacement d from the start the quadratic part is convexity / 2 |d|^2,
        # and rounding is relative to d.
        moved = solves.accelerated_gradient(
            lambda d: gradient(start + d) / n + convexity * d,
            np.zeros_like(start),
            n_steps,
            strong_convexity=convexity,
            smoothness=smoothness,
        )
        return start, start + moved

    return solve
