"""Streams of records: pieces, pickles, what a report says, what is kept, what is refused."""

import copy
import math
import pickle
import struct

import numpy as np
import pytest
from sklearn.base import clone, is_classifier

import skdpadmm._fitting as fitting
from skdpadmm import DPAdmmHuberRegressor, DPAdmmLasso, DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import GradientADMM
from skdpadmm.algorithms._last_iterate import longest_non_expansive_step
from skdpadmm.ledger import PrivacyBudgetExceeded, PrivacyLedger
from tests.interface.registry import DEFAULTS, STREAM, assert_alike, parameters

CENTRAL = ["ridge", "fused", "huber", "linear svc", "multinomial"]


@pytest.fixture(params=CENTRAL)
def stream(request):
    """An estimator of a stream, and fifty records."""
    row = DEFAULTS[request.param]
    X, y = row.data(n=50, p=4)
    model = row.make(algorithm=STREAM)
    return (
        model.set_params(classes=list(range(row.n_classes))) if row.n_classes > 1 else model,
        X,
        y,
    )


@pytest.fixture
def lasso():
    return of(DPAdmmLasso(alpha=0.05))


def of(model, **knobs):
    """The same for one estimator."""
    X, y = DEFAULTS["logistic" if is_classifier(model) else "lasso"].data(n=50, p=4)
    return clone(model).set_params(algorithm=STREAM, random_state=0, **knobs), X, y


def in_pieces(model, X, y, ends):
    for rows in np.split(np.arange(len(y)), ends):
        if len(rows):
            model.partial_fit(X[rows], y[rows])
    return model


def assert_same(one, other):
    assert_alike(parameters(one), parameters(other))


# Pieces.


def test_pieces_of_any_size_lead_to_the_same_model(stream):
    model, X, y = stream
    whole = clone(model).fit(X, y)
    pieces = in_pieces(model, X, y, [1, 2, 10, 11, 40])
    assert_same(pieces, whole)
    pieces.finalize()
    assert pieces.privacy_ == whole.privacy_
    assert pieces.n_iter_ == whole.n_iter_ == pieces.n_samples_seen_ == whole.n_samples_seen_ == 50
    assert set(vars(pieces)) == set(vars(whole))


def test_a_copy_in_the_middle_goes_on_where_it_was_and_a_clone_knows_nothing(stream):
    model, X, y = stream
    whole, begun = clone(model).fit(X, y), clone(model).fit(X[:20], y[:20])
    model.partial_fit(X[:20], y[:20])
    assert_same(model, begun)
    for resumed in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert_same(resumed.partial_fit(X[20:], y[20:]), whole)
        assert (resumed.n_samples_seen_, model.n_samples_seen_) == (50, 20)
    assert set(vars(clone(model))) == set(model.get_params(deep=False))
    assert_same(clone(model).fit(X, y), whole)
    # After its end a stream goes on, and a fit is a stream that has ended.
    assert_same(begun.partial_fit(X[20:], y[20:]), whole)
    assert begun.privacy_.if_unseen == ()
    assert begun.finalize().privacy_ == whole.privacy_


# What a report says.


def test_a_report_speaks_of_the_end_only_after_it(lasso):
    model, X, y = lasso
    before = model.partial_fit(X[:20], y[:20]).privacy_
    assert before.if_unseen == ()
    assert "no intermediate state" not in repr(before) + before._repr_html_()
    assert before.epsilon() == pytest.approx(1.0, rel=1e-6)
    open_end = model.partial_fit(X[20:], y[20:]).privacy_
    after = model.finalize().privacy_
    assert model.finalize().privacy_ == after
    # What holds whatever was seen is what held before.
    assert after.observers == open_end.observers == before.observers
    (_, last), (_, average), (_, first) = after.if_unseen
    assert last.mu == pytest.approx(model.plan(50, 4).guarantee().mu)
    for epsilon in (0.05, 0.5, 1.0):
        assert first.delta(epsilon) < average.delta(epsilon) < last.delta(epsilon)
    assert "intermediate state" in repr(after)
    assert "if_unseen" in str(after.to_dict())


@pytest.mark.parametrize(
    ("estimator", "knobs"),
    [
        (DPAdmmLasso(), {"average": True}),
        (DPAdmmLasso(), {"step_size": "beyond"}),
        (DPAdmmLogisticRegression(classes=[0, 1, 2]), {"clip_norm": 0.01, "step_size": 1e-3}),
    ],
)
def test_nothing_is_said_of_an_end_where_no_theorem_is(estimator, knobs):
    model, X, y = of(estimator)
    longest = longest_non_expansive_step(model.plan(50, 4).facts)
    # Of several scores the clip must not bind, which is for the user to ask for.
    several = is_classifier(model)
    honest = {"step_size": 1e-3, "clip_norm": 100.0} if several else {"step_size": longest}
    model.set_params(algorithm=GradientADMM(schedule="stream", **honest))
    assert len(model.fit(X, y).privacy_.if_unseen) == 3
    if knobs.get("step_size") == "beyond":
        knobs = {"step_size": 1.001 * longest}
    model.set_params(algorithm=GradientADMM(schedule="stream", **knobs)).fit(X, y)
    assert model.privacy_.if_unseen == ()
    assert model.privacy_.epsilon() == pytest.approx(1.0, rel=1e-6)


def test_a_delta_that_is_weak_for_so_many_records_is_said_at_the_end():
    model, X, y = of(DPAdmmLasso(delta=0.03))
    model.partial_fit(X[:20], y[:20]).finalize()
    assert not any("delta" in line for line in model.privacy_.assumptions)
    before = model.partial_fit(X[20:], y[20:]).privacy_
    with pytest.warns(UserWarning, match=r"^Got delta=0\.03 for n_samples=50, expected"):
        model.finalize()
    (line,) = (line for line in model.privacy_.assumptions if "n_samples=50" in line)
    assert model.privacy_.assumptions == (*before.assumptions, line)
    assert model.partial_fit(X[:1], y[:1]).privacy_ == before


def test_the_plan_of_a_stream_is_that_of_one_record_and_its_penalty_that_of_the_horizon():
    model, X, y = of(DPAdmmLasso())
    assert model.plan(10, 4) == model.plan(10_000, 4)
    assert model.plan(10, 4).releases[-1].times is None
    for estimator in (DPAdmmRidge(alpha=10.0), DPAdmmHuberRegressor(alpha=10.0)):
        algorithms = [GradientADMM(schedule="stream", horizon=h) for h in (100, 10_000, 0)]
        short, long = (
            clone(estimator).set_params(algorithm=a).plan(50, 4).facts.penalty.strength
            for a in algorithms[:2]
        )
        assert short == pytest.approx(100 * long)
        with pytest.raises(ValueError, match=r"^Got horizon=0, expected an int"):
            clone(estimator).set_params(algorithm=algorithms[2]).fit(X, y)


# What is kept.


def test_an_average_of_the_path_is_in_no_pickle_but_where_it_is_the_answer(lasso):
    model, X, y = lasso
    means = {}
    for average in (True, False):
        model.set_params(algorithm=GradientADMM(schedule="stream", average=average))
        kept = pickle.loads(pickle.dumps(clone(model).partial_fit(X, y).finalize()))._arrived_.state
        means[average] = np.append(kept.mean_x, kept.mean_multipliers)
    assert means[True].size == 10
    assert means[False].size == 0
    mean = np.zeros(10)
    for t in range(50):
        state = model.partial_fit(X[t : t + 1], y[t : t + 1])._arrived_.state
        mean += 4 / (t + 4) * (np.append(state.x, state.multipliers) - mean)
    content = pickle.dumps(model.finalize())
    assert all(struct.pack("<d", value) in content for value in state.x)
    assert not any(struct.pack("<d", value) in content for value in mean[mean != 0])


# Failures.


def test_a_bad_piece_or_an_interrupt_leaves_the_stream_as_it_was(lasso, monkeypatch):
    model, X, y = lasso
    model.partial_fit(X[:20], y[:20])
    before = dict(vars(model))
    with pytest.raises(ValueError, match=r"."):
        model.partial_fit(X[21:], y[20:])

    def fail(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fitting.Gate, "path_noise", fail)
        for action in (model.partial_fit, model.fit):
            with pytest.raises(KeyboardInterrupt):
                action(X[20:], y[20:])
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is before[name] for name in before)
    assert_same(model.partial_fit(X[20:], y[20:]), clone(model).fit(X, y))


# Equal but for the order of columns.
WIDE_FIRST = ([-10, -1, -1, -1], [10, 1, 1, 1])
WIDE_LAST = ([-1, -1, -1, -10], [1, 1, 1, 10])


@pytest.mark.parametrize(
    "change",
    [{"epsilon": 2.0}, {"feature_bounds": WIDE_LAST}, {"random_state": None}],
    ids=str,
)  # fmt: skip
def test_parameters_that_change_in_the_middle_are_refused(change, lasso):
    model, X, y = lasso
    model.set_params(feature_bounds=WIDE_FIRST).partial_fit(X[:20], y[:20])
    coef, kept, simulation = model.coef_, model.get_params(), model.privacy_.simulation
    with pytest.raises(ValueError, match=r"^Got parameters that changed .* begin anew with fit\.$"):
        model.set_params(**change).partial_fit(X[20:], y[20:])
    assert model.coef_ is coef
    assert model.privacy_.simulation == simulation
    # With the old ones it goes on, and fit begins anew.
    model.set_params(**{name: kept[name] for name in change}).partial_fit(X[20:], y[20:])
    model.set_params(**change).fit(X, y)


def test_without_a_stream_there_is_no_partial_fit(stream):
    model, X, y = stream
    for algorithm in ("consensus-admm", GradientADMM(release="path")):
        model.set_params(algorithm=algorithm)
        assert not hasattr(model, "partial_fit")
        message = r"has no partial_fit and no finalize: .*GradientADMM\(schedule='stream'\), or use"
        with pytest.raises(AttributeError, match=message):
            model.finalize()
    model.set_params(algorithm=STREAM, epsilon=math.inf)
    with pytest.raises(ValueError, match=r"^Got epsilon=inf for partial_fit, .* Use fit\.$"):
        model.partial_fit(X, y)
    for action in (model.fit(X, y).finalize, clone(model).set_params(epsilon=1.0).finalize):
        with pytest.raises(ValueError, match="without a stream"):
            action()


# Classes.


def test_classes_are_declared_before_records_and_stay():
    model, X, y = of(DPAdmmLogisticRegression())
    with pytest.raises(ValueError, match=r"^Got partial_fit with classes=None, .*classes=\["):
        model.partial_fit(X, y)
    assert not hasattr(model, "classes_")
    fitted = clone(model).fit(X[:20], y[:20])
    assert any("not declared" in line for line in fitted.privacy_.assumptions)
    model.set_params(classes=[1, 0])
    whole = clone(model).fit(X, y)
    assert_same(fitted.partial_fit(X[20:], y[20:]), whole)
    named = clone(model).set_params(classes=None).partial_fit(X[:20], y[:20], classes=[0, 1])
    assert_same(named.partial_fit(X[20:], y[20:]), whole)
    for learner in (named, of(DPAdmmRidge())[0]):
        with pytest.raises(ValueError, match=r"^Got classes=\[0, 2\], expected those"):
            learner.partial_fit(X[20:], y[20:], classes=[0, 2])
    coef = model.partial_fit(X[:20], y[:20]).coef_
    zeros = np.zeros(30, dtype=int)
    for other, labels in (([0, 2], zeros), ([0, 1, 2], zeros), (["no", "yes"], y[20:])):
        with pytest.raises(ValueError, match=r"^Got (parameters that changed|labels in y)"):
            copy.deepcopy(model).set_params(classes=other).partial_fit(X[20:], labels)
    with pytest.raises(ValueError, match="labels in y that are not among classes") as caught:
        model.partial_fit(X, np.where(y == 1, 271828, 0))
    assert "271828" not in str(caught.value)
    assert model.coef_ is coef
    for again in (None, [0, 1], np.array([0, 1])):
        copied = copy.deepcopy(model).set_params(classes=again)
        assert_same(copied.partial_fit(X[20:], y[20:]), whole)


# Accounts.


@pytest.fixture
def begun(tmp_path):
    """A stream with an account, and 20 of 50 records."""
    model, X, y = of(DPAdmmRidge(delta=1e-6, ledger=str(tmp_path / "study.db")))
    model.set_params(random_state=None)
    return model.partial_fit(X[:20], y[:20]), X, y, PrivacyLedger(tmp_path / "study.db")


def test_every_copy_of_a_stream_that_goes_on_is_counted(begun):
    model, X, y, account = begun
    copies = [copy.deepcopy(model), *(pickle.loads(pickle.dumps(model)) for _ in range(2))]
    copies += [copy.deepcopy(copies[1])]  # A copy of a copy.
    for rows in (slice(20, 35), slice(35, 50)):
        for each in copies:
            each.partial_fit(X[rows], y[rows])
        assert len(account.entries()) == 4
    # The first of all comes last, with pieces of another size.
    model.partial_fit(X[20:21], y[20:21]).partial_fit(X[21:], y[21:])
    assert len(account.entries()) == 5
    mu = math.sqrt(5) * model.privacy_.guarantee().mu
    assert account.guarantee().mu == pytest.approx(mu, rel=1e-9)
    assert {entry["state"] for entry in account.entries()} == {"done"}
    with pytest.raises(ValueError, match="one ledger"):
        model.set_params(ledger=None).partial_fit(X[:1], y[:1])


def test_a_piece_that_failed_is_used_up_and_one_without_room_is_refused(begun, monkeypatch):
    model, X, y, account = begun
    with monkeypatch.context() as patch:
        patch.setattr("skdpadmm._streaming.gate_of", None)
        with pytest.raises(TypeError):
            model.partial_fit(X[20:], y[20:])
    assert (model.n_samples_seen_, len(account.entries())) == (20, 1)
    other = copy.deepcopy(model)
    model.partial_fit(X[20:30], y[20:30])
    assert (model.n_samples_seen_, len(account.entries())) == (30, 2)
    account.limit(1.5, 1e-6)
    with pytest.raises(PrivacyBudgetExceeded):
        other.partial_fit(X[20:], y[20:])
    assert other.n_samples_seen_ == 20
    model.partial_fit(X[30:], y[30:])
    assert len(account.entries()) == 2


# Dual averaging, whose noise cancels.


@pytest.fixture
def averaging(stream):
    model, X, y = stream
    return model.set_params(algorithm="dual-averaging", random_state=0), X, y


def test_dual_averaging_takes_pieces_of_any_size_of_every_loss(averaging):
    model, X, y = averaging
    whole = clone(model).fit(X, y)
    assert_same(clone(model).partial_fit(X, y), whole)
    pieces = in_pieces(clone(model), X, y, [1, 2, 40])
    assert (pieces.n_samples_seen_, whole.n_samples_seen_) == (50, 50)
    assert pieces.privacy_ == whole.privacy_ == pieces.finalize().privacy_
    assert whole.privacy_.if_unseen == ()
    assert whole.privacy_.epsilon() == pytest.approx(1.0, rel=1e-6)
    assert np.isfinite(parameters(pieces)[0]).all()


def test_dual_averaging_refuses_persons_and_other_parameters_in_the_middle():
    model, X, y = of(DPAdmmLasso())
    model.set_params(algorithm="dual-averaging").partial_fit(X[:20], y[:20])
    for change in ({"alpha": 2.0}, {"epsilon": 2.0}, {"random_state": None}):
        with pytest.raises(ValueError, match=r"^Got parameters that changed"):
            copy.deepcopy(model).set_params(**change).partial_fit(X[20:], y[20:])
    with pytest.raises(ValueError, match="a stream protects single rows"):
        clone(model).set_params(max_rows_per_person=2).fit(X, y, persons=np.arange(50) // 2)


def test_a_ledger_counts_each_copy_of_dual_averaging(tmp_path):
    model, X, y = of(DPAdmmRidge(delta=1e-6, ledger=str(tmp_path / "study.db")))
    model.set_params(algorithm="dual-averaging", random_state=None).partial_fit(X[:20], y[:20])
    copied = pickle.loads(pickle.dumps(model))
    for each in (model, copied):
        each.partial_fit(X[20:], y[20:])
    account = PrivacyLedger(tmp_path / "study.db")
    assert len(account.entries()) == 2
    assert account.guarantee().mu == pytest.approx(math.sqrt(2) * model.privacy_.guarantee().mu)


def test_zeros_of_a_lasso_stay_zeros_in_a_stream():
    model, _, _ = of(DPAdmmLasso(alpha=0.05, epsilon=5.0))
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 6))
    y = X[:, 0] - X[:, 1] + 0.1 * rng.standard_normal(4000)
    model.set_params(algorithm="dual-averaging", feature_bounds=(-1, 1), target_bounds=(-3, 3))
    coef = model.fit(X, y).coef_
    assert (coef[:2] != 0).all()
    assert (coef[2:] == 0).any()
