"""scikit-learn's own checks: every public estimator; many rounds and other algorithms are slow."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import skdpadmm
import skdpadmm.preprocessing
from skdpadmm import DPAdmmLogisticRegression
from skdpadmm.algorithms import resolve_algorithm
from skdpadmm.model_selection import DPGridSearchCV
from skdpadmm.preprocessing import BoundedScaler, PublicTableTransformer
from tests.interface.registry import KINDS


def all_estimators() -> list[BaseEstimator]:
    """Every public estimator, by discovery."""
    found = [getattr(module, name) for module in (skdpadmm, skdpadmm.preprocessing)
             for name in module.__all__]  # fmt: skip
    classes = [cls for cls in found if inspect.isclass(cls) and issubclass(cls, BaseEstimator)]
    public = {"TweedieRegressor": {"target_bounds": (1e-3, 40)}}
    public |= dict.fromkeys(["PoissonRegressor", "GammaRegressor"], public["TweedieRegressor"])
    bounds = [public.get(cls.__name__.removeprefix("DPAdmm"), {}) for cls in classes]
    table = ({0: (-3, 3)},)
    return [
        cls(*table * (cls is PublicTableTransformer), **known)
        for cls, known in zip(classes, bounds, strict=True)
    ]


def has_many_rounds(model: BaseEstimator) -> bool:
    """Whether agents send messages, or each record solves an equation of its rate."""
    return "n_agents" in model.get_params() or hasattr(model, "power")


# No accuracy is asked of these here, so a few rounds are enough.
LONG = [model for model in all_estimators() if has_many_rounds(model)]
QUICK = [model for model in all_estimators() if not has_many_rounds(model)]
QUICK += [clone(model).set_params(max_iter=3) for model in LONG]
# Objective perturbation reaches the R2 of .5 that is asked for in half of all seeds at epsilon=1,
# and .74 or more at 4.
OTHERS = LONG + [
    type(row.estimator)(
        algorithm=row.estimator.algorithm,
        max_iter=100 if is_central else 3,
        epsilon=4.0 if is_central else 1.0,
    )
    for row in KINDS.values()
    for is_central in [row.family == "central"]
]
OTHERS += [
    BoundedScaler(lower=-1.0, upper=3.0),
    PublicTableTransformer({0: (-3, 3)}, sparse_output=True),
]


OF_WEIGHTS = [
    f"check_sample_weights_{name}"
    for name in ("pandas_series", "not_an_array", "list", "shape", "not_overwritten")
]

PIPELINE = make_pipeline(BoundedScaler(), DPAdmmLogisticRegression(max_iter=3))
SEARCH = DPGridSearchCV(PIPELINE, {"dpadmmlogisticregression__C": [0.1, 1.0]})


def expected_failures(estimator: BaseEstimator) -> dict[str, str]:
    """What noise makes impossible, by the name of the check."""
    names = {"DPAdmmLinearSVC", "DPAdmmLogisticRegression", "DPPersonalizedClassifier"}
    failing = {}
    if type(estimator).__name__ in names:
        # The first two pass at epsilon=100, the third one without privacy.
        why = "asks 50 rows to beat the noise of a weight of 1000"
        failing["check_class_weight_classifiers"] = why
    if "max_weight" in estimator.get_params():
        # Without privacy they pass, see test_sample_weight.py.
        alike = "check_sample_weight_equivalence_on"
        failing |= dict.fromkeys(
            (f"{alike}_dense_data", f"{alike}_sparse_data"), "n is another one"
        )
        failing["check_all_zero_sample_weights_error"] = "what all weights are is private"
        known = resolve_algorithm(estimator.algorithm, "central")
        if "person" not in known.units:
            failing |= dict.fromkeys(OF_WEIGHTS, "the algorithm weighs no records")
    return failing


# The checks of a search have a few rows, of which a fifth validates.
@pytest.mark.filterwarnings("ignore:Got scores with noise:UserWarning")
@parametrize_with_checks([*QUICK, SEARCH], expected_failed_checks=expected_failures)
def test_estimator_check_of_scikit_learn(estimator: BaseEstimator, check: object) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(OTHERS, expected_failed_checks=expected_failures)
def test_estimator_check_with_other_algorithms(estimator: BaseEstimator, check: object) -> None:
    check(estimator)


@pytest.mark.slow
def test_the_checks_of_scikit_learn_pass_with_the_array_api_enabled():
    root = Path(skdpadmm.__file__).parent.parent
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-k", "estimator_check_", __file__],
        cwd=root,
        env={**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:]
