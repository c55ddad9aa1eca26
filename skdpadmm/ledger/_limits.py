"""Limits on what data sets may cost: how they are stored, and whether fits keep them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from skdpadmm.ledger._account import is_within, left_of
from skdpadmm.ledger._counted import Counted, accounts_of, sum_of
from skdpadmm.ledger._entry import ADVERSARY, VERSION, Relation
from skdpadmm.ledger._errors import LedgerError, PrivacyBudgetExceeded
from skdpadmm.privacy import Guarantee, Neighboring, round_down, round_up


class Limit(NamedTuple):
    """A limit on what a data set, or everything, may cost; an empty name means everything."""

    dataset: str
    epsilon: float
    delta: float
    disjoint: bool
    relation: Relation | None


def relation_of(unit: Any, neighboring: Any) -> Relation | None:
    """Return what is asked for by name; None for nothing."""
    if unit is None and neighboring is None:
        return None
    if unit not in ("record", "agent"):
        raise ValueError(
            f"Got unit={unit!r}, expected 'record' or 'agent' together with neighboring."
        )
    known = [str(relation) for relation in Neighboring]
    if neighboring not in known:
        raise ValueError(
            f"Got neighboring={neighboring!r}, expected one of {known} together with unit."
        )
    return Relation(unit, Neighboring(neighboring))


def first_passed(
    limits: Sequence[Limit], counted: Sequence[Counted], new: Sequence[Counted]
) -> Limit | None:
    """The first limit that more fits would pass."""
    for limit in limits:
        for _, after in _before_and_after(limit, counted, new):
            if not is_within(after, limit.epsilon, limit.delta):
                return limit
    return None


def _before_and_after(
    limit: Limit, counted: Sequence[Counted], new: Sequence[Counted]
) -> Iterator[tuple[list[Counted], Guarantee]]:
    """The accounts that new fits count for: what was there before, and the sum with them."""
    ours = {id(fit) for fit in new}
    for account in accounts_of([*counted, *new], limit.dataset, limit.disjoint):
        before = [fit for fit in account if id(fit) not in ours]
        if len(before) < len(account):
            yield before, sum_of(account, ADVERSARY, limit.relation)


def exceeded(
    limit: Limit, counted: Sequence[Counted], new: Sequence[Counted], what: str
) -> PrivacyBudgetExceeded:
    """Say what is left, for the tightest account that the new fits would count for."""
    accounts = list(_before_and_after(limit, counted, new))
    spent = [sum_of(before, ADVERSARY, limit.relation) for before, _ in accounts]
    epsilon_after = max(after.epsilon(limit.delta) for _, after in accounts)
    epsilon_spent = max(guarantee.epsilon(limit.delta) for guarantee in spent)
    left = min(left_of(guarantee, limit.epsilon, limit.delta) for guarantee in spent)
    scope = f" for {limit.dataset!r}" if limit.dataset else ""
    return PrivacyBudgetExceeded(
        f"Got {what} that would bring the total{scope} from epsilon={round_up(epsilon_spent)} to"
        f" {round_up(epsilon_after)}, expected at most {round_up(limit.epsilon)} at"
        f" delta={limit.delta:g}. {_rest(left)} Nothing was stored and no data was used.",
        epsilon_left=left,
        epsilon_spent=epsilon_spent,
        epsilon=limit.epsilon,
        delta=limit.delta,
    )


def _rest(left: float) -> str:
    if left == 0:
        return "Nothing is left."
    return f"One more fit may have epsilon={round_down(left)} at this delta, if it is Gaussian."


def terms_of(limit: Limit) -> str:
    """Return a limit as it is stored, as JSON."""
    relation = limit.relation
    return json.dumps(
        {
            "version": VERSION,
            "epsilon": limit.epsilon,
            "delta": limit.delta,
            "disjoint": limit.disjoint,
            "unit": relation.unit if relation else None,
            "neighboring": str(relation.neighboring) if relation else None,
        },
        sort_keys=True,
    )


def read_limits(stored: Sequence[tuple[str, str]]) -> list[Limit]:
    """Return the last limit of each data set; what is not known in full is refused."""
    limits = []
    for dataset, text in sorted(dict(stored).items()):
        try:
            terms = json.loads(text)
            if terms.pop("version") != VERSION:
                raise ValueError("another version")
            relation = relation_of(terms.pop("unit"), terms.pop("neighboring"))
            limit = Limit(dataset=dataset, relation=relation, **terms)
            if not (0 <= limit.epsilon < math.inf and 0 <= limit.delta < 1):
                raise ValueError("out of range")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LedgerError(
                f"Got a limit that cannot be read ({error}), expected one of version {VERSION}. If"
                " a newer skdpadmm wrote it: update."
            ) from error
        limits.append(limit)
    return limits
