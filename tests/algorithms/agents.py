"""Algorithms of agents without an estimator: data, runs that are watched, naive parts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.linear_model import Lasso, LogisticRegression, Ridge

from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, Loss, MultinomialLoss, SquaredLoss
from skdpadmm.network import Ownership, Similarity, Topology, resolve_topology
from skdpadmm.noise import noise_source
from skdpadmm.penalties import L1, NoPenalty
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Gate, Neighborhood, Network, Plan, Problem, Solution
from skdpadmm.records import Rows, declared_coordinates, rounding_factor

LOSSES = {"squared": SquaredLoss(), "logistic": LogisticLoss(), "multinomial": MultinomialLoss(3)}
SIZES = (14, 5, 4, 2)


@dataclass(frozen=True)
class Task:
    """Public facts, rows inside the box [-1, 1] with targets in public units, and their owners."""

    facts: Facts
    X: Any
    y: Any
    owner: Any

    @property
    def A(self):
        """Augmented rows."""
        return np.column_stack([self.X, np.ones(len(self.X))])[:, : self.facts.n_parameters]

    def of(self, agent):
        return self.A[self.owner == agent], self.y[self.owner == agent]


def similarity_of(n_agents):
    """A ring with weights of its own, and a chord."""
    if n_agents == 1:
        return Similarity(n_agents=1)
    weights = np.diag(np.random.default_rng(1).uniform(0.5, 2.0, n_agents))
    weights = np.roll(weights, 1, axis=1)
    weights[0, n_agents // 2] = 0.3
    return Similarity(n_agents=n_agents, matrix=weights + weights.T)


def make_task(
    loss: Loss | str = "squared", sizes=SIZES, *, topology: Any = "ring", similarity=None,
    sort_by_target=False, n_features=3, fit_intercept=True, seed=0, **facts,
) -> Task:  # fmt: skip
    """A network of agents over a topology, or a neighbourhood by a similarity (True: a ring)."""
    loss = LOSSES[loss] if isinstance(loss, str) else loss
    rng, n = np.random.default_rng(seed), sum(sizes)
    owner = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    X = rng.uniform(-1, 1, size=(n, n_features))
    scores = X @ rng.normal(size=(n_features, loss.n_outputs)) + 0.3
    y = np.clip(scores[:, 0] + 0.1 * rng.normal(size=n), -3, 3)
    if isinstance(loss, MultinomialLoss):
        y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    elif not isinstance(loss, SquaredLoss):
        y = np.where(rng.random(n) < expit(2 * scores[:, 0]), 1.0, -1.0)
    if sort_by_target:
        owner = np.repeat(np.arange(len(sizes)), sizes)[np.argsort(np.argsort(scores[:, 0]))]
    c = declared_coordinates(
        n_features=n_features, fit_intercept=fit_intercept, feature_bounds=(-1, 1),
        has_target_scale=False,
    )  # fmt: skip
    own = {"agent_sizes": tuple(sizes), "sizes_matter": facts.get("unit") == "agent"}
    own["epsilons"] = facts.pop("epsilons", ())
    if similarity is not None:
        similarity = similarity_of(len(sizes)) if similarity is True else similarity
        confidence = tuple(max(size, 0.5) / max(sizes) for size in sizes)
        agents: Any = Neighborhood(
            similarity=similarity, confidence=confidence, trade_off=1.5, **own
        )
    else:
        if isinstance(topology, str):
            topology = resolve_topology(topology, np.arange(len(sizes)))
        agents = Network(topology=topology, **own)
    known = {
        "n_samples": n, "n_parameters": c.n_parameters, "loss": loss, "penalty": NoPenalty(),
        "neighboring": Neighboring.REPLACE_ONE, "row_norm": c.row_norm, "max_iter": 4,
        "rounding": rounding_factor(n_samples=n, coordinates=c), "is_declared": True,
        "coordinates": c, "agents": agents,
    }  # fmt: skip
    return Task(Facts(**(known | facts)), X, y, owner)


class Watched(Gate):
    """Keeps what passes; lets out `factor` times the noise of the plan."""

    factor = 1.0

    def __init__(self, plan: Plan, noise: Any) -> None:
        super().__init__(plan, noise)
        self.passed: list[tuple[str, Any, Any, Any]] = []

    def let_out(self, method, release, repetition, value, out, unit=0.0, agents=None):
        if method == "hidden_term":
            out = self.factor * out
        if value is not None and out.shape == value.shape and out.dtype == float:
            out = value + self.factor * (out - value)
        self.passed.append((method, value, out, agents))
        return out

    def noise(self, index):
        """Of a release or of turns, in its units; for turns a row for every agent awake."""
        values = [p for p in self.passed if p[0] in ("release", "take_turns")]
        return values[index][2] - values[index][1]

    @property
    def drawn(self):
        return [out for method, _, out, _ in self.passed if method == "uniform"]


class Silent(Watched):
    """As planned, without noise."""

    factor = 0.0


def planned(algorithm, task: Task, epsilon=1.0, delta=1e-5) -> Plan:
    """Where messages are shared out, agents are told so."""
    facts, budget = task.facts, Budget(epsilon=epsilon, delta=delta, observer="eavesdropper")
    agents = getattr(algorithm, "share_among", lambda agents: agents)(facts.agents)
    return algorithm.plan(replace(facts, agents=agents), budget)


def run(
    algorithm, task: Task, *, epsilon=1.0, gate_class=Silent, seed=0, source=None,
) -> tuple[Plan, Solution, Watched]:  # fmt: skip
    """Plan and run, by default without the noise that was planned."""
    plan = planned(algorithm, task, epsilon)
    gate = gate_class(plan, source or noise_source(seed, plan.digest()))
    ownership = Ownership(labels=np.arange(task.facts.agents.n_agents), index=task.owner)
    with np.errstate(all="ignore"), Engine(None).running() as engine:
        rows = Rows(task.X, task.facts.coordinates)
        problem = Problem(rows=rows, target=task.y, engine=engine, ownership=ownership)
        solution = algorithm.run(plan, problem, gate)
    gate.close()
    return plan, solution, gate


# What a reader would write.


def slopes(loss, scores, y):
    """Derivatives in the scores (n, K)."""
    if isinstance(loss, SquaredLoss):
        return scores - y[:, None]
    if isinstance(loss, LogisticLoss):
        return -y[:, None] * expit(-y[:, None] * scores)
    return softmax(scores, axis=1) - np.eye(scores.shape[1])[y]


def clipped(vector, bound, order=2):
    size = np.linalg.norm(np.ravel(vector), ord=order)
    return vector if size <= bound else vector * (bound / size)


def weights_of(penalty):
    """Weights of the L1 norm and of half the squared Euclidean one."""
    l1 = penalty.strength if isinstance(penalty, L1) else getattr(penalty, "l1", 0.0)
    return l1, penalty.strong_convexity


def shrunk(point, l1, l2, step):
    """Proximal step of an elastic net that leaves the intercept, in the last row, alone."""
    found = np.sign(point) * np.maximum(np.abs(point) - step * l1, 0) / (1 + step * l2)
    found[-1] = point[-1]
    return found


def prox_of(task, points, steps):
    l1, l2 = weights_of(task.facts.penalty)
    return np.array([shrunk(v, l1, l2, s) for v, s in zip(points, steps, strict=True)])


def tail_of(task, models, points, steps):
    """Mean of the second half of a path (k, n, p, K), and the last step that is taken from it.

    For a sparse penalty it is of points before proximal steps, brought to the mean length.
    """
    half = len(models) // 2
    models, points, steps = (np.array(part[half:]) for part in (models, points, steps))
    if not weights_of(task.facts.penalty)[0]:
        return models.mean(axis=0), lambda tail: tail
    longer = models + steps.mean() / steps[..., None, None] * (points - models)
    return longer.mean(axis=0), lambda tail: prox_of(task, tail, [steps.mean()] * len(tail))


def assert_answers(solution, own, common):
    """Of all agents, and of all together; coefficients that are lost in noise are dropped."""
    if own is not None:
        np.testing.assert_allclose(solution.parameters_per_agent, own, rtol=0, atol=1e-9)
    kept = solution.parameters != 0
    np.testing.assert_allclose(solution.parameters[kept], common[kept], rtol=0, atol=1e-9)
    assert kept.any()


def summed_gradient(task, agent, w, clip, *, order=2, batch=None):
    """Of an agent's records, each clipped in the norm of that order, or the agent as a whole.

    With several scores the L1 norm of a record is bounded by its Euclidean slope and their root.
    """
    A, y = task.of(agent)
    chosen = np.ones(len(y), dtype=bool) if batch is None else batch[task.owner == agent]
    total, facts = np.zeros(w.shape), task.facts
    of_records, widened = facts.unit == "record", math.sqrt(w.shape[1]) if order == 1 else 1.0
    for a, target in zip(A[chosen], y[chosen], strict=True):
        slope = slopes(facts.loss, (a @ w)[None], np.array([target]))[0]
        if of_records:
            slope = clipped(slope, clip / (np.linalg.norm(a, ord=order) * widened))
        total += np.outer(a, slope)
    most = min(len(y), 2 * facts.n_samples / facts.agents.n_agents)
    return total if of_records else clipped(total, clip * most, order)


def neighbors_of(topology: Topology):
    return [np.flatnonzero(row) for row in topology.adjacency.toarray()]


def central_optimum(task):
    """What scikit-learn finds for the mean loss of all rows plus the penalty; (p + 1, K)."""
    n, (l1, l2) = len(task.X), weights_of(task.facts.penalty)
    if isinstance(task.facts.loss, SquaredLoss):
        model = Lasso(alpha=l1, tol=1e-14, max_iter=10**6) if l1 else Ridge(alpha=l2 * n)
    else:
        model = LogisticRegression(C=1 / (l2 * n), solver="newton-cg", tol=1e-12)
    model.fit(task.X, task.y)
    return np.vstack([np.atleast_2d(model.coef_).T, np.atleast_1d(model.intercept_)[None]])
