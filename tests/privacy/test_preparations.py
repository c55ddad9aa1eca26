"""Private preparations: rounding in a conditioned basis, and floors that could fall."""

from __future__ import annotations

import pytest

from skdpadmm import DPAdmmRidge
from skdpadmm.algorithms._preparations import plan_conditioning

# Of guarantees.md: mu of a Gaussian mechanism that is (epsilon, 1e-5)-DP.


def test_rounding_is_amplified_by_the_condition_of_the_basis():
    plan = DPAdmmRidge(conditioning="private").plan(1000, 3)
    facts = plan.facts
    widened = 1 + (facts.rounding - 1) * facts.conditioning.condition
    assert facts.working_rounding == pytest.approx(widened, rel=1e-15)
    assert facts.working_rounding > facts.rounding
    expected = 2 * facts.working_rounding / 1000
    assert max(plan.releases[-1].sensitivities) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("power", [-0.5, -1e-9])
def test_a_floor_that_could_fall_below_the_planned_one_is_refused(power):
    plan = DPAdmmRidge(conditioning=None).plan(50, 3)
    choices = {"floor": 0.5, "floor_power": power, "clip_power": 0.0, "resolution": 0.0}
    with pytest.raises(ValueError, match=r"^Got floor, floor_power, resolution="):
        plan_conditioning(plan.facts, plan.budget, mu=1.0, row_norm=1.0, **choices)
