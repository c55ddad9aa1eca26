"""What tests of several algorithms share."""

import pytest

from skdpadmm.algorithms import _noise_left


@pytest.fixture
def keep_noise(monkeypatch):
    """What is planned as noise is not what a test adds, so nothing is taken for it."""
    monkeypatch.setattr(_noise_left, "drop_noise", lambda parameters, rows, variance: parameters)
