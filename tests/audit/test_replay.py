"""Replays of sound fits find nothing wrong; those of fits with a planted bug do."""

import pytest

import skdpadmm
from skdpadmm import (
    DPAdmmLogisticRegression,
    DPAdmmRidge,
    DPDecentralizedClassifier,
    DPFedRidge,
    DPPersonalizedClassifier,
    DPPersonalizedRegressor,
)
from skdpadmm.algorithms import GradientADMM
from skdpadmm.audit import audit
from skdpadmm.noise import SeededNoise
from tests.bugs.table import (
    a_stop_that_looks_at_data,
    data_in_the_model,
    gaussian,
    no_clip,
    noise,
    same_for_every_class,
    scaled,
    zero_out_counted,
)
from tests.interface.registry import KINDS

ESTIMATORS = [getattr(skdpadmm, name) for name in skdpadmm.__all__ if name.startswith("DP")]


def found(report):
    return {line.name: line.found for line in report.lines if line.is_violation}


def require_sound(report, least=0.97):
    """Nothing is found, and the neighbours are the worst case: releases move nearly as declared."""
    assert not report.is_violation, report
    assert report.verdict.endswith("a better attack may find one.") or report.not_replayed
    for line in report.lines:
        assert (line.distance is None) == (line.name in report.not_replayed)
        assert line.noise is not None
        if line.distance is not None:
            assert least * line.sensitivity < line.distance <= line.sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("make", ESTIMATORS, ids=lambda make: make.__name__)
def test_defaults_of_every_estimator_move_as_declared(make):
    # Noisy models have to be wrong about a record before its slope is as long as the clip bound.
    model, least = make(max_iter=50), 0.97
    if hasattr(model, "power"):
        # The smallest target has a short slope: a rate is above it by less than a unit.
        model, least = model.set_params(target_bounds=(1e-4, 1e4)), 0.75
    report = audit(model, random_state=0)
    require_sound(report, least)
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


ONE_SEED = noise(lambda: SeededNoise((0,), b""))
ONE_FOR_ALL = noise(gaussian(same_for_every_class))


@pytest.mark.usefixtures("fixed_entropy")
@pytest.mark.parametrize(
    ("words", "plant", "model"),
    [
        ("too little noise", noise(scaled(0.5)), DPAdmmRidge(max_iter=20)),
        ("too little noise", noise(scaled(0.5)), OF_PATHS),
        ("too little noise", noise(scaled(0.5)), DPPersonalizedRegressor()),
        ("noise is used twice", ONE_SEED, DPFedRidge(max_iter=20)),
        ("noise is used twice", ONE_SEED, OF_PATHS),
        ("noise is used twice", ONE_FOR_ALL, DPAdmmLogisticRegression(**THREE)),
        ("noise is used twice", ONE_FOR_ALL, DPPersonalizedClassifier(**THREE)),
    ],
)
def test_wrong_noise_is_found(monkeypatch, words, plant, model):
    plant(monkeypatch)
    report = audit(model)
    assert "VIOLATION of" in report.verdict
    assert words in " ".join(found(report).values())
    if words == "too little noise":
        assert min(line.noise for line in report.lines) == pytest.approx(0.5, rel=0.3)


TOO_FAR = "differs by more than its sensitivity"
PLANTED = {
    "clip of records": (no_clip("skdpadmm.algorithms._agent_blocks"), "mean displacement",
                        TOO_FAR),
    "replace one as zero out": (zero_out_counted, "mean displacement", TOO_FAR),
    "a model that knows more": (data_in_the_model,
                                "the model beside what was released", "depends on data"),
    "a stop that looks at data": (a_stop_that_looks_at_data, "what is done", "depends on data"),
}  # fmt: skip


@pytest.mark.parametrize(("plant", "name", "words"), PLANTED.values(), ids=PLANTED)
def test_a_planted_bug_is_found(monkeypatch, plant, name, words):
    plant(monkeypatch)
    assert found(audit(DPAdmmRidge(max_iter=10), random_state=0))[name] == words
