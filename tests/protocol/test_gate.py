"""The gate: what was planned passes, with its noise; nothing else does."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

import numpy as np
import pytest

import skdpadmm.protocol._gate as gate_module
from skdpadmm import DPDecentralizedRegressor
from skdpadmm.algorithms import SecretSharingGradientDescent
from skdpadmm.losses import SquaredLoss
from skdpadmm.noise import grid_cell, noise_source
from skdpadmm.penalties import NoPenalty
from skdpadmm.privacy import GaussianDP, Neighboring
from skdpadmm.protocol import Budget, Facts, Gate, NoisyPath, Plan, PlanViolation, Release
from skdpadmm.protocol._gate import PATH_ENTRIES
from skdpadmm.secret_sharing import centred, share_and_sum


@dataclass(frozen=True)
class Settings:
    """None."""


def example_plan(**changed):
    facts = Facts(
        n_samples=10,
        n_parameters=2,
        loss=SquaredLoss(),
        penalty=NoPenalty(),
        neighboring=Neighboring.ZERO_OUT,
        row_norm=1.0,
        rounding=1.0,
        max_iter=3,
    )
    releases = (
        Release(name="mean", shape=(2, 1), sensitivities=(1.0,) * 3, noise_std=50.0),
        Release(name="count", shape=(), sensitivities=(1.0, 0.5), noise_std=40.0),
    )
    return Plan(
        **{
            "algorithm": "Example",
            "facts": facts,
            "budget": Budget(epsilon=1.0, delta=1e-5),
            "settings": Settings(),
            "releases": releases,
        }
        | changed
    )


@dataclass
class Recorder:
    """A source without noise that remembers what it was asked for."""

    simulation: bool = True
    asked: list = field(default_factory=list)

    def add_gaussian(self, value, scale, stream):
        self.asked.append((scale, stream))
        return value + 1000.0


MEAN, COUNT = np.zeros((2, 1)), np.zeros(())


def test_each_release_gets_its_own_noise_and_each_repetition_its_own_stream():
    noise = Recorder()
    gate = Gate(example_plan(), noise)
    for name, value in [
        ("mean", MEAN), ("count", COUNT), ("mean", MEAN), ("mean", MEAN), ("count", COUNT)
    ]:  # fmt: skip
        np.testing.assert_array_equal(gate.release(name, value), value + 1000.0)
    gate.close()
    assert [scale for scale, _ in noise.asked] == [50.0, 40.0, 50.0, 50.0, 40.0]
    streams = [stream for _, stream in noise.asked]
    assert len(set(streams)) == 5
    assert streams == [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1)]


def test_uniform_numbers_are_fresh_in_every_draw_and_apart_from_all_noise():
    asked = []

    class Uniform(Recorder):
        def uniform(self, shape, stream):
            asked.append(stream)
            return np.zeros(shape)

    gate = Gate(example_plan(), Uniform())
    for _ in range(3):
        gate.uniform((2,))
    assert len(set(asked)) == 3
    # Streams of releases begin with their number.
    assert all(stream[0] >= len(example_plan().releases) for stream in asked)


def test_the_trace_holds_names_and_shapes_in_order_and_no_values():
    gate = Gate(example_plan(), Recorder())
    gate.release("mean", MEAN)
    gate.release("count", COUNT)
    assert gate.trace == [("mean", (2, 1)), ("count", ())]


def test_an_unknown_name_is_refused():
    noise = Recorder()
    gate = Gate(example_plan(), noise)
    with pytest.raises(PlanViolation, match=r"Got a release 'Mean', expected one of \['count', 'm"):
        gate.release("Mean", MEAN)
    assert not noise.asked
    assert not gate.trace


@pytest.mark.parametrize("shape", [(2,), (1, 2), (3, 1), (2, 1, 1), ()])
def test_another_shape_is_refused_even_where_it_would_broadcast(shape):
    noise = Recorder()
    gate = Gate(example_plan(), noise)
    with pytest.raises(PlanViolation, match=r"Got shape .* for the release 'mean', expected \(2"):
        gate.release("mean", np.zeros(shape))
    assert not noise.asked


def test_a_release_too_many_is_refused():
    noise = Recorder()
    gate = Gate(example_plan(), noise)
    for _ in range(2):
        gate.release("count", COUNT)
    with pytest.raises(PlanViolation, match=r"Got release 'count' for time 3, expected it 2 times"):
        gate.release("count", COUNT)
    assert len(noise.asked) == 2
    assert len(gate.trace) == 2


@pytest.mark.parametrize("n_counts", [0, 1])
def test_a_missing_release_is_noticed_at_the_end(n_counts):
    gate = Gate(example_plan(), Recorder())
    for _ in range(3):
        gate.release("mean", MEAN)
    for _ in range(n_counts):
        gate.release("count", COUNT)
    with pytest.raises(
        PlanViolation, match=f"Got the release 'count' {n_counts} times, expected 2"
    ):
        gate.close()


def test_a_refused_release_does_not_count():
    gate = Gate(example_plan(), Recorder())
    with pytest.raises(PlanViolation):
        gate.release("count", MEAN)
    for _ in range(2):
        gate.release("count", COUNT)
    for _ in range(3):
        gate.release("mean", MEAN)
    gate.close()


def test_without_a_budget_values_pass_as_they_are_but_are_still_counted():
    plan = example_plan()
    silent = tuple(dataclasses.replace(r, noise_std=0.0) for r in plan.releases)
    plan = example_plan(budget=Budget(epsilon=math.inf, delta=1e-5), releases=silent)
    noise = Recorder()
    gate = Gate(plan, noise)
    value = np.array([[0.1], [1.0 / 3]])
    np.testing.assert_array_equal(gate.release("mean", value), value)
    assert not noise.asked
    with pytest.raises(PlanViolation):
        gate.close()


def test_seeded_noise_is_independent_between_repetitions_and_between_plans():
    def draws(plan):
        gate = Gate(plan, noise_source(0, plan.digest()))
        return np.array([gate.release("mean", MEAN) for _ in range(3)]).ravel()

    one, other = example_plan(), example_plan(algorithm="Other")
    np.testing.assert_array_equal(draws(one), draws(one))
    assert len(np.unique(np.concatenate([draws(one), draws(other)]))) == 12


def test_the_value_that_came_in_is_not_changed():
    plan = example_plan()
    value = np.ones((2, 1))
    released = Gate(plan, noise_source(0, plan.digest())).release("mean", value)
    np.testing.assert_array_equal(value, 1.0)
    assert not np.shares_memory(value, released)


# Noise of a path, step by step. An iterate has two numbers.

BLOCK = PATH_ENTRIES // 2


def path_plan(times=None, **changed):
    release = Release(name="mean", shape=(2, 1), sensitivities=(1.0,), noise_std=50.0)
    path = NoisyPath(
        name="iterate",
        shape=(2, 1),
        sensitivity=1.0,
        noise_std=5.0,
        guarantee=GaussianDP(0.2),
        worst_case=GaussianDP(0.2),
        times=times,
    )
    return example_plan(releases=(release, path), **changed)


def path_of_pieces(plan, sizes, n_arrived=0):
    gate = Gate(plan, noise_source(0, plan.digest()), n_arrived=n_arrived)
    return np.concatenate([gate.path_noise("iterate", n_steps) for n_steps in sizes])


@pytest.mark.parametrize(
    "sizes",
    [
        [BLOCK, BLOCK, 10],
        [BLOCK - 1, 1, 1, BLOCK - 1, 10],
        [1, 2 * BLOCK, 9],
        [BLOCK + 1, 0, BLOCK + 9],
        [0, 2 * BLOCK + 10, 0],
    ],
    ids=str,
)
def test_the_noise_of_a_step_does_not_depend_on_how_steps_were_asked_for(sizes):
    plan, n_steps = path_plan(), 2 * BLOCK + 10
    whole = path_of_pieces(plan, [n_steps])
    assert whole.shape == (n_steps, 2, 1)
    np.testing.assert_array_equal(path_of_pieces(plan, sizes), whole)


@pytest.mark.parametrize("n_arrived", [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
def test_steps_that_were_taken_before_keep_their_noise(n_arrived):
    plan = path_plan()
    whole = path_of_pieces(plan, [2 * BLOCK + 10])
    later = path_of_pieces(plan, [2 * BLOCK + 10 - n_arrived], n_arrived)
    np.testing.assert_array_equal(later, whole[n_arrived:])


def test_only_a_path_without_an_end_has_steps_that_were_taken_before():
    gate = Gate(path_plan(times=3), noise_source(0, b"plan"), n_arrived=3)
    gate.release("mean", MEAN)
    assert gate.path_noise("iterate", 3).shape == (3, 2, 1)
    gate.close()


def test_every_step_has_noise_of_its_own_with_the_planned_scale():
    plan = path_plan()
    for random_state in (0, None):
        gate = Gate(plan, noise_source(random_state, plan.digest()))
        noise = np.concatenate([gate.path_noise("iterate", n) for n in (1, 2, 2 * BLOCK)])
        # Single numbers lie on a grid, where some of so many meet.
        assert len(np.unique(noise, axis=0)) == len(noise) == 2 * BLOCK + 3
        # 32,774 numbers: a standard error of .4 %.
        assert noise.std() == pytest.approx(5.0, rel=0.025)
        assert abs(noise.mean()) < 0.17


def test_noise_of_a_path_is_asked_for_in_blocks_only_where_it_is_replayed():
    for simulation, asked in ((True, [(1, 0), (1, 0)]), (False, [(1, 0), (1, 3)])):
        noise = Recorder(simulation=simulation)
        gate = Gate(path_plan(), noise)
        for n_steps in (3, 2):
            drawn = gate.path_noise("iterate", n_steps)
            np.testing.assert_array_equal(drawn, np.full((n_steps, 2, 1), 1000.0))
        assert noise.asked == [(5.0, stream) for stream in asked]


def test_a_path_and_a_release_are_not_taken_for_each_other():
    noise = Recorder()
    gate = Gate(path_plan(), noise)
    for action in (gate.release, lambda name, _: gate.skip(name)):
        with pytest.raises(PlanViolation, match=r"^Got 'iterate' .* expected `path_noise`: "):
            action("iterate", MEAN)
    with pytest.raises(PlanViolation, match=r"^Got 'mean' in `path_noise`, expected `release`: "):
        gate.path_noise("mean", 1)
    with pytest.raises(
        PlanViolation, match=r"Got a release 'Iterate', expected one of \['iterate'"
    ):
        gate.path_noise("Iterate", 1)
    assert not noise.asked
    assert not gate.trace


@pytest.mark.parametrize("sizes", [[4], [3, 1], [1, 1, 2]], ids=str)
def test_a_step_too_many_is_refused_and_uses_up_nothing(sizes):
    noise = Recorder()
    gate = Gate(path_plan(times=3), noise)
    for n_steps in sizes[:-1]:
        gate.path_noise("iterate", n_steps)
    before = list(noise.asked)
    with pytest.raises(PlanViolation, match=r"^Got step 4 of 'iterate', expected no more than 3 s"):
        gate.path_noise("iterate", sizes[-1])
    assert noise.asked == before
    gate.release("mean", MEAN)
    if sum(sizes[:-1]) < 3:
        gate.path_noise("iterate", 3 - sum(sizes[:-1]))
    gate.close()


def test_a_path_that_is_too_short_is_noticed_and_one_without_an_end_never_is():
    for times, n_steps in ((3, 2), (None, 0), (None, 7)):
        gate = Gate(path_plan(times=times), Recorder())
        gate.release("mean", MEAN)
        gate.path_noise("iterate", n_steps)
        assert gate.trace[-1] == ("iterate", (n_steps, 2, 1))
        if times is None:
            gate.close()
            continue
        with pytest.raises(PlanViolation, match="Got the release 'iterate' 2 times, expected 3"):
            gate.close()


def test_a_path_without_a_budget_has_no_noise_and_still_counts():
    releases = path_plan(times=3).releases
    silent = tuple(dataclasses.replace(r, noise_std=0.0) for r in releases)
    noise = Recorder()
    plan = example_plan(budget=Budget(epsilon=math.inf, delta=1e-5), releases=silent)
    gate = Gate(plan, noise)
    np.testing.assert_array_equal(gate.path_noise("iterate", 3), np.zeros((3, 2, 1)))
    assert not noise.asked
    with pytest.raises(PlanViolation, match="Got step 4"):
        gate.path_noise("iterate", 1)


def test_a_violation_is_an_error_of_the_program_not_of_the_input():
    assert issubclass(PlanViolation, RuntimeError)
    assert not issubclass(PlanViolation, ValueError)


# Sums by secret sharing. Agents with budgets of their own, of whom five in six may pool their
# shares, have noise of their own, on grids that differ.

SHARED = "sum of agents' gradients, by secret sharing"
EPSILONS = [0.5, 1.0, 2.0, 4.0, 1.0, 30.0]


def shared_plan(*, n_features=1, own_noise=True, **knobs):
    own = {"epsilon": EPSILONS, "coalition": 5} if own_noise else {"coalition": 2}
    algorithm = SecretSharingGradientDescent(n_curators=5 if own_noise else None, **knobs)
    return DPDecentralizedRegressor(
        algorithm=algorithm, n_agents=6, max_iter=3, conditioning=None, fit_intercept=False, **own
    ).plan(n_samples=60, n_features=n_features)


def grids_of(plan):
    """For each agent its noise and its cell, in cells of the finest grid."""
    release = plan.releases[-1]
    shares = np.asarray(release.shares)[plan.facts.agents.kind] / release.cell
    return shares, np.array([grid_cell(share) for share in shares])


@dataclass
class NoiseToCome:
    """Whole numbers of cells as noise, each asked for once."""

    simulation: bool = True
    asked: list = field(default_factory=list)

    def add_gaussian(self, value, scale, stream):
        self.asked.append((scale, stream, value.shape))
        assert not value.any()
        return value + grid_cell(scale) * len(self.asked)


@pytest.fixture
def secrets(monkeypatch):
    """What agents share out, as whole numbers, of every sum."""
    seen = []

    def kept(residues, n_curators, modulus):
        seen.append(centred(residues, modulus))
        return share_and_sum(residues, n_curators, modulus)

    monkeypatch.setattr(gate_module, "share_and_sum", kept)
    return seen


@pytest.mark.parametrize("random_state", [0, None])
@pytest.mark.parametrize("own_noise", [True, False])
def test_every_agent_adds_fresh_noise_of_its_own_as_planned(secrets, random_state, own_noise):
    plan = shared_plan(n_features=20_000, own_noise=own_noise, modulus=2**63)
    gate = Gate(plan, noise_source(random_state, plan.digest()))
    value = np.zeros((6, 20_000, 1))
    released = [gate.share(SHARED, value) for _ in range(3)]
    gate.close()
    release = plan.releases[-1]
    shares, cells = grids_of(plan)
    noise = np.array(secrets)[..., 0]
    # 60,000 numbers of each agent: a standard error of .3 %.
    np.testing.assert_allclose(noise.std(axis=(0, 2)), shares, rtol=0.015)
    assert np.all(np.abs(noise.mean(axis=(0, 2))) < 0.02 * shares)
    assert not np.any(noise % cells[:, None].astype(np.int64))
    # Neither two agents nor two rounds have anything in common.
    alike = np.corrcoef(noise.reshape(18, -1))
    assert np.abs(alike - np.eye(18)).max() < 0.04
    # What comes out is the sum of what went in, and has the planned noise.
    np.testing.assert_array_equal(
        np.array(released)[..., 0], release.cell * np.array(secrets).sum(axis=1)[..., 0]
    )
    assert np.std(released) == pytest.approx(release.noise_std, rel=0.015)


def test_noise_of_a_shared_sum_is_asked_for_once_for_each_kind_of_agent_and_each_time():
    plan, noise = shared_plan(), NoiseToCome()
    gate = Gate(plan, noise)
    for _ in range(3):
        gate.share(SHARED, np.zeros((6, 1, 1)))
    release = plan.releases[-1]
    expected = [share / release.cell for share in release.shares] * 3
    assert [scale for scale, _, _ in noise.asked] == expected
    streams = [stream for _, stream, _ in noise.asked]
    assert len(set(streams)) == 15
    # Those of what is uniform end in another way: (releases, 0, draw).
    assert all(stream[0] == 0 for stream in streams)
    assert sum(shape[0] for _, _, shape in noise.asked) == 18


def test_seeded_shares_of_noise_are_replayed_whatever_the_shares_of_messages():
    plan = shared_plan(n_features=50)
    value = np.random.default_rng(0).standard_normal((6, 50, 1))
    one, other = (Gate(plan, noise_source(0, plan.digest())).share(SHARED, value) for _ in "ab")
    np.testing.assert_array_equal(one, other)
    apart = Gate(shared_plan(n_features=50, modulus=2**62), noise_source(0, b"other"))
    assert not np.array_equal(apart.share(SHARED, value), one)


def residues_beside_noise(plan, value, secrets):
    """Digits of what each agent shares out that are finer than its noise."""
    Gate(plan, noise_source(None, plan.digest())).share(SHARED, value)
    _, cells = grids_of(plan)
    return secrets[-1] % cells[:, None, None].astype(np.int64)


def test_messages_are_rounded_to_the_grid_of_the_noise_of_their_own_sender(secrets, monkeypatch):
    plan = shared_plan(n_features=40)
    release = plan.releases[-1]
    _, cells = grids_of(plan)
    assert cells.min() == 1
    assert cells.max() >= 32
    rng = np.random.default_rng(0)
    value = rng.uniform(-1, 1, (6, 40, 1))
    assert not residues_beside_noise(plan, value, secrets).any()
    # Without noise a message is off by half a cell of its sender's grid at most.
    Gate(plan, NoNoise()).share(SHARED, value)
    off = np.abs(secrets[-1] - value / release.cell)
    assert np.all(off <= cells[:, None, None] / 2)
    assert off[np.argmax(cells)].max() > 4
    # With a finer grid the last digits are the same each time: whoever sees one message sees them.
    monkeypatch.setattr(gate_module, "round_to_grid", lambda value, scale: np.rint(value))
    one, other = (residues_beside_noise(plan, value, secrets) for _ in "ab")
    np.testing.assert_array_equal(one, other)
    assert len(np.unique(one[np.argmax(cells)])) > 10


class NoNoise:
    simulation = True

    def add_gaussian(self, value, scale, stream):
        return value


@pytest.mark.parametrize("n_curators", [2, 3, 6])
@pytest.mark.parametrize("modulus", [2**64, 2**63, 2**61 - 1, 2**45 + 59])
def test_neither_curators_nor_the_modulus_change_a_sum(n_curators, modulus):
    plan = shared_plan(own_noise=False, n_features=30)
    release = plan.releases[-1]
    value = np.random.default_rng(0).uniform(-10, 10, (6, 30, 1))
    expected = Gate(plan, NoNoise()).share(SHARED, value)
    np.testing.assert_allclose(expected, value.sum(axis=0), atol=3 * release.cell)
    changed = dataclasses.replace(release, n_curators=n_curators, modulus=modulus)
    other = dataclasses.replace(plan, releases=(*plan.releases[:-1], changed))
    np.testing.assert_array_equal(Gate(other, NoNoise()).share(SHARED, value), expected)


def test_messages_that_leave_the_range_of_the_modulus_are_refused_and_do_not_count():
    plan = shared_plan(own_noise=False)
    release = dataclasses.replace(plan.releases[-1], modulus=2**16)
    plan = dataclasses.replace(plan, releases=(release,))
    noise = Recorder()
    gate = Gate(plan, noise)
    value = np.zeros((6, 1, 1))
    for far in (release.cell * 2**15, -1e300):
        value[2] = far
        with pytest.raises(PlanViolation, match=r"whose sum leaves the range of modulus=65536\.$"):
            gate.share(SHARED, value)
    # Messages that would cancel: what counts is what they could add up to.
    value[:2, 0, 0] = release.cell * 2**14 * np.array([1, -1])
    with pytest.raises(PlanViolation, match="leaves the range"):
        gate.share(SHARED, value)
    assert not noise.asked
    assert gate.trace == []


def test_shared_sums_and_releases_are_not_taken_for_each_other():
    plan, noise = shared_plan(), Recorder()
    gate = Gate(plan, noise)
    with pytest.raises(PlanViolation, match=r"^Got .* in `release`, expected `share`: "):
        gate.release(SHARED, np.zeros((1, 1)))
    with pytest.raises(PlanViolation, match=r"expected `share`"):
        gate.release(SHARED, np.zeros((1, 1)), np.ones(6, dtype=bool))
    with pytest.raises(PlanViolation, match=r"^Got a release 'mean', expected one of"):
        gate.share("mean", MEAN)
    with pytest.raises(PlanViolation, match=r"^Got 'mean' in `share`, expected `release`: "):
        Gate(example_plan(), noise).share("mean", MEAN)
    for action in (gate.hidden_term, lambda name: gate.path_noise(name, 1)):
        with pytest.raises(PlanViolation, match="expected `share`"):
            action(SHARED)
    assert not noise.asked
    assert not gate.trace


@pytest.mark.parametrize("shape", [(1, 1), (5, 1, 1), (7, 1, 1), (6, 1), (6, 2, 1), (6, 1, 1, 1)])
def test_messages_of_another_shape_are_refused(shape):
    noise = Recorder()
    gate = Gate(shared_plan(), noise)
    with pytest.raises(PlanViolation, match=r"^Got shape .* for the messages of .*\(6, 1, 1\)"):
        gate.share(SHARED, np.zeros(shape))
    assert not noise.asked


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_messages_that_are_not_finite_are_refused(bad):
    gate = Gate(shared_plan(), Recorder())
    value = np.zeros((6, 1, 1))
    value[3] = bad
    with pytest.raises(PlanViolation, match=r"^Got entries of the release .* not finite"):
        gate.share(SHARED, value)
    assert not gate.trace


def test_shared_sums_are_counted_and_traced_without_values():
    plan = shared_plan(own_noise=False)
    gate = Gate(plan, NoNoise())
    value = np.ones((6, 1, 1))
    for _ in range(2):
        gate.share(SHARED, value)
    with pytest.raises(PlanViolation, match="2 times, expected 3"):
        gate.close()
    gate.share(SHARED, value)
    gate.close()
    assert gate.trace == [(SHARED, (1, 1))] * 3
    with pytest.raises(PlanViolation, match="for time 4, expected it 3 times"):
        gate.share(SHARED, value)
    np.testing.assert_array_equal(value, 1.0)
    held = [v for v in vars(gate).values() if isinstance(v, np.ndarray) and v.size]
    assert not held


def test_noise_of_an_exact_sampler_is_a_whole_number_of_cells_too(secrets):
    pytest.importorskip("opendp")
    plan = shared_plan(n_features=40)
    gate = Gate(plan, noise_source(None, plan.digest(), "opendp"))
    gate.share(SHARED, np.zeros((6, 40, 1)))
    shares, cells = grids_of(plan)
    noise = secrets[0][..., 0]
    assert not np.any(noise % cells[:, None].astype(np.int64))
    assert np.sqrt(np.square(noise / shares[:, None]).mean()) == pytest.approx(1, abs=0.25)
