"""Private bounds: sensitivity of histograms, the threshold of categories, and what is read off."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from scipy.special import ndtr
from sklearn.dummy import DummyRegressor

from skdpadmm import DPAdmmRidge
from skdpadmm.ledger import PrivacyLedger
from skdpadmm.metrics import private_score
from skdpadmm.preprocessing import PublicTableTransformer, _bounds, private_bounds
from skdpadmm.preprocessing._bounds import _counts
from skdpadmm.privacy import compose, gaussian_mu
from tests.contract.harness import SilentGate, gates_by
from tests.releases.conftest import RELATIONS, largest_change, passed

pytestmark = pytest.mark.usefixtures("fixed_entropy")
EXTREMES = [
    *(0.0, -0.0, 1.0, -1.0, 1.5, 2.0**-20, 2.0**-20 * 1.001, 5e-324, 1e308, -1e308),
    *(math.inf, -math.inf, math.nan, None, "word", "7", True, 10**400, -(10**400)),
]


@pytest.mark.parametrize("neighboring", RELATIONS)
def test_no_entry_changes_counts_by_more_than_planned_and_some_by_as_much(neighboring):
    def released(X):
        return passed(private_bounds, np.array(X, dtype=object), 1.0, neighboring=neighboring)

    alone = released([3.25])[1]
    rows = [released([entry, 3.25])[1] - alone for entry in EXTREMES]
    (release,) = released(np.zeros((50, 3)))[0].releases
    (sensitivity,) = release.sensitivities
    # Columns are parts of one vector, and the worst change may happen in all of them at once.
    assert math.sqrt(3) * largest_change(rows, neighboring) == pytest.approx(sensitivity, rel=1e-12)
    noise_std = sensitivity / gaussian_mu(1.0, 1e-5)
    assert noise_std < release.noise_std < noise_std * (1 + 1e-11)


def test_bins_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    spread = 10.0 ** rng.integers(-8, 14, 100)
    x = [*(rng.standard_cauchy(100) * spread), 0.0, 1.0, -2.0, 2.0**41, math.nan, math.inf]
    found, expected = _counts(np.array(x)), [1.0]
    # Each level has negative bins, one for 0, and positive ones that hold their upper end.
    for per_octave, weight in ((64, 0.5), (4, 1.0)):
        last = 60 * per_octave
        own = np.zeros(2 * last + 1)
        for number in x:
            ends = (k for k in range(last) if abs(number) <= 2.0 ** (k / per_octave - 20))
            if not math.isnan(number):
                own[last + int(np.sign(number)) * next(ends, last)] += weight
        expected.extend(own)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("neighboring", RELATIONS)
def test_a_report_and_a_ledger_state_the_relation(neighboring, tmp_path):
    options = {"neighboring": neighboring, "ledger": str(tmp_path / "study.db")}
    bounds = private_bounds(np.arange(50.0), 1.0, **options).privacy_
    model, X, y = DummyRegressor().fit([[0]], [0]), np.zeros((50, 1)), np.zeros(50)
    scores = private_score(model, X, y, 1.0, target_bounds=(-1, 1), **options).privacy_
    for report in (bounds, scores):
        assert report.observers[0].neighboring == neighboring
        assert any("zeroed out" in line for line in report.assumptions) == (
            neighboring == "zero_out"
        )
    kinds = {entry["neighboring"] for entry in PrivacyLedger(options["ledger"]).entries()}
    assert kinds == {neighboring}


def test_a_row_changes_its_own_bins_alone():
    X = np.random.default_rng(0).standard_cauchy((40, 2))
    whole, *parts = (passed(private_bounds, rows, 1.0)[1] for rows in (X, *X[:, None]))
    np.testing.assert_array_equal(whole, np.sum(parts, axis=0))


class Everywhere(SilentGate):
    """Releases one noisy count for every category."""

    count = 0.0

    def deliver(self, *passing):
        return super().deliver(*passing) * 0 + self.count


def threshold_of(n_samples, epsilon, delta, neighboring, columns=("city",)):
    """The noisy count from which a category is listed, found from outside; and the plan."""
    table = pd.DataFrame({name: ["Oslo"] * n_samples for name in columns})
    known = {"categories": columns, "delta": delta, "neighboring": neighboring}
    low, high = 0.0, 1e9
    plan, _ = passed(private_bounds, table, epsilon, **known)
    while high - low > 1e-9 * high:
        Everywhere.count = middle = (low + high) / 2
        with gates_by(lambda fit, *facts: Everywhere(*facts)):
            found = private_bounds(table, epsilon, **known)
        low, high = (low, middle) if found.schema else (middle, high)
    return high, plan


def listed(n_rows, plan, threshold):
    """The probability that a category of so many rows is listed."""
    return float(ndtr((n_rows - threshold) / plan.releases[0].noise_std)) if n_rows else 0.0


@pytest.mark.parametrize(("epsilon", "neighboring"), itertools.product([0.1, 1.0, 5.0], RELATIONS))
def test_which_categories_are_listed_keeps_the_budget_exactly(epsilon, neighboring):
    delta = 1e-4
    threshold, plan = threshold_of(300, epsilon, delta, neighboring)
    many = [1, 2, round(threshold), round(threshold) + 9]
    for n, m in itertools.product(many, [0, *many]):
        # One row goes from the first category to the second, or is removed.
        after = (n - 1, m + (neighboring == "replace_one"))
        laws = []
        for counts in ((n, m), after):
            a, b = (listed(count, plan, threshold) for count in counts)
            laws.append([a * b, a * (1 - b), (1 - a) * b, (1 - a) * (1 - b)])
        for law, other in (laws, laws[::-1]):
            pairs = zip(law, other, strict=True)
            assert sum(max(p - math.exp(epsilon) * q, 0.0) for p, q in pairs) <= delta
    # The report's own curve is the budget, and a category of one row passes rarely enough for it.
    assert plan.guarantee().delta(epsilon) == pytest.approx(delta, rel=1e-6)
    rare = plan.guarantee().weights[1]
    assert listed(1, plan, threshold) <= rare == pytest.approx(0.1 * delta)


@pytest.mark.parametrize("neighboring", RELATIONS)
def test_a_record_in_several_columns_of_categories_is_counted_in_each(neighboring):
    columns, (before, after) = list("abc"), ("Oslo", "Rome")
    row = after if neighboring == "replace_one" else None
    values = []
    for first in (before, row):
        table = pd.DataFrame({name: [first, before, after] for name in columns})
        known = {"categories": columns, "neighboring": neighboring}
        plan, value = passed(private_bounds, table, 1.0, **known)
        values.append(value)
    change = float(np.linalg.norm(values[0] - values[1]))
    assert change == pytest.approx(plan.releases[0].sensitivities[0], rel=1e-12)
    # Each of its categories may be one that nobody else has.
    threshold, plan = threshold_of(300, 1.0, 1e-4, neighboring, columns)
    rare = plan.guarantee().weights[1]
    assert 0.9 * rare < 3 * listed(1, plan, threshold) <= rare == pytest.approx(1e-5)


def test_a_category_at_the_threshold_is_listed_half_of_the_time():
    n = round(threshold_of(300, 1.0, 1e-5, "replace_one")[0])
    table = pd.DataFrame({"city": ["Oslo"] * n + [None] * (300 - n)})
    found = [private_bounds(table, 1.0, categories=["city"]).schema for _ in range(200)]
    assert 60 <= found.count({"city": ["Oslo"]}) <= 140


def test_names_of_categories_are_plain_text_whatever_class_a_row_has():
    class Text(str):
        __slots__ = ("secret",)

    table = np.array([Text("Oslo")] + [np.str_("Oslo"), "Oslo"] * 2000, dtype=object)
    (name,) = private_bounds(table, 3.0, categories=[0]).schema[0]
    assert (name, type(name)) == ("Oslo", str)


def test_numbers_and_categories_share_one_budget(tmp_path):
    table = pd.DataFrame({"age": [20.0, 30.0] * 200, "city": ["Oslo", "Rome"] * 200})
    ledger = str(tmp_path / "study.db")
    first = private_bounds(table, 1.0, categories=["city"], ledger=ledger).privacy_
    assert first.guarantee().delta(1.0) == pytest.approx(1e-5, rel=1e-6)
    assert first.epsilon() == 1.0
    assert PrivacyLedger(ledger).total(1e-5, kind="fixed") == pytest.approx(1.0, rel=1e-9)
    second = private_bounds(table[["age"]], 1.0, ledger=ledger).privacy_
    both = compose(first.guarantee(), second.guarantee())
    assert PrivacyLedger(ledger).guarantee() == both
    # Two such releases compose by privacy loss distributions.
    private_bounds(table, 1.0, categories=["city"], ledger=ledger)
    assert 1.0 < PrivacyLedger(ledger).total(1e-5, kind="fixed") < 3.0


def test_a_simulation_says_so_and_no_privacy_too():
    X = np.arange(50.0)
    assert "random_state=0 fixes the noise" in repr(private_bounds(X, 1.0, random_state=0))
    assert (
        private_bounds(X, 1.0, random_state=0).schema
        == private_bounds(X, 1.0, random_state=0).schema
    )
    assert "not private" in repr(private_bounds(X, math.inf))


def test_columns_of_other_names_share_no_seeded_noise():
    digests = set()
    for names in (["a", "b"], ["b", "a"], ["a", "c"]):
        table = pd.DataFrame(np.zeros((50, 2)), columns=names)
        digests.add(passed(private_bounds, table, 1.0)[0].digest())
    assert len(digests) == 3


def test_without_noise_ranges_hold_the_share_of_rows_and_end_at_bins():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({
        "normal": rng.normal(size=5000),
        "wealth": rng.standard_cauchy(5000) * 1e5,
        "year": rng.integers(2000, 2016, 5000),
        "flag": rng.random(5000) < 0.5,
        "temperature": -rng.uniform(10, 30, 5000),
        "nothing": np.zeros(5000),
        "one": np.ones(5000),
        "huge": np.full(5000, 1e300),
        "city": rng.choice(["Oslo", "Rome", ""], 5000),
        "code": rng.integers(1, 4, 5000),
    })  # fmt: skip
    whole = private_bounds(table, math.inf, categories=["city", "code"])
    found = whole.schema
    assert list(found) == list(table)
    for name, pair in found.items():
        if name not in ("city", "code", "huge"):
            inside = table[name].astype(float).between(*pair).mean()
            assert 0.95 <= inside
    assert 0.95 <= table["normal"].between(*found["normal"]).mean() < 0.975
    assert found["flag"] == (0.0, 1.0)
    assert whole.shares["normal"] == table["normal"].between(*found["normal"]).mean()
    assert 1975 < found["year"][0] <= 2000
    assert 2015 <= found["year"][1] < 2048
    assert found["temperature"][1] < -9
    assert found["nothing"] == (-(2.0**-20), 2.0**-20)
    assert found["one"][1] == 1.0
    assert found["huge"][1] == 2.0**40
    # Entries that no schema can list are left out.
    assert found["city"] == ["Oslo", "Rome"]
    assert found["code"] == [1, 2, 3]
    assert PublicTableTransformer(found).fit_transform(table).shape == (5000, 8 + 2 + 3)


def test_a_range_is_that_of_the_rows_that_are_not_missing():
    y = np.where(np.arange(5000) % 10 < 7, np.nan, np.arange(5000) % 100)
    for epsilon in (1.0, math.inf):
        bounds = private_bounds(y, epsilon, random_state=0)
        low, high = bounds.target_bounds
        assert np.mean((low <= y) & (y <= high)) / 0.3 == pytest.approx(bounds.shares[0], abs=0.03)
        assert bounds.shares[0] >= 0.9


def test_bounds_are_what_estimators_take():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(4000, 2)) * [1, 100], columns=["a", "b"])
    y = 3 * table["a"] + 0.1 * table["b"] + 1000
    by_name, target = private_bounds(table, 1.0), private_bounds(y, 1.0)
    fitted = DPAdmmRidge(feature_bounds=by_name.feature_bounds, target_bounds=target.target_bounds)
    assert fitted.fit(table, y).score(table, y) > 0.8
    lower, upper = private_bounds(table.to_numpy(), 1.0).feature_bounds
    assert lower.shape == upper.shape == (2,)
    model = DPAdmmRidge(feature_bounds=(lower, upper), target_bounds=target.target_bounds)
    assert model.fit(table.to_numpy(), y).score(table.to_numpy(), y) > 0.8
    assert private_bounds(y.tolist(), 1.0, random_state=0).target_bounds == (
        private_bounds(y.to_numpy(), 1.0, random_state=0).target_bounds
    )
    with pytest.raises(ValueError, match=r"^Got columns=2, expected one"):
        _ = by_name.target_bounds


def test_every_kind_of_table_has_the_same_bounds():
    numbers, texts = [1.0, 2.0, None] * 300, ["x", "y", None] * 300
    table = pd.DataFrame({"a": numbers, "c": texts})
    known = {"random_state": 0, "categories": ["c"]}
    schema = private_bounds(table, 1.0, **known).schema
    assert schema["c"] == ["x", "y"]
    polars = pytest.importorskip("polars").DataFrame({"a": numbers, "c": texts})
    assert private_bounds(polars, 1.0, **known).schema == schema
    series, rows = polars["a"], [list(row) for row in zip(numbers, texts, strict=True)]
    target = private_bounds(series, 1.0, random_state=0).target_bounds
    assert target == private_bounds(table["a"], 1.0, random_state=0).target_bounds
    of_list = private_bounds(rows, 1.0, random_state=0, categories=[1]).schema
    assert of_list[1] == ["x", "y"]


def test_columns_that_noise_hides_are_named_and_never_given_a_range():
    table = pd.DataFrame({"age": np.arange(30.0), "city": ["Oslo"] * 30})
    for seed in range(100):
        bounds = private_bounds(table, 0.1, categories=["city"], random_state=seed)
        assert bounds.hidden == ("age", "city")
        assert bounds.schema == {}
    assert "age     no numbers, or hidden by noise" in repr(bounds)
    assert bounds.shares == {}
    with pytest.raises(ValueError, match=r"^Got columns \['age', 'city'\] that noise hides"):
        _ = bounds.feature_bounds
    # Nor is a column without any number.
    assert private_bounds(np.full((500, 1), np.nan), 1.0, random_state=0).hidden == (0,)


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (csr_array(np.eye(3)), {}, "^Got X as csr_array, expected a DataFrame or an array"),
        (np.eye(3), {"coverage": 1.0}, "^Got coverage=1.0, expected"),
        (np.eye(3), {"categories": ["city"]}, r"^Got categories=\['city'\], expected columns"),
        (np.eye(3), {"delta": 0.0}, "^Got delta=0"),
        (np.eye(3), {"epsilon": -1.0}, "^Got epsilon=-1"),
        (np.eye(3), {"neighboring": "add"}, "^Got neighboring='add', expected"),
        (np.ones(1), {"neighboring": "add_remove", "delta": 0.1}, "^Got neighboring='add_remove'"),
        (np.eye(3), {"sampler": "fast"}, "^Got sampler='fast'"),
        (np.array([["2020-01-01"]], dtype="M8[D]"), {}, "expected numbers, strings"),
    ],
)
def test_what_has_no_bounds_is_refused_before_the_ledger_counts_it(X, options, message, tmp_path):
    path = tmp_path / "study.db"
    with pytest.raises(ValueError, match=message):
        private_bounds(X, **{"epsilon": 1.0, "ledger": str(path), **options})
    assert not path.exists()


def test_delta_that_publishes_a_row_is_warned_of():
    with pytest.warns(match="expected delta < 1 / n_samples"):
        private_bounds(np.arange(50.0), 1.0, delta=0.1)


def test_a_range_is_not_cut_for_rows_that_noise_has_cut():
    rng = np.random.default_rng(0)
    # Rows that few bins share, below what stands out of noise.
    values = np.concatenate([rng.uniform(1.0, 2.0, 9600), 2.0 ** np.linspace(3, 30, 400)])
    counts = _counts(values)
    (low, high), share = _bounds._range(counts, 5.0, len(values), 0.95, 1)
    assert high < 8
    assert ((values >= low) & (values <= high)).mean() >= 0.945
    assert share >= 0.945
