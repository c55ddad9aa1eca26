"""The estimators on data of every kind: edge cases, containers, types, labels, names of columns."""

import math
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.model_selection import DPGridSearchCV
from tests.interface.registry import DEFAULTS, ROWS, all_pairs, assert_alike, parameters, plan_of

CONTAINERS = {
    "array": np.asarray,
    "Fortran": np.asfortranarray,
    "CSR": sparse.csr_matrix,
    "COO array": sparse.coo_array,
    "frame": lambda X: pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]),
    "list": lambda X: X.tolist(),
}
BUDGETS = [1.0, math.inf]
# One estimator for each way in which data are prepared.
HERE = ["lasso", "linear svc", "multinomial", "fed logistic", "network", "personal"]


def units(row):
    """What is protected, as far as there is a choice."""
    record_alone = row.family == "central" or row is ROWS["walk"]
    return {} if record_alone else {"privacy_unit": "agent"}


def assert_a_finite_fit(model, X, y):
    """Not a word, either: warnings are errors in this suite."""
    assert np.isfinite(parameters(model.fit(X, y))).all()
    assert np.isfinite(np.asarray(model.predict(np.zeros((1, np.shape(X)[1]))), float)).all()


def edge_cases():
    X = np.random.default_rng(3).normal(size=(60, 4))
    X[np.abs(X) < 0.3] = 0.0
    extreme = X.copy()
    extreme[7] = 1e99 * np.array([1, -1, 1, -1])
    return {
        "three rows": X[:3],
        "one column": X[:, :1],
        "more columns than rows": np.tile(X[:6], (1, 10)),
        "all zero": 0.0 * X,
        "one row many times": np.tile(X[:1], (60, 1)),
        "constant column": np.column_stack([X, np.full(60, 1e3)]),
        "huge rows": 1e99 * X,
        "a huge row": extreme,
    }


@pytest.mark.filterwarnings("ignore:Got delta")
@pytest.mark.parametrize(
    ("name", "case", "container", "epsilon", "fit_intercept", "by_agent"),
    all_pairs(
        HERE, edge_cases(), ["array", "CSR", "Fortran"], BUDGETS, [True, False], [True, False]
    ),
)
def test_an_edge_case_ends_in_a_finite_model(
    name, case, container, epsilon, fit_intercept, by_agent
):
    row, X = DEFAULTS[name], edge_cases()[case]
    model = row.make(epsilon=epsilon, fit_intercept=fit_intercept, max_iter=4)
    model.set_params(**(units(row) if by_agent else {}))
    if row.family in ("federated", "decentralized"):
        model.set_params(n_agents=min(4, len(X)))
    y = np.arange(len(X)) % max(row.n_classes, 2)
    assert_a_finite_fit(model, CONTAINERS[container](X), y)


@pytest.mark.parametrize("name", [*HERE, "stream", "perturbed objective", "fed sharing", "walk"])
def test_an_extreme_budget_ends_in_a_finite_model_or_is_refused_before_data(name):
    row = ROWS[name]
    for epsilon, delta in ((1e-10, 1e-300), (1e-3, 1e-5), (1e10, 1e-300)):
        model = row.make(epsilon=epsilon, delta=delta)
        try:
            plan_of(model, 60, 3)
        except ValueError as error:
            assert epsilon < 1e-3
            assert re.match("Got .*expected", str(error))  # noqa: PT017
        else:
            assert_a_finite_fit(model, *row.data())


@pytest.mark.parametrize(
    ("name", "container", "dtype", "bounds", "epsilon", "by_agent"),
    all_pairs(
        [*HERE, "stream", "perturbed objective", "walk"], CONTAINERS,
        [np.float64, np.float32, np.int64], [None, (-1.5, 2.0)], BUDGETS, [True, False],
    ),
)  # fmt: skip
def test_container_and_type_change_only_rounding(name, container, dtype, bounds, epsilon, by_agent):
    row = ROWS[name]
    X, y = row.data()
    X = np.round(10 * X).astype(dtype) if dtype is np.int64 else X.astype(dtype)
    model = row.make(feature_bounds=bounds, epsilon=epsilon, **(units(row) if by_agent else {}))
    expected = parameters(model.fit(X.astype(np.float64), y))
    dense = np.asarray(model.predict(X), float)
    made = CONTAINERS[container](X)
    # Without privacy what was solved for to a tolerance is equal to it.
    tolerance = 1e-9 if math.isfinite(epsilon) else 1e-6
    np.testing.assert_allclose(
        parameters(model.fit(made, y)), expected, rtol=tolerance, atol=tolerance
    )
    assert model.coef_.dtype == np.float64
    other = np.asarray(model.predict(made), float)
    np.testing.assert_allclose(other, dense, rtol=10 * tolerance, atol=10 * tolerance)


# Classes.

CLASSIFIERS = {
    "logistic": {"C": 0.5},
    "linear svc": {"C": 0.5},
    "fed logistic": {},
    "network of classes": {},
    "personal classes": {},
}


def classifier(name, classes=None, **changed):
    return ROWS[name].make(classes=classes, **CLASSIFIERS[name], **changed)


@pytest.mark.parametrize(
    "labels",
    [np.array([0, 200], dtype=np.uint8), np.array([False, True]), np.array(["a", "much longer"])],
    ids=["unsigned", "bool", "str"],
)
@pytest.mark.parametrize("declare", [False, True])
def test_labels_come_back_as_they_are(labels, declare):
    X, y = ROWS["logistic"].data()
    plain = classifier("logistic").fit(X, y)
    model = classifier("logistic", classes=list(labels[::-1]) if declare else None)
    model.fit(X, labels[y])
    assert model.classes_.tolist() == labels.tolist()
    assert model.predict(X).tolist() == labels[plain.predict(X)].tolist()
    assert ("classes not declared" in repr(model.privacy_)) == (not declare)


@pytest.mark.parametrize("epsilon", BUDGETS)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_declared_class_may_be_absent_and_their_order_does_not_matter(name, epsilon):
    X, y = ROWS["logistic"].data()
    models = [
        classifier(name, classes=classes, epsilon=epsilon).fit(X, y)
        for classes in ([0, 1, 7], np.array([1, 7, 0, 0]), (7.0, 1.0, 0.0))
    ]
    for model in models:
        assert model.classes_.tolist() == [0, 1, 7]
        assert model.coef_.shape == (3, 3)
        assert_alike(model.coef_, models[0].coef_)
        assert np.isfinite(parameters(model)).all()


@pytest.mark.parametrize(("classes", "labels"), [([0, 1], [0, 2]), ([0, 1], ["0", "1"])])
def test_a_label_that_is_not_declared_is_an_error_that_shows_no_data(classes, labels):
    X, y = ROWS["logistic"].data()
    model = DPAdmmLogisticRegression(classes=classes)
    with pytest.raises(
        ValueError, match=r"^Got labels in y .*not among classes=.*Declare"
    ) as caught:
        model.fit(X, np.array(labels)[y])
    assert not hasattr(model, "classes_")
    assert caught.value.__context__ is None
    secret = np.where(y == 1, 271828, 0)
    with pytest.raises(ValueError, match="not among classes") as caught:
        DPAdmmLogisticRegression(classes=[0, 1]).fit(X, secret)
    assert "271828" not in str(caught.value)


def test_declared_classes_are_never_warned_of_however_many_are_seen():
    # scikit-learn warns of more distinct labels than half of the records.
    (X, _), y = ROWS["logistic"].data(n=30), np.arange(30) % 16
    model = DPAdmmLogisticRegression(classes=range(20), max_iter=2).fit(X, y)
    DPGridSearchCV(model, {"C": [0.1, 1.0]}, epsilon=1e4, random_state=0).fit(X, y)


@pytest.mark.parametrize(
    ("value", "advice"),
    [("Oslo", "^Got text.* HashingVectorizer"), (np.nan, "^Input X contains NaN.* without a guar")],
)
@pytest.mark.parametrize("name", ["multinomial", "lasso", "fed logistic"])
def test_a_table_is_refused_by_advice_that_is_private_and_shows_no_value(name, value, advice):
    X, y = ROWS[name].data()
    table = pd.DataFrame(X).assign(city=value)
    with pytest.raises(ValueError, match=advice) as refused:
        ROWS[name].make().fit(table.rename(columns=str), y)
    assert "PublicTableTransformer" in str(refused.value)
    assert "Oslo" not in str(refused.value)
    assert refused.value.__cause__ is None


# What floats do not hold, whatever holds it: refused as infinite numbers are.
BEYOND = [np.longdouble("1e400"), -(10**400), Fraction(10**400), Decimal("1e400")]
MISSING = [None, Decimal("nan"), float("nan")]


@pytest.mark.parametrize("value", [*BEYOND, *MISSING], ids=str)
@pytest.mark.parametrize("place", ["X", "y"])
@pytest.mark.parametrize("kind", ["model", "infinite", "search", "search of a pipeline"])
def test_numbers_that_floats_do_not_hold_are_refused_alike_wherever_they_are(kind, place, value):
    is_missing = value in MISSING or value != value
    rows, targets = (np.random.default_rng(0).uniform(-1, 1, s).astype(object) for s in (60, 120))
    data = {"X": targets.reshape(60, 2), "y": rows}
    bounds = {"feature_bounds": (-1, 1), "target_bounds": (-1, 1), "delta": 1e-3}
    model = DPAdmmRidge(max_iter=1, conditioning=None, **bounds)
    name = "m__alpha" if kind == "search of a pipeline" else "alpha"
    steps = Pipeline([("n", Normalizer()), ("m", model)]) if "__" in name else model
    if kind == "infinite":
        steps.set_params(epsilon=math.inf)
    messages = set()
    for seed in range(3 if "search" in kind else 1):
        if "search" in kind:
            steps = DPGridSearchCV(model, {name: [1.0, 2.0]}, random_state=seed, delta=1e-3)
            if "__" in name:
                steps.set_params(estimator=Pipeline([("n", Normalizer()), ("m", model)]))
        given = {key: part.copy() for key, part in data.items()}
        given[place].flat[7] = value
        with pytest.raises(ValueError, match=r"NaN|infinity|too large") as caught:
            steps.fit(**given)
        messages.add(str(caught.value).partition("\n")[0])
    assert len(messages) == 1
    assert ("NaN" in messages.pop()) == is_missing


@pytest.mark.parametrize("algorithm", ["consensus-admm", "gradient-descent"])
@pytest.mark.parametrize("conditioning", [None, "private"])
def test_rows_whose_squares_overflow_beside_a_small_norm_count_as_nothing(algorithm, conditioning):
    X = np.random.default_rng(0).uniform(-1, 1, (60, 3))
    model = DPAdmmRidge(
        row_norm=1e-100, target_bounds=(-1, 1), max_iter=2, algorithm=algorithm, delta=1e-3
    ).set_params(conditioning=conditioning)
    for value in (1e60, 1e307):
        X[3] = value
        assert_a_finite_fit(model, X, X[:, 0].clip(-1, 1))


@pytest.mark.parametrize("label", ["a", None, (), 7, 10**400])
def test_a_label_beside_declared_ones_is_refused_whatever_its_type(label):
    X, y = np.zeros((40, 2)), np.resize(np.array([0, 1], dtype=object), 40)
    y[3] = label
    with pytest.raises(ValueError, match="not among classes"):
        DPAdmmLogisticRegression(classes=[0, 1], feature_bounds=(-1, 1), delta=1e-3).fit(X, y)
