"""Default steps, clips and cuts of a stream: they open as records arrive, and are stable."""

from itertools import pairwise

import numpy as np
import pytest

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import DualAveraging
from skdpadmm.algorithms import _defaults as defaults
from skdpadmm.algorithms import _dual_averaging as dual_averaging

# So large that noise says nothing beside records.
FREE = 1e6
SHAPES = ["uniform", "signs", "rare", "far", "heavy", "collinear"]


def rows_of(shape, n, p):
    rng = np.random.default_rng(10 + p)
    if shape == "uniform":
        return rng.uniform(-1, 1, (n, p))
    if shape == "rare":
        return np.where(rng.random((n, p)) < np.linspace(0.05, 0.6, p), 1.0, -1.0)
    if shape == "far":
        return rng.uniform(0.6, 1.0, (n, p))
    if shape == "heavy":
        return np.clip(0.1 * rng.standard_t(2, (n, p)), -1, 1)
    signs = rng.choice([-1.0, 1.0], (n, p))
    if shape == "collinear":
        return np.clip(signs[:, :1] + 0.02 * rng.standard_normal((n, p)), -1, 1)
    return signs


def data_of(kind, shape, p, n=12_000):
    X, rng = rows_of(shape, n, p), np.random.default_rng(1)
    score = X @ np.linspace(1.2, -0.8, p) / np.sqrt(p) + 0.2
    if kind == "ridge":
        return X, np.clip(0.4 * score + 0.1 * rng.standard_normal(n), -1, 1)
    if kind == "two":
        return X, (score + rng.logistic(size=n) > 0).astype(int)
    scores = np.stack([score, -score, 0 * score], axis=1)
    return X, np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)


def model_of(kind, **known):
    if kind == "ridge":
        return DPAdmmRidge(feature_bounds=(-1, 1), target_bounds=(-1, 1), **known)
    classes = [0, 1] if kind == "two" else [0, 1, 2]
    return DPAdmmLogisticRegression(feature_bounds=(-1, 1), classes=classes, **known)


def stream_of(kind, epsilon=FREE):
    return model_of(kind, epsilon=epsilon, algorithm="dual-averaging", random_state=0)


def loss_of(model, X, y):
    """The mean loss, of squares over twice the variance of the noise."""
    if isinstance(model, DPAdmmRidge):
        return np.mean((model.predict(X) - y) ** 2) / (2 * 0.1**2)
    return -np.mean(np.log(model.predict_proba(X)[np.arange(len(y)), y]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("kind", "p"), [("two", 1), ("two", 4), ("ridge", 4), ("three", 4)])
def test_without_noise_a_stream_finds_the_optimum(kind, p, shape):
    X, y = data_of(kind, shape, p)
    exact, found = model_of(kind, epsilon=np.inf).fit(X, y), stream_of(kind).fit(X, y)
    # A fit to so many records is as far from the truth as half a parameter for each record.
    n_parameters = (p + 1) * (2 if kind == "three" else 1)
    excess = (loss_of(found, X, y) - loss_of(exact, X, y)) / (n_parameters / len(y))
    assert excess < 8


def stages_of(kind, X, y, monkeypatch, epsilon=FREE):
    """Constants of stages that have a basis, with the basis."""
    stages, honest = {}, DualAveraging._stage

    def kept(self, plan, problem, state):
        stage = honest(self, plan, problem, state)
        if state.basis is not None:
            stages[state.begun] = (stage, state.basis, plan)
        return stage

    monkeypatch.setattr(DualAveraging, "_stage", kept)
    stream_of(kind, epsilon).fit(X, y)
    return list(stages.values())


@pytest.mark.parametrize("opening", [1e-9, defaults.OPEN_EDGE])
@pytest.mark.parametrize("kind", ["two", "ridge", "three"])
def test_steps_are_stable_for_the_longest_rows(kind, opening, monkeypatch):
    monkeypatch.setattr(defaults, "OPEN_EDGE", opening)
    X, y = data_of(kind, "signs", 3)
    rows = np.column_stack([X, np.ones(len(X))])
    stages = stages_of(kind, X, y, monkeypatch)
    assert len(stages) > 1
    for stage, basis, plan in stages[1:]:
        seen = rows @ basis.transform
        moment = plan.facts.loss.smoothness * stage.step_size * seen.T @ seen / len(seen)
        # A third for what the moment of few rows differs from that of all.
        assert np.trace(moment) < 0.2 * 1.3
        largest = stage.largest_step * np.linalg.eigvalsh(moment)[-1]
        assert largest < 0.5 * 1.3 or stage.largest_step == 1


def test_the_cut_of_rows_opens_to_the_declared_norm(monkeypatch):
    X, y = data_of("two", "signs", 3)
    *_, (_, basis, _) = stages_of("two", X, y, monkeypatch)
    assert basis.eigenvalues.sum() == pytest.approx(4, rel=1e-3)
    plan = stream_of("two", 1.0).plan(1, 3)
    cuts = [dual_averaging.row_cut(plan, 10**k) for k in range(8)]
    assert cuts == sorted(cuts)
    assert cuts[0] == pytest.approx(0.5 * 2)
    assert cuts[-1] == 2.0


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 10.0])
def test_a_basis_has_the_scale_of_the_cut_of_its_stage(epsilon, monkeypatch):
    X, y = data_of("two", "signs", 3)
    stages = stages_of("two", X, y, monkeypatch, epsilon)
    for (before, _, _), (_, basis, _) in pairwise(stages):
        # All rows are as long as the cut.
        assert basis.eigenvalues.sum() == pytest.approx(before.row_cut**2, rel=0.1)
    assert len(stages) > 2


def test_clips_open_from_stage_to_stage(monkeypatch):
    for kind in ("two", "three"):
        X, y = data_of(kind, "uniform", 3)
        clips = [s.clip_norm / b.clip_unit for s, b, _ in stages_of(kind, X, y, monkeypatch, 3.0)]
        assert len(clips) > 1
        assert all(clips[0] < later for later in clips[1:])


def test_a_plan_says_how_many_records_a_stream_needs():
    few, many = (stream_of("ridge", epsilon).plan(1, 9) for epsilon in (3.0, 0.3))
    said = [
        int(str(p).split("fewer than about ")[1].split(" ")[0].replace(",", ""))
        for p in (few, many)
    ]
    assert 1_000 < said[0] < said[1] / 5
