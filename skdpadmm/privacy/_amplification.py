"""Gradient ADMM of which the last state alone is seen: the steps after a contribution hide it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skdpadmm.privacy._gaussian import GaussianDP
from skdpadmm.privacy._mixture import Mixture
from skdpadmm.privacy._validation import require

# A handful of roundings, each of half a unit in the last place of a number up to 1.
_SLACK = 2.0**-50

# A mixture of many slots has at most so many components.
_MOST_COMPONENTS = 1000

# The running minimum of the strongly convex bound on a grid is tabulated up to here.
_LONGEST_TABLE = 2**20


def amplification_constant(kappa: float) -> float:
    r"""Return the constant C* of amplification by iteration for gradient ADMM.

    .. math:: C^*(\kappa) = \frac{2 + \kappa + \sqrt{\kappa^2 + 4}}{2 \kappa}

    A contribution whose effect lasts over T pairs of steps costs ``sqrt(C* / T)`` of what it costs
    alone. The user guide derives it; Chan, Xie & Zhao, "Privacy Amplification by Iteration for ADMM
    with (Strongly) Convex Objective Functions", Lemma 6.10, have ``max(2, 3 / kappa)``.

    Parameters
    ----------
    kappa : float
        ``step_size * penalty_weight * s_min**2`` in (0, inf), where s_min is the smallest singular
        value of A, which has full row rank.

    Returns
    -------
    float
        Above 1, and decreasing in kappa.

    Raises
    ------
    ValueError
        If kappa is out of range.

    Examples
    --------
    >>> from skdpadmm.privacy import amplification_constant
    >>> [round(amplification_constant(kappa), 3) for kappa in (0.1, 1.0, 10.0)]
    [20.512, 2.618, 1.11]
    """
    _require_positive(kappa, "kappa")
    return _one_pair(1.0, kappa, 1.0)


def contribution_mu(
    step_size: float,
    sensitivity: float,
    noise_std: float,
    *,
    kappa: float = 0.0,
    square: bool = False,
) -> float:
    r"""Return mu of one contribution to gradient ADMM by itself: ``step * Delta / sigma``.

    Parameters
    ----------
    step_size : float
        eta in (0, inf).
    sensitivity : float
        Delta in [0, inf): how far the gradients of two neighbouring records differ, at every point.
    noise_std : float
        Standard deviation sigma of the noise on x, in (0, inf).
    kappa : float, default=0.0
        ``step_size * penalty_weight * s_min**2`` in [0, inf).
    square : bool, default=False
        Whether A is square. The figure is then divided by ``1 + kappa``; the amplification
        constant that goes with it stays the same.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> from skdpadmm.privacy import contribution_mu
    >>> contribution_mu(0.5, 2.0, 4.0), contribution_mu(0.5, 2.0, 4.0, kappa=1.0, square=True)
    (0.25, 0.125)
    """
    _require_positive(step_size, "step_size")
    require(0 <= sensitivity < math.inf, "sensitivity", sensitivity, "a float in [0, inf)")
    _require_positive(noise_std, "noise_std")
    require(0 <= kappa < math.inf, "kappa", kappa, "a float in [0, inf)")
    alone = step_size * sensitivity / noise_std
    return float(alone / (1.0 + kappa) if square else alone)


@dataclass(frozen=True)
class StronglyConvexADMM:
    r"""Certificate that a step of gradient ADMM contracts, made by `strongly_convex_certificate`.

    .. math::

        \|(x, \lambda)\|^2 = R \|x\|^2 + S \|\lambda - \beta A x\|^2, \qquad
        P \|x^+\|^2 + Q \|\lambda^+ - \beta A x^+\|^2 \le \|(x, \lambda)\|^2

    for differences of two states and their successors: the squared norm contracts by
    ``max(R / P, S / Q)``.

    Parameters
    ----------
    R, S : float
        Weights of the norm.
    P, Q : float
        Weights of what bounds it after a step.
    rate : float
        How the squared norm contracts in a step, in (0, 1).
    pair_constant : float
        C_R: what a pair of steps costs at most, in squared mu over squared norm in units of the
        noise.
    start : float
        N_0: the squared norm of a contribution over the square of ``step_size * Delta``, at most.
    amplification : float
        ``C_R * N_0`` over the square of what a contribution costs alone.

    Examples
    --------
    >>> from skdpadmm.privacy import strongly_convex_certificate
    >>> certificate = strongly_convex_certificate(
    ...     0.9, 0.5, strong_convexity=1.0, smoothness=1.0, penalty_strong_convexity=1.0,
    ...     smallest_singular_value=1.0, largest_singular_value=1.0, coupling_norm=1.0,
    ... )
    >>> f"{certificate.rate:.4f}, {certificate.squared([1, 10, 100])[1]:.3f}"
    '0.9877, 0.070'
    """

    R: float
    S: float
    P: float
    Q: float
    rate: float
    pair_constant: float
    start: float
    amplification: float

    def __post_init__(self) -> None:
        """Refuse what certifies nothing."""
        for name in ("R", "S", "P", "Q", "pair_constant", "start", "amplification"):
            _require_positive(getattr(self, name), name)
        require(0 < self.rate < 1, "rate", self.rate, "a float in (0, 1)")
        slack = 1.0 + _SLACK
        require(
            self.rate * slack >= max(self.R / self.P, self.S / self.Q),
            "rate",
            self.rate,
            "at least max(R / P, S / Q); use strongly_convex_certificate",
        )

    def squared(self, n_pairs: ArrayLike) -> NDArray[np.float64]:
        r"""Return the squared mu after pairs of steps, in units of that of a contribution alone.

        .. math:: C_R N_0 L^{2 (T - 1)} \frac{1 - L^2}{1 - L^{2 T}}

        Parameters
        ----------
        n_pairs : array-like of int or float
            T, at least 1.

        Returns
        -------
        ndarray of the shape of n_pairs
            Decreasing; it exceeds 1 for few pairs, where it is of no use.
        """
        pairs = np.asarray(n_pairs, dtype=np.float64)
        log_rate = math.log(self.rate)
        hidden = math.expm1(2.0 * log_rate) / np.expm1(2.0 * log_rate * pairs)
        return np.asarray(
            self.amplification * np.exp(2.0 * log_rate * (pairs - 1.0)) * hidden, dtype=np.float64
        )


def strongly_convex_step_range(
    penalty_weight: float,
    *,
    strong_convexity: float,
    smoothness: float,
    penalty_strong_convexity: float,
    coupling_norm: float,
) -> tuple[float, float]:
    r"""Return the open range of step sizes in which a step of gradient ADMM contracts.

    .. math::

        \max\left(\frac{4}{\nu + \mu + \sqrt{(\nu + \mu)^2 + 8 \nu \mu}},\;
        \frac{2}{\nu + \mu} - \frac{2 \mu_g}{\beta^2 \|A^T B\|^2}\right)
        < \eta < \frac{2}{\nu + \mu}

    (Chan, Xie & Zhao, "Privacy Amplification by Iteration for ADMM with (Strongly) Convex Objective
    Functions", Lemma 7.6.)

    Parameters
    ----------
    penalty_weight : float
        beta in (0, inf).
    strong_convexity, smoothness : float
        mu in [0, nu] and nu in (0, inf), of every f_t on every data set.
    penalty_strong_convexity : float
        mu_g of g, in [0, inf).
    coupling_norm : float
        Spectral norm of ``A' B``, in [0, inf).

    Returns
    -------
    tuple of float
        Low and high. The range is empty where low is not below high.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> from skdpadmm.privacy import strongly_convex_step_range
    >>> low, high = strongly_convex_step_range(
    ...     0.9, strong_convexity=0.5, smoothness=0.5, penalty_strong_convexity=0.2,
    ...     coupling_norm=1.0,
    ... )
    >>> f"{low:.4f}, {high:.4f}"
    '1.5062, 2.0000'
    """
    _require_positive(penalty_weight, "penalty_weight")
    _require_positive(smoothness, "smoothness")
    require(
        0 <= strong_convexity <= smoothness,
        "strong_convexity",
        strong_convexity,
        f"a float in [0, smoothness={smoothness!r}]",
    )
    require(
        0 <= penalty_strong_convexity < math.inf,
        "penalty_strong_convexity",
        penalty_strong_convexity,
        "a float in [0, inf)",
    )
    require(0 <= coupling_norm < math.inf, "coupling_norm", coupling_norm, "a float in [0, inf)")
    total = smoothness + strong_convexity
    high = 2.0 / total
    low = 4.0 / (total + math.sqrt(total**2 + 8.0 * smoothness * strong_convexity))
    coupling = (penalty_weight * coupling_norm) ** 2
    if coupling > 0:
        low = max(low, high - 2.0 * penalty_strong_convexity / coupling)
    return low, high


def strongly_convex_certificate(
    step_size: float,
    penalty_weight: float,
    *,
    strong_convexity: float,
    smoothness: float,
    penalty_strong_convexity: float,
    smallest_singular_value: float,
    largest_singular_value: float,
    coupling_norm: float,
    square: bool = False,
) -> StronglyConvexADMM:
    r"""Return the certificate that a step of gradient ADMM contracts.

    With :math:`U = 2 / (\nu + \mu)`, :math:`s = (U - \eta) / \eta` and
    :math:`q = 1 - 2 \eta \nu \mu / (\nu + \mu)`,

    .. math:: R = q + s, \quad P = 1 - s, \quad S = \frac{\eta}{\beta}, \quad
              Q = S + \frac{\eta}{4} (U - \eta) s_{\min}^2 .

    (Chan, Xie & Zhao, "Privacy Amplification by Iteration for ADMM with (Strongly) Convex Objective
    Functions", Lemma 7.6, whose Q takes s_min to be at least 1. The user guide has the proof.)

    Parameters
    ----------
    step_size, penalty_weight : float
        eta and beta in (0, inf).
    strong_convexity, smoothness : float
        mu and nu of every f_t, on every data set: public constants.
    penalty_strong_convexity : float
        mu_g of g.
    smallest_singular_value, largest_singular_value : float
        Of A, which has full row rank, so that the smallest is positive.
    coupling_norm : float
        Spectral norm of ``A' B``, or a bound of it.
    square : bool, default=False
        Whether A is square. What a contribution costs alone is then that of `contribution_mu` with
        ``square=True``.

    Returns
    -------
    StronglyConvexADMM

    Raises
    ------
    ValueError
        If an argument is out of range; a step size outside `strongly_convex_step_range` is told
        that range, or that it is empty.
    """
    _require_positive(step_size, "step_size")
    _require_positive(smallest_singular_value, "smallest_singular_value")
    require(
        smallest_singular_value <= largest_singular_value < math.inf,
        "largest_singular_value",
        largest_singular_value,
        f"a finite float of at least smallest_singular_value={smallest_singular_value!r}",
    )
    low, high = strongly_convex_step_range(
        penalty_weight,
        strong_convexity=strong_convexity,
        smoothness=smoothness,
        penalty_strong_convexity=penalty_strong_convexity,
        coupling_norm=coupling_norm,
    )
    if not low < high:
        raise ValueError(
            f"Got strong_convexity={strong_convexity!r} and"
            f" penalty_strong_convexity={penalty_strong_convexity!r}, for which the range of step"
            " sizes is empty, expected both to be positive. Add a ridge term to the losses and to"
            " the penalty, or use the general bound."
        )
    expected = f"a float strictly between {low!r} and {high!r}; or use the general bound"
    require(low < step_size < high, "step_size", step_size, expected)
    shortfall = (high - step_size) / step_size
    curvature = 2.0 * step_size * smoothness * strong_convexity / (smoothness + strong_convexity)
    shrinkage = max(1.0 - curvature, 0.0)
    R, P = shrinkage + shortfall, 1.0 - shortfall
    S = step_size / penalty_weight
    Q = S + 0.25 * step_size * (high - step_size) * smallest_singular_value**2
    rate = max(R / P, S / Q) + _SLACK
    require(P > 0 and rate < 1, "step_size", step_size, expected)  # both may be lost to rounding
    product = step_size * penalty_weight
    kappa = product * smallest_singular_value**2
    # The largest (R + u) / (1 + u)^2 over the spectrum: it rises up to 1 - 2 R, then falls.
    u_low = kappa if square else 0.0
    u = min(max(1.0 - 2.0 * R, u_low), product * largest_singular_value**2)
    start = (R + u) / (1.0 + u) ** 2
    alone = 1.0 / (1.0 + kappa) if square else 1.0
    pair_constant = _one_pair(R, kappa, shrinkage * alone**2)
    return StronglyConvexADMM(
        R=R,
        S=S,
        P=P,
        Q=Q,
        rate=rate,
        pair_constant=pair_constant,
        start=start,
        amplification=pair_constant * start / alone**2,
    )


@dataclass(frozen=True)
class AmplifiedIteration:
    r"""What contributions to gradient ADMM cost where its last state alone is seen.

    .. math:: \mu_m = \min\left(r + g,\; r \sqrt{\frac{C^*}{\lfloor m / 2 \rfloor}}
              + g \sqrt{2 \lfloor m / 2 \rfloor}\right)

    for a contribution whose effect lasts over m steps, its own included, and never more than for
    fewer of them. Here r is `ratio` and g is `grid_shift`. (After Chan, Xie & Zhao, "Privacy
    Amplification by Iteration for ADMM with (Strongly) Convex Objective Functions", Corollary 6.2,
    with the constants that the user guide derives.)

    Conditions:

    - In each step one record's gradient is used. Every loss is convex and nu-smooth on every data
      set, and the step size is at most 2 / nu. A has full row rank.
    - Noise is independent from step to step, N(0, sigma^2 I) on x alone, also in steps of nobody
      or without a gradient.
    - Nothing but the last state, or a function of it, is seen. Averages, best iterates and the
      scores of a path are no functions of it. Nobody knows the noise of a later step.
    - The order of slots, and when to stop, do not depend on data.

    Parameters
    ----------
    ratio : float
        mu of a contribution by itself, in [0, inf): `contribution_mu`.
    amplification : float
        C*: `amplification_constant`. Infinite where the theorem does not apply.
    grid_shift : float, default=0.0
        Where states are rounded to a public grid before noise is added: how far rounding can move
        two of them apart in a step, in Euclidean norm over the standard deviation of the noise.
    strong : StronglyConvexADMM or None, default=None
        Certificate of a strongly convex problem. The better bound counts.

    Examples
    --------
    >>> from skdpadmm.privacy import AmplifiedIteration, amplification_constant
    >>> made = AmplifiedIteration(1.0, amplification_constant(1.0))
    >>> f"{made.local().epsilon(1e-6):.3f} alone, {made.first(1000).epsilon(1e-6):.3f} at first"
    '4.887 alone, 0.281 at first'
    >>> made.participations((10, 10, 1)).mu > made.path(1).mu
    True
    """

    ratio: float
    amplification: float
    grid_shift: float = 0.0
    strong: StronglyConvexADMM | None = None

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        require(0 <= self.ratio < math.inf, "ratio", self.ratio, "a float in [0, inf)")
        require(self.amplification > 0, "amplification", self.amplification, "a float in (0, inf]")
        require(
            0 <= self.grid_shift < math.inf, "grid_shift", self.grid_shift, "a float in [0, inf)"
        )

    def local(self) -> GaussianDP:
        """Return the guarantee of a contribution to which nothing is added by later steps.

        Returns
        -------
        GaussianDP
        """
        return GaussianDP(self._alone)

    def path(self, n_participations: int = 1) -> GaussianDP:
        """Return the guarantee of a record that contributes so often where every state is seen.

        Parameters
        ----------
        n_participations : int, default=1
            At least 0.

        Returns
        -------
        GaussianDP

        Raises
        ------
        ValueError
            If there are fewer than none.
        """
        require(
            isinstance(n_participations, Integral) and n_participations >= 0,
            "n_participations",
            n_participations,
            "an int >= 0",
        )
        return GaussianDP(math.sqrt(n_participations) * self._alone)

    def first(self, n_iterations: int) -> GaussianDP:
        """Return the guarantee of a record that contributes once, in the first of several steps.

        Parameters
        ----------
        n_iterations : int
            Steps from the contribution to the end, its own included; at least 1.

        Returns
        -------
        GaussianDP

        Raises
        ------
        ValueError
            If there are none.
        """
        return self.participations((n_iterations,))

    def participations(self, gaps: Sequence[int] | NDArray[np.integer]) -> GaussianDP:
        """Return the guarantee of a record that contributes several times.

        Parameters
        ----------
        gaps : sequence of int
            For each contribution, the steps from it, its own included, up to the next one of the
            same record, that one excluded; for the last contribution up to the end.

        Returns
        -------
        GaussianDP
            mu is the root of the sum of their squares.

        Raises
        ------
        ValueError
            If there is a gap below 1.
        """
        return GaussianDP(math.hypot(*self.mu_after(np.asarray(gaps, dtype=np.intp)).tolist()))

    def mu_after(self, n_iterations: ArrayLike) -> NDArray[np.float64]:
        """Return mu of contributions whose effect lasts over so many steps, their own included.

        Parameters
        ----------
        n_iterations : array-like of int
            At least 1.

        Returns
        -------
        ndarray of the shape of n_iterations
            Non-increasing in n_iterations: later steps work on what was hidden before.

        Raises
        ------
        ValueError
            If there is one below 1.
        """
        steps = np.asarray(n_iterations)
        _require_integers(steps, "n_iterations")
        fewest = int(steps.min(initial=1))
        require(fewest >= 1, "n_iterations", fewest, "ints >= 1")
        pairs = steps // 2
        mu = np.full(steps.shape, self._alone)
        if self.ratio == 0 or not (pairs > 0).any():
            return mu
        if self.amplification < math.inf:
            # On a grid the bound falls up to some number of pairs, then rises: it is stopped there.
            root = math.sqrt(self.amplification)
            best = math.inf
            if self.grid_shift > 0:
                best = self.ratio * root / (math.sqrt(2.0) * self.grid_shift)
            for most in (math.floor(best), math.ceil(best)) if best < math.inf else (math.inf,):
                used = np.minimum(np.maximum(pairs, 1), max(most, 1))
                mu = np.minimum(mu, np.where(pairs > 0, self._of(root / np.sqrt(used), used), mu))
        if self.strong is not None:
            mu = np.minimum(mu, np.where(pairs > 0, self._strongly_convex(pairs, self.strong), mu))
        return mu

    def slots(self, sequence: ArrayLike, n_slots: int) -> NDArray[np.float64]:
        """Return mu of the record in each slot of a public schedule.

        Parameters
        ----------
        sequence : array-like of int of shape (n_steps,)
            The slot that each step uses; negative: nobody's.
        n_slots : int
            Number of slots, at least 1.

        Returns
        -------
        ndarray of shape (n_slots,)
            0 for a slot that is never used. Which record is in which slot is for the caller: the
            largest is the worst, and `mixture_of_slots` is the average over secret random slots.

        Raises
        ------
        ValueError
            If a slot is out of range.
        """
        require(isinstance(n_slots, Integral) and n_slots >= 1, "n_slots", n_slots, "an int >= 1")
        steps = np.asarray(sequence)
        _require_integers(steps, "sequence")
        require(steps.ndim == 1, "sequence of dimension", steps.ndim, "1")
        last_slot = int(steps.max(initial=-1))
        require(last_slot < n_slots, "a slot", last_slot, f"ints below n_slots={n_slots}")
        if self._alone == 0:
            return np.zeros(n_slots)
        when = np.flatnonzero(steps >= 0)
        when = when[np.argsort(steps[when], kind="stable")]
        slot = steps[when]
        # The next contribution of the same slot, or the end.
        until = np.full(when.size, steps.size)
        again = slot[1:] == slot[:-1]
        until[:-1][again] = when[1:][again]
        share = self.mu_after(until - when) / self._alone
        total = np.bincount(slot, weights=np.square(share), minlength=n_slots)
        return np.asarray(self._alone * np.sqrt(total), dtype=np.float64)

    def random_stopping(self, n: int) -> Mixture:
        r"""Return the guarantee of every record of one pass that ends at a secret random step.

        Records are used once in a fixed order, and the number T of steps is uniform on
        ``n // 2 + 1, ..., n``.

        Parameters
        ----------
        n : int
            Number of records, at least 1.

        Returns
        -------
        Mixture
            Over T, for the record at position ``n // 2 + 1``, the worst. Those that are used in the
            last step of a realisation have no more than `local`, which belongs beside it.

        Raises
        ------
        ValueError
            If there is no record.

        Notes
        -----
        With h = n // 2, position t lasts over ``L_t = T - t + 1`` steps, or it is never used. For
        every l, at most l values of T have ``L_t <= l``, so
        :math:`P(L_t \le l) \le \min(l, n - h) / (n - h)`, and t = h + 1 attains it: its L is the
        smallest in stochastic order, and mu does not increase in L, so its delta is the largest at
        every epsilon.
        """
        require(isinstance(n, Integral) and n >= 1, "n", n, "an int >= 1")
        return mixture_of_slots(self.mu_after(np.arange(1, n - n // 2 + 1)))

    @property
    def _alone(self) -> float:
        return float(self.ratio + self.grid_shift)

    def _of(
        self, share: NDArray[np.float64], pairs: NDArray[np.float64] | NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """Return mu where a contribution costs a share of `ratio` over so many pairs of steps."""
        return np.asarray(
            self.ratio * share + self.grid_shift * np.sqrt(2.0 * pairs), dtype=np.float64
        )

    def _strongly_convex(
        self, pairs: NDArray[np.intp], strong: StronglyConvexADMM
    ) -> NDArray[np.float64]:
        if self.grid_shift == 0:
            return self._of(np.sqrt(strong.squared(np.maximum(pairs, 1))), np.zeros(pairs.shape))
        table = np.arange(1, min(int(pairs.max()), _LONGEST_TABLE) + 1)
        falling = np.minimum.accumulate(self._of(np.sqrt(strong.squared(table)), table))
        return np.asarray(falling[np.clip(pairs, 1, table.size) - 1], dtype=np.float64)


def mixture_of_slots(mu: ArrayLike) -> Mixture:
    r"""Return the guarantee of a record in a uniformly random slot.

    .. math:: \delta(\epsilon) = \frac1n \sum_i \delta_{GDP(\mu_i)}(\epsilon)

    The slot must not depend on data. The figure holds also where the slot becomes known, as the
    average over it: the largest mu belongs beside it.

    Parameters
    ----------
    mu : array-like of shape (n,)
        mu in each slot, each in [0, inf).

    Returns
    -------
    Mixture
        Of at most 1000 components, the largest mu first. Equal ones are one component; where there
        are more, so are those within a small ratio, rounded up to the largest among them.

    Raises
    ------
    ValueError
        If there is no slot, or a mu is out of range.

    Examples
    --------
    >>> from skdpadmm.privacy import mixture_of_slots
    >>> mixture_of_slots([0.5, 1.0, 0.5, 0.0]).weights
    (0.25, 0.5, 0.25)
    """
    values = np.asarray(mu, dtype=np.float64)
    require(values.ndim == 1 and values.size > 0, "mu of shape", values.shape, "(n,) with n >= 1")
    require(bool(np.all(values >= 0)), "min(mu)", float(values.min()), "a float in [0, inf)")
    distinct, counts = np.unique(values, return_counts=True)
    distinct, counts = distinct[::-1], counts[::-1]
    require(bool(distinct[0] < math.inf), "max(mu)", float(distinct[0]), "a float in [0, inf)")
    width = 2.0**-12
    while distinct.size > _MOST_COMPONENTS:
        # Groups of nearly equal mu, by the logarithm of how far they are below the largest, finest
        # near it; zeros are a group of their own. Wider ones until there are few.
        with np.errstate(divide="ignore"):
            depth = np.log(distinct[0]) - np.log(distinct)
        group = np.where(np.isfinite(depth), np.floor(2.0 * np.log1p(0.5 * depth) / width), np.inf)
        first = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
        if first.size <= _MOST_COMPONENTS:
            distinct, counts = distinct[first], np.add.reduceat(counts, first)
        width *= 1.25
    return Mixture(
        tuple((counts / values.size).tolist()), tuple(GaussianDP(m) for m in distinct.tolist())
    )


def _one_pair(weight: float, kappa: float, shrinkage: float) -> float:
    r"""Return the largest ``v^2 + q (a + v)^2`` where ``R a^2 + kappa v^2`` is 1.

    v is what the noise of the first of two steps has to hide, a + v, shrunk, that of the second.
    """
    trace = shrinkage / weight + (1.0 + shrinkage) / kappa
    # The discriminant as a sum of squares, which does not cancel.
    difference = (1.0 + shrinkage) / kappa - shrinkage / weight
    coupling = 4.0 * shrinkage / weight * (shrinkage / kappa)
    return 0.5 * (trace + math.sqrt(difference**2 + coupling))


def _require_positive(value: float, name: str) -> None:
    require(0 < value < math.inf, name, value, "a float in (0, inf)")


def _require_integers(values: NDArray[np.generic], name: str) -> None:
    if not (np.issubdtype(values.dtype, np.integer) or values.size == 0):
        raise ValueError(f"Got {name} of type {values.dtype}, expected integers.")
