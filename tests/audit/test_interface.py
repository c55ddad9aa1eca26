"""What an audit takes, refuses and returns."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LinearRegression

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


def test_an_audit_is_not_counted_in_a_ledger(tmp_path):
    path = tmp_path / "study.db"
    for options in ({}, QUICK, {"method": "canaries", "n_runs": 20}):
        audit(DPAdmmRidge(max_iter=2, ledger=str(path)), **options)
    assert not path.exists()


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
    shown = capsys.readouterr().err
    assert "5/5" in shown
    assert "80/80" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "look"}, "method='look'"),
        ({"n_runs": 0}, "n_runs=0"),
        ({"confidence": 1.0}, "confidence=1.0"),
        ({"delta": -0.1}, "delta=-0.1"),
        ({"random_state": "a"}, "random_state='a'"),
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
    with pytest.raises(ValueError, match="epsilon=None"):
        audit(LinearRegression(), **QUICK)
    with pytest.raises(ValueError, match="without coef_"):
        audit(NoCoef(), **QUICK)
    with pytest.raises(ValueError, match="expected X and y"):
        audit(DPAdmmRidge(feature_bounds={"a": (0, 1)}))
    with pytest.raises(ValueError, match="canaries are records"):
        audit(DPFedRidge(privacy_unit="agent"), method="canaries")
