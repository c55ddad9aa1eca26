"""Pictures in scikit-learn's convention: what is drawn is what was computed."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.dummy import DummyRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_absolute_error
from sklearn.pipeline import make_pipeline

from skdpadmm import (
    DPAdmmLogisticRegression,
    DPAdmmRidge,
    DPDecentralizedClassifier,
    DPDecentralizedRegressor,
    DPFedRidge,
    DPPersonalizedClassifier,
    DPPersonalizedRegressor,
)
from skdpadmm.inspection import PrivacyReportDisplay, PrivacyUtilityDisplay, TopologyDisplay
from skdpadmm.model_selection import DPGridSearchCV
from skdpadmm.network import Topology, resolve_topology
from skdpadmm.preprocessing import BoundedScaler
from skdpadmm.privacy import (
    GaussianDP,
    Neighboring,
    NonPrivate,
    Observer,
    PrivacyReport,
    round_up,
)

mpl = pytest.importorskip("matplotlib")
plt = pytest.importorskip("matplotlib.pyplot")

AGENTS = np.array(["ann", "bob", "cas", "dan"])
BOUNDS = {"feature_bounds": (-1, 1), "target_bounds": (-2, 2)}


@pytest.fixture(autouse=True)
def without_a_display():
    with mpl.rc_context({"figure.max_open_warning": 0}):
        mpl.use("Agg")
        yield
        plt.close("all")


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


def test_scores_are_those_of_seeded_clones_on_rows_that_were_not_fitted():
    X, y = data()
    X_test, y_test = data(seed=1)
    display = utility(X=X, y=y, X_test=X_test, y_test=y_test, random_state=7)
    by_hand = [
        [ridge(epsilon=e, random_state=seed).fit(X, y).score(X_test, y_test) for seed in (7, 8)]
        for e in (1.0, 10.0, math.inf)
    ]
    assert_array_equal(display.scores, by_hand[:2])
    assert_array_equal(display.non_private_scores, by_hand[2])
    assert display.constant_score == DummyRegressor().fit(X, y).score(X_test, y_test)


def test_the_line_is_the_mean_and_the_band_one_standard_deviation():
    display = utility(n_seeds=3)
    (line,), (band,) = display.lines_, display.fill_between_
    mean, spread = display.scores.mean(axis=1), display.scores.std(axis=1, ddof=1)
    assert_array_equal(line.get_xdata(), [1.0, 10.0])
    assert_allclose(line.get_ydata(), mean)
    (extent,) = (path.get_extents() for path in band.get_paths())
    assert extent.ymin == pytest.approx((mean - spread).min())
    assert extent.ymax == pytest.approx((mean + spread).max())
    baselines = [set(baseline.get_ydata()) for baseline in display.baselines_]
    assert baselines == [
        {display.non_private_scores.mean()},
        {display.constant_score},
    ]
    assert "mean ± standard deviation, 3 seeds" in words(display.ax_.get_legend().get_texts())[0]
    assert display.ax_.figure is display.figure_


def test_accuracy_is_in_percent_and_the_constant_is_the_larger_class():
    X, y = data()
    labels = np.where(y > -0.5, "more", "less")
    model = DPAdmmLogisticRegression(C=1.0, classes=["less", "more"], feature_bounds=(-1, 1))
    X_test = data(seed=1)[0]
    y_test = ["more"] * 300 + ["less"] * 100
    display = utility(model, X, labels, X_test=X_test, y_test=y_test)
    assert display.constant_score == 75.0
    assert display.ax_.get_ylabel() == "accuracy in percent"
    assert display.scores.max() > 1.0


@pytest.mark.parametrize(
    ("scoring", "label"),
    [
        ("neg_mean_absolute_error", "mean absolute error, in units of the target"),
        ("neg_mean_squared_error", "mean squared error"),
        ("r2", "R2"),
    ],
)
def test_errors_are_positive_and_named_so(scoring, label):
    display = utility(scoring=scoring)
    assert display.scores.min() > 0
    assert display.ax_.get_ylabel() == label
    display = utility(scoring=scoring, score_name="what it is, in EUR")
    assert display.ax_.get_ylabel() == "what it is, in EUR"


def test_the_constant_of_absolute_errors_is_the_median():
    X, _ = data()
    y = np.r_[np.zeros(300), np.full(100, 2.0)]
    display = utility(X=X, y=y, X_test=X, y_test=y, scoring="neg_mean_absolute_error")
    assert display.constant_score == mean_absolute_error(y, np.zeros(400))


def test_a_callable_scores_the_model_itself():
    def largest_coefficient(model, X, y):
        return float(np.abs(getattr(model, "coef_", np.zeros(1))).max())

    display = utility(scoring=largest_coefficient)
    assert display.non_private_scores[0] == pytest.approx(1.0, rel=0.02)
    assert display.ax_.get_ylabel() == "largest coefficient"


def test_a_quarter_of_each_agents_rows_is_held_out():
    X, y = data(41)
    owners = np.array(["ann"] * 30 + ["bob"] * 8 + ["cas"] * 3)
    seen = {}

    def remember(model, X_test, y_test):
        seen["rows"] = np.flatnonzero(np.isin(y, y_test))
        return 0.0

    utility(DPFedRidge(**BOUNDS), X, y, agents=owners, epsilons=[1.0], scoring=remember)
    assert np.unique(owners[seen["rows"]], return_counts=True)[1].tolist() == [7, 2]


def test_one_seed_and_one_budget_are_a_point_without_a_band():
    display = utility(n_seeds=1, epsilons=[2.0])
    assert display.scores.shape == (1, 1)
    assert display.fill_between_ == []
    assert words(display.ax_.get_legend().get_texts())[0] == "DPAdmmRidge"


def test_several_targets_are_refused_as_by_a_fit():
    X, y = data()
    with pytest.raises(ValueError, match="1d array"):
        utility(X=X, y=np.column_stack([y, -y]))


def test_the_same_call_draws_the_same_and_the_estimator_stays_as_it_was():
    model = ridge(epsilon=3.0)
    first, second = utility(model), utility(model, n_jobs=2)
    assert_array_equal(first.scores, second.scores)
    assert model.epsilon == 3.0
    assert model.random_state is None
    assert not hasattr(model, "coef_")


def test_a_pipeline_is_fitted_with_the_budgets_of_its_last_step():
    X, y = data()
    piped = make_pipeline(BoundedScaler(lower=-1.0, upper=1.0), ridge())
    assert_allclose(utility(piped, X, y).scores, utility(ridge(), X, y).scores)


def test_sparse_rows_and_tables_are_held_out_too():
    pd = pytest.importorskip("pandas")
    X, y = data()
    expected = utility(X=X, y=y).scores
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    assert_array_equal(utility(X=table, y=pd.Series(y)).scores, expected)
    assert_allclose(utility(X=sparse.coo_array(X), y=y).scores, expected, rtol=1e-6)
    assert_array_equal(utility(X=X.tolist(), y=y.tolist()).scores, expected)


@pytest.mark.parametrize("family", [DPFedRidge, DPDecentralizedRegressor, DPPersonalizedRegressor])
def test_rows_are_held_out_with_their_agents(family):
    X, y = data()
    display = utility(family(**BOUNDS), X, y, agents=np.tile(AGENTS, 100), epsilons=[5.0])
    assert np.isfinite(display.scores).all()
    assert display.non_private_scores.min() > 0.9
    assert "against the" in display.ax_.get_xlabel()


def test_agents_of_test_rows_are_asked():
    X, y = data()
    owners = np.tile(AGENTS, 100)
    model = DPPersonalizedRegressor(**BOUNDS)
    display = utility(model, X, y, agents=owners, X_test=X, y_test=y, agents_test=owners)
    clone = DPPersonalizedRegressor(**BOUNDS, epsilon=1.0, random_state=0).fit(X, y, agents=owners)
    assert display.scores[0, 0] == clone.score(X, y, agents=owners)


@pytest.mark.parametrize(
    ("piped", "scoring"),
    # Pipelines hand agents to no decision function unless metadata is routed.
    [(True, None), (True, "neg_log_loss"), (False, None), (False, "roc_auc")],
)
@pytest.mark.parametrize("family", [DPPersonalizedClassifier, DPDecentralizedClassifier])
def test_scorers_ask_agents_of_held_out_rows(family, piped, scoring):
    X, y = data()
    model = family(classes=["less", "more"], feature_bounds=(-1, 1), max_iter=20)
    if piped:
        model = make_pipeline(BoundedScaler(lower=-1.0, upper=1.0), model)
    labels, owners = np.where(y > 0, "more", "less"), np.tile(AGENTS, 100)
    display = utility(model, X, labels, agents=owners, scoring=scoring, epsilons=[20.0], n_seeds=1)
    assert abs(display.scores[0, 0] - display.constant_score) > 0.2


@pytest.mark.parametrize("public", [True, False])
def test_the_picture_says_that_no_guarantee_covers_it(public):
    X, y = data()
    display = utility(**({"X_test": X, "y_test": y} if public else {}))
    note = display.note_.get_text()
    assert "No guarantee" in note
    assert ("private rows" in note) is not public
    display.ax_.set_title("A title of one's own", loc="left")
    assert display.note_ in display.ax_.texts


def test_curves_share_axes_and_their_note():
    first = utility()
    second = utility(
        ridge(alpha=1.0), epsilons=[0.5], ax=first.ax_, plot_baselines=False, name="held"
    )
    assert second.ax_ is first.ax_
    assert second.baselines_ == []
    assert second.note_ is first.note_
    assert [tick.get_text() for tick in first.ax_.get_xticklabels()] == ["0.5", "1", "10"]
    names = words(first.ax_.get_legend().get_texts())
    assert [name.partition(":")[0] for name in names] == [
        "DPAdmmRidge", "not private (epsilon=inf)", "constant model", "held",
    ]  # fmt: skip
    drawn = [(len(line.get_xdata()), line.get_color()) for line in (*first.lines_, *second.lines_)]
    assert drawn[0] != drawn[1]


def test_a_ledger_is_refused_before_any_fit(tmp_path):
    path = str(tmp_path / "study.db")
    with pytest.raises(ValueError, match="expected None: fits of a picture"):
        utility(ridge(ledger=path))
    assert not (tmp_path / "study.db").exists()
    piped = make_pipeline(BoundedScaler(lower=-1.0, upper=1.0), ridge(ledger=path))
    with pytest.raises(ValueError, match=r"dpadmmridge__ledger=.*expected None"):
        utility(piped)
    search = DPGridSearchCV(ridge(), {"alpha": [0.0, 1.0]}, ledger=path)
    with pytest.raises(ValueError, match="expected None"):
        utility(search)


def fits_nothing(*args, **kwargs):
    raise AssertionError("fitted")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilons": [1.0, math.inf]}, "distinct numbers in"),
        ({"epsilons": [1.0, 1.0]}, "distinct numbers in"),
        ({"epsilons": [0.0]}, "distinct numbers in"),
        ({"epsilons": []}, "distinct numbers in"),
        ({"n_seeds": 0}, "n_seeds"),
        ({"random_state": -1}, "random_state"),
        ({"X_test": np.zeros((2, 3))}, "X_test, y_test and agents_test"),
        ({"agents_test": ["ann"]}, "X_test, y_test and agents_test"),
        (
            {"X_test": np.zeros((1, 3)), "y_test": [0], "agents_test": ["ann"]},
            "agents_test without agents",
        ),
        ({"X": np.zeros((3, 3)), "y": np.zeros(3)}, "Got 3 rows"),
        ({"scoring": "accurate"}, "accurate"),
        ({"agents": ["ann"]}, "inconsistent numbers"),
        ({"estimator": Ridge()}, "parameters epsilon and random_state"),
    ],
)
def test_bad_input_is_refused_before_any_fit(parameters, message, monkeypatch):
    monkeypatch.setattr(DPAdmmRidge, "fit", fits_nothing, raising=False)
    with pytest.raises(ValueError, match=message):
        utility(**parameters)


def test_a_graph_of_a_fit_has_its_agents_and_its_lines():
    X, y = data()
    model = DPDecentralizedRegressor(**BOUNDS, topology="path", max_iter=3, random_state=0)
    with pytest.raises(NotFittedError):
        TopologyDisplay.from_estimator(model)
    model.fit(X, y, agents=np.tile(AGENTS, 100))
    display = TopologyDisplay.from_estimator(model, color="epsilon", peer="bob")
    (edges,) = display.lines_
    assert len(edges.get_segments()) == 3
    assert sum(len(points.get_offsets()) for points in display.points_) == len(AGENTS)
    assert set(words(display.ax_.texts)) == set(AGENTS.tolist())
    ax = plt.figure().add_subplot()
    assert display.plot(ax=ax).ax_ is ax
    assert display.figure_ is ax.figure
    assert len(display.plot(ax=ax).lines_) == 1


def test_a_graph_alone_has_a_picture():
    ring = resolve_topology("ring", np.arange(5))
    display = TopologyDisplay.from_topology(ring, color=np.arange(5.0), color_title="hops")
    assert len(display.lines_[0].get_segments()) == 5
    assert_array_equal(display.values, np.arange(5.0))
    with pytest.raises(ValueError, match="expected a Topology"):
        TopologyDisplay.from_topology("ring")


def test_bars_are_epsilons_and_worst_cases_stand_beside():
    always = GaussianDP(1.0)
    found = report(observer("server", 0.5, always=always), observer("model", 0.1))
    display = PrivacyReportDisplay.from_report(found)
    assert widths(display.bars_) == [found.epsilon("server"), found.epsilon("model")]
    assert widths(display.worst_bars_) == [always.epsilon(1e-6)]
    assert words(display.ax_.texts) == [
        round_up(found.epsilon("server")),
        f"at worst: {round_up(always.epsilon(1e-6))}",
        round_up(found.epsilon("model")),
    ]
    assert "server" in display.ax_.get_title(loc="left")
    assert display.ax_.get_xlabel() == "epsilon per record (delta=1e-06)"


def test_what_is_protected_stands_by_each_observer_where_they_differ():
    agent = Observer("model", "all", "agent", Neighboring.REPLACE_ONE, GaussianDP(0.1))
    display = PrivacyReportDisplay.from_report(report(observer(), agent))
    assert words(display.ax_.get_yticklabels()) == ["server (record)", "model (agent)"]
    assert display.ax_.get_xlabel() == "epsilon (delta=1e-06)"


def test_agents_that_differ_have_bars():
    own = (GaussianDP(0.1), GaussianDP(0.2))
    found = report(observer(mu=0.2, per_agent=own), labels=("east", "west"))
    display = PrivacyReportDisplay.from_report(found)
    assert_array_equal(widths(display.agent_bars_), found.epsilon_per_agent())
    labels = words(display.ax_.get_yticklabels())
    assert labels == ["server", "agent east", "agent west"]
    assert display.agent_epsilons == dict(
        zip(found.agent_labels, widths(display.agent_bars_), strict=True)
    )
    alike = report(observer(mu=0.2, per_agent=(own[1],) * 2), labels=("east", "west"))
    assert PrivacyReportDisplay.from_report(alike).agent_bars_ == []


def test_many_agents_are_told_by_three():
    own = tuple(GaussianDP(0.01 * (k + 1)) for k in range(101))
    found = report(observer(mu=1.01, per_agent=own), labels=tuple(range(101)))
    display = PrivacyReportDisplay.from_report(found)
    assert_array_equal(widths(display.agent_bars_), found.epsilon_per_agent()[[0, 50, 100]])
    assert words(display.ax_.get_yticklabels())[1:] == [
        "lowest of 101: agent 0",
        "median of 101: agent 50",
        "highest of 101: agent 100",
    ]


def test_another_delta_gives_other_epsilons():
    found = report(observer())
    display = PrivacyReportDisplay.from_report(found, delta=1e-3)
    assert widths(display.bars_) == [found.epsilon(delta=1e-3)]
    with pytest.raises(ValueError, match="delta"):
        PrivacyReportDisplay.from_report(found, delta=2.0)


def test_what_is_not_private_has_words_and_no_bar():
    open_to = Observer("model", "all", "record", Neighboring.REPLACE_ONE, NonPrivate())
    display = PrivacyReportDisplay.from_report(report(open_to))
    assert widths(display.bars_) == [0.0]
    assert words(display.ax_.texts) == ["not private"]


def test_a_simulation_says_so():
    display = PrivacyReportDisplay.from_report(report(observer(), simulation="a seed"))
    assert "SIMULATION" in display.ax_.get_title(loc="left")


def test_reports_of_fits_are_drawn():
    X, y = data()
    budgets = {"ann": 1.0, "bob": 2.0, "cas": 0.5, "dan": 1.0}
    model = DPFedRidge(**BOUNDS, epsilon=budgets, random_state=0)
    with pytest.raises(NotFittedError):
        PrivacyReportDisplay.from_estimator(model)
    model.fit(X, y, agents=np.tile(AGENTS, 100))
    display = PrivacyReportDisplay.from_estimator(model)
    assert list(display.epsilons) == [seen.name for seen in model.privacy_.observers]
    assert_allclose(widths(display.agent_bars_), list(budgets.values()), rtol=1e-6)
    piped = make_pipeline(BoundedScaler(lower=-1.0, upper=1.0), ridge(random_state=0)).fit(X, y)
    assert len(PrivacyReportDisplay.from_estimator(piped).bars_) == 1


def test_what_has_no_report_is_refused():
    with pytest.raises(ValueError, match="with privacy_"):
        PrivacyReportDisplay.from_estimator(Ridge().fit(*data()))
    with pytest.raises(ValueError, match="expected a PrivacyReport"):
        PrivacyReportDisplay.from_report({"epsilon": 1.0})


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (
        lambda: PrivacyUtilityDisplay.from_estimator(None, None, None),
        lambda: PrivacyReportDisplay.from_report(report(observer())),
        lambda: TopologyDisplay.from_topology(Topology(n_agents=3)),
    ):
        with pytest.raises(ImportError, match=r"Display.*skdpadmm\[plot\]"):
            draw()
