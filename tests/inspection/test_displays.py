"""Pictures in scikit-learn's convention: what is drawn is what was computed."""

import math
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdpadmm import (
    DPAdmmGeneralizedLasso,
    DPAdmmLasso,
    DPAdmmRidge,
    DPFedRidge,
    DPPersonalizedClassifier,
)
from skdpadmm.algorithms import GradientDescent
from skdpadmm.exceptions import WeakSignalWarning
from skdpadmm.inference import CoefficientInference
from skdpadmm.inspection import (
    CoefficientDisplay,
    PrivacyLedgerDisplay,
    PrivacyReportDisplay,
    PrivacyUtilityDisplay,
    TopologyDisplay,
    TradeOffDisplay,
)
from skdpadmm.ledger import LedgerEntry, PrivacyLedger
from skdpadmm.model_selection import DPGridSearchCV
from skdpadmm.network import Topology
from skdpadmm.preprocessing import BoundedScaler
from skdpadmm.privacy import GaussianDP, Neighboring, NonPrivate, Observer, PrivacyReport, round_up

pytest.importorskip("matplotlib")

AGENTS = np.array(["ann", "bob", "cas", "dan"])
BOUNDS = {"feature_bounds": (-1, 1), "target_bounds": (-2, 2)}


def data(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return X, X @ [1.0, -0.5, 0.2]


def ridge(**parameters):
    return DPAdmmRidge(**BOUNDS, max_iter=5, **parameters)


def utility(estimator=None, X=None, y=None, **parameters):
    if X is None:
        X, y = data()
    parameters = {"epsilons": [1.0, 10.0], "n_seeds": 2, **parameters}
    return PrivacyUtilityDisplay.from_estimator(estimator or ridge(), X, y, **parameters)


def report(*observers, labels=(), simulation="", adversary=""):
    return PrivacyReport(
        "Lasso", observers, (), 1e-6, (), (), simulation, adversary, agent_labels=labels
    )


def observer(name="server", mu=0.5, **more):
    return Observer(name, "all", "record", Neighboring.REPLACE_ONE, GaussianDP(mu), **more)


def widths(bars):
    return [bar.get_width() for bar in bars]


def words(texts):
    return [text.get_text() for text in texts]


# Accuracy against epsilon.


def test_scores_are_those_of_seeded_clones_on_rows_that_were_not_fitted():
    (X, y), (X_test, y_test) = data(), data(seed=1)
    model = ridge(epsilon=3.0)
    given = {"X_test": X_test, "y_test": y_test, "random_state": 7}
    display = utility(model, X, y, **given)
    with parallel_config(backend="threading"):
        again = utility(model, X, y, n_jobs=2, **given)
    by_hand = [
        [ridge(epsilon=e, random_state=seed).fit(X, y).score(X_test, y_test) for seed in (7, 8)]
        for e in (1.0, 10.0)
    ]
    assert_allclose(display.scores, by_hand, rtol=1e-9)
    assert display.constant_score == DummyRegressor().fit(X, y).score(X_test, y_test)
    assert_array_equal(display.scores, again.scores)
    assert (model.epsilon, model.random_state, hasattr(model, "coef_")) == (3.0, None, False)


def test_the_line_is_the_mean_and_the_band_one_standard_deviation():
    display = utility(n_seeds=3)
    (line,), (band,) = display.lines_, display.fill_between_
    mean, spread = display.scores.mean(axis=1), display.scores.std(axis=1, ddof=1)
    assert_allclose(line.get_xydata(), np.column_stack([[1.0, 10.0], mean]))
    (extent,) = (path.get_extents() for path in band.get_paths())
    assert_allclose([extent.ymin, extent.ymax], [(mean - spread).min(), (mean + spread).max()])
    baselines = [line.get_ydata()[0] for line in display.baselines_]
    assert baselines == pytest.approx([display.non_private_scores.mean(), display.constant_score])


@pytest.mark.parametrize("piped", [False, True])
@pytest.mark.parametrize(
    ("estimator", "name", "public"),
    [
        # Of a constant model scikit-learn's is the better, of a penalty that fits the estimator's.
        (DPAdmmRidge(**BOUNDS, alpha=1e6), "scikit-learn's Ridge", Ridge()),
        (DPAdmmLasso(**BOUNDS, alpha=1e-6), "epsilon=inf", None),
        (DPAdmmGeneralizedLasso(**BOUNDS, alpha=9.0), "epsilon=inf", None),
    ],
)
def test_not_private_is_the_better_of_scikit_learns_model_and_its_own(
    piped, estimator, name, public
):
    (X, y), (X_test, y_test) = data(), data(seed=1)
    own = estimator.set_params(epsilon=math.inf)
    public = make_pipeline(StandardScaler(), public or own)
    expected = (public if "Ridge" in name else own).fit(X, y).score(X_test, y_test)
    drawn = make_pipeline(BoundedScaler(lower=-1.0, upper=1.0), own) if piped else own
    display = utility(drawn, X, y, X_test=X_test, y_test=y_test, epsilons=[1.0])
    assert display.non_private_scores == pytest.approx(expected)
    assert display.baselines_[0].get_label() == f"not private: {name}"


def test_not_private_is_the_optimum_also_of_an_algorithm_object_that_runs_itself():
    (X, y), lasso = data(), DPAdmmLasso(**BOUNDS, alpha=1e-6, max_iter=1)
    own = {"X": X, "y": y, "X_test": X, "y_test": y, "epsilons": [1.0]}
    of_object = utility(clone(lasso).set_params(algorithm=GradientDescent()), **own)
    assert_array_equal(of_object.non_private_scores, utility(lasso, **own).non_private_scores)


def test_errors_are_positive_and_scores_have_names():
    X, y = data()
    own = {"X": X, "y": y, "X_test": X, "y_test": y, "scoring": "neg_mean_absolute_error"}
    display = utility(**own)
    assert display.scores.min() > 0
    assert display.ax_.get_ylabel() == "mean absolute error"
    # The constant of absolute errors is the median.
    assert display.constant_score == pytest.approx(np.mean(np.abs(y - np.median(y))))
    own.update(scoring=lambda model, X, y: 1.0, score_name="what it is, in EUR")
    assert utility(**own).ax_.get_ylabel() == "what it is, in EUR"


def test_a_quarter_of_each_agents_rows_is_held_out():
    X, y = data(41)
    owners, held_out = np.array(["ann"] * 30 + ["bob"] * 8 + ["cas"] * 3), []

    def remember(model, X_test, y_test):
        held_out[:] = owners[np.isin(y, y_test)]
        return 0.0

    utility(DPFedRidge(**BOUNDS), X, y, agents=owners, epsilons=[1.0], scoring=remember)
    assert [held_out.count(agent) for agent in ("ann", "bob", "cas")] == [8, 2, 1]


def test_all_kinds_of_rows_are_held_out_alike():
    X, y = data()
    piped = make_pipeline(BoundedScaler(lower=-1.0, upper=1.0), ridge())
    expected = utility(X=X, y=y).scores
    for given in (
        (ridge(), pd.DataFrame(X, columns=["a", "b", "c"]), pd.Series(y)),
        (piped, sparse.coo_array(X), y.tolist()),
    ):
        # Last bits differ, as arrays lie elsewhere in memory.
        assert_allclose(utility(*given).scores, expected, rtol=1e-6)


@pytest.mark.parametrize(("piped", "scoring"), [(True, "neg_log_loss"), (False, "roc_auc")])
def test_rows_are_held_out_with_their_agents_and_scorers_ask_them(piped, scoring):
    X, y = data()
    bounds = {"classes": ["less", "more"], "feature_bounds": (-1, 1)}
    model = DPPersonalizedClassifier(**bounds, max_iter=20)
    if piped:
        # Pipelines hand agents to no decision function unless metadata is routed.
        model = make_pipeline(BoundedScaler(lower=-1.0, upper=1.0), model)
    owners, given = np.tile(AGENTS, 100), {"scoring": scoring, "epsilons": [20.0], "n_seeds": 1}
    y = np.where(y > 0, "more", "less")
    test = {} if piped else {"X_test": X, "y_test": y, "agents_test": owners}
    display = utility(model, X, y, agents=owners, **given, **test)
    assert abs(display.scores[0, 0] - display.constant_score) > 0.2


@pytest.mark.parametrize("public", [True, False])
def test_curves_share_axes_and_the_note_that_no_guarantee_covers_them(public):
    X, y = data()
    given = {"X_test": X, "y_test": y} if public else {}
    first = utility(**given)
    note = first.note_.get_text().replace("\n", " ")
    assert (first.note_.get_rotation(), first.note_.get_fontsize()) == (0.0, 9.0)
    own = {**given, "epsilons": [0.5], "ax": first.ax_, "plot_baselines": False, "name": "held"}
    second = utility(ridge(alpha=1.0), **own)
    assert "This picture is not private" in note
    assert ("private rows" in note) is not public
    assert (second.ax_, second.baselines_, second.note_) == (first.ax_, [], first.note_)
    assert [tick.get_text() for tick in first.ax_.get_xticklabels()] == ["0.5", "1", "10"]


def test_bad_input_and_ledgers_are_refused_before_any_fit(monkeypatch):
    monkeypatch.setattr(DPAdmmRidge, "fit", lambda *_: pytest.fail("fitted"), raising=False)
    with_ledger = ridge(ledger="study.db")
    search = DPGridSearchCV(ridge(), {"alpha": [0.0]}, ledger="a.db")
    for parameters, message in (
        ({"epsilons": [1.0, math.inf]}, "distinct numbers in"),
        ({"epsilons": [1.0, 1.0]}, "distinct numbers in"),
        ({"n_seeds": 0}, "n_seeds"),
        ({"random_state": -1}, "random_state"),
        ({"X_test": np.zeros((2, 3))}, "Got one of X_test and y_test"),
        ({"agents": ["ann"]}, "inconsistent numbers"),
        ({"estimator": Ridge()}, "parameters epsilon and random_state"),
        ({"estimator": with_ledger}, "expected None: fits of a picture"),
        ({"estimator": make_pipeline(BoundedScaler(), with_ledger)}, r"__ledger=.*expected None"),
        ({"estimator": search}, "expected None"),
    ):
        with pytest.raises(ValueError, match=message):
            utility(**parameters)


# Reports.


def test_bars_are_epsilons_and_worst_cases_stand_beside():
    always = GaussianDP(1.0)
    found = report(observer("server", 0.5, always=always), observer("model", 0.1))
    display = PrivacyReportDisplay.from_report(found)
    assert widths(display.bars_) == [found.epsilon("server"), found.epsilon("model")]
    assert widths(display.worst_bars_) == [always.epsilon(1e-6)]
    assert words(display.ax_.texts)[:2] == [
        round_up(found.epsilon("server")), f"at worst: {round_up(always.epsilon(1e-6))}",
    ]  # fmt: skip
    assert display.ax_.get_xlabel() == "epsilon per record (delta=1e-06)"
    other = PrivacyReportDisplay.from_report(found, delta=1e-3)
    assert widths(other.bars_)[0] == found.epsilon("server", delta=1e-3)
    with pytest.raises(ValueError, match="delta"):
        PrivacyReportDisplay.from_report(found, delta=2.0)


def test_units_what_is_not_private_and_simulations_are_shown():
    agent = Observer("model", "all", "agent", Neighboring.REPLACE_ONE, NonPrivate())
    display = PrivacyReportDisplay.from_report(report(observer(), agent, simulation="a seed"))
    assert words(display.ax_.get_yticklabels()) == ["server (record)", "model (agent)"]
    assert (widths(display.bars_)[1], words(display.ax_.texts)[1]) == (0.0, "not private")
    assert "SIMULATION" in display.ax_.get_title(loc="left")
    assert "where the seed is known" in words(display.ax_.texts)[-1]


@pytest.mark.parametrize(("n", "shown"), [(2, [0, 1]), (101, [0, 50, 100])])
def test_agents_that_differ_have_bars_and_many_are_told_by_three(n, shown):
    own = tuple(GaussianDP(0.01 * (k + 1)) for k in range(n))
    found = report(observer(mu=own[-1].mu, per_agent=own), labels=tuple(range(n)))
    display = PrivacyReportDisplay.from_report(found)
    assert_array_equal(widths(display.agent_bars_), found.epsilon_per_agent()[shown])
    ranks = ["", ""] if n == 2 else [f"{rank} of 101: " for rank in ("lowest", "median", "highest")]
    expected = [f"{rank}agent {k}" for rank, k in zip(ranks, shown, strict=True)]
    assert words(display.ax_.get_yticklabels())[1:] == expected
    alike = report(observer(mu=0.2, per_agent=(own[1],) * n), labels=tuple(range(n)))
    assert PrivacyReportDisplay.from_report(alike).agent_bars_ == []


def test_reports_of_fits_are_drawn_and_what_has_none_is_refused():
    X, y = data()
    model = make_pipeline(BoundedScaler(lower=-1.0, upper=1.0), ridge(random_state=0))
    with pytest.raises(NotFittedError):
        PrivacyReportDisplay.from_estimator(model)
    display = PrivacyReportDisplay.from_estimator(model.fit(X, y))
    assert list(display.epsilons) == [seen.name for seen in model[-1].privacy_.observers]
    with pytest.raises(ValueError, match="with privacy_"):
        PrivacyReportDisplay.from_estimator(Ridge().fit(X, y))
    with pytest.raises(ValueError, match="expected a PrivacyReport"):
        PrivacyReportDisplay.from_report({"epsilon": 1.0})
    with pytest.raises(ValueError, match="expected a PrivacyReport"):
        TradeOffDisplay.from_report({"epsilon": 1.0})
    (name,) = TradeOffDisplay.from_estimator(model).accuracies
    assert name == "model"


def test_curves_are_the_errors_of_the_best_attack_and_equal_guarantees_have_one():
    found = report(observer("server"), observer("peer"), observer("model", mu=0.1))
    display = TradeOffDisplay.from_report(found)
    assert list(display.accuracies) == ["server, peer", "model"]
    for line, seen in zip(display.lines_, found.observers[1:], strict=True):
        rates, least = line.get_xydata().T
        assert_array_equal(least, seen.guarantee.trade_off(rates))
        assert (rates[0], rates[-1], least[0]) == (0.0, 1.0, 1.0)
    assert_array_equal(display.diagonal_.get_xydata(), [[0, 1], [1, 0]])
    assert len(display.fill_between_) == 2
    legend = words(display.ax_.get_legend().get_texts())
    assert legend[0] == "server, peer: right at most 59.88 %"
    again = TradeOffDisplay.from_guarantee(NonPrivate(), ax=display.ax_)
    assert again.ax_ is display.ax_
    assert again.lines_[0].get_ydata().max() == 0.0


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (
        lambda: PrivacyUtilityDisplay.from_estimator(None, None, None),
        lambda: PrivacyReportDisplay.from_report(report(observer())),
        lambda: TradeOffDisplay.from_guarantee(GaussianDP(1.0)),
        lambda: TopologyDisplay.from_estimator(Topology(n_agents=3)),
    ):
        with pytest.raises(ImportError, match=r"skdpadmm\[plot\]"):
            draw()


# The account of a study.


def test_fits_that_differ_in_their_seed_warn_once_of_a_weak_signal():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        utility(epsilons=[0.01, 0.02, 10.0], n_seeds=3)
    assert [w.category for w in caught] == [WeakSignalWarning] * 2


def test_the_account_is_the_total_after_each_fit_and_the_limit(tmp_path):
    path = str(tmp_path / "study.db")
    ledger = PrivacyLedger(f"{path}::adult")
    ledger.limit(9.0, 1e-6)

    def fit(account, mu, **more):
        entry = LedgerEntry("Lasso", "0" * 64, 1e-6, (observer(mu=mu),), **more)
        account.finish(account.reserve(entry))

    for account, mu in ((ledger, 0.3), (PrivacyLedger(f"{path}::bank"), 5.0), (ledger, 0.4)):
        fit(account, mu)
    display = PrivacyLedgerDisplay.from_ledger(ledger)
    totals = [0.0, *(GaussianDP(mu).epsilon(1e-6) for mu in (0.3, 0.5))]
    assert_allclose(display.line_.get_xydata(), np.column_stack([[0, 1, 2], totals]))
    assert display.limit_.get_ydata() == [9.0, 9.0]
    assert (display.ax_.get_title("left"), display.delta) == ("adult", 1e-6)
    ticks = display.ax_.get_xticks()
    assert_allclose(ticks, np.round(ticks))
    for _ in range(200):
        fit(ledger, 0.01, simulation=True)
    display = PrivacyLedgerDisplay.from_ledger(ledger, delta=1e-5, include_simulated=True)
    assert display.limit_ is None
    assert (len(display.n_fits), display.n_fits[-1]) == (60, 202)
    assert display.epsilons[-1] == ledger.total(1e-5, include_simulated=True, kind="fixed")
    with pytest.raises(ValueError, match="no limit"):
        PrivacyLedgerDisplay.from_ledger(PrivacyLedger(f"{path}::bank"))


# Coefficients.


def test_a_forest_plot_shows_intervals_and_hollow_marks_where_there_are_none():
    table = CoefficientInference(
        names=("age", "sex", "intercept"),
        units=("per 1", "where true", "where all columns are 0"),
        estimate=np.array([0.5, -1.0, 2.0]),
        covariance=np.diag([0.04, 1.0, 1.0]),
        known=np.array([True, False, True]),
        exponentiate=True,
    )
    display = CoefficientDisplay(table=table, level=0.9).plot()
    (segment,) = display.errorbar_[2][0].get_segments()
    assert_allclose(segment[:, 0], np.exp(table.interval(0.9)[0]))
    assert_allclose(display.points_.get_xdata(), np.exp([-1.0]))
    assert words(display.ax_.get_yticklabels()) == ["age (per 1)", "sex (where true)"]
    assert display.ax_.get_xscale() == "log"
    X, y = data()
    model = ridge(intervals=True, random_state=0).fit(X, y)
    drawn = CoefficientDisplay.from_estimator(model)
    assert_array_equal(drawn.values, model.inference_.table())
