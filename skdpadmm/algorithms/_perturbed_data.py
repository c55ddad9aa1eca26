"""Every record is published with noise of its own, and personal models are fitted to that.

The baseline of local differential privacy in section 4 of Bellet, Guerraoui, Taziki & Tommasi,
"Fast and Differentially Private Algorithms for Decentralized Collaborative Machine Learning"
(hal-01665410, 2017). Labels are those of S. L. Warner, "Randomized response", JASA 1965.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skdpadmm.algorithms._personalized_optimum import (
    minimal_models,
    optimal_models,
    optimal_plan,
)
from skdpadmm.algorithms.planning._defaults import is_regression
from skdpadmm.algorithms.planning._knobs import check_choice, check_range
from skdpadmm.algorithms.planning._perturbed_data import (
    perturbed_rows,
    randomized_labels,
    share_of_labels,
    shrinkage,
    target_weight,
)
from skdpadmm.algorithms.planning._wake_ups import check_squared_penalty
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Budget, Facts, Gate, Plan, Problem, Release, Solution
from skdpadmm.records import Rows

ROWS, LABELS = "records with noise", "labels, some of them others"
TOLERANCE = 1e-10


@dataclass(frozen=True, kw_only=True)
class PerturbedDataSettings:
    """Constants of one run, resolved.

    Attributes
    ----------
    models : {"joint", "local"}
    noise : {"laplace", "gaussian"}
    target_weight : float
        What targets are multiplied by before noise of one size is added; 0 where they are labels.
    shrinkage : tuple of float
        What features with noise are multiplied by, for each kind of agent.
    max_iter : int
    tolerance : float
        Of the fit to what was published.
    """

    models: str
    noise: str
    target_weight: float
    shrinkage: tuple[float, ...]
    max_iter: int
    tolerance: float


class PerturbedData(BaseEstimator):
    r"""Agents publish their records, each of them with noise: local differential privacy.

    Nobody is trusted with anything, and all that follows is free. A record in public coordinates,
    x and y, leaves its agent once, as

    .. math:: \tilde x = x + \xi, \qquad \tilde y = y + \zeta \quad \text{or} \quad P(\tilde y = c)
              = \frac{e^{\epsilon_y [c = y]}}{e^{\epsilon_y} + k - 1}

    for a number, or for one of k labels. Models are then fitted to the noisy records as they would
    be to others: :class:`PersonalizedOptimum`, or each agent's own by itself. Features are first
    multiplied by :math:`v / (v + s^2)`, where s is the standard deviation of their noise and v what
    their variance typically is, a public figure: the best linear guess of what they were, with
    which noise in features does not make slopes too small. It is a baseline: noise grows with the
    number of features, and no number of records of others hides a record. The fit stops by itself,
    and may take `max_iter` steps, or 100 where that is more: it costs no privacy.

    Parameters
    ----------
    models : {"joint", "local"}, default="joint"
        What is fitted to the noisy records: the joint objective, or each agent's loss alone.
    noise : {"laplace", "gaussian"}, default="laplace"
        On features and on targets that are numbers. With Laplace noise delta is zero at the budget.
    target_share : float, default=0.5
        Share of epsilon that is spent on labels, or on targets; with Gaussian noise on targets the
        share of the square of mu. In [0.001, 0.999].

    Notes
    -----
    **Guarantee.** Observers "eavesdropper" (sees every noisy record) and "model": one figure for
    both. The unit is one record; that of an agent is refused, for it would need as many times the
    noise as there are records. Features are scaled down to an L1 norm of their number p, or for
    Gaussian noise to the Euclidean norm :math:`\sqrt p`, where declared bounds keep them anyway.
    Under replace-one they move by twice that, under zero-out by once: a record that is zeroed out
    has features and a target of zero, and its label is drawn uniformly. Laplace noise of scale s
    has :math:`\epsilon_x = 2 p / s`, together with a target :math:`\epsilon = 2 (p + w) / s`, where
    the noise on targets has scale s / w. Labels are
    :class:`~skdpadmm.privacy.RandomizedResponseDP`, and
    :math:`\epsilon_x + \epsilon_y = \epsilon`. With Gaussian noise on features and with labels, mu
    is that of :math:`(\epsilon - \epsilon_y, \delta)`. What is printed is the exact composition,
    which is a little better than the sum. Each agent has a budget of its own, if it likes.

    What passes the gate here is an array of all records: it is noisy, and public by its nature. No
    estimator keeps it.

    At ``epsilon=inf`` nothing is perturbed: "joint" is :class:`PersonalizedOptimum`, and "local" is
    :class:`LocalModels`.

    Examples
    --------
    >>> from skdpadmm import DPPersonalizedClassifier
    >>> model = DPPersonalizedClassifier(algorithm="perturbed-data", classes=[0, 1])
    >>> for release in model.plan(n_samples=1000, n_features=5).releases:
    ...     print(release.name, release.shape)
    records with noise (1000, 5)
    labels, some of them others (1000,)
    """

    conditionable = False
    setting = "personalized"
    # Serves every budget: without privacy it minimises the objective.
    exact = True

    def __init__(
        self,
        *,
        models: Literal["joint", "local"] = "joint",
        noise: Literal["laplace", "gaussian"] = "laplace",
        target_share: float = 0.5,
    ) -> None:
        self.models = models
        self.noise = noise
        self.target_share = target_share

    def check(self, facts: Facts) -> None:
        """Refuse knobs outside of their range, whatever the budget.

        Raises
        ------
        ValueError
            Says what was expected.
        """
        check_choice("models", self.models, ("joint", "local"))
        check_choice("noise", self.noise, ("laplace", "gaussian"))
        check_range("target_share", self.target_share, 1e-3, 1 - 1e-3, auto=False)
        if facts.unit != "record":
            raise ValueError(
                f"Got privacy_unit={facts.unit!r} for PerturbedData, expected 'record': each record"
                " is published by itself. Use PersonalizedCoordinateDescent for agents."
            )
        check_squared_penalty(facts.penalty)

    def plan(self, facts: Facts, budget: Budget) -> Plan:
        """Decide the noise of records from public facts.

        Parameters
        ----------
        facts : Facts
            Of a neighbourhood.
        budget : Budget

        Returns
        -------
        Plan

        Raises
        ------
        ValueError
            Where a knob is outside its range.
        """
        self.check(facts)
        if not budget.is_private:
            return optimal_plan("PerturbedData", facts, budget, TOLERANCE)
        of_labels = not is_regression(facts)
        share = float(self.target_share)
        weight = 0.0 if of_labels else target_weight(facts, share, self.noise)
        spent = share_of_labels(facts, budget, share) if of_labels else ()
        rows = perturbed_rows(
            facts, budget, name=ROWS, law=self.noise, target_weight=weight, spent=spent
        )
        releases: tuple[Release, ...] = (rows,)
        if of_labels:
            releases = (rows, randomized_labels(facts, name=LABELS, epsilons=spent))
        return Plan(
            algorithm="PerturbedData",
            facts=facts,
            budget=budget,
            settings=PerturbedDataSettings(
                models=self.models,
                noise=self.noise,
                target_weight=weight,
                shrinkage=shrinkage(facts, rows),
                max_iter=max(facts.max_iter, 100),
                tolerance=TOLERANCE,
            ),
            releases=releases,
            assumptions=_assumptions(facts),
        )

    def run(self, plan: Plan, problem: Problem, gate: Gate) -> Solution:
        """Publish records and fit models to them; nothing but what was published enters these.

        Parameters
        ----------
        plan : Plan
        problem : Problem
            With an ownership.
        gate : Gate

        Returns
        -------
        Solution
        """
        facts, ownership = plan.facts, problem.ownership
        assert ownership is not None
        if not plan.budget.is_private:
            return optimal_models(plan, problem, gate, coupled=self.models == "joint")
        published = _published(plan, problem, gate)
        models, n_iter, _ = minimal_models(
            facts,
            published,
            coupled=plan.settings.models == "joint",
            tolerance=plan.settings.tolerance,
            max_iter=plan.settings.max_iter,
        )
        n_numbers = sum(math.prod(release.shape) for release in plan.releases)
        return Solution(
            parameters=models.mean(axis=0),
            parameters_per_agent=models,
            n_iter=n_iter,
            n_rounds=1,
            n_messages=int(np.count_nonzero(ownership.sizes)),
            bytes_sent=8 * n_numbers,
        )


def _assumptions(facts: Facts) -> tuple[str, ...]:
    """What a reader of a report has to know of records that are published."""
    published = (
        "Every record leaves its agent once, with noise, for everybody to see; models are made of"
        " nothing else."
    )
    if facts.neighboring is Neighboring.REPLACE_ONE:
        return (published,)
    absent = "A record that is zeroed out sends noise alone, and as its label any one."
    return (published, absent)


def _published(plan: Plan, problem: Problem, gate: Gate) -> Problem:
    """The problem whose records are those that passed the gate."""
    facts, settings, ownership = plan.facts, plan.settings, problem.ownership
    assert ownership is not None
    assert facts.agents is not None
    owner, coordinates = ownership.index, problem.rows.coordinates
    said = limited_features(problem.rows, settings.noise)
    of_labels = settings.target_weight == 0
    if not of_labels:
        # Declared targets are in there; others were clipped, and are scaled to it.
        numbers = settings.target_weight * np.clip(problem.target, -1.0, 1.0)
        said = np.column_stack([said, numbers])
    heard = gate.perturb_rows(ROWS, said, owner)
    target: Any = heard[:, -1]
    if of_labels:
        # With two of them the loss wants -1 and 1.
        two = facts.loss.n_outputs == 1
        index = (problem.target > 0).astype(np.intp) if two else problem.target.astype(np.intp)
        told = gate.randomize_labels(LABELS, index, owner)
        target = 2.0 * told - 1.0 if two else told
    else:
        target = target / settings.target_weight
    factor = np.asarray(settings.shrinkage)[facts.agents.kind[owner]]
    features = heard[:, : coordinates.n_features] * factor[:, None]
    return Problem(
        rows=Rows(features * coordinates.scale + coordinates.offset, coordinates.without_bounds()),
        target=target,
        engine=problem.engine,
        ownership=ownership,
        progress=problem.progress,
    )


def limited_features(rows: Rows, law: str) -> NDArray[np.float64]:
    """Features of all records in public coordinates, scaled down where their norm is too large.

    Parameters
    ----------
    rows : Rows
    law : {"laplace", "gaussian"}
        Which norm: L1, at most the number of features, or Euclidean, at most its root.

    Returns
    -------
    ndarray of shape (n_samples, n_features)
    """
    n_features = rows.coordinates.n_features
    features = np.empty((rows.n_samples, n_features))
    for block, where in enumerate(rows.slices):
        own = rows.augmented(block)[:, :n_features]
        order, bound = (1, float(n_features)) if law == "laplace" else (2, math.sqrt(n_features))
        norms = np.linalg.norm(own, ord=order, axis=1)
        features[where] = own * np.minimum(1.0, bound / np.maximum(norms, 1e-300))[:, None]
    return features
