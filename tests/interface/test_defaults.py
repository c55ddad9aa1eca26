"""What defaults are worth: floors of accuracy, well below what was measured."""

from __future__ import annotations

import numpy as np
import pytest

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
