"""Pictures of networks: what is drawn is what was released, and what is public."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

from skdpadmm import DPAdmmRidge, DPDecentralizedClassifier, DPDecentralizedRegressor
from skdpadmm.inspection import plot_network
from skdpadmm.network import TOPOLOGIES, Topology, resolve_topology
from skdpadmm.privacy import GaussianDP

mpl = pytest.importorskip("matplotlib")
plt = pytest.importorskip("matplotlib.pyplot")

AGENTS = np.array(["ann", "bob", "cas", "dan", "eve"])


@pytest.fixture(autouse=True)
def without_a_display():
    with mpl.rc_context({"figure.max_open_warning": 0}):
        mpl.use("Agg")
        yield
        plt.close("all")


def data(n_per_agent=40):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n_per_agent * len(AGENTS), 3))
    return X, X @ [1.0, -0.5, 0.2], np.repeat(AGENTS, n_per_agent)


@pytest.fixture(scope="module")
def model():
    X, y, agents = data()
    parameters = {"topology": "path", "feature_bounds": (-1, 1), "target_bounds": (-2, 2)}
    model = DPDecentralizedRegressor(
        **parameters, epsilon=[1.0, 2.0, 3.0, 4.0, 5.0], max_iter=5, random_state=0
    )
    return model.fit(X, y, agents=agents)


def points(ax):
    """Numbers that the agents are coloured by, in the order they are drawn in."""
    return np.asarray(ax.collections[1].get_array())


def bar(ax):
    """What the colour bar says."""
    (found,) = (other for other in ax.figure.axes if other is not ax)
    return found.get_ylabel()


def lines(ax):
    """Ends of the lines that are drawn, of shape (n_edges, 2, 2)."""
    return np.array(ax.collections[0].get_segments())


@dataclass(frozen=True)
class FarIsBetter:
    """Pairs whose guarantee depends on how far apart they are."""

    def guarantee(self, agent, peer):
        return GaussianDP(0.1 / abs(agent - peer))


def test_disagreement_is_what_the_consensus_error_summarises(model):
    ax = plot_network(model, color="disagreement")
    assert math.sqrt(np.mean(points(ax) ** 2)) == pytest.approx(model.consensus_error_, rel=1e-12)
    assert points(ax)[2] == pytest.approx(
        math.hypot(
            *(model.coef_per_agent_[2] - model.coef_),
            model.intercept_per_agent_[2] - model.intercept_,
        )
    )
    assert "average model" in bar(ax)


def test_disagreement_of_classifiers_sums_over_classes():
    X, y, agents = data()
    labels = np.digitize(y, [-0.3, 0.3])
    model = DPDecentralizedClassifier(classes=[0, 1, 2], max_iter=3, random_state=0)
    model.fit(X, labels, agents=agents)
    drawn = points(plot_network(model, color="disagreement"))
    assert math.sqrt(np.mean(drawn**2)) == pytest.approx(model.consensus_error_, rel=1e-12)


def test_epsilon_is_that_of_each_agent_against_the_adversary(model):
    ax = plot_network(model, color="epsilon")
    assert_allclose(points(ax), [1, 2, 3, 4, 5], rtol=1e-3)
    assert_array_equal(points(ax), model.privacy_.epsilon_per_agent())
    assert bar(ax) == "epsilon against the eavesdropper (delta=1e-05)"


def test_leak_is_the_pairwise_epsilon_of_everyone_but_the_peer(model):
    ax = plot_network(model, color="leak", peer="cas")
    expected = [
        model.privacy_.pairwise(agent, "cas") for agent in model.agent_labels_ if agent != "cas"
    ]
    assert_array_equal(points(ax), expected)
    assert bar(ax) == "epsilon against cas (delta=1e-05)"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["agent cas"]


def test_leak_tells_pairs_apart_where_a_theorem_does(model):
    report = model.privacy_
    observers = tuple(
        replace(o, pairs=FarIsBetter()) if o.name == "peer" else o for o in report.observers
    )
    fitted = DPDecentralizedRegressor(**model.get_params())
    vars(fitted).update(vars(model), privacy_=replace(report, observers=observers))
    near_to_far = points(plot_network(fitted, color="leak", peer="ann"))
    assert (np.diff(near_to_far) < 0).all()


def test_the_lines_are_the_edges_of_the_fit(model):
    ax = plot_network(model)
    assert len(lines(ax)) == 4
    assert ax.get_title() == "path, 4 edges, degrees 1 to 2"
    assert [text.get_text() for text in ax.texts] == AGENTS.tolist()


def test_a_random_graph_is_the_one_that_the_fit_drew():
    X, y, agents = data()
    model = DPDecentralizedRegressor(topology="erdos-renyi", max_iter=2, random_state=7)
    model.fit(X, y, agents=agents)
    drawn = plot_network(model).get_title()
    assert drawn == resolve_topology("erdos-renyi", AGENTS, seed=7).describe()
    assert f"The graph is public: {drawn}." in model.privacy_.assumptions


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("n_agents", [1, 2, 4, 16])
def test_every_graph_is_drawn_with_agents_in_different_places(name, n_agents):
    topology = resolve_topology(name, np.arange(n_agents))
    ax = plot_network(topology, color=np.arange(n_agents), color_title="number")
    places = ax.collections[1].get_offsets()
    assert len(np.unique(np.round(places, 6), axis=0)) == n_agents
    assert len(lines(ax)) == topology.n_edges
    ax.figure.draw_without_rendering()


@pytest.mark.parametrize("name", ["complete", "ring", "star"])
def test_five_hundred_agents_are_drawn_without_labels(name):
    topology = resolve_topology(name, np.arange(500))
    ax = plot_network(topology, color=np.arange(500), peer=3)
    assert len(ax.texts) == 0
    assert len(points(ax) if name != "complete" else ax.collections[0].get_array()) == 499
    ax.figure.draw_without_rendering()


def test_lines_that_would_fill_the_picture_are_left_out_and_the_title_says_so():
    ax = plot_network(resolve_topology("complete", np.arange(300)))
    assert len(ax.collections) == 1
    assert ax.get_title() == "complete, 44850 edges, degree 299, not drawn"


def test_one_agent_that_is_its_own_peer_leaves_nothing_to_colour():
    ax = plot_network(resolve_topology("ring", np.arange(1)), color=[1.0], peer=0)
    assert ax.figure.axes == [ax]


def test_equal_numbers_still_have_a_colour_bar():
    ax = plot_network(resolve_topology("ring", np.arange(5)), color=np.ones(5), color_title="ones")
    ax.figure.draw_without_rendering()
    assert bar(ax) == "ones"


def test_it_draws_where_it_is_told_to():
    _, axes = plt.subplots(1, 2)
    places = np.arange(6.0).reshape(3, 2)
    ax = plot_network(Topology(n_agents=3), positions=places, ax=axes[1])
    assert ax is axes[1]
    assert_array_equal(ax.collections[1].get_offsets(), places)
    assert not axes[0].has_data()


def test_the_same_graph_is_drawn_the_same_way_each_time():
    topology = resolve_topology("barabasi-albert", np.arange(200))
    one, other = (plot_network(topology).collections[1].get_offsets() for _ in range(2))
    assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"color": "leak"}, "without peer, expected the label of an agent"),
        ({"color": "leak", "peer": "zoe"}, "Got peer .*zoe"),
        ({"color": "risk"}, "expected one of .*'leak', 'epsilon', 'disagreement'"),
        ({"color": [1.0, 2.0]}, r"shape \(2,\), expected a finite number for each of 5 agents"),
        ({"color": [1.0, 2.0, 3.0, 4.0, math.nan]}, "expected a finite number"),
        ({"positions": [[0.0, 0.0]]}, r"positions of shape \(1, 2\), expected .* \(5, 2\)"),
    ],
)
def test_what_cannot_be_drawn_is_refused(model, parameters, message):
    with pytest.raises(ValueError, match=message):
        plot_network(model, **parameters)


def test_a_graph_alone_has_no_leak_and_says_so():
    with pytest.raises(ValueError, match="expected a fitted estimator"):
        plot_network(Topology(n_agents=3), color="epsilon")


def test_a_fit_that_is_not_private_has_no_finite_leak():
    X, y, agents = data()
    model = DPDecentralizedRegressor(epsilon=math.inf).fit(X, y, agents=agents)
    with pytest.raises(ValueError, match="not private"):
        plot_network(model, color="leak", peer="ann")
    assert_array_equal(points(plot_network(model, color="disagreement")), np.zeros(5))


def test_only_fitted_networks_have_a_picture():
    with pytest.raises(NotFittedError):
        plot_network(DPDecentralizedRegressor())
    with pytest.raises(ValueError, match="expected a fitted decentralised estimator"):
        plot_network(DPAdmmRidge())


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"skdpadmm\[plot\]"):
        plot_network(Topology(n_agents=3))
