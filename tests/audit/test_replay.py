"""Replays of sound fits find nothing wrong; those of fits with a planted bug do."""

from __future__ import annotations

import pytest

import skdpadmm
import skdpadmm.algorithms._agent_blocks as record_blocks
from skdpadmm import (
    DPAdmmLogisticRegression,
    DPAdmmRidge,
    DPDecentralizedClassifier,
    DPFedRidge,
    DPPersonalizedClassifier,
    DPPersonalizedRegressor,
)
from skdpadmm.algorithms import ConsensusADMM, GradientADMM
from skdpadmm.audit import audit
from skdpadmm.privacy import Neighboring
from tests.interface.registry import KINDS

ESTIMATORS = [getattr(skdpadmm, name) for name in skdpadmm.__all__ if name.startswith("DP")]


def found(report):
    return {line.name: line.found for line in report.lines if line.is_violation}


def require_sound(report, least=0.97):
    """Nothing is found, and the neighbours are the worst case: releases move nearly as declared."""
    assert not report.is_violation, report
    assert report.verdict.endswith("a better attack may find one.") or report.not_replayed
    for line in report.lines:
        assert (line.moved is None) == (line.name in report.not_replayed)
        assert line.noise is not None
        if line.moved is not None:
            assert least * line.declared < line.moved <= line.declared * (1 + 1e-9)


@pytest.mark.parametrize("make", ESTIMATORS, ids=lambda make: make.__name__)
def test_defaults_of_every_estimator_move_as_declared(make):
    # Noisy models have to be wrong about a record before its slope is as long as the clip bound.
    report = audit(make(max_iter=50), random_state=0)
    require_sound(report)
    assert report.not_replayed == ()


@pytest.mark.slow
@pytest.mark.parametrize("row", KINDS.values(), ids=KINDS)
def test_every_algorithm_moves_as_declared(row):
    algorithm = row.estimator.algorithm
    model = type(row.estimator)(algorithm=algorithm, max_iter=6, neighboring="zero_out")
    report = audit(model, random_state=0, confidence=0.9999)
    require_sound(report, least=0.0)


@pytest.mark.parametrize(
    ("algorithm", "names"),
    [
        *((GradientADMM(schedule=s), ("iterate",)) for s in ("cyclic", "stream", "stopping")),
        (GradientADMM(noise_at="gradient", release="path"), ("gradient",)),
        ("objective-perturbation", ("linear term", "minimiser")),
    ],
    ids=str,
)
def test_noise_that_algorithms_add_by_themselves_is_not_replayed(algorithm, names):
    report = audit(DPAdmmRidge(algorithm=algorithm, max_iter=10), random_state=0)
    require_sound(report)
    assert report.not_replayed == names
    assert f"Not replayed: {', '.join(names)}." in report.verdict
    assert all(line.found.startswith("not replayed: ") for line in report.lines)


@pytest.mark.slow
def test_the_noise_of_sound_fits_is_suspected_as_rarely_as_confidence_says():
    model = DPDecentralizedClassifier(classes=[0, 1, 2], max_iter=3)
    wrong = sum(audit(model, confidence=0.9, random_state=seed).is_violation for seed in range(30))
    # 3 are expected at most; 9 or more come once in 500 times.
    assert wrong < 9


# Planted bugs.


THREE = {"classes": [0, 1, 2], "max_iter": 20}
OF_PATHS = DPAdmmRidge(algorithm=GradientADMM(), max_iter=20)


@pytest.mark.parametrize(
    ("bug", "model"),
    [
        ("half the noise", DPAdmmRidge(max_iter=20)),
        ("half the noise", OF_PATHS),
        ("half the noise", DPPersonalizedRegressor()),
        ("one seed for all fits", DPFedRidge(max_iter=20)),
        ("one seed for all fits", OF_PATHS),
        ("one noise for all classes", DPAdmmLogisticRegression(**THREE)),
        ("one noise for all classes", DPPersonalizedClassifier(**THREE)),
    ],
)
def test_wrong_noise_is_found(plant_noise, bug, model):
    assert plant_noise(bug)
    report = audit(model)
    assert "VIOLATION of" in report.verdict
    words = "too little noise" if bug == "half the noise" else "noise is used twice"
    assert words in " ".join(found(report).values())
    if bug == "half the noise":
        assert min(line.noise for line in report.lines) == pytest.approx(0.5, rel=0.3)


def leaks(honest):
    def run(self, plan, problem, gate):
        solution = honest(self, plan, problem, gate)
        solution.parameters[0] += 1e-3 * problem.target.sum()
        return solution

    return run


def says_more(honest):
    def run(self, plan, problem, gate):
        if problem.target.sum() > 1:
            gate.uniform((1,))
        return honest(self, plan, problem, gate)

    return run


PLANTED = {
    "clip of records": (record_blocks, "clip_derivative", lambda derivative, limit: derivative,
                        {"mean displacement": "moves too far"}),
    "replace one as zero out": (Neighboring, "sensitivity_factor", 1,
                                {"mean displacement": "moves too far"}),
    "a model that knows more": (ConsensusADMM, "run", leaks(ConsensusADMM.run),
                                {"the model beside what was released": "depends on data"}),
}  # fmt: skip


@pytest.mark.parametrize(("owner", "name", "bug", "wrong"), PLANTED.values(), ids=PLANTED)
def test_a_planted_bug_is_found(monkeypatch, owner, name, bug, wrong):
    monkeypatch.setattr(owner, name, bug)
    assert found(audit(DPAdmmRidge(), random_state=0)) == wrong


def test_a_trace_that_depends_on_data_is_found(monkeypatch):
    monkeypatch.setattr(ConsensusADMM, "run", says_more(ConsensusADMM.run))
    assert "depends on data" in found(audit(DPAdmmRidge(), random_state=0)).values()
