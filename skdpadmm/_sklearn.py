"""The only file that imports scikit-learn's private helpers: parameters are declared with them.

The helpers may move with any release of scikit-learn. Works on 1.6.1 to 1.9.1; what is public there
(``validate_data``, ``check_is_fitted``, tags) is imported directly where it is used.
"""

from __future__ import annotations

import dis
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field, fields
from functools import partial, update_wrapper, wraps
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.base import _fit_context as _fit_context
from sklearn.utils import _available_if, _param_validation
from sklearn.utils import _safe_indexing as _safe_indexing
from sklearn.utils._param_validation import HasMethods as HasMethods

# A placeholder, until the documentation is published somewhere.
DOCUMENTATION = "https://skdpadmm.example/stable"


_Door = TypeVar("_Door", bound=Callable[..., Any])
# Methods that are handed rows.
DOORS = set("fit partial_fit fit_transform transform inverse_transform join score".split())
DOORS |= set("predict predict_proba predict_log_proba decision_function".split())
DOORS |= {"local_model", "local_models"}
# What scikit-learn and Python say of shapes, names and parameters, and what follows of values.
_PUBLIC = re.compile(
    r"Complex data not|Expected 2D array|Found (array|input)|Input [\w ]*contains (NaN|inf)"
    r"|X has \d|The feature names|Sparse data was passed|This \w+ estimator requires"
    r"|y should be a 1d array|Unknown label type: [\w-]+\. Maybe|The '\w+' parameter of [A-Z]"
    r"|[\w.<>]+\(\) (missing|got an|takes)|This \w+ instance is not fitted"
    r"|float\(\) argument must be a string or a real number, not"
)
_VALUES = re.compile(r"(?s)(?<=Complex data not supported).*|(?<=instead:)\narray=.*(?=\nReshape)")


def _without_values(error: Exception) -> Exception:
    """Return an error that shows no value of a row: ours, or one in public words."""
    if getattr(error, "is_discreet", False):
        # From a worker, whose frames are not those of code that runs here.
        return error
    end: Any = error.__traceback__
    while end.tb_next is not None:
        end = end.tb_next
    code, where = end.tb_frame.f_code, end.tb_frame.f_globals.get("__name__", "").split(".")[0]
    is_ours = where == "skdpadmm" and code.co_code[end.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    # A warning that was made an error.
    is_ours |= type(error).__module__ == "skdpadmm.exceptions"
    if is_ours or isinstance(error, MemoryError):
        return error
    if where in ("skdpadmm", "sklearn") and _PUBLIC.match(str(error)):
        error.args = (_VALUES.sub("", str(error)),)
        return error
    plain = (k for k in type(error).__mro__ if k.__module__ == "builtins")
    # Others than these cannot be made of a sentence.
    kind: Any = next(k for k in plain if not issubclass(k, UnicodeError | ExceptionGroup))
    shown: Exception = kind(
        f"Got data that cannot be used: {type(error).__name__} in {code.co_name}, line"
        f" {end.tb_lineno} of {code.co_filename}. Its message may show values of rows, and is left"
        " out. Expected real numbers, and labels of one type."
    )
    return shown.with_traceback(error.__traceback__)


def discreetly(door: Callable[..., Any], *args: Any, **known: Any) -> Any:
    """Call a function of rows, whose errors show no value of a row, and no error before them."""
    try:
        return door(*args, **known)
    except Exception as error:
        problem = _without_values(error)
        problem.__context__ = problem.__cause__ = None
        vars(problem)["is_discreet"] = True
    raise problem


def discreet(door: _Door) -> _Door:
    """Return a function of rows whose errors show no value of a row."""
    return wraps(door)(lambda *args, **known: discreetly(door, *args, **known))  # type: ignore[return-value]


class LinkedEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator of dense or sparse rows; its diagram links to its page of the API reference."""

    _doc_link_module = "skdpadmm"
    _doc_link_template = DOCUMENTATION + "/generated/{estimator_module}.{estimator_name}.html"

    def __getattribute__(self, name: str) -> Any:
        """Return an attribute; methods of rows are discreet, wherever they are inherited from."""
        found = super().__getattribute__(name)
        # A partial function can be pickled.
        return update_wrapper(partial(discreetly, found), found) if name in DOORS else found

    @property
    def _parameter_constraints(self) -> dict[str, Any]:
        return {each.name: each.metadata["allowed"] for each in fields(self) if each.init}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class _Explained(_available_if._AvailableIfDescriptor):  # type: ignore[misc]
    def _check(self, obj: Any, owner: Any) -> None:
        self.check(obj)


def available_if(check: Callable[[Any], None]) -> Callable[[Any], Any]:
    """scikit-learn's ``available_if``, where the error of a check is what the user reads."""
    return lambda method: _Explained(method, check, attribute_name=method.__name__)


class Interval(_param_validation.Interval):  # type: ignore[misc]
    """An interval of numbers, in which booleans are none.

    Parameters
    ----------
    type : {numbers.Real, numbers.Integral}
    left, right : float, int or None
        The ends; None is an infinite one.
    closed : {"left", "right", "both", "neither"}
        Which ends belong to it.
    why : str, default=""
        Follows the interval in the errors of an algorithm.

    Examples
    --------
    >>> from numbers import Real
    >>> from skdpadmm.algorithms import Interval
    >>> Interval(Real, 0, 1, closed="left").expected
    'a float in [0, 1)'
    """

    def __init__(self, type: Any, left: Any, right: Any, *, closed: str, why: str = "") -> None:
        super().__init__(type, left, right, closed=closed)
        self.low = -math.inf if left is None else left
        self.high = math.inf if right is None else right
        self.plain, self.why = float if type is Real else int, why

    def is_satisfied_by(self, val: Any) -> bool:
        """Whether a value is a number in the interval."""
        if isinstance(val, bool) or not isinstance(val, self.type):
            return False
        above = val >= self.low if self.closed in ("left", "both") else val > self.low
        below = val <= self.high if self.closed in ("right", "both") else val < self.high
        return bool(above and below)

    @property
    def expected(self) -> str:
        """What is allowed, in words."""
        if self.type is Integral:
            return f"an int of at least {self.left}"
        left = "[" if self.closed in ("left", "both") else "("
        right = "]" if self.closed in ("right", "both") else ")"
        return f"a float in {left}{self.low:g}, {self.high:g}{right}{self.why}"


class OneOf(_param_validation.StrOptions):  # type: ignore[misc]
    """One of a few words.

    Parameters
    ----------
    *words : str

    Examples
    --------
    >>> from skdpadmm.algorithms import OneOf
    >>> OneOf("path", "last").expected
    "one of ['path', 'last']"
    """

    def __init__(self, *words: str) -> None:
        super().__init__(set(words))
        self.words = words

    @property
    def expected(self) -> str:
        """What is allowed, in words."""
        return f"one of {list(self.words)}" if len(self.words) > 1 else repr(self.words[0])


ALGORITHM = (str, HasMethods(["plan", "run"]))
AUTO = OneOf("auto")
AT_LEAST_0 = Interval(Integral, 0, None, closed="left")
COUNT = Interval(Integral, 1, None, closed="left")
NON_NEGATIVE = Interval(Real, 0, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")
POSITIVE_OR_INF = Interval(Real, 0, None, closed="right")
SHARE = Interval(Real, 0, 1, closed="both")
FRACTION = Interval(Real, 0, 1, closed="right")
# Beyond this range products of two underflow, and a bound of 0 bounds nothing.
SIZE = Interval(Real, 1e-100, 1e100, closed="both")


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


def parameter(
    default: Any, *allowed: Any, convert: Callable[[Any], Any] | None = None, is_later: bool = False
) -> Any:
    """A parameter of an estimator or an algorithm: a dataclass field that knows its valid values.

    Parameters
    ----------
    default : object
    *allowed : object
        What it may be: `Interval`, `OneOf`, "boolean", None, a type, or another constraint of
        scikit-learn. There are `AUTO` (the word "auto", for which a value is chosen from public
        facts), `SIZE` (floats in [1e-100, 1e100], as of step sizes and clip bounds), `FRACTION`
        (floats in (0, 1]), `AT_LEAST_0` and `COUNT` (ints). Nothing: any value.
    convert : callable, default=None
        What makes a valid value of an algorithm plain for a run; None: `float`, `int` or `bool`, as
        it was declared.
    is_later : bool, default=False
        Whether its default is left out of settings, so that plans and their noise stay what they
        were before the algorithm had this parameter.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from skdpadmm.algorithms import AUTO, SIZE, Algorithm, parameter
    >>> @dataclass(kw_only=True, eq=False, repr=False)
    ... class Mine(Algorithm):
    ...     step_size: float | str = parameter("auto", AUTO, SIZE)
    """
    kinds = [each.plain for each in allowed if isinstance(each, Interval)]
    kinds += [bool] if "boolean" in allowed else []
    convert = convert or (kinds[0] if kinds else lambda value: value)
    known = list(allowed) or "no_validation"
    metadata = {"allowed": known, "convert": convert, "is_later": is_later}
    return field(default=default, metadata=metadata)


def is_allowed(value: Any, allowed: Any) -> bool:
    """Whether a value is one of those that a parameter may be."""
    make = _param_validation.make_constraint
    return allowed == "no_validation" or any(make(each).is_satisfied_by(value) for each in allowed)


def expected(allowed: list[Any]) -> str:
    """What a parameter may be, in words that follow "expected"."""
    words: dict[Any, str] = {None: "None", "boolean": "True or False", "array-like": "an array"}
    words[callable] = "a function"
    return " or ".join(
        f"a {each.__name__}" if isinstance(each, type) else words.get(each) or each.expected
        for each in allowed
    )


def absent(value: Any = None) -> Any:
    """A parameter of other families, which has this value here."""
    return field(default=value, init=False)
