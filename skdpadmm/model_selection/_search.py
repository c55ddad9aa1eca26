"""Private searches: candidates of a grid, or drawn from distributions, under one total budget."""

from __future__ import annotations

import copy
import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Self

import joblib
import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn import config_context
from sklearn.base import MetaEstimatorMixin, is_classifier, is_regressor
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, check_consistent_length, check_X_y, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from skdpadmm._fitting import all_or_nothing, reserved
from skdpadmm._linear_model import FLOATS, encode, finite_numbers, validating
from skdpadmm._pipelines import (
    last_step,
    n_features_of_last_step,
    prefix_of,
    silent,
    transformers_of,
    with_parameters,
)
from skdpadmm._sklearn import (
    COUNT,
    POSITIVE_OR_INF,
    HasMethods,
    Interval,
    LinkedEstimator,
    OneOf,
    _fit_context,
    _safe_indexing,
    converting,
    parameter,
)
from skdpadmm.exceptions import warn_user
from skdpadmm.model_selection import _trials
from skdpadmm.model_selection._plan import (
    LAWS,
    OF_PERSONS,
    SearchPlan,
    plan_search,
    search_report,
)
from skdpadmm.noise import NoiseSource, noise_source


@dataclass(frozen=True)
class Trials:
    """What all trials share: data, and what turns an estimator into a model with its score."""

    train: tuple[Any, NDArray[Any]]
    agents: dict[str, Any]
    validation: tuple[Any, NDArray[Any]]
    score: Callable[[Any, Any, Any], Any]
    plan: SearchPlan
    noise: NoiseSource
    process: int = field(default_factory=os.getpid)

    def run(self, number: int, estimator: Any) -> tuple[float, Any]:
        """Fit and score; the score without noise does not leave."""
        # In this process warnings are off already: threads would switch them on and off at once.
        silence = nullcontext() if os.getpid() == self.process else _trials.without_warnings()
        with silence, np.errstate(all="ignore"):
            model = _fitted(estimator, *self.train, self.agents)
            self.plan.require_covered(last_step(model).privacy_, self.plan.fit_guarantee)
            score = self.score(model, *self.validation)
        if self.plan.score_std > 0:
            stream = (_trials.SCORE, number)
            noisy = self.noise.add_gaussian(np.array([score]), self.plan.score_std, stream)
            return float(noisy[0]), model
        return (score if math.isfinite(score) else -math.inf), model


def _fitted(estimator: Any, X: Any, y: Any, agents: dict[str, Any]) -> Any:
    """Fit, with the owners of rows for the last step, whether or not metadata are routed."""
    with config_context(enable_metadata_routing=False):
        return estimator.fit(X, y, **agents)


def _fit_parameters(estimator: Any, agents: Any) -> dict[str, Any]:
    """The owners of rows by the name that a pipeline passes to its last step."""
    if agents is None:
        return {}
    labels = agents if hasattr(agents, "dtype") else np.asarray(agents, object)
    return {f"{prefix_of(estimator)}agents": labels}


def _has(method: str) -> Callable[[Any], bool]:
    """Whether the model has that method, before and after a fit."""

    def check(search: BaseDPSearch) -> bool:
        getattr(getattr(search, "best_estimator_", search.estimator), method)
        return True

    return check


@dataclass(kw_only=True, eq=False, repr=False)
class BaseDPSearch(MetaEstimatorMixin, LinkedEstimator):
    """Parameters, planning and fitting of a private search."""

    estimator: Any = field(kw_only=False, metadata={"allowed": [HasMethods(["fit", "predict"])]})
    epsilon: float = parameter(1.0, POSITIVE_OR_INF)
    delta: float = parameter(1e-5, Interval(Real, 0, 1, closed="neither"))
    n_trials: float | None = parameter(None, Interval(Real, 1, None, closed="neither"), None)
    trials: str = parameter("geometric", OneOf(*LAWS))
    scoring: Any = parameter(None, str, callable, None)
    score_bounds: Any = parameter(None)
    public_validation: Any = parameter(None)
    cv: Any = parameter(None)
    refit: bool = parameter(False, "boolean")
    search_share: float = parameter(0.5, Interval(Real, 0, 1, closed="neither"))
    random_state: Any = parameter(None)
    n_jobs: int | None = parameter(None, Integral, None)
    ledger: str | os.PathLike[str] | None = parameter(None, str, os.PathLike, None)

    @abstractmethod
    def _candidates(self, seed: int | None) -> list[dict[str, Any]]:
        """All candidates, which are public; None draws them freshly."""

    def plan(
        self,
        n_samples: int,
        n_features: int | None = None,
        n_classes: int | None = None,
        *,
        columns: Any = None,
        agents: ArrayLike | None = None,
    ) -> SearchPlan:
        """Say what a search would spend, and on what; no data is needed.

        Parameters
        ----------
        n_samples : int
            Number of rows.
        n_features : int, default=None
            Number of columns. None: that of `columns`.
        n_classes : int, default=None
            Number of classes, where the estimator does not declare them.
        columns : list of str, default=None
            Names of the columns of a table, where bounds or transformers go by names.
        agents : array-like of shape (n_samples,), default=None
            Who holds each row, as in `fit`.

        Returns
        -------
        plan : SearchPlan
            Refused with a ValueError where the budget is below what a trial needs.
        """
        self._validate_params()
        if n_features is None:
            n_features = 0 if columns is None else len(columns)
        if n_features < 1 or (columns is not None and len(columns) != n_features):
            raise ValueError(
                f"Got n_features={n_features} and columns={columns!r}, expected the number of"
                " columns, their names, or both."
            )
        # A generator stays where it is: the next fit draws the same from it.
        candidates = self._candidates(_seed(copy.deepcopy(self.random_state)))
        return self._plan(candidates, n_samples, n_features, n_classes, columns, agents)

    def _plan(self, candidates: list[dict[str, Any]], *facts: Any) -> SearchPlan:
        plan = plan_search(self, candidates, *facts)
        for line, category in plan.warnings:
            warn_user(line, category)
        return plan

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self, X: Any, y: ArrayLike | None = None, agents: ArrayLike | None = None, **others: Any
    ) -> Self:
        """Search, and keep the best model; spends the whole budget.

        With a `ledger` the whole budget is counted there once, before a trial sees data.

        Parameters
        ----------
        X : {array-like, sparse matrix, DataFrame} of shape (n_samples, n_features)
            Features, finite. The first transformer of a Pipeline gets them as they are: text,
            missing values, a table of pandas or polars.
        y : array-like of shape (n_samples,)
            Target.
        agents : array-like of shape (n_samples,), default=None
            Public labels of who holds each row, for estimators of agents; `cv` has to be the
            positions of a split then, or `public_validation` given.
        **others : dict
            Groups and weights of rows raise a TypeError.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            Where a parameter or the input is not valid; nothing is stored then.
        PrivacyBudgetExceeded
            Where it would pass a limit of the ledger; no trial was run then.
        """
        if refused := sorted(name for name, value in others.items() if value is not None):
            raise TypeError(
                f"Got {', '.join(refused)} in {type(self).__name__}.fit, expected X, y and agents"
                " alone: the budget protects one row, and a person with several rows is protected"
                f" less. {OF_PERSONS}"
            )
        with all_or_nothing(self):
            self._fit(X, y, agents)
        return self

    def _fit(self, X: Any, y: Any, agents: Any) -> None:
        seed, last = _seed(self.random_state), last_step(self.estimator)
        self.candidates_ = self._candidates(seed)
        data, y = self._validated(X, y)
        # Their number goes with the plan, which needs that of rows.
        own = self._undeclared_classes(y)
        n_classes = None if own is None else len(own)
        shape, columns = data.shape, getattr(data, "columns", None)
        plan = self._plan(self.candidates_, *shape, n_classes, columns, agents)
        self._require_accepted(data)
        source = noise_source(seed, plan.digest(), getattr(last, "sampler", "floating-point"))
        report = search_report(self, plan, is_simulation=source.simulation, is_declared=own is None)
        with reserved(self.ledger, report, plan.digest()):
            self._run(data, y, agents, plan, source, own)
        self.scorer_ = _trials.public_score(self.scoring, self.estimator)
        self.refit_ = self.refit
        self.privacy_ = report
        # The report of a trial leaves out the choice: it would claim too little.
        last_step(self.best_estimator_).privacy_ = report

    def _validated(self, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
        """Features as they came, where a pipeline or names of columns need them so, and targets."""
        of_rows: dict[str, Any] = {"accept_sparse": "csr", "dtype": FLOATS}
        is_regression = is_regressor(self.estimator)
        as_targets = finite_numbers if is_regression else np.asarray
        with validating():
            if not isinstance(self.estimator, Pipeline):
                rows, y = validate_data(self, X, y, y_numeric=is_regression, **of_rows)
                return X if hasattr(X, "columns") else rows, as_targets(y)
            if hasattr(X, "tocsr"):
                X = X.tocsr()
            elif not hasattr(X, "shape"):  # an array of text would turn numbers into text
                X = np.asarray(X, dtype=object)
            if len(X.shape) != 2:
                raise ValueError(
                    f"Got X of shape {X.shape}, expected rows and columns. Reshape your data, or"
                    " select a column of text by a ColumnTransformer."
                )
            validate_data(self, X, skip_check_array=True)
            check_consistent_length(X, y)
            _, y = check_X_y(np.zeros((X.shape[0], 1)), y, y_numeric=is_regression)
            return X, as_targets(y)

    def _require_accepted(self, X: Any) -> None:
        """Refuse rows that transformers of a candidate do not map to finite numbers.

        All rows, and for all candidates: that a trial raises must not depend on the part that a
        row is in, and on the candidate that was drawn.
        """
        checked = set[str]()
        for parameters in self.candidates_:
            candidate = with_parameters(self.estimator, parameters)
            steps = transformers_of(candidate)
            if steps is None or (key := joblib.hash(steps)) in checked:
                continue
            checked.add(key)
            with _trials.without_warnings(), converting():
                width = n_features_of_last_step(candidate, X.shape[1], getattr(X, "columns", None))
                rows = check_array(steps.fit_transform(X), accept_sparse="csr", dtype=FLOATS)
            if rows.shape != (X.shape[0], width):
                raise ValueError(
                    f"Got transformers that return shape {rows.shape}, expected"
                    f" {(X.shape[0], width)}: as many columns as of rows of zeros."
                )

    def _run(
        self, X: Any, y: Any, agents: Any, plan: SearchPlan, source: NoiseSource, own: Any
    ) -> None:
        """Run the trials, keep the best of them and, if planned, fit it on all rows."""
        part: Any = slice(None)
        if plan.score is None:
            train, validation = (X, y), _trials.public_rows(self.public_validation, X.shape[1])
        else:
            uniform = source.uniform((len(y),), (_trials.SPLIT, 0))
            part, others = _trials.split_rows(self.cv, uniform)
            train, validation = ((_safe_indexing(X, rows), y[rows]) for rows in (part, others))
        score = plan.score or _trials.public_score(self.scoring, self.estimator)
        owners = _fit_parameters(self.estimator, agents)
        own_rows = {name: np.asarray(labels)[part] for name, labels in owners.items()}
        trials = Trials(train, own_rows, validation, score, plan, source)
        n_trials = plan.law.sample(float(source.uniform((1,), (_trials.COUNT, 0))[0]))
        uniform = source.uniform((n_trials,), (_trials.CHOICE, 0))
        chosen = (uniform * len(self.candidates_)).astype(np.intp).tolist()
        # A seed of its own for each fit of a simulation; none where noise is fresh.
        uniform = source.uniform((n_trials + 1,), (_trials.SEED, 0))
        seeds = [int(u * 2**32) if source.simulation else None for u in uniform.tolist()]

        def model_of(index: int, number: int, epsilon: float) -> Any:
            # The account has the search, once: trials in it would reveal their number.
            budget = {"epsilon": epsilon, "delta": self.delta, "ledger": None}
            budget["random_state"] = seeds[number]
            model = silent(with_parameters(self.estimator, self.candidates_[index], **budget))
            last = last_step(model)
            if is_classifier(last) and getattr(last, "classes", own) is None:
                last.set_params(classes=own)
            return model

        # Not what joblib is set to elsewhere: it would print how many trials there are.
        with _trials.without_warnings():
            results = Parallel(n_jobs=self.n_jobs, verbose=0)(
                delayed(trials.run)(number, model_of(index, number, plan.trial_epsilon))
                for number, index in enumerate(chosen)
            )
        # Of equal scores the first: a public rule.
        best = max(range(n_trials), key=lambda number: results[number][0])
        self.best_index_ = chosen[best]
        self.best_params_ = dict(self.candidates_[self.best_index_])
        self.best_score_, self.best_estimator_ = results[best]
        if plan.refit_guarantee is not None and plan.refit_epsilon is not None:
            model = model_of(self.best_index_, n_trials, plan.refit_epsilon)
            with _trials.without_warnings():
                self.best_estimator_ = _fitted(model, X, y, owners)
            plan.require_covered(last_step(model).privacy_, plan.refit_guarantee)

    def _undeclared_classes(self, y: NDArray[Any]) -> NDArray[Any] | None:
        """Check labels, and return the classes to declare where an estimator declares none.

        Trials must not find a label that they do not know: it would depend on the part that its
        row is in, and so on chances that nobody sees, whether they raise.
        """
        own = None
        for parameters in self.candidates_:
            last = last_step(with_parameters(self.estimator, parameters))
            if is_classifier(last):
                classes = getattr(last, "classes", None)
                found, _ = encode(y, classes)
                own = found if classes is None else own
        return own

    @property
    def classes_(self) -> NDArray[Any]:
        """Class labels, of a classifier."""
        _has("classes_")(self)
        return self.best_estimator_.classes_

    @property
    def _model(self) -> Any:
        check_is_fitted(self)
        return self.best_estimator_

    @available_if(_has("predict"))
    def predict(self, X: Any) -> NDArray[Any]:
        """Predict targets, of shape (n_samples,), by the final model."""
        return self._model.predict(X)

    @available_if(_has("predict_proba"))
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of classes, of shape (n_samples, n_classes), by the final model."""
        return self._model.predict_proba(X)

    @available_if(_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Logarithms of the probabilities of classes, of shape (n_samples, n_classes)."""
        return self._model.predict_log_proba(X)

    @available_if(_has("decision_function"))
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores of classes, of shape (n_samples,) or (n_samples, n_classes)."""
        return self._model.decision_function(X)

    def score(self, X: Any, y: ArrayLike) -> float:
        """Score the final model exactly, on rows that may be seen: by `scorer_`, not clipped."""
        return self.scorer_(self._model, X, np.asarray(y))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_estimator_")

    def __sklearn_tags__(self) -> Any:
        tags = get_tags(self.estimator)
        # A trial has a part of the budget: on the 200 to 300 rows of scikit-learn's checks, without
        # bounds, one draw of eight is a guess. The score of a regressor is a negative error there,
        # where an R2 of .5 is asked for.
        for of_kind in (tags.classifier_tags, tags.regressor_tags):
            if of_kind is not None:
                of_kind.poor_score = True
        return tags


def _seed(random_state: Any) -> int | None:
    """A seed as one value, drawn once from a generator; None for fresh randomness."""
    if random_state is None or isinstance(random_state, Integral):
        return None if random_state is None else int(random_state)
    # Refuses what is no seed.
    noise_source(random_state, b"")
    draw = random_state.integers if hasattr(random_state, "integers") else random_state.randint
    return int(draw(2**32))


@dataclass(kw_only=True, eq=False, repr=False)
class DPGridSearchCV(BaseDPSearch):
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
        and treat each row by itself: this package's, HashingVectorizer and FeatureHasher,
        Normalizer, Binarizer and PolynomialFeatures, FunctionTransformers such as of ``np.log1p``,
        ColumnTransformers of these, and FrozenEstimators of steps that were fitted on public rows;
        an error lists all steps that are refused, and the parameters to pass. Categories and
        missing values need a PublicTableTransformer. The search sets `epsilon`,
        `delta` and `random_state`, and turns `verbose` off in all steps: lines would reveal the
        number of trials. Instead of an `agent_column` pass `agents` to `fit`.
    param_grid : dict or list of dict
        Candidates, as in scikit-learn. They are public.
    epsilon : float, default=1.0
        Total budget of search and final model, in (0, inf]. At inf nothing is private.
    delta : float, default=1e-5
        In (0, 1), to be chosen well below ``1 / n_samples``.
    n_trials : float, default=None
        Mean number of trials, above 1. None: twice the number K of candidates. With a mean of m the
        geometric law leaves a given candidate out with a probability of ``(K - 1) / (K - 1 + m)``.
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
        `target_bounds` of the estimator bounds the errors. The noise of a score is proportional to
        their width: for regressors declare them as narrow as the errors expected of most rows, as
        the squared errors that `target_bounds` allow are far above those that models make. `plan`
        and `fit` warn of noise above a tenth of their width, or of a useful model's error: 1/16 of
        the width of `target_bounds`, squared for squared errors.
    public_validation : tuple of (X, y), default=None
        Public rows to score on, without noise and at no cost; all private rows train then.
    cv : int, float or list, default=None
        ONE split of the rows by position, for all trials; no record trains and validates. An int k:
        one random part of k validates, the rest trains; None is 5. A float: the share of rows that
        validates. A list: one pair of positions, ``[(train, validation)]``.
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
    ledger : str, path-like or None, default=None
        The account that the search is counted in, ``"study.db"`` or, for one data set,
        ``"study.db::adult"``: see :class:`~skdpadmm.ledger.PrivacyLedger`. `fit` puts its whole
        cost there once, before a trial sees data, and is refused where that would pass a limit. An
        estimator with a `ledger` of its own is refused. Its times show how long the search took: it
        is for those who run the study.

    Attributes
    ----------
    best_estimator_ : estimator
        The final model. Its `privacy_` is that of the search.
    best_params_ : dict
        The chosen candidate.
    best_index_ : int
        Its position in `candidates_`.
    best_score_ : float
        The score of the chosen trial, with its noise: a mean over the rows that validate, in the
        unit of `scoring`. As the best of several noisy scores it is too high on average: never
        report it as the score of the model, and judge that on public rows.
    scorer_ : callable
        What `score` uses, without bounds and noise: the measure that `scoring` names, or that None
        stands for.
    candidates_ : list of dict
    refit_ : bool
        Whether the final model was fitted on all rows.
    privacy_ : PrivacyReport
        The guarantee, and what was spent on search and final model.
    classes_ : ndarray of shape (n_classes,)
        Class labels, of a classifier.
    n_features_in_, feature_names_in_ : int, ndarray of shape (`n_features_in_`,)

    See Also
    --------
    DPRandomizedSearchCV : Candidates drawn from distributions.

    Notes
    -----
    **Guarantee.** Adversary "model": whoever sees the chosen candidate, its score and the final
    model. Unit: one record. Neighbouring: that of the estimator. The split is by position, so
    neighbouring data sets differ in one row of one part. In the training part it costs what the fit
    costs, as the score only reads the model; in the validation part what the noisy score costs, as
    the fit does not see it. So a trial costs the larger of the two, not their sum. The score is a
    mean of m clipped numbers, of which one row changes one: its sensitivity is
    ``(high - low) / m``. A record that is zeroed out counts as ``low``. For the best of
    all trials see :func:`~skdpadmm.privacy.best_of_trials`; a last fit composes with it.

    The number of trials has to stay hidden, so there is no count and no progress bar. Nothing of
    this holds for a server or a peer that sees the messages of every trial: such candidates are
    refused.

    **Missing.** There is no ``cv_results_`` and no ``refit_time_``: scores of trials that were not
    chosen and running times are not in the guarantee.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmLogisticRegression
    >>> from skdpadmm.model_selection import DPGridSearchCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> y = (X[:, 0] + X[:, 1] > 0).astype(int)
    >>> model = DPAdmmLogisticRegression(classes=[0, 1], feature_bounds=(-1, 1))
    >>> search = DPGridSearchCV(model, {"C": [1e-6, 1.0]}, random_state=2)
    >>> search.fit(X, y).best_params_
    {'C': 1.0}
    >>> f"{search.privacy_.epsilon():.3f}"
    '1.000'
    """

    param_grid: Any = field(kw_only=False, metadata={"allowed": [dict, list]})

    def _candidates(self, seed: int | None) -> list[dict[str, Any]]:
        return list(ParameterGrid(self.param_grid))


@dataclass(kw_only=True, eq=False, repr=False)
class DPRandomizedSearchCV(BaseDPSearch):
    """Search over candidates drawn from distributions, under one total budget.

    Drop-in for :class:`sklearn.model_selection.RandomizedSearchCV`. A list of `n_iter` candidates
    is drawn before any data is seen, and is public; then all is as in :class:`DPGridSearchCV`,
    which states the guarantee and describes its parameters.

    Parameters
    ----------
    estimator : estimator
        One of this package, or a Pipeline that ends in one, see :class:`DPGridSearchCV`.
    param_distributions : dict or list of dict
        Lists or distributions, as in scikit-learn. They are public.
    n_iter : int, default=10
        Number of candidates.
    epsilon, delta, n_trials, trials, scoring, score_bounds, public_validation, cv, refit
        And `search_share`, `random_state`, `n_jobs`, `ledger`: as of :class:`DPGridSearchCV`.

    Attributes
    ----------
    best_estimator_, best_params_, best_index_, best_score_, scorer_, candidates_, refit_, privacy_
        And `classes_`, `n_features_in_`, `feature_names_in_`: as of :class:`DPGridSearchCV`.

    Notes
    -----
    Where `random_state` is None, `plan` draws other candidates than `fit`, of the same laws.

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

    param_distributions: Any = field(kw_only=False, metadata={"allowed": [dict, list]})
    n_iter: int = parameter(10, COUNT)

    def _candidates(self, seed: int | None) -> list[dict[str, Any]]:
        drawn = int.from_bytes(os.urandom(4), "little") if seed is None else seed
        sampler = ParameterSampler(self.param_distributions, self.n_iter, random_state=drawn)
        # Of fewer candidates than were asked for.
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            return list(sampler)
