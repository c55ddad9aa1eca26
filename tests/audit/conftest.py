"""Noise with planted bugs, and what is said of a report."""

from __future__ import annotations

import numpy as np
import pytest

import skdpadmm._fitting as fitting
from skdpadmm.noise import CryptographicNoise, SeededNoise


class Scaled(CryptographicNoise):
    """Part of the noise."""

    share = 0.5

    def add_gaussian(self, value, scale, stream):
        return super().add_gaussian(value, self.share * scale, stream)


class Tiny(Scaled):
    share = 1e-3


class SameForEveryClass(CryptographicNoise):
    def add_gaussian(self, value, scale, stream):
        if value.ndim < 2:
            return super().add_gaussian(value, scale, stream)
        return value + super().add_gaussian(np.zeros((*value.shape[:-1], 1)), scale, stream)


FITS = iter(range(10**9))
SOURCES = {
    "half the noise": Scaled,
    "hardly any noise": Tiny,
    "one noise for all classes": SameForEveryClass,
    "one seed for all fits": lambda: SeededNoise((0,), b""),
    "seeds of five workers": lambda: SeededNoise((next(FITS) % 5,), b""),
}


@pytest.fixture
def plant_noise(monkeypatch):
    """Give all fits one of the sources above, by its name; say whether there is such a one."""

    def plant(bug):
        if bug in SOURCES:
            monkeypatch.setattr(fitting, "noise_source", lambda *_: SOURCES[bug]())
        return bug in SOURCES

    return plant
