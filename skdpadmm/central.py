"""Estimators with a trusted curator: the curator holds the rows, the world sees the model.

**Guarantee.** The adversary is "model": the public, which sees the fitted model or every released
iterate. The unit is one record or, with ``fit(X, y, persons=labels)``, all rows of a person,
replaced by one or more others. `neighboring` chooses the neighbouring relation. `fit` is (epsilon,
delta)-differentially private, by default by composition over all releases: the second moment and
the path of Algorithm 2 of [1]_, with noise on the released mean only. `privacy_` lists the releases
and states the guarantee; the documentation of the algorithm, such as
:class:`~skdpadmm.algorithms.ConsensusADMM`, states the theorem. The guarantee holds for every
finite input, because contributions are clipped after they are computed. It does not cover
transformers fitted earlier in a pipeline, scores on private data, or other fits on the same
records.

.. [1] E. Cyffers, A. Bellet, D. Basu, "From Noisy Fixed-Point Iterations to Private ADMM for
   Centralized and Federated Learning", ICML 2023.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_classifier
from sklearn.linear_model import TweedieRegressor

from skdpadmm._chunks import Shards, not_in_chunks
from skdpadmm._fitting import CURATOR, Trust, all_or_nothing
from skdpadmm._linear_model import (
    Array,
    PredictsProbabilities,
    PrivateLinearClassifier,
    PrivateLinearRegressor,
    elastic_net,
    finite_numbers,
    known_arguments,
)
from skdpadmm._sklearn import (
    COUNT,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_OR_INF,
    SHARE,
    Interval,
    OneOf,
    _fit_context,
    absent,
    parameter,
)
from skdpadmm._streaming import StreamingModel
from skdpadmm.algorithms import GradientADMM
from skdpadmm.exceptions import UndeclaredBoundsWarning, warn_user
from skdpadmm.losses import Loss, SmoothedPinball, SquaredLoss, TweedieLoss
from skdpadmm.network import Ownership, ownership_of_labels
from skdpadmm.penalties import L1, GeneralizedL1, Penalty, SquaredL2, named_penalty_matrix
from skdpadmm.records import declared_target_bounds

__all__ = [
    "DPAdmmElasticNet",
    "DPAdmmGammaRegressor",
    "DPAdmmGeneralizedLasso",
    "DPAdmmHuberRegressor",
    "DPAdmmLasso",
    "DPAdmmLinearSVC",
    "DPAdmmLogisticRegression",
    "DPAdmmPoissonRegressor",
    "DPAdmmQuantileRegressor",
    "DPAdmmRidge",
    "DPAdmmTweedieRegressor",
]

# What fits rows of agents instead, where it is not the federated estimator of the same name.
_FOR_AGENTS = {
    "DPAdmmGeneralizedLasso": "DPFedLasso, whose penalty is a plain l1 norm",
    "DPAdmmHuberRegressor": "DPDecentralizedRegressor(loss='huber')",
    "DPAdmmLinearSVC": "DPDecentralizedClassifier(loss='smoothed_hinge')",
}


@dataclass(kw_only=True, eq=False, repr=False)
class CentralModel(StreamingModel):
    """A model of rows that a curator holds, and whose row each is where persons are protected."""

    neighboring: str = parameter("replace_one", OneOf("replace_one", "zero_out", "add_remove"))
    max_rows_per_person: int | None = parameter(None, COUNT, None)
    max_weight: float | str | None = parameter(
        None, Interval(Real, 1, 1e100, closed="both"), OneOf("public"), None
    )
    intervals: bool = parameter(False, "boolean")

    @_fit_context(prefer_skip_nested_validation=True)
    @known_arguments
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        persons: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        r"""Fit the model; spends the whole budget.

        Parameters
        ----------
        X : {array-like, sparse matrix, dask collection} of shape (n_samples, n_features)
            Features, finite. Sparse input is used as CSR. With a client of dask.distributed,
            chunks stay with their workers, and `y` is a collection of the same rows; classifiers
            then need `classes`.
        y : array-like of shape (n_samples,)
            Target: finite numbers for a regressor, class labels for a classifier.
        persons : array-like of shape (n_samples,), default=None
            Label of the person of each row, of any type that can be sorted, none missing. The fit
            then protects all rows of a person together and needs `max_rows_per_person`. The
            objective is the mean over persons of the mean loss of their rows, as with sample
            weights of one over the number of rows of the person; n is the number of persons. To
            hide the number of rows, every person is padded to `max_rows_per_person` rows, in one
            copy of `X`; memory and time grow with it. With None the unit is a row.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights :math:`w_i \geq 0` of the losses of records, which stay as private as `X` and
            `y`, and are clipped to `max_weight`: the mean loss becomes ``sum_i w_i loss_i / n``,
            with n the number of rows, and the penalty stays. scikit-learn has the same objective,
            but its lasso, elastic net and models of counts and costs divide the weights by their
            mean. Weights should have a mean of about one; the steps, and not the guarantee, rest on
            it. Not with `persons`, streams or chunks on workers. See :doc:`/user_guide/weights`.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError, RuntimeError
            If a parameter or the input is invalid; if a worker dies, after which the budget counts
            as spent. The estimator then stores nothing.
        """
        with all_or_nothing(self):
            if self._stream() is not None:
                self._curator(persons is not None or sample_weight is not None)
                # A stream that begins and ends here.
                self._forget()
                self._arrive(X, y)
                self.finalize()
            else:
                self._fit(X, y, persons, sample_weight)
        return self

    def _advice(self, argument: str) -> str:
        if argument != "agents":
            return super()._advice(argument)
        name = next(kind.__name__ for kind in type(self).__mro__ if kind.__module__ == __name__)
        kind = "Classifier" if is_classifier(self) else "Regressor"
        default = f"{name.replace('DPAdmm', 'DPFed')}, or DPDecentralized{kind} without a server"
        return f"A curator holds all rows here. Use {_FOR_AGENTS.get(name, default)}."

    def _owners(self, X: Any, y: NDArray[Any], agents: Any) -> tuple[Ownership | None, Trust]:
        trust = self._curator(agents is not None)
        if agents is None:
            return None, trust
        if isinstance(X, Shards):
            raise not_in_chunks("persons, whose rows may be in several of them")
        persons = ownership_of_labels(agents, n_samples=len(y), name="persons")
        return persons, replace(trust, who=persons.name_of(agents))

    def _curator(self, has_persons: bool) -> Trust:
        size = self.max_rows_per_person
        known = size is not None or self.max_weight is not None
        if self._stream() is not None and (has_persons or known):
            raise ValueError(
                "Got persons, sample_weight, or a bound of them, for a stream, expected neither: a"
                " stream protects single rows, which weigh the same. Leave them out, or choose"
                " algorithm='consensus-admm'."
            )
        if has_persons != (size is not None):
            got = f"max_rows_per_person={size!r} {'with' if has_persons else 'without'} persons"
            raise ValueError(
                f"Got {got}, expected both or none of them: the bound is public, and never taken"
                " from the data. Pass fit(X, y, persons=...), or n_persons=... to plan, and an int"
                " as max_rows_per_person."
            )
        return CURATOR if size is None else Trust(unit="person", max_rows_per_person=int(size))

    def _weighed(self, trust: Trust, sample_weight: Any, X: Any) -> tuple[Trust, Array | None]:
        if sample_weight is None and self.max_weight is None:
            return trust, None
        n_samples, is_public = 1 if X is None else X.shape[0], self.max_weight == "public"
        weights = np.ones(n_samples)
        if sample_weight is not None:
            weights = finite_numbers(sample_weight, "sample_weight")
        is_valid = weights.shape == (n_samples,) and bool((weights >= 0).all())
        is_known = X is not None and (is_public or math.isinf(self.epsilon))
        elsewhere = trust.unit == "person" or isinstance(X, Shards)
        wrong = f"sample_weight of shape {weights.shape}, or with entries below 0"
        without = "max_weight='public' for a plan without data"
        is_counted = is_public and self.neighboring == "add_remove"
        counted = "max_weight='public' with neighboring='add_remove'"
        for is_wrong, got, expected in (
            (elsewhere, "weights, or max_weight, of persons, or of chunks on workers", "neither"),
            (X is None and is_public, without, "a number, the largest weight over their mean"),
            (is_counted, counted, "a number: how many weights there are is private"),
            (not is_valid, wrong, f"{n_samples} numbers of at least 0"),
            (is_known and not weights.any(), "sample_weight of zeros", "at least one above 0"),
        ):
            if is_wrong:
                raise ValueError(f"Got {got}, expected {expected}. Single records have weights.")
        largest = spread = 1.0 if is_public else float(self.max_weight or 1.0)
        if is_known:
            largest = float(weights.max())
            spread = 1.0 / float((weights / largest).mean())
        elif self.max_weight is None:
            known = "a public bound of the weights, whose mean should be about 1"
            line = f"Pass max_weight, {known}. Without it they are clipped to 1."
            warn_user(line, UndeclaredBoundsWarning)
        line = f"Sample weights are private; those above {largest:g} are clipped to it."
        if is_public:
            line = "Sample weights are public: neighbouring data sets have the same ones."
        lines = (*trust.assumptions, line)
        trust = replace(trust, max_weight=largest, weight_spread=spread, assumptions=lines)
        return trust, None if X is None else np.minimum(weights / largest, 1.0)


@dataclass(kw_only=True, eq=False, repr=False)
class _LogLinkRegressor(CentralModel, PrivateLinearRegressor):
    """A regression of rates, whose logarithms are linear."""

    alpha: float = parameter(1.0, NON_NEGATIVE)
    power: float = absent(1.0)

    def _loss(self, n_classes: int | None) -> Loss:
        if self.target_bounds is None:
            raise ValueError(
                f"Got target_bounds=None for {type(self).__name__}, expected (lower, upper): rates"
                " and targets are kept between them. Declare a range that is public, such as"
                " (0, 20) for counts or (10, 10_000) for costs."
            )
        return TweedieLoss(float(self.power), *declared_target_bounds(self.target_bounds))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Half of the targets of scikit-learn's checks are no rates.
        tags.regressor_tags.poor_score = True
        return tags

    def _exported(self) -> Any:
        model = TweedieRegressor(power=float(self.power), link="log", alpha=self.alpha)
        model._base_loss = model._get_loss()  # Its predictions ask for it.
        return model

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        return SquaredL2(float(self.alpha))


@dataclass(kw_only=True, eq=False, repr=False)
class DPAdmmElasticNet(CentralModel, PrivateLinearRegressor):
    r"""Differentially private linear regression with an l1 and a squared l2 penalty.

    Minimises, as :class:`sklearn.linear_model.ElasticNet` does,

    .. math:: \frac{1}{2 n} \|y - X w - b\|_2^2 + \alpha \rho \|w\|_1
        + \frac{\alpha (1 - \rho)}{2} \|w\|_2^2,

    where :math:`\rho` is `l1_ratio`.

    The module :mod:`skdpadmm.central` states the guarantee and the observers.

    Parameters
    ----------
    epsilon : float, default=1.0
        Total budget of one fit, in (0, inf]. At inf nothing is private: the name of an algorithm
        then means the exact optimum, and an object runs its own iterations without noise and
        clipping.
    delta : float, default=1e-5
        Total delta of one fit, in (0, 1), well below ``1 / n_samples``; at or above it `fit` warns.
    alpha : float, default=1.0
        Strength of the penalty, at least 0, in the user's units.
    l1_ratio : float, default=0.5
        Share of the l1 penalty, in [0, 1].
    neighboring : {"replace_one", "zero_out", "add_remove"}, default="replace_one"
        The difference of neighbouring data sets: one record or person is replaced by another, or
        its loss by zero; or there is one record more or less, and their number is private: part of
        the budget counts them, see :ref:`neighbours`.
    feature_bounds : pair of floats or arrays of shape (n_features,), dict, or None, default=None
        Public range of the features, to which they are clipped: ``(lower, upper)``, or a dict of
        pairs by column name. Never take it from private data. With None and no `row_norm`, rows are
        clipped to a norm of ``sqrt(n_features)``.
    row_norm : float, default=None
        Public bound on the Euclidean norm of a row of features, in place of `feature_bounds`, such
        as 1 for text from a vectorizer that normalises. Longer rows are scaled down to it.
    target_bounds : pair of floats, default=None
        Public range of the target, to which `fit` clips it. None means [-3, 3], for a standardised
        target. Wide bounds cost little where the algorithm can be conditioned: then up to 20 % of
        the squared budget finds centre and unit of the target, unless `scale` is None.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    algorithm : str or Algorithm, default="consensus-admm"
        Name of an algorithm, or an object from :mod:`skdpadmm.algorithms` with its own parameters.
    max_rows_per_person : int or None, default=None
        Public limit on the rows used per person; of more rows the fit uses the first ones in the
        order given. Only for ``fit(X, y, persons=labels)``, which protects persons and needs it.
    max_weight : float, "public" or None, default=None
        Public bound, at least 1, of the weights in ``fit(X, y, sample_weight=weights)``, whose mean
        should be about one; noise grows with it, and larger weights are clipped to it. "public":
        the weights are no secret, and their largest one is the bound. None: there are no weights,
        or they are clipped to 1.
    intervals : bool, default=False
        Whether to spend 70 % of the squared budget on confidence intervals of the coefficients, see
        :doc:`/user_guide/intervals`. Needs a squared, Huber or two-class logistic loss, without
        class weights, or a Tweedie one, which takes 75 %, and bounds of every column or `row_norm`.
    scale : {"auto", "private", None}, default="auto"
        "private" spends 3 % of the squared budget to scale columns without declared bounds. "auto"
        does so if the signal is ample and the algorithm can be conditioned.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends part of the budget on a noisy second moment of the rows, and fits in
        coordinates in which it is near the identity. "auto" does so if it can help, up to 1,000
        parameters.
    max_iter : int, default=100
        Number of iterations, fixed in advance. More iterations need more noise in each.
    sampler : {"floating-point", "opendp"}, default="floating-point"
        "opendp" resists floating-point attacks; it needs ``skdpadmm[secure]`` and takes no seed.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws noise from the operating system's generator. Anything else makes the fit a
        simulation, which is not private: the seed reveals the noise.
    n_jobs : int, default=None
        Number of workers, counted as in joblib; None asks `joblib.parallel_config`. Passes over
        rows use plain threads, because joblib needs longer to dispatch a pass (10 ms) than the pass
        takes (2 ms). Longer tasks, such as problems that agents solve by themselves, go through
        joblib. The result does not depend on the number.
    ledger : str or None, default=None
        Path of a :class:`~skdpadmm.ledger.PrivacyLedger`, in which `fit` reserves its cost before
        it reads data.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of `X` and `y`.
    intercept_ : float
    n_iter_ : int
        Number of steps taken; at ``epsilon=inf``, number of iterations.
    n_samples_seen_ : int
        Number of records that have arrived; only after `partial_fit`.
    inference_ : CoefficientInference
        Debiased coefficients and their intervals; only with ``intervals=True``.
    privacy_ : PrivacyReport
        The observers, what each of them sees, and the guarantee against each.
    n_features_in_ : int
        Number of columns of `X`; `feature_names_in_` has their names if all are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmElasticNet
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> y = X @ [1.0, -2.0, 0.0] + 0.1 * rng.standard_normal(5000)
    >>> model = DPAdmmElasticNet(alpha=0.01, feature_bounds=(-1, 1), target_bounds=(-4, 4),
    ...     random_state=0)
    >>> model.fit(X, y).coef_.round(2)
    array([ 0.85, -2.  ,  0.  ])
    """

    alpha: float = parameter(1.0, NON_NEGATIVE)
    l1_ratio: float = parameter(0.5, SHARE)

    def _loss(self, n_classes: int | None) -> Loss:
        return SquaredLoss()

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        return elastic_net(self.alpha, self.l1_ratio)


@dataclass(kw_only=True, eq=False, repr=False)
class DPAdmmGammaRegressor(_LogLinkRegressor):
    r"""Differentially private gamma regression of costs and durations, with log link.

    Minimises, as :class:`sklearn.linear_model.GammaRegressor` does,

    .. math:: \frac{1}{n} \sum_{i=1}^n \left(\frac{y_i}{\mu_i} + \log \mu_i\right)
        + \frac{\alpha}{2} \|w\|_2^2, \qquad \mu_i = e^{x_i^T w + b}

    Rates :math:`\mu` and targets are limited to `target_bounds`; beyond them the loss goes on as a
    straight line in the score.

    The module :mod:`skdpadmm.central` states the guarantee and the observers.

    Parameters
    ----------
    epsilon : float, default=1.0
        Total budget of one fit, in (0, inf]. At inf nothing is private: the name of an algorithm
        then means the exact optimum, and an object runs its own iterations without noise and
        clipping.
    delta : float, default=1e-5
        Total delta of one fit, in (0, 1), well below ``1 / n_samples``; at or above it `fit` warns.
    alpha : float, default=1.0
        Strength of the penalty, at least 0, in the user's units.
    neighboring : {"replace_one", "zero_out", "add_remove"}, default="replace_one"
        The difference of neighbouring data sets: one record or person is replaced by another, or
        its loss by zero; or there is one record more or less, and their number is private: part of
        the budget counts them, see :ref:`neighbours`.
    feature_bounds : pair of floats or arrays of shape (n_features,), dict, or None, default=None
        Public range of the features, to which they are clipped: ``(lower, upper)``, or a dict of
        pairs by column name. Never take it from private data. With None and no `row_norm`, rows are
        clipped to a norm of ``sqrt(n_features)``.
    row_norm : float, default=None
        Public bound on the Euclidean norm of a row of features, in place of `feature_bounds`, such
        as 1 for text from a vectorizer that normalises. Longer rows are scaled down to it.
    target_bounds : pair of floats, default=None
        Public range of rates and targets, which are clipped to it at every epsilon. The lower bound
        is above 0, and targets of 0 or less become it. None is refused. Wide bounds cost little
        where the algorithm can be conditioned: then up to 20 % of the squared budget finds a usual
        rate, unless `scale` is None.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    algorithm : str or Algorithm, default="consensus-admm"
        Name of an algorithm, or an object from :mod:`skdpadmm.algorithms` with its own parameters.
    max_rows_per_person : int or None, default=None
        Public limit on the rows used per person; of more rows the fit uses the first ones in the
        order given. Only for ``fit(X, y, persons=labels)``, which protects persons and needs it.
    max_weight : float, "public" or None, default=None
        Public bound, at least 1, of the weights in ``fit(X, y, sample_weight=weights)``, whose mean
        should be about one; noise grows with it, and larger weights are clipped to it. "public":
        the weights are no secret, and their largest one is the bound. None: there are no weights,
        or they are clipped to 1.
    intervals : bool, default=False
        Whether to spend 70 % of the squared budget on confidence intervals of the coefficients, see
        :doc:`/user_guide/intervals`. Needs a squared, Huber or two-class logistic loss, without
        class weights, or a Tweedie one, which takes 75 %, and bounds of every column or `row_norm`.
    scale : {"auto", "private", None}, default="auto"
        "private" spends 3 % of the squared budget to scale columns without declared bounds. "auto"
        does so if the signal is ample and the algorithm can be conditioned.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends part of the budget on a noisy second moment of the rows, and fits in
        coordinates in which it is near the identity. "auto" does so if it can help, up to 1,000
        parameters.
    max_iter : int, default=100
        Number of iterations, fixed in advance. More iterations need more noise in each.
    sampler : {"floating-point", "opendp"}, default="floating-point"
        "opendp" resists floating-point attacks; it needs ``skdpadmm[secure]`` and takes no seed.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws noise from the operating system's generator. Anything else makes the fit a
        simulation, which is not private: the seed reveals the noise.
    n_jobs : int, default=None
        Number of workers, counted as in joblib; None asks `joblib.parallel_config`. Passes over
        rows use plain threads, because joblib needs longer to dispatch a pass (10 ms) than the pass
        takes (2 ms). Longer tasks, such as problems that agents solve by themselves, go through
        joblib. The result does not depend on the number.
    ledger : str or None, default=None
        Path of a :class:`~skdpadmm.ledger.PrivacyLedger`, in which `fit` reserves its cost before
        it reads data.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of `X` and `y`.
    intercept_ : float
    n_iter_ : int
        Number of steps taken; at ``epsilon=inf``, number of iterations.
    n_samples_seen_ : int
        Number of records that have arrived; only after `partial_fit`.
    inference_ : CoefficientInference
        Debiased coefficients and their intervals; only with ``intervals=True``.
    privacy_ : PrivacyReport
        The observers, what each of them sees, and the guarantee against each.
    n_features_in_ : int
        Number of columns of `X`; `feature_names_in_` has their names if all are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmGammaRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(10_000, 2))
    >>> y = np.exp(6 + X @ [1.0, -0.5]) * rng.gamma(2.0, 0.5, size=10_000)
    >>> model = DPAdmmGammaRegressor(alpha=1e-3, feature_bounds=(-1, 1),
    ...     target_bounds=(10, 10_000), random_state=0)
    >>> model.fit(X, y).coef_.round(1)
    array([ 1. , -0.5])
    """

    power: float = absent(2.0)


@dataclass(kw_only=True, eq=False, repr=False)
class DPAdmmGeneralizedLasso(CentralModel, PrivateLinearRegressor):
    r"""Differentially private linear regression with an l1 penalty of a linear image.

    Minimises

    .. math:: \frac{1}{2 n} \|y - X w - b\|_2^2 + \alpha \|D w\|_1

    The penalty sets entries of D w to zero: differences of neighbouring coefficients, for piecewise
    constant ones, or second differences, for piecewise linear ones.

    The module :mod:`skdpadmm.central` states the guarantee and the observers.

    Parameters
    ----------
    epsilon : float, default=1.0
        Total budget of one fit, in (0, inf]. At inf nothing is private: the name of an algorithm
        then means the exact optimum, and an object runs its own iterations without noise and
        clipping.
    delta : float, default=1e-5
        Total delta of one fit, in (0, 1), well below ``1 / n_samples``; at or above it `fit` warns.
    penalty_matrix : {"fused", "trend"}, array-like or sparse matrix, default="fused"
        The public matrix D of shape (m, n_features), of full row rank, in the user's units.
        "fused": first differences ``w[j + 1] - w[j]``, the fused lasso [1]_. "trend": second
        differences, l1 trend filtering [2]_.
    alpha : float, default=1.0
        Strength of the penalty, at least 0, in the user's units.
    neighboring : {"replace_one", "zero_out", "add_remove"}, default="replace_one"
        The difference of neighbouring data sets: one record or person is replaced by another, or
        its loss by zero; or there is one record more or less, and their number is private: part of
        the budget counts them, see :ref:`neighbours`.
    feature_bounds : pair of floats or arrays of shape (n_features,), dict, or None, default=None
        Public range of the features, to which they are clipped: ``(lower, upper)``, or a dict of
        pairs by column name. Never take it from private data. With None and no `row_norm`, rows are
        clipped to a norm of ``sqrt(n_features)``.
    row_norm : float, default=None
        Public bound on the Euclidean norm of a row of features, in place of `feature_bounds`, such
        as 1 for text from a vectorizer that normalises. Longer rows are scaled down to it.
    target_bounds : pair of floats, default=None
        Public range of the target, to which `fit` clips it. None means [-3, 3], for a standardised
        target. Wide bounds cost little where the algorithm can be conditioned: then up to 20 % of
        the squared budget finds centre and unit of the target, unless `scale` is None.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    algorithm : str or Algorithm, default="consensus-admm"
        Name of an algorithm, or an object from :mod:`skdpadmm.algorithms` with its own parameters.
    max_rows_per_person : int or None, default=None
        Public limit on the rows used per person; of more rows the fit uses the first ones in the
        order given. Only for ``fit(X, y, persons=labels)``, which protects persons and needs it.
    max_weight : float, "public" or None, default=None
        Public bound, at least 1, of the weights in ``fit(X, y, sample_weight=weights)``, whose mean
        should be about one; noise grows with it, and larger weights are clipped to it. "public":
        the weights are no secret, and their largest one is the bound. None: there are no weights,
        or they are clipped to 1.
    intervals : bool, default=False
        Whether to spend 70 % of the squared budget on confidence intervals of the coefficients, see
        :doc:`/user_guide/intervals`. Needs a squared, Huber or two-class logistic loss, without
        class weights, or a Tweedie one, which takes 75 %, and bounds of every column or `row_norm`.
    scale : {"auto", "private", None}, default="auto"
        "private" spends 3 % of the squared budget to scale columns without declared bounds. "auto"
        does so if the signal is ample and the algorithm can be conditioned.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends part of the budget on a noisy second moment of the rows, and fits in
        coordinates in which it is near the identity. "auto" does so if it can help, up to 1,000
        parameters.
    max_iter : int, default=100
        Number of iterations, fixed in advance. More iterations need more noise in each.
    sampler : {"floating-point", "opendp"}, default="floating-point"
        "opendp" resists floating-point attacks; it needs ``skdpadmm[secure]`` and takes no seed.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws noise from the operating system's generator. Anything else makes the fit a
        simulation, which is not private: the seed reveals the noise.
    n_jobs : int, default=None
        Number of workers, counted as in joblib; None asks `joblib.parallel_config`. Passes over
        rows use plain threads, because joblib needs longer to dispatch a pass (10 ms) than the pass
        takes (2 ms). Longer tasks, such as problems that agents solve by themselves, go through
        joblib. The result does not depend on the number.
    ledger : str or None, default=None
        Path of a :class:`~skdpadmm.ledger.PrivacyLedger`, in which `fit` reserves its cost before
        it reads data.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of `X` and `y`.
    intercept_ : float
    n_iter_ : int
        Number of steps taken; at ``epsilon=inf``, number of iterations.
    n_samples_seen_ : int
        Number of records that have arrived; only after `partial_fit`.
    inference_ : CoefficientInference
        Debiased coefficients and their intervals; only with ``intervals=True``.
    privacy_ : PrivacyReport
        The observers, what each of them sees, and the guarantee against each.
    n_features_in_ : int
        Number of columns of `X`; `feature_names_in_` has their names if all are strings.

    References
    ----------
    .. [1] R. Tibshirani, M. Saunders, S. Rosset, J. Zhu, K. Knight, "Sparsity and smoothness via
       the fused lasso", JRSS-B 2005.
    .. [2] S.-J. Kim, K. Koh, S. Boyd, D. Gorinevsky, "l1 trend filtering", SIAM Review 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmGeneralizedLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5_000, 6))
    >>> y = X @ [1.0, 1.0, 1.0, -1.0, -1.0, -1.0] + 0.1 * rng.standard_normal(5_000)
    >>> model = DPAdmmGeneralizedLasso(alpha=0.05, epsilon=1.0, feature_bounds=(-1, 1),
    ...     target_bounds=(-6, 6), random_state=0)
    >>> model.fit(X, y).coef_.round(2)
    array([ 1.05,  1.01,  0.92, -0.99, -0.99, -0.99])
    """

    penalty_matrix: Any = parameter("fused", OneOf("fused", "trend"), "array-like", "sparse matrix")
    alpha: float = parameter(1.0, NON_NEGATIVE)

    def _loss(self, n_classes: int | None) -> Loss:
        return SquaredLoss()

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        matrix = self.penalty_matrix
        if isinstance(matrix, str):
            matrix = named_penalty_matrix(matrix, n_features)
        if isinstance(self.algorithm, GradientADMM) and self.algorithm.constraint is not None:
            raise ValueError(
                "Got penalty_matrix and GradientADMM(constraint=...), expected one of them: the"
                " penalty would be that of other variables. Use DPAdmmLasso with the constraint, or"
                " leave the constraint out."
            )
        penalty = GeneralizedL1(matrix, float(self.alpha))
        n_columns = penalty.matrix.shape[1]
        if n_columns != n_features:
            raise ValueError(
                f"Got a penalty_matrix with {n_columns} columns for {n_features} features, expected"
                " one column for each."
            )
        return penalty


@dataclass(kw_only=True, eq=False, repr=False)
class DPAdmmHuberRegressor(CentralModel, PrivateLinearRegressor):
    r"""Differentially private linear regression that large residuals cannot dominate.

    Minimises

    .. math:: \sum_{i=1}^n H(y_i - x_i^T w - b) + \alpha \|w\|_2^2, \qquad
        H(r) = \begin{cases} r^2 & |r| \le t \\ 2 t |r| - t^2 & \text{else} \end{cases}

    where t is `huber_threshold` times half the width of `target_bounds`, so that it does not depend
    on the units of `y`. This is the objective of :class:`sklearn.linear_model.HuberRegressor` at a
    scale of one, with t as its ``epsilon``. The fit estimates no scale of the residuals, because
    that would be one more release. Undeclared bounds are [-3, 3], also at ``epsilon=inf``, which
    clips nothing: ``huber_threshold=0.45`` then means t = 1.35, scikit-learn's default.

    The module :mod:`skdpadmm.central` states the guarantee and the observers.

    Parameters
    ----------
    epsilon : float, default=1.0
        Total budget of one fit, in (0, inf]. At inf nothing is private: the name of an algorithm
        then means the exact optimum, and an object runs its own iterations without noise and
        clipping.
    delta : float, default=1e-5
        Total delta of one fit, in (0, 1), well below ``1 / n_samples``; at or above it `fit` warns.
    huber_threshold : float, default=0.2
        Residual beyond which Huber's loss is linear, in (0, inf), in units of half the width of
        `target_bounds` (without an intercept: of their largest absolute value).
    alpha : float, default=1e-4
        Strength of the penalty, at least 0, in the user's units.
    neighboring : {"replace_one", "zero_out", "add_remove"}, default="replace_one"
        The difference of neighbouring data sets: one record or person is replaced by another, or
        its loss by zero; or there is one record more or less, and their number is private: part of
        the budget counts them, see :ref:`neighbours`.
    feature_bounds : pair of floats or arrays of shape (n_features,), dict, or None, default=None
        Public range of the features, to which they are clipped: ``(lower, upper)``, or a dict of
        pairs by column name. Never take it from private data. With None and no `row_norm`, rows are
        clipped to a norm of ``sqrt(n_features)``.
    row_norm : float, default=None
        Public bound on the Euclidean norm of a row of features, in place of `feature_bounds`, such
        as 1 for text from a vectorizer that normalises. Longer rows are scaled down to it.
    target_bounds : pair of floats, default=None
        Public range of the target, to which `fit` clips it. None means [-3, 3], for a standardised
        target. Wide bounds cost little where the algorithm can be conditioned: then up to 20 % of
        the squared budget finds centre and unit of the target, unless `scale` is None.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    algorithm : str or Algorithm, default="consensus-admm"
        Name of an algorithm, or an object from :mod:`skdpadmm.algorithms` with its own parameters.
    max_rows_per_person : int or None, default=None
        Public limit on the rows used per person; of more rows the fit uses the first ones in the
        order given. Only for ``fit(X, y, persons=labels)``, which protects persons and needs it.
    max_weight : float, "public" or None, default=None
        Public bound, at least 1, of the weights in ``fit(X, y, sample_weight=weights)``, whose mean
        should be about one; noise grows with it, and larger weights are clipped to it. "public":
        the weights are no secret, and their largest one is the bound. None: there are no weights,
        or they are clipped to 1.
    intervals : bool, default=False
        Whether to spend 70 % of the squared budget on confidence intervals of the coefficients, see
        :doc:`/user_guide/intervals`. Needs a squared, Huber or two-class logistic loss, without
        class weights, or a Tweedie one, which takes 75 %, and bounds of every column or `row_norm`.
    scale : {"auto", "private", None}, default="auto"
        "private" spends 3 % of the squared budget to scale columns without declared bounds. "auto"
        does so if the signal is ample and the algorithm can be conditioned.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends part of the budget on a noisy second moment of the rows, and fits in
        coordinates in which it is near the identity. "auto" does so if it can help, up to 1,000
        parameters.
    max_iter : int, default=100
        Number of iterations, fixed in advance. More iterations need more noise in each.
    sampler : {"floating-point", "opendp"}, default="floating-point"
        "opendp" resists floating-point attacks; it needs ``skdpadmm[secure]`` and takes no seed.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws noise from the operating system's generator. Anything else makes the fit a
        simulation, which is not private: the seed reveals the noise.
    n_jobs : int, default=None
        Number of workers, counted as in joblib; None asks `joblib.parallel_config`. Passes over
        rows use plain threads, because joblib needs longer to dispatch a pass (10 ms) than the pass
        takes (2 ms). Longer tasks, such as problems that agents solve by themselves, go through
        joblib. The result does not depend on the number.
    ledger : str or None, default=None
        Path of a :class:`~skdpadmm.ledger.PrivacyLedger`, in which `fit` reserves its cost before
        it reads data.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of `X` and `y`.
    intercept_ : float
    n_iter_ : int
        Number of steps taken; at ``epsilon=inf``, number of iterations.
    n_samples_seen_ : int
        Number of records that have arrived; only after `partial_fit`.
    inference_ : CoefficientInference
        Debiased coefficients and their intervals; only with ``intervals=True``.
    privacy_ : PrivacyReport
        The observers, what each of them sees, and the guarantee against each.
    n_features_in_ : int
        Number of columns of `X`; `feature_names_in_` has their names if all are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmHuberRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> y = X @ [1.0, -2.0, 0.0] + 0.1 * rng.standard_normal(5000)
    >>> model = DPAdmmHuberRegressor(feature_bounds=(-1, 1), target_bounds=(-4, 4), random_state=0)
    >>> model.fit(X, y).coef_.round(2)
    array([ 1.02, -2.08, -0.01])
    """

    huber_threshold: float = parameter(0.2, POSITIVE)
    alpha: float = parameter(1e-4, NON_NEGATIVE)

    def _loss(self, n_classes: int | None) -> Loss:
        return self._huber(self.huber_threshold)

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        return SquaredL2(float(self.alpha) / n_samples)


@dataclass(kw_only=True, eq=False, repr=False)
class DPAdmmLasso(CentralModel, PrivateLinearRegressor):
    r"""Differentially private linear regression with an l1 penalty.

    Minimises, as :class:`sklearn.linear_model.Lasso` does,

    .. math:: \frac{1}{2 n} \|y - X w - b\|_2^2 + \alpha \|w\|_1

    The module :mod:`skdpadmm.central` states the guarantee and the observers.

    Parameters
    ----------
    epsilon : float, default=1.0
        Total budget of one fit, in (0, inf]. At inf nothing is private: the name of an algorithm
        then means the exact optimum, and an object runs its own iterations without noise and
        clipping.
    delta : float, default=1e-5
        Total delta of one fit, in (0, 1), well below ``1 / n_samples``; at or above it `fit` warns.
    alpha : float, default=1.0
        Strength of the penalty, at least 0, in the user's units.
    neighboring : {"replace_one", "zero_out", "add_remove"}, default="replace_one"
        The difference of neighbouring data sets: one record or person is replaced by another, or
        its loss by zero; or there is one record more or less, and their number is private: part of
        the budget counts them, see :ref:`neighbours`.
    feature_bounds : pair of floats or arrays of shape (n_features,), dict, or None, default=None
        Public range of the features, to which they are clipped: ``(lower, upper)``, or a dict of
        pairs by column name. Never take it from private data. With None and no `row_norm`, rows are
        clipped to a norm of ``sqrt(n_features)``.
    row_norm : float, default=None
        Public bound on the Euclidean norm of a row of features, in place of `feature_bounds`, such
        as 1 for text from a vectorizer that normalises. Longer rows are scaled down to it.
    target_bounds : pair of floats, default=None
        Public range of the target, to which `fit` clips it. None means [-3, 3], for a standardised
        target. Wide bounds cost little where the algorithm can be conditioned: then up to 20 % of
        the squared budget finds centre and unit of the target, unless `scale` is None.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    algorithm : str or Algorithm, default="consensus-admm"
        Name of an algorithm, or an object from :mod:`skdpadmm.algorithms` with its own parameters.
    max_rows_per_person : int or None, default=None
        Public limit on the rows used per person; of more rows the fit uses the first ones in the
        order given. Only for ``fit(X, y, persons=labels)``, which protects persons and needs it.
    max_weight : float, "public" or None, default=None
        Public bound, at least 1, of the weights in ``fit(X, y, sample_weight=weights)``, whose mean
        should be about one; noise grows with it, and larger weights are clipped to it. "public":
        the weights are no secret, and their largest one is the bound. None: there are no weights,
        or they are clipped to 1.
    intervals : bool, default=False
        Whether to spend 70 % of the squared budget on confidence intervals of the coefficients, see
        :doc:`/user_guide/intervals`. Needs a squared, Huber or two-class logistic loss, without
        class weights, or a Tweedie one, which takes 75 %, and bounds of every column or `row_norm`.
    scale : {"auto", "private", None}, default="auto"
        "private" spends 3 % of the squared budget to scale columns without declared bounds. "auto"
        does so if the signal is ample and the algorithm can be conditioned.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends part of the budget on a noisy second moment of the rows, and fits in
        coordinates in which it is near the identity. "auto" does so if it can help, up to 1,000
        parameters.
    max_iter : int, default=100
        Number of iterations, fixed in advance. More iterations need more noise in each.
    sampler : {"floating-point", "opendp"}, default="floating-point"
        "opendp" resists floating-point attacks; it needs ``skdpadmm[secure]`` and takes no seed.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws noise from the operating system's generator. Anything else makes the fit a
        simulation, which is not private: the seed reveals the noise.
    n_jobs : int, default=None
        Number of workers, counted as in joblib; None asks `joblib.parallel_config`. Passes over
        rows use plain threads, because joblib needs longer to dispatch a pass (10 ms) than the pass
        takes (2 ms). Longer tasks, such as problems that agents solve by themselves, go through
        joblib. The result does not depend on the number.
    ledger : str or None, default=None
        Path of a :class:`~skdpadmm.ledger.PrivacyLedger`, in which `fit` reserves its cost before
        it reads data.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of `X` and `y`.
    intercept_ : float
    n_iter_ : int
        Number of steps taken; at ``epsilon=inf``, number of iterations.
    n_samples_seen_ : int
        Number of records that have arrived; only after `partial_fit`.
    inference_ : CoefficientInference
        Debiased coefficients and their intervals; only with ``intervals=True``.
    privacy_ : PrivacyReport
        The observers, what each of them sees, and the guarantee against each.
    n_features_in_ : int
        Number of columns of `X`; `feature_names_in_` has their names if all are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> y = X @ [1.0, -2.0, 0.0] + 0.1 * rng.standard_normal(5000)
    >>> model = DPAdmmLasso(alpha=0.01, feature_bounds=(-1, 1), target_bounds=(-4, 4),
    ...     random_state=0)
    >>> model.fit(X, y).coef_.round(2)
    array([ 0.97, -1.93,  0.  ])
    """

    alpha: float = parameter(1.0, NON_NEGATIVE)

    def _loss(self, n_classes: int | None) -> Loss:
        return SquaredLoss()

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        return L1(float(self.alpha))


@dataclass(kw_only=True, eq=False, repr=False)
class DPAdmmLinearSVC(CentralModel, PrivateLinearClassifier):
    r"""Differentially private linear support vector classification.

    Minimises

    .. math:: \frac12 \|W\|_F^2 + C \sum_{i=1}^n \sum_k h(y_{ik} (w_k^T x_i + b_k))

    with a hinge whose corner is replaced by a parabola of width s = `smoothing`,

    .. math:: h(m) = \begin{cases} 0 & m \ge 1 \\ (1 - m)^2 / (2 s) & 1 - s \le m < 1 \\
        1 - m - s / 2 & m < 1 - s \end{cases}

    Two classes need one k, and y is -1 or +1. More classes need one k each, against all others. The
    scores of all classes are released together, and a record's gradient is clipped in one joint
    norm, so the budget is not divided among the classes. Unlike :class:`sklearn.svm.LinearSVC`,
    this estimator does not penalise the intercept.

    The module :mod:`skdpadmm.central` states the guarantee and the observers.

    Parameters
    ----------
    epsilon : float, default=1.0
        Total budget of one fit, in (0, inf]. At inf nothing is private: the name of an algorithm
        then means the exact optimum, and an object runs its own iterations without noise and
        clipping.
    delta : float, default=1e-5
        Total delta of one fit, in (0, 1), well below ``1 / n_samples``; at or above it `fit` warns.
    C : float, default=1.0
        Inverse strength of the penalty, in (0, inf]; inf means no penalty.
    smoothing : float, default=1.0
        Width of the hinge's parabola in units of the margin, in (0, inf).
    neighboring : {"replace_one", "zero_out", "add_remove"}, default="replace_one"
        The difference of neighbouring data sets: one record or person is replaced by another, or
        its loss by zero; or there is one record more or less, and their number is private: part of
        the budget counts them, see :ref:`neighbours`.
    feature_bounds : pair of floats or arrays of shape (n_features,), dict, or None, default=None
        Public range of the features, to which they are clipped: ``(lower, upper)``, or a dict of
        pairs by column name. Never take it from private data. With None and no `row_norm`, rows are
        clipped to a norm of ``sqrt(n_features)``.
    row_norm : float, default=None
        Public bound on the Euclidean norm of a row of features, in place of `feature_bounds`, such
        as 1 for text from a vectorizer that normalises. Longer rows are scaled down to it.
    classes : array-like of shape (n_classes,), default=None
        All possible class labels, which are public. With None the labels in `y` are assumed to be
        public.
    class_weight : dict, default=None
        Public weights ``{label: weight}`` in (0, inf) of the losses of records; 1 for all other
        labels. `plan` then needs declared `classes`. "balanced" is refused, because the frequencies
        of labels are private.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    algorithm : str or Algorithm, default="consensus-admm"
        Name of an algorithm, or an object from :mod:`skdpadmm.algorithms` with its own parameters.
    max_rows_per_person : int or None, default=None
        Public limit on the rows used per person; of more rows the fit uses the first ones in the
        order given. Only for ``fit(X, y, persons=labels)``, which protects persons and needs it.
    max_weight : float, "public" or None, default=None
        Public bound, at least 1, of the weights in ``fit(X, y, sample_weight=weights)``, whose mean
        should be about one; noise grows with it, and larger weights are clipped to it. "public":
        the weights are no secret, and their largest one is the bound. None: there are no weights,
        or they are clipped to 1.
    intervals : bool, default=False
        Whether to spend 70 % of the squared budget on confidence intervals of the coefficients, see
        :doc:`/user_guide/intervals`. Needs a squared, Huber or two-class logistic loss, without
        class weights, or a Tweedie one, which takes 75 %, and bounds of every column or `row_norm`.
    scale : {"auto", "private", None}, default="auto"
        "private" spends 3 % of the squared budget to scale columns without declared bounds. "auto"
        does so if the signal is ample and the algorithm can be conditioned.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends part of the budget on a noisy second moment of the rows, and fits in
        coordinates in which it is near the identity. "auto" does so if it can help, up to 1,000
        parameters.
    max_iter : int, default=100
        Number of iterations, fixed in advance. More iterations need more noise in each.
    sampler : {"floating-point", "opendp"}, default="floating-point"
        "opendp" resists floating-point attacks; it needs ``skdpadmm[secure]`` and takes no seed.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws noise from the operating system's generator. Anything else makes the fit a
        simulation, which is not private: the seed reveals the noise.
    n_jobs : int, default=None
        Number of workers, counted as in joblib; None asks `joblib.parallel_config`. Passes over
        rows use plain threads, because joblib needs longer to dispatch a pass (10 ms) than the pass
        takes (2 ms). Longer tasks, such as problems that agents solve by themselves, go through
        joblib. The result does not depend on the number.
    ledger : str or None, default=None
        Path of a :class:`~skdpadmm.ledger.PrivacyLedger`, in which `fit` reserves its cost before
        it reads data.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients, in the units of `X`.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    n_iter_ : int
        Number of steps taken; at ``epsilon=inf``, number of iterations.
    n_samples_seen_ : int
        Number of records that have arrived; only after `partial_fit`.
    privacy_ : PrivacyReport
        The observers, what each of them sees, and the guarantee against each.
    n_features_in_ : int
        Number of columns of `X`; `feature_names_in_` has their names if all are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmLinearSVC
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, size=(5000, 2))
    >>> y = np.where(X[:, 0] > X[:, 1] + rng.logistic(size=5000), "more", "less")
    >>> model = DPAdmmLinearSVC(classes=["less", "more"], feature_bounds=(0, 10),
    ...     random_state=0)
    >>> round(model.fit(X, y).score(X, y), 2)
    0.89
    """

    C: float = parameter(1.0, POSITIVE_OR_INF)
    smoothing: float = parameter(1.0, POSITIVE)

    def _loss(self, n_classes: int | None) -> Loss:
        return self._hinge(n_classes, self.smoothing)

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        return SquaredL2(float(1.0 / (self.C * n_samples)))


@dataclass(kw_only=True, eq=False, repr=False)
class DPAdmmLogisticRegression(CentralModel, PredictsProbabilities, PrivateLinearClassifier):
    r"""Differentially private logistic regression, binary and multinomial.

    Minimises, as :class:`sklearn.linear_model.LogisticRegression` does,

    .. math:: C \sum_{i=1}^n \ell(W x_i + b, y_i) + \rho \|W\|_1 + \frac{1 - \rho}{2} \|W\|_F^2,

    where :math:`\rho` is `l1_ratio`, with the logistic loss for two classes and the multinomial one
    for more. The scores of all classes are released together, and a record's gradient is clipped in
    one joint norm.

    The module :mod:`skdpadmm.central` states the guarantee and the observers.

    Parameters
    ----------
    epsilon : float, default=1.0
        Total budget of one fit, in (0, inf]. At inf nothing is private: the name of an algorithm
        then means the exact optimum, and an object runs its own iterations without noise and
        clipping.
    delta : float, default=1e-5
        Total delta of one fit, in (0, 1), well below ``1 / n_samples``; at or above it `fit` warns.
    C : float, default=inf
        Inverse strength of the penalty, in (0, inf]; inf means no penalty.
    l1_ratio : float, default=0.0
        Share of the l1 penalty, in [0, 1].
    neighboring : {"replace_one", "zero_out", "add_remove"}, default="replace_one"
        The difference of neighbouring data sets: one record or person is replaced by another, or
        its loss by zero; or there is one record more or less, and their number is private: part of
        the budget counts them, see :ref:`neighbours`.
    feature_bounds : pair of floats or arrays of shape (n_features,), dict, or None, default=None
        Public range of the features, to which they are clipped: ``(lower, upper)``, or a dict of
        pairs by column name. Never take it from private data. With None and no `row_norm`, rows are
        clipped to a norm of ``sqrt(n_features)``.
    row_norm : float, default=None
        Public bound on the Euclidean norm of a row of features, in place of `feature_bounds`, such
        as 1 for text from a vectorizer that normalises. Longer rows are scaled down to it.
    classes : array-like of shape (n_classes,), default=None
        All possible class labels, which are public. With None the labels in `y` are assumed to be
        public.
    class_weight : dict, default=None
        Public weights ``{label: weight}`` in (0, inf) of the losses of records; 1 for all other
        labels. `plan` then needs declared `classes`. "balanced" is refused, because the frequencies
        of labels are private.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    algorithm : str or Algorithm, default="consensus-admm"
        Name of an algorithm, or an object from :mod:`skdpadmm.algorithms` with its own parameters.
    max_rows_per_person : int or None, default=None
        Public limit on the rows used per person; of more rows the fit uses the first ones in the
        order given. Only for ``fit(X, y, persons=labels)``, which protects persons and needs it.
    max_weight : float, "public" or None, default=None
        Public bound, at least 1, of the weights in ``fit(X, y, sample_weight=weights)``, whose mean
        should be about one; noise grows with it, and larger weights are clipped to it. "public":
        the weights are no secret, and their largest one is the bound. None: there are no weights,
        or they are clipped to 1.
    intervals : bool, default=False
        Whether to spend 70 % of the squared budget on confidence intervals of the coefficients, see
        :doc:`/user_guide/intervals`. Needs a squared, Huber or two-class logistic loss, without
        class weights, or a Tweedie one, which takes 75 %, and bounds of every column or `row_norm`.
    scale : {"auto", "private", None}, default="auto"
        "private" spends 3 % of the squared budget to scale columns without declared bounds. "auto"
        does so if the signal is ample and the algorithm can be conditioned.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends part of the budget on a noisy second moment of the rows, and fits in
        coordinates in which it is near the identity. "auto" does so if it can help, up to 1,000
        parameters.
    max_iter : int, default=100
        Number of iterations, fixed in advance. More iterations need more noise in each.
    sampler : {"floating-point", "opendp"}, default="floating-point"
        "opendp" resists floating-point attacks; it needs ``skdpadmm[secure]`` and takes no seed.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws noise from the operating system's generator. Anything else makes the fit a
        simulation, which is not private: the seed reveals the noise.
    n_jobs : int, default=None
        Number of workers, counted as in joblib; None asks `joblib.parallel_config`. Passes over
        rows use plain threads, because joblib needs longer to dispatch a pass (10 ms) than the pass
        takes (2 ms). Longer tasks, such as problems that agents solve by themselves, go through
        joblib. The result does not depend on the number.
    ledger : str or None, default=None
        Path of a :class:`~skdpadmm.ledger.PrivacyLedger`, in which `fit` reserves its cost before
        it reads data.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients, in the units of `X`.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    n_iter_ : int
        Number of steps taken; at ``epsilon=inf``, number of iterations.
    n_samples_seen_ : int
        Number of records that have arrived; only after `partial_fit`.
    inference_ : CoefficientInference
        Debiased coefficients and their intervals; only with ``intervals=True``.
    privacy_ : PrivacyReport
        The observers, what each of them sees, and the guarantee against each.
    n_features_in_ : int
        Number of columns of `X`; `feature_names_in_` has their names if all are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, size=(5000, 2))
    >>> y = np.where(X[:, 0] > X[:, 1] + rng.logistic(size=5000), "more", "less")
    >>> model = DPAdmmLogisticRegression(classes=["less", "more"], feature_bounds=(0, 10),
    ...     random_state=0)
    >>> model.plan(n_samples=5000, n_features=2).guarantee().describe()
    'GDP(mu=0.2681)'
    >>> round(model.fit(X, y).score(X, y), 2)
    0.89
    """

    C: float = parameter(float("inf"), POSITIVE_OR_INF)
    l1_ratio: float = parameter(0.0, SHARE)

    def _loss(self, n_classes: int | None) -> Loss:
        return self._logistic(n_classes)

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        return elastic_net(1.0 / (self.C * n_samples), self.l1_ratio)


@dataclass(kw_only=True, eq=False, repr=False)
class DPAdmmPoissonRegressor(_LogLinkRegressor):
    r"""Differentially private Poisson regression of counts, with log link.

    Minimises, as :class:`sklearn.linear_model.PoissonRegressor` does,

    .. math:: \frac{1}{n} \sum_{i=1}^n \left(\mu_i - y_i \log \mu_i\right)
        + \frac{\alpha}{2} \|w\|_2^2, \qquad \mu_i = e^{x_i^T w + b}

    Rates :math:`\mu` and targets are limited to `target_bounds`; above them the loss goes on as a
    straight line in the score.

    The module :mod:`skdpadmm.central` states the guarantee and the observers.

    Parameters
    ----------
    epsilon : float, default=1.0
        Total budget of one fit, in (0, inf]. At inf nothing is private: the name of an algorithm
        then means the exact optimum, and an object runs its own iterations without noise and
        clipping.
    delta : float, default=1e-5
        Total delta of one fit, in (0, 1), well below ``1 / n_samples``; at or above it `fit` warns.
    alpha : float, default=1.0
        Strength of the penalty, at least 0, in the user's units.
    neighboring : {"replace_one", "zero_out", "add_remove"}, default="replace_one"
        The difference of neighbouring data sets: one record or person is replaced by another, or
        its loss by zero; or there is one record more or less, and their number is private: part of
        the budget counts them, see :ref:`neighbours`.
    feature_bounds : pair of floats or arrays of shape (n_features,), dict, or None, default=None
        Public range of the features, to which they are clipped: ``(lower, upper)``, or a dict of
        pairs by column name. Never take it from private data. With None and no `row_norm`, rows are
        clipped to a norm of ``sqrt(n_features)``.
    row_norm : float, default=None
        Public bound on the Euclidean norm of a row of features, in place of `feature_bounds`, such
        as 1 for text from a vectorizer that normalises. Longer rows are scaled down to it.
    target_bounds : pair of floats, default=None
        Public range of rates and targets, such as (0, 20); targets are clipped to it at every
        epsilon. None is refused. Wide bounds cost little where the algorithm can be
        conditioned: then up to 20 % of the squared budget finds a usual rate, unless `scale` is
        None.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    algorithm : str or Algorithm, default="consensus-admm"
        Name of an algorithm, or an object from :mod:`skdpadmm.algorithms` with its own parameters.
    max_rows_per_person : int or None, default=None
        Public limit on the rows used per person; of more rows the fit uses the first ones in the
        order given. Only for ``fit(X, y, persons=labels)``, which protects persons and needs it.
    max_weight : float, "public" or None, default=None
        Public bound, at least 1, of the weights in ``fit(X, y, sample_weight=weights)``, whose mean
        should be about one; noise grows with it, and larger weights are clipped to it. "public":
        the weights are no secret, and their largest one is the bound. None: there are no weights,
        or they are clipped to 1.
    intervals : bool, default=False
        Whether to spend 70 % of the squared budget on confidence intervals of the coefficients, see
        :doc:`/user_guide/intervals`. Needs a squared, Huber or two-class logistic loss, without
        class weights, or a Tweedie one, which takes 75 %, and bounds of every column or `row_norm`.
    scale : {"auto", "private", None}, default="auto"
        "private" spends 3 % of the squared budget to scale columns without declared bounds. "auto"
        does so if the signal is ample and the algorithm can be conditioned.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends part of the budget on a noisy second moment of the rows, and fits in
        coordinates in which it is near the identity. "auto" does so if it can help, up to 1,000
        parameters.
    max_iter : int, default=100
        Number of iterations, fixed in advance. More iterations need more noise in each.
    sampler : {"floating-point", "opendp"}, default="floating-point"
        "opendp" resists floating-point attacks; it needs ``skdpadmm[secure]`` and takes no seed.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws noise from the operating system's generator. Anything else makes the fit a
        simulation, which is not private: the seed reveals the noise.
    n_jobs : int, default=None
        Number of workers, counted as in joblib; None asks `joblib.parallel_config`. Passes over
        rows use plain threads, because joblib needs longer to dispatch a pass (10 ms) than the pass
        takes (2 ms). Longer tasks, such as problems that agents solve by themselves, go through
        joblib. The result does not depend on the number.
    ledger : str or None, default=None
        Path of a :class:`~skdpadmm.ledger.PrivacyLedger`, in which `fit` reserves its cost before
        it reads data.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of `X` and `y`.
    intercept_ : float
    n_iter_ : int
        Number of steps taken; at ``epsilon=inf``, number of iterations.
    n_samples_seen_ : int
        Number of records that have arrived; only after `partial_fit`.
    inference_ : CoefficientInference
        Debiased coefficients and their intervals; only with ``intervals=True``.
    privacy_ : PrivacyReport
        The observers, what each of them sees, and the guarantee against each.
    n_features_in_ : int
        Number of columns of `X`; `feature_names_in_` has their names if all are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmPoissonRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(10_000, 2))
    >>> y = rng.poisson(np.exp(0.5 + X @ [1.0, -0.5]))
    >>> model = DPAdmmPoissonRegressor(alpha=1e-3, feature_bounds=(-1, 1), target_bounds=(0, 20),
    ...     random_state=0)
    >>> model.fit(X, y).coef_.round(1)
    array([ 0.9, -0.5])
    """


@dataclass(kw_only=True, eq=False, repr=False)
class DPAdmmQuantileRegressor(CentralModel, PrivateLinearRegressor):
    r"""Differentially private linear regression of a quantile.

    Minimises, as :class:`sklearn.linear_model.QuantileRegressor` does up to the smoothing,

    .. math:: \frac1n \sum_{i=1}^n \ell_q(y_i - x_i^T w - b) + \alpha \|w\|_1,

    where :math:`\ell_q(r)` is the pinball loss, :math:`q r` for positive r and :math:`(q - 1) r`
    for negative ones, averaged over :math:`r \pm h / 2`. The width h is `smoothing` times half the
    width of `target_bounds`, and the objective is larger than without smoothing by at most h / 8.

    The module :mod:`skdpadmm.central` states the guarantee and the observers.

    Parameters
    ----------
    epsilon : float, default=1.0
        Total budget of one fit, in (0, inf]. At inf nothing is private: the name of an algorithm
        then means the exact optimum, and an object runs its own iterations without noise and
        clipping.
    delta : float, default=1e-5
        Total delta of one fit, in (0, 1), well below ``1 / n_samples``; at or above it `fit` warns.
    quantile : float, default=0.5
        q, in (0, 1).
    alpha : float, default=1.0
        Strength of the penalty, at least 0, in the user's units.
    smoothing : float, default=0.02
        Width h of the parabola that replaces the corner of the loss, in (0, inf), in units of half
        the width of `target_bounds` (without an intercept: of their largest absolute value). At
        ``epsilon=inf`` far smaller ones may prevent convergence, of which a warning tells.
    neighboring : {"replace_one", "zero_out", "add_remove"}, default="replace_one"
        The difference of neighbouring data sets: one record or person is replaced by another, or
        its loss by zero; or there is one record more or less, and their number is private: part of
        the budget counts them, see :ref:`neighbours`.
    feature_bounds : pair of floats or arrays of shape (n_features,), dict, or None, default=None
        Public range of the features, to which they are clipped: ``(lower, upper)``, or a dict of
        pairs by column name. Never take it from private data. With None and no `row_norm`, rows are
        clipped to a norm of ``sqrt(n_features)``.
    row_norm : float, default=None
        Public bound on the Euclidean norm of a row of features, in place of `feature_bounds`, such
        as 1 for text from a vectorizer that normalises. Longer rows are scaled down to it.
    target_bounds : pair of floats, default=None
        Public range of the target, to which `fit` clips it. None means [-3, 3], for a standardised
        target. Wide bounds cost little where the algorithm can be conditioned: then up to 20 % of
        the squared budget finds centre and unit of the target, unless `scale` is None.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    algorithm : str or Algorithm, default="consensus-admm"
        Name of an algorithm, or an object from :mod:`skdpadmm.algorithms` with its own parameters.
    max_rows_per_person : int or None, default=None
        Public limit on the rows used per person; of more rows the fit uses the first ones in the
        order given. Only for ``fit(X, y, persons=labels)``, which protects persons and needs it.
    max_weight : float, "public" or None, default=None
        Public bound, at least 1, of the weights in ``fit(X, y, sample_weight=weights)``, whose mean
        should be about one; noise grows with it, and larger weights are clipped to it. "public":
        the weights are no secret, and their largest one is the bound. None: there are no weights,
        or they are clipped to 1.
    intervals : bool, default=False
        Whether to spend 70 % of the squared budget on confidence intervals of the coefficients, see
        :doc:`/user_guide/intervals`. Needs a squared, Huber or two-class logistic loss, without
        class weights, or a Tweedie one, which takes 75 %, and bounds of every column or `row_norm`.
    scale : {"auto", "private", None}, default="auto"
        "private" spends 3 % of the squared budget to scale columns without declared bounds. "auto"
        does so if the signal is ample and the algorithm can be conditioned.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends part of the budget on a noisy second moment of the rows, and fits in
        coordinates in which it is near the identity. "auto" does so if it can help, up to 1,000
        parameters.
    max_iter : int, default=100
        Number of iterations, fixed in advance. More iterations need more noise in each.
    sampler : {"floating-point", "opendp"}, default="floating-point"
        "opendp" resists floating-point attacks; it needs ``skdpadmm[secure]`` and takes no seed.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws noise from the operating system's generator. Anything else makes the fit a
        simulation, which is not private: the seed reveals the noise.
    n_jobs : int, default=None
        Number of workers, counted as in joblib; None asks `joblib.parallel_config`. Passes over
        rows use plain threads, because joblib needs longer to dispatch a pass (10 ms) than the pass
        takes (2 ms). Longer tasks, such as problems that agents solve by themselves, go through
        joblib. The result does not depend on the number.
    ledger : str or None, default=None
        Path of a :class:`~skdpadmm.ledger.PrivacyLedger`, in which `fit` reserves its cost before
        it reads data.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of `X` and `y`.
    intercept_ : float
    n_iter_ : int
        Number of steps taken; at ``epsilon=inf``, number of iterations.
    n_samples_seen_ : int
        Number of records that have arrived; only after `partial_fit`.
    inference_ : CoefficientInference
        Debiased coefficients and their intervals; only with ``intervals=True``.
    privacy_ : PrivacyReport
        The observers, what each of them sees, and the guarantee against each.
    n_features_in_ : int
        Number of columns of `X`; `feature_names_in_` has their names if all are strings.

    References
    ----------
    .. [1] M. Fernandes, E. Guerre, E. Horta, "Smoothing quantile regressions", Journal of Business
       & Economic Statistics 39, 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmQuantileRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(10_000, 2))
    >>> y = X @ [1.0, -0.5] + rng.exponential(size=10_000)
    >>> model = DPAdmmQuantileRegressor(quantile=0.9, alpha=0, feature_bounds=(-1, 1),
    ...     target_bounds=(-2, 8), random_state=0)
    >>> round(float(np.mean(y < model.fit(X, y).predict(X))), 2)
    0.93
    """

    quantile: float = parameter(0.5, Interval(Real, 0, 1, closed="neither"))
    alpha: float = parameter(1.0, NON_NEGATIVE)
    smoothing: float = parameter(0.02, POSITIVE)

    def _loss(self, n_classes: int | None) -> Loss:
        return SmoothedPinball(float(self.quantile), float(self.smoothing) * self._target_unit())

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        return L1(float(self.alpha))


@dataclass(kw_only=True, eq=False, repr=False)
class DPAdmmRidge(CentralModel, PrivateLinearRegressor):
    r"""Differentially private linear regression with a squared l2 penalty.

    Minimises, as :class:`sklearn.linear_model.Ridge` does,

    .. math:: \|y - X w - b\|_2^2 + \alpha \|w\|_2^2

    The module :mod:`skdpadmm.central` states the guarantee and the observers.

    Parameters
    ----------
    epsilon : float, default=1.0
        Total budget of one fit, in (0, inf]. At inf nothing is private: the name of an algorithm
        then means the exact optimum, and an object runs its own iterations without noise and
        clipping.
    delta : float, default=1e-5
        Total delta of one fit, in (0, 1), well below ``1 / n_samples``; at or above it `fit` warns.
    alpha : float, default=1.0
        Strength of the penalty, at least 0, in the user's units.
    neighboring : {"replace_one", "zero_out", "add_remove"}, default="replace_one"
        The difference of neighbouring data sets: one record or person is replaced by another, or
        its loss by zero; or there is one record more or less, and their number is private: part of
        the budget counts them, see :ref:`neighbours`.
    feature_bounds : pair of floats or arrays of shape (n_features,), dict, or None, default=None
        Public range of the features, to which they are clipped: ``(lower, upper)``, or a dict of
        pairs by column name. Never take it from private data. With None and no `row_norm`, rows are
        clipped to a norm of ``sqrt(n_features)``.
    row_norm : float, default=None
        Public bound on the Euclidean norm of a row of features, in place of `feature_bounds`, such
        as 1 for text from a vectorizer that normalises. Longer rows are scaled down to it.
    target_bounds : pair of floats, default=None
        Public range of the target, to which `fit` clips it. None means [-3, 3], for a standardised
        target. Wide bounds cost little where the algorithm can be conditioned: then up to 20 % of
        the squared budget finds centre and unit of the target, unless `scale` is None.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    algorithm : str or Algorithm, default="consensus-admm"
        Name of an algorithm, or an object from :mod:`skdpadmm.algorithms` with its own parameters.
    max_rows_per_person : int or None, default=None
        Public limit on the rows used per person; of more rows the fit uses the first ones in the
        order given. Only for ``fit(X, y, persons=labels)``, which protects persons and needs it.
    max_weight : float, "public" or None, default=None
        Public bound, at least 1, of the weights in ``fit(X, y, sample_weight=weights)``, whose mean
        should be about one; noise grows with it, and larger weights are clipped to it. "public":
        the weights are no secret, and their largest one is the bound. None: there are no weights,
        or they are clipped to 1.
    intervals : bool, default=False
        Whether to spend 70 % of the squared budget on confidence intervals of the coefficients, see
        :doc:`/user_guide/intervals`. Needs a squared, Huber or two-class logistic loss, without
        class weights, or a Tweedie one, which takes 75 %, and bounds of every column or `row_norm`.
    scale : {"auto", "private", None}, default="auto"
        "private" spends 3 % of the squared budget to scale columns without declared bounds. "auto"
        does so if the signal is ample and the algorithm can be conditioned.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends part of the budget on a noisy second moment of the rows, and fits in
        coordinates in which it is near the identity. "auto" does so if it can help, up to 1,000
        parameters.
    max_iter : int, default=100
        Number of iterations, fixed in advance. More iterations need more noise in each.
    sampler : {"floating-point", "opendp"}, default="floating-point"
        "opendp" resists floating-point attacks; it needs ``skdpadmm[secure]`` and takes no seed.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws noise from the operating system's generator. Anything else makes the fit a
        simulation, which is not private: the seed reveals the noise.
    n_jobs : int, default=None
        Number of workers, counted as in joblib; None asks `joblib.parallel_config`. Passes over
        rows use plain threads, because joblib needs longer to dispatch a pass (10 ms) than the pass
        takes (2 ms). Longer tasks, such as problems that agents solve by themselves, go through
        joblib. The result does not depend on the number.
    ledger : str or None, default=None
        Path of a :class:`~skdpadmm.ledger.PrivacyLedger`, in which `fit` reserves its cost before
        it reads data.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of `X` and `y`.
    intercept_ : float
    n_iter_ : int
        Number of steps taken; at ``epsilon=inf``, number of iterations.
    n_samples_seen_ : int
        Number of records that have arrived; only after `partial_fit`.
    inference_ : CoefficientInference
        Debiased coefficients and their intervals; only with ``intervals=True``.
    privacy_ : PrivacyReport
        The observers, what each of them sees, and the guarantee against each.
    n_features_in_ : int
        Number of columns of `X`; `feature_names_in_` has their names if all are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmRidge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> y = X @ [1.0, -2.0, 0.0] + 0.1 * rng.standard_normal(5000)
    >>> model = DPAdmmRidge(feature_bounds=(-1, 1), target_bounds=(-4, 4), random_state=0)
    >>> model.fit(X, y).coef_.round(2)
    array([ 0.91, -1.94, -0.04])
    >>> round(model.privacy_.epsilon(), 3)
    1.0
    """

    alpha: float = parameter(1.0, NON_NEGATIVE)

    def _loss(self, n_classes: int | None) -> Loss:
        return SquaredLoss()

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        return SquaredL2(float(self.alpha) / n_samples)


@dataclass(kw_only=True, eq=False, repr=False)
class DPAdmmTweedieRegressor(_LogLinkRegressor):
    r"""Differentially private regression of Tweedie's families between counts and costs.

    Minimises, as :class:`sklearn.linear_model.TweedieRegressor` with a log link does,

    .. math:: \frac{1}{2 n} \sum_{i=1}^n d_p(y_i, \mu_i) + \frac{\alpha}{2} \|w\|_2^2, \qquad
        \mu_i = e^{x_i^T w + b}

    with the unit deviance :math:`d_p`, whose variance is in proportion to :math:`\mu^p`. Power 1 is
    :class:`DPAdmmPoissonRegressor`, power 2 :class:`DPAdmmGammaRegressor`, and powers between them
    suit sums of costs, many of which are zero. Rates :math:`\mu` and targets are limited to
    `target_bounds`; beyond them the loss goes on as a straight line in the score.

    The module :mod:`skdpadmm.central` states the guarantee and the observers.

    Parameters
    ----------
    epsilon : float, default=1.0
        Total budget of one fit, in (0, inf]. At inf nothing is private: the name of an algorithm
        then means the exact optimum, and an object runs its own iterations without noise and
        clipping.
    delta : float, default=1e-5
        Total delta of one fit, in (0, 1), well below ``1 / n_samples``; at or above it `fit` warns.
    power : float, default=1.5
        p, in [1, 2].
    alpha : float, default=1.0
        Strength of the penalty, at least 0, in the user's units.
    neighboring : {"replace_one", "zero_out", "add_remove"}, default="replace_one"
        The difference of neighbouring data sets: one record or person is replaced by another, or
        its loss by zero; or there is one record more or less, and their number is private: part of
        the budget counts them, see :ref:`neighbours`.
    feature_bounds : pair of floats or arrays of shape (n_features,), dict, or None, default=None
        Public range of the features, to which they are clipped: ``(lower, upper)``, or a dict of
        pairs by column name. Never take it from private data. With None and no `row_norm`, rows are
        clipped to a norm of ``sqrt(n_features)``.
    row_norm : float, default=None
        Public bound on the Euclidean norm of a row of features, in place of `feature_bounds`, such
        as 1 for text from a vectorizer that normalises. Longer rows are scaled down to it.
    target_bounds : pair of floats, default=None
        Public range of rates and targets, which are clipped to it at every epsilon. The lower bound
        is above 0 unless `power` is 1: choose it small beside a usual cost, as zeros become it.
        None is refused. Wide bounds cost little where the algorithm can be conditioned: then up
        to 20 % of the squared budget finds a usual rate, unless `scale` is None.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    algorithm : str or Algorithm, default="consensus-admm"
        Name of an algorithm, or an object from :mod:`skdpadmm.algorithms` with its own parameters.
    max_rows_per_person : int or None, default=None
        Public limit on the rows used per person; of more rows the fit uses the first ones in the
        order given. Only for ``fit(X, y, persons=labels)``, which protects persons and needs it.
    max_weight : float, "public" or None, default=None
        Public bound, at least 1, of the weights in ``fit(X, y, sample_weight=weights)``, whose mean
        should be about one; noise grows with it, and larger weights are clipped to it. "public":
        the weights are no secret, and their largest one is the bound. None: there are no weights,
        or they are clipped to 1.
    intervals : bool, default=False
        Whether to spend 70 % of the squared budget on confidence intervals of the coefficients, see
        :doc:`/user_guide/intervals`. Needs a squared, Huber or two-class logistic loss, without
        class weights, or a Tweedie one, which takes 75 %, and bounds of every column or `row_norm`.
    scale : {"auto", "private", None}, default="auto"
        "private" spends 3 % of the squared budget to scale columns without declared bounds. "auto"
        does so if the signal is ample and the algorithm can be conditioned.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends part of the budget on a noisy second moment of the rows, and fits in
        coordinates in which it is near the identity. "auto" does so if it can help, up to 1,000
        parameters.
    max_iter : int, default=100
        Number of iterations, fixed in advance. More iterations need more noise in each.
    sampler : {"floating-point", "opendp"}, default="floating-point"
        "opendp" resists floating-point attacks; it needs ``skdpadmm[secure]`` and takes no seed.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws noise from the operating system's generator. Anything else makes the fit a
        simulation, which is not private: the seed reveals the noise.
    n_jobs : int, default=None
        Number of workers, counted as in joblib; None asks `joblib.parallel_config`. Passes over
        rows use plain threads, because joblib needs longer to dispatch a pass (10 ms) than the pass
        takes (2 ms). Longer tasks, such as problems that agents solve by themselves, go through
        joblib. The result does not depend on the number.
    ledger : str or None, default=None
        Path of a :class:`~skdpadmm.ledger.PrivacyLedger`, in which `fit` reserves its cost before
        it reads data.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of `X` and `y`.
    intercept_ : float
    n_iter_ : int
        Number of steps taken; at ``epsilon=inf``, number of iterations.
    n_samples_seen_ : int
        Number of records that have arrived; only after `partial_fit`.
    inference_ : CoefficientInference
        Debiased coefficients and their intervals; only with ``intervals=True``.
    privacy_ : PrivacyReport
        The observers, what each of them sees, and the guarantee against each.
    n_features_in_ : int
        Number of columns of `X`; `feature_names_in_` has their names if all are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmTweedieRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(10_000, 2))
    >>> n_claims = rng.poisson(np.exp(0.5 + X @ [1.0, -0.5]))
    >>> y = 100 * rng.gamma(2.0 * np.maximum(n_claims, 1e-9), 0.5)
    >>> model = DPAdmmTweedieRegressor(alpha=1e-3, feature_bounds=(-1, 1), target_bounds=(1, 2000),
    ...     random_state=0)
    >>> model.fit(X, y).coef_.round(1)
    array([ 1. , -0.5])
    """

    power: float = parameter(1.5, Interval(Real, 1, 2, closed="both"))
