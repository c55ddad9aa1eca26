"""Sums of guarantees: what composes, by which theorem, and between which data sets."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from skdpadmm import privacy
from skdpadmm.privacy import GaussianDP, Guarantee, Neighboring

# A plan may exceed its budget's delta by as much: rounding, where a plan meets it exactly.
_ROUNDING = 1e-9
# The most combinations of labels in a sum, and where each needs a privacy loss distribution: about
# a second.
_MOST_COMBINATIONS = 10_000
_MOST_HEAVY = 8
# Labels that are told apart where there are too many combinations.
_FEWER_LABELS = (64, 32, 16, 12, 8, 6, 5, 4, 3, 2, 1)
_MOST_LABELS_LEFT = 1000
_Counts = tuple[tuple[Guarantee, int], ...]


class LedgerError(RuntimeError):
    """A ledger that cannot be read, written or summed; nothing was stored."""


class PrivacyBudgetExceeded(LedgerError):
    """A fit, or a search, would pass a limit; nothing was stored and no data was used.

    Parameters
    ----------
    message : str
    epsilon_left : float
        Epsilon at ``delta`` of the largest Gaussian release that there is still room for.
    epsilon_spent : float
        What was spent before.
    epsilon, delta : float
        The limit.
    """

    def __init__(
        self, message: str, epsilon_left: float, epsilon_spent: float, epsilon: float, delta: float
    ) -> None:
        super().__init__(message)
        self.epsilon_left, self.epsilon_spent = epsilon_left, epsilon_spent
        self.epsilon, self.delta = epsilon, delta

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with all numbers: it is raised in the processes of a search."""
        numbers = (self.epsilon_left, self.epsilon_spent, self.epsilon, self.delta)
        return type(self), (str(self), *numbers)


class Relation(NamedTuple):
    """The privacy unit and the neighbouring relation."""

    unit: str
    neighboring: Neighboring

    def describe(self) -> str:
        return f"{self.unit}, {str(self.neighboring).replace('_', ' ')}"


class Claim(NamedTuple):
    """The guarantee of a fit against one observer."""

    observer: str
    relation: Relation
    guarantee: Guarantee


@dataclass(frozen=True)
class Summed(Guarantee):
    r"""Basic composition of groups of guarantees of which no sharper composition is known.

    .. math:: \epsilon(\delta) = \min \sum_i \epsilon_i(\delta_i), \qquad \sum_i \delta_i = \delta

    The minimum is over a few splits of delta; each of them holds.

    Parameters
    ----------
    groups : tuple of Guarantee
        At least one.

    Notes
    -----
    Fits of the groups may follow each other in any order, each chosen by what came before. Let
    :math:`L_i` be the sum of the conditional privacy losses of group i. A guarantee of each fit
    holds whatever was seen before it, so by induction, from the last fit to the first,
    :math:`E (1 - e^{\epsilon_i - L_i})_+ \le \delta_i(\epsilon_i)`, which is all that the group's
    own theorem needs. With :math:`x_i = (1 - e^{\epsilon_i - L_i})_+` in [0, 1),

    .. math:: 1 - e^{\sum \epsilon_i - \sum L_i} \le 1 - \prod (1 - x_i) \le \sum x_i ,

    and the expectation of the left side's positive part is delta at :math:`\sum \epsilon_i`.

    Examples
    --------
    >>> from skdpadmm.ledger import Summed
    >>> from skdpadmm.privacy import LaplaceDP
    >>> f"{Summed((LaplaceDP((0.25,)), LaplaceDP((0.5,)))).epsilon(0.0):.2f}"
    '0.75'
    """

    groups: tuple[Guarantee, ...]

    def epsilon(self, delta: float) -> float:
        """Return an upper bound of epsilon at ``delta`` in [0, 1]."""
        if not 0 <= delta <= 1:
            raise ValueError(f"Got delta={delta!r}, expected a float in [0, 1].")
        if delta == 1.0:
            return 0.0
        n_groups = len(self.groups)
        even = self._epsilons([delta / n_groups] * n_groups)
        whole = math.fsum(even)
        epsilons = [even, self._epsilons([0.0] * n_groups)]
        # Those that have a pure epsilon may do without a delta, if the others then cost less.
        needs_delta = [math.isinf(epsilon) for epsilon in epsilons[1]]
        if 0 < sum(needs_delta) < n_groups:
            share = delta / sum(needs_delta)
            epsilons.append(self._epsilons([share * needed for needed in needs_delta]))
        if 0 < whole < math.inf:
            epsilons.append(self._epsilons([delta * epsilon / whole for epsilon in even]))
        best = min(math.fsum(split) for split in epsilons)
        return math.nextafter(best, math.inf) if best > 0 else 0.0

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of delta at ``epsilon`` in [0, inf]."""
        if not epsilon >= 0:
            raise ValueError(f"Got epsilon={epsilon!r}, expected a float in [0, inf].")
        if math.isinf(epsilon) or self.epsilon(0.0) <= epsilon:
            return 0.0
        accepted, rejected = 0.0, -700.0  # logarithms
        while accepted - rejected > 1e-6:
            middle = 0.5 * (accepted + rejected)
            if self.epsilon(math.exp(middle)) <= epsilon:
                accepted = middle
            else:
                rejected = middle
        return math.exp(accepted)

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and every group; an account is computed, never stored."""
        return {"kind": "summed", "groups": [group.to_dict() for group in self.groups]}

    def describe(self) -> str:
        """Return the number of groups."""
        return f"sum of {len(self.groups)} groups"

    def _epsilons(self, deltas: list[float]) -> list[float]:
        """Each group's epsilon; shares are rounded down, so that they never exceed the whole."""
        pairs = [(g, delta * (1.0 - 1e-12)) for g, delta in zip(self.groups, deltas, strict=True)]
        # Once for groups that are one object: mixtures may be long.
        distinct = {(id(group), share): group for group, share in pairs}
        epsilons = {key: group.epsilon(key[1]) for key, group in distinct.items()}
        return [epsilons[id(group), share] for group, share in pairs]


def compose_all(*guarantees: Guarantee) -> Guarantee:
    """Return the guarantee of adaptive use of anything together.

    :func:`skdpadmm.privacy.compose` wherever it knows a theorem: Gaussian parts exactly, the rest
    by privacy loss distributions or Renyi divergences. What does not compose, or only with too many
    combinations of cases, is put in groups that do, and these are :class:`Summed`. Where Gaussian
    mixtures have too many labels together, fewer are told apart, each with the largest mu of those
    that it stands for. Widths of uniform noise count among themselves and with Laplace noise, and
    are ignored beside others.

    Parameters
    ----------
    *guarantees : Guarantee
        None gives ``GaussianDP(0.0)``.

    Returns
    -------
    Guarantee

    Examples
    --------
    >>> from skdpadmm.ledger import compose_all
    >>> from skdpadmm.privacy import GaussianDP, LaplaceDP, RenyiDP
    >>> compose_all(GaussianDP(3.0), GaussianDP(4.0))
    GaussianDP(mu=5.0)
    >>> compose_all(RenyiDP((2.0,), (0.1,)), LaplaceDP((0.1,))).describe()
    'sum of 2 groups'
    """
    parts = [p for g in guarantees for p in (g.parts if isinstance(g, privacy.Composed) else (g,))]
    if any(isinstance(part, privacy.NonPrivate) for part in parts):
        return privacy.NonPrivate()
    gaussian = privacy.compose(*(part for part in parts if isinstance(part, GaussianDP)))
    others = [part for part in parts if not isinstance(part, GaussianDP)]
    if not others:
        return gaussian
    # What reveals nothing changes nothing, and a Gaussian of mu = 0 fits nowhere but among others.
    parts = others if gaussian == GaussianDP(0.0) else [gaussian, *others]
    if (whole := _attempt(_tally(parts))) is not None:
        return whole
    families: defaultdict[str, list[Guarantee]] = defaultdict(list)
    for part in parts:
        families[_family(part)].append(part)
    groups = [group for family in families.values() for group in _groups(family)]
    return groups[0] if len(groups) == 1 else Summed(tuple(groups))


def total_of(claims: list[Claim], target: Relation | None) -> Guarantee:
    """What claims cost together under one relation; None for the one that all have."""
    return compose_all(*_converted_all(claims, target))


def keeps(claims: list[Claim], target: Relation | None, epsilon: float, delta: float) -> bool:
    """Whether the sum of claims keeps a limit."""
    parts = _converted_all(claims, target)
    # Every label at its largest mu is a bound in closed form, and most often enough.
    largest = {key: _largest_mu(part) for key, part in {id(part): part for part in parts}.items()}
    mus = [mu for part in parts if (mu := largest[id(part)]) is not None]
    if len(mus) == len(parts) and is_within(GaussianDP(math.hypot(*mus)), epsilon, delta):
        return True
    return is_within(compose_all(*parts), epsilon, delta)


def converted(guarantee: Guarantee, source: Relation, target: Relation) -> Guarantee:
    r"""Return what a guarantee under one relation says under another; refuse it without a theorem.

    - **Zero-out to replace-one, the same unit**: :math:`\mu` doubles. Two data sets that differ in
      one unit both become the same one when that unit's loss is replaced by zero, so there are two
      steps from one to the other, and a path of two steps of GDP(mu) is GDP(2 mu) (Dong, Roth and
      Su, JRSS-B 2022, Theorem 2.14). It holds for every component of a worst case, which is a
      maximum over units, and of a mixture, whose label has the same law on all data sets.
    - **Agent to record, replace-one**: as it is. Who replaces one record replaces the data of one
      agent by other data of the same size.
    - **No privacy** is no privacy.

    Nothing else: not from replace-one to zero-out, as the zero function may be no record's loss;
    not from record to agent; not for subsampled, Laplace and other kinds, where two steps have a
    curve of their own.
    """
    if source == target or isinstance(guarantee, privacy.NonPrivate):
        return guarantee
    smaller_unit = source.unit == target.unit or (source.unit, target.unit) == ("agent", "record")
    if target.neighboring is Neighboring.REPLACE_ONE and smaller_unit:
        if source.neighboring is Neighboring.REPLACE_ONE:
            return guarantee
        if (doubled := _doubled(guarantee)) is not None:
            return doubled
    raise LedgerError(
        f"Got a fit about {source.describe()} with {guarantee.describe()}, expected one that says"
        f" something about {target.describe()}. What converts: Gaussian guarantees from zero out to"
        " replace one, and replace-one guarantees of agents to records. Keep the others in a"
        " ledger, or under a data set, of their own."
    )


def is_within(guarantee: Guarantee, epsilon: float, delta: float) -> bool:
    """Whether a guarantee keeps a limit, up to the rounding that a plan is allowed."""
    # Far out a delta that is not zero underflows, and would pass for one.
    if isinstance(guarantee, Summed) or delta == 0.0:
        return guarantee.epsilon(delta) <= epsilon * (1.0 + _ROUNDING)
    return guarantee.delta(epsilon) <= delta * (1.0 + _ROUNDING)


def left_of(spent: Guarantee, epsilon: float, delta: float) -> float:
    """Return epsilon at ``delta`` of the largest Gaussian release that keeps the limit."""

    def fits(mu: float) -> bool:
        return is_within(compose_all(spent, GaussianDP(mu)), epsilon, delta)

    if len(_leaves(spent)) > _MOST_LABELS_LEFT and _largest_mu(spent) is not None:
        spent = _coarsened(spent, _FEWER_LABELS[0])
    if delta == 0.0 or not fits(0.0):  # no Gaussian release has a delta of zero
        return 0.0
    low, high = 0.0, 1.001 * privacy.gaussian_mu(epsilon, delta)
    # Every step of a privacy loss distribution takes a moment, and a person reads two digits.
    for _ in range(40 if isinstance(spent, GaussianDP) else 10):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return GaussianDP(low).epsilon(delta)


def _converted_all(claims: list[Claim], target: Relation | None) -> list[Guarantee]:
    found = sorted({claim.relation for claim in claims})
    if target is None and len(found) > 1:
        raise LedgerError(
            f"Got fits about {len(found)} kinds of neighbours"
            f" ({'; '.join(relation.describe() for relation in found)}), expected one: their costs"
            " do not add up as they are. Name what to convert them to, such as unit='record',"
            " neighboring='replace_one'."
        )
    return [converted(claim.guarantee, claim.relation, target or found[0]) for claim in claims]


def _doubled(guarantee: Guarantee) -> Guarantee | None:
    if isinstance(guarantee, GaussianDP):
        return GaussianDP(2.0 * guarantee.mu)
    if isinstance(guarantee, privacy.Worst | privacy.Mixture):
        components = [two for two in map(_doubled, guarantee.components) if two is not None]
        if len(components) == len(guarantee.components):
            return replace(guarantee, components=tuple(components))
    return guarantee if isinstance(guarantee, privacy.NonPrivate) else None


def _tally(parts: list[Guarantee]) -> _Counts:
    """How often each occurs, in order of appearance."""
    # By identity first: to hash a long mixture for each of many fits would take longer.
    first = {id(part): part for part in parts}
    counts: Counter[Guarantee] = Counter()
    for key, count in Counter(map(id, parts)).items():
        counts[first[key]] += count
    return tuple(counts.items())


def _family(part: Guarantee) -> str:
    if isinstance(part, privacy.RenyiDP | privacy.PerturbedObjectiveDP):
        return type(part).__name__
    return "losses" if _largest_mu(part) is None else "gaussian"


def _groups(parts: list[Guarantee]) -> list[Guarantee]:
    """Groups that compose, each as large as doubling finds."""
    if _family(parts[0]) == "gaussian":
        counts = _tally(parts)
        for n_labels in _FEWER_LABELS:
            coarse = tuple((_coarsened(part, n_labels), count) for part, count in counts)
            if (whole := _attempt(coarse)) is not None:
                return [whole]
    # Equal ones side by side: then groups are often equal as well, and known already.
    rest, groups = sorted(parts, key=repr), []
    while rest:
        size = 1
        while size < len(rest) and _attempt(_tally(rest[: 2 * size])) is not None:
            size = min(2 * size, len(rest))
        groups.append(_attempt(_tally(rest[:size])) or rest[0])
        rest = rest[size:]
    return groups


@lru_cache(maxsize=16)
def _attempt(counts: _Counts) -> Guarantee | None:
    """Compose, if that is known and takes no more than about a second."""
    n_combinations = math.prod(math.comb(n + len(_leaves(p)) - 1, n) for p, n in counts)
    is_heavy = any(_largest_mu(part) is None for part, _ in counts)
    n_parts = sum(count for _, count in counts)
    if n_parts > 1 and n_combinations > (_MOST_HEAVY if is_heavy else _MOST_COMBINATIONS):
        return None
    try:
        return privacy.compose(*(part for part, count in counts for _ in range(count)))
    except (TypeError, ValueError):
        return None


def _leaves(part: Guarantee) -> list[Guarantee]:
    """All cases and labels."""
    if isinstance(part, privacy.Mixture | privacy.Worst):
        return [leaf for component in part.components for leaf in _leaves(component)]
    return [part]


def _largest_mu(part: Guarantee) -> float | None:
    """The largest mu of all cases and labels; None if one is no Gaussian guarantee."""
    if isinstance(part, GaussianDP):
        return part.mu
    mus = [leaf.mu if isinstance(leaf, GaussianDP) else math.inf for leaf in _leaves(part)]
    return None if math.inf in mus else max(mus)


@lru_cache(maxsize=64)
def _coarsened(part: Guarantee, n_labels: int) -> Guarantee:
    """Tell fewer labels apart, each with the largest mu of those that it stands for.

    Delta of a Gaussian guarantee increases with mu, so the result is at least the mixture's. Many
    fits compose by the mean of mu^2: the labels that raise it least are merged, one by one.
    """
    if isinstance(part, privacy.Worst):
        return privacy.worst(*(_coarsened(component, n_labels) for component in part.components))
    if not isinstance(part, privacy.Mixture):
        return part
    mus = [component.mu for component in part.components if isinstance(component, GaussianDP)]
    if len(mus) < len(part.components) or len(mus) <= n_labels:
        return part
    # First on a grid, upwards.
    step = max(mus) / 200 or 1.0
    weights: defaultdict[float, float] = defaultdict(float)
    for weight, mu in zip(part.weights, mus, strict=True):
        weights[max(mu, math.ceil(mu / step) * step)] += weight
    labels = sorted(weights.items())
    while len(labels) > n_labels:
        costs = [weight * (above**2 - mu**2) for (mu, weight), (above, _) in pairwise(labels)]
        i = costs.index(min(costs))
        labels[i : i + 2] = [(labels[i + 1][0], labels[i][1] + labels[i + 1][1])]
    return privacy.Mixture(
        tuple(weight for _, weight in labels), tuple(GaussianDP(mu) for mu, _ in labels)
    )
