"""Estimators for agents without a server, who exchange messages along the edges of a graph.

**Guarantee.** The budget holds against `adversary`; the other observers have their own epsilon. The
unit is `privacy_unit`. `neighboring` chooses the neighbouring relation; in neighbouring data sets
the same agent holds the same row. `fit` is (epsilon, delta)-differentially private against the
adversary for the rows of every agent, by composition over all messages of Algorithm 1 of [1]_,
corrected. `privacy_` lists the messages and states the guarantees;
:class:`~skdpadmm.algorithms.MultiStepADMM` states the theorem. The guarantee does not cover
transformers fitted earlier in a pipeline, scores on private data, or other fits on the same
records.

Each agent adds noise to every message, so the average of A agents has ``sqrt(A)`` times the noise
that a trusted curator would need. Neighbours of
:class:`~skdpadmm.algorithms.DecentralizedGradientDescent` share noise that cancels, and need little
more than a curator, as long as no more than `coalition` agents tell what they share. `fit`
simulates all agents in one process and does not protect anyone from the party that runs it.

.. [1] Z. Huang, Y. Gong, "Differentially Private ADMM for Convex Distributed Learning: Improved
   Accuracy via Multi-Step Approximation".
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm._fitting import Fitted
from skdpadmm._linear_model import Targets, elastic_net
from skdpadmm._model_of_agents import ChosenClassification, ChosenRegression, OwnModels
from skdpadmm._sklearn import (
    ALGORITHM,
    COUNT,
    FRACTION,
    NON_NEGATIVE,
    SHARE,
    Interval,
    OneOf,
    parameter,
)
from skdpadmm.network import Links, Topology, ownership_of_labels, resolve_graphs
from skdpadmm.penalties import L1, NoPenalty, Penalty, SquaredL2
from skdpadmm.protocol import EAVESDROPPER, PEER, Agents, Network, network_of

__all__ = ["DPDecentralizedClassifier", "DPDecentralizedRegressor"]

Array = NDArray[np.float64]


@dataclass(kw_only=True, eq=False, repr=False)
class DecentralizedModel(OwnModels):
    """Parameters of a network, and the models of its agents."""

    penalty: str | None = parameter("l2", OneOf("l1", "l2", "elasticnet"), None)
    alpha: float = parameter(1e-4, NON_NEGATIVE)
    l1_ratio: float = parameter(0.15, SHARE)
    adversary: str = parameter(EAVESDROPPER, OneOf(EAVESDROPPER, PEER))
    coalition: int = parameter(1, COUNT)
    topology: Any = parameter("complete")
    participation: float = parameter(1.0, FRACTION)
    dropout: float = parameter(0.0, Interval(Real, 0, 1, closed="left"))
    algorithm: Any = parameter("multi-step-admm", *ALGORITHM)

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        alpha = float(self.alpha)
        penalties = {
            None: NoPenalty(),
            "l1": L1(alpha),
            "l2": SquaredL2(alpha),
            "elasticnet": elastic_net(alpha, float(self.l1_ratio)),
        }
        return penalties[self.penalty]

    def _agents(self, sizes: NDArray[np.intp], labels: NDArray[Any] | None) -> Agents:
        topology, graphs = self._topology(len(sizes), labels)
        return Network(
            agent_sizes=tuple(sizes.tolist()),
            topology=topology,
            coalition=int(self.coalition),
            graphs=graphs,
            participation=float(self.participation),
            dropout=float(self.dropout),
            epsilons=self._epsilons(labels),
            sizes_matter=self.privacy_unit == "agent",
        )

    def _partition_rule(self) -> tuple[Any, int | None]:
        rule, n_agents = super()._partition_rule()
        n_nodes = None if callable(rule) else _count_nodes(self._graphs()[0])
        if None not in (n_agents, n_nodes) and n_agents != n_nodes:
            raise ValueError(
                f"Got n_agents={n_agents} with a topology of {n_nodes} nodes, expected the same"
                " number. Leave n_agents out."
            )
        return rule, n_agents if n_nodes is None else n_nodes

    def _graphs(self) -> list[Any]:
        """The graph of each round, or of a cycle of rounds."""
        given: Any = self.topology
        if callable(given):
            return [given(k) for k in range(int(self.max_iter))]
        if not isinstance(given, list | tuple):
            return [given]
        # A list of rows of numbers is a matrix.
        rows = (isinstance(e, list | tuple | np.ndarray) and np.ndim(e) == 1 for e in given)
        return [given] if all(rows) else list(given)

    def _topology(
        self, n_agents: int, labels: NDArray[Any] | None
    ) -> tuple[Topology, tuple[Links, ...]]:
        """All links that there ever are, and those of each round where they change."""
        graphs = self._graphs()
        # A plan without data has no labels: the order of the nodes is used.
        if labels is None:
            labels = np.arange(n_agents)
            nodes = getattr(graphs[0], "nodes", None)
            if nodes is not None and len(nodes) == n_agents:
                labels = ownership_of_labels(
                    list(nodes), n_samples=n_agents, name="nodes of the topology"
                ).labels
        return resolve_graphs(graphs, labels, seed=self._seed())

    def _keep(self, fitted: Fitted, targets: Targets) -> None:
        super()._keep(fitted, targets)
        self.topology_ = network_of(fitted.plan.facts).topology
        # Squares of noisy models may overflow.
        with np.errstate(all="ignore"):
            self.consensus_error_ = float(np.sqrt(np.mean(self._squared_disagreements())))

    def _squared_disagreements(self) -> Any:
        """Squared distance of the model of each agent from the average model."""
        squares: Any = 0.0
        for name in ("coef", "intercept"):
            gap = getattr(self, f"{name}_per_agent_") - getattr(self, f"{name}_")
            squares = squares + np.square(gap).reshape(len(gap), -1).sum(axis=1)
        return squares


def _count_nodes(topology: Any) -> int | None:
    """The number of nodes of a graph that is given; None of a name."""
    if isinstance(topology, Topology):
        return topology.n_agents
    shape = (len(topology.nodes), 0) if hasattr(topology, "nodes") else np.shape(topology)
    return shape[0] if len(shape) == 2 else None


@dataclass(kw_only=True, eq=False, repr=False)
class DPDecentralizedClassifier(DecentralizedModel, ChosenClassification):
    r"""Decentralised, differentially private linear classification.

    Agents keep their rows and exchange messages along the edges of a graph, without a server.
    Minimises, as :class:`sklearn.linear_model.SGDClassifier` does,

    .. math:: \frac1n \sum_{i=1}^n \ell(W x_i + b, y_i) + \alpha R(W)

    over the rows of all agents, where R is :math:`\frac12 \|W\|_F^2`, :math:`\|W\|_1`, or
    :math:`\rho \|W\|_1 + \frac{1 - \rho}{2} \|W\|_F^2` with :math:`\rho` = `l1_ratio`. The scores
    of all classes are released together, and a record's gradient is clipped in one joint norm.

    The module :mod:`skdpadmm.decentralized` states the guarantee and the observers.

    Parameters
    ----------
    epsilon : float, array-like of shape (n_agents,), dict or Series, default=1.0
        Total budget of one fit, in (0, inf], or that of each agent, by label or in the order of the
        sorted labels. At inf nothing is private: the name of an algorithm then means the exact
        optimum, and an object runs its own iterations without noise and clipping.
    delta : float, default=1e-5
        Total delta of one fit, in [0, 1), well below ``1 / n_samples``; at or above it `fit` warns.
        0 needs an algorithm with ``noise="laplace"``.
    loss : {"log_loss", "smoothed_hinge"}, default="log_loss"
        Logistic (multinomial), or a hinge with a parabola in place of its corner (one class against
        the rest).
    smoothing : float, default=1.0
        Width of the hinge's parabola in units of the margin, in (0, inf).
    penalty : {"l2", "l1", "elasticnet"} or None, default="l2"
        The penalty R.
    alpha : float, default=1e-4
        Strength of the penalty, at least 0, in the user's units.
    l1_ratio : float, default=0.15
        Share of the l1 penalty, in [0, 1].
    adversary : {"eavesdropper", "peer"}, default="eavesdropper"
        The observer of the budget: an eavesdropper on every message along every edge, or any one
        agent, with the messages that it receives and the model.
    coalition : int, default=1
        Number of colluding peers, for the guarantee against "peer". With secret sharing, and where
        neighbours share noise, it is also the number of peers that collude with an eavesdropper;
        every agent adds more noise for a larger one.
    privacy_unit : {"record", "agent"}, default="record"
        The unit of protection: one row, or all rows of an agent.
    topology : str, networkx graph, matrix, sequence of them or callable, default="complete"
        Public communication graph: a name of :func:`~skdpadmm.network.named_graph`, such as "ring"
        or "erdos-renyi" (drawn with an int `random_state`, or 0); a connected, undirected graph of
        the labels; or an adjacency matrix in their order, or a DataFrame of one. A sequence of
        graphs is cycled through, round by round, and a function of the round (0, 1, ...) returns
        its graph: none of them need be connected, but their union has to be. Gradient descent also
        takes a strongly connected networkx.DiGraph.
    participation : float, default=1.0
        Probability in (0, 1] that an agent takes part in a round. Absent agents neither compute nor
        send. The plan counts every round, so that absences do not change epsilon.
    dropout : float, default=0.0
        Probability in [0, 1) that a link fails in a round, in both directions.
    partition : str or callable, default="iid"
        Assignment of rows to artificial agents, without `agents` and `agent_column`: "iid",
        "quantity", "dirichlet" or "sorted" (see :func:`~skdpadmm.network.partition_rows`), or a
        function of ``(X, y)`` that returns labels. The last three use the data, so the guarantee is
        conditional on the resulting assignment.
    n_agents : int, default=None
        Number of agents that `partition` makes. None means the number of nodes of a `topology` that
        is a graph or a matrix, otherwise ``min(10, n_samples)``.
    agent_column : int or str, default=None
        Column of `X` with the agent of each row, in fits and predictions. It is not a feature.
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
    algorithm : str or Algorithm, default="multi-step-admm"
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
        Coefficients, in the units of `X`: the average over agents.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    coef_per_agent_ : ndarray of shape (n_agents, 1 or n_classes, n_features)
        Coefficients of each agent's model, in the order of `agent_labels_`.
    intercept_per_agent_ : ndarray of shape (n_agents, 1 or n_classes)
    consensus_error_ : float
        Root mean square, over agents, of the distance of a model from the average.
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    n_iter_ : int
        Number of steps taken; at ``epsilon=inf``, number of iterations.
    n_rounds_, n_messages_, bytes_sent_ : int
        Rounds (or hops of a token), messages in both directions, and their size in bytes. All are 0
        for the exact optimum at ``epsilon=inf``, which is computed in one process.
    agent_labels_ : ndarray of shape (n_agents,)
        Labels of the agents, sorted.
    topology_ : Topology
        The communication graph, its nodes in the order of `agent_labels_`.
    privacy_ : PrivacyReport
        The observers, what each of them sees, and the guarantee of each agent against each of them.
    n_features_in_ : int
        Number of columns of `X`; `feature_names_in_` has their names if all are strings.

    See Also
    --------
    DPFedLogisticRegression : With a server.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPDecentralizedClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, size=(20_000, 2))
    >>> y = np.where(X[:, 0] > X[:, 1] + rng.logistic(size=20_000), "more", "less")
    >>> hospitals = np.repeat(["east", "north", "south", "west"], 5_000)
    >>> model = DPDecentralizedClassifier(
    ...     topology="ring", classes=["less", "more"], feature_bounds=(0, 10), random_state=0
    ... )
    >>> round(model.fit(X, y, agents=hospitals).score(X, y), 2)
    0.88
    >>> model.predict(X[:3], agents=["east", "west", "west"]).shape
    (3,)
    """


@dataclass(kw_only=True, eq=False, repr=False)
class DPDecentralizedRegressor(DecentralizedModel, ChosenRegression):
    r"""Decentralised, differentially private linear regression.

    Agents keep their rows and exchange messages along the edges of a graph, without a server.
    Minimises, as :class:`sklearn.linear_model.SGDRegressor` does,

    .. math:: \frac1n \sum_{i=1}^n \ell(y_i - x_i^T w - b) + \alpha R(w)

    over the rows of all agents, where R is :math:`\frac12 \|w\|_2^2`, :math:`\|w\|_1`, or
    :math:`\rho \|w\|_1 + \frac{1 - \rho}{2} \|w\|_2^2` with :math:`\rho` = `l1_ratio`.

    The module :mod:`skdpadmm.decentralized` states the guarantee and the observers.

    Parameters
    ----------
    epsilon : float, array-like of shape (n_agents,), dict or Series, default=1.0
        Total budget of one fit, in (0, inf], or that of each agent, by label or in the order of the
        sorted labels. At inf nothing is private: the name of an algorithm then means the exact
        optimum, and an object runs its own iterations without noise and clipping.
    delta : float, default=1e-5
        Total delta of one fit, in [0, 1), well below ``1 / n_samples``; at or above it `fit` warns.
        0 needs an algorithm with ``noise="laplace"``.
    loss : {"squared_error", "huber"}, default="squared_error"
        Half the squared error, or Huber's, which is linear beyond `huber_threshold`.
    huber_threshold : float, default=0.2
        Residual beyond which Huber's loss is linear, in (0, inf), in units of half the width of
        `target_bounds` (without an intercept: of their largest absolute value).
    penalty : {"l2", "l1", "elasticnet"} or None, default="l2"
        The penalty R.
    alpha : float, default=1e-4
        Strength of the penalty, at least 0, in the user's units.
    l1_ratio : float, default=0.15
        Share of the l1 penalty, in [0, 1].
    adversary : {"eavesdropper", "peer"}, default="eavesdropper"
        The observer of the budget: an eavesdropper on every message along every edge, or any one
        agent, with the messages that it receives and the model.
    coalition : int, default=1
        Number of colluding peers, for the guarantee against "peer". With secret sharing, and where
        neighbours share noise, it is also the number of peers that collude with an eavesdropper;
        every agent adds more noise for a larger one.
    privacy_unit : {"record", "agent"}, default="record"
        The unit of protection: one row, or all rows of an agent.
    topology : str, networkx graph, matrix, sequence of them or callable, default="complete"
        Public communication graph: a name of :func:`~skdpadmm.network.named_graph`, such as "ring"
        or "erdos-renyi" (drawn with an int `random_state`, or 0); a connected, undirected graph of
        the labels; or an adjacency matrix in their order, or a DataFrame of one. A sequence of
        graphs is cycled through, round by round, and a function of the round (0, 1, ...) returns
        its graph: none of them need be connected, but their union has to be. Gradient descent also
        takes a strongly connected networkx.DiGraph.
    participation : float, default=1.0
        Probability in (0, 1] that an agent takes part in a round. Absent agents neither compute nor
        send. The plan counts every round, so that absences do not change epsilon.
    dropout : float, default=0.0
        Probability in [0, 1) that a link fails in a round, in both directions.
    partition : str or callable, default="iid"
        Assignment of rows to artificial agents, without `agents` and `agent_column`: "iid",
        "quantity", "dirichlet" or "sorted" (see :func:`~skdpadmm.network.partition_rows`), or a
        function of ``(X, y)`` that returns labels. The last three use the data, so the guarantee is
        conditional on the resulting assignment.
    n_agents : int, default=None
        Number of agents that `partition` makes. None means the number of nodes of a `topology` that
        is a graph or a matrix, otherwise ``min(10, n_samples)``.
    agent_column : int or str, default=None
        Column of `X` with the agent of each row, in fits and predictions. It is not a feature.
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
    algorithm : str or Algorithm, default="multi-step-admm"
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
        Coefficients, in the units of `X` and `y`: the average over agents.
    intercept_ : float
    coef_per_agent_ : ndarray of shape (n_agents, n_features)
        Coefficients of each agent's model, in the order of `agent_labels_`.
    intercept_per_agent_ : ndarray of shape (n_agents,)
    consensus_error_ : float
        Root mean square, over agents, of the distance of a model from the average.
    n_iter_ : int
        Number of steps taken; at ``epsilon=inf``, number of iterations.
    n_rounds_, n_messages_, bytes_sent_ : int
        Rounds (or hops of a token), messages in both directions, and their size in bytes. All are 0
        for the exact optimum at ``epsilon=inf``, which is computed in one process.
    agent_labels_ : ndarray of shape (n_agents,)
        Labels of the agents, sorted.
    topology_ : Topology
        The communication graph, its nodes in the order of `agent_labels_`.
    privacy_ : PrivacyReport
        The observers, what each of them sees, and the guarantee of each agent against each of them.
    n_features_in_ : int
        Number of columns of `X`; `feature_names_in_` has their names if all are strings.

    See Also
    --------
    DPFedRidge : With a server.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPDecentralizedRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20_000, 3))
    >>> y = X @ [1.0, -2.0, 0.0] + 0.1 * rng.standard_normal(20_000)
    >>> hospitals = np.repeat(["east", "north", "south", "west"], 5_000)
    >>> model = DPDecentralizedRegressor(
    ...     topology="ring", feature_bounds=(-1, 1), target_bounds=(-4, 4), random_state=0
    ... )
    >>> model.fit(X, y, agents=hospitals).coef_.round(2)
    array([ 0.99, -1.96, -0.01])
    >>> model.coef_per_agent_.shape, model.n_messages_
    ((4, 3), 824)
    >>> round(model.privacy_.pairwise("east", "south"), 2)
    1.0
    """
