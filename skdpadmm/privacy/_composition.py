"""Composition of guarantees."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skdpadmm.privacy._gaussian import GaussianDP
from skdpadmm.privacy._guarantee import Guarantee, NonPrivate
from skdpadmm.privacy._laplace import LaplaceDP, tail_delta, tail_epsilon
from skdpadmm.privacy._mixture import Mixture
from skdpadmm.privacy._neighboring import Neighboring
from skdpadmm.privacy._objective_perturbation import PerturbedObjectiveDP
from skdpadmm.privacy._pld import Rounds, SampledRounds, pld_delta, pld_epsilon
from skdpadmm.privacy._randomized_response import RandomizedResponseDP
from skdpadmm.privacy._renyi import RenyiDP
from skdpadmm.privacy._sampled import PoissonSubsampledGaussian
from skdpadmm.privacy._validation import require_delta, require_epsilon
from skdpadmm.privacy._worst import Worst, worst

_MOST_COMBINATIONS = 100_000
_UP = 1.0 + 2.0**-51  # a root and a product, never below the sum that they stand for
Part = GaussianDP | PoissonSubsampledGaussian | LaplaceDP | RandomizedResponseDP
# Components with their weights; how often each is chosen, by position and by component.
_Law = dict[Guarantee, float]
_Counts = tuple[tuple[int, int], ...]
_Choice = tuple[tuple[Guarantee, int], ...]
_KNOWN = (
    "GaussianDP, PoissonSubsampledGaussian, LaplaceDP, RandomizedResponseDP, Composed, Mixture, "
    "Worst, RenyiDP (with RenyiDP or GaussianDP), one PerturbedObjectiveDP (with GaussianDP) and "
    "NonPrivate"
)


@dataclass(frozen=True)
class Composed(Guarantee):
    """Gaussian, subsampled, Laplace and label releases, composed by privacy loss distributions.

    Where nothing is subsampled a bound in closed form is there as well. It counts if it is smaller,
    and where dp-accounting is not installed.

    Parameters
    ----------
    parts : tuple of GaussianDP, PoissonSubsampledGaussian, LaplaceDP and RandomizedResponseDP
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
        """Refuse parts that have no loss distribution here, or two neighbouring relations."""
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            raise ValueError("Got no parts, expected at least one; use GaussianDP(0.0) for none.")
        for part in self.parts:
            if not isinstance(part, Part):
                raise TypeError(
                    f"Got a part {part!r}, expected GaussianDP or PoissonSubsampledGaussian or "
                    "LaplaceDP or RandomizedResponseDP."
                )
        relations = {p.neighboring for p in self.parts if isinstance(p, PoissonSubsampledGaussian)}
        if len(relations) > 1:
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
        if self._sampled():
            return pld_delta(rounds, epsilon)
        closed = self._closed_delta(epsilon)
        try:
            return min(closed, pld_delta(rounds, epsilon))
        except ImportError:
            return closed

    def epsilon(self, delta: float) -> float:
        """Return an upper bound of epsilon at ``delta`` in [0, 1]."""
        require_delta(delta)
        rounds = self._rounds()
        if not rounds:
            return 0.0
        if self._sampled():
            return pld_epsilon(rounds, delta)
        closed = self._closed_epsilon(delta)
        try:
            return min(closed, pld_epsilon(rounds, delta))
        except ImportError:
            return closed

    def dominates(self, other: Guarantee) -> bool:
        """Whether its delta is plainly at least another's: part by part."""
        return (
            isinstance(other, Composed)
            and len(self.parts) == len(other.parts)
            and all(a.dominates(b) for a, b in zip(self.parts, other.parts, strict=True))
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and every part."""
        return {"kind": "composed", "parts": [part.to_dict() for part in self.parts]}

    def describe(self) -> str:
        """Return the parts joined by "+"."""
        return " + ".join(part.describe() for part in self.parts)

    def _sampled(self) -> bool:
        return any(isinstance(part, PoissonSubsampledGaussian) for part in self.parts)

    def _smooth_and_pure(self) -> tuple[GaussianDP, LaplaceDP]:
        """Return what the Gaussian parts are together, and what the pure parts are.

        A response is in there as Laplace noise of its epsilon: the closed forms rest on a loss in
        [-e, e], and on nothing else.
        """
        mus = [part.mu for part in self.parts if isinstance(part, GaussianDP)]
        return GaussianDP(math.hypot(*mus)), _merge(
            [part for part in self.parts if isinstance(part, LaplaceDP)]
            + [part._pure() for part in self.parts if isinstance(part, RandomizedResponseDP)]
        )

    def _closed_delta(self, epsilon: float) -> float:
        """Return the smaller of two bounds.

        A pure guarantee shifts every level by its epsilon at most, which leaves the Gaussian's
        exact curve there; and the tail of the loss bounds delta.
        """
        if math.isinf(epsilon):
            return 0.0
        gaussian, laplace = self._smooth_and_pure()
        pure = laplace.pure_epsilon
        shifted = gaussian.delta(epsilon - pure) if epsilon >= pure else 1.0
        mean, variance = laplace.moments()
        return min(
            shifted, tail_delta(mean + 0.5 * gaussian.mu**2, variance + gaussian.mu**2, epsilon)
        )

    def _closed_epsilon(self, delta: float) -> float:
        gaussian, laplace = self._smooth_and_pure()
        shifted = laplace.pure_epsilon + gaussian.epsilon(delta)
        if delta == 0.0:
            return shifted
        if delta == 1.0:
            return 0.0
        mean, variance = laplace.moments()
        return min(
            shifted, tail_epsilon(mean + 0.5 * gaussian.mu**2, variance + gaussian.mu**2, delta)
        )

    def _rounds(self) -> tuple[Rounds, ...]:
        rounds: list[Rounds] = []
        for part in self.parts:
            if isinstance(part, LaplaceDP | RandomizedResponseDP):
                rounds.extend(part._rounds())
            elif isinstance(part, PoissonSubsampledGaussian):
                rounds.append(part._rounds())
            elif part.mu > 0:
                rounds.append(SampledRounds(1.0, 1.0 / part.mu, 1, Neighboring.ZERO_OUT))
        return tuple(rounds)


def compose(*guarantees: Guarantee) -> Guarantee:
    """Return the guarantee of adaptive use of all ``guarantees`` on the same data.

    Gaussian parts compose in closed form, mu = sqrt(sum mu_t^2) (Dong, Roth and Su, JRSS-B 2022,
    Corollary 2). A mixture composes label by label, labels revealed; the worst of several, one by
    one. Subsampled, Laplace and label parts go through privacy loss distributions. Renyi
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
    known = (
        GaussianDP
        | PoissonSubsampledGaussian
        | LaplaceDP
        | RandomizedResponseDP
        | Composed
        | Mixture
        | Worst
        | RenyiDP
        | PerturbedObjectiveDP
        | NonPrivate
    )
    for guarantee in guarantees:
        if not isinstance(guarantee, known):
            raise TypeError(f"Got {guarantee!r}, expected one of {_KNOWN}.")
    if len(guarantees) == 1:
        return guarantees[0]
    parts = [part for g in guarantees for part in (g.parts if isinstance(g, Composed) else (g,))]
    if any(isinstance(part, NonPrivate) for part in parts):
        return NonPrivate()
    if any(isinstance(part, Worst) for part in parts):
        return _compose_cases(parts)
    if any(isinstance(part, Mixture) for part in parts):
        return _compose_labels(parts)
    gaussian = GaussianDP(math.hypot(*(part.mu for part in parts if isinstance(part, GaussianDP))))
    if any(isinstance(part, PerturbedObjectiveDP) for part in parts):
        return _compose_objective(parts, gaussian)
    renyi = [part for part in parts if isinstance(part, RenyiDP)]
    sampled = [part for part in parts if isinstance(part, PoissonSubsampledGaussian)]
    laplace = [part for part in parts if isinstance(part, LaplaceDP)]
    responses = [part for part in parts if isinstance(part, RandomizedResponseDP)]
    others: list[Guarantee] = [*sampled, *laplace, *responses]
    if renyi and others:
        raise TypeError(
            f"Got RenyiDP together with {type(others[0]).__name__}, expected one of "
            f"the two; what composes is {_KNOWN}."
        )
    if renyi:
        return _add_divergences(renyi, gaussian)
    return _compose_losses(sampled, _merge(laplace), responses, gaussian)


def _compose_cases(parts: list[Guarantee]) -> Guarantee:
    """Compose within each combination of cases, and keep the worst."""
    return worst(*(_together(chosen) for chosen in _combine(_laws(parts, Worst))))


def _compose_labels(parts: list[Guarantee]) -> Mixture:
    """Compose within each combination of labels; a guarantee that is no mixture has one label."""
    combined = _combine(_laws(parts, Mixture))
    return Mixture(tuple(combined.values()), tuple(map(_together, combined)))


def _laws(parts: list[Guarantee], kind: type[Mixture] | type[Worst]) -> list[tuple[_Law, int]]:
    """Return the components of every part with their weights, and how often there is an equal part.

    Guarantees of another kind have one component. Gaussian ones among them are merged before.
    """
    gaussian = [part for part in parts if isinstance(part, GaussianDP)]
    if len(gaussian) > 1:
        merged = GaussianDP(math.hypot(*(part.mu for part in gaussian)))
        parts = [merged, *(part for part in parts if not isinstance(part, GaussianDP))]
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
        if math.comb(count + len(law) - 1, count) > _MOST_COMBINATIONS:
            raise _too_many()
        own = _draws([position[component] for component in law], list(law.values()), count)
        longer: defaultdict[_Counts, float] = defaultdict(float)
        for chosen, probability in combinations.items():
            for more, weight in own:
                longer[_added(chosen, more)] += probability * weight
            if len(longer) > _MOST_COMBINATIONS:
                raise _too_many()
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
        laws = {m: _binomial(m, odds) for m in {m for _, m, _ in active}}
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


def _binomial(n: int, odds: float) -> list[float]:
    """Return the law of the number of successes among ``n`` at these odds.

    From the likeliest number to both sides: no factor is far from one, and the sum is one.
    """
    mode = n if math.isinf(odds) else min(n, int((n + 1) * (odds / (1.0 + odds))))
    above = np.arange(mode, n)
    below = np.arange(mode, 0, -1)
    law = np.concatenate(
        [
            np.cumprod(below / ((n - below + 1) * odds))[::-1],
            [1.0],
            np.cumprod((n - above) / (above + 1) * odds) if mode < n else [],
        ]
    ).tolist()
    total = math.fsum(law)
    return [value / total for value in law]


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


def _too_many() -> ValueError:
    return ValueError(
        f"Got guarantees with more than {_MOST_COMBINATIONS} combinations of components, "
        "expected fewer. Compose equal ones, or bound each by its worst component first."
    )


def _compose_objective(parts: list[Guarantee], gaussian: GaussianDP) -> PerturbedObjectiveDP:
    """Let a pointwise bound of a privacy loss absorb Gaussian releases, and nothing else."""
    perturbed, *others = [part for part in parts if not isinstance(part, GaussianDP)]
    if others or not isinstance(perturbed, PerturbedObjectiveDP):
        raise TypeError(
            "Got PerturbedObjectiveDP together with something other than GaussianDP, expected at"
            f" most one beside Gaussian parts; what composes is {_KNOWN}."
        )
    return replace(perturbed, gaussian_mu=math.hypot(perturbed.gaussian_mu, gaussian.mu))


def _add_divergences(renyi: list[RenyiDP], gaussian: GaussianDP) -> RenyiDP:
    """Add divergences on the common orders; a Gaussian's is exactly order mu^2 / 2."""
    curves = [dict(zip(part.orders, part.divergences, strict=True)) for part in renyi]
    orders = sorted(set(curves[0]).intersection(*curves[1:]))
    if not orders:
        raise ValueError(
            "Got Renyi guarantees without a common order, expected one at least; "
            "state them on the same orders."
        )
    rho = 0.5 * gaussian.mu**2
    return RenyiDP(
        tuple(orders),
        tuple(math.fsum([*(curve[a] for curve in curves), a * rho]) for a in orders),
    )


def _merge(laplace: list[LaplaceDP]) -> LaplaceDP:
    """Return all releases as one guarantee, none of them as one that reveals nothing."""
    return LaplaceDP(
        tuple(epsilon for part in laplace for epsilon in part.epsilons),
        tuple(count for part in laplace for count in part.counts),
    )


def _compose_losses(
    sampled: list[PoissonSubsampledGaussian],
    laplace: LaplaceDP,
    responses: list[RandomizedResponseDP],
    gaussian: GaussianDP,
) -> Guarantee:
    """Merge equal rounds into one part, in order of appearance, and all Laplace releases."""
    counts: Counter[tuple[float, float, Neighboring]] = Counter()
    for part in sampled:
        key = (part.sampling_probability, part.noise_multiplier, part.neighboring)
        counts[key] += int(part.n_rounds)
    merged = tuple(PoissonSubsampledGaussian(q, s, n, rel) for (q, s, rel), n in counts.items())
    parts: list[Part] = [*merged]
    if laplace.epsilons:
        parts.append(laplace)
    parts += [part for part in responses if part.response_epsilon > 0]
    if gaussian.mu > 0 or not parts:
        parts.append(gaussian)
    return parts[0] if len(parts) == 1 else Composed(tuple(parts))
