"""Independent fits: copies of any estimator, planned once and run in batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NoReturn

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, clone

from skdpadmm._fitting import gates_by, progress_bar
from skdpadmm._pipelines import last_step

Array = NDArray[np.float64]
Seed = np.random.SeedSequence | None
LARGEST_CHUNK = 500


def copy_of(estimator: Any, seed: int | None = None) -> Any:
    """An unfitted copy that counts in no ledger, with random numbers of its own, by `seed`."""
    if isinstance(estimator, type) or not callable(getattr(estimator, "fit", None)):
        raise ValueError(f"Got {estimator!r}, expected an object with `fit`: an estimator.")
    try:
        # What is no parameter is not cloned, and others may share it.
        copied = deepcopy(clone(estimator))
    except (TypeError, RuntimeError):
        copied = deepcopy(estimator)
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


def declared_by(estimator: Any, name: str) -> Any:
    """What an estimator declares, or the outermost one of those that it holds; or None."""
    held = (getattr(part, name, None) for part in estimators_in(last_step(estimator)))
    return next((value for value in held if value is not None), None)


def _start_anew(estimator: Any, seed: int | None) -> None:
    """Take away what ties a fit to others: a ledger, a seed, generators, progress bars."""
    anew = {"ledger": None, "random_state": seed}
    for name, value in list(getattr(estimator, "__dict__", {}).items()):
        if name in anew:
            value = anew[name]
        elif name == "verbose" and isinstance(value, Integral):
            # Some take a bool alone, and some an int.
            value = type(value)()
        elif isinstance(value, np.random.Generator):
            # Copied with its state, it would give all copies the same noise.
            value = np.random.default_rng(seed)
        elif isinstance(value, np.random.RandomState):
            value = np.random.RandomState(seed)
        else:
            continue
        setattr(estimator, name, value)


def _seed_of(seed: int | None, number: int) -> int | None:
    """Seeds of estimators in each other share no noise; the outermost has it as given."""
    if seed is None or number == 0:
        return seed
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def is_ours(estimator: Any) -> bool:
    """Whether it is an estimator of this library, or a pipeline that ends with one."""
    last = last_step(estimator)
    return hasattr(last, "sampler") and hasattr(last, "epsilon")


def is_classifier(model: Any) -> bool:
    """Whether its targets are labels."""
    return isinstance(last_step(model), ClassifierMixin)


def given_agents(fit_params: dict[str, Any]) -> Any:
    """Labels of agents that `fit` is given, behind names of steps in a pipeline; or None."""
    return next((v for k, v in fit_params.items() if k.rpartition("__")[2] == "agents"), None)


def coefficients_of(model: Any, attribute: str = "coef_") -> Array:
    """Numbers of a fitted model, in an array of any shape."""
    model = last_step(model)
    if not hasattr(model, attribute):
        raise ValueError(
            f"Got {type(model).__name__} without {attribute} after fit, expected a linear model."
        )
    given: Any = getattr(model, attribute)
    # Both kinds of sparse containers have it, their common base has not.
    return np.asarray(given.toarray() if hasattr(given, "toarray") else given, np.float64)


def parameters_of(model: Any) -> Array:
    """Coefficients and intercepts of a fitted model, in one vector."""
    parts = [np.ravel(coefficients_of(model))]
    if getattr(last_step(model), "intercept_", None) is not None:
        parts.append(np.ravel(coefficients_of(model, "intercept_")))
    return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class AuditedFits:
    """Fits of one estimator on one data set, with what is planned for one of this library."""

    estimator: Any
    data: tuple[Any, Any]
    fit_params: dict[str, Any]
    # None for others.
    plan: Any
    # With validated data; a stream makes no fit that could be repeated.
    pending: Any

    def run(self, seeds: list[Seed]) -> list[Array]:
        """Parameters of as many models as there are seeds; without one noise is that of a user."""
        fit = self._fitted if self.pending is None else self._solved
        # Such as that delta is not small beside the few records there are.
        with warnings.catch_warnings(action="ignore"):
            return [fit(seed) for seed in seeds]

    def _solved(self, seed: Seed) -> Array:
        random_state = None if seed is None else np.random.default_rng(seed)
        noise = self.pending.noise(random_state, self.plan.digest())
        fitted = self.pending.solve(noise)
        parameters, models = fitted.solution.parameters, fitted.solution.parameters_per_agent
        if self.plan.facts.agents.is_personal and models is not None:
            # Each agent has a model there, and all of them are published.
            parameters = np.concatenate(list(models), axis=1)
        coef, intercept = fitted.coordinates.to_user(parameters)
        return np.concatenate([coef.ravel(), np.ravel(intercept)])

    def _fitted(self, seed: Seed) -> Array:
        model = copy_of(self.estimator, None if seed is None else int(seed.generate_state(1)[0]))
        model.fit(*self.data, **self.fit_params)
        return parameters_of(model)


class _Planned(BaseException):
    """A fit is planned, and is not to be run."""


def _stop(fit: Any, *gate: Any) -> NoReturn:
    """Stop a planned fit at its gate."""
    raise _Planned(fit)


def trials_of(estimator: Any, data: tuple[Any, Any], fit_params: dict[str, Any]) -> AuditedFits:
    """Plan fits of an estimator on data."""
    plan = pending = None
    if is_ours(estimator):
        try:
            with gates_by(_stop):
                copy_of(estimator).fit(*data, **fit_params)
        except _Planned as planned:
            (pending,) = planned.args
            plan = pending.planned.plan
    # Pieces of a stream follow each other, and earlier steps of a pipeline may learn from data.
    if plan is None or plan.facts.is_stream or last_step(estimator) is not estimator:
        pending = None
    return AuditedFits(estimator, data, fit_params, plan, pending)


def run_trials(
    worlds: list[AuditedFits], n_runs: int, *, n_jobs: int | None, random_state: Any, verbose: int
) -> list[Array]:
    """Parameters of `n_runs` fits of each of some trials: arrays (n_runs, n_parameters).

    Without a `random_state` noise is that of users; else each run has a seed of its own.
    """
    n_chunks = max(-(-n_runs // LARGEST_CHUNK), min(4 * effective_n_jobs(n_jobs), n_runs))
    sizes = [len(part) for part in np.array_split(np.arange(n_runs), n_chunks)]
    root = None if random_state is None else np.random.SeedSequence(random_state)
    call: Callable[..., Any] = delayed(AuditedFits.run)
    jobs = Parallel(n_jobs=n_jobs, return_as="generator")(
        call(trials, [None] * size if root is None else list(root.spawn(size)))
        for trials in worlds
        for size in sizes
    )
    models: list[Array] = []
    with progress_bar(total=n_runs * len(worlds), unit="fit", disable=not verbose) as bar:
        for part in jobs:
            models.extend(part)
            bar.update(len(part))
    # The number of parameters may differ, and distinguish runs.
    table = np.full((len(models), max(map(len, models))), np.nan)
    for row, model in zip(table, models, strict=True):
        row[: len(model)] = model
    return [table[i * n_runs : (i + 1) * n_runs] for i in range(len(worlds))]
