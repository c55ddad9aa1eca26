"""What a ledger stores of a fit: two pieces of versioned JSON, and nothing of its data."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from skdpadmm.ledger._errors import LedgerError
from skdpadmm.privacy import (
    Guarantee,
    Neighboring,
    Observer,
    PrivacyReport,
    guarantee_from_dict,
)

VERSION = 1
ADVERSARY = "adversary"
_UNITS = ("record", "agent")


class Relation(NamedTuple):
    """What is protected, and between which data sets."""

    unit: str
    neighboring: Neighboring

    def describe(self) -> str:
        """Return for instance "record, replace one"."""
        return f"{self.unit}, {str(self.neighboring).replace('_', ' ')}"


class Claim(NamedTuple):
    """What one observer can learn from a fit."""

    observer: str
    relation: Relation
    guarantee: Guarantee


class Promise(NamedTuple):
    """What a fit costs: claims, the adversary's first, and whether its noise is real."""

    claims: tuple[Claim, ...]
    simulation: bool

    def against(self, observer: str) -> Claim:
        """Return the claim about an observer; "adversary" is the one that the budget is about."""
        if observer == ADVERSARY:
            return self.claims[0]
        for claim in self.claims:
            if claim.observer == observer:
                return claim
        names = [claim.observer for claim in self.claims]
        raise LedgerError(
            f"Got observer={observer!r} for a ledger with a fit that says nothing about it, only"
            f" about {names}. Ask for {ADVERSARY!r}, or for an observer that every fit knows."
        )


@dataclass(frozen=True)
class LedgerEntry:
    """The planned cost of one fit.

    Parameters
    ----------
    subject : str
        What is fitted: the name of an estimator's class.
    digest : str
        SHA-256 of the plan, 64 hexadecimal digits.
    delta : float
        Of the fit's own budget, in [0, 1].
    observers : tuple of Observer
        Whom guarantees speak about, the adversary first; names are distinct.
    simulation : bool, default=False
        Whether the noise can be reproduced, because a seed was given.

    Examples
    --------
    >>> from skdpadmm.ledger import LedgerEntry
    >>> from skdpadmm.privacy import GaussianDP, Observer
    >>> world = Observer("model", "the model", "record", "zero_out", GaussianDP(0.2))
    >>> LedgerEntry("Lasso", "0" * 64, 1e-6, (world,)).subject
    'Lasso'
    """

    subject: str
    digest: str
    delta: float
    observers: tuple[Observer, ...]
    simulation: bool = False

    def __post_init__(self) -> None:
        """Refuse what could not be read again."""
        object.__setattr__(self, "observers", tuple(self.observers))
        if not isinstance(self.subject, str) or not re.fullmatch(r"[\w.]{1,200}", self.subject):
            raise ValueError(f"Got subject={self.subject!r}, expected the name of a class.")
        if not isinstance(self.digest, str) or not re.fullmatch("[0-9a-f]{64}", self.digest):
            raise ValueError(
                f"Got digest={self.digest!r}, expected 64 hexadecimal digits: plan.digest().hex()."
            )
        if not 0 <= self.delta <= 1:
            raise ValueError(f"Got delta={self.delta!r}, expected a float in [0, 1].")
        names = [observer.name for observer in self.observers]
        if not names or len(set(names)) < len(names) or ADVERSARY in names:
            raise ValueError(
                f"Got observers {names}, expected at least one, with distinct names other than"
                f" {ADVERSARY!r}."
            )
        if not isinstance(self.simulation, bool):
            raise TypeError(f"Got simulation={self.simulation!r}, expected a bool.")
        read_promise(self.promise())

    @classmethod
    def of_report(cls, report: PrivacyReport, digest: str) -> LedgerEntry:
        """Return the entry of a fit from its report, which a plan alone can make.

        Parameters
        ----------
        report : PrivacyReport
        digest : str
            ``plan.digest().hex()``.

        Returns
        -------
        LedgerEntry
        """
        first = [o for o in report.observers if o.name == report.adversary]
        others = [o for o in report.observers if o.name != report.adversary]
        return cls(
            subject=report.subject,
            digest=digest,
            delta=float(report.delta),
            observers=(*first, *others),
            simulation=bool(report.simulation),
        )

    def promise(self) -> str:
        """Return what is counted, as JSON: equal costs are equal texts."""
        return _text(
            {
                "version": VERSION,
                "simulation": self.simulation,
                "observers": [
                    {
                        "name": observer.name,
                        "unit": observer.unit,
                        "neighboring": str(Neighboring(observer.neighboring)),
                        "guarantee": observer.guarantee.to_dict(),
                    }
                    for observer in self.observers
                ],
            }
        )

    def record(self) -> str:
        """Return what is for information only, as JSON: the plan, this process, the time."""
        return _text(
            {
                "version": VERSION,
                "subject": self.subject,
                "digest": self.digest,
                "delta": float(self.delta),
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "time": now(),
            }
        )


def read_promise(text: str) -> Promise:
    """Return what is counted of a fit; what is not known in full is refused."""
    plain = _fields(text, ("observers", "simulation", "version"))
    if not isinstance(plain["observers"], list) or not plain["observers"]:
        raise LedgerError("Got an entry without observers, expected one at least.")
    claims = []
    for observer in plain["observers"]:
        _expect(observer, ("guarantee", "name", "neighboring", "unit"))
        name, unit = observer["name"], observer["unit"]
        if not isinstance(name, str) or unit not in _UNITS:
            raise LedgerError(
                f"Got an entry with observer={name!r} and unit={unit!r}, expected a name and one"
                f" of {list(_UNITS)}."
            )
        try:
            relation = Relation(unit, Neighboring(observer["neighboring"]))
            claims.append(Claim(name, relation, guarantee_from_dict(observer["guarantee"])))
        except (TypeError, ValueError) as error:
            raise LedgerError(f"Got an entry that cannot be read: {error}") from error
    if not isinstance(plain["simulation"], bool):
        raise LedgerError(f"Got an entry with simulation={plain['simulation']!r}, expected a bool.")
    return Promise(tuple(claims), plain["simulation"])


def read_record(text: str) -> dict[str, Any]:
    """Return what is for information only."""
    return _fields(text, ("delta", "digest", "host", "pid", "subject", "time", "version"))


def now() -> str:
    """Return this machine's time; nothing depends on it, as clocks disagree."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _text(plain: dict[str, Any]) -> str:
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _fields(text: str, names: Iterable[str]) -> dict[str, Any]:
    try:
        plain = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise LedgerError("Got an entry that is no JSON, expected a ledger's own.") from error
    version = plain.get("version") if isinstance(plain, dict) else None
    if version != VERSION or isinstance(version, bool):
        raise LedgerError(
            f"Got an entry of version {version!r}, expected {VERSION}. If a newer skdpadmm wrote"
            " it: update."
        )
    _expect(plain, names)
    return dict(plain)


def _expect(plain: Any, names: Iterable[str]) -> None:
    if not isinstance(plain, dict) or sorted(plain) != sorted(names):
        raise LedgerError(
            f"Got an entry with the fields {sorted(plain) if isinstance(plain, dict) else plain!r},"
            f" expected {sorted(names)}. If a newer skdpadmm wrote it: update."
        )
