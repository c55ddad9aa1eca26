"""Iterations of the user's own: what they are, what they may see, and what plans know of them."""

import dataclasses
import gc
import inspect
import math
from functools import partial

import numpy as np
import pytest

from examples.extending import plot_own_iteration as example
from examples.extending.plot_own_iteration import METHODS, MOMENTUM, RELAXATION, STEP
from skdpadmm import DPAdmmLasso, DPAdmmRidge
from skdpadmm.algorithms import FixedPointIteration, GradientDescent
from skdpadmm.ledger import PrivacyLedger
from skdpadmm.penalties import L1, ElasticNet, SquaredL2
from skdpadmm.privacy import GaussianDP
from tests.algorithms import runs as direct
from tests.algorithms.runs import close, data_for, found, optimum, run, slopes
from tests.contract import test_contract as contract
from tests.contract.registry import BY_ID

PENALTY = ElasticNet(0.02, 0.1)


def naive(name, X, y, loss, clip_norm, noise):
    """The four methods as books have them, one record at a time; the last point."""
    A, p = direct.augmented(X), X.shape[1]
    w = before = np.zeros((p + 1, loss.n_outputs))

    def prox(point):
        return direct.shrunk(point, PENALTY, STEP, p)

    def gradient(z, drawn):
        each = (np.outer(a, slopes(loss, (a @ z)[None], y[[i]])) for i, a in enumerate(A))
        return sum(direct.clipped(g, clip_norm) for g in each) / len(A) + clip_norm * drawn

    for drawn in noise:
        ahead = w + MOMENTUM * (w - before)
        if name == "gradient descent":
            w = prox(w - STEP * gradient(w, drawn))
        elif name == "heavy ball":
            w, before = prox(ahead - STEP * gradient(w, drawn)), w
        elif name == "Nesterov":
            w, before = prox(ahead - STEP * gradient(ahead, drawn)), w
        else:
            z = prox(w)
            w = (1 - 2 * RELAXATION) * w + 2 * RELAXATION * (
                2 * z - w - STEP * gradient(z, drawn) - (z - w)
            )
    if name == "linearised ADMM":
        return prox(w)
    return w + MOMENTUM * (w - before) if name == "Nesterov" else w


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("loss", ["logistic", "three"])
def test_the_methods_of_the_example_are_those_of_books(name, loss):
    """Algorithm 1 with one block: what is noisy is the mean of clipped contributions."""
    loss = direct.LOSSES[loss]
    (X, y), rng = data_for(loss), np.random.default_rng(1)
    noise = 0.1 * rng.normal(size=(6, 4, loss.n_outputs))
    algorithm = METHODS[name].__class__(**{**METHODS[name].get_params(), "clip_norm": 0.3})
    result = run(algorithm, X, y, loss=loss, penalty=PENALTY, max_iter=6, noise=noise)
    close(result.solution.parameters, naive(name, X, y, loss, 0.6, noise), 1e-12)


def test_gradient_descent_of_ones_own_is_that_of_the_package():
    loss = direct.LOSSES["squared"]
    (X, y), noise = data_for(loss), 0.1 * np.random.default_rng(1).normal(size=(6, 4, 1))
    shared = {"loss": loss, "penalty": PENALTY, "max_iter": 6, "noise": noise}
    last = {"momentum": 0.0, "tail_fraction": 1e-9, "step_size": STEP, "clip_norm": 0.3}
    own = FixedPointIteration(update=example.gradient_descent, clip_norm=0.3)
    one, other = (run(each, X, y, **shared) for each in (own, GradientDescent(**last)))
    close(one.solution.parameters, other.solution.parameters, 1e-14)
    assert one.plan.releases == other.plan.releases
    assert one.solution.derivative_bound == other.solution.derivative_bound


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("loss", ["squared", "three"])
def test_without_noise_the_methods_of_the_example_reach_the_optimum(name, loss):
    loss, penalty = direct.LOSSES[loss], L1(0.05) if loss == "squared" else SquaredL2(0.1)
    X, y = data_for(loss)
    algorithm = METHODS[name].__class__(**{**METHODS[name].get_params(), "clip_norm": 1e4})
    result = run(
        algorithm, X, y, loss=loss, penalty=penalty, max_iter=600, gate_class=direct.Silent
    )
    close(found(result), optimum(loss, penalty, X, y), 1e-5)


def test_the_guarantee_is_that_of_the_path_whatever_the_map():
    expanding = FixedPointIteration(update=partial(scaled, factor=-3.0))
    model = DPAdmmRidge(algorithm=expanding, max_iter=30, conditioning=None, scale=None)
    plan = model.plan(1000, 3)
    (release,) = plan.releases
    assert release.sensitivities == (2 * plan.facts.rounding / 1000,) * 30
    mu = math.sqrt(30) * release.sensitivities[0] / release.noise_std
    assert plan.guarantee() == GaussianDP(mu)
    assert plan.guarantee().epsilon(1e-5) == pytest.approx(1.0)
    assert any("know nothing of these rows" in line for line in plan.assumptions)


def scaled(state, gradient, k, prox, factor):
    return factor * state - gradient


def far(state, prox):
    return 1e300 * state


def test_points_beyond_the_range_of_floats_keep_the_sensitivity():
    """What a record adds is clipped wherever a map looks."""
    knobs = {"update": partial(scaled, factor=1.0), "at": far}
    contract.replay_within_sensitivity(dataclasses.replace(BY_ID["own-iteration"], knobs=knobs))


# Plans.


def late(state, gradient, k, prox):
    return state - STEP * gradient * (1 if k < 9 else 2)


def plan_of(**knobs):
    shared = {"max_iter": 10, "conditioning": None, "scale": None}
    return DPAdmmLasso(algorithm=FixedPointIteration(**knobs), **shared).plan(1000, 3)


def test_plans_tell_maps_apart_by_what_they_do_and_not_by_their_names():
    def step(size):
        return lambda state, gradient, k, prox: state - size * gradient

    def same(state, gradient, k, prox):
        return state - 0.1 * gradient

    knobs = [
        {"update": step(0.1)}, {"update": step(0.1 + 1e-5)}, {"update": late},
        {"update": partial(scaled, factor=0.5)}, {"update": partial(scaled, factor=0.6)},
        {"update": step(0.1), "state": np.ones((4, 1))}, {"update": step(0.1), "clip_norm": 0.1},
        {"update": step(0.1), "at": example.consensus}, {"update": same},
    ]  # fmt: skip
    plans = [plan_of(**each) for each in knobs]
    assert len({plan.digest() for plan in plans}) == len(plans)
    for plan, each in zip(plans, knobs, strict=True):
        assert plan == plan_of(**each)
    # A name tells maps apart, too: another digest is no loss.
    assert plans[0].settings.maps == plans[-1].settings.maps


class Counting:
    """A map with a memory."""

    def __init__(self):
        self.calls = 0

    def __call__(self, state, gradient, k, prox):
        self.calls += 1
        return state - STEP / self.calls * gradient


def test_what_a_map_remembers_is_no_part_of_a_fit():
    X, _ = BY_ID["own-iteration"].data()
    update = Counting()
    fits = [
        DPAdmmRidge(algorithm=FixedPointIteration(update=update), random_state=0).fit(X, X[:, 0])
        for _ in range(2)
    ]
    assert update.calls == 0
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"update": lambda s, g, k, prox: s[:2]}, r"shape \(2, 1\) from update in step 0"),
        ({"update": lambda s, g, k, prox: s + (np.inf if k == 7 else 0)}, "not finite .* step 7"),
        ({"update": late, "state": [1.0, 2.0]}, r"shape \(2,\) from state, .*\(4, 1\)"),
        ({"update": late, "state": np.full((1, 1), np.nan)}, "not finite from state"),
        ({"update": late, "state": np.zeros((2, 1, 1)), "at": lambda s, prox: s}, "from at, "),
        ({"update": lambda s, g, k, prox: None}, r"shape \(\) from update in step 0"),
        ({"update": lambda s, g: s}, "positional arguments"),
    ],
)  # fmt: skip
def test_maps_that_fail_are_refused_before_data(knobs, message):
    model = DPAdmmRidge(algorithm=FixedPointIteration(**knobs), max_iter=8)
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(np.full((100, 3), 1e300), np.arange(100.0))
    assert not hasattr(model, "privacy_")


def test_a_map_that_fails_later_leaves_the_model_and_an_entry_of_the_ledger(tmp_path, monkeypatch):
    """What it failed by counts as spent; its own words are not shown."""
    arrived = []

    def fails(state, gradient, k, prox):
        if arrived and k == 5:
            raise RuntimeError(f"got {gradient[0, 0]}")
        return state - STEP * gradient

    ledger = tmp_path / "study.db"
    algorithm = FixedPointIteration(update=fails)
    model = DPAdmmRidge(algorithm=algorithm, max_iter=8, ledger=str(ledger))
    run = FixedPointIteration.run
    monkeypatch.setattr(
        FixedPointIteration, "run", lambda *args: arrived.append(True) or run(*args)
    )
    X = np.random.default_rng(0).uniform(-1, 1, (100, 3))
    with pytest.raises(RuntimeError, match="RuntimeError in fails"):
        model.fit(X, X[:, 0])
    assert not hasattr(model, "coef_")
    assert PrivacyLedger(ledger).total(1e-5, kind="fixed") == pytest.approx(1.0, rel=1e-3)


def reachable(thing):
    """All objects that one refers to, but modules and classes."""
    seen, todo = {}, [thing]
    while todo:
        each = todo.pop()
        if id(each) in seen or inspect.ismodule(each) or inspect.isclass(each):
            continue
        seen[id(each)] = each
        # The module of a function is no part of what it keeps.
        todo += [
            other
            for other in gc.get_referents(each)
            if other is not getattr(each, "__globals__", None)
        ]
    return list(seen.values())


def test_what_maps_are_handed_holds_no_row():
    X, kept = np.random.default_rng(0).uniform(-1, 1, (50, 3)), []

    def update(state, gradient, k, prox):
        kept.append(prox)
        prox(state, 0.1)
        return state - STEP * gradient

    # A deep copy of a function is the function: the list is that of the fit.
    DPAdmmRidge(algorithm=FixedPointIteration(update=update), max_iter=3).fit(X, X[:, 0])
    arrays = [a for prox in kept for a in reachable(prox) if isinstance(a, np.ndarray)]
    assert not any(len(X) in a.shape for a in arrays)
    assert not any(np.shares_memory(a, X) for a in arrays)
