"""The SQLite file behind a ledger: where it may be, whether it is the same one, transactions.

Nothing here opens the file but SQLite, and every connection is closed after one transaction: its
locks belong to the process, and a second descriptor that is closed would release them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from skdpadmm.ledger._errors import LedgerError
from skdpadmm.ledger._paths import absolute_path

_APPLICATION = 0x64704C67  # "dpLg"
SCHEMA_VERSION = 1
# A transaction may compute a privacy loss distribution while others wait.
_PATIENCE = 300.0
_NETWORK = {
    "9p", "acfs", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda", "curlftpfs", "davfs", "fhgfs",
    "fuse.ceph", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs", "fuse.goofys", "fuse.rclone",
    "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2",
    "orangefs", "panfs", "smb3", "smbfs", "webdav",
}  # fmt: skip
_MOUNTS = "/proc/self/mounts"
_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    dataset TEXT NOT NULL,
    promise TEXT NOT NULL,
    record TEXT NOT NULL,
    checksum TEXT NOT NULL,
    finished TEXT
);
CREATE TABLE limits (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    dataset TEXT NOT NULL,
    terms TEXT NOT NULL,
    checksum TEXT NOT NULL
);
CREATE TABLE pieces (key TEXT NOT NULL, first INTEGER NOT NULL, UNIQUE (key, first));
CREATE TRIGGER nothing_is_taken_back BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'an entry of a ledger is never deleted'); END;
CREATE TRIGGER nothing_is_rewritten
BEFORE UPDATE OF id, key, dataset, promise, record, checksum ON entries
BEGIN SELECT RAISE(ABORT, 'an entry of a ledger is never changed'); END;
CREATE TRIGGER no_limit_is_taken_back BEFORE DELETE ON limits
BEGIN SELECT RAISE(ABORT, 'a limit of a ledger is never deleted: set another one'); END;
CREATE TRIGGER no_limit_is_rewritten BEFORE UPDATE ON limits
BEGIN SELECT RAISE(ABORT, 'a limit of a ledger is never changed: set another one'); END;
CREATE TRIGGER no_piece_is_taken_back BEFORE DELETE ON pieces
BEGIN SELECT RAISE(ABORT, 'a piece of a stream is never deleted'); END;
CREATE TRIGGER no_piece_is_rewritten BEFORE UPDATE ON pieces
BEGIN SELECT RAISE(ABORT, 'a piece of a stream is never changed'); END;
"""

_checked: set[str] = set()


class Row(NamedTuple):
    """One stored fit."""

    id: int
    key: str
    dataset: str
    promise: str
    record: str
    finished: str | None


class Mark(NamedTuple):
    """By what a process knows again what it has read: nothing in front of the last rows changes.

    Whoever changes it by SQL has to remove the triggers, and then SQLite counts up the version of
    the schema.
    """

    ledger: str
    schema: int
    n_entries: int
    last_entry: str
    n_limits: int
    last_limit: str
    # Pieces of streams; no sum depends on them.
    n_pieces: int

    def says_the_same_of_costs(self, other: Mark) -> bool:
        """Whether fits and limits are the same at both moments."""
        return self._replace(n_pieces=other.n_pieces) == other


# The most that this process has seen at each path, as it was given and as links lead: a ledger that
# vanishes is not begun anew, and neither another one nor an old copy takes its place.
_seen: dict[str, Mark] = {}


class Database:
    """One file, by its absolute path."""

    def __init__(self, path: str, *, allow_network: bool) -> None:
        given = absolute_path(path)
        self.path = os.path.realpath(given)
        self._places = (self.path, given)
        self.allow_network = allow_network

    def exists(self) -> bool:
        """Whether there is something at the path."""
        return os.path.lexists(self.path)

    @contextmanager
    def transaction(self, *, write: bool, make: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction; a file is made by the first one that writes and may make it.

        Raises
        ------
        LedgerError
            If the file is missing, is another one, or cannot be read or written.
        """
        self._refuse_places()
        if not self.exists():
            self._refuse_vanished()
            if not (write and make):
                raise LedgerError(
                    f"Got {self.path}, expected a ledger: there is no such file. The first fit"
                    " makes it; check the path."
                )
            self._create()
        before = self._identity()
        # Before the transaction begins: other threads may add to it in the meantime.
        seen = [_seen[place] for place in self._places if place in _seen]
        connection = None
        try:
            connection = sqlite3.connect(
                f"{Path(self.path).as_uri()}?mode=rw", uri=True, timeout=_PATIENCE,
                isolation_level=None, check_same_thread=False,
            )  # fmt: skip
            # EXTRA is FULL and syncs the directory: what is committed survives a power cut.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            self._verify(connection, seen)
            yield connection
            mark = self.mark(connection)
            connection.execute("COMMIT")
            self._remember(mark)
        except sqlite3.Error as error:
            raise self._explained(error) from error
        finally:
            if connection is not None:
                with suppress(sqlite3.Error):
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                connection.close()
        if write and self._identity() != before:
            raise LedgerError(
                f"Got {self.path} replaced or deleted while it was written, expected the same file."
                " What this fit reserved may be lost: put the ledger back before going on."
            )

    def rows(self, connection: sqlite3.Connection, *, after: int = 0) -> list[Row]:
        """Return all fits in the order in which they were reserved, after the first so many."""
        rows, last = [], after
        query = "SELECT id, key, dataset, promise, record, finished, checksum FROM entries"
        for *values, checksum in connection.execute(query + " WHERE id > ? ORDER BY id", (after,)):
            row = Row(*values)
            last += 1
            if row.id != last or checksum != _checksum(*row[1:5]):
                raise self._damaged(f"entry {last} is missing or was changed")
            rows.append(row)
        self._require_end(connection, "entries", last)
        return rows

    def limits(self, connection: sqlite3.Connection) -> list[tuple[str, str]]:
        """Return data sets and terms of all limits in the order in which they were set."""
        limits: list[tuple[str, str]] = []
        query = "SELECT id, dataset, terms, checksum FROM limits ORDER BY id"
        for number, dataset, terms, checksum in connection.execute(query):
            expected = len(limits) + 1
            if number != expected or checksum != _checksum(str(number), dataset, terms):
                raise self._damaged(f"limit {expected} is missing or was changed")
            limits.append((dataset, terms))
        self._require_end(connection, "limits", len(limits))
        return limits

    @staticmethod
    def mark(connection: sqlite3.Connection) -> Mark:
        """Return up to where the ledger goes at this moment."""
        (ledger,) = connection.execute("SELECT value FROM meta WHERE name = 'ledger'").fetchone()
        (schema,) = connection.execute("PRAGMA schema_version").fetchone()
        entry, limit = (
            connection.execute(f"SELECT id, checksum FROM {table} ORDER BY id DESC LIMIT 1")
            for table in ("entries", "limits")
        )
        n_entries, last_entry = entry.fetchone() or (0, "")
        n_limits, last_limit = limit.fetchone() or (0, "")
        (n_pieces,) = connection.execute("SELECT MAX(rowid) FROM pieces").fetchone()
        return Mark(ledger, schema, n_entries, last_entry, n_limits, last_limit, n_pieces or 0)

    def goes_on_from(self, connection: sqlite3.Connection, mark: Mark) -> bool:
        """Whether what was there at an earlier moment is the beginning of what is there now."""
        now = self.mark(connection)
        entry = connection.execute("SELECT checksum FROM entries WHERE id = ?", (mark.n_entries,))
        limit = connection.execute("SELECT checksum FROM limits WHERE id = ?", (mark.n_limits,))
        at_that_time = now._replace(
            n_entries=mark.n_entries,
            last_entry=(entry.fetchone() or ("",))[0],
            n_limits=mark.n_limits,
            last_limit=(limit.fetchone() or ("",))[0],
            n_pieces=min(mark.n_pieces, now.n_pieces),
        )
        return at_that_time == mark

    @staticmethod
    def add(connection: sqlite3.Connection, dataset: str, promise: str, record: str) -> str:
        """Store a fit and return its key."""
        key = uuid.uuid4().hex
        values = (key, dataset, promise, record)
        connection.execute(
            "INSERT INTO entries (key, dataset, promise, record, checksum) VALUES (?, ?, ?, ?, ?)",
            (*values, _checksum(*values)),
        )
        return key

    @staticmethod
    def add_limit(connection: sqlite3.Connection, dataset: str, terms: str) -> None:
        """Store a limit; the last one of a data set holds."""
        (last,) = connection.execute("SELECT MAX(id) FROM limits").fetchone()
        number = (last or 0) + 1
        connection.execute(
            "INSERT INTO limits (id, dataset, terms, checksum) VALUES (?, ?, ?, ?)",
            (number, dataset, terms, _checksum(str(number), dataset, terms)),
        )

    @staticmethod
    def advance(connection: sqlite3.Connection, key: str, first: int) -> bool | None:
        """Take a position of a stream, and say whether it was free; None for no such stream."""
        found = connection.execute("SELECT COUNT(*) FROM entries WHERE key = ?", (key,))
        if not found.fetchone()[0]:
            return None
        taken = connection.execute(
            "INSERT INTO pieces (key, first) VALUES (?, ?) ON CONFLICT DO NOTHING", (key, first)
        )
        return taken.rowcount == 1

    @staticmethod
    def finish(connection: sqlite3.Connection, key: str, time: str) -> bool:
        """Mark a fit as done, and say whether there is one with that key."""
        connection.execute(
            "UPDATE entries SET finished = ? WHERE key = ? AND finished IS NULL", (time, key)
        )
        found = connection.execute("SELECT COUNT(*) FROM entries WHERE key = ?", (key,))
        return bool(found.fetchone()[0])

    def _refuse_places(self) -> None:
        """Refuse what is no place for a database, such as where locks cannot be relied on."""
        directory = os.path.dirname(self.path)
        if not os.path.isdir(directory):
            raise LedgerError(
                f"Got {self.path}, expected a file in an existing directory. Make {directory}"
                " first."
            )
        if os.path.isdir(self.path):
            raise LedgerError(f"Got the directory {self.path}, expected a file. Add a file name.")
        if self.exists() and not os.path.isfile(self.path):
            raise LedgerError(f"Got {self.path}, expected a regular file. Choose another path.")
        if self.allow_network:
            return
        kind = network_file_system(self.path)
        if kind and not self._is_allowed():
            raise LedgerError(
                f"Got {self.path} on a network file system ({kind}), expected a local disk: locks"
                " there may not hold, and concurrent fits could be lost. Keep the ledger on a local"
                " disk, or use PrivacyLedger(path, allow_network=True) if its locks are sound."
            )

    def _is_allowed(self) -> bool:
        """Whether the ledger says of itself that it may be where it is."""
        if not self.exists():
            return False
        sure = Database(self.path, allow_network=True)
        with sure.transaction(write=False) as connection:
            found = connection.execute("SELECT COUNT(*) FROM meta WHERE name = 'network'")
            return bool(found.fetchone()[0])

    def _refuse_vanished(self) -> None:
        if any(place in _seen for place in self._places):
            raise LedgerError(
                f"Got no file at {self.path}, where this process has used a ledger, expected it to"
                " be still there: it would forget what was spent. Put it back. To begin a new"
                " account choose another path."
            )

    def _identity(self) -> tuple[int, int]:
        try:
            status = os.stat(self.path)
        except OSError:
            return (0, 0)
        return status.st_dev, status.st_ino

    def _create(self) -> None:
        """Make a complete empty ledger appear at once, unless another process was faster.

        An empty file is thus never a ledger that is being made, but one that was cut off.
        """
        directory, name = os.path.split(self.path)
        draft = os.path.join(directory, f".{name}.{uuid.uuid4().hex}.new")
        try:
            connection = sqlite3.connect(f"{Path(draft).as_uri()}?mode=rwc", uri=True)
            try:
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.executescript(_SCHEMA)
                connection.execute("INSERT INTO meta VALUES ('ledger', ?)", (uuid.uuid4().hex,))
                connection.commit()
            finally:
                connection.close()
            with suppress(FileExistsError):
                os.link(draft, self.path)
            self._sync(directory)
        except sqlite3.Error as error:
            raise self._explained(error) from error
        except OSError as error:
            raise LedgerError(
                f"Got {self.path}, where no ledger can be made ({error.strerror}), expected a"
                " directory that can be written, on a file system with hard links."
            ) from error
        finally:
            with suppress(OSError):
                os.unlink(draft)

    @staticmethod
    def _sync(directory: str) -> None:
        if os.name != "posix":
            return
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EBADF):  # some file systems cannot
                raise
        finally:
            os.close(descriptor)

    def _verify(self, connection: sqlite3.Connection, seen: list[Mark]) -> None:
        """Refuse what is no ledger, a newer or damaged one, or one that took another's place."""
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if application != _APPLICATION:
            raise LedgerError(
                f"Got {self.path}, which is empty or another program's database, expected a ledger."
                " If it was one, restore it from a copy; for a new one choose another path."
            )
        if version != SCHEMA_VERSION:
            raise LedgerError(
                f"Got {self.path} of version {version}, expected {SCHEMA_VERSION}: another version"
                " of skdpadmm wrote it. Update skdpadmm."
            )
        stored = connection.execute("SELECT value FROM meta WHERE name = 'ledger'").fetchone()
        if stored is None:
            raise self._damaged("it has lost its identity")
        if any(mark.ledger != stored[0] for mark in seen):
            raise LedgerError(
                f"Got {self.path}, which is another ledger than the one this process has used"
                " there, expected the same. Put that one back: it knows what was spent."
            )
        if stored[0] not in _checked:  # once for each process: it reads the whole file
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise self._damaged(found)
            _checked.add(stored[0])
        now = self.mark(connection)
        for mark in seen:
            # Triggers that were touched are a reason to read all of it, and none to refuse it.
            if not self.goes_on_from(connection, mark._replace(schema=now.schema)):
                raise self._damaged(
                    "it is older than what this process has seen of it, or has gone another way"
                )
        self._remember(now)

    def _remember(self, mark: Mark) -> None:
        """Keep the most that was seen: another thread may have seen more in the meantime."""
        for place in self._places:
            most = _seen.get(place, mark)
            _seen[place] = max(
                most, mark, key=lambda one: (one.n_entries, one.n_limits, one.n_pieces)
            )

    def _require_end(self, connection: sqlite3.Connection, table: str, last: int) -> None:
        """Refuse a table whose last rows were taken out."""
        known = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,))
        if (known.fetchone() or (0,))[0] != last:
            raise self._damaged(f"the last {table} are missing")

    def _damaged(self, detail: str) -> LedgerError:
        return LedgerError(
            f"Got {self.path}, which is damaged ({detail}), expected a ledger as it was written."
            " Restore it from a copy: what it lost cannot be counted."
        )

    def _explained(self, error: sqlite3.Error) -> LedgerError:
        text = str(error)
        # Code by code; a message alone would not be stable.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            return LedgerError(f"Got {self.path}, which is no database, expected a ledger.")
        if code == sqlite3.SQLITE_CORRUPT:
            return self._damaged(text)
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return LedgerError(
                f"Got {self.path}, which cannot be opened or written ({text}), expected a file and"
                " a directory that this user may write. Nothing was stored."
            )
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return LedgerError(
                f"Got {self.path} locked by another process for {_PATIENCE:g} seconds, expected it"
                " to become free. Nothing was stored."
            )
        return LedgerError(f"Got {self.path}, which failed ({text}), expected it to work.")


def network_file_system(path: str) -> str:
    """Return the type of the network file system that a path is on, or an empty text.

    Known from the table of mounts on Linux, and from the path on Windows; elsewhere nothing is
    known.
    """
    if sys.platform == "win32":
        return "a share" if path.startswith("\\\\") else ""
    try:
        lines = Path(_MOUNTS).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # the last one of equals is on top
            best, kind = point, fields[2]
    return kind if kind in _NETWORK else ""


def _checksum(*texts: str) -> str:
    """Against damage, not against malice."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
