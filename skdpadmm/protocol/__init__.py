"""Plan first, then run through a gate: the types that keep the two apart.

An algorithm turns public `Facts` and a `Budget` into a frozen `Plan` that lists every `Release`,
and then runs the plan on a `Problem`. The `Gate` is the only place where noise meets data; it lets
through what was planned and nothing else. So the guarantee is a property of the plan, known before
any data.
"""

from skdpadmm.protocol._agents import (
    EAVESDROPPER,
    MODEL,
    PEER,
    SERVER,
    SUMS,
    Agents,
    Curator,
    Federation,
    Neighborhood,
    Network,
)
from skdpadmm.protocol._facts import (
    SMALLEST_SPREAD,
    Budget,
    Centering,
    Conditioning,
    Facts,
    Inference,
    Scaling,
    neighborhood_of,
    network_of,
)
from skdpadmm.protocol._gate import Gate
from skdpadmm.protocol._plan import (
    Debiased,
    Plan,
    PlanViolation,
    Problem,
    Settings,
    Solution,
    Summand,
)
from skdpadmm.protocol._release import Release, View, not_private
from skdpadmm.protocol._signal import USUAL_DELTA, WEAK, Signal

__all__ = [
    "EAVESDROPPER",
    "MODEL",
    "PEER",
    "SERVER",
    "SMALLEST_SPREAD",
    "SUMS",
    "USUAL_DELTA",
    "WEAK",
    "Agents",
    "Budget",
    "Centering",
    "Conditioning",
    "Curator",
    "Debiased",
    "Facts",
    "Federation",
    "Gate",
    "Inference",
    "Neighborhood",
    "Network",
    "Plan",
    "PlanViolation",
    "Problem",
    "Release",
    "Scaling",
    "Settings",
    "Signal",
    "Solution",
    "Summand",
    "View",
    "neighborhood_of",
    "network_of",
    "not_private",
]
