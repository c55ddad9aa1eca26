"""Totals of several fits, replayed: how far all that neighbours release is apart, in noise scales.

A model takes one gradient step from zero, so that what it releases before noise is a function of
its rows alone. Of fits with independent noise the squares of the distances add up to that of mu.
"""

import contextlib
import hashlib
import itertools
import json
import math
import sqlite3
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import model_selection as ms
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
)
from sklearn.pipeline import make_pipeline

import skdpadmm as dp
from skdpadmm import _search_cost, privacy_report
from skdpadmm.algorithms import FederatedADMM, GradientDescent
from skdpadmm.ledger import LedgerEntry, LedgerError, PrivacyLedger
from skdpadmm.model_selection import search_cost
from skdpadmm.preprocessing import BoundedScaler
from skdpadmm.privacy import (
    GaussianDP,
    Observer,
    PoissonSubsampledGaussian,
    PrivacyReport,
    compose,
    gaussian_mu,
)
from skdpadmm.protocol import Gate

rng = np.random.default_rng(0)
N = 100
X = rng.uniform(-1, 1, (N, 2))
Y = (X[:, 0] > 0).astype(int)
T = np.clip(X.sum(axis=1), -1, 1)
DELTA = 1e-5
ONE_STEP = {"algorithm": GradientDescent(), "max_iter": 1, "conditioning": None}
KNOWN = {**ONE_STEP, "feature_bounds": (-1, 1), "fit_intercept": False, "delta": DELTA}
CLASSIFIER = dp.DPAdmmLogisticRegression(classes=[0, 1], **KNOWN)
PERSONS = dp.DPAdmmRidge(target_bounds=(-1, 1), max_rows_per_person=5, **KNOWN)


@pytest.fixture
def released(monkeypatch):
    """What all fits release before noise is added, in units of its noise."""
    values, release = [], Gate.release

    def noted(self, name, value, *more):
        (planned,) = (each for each in self._plan.releases if each.name == name)
        values.append(np.ravel(value) / planned.noise_std)
        return release(self, name, value, *more)

    monkeypatch.setattr(Gate, "release", noted)

    def of(fits):
        values.clear()
        for model, *data, facts in fits:
            clone(model).fit(*data, **facts)
        return np.concatenate(values)

    return of


def in_folds(model, folds, X, y, persons=None):
    """Fits of the training rows of each fold; which persons they are."""
    ids = {} if persons is None else {"persons": persons}
    for train, _ in folds.split(X, y, persons):
        yield model, X[train], y[train], {name: label[train] for name, label in ids.items()}


def persons_and_their_neighbours():
    """Rows of 30 persons with three rows each, and of one of them with fewer or with more."""
    ids, rng = np.repeat(np.arange(30), 3), np.random.default_rng(1)
    rows, targets = rng.uniform(-1, 1, (len(ids), 2)), rng.uniform(-1, 1, len(ids))
    yield from (
        ((rows, targets, ids), (rows[kept], targets[kept], ids[kept]))
        for kept in (np.arange(len(ids)) != 0, np.sort(np.append(np.arange(len(ids)), [45, 46])))
    )


def excess(released, folds):
    """The largest distance of persons over what the fits of all folds claim together."""
    mu = gaussian_mu(1.0, DELTA) * math.sqrt(folds.get_n_splits())
    return max(
        np.linalg.norm(
            released(in_folds(PERSONS, folds, *one)) - released(in_folds(PERSONS, folds, *other))
        )
        / mu
        for one, other in persons_and_their_neighbours()
    )


def test_folds_by_a_list_of_persons_keep_the_guarantee_of_each_fit(released):
    assert excess(released, GroupKFold(5, shuffle=True, random_state=0)) <= 1 + 1e-9


def test_folds_by_how_many_rows_persons_have_break_it_and_reports_say_so(released):
    assert excess(released, GroupKFold(5)) > 1.5
    ids = np.arange(len(X)) % 20
    report = clone(PERSONS).fit(X, T, persons=ids).privacy_
    assert any("GroupKFold without shuffle=True" in line for line in report.assumptions)
    model = clone(PERSONS).set_params(ledger="study.db")
    search = GridSearchCV(model, {"alpha": [1.0]}, cv=KFold(5, shuffle=True, random_state=0))
    with pytest.raises(ValueError, match="they are split by a public list"):
        PrivacyLedger("study.db").check(search, X, T)


def worst_label(released, folds):
    """The largest distance over one changed label, over what all folds claim together."""
    mu, farthest = gaussian_mu(1.0, DELTA) * math.sqrt(folds.get_n_splits()), 0.0
    before = released(in_folds(CLASSIFIER, folds, X, Y))
    for i in range(0, N, 5):
        labels = np.where(np.arange(N) == i, 1 - Y, Y)
        after = released(in_folds(CLASSIFIER, folds, X, labels))
        farthest = max(farthest, np.linalg.norm(before - after) / mu)
    return farthest


def test_folds_by_positions_keep_the_sum_and_stratified_ones_break_it(released, tmp_path):
    path = str(tmp_path / "study.db")
    positions = KFold(5, shuffle=True, random_state=0)
    stratified = StratifiedKFold(5, shuffle=True, random_state=0)
    assert worst_label(released, positions) <= 1 + 1e-9
    assert worst_label(released, stratified) > 1.1
    # Every total that somebody sees says what it rests on; where folds are seen they are refused.
    model = clone(CLASSIFIER).set_params(ledger=path)
    refused, search = (GridSearchCV(model, {"C": [1.0]}, cv=cv) for cv in (stratified, positions))
    for ask in (PrivacyLedger(path).check, lambda s, *_: search_cost(s.fit(X, Y), n_samples=N)):
        with pytest.raises(ValueError, match="no stratified splits"):
            ask(refused, X, Y)
    cost = search_cost(search.fit(X, Y), n_samples=N)
    total = privacy_report([search.best_estimator_])
    ledger = PrivacyLedger(path)
    shown = [cost, total, *(page.to_markdown() for page in (cost, total)), ledger.summary()]
    shown += [*(page._repr_html_() for page in (cost, total, ledger)), json.dumps(total.to_dict())]
    assert all("no stratified splits" in str(each) for each in shown)


def splitters():
    """Every splitter of scikit-learn, as its default or with what it needs."""
    own = {"LeavePOut": (2,), "LeavePGroupsOut": (1,), "PredefinedSplit": (np.arange(N) % 3,)}
    for name, kind in vars(ms).items():
        if isinstance(kind, type) and hasattr(kind, "split") and not name.startswith("Base"):
            yield kind(*own.get(name, ()))


def rows_of(folds, y, groups):
    """Rows that train in the first folds."""
    with warnings.catch_warnings(action="ignore"):  # of groups that are not used
        return [train.tolist() for train, _ in itertools.islice(folds.split(X, y, groups), 5)]


def test_every_split_that_is_counted_goes_by_positions():
    """Of all that scikit-learn has: no label and no group of a row moves another row."""
    counted, moving = set(), set()
    for folds in splitters():
        if hasattr(folds, "random_state"):
            folds.random_state = 0 if getattr(folds, "shuffle", True) else None
        name, groups = type(folds).__name__, np.arange(N) // 5
        for i in range(0, N, 7):
            labels = np.where(np.arange(N) == i, 1 - Y, Y)
            others = np.where(np.arange(N) == i, 0, groups)
            if rows_of(folds, Y, groups) != rows_of(folds, labels, others):
                moving.add(name)
        try:
            _search_cost.sizes_of_folds(GridSearchCV(CLASSIFIER, {}, cv=folds), N, [{}])
            counted.add(name)
        except ValueError:  # refused
            continue
        except TypeError:  # counted by its type, and asks for labels
            counted.add(name)
    assert {"KFold", "ShuffleSplit", "PredefinedSplit"} <= counted
    assert {"StratifiedKFold", "StratifiedShuffleSplit", "GroupKFold"} <= moving
    assert not counted & moving


@pytest.mark.parametrize("cv", [10, 5, None])
def test_the_default_folds_of_a_classifier_have_no_total(cv, released, tmp_path):
    """They are stratified, which whoever has the search can see."""
    path = str(tmp_path / "study.db")
    assert worst_label(released, StratifiedKFold(cv or 5)) > 1.05
    for model in (CLASSIFIER, make_pipeline(BoundedScaler(), CLASSIFIER)):
        search = GridSearchCV(model, {}, cv=cv)
        for ask in (
            lambda: search_cost(search, n_samples=N, n_features=2, n_classes=2),  # noqa: B023
            lambda: PrivacyLedger(path).check(search, X, Y),  # noqa: B023
            lambda: search_cost(search.fit(X, Y), n_samples=N),  # noqa: B023
        ):
            with pytest.raises(ValueError, match="which is StratifiedKFold, expected folds by pos"):
                ask()
        assert privacy_report(search).total is None
        assert privacy_report([search, search.best_estimator_]).total is None


def test_one_split_by_labels_breaks_the_guarantee_of_a_single_fit_and_its_report_says_so(released):
    half = {"n_splits": 1, "test_size": 0.5, "random_state": 0}
    assert worst_label(released, ShuffleSplit(**half)) <= 1 + 1e-9
    assert worst_label(released, StratifiedShuffleSplit(**half)) > 1.5
    report = clone(CLASSIFIER).fit(X, Y).privacy_
    assert any("no stratified splits" in line for line in report.assumptions)


# Who is told apart, and by whom.


def federated(adversary, **more):
    known = {"target_bounds": (-1, 1), "max_iter": 2, "feature_bounds": (-1, 1), "delta": DELTA}
    # Without noise that agents share the server learns far more of sums than others do.
    algorithm = FederatedADMM(edge_noise=0)
    return dp.DPFedRidge(adversary=adversary, algorithm=algorithm, **known | more)


def test_a_total_against_an_observer_counts_all_that_it_sees_of_every_fit(tmp_path):
    path = str(tmp_path / "study.db")
    owners = np.arange(N) % 4
    models = [federated(name, ledger=path).fit(X, T, agents=owners) for name in ("server", "model")]
    guarantees = {
        name: compose(*(model.privacy_.guarantee(name) for model in models))
        for name in ("server", "model")
    }
    ledger, report = PrivacyLedger(path), privacy_report(models)
    assert dict(report.totals) == guarantees
    # The server learns more of the second fit than the model does, whose budget it is.
    assert ledger.guarantee() == report.guarantee() == guarantees["server"]
    assert guarantees["server"].mu > 1.5 * gaussian_mu(1.0, DELTA) * math.sqrt(2)
    for name in guarantees:
        assert ledger.guarantee(observer=name) == guarantees[name]
        assert f"total against {name}: epsilon=" in ledger.summary(DELTA)
        assert f"Total against {name}: (" in repr(report)
    # A limit is kept against both.
    with pytest.warns(UserWarning, match="below what was spent already"):
        ledger.limit(guarantees["model"].epsilon(DELTA) * 1.01, DELTA)


def test_guarantees_of_hospitals_and_of_cities_do_not_add_up(tmp_path):
    path = str(tmp_path / "study.db")
    hospitals, cities = np.arange(N) % 10, np.arange(N) // 10
    model = federated("server", privacy_unit="agent", ledger=path)
    first, second = (clone(model).fit(X, T, agents=who) for who in (hospitals, cities + 100))
    for ask in (PrivacyLedger(path).guarantee, privacy_report([first, second]).guarantee):
        with pytest.raises(ValueError, match="agents that are not known to be the same"):
            ask()
    # Numbers without a name are not known to be the same; one name and the same labels are.
    assert privacy_report([first, clone(model).fit(X, T, agents=hospitals)]).total is None
    some = [pd.Series(hospitals[rows], name="hospital") for rows in (slice(0, N // 2), slice(0, N))]
    named = [clone(model).fit(X[: len(who)], T[: len(who)], agents=who) for who in some]
    assert privacy_report(named).total is not None
    other = clone(model).fit(X, T, agents=pd.Series(hospitals + 1, name="hospital"))
    assert privacy_report([named[0], other]).total is None
    table = np.column_stack([X, hospitals])
    for column in (2, "hospital"):
        frame = pd.DataFrame(table, columns=["a", "b", "hospital"])
        one = clone(model).set_params(agent_column=column).fit(frame, T)
        is_same = column == "hospital"
        assert (privacy_report([one, named[0]]).total is not None) == is_same
    # So are those of one search, which have one column.
    frame = pd.DataFrame(np.column_stack([X, hospitals]), columns=["a", "b", "hospital"])
    searched = clone(model).set_params(agent_column="hospital")
    search = GridSearchCV(searched, {"alpha": [1.0]}, cv=KFold(2), refit=False)
    cost = PrivacyLedger(path).check(search, frame, T, n_features=2, agent_sizes=[5] * 10)
    assert cost.mu == pytest.approx(first.privacy_.guarantee().mu * math.sqrt(2))
    # As records all of them add up.
    records = PrivacyLedger(path).guarantee(unit="record", neighboring="replace_one")
    assert records.mu == pytest.approx(first.privacy_.guarantee().mu * math.sqrt(8))
    # A limit on agents counts the fits of a search with those that are stored.
    own = PrivacyLedger(f"{path}2")
    own.limit(9.0, DELTA)
    named = clone(searched).set_params(ledger=own.path).fit(frame, T)
    search = GridSearchCV(named, {"alpha": [1.0]}, cv=KFold(2), refit=False)
    assert own.check(search, frame, T, n_features=2, agent_sizes=[5] * 10) == cost
    with pytest.raises(ValueError, match="not known to be the same"):
        own.check(search, frame + 1, T, n_features=2, agent_sizes=[5] * 10)


def test_agents_that_are_made_up_are_others_in_every_fit():
    model = federated("server", privacy_unit="agent", n_agents=4)
    fits = [clone(model).fit(X, T) for _ in range(2)]
    assert privacy_report(fits[0]).total is not None
    assert "made up" in privacy_report(fits).reasons[0]
    search = GridSearchCV(model, {"alpha": [1.0]}, cv=KFold(2)).fit(X, T)
    with pytest.raises(ValueError, match="made up"):
        search_cost(search, n_samples=N)


def test_persons_of_two_fits_are_told_apart_by_their_ids(tmp_path):
    path, ids = str(tmp_path / "study.db"), np.arange(N) % 20 * 3
    model = clone(PERSONS).set_params(ledger=path)
    patients = [clone(model).fit(X, T, persons=ids) for _ in range(2)]
    assert PrivacyLedger(path).guarantee().mu == pytest.approx(gaussian_mu(1.0, DELTA) * 2**0.5)
    doctors = clone(model).fit(X, T, persons=ids + 7)
    assert privacy_report(patients).total is not None
    assert privacy_report([*patients, doctors]).total is None


def test_a_guarantee_under_one_relation_is_not_taken_for_one_under_another(tmp_path):
    sampled = PoissonSubsampledGaussian(0.1, 10.0, 20, "zero_out")
    both = compose(sampled, GaussianDP(0.1))
    for guarantee in (sampled, both, compose(both, sampled)):
        with pytest.raises(ValueError, match="expected the same relation"):
            Observer("model", "", "record", "replace_one", guarantee)
        seen = Observer("model", "", "record", "zero_out", guarantee)
        entry = LedgerEntry("Lasso", "0" * 64, 1e-6, (seen,))
        assert PrivacyReport("Lasso", (seen,), (), 1e-6, (), (), "").guarantee() == guarantee
        # A file that says otherwise is not read, though its digest may be right.
        ledger = PrivacyLedger(tmp_path / "study.db")
        ledger.reserve(entry)
        with contextlib.closing(sqlite3.connect(ledger.path)) as connection:
            ((line,),) = (
                json.loads(*connection.execute("SELECT observers FROM costs").fetchone()),
            )
            line[2] = "replace_one"
            text = json.dumps([line])
            cost = hashlib.sha256(text.encode()).hexdigest()
            connection.execute("UPDATE costs SET observers = ?, cost = ?", [text, cost])
            connection.execute("UPDATE entries SET cost = ?", [cost])
            connection.commit()
        with pytest.raises(LedgerError, match="expected the same relation"):
            ledger.total(1e-6)
        (tmp_path / "study.db").unlink()
