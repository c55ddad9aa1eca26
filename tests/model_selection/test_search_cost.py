"""What an ordinary search has cost: the sum over its fits, and nothing said of its scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, RandomizedSearchCV
from sklearn.pipeline import make_pipeline

from skdpadmm import DPAdmmRidge, DPFedRidge
from skdpadmm.model_selection import DPGridSearchCV, _cost, search_cost
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
            return GaussianDP(1.0 / self.n)

    def by_size(candidate, parameters, n, *rest):
        return Dearer(made(candidate, parameters, n, *rest)[0], n), []

    monkeypatch.setattr(_cost, "plan_candidate", by_size)
    with pytest.raises(ValueError, match="expected n_samples"):
        search_cost(search)
    # Half of the rows train in a fold.
    assert search_cost(search, n_samples=600).guarantee().mu == pytest.approx(3**0.5 / 300)


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
