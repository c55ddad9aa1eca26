"""Algorithms outside the package have the same properties: the contract is public."""

import math

import numpy as np
import pytest

from benchmarks import baselines
from examples.extending.plot_heavy_ball import HeavyBall
from skdpadmm import DPDecentralizedClassifier, DPDecentralizedRegressor, DPPersonalizedRegressor
from skdpadmm.algorithms import LocalModels
from tests.contract import test_contract as contract
from tests.contract.registry import AGENTS, NO_INTERCEPT, Row
from tests.divergence.densities import divergence_of_hidden_term

PRIMAL, DUAL = baselines.PrimalPerturbationADMM, baselines.DualPerturbationADMM
# fmt: off
PUBLISHED = Row("published", "DPPersonalizedRegressor", baselines.PerturbedData, linear=None,
    hides_path=True)
ROWS = [
    Row("heavy-ball", "DPAdmmLogisticRegression", HeavyBall, target="three", reaches=0.866,
        optimum=({"clip_norm": 10.0, "step_size": 0.5}, 1e-6), hides_path=True, is_quick=True),
    Row("heavy-ball-zero-out", "DPAdmmRidge", HeavyBall, params=NO_INTERCEPT, hides_path=True),
    Row("primal", "DPDecentralizedRegressor", PRIMAL, {"inner_steps": 5}, composes=False,
        linear={"clip_norm": 0.001, "penalty_weight": 1.0}, reaches=0.97,
        optimum=({"clip_norm": 100.0, "penalty_weight": 1.0, "inner_steps": 20}, 1e-5)),
    Row("primal-zero-out", "DPDecentralizedClassifier", PRIMAL, target="two", linear=None,
        params={"neighboring": "zero_out", "topology": "path"}),
    Row("recycled", "DPDecentralizedRegressor", baselines.RecycledADMM, {"inner_steps": 5},
        params={"max_iter": 5}, composes=False,
        linear={"clip_norm": 0.001, "penalty_weight": 1.0}, reaches=0.97,
        optimum=({"clip_norm": 100.0, "penalty_weight": 1.0, "inner_steps": 20}, 1e-5)),
    Row("growing-penalty", "DPDecentralizedRegressor", baselines.GrowingPenaltyADMM,
        {"inner_steps": 5}, composes=False,
        linear={"clip_norm": 0.001, "penalty_weight": 1.0}, reaches=0.97,
        # Steps that shrink have to go on long enough.
        optimum=({"clip_norm": 100.0, "penalty_weight": 1.0, "inner_steps": 20, "growth": 1.001},
                 1e-4)),
    Row("dual", "DPDecentralizedClassifier", DUAL, target="two", unseen=("minimisers of agents",),
        params={"max_iter": 2}, linear=None),
    PUBLISHED,
    Row("published-labels", "DPPersonalizedClassifier", baselines.PerturbedData,
        {"models": "local"}, target="three", params={"neighboring": "zero_out"}, linear=None,
        hides_path=True),
]
# fmt: on


@pytest.mark.slow
@pytest.mark.parametrize(("row", "promise"), contract.cases(ROWS, contract.PROPERTIES))
def test_contract(row, promise):
    promise(row)


# Equations.


@pytest.mark.parametrize("neighboring", ["zero_out", "replace_one"])
def test_the_exact_divergence_of_a_tilted_solution_stays_below_the_claim(neighboring):
    model = DPDecentralizedClassifier(
        algorithm=DUAL(clip_norm=0.7), penalty=None, topology="path", fit_intercept=False,
        conditioning=None, classes=[-1, 1], max_iter=1, delta=1e-3, neighboring=neighboring,
    )  # fmt: skip
    X, y = np.array([[1.0], [0.5], [-1.0], [1.0], [0.3]]), np.array([1, -1, 1, 1, -1])
    X2, y2 = X.copy(), y.copy()
    X2[0], y2[0] = (0.0, 1) if neighboring == "zero_out" else (1.0, -1)
    exact, claimed = divergence_of_hidden_term(
        model, (X, y), (X2, y2), 1.0, n_terms=101, agents=np.array([0, 0, 1, 1, 1])
    )
    assert 0 < exact <= claimed


@pytest.mark.parametrize(
    ("topology", "params"), [("ring", {"alpha": 0.1}), ("star", {"alpha": 0.05, "penalty": "l1"})]
)
def test_exact_consensus_ends_at_the_optimum_of_all_rows(topology, params):
    X, y = PUBLISHED.data()
    exact, model = (
        DPDecentralizedRegressor(epsilon=math.inf, topology=topology, **own, **params)
        for own in ({}, {"algorithm": baselines.ExactConsensusADMM(tolerance=1e-8)})
    )
    exact.fit(X, y, agents=AGENTS)
    model.fit(X, y, agents=AGENTS)
    for own in (model.coef_, *model.coef_per_agent_):
        np.testing.assert_allclose(own, exact.coef_, atol=1e-6)
    assert model.n_messages_ == model.n_rounds_ * 2 * model.topology_.n_edges


@pytest.mark.parametrize("start", ["zero", "local"])
def test_gossip_between_pairs_ends_at_the_joint_optimum_and_counts_copies(start):
    X, y = PUBLISHED.data()
    shared = {"epsilon": math.inf, "alpha": 0.1, "feature_bounds": (-1, 1)}
    exact = DPPersonalizedRegressor(**shared).fit(X, y, agents=AGENTS)
    gossip = baselines.GossipADMM(start=start)
    model = DPPersonalizedRegressor(algorithm=gossip, max_iter=400, **shared)
    model.fit(X, y, agents=AGENTS)
    np.testing.assert_allclose(model.coef_per_agent_, exact.coef_per_agent_, atol=1e-4)
    first = int(model.similarity_.n_neighbors.sum()) * (start == "local")
    assert model.n_messages_ == first + 2 * 400 * 4
    assert model.bytes_sent_ == 8 * 3 * (first + 4 * 2 * 400 * 4)


@pytest.mark.parametrize("models", ["joint", "local"])
def test_models_of_published_records_are_those_of_what_was_published(models):
    X, y = PUBLISHED.data()
    shared = {"alpha": 0.1, "feature_bounds": (-1, 1), "target_bounds": (-2, 2)}
    exact = DPPersonalizedRegressor(epsilon=math.inf, **shared)
    if models == "local":
        exact.set_params(algorithm=LocalModels())
    exact.fit(X, y, agents=AGENTS)
    published = baselines.PerturbedData(models=models)
    model = DPPersonalizedRegressor(algorithm=published, epsilon=1e13, random_state=0, **shared)
    model.fit(X, y, agents=AGENTS)
    np.testing.assert_allclose(model.coef_per_agent_, exact.coef_per_agent_, atol=1e-3)
