"""Loops that are handed their noise, and tilted problems: what replays need to see of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import root

from skdpadmm.algorithms import GradientADMM, PersonalizedCoordinateDescent

Array = NDArray[np.float64]
# Terms that lead to the same minimisers are sought by so many fits, and found up to this.
MOST_TILTS, TILT_ERROR = 30, 1e-6
# States that are equal up to rounding, to the grid as well, and answers to noise: in units of the
# largest entry.
SAME_STATE, SAME_ANSWER = 1e-5, 1e-6
# An answer to noise so much weaker in one direction than in another is none.
NO_ANSWER = 1e-9
NO_NOISE, MIXED_NOISE = "no noise in a step", "noise is not just added"
MORE_THAN_ITERATES = "a step tells more than its noisy iterate"
OTHER_BLOCK = "a block is other than its steps one by one"


class StepGate(Protocol):
    """A gate that is told of every step of a path."""

    def step(self, name: str, state: Any, reached: Any, along: Callable[[Any], Array]) -> Any:
        """Note a step; returns the state that the next one begins with."""

    def tell(self, name: str, what: str) -> None:
        """Note what is wrong with a path, in words."""


@dataclass(eq=False, kw_only=True)
class SeenSteps:
    """The steps of a loop, one at a time, so that its iterates are seen.

    Blocks are run as well, as they are in a fit, and have to lead to the same state. At every step
    noise is moved along one direction, and where the iterate does not answer as known from a step
    before, all directions are tried anew.

    Attributes
    ----------
    steps : object
        With `advance`: the loop itself.
    gate : StepGate
    name : str
        Of the path.
    scale : float
        Of its noise.
    response : ndarray of shape (n_outputs, n_parameters, n_parameters) or None
        How an iterate answers to noise in the step that was last seen: for each output, a column
        for each entry of its noise.
    """

    steps: Any
    gate: StepGate
    name: str
    scale: float
    response: Array | None = field(default=None, init=False)
    _inverse: Array | None = field(default=None, init=False)

    def advance(self, state: Any, rows: Any, target: Any, bound: Array, noise: Array) -> Any:
        """See `NoisySteps.advance`."""
        start = alone = state
        for i in range(len(rows)):
            own = (rows[i : i + 1], target[i : i + 1], bound[i : i + 1])
            given = noise[i : i + 1]
            reached = self.steps.advance(state, *own, given.copy())
            # A replay goes on from what was recorded, and the block from its own steps.
            alone = reached if alone is state else self.steps.advance(alone, *own, given.copy())
            self._answer(state, own, given, reached)
            known = self.gate.step(self.name, state, reached, self._as_noise)
            if known is not reached and self._inverse is not None:
                # Noise that makes up for the move leads to all that was recorded.
                made_up = given - self._as_noise(reached.x - known.x)
                if not _is_same_state(self.steps.advance(state, *own, made_up), known):
                    self.gate.tell(self.name, MORE_THAN_ITERATES)
            state = known
        if len(rows) > 1:
            block = self.steps.advance(start, rows, target, bound, noise.copy())
            if not _is_same_state(block, alone):
                self.gate.tell(self.name, OTHER_BLOCK)
        return state

    def _answer(self, state: Any, own: Any, noise: Array, reached: Any) -> None:
        """Know how the iterate of this step answers to noise."""

        def answer(more: Array) -> Array:
            moved = self.steps.advance(state, *own, noise + self.scale * more).x - reached.x
            return np.asarray(moved / self.scale)

        shape = noise.shape[1:]
        # All entries, and no two of them alike.
        probe = 1.0 + np.arange(math.prod(shape)).reshape(shape) / math.prod(shape)
        answered = answer(probe)
        if self.response is not None and _is_close(answered, self._answered(probe), SAME_ANSWER):
            return
        d, n_outputs = shape
        response = np.empty((n_outputs, d, d))
        for k in range(n_outputs):
            for j in range(d):
                entry = np.zeros(shape)
                entry[j, k] = 1.0
                response[k, :, j] = answer(entry)[:, k]
        self.response = response
        self._inverse = None
        if not np.isfinite(response).all():
            return
        sizes = np.linalg.svd(response, compute_uv=False)
        if sizes.min() <= NO_ANSWER * sizes.max():
            self.gate.tell(self.name, NO_NOISE)
            return
        self._inverse = np.asarray(np.linalg.inv(response), dtype=np.float64)
        if not _is_close(answered, self._answered(probe), SAME_ANSWER):
            self._inverse = None
            self.gate.tell(self.name, MIXED_NOISE)

    def _answered(self, more: Array) -> Array:
        assert self.response is not None
        return np.asarray(np.einsum("kij,jk->ik", self.response, more))

    def _as_noise(self, moved: Array) -> Array:
        """The noise that would have moved an iterate as far."""
        if self._inverse is None:
            # What moves without noise counts as if there were some.
            return moved
        return np.asarray(np.einsum("kij,jk->ik", self._inverse, moved))


def _is_same_state(one: Any, other: Any) -> bool:
    names = ("x", "multipliers", "mean_x", "mean_multipliers")
    return one.n_steps == other.n_steps and all(
        _is_close(getattr(one, name), getattr(other, name), SAME_STATE) for name in names
    )


def _is_close(one: Array, other: Array, error: float) -> bool:
    if one.shape != other.shape:
        return False
    if np.array_equal(one, other, equal_nan=True):
        return True
    size = max(float(np.abs(other).max(initial=0.0)), 1e-300)
    # Beside its like, what is not a number is close to nothing.
    return bool(np.abs(one - other).max(initial=0.0) <= error * size)


def in_sight(algorithm: Any, gate: Callable[[], StepGate], *, by_numpy: bool) -> Any:
    """A copy of an algorithm whose loops can be looked at; itself, where there is none.

    Parameters
    ----------
    algorithm : Algorithm
    gate : callable
        The gate that the loop's noise comes from.
    by_numpy : bool
        Whether turns are to pass the gate one by one, and not in a compiled loop.

    Returns
    -------
    Algorithm
    """
    if isinstance(algorithm, GradientADMM):
        seen, made = copy(algorithm), algorithm._steps

        def steps(plan: Any, rows: Any) -> SeenSteps:
            path = plan.releases[-1]
            return SeenSteps(
                steps=made(plan, rows), gate=gate(), name=path.name, scale=path.noise_std
            )

        seen.__dict__["_steps"] = steps
        return seen
    if by_numpy and is_known(algorithm):
        seen = copy(algorithm)
        seen.compiled = False
        return seen
    return algorithm


def is_known(algorithm: Any) -> bool:
    """Whether a compiled loop's turns can pass the gate one by one."""
    return isinstance(algorithm, PersonalizedCoordinateDescent)


def tilts_between(missed: Callable[[Array], Array], start: Array, size: float) -> Array | None:
    """Terms with which other data have the same minimisers, all rounds and agents at once.

    A minimiser depends on its own term alone, and moves against it by at most as much: Broyden's
    method, for each of them, beginning with that slope; and if it fails with slopes by differences.

    Parameters
    ----------
    missed : callable
        Maps terms of shape (n_problems, ...) to how far each minimiser is from where it should be.
    start : ndarray of shape (n_problems, ...)
    size : float
        Of minimisers, or 1.

    Returns
    -------
    ndarray of the shape of `start`, or None
        None: there is a problem for which none was found.
    """
    d = math.prod(start.shape[1:])
    # Inverses of slopes: how far a term has to move for a minimiser to move by one.
    inverse = np.broadcast_to(np.eye(d), (len(start), d, d)).copy()
    found = _broyden(missed, start, size, inverse)
    if found is not None:
        return found
    error, slopes = missed(start), []
    step = 1e-3 * max(float(np.abs(start).max()), 1e-12)
    for j in range(d):
        more = start.reshape(len(start), d).copy()
        more[:, j] += step
        slopes.append((error - missed(more.reshape(start.shape))).reshape(len(start), d) / step)
    found = _broyden(missed, start, size, np.linalg.pinv(np.stack(slopes, axis=2)))
    if found is not None or len(start) > 1:
        return found

    def of_one(tilt: Array) -> Array:
        return np.ravel(missed(tilt.reshape(start.shape)))

    # One problem alone can afford a trust region.
    options: Any = {"maxfev": 100}
    last = root(of_one, start.ravel(), method="hybr", options=options).x
    is_close = np.abs(of_one(last)).max() <= TILT_ERROR * size
    return np.asarray(last).reshape(start.shape) if is_close else None


def _broyden(
    missed: Callable[[Array], Array], start: Array, size: float, inverse: Array
) -> Array | None:
    shape = start.shape
    tilts = start.reshape(len(start), -1).copy()
    n_problems, d = tilts.shape
    error = missed(tilts.reshape(shape)).reshape(n_problems, d)
    for _ in range(MOST_TILTS):
        if np.abs(error).max() <= TILT_ERROR * size:
            return tilts.reshape(shape)
        step = np.einsum("bij,bj->bi", inverse, error)
        tilts = tilts + step
        found = missed(tilts.reshape(shape)).reshape(n_problems, d)
        # The inverse maps a change of the error to minus the step that made it.
        change = error - found
        back = np.einsum("bij,bj->bi", inverse, change)
        weight = np.einsum("bi,bi->b", step, back)
        usable = np.abs(weight) > 1e-12 * np.einsum("bi,bi->b", step, step)
        left = np.einsum("bi,bij->bj", step, inverse)
        update = np.einsum("bi,bj->bij", step - back, left)
        inverse = inverse + np.where(
            usable[:, None, None], update / np.where(usable, weight, 1.0)[:, None, None], 0.0
        )
        error = found
    return None
