"""Statistics of private rows that are released once, with Gaussian noise, beside a fit."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from skdpadmm import privacy, protocol
from skdpadmm._fitting import reserved
from skdpadmm._numbers import require
from skdpadmm._report import NOT_CERTIFIED, fit_report, weak_delta
from skdpadmm.exceptions import PrivacyWarning, warn_user
from skdpadmm.losses import SquaredLoss
from skdpadmm.noise import noise_source
from skdpadmm.penalties import NoPenalty
from skdpadmm.privacy.claims import SAME_ROWS

_T = TypeVar("_T")
# The name of the release in a plan.
STATISTICS = "statistics"
NOT_COVERED = "Fits and other releases on the same records: their costs add up."


def plan_statistics(
    subject: str,
    shape: tuple[int, ...],
    sensitivity: float,
    *,
    epsilon: float,
    delta: float,
    neighboring: str,
    n_samples: int,
    schema: str,
    lost: float = 0.0,
) -> protocol.Plan:
    """Plan one release of an array whose Euclidean sensitivity, rounding included, is known.

    `schema` is what else is public of it: releases with another one share no seeded noise. With
    probability `lost`, a part of delta, something else is seen that noise does not hide. It warns
    of a delta that is too large.
    """
    expected = "'replace_one' or 'zero_out', as the number of rows is public here"
    require(neighboring in ("replace_one", "zero_out"), "neighboring", neighboring, expected)
    budget = protocol.Budget(epsilon=epsilon, delta=delta)
    facts = protocol.Facts(
        n_samples=n_samples,
        n_parameters=math.prod(shape),
        # There is no model.
        loss=SquaredLoss(),
        penalty=NoPenalty(),
        neighboring=privacy.Neighboring(neighboring),
        row_norm=1.0,
        rounding=1.0,
        max_iter=1,
        schema=schema,
    )
    release = protocol.not_private(STATISTICS, shape, facts.observers)
    if budget.is_private:
        # Rounded up: what is spent is the budget, and not the float above it.
        std = sensitivity / privacy.gaussian_mu(epsilon, (delta - lost) / (1 - lost)) * (1 + 1e-12)
        seen: privacy.Guarantee = privacy.GaussianDP(sensitivity / std)
        if lost:
            seen = privacy.Mixture((1 - lost, lost), (seen, privacy.NonPrivate()))
        views = (protocol.View(observer=protocol.MODEL, guarantees=(seen,)),)
        release = protocol.Release(
            name=STATISTICS, shape=shape, sensitivities=(sensitivity,), noise_std=std, views=views
        )
    for line in weak_delta(budget, n_samples) if budget.is_private else ():
        warn_user(line, PrivacyWarning)
    nothing = protocol.Settings(())
    return protocol.Plan(
        algorithm=subject, facts=facts, budget=budget, settings=nothing, releases=(release,)
    )


def run_statistics(
    plan: protocol.Plan,
    compute: Callable[[protocol.Gate], _T],
    *,
    sees: str,
    assumptions: tuple[str, ...] = (),
    random_state: Any = None,
    sampler: str = "floating-point",
    ledger: Any = None,
) -> tuple[_T, privacy.PrivacyReport]:
    """Reserve the cost, read data in `compute`, which releases through the gate, and report.

    `sees` says what is released, `assumptions` what its guarantee rests on beside what all do.
    """
    noise, facts = noise_source(random_state, plan.digest(), sampler), plan.facts
    is_zero_out = facts.neighboring is privacy.Neighboring.ZERO_OUT
    assumptions += (
        f"n_samples={facts.n_samples} and all parameters are public, and were not chosen by looking"
        " at the data.",
        SAME_ROWS,
        "One record is one row: a person with several rows is protected less.",
        *("A record that is zeroed out adds nothing to any sum.",) * is_zero_out,
        *weak_delta(plan.budget, facts.n_samples),
        *(NOT_CERTIFIED,) * (sampler == "floating-point"),
    )
    seeded = SimpleNamespace(random_state=random_state, algorithm="")
    report = fit_report(seeded, plan, simulated=noise.simulation)
    report = replace(
        report,
        subject=plan.algorithm,
        observers=(replace(report.observers[0], sees=sees),),
        assumptions=assumptions if plan.budget.is_private else (),
        # Validation and time are those of a fit.
        not_covered=(NOT_COVERED, *report.not_covered[-2:]),
        signal="",
        signal_strength=None,
    )
    # A warning, of a model or of floating point, would depend on data.
    silence = warnings.catch_warnings(action="ignore")
    with silence, np.errstate(all="ignore"), reserved(ledger, report, plan.digest()):
        gate = protocol.Gate(plan, noise)
        result = compute(gate)
        gate.close()
    return result, report
