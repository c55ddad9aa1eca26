"""Claims about baselines over a graph, by replay and by exact densities."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

import skdpadmm._fitting as fitting
import skdpadmm.algorithms.blocks._agent_gradients as agent_gradients
import skdpadmm.algorithms.blocks._network_steps as network_steps
from skdpadmm import DPDecentralizedRegressor
from skdpadmm.algorithms import (
    DecentralizedGradientDescent,
    DualPerturbationADMM,
    PrimalPerturbationADMM,
)
from skdpadmm.algorithms.blocks._agent_minimisers import agent_minimisers
from skdpadmm.algorithms.blocks._neighbor_consensus import NeighborConsensus
from skdpadmm.engine import Engine
from skdpadmm.losses import HuberLoss, LogisticLoss, MultinomialLoss, SmoothedHinge, SquaredLoss
from skdpadmm.network import ownership_of_labels, resolve_topology
from skdpadmm.noise import CryptographicNoise
from skdpadmm.penalties import ElasticNet, NoPenalty
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Gate, HiddenTerm, Network, Plan, Problem
from skdpadmm.records import Rows, declared_coordinates, rounding_factor

NAMES = ["decentralized-gradient-descent", "dual-perturbation-admm", "primal-perturbation-admm"]
OWNER = np.repeat(["a", "b", "c", "d"], [2, 9, 1, 2])
EXTREME = np.array([1e300, -1e300, 1.7e308])


class ReplayGate(Gate):
    """Lets out a fixed path whatever comes in, and keeps what came in."""

    def __init__(self, plan, path):
        super().__init__(plan, noise=None)
        self.path, self.values = iter(path), []

    def release(self, name, value, senders=None):
        self._pass(name)
        self.values.append(value.copy())
        return next(self.path)

    def hidden_term(self, name):
        self._pass(name)
        return next(self.path)


def facts_of(
    owner, *, loss, n_features=3, fit_intercept=True, topology="star", neighboring="replace_one",
    unit="record", max_iter=4, penalty=None,
):  # fmt: skip
    coordinates = declared_coordinates(
        n_features=n_features,
        fit_intercept=fit_intercept,
        feature_bounds=None,
        target_bounds=(-2, 2) if isinstance(loss, SquaredLoss) else None,
        has_target_scale=isinstance(loss, SquaredLoss),
    )
    ownership = ownership_of_labels(owner, n_samples=len(owner))
    facts = Facts(
        n_samples=len(owner),
        n_parameters=coordinates.n_parameters,
        loss=loss,
        penalty=penalty or ElasticNet(0.01, 0.02),
        neighboring=Neighboring(neighboring),
        row_norm=coordinates.row_norm,
        rounding=rounding_factor(n_samples=len(owner), coordinates=coordinates),
        max_iter=max_iter,
        unit=unit,
        agents=Network(
            agent_sizes=tuple(ownership.sizes.tolist()),
            topology=resolve_topology(topology, ownership.labels),
            sizes_matter=unit == "agent",
        ),
    )
    return coordinates, ownership, facts


BUDGET = Budget(epsilon=1.0, delta=1e-5, observer="eavesdropper")


def replay(algorithm, X, y, path, *, owner=OWNER, null=None, **shape):
    """Plan and exact values of all releases while what is released is held fixed."""
    coordinates, ownership, facts = facts_of(owner, n_features=X.shape[1], **shape)
    plan = algorithm.plan(facts, BUDGET)
    rows = Rows(X, coordinates)
    target = coordinates.target(y) * rows.weight if coordinates.has_target_scale else y
    if null is not None:
        rows.weight[null] = rows.squared_norm[null] = 0.0
    gate = ReplayGate(plan, path)
    with np.errstate(all="ignore"), Engine().running() as engine:
        problem = Problem(rows=rows, target=target, engine=engine, ownership=ownership)
        algorithm.run(plan, problem, gate)
    gate.close()
    return plan, gate.values


def random_path(loss, *, scale, seed=0, n_agents=4, d=4):
    rng = np.random.default_rng(seed)
    return [scale * rng.standard_normal((n_agents, d, loss.n_outputs)) for _ in range(8)]


# The plan comes before data.


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unit", ["record", "agent"])
def test_neighbouring_and_shuffled_data_get_the_same_plan_and_the_same_trace(name, unit, watch):
    if unit == "agent" and name == "dual-perturbation-admm":
        pytest.skip("protects records alone")
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    agents = np.repeat(np.arange(4), [3, 7, 20, 30])
    neighbour = X.copy()
    neighbour[agents == 1 if unit == "agent" else 5] = [1e300, -1e300, 0.0]
    order = rng.permutation(60)
    model = DPDecentralizedRegressor(
        algorithm=name, privacy_unit=unit, topology="ring", max_iter=4, random_state=3
    )
    with watch() as tap:
        for rows, target, owner in (
            (X, y, agents),
            (neighbour, y, agents),
            (X[order], y[order], agents[order]),
        ):
            model.fit(rows, target, agents=owner)
    first, *others = tap.plans
    assert all(plan == first and plan.digest() == first.digest() for plan in others)
    assert all(gate.trace == tap.gates[0].trace for gate in tap.gates)
    planned = [(r.name, r.shape) for r in first.releases for _ in range(r.times)]
    assert sorted(tap.gates[0].trace) == sorted(planned)
    assert model.plan(60, 3, agent_sizes=[3, 7, 20, 30]) == first


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [None, "private"])
@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
def test_the_budget_is_met_and_used_up(name, scale, neighboring):
    for topology, epsilon in itertools.product(["complete", "star"], [0.1, 1.0, 10.0]):
        model = DPDecentralizedRegressor(
            algorithm=name, epsilon=epsilon, scale=scale, neighboring=neighboring,
            topology=topology, n_agents=12, max_iter=5,
        )  # fmt: skip
        plan = model.plan(n_samples=600, n_features=3)
        for observer in ("eavesdropper", "peer", "model"):
            assert 0.99 * epsilon < plan.guarantee(observer).epsilon(1e-5) <= epsilon


def test_agents_with_budgets_of_their_own_are_within_them():
    epsilons = [0.5, 2.0, 1.0, 4.0]
    for name in NAMES:
        model = DPDecentralizedRegressor(algorithm=name, epsilon=epsilons, n_agents=4, max_iter=4)
        plan = model.plan(n_samples=200, n_features=3)
        found = np.array([g.epsilon(1e-5) for g in plan.guarantees("eavesdropper")])
        assert np.all(found[plan.facts.agents.kind] <= epsilons)
        assert found[plan.facts.agents.kind][0] > 0.49


def test_a_hidden_term_counts_its_repetitions_and_leaves_older_plans_what_they_were():
    model = DPDecentralizedRegressor(algorithm="dual-perturbation-admm", max_iter=4)
    plan = model.plan(100, 3)
    (term,) = (r for r in plan.releases if isinstance(r, HiddenTerm))
    assert term.times == 4
    assert plan.to_dict()["releases"][0]["times"] == 4
    once = dataclasses.replace(term, times=1)
    alone = Plan(**{**vars(plan), "releases": (once, *plan.releases[1:])})
    assert "times" not in alone.to_dict()["releases"][0]
    assert alone.digest() != plan.digest()


# Sensitivities, by replay.

LOSSES = [SquaredLoss(), LogisticLoss(), MultinomialLoss(3)]
RELEASED = [
    DecentralizedGradientDescent(step_size=0.7, clip_norm=0.3),
    PrimalPerturbationADMM(penalty_weight=0.05, clip_norm=0.3),
]


def neighbours(loss, unit, agent, *, is_extreme, targets):
    rng = np.random.default_rng(1)
    X, y = (
        rng.standard_normal((14, 3)) * 10.0 ** rng.uniform(-2, 2, (14, 1)),
        targets(loss, rng, 14),
    )
    changed = np.flatnonzero(agent == OWNER)
    changed = changed if unit == "agent" else changed[-1:]
    X2, y2 = X.copy(), y.copy()
    X2[changed] = EXTREME if is_extreme else -5 * X[changed]
    y2[changed] = 1e308 if isinstance(loss, SquaredLoss) else targets(loss, rng, len(changed))
    return X, y, X2, y2, changed


def moves(algorithm, loss, unit, neighboring, targets, *, agent="b", is_extreme=False, scale=1.0):
    """How far each agent's part of each release moved, and how far it may."""
    if loss.n_outputs > 1 and isinstance(algorithm, PrimalPerturbationADMM):
        algorithm = PrimalPerturbationADMM(penalty_weight=0.05)
    X, y, X2, y2, changed = neighbours(loss, unit, agent, is_extreme=is_extreme, targets=targets)
    shape = {"loss": loss, "unit": unit, "neighboring": neighboring}
    path = random_path(loss, scale=scale)
    if neighboring == "replace_one":
        plan, first = replay(algorithm, X, y, path, **shape)
        second = replay(algorithm, X2, y2, path, **shape)[1]
    else:
        plan, first = replay(algorithm, X2, y2, path, **shape)
        second = replay(algorithm, X2, y2, path, null=changed, **shape)[1]
    assert np.isfinite(first).all()
    assert np.isfinite(second).all()
    found = np.linalg.norm(np.subtract(first, second), axis=(2, 3))
    release, network = plan.releases[-1], plan.facts.agents
    # Noise is in proportion to what an agent may say.
    share = np.asarray(release.shares)[network.kind] / release.noise_std
    return found, np.asarray(release.sensitivities)[:, None] * share


@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("algorithm", RELEASED, ids=lambda a: type(a).__name__)
def test_messages_move_by_at_most_their_sensitivity_and_those_of_other_agents_not_at_all(
    targets, algorithm, loss, unit, neighboring
):
    for agent, is_extreme, scale in (("a", False, 0.1), ("b", True, 1.0), ("c", True, 30.0)):
        found, allowed = moves(
            algorithm, loss, unit, neighboring, targets,
            agent=agent, is_extreme=is_extreme, scale=scale,
        )  # fmt: skip
        assert np.all(found <= allowed)
        assert np.all(found[:, np.unique(OWNER) != agent] == 0)
        assert found.max() > 0


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("algorithm", RELEASED, ids=lambda a: type(a).__name__)
def test_replay_catches_a_missing_clip(targets, monkeypatch, algorithm, unit):
    monkeypatch.setattr(agent_gradients, "clip_derivative", lambda derivative, bound: derivative)
    if unit == "agent":
        module = __import__(type(algorithm).__module__, fromlist=["clip_vectors"])
        for where in (module, network_steps):
            monkeypatch.setattr(where, "clip_vectors", lambda v, bounds: v, raising=False)
    algorithm = type(algorithm)(**{**algorithm.get_params(), "clip_norm": 1e-4})
    found, allowed = moves(algorithm, SquaredLoss(), unit, "replace_one", targets)
    assert found.max() > 1.2 * allowed.max()


@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize("algorithm", RELEASED, ids=lambda a: type(a).__name__)
def test_losses_that_are_linear_attain_the_sensitivity(algorithm, neighboring):
    # A hinge far from its bend, clipped: all gradients have the norm of the clip.
    X, y = np.ones((14, 1)), np.ones(14)
    y2 = y.copy()
    y2[5] = -1.0
    loss, path = LogisticLoss(), random_path(LogisticLoss(), scale=0.0, d=1)
    shape = {
        "loss": loss, "neighboring": neighboring, "fit_intercept": False, "penalty": NoPenalty(),
    }  # fmt: skip
    algorithm = type(algorithm)(**{**algorithm.get_params(), "clip_norm": 1e-3})
    plan, first = replay(algorithm, X, y, path, **shape)
    if neighboring == "replace_one":
        second = replay(algorithm, X, y2, path, **shape)[1]
    else:
        second = replay(algorithm, X, y, path, null=np.array([5]), **shape)[1]
    found = np.linalg.norm(np.subtract(first, second), axis=(2, 3)).max(axis=1)
    # Primal perturbation keeps twice a hundredth for inexact solutions.
    np.testing.assert_allclose(found, plan.releases[-1].sensitivities, rtol=0.021)
    assert np.all(found <= plan.releases[-1].sensitivities)


@pytest.mark.parametrize(("half", "holds"), [(False, True), (True, False)])
@pytest.mark.parametrize("name", NAMES)
def test_noise_of_every_message_is_that_of_the_plan_and_half_of_it_is_caught(
    monkeypatch, watch, name, half, holds
):
    class Half(CryptographicNoise):
        def add_gaussian(self, value, scale, stream):
            return super().add_gaussian(value, scale / (2 if half else 1), stream)

    monkeypatch.setattr(fitting, "noise_source", lambda *args: Half())
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 29)), rng.standard_normal(40)
    model = DPDecentralizedRegressor(
        algorithm=name, epsilon=[1.0, 3.0], n_agents=2, max_iter=30, conditioning=None
    )
    with watch() as tap:
        model.fit(X, y)
    release, network = tap.plans[0].releases[-1], tap.plans[0].facts.agents
    shares = np.asarray(release.shares)[network.kind]
    noise = np.subtract(tap.released, tap.exact) / shares[:, None, None]
    # Of 300 or 900 numbers for each agent; five standard deviations.
    spread = np.sqrt(np.square(noise).mean(axis=(0, 2, 3)))
    assert np.all(np.abs(spread - 1) < 5 / math.sqrt(2 * noise[:, 0].size)) == holds


# Certified solutions.


def distances(loss, seed):
    """How far planned steps end from the minimisers of random problems, and how far they may."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(3), [4, 30, 16])
    X = rng.standard_normal((50, 3)) * 10.0 ** rng.uniform(-2, 2, (50, 1))
    y = rng.uniform(-2, 2, 50) if isinstance(loss, SquaredLoss) else rng.choice([-1.0, 1.0], 50)
    coordinates, ownership, facts = facts_of(owner, loss=loss, topology="path")
    plan = DualPerturbationADMM().plan(facts, BUDGET)
    settings, topology = plan.settings, facts.agents.topology
    consensus = NeighborConsensus(topology=topology, penalty_weight=settings.penalty_weight)
    pull = rng.standard_normal((3, facts.n_parameters, 1))
    noise = plan.releases[-2].noise_std * rng.standard_normal(pull.shape)
    found = []
    with np.errstate(all="ignore"), Engine().running() as engine:
        rows = Rows(X, coordinates)
        problem = Problem(rows=rows, target=y, engine=engine, ownership=ownership)
        planned = settings.minimisers
        for inner in (planned, dataclasses.replace(planned, n_steps=10 * planned.n_steps)):
            clip_norm = settings.clip_norm * rows.clip_unit
            _, solve = agent_minimisers(facts, problem, consensus, inner, clip_norm=clip_norm)
            found.append(solve(pull, noise)[1])
    return np.linalg.norm(found[0] - found[1], axis=(1, 2)), settings.tolerance


@pytest.mark.parametrize(
    "loss", [SquaredLoss(), LogisticLoss(), SmoothedHinge(0.5)], ids=lambda v: type(v).__name__
)
def test_inner_solutions_are_within_the_certified_distance_of_exact_ones(loss):
    for seed in range(3):
        found, tolerance = distances(loss, seed)
        assert np.all(found <= tolerance)


# Dual perturbation, by exact densities in one dimension.


class KnownTerm(Gate):
    """Hands out linear terms that a test knows, and lets solutions through without noise."""

    def hidden_term(self, name):
        self._pass(name)
        return self.term

    def release(self, name, value, senders=None):
        self._pass(name)
        self.seen = value.copy()
        return value


def exact_delta(loss, neighboring, x, y, *, changed_to, epsilon, share=1.0):
    """Delta of one round, the larger of both directions, and that of its claim.

    The solution falls with the linear term b, so its density is that of b at b(w), times -b'(w).
    """
    owner = np.repeat([0, 1], [2, 3])
    coordinates, ownership, facts = facts_of(
        owner, n_features=1, loss=loss, fit_intercept=False, topology="path",
        neighboring=neighboring, max_iter=1, penalty=NoPenalty(),
    )  # fmt: skip
    algorithm = DualPerturbationADMM(clip_norm=0.7)
    plan = algorithm.plan(facts, Budget(epsilon=epsilon, delta=1e-3, observer="model"))
    term = plan.releases[0]
    noise_std = share * term.noise_std
    terms, curves = np.linspace(-8, 8, 401) * noise_std, []
    data = [(x, y, False), (*changed_to, False) if changed_to else (x, y, True)]
    for values, target, is_null in data:
        rows = Rows(np.asarray(values)[:, None], coordinates)
        if is_null:
            rows.weight[0] = rows.squared_norm[0] = 0.0
        solved = []
        with Engine().running() as engine:
            problem = Problem(
                rows=rows, target=np.asarray(target), engine=engine, ownership=ownership
            )
            for b in terms:
                gate = KnownTerm(plan, None)
                gate.term = np.full((2, 1, 1), b)
                algorithm.run(plan, problem, gate)
                solved.append(gate.seen[0, 0, 0])
        curves.append(np.array(solved))
    grid = np.linspace(max(c.min() for c in curves), min(c.max() for c in curves), 50_001)
    logs = []
    for curve in curves:
        b = np.interp(grid, curve[::-1], terms[::-1])
        slope = np.interp(grid, curve[::-1], np.log(-np.gradient(terms, curve))[::-1])
        logs.append(
            slope - np.square(b / noise_std) / 2 - math.log(noise_std * math.sqrt(2 * math.pi))
        )
    loss_at = logs[0] - logs[1]
    both = [
        np.trapezoid(np.exp(p) * np.maximum(0, -np.expm1(epsilon - sign * loss_at)), grid)
        for p, sign in ((logs[0], 1), (logs[1], -1))
    ]
    return max(both), term.guarantee.delta(epsilon)


CASES = [
    (LogisticLoss(), [1.0, 0.5, -1.0, 1.0, 0.3], [1.0, -1.0, 1.0, 1.0, -1.0]),
    (SmoothedHinge(0.5), [1.0, 0.5, -1.0, 1.0, 0.3], [1.0, -1.0, 1.0, 1.0, -1.0]),
    (HuberLoss(0.3), [1.0, 0.5, -1.0, 1.0, 0.3], [30.0, -1.0, 1.0, 0.1, -1.0]),
]


@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize(("loss", "x", "y"), CASES, ids=["logistic", "hinge", "huber"])
def test_exact_densities_of_a_dual_perturbation_keep_the_claim_and_less_noise_does_not(
    loss, x, y, neighboring
):
    changed = (x, [-y[0], *y[1:]]) if neighboring == "replace_one" else None
    found, claimed = exact_delta(loss, neighboring, x, y, changed_to=changed, epsilon=1.0)
    assert 0 < found <= claimed
    broken, claimed = exact_delta(
        loss, neighboring, x, y, changed_to=changed, epsilon=1.0, share=0.4
    )
    assert broken > claimed
