"""Neighbouring relations."""

from __future__ import annotations

from enum import StrEnum


class Neighboring(StrEnum):
    """Which data sets a guarantee makes hard to tell apart.

    - ``REPLACE_ONE``: the number of records is fixed and public; one record is replaced by any
      other.
    - ``ZERO_OUT``: the number of records is fixed and public; one record's loss is replaced by the
      zero function. Under sampling it is stronger: the participant is absent, its message zero.

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
