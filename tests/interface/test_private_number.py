"""The number of records as a secret: what a fit shows of it, what it costs and who refuses it."""

import math
import pickle
import warnings
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, KFold

from skdpadmm import (
    DPAdmmElasticNet,
    DPAdmmHuberRegressor,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
    DPFedRidge,
    algorithms,
)
from skdpadmm._fitting import PendingFit, gates_by
from skdpadmm._linear_model import Targets
from skdpadmm.audit import audit
from skdpadmm.audit._replay import Gates, RecordingGate, ReplayingGate
from skdpadmm.engine import Engine
from skdpadmm.exceptions import PrivacyWarning, WeakSignalWarning
from skdpadmm.ledger import PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.metrics import private_score
from skdpadmm.model_selection import DPGridSearchCV
from skdpadmm.penalties import LinearConstraint
from skdpadmm.preprocessing import private_bounds
from skdpadmm.privacy import GaussianDP, gaussian_mu
from skdpadmm.protocol import Gate, Plan, PlanViolation
from skdpadmm.records import Basis, Rows, feature_norms, rounding_factor

DELTA = 1e-5
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (600, 3))
Y = X @ [1.0, -2.0, 0.0] + 0.1 * RNG.standard_normal(600)
LABELS = (Y > 0).astype(int)
BOUNDS = {"feature_bounds": (-1, 1), "target_bounds": (-4, 4)}
PRIVATE = {"neighboring": "add_remove", "epsilon": 3.0, "delta": DELTA}
N_RECORDS = "number of records"
MODELS = [
    (DPAdmmRidge, {**BOUNDS}, Y),
    (DPAdmmHuberRegressor, {**BOUNDS, "intervals": True}, Y),
    (DPAdmmElasticNet, {"alpha": 0.01, "algorithm": "gradient-descent"}, Y),
    (DPAdmmLogisticRegression, {"feature_bounds": (-1, 1), "intervals": True}, LABELS),
    (DPAdmmLogisticRegression, {"conditioning": None, "class_weight": {0: 1.0, 1: 2.0},
                                "classes": [0, 1]}, LABELS),
]  # fmt: skip


def recorded(model, X, y):
    """A fit, and its gate."""
    gates = []

    def make_gate(fit, *facts):
        gates.append(RecordingGate(*facts))
        return gates[-1]

    with gates_by(make_gate):
        model.fit(X, y)
    return gates[0]


def released_as(gate):
    """Makes gates that release what that one released."""
    return gates_by(lambda fit, plan, noise, _: ReplayingGate(plan, noise, gate))


@pytest.mark.parametrize(("cls", "params", "y"), MODELS)
@pytest.mark.parametrize("n_left", [599, 300, 2])
def test_a_pickle_is_a_function_of_releases_and_so_of_the_noisy_number(cls, params, y, n_left):
    makes = lambda: cls(**PRIVATE, **params)  # noqa: E731
    one, other = makes(), makes()
    gate = recorded(one, X, y)
    # Records of both classes are left.
    kept = np.sort(np.argsort(y, kind="stable")[np.linspace(0, 599, n_left).astype(int)])
    with released_as(gate):
        other.fit(X[kept], y[kept])
    assert pickle.dumps(other) == pickle.dumps(one)
    assert one.privacy_ == other.privacy_
    n_seen = gate.plan.facts.n_samples
    assert f"n_samples={n_seen}, a noisy count for 5% of the squared budget" in str(one.privacy_)
    assert n_seen == max(round(float(gate.passages[0].out[0])), 1)


@pytest.mark.parametrize(
    ("cls", "params", "y"),
    [
        *MODELS,
        (DPAdmmRidge, {**BOUNDS, "epsilon": 30.0}, Y),
        (DPAdmmLogisticRegression, {"scale": "private", "conditioning": "private"}, LABELS),
    ],
)
def test_what_a_record_adds_to_a_release_depends_on_no_other_record_nor_their_number(
    cls, params, y
):
    model = cls(**{**PRIVATE, **params})
    gate = recorded(model, X, y)

    def released(first, last):
        gates = Gates(lambda i, plan, noise, _: ReplayingGate(plan, noise, gate))
        with gates_by(gates):
            model.fit(X[first:last], y[first:last])
        return gates.gates[0].passages

    # With the last record and without it, among all others and among few.
    fits = [released(*rows) for rows in ((0, 600), (0, 599), (500, 600), (500, 599))]
    bounds = {release.name: max(release.sensitivities) for release in gate.plan.releases}
    for many, rest, few, fewer in zip(*fits, strict=True):
        change = (many.value - rest.value) - (few.value - fewer.value)
        assert np.abs(change).max() <= 1e-6 * bounds[many.name], many.name


@pytest.mark.parametrize(("cls", "params", "y"), MODELS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0])
def test_a_plan_spends_its_budget_whatever_the_number_and_a_twentieth_on_the_count(
    cls, params, y, epsilon
):
    n_classes = {} if y is Y else {"n_classes": 2}
    total = gaussian_mu(epsilon, DELTA)
    for n in (1, 30, 600, 10**6):
        plan = cls(**{**PRIVATE, "epsilon": epsilon}, **params).plan(n, 3, **n_classes)
        count = plan.releases[0]
        assert (count.name, count.sensitivities) == (N_RECORDS, (1.0,))
        assert (1 / count.noise_std / total) ** 2 == pytest.approx(0.05, rel=1e-9)
        assert plan.guarantee().mu <= total * (1 + 1e-12)
        assert plan.guarantee().mu == pytest.approx(total, rel=1e-9)
        squares = [math.hypot(*r.sensitivities) ** 2 / r.noise_std**2 for r in plan.releases]
        assert sum(squares) == pytest.approx(total**2, rel=1e-9)


def test_the_ledger_has_the_whole_cost_before_the_count_and_a_refusal_costs_no_data(tmp_path):
    path = tmp_path / "study.db"
    ledger, seen = PrivacyLedger(path), []
    ledger.limit(100.0, DELTA)
    release = Gate.release

    def looks(gate, name, *value):
        if not seen:
            states = [entry["state"] for entry in ledger.entries()]
            seen.append((name, states, ledger.total(DELTA, kind="fixed")))
        return release(gate, name, *value)

    with mock.patch.object(Gate, "release", looks):
        model = DPAdmmRidge(**PRIVATE, **BOUNDS, ledger=str(path)).fit(X, Y)
    ((name, states, spent),) = seen
    assert (name, states) == (N_RECORDS, ["reserved"])
    assert spent == ledger.total(DELTA, kind="fixed") == pytest.approx(3.0, rel=1e-9)
    assert model.privacy_.epsilon() == pytest.approx(3.0, rel=1e-9)
    # What a fit of other data reserves is the same, with the digest of its plan.
    DPAdmmRidge(**PRIVATE, **BOUNDS, ledger=str(path)).fit(X[:400], Y[:400])
    one, other = ledger.entries()
    assert one["digest"] == other["digest"]
    ledger.limit(4.5, DELTA)
    with (
        mock.patch.object(Gate, "release", side_effect=AssertionError),
        pytest.raises(PrivacyBudgetExceeded),
    ):
        DPAdmmRidge(**PRIVATE, **BOUNDS, ledger=str(path)).fit(X, Y)
    # Two steps lead from a record to another one, so totals with other fits double.
    total = ledger.guarantee(unit="record", neighboring="replace_one")
    assert total == GaussianDP(2 * ledger.guarantee().mu)
    with pytest.raises(ValueError, match="expected one that says something about"):
        ledger.guarantee(unit="record", neighboring="zero_out")


class Known:
    """The same standard normal numbers for every fit, in the order in which they are drawn."""

    simulation = False

    def __init__(self):
        self.rng = np.random.default_rng(5)

    def add_gaussian(self, value, scale, stream):
        return value + scale * self.rng.standard_normal(np.shape(value))


@pytest.mark.parametrize("name", ["consensus-admm", "gradient-descent"])
def test_it_is_the_zero_out_fit_of_the_noisy_number_with_what_the_count_leaves(name, monkeypatch):
    model = DPAdmmRidge(**PRIVATE, **BOUNDS, algorithm=name)
    plan = model.plan(600, 3)
    rest = GaussianDP(gaussian_mu(3.0, DELTA) * math.sqrt(0.95)).epsilon(DELTA)
    zero_out = model.__class__(**{**PRIVATE, "epsilon": rest, "neighboring": "zero_out"}, **BOUNDS,
                               algorithm=name)  # fmt: skip
    alike = zero_out.plan(600, 3)
    assert [r.name for r in plan.releases[1:]] == [r.name for r in alike.releases]
    for one, other in zip(plan.releases[1:], alike.releases, strict=True):
        # But for rounding, whose bound is that of any number of records.
        assert one.noise_std == pytest.approx(other.noise_std, rel=2e-3)
    # A count without noise, and the same noise elsewhere.
    monkeypatch.setattr(PendingFit, "noise", lambda *_: Known())
    monkeypatch.setattr("skdpadmm._fitting.released_count", counted_exactly)
    np.testing.assert_allclose(model.fit(X, Y).coef_, zero_out.fit(X, Y).coef_, rtol=2e-3)


def counted_exactly(n_samples, gate):
    """A planted count, which draws nothing."""
    gate._pass(N_RECORDS)
    return n_samples


def test_warnings_and_the_report_are_about_the_noisy_number():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = DPAdmmRidge(**{**PRIVATE, "epsilon": 0.5}, **BOUNDS, random_state=0)
        gate = recorded(model, X[:30], Y[:30])
    (line,) = [str(w.message) for w in caught if w.category is WeakSignalWarning]
    assert f"n mu / c = {gate.plan.signal.strength:.2g}" in line
    model = DPAdmmRidge(**PRIVATE, **BOUNDS).fit(X, Y)
    assert model.privacy_.releases[0].name == N_RECORDS
    assert "one record more or less" in str(model.privacy_)
    assert "add remove" in str(model.privacy_)
    assert "whose number is private" in str(model.plan(600, 3))


@pytest.mark.parametrize("n", [21, 22])
def test_no_warning_tells_how_many_rows_there_are_for_each_label(n):
    model = DPAdmmLogisticRegression(**PRIVATE, feature_bounds=(-1, 1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X[:n], np.arange(n) % 11)
    assert {w.category for w in caught} <= {WeakSignalWarning, PrivacyWarning}


def test_without_privacy_the_relation_changes_nothing():
    fits = [
        DPAdmmRidge(**{**PRIVATE, "epsilon": math.inf, "neighboring": relation}, **BOUNDS).fit(X, Y)
        for relation in ("add_remove", "zero_out")
    ]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    assert fits[0].privacy_.epsilon() == math.inf


SPLIT = LinearConstraint(A=np.eye(3), B=-np.eye(3))
REFUSED = [
    # It finds an optimum by itself without privacy, and rests on a public number with it.
    {"algorithm": algorithms.GradientADMM(constraint=SPLIT)},
    {"algorithm": algorithms.GradientDescent(batch_fraction=0.5)},
    {"algorithm": algorithms.GradientDescent(schedule="cyclic")},
    {"algorithm": algorithms.GradientDescent(guarantee="last")},
    *[{"algorithm": name} for name in ("averaged-admm", "coordinate-descent", "gradient-admm",
                                       "objective-perturbation", "dual-averaging")],
    {"max_rows_per_person": 3},
]  # fmt: skip


@pytest.mark.parametrize("params", REFUSED, ids=lambda params: repr(params)[:60])
def test_who_needs_a_public_number_refuses_before_data(params):
    model = DPAdmmRidge(**PRIVATE, **BOUNDS, **params)
    persons = {"persons": np.arange(600)} if "max_rows_per_person" in params else {}
    with (
        mock.patch.object(Gate, "__init__", side_effect=AssertionError),
        pytest.raises(ValueError, match="neighboring='add_remove' with"),
    ):
        model.fit(X, Y, **persons)


@pytest.mark.parametrize("n", [30, 599, 600])
def test_public_weights_tell_how_many_there_are_and_are_refused(n):
    model = DPAdmmRidge(**PRIVATE, **BOUNDS, max_weight="public")
    with (
        mock.patch.object(Gate, "__init__", side_effect=AssertionError),
        pytest.raises(ValueError, match="max_weight='public' with neighboring='add_remove'"),
    ):
        model.fit(X[:n], Y[:n], sample_weight=1.0 + np.arange(n))


def test_releases_beside_a_fit_have_a_public_number_and_refuse():
    model = DPAdmmRidge(**PRIVATE, **BOUNDS).fit(X, Y)
    for release in (
        lambda: private_bounds(X, 1.0, neighboring="add_remove"),
        lambda: private_score(model, X, Y, 1.0, neighboring="add_remove"),
    ):
        with (
            mock.patch.object(Gate, "__init__", side_effect=AssertionError),
            pytest.raises(ValueError, match="'zero_out', as the number of rows is public here"),
        ):
            release()


def test_agents_searches_and_more_records_than_rounding_allows_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="neighboring"):
        DPFedRidge(neighboring="add_remove").fit(X, Y)
    model = DPAdmmRidge(**PRIVATE, **BOUNDS)
    with pytest.raises(ValueError, match="delta=0 with neighboring='add_remove'"):
        DPAdmmRidge(**{**PRIVATE, "delta": 0.0}, **BOUNDS).fit(X, Y)
    with pytest.raises(ValueError, match="neighboring='add_remove', expected"):
        DPGridSearchCV(model, {"alpha": [0.1, 1.0]}).fit(X, Y)
    counted = DPAdmmRidge(**PRIVATE, **BOUNDS, ledger=str(tmp_path / "study.db"))
    search = GridSearchCV(counted, {"alpha": [0.1, 1.0]}, cv=KFold(3))
    with pytest.raises(ValueError, match="one record more moves others between folds"):
        PrivacyLedger(tmp_path / "study.db").check(search, X, Y)
    monkeypatch.setattr("skdpadmm._linear_model.LARGEST_COUNT", 500)
    with pytest.raises(ValueError, match=r"expected at most 500 records") as refusal:
        model.fit(X, Y)
    assert "600" not in str(refusal.value)
    with pytest.raises(ValueError, match="8192 columns unless X is sparse"):
        model.set_params(feature_bounds=(-1, 1)).fit(np.zeros((3, 8193)), Y[:3])


def test_a_gate_goes_on_with_a_plan_of_the_same_count_and_budget_alone():
    model = DPAdmmRidge(**PRIVATE, **BOUNDS)
    plan, later = model.plan(100, 3), model.plan(77, 3)
    noise = Known()
    gate = Gate(plan, noise)
    with pytest.raises(PlanViolation, match="Got the release"):
        gate.close()
    gate.release(N_RECORDS, np.array([80.0]))
    other = DPAdmmRidge(**{**PRIVATE, "epsilon": 2.0}, **BOUNDS).plan(77, 3)
    for wrong in (other, replace(later, releases=later.releases[1:])):
        with pytest.raises(PlanViolation, match="of other releases than"):
            gate.replan(wrong)
    gate.replan(later)
    with pytest.raises(PlanViolation, match="for time 2"):
        gate.release(N_RECORDS, np.array([80.0]))
    assert isinstance(gate._plan, Plan)


@pytest.mark.parametrize("method", ["replay", "canaries"])
def test_an_audit_compares_the_claim_at_two_steps(method):
    model = DPAdmmRidge(**{**PRIVATE, "epsilon": 8.0}, max_iter=3, conditioning=None, scale=None)
    report = audit(model, method=method, random_state=0)
    assert not report.is_violation, str(report)


# The last ones have a row that is alone in its block, and of norms, until one more comes.
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("n", "p"), [(41, 3), (1001, 17), (5000, 40), (300, 700)])
def test_what_a_row_adds_is_the_same_bits_wherever_the_row_is(n, p, order):
    rng = np.random.default_rng(n)
    table = np.asarray(rng.uniform(-1.2, 1.2, (n, p)), order=order)
    table[n // 2] = 1e300
    coordinates = DPAdmmRidge(**PRIVATE, **BOUNDS).plan(n, p).facts.coordinates
    coef = rng.standard_normal((p + 1, 2))

    def seen(first):
        rows = Rows(table[first:], coordinates)
        rows.by_row = True
        found = [rows.squared_norm, feature_norms(table[first:], np.arange(p) % 2 == 0)]
        for columns in (coef, coef[:, 0]):
            parts = [rows.scores(block, rows.prepare(columns)) for block in range(rows.n_blocks)]
            found.append(np.concatenate(parts))
        return found

    for first in (1, 2, 3):
        for whole, rest in zip(seen(0), seen(first), strict=True):
            np.testing.assert_array_equal(whole[first:], rest)
    # Up to rounding the products are those of BLAS.
    plain, own = Rows(table, coordinates), Rows(table, coordinates)
    own.by_row = True
    prepared = own.prepare(coef)
    np.testing.assert_allclose(own.scores(0, prepared), plain.scores(0, prepared), rtol=1e-9,
                               atol=1e-9)  # fmt: skip


def test_a_fit_scores_row_by_row_and_plans_for_the_rounding_of_any_number():
    fits = []

    def stop(fit, *facts):
        fits.append(fit)
        raise InterruptedError

    for relation in ("add_remove", "zero_out"):
        with gates_by(stop), pytest.raises(InterruptedError):
            DPAdmmRidge(**{**PRIVATE, "neighboring": relation}, **BOUNDS).fit(X, Y)
    for fit, by_row in zip(fits, (True, False), strict=True):
        plan = replace(fit.planned.plan, facts=replace(fit.planned.plan.facts, conditioning=None))
        with fit.problem(plan, fit.planned.coordinates, None) as problem:
            assert problem.rows.by_row is by_row
    few, many = (DPAdmmRidge(**PRIVATE, **BOUNDS).plan(n, 3).facts.rounding for n in (1, 10**7))
    coordinates = fits[0].planned.coordinates
    assert few == many == rounding_factor(n_samples=2**24, coordinates=coordinates)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("p", [17, 40, 8192])
def test_a_row_that_is_alone_in_its_block_adds_the_same_bits(p, order):
    rng = np.random.default_rng(p)
    table = np.asarray(rng.uniform(-1, 1, (40, p)), order=order)
    model = DPAdmmRidge(**PRIVATE, feature_bounds=(-1.5, 1.3), target_bounds=(-4, 4))
    coordinates = model.plan(40, p).facts.coordinates
    # As a fit has it.
    table = model._pending(table, None, Targets(encoded=np.zeros(40)), None).X
    coef, chosen = rng.standard_normal(p + 1), np.arange(p) != 1
    if p < 1000:
        vectors, ones = np.linalg.qr(rng.standard_normal((p + 1, p + 1)))[0], np.ones(p + 1)
        basis = Basis(vectors=vectors, eigenvalues=ones, loading=ones, spread=1.0, clip_unit=1.0)

    def seen(X):
        rows = Rows(X, coordinates)
        rows.by_row = True
        scores = [rows.scores(block, rows.prepare(coef)) for block in range(rows.n_blocks)]
        found = [rows.squared_norm, feature_norms(X, chosen), np.concatenate(scores)]
        if p < 1000:
            rows = rows.in_basis(basis, Engine().run)
            of_blocks = [rows.seen(block) for block in range(rows.n_blocks)]
            found += [rows.squared_norm, *np.concatenate(of_blocks).T]
        return np.array(found)

    alone = np.hstack([seen(table[i : i + 1]) for i in range(len(table))])
    np.testing.assert_array_equal(seen(table), alone)
