"""Learning from records as they arrive, each of them once."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn.base import is_classifier
from sklearn.utils.metaestimators import available_if

from skdpadmm._fitting import (
    Arrived,
    Fitted,
    all_or_nothing,
    run_stream,
    unseen_figures,
)
from skdpadmm._linear_model import PrivateLinearModel
from skdpadmm._sklearn import _fit_context
from skdpadmm.algorithms import GradientADMM
from skdpadmm.privacy import PrivacyReport


def _has_stream(estimator: Any) -> bool:
    """Whether the algorithm takes records as they arrive, each of them once."""
    algorithm = estimator.algorithm
    if isinstance(algorithm, GradientADMM) and algorithm.is_stream:
        return True
    raise AttributeError(
        f"Got algorithm={algorithm!r} for partial_fit, expected GradientADMM(schedule='stream')"
        " from skdpadmm.algorithms: other algorithms use a record more than once, or need all of"
        " them. Pass it, or use fit."
    )


class StreamingModel(PrivateLinearModel):
    """A model that can also learn from records as they arrive."""

    # What came of the records so far; None: no stream, or one that was finished.
    _arrived: Arrived | None = None
    _stream_classes: Any = None
    privacy_: PrivacyReport

    @available_if(_has_stream)
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: ArrayLike, classes: Any = None) -> Self:
        """Take records in as they arrive, each of them once.

        Every record costs its own budget, however many there are: no two of them share a step.
        That one is offered twice cannot be noticed; it is protected less then. What may be read in
        between, here or from a pickle, is private against whoever sees all of it. Pieces of any
        size lead to the same model as one `fit`, bit for bit, where `random_state` is an int.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_new, n_features)
            Features, finite.
        y : array-like of shape (n_new,)
            Target.
        classes : array-like of shape (n_classes,), default=None
            For classifiers: every class there can be, unless the constructor has them. Needed with
            the first records alone.

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
            first records; nothing is stored then.
        """
        with all_or_nothing(self):
            if not self._is_stream():
                raise ValueError(
                    "Got epsilon=inf for partial_fit, expected a finite budget: without privacy"
                    " there is an exact answer, for all records at once. Use fit."
                )
            if self._arrived is None:
                self._forget()
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
        user to know.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            Where no stream is open.
        """
        if self._arrived is None:
            raise ValueError("Got finalize without an open stream, expected partial_fit before it.")
        self.privacy_ = replace(self.privacy_, if_unseen=unseen_figures(self._arrived))
        del self._arrived
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
        arrived, fitted = run_stream(self, planned, X, targets.encoded, self._arrived)
        self._keep(fitted, targets)
        self._arrived, self._stream_classes = arrived, targets.classes
        self.n_samples_seen_ = arrived.n_samples
        return fitted

    def _public_shape(self, n_samples: int, n_features: int) -> dict[str, Any]:
        shape = super()._public_shape(n_samples, n_features)
        return shape | {"n_samples": self.algorithm.n_expected} if self._is_stream() else shape

    def _is_stream(self) -> bool:
        """Whether records are used as they arrive; without privacy there is an exact answer."""
        algorithm = self.algorithm
        return (
            isinstance(algorithm, GradientADMM) and algorithm.is_stream and self.epsilon < math.inf
        )

    def _check_classes(self, classes: Any) -> None:
        """Know all classes before the first records, and the same ones ever after."""
        if not is_classifier(self):
            if classes is not None:
                raise ValueError(f"Got classes={classes!r} for a regressor, expected none.")
            return
        known = self._known_classes()
        if known is None and classes is None:
            raise ValueError(
                "Got partial_fit without classes, expected every class there can be: the first"
                " records may lack some. Pass classes=[...], here or when the estimator is made."
            )
        if known is None:
            self._stream_classes = classes
        elif classes is not None and set(classes) != set(known):
            raise ValueError(
                f"Got classes={classes!r}, expected those of the constructor or of the first"
                f" records: {list(known)}. Leave them out."
            )

    def _forget(self) -> None:
        """End a stream without a word."""
        for name in ("_arrived", "_stream_classes", "n_samples_seen_"):
            if name in vars(self):
                delattr(self, name)

    def _known_classes(self) -> Any:
        declared = getattr(self, "classes", None)
        return self._stream_classes if declared is None else declared
