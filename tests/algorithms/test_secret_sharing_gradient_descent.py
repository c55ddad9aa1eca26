"""Gradient descent on shared sums: its steps, what is counted, and the printed protocol."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
import pytest

from skdpadmm import DPDecentralizedRegressor, DPFedRidge
from skdpadmm.algorithms import SecretSharingGradientDescent
from skdpadmm.algorithms.planning._messages import CERTAIN
from skdpadmm.losses import SquaredLoss
from skdpadmm.network import named_graph
from skdpadmm.noise import grid_cell
from skdpadmm.penalties import L1, SquaredL2
from tests.algorithms import runs as agents
from tests.algorithms.runs import Watched, data_for, make_task
from tests.algorithms.runs import run_agents as run


@pytest.mark.parametrize(
    ("loss", "unit", "penalty", "momentum", "curators"),
    [
        ("squared", "record", L1(0.05), 0.7, None),
        ("logistic", "agent", SquaredL2(0.1), 0.5, 2),
        ("three", "record", SquaredL2(0.1), 0.0, 3),
    ],
)
def test_messages_are_gradients_at_the_public_model_and_steps_follow_their_sum(
    loss, unit, penalty, momentum, curators
):
    """Section 2.1 repaired: no gradient is taken at a model that only its agent knows."""
    algorithm = SecretSharingGradientDescent(
        step_size=0.6, clip_norm=0.4, momentum=momentum, tail_fraction=0.5, n_curators=curators
    )
    task = make_task(loss, unit=unit, penalty=penalty, max_iter=6)
    _, solution, gate = run(algorithm, task, epsilon=30.0, gate_class=Watched)
    w = np.zeros((4, task.facts.loss.n_outputs))
    previous, tail = w, 0.0 * w
    messages = [(value, out) for method, value, out, _ in gate.passed if method == "share"]
    for k, (value, out) in enumerate(messages):
        point = w + momentum * (w - previous)
        expected = [agents.summed_gradient(task, a, point, 0.8) / 0.8 for a in range(4)]
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-9)
        u = point - 0.6 * 0.8 / 25 * out
        previous, w = w, agents.shrunk(u, penalty, 0.6)
        tail = tail + u / 3 * (k >= 3)
    agents.assert_common(solution, agents.shrunk(tail, penalty, 0.6))
    assert len(messages) == 6


@pytest.mark.parametrize("estimator", [DPFedRidge, DPDecentralizedRegressor])
@pytest.mark.parametrize(
    ("graph", "curators", "conditioning"),
    [("ring", None, "private"), ("star", 2, None), ("barabasi-albert", 5, "private")],
)
def test_messages_are_those_of_every_hop_of_every_share(estimator, graph, curators, conditioning):
    X, y = data_for(SquaredLoss(), n=120)
    algorithm = SecretSharingGradientDescent(n_curators=curators)
    knobs = {"n_agents": 7, "max_iter": 4, "conditioning": conditioning, "epsilon": 20.0}
    model = estimator(algorithm=algorithm, random_state=0, **knobs)
    count, links = curators or 7, named_graph(graph, 7)
    # With a server: a share of everyone to each curator, their sum, and that to everyone.
    each = count * (7 + 1 + 7)
    if estimator is DPDecentralizedRegressor:
        model.set_params(topology=graph)
        pairs = itertools.product(range(7), range(count))
        each = sum(2 * nx.shortest_path_length(links, a, c) for a, c in pairs)
    model.fit(X, y)
    releases = model.plan(120, 3).releases
    messages = each * sum(r.times for r in releases)
    numbers = each * sum(r.times * math.prod(r.shape) for r in releases)
    assert (model.n_messages_, model.bytes_sent_) == (messages, 8 * numbers)


def test_preparations_pay_for_the_grid_that_their_shares_are_on():
    def first(algorithm):
        model = DPFedRidge(algorithm=algorithm, adversary="sums", delta=1e-8)
        return model.set_params(conditioning="private").plan(1_000_000, 100).releases[0]

    shared, plain = first("secret-sharing-gradient-descent"), first("federated-admm")
    ratio = shared.sensitivities[0] / plain.sensitivities[0]
    expected = 1 + grid_cell(1.0) * math.sqrt(shared.shape[0]) / shared.guarantees("sums")[0].mu
    assert ratio >= expected / CERTAIN
    assert ratio == pytest.approx(expected, 1e-4)


@pytest.mark.parametrize(("h", "n_honest", "n_rounds", "inflation"), [
    (1.0, 2, 2, 1.4), (0.5, 2, 2, (0.25 + 1 + 4) / (0.25 + 4)), (1.0, 2, 100, 1.6),
    (1.0, 10, 100, 3.06), (1.0, 100, 100, 3.86), (0.1, 100, 100, 1.205),
])  # fmt: skip
def test_gradients_at_hidden_models_as_printed_tell_more_than_was_claimed(
    h, n_honest, n_rounds, inflation
):
    """Squared mu of all sums of (honest) agents over that of fresh noise, by their covariance.

    Losses are quadratic with step times curvature h, but for the victim's, which is linear: a sum
    shows its shift and noise, and of others their noise less h times what was hidden before.
    """
    rounds = np.arange(n_rounds)
    left = np.tril(np.power(-h, np.maximum(rounds[:, None] - rounds, 0)))
    for hidden, expected in ((left, inflation), (np.eye(n_rounds), 1.0)):
        covariance = np.eye(n_rounds) + (n_honest - 1) * hidden @ hidden.T
        found = np.linalg.solve(covariance, np.ones(n_rounds)).sum() * n_honest / n_rounds
        assert found == pytest.approx(expected, abs=0.005)
