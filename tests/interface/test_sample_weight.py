"""Weights of records: what a fit minimises, what is public of them, and what is refused."""

import math

import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

import skdpadmm as dp
from skdpadmm.algorithms import ALGORITHMS, ConsensusADMM, GradientADMM, GradientDescent
from skdpadmm.algorithms._noise_left import rows_in_mean
from skdpadmm.exceptions import UndeclaredBoundsWarning
from skdpadmm.model_selection import DPGridSearchCV
from skdpadmm.preprocessing import BoundedScaler
from tests.contract import harness

rng = np.random.default_rng(0)
N = 60
X = rng.uniform(-1, 1, (N, 3))
SCORES = np.clip(X @ [1.0, -1.0, 0.5] + 0.4 * rng.standard_normal(N), -3, 3)
TWO, THREE = (SCORES > 0).astype(int), np.digitize(SCORES, [-0.5, 0.5])
COUNTS = rng.permutation(np.resize([0, 1, 2, 1], N))
WEIGHTS = rng.gamma(1.0, 1.0, N)
WEIGHTS *= N / WEIGHTS.sum()
KNOWN = {"feature_bounds": (-1, 1), "random_state": 0, "max_iter": 10}
LOGISTIC = LogisticRegression(C=0.7, solver="newton-cg", tol=1e-12, max_iter=1000)
CENTRAL = [
    (dp.DPAdmmRidge(alpha=2.0), Ridge(alpha=2.0), SCORES),
    (dp.DPAdmmLasso(alpha=0.05), Lasso(alpha=0.05, tol=1e-14), SCORES),
    (dp.DPAdmmElasticNet(alpha=0.1), ElasticNet(alpha=0.1, tol=1e-14), SCORES),
    (dp.DPAdmmLogisticRegression(C=0.7), LOGISTIC, TWO),
    (dp.DPAdmmLogisticRegression(C=0.7), LOGISTIC, THREE),
]
OTHERS = [
    (dp.DPAdmmGeneralizedLasso(alpha=0.05), SCORES),
    (dp.DPAdmmHuberRegressor(alpha=0.1), SCORES),
    (dp.DPAdmmLinearSVC(C=0.1), TWO),
    (dp.DPAdmmLinearSVC(C=0.1), THREE),
]


@pytest.mark.parametrize(("model", "theirs", "y"), CENTRAL)
@pytest.mark.parametrize("max_weight", [None, 1.0, "public"])
@pytest.mark.parametrize("of", [np.asarray, sparse.csr_array])
def test_without_privacy_it_is_the_weighted_optimum_of_scikit_learn(
    model, theirs, y, max_weight, of
):
    model.set_params(epsilon=math.inf, max_weight=max_weight)
    model.fit(of(X), y, sample_weight=WEIGHTS)
    theirs.fit(X, y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, theirs.intercept_, atol=1e-6)


@pytest.mark.parametrize(("model", "y"), [(model, y) for model, _, y in CENTRAL] + OTHERS)
def test_integer_weights_are_repeated_rows_and_those_of_zero_are_none(model, y):
    model.set_params(epsilon=math.inf)
    if hasattr(model, "alpha"):
        # Of all rows, where the penalty is that of a mean; both have equally many.
        assert COUNTS.sum() == N
    weighted = model.fit(X, y, sample_weight=COUNTS).coef_
    index = np.repeat(np.arange(N), COUNTS)
    np.testing.assert_allclose(model.fit(X[index], y[index]).coef_, weighted, atol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        dp.DPAdmmRidge(),
        dp.DPAdmmLogisticRegression(),
        dp.DPAdmmLogisticRegression(class_weight={0: 3.0}),
    ],
)
@pytest.mark.parametrize("algorithm", ["consensus-admm", "gradient-descent"])
@pytest.mark.parametrize("intervals", [False, True])
def test_a_private_fit_is_near_the_weighted_optimum(model, algorithm, intervals):
    intervals = intervals and getattr(model, "class_weight", None) is None
    many = np.random.default_rng(0)
    rows = many.uniform(-1, 1, (4000, 3))
    # A curve, whose slope depends on where the weights are.
    scores = rows @ [0.5, -0.5, 0.3] + rows[:, 0] ** 2
    weights = 1.0 + rows[:, 0]
    # Classes that a curve separates have an optimum far out, which takes long to reach.
    noisy = scores + 0.2 * many.logistic(size=4000)
    y = scores if isinstance(model, dp.DPAdmmRidge) else (noisy > 0.3).astype(int)
    params = {"epsilon": 30.0, "feature_bounds": (-1, 1), "random_state": 0, "algorithm": algorithm}
    params |= {"classes": [0, 1]} if hasattr(model, "classes") else {"target_bounds": (-3, 3)}
    model.set_params(**params, max_weight=2.0, intervals=intervals)
    private = model.fit(rows, y, sample_weight=weights)
    found = private.inference_.estimate[:3] if intervals else np.ravel(private.coef_)
    found = np.asarray(found)
    exact = model.set_params(epsilon=math.inf, intervals=False)
    best = np.ravel(exact.fit(rows, y, sample_weight=weights).coef_)
    unweighted = np.ravel(exact.fit(rows, y).coef_)
    model.set_params(epsilon=1.0)
    assert np.abs(found - best).max() < 0.3 * np.abs(unweighted - best).max()


def test_the_same_weights_in_other_units_are_the_same_public_ones():
    model = dp.DPAdmmRidge(max_weight="public", alpha=0.0, **KNOWN)
    one = model.fit(X, SCORES, sample_weight=WEIGHTS)
    coef, report = one.coef_, one.privacy_
    other = model.fit(X, SCORES, sample_weight=1024.0 * WEIGHTS)
    np.testing.assert_allclose(other.coef_, coef, rtol=1e-9)
    assert other.privacy_ == report


@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
def test_public_weights_stay_within_their_sensitivities(neighboring):
    class Row:
        @staticmethod
        def make():
            return dp.DPAdmmRidge(
                max_weight="public", neighboring=neighboring, target_bounds=(-3, 3), **KNOWN
            )

        @staticmethod
        def fit(model, rows, y):
            return model.fit(rows, y, sample_weight=WEIGHTS)

    heaviest = int(WEIGHTS.argmax())
    y = SCORES.copy()
    y[heaviest] = 3.0
    recorded = harness.record(Row, X, y)
    y = y.copy()
    y[heaviest] = -3.0
    moves = list(harness.moves(recorded, harness.replay(Row, recorded, X, y)))
    steps = 2 if neighboring == "zero_out" else 1
    assert max(move.distance / move.declared for move in moves) <= steps * harness.SLACK
    assert max(move.distance / move.declared for move in moves) > 0.3


def test_a_weighted_record_is_in_some_batches_and_in_the_others_it_changes_nothing():
    class Row:
        @staticmethod
        def make():
            steps = GradientDescent(batch_fraction=0.5)
            known = {**KNOWN, "target_bounds": (-3, 3), "max_iter": 20}
            return dp.DPAdmmRidge(max_weight=2.0, algorithm=steps, scale=None, **known)

        @staticmethod
        def fit(model, rows, y):
            return model.fit(rows, y, sample_weight=WEIGHTS)

    one, other = (np.where(np.arange(N) == WEIGHTS.argmax(), y, SCORES) for y in (-3.0, 3.0))
    recorded = harness.record(Row, X, one)
    moves = harness.moves(recorded, harness.replay(Row, recorded, X, other))
    changed = [move.distance > 0 for move in moves if move.name == "mean gradient"]
    assert len(changed) == 20
    assert 3 <= sum(changed) <= 17


def test_no_private_weights_are_refused_for_their_values_and_usual_ones_open_the_bound():
    model = dp.DPAdmmLogisticRegression(max_weight=4.0, classes=[0, 1], **KNOWN)
    assert model.fit(X, TWO, sample_weight=np.zeros(N)).privacy_.epsilon() == pytest.approx(1.0)
    # Of the derivative of a usual record, whose weight is a quarter of the largest.
    assert rows_in_mean(model.plan(N, 3).facts) == 4.0


def test_weights_above_the_bound_are_cut_and_change_no_bit():
    model = dp.DPAdmmRidge(max_weight=1.5, **KNOWN)
    coef = model.fit(X, SCORES, sample_weight=np.minimum(WEIGHTS, 1.5)).coef_
    far = np.where(WEIGHTS >= 1.5, 1e300, WEIGHTS)
    np.testing.assert_array_equal(model.fit(X, SCORES, sample_weight=far).coef_, coef)


def test_records_of_weight_zero_change_no_bit():
    model = dp.DPAdmmRidge(max_weight=2.0, scale=None, conditioning=None, **KNOWN)
    coef = model.fit(X, SCORES, sample_weight=COUNTS).coef_
    empty = COUNTS[:, None] == 0
    others = np.where(empty, np.random.default_rng(1).uniform(-1, 1, X.shape), X)
    y = np.where(empty[:, 0], -SCORES, SCORES)
    np.testing.assert_array_equal(model.fit(others, y, sample_weight=COUNTS).coef_, coef)


def test_weights_of_one_are_those_that_are_left_out_and_the_plan_knows_the_bound_alone():
    model = dp.DPAdmmRidge(max_weight=4.0, **KNOWN)
    coef = model.fit(X, SCORES).coef_
    digest = model.plan(N, 3).digest()
    fits = [model.fit(X, SCORES, sample_weight=w).coef_ for w in (np.ones(N), WEIGHTS)]
    np.testing.assert_array_equal(fits[0], coef)
    assert not np.array_equal(fits[1], coef)
    assert model.plan(N, 3).digest() == digest
    plain = dp.DPAdmmRidge(**KNOWN).plan(N, 3)
    assert model.plan(N, 3).signal.strength == pytest.approx(plain.signal.strength / 4)
    assert "private; those above 4 are clipped" in repr(model.privacy_)
    assert "private; those above 4 are clipped" in str(model.plan(N, 3))
    public = dp.DPAdmmRidge(max_weight="public", **KNOWN).fit(X, SCORES, sample_weight=WEIGHTS)
    assert "Sample weights are public" in repr(public.privacy_)


def test_an_undeclared_bound_is_one_and_is_warned_of():
    model = dp.DPAdmmRidge(target_bounds=(-3, 3), **KNOWN)
    with pytest.warns(UndeclaredBoundsWarning, match="Pass max_weight"):
        coef = model.fit(X, SCORES, sample_weight=WEIGHTS).coef_
    model.set_params(max_weight=1.0)
    np.testing.assert_array_equal(model.fit(X, SCORES, sample_weight=WEIGHTS).coef_, coef)
    assert not hasattr(model, "max_weight_")


@pytest.mark.parametrize(
    ("params", "fit", "message"),
    [
        ({"max_weight": 0.5}, {}, "max_weight"),
        ({"max_weight": math.inf}, {}, "max_weight"),
        ({"max_weight": "mean"}, {}, "max_weight"),
        ({}, {"sample_weight": -WEIGHTS}, "entries below 0"),
        (
            {},
            {"sample_weight": np.where(WEIGHTS > 1, np.nan, WEIGHTS)},
            "sample_weight contains NaN",
        ),
        (
            {},
            {"sample_weight": np.where(WEIGHTS > 1, np.inf, 1)},
            "sample_weight contains infinity",
        ),
        ({}, {"sample_weight": WEIGHTS[1:]}, r"sample_weight of shape \(59,\)"),
        ({}, {"sample_weight": np.ones((N, 2))}, r"sample_weight of shape \(60, 2\)"),
        ({"max_weight": "public"}, {"sample_weight": np.zeros(N)}, "sample_weight of zeros"),
        (
            {"max_rows_per_person": 2},
            {"sample_weight": WEIGHTS, "persons": np.arange(N)},
            "of persons, or of chunks on workers, expected neither",
        ),
        ({"algorithm": GradientADMM(schedule="stream")}, {}, "for a stream"),
        ({"algorithm": "dual-averaging"}, {"sample_weight": WEIGHTS}, "for a stream"),
        ({"algorithm": GradientDescent(guarantee="last")}, {}, "last iterate for persons, or with"),
        ({"algorithm": ConsensusADMM(record_step="exact")}, {}, "'exact' with persons or sample w"),
    ],
)
def test_what_weights_cannot_be_is_refused(params, fit, message):
    model = dp.DPAdmmRidge(**{"max_weight": 2.0, **KNOWN, **params})
    with pytest.raises(ValueError, match=message):
        model.fit(X, SCORES, **fit)
    assert not hasattr(model, "privacy_")


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_an_algorithm_weighs_records_or_refuses_before_data(name):
    kind = ALGORITHMS[name]
    model = dp.DPAdmmRidge(algorithm=name, max_weight=2.0, **KNOWN)
    if "central" not in np.atleast_1d(kind.setting):
        return
    if "person" in kind.units and name != "fixed-point-iteration":
        assert model.plan(N, 3).facts.weight_spread == 2.0
        return
    with pytest.raises(ValueError, match=r"it does not weigh records|for a stream|update"):
        model.fit(X, SCORES, sample_weight=WEIGHTS)


def test_plans_without_data_streams_and_workers_refuse_what_they_cannot_know():
    with pytest.raises(ValueError, match=r"max_weight=.public. for a plan"):
        dp.DPAdmmRidge(max_weight="public").plan(N, 3)
    stream = dp.DPAdmmRidge(max_weight=2.0, algorithm="dual-averaging", **KNOWN)
    with pytest.raises(ValueError, match="for a stream"):
        stream.partial_fit(X, SCORES)


def test_weights_are_routed_through_pipelines_and_searches():
    with config_context(enable_metadata_routing=True):
        model = dp.DPAdmmRidge(max_weight=3.0, **KNOWN).set_fit_request(sample_weight=True)
        pipe = make_pipeline(BoundedScaler(lower=-1.0, upper=1.0), model)
        # Before 1.7 pipelines had requests of their own for scores.
        scorer = get_scorer("r2").set_score_request(sample_weight=True)
        search = GridSearchCV(pipe, {"dpadmmridge__alpha": [0.1, 1.0]}, cv=3, scoring=scorer)
        search.fit(X, SCORES, sample_weight=WEIGHTS)
        best = search.best_estimator_[-1]
        alone = dp.DPAdmmRidge(max_weight=3.0, alpha=best.alpha, **KNOWN)
        alone.fit(pipe[0].fit_transform(X), SCORES, sample_weight=WEIGHTS)
    np.testing.assert_array_equal(best.coef_, alone.coef_)
    with pytest.raises(TypeError, match="Got sample_weight in DPGridSearchCV"):
        DPGridSearchCV(model, {"alpha": [1.0]}, epsilon=1.0).fit(X, SCORES, sample_weight=WEIGHTS)


@pytest.mark.parametrize(
    "check",
    [name for name in dir(estimator_checks) if name.startswith("check_sample_weight")]
    + [name for name in dir(estimator_checks) if name == "check_all_zero_sample_weights_error"],
)
@pytest.mark.parametrize(
    "make",
    [dp.DPAdmmRidge, dp.DPAdmmHuberRegressor, dp.DPAdmmLogisticRegression],
)
def test_the_checks_of_weights_of_scikit_learn_pass_without_privacy(check, make):
    model = make(epsilon=math.inf, max_iter=1000)
    if hasattr(model, "C"):
        # Separable classes have no optimum otherwise that floats reach.
        model.set_params(C=0.1)
    getattr(estimator_checks, check)(make.__name__, model)
