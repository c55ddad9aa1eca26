"""Parties that keep their rows: each runs the plan on its own rows and adds its own noise.

`fit` of a federated estimator simulates all agents in one process. Here every agent is a `Party`
in a process of its own, and a server without rows, `coordinate`, adds up what parties send. All of
them run the same algorithm on the same plan; they differ from a simulation in their gate alone.
Where a simulation releases a sum of messages, the gate of a party adds noise to the party's own
message, sends it, and goes on with the sum that the server returns. So a message is a function of
own rows and of sums, plus noise, and the guarantee of the plan against the server holds whatever
sums the server returns.

Where pairs of agents share noise (`FederatedADMM` does by default), each party has a private key,
and all know the public keys. Two parties agree on a secret for each run from their keys and from
random numbers of both, which the server passes on; it learns nothing from them.

A party keeps no process alive between two messages. It writes each message into a journal before
it sends it, and repeats the run up to the last sum for the next one. A request that comes twice
gets the message that was sent, never a second one with other noise. That rests on the journal: one
that is restored from a backup would send again, and the noise of pairs would be the same under
fresh noise of its own, so that the difference of both messages has own noise alone. A ledger knows
what was sent and refuses; where pairs share noise it is required. It must not be in that backup.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from copy import copy
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone, is_classifier

from skdpadmm._chunks import Shard, Shards
from skdpadmm._fitting import PendingFit, gates_by
from skdpadmm._linear_model import Targets, class_labels
from skdpadmm._sklearn import discreet
from skdpadmm.engine import PlacedParts
from skdpadmm.federated import FederatedModel
from skdpadmm.ledger import LedgerEntry, PrivacyLedger
from skdpadmm.network import Ownership, ownership_of_labels
from skdpadmm.noise import KeyedNoise, NoiseSource
from skdpadmm.privacy import PrivacyReport
from skdpadmm.protocol import MODEL, SERVER, Gate, Plan, PlanViolation

__all__ = ["Party", "Refusal", "coordinate", "new_key"]

Array = NDArray[np.float64]
# Of a sum in units of the clip bound: no honest one comes near, and models stay finite.
LARGEST_SUM = 2.0**100
# Of 32 bits, which a party draws for a run.
N_WORDS = 8
# What a journal keeps of a run.
ACCOUNT, MESSAGE, SUM = "account", "message", "sum"


class Refusal(ValueError):
    """A request that a party does not answer; the reason depends on nothing private."""


class Party:
    """One agent of a federation, with its rows: answers the server's requests of one fit.

    Parameters
    ----------
    estimator : federated estimator
        With the parameters that all parties agreed on. `adversary` is "server" or "model",
        `privacy_unit` "record", and nobody sits rounds out. `ledger` is the party's own; required
        where pairs share noise, which a journal that was restored from a backup would repeat.
    X : {array-like, sparse matrix} of shape (n_own, n_features)
        The party's own rows.
    y : array-like of shape (n_own,)
    agent : object
        The party's own label.
    agent_sizes : dict
        Public: how many rows each party has, by label.
    journal : str or path-like
        A file of the party's own, for what was sent and received. It holds nothing that the server
        does not know. A run that it does not have is a new one. Where this and the ledger are new
        files, only their owner can read them.
    private_key : str or path-like, default=None
        File of the party's own key, which `new_key` makes; needed where pairs share noise.
    public_keys : dict, default=None
        Public: what `new_key` returned to each party, by label. It has to come from the parties
        themselves: whoever can change it can undo the noise of pairs.

    Attributes
    ----------
    plan : Plan
        What the party agrees to send.
    digest : str
        Of the plan, names and bounds of columns, classes, parties and their public keys; it has to
        be the server's.
    report : PrivacyReport
        The guarantee of the plan for each observer, before anything is sent.
    model : estimator or None
        The fitted model, once a run has ended.

    Raises
    ------
    ValueError
        Where rows or parameters are not valid, before anything is sent.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> import numpy as np
    >>> from skdpadmm import DPFedRidge
    >>> from skdpadmm.algorithms import FederatedADMM
    >>> from skdpadmm.parties import Party, coordinate
    >>> estimator = DPFedRidge(feature_bounds=(-1, 1), target_bounds=(-1, 1), max_iter=3)
    >>> estimator = estimator.set_params(algorithm=FederatedADMM(edge_noise=0))
    >>> X, sizes = np.random.default_rng(0).uniform(-1, 1, (500, 2)), {"Bergen": 200, "Oslo": 300}
    >>> parties = {}
    >>> for label, own in (("Bergen", X[:200]), ("Oslo", X[200:])):
    ...     kept = {"agent_sizes": sizes, "journal": Path(mkdtemp(), f"{label}.db")}
    ...     parties[label] = Party(estimator, own, own[:, 0], agent=label, **kept)
    >>> def exchange(request):
    ...     return {label: party.answer("fit 1", **request) for label, party in parties.items()}
    >>> model = coordinate(estimator, exchange, agent_sizes=sizes, columns=2)
    >>> model.coef_.shape
    (2,)
    >>> parties["Oslo"].model.privacy_ == model.privacy_
    True
    """

    @discreet
    def __init__(
        self,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        agent: Any,
        agent_sizes: Mapping[Any, int],
        journal: str | os.PathLike[str],
        private_key: str | os.PathLike[str] | None = None,
        public_keys: Mapping[Any, str] | None = None,
    ) -> None:
        self._model, owners, self._targets = _agreed(estimator, agent_sizes)
        if str(journal) in ("", ":memory:"):
            raise ValueError(f"Got journal={journal!r}, expected a file that lasts.")
        if agent not in agent_sizes or np.shape(y) != (agent_sizes[agent],):
            raise ValueError(
                f"Got agent={agent!r} with targets of shape {np.shape(y)}, expected one of"
                f" {list(agent_sizes)[:5]} with as many rows as agent_sizes has, which all parties"
                " know."
            )
        self._rows = partial(_own_rows, self._model, X, y, sum(agent_sizes.values()))
        self._owners = owners
        self._fit = _pending(self._model, self._rows(), self._targets, owners)
        self._noise = self._fit.noise(self._model.random_state, self.plan.digest())
        self.report: PrivacyReport = self._fit.report(self.plan, self._noise)
        labels = owners.labels.tolist()
        self._place = labels.index(agent)
        if self.plan.facts.agents.edge_noise and estimator.ledger is None:
            raise ValueError(
                "Got ledger=None where pairs share noise, expected a ledger of the party's own: a"
                " journal that was restored from a backup would repeat that noise, and a ledger"
                " refuses. Set ledger='party.db', or algorithm=FederatedADMM(edge_noise=0)."
            )
        self._keys = _secrets(self.plan, labels, agent, private_key, public_keys)
        self.digest = _agreement(self._fit, self._targets, public_keys)
        times = [release.times or 0 for release in self.plan.releases]
        self._n_messages = sum(times) + (len(self._keys) > 0)
        self._ledger, self._journal = estimator.ledger, journal
        self.model: Any = None

    @property
    def plan(self) -> Plan:
        """What the party agrees to send."""
        return self._fit.planned.plan

    @discreet
    def answer(
        self, run: str, *, digest: str, number: int, total: ArrayLike | None = None
    ) -> Array | None:
        """Return the message of a request, with noise; None after the last sum.

        Parameters
        ----------
        run : str
            The name of the run. A new run spends the budget anew.
        digest : str
            The server's `digest`.
        number : int
            How many sums the server has returned, from 0.
        total : array-like, default=None
            The latest of them; None where there is none.

        Returns
        -------
        message : ndarray or None

        Raises
        ------
        Refusal
            If the plan is another one, or the request is not the next nor the last one.
        PrivacyBudgetExceeded
            If the ledger has a limit that a new run would pass. Nothing is sent.
        """
        if digest != self.digest:
            raise Refusal(
                f"Got a plan of digest {digest!r}, expected {self.digest!r}: the parameters,"
                " columns, sizes or keys of parties are others than this party agreed to."
            )
        _for_owner_alone(self._journal)
        journal = Journal(self._journal, run)
        if not journal.all(ACCOUNT):
            self._begin(journal, number)
        key, *known = journal.all(ACCOUNT)[0].tolist()
        if known != self._identity:
            raise Refusal(
                f"Got run {run!r}, which this journal has of another plan, party or ledger,"
                " expected a new name."
            )
        shape = (len(self._keys) + 1, N_WORDS) if self._keys and number == 1 else None
        journal.receive(number, total, shape)
        if (sent := journal.all(MESSAGE).get(number)) is not None:
            return sent  # Its first copy got lost.
        fit = _pending(self._model, self._rows(), self._targets, self._owners)
        is_last, account = number == self._n_messages, self._ledger
        if account is not None and not is_last and not PrivacyLedger(account).advance(key, number):
            raise Refusal(
                f"Got request {number}, whose message the ledger has and the journal lacks,"
                " expected the journal that has it. Begin a new run."
            )
        with gates_by(partial(_PartyGate, party=self, journal=journal)):
            try:
                fitted = fit.solve(self._noise)
            except _MessageReady:
                return journal.all(MESSAGE)[number]
        model = copy(self._model)
        model._keep(fitted, self._targets)
        model.privacy_ = self.report
        if self._ledger is not None:
            PrivacyLedger(self._ledger).finish(key)
        self.model = model
        return None

    @property
    def _identity(self) -> list[str]:
        """What a run is of: its name belongs to one plan, party and ledger."""
        ledger = "" if self._ledger is None else os.path.abspath(self._ledger)
        return [self.digest, str(self._place), ledger]

    def _begin(self, journal: Journal, number: int) -> None:
        """Count a new run before anything is sent."""
        if number != 0:
            raise Refusal(
                f"Got request {number} of run {journal.run!r}, which the journal does not have,"
                " expected request 0: this party cannot know what it has sent. Begin a new run."
            )
        key = ""
        if self._ledger is not None:
            _for_owner_alone(PrivacyLedger(self._ledger).path)
            entry = LedgerEntry.of_report(self.report, self.plan.digest().hex())
            key = PrivacyLedger(self._ledger).reserve(entry)
        journal.keep(ACCOUNT, 0, np.array([key, *self._identity]))


def _for_owner_alone(path: str | os.PathLike[str]) -> None:
    """Create an empty file that only its owner can read, unless there is one."""
    if not os.path.exists(path):
        # By SQLite: to close a file of our own would end the locks that other threads have on it.
        sqlite3.connect(path).close()
        os.chmod(path, 0o600)


def new_key(path: str | os.PathLike[str]) -> str:
    """Make a party's key, write it to a new file for the party alone, and return its public part.

    It takes the extra ``skdpadmm[flower]``.

    Parameters
    ----------
    path : str or path-like
        Of a file that does not exist.

    Returns
    -------
    public_key : str
        For all parties to know.
    """
    private = _x25519().X25519PrivateKey.generate()
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(private.private_bytes_raw())
    return str(private.public_key().public_bytes_raw().hex())


def coordinate(
    estimator: Any,
    exchange: Callable[[dict[str, Any]], Mapping[Any, Array | None]],
    *,
    agent_sizes: Mapping[Any, int],
    columns: int | Sequence[str],
    public_keys: Mapping[Any, str] | None = None,
) -> Any:
    """Fit a model to the rows of parties, as a server that has none.

    Parameters
    ----------
    estimator : federated estimator
        With the parameters that all parties agreed on.
    exchange : callable
        Sends a request, a dict with the arguments of `Party.answer` but for `run`, to all parties,
        and returns their answers by label.
    agent_sizes : dict
        Public: how many rows each party has, by label.
    columns : int or sequence of str
        Public: the number of features, or their names in order.
    public_keys : dict, default=None
        Public: the keys of parties by label, where pairs of them share noise.

    Returns
    -------
    model : estimator
        A fitted clone of the estimator.

    Raises
    ------
    ValueError
        Where a party does not answer, or with what is no message. What parties have sent counts in
        their ledgers.
    """
    model, owners, targets = _agreed(estimator, agent_sizes)
    # In place of the rows that others have; what is computed from it is not used.
    example: Any = np.zeros((1, columns if isinstance(columns, int) else len(columns)))
    if not isinstance(columns, int):
        import pandas as pd

        example = pd.DataFrame(example, columns=list(columns))
    labels = [0.0] if targets.classes is None else targets.classes[:1]
    rows = _own_rows(model, example, labels, sum(agent_sizes.values()))
    fit = _pending(model, rows, targets, owners)
    plan = fit.planned.plan
    noise = fit.noise(model.random_state, plan.digest())
    digest = _agreement(fit, targets, public_keys)
    ask = partial(_ask, exchange, digest, owners.labels.tolist())
    with gates_by(partial(_ServerGate, ask=ask)):
        fitted = fit.solve(noise)
    model._keep(fitted, targets)
    model.privacy_ = fit.report(plan, noise)
    return model


class Journal:
    """What a party has sent and received in one run, in a SQLite file.

    What is kept first stays: of two messages that processes make for one request at the same time,
    one is sent, twice.
    """

    def __init__(self, path: str | os.PathLike[str], run: str) -> None:
        self.path, self.run = path, run

    def keep(self, kind: str, number: int, value: NDArray[Any]) -> NDArray[Any]:
        """Keep an array, on disk before this returns, unless there is one; return what is kept."""
        content = io.BytesIO()
        np.save(content, value, allow_pickle=False)
        row = (self.run, kind, number, content.getvalue())
        with closing(self._connected()) as connection:
            connection.execute("INSERT OR IGNORE INTO kept VALUES (?, ?, ?, ?)", row)
        return self.all(kind)[number]

    def all(self, kind: str) -> dict[int, NDArray[Any]]:
        """What is kept of a kind, by number."""
        query = "SELECT number, value FROM kept WHERE run = ? AND kind = ?"
        with closing(self._connected()) as connection:
            rows = connection.execute(query, (self.run, kind)).fetchall()
        return {number: np.load(io.BytesIO(value), allow_pickle=False) for number, value in rows}

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS kept"
            " (run TEXT, kind TEXT, number INTEGER, value BLOB, PRIMARY KEY (run, kind, number))"
        )
        return connection

    def receive(
        self, number: int, total: ArrayLike | None, shape: tuple[int, ...] | None = None
    ) -> None:
        """Keep the latest sum; refuse requests that are neither the next one nor the last one.

        Its shape is by default that of the message.
        """
        sent = self.all(MESSAGE)
        expected = sorted({len(sent), max(len(sent) - 1, 0)})
        if number not in expected:
            raise Refusal(
                f"Got request {number} of run {self.run!r}, expected one of {expected}. A new run"
                " has a new name, and spends the budget again."
            )
        if number == 0:
            return
        try:
            value = np.array(total, dtype=np.float64)
        except (TypeError, ValueError):
            value = np.empty(0)
        shape = shape or sent[number - 1].shape
        if value.shape != shape or not (np.abs(value) <= LARGEST_SUM).all():
            raise Refusal(
                f"Got a sum of shape {value.shape}, or one that is not finite, expected {shape}."
            )
        if not np.array_equal(self.keep(SUM, number - 1, value), value):
            raise Refusal(f"Got another sum for request {number} than before, expected the same.")


class _MessageReady(Exception):
    """A party has sent a message and waits for the sum."""


class _LockstepGate(Gate):
    """Releases of a run that every party and the server make, each in its own process."""

    def __init__(self, fit: PendingFit, plan: Plan, noise: NoiseSource, n_arrived: int) -> None:
        super().__init__(plan, noise)
        self._n_sums = 0

    def uniform(self, shape: tuple[int, ...]) -> Array:
        """Refuse random choices, which processes would make differently."""
        raise PlanViolation("Got a random choice, expected none: parties would make others.")


class _PartyGate(_LockstepGate):
    """Releases of one party: its own messages with its own noise, and the sums of all."""

    def __init__(self, *facts: Any, party: Party, journal: Journal) -> None:
        super().__init__(*facts)
        self._journal, self._place = journal, party._place
        self._sent, self._sums = journal.all(MESSAGE), journal.all(SUM)
        self._shared: dict[int, KeyedNoise] = {}
        if party._keys:
            self._agree(party._keys, party.digest)

    def release(self, name: str, value: Array, senders: Any = None) -> Array:
        """Send the own message, unless it was sent, and go on with the sum of all of them."""
        index, release = self._planned(name, "release")
        self._check(release, value, release.shape)
        stream = (index, self._pass(name))

        def message() -> Array:
            noise_std = float(self._noise_of_agents(release)[self._place])
            noisy = self._noise.add_gaussian(value / noise_std, 1.0, (*stream, self._place))
            ratio = math.sqrt(self._plan.facts.agents.edge_noise)
            for other, source in self._shared.items():
                # In units of the own noise, so that both ends have the same numbers.
                shared = source.add_gaussian(np.zeros(release.shape), ratio, stream)
                noisy = noisy + shared if self._place < other else noisy - shared
            noisy = noise_std * noisy
            return self.deliver("release", release, stream[1], value, noisy, noise_std)

        return self._exchange(message)

    def _exchange(self, message: Callable[[], Array]) -> Array:
        """Send a message, unless it was sent; what the server made of those of all."""
        k, self._n_sums = self._n_sums, self._n_sums + 1
        if k not in self._sent:
            self._journal.keep(MESSAGE, k, message())
        if k not in self._sums:
            raise _MessageReady
        return self._sums[k]

    def _agree(self, keys: Mapping[int, bytes], agreement: str) -> None:
        """Secrets of this run, which no run had before: half of what makes them is drawn here."""
        own = np.frombuffer(os.urandom(4 * N_WORDS), dtype=np.uint32).astype(np.float64)
        drawn = self._exchange(lambda: own)
        if not np.array_equal(drawn[self._place], self._sent[0]):
            raise Refusal("Got another random number than this party sent, expected the same.")
        for other, key in keys.items():
            first, second = sorted((self._place, other))
            # With their places: a party may have announced the public key of another as its own.
            pair = f"{agreement} {first} {second} ".encode()
            made_of = (pair, key, drawn[first].tobytes(), drawn[second].tobytes())
            self._shared[other] = KeyedNoise(hashlib.sha3_256(b"".join(made_of)).digest())


class _ServerGate(_LockstepGate):
    """Sums of messages, to which parties have added noise; no value of the server's is used."""

    def __init__(self, *facts: Any, ask: Callable[..., list[Array]]) -> None:
        super().__init__(*facts)
        self._ask, self._total = ask, cast("Array | None", None)
        if self._plan.facts.agents.edge_noise:
            # Random numbers of all parties, which everybody gets.
            self._total, self._n_sums = np.stack(self._ask(0, None, (N_WORDS,))), 1

    def release(self, name: str, value: Array, senders: Any = None) -> Array:
        """Ask all parties for their messages, and add them up in the order of their labels."""
        _, release = self._planned(name, "release")
        self._pass(name)
        total: Array = np.add.reduce(self._ask(self._n_sums, self._total, release.shape))
        self._n_sums, self._total = self._n_sums + 1, total
        return total

    def close(self) -> None:
        """Give the last sum to all parties."""
        super().close()
        self._ask(self._n_sums, self._total, None)


def _ask(
    exchange: Callable[[dict[str, Any]], Mapping[Any, Any]],
    digest: str,
    labels: list[Any],
    number: int,
    total: Array | None,
    shape: tuple[int, ...] | None,
) -> list[Array]:
    """The messages of all parties to one request, in the order of their labels."""
    answers = exchange({"digest": digest, "number": number, "total": total})
    if set(answers) != set(labels):
        missing = [label for label in labels if label not in answers]
        raise ValueError(
            f"Got no answer of {missing[:5]} to request {number}, expected one of each of"
            f" {len(labels)} parties. What they have sent counts; begin a new run."
        )
    if shape is None:
        return []
    messages = []
    for label in labels:
        message = np.asarray(answers[label])
        is_numeric = message.dtype == np.float64 and message.shape == shape
        if not is_numeric or not (np.abs(message) <= LARGEST_SUM).all():
            raise ValueError(
                f"Got a message of {label!r} of type {message.dtype} and shape {message.shape},"
                f" expected finite float64 of shape {shape}. What parties have sent counts."
            )
        messages.append(message)
    return messages


def _agreement(fit: PendingFit, targets: Targets, public_keys: Mapping[Any, str] | None) -> str:
    """A digest of all that parties agree on: the plan, and what it knows without an order."""
    keys = sorted((repr(label), key) for label, key in (public_keys or {}).items())
    coordinates, names = fit.planned.coordinates, fit.estimator._feature_names()
    assert fit.ownership is not None
    known = (
        keys,
        fit.ownership.labels.tolist(),
        None if targets.classes is None else targets.classes.tolist(),
        None if names is None else list(map(str, names)),
        coordinates.lower.tolist(),
        coordinates.upper.tolist(),
    )
    return hashlib.sha256(fit.planned.plan.digest() + repr(known).encode()).hexdigest()


def _x25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import x25519
    except ImportError as error:
        raise ImportError("Keys of parties need: pip install 'skdpadmm[flower]'") from error
    return x25519


def _secrets(
    plan: Plan,
    labels: list[Any],
    agent: Any,
    private_key: str | os.PathLike[str] | None,
    public_keys: Mapping[Any, str] | None,
) -> dict[int, bytes]:
    """What a party shares with each other one, by their places; nothing where none is needed."""
    ratio = plan.facts.agents.edge_noise
    if ratio == 0:
        return {}
    known = public_keys or {}
    if private_key is None or set(known) != set(labels) or ratio < 1:
        raise ValueError(
            f"Got edge_noise={ratio:g}, private_key={private_key!r} and public keys of"
            f" {list(known)[:5]}, expected a ratio of at least 1, and the keys of all parties."
            " new_key makes them. Without keys: algorithm=FederatedADMM(edge_noise=0)."
        )
    x25519 = _x25519()
    with open(private_key, "rb") as file:
        private = x25519.X25519PrivateKey.from_private_bytes(file.read())
    if private.public_key().public_bytes_raw().hex() != known[agent]:
        raise ValueError(f"Got a private key of another party, expected that of {agent!r}.")
    public = {
        place: x25519.X25519PublicKey.from_public_bytes(bytes.fromhex(known[label]))
        for place, label in enumerate(labels)
        if label != agent
    }
    return {place: private.exchange(key) for place, key in public.items()}


def _agreed(estimator: Any, sizes: Mapping[Any, int]) -> tuple[Any, Ownership, Targets]:
    """An unfitted model, who the parties are, and the classes; refuses what has no protocol."""
    if not isinstance(estimator, FederatedModel):
        raise TypeError(f"Got {estimator!r}, expected a federated estimator, such as DPFedRidge.")
    model: Any = clone(estimator).set_params(ledger=None)
    model._validate_params()
    wrong = [
        f"{name}={getattr(model, name)!r}, not {' or '.join(map(repr, fine))}"
        for name, fine in (
            ("adversary", (SERVER, MODEL)),
            ("privacy_unit", ("record",)),
            ("participation", ("auto", 1)),
            ("dropout", (0,)),
            ("random_state", (None,)),
            ("agent_column", (None,)),
        )
        if getattr(model, name) not in fine
    ]
    if is_classifier(model) and model.classes is None:
        wrong.append("classes=None, as a party may lack some: declare every class")
    if wrong:
        raise ValueError(
            f"Got {'; '.join(wrong)}: parties that keep their rows have no protocol for it. Use fit"
            " to simulate it in one process."
        )
    labels = ownership_of_labels(list(sizes), n_samples=len(sizes)).labels
    counts = np.array([sizes[label] for label in labels.tolist()], dtype=np.intp)
    classes = class_labels(model.classes) if is_classifier(model) else None
    owners = Ownership(labels, np.empty(0, dtype=np.intp), counts)
    return model, owners, Targets(encoded=np.empty(0), classes=classes)


def _own_rows(model: Any, X: Any, y: Any, n_samples: int) -> Shards:
    """Own rows of so many: sums are over these alone."""
    X = X if hasattr(X, "shape") else np.asarray(X)
    rows = Shards(PlacedParts([Shard(X, np.asarray(y), None)]), model)
    rows.shape = (n_samples, rows.shape[1])
    return rows


def _pending(model: Any, rows: Shards, targets: Targets, owners: Ownership) -> PendingFit:
    """The fit of a party or of the server, before anything is sent."""
    vars(model).update(rows.columns)
    fit: PendingFit = model._pending(rows, np.empty(0), targets, owners)
    plan = fit.planned.plan
    if not plan.budget.is_private:
        raise ValueError("Got epsilon=inf, expected a finite budget: messages would be exact.")
    odd = [r.name for r in plan.releases if (r.door, r.made_of) != ("release", "sum")]
    if odd:
        raise ValueError(
            f"Got {fit.planned.algorithm!r}, which releases {odd}, expected sums of messages alone,"
            " as of 'federated-admm' without secret sharing."
        )
    return fit
