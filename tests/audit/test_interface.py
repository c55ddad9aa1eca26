"""What an audit takes, refuses and returns."""

import dataclasses
import json
import math
import pickle
from xml.etree import ElementTree

import numpy as np
import pandas
import pytest
from scipy import sparse
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
from skdpadmm.audit import audit
from skdpadmm.preprocessing import BoundedScaler

QUICK = {"method": "black-box", "n_runs": 40}
ALL = [{}, QUICK, {"method": "canaries", "n_runs": 20}]
methods = pytest.mark.parametrize("options", ALL, ids=["replay", "black-box", "canaries"])
ROWS = np.random.default_rng(0).uniform(-1, 1, size=(40, 2))
TARGETS = ROWS @ [1.0, -1.0]


def ridge(**parameters):
    return DPAdmmRidge(**{"max_iter": 2} | parameters)


@methods
def test_a_report_is_frozen_seeded_and_leaves_the_estimator_as_it_was(options, capsys):
    model = ridge(random_state=0, verbose=1)
    before = dict(vars(model))
    report = audit(model, random_state=4, verbose=1, **options)
    assert report == audit(model, random_state=4, **options) == pickle.loads(pickle.dumps(report))
    assert vars(model) == before
    assert fitting._MAKE_GATE.get() is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.delta = 0.5
    assert json.loads(json.dumps(report.to_dict()))["verdict"] == report.verdict
    assert "claimed against model: epsilon=1 at delta=1e-05, GDP" in repr(report)
    bar, words = {None: ("5/5", "5 replays"), "black-box": ("80/80", "40 fits of each data set"),
                  "canaries": ("", "20 canaries")}[options.get("method")]  # fmt: skip
    assert bar in capsys.readouterr().err
    assert words in repr(report)
    texts = list(ElementTree.fromstring(report._repr_html_()).itertext())
    assert not {report.verdict, words, *(line.name for line in report.lines)}.difference(texts)


@methods
def test_a_claim_is_stated_at_the_delta_that_is_asked_for(options):
    usual, larger = (audit(ridge(), random_state=4, delta=d, **options) for d in (None, 1e-3))
    assert (usual.delta, larger.delta) == (1e-5, 1e-3)
    assert larger.claimed_epsilon < usual.claimed_epsilon


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_a_generator_goes_on_from_audit_to_audit(make):
    rng = make(5)
    one, two = (audit(ridge(), random_state=rng) for _ in range(2))
    assert one == audit(ridge(), random_state=make(5)) != two


@pytest.mark.slow
def test_the_report_does_not_depend_on_the_number_of_processes():
    one, two = (audit(ridge(), **QUICK, random_state=4, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert one == two


class Nested(BaseEstimator):
    """A meta-estimator with one parameter."""

    epsilon, delta = 1.0, 1e-5

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y):
        fitted = clone(self.estimator).fit(X, y)
        self.coef_, self.intercept_ = fitted.coef_, fitted.intercept_
        return self


class Makes(Nested):
    """Makes its estimator by itself: no parameter holds it."""

    def __init__(self, path="study.db"):
        self.path = path
        self.estimator = ridge(ledger=str(path))


WRAPPERS = {
    "pipelines": lambda model: make_pipeline(BoundedScaler(), make_pipeline(model)),
    "two deep": lambda model: Nested(Nested(model)),
    "made": lambda model: Makes(model.ledger),
}
CASES = [("two deep", {}), ("made", {}), ("pipelines", QUICK), ("made", QUICK),
         ("pipelines", ALL[2]), ("two deep", ALL[2])]  # fmt: skip


@pytest.mark.parametrize(("wrapper", "options"), CASES)
def test_an_audit_is_not_counted_in_a_ledger(tmp_path, wrapper, options):
    path, wrap = tmp_path / "study.db", WRAPPERS[wrapper]
    model = ridge(ledger=str(path), random_state=0)
    report = audit(wrap(model), ROWS, TARGETS, random_state=3, confidence=1 - 1e-9, **options)
    assert not path.exists()
    # Noise of a seed that stayed would be found by a replay.
    assert not report.is_violation
    # The user's estimator still counts.
    assert (model.ledger, model.random_state) == (str(path), 0)


def test_what_a_step_of_a_pipeline_learns_from_data_is_found():
    # One row has the scale of all others in its hands.
    rows, targets = np.vstack([[30.0, 30.0], ROWS]), np.r_[3.0, TARGETS + 2.0]
    for step, is_found in ((StandardScaler(), True), (BoundedScaler(lower=-30, upper=30), False)):
        report = audit(make_pipeline(step, ridge(max_iter=5)), rows, targets, random_state=0)
        assert report.is_violation == is_found


@pytest.mark.parametrize(
    ("make", "unit"), [(DPFedRidge, "agent"), (DPDecentralizedRegressor, "agent"),
                       (DPPersonalizedRegressor, "record")])  # fmt: skip
def test_agents_come_from_fit_params_or_are_made_up(make, unit):
    for given in ({}, {"agents": np.repeat(["a", "b", "c"], 4)}):
        report = audit(make(max_iter=2, privacy_unit=unit), random_state=0, **given)
        assert not report.is_violation
        assert ("agent" in report.neighbors) == (unit == "agent")
    own = {"method": "black-box", "n_runs": 8, "observer": "server"}
    assert audit(DPFedRidge(max_iter=2), **own).observer == "server"


@methods
def test_data_may_be_given_and_nothing_is_claimed_without_privacy(options):
    model = DPAdmmLogisticRegression(max_iter=3)
    assert not audit(model, ROWS, np.arange(40) % 3, random_state=0, **options).is_violation
    report = audit(ridge(epsilon=math.inf), **options)
    assert report.verdict == "Nothing is claimed: not private."


def test_neighbours_of_zero_out_are_two_steps_apart_in_streams_and_as_they_are_given():
    stream, quick = GradientADMM(schedule="stream", horizon=4), {**QUICK, "n_runs": 8}
    pair = (SIX, changed(0))
    for own, given in (({"algorithm": stream}, {}), ({}, {"neighbors": pair})):
        once, twice = (
            audit(ridge(neighboring=relation, **own), **quick, random_state=0, **given)
            for relation in ("replace_one", "zero_out")
        )
        assert not once.is_violation
        assert not twice.is_violation
        assert twice.claimed_epsilon > 1.5 > once.claimed_epsilon
    lines = audit(ridge(neighboring="zero_out"), neighbors=pair).lines
    of_one_row = audit(ridge(neighboring="zero_out"), *SIX).lines
    assert lines[0].sensitivity == pytest.approx(of_one_row[0].sensitivity)


def test_bad_options_are_refused():
    pair = ((1, 2), (3, 4))
    for message, options in {
        "method='look'": {"method": "look"},
        "n_runs=0": {"n_runs": 0},
        "confidence=1.0": {"confidence": 1.0},
        "delta=-0.1": {"delta": -0.1},
        "n_jobs=2 for method='replay'": {"n_jobs": 2},
        "at least 8": {"method": "black-box", "n_runs": 3},
        "both or none": {"X": np.ones((2, 1))},
        "no pair": {"neighbors": 3},
        "neighbors beside X": {"neighbors": pair, "X": 1, "y": 1},
        "or method='canaries'": {"neighbors": pair, "method": "canaries"},
        "observer='nobody'": {"observer": "nobody"},
    }.items():
        with pytest.raises(ValueError, match=message):
            audit(ridge(), **{"X": None, "y": None, **options})


class NoCoef(BaseEstimator):
    epsilon = 1.0

    def fit(self, X, y):
        return self


class Many(Nested):
    def fit(self, X, y):
        for _ in range(3):
            super().fit(X, y)
        return self


REFUSED = [
    (LinearRegression(), {}, "one fit of an estimator of this library"),
    (DPAdmmRidge, {}, "expected an object with `fit`"),
    (NoCoef(), QUICK, "without coef_"),
    (LinearRegression(), QUICK, "epsilon=None"),
    (make_pipeline(ridge()), QUICK, "or a Pipeline in it, expected X"),
    (ridge(feature_bounds={"a": (0, 1)}), {}, "named columns or a Pipeline"),
    (DPFedRidge(privacy_unit="agent"), ALL[2], "canaries are records"),
    (DPPersonalizedRegressor(agent_column="who"), {}, "Got agent_column='who', expected None"),
    (Many(ridge()), {}, r"^\D*expected one linear model of one fit\D*$"),
    (GridSearchCV(ridge(), {"alpha": [1.0]}), {"X": ROWS, "y": TARGETS}, "best_estimator_"),
]


@pytest.mark.parametrize(("model", "options", "message"), REFUSED)
def test_estimators_that_cannot_be_audited_are_refused(model, options, message):
    with pytest.raises(ValueError, match=message):
        audit(model, **options)
    assert fitting._MAKE_GATE.get() is None


# Neighbours that are given.


SIX = (np.ones((6, 2)), np.arange(1.0, 7.0))
FIVE = (SIX[0][:5], SIX[1][:5])


def changed(*places):
    X, y = np.array(SIX[0]), np.array(SIX[1])
    for place in places:
        X[place], y[place] = -X[place], -y[place]
    return X, y


class Noisy(BaseEstimator):
    """Somebody else's mean, with much noise."""

    epsilon, delta = 1.0, 1e-5

    def fit(self, X, y):
        self.coef_ = np.random.default_rng().normal(np.mean(y), 100.0, size=1)
        return self


def test_data_that_are_no_neighbours_are_refused_before_a_fit(monkeypatch):
    monkeypatch.setattr(DPAdmmRidge, "fit", lambda *_: pytest.fail("it was fitted"))
    for first, second, message in (
        (SIX, SIX, "differ in the data of 0 records, expected one record"),
        (SIX, changed(1, 4), "in the data of 2 records, expected one"),
        (SIX, FIVE, r"shapes .6, 3. and .5, 3., expected the same .* leaving it out"),
        (SIX, (np.ones((6, 3)), SIX[1]), "of shapes .6, 3. and .6, 4."),
        (SIX, (SIX[0], FIVE[1]), "X of shape .6, 2. and y of shape .5,."),
    ):
        for options, relation in (({}, "replace_one"), (QUICK, "zero_out")):
            with pytest.raises(ValueError, match=message):
                audit(ridge(neighboring=relation), neighbors=(first, second), **options)


def test_a_sound_estimator_is_not_accused_by_neighbours_that_are_given():
    model, X, y = ridge(max_iter=3, neighboring="zero_out"), np.ones((6, 2)), [3.0, -3.0] * 3
    for row, target in (([-1.0, 1.0], -3.0), ([0.0, 0.0], 0.0), ([0.0, 0.0], 3.0)):
        other = np.vstack([[row], X[1:]]), [target, *y[1:]]
        report = audit(model, neighbors=((X, y), other), random_state=0)
        assert not report.is_violation
        assert report.neighbors == "as they were given"


def test_missing_values_frames_and_sparse_rows_are_compared():
    nan, same = np.where(np.eye(6, 2) > 0, np.nan, 1.0), SIX[1]
    frames = [pandas.DataFrame({"s": list(words)}) for words in ("abcdef", "axcdef")]
    for first, second in (
        ((nan, same), (nan, np.r_[9.0, same[1:]])),
        ((frames[0], same), (frames[1], same)),
        ((sparse.csr_matrix(SIX[0]), same), (sparse.csr_matrix(changed(2)[0]), same)),
    ):
        options = {"method": "black-box", "n_runs": 8}
        assert not audit(Noisy(), neighbors=(first, second), **options).is_violation
        with pytest.raises(ValueError, match="of 0 records"):
            audit(Noisy(), neighbors=(first, first), **options)


def test_neighbours_may_differ_in_all_rows_of_one_agent_where_that_is_the_unit():
    model, agents = DPFedRidge(max_iter=2, privacy_unit="agent"), ["a", "b", "a", "b", "c", "c"]
    own, pair = {"agents": agents}, (SIX, changed(0, 1))
    assert not audit(model, neighbors=(SIX, changed(0, 2)), random_state=0, **own).is_violation
    for one, neighbors, given, message in (
        (model, pair, own, "data of 2 agents, expected one"),
        (DPFedRidge(max_iter=2), (SIX, changed(0, 2)), own, "data of 2 records"),
        (model, pair, {}, "no labels of agents with privacy_unit='agent'"),
        (model, pair, {"agents": agents[1:]}, "5 labels of agents"),
    ):
        with pytest.raises(ValueError, match=message):
            audit(one, neighbors=neighbors, **given)
