"""No error shows a value of a row: odd entries in every argument of rows of every public class."""

import inspect
import itertools
import traceback
import warnings
from copy import deepcopy
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from importlib import import_module

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import is_classifier

from skdpadmm import DPAdmmRidge, DPPersonalizedClassifier, DPPersonalizedRegressor
from skdpadmm.algorithms import FederatedADMM
from skdpadmm.parties import Party
from skdpadmm.preprocessing import PublicTableTransformer, Range
from tests.interface.registry import DEFAULTS as ROWS

DIGITS = "31415926535"
SECRETS = (DIGITS, "Smith")
# Not in lines of this file that tracebacks quote.
TEXT = f"Found array of Smith {DIGITS}"
# Declared classes and the name of an agent are public.
OF_ROWS = {"X", "y", "agents", "persons", "sample_weight"}
MODULES = ("skdpadmm", "skdpadmm.preprocessing", "skdpadmm.model_selection", "skdpadmm.metrics")


class Shown:
    """An object whose text, and whose errors, show what it is."""

    def __repr__(self):
        return TEXT

    def __float__(self):
        raise ValueError(TEXT)

    __str__ = __format__ = lambda self, *_: TEXT


class Compared(Shown):
    """An object whose comparisons fail in its own words."""

    def __eq__(self, other):
        raise TypeError(TEXT)

    __hash__ = __lt__ = lambda self, *_: Compared.__eq__(self, self)


class Keyed(Shown):
    """An object whose conversion to an array fails in its own words."""

    def __array__(self, *_, **__):
        raise KeyError(TEXT)


ENTRIES = [
    "Smith, John",
    f"Smith {DIGITS}",
    f"1e{DIGITS}",
    "Smith\n.\nReshape your data",
    b"Smith",
    bytearray(b"Smith \xff"),
    complex(0.5, float(DIGITS)),
    np.complex64(1j * float(DIGITS)),
    float(DIGITS) * 1e100,
    float(DIGITS),
    -float(DIGITS),
    int(DIGITS * 37),
    -int(DIGITS * 37),
    int(DIGITS * 2),
    Fraction(int(DIGITS), 7),
    Decimal(DIGITS),
    Decimal(f"{DIGITS}e999"),
    datetime(1941, 5, 9),
    pd.Timestamp("1941-05-09"),
    np.datetime64("1941-05-09"),
    {"Smith": DIGITS},
    {"Smith"},
    ("Smith", DIGITS),
    ["Smith"],
    np.array(["Smith", DIGITS]),
    Shown(),
    Compared(),
    Keyed(),
    pd.Interval(0, int(DIGITS)),
    slice("Smith"),
    float("nan"),
    None,
]
SECRETS_OF = {str(ENTRIES[17])[:10], "1941", *SECRETS}


def cells(entry):
    """Rows of three columns with an odd entry in the second."""
    rows = np.full((60, 3), 0.5, dtype=object)
    rows[:, 1] = np.resize([-0.5, 0.25], 60)
    rows[3, 1] = entry
    return rows


# Rows or labels with an odd entry, in the containers that people use.
TABLES = [
    cells,
    lambda entry: cells(entry).tolist(),
    lambda entry: pd.DataFrame(cells(entry), columns=list("abc")),
    lambda entry: cells(entry)[:, 1],
    lambda entry: cells(entry)[:, 1].tolist(),
    lambda entry: pd.Series(cells(entry)[:, 1]),
    lambda entry: entry,
    lambda entry: np.array(cells(entry).tolist()),
    lambda entry: np.array(cells(entry)[:, 1].tolist()),
    lambda entry: pl.DataFrame(
        cells(entry).tolist(), schema=list("abc"), orient="row", strict=False
    ),
    lambda entry: pd.DataFrame(cells(entry)).astype({1: "category"}),
    lambda entry: sparse.csr_array(np.array(cells(entry).tolist())),
    lambda entry: np.full(60, entry),
]


def transformer():
    return PublicTableTransformer({0: Range(-1, 1), 1: Range(-1, 1), 2: [0, 1]})


def classes_of(module):
    home = import_module(module)
    for name in home.__all__:
        found = getattr(home, name)
        if inspect.isclass(found) and hasattr(found, "get_params"):
            yield found


def fitted():
    """Each public class once, fitted, and models that stay at home."""
    instances = [(row.make(), row.data()) for row in ROWS.values()]
    number, label = ROWS["ridge"].data(), ROWS["logistic"].data()
    for found in dict.fromkeys(itertools.chain(*map(classes_of, MODULES))):
        if any(type(model) is found for model, _ in instances):
            continue
        if "Search" in found.__name__:
            grid = {"alpha": [0.1, 1.0]}
            given = {"random_state": 0}
            model = DPAdmmRidge(max_iter=2, target_bounds=(-1, 1))
            instances.append((found(model, grid, **given), number))
        else:
            instances.append((transformer() if "Table" in found.__name__ else found(), label))
    for model, (X, y) in instances:
        yield model.fit(X, y)
        if isinstance(model, DPPersonalizedClassifier | DPPersonalizedRegressor):
            agent = model.agent_labels_[0]
            yield model.local_model(agent, X[:6], y[:6])


def doors():
    """Each method and function of rows, with arguments that it accepts."""
    known = dict(zip(("X", "y"), ROWS["ridge"].data(), strict=True))
    with warnings.catch_warnings(action="ignore"):
        for model in fitted():
            y = ROWS["logistic"].data()[1] if is_classifier(model) else known["y"]
            for name in dir(type(model)):
                if name.startswith(("_", "plan", "set_", "get_")):
                    continue
                method = getattr(model, name, None)
                if not callable(method) or not OF_ROWS & {*inspect.signature(method).parameters}:
                    continue
                yield (
                    f"{type(model).__name__}.{name}",
                    lambda given, m=model, name=name: getattr(deepcopy(m), name)(**given),
                    inspect.signature(method).parameters,
                    {**known, "y": y, "agent": "new"},
                )
        for module in MODULES:
            home = import_module(module)
            for name in home.__all__:
                function = getattr(home, name)
                if inspect.isfunction(function) and name.startswith("private_"):
                    model = DPAdmmRidge(max_iter=2, target_bounds=(-1, 1)).fit(*known.values())
                    more = {"model": model, "target_bounds": (-1, 1)}
                    call = lambda given, f=function: f(**given)  # noqa: E731
                    yield name, call, inspect.signature(function).parameters, {**known, **more}
    yield "Party", party, {"X": None, "y": None}, known


def party(given):
    model = ROWS["fed ridge"].make(algorithm=FederatedADMM(edge_noise=0), n_agents=None)
    return Party(
        model, **given, agent="a", agent_sizes={"a": 60, "b": 60}, journal="/dev/null/journal"
    )


def attempts(every, offset=0):
    """Doors, each with an odd argument: every so manieth of all."""
    cases = list(itertools.product(TABLES, ENTRIES))
    number = 0
    for name, call, parameters, usual in doors():
        usual = {k: v for k, v in usual.items() if k in parameters}
        if "agent" in usual and "join" not in name:
            usual["agent"] = 0
        for argument in sorted(OF_ROWS & {*parameters}):
            for table, entry in cases:
                number += 1
                if number % every != offset:
                    continue
                try:
                    given = {**usual, argument: table(entry)}
                except Exception:
                    continue
                yield f"{name}({argument}={type(entry).__name__})", call, given


def shown(error):
    """All that an error can show: its text, its notes and those of errors before it."""
    seen, todo = [], [error]
    while todo:
        each = todo.pop()
        seen += [str(each), repr(each), *getattr(each, "__notes__", ())]
        todo += [e for e in (each.__cause__, each.__context__) if e is not None]
    return "\n".join([*seen, *traceback.format_exception(error)])


def check(every, offset=0):
    leaks, n_errors, n_attempts = {}, 0, 0
    with warnings.catch_warnings(action="ignore"):
        for name, call, given in attempts(every, offset):
            n_attempts += 1
            try:
                call(given)
            except Exception as error:
                n_errors += 1
                text = shown(error)
                if any(secret in text for secret in SECRETS_OF):
                    leaks[name] = text[-600:]
    assert not leaks, f"{len(leaks)} leaks, such as {list(leaks.items())[:3]}"
    return n_attempts, n_errors


def test_no_error_shows_a_value_of_a_row():
    n_attempts, n_errors = check(every=509)
    assert n_errors > n_attempts / 3


@pytest.mark.slow
@pytest.mark.parametrize("offset", range(4))
def test_no_odd_entry_is_shown_by_any_door(offset):
    n_attempts, n_errors = check(every=40, offset=offset)
    assert n_attempts > 500
    assert n_errors > n_attempts / 3
