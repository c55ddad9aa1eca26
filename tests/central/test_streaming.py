"""Streams of records: pieces, pickles, what a report says, what is kept, what is refused."""

from __future__ import annotations

import copy
import math
import pickle
import struct

import numpy as np
import pandas as pd
import pytest
from joblib import Parallel, delayed
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import skdpadmm._fitting as fitting
import skdpadmm.algorithms._gradient_admm as module
from skdpadmm import (
    DPAdmmElasticNet,
    DPAdmmGeneralizedLasso,
    DPAdmmHuberRegressor,
    DPAdmmLasso,
    DPAdmmLinearSVC,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
)
from skdpadmm.algorithms import GradientADMM, GradientDescent
from skdpadmm.algorithms.planning._last_iterate import longest_step
from skdpadmm.ledger import LedgerError, PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.protocol import Gate

STREAM = GradientADMM(schedule="stream")
ESTIMATORS = {
    "ridge": DPAdmmRidge(),
    "lasso": DPAdmmLasso(alpha=0.01),
    "elastic net": DPAdmmElasticNet(alpha=0.01),
    "huber": DPAdmmHuberRegressor(),
    "fused": DPAdmmGeneralizedLasso(alpha=0.01),
    "linear svc": DPAdmmLinearSVC(classes=[0, 1]),
    "linear svc of three": DPAdmmLinearSVC(classes=[0, 1, 2]),
    "logistic": DPAdmmLogisticRegression(classes=[0, 1]),
    "multinomial": DPAdmmLogisticRegression(classes=[0, 1, 2]),
}
LEARNED = {"coef_", "intercept_", "n_iter_", "privacy_", "n_features_in_", "n_samples_seen_"}


@pytest.fixture(params=ESTIMATORS)
def estimator(request):
    return clone(ESTIMATORS[request.param]).set_params(algorithm=STREAM, random_state=0)


def data(model, n=50, p=4):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    if is_classifier(model):
        return X, np.arange(n) % len(model.classes if model.classes is not None else [0, 1])
    return X, X[:, 0] + 0.1 * rng.normal(size=n)


def parameters(model):
    return np.append(np.ravel(model.coef_), model.intercept_)


def in_pieces(model, X, y, ends):
    for rows in np.split(np.arange(len(y)), ends):
        if len(rows):
            model.partial_fit(X[rows], y[rows])
    return model


# Pieces


@pytest.mark.parametrize("ends", [[1], [49], [10, 11, 12, 40], list(range(1, 50))], ids=str)
@pytest.mark.parametrize("average", ["auto", True])
def test_pieces_of_any_size_lead_to_the_same_model_bit_for_bit(estimator, ends, average):
    estimator.set_params(algorithm=GradientADMM(schedule="stream", average=average))
    X, y = data(estimator)
    whole = clone(estimator).fit(X, y)
    pieces = in_pieces(estimator, X, y, ends).finalize()
    np.testing.assert_array_equal(parameters(pieces), parameters(whole))
    assert pieces.privacy_ == whole.privacy_
    assert pieces.n_iter_ == whole.n_iter_ == pieces.n_samples_seen_ == whole.n_samples_seen_ == 50
    np.testing.assert_array_equal(pieces.predict(X), whole.predict(X))
    assert set(vars(pieces)) == set(vars(whole))


@pytest.mark.parametrize(
    "algorithm",
    [
        GradientADMM(schedule="stream", noise_at="gradient"),
        GradientADMM(schedule="stream", step_size=3.0),
    ],
    ids=str,
)
def test_pieces_lead_to_the_same_model_with_other_knobs(algorithm):
    model = DPAdmmLasso(algorithm=algorithm, random_state=0)
    X, y = data(model)
    whole = clone(model).fit(X, y)
    pieces = in_pieces(model, X, y, [3, 20]).finalize()
    np.testing.assert_array_equal(parameters(pieces), parameters(whole))


def test_pieces_across_blocks_of_noise_lead_to_the_same_model():
    model = DPAdmmLasso(algorithm=STREAM, random_state=0)
    X, y = data(model, n=9000)
    pieces = in_pieces(clone(model), X, y, [3276, 3277, 6553, 6560])
    np.testing.assert_array_equal(parameters(pieces), parameters(model.fit(X, y)))


def test_a_model_in_between_is_that_of_the_records_so_far(estimator):
    X, y = data(estimator)
    estimator.partial_fit(X[:20], y[:20])
    np.testing.assert_array_equal(
        parameters(estimator), parameters(clone(estimator).fit(X[:20], y[:20]))
    )
    assert estimator.n_samples_seen_ == 20


def test_the_order_of_records_is_that_of_the_data():
    model = DPAdmmRidge(algorithm=STREAM, random_state=0)
    X, y = data(model)
    forth, back = parameters(model.fit(X, y)), parameters(clone(model).fit(X[::-1], y[::-1]))
    assert not np.array_equal(forth, back)


def test_a_pickle_in_the_middle_goes_on_where_it_was(estimator):
    X, y = data(estimator)
    whole = parameters(clone(estimator).fit(X, y))
    estimator.partial_fit(X[:20], y[:20])
    for resumed in (pickle.loads(pickle.dumps(estimator)), copy.deepcopy(estimator)):
        resumed.partial_fit(X[20:], y[20:])
        np.testing.assert_array_equal(parameters(resumed), whole)
        assert resumed.n_samples_seen_ == 50
    # The one that was copied has not moved.
    assert estimator.n_samples_seen_ == 20
    estimator.partial_fit(X[20:], y[20:])
    np.testing.assert_array_equal(parameters(estimator), whole)


def test_a_clone_knows_nothing_of_a_stream(estimator):
    X, y = data(estimator)
    estimator.partial_fit(X[:20], y[:20])
    fresh = clone(estimator)
    assert set(vars(fresh)) == set(estimator.get_params(deep=False))
    np.testing.assert_array_equal(
        parameters(fresh.fit(X, y)), parameters(clone(estimator).fit(X, y))
    )


@pytest.mark.parametrize("convert", [sparse.csr_array, sparse.csc_matrix, np.asfortranarray])
def test_pieces_in_other_containers_lead_to_the_same_model(estimator, convert):
    X, y = data(estimator)
    X[np.abs(X) < 0.5] = 0.0
    expected = parameters(clone(estimator).fit(X, y))
    for rows in (slice(0, 20), slice(20, 50)):
        estimator.partial_fit(convert(X[rows]), y[rows])
    np.testing.assert_allclose(parameters(estimator), expected, rtol=1e-10, atol=1e-10)


def test_frames_keep_their_names():
    model = DPAdmmLasso(
        algorithm=STREAM, random_state=0, feature_bounds={"b": (-3, 3), "a": (-5, 5)}
    )
    X, y = data(model, p=2)
    frame = pd.DataFrame(X, columns=["a", "b"])
    whole = parameters(clone(model).fit(frame, y))
    model.partial_fit(frame[:9], y[:9]).partial_fit(frame[9:], y[9:])
    np.testing.assert_array_equal(parameters(model), whole)
    assert list(model.feature_names_in_) == ["a", "b"]
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(frame[["b", "a"]], y)


def test_the_number_of_threads_changes_no_bit(estimator):
    X, y = data(estimator)
    expected = parameters(clone(estimator).fit(X, y))
    np.testing.assert_array_equal(parameters(estimator.set_params(n_jobs=2).fit(X, y)), expected)


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_a_generator_draws_fresh_noise_for_every_piece(make):
    model = DPAdmmRidge(algorithm=STREAM, random_state=make(0))
    X, y = data(model)
    in_pieces(model, X, y, [20])
    again = in_pieces(DPAdmmRidge(algorithm=STREAM, random_state=make(0)), X, y, [20])
    np.testing.assert_array_equal(parameters(model), parameters(again))
    other = in_pieces(DPAdmmRidge(algorithm=STREAM, random_state=make(0)), X, y, [21])
    assert not np.array_equal(parameters(model), parameters(other))
    assert model.privacy_.simulation


def test_without_a_seed_every_stream_is_fresh():
    X, y = data(DPAdmmRidge())
    models = [in_pieces(DPAdmmRidge(algorithm=STREAM), X, y, [20]) for _ in range(2)]
    assert not np.array_equal(*map(parameters, models))
    assert not models[0].privacy_.simulation


# What a report says


def test_a_report_speaks_of_the_path_and_of_the_end_only_after_it():
    model = DPAdmmLasso(algorithm=STREAM, random_state=0)
    X, y = data(model)
    model.partial_fit(X[:20], y[:20])
    plan = model.plan(50, 4)
    before = model.privacy_
    assert before.if_unseen == ()
    assert "no intermediate state" not in repr(before) + before._repr_html_()
    assert before.epsilon() == pytest.approx(1.0, rel=1e-6)
    assert "GDP" in repr(before)
    model.partial_fit(X[20:], y[20:])
    open_end = model.privacy_
    model.finalize()
    after = model.privacy_
    # What holds whatever was seen is what held before.
    assert after.observers == open_end.observers == before.observers
    assert after.epsilon() == before.epsilon()
    (_, last), (_, average), (_, first) = after.if_unseen
    promised = plan.guarantee()
    assert last.mu == pytest.approx(promised.mu)
    assert last.mu <= promised.mu * (1 + 1e-12)
    assert first.mu < last.mu
    for epsilon in (0.05, 0.5, 1.0):
        assert first.delta(epsilon) < average.delta(epsilon) < last.delta(epsilon)
    for text in (repr(after), after._repr_html_(), str(after.to_dict())):
        assert "intermediate state" in text or "if_unseen" in text


def test_the_figures_of_an_end_are_those_of_that_many_steps():
    model = DPAdmmLasso(algorithm=STREAM, random_state=0)
    X, y = data(model)
    firsts = []
    for n in (1, 2, 10, 50):
        figures = dict(clone(model).fit(X[:n], y[:n]).privacy_.if_unseen)
        plan = model.plan(n, 4)
        path, settings = plan.releases[-1], plan.settings
        ratio = path.sensitivity / path.noise_std
        shift = 2.0**-20 * math.sqrt(5)
        made = module.AmplifiedIteration(ratio, settings.amplification, shift)
        first = figures["the first record, the best position"]
        assert first == made.first(n)
        assert figures["the last record, the worst position"].mu == pytest.approx(made.local().mu)
        average = figures["a record at a random position that is secret"]
        deltas = [made.first(m).delta(0.5) for m in range(1, n + 1)]
        assert average.delta(0.5) == pytest.approx(np.mean(deltas), rel=1e-9)
        firsts.append(first.mu)
    assert firsts == sorted(firsts, reverse=True)
    assert firsts[0] == pytest.approx(made.local().mu)


NOT_AMPLIFIED = {
    "an average": (DPAdmmLasso(), {"average": True}),
    "noise at the gradient": (DPAdmmLasso(), {"noise_at": "gradient"}),
    "a long step": (DPAdmmLasso(), {"step_size": "beyond"}),
    "a clip of several scores": (
        DPAdmmLogisticRegression(classes=[0, 1, 2]),
        {"clip_norm": 0.01, "step_size": 1e-3},
    ),
}


@pytest.mark.parametrize(("model", "knobs"), NOT_AMPLIFIED.values(), ids=NOT_AMPLIFIED)
def test_nothing_is_said_of_an_end_where_no_theorem_is(model, knobs):
    X, y = data(model)
    model = clone(model).set_params(algorithm=STREAM, random_state=0)
    longest = longest_step(model.plan(50, 4).facts)
    honest = {"step_size": longest}
    if is_classifier(model):
        # Of several scores the clip must not bind, which is for the user to ask for.
        honest = {"step_size": 1e-3, "clip_norm": 100.0}
    model.set_params(algorithm=GradientADMM(schedule="stream", **honest))
    assert len(model.fit(X, y).privacy_.if_unseen) == 3
    if knobs.get("step_size") == "beyond":
        knobs = {"step_size": 1.001 * longest}
    model.set_params(algorithm=GradientADMM(schedule="stream", **knobs)).fit(X, y)
    assert model.privacy_.if_unseen == ()
    assert "intermediate state" not in repr(model.privacy_)
    assert model.privacy_.epsilon() == pytest.approx(1.0, rel=1e-6)


def test_the_plan_of_a_stream_is_that_of_one_record():
    model = DPAdmmLasso(algorithm=STREAM)
    assert model.plan(10, 4) == model.plan(10_000, 4)
    plan = model.plan(10, 4)
    assert plan.releases[-1].times is None
    assert "a stream of records" in repr(plan)
    assert any("public" in text and "arrive" in text for text in plan.assumptions)


# What is kept


def test_nothing_is_stored_but_parameters_and_what_was_released(estimator):
    X, y = data(estimator)
    known = set(estimator.get_params(deep=False)) | LEARNED
    if is_classifier(estimator):
        known |= {"classes_"}
    if isinstance(estimator, DPAdmmLogisticRegression):
        known |= {"_derivative_bound", "_doubt", "_score_variance"}
    known |= {"_arrived"}
    estimator.partial_fit(X, y)
    assert set(vars(estimator)) <= known
    estimator.finalize()
    assert set(vars(estimator)) <= known
    # Another algorithm leaves nothing of the stream behind.
    estimator.set_params(algorithm=GradientADMM(release="path")).fit(X, y)
    assert not {"_arrived", "_first_classes", "n_samples_seen_"} & set(vars(estimator))


@pytest.mark.parametrize("compiled", [False, True])
def test_an_average_of_the_path_is_in_no_pickle_but_where_it_is_the_answer(compiled):
    if compiled:
        pytest.importorskip("numba")
    model = DPAdmmLasso(alpha=0.01, random_state=0)
    X, y = data(model)
    means = {}
    for average in (True, False):
        model.set_params(
            algorithm=GradientADMM(schedule="stream", average=average, compiled=compiled)
        )
        kept = pickle.loads(pickle.dumps(clone(model).partial_fit(X, y).finalize()))._arrived.state
        means[average] = np.append(kept.mean_x, kept.mean_multipliers)
    assert means[True].size == 10
    assert means[False].size == 0
    # The very numbers, from every state of the stream.
    model.set_params(algorithm=GradientADMM(schedule="stream", compiled=compiled))
    mean = np.zeros(10)
    for t in range(50):
        state = model.partial_fit(X[t : t + 1], y[t : t + 1])._arrived.state
        mean += 4 / (t + 4) * (np.append(state.x, state.multipliers) - mean)
    content = pickle.dumps(model.finalize())
    assert all(struct.pack("<d", value) in content for value in state.x[:, 0])
    assert not any(struct.pack("<d", value) in content for value in mean[mean != 0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("random_state", [None, 0])
def test_no_value_of_a_canary_row_is_in_the_pickle(estimator, dtype, at_end, random_state):
    X, y = data(estimator)
    X = X.astype(dtype)
    canary = np.array([0.1234567890123, -0.9876543210987, 0.5432109876543, 0.3141592], dtype=dtype)
    X[-1] = X[7] = canary
    values = [*canary]
    if not is_classifier(estimator):
        y[-1] = y[7] = 0.7654321098765
        values.append(y[7])
    estimator.set_params(random_state=random_state)
    in_pieces(estimator, X, y, [5, 10, 49])
    if at_end:
        estimator.finalize()
    content = pickle.dumps(estimator)
    for value in values:
        for layout in ("<d", ">d", "<f", ">f"):
            assert struct.pack(layout, value) not in content
    for word in (b"Philox", b"PCG64", b"MT19937", b"Engine", b"Gate", b"Rows"):
        assert word not in content


def test_a_pickle_does_not_grow_with_the_stream():
    model = DPAdmmLasso(algorithm=STREAM, random_state=0)
    X, y = data(model, n=2000)
    sizes = []
    for rows in (slice(0, 10), slice(10, 2000)):
        sizes.append(len(pickle.dumps(model.partial_fit(X[rows], y[rows]))))
    assert abs(sizes[1] - sizes[0]) < 50


# Failures


BAD = {
    "NaN": lambda X, y: (np.where(X == X[0, 0], np.nan, X), y),
    "columns": lambda X, y: (X[:, :3], y),
    "rows": lambda X, y: (X[1:], y),
    "no rows": lambda X, y: (X[:0], y[:0]),
}


@pytest.mark.parametrize("spoil", BAD.values(), ids=BAD)
def test_a_bad_piece_leaves_the_stream_as_it_was(estimator, spoil):
    X, y = data(estimator)
    untouched = set(vars(estimator))
    if spoil is not BAD["columns"]:
        with pytest.raises(ValueError, match=r"."):
            estimator.partial_fit(*spoil(X[:20], y[:20]))
        assert set(vars(estimator)) == untouched
    estimator.partial_fit(X[:20], y[:20])
    before = dict(vars(estimator))
    with pytest.raises(ValueError, match=r"."):
        estimator.partial_fit(*spoil(X[20:], y[20:]))
    assert vars(estimator).keys() == before.keys()
    assert all(vars(estimator)[name] is before[name] for name in before)
    estimator.partial_fit(X[20:], y[20:])
    np.testing.assert_array_equal(parameters(estimator), parameters(clone(estimator).fit(X, y)))


def test_a_failure_in_the_middle_of_a_piece_stores_nothing(estimator, monkeypatch):
    X, y = data(estimator)
    estimator.partial_fit(X[:20], y[:20])
    before = dict(vars(estimator))

    def fail(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fitting.Gate, "path_noise", fail)
        for action in (estimator.partial_fit, estimator.fit):
            with pytest.raises(KeyboardInterrupt):
                action(X[20:], y[20:])
    assert vars(estimator) == before


def test_a_label_that_was_not_declared_is_refused_and_not_shown():
    model = DPAdmmLogisticRegression(algorithm=STREAM, random_state=0)
    X, y = data(model)
    model.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match="labels in y that are not among classes") as caught:
        model.partial_fit(X, np.where(y == 1, 271828, 0))
    assert "271828" not in str(caught.value)
    assert model.n_samples_seen_ == 50


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 2.0},
        {"delta": 1e-6},
        {"neighboring": "zero_out"},
        {"alpha": 0.3},
        {"feature_bounds": (-1, 1)},
        {"target_bounds": (-1, 1)},
        {"fit_intercept": False},
        {"algorithm": GradientADMM(schedule="stream", step_size=1e-3)},
        {"algorithm": GradientADMM(schedule="stream", average=True)},
        {"algorithm": GradientADMM(schedule="stream", noise_at="gradient")},
        {"random_state": None},
        {"random_state": None, "sampler": "opendp"},
    ],
    ids=str,
)
def test_parameters_that_change_in_the_middle_are_refused(change):
    if change.get("sampler") == "opendp":
        pytest.importorskip("opendp")
    model = DPAdmmLasso(algorithm=STREAM, random_state=0)
    X, y = data(model)
    model.partial_fit(X[:20], y[:20])
    coef, kept = model.coef_, model.get_params()
    model.set_params(**change)
    with pytest.raises(ValueError, match=r"^Got parameters that changed .* begin anew with fit\.$"):
        model.partial_fit(X[20:], y[20:])
    assert model.coef_ is coef
    # With the old ones it goes on, and fit begins anew.
    model.set_params(**{name: kept[name] for name in change}).partial_fit(X[20:], y[20:])
    model.set_params(**change).fit(X, y)


@pytest.mark.parametrize(
    "algorithm",
    [
        "consensus-admm",
        "gradient-admm",
        GradientADMM(),
        GradientADMM(schedule="stopping"),
        GradientADMM(release="path"),
        GradientDescent(),
    ],
    ids=str,
)
def test_without_a_stream_there_is_no_partial_fit(estimator, algorithm):
    estimator.set_params(algorithm=algorithm)
    assert not hasattr(estimator, "partial_fit")
    assert not hasattr(estimator, "finalize")
    with pytest.raises(AttributeError, match="partial_fit"):
        estimator.partial_fit(*data(estimator))
    estimator.set_params(algorithm=STREAM)
    assert hasattr(estimator, "partial_fit")


def test_without_privacy_there_is_no_partial_fit_and_fit_is_exact(estimator):
    X, y = data(estimator)
    estimator.set_params(epsilon=math.inf)
    with pytest.raises(ValueError, match=r"^Got epsilon=inf for partial_fit, .* Use fit\.$"):
        estimator.partial_fit(X, y)
    exact = clone(estimator).set_params(algorithm="consensus-admm").fit(X, y)
    np.testing.assert_array_equal(parameters(estimator.fit(X, y)), parameters(exact))
    with pytest.raises(ValueError, match="without a stream"):
        estimator.finalize()


def has_several_scores(estimator):
    """Whether gradients are clipped by norm, for which there is no amplified figure."""
    return len(getattr(estimator, "classes", None) or ()) > 2


def test_an_end_needs_a_stream_and_may_be_said_again(estimator):
    X, y = data(estimator)
    message = r"^Got finalize without a stream, expected partial_fit before it\.$"
    with pytest.raises(ValueError, match=message):
        estimator.finalize()
    assert estimator.partial_fit(X, y).finalize() is estimator
    once = estimator.privacy_
    assert bool(once.if_unseen) == (not has_several_scores(estimator))
    assert estimator.finalize().privacy_ == once
    # A fit is a stream that has ended already.
    assert clone(estimator).fit(X, y).finalize().privacy_ == once


def test_after_its_end_a_stream_goes_on(estimator):
    X, y = data(estimator)
    whole = clone(estimator).fit(X, y)
    model = clone(estimator)
    for begin in (
        lambda: model.fit(X[:30], y[:30]),
        lambda: clone(model).fit(X[:30], y[:30]),
        lambda: clone(model).partial_fit(X[:30], y[:30]).finalize(),
    ):
        begun = begin()
        assert bool(begun.privacy_.if_unseen) == (not has_several_scores(estimator))
        begun.partial_fit(X[30:], y[30:])
        np.testing.assert_array_equal(parameters(begun), parameters(whole))
        assert begun.n_samples_seen_ == begun.n_iter_ == 50
        assert begun.privacy_.if_unseen == ()
        assert begun.finalize().privacy_ == whole.privacy_
    # A fit begins anew.
    np.testing.assert_array_equal(parameters(model.fit(X, y)), parameters(whole))
    assert model.n_samples_seen_ == 50


def test_a_stream_that_began_as_a_simulation_stays_one():
    model = DPAdmmLasso(algorithm=STREAM, random_state=0)
    X, y = data(model)
    model.partial_fit(X[:20], y[:20]).finalize()
    simulation = model.privacy_.simulation
    assert simulation
    for change in ({"random_state": None}, {"random_state": None, "sampler": "opendp"}):
        with pytest.raises(ValueError, match="parameters that changed"):
            model.set_params(**change).partial_fit(X[20:], y[20:])
        assert model.privacy_.simulation == simulation
    # Nor does fresh noise become one, which would void what was promised of the first records.
    model = DPAdmmLasso(algorithm=STREAM).partial_fit(X[:20], y[:20])
    with pytest.raises(ValueError, match="parameters that changed"):
        model.set_params(random_state=0).partial_fit(X[20:], y[20:])
    assert model.n_samples_seen_ == 20


def test_a_delta_that_is_weak_for_so_many_records_is_said_at_the_end():
    model = DPAdmmLasso(algorithm=STREAM, delta=0.01, random_state=0)
    X, y = data(model, n=150)
    model.partial_fit(X[:50], y[:50]).finalize()
    assert not any("delta" in line for line in model.privacy_.assumptions)
    before = model.partial_fit(X[50:], y[50:]).privacy_
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"^Got delta=0\.01 for n_samples=150, expected"):
            model.finalize()
        lines = [line for line in model.privacy_.assumptions if "n_samples=150" in line]
        assert len(lines) == 1
        assert model.privacy_.assumptions == (*before.assumptions, *lines)
    assert lines[0] in repr(model.privacy_)
    assert model.partial_fit(X[:1], y[:1]).privacy_ == before


def test_what_a_fit_took_to_be_public_stays_in_the_report_of_a_stream():
    model = DPAdmmLogisticRegression(algorithm=STREAM, random_state=0)
    X, y = data(model)
    model.fit(X, y)
    assert any("classes not declared" in line for line in model.privacy_.assumptions)
    model.partial_fit(X, y)
    assert any("classes not declared" in line for line in model.privacy_.assumptions)


# Classes


def test_classes_have_to_be_known_before_the_first_records():
    model = DPAdmmLogisticRegression(algorithm=STREAM, random_state=0)
    X, y = data(model)
    with pytest.raises(ValueError, match=r"^Got partial_fit without classes, .* estimator is made"):
        model.partial_fit(X, y)
    assert not hasattr(model, "classes_")
    # Once is enough; again is no error, in any order and any container.
    model.partial_fit(X[:10], 0 * y[:10], classes=[1, 0])
    np.testing.assert_array_equal(model.classes_, [0, 1])
    for again in (None, [1, 0], [0, 1], np.array([0, 1])):
        model.partial_fit(X[10:20], y[10:20], classes=again)
    with pytest.raises(ValueError, match=r"^Got classes=\[0, 2\], expected those of"):
        model.partial_fit(X, y, classes=[0, 2])
    assert model.n_samples_seen_ == 50
    declared = DPAdmmLogisticRegression(algorithm=STREAM, random_state=0, classes=[0, 1])
    declared.partial_fit(X, y)
    undeclared = clone(model).partial_fit(X, y, classes=[1, 0])
    np.testing.assert_array_equal(parameters(undeclared), parameters(declared))


@pytest.mark.parametrize("first", [None, [0, 1]], ids=["call", "constructor"])
def test_classes_that_are_exchanged_in_the_middle_are_refused(first):
    model = DPAdmmLogisticRegression(algorithm=STREAM, random_state=0, classes=first)
    X, y = data(DPAdmmLogisticRegression())
    model.partial_fit(X[:20], y[:20], classes=[0, 1])
    coef = model.coef_
    for other in ([0, 2], [2, 3], ["no", "yes"]):
        with pytest.raises(ValueError, match=r"^Got classes=.*, expected those of .* \[0, 1\]\."):
            model.set_params(classes=other).partial_fit(X[20:], y[20:])
        assert model.coef_ is coef
        np.testing.assert_array_equal(model.classes_, [0, 1])
    whole = DPAdmmLogisticRegression(algorithm=STREAM, random_state=0, classes=[0, 1]).fit(X, y)
    for same in ([1, 0], None):
        again = copy.deepcopy(model).set_params(classes=same).partial_fit(X[20:], y[20:])
        np.testing.assert_array_equal(parameters(again), parameters(whole))
    model.set_params(classes=["no", "yes"]).fit(X, np.array(["no", "yes"])[y])


def test_classes_of_the_constructor_and_of_a_call_have_to_agree():
    model = DPAdmmLogisticRegression(algorithm=STREAM, random_state=0, classes=[0, 1])
    X, y = data(model)
    with pytest.raises(ValueError, match=r"^Got classes=\[0, 2\], expected those of the constr"):
        model.partial_fit(X, y, classes=[0, 2])
    model.partial_fit(X, y, classes=[1, 0])


def test_a_regressor_has_no_classes():
    model = DPAdmmLasso(algorithm=STREAM)
    with pytest.raises(ValueError, match=r"^Got classes=\[0, 1\] for a regressor"):
        model.partial_fit(*data(model), classes=[0, 1])


def test_labels_may_be_words():
    model = DPAdmmLogisticRegression(algorithm=STREAM, random_state=0)
    X, y = data(model)
    words = np.array(["no", "yes"])[y]
    model.partial_fit(X[:10], words[:10], classes=["no", "yes"]).partial_fit(X[10:], words[10:])
    assert set(model.predict(X)) <= {"no", "yes"}
    assert model.predict_proba(X).shape == (50, 2)


# Public facts


def test_a_penalty_that_is_spread_over_records_is_spread_over_those_that_are_expected():
    for model in (DPAdmmRidge(alpha=10.0), DPAdmmHuberRegressor(alpha=10.0)):
        penalties = []
        for horizon in (100, 10_000):
            model.set_params(algorithm=GradientADMM(schedule="stream", horizon=horizon))
            penalties.append(model.plan(50, 4).facts.penalty)
        assert penalties[0].strength == pytest.approx(100 * penalties[1].strength)
        assert model.plan(50, 4) == model.plan(9, 4)
    model = DPAdmmRidge(algorithm=GradientADMM(schedule="stream", horizon=0))
    for action in (lambda: model.plan(50, 4), lambda: model.fit(*data(model))):
        with pytest.raises(ValueError, match=r"^Got horizon=0, expected an int"):
            action()


@pytest.mark.parametrize(
    ("choice", "message"),
    [({"scale": "private"}, "scale='private'"), ({"conditioning": "private"}, "conditioning=")],
    ids=["scale", "conditioning"],
)
def test_what_looks_at_all_records_in_advance_is_refused_before_data(choice, message):
    model = DPAdmmLasso(algorithm=STREAM, **choice)
    X, y = data(model)
    for action in (lambda: model.plan(50, 4), lambda: model.partial_fit(X, y)):
        with pytest.raises(ValueError, match=f"^Got .*{message}"):
            action()


# With the rest of scikit-learn


@pytest.mark.parametrize("name", ["lasso", "logistic"])
def test_searches_and_pipelines_take_a_stream(name):
    model = clone(ESTIMATORS[name]).set_params(algorithm=STREAM, random_state=0)
    X, y = data(model, n=90)
    search = GridSearchCV(model, {"epsilon": [0.5, 5.0], "algorithm__average": [True, False]}, cv=3)
    search.fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    # The best one was fitted as a stream that has ended.
    best = search.best_estimator_
    assert bool(best.privacy_.if_unseen) != best.algorithm.average
    pipe = make_pipeline(FunctionTransformer(np.tanh), model).fit(X, y)
    assert pipe[-1].n_samples_seen_ == 90


# Accounts


@pytest.fixture
def begun(tmp_path):
    """A stream with an account, and 20 of 50 records."""
    model = DPAdmmRidge(
        algorithm=STREAM, epsilon=1.0, delta=1e-6, ledger=str(tmp_path / "study.db")
    )
    X, y = data(model)
    return model.partial_fit(X[:20], y[:20]), X, y, PrivacyLedger(tmp_path / "study.db")


def test_a_stream_that_goes_on_stays_one_entry_wherever_it_is_kept(begun):
    model, X, y, account = begun
    for start in (20, 30, 40):
        # Only the last of them goes on, as after a restart.
        model = pickle.loads(pickle.dumps(copy.deepcopy(model)))
        model.partial_fit(X[start : start + 10], y[start : start + 10])
    assert [entry["state"] for entry in account.entries()] == ["done"]
    assert account.total(1e-6) == pytest.approx(model.privacy_.epsilon(), rel=1e-9)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_every_copy_of_a_stream_that_goes_on_is_counted(begun, duplicate):
    model, X, y, account = begun
    copies = [duplicate(model) for _ in range(5)]
    for each in copies:
        each.partial_fit(X[20:35], y[20:35])
    assert len(account.entries()) == 5
    assert {entry["state"] for entry in account.entries()} == {"done"}
    # Each goes on under a key of its own.
    for each in copies:
        each.partial_fit(X[35:], y[35:])
    assert len(account.entries()) == 5
    assert len({each._arrived.account for each in copies}) == 5
    # The first of all comes last, with pieces of another size.
    model.partial_fit(X[20:21], y[20:21]).partial_fit(X[21:], y[21:])
    assert len(account.entries()) == 6
    assert account.guarantee().mu == pytest.approx(
        math.sqrt(6) * model.privacy_.guarantee().mu, rel=1e-9
    )


def test_a_copy_of_a_copy_is_counted_too(begun):
    model, X, y, account = begun
    other = copy.deepcopy(model)
    model.partial_fit(X[20:30], y[20:30])
    other.partial_fit(X[20:30], y[20:30])
    third = copy.deepcopy(other)
    for each in (other, third, model):
        each.partial_fit(X[30:], y[30:])
    assert len(account.entries()) == 3


def piece(model, X, y):
    return model.partial_fit(X, y)._arrived.account


def test_copies_in_workers_are_counted(begun):
    model, X, y, account = begun
    keys = Parallel(n_jobs=2)(delayed(piece)(model, X[20:], y[20:]) for _ in range(6))
    assert len(set(keys)) == len(account.entries()) == 6


def test_a_piece_that_failed_is_used_up(begun, monkeypatch):
    model, X, y, account = begun
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "_gate", None)
        with pytest.raises(TypeError):
            model.partial_fit(X[20:], y[20:])
    assert model.n_samples_seen_ == 20
    assert len(account.entries()) == 1
    model.partial_fit(X[20:], y[20:])
    assert len(account.entries()) == 2
    assert model.n_samples_seen_ == 50


def test_a_copy_that_there_is_no_room_for_is_refused_before_its_data(begun):
    model, X, y, account = begun
    account.limit(1.1, 1e-6)
    other = copy.deepcopy(model)
    model.partial_fit(X[20:30], y[20:30])
    before = parameters(other)
    with pytest.raises(PrivacyBudgetExceeded):
        other.partial_fit(X[20:], y[20:])
    np.testing.assert_array_equal(parameters(other), before)
    assert other.n_samples_seen_ == 20
    model.partial_fit(X[30:], y[30:])
    assert len(account.entries()) == 1


def test_a_stream_that_its_account_does_not_know_is_refused(begun, tmp_path, monkeypatch):
    _, X, y, _ = begun
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "a")
    model = DPAdmmRidge(algorithm=STREAM, epsilon=1.0, delta=1e-6, ledger="study.db")
    model.partial_fit(X[:20], y[:20])
    monkeypatch.chdir(tmp_path / "b")
    clone(model).fit(X, y)
    with pytest.raises(LedgerError, match="expected one that reserve gave"):
        model.partial_fit(X[20:], y[20:])
    monkeypatch.chdir(tmp_path / "c")
    with pytest.raises(LedgerError, match="no such file"):
        model.partial_fit(X[20:], y[20:])
    assert model.n_samples_seen_ == 20
    assert list((tmp_path / "c").iterdir()) == []
    monkeypatch.chdir(tmp_path / "a")
    model.partial_fit(X[20:], y[20:])
    assert len(PrivacyLedger("study.db").entries()) == 1


def test_noise_of_a_stream_is_as_planned_and_fresh_in_every_step(monkeypatch):
    drawn = []

    class Tap(Gate):
        def path_noise(self, name, n_steps):
            noise = super().path_noise(name, n_steps)
            drawn.append(noise)
            return noise

    monkeypatch.setattr(fitting, "Gate", Tap)
    for random_state in (None, 0):
        drawn.clear()
        model = DPAdmmLasso(algorithm=STREAM, random_state=random_state)
        X, y = data(model, n=600)
        in_pieces(model, X, y, list(range(1, 100)))
        noise = np.concatenate(drawn)[..., 0]
        assert len(noise) == len(np.unique(noise, axis=0)) == 600
        std = model.plan(1, 4).releases[-1].noise_std
        # 3000 numbers: a standard error of 1.3 %.
        assert noise.std() == pytest.approx(std, rel=0.07)


def test_a_stream_learns():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (8000, 3))
    y = X @ [1.0, -1.0, 0.5] + 0.1 * rng.normal(size=8000)
    model = DPAdmmLasso(
        alpha=1e-3, epsilon=4.0, feature_bounds=(-1, 1), algorithm=STREAM, random_state=0
    )
    scores = [
        model.partial_fit(X[rows], y[rows]).score(X, y) for rows in np.split(np.arange(8000), [50])
    ]
    assert scores[1] > max(scores[0], 0.5)
