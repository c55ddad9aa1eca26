"""Sums of guarantees: what composes, by which theorem, and between which data sets."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from skdpadmm.ledger._entry import Claim, Relation
from skdpadmm.ledger._errors import LedgerError
from skdpadmm.privacy import (
    Composed,
    GaussianDP,
    Guarantee,
    LaplaceDP,
    Mixture,
    Neighboring,
    NonPrivate,
    PerturbedObjectiveDP,
    RenyiDP,
    UniformLaplaceDP,
    Worst,
    compose,
    compose_uniform_laplace,
    gaussian_mu,
    worst,
)

# A plan may exceed its budget's delta by as much: rounding, where a plan meets it exactly.
_ROUNDING = 1e-9
# How long the combinations of labels of a sum may be, all in a row: less than a second. Where each
# of them needs a privacy loss distribution there is room for a few.
_MOST_WORK = 60_000
_MOST_HEAVY = 8
# Labels that are told apart where there are too many. A refusal tells how much is left in two
# digits, and not of thousands.
_FEWER_LABELS = (64, 32, 16, 12, 8, 6, 5, 4, 3, 2, 1)
_MOST_LABELS_LEFT = 1000


@dataclass(frozen=True)
class Summed(Guarantee):
    r"""Groups of guarantees of which no sharper composition is known: their epsilons add up.

    .. math:: \epsilon(\delta) = \min \sum_i \epsilon_i(\delta_i), \qquad \sum_i \delta_i = \delta

    The minimum is over a few splits of delta; each of them holds.

    Parameters
    ----------
    groups : tuple of Guarantee
        At least one.

    Notes
    -----
    The fits of the groups may follow each other in any order, each chosen by what came before. Let
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

    def __post_init__(self) -> None:
        """Freeze the sequence and refuse what is no guarantee."""
        object.__setattr__(self, "groups", tuple(self.groups))
        if not self.groups:
            raise ValueError("Got no groups, expected at least one guarantee.")
        for group in self.groups:
            if not isinstance(group, Guarantee):
                raise TypeError(f"Got a group {group!r}, expected a Guarantee.")

    def epsilon(self, delta: float) -> float:
        """Return an upper bound of epsilon at ``delta`` in [0, 1]."""
        if not 0 <= delta <= 1:
            raise ValueError(f"Got delta={delta!r}, expected a float in [0, 1].")
        if delta == 1.0:
            return 0.0
        pure = self._at([0.0] * len(self.groups))
        if delta == 0.0:
            return pure
        even = _safe(delta / len(self.groups))
        each = self._each([even] * len(self.groups))
        best = min(pure, _sum_up(each))
        # Those that have a pure epsilon may do without a delta, if the others then cost less.
        free = [math.isfinite(group.epsilon(0.0)) for group in self.groups]
        if any(free) and not all(free):
            share = delta / free.count(False)
            best = min(best, self._at([0.0 if is_free else share for is_free in free]))
        if 0 < best < math.inf and 0 < math.fsum(each) < math.inf:
            whole = math.fsum(each)
            best = min(best, self._at([delta * epsilon / whole for epsilon in each]))
        return best

    def delta(self, epsilon: float) -> float:
        """Return an upper bound of delta at ``epsilon`` in [0, inf]."""
        if not epsilon >= 0:
            raise ValueError(f"Got epsilon={epsilon!r}, expected a float in [0, inf].")
        if math.isinf(epsilon) or self.epsilon(0.0) <= epsilon:
            return 0.0
        accepted, rejected = 0.0, -700.0  # logarithms
        if self.epsilon(math.exp(rejected)) <= epsilon:
            return math.exp(rejected)
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

    def _at(self, deltas: list[float]) -> float:
        return _sum_up(self._each([_safe(delta) for delta in deltas]))

    def _each(self, deltas: list[float]) -> list[float]:
        """Each group's epsilon, once for groups that are one object: mixtures may be long."""
        pairs = list(zip(self.groups, deltas, strict=True))
        known = {(id(group), delta): group for group, delta in pairs}
        epsilons = {key: group.epsilon(key[1]) for key, group in known.items()}
        return [epsilons[id(group), delta] for group, delta in pairs]


def compose_all(*guarantees: Guarantee) -> Guarantee:
    """Return the guarantee of adaptive use of anything together.

    :func:`skdpadmm.privacy.compose` wherever it knows a theorem: Gaussian parts exactly, the rest
    by privacy loss distributions or Renyi divergences. What does not compose, or only with too many
    combinations of cases, is put in groups that do, and these are :class:`Summed`. Where Gaussian
    mixtures have too many labels together, fewer are told apart, each with the largest mu of those
    that it stands for. Widths of uniform noise count among themselves and with Laplace noise, and
    are forgotten beside others.

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
    if any(isinstance(guarantee, NonPrivate) for guarantee in guarantees):
        return NonPrivate()
    parts = [p for g in guarantees for p in (g.parts if isinstance(g, Composed) else (g,))]
    # What reveals nothing changes nothing, and a Gaussian of mu = 0 fits nowhere but among others.
    parts = [part for part in parts if part != GaussianDP(0.0)]
    uniform = [part for part in parts if isinstance(part, UniformLaplaceDP)]
    if uniform:
        pure = [part for part in parts if isinstance(part, UniformLaplaceDP | LaplaceDP)]
        if len(pure) == len(parts):
            return parts[0] if len(parts) == 1 else compose_uniform_laplace(*pure)
        parts = [p.without_widths if isinstance(p, UniformLaplaceDP) else p for p in parts]
    counts = _tally(parts)
    if (whole := _attempt(counts)) is not None:
        return whole
    families: defaultdict[str, list[tuple[Guarantee, int]]] = defaultdict(list)
    for part, count in counts:
        families[_family(part)].append((part, count))
    groups = [g for family in families.values() for g in _groups(family)]
    return groups[0] if len(groups) == 1 else Summed(tuple(groups))


def total_of(claims: Iterable[tuple[Claim, int]], target: Relation | None) -> Guarantee:
    """Return what claims cost together, each as often as it says, under one relation.

    Parameters
    ----------
    claims : iterable of (Claim, int)
    target : Relation or None
        None: the one that all have; there has to be one.

    Returns
    -------
    Guarantee

    Raises
    ------
    LedgerError
        If claims are about different relations and no theorem leads to the target.
    """
    claims = list(claims)
    found = sorted({claim.relation for claim, _ in claims})
    if target is None and len(found) > 1:
        raise LedgerError(
            f"Got fits about {len(found)} kinds of neighbours"
            f" ({'; '.join(relation.describe() for relation in found)}), expected one: their costs"
            " do not add up as they are. Name what to convert them to, such as unit='record',"
            " neighboring='replace_one'."
        )
    goal = target or (found[0] if found else Relation("record", Neighboring.REPLACE_ONE))
    return compose_all(
        *(
            guarantee
            for claim, count in claims
            for guarantee in [converted(claim.guarantee, claim.relation, goal)] * count
        )
    )


def converted(guarantee: Guarantee, source: Relation, target: Relation) -> Guarantee:
    r"""Return what a guarantee about some neighbours says about others.

    Three rules, and combinations of them:

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

    Parameters
    ----------
    guarantee : Guarantee
    source, target : Relation

    Returns
    -------
    Guarantee

    Raises
    ------
    LedgerError
        If there is no such theorem here.
    """
    if source == target or isinstance(guarantee, NonPrivate):
        return guarantee
    to_replace_one = target.neighboring is Neighboring.REPLACE_ONE
    smaller_unit = source.unit == target.unit or (source.unit, target.unit) == ("agent", "record")
    if to_replace_one and smaller_unit:
        if source.neighboring is Neighboring.REPLACE_ONE:
            return guarantee
        doubled = _doubled(guarantee)
        if doubled is not None:
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

    if math.isinf(epsilon) or delta == 1.0:
        return math.inf
    if _n_leaves(spent) > _MOST_LABELS_LEFT and not _is_heavy(spent):
        spent = _coarsened(spent, _FEWER_LABELS[0])
    if delta == 0.0 or not fits(0.0):  # no Gaussian release has a delta of zero
        return 0.0
    low, high = 0.0, 1.001 * gaussian_mu(epsilon, delta)
    # Every step of a privacy loss distribution takes a moment, and a person reads two digits.
    for _ in range(40 if isinstance(spent, GaussianDP) else 10):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return GaussianDP(low).epsilon(delta)


def _doubled(guarantee: Guarantee) -> Guarantee | None:
    if isinstance(guarantee, NonPrivate):
        return guarantee
    if isinstance(guarantee, GaussianDP):
        return GaussianDP(2.0 * guarantee.mu)
    if isinstance(guarantee, Worst | Mixture):
        known = [two for two in map(_doubled, guarantee.components) if two is not None]
        if len(known) < len(guarantee.components):
            return None
        if isinstance(guarantee, Mixture):
            return Mixture(guarantee.weights, tuple(known))
        return Worst(tuple(known))
    return None


def _family(part: Guarantee) -> str:
    if isinstance(part, RenyiDP):
        return "renyi"
    if isinstance(part, PerturbedObjectiveDP):
        return "objective"
    return "losses" if _is_heavy(part) else "gaussian"


def _tally(parts: Iterable[Guarantee]) -> tuple[tuple[Guarantee, int], ...]:
    """Return how often each occurs, in order of appearance."""
    parts = list(parts)
    # By identity first: to hash a long mixture for each of many fits would take longer.
    first = {id(part): part for part in parts}
    counts: Counter[Guarantee] = Counter()
    for key, count in Counter(id(part) for part in parts).items():
        counts[first[key]] += count
    return tuple(counts.items())


def _groups(counts: list[tuple[Guarantee, int]]) -> list[Guarantee]:
    """Groups that compose, each as large as doubling finds."""
    # Equal ones side by side: then groups are often equal as well, and known already.
    ordered = sorted(counts, key=lambda pair: repr(pair[0]))
    if not any(_is_heavy(part) for part, _ in ordered):
        for n_labels in _FEWER_LABELS:
            coarse = _attempt(tuple((_coarsened(part, n_labels), n) for part, n in ordered))
            if coarse is not None:
                return [coarse]
    rest, groups = [part for part, count in ordered for _ in range(count)], []
    while rest:
        size, group = 1, rest[0]
        while size < len(rest):
            longer = _attempt(_tally(rest[: 2 * size]))
            if longer is None:
                break
            size, group = min(2 * size, len(rest)), longer
        groups.append(group)
        rest = rest[size:]
    return groups


@lru_cache(maxsize=16)
def _attempt(counts: tuple[tuple[Guarantee, int], ...]) -> Guarantee | None:
    """Compose, if that is known and takes no more than about a second."""
    n_combinations, n_labels, n_parts = 1, 0, 0
    for part, count in counts:
        leaves = _n_leaves(part)
        n_combinations *= math.comb(count + leaves - 1, count)
        if leaves > 1:
            n_labels, n_parts = n_labels + leaves, n_parts + count
    # A combination says how often each label occurs; it is never longer than the parts are many.
    work = n_combinations * max(1, min(n_labels, n_parts))
    heavy = any(_is_heavy(part) for part, _ in counts)
    alone = sum(count for _, count in counts) == 1
    if not alone and (work > _MOST_WORK or (heavy and n_combinations > _MOST_HEAVY)):
        return None
    try:
        return compose(*(part for part, count in counts for _ in range(count)))
    except (TypeError, ValueError):
        return None


def _n_leaves(part: Guarantee) -> int:
    """How many cases and labels there are."""
    if isinstance(part, Mixture | Worst):
        return sum(_n_leaves(component) for component in part.components)
    return 1


def _is_heavy(part: Guarantee) -> bool:
    """Whether a case of it may need a privacy loss distribution."""
    if isinstance(part, Mixture | Worst):
        return any(_is_heavy(component) for component in part.components)
    return not isinstance(part, GaussianDP)


@lru_cache(maxsize=64)
def _coarsened(part: Guarantee, n_labels: int) -> Guarantee:
    """Tell fewer labels apart, each with the largest mu of those that it stands for.

    Delta of a Gaussian guarantee increases with mu, so the result is at least the mixture's. Among
    all such groups these raise the mean of mu^2 least: many fits compose by it.
    """
    if isinstance(part, Worst):
        return worst(*(_coarsened(component, n_labels) for component in part.components))
    if not isinstance(part, Mixture):
        return part
    known = [c.mu for c in part.components if isinstance(c, GaussianDP)]
    if len(known) < len(part.components) or len(known) <= n_labels:
        return part
    # First on a grid, upwards.
    top, levels = max(known), 200
    weights: defaultdict[float, list[float]] = defaultdict(list)
    for weight, mu in zip(part.weights, known, strict=True):
        step = math.ceil(levels * mu / top) if top > 0 else 0
        weights[max(mu, step * top / levels)].append(weight)
    mus = np.array(sorted(weights))
    sums = np.array([math.fsum(weights[mu]) for mu in mus.tolist()])
    until = np.concatenate([[0.0], np.cumsum(sums)])
    # best[j]: the least weighted sum of mu^2 of the first j levels in so many groups.
    best = np.where(np.arange(mus.size + 1) == 0, 0.0, np.inf)
    choices = []
    for _ in range(min(n_labels, mus.size)):
        costs = best[None, :-1] + (until[1:, None] - until[None, :-1]) * np.square(mus)[:, None]
        costs[np.triu_indices(mus.size, k=1)] = np.inf
        choice = costs.argmin(axis=1)
        best = np.concatenate([[np.inf], costs[np.arange(mus.size), choice]])
        choices.append(choice)
    end, cut = mus.size, []
    for choice in reversed(choices):
        begin = int(choice[end - 1])
        cut.append((begin, end))
        end = begin
    grouped = [
        (math.fsum(w for mu in mus[i:j].tolist() for w in weights[mu]), float(mus[j - 1]))
        for i, j in reversed(cut)
    ]
    return Mixture(
        tuple(weight for weight, _ in grouped), tuple(GaussianDP(mu) for _, mu in grouped)
    )


def _sum_up(epsilons: Iterable[float]) -> float:
    values = list(epsilons)
    if any(math.isinf(value) for value in values):
        return math.inf
    total = math.fsum(values)
    return math.nextafter(total, math.inf) if total > 0 else 0.0


def _safe(share: float) -> float:
    """A share of delta, rounded down: all of them never add up to more than the whole."""
    return share * (1.0 - 1e-12)
