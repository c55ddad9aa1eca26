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
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Gate, Plan, PlanViolation, Release


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


def test_a_violation_is_an_error_of_the_program_not_of_the_input():
    assert issubclass(PlanViolation, RuntimeError)
    assert not issubclass(PlanViolation, ValueError)
