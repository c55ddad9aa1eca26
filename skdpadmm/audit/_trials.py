"""Independent fits: copies of any estimator, planned once and run in batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import sklearn.base
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from tqdm import tqdm

from skdpadmm._candidates import last_step
from skdpadmm._fitting import PendingFit, watched_by
from skdpadmm.privacy import PrivacyReport
from skdpadmm.protocol import Gate, Neighborhood

Array = NDArray[np.float64]
Seed = np.random.SeedSequence | None
LARGEST_CHUNK = 500


def copy_of(estimator: Any, seed: int | None = None) -> Any:
    """An unfitted copy that counts in no ledger, with random numbers of its own, by `seed`."""
    if isinstance(estimator, type) or not callable(getattr(estimator, "fit", None)):
        raise ValueError(f"Got {estimator!r}, expected an object with `fit`: an estimator.")
    try:
        copied = clone(estimator)
    except (TypeError, RuntimeError):
        copied = estimator
    try:
        # What is no parameter is not cloned, and others may share it.
        copied = deepcopy(copied)
    except Exception as error:
        raise ValueError(
            f"Got {type(estimator).__name__} that cannot be copied ({error}), expected one that"
            " starts anew in each run. Give it attributes that can be copied."
        ) from error
    for number, part in enumerate(estimators_in(copied)):
        _start_anew(part, _seed_of(seed, number))
    return copied


def estimators_in(estimator: Any) -> Iterator[Any]:
    """An estimator and those that it holds, however deep, the outermost first."""
    # Kept, so that no other object has its id.
    seen: dict[int, Any] = {}
    left = [estimator]
    while left:
        part = left.pop(0)
        if id(part) in seen or isinstance(part, type):
            continue
        seen[id(part)] = part
        if isinstance(part, dict):
            left.extend(part.values())
        elif isinstance(part, list | tuple):
            left.extend(part)
        elif callable(getattr(part, "fit", None)):
            yield part
            left.extend(getattr(part, "__dict__", {}).values())


def _start_anew(estimator: Any, seed: int | None) -> None:
    """Take away what ties a fit to others: a ledger, a seed, generators, progress bars."""
    for name, value in list(getattr(estimator, "__dict__", {}).items()):
        if name == "ledger":
            setattr(estimator, name, None)
        elif name == "random_state":
            setattr(estimator, name, seed)
        elif name == "verbose" and isinstance(value, Integral):
            # Some take a bool alone, and some an int.
            setattr(estimator, name, False if isinstance(value, bool) else 0)
        elif isinstance(value, np.random.Generator):
            # Copied with its state, it would give all copies the same noise.
            setattr(estimator, name, np.random.default_rng(seed))
        elif isinstance(value, np.random.RandomState):
            setattr(estimator, name, np.random.RandomState(seed))


def _seed_of(seed: int | None, number: int) -> int | None:
    """Seeds of estimators in each other share no noise; the outermost has it as given."""
    if seed is None or number == 0:
        return seed
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def is_ours(estimator: Any) -> bool:
    """Whether it is an estimator of this library, or a pipeline that ends with one."""
    last = last_step(estimator)
    return hasattr(last, "sampler") and hasattr(last, "epsilon")


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


def rows_of_last_step(model: Any, X: Any) -> Any:
    """What a pipeline that is fitted hands to its last step."""
    while isinstance(model, Pipeline):
        for _, step in model.steps[:-1]:
            X = X if step in (None, "passthrough") else step.transform(X)
        model = model.steps[-1][1]
    return X


def given_to_last_step(fit_params: dict[str, Any], name: str) -> Any:
    """What `fit` is given by this name, behind names of steps in a pipeline; or None."""
    return next((v for k, v in fit_params.items() if k.rpartition("__")[2] == name), None)


def coefficients_of(model: Any, attribute: str = "coef_") -> Array:
    """Numbers of a fitted model, in an array of any shape."""
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
        return np.asarray(given.toarray() if hasattr(given, "toarray") else given, np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"Got {attribute} of {name} that holds no numbers, expected an array of floats."
        ) from None


def parameters_of(model: Any) -> Array:
    """Coefficients and intercepts of a fitted model, in one vector."""
    parts = [np.ravel(coefficients_of(model))]
    if getattr(last_step(model), "intercept_", None) is not None:
        parts.append(np.ravel(coefficients_of(model, "intercept_")))
    return np.concatenate(parts)


@dataclass(frozen=True, eq=False, kw_only=True)
class Trials:
    """Fits of one estimator on one data set.

    `pending` has the plan and validated data of an estimator of this library, `report` that of a
    stream, whose plan is that of one record.
    """

    estimator: Any
    data: tuple[Any, Any]
    fit_params: dict[str, Any]
    pending: PendingFit | None
    digest: bytes
    report: PrivacyReport | None

    def run(self, seeds: list[Seed]) -> list[Array]:
        """Parameters of as many models as there are seeds; without one noise is that of a user."""
        # What comes before the last step of a pipeline is fitted again each time: it may learn.
        is_alone = last_step(self.estimator) is self.estimator
        fit = self._fitted if self.pending is None or not is_alone else self._solved
        with warnings.catch_warnings():
            # Such as that delta is not small beside the few records there are.
            warnings.simplefilter("ignore")
            return [fit(seed) for seed in seeds]

    def _solved(self, seed: Seed) -> Array:
        fit = self.pending
        assert fit is not None
        random_state = None if seed is None else np.random.default_rng(seed)
        _, coordinates, solution = fit.solve(fit.noise(random_state, self.digest))
        parameters, own = solution.parameters, solution.parameters_per_agent
        if isinstance(fit.planned.plan.facts.agents, Neighborhood) and own is not None:
            # There each agent has a model, and the models are what is published.
            parameters = np.concatenate(list(own), axis=1)
        coef, intercept = coordinates.to_user(parameters)
        return np.concatenate([coef.ravel(), np.ravel(intercept)])

    def _fitted(self, seed: Seed) -> Array:
        model = copy_of(self.estimator, None if seed is None else int(seed.generate_state(1)[0]))
        model.fit(*self.data, **self.fit_params)
        return parameters_of(model)


class _Planned(BaseException):
    """A fit is planned, and is not to be run."""


class _Stop:
    """Keeps a fit that is planned, and stops it before data comes near."""

    pending: PendingFit | None = None

    def begins(self, fit: PendingFit) -> None:
        """Keep the fit."""
        self.pending = fit
        raise _Planned

    def gate(self, plan: Any, noise: Any, n_arrived: int) -> Gate:
        """A stream makes no fit that could be repeated: it passes as always."""
        return Gate(plan, noise, n_arrived)


def trials_of(estimator: Any, data: tuple[Any, Any], fit_params: dict[str, Any]) -> Trials:
    """Plan fits of an estimator on data."""
    stop, digest, report = _Stop(), b"", None
    if is_ours(estimator):
        try:
            with watched_by(stop):
                fitted = copy_of(estimator).fit(*data, **fit_params)
                found = getattr(last_step(fitted), "privacy_", None)
                report = found if isinstance(found, PrivacyReport) else None
        except _Planned:
            assert stop.pending is not None
            digest = stop.pending.planned.plan.digest()
    return Trials(
        estimator=estimator, data=data, fit_params=fit_params, pending=stop.pending, digest=digest,
        report=report,
    )  # fmt: skip


def run_trials(
    worlds: list[Trials], n_runs: int, *, n_jobs: int | None, random_state: Any, verbose: int
) -> list[Array]:
    """Parameters of `n_runs` fits of each of some trials: arrays (n_runs, n_parameters).

    Without a `random_state` noise is that of users; else each run has a seed of its own.
    """
    n_chunks = max(-(-n_runs // LARGEST_CHUNK), min(4 * effective_n_jobs(n_jobs), n_runs))
    sizes = [len(part) for part in np.array_split(np.arange(n_runs), n_chunks)]
    root = None if random_state is None else np.random.SeedSequence(random_state)
    call: Callable[..., Any] = delayed(Trials.run)
    jobs = Parallel(n_jobs=n_jobs, return_as="generator")(
        call(trials, [None] * size if root is None else list(root.spawn(size)))
        for trials in worlds
        for size in sizes
    )
    models: list[Array] = []
    with tqdm(total=n_runs * len(worlds), unit="fit", disable=not verbose) as bar:
        for part in jobs:
            models.extend(part)
            bar.update(len(part))
    table = _in_rows(models)
    return [table[i * n_runs : (i + 1) * n_runs] for i in range(len(worlds))]


def _in_rows(models: list[Array]) -> Array:
    """Parameters side by side; how many there are tells as well, where that differs."""
    sizes = np.array([len(model) for model in models])
    if (sizes == sizes[0]).all():
        return np.stack(models)
    table = np.zeros((len(models), sizes.max() + 1))
    for row, model in zip(table, models, strict=True):
        row[: len(model)] = model
    table[:, -1] = sizes
    return table
