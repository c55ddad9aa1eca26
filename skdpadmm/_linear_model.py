"""What private linear models share, whatever the family: parameters, and a fit on one page."""

from __future__ import annotations

import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import partial, wraps
from inspect import signature
from numbers import Integral, Real
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit, log_softmax
from sklearn.base import ClassifierMixin, RegressorMixin, is_classifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.utils import check_array, check_scalar
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from skdpadmm._chunks import Shards, is_collection, lazily, not_in_chunks, read_chunks
from skdpadmm._fitting import CURATOR, Fitted, PendingFit, PlannedFit, Trust, reserved
from skdpadmm._report import assumptions_of, warnings_of
from skdpadmm._sklearn import (
    ALGORITHM,
    COUNT,
    POSITIVE,
    POSITIVE_OR_INF,
    SIZE,
    Interval,
    LinkedEstimator,
    OneOf,
    absent,
    converting,
    parameter,
)
from skdpadmm.algorithms import (
    LARGEST_COUNT,
    Algorithm,
    exact_algorithm,
    prepared,
    resolve_algorithm,
    share_of_fit,
    with_count,
    with_inference,
)
from skdpadmm.exceptions import warn_user
from skdpadmm.inference import inference_of
from skdpadmm.losses import (
    HuberLoss,
    LogisticLoss,
    Loss,
    MultinomialLoss,
    OneVsRestHinge,
    SmoothedHinge,
    WeightedLoss,
    moderate,
)
from skdpadmm.network import Ownership
from skdpadmm.penalties import ElasticNet, Penalty
from skdpadmm.privacy import Neighboring, PrivacyReport
from skdpadmm.protocol import Agents, Budget, Facts, Plan
from skdpadmm.records import (
    UNDECLARED_TARGET_BOUNDS,
    Coordinates,
    block_size,
    clipped,
    declared_coordinates,
    rounding_factor,
    target_scale,
)

Array = NDArray[np.float64]
FLOATS = [np.float64, np.float32]
# Of records, of a plan before a private one is released.
ANY_NUMBER = 10_000
# NumPy rounds products of longer rows by their place among others.
LONGEST_ROW = 8192
_Method = TypeVar("_Method", bound=Callable[..., Any])


def known_arguments(fit: _Method) -> _Method:
    """Refuse arguments that a fit does not have, with advice; its signature stays what it was."""
    known = [name for name in signature(fit).parameters if name != "self"]

    @wraps(fit)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in known:
                call = f"{type(self).__name__}.{fit.__name__}({', '.join(known)})"
                raise TypeError(f"Got {name}, expected {call}. {self._advice(name)}")
        return fit(self, *args, **kwargs)

    return checked  # type: ignore[return-value]


def without_data(plan: _Method) -> _Method:
    """Refuse data where a plan takes their shape, and show the call."""

    @wraps(plan)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        for given in (*args[:1], *map(kwargs.get, ("n_samples", "X"))):
            if hasattr(given, "shape") and len(given.shape) == 2:
                n_samples, n_features = given.shape
                n_features -= getattr(self, "agent_column", None) is not None
                call = f"n_samples={n_samples}, n_features={n_features}"
                if is_classifier(self) and self.classes is None:
                    call += ", n_classes=..."
                raise TypeError(f"Got data, expected numbers, as plan reads no data: plan({call}).")
        return plan(self, *args, **kwargs)

    return checked  # type: ignore[return-value]


@dataclass(frozen=True, eq=False, kw_only=True)
class Targets:
    """Targets as a loss expects them, and their classes."""

    encoded: NDArray[Any]
    # An array; None of a regression.
    classes: Any = None

    @property
    def n_classes(self) -> int | None:
        """How many classes there are, where there are any."""
        return None if self.classes is None else len(self.classes)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearModel(LinkedEstimator):
    """Parameters, plan and fit of a linear model with a total budget."""

    epsilon: Any = parameter(1.0, POSITIVE_OR_INF)
    delta: float = parameter(1e-5, Interval(Real, 0, 1, closed="left"))
    neighboring: str = parameter("replace_one", OneOf("replace_one", "zero_out"))
    feature_bounds: Any = parameter(None)
    row_norm: float | None = parameter(None, SIZE, None)
    fit_intercept: bool = parameter(True, "boolean")
    algorithm: Any = parameter("consensus-admm", *ALGORITHM)
    scale: str | None = parameter("auto", OneOf("auto", "private"), None)
    conditioning: str | None = parameter("auto", OneOf("auto", "private"), None)
    max_iter: int = parameter(100, COUNT)
    sampler: str = parameter("floating-point", OneOf("floating-point", "opendp"))
    random_state: Any = parameter(None)
    n_jobs: int | None = parameter(None, Integral, None)
    ledger: str | None = parameter(None, str, os.PathLike, None)
    verbose: int = parameter(0, "verbose")
    intervals: bool = absent(False)

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of an algorithm object by ``algorithm__<parameter>``."""
        nested = [name for name in params if name.startswith("algorithm__")]
        algorithm = params.get("algorithm", self.algorithm)
        if nested and isinstance(algorithm, str):
            raise ValueError(
                f"Got {nested[0]} with algorithm={algorithm!r}, expected an algorithm object: a"
                " name has no parameters. Pass an object first, from skdpadmm.algorithms."
            )
        return super().set_params(**params)

    def _fit(self, X: Any, y: ArrayLike, agents: Any = None, sample_weight: Any = None) -> None:
        """Validate, plan, reserve, run, keep: what every fit does, from top to bottom."""
        self._forget()
        with self._read(X, y, agents) as (X, labels, targets, agents):
            pending = self._pending(X, labels, targets, agents, sample_weight)
            fitted, report = self._spend(pending)
            self._keep(fitted, targets)
            self.privacy_ = report

    def _spend(self, fit: PendingFit) -> tuple[Fitted, PrivacyReport]:
        """Reserve what the plan costs, and run it."""
        plan = fit.planned.plan
        digest = plan.digest()
        noise = fit.noise(self.random_state, digest)
        report = fit.report(plan, noise)
        with reserved(self.ledger, report, digest):
            fitted = fit.solve(noise)
        # A private number of records is known, up to its noise, only now.
        return fitted, report if fit.plan_for is None else fit.report(fitted.plan, noise)

    def _pending(
        self, X: Any, labels: Any, targets: Targets, agents: Any, sample_weight: Any = None
    ) -> PendingFit:
        """The plan with its data, before they are used."""
        ownership, trust = self._owners(X, labels, agents)
        n_samples, y = X.shape[0], targets.encoded
        trust, weights = self._weighed(trust, sample_weight, X)
        if trust.unit == "person" and ownership is not None:
            # From here on nothing has a shape that depends on how many rows a person has.
            slots, weights = ownership.slots(trust.max_rows_per_person)
            n_samples, X, y, ownership = ownership.n_agents, X[slots], y[slots], None
        plan_of = partial(
            self._plan_fit,
            n_features=X.shape[1],
            feature_names=self._feature_names(),
            n_classes=targets.n_classes,
            classes=targets.classes,
            trust=trust,
        )
        is_private = self.neighboring == "add_remove" and self.epsilon < math.inf
        is_dense = isinstance(X, np.ndarray)
        too_many = isinstance(X, Shards) or n_samples > LARGEST_COUNT
        if is_private and (too_many or (is_dense and X.shape[1] > LONGEST_ROW)):
            raise ValueError(
                "Got chunks, or a large X, with neighboring='add_remove', expected at most"
                f" {LARGEST_COUNT} records in one process, and {LONGEST_ROW} columns unless X is"
                " sparse: up to there rounding has a public bound. Use neighboring='zero_out'."
            )
        if is_private and is_dense:
            # Column by column, a row that is alone in its block would be rounded in another way.
            X = np.ascontiguousarray(X)
        # A plan for any number costs as much as that for the released one, which warns.
        planned = plan_of(n_samples=ANY_NUMBER if is_private else n_samples, warns=not is_private)
        if isinstance(X, Shards) and not planned.algorithm.distributed:
            raise not_in_chunks(f"{planned.algorithm!r}")
        fit = PendingFit(
            estimator=self, planned=planned, X=X, y=y, ownership=ownership, weights=weights
        )
        return replace(fit, plan_for=lambda n: plan_of(n_samples=n).plan) if is_private else fit

    @contextmanager
    def _read(self, X: Any, y: Any, agents: Any) -> Iterator[tuple[Any, Any, Targets, Any]]:
        """Validated rows, targets as they came and as the loss expects them, labels of rows."""
        if not any(map(is_collection, (X, y, agents))):
            agents = self._labels_of_rows(X, agents)
            yield *self._check_targets(X, y), agents
            return
        known = self._known_classes() if is_classifier(self) else ()
        if known is None:
            raise ValueError(
                "Got a collection of dask with classes=None, expected every class there can be:"
                " a chunk may lack some. Declare them: classes=[...]."
            )
        with read_chunks(self, X, y, agents) as (X, y, agents):
            classes = class_labels(known) if is_classifier(self) else None
            yield X, y, Targets(encoded=y, classes=classes), agents

    def _plan_fit(
        self,
        *,
        n_samples: int,
        n_features: int,
        feature_names: Any,
        n_classes: int | None = None,
        classes: Any = None,
        trust: Trust = CURATOR,
        warns: bool = True,
    ) -> PlannedFit:
        """From parameters to facts to a plan: all of it public, without data."""
        # Nobody knows how many records will arrive, and a penalty may be spread over all of them.
        stream = self._stream()
        horizon = n_samples if stream is None else stream.n_expected
        loss = self._weighted(self._loss(n_classes), classes)
        penalty = self._penalty(horizon, n_features)
        budget = trust.budget(self.epsilon, self.delta)
        target_bounds = getattr(self, "target_bounds", None)
        if n_classes is None and target_bounds is None:
            target_bounds = UNDECLARED_TARGET_BOUNDS
        is_scaled = loss.is_of_residual and not loss.has_log_link
        coordinates = declared_coordinates(
            n_features=n_features,
            fit_intercept=bool(self.fit_intercept),
            feature_bounds=self.feature_bounds,
            row_norm=self.row_norm,
            target_bounds=target_bounds,
            feature_names=feature_names,
            has_target_scale=is_scaled and n_classes is None,
            has_log_link=loss.has_log_link,
        )
        algorithm, agents, is_exact = self._algorithm(trust, budget)
        facts = self._facts(n_samples, loss, penalty, coordinates, replace(trust, agents=agents))
        # Whatever the budget: a grid over budgets should not fail at one end only.
        algorithm.check(facts)
        facts, rest = with_count(facts, budget)
        if budget.is_private:
            choices = {"scale": self.scale, "conditioning": self.conditioning}
            own = share_of_fit(rest, loss) if self.intervals else rest
            facts = prepared(facts, own, algorithm, coordinates, **choices)
        elif is_exact:
            algorithm = exact_algorithm(facts.setting, trace=algorithm.trace)
        if self.intervals:
            is_open = getattr(self, "target_bounds", ()) is None
            facts = with_inference(facts, rest, is_open=is_open)
        plan = algorithm.plan(facts, budget)
        return PlannedFit(
            plan=self._warned(plan, coordinates, trust, warns) if budget.is_private else plan,
            algorithm=algorithm,
            coordinates=coordinates,
            who=trust.who if trust.unit != "record" else "",
        )

    def _algorithm(self, trust: Trust, budget: Budget) -> tuple[Algorithm, Agents, bool]:
        """The algorithm, its agents, and whether the exact optimum takes its place."""
        agents, of_persons = trust.agents, trust.unit == "person"
        algorithm = resolve_algorithm(self.algorithm, agents.setting, of_persons=of_persons)
        # Without privacy a name stands for the optimum, and an object for its own iterations.
        is_named = isinstance(self.algorithm, str)
        runs = budget.is_private or (algorithm.noiseless and not is_named)
        if runs:
            agents = algorithm.share_among(agents)
        return algorithm, agents, not (runs or algorithm.exact)

    def _facts(
        self, n_samples: int, loss: Loss, penalty: Penalty, coordinates: Coordinates, trust: Trust
    ) -> Facts:
        """What is public: shapes, the objective in units of the target's scale, and bounds."""
        is_stream, most = self._stream() is not None, trust.max_rows_per_person
        # The plan of a stream is that of one record.
        n_samples = 1 if is_stream else n_samples
        # Rounding has a bound that a private number of records does not change.
        n_summed = LARGEST_COUNT if self.neighboring == "add_remove" else n_samples
        curvature = 0.0
        if not self.fit_intercept:
            # Of all parameters, rounded down. The scale of the target multiplies the coefficients
            # and, to the power of the loss, divides the penalty.
            curvature = penalty.strong_convexity / trust.max_weight
            curvature *= float(coordinates.scale.max()) ** -2.0
            curvature *= coordinates.unit ** (2.0 - loss.degree)
            curvature *= 1 - 1e-12
        return Facts(
            n_samples=n_samples,
            n_parameters=coordinates.n_parameters,
            loss=loss.in_units(coordinates.unit),
            penalty=penalty.scaled(coordinates.unit**-loss.degree / trust.max_weight),
            neighboring=Neighboring(self.neighboring),
            row_norm=coordinates.row_norm,
            rounding=rounding_factor(n_samples=n_summed, coordinates=coordinates, per_unit=most),
            max_iter=int(self.max_iter),
            schema=coordinates.fingerprint,
            is_declared=not coordinates.undeclared.any(),
            penalty_curvature=curvature,
            unit=trust.unit,
            agents=trust.agents,
            is_stream=is_stream,
            max_rows_per_person=most,
            weight_spread=trust.weight_spread,
            coordinates=coordinates,
        )

    def _warned(
        self, plan: Plan, coordinates: Coordinates, trust: Trust, warns: bool = True
    ) -> Plan:
        """The plan with all that its guarantee rests on, after warnings of a weak guarantee."""
        general = assumptions_of(plan, coordinates, self.sampler)
        lines = (*general, *plan.assumptions, *self._undeclared(), *trust.assumptions)
        plan = replace(plan, assumptions=lines)
        known = {"knows_target": getattr(self, "target_bounds", self) is not None}
        for warning in warnings_of(plan, coordinates, **known, scale=self.scale) if warns else ():
            warn_user(str(warning), type(warning))
        return plan

    def predict(self, X: Any) -> NDArray[Any]:
        """Predictions for rows."""
        raise NotImplementedError

    def to_sklearn(self: Any) -> Any:
        """Make a fitted scikit-learn estimator with the same coefficients.

        It holds nothing else: for tools that know scikit-learn's classes. Predictions and decision
        functions are the same for rows within `feature_bounds`; others are not clipped to them.
        Probabilities are those of the plain scores, where `predict_proba` is less certain by an
        estimate of its noise.

        Returns
        -------
        model : LinearRegression, TweedieRegressor, LogisticRegression or LinearSVC
            The last where the loss is a hinge, the second for rates, which it does not keep within
            `target_bounds`. It takes features alone, without a column of
            agents, and is the model that `predict` uses without `agents`.
        """
        check_is_fitted(self)
        model: Any = LogisticRegression() if hasattr(self, "predict_proba") else LinearSVC()
        if not is_classifier(self):
            model = self._exported()
        for name in ("coef_", "intercept_", "classes_", "n_iter_"):
            if hasattr(self, name):
                setattr(model, name, copy(getattr(self, name)))
        model.n_features_in_ = self.coef_.shape[-1]
        if (names := self._feature_names()) is not None:
            model.feature_names_in_ = names.copy()
        return model

    def _exported(self: Any) -> Any:
        """A regression of scikit-learn with the same link."""
        if self._inverse_link_ is not None:
            raise ValueError(
                "Got a loss whose predictions are not the linear scores, expected one of"
                " LinearRegression. Copy coef_ and intercept_ to an estimator with that link."
            )
        return LinearRegression()

    @abstractmethod
    def _answers(self, scores: Array) -> NDArray[Any]:
        """Predictions from scores of shape (n_samples, n_outputs)."""

    @abstractmethod
    def _check_targets(self, X: Any, y: ArrayLike, **checks: Any) -> tuple[Any, Any, Targets]:
        """Validated rows, targets as they came, and targets as the loss expects them."""

    @abstractmethod
    def _loss(self, n_classes: int | None) -> Loss:
        """Loss of a record, in the user's units."""

    def _weighted(self, loss: Loss, classes: Any) -> Loss:
        """The loss with public weights, where there are some."""
        return loss

    @abstractmethod
    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        """Penalty of the mean loss, in the user's coefficients."""

    @abstractmethod
    def _undeclared(self) -> tuple[str, ...]:
        """What a guarantee rests on where the user declared nothing."""

    def _keep(self, fitted: Fitted, targets: Targets) -> None:
        """Store the result of a fit."""
        self.n_iter_ = fitted.solution.n_iter
        box = (fitted.coordinates.lower, fitted.coordinates.upper)
        self._box_ = box if np.isfinite(box).any() else None
        if fitted.path:
            self._keep_path(fitted, np.stack(fitted.path))
        if fitted.solution.debiased is not None:
            self.inference_ = inference_of(fitted, self._feature_names())

    def _keep_path(self, fitted: Fitted, models: Array) -> None:
        """Store models of shape (n_iterations, ..., n_parameters, n_outputs), in the user's units.

        Where agents have models of their own, the common one is their average.
        """
        coef, intercept = fitted.in_user_units(models)
        if not is_classifier(self):
            coef, intercept = coef[..., 0, :], intercept[..., 0]
        if models.ndim == 4:
            self.coef_per_agent_path_, self.intercept_per_agent_path_ = coef, intercept
            coef, intercept = coef.mean(axis=1), intercept.mean(axis=1)
        self.coef_path_, self.intercept_path_ = coef, intercept

    def _forget(self) -> None:
        """Remove the results of an earlier fit: names that end with an underscore."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _advice(self, argument: str) -> str:
        """What to do where a fit gets an argument that it does not have."""
        if argument == "persons":
            return "Pass them as agents, with privacy_unit='agent'."
        use = "Use class_weight={label: weight}." if is_classifier(self) else "Leave it out."
        if argument != "sample_weight":
            return "Leave it out."
        return f"Estimators of a curator, such as DPAdmmRidge, weigh records by them. {use}"

    def _stream(self) -> Any:
        """The algorithm, where records are used as they arrive, or None."""
        return None

    def _owners(self, X: Any, y: NDArray[Any], agents: Any) -> tuple[Ownership | None, Trust]:
        """Who holds which row, and who is trusted: here a curator with all rows."""
        return None, CURATOR

    def _labels_of_rows(self, X: Any, agents: Any) -> Any:
        """The label of each row; None: there are none."""
        return agents

    def _curator(self, has_persons: bool) -> Trust:
        """Whom a fit trusts that is told, or not told, who the persons are."""
        return CURATOR

    def _weighed(self, trust: Trust, sample_weight: Any, X: Any) -> tuple[Trust, Array | None]:
        """What is known of the weights of records, and these weights in [0, 1]: here, none."""
        return trust, None

    def _check_fit(self, X: Any, y: ArrayLike, **checks: Any) -> tuple[Any, NDArray[Any]]:
        """Validate rows and targets, and store the columns."""
        with validating():
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=FLOATS, **checks)
        return X, np.asarray(y)

    def _check_predict(self, X: Any) -> Any:
        """Validate rows to predict for."""
        check_is_fitted(self)
        with validating():
            return validate_data(self, X, accept_sparse="csr", dtype=FLOATS, reset=False)

    def _feature_names(self) -> Any:
        """Names of the features, where a fit has seen some."""
        return getattr(self, "feature_names_in_", None)

    def _plan_shape(
        self, n_samples: int, n_features: int, n_persons: int | None = None, **facts: Any
    ) -> Plan:
        """The plan for data of a shape, with the names of columns that have bounds."""
        if "trust" not in facts:
            facts["trust"], _ = self._weighed(self._curator(n_persons is not None), None, None)
        if n_persons is not None:
            check_scalar(n_persons, "n_persons", Integral, min_val=1)
            n_samples = n_persons
        check_scalar(n_samples, "n_samples", Integral, min_val=1)
        check_scalar(n_features, "n_features", Integral, min_val=1)
        names = None
        if isinstance(self.feature_bounds, dict):
            names = [*self.feature_bounds, *range(n_features - len(self.feature_bounds))]
        n_samples, n_features = int(n_samples), int(n_features)
        facts |= {"n_samples": n_samples, "n_features": n_features, "feature_names": names}
        return self._plan_fit(**facts).plan


class SeesRows:
    """Rows to predict for, seen as those of the fit were."""

    _check_predict: Any
    coef_: Array
    # Bounds that the fit clipped rows to.
    _box_: tuple[Array, Array] | None = None

    def _seen(self, X: Any) -> Any:
        X = self._check_predict(X)
        return X if self._box_ is None else clipped(X, *self._box_)

    def _product(self, X: Any) -> Array:
        """``X @ coef_.T`` of rows as they are seen, which are copied a block at a time."""
        X, coef = self._check_predict(X), self.coef_.T
        if not isinstance(X, np.ndarray) or (self._box_ is None and X.dtype == np.float64):
            return np.asarray((X if self._box_ is None else clipped(X, *self._box_)) @ coef)
        product, size = np.empty((len(X), *coef.shape[1:])), block_size(X.shape[1], is_sparse=False)
        for start in range(0, len(X), size):
            part = X[start : start + size]
            part = part.astype(np.float64) if self._box_ is None else clipped(part, *self._box_)
            product[start : start + size] = part @ coef
        return product


class PredictsNumbers(SeesRows, RegressorMixin):
    """Predictions of a linear regression."""

    coef_: Array
    intercept_: float
    # Of a loss of one's own; None: scores are predictions.
    _inverse_link_: Callable[[Array], Array] | None = None

    @lazily
    def predict(self, X: Any) -> Array:
        """Predict the target.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask collection} of shape (n_samples, n_features)

        Returns
        -------
        y_pred : ndarray of shape (n_samples,)
        """
        scores = self._product(X) + self.intercept_
        return self._answers(scores[:, None])

    def _answers(self, scores: Array) -> Array:
        """Predictions from scores of shape (n_samples, 1)."""
        return scores[:, 0] if self._inverse_link_ is None else self._inverse_link_(scores[:, 0])


class PredictsClasses(SeesRows, ClassifierMixin):
    """Predictions of a linear classification."""

    classes_: NDArray[Any]
    coef_: Array
    intercept_: Array

    @lazily
    def decision_function(self, X: Any) -> Array:
        """Scores of the classes.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask collection} of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            With two classes, the score of ``classes_[1]``.
        """
        return self._by_class(self._product(X) + self.intercept_)

    @lazily
    def predict(self, X: Any) -> NDArray[Any]:
        """Predict class labels.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask collection} of shape (n_samples, n_features)

        Returns
        -------
        y_pred : ndarray of shape (n_samples,)
        """
        return self._labels(self.decision_function(X))

    def _answers(self, scores: Array) -> NDArray[Any]:
        """Predictions from scores of shape (n_samples, n_outputs)."""
        return self._labels(self._by_class(scores))

    def _by_class(self, scores: Array) -> Array:
        """Scores in the shape that users see."""
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def _labels(self, scores: Array) -> NDArray[Any]:
        """The class with the largest score, for each row."""
        index = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[index])


class PredictsProbabilities(PredictsClasses):
    """Probabilities of a logistic loss, less certain by an estimate of their noise."""

    # Of the fit of a logistic loss.
    _score_variance_: float
    _doubt_: float

    @lazily
    def predict_proba(self, X: Any) -> Array:
        """Predict the probability of each class, of a private fit less certain by its noise.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask collection} of shape (n_samples, n_features)

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        return np.exp(self.predict_log_proba(X))

    @lazily
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of what `predict_proba` returns, with the same parameters."""
        return self._log_probabilities(self.decision_function(X))

    def _log_probabilities(self, scores: Array) -> Array:
        """Logarithms of probabilities, from scores in the shape that users see."""
        if not hasattr(self, "_doubt_"):
            raise AttributeError(
                "Got a custom loss, expected a logistic one: scores of other losses are no"
                " log-odds. Use decision_function."
            )
        return moderate(log_probabilities(scores), self._score_variance_, self._doubt_)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearRegressor(PredictsNumbers, PrivateLinearModel):
    """A linear regression, with bounds of the target."""

    target_bounds: Any = parameter(None)

    @without_data
    def plan(self, n_samples: int, n_features: int, n_persons: int | None = None) -> Plan:
        """Plan, without data, what a fit of data of this shape releases at which privacy loss.

        Parameters
        ----------
        n_samples, n_features : int
            Shape of the data.
        n_persons : int, default=None
            Number of persons, where they are the unit; `n_samples` does not matter then, nor None.

        Returns
        -------
        plan : Plan
        """
        self._validate_params()
        return self._plan_shape(n_samples, n_features, n_persons)

    def _huber(self, threshold: float) -> Loss:
        """Huber's loss, from a threshold in units of half of the target's range."""
        return HuberLoss(float(threshold) * self._target_unit())

    def _target_unit(self) -> float:
        """Half of the target's range."""
        return target_scale(self.target_bounds, fit_intercept=bool(self.fit_intercept))

    def _undeclared(self) -> tuple[str, ...]:
        line = "target_bounds not declared: targets are clipped to [-3, 3]."
        return (line,) if self.target_bounds is None else ()

    def _check_targets(self, X: Any, y: ArrayLike, **checks: Any) -> tuple[Any, Any, Targets]:
        X, y = self._check_fit(X, y, y_numeric=True, **checks)
        y = finite_numbers(y)
        return X, y, Targets(encoded=y)

    def _keep(self, fitted: Fitted, targets: Targets) -> None:
        super()._keep(fitted, targets)
        coef, intercept = fitted.in_user_units(fitted.solution.parameters)
        self.coef_, self.intercept_ = coef[0], float(intercept[0])
        loss = self._loss(None)
        if type(loss).inverse_link is not Loss.inverse_link:
            self._inverse_link_ = loss.inverse_link


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearClassifier(PredictsClasses, PrivateLinearModel):
    """A linear classification; the scores of all classes are released together."""

    classes: Any = parameter(None, "array-like", None)
    class_weight: Any = parameter(None)

    @without_data
    def plan(
        self,
        n_samples: int,
        n_features: int,
        n_classes: int | None = None,
        n_persons: int | None = None,
    ) -> Plan:
        """Plan, without data, what a fit of data of this shape releases at which privacy loss.

        Parameters
        ----------
        n_samples, n_features : int
            Shape of the data.
        n_classes : int, default=None
            Number of classes; None means the number of declared ones.
        n_persons : int, default=None
            Number of persons, where they are the unit; `n_samples` does not matter then, nor None.

        Returns
        -------
        plan : Plan
        """
        self._validate_params()
        n_classes = self._n_classes(n_classes)
        return self._plan_shape(n_samples, n_features, n_persons, n_classes=n_classes)

    def _n_classes(self, n_classes: int | None) -> int:
        """Number of classes that a plan without data is for."""
        if self.classes is not None:
            n_declared = len(class_labels(self.classes))
            if n_classes not in (None, n_declared):
                raise ValueError(
                    f"Got n_classes={n_classes} with {n_declared} declared classes, expected the"
                    " same number. Leave n_classes out."
                )
            return n_declared
        if n_classes is None:
            raise ValueError(
                "Got n_classes=None and classes=None, expected one of them: pass classes=[...] to"
                " the estimator, or n_classes=... to plan."
            )
        check_scalar(n_classes, "n_classes", Integral, min_val=2)
        return int(n_classes)

    def _logistic(self, n_classes: Any) -> Loss:
        """The logistic loss of two classes, or the multinomial one of more."""
        return LogisticLoss() if n_classes == 2 else MultinomialLoss(n_classes)

    def _hinge(self, n_classes: Any, smoothing: float) -> Loss:
        """The smoothed hinge of two classes, or of each against the rest."""
        width = float(smoothing)
        return SmoothedHinge(width) if n_classes == 2 else OneVsRestHinge(n_classes, width)

    def _undeclared(self) -> tuple[str, ...]:
        line = "classes not declared: the set of labels seen in y is assumed to be public."
        return (line,) if self._known_classes() is None else ()

    def _check_targets(self, X: Any, y: ArrayLike, **checks: Any) -> tuple[Any, Any, Targets]:
        X, y = self._check_fit(X, y, **checks)
        return X, y, encoded_targets(y, self._known_classes())

    def _weighted(self, loss: Loss, classes: Any) -> Loss:
        if self.class_weight is None:
            return loss
        weights = class_weights(
            self.class_weight, self._known_classes() if classes is None else classes
        )
        return WeightedLoss(loss, weights) if set(weights) != {1.0} else loss

    def _known_classes(self) -> Any:
        """Classes that are known before data."""
        return self.classes

    def _keep(self, fitted: Fitted, targets: Targets) -> None:
        super()._keep(fitted, targets)
        self.classes_ = targets.classes
        self.coef_, self.intercept_ = fitted.in_user_units(fitted.solution.parameters)
        loss, solution = fitted.plan.facts.loss, fitted.solution
        if isinstance(loss.unweighted, LogisticLoss | MultinomialLoss):
            # For `predict_proba`.
            self._score_variance_ = solution.score_variance
            # A little is left of the order of the scores, whatever the noise.
            self._doubt_ = min(solution.doubt, 0.999)


@contextmanager
def validating() -> Iterator[None]:
    """Validate rows: nothing is said of their values; text and missing values get advice."""
    try:
        with converting():
            yield
    except ValueError as error:
        if "could not convert string to float" in str(error):
            problem = "Got text, expected numbers."
            more = " For text of many words: HashingVectorizer, and row_norm=1."
        elif "Input X contains NaN" in str(error):
            # The advice of scikit-learn, an imputer or fewer rows, is not private.
            problem = "Input X contains NaN, expected finite numbers."
            more = " Imputers learn from data, without a guarantee."
        else:
            raise
        raise ValueError(
            f"{problem} Declare what the columns of X can hold, and put a PublicTableTransformer"
            f" from skdpadmm.preprocessing before this estimator.{more}"
        ) from None


def finite_numbers(y: Any, name: str = "y") -> Array:
    """Targets as finite floats, checked after text and None have become numbers."""
    with validating():
        return np.asarray(check_array(y, dtype=np.float64, ensure_2d=False, input_name=name))


def elastic_net(strength: float, l1_ratio: float) -> Penalty:
    """Both penalties, of which the l1 one has this share."""
    return ElasticNet(float(strength * l1_ratio), float(strength * (1 - l1_ratio)))


def log_probabilities(scores: Array) -> Array:
    """Logarithms of probabilities, as a logistic loss sees scores."""
    if scores.ndim == 2:
        return np.asarray(log_softmax(scores, axis=1))
    return np.column_stack([log_expit(-scores), log_expit(scores)])


def class_labels(classes: Any) -> NDArray[Any]:
    declared = np.unique(np.asarray(classes))
    if len(declared) < 2:
        raise ValueError(
            f"Got classes={classes!r}, expected at least 2 classes."
            " Declare every class there can be."
        )
    return declared


def class_weights(given: Any, classes: Any) -> tuple[float, ...]:
    """The weight of each class, in their order; 1 for those that are not named."""
    is_dict = isinstance(given, Mapping)
    values = list(given.values()) if is_dict else []
    if not is_dict or not all(POSITIVE.is_satisfied_by(v) and np.isfinite(v) for v in values):
        raise ValueError(
            f"Got class_weight={given!r}, expected a dict of floats in (0, inf) by label, or None."
            " The frequencies of labels are private, so 'balanced' is not computed: pass"
            " 1 / (n_classes * prevalence) for each label, with a prevalence that is public."
        )
    known = [] if classes is None else class_labels(classes).tolist()
    if unknown := [label for label in given if label not in known]:
        raise ValueError(
            f"Got class_weight for labels {unknown[:5]!r} with classes={classes!r}, expected labels"
            " among the classes, which a plan without data knows only if they are declared. Declare"
            " every class there can be, in the type that class_weight has."
        )
    return tuple(float(given.get(label, 1.0)) for label in known)


def encoded_targets(y: NDArray[Any], known: Any) -> Targets:
    """Labels as a loss expects them: -1 and 1, or the index of a class."""
    classes, index = encode(y, known)
    return Targets(encoded=2.0 * index - 1.0 if len(classes) == 2 else index, classes=classes)


def encode(y: NDArray[Any], classes: Any) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The classes, sorted, and for each label the index of its class."""
    if classes is None:
        # Its warning of many distinct labels would depend on the number of rows.
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            check_classification_targets(y)
        seen, index = np.unique(y, return_inverse=True)
        if len(seen) < 2:
            raise ValueError(
                "Got y with one class, expected at least 2 classes. Declare all of them with"
                " classes=[...] where data may lack some."
            )
        return seen, index.astype(np.intp)
    declared = class_labels(classes)
    position = {label: k for k, label in enumerate(declared.tolist())}
    try:
        seen, inverse = np.unique(y, return_inverse=True)
        place = np.array([position.get(label, -1) for label in seen.tolist()], dtype=np.intp)
    except TypeError:  # labels that cannot be sorted beside declared ones
        inverse, place = np.zeros(0, dtype=np.intp), np.array([-1])
    if (place < 0).any():
        raise ValueError(
            f"Got labels in y that are not among classes={classes!r}, expected declared ones only."
            " Declare every class there can be, in the type that y has."
        )
    return declared, place[inverse]
