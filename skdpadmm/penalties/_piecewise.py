"""Quadratics plus piecewise linear functions of single coefficients, minimised exactly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import linalg

from skdpadmm.penalties._penalty import FloatArray

_EPSILON = float(np.finfo(np.float64).eps)

_MAX_GUESSES = 40
"""Active sets to guess before the safe method; where guessing works it takes 3 to 30."""


class PiecewiseQuadratic:
    r"""Minimises :math:`e^T Q e / 2 + b^T e + \sum_j \varphi(v_j + e_j)` over e; results are v + e.

    The function is convex, with a slope for each piece between increasing kinks; slopes of -inf and
    inf at the ends are bounds. Working with the difference e keeps what does not move exact.
    """

    def __init__(
        self,
        quadratic: FloatArray,
        linear: FloatArray,
        v: FloatArray,
        *,
        kinks: tuple[float, ...],
        slopes: tuple[float, ...],
    ) -> None:
        self.quadratic, self.linear, self.v = quadratic, linear, v
        self.kinks, self.slopes = np.array(kinks), np.array(slopes)
        self.ends = np.concatenate([[-np.inf], self.kinks, [np.inf]])
        self.steepest = float(np.abs(self.slopes[np.isfinite(self.slopes)]).max(initial=0.0))
        self.point: FloatArray = v.copy()

    def guess(self) -> FloatArray | None:
        """Guess the kinks at which coefficients rest until a guess repeats itself.

        Hintermueller, Ito and Kunisch, SIAM Journal on Optimization 13 (2003). For bounds it nearly
        always works, in few linear systems. Bounds may be exceeded by rounding. None: guesses go
        round.
        """
        weight = self.quadratic.diagonal()
        # Between two of these a coefficient alone would move on a piece or rest at a kink in turn.
        before = self.kinks[:, None] + self.slopes[:-1, None] / weight
        after = self.kinks[:, None] + self.slopes[1:, None] / weight
        borders = np.stack([before, after], axis=1).reshape(-1, self.v.size)
        pull = self.v - self.linear / weight
        last, seen = b"", set[bytes]()
        for _ in range(_MAX_GUESSES):
            state = (pull > borders).sum(axis=0)
            key = state.tobytes()
            if key == last:
                return self.point
            if key in seen:
                return None
            last = key
            seen.add(key)
            rests = state % 2 == 1
            piece = state // 2
            self.point = self.v.copy()
            self.point[rests] = self.kinks[piece[rests]]
            free = np.flatnonzero(~rests)
            try:
                self.point[free] = self._target(free, piece)[0]
            except linalg.LinAlgError:
                # Rounding may cost an inverse its definiteness.
                return None
            pull = self.point + self._force() / weight
        return None

    def descend(self, start: FloatArray) -> FloatArray:
        """Minimise from a point within the bounds, which decides the time and not the result.

        A projected Newton method (Bertsekas, SIAM Journal on Control and Optimization 20, 1982):
        coefficients rest at kinks that hold them, the others go to their joint minimiser, each
        stopped at the end of its piece. Where that does not descend, all stop where the first one
        ends its piece. The last step is a linear system of the coefficients that do not rest, so
        the result does not carry the errors of the way.
        """
        self.point = start.copy()
        self.size = np.abs(self.quadratic)
        settled = False
        # A guard against cycles among rounding errors.
        for _ in range(10 * self.v.size + 100):
            force = self._force()
            piece, resting, excess = self._states(force)
            leaving = resting & (np.abs(excess) > self._rounding())
            if settled and not leaving.any():
                break
            piece[leaving] += excess[leaving] > 0
            try:
                settled = self._step(force, piece, resting, leaving, excess)
            except linalg.LinAlgError:
                # Rounding may cost the matrix its definiteness: there is no better point.
                break
        return self.point

    def _force(self) -> FloatArray:
        """The downward slope of the smooth part."""
        return -(self.quadratic @ (self.point - self.v) + self.linear)

    def _rounding(self) -> FloatArray:
        """What rounding may leave of a gradient that is zero, each entry in its own units."""
        sizes = self.size @ (np.abs(self.point) + np.abs(self.v)) + np.abs(self.linear)
        rounding: FloatArray = (4.0 + self.v.size) * _EPSILON * (sizes + self.steepest)
        return rounding

    def _states(
        self, force: FloatArray
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_], FloatArray]:
        """The piece of each coefficient, whether it is at a kink, and the force beyond its hold.

        At a kink the piece is the one before it.
        """
        piece = np.searchsorted(self.kinks, self.point, side="left")
        resting = self.ends[piece + 1] == self.point
        above = self.slopes[np.minimum(piece + 1, self.kinks.size)]
        excess = np.maximum(force - above, 0.0) - np.maximum(self.slopes[piece] - force, 0.0)
        return piece, resting, excess

    def _step(
        self,
        force: FloatArray,
        piece: npt.NDArray[np.intp],
        resting: npt.NDArray[np.bool_],
        leaving: npt.NDArray[np.bool_],
        excess: FloatArray,
    ) -> bool:
        """Move, and tell whether the point is now the minimiser for its pieces and kinks."""
        free = np.flatnonzero(~resting | leaving)
        target, slope, low, high = self._target(free, piece)
        if ((low <= target) & (target <= high)).all():
            self.point[free] = target
            return True
        current = self.point[free]
        gradient = slope - force[free]
        inner = self.quadratic[np.ix_(free, free)]
        share = 1.0
        while share > 0.1:
            candidate = np.clip(current + share * (target - current), low, high)
            change = candidate - current
            descent = gradient @ change
            if descent < 0 and descent + 0.5 * change @ inner @ change <= 1e-4 * descent:
                self.point[free] = candidate
                return False
            share *= 0.5
        return self._first_end(piece, resting, leaving, excess)

    def _first_end(
        self,
        piece: npt.NDArray[np.intp],
        resting: npt.NDArray[np.bool_],
        leaving: npt.NDArray[np.bool_],
        excess: FloatArray,
    ) -> bool:
        """Move until the first coefficient ends its piece; of those at kinks only one may leave."""
        free = np.flatnonzero(~resting)
        if free.size:
            target, _, low, high = self._target(free, piece)
            if np.array_equal(target, self.point[free]):
                free = free[:0]
        if not free.size:
            worst = np.argmax(np.where(leaving, np.abs(excess), -1.0))
            free = np.flatnonzero(~resting | (np.arange(self.v.size) == worst))
            target, _, low, high = self._target(free, piece)
        current = self.point[free]
        change = target - current
        end = np.where(change > 0, high, low)
        beyond = (target > high) | (target < low)
        share = np.ones_like(change)
        np.divide(end - current, change, out=share, where=beyond)
        first = share.min(initial=1.0)
        moved = target if first == 1.0 else np.clip(current + first * change, low, high)
        self.point[free] = np.where(beyond & (share == first), end, moved)
        return bool(first == 1.0)

    def _target(
        self, free: npt.NDArray[np.intp], piece: npt.NDArray[np.intp]
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Minimiser over the free coefficients, the slopes of their pieces and the pieces' ends."""
        slope = self.slopes[piece[free]]
        moved = self.point - self.v
        moved[free] = 0.0
        rows = self.quadratic[free]
        right = -(slope + self.linear[free] + rows @ moved)
        factor = linalg.cho_factor(rows[:, free], lower=True, check_finite=False)
        target = self.v[free] + linalg.cho_solve(factor, right, check_finite=False)
        return target, slope, self.ends[piece[free]], self.ends[piece[free] + 1]
