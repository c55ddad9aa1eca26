"""What an ordinary search has cost: the sum over its fits, and nothing said of its scores."""

import math

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    HalvingGridSearchCV,
    KFold,
    LeaveOneOut,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    TimeSeriesSplit,
)
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge, DPFedRidge
from skdpadmm._pipelines import last_step
from skdpadmm.ledger import PrivacyLedger
from skdpadmm.model_selection import DPGridSearchCV, DPRandomizedSearchCV, search_cost
from skdpadmm.preprocessing import BoundedScaler

BOUNDS = {"feature_bounds": (-1, 1), "target_bounds": (-2, 2)}
X = np.random.default_rng(0).uniform(-1, 1, size=(600, 2))
Y = X.sum(axis=1)
MIXED = ["consensus-admm", "objective-perturbation"]
AGENTS = DPFedRidge(n_agents=3, epsilon=0.5, max_iter=5, **BOUNDS)


def ridge(**parameters):
    return DPAdmmRidge(**{"epsilon": 0.2, "max_iter": 4} | BOUNDS | parameters)


def hidden(**parameters):
    """A guarantee that goes by the number of rows."""
    return ridge(epsilon=0.3, algorithm="gradient-admm", **parameters)


def logistic(**parameters):
    own = {"epsilon": 0.3, "classes": [0, 1], "feature_bounds": (-1, 1), "max_iter": 4}
    return DPAdmmLogisticRegression(**own | parameters)


def searched(model=None, n=600, **own):
    """A search that ran."""
    given = {"param_grid": {"alpha": [1.0]}, "cv": 2}
    return GridSearchCV(ridge() if model is None else model, **given | own).fit(X[:n], Y[:n])


MASKS = [(np.arange(60) < size, np.arange(60) >= size) for size in (30, 40)]
NESTED = Pipeline([("clip", BoundedScaler()), ("model", Pipeline([("m", ridge())]))])


@pytest.mark.parametrize(
    ("model", "grid", "n", "cv", "refit"),
    [
        (hidden(), {"alpha": [1.0]}, 50, ShuffleSplit(2, train_size=0.3), False),
        (hidden(), {"alpha": [1.0]}, 60, MASKS, True),
        (hidden(), {"alpha": [1.0]}, 60, [(np.arange(-25, 0), np.arange(35))], False),
        (NESTED, {"model__m__epsilon": [0.2, 0.4]}, 60, 3, False),
        (hidden(), {"alpha": [1.0]}, 60, TimeSeriesSplit(3), True),
        (logistic(max_iter=1), {"C": [1.0]}, 12, LeaveOneOut(), False),
        pytest.param(logistic(), {"algorithm": MIXED}, 60, KFold(2), True, marks=pytest.mark.slow),
        (AGENTS, {"alpha": [1.0]}, 61, 3, True),
        (DPRandomizedSearchCV(ridge(), {"alpha": [0.0, 1.0, 2.0]}, n_iter=2),
         {"epsilon": [0.2, 0.4]}, 100, 2, True),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Got scores with noise:UserWarning")
def test_the_cost_is_one_before_and_after_a_search_and_never_below_what_a_ledger_counted(
    tmp_path, model, grid, n, cv, refit
):
    ledger, delta = PrivacyLedger(tmp_path / "study.db"), 1e-5
    y = (Y > 0).astype(int) if isinstance(model, DPAdmmLogisticRegression) else Y
    name = "model__m__ledger" if isinstance(model, Pipeline) else "ledger"
    model = clone(model).set_params(**{name: ledger.path})
    search = GridSearchCV(model, grid, cv=cv, refit=refit)
    before = ledger.check(search, X[:n], y[:n]).epsilon(delta)
    search.fit(X[:n], y[:n])
    report = search_cost(search, n_samples=n, n_features=2)
    total = ledger.total(delta, kind="fixed")
    n_fits = len(search.cv_results_["params"]) * search.n_splits_ + refit
    assert report.subject == f"GridSearchCV of {type(last_step(model)).__name__}, {n_fits} fits"
    assert report.not_covered[0] == "selection and cv_results_: no guarantee"
    assert before == (cost := report.epsilon()) >= total * (1 - 1e-9)
    if not refit or not {"algorithm", "epsilon"} & set(grid):
        # Nothing is unknown but which of several was fitted once more.
        assert cost == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("cv", [None, RepeatedStratifiedKFold(n_splits=2), GroupKFold(2)])
def test_folds_by_labels_are_refused_and_those_by_groups_unless_their_positions_are_given(cv):
    labels, groups = (Y[:60] > 0).astype(int), np.arange(60) % 5
    search = GridSearchCV(logistic(max_iter=1), {"C": [1.0]}, cv=cv)
    search.fit(X[:60], labels, groups=groups if isinstance(cv, GroupKFold) else None)
    with pytest.raises(ValueError, match=r"(?s)Got cv=.*, that no row"):
        search_cost(search, n_samples=60)
    if isinstance(cv, GroupKFold):
        search.set_params(cv=list(cv.split(X[:60], labels, groups)))
        assert search_cost(search, n_samples=60).guarantee().mu > 0


def test_a_search_that_was_changed_since_it_ran_is_refused():
    model = ridge(epsilon=0.5)
    search = searched(model)
    for change in ({"epsilon": 0.01}, {"neighboring": "zero_out"}):
        before = model.get_params()
        model.set_params(**change)
        with pytest.raises(ValueError, match="expected what it was fitted with"):
            search_cost(search, n_samples=600)
        model.set_params(**before)
    # More expensive fits bound what was spent.
    cost = search_cost(search, n_samples=600).epsilon()
    model.set_params(epsilon=0.6)
    assert search_cost(search, n_samples=600).epsilon() > cost
    search.set_params(refit=False)
    with pytest.raises(ValueError, match="expected what it was fitted with"):
        search_cost(search, n_samples=600)
    with pytest.raises(ValueError, match="Pass its n_samples"):
        search_cost(searched(hidden(), 30), n_samples=300)
    # A seed that was taken away is remembered.
    seeded = searched(ridge(random_state=0))
    seeded.estimator.set_params(random_state=None)
    assert "fits share it" in search_cost(seeded, n_samples=600).simulation


def test_a_pipeline_in_which_two_steps_spend_is_refused(tmp_path):
    ledger = PrivacyLedger(tmp_path / "study.db")
    last, own = ridge(ledger=ledger.path), {"max_features": 1, "threshold": -np.inf}
    chooses, grid = SelectFromModel(clone(last), **own), {"dpadmmridge__alpha": [0.0]}
    models = [
        make_pipeline(make_pipeline(BoundedScaler(), FeatureUnion([("a", chooses)])), last),
        # A candidate may put one in.
        GridSearchCV(make_pipeline("passthrough", last), {"passthrough": [None, chooses]}),
        GridSearchCV(make_pipeline(chooses, last), grid, cv=2),
    ]
    for model in models:
        with pytest.raises(ValueError, match=r"SelectFromModel at steps.* is not known"):
            ledger.check(model, X, Y)
    with pytest.raises(ValueError, match=r"SelectFromModel at steps.* is not known"):
        search_cost(models[-1].fit(X, Y), n_samples=600)
    # What was fitted on public rows, and treats each row by itself, spends nothing.
    with pytest.raises(ValueError, match=r"SelectFromModel at steps.* is not known"):
        ledger.check(make_pipeline(FrozenEstimator(chooses.fit(X, Y)), last), X, Y)
    frozen = FrozenEstimator(StandardScaler().fit(X))
    search = models[-1].set_params(estimator=make_pipeline(frozen, last))
    cost = ledger.check(search, X, Y)
    assert search_cost(search.fit(X, Y), n_samples=600).guarantee().mu == pytest.approx(cost.mu)


@pytest.mark.parametrize("grid", [{"alpha": [1.0, 2.0]}, {"epsilon": [0.2, 0.4]}])
def test_the_cost_is_known_before_the_search(grid):
    search = GridSearchCV(ridge(), grid, cv=2)
    known = {"n_samples": 600, "n_features": 2}
    before = search_cost(search, **known)
    assert before.guarantee() == search_cost(search.fit(X, Y), **known).guarantee()
    assert not any("were fitted" in line for line in before.assumptions)


def test_a_search_with_a_failed_fit_is_refused():
    search = searched(param_grid={"alpha": [1.0, 2.0]})
    search.cv_results_["split1_test_score"][0] = math.nan
    with pytest.raises(ValueError, match="1 scores that are NaN"):
        search_cost(search, n_samples=600)


def test_what_has_no_known_cost_is_refused():
    alpha = {"alpha": [1.0]}
    for search, error, message in (
        (GridSearchCV(ridge(), alpha), ValueError, "n_features"),
        (searched(Ridge()), TypeError, "Ridge"),
        (DPGridSearchCV(ridge(), alpha).fit(X, Y), TypeError, "in its privacy_"),
        (HalvingGridSearchCV(ridge(), alpha, cv=2).fit(X, Y), TypeError, "whole folds"),
        (searched(refit=False), ValueError, "n_features"),
        (searched(AGENTS, param_grid={"adversary": ["server", "model"]}), ValueError, "add up"),
    ):
        with pytest.raises(error, match=message):
            search_cost(search, n_samples=600)
