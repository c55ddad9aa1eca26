"""What the guide of personal models shows is what the code does."""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
from pathlib import Path

import numpy as np
import sklearn
from sklearn import config_context
from sklearn.utils.fixes import parse_version

GUIDE = Path(__file__).parents[2] / "docs" / "user_guide" / "personalized.rst"
# Scorers of one's own are asked for what they route since then.
ROUTES = parse_version(sklearn.__version__) >= parse_version("1.9")


def blocks():
    text = GUIDE.read_text(encoding="utf-8")
    found = re.findall(r"\.\. code-block:: python\n\n((?:   .*\n|\n)+)", text)
    return [textwrap.dedent(block) for block in found]


def test_the_code_of_the_guide_runs_and_learns():
    names = {}
    with config_context(), contextlib.redirect_stdout(io.StringIO()) as printed:
        for block in blocks():
            if ROUTES or "set_config" not in block:
                exec(compile(block, GUIDE.name, "exec"), names)
    assert "Privacy of DPPersonalizedClassifier" in printed.getvalue()
    X, y, model = names["X"], names["y"], names["model"]
    assert model.score(X, y) > 0.98
    # A search over a pipeline predicts by the column, and scores as it was asked to.
    search = names["search"]
    assert search.predict(X[:3]).shape == (3,)
    assert np.all(search.cv_results_["mean_test_score"] > 0.98)
    assert names["at_home"].score(names["west"], y[X["town"] == "west"]) > 0.98
