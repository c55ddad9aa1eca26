"""A private search over a grid."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from sklearn.model_selection import ParameterGrid

from skdpadmm.model_selection._base_search import BaseDPSearch


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
        from data: BoundedScaler, RowNormClipper, PolynomialFeatures and others that need no fit,
        also for some columns in a ColumnTransformer with ``sparse_threshold=0``. Of a
        FunctionTransformer nobody can see what it does: that it treats each row by itself is an
        assumption of the report, which ``lambda X: X - X.mean(0)`` breaks.
        Its `epsilon`, `delta` and `random_state` are set by the search, and `verbose` is off in all
        steps: bars and lines would tell the number of trials.
        Agents are made up by `n_agents` and `partition`: an `agent_column`, or labels for `fit`,
        cannot be planned for the rows that train, and are refused.
    param_grid : dict or list of dict
        Candidates, as in scikit-learn. They are public.
    epsilon : float, default=1.0
        Total budget of search and final model, in (0, inf]. At inf nothing is private.
    delta : float, default=1e-5
        In (0, 1), to be chosen well below ``1 / n_samples``.
    n_trials : float, default=None
        Mean number of trials, above 1. None: twice the number K of candidates; the geometric law
        then leaves a given one out with a probability of ``(K - 1) / (3 K - 1)``: 0.2 for two, 0.25
        for three and 1/3 in the limit. With a mean of m it is ``(K - 1) / (K - 1 + m)``.
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
        their width, and an error that `target_bounds` allow is far above those that models make:
        a squared one is up to the square of their width. For regressors declare narrower ones, as
        wide as the errors that are expected of most rows.
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
    ledger : str, path-like or None, default=None
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
        The score of the chosen trial, with its noise: the mean over the rows that validate, in the
        unit of `scoring`. That of "accuracy" is a share of rows, that of "neg_mean_squared_error"
        minus the square of the target's unit. As the best of several noisy scores it is too high on
        average: never report it as the score of the model, and judge that on public rows.
    scorer_ : callable
        What `score` uses, without bounds and noise: the measure that `scoring` names, or that None
        stands for.
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

    The number of trials has to stay hidden, so there is no count and no progress bar. Nothing of
    this holds for a server or a peer that sees the messages of every trial: such candidates are
    refused.

    **Missing.** Of the attributes of GridSearchCV there is no ``cv_results_`` and no
    ``refit_time_``, as scores of trials that were not chosen and running times are not in the
    guarantee. There is no ``n_splits_`` and no ``multimetric_``, as there is one split and one
    score.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmLogisticRegression
    >>> from skdpadmm.model_selection import DPGridSearchCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> y = (X[:, 0] + X[:, 1] > 0).astype(int)
    >>> model = DPAdmmLogisticRegression(classes=[0, 1], feature_bounds=(-1, 1))
    >>> search = DPGridSearchCV(model, {"C": [1e-6, 1.0]}, random_state=1)

    Of the seeds 0 to 19, 17 choose as this one does.

    >>> search.fit(X, y).best_params_
    {'C': 1.0}
    >>> f"{search.privacy_.epsilon():.3f}"
    '1.000'
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseDPSearch._parameter_constraints,
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
        ledger: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(
            estimator,
            epsilon=epsilon,
            delta=delta,
            n_trials=n_trials,
            trials=trials,
            scoring=scoring,
            score_bounds=score_bounds,
            public_validation=public_validation,
            cv=cv,
            refit=refit,
            search_share=search_share,
            random_state=random_state,
            n_jobs=n_jobs,
            ledger=ledger,
        )
        self.param_grid = param_grid

    def _candidates(self, seed: int | None) -> list[dict[str, Any]]:
        return list(ParameterGrid(self.param_grid))
