"""The gate: what was planned passes, with its noise; nothing else does."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from skdpadmm.losses import SquaredLoss
from skdpadmm.noise import noise_source
from skdpadmm.penalties import NoPenalty
from skdpadmm.privacy import GaussianDP, Neighboring
from skdpadmm.protocol import Budget, Facts, Gate, NoisyPath, Plan, PlanViolation, Release
from skdpadmm.protocol._gate import PATH_ENTRIES


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
        with pytest.raises(PlanViolation, match=r"^Got 'iterate' .* expected `path_noise`: it has"):
            action("iterate", MEAN)
    with pytest.raises(PlanViolation, match=r"^Got 'mean' as a noisy path, expected `release`\.$"):
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
