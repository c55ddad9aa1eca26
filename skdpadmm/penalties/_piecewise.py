"""Quadratics plus piecewise linear functions of single coefficients, minimised exactly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import linalg

from skdpadmm.penalties._penalty import Floats

_EPSILON = float(np.finfo(np.float64).eps)

# Active sets to guess before the safe method; where guessing works it takes 3 to 30.
_MAX_GUESSES = 40


class PiecewiseQuadratic:
    r"""Minimises :math:`e^T Q e / 2 + b^T e + \sum_j \varphi(v_j + e_j)` over e; results are v + e.

    The function is convex, with a slope for each piece between increasing kinks; slopes of -inf and
    inf at the ends are bounds. Working with the difference e keeps unchanged coefficients exact.
    """

    def __init__(
        self,
        quadratic: Floats,
        linear: Floats,
        v: Floats,
        *,
        kinks: tuple[float, ...],
        slopes: tuple[float, ...],
    ) -> None:
        self.quadratic, self.linear, self.v = quadratic, linear, v
        self.kinks, self.slopes = np.array(kinks), np.array(slopes)
        self.ends = np.concatenate([[-np.inf], self.kinks, [np.inf]])
        self.steepest = float(np.abs(self.slopes[np.isfinite(self.slopes)]).max(initial=0.0))
        self.point: Floats = v.copy()

    def guess(self) -> Floats | None:
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
            rests, piece = state % 2 == 1, state // 2
            self.point = self.v.copy()
            self.point[rests] = self.kinks[piece[rests]]
            try:
                self.point[~rests] = self._target(~rests, piece)
            except linalg.LinAlgError:
                # An inverse may be indefinite up to rounding.
                return None
            pull = self.point + self._force() / weight
        return None

    def descend(self, start: Floats) -> Floats:
        """Minimise from a point within the bounds, which decides the time and not the result.

        An active-set method: coefficients that rest at kinks stay there while the others move
        towards their joint minimiser, until the first one ends its piece. At a joint minimiser the
        resting coefficient with the largest excess force leaves its kink. The last step is a linear
        system of the coefficients that do not rest, so the result does not carry earlier errors.
        """
        self.point, settled = start.copy(), False
        # A guard against cycles among rounding errors.
        for _ in range(10 * self.v.size + 100):
            piece, resting, excess = self._states()
            if settled or resting.all():
                if not excess.any():
                    break
                worst = np.argmax(np.abs(excess))
                resting[worst] = False
                piece[worst] += excess[worst] > 0
            try:
                settled = self._step(~resting, piece)
            except linalg.LinAlgError:
                # The matrix may be indefinite up to rounding: there is no better point.
                break
        return self.point

    def _force(self) -> Floats:
        """The downward slope of the smooth part."""
        return -(self.quadratic @ (self.point - self.v) + self.linear)

    def _rounding(self) -> Floats:
        """Bound of the rounding error of a gradient that is zero, for each entry."""
        sizes = np.abs(self.quadratic) @ (np.abs(self.point) + np.abs(self.v)) + np.abs(self.linear)
        rounding: Floats = (4.0 + self.v.size) * _EPSILON * (sizes + self.steepest)
        return rounding

    def _states(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_], Floats]:
        """The piece of each coefficient, whether it is at a kink, and the force beyond its hold.

        At a kink the piece is the one before it. Elsewhere, and within rounding, there is no hold.
        """
        force = self._force()
        piece = np.searchsorted(self.kinks, self.point, side="left")
        resting = self.ends[piece + 1] == self.point
        above = self.slopes[np.minimum(piece + 1, self.kinks.size)]
        excess = np.maximum(force - above, 0.0) - np.maximum(self.slopes[piece] - force, 0.0)
        return piece, resting, excess * (resting & (np.abs(excess) > self._rounding()))

    def _step(self, free: npt.NDArray[np.bool_], piece: npt.NDArray[np.intp]) -> bool:
        """Move to the joint minimiser or to the first end of a piece; return whether it arrived."""
        point, target = self.point[free], self._target(free, piece)
        low, high = self.ends[piece[free]], self.ends[piece[free] + 1]
        change, beyond = target - point, (target > high) | (target < low)
        end = np.where(change > 0, high, low)
        fraction = np.divide(end - point, change, out=np.ones_like(change), where=beyond)
        first = fraction.min(initial=1.0)
        moved = target if first == 1.0 else np.clip(point + first * change, low, high)
        self.point[free] = np.where(beyond & (fraction == first), end, moved)
        return bool(first == 1.0)

    def _target(self, free: npt.NDArray[np.bool_], piece: npt.NDArray[np.intp]) -> Floats:
        """Minimiser over the free coefficients, as if their pieces had no ends."""
        change = np.where(free, 0.0, self.point - self.v)
        rows = self.quadratic[free]
        right = -(self.slopes[piece[free]] + self.linear[free] + rows @ change)
        factor = linalg.cho_factor(rows[:, free], lower=True, check_finite=False)
        return np.asarray(self.v[free] + linalg.cho_solve(factor, right, check_finite=False))
