"""The account book of a study."""

from __future__ import annotations

import json
import math
import os
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from skdpadmm.ledger._account import is_within, left_of, total_of
from skdpadmm.ledger._database import Database, Row
from skdpadmm.ledger._entry import (
    ADVERSARY,
    VERSION,
    Claim,
    LedgerEntry,
    Promise,
    Relation,
    now,
    read_promise,
    read_record,
)
from skdpadmm.ledger._errors import LedgerError, PrivacyBudgetExceeded
from skdpadmm.ledger._search import cost_of_search
from skdpadmm.privacy import Guarantee, Neighboring, round_down, round_up, worst

_LONGEST_NAME = 100


class _Limit(NamedTuple):
    """A limit on what a data set, or everything, may cost; an empty name means everything."""

    dataset: str
    epsilon: float
    delta: float
    disjoint: bool
    relation: Relation | None


class _Counted(NamedTuple):
    """What is counted of one fit."""

    dataset: str
    subject: str
    promise: Promise


class PrivacyLedger:
    """What a study has cost so far, and what it may cost: one SQLite file.

    A fit reserves its planned cost before it touches data, in one transaction, and marks it done
    afterwards. What was reserved counts, done or not, so a crash leaves it counted. Any number of
    processes and threads of one machine may write at the same time.

    Parameters
    ----------
    path : str or path-like
        Of the file, ``"study.db"``, or of the file and a data set, ``"study.db::adult"``. Relative
        to the directory at this moment. Data sets of different names are told apart, those without
        a name overlap with all: a record counts for its data set and for all that has no name.
    allow_network : bool, default=False
        Locks of network file systems may not hold, so a ledger there is refused. True says that
        they do: it is written into the ledger at once, and from then on every path to it works.

    Attributes
    ----------
    path : str
        Absolute.
    dataset : str
        Name of the data set, or an empty text.

    Notes
    -----
    **The file.** The first fit, or the first limit, makes it. A process that has used a ledger
    refuses to go on if it is gone, or if another one, or an older copy, is at its path; a new
    process cannot know and begins anew, so keep a copy of what matters. Nothing in it is ever
    deleted or changed, and damage is noticed. It holds guarantees and circumstances as JSON with a
    version, and nothing of the data. What this version does not know in full, it refuses. Entries
    are ordered by the file; times are for information, as clocks of machines disagree. A network
    file system is recognised on Linux, and a share by its path on Windows.

    **What is summed.** For each fit the guarantee against its own adversary, the observer that its
    budget was spent against, or against an observer by name, if all fits know it. Gaussian
    guarantees compose exactly, others by privacy loss distributions, see :func:`compose_all`. Unit
    and neighbouring relation have to agree; ``unit`` and ``neighboring`` ask for a conversion:

    - zero out to replace one doubles the mu of a Gaussian guarantee: both data sets become the same
      one when the unit that differs is zeroed, and two steps of GDP(mu) are GDP(2 mu);
    - a replace-one guarantee of agents holds for their records: who replaces one record replaces
      the data of one agent.

    Anything else is an error.

    **Data sets.** With ``disjoint=True`` you say that no unit is in two data sets of different
    names. Then nobody is in more than one, and the worst of their accounts, each with all that has
    no name, is a bound for all. Otherwise everything is composed.

    **Simulations.** A fit with a seed has noise that can be drawn again, and two of them with equal
    seeds may share it: then differences of results hold no noise at all, and no sum of guarantees
    says anything. They are stored, count in limits as though their noise were real, and make sums
    refuse unless ``include_simulated=True``, which gives what the same fits would cost with
    ``random_state=None``.

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
    >>> f"{ledger.total(1e-6):.3f}"
    '1.292'
    >>> ledger.reserve(LedgerEntry("Ridge", "1" * 64, 1e-6, (world,))) != key
    True
    >>> ledger.guarantee().describe()
    'GDP(mu=0.4243)'
    >>> directory.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], *, allow_network: bool = False) -> None:
        file, self.dataset = _parsed(path)
        self._database = Database(file, allow_network=bool(allow_network))
        if allow_network:
            with self._database.transaction(write=True) as connection:
                connection.execute("INSERT OR IGNORE INTO meta VALUES ('network', 'allowed')")

    @property
    def path(self) -> str:
        """Absolute path of the file."""
        return self._database.path

    def reserve(self, entry: LedgerEntry) -> str:
        """Count a fit, if no limit is passed, before it touches data.

        Parameters
        ----------
        entry : LedgerEntry

        Returns
        -------
        str
            A key for :meth:`finish`.

        Raises
        ------
        PrivacyBudgetExceeded
            If a limit would be passed. Nothing is stored.
        LedgerError
            If the file cannot be used, or if a limit cannot be checked. Nothing is stored.
        """
        if not isinstance(entry, LedgerEntry):
            raise TypeError(f"Got {entry!r}, expected a LedgerEntry.")
        text, record = entry.promise(), entry.record()
        new = _Counted(self.dataset, entry.subject, read_promise(text))
        # The account of one snapshot: what is refused is explained after the lock is gone.
        with self._database.transaction(write=True) as connection:
            limits = self._applicable(_read_limits(connection))
            # Damage is noticed in any case, a limit or not.
            rows = self._database.rows(connection)
            counted = _counted(rows) if limits else []
            passed = _first_passed(limits, counted, [new])
            if passed is None:
                return self._database.add(connection, self.dataset, text, record)
        raise _exceeded(passed, counted, [new], f"a fit of {entry.subject}")

    def finish(self, key: str) -> None:
        """Mark a fit as done; to do it twice changes nothing.

        Parameters
        ----------
        key : str
            From :meth:`reserve`.

        Raises
        ------
        LedgerError
            If the ledger does not know the fit.
        """
        with self._database.transaction(write=True) as connection:
            if not self._database.finish(connection, key, now()):
                raise LedgerError(
                    f"Got key={key!r}, expected one that reserve gave for {self.path}. If the file"
                    " was replaced, put the old one back: it knows what was spent."
                )

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
        about everything. It counts what every fit says against its own adversary.

        Parameters
        ----------
        epsilon : float
            In [0, inf).
        delta : float
            In [0, 1).
        disjoint : bool, default=False
            Whether data sets of different names have no unit in common.
        unit : {"record", "agent"} or None, default=None
        neighboring : {"replace_one", "zero_out"} or None, default=None
            What fits are converted to where they differ; both or none.

        Raises
        ------
        ValueError
            If something is out of range.
        LedgerError
            If what is stored cannot be summed under these terms.
        """
        if not 0 <= epsilon < math.inf:
            raise ValueError(f"Got epsilon={epsilon!r}, expected a float in [0, inf).")
        if not 0 <= delta < 1:
            raise ValueError(f"Got delta={delta!r}, expected a float in [0, 1).")
        new = _Limit(
            self.dataset, float(epsilon), float(delta), bool(disjoint), _relation(unit, neighboring)
        )
        with self._database.transaction(write=True) as connection:
            counted = _counted(self._database.rows(connection))
            for account in _accounts(counted, new.dataset, new.disjoint):
                _sum(account, ADVERSARY, new.relation)
            connection.execute(
                "INSERT OR REPLACE INTO limits VALUES (?, ?)", (new.dataset, _terms(new))
            )

    def limits(self) -> list[dict[str, Any]]:
        """Return all limits as dictionaries; the data set of one about everything is empty."""
        with self._database.transaction(write=False) as connection:
            limits = _read_limits(connection)
        return [
            {
                "dataset": limit.dataset,
                "epsilon": limit.epsilon,
                "delta": limit.delta,
                "disjoint": limit.disjoint,
                "unit": limit.relation.unit if limit.relation else None,
                "neighboring": str(limit.relation.neighboring) if limit.relation else None,
            }
            for limit in limits
        ]

    def guarantee(
        self,
        dataset: str | None = None,
        *,
        observer: str = ADVERSARY,
        include_simulated: bool = False,
        disjoint: bool = False,
        unit: str | None = None,
        neighboring: str | None = None,
    ) -> Guarantee:
        """Return what holds for all fits together.

        Parameters
        ----------
        dataset : str or None, default=None
            Name of a data set: its fits and those without a name. None: that of the path, or all
            fits if it has none.
        observer : str, default="adversary"
            Against whom. "adversary" takes for each fit the observer that its budget was spent
            against: whoever is all of these at once.
        include_simulated : bool, default=False
            Whether fits with a seed count as though their noise were real. False: they are an
            error.
        disjoint : bool, default=False
            Whether data sets of different names have no unit in common.
        unit : {"record", "agent"} or None, default=None
        neighboring : {"replace_one", "zero_out"} or None, default=None
            What fits are converted to where they differ; both or none.

        Returns
        -------
        Guarantee

        Raises
        ------
        LedgerError
            If there is no ledger, or if what it holds cannot be summed.
        ValueError
            If nothing is known of the data set.
        """
        relation = _relation(unit, neighboring)
        sums = [
            _sum(account, observer, relation)
            for account in self._wanted(dataset, include_simulated, disjoint)
        ]
        return sums[0] if len(sums) == 1 else worst(*sums)

    def total(
        self,
        delta: float,
        dataset: str | None = None,
        *,
        observer: str = ADVERSARY,
        include_simulated: bool = False,
        disjoint: bool = False,
        unit: str | None = None,
        neighboring: str | None = None,
    ) -> float:
        """Return epsilon at ``delta`` of all fits together; see :meth:`guarantee`.

        Parameters
        ----------
        delta : float
            In [0, 1].
        dataset : str or None, default=None
        observer : str, default="adversary"
        include_simulated : bool, default=False
        disjoint : bool, default=False
        unit : {"record", "agent"} or None, default=None
        neighboring : {"replace_one", "zero_out"} or None, default=None

        Returns
        -------
        float
            0.0 for no fits.
        """
        return self.guarantee(
            dataset,
            observer=observer,
            include_simulated=include_simulated,
            disjoint=disjoint,
            unit=unit,
            neighboring=neighboring,
        ).epsilon(delta)

    def epsilon_by_estimator(
        self,
        delta: float,
        dataset: str | None = None,
        *,
        observer: str = ADVERSARY,
        include_simulated: bool = False,
        unit: str | None = None,
        neighboring: str | None = None,
    ) -> dict[str, float]:
        """Return what the fits of each class of estimators cost together.

        Parameters
        ----------
        delta : float
            In [0, 1].
        dataset, observer, include_simulated, unit, neighboring
            As in :meth:`guarantee`.

        Returns
        -------
        dict of str to float
            In the order of first fits. They are at their own ``delta`` each, so they do not add up
            to the total.
        """
        ((*counted,),) = self._wanted(dataset, include_simulated, disjoint=False)
        groups: defaultdict[str, list[_Counted]] = defaultdict(list)
        for fit in counted:
            groups[fit.subject].append(fit)
        relation = _relation(unit, neighboring)
        return {
            subject: _sum(fits, observer, relation).epsilon(delta)
            for subject, fits in groups.items()
        }

    def entries(self) -> list[dict[str, Any]]:
        """Return all fits of the ledger as dictionaries, in the order of their reservation.

        Returns
        -------
        list of dict
            With the keys "id", "dataset", "subject", "state" ("reserved" or "done"), "observer",
            "unit", "neighboring", "guarantee", "epsilon" and "delta" (those of the fit's own
            budget, against its adversary), "simulation", "digest", "host", "pid", "reserved" and
            "finished" (times, of the clock of the machine).
        """
        with self._database.transaction(write=False) as connection:
            rows = self._database.rows(connection)
        promises = {text: read_promise(text) for text in {row.promise for row in rows}}
        known: dict[tuple[str, float], float] = {}
        listed = []
        for row in rows:
            record, promise = read_record(row.record), promises[row.promise]
            claim, delta = promise.claims[0], record["delta"]
            if (row.promise, delta) not in known:
                known[row.promise, delta] = claim.guarantee.epsilon(delta)
            listed.append(
                {
                    "id": row.id,
                    "dataset": row.dataset,
                    "subject": record["subject"],
                    "state": "reserved" if row.finished is None else "done",
                    "observer": claim.observer,
                    "unit": claim.relation.unit,
                    "neighboring": str(claim.relation.neighboring),
                    "guarantee": claim.guarantee.describe(),
                    "epsilon": known[row.promise, delta],
                    "delta": delta,
                    "simulation": promise.simulation,
                    "digest": record["digest"],
                    "host": record["host"],
                    "pid": record["pid"],
                    "reserved": record["time"],
                    "finished": row.finished,
                }
            )
        return listed

    def to_frame(self) -> Any:
        """Return :meth:`entries` as a pandas.DataFrame."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                "A frame needs pandas: pip install pandas. entries() gives the same as a list."
            ) from error
        return pandas.DataFrame(self.entries())

    def check(
        self, search: Any, X: Any, y: Any = None, groups: Any = None, **facts: Any
    ) -> Guarantee:
        """Refuse a search that the limits cannot pay for, before its first fit.

        scikit-learn would turn each refusal into a score of NaN and go on spending. All fits are
        planned, none is reserved: whoever else spends in the meantime is not seen.

        Parameters
        ----------
        search : GridSearchCV, RandomizedSearchCV, private search or estimator
            Not fitted yet. The estimator of a search of scikit-learn, or the last step of its
            pipeline, has a method ``plan``. So has what is fitted once: an estimator, and a private
            search, whose plan is that of all its trials. One with candidates drawn without a seed
            is planned for other draws than it will try, under the same budget.
        X : array-like of shape (n_samples, n_features)
            Its shape is used, and by splitters what they need to tell the sizes of folds.
        y : array-like of shape (n_samples,), default=None
            For splitters that need it, and for the number of classes where none are declared.
        groups : array-like of shape (n_samples,), default=None
            For splitters that need it.
        **facts : object
            Other public facts that ``plan`` needs, such as ``n_classes``; also ``n_features``, if
            steps of a pipeline change their number.

        Returns
        -------
        Guarantee
            What all fits cost together: candidates times folds, each with the size of its training
            rows, and the refit, at the cost of the most expensive candidate; or that of one plan.

        Raises
        ------
        PrivacyBudgetExceeded
            If a limit would be passed.
        TypeError
            If it is another kind of search, or the estimator cannot plan.
        ValueError
            If its candidates or folds are not fixed in advance, or its fits would go elsewhere.
        """
        claims = cost_of_search(search, X, y, groups, facts, self._is_here)
        new = [
            _Counted(self.dataset, type(search).__name__, promise)
            for promise, count in [(Promise((claim,), False), count) for claim, count in claims]
            for _ in range(count)
        ]
        if self._database.exists():
            with self._database.transaction(write=False) as connection:
                limits = self._applicable(_read_limits(connection))
                counted = _counted(self._database.rows(connection)) if limits else []
            passed = _first_passed(limits, counted, new)
            if passed is not None:
                what = f"a {type(search).__name__} of {len(new)} fit{'s'[: len(new) > 1]}"
                raise _exceeded(passed, counted, new, what)
        return _sum(new, ADVERSARY, None)

    def __repr__(self) -> str:
        name = f"::{self.dataset}" if self.dataset else ""
        return f"PrivacyLedger({self.path + name!r})"

    def _is_here(self, path: Any) -> bool:
        """Whether an estimator's ledger is this one, its data set included."""
        file, dataset = _parsed(path)
        return (os.path.realpath(file), dataset) == (self.path, self.dataset)

    def _applicable(self, limits: list[_Limit]) -> list[_Limit]:
        """Limits that a fit of this data set counts for; one without a name counts for all."""
        if not self.dataset:
            return limits
        return [limit for limit in limits if limit.dataset in ("", self.dataset)]

    def _wanted(
        self, dataset: str | None, include_simulated: bool, disjoint: bool
    ) -> list[list[_Counted]]:
        """The accounts that a question is about."""
        with self._database.transaction(write=False) as connection:
            rows = self._database.rows(connection)
            limits = _read_limits(connection)
        if dataset is not None:
            names = {row.dataset for row in rows} | {limit.dataset for limit in limits}
            known = sorted((names | {self.dataset}) - {""})
            if _named(dataset) not in known:
                raise ValueError(f"Got dataset={dataset!r}, expected one of {known}.")
            dataset = _named(dataset)
        else:
            dataset = self.dataset
        accounts = _accounts(_counted(rows), dataset, disjoint)
        n_simulated = sum(fit.promise.simulation for account in accounts for fit in account)
        if n_simulated and not include_simulated:
            raise LedgerError(
                "Got a ledger with simulations, fits with a seed, expected none: fits with equal"
                " seeds may share their noise, and then no sum of guarantees holds. With"
                " include_simulated=True you get what they would cost with random_state=None."
            )
        return accounts


def _parsed(path: Any) -> tuple[str, str]:
    """The file and the name of the data set."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"Got path={path!r}, expected a str or a path-like object of str.")
    file, separator, name = text.rpartition("::")
    if not separator:
        file, name = text, ""
    elif not name:
        raise ValueError(f"Got path={text!r}, expected a name of a data set after '::'.")
    if not file or file.endswith((os.sep, "/")) or "\0" in file or file == ":memory:":
        raise ValueError(
            f"Got path={text!r}, expected the path of a file, such as 'study.db' or"
            " 'study.db::adult'. It has to outlive this process."
        )
    return file, _named(name) if name else ""


def _named(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"Got a data set's name {name!r}, expected a str.")
    # One name in two spellings would be two data sets.
    name = unicodedata.normalize("NFC", name)
    if not 0 < len(name) <= _LONGEST_NAME or name != name.strip() or not name.isprintable():
        raise ValueError(
            f"Got a data set's name {name!r}, expected 1 to {_LONGEST_NAME} printable characters"
            " without spaces around them."
        )
    return name


def _relation(unit: Any, neighboring: Any) -> Relation | None:
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


def _counted(rows: Iterable[Row]) -> list[_Counted]:
    rows = list(rows)
    promises = {text: read_promise(text) for text in {row.promise for row in rows}}
    return [
        _Counted(row.dataset, read_record(row.record)["subject"], promises[row.promise])
        for row in rows
    ]


def _accounts(counted: list[_Counted], dataset: str, disjoint: bool) -> list[list[_Counted]]:
    """What counts for one data set, for each of those that are disjoint, or for all together."""
    names = sorted({fit.dataset for fit in counted} - {""})
    if dataset:
        names = [dataset]
    elif not disjoint or not names:
        return [counted]
    return [[fit for fit in counted if fit.dataset in ("", name)] for name in names]


def _sum(fits: Iterable[_Counted], observer: str, relation: Relation | None) -> Guarantee:
    claims: Counter[Claim] = Counter()
    # By identity first: a promise is shared by all fits that made it, and long ones hash slowly.
    fits = list(fits)
    promises = Counter(id(fit.promise) for fit in fits)
    known = {id(fit.promise): fit.promise for fit in fits}
    for key, count in promises.items():
        claims[known[key].against(observer)] += count
    return total_of(claims.items(), relation)


def _first_passed(
    limits: list[_Limit], counted: list[_Counted], new: list[_Counted]
) -> _Limit | None:
    """The first limit that more fits would pass."""
    for limit in limits:
        for _, after in _before_and_after(limit, counted, new):
            if not is_within(after, limit.epsilon, limit.delta):
                return limit
    return None


def _before_and_after(
    limit: _Limit, counted: list[_Counted], new: list[_Counted]
) -> Iterator[tuple[list[_Counted], Guarantee]]:
    """The accounts that new fits count for: what was there before, and the sum with them."""
    ours = {id(fit) for fit in new}
    for account in _accounts([*counted, *new], limit.dataset, limit.disjoint):
        before = [fit for fit in account if id(fit) not in ours]
        if len(before) < len(account):
            yield before, _sum(account, ADVERSARY, limit.relation)


def _exceeded(
    limit: _Limit, counted: list[_Counted], new: list[_Counted], what: str
) -> PrivacyBudgetExceeded:
    """Say what is left, for the tightest account that the new fits would count for."""
    accounts = list(_before_and_after(limit, counted, new))
    spent = [_sum(before, ADVERSARY, limit.relation) for before, _ in accounts]
    epsilon_after = max(after.epsilon(limit.delta) for _, after in accounts)
    epsilon_spent = max(guarantee.epsilon(limit.delta) for guarantee in spent)
    left = min(left_of(guarantee, limit.epsilon, limit.delta) for guarantee in spent)
    scope = f" for {limit.dataset!r}" if limit.dataset else ""
    return PrivacyBudgetExceeded(
        f"Got {what} that would bring the total{scope} from epsilon={round_up(epsilon_spent)} to"
        f" {round_up(epsilon_after)}, expected at most {round_up(limit.epsilon)} at"
        f" delta={limit.delta:g}. There is room for one more Gaussian release of"
        f" epsilon={round_down(left)} at this delta. Nothing was stored and no data was used.",
        epsilon_left=left,
        epsilon_spent=epsilon_spent,
        epsilon=limit.epsilon,
        delta=limit.delta,
    )


def _terms(limit: _Limit) -> str:
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


def _read_limits(connection: Any) -> list[_Limit]:
    limits = []
    for dataset, text in connection.execute("SELECT dataset, terms FROM limits ORDER BY dataset"):
        try:
            terms = json.loads(text)
            if terms.pop("version") != VERSION:
                raise ValueError("another version")
            relation = _relation(terms.pop("unit"), terms.pop("neighboring"))
            limit = _Limit(dataset=dataset, relation=relation, **terms)
            if not (0 <= limit.epsilon < math.inf and 0 <= limit.delta < 1):
                raise ValueError("out of range")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LedgerError(
                f"Got a limit that cannot be read ({error}), expected one of version {VERSION}. If"
                " a newer skdpadmm wrote it: update."
            ) from error
        limits.append(limit)
    return limits
