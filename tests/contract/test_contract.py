"""Properties of every algorithm, whatever it releases."""

import contextlib
import io
import math
import pickle
import struct
import warnings
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import beta, chi2, gamma, laplace, norm
from sklearn.base import clone

from skdpadmm.algorithms import ALGORITHMS
from skdpadmm.exceptions import PrivacyWarning
from skdpadmm.records import Segments
from tests.contract import harness
from tests.contract.harness import SLACK, fit_through, moves, record, replay, same_draws
from tests.contract.registry import BY_ID, ROWS, STATISTICS, Statistic

# Significance level of the tests of noise.
LEVEL = 1e-6
OF_FOUR = settings(max_examples=4, suppress_health_check=list(HealthCheck))
HARD_ROWS = [(1e300, -1e300), (1.7e308, 1.7e308), (1e-200, 5e-324), (1e300, 1e-300), (0.0, 0.0)]


def with_unit(row, X, y, features, target):
    """The data set in which the first unit has other features and another target; None: lacks."""
    if features is None:
        return np.delete(X, row.first_unit, axis=0), np.delete(y, row.first_unit)
    X, y = X.copy(), y.copy()
    X[row.first_unit], y[row.first_unit] = features, target
    # Of a person one row, or some more than count.
    fewer = len(repr((features, target))) % 5 if row.has_persons else 0
    return X[: len(X) - fewer], y[: len(y) - fewer]


def plan_before_data(row):
    """The plan is that of `plan`, and neither it nor the trace depends on data."""
    X, y = row.data()
    extreme = np.where(X > 0, 1.7e308, -1e300), np.resize(row.extremes, len(y))
    shuffled = np.random.default_rng(2).permutation(len(X))
    sets = [(X, y), with_unit(row, X, y, 1e300, row.extremes[0]), extreme]
    fits = [record(row, *data) for data in sets]
    fits.append(record(row, X[shuffled], y[shuffled]))
    planned = planned_for(row, fits[0])
    for fit in fits:
        assert fit.plan == planned
        assert fit.plan.digest() == planned.digest()
        assert fit.trace == fits[0].trace
        assert fit.model.privacy_ == fits[0].model.privacy_


def planned_for(row, fit, **changed):
    """The plan of a row before data, for the noisy number of records where it is private."""
    return row.plan(fit.plan.facts.n_samples if row.hides_n else None, **changed)


@same_draws
def trace_is_the_plan(row):
    """The trace of the gate is the plan: each release as often, and of the planned shape."""
    fit = record(row, *row.data())
    passed = Counter()
    for release in fit.plan.releases:
        shapes = [shape for name, shape in fit.trace if name == release.name]
        if release.door in harness.STEPWISE:
            n_steps = sum(shape[0] for shape in shapes)
            in_turns = release.door == "take_turns"
            n_agents = np.count_nonzero(fit.plan.facts.agents.agent_sizes) if in_turns else 1
            times = row.n_samples if release.times is None else release.times
            assert n_steps == n_agents * times, release.name
            assert {shape[1:] for shape in shapes} == {release.shape[-len(shapes[0][1:]) :]}
        else:
            # Of a stream without end as often as it went on.
            times = len(shapes) if release.times is None else release.times
            assert shapes == [release.shape] * times, release.name
        passed[release.name] += len(shapes)
    assert passed.total() == len(fit.trace)
    known = {release.name: release for release in fit.plan.releases}
    for passage in fit.passages:
        assert passage.name in known or passage.method in ("uniform", "edge_noise")
        assert np.all(np.isfinite(passage.out))


def budget_is_met_and_used_up(row):
    """The guarantee of each kind of agent meets its budget, and the budget is used up."""
    plan = row.plan()
    budget = plan.budget
    kinds = plan.guarantees(budget.observer)
    agents = plan.facts.agents
    budgets = [budget.epsilon] * len(kinds)
    if agents.epsilons:
        budgets = [agents.epsilons[agent] for agent in agents.examples]
    spent = []
    for guarantee, epsilon in zip(kinds, budgets, strict=True):
        assert guarantee.delta(epsilon) <= budget.delta * SLACK
        assert guarantee.epsilon(budget.delta) <= epsilon * SLACK
        spent.append(guarantee.epsilon(budget.delta) / epsilon)
    assert max(spent) >= row.spent


def neighbours(row):
    """Pairs of data sets that differ in the first unit, extreme ones among them."""
    numbers = st.sampled_from([v for pair in HARD_ROWS for v in pair]) | st.floats(-3, 3)
    features = st.sampled_from(HARD_ROWS) | st.tuples(numbers, numbers)
    targets = st.sampled_from([*row.extremes, row.extremes[0]])
    if row.target == "number":
        targets |= st.floats(-1e308, 1e308)
    units = st.tuples(features, targets)
    return st.tuples(st.integers(0, 2**31), units, units)


@same_draws
def replay_within_sensitivity(row):
    """With the same randomness and past, each release changes by at most its sensitivity."""
    low, high = row.extremes

    def check(seed, first, second):
        X, y = row.data(seed)
        second = (None, None) if row.hides_n else second
        recorded = record(row, *with_unit(row, X, y, *first))
        replayed = replay(row, recorded, *with_unit(row, X, y, *second))
        assert recorded.plan == replayed.plan
        is_zero_out = row.params.get("neighboring") == "zero_out"
        # A record of zeros is the null record where there is no intercept.
        is_null = (0.0, 0.0) in (first[0], second[0]) and not row.params.get("fit_intercept", True)
        n_steps = 2 if is_zero_out and not is_null else 1
        seen = [move for move in moves(recorded, replayed) if move.name not in row.unseen]
        for move in seen:
            assert math.isfinite(move.distance)
            assert move.distance <= n_steps * move.declared * SLACK, move
        names = {release.name for release in recorded.plan.releases}
        assert names - {move.name for move in seen} <= harness.hidden_names(recorded.plan)

    hard = [
        (0, ((1.0, 1.0), high), ((1.0, 1.0), low)),
        (1, ((1.0, 1.0), high), ((-1.0, -1.0), high)),
        (2, ((1e300, -1e300), low), ((1.7e308, 1.7e308), high)),
        (3, ((0.0, 0.0), low), ((-1.0, 1.0), high)),
    ]
    for pair in hard:
        check(*pair)

    @OF_FOUR
    @given(neighbours(row))
    def of_examples(pair):
        check(*pair)

    of_examples()


@same_draws
def linear_losses_attain_the_claim(row):
    """For linear losses each release attains its sensitivity, and each observer's claim is tight.

    Claims are composed anew: from measured changes, planned noise, and whose noise hides whom.
    """
    is_zero_out = row.params.get("neighboring") == "zero_out"
    low, high = (-2.0, 2.0) if row.target == "number" else row.extremes
    X = np.ones((row.n_samples, 2))
    y = np.where(np.arange(row.n_samples) % 2 == 0, high, low)
    first = with_unit(row, X, y, 1.0, high)
    second = with_unit(row, X, y, 0.0 if is_zero_out else 1.0, high if is_zero_out else low)
    second = with_unit(row, X, y, None, None) if row.hides_n else second
    changed = {"conditioning": None} if "conditioning" in row.make().get_params() else {}
    changed["algorithm"] = row.linear
    recorded = record(row, *first, **changed)
    replayed = replay(row, recorded, *second, **changed)
    found = list(moves(recorded, replayed))
    # In turns of other records nothing changes.
    found = [move for move in found if move.distance > 0]
    ratios = [move.distance / move.declared for move in found]
    assert max(ratios) <= SLACK
    assert min(ratios) >= row.reaches * (1 - 1e-4)
    if not row.composes:
        return
    plan = recorded.plan
    agents, budget = plan.facts.agents, plan.budget
    releases = {release.name: release for release in plan.releases}
    for observer in plan.facts.observers:
        claim = plan.guarantees(observer)[agents.kind[0] if agents.n_agents else 0]
        scales = [harness.scale_of(plan, releases[move.name], observer) for move in found]
        costs = [move.distance / scale for move, scale in zip(found, scales, strict=True)]
        is_laplace = found[0].law == "laplace"
        if not (is_laplace or hasattr(claim, "mu")):
            # A theorem about a sample or a path, see tests/divergence.
            continue
        cost = sum(costs) if is_laplace else math.hypot(*costs)
        claimed = claim.epsilon(0.0) if is_laplace else claim.mu
        assert row.reaches * (1 - 1e-3) * claimed <= cost <= claimed * SLACK, observer
        if observer == budget.observer and not is_laplace:
            epsilon = agents.epsilons[0] if agents.epsilons else budget.epsilon
            delta = harness.gaussian_delta(cost, epsilon)
            assert delta <= budget.delta * (1 + 1e-6)
            assert delta >= 0.99 * budget.delta or row.reaches < 1


def noise_is_as_planned_and_fresh(row):
    """Each release has the planned noise, and no two of its numbers share any."""
    X, y = row.data()
    laws = {release.name: release.law for release in row.plan().releases}
    fits, run = [], harness.runs_of(row.make(), X, y, fit=row.fit)
    while len(fits) < 2 or min(v.size for v in pooled(fits).values()) < row.n_noise:
        fits.append(harness.unit_noise(run(seed=len(fits))[1]))
        assert fits[0].keys() == laws.keys()
    for name, drawn in pooled(fits).items():
        size, n = np.square(drawn).sum(), drawn.size
        tail = chi2(n)
        if laws[name] == "laplace":
            size, tail = np.abs(drawn).sum() * math.sqrt(2), gamma(n)
        assert LEVEL < tail.cdf(size) < 1 - LEVEL, f"{name}: {size / n:.3g} of what is planned"
    for name in fits[0]:
        tables = [fit[name] for fit in fits]
        shortest = min(len(table) for table in tables)
        noise = np.stack([table[:shortest] for table in tables])
        if laws[name] == "laplace":
            noise = norm.ppf(np.clip(laplace.cdf(noise, scale=math.sqrt(0.5)), 1e-15, 1 - 1e-15))
        assert_fresh(noise, name)
    # Neither do fits with other plans and the same seed, nor two releases of one fit.
    one, other = (
        harness.unit_noise(record(row, X, y, random_state=0, **changed))
        for changed in ({}, row.elsewhere)
    )
    vectors = [fit[name].ravel() for fit in (one, other) for name in fit]
    for i, one in enumerate(vectors):
        for two in vectors[:i]:
            size = min(one.size, two.size)
            assert size < 2 or not np.allclose(one[:size], two[:size], rtol=1e-3)


def pooled(fits):
    return {name: np.concatenate([fit[name].ravel() for fit in fits]) for name in fits[0]}


def assert_fresh(noise, name):
    """Slices of noise along any axis are no more parallel than independent vectors."""
    for axis in range(noise.ndim):
        vectors = np.moveaxis(noise, axis, 0).reshape(noise.shape[axis], -1)
        size = vectors.shape[1]
        # No slice has less noise than is planned.
        least = chi2.cdf(np.square(vectors).sum(axis=1).min(), size) * len(vectors)
        assert least > LEVEL, f"{name}, axis {axis}: {least:.2g}"
        if len(vectors) < 2 or size < 4:
            continue
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = np.abs(unit @ unit.T)[np.triu_indices(len(unit), 1)]
        chance = beta.sf(min(cosines.max() ** 2, 1.0), 0.5, (size - 1) / 2) * len(cosines)
        assert chance > LEVEL, f"{name}, axis {axis}: cosine {cosines.max():.4g}"
        assert cosines.max() < 1 - 1e-6, f"{name}, axis {axis}"


def learned(model):
    """All attributes that a fit sets, whatever their names: a pickle has them."""
    params = model.get_params(deep=False)
    return {name: value for name, value in vars(model).items() if name not in params}


def assert_same_model(one, other, rtol=1e-9):
    assert learned(one).keys() == learned(other).keys()
    for name, value in learned(one).items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            np.testing.assert_allclose(value, getattr(other, name), rtol=rtol, atol=1e-12)
        elif isinstance(value, float):
            assert value == pytest.approx(getattr(other, name), rel=rtol, abs=1e-12), name
        elif name == "privacy_":
            assert value == getattr(other, name)
        else:
            assert repr(value) == repr(getattr(other, name)), name


@same_draws
def model_is_a_function_of_the_released(row):
    """Other data with the same releases give the same model."""
    X, y = row.data(1)
    plan = row.plan()
    # With a small budget preparations are mostly noise. Other guarantees take long to plan.
    is_loud = plan.facts.preparations and hasattr(plan.guarantee(plan.budget.observer), "mu")
    loud = [{"epsilon": 1000.0}] if is_loud else []
    for changed in ({}, *loud):
        recorded = record(row, *row.data(0), **changed)
        # Rows are shorter, too: other directions exceed the noise then. A private number differs.
        X, y = (X[5:], y[5:]) if row.hides_n else (X, y)
        replayed = replay(row, recorded, X / 8, y, **changed)
        assert_same_model(recorded.model, replayed.model)


@same_draws
def the_path_is_released_or_refused(row):
    """A trace changes no bits and is a function of what was released; hidden paths have none."""
    trace = {"algorithm": {"trace": True}}
    if row.hides_path:
        with pytest.raises(ValueError, match=r"trace=True .* expected False: its guarantee does"):
            row.plan(**trace)
        return
    X, y = row.data()
    recorded = record(row, X, y, **trace)
    assert recorded.plan == planned_for(row, recorded)
    traced, plain = recorded.model, row.fit(row.make(), X, y)
    for name, value in learned(plain).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, getattr(traced, name))
    assert traced.coef_path_.shape[1:] == plain.coef_.shape
    assert traced.intercept_path_.shape[1:] == np.shape(plain.intercept_)
    if (of_agents := getattr(traced, "coef_per_agent_path_", None)) is not None:
        assert of_agents.shape[1:] == plain.coef_per_agent_.shape
        np.testing.assert_allclose(of_agents.mean(axis=1), traced.coef_path_)
    assert_same_model(traced, replay(row, recorded, X / 8, y, **trace).model)
    if hasattr(row.algorithm_with({}), "tail_fraction") and not row.has_agents:
        # The model is then made of the last iterate alone, and loses what is noise.
        last = row.fit(row.make(algorithm={"trace": True, "tail_fraction": 1e-9}), X, y)
        if (last.coef_ != 0).all():
            np.testing.assert_array_equal(last.coef_path_[-1], last.coef_)


def nothing_private_is_kept(row):
    """No value of a record is in the pickle of a model, and no generator."""
    X, y = row.data()
    canaries = [0.1234567890123, -0.9876543210987]
    X[0] = canaries
    if row.target == "number":
        canaries.append(0.7654321098765)
        y[0] = canaries[-1]
    # A stream is private.
    for params in ({}, {"epsilon": math.inf})[: 1 if row.pieces else 2]:
        model = row.fit(row.make(random_state=None, **params), X, y)
        content = pickle.dumps(model)
        for value in canaries:
            for layout in ("<d", ">d", "<f", ">f"):
                assert struct.pack(layout, value) not in content
        for word in (b"Philox", b"PCG64", b"MT19937", b"Generator", b"Engine", b"Gate", b"memmap"):
            assert word not in content
        for name, value in vars(model).items():
            if isinstance(value, np.ndarray) and name not in model.get_params():
                assert row.n_samples not in value.shape, name


def name_of(row):
    """Of the row's algorithm, or of the default one where it has none: both mean the optimum."""
    names = {kind: name for name, kind in ALGORITHMS.items()}
    default = type(row.make())().algorithm
    # By its name alone an algorithm has no threshold, and refuses absences and graphs.
    return default if "threshold" in row.knobs else names.get(type(row.algorithm_with({})), default)


@same_draws
def no_noise_reaches_the_optimum(row):
    """Without noise and with clips that do not bind a fit reaches the optimum, in any basis."""
    knobs, error = row.optimum
    X, y = row.data()
    y = np.clip(y, -1, 1) if row.target == "number" else y
    strength = {"C": 1.0} if "C" in row.make().get_params() else {"alpha": 0.1}
    cases = [({}, None, error)]
    if row.algorithm_with({}).conditionable and "conditioning" in row.make().get_params():
        cases.append(({"clip_norm": 1000.0, "step_size": 0.3}, "private", max(error, 1e-5)))
    for more, conditioning, least in cases:
        params = {"algorithm": {**knobs, **more}, "max_iter": 400, "conditioning": conditioning}
        model = fit_through(harness.SilentGate, row, row.make(**params, **strength), X, y)
        params["algorithm"] = name_of(row)
        exact = row.fit(row.make(**params, **strength, epsilon=math.inf), X, y)
        assert np.abs(exact.coef_).max() > 10 * least
        np.testing.assert_allclose(model.coef_, exact.coef_, rtol=0, atol=least)


@same_draws
def an_object_without_privacy_runs_itself(row):
    """At epsilon = inf an object reaches the optimum by its own steps, and a name has it."""
    kind, (X, y) = row.algorithm_with({}), row.data()
    y = np.clip(y, -1, 1) if row.target == "number" else y
    n_iter, error = row.free or (4, 1e100)
    known = row.make().get_params()
    params = {"epsilon": math.inf, "max_iter": n_iter}
    params |= {name: None for name in ("conditioning", "scale") if name in known}
    params |= {name: 1.0 for name in ("C",) if name in known and name not in row.params}
    params |= {name: 0.1 for name in ("alpha",) if name in known and name not in row.params}
    if row.pieces:
        # There is no stream without privacy.
        row = replace(row, pieces=())
    free = row.fit(row.make(**{**params, "algorithm": {"trace": True}}), X, y)
    exact = row.fit(row.make(**{**params, "algorithm": name_of(row)}), X, y)
    assert {model.privacy_.epsilon() for model in (free, exact)} == {math.inf}
    if not kind.noiseless:
        # "local-models" has an optimum of its own.
        assert kind.exact or np.array_equal(free.coef_, exact.coef_)
        return
    assert len(free.coef_path_) <= n_iter
    largest = np.abs(exact.coef_).max()
    for found in (free.coef_, free.coef_path_[-1]):
        np.testing.assert_allclose(found, exact.coef_, rtol=0, atol=error * largest)


def same_bits(row):
    """Seeded fits repeat bit for bit, with any number of jobs; others are fresh."""
    X, y = row.data()
    jobs = [{}, {"n_jobs": 2}] if "n_jobs" in row.make().get_params() else [{}, {}]
    models = [row.fit(row.make(**params), X, y) for params in jobs]
    for name, value in learned(models[0]).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, getattr(models[1], name))
    assert models[0].privacy_.simulation
    fresh = [record(row, X, y, random_state=None) for _ in range(2)]
    assert not fresh[0].model.privacy_.simulation
    one, other = (harness.unit_noise(fit) for fit in fresh)
    for name in one:
        assert not np.array_equal(one[name], other[name]), name


def refusals_leave_nothing(row):
    """A fit that fails leaves an estimator unchanged, and no output depends on data."""
    X, y = row.data()
    model = row.make()
    before = repr(vars(model))
    with pytest.raises(RuntimeError, match="RuntimeError in deliver"):
        fit_through(harness.FailingGate, row, model, X, y)
    assert repr(vars(model)) == before
    row.fit(model, X, y)
    before = pickle.dumps(model)
    with pytest.raises(RuntimeError, match="RuntimeError in deliver"):
        fit_through(harness.FailingGate, row, model, -X, y)
    assert pickle.dumps(model) == before
    wrong = X.copy()
    wrong[3, 1] = math.nan
    with pytest.raises(ValueError, match="NaN"):
        row.fit(model, wrong, y)
    assert pickle.dumps(model) == before
    X[:3] = [[1e300, -1e300], [1.7e308, 5e-324], [0.0, 1e-200]]
    out = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
        np.errstate(over="raise", divide="raise", invalid="raise"),
    ):
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PrivacyWarning)
        row.fit(model, X, y)
    assert np.isfinite(model.coef_).all()
    assert out.getvalue() == ""


def parameters_round_trip(row):
    """Clones, pickles and set parameters give the same fit; the algorithm is not modified."""
    X, y = row.data()
    model = row.make()
    algorithm = repr(model.algorithm)
    row.fit(model, X, y)
    assert repr(model.algorithm) == algorithm
    loaded = pickle.loads(pickle.dumps(model))
    assert_same_model(model, loaded, rtol=0)
    np.testing.assert_array_equal(row.predict(model, X), row.predict(loaded, X))
    copies = [clone(model), type(model)().set_params(**model.get_params(deep=False))]
    for copy in copies:
        assert not learned(copy)
        assert repr(copy.get_params()) == repr(model.get_params())
        assert_same_model(row.fit(copy, X, y), model, rtol=0)


PROPERTIES = [
    plan_before_data,
    trace_is_the_plan,
    budget_is_met_and_used_up,
    replay_within_sensitivity,
    linear_losses_attain_the_claim,
    noise_is_as_planned_and_fresh,
    model_is_a_function_of_the_released,
    the_path_is_released_or_refused,
    nothing_private_is_kept,
    no_noise_reaches_the_optimum,
    an_object_without_privacy_runs_itself,
    same_bits,
    refusals_leave_nothing,
    parameters_round_trip,
]


# Properties of estimators alone.
OF_ESTIMATORS = {
    the_path_is_released_or_refused,
    an_object_without_privacy_runs_itself,
    refusals_leave_nothing,
    parameters_round_trip,
}


def applies(promise, row):
    """Whether a property is about a row."""
    if isinstance(row, Statistic) and promise in OF_ESTIMATORS:
        return False
    needs = {linear_losses_attain_the_claim: row.linear, no_noise_reaches_the_optimum: row.optimum}
    return needs.get(promise, promise) is not None


# Properties that most rows show in the slow suite alone.
OF_FEW = {
    the_path_is_released_or_refused,
    an_object_without_privacy_runs_itself,
    no_noise_reaches_the_optimum,
}


def is_for_slow_suite(promise, row):
    """Whether it costs too much for the quick one: a refusal costs nothing."""
    is_refusal = promise is the_path_is_released_or_refused and row.hides_path
    return promise in OF_FEW and not row.is_quick and not is_refusal


def cases(rows, properties):
    """Each row with each property that is about it."""
    return [
        pytest.param(
            row,
            promise,
            id=f"{row.id}-{promise.__name__}",
            marks=[pytest.mark.slow] * (row.is_slow or is_for_slow_suite(promise, row)),
        )
        for row in rows
        for promise in properties
        if applies(promise, row)
    ]


@pytest.mark.parametrize(("row", "promise"), cases([*ROWS, *STATISTICS], PROPERTIES))
def test_contract(row, promise):
    promise(row)


COMPILED = (
    "consensus-linearized-undeclared consensus-conditioned-zero-out gradient-path"
    " multi-step-batches aggregators-gradient"
)


@pytest.mark.parametrize("row_id", COMPILED.split())
@pytest.mark.parametrize("promise", [replay_within_sensitivity, same_bits, refusals_leave_nothing])
def test_the_contract_of_compiled_sums(row_id, promise, monkeypatch):
    pytest.importorskip("numba")
    calls, sums = [], Segments.compiled_sums
    monkeypatch.setattr(Segments, "compiled_sums", lambda *a: calls.append(1) or sums(*a))
    monkeypatch.setattr("skdpadmm.records._segments.COMPILED_ENTRIES", 0)
    promise(BY_ID[row_id])
    assert calls


@pytest.mark.parametrize("row_id", ["records-weighted", "gradient-add-remove-centred"])
def test_weights_and_rows_of_a_private_number_are_not_compiled(row_id, monkeypatch):
    row = BY_ID[row_id]
    fits = [row.fit(row.make(), *row.data()).coef_]
    monkeypatch.setattr("skdpadmm.records._segments.COMPILED_ENTRIES", 0)
    monkeypatch.setattr(Segments, "compiled_sums", None)
    fits.append(row.fit(row.make(), *row.data()).coef_)
    np.testing.assert_array_equal(*fits)
