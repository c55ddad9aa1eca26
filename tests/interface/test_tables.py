"""Tables of mixed columns: each row by itself, in any container, to columns of the schema alone."""

import datetime
import io
import math
import pickle
import re
from contextlib import nullcontext
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.exceptions import PanicException, PolarsError
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm._pipelines import acts_by_row
from skdpadmm.inference import summary
from skdpadmm.preprocessing import BoundedScaler, PublicTableTransformer, Range
from tests.interface.registry import SEES_POLARS

SCHEMA = {
    "age": Range(0, 100, missing=75),
    "city": ["Oslo", "Bergen"],
    "smoker": bool,
    "floor": range(3),
}
NAMES = [
    "age",
    "age_missing",
    "city_Oslo",
    "city_Bergen",
    "smoker",
    "floor_0",
    "floor_1",
    "floor_2",
]
TABLE = {
    "floor": [2, None, 1, 7],
    "dropped": ["a", None, "b", "c"],
    "age": [25, None, 150, 0],
    "city": ["Bergen", None, "Rome", "Oslo"],
    "smoker": [True, None, False, True],
}
EXPECTED = [
    [-0.5, 0, 0, 1, 1, 0, 0, 1],
    [0.5, 1, 0, 0, 0, 0, 0, 0],
    [1, 0, 0, 0, 0, 0, 1, 0],
    [-1, 0, 1, 0, 1, 0, 0, 0],
]
ENUM = pl.Enum(["Oslo", "Rome", "Bergen"])
PANDAS = pd.DataFrame(TABLE)
KINDS = {
    "pandas": lambda: PANDAS,
    "objects": lambda: PANDAS.astype(object),
    "nullable": lambda: PANDAS.convert_dtypes(),
    "categorical": lambda: PANDAS.astype(dict.fromkeys(("city", "floor", "age"), "category")),
    "arrow": lambda: PANDAS.convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda: pl.DataFrame(TABLE),
    "polars categorical": lambda: pl.DataFrame(TABLE, schema_overrides={"city": pl.Categorical}),
    "polars enum": lambda: pl.DataFrame(TABLE, schema_overrides={"city": ENUM}),
    "array": lambda: PANDAS.to_numpy(dtype=object),
    "list": lambda: PANDAS.to_numpy(dtype=object).tolist(),
}


def by_position(schema=SCHEMA):
    return {list(TABLE).index(name): declared for name, declared in schema.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_becomes_the_same_in_every_container(kind):
    if kind == "arrow":
        pytest.importorskip("pyarrow")
    table = KINDS[kind]()
    schema = by_position() if kind in ("array", "list") else SCHEMA
    for each in (schema, by_position()):
        np.testing.assert_array_equal(PublicTableTransformer(each).transform(table), EXPECTED)
    transformer = PublicTableTransformer(schema, sparse_output=True).fit(table)
    found = pickle.loads(pickle.dumps(transformer)).transform(table)
    np.testing.assert_array_equal(found.toarray(), EXPECTED)
    assert transformer.n_features_in_ == 5
    has_names = kind not in ("array", "list") and (SEES_POLARS or "polars" not in kind)
    assert not has_names or transformer.feature_names_in_.tolist() == list(TABLE)
    before = pickle.dumps(transformer.fit(table))
    assert before == pickle.dumps(transformer.fit(table[2:]))  # nothing is learned


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_names_follow_from_the_schema_and_are_those_of_a_frame(library):
    transformer = clone(PublicTableTransformer(SCHEMA)).set_output(transform=library)
    assert transformer.get_feature_names_out().tolist() == NAMES
    frame = transformer.fit_transform(KINDS[library]())
    assert list(frame.columns) == NAMES
    np.testing.assert_array_equal(frame.to_numpy(), EXPECTED)
    first = PublicTableTransformer({0: (0, 1), 2: ["a", 1]}).get_feature_names_out()
    assert first.tolist() == ["x0", "x2_a", "x2_1"]


ODD = [None, float("nan"), pd.NA, float("inf"), -float("inf"), 1.7e308, 5e-324, np.float32(1)]
ODD += [1, 1.0, True, False, 0, -1, 2, 0.5, 50.0, 2**53 + 1, 10**30, 1j, [1], (1,), {}, object()]
ODD += ["Oslo", np.str_("Oslo"), "1", "?", b"1", datetime.timedelta(1), "unknown", "true", "1e3"]
ODD += [Decimal("0.5"), Decimal("sNaN"), Fraction(1, 3), -(10**400), np.longdouble("1e400"), "nan"]
ANY = PublicTableTransformer(
    {
        "number": Range(1e-3, 1e308, log=True, missing="middle"),
        "amount": Range(0, 50, log=True),
        "kind": ["Oslo", 1, 2],
        "flag": bool,
    }
)


@given(
    rows=st.lists(st.lists(st.sampled_from(ODD), min_size=4, max_size=4), min_size=1, max_size=5)
)
def test_each_row_is_mapped_by_itself_and_ends_in_the_unit_box(rows):
    whole = ANY.transform(pd.DataFrame(rows, columns=list(ANY.schema), dtype=object))
    assert np.all(np.abs(whole) <= 1)
    inferred = pd.DataFrame(rows, columns=list(ANY.schema))
    if not {dtype.kind for dtype in inferred.dtypes} & {"m", "c"}:  # refused by their type
        np.testing.assert_array_equal(ANY.transform(inferred), whole)
    for row, expected in zip(rows, whole, strict=True):
        one = pd.DataFrame([row], columns=list(ANY.schema), dtype=object)
        np.testing.assert_array_equal(ANY.transform(one), [expected])


# Columns as most tables have them: all entries of one kind, or missing.
STYLES = {
    "ints": [0, 1, 2, 3, None],
    "floats": [0.0, 1.0, 2.5, 1e-3, 120.0, None],
    "booleans": [True, False],
    "booleans, some missing": [True, False, None],
    "words": ["Oslo", "Bergen", "yes", "?", None],
    "digits": ["1", "01", " 2", "1.0", "3"],
    "texts of booleans": ["True", "False", "TRUE", "false"],
}
LISTED = {"n": (0, 120), "k": [1, 2, 3], "w": ["Oslo", "02", "True"], "b": bool}


def by_csv(library, **options):
    def read(columns):
        buffer = io.BytesIO(pd.DataFrame(columns, dtype=object).to_csv(index=False).encode())
        return library.read_csv(buffer, **options)

    return read


def by_json(read):
    return lambda columns: read(pd.DataFrame(columns, dtype=object).to_json(orient="records"))


def array_of(columns, dtype=None):
    return np.array([list(row) for row in zip(*columns.values(), strict=True)], dtype=dtype)


def by_polars(columns):
    """A frame of polars, which drops values that do not suit the type of the first one."""
    table = pl.DataFrame(columns, strict=False)
    missing = sum(value is None or value is pd.NA for own in columns.values() for value in own)
    if sum(table.null_count().row(0)) > missing:
        raise ValueError("Got values that polars dropped, expected all of them.")
    return table


READERS = {
    "pandas": pd.DataFrame,
    "objects": lambda columns: pd.DataFrame(columns, dtype=object),
    "nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "categorical": lambda columns: pd.DataFrame(columns).astype("category"),
    "polars": by_polars,
    "array": array_of,
    "array of objects": lambda columns: array_of(columns, object),
    "csv": by_csv(pd),
    "csv, nullable": by_csv(pd, dtype_backend="numpy_nullable"),
    "csv, as text": by_csv(pd, dtype=str),
    "csv, polars": by_csv(pl, infer_schema_length=None),
    "json": by_json(lambda text: pd.read_json(io.StringIO(text))),
    "json, polars": by_json(lambda text: pl.read_json(text.encode(), infer_schema_length=None)),
}


def encoded(reader, columns):
    """The encoding of a table as read; None where a reader or a type of column refuses it."""
    schema = dict(enumerate(LISTED.values()))
    try:
        table = READERS[reader](columns)
    except (TypeError, ValueError, ArithmeticError, PolarsError, PanicException):
        return None
    try:
        return PublicTableTransformer(schema).transform(table)
    except ValueError as error:
        # By the type of a column, or of an array that one entry made complex.
        if re.search("expected numbers, strings or booleans|Complex data not supp", str(error)):
            return None
        raise


@st.composite
def neighbours(draw):
    """A reader, a table, and the table with one entry changed to anything."""
    columns, n = {}, draw(st.integers(2, 6))
    for name in LISTED:
        style = STYLES[draw(st.sampled_from(sorted(STYLES)))]
        columns[name] = [draw(st.sampled_from(style)) for _ in range(n)]
    name, row = draw(st.sampled_from(sorted(LISTED))), draw(st.integers(0, n - 1))
    odd = st.one_of(st.sampled_from(ODD), st.text("0123456789.e+- trueTRUExyz", max_size=6))
    other = {key: list(values) for key, values in columns.items()}
    other[name][row] = draw(odd)
    return draw(st.sampled_from(sorted(READERS))), columns, other, row


@pytest.mark.filterwarnings("ignore")  # of readers
@pytest.mark.parametrize("n_tables", [250, pytest.param(10_000, marks=pytest.mark.slow)])
def test_one_entry_changes_the_encoding_of_no_other_row(n_tables):
    compared = []

    @settings(max_examples=n_tables)
    @given(case=neighbours())
    def check(case):
        reader, columns, other, row = case
        before, after = encoded(reader, columns), encoded(reader, other)
        if before is not None and after is not None and len(before) == len(after):
            compared.append(case)
            np.testing.assert_allclose(
                np.delete(before, row, axis=0), np.delete(after, row, axis=0), rtol=0, atol=1e-12
            )

    check()
    assert len(compared) > 0.8 * n_tables


@pytest.mark.parametrize("column", ["zone", "smoker"])
def test_one_unknown_word_in_a_file_changes_one_row_alone(column):
    schema = {"age": (0, 120), "zone": [1, 2, 3], "smoker": bool}
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"age": rng.integers(0, 120, 200), "zone": rng.integers(1, 4, 200), "smoker": True}
    )
    word = {"zone": "other", "smoker": "unknown"}[column]
    neighbour = table.astype({column: object})
    neighbour.loc[7, column] = word
    texts = [frame.to_csv(index=False) for frame in (table, neighbour)]
    for read in (pd.read_csv, pl.read_csv):
        first, second = (
            PublicTableTransformer(schema).transform(read(io.BytesIO(text.encode())))
            for text in texts
        )
        assert np.flatnonzero((first != second).any(axis=1)).tolist() == [7]


def test_a_number_with_a_comma_is_refused_where_numbers_count():
    for declared, is_refused in (((0, 9), True), ([1, 2], True), (bool, True), (["a"], False)):
        transformer = PublicTableTransformer({"a": declared})
        with pytest.raises(ValueError, match="with a comma") if is_refused else nullcontext():
            transformer.transform(pd.DataFrame({"a": ["1,5", "a"]}))
        transformer.transform(pd.DataFrame({"a": ["a,b", ",", None]}))


@given(bounds=st.tuples(*[st.floats(-1e308, 1e308)] * 2).map(sorted), x=st.floats(allow_nan=False))
def test_a_range_is_what_a_bounded_scaler_does_to_numbers_or_their_logarithms(bounds, x):
    lower, upper = bounds
    if not upper / 2 - lower / 2 > 0:
        return
    clipped = np.clip([[x], [lower], [upper]], lower, upper)
    found = PublicTableTransformer({0: (lower, upper)}).transform([[x], [lower], [upper]])
    expected = BoundedScaler(lower=lower, upper=upper).transform(clipped)
    np.testing.assert_array_equal(found, expected)
    if lower > 0 and upper > 1.01 * lower:
        found = PublicTableTransformer({0: Range(lower, upper, log=True)}).transform(clipped)
        expected = BoundedScaler(lower=np.log(lower), upper=np.log(upper)).transform(
            np.log(clipped)
        )
        np.testing.assert_array_equal(found, expected)
    amounts = PublicTableTransformer({0: Range(0, 3, log=True)}).transform([[0], [1], [10**400]])
    np.testing.assert_allclose(amounts, [[-1], [0], [1]], atol=1e-15)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, "^Got a schema of 0 columns"),
        ({"a": (2, 1)}, "^Got lower=2 and upper=1 .*range of column 'a'"),
        ({"a": (datetime.date.min, datetime.date.max)}, "^Got lower=.*Declare dates as numbers"),
        ({"a": ["x", "x"]}, "^Got .* for column 'a' of the schema, expected"),
        ({"a": [1, "01"]}, "1, True, '1' and 'True' count as the same"),
        ({"a": ["true", True]}, "count as the same"),
        ({"a": ["nan"]}, "leave missing values out"),
        ({"a": ["1,5"]}, "decimals with a point"),
        ({"a": [None]}, "leave missing values out"),
        ({"a": [0.5]}, "strings, booleans or ints"),
        ({"a": []}, "expected"),
        ({"a": str}, "^Got <class 'str'> for column 'a'"),
        ({-1: bool}, "^Got -1 in the schema, expected the name or position"),
        ({"a": ["b_c"], "a_b": ["c"]}, r"several become \['a_b_c'\]"),
        ({"b": (0, 1), 3: (0, 1)}, r"^Got a table of 1 columns without \['b', 3\], expected every"),
    ],
)
def test_a_schema_that_is_not_public_or_not_clear_is_refused(schema, message):
    for method in ("fit", "transform"):
        with pytest.raises(ValueError, match=message):
            getattr(PublicTableTransformer(schema), method)(pd.DataFrame({"a": [1.0]}))
    for kind in ({"upper": -1}, {"lower": -1, "log": True}, {"missing": 7}, {"missing": "no"}):
        with pytest.raises(ValueError, match=r"^Got (lower|missing)=.*, expected"):
            Range(**{"lower": 0, "upper": 1} | kind)


def test_a_range_of_others_may_map_rows_otherwise_and_is_refused():
    class Wider(Range):
        pass

    with pytest.raises(ValueError, match=r"expected .lower, upper., a Range"):
        PublicTableTransformer({0: Wider(0, 1)}).fit([[1]])


def test_a_lazy_table_is_refused():
    with pytest.raises(TypeError, match=r"^Got a LazyFrame, expected rows: pass X.collect\(\)"):
        PublicTableTransformer({"age": (0, 1)}).fit(pl.DataFrame(TABLE).lazy())


@pytest.mark.parametrize("library", [pd, pl, np], ids=["pandas", "polars", "array"])
def test_dates_are_refused_by_the_type_of_their_column(library):
    days = np.array([["2020-01-01"]], dtype="datetime64[ms]")
    table = days if library is np else library.DataFrame({"a": days[:, 0]})
    for declared in ((0, 1), ["2020"], bool):
        with pytest.raises(ValueError, match=r"^Got column 0 of type [Dd]atetime.*Convert dates"):
            PublicTableTransformer({0: declared}).fit(table)


def test_a_pipeline_learns_from_a_table_and_a_search_accepts_it():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"age": rng.uniform(0, 100, 400), "city": rng.choice(["Oslo", "Bergen", None], 400)}
    )
    transformer = PublicTableTransformer({name: SCHEMA[name] for name in table})
    model = DPAdmmLogisticRegression(
        epsilon=8.0, classes=[0, 1], feature_bounds=(-1, 1), random_state=0
    )
    y = (table["city"] == "Oslo").to_numpy(dtype=int)
    pipeline = make_pipeline(transformer, model)
    assert pipeline.fit(table, y).score(table, y) > 0.9
    assert model.plan(400, len(transformer.get_feature_names_out())) == pipeline[-1].plan(400, 4)
    assert acts_by_row(transformer)


# Coefficients in the units of a table.


def test_a_summary_predicts_what_the_pipeline_does_in_units_of_the_table():
    rng = np.random.default_rng(0)
    schema = {
        "age": (20, 80),
        "income": Range(10, 1000, log=True, missing="middle"),
        "debt": Range(0, 100, log=True),
        "city": ["Oslo", "Bergen"],
        "smoker": bool,
    }
    table = pd.DataFrame({"age": rng.uniform(20, 80, 400), "income": rng.uniform(10, 1000, 400)})
    table["debt"] = rng.uniform(0, 100, 400)
    table["city"] = rng.choice(["Oslo", "Bergen", "Rome"], 400)
    table["smoker"] = rng.random(400) < 0.5
    table.loc[rng.random(400) < 0.3, "income"] = np.nan
    score = table["age"] / 20 - table["smoker"] + (table["city"] == "Oslo")
    model = DPAdmmRidge(
        epsilon=math.inf, alpha=1e-9, intervals=True, feature_bounds=(-1, 1), target_bounds=(-5, 9)
    )
    pipeline = make_pipeline(PublicTableTransformer(schema), model)
    pipeline.fit(table, score + rng.normal(size=400))
    found = summary(pipeline)
    income = table["income"].fillna(100.0)
    columns = {
        ("age", "per 1"): table["age"],
        ("log(income)", "per 1"): np.log(income),
        ("income", "where missing"): table["income"].isna(),
        ("log(1 + debt)", "per 1"): np.log1p(table["debt"]),
        ("city Oslo", "against unlisted values"): table["city"] == "Oslo",
        ("city Bergen", "against unlisted values"): table["city"] == "Bergen",
        ("smoker", "where true"): table["smoker"],
        ("intercept", "where all columns are 0"): np.ones(400),
    }
    assert list(zip(found.names, found.units, strict=True)) == list(columns)
    A = np.column_stack(list(columns.values())).astype(float)
    np.testing.assert_allclose(A @ found.estimate, pipeline.predict(table), atol=1e-6)
    # A linear map of the coefficients: variances of predictions stay what they were.
    of_rows, B = model.inference_.covariance, pipeline[0].transform(table)
    B = np.column_stack([B, np.ones(400)])
    expected = np.einsum("ij,jk,ik->i", B, of_rows, B)
    np.testing.assert_allclose(np.einsum("ij,jk,ik->i", A, found.covariance, A), expected)
    ratios = summary(pipeline, exponentiate=True)
    np.testing.assert_allclose(ratios.to_frame()["odds ratio"], np.exp(found.estimate))
    assert "<table>" in ratios._repr_html_()


def test_a_summary_of_what_has_no_single_score_or_unknown_steps_is_refused():
    X, y = np.random.default_rng(0).uniform(-1, 1, (60, 2)), np.arange(60) % 3
    model = DPAdmmLogisticRegression(feature_bounds=(-1, 1))
    with pytest.raises(ValueError, match=r"^Got a model of 3 scores"):
        summary(model.fit(X, y))
    with pytest.raises(ValueError, match=r"^Got a pipeline with .*BoundedScaler"):
        summary(make_pipeline(BoundedScaler(), model).fit(X, y > 0))
