"""Paths of ledgers: a file, and perhaps the name of a data set."""

from __future__ import annotations

import multiprocessing
import os
import re
import unicodedata
from typing import Any

from skdpadmm.ledger._errors import LedgerError

_LONGEST_NAME = 100
_PROCESSES = "/proc"
# What Unicode lets a program draw as nothing, of what counts as printable.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)


def parsed_path(path: Any) -> tuple[str, str]:
    """Return the file and the name of the data set, an empty text if there is none."""
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
    return file, dataset_name(name) if name else ""


def absolute_path(file: str) -> str:
    """Return a file's absolute path, links in it as they are.

    Workers of a pool live on, in the directory in which they were started, when the process that
    started them goes to another one: there the same relative path would be another ledger.

    Raises
    ------
    LedgerError
        In a worker, if it is not known to be in the directory of the process that started it.
    """
    if os.path.isabs(file):
        return file
    starter = _starter()
    if starter is not None and not _is_in_directory_of(starter):
        raise LedgerError(
            f"Got the relative path {file!r} in a worker process that is in {os.getcwd()}, expected"
            " one in the directory of the process that started it: it would be another ledger, or"
            " that cannot be known here. Use an absolute path, os.path.abspath(path)."
        )
    # Not normalised: behind a link ".." leads elsewhere.
    return os.path.join(os.getcwd(), file)


def _starter() -> int | None:
    """The process that a worker works for; None in a main process."""
    parent = multiprocessing.parent_process()
    if parent is not None:  # loky's workers have one too
        return parent.pid
    return None if multiprocessing.current_process().name == "MainProcess" else os.getppid()


def _is_in_directory_of(pid: int) -> bool:
    """Whether another process is where this one is; False where it cannot be known."""
    try:
        return os.path.samestat(os.stat(f"{_PROCESSES}/{pid}/cwd"), os.stat(os.curdir))
    except OSError:
        return False


def folded_name(name: str) -> str:
    """Return what names have in common that are one for a reader: letters of any case and width.

    Marks and letters that are not drawn count for nothing.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "".join(letter for letter in folded if not _UNSEEN.match(letter))


def dataset_name(name: Any) -> str:
    """Return the name of a data set as it is stored."""
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
