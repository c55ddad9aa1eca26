"""A delta of zero: accepted where all noise is Laplace, added up as epsilons, refused elsewhere."""

import math

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

import skdpadmm as dp
from skdpadmm import algorithms
from skdpadmm.audit import audit
from skdpadmm.exceptions import WeakSignalWarning
from skdpadmm.inspection import privacy_report
from skdpadmm.ledger import PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.model_selection import search_cost
from skdpadmm.privacy import GaussianDP, LaplaceDP, NonPrivate, Worst, compose
from skdpadmm.protocol import Budget, Plan

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (2000, 3))
Y = np.clip(X @ [1.0, -1.0, 0.5], -2, 2)
AGENTS = np.arange(2000) % 8
KNOWN = {"feature_bounds": (-1, 1), "target_bounds": (-2, 2), "max_iter": 6, "delta": 0.0}
PURE = {
    "admm": (dp.DPDecentralizedRegressor, algorithms.RandomizedADMM()),
    "descent": (dp.DPDecentralizedRegressor, algorithms.RandomizedGradientDescent(noise_decay=0.9)),
    "sgd": (dp.DPDecentralizedRegressor, algorithms.RandomizedSGD()),
    "personal": (
        dp.DPPersonalizedRegressor,
        algorithms.PersonalizedCoordinateDescent(noise="laplace", split="optimal"),
    ),
    "local": (dp.DPPersonalizedRegressor, algorithms.LocalModels(noise="laplace", turns=3)),
}


def pure(name="admm", **changed):
    make, algorithm = PURE[name]
    return make(**{**KNOWN, "algorithm": algorithm, **changed})


@pytest.mark.parametrize("name", PURE)
def test_epsilons_of_all_laplace_releases_add_up_to_the_budget(name):
    epsilons = np.array([0.5, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 4.0])
    model = pure(name, epsilon=epsilons).fit(X, Y, agents=AGENTS)
    report = model.privacy_
    for observer in report.observers:
        sums = report.epsilon_per_agent(observer.name)
        assert np.all(sums <= epsilons)
        np.testing.assert_allclose(sums, epsilons, rtol=1e-9)
    (release,) = model.plan(2000, 3, agent_sizes=np.bincount(AGENTS)).releases
    scales = np.asarray(release.agent_noise_std) / math.sqrt(2)
    spent = math.fsum(release.sensitivities) / scales
    assert release.law == "laplace"
    # The grid of the noise costs a little.
    np.testing.assert_allclose(np.sort(spent), np.unique(epsilons), rtol=1e-3)
    assert np.all(np.sort(spent) <= np.unique(epsilons))
    assert report.delta == 0.0
    assert "(4, 0)" in str(report)


SUMS, PEER = {"adversary": "sums"}, {"adversary": "peer"}
REFUSED = {
    "default of a curator": (dp.DPAdmmRidge(), "delta=0 with ConsensusADMM"),
    "stream": (dp.DPAdmmRidge(algorithm=algorithms.GradientADMM(schedule="stream")), "delta=0"),
    "perturbed objective": (dp.DPAdmmRidge(algorithm="objective-perturbation"), "delta=0 with Obj"),
    "federation": (dp.DPFedRidge(), "delta=0 with FederatedADMM"),
    "sharing": (dp.DPFedRidge(algorithm="secret-sharing-gradient-descent", **SUMS), "delta=0"),
    "graph": (dp.DPDecentralizedRegressor(), "delta=0 with "),
    "walk": (dp.DPDecentralizedRegressor(algorithm="random-walk-admm", **PEER), "delta=0"),
    "Gaussian aggregators": (
        dp.DPDecentralizedRegressor(algorithm=algorithms.RandomizedADMM(noise="gaussian")),
        "noise='gaussian'.*Use noise='laplace'",
    ),
    "personal": (dp.DPPersonalizedRegressor(), "delta=0 with PersonalizedCoordinateDescent"),
    "conditioning": (pure(conditioning="private"), "conditioning='private' with delta=0"),
    "intervals": (
        dp.DPAdmmRidge(intervals=True, feature_bounds=(-1, 1)), "intervals=True with delta=0"
    ),
    "scale": (pure(scale="private", feature_bounds=None), "scale='private' .* with delta=0"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_gaussian_noise_is_refused_before_data(name):
    model, message = REFUSED[name]
    sizes = {} if isinstance(model, dp.DPAdmmRidge) else {"agent_sizes": [250] * 8}
    model.set_params(delta=0.0)
    with pytest.raises(ValueError, match=message):
        model.plan(2000, 3, **sizes)
    # There is no noise that could be of any law.
    if "private" not in message:
        fit = {"agents": AGENTS} if sizes else {}
        model.set_params(epsilon=math.inf).fit(X, Y, **fit)


def test_no_other_law_passes_for_one_with_a_delta_of_zero():
    """Far out the delta of a Gaussian release underflows."""
    plan = pure().plan(2000, 3, agent_sizes=[250] * 8)
    (release,) = plan.releases

    def planned(guarantee, epsilon):
        views = tuple(
            type(view)(observer=view.observer, guarantees=(guarantee,)) for view in release.views
        )
        changed = type(release)(**{**vars(release), "views": views})
        budget = Budget(epsilon=epsilon, delta=0.0, observer=plan.budget.observer)
        return Plan(
            algorithm="Mine", facts=plan.facts, budget=budget, settings=plan.settings,
            releases=(changed,),
        )  # fmt: skip

    assert GaussianDP(0.1).delta(1e5) == 0.0
    for other in (GaussianDP(0.1), compose(GaussianDP(0.1), LaplaceDP(0.1)), NonPrivate()):
        for guarantee in (other, Worst((other, LaplaceDP(0.1)))):
            with pytest.raises(ValueError, match="more noise"):
                planned(guarantee, 1e5)
    with pytest.raises(ValueError, match="more noise"):
        planned(compose(LaplaceDP(0.5), LaplaceDP(0.501)), 1.0)
    planned(compose(LaplaceDP(0.5), LaplaceDP(0.5)), 1.0)


def test_a_budget_that_the_grid_exceeds_is_refused():
    with pytest.raises(ValueError, match="the grid of the noise alone uses as much"):
        pure(epsilon=1e-6, max_iter=1000).plan(2000, 3, agent_sizes=[250] * 8)


def test_the_signal_is_that_of_as_much_noise_at_the_usual_delta():
    strengths = []
    for delta in (0.0, 1e-5):
        plan = pure(delta=delta).plan(2000, 3, agent_sizes=[250] * 8)
        strengths.append(plan.signal.strength * plan.releases[0].noise_std)
    assert strengths[0] == pytest.approx(strengths[1], rel=0.1)
    with pytest.warns(WeakSignalWarning, match="epsilon=") as warned:
        weak = pure(epsilon=0.01).plan(2000, 3, agent_sizes=[250] * 8)
    enough = 0.01 * 10 / weak.signal.strength
    assert f"epsilon={enough:.2g}" in str(warned[0].message)


def test_ledgers_add_epsilons_up_and_know_what_is_left(tmp_path):
    path = str(tmp_path / "study.db")
    ledger = PrivacyLedger(path)
    ledger.limit(2.5, 0.0)
    model = pure(ledger=path)
    for _ in range(2):
        model.fit(X, Y, agents=AGENTS)
    assert ledger.total(0.0, kind="fixed") == pytest.approx(2.0, rel=1e-9)
    assert ledger.total(1e-5, kind="fixed") < ledger.total(0.0, kind="fixed") - 0.01
    assert "0.5" in ledger.summary()
    with pytest.raises(PrivacyBudgetExceeded) as refused:
        model.fit(X, Y, agents=AGENTS)
    assert refused.value.epsilon_left == pytest.approx(0.5, rel=1e-6)
    model.set_params(epsilon=0.4999).fit(X, Y, agents=AGENTS)
    # A Gaussian fit has no place in it.
    gaussian = pure(delta=1e-5, epsilon=1e-3, ledger=path)
    gaussian.set_params(algorithm=algorithms.RandomizedADMM(noise="gaussian"))
    with pytest.raises(PrivacyBudgetExceeded):
        gaussian.fit(X, Y, agents=AGENTS)


def test_totals_of_pure_fits_are_sums_and_of_others_hold_at_their_delta():
    fits = [pure(epsilon=e).fit(X, Y, agents=AGENTS) for e in (0.5, 1.0)]
    total = privacy_report(fits)
    assert (total.delta, total.epsilon()) == (0.0, pytest.approx(1.5, rel=1e-9))
    gaussian = pure(delta=1e-5)
    gaussian.set_params(algorithm=algorithms.RandomizedADMM(noise="gaussian"))
    mixed = privacy_report([*fits, gaussian.fit(X, Y, agents=AGENTS)])
    assert mixed.delta == 1e-5
    assert 1.0 < mixed.epsilon() < 2.5
    assert mixed.epsilon(0.0) == math.inf


def test_a_search_costs_the_sum_of_its_fits():
    search = GridSearchCV(pure("descent", n_agents=4), {"alpha": [0.1, 1.0]}, cv=2)
    cost = search_cost(search, n_samples=2000, n_features=3)
    assert cost.delta == 0.0
    assert cost.epsilon() == pytest.approx(5.0, rel=1e-9)


def test_an_audit_asks_for_the_claim_at_zero():
    report = audit(pure(max_iter=2), X[:40], Y[:40], agents=AGENTS[:40], n_runs=60, random_state=0)
    assert (report.delta, report.claimed_epsilon) == (0.0, pytest.approx(1.0))
