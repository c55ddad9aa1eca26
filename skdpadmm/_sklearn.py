"""The only file that imports scikit-learn's private helpers: parameters are declared with them.

The helpers may move with any release of scikit-learn. Works on 1.6.1 to 1.9.1; what is public there
(``validate_data``, ``check_is_fitted``, tags) is imported directly where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils import _param_validation, _safe_indexing
from sklearn.utils._param_validation import HasMethods, Options, StrOptions

__all__ = [
    "ALGORITHM",
    "AT_LEAST_0",
    "AT_LEAST_1",
    "POSITIVE",
    "POSITIVE_OR_INF",
    "SHARE",
    "HasMethods",
    "Interval",
    "LinkedEstimator",
    "Options",
    "StrOptions",
    "_fit_context",
    "_safe_indexing",
    "absent",
    "converting",
    "parameter",
]


# A placeholder, until the documentation is published somewhere.
DOCUMENTATION = "https://skdpadmm.example/stable"


class LinkedEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose diagram links to its page of this package's API reference."""

    _doc_link_module = "skdpadmm"
    _doc_link_template = DOCUMENTATION + "/generated/{estimator_module}.{estimator_name}.html"


class Interval(_param_validation.Interval):  # type: ignore[misc]
    """An interval of numbers, in which booleans are none."""

    def is_satisfied_by(self, val: Any) -> bool:
        """Whether a value is a number in the interval."""
        return not isinstance(val, bool) and super().is_satisfied_by(val)


ALGORITHM = (str, HasMethods(["plan", "run"]))
AT_LEAST_0 = Interval(Real, 0, None, closed="left")
AT_LEAST_1 = Interval(Integral, 1, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")
POSITIVE_OR_INF = Interval(Real, 0, None, closed="right")
SHARE = Interval(Real, 0, 1, closed="both")


@contextmanager
def converting() -> Iterator[None]:
    """Convert what users pass: numbers that floats do not hold are infinite, and nothing warns."""
    try:
        with np.errstate(all="ignore"):
            yield
    except OverflowError:
        # Of a Python int or Fraction: what check_array says of np.inf.
        raise ValueError(
            "Input contains infinity or a value too large for dtype('float64')."
        ) from None


def parameter(default: Any, *allowed: Any) -> Any:
    """A parameter and what it may be; without that, the fit looks at it."""
    return field(default=default, metadata={"allowed": list(allowed) or "no_validation"})


def absent(value: Any = None) -> Any:
    """A parameter of other families, which has this value here."""
    return field(default=value, init=False)
