"""The gate releases what was planned, with the planned noise, and nothing else."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

import skdpadmm.protocol._gate as gate_module
from skdpadmm import DPDecentralizedRegressor, DPFedRidge, algorithms, protocol
from skdpadmm.algorithms._turns import agent_turns
from skdpadmm.losses import SquaredLoss
from skdpadmm.network import Similarity
from skdpadmm.noise import grid_cell, noise_source
from skdpadmm.penalties import NoPenalty
from skdpadmm.privacy import GaussianDP, Neighboring
from skdpadmm.protocol import Facts, Gate, PlanViolation, Release
from skdpadmm.records import declared_coordinates
from skdpadmm.secret_sharing import centred, share_and_sum

SHARED, SIZES, BUDGETS = "sum of agents' gradients, by secret sharing", (3, 4, 5, 0), (0.5, 2, 8, 2)
BLOCK, DELTA, ROUNDING = gate_module.PATH_ENTRIES // 2, 1e-5, 1e-4


class Recorder:
    """A source that adds one number, and remembers what it was asked for."""

    def __init__(self, simulation=True, added=1000.0):
        self.simulation, self.added, self.asked = simulation, added, []

    def add_gaussian(self, value, scale, stream):
        self.asked.append((scale, stream))
        return value + self.added

    add_laplace = add_gaussian

    def uniform(self, shape, stream):
        return self.add_gaussian(np.zeros(shape), 1.0, stream)


def plan_of(facts, *releases, epsilon=8.0, observer="model"):
    budget = protocol.Budget(epsilon=epsilon, delta=DELTA, observer=observer)
    named = {"algorithm": "A", "facts": facts, "budget": budget, "settings": protocol.Settings(())}
    return protocol.Plan(**named, releases=releases)


def facts_of(**changed):
    constants = {"loss": SquaredLoss(), "penalty": NoPenalty(), "row_norm": 1.0, "rounding": 1.0}
    constants |= {"neighboring": Neighboring.ZERO_OUT, "max_iter": 3, "n_parameters": 2}
    return Facts(**(constants | {"n_samples": 12} | changed))


def example_plan(**changed):
    mean = Release(name="mean", shape=(2, 1), sensitivities=(1.0,) * 3, noise_std=50.0)
    count = Release(name="count", shape=(), sensitivities=(1.0, 0.5), noise_std=40.0)
    return plan_of(facts_of(**changed), mean, count)


def path_plan(times=3):
    views = (protocol.View(observer="model", guarantees=(GaussianDP(0.2),)),)
    path = Release(
        name="iterate", shape=(2, 1), sensitivities=(1.0,), noise_std=5.0, repeats=times,
        door="path_noise", is_hidden=True, views=views,
    )  # fmt: skip
    return plan_of(facts_of(), path)


def shared_plan(n_features=1, own_noise=True, **knobs):
    """Agents with budgets of their own, of whom five in six may pool shares, have other grids."""
    own = {"epsilon": [0.5, 1.0, 2.0, 4.0, 1.0, 30.0], "coalition": 5}
    knobs |= {"n_curators": 5 if own_noise else None}
    estimator = DPDecentralizedRegressor(
        algorithm=algorithms.SecretSharingGradientDescent(**knobs),
        n_agents=6, max_iter=3, conditioning=None, fit_intercept=False,
        **(own if own_noise else {"coalition": 2}),
    )  # fmt: skip
    return estimator.plan(n_samples=60, n_features=n_features)


def turns_plan(law="gaussian", weights=(1.0, 1.0), n_features=5):
    coordinates = declared_coordinates(
        n_features=n_features, fit_intercept=False, feature_bounds=(-1, 1), has_target_scale=False
    )
    agents = protocol.Neighborhood(
        agent_sizes=SIZES, epsilons=BUDGETS, sizes_matter=False, confidence=(1.0,) * 4,
        similarity=Similarity(n_agents=4, matrix=np.ones((4, 4)) - np.eye(4)), trade_off=1.0,
    )  # fmt: skip
    facts = facts_of(
        agents=agents, coordinates=coordinates, n_parameters=n_features, rounding=1 + ROUNDING,
        neighboring=Neighboring.REPLACE_ONE, row_norm=coordinates.row_norm,
    )  # fmt: skip
    budget = protocol.Budget(epsilon=8.0, delta=DELTA, observer="eavesdropper")
    turns = agent_turns(facts, budget, name="turns", weights=np.asarray(weights), law=law)
    return plan_of(facts, turns, observer="eavesdropper")


def without_noise(plan):
    """The same without a budget."""
    releases = [dataclasses.replace(release, noise_std=0.0) for release in plan.releases]
    return plan_of(plan.facts, *releases, epsilon=math.inf, observer=plan.budget.observer)


def by_turns(gate, value):
    return gate.take_turns("turns", np.arange(3), value)


# For each method a plan and a call, and the name, the shape and the number of its releases.
METHODS = {
    "release": (example_plan, lambda gate, v: gate.release("mean", v), "mean", (2, 1), 3),
    "share": (shared_plan, lambda gate, v: gate.share(SHARED, v), SHARED, (6, 1, 1), 3),
    "take_turns": (turns_plan, by_turns, "turns", (3, 5, 1), 2),
    "path_noise": (path_plan, lambda gate, v: gate.path_noise("iterate", 1), "iterate", (2, 1), 3),
}
with_each_method = pytest.mark.parametrize("method", METHODS)


@with_each_method
def test_every_release_has_noise_from_a_stream_of_its_own_and_a_trace_without_values(method):
    make, call, name, shape, times = METHODS[method]
    plan, noise, value = make(), Recorder(), np.zeros(shape)
    gate = Gate(plan, noise)
    for _ in range(times):
        assert np.any(call(gate, value))
    for _ in range(2 * (method == "release")):
        assert gate.release("count", np.zeros(())) == 1000.0
    gate.close()
    assert not value.any()
    # A path is drawn in blocks, of which each serves many steps.
    streams = [stream for _, stream in noise.asked]
    assert len(set(streams)) == (1 if method == "path_noise" else len(streams))
    assert len(gate.trace) == times + 2 * (method == "release")
    assert {entry[0] for entry in gate.trace} <= {name, "count"}
    assert not [held for held in vars(gate).values() if isinstance(held, np.ndarray)]
    for n_draws in (1, 2, 3):  # what is uniform is fresh, too, and apart from all noise
        gate.uniform((2,))
        assert len({stream for _, stream in noise.asked}) == len(set(streams)) + n_draws


@with_each_method
def test_without_a_budget_values_are_released_exactly_and_still_counted(method):
    make, call, _, shape, times = METHODS[method]
    noise, value = Recorder(), np.random.default_rng(0).normal(size=shape)
    gate = Gate(without_noise(make()), noise)
    for _ in range(times):
        expected = {"share": value.sum(axis=0), "path_noise": 0 * value[None]}.get(method, value)
        np.testing.assert_allclose(call(gate, value), expected, rtol=1e-12)
    assert not noise.asked
    with pytest.raises(PlanViolation):
        call(gate, value)


@with_each_method
def test_what_is_not_planned_is_refused_and_uses_nothing_up(method):
    make, call, name, shape, times = METHODS[method]
    noise, value = Recorder(), np.zeros(shape)
    gate = Gate(make(), noise)
    calls = {
        "release": lambda name: gate.release(name, value),
        "share": lambda name: gate.share(name, value),
        "take_turns": lambda name: gate.take_turns(name, np.arange(3), value),
        "path_noise": lambda name: gate.path_noise(name, 1),
        "hidden_term": gate.hidden_term,
    }
    wrong = [(lambda use=use: use("Mean"), "a release 'Mean'.* one of") for use in calls.values()]
    for other in set(calls) - {method}:
        wrong.append((lambda use=calls[other]: use(name), f".*in `{other}`, expected `{method}`"))
    if method in ("take_turns", "path_noise"):
        wrong.append((lambda: gate.skip(name), f".*`{method}`: it is released step by step"))
    if method != "path_noise":
        bad = [np.zeros(s) for s in (shape[1:], (1, *shape), (*shape[:-1], 7), (9, *shape[1:]))]
        bad += [value + odd for odd in (math.nan, math.inf, -math.inf)]
        wrong += [(lambda v=v: call(gate, v), "(shape|entries)") for v in bad]
    for refused, message in [*wrong, (gate.close, ".*the release")]:
        with pytest.raises(PlanViolation, match=f"(?s)^Got {message}"):
            refused()
    assert not noise.asked
    assert not gate.trace
    for _ in range(times):
        call(gate, value)
    asked = len(noise.asked)
    with pytest.raises(PlanViolation, match=f"{times + 1}.* {times} "):
        call(gate, value)
    assert (len(noise.asked), len(gate.trace)) == (asked, times)


# Noise of a path, step by step. An iterate has two numbers ---------------------------------------


@settings(max_examples=20)
@given(
    st.lists(st.sampled_from([0, 1, 9, BLOCK - 1, BLOCK, BLOCK + 1]), max_size=4),
    st.sampled_from([0, 1, BLOCK - 1, BLOCK, BLOCK + 1]),
)
def test_the_noise_of_a_step_does_not_depend_on_how_steps_were_asked_for(sizes, n_arrived):
    plan, n_steps = path_plan(times=None), n_arrived + sum(sizes)
    whole = Gate(plan, noise_source(0, b"plan")).path_noise("iterate", n_steps)
    gate = Gate(plan, noise_source(0, b"plan"), n_arrived=n_arrived)
    pieces = [gate.path_noise("iterate", size) for size in sizes]
    np.testing.assert_array_equal(np.concatenate([whole[:n_arrived], *pieces]), whole)
    gate.close()  # a path without an end is never too short


# Sums by secret sharing --------------------------------------------------------------------------


def grids_of(plan):
    """For each agent its noise and its cell, in cells of the finest grid."""
    release = plan.releases[-1]
    shares = np.asarray(release.agent_noise_std)[plan.facts.agents.kind] / release.cell
    return shares, np.array([grid_cell(share) for share in shares])


@pytest.fixture
def secrets(monkeypatch):
    """What agents share out, as whole numbers, of every sum."""
    seen = []

    def kept(residues, n_curators, modulus, threshold):
        seen.append(centred(residues, modulus))
        return share_and_sum(residues, n_curators, modulus, threshold)

    monkeypatch.setattr(gate_module, "share_and_sum", kept)
    return seen


@pytest.mark.parametrize("random_state", [0, None])
@pytest.mark.parametrize("own_noise", [True, False])
def test_every_agent_adds_fresh_noise_of_its_own_as_planned(secrets, random_state, own_noise):
    plan = shared_plan(8000, own_noise)
    gate, release = Gate(plan, noise_source(random_state, plan.digest())), plan.releases[-1]
    released = [gate.share(SHARED, np.zeros((6, 8000, 1))) for _ in range(3)]
    shares, cells = grids_of(plan)
    noise = np.array(secrets)[..., 0]
    for agent, (share, cell) in enumerate(zip(shares, cells, strict=True)):
        assert kstest(noise[:, agent].ravel() / share, "norm").pvalue > 1e-7
        assert not np.any(noise[:, agent] % int(cell))
    # Neither two agents nor two rounds have anything in common.
    assert np.abs(np.corrcoef(noise.reshape(18, -1)) - np.eye(18)).max() < 0.07
    assert np.std(released) == pytest.approx(release.noise_std, rel=0.03)


def test_messages_are_rounded_to_the_grid_of_the_noise_of_their_own_sender(secrets):
    plan = shared_plan(40)
    cells, value = grids_of(plan)[1], np.random.default_rng(0).uniform(-1, 1, (6, 40, 1))
    assert cells.min() == 1 < 32 <= cells.max()
    # Digits finer than the noise would be the same each time, for whoever sees a message.
    Gate(plan, noise_source(None, plan.digest())).share(SHARED, value)
    assert not np.any(secrets[-1] % cells[:, None, None].astype(np.int64))
    # Without noise a message is off by half a cell of its sender's grid at most.
    Gate(plan, Recorder(added=0.0)).share(SHARED, value)
    off = np.abs(secrets[-1] - value / plan.releases[-1].cell)
    assert np.all(off <= cells[:, None, None] / 2)


@pytest.mark.parametrize(("n_curators", "modulus"), [(2, 2**64), (3, 2**61), (6, 2**46)])
def test_neither_curators_nor_the_modulus_change_a_sum_within_its_range(n_curators, modulus):
    plan, value = shared_plan(30, False), np.random.default_rng(0).uniform(-10, 10, (6, 30, 1))
    expected = Gate(plan, Recorder(added=0.0)).share(SHARED, value)
    changed = dataclasses.replace(plan.releases[-1], n_curators=n_curators, modulus=modulus)
    np.testing.assert_allclose(expected, value.sum(axis=0), atol=3 * changed.cell)
    other = dataclasses.replace(plan, releases=(changed,))
    found = Gate(other, Recorder(added=0.0)).share(SHARED, value)
    np.testing.assert_array_equal(found, expected)
    # What counts is what messages could add up to, also where they would cancel.
    far = np.zeros((6, 30, 1))
    far[:2] = changed.cell * modulus / 4 * np.array([1.0, -1.0])[:, None, None]
    for beyond in (far, -1e150 * np.abs(far)):
        gate = Gate(other, Recorder())
        with pytest.raises(PlanViolation, match=f"whose sum leaves the range of modulus={modulus}"):
            gate.share(SHARED, beyond)
        assert not gate.trace


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_sum_of_one_message_less_than_its_noise_needs_is_refused(dropout):
    known = {
        "feature_bounds": (-1, 1),
        "target_bounds": (-1, 1),
        "conditioning": None,
        "scale": None,
    }
    model = DPFedRidge(n_agents=12, adversary="model", dropout=dropout, epsilon=9.0, **known)
    plan = model.plan(1200, 2)
    (release,) = plan.releases
    gate = Gate(plan, noise_source(None, plan.digest()))
    enough = np.arange(12) < release.fewest
    gate.release(release.name, np.zeros(release.shape), enough)
    enough[0] = False
    with pytest.raises(PlanViolation, match="their noise is too small"):
        gate.release(release.name, np.zeros(release.shape), enough)


# Turns of agents: to each the noise of its own budget --------------------------------------------


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_noise_of_a_turn_does_not_depend_on_who_else_takes_one(law):
    value, plan = np.random.default_rng(0).normal(size=(4, 5, 1)), turns_plan(law)
    together, waves = (Gate(plan, noise_source(0, plan.digest())) for _ in range(2))
    first, second = (by_turns(together, value[:3]) for _ in range(2))
    order = np.array([0, 1, 0, 2, 1, 2])
    units = np.asarray(plan.releases[0].agent_noise_std) / (math.sqrt(2) if law == "laplace" else 1)
    for k, agent in enumerate(order):
        alone = waves.take_turns("turns", order[[k]], value[[agent]])[0]
        np.testing.assert_array_equal(alone, (second if agent in order[:k] else first)[agent])
        kind = plan.facts.agents.kind[agent]
        cells = alone / units[kind] * 2.0**20
        np.testing.assert_allclose(cells, np.rint(cells), atol=1e-3)
    for gate in (together, waves):
        gate.close()


def test_turns_that_are_not_planned_are_refused():
    gate, one = Gate(turns_plan(), Recorder()), np.zeros((1, 5, 1))
    for agents, message in (([3], "without rows"), ([0, 0], "agent twice")):
        with pytest.raises(PlanViolation, match=message):
            gate.take_turns("turns", np.array(agents), np.zeros((len(agents), 5, 1)))
    for _ in range(2):
        gate.take_turns("turns", np.array([0]), one)
    with pytest.raises(PlanViolation, match="Got turn 3 of an agent"):
        gate.take_turns("turns", np.array([0]), one)
    with pytest.raises(PlanViolation, match="the release 'turns' 0 times, expected 2"):
        gate.close()


@pytest.mark.parametrize("made_of", ["sum", "agents"])
def test_nobody_sends_messages_to_a_curator(made_of):
    """Their noise is that of agents, of whom there are none."""
    mean, count = example_plan().releases
    mean = dataclasses.replace(mean, made_of=made_of, agent_noise_std=(50.0,))
    gate = Gate(plan_of(facts_of(), mean, count), Recorder())
    with pytest.raises(PlanViolation, match=r"^Got messages of 'mean', expected agents"):
        gate.release("mean", np.zeros((2, 1)))
