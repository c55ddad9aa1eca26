"""What every fit promises: its plan, its seed, its report, its silence, all or nothing."""

from __future__ import annotations

import io
import math
import re
import sys
from contextlib import redirect_stderr
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from skdpadmm import DPAdmmRidge
from skdpadmm.algorithms import ConsensusADMM, FederatedADMM
from tests.interface.registry import ROWS, parameters, plan_of

FAMILIES = ["multinomial", "fed ridge", "network", "personal"]

# Plans.

BY_NAME = {"feature_bounds": {"c": (1e9, 1e9 + 3), "b": (1e6, 1e6 + 1), "a": (-1, 1.1)}}
SETTINGS = {
    "central": [
        {"algorithm": ConsensusADMM(relaxation=0.8, record_step="linearized", step_size=0.1)},
        {"epsilon": 0.1, "delta": 1e-8, "neighboring": "zero_out", "max_iter": 7},
    ],
    "federated": [
        {"partition": "quantity", "privacy_unit": "agent"},
        {"adversary": "sums", "n_honest": 2, "dropout": 0.2},
        {"epsilon": [1.0, 2.0, 3.0, 4.0], "scale": "private"},
        {"participation": 0.3, "algorithm": FederatedADMM(sampling="fixed", message="increment")},
    ],
    "decentralized": [
        {"partition": "quantity", "privacy_unit": "agent"},
        {"topology": "random-geometric", "conditioning": None, "neighboring": "zero_out"},
        {"epsilon": [1.0, 2.0, 3.0, 4.0], "scale": "private"},
    ],
    "personalized": [
        {"partition": "quantity", "privacy_unit": "agent"},
        {"epsilon": [1.0, 2.0, 3.0], "partition": 3, "similarity": np.ones((3, 3)) - np.eye(3)},
        {"n_agents": 12, "similarity": "knn", "agent_features": np.arange(12.0)[:, None]},
    ],
}
PLANNED = [
    (name, settings)
    for name in ("ridge", "multinomial", "fed logistic", "network", "network of classes",
                 "personal", "personal classes")
    for settings in [BY_NAME, *SETTINGS[ROWS[name].family]]
]  # fmt: skip


@pytest.mark.parametrize(("name", "settings"), PLANNED)
def test_the_plan_before_any_data_is_the_plan_inside_fit(name, settings, plans):
    X, y = ROWS[name].data()
    model = ROWS[name].make(**settings)
    model.fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    planned = plan_of(ROWS[name].make(**settings), 60, 3)
    assert plans == [planned]


# Seeds.


@pytest.mark.parametrize("name", FAMILIES)
def test_a_generator_advances_and_its_copy_repeats(name):
    row = ROWS[name]
    X, y = row.data()
    for generator in (np.random.RandomState, np.random.default_rng):
        model = row.make(random_state=generator(0))
        first, second = parameters(model.fit(X, y)), parameters(model.fit(X, y))
        assert not np.array_equal(first, second)
        again = row.make(random_state=generator(0))
        np.testing.assert_array_equal(parameters(again.fit(X, y)), first)
        assert "random_state" in model.privacy_.simulation


# Reports.

OBSERVERS = {
    "central": ["model"],
    "federated": ["server", "sums", "model"],
    "decentralized": ["eavesdropper", "peer", "model"],
    "personalized": ["eavesdropper", "model"],
}


@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_report_has_every_observer_and_spends_the_budget_on_the_adversary(name, neighboring):
    row = ROWS[name]
    X, y = row.data()
    for adversary in OBSERVERS[row.family]:
        model = row.make(epsilon=0.7, delta=1e-6, neighboring=neighboring)
        if "adversary" in model.get_params():
            if row.family == "decentralized" and adversary == "model":
                continue
            model.set_params(adversary=adversary)
        report = model.fit(X, y).privacy_
        assert [observer.name for observer in report.observers] == OBSERVERS[row.family]
        assert report.epsilon() == pytest.approx(0.7, rel=1e-3)
        assert report.epsilon() <= 0.7 * (1 + 1e-9)
        assert report.guarantee() == plan_of(model, 60, 3).guarantee()
        if "adversary" in model.get_params():
            assert report.guarantee(adversary) == report.guarantee()
        epsilons = [report.epsilon(name) for name in OBSERVERS[row.family]]
        # Whoever sees less learns less.
        assert all(a >= b * (1 - 1e-9) for a, b in pairwise(epsilons))
        assert all(observer.unit == "record" for observer in report.observers)
        assert neighboring.replace("_", " ") in repr(report)
        assert "SIMULATION" in repr(report)
        assert "not private" not in repr(report)


@pytest.mark.parametrize("name", FAMILIES[1:])
def test_a_report_says_that_agents_are_protected_where_they_are(name):
    row = ROWS[name]
    report = row.make(privacy_unit="agent", epsilon=0.7).fit(*row.data()).privacy_
    assert all(observer.unit == "agent" for observer in report.observers)
    assert report.epsilon() == pytest.approx(0.7, rel=1e-3)
    assert report.epsilon() <= 0.7 * (1 + 1e-9)


@pytest.mark.parametrize("name", ["ridge", "fed ridge", "network", "personal"])
def test_plan_and_report_say_what_was_assumed_for_lack_of_a_schema(name):
    X, y = ROWS[name].data()
    bare = ROWS[name].make()
    told = ROWS[name].make(feature_bounds=(-3, 3), target_bounds=(0, 1))
    for part in ("feature_bounds not declared", "target_bounds not declared"):
        for said, missing in ((bare, True), (told, False)):
            assert (part in repr(said.plan(60, 3))) == missing
            assert (part in repr(said.fit(X, y).privacy_)) == missing


def test_a_delta_of_at_least_one_over_n_warns():
    delta = 1 / 60
    X, y = ROWS["ridge"].data()
    message = r"Got delta=.* n_samples=60, expected delta < 1 / n_samp"
    with pytest.warns(UserWarning, match=message):
        DPAdmmRidge(delta=delta, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match=message):
        DPAdmmRidge(delta=delta).plan(60, 3)
    DPAdmmRidge(delta=delta, epsilon=math.inf).fit(X, y)  # says nothing


# All or nothing.

BAD_DATA = {
    "NaN in X": lambda X, y: (np.where(X == X[0, 1], np.nan, X), y),
    "sparse NaN": lambda X, y: (sparse.csr_matrix(np.where(X == X[0, 1], np.nan, X)), y),
    "one dimension": lambda X, y: (X[:, 0], y),
    "no columns": lambda X, y: (X[:, :0], y),
    "no rows": lambda X, y: (X[:0], y[:0]),
    "a row too few": lambda X, y: (X[1:], y),
    "complex": lambda X, y: (X + 1j, y),
    "NaN in y": lambda X, y: (X, np.where(np.arange(len(y)) == 0, np.nan, y.astype(float))),
    "no y": lambda X, y: (X, None),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_bad_data_stores_nothing_and_leaves_an_earlier_fit_intact(name, plans, assert_unfitted):
    row = ROWS[name]
    X, y = row.data()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    fresh = [row.make(epsilon=epsilon) for epsilon in (1.0, math.inf)]
    fitted = [row.make(epsilon=epsilon).fit(frame, y) for epsilon in (1.0, math.inf)]
    plans.clear()
    before = [dict(vars(model)) for model in fitted]
    for spoil in BAD_DATA.values():
        for model in fresh + fitted:
            with pytest.raises((ValueError, TypeError)):
                model.fit(*spoil(X, y))
        for model in fresh:
            assert_unfitted(model)
            with pytest.raises(NotFittedError):
                model.predict(X)
        for model, kept in zip(fitted, before, strict=True):
            assert vars(model).keys() == kept.keys()
            assert all(vars(model)[name] is kept[name] for name in kept)
    assert not plans  # no noise was drawn, nothing was spent


def test_without_dask_its_engine_is_an_error_that_names_the_extra(
    monkeypatch, plans, assert_unfitted
):
    monkeypatch.setitem(sys.modules, "distributed", None)
    for name in ("fed ridge", "network"):
        model = ROWS[name].make(engine="dask")
        with pytest.raises(ImportError, match=r"pip install 'skdpadmm\[dask\]'"):
            model.fit(*ROWS[name].data())
        with pytest.raises(ImportError, match=r"skdpadmm\[dask\]"):
            plan_of(model, 60, 3)
        assert_unfitted(model)
    assert not plans


# What a fit says.


@pytest.mark.parametrize("name", [*FAMILIES, "walk"])
def test_the_progress_bar_counts_and_says_nothing_else_and_a_quiet_fit_says_nothing(name, capfd):
    row = ROWS[name]

    def bar(X, y):
        text = io.StringIO()
        with redirect_stderr(text):
            row.make(verbose=1, max_iter=7).fit(X, y)
        # What is left without clock times and rates.
        return [
            re.sub(r"\[.*\]", "", line).strip() for line in re.split("[\r\n]+", text.getvalue())
        ]

    X, y = row.data()
    lines, others = bar(X, y), bar(1e3 * X, y[::-1])
    pattern = rf"({type(row.estimator).__name__}: +(\d+%\|.*\| )?\d+(/\d+|iteration))?"
    assert all(re.fullmatch(pattern, line) for line in lines + others)
    assert [line for line in lines if line][-1] == [line for line in others if line][-1]
    capfd.readouterr()
    row.make().fit(X, y)
    assert capfd.readouterr() == ("", "")
