"""What an ordinary search has cost: the sum over its fits, and nothing said of its scores."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    HalvingGridSearchCV,
    KFold,
    LeavePOut,
    PredefinedSplit,
    RandomizedSearchCV,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
    check_cv,
)
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge, DPFedRidge
from skdpadmm._folds import sizes_of_past_folds
from skdpadmm.ledger import PrivacyLedger
from skdpadmm.model_selection import DPGridSearchCV, DPRandomizedSearchCV, _cost, search_cost
from skdpadmm.preprocessing import BoundedScaler
from skdpadmm.privacy import GaussianDP, NonPrivate, gaussian_mu

BOUNDS = {"feature_bounds": (-1, 1), "target_bounds": (-2, 2)}


def data():
    X = np.random.default_rng(0).uniform(-1, 1, size=(600, 2))
    return X, X.sum(axis=1)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("cv", [3, 5])
@pytest.mark.parametrize("refit", [True, False])
def test_the_cost_is_the_sum_over_all_fits(n_jobs, cv, refit):
    grid = {"alpha": [0.0, 1.0, 2.0]}
    search = GridSearchCV(DPAdmmRidge(epsilon=0.2, **BOUNDS), grid, cv=cv, n_jobs=n_jobs)
    search.set_params(refit=refit).fit(*data())
    cost = search_cost(search, n_features=2)
    by_hand = math.sqrt(3 * cv + refit) * gaussian_mu(0.2, 1e-5)
    assert cost.guarantee().mu == pytest.approx(by_hand, rel=1e-9)
    assert cost.subject == f"GridSearchCV of DPAdmmRidge, {3 * cv + refit} fits"
    assert cost.not_covered[0] == "selection and cv_results_: no guarantee"
    assert "selection and cv_results_: no guarantee" in repr(cost)


def test_candidates_may_have_budgets_of_their_own():
    search = RandomizedSearchCV(
        make_pipeline(BoundedScaler(), DPAdmmRidge(**BOUNDS)),
        {"dpadmmridge__epsilon": [0.1, 0.5]},
        n_iter=2,
        cv=3,
        random_state=0,
    ).fit(*data())
    small, large = gaussian_mu(0.1, 1e-5), gaussian_mu(0.5, 1e-5)
    # Which of them was fitted once more came from exact scores: the dearer one counts.
    by_hand = math.sqrt(3 * small**2 + 4 * large**2)
    assert search_cost(search).guarantee().mu == pytest.approx(by_hand, rel=1e-9)


def test_seeded_fits_are_simulations():
    model = DPAdmmRidge(random_state=0, **BOUNDS)
    search = GridSearchCV(model, {"alpha": [1.0, 2.0]}, cv=2).fit(*data())
    assert "fits share it" in search_cost(search).simulation


def test_a_fit_without_privacy_leaves_nothing():
    model = DPAdmmRidge(**BOUNDS)
    search = GridSearchCV(model, {"epsilon": [0.1, math.inf]}, cv=2).fit(*data())
    assert search_cost(search).guarantee() == NonPrivate()


def test_fits_of_agents_add_up_for_their_adversary():
    model = DPFedRidge(n_agents=3, epsilon=0.5, max_iter=5, **BOUNDS)
    search = GridSearchCV(model, {"alpha": [1.0]}, cv=2).fit(*data())
    cost = search_cost(search, n_samples=600)
    assert cost.adversary == search.best_estimator_.privacy_.adversary != "model"
    assert 0.5 < cost.epsilon() < 1.5
    mixed = GridSearchCV(model, {"adversary": ["server", "model"]}, cv=2).fit(*data())
    with pytest.raises(ValueError, match="do not add up"):
        search_cost(mixed, n_samples=600)


def test_a_cost_by_the_number_of_rows_asks_for_it(monkeypatch):
    search = GridSearchCV(DPAdmmRidge(**BOUNDS), {"alpha": [1.0]}, cv=2).fit(*data())
    made = _cost.plan_candidate

    class Dearer:
        def __init__(self, plan, n):
            self.budget, self.n = plan.budget, n
            self.adversary, self.unit = plan.adversary, plan.unit
            self.neighboring = plan.neighboring

        def guarantee(self):
            return GaussianDP(600.0 / self.n)

    def by_size(candidate, parameters, n, *rest):
        return Dearer(made(candidate, parameters, n, *rest)[0], n), []

    monkeypatch.setattr(_cost, "plan_candidate", by_size)
    with pytest.raises(ValueError, match="expected n_samples"):
        search_cost(search)
    # Half of the rows train in a fold, and all of them in the last fit.
    known = math.sqrt(2 * 2**2 + 1)
    assert search_cost(search, n_samples=600).guarantee().mu == pytest.approx(known)
    uneven = math.sqrt(3**2 + 1.5**2 + 1)
    cost = search_cost(search, n_samples=600, fold_sizes=[200, 400])
    assert cost.guarantee().mu == pytest.approx(uneven)


def hidden(**parameters):
    """A guarantee that goes by the number of rows."""
    return DPAdmmRidge(epsilon=0.3, algorithm="gradient-admm", max_iter=4, **BOUNDS, **parameters)


def logistic(**parameters):
    return DPAdmmLogisticRegression(
        epsilon=0.3, classes=[0, 1], feature_bounds=(-1, 1), max_iter=4, **parameters
    )


MIXED = ["consensus-admm", "objective-perturbation"]


@pytest.mark.parametrize(
    ("model", "grid", "n", "cv"),
    [
        (DPAdmmRidge(epsilon=0.2, **BOUNDS), {"alpha": [0.0, 1.0]}, 61, 3),
        (hidden(), {"alpha": [1.0]}, 64, 3),
        (hidden(), {"alpha": [1.0, 2.0]}, 200, 3),
        (hidden(), {"alpha": [1.0]}, 50, ShuffleSplit(2, train_size=0.3)),
        (hidden(), {"alpha": [1.0]}, 30, [(np.arange(10), np.arange(10, 30))]),
        (hidden(), {"alpha": [1.0]}, 30, [(np.arange(30) < 12, np.arange(30) >= 12)]),
        (logistic(algorithm="gradient-admm"), {"C": [1.0]}, 64, KFold(3)),
        (logistic(), {"algorithm": MIXED}, 100, KFold(3)),
        (logistic(), {"epsilon": [0.1, 0.3], "algorithm": MIXED}, 60, KFold(2, shuffle=True)),
        (DPFedRidge(n_agents=3, epsilon=0.3, max_iter=5, **BOUNDS), {"alpha": [1.0]}, 61, 3),
    ],
)
@pytest.mark.parametrize("refit", [False, True])
def test_the_cost_is_never_below_what_a_ledger_counted(tmp_path, model, grid, n, cv, refit):
    X, y = (part[:n] for part in data())
    path, delta = str(tmp_path / "study.db"), 1e-5
    labels = (y > 0).astype(int) if isinstance(model, DPAdmmLogisticRegression) else y
    search = GridSearchCV(clone(model).set_params(ledger=path), grid, cv=cv, refit=refit)
    cost = search_cost(search.fit(X, labels), n_samples=n, n_features=2).epsilon(delta=delta)
    total = PrivacyLedger(path).total(delta)
    assert cost >= total * (1 - 1e-9)
    if not refit or "algorithm" not in grid:
        # Nothing is unknown but which of several was fitted once more.
        assert cost == pytest.approx(total, rel=1e-9)


def test_equal_budgets_with_unequal_curves_ask_for_the_number_of_rows():
    search = GridSearchCV(hidden(), {"alpha": [1.0]}, cv=3).fit(*(p[:64] for p in data()))
    with pytest.raises(ValueError, match="expected n_samples"):
        search_cost(search)


def test_folds_that_nobody_knows_are_asked_for():
    X, y = (part[:60] for part in data())
    groups = np.repeat([0, 1, 2, 3], [30, 10, 10, 10])
    cv = GroupKFold(2)
    search = GridSearchCV(hidden(), {"alpha": [1.0]}, cv=cv).fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="expected fold_sizes"):
        search_cost(search, n_samples=60)
    sizes = [len(train) for train, _ in cv.split(X, y, groups)]
    search_cost(search, n_samples=60, fold_sizes=sizes)
    for wrong in ([30], [30, 0], [30, 29.5]):
        with pytest.raises(ValueError, match="2 positive ints"):
            search_cost(search, n_samples=60, fold_sizes=wrong)
    # Where sizes make no difference nobody is asked.
    plain = GridSearchCV(DPAdmmRidge(**BOUNDS), {"alpha": [1.0]}, cv=cv).fit(X, y, groups=groups)
    assert search_cost(plain, n_samples=60).guarantee().mu > 0


@pytest.mark.parametrize(
    "cv",
    [
        4,
        KFold(7, shuffle=True),
        RepeatedKFold(n_splits=3, n_repeats=2),
        ShuffleSplit(3, test_size=0.37),
        LeavePOut(2),
        PredefinedSplit(np.arange(23) % 5),
        TimeSeriesSplit(4),
        [(np.arange(5), np.arange(5, 23)), (np.arange(23) < 9, np.arange(23) >= 9)],
    ],
)
def test_sizes_of_folds_are_those_that_the_search_had(cv):
    search = GridSearchCV(DPAdmmRidge(), {}, cv=cv)
    if isinstance(cv, list):
        sizes = [5, 9]
    else:
        sizes = [len(train) for train, _ in check_cv(cv).split(np.zeros((23, 1)))]
    search.n_splits_ = len(sizes)
    assert sizes_of_past_folds(search, 23, None) == sizes
    unknown = sizes_of_past_folds(search, None, None)
    assert unknown == (sizes if isinstance(cv, list) else None)


def test_a_number_of_rows_that_makes_other_folds_is_refused():
    search = GridSearchCV(DPAdmmRidge(), {}, cv=LeavePOut(1))
    search.n_splits_ = 3
    with pytest.raises(ValueError, match="expected the 3 that"):
        sizes_of_past_folds(search, 4, None)


class OfLabels(KFold):
    """Looks at labels, for all that anybody knows."""


@pytest.mark.parametrize(
    "cv",
    [
        None,
        4,
        StratifiedKFold(4, shuffle=True, random_state=0),
        RepeatedStratifiedKFold(n_splits=2, n_repeats=2),
        StratifiedShuffleSplit(3),
        StratifiedGroupKFold(2),
        OfLabels(3),
    ],
)
def test_folds_by_labels_are_refused_as_one_label_moves_other_rows(tmp_path, cv):
    X, y = data()
    labels = (y > 0).astype(int)
    groups = np.arange(600) % 5 if isinstance(cv, StratifiedGroupKFold) else None
    ledger = PrivacyLedger(tmp_path / "study.db")
    model = make_pipeline(BoundedScaler(), logistic(ledger=ledger.path))
    search = GridSearchCV(model, {"dpadmmlogisticregression__C": [1.0]}, cv=cv)
    for ask in (
        lambda: ledger.check(search, X, labels, groups),
        lambda: search_cost(search.fit(X, labels, groups=groups), n_samples=600),
        lambda: search_cost(search, n_samples=600, fold_sizes=[480] * search.n_splits_),
    ):
        with pytest.raises(ValueError, match=r"(?s)Got cv=.*, expected folds that no row"):
            ask()


@pytest.mark.parametrize("shuffle", [False, True])
def test_what_is_refused_of_folds_by_labels_is_so_and_what_is_accepted_is_not(shuffle):
    labels = (np.arange(100) % 3 == 0).astype(int)
    other = np.where(np.arange(100) == 0, 0, labels)
    seed = 0 if shuffle else None

    def moved(cv):
        pairs = zip(cv.split(labels, labels), cv.split(other, other), strict=True)
        return max(len(np.setdiff1d(a, b)) for (a, _), (b, _) in pairs)

    assert moved(StratifiedKFold(5, shuffle=shuffle, random_state=seed)) > 1
    assert moved(KFold(5, shuffle=shuffle, random_state=seed)) == 0


@pytest.mark.parametrize("is_known", [False, True])
def test_a_search_that_was_changed_since_it_ran_is_refused(is_known):
    model = DPAdmmRidge(epsilon=0.5, **BOUNDS)
    search = GridSearchCV(model, {"alpha": [0.0, 1.0]}, cv=3).fit(*data())
    known = {"n_samples": 600} if is_known else {}
    cost = search_cost(search, **known).epsilon()
    for change in ({"epsilon": 0.01}, {"delta": 1e-9}, {"neighboring": "zero_out"}):
        before = model.get_params()
        model.set_params(**change)
        with pytest.raises(ValueError, match="expected what it was fitted with"):
            search_cost(search, **known)
        model.set_params(**before)
    # Dearer fits bound what was spent, and seeds make no difference to it.
    model.set_params(epsilon=0.6, random_state=0)
    assert search_cost(search, **known).epsilon() > cost
    model.set_params(epsilon=0.5, random_state=None)
    assert not search_cost(search, **known).simulation
    search.set_params(refit=False)
    with pytest.raises(ValueError, match=r"Got refit=False, .* a best_estimator_"):
        search_cost(search, n_features=2, **known)
    search.set_params(refit=True)
    assert search_cost(search, **known).epsilon() == cost


def test_a_seed_that_was_taken_away_is_remembered():
    model = DPAdmmRidge(random_state=0, **BOUNDS)
    search = GridSearchCV(model, {"alpha": [1.0]}, cv=2).fit(*data())
    model.set_params(random_state=None)
    assert "fits share it" in search_cost(search).simulation


def test_a_number_of_rows_that_the_best_model_did_not_have_is_refused():
    search = GridSearchCV(hidden(), {"alpha": [1.0]}, cv=3).fit(*(p[:64] for p in data()))
    search_cost(search, n_samples=64)
    with pytest.raises(ValueError, match="Pass its n_samples"):
        search_cost(search, n_samples=640)


@pytest.mark.filterwarnings("ignore:Got scores with noise:UserWarning")
def test_a_search_whose_plan_draws_candidates_freshly_is_counted():
    inner = DPRandomizedSearchCV(
        DPAdmmRidge(max_iter=3, **BOUNDS), {"alpha": [0.0, 1.0, 2.0, 3.0]}, n_iter=2
    )
    outer = GridSearchCV(inner, {"epsilon": [0.2, 0.4]}, cv=2).fit(*(p[:100] for p in data()))
    assert search_cost(outer, n_samples=100).epsilon() > 0.4


def test_folds_that_scikit_learn_has_wrapped_are_those_that_were_given():
    X, y = data()
    cv = check_cv(list(KFold(3).split(X)))
    search = GridSearchCV(DPAdmmRidge(**BOUNDS), {"alpha": [1.0]}, cv=cv).fit(X, y)
    assert search_cost(search, n_samples=600).subject.endswith("4 fits")


class Several(SelectFromModel):
    """Holds models in places where nobody looks."""

    def __init__(self, models):
        self.models = models


def test_a_pipeline_in_which_two_steps_spend_is_refused(tmp_path):
    X, y = data()
    ledger = PrivacyLedger(tmp_path / "study.db")
    own = {"epsilon": 0.5, "ledger": ledger.path, **BOUNDS}
    chooses = SelectFromModel(DPAdmmRidge(**own), max_features=1, threshold=-np.inf)
    last = DPAdmmRidge(**own)
    for early in (
        chooses,
        make_pipeline(BoundedScaler(), chooses),
        FeatureUnion([("a", chooses)]),
        FunctionTransformer(kw_args={"model": last}),
        Several([chooses]),
    ):
        model = make_pipeline(early, last)
        search = GridSearchCV(model, {"dpadmmridge__alpha": [0.0, 1.0]}, cv=2)
        for ask in (
            lambda model=model: ledger.check(model, X, y),
            lambda search=search: ledger.check(search, X, y),
        ):
            with pytest.raises(TypeError, match="DPAdmmRidge before its last step"):
                ask()
    search = GridSearchCV(make_pipeline(chooses, last), {"dpadmmridge__alpha": [0.0]}, cv=2)
    with pytest.raises(TypeError, match="DPAdmmRidge before its last step"):
        search_cost(search.fit(X, y))
    # What is fitted already spends no more.
    frozen = SelectFromModel(FrozenEstimator(last.fit(X, y)), max_features=1, threshold=-np.inf)
    search.set_params(estimator=make_pipeline(frozen, last))
    cost = ledger.check(search, X, y)
    assert search_cost(search.fit(X, y)).guarantee().mu == pytest.approx(cost.mu)
    # A candidate may put one in.
    plain = make_pipeline("passthrough", last)
    grid = {"passthrough": ["passthrough", chooses]}
    with pytest.raises(TypeError, match="DPAdmmRidge before its last step"):
        ledger.check(GridSearchCV(plain, grid, cv=2), X, y)


@pytest.mark.filterwarnings("ignore:Got scores with noise:UserWarning")
def test_private_searches_within_a_search_add_up(tmp_path):
    X, y = (part[:100] for part in data())
    path = str(tmp_path / "study.db")
    inner = DPGridSearchCV(DPAdmmRidge(max_iter=3, **BOUNDS), {"alpha": [1.0]}, ledger=path)
    outer = GridSearchCV(inner, {"epsilon": [0.2, 0.4]}, cv=2).fit(X, y)
    cost = search_cost(outer, n_samples=100)
    assert cost.subject == "GridSearchCV of DPGridSearchCV, 5 fits"
    assert cost.epsilon(delta=1e-5) >= PrivacyLedger(path).total(1e-5) * (1 - 1e-9)


class Fragile(DPAdmmRidge):
    """Fails on the fold that lacks the first row."""

    def fit(self, X, y):
        if self.alpha > 1 and len(X) < 600 and X[0, 0] != data()[0][0, 0]:
            raise FloatingPointError("somewhere")
        return super().fit(X, y)


@pytest.mark.parametrize("scoring", [None, ["r2", "neg_mean_absolute_error"]])
def test_a_search_with_a_failed_fit_is_refused(scoring):
    search = GridSearchCV(
        Fragile(**BOUNDS), {"alpha": [1.0, 2.0]}, cv=3, scoring=scoring, refit=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of scores that are not finite
        warnings.simplefilter("ignore", FitFailedWarning)
        search.fit(*data())
    assert not hasattr(search, "best_estimator_")
    with pytest.raises(ValueError, match=f"{1 if scoring is None else 2} scores that are NaN"):
        search_cost(search, n_features=2)
    whole = search.set_params(param_grid={"alpha": [0.5, 1.0]}).fit(*data())
    assert search_cost(whole, n_features=2).epsilon() > 0


def test_what_has_no_known_cost_is_refused():
    X, y = data()
    with pytest.raises(NotFittedError):
        search_cost(GridSearchCV(DPAdmmRidge(**BOUNDS), {"alpha": [1.0]}))
    with pytest.raises(TypeError, match="Ridge"):
        search_cost(GridSearchCV(Ridge(), {"alpha": [1.0]}).fit(X, y))
    private = DPGridSearchCV(DPAdmmRidge(**BOUNDS), {"alpha": [1.0]}, random_state=0).fit(X, y)
    with pytest.raises(TypeError, match="in its privacy_"):
        search_cost(private)
    halving = HalvingGridSearchCV(
        DPAdmmRidge(**BOUNDS), {"alpha": [1.0, 2.0]}, cv=2, min_resources=200, random_state=0
    )
    with pytest.raises(TypeError, match="whole folds"):
        search_cost(halving.fit(X, y))
    unfit = GridSearchCV(DPAdmmRidge(**BOUNDS), {"alpha": [1.0]}, refit=False).fit(X, y)
    with pytest.raises(ValueError, match="n_features"):
        search_cost(unfit)
