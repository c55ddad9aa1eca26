"""Many independent fits, planned once and run in batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from tqdm import tqdm

from skdpadmm._candidates import last_step
from skdpadmm._fitting import PendingFit, watched_by
from skdpadmm.audit._copies import coefficients_of, copy_of
from skdpadmm.privacy import PrivacyReport
from skdpadmm.protocol import Gate, Neighborhood

Array = NDArray[np.float64]
LARGEST_CHUNK = 500


class _Planned(BaseException):
    """A fit is planned, and is not to be run."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Trials:
    """Fits of one estimator on one data set.

    Attributes
    ----------
    estimator : estimator
        Unfitted.
    data : tuple of (X, y)
    fit_params : dict
    pending : PendingFit or None
        The plan and validated data, where the estimator is of this library, or a pipeline that ends
        with one.
    digest : bytes
        Of the plan.
    report : PrivacyReport or None
        Of a stream of this library, whose plan is that of one record.
    """

    estimator: Any
    data: tuple[Any, Any]
    fit_params: dict[str, Any]
    pending: PendingFit | None
    digest: bytes
    report: PrivacyReport | None

    def run(self, seeds: list[np.random.SeedSequence | None]) -> list[Array]:
        """Parameters of as many models as there are seeds; without one noise is that of a user."""
        # What comes before the last step of a pipeline is fitted again each time: it may learn.
        is_alone = last_step(self.estimator) is self.estimator
        one = self._solved if is_alone and self.pending is not None else self._fitted
        with warnings.catch_warnings():
            # Such as that delta is not small beside the few records there are.
            warnings.simplefilter("ignore")
            return [one(seed) for seed in seeds]

    def _solved(self, seed: np.random.SeedSequence | None) -> Array:
        fit = self.pending
        assert fit is not None
        random_state = None if seed is None else np.random.default_rng(seed)
        noise = fit.noise(random_state, self.digest)
        _, coordinates, solution = fit.solve(noise)
        parameters = solution.parameters
        if isinstance(fit.planned.plan.facts.agents, Neighborhood):
            own = solution.parameters_per_agent
            if own is not None:
                # There each agent has a model, and the models are what is published.
                parameters = np.concatenate(list(own), axis=1)
        coef, intercept = coordinates.to_user(parameters)
        return np.concatenate([coef.ravel(), np.ravel(intercept)])

    def _fitted(self, seed: np.random.SeedSequence | None) -> Array:
        number = None if seed is None else int(seed.generate_state(1)[0])
        model = copy_of(self.estimator, number)
        model.fit(*self.data, **self.fit_params)
        return parameters_of(model)


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

    def algorithm(self, algorithm: Any) -> Any:
        """Nothing is looked at."""
        return algorithm


def trials_of(estimator: Any, data: tuple[Any, Any], fit_params: dict[str, Any]) -> Trials:
    """Plan fits of an estimator on data.

    Parameters
    ----------
    estimator : estimator
    data : tuple of (X, y)
    fit_params : dict

    Returns
    -------
    Trials
    """
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
        estimator=estimator,
        data=data,
        fit_params=fit_params,
        pending=stop.pending,
        digest=digest,
        report=report,
    )


def is_ours(estimator: Any) -> bool:
    """Whether it is an estimator of this library, or a pipeline that ends with one."""
    last = last_step(estimator)
    return hasattr(last, "sampler") and hasattr(last, "epsilon")


def parameters_of(model: Any) -> Array:
    """Coefficients and intercepts of a fitted model, in one vector."""
    model = last_step(model)
    parts = [np.ravel(coefficients_of(model))]
    if getattr(model, "intercept_", None) is not None:
        parts.append(np.ravel(coefficients_of(model, "intercept_")))
    return np.concatenate(parts)


def run_trials(
    worlds: list[Trials],
    n_runs: int,
    *,
    n_jobs: int | None,
    random_state: Any,
    verbose: int,
) -> list[Array]:
    """Run every one of some kinds of trials equally often.

    Parameters
    ----------
    worlds : list of Trials
    n_runs : int
        Of each.
    n_jobs : int or None
        Processes.
    random_state : int or None
        None: noise is that of users. Else each run has a seed of its own.
    verbose : int
        Above 0, a bar shows how many runs are done.

    Returns
    -------
    list of ndarray of shape (n_runs, n_parameters)
    """
    n_chunks = max(-(-n_runs // LARGEST_CHUNK), min(4 * effective_n_jobs(n_jobs), n_runs))
    sizes = [len(part) for part in np.array_split(np.arange(n_runs), n_chunks)]
    root = None if random_state is None else np.random.SeedSequence(random_state)
    tasks = []
    for trials in worlds:
        for size in sizes:
            seeds: list[np.random.SeedSequence | None]
            seeds = [None] * size if root is None else list(root.spawn(size))
            tasks.append((trials, seeds))
    call: Callable[..., Any] = delayed(_run)
    jobs = Parallel(n_jobs=n_jobs, return_as="generator")(call(*task) for task in tasks)
    found: list[list[Array]] = []
    with tqdm(total=n_runs * len(worlds), unit="fit", disable=not verbose) as bar:
        for part in jobs:
            found.append(part)
            bar.update(len(part))
    models = [model for part in found for model in part]
    table = _in_rows(models)
    return [table[i * n_runs : (i + 1) * n_runs] for i in range(len(worlds))]


def _run(trials: Trials, seeds: list[np.random.SeedSequence | None]) -> list[Array]:
    return trials.run(seeds)


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
