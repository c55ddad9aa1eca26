"""What the guide of searches and audits shows is what the code does."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from skdpadmm import DPAdmmRidge, DPPersonalizedRegressor
from skdpadmm.algorithms import GradientADMM, PersonalizedCoordinateDescent
from skdpadmm.audit import audit
from skdpadmm.ledger import PrivacyLedger
from skdpadmm.model_selection import DPGridSearchCV

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


def test_the_guide_says_what_its_code_gives(study):
    names, _ = study
    assert len(said()) == 13
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


def test_the_search_of_the_guide_is_in_its_account_once(study):
    names, directory = study
    account = PrivacyLedger(directory / "study.db")
    assert [entry["subject"] for entry in account.entries()] == ["DPGridSearchCV"]
    assert account.total(1e-6) == names["search"].privacy_.epsilon()
    assert not hasattr(names["search"], "cv_results_")


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


@pytest.mark.parametrize(
    ("model", "is_seen"),
    [
        (DPAdmmRidge(algorithm=GradientADMM()), False),
        (DPAdmmRidge(max_iter=3), True),
        (DPPersonalizedRegressor(), True),
    ],
)
def test_replays_say_what_they_do_not_see(model, is_seen):
    lines = audit(model, random_state=0).lines
    assert [line.moved is not None for line in lines] == [is_seen] * len(lines)


def test_replays_do_not_see_compiled_turns():
    pytest.importorskip("numba")
    model = DPPersonalizedRegressor(algorithm=PersonalizedCoordinateDescent(compiled=True))
    (line,) = audit(model, random_state=0).lines
    assert line.moved is None
    assert line.noise is not None
