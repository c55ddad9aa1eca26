"""What central and federated algorithms refuse, and which facts no theorem of theirs covers."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from skdpadmm import DPAdmmGeneralizedLasso, DPAdmmLasso, DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import (
    AveragedADMM,
    ConsensusADMM,
    CoordinateDescent,
    FederatedADMM,
    GradientADMM,
    GradientDescent,
    ObjectivePerturbation,
    ProximalNewton,
)
from skdpadmm.losses import MultinomialLoss, SquaredLoss
from skdpadmm.penalties import Box, GroupLasso, LinearConstraint
from tests.algorithms.direct_runs import BUDGET, coordinates_of, facts_for, federated_facts

FACTS = facts_for(coordinates_of(3), 60, SquaredLoss())
POSITIVE = [0.0, -1, math.inf, math.nan, "big", True]
SHARE = [0, -0.5, 1.1, math.nan, "all", True]
INSIDE = [0, 1, -0.1, 1.5, math.nan, "half", None, True]
CHOICE = ["Exact", "", None, 1]
COUNT = [0, -1, 1.5, "3", True]
SEED = [-1, 0.5, True, None]
FLAG = ["yes", 1, None]
STEPS = {"step_size": POSITIVE, "clip_norm": POSITIVE}
BAD = {
    ConsensusADMM: {
        **STEPS, "relaxation": INSIDE, "tail_fraction": SHARE, "record_step": CHOICE,
    },
    FederatedADMM: {
        **STEPS, "relaxation": INSIDE, "tail_fraction": SHARE, "local_step": CHOICE,
        "message": CHOICE, "sampling": CHOICE, "max_participations": COUNT,
    },
    GradientDescent: {
        **STEPS, "momentum": [1.0, -0.1, math.nan, None, True], "tail_fraction": SHARE,
        "schedule": CHOICE, "guarantee": CHOICE, "order_seed": SEED,
    },
    CoordinateDescent: {
        "step_size": [*POSITIVE, [1.0, 2.0]], "clip_norm": [*POSITIVE, None, [[1.0] * 4]],
        "schedule": CHOICE, "tail_fraction": [*SHARE, "auto"], "order_seed": SEED,
    },
    AveragedADMM: {
        **STEPS, "relaxation": [0, 1.5, "half", True], "row_bound": [*POSITIVE, "auto"],
        "tolerance": SHARE, "tail_fraction": SHARE, "guarantee": CHOICE,
    },
    ObjectivePerturbation: {"clip_norm": POSITIVE, "ridge": POSITIVE, "row_bound": POSITIVE},
    GradientADMM: {
        **STEPS, "penalty_weight": POSITIVE, "passes": COUNT, "cap": COUNT, "horizon": COUNT,
        "schedule": CHOICE, "order": CHOICE, "release": CHOICE, "noise_at": CHOICE,
        "order_seed": SEED, "average": FLAG, "compiled": FLAG,
    },
    ProximalNewton: {"tolerance": [-1.0, 2.0, math.nan, "auto", True]},
}  # fmt: skip
CASES = [(algorithm, knob) for algorithm, knobs in BAD.items() for knob in knobs]


@pytest.mark.parametrize(("algorithm", "knob"), CASES)
def test_a_knob_out_of_range_is_refused_with_what_was_expected(algorithm, knob):
    facts = (
        federated_facts([30, 30], coordinates_of(3), SquaredLoss())
        if algorithm is FederatedADMM
        else FACTS
    )
    for value in BAD[algorithm][knob]:
        with pytest.raises(ValueError, match=rf"^Got {knob}=.*, expected "):
            algorithm(**{knob: value}).plan(facts, BUDGET)


RIDGE, LASSO, THREE = (
    DPAdmmRidge(),
    DPAdmmLasso(alpha=1e-3),
    DPAdmmLogisticRegression(classes=[0, 1, 2]),
)
LAST = {"guarantee": "last"}
STREAM, STOPPING = {"schedule": "stream"}, {"schedule": "stopping"}
TIED = GradientADMM(constraint=LinearConstraint(np.eye(3)))
COMBINATIONS = [  # of knobs with each other, with the estimator, and with its other parameters
    (RIDGE, GradientDescent(schedule="cyclic", guarantee="path"), {}, "guarantee='path' with"),
    (RIDGE, GradientDescent(**LAST, momentum=0.5), {}, "momentum=0.5"),
    (RIDGE, GradientDescent(schedule="cyclic", tail_fraction=0.5), {}, ".*tail_fraction=0.5"),
    (RIDGE, GradientDescent(**LAST, step_size=100.0), {}, "step_size=100 for a guarantee of"),
    (RIDGE, GradientDescent(**LAST), {"conditioning": "private"}, "conditioning"),
    (THREE, GradientDescent(**LAST, clip_norm=0.1), {}, "clip_norm=0.1 for 3 scores"),
    (RIDGE, CoordinateDescent(), {"conditioning": "private"}, "conditioning"),
    (RIDGE, AveragedADMM(**LAST, tail_fraction=0.5), {}, "tail.*an average is not the last"),
    (RIDGE, AveragedADMM(**LAST), {}, "a penalty that is not.*fit_intercept=False"),
    (LASSO, AveragedADMM(**LAST), {"fit_intercept": False}, ".*expected one with a ridge"),
    (RIDGE, AveragedADMM(**LAST), {"scale": "private"}, "scale='private'.*declared units"),
    (THREE, AveragedADMM(clip_norm=0.1), {}, ".*which never binds"),
    (THREE, AveragedADMM(**LAST), {"fit_intercept": False}, "3 scores .*expected one score"),
    (LASSO, GradientADMM(cap=3), {}, "cap=3 with schedule='cyclic', expected 'auto'"),
    (LASSO, GradientADMM(average=np.True_), {}, "average=True with release='last'"),
    (LASSO, GradientADMM(**STREAM, release="last"), {}, "release='last' with schedule='stream'"),
    (LASSO, GradientADMM(noise_at="gradient"), {}, "noise_at='gradient' with release='last'"),
    (LASSO, GradientADMM(**STREAM, order="random"), {}, "order='random' and passes='auto' with"),
    (LASSO, GradientADMM(**STOPPING, passes=2), {}, "order='auto' and passes=2 with"),
    (LASSO, GradientADMM(**STOPPING, release="path"), {}, "release='path' with schedule='stop"),
    (LASSO, GradientADMM(step_size=100.0), {}, r"step_size=100 .*expected a float in \(0, "),
    (THREE, GradientADMM(clip_norm=0.1), {}, r"clip_norm=0\.1 for 3 scores .*never binds"),
    (LASSO, GradientADMM(), {"conditioning": "private"}, "conditioning='private'"),
    (DPAdmmGeneralizedLasso(), GradientADMM(), {"scale": "private"}, "scale='private' with a pen"),
    (DPAdmmGeneralizedLasso(), TIED, {}, r"penalty_matrix and GradientADMM\(constraint=\.\.\.\)"),
    (LASSO, GradientADMM(constraint=LinearConstraint(np.ones((1, 2)))), {}, ".* with 2 columns"),
    (LASSO, GradientADMM(constraint=LinearConstraint(B=np.eye(4))), {}, ".*(4|rows)"),
    (LASSO, GradientADMM(constraint=LinearConstraint(c=np.ones((3, 2)))), {}, "c of shape .3, 2"),
    (LASSO, GradientADMM(constraint=LinearConstraint(c=np.full(3, 1e12))), {}, "c up to .* floats"),
    (LASSO, GradientADMM(passes=100), {"epsilon": 1e-9, "delta": 1e-9}, "a budget so small"),
    (RIDGE, GradientDescent(**LAST), {"epsilon": 1e-9, "delta": 1e-9}, "a budget so small"),
    (THREE, GradientADMM(compiled=True), {}, "compiled=True with .* Use compiled=False"),
    (LASSO, clone(TIED).set_params(compiled=True), {}, "compiled=True with .* Use compiled=False"),
    (LASSO, ProximalNewton(), {}, "epsilon=1 for ProximalNewton, expected inf: "),
]  # fmt: skip


@pytest.mark.parametrize(("estimator", "algorithm", "around", "message"), COMBINATIONS, ids=str)
def test_what_no_theorem_covers_is_refused_before_data(estimator, algorithm, around, message):
    pytest.importorskip("numba")
    settings = {"conditioning": None} | around
    model = clone(estimator).set_params(algorithm=algorithm, **settings)
    with pytest.raises(ValueError, match=rf"^Got {message}"):
        model.plan(100, 3)


def test_facts_that_no_theorem_covers_are_refused(monkeypatch):
    agent = replace(FACTS, unit="agent")
    for algorithm in (
        ConsensusADMM(), GradientDescent(), CoordinateDescent(), AveragedADMM(), GradientADMM(),
        ObjectivePerturbation(),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"^Got unit='agent'.*expected 'record'"):
            algorithm.plan(agent, BUDGET)
    coupled = replace(FACTS, penalty=GroupLasso(strength=0.1, groups=((0, 1),)))
    with pytest.raises(ValueError, match=r"^Got penalty GroupLasso.*expected one of.*Use"):
        CoordinateDescent().plan(coupled, BUDGET)
    with pytest.raises(ValueError, match=r"Got 3 scores.*expected one"):
        ObjectivePerturbation().plan(replace(FACTS, loss=MultinomialLoss(3)), BUDGET)
    with pytest.raises(ValueError, match="expected a penalty that is 0 at 0"):
        ObjectivePerturbation().plan(replace(FACTS, penalty=Box(0.5, 1.0)), BUDGET)
    for algorithm in (AveragedADMM(), ObjectivePerturbation(), GradientDescent(**LAST)):
        with pytest.raises(ValueError, match="expected a finite bound"):
            algorithm.plan(replace(FACTS, row_norm=math.inf), BUDGET)
    for trust in ({"participation": 0.5}, {"dropout": 0.1}):
        facts = federated_facts([30, 30], coordinates_of(3), SquaredLoss(), **trust)
        with pytest.raises(ValueError, match=r"^Got relaxation=0\.4 .* Use 0\.5, or message"):
            FederatedADMM(relaxation=0.4).plan(facts, BUDGET)
        FederatedADMM(relaxation=0.4, message="increment").plan(facts, BUDGET)
    with pytest.raises(TypeError, match="expected a LinearConstraint or None"):
        GradientADMM(constraint=np.eye(3)).plan(FACTS, BUDGET)
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(ImportError, match=r"skdpadmm\[fast\]"):
        GradientADMM(compiled=True).plan(FACTS, BUDGET)
