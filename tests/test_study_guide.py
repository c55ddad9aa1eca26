"""What the guide of searches and audits shows is what the code does."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from skdpadmm import DPAdmmRidge
from skdpadmm.model_selection import DPGridSearchCV
from skdpadmm.privacy import NegativeBinomialTrials

GUIDE = Path(__file__).parents[1] / "docs" / "user_guide" / "study.rst"
TEXT = GUIDE.read_text(encoding="utf-8")
BLOCKS = [
    textwrap.dedent(found).strip()
    for found in re.findall(r"\.\. code-block:: python\n\n((?:   .*\n|\n)+)", TEXT)
]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Run all blocks in order, and return their names and the directory."""
    directory, names = tmp_path_factory.mktemp("study"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        for block in BLOCKS:
            exec(compile(block, GUIDE.name, "exec"), names)
    return names, directory


def said():
    """Every expression with a figure or a text behind it."""
    lines = [line for block in BLOCKS for line in block.splitlines() if line[:1].strip()]
    pairs = [line.split("  # ") for line in lines if "  # " in line]
    return [(code, text) for code, text in pairs if " = " not in code]


@pytest.mark.slow
def test_the_guide_says_what_its_code_gives(study):
    names, _ = study
    assert len(said()) == 14
    for code, text in said():
        value = eval(code, names)
        if isinstance(value, float):
            figure = text.partition(":")[0]
            places = len(figure.partition(".")[2])
            # Other libraries may round another way: half a unit, and one more.
            assert value == pytest.approx(float(figure), abs=1.5 * 10.0**-places), code
        elif "..." in text:
            assert re.fullmatch(re.escape(text).replace(re.escape("..."), r"\d+"), value), code
        else:
            assert str(value) == text, code


@pytest.mark.slow
def test_shares_of_a_trial_are_those_of_the_table(study):
    names, _ = study
    rows = re.findall(r"^(logarithmic|geometric|poisson) +(\.\d+) +(\.\d+)$", TEXT, re.MULTILINE)
    assert len(rows) == 3
    for trials, *figures in rows:
        for n_trials, figure in zip((3, 30), figures, strict=True):
            search = DPGridSearchCV(
                names["model"], names["grid"], delta=1e-6, trials=trials, n_trials=n_trials
            )
            found = search.plan(5_000, 4).trial_epsilon
            assert found == pytest.approx(float(figure), abs=6e-4)


def test_narrower_bounds_divide_the_noise_of_scores_as_the_guide_says():
    model = DPAdmmRidge(feature_bounds=(-1, 1), target_bounds=(0, 6_000))
    search = DPGridSearchCV(model, {"alpha": [0.0, 1.0, 10.0]})
    wide = search.plan(10_000, 5).score_std
    narrow = search.set_params(score_bounds=(-1e6, 0)).plan(10_000, 5).score_std
    (noise,) = re.findall(r"near ([\d,]+), which", TEXT)
    (ratio,) = re.findall(r"divides the noise by\s+(\d+)", TEXT)
    assert wide == pytest.approx(float(noise.replace(",", "")), rel=0.1)
    assert wide / narrow == pytest.approx(float(ratio))


def test_a_candidate_is_left_out_as_often_as_the_guide_says():
    (figures,) = re.findall(r"by default (\.\d+) of two, (\.\d+) of three", TEXT)
    for n_candidates, figure in zip((2, 3), figures, strict=True):
        law = NegativeBinomialTrials.of_mean(1.0, 2.0 * n_candidates)
        left_out = sum(law.probability(n) * (1 - 1 / n_candidates) ** n for n in range(1, 200))
        assert left_out == pytest.approx(float(figure), abs=5e-3)
