"""Gradient ADMM: one gradient of one record per step, amplified by the steps that follow.

Source: Chan, Xie & Zhao, "Privacy Amplification by Iteration for ADMM with (Strongly) Convex
Objective Functions", Algorithm 1 with noise on x, with the constants that are derived in the user
guide in place of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skdpadmm.algorithms._certified_solves import typical_norm
from skdpadmm.algorithms._compiled_steps import (
    CompiledSteps,
    loss_code,
    require_numba,
)
from skdpadmm.algorithms._defaults import default_stochastic_descent
from skdpadmm.algorithms._gradient_admm_steps import (
    GradientADMMState,
    NoisySteps,
    full_gradient_optimum,
    gradient_admm_step,
)
from skdpadmm.algorithms._knobs import (
    check_choice,
    check_count,
    check_flag,
    check_range,
    check_seed,
    check_steps,
)
from skdpadmm.algorithms._last_iterate import (
    LONGEST_DRAW,
    ROOM,
    SUMS,
    check_smooth_steps,
    curvature_bound,
    longest_step,
    non_expansive,
    open_clip,
)
from skdpadmm.algorithms._record_schedule import NOBODY, RecordSchedule, calibrated
from skdpadmm.algorithms._splitting import (
    splitting_facts,
    splitting_of,
    thresholds,
    y_rounding,
)
from skdpadmm.noise import GRID_CELL, grid_cell
from skdpadmm.penalties import LinearConstraint, NoPenalty
from skdpadmm.privacy import (
    AmplifiedIteration,
    GaussianDP,
    Guarantee,
    amplification_constant,
    contribution_mu,
    mixture_of_slots,
)
from skdpadmm.protocol import (
    MODEL,
    Budget,
    Facts,
    Gate,
    Plan,
    Problem,
    Release,
    Solution,
    View,
    not_private,
)
from skdpadmm.records import Rows

ITERATE = "iterate"
NOISY_GRADIENT = "gradient"
OPTIMUM = "optimum"
SCHEDULES = ("cyclic", "sampling", "stopping", "stream")
# Steps of a default run, beyond which it makes no further passes: a loop of some seconds.
LONGEST_RUN = 50_000
# Rows are copied in the order of the schedule, so many entries at a time.
CHUNK_ENTRIES = 2**18
# Offsets of a constraint, in standard deviations of the noise: floats have 52 bits, and 20 of them
# resolve the noise.
LARGEST_OFFSET = 2.0**26
# The limit without privacy.
MOST_EXACT_STEPS, TOLERANCE = 200_000, 1e-13


@dataclass(frozen=True, kw_only=True)
class GradientADMMSettings:
    """Constants of one run, resolved.

    Attributes
    ----------
    step_size, penalty_weight : float
        The paper's eta and beta.
    displacement : float
        How far a gradient of norm one moves x, at most.
    clip_norm : float
        Bound of the norm of a record's gradient.
    schedule : RecordSchedule
    noise_at : {"x", "gradient"}
    average : bool
    amplification : float
        The constant C* of the theorem; infinite where it does not apply.
    constraint : str or None
        Fingerprint of the user's constraint: with another one the noise is another.
    """

    step_size: float
    penalty_weight: float
    displacement: float
    clip_norm: float
    schedule: RecordSchedule
    noise_at: Literal["x", "gradient"]
    average: bool
    amplification: float
    constraint: str | None


@dataclass(frozen=True, kw_only=True)
class ExactSettings:
    """Constants of the limit without privacy."""

    max_iter: int
    tolerance: float


class GradientADMM(BaseEstimator):
    r"""Gradient ADMM with privacy amplified by iteration.

    Solves :math:`\min_{x, y} \frac1n \sum_i f_i(x) + g(y)` subject to :math:`A x + B y = c`. Each
    step takes one record i, and from the noisy x and the multipliers :math:`\lambda` makes

    .. math::

        y &= \arg\min_y g(y) - \langle \lambda - \beta A x, B y \rangle
             + \tfrac{\beta}{2} \|B y - c\|^2 \\
        \lambda^+ &= \lambda - \beta (A x + B y - c) \\
        x^+ &= (I + \eta \beta A^T A)^{-1} \big(x - \eta (\mathrm{clip}(\nabla f_i(x), C)
             + A^T (\beta (B y - c) - \lambda^+))\big) + N(0, \sigma^2 I)

    Noise is added to x alone: the other two are functions of it.

    Parameters
    ----------
    step_size : float or "auto", default="auto"
        The paper's eta, in [1e-100, 1e100]. For a guarantee of the last iterate at most
        ``2 / (smoothness * row_norm**2)``.
    penalty_weight : float or "auto", default="auto"
        The paper's beta, in [1e-100, 1e100]. "auto" makes
        ``step_size * penalty_weight * s_min * s_max`` one, where these are the smallest and the
        largest singular value of A.
    clip_norm : float or "auto", default="auto"
        Bound of the Euclidean norm of a record's gradient, in units of the typical norm of a row.
        The derivative of the loss is clipped as a number, so that the clipped loss is convex and
        smooth; of several scores it must not bind where the last iterate alone is seen. In
        [1e-100, 1e100].
    passes : int or "auto", default="auto"
        Steps over the number of records, with ``schedule="cyclic"`` or "sampling". "auto" makes as
        many as at most double the squared cost of one pass and take at most 50,000 steps, and one
        where the path is released; never more than `max_iter`.
    schedule : {"cyclic", "sampling", "stopping", "stream"}, default="cyclic"
        "cyclic": every record once in each pass, always in the same order. "sampling": records are
        drawn with replacement, by a public seed; a draw of a record beyond its `cap` makes a step
        of noise alone. "stopping": one pass that ends at a secret random step in its second half.
        "stream": every record once as it arrives, however many there are; only this one can
        `partial_fit`.
    order : {"auto", "random", "arrival"}, default="auto"
        Which record takes which place of the schedule: drawn at random and kept secret, or as in
        the data. "auto" is "random" where the schedule is "cyclic" or "sampling".
    cap : int or "auto", default="auto"
        With ``schedule="sampling"``: how often a record is used at most. "auto" is three times
        `passes`. To be left at "auto" elsewhere.
    release : {"auto", "last", "path"}, default="auto"
        What may be seen. "last": the final state alone, for which the amplified guarantees hold.
        "path": every iterate. "auto" is "path" for a stream and "last" elsewhere.
    average : bool or "auto", default="auto"
        Whether the answer is made of a weighted average of the iterates, most of it of late ones.
        Possible where the path is released; an average is not the last iterate. "auto": wherever
        it is possible, but for streams, whose last iterate has amplified figures once they end.
    noise_at : {"x", "gradient"}, default="x"
        Where noise is added. At the gradient only the path has a guarantee.
    constraint : LinearConstraint or None, default=None
        ``A w + B y = c`` for the coefficients w without the intercept. It changes the problem: the
        penalty is then that of y. None: y are the coefficients, or the linear image of them that is
        penalised.
    horizon : int, default=10000
        With ``schedule="stream"``: how many records are expected, for the default step and for
        penalties that are spread over the records, as that of ridge regression. Within a factor of
        three it matters little; far too long a horizon learns too slowly, far too short a one ends
        in noise.
    order_seed : int, default=0
        Public seed of ``schedule="sampling"``; no part of the privacy.
    compiled : bool, default=False
        Whether the loop is compiled by numba, from the extra ``skdpadmm[fast]``; for one score and
        a penalty of single coefficients. The result is the same to 1e-12.

    Notes
    -----
    Unit: one record; adversary "model". Let :math:`\Delta = c C` with c = 2 for replace-one and 1
    for zero-out, and :math:`\mu_1 = \eta \Delta / \sigma`, divided by :math:`1 + \kappa` where A is
    square, as it is unless a linear image is penalised. (With noise at the gradient
    :math:`\Delta / \sigma`.)

    **Path.** A record that is used E times has GDP :math:`\sqrt{E} \mu_1`, also if every iterate is
    seen. This needs no bound of the step.

    **Last.** A record whose contribution is the first of m steps, its own included, has

    .. math:: \mu = \mu_1 \sqrt{\min(1, C^* / \lfloor m / 2 \rfloor)}, \quad
              C^* = \frac{2 + \kappa + \sqrt{\kappa^2 + 4}}{2 \kappa}, \quad
              \kappa = \eta \beta s_{\min}(A)^2,

    and contributions with m_1, m_2, ... steps from each to the next add their squares. (The user
    guide derives it; the paper has :math:`\max(2, 3 / \kappa) (1 + \kappa s_{\max}^2 /
    s_{\min}^2)`.) Conditions: convex losses that are smooth with a public constant, a step of at
    most two over it, nobody sees an iterate before the last, and nobody knows the noise.

    **Positions.** The last records of a pass have nothing behind them: theirs is :math:`\mu_1`.
    Where the order is secret and random, delta is the mean over positions,
    :math:`\delta(\epsilon) = \frac1n \sum_l \delta_l(\epsilon)`. That is what the budget is
    spent on; the report has the worst position beside it.

    Iterates are rounded to a public grid before noise is added, which counts in every figure. So do
    other rounding errors of steps that nobody sees, where they are more than a 64th of that. The
    step of y has to be a formula for each variable or group there.

    References
    ----------
    .. [1] T.-H. H. Chan, H. Xie, M. Zhao, "Privacy Amplification by Iteration for ADMM with
       (Strongly) Convex Objective Functions", ITCS 2024.

    Examples
    --------
    A stream, in three pieces:

    >>> import numpy as np
    >>> from skdpadmm import DPAdmmLasso
    >>> from skdpadmm.algorithms import GradientADMM
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(6000, 3))
    >>> y = X @ [1.0, -1.0, 0.0] + 0.1 * rng.standard_normal(6000)
    >>> stream = GradientADMM(schedule="stream", horizon=6000)
    >>> model = DPAdmmLasso(alpha=0.01, epsilon=2.0, feature_bounds=(-1, 1),
    ...     target_bounds=(-3, 3), algorithm=stream, random_state=0)
    >>> for rows in np.split(np.arange(6000), 3):
    ...     model = model.partial_fit(X[rows], y[rows])
    >>> model.n_samples_seen_, model.n_iter_, model.score(X, y) > 0.8
    (6000, 6000, True)
    >>> round(model.privacy_.epsilon(), 3)  # against whoever saw every state
    2.0
    >>> for record, guarantee in model.finalize().privacy_.if_unseen:
    ...     print(f"{guarantee.epsilon(model.delta):.3f}  {record}")
    2.000  the last record, the worst position
    0.958  a record at a random position that is secret
    0.043  the first record, the best position

    Several passes over records at hand:

    >>> model = DPAdmmLasso(algorithm=GradientADMM(passes=4), epsilon=2.0)
    >>> plan = model.plan(n_samples=1000, n_features=5)
    >>> plan.settings.schedule.n_passes, plan.releases[-1].times
    (4, 4000)
    """

    setting = "central"
    conditionable = False

    def __init__(
        self,
        *,
        step_size: float | Literal["auto"] = "auto",
        penalty_weight: float | Literal["auto"] = "auto",
        clip_norm: float | Literal["auto"] = "auto",
        passes: int | Literal["auto"] = "auto",
        schedule: Literal["cyclic", "sampling", "stopping", "stream"] = "cyclic",
        order: Literal["auto", "random", "arrival"] = "auto",
        cap: int | Literal["auto"] = "auto",
        release: Literal["auto", "last", "path"] = "auto",
        average: bool | Literal["auto"] = "auto",
        noise_at: Literal["x", "gradient"] = "x",
        constraint: LinearConstraint | None = None,
        horizon: int = 10_000,
        order_seed: int = 0,
        compiled: bool = False,
    ) -> None:
        self.step_size = step_size
        self.penalty_weight = penalty_weight
        self.clip_norm = clip_norm
        self.passes = passes
        self.schedule = schedule
        self.order = order
        self.cap = cap
        self.release = release
        self.average = average
        self.noise_at = noise_at
        self.constraint = constraint
        self.horizon = horizon
        self.order_seed = order_seed
        self.compiled = compiled

    @property
    def exact(self) -> bool:
        """Whether it serves ``epsilon=inf`` by itself: nothing else knows a user's constraint."""
        return self.constraint is not None

    @property
    def is_stream(self) -> bool:
        """Whether records are used as they arrive."""
        return bool(self.schedule == "stream")

    @property
    def n_expected(self) -> int:
        """How many records of a stream are expected."""
        check_count("horizon", self.horizon)
        return int(self.horizon)

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_steps(self.step_size, self.clip_norm)
        check_range("penalty_weight", self.penalty_weight, 1e-100, 1e100)
        if self.passes != "auto":
            check_count("passes", self.passes)
        if self.cap != "auto":
            check_count("cap", self.cap)
        check_count("horizon", self.horizon)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("order", self.order, ("auto", "random", "arrival"))
        check_choice("release", self.release, ("auto", "last", "path"))
        check_choice("noise_at", self.noise_at, ("x", "gradient"))
        if self.cap != "auto" and self.schedule != "sampling":
            raise ValueError(
                f"Got cap={self.cap!r} with schedule={self.schedule!r}, expected 'auto': each"
                " record is used once in a pass. Use schedule='sampling'."
            )
        check_seed("order_seed", self.order_seed)
        check_flag("average", self.average, auto=True)
        check_flag("compiled", self.compiled)
        if self.constraint is not None and not isinstance(self.constraint, LinearConstraint):
            raise TypeError(
                f"Got constraint={self.constraint!r}, expected a LinearConstraint or None."
            )
        offset = None if self.constraint is None else self.constraint.c
        if offset is not None and offset.ndim == 2 and offset.shape[1] != facts.loss.n_outputs:
            raise ValueError(
                f"Got c of shape {offset.shape} for {facts.loss.n_outputs} scores, expected one"
                " column for all of them, or one for each. Give c of shape (m,)."
            )
        hidden = self._release == "last"
        if hidden and not isinstance(self.average, str) and self.average:
            raise ValueError(
                "Got average=True with release='last', expected release='path': an average of"
                " iterates is not the last one, and the amplified guarantees are of that one alone."
            )
        if self.noise_at == "gradient" and hidden:
            raise ValueError(
                "Got noise_at='gradient' with release='last', expected noise_at='x': amplification"
                " is proven for noise on x alone. Use release='path'."
            )
        if self.schedule in ("stopping", "stream") and (
            self._order != "arrival" or self.passes not in ("auto", 1)
        ):
            raise ValueError(
                f"Got order={self.order!r} and passes={self.passes!r} with"
                f" schedule={self.schedule!r}, expected 'arrival' and 1: records are used once, in"
                " the order of the data. Use schedule='cyclic'."
            )
        if self.is_stream and hidden:
            raise ValueError(
                "Got release='last' with schedule='stream', expected 'path': whoever reads coef_ or"
                " a pickle in between sees it. Once a stream has ended, `finalize` says what holds"
                " if nobody did."
            )
        if self.schedule == "stopping" and not hidden:
            raise ValueError(
                "Got release='path' with schedule='stopping', expected 'last': whoever sees the"
                " path sees where it stops."
            )
        assert facts.coordinates is not None
        splitting_facts(facts.penalty, facts.coordinates, self.constraint)
        if self.compiled:
            require_numba()
            code = loss_code(facts.loss)
            single = thresholds(facts.penalty, facts.coordinates, 1.0) is not None
            if self.constraint is not None or not (single and code is not None):
                raise ValueError(
                    f"Got compiled=True with {facts.loss!r} and {facts.penalty!r}, expected one"
                    " score and a penalty of single coefficients. Use compiled=False."
                )

    @property
    def _release(self) -> Literal["last", "path"]:
        if self.release == "auto":
            return "path" if self.is_stream else "last"
        return self.release

    @property
    def _order(self) -> Literal["random", "arrival"]:
        if self.order == "auto":
            return "arrival" if self.schedule in ("stopping", "stream") else "random"
        return self.order

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide steps, schedule and noise from public facts.

        Parameters
        ----------
        facts : Facts
        budget : Budget

        Returns
        -------
        Plan

        Raises
        ------
        ValueError
            Where a knob is outside its range, or outside the range of its theorem.
        """
        self.check(facts)
        if not budget.is_private:
            return self._exact_plan(facts, budget)
        if facts.unit != "record":
            raise ValueError(
                f"Got unit={facts.unit!r} for GradientADMM, expected 'record': gradients of"
                " records are clipped."
            )
        if facts.conditioning is not None:
            raise ValueError(
                "Got GradientADMM with conditioning='private', expected None: the curvature has no"
                " useful bound in a basis that depends on data."
            )
        if facts.scaling is not None and self.is_stream:
            raise ValueError(
                "Got scale='private' with schedule='stream', expected scale=None: there are no"
                " records to find units with in advance. Declare feature_bounds."
            )
        if facts.scaling is not None and not self._splits_coefficients(facts):
            raise ValueError(
                "Got scale='private' with a penalty of a linear image, expected scale=None: its"
                " singular values have to be known in advance. Declare feature_bounds."
            )
        settings = self._settings(facts, facts.remaining_mu(budget))
        path = self._noisy_path(facts, budget, settings)
        if self.constraint is not None and self.constraint.c is not None:
            length = 1.0 if self.noise_at == "x" else settings.displacement
            _check_resolution(self.constraint, facts, length * path.noise_std)
        return Plan(
            algorithm="GradientADMM",
            facts=facts,
            budget=budget,
            settings=settings,
            releases=(*facts.preparations, path),
            assumptions=(
                *settings.schedule.assumptions(),
                *((non_expansive(facts),) if settings.schedule.is_hidden else ()),
            ),
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Take the planned steps; every number in the solution has passed the gate.

        Parameters
        ----------
        plan : Plan
        problem : Problem
        gate : Gate

        Returns
        -------
        Solution
        """
        if not plan.budget.is_private:
            return self._optimum(plan, problem, gate)
        settings: GradientADMMSettings = plan.settings
        records, end = settings.schedule.drawn(gate)
        # What follows a secret end is done as well and forgotten, so that nothing tells it: no
        # clock, no progress bar, no count.
        told = _nobody if settings.schedule.hides_its_end else problem.progress
        start = self.start(plan, problem)
        state = self._through(plan, problem, gate, start, records[:end], told)
        self._through(plan, problem, gate, state, records[end:], told)
        problem.progress(len(records))
        return replace(self.solution(plan, problem, state), n_iter=len(records))

    def start(self, plan: Plan, problem: Problem) -> GradientADMMState:
        """The public state before any record."""
        n_outputs = plan.facts.loss.n_outputs
        splitting = splitting_of(plan.facts.penalty, problem.rows, self.constraint)
        x = np.zeros((plan.facts.n_parameters, n_outputs))
        multipliers = np.zeros((splitting.n_constraints, n_outputs))
        settings = plan.settings
        averages = isinstance(settings, GradientADMMSettings) and settings.average
        return GradientADMMState(
            x=x,
            multipliers=multipliers,
            mean_x=x if averages else x[:0],
            mean_multipliers=multipliers if averages else multipliers[:0],
        )

    def arrive(
        self, plan: Plan, problem: Problem, gate: Gate, state: GradientADMMState
    ) -> GradientADMMState:
        """Take a step for each record of a stream that has arrived, in their order.

        Parameters
        ----------
        plan : Plan
            Of a stream.
        problem : Problem
            The records that are new.
        gate : Gate
            Which knows how many there were before.
        state : GradientADMMState
            Where those have led to.

        Returns
        -------
        GradientADMMState
        """
        records = np.arange(problem.rows.n_samples)
        return self._through(plan, problem, gate, state, records, problem.progress)

    def _through(
        self,
        plan: Plan,
        problem: Problem,
        gate: Gate,
        state: GradientADMMState,
        records: NDArray[np.intp],
        told: Callable[[int], None],
    ) -> GradientADMMState:
        """Take a step for each of some records, or without one where there is `NOBODY`."""
        settings: GradientADMMSettings = plan.settings
        rows, path = problem.rows, plan.releases[-1]
        steps = self._steps(plan, rows)
        with np.errstate(divide="ignore"):
            bound = settings.clip_norm / np.sqrt(rows.squared_norm)
        size = max(CHUNK_ENTRIES // plan.facts.n_parameters, 1)
        for first in range(0, len(records), size):
            some = records[first : first + size]
            used = np.where(some == NOBODY, 0, some)
            state = steps.advance(
                state,
                seen_in_order(rows, used),
                problem.target[used],
                np.where(some == NOBODY, 0.0, bound[used]),
                gate.path_noise(path.name, len(some)),
            )
            told(state.n_steps)
        return state

    def solution(self, plan: Plan, problem: Problem, state: GradientADMMState) -> Solution:
        """What a state says: the part that the penalty made, or the x where it made another.

        Parameters
        ----------
        plan : Plan
        problem : Problem
            Only what is public about its rows is used.
        state : GradientADMMState

        Returns
        -------
        Solution
        """
        settings: GradientADMMSettings = plan.settings
        x, multipliers = state.x, state.multipliers
        if settings.average:
            x, multipliers = state.mean_x, state.mean_multipliers
        splitting = splitting_of(plan.facts.penalty, problem.rows, self.constraint)
        step = gradient_admm_step(splitting, settings.step_size, settings.penalty_weight)
        return Solution(
            parameters=splitting.solution(x, step.penalised_part(x, multipliers)),
            n_iter=state.n_steps,
            derivative_bound=settings.clip_norm / problem.rows.typical_norm,
        )

    def unseen_guarantees(self, plan: Plan, n_samples: int) -> tuple[tuple[str, Guarantee], ...]:
        """What holds for records of a stream so far, if nobody saw a state before the last.

        Parameters
        ----------
        plan : Plan
            Of a stream.
        n_samples : int
            How many records there were.

        Returns
        -------
        tuple of (str, Guarantee)
            A kind of record and its guarantee; empty where no theorem applies: for averages, noise
            at the gradient, and steps that can move two iterates apart.
        """
        settings: GradientADMMSettings = plan.settings
        facts = plan.facts
        contracts = settings.step_size <= 2.0 / curvature_bound(facts)
        # To clip a vector is no contraction, unless the clip never binds.
        if facts.loss.n_outputs > 1 and settings.clip_norm < open_clip(facts) * typical_norm(facts):
            contracts = False
        contracts = contracts and self._has_exact_step(facts)
        if settings.average or settings.noise_at != "x" or not contracts:
            return ()
        path = plan.releases[-1]
        ratio = path.sensitivities[0] / path.noise_std
        shift = self._shift(facts, settings, n_samples, ratio)
        made = AmplifiedIteration(ratio, settings.amplification, shift)
        mu = made.slots(np.arange(n_samples), n_samples)
        return (
            ("the last record, the worst position", GaussianDP(float(mu.max()))),
            ("a record at a random position that is secret", mixture_of_slots(mu)),
            ("the first record, the best position", made.first(n_samples)),
        )

    def _has_exact_step(self, facts: Facts) -> bool:
        """Whether the step of y is off by a few units in the last place and no more.

        Rounding errors of x count as the grid does, those of a step that iterates nowhere.
        """
        return y_rounding(facts, self.constraint) <= NoPenalty().proximal_rounding(np.ones(1))

    def _check_exact_step(self, facts: Facts) -> None:
        if not self._has_exact_step(facts):
            raise ValueError(
                f"Got {facts.penalty!r} with constraint={self.constraint!r} and release='last',"
                " expected a penalty and a diagonal B'B for which the step of y is a formula for"
                " each variable or group: what another one leaves could tell iterates apart. Use"
                " release='path'."
            )

    def _noisy_path(self, facts: Facts, budget: Budget, settings: GradientADMMSettings) -> Release:
        """The noise of all steps, from the theorem that fits what is seen."""
        schedule, at_x = settings.schedule, settings.noise_at == "x"
        # In a step's own norm: of x, or of a gradient.
        moved = facts.neighboring.sensitivity_factor * facts.working_rounding * settings.clip_norm
        moved *= settings.displacement if at_x else 1.0
        made = calibrated(schedule, facts, budget, settings.amplification, _grid_shift(facts))
        if schedule.is_hidden and schedule.n_steps is not None:
            # More rounding takes more noise, so this ratio of signal and noise is none too small.
            shift = self._shift(facts, settings, schedule.n_steps, made.ratio)
            if shift > made.grid_shift:
                made = calibrated(schedule, facts, budget, settings.amplification, shift)
        guarantee, worst_case = schedule.guarantees(made)
        return Release(
            name=ITERATE if at_x else NOISY_GRADIENT,
            shape=(facts.n_parameters, facts.loss.n_outputs),
            sensitivities=(moved,),
            noise_std=moved / made.ratio,
            door="path_noise",
            repeats=schedule.n_steps,
            views=(View(observer=MODEL, guarantees=(guarantee,), worst_cases=(worst_case,)),),
            is_hidden=schedule.is_hidden,
        )

    def _shift(
        self, facts: Facts, settings: GradientADMMSettings, n_steps: int, ratio: float
    ) -> float:
        """How far rounding can move two iterates apart in a step, in noise standard deviations.

        Beside the grid, rounding errors of arithmetic count where they can be more than a small
        part of a cell. Steps move no two states apart, so a state is about as long as a random walk
        with the drift of the gradients.

        Parameters
        ----------
        facts : Facts
        settings : GradientADMMSettings
        n_steps : int
        ratio : float
            The longest step of a record, in noise standard deviations.
        """
        assert facts.coordinates is not None
        n_entries = facts.n_parameters * facts.loss.n_outputs
        walked = math.sqrt(n_steps) * (math.sqrt(n_entries) + LONGEST_DRAW)
        radius = ROOM * (n_steps * ratio + walked)
        relative_error = SUMS + 2 * y_rounding(facts, self.constraint)
        # Scores; a step is at most 2 over the curvature.
        relative_error += 2 * (facts.n_parameters + 16) * 2.0**-52
        if not self._splits_coefficients(facts):
            tied = splitting_facts(facts.penalty, facts.coordinates, self.constraint)
            system = 1.0 + settings.step_size * settings.penalty_weight * tied.largest**2
            relative_error += SUMS * (8 + facts.n_parameters) * system
        cell, arithmetic = _grid_shift(facts), 2 * relative_error * radius
        return cell + (arithmetic if arithmetic > cell / 64 else 0.0)

    def _splits_coefficients(self, facts: Facts) -> bool:
        """Whether y are the coefficients themselves, in whatever units."""
        return self.constraint is None and facts.penalty.splitting()[0] is None

    def _steps(self, plan: Plan, rows: Rows) -> NoisySteps | CompiledSteps:
        """The loop, and all that it has to know."""
        settings: GradientADMMSettings = plan.settings
        facts, cell = plan.facts, grid_cell(plan.releases[-1].noise_std)
        at_gradient = settings.noise_at == "gradient"
        if not self.compiled:
            splitting = splitting_of(facts.penalty, rows, self.constraint)
            return NoisySteps(
                step=gradient_admm_step(splitting, settings.step_size, settings.penalty_weight),
                loss=facts.loss,
                cell=cell,
                noise_on_gradient=at_gradient,
            )
        proximal_step = thresholds(facts.penalty, rows.coordinates, settings.penalty_weight)
        code = loss_code(facts.loss)
        assert proximal_step is not None
        assert code is not None
        return CompiledSteps(
            threshold=proximal_step[0],
            divisor=proximal_step[1],
            code=code,
            step_size=settings.step_size,
            penalty_weight=settings.penalty_weight,
            cell=cell,
            noise_on_gradient=at_gradient,
        )

    def _settings(self, facts: Facts, mu: float) -> GradientADMMSettings:
        assert facts.coordinates is not None
        hidden = self._release == "last"
        # Of a stream the amplified figures can be had later, and they are of its last iterate.
        averages = not hidden and self.schedule != "stream"
        tied = splitting_facts(facts.penalty, facts.coordinates, self.constraint)
        n_passes = 1
        if self.schedule in ("cyclic", "sampling"):
            # With the default weight; with so many passes the later ones cost as much as the last.
            constant = amplification_constant(tied.smallest / tied.largest)
            unseen = 1 + int(facts.n_samples // (2 * constant))
            most = min(facts.max_iter, LONGEST_RUN // facts.n_samples, unseen if hidden else 1)
            if self.cap != "auto":
                most = min(most, int(self.cap))
            n_passes = max(most, 1) if self.passes == "auto" else int(self.passes)
        n_steps = n_passes * (self.n_expected if self.is_stream else facts.n_samples)
        step_size, clip_norm = default_stochastic_descent(facts, mu, n_steps)
        if tied.is_square:
            # The constraint holds every direction back by at least so much.
            step_size *= 1.0 + tied.smallest / tied.largest
        if hidden:
            # Longer steps need not contract; shorter ones always do.
            step_size = min(step_size, longest_step(facts))
            if facts.loss.n_outputs > 1:
                clip_norm = open_clip(facts)
        step_size = step_size if self.step_size == "auto" else float(self.step_size)
        clip_norm = clip_norm if self.clip_norm == "auto" else float(self.clip_norm)
        if hidden:
            check_smooth_steps(facts, step_size, clip_norm, otherwise="release='path'")
            self._check_exact_step(facts)
        weight = self.penalty_weight
        if weight == "auto":
            weight = 1.0 / (step_size * tied.smallest * tied.largest)
        # Beyond this range squares leave that of floats. A smaller kappa amplifies less.
        kappa = min(step_size * float(weight) * tied.smallest**2, 1e100)
        cap = 3 * n_passes if self.cap == "auto" else int(self.cap)
        return GradientADMMSettings(
            step_size=step_size,
            penalty_weight=float(weight),
            displacement=contribution_mu(step_size, 1.0, 1.0, kappa=kappa, square=tied.is_square),
            clip_norm=clip_norm * typical_norm(facts),
            schedule=RecordSchedule(
                n_places=facts.n_samples,
                kind=self.schedule,
                is_secret=self._order == "random",
                is_hidden=hidden,
                n_passes=n_passes,
                # What has no effect is no part of the plan, so that noise does not depend on it.
                cap=cap if self.schedule == "sampling" else None,
                seed=int(self.order_seed) if self.schedule == "sampling" else None,
            ),
            noise_at=self.noise_at,
            average=averages if self.average == "auto" else bool(self.average),
            amplification=amplification_constant(kappa) if kappa > 1e-100 else math.inf,
            constraint=None if self.constraint is None else self.constraint.fingerprint,
        )

    def _exact_plan(self, facts: Facts, budget: Budget) -> Plan:
        shape = (facts.n_parameters, facts.loss.n_outputs)
        release = not_private(OPTIMUM, shape, facts.observers)
        return Plan(
            algorithm="GradientADMM",
            facts=facts,
            budget=budget,
            settings=ExactSettings(max_iter=MOST_EXACT_STEPS, tolerance=TOLERANCE),
            releases=(release,),
        )

    def _optimum(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """The limit without privacy: full gradients until nothing moves."""
        settings: ExactSettings = plan.settings
        loss, rows, target = plan.facts.loss, problem.rows, problem.target
        shape = (plan.facts.n_parameters, loss.n_outputs)
        n = rows.n_samples

        def moment(block: int) -> NDArray[np.float64]:
            seen = rows.seen(block)
            return np.asarray(seen.T @ seen)

        spectrum = np.linalg.eigvalsh(problem.engine.sum(moment, rows.n_blocks) / n)
        step_size = 1.0 / max(loss.smoothness * float(spectrum[-1]), 1e-12)
        splitting = splitting_of(plan.facts.penalty, rows, self.constraint)
        weight = 1.0 / (step_size * splitting.smallest * splitting.largest)

        def gradient(x: NDArray[np.float64]) -> NDArray[np.float64]:
            prepared = rows.prepare(x if loss.n_outputs > 1 else x[:, 0])

            def part(block: int) -> NDArray[np.float64]:
                own = rows.slices[block]
                return rows.adjoint(
                    block, loss.derivative(rows.scores(block, prepared), target[own])
                )

            return rows.collect(problem.engine.sum(part, rows.n_blocks)).reshape(shape) / n

        step = gradient_admm_step(splitting, step_size, weight)
        state = full_gradient_optimum(
            step,
            gradient,
            self.start(plan, problem),
            max_iter=settings.max_iter,
            tolerance=settings.tolerance,
        )
        found = splitting.solution(state.x, step.penalised_part(state.x, state.multipliers))
        return Solution(parameters=gate.release(OPTIMUM, found), n_iter=state.n_steps)


def seen_in_order(rows: Rows, records: NDArray[np.intp]) -> NDArray[np.float64]:
    """Augmented rows of some records, in any order and with repetitions; a copy of these alone."""
    if len(records) and (np.diff(records) == 1).all():
        # A stream, whose speed this is: neighbours need no sorting and no second copy.
        return rows.take([slice(int(records[0]), int(records[-1]) + 1)]).seen(0)
    chosen, where = np.unique(records, return_inverse=True)
    return rows.take([chosen]).seen(0)[where]


def _check_resolution(constraint: LinearConstraint, facts: Facts, noise_std: float) -> None:
    """Refuse a constraint beside which floats no longer resolve the grid of the noise."""
    assert facts.coordinates is not None
    assert constraint.c is not None
    tied = splitting_facts(facts.penalty, facts.coordinates, constraint)
    largest = float(np.abs(constraint.c).max(initial=0.0)) / tied.smallest
    if largest > LARGEST_OFFSET * noise_std:
        raise ValueError(
            f"Got c up to {np.abs(constraint.c).max():.3g}, {largest / noise_std:.3g} times the"
            f" noise in x, expected at most {LARGEST_OFFSET:.3g} times: floats would not resolve"
            " the noise. Rescale the problem, or move the origin of the coefficients."
        )


def _grid_shift(facts: Facts) -> float:
    """How far rounding to the grid can move two iterates apart, in noise standard deviations."""
    return GRID_CELL * math.sqrt(facts.n_parameters * facts.loss.n_outputs)


def _nobody(n_steps: int) -> None:
    """Tell nobody how many steps are done."""
