"""Multi-step ADMM: the corrected algorithm agent by agent, and the utility theorem."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from skdpadmm.algorithms import MultiStepADMM
from skdpadmm.algorithms._multi_step_admm import noisy_gradient_bound
from skdpadmm.penalties import ElasticNet, NoPenalty, SquaredL2
from skdpadmm.privacy import Neighboring
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


@pytest.mark.parametrize(("n_rounds", "inner", "topology"), [(10, 1, "star"), (40, 4, "ring")])
def test_excess_loss_and_disagreement_are_below_the_bound(topology, n_rounds, inner):
    r"""Theorem 7 with the corrected schedule, whose steps are counted through all rounds.

    Excess loss and beta times what neighbours disagree by, expected, are at most the sum over
    agents of :math:`\frac{\sqrt2 D G}{\sqrt{t l}} + \frac{|N| (\rho D^2 + \beta^2/\rho)}{t}
    + \frac{\beta |N| D}{t l}`, where :math:`G^2 = g^2 + d s^2` for gradients of norm g, noise s
    and d entries. As printed the schedule starts anew in every round, and nothing telescopes.
    """
    diameter, dual_bound, rho = 4.0, 0.3, 0.15
    task = make_task(
        sizes=(80,) * 5, topology=topology, n_features=2, fit_intercept=False,
        sort_by_target=True, max_iter=n_rounds, neighboring=Neighboring.ZERO_OUT,
    )  # fmt: skip
    X, y, norms = task.X, task.y, np.linalg.norm(task.X, axis=1)
    clip = (norms * (2 * norms + np.abs(y))).max()

    def total(parameters):
        return 5 * np.mean((np.einsum("ij,ij->i", X, parameters) - y) ** 2 / 2)

    best = minimize(lambda w: total(np.tile(w, (400, 1))), np.zeros(2), tol=1e-12)
    assert np.linalg.norm(best.x) < diameter / 2
    algorithm = MultiStepADMM(
        inner_steps=inner, proximal_weight="growing", diameter=diameter, penalty_weight=rho,
        clip_norm=clip / math.sqrt(2), tail_fraction=1.0,
    )  # fmt: skip
    links, left = task.facts.agents.topology, []
    for seed in range(8):
        plan, solution, _ = run(algorithm, task, gate_class=Watched, seed=seed)
        w = solution.parameters_per_agent[:, :, 0]
        apart = 2 * np.linalg.norm(w[links.edges[:, 0]] - w[links.edges[:, 1]], axis=1).sum()
        left.append(total(w[task.owner]) - best.fun + dual_bound * apart)
    std = 5 / 400 * clip * plan.releases[0].agent_noise_std[0]
    # The average leaves the last step out, which costs the last term.
    n_steps, size = n_rounds * inner, math.hypot(clip, math.sqrt(2) * std)
    bound = len(links.degrees) * math.sqrt(2 / n_steps) * diameter * size + links.degrees.sum() * (
        (rho * diameter**2 + dual_bound**2 / rho) / n_rounds + dual_bound * diameter / n_steps
    )
    assert np.mean(left) <= bound
