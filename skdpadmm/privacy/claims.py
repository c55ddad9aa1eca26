"""Sums of guarantees: what composes, by which theorem, and between which data sets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from skdpadmm.privacy._composition import compose_counts
from skdpadmm.privacy._gaussian import GaussianDP
from skdpadmm.privacy._guarantee import Guarantee, Neighboring, NonPrivate
from skdpadmm.privacy._mixture import Mixture, Worst, worst
from skdpadmm.privacy._odometer import Spent
from skdpadmm.privacy._report import Observer, PrivacyReport

# What every fit rests on, and so every sum of fits.
SAME_ROWS = (
    "No private value decides which rows a fit gets, or their order: no stratified splits, no"
    " GroupKFold without shuffle=True; where persons are protected, they are split by a public"
    " list, not by rows. No record is in two rows of a fit."
)
# What every sum rests on, beside what its parts do.
ASSUMED = (
    f"{SAME_ROWS} No private value decides the type of a column. No step before a fit learnt"
    " from these rows without noise, all fits on them are counted, and models have the parameters"
    " that they were fitted with. Agents or persons whose labels have equal names and values are"
    " the same, and nobody knows more of what agents know than the report of each fit assumes."
)
# What a composition rests on that an account cannot see.
FIXED = "The number of fits, and all budgets, were fixed before the first result."
# What the words of a ledger mean.
KINDS = (
    f"fixed: holds only under this condition. {FIXED}",
    "filter: holds whatever followed from results that its observer sees, because the limit was"
    " stored before the first fit and was not raised. It is the limit, with pure epsilons on top.",
    "odometer: holds whatever followed from such results, without such a limit.",
    "The delta of a total is chosen before the first result.",
)
# A plan may exceed its budget's delta by as much: rounding, where a plan meets it exactly.
_ROUNDING = 1e-9


class Relation(NamedTuple):
    """The privacy unit, the neighbouring relation, and which agents or persons are the unit."""

    unit: str
    neighboring: Neighboring
    who: str = ""

    def describe(self) -> str:
        """As a phrase, such as "record, replace one"."""
        who = f" ({self.who})" if self.who else ""
        return f"{self.unit}{who}, {str(self.neighboring).replace('_', ' ')}"


class Claim(NamedTuple):
    """The guarantee of a fit against one observer."""

    observer: str
    relation: Relation
    guarantee: Guarantee

    @classmethod
    def of(cls, line: Observer) -> Claim:
        """The claim of a line of a report."""
        relation = Relation(line.unit, Neighboring(line.neighboring), line.who)
        return cls(line.name, relation, line.guarantee)


# The claims of a fit against all of its observers, the adversary's first.
Claims = tuple[Claim, ...]


def against(fit: Claims, observer: str) -> Claim:
    """Return what a fit claims against an observer.

    Whoever it does not name counts as the one that learns most of those whom it names.
    """
    if named := [claim for claim in fit if claim.observer == observer]:
        return named[0]
    if len({claim.relation for claim in fit}) > 1:
        raise ValueError(
            f"Got a fit that does not name {observer!r} and whose guarantees are about different"
            " neighbours, expected one kind. Ask for an observer that every fit names."
        )
    return weakest(fit)._replace(observer=observer)


def weakest(claims: Claims) -> Claim:
    """Return the first of several claims, with a guarantee that all of them imply."""
    return claims[0]._replace(guarantee=worst(*(claim.guarantee for claim in claims)))


def claims_of_report(report: PrivacyReport) -> Claims:
    """Return the claims of a report against all of its observers, the adversary's first."""
    lines = sorted(report.observers, key=lambda line: line.name != report.adversary)
    return tuple(map(Claim.of, lines))


def claims_against(
    fits: Mapping[Claims, int], observer: str | None = None
) -> dict[str, Counter[Claim]]:
    """Return the claims of all fits, and how often each occurs, against one observer.

    None: against everybody whom the budget of a fit was spent against.
    """
    sums: dict[str, Counter[Claim]] = {}
    for name in dict.fromkeys(fit[0].observer for fit in fits) if observer is None else [observer]:
        claims = sums.setdefault(name, Counter())
        for fit, count in fits.items():
            claims[against(fit, name)] += count
    return sums


def totals_of(
    fits: Mapping[Claims, int], target: Relation | None = None, observer: str | None = None
) -> dict[str, Guarantee]:
    """Return the total against each observer of :func:`claims_against`."""
    sums = claims_against(fits, observer)
    return {name: total_of(claims, target) for name, claims in sums.items()}


def total_of(claims: Counter[Claim], target: Relation | None) -> Guarantee:
    """Return the guarantee of claims together under one relation; None: the one of all."""
    return compose_counts(_converted_all(claims, target).items())


def spent_of(claims: Counter[Claim], target: Relation | None) -> Spent:
    """Return what claims add up to under one relation where budgets follow results."""
    return Spent.of(_converted_all(claims, target))


def keeps_limit(
    claims: Counter[Claim], target: Relation | None, epsilon: float, delta: float
) -> bool:
    """Whether the sum of claims keeps a limit."""
    counts = _converted_all(claims, target)
    # Every label at its largest mu is a bound in closed form, and most often enough.
    mu = math.hypot(*(math.sqrt(count) * part.largest_mu() for part, count in counts.items()))
    if mu < math.inf and is_within(GaussianDP(mu * (1.0 + 1e-12)), epsilon, delta):
        return True
    return is_within(compose_counts(counts.items()), epsilon, delta)


def converted(guarantee: Guarantee, source: Relation, target: Relation) -> Guarantee:
    r"""Return what a guarantee under one relation says under another; refuse it without a theorem.

    - **Zero-out to replace-one, the same unit**: :math:`\mu` doubles. Two data sets that differ in
      one unit both become the same one when that unit's loss is replaced by zero, so there are two
      steps from one to the other, and a path of two steps of GDP(mu) is GDP(2 mu) (Dong, Roth and
      Su, JRSS-B 2022, Theorem 2.14). It holds for every component of a worst case, which is a
      maximum over units, and of a mixture, whose label has the same law on all data sets. Of
      `private_bounds`, whose mixture is a bound, the proof is in :ref:`releases-beside-fits`.
    - **Add-remove to replace-one**: :math:`\mu` doubles, as removing a record and adding another
      one are two steps.
    - **Agent or person to record, replace-one**: as it is. Who replaces one record replaces the
      data of one agent or person by other data of the same size.
    - **No privacy** is no privacy.

    Nothing else: not from replace-one to zero-out, as the zero function may be no record's loss;
    not between zero-out and add-remove, as the number of records is public in one of them alone;
    not from record to agent or person; not for subsampled, Laplace and other kinds, where two steps
    have a curve of their own.
    """
    if source[:2] == target[:2] or isinstance(guarantee, NonPrivate):
        return guarantee
    is_within_unit = target.unit in (source.unit, "record")
    if target.neighboring is Neighboring.REPLACE_ONE and is_within_unit:
        if source.neighboring is Neighboring.REPLACE_ONE:
            return guarantee
        if (doubled := _doubled(guarantee)) is not None:
            return doubled
    raise ValueError(
        f"Got a fit about {source.describe()} with {guarantee.describe()}, expected one that says"
        f" something about {target.describe()}. What converts: Gaussian guarantees from zero out or"
        " add remove to replace one, and replace-one guarantees of agents or persons to records."
        " Keep others in a ledger, or under a data set, of their own."
    )


def is_within(guarantee: Guarantee, epsilon: float, delta: float) -> bool:
    """Whether a guarantee keeps a limit, up to the rounding that a plan is allowed."""
    if delta == 0.0:  # far out a delta that is not zero underflows, and would pass for one
        return guarantee.epsilon(delta) <= epsilon * (1.0 + _ROUNDING)
    return guarantee.delta(epsilon) <= delta * (1.0 + _ROUNDING)


def _converted_all(claims: Counter[Claim], target: Relation | None) -> dict[Guarantee, int]:
    """Return the guarantees of claims under one relation, and how often each occurs."""
    relations = sorted({claim.relation[:2] for claim in claims})
    if target is None and len(relations) > 1:
        names = "; ".join(Relation(*relation).describe() for relation in relations)
        raise ValueError(
            f"Got fits about {len(relations)} kinds of neighbours ({names}), expected one: their"
            " guarantees do not compose as they are. Report them separately, or ask a ledger for"
            " unit='record', neighboring='replace_one', to which some can be converted."
        )
    to = target or Relation(*(relations or [("record", Neighboring.REPLACE_ONE)])[0])
    unit, same = to.unit, Counter[str]()
    for claim, count in claims.items():
        if claim.relation.unit == unit != "record":
            same[claim.relation.who] += count
    if same.total() > 1 and (len(same) > 1 or "" in same):
        raise ValueError(
            f"Got fits about {unit}s that are not known to be the same"
            f" ({', '.join(who or 'made up, or without a name' for who in sorted(same))}), expected"
            f" the same {unit}s in all: what holds for one does not hold for another. They are the"
            f" same {unit}s if labels have the same name and the same set of values; numbers"
            " such as 0, 1, 2 need a name: agent_column='hospital', or a Series. Or ask a ledger"
            " for the total of records: unit='record', neighboring='replace_one'."
        )
    counts: Counter[Guarantee] = Counter()
    for claim, count in claims.items():
        counts[converted(claim.guarantee, claim.relation, to)] += count
    return counts


def _doubled(guarantee: Guarantee) -> Guarantee | None:
    if isinstance(guarantee, GaussianDP):
        return GaussianDP(2.0 * guarantee.mu)
    if isinstance(guarantee, Worst | Mixture):
        components = [two for two in map(_doubled, guarantee.components) if two is not None]
        if len(components) == len(guarantee.components):
            return replace(guarantee, components=tuple(components))
    return guarantee if isinstance(guarantee, NonPrivate) else None
