"""Dual averaging of records that arrive, with noise that cancels in the sums of their gradients.

Sources: Xiao, "Dual averaging methods for regularized stochastic learning and online optimization"
(JMLR 2010); Denisov, McMahan, Rush, Smith & Thakurta, "Improved differential privacy for SGD via
optimal private linear operators on adaptive streams" (NeurIPS 2022), Theorem 2.1.

With C the lower-triangular Toeplitz matrix of coefficients c_0 = 1, c_1, ... and independent noise
z, the prefix sums of g are released as ``A C^-1 (C g + z)``: the noise is added to C g, and its
part in the sums is ``A C^-1 z``. The square root of the matrix A of prefix sums is nearly the best
C (Fichtenberger, Henzinger & Upadhyay, "Constant matters: fine-grained error bound on
differentially private continual observation", ICML 2023). A sum of a few exponentials comes close
to it, and needs a buffer for each of them (Dvijotham, McMahan, Pillutla, Steinke & Thakurta,
"Efficient and near-optimal noise generation for streaming differential privacy", FOCS 2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from skdpadmm._sklearn import AUTO, COUNT, SIZE, parameter
from skdpadmm.algorithms import _defaults as defaults
from skdpadmm.algorithms._algorithm import Algorithm, Released, penalty_operator, refuse
from skdpadmm.algorithms._clipped_sums import ClippedSum
from skdpadmm.algorithms._messages import gaussian_release
from skdpadmm.algorithms._noise_left import noisy_solution, without_stretch
from skdpadmm.algorithms._preparations import (
    LARGEST_MATRIX,
    SECOND_MOMENT,
    basis_from_release,
    conditioning_by,
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
# A step takes this part of the records so far, up to that many.
PART_OF_RECORDS, LARGEST_STEP = 24, 256
# The first stage ends when its second moment stands out of noise this far, each later one when
# there are that many times as many records, and no stage is longer.
FIRST_STAGE, GROWTH, LONGEST_STAGE = 3.0, 8.0, 2**20
LEAST_FIRST_STAGE, PLAIN_FIRST_STAGE = 32, 1024
# Share of the squared budget for the second moments.
CONDITIONING_SHARE = 0.15
# Standard deviation that noise gives to the score of a typical row in one iterate, in targets of
# [-1, 1] and, for classes, over the smoothness of the loss. The average over iterates has less.
# Where the signal for each parameter is above the first, both fall by powers of it: a loss of
# classes at noisy iterates has its minimum elsewhere.
SCORE_NOISE, CLASS_SCORE_NOISE = 0.09, 0.3
CALM_SIGNAL, REGRESSION_CALM, CLASS_CALM = 10.0, 0.2, 0.4
# Clip bounds open up from stage to stage, by the root of the signal for each parameter, until next
# to no record is clipped: of classes, and in regression over that of stored records.
LEAST_CLIP, CLASS_OPENING, REGRESSION_OPENING, LARGEST_CLIP = 0.25, 0.06, 0.025, 4.0
# A step times a bound of the curvature of a typical record, and of the mean of many. Steps are up
# to ten times shorter above the third, a signal for each parameter: where there is next to no other
# noise, iterates have that of single records.
RECORD_STEP, LONGEST_STEP, SETTLED_SIGNAL = 0.2, 0.5, 1000.0
# The average of the iterates weighs later ones more, by this power of the records: it falls to the
# second where steps are short, since the average has the noise of the records that it is of.
AVERAGING_POWER, SETTLED_POWER = 4.0, 1.5


@dataclass(frozen=True)
class ExponentialSum:
    """Coefficients ``c_0 = 1`` and ``c_k = sum_i weights_i decays_i^(k - 1)``, decays below 1."""

    weights: tuple[float, ...]
    decays: tuple[float, ...]

    def norm(self, n_steps: float = math.inf) -> float:
        """``sqrt(sum_k c_k^2)`` over the first steps or, by default, over a stream without end."""
        ratios = np.outer(self.decays, self.decays)
        products = np.outer(self.weights, self.weights)
        return math.sqrt(1 + float(np.sum(products * (1 - ratios ** (n_steps - 1)) / (1 - ratios))))

    def rounding(self, size: float, n_steps: int) -> float:
        """How far floats can move two paths of `n_steps` steps apart in norm, at most.

        Terms are at most `size` long. Two operations round a buffer in each step, and earlier
        errors decay as the buffer does; the value that is released is a sum of all buffers. Of two
        neighbouring data sets each has its own errors.
        """
        weights, life = np.array(self.weights), 1 / (1 - np.array(self.decays))
        in_buffers = float(np.sum(weights * (2 * life**2 + (len(life) + 2) * life)))
        error = 2.0**-53 * size * (in_buffers + len(life) + 2)
        return 2 * error * math.sqrt(n_steps) * (1 + 1e-9)

    def mixed(self, buffers: Array) -> Array:
        """What the buffers of earlier steps add to the present one."""
        return np.tensordot(self.weights, buffers, 1)

    def after(self, buffers: Array, term: Array) -> Array:
        """The buffers after a step."""
        return np.multiply(buffers.T, self.decays).T + term


def square_root(n_steps: int, n_buffers: int, slow: float, fast: float) -> ExponentialSum:
    """Exponentials close to the square root of the matrix of prefix sums, for so many steps.

    The decays are spaced evenly in log-odds, with memories from about ``n_steps / slow`` down to a
    few steps. Nine digits of them, so that every platform has the same plan: the guarantee is that
    of the numbers that are used.
    """
    decays = 1 / (1 + np.exp(np.linspace(math.log(slow / n_steps), math.log(fast), n_buffers)))
    k = np.unique(np.rint(np.geomspace(1, n_steps, 200)))
    j = np.arange(1.0, n_steps + 1)
    target = np.cumprod((2 * j - 1) / (2 * j))[k.astype(np.intp) - 1]
    weights, _ = nnls(decays ** (k[:, None] - 1) / target[:, None], np.ones(len(k)))
    rounded = [tuple(float(f"{value:.9g}") for value in found) for found in (weights, decays)]
    return ExponentialSum(*rounded)


NOISE = square_root(MEMORY, N_BUFFERS, 0.3, 0.5)


@dataclass(frozen=True, eq=False)
class StreamState:
    """A stream so far: functions of what was released, and of numbers of records."""

    n_samples: int
    n_steps: int
    # The stage: records at its beginning, its centre and the present iterate in public coordinates,
    # the noisy sum of its gradients in units of the clip bound, and noise that is yet to cancel.
    begun: int
    center: Array
    model: Array
    total: Array
    pending: Array
    # The weighted average of all iterates, in public coordinates.
    mean: Array
    basis: Basis | None = None


# Sums of gradients, second moment of a stage and number of its rows: private, without noise.
Hidden = tuple[Array, Array, int]


class Stage(NamedTuple):
    """Public constants between two second moments."""

    end: int
    clip_norm: float
    step_size: float
    largest_step: int
    # Rows are cut at it for the second moment.
    row_cut: float
    averaging_power: float
    # For what is public of them: coordinates and the basis.
    rows: Rows


@dataclass(kw_only=True, eq=False, repr=False)
class DualAveraging(Algorithm):
    r"""Dual averaging of records that arrive, with noise that cancels in sums of gradients.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)` with ``partial_fit``, however many records
    arrive. Step t takes one record, or some of them, which no other step takes. With
    :math:`w_0 = 0` and the sum :math:`g_t` of their clipped gradients at :math:`w_{t-1}`,

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
    from the average so far. Rows are cut for it at a norm that opens up to the declared one.

    Parameters
    ----------
    step_size : float or "auto", default="auto"
        Eta, in [1e-100, 1e100]. "auto" follows from the scale of the noise, so that the scores
        of an iterate stay meaningful, and from a public bound of the curvature.
    clip_norm : float or "auto", default="auto"
        Bound of the Euclidean norm of a record's gradient, in units of the typical norm of a row in
        the basis of the stage, in [1e-100, 1e100]. "auto" opens up from stage to stage,
        with the root of the number of records.
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

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(6000, 3))
    >>> y = (X @ [2.0, -2.0, 0.0] + 0.3 * rng.logistic(size=6000) > 0).astype(int)
    >>> model = DPAdmmLogisticRegression(algorithm="dual-averaging", epsilon=1.0, classes=[0, 1],
    ...     feature_bounds=(-1, 1), random_state=0)
    >>> for rows in np.split(np.arange(6000), 3):
    ...     model = model.partial_fit(X[rows], y[rows])
    >>> model.n_samples_seen_, model.score(X, y) > 0.85
    (6000, True)
    >>> round(model.privacy_.epsilon(), 3)  # against an observer of every state
    1.0
    """

    setting = "central"
    units = ("record",)
    streaming = True
    conditionable = False  # It releases second moments of its own, in no first pass.

    step_size: float | str = parameter("auto", AUTO, SIZE)
    clip_norm: float | str = parameter("auto", AUTO, SIZE)
    horizon: int = parameter(10_000, COUNT)

    @property
    def n_expected(self) -> int:
        """How many records of a stream are expected."""
        self.check_parameters()
        return int(self.horizon)

    def check_facts(self, facts: Facts) -> None:
        """Refuse units that would have to be found in a first pass."""
        got = "scale='private' with a stream"
        refuse("Declare feature_bounds.", (facts.scaling is not None, got, "scale=None"))

    def released(self, facts: Facts, budget: Budget) -> Released:
        """Second moments of stages, and the sums of gradients of a stream without end."""
        shape, coordinates = facts.model_shape, facts.coordinates
        if not budget.is_private:
            return Settings(()), not_private(GRADIENTS, shape, facts.observers)

        def adding(n: int) -> Facts:
            """The facts with the rounding of sums over so many records."""
            return replace(facts, rounding=rounding_factor(n_samples=n, coordinates=coordinates))

        mu, of_step = facts.remaining_mu(budget), adding(LARGEST_STEP)
        moments: tuple[Release, ...] = ()
        if facts.n_parameters <= LARGEST_MATRIX:
            share, of_stage = CONDITIONING_SHARE, adding(LONGEST_STAGE)
            mu_of_moments = mu * math.sqrt(share)
            # Matrices of steps are added one by one, and a step can be one record.
            longer = 4 * LONGEST_STAGE**2 * 2.0**-53 * coordinates.amplification
            of_stage = replace(of_stage, rounding=of_stage.rounding + longer)
            planned = plan_conditioning(of_stage, budget, mu=mu_of_moments)
            moments, mu = (replace(planned.release, repeats=None),), mu * math.sqrt(1 - share)
            # Beside many records noise is next to nothing: the largest condition number.
            of_step = replace(of_step, conditioning=of_records(planned, 1, 1e100))
        sensitivity = ClippedSum(of_step).sensitivity * NOISE.norm() * (1 + 1e-12)
        sensitivity += NOISE.rounding(1.001 * LARGEST_STEP, LONGEST_STAGE)
        gradients = replace(gaussian_release(GRADIENTS, shape, (sensitivity,), mu), repeats=None)
        settings = self.resolved(step_size="auto", clip_norm="auto", memory=MEMORY)
        return settings, *(*moments, gradients)

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

    def start(self, plan: Plan, problem: Problem) -> StreamState:
        """The public state before any record."""
        zeros = np.zeros((plan.facts.n_parameters, plan.facts.loss.n_outputs))
        return StreamState(0, 0, 0, zeros, zeros, zeros, new_buffers(zeros), zeros)

    def arrive(
        self, plan: Plan, problem: Problem, gate: Gate, state: StreamState, hidden: Hidden | None
    ) -> tuple[StreamState, Hidden]:
        """Take steps with the records that have arrived, in their order.

        Without the buffers of earlier steps a new block of noise begins.
        """
        d = 0 if conditioning_of(plan) is None else plan.facts.n_parameters
        buffers, square = new_buffers(state.total), np.zeros((d, d))
        if hidden is None:
            state, hidden = replace(state, pending=buffers), (buffers, square, 0)
        first, n, stage = 0, problem.rows.n_samples, self._stage(plan, problem, state)
        while first < n:
            left = min(n - first, stage.end - state.n_samples)
            size = min(max(state.n_samples // PART_OF_RECORDS, 1), stage.largest_step, left)
            step = part_of(problem, first, size)
            state, hidden = self._step(plan, step, gate, stage, state, hidden)
            first += size
            if state.n_samples == stage.end:
                state, hidden = self._next(plan, gate, state, hidden), (buffers, square, 0)
                stage = self._stage(plan, problem, state)
        return state, hidden

    def solution(self, plan: Plan, problem: Problem, state: StreamState) -> Solution:
        """The average of the iterates, with what is known of its noise."""
        facts, stage = plan.facts, self._stage(plan, problem, state)
        noise_std = stage.clip_norm * plan.releases[-1].noise_std * NOISE.norm()
        # Noise of a gradient over the curvature of the records, or as far as steps have come.
        n = max(state.n_samples - state.begun, state.begun)
        curvature = 0.5 * defaults.usual_smoothness(facts.loss) * stage.rows.loading * n
        variance = np.square(noise_std / np.maximum(curvature, 1 / stage.step_size))
        known = {"n_iter": state.n_steps, "derivative_bound": math.inf}
        solution = noisy_solution(facts, stage.rows, state.mean, variance, **known)
        bounded = replace(solution, derivative_bound=stage.clip_norm / stage.rows.typical_norm)
        bounded = without_stretch(plan, replace(problem, rows=stage.rows), bounded)
        # Not to be corrected again, in coordinates without the basis.
        return replace(bounded, derivative_bound=math.inf)

    def _stage(self, plan: Plan, problem: Problem, state: StreamState) -> Stage:
        """Constants of the present stage, from the plan, counts and released moments.

        Proposition: in the basis of a moment S of rows cut at R, rows of norm at most B have a
        second moment of at most ``(B / R)^2`` times the identity, beside noise in S: a cut row is
        at least R / B times as long, and the basis makes S at most the identity. So a step of b
        records, of an eta with ``eta b smoothness (B / R)^2 <= 1``, does not overshoot whatever the
        data, as long as the moment of its rows is that of S. For single records the trace of the
        moment takes the place of b. Without a basis both are at most B^2.
        """
        facts, release, begun = plan.facts, plan.releases[-1], state.begun
        moments, rows = conditioning_of(plan), part_of(problem, 0, 1, state.basis).rows
        first = PLAIN_FIRST_STAGE if moments is None else math.ceil(FIRST_STAGE * moments.edge)
        length = (GROWTH - 1) * begun if begun else max(first, LEAST_FIRST_STAGE)
        end, smoothness = begun + int(min(length, LONGEST_STAGE)), facts.loss.smoothness
        # The rule of stored records, for as many as there are in the end.
        known = None if state.basis is None else moments
        alike = replace(facts, n_samples=end, conditioning=known, max_iter=defaults.USUAL_STEPS)
        signal = signal_for_each(plan, end)
        opening, calm, score = CLASS_OPENING, CLASS_CALM, CLASS_SCORE_NOISE / smoothness
        rule = defaults.derivative_unit(facts.loss) * defaults.largest_weight(facts.loss)
        if defaults.is_regression(facts):
            opening, calm, score = REGRESSION_OPENING, REGRESSION_CALM, SCORE_NOISE
            rule = defaults.default_steps(alike, mu_of(release))[1]
        rule *= min(max(LEAST_CLIP, opening * math.sqrt(signal)), LARGEST_CLIP)
        score *= min((CALM_SIGNAL / signal) ** calm, 1.0)
        clip_norm = rows.clip_unit * float(rule if self.clip_norm == "auto" else self.clip_norm)
        size = min(defaults.typical_row(facts), facts.row_norm) ** 2
        noise_std, longest = clip_norm * release.noise_std, facts.row_norm**2
        # Bounds of the trace and of the largest eigenvalue of the second moment.
        trace = largest = longest
        if state.basis is not None:
            size, largest = float(rows.loading.sum()), longest / row_cut(plan, begun) ** 2
            trace = size * largest
        short = min(max(SETTLED_SIGNAL / signal, 0.1), 1.0)
        of_record, power = RECORD_STEP * short, max(AVERAGING_POWER * short, SETTLED_POWER)
        step_size = min(score / (noise_std * math.sqrt(size)), of_record / (smoothness * trace))
        step_size = float(step_size if self.step_size == "auto" else self.step_size)
        most = int(min(max(LONGEST_STEP / (step_size * smoothness * largest), 1), LARGEST_STEP))
        return Stage(end, clip_norm, step_size, most, row_cut(plan, end), power, rows)

    def _step(
        self,
        plan: Plan,
        problem: Problem,
        gate: Gate,
        stage: Stage,
        state: StreamState,
        hidden: Hidden,
    ) -> tuple[StreamState, Hidden]:
        """A step with the records of a problem; symbols as above."""
        (buffers, square, n_hidden), rows, clip_norm = hidden, stage.rows, stage.clip_norm
        if conditioning_of(plan) is not None:
            square = square + second_moment(stage.row_cut, problem)()
        n, seen = problem.rows.n_samples, part_of(problem, 0, problem.rows.n_samples, state.basis)
        gradients = ClippedSum(plan.facts, clip_norm).over(seen)
        gradient = gradients(rows.from_coordinates(state.model)) / clip_norm
        noisy = gate.release(GRADIENTS, gradient + NOISE.mixed(buffers))
        new = noisy - NOISE.mixed(state.pending)
        total, n_samples = state.total + new, state.n_samples + n
        point = rows.from_coordinates(state.center) - stage.step_size * clip_norm * total
        strength = stage.step_size * (n_samples - state.begun)
        model = penalty_operator(plan.facts.penalty, strength, rows)(point)
        power = stage.averaging_power
        share = n * (1 + power) / (n_samples + n * power)
        state = replace(
            state,
            n_samples=n_samples,
            n_steps=state.n_steps + 1,
            model=model,
            total=total,
            pending=NOISE.after(state.pending, new),
            mean=state.mean + share * (model - state.mean),
        )
        problem.progress(state.n_steps)
        return state, (NOISE.after(buffers, gradient), square, n_hidden + n)

    def _next(self, plan: Plan, gate: Gate, state: StreamState, hidden: Hidden) -> StreamState:
        """Release the second moment of a stage; the next one starts from the average so far."""
        zeros = np.zeros_like(state.total)
        buffers, begun, mean = new_buffers(zeros), state.n_samples, state.mean
        state = replace(state, begun=begun, center=mean, model=mean, total=zeros, pending=buffers)
        if (moments := conditioning_of(plan)) is None:
            return state
        _, square, n_hidden = hidden
        noisy = gate.release(SECOND_MOMENT, packed(square)) / n_hidden
        known = replace(of_records(moments, 1, n_hidden), row_norm=row_cut(plan, begun))
        return replace(state, basis=basis_from_release(noisy, known))


def conditioning_of(plan: Plan) -> Conditioning | None:
    """How second moments become a basis; None where there are too many parameters."""
    release = plan.releases[0]
    return conditioning_by(plan.facts, release) if release.name == SECOND_MOMENT else None


def of_records(moments: Conditioning, n_moments: int, n_records: float) -> Conditioning:
    """The conditioning by a mean over records, of whom sums were released so many times."""
    noise_std = moments.release.noise_std * math.sqrt(n_moments) / n_records
    return replace(moments, release=replace(moments.release, noise_std=noise_std))


def mu_of(release: Release) -> float:
    """The Gaussian-DP parameter of a release."""
    return math.hypot(*release.sensitivities) / release.noise_std


def signal_for_each(plan: Plan, n_samples: int) -> float:
    """The signal of so many records of a stream, for each parameter."""
    facts = replace(plan.facts, n_samples=n_samples)
    return facts.signal(mu_of(plan.releases[-1])) / math.prod(facts.model_shape)


def row_cut(plan: Plan, end: int) -> float:
    """Norm of rows in the second moment of the stage that ends there, at most that of all rows."""
    moments = conditioning_of(plan)
    edge = math.inf if moments is None else of_records(moments, 1, end).edge
    return defaults.opened_cut(plan.facts, edge)


def new_buffers(total: Array) -> Array:
    """Buffers of a block of noise that begins."""
    return np.zeros((N_BUFFERS, *total.shape))


def part_of(problem: Problem, first: int, size: int, basis: Basis | None = None) -> Problem:
    """The problem of some neighbouring records, in a basis."""
    records = slice(first, first + size)
    rows = problem.rows.take([records])
    rows = rows if basis is None else rows.in_basis(basis, problem.engine.run)
    return replace(problem, rows=rows, target=problem.target[records])
