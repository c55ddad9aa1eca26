"""Statistics of private rows that are released once, with Gaussian noise, beside a fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral
from typing import Any, TypeVar

import numpy as np

from skdpadmm._fitting import reserved
from skdpadmm._report import NOT_CERTIFIED, weak_delta
from skdpadmm.exceptions import PrivacyWarning, warn_user
from skdpadmm.losses import SquaredLoss
from skdpadmm.noise import noise_source
from skdpadmm.penalties import NoPenalty
from skdpadmm.privacy import (
    Neighboring,
    NonPrivate,
    Observer,
    PrivacyReport,
    ReleaseLine,
    gaussian_mu,
)
from skdpadmm.privacy.claims import SAME_ROWS
from skdpadmm.protocol import MODEL, Budget, Facts, Gate, Plan, Release, Settings, not_private

_T = TypeVar("_T")
# The name of the release in a plan.
STATISTICS = "statistics"


def plan_statistics(
    subject: str,
    shape: tuple[int, ...],
    sensitivity: float,
    *,
    epsilon: float,
    delta: float,
    neighboring: str,
    n_samples: int = 1,
    schema: str = "",
) -> Plan:
    """Plan one release of an array whose Euclidean sensitivity, rounding included, is known.

    `schema` is what else is public of it: releases with another one share no seeded noise. Of rows
    whose number is not public `n_samples` is 1. It warns of a delta that is too large.
    """
    budget = Budget(epsilon=epsilon, delta=delta)
    facts = Facts(
        n_samples=n_samples,
        n_parameters=math.prod(shape),
        # There is no model.
        loss=SquaredLoss(),
        penalty=NoPenalty(),
        neighboring=Neighboring(neighboring),
        row_norm=1.0,
        rounding=1.0,
        max_iter=1,
        schema=schema,
    )
    release = not_private(STATISTICS, shape, facts.observers)
    if budget.is_private:
        noise_std = sensitivity / gaussian_mu(epsilon, delta)
        release = Release(
            name=STATISTICS, shape=shape, sensitivities=(sensitivity,), noise_std=noise_std
        )
    for line in weak_delta(budget, n_samples) if budget.is_private else ():
        warn_user(line, PrivacyWarning)
    return Plan(
        algorithm=subject, facts=facts, budget=budget, settings=Settings(()), releases=(release,)
    )


def run_statistics(
    plan: Plan,
    compute: Callable[[Gate], _T],
    *,
    sees: str,
    assumptions: tuple[str, ...] = (),
    random_state: Any = None,
    sampler: str = "floating-point",
    ledger: Any = None,
) -> tuple[_T, PrivacyReport]:
    """Reserve the cost, read data in `compute`, which releases through the gate, and report.

    `sees` says what is released, `assumptions` what its guarantee rests on beside what all do.
    """
    noise = noise_source(random_state, plan.digest(), sampler)
    facts, is_private = plan.facts, plan.budget.is_private
    guarantee = plan.guarantee() if is_private else NonPrivate()
    seed = random_state if isinstance(random_state, Integral) else "a generator"
    simulation = (
        f"random_state={seed} fixes the noise: anyone who knows the seed can remove it. Publish"
        " only what was released with random_state=None."
    )
    assumptions += (
        "All parameters are public, and were not chosen by looking at the data.",
        SAME_ROWS,
        "One record is one row: a person with several rows is protected less.",
        *weak_delta(plan.budget, facts.n_samples),
    )
    if sampler == "floating-point":
        assumptions += (NOT_CERTIFIED,)
    report = PrivacyReport(
        subject=plan.algorithm,
        observers=(Observer(MODEL, sees, facts.unit, facts.neighboring, guarantee),),
        releases=tuple(
            ReleaseLine(r.name, r.times, r.shape, max(r.sensitivities, default=None), r.noise_std)
            for r in plan.releases
        ),
        delta=plan.budget.delta,
        assumptions=assumptions if is_private else (),
        not_covered=(
            "Fits and other releases on the same records: their costs add up.",
            "Errors of input validation, which may show values of the data.",
            "Running time and memory.",
        ),
        simulation=simulation if noise.simulation and is_private else "",
        budget=plan.budget.epsilon,
    )
    with np.errstate(all="ignore"), reserved(ledger, report, plan):
        gate = Gate(plan, noise)
        result = compute(gate)
        gate.close()
    return result, report
