"""The model that an agent fits again at home: nothing is said, so it costs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit, log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from skdpadmm._model_of_agents import without_column


@dataclass(frozen=True, eq=False, kw_only=True)
class Columns:
    """What the rows of a fit looked like.

    Attributes
    ----------
    n_columns : int
        That of the agents included.
    names : ndarray of shape (n_columns,) or None
        Where all are strings.
    of_agents : int or None
        The column that says whose a row is.
    """

    n_columns: int
    names: NDArray[Any] | None
    of_agents: int | None

    def features_of(self, X: Any) -> Any:
        """X without a column of agents, where it has one."""
        number = self.of_agents
        if number is None:
            return X
        if self.names is not None and hasattr(X, "columns"):
            name = self.names[number]
            return X.drop(columns=name) if name in X.columns else X
        shape = np.shape(X)
        has_it = len(shape) == 2 and shape[1] == self.n_columns
        return without_column(X, number) if has_it else X


class _ModelAtHome(BaseEstimator):
    """A linear model that one agent has fitted to its own rows."""

    agent_: Any
    n_features_in_: int

    @classmethod
    def _of_agent(cls, agent: Any, columns: Columns, **found: Any) -> Self:
        """The model of an agent, with these fitted attributes."""
        model = cls()
        model.agent_, model._columns = agent, columns
        names, number = columns.names, columns.of_agents
        model.n_features_in_ = columns.n_columns - (number is not None)
        if names is not None:
            model.feature_names_in_ = names if number is None else np.delete(names, number)
        for name, value in found.items():
            setattr(model, name, value)
        return model

    def fit(self, X: Any, y: ArrayLike | None = None) -> NoReturn:
        """Refuse: the model is made by the estimator of all agents, which knows the neighbours'.

        Parameters
        ----------
        X : object
        y : object, default=None

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError(
            f"Got a call of {type(self).__name__}.fit, expected none: the model of an agent depends"
            " on those of its neighbours. Call local_model(agent, X, y) of the fitted personalised"
            " estimator."
        )

    def _features(self, X: Any) -> Any:
        """Checked features: the columns of the fit, with or without that of the agents."""
        check_is_fitted(self, "coef_")
        return validate_data(
            self,
            self._columns.features_of(X),
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            reset=False,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class LocalRegressor(RegressorMixin, _ModelAtHome):
    """A linear model of a number that stays with one agent: it is not private.

    It is what :meth:`DPPersonalizedRegressor.local_model` returns, and cannot be fitted by itself.

    Attributes
    ----------
    agent_ : object
        Label of the agent.
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of `X`.
    intercept_ : float
        Intercept.
    n_features_in_ : int
        Number of features, without a column of agents.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, where all columns of the fit had strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPPersonalizedRegressor
    >>> X = np.linspace(-1, 1, 40).reshape(-1, 1)
    >>> towns = np.resize(["east", "west"], 40)
    >>> model = DPPersonalizedRegressor(
    ...     alpha=0.0, trade_off=1e6, feature_bounds=(-1, 1), target_bounds=(-3, 3), random_state=0
    ... ).fit(X, 2 * X[:, 0] + 1, agents=towns)
    >>> at_home = model.local_model("east", X[::2], 2 * X[::2, 0] + 1)
    >>> at_home.predict([[0.0], [0.5]]).round(2).tolist()
    [1.0, 2.0]
    """

    coef_: NDArray[np.float64]
    intercept_: float

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Predict the target.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The columns of the fit. One that says whose a row is may be left out, and is not looked
            at.

        Returns
        -------
        y_pred : ndarray of shape (n_samples,)
        """
        return np.asarray(self._features(X) @ self.coef_ + self.intercept_)


def _has_probabilities(model: LocalClassifier) -> bool:
    if not getattr(model, "_is_logistic", True):
        raise AttributeError(
            "Got a model with loss='smoothed_hinge', expected 'log_loss': the hinge has no"
            " probabilities."
        )
    return True


class LocalClassifier(ClassifierMixin, _ModelAtHome):
    """A linear model of a class that stays with one agent: it is not private.

    It is what :meth:`DPPersonalizedClassifier.local_model` returns, and cannot be fitted by itself.

    Attributes
    ----------
    agent_ : object
        Label of the agent.
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients, in the units of `X`.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    n_features_in_ : int
        Number of features, without a column of agents.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, where all columns of the fit had strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPPersonalizedClassifier
    >>> X = np.linspace(-1, 1, 40).reshape(-1, 1)
    >>> y, towns = np.where(X[:, 0] > 0, "more", "less"), np.resize(["east", "west"], 40)
    >>> model = DPPersonalizedClassifier(
    ...     trade_off=100.0, classes=["less", "more"], feature_bounds=(-1, 1), random_state=0
    ... ).fit(X, y, agents=towns)
    >>> model.local_model("east", X[::2], y[::2]).predict([[-0.5], [0.5]]).tolist()
    ['less', 'more']
    """

    classes_: NDArray[Any]
    coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores of the classes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            As in `predict`.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            With two classes, the score of ``classes_[1]``.
        """
        scores = np.asarray(self._features(X) @ self.coef_.T + self.intercept_)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict class labels.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The columns of the fit. One that says whose a row is may be left out, and is not looked
            at.

        Returns
        -------
        y_pred : ndarray of shape (n_samples,)
        """
        scores = self.decision_function(X)
        index = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[index])

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict the probability of each class; there was no noise here to correct for.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            As in `predict`.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        return np.exp(self.predict_log_proba(X))

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict the logarithm of the probability of each class.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            As in `predict`.

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(log_softmax(scores, axis=1))
        return np.column_stack([log_expit(-scores), log_expit(scores)])
