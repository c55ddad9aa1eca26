"""The account of a study: entries, limits and totals in one SQLite file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import socket
import sqlite3
import uuid
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

from skdpadmm import privacy
from skdpadmm._document import Block, as_html, as_text, frame_of
from skdpadmm._numbers import percent_up, require_delta
from skdpadmm._search_cost import cost_of_search
from skdpadmm._sklearn import discreet
from skdpadmm.exceptions import warn_user
from skdpadmm.ledger._account import LedgerError, PrivacyBudgetExceeded, left_of
from skdpadmm.privacy import Guarantee, Neighboring, Observer, PrivacyReport, round_up, worst
from skdpadmm.privacy.claims import (
    ASSUMED,
    KINDS,
    Claim,
    Claims,
    Relation,
    claims_against,
    is_within,
    keeps_limit,
    spent_of,
    total_of,
)

_APPLICATION, _FORMAT = 0x64704C67, 4  # "dpLg"
# Seconds for which a transaction waits for those of others.
_PATIENCE = 300.0
_SCHEMA = f"""
CREATE TABLE costs (cost TEXT PRIMARY KEY, observers TEXT NOT NULL);
CREATE TABLE entries (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, dataset TEXT NOT NULL, subject TEXT NOT NULL,
    simulation INTEGER NOT NULL, cost TEXT NOT NULL REFERENCES costs, digest TEXT NOT NULL,
    delta REAL NOT NULL, host TEXT, pid INTEGER, reserved TEXT, finished TEXT);
CREATE TABLE pieces (key TEXT, first INTEGER, PRIMARY KEY (key, first));
CREATE TABLE limits (
    dataset TEXT PRIMARY KEY, epsilon REAL NOT NULL, delta REAL NOT NULL,
    disjoint INTEGER NOT NULL, unit TEXT, neighboring TEXT,
    filter_epsilon REAL, filter_delta REAL, lost_delta REAL NOT NULL);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_FORMAT}"""
_STORED = "id, dataset, subject, simulation, cost, digest, delta, host, pid, reserved, finished"
_COLUMNS = "id dataset subject state observer unit who neighboring epsilon delta guarantee reserved"


class _Fits(NamedTuple):
    """Fits that are equal in all that is counted; claims are by observer, the adversary's first."""

    dataset: str
    subject: str
    simulation: bool
    claims: Claims
    number: int


class _Limit(NamedTuple):
    """A limit on a data set, or on everything, where its name is empty."""

    dataset: str
    epsilon: float
    delta: float
    disjoint: bool
    unit: str | None
    neighboring: str | None
    # The first limit, if it was stored before the first fit and not raised; deltas of those raised.
    filter_epsilon: float | None = None
    filter_delta: float | None = None
    lost_delta: float = 0.0

    def after(self, old: _Limit | None, has_fits: bool) -> _Limit:
        """Return this limit in the place of an old one: a filter, or no longer one."""
        lost = old.lost_delta if old else 0.0
        first = old.first if old else None
        if not has_fits:
            first = self.epsilon, self.delta
        elif first and (self.epsilon > first[0] or self.delta > first[1]):
            lost, first = lost + first[1], None
        epsilon, delta = first or (None, None)
        return self._replace(filter_epsilon=epsilon, filter_delta=delta, lost_delta=lost)

    @property
    def first(self) -> tuple[float, float] | None:
        """The filter, as epsilon and delta."""
        epsilon, delta = self.filter_epsilon, self.filter_delta
        return None if epsilon is None or delta is None else (epsilon, delta)

    @property
    def relation(self) -> Relation | None:
        return _relation(self.unit, self.neighboring)


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
        names = [observer.name for observer in self.observers]
        is_named = self.subject.isprintable() and re.fullmatch("[0-9a-f]+", self.digest)
        if not (is_named and 0 <= self.delta <= 1 and len({*names, "adversary"}) > len(names) > 0):
            raise ValueError(
                f"Got {self!r}, expected a printable name, plan.digest().hex(), a delta in"
                " [0, 1], and observers with distinct names other than 'adversary'."
            )
        _claims_from(self._cost())

    @classmethod
    def of_report(cls, report: PrivacyReport, digest: str) -> LedgerEntry:
        """Return the entry of a fit from its report and ``plan.digest().hex()``."""
        observers = sorted(report.observers, key=lambda line: line.name != report.adversary)
        delta, simulation = float(report.delta), bool(report.simulation)
        return cls(report.subject, digest, delta, tuple(observers), simulation)

    def _cost(self) -> str:
        """What is counted, as JSON: equal costs are equal texts."""
        plain = [
            (o.name, o.unit, str(o.neighboring), o.guarantee.to_dict(), *filter(None, [o.who]))
            for o in self.observers
        ]
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


class PrivacyLedger:
    """The cost of a study so far, and how much it may cost: one SQLite file.

    A fit reserves its planned cost before it reads data, in one transaction, and is marked as
    done afterwards. What was reserved counts, done or not, so a crash leaves it counted. Any number
    of processes and threads of one machine may write at the same time.

    Parameters
    ----------
    path : str or path-like
        Of the file, ``"study.db"``, or of the file and a data set, ``"study.db::adult"``, on a
        local disk: locks of network file systems may not hold. The first fit or limit makes it.

    Attributes
    ----------
    path : str
        Absolute.
    dataset : str
        Name of the data set, or an empty text.

    Notes
    -----
    **Sums** are against one observer, who sees what that observer sees of every fit. Of a fit that
    does not name it, it counts as the observer of that fit that learns most. Gaussian guarantees
    compose exactly, others by privacy loss distributions (:func:`~skdpadmm.privacy.compose`; it
    needs the extra ``accounting``). Unit and neighbouring relation have to agree, or ``unit`` and
    ``neighboring`` ask for a conversion: zero out, or add remove, to replace one doubles the mu of
    a Gaussian guarantee, and a replace-one guarantee of agents holds for their records. Agents and
    persons have to be the same: by the name of their column and the set of their labels.

    A sum assumes that no private value decides which rows a fit gets. Stratified folds, and
    ``GroupKFold`` without ``shuffle=True``, are decided by labels and by sizes of groups: with them
    no sum holds, and nothing notices.

    **Kinds of totals.** Later fits may depend on earlier results. If their budgets, or when to
    stop, do so as well, what holds is a *filter*, the limit that was stored before the first fit
    (Smith and Thakurta, "Fully adaptive composition for Gaussian differential privacy", 2022), or
    without one an *odometer*. Both are for Gaussian and pure guarantees, the odometer for Renyi
    divergences, too. :meth:`total` gives them. The composition, :meth:`guarantee` or
    ``total(kind="fixed")``, holds only if all budgets and their number were fixed in advance.

    **Data sets.** Fits without a name count for every data set. With ``disjoint=True`` you say that
    no unit is in two data sets of different names: then the worst of their accounts is a bound for
    all. Otherwise everything is composed.

    **Simulations**, fits with a seed, may share noise that can be drawn again: then no sum holds.
    They are shown apart, and no part of a total unless ``include_simulated=True``, which gives what
    they would cost with ``random_state=None``. In limits they count so.

    **The file** holds guarantees, times and names of machines, and nothing of the data but the name
    of the column of agents or persons and a digest of their labels. It is a note
    to oneself: nothing notices that it was edited, deleted or put back from a copy.

    Examples
    --------
    >>> import os, tempfile
    >>> from skdpadmm.ledger import LedgerEntry, PrivacyLedger
    >>> from skdpadmm.privacy import GaussianDP, Observer
    >>> directory = tempfile.TemporaryDirectory()
    >>> ledger = PrivacyLedger(os.path.join(directory.name, "study.db"))
    >>> ledger.limit(2.0, 1e-6)
    >>> world = Observer("model", "the model", "record", "replace_one", GaussianDP(0.3))
    >>> key = ledger.reserve(LedgerEntry("Lasso", "0" * 64, 1e-6, (world,)))
    >>> ledger.finish(key)
    >>> f"{ledger.total():.3f}", f"{ledger.total(kind='fixed'):.3f}"
    ('2.000', '1.292')
    >>> directory.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = os.fspath(path)
        file, separator, name = text.rpartition("::") if "::" in text else (text, "", "")
        is_name = name == name.strip() and name.isprintable() and bool(name) == bool(separator)
        if not file or file == ":memory:" or not is_name:
            raise ValueError(
                f"Got path={text!r}, expected the path of a file, such as 'study.db', or of a file"
                " and a printable name, 'study.db::adult'."
            )
        self.path, self.dataset = os.path.realpath(file), name

    def __repr__(self) -> str:
        return f"PrivacyLedger({self._name!r})"

    def _repr_html_(self) -> str:
        is_new = not os.path.exists(self.path)
        return as_html([Block("title", [repr(self)])] if is_new else self._blocks())

    def reserve(self, entry: LedgerEntry) -> str:
        """Count a fit before it reads data, and return its key for :meth:`finish`.

        Raises
        ------
        PrivacyBudgetExceeded
            If a limit would be passed. Nothing is stored.
        LedgerError, ValueError
            If the file cannot be used, or a limit cannot be checked. Nothing is stored.
        """
        observers, key = entry._cost(), uuid.uuid4().hex
        cost = hashlib.sha256(observers.encode()).hexdigest()
        new = _Fits(self.dataset, entry.subject, entry.simulation, _claims_from(observers), 1)
        row = (key, self.dataset, entry.subject, entry.simulation, cost, entry.digest, entry.delta)
        process = (socket.gethostname(), os.getpid(), _now())
        with self._transaction("IMMEDIATE", make=True) as connection:
            self._refuse_passed(connection, [new], f"a fit of {entry.subject}")
            connection.execute("INSERT OR IGNORE INTO costs VALUES (?, ?)", (cost, observers))
            query = "INSERT INTO entries VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)"
            connection.execute(query, row + process)
        return key

    @contextlib.contextmanager
    def counting(self, entry: LedgerEntry) -> Iterator[str]:
        """Count a fit around its work: reserved before it, done after it.

        Work that fails stays reserved, and counts. It yields the key of :meth:`reserve`, and raises
        what that does.
        """
        key = self.reserve(entry)
        yield key
        # Not where it failed: whether it has read data is then not known.
        self.finish(key)

    def finish(self, key: str) -> None:
        """Mark a fit as done, by the key of :meth:`reserve`; to do it twice changes nothing."""
        query = "UPDATE entries SET finished = COALESCE(finished, ?) WHERE key = ?"
        with self._transaction("IMMEDIATE") as connection:
            _require_key(connection, key)
            connection.execute(query, (_now(), key))

    def advance(self, key: str, first: int) -> bool:
        """Take the next piece of a stream of records, before it reads data.

        A stream is reserved once, whatever its pieces: each record is in one of them.

        Parameters
        ----------
        key : str
            From :meth:`reserve`, when the stream began.
        first : int
            How many records came before this piece, at least 0.

        Returns
        -------
        bool
            False if a piece of this stream began there already, whatever became of it. Then this is
            a copy: reserve a new entry for the piece and for all that follows, under the new key.
        """
        if not isinstance(first, Integral) or isinstance(first, bool) or first < 0:
            raise ValueError(f"Got first={first!r}, expected an int >= 0: the records before.")
        query = "INSERT OR IGNORE INTO pieces VALUES (?, ?)"
        with self._transaction("IMMEDIATE") as connection:
            _require_key(connection, key)
            return connection.execute(query, (key, int(first))).rowcount == 1

    def limit(
        self,
        epsilon: float,
        delta: float,
        *,
        disjoint: bool = False,
        unit: str | None = None,
        neighboring: str | None = None,
    ) -> None:
        """Set how much may be spent in all; it replaces an earlier limit and is stored.

        With a data set in the path it is about this data set and all fits without a name, otherwise
        about everything. It is kept against everybody whom the budget of a fit is spent against. A
        limit below what was spent is stored, with a warning.

        A limit that is stored before the first fit is a filter: it holds for budgets that follow
        results (:meth:`total`). One that is raised, or added after fits, still refuses fits, but is
        none; one that is lowered leaves the first in force as the filter.

        Parameters
        ----------
        epsilon : float
            In [0, inf).
        delta : float
            In [0, 1).
        disjoint, unit, neighboring
            As in :meth:`guarantee`.
        """
        numbers = [isinstance(x, Real) and not isinstance(x, bool) for x in (epsilon, delta)]
        if not (all(numbers) and 0 <= epsilon < math.inf and 0 <= delta < 1):
            raise ValueError(
                f"Got epsilon={epsilon!r} and delta={delta!r}, expected floats in [0, inf) and in"
                " [0, 1): limit(2.0, 1e-6)."
            )
        relation = _relation(unit, neighboring)
        new = _Limit(self.dataset, float(epsilon), float(delta), bool(disjoint), unit, neighboring)
        with self._transaction("IMMEDIATE", make=True) as connection:
            accounts = _accounts(_read_fits(connection), self.dataset, disjoint)
            spent = worst(*(_sum_of(account, relation) for account in accounts))
            old = {limit.dataset: limit for limit in _read_limits(connection)}.get(self.dataset)
            row = new.after(old, has_fits=any(accounts))
            query = f"INSERT OR REPLACE INTO limits VALUES ({', '.join('?' * len(row))})"
            connection.execute(query, row)
        if not is_within(spent, epsilon, delta):
            warn_user(
                f"Got a limit of epsilon={epsilon:g} at delta={delta:g}, below what was spent"
                f" already, epsilon={round_up(spent.epsilon(delta))}: fits that count for it are"
                " refused.",
                UserWarning,
            )

    def limits(self) -> list[dict[str, Any]]:
        """Return all limits as dictionaries; the data set of one about everything is empty."""
        with self._transaction() as connection:
            return [limit._asdict() for limit in _read_limits(connection)]

    def guarantee(
        self,
        *,
        subject: str | None = None,
        last_id: int | None = None,
        observer: str = "adversary",
        include_simulated: bool = False,
        disjoint: bool | None = None,
        unit: str | None = None,
        neighboring: str | None = None,
    ) -> Guarantee:
        """Return the composition of all fits: what holds if their budgets were fixed in advance.

        The same goes for their number: see :meth:`total` for budgets that follow results. With a
        data set in the path these are its fits and those without a name.

        Parameters
        ----------
        subject : str or None, default=None
            Name of a class of estimators: its fits alone. None: all.
        last_id : int or None, default=None
            The "id" of the last entry that counts: what held when it was made. None: all count.
        observer : str, default="adversary"
            Against whom. "adversary": against everybody whom the budget of a fit was spent against,
            each by itself; the weakest of these guarantees.
        include_simulated : bool, default=False
            Whether fits with a seed count as though their noise were real. False: they are left
            out, with a warning.
        disjoint : bool or None, default=None
            Whether data sets of different names have no unit in common.
        unit : {"record", "agent", "person"} or None, default=None
        neighboring : {"replace_one", "zero_out", "add_remove"} or None, default=None
            What fits are converted to where they differ; both or none. None, as of `disjoint`: what
            the limit on the data set, or on everything, says; no conversion without a limit.

        Returns
        -------
        Guarantee

        Raises
        ------
        LedgerError, ValueError
            If there is no ledger, if nothing is known of the data set, or if costs do not add up.
        """
        choices = subject, last_id, include_simulated, disjoint, unit, neighboring
        accounts, relation, _ = self._asked(*choices)
        return worst(*(_sum_of(account, relation, observer) for account in accounts))

    def total(self, delta: float | None = None, *, kind: str | None = None, **asked: Any) -> float:
        """Return epsilon at ``delta`` of all fits together; 0.0 for none.

        By default it holds whatever followed from results: budgets, number of fits, and when to
        stop. Where the limit was stored before the first fit and not raised, and all fits are
        Gaussian within it, it is that limit (a *filter*); otherwise it is an *odometer*, above the
        composition. Pure epsilons add up in both. Proofs: :ref:`adaptive-totals`.

        Parameters
        ----------
        delta : float or None, default=None
            In [0, 1], chosen before the first result. None: that of the limit on the data set, or
            on everything, plus those of limits that no longer hold.
        kind : "fixed" or None, default=None
            "fixed": composition, if budgets and the number of fits were fixed before the first
            result.
        **asked : object
            As in :meth:`guarantee`.

        Raises
        ------
        LedgerError, ValueError
            As :meth:`guarantee`; also if fits have no theorem for budgets that follow results, as
            with subsampling, or if limits that were given up have used all of ``delta``.
        """
        if kind not in (None, "fixed"):
            raise ValueError(f"Got kind={kind!r}, expected None or 'fixed'.")
        if kind is None:
            return self._adaptive(delta, **asked)[1]
        delta = self._delta(delta)
        return self.guarantee(**asked).epsilon(delta)

    def _adaptive(
        self, delta: float | None, observer: str = "adversary", **asked: Any
    ) -> tuple[str, float, float]:
        """Return the kind, epsilon and delta of a total where budgets follow results."""
        if delta is not None:
            require_delta(delta)
        base = self._delta(None) if delta is None else delta
        accounts, relation, limits = self._asked(**asked)
        spent = [
            spent_of(claims, relation)
            for account in accounts
            for claims in _sums_against(account, observer).values()
        ]
        lost = math.fsum(limit.lost_delta for limit in limits)
        first = next((limit.first for limit in limits if limit.first), None)
        if first and not all(each.keeps(*first) for each in spent):
            # What the filter claimed, and what is claimed from now on, use a delta each.
            lost, first = lost + first[1], None
        whole = base + lost if delta is None else delta
        if lost and whole <= lost:
            raise ValueError(
                f"Limits that were raised, or passed by fits of other kinds, have used"
                f" delta={lost:g}. Ask for a total at a larger delta: total({2 * lost:g})."
            )
        kind, left = "filter" if first else "odometer", whole - lost
        parts = [
            s.filter_epsilon(*first, left) if first else s.odometer_epsilon(left) for s in spent
        ]
        return kind, max(parts, default=0.0), whole

    def _asked(
        self,
        subject: str | None = None,
        last_id: int | None = None,
        include_simulated: bool = False,
        disjoint: bool | None = None,
        unit: str | None = None,
        neighboring: str | None = None,
    ) -> tuple[list[list[_Fits]], Relation | None, list[_Limit]]:
        """Return the accounts that are asked for, their relation, and limits on this data set."""
        relation, name = _relation(unit, neighboring), self.dataset
        with self._transaction() as connection:
            fits, limits = _read_fits(connection, last_id), self._own_limits(connection)
            if limits:
                relation = relation or limits[0].relation
                disjoint = limits[0].disjoint if disjoint is None else disjoint
            query = "SELECT dataset FROM entries UNION SELECT dataset FROM limits"
            names = {dataset for (dataset,) in connection.execute(query)}
        if name and name not in names:
            raise LedgerError(
                f"Got the data set {name!r}, expected one of {sorted(names - {''})}, which fits or"
                f" limits of {self.path} have."
            )
        fits = [same for same in fits if subject in (None, same.subject)]
        accounts = _accounts(fits, name, bool(disjoint))
        if not include_simulated and any(same.simulation for a in accounts for same in a):
            accounts = [[same for same in a if not same.simulation] for a in accounts]
            warn_user(
                "Fits with a seed are not in the total, because their noise can be drawn again: it"
                " holds only if nobody sees their results. include_simulated=True counts them.",
                UserWarning,
            )
        return accounts, relation, limits

    def epsilon_by_estimator(self, delta: float | None = None, **asked: Any) -> dict[str, float]:
        """Return the fixed :meth:`total` of each class of estimators, in the order of first fits.

        All are at the same ``delta``, so they do not add up to the total.
        """
        with self._transaction() as connection:
            (fits,) = _accounts(_read_fits(connection), self.dataset, disjoint=False)
        subjects = dict.fromkeys(same.subject for same in fits)
        return {name: self.total(delta, kind="fixed", subject=name, **asked) for name in subjects}

    def entries(self) -> list[dict[str, Any]]:
        """Return all fits of the ledger as dictionaries, in the order of their reservation.

        Their keys are "id", "dataset", "subject", "simulation", "digest", "delta", "host", "pid",
        "reserved" and "finished" (times, of the clock of the machine), "state" ("reserved" or
        "done"), and of the adversary "observer", "unit", "who", "neighboring", "guarantee" and
        "epsilon".
        """
        with self._transaction() as connection, _damage_is_an_error():
            return self._read_entries(connection)

    @staticmethod
    def _read_entries(connection: sqlite3.Connection) -> list[dict[str, Any]]:
        _read_fits(connection)
        rows = connection.execute(f"SELECT {_STORED} FROM entries ORDER BY id")
        names = _STORED.split(", ")
        entries: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in rows]
        claims = _claims_by_cost(connection)
        fits = dict.fromkeys((entry["cost"], entry["delta"]) for entry in entries)
        epsilons = {fit: claims[fit[0]][0].guarantee.epsilon(fit[1]) for fit in fits}
        for entry in entries:
            fit = entry.pop("cost"), entry["delta"]
            observer, relation, guarantee = claims[fit[0]][0]
            entry.update(
                simulation=bool(entry["simulation"]),
                state="done" if entry["finished"] else "reserved",
                observer=observer,
                unit=relation.unit,
                who=relation.who,
                neighboring=str(relation.neighboring),
                guarantee=guarantee.describe(),
                epsilon=epsilons[fit],
            )
        return entries

    def to_frame(self) -> Any:
        """Return :meth:`entries` as a pandas.DataFrame; it needs pandas."""
        return frame_of(self.entries())

    def summary(self, delta: float | None = None, **asked: Any) -> str:
        """Return the total, limits and fits as text, as the command line prints them.

        Each limit has what is left of it for one more Gaussian fit, or "EXCEEDED".

        Parameters
        ----------
        delta : float or None, default=None
            Of the total. None: that of the limit, or else of all fits, or 1e-6 where they differ.
        **asked : object
            As in :meth:`guarantee`.
        """
        return as_text(self._blocks(delta, **asked))

    def _blocks(self, delta: float | None = None, **asked: Any) -> Iterator[Block]:
        about, names = (f" of {self.dataset}" if self.dataset else ""), ("", self.dataset)
        entries = [e for e in self.entries() if not self.dataset or e["dataset"] in names]
        deltas = {entry["delta"] for entry in entries}
        with self._transaction() as connection:
            own = self._own_limits(connection)
        given_delta = delta
        delta = self._delta(delta, deltas.pop() if len(deltas) == 1 else 1e-6)
        n_open = sum(entry["state"] == "reserved" for entry in entries)
        n_simulated = sum(entry["simulation"] for entry in entries)
        terms = {name: value for name, value in asked.items() if value not in (None, False)}
        seen = dict.fromkeys(entry["observer"] for entry in entries)
        if (who := terms.pop("observer", "adversary")) != "adversary":
            seen = {who: None}
        given = "".join(f", {each}={terms[each]}" for each in terms)
        totals = {f"total{about} against {o}{given}": {**asked, "observer": o} for o in seen}
        totals = totals or {f"total{about}{given}": asked}
        if n_simulated and not asked.get("include_simulated"):
            for title, terms in list(totals.items()):
                totals[f"{title} as though without a seed"] = {**terms, "include_simulated": True}
        yield Block("title", [f"Ledger {self.path}"])
        lines = []
        for title, terms in totals.items():
            # Simulations have a line of their own.
            with warnings.catch_warnings(action="ignore"):
                try:
                    kind, total, at = self._adaptive(given_delta if own else delta, **terms)
                    lines += [f"{title}: epsilon={round_up(total)} at delta={at:g}, {kind}"]
                except (LedgerError, ValueError, ImportError) as error:
                    lines += [f"{title}: none. {error}"]
                with contextlib.suppress(LedgerError, ValueError, ImportError):
                    fixed = self.guarantee(**terms)
                    stated = f"epsilon={round_up(fixed.epsilon(delta))} at delta={delta:g}"
                    accuracy = f"attack accuracy at most {percent_up(fixed.attack_accuracy())}"
                    lines += [f"fixed {title}: {stated}, {fixed.describe()}, {accuracy}"]
        with self._transaction() as connection:
            limits, fits = self._limits_for_me(connection), _read_fits(connection)
        lines += [f"limit{_described(limit)}, {self._rest(limit, fits)}" for limit in limits]
        relation = _relation(asked.get("unit"), asked.get("neighboring")) or (
            own[0].relation if own else None
        )
        kinds = {Relation(entry["unit"], Neighboring(entry["neighboring"])) for entry in entries}
        if protected := {relation} if relation else kinds:
            lines += [f"unit: {'; '.join(sorted(each.describe() for each in protected))}"]
        lines += [f"fits: {len(entries)}, of which not done: {n_open}, simulations: {n_simulated}"]
        yield Block("text", lines)
        if entries:
            columns = _COLUMNS.split()
            cells = [[_cell(entry, column) for column in columns] for entry in entries]
            yield Block("table", columns, cells, fold="Fits")
        yield Block("text", KINDS)
        yield Block("text", [f"A total assumes: {ASSUMED}"])

    @discreet
    def check(
        self,
        search: Any,
        X: Any,
        y: Any = None,
        *,
        unit: str | None = None,
        neighboring: str | None = None,
        **facts: Any,
    ) -> Guarantee:
        """Refuse a search that the limits cannot pay for, before its first fit.

        scikit-learn would turn each refusal into a score of NaN and go on spending. All fits are
        planned, none is reserved: whoever else spends in the meantime is not seen.

        Parameters
        ----------
        search : GridSearchCV, RandomizedSearchCV, private search or estimator
            Not fitted yet. It, its estimator, or the last step of a pipeline has a method ``plan``.
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), default=None
            For the number of classes, where none are declared.
        unit : {"record", "agent", "person"} or None, default=None
        neighboring : {"replace_one", "zero_out", "add_remove"} or None, default=None
            What fits are converted to in what is returned; both or none. None: those of the limit.
        **facts : object
            Other public facts that ``plan`` needs, such as ``n_classes``; also ``n_features``, if
            steps of a pipeline change their number.

        Returns
        -------
        Guarantee
            What all fits cost together: candidates times folds, each with the size of its training
            rows, and the refit, at the cost of the most expensive candidate. It assumes what every
            total does (Notes above).

        Raises
        ------
        PrivacyBudgetExceeded
            If a limit would be passed.
        TypeError, ValueError
            If costs do not add up, or are not known in advance: for other searches and estimators
            without a plan, random candidates without a seed, folds by labels or groups, steps that
            may learn without noise; or if they are counted in another ledger.
        """
        relation, kind = _relation(unit, neighboring), type(search).__name__
        claims = cost_of_search(search, X, y, facts, self._require_here)
        new = [_Fits(self.dataset, kind, False, fit, 1) for fit in claims]
        what = f"a {kind} of {len(claims)} fit{'s'[: len(claims) > 1]}"
        if os.path.exists(self.path):
            with self._transaction() as connection:
                self._refuse_passed(connection, new, what)
                for limit in self._limits_for_me(connection):
                    relation = relation or limit.relation
        return _sum_of(new, relation)

    @property
    def _name(self) -> str:
        """What the parameter `ledger` of an estimator would be."""
        return f"{self.path}::{self.dataset}" if self.dataset else self.path

    def _require_here(self, estimator: Any) -> None:
        """Refuse fits that would be counted elsewhere, or nowhere."""
        path, name = getattr(estimator, "ledger", self._name), type(estimator).__name__
        if path is None or PrivacyLedger(path)._name != self._name:
            raise ValueError(
                f"Got {name} with ledger={path!r}, expected this one: what it costs would not be"
                f" counted here. Set it, {name}(..., ledger={self._name!r})."
            )

    def _limits_for_me(self, connection: sqlite3.Connection) -> list[_Limit]:
        """Limits that a fit of this data set counts for; all, if it has no name."""
        limits = _read_limits(connection)
        return [each for each in limits if not self.dataset or each.dataset in ("", self.dataset)]

    def _own_limits(self, connection: sqlite3.Connection) -> list[_Limit]:
        """Limits on this data set and on everything, in this order."""
        names = (self.dataset, "")
        return [each for each in _read_limits(connection)[::-1] if each.dataset in names]

    def _limited(self, limit: _Limit, fits: list[_Fits]) -> tuple[str, list[list[_Fits]]]:
        """The data set that a limit is on, if it is on one, and its accounts."""
        name = limit.dataset or (self.dataset if limit.disjoint else "")
        return name, _accounts(fits, name, limit.disjoint)

    def _rest(self, limit: _Limit, fits: list[_Fits]) -> str:
        """What is left of a limit, in words."""
        try:
            spent = [_sum_of(each, limit.relation) for each in self._limited(limit, fits)[1]]
            if not all(is_within(each, limit.epsilon, limit.delta) for each in spent):
                return "EXCEEDED"
            left = min(left_of(each, limit.epsilon, limit.delta) for each in spent)
        except (ValueError, ImportError) as error:
            return f"left: unknown. {error}"
        return f"left for one more Gaussian fit: epsilon={privacy.round_down(left)}"

    def _delta(self, delta: float | None, default: float | None = None) -> float:
        """The given delta, or that of the limit."""
        if delta is None:
            with self._transaction() as connection:
                limits = self._own_limits(connection)
            delta = limits[0].delta if limits else default
        if delta is None:
            raise ValueError("Got delta=None and no limit, expected a delta: total(1e-6).")
        return delta

    def _refuse_passed(self, connection: sqlite3.Connection, new: list[_Fits], what: str) -> None:
        """Refuse fits that would pass a limit; name what is left for the tightest account."""
        limits = self._limits_for_me(connection)
        fits = _read_fits(connection) if limits else []
        for limit in limits:
            relation, delta = limit.relation, limit.delta
            name, accounts = self._limited(limit, fits)
            sums = [
                claims
                for account in accounts
                for claims in claims_against(_claims([*account, *new])).values()
            ]
            if all(keeps_limit(each, relation, limit.epsilon, delta) for each in sums):
                continue
            spent = [_sum_of(account, relation) for account in accounts]
            before = max(guarantee.epsilon(delta) for guarantee in spent)
            after = max(total_of(each, relation).epsilon(delta) for each in sums)
            left = min(left_of(guarantee, limit.epsilon, delta) for guarantee in spent)
            rest = f"One more Gaussian fit may have epsilon={privacy.round_down(left)}."
            raise PrivacyBudgetExceeded(
                f"Got {what} that would bring the total{f' for {name!r}' if name else ''} from"
                f" epsilon={round_up(before)} to {round_up(after)}, expected at most"
                f" {round_up(limit.epsilon)} at delta={delta:g}."
                f" {rest if left else 'Nothing is left.'} Nothing was stored and no data was used.",
                *(left, before, limit.epsilon, delta),
            )

    @contextlib.contextmanager
    def _transaction(
        self, kind: str = "DEFERRED", *, make: bool = False
    ) -> Iterator[sqlite3.Connection]:
        connection = None
        try:
            address = f"{Path(self.path).as_uri()}?mode={'rwc' if make else 'rw'}"
            connection = sqlite3.connect(address, _PATIENCE, isolation_level=None, uri=True)
            # The directory is synced as well: what is committed survives a power cut.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute(f"BEGIN {kind}")
            (n_tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            for statement in _SCHEMA.split(";") if make and not n_tables else ():
                connection.execute(statement)
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if (application, version) != (_APPLICATION, _FORMAT):
                raise LedgerError(
                    f"Got {self.path} of format {version}, expected a ledger of format {_FORMAT}:"
                    " begin a new one, and read this one with the skdpadmm that wrote it."
                )
            yield connection
            connection.execute("COMMIT")
        except (sqlite3.Error, UnicodeDecodeError) as error:
            problem = "the directory does not exist or is not writable."
            if connection is not None:
                raise LedgerError(
                    f"Got {self.path}, which failed ({error}), expected a ledger that fits or"
                    " limits made, and that this user may write."
                ) from error
            if not make and os.path.isdir(os.path.dirname(self.path)):
                problem = "there is none. The first fit with ledger=..., or a limit, makes it."
            raise LedgerError(f"Cannot open the ledger {self.path}: {problem}") from error
        finally:
            if connection is not None:
                connection.close()


def _now() -> str:
    """The time of this machine; nothing depends on it, as clocks disagree."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _relation(unit: Any, neighboring: Any) -> Relation | None:
    """What is asked for by name; None for nothing."""
    if unit is None and neighboring is None:
        return None
    names = [str(relation) for relation in Neighboring]
    if unit not in ("record", "agent", "person") or neighboring not in names:
        raise ValueError(
            f"Got unit={unit!r} and neighboring={neighboring!r}, expected 'record', 'agent' or"
            f" 'person' together with one of {names}."
        )
    return Relation(unit, Neighboring(neighboring))


@cache
def _claims_from(text: str) -> Claims:
    """The guarantees of one fit, from JSON; cached, as many fits are equal."""
    try:
        return tuple(
            Claim.of(
                Observer(name, "", unit, how, privacy.guarantee_from_dict(g), who="".join(who))
            )
            for name, unit, how, g, *who in json.loads(text)
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise LedgerError(f"Got an entry that cannot be read ({error}), expected one.") from error


@contextlib.contextmanager
def _damage_is_an_error() -> Iterator[None]:
    """Raise whatever a damaged or edited file leads to as an error of the database."""
    try:
        yield
    except (ArithmeticError, AttributeError, LedgerError, LookupError, TypeError, ValueError) as e:
        raise sqlite3.DatabaseError(f"it is damaged or was edited: {e}") from e


@_damage_is_an_error()
def _claims_by_cost(connection: sqlite3.Connection) -> dict[str, Claims]:
    costs = dict(connection.execute("SELECT cost, observers FROM costs").fetchall())
    for cost, observers in costs.items():
        if hashlib.sha256(observers.encode()).hexdigest() != cost:
            raise ValueError("a cost differs from its SHA-256")
    return {cost: _claims_from(observers) for cost, observers in costs.items()}


@_damage_is_an_error()
def _read_limits(connection: sqlite3.Connection) -> list[_Limit]:
    rows = connection.execute("SELECT * FROM limits ORDER BY dataset")
    limits = [_Limit(*row)._replace(disjoint=bool(row[3])) for row in rows]
    for limit in limits:
        numbers = limit.epsilon, limit.delta, limit.lost_delta, limit.filter_epsilon or 0.0
        if not (all(0 <= x < math.inf for x in numbers) and limit.dataset.isprintable()):
            raise ValueError("a limit is none")
        _ = limit.relation
    return limits


@_damage_is_an_error()
def _read_fits(connection: sqlite3.Connection, last_id: int | None = None) -> list[_Fits]:
    query = "SELECT dataset, subject, simulation, cost FROM entries WHERE id <= ? ORDER BY id"
    until = math.inf if last_id is None else last_id
    if (problem := connection.execute("PRAGMA quick_check(1)").fetchone()) != ("ok",):
        raise ValueError(*problem)
    rows = Counter(connection.execute(query, (until,)))  # faster than GROUP BY
    claims = _claims_by_cost(connection)
    if not all(isinstance(text, str) for name, subject, *_ in rows for text in (name, subject)):
        raise ValueError("a name is none")
    return [
        _Fits(name, subject, bool(simulation), claims[cost], n)
        for (name, subject, simulation, cost), n in rows.items()
    ]


def _described(limit: _Limit) -> str:
    """A limit, and what it is about."""
    about = f" of {limit.dataset}" if limit.dataset else ""
    own = [name for name in ("disjoint", "unit", "neighboring") if getattr(limit, name)]
    of = "".join(f", {name}={getattr(limit, name)}" for name in own)
    return f"{about}{of}: epsilon <= {limit.epsilon:g} at delta={limit.delta:g}"


def _require_key(connection: sqlite3.Connection, key: str) -> None:
    if not connection.execute("SELECT 1 FROM entries WHERE key = ?", (key,)).fetchone():
        raise LedgerError(f"Got key={key!r}, expected one that reserve gave for this file.")


def _accounts(fits: list[_Fits], dataset: str, disjoint: bool) -> list[list[_Fits]]:
    """What counts for one data set, for each of those that are disjoint, or for all."""
    names = [dataset] if dataset else sorted({same.dataset for same in fits} - {""})
    if not dataset and (not disjoint or not names):
        return [fits]
    return [[same for same in fits if same.dataset in ("", name)] for name in names]


def _claims(fits: list[_Fits]) -> Counter[Claims]:
    """Return the claims of all fits, and how often each occurs."""
    claims: Counter[Claims] = Counter()
    for same in fits:
        claims[same.claims] += same.number
    return claims


def _sums_against(fits: list[_Fits], observer: str = "adversary") -> dict[str, Counter[Claim]]:
    """Return the claims of fits against an observer, or against each adversary."""
    known = dict.fromkeys(["adversary", *(c.observer for same in fits for c in same.claims)])
    if fits and observer not in known:
        raise LedgerError(
            f"Got observer={observer!r}, expected one of {list(known)}, whom a fit names."
        )
    return claims_against(_claims(fits), None if observer == "adversary" else observer)


def _sum_of(fits: list[_Fits], relation: Relation | None, observer: str = "adversary") -> Guarantee:
    """Return the composition against an observer, or the weakest against all adversaries."""
    totals = [total_of(claims, relation) for claims in _sums_against(fits, observer).values()]
    return worst(*totals) if totals else privacy.GaussianDP(0.0)


def _cell(entry: dict[str, Any], column: str) -> str:
    value = entry[column]
    text = round_up(value) if isinstance(value, float) else str(value)
    return f"{text} (simulation)" if column == "state" and entry["simulation"] else text
