"""Files that are missing, new, damaged, swapped, locked or in the wrong place."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from contextlib import closing

import pytest

from skdpadmm.ledger import LedgerEntry, LedgerError, PrivacyLedger, _database, _ledger, _paths
from skdpadmm.privacy import GaussianDP

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")


@pytest.fixture
def ledger(ledger, gaussian):
    ledger.finish(ledger.reserve(gaussian))
    return ledger


@pytest.mark.parametrize(
    "path", ["", "::adult", "study.db::", ":memory:", "study.db:: adult", "a.db::x\ny", "a\0b",
             "study.db::" + "x" * 101, "dir/", None, b"study.db"]
)  # fmt: skip
def test_paths_that_name_no_file_are_refused(path):
    with pytest.raises((TypeError, ValueError), match=r"Got .* expected|expected str"):
        PrivacyLedger(path)


def test_a_path_may_have_signs_of_addresses_and_stays_where_it_began(
    tmp_path, gaussian, monkeypatch
):
    name = "100% a?b#c :d.db"
    monkeypatch.chdir(tmp_path)
    ledger = PrivacyLedger(name)
    monkeypatch.chdir("/")
    ledger.reserve(gaussian)
    assert [p.name for p in tmp_path.iterdir()] == [name]
    (tmp_path / "link.db").symlink_to(tmp_path / name)
    assert PrivacyLedger(tmp_path / "link.db").guarantee() == GaussianDP(0.1)


def test_questions_make_no_ledger_and_no_directory_is_made(ledger, tmp_path, gaussian):
    other = PrivacyLedger(tmp_path / "other.db")
    for ask in (other.entries, other.limits, lambda: other.advance("0" * 32, 0)):
        with pytest.raises(LedgerError, match="no such file"):
            ask()
    for bad, words in (("missing/study.db", "existing directory"), ("", "expected a file")):
        with pytest.raises(LedgerError, match=words):
            PrivacyLedger(tmp_path / bad).reserve(gaussian)
    assert [p.name for p in tmp_path.iterdir()] == ["study.db"]


@pytest.mark.parametrize("content", [b"", b"no database at all" * 100, b"SQLite format 3\0"])
def test_what_is_no_database_is_refused_and_stays_as_it_was(tmp_path, gaussian, content):
    path = tmp_path / "study.db"
    path.write_bytes(content)
    for use in (lambda: PrivacyLedger(path).reserve(gaussian), PrivacyLedger(path).entries):
        with pytest.raises(LedgerError, match=r"Got .* expected"):
            use()
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("PRAGMA application_id = 0", "another program's"),
        ("PRAGMA user_version = 2", "Update"),
        ("UPDATE entries SET promise = replace(promise, '0.1', '0.0') WHERE id = 1", "damaged"),
    ],
)
def test_another_programs_another_versions_and_edited_files_are_refused(
    ledger, path, gaussian, statement, words
):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER nothing_is_rewritten")
        connection.execute(statement)
    for use in (lambda: ledger.reserve(gaussian), lambda: ledger.total(1e-6)):
        with pytest.raises(LedgerError, match=words):
            use()


def test_a_file_that_vanishes_or_is_older_is_no_new_beginning(ledger, path, gaussian):
    before = shutil.copy(path, f"{path}.before")
    ledger.reserve(gaussian)
    os.unlink(path)
    with pytest.raises(LedgerError, match="forget what was spent"):
        ledger.reserve(gaussian)
    shutil.copy(before, path)
    with pytest.raises(LedgerError, match="older"):
        ledger.reserve(gaussian)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"version":1', '"version":2'), ('"kind":"gaussian"', '"kind":"newer"'),
        ('"mu":0.1', '"mu":-0.1'), ('"mu":0.1', '"mu":0.1,"more":1'),
        ('"simulation":false', '"simulation":0'), ('"replace_one"', '"add_one"'),
    ],
)  # fmt: skip
def test_entries_that_are_not_known_in_full_are_refused(ledger, gaussian, monkeypatch, old, new):
    honest, known = LedgerEntry.promise, _ledger.read_promise(gaussian.promise())
    with monkeypatch.context() as newer:  # a later version of this library writes it
        newer.setattr(LedgerEntry, "promise", lambda entry: honest(entry).replace(old, new))
        newer.setattr(_ledger, "read_promise", lambda text: known)
        ledger.reserve(gaussian)
    with pytest.raises(LedgerError, match="Got an entry"):
        ledger.total(1e-6)


def test_limits_that_are_not_known_in_full_refuse_every_fit(ledger, gaussian, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(_ledger, "terms_of", lambda limit: '{"epsilon": 9.5, "more": 1}')
        ledger.limit(9.5, 1e-6)
    with pytest.raises(LedgerError, match="Got a limit"):
        ledger.reserve(gaussian)


def test_whoever_holds_the_lock_too_long_is_named(ledger, path, gaussian, monkeypatch):
    monkeypatch.setattr(_database, "_PATIENCE", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="locked"):
            ledger.reserve(gaussian)
        assert len(ledger.entries()) == 1
    ledger.reserve(gaussian)


@on_linux
def test_network_file_systems_and_relative_paths_of_workers_elsewhere_are_refused(
    tmp_path, path, gaussian, monkeypatch
):
    monkeypatch.setattr(_paths, "_starter", lambda: 2**22 + 1)
    with pytest.raises(LedgerError, match="Use an absolute path"):
        PrivacyLedger("study.db")
    monkeypatch.setattr(_database, "_MOUNTS", str(tmp_path / "mounts"))
    (tmp_path / "mounts").write_text(f"/dev/a / ext4 rw 0 0\nserver:/a {tmp_path} nfs4 rw 0 0\n")
    with pytest.raises(LedgerError, match=r"network file system .nfs4."):
        PrivacyLedger(path).reserve(gaussian)
    PrivacyLedger(path, allow_network=True)
    PrivacyLedger(path).reserve(gaussian)  # the ledger remembers
