"""What a fitted object of any kind has learnt, and what all of it costs together."""

import json
import math
import pickle
import re
import subprocess
import sys
from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.sparse import issparse
from sklearn import config_context, ensemble, multiclass, multioutput
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import FeatureAgglomeration
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.decomposition import NMF, PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils import all_estimators

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge, DPFedRidge, privacy_report
from skdpadmm._pipelines import parts_of
from skdpadmm.algorithms import GradientDescent
from skdpadmm.inspection import FittedReport
from skdpadmm.model_selection import DPGridSearchCV
from skdpadmm.preprocessing import BoundedScaler
from skdpadmm.privacy import compose

SKLEARN = tuple(map(int, sklearn.__version__.split(".")[:2]))
X = np.random.default_rng(0).uniform(-1, 1, size=(120, 2))
T, Y = X.sum(axis=1), (X[:, 0] > 0).astype(int)
SHORT = {"feature_bounds": (-1, 1), "max_iter": 2, "delta": 1e-3, "conditioning": None}
C = DPAdmmLogisticRegression(classes=[0, 1], **SHORT)
R = DPAdmmRidge(target_bounds=(-2, 2), **SHORT)
PAIR = [("a", C), ("b", clone(C))]
BY_ROW = FeatureUnion([("all", BoundedScaler()), ("same", FunctionTransformer())])


class Centred(TransformerMixin, BaseEstimator):
    """A step of somebody who does not know how scikit-learn tells that something is fitted."""

    def fit(self, X, y=None):
        self.mean = X.mean(axis=0)
        return self

    def transform(self, X):
        return X - self.mean


LEARNS = make_pipeline(Centred(), C)


class ByAllRows(TransformerMixin, BaseEstimator):
    """It keeps nothing, and does not treat each row by itself."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X - X.mean(axis=0)


BAG = {"n_estimators": 2, "random_state": 0}


class UnderAnUnderscore(TransformerMixin, BaseEstimator):
    """It looks unfitted, whatever it has learnt."""

    def fit(self, X, y=None):
        self._mean = X.mean(axis=0)
        return self

    def transform(self, X):
        return X - self._mean

    def inverse_transform(self, X):
        return X + self._mean


class FitsAndTransforms(UnderAnUnderscore):
    """A pipeline runs it, although it has no method fit."""

    fit = property()

    def fit_transform(self, X, y=None):
        return X - X.mean(axis=0)

    def __sklearn_is_fitted__(self):
        return False


class Scaled(DPAdmmLogisticRegression):
    """A subclass that learns something before it fits."""

    def fit(self, X, y, persons=None):
        return super().fit(X / np.abs(X).max(axis=0), y, persons=persons)


class PassesOn(ClassifierMixin, BaseEstimator):
    """A wrapper that shows the report of what is in it."""

    def __init__(self, model=None):
        self.model = model

    def fit(self, X, y):
        self._mean = X.mean(axis=0)
        self.model_ = clone(self.model).fit(X - self._mean, y)
        self.classes_ = self.model_.classes_
        return self

    @property
    def privacy_(self):
        return self.model_.privacy_

    def predict(self, X):
        return self.model_.predict(X - self._mean)


class Alone(RegressorMixin, BaseEstimator):
    """A regressor without a report, which looks unfitted."""

    def fit(self, X, y):
        self._mean = y.mean()
        return self

    def predict(self, X):
        return np.full(len(X), self._mean)


def of_columns(step, columns, **parameters):
    return ColumnTransformer([("in", step, columns)], **{"sparse_threshold": 0} | parameters)


@pytest.mark.parametrize(
    ("model", "n_fits", "reason"),
    [
        (C, 1, ""),
        (make_pipeline(BY_ROW, C), 1, ""),
        (make_pipeline(of_columns(BoundedScaler(), [0]), C), 1, ""),
        (ensemble.VotingClassifier([*PAIR, ("c", make_pipeline(BoundedScaler(), C))]), 3, ""),
        (multiclass.OneVsRestClassifier(C), 1, ""),
        (multioutput.MultiOutputRegressor(R), 2, ""),
        (multioutput.RegressorChain(R), 2, ""),
        (TransformedTargetRegressor(R), 1, ""),
        (DPGridSearchCV(C, {"C": [1.0]}, cv=0.5, delta=1e-3, epsilon=5.0), 1, ""),
        (make_pipeline(StandardScaler(), C), 1, "StandardScaler at steps\\[0\\] learnt"),
        (make_pipeline(of_columns(OneHotEncoder(handle_unknown="ignore"), [0]), C), 1,
         "OneHotEncoder at steps\\[0\\].transformers_\\[0\\] learnt"),
        (make_pipeline(of_columns("passthrough", lambda X: [0]), C), 1, "columns by names"),
        (make_pipeline(of_columns(BoundedScaler(), [0], sparse_threshold=0.3), C), 1,
         "sparse_threshold=0"),
        (LEARNS, 1, "Centred at steps\\[0\\] is not of"),
        (make_pipeline(UnderAnUnderscore(), C), 1, "steps\\[0\\] is not of this package"),
        (make_pipeline(FitsAndTransforms(), C), 1, "steps\\[0\\] is not of this package"),
        (make_pipeline(FeatureUnion([("in", FitsAndTransforms())]), C), 1, "may have learnt from"),
        (make_pipeline(of_columns(FitsAndTransforms(), [0]), C), 1, "may have learnt from"),
        (TransformedTargetRegressor(R, transformer=UnderAnUnderscore()), 1,
         "UnderAnUnderscore at transformer_ is not of"),
        (ensemble.VotingRegressor([("a", R), ("b", Alone())]), 1, "Alone at estimators_\\[1"),
        (Scaled(classes=[0, 1], **SHORT), 1, "Scaled is no class of this package itself"),
        (ensemble.VotingClassifier([("a", C), ("b", PassesOn(C))]), 3, "PassesOn .*no class of"),
        (make_pipeline(type("BoundedScaler", (BoundedScaler,), {})(), C), 1, "may have learnt"),
        (make_pipeline(OneHotEncoder(categories=[[0.5]] * 2, handle_unknown="ignore"), C), 1,
         "OneHotEncoder at steps\\[0\\] learnt"),
        (make_pipeline(of_columns(Centred(), [0]), C), 1, "Centred .* learnt"),
        (make_pipeline(ByAllRows(), C), 1, "ByAllRows at steps\\[0\\] is not of"),
        (make_pipeline(FunctionTransformer(np.square), C), 1, "all rows without func=None, or a f"),
        (make_pipeline(FeatureUnion([("p", PCA(1))]), C), 1, "PCA .*without noise"),
        (make_pipeline(SelectFromModel(C), clone(C)), 2, "SelectFromModel .*sum of its parts"),
        (TransformedTargetRegressor(R, transformer=StandardScaler()), 1, "transformer_ learnt"),
        (ensemble.StackingClassifier(PAIR, C), 3, "keep its fits of folds"),
        (ensemble.StackingClassifier(PAIR, cv=2), 2, "final_estimator_ learnt"),
        (CalibratedClassifierCV(C, cv=2), 2, "calibrators\\[0\\] learnt"),
        (GridSearchCV(C, {"C": [1.0]}, cv=KFold(2)), 1, "search_cost\\(search"),
        (multioutput.RegressorChain(R, cv=2), 2, "keep its fits of folds"),
        (multiclass.OneVsOneClassifier(C), 1, "sum of its parts"),
        (ensemble.BaggingClassifier(C, **BAG), 2, "repeats rows"),
        (ensemble.BaggingClassifier(C, bootstrap=False, **BAG), 2, "with a seed"),
        (LogisticRegression(), 0, "there is no private fit"),
        (ensemble.VotingRegressor([("a", R), ("b", clone(R).set_params(neighboring="zero_out"))]),
         2, "kinds of neighbours"),
    ],
)  # fmt: skip
def test_a_fitted_object_shows_all_that_learnt_and_has_a_total_or_a_reason(model, n_fits, reason):
    is_multiple = isinstance(model, multioutput.MultiOutputRegressor | multioutput.RegressorChain)
    is_regression = isinstance(model, TransformedTargetRegressor | ensemble.VotingRegressor)
    y = np.column_stack([T, -T]) if is_multiple else T if is_regression else Y
    report = privacy_report(clone(model).fit(X, y))
    fits = [part for part in report.parts if part.report is not None]
    assert len(fits) == n_fits
    assert json.loads(json.dumps(report.to_dict()))["reasons"] == list(report.reasons)
    assert repr(report).count("\n- ") == len(report.reasons)
    card = report.to_markdown()
    assert card.startswith(f"## Privacy\n\nOf {report.subject}.\n\n| place |")
    assert card.count("\n- ") == len(report.reasons)
    if not reason:
        assert report.guarantee() == compose(*(part.report.guarantee() for part in fits))
        assert f"Total: ({report.epsilon():.4g}"[:12] in repr(report)
        return
    assert any(re.search(reason, line) for line in report.reasons), report.reasons
    # Each says what to do.
    assert all(". " in line for line in report.reasons), report.reasons
    with pytest.raises(ValueError, match="without a guarantee"):
        report.epsilon()


def test_frozen_parts_are_fitted_elsewhere_and_private_ones_still_count():
    scaler, inner = StandardScaler().fit(X), clone(R).fit(X, T)
    pipeline = make_pipeline(FrozenEstimator(scaler), clone(R)).fit(X, T)
    report = privacy_report([pipeline, FrozenEstimator(inner), inner, pipeline])
    assert report.guarantee() == compose(inner.privacy_.guarantee(), inner.privacy_.guarantee())
    assert [part.is_elsewhere for part in report.parts] == [True, False, True]
    assert "are assumed to be of public rows" in repr(report)
    assert "fitted elsewhere" in report._repr_html_()


def fitted(model, y=Y):
    return clone(model).fit(X, y)


@pytest.mark.parametrize(
    ("inside", "reason"),
    [
        (GridSearchCV(C, {"C": [1.0]}, cv=KFold(2)), "did not keep its fits"),
        (FrozenEstimator(fitted(GridSearchCV(C, {"C": [1.0]}, cv=KFold(2)))), "did not keep"),
        (ensemble.StackingClassifier(PAIR, C), "did not keep"),
        (ensemble.VotingClassifier([("a", GridSearchCV(C, {"C": [1.0]}, cv=KFold(2)))]), "keep"),
        (ensemble.BaggingClassifier(C, **BAG), "repeats rows"),
        (multiclass.OneVsOneClassifier(C), "sum of its parts"),
        (SelectFromModel(C), "sum of its parts"),
        (make_pipeline(StandardScaler(), C), "StandardScaler"),
        (make_pipeline(FunctionTransformer(np.square)), "func=None"),
        (FrozenEstimator(NMF(1, init="random").fit(X**2)), "NMF"),
        (FeatureAgglomeration(1, pooling_func=np.mean), "FeatureAgglomeration"),
        (OneHotEncoder(handle_unknown="ignore"), "OneHotEncoder"),
    ],
)
def test_what_is_frozen_keeps_its_reasons_but_a_step_that_treats_each_row_by_itself(inside, reason):
    inside = inside if isinstance(inside, FrozenEstimator) else clone(inside).fit(X, Y)
    frozen = FrozenEstimator(inside)
    report = privacy_report([frozen, fitted(C)])
    assert report.total is None
    assert reason in "".join(report.reasons)


@pytest.mark.filterwarnings("ignore")
def test_every_frozen_step_that_is_accepted_treats_each_row_by_itself():
    rng, mixing, n_tested = np.random.default_rng(0), set(), 0
    public, rows = (rng.uniform(0.1, 1.0, size=(n, 6)) for n in (80, 41))
    changed, others = rows.copy(), np.arange(41) != 7
    changed[7] = [50.0, 0.0, 3.0, 0.0, 1e3, 2.0]
    for name, kind in all_estimators("transformer"):
        try:
            frozen = FrozenEstimator(kind().fit(public, public[:, 0] > 0.5))
            before, after = (frozen.transform(part) for part in (rows, changed))
        except (AttributeError, TypeError, ValueError):  # not of such rows
            continue
        before, after = (p.toarray() if issparse(p) else np.asarray(p) for p in (before, after))
        is_equal = np.array_equal(before[others], after[others])
        is_accepted = not any(part.problem and not part.is_elsewhere for part in parts_of(frozen))
        n_tested += is_accepted
        if not is_equal:
            mixing.add(name)
            assert not is_accepted, name
    assert n_tested > 40
    assert "MiniBatchNMF" in mixing


class Shelf(Mapping):
    """Models that are loaded anew each time."""

    def __init__(self, models):
        self.models = {name: pickle.dumps(model) for name, model in models.items()}

    def __getitem__(self, name):
        return pickle.loads(self.models[name])

    def __iter__(self):
        return iter(self.models)

    def __len__(self):
        return len(self.models)


def test_models_that_are_loaded_one_by_one_all_count():
    models = {str(i): fitted(R, T) for i in range(40)}
    assert privacy_report(Shelf(models)).guarantee() == privacy_report(models).guarantee()
    assert privacy_report(Shelf(models)).parts[7].place == "['7']"


def test_the_delta_of_a_total_is_the_largest_of_the_fits():
    models = [fitted(clone(R).set_params(delta=delta), T) for delta in (1e-3, 1e-5)]
    assert privacy_report(models).delta == 1e-3


@pytest.mark.parametrize("partition", ["sorted", "dirichlet", lambda X, y: y > 0])
def test_agents_that_were_formed_by_looking_at_the_data_have_no_total(partition):
    model = DPFedRidge(target_bounds=(-2, 2), partition=partition, **SHORT)
    report = fitted(model, T).privacy_
    assert "formed by looking at the data" in report.simulation
    assert privacy_report(fitted(model, T)).total is None


class Leaks(GradientDescent):
    """It may release what it does not declare."""


def test_an_algorithm_of_others_is_named_beside_a_total():
    model = fitted(clone(R).set_params(algorithm=Leaks()), T)
    words = "Leaks is not of this package"
    assert any(words in line for line in model.privacy_.assumptions)
    assert words in repr(privacy_report(model))
    own = fitted(clone(R).set_params(algorithm=GradientDescent()), T)
    assert "not of this package" not in repr(privacy_report(own))


def test_bags_of_persons_draw_persons_or_have_no_total():
    rows = np.arange(len(X)) % 30
    with config_context(enable_metadata_routing=True):
        model = DPAdmmRidge(target_bounds=(-2, 2), max_rows_per_person=5, **SHORT)
        model.set_fit_request(persons=True)
        bag = ensemble.BaggingRegressor(
            ensemble.VotingRegressor([("a", model)]), bootstrap=False, max_samples=0.5, **BAG
        )
        report = privacy_report(bag.fit(X, T, persons=rows), include_simulated=True)
    assert "draws rows, and not persons" in "".join(report.reasons)


@pytest.mark.skipif(
    SKLEARN < (1, 8), reason="weights are those of rows that are drawn without them"
)
@pytest.mark.filterwarnings("ignore:When fitting Bagging")
def test_bags_that_draw_by_weights_have_no_total():
    bag = ensemble.BaggingRegressor(R, bootstrap=False, max_samples=0.3, **BAG)
    assert privacy_report(clone(bag).fit(X, T), include_simulated=True).total is not None
    drawn = []
    for last in (1.0, 100.0):
        weights = np.where(np.arange(len(X)) == 0, last, 1.0)
        weighed = clone(bag).fit(X, T, sample_weight=weights)
        report = privacy_report(weighed, include_simulated=True)
        assert "drew rows by sample_weight" in report.reasons[0]
        drawn.append(set(weighed.estimators_samples_[0]) - {0})
    # One weight decides which other rows a part has, and how many.
    assert len(drawn[0]) < len(drawn[1])


def test_agents_that_nobody_named_are_said_to_be_made_up():
    model, owners = DPFedRidge(target_bounds=(-2, 2), **SHORT), np.arange(len(X)) % 4
    assert "none of them is real" in repr(privacy_report(make_pipeline(model).fit(X, T)))
    assert "none of them is real" not in repr(privacy_report(model.fit(X, T, agents=owners)))


def test_seeds_columns_and_what_is_no_fitted_estimator():
    seeded = clone(R).set_params(random_state=0).fit(X, T)
    assert privacy_report(seeded).total is None
    assert privacy_report(seeded, include_simulated=True).epsilon() == seeded.privacy_.epsilon()
    assert privacy_report(clone(R).set_params(epsilon=np.inf).fit(X, T)).epsilon() == math.inf
    frame = pd.DataFrame(X, columns=["a", "b"])
    for columns in (["a", "b"], make_column_selector(dtype_include=float)):
        frames = of_columns("passthrough", columns)
        report = privacy_report(make_pipeline(frames, clone(R)).fit(frame, T))
        assert isinstance(report, FittedReport)
        assert ("columns by names" in "".join(report.reasons)) == callable(columns)
        assert (report.total is None) == callable(columns)
    with pytest.raises(NotFittedError):
        privacy_report(clone(R))
    for wrong in (7, DPAdmmRidge, [np.ones(2)]):
        with pytest.raises(TypeError, match="expected a fitted estimator"):
            privacy_report(wrong)


def test_the_name_at_the_top_is_imported_where_it_is_asked_for():
    code = "import sys, skdpadmm; sys.exit('skdpadmm.inspection' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
