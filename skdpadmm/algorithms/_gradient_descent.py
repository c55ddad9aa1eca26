"""Private proximal gradient descent, over the whole path or for the last iterate alone.

Sources: the noisy fixed-point iteration with one block (Cyffers, Bellet & Basu, "From Noisy
Fixed-Point Iterations to Private ADMM", ICML 2023, Proposition 1); the last iterate of a
contraction (Bok, Su & Altschuler, "Shifted interpolation for differential privacy", ICML 2024);
a single pass (Feldman, Mironov, Talwar & Thakurta, "Privacy amplification by iteration", FOCS
2018) with batches that grow (Feldman, Koren & Talwar, "Private stochastic convex optimization:
optimal rates in linear time", STOC 2020).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skdpadmm.algorithms._algorithm import check_zero_at_zero, penalty_operator
from skdpadmm.algorithms._clipped_loss import LossBounds, score_rounding
from skdpadmm.algorithms._defaults import default_descent
from skdpadmm.algorithms._knobs import (
    check_choice,
    check_seed,
    check_steps,
    check_tail_fraction,
    is_number,
    tail_length,
)
from skdpadmm.algorithms._last_iterate import (
    SLACK,
    SUMS,
    certified_rounding,
    check_smooth_steps,
    curvature_bound,
    hidden_shift,
    longest_step,
    n_features,
    open_clip,
    premises,
    state_radius,
    typical_norm,
    within,
)
from skdpadmm.losses import clip_derivative
from skdpadmm.privacy import (
    GaussianDP,
    last_iterate_mu,
    proximal_gradient_contraction,
    single_use_mu,
)
from skdpadmm.protocol import MODEL, Budget, Facts, Gate, Plan, Problem, Release, Solution, View

GRADIENT = "mean gradient"
ITERATE = "iterate"
PATH = "schedule='full' with guarantee='path'"


@dataclass(frozen=True, kw_only=True)
class GradientDescentSettings:
    """Constants of one run, resolved.

    Attributes
    ----------
    n_iter : int
        Steps.
    step_size : float
    clip_norm : float
        Bound of the norm of a record's gradient, in units of the typical norm of a row.
    momentum : float
    n_averaged : int
        Length of the averaged tail of the path.
    schedule : {"full", "cyclic"}
    guarantee : {"path", "last"}
    contraction : float
        Lipschitz constant of a step that the guarantee rests on; 1 where it rests on none.
    order_seed : int
        Of the public order of the records.
    """

    n_iter: int
    step_size: float
    clip_norm: float
    momentum: float
    n_averaged: int
    schedule: Literal["full", "cyclic"]
    guarantee: Literal["path", "last"]
    contraction: float
    order_seed: int


class GradientDescent(BaseEstimator):
    r"""Proximal gradient descent with clipped gradients and Gaussian noise.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)`. From :math:`w_0 = w_{-1} = 0`, each of K
    steps computes

    .. math::

        y &= w_k + \beta (w_k - w_{k-1}) \\
        u &= y - \eta \Big( \frac1{|B|} \sum_{i \in B} \mathrm{clip}(\nabla f_i(y), C)
             + N(0, s^2 I) \Big), \qquad w_{k+1} = \mathrm{prox}_{\eta r}(u)

    where B holds all records, or with ``schedule="cyclic"`` the k-th batch of a single pass. It
    returns :math:`\mathrm{prox}_{\eta r}` of the average of the last u.

    Parameters
    ----------
    step_size : float or "auto", default="auto"
        In the coordinates that it works in, conditioned or not; in [1e-100, 1e100]. For a guarantee
        of the last iterate at most ``2 / (smoothness * row_norm**2)``, beyond which a step can
        move two iterates apart.
    clip_norm : float or "auto", default="auto"
        Bound of the Euclidean norm of a record's gradient, in units of the typical norm of a row:
        the square root of the number of parameters, or in conditioned coordinates of the effective
        dimension. In [1e-100, 1e100].
    momentum : float or "auto", default="auto"
        Nesterov's, in [0, 1). Costs no privacy where the whole path is released, and must be 0
        elsewhere. "auto" is 0.8 in coordinates that are not conditioned and 0 in all other cases.
    tail_fraction : float or "auto", default="auto"
        In (0, 1]: share of the path, at its end, that is averaged. "auto" is a half where the whole
        path is released; elsewhere the last iterate is all there is.
    schedule : {"full", "cyclic"}, default="full"
        "full": all records in every step, `max_iter` of them. "cyclic": every record in exactly one
        of ``min(max_iter, n_samples // 2)`` steps, in a public random order. Its batches grow like
        ``1 / sqrt(steps left)``, so that all positions are protected alike. (A step still passes
        over all rows: the schedule saves noise, not time.)
    guarantee : {"auto", "path", "last"}, default="auto"
        Whether every iterate counts as released, or the final model alone. "auto" is "path" with
        the full schedule, and "last" with the cyclic one, which has no other.
    order_seed : int, default=0
        Seed of the public order of records of the cyclic schedule; no part of the privacy.

    Notes
    -----
    Unit: one record; adversary "model". Let c = 2 for replace-one and 1 for zero-out.

    **Path.** The mean gradient moves by at most ``c C / n`` given what was released before, so the
    path is GDP with ``mu = sqrt(K) c C / (n s)``: exact composition. This needs neither convexity
    nor a bound of the step.

    **Last.** Convex losses whose derivative is clipped as a number are Huberised: still convex,
    and smooth with the public constant ``L = smoothness * row_norm**2``. A step of at most 2 / L is
    then a contraction with ``c' = max(1, |1 - eta L|) / (1 + eta a)``, where a is the strong
    convexity of the penalty, 0 with an intercept or where ``scale="private"``. (A clip of the norm
    of a vector is no contraction, so with several scores the clip must not bind.) Then
    ``mu = (c C / (n s)) sqrt((1 - c'^K) (1 + c') / ((1 + c'^K) (1 - c')))``, which is that of the
    path at c' = 1.

    **Cyclic.** As for "last" with c' = 1; a record of a batch of size b which m - 1 steps follow
    has ``mu = c C / (b s sqrt(m))``. The worst position is what is claimed.

    The state of the last two passes through the gate in every step and leaves it only in the end.
    Both rest on proximal steps that move no two points apart as they are computed, which is checked
    from the declared bounds: see `Penalty.proximal_rounding`. Rounding counts as two cells of the
    gate's grid in each step, one of them for arithmetic, or as more where that can be off by more.

    References
    ----------
    .. [1] J. Bok, W. Su, J. Altschuler, "Shifted interpolation for differential privacy",
       ICML 2024, arXiv 2403.00278.
    .. [2] V. Feldman, I. Mironov, K. Talwar, A. Thakurta, "Privacy amplification by iteration",
       FOCS 2018.
    .. [3] V. Feldman, T. Koren, K. Talwar, "Private stochastic convex optimization: optimal rates
       in linear time", STOC 2020, section 3.

    Examples
    --------
    >>> from skdpadmm import DPAdmmRidge
    >>> from skdpadmm.algorithms import GradientDescent
    >>> model = DPAdmmRidge(algorithm=GradientDescent(schedule="cyclic"), epsilon=2.0)
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> plan.settings.guarantee, plan.releases[-1].times
    ('last', 100)
    """

    setting = "central"
    exact = False

    def __init__(
        self,
        *,
        step_size: float | Literal["auto"] = "auto",
        clip_norm: float | Literal["auto"] = "auto",
        momentum: float | Literal["auto"] = "auto",
        tail_fraction: float | Literal["auto"] = "auto",
        schedule: Literal["full", "cyclic"] = "full",
        guarantee: Literal["auto", "path", "last"] = "auto",
        order_seed: int = 0,
    ) -> None:
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.momentum = momentum
        self.tail_fraction = tail_fraction
        self.schedule = schedule
        self.guarantee = guarantee
        self.order_seed = order_seed

    @property
    def conditionable(self) -> bool:
        """Whether it works in any basis: not where curvature must have a public bound."""
        return not self._is_hidden

    @property
    def _is_hidden(self) -> bool:
        """Whether only the last iterate is seen."""
        return self.schedule == "cyclic" or self.guarantee == "last"

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
                f"Got unit={facts.unit!r} for GradientDescent, expected 'record': gradients of"
                " records are clipped."
            )
        if self._is_hidden and facts.conditioning is not None:
            raise ValueError(
                "Got a guarantee of the last iterate with conditioning, expected conditioning=None:"
                " the curvature has no useful bound in a basis that depends on data."
            )
        if self._is_hidden:
            check_zero_at_zero(facts.penalty, n_features(facts))
        mu = facts.remaining_mu(budget)
        settings = self._settings(facts, mu)
        plan_release = {
            ("full", "path"): _path_release,
            ("full", "last"): _last_release,
            ("cyclic", "last"): _cyclic_release,
        }[settings.schedule, settings.guarantee]
        return Plan(
            algorithm="GradientDescent",
            facts=facts,
            budget=budget,
            settings=settings,
            releases=(*facts.preparations, plan_release(facts, settings, mu)),
            assumptions=premises(facts) if self._is_hidden else (),
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
        settings: GradientDescentSettings = plan.settings
        loss, rows, target = plan.facts.loss, problem.rows, problem.target
        clip_norm = settings.clip_norm * rows.clip_unit
        # Iterates and steps in units of the longest step that clipped gradients can make.
        unit = settings.step_size * clip_norm
        prox = penalty_operator(plan.facts.penalty, settings.step_size, rows)
        shape = (plan.facts.n_parameters, loss.n_outputs)
        cyclic, hidden = settings.schedule == "cyclic", settings.guarantee == "last"
        sizes = batch_sizes(rows.n_samples, settings)
        step_of = batch_order(sizes, settings.order_seed) if cyclic else None
        noise_std = plan.releases[-1].noise_std
        radius = unit * state_radius(settings.n_iter, noise_std, math.prod(shape))
        with np.errstate(divide="ignore"):
            slope_bound = clip_norm / np.sqrt(rows.squared_norm)
        w = previous = tail = np.zeros(shape)

        def gradient(block: int) -> NDArray[np.float64]:
            part = rows.slices[block]
            slope = loss.derivative(rows.scores(block, prepared), target[part])
            slope = clip_derivative(slope, slope_bound[part])
            if step_of is not None:
                slope[step_of[part] != k] = 0.0
            return rows.adjoint(block, slope)

        for k in range(settings.n_iter):
            point = w + settings.momentum * (w - previous)
            prepared = rows.prepare(point if loss.n_outputs > 1 else point[:, 0])
            total = rows.collect(problem.engine.sum(gradient, rows.n_blocks)).reshape(shape)
            moved = total / (clip_norm * sizes[k])
            if hidden:
                # The iterate itself takes the noise and the rounding of the gate: with a noisy
                # gradient, what is left of the iterate below the grid would stay without any.
                u = within(radius, unit * gate.release(ITERATE, point / unit - moved))
            else:
                u = point - unit * gate.release(GRADIENT, moved)
            previous, w = w, rows.from_coordinates(prox(u))
            if k >= settings.n_iter - settings.n_averaged:
                tail = tail + u / settings.n_averaged
            problem.progress(k + 1)
        # One proximal step after averaging: an average of sparse vectors would not be sparse.
        return Solution(
            parameters=prox(tail),
            n_iter=settings.n_iter,
            derivative_bound=clip_norm / rows.typical_norm,
        )

    def _settings(self, facts: Facts, mu: float) -> GradientDescentSettings:
        hidden = self._is_hidden
        n_iter = facts.max_iter
        if self.schedule == "cyclic":
            n_iter = max(1, min(n_iter, facts.n_samples // 2))
        fixed = 0.0 if hidden else None if self.momentum == "auto" else float(self.momentum)
        step_size, clip_norm, momentum = default_descent(facts, mu, n_iter, momentum=fixed)
        if hidden:
            # Longer steps need not contract; shorter ones always do.
            step_size = min(step_size, longest_step(facts))
            if facts.loss.n_outputs > 1:
                clip_norm = open_clip(facts)
        share = self.tail_fraction
        if share == "auto":
            share = 0.5
        settings = GradientDescentSettings(
            n_iter=n_iter,
            step_size=step_size if self.step_size == "auto" else float(self.step_size),
            clip_norm=clip_norm if self.clip_norm == "auto" else float(self.clip_norm),
            momentum=momentum,
            n_averaged=1 if hidden else tail_length(share, n_iter),
            schedule=self.schedule,
            guarantee="last" if hidden else "path",
            contraction=1.0,
            order_seed=int(self.order_seed),
        )
        if not hidden:
            return settings
        contraction = _certified_contraction(facts, settings)
        return replace(settings, contraction=contraction if self.schedule == "full" else 1.0)

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_steps(self.step_size, self.clip_norm)
        check_tail_fraction(self.tail_fraction, auto=True)
        check_choice("schedule", self.schedule, ("full", "cyclic"))
        check_choice("guarantee", self.guarantee, ("auto", "path", "last"))
        if self.schedule == "cyclic" and self.guarantee == "path":
            raise ValueError(
                "Got guarantee='path' with schedule='cyclic', expected 'last': what hides a record"
                " of a single pass are the steps after it, as long as nobody sees them."
            )
        momentum, share = self.momentum, self.tail_fraction
        if momentum != "auto" and not (is_number(momentum) and 0 <= float(momentum) < 1):
            raise ValueError(f"Got momentum={momentum!r}, expected 'auto' or a float in [0, 1).")
        if self._is_hidden and not (momentum in ("auto", 0) and share == "auto"):
            raise ValueError(
                f"Got momentum={momentum!r} and tail_fraction={share!r} with a guarantee of the"
                " last iterate, expected momentum=0 and tail_fraction='auto': a step with momentum"
                " is no contraction, and an average is not the last iterate. Use guarantee='path'."
            )
        check_seed("order_seed", self.order_seed)


def batch_sizes(n_samples: int, settings: GradientDescentSettings) -> NDArray[np.intp]:
    """Records in each step, from public facts.

    A record with m steps left, its own included, is hidden by the noise of m steps: sizes in
    proportion to ``1 / sqrt(m)`` protect all records alike. These are the integers whose least
    protected record is protected best.

    Parameters
    ----------
    n_samples : int
    settings : GradientDescentSettings

    Returns
    -------
    ndarray of shape (n_iter,)
    """
    if settings.schedule == "full":
        return np.full(settings.n_iter, n_samples)
    shares = 1.0 / np.sqrt(np.arange(settings.n_iter, 0, -1))

    def sizes(factor: float) -> NDArray[np.intp]:
        return np.maximum(np.ceil(factor * shares), 1.0).astype(np.intp)

    low, high = 0.0, float(n_samples + 1)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sizes(middle).sum() <= n_samples else (low, middle)
    largest = sizes(low)
    # Fewer records are left over than there are steps.
    largest[settings.n_iter - (n_samples - int(largest.sum())) :] += 1
    return largest


def batch_order(sizes: NDArray[np.intp], seed: int) -> NDArray[np.intp]:
    """The step in which each record is used, by a public permutation of the positions.

    Parameters
    ----------
    sizes : ndarray of shape (n_iter,)
        Records in each step.
    seed : int

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    in_turn = np.repeat(np.arange(len(sizes)), sizes)
    return np.random.default_rng(seed).permutation(in_turn)


def _path_release(facts: Facts, settings: GradientDescentSettings, mu: float) -> Release:
    sensitivity = _moved(facts) / facts.n_samples
    return Release(
        name=GRADIENT,
        shape=(facts.n_parameters, facts.loss.n_outputs),
        sensitivities=(sensitivity,) * settings.n_iter,
        # A little more than enough, so that no rounding takes epsilon above the budget.
        noise_std=sensitivity * math.sqrt(settings.n_iter) / mu * (1 + 1e-12),
    )


def _last_release(facts: Facts, settings: GradientDescentSettings, mu: float) -> Release:
    sensitivity = _moved(facts) / facts.n_samples
    # The formula is linear in its first argument.
    amplified = last_iterate_mu(1.0, settings.contraction, settings.n_iter)
    shift = _shift(facts, settings, mu / amplified / sensitivity)
    noise_std = sensitivity / _enough(mu / amplified - shift, mu / amplified) * (1 + 1e-12)
    ratio = sensitivity / noise_std + shift
    guarantee = GaussianDP(last_iterate_mu(ratio, settings.contraction, settings.n_iter))
    return Release(
        name=ITERATE,
        shape=(facts.n_parameters, facts.loss.n_outputs),
        sensitivities=(sensitivity,) * settings.n_iter,
        noise_std=noise_std,
        is_hidden=True,
        views=(View(observer=MODEL, guarantees=(guarantee,)),),
    )


def _cyclic_release(facts: Facts, settings: GradientDescentSettings, mu: float) -> Release:
    sensitivities = _moved(facts) / batch_sizes(facts.n_samples, settings)
    by_position = single_use_mu(1.0, settings.n_iter) * sensitivities
    # A record's own shift spreads over the steps that follow, rounding is met in every step: by the
    # triangle inequality in the space of steps the two add up.
    shift = _shift(facts, settings, mu / float(by_position.max()))
    rounding = math.sqrt(settings.n_iter) * shift
    noise_std = float(by_position.max()) / _enough(mu - rounding, mu) * (1 + 1e-12)
    guarantee = GaussianDP(float(by_position.max()) / noise_std + rounding)
    return Release(
        name=ITERATE,
        shape=(facts.n_parameters, facts.loss.n_outputs),
        sensitivities=tuple(sensitivities.tolist()),
        noise_std=noise_std,
        is_hidden=True,
        views=(View(observer=MODEL, guarantees=(guarantee,)),),
    )


def _moved(facts: Facts) -> float:
    """How far a sum of clipped gradients can move, in units of the clip bound."""
    return facts.neighboring.sensitivity_factor * facts.working_rounding


def _shift(facts: Facts, settings: GradientDescentSettings, inverse_noise: float) -> float:
    """How far rounding can move two iterates apart in a step, in noise standard deviations."""
    bounds = LossBounds(
        row_norm=facts.row_norm,
        gradient_norm=settings.clip_norm * typical_norm(facts),
        curvature=curvature_bound(facts),
    )
    of_scores = settings.step_size * score_rounding(facts, bounds) / facts.n_samples
    return hidden_shift(
        facts,
        # The proximal step counts the point and its image, both as long as a state.
        unit=settings.step_size * bounds.gradient_norm,
        relative_error=2 * certified_rounding(facts, otherwise=PATH) + of_scores + SUMS,
        n_iter=settings.n_iter,
        inverse_noise=inverse_noise,
    )


def _enough(room: float, of: float) -> float:
    if not room > of / 2:
        raise ValueError(
            "Got a budget so small that rounding takes up half of it, expected a larger epsilon or"
            f" fewer steps. Use {PATH}, which rounding does not touch."
        )
    return room


def _certified_contraction(facts: Facts, settings: GradientDescentSettings) -> float:
    """A Lipschitz constant of a step, for every data set."""
    check_smooth_steps(facts, settings.step_size, settings.clip_norm, otherwise="guarantee='path'")
    # Units that are found privately are not known yet.
    curvature = facts.penalty_curvature if facts.scaling is None else 0.0
    return proximal_gradient_contraction(
        settings.step_size, 0.0, curvature_bound(facts), curvature * (1 - SLACK)
    )
