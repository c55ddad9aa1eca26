"""Persons with several rows: what a fit minimises, does not depend on, and refuses."""

import math

import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold

import skdpadmm as dp
from skdpadmm.algorithms import ConsensusADMM, GradientADMM, GradientDescent
from skdpadmm.audit import audit
from skdpadmm.ledger import PrivacyLedger
from skdpadmm.model_selection import DPGridSearchCV
from skdpadmm.privacy import GaussianDP, gaussian_mu

rng = np.random.default_rng(0)
IDS = rng.permutation(np.repeat(np.arange(30), rng.integers(1, 8, 30)))
X = rng.uniform(-1, 1, (len(IDS), 3))
SCORES = X @ [1.0, -2.0, 0.5] + 0.5 * rng.standard_normal(len(IDS))
KNOWN = {"feature_bounds": (-1, 1), "random_state": 0, "max_iter": 10}
LOGISTIC = LogisticRegression(C=0.7, solver="newton-cg", tol=1e-12, max_iter=1000)


def is_used(most):
    """The first rows of each person."""
    return np.array([np.sum(IDS[:i] == person) < most for i, person in enumerate(IDS)])


@pytest.mark.parametrize("most", [3, 50])
@pytest.mark.parametrize(
    ("model", "theirs", "y"),
    [
        (dp.DPAdmmRidge(alpha=2.0), Ridge(alpha=2.0), SCORES),
        (dp.DPAdmmLasso(alpha=0.1), Lasso(alpha=0.1, tol=1e-14), SCORES),
        (dp.DPAdmmLogisticRegression(C=0.7), LOGISTIC, np.digitize(SCORES, [0])),
        (dp.DPAdmmLogisticRegression(C=0.7), LOGISTIC, np.digitize(SCORES, [-1, 1])),
    ],
)
@pytest.mark.parametrize("of", [np.asarray, sparse.csr_array])
def test_without_privacy_it_is_scikit_learn_with_equal_weights_of_persons(
    model, theirs, y, most, of
):
    model.set_params(epsilon=math.inf, max_rows_per_person=most).fit(of(X), y, persons=IDS)
    used = is_used(most)
    theirs.fit(X[used], y[used], sample_weight=1 / np.bincount(IDS[used])[IDS[used]])
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-6)


@pytest.mark.parametrize("algorithm", ["consensus-admm", "gradient-descent"])
def test_surplus_rows_and_the_order_of_persons_change_no_bit(algorithm):
    model = dp.DPAdmmRidge(max_rows_per_person=3, algorithm=algorithm, **KNOWN)
    coef = model.fit(X, SCORES, persons=IDS).coef_
    used, by_person = is_used(3), np.argsort(IDS, kind="stable")
    for rows in (used, by_person):
        np.testing.assert_array_equal(
            model.fit(X[rows], SCORES[rows], persons=IDS[rows]).coef_, coef
        )
    others = np.where(used, SCORES, 7.0)
    np.testing.assert_array_equal(model.fit(X, others, persons=IDS).coef_, coef)


def test_nothing_that_is_kept_tells_how_many_rows_there_are():
    model = dp.DPAdmmRidge(max_rows_per_person=3, **KNOWN).fit(X, SCORES, persons=IDS)
    assert [o.unit for o in model.privacy_.observers] == ["person"]
    text = repr(model.privacy_)
    assert "n_persons=30, max_rows_per_person=3" in text
    assert str(len(IDS)) not in text
    assert "a person with several rows" not in text
    assert model.privacy_.agent_labels == ()
    plans = [model.plan(n, 3, n_persons=30) for n in (None, 30, 1000)]
    assert len({plan.digest() for plan in plans}) == 1
    with pytest.warns(UserWarning, match="delta=0.1 for n_persons=30, .* one person in full"):
        model.set_params(delta=0.1).plan(len(IDS), 3, n_persons=30)


@pytest.mark.parametrize(
    ("params", "persons", "message"),
    [
        (
            {"max_rows_per_person": None},
            IDS,
            "max_rows_per_person=None with persons, expected both",
        ),
        ({}, None, "max_rows_per_person=3 without persons, expected both"),
        ({"max_rows_per_person": 0}, IDS, "max_rows_per_person"),
        ({}, IDS[1:], "persons of shape"),
        ({}, [None, *IDS[1:]], "persons with a missing label"),
        ({}, np.where(IDS == 1, np.nan, IDS), "persons with a missing label"),
        ({"algorithm": "averaged-admm"}, IDS, "expected one of .'consensus-admm', 'gradient-desc"),
        ({"algorithm": GradientADMM()}, IDS, "algorithm object that protects persons"),
        ({"algorithm": GradientADMM(schedule="stream")}, IDS, "for a stream, expected neither"),
        ({"algorithm": GradientADMM(schedule="stream")}, None, "for a stream, expected neither"),
        ({"algorithm": GradientDescent(guarantee="last")}, IDS, "last iterate for persons"),
        ({"algorithm": ConsensusADMM(record_step="exact")}, IDS, "'exact' with persons"),
    ],
)
def test_what_persons_cannot_have_is_refused_before_data(params, persons, message):
    model = dp.DPAdmmRidge(**{"max_rows_per_person": 3, **KNOWN, **params})
    with pytest.raises(ValueError, match=message):
        model.fit(X, SCORES, persons=persons)
    assert not hasattr(model, "privacy_")


def test_pieces_of_streams_plans_audits_and_private_searches_refuse_persons():
    model = dp.DPAdmmRidge(max_rows_per_person=3, **KNOWN)
    with pytest.raises(ValueError, match=r"without persons.* n_persons"):
        model.plan(100, 3)
    with pytest.raises(ValueError, match="expected None: neighbours of audits"):
        audit(model)
    model.set_params(target_bounds=(-4, 4))
    search = DPGridSearchCV(model, {"alpha": [1.0, 2.0]}, epsilon=1.0)
    with pytest.raises(TypeError, match="Got persons in DPGridSearchCV"):
        search.fit(X, SCORES, persons=IDS)
    with pytest.raises(ValueError, match="a search protects one row"):
        search.fit(X, SCORES)
    stream = model.set_params(algorithm=GradientADMM(schedule="stream"))
    with pytest.raises(ValueError, match="for a stream"):
        stream.partial_fit(X, SCORES)


def test_a_ledger_adds_persons_to_records_only_as_records(tmp_path):
    path = str(tmp_path / "study.db")
    known = {**KNOWN, "random_state": None, "ledger": path}
    dp.DPAdmmRidge(max_rows_per_person=3, **known).fit(X, SCORES, persons=IDS)
    same = {"delta": 1e-5, "neighboring": "replace_one", "kind": "fixed"}
    total = PrivacyLedger(path).total(unit="person", **same)
    assert total == pytest.approx(1.0, rel=1e-6)
    dp.DPAdmmRidge(**known).fit(X, SCORES)
    for asked in ({}, {"unit": "person", "neighboring": "replace_one"}):
        with pytest.raises(ValueError, match=r"person.*, replace one"):
            PrivacyLedger(path).total(delta=1e-5, **asked, kind="fixed")
    both = PrivacyLedger(path).total(unit="record", **same)
    assert both == pytest.approx(
        GaussianDP(2**0.5 * gaussian_mu(1.0, 1e-5)).epsilon(1e-5), rel=1e-6
    )


def test_persons_are_routed_through_a_search():
    with config_context(enable_metadata_routing=True):
        model = dp.DPAdmmRidge(max_rows_per_person=3, **KNOWN).set_fit_request(persons=True)
        search = GridSearchCV(
            model, {"alpha": [0.1, 1.0]}, cv=GroupKFold(3, shuffle=True, random_state=0)
        )
        search.fit(X, SCORES, persons=IDS, groups=IDS)
    assert search.best_estimator_.privacy_.observers[0].unit == "person"
