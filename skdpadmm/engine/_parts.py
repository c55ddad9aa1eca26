"""Parts that are placed once and then called round by round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray


class PlacedParts(ABC):
    """Objects with a state of their own, which stays where they were placed.

    Attributes
    ----------
    bytes_sent : int, default=0
        Bytes of arguments and results that left a process since the parts were placed.
    """

    bytes_sent: int = 0

    def sum(self, method: str, *args: object) -> NDArray[np.float64]:
        """Sum of ``part.method(*args)`` over all parts, always in their order.

        Parameters
        ----------
        method : str
            Name of a method that returns a fresh array; it may be added to in place.
        *args : object
            Its arguments, the same for every part. Only read, since parts may share them.

        Returns
        -------
        total : ndarray of float64
            Of the shape that the method returns.
        """
        results = iter(self._call(method, args, wanted=True))
        total = next(results)
        for result in results:
            total += result
        return total

    def run(self, method: str, *args: object) -> None:
        """Call ``part.method(*args)`` on all parts; what it returns is dropped where it is."""
        for _ in self._call(method, args, wanted=False):
            pass

    @abstractmethod
    def _call(self, method: str, args: tuple[object, ...], *, wanted: bool) -> Iterable[Any]:
        """Results of a method in the order of the parts, or nothing if they are not wanted."""


@dataclass(eq=False)
class LocalParts(PlacedParts):
    """Parts of this process, called one after the other or by a pool of threads."""

    parts: Sequence[object]
    pool: ThreadPoolExecutor | None

    def _call(self, method: str, args: tuple[object, ...], *, wanted: bool) -> Iterable[Any]:
        spread = self.pool.map if self.pool is not None and len(self.parts) > 1 else map
        return spread(partial(call_part, method=method, args=args), self.parts)


def call_part(part: object, method: str, args: tuple[object, ...]) -> Any:
    """``part.method(*args)`` without a warning of floating point, which would depend on data."""
    with np.errstate(all="ignore"):
        return getattr(part, method)(*args)
