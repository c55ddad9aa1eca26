"""Limits against references: no privacy, one agent, an agent for each row, no noise."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.linear_model import QuantileRegressor

from skdpadmm import (
    DPAdmmHuberRegressor,
    DPAdmmLinearSVC,
    DPAdmmQuantileRegressor,
    DPDecentralizedClassifier,
    DPDecentralizedRegressor,
    _fitting,
)
from skdpadmm.algorithms import ConsensusADMM, FederatedADMM, _agent_blocks
from skdpadmm.losses import SmoothedPinball
from skdpadmm.network import TOPOLOGIES
from tests.interface.registry import DEFAULTS, ROWS, all_pairs, parameters

INF = {"epsilon": math.inf}


def comparable(coef, intercept):
    """Parameters without what is free: the intercepts of all classes may move together."""
    intercept = np.ravel(intercept)
    centre = intercept.mean() if len(intercept) > 1 else 0.0
    return np.append(np.ravel(coef), intercept - centre)


def assert_close(model, expected, atol=1e-6):
    found = comparable(model.coef_, model.intercept_)
    wanted = comparable(expected.coef_, expected.intercept_)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=atol)


# Without privacy.


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name].counterpart])
def test_without_privacy_an_estimator_is_scikit_learns(name):
    X, y = ROWS[name].data()
    # The name of an algorithm stands for the optimum, an object for its own iterations.
    by_name = {"algorithm": type(ROWS[name].make())().algorithm, **INF}
    for fit_intercept in (True, False):
        reference = ROWS[name].counterpart(60).set_params(fit_intercept=fit_intercept).fit(X, y)
        # A bound of rows has no effect there.
        bound = {"fit_intercept": fit_intercept, "row_norm": None if fit_intercept else 0.1}
        model = ROWS[name].make(**bound, **by_name).fit(X, y)
        assert_close(model, reference)
        assert ROWS[name].n_classes == 1 or np.all(model.predict(X) == reference.predict(X))


@pytest.mark.parametrize("name", [n for n in DEFAULTS if "class" in n or "logistic" in n])
def test_without_privacy_weights_of_classes_are_scikit_learns(name):
    row, weights = DEFAULTS[name], {0: 0.5, 1: 4.0}
    X, y = row.data()
    reference = row.counterpart(60).set_params(class_weight=weights).fit(X, y)
    classes = list(range(row.n_classes))
    assert_close(row.make(classes=classes, class_weight=weights, **INF).fit(X, y), reference)


def by_first_feature(X, y):
    return np.where(X[:, 0] > 0, "right", "left")


@pytest.mark.parametrize(("name", "unit"), [("fed lasso", "agent"), ("network", "record")])
def test_without_privacy_no_partition_graph_or_trust_changes_the_answer(name, unit):
    X, y = ROWS[name].data()
    row = DEFAULTS[name]
    expected = row.counterpart(60).fit(X, y)
    knobs = {"n_agents": None, "privacy_unit": unit} | INF
    changes = [{"partition": p} for p in ("quantity", "dirichlet", "sorted", by_first_feature)]
    changes += [{"n_agents": 1}, {"n_agents": 3, "epsilon": [math.inf] * 3}]
    if row.family == "federated":
        changes += [{"participation": 1.0}, {"adversary": "model"}]
    else:
        knobs["topology"] = "complete"
        changes += [{"topology": graph, "n_agents": 16} for graph in TOPOLOGIES]
    for changed in changes:
        model = row.make(**(knobs | changed)).fit(X, y)
        assert_close(model, expected)
        assert model.n_messages_ == getattr(model, "consensus_error_", 0) == 0


def hinge(margin, width=1.0):
    parabola = (1 - margin) ** 2 / (2 * width)
    below = np.where(margin <= 1 - width, 1 - margin - width / 2, parabola)
    return np.where(margin >= 1, 0.0, below)


def huber(r, threshold=0.6):
    return np.where(np.abs(r) <= threshold, r**2 / 2, threshold * np.abs(r) - threshold**2 / 2)


def mean_loss(loss, scores, y):
    """The loss of a docstring, from scores of shape (n, K)."""
    if loss == "squared_error":
        return np.mean((y - scores[:, 0]) ** 2) / 2
    if loss == "huber":
        return np.mean(huber(y - scores[:, 0]))
    if loss == "smoothed_hinge":
        labels = np.arange(2)[1:] if scores.shape[1] == 1 else np.arange(scores.shape[1])
        return np.mean(hinge((2 * (y[:, None] == labels) - 1) * scores).sum(axis=1))
    if scores.shape[1] == 1:
        scores = np.column_stack([np.zeros(len(y)), scores])
    return -np.mean(log_softmax(scores, axis=1)[np.arange(len(y)), y])


def assert_minimum(value, at, n=60):
    """No direction lowers a convex objective."""
    rng, best = np.random.default_rng(1), value(at)
    for size in (1e-1, 1e-2, 1e-4):
        for _ in range(n):
            assert value(at + size * rng.standard_normal(at.shape)) >= best - 1e-12


LOSSES = [
    (DPDecentralizedRegressor, "squared_error", "ridge"),
    (DPDecentralizedRegressor, "huber", "ridge"),
    (DPDecentralizedClassifier, "log_loss", "logistic"),
    (DPDecentralizedClassifier, "log_loss", "multinomial"),
    (DPDecentralizedClassifier, "smoothed_hinge", "logistic"),
    (DPDecentralizedClassifier, "smoothed_hinge", "multinomial"),
]
# L1 part and squared part of the strength.
PENALTIES = {"l2": (0.0, 0.08), "l1": (0.08, 0.0), "elasticnet": (0.024, 0.056), None: (0.0, 0.0)}


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize(("cls", "loss", "name"), LOSSES)
def test_without_privacy_a_network_minimises_the_objective_of_its_docstring(
    cls, loss, name, penalty
):
    X, y = ROWS[name].data(n=160)
    model = cls(loss=loss, penalty=penalty, alpha=0.08, l1_ratio=0.3, topology="ring", **INF)
    model.fit(X, y)
    l1, l2 = PENALTIES[penalty]

    def value(w):
        coef, intercept = w[:, :-1], w[:, -1]
        strength = l1 * np.abs(coef).sum() + l2 * np.sum(coef**2) / 2
        return mean_loss(loss, X @ coef.T + intercept, y) + strength

    assert_minimum(value, np.column_stack([np.atleast_2d(model.coef_), np.ravel(model.intercept_)]))


@pytest.mark.parametrize(("threshold", "alpha"), [(0.3, 10.0), (1.35, 1e-4)])
def test_huber_regression_minimises_its_objective(threshold, alpha):
    X, y = ROWS["ridge"].data(n=200)
    model = DPAdmmHuberRegressor(huber_threshold=threshold / 3, alpha=alpha, **INF).fit(X, y)

    def value(w):
        r = y - X @ w[:-1] - w[-1]
        return 2 * huber(r, threshold).sum() + alpha * w[:-1] @ w[:-1]

    assert_minimum(value, np.append(model.coef_, model.intercept_))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("quantile", [0.5, 0.9])
def test_quantile_regression_minimises_its_objective_close_to_that_of_scikit_learn(
    quantile, fit_intercept
):
    X, y = ROWS["ridge"].data(n=200)
    params = {"quantile": quantile, "alpha": 0.02, "fit_intercept": fit_intercept}
    exact = QuantileRegressor(**params).fit(X, y)

    def value(model, loss):
        return loss.value(model.predict(X), y).mean() + 0.02 * np.abs(model.coef_).sum()

    gaps = []
    for smoothing in (0.1, 0.01, 0.001):
        model = DPAdmmQuantileRegressor(smoothing=smoothing, **params, **INF).fit(X, y)
        # Undeclared bounds are [-3, 3].
        loss, sharp = (SmoothedPinball(quantile, 3 * width) for width in (smoothing, 1e-12))

        def smoothed(w, loss=loss):
            scores = X @ w[:3] + (w[3] if fit_intercept else 0.0)
            return loss.value(scores, y).mean() + 0.02 * np.abs(w[:3]).sum()

        assert_minimum(smoothed, np.append(model.coef_, model.intercept_)[: 3 + fit_intercept])
        gaps.append(value(model, sharp) - value(exact, sharp))
        assert -1e-9 < gaps[-1] < 3 * smoothing / 8
    assert gaps[-1] < 1e-5


@pytest.mark.parametrize(
    ("name", "width", "C"), [("logistic", 0.2, 1.0), ("multinomial", 1.0, 0.1)]
)
def test_linear_svc_minimises_its_objective(name, width, C):
    X, y = ROWS[name].data(n=150)
    model = DPAdmmLinearSVC(C=C, smoothing=width, **INF).fit(X, y)
    labels = np.arange(ROWS[name].n_classes)[ROWS[name].n_classes == 2 :]
    signs = 2.0 * (y[:, None] == labels) - 1

    def value(w):
        W = w.reshape(len(labels), -1)
        losses = hinge(signs * (X @ W[:, :-1].T + W[:, -1]), width)
        return 0.5 * np.square(W[:, :-1]).sum() + C * losses.sum()

    found = np.column_stack([model.coef_, model.intercept_]).ravel()
    cold = minimize(value, np.zeros_like(found), method="L-BFGS-B", tol=1e-14)
    assert value(found) <= cold.fun * (1 + 1e-8)


# One agent, and as many agents as rows: the same noise for the same plan.


class SameNoise:
    """Noise that depends on nothing but the position of a release, and is that of no agent."""

    simulation = True

    def add_gaussian(self, value, scale, stream):
        shape = value.shape[1:] if value.ndim == 3 else value.shape
        return value + scale * np.random.default_rng(stream).standard_normal(shape)


@pytest.fixture
def same_noise(monkeypatch):
    monkeypatch.setattr(_fitting, "noise_source", lambda *arguments: SameNoise())


PAIRS = {"ridge": "fed ridge", "lasso": "fed lasso", "elastic net": "fed elastic net",
         "logistic": "fed logistic", "multinomial": "fed logistic"}  # fmt: skip


def assert_a_federation_is_the_curator(name, *, step="auto", relaxation=0.5, atol=1e-9, **knobs):
    federation = {k: knobs.pop(k) for k in ("n_agents", "adversary", "privacy_unit") if k in knobs}
    X, y = ROWS[name].data(n=120)
    knobs = {"epsilon": 3.0, "feature_bounds": (-1, 1), "max_iter": 20} | knobs
    if name == "multinomial":
        knobs["classes"] = [0, 1, 2]
    one = ROWS[PAIRS[name]].make(
        algorithm=FederatedADMM(local_step=step, relaxation=relaxation),
        **federation, **knobs,
    )  # fmt: skip
    other = ROWS[name].make(
        algorithm=ConsensusADMM(record_step=step, relaxation=relaxation), **knobs
    )
    n_classes = {"n_classes": ROWS[name].n_classes} if ROWS[name].n_classes > 1 else {}
    plans = [model.plan(120, 3, **n_classes) for model in (one, other)]
    federated, central = plans
    assert federated.guarantee().mu == pytest.approx(central.guarantee().mu, rel=1e-9)
    assert federated.settings.step_size == pytest.approx(central.settings.step_size, rel=1e-12)
    assert federated.settings.clip_norm == pytest.approx(central.settings.clip_norm, rel=1e-12)
    for a, b in zip(federated.releases, central.releases, strict=True):
        assert (a.sensitivities, a.shape) == (b.sensitivities, b.shape)
        assert a.noise_std == pytest.approx(b.noise_std, rel=1e-12)
    found, expected = parameters(one.fit(X, y)), parameters(other.fit(X, y))
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
    return one.privacy_, other.privacy_


@pytest.mark.parametrize(
    ("name", "conditioning", "step", "adversary"),
    all_pairs(PAIRS, ["private", None], ["exact", "linearized"], ["server", "sums", "model"]),
)
def test_one_agent_with_all_rows_is_the_central_algorithm(
    name, conditioning, step, adversary, same_noise
):
    reports = assert_a_federation_is_the_curator(
        name, step=step, conditioning=conditioning, n_agents=1, adversary=adversary,
        relaxation={"server": 0.5, "sums": 0.2, "model": 0.8}[adversary],
    )  # fmt: skip
    for observer in ("server", "sums", "model"):
        assert reports[0].epsilon(observer) == pytest.approx(reports[1].epsilon(), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "step", "conditioning", "neighboring"),
    [
        ("ridge", "exact", None, "zero_out"),
        ("lasso", "linearized", "private", "replace_one"),
        ("elastic net", "exact", "private", "replace_one"),
        ("logistic", "exact", "private", "replace_one"),
        ("multinomial", "linearized", None, "zero_out"),
    ],
)
def test_an_agent_for_each_row_is_the_central_algorithm(
    name, step, conditioning, neighboring, same_noise, monkeypatch
):
    knobs = {"step": step, "conditioning": conditioning, "n_agents": 120, "adversary": "model"}
    assert_a_federation_is_the_curator(name, neighboring=neighboring, **knobs)
    # Agents solve their problems to the end, records in a fixed number of steps: more of them here.
    monkeypatch.setattr(_agent_blocks, "WARM_STEPS", 50)
    assert_a_federation_is_the_curator(name, privacy_unit="agent", max_iter=8, **knobs)
