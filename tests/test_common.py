"""scikit-learn's own checks, for every estimator at its default epsilon."""

from __future__ import annotations

import inspect

from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

import skdpadmm
import skdpadmm.central
import skdpadmm.decentralized
import skdpadmm.preprocessing
from skdpadmm.algorithms import GradientADMM

# Estimator -> {check: reason why it must fail}. Strict: one that passes is an error.
EXPECTED_FAILURES: dict[str, dict[str, str]] = {}
# The same for every estimator that takes a stream.


def all_estimators() -> list[BaseEstimator]:
    """Every public estimator, by discovery."""
    rooms = (skdpadmm, skdpadmm.preprocessing)
    found = {
        cls.__name__: cls
        for room in rooms
        for name in room.__all__
        if inspect.isclass(cls := getattr(room, name)) and issubclass(cls, BaseEstimator)
    }
    return [_example(found[name]) for name in sorted(found)]


def all_streams() -> list[BaseEstimator]:
    """Every estimator that has `partial_fit`, with the algorithm for it."""
    stream = GradientADMM(schedule="stream")
    return [getattr(skdpadmm, name)(algorithm=stream) for name in skdpadmm.central.__all__]


def all_sharing() -> list[BaseEstimator]:
    """Estimators whose agents share their messages out, in networks and in a federation."""
    names = (*skdpadmm.decentralized.__all__, "DPFedRidge", "DPFedLogisticRegression")
    return [getattr(skdpadmm, name)(algorithm="secret-sharing-gradient-descent") for name in names]


def _example(cls: type[BaseEstimator]) -> BaseEstimator:
    return cls()


def expected_failures(estimator: BaseEstimator) -> dict[str, str]:
    return EXPECTED_FAILURES.get(type(estimator).__name__, {})


@parametrize_with_checks(
    [*all_estimators(), *all_streams(), *all_sharing()], expected_failed_checks=expected_failures
)
def test_estimator_check_of_scikit_learn(estimator: BaseEstimator, check: object) -> None:
    check(estimator)
