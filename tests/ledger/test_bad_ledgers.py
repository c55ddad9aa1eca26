"""Files that are missing, old, new, damaged, swapped, locked or in the wrong place."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import sys
from contextlib import closing

import pytest

from skdpadmm.ledger import LedgerError, PrivacyBudgetExceeded, PrivacyLedger, _database
from skdpadmm.privacy import GaussianDP


def change(path, *statements):
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def unguarded(path, *statements):
    """Change a file as no ledger does."""
    change(
        path,
        "DROP TRIGGER nothing_is_taken_back",
        "DROP TRIGGER nothing_is_rewritten",
        *statements,
    )


@pytest.fixture
def ledger(path, gaussian):
    ledger = PrivacyLedger(path)
    for _ in range(3):
        ledger.finish(ledger.reserve(gaussian))
    return ledger


@pytest.fixture
def elsewhere(start):
    """What a process says that has not met the ledger."""

    def run(path, use):
        script = (
            f"\ntry:\n    PrivacyLedger(path).{use}\nexcept Exception as error:\n    print(error)"
        )
        out, err = start(script, path).communicate(timeout=120)
        assert not err
        return out

    return run


@pytest.mark.parametrize(
    "path", ["", "::adult", "study.db::", ":memory:", "study.db:: adult", "a.db::x\ny", "a\0b",
             "study.db::" + "x" * 101, "dir/", "a.db::\x1b[31m"]
)  # fmt: skip
def test_paths_that_name_no_file_are_refused(path):
    with pytest.raises(ValueError, match=r"Got .* expected"):
        PrivacyLedger(path)


@pytest.mark.parametrize("path", [None, 1, b"study.db"])
def test_paths_of_other_types_are_refused(path):
    with pytest.raises(TypeError):
        PrivacyLedger(path)


def test_paths_with_signs_of_addresses_are_files(tmp_path, gaussian):
    path = tmp_path / "100% a?b#c :d.db"
    PrivacyLedger(path).reserve(gaussian)
    assert path.is_file()
    assert PrivacyLedger(path).guarantee() == GaussianDP(0.1)


def test_to_ask_a_ledger_that_is_not_there_is_an_error_and_makes_none(path):
    ledger = PrivacyLedger(path)
    for ask in (lambda: ledger.total(1e-6), ledger.entries, ledger.limits):
        with pytest.raises(LedgerError, match="no such file"):
            ask()
    assert not os.path.exists(path)


def test_a_missing_directory_is_not_made(tmp_path, gaussian):
    with pytest.raises(LedgerError, match="existing directory"):
        PrivacyLedger(tmp_path / "missing" / "study.db").reserve(gaussian)
    with pytest.raises(LedgerError, match="expected a file"):
        PrivacyLedger(tmp_path).reserve(gaussian)
    assert list(tmp_path.iterdir()) == []


def test_nothing_else_is_left_in_the_directory(ledger, tmp_path):
    assert [p.name for p in tmp_path.iterdir()] == ["study.db"]


@pytest.mark.parametrize("content", [b"", b"no database at all" * 100, b"SQLite format 3\0"])
def test_what_is_no_database_is_refused_and_stays_as_it_was(path, gaussian, content):
    with open(path, "wb") as file:
        file.write(content)
    for use in (lambda: PrivacyLedger(path).reserve(gaussian), PrivacyLedger(path).entries):
        with pytest.raises(LedgerError, match=r"Got .* expected"):
            use()
    with open(path, "rb") as file:
        assert file.read() == content


def test_another_programs_database_is_refused(path, gaussian):
    change(path, "CREATE TABLE entries (id INTEGER)")
    with pytest.raises(LedgerError, match="another program's"):
        PrivacyLedger(path).reserve(gaussian)


@pytest.mark.parametrize("version", [0, 2, 1000])
def test_another_version_is_refused(ledger, path, gaussian, version):
    change(path, f"PRAGMA user_version = {version}")
    with pytest.raises(LedgerError, match="Update"):
        ledger.reserve(gaussian)
    with pytest.raises(LedgerError, match="Update"):
        ledger.total(1e-6)


def test_a_file_that_vanishes_is_not_begun_anew(ledger, path, gaussian):
    os.rename(path, f"{path}.away")
    with pytest.raises(LedgerError, match="forget what was spent"):
        ledger.reserve(gaussian)
    with pytest.raises(LedgerError, match="forget what was spent"):
        PrivacyLedger(path).total(1e-6)
    assert not os.path.exists(path)
    os.rename(f"{path}.away", path)
    ledger.reserve(gaussian)
    assert len(ledger.entries()) == 4


def test_a_ledger_that_takes_anothers_place_is_refused(ledger, path, tmp_path, gaussian):
    other = tmp_path / "other.db"
    PrivacyLedger(other).reserve(gaussian)
    shutil.copy(other, path)
    for use in (lambda: ledger.reserve(gaussian), lambda: PrivacyLedger(path).total(1e-6)):
        with pytest.raises(LedgerError, match="another ledger"):
            use()


def test_an_old_copy_in_its_place_is_noticed(ledger, path, tmp_path, gaussian):
    shutil.copy(path, tmp_path / "copy.db")
    ledger.reserve(gaussian)
    assert len(ledger.entries()) == 4
    shutil.copy(tmp_path / "copy.db", path)
    for use in (lambda: ledger.reserve(gaussian), lambda: PrivacyLedger(path).total(1e-6)):
        with pytest.raises(LedgerError, match="older"):
            use()


def test_a_fit_whose_ledger_was_swapped_cannot_be_finished(path, tmp_path, gaussian, elsewhere):
    ledger = PrivacyLedger(path)
    key = ledger.reserve(gaussian)
    other = tmp_path / "other.db"
    PrivacyLedger(other).reserve(gaussian)
    os.replace(other, path)
    with pytest.raises(LedgerError, match="another ledger"):
        ledger.finish(key)
    assert f"Got key={key!r}" in elsewhere(path, f"finish({key!r})")


def test_a_file_that_is_deleted_while_it_is_written_is_noticed(ledger, path, gaussian, monkeypatch):
    add = _database.Database.add

    def add_and_delete(*values):
        key = add(*values)
        os.unlink(path)
        return key

    monkeypatch.setattr(_database.Database, "add", staticmethod(add_and_delete))
    with pytest.raises(LedgerError, match="replaced or deleted"):
        ledger.reserve(gaussian)


def test_a_ledger_cut_off_is_damaged(ledger, path, elsewhere):
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        file.truncate(size - 4096)
    assert "damaged" in elsewhere(path, "total(1e-6)")


def test_overwritten_pages_are_damage(ledger, path, elsewhere):
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(os.urandom(8192))
    said = elsewhere(path, "reserve(entry(0.1))")
    assert "damaged" in said or "failed" in said


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM entries WHERE id = 2",
        "DELETE FROM entries WHERE id = 3",
        "DELETE FROM entries",
        "UPDATE entries SET promise = replace(promise, '0.1', '0.0')",
        "UPDATE entries SET dataset = 'elsewhere' WHERE id = 1",
        "UPDATE entries SET id = 7 WHERE id = 3",
    ],
)
def test_entries_that_were_taken_out_or_changed_are_noticed(ledger, path, gaussian, statement):
    with pytest.raises(sqlite3.DatabaseError, match="never"):
        change(path, statement)
    assert len(ledger.entries()) == 3
    unguarded(path, statement)
    for use in (lambda: ledger.total(1e-6), lambda: ledger.reserve(gaussian)):
        with pytest.raises(LedgerError, match="damaged"):
            use()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM limits WHERE id = 1",
        "DELETE FROM limits WHERE id = 2",
        "DELETE FROM limits",
        "UPDATE limits SET terms = replace(terms, '0.5', '9.5')",
        "UPDATE limits SET dataset = 'elsewhere' WHERE id = 2",
        "UPDATE limits SET id = 7 WHERE id = 2",
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_limits_that_were_taken_out_or_changed_are_noticed(path, statement, known, elsewhere):
    prepare = "limit(3.0, 1e-6); PrivacyLedger(path).limit(0.5, 1e-6)"
    assert elsewhere(path, prepare) == ""
    ledger = PrivacyLedger(path)
    if known:
        assert [limit["epsilon"] for limit in ledger.limits()] == [0.5]
    with pytest.raises(sqlite3.DatabaseError, match="never"):
        change(path, statement)
    change(
        path, "DROP TRIGGER no_limit_is_taken_back", "DROP TRIGGER no_limit_is_rewritten", statement
    )
    for use in ("reserve(entry(0.01))", "limits()", "total(1e-6)", "limit(9.0, 1e-6)"):
        assert "damaged" in elsewhere(path, use)
    with pytest.raises(LedgerError, match="damaged"):
        ledger.limits()


def test_limits_are_added_and_the_last_one_holds(path, gaussian):
    ledger = PrivacyLedger(path)
    for epsilon in (3.0, 0.1, 2.0):
        ledger.limit(epsilon, 1e-6)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM limits").fetchone() == (3,)
    assert [limit["epsilon"] for limit in ledger.limits()] == [2.0]
    ledger.reserve(gaussian)


@pytest.mark.parametrize("statement", ["DELETE FROM pieces", "UPDATE pieces SET first = 99"])
def test_pieces_of_streams_are_never_taken_back(ledger, path, gaussian, statement):
    key = ledger.reserve(gaussian)
    assert ledger.advance(key, 0)
    with pytest.raises(sqlite3.DatabaseError, match="never"):
        change(path, statement)
    assert not ledger.advance(key, 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"version":1', '"version":2'),
        ('"version":1', '"version":true'),
        ('"kind":"gaussian"', '"kind":"newer"'),
        ('"mu":0.1', '"mu":-0.1'),
        ('"mu":0.1', '"mu":0.1,"more":1'),
        ('"unit":"record"', '"unit":"person"'),
        ('"simulation":false', '"simulation":0'),
        ('"neighboring":"replace_one"', '"neighboring":"add_one"'),
    ],
)
def test_entries_that_are_not_known_in_full_are_refused(ledger, path, entry, store, old, new):
    promise = entry(GaussianDP(0.1)).promise()
    assert old in promise
    store(path, promise.replace(old, new), entry(GaussianDP(0.1)).record())
    with pytest.raises(LedgerError, match="Got an entry"):
        ledger.total(1e-6)
    with pytest.raises(LedgerError, match="Got an entry"):
        ledger.limit(1.0, 1e-6)


@pytest.mark.parametrize(
    "terms",
    [
        "",
        "{}",
        "[]",
        '{"version":2,"epsilon":1,"delta":0,"disjoint":false,"unit":null,"neighboring":null}',
        '{"version":1,"epsilon":-1,"delta":0,"disjoint":false,"unit":null,"neighboring":null}',
        '{"version":1,"epsilon":1,"delta":0,"disjoint":false,"unit":null,"neighboring":null,"x":1}',
    ],
)
def test_limits_that_are_not_known_in_full_refuse_every_fit(ledger, path, gaussian, terms):
    checksum = hashlib.sha256(f"1\n\n{terms}".encode()).hexdigest()
    change(path, f"INSERT INTO limits VALUES (1, '', '{terms}', '{checksum}')")
    with pytest.raises(LedgerError, match="Got a limit"):
        ledger.reserve(gaussian)


def test_whoever_holds_the_lock_too_long_is_named(ledger, path, gaussian, monkeypatch):
    monkeypatch.setattr(_database, "_PATIENCE", 0.1)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerError, match="locked"):
        ledger.reserve(gaussian)
    assert len(ledger.entries()) == 3
    holder.execute("ROLLBACK")
    holder.close()
    ledger.reserve(gaussian)


READ_ONLY = """
directory = os.path.dirname(path)
PrivacyLedger(path).reserve(entry(0.1))
os.chmod(path, 0o444)
os.chmod(directory, 0o555)
if os.geteuid() == 0:  # nothing is read-only to root
    os.setgid(65534)
    os.setuid(65534)
ledger = PrivacyLedger(path)
for target in (ledger, PrivacyLedger(os.path.join(directory, "new.db"))):
    try:
        target.reserve(entry(0.1))
    except Exception as error:
        print(type(error).__name__, "Nothing was stored" in str(error) or "no ledger" in str(error))
print(len(ledger.entries()), ledger.guarantee())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_a_read_only_disk_can_be_asked_and_not_written(start):
    import tempfile

    directory = tempfile.mkdtemp()  # not below a directory that only this user may enter
    try:
        os.chmod(directory, 0o755)
        process = start(READ_ONLY, os.path.join(directory, "study.db"))
        out, err = process.communicate(timeout=60)
    finally:
        os.chmod(directory, 0o755)
        shutil.rmtree(directory)
    assert out.splitlines() == ["LedgerError True", "LedgerError True", "1 GaussianDP(mu=0.1)"], err


def mounted(monkeypatch, tmp_path, text):
    mounts = tmp_path / "mounts"
    mounts.write_text(text, encoding="utf-8")
    monkeypatch.setattr(_database, "_MOUNTS", str(mounts))


@pytest.mark.skipif(sys.platform == "win32", reason="there is no table of mounts")
@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "lustre", "9p"])
def test_a_network_file_system_is_refused_unless_told(tmp_path, path, gaussian, monkeypatch, kind):
    mounted(monkeypatch, tmp_path, f"/dev/a / ext4 rw 0 0\nserver:/a {tmp_path} {kind} rw 0 0\n")
    with pytest.raises(LedgerError, match=f"network file system .{kind}."):
        PrivacyLedger(path).reserve(gaussian)
    assert not os.path.exists(path)
    PrivacyLedger(path, allow_network=True)
    # The ledger remembers, for all who have nothing but its path.
    PrivacyLedger(f"{path}::adult").reserve(gaussian)
    assert PrivacyLedger(path).guarantee() == GaussianDP(0.1)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no table of mounts")
def test_the_nearest_mount_decides(tmp_path, path, gaussian, monkeypatch):
    table = f"server:/ / nfs4 rw 0 0\n/dev/a {tmp_path} nfs rw 0 0\n/dev/b {tmp_path} ext4 rw 0 0\n"
    mounted(monkeypatch, tmp_path, table)
    PrivacyLedger(path).reserve(gaussian)
    assert _database.network_file_system(str(tmp_path) + "-beside/x") == "nfs4"
    spaced = str(tmp_path / "a b")
    mounted(monkeypatch, tmp_path, "s:/ " + spaced.replace(" ", "\\040") + " cifs rw 0 0\n")
    assert _database.network_file_system(spaced + "/x.db") == "cifs"
    assert _database.network_file_system(str(tmp_path / "x.db")) == ""


def test_a_link_is_the_file_it_leads_to(ledger, path, tmp_path, gaussian):
    link = tmp_path / "link.db"
    try:
        link.symlink_to(path)
    except OSError:
        pytest.skip("no links here")
    PrivacyLedger(link).reserve(gaussian)
    assert len(ledger.entries()) == 4


def test_a_relative_path_stays_where_it_began(tmp_path, gaussian, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = PrivacyLedger("study.db")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    ledger.reserve(gaussian)
    assert (tmp_path / "study.db").is_file()


@pytest.fixture
def verified(monkeypatch):
    """Fits that were verified, or made verifiable."""
    seen, checksum = [], _database._checksum

    def count(*values):
        if len(values) == 4:
            seen.append(values)
        return checksum(*values)

    monkeypatch.setattr(_database, "_checksum", count)
    return seen


@pytest.mark.parametrize("limited", [False, True])
def test_a_fit_verifies_what_was_added_and_a_question_verifies_all(
    ledger, path, gaussian, store, verified, limited
):
    if limited:
        ledger.limit(9.0, 1e-6)
    ledger.reserve(gaussian)
    verified.clear()
    ledger.reserve(gaussian)
    assert len(verified) == 2  # the one of the last reservation, and the new one
    for _ in range(3):
        store(path, gaussian.promise(), gaussian.record())
    verified.clear()
    PrivacyLedger(path).reserve(gaussian)
    assert len(verified) == 1 + 3 + 1
    verified.clear()
    assert ledger.guarantee().mu == pytest.approx(0.3)
    assert len(verified) == 9


def test_what_is_added_is_verified_by_every_fit(ledger, path, gaussian):
    ledger.reserve(gaussian)
    change(
        path,
        "INSERT INTO entries (key, dataset, promise, record, checksum)"
        " SELECT 'k', dataset, promise, record, checksum FROM entries WHERE id = 1",
    )
    with pytest.raises(LedgerError, match="damaged"):
        ledger.reserve(gaussian)


@pytest.mark.parametrize("n_more", [1, 2, 5])
def test_a_copy_that_went_another_way_is_refused(ledger, path, tmp_path, entry, elsewhere, n_more):
    copy = str(tmp_path / "copy.db")
    shutil.copy(path, copy)
    for _ in range(2):
        ledger.reserve(entry(GaussianDP(2.0)))
    for _ in range(n_more):
        assert elsewhere(copy, "reserve(entry(0.01))") == ""
    shutil.copy(copy, path)
    for use in (
        lambda: ledger.reserve(entry(GaussianDP(0.6))),
        lambda: PrivacyLedger(path).total(1e-6),
        lambda: ledger.finish("0" * 32),
    ):
        with pytest.raises(LedgerError, match="gone another way"):
            use()


def test_what_a_process_wrote_last_it_has_seen(ledger, path, tmp_path, gaussian):
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    ledger.reserve(gaussian)
    shutil.copy(copy, path)
    with pytest.raises(LedgerError, match="older"):
        ledger.total(1e-6)


@pytest.mark.parametrize("write", ["limit(8.0, 1e-6)", "advance(key, 7)"])
def test_an_old_copy_of_limits_or_of_streams_is_noticed(ledger, path, tmp_path, gaussian, write):
    key = ledger.reserve(gaussian)
    ledger.limit(9.0, 1e-6)
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    eval(f"ledger.{write}", {"ledger": ledger, "key": key})
    shutil.copy(copy, path)
    with pytest.raises(LedgerError, match="older"):
        ledger.reserve(gaussian)


@pytest.mark.parametrize("other", ["another", "a copy", "nothing", "a directory"])
def test_a_link_that_leads_elsewhere_now_is_refused(path, tmp_path, gaussian, elsewhere, other):
    link, target = str(tmp_path / "link.db"), str(tmp_path / "other.db")
    if other == "a directory":
        os.mkdir(tmp_path / "a")
        os.mkdir(tmp_path / "b")
        (tmp_path / "link").symlink_to(tmp_path / "a")
        link, path = str(tmp_path / "link" / "study.db"), str(tmp_path / "a" / "study.db")
    elif not hasattr(os, "symlink"):
        pytest.skip("no links here")
    else:
        os.symlink(path, link)
    PrivacyLedger(path).reserve(gaussian)
    if other == "another":
        assert elsewhere(target, "reserve(entry(0.1))") == ""
    elif other == "a copy":
        shutil.copy(path, target)
    PrivacyLedger(link).limit(0.5, 1e-6)
    if other == "a directory":
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to(tmp_path / "b")
    else:
        os.unlink(link)
        os.symlink(target, link)
    for use in (
        lambda: PrivacyLedger(link).reserve(gaussian),
        lambda: PrivacyLedger(link).total(1e-6),
    ):
        with pytest.raises(LedgerError, match=r"Put|Restore"):
            use()
    assert not os.path.exists(tmp_path / "b" / "study.db")
    assert os.path.exists(target) == (other in ("another", "a copy"))
    # By its own path it is what it was.
    assert len(PrivacyLedger(path).entries()) == 1


def test_a_fit_counts_what_its_process_has_verified_whatever_became_of_it(ledger, path, entry):
    ledger.limit(GaussianDP(1.0).epsilon(1e-6), 1e-6)
    ledger.reserve(entry(GaussianDP(0.9)))
    ledger.entries()
    # Triggers do not see it: a replacement is no deletion.
    change(
        path,
        "INSERT OR REPLACE INTO entries"
        " SELECT id, key, dataset, replace(promise, '0.1', '0.0'), record, checksum, finished"
        " FROM entries WHERE id = 2",
    )
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.reserve(entry(GaussianDP(0.42)))
    with pytest.raises(LedgerError, match="damaged"):
        ledger.total(1e-6)
