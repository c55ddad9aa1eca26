"""Private searches: a drop-in for scikit-learn's, under one total budget."""

from __future__ import annotations

import copy
import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.stats import loguniform
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    PredefinedSplit,
    ShuffleSplit,
    StratifiedShuffleSplit,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge, DPFedRidge
from skdpadmm.model_selection import DPGridSearchCV, DPRandomizedSearchCV
from skdpadmm.model_selection._scores import row_score
from skdpadmm.preprocessing import BoundedScaler, RowNormClipper
from skdpadmm.privacy import NonPrivate, best_of_trials, compose, renyi_divergences, worst

N = 2_000
GRID = {"C": [1e-7, 1.0]}


def data(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3))
    return X, (X @ [3.0, -2.0, 0.0] + 0.1 * rng.normal(size=n) > 0).astype(int)


def regression(n=N):
    X, _ = data(n)
    return X, X @ [1.0, -1.0, 0.5]


def classifier(**parameters):
    return DPAdmmLogisticRegression(**{"classes": [0, 1], "feature_bounds": (-1, 1)} | parameters)


def regressor(**parameters):
    return DPAdmmRidge(**{"feature_bounds": (-1, 1), "target_bounds": (-3, 3)} | parameters)


def grid_search(**parameters):
    return DPGridSearchCV(classifier(), GRID, **{"random_state": 0} | parameters)


class Spy:
    """Scores rows and writes down what it was shown."""

    def __init__(self):
        self.shown = []

    def __call__(self, estimator, X, y):
        self.shown.append((estimator, np.array(X), np.array(y)))
        return (estimator.predict(X) == y).astype(float)

    def __deepcopy__(self, memo):
        return self


# What a user of scikit-learn's search expects.


@pytest.mark.parametrize("refit", [False, True])
def test_the_final_model_is_the_best_candidate_and_predicts(refit):
    X, y = data()
    search = grid_search(epsilon=4.0, refit=refit, n_trials=6).fit(X, y)
    assert search.best_params_ == {"C": 1.0} == search.candidates_[search.best_index_]
    assert search.best_estimator_.C == 1.0
    np.testing.assert_array_equal(search.predict(X), search.best_estimator_.predict(X))
    np.testing.assert_array_equal(search.predict_proba(X), search.best_estimator_.predict_proba(X))
    np.testing.assert_array_equal(
        search.decision_function(X), search.best_estimator_.decision_function(X)
    )
    assert search.score(X, y) == search.best_estimator_.score(X, y) > 0.9
    assert search.n_features_in_ == 3
    assert search.classes_.tolist() == [0, 1]
    assert search.refit_ == refit


def test_parameters_clone_and_pickle():
    search = grid_search(trials="poisson", n_trials=3.5)
    again = clone(search).set_params(estimator__max_iter=7, epsilon=2.0)
    assert (again.estimator.max_iter, again.epsilon, again.trials) == (7, 2.0, "poisson")
    assert search.get_params()["estimator__C"] == math.inf
    X, y = data()
    fitted = pickle.loads(pickle.dumps(search.fit(X, y)))
    np.testing.assert_array_equal(fitted.predict(X), search.predict(X))
    assert fitted.privacy_ == search.privacy_


def test_methods_that_the_model_lacks_are_lacking():
    search = DPGridSearchCV(regressor(), {"alpha": [1.0]})
    for name in ("predict_proba", "decision_function", "classes_", "cv_results_"):
        assert not hasattr(search, name)
    with pytest.raises(NotFittedError):
        search.predict(np.zeros((1, 3)))


def test_a_randomised_search_draws_its_candidates_before_data():
    X, y = regression()
    search = DPRandomizedSearchCV(
        regressor(), {"alpha": loguniform(1e-3, 1e3)}, n_iter=5, random_state=3
    )
    first = copy.deepcopy(search).fit(X, y).candidates_
    assert len(first) == 5
    assert first == search.fit(X[::-1] / 2, y / 3).candidates_
    fresh = search.set_params(random_state=None)
    assert fresh.fit(X, y).candidates_ != first


@pytest.mark.parametrize("kind", ["table", "sparse", "labels", "lists"])
def test_kinds_of_input(kind):
    X, y = data()
    search = grid_search(epsilon=4.0, n_trials=20)
    if kind == "table":
        X = pd.DataFrame(X, columns=["a", "b", "c"])
        search.set_params(estimator__feature_bounds={"a": (-1, 1), "b": (-1, 1), "c": (-1, 1)})
    if kind == "sparse":
        X = sparse.csr_matrix(X)
    if kind == "labels":
        y = np.where(y == 1, "yes", "no")
        search.set_params(estimator__classes=["no", "yes"])
    if kind == "lists":
        X, y = X.tolist(), y.tolist()
    assert search.fit(X, y).score(X, y) > 0.8
    if kind == "table":
        assert search.feature_names_in_.tolist() == ["a", "b", "c"]
        assert search.best_estimator_.feature_names_in_.tolist() == ["a", "b", "c"]


def test_pipelines_of_transformers_that_learn_nothing():
    X, y = data()
    pipeline = make_pipeline(
        BoundedScaler(lower=-1, upper=1),
        RowNormClipper(),
        PolynomialFeatures(2, include_bias=False),
        classifier(),
    )
    grid = {
        "dpadmmlogisticregression__C": [1e-7, 1.0],
        "polynomialfeatures__degree": [1, 2],
    }
    search = DPGridSearchCV(pipeline, grid, epsilon=8.0, random_state=1).fit(X, y)
    assert search.score(X, y) > 0.8
    assert search.best_estimator_[-1].epsilon < 8.0
    assert search.best_estimator_[-1].privacy_ == search.privacy_
    assert "Transformers before the estimator" in repr(search.privacy_)


@pytest.mark.parametrize("seed", range(3))
def test_the_result_does_not_depend_on_the_number_of_jobs(seed):
    X, y = data()
    one, two = (
        grid_search(random_state=seed, n_trials=5, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.best_estimator_.coef_, two.best_estimator_.coef_)
    assert (one.best_score_, one.best_index_) == (two.best_score_, two.best_index_)


def test_a_failed_fit_leaves_the_search_as_it_was():
    X, y = data()
    search = grid_search().fit(X, y)
    before = dict(vars(search))
    with pytest.raises(ValueError, match="NaN"):
        search.fit(np.full((50, 3), np.nan), np.arange(50) % 2)
    assert vars(search) == before


# What it costs.


@pytest.mark.parametrize("trials", ["geometric", "logarithmic", "poisson"])
@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
def test_the_total_is_the_budget_and_comes_from_its_parts(trials, refit, neighboring):
    X, y = data()
    search = grid_search(trials=trials, refit=refit, epsilon=1.5, delta=1e-6, n_trials=4)
    search.set_params(estimator__neighboring=neighboring)
    plan = search.plan(N, 3)
    report = search.fit(X, y).privacy_
    assert 0.999 * 1.5 < report.epsilon() <= 1.5
    assert report.observers[0].neighboring == neighboring
    by_hand = best_of_trials(worst(plan.fit, plan.score), plan.law)
    if refit:
        by_hand = compose(by_hand, renyi_divergences(plan.refit))
        assert plan.refit.epsilon(1e-6) == pytest.approx(0.75, rel=1e-6)
    assert report.guarantee() == by_hand == plan.guarantee()
    assert plan.law.mean == pytest.approx(4.0)


def test_every_trial_gets_the_budget_of_the_plan():
    X, y = data()
    spy = Spy()
    search = grid_search(scoring=spy, score_bounds=(0, 1), n_trials=20, random_state=2)
    plan = search.plan(N, 3)
    search.fit(X, y)
    assert len(spy.shown) > 2
    for estimator, *_ in spy.shown:
        assert estimator.epsilon == plan.trial_epsilon
        assert estimator.delta == search.delta
    assert search.best_estimator_.epsilon == plan.trial_epsilon
    assert plan.fit.epsilon(1e-5) <= plan.trial_epsilon * (1 + 1e-9)


def test_the_report_of_the_final_model_is_that_of_the_search():
    X, y = data()
    search = grid_search().fit(X, y)
    assert search.best_estimator_.privacy_ is search.privacy_
    plain = search.privacy_.to_dict()
    assert plain["spent_on"]["refit"] is None
    assert plain["trials"] == "a geometric number of trials, 4 on average"
    assert "Spent on:" in repr(search.privacy_)
    assert "SIMULATION" in repr(search.privacy_)
    assert grid_search(random_state=None).fit(X, y).privacy_.simulation == ""


def test_neighbours_and_shuffled_data_have_one_plan():
    X, y = data()
    other, swapped = X.copy(), y.copy()
    other[5], swapped[5] = 100.0, 1 - y[5]
    reports = [
        grid_search().fit(a, b).privacy_ for a, b in ((X, y), (other, swapped), (X[::-1], y[::-1]))
    ]
    assert reports[0] == reports[1] == reports[2]


def test_no_record_trains_and_validates_and_the_split_is_one():
    X, y = data()
    X[:, 2] = np.linspace(-1, 1, N)
    spy = Spy()
    trained = []

    class Watched(DPAdmmLogisticRegression):
        def fit(self, X, y):
            trained.append(np.array(X))
            return super().fit(X, y)

    model = Watched(classes=[0, 1], feature_bounds=(-1, 1))
    search = DPGridSearchCV(model, GRID, n_trials=9, scoring=spy, score_bounds=(0, 1), cv=4)
    while len(trained) < 2:
        search.fit(X, y)
        if len(trained) < 2:
            trained.clear()
            spy.shown.clear()
    assert all(np.array_equal(rows, trained[0]) for rows in trained)
    assert all(np.array_equal(rows, spy.shown[0][1]) for _, rows, _ in spy.shown)
    validation = spy.shown[0][1]
    assert len(validation) == N // 4
    assert len(trained[0]) == N - N // 4
    assert not set(validation[:, 2]) & set(trained[0][:, 2])


def test_a_validation_row_moves_no_model_and_each_score_by_its_sensitivity():
    X, y = data()
    positions = [(np.arange(0, 1_600), np.arange(1_600, N))]
    other, swapped = X.copy(), y.copy()
    other[1_700], swapped[1_700] = -other[1_700] * 50, 1 - y[1_700]
    seen = []
    for a, b in ((X, y), (other, swapped)):
        spy = Spy()
        search = grid_search(cv=positions, n_trials=6, scoring=spy, score_bounds=(0, 1))
        search.fit(a, b)
        seen.append([(e.coef_, np.mean(e.predict(rows) == t)) for e, rows, t in spy.shown])
    for (coef, score), (same, moved) in zip(*seen, strict=True):
        np.testing.assert_array_equal(coef, same)
        assert abs(score - moved) <= 1 / 400 + 1e-12


def test_the_noise_of_scores_is_that_of_the_plan():
    X, y = data()
    public = []
    for seed in range(150):
        search = grid_search(random_state=seed, cv=[(np.arange(1_600), np.arange(1_600, N))])
        search.fit(X, y)
        exact = np.mean(search.predict(X[1_600:]) == y[1_600:])
        public.append(search.best_score_ - exact)
    std = search.plan(N, 3).score_std
    # The best of a few: shifted up by less than one standard deviation on average.
    assert 0.7 * std < np.std(public) < 1.2 * std
    assert -0.3 * std < np.mean(public) < 1.2 * std


def test_trials_of_one_candidate_have_unrelated_noise():
    X, y = data()
    for random_state in (0, None):
        spy = Spy()
        search = DPGridSearchCV(
            classifier(random_state=7),
            {"C": [1.0]},
            n_trials=30,
            scoring=spy,
            score_bounds=(0, 1),
            random_state=random_state,
        )
        while len(spy.shown) < 2:
            search.fit(X, y)
        coefs = {tuple(estimator.coef_.ravel()) for estimator, *_ in spy.shown}
        assert len(coefs) == len(spy.shown)


def test_seeds_fix_everything_and_generators_advance():
    X, y = data()
    first, second = (grid_search(random_state=5).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.best_estimator_.coef_, second.best_estimator_.coef_)
    rng = np.random.default_rng(0)
    search = grid_search(random_state=rng)
    one, two = (search.fit(X, y).best_estimator_.coef_ for _ in range(2))
    assert not np.array_equal(one, two)
    assert "a generator" in search.privacy_.simulation
    fresh = [grid_search(random_state=None).fit(X, y).best_estimator_.coef_ for _ in range(2)]
    assert not np.array_equal(*fresh)


def test_nothing_that_is_kept_tells_the_number_of_trials():
    X, y = data()
    searches = [grid_search(random_state=seed, n_trials=8).fit(X, y) for seed in range(6)]
    names = {tuple(sorted(vars(search))) for search in searches}
    assert len(names) == 1
    fitted = {name for name in names.pop() if name.endswith("_")}
    expected = {"best_estimator_", "best_index_", "best_params_", "best_score_", "candidates_"}
    assert fitted == expected | {"n_features_in_", "privacy_", "refit_"}
    assert len({repr(search.privacy_)[200:] for search in searches}) <= len(searches)


def test_warnings_come_once_however_many_trials_there_are():
    X, y = data(200)
    for seed in range(4):
        search = grid_search(delta=0.01, n_trials=10, random_state=seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            search.fit(X, y)
        assert len(caught) == 1
        assert "delta" in str(caught[0].message)


def test_no_rows_are_in_the_pickle():
    X, y = data()
    X[11] = 0.123456789
    search = grid_search(random_state=None, refit=True).fit(X, y)
    stored = pickle.dumps(search)
    assert np.float64(0.123456789).tobytes() not in stored
    assert len(stored) < 60_000


def test_an_infinite_budget_is_the_search_without_privacy():
    X, y = data()
    search = grid_search(epsilon=math.inf, n_trials=20, refit=True).fit(X, y)
    assert search.privacy_.guarantee() == NonPrivate()
    assert "not private" in repr(search.privacy_)
    assert "not private" in repr(search.plan(N, 3))
    assert search.score(X, y) > 0.97
    assert search.best_params_ == {"C": 1.0}


# Scores.


def test_public_rows_are_scored_exactly_and_cost_nothing():
    X, y = data()
    public = data(500, seed=9)
    spy = Spy()
    search = grid_search(public_validation=public, scoring=spy, epsilon=2.0)
    plan = search.plan(N, 3)
    assert (plan.n_train, plan.n_validation, plan.score.mu) == (N, 0, 0.0)
    search.fit(X, y)
    np.testing.assert_array_equal(spy.shown[0][1], public[0])
    assert search.best_score_ == np.mean(search.predict(public[0]) == public[1])
    assert not search.privacy_.releases
    assert "No row of public_validation is private." in search.privacy_.assumptions
    named = grid_search(public_validation=public, scoring="roc_auc").fit(X, y)
    assert named.best_score_ == named.score(*public)


@pytest.mark.parametrize(
    ("scoring", "bounds"),
    [
        (None, None),
        ("neg_mean_squared_error", None),
        ("neg_mean_absolute_error", None),
        ("neg_mean_absolute_error", (-0.5, 0)),
        (lambda e, X, y: np.exp(-np.abs(e.predict(X) - y)), (0, 1)),
    ],
)
def test_scores_of_regressors(scoring, bounds):
    X, y = regression()
    grid = {"alpha": [0.0, 1e7]}
    search = DPGridSearchCV(
        regressor(), grid, scoring=scoring, score_bounds=bounds, epsilon=8.0, random_state=0
    )
    search.set_params(n_trials=10)
    assert search.fit(X, y).best_params_ == {"alpha": 0.0}


def test_log_loss_is_clipped():
    X, y = data()
    search = grid_search(scoring="neg_log_loss", score_bounds=(-2, 0), epsilon=4.0, n_trials=8)
    assert search.fit(X, y).best_params_ == {"C": 1.0}
    assert search.plan(N, 3).score_std > grid_search(epsilon=4.0, n_trials=8).plan(N, 3).score_std


def test_scores_of_rows_stay_within_their_bounds_for_all_finite_rows():
    class Wild:
        target_bounds = None
        classes_ = np.array([0, 1])

        def predict(self, X):
            return X[:, 0]

        def predict_proba(self, X):
            return np.column_stack([X[:, 0], 1 - X[:, 0]])

    X = np.array([[1e308], [-1e308], [0.0], [np.nan]])
    score = row_score("neg_mean_squared_error", Ridge(), (-4, 0))
    assert -4 <= score.mean(Wild(), X, np.array([-1e308, 1e308, 0.0, 0.0])) <= 0
    score = row_score("neg_log_loss", classifier(), (-4, 0))
    assert -4 <= score.mean(Wild(), X, np.array([0, 1, 0, 7])) <= 0
    assert score.sensitivity(4) >= 1.0


# Refusals.


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"scoring": "roc_auc"}, "exact scores of private"),
        ({"scoring": "neg_log_loss"}, "without score_bounds"),
        ({"scoring": Spy()}, "without score_bounds"),
        ({"scoring": Spy(), "score_bounds": (1, 0)}, "two finite numbers"),
        ({"scoring": Spy(), "score_bounds": (0, math.inf)}, "two finite numbers"),
        ({"cv": KFold(5)}, "one pair of positions"),
        ({"cv": GroupKFold(5)}, "one pair of positions"),
        ({"cv": StratifiedShuffleSplit(1)}, "one pair of positions"),
        ({"cv": ShuffleSplit(3)}, "3 splits"),
        ({"cv": PredefinedSplit(np.arange(N) % 3)}, "3 splits"),
        ({"cv": [(np.arange(10), np.arange(5, 20))]}, "disjoint"),
        ({"cv": [(np.arange(10), [20, 20])]}, "distinct positions"),
        ({"cv": [(np.arange(10), [N])]}, "distinct positions"),
        ({"cv": [(np.arange(10), [])]}, "distinct positions"),
        ({"cv": iter([(np.arange(10), [20])])}, "more than once"),
        ({"cv": 1}, "at least 2"),
        ({"cv": 1.5}, "share of the rows"),
        ({"n_trials": 1}, "n_trials"),
        ({"trials": "fixed"}, "trials"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"search_share": 1.0}, "search_share"),
        ({"search_share": 1e-9, "refit": True}, "Ask for fewer trials|nothing is left"),
        ({"public_validation": (np.zeros((3, 2)), np.zeros(3))}, "shapes"),
        ({"public_validation": 5}, "not a pair"),
        ({"param_grid": {"epsilon": [0.1, 1.0]}}, "sets it for every trial"),
        ({"param_grid": {"random_state": [0, 1]}}, "sets it for every trial"),
        ({"param_grid": {"neighboring": ["replace_one", "zero_out"]}}, "one neighbouring relation"),
        ({"random_state": "seed"}, "cannot be used to seed"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anything_is_spent(parameters, message):
    X, y = data()

    class Unspent(DPAdmmLogisticRegression):
        def fit(self, X, y):
            raise AssertionError("a trial was run")

    search = DPGridSearchCV(Unspent(classes=[0, 1], feature_bounds=(-1, 1)), GRID, random_state=0)
    with pytest.raises(ValueError, match=message):
        search.set_params(**parameters).fit(X, y)
    assert not hasattr(search, "best_estimator_")


def test_groups_are_refused():
    X, y = data()
    with pytest.raises(ValueError, match="Got groups"):
        grid_search().fit(X, y, groups=np.arange(N))


def test_scorers_of_one_number_are_refused():
    X, y = data()
    search = grid_search(scoring=lambda e, X, y: e.score(X, y), score_bounds=(0, 1))
    with pytest.raises(ValueError, match="one for each row"):
        search.fit(X, y)


@pytest.mark.parametrize(
    ("estimator", "grid", "error", "message"),
    [
        (Ridge(), {"alpha": [1.0]}, TypeError, "one of this package"),
        (
            make_pipeline(StandardScaler(), regressor()),
            {"dpadmmridge__alpha": [1.0]},
            ValueError,
            "learn nothing",
        ),
        (
            make_pipeline(make_pipeline(StandardScaler()), regressor()),
            {"dpadmmridge__alpha": [1.0]},
            ValueError,
            "learn nothing",
        ),
        (
            make_pipeline(FunctionTransformer(), regressor()),
            {"dpadmmridge__epsilon": [1.0]},
            ValueError,
            "sets it",
        ),
        (DPFedRidge(target_bounds=(-3, 3)), {"alpha": [1.0]}, ValueError, "adversary='model'"),
        (regressor(target_bounds=None), {"alpha": [1.0]}, ValueError, "without score_bounds"),
        (regressor(), {"alpha": [-1.0]}, ValueError, "alpha"),
    ],
)
def test_estimators_that_cannot_be_searched_are_refused(estimator, grid, error, message):
    X, y = regression()
    with pytest.raises(error, match=message):
        DPGridSearchCV(estimator, grid).fit(X, y)


def test_agents_can_be_searched_against_the_model():
    X, y = regression()
    model = DPFedRidge(
        adversary="model", n_agents=4, feature_bounds=(-1, 1), target_bounds=(-3, 3), max_iter=10
    )
    search = DPGridSearchCV(model, {"alpha": [0.0, 1.0]}, epsilon=2.0, random_state=0)
    assert search.fit(X, y).privacy_.epsilon() <= 2.0


def test_guarantees_without_renyi_divergences_are_refused():
    X, y = data()
    search = DPGridSearchCV(classifier(algorithm="objective-perturbation"), {"C": [1.0, 2.0]})
    with pytest.raises(TypeError, match="Renyi divergences are known"):
        search.fit(X, y)
