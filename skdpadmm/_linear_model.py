"""What private linear models share, whatever the family: parameters, and a fit in few lines."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit, log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_scalar
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from skdpadmm._fitting import (
    CURATOR,
    Fitted,
    PlannedFit,
    Trust,
    all_or_nothing,
    plan_fit,
    run_fit,
)
from skdpadmm._sklearn import HasMethods, Interval, StrOptions, _fit_context
from skdpadmm.losses import (
    LogisticLoss,
    Loss,
    MultinomialLoss,
    SquaredLoss,
    moderate,
    undo_clip,
)
from skdpadmm.network import Ownership
from skdpadmm.penalties import ElasticNet, Penalty
from skdpadmm.protocol import Plan


@dataclass(frozen=True, eq=False, kw_only=True)
class Targets:
    """Targets as a loss expects them.

    Attributes
    ----------
    encoded : ndarray of shape (n_samples,)
    classes : ndarray of shape (n_classes,) or None, default=None
        What their values mean.
    """

    encoded: NDArray[Any]
    classes: NDArray[Any] | None = None

    @property
    def n_classes(self) -> int | None:
        """How many classes there are, where there are any."""
        return None if self.classes is None else len(self.classes)


class PrivateLinearModel(BaseEstimator):
    """Parameters, validation and planning of a linear model with a total budget."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "neighboring": [StrOptions({"replace_one", "zero_out"})],
        "feature_bounds": "no_validation",
        "fit_intercept": ["boolean"],
        "algorithm": [str, HasMethods(["plan", "run"])],
        "scale": [StrOptions({"private"}), None],
        "conditioning": [StrOptions({"auto", "private"}), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "sampler": [StrOptions({"floating-point", "opendp"})],
        "random_state": "no_validation",
        "n_jobs": [Integral, None],
        "ledger": [str, os.PathLike, None],
        "verbose": ["verbose"],
    }

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of an algorithm object by ``algorithm__<knob>``.

        Parameters
        ----------
        **params : dict
            Parameter names and values.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            Where a parameter is not known, or where `algorithm` is a string, which has no knobs.
        """
        nested = [name for name in params if name.startswith("algorithm__")]
        algorithm = params.get("algorithm", self.algorithm)
        if nested and isinstance(algorithm, str):
            raise ValueError(
                f"Got {nested[0]} with algorithm={algorithm!r}, expected an algorithm object: a"
                " string stands for the defaults and has no knobs. Pass an object first, from"
                " skdpadmm.algorithms."
            )
        return super().set_params(**params)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit the model; spends the whole budget.

        Sample weights are not accepted: they change what one record can do, and no bound of that
        is implemented.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Features, finite. Sparse input is used as CSR.
        y : array-like of shape (n_samples,)
            Target: finite numbers for a regressor, class labels for a classifier.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            Where a parameter or the input is not valid; nothing is stored then.
        """
        with all_or_nothing(self):
            self._fit(X, y)
        return self

    def _fit(self, X: Any, y: ArrayLike, agents: Any = None) -> Fitted:
        """Validate, plan, run, store."""
        X, seen, targets = self._check_targets(X, y)
        ownership, trust = self._owners(X, seen, agents)
        planned = self._plan_fit(
            n_samples=X.shape[0],
            n_features=X.shape[1],
            feature_names=self._feature_names(),
            trust=trust,
            n_classes=targets.n_classes,
        )
        fitted = run_fit(self, planned, X, targets.encoded, ownership)
        self._keep(fitted, targets)
        return fitted

    @abstractmethod
    def _check_targets(self, X: Any, y: ArrayLike, **checks: Any) -> tuple[Any, Any, Targets]:
        """Validated rows, targets as they came, and targets as the loss expects them."""

    @abstractmethod
    def _plan_fit(
        self,
        *,
        n_samples: int,
        n_features: int,
        feature_names: Any,
        n_classes: int | None = None,
        trust: Trust = CURATOR,
    ) -> PlannedFit:
        """Plan from public facts."""

    def _is_stream(self) -> bool:
        """Whether records are used as they arrive."""
        return False

    @abstractmethod
    def _keep(self, fitted: Fitted, targets: Targets) -> None:
        """Store what a fit leaves."""

    def _check_fit(self, X: Any, y: ArrayLike, **checks: Any) -> tuple[Any, NDArray[Any]]:
        """Validate what a fit gets, and note the columns."""
        # Finite values whose sum overflows must not speak.
        with np.errstate(all="ignore"):
            X, y = validate_data(
                self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], **checks
            )
        return X, np.asarray(y)

    def _check_predict(self, X: Any) -> Any:
        """Validate rows to predict for."""
        check_is_fitted(self)
        return validate_data(self, X, accept_sparse="csr", reset=False)

    def _feature_names(self) -> Any:
        """Names of the features, where a fit has seen some."""
        return getattr(self, "feature_names_in_", None)

    def _owners(self, X: Any, y: NDArray[Any], agents: Any) -> tuple[Ownership | None, Trust]:
        """Who holds which row, and who is trusted: here a curator, who holds them all."""
        return None, CURATOR

    def _public_shape(self, n_samples: int, n_features: int) -> dict[str, Any]:
        """What a plan without data knows of its shape and of the names of its columns."""
        check_scalar(n_samples, "n_samples", Integral, min_val=1)
        check_scalar(n_features, "n_features", Integral, min_val=1)
        names = None
        if isinstance(self.feature_bounds, dict):
            names = [*self.feature_bounds, *range(n_features - len(self.feature_bounds))]
        return {
            "n_samples": int(n_samples),
            "n_features": int(n_features),
            "feature_names": names,
        }

    @abstractmethod
    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        """Penalty of the mean loss, in the user's coefficients."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class PrivateLinearRegressor(RegressorMixin, PrivateLinearModel):
    """A linear model of a number in units."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **PrivateLinearModel._parameter_constraints,
        "target_bounds": "no_validation",
    }

    def plan(self, n_samples: int, n_features: int) -> Plan:
        """Say what a fit would release and what it would cost; no data is needed.

        Parameters
        ----------
        n_samples, n_features : int
            Shape of the data.

        Returns
        -------
        plan : Plan
            The plan that `fit` makes for data of this shape.

        Raises
        ------
        ValueError
            Where a parameter is out of range.
        """
        self._validate_params()
        return self._plan_fit(**self._public_shape(n_samples, n_features)).plan

    def _plan_fit(
        self,
        *,
        n_samples: int,
        n_features: int,
        feature_names: Any,
        n_classes: int | None = None,
        trust: Trust = CURATOR,
    ) -> PlannedFit:
        assumptions: tuple[str, ...] = ()
        if self.target_bounds is None:
            undeclared = "target_bounds not declared: targets are clipped to [-3, 3]."
            assumptions = (undeclared,)
        return plan_fit(
            self,
            n_samples=n_samples,
            n_features=n_features,
            feature_names=feature_names,
            loss=self._loss(),
            penalty=self._penalty(n_samples, n_features),
            target_bounds=self.target_bounds,
            has_target_scale=True,
            assumptions=assumptions,
            trust=trust,
            is_stream=self._is_stream(),
        )

    def _loss(self) -> Loss:
        """Loss of a record, in the user's units."""
        return SquaredLoss()

    def _check_targets(self, X: Any, y: ArrayLike, **checks: Any) -> tuple[Any, Any, Targets]:
        X, y = self._check_fit(X, y, y_numeric=True, **checks)
        y = y.astype(np.float64)
        return X, y, Targets(encoded=y)

    def _keep(self, fitted: Fitted, targets: Targets) -> None:
        self.coef_ = fitted.coef[0]
        self.intercept_ = float(fitted.intercept[0])
        self.n_iter_ = fitted.n_iter
        self.privacy_ = fitted.report

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Predict the target.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        y_pred : ndarray of shape (n_samples,)
        """
        return np.asarray(self._check_predict(X) @ self.coef_ + self.intercept_)


class PrivateLinearClassifier(ClassifierMixin, PrivateLinearModel):
    """A linear model of one of several classes, all of whose scores are released together."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **PrivateLinearModel._parameter_constraints,
        "classes": ["array-like", None],
    }

    def plan(self, n_samples: int, n_features: int, n_classes: int | None = None) -> Plan:
        """Say what a fit would release and what it would cost; no data is needed.

        Parameters
        ----------
        n_samples, n_features : int
            Shape of the data.
        n_classes : int, default=None
            Number of classes; None means the number of declared ones.

        Returns
        -------
        plan : Plan
            The plan that `fit` makes for data of this shape.

        Raises
        ------
        ValueError
            Where a parameter is out of range, or where the number of classes is not known.
        """
        self._validate_params()
        shape = self._public_shape(n_samples, n_features)
        return self._plan_fit(n_classes=self._n_classes(n_classes), **shape).plan

    def _n_classes(self, n_classes: int | None) -> int:
        """Number of classes that a plan without data is for."""
        if n_classes is None:
            if self.classes is None:
                raise ValueError(
                    "Got n_classes=None and classes=None, expected one of them."
                    " Declare the classes or pass their number."
                )
            n_classes = len(_declared_classes(self.classes))
        elif self.classes is not None and n_classes != len(_declared_classes(self.classes)):
            raise ValueError(
                f"Got n_classes={n_classes} with {len(_declared_classes(self.classes))} declared"
                " classes, expected the same number. Leave n_classes out."
            )
        check_scalar(n_classes, "n_classes", Integral, min_val=2)
        return int(n_classes)

    def _plan_fit(
        self,
        *,
        n_samples: int,
        n_features: int,
        feature_names: Any,
        n_classes: int | None = None,
        trust: Trust = CURATOR,
    ) -> PlannedFit:
        assert n_classes is not None
        assumptions: tuple[str, ...] = ()
        if self._known_classes() is None:
            undeclared = (
                "classes not declared: the set of labels seen in y is assumed to be public."
            )
            assumptions = (undeclared,)
        return plan_fit(
            self,
            n_samples=n_samples,
            n_features=n_features,
            feature_names=feature_names,
            loss=self._loss(n_classes),
            penalty=self._penalty(n_samples, n_features),
            target_bounds=None,
            has_target_scale=False,
            assumptions=assumptions,
            trust=trust,
            is_stream=self._is_stream(),
        )

    @abstractmethod
    def _loss(self, n_classes: int) -> Loss:
        """Loss of a record with that many classes."""

    def _check_targets(self, X: Any, y: ArrayLike, **checks: Any) -> tuple[Any, Any, Targets]:
        X, y = self._check_fit(X, y, **checks)
        classes, index = encode(y, self._known_classes())
        encoded = 2.0 * index - 1.0 if len(classes) == 2 else index
        return X, y, Targets(encoded=encoded, classes=classes)

    def _known_classes(self) -> Any:
        """Classes that are known before data."""
        return self.classes

    def _keep(self, fitted: Fitted, targets: Targets) -> None:
        assert targets.classes is not None
        self.classes_ = targets.classes
        self.coef_ = fitted.coef
        self.intercept_ = fitted.intercept
        self.n_iter_ = fitted.n_iter
        self.privacy_ = fitted.report
        self._store(fitted)

    def _store(self, fitted: Fitted) -> None:
        """Keep what a classifier needs beside its parameters."""

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores of the classes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            With two classes, the score of ``classes_[1]``.
        """
        scores = np.asarray(self._check_predict(X) @ self.coef_.T + self.intercept_)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict class labels.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        y_pred : ndarray of shape (n_samples,)
        """
        return self._labels(self.decision_function(X))

    def _labels(self, scores: NDArray[np.float64]) -> NDArray[Any]:
        """The class with the largest score, for each row."""
        index = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[index])


class CalibratedProbabilities:
    """Probabilities of a logistic loss, corrected for what privacy does to them."""

    classes_: NDArray[Any]
    decision_function: Any

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict the probability of each class, corrected for clipping and for noise.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict the logarithm of the probability of each class.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        return self._log_probabilities(self.decision_function(X))

    def _log_probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Corrected logarithms of probabilities from scores."""
        log_probability = (
            log_softmax(scores, axis=1)
            if scores.ndim == 2
            else np.column_stack([log_expit(-scores), log_expit(scores)])
        )
        unclipped = undo_clip(log_probability, self._derivative_bound)
        return moderate(unclipped, self._score_variance, self._doubt)

    def _store(self, fitted: Fitted) -> None:
        self._derivative_bound = fitted.solution.derivative_bound
        self._score_variance = fitted.solution.score_variance
        # A little is left of the order of the scores, whatever the noise.
        self._doubt = min(fitted.solution.doubt, 0.999)


class PrivateLogisticRegression(CalibratedProbabilities, PrivateLinearClassifier):
    """Logistic regression, binary and multinomial."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **PrivateLinearClassifier._parameter_constraints,
        "C": [Interval(Real, 0, None, closed="right")],
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
    }

    def _loss(self, n_classes: int) -> Loss:
        return LogisticLoss() if n_classes == 2 else MultinomialLoss(n_classes)

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        strength = 1.0 / (self.C * n_samples)
        return ElasticNet(float(strength * self.l1_ratio), float(strength * (1 - self.l1_ratio)))


def _declared_classes(classes: Any) -> NDArray[Any]:
    declared = np.unique(np.asarray(classes))
    if len(declared) < 2:
        raise ValueError(
            f"Got classes={classes!r}, expected at least 2 classes."
            " Declare every class there can be."
        )
    return declared


def encode(y: NDArray[Any], classes: Any) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The classes, sorted, and for each label the index of its class."""
    if classes is None:
        # Where classes are declared its warning of many distinct labels would speak of data.
        check_classification_targets(y)
        seen, index = np.unique(y, return_inverse=True)
        if len(seen) < 2:
            raise ValueError(
                "Got y with one class, expected at least 2 classes. Declare all of them with"
                " classes=[...], which are public, where data may lack some."
            )
        return seen, index.astype(np.intp)
    declared = _declared_classes(classes)
    position = {label: k for k, label in enumerate(declared.tolist())}
    seen, inverse = np.unique(y, return_inverse=True)
    place = np.array([position.get(label, -1) for label in seen.tolist()], dtype=np.intp)
    if (place < 0).any():
        raise ValueError(
            f"Got labels in y that are not among classes={classes!r}, expected declared ones only."
            " Declare every class there can be, in the type that y has."
        )
    return declared, place[inverse]
