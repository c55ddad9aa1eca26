"""Algorithms without an estimator: data, runs that are watched, and parts of naive loops."""

from __future__ import annotations

import math
from collections import namedtuple
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.linear_model import ElasticNet as SklearnElasticNet
from sklearn.linear_model import LogisticRegression, Ridge

from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, MultinomialLoss, SmoothedHinge, SquaredLoss
from skdpadmm.network import Ownership, Similarity, ownership_of_labels, resolve_topology
from skdpadmm.noise import noise_source
from skdpadmm.penalties import L1, NoPenalty, SquaredL2
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Federation, Gate, Neighborhood, Network, Problem
from skdpadmm.records import Coordinates, Rows, declared_coordinates, rounding_factor

BUDGET = Budget(epsilon=1.0, delta=1e-5)
WIDE_OPEN = 1e8  # a clip bound that never binds
LOSSES = {"squared": SquaredLoss(), "logistic": LogisticLoss(), "three": MultinomialLoss(3)}
NO_PENALTY = NoPenalty()
SIZES = (14, 5, 4, 2)


def targets_for(loss, scores, rng):
    if loss.n_outputs > 1:
        return (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    if isinstance(loss, LogisticLoss | SmoothedHinge):
        return np.where(rng.random(len(scores)) < expit(2 * scores[:, 0]), 1.0, -1.0)
    return np.clip(scores[:, 0] + 0.1 * rng.normal(size=len(scores)), -3, 3)


def data_for(loss, n=60, p=3, seed=0):
    """Rows inside the box [-1, 1], so that no row is scaled, and targets that suit the loss."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, p))
    return X, targets_for(loss, X @ rng.normal(size=(p, loss.n_outputs)) + 0.3, rng)


def coordinates_of(p, fit_intercept=True, bounds=None) -> Coordinates:
    return declared_coordinates(
        n_features=p, fit_intercept=fit_intercept, feature_bounds=bounds, has_target_scale=False
    )


def facts_for(c, n, loss, penalty=NO_PENALTY, *, neighboring="replace_one", **more) -> Facts:
    arguments = {"rounding": 1.0, "max_iter": 50, "coordinates": c, "row_norm": c.row_norm}
    if not c.fit_intercept:
        arguments["penalty_curvature"] = penalty.strong_convexity
    return Facts(
        n_samples=n, n_parameters=c.n_parameters, loss=loss, penalty=penalty,
        neighboring=Neighboring(neighboring), **(arguments | more),
    )  # fmt: skip


def federated_facts(sizes, coordinates, *rest, **more) -> Facts:
    trust = {k: more.pop(k) for k in ("participation", "dropout") if k in more}
    agents = Federation(agent_sizes=tuple(sizes), n_honest=len(sizes) // 2 + 1, **trust)
    return facts_for(coordinates, sum(sizes), *rest, agents=agents, **more)


@dataclass(frozen=True)
class Task:
    """Facts of agents, rows inside the box [-1, 1] with targets in public units, their owners."""

    facts: Facts
    X: Any
    y: Any
    owner: Any

    @property
    def A(self):
        return augmented(self.X)[:, : self.facts.n_parameters]

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
    loss="squared", sizes=SIZES, *, topology="ring", is_personal=False,
    n_features=3, fit_intercept=True, seed=0, epsilons=(), **facts,
) -> Task:  # fmt: skip
    """A network of agents over a topology, or a neighbourhood by a similarity."""
    loss, rng, n, n_agents = LOSSES[loss], np.random.default_rng(seed), sum(sizes), len(sizes)
    owner = rng.permutation(np.repeat(np.arange(n_agents), sizes))
    X = rng.uniform(-1, 1, size=(n, n_features))
    scores = X @ rng.normal(size=(n_features, loss.n_outputs)) + 0.3
    c = coordinates_of(n_features, fit_intercept, (-1, 1))
    own = {"agent_sizes": tuple(sizes), "sizes_matter": facts.get("unit") == "agent"}
    if is_personal:
        own |= {"similarity": similarity_of(n_agents), "trade_off": 1.5}
        own["confidence"] = tuple(max(size, 0.5) / max(sizes) for size in sizes)
    else:
        own["topology"] = resolve_topology(topology, np.arange(n_agents))
    agents = (Neighborhood if is_personal else Network)(epsilons=epsilons, **own)
    known = {"max_iter": 4, "rounding": rounding_factor(n_samples=n, coordinates=c)}
    known |= {"is_declared": True, "agents": agents}
    return Task(facts_for(c, n, loss, **(known | facts)), X, targets_for(loss, scores, rng), owner)


class KnownNoise:
    """Adds a given vector to each release or step of a path, by default none; keeps the values."""

    def __init__(self, noise=None, uniforms=None):
        self.noise, self.uniforms, self.simulation, self.values = noise, uniforms, True, []

    def add_gaussian(self, value, scale, stream):
        self.values.append(value)
        if self.noise is None:
            return value
        if value.ndim < 3:
            return value + self.noise[stream[1]]
        drawn, first = np.zeros_like(value), stream[1] * len(value)
        part = self.noise[first : first + len(value)]
        drawn[: len(part)] = part
        return value + drawn

    def uniform(self, shape, stream):
        if self.uniforms is None:
            return np.random.default_rng(stream).random(shape)
        return np.asarray(self.uniforms).reshape(shape)


class Watched(Gate):
    """Keeps what passes; lets out `factor` times the noise of the plan."""

    factor = 1.0

    def __init__(self, plan, noise):
        super().__init__(plan, noise)
        self.passed: list[tuple[str, Any, Any, Any]] = []

    def deliver(self, method, release, repetition, value, out, unit=0.0, agents=None):
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


Run = namedtuple("Run", "solution plan rows gate")


def carried_out(algorithm, plan, gate, X, y, ownership=None, **hears) -> Run:
    with np.errstate(all="ignore"), Engine().running() as engine:
        rows = Rows(X, plan.facts.coordinates)
        problem = Problem(rows=rows, target=y, engine=engine, ownership=ownership, **hears)
        solution = algorithm.run(plan, problem, gate)
    gate.close()
    return Run(solution, plan, rows, gate)


def run(
    algorithm, X, y, *, loss, penalty=NO_PENALTY, max_iter=5, fit_intercept=True, bounds=None,
    noise=None, uniforms=None, owner=None, progress=None, source=None, gate_class=Gate, **more,
) -> Run:  # fmt: skip
    """Plan and run; targets are in public coordinates, ``owner`` makes a federation."""
    c, ownership, n = coordinates_of(X.shape[1], fit_intercept, bounds), None, len(X)
    if owner is None:
        facts = facts_for(c, n, loss, penalty, max_iter=max_iter, **more)
    else:
        ownership = ownership_of_labels(owner, n_samples=n)
        sizes = ownership.sizes.tolist()
        facts = federated_facts(sizes, c, loss, penalty, max_iter=max_iter, **more)
    plan = algorithm.plan(facts, BUDGET if owner is None else replace(BUDGET, observer="server"))
    gate = gate_class(plan, source or KnownNoise(noise, uniforms))
    hears = {} if progress is None else {"report": progress}
    return carried_out(algorithm, plan, gate, X, y, ownership, **hears)


def planned(algorithm, task, epsilon=1.0, delta=1e-5):
    """A plan against an eavesdropper; messages are secret-shared where the algorithm does so."""
    facts, budget = task.facts, Budget(epsilon=epsilon, delta=delta, observer="eavesdropper")
    return algorithm.plan(replace(facts, agents=algorithm.share_among(facts.agents)), budget)


def run_agents(algorithm, task, *, epsilon=1.0, gate_class=Silent, seed=0, source=None):
    """The plan, the solution and the gate, by default without the noise that was planned."""
    plan = planned(algorithm, task, epsilon)
    gate = gate_class(plan, source or noise_source(seed, plan.digest()))
    ownership = Ownership(labels=np.arange(task.facts.agents.n_agents), index=task.owner)
    return plan, carried_out(algorithm, plan, gate, task.X, task.y, ownership).solution, gate


# Parts of naive loops, and what scikit-learn finds.


def augmented(X, fit_intercept=True):
    return np.column_stack([X, np.ones(len(X))]) if fit_intercept else X


def slopes(loss, scores, y):
    """Derivatives of the losses of some records, of shape (n, n_outputs)."""
    flat = scores if loss.n_outputs > 1 else scores[:, 0]
    return loss.derivative(flat, y).reshape(scores.shape)


def clipped(vector, bound, order=2):
    size = np.linalg.norm(np.ravel(vector), ord=order)
    return vector if size <= bound else vector * (bound / size)


def exact_prox(loss, A, y, gamma, v, *, clip_norm=np.inf, ridge=0.0):
    """Of the mean of losses whose derivatives are clipped, by plain gradient steps."""
    limits = clip_norm / np.linalg.norm(A, axis=1, keepdims=True)
    w, step = v, 1 / (1 / gamma + ridge + loss.smoothness * (A**2).sum(axis=1).max())
    for _ in range(20_000):
        slope = A.T @ np.clip(slopes(loss, A @ w, y), -limits, limits) / len(y)
        w, last = w - step * (slope + ridge * w + (w - v) / gamma), w
        if np.abs(w - last).max() < 1e-15:
            break
    return w


def strengths(penalty):
    """Weights of the L1 norm and of half the squared Euclidean one."""
    one = getattr(penalty, "strength", 0.0)
    l1 = getattr(penalty, "l1", one * isinstance(penalty, L1))
    return l1, getattr(penalty, "l2", one * isinstance(penalty, SquaredL2))


def shrunk(point, penalty, step, p=-1):
    """Proximal step of an elastic net on p coefficients; an intercept stays as it is."""
    (l1, l2), result, w = strengths(penalty), point.copy(), point[:p]
    result[:p] = np.sign(w) * np.maximum(np.abs(w) - step * l1, 0) / (1 + step * l2)
    return result


def prox_of(task, points, steps):
    return np.array([shrunk(v, task.facts.penalty, s) for v, s in zip(points, steps, strict=True)])


def assert_tail(task, solution, models, points, steps, *, of_agents=True):
    """Models are the mean of the second half of a path (k, n, p, K), and steps are (k, n) lengths.

    For a sparse penalty the mean is of points before proximal steps, brought to the mean length,
    and one more step is taken. Coefficients that are lost in noise are dropped from the common one.
    """
    half = len(models) // 2
    steps = np.broadcast_to(steps, np.shape(points)[:2])
    models, points, steps = (np.array(part[half:]) for part in (models, points, steps))
    tail, finish = models.mean(axis=0), lambda tail: tail
    if strengths(task.facts.penalty)[0]:
        tail = (models + steps.mean() / steps[..., None, None] * (points - models)).mean(axis=0)
        finish = lambda tail: prox_of(task, tail, [steps.mean()] * len(tail))  # noqa: E731
    if of_agents:
        close(solution.parameters_per_agent, finish(tail), 1e-9)
    assert_common(solution, finish(tail.mean(axis=0)[None])[0])


def assert_common(solution, expected):
    kept = solution.parameters != 0
    close(solution.parameters[kept], expected[kept], 1e-9)
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


def neighbors_of(topology):
    return [np.flatnonzero(row) for row in topology.adjacency.toarray()]


def optimum(loss, penalty, X, y, fit_intercept=True):
    """Minimiser of the mean loss plus penalty, of shape (p + 1, n_outputs)."""
    (l1, l2), options = strengths(penalty), {"fit_intercept": fit_intercept}
    if not isinstance(loss, SquaredLoss):
        options |= {"solver": "newton-cg", "tol": 1e-12, "max_iter": 10_000}
        model = LogisticRegression(C=1 / (len(X) * l2), **options)
    elif l1 == 0:
        model = Ridge(alpha=len(X) * l2, solver="cholesky", **options)
    else:
        options |= {"tol": 1e-14, "max_iter": 10**6}
        model = SklearnElasticNet(alpha=l1 + l2, l1_ratio=l1 / (l1 + l2), **options)
    model.fit(X, y)
    return comparable(np.atleast_2d(model.coef_).T, np.atleast_1d(model.intercept_ + 0.0), loss)


def comparable(coef, intercept, loss):
    """One matrix; intercepts of all classes may move together at no cost."""
    if np.size(intercept) < loss.n_outputs:
        intercept = np.zeros(loss.n_outputs)
    return np.vstack([coef, intercept - np.mean(intercept) * (loss.n_outputs > 1)])


def found(result: Run):
    """The parameters of a run in the user's units, to compare with `optimum`."""
    coef, intercept = result.rows.coordinates.to_user(result.solution.parameters)
    return comparable(coef.T, intercept, result.plan.facts.loss)


def close(actual, expected, atol):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)
