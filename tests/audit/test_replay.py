"""Replays of shipped estimators find nothing wrong; of estimators with a planted bug they do."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest
from sklearn.base import clone

import skdpadmm
import skdpadmm._fitting as fitting
import skdpadmm.algorithms.blocks._agent_gradients as agent_gradients
import skdpadmm.algorithms.blocks._agent_turns as agent_turns
import skdpadmm.algorithms.blocks._clipped_loss as clipped_loss
import skdpadmm.algorithms.blocks._record_blocks as record_blocks
import skdpadmm.audit._replay as replay_module
from skdpadmm import (
    DPAdmmHuberRegressor,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
    DPDecentralizedClassifier,
    DPDecentralizedRegressor,
    DPFedLogisticRegression,
    DPFedRidge,
    DPPersonalizedClassifier,
    DPPersonalizedRegressor,
)
from skdpadmm.algorithms import (
    ConsensusADMM,
    GradientADMM,
    MultiStepADMM,
    PersonalizedCoordinateDescent,
    names_of_algorithms,
)
from skdpadmm.algorithms.blocks._compiled_turns import CompiledWakes
from skdpadmm.audit import audit
from skdpadmm.audit._loops import OTHER_BLOCK
from skdpadmm.audit._neighbors import schema_of, worst_case_neighbors
from skdpadmm.noise import CryptographicNoise, SeededNoise
from skdpadmm.privacy import Neighboring
from skdpadmm.protocol import Gate

ESTIMATORS = [getattr(skdpadmm, name) for name in skdpadmm.__all__ if name.startswith("DP")]
FAMILIES = {
    "central": (DPAdmmRidge, DPAdmmLogisticRegression, DPAdmmHuberRegressor),
    "federated": (DPFedRidge, DPFedLogisticRegression),
    "decentralized": (DPDecentralizedRegressor, DPDecentralizedClassifier),
    "personalized": (DPPersonalizedRegressor, DPPersonalizedClassifier),
}
# What hidden terms have moved as well, and what a solver leaves: no replay tells them apart.
UNSEEN = {
    "objective-perturbation": ("minimiser",),
    "dual-perturbation-admm": ("minimisers of agents",),
}
WITHOUT_NOISE = {"exact-consensus-admm", "gossip-admm"}
FOR_RECORDS = {
    "dual-perturbation-admm",
    "perturbed-data",
    "random-walk-admm",
    "random-walk-proximal-point",
}
FOR_ONE_SCORE = {"objective-perturbation", "dual-perturbation-admm"}


def found(report):
    return {line.name: line.found for line in report.lines if line.is_violation}


@pytest.mark.parametrize("make", ESTIMATORS, ids=lambda make: make.__name__)
def test_defaults_of_every_estimator_move_as_declared(make):
    # Noisy models have to be wrong about a record before its logistic slope is as long as the clip,
    # and the noise of secure sums takes more rounds to get them there: 0.76 of it after 10.
    n_rounds = 50 if make is DPFedLogisticRegression else 10
    report = audit(make(max_iter=n_rounds), random_state=0)
    assert not report.is_violation, report
    assert report.verdict.endswith("a better attack may find one.")
    assert report.not_replayed == ()
    # The neighbours are the worst case: releases move nearly as far as they may.
    for line in report.lines:
        assert line.moved <= line.declared * (1 + 1e-9)
        assert line.moved > 0.97 * line.declared


CASES = [
    (setting, name, make, kind)
    for setting, makes in FAMILIES.items()
    for name in names_of_algorithms(setting)
    for make in makes
    for kind in ("zero-out", "agents", "bounds")
    if name not in WITHOUT_NOISE
    and not (kind == "agents" and (setting == "central" or name in FOR_RECORDS))
    and not (kind == "bounds" and name in FOR_ONE_SCORE)
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "name", "make", "kind"), CASES, ids=lambda case: getattr(case, "__name__", case)
)
def test_every_algorithm_of_every_family_moves_as_declared(setting, name, make, kind):
    knobs = {
        "zero-out": {"neighboring": "zero_out"},
        "agents": {"privacy_unit": "agent"},
        "bounds": {"fit_intercept": False, "feature_bounds": (-1, 1)},
    }[kind]
    if kind == "bounds" and "classes" in make().get_params():
        knobs["classes"] = [0, 1, 2]
    model = make(algorithm=name, max_iter=6, **knobs)
    report = audit(model, random_state=0, confidence=0.9999)
    assert not report.is_violation, report
    assert report.not_replayed == UNSEEN.get(name, ())
    for line in report.lines:
        assert (line.moved is None) == (line.name in report.not_replayed)
        assert (line.found == "nothing wrong") == (line.moved is not None)
        assert line.noise is not None


def test_neighbours_are_as_far_apart_as_zero_out_twice():
    once, twice = (
        audit(DPAdmmRidge(max_iter=4, neighboring=neighboring), random_state=0).lines[-1]
        for neighboring in ("replace_one", "zero_out")
    )
    assert once.declared == pytest.approx(twice.declared, rel=1e-3)


# Planted bugs.


class HalfTheNoise(CryptographicNoise):
    def add_gaussian(self, value, scale, stream):
        return super().add_gaussian(value, scale / 2, stream)


class SameNoiseForEveryClass(CryptographicNoise):
    def add_gaussian(self, value, scale, stream):
        if value.ndim < 2:
            return super().add_gaussian(value, scale, stream)
        return value + super().add_gaussian(np.zeros((*value.shape[:-1], 1)), scale, stream)


class SameNoiseForEveryAgent(CryptographicNoise):
    def add_gaussian(self, value, scale, stream):
        return value + super().add_gaussian(np.zeros(value.shape[1:]), scale, stream)


class SameNoiseInEveryRelease(CryptographicNoise):
    def add_gaussian(self, value, scale, stream):
        noise = SeededNoise((int(np.random.default_rng().integers(2**31)),), b"")
        drawn = noise if value.ndim < 2 else SeededNoise((0,), b"")
        return drawn.add_gaussian(value, scale, (0, 0))


def plant(monkeypatch, source):
    monkeypatch.setattr(fitting, "noise_source", lambda *args: source())


def unclipped(function):
    def run(*args, **knobs):
        return function(*args, **{**knobs, "clip_norm": 1e6})

    return run


THREE = {"classes": [0, 1, 2], "max_iter": 20}
EVERYWHERE = [
    DPAdmmRidge(max_iter=20),
    DPFedRidge(max_iter=20),
    DPDecentralizedRegressor(max_iter=20),
    DPPersonalizedRegressor(),
    DPAdmmRidge(algorithm=GradientADMM(), max_iter=20),
]


@pytest.mark.parametrize("model", EVERYWHERE, ids=lambda model: type(model).__name__)
def test_half_the_noise_is_found(monkeypatch, model):
    plant(monkeypatch, HalfTheNoise)
    report = audit(model)
    assert "too little noise" in " ".join(found(report).values())
    assert "VIOLATION of" in report.verdict
    assert min(line.noise for line in report.lines) == pytest.approx(0.5, rel=0.3)


def test_a_missing_clip_is_found(monkeypatch):
    monkeypatch.setattr(record_blocks, "clip_derivative", lambda derivative, limit: derivative)
    assert found(audit(DPAdmmRidge())) == {"mean displacement": "moves too far"}


@pytest.mark.parametrize("is_clipped", [True, False])
def test_the_hidden_term_that_makes_up_for_a_record_is_compared(monkeypatch, is_clipped):
    if not is_clipped:
        monkeypatch.setattr(clipped_loss, "clip_derivative", lambda derivative, limit: derivative)
    model = DPAdmmRidge(algorithm="objective-perturbation", max_iter=10)
    line = audit(model, random_state=0).lines[0]
    assert line.name == "linear term"
    assert line.is_violation != is_clipped
    if is_clipped:
        assert 0.99 * line.declared < line.moved <= line.declared
    else:
        assert line.found == "moves too far"


PATHS = [
    GradientADMM(),
    GradientADMM(compiled=True),
    GradientADMM(noise_at="gradient", release="path"),
    GradientADMM(average=True, release="path", schedule="stream"),
    GradientADMM(schedule="sampling"),
    GradientADMM(schedule="stopping"),
]


@pytest.mark.parametrize("is_clipped", [True, False])
@pytest.mark.parametrize("algorithm", PATHS, ids=repr)
def test_iterates_of_a_path_are_compared_step_by_step(monkeypatch, algorithm, is_clipped):
    if algorithm.compiled:
        pytest.importorskip("numba")
    if not is_clipped:
        open_bounds(monkeypatch)
    report = audit(DPAdmmRidge(algorithm=algorithm), random_state=0)
    (line,) = report.lines
    assert line.is_violation != is_clipped
    assert report.not_replayed == ()
    if is_clipped:
        assert 0.8 * line.declared < line.moved <= line.declared * (1 + 1e-9)
    else:
        assert line.found == "moves too far"


def open_bounds(monkeypatch):
    """Clip nothing in the loops of gradient ADMM, whoever runs them."""
    plant_in_loops(monkeypatch, lambda n_steps, bound, noise: (10 * bound, noise))


def as_it_is(n_steps, bound, noise):
    return bound, noise


def plant_in_loops(monkeypatch, change, *, of_blocks=True, after=lambda state, noise: state):
    """Give loops of gradient ADMM another bound and noise, and other states after them.

    Block by block, or step by step.
    """
    honest = GradientADMM._steps

    def steps(self, plan, rows):
        made = honest(self, plan, rows)
        take = type(made).advance

        class Planted(type(made)):
            def advance(self, state, rows, target, bound, noise):
                size = max(len(rows), 1) if of_blocks else 1
                for i in range(0, len(rows), size):
                    own = slice(i, i + size)
                    given = change(state.n_steps, bound[own], noise[own].copy())
                    state = after(take(self, state, rows[own], target[own], *given), noise[own])
                return state

        return Planted(**vars(made))

    monkeypatch.setattr(GradientADMM, "_steps", steps)


def path_of(algorithm):
    return "gradient" if algorithm.noise_at == "gradient" else "iterate"


def of_ridge(algorithm):
    if algorithm.compiled:
        pytest.importorskip("numba")
    return found(audit(DPAdmmRidge(algorithm=algorithm), random_state=0))


@pytest.mark.parametrize("algorithm", PATHS, ids=repr)
def test_a_path_without_noise_is_found(monkeypatch, algorithm):
    plant_in_loops(monkeypatch, lambda n_steps, bound, noise: (bound, 0 * noise))
    assert "no noise in a step" in of_ridge(algorithm)[path_of(algorithm)]


@pytest.mark.parametrize("algorithm", PATHS, ids=repr)
def test_half_the_noise_of_all_steps_but_the_first_is_found(monkeypatch, algorithm):
    def change(n_steps, bound, noise):
        return bound, noise / 2 if n_steps > 0 else noise

    plant_in_loops(monkeypatch, change, of_blocks=False)
    assert of_ridge(algorithm) == {path_of(algorithm): "moves too far"}


def test_half_the_noise_of_one_step_is_found(monkeypatch):
    def change(n_steps, bound, noise):
        return bound, noise / 2 if n_steps == 3 else noise

    plant_in_loops(monkeypatch, change, of_blocks=False)
    # The last record takes the last step.
    assert of_ridge(GradientADMM(schedule="stream")) == {"iterate": "moves too far"}


@pytest.mark.parametrize("algorithm", PATHS, ids=repr)
def test_noise_that_is_missing_inside_of_blocks_is_found(monkeypatch, algorithm):
    def change(n_steps, bound, noise):
        noise[1:] /= 100
        return bound, noise

    plant_in_loops(monkeypatch, change)
    assert of_ridge(algorithm) == {path_of(algorithm): OTHER_BLOCK}


@pytest.mark.parametrize(
    "algorithm",
    [
        GradientADMM(order="arrival"),
        GradientADMM(schedule="stream"),
        GradientADMM(schedule="stopping"),
    ],
    ids=repr,
)
def test_a_clip_that_is_missing_after_the_first_step_is_found(monkeypatch, algorithm):
    def change(n_steps, bound, noise):
        return 10 * bound if n_steps > 0 else bound, noise

    plant_in_loops(monkeypatch, change, of_blocks=False)
    assert of_ridge(algorithm) == {"iterate": "moves too far"}


def test_averages_that_know_an_iterate_before_its_noise_are_found(monkeypatch):
    def known(state, noise):
        mean_x = state.mean_x - noise[0] / (state.n_steps + 1)
        return dataclasses.replace(state, mean_x=mean_x)

    plant_in_loops(monkeypatch, as_it_is, of_blocks=False, after=known)
    wrong = of_ridge(GradientADMM(average=True, release="path"))
    assert wrong == {"iterate": "a step tells more than its noisy iterate"}


@pytest.mark.parametrize("is_last", [True, False])
def test_the_last_record_is_changed_as_well_where_the_order_is_that_of_the_data(is_last):
    algorithm = GradientADMM(order="arrival" if is_last else "random")
    pairs = list(
        worst_case_neighbors(schema_of(DPAdmmRidge(algorithm=algorithm), None, None, {}, 3))
    )
    where = [np.flatnonzero((p.first[0] != p.second[0]).any(axis=1) | (p.first[1] != p.second[1]))
             for p in pairs]  # fmt: skip
    assert np.concatenate(where).tolist() == [0] * 5 + [3] * 5 * is_last
    assert sum("the last record" in pair.differ for pair in pairs) == 5 * is_last


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda noise: np.repeat(noise[:, :, :1], noise.shape[2], axis=2), "no noise in a step"),
        (lambda noise: noise + noise[:, :, ::-1] / 2, "noise is not just added"),
    ],
    ids=["the same for all", "mixed"],
)
def test_noise_of_classes_that_loops_mix_is_found(monkeypatch, change, words):
    plant_in_loops(monkeypatch, lambda n_steps, bound, noise: (bound, change(noise)))
    model = DPAdmmLogisticRegression(algorithm=GradientADMM(), classes=[0, 1, 2])
    assert words in found(audit(model, random_state=0))["iterate"]


@pytest.mark.parametrize("model", EVERYWHERE, ids=lambda model: type(model).__name__)
def test_whatever_passes_a_gate_is_let_out_in_one_place(monkeypatch, model):
    gates, seen = [], []

    def let_out(self, method, release, repetition, value, out, unit=0.0, agents=None):
        gates.append(self)
        if release is not None:
            seen.append((release.name, out.shape))
            assert np.min(unit) > 0
            assert (agents is None) == (method not in ("take_turns", "turn_noise"))
            assert value is None or value.shape in (out.shape, (len(value), *out.shape))
        return out

    monkeypatch.setattr(Gate, "let_out", let_out)
    pair = next(worst_case_neighbors(schema_of(model, None, None, {}, 3)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clone(model).fit(*pair.first, **pair.fit_params)
    assert seen == gates[-1].trace
    monkeypatch.undo()
    # In a fit it changes nothing, and copies nothing.
    value = np.ones(2)
    assert gates[-1].let_out("uniform", None, 0, None, value) is value


def test_a_path_whose_loop_is_not_known_is_not_called_sound(monkeypatch):
    monkeypatch.setattr(replay_module, "in_sight", lambda algorithm, gate, by_numpy: algorithm)
    report = audit(DPAdmmRidge(algorithm=GradientADMM()), random_state=0)
    assert not report.is_violation
    assert report.not_replayed == ("iterate",)
    assert report.lines[0].found == "not replayed: the loop is not known"
    assert "Not replayed: iterate." in report.verdict
    assert report.lines[0].noise is not None


@pytest.mark.parametrize("unit", ["record", "agent"])
def test_compiled_turns_are_compared(unit):
    pytest.importorskip("numba")
    algorithm = PersonalizedCoordinateDescent(compiled=True)
    model = DPPersonalizedRegressor(algorithm=algorithm, privacy_unit=unit)
    report = audit(model, random_state=0, n_runs=2)
    assert not report.is_violation, report
    assert report.not_replayed == ()
    (line,) = report.lines
    assert 0.97 * line.declared < line.moved <= line.declared


def test_compiled_turns_that_say_something_else_are_found(monkeypatch):
    pytest.importorskip("numba")
    honest = CompiledWakes.advance

    def advance(self, models, woken, wave):
        exact = self.gradient.exact
        loose = dataclasses.replace(exact, slope_bound=10 * exact.slope_bound)
        monkeypatch.setattr(self.gradient, "exact", loose)
        honest(self, models, woken, wave)
        monkeypatch.undo()
        monkeypatch.setattr(CompiledWakes, "advance", advance)

    monkeypatch.setattr(CompiledWakes, "advance", advance)
    algorithm = PersonalizedCoordinateDescent(compiled=True)
    report = audit(DPPersonalizedRegressor(algorithm=algorithm), random_state=0, n_runs=1)
    assert found(report) == {"compiled turns": "other than turns one by one"}


@pytest.mark.parametrize("is_clipped", [True, False])
def test_hidden_terms_of_all_rounds_are_compared(monkeypatch, is_clipped):
    if not is_clipped:
        honest = agent_gradients.clip_derivative
        monkeypatch.setattr(
            agent_gradients, "clip_derivative", lambda slope, limit: honest(slope, 3 * limit)
        )
    model = DPDecentralizedRegressor(algorithm="dual-perturbation-admm", max_iter=3)
    report = audit(model, random_state=0, n_runs=1)
    line = report.lines[0]
    assert (line.name, line.times) == ("linear terms of agents", 3)
    assert report.not_replayed == ("minimisers of agents",)
    assert line.is_violation != is_clipped
    if is_clipped:
        assert 0.99 * line.declared < line.moved <= line.declared
    else:
        assert line.found == "moves too far"


def test_a_missing_clip_of_agents_is_found(monkeypatch):
    monkeypatch.setattr(agent_turns, "awake_gradients", unclipped(agent_turns.awake_gradients))
    wrong = found(audit(DPPersonalizedRegressor()))
    assert wrong == {"gradients of agents, in turns": "moves too far"}


@pytest.mark.parametrize(
    "model",
    [
        DPAdmmLogisticRegression(**THREE),
        DPFedLogisticRegression(**THREE),
        DPDecentralizedClassifier(**THREE),
        DPPersonalizedClassifier(**THREE),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_same_noise_for_every_class_is_found(monkeypatch, model):
    plant(monkeypatch, SameNoiseForEveryClass)
    assert "noise is used twice" in " ".join(found(audit(model)).values())


@pytest.mark.parametrize(
    "model",
    [
        DPDecentralizedRegressor(algorithm=MultiStepADMM(), conditioning=None, max_iter=20),
        DPPersonalizedRegressor(algorithm=PersonalizedCoordinateDescent()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_noise_that_is_seeded_by_worker_is_found(monkeypatch, model):
    plant(monkeypatch, SameNoiseForEveryAgent)
    assert "noise is used twice" in " ".join(found(audit(model)).values())


@pytest.mark.parametrize("model", EVERYWHERE, ids=lambda model: type(model).__name__)
def test_noise_of_the_same_seed_in_every_fit_is_found(monkeypatch, model):
    plant(monkeypatch, lambda: SeededNoise((0,), b""))
    assert "noise is used twice" in " ".join(found(audit(model)).values())


def test_noise_that_is_the_same_in_every_release_is_found(monkeypatch):
    plant(monkeypatch, SameNoiseInEveryRelease)
    model = DPAdmmLogisticRegression(conditioning=None, **THREE)
    assert "noise is used twice" in " ".join(found(audit(model, n_runs=2)).values())


def test_replace_one_counted_as_zero_out_is_found(monkeypatch):
    monkeypatch.setattr(Neighboring, "sensitivity_factor", 1)
    assert found(audit(DPAdmmRidge())) == {"mean displacement": "moves too far"}


def test_a_model_that_knows_more_than_was_released_is_found(monkeypatch):
    honest = ConsensusADMM.run

    def run(self, plan, problem, gate):
        solution = honest(self, plan, problem, gate)
        solution.parameters[0] += 1e-3 * problem.target.sum()
        return solution

    monkeypatch.setattr(ConsensusADMM, "run", run)
    wrong = found(audit(DPAdmmRidge()))
    assert wrong == {"the model beside what was released": "depends on data"}


def test_releases_whose_number_depends_on_data_are_found(monkeypatch):
    honest = ConsensusADMM.run

    def run(self, plan, problem, gate):
        if problem.target.sum() > -1:
            gate.uniform((1,))
        return honest(self, plan, problem, gate)

    monkeypatch.setattr(ConsensusADMM, "run", run)
    assert "depends on data" in found(audit(DPAdmmRidge())).values()


def test_the_noise_of_sound_fits_is_suspected_as_rarely_as_confidence_says():
    model = DPDecentralizedClassifier(classes=[0, 1, 2], max_iter=3)
    wrong = sum(audit(model, confidence=0.9, random_state=seed).is_violation for seed in range(30))
    # 3 are expected at most; 9 or more come once in 500 times.
    assert wrong < 9
