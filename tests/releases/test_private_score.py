"""Private scores: the joint sensitivity of their vector, and what is computed from it."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics
from sklearn.calibration import calibration_curve
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.ledger import PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.metrics import _ends_of_ratio, private_score
from skdpadmm.privacy import gaussian_mu
from tests.contract.registry import Chances, Numbers
from tests.releases.conftest import RELATIONS, largest_change, passed

pytestmark = pytest.mark.usefixtures("fixed_entropy")
EXTREME_CHANCES = [
    *([1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.1, 0.9], [1e-300, 1.0], [2.0, -1.0]),
    *([math.nan, math.nan], [math.inf, 0.0], [1e308, 1e308]),
]
EXTREME_NUMBERS = [0.0, 1.0, -1.0, 0.3, 4.0, -4.0, 1e308, -1e308, math.inf, -math.inf, math.nan]


def contributions(neighboring, classes):
    """What each extreme row adds to the vector, and its planned sensitivity."""
    if classes:
        # Labels that the model does not know too.
        cases = [([*x, *[0.0] * len(classes[2:])], y) for x in EXTREME_CHANCES for y in "abcx"]
        model, base, options = Chances(classes), ([1.0] + [0.0] * len(classes[1:]), "a"), {}
    else:
        cases = [([x], y) for x in EXTREME_NUMBERS for y in EXTREME_NUMBERS]
        model, base, options = Numbers(), ([0.5], 0.25), {"target_bounds": (-4.0, 4.0)}

    def vector(*rows):
        X, y = (np.array(column) for column in zip(*rows, strict=True))
        return passed(private_score, model, X, y, 1.0, neighboring=neighboring, **options)

    plan, alone = vector(base)
    rows = [vector(base, case)[1] - alone for case in cases]
    return rows, plan.releases[0].sensitivities[0]


@pytest.mark.parametrize("odd", ["x", None, math.nan, pd.NA, 10**400, b"0", 0.5])
def test_a_label_of_another_type_changes_its_own_row_alone(odd):
    X, known = np.tile([1.0, 0.0], (50, 1)), [0] * 49

    def vector(labels):
        return passed(private_score, Chances((0, 1)), X, labels, 1.0)

    (plan, before), (_, after) = vector([*known, 0]), vector([*known, odd])
    assert np.linalg.norm(after - before) <= plan.releases[0].sensitivities[0]
    # As it is in an array of objects, and as a label of no class.
    for same in (np.array([*known, odd], dtype=object), [*known, 7]):
        np.testing.assert_array_equal(vector(same)[1], after)


def test_a_label_of_no_class_is_wrong_whatever_the_model_predicts():
    class Unknown(Chances):
        def predict(self, X):
            return np.full(len(X), "x")

    X, y = np.full((9, 2), 0.5), ["x"] * 8 + ["a"]
    found = private_score(Unknown(), X, y, math.inf)
    assert found.scores["accuracy"].estimate == found.confusion_matrix.sum() == 0
    assert math.isnan(found.scores["balanced_accuracy"].estimate)
    assert found.scores["balanced_accuracy"][1:3] == (0.0, 1.0)


def test_predictions_are_one_number_for_each_row():
    X = np.linspace(-1, 1, 50)[:, None]
    options = {"scores": ["mean_absolute_error"], "target_bounds": (-1, 1), "random_state": 0}
    one, column, two = (Ridge().fit(X, y) for y in (X[:, 0], X, np.hstack([X, X])))
    found = private_score(column, X, X[:, 0], 1.0, **options)
    assert found.scores == private_score(one, X, X[:, 0], 1.0, **options).scores
    with pytest.raises(ValueError, match="1d array"):
        private_score(two, X, X[:, 0], 1.0, **options)


def test_probabilities_of_one_row_for_all_are_refused():
    class OfTheFirst(Chances):
        def predict(self, X):
            return np.full(len(X), "a")

        def predict_proba(self, X):
            return X[:1]

    with pytest.raises(ValueError, match=r"^Got shape of predict_proba\(X\)=\(1, 2\)"):
        private_score(OfTheFirst(), np.full((9, 2), 0.5), ["a"] * 9, 1.0)


@pytest.mark.parametrize("neighboring", RELATIONS)
@pytest.mark.parametrize("classes", ["", "ab", "abc"])
def test_no_row_changes_the_vector_by_more_than_planned_and_some_by_as_much(neighboring, classes):
    rows, sensitivity = contributions(neighboring, classes)
    assert largest_change(rows, neighboring) <= sensitivity
    # For a regressor no row has the largest moments of errors and of the target under zero-out.
    least = 0.999 if classes or neighboring == "replace_one" else 0.7
    assert largest_change(rows, neighboring) >= least * sensitivity


def test_the_noise_is_planned_for_the_sensitivity():
    options = {"target_bounds": (-1, 1)}
    plan, value = passed(private_score, Numbers(), np.ones((500, 1)), np.zeros(500), 2.0, **options)
    (release,) = plan.releases
    assert release.sensitivities == (1 + 500 * 2.0**-49,)
    noise_std = release.sensitivities[0] / gaussian_mu(2.0, 1e-5)
    assert noise_std < release.noise_std < noise_std * (1 + 1e-11)
    assert release.shape == value.shape == (6,)


def binary(n=3000):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] + rng.normal(size=n) > 0.7, "yes", "no")


def test_without_noise_scores_of_two_classes_are_those_of_scikit_learn():
    X, y = binary()
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    found = private_score(model, X, y, math.inf, log_loss_bound=30.0)
    predicted, chances = model.predict(X), model.predict_proba(X)
    exact = {
        "accuracy": metrics.accuracy_score(y, predicted),
        "balanced_accuracy": metrics.balanced_accuracy_score(y, predicted),
        "log_loss": metrics.log_loss(y, chances),
    }
    estimates = {name: score.estimate for name, score in found.scores.items()}
    assert estimates == pytest.approx(exact, rel=1e-12)
    np.testing.assert_allclose(found.confusion_matrix, metrics.confusion_matrix(y, predicted))
    shares, _ = calibration_curve(y == "yes", chances[:, 1], n_bins=10)
    seen = found.calibration[:, 2] > 0
    np.testing.assert_allclose(found.calibration[seen, 3], shares)
    assert found.calibration[:, 2].sum() == len(y)
    assert not found.privacy_.simulation
    assert "not private" in repr(found)


def test_without_noise_scores_of_many_classes_are_those_of_scikit_learn():
    X, y = load_digits(return_X_y=True)
    X = X / 16
    model = LogisticRegression().fit(X[:900], y[:900])
    # A class without rows does not count, and rare rows have a probability of almost 0.
    kept = y[900:] != 3
    X, y = X[900:][kept], y[900:][kept]
    found = private_score(model, X, y, math.inf, log_loss_bound=700.0)
    predicted = model.predict(X)
    with pytest.warns(match="y_pred contains classes not in y_true"):
        balanced = metrics.balanced_accuracy_score(y, predicted)
    assert found.scores["balanced_accuracy"].estimate == pytest.approx(balanced, rel=1e-12)
    log_loss = metrics.log_loss(y, model.predict_proba(X), labels=range(10))
    assert found.scores["log_loss"].estimate == pytest.approx(log_loss, rel=1e-10)
    matrix = metrics.confusion_matrix(y, predicted, labels=range(10))
    np.testing.assert_allclose(found.confusion_matrix, matrix)


def test_without_noise_scores_of_numbers_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2))
    y = X @ [1.0, 2.0] + rng.standard_cauchy(2000) + 3
    model = Ridge().fit(X, y)
    found = private_score(model, X, y, math.inf, target_bounds=(-5.0, 12.0)).scores
    pair = np.clip(y, -5, 12), np.clip(model.predict(X), -5, 12)
    exact = {
        "r2": metrics.r2_score(*pair),
        "mean_squared_error": metrics.mean_squared_error(*pair),
        "mean_absolute_error": metrics.mean_absolute_error(*pair),
    }
    assert {k: s.estimate for k, s in found.items()} == pytest.approx(exact, rel=1e-11)


def test_the_log_loss_of_a_row_is_clipped():
    X = np.array([[1.0, 0.0], [1.0, 0.0], [0.2, 0.8], [0.2, 0.8]])
    found = private_score(
        Chances(), X, np.array(["a", "b", "b", "x"]), math.inf, log_loss_bound=2.0
    )
    assert found.scores["log_loss"].estimate == pytest.approx((0 + 2 - math.log(0.8) + 2) / 4)
    assert found.scores["accuracy"].estimate == 0.5
    np.testing.assert_allclose(found.confusion_matrix, [[1, 0], [1, 1]])


def test_intervals_hold_the_score_of_the_population():
    X, y = binary(40_000)
    model = LogisticRegression().fit(X[:2000], y[:2000])
    exact = private_score(model, X, y, math.inf, n_bins=3)
    truth, shares = exact.scores, exact.calibration[:, 3]
    rng, held, in_bins = np.random.default_rng(1), [], []
    for seed in range(150):
        rows = rng.choice(len(y), 2000)
        made = private_score(model, X[rows], y[rows], 0.5, n_bins=3, random_state=seed)
        found, (low, high) = made.scores, made.calibration[:, 4:].T
        held.append([s.lower <= truth[name].estimate <= s.upper for name, s in found.items()])
        in_bins.append((low <= shares) & (shares <= high))
    assert np.all(np.mean(held, axis=0) >= 0.9)
    assert np.all(np.mean(in_bins, axis=0) >= 0.9)
    # And those of fewer scores are shorter.
    alone = private_score(model, X, y, 0.1, scores=["accuracy"]).scores
    assert list(alone) == ["accuracy"]
    whole = private_score(model, X, y, 0.1).scores["accuracy"]
    assert alone["accuracy"].noise_std < 0.6 * whole.noise_std


def test_the_interval_of_a_ratio_is_the_least_around_fieller_s_set():
    rng, ratios = np.random.default_rng(0), np.linspace(0, 50, 50_001)
    means, stds = rng.normal([1.0, 0.7], 0.7, size=(200, 2)), rng.uniform(0, 0.6, size=(200, 2))
    for (above, below), (one, other) in zip(np.abs(means), stds, strict=True):
        least, most = _ends_of_ratio(above, below, one**2, other**2, 2.0)
        off = np.abs(above - ratios * below) - 2.0 * np.hypot(one, ratios * other)
        inside = ratios[off <= 0]
        assert max(least, 0.0) == pytest.approx(inside[0], abs=2e-3)
        assert min(most, 50.0) == pytest.approx(inside[-1], abs=2e-3)
    # What no noise explains tells of no ratio.
    assert _ends_of_ratio(1.0, -1.0, 0.01, 0.01, 2.0) == (0.0, math.inf)


def test_an_interval_of_r2_holds_where_noise_hides_the_score_in_most_draws():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(2000, 1))
    y, held, hidden = 0.5 * features[:, 0] + rng.normal(size=2000), [], []
    for seed in range(300):
        found = private_score(
            Numbers(), 0.5 * features, y, 0.1, target_bounds=(-8, 8), random_state=seed
        ).scores["r2"]
        held.append(found.lower <= metrics.r2_score(y, 0.5 * features[:, 0]) <= found.upper)
        hidden.append(math.isnan(found.estimate))
    assert np.mean(hidden) > 0.5
    assert np.mean(held) >= 0.93


def test_the_noise_of_each_score_is_as_stated():
    rng = np.random.default_rng(0)
    X, y = binary()
    classifier, n = LogisticRegression().fit(X, y), 3000
    # A mean far from the middle of the range, and an R2 of 0: the noise of the target counts.
    targets = 2 + 0.5 * rng.normal(size=n)
    cases = [(classifier, X, y, {}), (Numbers(), np.full((n, 1), 2.0), targets, {})]
    cases[1][3]["target_bounds"] = (-3, 3)
    for model, rows, labels, options in cases:
        made = [
            private_score(model, rows, labels, 3.0, random_state=seed, **options).scores
            for seed in range(200)
        ]
        for name in made[0]:
            drawn = np.std([scores[name].estimate for scores in made])
            stated = np.median([scores[name].noise_std for scores in made])
            assert 0.85 < drawn / stated < 1.15, name


def test_what_noise_hides_is_nan_between_ends_that_hold():
    X, y = binary(60)
    model = LogisticRegression().fit(X, y)
    found = private_score(model, X, y, 0.05, random_state=0)
    assert math.isnan(found.scores["balanced_accuracy"].estimate)
    assert found.scores["balanced_accuracy"][1:3] == (0.0, 1.0)
    assert np.isnan(found.calibration[:, 3]).all()
    score = private_score(Numbers(), X, X[:, 0], 0.01, target_bounds=(-4, 4), random_state=0)
    assert math.isnan(score.scores["r2"].estimate)
    assert score.scores["r2"][1:3] == (-math.inf, 1.0)


def test_a_fit_and_its_score_add_up_unless_the_rows_are_others(tmp_path):
    X, y = binary()
    path = str(tmp_path / "study.db")
    public = {"classes": ["no", "yes"], "feature_bounds": (-4, 4)}
    model = DPAdmmLogisticRegression(ledger=f"{path}::train", **public).fit(X[:2000], y[:2000])
    found = private_score(model, X[:2000], y[:2000], 1.0, ledger=f"{path}::train")
    both = math.hypot(*[gaussian_mu(1.0, 1e-5)] * 2)
    assert PrivacyLedger(f"{path}::train").guarantee().mu == pytest.approx(both)
    private_score(model, X[2000:], y[2000:], 1.0, ledger=f"{path}::test")
    PrivacyLedger(path).limit(2.0, 1e-5, disjoint=True)
    assert PrivacyLedger(path).guarantee().mu == pytest.approx(both)
    assert found.privacy_.epsilon() == 1.0
    assert any("guarantee is counted beside this one" in a for a in found.privacy_.assumptions)


class Loud(Numbers):
    """It says which rows it sees, and fails for some."""

    def predict(self, X):
        warnings.warn(f"saw {X[0, 0]}", stacklevel=2)
        if X[0, 0] < 0:
            raise RuntimeError("no")
        return np.divide(X[:, 0], 0.0)


def test_a_release_is_counted_before_the_model_sees_a_row_and_says_nothing_else(tmp_path):
    X, y, path = np.ones((50, 1)), np.ones(50), str(tmp_path / "study.db")
    options = {"target_bounds": (-1, 1), "ledger": path}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        private_score(Loud(), X, y, 1.0, **options)
    assert seen == []
    with pytest.raises(RuntimeError, match="no"):
        private_score(Loud(), -X, y, 1.0, **options)
    spent = PrivacyLedger(path).guarantee().mu
    assert spent == pytest.approx(math.sqrt(2) * gaussian_mu(1.0, 1e-5))
    PrivacyLedger(path).limit(1.6, 1e-5)
    with pytest.raises(PrivacyBudgetExceeded):
        private_score(Loud(), -X, y, 1.0, **options)


def test_scores_of_a_ridge_take_its_own_bounds():
    X = np.random.default_rng(0).uniform(-1, 1, (3000, 2))
    y = X @ [1.0, -1.0]
    model = DPAdmmRidge(feature_bounds=(-1, 1), target_bounds=(-2, 2), epsilon=3.0).fit(X, y)
    found = private_score(model, X, y, 3.0)
    assert found.scores["r2"].estimate > 0.8
    assert "mean_squared_error" in repr(found)
    assert "<table>" in found._repr_html_()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (Chances(), {"scores": ["roc_auc"]}, "AUC is a mean over pairs"),
        (Chances(), {"scores": []}, r"^Got scores=\[\], expected some of"),
        (Chances(), {"scores": "accuracy"}, "^Got scores='accuracy', expected some of"),
        (Numbers(), {"scores": ["balanced_accuracy"]}, r"expected some of \['r2'"),
        (Numbers(), {}, "^Got target_bounds=None, expected two finite numbers"),
        (Numbers(), {"target_bounds": (1, 0)}, r"^Got target_bounds=\(1, 0\)"),
        (Chances(), {"log_loss_bound": math.inf}, "^Got log_loss_bound=inf"),
        (Numbers(), {"target_bounds": (0.0, 1e200)}, "^Got width of bounds=1e"),
        (Chances(), {"n_bins": 0}, "^Got n_bins=0"),
        (Chances(), {"level": 95}, "^Got level=95"),
        (Chances(), {"delta": 0.0}, "^Got delta=0"),
    ],
)
def test_what_has_no_sensitivity_is_refused_before_the_ledger_counts_it(
    model, options, message, tmp_path
):
    path = tmp_path / "study.db"
    X, y = np.full((4, 2), 0.5), np.array(["a"] * 4) if isinstance(model, Chances) else np.ones(4)
    with pytest.raises(ValueError, match=message):
        private_score(model, X, y, 1.0, ledger=str(path), **options)
    assert not path.exists()


def test_a_model_without_probabilities_has_no_log_loss():
    X, y = binary()
    found = private_score(LinearSVC().fit(X, y), X, y, 1.0)
    assert list(found.scores) == ["accuracy", "balanced_accuracy"]
    assert found.calibration is None


def test_twenty_right_answers_are_no_certainty():
    model, chances = Chances("ab"), np.resize([[0.9, 0.1], [0.1, 0.9]], (20, 2))
    options = {"epsilon": 1e4, "delta": 1e-5, "random_state": 0}
    score = private_score(model, chances, np.resize(["a", "b"], 20), **options).scores
    assert score["balanced_accuracy"].estimate > 0.99
    # Of 20 rows, .05 ** (1 / 20) = .86 is a share with which all are right that often.
    assert score["balanced_accuracy"].lower < 0.9
