"""Black-box audits of this library's estimators: nothing is found, but for planted bugs."""

from __future__ import annotations

import numpy as np
import pytest

import skdpadmm
import skdpadmm._fitting as fitting
import skdpadmm.algorithms.blocks._record_blocks as record_blocks
from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import ConsensusADMM
from skdpadmm.audit import audit
from skdpadmm.noise import CryptographicNoise, SeededNoise

ESTIMATORS = [getattr(skdpadmm, name) for name in skdpadmm.__all__ if name.startswith("DP")]
# The last iterate alone tells as much as the whole path, and the claimed mu is exact.
LINEAR = {
    "algorithm": ConsensusADMM(step_size=0.01, clip_norm=0.01, tail_fraction=1 / 3),
    "max_iter": 3,
    "delta": 1e-3,
    "epsilon": 3.0,
    "fit_intercept": False,
}


def ridge(**changed):
    return DPAdmmRidge(alpha=0.0, **{**LINEAR, **changed})


def multinomial():
    # What conditioning spends on second moments, which are equal here, a model does not show.
    return DPAdmmLogisticRegression(C=np.inf, classes=[0, 1, 2], conditioning=None, **LINEAR)


class HalfTheNoise(CryptographicNoise):
    def add_gaussian(self, value, scale, stream):
        return super().add_gaussian(value, scale / 2, stream)


class SameNoiseForEveryClass(CryptographicNoise):
    def add_gaussian(self, value, scale, stream):
        noise = super().add_gaussian(np.zeros(len(value)), scale, stream)
        return value + noise[:, None]


def plant(monkeypatch, source):
    monkeypatch.setattr(fitting, "noise_source", lambda *args: source())


@pytest.mark.parametrize("make", [ridge, multinomial])
def test_a_sound_fit_shows_nearly_what_is_claimed_and_no_more(make):
    report = audit(make(), method="black-box", n_runs=2000, random_state=0)
    assert not report.is_violation
    assert report.observer == "model"
    assert 0 < report.lower_bound <= report.claimed_epsilon
    assert 0.6 * report.claimed_mu < report.mu_lower_bound <= report.claimed_mu


def test_neighbours_are_those_between_which_releases_move_the_most():
    # Gradients of two classes out of three are 120 degrees apart, those of opposite rows 180.
    for make, words in ((ridge, "the opposite target"), (multinomial, "another row as long")):
        report = audit(make(), method="black-box", n_runs=8, random_state=0)
        assert report.neighbors.endswith(f"which has {words}")


def test_half_the_noise_is_found(monkeypatch):
    plant(monkeypatch, HalfTheNoise)
    report = audit(ridge(), method="black-box", n_runs=2000)
    assert report.is_violation
    assert report.mu_lower_bound > 1.3 * report.claimed_mu


def test_a_missing_clip_is_found(monkeypatch):
    monkeypatch.setattr(record_blocks, "clip_derivative", lambda derivative, limit: derivative)
    assert audit(ridge(), method="black-box", n_runs=1000).is_violation


def test_the_same_noise_for_every_class_is_found(monkeypatch):
    plant(monkeypatch, SameNoiseForEveryClass)
    report = audit(multinomial(), method="black-box", n_runs=1000)
    assert report.is_violation
    assert report.lower_bound > report.claimed_epsilon


def test_one_seed_for_all_fits_is_found(monkeypatch):
    plant(monkeypatch, lambda: SeededNoise((0,), b""))
    assert audit(ridge(), method="black-box", n_runs=400).is_violation


def test_seeds_of_few_workers_are_found(monkeypatch):
    fits = iter(np.arange(100_000) % 5)
    plant(monkeypatch, lambda: SeededNoise((int(next(fits)),), b""))
    assert audit(ridge(), method="black-box", n_runs=1000).is_violation


def test_canaries_find_no_more_than_is_claimed_and_find_noise_that_is_missing(monkeypatch):
    model = DPAdmmRidge(epsilon=2.0, delta=1e-6)
    assert not audit(model, method="canaries", random_state=0).is_violation

    class Tiny(CryptographicNoise):
        def add_gaussian(self, value, scale, stream):
            return super().add_gaussian(value, 1e-3 * scale, stream)

    plant(monkeypatch, Tiny)
    report = audit(model, method="canaries", random_state=0)
    assert report.is_violation
    assert report.n_runs == 500
    assert "canaries: 500 in one run" in repr(report)


@pytest.mark.slow
@pytest.mark.parametrize("make", ESTIMATORS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("method", ["black-box", "canaries"])
def test_nothing_is_found_in_what_is_shipped(make, method):
    model = make(epsilon=2.0, delta=1e-4, max_iter=5)
    n_runs = 2000 if method == "black-box" else None
    report = audit(model, method=method, n_runs=n_runs, random_state=1)
    assert not report.is_violation, report
