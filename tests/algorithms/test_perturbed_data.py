"""Records that are published with noise: their law, what it costs, and what is made of them."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import chisquare, kstest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdpadmm import DPPersonalizedClassifier, DPPersonalizedRegressor
from skdpadmm.algorithms import (
    LocalModels,
    PersonalizedOptimum,
    PerturbedData,
    names_of_algorithms,
)
from skdpadmm.algorithms._perturbed_data import LABELS, ROWS, limited_features
from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, MultinomialLoss, SmoothedHinge, SquaredLoss
from skdpadmm.network import Ownership, Similarity
from skdpadmm.noise import CryptographicNoise, noise_source
from skdpadmm.penalties import L1, SquaredL2
from skdpadmm.privacy import (
    GaussianDP,
    LaplaceDP,
    Neighboring,
    RandomizedResponseDP,
    compose,
    gaussian_mu,
)
from skdpadmm.protocol import Budget, Facts, Gate, Neighborhood, PlanViolation, Problem
from skdpadmm.records import Rows, declared_coordinates, rounding_factor

N_FEATURES, DELTA = 3, 1e-5
LOSSES = {
    "squared": SquaredLoss(),
    "logistic": LogisticLoss(),
    "hinge": SmoothedHinge(0.5),
    "multinomial": MultinomialLoss(3),
}


def example(
    loss, *, sizes=(40, 25, 0, 35), neighboring=Neighboring.REPLACE_ONE, bounds=(-1, 1), **changed
):
    """Facts, rows, targets and owners of a small task."""
    rng = np.random.default_rng(0)
    n_agents, n_samples = len(sizes), sum(sizes)
    index = rng.permutation(np.repeat(np.arange(n_agents), sizes))
    X = rng.uniform(-1, 1, (n_samples, N_FEATURES))
    scores = np.einsum("ij,ij->i", X, rng.normal(size=(n_agents, N_FEATURES))[index])
    is_regression = isinstance(loss, SquaredLoss)
    target = np.clip(scores, -1, 1) if is_regression else np.where(scores > 0, 1.0, -1.0)
    if isinstance(loss, MultinomialLoss):
        target = np.digitize(scores, [-0.3, 0.3])
    coordinates = declared_coordinates(
        n_features=N_FEATURES,
        fit_intercept=True,
        feature_bounds=bounds,
        target_bounds=(-1, 1),
        has_target_scale=is_regression,
    )
    weights = np.ones((n_agents, n_agents)) - np.eye(n_agents)
    agents = {
        "agent_sizes": tuple(sizes),
        "sizes_matter": False,
        "similarity": Similarity(n_agents=n_agents, matrix=weights)
        if n_agents > 1
        else Similarity(n_agents=1),
        "confidence": tuple(max(size, 0.5) / max(sizes) for size in sizes),
        "trade_off": 2.0,
    }
    facts = Facts(
        n_samples=n_samples,
        n_parameters=coordinates.n_parameters,
        loss=loss,
        penalty=SquaredL2(0.1),
        neighboring=neighboring,
        row_norm=coordinates.row_norm,
        rounding=rounding_factor(n_samples=n_samples, coordinates=coordinates),
        max_iter=100,
        is_declared=bounds is not None,
        agents=Neighborhood(**(agents | changed)),
        coordinates=coordinates,
    )
    return facts, X, target, Ownership(labels=np.arange(n_agents), index=index)


class Watched(Gate):
    """Keeps what came in and what went out."""

    def __init__(self, plan, noise):
        super().__init__(plan, noise)
        self.said, self.heard = {}, {}

    def perturb_rows(self, name, value, owner):
        self.said[name] = value.copy()
        self.heard[name] = super().perturb_rows(name, value, owner)
        return self.heard[name]

    def randomize_labels(self, name, labels, owner):
        self.said[name] = labels.copy()
        self.heard[name] = super().randomize_labels(name, labels, owner)
        return self.heard[name]


def run(algorithm, task, *, epsilon=2.0, source=None, gate=Watched):
    facts, X, target, ownership = task
    plan = algorithm.plan(facts, Budget(epsilon=epsilon, delta=DELTA, observer="eavesdropper"))
    gate = gate(plan, noise_source(0, plan.digest()) if source is None else source)
    with np.errstate(all="ignore"), Engine(None).running() as engine:
        rows = Rows(X, facts.coordinates)
        problem = Problem(rows=rows, target=target, engine=engine, ownership=ownership)
        solution = algorithm.run(plan, problem, gate)
    gate.close()
    return plan, solution, gate


# The law of what is released


SIZES, BUDGETS = (4_000, 9_000, 3_000), (0.5, 2.0, 8.0)


def p_values(plan, gate, owner, budgets, factor=2):
    """How likely what was released is, under the law that its budget asks for."""
    release = next(r for r in plan.releases if r.name == ROWS)
    noise, found = gate.heard[ROWS] - gate.said[ROWS], []
    of_labels = LABELS in gate.heard
    n_numbers = N_FEATURES if of_labels else 2 * N_FEATURES
    for agent, epsilon in enumerate(budgets):
        own = noise[owner == agent].ravel()
        spent = epsilon / 2 if of_labels else epsilon
        if release.law == "laplace":
            found.append(kstest(own, "laplace", args=(0, factor * n_numbers / spent)).pvalue)
        else:
            scale = factor * math.sqrt(n_numbers) / gaussian_mu(spent, DELTA)
            found.append(kstest(own, "norm", args=(0, scale)).pvalue)
        if of_labels:
            k = max(plan.facts.loss.n_outputs, 2)
            moved = (gate.heard[LABELS] - gate.said[LABELS])[owner == agent] % k
            other = 1 / (math.exp(epsilon / 2) + k - 1)
            expected = np.array([1 - (k - 1) * other] + [other] * (k - 1)) * len(moved)
            found.append(chisquare(np.bincount(moved, minlength=k), expected).pvalue)
    return found


class HalfTheNoise(CryptographicNoise):
    def add_laplace(self, value, scale, stream):
        return super().add_laplace(value, scale / 2, stream)

    def add_gaussian(self, value, scale, stream):
        return super().add_gaussian(value, scale / 2, stream)


class NoResponse(CryptographicNoise):
    def uniform(self, shape, stream):
        return np.full(shape, 1 - 2.0**-53)


class HalfTheResponse(CryptographicNoise):
    def uniform(self, shape, stream):
        return super().uniform(shape, stream) / 2 + 0.5


@pytest.mark.parametrize("neighboring", Neighboring)
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("name", LOSSES)
def test_released_records_have_the_law_that_each_budget_asks_for(name, noise, neighboring):
    task = example(LOSSES[name], sizes=SIZES, epsilons=BUDGETS, neighboring=neighboring)
    algorithm = PerturbedData(noise=noise)
    plan, _, gate = run(algorithm, task, epsilon=max(BUDGETS))
    factor = neighboring.sensitivity_factor
    assert min(p_values(plan, gate, task[3].index, BUDGETS, factor)) > 1e-4
    halved = run(algorithm, task, epsilon=max(BUDGETS), source=HalfTheNoise())
    assert min(p_values(halved[0], halved[2], task[3].index, BUDGETS, factor)) < 1e-20


@pytest.mark.parametrize("source", [NoResponse, HalfTheResponse])
@pytest.mark.parametrize("name", ["logistic", "multinomial"])
def test_labels_without_a_response_are_found_out(name, source):
    task = example(LOSSES[name], sizes=SIZES, epsilons=BUDGETS)
    plan, _, gate = run(PerturbedData(), task, epsilon=max(BUDGETS), source=source())
    assert min(p_values(plan, gate, task[3].index, BUDGETS)) < 1e-20


def test_noise_is_that_of_its_own_record_feature_and_label():
    task = example(LogisticLoss(), sizes=(20_000,))
    _, _, gate = run(PerturbedData(), task)
    noise = gate.heard[ROWS] - gate.said[ROWS]
    told = gate.heard[LABELS] != gate.said[LABELS]
    both = np.column_stack([noise, np.abs(noise), told, np.roll(noise, 1, axis=0)])
    assert np.abs(np.corrcoef(both.T)[~np.eye(both.shape[1], dtype=bool)]).max() < 0.035


def test_released_numbers_lie_on_a_public_grid():
    plan, _, gate = run(PerturbedData(), example(SquaredLoss()))
    unit = plan.releases[0].noise_std / math.sqrt(2)
    cells = gate.heard[ROWS] / unit * 2.0**20
    assert np.abs(cells - np.rint(cells)).max() < 1e-5


def test_no_label_is_told_less_often_than_its_budget_asks_for():
    """Uniform numbers have 53 bits: the chance of another label is rounded up to one of them."""
    task = example(MultinomialLoss(3), epsilons=(66.0, 2.0, 2.0, 1.0))
    facts, _, _, ownership = task
    plan = PerturbedData().plan(facts, Budget(epsilon=66.0, delta=DELTA, observer="eavesdropper"))
    labels = next(r for r in plan.releases if r.name == LABELS)
    cells = [math.ceil(other * 2**53) for other in np.asarray(labels.others)[facts.agents.kind]]
    for steps in (0, 1, 2):  # the last number that gives each other label, and the one after it
        edge = np.array([max(cell * steps - 1, 0) for cell in cells], dtype=float) * 2.0**-53
        for number, expected in ((edge, max(steps, 1)), (edge + 2.0**-53, (steps + 1) % 3)):
            if steps == 0:
                continue

            class Planted(CryptographicNoise):
                def uniform(self, shape, stream, number=number):
                    return number[ownership.index]

            told = Gate(plan, Planted()).randomize_labels(
                LABELS, np.ones(facts.n_samples, dtype=np.intp), ownership.index
            )
            np.testing.assert_array_equal(told, (1 + expected) % 3)


# Guarantees


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_the_budget_is_split_and_met(name, noise, share):
    facts = example(LOSSES[name])[0]
    budget = Budget(epsilon=2.0, delta=DELTA, observer="eavesdropper")
    plan = PerturbedData(noise=noise, target_share=share).plan(facts, budget)
    guarantee = plan.guarantee()
    assert guarantee == plan.guarantee("model")
    if name == "squared":
        pure = LaplaceDP((2.0,)) if noise == "laplace" else GaussianDP(gaussian_mu(2.0, DELTA))
        weight = plan.settings.target_weight
        # What a target moves by, beside what features can move by.
        moved = weight / (N_FEATURES + weight)
        if noise == "gaussian":
            moved = weight**2 / (N_FEATURES + weight**2)
        assert moved == pytest.approx(share)
    else:
        response = RandomizedResponseDP(2.0 * share, max(facts.loss.n_outputs, 2))
        left = 2.0 * (1 - share)
        one = LaplaceDP((left,)) if noise == "laplace" else GaussianDP(gaussian_mu(left, DELTA))
        pure = compose(one, response)
        assert response in plan.releases[1].guarantees("model")
    for level in (0.0, 0.5, 1.5):
        assert guarantee.delta(level) == pytest.approx(pure.delta(level), rel=1e-6)
    if noise == "laplace":
        assert 2.0 - 1e-9 < guarantee.epsilon(0.0) <= 2.0
    else:
        assert guarantee.epsilon(DELTA) <= 2.0


def log_density(plan, facts, record, numbers, label):
    """Of what a record of the first kind is released as."""
    rows = plan.releases[0]
    scale = rows.shares[0] / math.sqrt(2)
    found = -np.abs(numbers - record[0]).sum() / scale
    if len(plan.releases) == 1:
        return found
    other = plan.releases[1].others[0]
    n_labels = plan.releases[1].n_labels
    return found + math.log(1 - (n_labels - 1) * other if label == record[1] else other)


@pytest.mark.parametrize("name", ["squared", "logistic", "multinomial"])
def test_no_release_tells_two_records_apart_by_more_than_epsilon_and_one_does_by_that(name):
    facts = example(LOSSES[name])[0]
    budget = Budget(epsilon=2.0, delta=DELTA, observer="eavesdropper")
    plan = PerturbedData(target_share=0.3).plan(facts, budget)
    weight = plan.settings.target_weight
    tail = [weight] if weight else []
    ends = [
        (np.concatenate([sign * np.ones(N_FEATURES), [sign * w for w in tail]]), sign > 0)
        for sign in (-1, 1)
    ]
    rng = np.random.default_rng(0)
    ratios = []
    for numbers in [ends[1][0], *rng.normal(scale=20, size=(200, N_FEATURES + len(tail)))]:
        for label in (True, False):
            one, other = (log_density(plan, facts, end, numbers, label) for end in ends[::-1])
            ratios.append(one - other)
    assert max(np.abs(ratios)) <= 2.0
    assert ratios[0] == pytest.approx(2.0, rel=1e-9)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("bounds", [(-1, 1), (-3, 7), None])
def test_features_stay_in_the_norm_that_noise_covers(noise, bounds):
    facts, X, _, _ = example(LogisticLoss(), bounds=bounds)
    X = np.concatenate([X, 10.0 ** np.arange(-3, 300, 30)[:, None] * X[:11]])
    with np.errstate(all="ignore"):
        features = limited_features(Rows(X, facts.coordinates), noise)
    order, bound = (1, N_FEATURES) if noise == "laplace" else (2, math.sqrt(N_FEATURES))
    norms = np.linalg.norm(features, ord=order, axis=1)
    assert np.isfinite(features).all()
    assert norms.max() <= bound * (1 + 1e-12)
    # Rows inside of declared bounds, such as the first ones, are left as they are.
    if bounds == (-1, 1):
        np.testing.assert_array_equal(features[:100], X[:100])


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("neighboring", Neighboring)
@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_a_record_moves_no_more_than_is_planned(name, neighboring, noise):
    task = example(LOSSES[name], neighboring=neighboring, bounds=None)
    facts, X, target, ownership = task
    order = 1 if noise == "laplace" else 2
    moved = []
    for row in (np.full(N_FEATURES, 1e200), np.array([0.0, -1e9, 1e9]), np.full(N_FEATURES, -1.0)):
        said = []
        for sign in (1.0, -1.0):
            ours, theirs = X.copy(), target.copy()
            ours[7], theirs[7] = sign * row, sign
            if neighboring is Neighboring.ZERO_OUT and sign < 0:
                ours[7], theirs[7] = 0.0, 0.0 if name == "squared" else 1.0
            plan, _, gate = run(
                PerturbedData(noise=noise), (facts, ours, theirs, ownership), epsilon=1.0
            )
            said.append(gate.said[ROWS])
        difference = said[1] - said[0]
        assert not np.delete(difference, 7, axis=0).any()
        moved.append(np.linalg.norm(difference[7], ord=order))
    assert max(moved) <= plan.releases[0].sensitivities[0]
    assert max(moved) >= 0.6 * plan.releases[0].sensitivities[0]


def test_what_is_fitted_depends_on_records_through_the_gate_alone():
    class Replayed(Gate):
        def perturb_rows(self, name, value, owner):
            super().perturb_rows(name, value, owner)
            return np.random.default_rng(1).normal(size=value.shape)

        def randomize_labels(self, name, labels, owner):
            super().randomize_labels(name, labels, owner)
            return np.random.default_rng(2).integers(2, size=labels.shape)

    facts, X, target, ownership = example(LogisticLoss())
    others = (facts, -0.5 * X, -target, ownership)
    found = [
        run(PerturbedData(), task, gate=Replayed)[1].parameters_per_agent
        for task in ((facts, X, target, ownership), others)
    ]
    np.testing.assert_array_equal(*found)


def test_an_agent_has_the_budget_that_it_asks_for():
    budgets = (1.0, 4.0, 2.0, 4.0)
    facts = example(LogisticLoss(), epsilons=budgets)[0]
    plan = PerturbedData().plan(facts, Budget(epsilon=4.0, delta=DELTA, observer="eavesdropper"))
    found = plan.guarantees("eavesdropper")
    for agent, epsilon in enumerate(budgets):
        own = found[facts.agents.kind[agent]]
        assert own.epsilon(0.0) == pytest.approx(epsilon, rel=1e-9)
        assert own.epsilon(0.0) <= epsilon


def test_a_plan_that_costs_an_agent_more_than_its_own_budget_cannot_be_made():
    facts = example(LogisticLoss(), epsilons=(1.0, 4.0, 2.0, 4.0))[0]
    stricter = example(LogisticLoss(), epsilons=(0.9, 4.0, 2.0, 4.0))[0]
    budget = Budget(epsilon=4.0, delta=DELTA, observer="eavesdropper")
    for algorithm in (PerturbedData(), PerturbedData(noise="gaussian"), LocalModels()):
        plan = algorithm.plan(facts, budget)
        with pytest.raises(ValueError, match="must add more noise"):
            dataclasses.replace(plan, facts=stricter)


# What is made of records


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("models", ["joint", "local"])
def test_without_privacy_it_is_the_optimum_or_local_models(name, models):
    task = example(LOSSES[name])
    other = PersonalizedOptimum() if models == "joint" else LocalModels()
    ours, theirs = (
        run(algorithm, task, epsilon=math.inf)[1].parameters_per_agent
        for algorithm in (PerturbedData(models=models), other)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-10)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("models", ["joint", "local"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_with_hardly_any_noise_it_is_that_too(name, models, noise):
    task = example(LOSSES[name])
    algorithm = PerturbedData(models=models, noise=noise)
    exact = run(algorithm, task, epsilon=math.inf)[1].parameters_per_agent
    found = run(algorithm, task, epsilon=1e9)[1].parameters_per_agent
    np.testing.assert_allclose(found, exact, atol=2e-3)


def test_slopes_are_not_made_small_by_noise_in_features():
    """Regression calibration: in the limit of many records slopes are those of clean ones."""
    n = 99_000
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 1))
    model = DPPersonalizedRegressor(
        algorithm=PerturbedData(models="local"),
        epsilon=4.0,
        alpha=0.0,
        feature_bounds=(-1, 1),
        target_bounds=(-1, 1),
        random_state=0,
    ).fit(X, 0.7 * X[:, 0])
    assert model.coef_[0] == pytest.approx(0.7, abs=0.05)


def test_messages_are_the_records():
    _, solution, _ = run(PerturbedData(), example(LogisticLoss()))
    assert solution.n_messages == 3  # of four agents one has no rows
    assert solution.bytes_sent == 8 * 100 * (N_FEATURES + 1)


def test_agents_without_rows_are_the_mean_of_their_neighbours():
    _, solution, _ = run(PerturbedData(), example(SquaredLoss()))
    models = solution.parameters_per_agent
    np.testing.assert_allclose(models[2], models[[0, 1, 3]].mean(axis=0), atol=1e-8)


# Plans, reports and refusals


def test_plans_depend_on_public_facts_alone_and_have_a_digest():
    facts = example(LogisticLoss())[0]
    budget = Budget(epsilon=1.0, delta=DELTA, observer="eavesdropper")
    one, same = PerturbedData().plan(facts, budget), PerturbedData().plan(facts, budget)
    assert one == same
    assert one.digest() == same.digest()
    assert one.digest() != PerturbedData(target_share=0.4).plan(facts, budget).digest()
    assert "told as another one with probability 0.37" in repr(one)


def test_the_report_says_who_sees_records():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    model = DPPersonalizedClassifier(
        algorithm="perturbed-data",
        classes=[0, 1],
        feature_bounds=(-1, 1),
        neighboring="zero_out",
        random_state=0,
    ).fit(X, (X[:, 0] > 0).astype(int), agents=np.arange(300) % 3)
    words = repr(model.privacy_)
    for part in (
        "every record with its noise, and the final models of all agents",
        "randomised response(epsilon=0.5, 2 labels)",
        "for everybody to see",
        "sends noise alone",
    ):
        assert part in words
    arrays = [value for value in vars(model).values() if isinstance(value, np.ndarray)]
    assert max(array.size for array in arrays) < 300


# At the default epsilon a record of a few features is noise, and three blobs are not told apart.
@parametrize_with_checks(
    [
        DPPersonalizedClassifier(algorithm="perturbed-data", epsilon=50.0),
        DPPersonalizedRegressor(algorithm="perturbed-data"),
    ]
)
def test_estimator_check_of_scikit_learn(estimator, check):
    check(estimator)


def test_it_has_a_name():
    assert "perturbed-data" in names_of_algorithms("personalized")


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"models": "both"}, "models='both'"),
        ({"noise": "cauchy"}, "noise='cauchy'"),
        ({"target_share": 0.0}, "target_share=0"),
        ({"target_share": 1}, "target_share=1"),
    ],
)
def test_knobs_out_of_range_are_refused(knobs, message):
    with pytest.raises(ValueError, match=message):
        PerturbedData(**knobs).check(example(SquaredLoss())[0])


def test_units_and_penalties_that_it_does_not_serve_are_refused():
    facts = example(SquaredLoss())[0]
    with pytest.raises(ValueError, match="expected 'record'"):
        PerturbedData().check(dataclasses.replace(facts, unit="agent"))
    with pytest.raises(ValueError, match="SquaredL2"):
        PerturbedData().check(dataclasses.replace(facts, penalty=L1(0.1)))


def planned_gate():
    facts, _, _, ownership = example(LogisticLoss())
    budget = Budget(epsilon=1.0, delta=DELTA, observer="eavesdropper")
    plan = PerturbedData().plan(facts, budget)
    return Gate(plan, noise_source(0, plan.digest())), ownership.index


def test_the_gate_refuses_records_that_are_not_those_of_the_plan():
    gate, owner = planned_gate()
    rows, labels = np.zeros((100, N_FEATURES)), np.zeros(100, dtype=np.intp)
    with pytest.raises(PlanViolation, match="expected `perturb_rows`"):
        gate.release(ROWS, rows)
    with pytest.raises(PlanViolation, match="expected `randomize_labels`"):
        gate.perturb_rows(LABELS, rows, owner)
    with pytest.raises(PlanViolation, match="expected `perturb_rows`"):
        gate.randomize_labels(ROWS, labels, owner)
    with pytest.raises(PlanViolation, match="shape"):
        gate.perturb_rows(ROWS, rows[1:], owner)
    with pytest.raises(PlanViolation, match="other numbers of records"):
        gate.perturb_rows(ROWS, rows, np.zeros_like(owner))
    with pytest.raises(PlanViolation, match="not finite"):
        gate.perturb_rows(ROWS, rows * np.nan, owner)
    with pytest.raises(PlanViolation, match="labels"):
        gate.randomize_labels(LABELS, labels + 2, owner)
    gate.perturb_rows(ROWS, rows, owner)
    with pytest.raises(PlanViolation, match="time 2"):
        gate.perturb_rows(ROWS, rows, owner)
    with pytest.raises(PlanViolation, match="expected 1"):
        gate.close()
