"""Attacks by many fits: what they find is near the claim, where it is tight, and never above it.

The examples are worst cases: a few records whose clipped losses are linear.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge, DPDecentralizedRegressor, DPFedRidge
from skdpadmm.algorithms import (
    AveragedADMM,
    ConsensusADMM,
    FederatedADMM,
    GradientADMM,
    MultiStepADMM,
    SecretSharingGradientDescent,
)
from tests.contract.harness import RecordingGate, runs_of
from tests.divergence.densities import mu_lower_bound

SHARED = {"fit_intercept": False, "delta": 1e-3, "conditioning": None, "max_iter": 3}
STEPS = {"step_size": 0.01, "clip_norm": 0.01}
# One iterate of three is returned: it tells as much as the path where losses are linear.
ONE = {**STEPS, "tail_fraction": 1 / 3}


def coefficient(solution, gate):
    return solution.parameters[0, 0]


def difference_of_classes(solution, gate):
    return solution.parameters[0, 0] - solution.parameters[0, 1]


def last_coefficient(solution, gate):
    return solution.parameters[-1, 0]


def sum_of_released(solution, gate):
    return sum(passage.out.sum() for passage in gate.passages if passage.value is not None)


def messages_of_first_agent(solution, gate):
    found = 0.0
    for passage in gate.passages:
        if passage.value is not None:
            found += passage.out[0].sum()
    return found


@dataclass(frozen=True)
class Attack:
    """Fits with a record, and with another one in its place, and what an adversary looks at."""

    id: str
    model: Any
    n_samples: int = 2
    canary: int = 0
    statistic: Callable[..., float] = coefficient
    # How much of the claimed mu so few fits show.
    finds: float = 0.55
    targets: tuple[float, float] = (2.9, -2.9)

    def runs(self, n_runs):
        found = []
        for target in self.targets:
            X, y = self.data(target)
            agents = {}
            if hasattr(self.model, "partition"):
                agents = {"agents": np.repeat(np.arange(len(y) // 2), 2)}
            run = runs_of(self.model, X, y, **agents)
            found.append(np.array([self.statistic(*run(RecordingGate)) for _ in range(n_runs)]))
            plan = run(RecordingGate)[1].plan
        return plan, found

    def data(self, target):
        X, y = np.ones((self.n_samples, 1)), np.full(self.n_samples, self.targets[0])
        y[self.canary] = target
        return X, y


class HugeRows(Attack):
    """The record is as long as floats are, and turns over."""

    def data(self, target):
        sign = np.sign(target)
        return np.array([[1.7e308, sign * 1.7e308], [1.0, 0.0]]), np.array([1e308, 1.0])


def ridge(algorithm, make=DPAdmmRidge, **params):
    return make(algorithm=algorithm, **{**SHARED, "alpha": 0.0, "epsilon": 3.0, **params})


ATTACKS = [
    Attack("consensus", ridge(ConsensusADMM(**ONE))),
    Attack("three classes", DPAdmmLogisticRegression(algorithm=ConsensusADMM(**ONE),
           classes=[0, 1, 2], epsilon=3.0, **SHARED), targets=(1, 0),
           statistic=difference_of_classes, finds=0.3),
    HugeRows("huge rows", ridge(ConsensusADMM(**ONE)), statistic=last_coefficient,
             finds=-np.inf),
    Attack("averaged, last", ridge(AveragedADMM(**STEPS, guarantee="last"), alpha=1.0)),
    Attack("gradient ADMM", ridge(
        GradientADMM(**STEPS, penalty_weight=0.1, average=False, order="arrival", passes=1)),
        n_samples=1),
    Attack("federation, model", ridge(FederatedADMM(**STEPS), DPFedRidge, adversary="model"),
           n_samples=6, statistic=sum_of_released),
    Attack("multi-step", ridge(MultiStepADMM(**STEPS), DPDecentralizedRegressor, max_iter=2),
           n_samples=6, statistic=messages_of_first_agent),
    Attack("secret sharing", ridge(SecretSharingGradientDescent(**STEPS), DPFedRidge,
           adversary="model"), n_samples=8, statistic=sum_of_released),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("fixed_entropy")
@pytest.mark.filterwarnings("ignore:Got delta")
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.id)
def test_an_attack_comes_close_to_the_claim_and_not_above(attack):
    plan, (without, having) = attack.runs(6000)
    found, claimed = mu_lower_bound(without, having), plan.guarantee().mu
    assert attack.finds * claimed <= found <= claimed
