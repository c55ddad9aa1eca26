"""What the gate adds in turns of agents: to each the noise of its own budget."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import kstest

from skdpadmm.algorithms.planning._agent_turns import agent_turns
from skdpadmm.losses import SquaredLoss
from skdpadmm.network import Similarity
from skdpadmm.noise import CryptographicNoise, noise_source, round_to_grid
from skdpadmm.penalties import NoPenalty
from skdpadmm.privacy import Neighboring, gaussian_mu
from skdpadmm.protocol import Budget, Facts, Gate, Neighborhood, Plan, PlanViolation, Release
from skdpadmm.records import declared_coordinates

NAME, N_FEATURES, DELTA, ROUNDING = "turns", 3_000, 1e-5, 1e-4
BUDGETS, SIZES = (0.5, 2.0, 8.0, 2.0), (3, 4, 5, 0)


class HalfTheNoise(CryptographicNoise):
    def add_laplace(self, value, scale, stream):
        return super().add_laplace(value, scale / 2, stream)

    def add_gaussian(self, value, scale, stream):
        return super().add_gaussian(value, scale / 2, stream)


def planned(law, weights):
    coordinates = declared_coordinates(
        n_features=N_FEATURES, fit_intercept=False, feature_bounds=(-1, 1), has_target_scale=False
    )
    facts = Facts(
        n_samples=sum(SIZES),
        n_parameters=N_FEATURES,
        loss=SquaredLoss(),
        penalty=NoPenalty(),
        neighboring=Neighboring.REPLACE_ONE,
        row_norm=coordinates.row_norm,
        rounding=1 + ROUNDING,
        max_iter=1,
        agents=Neighborhood(
            agent_sizes=SIZES,
            epsilons=BUDGETS,
            sizes_matter=False,
            similarity=Similarity(n_agents=4, matrix=np.ones((4, 4)) - np.eye(4)),
            confidence=(1.0,) * 4,
            trade_off=1.0,
        ),
        coordinates=coordinates,
    )
    budget = Budget(epsilon=max(BUDGETS), delta=DELTA, observer="eavesdropper")
    turns = agent_turns(facts, budget, name=NAME, weights=np.asarray(weights), law=law)
    settings = Release(name="", shape=(), sensitivities=(), noise_std=1.0)
    return Plan(algorithm="turns", facts=facts, budget=budget, settings=settings, releases=(turns,))


def sensitivity(law):
    """Twice the bound, and what floats make of it: an error whose Euclidean norm is known."""
    return 2.0 * (1.0 + ROUNDING * (1.0 if law == "gaussian" else math.sqrt(N_FEATURES)))


def scale_for(epsilon, weights, law):
    """Noise that the least favourable record needs, written out."""
    moved = sensitivity(law) * np.asarray(weights)
    # Both sides are rounded to the grid, at most by half a cell in each entry.
    cell = 2.0**-20 * (math.sqrt(N_FEATURES) if law == "gaussian" else N_FEATURES)
    if law == "gaussian":
        scales = np.geomspace(1e-2, 1e4, 400_001)
        spent = np.sqrt(((moved[:, None] / scales + cell) ** 2).sum(axis=0))
        return scales[np.argmax(spent <= gaussian_mu(epsilon, DELTA))]
    # One turn, at a delta of zero: with more there is a better composition.
    return moved.sum() / (epsilon - len(moved) * cell)


@pytest.mark.parametrize("source", ["seeded", "system"])
@pytest.mark.parametrize(
    ("law", "weights"),
    [("gaussian", [1.0]), ("gaussian", [0.5, 1.0, 1.5]), ("laplace", [1.0])],
)
def test_each_turn_has_the_noise_that_the_agents_own_budget_asks_for(law, weights, source):
    plan = planned(law, weights)
    noise = noise_source(0, plan.digest()) if source == "seeded" else CryptographicNoise()

    def p_values(noise):
        gate, found = Gate(plan, noise), []
        for _ in weights:
            # Whoever takes a turn first, and together with whom.
            for agents in (np.array([2]), np.array([1, 0])):
                value = np.zeros((len(agents), N_FEATURES, 1))
                heard = gate.take_turns(NAME, agents, value)
                for agent, own in zip(agents, heard, strict=True):
                    scale = scale_for(BUDGETS[agent], weights, law)
                    name = "norm" if law == "gaussian" else "laplace"
                    found.append(kstest(own.ravel(), name, args=(0, scale)).pvalue)
        gate.close()
        return found

    # A Laplace turn is allowed what delta adds, which is next to nothing.
    assert min(p_values(noise)) > 1e-4
    assert max(p_values(HalfTheNoise())) < 1e-20


@pytest.mark.parametrize("n_turns", [1, 4, 25])
def test_noise_of_gaussian_turns_grows_with_the_root_of_their_number(n_turns):
    one, many = planned("gaussian", [1.0]), planned("gaussian", [1.0] * n_turns)
    ratios = np.asarray(many.releases[0].shares) / np.asarray(one.releases[0].shares)
    np.testing.assert_allclose(ratios, math.sqrt(n_turns), rtol=0.03)
    assert (ratios >= math.sqrt(n_turns) * (1 - 1e-9)).all()


def test_rounding_is_counted_in_the_norm_of_the_noise():
    for law, norm in (("gaussian", math.sqrt(N_FEATURES)), ("laplace", N_FEATURES)):
        plan = planned(law, [1.0])
        unit = np.asarray(plan.releases[0].shares) / (1.0 if law == "gaussian" else math.sqrt(2))
        for scale, guarantee in zip(unit, plan.guarantees("eavesdropper"), strict=True):
            spent = guarantee.mu if law == "gaussian" else guarantee.pure_epsilon
            assert spent == pytest.approx(sensitivity(law) / scale + norm * 2.0**-20, rel=1e-12)


# What the gate lets out, and what it refuses


def gate_of_turns(law="gaussian", seed=0, turns=2):
    plan = planned(law, [1.0] * turns)
    return plan, Gate(plan, noise_source(seed, plan.digest()))


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_noise_of_a_turn_does_not_depend_on_who_else_takes_one(law):
    value = np.random.default_rng(0).normal(size=(len(SIZES), N_FEATURES, 1))
    plan, together = gate_of_turns(law)
    _, apart = gate_of_turns(law)
    everybody = np.array([0, 1, 2])
    for turn in range(2):
        heard = together.take_turns(NAME, everybody, value[everybody])
        for k, agent in enumerate(everybody):
            if turn == 0:
                alone = apart.take_turns(NAME, everybody[[k]], value[[agent]])
                np.testing.assert_array_equal(alone[0], heard[k])
    for agent in everybody:
        apart.take_turns(NAME, np.array([agent]), value[[agent]])
    together.close()
    apart.close()
    units = np.asarray(plan.releases[-1].shares)[plan.facts.agents.kind[everybody]]
    units = units[:, None, None] / (math.sqrt(2) if law == "laplace" else 1)
    cells = heard / units * 2.0**20
    np.testing.assert_allclose(cells, np.rint(cells), atol=1e-3)


def test_turns_that_are_not_planned_are_refused():
    _, gate = gate_of_turns()
    one = np.zeros((1, N_FEATURES, 1))
    with pytest.raises(PlanViolation, match="without rows"):
        gate.take_turns(NAME, np.array([SIZES.index(0)]), one)
    with pytest.raises(PlanViolation, match="agent twice"):
        gate.take_turns(NAME, np.array([0, 0]), np.zeros((2, N_FEATURES, 1)))
    with pytest.raises(PlanViolation, match="Got shape"):
        gate.take_turns(NAME, np.array([0, 1]), one)
    with pytest.raises(PlanViolation, match="not finite"):
        gate.take_turns(NAME, np.array([0]), one + math.inf)
    with pytest.raises(PlanViolation, match="take_turns"):
        gate.release(NAME, np.zeros((len(SIZES), N_FEATURES, 1)))
    with pytest.raises(PlanViolation, match="take_turns"):
        gate.skip(NAME)
    with pytest.raises(PlanViolation, match="0 turns of an agent"):
        gate.close()
    for _ in range(2):
        gate.take_turns(NAME, np.array([0]), one)
    with pytest.raises(PlanViolation, match="Got turn 3 of an agent"):
        gate.take_turns(NAME, np.array([0]), one)
    with pytest.raises(PlanViolation, match="Got 0 turns of an agent"):
        gate.close()


def test_noise_that_nobody_needs_any_more_is_forgotten():
    _, gate = gate_of_turns(turns=6)
    everybody = np.array([0, 1, 2])
    for _ in range(6):
        gate.take_turns(NAME, everybody, np.zeros((3, N_FEATURES, 1)))
        assert len(gate._turns_of(NAME)._noise) <= 3
    gate.close()


def test_a_plan_in_turns_is_shown_and_kept_apart_by_its_law():
    plan, _ = gate_of_turns()
    other, _ = gate_of_turns("laplace")
    assert "of which each agent adds" in repr(plan)
    assert plan.digest() != other.digest()


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_a_compiled_loop_gets_the_noise_that_turns_have(law):
    value = np.random.default_rng(0).normal(size=(len(SIZES), N_FEATURES, 1))
    _, waves = gate_of_turns(law)
    _, loops = gate_of_turns(law)
    order = np.array([0, 1, 0, 1, 2])
    turns, noise, units = loops.turn_noise(NAME, order)
    assert turns.tolist() == [0, 0, 1, 1, 0]
    for k, agent in enumerate(order):
        heard = waves.take_turns(NAME, order[[k]], value[[agent]])
        said = round_to_grid(value[agent] / units[k], 1.0) + noise[k]
        np.testing.assert_array_equal(heard[0], units[k] * said)
    for gate in (waves, loops):
        gate.take_turns(NAME, np.array([2]), value[[2]])
        gate.close()


def test_noise_of_turns_that_are_not_planned_is_refused():
    _, gate = gate_of_turns()
    with pytest.raises(PlanViolation, match="without rows"):
        gate.turn_noise(NAME, np.array([0, SIZES.index(0)]))
    with pytest.raises(PlanViolation, match="Got turn 3 of an agent"):
        gate.turn_noise(NAME, np.array([0, 1, 0, 0]))
    gate.turn_noise(NAME, np.array([0, 0]))
    with pytest.raises(PlanViolation, match="Got turn 3 of an agent"):
        gate.turn_noise(NAME, np.array([0]))
    assert [a.shape[0] for a in gate.turn_noise(NAME, np.empty(0, dtype=np.intp))] == [0] * 3
    with pytest.raises(PlanViolation, match="Got 0 turns of an agent"):
        gate.close()
