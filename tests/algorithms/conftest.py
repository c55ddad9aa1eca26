"""What tests of several algorithms share."""

from __future__ import annotations

import pytest

import skdpadmm.algorithms._consensus_admm as consensus
import skdpadmm.algorithms._federated_admm as federated


@pytest.fixture
def keep_noise(monkeypatch):
    """What is planned as noise is not what a test adds, so nothing is taken for it."""
    for module in (consensus, federated):
        monkeypatch.setattr(module, "drop_noise", lambda parameters, rows, variance: parameters)
