"""Dual averaging of records that arrive, with noise that cancels in the sums of their gradients.

Sources: Xiao, "Dual averaging methods for regularized stochastic learning and online optimization"
(JMLR 2010); Denisov, McMahan, Rush, Smith & Thakurta, "Improved differential privacy for SGD via
optimal private linear operators on adaptive streams" (NeurIPS 2022), Theorem 2.1; the coefficients
are those of `_exponential_sums`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from skdpadmm._sklearn import AUTO, COUNT, SIZE, parameter
from skdpadmm.algorithms import _defaults as defaults
from skdpadmm.algorithms._algorithm import Algorithm, penalty_operator, refuse
from skdpadmm.algorithms._clipped_sums import ClippedSum
from skdpadmm.algorithms._exponential_sums import square_root
from skdpadmm.algorithms._messages import gaussian_release
from skdpadmm.algorithms._noise_left import noisy_solution, without_clip_bias
from skdpadmm.algorithms._preparations import (
    LARGEST_MATRIX,
    SECOND_MOMENT,
    basis_from_release,
    packed,
    plan_conditioning,
    second_moment,
)
from skdpadmm.protocol import (
    Budget,
    Conditioning,
    Facts,
    Gate,
    Plan,
    Problem,
    Release,
    Settings,
    Solution,
    not_private,
)
from skdpadmm.records import Basis, Rows, rounding_factor

Array = NDArray[np.float64]
GRADIENTS = "sums of gradients"
# Memory of the noise: so many steps, and exponentials.
MEMORY, N_BUFFERS = 512, 6
NOISE = square_root(MEMORY, N_BUFFERS, 0.3, 0.5)
# A step takes this part of the records so far, up to that many.
PART_OF_RECORDS, LARGEST_STEP = 64, 256
# The first stage ends when its second moment stands out of noise this far, each later one when
# there are that many times as many records, and no stage is longer.
FIRST_STAGE, GROWTH, LONGEST_STAGE = 3.0, 4.0, 2**20
LEAST_FIRST_STAGE, PLAIN_FIRST_STAGE = 32, 1024
# Share of the squared budget for the second moments.
CONDITIONING_SHARE = 0.2
# Standard deviation that noise gives to the score of a typical row in one iterate, in targets of
# [-1, 1] and, for classes, over the smoothness of the loss. The average over iterates has less.
SCORE_NOISE, CLASS_SCORE_NOISE = 0.1, 0.35
# Clip bounds of classifiers, over those of stored records.
CLASS_CLIP = 2.0
# The average of the iterates weighs later ones more, by this power of the records.
AVERAGING_POWER = 3


@dataclass(frozen=True, eq=False)
class State:
    """A stream so far: functions of what was released, and of numbers of records."""

    n_samples: int
    n_steps: int
    # The stage: records at its beginning, its centre and the present iterate in public coordinates,
    # the noisy sum of its gradients, in units of its clip bound, and the part of noise that is
    # still to cancel.
    begun: int
    center: Array
    model: Array
    total: Array
    pending: Array
    # The weighted average of all iterates, in public coordinates.
    mean: Array
    # The sum of the released second moments, how many there are and of how many records; records
    # whose second moment is not released yet.
    moment: Array
    n_moments: int = 0
    n_counted: int = 0
    n_waiting: int = 0
    basis: Basis | None = None


class Hidden:
    """Sums of private gradients and rows, without noise: they never leave this process."""

    def __init__(self, buffers: Array, moment: Array) -> None:
        self.buffers, self.moment = buffers, moment

    def __reduce__(self) -> NoReturn:
        raise TypeError("Got private buffers, expected a stream without them: they stay here.")


class Stage(NamedTuple):
    """Public constants between two second moments."""

    end: int
    clip_norm: float
    step_size: float
    largest_step: int
    rows: Rows


@dataclass(kw_only=True, eq=False, repr=False)
class DualAveraging(Algorithm):
    r"""Dual averaging of records that arrive, with noise that cancels in sums of gradients.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` with ``partial_fit``, however many records
    arrive. Step t takes one record, or some of them, which no other step takes. From
    :math:`w_0 = 0` and the sum :math:`g_t` of their clipped gradients at :math:`w_{t-1}` it computes

    .. math::

        h_t &= \sum_{j \le t} c_{t-j} g_j + N(0, s^2 I) \\
        y_t &= y_{t-1} + u_t, \qquad u_t = h_t - \sum_{0 < k < t} c_k u_{t-k} \\
        w_t &= \arg\min_w \langle y_t, w \rangle + n_t r(w) + \tfrac{1}{2 \eta} \|w - w_0\|^2
            = \mathrm{prox}_{\eta n_t r}(w_0 - \eta y_t)

    for :math:`n_t` records so far, and returns a weighted average of the iterates. Every
    :math:`y_t` is the sum of all gradients and of noise that grows only like the logarithm of t, as
    :math:`c_0 = 1` and :math:`c_k = \sum_i \theta_i \lambda_i^{k-1}` are close to the square root
    of the matrix of prefix sums.

    Stages end at public numbers of records. At the end of each, the second moment of its rows is
    released: the next stage works in the basis in which that of all rows is near the identity,
    from the average so far.

    Parameters
    ----------
    step_size : float or "auto", default="auto"
        Eta, in [1e-100, 1e100]. "auto" follows from the scale of the noise, so that the scores of an
        iterate stay meaningful.
    clip_norm : float or "auto", default="auto"
        Bound of the Euclidean norm of a record's gradient, in units of the typical norm of a row in
        the basis of the stage, in [1e-100, 1e100]. "auto" opens up from stage to stage.
    horizon : int, default=10000
        How many records are expected, for penalties that are spread over the records, as that of
        ridge regression. Neither the guarantee nor a step depends on it.

    Notes
    -----
    Unit: one record; adversary "model", who sees every state. A record changes one :math:`g_j` by
    at most c C, where c is 2 for replace-one and 1 for zero-out, so that given the past the mean of
    :math:`h_t` changes by at most :math:`c_{t-j} c C`. Gaussian noise composes exactly, so the path
    is GDP with

    .. math:: \mu = \frac{c C}{s} \sqrt{\sum_{k \ge 0} c_k^2},

    however long the stream is. This needs neither convexity nor a bound of the step. A record is in
    the second moment of one stage, which is one more release. Rounding of all sums counts.

    A record that is passed twice is protected less, by at most twice the :math:`\mu` of once.

    The sums :math:`\sum_j c_{t-j} g_j` have no noise. They are kept in the memory of the process
    that computes them, apart from the estimator. A copy, a clone or a pickle has none of them: it
    goes on with a new block of noise, with the same guarantee and a little more noise.

    References
    ----------
    .. [1] S. Denisov, B. McMahan, K. Rush, A. Smith, A. Thakurta, "Improved differential privacy
       for SGD via optimal private linear operators on adaptive streams", NeurIPS 2022.
    .. [2] K. Dvijotham, B. McMahan, K. Pillutla, T. Steinke, A. Thakurta, "Efficient and
       near-optimal noise generation for streaming differential privacy", FOCS 2024.
    .. [3] L. Xiao, "Dual averaging methods for regularized stochastic learning and online
       optimization", JMLR 2010.
    """

    setting = "central"
    units = ("record",)
    streaming = True

    step_size: float | str = parameter("auto", AUTO, SIZE)
    clip_norm: float | str = parameter("auto", AUTO, SIZE)
    horizon: int = parameter(10_000, COUNT)

    @property
    def conditionable(self) -> bool:
        """Not by a first pass over all rows: it releases second moments of its own."""
        return False

    @property
    def n_expected(self) -> int:
        """How many records of a stream are expected."""
        self.check_parameters()
        return int(self.horizon)

    def check_facts(self, facts: Facts) -> None:
        """Refuse units that would have to be found in a first pass."""
        got = "scale='private' with a stream"
        refuse("Declare feature_bounds.", (facts.scaling is not None, got, "scale=None"))

    def released(self, facts: Facts, budget: Budget) -> tuple[Settings, *tuple[Release, ...]]:
        """The sums of gradients of a stream without end, and second moments of its stages."""
        shape = (facts.n_parameters, facts.loss.n_outputs)
        if not budget.is_private:
            return Settings(()), not_private(GRADIENTS, shape, facts.observers)
        assert facts.coordinates is not None

        def alike(n_samples: int) -> Facts:
            rounding = rounding_factor(n_samples=n_samples, coordinates=facts.coordinates)
            return replace(facts, rounding=rounding)

        mu, of_step, moments = facts.remaining_mu(budget), alike(LARGEST_STEP), None
        if facts.n_parameters <= LARGEST_MATRIX:
            choices = defaults.conditioning_choices(facts)
            moments = plan_conditioning(
                alike(LONGEST_STAGE), budget, mu=mu * math.sqrt(CONDITIONING_SHARE), **choices
            )
            moments = replace(moments, release=replace(moments.release, repeats=None))
            mu *= math.sqrt(1 - CONDITIONING_SHARE)
            # After many records noise is next to nothing beside them: the largest condition number.
            of_step = replace(of_step, conditioning=of_records(moments, 1e100, 1))
        sensitivity = ClippedSum(of_step).sensitivity * NOISE.norm() * (1 + 1e-12)
        sensitivity += NOISE.rounding(1.001 * LARGEST_STEP, LONGEST_STAGE)
        gradients = replace(gaussian_release(GRADIENTS, shape, (sensitivity,), mu), repeats=None)
        settings = self.resolved(step_size="auto", clip_norm="auto", memory=MEMORY)
        return settings, *(() if moments is None else (moments.release,)), gradients

    def assumptions(self, facts: Facts, budget: Budget) -> tuple[str, ...]:
        """What the guarantee rests on."""
        return (
            "Each record arrives once; one that arrives again is protected less.",
            "Nobody reads the memory of the process in which the stream goes on.",
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """A stream of all records at once."""
        state, _ = self.arrive(plan, problem, gate, self.start(plan, problem), None)
        return self.solution(plan, problem, state)

    def start(self, plan: Plan, problem: Problem) -> State:
        """The public state before any record."""
        zeros = np.zeros((plan.facts.n_parameters, plan.facts.loss.n_outputs))
        pending = np.zeros((N_BUFFERS, *zeros.shape))
        moments = conditioning_of(plan)
        moment = np.zeros(0 if moments is None else moments.release.shape)
        return State(0, 0, 0, zeros, zeros, zeros, pending, zeros, moment)

    def arrive(
        self, plan: Plan, problem: Problem, gate: Gate, state: State, hidden: Hidden | None
    ) -> tuple[State, Hidden]:
        """Take steps with the records that have arrived, in their order.

        Without the buffers of earlier steps a new block of noise begins.
        """
        if hidden is None:
            hidden = Hidden(np.zeros_like(state.pending), np.zeros_like(state.moment))
            state = replace(state, pending=np.zeros_like(state.pending), n_waiting=0)
        first, rows = 0, problem.rows
        while first < rows.n_samples:
            stage = self._stage(plan, rows, state)
            stop = min(rows.n_samples, first + stage.end - state.n_samples)
            part = part_of(problem, slice(first, stop))
            state, hidden = self._through(plan, part, gate, stage, state, hidden)
            first = stop
            if state.n_samples == stage.end:
                state = self._next_stage(plan, gate, state, hidden)
                hidden = Hidden(np.zeros_like(state.pending), np.zeros_like(state.moment))
        return state, hidden

    def solution(self, plan: Plan, problem: Problem, state: State) -> Solution:
        """The average of the iterates, with what is known of its noise."""
        facts, stage = plan.facts, self._stage(plan, problem.rows, state)
        noise_std = stage.clip_norm * plan.releases[-1].noise_std * NOISE.norm()
        # Noise of a gradient over the curvature of the records, or as far as steps have come.
        n = max(state.n_samples - state.begun, state.begun, 1)
        curvature = 0.5 * defaults.usual_smoothness(facts.loss) * stage.rows.loading * n
        variance = np.square(noise_std / np.maximum(curvature, 1 / stage.step_size))
        solution = noisy_solution(
            facts,
            stage.rows,
            state.mean,
            variance,
            n_iter=state.n_steps,
            derivative_bound=stage.clip_norm / stage.rows.typical_norm,
        )
        solution = without_clip_bias(plan, replace(problem, rows=stage.rows), solution)
        # It is not to be corrected again in coordinates without the basis.
        return replace(solution, derivative_bound=math.inf)

    def _stage(self, plan: Plan, rows: Rows, state: State) -> Stage:
        """Constants of the present stage, from the plan, numbers of records and released moments."""
        facts, release, begun = plan.facts, plan.releases[-1], state.begun
        moments, seen = conditioning_of(plan), rows.take([slice(0, 1)])
        seen = seen if state.basis is None else seen.in_basis(state.basis, run_blocks)
        length = (GROWTH - 1) * begun
        if begun == 0:
            length = PLAIN_FIRST_STAGE
            if moments is not None:
                length = max(LEAST_FIRST_STAGE, math.ceil(FIRST_STAGE * moments.edge))
        end = begun + int(min(length, LONGEST_STAGE))
        known = None
        if state.basis is not None and moments is not None:
            known = of_records(moments, end, state.n_moments)
        mu = math.hypot(*release.sensitivities) / release.noise_std
        alike = replace(facts, n_samples=end, conditioning=known, max_iter=defaults.USUAL_STEPS)
        clip_norm = defaults.default_steps(alike, mu)[1]
        clip_norm *= 1.0 if defaults.is_regression(facts) else CLASS_CLIP
        clip_norm = clip_norm if self.clip_norm == "auto" else float(self.clip_norm)
        clip_norm *= seen.clip_unit
        smoothness = facts.loss.smoothness
        size = float(seen.loading.sum())
        if state.basis is None:
            size = min(defaults.typical_row(facts), facts.row_norm) ** 2
        score = CLASS_SCORE_NOISE / smoothness
        if defaults.is_regression(facts):
            score = SCORE_NOISE * rows.coordinates.target_unit
        step_size = score / (clip_norm * release.noise_std * math.sqrt(size))
        step_size = min(step_size, 1 / (smoothness * size))
        step_size = step_size if self.step_size == "auto" else float(self.step_size)
        # Steps of more records would overshoot.
        largest = 1 / (step_size * smoothness * max(size / 8, 1.0))
        return Stage(end, clip_norm, step_size, int(min(max(largest, 1), LARGEST_STEP)), seen)

    def _through(
        self, plan: Plan, problem: Problem, gate: Gate, stage: Stage, state: State, hidden: Hidden
    ) -> tuple[State, Hidden]:
        """Take steps with records of one stage."""
        facts, moments = plan.facts, conditioning_of(plan)
        first, n, n_steps = 0, problem.rows.n_samples, state.n_steps
        buffers, moment = hidden.buffers, hidden.moment
        if moments is not None:
            moment = moment + packed(second_moment(moments.row_norm, problem)())
        total, pending, mean = state.total, state.pending, state.mean
        model = state.model
        center, w = stage.rows.from_coordinates(state.center), stage.rows.from_coordinates(model)
        unit = stage.step_size * stage.clip_norm
        while first < n:
            arrived = state.n_samples + first
            size = min(max(arrived // PART_OF_RECORDS, 1), stage.largest_step, n - first)
            step = part_of(problem, slice(first, first + size), state.basis)
            gradient = ClippedSum(facts, stage.clip_norm).over(step)(w) / stage.clip_norm
            noisy = gate.release(GRADIENTS, gradient + NOISE.mixed(buffers))
            buffers = NOISE.after(buffers, gradient)
            new = noisy - NOISE.mixed(pending)
            pending, total = NOISE.after(pending, new), total + new
            first, n_steps, arrived = first + size, n_steps + 1, arrived + size
            strength = stage.step_size * (arrived - state.begun)
            model = penalty_operator(facts.penalty, strength, stage.rows)(center - unit * total)
            w = stage.rows.from_coordinates(model)
            share = size * (1 + AVERAGING_POWER) / (arrived + size * AVERAGING_POWER)
            mean = mean + share * (model - mean)
            problem.progress(n_steps)
        state = replace(
            state,
            n_samples=state.n_samples + n,
            n_steps=n_steps,
            model=model,
            total=total,
            pending=pending,
            mean=mean,
            n_waiting=state.n_waiting + n,
        )
        return state, Hidden(buffers, moment)

    def _next_stage(self, plan: Plan, gate: Gate, state: State, hidden: Hidden) -> State:
        """Release the second moment of a stage; the next one starts from the average so far."""
        basis, moment = state.basis, state.moment
        n_moments, n_counted = state.n_moments, state.n_counted
        if (moments := conditioning_of(plan)) is not None:
            moment = moment + gate.release(SECOND_MOMENT, hidden.moment)
            n_moments, n_counted = n_moments + 1, n_counted + state.n_waiting
            known = of_records(moments, n_counted, n_moments)
            basis = basis_from_release(moment / n_counted, known)
        return replace(
            state,
            begun=state.n_samples,
            center=state.mean,
            model=state.mean,
            total=np.zeros_like(state.total),
            pending=np.zeros_like(state.pending),
            moment=moment,
            n_moments=n_moments,
            n_counted=n_counted,
            n_waiting=0,
            basis=basis,
        )


def conditioning_of(plan: Plan) -> Conditioning | None:
    """How second moments become a basis; None where there are none."""
    *moments, _ = plan.releases
    choices = defaults.conditioning_choices(plan.facts)
    return Conditioning(release=moments[0], **choices) if moments else None


def of_records(moments: Conditioning, n_records: float, n_moments: int) -> Conditioning:
    """The conditioning by the mean over records, of whom sums were released so many times."""
    noise_std = moments.release.noise_std * math.sqrt(n_moments) / n_records
    return replace(moments, release=replace(moments.release, noise_std=noise_std))


def part_of(problem: Problem, records: slice, basis: Basis | None = None) -> Problem:
    """The problem of neighbouring records, in a basis."""
    rows = problem.rows.take([records])
    rows = rows if basis is None else rows.in_basis(basis, run_blocks)
    return replace(problem, rows=rows, target=problem.target[records])


def run_blocks(function: Any, n_blocks: int) -> None:
    """Run a function over blocks, one after the other."""
    for block in range(n_blocks):
        function(block)
