"""Agents that join personal models: their turns, their guarantee, and what stays as it was."""

import math
import pickle
import re
import struct

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skdpadmm import DPPersonalizedClassifier, DPPersonalizedRegressor, privacy_report
from skdpadmm._fitting import gates_by
from skdpadmm.algorithms import PersonalizedCoordinateDescent
from skdpadmm.algorithms import _personalized_defaults as defaults
from skdpadmm.algorithms._personalized_coordinate_descent import _beside_others
from skdpadmm.audit._replay import ReplayingGate
from skdpadmm.ledger import PrivacyLedger
from skdpadmm.privacy import compose
from tests.algorithms import runs
from tests.contract import harness
from tests.contract.harness import SLACK, Recording, length, same_draws

TOWNS = np.resize(["east", "north", "south"], 90)
WEIGHTS = {"east": 1.0, "north": 3.0, "south": 0.0}
HARD = [(1e300, -1e300), (1.7e308, 5e-324), (1e-200, 0.0), (0.7, -0.2)]


def data(n=90, seed=0, n_classes=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    scores = X @ [1.0, -0.5] + 0.3 * rng.standard_normal(n)
    return X, np.digitize(scores, [-0.4, 0.4][: n_classes - 1]) if n_classes else scores


def made(n_classes=0, *, own=None, **changed):
    """An estimator that is fitted to three towns."""
    known = {"epsilon": 4.0, "max_iter": 6, "feature_bounds": (-1, 1), "random_state": 0}
    known |= {"target_bounds": (-2, 2)} if not n_classes else {"classes": range(n_classes)}
    known |= {"trade_off": 3.0, "algorithm": PersonalizedCoordinateDescent(**(own or {}))}
    cls = DPPersonalizedClassifier if n_classes else DPPersonalizedRegressor
    model = cls(**(known | changed))
    X, y = data(n_classes=n_classes)
    if model.agent_column is not None:
        X = pd.DataFrame(X, columns=["a", "b"]).assign(town=TOWNS)
        return model.fit(X, y)
    return model.fit(X, y, agents=TOWNS)


def joining(model, X, y, recording=None, **more):
    """The gate of a join, and the report."""
    recording = Recording() if recording is None else recording
    more = {"epsilon": 2.0, "random_state": 1, "similarity": WEIGHTS} | more
    with recording.watching():
        model.join("west", X, y, **more)
    return recording


CASES = [
    ({}, {}, 0),
    ({"noise": "laplace", "turns": 4}, {}, 0),
    ({"tempered": False}, {"privacy_unit": "agent", "neighboring": "zero_out"}, 3),
    ({"split": "optimal", "turns": 5}, {"privacy_unit": "agent", "fit_intercept": False}, 2),
    ({"turns": 1}, {"neighboring": "zero_out"}, 2),
]


@pytest.mark.parametrize(("own", "params", "n_classes"), CASES)
@same_draws
def test_a_newcomer_releases_no_more_than_planned_whatever_its_rows(own, params, n_classes):
    """Replay: the sensitivity of each turn, given the earlier ones and the models of others."""
    X, y = data(20, 1, n_classes)
    recorded = joining(made(n_classes, own=own, **params), X, y)
    (release,) = recorded.plan.releases
    assert recorded.plan.guarantee().epsilon(1e-5) <= 2.0 * SLACK
    assert recorded.plan.guarantee().epsilon(1e-5) >= 2.0 * 0.999
    # Two rows that replace each other are both within the sensitivity of a row that is zeroed out.
    factor = 2.0 if params.get("neighboring") == "zero_out" else 1.0
    farthest = 0.0
    for row in HARD:
        other, wrong = X.copy(), y.copy()
        other[0], wrong[0] = row, y[0] if n_classes else math.copysign(1e300, row[1])
        if params.get("privacy_unit") == "agent":
            other[:], wrong[:] = row, wrong[0]
        if n_classes:
            wrong[0] = n_classes - 1 - wrong[0]
        replayed = Recording(
            make_gate=lambda i, plan, noise, _: ReplayingGate(plan, noise, recorded.gates[i])
        )
        model = made(n_classes, own=own, **params)
        joining(model, other, wrong, replayed)
        assert replayed.plan == recorded.plan
        assert replayed.trace == recorded.trace
        for one, two in zip(recorded.passages, replayed.passages, strict=True):
            moved = length(two.value - one.value, release.law)
            assert moved <= factor * release.sensitivities[one.turns[0]] * SLACK
            if factor == 2.0 and params.get("privacy_unit") == "agent":
                assert length(one.value) <= release.sensitivities[one.turns[0]] * SLACK
            farthest = max(farthest, moved / release.sensitivities[one.turns[0]])
    assert len(recorded.passages) == len(release.sensitivities)
    assert farthest > 0.05


def test_for_linear_losses_the_claim_is_attained():
    """With a tiny clip every gradient is as long as it may be, in two opposite directions."""
    model, (X, _) = made(own={"clip_norm": 1e-6}, fit_intercept=False), data(20, 1)
    X[0] = 1.0
    y = np.zeros(20)
    y[0] = -1e3
    recorded, other = joining(pickle.loads(pickle.dumps(model)), X, y), -y
    replayed = Recording(
        make_gate=lambda i, plan, noise, _: ReplayingGate(plan, noise, recorded.gates[i])
    )
    joining(model, X, other, replayed)
    (release,), claimed = recorded.plan.releases, recorded.plan.guarantee().mu
    pairs = zip(recorded.passages, replayed.passages, strict=True)
    moved = [np.linalg.norm(two.value - one.value) / release.noise_std for one, two in pairs]
    assert claimed >= np.linalg.norm(moved) >= 0.99 * claimed


@pytest.mark.usefixtures("fixed_entropy")
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_noise_of_a_newcomer_is_as_planned_and_fresh(law):
    own = {"noise": law, "turns": 40}
    X, y = data(20, 1)
    drawn = []
    for label, seed in [("west", None), ("west", None), ("yonder", None), ("west", 0), ("w", 0)]:
        recording, model = Recording(), made(own=own, max_iter=40)
        with recording.watching():
            model.join(label, X, y, random_state=seed)
        drawn.append(np.ravel([passage.unit_noise for passage in recording.passages]))
    noise = np.array(drawn)
    # In units of the standard deviation.
    assert np.square(noise).mean() == pytest.approx(1.0, rel=0.25)
    assert np.abs(np.corrcoef(noise) - np.eye(len(noise))).max() < 0.5


@pytest.mark.parametrize(
    ("tempered", "unit", "n_classes"),
    [(True, "record", 0), (False, "record", 3), (False, "agent", 0)],
)
def test_turns_are_those_of_the_docstring(tempered, unit, n_classes):
    """Gradients at the extrapolated model, steps towards the mean of the others, by a loop."""
    own = {"tempered": tempered, "clip_norm": 0.4, "turns": 7}
    params = {"alpha": 0.05, "privacy_unit": unit, "target_bounds": (-1, 1)}
    if n_classes:
        del params["target_bounds"]
    model = made(n_classes, own=own, **params)
    X, y = data(12, 1, n_classes)
    X, y = 0.9 * X, y if n_classes else np.clip(y, -1, 1)
    recorded = joining(model, X, y, epsilon=50.0)
    facts, A = recorded.plan.facts, np.column_stack([X, np.ones(12)])
    loss, clip = facts.loss, 0.4 * math.sqrt(3)
    shares = np.array([0.25, 0.75, 0.0])
    center = np.tensordot(shares, model._public_models_, axes=1)
    weight = 3.0 * 12 / 30
    largest = loss.smoothness * 3 + 0.05
    momentum, step, pull = 0.0, 1 / (1 + weight * largest), weight
    if tempered:
        # Public rules, which have tests of their own, for it and one more agent without rows.
        both, n_turns = _beside_others(facts), len(recorded.passages)
        noise = defaults.noise_of_agents(both, recorded.plan.releases[0], clip_norm=clip)
        pace = defaults.pace_of_agents(both, facts.coordinates, noise / math.sqrt(n_turns), n_turns)
        momentum, step, pull = pace.momentum[0], pace.step[0], pace.pull[0]
        assert momentum > 0
    before = theta = center
    models, ridge = [], np.array([[0.05], [0.05], [0.0]])
    for passage in recorded.passages:
        v = theta + momentum * (theta - before)
        slopes = runs.slopes(loss, A @ v, y)
        if unit == "record":
            each = [runs.clipped(np.outer(a, s), clip) for a, s in zip(A, slopes, strict=True)]
            exact, size = np.sum(each, axis=0) / clip, 12
        else:
            exact, size = runs.clipped(A.T @ slopes / 12, clip) / clip, 1
        np.testing.assert_allclose(passage.value[0], exact, rtol=0, atol=1e-9)
        noisy = passage.out[0] * clip / size
        before, theta = theta, v + step * (center - v - pull * (noisy + ridge * v))
        models.append(theta)
    coef, intercept = model._joined_models_["west"]
    expected = theta
    if tempered:
        # What is left of the noise of each turn, alone, with the usual curvature.
        apart, usual = np.mean(models[3:], axis=0) - center, defaults.usual_curvature(facts)
        left = 0.0
        for turn in range(7):
            path = [0.0, 0.0]
            for k in range(7):
                v = path[-1] + momentum * (path[-1] - path[-2])
                path.append(v - step * (v + pull * (usual * v + noise[0] * (k == turn))))
            left += 3 * np.mean(path[5:]) ** 2
        left *= 1 + math.sqrt(2 / 3)
        factor = 1 - left / np.square(apart).sum()
        assert 0 < factor < 1
        expected = center + factor * apart
    found = np.concatenate([coef[0].T, np.reshape(intercept, (1, -1))])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_without_noise_a_newcomer_ends_at_the_minimum_beside_the_others():
    own = {"clip_norm": 1e3, "turns": 400, "tempered": False}
    model, (X, y) = made(own=own, max_iter=400), data(40, 1)
    y = np.clip(y, -2, 2)
    with gates_by(lambda fit, *facts: harness.SilentGate(*facts)):
        model.join("west", X, y, epsilon=1e9, similarity=WEIGHTS, random_state=0)
    center = 0.25 * model._public_models_[0] + 0.75 * model._public_models_[1]
    # Targets are in units of half their range.
    A, b = np.column_stack([X, np.ones(40)]), y[:, None] / 2
    w = 3.0 * 1.0
    ridge = np.diag([1e-4, 1e-4, 0.0])
    exact = np.linalg.solve(np.eye(3) + w * (A.T @ A / 40 + ridge), center + w * A.T @ b / 40)
    coef, intercept = model._joined_models_["west"]
    np.testing.assert_allclose(np.append(coef, intercept), 2 * exact[:, 0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_what_others_have_stays_as_it_is_and_predictions_know_the_newcomer(n_classes):
    model, (X, y) = made(n_classes), data(15, 1, n_classes)
    rows, _ = data(30, 2)
    before, kept = dict(vars(model)), pickle.dumps(model)
    expected = model.predict(rows, agents=TOWNS[:30])
    with pytest.raises(ValueError, match="hold no rows in the fit"):
        model.predict(rows, agents=["west"] * 30)
    model.join("west", X, y, random_state=0).join("a", X, -y if not n_classes else y, epsilon=0.5)
    assert {name for name in vars(model) if name not in before} == {"_joined_models_"}
    changed = {name for name, value in before.items() if vars(model)[name] is not value}
    assert changed == {"joined_", "privacy_"}
    np.testing.assert_array_equal(model.predict(rows, agents=TOWNS[:30]), expected)
    loaded = pickle.loads(pickle.dumps(model))
    for label, epsilon in (("west", 1.0), ("a", 0.5)):
        assert model.joined_[label].epsilon() == pytest.approx(epsilon)
        assert model.joined_[label].agent_labels == (label,)
        coef, intercept = model._joined_models_[label]
        scores = rows @ coef[0].T + intercept
        found = model._scores(rows, [label] * 30)
        np.testing.assert_allclose(found, scores, rtol=1e-12)
        again = loaded.predict(rows, agents=[label] * 30)
        np.testing.assert_array_equal(model.predict(rows, agents=[label] * 30), again)
    mixed = np.resize(["west", "east", "a"], 30)
    found = model.predict(rows, agents=mixed)
    for label in ("west", "east", "a"):
        one = model.predict(rows, agents=[label] * 30)
        np.testing.assert_array_equal(found[mixed == label], one[mixed == label])
    # A new fit forgets who came late.
    fresh = model.fit(*data(n_classes=n_classes), agents=TOWNS)
    assert fresh.joined_ == {}
    assert not hasattr(fresh, "_joined_models_")
    assert pickle.dumps(clone(fresh)) == pickle.dumps(clone(pickle.loads(kept)))


@pytest.mark.parametrize("unit", ["record", "agent"])
def test_what_joined_is_in_every_report(unit):
    model = made(epsilon=1.0, random_state=None, privacy_unit=unit)
    before = model.privacy_
    X, y = data(15, 1)
    model.join("west", X, y, epsilon=50.0).join("yonder", X, y, epsilon=50.0, delta=1e-4)
    newcomers = list(model.joined_.values())
    for loaded in (model, pickle.loads(pickle.dumps(model))):
        report, fits = loaded.privacy_, privacy_report(loaded)
        assert report.fits == (before, *newcomers)
        for seen in report.observers:
            own = [each.epsilon(seen.name, 1e-5) for each in report.fits]
            assert report.epsilon(seen.name, 1e-5) == pytest.approx(max(own), rel=1e-9)
            found = [report.epsilon_of(label, seen.name, 1e-5) for label in ("east", "west")]
            assert found == pytest.approx(own[:2], rel=1e-9)
        assert report.delta == 1e-4
        assert report.to_dict()["agent_labels"] == ["east", "north", "south", "west", "yonder"]
        assert [part.report for part in fits.parts] == [before, *newcomers]
        for label in ("west", "yonder"):
            for text in (repr(report), report.to_markdown(), report._repr_html_()):
                assert re.search(f"{label}(&#x27;|') joined later: .50", text)
            for text in (repr(fits), fits.to_markdown(), fits._repr_html_()):
                assert re.search(f"of (&#x27;|'){label}(&#x27;|').*.50", text)
        # Newcomers are agents of the same fit, whatever their labels.
        total = compose(*(each.guarantee() for each in report.fits))
        assert fits.total == total
        assert fits.epsilon() > 50
    seeded = made().join("west", X, y).privacy_
    assert seeded.simulation
    half = made(random_state=None).join("west", X, y, random_state=0)
    assert half.privacy_.simulation
    assert privacy_report(half).total is None


def test_nothing_of_its_rows_is_kept():
    model, (X, y) = made(), data(13, 1)
    canaries = [0.1234567890123, -0.9876543210987, 0.7654321098765]
    X[0], y[0] = canaries[:2], canaries[2]
    model.join("west", X, y)
    assert not model.joined_["west"].simulation
    content = pickle.dumps(model)
    for value in canaries:
        assert not any(struct.pack(layout, value) in content for layout in ("<d", ">d", "<f"))


def test_the_ledger_has_the_cost_of_each_join_before_its_data_are_used(tmp_path):
    path = str(tmp_path / "account.db")
    model, (X, y) = made(ledger=path), data(15, 1)
    assert len(PrivacyLedger(path).entries()) == 1
    model.join("west", X, y, epsilon=0.7)
    assert len(PrivacyLedger(path).entries()) == 2
    other = str(tmp_path / "other.db")
    model.join("yonder", X, y, ledger=other)
    assert (len(PrivacyLedger(path).entries()), len(PrivacyLedger(other).entries())) == (2, 1)
    before = dict(vars(model))
    with (
        pytest.raises(RuntimeError, match="RuntimeError in deliver"),
        gates_by(lambda fit, *facts: harness.FailingGate(*facts)),
    ):
        model.join("far", X, y)
    # It counts as spent, and nothing of it is stored.
    assert len(PrivacyLedger(path).entries()) == 3
    assert all(vars(model)[name] is value for name, value in before.items())


def test_joins_that_make_no_sense_are_refused_and_leave_nothing(tmp_path):
    model, (X, y) = made(ledger=str(tmp_path / "account.db")), data(15, 1)
    model.join("west", X, y)
    n_entries = len(PrivacyLedger(model.ledger).entries())
    kept = pickle.dumps(model)
    wrong = X.copy()
    wrong[3, 1] = math.nan
    cases = [
        ("east", {}, "^Got agent='east', which has a model, expected a new label"),
        ("west", {}, "^Got agent='west', which has a model"),
        ("new", {"epsilon": math.inf}, r"^Got epsilon=inf, expected a float in \(0, inf\)"),
        ("new", {"epsilon": [1.0]}, "^Got epsilon="),
        ("new", {"epsilon": 0.0}, "^Got epsilon="),
        ("new", {"delta": 1.0}, "delta"),
        ("new", {"confidence": 0.0}, "confidence"),
        ("new", {"similarity": [1, 2]}, "similarit"),
        ("new", {"similarity": [0, 0, 0]}, "^Got similarities of shape"),
        ("new", {"similarity": {"east": 1.0}}, "^Got similarity by label .missing"),
        ("new", {"X": wrong}, "NaN"),
        ("new", {"X": X[:, :1]}, "features"),
        ("new", {"y": y[:-1]}, "inconsistent"),
    ]
    for label, changed, message in cases:
        arguments = {"X": X, "y": y} | changed
        with pytest.raises(ValueError, match=message):
            model.join(label, **arguments)
        assert pickle.dumps(model) == kept
    with pytest.raises(TypeError):
        model.join(3, X, y)
    assert len(PrivacyLedger(model.ledger).entries()) == n_entries
    with pytest.raises(NotFittedError):
        clone(model).join("new", X, y)
    with pytest.raises(ValueError, match="with epsilon=inf, expected a private one"):
        made(epsilon=math.inf).join("new", X, y)
    local = made()
    with pytest.raises(ValueError, match="expected PersonalizedCoordinateDescent"):
        local.set_params(algorithm="local-models").join("new", X, y)
    with pytest.raises(ValueError, match="in y that are not among"):
        made(2).join("new", X, np.full(15, 7))


def test_rows_of_a_newcomer_carry_its_label_in_the_column_of_agents():
    model, (X, y) = made(agent_column="town", privacy_unit="agent"), data(15, 1)
    rows = pd.DataFrame(X, columns=["a", "b"])
    with pytest.raises(ValueError, match=r"^Got rows of other agents for agent='west'"):
        model.join("west", rows.assign(town="east"), y)
    model.join("west", rows.assign(town="west"), y)
    model.predict(rows.assign(town=np.resize(["west", "north"], 15)))
    (first, *_) = model.joined_["west"].observers
    assert first.who == model.privacy_.observers[0].who
    assert (first.who[:5], first.unit) == ("town ", "agent")


def test_a_single_agent_can_be_joined_and_predictions_then_ask_whose():
    X, y = data(30)
    model = DPPersonalizedRegressor(target_bounds=(-2, 2), feature_bounds=(-1, 1), random_state=0)
    model.fit(X, y).predict(X)
    model.join(1, X, y, random_state=0)
    with pytest.raises(ValueError, match="Got agents=None for the models of 2 agents"):
        model.predict(X)
    assert model.predict(X, agents=np.resize([0, 1], 30)).shape == (30,)
