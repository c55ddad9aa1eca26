"""A private search over candidates that are drawn from distributions."""

from __future__ import annotations

import os
import warnings
from numbers import Integral
from typing import Any, ClassVar

from sklearn.model_selection import ParameterSampler

from skdpadmm._sklearn import Interval
from skdpadmm.model_selection._base_search import BaseDPSearch


class DPRandomizedSearchCV(BaseDPSearch):
    """Search over candidates drawn from distributions, under one total budget.

    Drop-in for :class:`sklearn.model_selection.RandomizedSearchCV`. A list of `n_iter` candidates
    is drawn before any data is seen, and is public; then all is as in :class:`DPGridSearchCV`.

    Parameters
    ----------
    estimator : estimator
        One of this package, or a Pipeline that ends in one, with transformers that learn nothing
        from data, see :class:`DPGridSearchCV`. Its `epsilon`, `delta` and `random_state` are set
        by the search, and `verbose` is off in all steps.
    param_distributions : dict or list of dict
        Lists or distributions, as in scikit-learn. They are public.
    n_iter : int, default=10
        Number of candidates.
    epsilon : float, default=1.0
        Total budget of search and final model, in (0, inf].
    delta : float, default=1e-5
        In (0, 1), to be chosen well below ``1 / n_samples``.
    n_trials : float, default=None
        Mean number of trials, above 1. None: twice the number K of candidates; the geometric law
        then leaves a given one out with a probability of ``(K - 1) / (3 K - 1)``: 0.2 for two, 0.25
        for three and 1/3 in the limit. With a mean of m it is ``(K - 1) / (K - 1 + m)``.
    trials : {"geometric", "logarithmic", "poisson"}, default="geometric"
        Law of the number of trials.
    scoring : str, callable or None, default=None
        A mean over rows, see :class:`DPGridSearchCV`.
    score_bounds : pair of floats, default=None
        Public bounds that the score of each row is clipped to. The noise of a score is proportional
        to their width: for regressors declare narrow ones, see :class:`DPGridSearchCV`.
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
    ledger : str, path-like or None, default=None
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
        The score of the chosen trial, with its noise, in the unit of `scoring`: see
        :class:`DPGridSearchCV`. Too high on average, as the best of several.
    scorer_ : callable
        What `score` uses, without bounds and noise.
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
        **BaseDPSearch._parameter_constraints,
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
        self.param_distributions = param_distributions
        self.n_iter = n_iter

    def _candidates(self, seed: int | None) -> list[dict[str, Any]]:
        drawn = int.from_bytes(os.urandom(4), "little") if seed is None else seed
        sampler = ParameterSampler(self.param_distributions, self.n_iter, random_state=drawn)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # fewer candidates than were asked for
            return list(sampler)
