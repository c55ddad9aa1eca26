"""Pictures of networks: what is drawn is what was released, and what is public."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

from skdpadmm import DPAdmmRidge, DPDecentralizedClassifier, DPDecentralizedRegressor
from skdpadmm.inspection import TopologyDisplay
from skdpadmm.network import TOPOLOGIES, Topology, resolve_topology

plt = pytest.importorskip("matplotlib.pyplot")

AGENTS = np.array(["ann", "bob", "cas", "dan", "eve"])
OWNERS = np.repeat(AGENTS, 40)
X = np.random.default_rng(0).uniform(-1, 1, (200, 3))
Y = X @ [1.0, -0.5, 0.2]


@pytest.fixture(scope="module")
def model():
    bounds = {"feature_bounds": (-1, 1), "target_bounds": (-2, 2)}
    own = {"epsilon": [1.0, 2.0, 3.0, 4.0, 5.0], "max_iter": 5, "random_state": 0}
    return DPDecentralizedRegressor(topology="path", **bounds, **own).fit(X, Y, agents=OWNERS)


def plot_network(network, **drawing):
    """The axes that a network is drawn on."""
    return TopologyDisplay.from_estimator(network, **drawing).ax_


def points(ax):
    """Numbers that the agents are coloured by, in the order they are drawn in."""
    return np.asarray(ax.collections[1].get_array())


def bar(ax):
    """What the colour bar says."""
    (found,) = (other for other in ax.figure.axes if other is not ax)
    return found.get_ylabel()


def test_disagreement_is_what_the_consensus_error_summarises(model):
    ax = plot_network(model, color="disagreement")
    assert "average model" in bar(ax)
    coef = model.coef_per_agent_[2] - model.coef_
    intercept = model.intercept_per_agent_[2] - model.intercept_
    assert points(ax)[2] == pytest.approx(math.hypot(*coef, intercept))
    labels = np.digitize(Y, [-0.3, 0.3])
    many = DPDecentralizedClassifier(classes=[0, 1, 2], max_iter=3, random_state=0)
    for one in (model, many.fit(X, labels, agents=OWNERS)):
        drawn = points(plot_network(one, color="disagreement"))
        assert math.sqrt(np.mean(drawn**2)) == pytest.approx(one.consensus_error_, rel=1e-12)


def test_epsilon_and_leak_are_those_of_the_report(model):
    ax = plot_network(model, color="epsilon")
    assert_allclose(points(ax), [1, 2, 3, 4, 5], rtol=1e-3)
    assert bar(ax) == "epsilon against the eavesdropper (delta=1e-05)"
    ax = plot_network(model, color="leak", peer="cas")
    expected = [model.privacy_.pairwise(agent, "cas") for agent in AGENTS if agent != "cas"]
    assert_array_equal(points(ax), expected)
    assert bar(ax) == "epsilon against cas (delta=1e-05)"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["agent cas"]


def test_the_lines_are_the_edges_of_the_fit_and_a_random_graph_is_the_one_it_drew(model):
    ax = plot_network(model)
    assert len(ax.collections[0].get_segments()) == 4
    assert ax.get_title() == "path, 4 edges, degrees 1 to 2"
    assert [text.get_text() for text in ax.texts] == AGENTS.tolist()
    display, (_, axes) = TopologyDisplay.from_estimator(model, color="epsilon"), plt.subplots(1, 2)
    assert display.plot(ax=axes[1]).ax_ is axes[1]
    assert not axes[0].has_data()
    random = DPDecentralizedRegressor(topology="erdos-renyi", max_iter=2, random_state=7)
    drawn = plot_network(random.fit(X, Y, agents=OWNERS)).get_title()
    assert drawn == resolve_topology("erdos-renyi", AGENTS, seed=7).describe()


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_graph_is_drawn_with_agents_in_different_places(name):
    for n_agents in (1, 16):
        topology = resolve_topology(name, np.arange(n_agents))
        ax = plot_network(topology, color=np.arange(n_agents))
        places = ax.collections[1].get_offsets()
        assert len(np.unique(np.round(places, 6), axis=0)) == n_agents
        assert len(ax.collections[0].get_segments()) == topology.n_edges


def test_large_graphs_are_drawn_without_labels_and_very_many_lines_left_out():
    ring = plot_network(resolve_topology("ring", np.arange(500)), color=np.arange(500), peer=3)
    assert (len(ring.texts), len(points(ring))) == (0, 499)
    complete = plot_network(resolve_topology("complete", np.arange(300)))
    assert len(complete.collections) == 1
    assert complete.get_title() == "complete, 44850 edges, degree 299, not drawn"


def test_colours_and_places_may_be_given():
    lonely = plot_network(resolve_topology("ring", np.arange(1)), color=[1.0], peer=0)
    assert lonely.figure.axes == [lonely]
    places, own = np.arange(6.0).reshape(3, 2), {"color": np.ones(3), "color_title": "ones"}
    display = TopologyDisplay.from_estimator(Topology(n_agents=3), positions=places, **own)
    display.figure_.draw_without_rendering()
    assert bar(display.ax_) == "ones"
    assert_array_equal(display.points_[0].get_offsets(), places)


def test_what_cannot_be_drawn_is_refused(model):
    for parameters, message in (
        ({"color": "leak"}, "without peer, expected the label of an agent"),
        ({"color": "leak", "peer": "zoe"}, "Got peer that hold no rows"),
        ({"color": "risk"}, "expected one of .*'leak', 'epsilon', 'disagreement'"),
        ({"color": [1.0, 2.0]}, r"Got color of shape \(2,\), expected finite .* \(5,\)"),
        ({"color": [1.0, 2.0, 3.0, 4.0, math.nan]}, "expected finite numbers"),
        ({"positions": [[0.0, 0.0]]}, r"positions of shape \(1, 2\), expected .* \(5, 2\)"),
    ):
        with pytest.raises(ValueError, match=message):
            plot_network(model, **parameters)


def test_only_fitted_networks_with_privacy_have_a_leak():
    open_to_all = DPDecentralizedRegressor(epsilon=math.inf).fit(X, Y, agents=OWNERS)
    assert_array_equal(points(plot_network(open_to_all, color="disagreement")), np.zeros(5))
    for one, options, message in (
        (open_to_all, {"color": "leak", "peer": "ann"}, "not private"),
        (Topology(n_agents=3), {"color": "epsilon"}, "expected a fitted estimator"),
        (DPDecentralizedRegressor(), {}, "not fitted"),
        (DPAdmmRidge(), {}, "expected a fitted decentralised estimator"),
    ):
        with pytest.raises((NotFittedError, ValueError), match=message):
            plot_network(one, **options)
    with pytest.raises(ValueError, match="or a Topology"):
        TopologyDisplay.from_estimator("ring")
