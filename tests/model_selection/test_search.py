"""Private searches: a drop-in for scikit-learn's, under one total budget."""

import copy
import math
import pickle
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.special
from joblib import parallel_config
from scipy.stats import loguniform
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import NMF, PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge, DPFedLogisticRegression, DPFedRidge
from skdpadmm._pipelines import acts_by_row, last_step, public_name
from skdpadmm._row_scores import row_score
from skdpadmm.algorithms import GradientADMM
from skdpadmm.model_selection import DPGridSearchCV, DPRandomizedSearchCV, search_cost
from skdpadmm.noise import CryptographicNoise
from skdpadmm.preprocessing import BoundedScaler, PublicTableTransformer, Range
from skdpadmm.privacy import (
    NegativeBinomialTrials,
    NonPrivate,
    best_of_trials,
    compose,
    renyi_divergences,
    worst,
)

N = 1_000
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(N, 3))
Y = (X @ [3.0, -2.0, 0.0] + 0.1 * rng.normal(size=N) > 0).astype(int)
T = X @ [1.0, -1.0, 0.5]
GRID = {"C": [1e-7, 1.0]}
# So many trials that a candidate of two is left out once in 20,000 searches.
MANY = {"trials": "poisson", "n_trials": 20}
TWO = [(np.arange(800), np.arange(800, N))]
noisy = pytest.mark.filterwarnings("ignore:Got scores with noise:UserWarning")


def classifier(cls=DPAdmmLogisticRegression, **parameters):
    known = {"classes": [0, 1], "feature_bounds": (-1, 1), "max_iter": 8}
    return cls(**known | parameters)


def regressor(**parameters):
    known = {"feature_bounds": (-1, 1), "target_bounds": (-3, 3), "max_iter": 8}
    return DPAdmmRidge(**known | parameters)


def grid_search(estimator=None, grid=None, **parameters):
    known = {"random_state": 0, "delta": 1e-5}
    return DPGridSearchCV(estimator or classifier(), grid or GRID, **known | parameters)


def tiny(**parameters):
    """A search whose trials take no time, on a few rows."""
    model = classifier(fit_intercept=False, max_iter=1, conditioning=None)
    return grid_search(model, {"C": [1.0, 2.0]}, **{"delta": 1e-2} | parameters)


def plan_once(monkeypatch, search, n):
    """All fits have the same plan, which sees no data."""
    plan = search.plan(n, 3)
    monkeypatch.setattr("skdpadmm.model_selection._search.plan_search", lambda *_, **__: plan)
    return plan


def half(estimator, X, y):
    return np.full(len(y), 0.5)


@pytest.fixture
def no_trial(monkeypatch):
    """No trial may run."""

    def fit(self, X, y):
        raise AssertionError("a trial was run")

    monkeypatch.setattr(DPAdmmLogisticRegression, "fit", fit)


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
def test_the_final_model_is_the_best_candidate_predicts_clones_and_pickles(refit):
    labels = np.where(Y == 1, "yes", "no")
    search = grid_search(classifier(classes=["no", "yes"]), refit=refit, epsilon=20.0, **MANY)
    search = pickle.loads(pickle.dumps(clone(search).fit(X.tolist(), labels)))
    best = search.best_estimator_
    assert search.best_params_ == {"C": 1.0} == search.candidates_[search.best_index_]
    assert best.C == 1.0
    for name in ("predict", "predict_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(search, name)(X), getattr(best, name)(X))
    assert search.score(X, labels) == best.score(X, labels) > 0.9
    assert search.n_features_in_ == 3
    assert search.classes_.tolist() == ["no", "yes"]
    assert search.refit_ == refit
    assert best.privacy_ is search.privacy_
    unfitted = DPGridSearchCV(regressor(), {"alpha": [1.0]})
    for name in ("predict_proba", "decision_function", "classes_", "cv_results_"):
        assert not hasattr(unfitted, name)
    with pytest.raises(NotFittedError):
        unfitted.predict(X)


def test_candidates_are_drawn_before_data_and_a_plan_leaves_generators_alone():
    space = {"alpha": loguniform(1e-3, 1e3)}
    search = DPRandomizedSearchCV(regressor(max_iter=2), space, n_iter=3, random_state=3)
    first = copy.deepcopy(search).fit(X, T).candidates_
    assert len(first) == 3
    assert first == search.fit(X[::-1] / 2, T / 3).candidates_
    for make in (np.random.default_rng, np.random.RandomState):
        one, two = (clone(search).set_params(random_state=make(4)) for _ in range(2))
        two.plan(N, 3)
        one, two = one.fit(X, T), two.fit(X, T)
        assert one.candidates_ == two.candidates_ != first
        np.testing.assert_array_equal(one.best_estimator_.coef_, two.best_estimator_.coef_)


def test_transformers_that_learn_nothing_are_searched_and_assumed_to_see_one_row():
    parts = make_pipeline(BoundedScaler(lower=-1, upper=1), Normalizer())
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    steps = Pipeline([("parts", parts), ("more", Normalizer()), ("model", classifier())])
    grid = {"model__C": [1e-7, 1.0], "more": ["passthrough", BoundedScaler()]}
    search = grid_search(steps, grid, epsilon=20.0, **MANY).fit(table, Y)
    assert search.feature_names_in_.tolist() == ["a", "b", "c"]
    assert search.best_estimator_[-1].n_features_in_ == 3
    assert search.score(table, Y) > 0.8
    assert search.best_estimator_[-1].epsilon < 20.0
    assert search.best_estimator_[-1].privacy_ == search.privacy_
    words = "Transformers before the estimator treat each row by itself."
    assert words in search.privacy_.assumptions


def mixed_table():
    """Columns of every type: with missing values, and a category that the public list lacks."""
    return {
        "age": np.where(np.arange(N) == 990, np.nan, 50 + 50 * X[:, 0]).tolist(),
        "city": ["Rome", *np.where(Y, "Oslo", "Bergen")[1:].tolist()],
        "size": np.where(X[:, 1] > 0, "small", None).tolist(),
        "text": ["some words of them all"] * N,
        "weight": X[:, 2].tolist(),
    }


def steps_of_table(model=None):
    schema = {0: Range(0, 100, missing=50), 1: ["Bergen", "Oslo"], 2: ["small"]}
    parts = [("public", PublicTableTransformer(schema), ["age", "city", "size"])]
    parts.append(("weight", make_pipeline(BoundedScaler(lower=-1, upper=1)), ["weight"]))
    parts.append(("text", HashingVectorizer(n_features=4), "text"))
    table = ColumnTransformer(parts, sparse_threshold=0)
    return Pipeline([("table", table), ("model", model or classifier())])


@pytest.mark.parametrize("convert", [pd.DataFrame, pl.DataFrame])
def test_a_table_of_text_and_missing_values_is_searched_as_it_came_and_planned_by_names(convert):
    search = grid_search(steps_of_table(), {"model__C": [1e-7, 1.0]}, epsilon=20.0, **MANY)
    table = convert(mixed_table())
    plan = search.plan(N, columns=list(table.columns))
    assert search.fit(table, Y).score(table, Y) > 0.9
    assert search.n_features_in_ == 5
    assert search.best_estimator_[-1].n_features_in_ == 2 + 2 + 1 + 1 + 4
    assert plan.guarantee() == search.privacy_.guarantee()
    cost = search_cost(
        GridSearchCV(steps_of_table(classifier(epsilon=0.1)), {"model__C": [1.0]}, cv=KFold(2)).fit(
            table, Y
        ),
        n_samples=N,
    )
    assert 0.1 < cost.epsilon() < 0.3


def test_a_table_of_text_and_logarithms_is_searched_and_planned_by_its_columns():
    parts = [
        ("income", make_pipeline(FunctionTransformer(np.log1p), Normalizer()), ["income"]),
        ("text", HashingVectorizer(n_features=4), "text"),
        ("rest", PolynomialFeatures(2, include_bias=False), ["a", "b"]),
        ("shares", FunctionTransformer(scipy.special.logit), ["share"]),
    ]
    table = pd.DataFrame({"income": np.arange(N), "text": ["words"] * N, "a": X[:, 0], "b": Y})
    table["share"] = np.linspace(0.1, 0.9, N)
    steps = make_pipeline(ColumnTransformer(parts, sparse_threshold=0), classifier())
    search = grid_search(steps, {"dpadmmlogisticregression__C": [1.0]}, epsilon=20.0)
    plan = search.plan(N, columns=list(table.columns))
    assert search.fit(table, Y).score(table, Y) > 0.9
    assert search.best_estimator_[-1].n_features_in_ == 1 + 4 + 5 + 1
    assert plan.guarantee() == search.privacy_.guarantee()
    with pytest.raises(ValueError, match=r"infinity|NaN"):
        search.fit(table.assign(share=2.0), Y)


UFUNCS = [
    (module, name)
    for module in (np, scipy.special)
    for name, func in vars(module).items()
    if isinstance(func, np.ufunc) and acts_by_row(FunctionTransformer(func))
]


def test_functions_that_are_accepted_change_no_other_row_by_a_bit():
    assert {"log1p", "sqrt", "expit"} <= {name for _, name in UFUNCS}
    assert len(UFUNCS) > 80
    rows = np.random.default_rng(3).normal(0, 3, size=(65, 3))
    wild = [0.0, -0.0, -1.0, 5e-324, 1e-310, 1e5, 1e17, 1e308, -1e308, np.inf, np.nan]
    for module, name in UFUNCS:
        if name == "isnat":  # of dates alone
            continue
        step, others = FunctionTransformer(getattr(module, name)), np.arange(65) != 30
        for kind in (np.array, pd.DataFrame):
            with np.errstate(all="ignore"):
                before = np.asarray(step.fit_transform(kind(rows)))[others]
                for value in wild:
                    changed = rows.copy()
                    changed[30] = value
                    after = np.asarray(step.fit_transform(kind(changed)))[others]
                    np.testing.assert_array_equal(before, after)
        # Whether a column of whole numbers is of ints or floats is decided by one row.
        whole = np.arange(1, 9)[:, None]
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(step.transform(whole), step.transform(whole * 1.0))


def test_steps_that_were_fitted_on_public_rows_are_frozen_and_searched_and_assumed_public():
    public = StandardScaler().fit(X[:100])
    steps = make_pipeline(FrozenEstimator(public), FrozenEstimator(PCA(2).fit(X)), classifier())
    search = grid_search(steps, {"dpadmmlogisticregression__C": [1.0]}, epsilon=20.0).fit(X, Y)
    assert search.best_estimator_[0].estimator.mean_ is public.mean_
    assert search.best_estimator_[-1].n_features_in_ == 2
    words = "FrozenEstimator steps were fitted on public rows alone."
    assert words in search.privacy_.assumptions
    assert words not in grid_search().fit(X, Y).privacy_.assumptions


@pytest.mark.usefixtures("no_trial")
@pytest.mark.parametrize("row", [0, 900])
def test_rows_that_a_transformer_refuses_are_refused_before_a_trial_whatever_part_they_are_in(row):
    table = pd.DataFrame(mixed_table())
    table.loc[row, "weight"] = np.inf
    steps = steps_of_table(classifier())
    search = grid_search(steps, {"model__C": [1.0]}, cv=TWO)
    with pytest.raises(ValueError, match="infinity"):
        search.fit(table, Y)
    with pytest.raises(ValueError, match="Check n_features and columns"):
        search.plan(N, 5)


def test_owners_of_rows_are_searched_with_the_sizes_that_agents_have_in_the_public_split():
    model = classifier(DPFedLogisticRegression, adversary="model")
    owners = np.where(np.arange(N) < 300, "west", "east").tolist()
    steps = Pipeline([("in", Pipeline([("scale", Normalizer()), ("model", model)]))])
    for estimator, grid in ((model, {"C": [1.0]}), (steps, {"in__model__C": [1.0]})):
        search = grid_search(estimator, grid, epsilon=20.0, cv=TWO, refit=True)
        plan = search.plan(N, 3, agents=owners)
        search.fit(X, Y, agents=owners)
        last = last_step(search.best_estimator_)
        assert last.agent_labels_.tolist() == ["east", "west"]
        assert plan.guarantee() == search.privacy_.guarantee()
        assert plan.digest() == search.plan(N, 3, agents=owners).digest()
        assert plan.digest() != search.plan(N, 3, agents=owners[::-1]).digest()
    with pytest.raises(ValueError, match="positions of one split"):
        search.set_params(cv=5).fit(X, Y, agents=owners)
    with pytest.raises(TypeError, match="knows of no agents"):
        grid_search().fit(X, Y, agents=owners)


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_the_result_does_not_depend_on_the_number_of_jobs(backend):
    one = grid_search(n_trials=5).fit(X, Y)
    with parallel_config(backend=backend):
        two = grid_search(n_trials=5, n_jobs=2).fit(X, Y)
    np.testing.assert_array_equal(one.best_estimator_.coef_, two.best_estimator_.coef_)
    assert (one.best_score_, one.best_index_) == (two.best_score_, two.best_index_)


# What it costs.


@pytest.mark.parametrize(
    ("trials", "refit", "neighboring"),
    [
        ("geometric", True, "zero_out"),
        ("logarithmic", True, "replace_one"),
        ("poisson", False, "zero_out"),
    ],
)
def test_the_total_is_the_budget_and_comes_from_its_parts(trials, refit, neighboring):
    search = grid_search(trials=trials, refit=refit, epsilon=1.5, delta=1e-6, n_trials=4)
    search.set_params(estimator__neighboring=neighboring)
    plan, report = search.plan(N, 3), search.fit(X, Y).privacy_
    assert 0.999 * 1.5 < report.epsilon() <= 1.5
    assert report.observers[0].neighboring == neighboring
    assert "SIMULATION" in repr(report)
    by_hand = best_of_trials(worst(plan.fit_guarantee, plan.score_guarantee), plan.law)
    if refit:
        by_hand = compose(by_hand, renyi_divergences(plan.refit_guarantee))
        assert plan.refit_guarantee.epsilon(1e-6) == pytest.approx(0.75, rel=1e-6)
    assert report.guarantee() == by_hand == plan.guarantee()
    assert plan.law.mean == pytest.approx(4.0)
    assert f"{100 * plan.score_std / plan.score.width:.3g}% of the width" in repr(plan)
    assumed = " ".join(report.assumptions)
    assert ("A record that is zeroed has the least score" in assumed) == (neighboring == "zero_out")


@noisy
def test_trials_share_one_split_one_budget_and_no_record(monkeypatch):
    rows, trained, spy = np.column_stack([X[:, :2], np.linspace(-1, 1, N)]), [], Spy()

    def watched(self, X, y, fit=DPAdmmLogisticRegression.fit):
        trained.append(np.array(X))
        return fit(self, X, y)

    monkeypatch.setattr(DPAdmmLogisticRegression, "fit", watched)
    search = grid_search(scoring=spy, score_bounds=(0, 1), cv=4, **MANY)
    plan, validation = search.plan(N, 3), search.fit(rows, Y) and spy.shown[0][1]
    assert len(trained) == len(spy.shown) > 2
    assert all(np.array_equal(part, trained[0]) for part in trained)
    assert all(np.array_equal(part, validation) for _, part, _ in spy.shown)
    assert (len(trained[0]), len(validation)) == (N - N // 4, N // 4)
    assert not set(validation[:, 2]) & set(trained[0][:, 2])
    assert {(e.epsilon, e.delta) for e, *_ in spy.shown} == {(plan.trial_epsilon, search.delta)}
    assert plan.fit_guarantee.epsilon(1e-5) <= plan.trial_epsilon * (1 + 1e-9)


def test_neighbours_have_one_plan_and_a_validation_row_moves_scores_by_their_sensitivity():
    other, swapped, seen, reports = X.copy(), Y.copy(), [], []
    other[900], swapped[900] = -50 * other[900], 1 - Y[900]
    for a, b in ((X, Y), (other, swapped)):
        spy = Spy()
        search = grid_search(cv=TWO, n_trials=6, scoring=spy, score_bounds=(0, 1)).fit(a, b)
        reports.append(search.privacy_)
        seen.append([(e.coef_, np.mean(e.predict(rows) == t)) for e, rows, t in spy.shown])
    assert reports[0] == reports[1]
    for (coef, score), (same, moved) in zip(*seen, strict=True):
        np.testing.assert_array_equal(coef, same)
        assert abs(score - moved) <= 1 / 200 + 1e-12


@noisy
@pytest.mark.parametrize("n_searches", [25, pytest.param(200, marks=pytest.mark.slow)])
def test_the_noise_of_scores_is_that_of_the_plan(monkeypatch, n_searches):
    search = tiny(cv=[(np.arange(6), np.arange(6, 40))], scoring=half, score_bounds=(0, 1))
    plan = plan_once(monkeypatch, search.set_params(n_trials=1.01), 40)
    # One of 34 rows moves a mean of numbers in [0, 1].
    assert plan.score_std * plan.score_guarantee.mu == pytest.approx(1 / 34, rel=1e-6)
    searches = (search.set_params(random_state=i).fit(X[:40], Y[:40]) for i in range(n_searches))
    noise = np.array([one.best_score_ - 0.5 for one in searches]) / plan.score_std
    # Standard deviations of the mean and of the variance: four, and less than half the noise is.
    assert abs(np.mean(noise)) < 4 / math.sqrt(n_searches)
    assert abs(np.mean(noise**2) - 1) < min(0.7, 4 * math.sqrt(2 / n_searches))


def test_noise_of_a_score_has_the_planned_scale(monkeypatch):
    scales, module = [], "skdpadmm.model_selection._search.noise_source"

    class Noted(CryptographicNoise):
        def add_gaussian(self, value, scale, stream):
            scales.append(scale)
            return super().add_gaussian(value, scale, stream)

    monkeypatch.setattr(module, lambda *_: Noted())
    search = tiny(random_state=None)
    search.fit(X[:40], Y[:40])
    assert set(scales) == {search.plan(40, 3).score_std}


def test_candidates_of_several_kinds_meet_the_budget_in_any_order():
    kinds = ["consensus-admm", GradientADMM()]
    plans = [
        DPGridSearchCV(regressor(), {"algorithm": order}, epsilon=2.0).plan(2000, 3)
        for order in (kinds, kinds[::-1])
    ]
    for delta in (1e-5, 1e-9):
        one, other = (plan.fit_guarantee.epsilon(delta) for plan in plans)
        assert one == pytest.approx(other)
    assert all(1.99 < plan.guarantee().epsilon(1e-5) <= 2.0 for plan in plans)


def test_every_score_of_a_search_has_noise_of_its_own(monkeypatch):
    """The best of about 40 equal scores is two standard deviations above them, and not none."""
    search = tiny(scoring=half, score_bounds=(0, 1), trials="poisson", n_trials=40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = plan_once(monkeypatch, search, 40)
        best = [search.set_params(random_state=i).fit(X[:40], Y[:40]).best_score_ for i in range(5)]
    assert (np.mean(best) - 0.5) / plan.score_std > 1.5


def test_noise_is_fresh_in_every_trial_and_search_but_for_seeds():
    spy, own = Spy(), {"score_bounds": (0, 1)}
    grid_search(classifier(random_state=7), {"C": [1.0]}, scoring=spy, **own, **MANY).fit(X, Y)
    coefs = {tuple(estimator.coef_.ravel()) for estimator, *_ in spy.shown}
    assert len(coefs) == len(spy.shown) > 1
    cases = ((5, 5), True), ((None, None), False), ([np.random.default_rng(0)] * 2, False)
    for seeds, is_equal in cases:
        coefs = [grid_search(random_state=s).fit(X, Y).best_estimator_.coef_ for s in seeds]
        assert np.array_equal(*coefs) == is_equal


def test_other_plans_have_other_digests():
    search = grid_search(refit=True, n_trials=3)
    digests = [search.plan(N, 3).digest()]
    assert digests == [clone(search).plan(N, 3).digest()]
    for other in (
        {"param_grid": {"C": [1e-7, 2.0]}},
        {"estimator__feature_bounds": (-2, 2)},
        {"epsilon": 1.0 + 1e-9},
        {"search_share": 0.6},
        {"scoring": "neg_log_loss", "score_bounds": (-2, 0)},
        {"cv": 4},
        {"public_validation": (X[:10], Y[:10])},
    ):
        digests.append(clone(search).set_params(**other).plan(N, 3).digest())
    assert len(set(digests)) == len(digests) == 8


# The number of trials is secret, and has its law.


SHOWN = []


def counted(estimator, X, y):
    SHOWN.append(estimator)
    return 0.5


def test_searches_with_other_numbers_of_trials_and_one_result_are_equal(monkeypatch):
    # All scores are equal, so the first trial is released.
    stored, shown = [], []
    for n_trials in (3, 40):
        monkeypatch.setattr(NegativeBinomialTrials, "sample", lambda *_, n=n_trials: n)
        SHOWN.clear()
        public = (X[:50], Y[:50])
        search = tiny(public_validation=public, scoring=counted, delta=1e-4).fit(X, Y)
        stored.append((list(vars(search)), pickle.dumps(search)))
        shown.append(len(SHOWN))
    SHOWN.clear()
    assert shown == [3, 40]
    assert stored[0] == stored[1]
    fitted = {name for name in vars(search) if name.endswith("_")}
    expected = {"best_estimator_", "best_index_", "best_params_", "best_score_", "candidates_"}
    assert fitted == expected | {"n_features_in_", "privacy_", "refit_", "scorer_"}
    # Nor are there rows.
    rows = X.copy()
    rows[11] = 0.123456789
    private = pickle.dumps(grid_search(random_state=None, refit=True).fit(rows, Y))
    assert np.float64(0.123456789).tobytes() not in private
    assert len(private) < 60_000


class Loud(FunctionTransformer):
    """Prints a line for each fit, and warns of floating point and of itself."""

    def __init__(self, verbose=0):
        super().__init__()
        self.verbose = verbose

    def fit(self, X, y=None):
        if self.verbose:
            print("fitted")
        return super().fit(X, y)

    def transform(self, X):
        warnings.warn("of data", RuntimeWarning, stacklevel=2)
        np.ones(1) / np.zeros(1)
        return super().transform(X)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_trial_prints_or_warns_or_leaves_a_file_as_these_can_be_counted(
    capfd, monkeypatch, tmp_path
):
    monkeypatch.setattr(
        "skdpadmm._pipelines.public_name",
        lambda each: "Loud" if isinstance(each, Loud) else public_name(each),
    )
    monkeypatch.setattr("skdpadmm._pipelines._BY_ROW", {"Loud": {}})
    inner = Pipeline([("loud", Loud(verbose=2)), ("model", classifier(verbose=1))], verbose=True)
    steps = Pipeline([("inner", inner)], verbose=True, memory=str(tmp_path))
    grid = {"inner__model": [classifier(verbose=1, C=C) for C in (1.0, 2.0)]}
    search = grid_search(steps, grid, delta=0.01, refit=True, n_trials=20)
    with warnings.catch_warnings(record=True) as planned:
        warnings.simplefilter("always")
        search.plan(200, 3)
    with parallel_config(verbose=50), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(X[:200], Y[:200])
    assert capfd.readouterr() == ("", "")
    # Widths are planned with rows of zeros, before any trial.
    assert [str(line.message) for line in caught] == [str(line.message) for line in planned]
    assert any("of data" in str(line.message) for line in caught)
    assert not list(tmp_path.rglob("*.pkl"))


def test_parts_of_a_column_transformer_print_no_more_of_many_trials_than_of_few(capfd):
    steps = make_pipeline(columns(BoundedScaler()), classifier())
    printed = set()
    for seed in range(4):
        with parallel_config(verbose=50):
            grid = {"columntransformer__n_jobs": [1]}
            grid_search(steps, grid, epsilon=50.0, n_trials=20, random_state=seed).fit(X, Y)
        printed.add(sum(text.count("Done") for text in capfd.readouterr()))
    assert len(printed) == 1


def test_rows_stay_as_they_are_in_steps_that_change_them_in_place():
    rows = X.copy()
    steps = make_pipeline(Binarizer(threshold=-2.0, copy=False), classifier())
    search = grid_search(steps, {"binarizer__threshold": [-2.0, 0.0]})
    search.set_params(public_validation=(rows, Y)).fit(rows, Y)
    np.testing.assert_array_equal(rows, X)


# Scores.


def test_scores_that_are_mostly_noise_are_warned_of_once_at_plan_and_at_fit():
    search = grid_search(epsilon=0.01, n_trials=10)
    for run, given in ((search.plan, (200, 3)), (search.fit, (X[:200], Y[:200]))):
        with pytest.warns(UserWarning, match="choices are nearly random") as caught:
            run(*given)
        assert sum("choices are nearly random" in str(line.message) for line in caught) == 1
    for free in ({"public_validation": (X, Y)}, {"epsilon": math.inf}):
        lines = clone(search).set_params(**free).plan(200, 3).warnings
        assert not any("choices are nearly random" in line for line, _ in lines)


def test_noise_beside_the_error_of_a_useful_model_is_warned_of_in_the_unit_of_the_target():
    """Targets in [0, 400] with errors near 154: noise of 120 decides."""
    model = DPAdmmRidge(feature_bounds=(-1, 1), target_bounds=(0, 400))
    search = grid_search(model, {"alpha": [0.0, 9.0]}, epsilon=1.0)
    for n_samples, is_noisy in ((33_000, True), (300_000, False)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            plan = search.plan(n_samples, 3)
        assert (plan.score_std > 62.5) == is_noisy
        lines = [str(line.message) for line in caught if "Got scores with" in str(line.message)]
        assert len(lines) == is_noisy
        assert all("squared units of the target, " in line for line in lines)
        assert "squared units of the target, " in repr(plan)
        assert "% of the error of a useful model (625)\n" in repr(plan)
    # Narrower bounds, from public knowledge, have less noise.
    assert not search.set_params(score_bounds=(-2000, 0)).plan(33_000, 3).warnings
    search.set_params(score_bounds=None, scoring="neg_mean_absolute_error")
    assert "units of the target, " in repr(search.plan(300_000, 3))
    fitted = grid_search(regressor(), {"alpha": [0.0]}, epsilon=20.0).fit(X, T)
    assert "(squared units of the target)" in repr(fitted.privacy_)


def test_a_search_needs_no_extra(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "dp_accounting"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    for trials, refit in (("geometric", False), ("poisson", True)):
        search = grid_search(trials=trials, refit=refit).fit(X, Y)
        assert 0.999 < search.privacy_.epsilon() <= 1.0


def test_public_rows_are_scored_exactly_and_cost_nothing():
    spy, public = Spy(), (X[:300] / 2, Y[:300])
    search = grid_search(public_validation=public, scoring=spy, epsilon=2.0)
    plan = search.plan(N, 3)
    assert (plan.n_train, plan.n_validation, plan.score_guarantee.mu) == (N, 0, 0.0)
    search.fit(X, Y)
    np.testing.assert_array_equal(spy.shown[0][1], public[0])
    assert search.best_score_ == np.mean(search.predict(public[0]) == public[1])
    assert not search.privacy_.releases
    assert "No row of public_validation is private." in search.privacy_.assumptions
    named = grid_search(public_validation=(X[:20], np.ones(20, dtype=int)), scoring="roc_auc")
    with np.errstate(all="ignore"):
        assert named.fit(X, Y).best_score_ == -math.inf


def test_scores_of_regressors_choose_and_are_what_has_chosen():
    bounds = {"feature_bounds": (-1, 1), "target_bounds": (-3, 3)}
    agents = DPFedRidge(adversary="model", n_agents=4, max_iter=10, **bounds)
    for model, epsilon in ((regressor(), 20.0), (regressor(), math.inf), (agents, 50.0)):
        search = grid_search(model, {"alpha": [0.0, 1e7]}, epsilon=epsilon, **MANY).fit(X, T)
        assert search.best_params_ == {"alpha": 0.0}
        assert search.score(X, T) == pytest.approx(-np.mean((search.predict(X) - T) ** 2))
        assert (search.privacy_.guarantee() == NonPrivate()) == (epsilon == math.inf)


def test_scores_of_rows_stay_within_their_bounds_for_all_finite_rows():
    class Wild:
        target_bounds, classes_ = None, np.array([0, 1])

        def predict(self, X):
            return X[:, 0]

        def predict_proba(self, X):
            return np.column_stack([X[:, 0], 1 - X[:, 0]])

    rows = np.array([[1e308], [-1e308], [0.0], [np.nan]])
    for name, model, y in (("neg_mean_squared_error", Ridge(), [-1e308, 1e308, 0.0, 0.0]),
                           ("neg_log_loss", classifier(), [0, 1, 0, 7])):  # fmt: skip
        score = row_score(name, model, (-4, 0))
        assert -4 <= score(Wild(), rows, np.array(y)) <= 0
    assert score.sensitivity(4) >= 1.0


@pytest.mark.parametrize(
    "bounds", [(-1e307, 0.0), (1e9, 1e9 + 1), (-1.0, 1e-300), (5e-324, 1e-320)]
)
def test_one_row_moves_a_mean_score_by_its_sensitivity_whatever_the_bounds(bounds):
    n, (low, high) = 300_000, bounds
    of_rows = np.where(np.random.default_rng(0).integers(0, 2, n), low, high)
    score = row_score(lambda model, X, y: y, classifier(), bounds)
    before = score(None, None, of_rows)
    for i in range(3):
        of_rows[i] = low + high - of_rows[i]
        after = score(None, None, of_rows)
        assert abs(after - before) <= score.sensitivity(n) + 5e-324
        before = after


# Refusals.


KNOWN = OneHotEncoder(categories=[[0]], handle_unknown="ignore")
CONSTANT = {"strategy": "constant", "fill_value": 0, "keep_empty_features": True}


def columns(step, **parameters):
    return ColumnTransformer([("in", step, [0])], **{"sparse_threshold": 0} | parameters)


STREAM = GradientADMM(schedule="stream")
ALPHA = {"alpha": [1.0, 2.0]}


class Posing:
    """Claims to be the logarithm."""

    __class__, __name__, nin, nout, types = np.ufunc, "log", 1, 1, ["d->d"]

    def __call__(self, X):
        return X - X.mean(axis=0)


class Subclass(Pipeline):
    """May do more than its parts."""


REFUSED = [
    ({"scoring": "roc_auc"}, "other rows decide.* Instead, neg_log_loss.*public_validation"),
    ({"estimator": regressor(), "param_grid": ALPHA, "scoring": "r2"}, "same models as R2"),
    ({"estimator__max_rows_per_person": 3}, "one row for each of them, such as the mean"),
    ({"scoring": "neg_log_loss", "score_bounds": (0, 4)}, "can reach.* such as \\(-4, 0\\)"),
    ({"scoring": "accuracy", "score_bounds": (-4, 0)}, "can reach: \\(0, 1\\) for accuracy"),
    ({"cv": [(np.arange(10), np.arange(5, 20))]}, "not disjoint"),
    ({"search_share": 1e-9, "refit": True}, "Ask for fewer trials|nothing is left"),
    ({"public_validation": (np.zeros((3, 2)), np.zeros(3))}, "shapes"),
    ({"param_grid": {"epsilon": [0.1, 1.0]}}, "sets it for every trial"),
    ({"estimator": Ridge(), "param_grid": ALPHA}, "a model of this package"),
    ({"estimator": regressor(algorithm=STREAM), "param_grid": ALPHA}, "a stream goes on after"),
    ({"estimator": DPFedRidge(target_bounds=(-3, 3)), "param_grid": ALPHA}, "adversary='model'"),
    ({"estimator": DPFedRidge(adversary="model", agent_column=0), "param_grid": ALPHA},
     "agent_column=0, expected None"),
    *(({"estimator": DPFedRidge(adversary="model", partition=p), "param_grid": ALPHA},
       "labels of all rows") for p in ("sorted", lambda X, y: y)),
    ({"estimator": classifier(algorithm="objective-perturbation")}, "Renyi divergences are"),
    *(
        ({"estimator": Pipeline([("in", part), ("m", classifier())]), "param_grid": {"m__C": [1]}},
         message)
        for part, message in (
            (make_pipeline(BoundedScaler(), StandardScaler()), "StandardScaler"),
            (columns(BoundedScaler(), sparse_threshold=0.3), "pass sparse_threshold=0"),
            (ColumnTransformer([("in", BoundedScaler(), lambda X: [0])], sparse_threshold=0),
             "pass transformers=columns by names"),
            (columns(KNOWN), "OneHotEncoder.* by a PublicTableTransformer"),
            (SimpleImputer(**CONSTANT), "SimpleImputer.* by a PublicTableTransformer"),
            (columns("drop", remainder=StandardScaler()), "StandardScaler"),
            (HashingVectorizer(strip_accents=str.lower), "pass strip_accents=no function"),
            (Subclass([("in", BoundedScaler())]), "Subclass"),
            *(
                (FunctionTransformer(**given), f"pass {name}")
                for given, name in (
                    ({"func": np.add, "kw_args": {"x2": 1}}, "func=.*, kw_args=None"),
                    ({"func": np.log, "kw_args": {"out": np.zeros((N, 3))}}, "kw_args=None"),
                    ({"func": np.log, "kw_args": {"where": X > 0}}, "kw_args=None"),
                    ({"func": np.log1p, "inverse_func": np.expm1}, "inverse_func=None"),
                    ({"func": np.log, "feature_names_out": print}, "feature_names_out=no func"),
                    ({"func": np.frompyfunc(float, 1, 1)}, "func=None"),
                    ({"func": Posing()}, "func=None"),
                    ({"func": np.frexp}, "func=None"),
                    ({"func": np.log1p.reduce}, "func=None"),
                    # Integers have loops of their own.
                    ({"func": np.square}, "func=None"),
                    ({"func": np.reciprocal}, "func=None"),
                    ({"func": lambda X: X - X.mean(0)}, "func=None"),
                )
            ),
            (make_pipeline(Normalizer(), FunctionTransformer(np.cumsum)),
             "FunctionTransformer 'in.functiontransformer' .pass func=None"),
            (FrozenEstimator(NMF(1, init="random", max_iter=500).fit(X**2)), "'in' of NMF"),
            (FrozenEstimator(StandardScaler(copy=False).fit(X)), "freeze one with copy=True"),
            (FrozenEstimator(Normalizer(copy=False)), "freeze one with copy=True"),
            (FrozenEstimator(make_pipeline(StandardScaler()).fit(X)), "of Pipeline"),
            (FrozenEstimator(FrozenEstimator(OneHotEncoder())), "of FrozenEstimator"),
        )
    ),
]  # fmt: skip


@pytest.mark.usefixtures("no_trial")
@pytest.mark.parametrize(("parameters", "message"), REFUSED)
def test_what_cannot_be_searched_is_refused_before_anything_is_spent(parameters, message):
    search = grid_search(classifier()).set_params(**parameters)
    before = dict(vars(search))
    with pytest.raises((TypeError, ValueError), match=message):
        search.fit(X, T if "alpha" in search.param_grid else Y)
    assert vars(search) == before


def test_one_message_lists_all_that_a_mixed_table_lacks_by_the_names_of_its_steps():
    parts = [
        ("city", make_pipeline(OneHotEncoder(handle_unknown="ignore"), SimpleImputer()), ["city"]),
        ("age", StandardScaler(), ["age"]),
        ("income", FunctionTransformer(lambda X: X), ["income"]),
        ("tall", BoundedScaler(), ["tall"]),
    ]
    steps = Pipeline([("table", ColumnTransformer(parts)), ("model", classifier())])
    with pytest.raises(ValueError, match="steps that may learn from rows") as caught:
        grid_search(steps, {"model__C": [1.0]}).plan(N, columns=["age", "city", "income", "tall"])
    assert str(caught.value).split(". ")[0] == (
        "Got a Pipeline with steps that may learn from rows or mix them: ColumnTransformer 'table'"
        " (pass sparse_threshold=0), OneHotEncoder 'table.city.onehotencoder', SimpleImputer"
        " 'table.city.simpleimputer', StandardScaler 'table.age', FunctionTransformer"
        " 'table.income' (pass func=None, or a function of floats of numpy or scipy.special)"
    )


def test_persons_are_refused_with_what_protects_them():
    with pytest.raises(TypeError, match=r"Got persons in .* one row for each of them.*persons=lab"):
        grid_search().fit(X, Y, persons=np.arange(N) // 2)


def test_what_does_not_pass_through_a_search_is_refused():
    assert grid_search().get_metadata_routing().fit.requests == {"agents": None}
    for kind, name in ((DPGridSearchCV, "groups"), (DPRandomizedSearchCV, "sample_weight")):
        words = rf"Got {name} in {kind.__name__}\.fit.*several rows"
        with pytest.raises(TypeError, match=words):
            kind(classifier(), GRID).fit(X, Y, **{name: np.ones(N)})
    fitted = grid_search().fit(X, Y)
    before = dict(vars(fitted))
    with pytest.raises(ValueError, match="NaN"):
        fitted.fit(np.full((50, 3), np.nan), Y[:50])
    assert vars(fitted) == before


@pytest.mark.usefixtures("no_trial")
@pytest.mark.parametrize(("row", "in_step"), [(0, False), (11, True)])
def test_labels_that_are_not_declared_are_refused_whatever_part_they_are_in(row, in_step):
    y = np.where(np.arange(12) == row, 2, Y[:12])
    search = grid_search(classifier(), delta=1e-2)
    if in_step:
        # Only some of the candidates lack the label: which of them run is secret as well.
        steps = [classifier(classes=[0, 1, 2]), search.estimator]
        search = grid_search(Pipeline([("model", steps[0])]), {"model": steps}, delta=1e-2)
    for seed in range(4):
        with pytest.raises(ValueError, match="among classes"):
            search.set_params(random_state=seed).fit(X[:12], y)


def test_classes_that_are_not_declared_come_from_all_rows_and_are_an_assumption():
    by_class, silent = np.argsort(Y[:200], kind="stable"), classifier(classes=None)
    cv = [(np.arange(80), np.arange(80, 200))]
    search = grid_search(Pipeline([("model", silent)]), {"model": [silent, classifier()]}, cv=cv)
    # The part that trains has one class alone.
    search.set_params(delta=1e-3, n_trials=9).fit(X[:200][by_class], np.sort(Y[:200]))
    assert search.classes_.tolist() == [0, 1]
    assert any("classes not declared" in line for line in search.privacy_.assumptions)
    with pytest.raises(ValueError, match="Declare all of them with"):
        grid_search(silent).fit(X, np.zeros(N))
