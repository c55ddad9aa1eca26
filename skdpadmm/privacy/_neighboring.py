"""Neighbouring relations."""

from __future__ import annotations

import math
from enum import StrEnum


class Neighboring(StrEnum):
    """Which data sets a guarantee makes hard to tell apart.

    - ``REPLACE_ONE``: the number of records is fixed and public; one record is replaced by any
      other.
    - ``ZERO_OUT``: the number of records is fixed and public; one record's loss is replaced by the
      zero function. It counts as absent from a released second moment and from a histogram of
      scales. Under sampling the participant is absent, its message zero.

    Examples
    --------
    >>> from skdpadmm.privacy import Neighboring
    >>> Neighboring("replace_one").sensitivity_factor
    2
    """

    REPLACE_ONE = "replace_one"
    ZERO_OUT = "zero_out"

    @property
    def sensitivity_factor(self) -> int:
        """How far a contribution clipped to norm C can move, in units of C: 2 or 1."""
        return 2 if self is Neighboring.REPLACE_ONE else 1

    @property
    def second_moment_factor(self) -> float:
        """How far ``a a'`` of a row of norm R can move in Frobenius norm, in units of ``R**2``.

        ``|aa' - bb'|^2 = |a|^4 + |b|^4 - 2 (a'b)^2`` is at most ``2 R^4``.
        """
        return math.sqrt(2.0) if self is Neighboring.REPLACE_ONE else 1.0
