"""The model that an agent fits again at home: nothing is said, so it costs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array


@dataclass(frozen=True, eq=False, kw_only=True)
class LocalRegressor:
    """A linear model of a number that stays with one agent: it is not private.

    Attributes
    ----------
    agent : object
        Label of the agent.
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of `X`.
    intercept_ : float
        Intercept.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.personalized import LocalRegressor
    >>> model = LocalRegressor(agent="east", coef_=np.array([2.0]), intercept_=1.0)
    >>> model.predict([[0.0], [3.0]]).tolist()
    [1.0, 7.0]
    """

    agent: Any
    coef_: NDArray[np.float64]
    intercept_: float

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Predict the target.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Features alone, without a column of agents.

        Returns
        -------
        y_pred : ndarray of shape (n_samples,)
        """
        return np.asarray(_features(X, self.coef_) @ self.coef_ + self.intercept_)


@dataclass(frozen=True, eq=False, kw_only=True)
class LocalClassifier:
    """A linear model of a class that stays with one agent: it is not private.

    Attributes
    ----------
    agent : object
        Label of the agent.
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients, in the units of `X`.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.personalized import LocalClassifier
    >>> model = LocalClassifier(
    ...     agent="east", classes_=np.array(["less", "more"]), coef_=np.array([[2.0]]),
    ...     intercept_=np.array([-1.0]),
    ... )
    >>> model.predict([[0.0], [3.0]]).tolist()
    ['less', 'more']
    """

    agent: Any
    classes_: NDArray[Any]
    coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores of the classes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Features alone, without a column of agents.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            With two classes, the score of ``classes_[1]``.
        """
        scores = np.asarray(_features(X, self.coef_) @ self.coef_.T + self.intercept_)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict class labels.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Features alone, without a column of agents.

        Returns
        -------
        y_pred : ndarray of shape (n_samples,)
        """
        scores = self.decision_function(X)
        index = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[index])


def _features(X: Any, coef: NDArray[np.float64]) -> Any:
    """Checked rows with as many columns as there are coefficients."""
    X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
    if X.shape[1] != coef.shape[-1]:
        raise ValueError(
            f"Got X with {X.shape[1]} columns, expected the {coef.shape[-1]} features of the fit."
            " Leave the column of agents out."
        )
    return X
