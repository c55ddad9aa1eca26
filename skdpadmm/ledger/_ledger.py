"""The account book of a study."""

from __future__ import annotations

import math
import os
import sqlite3
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeVar

from skdpadmm.ledger._account import is_within
from skdpadmm.ledger._counted import Counted, accounts_of, read_counted, sum_of
from skdpadmm.ledger._database import Database, Mark
from skdpadmm.ledger._entry import (
    ADVERSARY,
    LedgerEntry,
    Promise,
    now,
    read_promise,
    read_record,
)
from skdpadmm.ledger._errors import LedgerError
from skdpadmm.ledger._limits import (
    Limit,
    exceeded,
    first_passed,
    read_limits,
    relation_of,
    terms_of,
)
from skdpadmm.ledger._paths import absolute_path, dataset_name, folded_name, parsed_path
from skdpadmm.ledger._search import cost_of_search
from skdpadmm.privacy import Guarantee, round_up, worst

# How often a sum is computed without the lock, before others have to wait for it.
_TRIES = 3
_T = TypeVar("_T")


class _Seen(NamedTuple):
    """A ledger at one moment."""

    mark: Mark
    counted: tuple[Counted, ...]
    limits: list[Limit]


class PrivacyLedger:
    """What a study has cost so far, and what it may cost: one SQLite file.

    A fit reserves its planned cost before it touches data, in one transaction, and marks it done
    afterwards. What was reserved counts, done or not, so a crash leaves it counted. Any number of
    processes and threads of one machine may write at the same time.

    Parameters
    ----------
    path : str or path-like
        Of the file, ``"study.db"``, or of the file and a data set, ``"study.db::adult"``. Relative
        to the directory at this moment; in a worker process that has to be the one of the process
        that started it, which is known on Linux alone. Data sets of different names are told apart,
        those without a name overlap with all: a record counts for its data set and for all that has
        no name. A name has one spelling in a ledger, the first.
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
    refuses to go on if it is gone, or if another one, an older copy, or a copy that went another
    way, is at its path, or where its path now leads; a new process cannot know and begins anew, so
    keep a copy of what matters. Nothing in it is ever
    deleted or changed, and damage is noticed: every question reads and verifies all fits, and so
    does a process that meets the ledger. From then on a reservation reads and verifies what was
    added, and counts the others as they were read; it reads all of them again where the triggers
    that guard them were touched, or where the last one that it knows is another one now. The file
    holds guarantees and circumstances as JSON with a version, and nothing of the data. What this
    version does not know in full, it refuses. Entries are ordered by the file; times are for
    information, as clocks of machines disagree. A network file system is recognised on Linux, and a
    share by its path on Windows.

    **What is summed.** For each fit the guarantee against its own adversary, the observer that its
    budget was spent against, or against an observer by name, if all fits know it. Gaussian
    guarantees compose exactly, others by privacy loss distributions, see :func:`compose_all`. Unit
    and neighbouring relation have to agree; ``unit`` and ``neighboring`` ask for a conversion:

    - zero out to replace one doubles the mu of a Gaussian guarantee: both data sets become the same
      one when the unit that differs is zeroed, and two steps of GDP(mu) are GDP(2 mu);
    - a replace-one guarantee of agents holds for their records: who replaces one record replaces
      the data of one agent.

    Anything else is an error.

    A sum is about data sets that differ in one record, or one agent, and so about fits that do.
    Where one record decides which others a fit gets, more of them differ, and no fit knows. So it
    is with folds by labels, which scikit-learn makes for a classifier unless `cv` is a splitter
    such as KFold.

    **Data sets.** With ``disjoint=True`` you say that no unit is in two data sets of different
    names. Then nobody is in more than one, and the worst of their accounts, each with all that has
    no name, is a bound for all. Otherwise everything is composed.

    **Streams.** Records that arrive one after the other cost what one plan says, each once, so they
    are one entry. The ledger keeps at which positions pieces of a stream began: of two copies that
    go on from the same one the second is counted anew. Whether a record comes twice in one stream
    is for the caller to know.

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
        file, self.dataset = parsed_path(path)
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
            If the file cannot be used, if a limit cannot be checked, or if the name of the data set
            is known in another spelling. Nothing is stored.
        """
        if not isinstance(entry, LedgerEntry):
            raise TypeError(f"Got {entry!r}, expected a LedgerEntry.")
        text, record = entry.promise(), entry.record()
        new = Counted(self.dataset, entry.subject, read_promise(text))

        def refusal(seen: _Seen) -> Callable[[], Exception] | None:
            self._refuse_other_spelling(seen)
            passed = first_passed(self._applicable(seen.limits), seen.counted, [new])
            if passed is None:
                return None
            return lambda: exceeded(passed, seen.counted, [new], f"a fit of {entry.subject}")

        return self._write(
            refusal,
            lambda connection: self._database.add(connection, self.dataset, text, record),
            anew=False,
        )

    @contextmanager
    def counting(self, entry: LedgerEntry) -> Iterator[str]:
        """Count a fit around its work: reserved before it, done after it.

        Work that fails stays reserved, and counts.

        Parameters
        ----------
        entry : LedgerEntry

        Yields
        ------
        str
            The key of :meth:`reserve`, which says what is raised.

        Examples
        --------
        >>> import os, tempfile
        >>> from skdpadmm.ledger import LedgerEntry, PrivacyLedger
        >>> from skdpadmm.privacy import GaussianDP, Observer
        >>> world = Observer("model", "the model", "record", "replace_one", GaussianDP(0.3))
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     ledger = PrivacyLedger(os.path.join(directory, "study.db"))
        ...     with ledger.counting(LedgerEntry("Lasso", "0" * 64, 1e-6, (world,))):
        ...         states = [fit["state"] for fit in ledger.entries()]
        ...     states + [fit["state"] for fit in ledger.entries()]
        ['reserved', 'done']
        """
        key = self.reserve(entry)
        yield key
        # Not where it failed: whether it has touched data is then not known.
        self.finish(key)

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
        with self._database.transaction(write=True, make=False) as connection:
            if not self._database.finish(connection, key, now()):
                raise self._unknown(key)

    def advance(self, key: str, first: int) -> bool:
        """Take the next piece of a stream of records, before it touches data.

        A stream is reserved once, whatever its pieces: each record is in one of them. A copy that
        goes on by itself would use the same records again, and comes to a position that was taken.

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

        Raises
        ------
        LedgerError
            If the ledger does not know the stream.

        Examples
        --------
        >>> import os, tempfile
        >>> from skdpadmm.ledger import LedgerEntry, PrivacyLedger
        >>> from skdpadmm.privacy import GaussianDP, Observer
        >>> world = Observer("model", "the model", "record", "replace_one", GaussianDP(0.3))
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     ledger = PrivacyLedger(os.path.join(directory, "study.db"))
        ...     key = ledger.reserve(LedgerEntry("Lasso", "0" * 64, 1e-6, (world,)))
        ...     [ledger.advance(key, first) for first in (0, 100, 200, 100)]
        [True, True, True, False]
        """
        if not isinstance(first, Integral) or isinstance(first, bool):
            raise TypeError(
                f"Got first={first!r}, expected an int >= 0. Give how many records came before."
            )
        if first < 0:
            raise ValueError(f"Got first={first!r}, expected an int >= 0.")
        with self._database.transaction(write=True, make=False) as connection:
            is_free = self._database.advance(connection, key, int(first))
            if is_free is None:
                raise self._unknown(key)
        return is_free

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
            If what is stored cannot be summed under these terms, or if the name of the data set is
            known in another spelling.
        """
        _require_number("epsilon", epsilon, "[0, inf)", "limit(2.0, 1e-6)")
        _require_number("delta", delta, "[0, 1)", "limit(2.0, 1e-6)")
        if not 0 <= epsilon < math.inf:
            raise ValueError(f"Got epsilon={epsilon!r}, expected a float in [0, inf).")
        if not 0 <= delta < 1:
            raise ValueError(f"Got delta={delta!r}, expected a float in [0, 1).")
        relation = relation_of(unit, neighboring)
        new = Limit(self.dataset, float(epsilon), float(delta), bool(disjoint), relation)

        spent: list[Guarantee] = []

        def refusal(seen: _Seen) -> None:
            self._refuse_other_spelling(seen)
            accounts = accounts_of(seen.counted, new.dataset, new.disjoint)
            spent[:] = [sum_of(account, ADVERSARY, new.relation) for account in accounts]

        self._write(
            refusal,
            lambda connection: self._database.add_limit(connection, new.dataset, terms_of(new)),
            anew=True,
        )
        if not all(is_within(total, new.epsilon, new.delta) for total in spent):
            total = round_up(max(total.epsilon(new.delta) for total in spent))
            warnings.warn(
                f"Got a limit of epsilon={new.epsilon:g} at delta={new.delta:g}, expected one above"
                f" what was spent already, epsilon={total}: it is stored, and every fit that counts"
                " for it is refused from now on.",
                UserWarning,
                stacklevel=2,
            )

    def limits(self) -> list[dict[str, Any]]:
        """Return all limits as dictionaries; the data set of one about everything is empty."""
        with self._database.transaction(write=False) as connection:
            limits = read_limits(self._database.limits(connection))
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

        Warns
        -----
        UserWarning
            If the path names a data set of which nothing is known, in a ledger that knows others.
        """
        relation = relation_of(unit, neighboring)
        sums = [
            sum_of(account, observer, relation)
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
        _require_delta(delta)
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
        _require_delta(delta)
        ((*counted,),) = self._wanted(dataset, include_simulated, disjoint=False)
        groups: defaultdict[str, list[Counted]] = defaultdict(list)
        for fit in counted:
            groups[fit.subject].append(fit)
        relation = relation_of(unit, neighboring)
        return {
            subject: sum_of(fits, observer, relation).epsilon(delta)
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
        self,
        search: Any,
        X: Any,
        y: Any = None,
        groups: Any = None,
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
        unit : {"record", "agent"} or None, default=None
        neighboring : {"replace_one", "zero_out"} or None, default=None
            What fits are converted to in what is returned; both or none. None: what the limit says
            that they count for, that of this data set first.
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
        LedgerError
            If fits are about several kinds of neighbours, and neither a limit nor the call says
            what to convert them to, or nothing converts them. If the name of the data set is known
            in another spelling.
        TypeError
            If it is another kind of search, if the estimator cannot plan, or if another step of
            its pipeline has a budget, too.
        ValueError
            If its candidates or folds are not fixed in advance, or its fits would go elsewhere. If
            labels decide on folds, as with an int for `cv` and a classifier: then one record moves
            others, and a fit costs more than it says.
        """
        relation = relation_of(unit, neighboring)
        claims = cost_of_search(search, X, y, groups, facts, self._is_here, self._name)
        new = [
            Counted(self.dataset, type(search).__name__, promise)
            for promise, count in [(Promise((claim,), False), count) for claim, count in claims]
            for _ in range(count)
        ]
        limits: list[Limit] = []
        if self._database.exists():
            with self._database.transaction(write=False) as connection:
                seen = self._seen(connection, anew=True)
            self._refuse_other_spelling(seen)
            limits = self._applicable(seen.limits)
            passed = first_passed(limits, seen.counted, new)
            if passed is not None:
                what = f"a {type(search).__name__} of {len(new)} fit{'s'[: len(new) > 1]}"
                raise exceeded(passed, seen.counted, new, what)
        if relation is None:
            own_first = sorted(limits, key=lambda limit: limit.dataset != self.dataset)
            told = [limit.relation for limit in own_first if limit.relation]
            relation = told[0] if told else None
        return sum_of(new, ADVERSARY, relation)

    def __repr__(self) -> str:
        name = f"::{self.dataset}" if self.dataset else ""
        return f"PrivacyLedger({self.path + name!r})"

    @property
    def _name(self) -> str:
        """What the parameter `ledger` of an estimator would be."""
        return f"{self.path}::{self.dataset}" if self.dataset else self.path

    def _is_here(self, path: Any) -> bool:
        """Whether an estimator's ledger is this one, its data set included."""
        file, dataset = parsed_path(path)
        return (os.path.realpath(absolute_path(file)), dataset) == (self.path, self.dataset)

    def _seen(self, connection: sqlite3.Connection, *, anew: bool) -> _Seen:
        limits = read_limits(self._database.limits(connection))
        counted = read_counted(self._database, connection, anew=anew)
        return _Seen(self._database.mark(connection), counted, limits)

    def _refuse_other_spelling(self, seen: _Seen) -> None:
        """Refuse a name that a reader takes for another one: its account would be another, too."""
        names = {fit.dataset for fit in seen.counted} | {limit.dataset for limit in seen.limits}
        for name in sorted(names - {self.dataset}):
            if folded_name(name) == folded_name(self.dataset):
                raise LedgerError(
                    f"Got a data set's name {self.dataset!r}, expected {name!r}, as it is spelled"
                    f" in {self.path}: they would be two data sets. Use that spelling, or a name"
                    " that differs by more than the case or the width of letters."
                )

    def _warn_of_unknown_name(self, seen: _Seen) -> None:
        """A name with a slip of the pen has an account of its own, and it is empty."""
        names = {fit.dataset for fit in seen.counted} | {limit.dataset for limit in seen.limits}
        known = sorted(names - {""})
        if known and self.dataset and self.dataset not in known:
            warnings.warn(
                f"Got a data set's name {self.dataset!r}, expected one of {known}, which fits or"
                f" limits of {self.path} have: only fits without a name count for it so far. Check"
                " its spelling.",
                UserWarning,
                stacklevel=4,
            )

    def _unknown(self, key: str) -> LedgerError:
        return LedgerError(
            f"Got key={key!r}, expected one that reserve gave for {self.path}. If the file was"
            " replaced, put the old one back: it knows what was spent."
        )

    def _write(
        self,
        refusal: Callable[[_Seen], Callable[[], Exception] | None],
        write: Callable[[sqlite3.Connection], _T],
        *,
        anew: bool,
    ) -> _T:
        """Write, unless there is a reason not to; it is looked for without the lock.

        Sums take a while, and others would wait. So ``refusal`` looks at a snapshot, and if the
        ledger is the same once the lock is held, what it said holds. If others were faster it looks
        again, at last with the lock.
        """
        for _ in range(_TRIES if self._database.exists() else 0):
            with self._database.transaction(write=False) as connection:
                seen = self._seen(connection, anew=anew)
            if (reason := refusal(seen)) is not None:
                raise reason()
            with self._database.transaction(write=True) as connection:
                # Sequences only grow, and nothing in them changes.
                if seen.mark.says_the_same_of_costs(self._database.mark(connection)):
                    return write(connection)
        with self._database.transaction(write=True) as connection:
            if (reason := refusal(self._seen(connection, anew=anew))) is None:
                return write(connection)
        # The account of one snapshot: what is refused is explained after the lock is gone.
        raise reason()

    def _applicable(self, limits: list[Limit]) -> list[Limit]:
        """Limits that a fit of this data set counts for; one without a name counts for all."""
        if not self.dataset:
            return limits
        return [limit for limit in limits if limit.dataset in ("", self.dataset)]

    def _wanted(
        self, dataset: str | None, include_simulated: bool, disjoint: bool
    ) -> list[list[Counted]]:
        """The accounts that a question is about."""
        with self._database.transaction(write=False) as connection:
            seen = self._seen(connection, anew=True)
        self._refuse_other_spelling(seen)
        if dataset is not None:
            names = {fit.dataset for fit in seen.counted}
            names |= {limit.dataset for limit in seen.limits}
            known = sorted((names | {self.dataset}) - {""})
            if dataset_name(dataset) not in known:
                raise ValueError(f"Got dataset={dataset!r}, expected one of {known}.")
            dataset = dataset_name(dataset)
        else:
            dataset = self.dataset
            self._warn_of_unknown_name(seen)
        accounts = accounts_of(seen.counted, dataset, disjoint)
        n_simulated = sum(fit.promise.simulation for account in accounts for fit in account)
        if n_simulated and not include_simulated:
            raise LedgerError(
                "Got a ledger with simulations, fits with a seed, expected none: fits with equal"
                " seeds may share their noise, and then no sum of guarantees holds. With"
                " include_simulated=True you get what they would cost with random_state=None."
            )
        return accounts


def _require_number(name: str, value: Any, interval: str, example: str) -> None:
    if not isinstance(value, Real):
        raise TypeError(
            f"Got {name}={value!r}, expected a float in {interval}. Give a number: {example}."
        )


def _require_delta(delta: Any) -> None:
    _require_number("delta", delta, "[0, 1]", "total(1e-6)")
    if not 0 <= delta <= 1:
        raise ValueError(f"Got delta={delta!r}, expected a float in [0, 1].")
