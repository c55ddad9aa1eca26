"""Wake-ups of agents compiled by numba: one after another, without waves.

A wave costs as much as some hundred wake-ups do here. The arithmetic is that of the loop of numpy,
sums over rows and scores in another order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms.blocks._agent_turns import Wakes
from skdpadmm.algorithms.blocks._compiled_steps import compiled_derivative
from skdpadmm.noise import grid_cell
from skdpadmm.protocol import PlanViolation
from skdpadmm.records import HUGE, block_size

Array = NDArray[np.float64]
# Noise is handed out for as many wake-ups at once as this many numbers serve.
NOISE_ENTRIES = 2**16
# Without a sign, because indices with one may count from the end, which takes time.
ONE = np.uintp(1)
# Values beyond so many cells of the grid lie on it already.
FAR = 2.0**52
# Sums may be made in any order, and products joined with additions: `rounding_factor` covers both.
# What is not finite keeps its meaning.
ANY_ORDER = {"reassoc", "contract"}


@dataclass(frozen=True, eq=False, kw_only=True)
class CompiledWakes(Wakes):
    """Updates of agents that wake up one after another, of models with one score.

    Attributes
    ----------
    code : tuple of (int, float)
        Of the loss: `loss_code`.
    """

    code: tuple[int, float]

    def pieces(self, order: NDArray[np.intp]) -> Iterable[NDArray[np.intp]]:
        """Split wake-ups into those for which noise is handed out at once."""
        size = max(NOISE_ENTRIES // len(self.curvature), 1)
        return (order[start : start + size] for start in range(0, len(order), size))

    def advance(self, models: Array, woken: NDArray[np.intp], wave: NDArray[np.intp]) -> None:
        """See `Wakes.advance`; agents may be neighbours, and wake up several times.

        Raises
        ------
        PlanViolation
            Where an agent would say what is not finite.
        """
        loop, count = _loop()
        gradient, exact = self.gradient, self.gradient.exact
        rows, coordinates = exact.rows, exact.rows.coordinates
        given = rows.untamed()
        assert given is not None
        X, unruly = given
        learns = np.empty(len(wave), dtype=np.bool_)
        count(wave, woken, gradient.has_rows, self.n_turns, learns)
        turns, noise, units = gradient.next_turns(wave[learns])
        none = np.zeros(0)
        if self.similarity.is_uniform:
            indptr, indices, shares = np.zeros(1, np.int32), np.zeros(0, np.int32), none
        else:
            matrix = self.similarity.shares
            indptr, indices, shares = matrix.indptr, matrix.indices, matrix.data
        is_finite = loop(
            models[:, :, 0],
            wave,
            learns,
            (indptr, indices, shares),
            X,
            np.zeros(0, dtype=np.bool_) if unruly is None else unruly,
            (_as_floats(coordinates.lower), _as_floats(coordinates.upper)),
            (_as_floats(coordinates.offset), _as_floats(coordinates.scale)),
            exact.by_agent,
            exact.bounds,
            (rows.weight, _as_floats(exact.target), exact.slope_bound),
            *self.code,
            block_size(X.shape[1], is_sparse=False),
            float(gradient.unit),
            gradient.sizes,
            gradient.of_records,
            float(gradient.bound),
            gradient.law == "laplace",
            gradient.weights[turns],
            np.ascontiguousarray(noise[:, :, 0]),
            units,
            grid_cell(1.0),
            np.ascontiguousarray(self.curvature[:, 0]),
            self.pull,
            self.step,
        )
        if not is_finite:
            # Unreachable by clipped contributions.
            raise PlanViolation("Got a turn that is not finite, expected clipped contributions.")


def _as_floats(values: NDArray[Any]) -> Array:
    return np.ascontiguousarray(values, dtype=np.float64)


@cache
def _loop() -> tuple[Any, Any]:
    """Compile at the first call of a process."""
    import numba

    derivative = compiled_derivative()

    @numba.njit
    def clipped(score: float, i: int, rows: Any, code: int, parameter: float) -> float:
        """Slope of a row's clipped loss times its weight, at a score without the weight."""
        weight, target, bound = rows
        slope = derivative(score * weight[i], target[i], code, parameter)
        if not np.isfinite(slope):
            slope = 0.0
        return max(min(slope, bound[i]), -bound[i]) * weight[i]

    @numba.njit
    def let_out(value: float, unit: float, noise: float, cell: float) -> float:
        """What `Gate.take_turns` does."""
        if not unit > 0.0:
            return value
        value /= unit
        if abs(value) < FAR * cell:
            value = np.rint(value / cell) * cell
        return unit * (value + noise)

    @numba.njit
    def clip_whole(said: Array, bound: float, is_laplace: bool) -> None:
        """Scale a mean gradient down; one that is not finite becomes zero."""
        peak = 0.0
        for j in range(said.size):
            if not np.isfinite(said[j]):
                said[:] = 0.0
                return
            peak = max(peak, abs(said[j]))
        if peak == 0.0 or np.isinf(bound):
            return
        # Squares of what is scaled to a peak of one neither overflow nor vanish.
        length = 0.0
        for j in range(said.size):
            share = abs(said[j] / peak)
            length += share if is_laplace else share * share
        if not is_laplace:
            length = np.sqrt(length)
        allowed = bound / peak
        if length > allowed:
            for j in range(said.size):
                said[j] = said[j] / peak * (peak * (allowed / length))

    @numba.njit
    def add_tamed(
        X: Array,
        i: int,
        box: Any,
        rows: Any,
        coef: Array,
        constant: float,
        code: int,
        parameter: float,
        part: Array,
    ) -> float:
        """Add the gradient of a row that is moved into the box first."""
        lower, upper = box
        inside = np.empty(coef.size)
        peak, score = 0.0, 0.0
        for j in range(coef.size):
            inside[j] = min(max(float(X[i, j]), lower[j]), upper[j])
            peak = max(peak, abs(inside[j]))
        shrink = max(peak / HUGE, 1.0)
        for j in range(coef.size):
            inside[j] /= shrink
            score += inside[j] * coef[j]
        slope = clipped(score + constant, i, rows, code, parameter)
        for j in range(coef.size):
            part[j] += slope * inside[j]
        return slope

    @numba.njit(fastmath=ANY_ORDER)
    def add_rows(
        X: Array,
        unruly: NDArray[np.bool_],
        box: Any,
        rows: Any,
        some: NDArray[np.intp],
        start: int,
        stop: int,
        coef: Array,
        constant: float,
        code: int,
        parameter: float,
        part: Array,
    ) -> float:
        """Sum clipped gradients of some rows into `part`, raw; returns the sum of their slopes."""
        p, mass = coef.size, 0.0
        for j in range(p):
            part[j] = 0.0
        k, has_unruly = start, unruly.size > 0
        # Four at once, so that coefficients and sums are read and written once for all of them. Who
        # is among them says nothing about values: scores of other rows have to keep their bits.
        while k + 4 <= stop:
            i0, i1 = np.uintp(some[k]), np.uintp(some[k + 1])
            i2, i3 = np.uintp(some[k + 2]), np.uintp(some[k + 3])
            s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
            for j in range(p):
                c = coef[j]
                s0 += X[i0, j] * c
                s1 += X[i1, j] * c
                s2 += X[i2, j] * c
                s3 += X[i3, j] * c
            s0 = clipped(s0 + constant, i0, rows, code, parameter)
            s1 = clipped(s1 + constant, i1, rows, code, parameter)
            s2 = clipped(s2 + constant, i2, rows, code, parameter)
            s3 = clipped(s3 + constant, i3, rows, code, parameter)
            if has_unruly:
                # These are added by themselves, below.
                s0 = 0.0 if unruly[i0] else s0
                s1 = 0.0 if unruly[i1] else s1
                s2 = 0.0 if unruly[i2] else s2
                s3 = 0.0 if unruly[i3] else s3
            for j in range(p):
                part[j] += s0 * X[i0, j] + s1 * X[i1, j] + s2 * X[i2, j] + s3 * X[i3, j]
            mass += s0 + s1 + s2 + s3
            k += 4
        while k < stop:
            i = np.uintp(some[k])
            score = 0.0
            for j in range(p):
                score += X[i, j] * coef[j]
            slope = clipped(score + constant, i, rows, code, parameter)
            if has_unruly:
                slope = 0.0 if unruly[i] else slope
            for j in range(p):
                part[j] += slope * X[i, j]
            mass += slope
            k += 1
        if has_unruly:
            for k in range(start, stop):
                if unruly[some[k]]:
                    i = np.uintp(some[k])
                    mass += add_tamed(X, i, box, rows, coef, constant, code, parameter, part)
        return mass

    # For the checker of types, to which they are what they were before they were compiled.
    sum_rows: Any = add_rows
    let_through: Any = let_out
    clip: Any = clip_whole

    @numba.njit
    def count(
        order: NDArray[np.intp],
        woken: NDArray[np.intp],
        has_rows: NDArray[np.bool_],
        n_turns: int,
        learns: NDArray[np.bool_],
    ) -> None:
        """Note who uses its rows, and how often each woke up."""
        for t in range(order.size):
            agent = order[t]
            learns[t] = has_rows[agent] and woken[agent] < n_turns
            woken[agent] += 1

    @numba.njit
    def loop(
        models: Array,
        order: NDArray[np.intp],
        learns: NDArray[np.bool_],
        neighbors: Any,
        X: Array,
        unruly: NDArray[np.bool_],
        box: Any,
        units_of_columns: Any,
        by_agent: NDArray[np.intp],
        bounds: NDArray[np.intp],
        rows: Any,
        code: int,
        parameter: float,
        longest: int,
        unit: float,
        sizes: Array,
        of_records: bool,
        bound: float,
        is_laplace: bool,
        turn_weight: Array,
        noise: Array,
        units: Array,
        cell: float,
        curvature: Array,
        pull: Array,
        step: Array,
    ) -> bool:
        """Wake agents up; whether all they said was finite."""
        indptr, indices, shares = neighbors
        offset, scale = units_of_columns
        n_agents, d = models.shape
        p = X.shape[1]
        is_uniform = indptr.size == 1
        coef, part, raw = np.empty(p), np.empty(p), np.empty(p)
        mean, said, total = np.empty(d), np.empty(d), np.zeros(d)
        q = 0
        for t in range(order.size):
            agent = np.uintp(order[t])
            for j in range(d):
                mean[j] = 0.0
            if n_agents == 1:
                for j in range(d):
                    mean[j] = models[agent, j]
            elif is_uniform:
                if t % n_agents == 0:
                    # Anew from time to time, so that rounding of differences does not add up.
                    total[:] = 0.0
                    for everybody in range(n_agents):
                        for j in range(d):
                            total[j] += models[everybody, j]
                for j in range(d):
                    mean[j] = (total[j] - models[agent, j]) / (n_agents - 1)
            else:
                for k in range(indptr[agent], indptr[agent + ONE]):
                    other, share = np.uintp(indices[k]), shares[k]
                    for j in range(d):
                        mean[j] += share * models[other, j]
            if learns[t]:
                first, end = bounds[agent], bounds[agent + ONE]
                constant = models[agent, p] if d > p else 0.0
                for j in range(p):
                    coef[j] = models[agent, j] / scale[j]
                    constant -= offset[j] * coef[j]
                    raw[j] = 0.0
                mass = 0.0
                # Chains of additions no longer than a block, as `rounding_factor` allows.
                for start in range(first, end, longest):
                    stop = min(start + longest, end)
                    mass += sum_rows(
                        X,
                        unruly,
                        box,
                        rows,
                        by_agent,
                        start,
                        stop,
                        coef,
                        constant,
                        code,
                        parameter,
                        part,
                    )
                    for j in range(p):
                        raw[j] += part[j]
                for j in range(p):
                    said[j] = (raw[j] - offset[j] * mass) / scale[j] / unit
                if d > p:
                    said[p] = mass / unit
                back = unit
                if of_records:
                    back = unit / sizes[agent]
                else:
                    for j in range(d):
                        said[j] /= sizes[agent]
                    clip(said, bound, is_laplace)
                is_finite = True
                for j in range(d):
                    said[j] *= turn_weight[q]
                    is_finite &= np.isfinite(said[j])
                if not is_finite:
                    return False
                back /= turn_weight[q]
                for j in range(d):
                    heard = back * let_through(said[j], units[q], noise[q, j], cell)
                    mean[j] -= pull[agent] * (heard + curvature[j] * models[agent, j])
                q += 1
            for j in range(d):
                moved = step[agent] * (mean[j] - models[agent, j])
                total[j] += moved
                models[agent, j] += moved
        return True

    return loop, count
