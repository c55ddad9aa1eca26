"""What the guides and the README show is what the code does."""

import contextlib
import io
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn import config_context
from sklearn.metrics import balanced_accuracy_score, d2_tweedie_score
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.utils.fixes import parse_version

from examples.extending.plot_heavy_ball import HeavyBall
from skdpadmm import (
    DPAdmmLogisticRegression,
    DPAdmmRidge,
    DPDecentralizedRegressor,
    DPFedRidge,
    DPPersonalizedRegressor,
)
from skdpadmm.model_selection import DPGridSearchCV
from skdpadmm.privacy import (
    GaussianDP,
    NegativeBinomialTrials,
    PoissonSubsampledGaussian,
    compose,
    gaussian_mu,
    guarantee_from_dict,
    round_up,
)

pytestmark = pytest.mark.usefixtures("fixed_entropy")
ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def text_of(guide):
    return (ROOT / "docs" / "user_guide" / f"{guide}.rst").read_text(encoding="utf-8")


def blocks(guide, language="python"):
    found = re.findall(rf"\.\. code-block:: {language}\n\n((?:   .*\n|\n)+)", text_of(guide))
    return [textwrap.dedent(block).strip() for block in found]


def run(code, names):
    """What the code prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "guide", "exec"), names)
    return printed.getvalue()


def claims(block):
    """Every expression with a figure or a text behind it."""
    lines = [line.split("  # ") for line in block.splitlines() if line[:1].strip()]
    pairs = [pair for pair in lines if len(pair) == 2 and " = " not in pair[0]]
    return [(code, text) for code, text in pairs if not text.startswith("for each")]


CODE = r"(?m)^( *)\.\. code-block:: python\n\n((?:\1   .*\n|\n)+)"
# The code of the index is that of the README.
PAGES = ("getting_started", "choosing", "statisticians", "researchers", "engineers")


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_first_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / f"{page}.rst").read_text(encoding="utf-8")
    found = re.findall(CODE, text)
    names, printed = {}, ""
    for _, block in found:
        printed += run(textwrap.dedent(block), names)
    assert found
    if page == "getting_started":
        score = float(re.search(r"^(\d\.\d+)$", printed, re.MULTILINE)[1])
        assert score == pytest.approx(0.89, abs=0.1)
        assert printed.endswith("UndeclaredBoundsWarning WeakSignalWarning\n")


WRITTEN = [*ROOT.glob("docs/*.rst"), *ROOT.glob("docs/user_guide/*.rst")]


@pytest.mark.parametrize("page", sorted(WRITTEN), ids=lambda page: page.stem)
def test_code_fits_its_column(page):
    found = re.findall(CODE, page.read_text(encoding="utf-8"))
    for block in (textwrap.dedent(block) for _, block in found):
        compile(block, str(page), "exec")
        assert max(map(len, block.splitlines())) <= 82


@pytest.mark.parametrize(
    ("guide", "n_claims", "off"),
    [
        ("pictures", 8, 0.6),
        ("intervals", 4, 0.0),
        pytest.param("model_selection", 3, 0.0, marks=pytest.mark.slow),
        pytest.param("study", 3, 0.0, marks=pytest.mark.slow),
        pytest.param("auditing", 8, 0.0, marks=pytest.mark.slow),
    ],
)
def test_a_guide_says_what_its_code_gives(guide, n_claims, off, tmp_path, monkeypatch):
    if guide == "pictures":
        pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    names = {}
    assert len([claim for block in blocks(guide) for claim in claims(block)]) == n_claims
    for block in blocks(guide):
        run(block, names)
        for code, text in claims(block):
            value = eval(code, names)
            if isinstance(value, float):
                figure = text.partition(":")[0]
                # Other libraries may round another way: half a unit, and one more.
                least = 1.5 * 10.0 ** -len(figure.partition(".")[2])
                assert value == pytest.approx(float(figure), abs=max(off, least)), code
            else:
                assert re.fullmatch(re.escape(text).replace(r"\.\.\.", r"\d+"), str(value)), code
    assert guide != "pictures" or (tmp_path / "utility.png").is_file()


def test_probabilities_of_a_weighted_fit_are_brought_back_to_the_prevalence():
    (code,) = [block for block in blocks("concepts") if "prevalence =" in block]
    names = {}
    run(code, names)
    assert names["probability"].mean() == pytest.approx(names["y"].mean(), abs=0.02)
    assert names["weighted"].mean() > 0.2
    model = names["model"].set_params(class_weight=None)
    at_prevalence = FixedThresholdClassifier(
        model, threshold=names["prevalence"], response_method="predict_proba"
    )
    predicted = at_prevalence.fit(names["X"], names["y"]).predict(names["X"])
    assert balanced_accuracy_score(names["y"], predicted) > 0.7


def test_attacks_are_right_as_often_as_the_table_says():
    (epsilons,) = re.findall(r"(?m)^epsilon  (\d[\d. ]+)$", text_of("concepts"))
    (percents,) = re.findall(r"(?m)^right +([\d. ]+)$", text_of("concepts"))
    for epsilon, percent in zip(map(float, epsilons.split()), percents.split(), strict=True):
        accuracy = GaussianDP(gaussian_mu(epsilon, 1e-5)).attack_accuracy()
        assert round_up(100 * accuracy, 3) == f"{float(percent):g}"


def test_shares_of_a_trial_are_those_of_the_table():
    pattern = r"^(logarithmic|geometric|poisson) +(\.\d+) +(\.\d+)$"
    rows = re.findall(pattern, text_of("model_selection"), re.MULTILINE)
    assert len(rows) == 3
    model = DPAdmmLogisticRegression(classes=[0, 1], feature_bounds=(-1, 1))
    search = DPGridSearchCV(model, {"C": [1e-6, 1e-3, 1.0]}, delta=1e-6)
    for trials, *figures in rows:
        for n_trials, figure in zip((3, 30), figures, strict=True):
            plan = search.set_params(trials=trials, n_trials=n_trials).plan(5_000, 4)
            assert plan.trial_epsilon == pytest.approx(float(figure), abs=6e-4)


def test_narrower_bounds_divide_the_noise_of_scores_as_the_guide_says():
    model = DPAdmmRidge(feature_bounds=(-1, 1), target_bounds=(0, 6_000))
    search = DPGridSearchCV(model, {"alpha": [0.0, 1.0, 10.0]})
    wide = search.plan(10_000, 5).score_std
    narrow = search.set_params(score_bounds=(-1e6, 0)).plan(10_000, 5).score_std
    (noise,) = re.findall(r"near ([\d,]+), which", text_of("model_selection"))
    (ratio,) = re.findall(r"divides the\s+noise by\s+(\d+)", text_of("model_selection"))
    assert wide == pytest.approx(float(noise.replace(",", "")), rel=0.1)
    assert wide / narrow == pytest.approx(float(ratio))


def test_a_candidate_is_left_out_as_often_as_the_guide_says():
    words = r"by default (\.\d+)\s+with two candidates, (\.\d+) with three"
    (figures,) = re.findall(words, text_of("model_selection"))
    for n_candidates, figure in zip((2, 3), figures, strict=True):
        law = NegativeBinomialTrials.of_mean(1.0, 2.0 * n_candidates)
        left_out = sum(law.probability(n) * (1 - 1 / n_candidates) ** n for n in range(1, 200))
        assert left_out == pytest.approx(float(figure), abs=5e-3)


def numbers(text):
    return [float(number) for number in re.findall(r"-?\d+\.\d*", text)]


@pytest.fixture(scope="module")
def own_losses():
    """The names that the guide of losses defines, and what its code prints."""
    # Its function `check` compares derivatives with differences.
    printed = run("\n".join(blocks("adding_a_loss")), names := {"__name__": __name__})
    return names, printed


def test_the_code_of_a_new_loss_prints_what_its_guide_shows(own_losses):
    shown = "".join(blocks("adding_a_loss", "text"))
    assert len(numbers(shown)) == 22
    np.testing.assert_allclose(numbers(own_losses[1]), numbers(shown), atol=0.11)


def test_a_poisson_regression_of_ones_own_is_that_of_scikit_learn_and_predicts_counts(own_losses):
    names, _ = own_losses
    X, y, models = names["X"], names["y"], names["models"]
    exact, expected = models["epsilon=inf"], models["scikit-learn"]
    np.testing.assert_allclose(exact.coef_, expected.coef_, atol=1e-5)
    assert exact.intercept_ == pytest.approx(expected.intercept_, abs=1e-5)
    np.testing.assert_allclose(exact.predict(X), expected.predict(X), rtol=1e-4)
    # Of the deviance that scikit-learn explains, a private fit keeps nearly all.
    assert d2_tweedie_score(y, models["epsilon=1"].predict(X), power=1) > 0.95 * expected.score(
        X, y
    )
    with pytest.raises(ValueError, match="predictions are not the linear scores"):
        exact.to_sklearn()


@pytest.mark.parametrize(
    ("family", "parameters"),
    [
        (DPAdmmRidge, {"algorithm": "gradient-descent", "conditioning": None}),
        (DPAdmmRidge, {"algorithm": "objective-perturbation", "conditioning": None}),
        (DPFedRidge, {}),
        (DPDecentralizedRegressor, {}),
        (DPPersonalizedRegressor, {}),
    ],
)
def test_defaults_of_every_family_learn_counts(own_losses, family, parameters):
    names, _ = own_losses
    X, y, agents = names["X"], names["y"], np.arange(7_500) % 5

    class Poisson(family):
        _loss = names["DPAdmmPoisson"]._loss

    known = {"feature_bounds": (-1, 1), "target_bounds": (0, 20), "random_state": 0}
    model, local = Poisson(**known, **parameters), []
    of_agents = {} if family is DPAdmmRidge else {"agents": agents}
    model.fit(X, y, **of_agents)
    if family is DPPersonalizedRegressor:
        # A model that stays with its agent.
        local.append(model.local_model(0, X[agents == 0], y[agents == 0]).predict(X))
    elif family is DPFedRidge:
        of_agents = {}
    for predicted in (model.predict(X, **of_agents), *local):
        assert d2_tweedie_score(y, predicted, power=1) > 0.35


@pytest.mark.slow
def test_an_accountant_of_ones_own_states_a_guarantee_that_holds():
    names = {"HeavyBall": HeavyBall, "__name__": __name__}
    printed = run("\n".join(blocks("adding_an_algorithm")), names)
    (shown,) = blocks("adding_an_algorithm", "text")
    assert printed.splitlines()[0] == shown.splitlines()[0]
    assert float(printed.split()[-1]) == pytest.approx(float(shown.split()[-1]), abs=0.03)
    own = names["plan"].guarantee()
    exact = PoissonSubsampledGaussian(own.rate, own.noise_multiplier, own.n_steps, "zero_out")
    for epsilon in (0.0, 0.1, 0.5, 1.0):
        assert exact.delta(epsilon) <= own.delta(epsilon)
    assert guarantee_from_dict(own.to_dict()) == own
    assert own.epsilon(1e-5) < compose(own, GaussianDP(0.1)).epsilon(1e-5) < 1.2
    with pytest.raises(ValueError, match="neighboring='zero_out'"):
        names["model"].set_params(neighboring="replace_one").plan(1_000, 3)


def test_private_bounds_and_scores_are_what_the_guide_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    first, second, third = blocks("releases")
    for code, shown in zip((first, second), blocks("releases", "text"), strict=True):
        assert run(code, names).startswith(shown.removesuffix("..."))
    run(third, names)
    ((code, text),) = claims(third)
    assert f"{eval(code, names):.2f}" == text


def test_a_category_that_is_left_out_is_the_reference():
    (shown,) = blocks("tables", "text")
    assert run("\n".join(blocks("tables")), {}).strip() == shown


def test_the_code_of_the_guide_to_weights_prints_what_it_shows():
    (code, exposed), (shown, ratios), names = blocks("weights"), blocks("weights", "text"), {}
    assert run(code, names).strip() == shown
    assert run(exposed, {}).startswith(ratios.removesuffix("..."))
    exact = names["model"].set_params(epsilon=float("inf"))
    rows, weights = (names["X"], names["y"]), names["weights"] * names["n"] / names["population"]
    assert weights.mean() == pytest.approx(1.0, abs=0.01)
    weighted, plain = exact.fit(*rows, sample_weight=weights).coef_, exact.fit(*rows).coef_
    np.testing.assert_allclose(weighted, [[1.61, -1.57, 0.80]], atol=0.006)
    np.testing.assert_allclose(plain, [[1.08, -1.06, 0.54]], atol=0.006)


@pytest.mark.slow
def test_the_code_of_the_guide_of_personal_models_runs_and_learns():
    # Scorers of one's own are asked for what they route since 1.9.
    routes = parse_version(sklearn.__version__) >= parse_version("1.9")
    found = [b for b in blocks("personalized") if routes or "set_config" not in b]
    names = {}
    with config_context():
        assert "Privacy of DPPersonalizedClassifier" in "".join(run(b, names) for b in found)
    X, y = names["X"], names["y"]
    assert names["model"].score(X, y) > 0.98
    assert np.all(names["search"].cv_results_["mean_test_score"] > 0.98)
    assert names["at_home"].score(names["west"], y[X["town"] == "west"]) > 0.98


# The README.


def blocks_of_readme(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


def scores(text):
    return [float(line.split()[-1]) for line in text.splitlines()]


def test_the_example_prints_the_scores_that_the_readme_shows():
    first, table = blocks_of_readme("python")
    constant, private, not_private = scores(run(first, names := {}))
    (shown,) = map(scores, blocks_of_readme("text"))
    assert [constant, not_private] == pytest.approx([shown[0], shown[2]], abs=0.011)
    # Each fit draws other noise: the bar is six standard deviations wide.
    assert private == pytest.approx(shown[1], abs=0.1)
    assert run(table, names) == ""
    assert len(names["model"][0].get_feature_names_out()) == 6


def test_the_first_page_has_the_example_of_the_readme():
    page = (ROOT / "docs" / "index.rst").read_text(encoding="utf-8")
    shown = [textwrap.dedent(block).strip() for _, block in re.findall(CODE, page)]
    assert shown == [blocks_of_readme("python")[0].strip()]
    assert textwrap.indent(blocks_of_readme("text")[0], "   ") in page


def test_files_and_make_targets_that_the_readme_names_exist():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert "docs/images/private_learners.png" in links
    assert [link for link in links if not (ROOT / link).exists()] == []
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^\$ |`)make ([a-z-]+)", README, flags=re.MULTILINE))
    assert named >= {"demo", "test"}
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
