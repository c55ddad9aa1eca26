"""Composition: a multiset of guarantees, and the closed forms of what composes exactly."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from skdpadmm._numbers import require_count, require_delta, require_epsilon
from skdpadmm.privacy._convolution import composed_delta, composed_epsilon
from skdpadmm.privacy._gaussian import GaussianDP
from skdpadmm.privacy._guarantee import Guarantee, Neighboring, NonPrivate, Rounds
from skdpadmm.privacy._laplace import LaplaceDP
from skdpadmm.privacy._renyi import RenyiDP, common_orders

_NOTHING = GaussianDP(0.0), LaplaceDP(0.0)
_UP = 1.0 + 2.0**-51  # a root and a product, never below the sum that they stand for
_Counts = dict[Guarantee, int]
_T = TypeVar("_T", bound=Guarantee)


@dataclass(frozen=True)
class Composed(Guarantee, kind="composed"):
    r"""Adaptive composition of a multiset of guarantees, by privacy loss distributions.

    Each guarantee is replaced by the discrete privacy loss distribution of a dominating pair of its
    curve, and these are convolved (Zhu, Dong and Wang, AISTATS 2022, Theorem 10; Doroshenko et al.,
    PETS 2022). It needs dp-accounting. Every step rounds upwards; delta below 1e-12 is not
    resolved. Laplace releases are no worse than one with the sum P of their epsilons, and together
    with what GDP(mu) bounds :math:`\delta(\epsilon) \le \delta_{GDP(\mu)}(\epsilon - P)`: the
    smaller bound counts.

    Parameters
    ----------
    leaves : tuple of Guarantee
        Different ones, none of them composed itself or NonPrivate. Those that state a neighbouring
        relation state the same one.
    counts : tuple of int
        How often each occurs, at least once.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, PoissonSubsampledGaussian, compose
    >>> sampled = PoissonSubsampledGaussian(0.1, 20.0, 100, "zero_out")
    >>> f"{compose(sampled, GaussianDP(0.1)).epsilon(1e-6):.2f}"
    '0.45'
    """

    leaves: tuple[Guarantee, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "leaves", tuple(self.leaves))
        object.__setattr__(self, "counts", tuple(self.counts))
        if not len(self.leaves) == len(set(self.leaves)) == len(self.counts) > 0:
            raise ValueError(
                f"Got {len(self.leaves)} leaves and {len(self.counts)} counts, expected different"
                " guarantees, at least one, and a count for each. Use compose()."
            )
        for leaf, count in zip(self.leaves, self.counts, strict=True):
            require_count(count, "counts")
            if not isinstance(leaf, Guarantee) or isinstance(leaf, Composed | NonPrivate):
                raise TypeError(f"Got a leaf {leaf!r}, expected a Guarantee. Use compose().")
        if len(self.relations()) > 1:
            raise TypeError(
                "Got guarantees under two neighbouring relations, expected one; "
                "state all of them under the same relation."
            )

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of delta at ``epsilon`` in [0, inf]."""
        require_epsilon(epsilon)
        pure, others = self._closed()
        closed = others.delta(epsilon - pure) if epsilon >= pure else 1.0
        return min(closed, composed_delta(self.rounds(), epsilon)) if closed > 0.0 else 0.0

    def epsilon(self, delta: float) -> float:
        """Return an upper bound of epsilon at ``delta`` in [0, 1]."""
        require_delta(delta)
        pure, others = self._closed()
        closed = pure + others.epsilon(delta)
        return min(closed, composed_epsilon(self.rounds(), delta)) if delta > 0.0 else closed

    def dominates(self, other: Guarantee) -> bool:
        """Whether its delta is plainly at least another's: leaf by leaf."""
        return (
            isinstance(other, Composed)
            and self.counts == other.counts
            and all(a.dominates(b) for a, b in zip(self.leaves, other.leaves, strict=True))
        )

    def describe(self) -> str:
        if len(self.leaves) > 3:
            return f"composition of {sum(self.counts)} guarantees"
        pairs = zip(self.leaves, self.counts, strict=True)
        times = (leaf.describe() + (f" x {n}" if n > 1 else "") for leaf, n in pairs)
        return " + ".join(times)

    def relations(self) -> set[Neighboring]:
        return set().union(*(leaf.relations() for leaf in self.leaves))

    def rounds(self) -> Rounds:
        pairs = zip(self.leaves, self.counts, strict=True)
        return tuple((part, n * count) for leaf, count in pairs for part, n in leaf.rounds())

    def loss_std(self) -> float:
        return math.sqrt(sum(count * leaf.loss_std() ** 2 for leaf, count in self.rounds()))

    def largest_mu(self) -> float:
        pairs = zip(self.leaves, self.counts, strict=True)
        return _hypot((leaf.largest_mu(), count) for leaf, count in pairs)

    def _closed(self) -> tuple[float, Guarantee]:
        """Return the sum of pure epsilons, and a guarantee that bounds all other leaves.

        As one Laplace release with that sum, if there are no others.
        """
        counts = dict(zip(self.leaves, self.counts, strict=True))
        laplace, others = _split(counts, LaplaceDP)
        pure = math.fsum(count * leaf.pure_epsilon for leaf, count in laplace.items())
        mu = _hypot((leaf.largest_mu(), count) for leaf, count in others.items())
        if mu == 0.0 and pure < math.inf:
            return 0.0, LaplaceDP(pure)
        return pure, GaussianDP(mu) if mu < math.inf else NonPrivate()


def compose(*guarantees: Guarantee) -> Guarantee:
    """Return the guarantee of adaptive use of all ``guarantees`` on the same data.

    Gaussian ones compose in closed form, mu = sqrt(sum mu_t^2) (Dong, Roth and Su, JRSS-B 2022,
    Corollary 2), and so does one other with them: a mixture label by label, labels revealed, Renyi
    divergences by order mu^2 / 2, a perturbed objective within its own bound. Renyi divergences add
    on the orders that all have in common. All else is a :class:`Composed` of privacy loss
    distributions. Together with NonPrivate nothing is left.

    Parameters
    ----------
    *guarantees : Guarantee
        None gives ``GaussianDP(0.0)``.

    Returns
    -------
    Guarantee
        A single guarantee is returned as it is.

    Raises
    ------
    TypeError
        For anything but guarantees, and for some that state different neighbouring relations.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, LaplaceDP, compose
    >>> compose(GaussianDP(3.0), GaussianDP(4.0))
    GaussianDP(mu=5.0)
    >>> compose(LaplaceDP(0.1), LaplaceDP(0.1)).describe()
    'Laplace(epsilon=0.1) x 2'
    """
    together = compose_counts((g, 1) for g in guarantees)
    return guarantees[0] if len(guarantees) == 1 else together


def compose_counts(pairs: Iterable[tuple[Guarantee, int]]) -> Guarantee:
    """Compose guarantees of which each occurs a number of times."""
    counts: _Counts = Counter()
    for guarantee, count in pairs:
        require_count(count, "counts")
        if not isinstance(guarantee, Guarantee):
            raise TypeError(f"Got {guarantee!r}, expected a Guarantee, such as GaussianDP(0.1).")
        if isinstance(guarantee, Composed):
            for leaf, n in zip(guarantee.leaves, guarantee.counts, strict=True):
                counts[leaf] += n * count
        elif guarantee not in _NOTHING:
            counts[guarantee] += count
    if NonPrivate() in counts:
        return NonPrivate()
    gaussian, others = _split(counts, GaussianDP)
    mu = _hypot((part.mu, count) for part, count in gaussian.items())
    others = _with_renyi_added(others)
    if not others:
        return GaussianDP(mu)
    if sum(others.values()) == 1:
        (alone,) = others
        if mu == 0.0:
            return alone
        if (together := alone.absorb(mu)) is not None:
            return together
    counts = others | ({GaussianDP(mu): 1} if mu > 0.0 else {})
    return Composed(tuple(counts), tuple(counts.values()))


def _split(counts: _Counts, kind: type[_T]) -> tuple[dict[_T, int], _Counts]:
    """Return the guarantees of one kind, and all others."""
    matching = {part: count for part, count in counts.items() if isinstance(part, kind)}
    return matching, {part: count for part, count in counts.items() if part not in matching}


def _hypot(pairs: Iterable[tuple[float, int]]) -> float:
    """Return the mu of Gaussian guarantees, each of which occurs a number of times."""
    return math.hypot(*(mu if n == 1 else math.sqrt(n) * mu * _UP for mu, n in pairs))


def _with_renyi_added(counts: _Counts) -> _Counts:
    """Add Renyi divergences order by order, where all have an order in common."""
    renyi, others = _split(counts, RenyiDP)
    orders = common_orders(list(renyi))
    if sum(renyi.values()) < 2 or not orders:
        return counts
    sums = [math.fsum(n * one.at(order) for one, n in renyi.items()) for order in orders]
    return {**others, RenyiDP(orders, tuple(sums)): 1}
