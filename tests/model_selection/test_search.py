"""Private searches: a drop-in for scikit-learn's, under one total budget."""

from __future__ import annotations

import copy
import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from scipy import sparse
from scipy.stats import loguniform
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    PredefinedSplit,
    ShuffleSplit,
    StratifiedShuffleSplit,
    cross_val_score,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler

from skdpadmm import DPAdmmLinearSVC, DPAdmmLogisticRegression, DPAdmmRidge, DPFedRidge
from skdpadmm.algorithms import GradientADMM
from skdpadmm.model_selection import DPGridSearchCV, DPRandomizedSearchCV
from skdpadmm.model_selection._scores import row_score
from skdpadmm.preprocessing import BoundedScaler, RowNormClipper
from skdpadmm.privacy import (
    NegativeBinomialTrials,
    NonPrivate,
    best_of_trials,
    compose,
    renyi_divergences,
    worst,
)

N = 2_000
GRID = {"C": [1e-7, 1.0]}
# So many trials that a candidate of two is left out once in 20,000 searches.
MANY = {"trials": "poisson", "n_trials": 20}


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


def constant(estimator, X, y):
    return np.full(len(y), 0.5)


class Unspent(DPAdmmLogisticRegression):
    def fit(self, X, y):
        raise AssertionError("a trial was run")


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
    search = grid_search(epsilon=8.0, refit=refit, **MANY).fit(X, y)
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
    search = grid_search(epsilon=8.0, **MANY)
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
    search = DPGridSearchCV(pipeline, grid, epsilon=8.0, random_state=1, **MANY).fit(X, y)
    assert search.score(X, y) > 0.8
    assert search.best_estimator_[-1].epsilon < 8.0
    assert search.best_estimator_[-1].privacy_ == search.privacy_
    assert "Transformers before the estimator" in repr(search.privacy_)


def test_what_a_function_does_is_an_assumption_of_the_report():
    X, y = data()
    centred = make_pipeline(FunctionTransformer(lambda X: X - X.mean(0)), classifier())
    search = DPGridSearchCV(centred, {"dpadmmlogisticregression__C": [1.0]}, random_state=0)
    assumptions = search.fit(X, y).privacy_.assumptions
    assert "Transformers before the estimator treat each row by itself." in assumptions


def test_a_search_is_a_step_of_a_pipeline():
    X, y = data()
    pipeline = make_pipeline(BoundedScaler(lower=-1, upper=1), grid_search(epsilon=8.0, **MANY))
    assert pipeline.fit(X, y).score(X, y) == pipeline[-1].score(pipeline[0].transform(X), y) > 0.9
    assert pipeline.classes_.tolist() == [0, 1]
    assert pipeline.set_params(dpgridsearchcv__estimator__C=2.0)[-1].estimator.C == 2.0


@pytest.mark.filterwarnings("ignore:Got scores with noise:UserWarning")
def test_a_search_is_a_candidate_of_an_ordinary_search():
    X, y = data()
    outer = GridSearchCV(grid_search(**MANY), {"epsilon": [0.01, 8.0]}, cv=2).fit(X, y)
    assert outer.best_params_ == {"epsilon": 8.0}
    assert outer.best_estimator_.privacy_.epsilon() <= 8.0
    assert outer.score(X, y) > 0.9


def test_a_search_is_cross_validated():
    X, y = data()
    scores = cross_val_score(grid_search(epsilon=8.0, **MANY), X, y, cv=3)
    assert (scores > 0.9).all()


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
    by_hand = best_of_trials(worst(plan.fit_guarantee, plan.score_guarantee), plan.law)
    if refit:
        by_hand = compose(by_hand, renyi_divergences(plan.refit_guarantee))
        assert plan.refit_guarantee.epsilon(1e-6) == pytest.approx(0.75, rel=1e-6)
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
    assert plan.fit_guarantee.epsilon(1e-5) <= plan.trial_epsilon * (1 + 1e-9)


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


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_a_plan_leaves_a_generator_where_it_is(make):
    X, y = regression()
    space = {"alpha": loguniform(1e-3, 1e3)}
    found = []
    for times in (0, 2):
        search = DPRandomizedSearchCV(regressor(), space, n_iter=3, random_state=make(4))
        for _ in range(times):
            search.plan(N, 3)
        found.append(search.fit(X, y))
    first, second = found
    assert first.candidates_ == second.candidates_
    np.testing.assert_array_equal(first.best_estimator_.coef_, second.best_estimator_.coef_)


@pytest.mark.parametrize(
    "other",
    [
        {"param_grid": {"C": [1e-7, 2.0]}},
        {"estimator__feature_bounds": (-2, 2)},
        {"estimator__max_iter": 7},
        {"estimator": DPAdmmLinearSVC(classes=[0, 1], feature_bounds=(-1, 1))},
        {"epsilon": 1.0 + 1e-9},
        {"search_share": 0.6},
        {"refit": False},
        {"trials": "poisson"},
        {"scoring": "neg_log_loss", "score_bounds": (-1, 0)},
        {"scoring": "neg_log_loss", "score_bounds": (-2, 0)},
        {"cv": 4},
        {"public_validation": data(10)},
    ],
)
def test_other_plans_have_other_digests(other):
    search = grid_search(refit=True, n_trials=3)
    digest = search.plan(N, 3).digest()
    assert digest == clone(search).plan(N, 3).digest()
    assert digest != clone(search).set_params(**other).plan(N, 3).digest()


def test_seeded_searches_over_different_candidates_have_unrelated_noise_of_scores():
    X, y = data()
    cv = [(np.arange(1_600), np.arange(1_600, N))]
    noise = []
    for C in (1.0, 2.0):
        search = grid_search(cv=cv, scoring=constant, score_bounds=(0, 1))
        noise.append(search.set_params(param_grid={"C": [C]}).fit(X, y).best_score_ - 0.5)
    assert noise[0] != noise[1]


def test_nothing_that_is_kept_tells_the_number_of_trials():
    X, y = data()
    generators = [np.random.default_rng(seed) for seed in range(6)]
    searches = [grid_search(random_state=rng, n_trials=8).fit(X, y) for rng in generators]
    names = {tuple(sorted(vars(search))) for search in searches}
    assert len(names) == 1
    fitted = set(names.pop()) - set(searches[0].get_params(deep=False))
    expected = {"best_estimator_", "best_index_", "best_params_", "best_score_", "candidates_"}
    assert fitted == expected | {"n_features_in_", "privacy_", "refit_", "scorer_"}
    assert len({repr(search.privacy_) for search in searches}) == 1
    assert len({repr(search.privacy_.to_dict()) for search in searches}) == 1


SHOWN = []


def counted(estimator, X, y):
    SHOWN.append(estimator)
    return 0.5


@pytest.mark.parametrize("n_jobs", [None, 1])
def test_searches_with_other_numbers_of_trials_and_one_result_are_equal(monkeypatch, n_jobs):
    # All scores are equal, so the first trial is released.
    X, y = data(200)
    stored, shown = [], []
    for n_trials in (3, 40):
        monkeypatch.setattr(NegativeBinomialTrials, "sample", lambda *_, n=n_trials: n)
        SHOWN.clear()
        search = grid_search(public_validation=(X, y), scoring=counted, n_jobs=n_jobs).fit(X, y)
        stored.append((list(vars(search)), pickle.dumps(search)))
        shown.append(len(SHOWN))
    SHOWN.clear()
    assert shown == [3, 40]
    assert stored[0] == stored[1]


@pytest.mark.parametrize("trials", ["geometric", "logarithmic", "poisson"])
def test_as_many_trials_run_as_the_law_says(monkeypatch, trials):
    X, y = data(12)
    n_searches = 100
    model = classifier(fit_intercept=False, max_iter=1, conditioning=None)
    search = DPGridSearchCV(
        model, {"C": [1.0, 2.0]}, delta=1e-2, n_trials=3, trials=trials, scoring=counted
    )
    search.set_params(public_validation=(X, y))
    plan = search.plan(12, 3)
    monkeypatch.setattr("skdpadmm.model_selection._base_search.plan_search", lambda *_, **__: plan)
    ran = []
    for seed in range(n_searches):
        SHOWN.clear()
        search.set_params(random_state=seed).fit(X, y)
        ran.append(len(SHOWN))
    SHOWN.clear()
    for n in (1, 2, 3):
        p = plan.law.probability(n)
        assert abs(ran.count(n) / n_searches - p) < 4 * math.sqrt(p * (1 - p) / n_searches)
    k = np.arange(1, 2_000)
    weights = np.array([plan.law.probability(n) for n in k.tolist()])
    variance = (weights * k**2).sum() - 3.0**2
    assert abs(np.mean(ran) - 3.0) < 4 * math.sqrt(variance / n_searches)


class Loud(FunctionTransformer):
    """A transformer that prints a line for each fit."""

    def __init__(self, verbose=0):
        super().__init__()
        self.verbose = verbose

    def fit(self, X, y=None):
        if self.verbose:
            print("fitted")
        return super().fit(X, y)


@pytest.mark.filterwarnings("ignore:Got scores with noise:UserWarning")
@pytest.mark.parametrize("refit", [False, True])
def test_trials_print_nothing(capfd, refit):
    X, y = data(200)
    inner = Pipeline([("loud", Loud(verbose=2)), ("model", classifier(verbose=1))], verbose=True)
    loud = Pipeline([("inner", inner)], verbose=True)
    step = {"inner__model": [classifier(verbose=1, C=C) for C in (1.0, 2.0)]}
    found = []
    for estimator, grid in ((classifier(verbose=1), GRID), (loud, step)):
        search = DPGridSearchCV(estimator, grid, delta=1e-3, n_trials=8, refit=refit)
        with parallel_config(verbose=50):
            found.append(search.set_params(random_state=0).fit(X, y))
    assert capfd.readouterr() == ("", "")
    # What it was given is as it was, and speaks where it is fitted by itself.
    assert found[1].estimator.verbose is True
    assert found[0].best_estimator_.verbose == 0
    assert found[1].best_estimator_.verbose is False
    assert found[1].best_estimator_["inner"]["loud"].verbose == 0
    clone(loud).set_params(inner__model__delta=1e-3).fit(X, y)
    printed = capfd.readouterr()
    assert "fitted" in printed.out
    assert printed.err


@pytest.mark.parametrize("name", ["verbose", "model__verbose", "loud__verbose"])
def test_candidates_that_would_print_are_refused(name):
    X, y = data(200)
    estimator = Pipeline([("loud", Loud()), ("model", classifier())])
    for value in (1, 0, True):
        with pytest.raises(ValueError, match=f"candidates with '{name}'.*sets it for every trial"):
            DPGridSearchCV(estimator, {name: [value]}).fit(X, y)
    with pytest.raises(ValueError, match="sets it for every trial"):
        DPGridSearchCV(classifier(), {"verbose": [1]}).plan(200, 3)


def test_warnings_come_once_however_many_trials_there_are():
    X, y = data(200)
    for seed in range(4):
        search = grid_search(epsilon=8.0, delta=0.01, n_trials=10, random_state=seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            search.fit(X, y)
        assert len(caught) == 1
        assert "delta" in str(caught[0].message)


@pytest.mark.parametrize(
    ("estimator", "grid", "advice"),
    [
        (classifier(), GRID, "Ask for fewer trials"),
        (regressor(), {"alpha": [0.0, 1.0]}, "Declare narrower score_bounds"),
    ],
    ids=["accuracy", "errors"],
)
def test_scores_that_are_mostly_noise_are_warned_of_once_at_plan_and_at_fit(
    estimator, grid, advice
):
    X, y = data(200)
    search = DPGridSearchCV(estimator, grid, epsilon=0.01, n_trials=10, random_state=0)
    for run in (lambda: search.plan(200, 3), lambda: search.fit(X, y)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run()
        assert len(caught) == 1
        assert "choices are nearly random" in str(caught[0].message)
        assert advice in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert clone(search).set_params(public_validation=(X, y)).plan(200, 3).warnings == ()
        assert clone(search).set_params(epsilon=math.inf).plan(200, 3).warnings == ()


def test_the_warning_of_noise_begins_at_a_tenth_of_the_width():
    search = grid_search(scoring=constant, score_bounds=(-3, 1))
    for n in (230, 260, 280, 300, 320, 400):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            plan = search.plan(n, 3)
        assert plan.score_width == 4
        assert bool(caught) == (plan.score_std > 0.4)
    assert not caught
    assert search.plan(N, 3).warnings == ()


def test_a_plan_shows_the_noise_of_scores_beside_their_width():
    wide = DPGridSearchCV(regressor(target_bounds=(0, 6_000)), {"alpha": [0.0, 1.0]})
    narrow = clone(wide).set_params(score_bounds=(-1e6, 0))
    plans = [search.plan(10_000, 3) for search in (wide, narrow)]
    assert [plan.score_width for plan in plans] == [36e6, 1e6]
    assert plans[0].score_std == pytest.approx(36 * plans[1].score_std)
    assert "neg_mean_squared_error in [-36000000, 0] with noise std" in repr(plans[0])
    share = 100 * plans[0].score_std / 36e6
    assert f"{share:.3g}% of the width" in repr(plans[0])
    assert f"{share:.3g}% of the width" in repr(plans[1])
    public = wide.set_params(public_validation=regression(10)).plan(10_000, 3)
    assert "a score:" not in repr(public)
    assert public.score_width is None


@pytest.mark.parametrize("n_candidates", [2, 3, 10])
def test_a_candidate_is_left_out_as_often_as_the_parameters_say(n_candidates):
    for mean in (2 * n_candidates, 5.0):
        law = NegativeBinomialTrials.of_mean(1.0, mean)
        kept = 1 - 1 / n_candidates
        left_out = sum(law.probability(n) * kept**n for n in range(1, 1_500))
        said = (n_candidates - 1) / (n_candidates - 1 + mean)
        assert left_out == pytest.approx(said, abs=1e-9)


class Warns(FunctionTransformer):
    """Warns of floating point and of itself, as transformers may."""

    def transform(self, X):
        warnings.warn("of data", RuntimeWarning, stacklevel=2)
        np.ones(1) / np.zeros(1)
        return super().transform(X)


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("public", [{}, {"scoring": "precision"}])
def test_no_trial_warns_as_warnings_can_be_counted(refit, public):
    X, y = data(200)
    if public:
        # There is nothing to find: precision is warned of where nothing is found.
        public = {**public, "public_validation": (np.zeros((20, 3)), np.arange(20) % 2)}
    search = DPGridSearchCV(
        make_pipeline(Warns(), classifier(fit_intercept=False)),
        {"dpadmmlogisticregression__C": [1.0]},
        refit=refit,
        n_trials=20,
        **public,
    )
    with warnings.catch_warnings(record=True) as planned:
        search.plan(*X.shape)
    with warnings.catch_warnings(record=True) as caught:
        search.fit(X, y)
    # Widths are planned with rows of zeros, before any trial.
    assert any("of data" in str(line.message) for line in planned)
    assert [str(line.message) for line in caught] == [str(line.message) for line in planned]


def test_threads_leave_warnings_as_they_were():
    X, y = data(200)
    search = DPGridSearchCV(classifier(), {"C": [1.0]}, epsilon=100.0, n_jobs=4, **MANY)
    before = list(warnings.filters)
    with parallel_config(backend="threading"):
        search.fit(X, y)
    assert list(warnings.filters) == before


def test_scores_of_public_rows_that_are_no_numbers_are_warned_of():
    X, y = data(200)
    one_class = (X[:20], np.ones(20, dtype=int))
    search = DPGridSearchCV(
        classifier(), {"C": [1.0]}, public_validation=one_class, scoring="roc_auc"
    )
    with pytest.warns(UserWarning, match="Does scoring='roc_auc' fit these rows"):
        search.fit(X, y)
    assert search.best_score_ == -math.inf


def test_no_trial_leaves_a_cache_as_files_can_be_counted(tmp_path):
    X, y = data(200)
    model = Pipeline([("scale", BoundedScaler()), ("model", classifier())], memory=str(tmp_path))
    grid = {"scale__upper": [1 + 0.01 * i for i in range(30)]}
    search = DPGridSearchCV(model, grid, epsilon=100.0, random_state=0).fit(X, y)
    assert not list(tmp_path.rglob("*.pkl"))
    assert search.best_estimator_.memory is None
    assert search.estimator.memory == str(tmp_path)


def test_a_stream_is_refused_as_it_would_go_on_after_the_search():
    X, y = regression(200)
    stream = GradientADMM(schedule="stream")
    search = DPGridSearchCV(regressor(algorithm=stream), {"alpha": [1.0]})
    with pytest.raises(ValueError, match="a stream goes on after the search"):
        search.fit(X, y)
    grid = {"algorithm": ["gradient-admm", stream]}
    with pytest.raises(ValueError, match="a stream goes on after the search"):
        search.set_params(estimator=regressor(), param_grid=grid).fit(X, y)


def test_a_report_under_zero_out_says_what_a_zeroed_record_scores():
    X, y = data(200)
    for neighboring, is_said in (("zero_out", True), ("replace_one", False)):
        search = DPGridSearchCV(classifier(neighboring=neighboring), {"C": [1.0]}, epsilon=100.0)
        said = " ".join(search.fit(X, y).privacy_.assumptions)
        assert ("A record that is zeroed has the least score" in said) == is_said


def test_a_report_says_what_a_plain_fit_does_not_cover_and_all_numbers_of_rows():
    X, y = data()
    report = grid_search(refit=True).fit(X, y).privacy_
    plain = classifier(random_state=0).fit(X, y).privacy_
    for start in ("Transformers fitted earlier", "Whether the input is valid", "Running time"):
        (line,) = (line for line in plain.not_covered if line.startswith(start))
        assert line in report.not_covered
    sizes = [line.partition(",")[0] for line in report.assumptions if "n_samples=" in line]
    assert sizes == [f"n_samples={4 * N // 5}", f"n_samples={N}"]
    single = grid_search().fit(X, y).privacy_.assumptions
    assert sum("n_samples=" in line for line in single) == 1


def test_parts_of_columns_that_learn_nothing_are_searched():
    X, y = data()
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    parts = ColumnTransformer(
        [
            ("scale", BoundedScaler(lower=-1, upper=1), ["a", "b"]),
            ("both", make_pipeline(PolynomialFeatures(2), RowNormClipper()), ["c"]),
            ("no", "drop", ["b"]),
        ],
        remainder="passthrough",
        sparse_threshold=0,
    )
    pipeline = make_pipeline(parts, classifier())
    grid = {"dpadmmlogisticregression__C": [1e-7, 1.0]}
    search = DPGridSearchCV(pipeline, grid, epsilon=8.0, random_state=1, **MANY).fit(table, y)
    assert search.best_estimator_[-1].n_features_in_ == 5
    assert search.score(table, y) > 0.8
    assert "Transformers before the estimator" in repr(search.privacy_)


@pytest.mark.parametrize(
    ("part", "columns", "own", "message"),
    [
        (StandardScaler(), [0], {}, "Pipeline with StandardScaler"),
        (make_pipeline(StandardScaler(), RowNormClipper()), [0], {}, "with StandardScaler"),
        ("passthrough", [0], {"remainder": StandardScaler()}, "Pipeline with StandardScaler"),
        (ColumnTransformer([("in", StandardScaler(), [0])]), [0], {}, "with StandardScaler"),
        (RowNormClipper(), lambda X: [0], {}, "found by a function"),
        (RowNormClipper(), [0], {"sparse_threshold": 0.3}, "Set sparse_threshold=0"),
    ],
)
def test_parts_of_columns_that_see_more_than_a_row_are_refused(part, columns, own, message):
    X, y = data()
    parts = ColumnTransformer([("part", part, columns)], **{"sparse_threshold": 0} | own)
    model = Unspent(classes=[0, 1], feature_bounds=(-1, 1))
    search = DPGridSearchCV(make_pipeline(parts, model), {"unspent__C": [1.0, 2.0]})
    with pytest.raises(ValueError, match=message):
        search.fit(X, y)


def test_no_rows_are_in_the_pickle():
    X, y = data()
    X[11] = 0.123456789
    search = grid_search(random_state=None, refit=True).fit(X, y)
    stored = pickle.dumps(search)
    assert np.float64(0.123456789).tobytes() not in stored
    assert len(stored) < 60_000


def test_an_infinite_budget_is_the_search_without_privacy():
    X, y = data()
    search = grid_search(epsilon=math.inf, refit=True, **MANY).fit(X, y)
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
    assert (plan.n_train, plan.n_validation, plan.score_guarantee.mu) == (N, 0, 0.0)
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
    search.set_params(**MANY)
    assert search.fit(X, y).best_params_ == {"alpha": 0.0}


@pytest.mark.parametrize("public", [False, True])
def test_what_scores_is_what_has_chosen(public):
    X, y = regression()
    search = DPGridSearchCV(regressor(), {"alpha": [0.0, 1.0]}, epsilon=8.0, random_state=0)
    if public:
        search.set_params(public_validation=(X[:50], y[:50]))
    search.fit(X, y)
    by_hand = -np.mean((search.predict(X) - y) ** 2)
    assert search.score(X, y) == search.scorer_(search.best_estimator_, X, y)
    assert search.score(X, y) == pytest.approx(by_hand)
    if public:
        assert search.best_score_ == search.score(X[:50], y[:50])
    named = clone(search).set_params(scoring="neg_mean_squared_error").fit(X, y)
    assert (named.best_score_, named.score(X, y)) == (search.best_score_, search.score(X, y))


def test_log_loss_is_clipped():
    X, y = data()
    search = grid_search(scoring="neg_log_loss", score_bounds=(-2, 0), epsilon=8.0, **MANY)
    assert search.fit(X, y).best_params_ == {"C": 1.0}
    assert search.plan(N, 3).score_std > grid_search(epsilon=8.0, **MANY).plan(N, 3).score_std


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
        ({"scoring": "neg_log_loss", "score_bounds": (0, 4)}, "at most 0.*\\(-4, 0\\)"),
        ({"scoring": "neg_log_loss", "score_bounds": (-1, 1)}, "at most 0"),
        ({"score_bounds": (0, 100)}, "counts as 0 or 1"),
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
    search = DPGridSearchCV(Unspent(classes=[0, 1], feature_bounds=(-1, 1)), GRID, random_state=0)
    with pytest.raises(ValueError, match=message):
        search.set_params(**parameters).fit(X, y)
    assert not hasattr(search, "best_estimator_")


def test_groups_are_refused():
    X, y = data()
    with pytest.raises(ValueError, match=r"Got groups.*protects one row\. A person with several"):
        grid_search().fit(X, y, groups=np.arange(N))


@pytest.mark.parametrize("name", ["agents", "sample_weight"])
@pytest.mark.parametrize("kind", [DPGridSearchCV, DPRandomizedSearchCV])
def test_what_does_not_pass_through_a_search_is_refused_in_its_name(kind, name):
    X, y = data()
    search = kind(classifier(), GRID)
    with pytest.raises(TypeError, match=rf"Got {name} in {kind.__name__}\.fit.*several rows"):
        search.fit(X, y, **{name: np.ones(N)})
    assert not hasattr(search, "best_estimator_")


@pytest.mark.parametrize("scoring", ["neg_mean_absolute_error", "neg_mean_squared_error"])
@pytest.mark.parametrize("target_bounds", [None, (0, 600)])
def test_bounds_above_all_errors_are_refused(scoring, target_bounds):
    model = regressor(target_bounds=target_bounds)
    search = DPGridSearchCV(model, {"alpha": [1.0]}, scoring=scoring, score_bounds=(0, 600))
    with pytest.raises(ValueError, match=r"at most 0.*\(-600, 0\)"):
        search.plan(N, 3)


def test_nothing_is_routed_to_a_search():
    assert grid_search().get_metadata_routing().fit.requests == {}


def test_one_class_is_refused_in_the_words_of_the_estimators():
    X, _ = data()
    search = DPGridSearchCV(DPAdmmLogisticRegression(feature_bounds=(-1, 1)), GRID)
    with pytest.raises(ValueError, match="Declare all of them with"):
        search.fit(X, np.zeros(N))
    assert not hasattr(search, "best_estimator_")


@pytest.mark.parametrize("row", [0, 5, 11])
@pytest.mark.parametrize("in_step", [False, True])
def test_labels_that_are_not_declared_are_refused_whatever_part_they_are_in(row, in_step):
    X, y = data(12)
    y[row] = 2
    alone = Unspent(classes=[0, 1], feature_bounds=(-1, 1))
    with pytest.raises(ValueError) as own:  # noqa: PT011  the text is compared
        classifier().fit(X, y)
    search = DPGridSearchCV(alone, GRID, delta=1e-2)
    if in_step:
        # Only some of the candidates lack the label: which of them run is secret as well.
        wide = clone(alone).set_params(classes=[0, 1, 2])
        steps = Pipeline([("model", wide)])
        search = DPGridSearchCV(steps, {"model": [wide, alone]}, delta=1e-2)
    for seed in range(6):
        with pytest.raises(ValueError, match="among classes") as caught:
            search.set_params(random_state=seed).fit(X, y)
        assert str(caught.value) == str(own.value)
    with pytest.raises(ValueError, match="Unknown label type"):
        search.fit(X, y + 0.5 * (np.arange(12) == row))


def test_candidates_that_declare_classes_and_those_that_do_not_know_the_same():
    X, y = data(200)
    silent = classifier(classes=None)
    for first, second in ((silent, classifier()), (classifier(), silent)):
        steps = Pipeline([("model", first)])
        search = DPGridSearchCV(steps, {"model": [first, second]}, delta=1e-3, n_trials=9)
        search.set_params(random_state=0, cv=[(np.arange(100), np.arange(100, 200))])
        # The part that trains has one class alone.
        by_class = np.argsort(y, kind="stable")
        assert search.fit(X[by_class], np.sort(y)).classes_.tolist() == [0, 1]
        assert any("classes not declared" in line for line in search.privacy_.assumptions)


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
        (
            DPFedRidge(adversary="model", agent_column=0, target_bounds=(-3, 3)),
            {"alpha": [1.0]},
            ValueError,
            "agent_column=0, expected None",
        ),
        (
            DPGridSearchCV(regressor(), {"alpha": [1.0]}),
            {"epsilon": [0.5]},
            TypeError,
            "DPGridSearchCV inside a private search",
        ),
        (
            make_pipeline(GridSearchCV(regressor(), {"alpha": [1.0]})),
            {"gridsearchcv__cv": [2]},
            TypeError,
            "GridSearchCV inside a private search",
        ),
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
