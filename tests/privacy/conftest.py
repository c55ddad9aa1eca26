"""What the privacy tests share: replays, an attack, and a tap on the gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, norm

import skdpadmm._fitting
from skdpadmm.algorithms import condition, prepared
from skdpadmm.engine import Engine
from skdpadmm.losses import Loss, MultinomialLoss, SquaredLoss
from skdpadmm.network import ownership_of_labels
from skdpadmm.penalties import ElasticNet, Penalty
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Federation, Gate, Plan, Problem
from skdpadmm.records import Rows, declared_coordinates, rounding_factor


class ReplayGate(Gate):
    """Lets out a fixed path whatever comes in, and keeps what came in.

    Preparations come out as `prepared` says; their exact values come first in `values`. What is
    random and does not depend on data is the same in every replay.
    """

    def __init__(
        self, plan: Plan, path: list[np.ndarray], prepared: dict[str, np.ndarray] | None = None
    ) -> None:
        super().__init__(plan, noise=None)
        self.path, self.prepared = iter(path), prepared or {}
        self.values: list[np.ndarray] = []
        self.rng = np.random.default_rng(0)

    def release(
        self, name: str, value: np.ndarray, senders: np.ndarray | None = None
    ) -> np.ndarray:
        self.values.append(value.copy())
        return self.prepared[name] if name in self.prepared else next(self.path)

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.rng.random(shape)

    def hidden_term(self, name: str) -> np.ndarray:
        return next(self.path)


@dataclass
class Replayed:
    """A plan and the exact values of its releases along one path."""

    plan: Plan
    values: list[np.ndarray]
    parameters: np.ndarray = field(repr=False)


def _replay(
    algorithm: Any,
    X: np.ndarray,
    y: np.ndarray,
    loss: Loss,
    path: list[np.ndarray],
    *,
    neighboring: str = "replace_one",
    null_record: int | None = None,
    feature_bounds: Any = None,
    max_iter: int = 6,
    fit_intercept: bool = True,
    penalty: Penalty = ElasticNet(0.01, 0.02),  # noqa: B008
    epsilon: float = 1.0,
    second_moment: np.ndarray | None = None,
    agents: np.ndarray | None = None,
    unit: str = "record",
    observer: str = "model",
    **federation: Any,
) -> Replayed:
    """Run an algorithm on data while the adversary's view is held fixed.

    `null_record` has its loss replaced by the zero function: it contributes nothing. Where a
    `second_moment` is given, a packed triangle, rows are conditioned with it. `agents` are labels
    of the owners of rows, `federation` says more of them.
    """
    regression = isinstance(loss, SquaredLoss)
    ownership = None if agents is None else ownership_of_labels(agents, n_samples=len(X))
    coordinates = declared_coordinates(
        n_features=X.shape[1],
        fit_intercept=fit_intercept,
        feature_bounds=feature_bounds,
        target_bounds=(-2, 2) if regression else None,
        has_target_scale=regression,
    )
    facts = Facts(
        n_samples=X.shape[0],
        n_parameters=coordinates.n_parameters,
        loss=loss,
        penalty=penalty,
        neighboring=Neighboring(neighboring),
        row_norm=coordinates.row_norm,
        rounding=rounding_factor(n_samples=X.shape[0], coordinates=coordinates),
        max_iter=max_iter,
        unit=unit,
        agents=None
        if ownership is None
        else Federation(
            agent_sizes=tuple(ownership.sizes.tolist()),
            **{"n_honest": ownership.n_agents // 2 + 1, **federation},
        ),
    )
    budget = Budget(epsilon=epsilon, delta=1e-5, observer=observer)
    choice = None if second_moment is None else "private"
    facts = prepared(facts, budget, algorithm, coordinates, scale=None, conditioning=choice)
    plan = algorithm.plan(facts, budget)
    rows = Rows(X, coordinates)
    target = coordinates.target(y) * rows.weight if regression else y
    if null_record is not None:
        rows.weight[null_record] = rows.squared_norm[null_record] = 0.0
    gate = ReplayGate(plan, path, {"second moment": second_moment} if choice else None)
    with Engine().running() as engine:
        if plan.facts.conditioning is not None:
            rows = condition(rows, plan.facts.conditioning, engine, gate)
        problem = Problem(rows=rows, target=target, engine=engine, ownership=ownership)
        solution = algorithm.run(plan, problem, gate)
    return Replayed(plan=plan, values=gate.values, parameters=solution.parameters)


@pytest.fixture
def replay() -> Callable[..., Replayed]:
    return _replay


def _mu_lower_bound(without: np.ndarray, having: np.ndarray, confidence: float = 0.999) -> float:
    """Lower bound of mu from an attack: threshold chosen on one half, Clopper-Pearson on the other.

    A mechanism that is mu-GDP lets no test have a true positive rate p and a false positive rate q
    with ``ppf(p) - ppf(q) > mu``.
    """
    half = len(without) // 2
    sign = 1.0 if np.median(having[:half]) >= np.median(without[:half]) else -1.0
    without, having = sign * without, sign * having
    threshold = (np.median(without[:half]) + np.median(having[:half])) / 2
    trials = len(without) - half
    hits = int(np.sum(having[half:] > threshold))
    alarms = int(np.sum(without[half:] > threshold))
    level = (1 - confidence) / 2
    p_low = beta.ppf(level, hits, trials - hits + 1) if hits else 0.0
    q_high = beta.ppf(1 - level, alarms + 1, trials - alarms) if alarms < trials else 1.0
    return float(norm.ppf(p_low) - norm.ppf(q_high))


@pytest.fixture
def mu_lower_bound() -> Callable[..., float]:
    return _mu_lower_bound


@dataclass
class Tap:
    """Plans, and what passed the gate with and without its noise, of every fit under watch."""

    plans: list[Plan] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)
    exact: list[np.ndarray] = field(default_factory=list)
    released: list[np.ndarray] = field(default_factory=list)
    senders: list[np.ndarray | None] = field(default_factory=list)

    def noise(self) -> np.ndarray:
        """All noise of the first fit in units of its standard deviation, in one vector."""
        std = [r.noise_std for r in self.plans[0].releases for _ in range(r.times)]
        pairs = zip(self.exact, self.released, std, strict=True)
        return np.concatenate([((b - a) / s).ravel() for a, b, s in pairs])


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """A context in which all gates report to a tap."""

    @contextmanager
    def watching() -> Iterator[Tap]:
        tap = Tap()

        class Watched(Gate):
            def __init__(self, plan: Plan, noise: Any) -> None:
                super().__init__(plan, noise)
                tap.plans.append(plan)
                tap.gates.append(self)

            def release(self, name: str, value: np.ndarray, *senders: Any) -> np.ndarray:
                released = super().release(name, value, *senders)
                tap.senders.extend(senders or [None])
                tap.exact.append(value.copy())
                tap.released.append(released.copy())
                return released

        with monkeypatch.context() as patch:
            patch.setattr(skdpadmm._fitting, "Gate", Watched)
            yield tap

    return watching


@pytest.fixture
def random_path() -> Callable[..., list[np.ndarray]]:
    """An arbitrary path of released values, as an adversary could see it."""

    def make(n_parameters: int, loss: Loss, seed: int = 0, scale: float = 0.3) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        shape = (n_parameters, loss.n_outputs)
        return [scale * rng.standard_normal(shape) for _ in range(50)]

    return make


def make_targets(loss: Loss, rng: np.random.Generator, n: int) -> np.ndarray:
    if isinstance(loss, SquaredLoss):
        return rng.uniform(-2, 2, n)
    if isinstance(loss, MultinomialLoss):
        return rng.integers(loss.n_outputs, size=n)
    return rng.choice([-1.0, 1.0], n)


@pytest.fixture
def targets() -> Callable[..., np.ndarray]:
    return make_targets
