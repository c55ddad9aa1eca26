"""Federated estimators: rows stay with agents, and a server coordinates.

**Guarantee.** The budget holds against `adversary`; the other two observers have their own epsilon.
The unit is `privacy_unit`. `neighboring` chooses the neighbouring relation; in neighbouring data
sets the same agent holds the same row. `fit` is (epsilon, delta)-differentially private against the
adversary, by composition over all messages of Algorithm 3 of [1]_, corrected. `privacy_` lists the
messages and states the guarantees; :class:`~skdpadmm.algorithms.FederatedADMM` states the theorem.
By default pairs of agents share noise that cancels in sums, so that the guarantee against a server
needs `n_honest` honest agents; ``FederatedADMM(edge_noise=0)`` needs none, and far more noise.
The guarantee holds for every finite input, because contributions are clipped after they are
computed. It does not cover transformers fitted earlier in a pipeline, scores on private data, or
other fits on the same records.

`fit` simulates all agents, in one process or on trusted workers of dask, and does not protect
anyone from the party that runs it.

.. [1] E. Cyffers, A. Bellet, D. Basu, "From Noisy Fixed-Point Iterations to Private ADMM for
   Centralized and Federated Learning", ICML 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm._linear_model import PredictsProbabilities, PrivateLinearRegressor, elastic_net
from skdpadmm._model_of_agents import ClassifierOfAgents, ModelOfAgents
from skdpadmm._sklearn import (
    ALGORITHM,
    AUTO,
    COUNT,
    FRACTION,
    NON_NEGATIVE,
    POSITIVE_OR_INF,
    SHARE,
    Interval,
    OneOf,
    parameter,
)
from skdpadmm.losses import Loss, SquaredLoss
from skdpadmm.penalties import L1, Penalty, SquaredL2
from skdpadmm.protocol import SERVER, Agents, Federation

__all__ = ["DPFedElasticNet", "DPFedLasso", "DPFedLogisticRegression", "DPFedRidge"]


@dataclass(kw_only=True, eq=False, repr=False)
class FederatedModel(ModelOfAgents):
    """Parameters of a federation, and who is trusted with what."""

    adversary: str = parameter(SERVER, OneOf(*Federation.observers))
    participation: float | str = parameter("auto", AUTO, FRACTION)
    dropout: float = parameter(0.0, Interval(Real, 0, 1, closed="left"))
    n_honest: int | None = parameter(None, COUNT, None)
    intervals: bool = parameter(False, "boolean")
    algorithm: Any = parameter("federated-admm", *ALGORITHM)

    def _agents(self, sizes: NDArray[np.intp], labels: NDArray[Any] | None) -> Agents:
        n_agents, epsilons = len(sizes), self._epsilons(labels)
        if epsilons and self.adversary != SERVER:
            raise ValueError(
                f"Got an epsilon for each agent with adversary={self.adversary!r}, expected"
                " 'server': a sum of messages has one noise, which protects all agents alike."
            )
        # A majority, and never everyone: an agent knows its own noise.
        majority = max(1, min(n_agents // 2 + 1, n_agents - 1))
        return Federation(
            agent_sizes=tuple(sizes.tolist()),
            n_honest=majority if self.n_honest is None else int(self.n_honest),
            participation=1.0 if self.participation == "auto" else float(self.participation),
            dropout=float(self.dropout),
            epsilons=epsilons,
            sizes_matter=self.privacy_unit == "agent",
        )


@dataclass(kw_only=True, eq=False, repr=False)
class DPFedElasticNet(FederatedModel, PrivateLinearRegressor):
    r"""Federated, differentially private linear regression with an l1 and a squared l2 penalty.

    Minimises, as :class:`sklearn.linear_model.ElasticNet` does,

    .. math:: \frac{1}{2 n} \|y - X w - b\|_2^2 + \alpha \rho \|w\|_1
        + \frac{\alpha (1 - \rho)}{2} \|w\|_2^2,

    where :math:`\rho` is `l1_ratio`.

    The module :mod:`skdpadmm.federated` states the guarantee and the observers.

    Parameters
    ----------
    epsilon : float, array-like of shape (n_agents,), dict or Series, default=1.0
        Total budget of one fit, in (0, inf], or that of each agent, by label or in the order of the
        sorted labels. At inf nothing is private: the name of an algorithm then means the exact
        optimum, and an object runs its own iterations without noise and clipping.
    delta : float, default=1e-5
        Total delta of one fit, in (0, 1), well below ``1 / n_samples``; at or above it `fit` warns.
    alpha : float, default=1.0
        Strength of the penalty, at least 0, in the user's units.
    l1_ratio : float, default=0.5
        Share of the l1 penalty, in [0, 1].
    adversary : {"server", "sums", "model"}, default="server"
        The observer of the budget: a server that sees every message (required if agents have their
        own budgets), a server that sees sums by secure aggregation, or the public that sees the
        model.
    privacy_unit : {"record", "agent"}, default="record"
        The unit of protection: one row, or all rows of an agent.
    partition : str or callable, default="iid"
        Assignment of rows to artificial agents, without `agents` and `agent_column`: "iid",
        "quantity", "dirichlet" or "sorted" (see :func:`~skdpadmm.network.partition_rows`), or a
        function of ``(X, y)`` that returns labels. The last three use the data, so the guarantee is
        conditional on the resulting assignment.
    n_agents : int, default=None
        Number of agents that `partition` makes. None means ``min(10, n_samples)``.
    agent_column : int or str, default=None
        Column of `X` with the agent of each row, in fits and predictions. It is not a feature.
    participation : float or "auto", default="auto"
        Proportion of agents that take part in a round, in (0, 1]. "auto" is 1, which needs the
        least noise.
    dropout : float, default=0.0
        Probability in [0, 1) that a message is lost, for simulations. The planned noise allows for
        the losses.
    n_honest : int, default=None
        Number of agents that keep their noise secret, and the seeds that they share, for "sums" and
        "server". None means the smallest majority, but never all.
    intervals : bool, default=False
        Whether to spend 70 % of the squared budget on confidence intervals of the coefficients, see
        :doc:`/user_guide/intervals`. Needs a squared or two-class logistic loss, without class
        weights, bounds of every column, or `row_norm`, records as the unit and one budget for all.
    neighboring : {"replace_one", "zero_out"}, default="replace_one"
        The difference of neighbouring data sets: one record (or agent) is replaced by another, or
        its loss by zero.
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
    algorithm : str or Algorithm, default="federated-admm"
        Name of an algorithm, or an object from :mod:`skdpadmm.algorithms` with its own parameters.
    scale : {"auto", "private", None}, default="auto"
        "private" spends 3 % of the squared budget to scale columns without declared bounds. "auto"
        does so if the signal is ample and the algorithm can be conditioned.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends part of the budget on a noisy second moment of the rows, and fits in
        coordinates in which it is near the identity. "auto" does so if it can help, up to 1,000
        parameters.
    max_iter : int, default=100
        Number of rounds, or of hops of a token per agent, fixed in advance. More rounds need more
        noise.
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
    n_rounds_, n_messages_, bytes_sent_ : int
        Rounds (or hops of a token), messages in both directions, and their size in bytes. All are 0
        for the exact optimum at ``epsilon=inf``, which is computed in one process.
    agent_labels_ : ndarray of shape (n_agents,)
        Labels of the agents, sorted.
    inference_ : CoefficientInference
        Debiased coefficients and their intervals; only with ``intervals=True``.
    privacy_ : PrivacyReport
        The observers, what each of them sees, and the guarantee against each.
    n_features_in_ : int
        Number of columns of `X`; `feature_names_in_` has their names if all are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPFedElasticNet
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20_000, 3))
    >>> y = X @ [1.0, -2.0, 0.0] + 0.1 * rng.standard_normal(20_000)
    >>> hospitals = np.repeat(["east", "north", "south", "west"], 5_000)
    >>> model = DPFedElasticNet(alpha=0.01, feature_bounds=(-1, 1), target_bounds=(-4, 4),
    ...     random_state=0)
    >>> model.fit(X, y, agents=hospitals).coef_.round(2)
    array([ 0.98, -1.98,  0.  ])
    """

    alpha: float = parameter(1.0, NON_NEGATIVE)
    l1_ratio: float = parameter(0.5, SHARE)

    def _loss(self, n_classes: int | None) -> Loss:
        return SquaredLoss()

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        return elastic_net(self.alpha, self.l1_ratio)


@dataclass(kw_only=True, eq=False, repr=False)
class DPFedLasso(FederatedModel, PrivateLinearRegressor):
    r"""Federated, differentially private linear regression with an l1 penalty.

    Minimises, as :class:`sklearn.linear_model.Lasso` does,

    .. math:: \frac{1}{2 n} \|y - X w - b\|_2^2 + \alpha \|w\|_1

    The module :mod:`skdpadmm.federated` states the guarantee and the observers.

    Parameters
    ----------
    epsilon : float, array-like of shape (n_agents,), dict or Series, default=1.0
        Total budget of one fit, in (0, inf], or that of each agent, by label or in the order of the
        sorted labels. At inf nothing is private: the name of an algorithm then means the exact
        optimum, and an object runs its own iterations without noise and clipping.
    delta : float, default=1e-5
        Total delta of one fit, in (0, 1), well below ``1 / n_samples``; at or above it `fit` warns.
    alpha : float, default=1.0
        Strength of the penalty, at least 0, in the user's units.
    adversary : {"server", "sums", "model"}, default="server"
        The observer of the budget: a server that sees every message (required if agents have their
        own budgets), a server that sees sums by secure aggregation, or the public that sees the
        model.
    privacy_unit : {"record", "agent"}, default="record"
        The unit of protection: one row, or all rows of an agent.
    partition : str or callable, default="iid"
        Assignment of rows to artificial agents, without `agents` and `agent_column`: "iid",
        "quantity", "dirichlet" or "sorted" (see :func:`~skdpadmm.network.partition_rows`), or a
        function of ``(X, y)`` that returns labels. The last three use the data, so the guarantee is
        conditional on the resulting assignment.
    n_agents : int, default=None
        Number of agents that `partition` makes. None means ``min(10, n_samples)``.
    agent_column : int or str, default=None
        Column of `X` with the agent of each row, in fits and predictions. It is not a feature.
    participation : float or "auto", default="auto"
        Proportion of agents that take part in a round, in (0, 1]. "auto" is 1, which needs the
        least noise.
    dropout : float, default=0.0
        Probability in [0, 1) that a message is lost, for simulations. The planned noise allows for
        the losses.
    n_honest : int, default=None
        Number of agents that keep their noise secret, and the seeds that they share, for "sums" and
        "server". None means the smallest majority, but never all.
    intervals : bool, default=False
        Whether to spend 70 % of the squared budget on confidence intervals of the coefficients, see
        :doc:`/user_guide/intervals`. Needs a squared or two-class logistic loss, without class
        weights, bounds of every column, or `row_norm`, records as the unit and one budget for all.
    neighboring : {"replace_one", "zero_out"}, default="replace_one"
        The difference of neighbouring data sets: one record (or agent) is replaced by another, or
        its loss by zero.
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
    algorithm : str or Algorithm, default="federated-admm"
        Name of an algorithm, or an object from :mod:`skdpadmm.algorithms` with its own parameters.
    scale : {"auto", "private", None}, default="auto"
        "private" spends 3 % of the squared budget to scale columns without declared bounds. "auto"
        does so if the signal is ample and the algorithm can be conditioned.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends part of the budget on a noisy second moment of the rows, and fits in
        coordinates in which it is near the identity. "auto" does so if it can help, up to 1,000
        parameters.
    max_iter : int, default=100
        Number of rounds, or of hops of a token per agent, fixed in advance. More rounds need more
        noise.
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
    n_rounds_, n_messages_, bytes_sent_ : int
        Rounds (or hops of a token), messages in both directions, and their size in bytes. All are 0
        for the exact optimum at ``epsilon=inf``, which is computed in one process.
    agent_labels_ : ndarray of shape (n_agents,)
        Labels of the agents, sorted.
    inference_ : CoefficientInference
        Debiased coefficients and their intervals; only with ``intervals=True``.
    privacy_ : PrivacyReport
        The observers, what each of them sees, and the guarantee against each.
    n_features_in_ : int
        Number of columns of `X`; `feature_names_in_` has their names if all are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPFedLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20_000, 3))
    >>> y = X @ [1.0, -2.0, 0.0] + 0.1 * rng.standard_normal(20_000)
    >>> hospitals = np.repeat(["east", "north", "south", "west"], 5_000)
    >>> model = DPFedLasso(alpha=0.01, feature_bounds=(-1, 1), target_bounds=(-4, 4),
    ...     random_state=0)
    >>> model.fit(X, y, agents=hospitals).coef_.round(2)
    array([ 0.98, -1.98,  0.  ])
    """

    alpha: float = parameter(1.0, NON_NEGATIVE)

    def _loss(self, n_classes: int | None) -> Loss:
        return SquaredLoss()

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        return L1(float(self.alpha))


@dataclass(kw_only=True, eq=False, repr=False)
class DPFedLogisticRegression(FederatedModel, PredictsProbabilities, ClassifierOfAgents):
    r"""Federated, differentially private logistic regression, binary and multinomial.

    Minimises, as :class:`sklearn.linear_model.LogisticRegression` does,

    .. math:: C \sum_{i=1}^n \ell(W x_i + b, y_i) + \rho \|W\|_1 + \frac{1 - \rho}{2} \|W\|_F^2,

    where :math:`\rho` is `l1_ratio`, with the logistic loss for two classes and the multinomial one
    for more. The scores of all classes are released together, and a record's gradient is clipped in
    one joint norm.

    The module :mod:`skdpadmm.federated` states the guarantee and the observers.

    Parameters
    ----------
    epsilon : float, array-like of shape (n_agents,), dict or Series, default=1.0
        Total budget of one fit, in (0, inf], or that of each agent, by label or in the order of the
        sorted labels. At inf nothing is private: the name of an algorithm then means the exact
        optimum, and an object runs its own iterations without noise and clipping.
    delta : float, default=1e-5
        Total delta of one fit, in (0, 1), well below ``1 / n_samples``; at or above it `fit` warns.
    C : float, default=inf
        Inverse strength of the penalty, in (0, inf]; inf means no penalty.
    l1_ratio : float, default=0.0
        Share of the l1 penalty, in [0, 1].
    adversary : {"server", "sums", "model"}, default="server"
        The observer of the budget: a server that sees every message (required if agents have their
        own budgets), a server that sees sums by secure aggregation, or the public that sees the
        model.
    privacy_unit : {"record", "agent"}, default="record"
        The unit of protection: one row, or all rows of an agent.
    partition : str or callable, default="iid"
        Assignment of rows to artificial agents, without `agents` and `agent_column`: "iid",
        "quantity", "dirichlet" or "sorted" (see :func:`~skdpadmm.network.partition_rows`), or a
        function of ``(X, y)`` that returns labels. The last three use the data, so the guarantee is
        conditional on the resulting assignment.
    n_agents : int, default=None
        Number of agents that `partition` makes. None means ``min(10, n_samples)``.
    agent_column : int or str, default=None
        Column of `X` with the agent of each row, in fits and predictions. It is not a feature.
    participation : float or "auto", default="auto"
        Proportion of agents that take part in a round, in (0, 1]. "auto" is 1, which needs the
        least noise.
    dropout : float, default=0.0
        Probability in [0, 1) that a message is lost, for simulations. The planned noise allows for
        the losses.
    n_honest : int, default=None
        Number of agents that keep their noise secret, and the seeds that they share, for "sums" and
        "server". None means the smallest majority, but never all.
    intervals : bool, default=False
        Whether to spend 70 % of the squared budget on confidence intervals of the coefficients, see
        :doc:`/user_guide/intervals`. Needs a squared or two-class logistic loss, without class
        weights, bounds of every column, or `row_norm`, records as the unit and one budget for all.
    neighboring : {"replace_one", "zero_out"}, default="replace_one"
        The difference of neighbouring data sets: one record (or agent) is replaced by another, or
        its loss by zero.
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
    algorithm : str or Algorithm, default="federated-admm"
        Name of an algorithm, or an object from :mod:`skdpadmm.algorithms` with its own parameters.
    scale : {"auto", "private", None}, default="auto"
        "private" spends 3 % of the squared budget to scale columns without declared bounds. "auto"
        does so if the signal is ample and the algorithm can be conditioned.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends part of the budget on a noisy second moment of the rows, and fits in
        coordinates in which it is near the identity. "auto" does so if it can help, up to 1,000
        parameters.
    max_iter : int, default=100
        Number of rounds, or of hops of a token per agent, fixed in advance. More rounds need more
        noise.
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
    n_rounds_, n_messages_, bytes_sent_ : int
        Rounds (or hops of a token), messages in both directions, and their size in bytes. All are 0
        for the exact optimum at ``epsilon=inf``, which is computed in one process.
    agent_labels_ : ndarray of shape (n_agents,)
        Labels of the agents, sorted.
    inference_ : CoefficientInference
        Debiased coefficients and their intervals; only with ``intervals=True``.
    privacy_ : PrivacyReport
        The observers, what each of them sees, and the guarantee against each.
    n_features_in_ : int
        Number of columns of `X`; `feature_names_in_` has their names if all are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPFedLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, size=(20_000, 2))
    >>> y = np.where(X[:, 0] > X[:, 1] + rng.logistic(size=20_000), "more", "less")
    >>> hospitals = np.repeat(["east", "north", "south", "west"], 5_000)
    >>> model = DPFedLogisticRegression(classes=["less", "more"], feature_bounds=(0, 10),
    ...     random_state=0)
    >>> round(model.fit(X, y, agents=hospitals).score(X, y), 2)
    0.88
    """

    C: float = parameter(float("inf"), POSITIVE_OR_INF)
    l1_ratio: float = parameter(0.0, SHARE)

    def _loss(self, n_classes: int | None) -> Loss:
        return self._logistic(n_classes)

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        return elastic_net(1.0 / (self.C * n_samples), self.l1_ratio)


@dataclass(kw_only=True, eq=False, repr=False)
class DPFedRidge(FederatedModel, PrivateLinearRegressor):
    r"""Federated, differentially private linear regression with a squared l2 penalty.

    Minimises, as :class:`sklearn.linear_model.Ridge` does,

    .. math:: \|y - X w - b\|_2^2 + \alpha \|w\|_2^2

    The module :mod:`skdpadmm.federated` states the guarantee and the observers.

    Parameters
    ----------
    epsilon : float, array-like of shape (n_agents,), dict or Series, default=1.0
        Total budget of one fit, in (0, inf], or that of each agent, by label or in the order of the
        sorted labels. At inf nothing is private: the name of an algorithm then means the exact
        optimum, and an object runs its own iterations without noise and clipping.
    delta : float, default=1e-5
        Total delta of one fit, in (0, 1), well below ``1 / n_samples``; at or above it `fit` warns.
    alpha : float, default=1.0
        Strength of the penalty, at least 0, in the user's units.
    adversary : {"server", "sums", "model"}, default="server"
        The observer of the budget: a server that sees every message (required if agents have their
        own budgets), a server that sees sums by secure aggregation, or the public that sees the
        model.
    privacy_unit : {"record", "agent"}, default="record"
        The unit of protection: one row, or all rows of an agent.
    partition : str or callable, default="iid"
        Assignment of rows to artificial agents, without `agents` and `agent_column`: "iid",
        "quantity", "dirichlet" or "sorted" (see :func:`~skdpadmm.network.partition_rows`), or a
        function of ``(X, y)`` that returns labels. The last three use the data, so the guarantee is
        conditional on the resulting assignment.
    n_agents : int, default=None
        Number of agents that `partition` makes. None means ``min(10, n_samples)``.
    agent_column : int or str, default=None
        Column of `X` with the agent of each row, in fits and predictions. It is not a feature.
    participation : float or "auto", default="auto"
        Proportion of agents that take part in a round, in (0, 1]. "auto" is 1, which needs the
        least noise.
    dropout : float, default=0.0
        Probability in [0, 1) that a message is lost, for simulations. The planned noise allows for
        the losses.
    n_honest : int, default=None
        Number of agents that keep their noise secret, and the seeds that they share, for "sums" and
        "server". None means the smallest majority, but never all.
    intervals : bool, default=False
        Whether to spend 70 % of the squared budget on confidence intervals of the coefficients, see
        :doc:`/user_guide/intervals`. Needs a squared or two-class logistic loss, without class
        weights, bounds of every column, or `row_norm`, records as the unit and one budget for all.
    neighboring : {"replace_one", "zero_out"}, default="replace_one"
        The difference of neighbouring data sets: one record (or agent) is replaced by another, or
        its loss by zero.
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
    algorithm : str or Algorithm, default="federated-admm"
        Name of an algorithm, or an object from :mod:`skdpadmm.algorithms` with its own parameters.
    scale : {"auto", "private", None}, default="auto"
        "private" spends 3 % of the squared budget to scale columns without declared bounds. "auto"
        does so if the signal is ample and the algorithm can be conditioned.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends part of the budget on a noisy second moment of the rows, and fits in
        coordinates in which it is near the identity. "auto" does so if it can help, up to 1,000
        parameters.
    max_iter : int, default=100
        Number of rounds, or of hops of a token per agent, fixed in advance. More rounds need more
        noise.
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
    n_rounds_, n_messages_, bytes_sent_ : int
        Rounds (or hops of a token), messages in both directions, and their size in bytes. All are 0
        for the exact optimum at ``epsilon=inf``, which is computed in one process.
    agent_labels_ : ndarray of shape (n_agents,)
        Labels of the agents, sorted.
    inference_ : CoefficientInference
        Debiased coefficients and their intervals; only with ``intervals=True``.
    privacy_ : PrivacyReport
        The observers, what each of them sees, and the guarantee against each.
    n_features_in_ : int
        Number of columns of `X`; `feature_names_in_` has their names if all are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPFedRidge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20_000, 3))
    >>> y = X @ [1.0, -2.0, 0.0] + 0.1 * rng.standard_normal(20_000)
    >>> hospitals = np.repeat(["east", "north", "south", "west"], 5_000)
    >>> model = DPFedRidge(feature_bounds=(-1, 1), target_bounds=(-4, 4),
    ...     random_state=0)
    >>> model.fit(X, y, agents=hospitals).coef_.round(2)
    array([ 1.  , -2.  ,  0.04])
    >>> {name: round(model.privacy_.epsilon(name), 2) for name in ("server", "sums", "model")}
    {'server': 1.0, 'sums': 1.0, 'model': 0.85}
    """

    alpha: float = parameter(1.0, NON_NEGATIVE)

    def _loss(self, n_classes: int | None) -> Loss:
        return SquaredLoss()

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        return SquaredL2(float(self.alpha) / n_samples)
