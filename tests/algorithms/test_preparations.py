"""What prepares a fit and what is left of noise after it: scales, conditioning, variance."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skdpadmm import (
    DPAdmmGammaRegressor,
    DPAdmmLogisticRegression,
    DPAdmmPoissonRegressor,
    DPAdmmQuantileRegressor,
    DPAdmmRidge,
)
from skdpadmm._fitting import gates_by
from skdpadmm.algorithms import (
    AveragedADMM,
    ConsensusADMM,
    GradientADMM,
    GradientDescent,
    ObjectivePerturbation,
    condition,
)
from skdpadmm.algorithms._certified_solves import settled_bounds
from skdpadmm.algorithms._noise_left import Tail, parameter_variance, score_variance
from skdpadmm.algorithms._preparations import (
    EXPONENTS,
    ROW_NORMS,
    TARGET_MOMENTS,
    basis_of,
    centre_and_unit,
    median_norm,
    plan_conditioning,
    recentre,
)
from skdpadmm.audit._replay import Gates
from skdpadmm.engine import Engine
from skdpadmm.losses import LogisticLoss, SquaredLoss
from skdpadmm.penalties import L1, ElasticNet, NoPenalty, SquaredL2
from skdpadmm.protocol import Budget, Gate, Problem
from skdpadmm.records import Basis, Rows, rounding_factor
from tests.algorithms import runs as direct
from tests.algorithms.runs import close, coordinates_of, data_for, facts_for

VAST = Budget(epsilon=1e14, delta=0.5)  # noise that tests of optima leave out has to be planned


def setting(X, *, loss=LogisticLoss(), penalty=NoPenalty(), mu=0.1, row_norm=0.8, **more):  # noqa: B008
    """Public coordinates, and facts with a planned conditioning."""
    c = coordinates_of(X.shape[1], more.pop("fit_intercept", True))
    more["rounding"] = rounding_factor(n_samples=len(X), coordinates=c)
    facts = facts_for(c, len(X), loss, penalty, **more)
    choices = {"floor": 0.5, "floor_power": 0.0, "clip_power": 0.0, "resolution": 0.0}
    conditioning = plan_conditioning(facts, direct.BUDGET, mu=mu, row_norm=row_norm, **choices)
    return c, replace(facts, conditioning=conditioning), conditioning


def released_moment(X, neighboring="replace_one", null=None):
    """The exact value that passes the gate, and what was planned for it."""
    c, facts, conditioning = setting(np.zeros(X.shape), neighboring=neighboring)
    rows, source = Rows(X, c), direct.KnownNoise()
    if null is not None:
        rows.weight[null] = rows.squared_norm[null] = 0.0
    gate = Gate(ConsensusADMM().plan(facts, direct.BUDGET), source)
    problem = Problem(rows=rows, target=np.zeros(len(X)), engine=Engine())
    condition(problem, facts, gate)
    return source.values[0], conditioning.release.sensitivities[0]


def test_the_sensitivity_of_the_second_moment_is_attained_by_orthogonal_rows():
    # A huge feature leaves nothing of the intercept, so rows are orthogonal.
    X, other = np.zeros((2, 5, 2))
    X[0], other[0] = [1e9, 1e9], [1e9, -1e9]
    (first, declared), (second, _) = released_moment(X), released_moment(other)
    assert np.linalg.norm(first - second) == pytest.approx(declared, rel=1e-6)
    assert declared == pytest.approx(math.sqrt(2) / 5, rel=1e-6)
    (first, declared), (second, _) = (released_moment(X, "zero_out", i) for i in (None, 0))
    assert np.linalg.norm(first - second) == pytest.approx(declared, rel=1e-6)
    assert declared == pytest.approx(1 / 5, rel=1e-6)


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.floats(-8, 8), st.floats(-6, 4))
def test_whatever_is_released_gives_a_basis_within_the_planned_condition(seed, d, log_size, log_mu):
    rng = np.random.default_rng(seed)
    _, facts, _ = setting(rng.standard_normal((50, d)), fit_intercept=False)
    conditioning = plan_conditioning(
        replace(facts, conditioning=None), direct.BUDGET, mu=10.0**log_mu, row_norm=0.4 * d**0.5,
        floor=rng.uniform(0.1, 2), floor_power=rng.uniform(0, 1), clip_power=rng.uniform(-1, 0),
        resolution=rng.uniform(0, 4),
    )  # fmt: skip
    matrix = 10.0**log_size * rng.standard_normal((d, d))
    basis = basis_of(matrix + matrix.T, conditioning)
    assert np.linalg.cond(basis.transform) <= conditioning.condition * (1 + 1e-6)
    assert 1 <= conditioning.condition <= 3e4
    close(basis.transform @ basis.inverse, np.eye(d), 1e-9)
    close(basis.transform.T @ basis.metric @ basis.transform, np.eye(d), 1e-6)


@pytest.mark.parametrize(
    ("loss", "penalty", "record_step"),
    [
        ("squared", L1(0.02), "linearized"), ("squared", ElasticNet(0.01, 0.05), "exact"),
        ("three", SquaredL2(0.01), "linearized"),
    ],
)  # fmt: skip
def test_penalties_and_optima_stay_in_the_users_coordinates(keep_noise, loss, penalty, record_step):
    loss = direct.LOSSES[loss]
    X, y = data_for(loss, n=300, p=5)
    X = X @ (np.eye(5) + 0.3) * [0.4, 0.1, 0.3, 0.05, 0.4] / 2
    c, facts, _ = setting(X, loss=loss, penalty=penalty, mu=1e6, row_norm=10.0, max_iter=2000)
    algorithm = ConsensusADMM(
        step_size=0.9 / loss.smoothness, clip_norm=1e8, record_step=record_step, tail_fraction=1e-9
    )
    plan = algorithm.plan(facts, VAST)
    with Engine().running() as engine:
        gate = Gate(plan, direct.KnownNoise())
        problem = Problem(rows=Rows(X, c), target=y, engine=engine)
        problem = condition(problem, facts, gate)
        rows, solution = problem.rows, algorithm.run(plan, problem, gate)
    # Without noise the rows have the identity as second moment.
    seen = rows.scores(0, rows.prepare(np.eye(6)))
    close(seen.T @ seen / len(X), np.eye(6), 1e-4)
    np.testing.assert_allclose(np.square(seen).sum(axis=1), rows.squared_norm, rtol=1e-9)
    found = direct.comparable(solution.parameters[:-1], solution.parameters[-1], loss)
    close(found, direct.optimum(loss, penalty, X, y), 1e-5)


def test_rounding_is_amplified_by_the_condition_of_the_basis():
    plan = DPAdmmRidge(conditioning="private").plan(1000, 3)
    facts = plan.facts
    widened = 1 + (facts.rounding - 1) * facts.conditioning.condition
    assert facts.working_rounding == pytest.approx(widened, rel=1e-15)
    assert facts.working_rounding > facts.rounding
    expected = 2 * facts.working_rounding / 1000
    assert max(plan.releases[-1].sensitivities) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("power", [-0.5, -1e-9])
def test_a_floor_that_could_fall_below_the_planned_one_is_refused(power):
    plan = DPAdmmRidge(conditioning=None).plan(50, 3)
    choices = {"floor": 0.5, "floor_power": power, "clip_power": 0.0, "resolution": 0.0}
    with pytest.raises(ValueError, match=r"^Got floor, floor_power, resolution="):
        plan_conditioning(plan.facts, plan.budget, mu=1.0, row_norm=1.0, **choices)


# Centre and unit of a target.


def each_of(target):
    """What reaches targets that are all in one place."""
    return lambda function, *args: [function(None, target, *args)]


def moments(target, relation="replace_one"):
    """The value that passes the gate for targets in [-1, 1], and its planned sensitivity."""
    model = DPAdmmRidge(epsilon=50.0, target_bounds=(-1, 1), neighboring=relation)
    plan, source = model.plan(len(target), 1), direct.KnownNoise()
    centering = plan.facts.centering
    assert plan.releases[0] == centering.release
    assert centering.release.name == TARGET_MOMENTS
    recentre(plan.facts.coordinates, each_of(target), plan.facts, Gate(plan, source))
    return source.values[0], centering.release.sensitivities[0]


@given(st.floats(-1, 1), st.floats(-1, 1))
@example(-1.0, 1.0)
@example(0.25, 1.0)
def test_moments_of_a_target_move_by_their_sensitivity_at_most(b, other):
    first, second = np.zeros((2, 10))
    first[0], second[0] = b, other
    for relation, value in (("replace_one", second), ("zero_out", np.zeros(10))):
        (seen, declared), (changed, _) = moments(first, relation), moments(value, relation)
        assert np.linalg.norm(seen - changed) <= declared


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_moments_of_a_target_attain_their_sensitivity(relation):
    far, zeros = np.zeros((2, 10))
    far[0] = -1.0
    seen, declared = moments(far, relation)
    changed, _ = moments(-far if relation == "replace_one" else zeros, relation)
    distance = np.linalg.norm(seen - changed)
    assert distance <= declared == pytest.approx(distance, rel=1e-9)


def test_moments_move_by_their_sensitivity_where_floats_hold_no_middle_of_the_bounds():
    far = (1e16, 1e16 + 2)
    plan = DPAdmmRidge(epsilon=50.0, target_bounds=far).plan(10, 1)
    coordinates, centering, seen = plan.facts.coordinates, plan.facts.centering, []
    for first in far:
        target, source = np.array([first] + [far[0]] * 9), direct.KnownNoise()
        recentre(coordinates, each_of(target), plan.facts, Gate(plan, source))
        seen.append(source.values[0])
    assert 0 < np.linalg.norm(seen[0] - seen[1]) <= centering.release.sensitivities[0]


@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300), st.floats(1e-9, 1e9))
def test_whatever_is_released_gives_a_centre_and_a_unit_within_bounds(mean, square, noise_std):
    centre, unit = centre_and_unit(np.array([mean, square]), noise_std)
    assert -1 <= centre <= 1
    assert 0.3 < unit < 2.4


def test_centre_and_unit_are_those_of_the_target_where_noise_is_little():
    centre, unit = centre_and_unit(np.array([0.3, 1.6 * (0.3**2 + 0.21**2)]), 1e-6)
    assert (centre, unit) == pytest.approx((0.3, 0.5), rel=1e-6)
    # And what declared targets usually have where there is nothing but noise.
    assert centre_and_unit(np.array([0.9, 0.3]), 1e3) == pytest.approx((0, 0.3 / 0.42), abs=0.05)


def test_the_unit_of_a_target_is_as_often_too_large_as_too_small():
    rng, mean, variance, noise_std = np.random.default_rng(0), 0.2, 0.09, 0.05
    exact = np.array([mean, 1.6 * (variance + mean**2)])
    released = exact + noise_std * rng.standard_normal((4000, 2))
    units = [centre_and_unit(moments, noise_std)[1] for moments in released]
    assert np.mean(np.square(units)) * 0.42**2 == pytest.approx(variance, abs=0.002)


def test_a_person_moves_the_moments_by_its_share_however_many_rows_it_has():
    model = DPAdmmRidge(epsilon=300.0, target_bounds=(-1, 1), max_rows_per_person=3)
    gates = Gates()
    # Nine persons of one row at the middle, and one of three rows or of one.
    for own in ([-1.0] * 3, [1.0]):
        y, persons = np.array([*own, *np.zeros(9)]), [0] * len(own) + list(range(1, 10))
        with gates_by(gates):
            model.fit(np.zeros((len(y), 2)), y, persons=persons)
    first, second = (gate.passages[0] for gate in gates.gates)
    declared = gates.gates[0].plan.facts.centering.release.sensitivities[0]
    assert first.name == TARGET_MOMENTS
    assert np.linalg.norm(first.value - second.value) <= declared == pytest.approx(0.2)


def test_a_target_far_from_the_middle_of_its_bounds_costs_little():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(2000, 3))
    y = X @ [1.0, -1.0, 0.5] + 0.3 * rng.standard_normal(2000)
    known = {"epsilon": 0.1, "feature_bounds": (-1, 1), "random_state": 0}
    near, far = (
        [DPAdmmRidge(target_bounds=b, scale=scale, **known).fit(X, y).score(X, y) for b in BOUNDS]
        for scale in ("auto", None)
    )
    assert near[1] > 0.8
    assert near[0] - near[1] < 0.1 < 0.3 < far[0] - far[1]


BOUNDS = [(-4, 4), (-4, 30)]


@pytest.mark.parametrize("algorithm", ["averaged-admm", "objective-perturbation"])
def test_clip_bounds_follow_the_released_unit_where_solves_are_certified(algorithm):
    plan = DPAdmmRidge(algorithm=algorithm, target_bounds=(-1, 1), conditioning=None).plan(1000, 2)
    assert plan.facts.centering is not None
    usual = settled_bounds(plan.facts, plan.settings)
    rows = Rows(np.zeros((3, 2)), plan.facts.coordinates.recentred(0.1, 0.5))
    narrow = settled_bounds(plan.facts, plan.settings, rows)
    assert narrow == replace(usual, gradient_norm=usual.gradient_norm / 2)


@pytest.mark.parametrize(
    "changed",
    [
        {"scale": None}, {"target_bounds": None}, {"fit_intercept": False},
        {"algorithm": ConsensusADMM(clip_norm=0.5)}, {"epsilon": 0.01},
    ],
    ids=str,
)  # fmt: skip
def test_moments_of_a_target_are_released_only_where_they_serve_defaults(changed):
    model = DPAdmmRidge(target_bounds=(-1, 1))
    assert model.plan(1000, 2).facts.centering is not None
    assert model.set_params(**changed).plan(1000, 2).facts.centering is None


# Units that nobody declared.


@pytest.mark.parametrize(("relation", "factor"), [("zero_out", 1.0), ("replace_one", math.sqrt(2))])
def test_counts_of_a_histogram_move_by_one_bin_out_and_one_in(relation, factor):
    plan = DPAdmmRidge(scale="private", neighboring=relation).plan(1000, 4)
    release = plan.releases[0]
    assert (release.name, release.sensitivities) == (ROW_NORMS, (factor,))
    assert release.shape == (len(EXPONENTS) + 1,)
    # 3 % of the squared budget.
    share = (factor / release.noise_std / plan.guarantee().mu) ** 2
    assert share == pytest.approx(0.03, rel=1e-6)
    with pytest.raises(ValueError, match=r"^Got scale='private' with feature_bounds for every"):
        DPAdmmRidge(scale="private", feature_bounds=(0, 1)).plan(100, 3)


def test_units_of_rates_and_quantiles_are_released_only_where_no_theorem_has_their_constants():
    known = {"feature_bounds": (-1, 1), "target_bounds": (0.1, 50.0), "alpha": 0.01}
    for cls in (DPAdmmPoissonRegressor, DPAdmmGammaRegressor, DPAdmmQuantileRegressor):
        for algorithm, is_released in (
            (ConsensusADMM(), True),
            (GradientDescent(), True),
            (GradientDescent(guarantee="last"), False),
            (ObjectivePerturbation(), False),
            (AveragedADMM(guarantee="path"), False),
        ):
            if cls is DPAdmmQuantileRegressor and isinstance(algorithm, ObjectivePerturbation):
                continue
            plan = cls(algorithm=algorithm, **known).plan(20_000, 3)
            assert (plan.facts.centering is not None) == is_released


@pytest.mark.parametrize("epsilon", [1.0, 1e6])
def test_a_released_rate_is_that_of_the_target_and_starts_the_fit(epsilon):
    rng = np.random.default_rng(0)
    X, y = np.zeros((20_000, 1)), 300 * rng.lognormal(0, 0.5, 20_000)
    model = DPAdmmGammaRegressor(
        epsilon=epsilon, feature_bounds=(-1, 1), target_bounds=(10, 9000), max_iter=1,
        random_state=0, algorithm=GradientDescent(step_size=1e-9),
    )  # fmt: skip
    assert model.fit(X, y).predict(X[:1]) == pytest.approx(y.mean(), rel=0.05)


def test_rates_between_any_bounds_have_a_released_unit_that_floats_hold():
    y = np.where(np.arange(3000) % 2, 1e-100, 1e100)
    model = DPAdmmGammaRegressor(
        epsilon=5.0, feature_bounds=(-1, 1), target_bounds=(1e-100, 1e100), random_state=0
    )
    assert TARGET_MOMENTS in {release.name for release in model.plan(3000, 1).releases}
    assert np.isfinite(model.fit(np.zeros((3000, 1)), y).intercept_)


def test_units_are_estimated_by_default_where_they_are_unknown_and_signal_is_ample():
    def is_scaled(n_samples=5000, **params):
        plan = DPAdmmRidge(**params).plan(n_samples, 4)
        return plan.releases[0].name == ROW_NORMS

    assert is_scaled()
    assert is_scaled(500, epsilon=8.0, neighboring="zero_out")
    assert not is_scaled(500)
    # To the norm that as many declared columns have.
    bounds = {"a": (0, 1), "b": (-3, 3)}
    assert DPAdmmRidge(feature_bounds=bounds).plan(5000, 8).facts.scaling.target == 0.6 * 6.75**0.5
    for known in ({"feature_bounds": (0, 1)}, {"row_norm": 1.0}, {"scale": None}):
        assert not is_scaled(**known)
    for algorithm in ("gradient-admm", "coordinate-descent", GradientADMM(schedule="stream")):
        assert not is_scaled(algorithm=algorithm)


@pytest.mark.parametrize("estimator", [DPAdmmRidge(), DPAdmmLogisticRegression(classes=[0, 1])])
def test_rows_of_a_declared_norm_are_conditioned_where_an_average_direction_stands_out(estimator):
    estimator.set_params(row_norm=1.0)
    assert estimator.plan(20_000, 500).facts.preparations == ()
    assert estimator.plan(20_000, 20).facts.conditioning is not None


def test_counts_of_noise_or_of_empty_rows_say_nothing_of_units():
    noise, counts = np.random.default_rng(0).standard_normal(42), np.zeros(42)
    assert median_norm(noise, 1.0, default=0.7) == median_norm(noise - 9, 1.0, default=0.7) == 0.7
    counts[0], counts[25] = 900.0, 100.0
    assert 0.5 <= median_norm(counts, 1.0, default=0.0) / 2.0 ** EXPONENTS[25] <= 1


# What noise leaves in a result.


@pytest.mark.parametrize(("step_size", "n_averaged"), [(0.1, 20), (0.5, 1), (1.9, 10)])
def test_the_variance_is_that_of_a_noisy_path_on_a_quadratic(step_size, n_averaged):
    rng, loading, n_iter, noise_std = np.random.default_rng(0), np.array([1, 0.3, 0, 2.0]), 20, 0.7
    w, tail = np.zeros((2, 20_000, 4))
    for k in range(n_iter):
        w = w - step_size * (0.5 * loading * w + noise_std * rng.standard_normal(w.shape))
        if k >= n_iter - n_averaged:
            tail += w / n_averaged
    rows, flat = Rows(np.zeros((4, 3)), coordinates_of(3)), {"spread": 1.0, "clip_unit": 1.0}
    rows.basis = Basis(vectors=np.eye(4), eigenvalues=np.ones(4), loading=loading, **flat)
    variance = parameter_variance(
        SquaredLoss(), rows, step_size=step_size, noise_std=noise_std, n_iter=n_iter,
        n_averaged=n_averaged,
    )  # fmt: skip
    np.testing.assert_allclose(variance, tail.var(axis=0), rtol=0.06)
    assert score_variance(rows, variance) == pytest.approx(2 * loading @ variance)


@pytest.mark.parametrize(
    "shape", [(4, 1), (5, 4, 1), (5, 4, 3)], ids=["model", "agents", "classes"]
)
def test_the_spread_of_a_path_is_that_of_scores_of_a_typical_row_over_points_and_agents(shape):
    points, loading = np.random.default_rng(0).standard_normal((7, *shape)), [1.0, 0.3, 0.0, 2.0]
    tail = Tail(len(points))
    for point in points:
        tail.add(point)
    np.testing.assert_allclose(tail.mean, points.mean(axis=0))
    rows, flat = Rows(np.zeros((4, 3)), coordinates_of(3)), {"spread": 1.0, "clip_unit": 1.0}
    rows.basis = Basis(vectors=np.eye(4), eigenvalues=np.ones(4), loading=np.array(loading), **flat)
    each = points.reshape(-1, *shape[-2:])
    if shape[-1] > 1:
        each = each - each.mean(axis=-1, keepdims=True)
    expected = np.mean([loading @ each[:, :, k].var(axis=0) for k in range(shape[-1])])
    assert tail.score_variance(rows) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("make", "bounds", "params"),
    [
        (DPAdmmPoissonRegressor, (0, 200), {"alpha": 2.0}),
        (DPAdmmGammaRegressor, (0.1, 300), {"alpha": 0.5}),
        (DPAdmmQuantileRegressor, (0, 60), {"alpha": 0.02, "quantile": 0.8}),
    ],
)
def test_a_released_unit_and_centre_leave_the_objective_as_it_is(make, bounds, params):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1000, 2))
    mean = np.exp(2 + X @ [0.9, -0.6])
    y = rng.poisson(mean) if bounds[0] == 0 else rng.gamma(3, mean / 3)
    known = {"feature_bounds": (-1, 1), "target_bounds": bounds, "random_state": 0, **params}
    exact = make(epsilon=math.inf, **known).fit(X, y)
    noisy = make(epsilon=1e7, max_iter=800, **known)
    assert noisy.plan(n_samples=1000, n_features=2).facts.centering is not None
    noisy.fit(X, y)
    assert np.abs(exact.coef_).min() > 0.1
    np.testing.assert_allclose(noisy.coef_, exact.coef_, rtol=0.02)
    np.testing.assert_allclose(noisy.intercept_, exact.intercept_, rtol=0.02)
