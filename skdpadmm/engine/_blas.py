"""One thread for BLAS."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


def one_blas_thread() -> AbstractContextManager[Any]:
    """Hold BLAS at one thread: the bits of its results depend on how many it has."""
    return _thread_pools().limit(limits=1, user_api="blas")


@cache
def _thread_pools() -> ThreadpoolController:
    """Find the BLAS libraries once: looking for them takes longer than a small fit."""
    return ThreadpoolController()
