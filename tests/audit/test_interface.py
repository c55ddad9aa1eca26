"""What an audit takes, refuses and returns."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skdpadmm._fitting as fitting
from skdpadmm import (
    DPAdmmLogisticRegression,
    DPAdmmRidge,
    DPDecentralizedRegressor,
    DPFedRidge,
    DPPersonalizedRegressor,
)
from skdpadmm.algorithms import GradientADMM
from skdpadmm.audit import AuditReport, audit
from skdpadmm.model_selection import DPGridSearchCV, DPRandomizedSearchCV
from skdpadmm.preprocessing import BoundedScaler

QUICK = {"method": "black-box", "n_runs": 40}


def test_a_report_is_frozen_and_goes_through_json_and_pickle():
    for options in ({}, QUICK, {"method": "canaries", "n_runs": 20}):
        report = audit(DPAdmmRidge(max_iter=2), random_state=0, **options)
        assert isinstance(report, AuditReport)
        with pytest.raises(dataclasses.FrozenInstanceError):
            report.delta = 0.5
        plain = json.loads(json.dumps(report.to_dict()))
        assert plain["verdict"] == report.verdict
        assert plain["guarantee"]["kind"]
        assert len(plain["lines"]) == len(report.lines)
        assert pickle.loads(pickle.dumps(report)) == report
        text = repr(report)
        assert "Audit of DPAdmmRidge by " in text
        assert "claimed against model: epsilon=1 at delta=1e-05, GDP" in text


def test_the_same_seed_gives_the_same_report_with_any_number_of_processes():
    model = DPAdmmRidge(max_iter=2)
    reports = [audit(model, **QUICK, random_state=4, n_jobs=n_jobs) for n_jobs in (1, 1, 2)]
    assert reports[0] == reports[1] == reports[2]
    assert audit(model, random_state=4) == audit(model, random_state=4)


def test_an_audit_leaves_the_estimator_as_it_was():
    model = DPAdmmRidge(max_iter=2, random_state=0, verbose=1)
    before = dict(vars(model))
    for options in ({}, QUICK, {"method": "canaries", "n_runs": 20}):
        audit(model, **options)
    assert vars(model) == before
    assert fitting._WATCHER.get() is None


ALL = [{}, QUICK, {"method": "canaries", "n_runs": 20}]
ROWS = np.random.default_rng(0).uniform(-1, 1, size=(40, 2))
TARGETS = ROWS @ [1.0, -1.0]


class Holder:
    """Something with `fit` that has its estimator in an attribute, deep in a list."""

    epsilon, delta = 1.0, 1e-5

    def __init__(self, inner):
        self.parts = [("inner", inner)]

    def fit(self, X, y):
        fitted = self.parts[0][1].fit(X, y)
        self.coef_, self.intercept_ = fitted.coef_, fitted.intercept_


class Nested(BaseEstimator):
    """A meta-estimator with one parameter."""

    epsilon, delta = 1.0, 1e-5

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y):
        fitted = clone(self.estimator).fit(X, y)
        self.coef_, self.intercept_ = fitted.coef_, fitted.intercept_
        return self


class Makes(BaseEstimator):
    """Makes its estimator by itself: no parameter holds it."""

    epsilon, delta = 1.0, 1e-5

    def __init__(self, path="study.db"):
        self.path = path
        self.inner = DPAdmmRidge(max_iter=2, ledger=str(path))

    def fit(self, X, y):
        fitted = self.inner.fit(X, y)
        self.coef_, self.intercept_ = fitted.coef_, fitted.intercept_
        return self


WRAPPERS = {
    "alone": lambda ridge: ridge,
    "pipeline": lambda ridge: make_pipeline(BoundedScaler(), ridge),
    "pipelines": lambda ridge: make_pipeline("passthrough", make_pipeline(ridge)),
    "attribute": Holder,
    "parameter": Nested,
    "two deep": lambda ridge: Nested(Nested(ridge)),
    "made": lambda ridge: Makes(ridge.ledger),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize("options", ALL, ids=["replay", "black-box", "canaries"])
def test_an_audit_is_not_counted_in_a_ledger(tmp_path, wrap, options):
    path = tmp_path / "study.db"
    ridge = DPAdmmRidge(max_iter=2, ledger=str(path), random_state=0)
    report = audit(wrap(ridge), ROWS, TARGETS, confidence=1 - 1e-9, **options)
    assert not path.exists()
    # Noise of a seed that stayed would be found by a replay.
    assert not report.is_violation
    # The user's estimator still counts.
    assert ridge.ledger == str(path)
    assert ridge.random_state == 0


def test_a_search_is_not_counted_in_a_ledger(tmp_path):
    path = tmp_path / "study.db"
    bounded = DPAdmmRidge(max_iter=2, target_bounds=(-2, 2))
    search = DPGridSearchCV(bounded, {"alpha": [1.0]}, ledger=str(path))
    ordinary = GridSearchCV(DPAdmmRidge(max_iter=2, ledger=str(path)), {"alpha": [1.0]}, cv=2)
    for model in (search, ordinary):
        with pytest.raises(ValueError, match="best_estimator_"):
            audit(model, ROWS, TARGETS)
    assert not path.exists()


def test_an_estimator_that_two_share_is_left_as_it_is(tmp_path):
    path = str(tmp_path / "study.db")
    shared = DPAdmmRidge(max_iter=2, ledger=path)

    class Shares(Makes):
        def __init__(self):
            self.inner = shared

    audit(Shares(), ROWS, TARGETS)
    assert shared.ledger == path


@pytest.mark.parametrize("options", ALL, ids=["replay", "black-box", "canaries"])
def test_pipelines_are_audited_with_the_same_seeds_as_others(options):
    pipeline = make_pipeline(BoundedScaler(), DPAdmmRidge(max_iter=3), verbose=False)
    one, two = (audit(pipeline, ROWS, TARGETS, random_state=3, **options) for _ in range(2))
    assert one == two
    assert one.subject == "Pipeline"
    assert not one.is_violation
    assert one.claimed_epsilon == pytest.approx(1.0, rel=1e-3)


def test_what_a_step_of_a_pipeline_learns_from_data_is_found():
    learns = make_pipeline(StandardScaler(), DPAdmmRidge(max_iter=5))
    # One row has the scale of all others in its hands.
    rows = np.vstack([[30.0, 30.0], ROWS])
    targets = np.r_[3.0, TARGETS + 2.0]
    assert audit(learns, rows, targets, random_state=0).is_violation
    fixed = make_pipeline(BoundedScaler(lower=-30, upper=30), DPAdmmRidge(max_iter=5))
    assert not audit(fixed, rows, targets, random_state=0).is_violation


def test_agents_of_a_pipeline_have_the_name_of_its_last_step():
    labels = np.repeat([0, 1, 2, 3], 10)
    model = make_pipeline(BoundedScaler(), DPFedRidge(max_iter=3))
    report = audit(model, ROWS, TARGETS, random_state=0, dpfedridge__agents=labels)
    assert not report.is_violation
    model = model.set_params(dpfedridge__privacy_unit="agent")
    report = audit(model, ROWS, TARGETS, random_state=0, dpfedridge__agents=labels)
    assert "agent" in report.neighbors
    assert not report.is_violation


def test_a_watcher_is_gone_after_an_error():
    with pytest.raises(ValueError, match="max_iter"):
        audit(DPAdmmRidge(max_iter=-1))
    assert fitting._WATCHER.get() is None


def test_agents_come_from_fit_params_or_are_made_up():
    labels = np.repeat(["a", "b", "c"], 4)
    for make in (DPFedRidge, DPDecentralizedRegressor, DPPersonalizedRegressor):
        for unit in ("record", "agent"):
            model = make(max_iter=2, privacy_unit=unit)
            for given in ({}, {"agents": labels}):
                report = audit(model, random_state=0, **given)
                assert not report.is_violation
                assert ("agent" in report.neighbors) == (unit == "agent")
    report = audit(DPFedRidge(max_iter=2), method="black-box", n_runs=40, observer="server")
    assert report.observer == "server"


def test_data_may_be_given():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    assert not audit(DPAdmmRidge(max_iter=3), X, y, random_state=0).is_violation
    labels = rng.integers(3, size=60)
    model = DPAdmmLogisticRegression(max_iter=3)
    for method in ("replay", "black-box", "canaries"):
        report = audit(model, X, labels, method=method, n_runs=20, random_state=0)
        assert not report.is_violation


def test_nothing_is_claimed_without_privacy():
    report = audit(DPAdmmRidge(epsilon=math.inf))
    assert not report.is_violation
    assert report.verdict == "Nothing is claimed: not private."
    assert report.to_dict()["claimed_epsilon"] == "inf"
    assert audit(DPAdmmRidge(epsilon=math.inf), **QUICK).claimed_epsilon == math.inf


def test_streams_are_audited_too():
    once, twice = (
        DPAdmmRidge(algorithm=GradientADMM(schedule="stream", horizon=4), neighboring=neighboring)
        for neighboring in ("replace_one", "zero_out")
    )
    assert not audit(once, random_state=0).is_violation
    found = [audit(model, **QUICK, random_state=0) for model in (once, twice)]
    assert not any(report.is_violation for report in found)
    # Neighbours replace a record: two steps of a promise of zero-out.
    assert found[1].claimed_epsilon > 1.5 > found[0].claimed_epsilon


def test_a_bar_counts_runs(capsys):
    audit(DPAdmmRidge(max_iter=2), verbose=1)
    audit(DPAdmmRidge(max_iter=2), **QUICK, verbose=1)
    audit(DPAdmmRidge(max_iter=2), **ALL[2], verbose=1)
    shown = capsys.readouterr().err
    assert "5/5" in shown
    assert "80/80" in shown
    assert "1/1" in shown


def test_runs_are_those_that_were_asked_for():
    for options, words in zip(
        ({"n_runs": 6}, QUICK, ALL[2]),
        ("replays: 6", "runs: 40 of", "canaries: 20 in"),
        strict=True,
    ):
        report = audit(DPAdmmRidge(max_iter=2), random_state=0, **options)
        assert report.n_runs == options["n_runs"]
        assert words in repr(report)


def test_columns_of_a_table_have_names_of_their_own():
    (header,) = (
        line for line in repr(audit(DPAdmmRidge(max_iter=2))).splitlines() if "declared" in line
    )
    names = header.split()
    assert len(set(names)) == len(names) == 7


def test_seeds_are_what_they_are_elsewhere():
    for make in (np.random.default_rng, np.random.RandomState):
        one, two = (audit(DPAdmmRidge(max_iter=2), random_state=make(5)) for _ in range(2))
        assert one == two
        rng = make(5)
        one, two = (audit(DPAdmmRidge(max_iter=2), random_state=rng) for _ in range(2))
        assert one != two


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "look"}, "method='look'"),
        ({"n_runs": 0}, "n_runs=0"),
        ({"confidence": 1.0}, "confidence=1.0"),
        ({"delta": -0.1}, "delta=-0.1"),
        ({"random_state": "a"}, "random_state='a'"),
        ({"random_state": -1}, "random_state=-1"),
        ({"n_jobs": 2}, "n_jobs=2 for method='replay'"),
        ({"n_jobs": 2, "method": "canaries"}, "n_jobs=2 for method='canaries'"),
        ({"method": "black-box", "n_runs": 3}, "at least 8"),
        ({"X": np.ones((2, 1))}, "both or none"),
        ({"neighbors": 3}, "no pair"),
        ({"neighbors": ((1, 2), (3, 4)), "X": 1, "y": 1}, "one of them"),
        ({"neighbors": ((1, 2), (3, 4)), "method": "canaries"}, "coins make them"),
        ({"observer": "nobody"}, "observer='nobody'"),
    ],
)
def test_bad_options_are_refused(options, message):
    given = dict(options)
    X, y = given.pop("X", None), given.pop("y", None)
    with pytest.raises(ValueError, match=message):
        audit(DPAdmmRidge(max_iter=2), X, y, **given)


def test_estimators_that_cannot_be_audited_are_refused():
    class NoCoef(BaseEstimator):
        epsilon = 1.0

        def fit(self, X, y):
            return self

    with pytest.raises(ValueError, match="expected an estimator of this library"):
        audit(LinearRegression())
    with pytest.raises(ValueError, match="expected an object with `fit`"):
        audit(DPAdmmRidge)
    with pytest.raises(ValueError, match="expected an object with `fit`"):
        audit(3)
    bad = NoCoef()
    bad.lines = (i for i in range(3))
    bad.get_params = None
    with pytest.raises(ValueError, match="neither cloned nor copied"):
        audit(bad, **QUICK)
    bad = NoCoef()
    NoCoef.coef_ = "words"
    with pytest.raises(ValueError, match="holds no numbers"):
        audit(bad, **QUICK)
    del NoCoef.coef_
    with pytest.raises(ValueError, match="epsilon=None"):
        audit(LinearRegression(), **QUICK)
    for options in ({}, QUICK):
        with pytest.raises(ValueError, match="Got a Pipeline and no data"):
            audit(make_pipeline(DPAdmmRidge()), **options)
    with pytest.raises(ValueError, match="best_estimator_"):
        audit(GridSearchCV(DPAdmmRidge(max_iter=2), {"alpha": [1.0]}), ROWS, TARGETS, **QUICK)
    with pytest.raises(ValueError, match="without coef_"):
        audit(NoCoef(), **QUICK)
    with pytest.raises(ValueError, match="expected X and y"):
        audit(DPAdmmRidge(feature_bounds={"a": (0, 1)}))
    with pytest.raises(ValueError, match="canaries are records"):
        audit(DPFedRidge(privacy_unit="agent"), method="canaries")


def changed(rows, targets, *places):
    X, y = np.array(rows), np.array(targets)
    for place in places:
        X[place], y[place] = -X[place], -y[place]
    return X, y


SIX = (np.ones((6, 2)), np.arange(1.0, 7.0))
FIVE = (SIX[0][:5], SIX[1][:5])
MISSING = (np.delete(SIX[0], 2, axis=0), np.delete(SIX[1], 2))


class Counted(BaseEstimator):
    """Somebody else's mean, with much noise, that counts its fits."""

    epsilon, delta = 1.0, 1e-5
    n_fits = 0

    def fit(self, X, y):
        Counted.n_fits += 1
        self.coef_ = np.random.default_rng().normal(np.mean(y), 100.0, size=1)
        return self


class Declared(Counted):
    """The same with a relation."""

    neighboring = "replace_one"


@pytest.mark.parametrize("options", [{}, QUICK], ids=["replay", "black-box"])
@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (SIX, SIX, "Got neighbors that are the same, expected .* one record"),
        (SIX, changed(*SIX, 0, 1, 2, 3, 4, 5), "differ in 6 records, expected one"),
        (SIX, changed(*SIX, 1, 4), "differ in 2 records, expected one"),
        (SIX, (SIX[0], SIX[1][::-1]), "differ in 6 records"),
        (SIX, FIVE, "with 6 and 5 records, expected as many for neighboring="),
        (FIVE, SIX, "with 5 and 6 records"),
        (SIX, (np.ones((6, 3)), SIX[1]), r"differ \(\(2, 1\) and \(3, 1\)\)"),
        (SIX, (SIX[0], FIVE[1]), "with 6 rows of X and 5 targets"),
        (SIX, (3, 4), "X=3, expected an entry for each record"),
    ],
)
def test_data_that_are_no_neighbours_are_refused_before_a_fit(
    options, neighboring, first, second, message, monkeypatch
):
    monkeypatch.setattr(DPAdmmRidge, "fit", lambda *_: pytest.fail("it was fitted"))
    model = DPAdmmRidge(max_iter=2, neighboring=neighboring)
    with pytest.raises(ValueError, match=message):
        audit(model, neighbors=(first, second), **options)


@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("options", [{}, {"method": "black-box", "n_runs": 400}])
def test_a_sound_estimator_is_not_accused_by_neighbours_that_are_given(
    neighboring, fit_intercept, options
):
    model = DPAdmmRidge(max_iter=3, neighboring=neighboring, fit_intercept=fit_intercept)
    X, y = np.ones((6, 2)), np.array([3.0, -3.0] * 3)
    for row, target in (([-1.0, 1.0], -3.0), ([0.0, 0.0], 0.0), ([0.0, 0.0], 3.0)):
        X2, y2 = X.copy(), y.copy()
        X2[0], y2[0] = row, target
        report = audit(model, neighbors=((X, y), (X2, y2)), random_state=0, **options)
        assert not report.is_violation
        assert report.neighbors == "as they were given"


def test_a_replaced_record_that_is_given_is_two_steps_of_zero_out():
    pair = (SIX, changed(*SIX, 0))
    once, twice = (
        audit(DPAdmmRidge(max_iter=2, neighboring=name), neighbors=pair, random_state=0, **QUICK)
        for name in ("replace_one", "zero_out")
    )
    assert twice.claimed_epsilon > 1.5 > once.claimed_epsilon
    lines = audit(DPAdmmRidge(max_iter=2, neighboring="zero_out"), neighbors=pair).lines
    made = audit(DPAdmmRidge(max_iter=2, neighboring="zero_out"), SIX[0], SIX[1]).lines
    assert lines[0].declared == pytest.approx(made[0].declared)


def test_an_estimator_without_a_relation_may_have_a_record_less():
    nan = (np.where(np.eye(6, 2) > 0, np.nan, 1.0), SIX[1])
    for first, second in (
        (SIX, FIVE),
        (MISSING, SIX),
        (SIX, MISSING),
        (SIX, changed(*SIX, 3)),
        (nan, (nan[0], np.r_[9.0, nan[1][1:]])),
    ):
        assert not audit(Counted(), neighbors=(first, second), **QUICK).is_violation
    before = Counted.n_fits
    for first, second, message in (
        (SIX, SIX, "are the same"),
        (SIX, changed(*SIX, 1, 4), "differ in 2 records"),
        (SIX, (SIX[0][:4], SIX[1][:4]), "6 and 4 records, expected as many, or one more"),
        (SIX, changed(*FIVE, 0), "of which more than one differ"),
        (nan, nan, "are the same"),
    ):
        with pytest.raises(ValueError, match=message):
            audit(Counted(), neighbors=(first, second), **QUICK)
    for model in (Declared(), Nested(DPAdmmRidge(max_iter=2))):
        with pytest.raises(ValueError, match="as many for neighboring='replace_one'"):
            audit(model, neighbors=(SIX, FIVE), **QUICK)
    assert Counted.n_fits == before


def test_neighbours_may_differ_in_all_rows_of_one_agent_where_that_is_the_unit():
    model = DPFedRidge(max_iter=2, privacy_unit="agent")
    agents = ["a", "b", "a", "b", "c", "c"]
    for places in ((0,), (0, 2), (4, 5)):
        pair = (SIX, changed(*SIX, *places))
        for options in ({}, QUICK):
            assert not audit(
                model, neighbors=pair, agents=agents, random_state=0, **options
            ).is_violation
    pair = (SIX, changed(*SIX, 0, 1))
    with pytest.raises(ValueError, match="records of 2 agents, expected those of one"):
        audit(model, neighbors=pair, agents=agents)
    with pytest.raises(ValueError, match="differ in 2 records"):
        audit(DPFedRidge(max_iter=2), neighbors=(SIX, changed(*SIX, 0, 2)), agents=agents)
    with pytest.raises(ValueError, match="no agents with privacy_unit='agent'"):
        audit(model, neighbors=pair)
    with pytest.raises(ValueError, match="5 labels of agents"):
        audit(model, neighbors=pair, agents=agents[1:])
    with pytest.raises(ValueError, match="6 and 5 records"):
        audit(model, neighbors=(SIX, FIVE), agents=agents)
    with pytest.raises(ValueError, match=r"are the same, expected .* the records of one agent"):
        audit(model, neighbors=(SIX, SIX), agents=agents)
    piped = make_pipeline(BoundedScaler(), model)
    with pytest.raises(ValueError, match="records of 2 agents"):
        audit(piped, neighbors=pair, dpfedridge__agents=agents)


def test_agents_in_a_column_are_the_same_in_both_neighbours():
    pandas = pytest.importorskip("pandas")
    rows = pandas.DataFrame(SIX[0], columns=["one", "two"]).assign(who=list("aabbcc"))
    y = SIX[1]
    for unit in ("record", "agent"):
        model = DPPersonalizedRegressor(max_iter=2, privacy_unit=unit, agent_column="who")
        near, moved, far = rows.copy(), rows.copy(), rows.copy()
        near.loc[0, "one"] = -1.0
        moved.loc[1, "who"] = "b"
        far.loc[[0, 2], "one"] = -1.0
        assert not audit(model, neighbors=((rows, y), (near, y)), random_state=0).is_violation
        with pytest.raises(ValueError, match="other agents in column 'who'"):
            audit(model, neighbors=((rows, y), (moved, y)))
        with pytest.raises(ValueError, match=r"expected those of one|differ in 2 records"):
            audit(model, neighbors=((rows, y), (far, y)))
        with pytest.raises(ValueError, match=r"the same in both\. Change a row alone"):
            audit(model, neighbors=((rows, y), (rows.rename(columns={"one": "1"}), y)))
    # Which column of its own rows a last step means, its neighbours do not say.
    for unit in ("record", "agent"):
        model = DPPersonalizedRegressor(max_iter=2, privacy_unit=unit, agent_column=2)
        with pytest.raises(ValueError, match="Got neighbors and a Pipeline whose last step has"):
            audit(make_pipeline(BoundedScaler(), model), neighbors=((rows, y), (near, y)))
    model = DPPersonalizedRegressor(max_iter=2, privacy_unit="agent", agent_column="nobody")
    with pytest.raises(ValueError, match="Got"):
        audit(model, neighbors=((rows, y), (near, y)))


def test_entries_of_any_type_are_compared():
    pandas = pytest.importorskip("pandas")
    sparse = pytest.importorskip("scipy.sparse")
    missing = pandas.array([1, None, 3, 4, 5, 6], dtype="Int64")
    filled = pandas.array([1, 2, 3, 4, 5, 6], dtype="Int64")
    frames = [pandas.DataFrame({"n": n, "s": list("abcdef")}) for n in (missing, filled)]
    other = sparse.csr_matrix(changed(*SIX, 2)[0])
    words = ["a b", "c", "d", "e", "f", "g"]
    ragged = [[1], [1, 2], [3], [4], [5], [6]]
    for one, two in (
        frames,
        (sparse.csr_matrix(SIX[0]), other),
        (words, ["a", *words[1:]]),
        (ragged, [*ragged[:5], [6, 7]]),
    ):
        assert not audit(Counted(), neighbors=((one, SIX[1]), (two, SIX[1])), **QUICK).is_violation
        with pytest.raises(ValueError, match="are the same"):
            audit(Counted(), neighbors=((one, SIX[1]), (one, SIX[1])), **QUICK)


@pytest.mark.parametrize("options", ALL, ids=["replay", "black-box", "canaries"])
def test_a_search_is_refused_before_data_are_made_up(options):
    scaler = BoundedScaler(lower=[-1, -1, -1, -1], upper=[1, 1, 1, 1])
    pipeline = make_pipeline(scaler, DPAdmmRidge(max_iter=2, target_bounds=(-2, 2)))
    grid = {"dpadmmridge__alpha": [1.0, 2.0]}
    message = "a search that fits many models, expected one model. Pass its best_estimator_; .*data"
    for search in (
        DPGridSearchCV(pipeline, grid),
        DPRandomizedSearchCV(pipeline, grid),
        GridSearchCV(pipeline, grid),
        make_pipeline(scaler, DPGridSearchCV(pipeline[-1], {"alpha": [1.0]})),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            audit(search, **options)
        assert "shape" not in str(caught.value)
    with pytest.raises(
        ValueError, match=r"a Pipeline in it and no data, .*best_estimator_, or data"
    ):
        audit(Nested(pipeline), **options)


def test_a_refusal_says_no_number_of_fits():
    class Many(Nested):
        def fit(self, X, y):
            for _ in range(3):
                super().fit(X, y)
            return self

    with pytest.raises(ValueError, match="expected one linear model of one fit") as caught:
        audit(Many(DPAdmmRidge(max_iter=2)))
    assert not any(letter.isdigit() for letter in str(caught.value))
