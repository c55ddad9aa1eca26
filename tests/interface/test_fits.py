"""What every fit promises: its plan, its seed, its report, its silence, all or nothing."""

import io
import math
import re
import sys
from contextlib import redirect_stderr
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from skdpadmm import DPAdmmRidge
from tests.interface.registry import DEFAULTS, ROWS, parameters, plan_of

FAMILIES = ["multinomial", "fed ridge", "network", "personal"]


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
        assert report.guarantee() == plan_of(model, 60, 3).guarantee()
        epsilons = [report.epsilon(name) for name in OBSERVERS[row.family]]
        # Whoever sees less learns less.
        assert all(a >= b * (1 - 1e-9) for a, b in pairwise(epsilons))
        assert all(observer.unit == "record" for observer in report.observers)
        assert neighboring.replace("_", " ") in repr(report)
        assert ("counts as absent" in repr(report)) == (neighboring == "zero_out")
        assert "SIMULATION" in repr(report)
        assert "not private" not in repr(report)


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


def test_a_notebook_without_widgets_has_a_bar_of_text_and_no_warning(monkeypatch, capfd):
    kernel = SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: kernel))
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    for name in ("tqdm.auto", "tqdm.autonotebook", "tqdm.notebook"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    # Warnings are errors.
    row = ROWS["ridge"]
    row.make(verbose=1).fit(*row.data())
    assert "DPAdmmRidge: 100%" in capfd.readouterr().err
    # What was imported here serves no other test.
    for name in ("tqdm.auto", "tqdm.autonotebook", "tqdm.notebook"):
        monkeypatch.delitem(sys.modules, name, raising=False)


# What defaults learn: floors of accuracy, well below what was measured.


@pytest.mark.parametrize("name", [*DEFAULTS, "stream"])
def test_private_defaults_learn_an_easy_problem(name):
    row = ROWS[name]
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(5000, 3))
    scores = X @ [1.0, -1.0, 0.5] + 0.1 * rng.normal(size=5000)
    scores = np.exp(scores) if row.is_rate else scores
    y = scores if row.n_classes == 1 else np.digitize(scores, [0, 0.5][: row.n_classes - 1])
    weak = {"C": 1.0} if "C" in row.estimator.get_params() else {"alpha": 1e-4}
    model = row.make(epsilon=8.0, feature_bounds=(-1, 1), max_iter=100, **weak).fit(X, y)
    assert model.score(X, y) > 0.7
