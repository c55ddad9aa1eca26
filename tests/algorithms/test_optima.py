"""Without noise and clipping every algorithm ends where scikit-learn does."""

import numpy as np
import pytest

from skdpadmm import algorithms as alg
from skdpadmm.losses import LogisticLoss, MultinomialLoss, SquaredLoss
from skdpadmm.penalties import L1, ElasticNet, SquaredL2
from tests.algorithms.runs import WIDE_OPEN, close, data_for, found, optimum, run

pytestmark = pytest.mark.usefixtures("keep_noise")

PROBLEMS = {
    "lasso": (SquaredLoss(), L1(0.05)),
    "ridge": (SquaredLoss(), SquaredL2(0.2)),
    "elastic net": (SquaredLoss(), ElasticNet(0.03, 0.1)),
    "logistic": (LogisticLoss(), SquaredL2(0.1)),
    "three classes": (MultinomialLoss(3), SquaredL2(0.1)),
}
LAST = {"clip_norm": WIDE_OPEN, "tail_fraction": 1e-9}
LONG, SHORT = {"step_size": 3.0, **LAST}, {"step_size": 0.7, **LAST}
HIDDEN, FREE = {"clip_norm": WIDE_OPEN, "guarantee": "last"}, {"fit_intercept": False}
CERTIFIED = {"step_size": 4.0, "clip_norm": 1e3, "tolerance": 1e-6}
OWNER = np.minimum(np.arange(60) // 4, 5)  # agents of unequal sizes
RECORD, AGENT = {"owner": OWNER}, {"owner": OWNER, "unit": "agent"}
BOUNDS = {"bounds": ([-1, -2, -4], [1, 2, 1])}  # penalties are in the user's units all the same
ABSENT, SAMPLE = RECORD | {"dropout": 0.2}, AGENT | {"participation": 0.3}
LATER = {"message": "increment"}
COVERED = [  # each algorithm with each kind of penalty, where no naive loop or contract has it
    (alg.ConsensusADMM(**LONG, relaxation=0.3), BOUNDS, ("lasso", "three classes")),
    (alg.ConsensusADMM(**LONG, relaxation=0.8), BOUNDS, ("elastic net", "logistic")),
    (alg.FederatedADMM(**LONG), AGENT, ("lasso", "three classes")),
    (alg.FederatedADMM(**LONG, **LATER, relaxation=0.8), RECORD, ("logistic",)),
    (alg.GradientDescent(**SHORT, momentum=0.8), BOUNDS, ("lasso", "elastic net", "logistic")),
    (alg.GradientDescent(step_size=0.4, **HIDDEN), FREE, ("ridge", "three classes")),
    (alg.AveragedADMM(**CERTIFIED), {}, PROBLEMS),
    (alg.AveragedADMM(**CERTIFIED, guarantee="last"), FREE, ("elastic net", "logistic")),
    (alg.CoordinateDescent(step_size=[0.8, 1.0, 1.0, 0.9], **LAST), BOUNDS, PROBLEMS),
    (alg.FederatedADMM(**LONG), AGENT | {"owner": np.arange(60) < 59}, ("lasso", "logistic")),
    (alg.FederatedADMM(**LONG, **LATER, sampling="fixed"), SAMPLE, ("lasso",)),
    (alg.FederatedADMM(**LONG, **LATER), ABSENT, ("lasso",)),
]
CASES = [(algorithm, around, name) for algorithm, around, names in COVERED for name in names]


def is_slow(algorithm, name):
    """Of averaged ADMM, whose steps are solves, one problem is in the quick suite."""
    return isinstance(algorithm, alg.AveragedADMM) and name != "lasso"


@pytest.mark.parametrize(
    ("algorithm", "around", "name"),
    [
        pytest.param(
            *case,
            id=f"{case[0]!r} {case[2]}",
            marks=[pytest.mark.slow] * is_slow(case[0], case[2]),
        )
        for case in CASES
    ],
)
def test_without_noise_and_clipping_the_optimum_is_scikit_learns(algorithm, around, name):
    loss, penalty = PROBLEMS[name]
    X, y = data_for(loss)
    absent = "dropout" in around or "participation" in around
    lengths = {alg.AveragedADMM: 100, alg.FederatedADMM: 150, alg.GradientDescent: 900}
    n_iter = 600 if absent else lengths.get(type(algorithm), 400)
    result = run(algorithm, X, y, loss=loss, penalty=penalty, max_iter=n_iter, **around)
    expected = optimum(loss, penalty, X, y, around.get("fit_intercept", True))
    close(found(result), expected, 1e-6)
