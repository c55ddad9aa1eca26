"""Gradient ADMM: one gradient of one record per step, amplified by the steps that follow.

Source: Chan, Xie & Zhao, "Privacy Amplification by Iteration for ADMM with (Strongly) Convex
Objective Functions", Algorithm 1 with noise on x, with the constants that are derived in the user
guide in place of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from skdpadmm._sklearn import AT_LEAST_0, AUTO, COUNT, SIZE, OneOf, parameter
from skdpadmm.algorithms import _algorithm as base
from skdpadmm.algorithms import _gradient_admm_steps as steps
from skdpadmm.algorithms import _last_iterate as last_iterate
from skdpadmm.algorithms._certified_solves import NO_BOUNDS, typical_norm
from skdpadmm.algorithms._defaults import default_stochastic_descent
from skdpadmm.algorithms._record_schedule import NOBODY, RecordSchedule, at_the_end, calibrated
from skdpadmm.noise import GRID_CELL, grid_cell
from skdpadmm.penalties import LinearConstraint, NoPenalty
from skdpadmm.privacy import AmplifiedIteration, Guarantee, amplification_constant, contribution_mu
from skdpadmm.protocol import (
    Budget,
    Facts,
    Gate,
    Plan,
    Problem,
    Release,
    Settings,
    Solution,
    not_private,
)
from skdpadmm.records import Rows, constants_of

Array = NDArray[np.float64]
ITERATE, OPTIMUM = "iterate", "optimum"
# Steps of a default run, beyond which it makes no further passes: a loop of some seconds.
LONGEST_RUN = 50_000
# Rows are copied in the order of the schedule, so many entries at a time.
CHUNK_ENTRIES = 2**18
# Offsets of a constraint, in standard deviations of the noise: floats have 52 bits, and 20 of them
# resolve the noise.
LARGEST_OFFSET = 2.0**26
# What a parameter adds to the premises of a report.
ASSUMPTIONS = {
    "last": "Nobody sees a state before the last, nor the noise of the steps after a record's.",
    "random": "The order of the records is drawn at random and stays secret.",
    "stopping": "The time at which the iteration stops is drawn at random and stays secret.",
    "stream": "Each record arrives once; a record that is offered again is protected less.",
}
# The limit without privacy.
MOST_EXACT_STEPS, TOLERANCE = 200_000, 1e-13


@dataclass(kw_only=True, eq=False, repr=False)
class GradientADMM(base.Algorithm):
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
    square, as it is unless a linear image is penalised.

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
    other rounding errors of steps that nobody sees. The step of y has to be a formula for each
    variable or group there.

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
    units = ("record",)  # Gradients of records are clipped.
    conditionable = False
    noiseless = True

    step_size: float | str = parameter("auto", AUTO, SIZE)
    penalty_weight: float | str = parameter("auto", AUTO, SIZE)
    clip_norm: float | str = parameter("auto", AUTO, SIZE)
    passes: int | str = parameter("auto", AUTO, COUNT)
    schedule: str = parameter("cyclic", OneOf("cyclic", "sampling", "stopping", "stream"))
    order: str = parameter("auto", AUTO, OneOf("random", "arrival"))
    cap: int | str = parameter("auto", AUTO, COUNT)
    release: str = parameter("auto", AUTO, OneOf("last", "path"))
    average: bool | str = parameter("auto", AUTO, "boolean")
    constraint: LinearConstraint | None = parameter(None, None, LinearConstraint)
    horizon: int = parameter(10_000, COUNT)
    order_seed: int = parameter(0, AT_LEAST_0)
    compiled: bool = parameter(False, "boolean")

    @property
    def releases_path(self) -> bool:
        """Whether every iterate counts as released: not the last alone, nor those of a stream."""
        return self._release == "path" and not self.streaming

    @property
    def exact(self) -> bool:
        """Whether it serves ``epsilon=inf`` by itself: nothing else knows a user's constraint."""
        return self.constraint is not None

    @property
    def streaming(self) -> bool:
        """Whether it takes records as they arrive, by its schedule."""
        return self.schedule == "stream"

    @property
    def n_expected(self) -> int:
        """How many records of a stream are expected."""
        self.check_parameters()
        return int(self.horizon)

    @property
    def _release(self) -> str:
        if self.release == "auto":
            return "path" if self.streaming else "last"
        return self.release

    @property
    def _order(self) -> str:
        if self.order == "auto":
            return "arrival" if self.schedule in ("stopping", "stream") else "random"
        return self.order

    def check_facts(self, facts: Facts) -> None:
        """Refuse parameters that contradict each other, the loss, the penalty or the units."""
        self._splitting(facts)
        release, schedule = self._release, self.schedule
        of_coefficients = self._splits_coefficients(facts)
        known = constants_of(facts.loss) is not None and type(facts.penalty) in steps.PENALTIES
        # Schedules that use records once, in the order of the data: what they release, and passes.
        once = {"stopping": ("last", "arrival", 1), "stream": ("path", "arrival", 1)}
        passes = 1 if self.passes == "auto" else self.passes
        chosen = (release, self._order, passes)
        if self.cap != "auto" and schedule != "sampling":
            raise ValueError(
                f"Got cap={self.cap!r} with {schedule=}, expected 'auto': each record is used once"
                " in a pass. Use schedule='sampling'."
            )
        if release == "last" and self.average not in ("auto", False):
            raise ValueError(
                "Got average=True with release='last', expected False: amplified guarantees are of"
                " the last iterate alone. Use release='path'."
            )
        if once.get(schedule, chosen) != chosen:
            raise ValueError(
                f"Got {release=}, order={self.order!r} and passes={self.passes!r} with"
                f" {schedule=}, expected 'auto': records are used once, in the order of the data,"
                " the path would show where a run stops, and states of a stream are seen in"
                " between. Use schedule='cyclic', or `finalize` for the end of a stream."
            )
        if self.compiled and not (known and of_coefficients):
            raise ValueError(
                f"Got compiled=True with {facts.loss!r} and {facts.penalty!r}, expected one score"
                " and a penalty of single coefficients. Use compiled=False."
            )
        if facts.scaling is not None and (self.streaming or not of_coefficients):
            raise ValueError(
                "Got scale='private' with a penalty of a linear image or a stream, expected"
                " scale=None: units have to be known in advance. Declare feature_bounds."
            )
        if self.compiled and find_spec("numba") is None:
            raise ImportError(
                "Got compiled=True without numba, expected it to be installed: pip install"
                " 'skdpadmm[fast]', or compiled=False."
            )

    def released(self, facts: Facts, budget: Budget) -> tuple[Settings, Release]:
        """The noise of all steps, from the theorem that fits what is seen."""
        shape = facts.model_shape
        if not budget.is_private:
            return Settings(()), not_private(OPTIMUM, shape, facts.observers)
        settings = self._settings(facts, facts.remaining_mu(budget))
        schedule = settings.schedule
        c, length = facts.neighboring.sensitivity_factor, settings.displacement
        sensitivity = c * facts.working_rounding * settings.clip_norm * length
        grid = GRID_CELL * math.sqrt(math.prod(shape))
        spent = tuple(release.view().guarantees[0] for release in facts.preparations)
        target = (budget.epsilon, budget.delta)
        least_noise = partial(calibrated, schedule, spent, *target, settings.amplification)
        step = least_noise(grid)
        noise_std, offset = sensitivity / step.ratio, self._splitting(facts).offset
        if offset > LARGEST_OFFSET * noise_std:
            raise ValueError(
                f"Got c up to {offset / noise_std:.3g} times the noise in x, expected at most"
                f" {LARGEST_OFFSET:.3g} times: floats would not resolve the noise. Rescale the"
                " problem, or move the origin of the coefficients."
            )
        if schedule.is_hidden:
            # More rounding takes more noise, so this ratio of signal and noise is none too small.
            arithmetic = self._arithmetic(
                facts, settings, schedule.n_steps, sensitivity, step.ratio
            )
            # Cells are a power of two, mostly so far below their bound that there is room for it.
            if grid * grid_cell(noise_std) / (GRID_CELL * noise_std) + arithmetic > grid:
                step = least_noise(grid + arithmetic)
        return settings, Release(
            name=ITERATE,
            shape=shape,
            sensitivities=(sensitivity,),
            noise_std=sensitivity / step.ratio,
            door="path_noise",
            repeats=schedule.n_steps,
            views=last_iterate.seen_in_model(*schedule.guarantees(step)),
            is_hidden=schedule.is_hidden,
        )

    def assumptions(self, facts: Facts, budget: Budget) -> tuple[str, ...]:
        """What the figures of a schedule rest on."""
        holding = (self._release, self._order, self.schedule) if budget.is_private else ()
        lines = (line for name, line in ASSUMPTIONS.items() if name in holding)
        premise = (last_iterate.non_expansive(facts),) if "last" in holding else ()
        return (*lines, *premise)

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Take the planned steps; every number in the solution has passed the gate."""
        if not plan.budget.is_private:
            tied = steps.splitting_of(plan.facts.penalty, problem.rows.coordinates, self.constraint)
            most = MOST_EXACT_STEPS if self.exact else plan.facts.max_iter
            return _optimum(plan, problem, gate, tied, most)
        schedule = plan.settings.schedule
        records, end = schedule.drawn(gate)
        # Steps after a secret end are taken as well and dropped, so that nothing reveals it: no
        # clock, no progress bar, no count.
        is_secret = schedule.kind == "stopping"
        progress = (lambda n_steps, point: None) if is_secret else problem.progress
        state = self.start(plan, problem)
        state = self._through(plan, problem, gate, state, records[:end], progress)
        self._through(plan, problem, gate, state, records[end:], progress)
        problem.progress(len(records))
        return replace(self.solution(plan, problem, state), n_iter=len(records))

    def start(self, plan: Plan, problem: Problem) -> steps.State:
        """The public state before any record."""
        n_constraints = self._step(plan, problem.rows).splitting.n_constraints
        d, n_outputs = plan.facts.n_parameters, plan.facts.loss.n_outputs
        # With one score plain vectors, which are a good deal faster.
        columns = (n_outputs,) if n_outputs > 1 else ()
        x, multipliers = np.zeros((d, *columns)), np.zeros((n_constraints, *columns))
        kept = None if plan.settings.average else 0
        return steps.State(x, multipliers, x[:kept], multipliers[:kept])

    def arrive(
        self, plan: Plan, problem: Problem, gate: Gate, state: steps.State, hidden: None
    ) -> tuple[steps.State, None]:
        """Take a step for each record of a stream that has arrived, in their order."""
        records = np.arange(problem.rows.n_samples)
        return self._through(plan, problem, gate, state, records, problem.progress), None

    def _parameters(self, plan: Plan, problem: Problem, state: steps.State) -> Array:
        """The model of a state: its y, or its x where y is another thing."""
        x, multipliers = state.x, state.multipliers
        if plan.settings.average:
            x, multipliers = state.mean_x, state.mean_multipliers
        step = self._step(plan, problem.rows)
        parameters = step.splitting.solution(x, step.penalised_part(x, multipliers))
        return np.asarray(parameters.reshape(plan.facts.n_parameters, -1))

    def solution(self, plan: Plan, problem: Problem, state: steps.State) -> Solution:
        """The model of a state, with what is known of it."""
        return Solution(
            parameters=self._parameters(plan, problem, state),
            n_iter=state.n_steps,
            derivative_bound=plan.settings.clip_norm / problem.rows.typical_norm,
        )

    def unseen_guarantees(self, plan: Plan, n_samples: int) -> tuple[tuple[str, Guarantee], ...]:
        """What holds for kinds of records of a stream, if nobody saw a state before the last.

        Empty where no theorem applies: for averages, and steps that can move two iterates apart.
        """
        settings, facts, path = plan.settings, plan.facts, plan.releases[-1]
        is_long = settings.step_size > 2.0 / last_iterate.curvature_bound(facts)
        # To clip a vector is no contraction, unless the clip never binds.
        never_binds = last_iterate.relative_open_clip(facts) * typical_norm(facts)
        clips_vectors = facts.loss.n_outputs > 1 and settings.clip_norm < never_binds
        if settings.average or not self._has_exact_step(facts) or is_long or clips_vectors:
            return ()
        (sensitivity,) = path.sensitivities
        ratio = sensitivity / path.noise_std
        shift = GRID_CELL * math.sqrt(math.prod(path.shape))
        shift += self._arithmetic(facts, settings, n_samples, sensitivity, ratio)
        return at_the_end(AmplifiedIteration(ratio, settings.amplification, shift), n_samples)

    def _through(
        self,
        plan: Plan,
        problem: Problem,
        gate: Gate,
        state: steps.State,
        records: NDArray[np.intp],
        progress: Callable[..., None],
    ) -> steps.State:
        """Take a step for each of some records, or without one where there is `NOBODY`."""
        rows, path = problem.rows, plan.releases[-1]
        facts, step, cell = plan.facts, self._step(plan, rows), grid_cell(path.noise_std)
        loop = steps.NoisySteps(step, facts.loss, cell)
        if self.compiled:
            loop = steps.CompiledSteps(step, facts.loss, cell, facts.penalty, rows.coordinates)
        with np.errstate(divide="ignore"):
            bound = plan.settings.clip_norm / np.sqrt(rows.squared_norm)
        size = max(CHUNK_ENTRIES // facts.n_parameters, 1)
        if problem.path is not None:
            # A point of the path after each pass.
            size = facts.n_samples
        for first in range(0, len(records), size):
            chunk = records[first : first + size]
            used = np.where(chunk == NOBODY, 0, chunk)
            state = loop.advance(
                state,
                seen_in_order(rows, used),
                problem.target[used],
                np.where(chunk == NOBODY, 0.0, bound[used]),
                gate.path_noise(path.name, len(chunk)),
            )
            progress(state.n_steps, partial(self._parameters, plan, problem, state))
        return state

    def _step(self, plan: Plan, rows: Rows) -> steps.GradientADMMStep:
        splitting = steps.splitting_of(plan.facts.penalty, rows.coordinates, self.constraint)
        settings = plan.settings
        return steps.GradientADMMStep(splitting, settings.step_size, settings.penalty_weight)

    def _splitting(self, facts: Facts) -> steps.Splitting:
        return steps.splitting_of(facts.penalty, facts.coordinates, self.constraint)

    def _splits_coefficients(self, facts: Facts) -> bool:
        """Whether y are the coefficients themselves, in whatever units."""
        return self.constraint is None and facts.penalty.splitting()[0] is None

    def _y_rounding(self, facts: Facts) -> float:
        """Relative rounding error of the step of y; infinite where nothing bounds it."""
        matrix, inner = facts.penalty.splitting()
        if self.constraint is not None:
            return self.constraint.y_rounding(facts.penalty, facts.coordinates.n_features)
        if matrix is None:
            return last_iterate.proximal_rounding(facts)
        return inner.proximal_rounding(np.ones(int(matrix.shape[0])))

    def _has_exact_step(self, facts: Facts) -> bool:
        """Whether the step of y is off by a few units in the last place and no more.

        Rounding errors of x count as the grid does, those of a step that iterates nowhere.
        """
        return self._y_rounding(facts) <= NoPenalty().proximal_rounding(np.ones(1))

    def _arithmetic(
        self, facts: Facts, settings: Settings, n_steps: int, sensitivity: float, ratio: float
    ) -> float:
        """How far arithmetic can move two iterates apart in a step, in noise standard deviations.

        Steps move no two states apart, so a state is about as long as a random walk with the drift
        of the gradients, whose length is `sensitivity` and `ratio` standard deviations at most.
        Where the constraint has an offset it ends elsewhere, no farther than twice a fixed point
        without data.
        """
        tied, n_entries = self._splitting(facts), facts.n_parameters * facts.loss.n_outputs
        walked = math.sqrt(n_steps) * (math.sqrt(n_entries) + last_iterate.LONGEST_DRAW)
        system = 1.0 + settings.step_size * settings.penalty_weight * tied.largest**2
        rest = 2.0 * math.sqrt(system * facts.loss.n_outputs) * tied.offset * ratio / sensitivity
        radius = last_iterate.ROOM * (n_steps * ratio + walked + rest)
        relative_error = last_iterate.SUMS + 2 * self._y_rounding(facts)
        # Scores; a step is at most 2 over the curvature.
        relative_error += 2 * (facts.n_parameters + 16) * 2.0**-52
        if not self._splits_coefficients(facts):
            relative_error += last_iterate.SUMS * (8 + facts.n_parameters) * system
        return 2 * relative_error * radius

    def _settings(self, facts: Facts, mu: float) -> Settings:
        """Constants of a run: what has no effect is none of them, so noise is the same with it."""
        tied, hidden = self._splitting(facts), self._release == "last"
        is_square, n_passes = tied.n_constraints == facts.n_parameters, 1
        if self.schedule in ("cyclic", "sampling"):
            # With the default weight; with so many passes the later ones cost as much as the last.
            constant = amplification_constant(tied.smallest / tied.largest)
            unseen = 1 + int(facts.n_samples // (2 * constant)) if hidden else 1
            most = min(facts.max_iter, LONGEST_RUN // facts.n_samples, unseen)
            if self.cap != "auto":
                most = min(most, int(self.cap))
            n_passes = max(most, 1) if self.passes == "auto" else int(self.passes)
        n_steps = n_passes * (self.n_expected if self.streaming else facts.n_samples)
        step_size, clip_norm = default_stochastic_descent(facts, mu, n_steps)
        if is_square:
            # The constraint holds every direction back by at least so much.
            step_size *= 1.0 + tied.smallest / tied.largest
        if hidden:
            # Longer steps need not contract; shorter ones always do.
            step_size = min(step_size, last_iterate.longest_non_expansive_step(facts))
            if facts.loss.n_outputs > 1:
                clip_norm = last_iterate.relative_open_clip(facts)
        step_size = self._chosen("step_size", step_size)
        clip_norm = self._chosen("clip_norm", clip_norm)
        if hidden:
            last_iterate.check_smooth_steps(facts, step_size, clip_norm, otherwise="release='path'")
            if not self._has_exact_step(facts):
                raise ValueError(
                    f"Got {facts.penalty!r} with constraint={self.constraint!r} and"
                    " release='last', expected a penalty and a diagonal B'B for which the step of"
                    " y is a formula for each variable or group: what another one leaves could"
                    " tell iterates apart. Use release='path'."
                )
        weight = self._chosen("penalty_weight", 1.0 / (step_size * tied.smallest * tied.largest))
        # Beyond this range squares leave that of floats. A smaller kappa amplifies less.
        kappa = min(step_size * weight * tied.smallest**2, 1e100)
        cap = 3 * n_passes if self.cap == "auto" else int(self.cap)
        draws = {"cap": cap, "seed": int(self.order_seed)} if self.schedule == "sampling" else {}
        schedule = RecordSchedule(
            n_places=facts.n_samples,
            kind=self.schedule,
            is_secret=self._order == "random",
            is_hidden=hidden,
            n_passes=n_passes,
            **draws,
        )
        # Of a stream the amplified figures can be had later, and they are of its last iterate.
        averages = not hidden and not self.streaming
        constants = {
            "step_size": step_size,
            "penalty_weight": weight,
            # How far a gradient of norm one moves x, at most.
            "displacement": contribution_mu(step_size, 1.0, 1.0, kappa=kappa, square=is_square),
            "clip_norm": clip_norm * typical_norm(facts),
            "schedule": schedule,
            "average": averages if self.average == "auto" else bool(self.average),
            "amplification": amplification_constant(kappa) if kappa > 1e-100 else math.inf,
            "constraint": None if self.constraint is None else self.constraint.fingerprint,
        }
        return Settings(tuple(constants.items()))

    def _chosen(self, name: str, default: float) -> float:
        """The value of a parameter, or a default for "auto"."""
        value = getattr(self, name)
        return default if value == "auto" else float(value)


def seen_in_order(rows: Rows, records: NDArray[np.intp]) -> NDArray[np.float64]:
    """Augmented rows of some records, in any order and with repetitions; a copy of these alone."""
    if len(records) and (np.diff(records) == 1).all():
        # A stream, whose speed this is: neighbours need no sorting and no second copy.
        return rows.take([slice(int(records[0]), int(records[-1]) + 1)]).seen(0)
    chosen, where = np.unique(records, return_inverse=True)
    return rows.take([chosen]).seen(0)[where]


def _optimum(
    plan: Plan, problem: Problem, gate: Gate, tied: steps.Splitting, most: int
) -> Solution:
    """The limit without privacy: full gradients until nothing moves, in at most so many steps."""
    loss, rows = plan.facts.loss, problem.rows
    total = NO_BOUNDS.gradient(plan.facts, problem)
    moments = problem.engine.sum(lambda b: rows.seen(b).T @ rows.seen(b), rows.n_blocks)
    curvature = max(
        loss.smoothness * float(np.linalg.eigvalsh(moments)[-1] / rows.n_samples), 1e-12
    )
    step = steps.GradientADMMStep(tied, 1 / curvature, curvature / (tied.smallest * tied.largest))
    x = np.zeros((plan.facts.n_parameters, loss.n_outputs))
    multipliers, n_iter, moves = np.zeros((tied.n_constraints, loss.n_outputs)), 0, math.inf
    while n_iter < most and moves > TOLERANCE:
        last, n_iter = (x, multipliers), n_iter + 1
        x, multipliers = step(x, multipliers, total(x) / rows.n_samples)
        moves = max(
            np.abs(new - old).max(initial=0.0) / max(1.0, np.abs(new).max(initial=0.0))
            for new, old in zip((x, multipliers), last, strict=True)
        )
        parameters = tied.solution(x, step.penalised_part(x, multipliers))
        problem.progress(n_iter, parameters)
    return Solution(parameters=gate.release(OPTIMUM, parameters), n_iter=n_iter)
