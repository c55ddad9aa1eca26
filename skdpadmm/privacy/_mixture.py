"""Averages over labels that are revealed, such as participation, and the worst of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skdpadmm import _numbers as numbers
from skdpadmm._numbers import require
from skdpadmm.privacy._gaussian import GaussianDP, gaussian_deltas
from skdpadmm.privacy._guarantee import Guarantee, NonPrivate

# Rare numbers of rounds share one component, the worst among them. What that adds to delta is at
# most this part of delta for few rounds, and at most this probability for many rounds.
_FEW_ROUNDS = 1e-9
_MANY_ROUNDS = 1e-18
# A mixture of many slots has at most so many components.
_MOST_COMPONENTS = 1000


@dataclass(frozen=True)
class Mixture(Guarantee, kind="mixture"):
    r"""One of several guarantees, by a data-independent random label that is revealed.

    .. math:: \delta(\epsilon) = \sum_l w_l \delta_l(\epsilon)

    The label's law must not depend on the data. The figure is an average over the label: its worst
    component belongs beside it.

    Parameters
    ----------
    weights : tuple of float
        Probabilities of the labels. They sum to one up to rounding (1e-12); a truncated tail has
        to be given to some component.
    components : tuple of Guarantee
        The guarantee under each label.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, Mixture
    >>> mixture = Mixture((0.5, 0.5), (GaussianDP(0.0), GaussianDP(1.0)))
    >>> mixture.delta(1.0) == 0.5 * GaussianDP(1.0).delta(1.0)
    True
    """

    weights: tuple[float, ...]
    components: tuple[Guarantee, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(float(w) for w in self.weights))
        object.__setattr__(self, "components", tuple(self.components))
        if len(self.weights) != len(self.components) or not self.weights:
            raise ValueError(
                f"Got {len(self.weights)} weights and {len(self.components)} components, "
                "expected one weight for each of at least one component."
            )
        _require_guarantees(self.components)
        require(min(self.weights) >= 0, "weights", self.weights, "non-negative floats")
        total = math.fsum(self.weights)
        require(abs(total - 1.0) <= 1e-12, "sum(weights)", total, "1; give every label its weight")

    @numbers.quiet_underflow
    def delta(self, epsilon: float) -> float:
        """Return the average delta at ``epsilon``; what rounding lost is the worst label's."""
        numbers.require_epsilon(epsilon)
        if math.isinf(epsilon):
            return 0.0
        # Gaussian components, often thousands, are evaluated in one call.
        deltas = np.empty(len(self.components))
        gaussian = [i for i, c in enumerate(self.components) if isinstance(c, GaussianDP)]
        mus = np.array([self.components[i].largest_mu() for i in gaussian])
        deltas[gaussian] = gaussian_deltas(mus, epsilon)
        for i in set(range(len(deltas))).difference(gaussian):
            deltas[i] = self.components[i].delta(epsilon)
        average = math.fsum((np.array(self.weights) * deltas).tolist())
        return min(1.0, average + self._lost() * float(deltas.max()))

    def dominates(self, other: Guarantee) -> bool:
        """Whether its delta is plainly at least another's: label by label."""
        return (
            isinstance(other, Mixture)
            and self.weights == other.weights
            and all(a.dominates(b) for a, b in zip(self.components, other.components, strict=True))
        )

    def deltas(self, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
        average, largest = np.zeros_like(epsilons), np.zeros_like(epsilons)
        for weight, component in zip(self.weights, self.components, strict=True):
            deltas = component.deltas(epsilons)
            average += weight * deltas
            np.maximum(largest, deltas, out=largest)
        return np.minimum(1.0, average + self._lost() * largest)

    def _lost(self) -> float:
        return max(0.0, 1.0 - math.fsum(self.weights))

    def loss_std(self) -> float:
        pairs = zip(self.weights, self.components, strict=True)
        return math.sqrt(sum(w * c.loss_std() ** 2 for w, c in pairs))

    def largest_mu(self) -> float:
        return max(component.largest_mu() for component in self.components)

    def absorb(self, gaussian_mu: float) -> Mixture | None:
        """Compose label by label: the label is revealed."""
        parts = [both for c in self.components if (both := c.absorb(gaussian_mu)) is not None]
        is_known = len(parts) == len(self.components)
        return replace(self, components=tuple(parts)) if is_known else None

    def __repr__(self) -> str:
        if len(self.components) > 3:
            return f"Mixture(<{len(self.components)} guarantees>)"
        return f"Mixture(weights={self.weights}, components={self.components})"

    def describe(self) -> str:
        if len(self.components) > 3:
            return f"mixture of {len(self.components)} guarantees"
        if len(self.components) == 2 and isinstance(self.components[1], NonPrivate):
            rare = numbers.round_up(self.weights[1])
            return f"{self.components[0].describe()} but for a probability of {rare}"
        return "mixture of " + ", ".join(component.describe() for component in self.components)


@dataclass(frozen=True)
class Worst(Guarantee, kind="worst"):
    r"""What holds for all of several units, each with a guarantee of its own.

    .. math:: \delta(\epsilon) = \max_i \delta_i(\epsilon)

    :func:`worst` simplifies where it can.

    Parameters
    ----------
    components : tuple of Guarantee
        At least one.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, Mixture, Worst
    >>> rare, steady = Mixture((0.9, 0.1), (GaussianDP(0.0), GaussianDP(1.0))), GaussianDP(0.3)
    >>> both = Worst((rare, steady))
    >>> [both.delta(epsilon) == steady.delta(epsilon) for epsilon in (0.0, 1.0)]
    [True, False]
    """

    components: tuple[Guarantee, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", tuple(self.components))
        if not self.components:
            raise ValueError("Got no components, expected at least one guarantee.")
        _require_guarantees(self.components)

    def delta(self, epsilon: float) -> float:
        numbers.require_epsilon(epsilon)
        return max(component.delta(epsilon) for component in self.components)

    def epsilon(self, delta: float) -> float:
        numbers.require_delta(delta)
        return max(component.epsilon(delta) for component in self.components)

    def describe(self) -> str:
        return f"worst of {len(self.components)} guarantees"

    def deltas(self, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.max([component.deltas(epsilons) for component in self.components], axis=0)

    def loss_std(self) -> float:
        return max(component.loss_std() for component in self.components)

    def largest_mu(self) -> float:
        return max(component.largest_mu() for component in self.components)


def worst(*guarantees: Guarantee) -> Guarantee:
    """Return the weakest of ``guarantees``, in its simplest form.

    It is ``NonPrivate()`` if there is one among them. Otherwise those are dropped that another one
    plainly implies, such as all Gaussian ones but the one with the largest mu; one that is left
    alone is returned as it is, several as a :class:`Worst`.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, worst
    >>> worst(GaussianDP(0.1), GaussianDP(0.3), GaussianDP(0.2))
    GaussianDP(mu=0.3)
    """
    kept: list[Guarantee] = []
    for guarantee in _flatten(Worst(guarantees)):
        if not any(other.dominates(guarantee) for other in kept):
            kept = [other for other in kept if not guarantee.dominates(other)]
            kept.append(guarantee)
    return kept[0] if len(kept) == 1 else Worst(tuple(kept))


def _flatten(guarantee: Guarantee) -> list[Guarantee]:
    if isinstance(guarantee, Worst):
        return [part for component in guarantee.components for part in _flatten(component)]
    return [guarantee]


def _require_guarantees(components: tuple[Guarantee, ...]) -> None:
    for component in components:
        if not isinstance(component, Guarantee):
            raise TypeError(f"Got a component {component!r}, expected a Guarantee.")


def participation_mixture(
    sensitivities: Sequence[float],
    noise_std: float,
    *,
    probability: float,
    n_rounds: int,
    cap: int | None = None,
) -> Guarantee:
    r"""Return the guarantee of a unit that takes part in a random number of rounds.

    .. math:: \delta(\epsilon) = E_N\,\delta_{GDP(\mu_N)}(\epsilon), \qquad
              \mu_j = \frac{1}{s} \sqrt{\Delta_1^2 + \dots + \Delta_j^2}, \qquad
              N = \min(\mathrm{Bin}(n, q), \text{cap})

    Parameters
    ----------
    sensitivities : sequence of float
        The j-th is how far the j-th message of the unit can move what is released in the round of
        that message, at most. One for each of the at most ``min(n_rounds, cap)`` messages; more
        are not read.
    noise_std : float
        Standard deviation of the Gaussian noise of every round, in (0, inf).
    probability : float
        In (0, 1]: the chance q to take part in a round.
    n_rounds : int
        At least 1: the number n of rounds.
    cap : int or None, default=None
        At least 1: the largest number of rounds in which a unit takes part; those that it is
        selected for later go on without it. None is no cap.

    Returns
    -------
    Guarantee
        A :class:`Mixture` of :class:`GaussianDP` over the number of rounds taken part in. Its last
        component is the worst realisation. A plain :class:`GaussianDP` where one number of rounds
        is left, as with ``probability=1``.

    Notes
    -----
    Given the rounds in which the unit takes part, its releases are adaptive Gaussian releases with
    sensitivities :math:`\Delta_j`, and the others do not depend on it. As the law of those rounds
    is the same for neighbouring data, delta is the average over them, even when everybody sees who
    takes part in which round. Nothing is gained from secrecy. Where participation is hidden, and it
    is the whole participant that is protected, :class:`PoissonSubsampledGaussian` is tighter; it
    does not hold for a single record, whose participant's other records show who took part.

    Conditions:

    - The schedule does not depend on the data, and the adversary does not choose it.
    - Every round selects independently of the other rounds, so that the number of selections is
      binomial: each participant on its own (Poisson), or a subset of fixed size m of n
      participants, where q is m / n.
    - A release depends on the unit only in the rounds in which it takes part: increments or the
      unit's own messages. It is FALSE for the re-released mean of everybody's states, which
      depends on the unit in every round after its first.
    - Noise is added to every release, whoever takes part.

    Examples
    --------
    >>> from skdpadmm.privacy import participation_mixture, worst_participation
    >>> messages = (1.0,) * 100
    >>> average = participation_mixture(messages, 25.0, probability=0.1, n_rounds=100)
    >>> worst = worst_participation(messages, 25.0, n_rounds=100)
    >>> f"{average.epsilon(1e-6):.3f} on average, {worst.epsilon(1e-6):.3f} at worst"
    '0.580 on average, 1.766 at worst'
    """
    every = worst_participation(sensitivities, noise_std, n_rounds=n_rounds, cap=cap)
    require(0 < probability <= 1, "probability", probability, "a float in (0, 1]")
    if probability == 1:
        return every
    most, chance = _most_rounds(n_rounds, cap), float(probability)
    law = binomial_law(int(n_rounds), chance, chance / (1.0 - chance))
    law = np.append(law[:most], law[most:].sum())
    mu = np.hypot.accumulate([0.0, *_ratios(sensitivities[:most], noise_std)])
    few = int(np.searchsorted(np.cumsum(law), _FEW_ROUNDS))
    n_many = int(np.searchsorted(np.cumsum(law[::-1]), _MANY_ROUNDS))
    # Neighbouring numbers of rounds in groups, each represented by its last, the worst.
    last = np.unique([*range(few, most + 1 - n_many), most])
    if last.size == 1:
        return every
    weights = np.add.reduceat(law, np.append(0, last[:-1] + 1))
    return Mixture(tuple(weights.tolist()), (*map(GaussianDP, mu[last[:-1]].tolist()), every))


def worst_participation(
    sensitivities: Sequence[float], noise_std: float, *, n_rounds: int, cap: int | None = None
) -> GaussianDP:
    """Return the guarantee of a unit that takes part in every round, or in as many as it may.

    This is the worst realisation of :func:`participation_mixture`, whose parameters it has, and
    belongs beside it: mu is the root of the sum of squares of ``sensitivities / noise_std``. It
    holds for every schedule.

    Examples
    --------
    >>> from skdpadmm.privacy import worst_participation
    >>> worst_participation((3.0, 4.0), 10.0, n_rounds=2)
    GaussianDP(mu=0.5)
    >>> worst_participation((3.0, 4.0), 10.0, n_rounds=2, cap=1)
    GaussianDP(mu=0.3)
    """
    numbers.require_count(n_rounds, "n_rounds")
    if cap is not None:
        numbers.require_count(cap, "cap")
    numbers.require_positive(noise_std, "noise_std")
    most = _most_rounds(n_rounds, cap)
    if len(sensitivities) < most:
        raise ValueError(
            f"Got {len(sensitivities)} sensitivities, expected {most}, "
            "one for each message that the unit may send."
        )
    for sensitivity in sensitivities[:most]:
        numbers.require_finite(sensitivity, "sensitivity")
    return GaussianDP(math.hypot(*_ratios(sensitivities[:most], noise_std)))


def _most_rounds(n_rounds: int, cap: int | None) -> int:
    return int(n_rounds if cap is None else min(n_rounds, cap))


def _ratios(sensitivities: Sequence[float], noise_std: float) -> list[float]:
    return [float(sensitivity) / float(noise_std) for sensitivity in sensitivities]


@numbers.quiet_underflow
def binomial_law(n: int, p: float, odds: float) -> NDArray[np.float64]:
    """Return the probabilities (n + 1,) of 0 to n successes of chance p, ``odds = p / (1 - p)``.

    By ratios of neighbours from the mode on, then normalised: exact to rounding for every n, where
    logarithms of factorials cancel.
    """
    successes = np.arange(n)
    mode = min(int((n + 1) * p), n)
    ratios = (n - successes) / (successes + 1) * odds
    below, above = np.cumprod(1.0 / ratios[:mode][::-1]), np.cumprod(ratios[mode:])
    law = np.concatenate([below[::-1], [1.0], above])
    return np.asarray(law / law.sum(), dtype=np.float64)


def mixture_of_slots(mu: ArrayLike) -> Mixture:
    r"""Return the guarantee of a record in a uniformly random slot that does not depend on data.

    .. math:: \delta(\epsilon) = \frac1n \sum_i \delta_{GDP(\mu_i)}(\epsilon)

    The figure holds also where the slot becomes known, as the average over it: the largest mu
    belongs beside it. There are at most 1000 components, the largest mu first. Equal ones are one
    component; where there are more, so are those within a small ratio, rounded up to the largest
    among them.

    Parameters
    ----------
    mu : array-like of shape (n,)
        mu in each slot, each in [0, inf).

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
    weights = (counts / values.size).tolist()
    return Mixture(tuple(weights), tuple(map(GaussianDP, distinct.tolist())))
