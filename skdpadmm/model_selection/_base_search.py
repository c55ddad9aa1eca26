"""What private searches share: planning, trials under a plan, and the choice."""

from __future__ import annotations

import copy
import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier, is_regressor
from sklearn.metrics import check_scoring
from sklearn.utils import check_scalar, get_tags
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from skdpadmm._candidates import last_step, n_features_of_last_step, silent, with_parameters
from skdpadmm._fitting import all_or_nothing
from skdpadmm._linear_model import encode
from skdpadmm._sklearn import HasMethods, Interval, StrOptions, _fit_context
from skdpadmm.ledger import LedgerEntry, PrivacyLedger
from skdpadmm.model_selection._checks import check_candidate
from skdpadmm.model_selection._plan import SearchPlan, plan_search
from skdpadmm.model_selection._report import report_of
from skdpadmm.model_selection._scores import name_of_score, row_score
from skdpadmm.model_selection._split import split_rows, split_sizes
from skdpadmm.model_selection._trials import (
    CHOICE,
    COUNT,
    SEED,
    SPLIT,
    MeanScore,
    Trials,
    require_as_planned,
    rows_at,
    unheard,
)
from skdpadmm.noise import NoiseSource, noise_source
from skdpadmm.privacy import NegativeBinomialTrials, PoissonTrials, TrialLaw

_LAWS: dict[str, Callable[[float], TrialLaw]] = {
    "geometric": lambda mean: NegativeBinomialTrials.of_mean(1.0, mean),
    "logarithmic": lambda mean: NegativeBinomialTrials.of_mean(0.0, mean),
    "poisson": PoissonTrials.of_mean,
}

_ROWS_OF_ONE = "A person with several rows is protected less."


def _has(method: str) -> Callable[[Any], bool]:
    """Whether the model has that method, before and after a fit."""

    def check(search: BaseDPSearch) -> bool:
        getattr(getattr(search, "best_estimator_", search.estimator), method)
        return True

    return check


class BaseDPSearch(MetaEstimatorMixin, BaseEstimator):
    """Parameters, planning and fitting of a private search."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "estimator": [HasMethods(["fit", "predict"])],
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "n_trials": [Interval(Real, 1, None, closed="neither"), None],
        "trials": [StrOptions(set(_LAWS))],
        "scoring": [str, callable, None],
        "score_bounds": "no_validation",
        "public_validation": "no_validation",
        "cv": "no_validation",
        "refit": ["boolean"],
        "search_share": [Interval(Real, 0, 1, closed="neither")],
        "random_state": "no_validation",
        "n_jobs": [Integral, None],
        "ledger": [str, os.PathLike, None],
    }

    # `fit` has the argument to refuse it: nothing is to be routed there.
    __metadata_request__fit: ClassVar[dict[str, Any]] = {"groups": UNUSED}

    @abstractmethod
    def __init__(
        self,
        estimator: Any,
        *,
        epsilon: float,
        delta: float,
        n_trials: float | None,
        trials: str,
        scoring: Any,
        score_bounds: Any,
        public_validation: Any,
        cv: Any,
        refit: bool,
        search_share: float,
        random_state: Any,
        n_jobs: int | None,
        ledger: str | os.PathLike[str] | None,
    ) -> None:
        self.estimator = estimator
        self.epsilon = epsilon
        self.delta = delta
        self.n_trials = n_trials
        self.trials = trials
        self.scoring = scoring
        self.score_bounds = score_bounds
        self.public_validation = public_validation
        self.cv = cv
        self.refit = refit
        self.search_share = search_share
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.ledger = ledger

    def plan(self, n_samples: int, n_features: int, n_classes: int | None = None) -> SearchPlan:
        """Say what a search would spend, and on what; no data is needed.

        Parameters
        ----------
        n_samples, n_features : int
            Shape of the data.
        n_classes : int, default=None
            Number of classes, where the estimator does not declare them.

        Returns
        -------
        plan : SearchPlan
            What it warns of is in its `warnings` as well.

        Raises
        ------
        ValueError
            Where a parameter is out of range, or where the budget is below what a trial needs.
        """
        self._validate_params()
        check_scalar(n_samples, "n_samples", Integral, min_val=1)
        check_scalar(n_features, "n_features", Integral, min_val=1)
        # A generator stays where it is: the next fit draws the same from it.
        candidates = self._candidates(_seed(copy.deepcopy(self.random_state)))
        plan = self._plan(candidates, int(n_samples), int(n_features), n_classes)
        for line in plan.warnings:
            warnings.warn(line, UserWarning, stacklevel=2)
        return plan

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: ArrayLike | None = None, groups: None = None, **others: Any) -> Self:
        """Search, and keep the best model; spends the whole budget.

        With a `ledger` the whole budget is counted there once, before a trial sees data.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Features, finite.
        y : array-like of shape (n_samples,)
            Target.
        groups : None
            Refused: who is in which group may be private, and no split by groups is planned for.
        **others : dict
            Refused: neither weights of rows nor labels of agents pass through a search.

        Returns
        -------
        self : object
            The fitted search.

        Raises
        ------
        ValueError
            Where a parameter or the input is not valid; nothing is stored then.
        TypeError
            Where it gets anything but `X` and `y`.
        PrivacyBudgetExceeded
            Where the ledger has no room for it; no trial was run then.
        """
        if groups is not None:
            raise ValueError(
                "Got groups, expected None: the split goes by positions alone. Pass the positions"
                " of both parts as cv=[(train, validation)] where they are public. The budget"
                f" protects one row. {_ROWS_OF_ONE}"
            )
        if others:
            raise TypeError(
                f"Got {', '.join(sorted(others))} in {type(self).__name__}.fit, expected X and y"
                " alone: neither weights of rows nor labels of agents pass through a search, whose"
                " budget protects one row. Fit the estimator by itself where it takes them."
                f" {_ROWS_OF_ONE}"
            )
        with all_or_nothing(self):
            self._fit(X, y)
        return self

    def _fit(self, X: Any, y: Any) -> None:
        rows, y = self._check_data(X, y)
        n_samples, n_features = rows.shape
        # Bounds may go by the names of columns.
        table = X if hasattr(X, "iloc") else None
        seed = _seed(self.random_state)
        candidates = self._candidates(seed)
        own = self._labels(y, candidates)
        n_classes = None if own is None else len(own)
        plan = self._plan(
            candidates, n_samples, n_features, n_classes, getattr(table, "columns", None)
        )
        for line in plan.warnings:
            warnings.warn(line, UserWarning, stacklevel=2)
        source = noise_source(seed, plan.digest(), self._sampler())
        report = report_of(self, plan, is_simulation=source.simulation, is_declared=own is None)
        data = rows if table is None else table
        # A ledger knows subjects by the names of classes.
        subject = f"{type(self).__name__}.{type(last_step(self.estimator)).__name__}"
        entry = LedgerEntry.of_report(replace(report, subject=subject), plan.digest().hex())
        ledger = None if self.ledger is None else PrivacyLedger(self.ledger)
        with nullcontext() if ledger is None else ledger.counting(entry):
            self._run(data, y, plan, source, candidates, own)
        self.candidates_ = candidates
        self.scorer_ = self._public_score()
        self.refit_ = plan.refit_guarantee is not None
        self.privacy_ = report
        # The report of a trial says nothing of the choice: it would claim too little.
        last_step(self.best_estimator_).privacy_ = self.privacy_

    def _run(
        self,
        data: Any,
        y: NDArray[Any],
        plan: SearchPlan,
        source: NoiseSource,
        candidates: Sequence[Mapping[str, Any]],
        own: NDArray[Any] | None,
    ) -> None:
        """Run the trials, keep the best of them and, if planned, fit it on all rows."""
        shared = self._trials_on(data, y, plan, source)
        n_trials = plan.law.sample(float(source.uniform((1,), (COUNT, 0))[0]))
        chosen = (source.uniform((n_trials,), (CHOICE, 0)) * len(candidates)).astype(np.intp)
        seeds = self._seeds(source, n_trials + 1)
        budget: dict[str, Any] = {
            "epsilon": plan.trial_epsilon,
            "delta": self.delta,
            # The account has the search, once: trials in it would tell how many there were.
            "ledger": None,
        }

        def made(parameters: Mapping[str, Any], seed: int | None, **last_budget: Any) -> Any:
            parts = {**budget, "random_state": seed, **last_budget}
            model = silent(with_parameters(self.estimator, parameters, **parts))
            if _lacks_classes(last := last_step(model)):
                last.set_params(classes=own)
            return model

        # Not what joblib is set to elsewhere: it would print how many trials there are.
        with unheard():
            results = Parallel(n_jobs=self.n_jobs, verbose=0)(
                delayed(shared.run)(number, made(candidates[index], seeds[number]))
                for number, index in enumerate(chosen.tolist())
            )
        # Of equal scores the first: a public rule.
        best = max(range(n_trials), key=lambda number: results[number][0])
        self.best_index_ = int(chosen[best])
        self.best_params_ = dict(candidates[self.best_index_])
        self.best_score_, self.best_estimator_ = results[best]
        if self.best_score_ == -math.inf:
            warnings.warn(
                "Got scores of public_validation that are not finite, for every trial: the choice"
                f" is that of the first one. Does scoring={self.scoring!r} fit these rows?",
                UserWarning,
                stacklevel=4,
            )
        if plan.refit_guarantee is not None:
            model = made(self.best_params_, seeds[n_trials], epsilon=plan.refit_epsilon)
            with unheard():
                self.best_estimator_ = model.fit(data, y)
            require_as_planned(last_step(model).privacy_, plan.refit_guarantee, plan.delta)

    def _check_data(self, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
        """Validate what a fit gets, and note the columns."""
        with np.errstate(all="ignore"):
            X, y = validate_data(
                self,
                X,
                y,
                accept_sparse="csr",
                dtype=[np.float64, np.float32],
                y_numeric=is_regressor(self.estimator),
            )
        return X, np.asarray(y)

    def _labels(
        self, y: NDArray[Any], candidates: Sequence[Mapping[str, Any]]
    ) -> NDArray[Any] | None:
        """Check labels, and return the classes to declare where an estimator declares none.

        Trials must not find a label that they do not know: it would depend on the part that its
        row is in, and so on chances that nobody sees, whether they raise.
        """
        own, checked = None, set()
        for parameters in candidates:
            last = last_step(with_parameters(self.estimator, parameters))
            if not is_classifier(last):
                continue
            classes = getattr(last, "classes", None)
            declared = None if classes is None else tuple(np.ravel(classes).tolist())
            if declared in checked:
                continue
            checked.add(declared)
            found, _ = encode(y, classes)
            if classes is None:
                own = found
        return own

    def _sampler(self) -> str:
        return str(getattr(last_step(self.estimator), "sampler", "floating-point"))

    def _seeds(self, source: NoiseSource, size: int) -> list[int | None]:
        """A seed of its own for each fit of a simulation; none where noise is fresh."""
        if not source.simulation:
            return [None] * size
        return [int(u * 2**32) for u in source.uniform((size,), (SEED, 0)).tolist()]

    def _law(self, n_candidates: int) -> TrialLaw:
        mean = 2 * n_candidates if self.n_trials is None else self.n_trials
        if not math.isfinite(mean):
            raise ValueError(f"Got n_trials={self.n_trials!r}, expected a finite number above 1.")
        return _LAWS[self.trials](float(mean))

    @abstractmethod
    def _candidates(self, seed: int | None) -> list[dict[str, Any]]:
        """All candidates, which are public; None draws them freshly."""

    def _plan(
        self,
        candidates: Sequence[Mapping[str, Any]],
        n_samples: int,
        n_features: int,
        n_classes: int | None,
        columns: Any = None,
    ) -> SearchPlan:
        if not candidates:
            raise ValueError("Got no candidates, expected one at least.")
        widths = []
        for parameters in candidates:
            candidate = with_parameters(self.estimator, parameters)
            check_candidate(candidate, parameters)
            widths.append(n_features_of_last_step(candidate, n_features, columns))
        score, n_train, n_validation = None, n_samples, 0
        if self.public_validation is None:
            score = row_score(self.scoring, last_step(self.estimator), self.score_bounds)
            n_train, n_validation = split_sizes(self.cv, n_samples)
        else:
            self._public_rows(n_features)
            # An unknown name is refused before anything is spent.
            self._public_score()
        return plan_search(
            self.estimator,
            candidates,
            law=self._law(len(candidates)),
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            n_train=n_train,
            n_validation=n_validation,
            n_features=widths,
            n_classes=n_classes,
            score=score,
            refit_share=1.0 - self.search_share if self.refit else None,
            n_samples=n_samples,
        )

    def _public_rows(self, n_features: int) -> tuple[Any, NDArray[Any]]:
        """Rows that are declared to be public."""
        pair = self.public_validation
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(
                "Got public_validation that is not a pair, expected (X_validation, y_validation) of"
                " public rows."
            )
        X, y = pair[0], np.asarray(pair[1])
        shape = np.shape(X) if not hasattr(X, "shape") else X.shape
        if len(shape) != 2 or shape[1] != n_features or y.shape != (shape[0],) or not shape[0]:
            raise ValueError(
                f"Got public_validation of shapes {shape} and {y.shape}, expected"
                f" (n_rows, {n_features}) and (n_rows,)."
            )
        return (X if hasattr(X, "shape") else np.asarray(X)), y

    def _public_score(self) -> MeanScore:
        """A score of public rows: any scorer; a mean where it gives one number for each row."""
        name = name_of_score(self.scoring, last_step(self.estimator))
        return MeanScore(check_scoring(self.estimator, name))

    def _trials_on(self, X: Any, y: NDArray[Any], plan: SearchPlan, source: NoiseSource) -> Trials:
        """The rows of both parts, by positions that do not depend on data."""
        if self.public_validation is not None:
            X_validation, y_validation = self._public_rows(X.shape[1])
            score, public_score = None, self._public_score()
        else:
            train, validation = split_rows(self.cv, source.uniform((len(y),), (SPLIT, 0)))
            X_validation, y_validation = rows_at(X, validation), y[validation]
            X, y = rows_at(X, train), y[train]
            score = row_score(self.scoring, last_step(self.estimator), self.score_bounds)
            public_score = None
        return Trials(
            X=X,
            y=y,
            X_validation=X_validation,
            y_validation=y_validation,
            score=score,
            public_score=public_score,
            plan=plan,
            noise=source,
            process=os.getpid(),
        )

    @property
    def classes_(self) -> NDArray[Any]:
        """Class labels, of a classifier."""
        _has("classes_")(self)
        return self.best_estimator_.classes_

    @available_if(_has("predict"))
    def predict(self, X: Any) -> NDArray[Any]:
        """Predict by the final model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        y_pred : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    @available_if(_has("predict_proba"))
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict the probability of each class by the final model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)

    @available_if(_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict the logarithm of the probability of each class by the final model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        return self.best_estimator_.predict_log_proba(X)

    @available_if(_has("decision_function"))
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores of the classes by the final model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X)

    def score(self, X: Any, y: ArrayLike) -> float:
        """Score the final model, exactly: of rows that may be seen.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        score : float
            By `scoring`, as `scorer_` gives it: not clipped to bounds.
        """
        check_is_fitted(self)
        return self.scorer_(self.best_estimator_, X, np.asarray(y))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_estimator_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.regressor_tags = inner.regressor_tags
        # A trial has a part of the budget: on the 200 to 300 rows of scikit-learn's checks, without
        # bounds, one draw of eight is a guess. The score of a regressor is a negative error there,
        # where an R2 of .5 is asked for.
        for of_kind in (tags.classifier_tags, tags.regressor_tags):
            if of_kind is not None:
                of_kind.poor_score = True
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.target_tags.required = inner.target_tags.required
        return tags


def _seed(random_state: Any) -> int | None:
    """A seed as one value, drawn once from a generator; None for fresh randomness."""
    if random_state is None or isinstance(random_state, Integral):
        return None if random_state is None else int(random_state)
    # Refuses what is no seed.
    noise_source(random_state, b"")
    draw = random_state.integers if hasattr(random_state, "integers") else random_state.randint
    return int(draw(2**32))


def _lacks_classes(last: Any) -> bool:
    return is_classifier(last) and "classes" in last.get_params() and last.classes is None
