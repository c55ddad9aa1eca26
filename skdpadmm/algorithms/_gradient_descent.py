"""Private proximal gradient descent, with all coordinates in a step or with one.

Sources: the noisy fixed-point iteration with one block, or one for each coordinate (Cyffers, Bellet
& Basu, "From Noisy Fixed-Point Iterations to Private ADMM", ICML 2023, Propositions 1 and 2); the
last iterate of a contraction (Bok, Su & Altschuler, "Shifted interpolation for differential
privacy", ICML 2024); a single pass (Feldman, Mironov, Talwar & Thakurta, "Privacy amplification by
iteration", FOCS 2018) with batches that grow (Feldman, Koren & Talwar, "Private stochastic convex
optimization: optimal rates in linear time", STOC 2020); coordinates (Mangold, Bellet, Salmon &
Tommasi, "Differentially private coordinate descent for composite empirical risk minimization", ICML
2022, Algorithm 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm._sklearn import AT_LEAST_0, AUTO, FRACTION, SIZE, Interval, OneOf, parameter
from skdpadmm.algorithms import _algorithm as base
from skdpadmm.algorithms import _last_iterate as last_iterate
from skdpadmm.algorithms._algorithm import Algorithm, Operator, penalty_operator, refuse
from skdpadmm.algorithms._certified_solves import LossBounds, score_rounding, typical_norm
from skdpadmm.algorithms._clipped_sums import ClippedSum
from skdpadmm.algorithms._defaults import default_coordinate_steps, default_descent
from skdpadmm.algorithms._messages import SLIGHTLY_MORE, calibrated_multiplier
from skdpadmm.algorithms._noise_left import rows_in_mean
from skdpadmm.penalties import L1, ElasticNet, NoPenalty, Penalty, SquaredL2
from skdpadmm.privacy import (
    GaussianDP,
    Guarantee,
    PoissonSubsampledGaussian,
    compose,
    last_iterate_mu,
    proximal_gradient_contraction,
    single_use_mu,
)
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
from skdpadmm.records import Coordinates

GRADIENT = "mean gradient"
ITERATE = "iterate"
COORDINATE = "coordinate gradient"
# Penalties that are sums over coefficients.
SEPARABLE = (NoPenalty, L1, SquaredL2, ElasticNet)


@dataclass(kw_only=True, eq=False, repr=False)
class GradientDescent(Algorithm):
    r"""Proximal gradient descent with clipped gradients and Gaussian noise.

    Solves :math:`\min_w \frac1n \sum_i f_i(w) + r(w)`. From :math:`w_0 = w_{-1} = 0`, each of K
    steps computes

    .. math::

        y &= w_k + \beta (w_k - w_{k-1}) \\
        u &= y - \eta \Big( \frac1{|B|} \sum_{i \in B} \mathrm{clip}(\nabla f_i(y), C)
             + N(0, s^2 I) \Big), \qquad w_{k+1} = \mathrm{prox}_{\eta r}(u)

    where B holds all records, or with ``schedule="cyclic"`` the k-th batch of a single pass. With
    ``batch_fraction=q`` below 1 it is DP-SGD: every record is in B with probability q, drawn anew
    in each step, and q n takes the place of the size of B, which is secret. It returns
    :math:`\mathrm{prox}_{\eta r}` of the average of the last u.

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
        Nesterov's, in [0, 1). Uses no budget where the whole path is released, and must be 0
        elsewhere. "auto" is 0.8 in coordinates that are not conditioned and 0 in all other cases.
    batch_fraction : float, default=1.0
        q, in [1e-6, 1]. Below 1 the guarantee is that of Poisson sampling, which takes the extra
        ``skdpadmm[accounting]``, and "auto" steps and clips are those for as much noise without
        batches. A step still passes over all rows.
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

    **Path.** The mean gradient has sensitivity ``c C / n`` given what was released before, also
    where n persons are the unit and the mean gradient of the rows of each is clipped, so the
    path is GDP with ``mu = sqrt(K) c C / (n s)``: exact composition. This needs neither convexity
    nor a bound of the step.

    **Batches.** Noise is added whoever is in a batch, also if nobody is, so a step is a Poisson
    sampled Gaussian mechanism of multiplier ``zeta = s q n / C``: zero-out compares
    :math:`N(0, \zeta^2)` with :math:`(1 - q) N(0, \zeta^2) + q N(1, \zeta^2)`, replace-one
    :math:`(1 - q) N(0, \zeta^2) + q N(\pm 1, \zeta^2)` with each other, and K steps compose by
    their privacy loss distribution. Persons are sampled with all of their rows. Whoever sees the
    model, or the whole path, does not see who was in a batch.

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
    .. [4] M. Abadi et al., "Deep learning with differential privacy", CCS 2016, Algorithm 1; V.
       Doroshenko, B. Ghazi, P. Kamath, R. Kumar, P. Manurangsi, "Connect the dots: tighter discrete
       approximations of privacy loss distributions", PETS 2022.

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
    units = ("record", "person")  # Gradients of records, or means of persons, are clipped.
    noiseless = True

    step_size: float | str = parameter("auto", AUTO, SIZE)
    clip_norm: float | str = parameter("auto", AUTO, SIZE)
    momentum: float | str = parameter("auto", AUTO, Interval(Real, 0, 1, closed="left"))
    tail_fraction: float | str = parameter("auto", AUTO, FRACTION)
    schedule: str = parameter("full", OneOf("full", "cyclic"))
    guarantee: str = parameter("auto", AUTO, OneOf("path", "last"))
    order_seed: int = parameter(0, AT_LEAST_0)
    batch_fraction: float = parameter(1.0, Interval(Real, 1e-6, 1.0, closed="both"), is_later=True)

    @property
    def conditionable(self) -> bool:
        """Whether it works in any basis: not where curvature must have a public bound."""
        return not self._is_hidden

    @property
    def releases_path(self) -> bool:
        """Whether every iterate counts as released: not where only the last is seen."""
        return not self._is_hidden

    @property
    def takes_corners(self) -> bool:
        """Whether no curvature has to be bounded: not where only the last iterate is seen."""
        return not self._is_hidden

    @property
    def distributed(self) -> bool:
        """Whether its records may be elsewhere: not those of random batches."""
        return self.schedule == "full" and self.batch_fraction == 1

    @property
    def takes_add_remove(self) -> bool:
        """Whether the number of records may be private: not where batches or steps rest on it."""
        return self.distributed and not self._is_hidden

    @property
    def _is_hidden(self) -> bool:
        """Whether only the last iterate is seen."""
        return self.schedule == "cyclic" or self.guarantee == "last"

    def check_facts(self, facts: Facts) -> None:
        """Refuse parameters that contradict each other."""
        only_last = self.schedule == "cyclic" and self.guarantee == "path"
        is_plain = self.momentum in ("auto", 0) and self.tail_fraction == "auto"
        got = f"momentum={self.momentum!r} and tail_fraction={self.tail_fraction!r}"
        got += " with a guarantee of the last iterate"
        refuse(
            "Only steps that nobody sees, and that move no two iterates apart, hide a record. Use"
            " schedule='full' and guarantee='path'.",
            (only_last, "guarantee='path' with schedule='cyclic'", "'last'"),
            (self._is_hidden and not is_plain, got, "momentum=0 and tail_fraction='auto'"),
        )
        if self._is_hidden and self.batch_fraction < 1:
            raise ValueError(
                f"Got batch_fraction={self.batch_fraction} with a guarantee of the last iterate,"
                " expected 1.0, or schedule='full' and guarantee='path'. Steps on secret batches"
                " have a guarantee of the path."
            )
        if self._is_hidden and facts.is_weighted:
            raise ValueError(
                "Got a guarantee of the last iterate for persons, or with sample weights, expected"
                " schedule='full' and guarantee='path'. The mean gradient of a person is clipped as"
                " a vector, which is no contraction, and that of weighted records is not examined."
            )

    def released(self, facts: Facts, budget: Budget) -> tuple[Settings, Release]:
        """Each mean gradient, or the iterates of which only the last is seen."""
        hidden, mu, n_iter = self._is_hidden, facts.remaining_mu(budget), facts.max_iter
        batches = None
        if self.batch_fraction < 1 and budget.is_private:
            batches, mu = batch_release(facts, budget, float(self.batch_fraction))
        if self.schedule == "cyclic":
            n_iter = max(1, min(n_iter, facts.n_samples // 2))
        given = 0.0 if hidden else None if self.momentum == "auto" else float(self.momentum)
        step_size, clip_norm, momentum = default_descent(facts, mu, n_iter, momentum=given)
        if hidden:
            # Longer steps need not contract; shorter ones always do.
            step_size = min(step_size, last_iterate.longest_non_expansive_step(facts))
            if facts.loss.n_outputs > 1:
                clip_norm = last_iterate.relative_open_clip(facts)
        settings = self.resolved(
            n_iter=n_iter,
            step_size=step_size,
            clip_norm=clip_norm,
            momentum=momentum,
            tail_fraction=0.0 if hidden else 0.5,
            guarantee="last" if hidden else "path",
        )
        if hidden:
            return self._last_release(facts, settings, mu)
        if batches is not None:
            return settings, batches
        sensitivity = ClippedSum(facts).sensitivity / facts.n_samples
        shape = facts.model_shape
        return settings, last_iterate.path_release(GRADIENT, shape, sensitivity, n_iter, mu)

    def _last_release(
        self, facts: Facts, settings: Settings, mu: float
    ) -> tuple[Settings, Release]:
        """Settings with the contraction that is certified, and the iterates that it hides."""
        if math.isinf(mu):
            shape, times = facts.model_shape, settings.n_iter
            return settings, not_private(ITERATE, shape, facts.observers, times=times)
        base.check_zero_at_zero(facts.penalty, facts.coordinates.n_features)
        gamma, clip_norm, n_iter = settings.step_size, settings.clip_norm, settings.n_iter
        last_iterate.check_smooth_steps(facts, gamma, clip_norm, otherwise="guarantee='path'")
        sensitivity, smoothness = ClippedSum(facts).sensitivity, last_iterate.curvature_bound(facts)
        if settings.schedule == "cyclic":
            contraction, amplified, spread = 1.0, 1.0, math.sqrt(n_iter)
            sensitivities = sensitivity / batch_sizes(facts.n_samples, settings)
            # A record's own shift spreads over the steps that follow, rounding is met in every
            # step: by the triangle inequality in the space of steps the two add up.
            worst = float((single_use_mu(1.0, n_iter) * sensitivities).max())
        else:
            # Units that are found privately are not known yet.
            curvature = facts.penalty_curvature if facts.scaling is None else 0.0
            curvature *= 1 - last_iterate.SLACK
            contraction = proximal_gradient_contraction(gamma, 0.0, smoothness, curvature)
            # The formula is linear in its first argument.
            amplified, spread = last_iterate_mu(1.0, contraction, n_iter), 1.0
            sensitivities = np.full(n_iter, sensitivity / facts.n_samples)
            worst = sensitivity / facts.n_samples
        longest = clip_norm * typical_norm(facts)
        bounds = LossBounds(row_norm=facts.row_norm, gradient_norm=longest, curvature=smoothness)
        of_scores = gamma * score_rounding(facts, bounds) / facts.n_samples
        # The proximal step counts the point and its image, both as long as a state.
        rounding = 2 * last_iterate.certified_rounding(facts) + of_scores + last_iterate.SUMS
        release = last_iterate.last_release(
            facts,
            ITERATE,
            tuple(sensitivities.tolist()),
            mu,
            unit=gamma * longest,
            relative_error=rounding,
            worst=worst,
            amplified=amplified,
            spread=spread,
        )
        return settings.but(contraction=contraction), release

    def assumptions(self, facts: Facts, budget: Budget) -> tuple[str, ...]:
        """What hides the iterates before the last, or who is in a batch."""
        if self.batch_fraction < 1 and budget.is_private:
            drawn = f"Which {facts.unit}s are in a batch is drawn at random"
            return (f"{drawn}, and only the curator knows.",)
        return last_iterate.premises(facts) if self._is_hidden else ()

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Iterate as planned; symbols as above."""
        settings, facts, rows = plan.settings, plan.facts, problem.rows
        clip_norm, sampling = settings.clip_norm * rows.clip_unit, float(self.batch_fraction)
        gradients = ClippedSum(facts, clip_norm).over(problem)
        # Iterates and steps in units of the longest step that clipped gradients can make.
        unit = settings.step_size * clip_norm
        prox = penalty_operator(facts.penalty, settings.step_size, rows)
        shape, sizes = facts.model_shape, batch_sizes(facts.n_rows, settings)
        is_cyclic = settings.schedule == "cyclic"
        step_of = batch_order(sizes, settings.order_seed) if is_cyclic else None
        noise_std = plan.releases[-1].noise_std
        radius = unit * last_iterate.state_radius(settings.n_iter, noise_std, math.prod(shape))
        w = previous = tail = np.zeros(shape)
        for k in range(settings.n_iter):
            point = w + settings.momentum * (w - previous)
            batch = None if step_of is None else step_of == k
            if sampling < 1:
                # All rows of a person are in a batch, or none.
                drawn = gate.uniform((facts.n_samples,)) < sampling
                batch = np.repeat(drawn, problem.per_person)
            # Never divided by how many there are in it, which data of others would show.
            mean = gradients(point, batch) / (clip_norm * sampling * sizes[k])
            if settings.guarantee == "last":
                # The iterate itself takes the noise and the rounding of the gate: with a noisy
                # gradient, what is left of the iterate below the grid would stay without any.
                u = last_iterate.within(radius, unit * gate.release(ITERATE, point / unit - mean))
            else:
                u = point - unit * gate.release(GRADIENT, mean)
            model = prox(u)
            previous, w = w, rows.from_coordinates(model)
            if k >= settings.n_iter - settings.n_averaged:
                tail = tail + u / settings.n_averaged
            problem.progress(k + 1, model)
        # One proximal step after averaging: an average of sparse vectors would not be sparse.
        return Solution(
            parameters=prox(tail),
            n_iter=settings.n_iter,
            derivative_bound=clip_norm / rows.typical_norm * rows_in_mean(facts),
        )


def batch_release(facts: Facts, budget: Budget, sampling: float) -> tuple[Release, float]:
    """Mean gradients over secret batches, and the mu of full ones with as much noise."""
    n_expected, n_iter = sampling * facts.n_samples, facts.max_iter
    sensitivity, factor = ClippedSum(facts).sensitivity, facts.neighboring.sensitivity_factor

    def family(multiplier: float) -> Guarantee:
        return PoissonSubsampledGaussian(sampling, multiplier, n_iter, facts.neighboring)

    prior = compose(GaussianDP(0.0), *(release.guarantee for release in facts.preparations))
    multiplier = calibrated_multiplier(family, budget, prior)
    # Under both relations it is over what a record adds to a sum, rounding included.
    noise_std = multiplier * sensitivity / factor * SLIGHTLY_MORE
    release = Release(
        name=GRADIENT,
        shape=facts.model_shape,
        sensitivities=(sensitivity / n_expected,) * n_iter,
        noise_std=noise_std / n_expected,
        views=last_iterate.seen_in_model(family(multiplier)),
    )
    return release, sampling * math.sqrt(n_iter) * sensitivity / noise_std


def batch_sizes(n_samples: int, settings: Settings) -> NDArray[np.intp]:
    """Records in each step, from public facts.

    A record with m steps left, its own included, is hidden by the noise of m steps: sizes in
    proportion to ``1 / sqrt(m)`` protect all records alike. These are the integers whose least
    protected record is protected best.
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
    """The step in which each record is used, by a public permutation of the positions."""
    in_turn = np.repeat(np.arange(len(sizes)), sizes)
    return np.random.default_rng(seed).permutation(in_turn)


class _Sizes(Interval):
    """A size for all parameters, or one for each."""

    expected = f"{SIZE.expected}, or one for each parameter, the intercept last"

    def is_satisfied_by(self, val: Any) -> bool:
        """Whether all entries of a value are in the interval."""
        values = np.asarray(val)
        if values.dtype.kind not in "iuf" or values.ndim > 1:
            return False
        return all(map(super().is_satisfied_by, np.atleast_1d(values)))


SIZES = _Sizes(Real, SIZE.low, SIZE.high, closed="both")


def _plain_sizes(value: Any) -> float | tuple[float, ...]:
    values = np.asarray(value, dtype=np.float64)
    return float(values) if values.ndim == 0 else tuple(values.tolist())


@dataclass(kw_only=True, eq=False, repr=False)
class CoordinateDescent(Algorithm):
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
        In (0, 1]: share of the passes, at the end, that is averaged; all of it is released.
    order_seed : int, default=0
        Seed of the public order of the coordinates; no part of the privacy.

    Notes
    -----
    **Guarantee.** Adversary "model", who sees the whole released path; unit: one record. A release
    is a coordinate of the mean gradient in units of its clip bound, of sensitivity
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

    setting = "central"
    units = ("record",)  # Gradients of records are clipped.
    conditionable = False
    releases_path = True  # Whoever sees the model counts as seeing every step.
    noiseless = True
    distributed = True

    step_size: float | Sequence[float] | str = parameter("auto", AUTO, SIZES, convert=_plain_sizes)
    clip_norm: float | Sequence[float] | str = parameter("auto", AUTO, SIZES, convert=_plain_sizes)
    schedule: str = parameter("cyclic", OneOf("cyclic", "random"))
    tail_fraction: float = parameter(0.5, FRACTION)
    order_seed: int = parameter(0, AT_LEAST_0)

    def check_facts(self, facts: Facts) -> None:
        """Refuse what is no sum over coordinates, and sequences of another length."""
        expected = f"one of {sorted(kind.__name__ for kind in SEPARABLE)}, sums over coefficients"
        got = f"penalty {type(facts.penalty).__name__} for CoordinateDescent"
        is_sum = isinstance(facts.penalty, SEPARABLE)
        refuse("Use GradientDescent or ConsensusADMM.", (not is_sum, got, expected))
        expected = f"'auto', a float, or {facts.n_parameters} of them"
        for name, value in (("step_size", self.step_size), ("clip_norm", self.clip_norm)):
            is_other = np.shape(value) not in ((), (facts.n_parameters,))
            refuse("The intercept comes last.", (is_other, f"{name}={value!r}", expected))

    def released(self, facts: Facts, budget: Budget) -> tuple[Settings, Release]:
        """One coordinate of the mean gradient, in each step of each pass."""
        mu = facts.remaining_mu(budget)
        step_size, clip_norm = default_coordinate_steps(facts, mu)
        settings = self.resolved(n_iter=facts.max_iter, step_size=step_size, clip_norm=clip_norm)
        n_steps, shape = facts.max_iter * facts.n_parameters, (facts.loss.n_outputs,)
        sensitivity = ClippedSum(facts).sensitivity / facts.n_samples
        return settings, last_iterate.path_release(COORDINATE, shape, sensitivity, n_steps, mu)

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Iterate as planned; symbols as above."""
        settings, facts, rows = plan.settings, plan.facts, problem.rows
        d, n_outputs = facts.n_parameters, facts.loss.n_outputs
        steps = np.broadcast_to(settings.step_size, d) / facts.loss.smoothness
        clips = np.broadcast_to(settings.clip_norm, d)
        gradients = ClippedSum(facts).of_coordinates(problem, clips)
        prox = coordinate_operators(facts.penalty, steps, rows.coordinates)
        w, u, tail = (np.zeros((d, n_outputs)) for _ in range(3))
        order = coordinate_order(settings.schedule, d, settings.n_iter, settings.order_seed)
        last, change = int(order[0]), np.zeros(n_outputs)
        for step, j in enumerate(order.tolist()):
            mean = gradients(j, last, change) / (clips[j] * rows.n_samples)
            released = gate.release(COORDINATE, mean)
            u[j] = w[j] - steps[j] * clips[j] * released
            moved = prox[j](u[j][None])[0]
            last, change = j, moved - w[j]
            w[j] = moved
            n_done, rest = divmod(step + 1, d)
            if rest == 0:
                if n_done > settings.n_iter - settings.n_averaged:
                    tail += u / settings.n_averaged
                problem.progress(n_done, w)
        # One proximal step after averaging: an average of sparse vectors would not be sparse.
        parameters = np.concatenate([prox[j](tail[j][None]) for j in range(d)])
        return Solution(
            parameters=parameters,
            n_iter=settings.n_iter,
            derivative_bound=float(np.linalg.norm(clips)) / rows.typical_norm,
        )


def coordinate_order(
    schedule: str, n_parameters: int, n_passes: int, seed: int
) -> NDArray[np.intp]:
    """The coordinate of each step: in each pass a permutation, or random ones; both public."""
    rng = np.random.default_rng(seed)
    if schedule == "random":
        return rng.integers(n_parameters, size=n_passes * n_parameters)
    return np.concatenate([rng.permutation(n_parameters) for _ in range(n_passes)])


def coordinate_operators(
    penalty: Penalty, steps: NDArray[np.float64], coordinates: Coordinates
) -> list[Operator]:
    """Proximal operators of a separable penalty on the user's coefficients, one by one."""

    def of_feature(step: float, scale: float) -> Operator:
        # In the user's units the Euclidean metric of public coordinates is ``1 / scale**2``.
        operator = penalty.proximal_operator(step, metric=np.array([scale**-2.0]))
        return lambda point: operator(point * scale) / scale

    scales = coordinates.coefficient_scale.tolist()
    operators = [of_feature(step, s) for step, s in zip(steps.tolist(), scales, strict=False)]
    # An intercept is not penalised.
    return [*operators, lambda point: point]
