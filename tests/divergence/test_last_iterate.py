"""Theorems about the end of a path, against exact divergences: linear losses make all Gaussian."""

import math
from unittest import mock

import numpy as np
import pytest

from skdpadmm import DPAdmmRidge
from skdpadmm.algorithms import AveragedADMM, ConsensusADMM, GradientADMM, GradientDescent
from tests.contract.harness import KnownNoise, SilentGate, gaussian_delta, runs_of

N_SAMPLES = 12


def model_of(algorithm, *, alpha=0.0, **params):
    """One coefficient; clips are so tight that every loss is linear."""
    shared = {"fit_intercept": False, "target_bounds": (-2, 2), "feature_bounds": (-1, 1)}
    params = {"delta": 1e-4, "random_state": 0, **shared, **params}
    return DPAdmmRidge(algorithm=algorithm, alpha=alpha, **params)


def targets(n_samples, flipped=None):
    y = np.full(n_samples, 2.0)
    if flipped is not None:
        y[flipped] = -2.0
    return y


def last(run, *args, **known):
    """What a theorem is about after a run: of gradient ADMM the state, else the parameters."""
    states, honest = [], GradientADMM.solution

    def kept(self, plan, problem, state):
        states.append(np.concatenate([state.x, state.multipliers]))
        return honest(self, plan, problem, state)

    with mock.patch.object(GradientADMM, "solution", kept):
        solution, _ = run(*args, **known)
    return (states[-1] if states else solution.parameters).ravel()


def exact_mu(model, records, n_samples=N_SAMPLES):
    """Mu of the last iterate for some records, from the code without noise and with single noises.

    Everything is affine in data and noise, which is checked.
    """
    X = np.ones((n_samples, 1))
    run = runs_of(model, X, targets(n_samples))
    base, gate = last(run, SilentGate), run(SilentGate)[1]
    responses = []
    for i, passage in enumerate(gate.passages):
        if passage.method not in ("release", "path_noise"):
            continue
        shape = passage.out.shape
        for entry in range(passage.out.shape[0] if passage.method == "path_noise" else 1):
            known = np.zeros(shape)
            known[entry] = 0.1
            at = i
            responses.append((last(run, KnownNoise, known={at: known}) - base) / 0.1)
    twice = (last(run, KnownNoise, known={at: 2 * known}) - base) / 0.2
    np.testing.assert_allclose(twice, responses[-1], rtol=1e-4, atol=1e-12)
    covariance = np.transpose(responses) @ np.array(responses)
    found = []
    for record in records:
        shift = last(runs_of(model, X, targets(n_samples, record)), SilentGate) - base
        found.append(math.sqrt(shift @ np.linalg.lstsq(covariance, shift, rcond=1e-12)[0]))
    return np.array(found)


LINEAR = {"step_size": 0.5, "clip_norm": 0.01}


@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize("max_iter", [1, 6, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("algorithm", "alpha", "nearly"),
    [
        (GradientDescent(guarantee="last", **LINEAR), 0.5, 0.999),
        (AveragedADMM(guarantee="last", tolerance=1e-6, **LINEAR), 5.0, 0.97),
        # One iterate alone: it tells as much as the whole path.
        (ConsensusADMM(tail_fraction=1e-9, **LINEAR), 0.0, 0.999),
    ],
    ids=["gradient", "averaged", "consensus"],
)
def test_a_contraction_tells_of_each_record_what_is_claimed(
    algorithm, alpha, nearly, max_iter, neighboring
):
    model = model_of(algorithm, alpha=alpha, max_iter=max_iter, neighboring=neighboring)
    claimed = model.plan(N_SAMPLES, 1).guarantee().mu
    exact = exact_mu(model, [0]) / (1 if neighboring == "replace_one" else 2)
    assert nearly * claimed < exact[0] <= claimed * (1 + 1e-9)


def test_a_single_pass_tells_of_each_record_no_more_than_is_claimed_and_nearly_so_of_the_first():
    model = model_of(GradientDescent(schedule="cyclic", **LINEAR), max_iter=4)
    plan = model.plan(N_SAMPLES, 1)
    exact, claimed = exact_mu(model, range(N_SAMPLES)), plan.guarantee().mu
    assert 0.75 * claimed < exact.max() <= claimed * (1 + 1e-9)
    # A linear map hides the first batch by the noise of all steps, and not by less.
    release = plan.releases[-1]
    assert exact.max() == pytest.approx(
        max(release.sensitivities) / release.noise_std / 2, rel=1e-3
    )
    # The last batch has the noise of one step to hide in.
    large = model_of(GradientDescent(schedule="cyclic"), delta=1e-6).plan(20_000, 3).releases[-1]
    worst = large.sensitivities[-1] / large.noise_std
    assert 0.95 * large.guarantee.mu < worst <= large.guarantee.mu


def gradient_admm(kappa=1.0, **knobs):
    return GradientADMM(
        step_size=0.1, penalty_weight=kappa / 0.1, clip_norm=0.01, average=False, **knobs
    )


@pytest.mark.parametrize("kappa", [0.01, 1.0, 10.0])
@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("alpha", [0.0, 30.0])
def test_the_state_of_gradient_admm_tells_of_no_record_more_than_is_claimed(kappa, passes, alpha):
    model = model_of(gradient_admm(kappa, passes=passes, order="arrival"), alpha=alpha)
    plan = model.plan(N_SAMPLES, 1)
    exact, claimed = exact_mu(model, range(N_SAMPLES)), plan.guarantee().mu
    assert (exact <= claimed * (1 + 1e-9)).all()
    if passes == 1:
        assert exact[0] <= exact[-1] * (1 + 1e-6)
    if passes == 1 and alpha == 30.0 and kappa == 10.0:
        # What contracts at once has the noise of one step to hide the last record in.
        assert exact[-1] >= 0.99 * claimed


def test_what_a_stream_says_of_its_end_is_above_the_divergence():
    model = model_of(gradient_admm(schedule="stream"))
    X = np.ones((N_SAMPLES, 1))
    model.partial_fit(X, targets(N_SAMPLES)).finalize()
    (_, at_last), (_, average), (_, at_first) = model.privacy_.if_unseen
    exact = exact_mu(model_of(gradient_admm(schedule="stream")), range(N_SAMPLES))
    assert exact.max() <= at_last.mu
    assert exact[0] <= at_first.mu < at_last.mu
    for epsilon in (0.1, 0.5):
        deltas = [gaussian_delta(mu, epsilon) for mu in exact]
        assert np.mean(deltas) <= average.delta(epsilon)
