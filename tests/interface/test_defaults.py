"""What defaults are worth: floors of accuracy, well below what was measured. Long ones are slow."""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn import config_context
from sklearn.utils.fixes import parse_version

from tests.interface.registry import DEFAULTS, ROWS


@pytest.mark.parametrize("name", [*DEFAULTS, "stream"])
def test_private_defaults_learn_an_easy_problem(name):
    row = ROWS[name]
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(5000, 3))
    scores = X @ [1.0, -1.0, 0.5] + 0.1 * rng.normal(size=5000)
    y = scores if row.n_classes == 1 else np.digitize(scores, [0, 0.5][: row.n_classes - 1])
    weak = {"C": 1.0} if "C" in row.estimator.get_params() else {"alpha": 1e-4}
    model = row.make(epsilon=8.0, feature_bounds=(-1, 1), max_iter=100, **weak).fit(X, y)
    assert model.score(X, y) > 0.7


@pytest.mark.slow
def test_the_code_of_the_guide_of_personal_models_runs_and_learns():
    guide = Path(__file__).parents[2] / "docs" / "user_guide" / "personalized.rst"
    text = guide.read_text(encoding="utf-8")
    names = {}
    # Scorers of one's own are asked for what they route since 1.9.
    routes = parse_version(sklearn.__version__) >= parse_version("1.9")
    with config_context(), contextlib.redirect_stdout(io.StringIO()) as printed:
        for block in re.findall(r"\.\. code-block:: python\n\n((?:   .*\n|\n)+)", text):
            if routes or "set_config" not in block:
                exec(compile(textwrap.dedent(block), guide.name, "exec"), names)
    assert "Privacy of DPPersonalizedClassifier" in printed.getvalue()
    X, y = names["X"], names["y"]
    assert names["model"].score(X, y) > 0.98
    assert np.all(names["search"].cv_results_["mean_test_score"] > 0.98)
    assert names["at_home"].score(names["west"], y[X["town"] == "west"]) > 0.98
