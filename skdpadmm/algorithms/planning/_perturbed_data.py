"""How much noise a record takes that is published by itself."""

from __future__ import annotations

import math
from functools import cache
from typing import Literal

from skdpadmm.algorithms.planning._defaults import typical_row
from skdpadmm.privacy import GaussianDP, Guarantee, LaplaceDP, RandomizedResponseDP, gaussian_mu
from skdpadmm.protocol import Budget, Facts, PerturbedRows, RandomizedLabels, View

Law = Literal["gaussian", "laplace"]
# Beyond it a label is told as another one less often than a random number has cells.
LARGEST_RESPONSE = 36.0
# A little more noise than enough, so that no rounding takes epsilon above the budget.
SAFE = 1 + 1e-12


def target_weight(facts: Facts, share: float, law: Law) -> float:
    """What targets in [-1, 1] are multiplied by, so that noise of one size splits the budget.

    Parameters
    ----------
    facts : Facts
    share : float
        Of epsilon, or for Gaussian noise of the square of mu.
    law : {"gaussian", "laplace"}

    Returns
    -------
    float
    """
    beside = n_features_of(facts) * share / (1.0 - share)
    return beside if law == "laplace" else math.sqrt(beside)


def share_of_labels(facts: Facts, budget: Budget, share: float) -> tuple[float, ...]:
    """Epsilon of the labels, for each kind of agent."""
    assert facts.agents is not None
    epsilons = facts.agents.budgets(budget.epsilon)
    return tuple(min(share * epsilon, LARGEST_RESPONSE) for epsilon in epsilons)


def perturbed_rows(
    facts: Facts,
    budget: Budget,
    *,
    name: str,
    law: Law,
    target_weight: float,
    spent: tuple[float, ...],
) -> PerturbedRows:
    """Plan the noise of the numbers of each record.

    Parameters
    ----------
    facts : Facts
        With agents.
    budget : Budget
        A finite one.
    name : str
    law : {"gaussian", "laplace"}
    target_weight : float
        What targets are multiplied by, which are the last number; 0 where there is none.
    spent : tuple of float
        Epsilon of the labels, for each kind of agent; empty where there are none.

    Returns
    -------
    PerturbedRows
    """
    agents, n_features = facts.agents, n_features_of(facts)
    assert agents is not None
    bound = n_features + target_weight
    if law == "gaussian":
        bound = math.sqrt(n_features + target_weight**2)
    # Sums of as many numbers decide whether a norm is too large.
    rounding = facts.working_rounding * (1.0 + 2.0**-50 * n_features)
    moved = facts.neighboring.sensitivity_factor * bound * rounding

    @cache
    def calibrated(epsilon: float) -> tuple[float, Guarantee]:
        if law == "laplace":
            scale = moved / epsilon * SAFE
            return math.sqrt(2.0) * scale, LaplaceDP((moved / scale,))
        scale = moved / gaussian_mu(epsilon, budget.delta) * SAFE
        return scale, GaussianDP(moved / scale)

    epsilons = agents.budgets(budget.epsilon)
    of_labels = spent or (0.0,) * len(epsilons)
    found = [calibrated(total - part) for total, part in zip(epsilons, of_labels, strict=True)]
    shares = tuple(share for share, _ in found)
    n_numbers = n_features + (0 if target_weight == 0 else 1)
    return PerturbedRows(
        name=name,
        shape=(facts.n_samples, n_numbers),
        sensitivities=(moved,),
        noise_std=max(shares),
        seen_by=agents.observers,
        shares=shares,
        views=_views(facts, tuple(guarantee for _, guarantee in found)),
        law=law,
    )


def randomized_labels(facts: Facts, *, name: str, epsilons: tuple[float, ...]) -> RandomizedLabels:
    """Plan how often labels are told as others.

    Parameters
    ----------
    facts : Facts
        Of a classification.
    name : str
    epsilons : tuple of float
        For each kind of agent.

    Returns
    -------
    RandomizedLabels
    """
    assert facts.agents is not None
    n_labels = max(facts.loss.n_outputs, 2)
    responses = tuple(RandomizedResponseDP(epsilon, n_labels) for epsilon in epsilons)
    others = tuple(response.other for response in responses)
    wrong = [(n_labels - 1) * other for other in others]
    return RandomizedLabels(
        name=name,
        shape=(facts.n_samples,),
        sensitivities=(1.0,),
        noise_std=max(math.sqrt(p * (1.0 - p)) for p in wrong),
        seen_by=facts.agents.observers,
        views=_views(facts, responses),
        n_labels=n_labels,
        others=others,
    )


def shrinkage(facts: Facts, rows: PerturbedRows) -> tuple[float, ...]:
    """What features with noise are multiplied by to be the best linear guess, by public figures.

    Parameters
    ----------
    facts : Facts
    rows : PerturbedRows

    Returns
    -------
    tuple of float
        For each kind of agent.
    """
    typical = typical_row(facts) ** 2 / facts.n_parameters
    return tuple(1.0 / (1.0 + (share / math.sqrt(typical)) ** 2) for share in rows.shares)


def n_features_of(facts: Facts) -> int:
    """Number of features, without the intercept."""
    assert facts.coordinates is not None
    return facts.coordinates.n_features


def _views(facts: Facts, guarantees: tuple[Guarantee, ...]) -> tuple[View, ...]:
    """Everybody learns the same."""
    return tuple(
        View(observer=observer, guarantees=guarantees, worst_cases=guarantees)
        for observer in facts.observers
    )
