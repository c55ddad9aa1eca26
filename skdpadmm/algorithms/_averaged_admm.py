"""Private ADMM whose block of data is one: the proximal step of the averaged loss.

Source: Cyffers, Bellet & Basu, "From Noisy Fixed-Point Iterations to Private ADMM for Centralized
and Federated Learning" (ICML 2023), Algorithm 5 with A = I, B = -I, c = 0, for which the printed
rate of 1 / n**2 does hold: the state is one vector, and all of it takes noise in every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skdpadmm.algorithms._accelerated_gradient import (
    accelerated_gradient,
    step_rounding,
    steps_to_reach,
)
from skdpadmm.algorithms._algorithm import Operator, penalty_operator
from skdpadmm.algorithms._clipped_loss import (
    LossBounds,
    bounds_in_basis,
    clipped_gradient,
    open_clip,
    score_rounding,
    sum_rounding,
    typical_norm,
)
from skdpadmm.algorithms._defaults import default_steps
from skdpadmm.algorithms._knobs import (
    check_choice,
    check_range,
    check_steps,
    check_tail_fraction,
    is_number,
    tail_length,
)
from skdpadmm.algorithms._last_iterate import (
    SUMS,
    certified_rounding,
    hidden_shift,
    premises,
    state_radius,
    within,
)
from skdpadmm.privacy import (
    GaussianDP,
    averaged_admm_contraction,
    last_iterate_mu,
    reflected_prox_contraction,
)
from skdpadmm.protocol import MODEL, Budget, Facts, Gate, Plan, Problem, Release, Solution, View
from skdpadmm.records import Rows

DISPLACEMENT = "displacement"
STATE = "state"
PATH = "guarantee='path'"


@dataclass(frozen=True, kw_only=True)
class AveragedADMMSettings:
    """Constants of one run, resolved; symbols of the paper in brackets.

    Attributes
    ----------
    n_iter : int
        Noisy updates of the state [K].
    step_size : float
        Step of both proximal operators [gamma].
    relaxation : float
        [lambda].
    clip_norm : float
        Bound of the norm of a record's gradient, in units of the typical norm of a row [L].
    row_bound : float
        In conditioned coordinates: bound of the norm of a row, in units of the typical norm.
    ridge : float
        Part of the penalty that belongs to the averaged loss: its strong convexity [m].
    tolerance : float
        Certified distance of an inner solution from the exact one, in units of the distance that
        one record can move that.
    n_averaged : int
        Length of the averaged tail of the path.
    guarantee : {"path", "last"}
    contraction : float
        Lipschitz constant of an update that the guarantee rests on; 1 where it rests on none.
    """

    n_iter: int
    step_size: float
    relaxation: float
    clip_norm: float
    row_bound: float
    ridge: float
    tolerance: float
    n_averaged: int
    guarantee: Literal["path", "last"]
    contraction: float


class AveragedADMM(BaseEstimator):
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
        [0.01, 100]. Without conditioning rows have a bound already.
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
    ``mu = sqrt(K) Delta / s``, exactly. This is equation (28) of the paper with exact composition.

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
    exact = False

    def __init__(
        self,
        *,
        step_size: float | Literal["auto"] = "auto",
        clip_norm: float | Literal["auto"] = "auto",
        relaxation: float = 0.5,
        row_bound: float = 2.0,
        tail_fraction: float | Literal["auto"] = "auto",
        guarantee: Literal["path", "last"] = "path",
        tolerance: float = 0.01,
    ) -> None:
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.relaxation = relaxation
        self.row_bound = row_bound
        self.tail_fraction = tail_fraction
        self.guarantee = guarantee
        self.tolerance = tolerance

    @property
    def conditionable(self) -> bool:
        """Whether it works in any basis: not where a ridge has to be the same in all directions."""
        return self.guarantee != "last"

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide steps, clip bound and noise from public facts.

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
            Where a knob is outside its range, or outside the range of its theorem.
        """
        self.check(facts)
        if facts.unit != "record":
            raise ValueError(
                f"Got unit={facts.unit!r} for AveragedADMM, expected 'record': the averaged loss"
                " moves by one record."
            )
        if not math.isfinite(facts.row_norm):
            raise ValueError(
                f"Got row_norm={facts.row_norm} for AveragedADMM, expected a finite bound: the"
                " number of inner steps follows from it."
            )
        mu = facts.remaining_mu(budget)
        settings = self._settings(facts, mu)
        plan_release = _path_release if settings.guarantee == "path" else _last_release
        return Plan(
            algorithm="AveragedADMM",
            facts=facts,
            budget=budget,
            settings=settings,
            releases=(*facts.preparations, plan_release(facts, settings, mu)),
            assumptions=() if settings.guarantee == "path" else premises(facts),
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Iterate as planned; every number in the solution has passed the gate.

        Parameters
        ----------
        plan : Plan
        problem : Problem
        gate : Gate

        Returns
        -------
        Solution
        """
        settings: AveragedADMMSettings = plan.settings
        facts, rows = plan.facts, problem.rows
        bounds = _bounds(facts, settings, rows)
        unit = _longest_displacement(settings, bounds)
        prox = remaining_prox(facts, settings.step_size, settings.ridge, rows)
        lam, shape = settings.relaxation, (facts.n_parameters, facts.loss.n_outputs)
        radius = _radius(plan, unit)
        u = tail = np.zeros(shape)
        z = rows.from_coordinates(prox(u))
        # No proximal operator expands, so the points of inner problems are bounded as well.
        farthest = 3 * radius + 2 * float(np.linalg.norm(z))
        inner = _inner_solver(plan, problem, bounds, farthest)
        for k in range(settings.n_iter):
            start, x = inner(2 * z - u)
            if settings.guarantee == "path":
                released = gate.release(DISPLACEMENT, (x - start) / unit)
                u = u + 2 * lam * (start + unit * released - z)
            else:
                # The state itself takes the noise and the rounding of the gate: with a noisy
                # displacement, what is left of the state below the grid would stay without any.
                length = 2 * lam * unit
                u = length * gate.release(STATE, u / length + (x - z) / unit)
            # A projection onto a public ball, which only a draw of the noise that never comes would
            # leave: so the rounding of scores has a bound.
            u = within(radius, u)
            z = rows.from_coordinates(prox(u))
            if k >= settings.n_iter - settings.n_averaged:
                tail = tail + u / settings.n_averaged
            problem.progress(k + 1)
        # One proximal step after averaging: an average of sparse vectors would not be sparse.
        return Solution(
            parameters=prox(tail), n_iter=settings.n_iter, derivative_bound=settings.clip_norm
        )

    def _settings(self, facts: Facts, mu: float) -> AveragedADMMSettings:
        hidden = self.guarantee == "last"
        step_size, clip_norm = default_steps(facts, mu)
        if facts.loss.n_outputs > 1:
            clip_norm = _open_clip(facts, self.row_bound)
        step_size = step_size if self.step_size == "auto" else float(self.step_size)
        clip_norm = clip_norm if self.clip_norm == "auto" else float(self.clip_norm)
        share = (0.0 if hidden else 0.5) if self.tail_fraction == "auto" else self.tail_fraction
        settings = AveragedADMMSettings(
            n_iter=facts.max_iter,
            step_size=step_size,
            relaxation=float(self.relaxation),
            clip_norm=clip_norm,
            row_bound=float(self.row_bound),
            ridge=usable_ridge(facts, 0.5 / step_size),
            tolerance=float(self.tolerance),
            n_averaged=tail_length(share, facts.max_iter),
            guarantee=self.guarantee,
            contraction=1.0,
        )
        if facts.loss.n_outputs > 1 and clip_norm < _open_clip(facts, self.row_bound):
            raise ValueError(
                f"Got clip_norm={clip_norm:g} for {facts.loss.n_outputs} scores, expected at least"
                f" {_open_clip(facts, self.row_bound):.6g}, which never binds: a loss whose vector"
                " of derivatives is clipped has no proximal step. Use 'auto'."
            )
        if not hidden:
            return settings
        return AveragedADMMSettings(
            **{**vars(settings), "contraction": certified_contraction(facts, settings)}
        )

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_steps(self.step_size, self.clip_norm)
        check_range("row_bound", self.row_bound, 1e-2, 1e2, auto=False)
        check_range("tolerance", self.tolerance, 1e-6, 1.0, auto=False)
        if not (is_number(self.relaxation) and 0 < self.relaxation <= 1):
            raise ValueError(f"Got relaxation={self.relaxation!r}, expected a float in (0, 1].")
        share = self.tail_fraction
        check_tail_fraction(share, auto=True)
        check_choice("guarantee", self.guarantee, ("path", "last"))
        if self.guarantee == "last" and share != "auto":
            raise ValueError(
                f"Got tail_fraction={share!r} with guarantee='last', expected 'auto': an average is"
                " not the last iterate. Use guarantee='path'."
            )


def usable_ridge(facts: Facts, most: float) -> float:
    """Strong convexity that can be moved from the penalty to the loss, the same in all directions.

    Coordinates that are only found later, by a preparation, leave no figure for it.
    """
    if facts.scaling is not None or facts.conditioning is not None:
        return 0.0
    return min(facts.penalty_curvature, most)


def remaining_prox(facts: Facts, step: float, ridge: float, rows: Rows) -> Operator:
    """Proximal operator of the penalty without ``ridge / 2 |w|^2`` of it, for ``step ridge < 1``.

    Completing the square, it is that of the whole penalty with another step, at a longer point.
    """
    left = 1.0 - step * ridge
    whole = penalty_operator(facts.penalty, step / left, rows)

    def apply(point: NDArray[np.float64]) -> NDArray[np.float64]:
        return whole(point / left)

    return apply


def certified_contraction(facts: Facts, settings: AveragedADMMSettings) -> float:
    """A Lipschitz constant below 1 of an update, for every data set.

    Parameters
    ----------
    facts : Facts
    settings : AveragedADMMSettings

    Raises
    ------
    ValueError
        Where there is none.
    """
    for refused, got, expected in (
        (facts.loss.n_outputs > 1, f"{facts.loss.n_outputs} scores", "one score"),
        (facts.conditioning is not None, "conditioning", "conditioning=None"),
        (facts.scaling is not None, "scale='private'", "declared units"),
        (
            not settings.ridge > 0,
            "a penalty that is not strongly convex in every parameter",
            "one with a ridge, and fit_intercept=False: an intercept is not penalised",
        ),
    ):
        if refused:
            raise ValueError(
                f"Got {got} with guarantee='last', expected {expected}: without a public"
                " contraction of every update the last iterate is no more private than the path."
                " Use guarantee='path'."
            )
    curvature = _bounds(facts, settings, None).curvature
    reflected = reflected_prox_contraction(
        settings.step_size, settings.ridge, settings.ridge + curvature
    )
    return averaged_admm_contraction(settings.relaxation, reflected)


def _bounds(facts: Facts, settings: AveragedADMMSettings, rows: Rows | None) -> LossBounds:
    return bounds_in_basis(facts, rows, clip_norm=settings.clip_norm, row_bound=settings.row_bound)


def _open_clip(facts: Facts, row_bound: float) -> float:
    """A clip bound, in units of the typical norm, that no gradient reaches."""
    if facts.conditioning is not None:
        return open_clip(facts.loss, row_bound)
    return open_clip(facts.loss, facts.row_norm) / typical_norm(facts)


def _longest_displacement(settings: AveragedADMMSettings, bounds: LossBounds) -> float:
    """How far data can take the proximal step from where the ridge alone would."""
    gamma = settings.step_size
    return gamma * bounds.gradient_norm / (1 + gamma * settings.ridge)


def _radius(plan: Plan, unit: float) -> float:
    """Bound of the norm of a state: signal and noise, each with room."""
    settings: AveragedADMMSettings = plan.settings
    n_entries = plan.facts.n_parameters * plan.facts.loss.n_outputs
    return unit * state_radius(settings.n_iter, plan.releases[-1].noise_std, n_entries)


def _inner_solver(
    plan: Plan, problem: Problem, bounds: LossBounds, farthest: float
) -> Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """The proximal step of the averaged loss, from a public start.

    Parameters
    ----------
    plan : Plan
    problem : Problem
    bounds : LossBounds
    farthest : float
        Bound of the norm of a point.

    Returns
    -------
    callable
        Maps a point to the start and to the solution, which is within the planned tolerance.
    """
    settings: AveragedADMMSettings = plan.settings
    facts, n = plan.facts, plan.facts.n_samples
    unit = _longest_displacement(settings, bounds)
    convexity = settings.ridge + 1 / settings.step_size
    smoothness = convexity + bounds.curvature
    # Of the displacement d from the start, which is at most `unit` long where it is exact; scores
    # are those of start + d.
    of_step, of_score = step_rounding(smoothness), score_rounding(facts, bounds) / n
    error = sum_rounding(facts, bounds) / n + of_step * unit
    error += of_score * (farthest + unit)
    n_steps = steps_to_reach(
        settings.tolerance * facts.neighboring.sensitivity_factor * unit / n,
        strong_convexity=convexity,
        smoothness=smoothness,
        initial_distance=unit,
        gradient_error=error,
        relative_error=(of_step + of_score) / convexity,
    )
    gradient = clipped_gradient(facts.loss, problem, bounds)

    def solve(point: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        start = point / (1 + settings.step_size * settings.ridge)
        # In terms of the displacement d from the start the quadratic part is convexity / 2 |d|^2,
        # and rounding is relative to d.
        moved = accelerated_gradient(
            lambda d: gradient(start + d) / n + convexity * d,
            np.zeros_like(start),
            n_steps,
            strong_convexity=convexity,
            smoothness=smoothness,
        )
        return start, start + moved

    return solve


def _path_release(facts: Facts, settings: AveragedADMMSettings, mu: float) -> Release:
    sensitivity = _moved(facts, settings)
    return Release(
        name=DISPLACEMENT,
        shape=(facts.n_parameters, facts.loss.n_outputs),
        sensitivities=(sensitivity,) * settings.n_iter,
        # A little more than enough, so that no rounding takes epsilon above the budget.
        noise_std=sensitivity * math.sqrt(settings.n_iter) / mu * (1 + 1e-12),
    )


def _last_release(facts: Facts, settings: AveragedADMMSettings, mu: float) -> Release:
    sensitivity = _moved(facts, settings)
    # The formula is linear in its first argument.
    most = mu / last_iterate_mu(1.0, settings.contraction, settings.n_iter)
    lam = settings.relaxation
    grid = hidden_shift(
        facts,
        unit=2 * lam * _longest_displacement(settings, _bounds(facts, settings, None)),
        # A step changes units, applies the penalty's operator once and doubles its value.
        relative_error=(8 * certified_rounding(facts, otherwise=PATH) + 4 * SUMS) / min(lam, 0.5),
        n_iter=settings.n_iter,
        inverse_noise=most / sensitivity,
    )
    ratio = most - grid
    if not ratio > grid:
        raise ValueError(
            "Got a budget so small that rounding takes up half of it, expected a larger epsilon."
            " Use guarantee='path', which rounding does not touch."
        )
    noise_std = sensitivity / ratio * (1 + 1e-12)
    spent = last_iterate_mu(sensitivity / noise_std + grid, settings.contraction, settings.n_iter)
    return Release(
        name=STATE,
        shape=(facts.n_parameters, facts.loss.n_outputs),
        sensitivities=(sensitivity,) * settings.n_iter,
        noise_std=noise_std,
        is_hidden=True,
        views=(View(observer=MODEL, guarantees=(GaussianDP(spent),)),),
    )


def _moved(facts: Facts, settings: AveragedADMMSettings) -> float:
    """How far a computed proximal step can move, in units of the longest displacement."""
    exact = facts.neighboring.sensitivity_factor / facts.n_samples
    return exact * (facts.working_rounding + 2 * settings.tolerance)
