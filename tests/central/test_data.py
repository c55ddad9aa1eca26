"""The estimators on data of every kind: classes, containers, edge cases, seeds."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from skdpadmm import (
    DPAdmmElasticNet,
    DPAdmmHuberRegressor,
    DPAdmmLasso,
    DPAdmmLinearSVC,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
)
from skdpadmm.algorithms import ConsensusADMM

ESTIMATORS = {
    "ridge": DPAdmmRidge(alpha=0.1, random_state=0),
    "lasso": DPAdmmLasso(alpha=0.01, random_state=0),
    "elastic net": DPAdmmElasticNet(alpha=0.01, random_state=0),
    "huber": DPAdmmHuberRegressor(random_state=0),
    "linear svc": DPAdmmLinearSVC(random_state=0),
    "linear svc of three": DPAdmmLinearSVC(classes=[0, 1, 2], random_state=0),
    "logistic": DPAdmmLogisticRegression(C=1.0, random_state=0),
    "multinomial": DPAdmmLogisticRegression(C=1.0, classes=[0, 1, 2], random_state=0),
}


@pytest.fixture(params=ESTIMATORS)
def estimator(request):
    model = ESTIMATORS[request.param]
    return type(model)(**model.get_params(deep=False))


def data(n=300, p=4, seed=0):
    """Features of which some are zero, and a target that is a class and a number."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X[rng.random(X.shape) < 0.4] = 0.0
    return X, (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int)


def sample(model, **shape):
    """Data with as many classes as the model declares."""
    X, y = data(**shape)
    if len(getattr(model, "classes", None) or ()) == 3:
        y = y + (X[:, 1] > 0.5)
    return X, y


def parameters(model):
    return np.append(np.ravel(model.coef_), model.intercept_)


# Classes.


def test_a_declared_class_may_be_absent():
    X, y = data()
    model = DPAdmmLogisticRegression(classes=[0, 1, 7], random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.classes_, [0, 1, 7])
    assert model.coef_.shape == (3, 4)
    assert model.predict_proba(X).shape == (300, 3)
    two = DPAdmmLogisticRegression(classes=[0, 1], random_state=0).fit(X, np.zeros_like(y))
    assert two.coef_.shape == (1, 4)
    assert set(two.predict(X)) <= {0, 1}


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_an_absent_class_is_no_error_at_any_budget(epsilon):
    X, y = data()
    for classes in ([0, 1, 7], [-1, 0, 1, 2]):
        model = DPAdmmLogisticRegression(classes=classes, epsilon=epsilon, random_state=0)
        assert np.isfinite(parameters(model.fit(X, y))).all()


LABELS = {
    "int": np.array([3, 8]),
    "negative int": np.array([-5, 2]),
    "unsigned": np.array([0, 200], dtype=np.uint8),
    "float": np.array([0.0, 1.0]),
    "bool": np.array([False, True]),
    "str": np.array(["no", "yes"]),
    "str of several lengths": np.array(["a", "a much longer label"]),
    "object": np.array(["no", "yes"], dtype=object),
}


@pytest.mark.parametrize("declare", [False, True])
@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_labels_of_every_type_come_back_as_they_are(labels, declare):
    X, y = data()
    classes = list(labels[::-1]) if declare else None
    model = DPAdmmLogisticRegression(classes=classes, random_state=0, epsilon=20.0)
    plain = DPAdmmLogisticRegression(random_state=0, epsilon=20.0).fit(X, y)
    model.fit(X, labels[y])
    np.testing.assert_array_equal(model.classes_, labels)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    np.testing.assert_array_equal(model.predict(X), labels[plain.predict(X)])
    assert model.score(X, labels[y]) > 0.6


@pytest.mark.parametrize("declare", [False, True])
@pytest.mark.parametrize("dtype", ["category", "object", "string"])
def test_labels_may_be_a_column_of_pandas(dtype, declare):
    X, y = data()
    words = pd.Series(np.array(["no", "yes"])[y], dtype=dtype)
    model = DPAdmmLogisticRegression(classes=["no", "yes"] if declare else None, random_state=0)
    assert list(model.fit(X, words).classes_) == ["no", "yes"]
    assert set(model.predict(X)) == {"no", "yes"}


def test_the_order_of_declared_classes_does_not_matter():
    X, y = data()
    models = [
        DPAdmmLogisticRegression(classes=classes, random_state=0).fit(X, y)
        for classes in ([0, 1, 2], [2, 0, 1], np.array([1, 2, 0, 0]), (2.0, 1.0, 0.0))
    ]
    for model in models:
        np.testing.assert_array_equal(model.classes_, [0, 1, 2])
        np.testing.assert_array_equal(model.coef_, models[0].coef_)


def test_declaring_what_is_seen_changes_the_report_and_not_the_model():
    X, y = data()
    seen = DPAdmmLogisticRegression(random_state=0).fit(X, y)
    declared = DPAdmmLogisticRegression(classes=[0, 1], random_state=0).fit(X, y)
    np.testing.assert_array_equal(seen.coef_, declared.coef_)
    assert "classes not declared" in repr(seen.privacy_)
    assert "classes not declared" not in repr(declared.privacy_)


@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        ([0, 1], [0, 2]),
        ([0, 5], [0, 3]),
        ([0, 1], [-1, 0]),
        (["a", "b"], ["a", "c"]),
        (["a", "b"], [0, 1]),
        ([0, 1], ["0", "1"]),
        ([0, 1], ["a", "b"]),
        ([0.5, 1.5], [0, 1]),
    ],
)
def test_a_label_that_is_not_declared_is_an_error(classes, labels):
    X, y = data()
    model = DPAdmmLogisticRegression(classes=classes)
    with pytest.raises(ValueError, match=r"^Got labels in y that are not among classes=.*Declare"):
        model.fit(X, np.array(labels)[y])
    assert not hasattr(model, "classes_")


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_probabilities_sum_to_one_and_agree_with_predictions(epsilon, n_classes):
    X, y = data()
    y = (y + np.arange(len(y)) % (n_classes - 1)) if n_classes > 2 else y
    model = DPAdmmLogisticRegression(
        classes=range(n_classes), epsilon=epsilon, random_state=0, C=0.1
    ).fit(X, y)
    proba = model.predict_proba(X)
    assert proba.shape == (300, n_classes)
    assert ((proba >= 0) & (proba <= 1)).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), proba, atol=1e-12)
    np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X))
    scores = model.decision_function(X)
    assert scores.shape == ((300,) if n_classes == 2 else (300, n_classes))
    far = model.predict_log_proba(1e6 * X[:5])
    assert np.isfinite(far).all()


# Shapes and edge cases: a finite result and not a word. Warnings are errors in this suite.


def edge_cases():
    X, y = data(n=60)
    return {
        "one column": (X[:, :1], y),
        "more columns than rows": (np.tile(X[:6], (1, 10)), np.tile([0, 1], 3)),
        "all zero": (0.0 * X, y),
        "one row many times": (np.tile(X[:1], (60, 1)), y),
        "rows many times": (np.tile(X[:2], (30, 1)), np.tile([0, 1], 30)),
        "constant column": (np.column_stack([X, np.full(60, 1e3)]), y),
        "large rows": (1e30 * X, y),
        "tiny rows": (1e-200 * X, y),
        "two rows": (X[:2], np.array([0, 1])),
    }


HUGE_ROWS = {
    "mixed signs": 1e300 * np.array([1.0, -1, 1, -1]),
    "the largest floats": np.full(4, 1.7e308),
    "one entry": np.array([0, -1.7e308, 0, 0]),
    "tiny": np.full(4, 1e-320),
}


def error_of(function, *arguments):
    """Text of a ValueError, or nothing."""
    try:
        function(*arguments)
    except ValueError as error:
        return str(error)
    return ""


def assert_a_finite_fit(model, X, y):
    model.fit(X, y)
    assert np.isfinite(parameters(model)).all()
    assert model.n_iter_ >= 1
    assert np.isfinite(np.asarray(model.predict(np.zeros((1, X.shape[1]))), dtype=float)).all()


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("case", edge_cases().values(), ids=edge_cases())
def test_an_edge_case_ends_in_a_finite_model(estimator, case, convert, fit_intercept, epsilon):
    X, y = case
    if getattr(estimator, "classes", None):
        y = np.arange(len(y)) % 3
    estimator.set_params(fit_intercept=fit_intercept, epsilon=epsilon)
    assert_a_finite_fit(estimator, convert(X), y)


@pytest.mark.parametrize("record_step", ["exact", "linearized"])
@pytest.mark.parametrize("bounds", [None, (-1, 2)])
@pytest.mark.parametrize("convert", [np.asarray, np.asfortranarray, sparse.csr_matrix])
@pytest.mark.parametrize("row", HUGE_ROWS.values(), ids=HUGE_ROWS)
def test_an_extreme_row_ends_in_a_finite_private_model(
    estimator, row, convert, bounds, record_step
):
    X, y = sample(estimator, n=60)
    X[7] = row
    estimator.set_params(
        feature_bounds=bounds, algorithm=ConsensusADMM(record_step=record_step), max_iter=20,
        n_jobs=2 if bounds is None else 1,
    )  # fmt: skip
    assert_a_finite_fit(estimator, convert(X), y)


@pytest.mark.parametrize("row", HUGE_ROWS.values(), ids=HUGE_ROWS)
def test_an_extreme_row_ends_in_a_finite_model_or_in_a_clear_error_without_privacy(estimator, row):
    # Nothing is clipped here, so to refuse such a row in so many words is right as well.
    X, y = sample(estimator, n=60)
    X[7] = row
    error = error_of(assert_a_finite_fit, estimator.set_params(epsilon=math.inf), X, y)
    assert not error or error.startswith("Got X with values beyond")


@pytest.mark.parametrize("values", [[1.7e308, 1.0], [1e300, -1e300], [5e-324, 0.0]])
def test_extreme_targets_end_in_a_finite_private_model(values):
    X, y = data(n=60)
    for model in (DPAdmmRidge(), DPAdmmLasso(), DPAdmmRidge(target_bounds=(-1e9, 1e9))):
        assert_a_finite_fit(model.set_params(random_state=0), X, np.array(values)[y])


def test_values_whose_sum_overflows_pass_validation_in_silence(estimator):
    X, y = sample(estimator, n=64)
    X[5] = [1.7e308, 1.7e308, -1.7e308, -1.7e308]
    assert_a_finite_fit(estimator, X, y)


def test_targets_whose_sum_overflows_pass_validation_in_silence():
    X, y = data(n=64)
    assert_a_finite_fit(DPAdmmRidge(random_state=0), X, 1.7e308 * (2.0 * y - 1))


@pytest.mark.parametrize("model", [DPAdmmRidge, DPAdmmLasso, DPAdmmElasticNet])
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_regression_on_one_row_and_on_a_constant_target(model, epsilon):
    X, _ = data(n=60)
    model = model(alpha=0.1, epsilon=epsilon, random_state=0)
    assert_a_finite_fit(model, X[:1], np.array([0.7]))
    assert_a_finite_fit(model, X, np.full(60, 2.0))
    if epsilon == math.inf:
        np.testing.assert_allclose(model.predict(X), 2.0)


@pytest.mark.parametrize("epsilon", [1e-10, 1e-3, 1e3, 1e10])
@pytest.mark.parametrize("delta", [1e-300, 1e-5])
def test_extreme_budgets_end_in_a_finite_model(estimator, epsilon, delta):
    estimator.set_params(epsilon=epsilon, delta=delta, max_iter=10)
    assert_a_finite_fit(estimator, *sample(estimator))


@pytest.mark.parametrize("knobs", [{"step_size": 1e-12}, {"step_size": 1e12}, {"clip_norm": 1e9}])
def test_extreme_knobs_end_in_a_finite_model(estimator, knobs):
    assert_a_finite_fit(estimator.set_params(algorithm=ConsensusADMM(**knobs)), *sample(estimator))


@pytest.mark.parametrize(
    "bounds", [(0, 1e-90), (-1e90, 1e90), (1e9, 1e9 + 1e-3), (0, 1e-200), (0, 1e-310)]
)
def test_a_declared_range_of_any_size_ends_in_a_finite_model(bounds):
    # A range is public: if one is too narrow to compute with, say so by name before any data.
    X, y = data()
    X = bounds[0] + (bounds[1] - bounds[0]) * np.clip(np.abs(X) / 3, 0, 1)
    model = DPAdmmRidge(feature_bounds=bounds, random_state=0)
    error = error_of(model.plan, *X.shape)
    assert not error or error.startswith("Got feature_bounds")
    assert error or np.isfinite(parameters(model.fit(X, y))).all()


def test_lists_integers_and_frames_are_data_too():
    X, y = data()
    integers = np.round(X).astype(int)
    expected = DPAdmmRidge(random_state=0).fit(integers.astype(float), y.astype(float)).coef_
    for X_, y_ in [
        (integers, y),
        (integers.tolist(), y.tolist()),
        (integers.astype(np.int8), y.astype(np.uint8)),
        (pd.DataFrame(integers), pd.Series(y)),
    ]:
        np.testing.assert_array_equal(DPAdmmRidge(random_state=0).fit(X_, y_).coef_, expected)


# Containers.


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize("bounds", [None, (-1.5, 2.0)])
@pytest.mark.parametrize(
    "convert",
    [np.asfortranarray, sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.coo_array],
    ids=["F", "CSR", "CSR array", "CSC", "COO array"],
)
def test_the_container_changes_only_rounding(estimator, convert, bounds, epsilon):
    X, y = sample(estimator)
    estimator.set_params(feature_bounds=bounds, epsilon=epsilon)
    expected = parameters(estimator.fit(X, y))
    found = parameters(estimator.fit(convert(X), y))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    dense, other = estimator.predict(X), estimator.predict(convert(X))
    np.testing.assert_allclose(np.asarray(other, float), np.asarray(dense, float), rtol=1e-10)


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_float32_features_are_computed_with_in_float64(estimator, epsilon):
    X, y = sample(estimator)
    X = X.astype(np.float32)
    estimator.set_params(epsilon=epsilon)
    expected = parameters(estimator.fit(X.astype(np.float64), y))
    assert estimator.coef_.dtype == np.float64
    np.testing.assert_allclose(parameters(estimator.fit(X, y)), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        parameters(estimator.fit(sparse.csr_matrix(X), y)), expected, rtol=1e-7, atol=1e-9
    )


def test_repeated_entries_of_a_sparse_matrix_count_as_their_sum(estimator):
    # Entry by entry they would pass a bound that their sum does not pass.
    X, y = sample(estimator)
    X[0] = [500.0, 0, 0, 0]
    canonical = sparse.csr_matrix(X)
    repeated = sparse.csr_matrix(
        (
            np.concatenate([np.ones(500), canonical.data[1:]]),
            np.concatenate([np.zeros(500, dtype=int), canonical.indices[1:]]),
            np.concatenate([[0], canonical.indptr[1:] + 499]),
        ),
        shape=X.shape,
    )
    assert (repeated != canonical).nnz == 0
    expected = parameters(estimator.fit(canonical, y))
    np.testing.assert_allclose(parameters(estimator.fit(repeated, y)), expected, rtol=1e-10)


def test_input_is_not_changed_and_may_be_read_only(estimator):
    X, y = sample(estimator)
    X[3] = 1e300
    before = X.copy(), y.copy()
    X.flags.writeable = y.flags.writeable = False
    estimator.set_params(feature_bounds=(-1, 1)).fit(X, y)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(y, before[1])


# Seeds.


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_the_number_of_jobs_changes_no_bit(estimator, epsilon):
    X, y = sample(estimator, n=9000, p=70)
    estimator.set_params(epsilon=epsilon, max_iter=5)
    expected = parameters(estimator.set_params(n_jobs=None).fit(X, y))
    for n_jobs in (1, 2, 3, -1):
        found = parameters(estimator.set_params(n_jobs=n_jobs).fit(X, y))
        np.testing.assert_array_equal(found, expected)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(estimator):
    X, y = sample(estimator)
    expected = parameters(estimator.fit(X, y))
    np.testing.assert_array_equal(parameters(estimator.fit(X, y)), expected)
    other = parameters(estimator.set_params(random_state=1).fit(X, y))
    assert not np.array_equal(other, expected)


def test_without_a_seed_every_fit_differs(estimator):
    X, y = sample(estimator)
    estimator.set_params(random_state=None)
    assert not np.array_equal(parameters(estimator.fit(X, y)), parameters(estimator.fit(X, y)))
    assert estimator.privacy_.simulation == ""


@pytest.mark.parametrize("generator", [np.random.RandomState, np.random.default_rng])
def test_a_generator_advances_from_fit_to_fit(estimator, generator):
    X, y = sample(estimator)
    estimator.set_params(random_state=generator(0))
    first, second = parameters(estimator.fit(X, y)), parameters(estimator.fit(X, y))
    assert not np.array_equal(first, second)
    estimator.set_params(random_state=generator(0))
    np.testing.assert_array_equal(parameters(estimator.fit(X, y)), first)
    assert "random_state" in estimator.privacy_.simulation


def test_another_budget_or_knob_draws_unrelated_noise_from_the_same_seed():
    X, y = data()
    fits = [
        DPAdmmRidge(random_state=0, **changed).fit(0.0 * X, 0.0 * y).coef_
        for changed in ({}, {"epsilon": 2.0}, {"max_iter": 101}, {"neighboring": "zero_out"})
    ]
    directions = [coef / np.linalg.norm(coef) for coef in fits]
    for i, one in enumerate(directions):
        for other in directions[:i]:
            assert abs(one @ other) < 0.999


# Reports.


def test_the_report_of_a_private_fit_spends_the_budget(estimator):
    X, y = sample(estimator)
    for neighboring in ("replace_one", "zero_out"):
        estimator.set_params(epsilon=0.7, delta=1e-6, neighboring=neighboring).fit(X, y)
        report = estimator.privacy_
        assert report.epsilon() == pytest.approx(0.7, rel=1e-6)
        assert report.epsilon() <= 0.7 * (1 + 1e-9)
        assert report.delta == 1e-6
        assert neighboring.replace("_", " ") in repr(report)
        assert "SIMULATION" in repr(report)
        assert "not private" not in repr(report)
    assert "SIMULATION" not in repr(estimator.set_params(random_state=None).fit(X, y).privacy_)


def test_the_report_of_a_fit_without_privacy_says_so(estimator):
    X, y = sample(estimator)
    report = estimator.set_params(epsilon=math.inf).fit(X, y).privacy_
    assert math.isinf(report.epsilon())
    assert "not private" in repr(report)
    assert "not private" in report._repr_html_()
    assert "SIMULATION" not in repr(report)


def test_the_report_says_what_was_assumed():
    X, y = data()
    bare = repr(DPAdmmRidge(random_state=0).fit(X, y).privacy_)
    told = DPAdmmRidge(random_state=0, feature_bounds=(-3, 3), target_bounds=(0, 1)).fit(X, y)
    for part in ("feature_bounds not declared", "target_bounds not declared"):
        assert part in bare
        assert part not in repr(told.privacy_)
    assert "floating point" in bare


def test_more_budget_and_more_data_come_closer_to_the_answer_without_privacy():
    def error(n, epsilon):
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, size=(n, 3))
        y = X @ [1.0, -1.0, 0.5]
        bounds = {"feature_bounds": (-1, 1), "target_bounds": (-3, 3)}
        exact = DPAdmmRidge(epsilon=math.inf).fit(X, y).coef_
        fits = [
            DPAdmmRidge(epsilon=epsilon, random_state=seed, **bounds).fit(X, y).coef_
            for seed in range(5)
        ]
        return np.mean([np.linalg.norm(coef - exact) for coef in fits])

    assert error(20_000, 4.0) < error(20_000, 0.1)
    assert error(20_000, 1.0) < error(200, 1.0)
    assert error(20_000, 4.0) < 0.1


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 40),
    p=st.integers(1, 6),
    exponent=st.integers(-300, 300),
    name=st.sampled_from(sorted(ESTIMATORS)),
    as_csr=st.booleans(),
)
def test_every_finite_data_set_ends_in_a_finite_private_model(seed, n, p, exponent, name, as_csr):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * 10.0 ** rng.integers(-abs(exponent), abs(exponent) + 1, (n, p))
    y = np.resize([0, 1], n)
    model = type(ESTIMATORS[name])(**ESTIMATORS[name].get_params(deep=False))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(max_iter=5).fit(sparse.csr_matrix(X) if as_csr else X, y)
    assert np.isfinite(parameters(model)).all()
