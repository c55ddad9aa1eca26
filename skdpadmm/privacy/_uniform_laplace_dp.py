"""Releases with a secret uniform number and Laplace noise on each entry."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skdpadmm.privacy._formatting import round_down, round_up
from skdpadmm.privacy._guarantee import Guarantee
from skdpadmm.privacy._laplace import LaplaceDP
from skdpadmm.privacy._pld import (
    _CONVOLUTION_ERROR,
    _FINEST_INTERVAL,
    _LARGEST_LOSS,
    _LOST_PER_ROUND,
)
from skdpadmm.privacy._renyi import RenyiDP
from skdpadmm.privacy._uniform_laplace import (
    LARGEST_SHIFT,
    Array,
    crossing,
    edge_mass,
    fisher_ratio,
    hockey_stick,
    mass,
    renyi_divergences,
)
from skdpadmm.privacy._validation import require, require_delta, require_epsilon

_ORDERS = tuple((1.0 + np.geomspace(0.01, 1e4, 60)).tolist())


@dataclass(frozen=True)
class UniformLaplaceDP(Guarantee):
    r"""Adaptive releases, each hidden by a secret uniform number and Laplace noise.

    The widths of the intervals in which the uniform numbers lie are declared in advance.

    Release t is a number that a change of the data moves by at most :math:`a_t`, plus a uniform one
    on an interval of the width :math:`\omega_t`, plus Laplace noise of the rate :math:`\beta_t`
    (scale :math:`1 / \beta_t`). A vector is either one release for each entry, with the most that
    this entry moves, or a single one by :meth:`of_vectors`.

    **The widths have to be fixed before data is touched**, as plain constants or lower bounds that
    hold surely. The distance between states that were released is none: it is a function of the
    past, and what is known in advance is then :attr:`without_widths`, or the budget of a
    :class:`RenyiFilter`.

    Parameters
    ----------
    rates : tuple of float
        :math:`\beta_t` in (0, inf).
    widths : tuple of float
        :math:`\omega_t` in [0, inf), one for each rate; zero is plain Laplace noise.
    shifts : tuple of float
        :math:`a_t` in [0, inf), one for each rate; releases that do not move are dropped.
    counts : tuple of int, default=()
        How many releases are of each kind, at least 1. Empty means one.

    Notes
    -----
    The density is log-concave, so the pair (p, p moved by a) dominates every smaller move, and the
    trade-off function is :math:`f(x) = F(F^{-1}(1 - x) - a)` with F the distribution function. One
    release has its exact curve. Several compose by dp-accounting's privacy loss distributions, each
    discretised pessimistically; where it is not installed the bound is that of
    :attr:`without_widths`, which is never below: the uniform number is post-processing.

    Outside the interval the density is exactly exponential, so the largest loss is
    :math:`\beta_t a_t` **whatever the width**: it is met with probability
    :math:`(1 - e^{-u}) / (2 u)`, :math:`u = \beta_t \omega_t`. At delta zero there is no gain.

    A wider interval is never worse, at no level: of two uniform laws the wider is more dispersed,
    and adding noise with a log-concave density keeps that order (Lewis and Thompson, "Dispersive
    distributions, and the connection between dispersivity and strong unimodality", 1981), which is
    the order of the trade-off functions of translates.

    Examples
    --------
    >>> from skdpadmm.privacy import UniformLaplaceDP
    >>> one = UniformLaplaceDP((2.0,), (1.0,), (0.1,))
    >>> f"{one.delta(0.1):.5f}", f"{one.without_widths.delta(0.1):.5f}"
    ('0.02606', '0.04877')
    """

    rates: tuple[float, ...]
    widths: tuple[float, ...]
    shifts: tuple[float, ...]
    counts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check the ranges, and bring what is equal into one form."""
        columns = [tuple(float(x) for x in c) for c in (self.rates, self.widths, self.shifts)]
        counts = tuple(self.counts) or (1,) * len(columns[0])
        if len({len(counts), *map(len, columns)}) > 1:
            raise ValueError(
                f"Got {len(columns[0])} rates, {len(columns[1])} widths, {len(columns[2])} shifts "
                f"and {len(counts)} counts, expected as many of each; counts may be left out."
            )
        rates, widths, shifts = columns
        require(all(0 < r < math.inf for r in rates), "rates", rates, "floats in (0, inf)")
        for name, values in (("widths", widths), ("shifts", shifts)):
            require(all(0 <= v < math.inf for v in values), name, values, "floats in [0, inf)")
            products = tuple(r * v for r, v in zip(rates, values, strict=True))
            require(all(p < math.inf for p in products), f"rates * {name}", products, "finite")
        require(
            all(isinstance(count, Integral) and count >= 1 for count in counts),
            "counts",
            counts,
            "ints >= 1",
        )
        merged: Counter[tuple[float, float, float]] = Counter()
        for kind, count in zip(zip(*columns, strict=True), counts, strict=True):
            if kind[2] > 0:
                merged[kind] += int(count)
        kinds = sorted(merged, key=lambda kind: (-kind[0] * kind[2], kind))
        for position, name in enumerate(("rates", "widths", "shifts")):
            object.__setattr__(self, name, tuple(kind[position] for kind in kinds))
        object.__setattr__(self, "counts", tuple(merged[kind] for kind in kinds))

    @classmethod
    def of_vectors(cls, rates: ArrayLike, widths: ArrayLike, shifts: ArrayLike) -> UniformLaplaceDP:
        """Return the guarantee of vectors that move by at most ``shifts`` in the L1 norm.

        A vector whose entries have intervals of several widths reveals no more than a single entry
        with the narrowest one that moves by the whole sum: a wider interval is never worse, and
        among equal ones no move is easier to see than that of one entry (see
        :class:`LaplaceDP`). With entries that each move by up to the largest move of an entry, the
        sum of all is the number of entries times as much. The L1 norm is at most the root of their
        number times the L2 norm.

        Parameters
        ----------
        rates : array-like of shape (n_releases,)
            In (0, inf).
        widths : array-like of shape (n_releases, n_entries)
            In [0, inf).
        shifts : float or array-like of shape (n_releases,)
            In [0, inf), in the L1 norm.

        Returns
        -------
        UniformLaplaceDP
            With one release for each vector.

        Examples
        --------
        >>> from skdpadmm.privacy import UniformLaplaceDP
        >>> UniformLaplaceDP.of_vectors([2.0], [[1.0, 3.0]], 0.1)
        UniformLaplaceDP(rates=(2.0,), widths=(1.0,), shifts=(0.1,), counts=(1,))
        """
        rows = np.asarray(widths, dtype=np.float64)
        rate = np.asarray(rates, dtype=np.float64)
        require(
            rate.ndim == 1 and rows.ndim == 2 and len(rows) == len(rate) and rows.shape[1] > 0,
            "widths.shape",
            rows.shape,
            f"(n_releases, n_entries) with n_releases={rate.size}, that of rates",
        )
        require(
            bool(np.all((rows >= 0) & np.isfinite(rows))), "widths", widths, "floats in [0, inf)"
        )
        moves = np.broadcast_to(np.asarray(shifts, dtype=np.float64), rate.shape)
        return cls(tuple(rate), tuple(rows.min(axis=1)), tuple(moves))

    @property
    def n_releases(self) -> int:
        """The number of releases that reveal anything."""
        return sum(self.counts)

    @property
    def without_widths(self) -> LaplaceDP:
        """What holds whatever the widths are, and when nothing is known of them: plain Laplace."""
        return LaplaceDP(
            tuple(r * a for r, a in zip(self.rates, self.shifts, strict=True)), self.counts
        )

    @property
    def pure_epsilon(self) -> float:
        """The sum of rate times shift, at which delta is zero; widths do not make it smaller."""
        return self.without_widths.pure_epsilon

    @property
    def approximate_mu(self) -> float:
        r"""The mu of many small releases as a Gaussian one: an approximation, and no guarantee.

        :math:`\mu^2 = \sum_t \kappa(\beta_t \omega_t) (\beta_t a_t)^2`, with the ratio
        :math:`\kappa` of Fisher informations that :attr:`UniformLaplace.fisher_ratio` gives.
        """
        return math.sqrt(math.fsum(n * fisher_ratio(u) * s * s for u, s, n in self._parts()))

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of delta at ``epsilon`` in [0, inf]; exact for one release."""
        require_epsilon(epsilon)
        laplace = self.without_widths
        if epsilon >= laplace.pure_epsilon:
            return 0.0
        if self.n_releases == 1:
            ((u, s, _),) = self._parts()
            return hockey_stick(u, s, epsilon)
        bound = laplace.delta(epsilon)
        if self._is_hopeless():
            return bound
        try:
            value = _composed(self._parts()).get_delta_for_epsilon(min(epsilon, _LARGEST_LOSS))
        except ImportError:
            return bound
        return float(min(bound, max(0.0, value) * self._inflation() + _CONVOLUTION_ERROR))

    def epsilon(self, delta: float) -> float:
        """Return an upper bound of epsilon at ``delta`` in [0, 1]; exact for one release."""
        require_delta(delta)
        bound = self.without_widths.epsilon(delta)
        if delta in (0.0, 1.0) or bound == 0.0:
            return bound
        if self.n_releases == 1:
            return min(bound, super().epsilon(delta))
        if delta <= _CONVOLUTION_ERROR or self._is_hopeless():
            return bound
        target = (delta - _CONVOLUTION_ERROR) / self._inflation()
        try:
            return float(min(bound, _composed(self._parts()).get_epsilon_for_delta(target)))
        except ImportError:
            return bound

    def renyi(self, orders: Sequence[float] = _ORDERS, rtol: float = 1e-6) -> RenyiDP:
        """Return upper bounds of the Renyi divergences.

        Parameters
        ----------
        orders : sequence of float, default=60 orders in [1.01, 10001]
            Increasing, above 1.
        rtol : float, default=1e-6
            In (0, 1): how far above the exact ones they are, relatively.

        Returns
        -------
        RenyiDP
            For what composes by divergences. The curve of this guarantee is sharper.
        """
        require(0 < rtol < 1, "rtol", rtol, "a float in (0, 1)")
        orders = RenyiDP(tuple(orders), (0.0,) * len(orders)).orders  # refuses what is out of range
        rows = [(n, renyi_divergences(u, s, orders, rtol)) for u, s, n in self._parts()]
        sums = (math.fsum(n * row[i] for n, row in rows) for i in range(len(orders)))
        return RenyiDP(orders, tuple(sums))

    def dominates(self, other: Guarantee) -> bool:
        """Whether its delta is plainly at least another's.

        It is if the other is no more than its first releases, one by one, with a move in units of
        the noise that is no larger, and an interval that is no narrower.
        """
        if isinstance(other, LaplaceDP):
            other = _as_uniform(other)
        if not isinstance(other, UniformLaplaceDP):
            return False
        mine, theirs = self._single(), other._single()
        if mine is None or theirs is None:
            return self == other
        return len(mine) >= len(theirs) and all(
            s >= t and u <= v for (s, u), (t, v) in zip(mine, theirs, strict=False)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the kind, the parameters of the releases and how often each occurs."""
        return {
            "kind": "uniform_laplace",
            "rates": list(self.rates),
            "widths": list(self.widths),
            "shifts": list(self.shifts),
            "counts": list(self.counts),
        }

    def describe(self) -> str:
        """Return for instance "uniform+Laplace(sum of epsilons=1, widths >= 0.5), 10 releases"."""
        narrowest = round_down(min(self.widths, default=0.0))
        return (
            f"uniform+Laplace(sum of epsilons={round_up(self.pure_epsilon)}, "
            f"widths >= {narrowest}), {self.n_releases} releases"
        )

    def _parts(self) -> tuple[tuple[float, float, int], ...]:
        """Return width and shift in units of the noise, and the number of such releases."""
        merged: Counter[tuple[float, float]] = Counter()
        for rate, width, shift, count in zip(
            self.rates, self.widths, self.shifts, self.counts, strict=True
        ):
            merged[rate * width, rate * shift] += count
        return tuple((u, s, count) for (u, s), count in merged.items())

    def _single(self) -> list[tuple[float, float]] | None:
        """Return each release, the largest move first, or None if they are too many to compare."""
        if self.n_releases > 100_000:
            return None
        pairs = [(s, u) for u, s, count in self._parts() for _ in range(count)]
        return sorted(pairs, key=lambda pair: (-pair[0], pair[1]))

    def _inflation(self) -> float:
        return 1.0 + _LOST_PER_ROUND * self.n_releases

    def _is_hopeless(self) -> bool:
        return any(s > LARGEST_SHIFT for _, s, _ in self._parts())


def compose_uniform_laplace(*guarantees: UniformLaplaceDP | LaplaceDP) -> UniformLaplaceDP:
    """Return the guarantee of adaptive use of releases with uniform and with plain Laplace noise.

    A release with plain Laplace noise is one of width zero; :func:`compose` knows neither how to
    take these nor a bound in closed form that would keep the gain, and refuses them.

    Parameters
    ----------
    *guarantees : UniformLaplaceDP or LaplaceDP
        None gives one that reveals nothing.

    Returns
    -------
    UniformLaplaceDP

    Raises
    ------
    TypeError
        For another kind.

    Examples
    --------
    >>> from skdpadmm.privacy import LaplaceDP, UniformLaplaceDP, compose_uniform_laplace
    >>> both = compose_uniform_laplace(UniformLaplaceDP((2.0,), (1.0,), (0.1,)), LaplaceDP((0.3,)))
    >>> both.n_releases, both.pure_epsilon
    (2, 0.5)
    """
    parts: list[UniformLaplaceDP] = []
    for guarantee in guarantees:
        if isinstance(guarantee, LaplaceDP):
            parts.append(_as_uniform(guarantee))
        elif isinstance(guarantee, UniformLaplaceDP):
            parts.append(guarantee)
        else:
            raise TypeError(f"Got {guarantee!r}, expected UniformLaplaceDP or LaplaceDP.")
    return UniformLaplaceDP(
        tuple(rate for part in parts for rate in part.rates),
        tuple(width for part in parts for width in part.widths),
        tuple(shift for part in parts for shift in part.shifts),
        tuple(count for part in parts for count in part.counts),
    )


def _as_uniform(laplace: LaplaceDP) -> UniformLaplaceDP:
    size = len(laplace.epsilons)
    return UniformLaplaceDP((1.0,) * size, (0.0,) * size, laplace.epsilons, laplace.counts)


def _interval(parts: tuple[tuple[float, float, int], ...]) -> float:
    """Return a discretisation as fine as the composed loss asks for; pessimistic for every one."""
    spread = math.sqrt(sum(n * fisher_ratio(u) * s * s for u, s, n in parts))
    widest = max(s for _, s, _ in parts)
    return max(spread / 2**11, widest / 2**16, _FINEST_INTERVAL)


@lru_cache(maxsize=16)
def _composed(parts: tuple[tuple[float, float, int], ...]) -> Any:
    try:
        from dp_accounting.pld import pld_pmf, privacy_loss_distribution
    except ImportError as error:
        raise ImportError(
            "A privacy loss distribution needs dp-accounting: pip install 'skdpadmm[accounting]'"
        ) from error
    interval = _interval(parts)
    laws = []
    for u, s, count in parts:
        lowest, probabilities = discretised_loss(u, s, interval)
        pmf = pld_pmf.DensePLDPmf(interval, lowest, probabilities, 0.0, True)
        # The reflection exchanges both laws of the pair: one direction is both.
        law = privacy_loss_distribution.PrivacyLossDistribution(pmf)
        laws.append(law.self_compose(count) if count > 1 else law)
    while len(laws) > 1:  # by halves: convolutions of laws of one size are the cheap ones
        paired = [one.compose(other) for one, other in zip(laws[::2], laws[1::2], strict=False)]
        laws = paired + laws[2 * len(paired) :]
    return laws[0]


def discretised_loss(u: float, s: float, interval: float) -> tuple[int, Array]:
    """Return the law of a loss on multiples of ``interval`` that dominates the exact one.

    Between two multiples, a cell's masses under both laws of the pair are known in closed form.
    They are given to its two ends so that both are kept, which joins the points of the exact curve,
    convex in exp(epsilon), by straight lines (Doroshenko et al., PETS 2022). Returned are the
    first multiple and the probabilities.
    """
    n_cells = max(1, math.ceil(s / interval))
    levels = interval * np.arange(n_cells, dtype=np.float64)
    places = crossing(levels, u, s)  # decreasing: the last cell also holds all x < 0
    places[0] = 0.5 * (u + s)  # far inside a wide interval the loss is zero to the last digit
    starts = np.append(places[1:], 0.0)
    lengths = np.maximum(places - starts, 0.0)
    of_p, of_q = mass(starts, lengths, u), mass(starts - s, lengths, u)
    of_p[-1] += edge_mass(u)
    of_q[-1] += edge_mass(u) * math.exp(-s)
    probabilities = np.zeros(2 * n_cells + 1)
    middle = n_cells
    present = (of_p > 0.0) & (of_q > 0.0)
    ratio = np.where(present, np.log(np.where(present, of_p / np.maximum(of_q, 1e-300), 1.0)), 0.0)
    ratio = np.clip(ratio, levels, levels + interval)
    width = -math.expm1(-interval)
    # With the masses m and exp(-ratio) m, the upper end gets this share of m.
    upper = np.where(present, -np.expm1(levels - ratio) / width, 1.0)
    probabilities[middle + 1 :] += upper * of_p
    probabilities[middle:-1] += (1.0 - upper) * of_p
    # The mirror image: the laws are exchanged, and losses change their sign.
    mirrored = np.where(present, -np.expm1(ratio - levels - interval) / width, 1.0)
    probabilities[1 : middle + 1] += (mirrored * of_q)[::-1]
    probabilities[:middle] += ((1.0 - mirrored) * of_q)[::-1]
    return -n_cells, probabilities
