"""Relative paths in processes that were started elsewhere: one account, or a refusal."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

import pytest

from skdpadmm.ledger import LedgerError, PrivacyLedger, _paths
from skdpadmm.privacy import GaussianDP

needs_proc = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the directory of another process is not known"
)

BEGIN = """
import os, sys, warnings
import numpy as np
from sklearn.model_selection import GridSearchCV, cross_val_score
from skdpadmm import DPAdmmRidge
from skdpadmm.ledger import PrivacyLedger

warnings.simplefilter("ignore")
X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
y = X[:, 0]
kind = sys.argv[1]
model = DPAdmmRidge(epsilon=1.0, delta=1e-6, max_iter=3, ledger="s.db")
"""

MOVED = (
    BEGIN
    + """
from joblib import parallel_backend

with parallel_backend(kind):
    for name in "ab":
        os.mkdir(name)
    os.chdir("a")
    print(np.isfinite(cross_val_score(model, X, y, cv=2, n_jobs=2)).sum())
    os.chdir("../b")
    PrivacyLedger("s.db").limit(0.5, 1e-5)
    try:
        print(np.isfinite(cross_val_score(model, X, y, cv=4, n_jobs=2)).sum())
    except ValueError as error:
        print("LedgerError" in str(error), "Use an absolute path" in str(error))
        print("PrivacyBudgetExceeded" in str(error))
    print(*[len(PrivacyLedger(f"../{name}/s.db").entries()) for name in "ab"])
    absolute = model.set_params(ledger=os.path.abspath("../a/s.db"))
    print(np.isfinite(cross_val_score(absolute, X, y, cv=4, n_jobs=2)).sum())
    print(len(PrivacyLedger("../a/s.db").entries()))
"""
)

ORDINARY = (
    BEGIN
    + """
GridSearchCV(model, {"epsilon": [0.1, 0.2]}, cv=3, n_jobs=4).fit(X, y)
print(len(PrivacyLedger("s.db").entries()))
os.mkdir("below")
os.chdir("below")
account = PrivacyLedger("../s.db")
os.chdir("..")
print(len(account.entries()))
"""
)


def run(script, directory, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=directory, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs_proc
def test_workers_that_stayed_behind_count_nowhere_else(tmp_path):
    # Two fits in one directory; nothing in the other one, as workers are still in the first.
    said = run(MOVED, tmp_path, "loky")
    assert said == ["2", "True True", "False", "2 0", "4", "6"]


@needs_proc
def test_workers_that_come_along_meet_the_limit(tmp_path):
    said = run(MOVED, tmp_path, "multiprocessing")
    assert said == ["2", "False False", "True", "2 0", "4", "6"]


@needs_proc
def test_a_search_with_a_relative_path_is_in_one_account(tmp_path):
    assert run(ORDINARY, tmp_path, "") == ["7", "7"]


def resolve(path, directory, queue):
    """What a worker makes of a path, in a directory that it goes to."""
    try:
        if directory is not None:
            os.chdir(directory)
        queue.put(PrivacyLedger(path).path)
    except LedgerError as error:
        queue.put(str(error))


@needs_proc
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_worker_in_another_directory_needs_an_absolute_path(tmp_path, monkeypatch, method):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    for path, directory in (
        ("study.db", str(tmp_path)),
        ("study.db", "below"),
        (str(tmp_path / "study.db"), "below"),
    ):
        process = context.Process(target=resolve, args=(path, directory, queue))
        process.start()
        said = queue.get(timeout=120)
        process.join(120)
        if path == "study.db" and directory == "below":
            assert "Got the relative path 'study.db'" in said
            assert "Use an absolute path" in said
        else:
            assert said == str(tmp_path / "study.db")


@pytest.mark.parametrize("known", ["a parent", "a name"])
def test_where_the_directory_of_the_starter_is_not_known_a_relative_path_is_refused(
    tmp_path, monkeypatch, gaussian, known
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_paths, "_PROCESSES", str(tmp_path / "no such place"))
    PrivacyLedger("study.db").reserve(gaussian)  # a main process asks nobody
    if known == "a parent":
        parent = multiprocessing.current_process()
        monkeypatch.setattr(multiprocessing, "parent_process", lambda: parent)
    else:
        monkeypatch.setattr(multiprocessing.current_process(), "name", "LokyProcess-1")
    with pytest.raises(LedgerError, match="cannot be known here"):
        PrivacyLedger("study.db")
    assert PrivacyLedger(tmp_path / "study.db").guarantee() == GaussianDP(0.1)


@needs_proc
def test_a_worker_without_a_parent_that_is_told_asks_its_starter(tmp_path, monkeypatch):
    monkeypatch.setattr(multiprocessing.current_process(), "name", "LokyProcess-1")
    monkeypatch.setattr(os, "getppid", os.getpid)
    monkeypatch.chdir(tmp_path)
    assert PrivacyLedger("study.db").path == str(tmp_path / "study.db")
    monkeypatch.setattr(os, "getppid", lambda: 2**22 + 1)  # nobody's
    with pytest.raises(LedgerError, match="absolute path"):
        PrivacyLedger("study.db")
