"""Tables of numbers, categories and missing values, mapped to [-1, 1] by a public schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, Literal, TypeGuard

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import validate_data

from skdpadmm._chunks import example_of, is_collection, lazily
from skdpadmm._sklearn import parameter

from ._transformers import _PublicTransformer, into_unit_box, middle_and_half

# Where some entries are missing, ints become floats: beyond this two ints can be the same float.
_EXACT = 2**53
# Rows, numbers of columns, and entries of a result that is 0 elsewhere.
Block = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]
# What an entry is, whatever the type of its column: a number, a text, or missing.
Entry = float | str | None
_BOOLEANS = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True)
class Range:
    r"""A public range of numbers, for the schema of `PublicTableTransformer`.

    Numbers are clipped to the bounds :math:`[l, u]` and mapped to [-1, 1],

    .. math:: x \mapsto 2 \, \frac{s(x) - s(l)}{s(u) - s(l)} - 1,

    with :math:`s(x) = x`; with ``log=True``, :math:`s(x) = \log x`, or :math:`\log(1 + x)` where
    :math:`l = 0`.

    Parameters
    ----------
    lower, upper : float
        Public bounds, finite, lower < upper. With ``log=True`` lower is at least 0.
    log : bool, default=False
        Whether to map logarithms.
    missing : {"middle"} or float, default=None
        Value of a missing number: a public number in [lower, upper], or the middle of the range,
        which is mapped to 0. A second column, ``<name>_missing``, is then 1 for missing numbers and
        0 elsewhere. None means the middle, without that column.

    See Also
    --------
    PublicTableTransformer : Map a table by a schema.

    Notes
    -----
    :math:`\log(1 + x)` depends on the unit. It suits amounts that are 0 or well above 1.

    Examples
    --------
    >>> from skdpadmm.preprocessing import PublicTableTransformer, Range
    >>> schema = {0: Range(1, 100, log=True, missing="middle")}
    >>> PublicTableTransformer(schema).transform([[1], [10], [None], [1000]])
    array([[-1.,  0.],
           [ 0.,  0.],
           [ 0.,  1.],
           [ 1.,  0.]])
    """

    lower: float
    upper: float
    _: KW_ONLY
    log: bool = False
    missing: float | Literal["middle"] | None = None

    def __post_init__(self) -> None:
        low, high = self.lower, self.upper
        is_valid = _is_finite(low) and _is_finite(high) and not (self.log and low < 0)
        if not (is_valid and middle_and_half(*self._ends())[1] > 0):
            raise ValueError(
                f"Got lower={low!r} and upper={high!r} with log={self.log}, expected finite floats,"
                " lower < upper, and lower >= 0 for a logarithm. Declare dates as numbers."
            )
        is_number = _is_finite(self.missing) and low <= self.missing <= high
        if not (is_number or self.missing in (None, "middle")):
            raise ValueError(
                f"Got missing={self.missing!r}, expected None, 'middle' or a float in"
                f" [{low}, {high}], the number that a missing one counts as."
            )

    def _scaled(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        if not self.log:
            return numbers
        return np.log1p(numbers) if self.lower == 0 else np.log(numbers)

    def _ends(self) -> NDArray[np.float64]:
        """Bounds on the scale."""
        return self._scaled(np.array([self.lower, self.upper], dtype=np.float64))

    def _mapped(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Numbers in [-1, 1], and nan where they are missing."""
        return into_unit_box(self._scaled(np.clip(numbers, self.lower, self.upper)), *self._ends())

    def _blocks(self, values: NDArray[Any]) -> Iterator[Block]:
        """The mapped numbers, and ones in the second column where they are missing."""
        entries = _plain(values, are_numbers=True)
        numbers = [entry if isinstance(entry, float) else np.nan for entry in entries]
        mapped, middle = self._mapped(np.array(numbers)), 0.0
        rows, is_missing = np.arange(len(mapped)), np.isnan(mapped)
        if _is_finite(self.missing):
            middle = self._mapped(np.array([self.missing], dtype=np.float64)).item()
        yield rows, np.zeros_like(rows), np.where(is_missing, middle, mapped)
        if self.missing is not None:
            missing = rows[is_missing]
            yield missing, np.ones_like(missing), np.ones(len(missing))


@dataclass(frozen=True)
class _Categories:
    """Public categories, and the number of the one-hot column of each."""

    numbers: dict[Any, int]

    def _blocks(self, values: NDArray[Any]) -> Iterator[Block]:
        """Ones in the columns of the categories that are known."""
        entries = _plain(values, are_numbers=any(isinstance(e, float) for e in self.numbers))
        found = np.array([self.numbers.get(entry, -1) for entry in entries], dtype=np.intp)
        rows = np.flatnonzero(found >= 0)
        yield rows, found[rows], np.ones(len(rows))


@dataclass(kw_only=True, eq=False, repr=False)
class PublicTableTransformer(_PublicTransformer):
    r"""Map a table of numbers, categories and missing values to [-1, 1], by a public schema.

    It learns nothing from data. Pass ``feature_bounds=(-1, 1)`` to the next estimator.

    Parameters
    ----------
    schema : dict
        The possible entries of each column, by name, or by position (an int) for arrays and lists.
        Columns that are not in the schema are dropped. A value is one of:

        - ``(lower, upper)`` or `Range`: numbers, clipped to the range and mapped to [-1, 1].
          Missing ones become 0, the middle, or what the `Range` declares.
        - a list of strings, ints or booleans: categories. There is a column for each, which is 1 in
          rows of that category and 0 elsewhere. Missing and unknown ones are 0 in all columns,
          without a warning: leave out one category and it is the reference, together with them.
          So ``[0, 120]`` is two categories, and ``(0, 120)`` is a range.
        - ``bool``: one column, 1 where the entry is True or 1, else 0: also where it is missing.
    sparse_output : bool, default=False
        Whether `transform` returns CSR, for many categories.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns seen during ``fit``, including dropped ones.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of columns seen during ``fit``, if all of them are strings.

    See Also
    --------
    BoundedScaler : Map the columns of an array from bounds to [-1, 1].

    Notes
    -----
    **Privacy.** The transformer spends no budget if the schema is public: it maps each row by
    itself, to columns that depend only on the schema. Ranges and categories read off the data are
    not public, and no report can detect them.

    Each entry is compared by itself, because one row can change the type of its column: 1, 1.0,
    True, "1" and "True" are the same number, as a category and in a range. Infinite numbers are
    clipped. In a range, entries that are not numbers are missing: None, nan, ``pandas.NA``, "?".
    Columns of dates or of lists are refused by their type. Numbers with a comma, such as "1,5",
    raise a ValueError, because some readers take them for numbers, depending on the rest of the
    column.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpadmm.preprocessing import PublicTableTransformer
    >>> schema = {"age": (0, 120), "city": ["Oslo", "Bergen"], "smoker": bool}
    >>> table = pd.DataFrame(
    ...     {"age": [30, None], "city": ["Bergen", "Rome"], "smoker": [True, None]}
    ... )
    >>> transformer = PublicTableTransformer(schema)
    >>> transformer.transform(table)
    array([[-0.5,  0. ,  1. ,  1. ],
           [ 0. ,  0. ,  0. ,  0. ]])
    >>> transformer.get_feature_names_out().tolist()
    ['age', 'city_Oslo', 'city_Bergen', 'smoker']

    One category of two gives one column, and "f" is the reference:

    >>> PublicTableTransformer({"sex": ["m"]}).transform(pd.DataFrame({"sex": ["m", "f"]}))
    array([[1.],
           [0.]])
    """

    schema: dict[Any, Any] = field(kw_only=False, metadata={"allowed": [dict]})
    sparse_output: bool = parameter(False, "boolean")

    @lazily
    def transform(self, X: Any) -> Any:
        """Map the declared columns.

        Parameters
        ----------
        X : {DataFrame, array-like} of shape (n_samples, n_features)
            A pandas or polars DataFrame, or another one that narwhals knows; an array or a list for
            a schema by position. A collection of dask is mapped chunk by chunk, when its result is
            asked for.

        Returns
        -------
        X_out : {ndarray, sparse array} of shape (n_samples, n_features_out)
            Entries in [-1, 1], float64; CSR with ``sparse_output=True``, and a DataFrame where
            `set_output` asks for one.
        """
        names, columns = self._columns()
        table = self._rows(X)
        starts = np.cumsum([0, *map(len, names)]).tolist()
        shape = (len(table[0]), starts[-1])
        blocks = [
            (rows, numbers + start, entries)
            for column, start, values in zip(columns, starts, table, strict=False)
            for rows, numbers, entries in column._blocks(values)
        ]
        if self.sparse_output:
            rows, numbers, entries = map(np.concatenate, zip(*blocks, strict=True))
            return sparse.csr_array((entries, (rows, numbers)), shape=shape)
        result = np.zeros(shape)
        for rows, numbers, entries in blocks:
            result[rows, numbers] = entries
        return result

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """Names of the columns of the result, from the schema alone and without `fit`.

        Their number is ``n_features`` for the ``plan`` of the estimator behind.

        Parameters
        ----------
        input_features : Ignored
            Present for API consistency.

        Returns
        -------
        names : ndarray of str
            ``age``, ``age_missing``, ``city_Oslo``; ``x0`` for a column by position.
        """
        names, _ = self._columns()
        return np.array([name for those in names for name in those], dtype=object)

    def _units(self) -> Iterator[tuple[str, str, float, float]]:
        """Names and units of the columns of the result; what 0 stands for, and how many make 1."""
        for key, column in zip(self.schema, self._columns()[1], strict=True):
            name = key if isinstance(key, str) else f"x{key}"
            if isinstance(column, Range):
                log = f"log({name})" if column.lower > 0 else f"log(1 + {name})"
                middle, half = middle_and_half(*column._ends())
                yield log if column.log else name, "per 1", float(middle.item()), float(half.item())
                if column.missing is not None:
                    yield name, "where missing", 0.0, 1.0
            elif self.schema[key] is bool:
                yield name, "where true", 0.0, 1.0
            else:
                for value in self.schema[key]:
                    yield f"{name} {value}", "against unlisted values", 0.0, 1.0

    def _columns(self) -> tuple[list[list[str]], list[Range | _Categories]]:
        """Names of the columns that each declared column becomes, and how it becomes them."""
        self._validate_params()
        columns = [_column(key, declared) for key, declared in self.schema.items()]
        names = [those for those, _ in columns]
        counts = Counter(name for those in names for name in those)
        repeated = [name for name, count in counts.items() if count > 1]
        if repeated or not columns:
            raise ValueError(
                f"Got a schema of {len(columns)} columns, where several become {repeated[:5]!r},"
                " expected at least one column, and different names. Rename some."
            )
        return names, [column for _, column in columns]

    def _rows(self, X: Any, *, reset: bool = False) -> Any:
        """The declared columns, as arrays of numbers or of objects."""
        self._columns()
        X = example_of(X) if is_collection(X) else X
        if hasattr(X, "collect"):
            raise TypeError(f"Got a {type(X).__name__}, expected rows: pass X.collect().")
        if nw.dependencies.is_into_dataframe(X):
            if reset or hasattr(self, "n_features_in_"):
                validate_data(self, X, reset=reset, skip_check_array=True)
            frame = nw.from_native(X, eager_only=True)
            names, table = frame.columns, frame
        else:
            dtype = None if hasattr(X, "dtype") else object  # numbers stay numbers beside strings
            facts: Any = {"dtype": dtype, "ensure_all_finite": False, "reset": reset}
            names, table = [], validate_data(self, X, **facts)
        n_columns = table.shape[1]
        known = {*range(n_columns), *(name for name in names if isinstance(name, str))}
        absent = [key for key in self.schema if key not in known]
        if absent:
            raise ValueError(
                f"Got a table of {n_columns} columns without {absent[:5]!r}, expected every column"
                " of the schema: by name in a DataFrame, or by position."
            )
        return [
            _values(key, table[:, names.index(key) if isinstance(key, str) else int(key)])
            for key in self.schema
        ]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        return tags


def _is_finite(value: Any) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool) and np.isfinite(float(value))


def _is_category(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, Integral) and abs(int(value)) < _EXACT)


def _column(key: Any, declared: Any) -> tuple[list[str], Range | _Categories]:
    """Names of the columns that one column of a table becomes, and how it becomes them."""
    name = key if isinstance(key, str) else f"x{key}"
    if not (isinstance(key, str) or (isinstance(key, Integral) and int(key) >= 0)):
        raise ValueError(f"Got {key!r} in the schema, expected the name or position of a column.")
    try:
        if isinstance(declared, tuple) and len(declared) == 2:
            declared = Range(*declared)
    except ValueError as error:
        raise ValueError(f"{error} It is the range of column {key!r}.") from None
    if type(declared) is Range:  # a subclass may map rows otherwise
        return [name] if declared.missing is None else [name, f"{name}_missing"], declared
    if declared is bool:
        return [name], _Categories({1.0: 0})
    values = list(declared) if isinstance(declared, list | range) else []
    entries = [_entry(value) for value in values if _is_category(value)]
    categories = {entry: number for number, entry in enumerate(entries) if entry is not None}
    if not 0 < len(categories) == len(values) or _has_commas(entries):
        raise ValueError(
            f"Got {declared!r} for column {key!r} of the schema, expected (lower, upper), a Range,"
            " bool, or a list of different categories: strings, booleans or ints below 2**53,"
            " where 1, True, '1' and 'True' count as the same. Declare dates as numbers, write"
            " decimals with a point, and leave missing values out."
        )
    return [f"{name}_{value}" for value in values], _Categories(categories)


def _values(key: Any, column: Any) -> NDArray[Any]:
    """The entries of a column, of a type that holds numbers, strings or booleans."""
    is_series, dtype = isinstance(column, nw.Series), column.dtype
    values: NDArray[Any] = column
    if is_series:
        is_long = dtype in (nw.Int128, nw.UInt128)  # of which numpy knows nothing
        values = np.array(column.to_list(), dtype=object) if is_long else column.to_numpy()
    is_odd = is_series and (dtype.is_temporal() or dtype.is_nested())
    if is_odd or values.dtype.kind in "cmMV":
        raise ValueError(
            f"Got column {key!r} of type {dtype}, expected numbers, strings or booleans. Convert"
            " dates to numbers, such as days since a public date."
        )
    return values


def _plain(values: NDArray[Any], *, are_numbers: bool) -> list[Entry]:
    """The entries of a column, as they are whatever its type; where numbers count, no commas."""
    if values.dtype.kind in "biuf":
        with np.errstate(over="ignore"):
            return values.astype(np.float64).tolist()
    entries = [_entry(value) for value in values.tolist()]
    if are_numbers and _has_commas(entries):
        raise ValueError(
            "Got a number with a comma as text, expected one with a point: whether a reader takes"
            " '1,5' for a number depends on the rest of its column. Read the table as text,"
            " dtype=str, and replace commas."
        )
    return entries


def _entry(value: Any) -> Entry:
    """A number, a text that is none, or None where it is missing; a boolean is a number."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    is_text = isinstance(value, str)
    if is_text and value.lower() in _BOOLEANS:
        return _BOOLEANS[value.lower()]
    if not (is_text or isinstance(value, Real | Decimal | np.bool_)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf
    except ValueError:
        return value if is_text else None
    return None if np.isnan(number) else number


def _has_commas(entries: list[Entry]) -> bool:
    """Whether a text is a number but for commas."""
    texts = (text for text in entries if isinstance(text, str) and "," in text)
    return any(isinstance(_entry(text.replace(",", "")), float) for text in texts)
