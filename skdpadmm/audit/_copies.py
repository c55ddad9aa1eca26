"""Copies of estimators that need not follow scikit-learn, each with noise of its own."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from numbers import Integral
from typing import Any

import numpy as np
import sklearn.base
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from skdpadmm._candidates import last_step


def copy_of(estimator: Any, seed: int | None = None) -> Any:
    """A copy to be fitted, whose random numbers are its own and whose fits count in no ledger.

    That holds for the estimators in it as well, such as steps of a pipeline.

    Parameters
    ----------
    estimator : estimator
        With `fit`. What scikit-learn cannot clone is copied as it is.
    seed : int or None, default=None
        Of its noise, and of the generators that it holds; None: of the operating system.

    Returns
    -------
    estimator

    Raises
    ------
    ValueError
        Where it can neither be cloned nor copied.
    """
    name = type(estimator).__name__
    if isinstance(estimator, type) or not callable(getattr(estimator, "fit", None)):
        raise ValueError(f"Got {estimator!r}, expected an object with `fit`: an estimator.")
    try:
        made = clone(estimator)
    except (TypeError, RuntimeError):
        try:
            made = deepcopy(estimator)
        except Exception as error:
            raise ValueError(
                f"Got {name} that can be neither cloned nor copied ({error}), expected one that"
                " starts anew in each run. Give it get_params, or attributes that can be copied."
            ) from error
    held = _held_by(made)
    for attribute, value in list(getattr(made, "__dict__", {}).items()):
        if attribute not in held and any(True for _ in estimators_in(value)):
            # No parameter, and so not cloned: others may share it.
            setattr(made, attribute, deepcopy(value))
    for number, one in enumerate(estimators_in(made)):
        _start_anew(one, _seed_of(seed, number))
    return made


def rows_of_last_step(model: Any, X: Any) -> Any:
    """What a pipeline that is fitted hands to its last step."""
    while isinstance(model, Pipeline):
        for _, step in model.steps[:-1]:
            X = X if step in (None, "passthrough") else step.transform(X)
        model = model.steps[-1][1]
    return X


def given_to_last_step(fit_params: dict[str, Any], name: str) -> Any:
    """What `fit` is given by this name, which a pipeline has the name of the step before; or None.

    Parameters
    ----------
    fit_params : dict
    name : str
    """
    return next((v for k, v in fit_params.items() if k.rpartition("__")[2] == name), None)


def _held_by(estimator: Any) -> dict[str, Any]:
    if hasattr(estimator, "get_params"):
        return dict(estimator.get_params(deep=False))
    return dict(getattr(estimator, "__dict__", {}))


def estimators_in(estimator: Any) -> Iterator[Any]:
    """An estimator, or none where it is something else, and those that it holds, however deep.

    Parameters
    ----------
    estimator : object

    Yields
    ------
    estimator
        The outermost one first.
    """
    # Kept, so that no other one has its id.
    seen: dict[int, Any] = {}
    left = [estimator]
    while left:
        one = left.pop(0)
        if id(one) in seen or isinstance(one, type):
            continue
        seen[id(one)] = one
        if isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, list | tuple):
            left.extend(one)
        elif callable(getattr(one, "fit", None)):
            yield one
            left.extend(_held_by(one).values())
            if hasattr(one, "get_params"):
                # Those of a pipeline are parameters that are not its own.
                left.extend(one.get_params(deep=True).values())
            left.extend(getattr(one, "__dict__", {}).values())


def _start_anew(estimator: Any, seed: int | None) -> None:
    """Take away what ties a fit to others: a ledger, a seed, and a bar beside that of all."""
    held = _held_by(estimator)
    anew: dict[str, Any] = {"ledger": None, "random_state": seed}
    verbose = held.get("verbose")
    if isinstance(verbose, Integral):
        # Some take a bool alone, and some an int.
        anew["verbose"] = False if isinstance(verbose, bool) else 0
    known = {name: value for name, value in anew.items() if name in held}
    if known and hasattr(estimator, "set_params"):
        estimator.set_params(**known)
    elif known:
        vars(estimator).update(known)
    for attribute, value in list(getattr(estimator, "__dict__", {}).items()):
        # A generator would be copied with its state, and all copies would draw the same noise.
        if isinstance(value, np.random.Generator):
            setattr(estimator, attribute, np.random.default_rng(seed))
        elif isinstance(value, np.random.RandomState):
            setattr(estimator, attribute, np.random.RandomState(seed))


def _seed_of(seed: int | None, number: int) -> int | None:
    """Seeds of estimators in each other share no noise; the outermost has it as given."""
    if seed is None or number == 0:
        return seed
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def is_search(estimator: Any) -> bool:
    """Whether it is a search of this library or of scikit-learn, which has no coefficients."""
    has_candidates = any(hasattr(estimator, n) for n in ("param_grid", "param_distributions"))
    # Those of this library are in a room above, and the base of the others is private.
    is_known = any(hasattr(estimator, name) for name in ("plan", "_run_search"))
    return has_candidates and is_known and not hasattr(estimator, "coef_")


def is_classifier(estimator: Any) -> bool:
    """Whether it says so; what has no tags may still have scikit-learn's older mark."""
    try:
        return bool(sklearn.base.is_classifier(estimator))
    except (AttributeError, TypeError):
        return getattr(estimator, "_estimator_type", None) == "classifier"


def coefficients_of(model: Any, attribute: str = "coef_") -> NDArray[np.float64]:
    """Numbers of a fitted model, in an array of any shape.

    Raises
    ------
    ValueError
        Where there are none.
    """
    model = last_step(model)
    name = type(model).__name__
    if not hasattr(model, attribute):
        raise ValueError(
            f"Got {name} without {attribute} after fit, expected a linear model. Of a search pass"
            " best_estimator_."
        )
    given: Any = getattr(model, attribute)
    try:
        # Both kinds of sparse containers have it, their common base has not.
        dense = given.toarray() if hasattr(given, "toarray") else given
        return np.asarray(dense, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"Got {attribute} of {name} that holds no numbers, expected an array of floats."
        ) from None
