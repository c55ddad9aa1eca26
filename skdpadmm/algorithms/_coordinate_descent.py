"""Private proximal coordinate descent with steps and clip bounds of its own for each coordinate.

Source: Mangold, Bellet, Salmon & Tommasi, "Differentially private coordinate descent for composite
empirical risk minimization" (ICML 2022), Algorithm 1: the noisy fixed-point iteration with one
block for each coordinate (Cyffers, Bellet & Basu, ICML 2023, Proposition 2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skdpadmm.algorithms._defaults import default_coordinate_steps
from skdpadmm.algorithms._knobs import (
    check_choice,
    check_seed,
    check_tail_fraction,
    tail_length,
)
from skdpadmm.losses import clip_derivative
from skdpadmm.penalties import (
    L1,
    ElasticNet,
    NoPenalty,
    Penalty,
    ProximalOperator,
    SquaredL2,
)
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Release, Solution
from skdpadmm.records import Coordinates

COORDINATE = "coordinate gradient"
# Penalties that are sums over coefficients.
SEPARABLE = (NoPenalty, L1, SquaredL2, ElasticNet)


Schedule = Literal["all", "permutation", "random"]


@dataclass(frozen=True, kw_only=True)
class CoordinateDescentSettings:
    """Constants of one run, resolved.

    Attributes
    ----------
    n_iter : int
        Passes, of as many steps as there are coordinates.
    step_size : float or tuple of float
        In units of one over the smoothness of the loss; for all coordinates, or one for each.
    clip_norm : float or tuple of float
        Bound of one coordinate of a record's gradient; for all coordinates, or one for each.
    n_averaged : int
        Passes whose last points are averaged.
    schedule : {"cyclic", "random"}
    order_seed : int
        Of the public order of the coordinates.
    """

    n_iter: int
    step_size: float | tuple[float, ...]
    clip_norm: float | tuple[float, ...]
    n_averaged: int
    schedule: Literal["cyclic", "random"]
    order_seed: int


class CoordinateDescent(BaseEstimator):
    r"""Proximal coordinate descent: one coordinate of the clipped mean gradient in each step.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` where r is a sum over coefficients. From
    :math:`w = 0`, each step takes a coordinate j of the public coordinates and computes

    .. math::

        u_j &= w_j - \eta_j \Big( \frac1n \sum_i \mathrm{clip}(\nabla_j f_i(w), C_j)
               + N(0, (s C_j)^2) \Big) \\
        w_j &\leftarrow \mathrm{prox}_{\eta_j r_j}(u_j)

    from gradients over all records. It returns the proximal step of the average over the last
    passes of the latest u. With K scores a coordinate is a row of K parameters, clipped by its
    norm.

    Parameters
    ----------
    step_size : float, sequence of float or "auto", default="auto"
        ``eta_j`` in units of one over the smoothness of the loss, which is a bound of the curvature
        along a declared feature; in [1e-100, 1e100]. A sequence has one entry for each parameter,
        the intercept last.
    clip_norm : float, sequence of float or "auto", default="auto"
        ``C_j``, in [1e-100, 1e100]. A sequence as for `step_size`. Noise grows in proportion.
    schedule : {"cyclic", "random"}, default="cyclic"
        "cyclic": every pass takes each coordinate once, in a public random order of its own.
        "random": one public random coordinate in each step. Neither order depends on data, and
        neither is a secret that the guarantee would rest on.
    tail_fraction : float, default=0.5
        In (0, 1]: share of the passes, at the end, that is averaged. Free: all of it is released.
    order_seed : int, default=0
        Seed of the public order of the coordinates; no part of the privacy.

    Notes
    -----
    **Guarantee.** Adversary "model", who sees the whole released path; unit: one record. A release
    is a coordinate of the mean gradient in units of its clip bound, which moves by at most
    ``c / n``, with c = 2 for replace-one and 1 for zero-out, given what was released before. The
    ``T = max_iter * n_parameters`` releases are GDP with ``mu = sqrt(T) c / (n s)``, which is the
    ``mu^2 = sum_k (c C_k / (n s C_k))^2`` of the sources: exact composition. It needs neither
    convexity nor a bound of the steps. What is kept beside the path are the scores, a function of
    the path and of each record alone.

    **Cost.** A step reads one column and takes the derivative of every record's loss, so a pass
    takes several tens of times as long as one of gradient descent: lower `max_iter` where X is
    large. Columns of a sparse X are copied once. It cannot be conditioned: a basis would mix the
    coordinates.

    References
    ----------
    .. [1] P. Mangold, A. Bellet, J. Salmon, M. Tommasi, "Differentially private coordinate descent
       for composite empirical risk minimization", ICML 2022, Algorithm 1.

    Examples
    --------
    >>> from skdpadmm import DPAdmmLasso
    >>> from skdpadmm.algorithms import CoordinateDescent
    >>> model = DPAdmmLasso(algorithm=CoordinateDescent(), epsilon=2.0, max_iter=20)
    >>> model.plan(n_samples=10_000, n_features=5).releases[-1].times
    120
    """

    conditionable = False
    setting = "central"
    exact = False

    def __init__(
        self,
        *,
        step_size: float | Sequence[float] | Literal["auto"] = "auto",
        clip_norm: float | Sequence[float] | Literal["auto"] = "auto",
        schedule: Literal["cyclic", "random"] = "cyclic",
        tail_fraction: float = 0.5,
        order_seed: int = 0,
    ) -> None:
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.schedule = schedule
        self.tail_fraction = tail_fraction
        self.order_seed = order_seed

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide steps, clip bounds, order and noise from public facts.

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
            Where a knob is outside its range, or the penalty is no sum over coefficients.
        """
        self.check(facts)
        mu = facts.remaining_mu(budget)
        step_size, clip_norm = default_coordinate_steps(facts, mu)
        settings = CoordinateDescentSettings(
            n_iter=facts.max_iter,
            step_size=_resolved("step_size", self.step_size, step_size, facts.n_parameters),
            clip_norm=_resolved("clip_norm", self.clip_norm, clip_norm, facts.n_parameters),
            n_averaged=tail_length(self.tail_fraction, facts.max_iter),
            schedule=self.schedule,
            order_seed=int(self.order_seed),
        )
        n_steps = facts.max_iter * facts.n_parameters
        sensitivity = (
            facts.neighboring.sensitivity_factor * facts.working_rounding / facts.n_samples
        )
        release = Release(
            name=COORDINATE,
            shape=(facts.loss.n_outputs,),
            sensitivities=(sensitivity,) * n_steps,
            # A little more than enough, so that no rounding takes epsilon above the budget.
            noise_std=sensitivity * math.sqrt(n_steps) / mu * (1 + 1e-12),
        )
        return Plan(
            algorithm="CoordinateDescent",
            facts=facts,
            budget=budget,
            settings=settings,
            releases=(*facts.preparations, release),
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
        settings: CoordinateDescentSettings = plan.settings
        loss, rows, target = plan.facts.loss, problem.rows, problem.target
        d, n_outputs = plan.facts.n_parameters, loss.n_outputs
        steps = np.broadcast_to(settings.step_size, d) / loss.smoothness
        clips = np.broadcast_to(settings.clip_norm, d)
        prox = coordinate_operators(plan.facts.penalty, steps, rows.coordinates)
        columns = [rows.columns(block) for block in range(rows.n_blocks)]
        scores = np.zeros((rows.n_samples, n_outputs) if n_outputs > 1 else rows.n_samples)
        w, u, tail = (np.zeros((d, n_outputs)) for _ in range(3))
        order = block_schedule(
            "permutation" if settings.schedule == "cyclic" else "random",
            n_blocks=d,
            n_passes=settings.n_iter,
            seed=settings.order_seed,
        )[:, 0]
        # The last step reaches the scores together with the next gradient: one pass for both.
        last, change = int(order[0]), np.zeros(n_outputs)

        def gradient(block: int) -> NDArray[np.float64]:
            part = rows.slices[block]
            if change.any():
                scores[part] += _product(columns[block](last), change, n_outputs)
            slope = loss.derivative(scores[part], target[part])
            column = columns[block](j)
            contributions = clip_derivative((column * slope.T).T, clips[j])
            return np.atleast_1d(contributions.sum(axis=0))

        for step, j in enumerate(order.tolist()):
            total = problem.engine.sum(gradient, rows.n_blocks)
            released = gate.release(COORDINATE, total / (clips[j] * rows.n_samples))
            u[j] = w[j] - steps[j] * clips[j] * released
            moved = prox[j](u[j][None])[0]
            last, change = j, moved - w[j]
            w[j] = moved
            n_done, rest = divmod(step + 1, d)
            if rest == 0:
                if n_done > settings.n_iter - settings.n_averaged:
                    tail += u / settings.n_averaged
                problem.progress(n_done)
        # One proximal step after averaging: an average of sparse vectors would not be sparse.
        parameters = np.concatenate([prox[j](tail[j][None]) for j in range(d)])
        return Solution(
            parameters=parameters,
            n_iter=settings.n_iter,
            derivative_bound=float(np.linalg.norm(clips)) / rows.typical_norm,
        )

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        if facts.unit != "record":
            raise ValueError(
                f"Got unit={facts.unit!r} for CoordinateDescent, expected 'record': gradients of"
                " records are clipped."
            )
        if facts.conditioning is not None:
            raise ValueError(
                "Got conditioning with CoordinateDescent, expected conditioning=None: a basis would"
                " mix the coordinates."
            )
        if not isinstance(facts.penalty, SEPARABLE):
            raise ValueError(
                f"Got penalty {type(facts.penalty).__name__} for CoordinateDescent, expected one of"
                f" {sorted(kind.__name__ for kind in SEPARABLE)}, which are sums over"
                " coefficients. Use GradientDescent or ConsensusADMM."
            )
        check_choice("schedule", self.schedule, ("cyclic", "random"))
        check_tail_fraction(self.tail_fraction)
        check_seed("order_seed", self.order_seed)


def coordinate_operators(
    penalty: Penalty, steps: NDArray[np.float64], coordinates: Coordinates
) -> list[ProximalOperator]:
    """Proximal operators of a separable penalty on the user's coefficients, one by one.

    Parameters
    ----------
    penalty : Penalty
        A sum over coefficients, already divided by the square of the target's scale.
    steps : ndarray of shape (n_parameters,)
        In public coordinates.
    coordinates : Coordinates

    Returns
    -------
    list of callables, of length n_parameters
        Each maps an array of shape (1, n_outputs) to another, in public coordinates.
    """

    def of_feature(step: float, scale: float) -> ProximalOperator:
        # In the user's units the Euclidean metric of public coordinates is ``1 / scale**2``.
        operator = penalty.proximal_operator(step, metric=np.array([scale**-2.0]))
        return lambda point: operator(point * scale) / scale

    scales = coordinates.coefficient_scale.tolist()
    operators = [of_feature(step, s) for step, s in zip(steps.tolist(), scales, strict=False)]
    return [*operators, _unchanged] if coordinates.fit_intercept else operators


def _unchanged(point: NDArray[np.float64]) -> NDArray[np.float64]:
    return point


def _product(
    column: NDArray[np.float64], change: NDArray[np.float64], n_outputs: int
) -> NDArray[np.float64]:
    return np.outer(column, change) if n_outputs > 1 else column * change[0]


def _resolved(
    name: str, given: object, default: float, n_parameters: int
) -> float | tuple[float, ...]:
    """A knob as one float or as one for each parameter."""
    if isinstance(given, str) and given == "auto":
        return default
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty((0, 0))
    # Beyond this range products of the two underflow, and a bound of 0 bounds nothing.
    fits = values.shape in ((), (n_parameters,)) and not isinstance(given, bool)
    if not (fits and bool(((values >= 1e-100) & (values <= 1e100)).all())):
        raise ValueError(
            f"Got {name}={given!r}, expected 'auto', a float in [1e-100, 1e100], or a sequence of"
            f" {n_parameters} of them, the intercept last. 'auto' is chosen from public facts."
        )
    return float(values) if values.ndim == 0 else tuple(values.tolist())


def block_schedule(
    schedule: Schedule, *, n_blocks: int, n_passes: int, seed: int = 0
) -> NDArray[np.intp]:
    """Which blocks each step updates; public, because it depends on nothing but its arguments.

    Parameters
    ----------
    schedule : {"all", "permutation", "random"}
        "all" blocks at once; one block after the other, in a random order that each pass draws
        anew; or one random block in each step.
    n_blocks : int
    n_passes : int
        Steps, where all blocks move at once; otherwise `n_blocks` steps each.
    seed : int, default=0
        Of a generator that only draws this order.

    Returns
    -------
    ndarray of shape (n_steps, n_updated)
        Indices of blocks.

    Raises
    ------
    ValueError
        Where the schedule is not known.

    Examples
    --------
    >>> from skdpadmm.algorithms._coordinate_descent import block_schedule
    >>> sorted(block_schedule("permutation", n_blocks=3, n_passes=1).ravel().tolist())
    [0, 1, 2]
    """
    rng = np.random.default_rng(seed)
    if schedule == "all":
        return np.tile(np.arange(n_blocks), (n_passes, 1))
    if schedule == "permutation":
        orders = [rng.permutation(n_blocks) for _ in range(n_passes)]
        return np.concatenate(orders)[:, None] if orders else np.empty((0, 1), dtype=np.intp)
    if schedule == "random":
        return rng.integers(n_blocks, size=(n_passes * n_blocks, 1))
    raise ValueError(
        f"Got schedule={schedule!r}, expected 'all', 'permutation' or 'random': which blocks move"
        " in each step."
    )
