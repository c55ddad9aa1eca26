"""Gradient ADMM is as private as it says: sensitivities, exact divergences, an attack, bugs."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import norm

import skdpadmm._fitting as fitting
import skdpadmm.algorithms._gradient_admm as module
import skdpadmm.algorithms.blocks._gradient_admm_steps as steps_module
from skdpadmm import (
    DPAdmmGeneralizedLasso,
    DPAdmmLasso,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
)
from skdpadmm.algorithms import GradientADMM
from skdpadmm.algorithms._gradient_admm import GradientADMMState
from skdpadmm.algorithms.blocks._gradient_admm_steps import gradient_admm_step
from skdpadmm.algorithms.planning._record_schedule import NOBODY, RecordSchedule
from skdpadmm.algorithms.planning._splitting import splitting_of
from skdpadmm.engine import Engine
from skdpadmm.losses import (
    HuberLoss,
    LogisticLoss,
    MultinomialLoss,
    OneVsRestHinge,
    SmoothedHinge,
    SquaredLoss,
)
from skdpadmm.noise import CryptographicNoise, grid_cell
from skdpadmm.penalties import (
    L1,
    ElasticNet,
    GeneralizedL1,
    LinearConstraint,
    NoPenalty,
    SquaredL2,
    difference_matrix,
)
from skdpadmm.privacy import AmplifiedIteration, Neighboring
from skdpadmm.protocol import Budget, Facts, Gate, PlanViolation, Problem
from skdpadmm.records import Rows, declared_coordinates, rounding_factor

LOSSES = [
    SquaredLoss(),
    HuberLoss(0.2),
    LogisticLoss(),
    SmoothedHinge(0.5),
    MultinomialLoss(3),
    OneVsRestHinge(3, 0.5),
]
KINDS = {
    "cyclic": {},
    "sampling": {"schedule": "sampling"},
    "stopping": {"schedule": "stopping"},
    "path": {"release": "path"},
    "gradient": {"release": "path", "noise_at": "gradient"},
    "stream": {"schedule": "stream"},
}


def targets_of(loss, rng, n):
    if isinstance(loss, SquaredLoss | HuberLoss):
        return rng.uniform(-2, 2, n)
    if loss.n_outputs > 1:
        return rng.integers(loss.n_outputs, size=n)
    return rng.choice([-1.0, 1.0], n)


EXTREME = [1e300, -1.7e308, 1e-320, 0.0, 1.0]


class Silent:
    """No noise: what noise is added to comes out."""

    simulation = True

    def add_gaussian(self, value, scale, stream):
        return value

    def uniform(self, shape, stream):
        return np.zeros(shape)


class Case:
    """A plan for some data, and single steps of it without noise."""

    def __init__(
        self, algorithm, loss, *, n=14, p=3, penalty=ElasticNet(0.01, 0.02),  # noqa: B008
        neighboring="replace_one", budget=Budget(epsilon=1.0, delta=1e-5), bounds=None,  # noqa: B008
        fit_intercept=True,
    ):  # fmt: skip
        self.algorithm = algorithm
        self.coordinates = declared_coordinates(
            n_features=p, fit_intercept=fit_intercept, feature_bounds=bounds,
            has_target_scale=False,
        )  # fmt: skip
        n = 1 if algorithm.is_stream else n
        facts = Facts(
            n_samples=n,
            n_parameters=self.coordinates.n_parameters,
            loss=loss,
            penalty=penalty,
            neighboring=Neighboring(neighboring),
            row_norm=self.coordinates.row_norm,
            rounding=rounding_factor(n_samples=n, coordinates=self.coordinates),
            max_iter=100,
            is_stream=algorithm.is_stream,
            coordinates=self.coordinates,
        )
        self.plan = algorithm.plan(facts, budget)
        self.path = self.plan.releases[-1]

    def through(self, X, y, records, state=None, *, null=None, noise=None):
        """Steps on some records."""
        rows = Rows(X, self.coordinates)
        target = y * rows.weight if isinstance(self.plan.facts.loss, SquaredLoss) else y
        if null is not None:
            rows.weight[null] = rows.squared_norm[null] = 0.0
        with np.errstate(all="ignore"), Engine().running() as engine:
            problem = Problem(rows=rows, target=target, engine=engine)
            start = self.algorithm.start(self.plan, problem)
            gate = Gate(self.plan, noise or Silent())
            return self.algorithm._through(
                self.plan, problem, gate, state or start, np.asarray(records), problem.progress
            )

    def moved(self, one, other):
        """How far two states are apart, in the norm of what noise is added to."""
        apart = np.linalg.norm(one.x - other.x)
        if self.path.name == module.ITERATE:
            return apart
        settings = self.plan.settings
        return apart * (1 + settings.step_size * settings.penalty_weight) / settings.step_size

    @property
    def slack(self):
        """Rounding to the grid, of two states."""
        return grid_cell(self.path.noise_std) * math.sqrt(math.prod(self.path.shape))


def state_like(case, rng, scale=0.3):
    n_constraints = case.path.shape[0]
    if isinstance(case.plan.facts.penalty, GeneralizedL1):
        n_constraints = case.plan.facts.penalty.matrix.shape[0]
    x = scale * rng.standard_normal(case.path.shape)
    multipliers = rng.standard_normal((n_constraints, case.path.shape[1]))
    return GradientADMMState(
        x=x, multipliers=multipliers, mean_x=x, mean_multipliers=multipliers, n_steps=3
    )


def knobs_of(kind, loss):
    knobs = dict(KINDS[kind])
    # A clip of several scores may bind where the path is seen.
    if loss.n_outputs == 1 or kind in ("path", "gradient", "stream"):
        knobs["clip_norm"] = 0.1
    return knobs


# Sensitivities


def largest_move(kind, loss, *, neighboring="replace_one", bounds=None, **more):
    """Moves of what noise is added to, over its declared sensitivity, given the state before."""
    rng = np.random.default_rng(1)
    case = Case(
        GradientADMM(**knobs_of(kind, loss)), loss, neighboring=neighboring, bounds=bounds, **more
    )
    ratios = []
    for seed in range(12):
        X = rng.standard_normal((14, 3)) * 10.0 ** rng.uniform(-2, 2, (14, 1))
        if seed < len(EXTREME):
            X[seed] = EXTREME[seed] * np.array([1.0, -1.0, 1.0])
        y = targets_of(loss, rng, 14)
        X2, y2, null = X.copy(), y.copy(), None
        if neighboring == "replace_one":
            X2[seed] = -X[seed] if seed % 3 else rng.standard_normal(3) * 1e200
            y2[seed] = targets_of(loss, rng, 1)[0]
        else:
            null = seed
        state = state_like(case, rng, scale=10.0 ** rng.uniform(-1, 2))
        one = case.through(X, y, [seed], state)
        other = case.through(X2, y2, [seed], state, null=null)
        # The multipliers and the average's weights follow from what was seen before.
        np.testing.assert_array_equal(one.multipliers, other.multipliers)
        np.testing.assert_array_equal(one.mean_multipliers, other.mean_multipliers)
        assert np.isfinite(one.x).all()
        # Steps of other records are the same.
        away = [i for i in range(14) if i != seed]
        np.testing.assert_array_equal(
            case.through(X, y, away, state).x, case.through(X2, y2, away, state, null=null).x
        )
        ratios.append((case.moved(one, other) - case.slack) / case.path.sensitivity)
    return max(ratios)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize("bounds", [None, (-1, 2)], ids=["norms", "bounds"])
def test_a_step_moves_by_at_most_its_declared_sensitivity(kind, loss, neighboring, bounds):
    assert largest_move(kind, loss, neighboring=neighboring, bounds=bounds) <= 1 + 1e-9


def flipped(kind):
    """Moves of steps whose gradients are clipped on both sides, over the declared sensitivity."""
    case = Case(GradientADMM(**knobs_of(kind, SquaredLoss())), SquaredLoss())
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((14, 3)), 1e6 * rng.standard_normal(14)
    state = state_like(case, rng)
    moves = [
        case.moved(case.through(X, y, [i], state), case.through(X, -y, [i], state))
        for i in range(14)
    ]
    return np.array(moves) / case.path.sensitivity


@pytest.mark.parametrize("kind", KINDS)
def test_the_declared_sensitivity_is_met_by_every_record(kind):
    np.testing.assert_allclose(flipped(kind), 1.0, rtol=1e-4)


@pytest.mark.parametrize("kind", ["cyclic", "stream"])
def test_steps_with_a_linear_image_move_by_at_most_their_declared_sensitivity(kind):
    penalty = GeneralizedL1(difference_matrix(3, 1), 0.1)
    for loss in (SquaredLoss(), LogisticLoss()):
        assert largest_move(kind, loss, penalty=penalty) <= 1 + 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_replay_catches_a_missing_clip(monkeypatch, kind):
    monkeypatch.setattr(steps_module, "clip_derivative", lambda derivative, limit: derivative)
    with np.errstate(all="ignore"):
        assert largest_move(kind, SquaredLoss()) > 1.5


@pytest.mark.parametrize("kind", KINDS)
def test_replay_catches_replace_one_calibrated_as_zero_out(monkeypatch, kind):
    monkeypatch.setattr(Neighboring, "sensitivity_factor", 1)
    assert flipped(kind).max() > 1.9


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize(
    "penalty", [L1(0.1), GeneralizedL1(difference_matrix(3, 1), 0.1)], ids=repr
)
def test_later_steps_move_two_states_no_further_apart(loss, penalty):
    # The norm of the theorem: ||x||^2 + (eta / beta) ||multipliers - beta A x||^2.
    case = Case(GradientADMM(order="arrival", passes=1), loss, n=40, penalty=penalty)
    rng = np.random.default_rng(0)
    settings = case.plan.settings
    for seed in range(5):
        X = rng.standard_normal((40, 3)) * 10.0 ** rng.uniform(-1, 1, (40, 1))
        y = targets_of(loss, rng, 40)
        X2, y2 = X.copy(), y.copy()
        X2[seed], y2[seed] = -3 * X[seed], targets_of(loss, rng, 1)[0]
        step = gradient_admm_step(
            splitting_of(penalty, Rows(X, case.coordinates), None),
            settings.step_size,
            settings.penalty_weight,
        )
        ratio = settings.step_size / settings.penalty_weight
        bound = case.path.sensitivity
        if isinstance(penalty, L1):
            # A is the identity: the sensitivity is that behind the resolvent.
            bound *= math.sqrt(1 + settings.step_size * settings.penalty_weight)

        def apart(one, other, step=step, ratio=ratio, beta=settings.penalty_weight):
            x, lam = one.x - other.x, one.multipliers - other.multipliers
            inner = lam - beta * step.splitting.forward(x)
            return math.sqrt(np.sum(x**2) + ratio * np.sum(inner**2))

        drawn = case.path.noise_std * rng.standard_normal((40, *case.path.shape))

        class Known(Silent):
            def add_gaussian(self, value, scale, stream, drawn=drawn):
                value = value.copy()
                value[: len(drawn)] = drawn
                return value

        for end in (seed + 1, seed + 2, 20, 40):
            states = [
                case.through(A, t, np.arange(end), noise=Known()) for A, t in ((X, y), (X2, y2))
            ]
            slack = (end - seed) * case.slack * 2
            assert apart(*states) <= bound + slack


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_of_nobody_or_of_a_null_record_has_noise_like_any_other(kind):
    case = Case(
        GradientADMM(**knobs_of(kind, SquaredLoss())), SquaredLoss(), neighboring="zero_out"
    )
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((14, 3)), rng.standard_normal(14)
    state = state_like(case, rng)
    quiet = case.through(X, y, [NOBODY], state)
    # A null record is nobody.
    np.testing.assert_array_equal(quiet.x, case.through(X, y, [5], state, null=5).x)
    noise = []
    for records, null in (([NOBODY], None), ([5], 5), ([NOBODY], None)):
        loud = case.through(X, y, records, state, null=null, noise=CryptographicNoise())
        noise.append((loud.x - quiet.x).ravel())
        assert case.moved(loud, quiet) > 0.05 * case.path.noise_std
    assert len(np.unique(np.concatenate(noise))) == 12


def test_steps_beyond_the_cap_draw_noise():
    algorithm = GradientADMM(schedule="sampling", cap=1, passes=3, step_size=0.01)
    case = Case(algorithm, SquaredLoss())
    places = case.plan.settings.schedule.places()
    assert (places == NOBODY).sum() > 20
    drawn = []

    class Tap(CryptographicNoise):
        def add_gaussian(self, value, scale, stream):
            drawn.append(super().add_gaussian(value, scale, stream))
            return drawn[-1]

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((14, 3)), rng.standard_normal(14)
    rows = Rows(X, case.coordinates)
    gate = Gate(case.plan, Tap())
    with Engine().running() as engine:
        algorithm.run(case.plan, Problem(rows=rows, target=y, engine=engine), gate)
    gate.close()
    used = drawn[0][: len(places), :, 0]
    assert len(np.unique(used, axis=0)) == len(places)
    assert used.std() == pytest.approx(case.path.noise_std, rel=0.3)


# Exact divergences


def linear(kappa=1.0, n=12, n_passes=1, strength=0.3, **knobs):
    """A run whose gradients are constant and whose penalty is quadratic: all of it is Gaussian."""
    knobs = {"order": "arrival", "passes": n_passes} | knobs
    algorithm = GradientADMM(step_size=0.1, penalty_weight=kappa / 0.1, clip_norm=0.01, **knobs)
    return Case(
        algorithm, SquaredLoss(), n=n, p=1, penalty=SquaredL2(strength), fit_intercept=False
    )


def exact_mu(case, n, record):
    """What the last state tells of one record, from runs of the code and the noise of the plan."""
    settings = case.plan.settings
    X, y = np.ones((n, 1)), np.full(n, 1e3)
    places = settings.schedule.places() if case.path.times is not None else np.arange(n)
    y2 = y.copy()
    y2[record] = -1e3
    one, other = case.through(X, y, places), case.through(X, y2, places)
    shift = np.array([one.x - other.x, one.multipliers - other.multipliers]).ravel()
    step = gradient_admm_step(
        splitting_of(case.plan.facts.penalty, Rows(X, case.coordinates), None),
        settings.step_size,
        settings.penalty_weight,
    )
    zero = np.zeros(1)
    onward = np.column_stack(
        [np.ravel(step(a, b, zero)) for a, b in ((zero + 1, zero), (zero, zero + 1))]
    )
    covariance = np.zeros((2, 2))
    for _ in places:
        covariance = onward @ covariance @ onward.T
        covariance[0, 0] += case.path.noise_std**2
    return math.sqrt(shift @ np.linalg.lstsq(covariance, shift, rcond=1e-12)[0])


def claimed_mu(case, n):
    settings = case.plan.settings
    made = AmplifiedIteration(
        case.path.sensitivity / case.path.noise_std,
        settings.amplification,
        2.0**-20 * math.sqrt(math.prod(case.path.shape)),
    )
    places = settings.schedule.places() if case.path.times is not None else np.arange(n)
    return made.slots(places, n)


@pytest.mark.parametrize("kappa", [0.01, 0.3, 1.0, 10.0])
@pytest.mark.parametrize("n_passes", [1, 3])
@pytest.mark.parametrize("strength", [0.0, 0.3, 30.0])
def test_the_divergence_of_every_record_is_below_its_claim(kappa, n_passes, strength):
    case = linear(kappa, n_passes=n_passes, strength=strength)
    claimed = claimed_mu(case, 12)
    exact = np.array([exact_mu(case, 12, record) for record in range(12)])
    assert (exact <= claimed * (1 + 1e-9)).all()
    assert case.plan.guarantee().mu == pytest.approx(claimed.max(), rel=1e-9)
    if n_passes == 1:
        assert exact[0] <= exact[-1] * (1 + 1e-6)
    if n_passes == 1 and strength == 30.0 and kappa == 10.0:
        # What contracts at once has the noise of one step to hide the last record in.
        assert exact[-1] >= 0.99 * claimed[-1]


def test_the_divergence_catches_an_amplification_that_is_not_there(monkeypatch):
    honest = claimed_mu(linear(), 12)
    constant = module.amplification_constant
    monkeypatch.setattr(module, "amplification_constant", lambda kappa: constant(kappa) / 40)
    case = linear()
    planted = claimed_mu(case, 12)
    exact = np.array([exact_mu(case, 12, record) for record in range(12)])
    assert (exact > planted).any()
    assert (planted <= honest).all()


def test_what_a_stream_says_of_its_end_is_above_the_divergence(monkeypatch):
    case = linear(schedule="stream", order="auto", passes="auto")
    (_, last), (_, average), (_, first) = case.algorithm.unseen_guarantees(case.plan, 12)
    exact = np.array([exact_mu(case, 12, record) for record in range(12)])
    assert exact.max() <= last.mu
    assert exact[0] <= first.mu
    for epsilon in (0.1, 0.5):
        deltas = [
            norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
            for mu in exact
        ]
        assert np.mean(deltas) <= average.delta(epsilon)


# What a report says


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_the_report_says_what_the_plan_says(kind, epsilon):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    model = DPAdmmLasso(algorithm=GradientADMM(**KINDS[kind]), epsilon=epsilon, random_state=0)
    plan, report = model.plan(60, 3), model.fit(X, y).privacy_
    (observer,) = report.observers
    assert observer.guarantee == plan.guarantee()
    assert report.epsilon() == pytest.approx(epsilon, rel=1e-6)
    (worst,) = plan.worst_cases("model")
    hidden = plan.releases[-1].is_hidden
    if kind in ("cyclic", "sampling", "stopping", "path"):
        kept = observer.always or observer.guarantee
        assert kept == worst
        for eps in (0.1, 1.0, 5.0):
            assert kept.delta(eps) >= observer.guarantee.delta(eps) * (1 - 1e-12)
    assert ("the final model alone" in repr(report)) == hidden
    assert any("Nobody sees a state" in text for text in report.assumptions) == hidden
    assert any("stays secret" in text for text in report.assumptions) == (
        plan.settings.schedule.is_secret or kind == "stopping"
    )


def test_a_secret_order_is_worth_more_than_the_worst_position_and_less_than_the_best():
    secret, kept = (
        DPAdmmLasso(algorithm=GradientADMM(order=order, passes=2)).plan(300, 3)
        for order in ("random", "arrival")
    )
    assert secret.releases[-1].noise_std < kept.releases[-1].noise_std
    assert kept.worst_cases("model") == kept.guarantees("model")
    mixture, (worst,) = secret.guarantee(), secret.worst_cases("model")
    best = min(component.mu for component in mixture.components)
    assert best < worst.mu
    for epsilon in (0.1, 0.5, 1.0):
        deltas = [component.delta(epsilon) for component in mixture.components]
        assert min(deltas) < mixture.delta(epsilon) < worst.delta(epsilon) == max(deltas)
    assert worst.epsilon(1e-5) > mixture.epsilon(1e-5)


def test_hidden_iterates_need_less_noise_than_a_path():
    hidden, path = (
        DPAdmmLasso(
            algorithm=GradientADMM(release=release, passes=10, step_size=0.01, clip_norm=0.1)
        ).plan(500, 3)
        for release in ("last", "path")
    )
    assert hidden.releases[-1].sensitivity == path.releases[-1].sensitivity
    assert 1.5 * hidden.releases[-1].noise_std < path.releases[-1].noise_std


def test_a_path_has_no_amplified_figure_anywhere():
    plan = DPAdmmLasso(algorithm=GradientADMM(release="path", order="arrival", passes=4)).plan(
        90, 3
    )
    path = plan.releases[-1]
    alone = path.sensitivity / path.noise_std
    assert plan.guarantee().mu >= 2 * alone
    assert plan.worst_cases("model") == plan.guarantees("model")


# An attack on many runs, and the bugs that it finds

ATTACKED = {
    # The last record of a pass, in what is returned.
    "last": ({"order": "arrival", "passes": 1}, 1, 0),
    # The first one of a stream, in what can be read before the next.
    "stream": ({"schedule": "stream"}, 2, 0),
    # All of a path, of a record that is used twice.
    "path": ({"order": "arrival", "passes": 2, "release": "path"}, 2, 0),
}


def attacked(kind):
    knobs, n, _ = ATTACKED[kind]
    algorithm = GradientADMM(
        step_size=0.01, penalty_weight=0.1, clip_norm=0.01, average=False, **knobs
    )
    return Case(
        algorithm, SquaredLoss(), n=n, p=1, penalty=NoPenalty(), fit_intercept=False,
        budget=Budget(epsilon=3.0, delta=1e-3),
    )  # fmt: skip


def draws(kind, neighbour, n_runs, source):
    """What the adversary of a kind makes of many runs on the same data."""
    case = attacked(kind)
    _, n, canary = ATTACKED[kind]
    X, y = np.ones((n, 1)), np.full(n, 2.9)
    y[canary] = -2.9 if neighbour else 2.9
    rows = Rows(X, case.coordinates)
    found = np.empty(n_runs)
    with Engine().running() as engine:
        problem = Problem(rows=rows, target=y, engine=engine)
        for i in range(n_runs):
            gate = Gate(case.plan, source)
            state = case.algorithm.start(case.plan, problem)
            if kind == "last":
                found[i] = case.algorithm.run(case.plan, problem, gate).parameters[0, 0]
                continue
            # Everything is seen: the moves of the canary's own steps, without those of the rest.
            total = 0.0
            for place in [0, 1] * (2 if kind == "path" else 1):
                before = state
                state = case.algorithm._through(
                    case.plan, problem, gate, state, np.array([place]), problem.progress
                )
                if place == canary:
                    total += (state.x - before.x)[0, 0]
            found[i] = total
    return found


@pytest.fixture
def attack(mu_lower_bound, monkeypatch):
    # Noise is drawn for few steps at once: most of a large block would go unused here.
    monkeypatch.setattr("skdpadmm.protocol._gate.PATH_ENTRIES", 4)

    def attacking(kind, n_runs=2000, source=CryptographicNoise):
        samples = [draws(kind, neighbour, n_runs, source()) for neighbour in (False, True)]
        return mu_lower_bound(*samples)

    return attacking


def claim(kind):
    return attacked(kind).plan.guarantee().mu


@pytest.mark.parametrize("kind", ATTACKED)
def test_attack_finds_no_more_than_the_claimed_mu(kind, attack):
    assert attack(kind) <= claim(kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ATTACKED)
def test_attack_with_many_runs_comes_close_to_the_claimed_mu_and_not_above(kind, attack):
    assert 0.85 * claim(kind) <= attack(kind, n_runs=30_000) <= claim(kind)


class HalfTheNoise(CryptographicNoise):
    def add_gaussian(self, value, scale, stream):
        return super().add_gaussian(value, scale / 2, stream)


@pytest.mark.parametrize("kind", ["last", "stream"])
def test_attack_catches_half_the_noise(kind, attack):
    assert attack(kind, source=HalfTheNoise) > 1.2 * claim(kind)


@pytest.mark.parametrize("kind", ["last", "stream"])
def test_attack_catches_a_missing_clip(kind, attack, monkeypatch):
    monkeypatch.setattr(steps_module, "clip_derivative", lambda derivative, limit: derivative)
    assert attack(kind) > 1.2 * claim(kind)


@pytest.mark.parametrize("kind", ["last", "stream"])
def test_attack_catches_replace_one_calibrated_as_zero_out(kind, attack, monkeypatch):
    honest = claim(kind)
    monkeypatch.setattr(Neighboring, "sensitivity_factor", 1)
    assert attack(kind) > 1.2 * honest


def longer(release):
    """One pass over many records, of which the first is attacked."""
    algorithm = GradientADMM(
        step_size=0.01, penalty_weight=30.0, clip_norm=0.01, order="arrival", passes=1,
        release=release, average=False,
    )  # fmt: skip
    return Case(
        algorithm, SquaredLoss(), n=40, p=1, penalty=NoPenalty(), fit_intercept=False,
        budget=Budget(epsilon=3.0, delta=1e-3),
    )  # fmt: skip


def first_record(case, neighbour, n_runs, *, sees_path):
    X, y = np.ones((40, 1)), np.full(40, 2.9)
    y[0] = -2.9 if neighbour else 2.9
    rows = Rows(X, case.coordinates)
    found = np.empty(n_runs)
    with Engine().running() as engine:
        problem = Problem(rows=rows, target=y, engine=engine)
        for i in range(n_runs):
            gate = Gate(case.plan, CryptographicNoise())
            records = np.arange(1 if sees_path else 40)
            start = case.algorithm.start(case.plan, problem)
            state = case.algorithm._through(
                case.plan, problem, gate, start, records, problem.progress
            )
            found[i] = state.x[0, 0]
    return found


@pytest.mark.parametrize("sees_path", [False, True])
def test_attack_catches_an_amplified_figure_where_the_path_is_shown(
    mu_lower_bound, monkeypatch, sees_path
):
    monkeypatch.setattr("skdpadmm.protocol._gate.PATH_ENTRIES", 40)
    case = longer("last")
    amplified, n_runs = claimed_mu(case, 40)[0], 6000 if sees_path else 1500
    assert amplified < 0.7 * case.plan.guarantee().mu
    samples = [first_record(case, other, n_runs, sees_path=sees_path) for other in (False, True)]
    found = mu_lower_bound(*samples)
    if sees_path:
        assert 1.2 * amplified < found <= case.plan.guarantee().mu
    else:
        assert found <= amplified


@pytest.mark.slow
def test_attack_with_many_runs_on_the_first_record_stays_below_its_claim(
    mu_lower_bound, monkeypatch
):
    monkeypatch.setattr("skdpadmm.protocol._gate.PATH_ENTRIES", 40)
    case = longer("last")
    samples = [first_record(case, other, 8000, sees_path=False) for other in (False, True)]
    assert mu_lower_bound(*samples) <= claimed_mu(case, 40)[0]


# Noise and the gate


class SameNoiseInEveryStep(CryptographicNoise):
    def add_gaussian(self, value, scale, stream):
        drawn = super().add_gaussian(value, scale, stream)
        return np.broadcast_to(drawn[:1], drawn.shape).copy()


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_fresh_in_every_step(monkeypatch, kind):
    drawn = []

    class Tap(Gate):
        def path_noise(self, name, n_steps):
            drawn.append(super().path_noise(name, n_steps))
            return drawn[-1]

    monkeypatch.setattr(fitting, "Gate", Tap)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 15)), rng.standard_normal(40)

    def largest_cosine():
        drawn.clear()
        DPAdmmLasso(algorithm=GradientADMM(**KINDS[kind])).fit(X, y)
        noise = np.concatenate(drawn)[:200, :, 0]
        directions = noise / np.linalg.norm(noise, axis=1, keepdims=True)
        return (np.abs(directions @ directions.T) - np.eye(len(directions))).max()

    assert largest_cosine() < 0.97
    monkeypatch.setattr(fitting, "noise_source", lambda *args: SameNoiseInEveryStep())
    assert largest_cosine() > 0.97


def test_an_iterate_before_its_noise_is_in_no_fitted_model(monkeypatch):
    exact = []
    honest = steps_module.NoisySteps._rounded

    def spy(self, value):
        exact.append(honest(self, value))
        return exact[-1]

    monkeypatch.setattr(steps_module.NoisySteps, "_rounded", spy)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), np.arange(40) % 2
    model = DPAdmmLogisticRegression(classes=[0, 1], algorithm=GradientADMM(schedule="stream"))
    model.partial_fit(X, y)
    state = model._arrived.state
    held = np.concatenate(
        [model.coef_.ravel(), model.intercept_, state.x.ravel(), state.multipliers.ravel()]
    )
    assert exact
    assert all(not np.isclose(held[:, None], x[None], rtol=1e-9, atol=0).any() for x in exact)


def test_gate_catches_an_algorithm_that_leaves_steps_out(monkeypatch):
    honest = module.GradientADMM._through

    def short(self, plan, problem, gate, state, records, told):
        return honest(self, plan, problem, gate, state, records[:-1], told)

    monkeypatch.setattr(module.GradientADMM, "_through", short)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), rng.standard_normal(40)
    for schedule in ("cyclic", "stopping"):
        with pytest.raises(PlanViolation, match="times, expected"):
            DPAdmmGeneralizedLasso(algorithm=GradientADMM(schedule=schedule)).fit(X, y)


def test_a_plan_with_less_noise_than_its_guarantee_needs_cannot_be_made():
    plan = DPAdmmLasso(algorithm=GradientADMM()).plan(100, 3)
    path = plan.releases[-1]
    for bad in ({"noise_std": 0.0}, {"noise_std": math.inf}, {"sensitivity": math.inf}):
        with pytest.raises(ValueError, match=r"^Got "):
            dataclasses.replace(plan, releases=(dataclasses.replace(path, **bad),))
    worse = dataclasses.replace(path, guarantee=path.worst_case)
    with pytest.raises(ValueError, match="must add more noise"):
        dataclasses.replace(plan, releases=(worse,))


def test_a_square_image_is_held_back_by_its_smallest_singular_value():
    constraint = LinearConstraint(np.diag([0.1, 1.0, 3.0]))
    model = DPAdmmRidge(
        algorithm=GradientADMM(constraint=constraint),
        fit_intercept=False,
        feature_bounds=(-1, 1),
        target_bounds=(-1, 1),
    )
    plan = model.plan(100, 3)
    settings, path = plan.settings, plan.releases[-1]
    resolvent = constraint.resolvent(settings.step_size * settings.penalty_weight)
    furthest = max(np.linalg.norm(resolvent(unit)) for unit in np.eye(3))
    moved = settings.step_size * 2 * settings.clip_norm * furthest
    assert moved <= path.sensitivity <= moved * (1 + 1e-6)


def test_a_secret_order_is_drawn_once_and_kept_in_every_pass():
    plan = DPAdmmLasso(algorithm=GradientADMM(passes=3)).plan(50, 2)
    gate = Gate(plan, CryptographicNoise())
    records, end = plan.settings.schedule.drawn(gate)
    passes = records.reshape(3, 50)
    assert end == 150
    assert (passes == passes[0]).all()
    assert sorted(passes[0]) == list(range(50))
    again, _ = plan.settings.schedule.drawn(gate)
    assert (again != records).any()


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("n_passes", [1, 2, 3])
def test_the_figures_of_a_cyclic_schedule_are_those_of_its_gaps(n, n_passes):
    schedule = RecordSchedule(
        n_places=n, kind="cyclic", n_passes=n_passes, is_secret=False, is_hidden=True
    )
    for shift in (0.0, 1e-3):
        made = AmplifiedIteration(0.1, 1.2, shift)
        expected = made.slots(np.tile(np.arange(n), n_passes), n)
        np.testing.assert_allclose(schedule.guarantees(made)[1].mu, expected.max(), rtol=1e-12)


def test_gradients_lie_on_the_grid_before_they_get_noise():
    coordinates = declared_coordinates(
        n_features=2,
        fit_intercept=False,
        feature_bounds=(-1, 1),
        target_bounds=(-1, 1),
        has_target_scale=True,
    )
    rows = Rows(np.array([[0.3, 0.7]]), coordinates)
    steps = steps_module.NoisySteps(
        step=gradient_admm_step(splitting_of(NoPenalty(), rows, None), 1.0, 1.0),
        loss=SquaredLoss(),
        cell=0.25,
        noise_on_gradient=True,
    )
    zero = np.zeros((2, 1))
    start = GradientADMMState(x=zero, multipliers=zero, mean_x=zero, mean_multipliers=zero)
    target, bound = np.array([-1.0]), np.array([np.inf])
    end = steps.advance(start, rows.seen(0), target, bound, np.zeros((1, 2, 1)))
    # The gradient is (.3, .7), and the constraint halves the step.
    np.testing.assert_array_equal(end.x[:, 0], [-0.125, -0.375])
