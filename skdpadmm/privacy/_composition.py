"""Composition of guarantees."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, get_args

from skdpadmm.privacy._gaussian import GaussianDP
from skdpadmm.privacy._guarantee import Guarantee, Neighboring, NonPrivate
from skdpadmm.privacy._laplace import LaplaceDP, tail_delta, tail_epsilon
from skdpadmm.privacy._mixture import Mixture, Worst, binomial_law, worst
from skdpadmm.privacy._numbers import require, require_delta, require_epsilon
from skdpadmm.privacy._objective_perturbation import PerturbedObjectiveDP
from skdpadmm.privacy._pld import (
    PoissonSubsampledGaussian,
    Rounds,
    pld_delta,
    pld_epsilon,
    smaller,
)
from skdpadmm.privacy._renyi import RenyiDP, on_common_orders

_MOST_COMBINATIONS = 100_000
_UP = 1.0 + 2.0**-51  # a root and a product, never below the sum that they stand for
Part = GaussianDP | PoissonSubsampledGaussian | LaplaceDP
_Known = Part | Mixture | Worst | RenyiDP | PerturbedObjectiveDP | NonPrivate
_KNOWN = (
    "GaussianDP, PoissonSubsampledGaussian, LaplaceDP, Composed, Mixture, Worst, RenyiDP (with "
    "RenyiDP or GaussianDP), one PerturbedObjectiveDP (with GaussianDP) and NonPrivate"
)
# Components with their weights; how often each is chosen, by position and by component.
_Law = dict[Guarantee, float]
_Counts = tuple[tuple[int, int], ...]
_Choice = tuple[tuple[Guarantee, int], ...]
_T = TypeVar("_T", bound=Guarantee)


@dataclass(frozen=True)
class Composed(Guarantee, kind="composed"):
    """Gaussian, subsampled and Laplace releases, composed by privacy loss distributions.

    Where nothing is subsampled a bound in closed form is there as well. It counts if it is smaller,
    and where dp-accounting is not installed.

    Parameters
    ----------
    parts : tuple of GaussianDP, PoissonSubsampledGaussian and LaplaceDP
        All subsampled parts share one neighbouring relation.

    Examples
    --------
    >>> from skdpadmm.privacy import Composed, GaussianDP, PoissonSubsampledGaussian
    >>> parts = (PoissonSubsampledGaussian(0.1, 20.0, 100, "zero_out"), GaussianDP(0.1))
    >>> f"{Composed(parts).epsilon(1e-6):.2f}"
    '0.45'
    """

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            raise ValueError("Got no parts, expected at least one; use GaussianDP(0.0) for none.")
        for part in self.parts:
            if not isinstance(part, Part):
                raise TypeError(f"Got a part {part!r}, expected one of {get_args(Part)}.")
        if len({part.neighboring for part in self._sampled()}) > 1:
            raise TypeError(
                "Got subsampled guarantees under two neighbouring relations, expected one; "
                "state all of them under the same relation."
            )

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of delta at ``epsilon`` in [0, inf]."""
        require_epsilon(epsilon)
        rounds = self._rounds()
        if not rounds:
            return 0.0
        closed = None if self._sampled() else self._closed_delta(epsilon)
        return smaller(closed, lambda: pld_delta(rounds, epsilon))

    def epsilon(self, delta: float) -> float:
        """Return an upper bound of epsilon at ``delta`` in [0, 1]."""
        require_delta(delta)
        rounds = self._rounds()
        if not rounds:
            return 0.0
        closed = None if self._sampled() else self._closed_epsilon(delta)
        return smaller(closed, lambda: pld_epsilon(rounds, delta))

    def dominates(self, other: Guarantee) -> bool:
        """Whether its delta is plainly at least another's: part by part."""
        return (
            isinstance(other, Composed)
            and len(self.parts) == len(other.parts)
            and all(a.dominates(b) for a, b in zip(self.parts, other.parts, strict=True))
        )

    def describe(self) -> str:
        return " + ".join(part.describe() for part in self.parts)

    def _sampled(self) -> list[PoissonSubsampledGaussian]:
        return _of(self.parts, PoissonSubsampledGaussian)

    def _losses(self) -> tuple[GaussianDP, float, float, float]:
        """Return all Gaussian parts, the pure epsilon of the rest, and mean and variance of all."""
        gaussian, laplace = _gaussian(self.parts), _merge(_of(self.parts, LaplaceDP))
        mean, variance = laplace.moments()
        square = gaussian.mu**2
        return gaussian, laplace.pure_epsilon, mean + 0.5 * square, variance + square

    def _closed_delta(self, epsilon: float) -> float:
        """Return the smaller of two bounds.

        A pure guarantee shifts every level by its epsilon at most, which leaves the Gaussian's
        exact curve there; and the tail of the loss bounds delta.
        """
        if math.isinf(epsilon):
            return 0.0
        gaussian, pure, mean, variance = self._losses()
        shifted = gaussian.delta(epsilon - pure) if epsilon >= pure else 1.0
        return min(shifted, tail_delta(mean, variance, epsilon))

    def _closed_epsilon(self, delta: float) -> float:
        gaussian, pure, mean, variance = self._losses()
        shifted = pure + gaussian.epsilon(delta)
        if delta in (0.0, 1.0):
            return shifted if delta == 0.0 else 0.0
        return min(shifted, tail_epsilon(mean, variance, delta))

    def _rounds(self) -> tuple[Rounds, ...]:
        return tuple(rounds for part in self.parts for rounds in part._rounds())


def _of(parts: Sequence[Guarantee], kind: type[_T]) -> list[_T]:
    return [part for part in parts if isinstance(part, kind)]


def _gaussian(parts: Sequence[Guarantee]) -> GaussianDP:
    """Return what the Gaussian parts are together."""
    return GaussianDP(math.hypot(*(part.mu for part in _of(parts, GaussianDP))))


def compose(*guarantees: Guarantee) -> Guarantee:
    """Return the guarantee of adaptive use of all ``guarantees`` on the same data.

    Gaussian parts compose in closed form, mu = sqrt(sum mu_t^2) (Dong, Roth and Su, JRSS-B 2022,
    Corollary 2). A mixture composes label by label, labels revealed; the worst of several, one by
    one. Subsampled and Laplace parts go through privacy loss distributions. Renyi
    divergences add on the orders that all have in common, to which a Gaussian part adds order
    mu^2 / 2. One perturbed objective takes Gaussian parts into its own bound. Together with
    NonPrivate nothing is left.

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
        For an unknown kind, or a combination without a theorem here.
    ValueError
        If Renyi guarantees have no order in common, or mixtures and worst cases too many
        combinations.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, compose
    >>> compose(GaussianDP(3.0), GaussianDP(4.0))
    GaussianDP(mu=5.0)
    """
    for guarantee in guarantees:
        if not isinstance(guarantee, _Known | Composed):
            raise TypeError(f"Got {guarantee!r}, expected one of {_KNOWN}.")
    if len(guarantees) == 1:
        return guarantees[0]
    parts = [part for g in guarantees for part in (g.parts if isinstance(g, Composed) else (g,))]
    if _of(parts, NonPrivate):
        return NonPrivate()
    if _of(parts, Worst):  # within each combination of cases
        return worst(*map(_together, _combine(_laws(parts, Worst))))
    if _of(parts, Mixture):  # within each combination of labels
        combined = _combine(_laws(parts, Mixture))
        return Mixture(tuple(combined.values()), tuple(map(_together, combined)))
    if _of(parts, PerturbedObjectiveDP):
        return _compose_objective(parts)
    others = [part for part in parts if isinstance(part, Part) and not isinstance(part, GaussianDP)]
    if renyi := _of(parts, RenyiDP):
        if others:
            raise TypeError(
                f"Got RenyiDP together with {type(others[0]).__name__}, expected one of "
                f"the two; what composes is {_KNOWN}."
            )
        # A Gaussian's divergence is exactly order mu^2 / 2.
        (orders, curves), rho = on_common_orders(renyi), 0.5 * _gaussian(parts).mu ** 2
        sums = (math.fsum([*each, a * rho]) for a, each in zip(orders, curves, strict=True))
        return RenyiDP(orders, tuple(sums))
    return _compose_losses(parts)


def _laws(parts: list[Guarantee], kind: type[Mixture] | type[Worst]) -> list[tuple[_Law, int]]:
    """Return the components of every part with their weights, and how often there is an equal part.

    Guarantees of another kind have one component. Gaussian ones among them are merged before.
    """
    if len(_of(parts, GaussianDP)) > 1:
        others = [part for part in parts if not isinstance(part, GaussianDP)]
        parts = [_gaussian(parts), *others]
    # By identity first: to hash a long mixture for each of many equal ones would take longer.
    first = {id(part): part for part in parts}
    occurrences: Counter[Guarantee] = Counter()
    for key, count in Counter(id(part) for part in parts).items():
        occurrences[first[key]] += count
    laws: list[tuple[_Law, int]] = []
    for part, count in occurrences.items():
        law: defaultdict[Guarantee, float] = defaultdict(float)
        if not isinstance(part, kind):
            law[part] = 1.0
        elif isinstance(part, Mixture):
            for weight, component in zip(part.weights, part.components, strict=True):
                law[component] += weight
        else:  # cases have no weights, and nobody looks at them
            law.update(dict.fromkeys(part.components, 1.0 / len(set(part.components))))
        laws.append((dict(law), count))
    return laws


def _combine(laws: list[tuple[_Law, int]]) -> dict[_Choice, float]:
    """Return how often each component may occur among all choices, and how likely that is.

    It makes one choice from each law, as often as the law occurs: their order does not matter.
    """
    distinct = list(dict.fromkeys(component for law, _ in laws for component in law))
    position = {component: i for i, component in enumerate(distinct)}
    combinations: dict[_Counts, float] = {(): 1.0}
    for law, count in laws:
        _require_few(math.comb(count + len(law) - 1, count))
        own = _draws([position[component] for component in law], list(law.values()), count)
        longer: defaultdict[_Counts, float] = defaultdict(float)
        for chosen, probability in combinations.items():
            for more, weight in own:
                longer[_added(chosen, more)] += probability * weight
            _require_few(len(longer))
        combinations = longer
    return {
        tuple((distinct[i], count) for i, count in chosen): weight
        for chosen, weight in combinations.items()
    }


def _draws(labels: list[int], weights: list[float], n: int) -> list[tuple[_Counts, float]]:
    """Return how often each label may be drawn in ``n`` draws, and how likely that is."""
    if n == 1:
        return [(((label, 1),), weight) for label, weight in zip(labels, weights, strict=True)]
    possible = [(i, w) for i, w in zip(labels, weights, strict=True) if w > 0]
    # Of each label and of all after it; mass that rounding lost in each draw stays lost.
    tails = [math.fsum(w for _, w in possible[j:]) for j in range(len(possible))]
    done: list[tuple[_Counts, float]] = []
    # What was drawn of the labels so far, how many draws are left for the others, how likely.
    active: list[tuple[_Counts, int, float]] = [((), n, min(1.0, tails[0]) ** n)]
    for j, (label, weight) in enumerate(possible[:-1]):
        odds = weight / tails[j + 1]
        chance = 1.0 if math.isinf(odds) else odds / (1.0 + odds)
        laws = {m: binomial_law(m, chance, odds).tolist() for m in {m for _, m, _ in active}}
        longer: list[tuple[_Counts, int, float]] = []
        for chosen, m, probability in active:
            *some, every = laws[m]
            done.append(((*chosen, (label, m)), probability * every))
            for k, share in enumerate(some):
                more = (*chosen, (label, k)) if k else chosen
                longer.append((more, m - k, probability * share))
        active = longer
    last = possible[-1][0]
    return done + [((*chosen, (last, m)), probability) for chosen, m, probability in active]


def _added(counts: _Counts, more: _Counts) -> _Counts:
    if not counts or not more:
        return counts or more
    total = dict(counts)
    for i, count in more:
        total[i] = total.get(i, 0) + count
    return tuple(sorted(total.items()))


def _together(chosen: _Choice) -> Guarantee:
    """Compose components, each as often as it was chosen; equal Gaussian ones in one step."""
    smooth = [
        component.mu if count == 1 else math.sqrt(count) * component.mu * _UP
        for component, count in chosen
        if isinstance(component, GaussianDP)
    ]
    if len(smooth) == len(chosen):
        return GaussianDP(math.hypot(*smooth)) if len(chosen) > 1 else GaussianDP(*smooth)
    others = (
        part
        for component, count in chosen
        if not isinstance(component, GaussianDP)
        for part in [component] * count
    )
    return compose(*others, *([GaussianDP(math.hypot(*smooth))] if smooth else []))


def _require_few(combinations: int) -> None:
    expected = f"at most {_MOST_COMBINATIONS}; compose equal guarantees first, or bound each"
    require(combinations <= _MOST_COMBINATIONS, "combinations", combinations, expected)


def _compose_objective(parts: Sequence[Guarantee]) -> PerturbedObjectiveDP:
    """Let a pointwise bound of a privacy loss absorb Gaussian releases, and nothing else."""
    perturbed, *others = [part for part in parts if not isinstance(part, GaussianDP)]
    if others or not isinstance(perturbed, PerturbedObjectiveDP):
        raise TypeError(
            "Got PerturbedObjectiveDP together with something other than GaussianDP, expected at"
            f" most one beside Gaussian parts; what composes is {_KNOWN}."
        )
    return replace(perturbed, gaussian_mu=math.hypot(perturbed.gaussian_mu, _gaussian(parts).mu))


def _merge(laplace: list[LaplaceDP]) -> LaplaceDP:
    """Return all releases as one guarantee, none of them as one that reveals nothing."""
    return LaplaceDP(
        tuple(epsilon for part in laplace for epsilon in part.epsilons),
        tuple(count for part in laplace for count in part.counts),
    )


def _compose_losses(given: Sequence[Guarantee]) -> Guarantee:
    """Merge equal rounds into one part, in order of appearance, and all Laplace releases."""
    counts: Counter[tuple[float, float, Neighboring]] = Counter()
    for part in _of(given, PoissonSubsampledGaussian):
        key = (part.sampling_probability, part.noise_multiplier, part.neighboring)
        counts[key] += int(part.n_rounds)
    parts: list[Part] = [PoissonSubsampledGaussian(q, s, n, r) for (q, s, r), n in counts.items()]
    laplace, gaussian = _merge(_of(given, LaplaceDP)), _gaussian(given)
    if laplace.epsilons:
        parts.append(laplace)
    if gaussian.mu > 0 or not parts:
        parts.append(gaussian)
    return parts[0] if len(parts) == 1 else Composed(tuple(parts))
