"""Every record is published with its own noise, and personalised models are fitted to these.

The baseline of local differential privacy in section 4 of Bellet, Guerraoui, Taziki & Tommasi,
"Fast and Differentially Private Algorithms for Decentralized Collaborative Machine Learning"
(hal-01665410, 2017), with Gaussian noise on features and on labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from skdpadmm.algorithms import (
    Algorithm,
    Interval,
    LocalModels,
    OneOf,
    PersonalizedOptimum,
    parameter,
)
from skdpadmm.losses import HuberLoss, SquaredLoss
from skdpadmm.noise import noise_source
from skdpadmm.privacy import GaussianDP, gaussian_mu
from skdpadmm.protocol import (
    Budget,
    Facts,
    Gate,
    Plan,
    Problem,
    Release,
    Settings,
    Solution,
    View,
    neighborhood_of,
)
from skdpadmm.records import Rows

RECORDS = "records with noise"


@dataclass(kw_only=True, eq=False, repr=False)
class PerturbedData(Algorithm):
    r"""Agents publish each record once, with noise: local differential privacy.

    Features in public coordinates, of norm at most :math:`\sqrt p`, and the target times a weight
    get noise of one size. A target is a number in [-1, 1], or the indicator of a class, which the
    largest noisy entry then stands for. Features are multiplied by :math:`v / (v + s^2)`, s their
    noise and v what their variance typically is: the best linear guess of what they were. Models
    are fitted to what was published as at ``epsilon=inf``, which is free.

    **Guarantee.** A record changes its own row alone, by at most
    :math:`2 \sqrt{p + w^2}` (half of it for zero-out), so the release is a Gaussian
    mechanism. Every observer has the same figure.

    Parameters
    ----------
    models : {"joint", "local"}, default="joint"
        What is fitted: the joint objective, or each agent's loss alone.
    target_share : float, default=0.5
        Share of the squared budget that is spent on targets.
    """

    setting, units, conditionable = "personalized", ("record",), False

    models: str = parameter("joint", OneOf("joint", "local"))
    target_share: float = parameter(0.5, Interval(Real, 0, 1, closed="neither"))

    def check_facts(self, facts: Facts) -> None:
        PersonalizedOptimum().check(facts)

    def assumptions(self, facts: Facts, settings: Settings) -> tuple[str, ...]:
        return (
            "Every record leaves its agent once, with noise, for everybody to see; models are made"
            " of nothing else. A record that is zeroed out sends noise alone.",
        )

    def released(self, facts: Facts, budget: Budget) -> tuple[Any, ...]:
        assert facts.coordinates is not None
        p, epsilon = (
            facts.coordinates.n_features,
            min(neighborhood_of(facts).budgets(budget.epsilon)),
        )
        weight = math.sqrt(p * self.target_share / (1 - self.target_share))
        sensitivity = facts.neighboring.sensitivity_factor * math.hypot(math.sqrt(p), weight)
        sensitivity *= facts.working_rounding
        std = sensitivity / gaussian_mu(epsilon, budget.delta) * (1 + 1e-12)
        n_targets = 1 if is_number(facts) else max(facts.loss.n_outputs, 2)
        guarantees = (GaussianDP(sensitivity / std),)
        return self.resolved(target_weight=weight), Release(
            name=RECORDS,
            shape=(facts.n_samples, p + n_targets),
            sensitivities=(sensitivity,),
            noise_std=std,
            views=tuple(View(observer=name, guarantees=guarantees) for name in facts.observers),
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        facts, rows, weight = plan.facts, problem.rows, plan.settings.target_weight
        coordinates = rows.coordinates
        p, std = coordinates.n_features, plan.releases[0].noise_std
        X = np.concatenate([rows.augmented(block)[:, :p] for block in range(rows.n_blocks)])
        norms = np.maximum(np.linalg.norm(X, axis=1, keepdims=True), math.sqrt(p))
        X = X * (math.sqrt(p) / norms)
        number = is_number(facts)
        binary = facts.loss.n_outputs == 1
        target = np.clip(problem.target, -1, 1)[:, None]
        if not number:
            label = (problem.target > 0 if binary else problem.target).astype(np.intp)
            target = np.eye(max(facts.loss.n_outputs, 2))[label]
        published = gate.release(RECORDS, np.column_stack([X, weight * target]))
        labels = published[:, p] / weight
        if not number:
            labels = published[:, p:].argmax(axis=1)
            labels = 2.0 * labels - 1.0 if binary else labels
        variance = 0.36 if facts.is_declared else 1.0
        X = published[:, :p] * (variance / (variance + std**2)) * coordinates.scale
        fit = PersonalizedOptimum() if plan.settings.models == "joint" else LocalModels()
        free = fit.plan(facts, Budget(epsilon=math.inf, delta=plan.budget.delta))
        noisy = Problem(
            rows=Rows(X + coordinates.offset, coordinates.without_bounds()),
            target=labels,
            engine=problem.engine,
            ownership=problem.ownership,
        )
        found = fit.run(free, noisy, Gate(free, noise_source(0, b"")))
        return Solution(
            parameters=found.parameters,
            parameters_per_agent=found.parameters_per_agent,
            n_iter=found.n_iter,
            n_rounds=1,
            n_messages=neighborhood_of(facts).n_agents,
            bytes_sent=8 * published.size,
        )


def is_number(facts: Facts) -> bool:
    return isinstance(facts.loss, SquaredLoss | HuberLoss)
