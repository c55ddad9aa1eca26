"""Private searches over candidates, drop-in for those of scikit-learn."""

from __future__ import annotations

import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier, is_regressor
from sklearn.metrics import check_scoring
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.pipeline import Pipeline
from sklearn.utils import check_scalar, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from skdpadmm._fitting import all_or_nothing
from skdpadmm._sklearn import HasMethods, Interval, StrOptions, _fit_context
from skdpadmm.ledger import LedgerEntry, PrivacyLedger
from skdpadmm.model_selection._candidates import (
    check_candidate,
    last_step,
    n_features_of_last_step,
    with_parameters,
)
from skdpadmm.model_selection._plan import SearchPlan, plan_search
from skdpadmm.model_selection._report import SearchReport
from skdpadmm.model_selection._scores import RowScore, row_score
from skdpadmm.model_selection._split import split_rows, split_sizes
from skdpadmm.noise import NoiseSource, noise_source
from skdpadmm.privacy import (
    NegativeBinomialTrials,
    NonPrivate,
    Observer,
    PoissonTrials,
    ReleaseLine,
    TrialLaw,
)

_LAWS: dict[str, Callable[[float], TrialLaw]] = {
    "geometric": lambda mean: NegativeBinomialTrials.of_mean(1.0, mean),
    "logarithmic": lambda mean: NegativeBinomialTrials.of_mean(0.0, mean),
    "poisson": PoissonTrials.of_mean,
}
# Streams of what is drawn without data, and of the noise of scores.
_COUNT, _CHOICE, _SPLIT, _SEED, _SCORE = range(5)


def _has(method: str) -> Callable[[Any], bool]:
    """Whether the model has that method, before and after a fit."""

    def check(search: _DPSearch) -> bool:
        getattr(getattr(search, "best_estimator_", search.estimator), method)
        return True

    return check


@dataclass(frozen=True, kw_only=True)
class _Trials:
    """What all trials share: data, and what turns an estimator into a model with its score."""

    X: Any
    y: NDArray[Any]
    X_validation: Any
    y_validation: NDArray[Any]
    score: RowScore | None
    public_score: Any
    plan: SearchPlan
    noise: NoiseSource

    def run(self, number: int, estimator: Any) -> tuple[float, Any]:
        """Fit and score; the score without noise does not leave."""
        with warnings.catch_warnings():
            # The plan has warned already, once: as often as there are trials would tell of them.
            warnings.simplefilter("ignore", UserWarning)
            model = estimator.fit(self.X, self.y)
        _require_as_planned(last_step(model).privacy_, self.plan.fit, self.plan.delta)
        if self.score is None:
            value = float(self.public_score(model, self.X_validation, self.y_validation))
            return (value if math.isfinite(value) else -math.inf), model
        value = self.score.mean(model, self.X_validation, self.y_validation)
        if self.plan.score_std == 0:
            return value, model
        noisy = self.noise.add_gaussian(np.array([value]), self.plan.score_std, (_SCORE, number))
        return float(noisy[0]), model


class _DPSearch(MetaEstimatorMixin, BaseEstimator):
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
        "ledger": [str, None],
    }

    estimator: Any
    epsilon: float
    delta: float
    n_trials: float | None
    trials: str
    scoring: Any
    score_bounds: Any
    public_validation: Any
    cv: Any
    refit: bool
    search_share: float
    random_state: Any
    n_jobs: int | None
    ledger: str | None

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

        Raises
        ------
        ValueError
            Where a parameter is out of range, or where the budget is below what a trial needs.
        """
        self._validate_params()
        check_scalar(n_samples, "n_samples", Integral, min_val=1)
        check_scalar(n_features, "n_features", Integral, min_val=1)
        candidates = self._candidates(self._drawn())
        return self._plan(candidates, int(n_samples), int(n_features), n_classes)

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: ArrayLike | None = None, groups: None = None) -> Self:
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

        Returns
        -------
        self : object
            The fitted search.

        Raises
        ------
        ValueError
            Where a parameter or the input is not valid; nothing is stored then.
        PrivacyBudgetExceeded
            Where the ledger has no room for it; no trial was run then.
        """
        if groups is not None:
            raise ValueError(
                "Got groups, expected None: the split goes by positions alone. Pass the positions"
                " of both parts as cv=[(train, validation)] where they are public."
            )
        with all_or_nothing(self):
            self._fit(X, y)
        return self

    def _fit(self, X: Any, y: Any) -> None:
        rows, y = self._check_data(X, y)
        n_samples, n_features = rows.shape
        # Bounds may go by the names of columns.
        table = X if hasattr(X, "iloc") else None
        own = self._labels(y)
        n_classes = None if own is None else len(own)
        drawn = self._drawn()
        candidates = self._candidates(drawn)
        plan = self._plan(
            candidates, n_samples, n_features, n_classes, getattr(table, "columns", None)
        )
        for line in plan.warnings:
            warnings.warn(line, UserWarning, stacklevel=2)
        source = noise_source(drawn.seed, plan.digest(), self._sampler())
        report = self._report(plan, source.simulation, is_declared=own is None)
        data = rows if table is None else table
        with _accounted(self.ledger, report, plan, type(self).__name__):
            self._run(data, y, plan, source, candidates, own)
        self.candidates_ = candidates
        self.refit_ = plan.refit is not None
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
        n_trials = plan.law.sample(float(source.uniform((1,), (_COUNT, 0))[0]))
        chosen = (source.uniform((n_trials,), (_CHOICE, 0)) * len(candidates)).astype(np.intp)
        seeds = self._seeds(source, n_trials + 1)
        declared = {} if own is None else {"classes": own}
        budget: dict[str, Any] = {
            "epsilon": plan.trial_epsilon,
            "delta": self.delta,
            # The account has the search, once: trials in it would tell how many there were.
            "ledger": None,
            **declared,
        }
        results = Parallel(n_jobs=self.n_jobs)(
            delayed(shared.run)(
                number,
                with_parameters(
                    self.estimator, candidates[index], random_state=seeds[number], **budget
                ),
            )
            for number, index in enumerate(chosen.tolist())
        )
        # Of equal scores the first: a public rule.
        best = max(range(n_trials), key=lambda number: results[number][0])
        self.best_index_ = int(chosen[best])
        self.best_params_ = dict(candidates[self.best_index_])
        self.best_score_, self.best_estimator_ = results[best]
        if plan.refit is not None:
            last_budget = {**budget, "epsilon": plan.refit_epsilon, "random_state": seeds[n_trials]}
            model = with_parameters(self.estimator, self.best_params_, **last_budget)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                self.best_estimator_ = model.fit(data, y)
            _require_as_planned(last_step(model).privacy_, plan.refit, plan.delta)

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

    def _labels(self, y: NDArray[Any]) -> NDArray[Any] | None:
        """The classes to declare for all trials, where the estimator declares none."""
        last = last_step(self.estimator)
        if not is_classifier(last) or getattr(last, "classes", None) is not None:
            return None
        return np.unique(y)

    def _sampler(self) -> str:
        return str(getattr(last_step(self.estimator), "sampler", "floating-point"))

    def _seeds(self, source: NoiseSource, size: int) -> list[int | None]:
        """A seed of its own for each fit of a simulation; none where noise is fresh."""
        if not source.simulation:
            return [None] * size
        return [int(u * 2**32) for u in source.uniform((size,), (_SEED, 0)).tolist()]

    def _law(self, n_candidates: int) -> TrialLaw:
        mean = 2 * n_candidates if self.n_trials is None else self.n_trials
        if not math.isfinite(mean):
            raise ValueError(f"Got n_trials={self.n_trials!r}, expected a finite number above 1.")
        return _LAWS[self.trials](float(mean))

    def _drawn(self) -> _Drawn:
        """The seed as one value: what is drawn from a generator is drawn once."""
        seed = self.random_state
        if seed is not None and not isinstance(seed, Integral):
            # Refuses what is no seed.
            noise_source(seed, b"")
            seed = int(seed.integers(2**32) if hasattr(seed, "integers") else seed.randint(2**32))
        return _Drawn(None if seed is None else int(seed))

    @abstractmethod
    def _candidates(self, drawn: _Drawn) -> list[dict[str, Any]]:
        """All candidates, which are public."""

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

    def _public_score(self) -> Any:
        """A score of public rows: any scorer; a mean where it gives one number for each row."""
        scorer = check_scoring(self.estimator, self.scoring)
        return _MeanScore(scorer)

    def _trials_on(self, X: Any, y: NDArray[Any], plan: SearchPlan, source: NoiseSource) -> _Trials:
        """The rows of both parts, by positions that do not depend on data."""
        if self.public_validation is not None:
            X_validation, y_validation = self._public_rows(X.shape[1])
            score, public_score = None, self._public_score()
        else:
            train, validation = split_rows(self.cv, source.uniform((len(y),), (_SPLIT, 0)))
            X_validation, y_validation = _rows(X, validation), y[validation]
            X, y = _rows(X, train), y[train]
            score = row_score(self.scoring, last_step(self.estimator), self.score_bounds)
            public_score = None
        return _Trials(
            X=X,
            y=y,
            X_validation=X_validation,
            y_validation=y_validation,
            score=score,
            public_score=public_score,
            plan=plan,
            noise=source,
        )

    def _report(self, plan: SearchPlan, is_simulation: bool, *, is_declared: bool) -> SearchReport:
        is_private = not isinstance(plan.selection, NonPrivate)
        assumptions: tuple[str, ...] = (
            "The candidates, the law of the number of trials and the split of rows by positions are"
            " public.",
            "How many trials ran stays hidden: nobody who sees the result measures the time or the"
            " work that the search took.",
            "No row of public_validation is private."
            if self.public_validation is not None
            else "The score of a row depends on that row and on the model alone.",
        )
        if self.ledger is not None:
            assumptions += (
                "Nobody who sees the result reads the ledger, whose times tell how long the search"
                " took.",
            )
        if isinstance(self.estimator, Pipeline):
            assumptions += ("Transformers before the estimator treat each row by itself.",)
        if not is_declared:
            assumptions += (
                "classes not declared: the set of labels seen in y is assumed to be public.",
            )
        seed = self.random_state if isinstance(self.random_state, Integral) else "a generator"
        releases = (
            (ReleaseLine("score of the chosen trial", 1, (), _sensitivity(plan), plan.score_std),)
            if plan.n_validation
            else ()
        )
        return SearchReport(
            subject=f"{type(self).__name__} of {type(last_step(self.estimator)).__name__}",
            observers=(
                Observer(
                    name="model",
                    sees="the chosen candidate, its score and the final model",
                    unit="record",
                    neighboring=plan.neighboring,
                    guarantee=plan.guarantee(),
                ),
            ),
            releases=releases,
            delta=float(self.delta),
            assumptions=(*assumptions, *plan.assumptions) if is_private else (),
            not_covered=(
                "Models and scores of trials that were not chosen: they are not kept.",
                "Candidates that were picked by looking at the data.",
                "Other fits on the same records: their costs add up.",
                "Running time and memory.",
            ),
            simulation=(
                f"random_state={seed} fixes trials and noise. Whoever knows the seed can remove it."
                " Publish only searches with random_state=None."
                if is_simulation and is_private
                else ""
            ),
            trial=plan.trial,
            selection=plan.selection,
            refit=plan.refit,
            law=plan.law.describe(),
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
            By `scoring`, not clipped to bounds; None: by the model's own `score`.
        """
        check_is_fitted(self)
        return float(self._public_score()(self.best_estimator_, X, np.asarray(y)))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_estimator_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.regressor_tags = inner.regressor_tags
        # A trial has a part of the budget. On the 200 to 300 rows of scikit-learn's checks, without
        # bounds, R2 has a median of .42 where .5 is asked for, and one draw of eight is a guess.
        for of_kind in (tags.classifier_tags, tags.regressor_tags):
            if of_kind is not None:
                of_kind.poor_score = True
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.target_tags.required = inner.target_tags.required
        return tags


class DPGridSearchCV(_DPSearch):
    r"""Search over a grid of parameters under one total budget.

    Drop-in for :class:`sklearn.model_selection.GridSearchCV`, but `epsilon` and `delta` are the
    total: of every candidate that is tried, of every score and of the final model.

    A random number of trials is run. Each draws a candidate, fits it on the training rows and
    scores it on the validation rows, with noise; the trial with the best score is released, and
    nothing else. So the cost hardly grows with the number of candidates.

    Parameters
    ----------
    estimator : estimator
        One of this package, or a Pipeline that ends in one, with transformers that learn nothing
        from data. Its `epsilon`, `delta` and `random_state` are set by the search.
    param_grid : dict or list of dict
        Candidates, as in scikit-learn. They are public.
    epsilon : float, default=1.0
        Total budget of search and final model, in (0, inf]. At inf nothing is private.
    delta : float, default=1e-5
        In (0, 1), to be chosen well below ``1 / n_samples``.
    n_trials : float, default=None
        Mean number of trials, above 1. None: twice the number of candidates; the geometric law then
        tries a given one with a probability of about 2/3.
    trials : {"geometric", "logarithmic", "poisson"}, default="geometric"
        Law of the number of trials. At equal means "logarithmic" costs the least and often tries
        few; "poisson" costs the most and is nearest to its mean.
    scoring : str, callable or None, default=None
        A mean over rows: "accuracy" (None) or "neg_log_loss" for classifiers,
        "neg_mean_squared_error" (None) or "neg_mean_absolute_error" for regressors, or a function
        of ``(estimator, X, y)`` that returns a score for each row. With `public_validation`
        everything that scikit-learn takes.
    score_bounds : pair of floats, default=None
        Public bounds that the score of each row is clipped to. Needed, but for "accuracy" and where
        `target_bounds` of the estimator bounds the errors.
    public_validation : tuple of (X, y), default=None
        Public rows to score on, without noise and at no cost; all private rows train then.
    cv : int, float, splitter or list, default=None
        ONE split of the rows by position, for all trials; no record trains and validates. An int k:
        one random part of k validates, the rest trains; None is 5. A float: the share of rows that
        validates. ``ShuffleSplit(n_splits=1)``, ``PredefinedSplit`` or ``[(train, validation)]``.
    refit : bool, default=False
        False: the final model is that of the chosen trial, at no further cost. True: the chosen
        candidate is fitted again, on all rows, with a budget of its own.
    search_share : float, default=0.5
        With ``refit=True``: the last fit gets ``1 - search_share`` of `epsilon`, and the search
        what is then left, by composition.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws trials and noise from the operating system. Anything else makes the search a
        simulation.
    n_jobs : int, default=None
        Number of trials that run at once. The result does not depend on it.
    ledger : str or None, default=None
        The account that the search is counted in, ``"study.db"``, or ``"study.db::adult"`` for one
        data set: see :class:`~skdpadmm.ledger.PrivacyLedger`. `fit` puts its whole cost there once,
        before a trial sees data, and is refused where that would pass a limit. Trials are not in
        it, and an estimator with a `ledger` of its own is refused. Its times tell how long the
        search took, so it is for those who run the study.

    Attributes
    ----------
    best_estimator_ : estimator
        The final model. Its `privacy_` is that of the search.
    best_params_ : dict
        The chosen candidate.
    best_index_ : int
        Its position in `candidates_`.
    best_score_ : float
        The score of the chosen trial, with its noise.
    candidates_ : list of dict
    refit_ : bool
        Whether the final model was fitted on all rows.
    privacy_ : SearchReport
        The guarantee, and what was spent on search and final model.
    classes_ : ndarray of shape (n_classes,)
        Class labels, of a classifier.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)

    See Also
    --------
    DPRandomizedSearchCV : Candidates drawn from distributions.
    search_cost : What an ordinary search of scikit-learn has cost.

    Notes
    -----
    **Guarantee.** Adversary "model": whoever sees the chosen candidate, its score and the final
    model. Unit: one record. Neighbouring: that of the estimator. The split goes by position, so
    neighbouring data sets differ in one row of one part. In the training part it costs what the fit
    costs, as the score only reads the model; in the validation part what the noisy score costs, as
    the fit does not see it. So a trial costs the larger of the two, not their sum. The score is a
    mean of m clipped numbers, of which one row moves one: by ``(high - low) / m`` at most. A record
    that is zeroed out counts as ``low``. For the best of all trials see
    :func:`~skdpadmm.privacy.best_of_trials`; a last fit composes with it.

    The number of trials has to stay hidden, so there is no count, no progress bar, and no
    ``cv_results_``: scores of trials that were not chosen are not released. Nothing of this holds
    for a server or a peer that sees the messages of every trial: such candidates are refused.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmLogisticRegression
    >>> from skdpadmm.model_selection import DPGridSearchCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> y = (X[:, 0] + X[:, 1] > 0).astype(int)
    >>> model = DPAdmmLogisticRegression(classes=[0, 1], feature_bounds=(-1, 1))
    >>> search = DPGridSearchCV(model, {"C": [1e-6, 1.0]}, epsilon=1.0, random_state=0)
    >>> search.fit(X, y).best_params_
    {'C': 1.0}
    >>> f"{search.privacy_.epsilon():.3f}"
    '1.000'
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **_DPSearch._parameter_constraints,
        "param_grid": [dict, list],
    }

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        n_trials: float | None = None,
        trials: str = "geometric",
        scoring: Any = None,
        score_bounds: Any = None,
        public_validation: Any = None,
        cv: Any = None,
        refit: bool = False,
        search_share: float = 0.5,
        random_state: Any = None,
        n_jobs: int | None = None,
        ledger: str | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
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

    def _candidates(self, drawn: _Drawn) -> list[dict[str, Any]]:
        return list(ParameterGrid(self.param_grid))


class DPRandomizedSearchCV(_DPSearch):
    """Search over candidates drawn from distributions, under one total budget.

    Drop-in for :class:`sklearn.model_selection.RandomizedSearchCV`. A list of `n_iter` candidates
    is drawn before any data is seen, and is public; then all is as in :class:`DPGridSearchCV`.

    Parameters
    ----------
    estimator : estimator
        One of this package, or a Pipeline that ends in one, with transformers that learn nothing
        from data. Its `epsilon`, `delta` and `random_state` are set by the search.
    param_distributions : dict or list of dict
        Lists or distributions, as in scikit-learn. They are public.
    n_iter : int, default=10
        Number of candidates.
    epsilon : float, default=1.0
        Total budget of search and final model, in (0, inf].
    delta : float, default=1e-5
        In (0, 1), to be chosen well below ``1 / n_samples``.
    n_trials : float, default=None
        Mean number of trials, above 1. None: twice the number of candidates; the geometric law then
        tries a given one with a probability of about 2/3.
    trials : {"geometric", "logarithmic", "poisson"}, default="geometric"
        Law of the number of trials.
    scoring : str, callable or None, default=None
        A mean over rows, see :class:`DPGridSearchCV`.
    score_bounds : pair of floats, default=None
        Public bounds that the score of each row is clipped to.
    public_validation : tuple of (X, y), default=None
        Public rows to score on, without noise and at no cost.
    cv : int, float, splitter or list, default=None
        ONE split of the rows by position, see :class:`DPGridSearchCV`.
    refit : bool, default=False
        Whether the chosen candidate is fitted again, on all rows, with a budget of its own.
    search_share : float, default=0.5
        With ``refit=True``: the last fit gets ``1 - search_share`` of `epsilon`.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws candidates, trials and noise from the operating system. Anything else makes the
        search a simulation.
    n_jobs : int, default=None
        Number of trials that run at once.
    ledger : str or None, default=None
        The account that the search is counted in, once and with its whole cost, before a trial sees
        data; see :class:`DPGridSearchCV`.

    Attributes
    ----------
    best_estimator_ : estimator
        The final model. Its `privacy_` is that of the search.
    best_params_ : dict
        The chosen candidate.
    best_index_ : int
        Its position in `candidates_`.
    best_score_ : float
        The score of the chosen trial, with its noise.
    candidates_ : list of dict
        All that could have been chosen.
    refit_ : bool
        Whether the final model was fitted on all rows.
    privacy_ : SearchReport
        The guarantee, and what was spent on search and final model.
    classes_ : ndarray of shape (n_classes,)
        Class labels, of a classifier.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (`n_features_in_`,)

    See Also
    --------
    DPGridSearchCV : Candidates of a grid; states the guarantee.

    Notes
    -----
    Where `random_state` is None, `plan` draws other candidates than `fit`: of the same laws, not
    the same ones.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.stats import loguniform
    >>> from skdpadmm import DPAdmmRidge
    >>> from skdpadmm.model_selection import DPRandomizedSearchCV
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(2000, 2))
    >>> model = DPAdmmRidge(feature_bounds=(-1, 1), target_bounds=(-2, 2))
    >>> search = DPRandomizedSearchCV(
    ...     model, {"alpha": loguniform(1e-2, 1e4)}, n_iter=4, random_state=0
    ... )
    >>> len(search.fit(X, X.sum(axis=1)).candidates_), round(search.privacy_.epsilon(), 3)
    (4, 1.0)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **_DPSearch._parameter_constraints,
        "param_distributions": [dict, list],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        estimator: Any,
        param_distributions: Any,
        *,
        n_iter: int = 10,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        n_trials: float | None = None,
        trials: str = "geometric",
        scoring: Any = None,
        score_bounds: Any = None,
        public_validation: Any = None,
        cv: Any = None,
        refit: bool = False,
        search_share: float = 0.5,
        random_state: Any = None,
        n_jobs: int | None = None,
        ledger: str | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_distributions = param_distributions
        self.n_iter = n_iter
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

    def _candidates(self, drawn: _Drawn) -> list[dict[str, Any]]:
        seed = int.from_bytes(os.urandom(4), "little") if drawn.seed is None else drawn.seed
        sampler = ParameterSampler(self.param_distributions, self.n_iter, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # fewer candidates than were asked for
            return list(sampler)


@dataclass(frozen=True)
class _Drawn:
    """A seed, or None for fresh randomness."""

    seed: int | None


@dataclass(frozen=True)
class _MeanScore:
    """A scorer, or the mean of what it says of each row."""

    scorer: Callable[[Any, Any, Any], Any]

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        return float(np.mean(self.scorer(estimator, X, y)))


@contextmanager
def _accounted(
    ledger: str | None, report: SearchReport, plan: SearchPlan, subject: str
) -> Iterator[None]:
    """Count a search before its trials see data, and mark it as done: a crash stays counted."""
    if ledger is None:
        yield
        return
    account = PrivacyLedger(ledger)
    # A ledger knows subjects by the name of a class.
    entry = LedgerEntry.of_report(replace(report, subject=subject), plan.digest().hex())
    key = account.reserve(entry)
    yield
    account.finish(key)


def _rows(X: Any, positions: NDArray[np.intp]) -> Any:
    """Rows of an array, a sparse matrix or a table."""
    return X.iloc[positions] if hasattr(X, "iloc") else X[positions]


def _sensitivity(plan: SearchPlan) -> float | None:
    """How far one row moves a score: what its noise was made for."""
    mu = getattr(plan.score, "mu", None)
    return None if not mu else mu * plan.score_std


def _require_as_planned(report: Any, planned: Any, delta: float) -> None:
    """A fit that promises less than its plan would break the sum."""
    if planned.dominates(report.guarantee()):
        return
    promised, spent = planned.epsilon(delta), report.guarantee().epsilon(delta)
    if not spent <= promised * (1.0 + 1e-9):
        raise RuntimeError(
            f"Got a fit with epsilon={spent:.6g}, expected epsilon={promised:.6g} as planned."
            " Report this as a bug."
        )
