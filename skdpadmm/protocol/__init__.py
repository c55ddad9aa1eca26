"""Plan first, then run through a gate: the types that keep the two apart.

An algorithm turns public `Facts` and a `Budget` into a frozen `Plan` that lists every `Release`,
and then runs the plan on a `Problem`. The `Gate` is the only place where noise meets data; it lets
through what was planned and nothing else. So the guarantee is a property of the plan, known before
any data.
"""

from skdpadmm.protocol._facts import Budget, Facts
from skdpadmm.protocol._gate import Gate, PlanViolation
from skdpadmm.protocol._plan import Plan, Release
from skdpadmm.protocol._problem import Problem, Solution

__all__ = [
    "Budget",
    "Facts",
    "Gate",
    "Plan",
    "PlanViolation",
    "Problem",
    "Release",
    "Solution",
]
