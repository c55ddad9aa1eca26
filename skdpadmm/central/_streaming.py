"""Learning from records as they arrive, each of them once."""

from __future__ import annotations

import math
import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier
from sklearn.utils.metaestimators import available_if

from skdpadmm._fitting import (
    Arrived,
    Fitted,
    all_or_nothing,
    end_of_stream,
    run_stream,
)
from skdpadmm._linear_model import PrivateLinearModel
from skdpadmm._sklearn import _fit_context
from skdpadmm.algorithms import is_streaming
from skdpadmm.privacy import PrivacyReport


def _has_stream(estimator: Any) -> bool:
    """Whether the algorithm takes records as they arrive, each of them once."""
    algorithm = estimator.algorithm
    if is_streaming(algorithm):
        return True
    raise AttributeError(
        f"Got algorithm={algorithm!r} for partial_fit, expected GradientADMM(schedule='stream')"
        " from skdpadmm.algorithms: other algorithms use a record more than once, or need all of"
        " them. Pass it, or use fit."
    )


class StreamingModel(PrivateLinearModel):
    """A model that can also learn from records as they arrive."""

    # What came of the records so far; None: no stream.
    _arrived: Arrived | None = None
    # Those that came with the first records, until these are in.
    _first_classes: Any = None
    privacy_: PrivacyReport

    @available_if(_has_stream)
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: ArrayLike, classes: Any = None) -> Self:
        """Take records in as they arrive, each of them once.

        Every record costs its own budget, however many there are: no two of them share a step.
        That one is offered twice cannot be noticed; it is protected less then. What may be read in
        between, here or from a pickle, is private against whoever sees all of it. Pieces of any
        size lead to the same model as one `fit`, bit for bit, where `random_state` is an int.

        With a `ledger` a stream is counted as it begins. A copy of it that goes on beside it, with
        records that it may have seen too, is counted as a stream of its own.

        After `fit` and after `finalize` it goes on, as in scikit-learn. `privacy_` then speaks
        again of whoever saw every intermediate state, until `finalize` is called anew.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_new, n_features)
            Features, finite.
        y : array-like of shape (n_new,)
            Target.
        classes : array-like of shape (n_classes,), default=None
            For classifiers: every class there can be, unless the constructor has them. Needed with
            the first records alone, and the same ones ever after.

        Returns
        -------
        self : object
            With `coef_` and `privacy_` as of now, and with `n_samples_seen_`.

        Raises
        ------
        AttributeError
            Where the algorithm is none for streams.
        ValueError
            Where the input is not valid, `epsilon` is inf, or parameters have changed since the
            first records, among them classes, `sampler`, `ledger`, and whether there is a
            `random_state`; nothing is stored then.
        """
        with all_or_nothing(self):
            if not self._is_stream():
                raise ValueError(
                    "Got epsilon=inf for partial_fit, expected a finite budget: without privacy"
                    " there is an exact answer, for all records at once. Use fit."
                )
            self._check_classes(classes)
            self._arrive(X, y)
        return self

    @available_if(_has_stream)
    def finalize(self) -> Self:
        """Say that the stream has ended, and what that is worth.

        Nothing is computed from data. `privacy_` goes on to state what holds against whoever saw
        every intermediate state. Beside it, under "if no intermediate state was seen", stands what
        holds for the record at the worst position, the last one; at a random position; and for the
        first one. Whether somebody read `coef_`, a pickle or a prediction in between is for the
        user to know. Records may still arrive, and then this may be said again, of all of them;
        what was read after the first time was read in between.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            Where there is no stream.
        """
        arrived = self._arrived
        if arrived is None:
            raise ValueError("Got finalize without a stream, expected partial_fit before it.")
        self.privacy_ = end_of_stream(self.privacy_, arrived)
        # What only the number of records could tell.
        for line in self.privacy_.assumptions[len(arrived.plan.assumptions) :]:
            warnings.warn(line, UserWarning, stacklevel=2)
        return self

    def _fit(self, X: Any, y: ArrayLike, agents: Any = None) -> Fitted:
        self._forget()
        if not self._is_stream():
            return super()._fit(X, y, agents)
        # All at once is a stream that begins and ends here.
        fitted = self._arrive(X, y)
        self.finalize()
        return fitted

    def _arrive(self, X: Any, y: ArrayLike) -> Fitted:
        """Take new records in."""
        X, _, targets = self._check_targets(X, y, reset=self._arrived is None)
        planned = self._plan_fit(
            # Nobody knows how many there will be, and a penalty may be spread over all of them.
            n_samples=self.algorithm.n_expected,
            n_features=X.shape[1],
            feature_names=self._feature_names(),
            n_classes=targets.n_classes,
        )
        arrived, fitted = run_stream(
            self, planned, X, targets.encoded, targets.classes, self._arrived
        )
        self._keep(fitted, targets)
        self._arrived, self.n_samples_seen_ = arrived, arrived.n_samples
        if "_first_classes" in vars(self):
            del self._first_classes
        return fitted

    def _public_shape(self, n_samples: int, n_features: int) -> dict[str, Any]:
        shape = super()._public_shape(n_samples, n_features)
        return shape | {"n_samples": self.algorithm.n_expected} if self._is_stream() else shape

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # After 300 steps of one noisy record each, the median accuracy is .4 where scikit-learn's
        # checks ask for .83, and regressors reach .13 of .5.
        if is_streaming(self.algorithm):
            for of_kind in (tags.regressor_tags, tags.classifier_tags):
                if of_kind is not None:
                    of_kind.poor_score = True
        return tags

    def _is_stream(self) -> bool:
        """Whether records are used as they arrive; without privacy there is an exact answer."""
        algorithm = self.algorithm
        return is_streaming(algorithm) and self.epsilon < math.inf

    def _check_classes(self, classes: Any) -> None:
        """Know all classes before the first records, and the same ones ever after."""
        if not is_classifier(self):
            if classes is not None:
                raise ValueError(f"Got classes={classes!r} for a regressor, expected none.")
            return
        arrived = None if self._arrived is None else self._arrived.classes
        sources = (arrived, self._declared_classes, classes)
        given = [np.asarray(source).tolist() for source in sources if source is not None]
        if not given:
            raise ValueError(
                "Got partial_fit without classes, expected every class there can be: the first"
                " records may lack some. Pass classes=[...], here or when the estimator is made."
            )
        known = given[0]
        for other in given[1:]:
            if set(other) != set(known):
                raise ValueError(
                    f"Got classes={other!r}, expected those of the constructor or of the first"
                    f" records: {known}. Leave them out, or begin anew with fit."
                )
        if arrived is None:
            self._first_classes = known

    def _forget(self) -> None:
        """End a stream without a word."""
        for name in ("_arrived", "_first_classes", "n_samples_seen_"):
            if name in vars(self):
                delattr(self, name)

    @property
    def _declared_classes(self) -> Any:
        """Those of the constructor, where it takes any."""
        return self.get_params(deep=False).get("classes")

    def _known_classes(self) -> Any:
        if self._arrived is not None:
            return self._arrived.classes
        return self._first_classes if self._declared_classes is None else self._declared_classes
