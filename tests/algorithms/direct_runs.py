"""Central and federated algorithms without an estimator around them, under noise a test knows."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import replace

import numpy as np
from scipy.special import expit
from sklearn.linear_model import ElasticNet as SklearnElasticNet
from sklearn.linear_model import LogisticRegression, Ridge

from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, MultinomialLoss, SmoothedHinge, SquaredLoss
from skdpadmm.network import ownership_of_labels
from skdpadmm.penalties import L1, NoPenalty, SquaredL2
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Federation, Gate, Problem
from skdpadmm.records import Coordinates, Rows, declared_coordinates

BUDGET = Budget(epsilon=1.0, delta=1e-5)
WIDE_OPEN = 1e8  # a clip bound that never binds
LOSSES = {"squared": SquaredLoss(), "logistic": LogisticLoss(), "three": MultinomialLoss(3)}
NO_PENALTY = NoPenalty()


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


Run = namedtuple("Run", "solution plan rows gate source")


def data_for(loss, n=60, p=3, seed=0):
    """Rows inside the box [-1, 1], so that no row is scaled, and targets that suit the loss."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, p))
    scores = X @ rng.normal(size=(p, loss.n_outputs)) + 0.3
    if loss.n_outputs > 1:
        return X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    if isinstance(loss, LogisticLoss | SmoothedHinge):
        return X, np.where(rng.random(n) < expit(2 * scores[:, 0]), 1.0, -1.0)
    return X, np.clip(scores[:, 0] + 0.1 * rng.normal(size=n), -3, 3)


def coordinates_of(p, fit_intercept=True, bounds=None) -> Coordinates:
    return declared_coordinates(
        n_features=p, fit_intercept=fit_intercept, feature_bounds=bounds, has_target_scale=False
    )


def facts_for(coordinates, n, loss, penalty=NO_PENALTY, *, relation="replace_one", **more) -> Facts:
    arguments = {"rounding": 1.0, "max_iter": 50, "coordinates": coordinates}
    if not coordinates.fit_intercept:
        arguments["penalty_curvature"] = penalty.strong_convexity
    return Facts(
        n_samples=n, n_parameters=coordinates.n_parameters, loss=loss, penalty=penalty,
        neighboring=Neighboring(relation), row_norm=coordinates.row_norm, **(arguments | more),
    )  # fmt: skip


def federated_facts(sizes, coordinates, *rest, **more) -> Facts:
    trust = {k: more.pop(k) for k in ("participation", "dropout") if k in more}
    agents = Federation(agent_sizes=tuple(sizes), n_honest=len(sizes) // 2 + 1, **trust)
    return facts_for(coordinates, sum(sizes), *rest, agents=agents, **more)


def run(
    algorithm, X, y, *, loss, penalty=NO_PENALTY, max_iter=5, fit_intercept=True, bounds=None,
    noise=None, uniforms=None, owner=None, told=None, source=None, **more,
) -> Run:  # fmt: skip
    """Plan and run; targets are in public coordinates, ``owner`` makes a federation."""
    c, ownership = coordinates_of(X.shape[1], fit_intercept, bounds), None
    if owner is None:
        facts = facts_for(c, len(X), loss, penalty, max_iter=max_iter, **more)
    else:
        ownership = ownership_of_labels(owner, n_samples=len(X))
        sizes = ownership.sizes.tolist()
        facts = federated_facts(sizes, c, loss, penalty, max_iter=max_iter, **more)
    plan = algorithm.plan(facts, BUDGET if owner is None else replace(BUDGET, observer="server"))
    source, rows = source or KnownNoise(noise, uniforms), Rows(X, c)
    gate = Gate(plan, source)
    with Engine().running() as engine:
        hears = {} if told is None else {"progress": told.append}
        problem = Problem(rows=rows, target=y, engine=engine, ownership=ownership, **hears)
        solution = algorithm.run(plan, problem, gate)
    gate.close()
    return Run(solution, plan, rows, gate, source)


# Parts of naive loops, and what scikit-learn finds.


def augmented(X, fit_intercept=True):
    return np.column_stack([X, np.ones(len(X))]) if fit_intercept else X


def slopes(loss, scores, y):
    """Derivatives of the losses of some records, of shape (n, n_outputs)."""
    flat = scores if loss.n_outputs > 1 else scores[:, 0]
    return loss.derivative(flat, y).reshape(scores.shape)


def clipped(vector, bound):
    size = np.linalg.norm(vector)
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
    one = getattr(penalty, "strength", 0.0)
    l1 = getattr(penalty, "l1", one * isinstance(penalty, L1))
    return l1, getattr(penalty, "l2", one * isinstance(penalty, SquaredL2))


def shrunk(point, penalty, step, p):
    """Proximal step of an elastic net on p coefficients; an intercept stays as it is."""
    (l1, l2), result, w = strengths(penalty), point.copy(), point[:p]
    result[:p] = np.sign(w) * np.maximum(np.abs(w) - step * l1, 0) / (1 + step * l2)
    return result


def optimum(loss, penalty, X, y, fit_intercept=True):
    """Minimiser of the mean loss plus penalty, of shape (p + 1, n_outputs)."""
    (l1, l2), options = strengths(penalty), {"fit_intercept": fit_intercept}
    if not isinstance(loss, SquaredLoss):
        model = LogisticRegression(
            C=1 / (len(X) * l2), solver="newton-cg", tol=1e-12, max_iter=10_000, **options
        )
    elif l1 == 0:
        model = Ridge(alpha=len(X) * l2, solver="cholesky", **options)
    else:
        total = l1 + l2
        model = SklearnElasticNet(
            alpha=total, l1_ratio=l1 / total, tol=1e-14, max_iter=10**6, **options
        )
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
