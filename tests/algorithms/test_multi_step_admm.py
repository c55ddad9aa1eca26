"""Multi-step ADMM: the corrected algorithm agent by agent."""

import math

import numpy as np
import pytest

from skdpadmm.algorithms import MultiStepADMM
from skdpadmm.algorithms._multi_step_admm import noisy_gradient_bound
from skdpadmm.penalties import ElasticNet, NoPenalty, SquaredL2
from tests.algorithms import runs as agents
from tests.algorithms.runs import Watched, make_task, neighbors_of
from tests.algorithms.runs import run_agents as run

N_ROUNDS, INNER = 4, 3
WEIGHTS = {
    "step": {"step_size": 0.8, "penalty_weight": 0.2},
    "constant": {"proximal_weight": 1.1, "penalty_weight": 0.4},
    # In weak ties and a ball that the growing weight needs.
    "growing": {"proximal_weight": "growing", "diameter": 1.5, "penalty_weight": 0.3},
}


def naive_path(task, plan, gate, clip):
    """Models at the start of every step and the points before them, agent by agent."""
    facts, settings = task.facts, plan.settings
    rho, topology = settings.penalty_weight, facts.agents.topology
    n, n_agents = facts.n_samples, facts.agents.n_agents
    radius, growth = settings.diameter / 2, 2 * noisy_gradient_bound(plan) / settings.diameter
    near, shape = neighbors_of(topology), (n_agents, facts.n_parameters, facts.loss.n_outputs)
    w, v, mean, gamma = (np.zeros(shape) for _ in range(4))
    models, points = [], []
    for k in range(N_ROUNDS):
        total = np.zeros(shape)
        for s in range(k * INNER, (k + 1) * INNER):
            models.append(w.copy())
            points.append(v.copy())
            batch = gate.drawn[s] < settings.batch_fraction if gate.drawn else None
            for a in range(n_agents):
                c = 1 / 0.8
                if settings.proximal_weight == "growing":
                    c = 2 * rho * len(near[a]) + growth * math.sqrt(2 * (s + 1))
                elif settings.proximal_weight is not None:
                    c = 2 * rho * len(near[a]) + 1.1
                g = (
                    agents.summed_gradient(task, a, w[a], clip, batch=batch)
                    + clip * gate.noise(s)[a]
                )
                eta, pull = c - 2 * rho * len(near[a]), sum(mean[a] + mean[b] for b in near[a])
                weight = n_agents / n / settings.batch_fraction
                v[a] = (eta * w[a] - weight * g + 2 * gamma[a] + rho * pull) / c
                w[a] = agents.clipped(agents.prox_of(task, v[[a]], [1 / c])[0], radius)
            total += w
        mean = total / INNER
        apart = [sum(mean[a] - mean[b] for b in near[a]) for a in range(n_agents)]
        gamma = gamma - rho / 2 * np.array(apart)
        assert np.abs(gamma.sum(axis=0)).max() < 1e-12
    return np.array(models), np.array(points)


@pytest.mark.parametrize(
    ("loss", "unit", "topology", "weight", "batches", "penalty"),
    [
        ("squared", "record", "star", "step", 1.0, SquaredL2(0.1)),
        ("squared", "agent", "path", "growing", 1.0, NoPenalty()),
        ("logistic", "agent", "star", "constant", 1.0, SquaredL2(0.1)),
        ("three", "record", "path", "constant", 1.0, NoPenalty()),
        ("three", "agent", "complete", "step", 1.0, SquaredL2(0.1)),
        ("squared", "record", "star", "step", 1.0, ElasticNet(0.1, 0.05)),
        ("logistic", "record", "ring", "step", 0.4, NoPenalty()),
    ],
)
def test_steps_equal_the_algorithm_agent_by_agent(loss, unit, topology, weight, batches, penalty):
    task = make_task(loss, topology=topology, unit=unit, penalty=penalty, max_iter=N_ROUNDS)
    clip = {"squared": 0.9, "logistic": 0.6, "three": 0.9}[loss]
    algorithm = MultiStepADMM(
        inner_steps=INNER, clip_norm=clip / 2, tail_fraction=0.5, batch_fraction=batches,
        **WEIGHTS[weight],
    )  # fmt: skip
    # The square root of four parameters is the typical norm of a row.
    plan, solution, gate = run(algorithm, task, epsilon=30.0, gate_class=Watched)
    models, points = naive_path(task, plan, gate, clip)
    agents.assert_tail(task, solution, models, points, 0.8)
    assert (solution.n_iter, solution.n_rounds) == (12, 4)
    assert len({drawn.tobytes() for drawn in gate.drawn}) == (12 if batches < 1 else 0)


@pytest.mark.parametrize(
    ("loss", "unit", "batches"),
    [("squared", "record", 1.0), ("logistic", "agent", 1.0), ("logistic", "record", 0.4)],
)
def test_compiled_steps_equal_the_algorithm_agent_by_agent(loss, unit, batches, monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr("skdpadmm.records._segments.COMPILED_ENTRIES", 0)
    test_steps_equal_the_algorithm_agent_by_agent(loss, unit, "star", "step", batches, NoPenalty())
