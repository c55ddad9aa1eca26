"""A fixed-point iteration of the user's own on noisy mean gradients.

Source: the general noisy fixed-point iteration of Cyffers, Bellet & Basu, "From Noisy Fixed-Point
Iterations to Private ADMM for Centralized and Federated Learning" (ICML 2023), Algorithm 1, where
what is noisy is the mean of clipped contributions, so that nothing has to be believed of the map.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm._sklearn import AUTO, SIZE, parameter
from skdpadmm.algorithms import _algorithm as base
from skdpadmm.algorithms import _last_iterate as last_iterate
from skdpadmm.algorithms._certified_solves import typical_norm
from skdpadmm.algorithms._clipped_sums import ClippedSum
from skdpadmm.algorithms._defaults import default_steps
from skdpadmm.algorithms._noise_left import rows_in_mean
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Release, Settings, Solution
from skdpadmm.records import Rows

Array = NDArray[np.float64]
# Maps a step to the proximal operator of the penalty.
Operators = Callable[[float], base.Operator]
GRADIENT = "mean gradient"


def name_of(function: Any) -> str:
    """What a plan calls a function; of a partial one, that of the whole."""
    function = getattr(function, "func", function)
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


@dataclass(kw_only=True, eq=False, repr=False)
class FixedPointIteration(base.Algorithm):
    r"""Iteration of a map of your own on clipped gradients with Gaussian noise.

    For the objective :math:`\frac1n \sum_i f_i(w) + r(w)`, each of K = `max_iter` steps computes,
    from a state :math:`u_0`,

    .. math::

        z = h(u_k), \qquad
        g = \frac1n \sum_i \mathrm{clip}(\nabla f_i(z), C) + N(0, s^2 I), \qquad
        u_{k+1} = f(u_k, g, k)

    and returns :math:`h(u_K)`. The maps f and h are yours. They see what was released and nothing
    else, and have the proximal operator of r.

    Parameters
    ----------
    update : callable
        ``f(state, gradient, k, prox)``, the next state, of the shape of the last one. `gradient`
        has the shape of the model, (n_parameters, n_outputs), where a parameter of the intercept
        comes last, k counts from 0, and ``prox(point, step)`` is
        :math:`\mathrm{prox}_{\mathrm{step} \cdot r}` of an array of the shape of the model.
    at : callable, default=None
        ``h(state, prox)``, the point at which gradients are taken, of the shape of the model. None:
        the state itself.
    state : array-like, default=None
        The first state, which is public. Its last two axes are broadcast to the shape of a model:
        ``np.zeros((2, 1, 1))`` becomes two models. None: one model of zeros.
    clip_norm : float or "auto", default="auto"
        C, in units of the typical norm of a row, as of `GradientDescent`. In [1e-100, 1e100].

    Notes
    -----
    **Guarantee.** Unit: one record, or one person, whose mean gradient is then clipped; adversary
    "model", who sees all that was released. A mean gradient has sensitivity ``c C / n``, c = 2 for
    replace-one and 1 for zero-out, at every point that earlier releases led to. So the path is GDP
    with ``mu = sqrt(K) c C / (n s)`` for any f and h: exact composition. No contraction is needed,
    so none is believed, and there is no guarantee of the last iterate alone.

    **Maps.** Arrays are in the coordinates that the algorithm works in, conditioned or not, as for
    the step sizes of `GradientDescent`. f and h should be deterministic, and functions of a module
    where a fitted model is pickled. Before any data is read, the plan runs all steps with random
    gradients of the planned size: maps that fail, or return other shapes or infinite numbers, are
    refused there. Later they can only fail by what was released, so that errors reveal nothing
    else. A digest of these steps is part of the plan: maps that take them differently, whatever
    their names, have unrelated noise from equal seeds.

    References
    ----------
    .. [1] E. Cyffers, A. Bellet, D. Basu, "From Noisy Fixed-Point Iterations to Private ADMM for
       Centralized and Federated Learning", ICML 2023, Algorithm 1.

    Examples
    --------
    >>> from skdpadmm import DPAdmmRidge
    >>> from skdpadmm.algorithms import FixedPointIteration
    >>> def descend(model, gradient, k, prox):
    ...     return prox(model - 0.5 * gradient, 0.5)
    >>> model = DPAdmmRidge(algorithm=FixedPointIteration(update=descend), epsilon=2.0)
    >>> plan = model.plan(n_samples=10_000, n_features=5)
    >>> plan.releases[-1].name, plan.releases[-1].times
    ('mean gradient', 100)
    """

    setting = "central"
    units = ("record", "person")  # Gradients of records, or means of persons, are clipped.
    releases_path = True
    noiseless = True
    takes_corners = True
    distributed = True

    update: Any = parameter(None, callable, convert=name_of)
    at: Any = parameter(None, callable, None, convert=name_of)
    state: Any = parameter(
        None, "array-like", None, convert=lambda value: f"array of shape {np.shape(value)}"
    )
    clip_norm: float | str = parameter("auto", AUTO, SIZE)

    def released(self, facts: Facts, budget: Budget) -> tuple[Settings, Release]:
        """Each mean gradient; settings have a digest of what the maps do."""
        mu, shape = facts.remaining_mu(budget), facts.model_shape
        _, clip_norm = default_steps(facts, mu)
        settings = self.resolved(n_iter=facts.max_iter, clip_norm=clip_norm)
        sensitivity = ClippedSum(facts).sensitivity / facts.n_samples
        release = last_iterate.path_release(GRADIENT, shape, sensitivity, settings.n_iter, mu)
        bound = settings.clip_norm * typical_norm(facts) if budget.is_private else 1.0
        return settings.but(maps=self._tried(facts, shape, bound, release.noise_std)), release

    def assumptions(self, facts: Facts, budget: Budget) -> tuple[str, ...]:
        """What the maps must not know."""
        return ("update, at and state are public: they know nothing of these rows.",)

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Iterate as planned; symbols as above."""
        facts, settings, rows = plan.facts, plan.settings, problem.rows
        clip_norm = settings.clip_norm * rows.clip_unit
        gradients = ClippedSum(facts, clip_norm).over(problem)

        def gradient(z: Array) -> Array:
            mean = gradients(z) / (clip_norm * rows.n_samples)
            return clip_norm * gate.release(GRADIENT, mean)

        # What maps are handed, and may keep, has no rows.
        public = Rows(np.empty((0, rows.coordinates.n_features)), rows.coordinates)
        public.basis = rows.basis

        def operator(step: float) -> base.Operator:
            prox = base.penalty_operator(facts.penalty, step, public)
            return lambda point: public.from_coordinates(prox(point))

        model = np.zeros(plan.releases[-1].shape)
        for k, z in enumerate(self._points(model.shape, gradient, operator, settings.n_iter)):
            model = rows.to_coordinates(z)
            problem.progress(k + 1, model)
        return Solution(
            parameters=model,
            n_iter=settings.n_iter,
            derivative_bound=clip_norm / rows.typical_norm * rows_in_mean(facts),
        )

    def _points(
        self, shape: tuple[int, ...], gradient: base.Operator, operator: Operators, n_iter: int
    ) -> Iterator[Array]:
        """The point after each step."""
        operator = cache(operator)

        def prox(point: Array, step: float) -> Array:
            return operator(float(step))(point)

        # Whatever an object remembers, it starts anew.
        update, at = deepcopy((self.update, self.at))
        first = np.asarray(0.0 if self.state is None else self.state)
        own = (*first.shape[:-2], *shape)
        sizes = zip(first.shape[::-1], own[::-1], strict=False)
        is_alike = all(size in (1, full) for size, full in sizes)
        state = _checked("state", np.broadcast_to(first, own) if is_alike else first, own)
        z = state if at is None else _checked("at", at(state.copy(), prox), shape)
        for k in range(n_iter):
            following = update(state.copy(), gradient(z), k, prox)
            state = _checked(f"update in step {k}", following, own)
            z = state if at is None else _checked("at", at(state.copy(), prox), shape)
            yield z

    def _tried(self, facts: Facts, shape: tuple[int, ...], bound: float, noise_std: float) -> str:
        """Digest of all points with random gradients of the planned size."""
        rng, digest = np.random.default_rng(0), hashlib.sha256()

        def gradient(_: Array) -> Array:
            mean, noise = rng.standard_normal((2, *shape))
            return bound * (mean / np.linalg.norm(mean) + noise_std * noise)

        def operator(step: float) -> base.Operator:
            return base.coordinate_operator(facts.penalty, step, facts.coordinates)

        for z in self._points(shape, gradient, operator, facts.max_iter):
            # Libraries differ in the last bits; exponents alone are beyond float32.
            mantissa, exponent = np.frexp(z)
            digest.update(mantissa.astype(np.float32).tobytes() + exponent.tobytes())
        return digest.hexdigest()[:16]


def _checked(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    """What a map returned, as an array of its own."""
    array = np.array(value, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        got = f"shape {array.shape}" if array.shape != shape else "numbers that are not finite"
        raise ValueError(f"Got {got} from {name}, expected finite numbers of shape {shape}.")
    return array
