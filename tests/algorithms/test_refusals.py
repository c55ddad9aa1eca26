"""What algorithms refuse before they see data: knobs out of range, and facts without a theorem."""

import math
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from skdpadmm import (
    DPAdmmGeneralizedLasso,
    DPAdmmLasso,
    DPAdmmLinearSVC,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
)
from skdpadmm import algorithms as alg
from skdpadmm.algorithms import AveragedADMM, FederatedADMM, GradientADMM, GradientDescent
from skdpadmm.algorithms._registry import ALGORITHMS
from skdpadmm.losses import MultinomialLoss, SquaredLoss
from skdpadmm.penalties import L1, GeneralizedL1, LinearConstraint, Penalty
from tests.algorithms import runs
from tests.algorithms.runs import BUDGET, coordinates_of, federated_facts

FACTS = runs.facts_for(coordinates_of(3), 60, SquaredLoss())
PERSONAL = (alg.PersonalizedCoordinateDescent, alg.LocalModels, alg.PersonalizedOptimum)
CENTRAL = (
    alg.ConsensusADMM, GradientDescent, alg.CoordinateDescent, AveragedADMM, GradientADMM,
    alg.ObjectivePerturbation, alg.ProximalNewton,
)  # fmt: skip


def plan_of(algorithm, **changed):
    """In the kind of setting that the algorithm is made for."""
    if isinstance(algorithm, CENTRAL):
        return algorithm.plan(FACTS, BUDGET)
    if isinstance(algorithm, FederatedADMM):
        facts = federated_facts([30, 30], coordinates_of(3), SquaredLoss())
        return algorithm.plan(facts, replace(BUDGET, observer="server"))
    task = {"is_personal": isinstance(algorithm, PERSONAL), "max_iter": 8} | changed
    return runs.planned(algorithm, runs.make_task(**task))


def outside(expected):
    """Values just outside of the range that a refusal tells."""
    yield from [value for value in (True, None) if str(value) not in expected]
    for left, low, high, right in re.findall(r"float in ([\[(])(\S+), (\S+?)([\])])", expected):
        low, high = float(low), float(high)
        yield low if left == "(" else np.nextafter(low, -math.inf)
        if right == ")" or high < math.inf:
            yield high if right == ")" else np.nextafter(high, math.inf)
    for least in re.findall(r"int of at least (\d+)", expected):
        yield from (int(least) - 1, int(least) + 0.5)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_no_knob_takes_a_value_outside_of_the_range_that_its_refusal_tells(name):
    make = ALGORITHMS[name]
    for knob in make().get_params():

        def refusal(value, knob=knob):
            with pytest.raises((ValueError, TypeError), match=rf"^Got {knob}=.*, expected ") as got:
                plan_of(make(**{knob: value}))
            return str(got.value)

        for value in ("nonsense", math.nan, -1.0, *outside(refusal(object()))):
            refusal(value)


class Undeclared(L1):
    """A penalty of somebody who says nothing about its proximal operator."""

    proximal_rounding = Penalty.proximal_rounding


class NotAtZero(L1):
    """A constraint that zero does not meet."""

    def value(self, coef):
        return math.inf


RIDGE, LASSO = DPAdmmRidge(), DPAdmmLasso(alpha=1e-3)
THREE = DPAdmmLogisticRegression(classes=[0, 1, 2])
STEEP = DPAdmmLinearSVC(classes=[0, 1], smoothing=1e-13)
LAST = {"guarantee": "last"}
STREAM, STOPPING = {"schedule": "stream"}, {"schedule": "stopping"}
TIED = GradientADMM(constraint=LinearConstraint(np.eye(3)))
COMBINATIONS = [  # of knobs with each other, with the estimator, and with its other parameters
    (RIDGE, GradientDescent(schedule="cyclic", guarantee="path"), {}, "guarantee='path' with"),
    (RIDGE, GradientDescent(**LAST, momentum=0.5), {}, "momentum=0.5"),
    (RIDGE, GradientDescent(**LAST, step_size=100.0), {}, "step_size=100 for a guarantee of"),
    (RIDGE, GradientDescent(**LAST, batch_fraction=0.5), {}, "batch_fraction=0.5 with a guarantee"),
    (RIDGE, GradientDescent(schedule="cyclic", batch_fraction=0.5), {}, "batch_fraction=0.5 with"),
    (RIDGE, GradientDescent(**LAST), {"conditioning": "private"}, "conditioning"),
    (RIDGE, AveragedADMM(**LAST, tail_fraction=0.5), {}, "tail.*an average is not the last"),
    (RIDGE, AveragedADMM(**LAST), {}, "a penalty that is not.*fit_intercept=False"),
    (RIDGE, AveragedADMM(**LAST), {"scale": "private"}, "scale='private'.*declared units"),
    (THREE, AveragedADMM(clip_norm=0.1), {}, ".*which never binds"),
    (STEEP, AveragedADMM(step_size=1.0), {}, "step_size=1 and tol.*expected a shorter step or"),
    (STEEP, AveragedADMM(step_size=1.0), {"conditioning": "private"}, "step_size=1 and.* floats"),
    (LASSO, GradientADMM(cap=3), {}, "cap=3 with schedule='cyclic', expected 'auto'"),
    (LASSO, GradientADMM(average=np.True_), {}, "average=True .*with release='last'"),
    (LASSO, GradientADMM(**STREAM, release="last"), {}, "release='last', .*='stream'"),
    (LASSO, GradientADMM(**STOPPING, passes=2), {}, ".*passes=2 with schedule='stop"),
    (LASSO, GradientADMM(**STREAM, order="random"), {}, ".*order='random' .*schedule='stream'"),
    (LASSO, GradientADMM(**STOPPING, release="path"), {}, "release='path', .* with schedule='stop"),
    (LASSO, GradientADMM(step_size=100.0), {}, r"step_size=100 .*expected a float in \(0, "),
    (THREE, GradientADMM(clip_norm=0.1), {}, r"clip_norm=0\.1 for 3 scores.*never binds"),
    (DPAdmmGeneralizedLasso(), GradientADMM(), {"scale": "private"}, "scale='private' with a pen"),
    (DPAdmmGeneralizedLasso(), TIED, {}, r"penalty_matrix and GradientADMM\(constraint=\.\.\.\)"),
    (LASSO, GradientADMM(constraint=LinearConstraint(np.ones((1, 2)))), {}, ".* with 2 columns"),
    (LASSO, GradientADMM(constraint=LinearConstraint(c=np.full(3, 1e12))), {}, "c up to .* floats"),
    (RIDGE, GradientDescent(**LAST), {"epsilon": 1e-9, "delta": 1e-9}, "a budget so small"),
    (THREE, GradientADMM(compiled=True), {}, "compiled=True with .* Use compiled=False"),
    (LASSO, alg.ProximalNewton(), {}, "epsilon=1 for ProximalNewton, expected inf"),
]  # fmt: skip


@pytest.mark.parametrize(("estimator", "algorithm", "around", "message"), COMBINATIONS, ids=str)
def test_what_no_theorem_covers_is_refused_before_data(estimator, algorithm, around, message):
    pytest.importorskip("numba")
    settings = {"conditioning": None} | around
    model = clone(estimator).set_params(algorithm=algorithm, **settings)
    with pytest.raises(ValueError, match=rf"^Got {message}"):
        model.plan(100, 3)


def test_facts_in_another_basis_are_refused_where_no_theorem_holds_in_it():
    facts = DPAdmmRidge(conditioning="private").plan(1000, 3).facts
    for algorithm in (GradientDescent(**LAST), alg.CoordinateDescent()):
        with pytest.raises(ValueError, match=r"^Got conditioning with .*, expected c"):
            algorithm.plan(facts, BUDGET)


CLASSES, AGENT, SMALL_CLIP = {"loss": "three"}, {"unit": "agent"}, {"clip_norm": 0.01}
SPLIT = {"epsilons": (1.0, 2.0, 1.0, 1.0)}
OF_AGENTS = [
    (alg.RandomizedADMM(noise_decay=1.9), {"max_iter": 80}, "noise_decay=1.9 over 80 rounds"),
    (alg.SecretSharingGradientDescent(n_curators=5), {}, "Got n_curators=5, expected"),
    (alg.MultiStepADMM(proximal_weight=1.0, step_size=0.5, penalty_weight=0.1), {}, "'auto'"),
    (alg.MultiStepADMM(proximal_weight=1.0), {}, "penalty_weight='auto', expected"),
    (alg.MultiStepADMM(proximal_weight="growing", penalty_weight=0.1), {}, "diameter=inf"),
    (alg.MultiStepADMM(step_size=1.0, penalty_weight=0.26), {}, r"at most 0\.25"),
    (alg.MultiStepADMM(batch_fraction=0.5), AGENT, "with privacy_unit='agent'"),
    (alg.RandomizedSGD(rounds=3), {}, r"rounds=3 .*n_samples=25 .*at most 2"),
    (alg.RandomizedSGD(), {"sizes": (9,)}, r"n_agents=1 .*n_samples=9 .*at least 2 agents"),
    (alg.RandomWalkADMM(), AGENT, "Got privacy_unit='agent'"),
    (alg.RandomWalkADMM(), SPLIT, "Got budgets of single agents"),
    (alg.RandomWalkProximalPoint(), {"row_norm": math.inf}, "Got row_norm=inf"),
    (alg.RandomWalkProximalPoint(), {"penalty": NotAtZero(1.0)}, "that is 0 at 0"),
    (alg.RandomWalkADMM(**SMALL_CLIP), CLASSES, "for 3 scores, expected at least"),
    (alg.SecretSharingGradientDescent(), {"sizes": (9, 9)}, "Got 2 agents .*at least 3 agents"),
    (alg.PersonalizedOptimum(), {}, "Got epsilon=1 .*, expected inf"),
    (
        alg.PersonalizedCoordinateDescent(warm_start="local"),
        {},
        "Got warm_start='local' with epsilon=1, expected epsilon=inf",
    ),
    *((make(), {"penalty": L1(0.1)}, r"Got L1\(.*\), expected Squared") for make in PERSONAL),
]


@pytest.mark.parametrize(("algorithm", "changed", "message"), OF_AGENTS)
def test_facts_of_agents_that_no_theorem_covers_are_refused(algorithm, changed, message):
    with pytest.raises(ValueError, match=message):
        plan_of(algorithm, **changed)


def test_facts_that_no_theorem_covers_are_refused(monkeypatch):
    for make in CENTRAL[:-1]:
        with pytest.raises(ValueError, match=r"^Got unit='agent'.*expected 'record'"):
            make().plan(replace(FACTS, unit="agent"), BUDGET)
    perturbed, coupled = alg.ObjectivePerturbation(), GeneralizedL1([[1.0, -1.0]], 0.1)
    for algorithm, fact, message in (
        (alg.CoordinateDescent(), {"penalty": coupled}, "^Got penalty GeneralizedL1.*expected one"),
        (perturbed, {"penalty": Undeclared(0.1)}, "expected a penalty of single coefficients"),
        (GradientDescent(**LAST), {"penalty": Undeclared(0.1)}, "certified to move no two points"),
        (GradientDescent(**LAST), {"penalty": NotAtZero(1.0)}, "a penalty that is 0 at 0"),
        (GradientADMM(), {"penalty": Undeclared(0.1)}, "expected a penalty"),
        (GradientADMM(), {"penalty": NotAtZero(1.0)}, "expected a penalty that is 0 at 0"),
        (perturbed, {"loss": MultinomialLoss(3)}, "Got 3 scores.*expected one"),
        (perturbed, {"penalty": NotAtZero(1.0)}, "expected a penalty that is 0 at 0"),
        (perturbed, {"row_norm": math.inf}, "expected a finite bound"),
        (AveragedADMM(), {"row_norm": math.inf}, "expected a finite bound"),
        (GradientDescent(**LAST), {"row_norm": math.inf}, "expected a finite bound"),
    ):
        with pytest.raises(ValueError, match=message):
            algorithm.plan(replace(FACTS, **fact), BUDGET)
    for trust in ({"participation": 0.5}, {"dropout": 0.1}):
        facts = federated_facts([30, 30], coordinates_of(3), SquaredLoss(), **trust)
        with pytest.raises(ValueError, match=r"^Got relaxation=0\.4 .* Use 0\.5, or message"):
            FederatedADMM(relaxation=0.4).plan(facts, BUDGET)
        FederatedADMM(relaxation=0.4, message="increment").plan(facts, BUDGET)
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(ImportError, match=r"skdpadmm\[fast\]"):
        GradientADMM(compiled=True).plan(FACTS, BUDGET)
    names = r"\['averaged-admm', .*'objective-perturbation'\] or a central algorithm object"
    for other in (alg.ProximalNewton, "foo", "federated-admm", FederatedADMM()):
        error = TypeError if other is alg.ProximalNewton else ValueError
        with pytest.raises(error, match=rf"^Got algorithm=.*one of {names}, such as AveragedADMM"):
            alg.resolve_algorithm(other, "central")
