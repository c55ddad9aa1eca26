"""Tools of scikit-learn that take a fitted model, or fit one many times."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.inspection import PartialDependenceDisplay, permutation_importance
from sklearn.model_selection import GridSearchCV, cross_val_predict, learning_curve

from tests.interface.registry import DEFAULTS, ROWS

KEPT = {"coef_", "intercept_", "classes_", "n_iter_", "n_features_in_", "feature_names_in_"}
# The link of rates, without which they cannot be predicted.
KEPT |= {"_base_loss"}


@pytest.mark.parametrize("name", ROWS)
def test_a_model_of_scikit_learn_predicts_the_same_and_holds_nothing_else(name):
    X, y = ROWS[name].data()
    model = ROWS[name].make().fit(X, y)
    new = np.random.default_rng(1).normal(size=(50, 3))
    exported = pickle.loads(pickle.dumps(model.to_sklearn()))
    assert type(exported).__module__.startswith("sklearn.")
    assert vars(exported).keys() - exported.get_params().keys() <= KEPT
    # Personalised models without agents are the average model.
    agents = {"agents": None} if hasattr(model, "coef_per_agent_") else {}
    predicted = exported.predict(new)
    if ROWS[name].is_rate:
        # Rates of scikit-learn have no range.
        predicted = np.clip(predicted, *model.target_bounds)
    np.testing.assert_allclose(predicted, model.predict(new, **agents), rtol=1e-12)
    if is_classifier(model):
        scores = model.decision_function(new, **agents)
        np.testing.assert_allclose(exported.decision_function(new), scores, rtol=1e-12)
    assert not np.shares_memory(model.to_sklearn().coef_, model.coef_)


@pytest.mark.parametrize("name", ROWS)
def test_rows_to_predict_for_are_clipped_as_those_of_the_fit_were(name):
    X, y = ROWS[name].data()
    new = np.random.default_rng(1).normal(size=(50, 3))
    inside = np.clip(new, [-1, -0.5, -1], 1)
    model = ROWS[name].make(feature_bounds=([-1, -0.5, -1], 1), epsilon=1000.0).fit(X, y)
    for method in {"predict", "decision_function", "predict_proba"} & set(dir(model)):
        (ask, agents) = (getattr(model, method), {})
        if hasattr(model, "coef_per_agent_"):
            agents = {"agents": np.resize(model.agent_labels_, 50)}
        answers = ask(inside, **agents)
        np.testing.assert_allclose(ask(new, **agents), answers, rtol=1e-9)
        np.testing.assert_allclose(ask(csr_array(new), **agents), answers, rtol=1e-9)
    # What goes to others has no bounds, and without privacy nothing is clipped.
    scores = model.to_sklearn()
    scores = getattr(scores, "decision_function", scores.predict)
    assert np.abs(scores(new) - scores(inside)).max() > 0
    exact = ROWS[name].make(feature_bounds=(-9, 9), epsilon=np.inf).fit(X, y)
    assert exact._box_ is None


def test_sparse_rows_are_refused_where_zero_is_out_of_bounds():
    X, y = ROWS["ridge"].data()
    model = ROWS["ridge"].make(feature_bounds=(0.1, 1)).fit(np.abs(X), y)
    with pytest.raises(ValueError, match=r"^Got feature_bounds that exclude 0 for sparse X"):
        model.predict(csr_array(X))


def test_an_export_takes_features_without_the_column_of_agents():
    X, y = ROWS["personal classes"].data()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    towns = np.resize(["east", "west"], len(y))
    held = frame.assign(town=towns)
    model = ROWS["personal classes"].make(agent_column="town").fit(held, y)
    own = model.local_model("east", held[::2], y[::2])
    for each in (model, own):
        exported = each.to_sklearn()
        assert exported.feature_names_in_.tolist() == ["a", "b", "c"]
        assert exported.predict(frame).shape == y.shape
    np.testing.assert_array_equal(own.to_sklearn().predict(frame), own.predict(held))


@pytest.mark.parametrize("name", DEFAULTS)
def test_tools_of_scikit_learn_work(name):
    X, y = DEFAULTS[name].data()
    # With less budget lasso coefficients are all zero, and there is nothing to draw.
    model = DEFAULTS[name].make(epsilon=1000.0)
    assert cross_val_predict(model, X, y, cv=2).shape == y.shape
    assert np.isfinite(learning_curve(model, X, y, cv=2, train_sizes=[20, 30])[2]).all()
    model.fit(X, y)
    assert permutation_importance(model, X, y, n_repeats=2).importances.shape == (3, 2)
    if is_classifier(model):
        classes = list(range(DEFAULTS[name].n_classes))
        calibrated = CalibratedClassifierCV(model, cv=2).fit(X, y)
        assert calibrated.predict_proba(X).shape == (len(y), len(classes))
        weights = [None, {0: 1.0, 1: 3.0}]
        grid = GridSearchCV(
            clone(model).set_params(classes=classes), {"class_weight": weights}, cv=2
        )
        assert np.isfinite(grid.fit(X, y).cv_results_["mean_test_score"]).all()
    plt = pytest.importorskip("matplotlib.pyplot")
    target = {"target": 0} if DEFAULTS[name].n_classes > 2 else {}
    PartialDependenceDisplay.from_estimator(model, X, [0], **target)
    plt.close("all")
