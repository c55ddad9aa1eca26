"""Theorems about personal models: Laplace turns, compiled loops, published records."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from skdpadmm import DPPersonalizedClassifier, DPPersonalizedRegressor
from skdpadmm.algorithms import LocalModels, PersonalizedCoordinateDescent, PerturbedData
from skdpadmm.audit import audit
from skdpadmm.privacy import GaussianDP, LaplaceDP
from tests.contract.harness import (
    RecordingGate,
    SilentGate,
    record,
    runs_of,
    scale_of,
    unit_noise,
)
from tests.contract.harness import moves as moves_of
from tests.contract.harness import replay as replay_of
from tests.contract.registry import AGENTS, ROWS

LAWS = ("gaussian", "laplace")
LEVELS = (0.0, 0.3, 0.6, 0.9)


def laplace_deltas(steps, levels, width=5e-4):
    """Lower and upper bounds of delta of Laplace turns, by sums of losses on a grid.

    Noise of scale one and a shift of s have the loss s - 2 x at x in [0, s], s below and -s above.
    """
    bounds = []
    for up in (0, 1):
        total, start = np.ones(1), 0
        for step in steps:
            first, last = math.floor(-step / width) - 1, math.ceil(step / width) + 1
            edges = np.arange(first, last + 1) * width
            below = np.where(edges < -step, 0.0, np.exp((np.minimum(edges, step) - step) / 2) / 2)
            below[edges >= step] = 1.0
            total, start = np.convolve(total, np.diff(below)), start + first + up
        losses = (start + np.arange(len(total))) * width
        bounds.append([total @ np.maximum(0.0, -np.expm1(level - losses)) for level in levels])
    return np.array(bounds)


def test_sums_of_laplace_losses_are_those_of_the_closed_form():
    lower, upper = laplace_deltas([0.8], LEVELS)
    exact = [LaplaceDP((0.8,)).delta(level) for level in LEVELS]
    assert (lower <= exact).all()
    assert (exact <= upper).all()
    np.testing.assert_allclose(lower, upper, atol=5e-4)


def steps_of(algorithm, **params):
    """What the turns of the first agent move by, in scales of its noise; and the plan."""
    (row,) = (row for row in ROWS if row.id == "personal-laplace")
    row = replace(row, params={"fit_intercept": False, "alpha": 0.0, **params})
    X, y = np.ones((row.n_samples, 2)), np.full(row.n_samples, 2.0)
    y2 = np.where(np.isin(np.arange(len(y)), row.first_unit), -2.0, y)
    model = row.make(algorithm=algorithm)
    recorded = record(row, X, y, model=model)
    replayed = replay_of(row, recorded, X, y2, model=row.make(algorithm=algorithm))
    found = [move for move in moves_of(recorded, replayed) if move.distance > 0]
    return [move.distance / move.scale for move in found], recorded.plan


@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("split", ["equal", "optimal"])
@pytest.mark.parametrize("law", LAWS)
def test_the_exact_divergence_of_turns_attains_the_claim(law, split, unit):
    algorithm = PersonalizedCoordinateDescent(
        turns=4, noise=law, clip_norm=1e-3, split=split, warm_start="propagation"
    )
    steps, plan = steps_of(algorithm, privacy_unit=unit)
    assert len(steps) == 4
    claimed = np.array([plan.guarantee().delta(level) for level in LEVELS])
    if law == "laplace":
        lower, upper = laplace_deltas(steps, LEVELS)
    else:
        lower = upper = np.array([GaussianDP(math.hypot(*steps)).delta(level) for level in LEVELS])
    assert (lower <= claimed * (1 + 1e-9)).all()
    np.testing.assert_allclose(upper, claimed, rtol=5e-3, atol=5e-4)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("algorithm", [PersonalizedCoordinateDescent, LocalModels])
def test_agents_with_budgets_of_their_own_spend_them(algorithm, law):
    epsilons = [0.5, 2.0, 1.0, 4.0]
    model = DPPersonalizedRegressor(
        algorithm=algorithm(turns=2, noise=law), epsilon=epsilons, max_iter=3
    )
    plan = model.plan(14, 2, agent_sizes=np.bincount(AGENTS))
    (release,) = plan.releases
    for agent, epsilon in enumerate(epsilons):
        steps = np.asarray(release.sensitivities) / scale_of(plan, release, agent=agent)
        one = GaussianDP(math.hypot(*steps)) if law == "gaussian" else LaplaceDP(tuple(steps))
        claimed = plan.guarantees("eavesdropper")[plan.facts.agents.kind[agent]]
        assert 0.99 * epsilon < one.epsilon(1e-5) <= claimed.epsilon(1e-5) <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("unit", ["record", "agent"])
@pytest.mark.parametrize("algorithm", [PersonalizedCoordinateDescent, LocalModels])
def test_noise_of_a_model_is_that_of_the_mean_gradient(algorithm, unit, law):
    # Where the noise of a turn was not divided by the number of rows it would be more.
    knobs = {"turns": 1, "noise": law, "clip_norm": 0.2}
    if algorithm is PersonalizedCoordinateDescent:
        knobs |= {"warm_start": None, "averaging_wakes": 0, "tempered": False}
    rng = np.random.default_rng(0)
    found = {}
    for n_samples in (10, 40):
        model = DPPersonalizedClassifier(
            algorithm=algorithm(**knobs), fit_intercept=False, feature_bounds=(-1, 1),
            classes=[-1, 1], privacy_unit=unit, n_agents=1, random_state=0,
        )  # fmt: skip
        X, y = rng.uniform(-1, 1, (n_samples, 200)), np.ones(n_samples, dtype=int)
        run = runs_of(model, X, y, agents=np.zeros(n_samples, dtype=int))
        quiet, _ = run(SilentGate)
        noisy, _ = run(RecordingGate)
        found[n_samples] = np.std(noisy.parameters - quiet.parameters)
    expected = 4 if unit == "record" else 1
    assert found[10] / found[40] == pytest.approx(expected, rel=0.3)


@pytest.mark.slow
@pytest.mark.parametrize(("law", "warm_start"), [("gaussian", "propagation"), ("laplace", None)])
def test_a_compiled_loop_says_what_turns_one_by_one_do_with_the_same_noise(law, warm_start):
    # The audit replays it turn by turn, and gives the loop noise that makes up for every move.
    pytest.importorskip("numba")
    algorithm = PersonalizedCoordinateDescent(
        turns=3, noise=law, clip_norm=0.2, compiled=True, warm_start=warm_start
    )
    report = audit(DPPersonalizedRegressor(algorithm=algorithm, max_iter=4), random_state=0)
    assert not report.is_violation, report
    assert report.not_replayed == ()
    line = report.lines[-1]
    assert 0.5 * line.declared < line.moved <= line.declared * (1 + 1e-9)


@pytest.mark.parametrize("law", LAWS)
def test_every_published_number_and_label_has_the_planned_noise(law):
    n_samples = 1500
    X = np.zeros((n_samples, 2))
    y = np.resize([0, 1, 2], n_samples)
    (row,) = (row for row in ROWS if row.id == "perturbed-rows-and-labels")
    model = row.make(algorithm={"noise": law}, epsilon=3.0)
    agents = np.arange(n_samples) % 4
    recorded = record(
        row, X, y, model=model, fit=lambda model, X, y: model.fit(X, y, agents=agents)
    )
    rows, labels = recorded.plan.releases
    noise = unit_noise(recorded)[rows.name]
    assert noise.std() == pytest.approx(1, abs=0.06)
    (told,) = (p for p in recorded.passages if p.name == labels.name)
    others = (labels.n_labels - 1) * labels.others[0]
    error = 5 * math.sqrt(others * (1 - others) / n_samples)
    assert np.mean(told.out != told.value) == pytest.approx(others, abs=error)
    # Randomised response: what a label tells is the log of its odds.
    alone = math.log((1 - others) / labels.others[0])
    spent = recorded.plan.guarantee()
    assert alone < 3.0 * (1 + 1e-9)
    assert spent.epsilon(row.params.get("delta", 1e-4)) <= 3.0 * (1 + 1e-9)


def test_published_records_refuse_what_they_cannot_protect():
    with pytest.raises(ValueError, match="agent"):
        DPPersonalizedRegressor(algorithm=PerturbedData(), privacy_unit="agent").plan(
            14, 2, agent_sizes=np.bincount(AGENTS)
        )
