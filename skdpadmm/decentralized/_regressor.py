"""Decentralised, differentially private linear regression."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import r2_score

from skdpadmm._model_of_agents import RegressorOfAgents, own_scores
from skdpadmm._sklearn import Interval, StrOptions
from skdpadmm.decentralized._decentralized_model import DecentralizedModel
from skdpadmm.losses import HuberLoss, Loss, SquaredLoss


class DPDecentralizedRegressor(DecentralizedModel, RegressorOfAgents):
    r"""Decentralised, differentially private linear regression.

    Agents keep their rows and talk along the edges of a graph; there is no server. Minimises, as
    :class:`sklearn.linear_model.SGDRegressor` does,

    .. math:: \frac1n \sum_{i=1}^n \ell(y_i - x_i^T w - b) + \alpha R(w)

    over the rows of all agents, where R is :math:`\frac12 \|w\|_2^2`, :math:`\|w\|_1`, or
    :math:`\rho \|w\|_1 + \frac{1 - \rho}{2} \|w\|_2^2` with :math:`\rho` = `l1_ratio`.

    Parameters
    ----------
    loss : {"squared_error", "huber"}, default="squared_error"
        Half the square of a residual; or that up to `huber_threshold`, and linear beyond.
    huber_threshold : float, default=1.35
        Residual beyond which "huber" is linear, in (0, inf), in the units of `y`.
    penalty : {"l2", "l1", "elasticnet"} or None, default="l2"
        R.
    alpha : float, default=1e-4
        Strength of the penalty, at least 0, in the user's units.
    l1_ratio : float, default=0.15
        Share of the l1 penalty in "elasticnet", in [0, 1].
    epsilon : float, array-like of shape (n_agents,), dict or Series, default=1.0
        Total budget of one fit, in (0, inf]. Agents may have budgets of their own: by label in a
        dict or pandas Series, else in the order of the sorted labels. At inf the fit is exact and
        not private: nothing is clipped, and the answer is that of scikit-learn for the same
        objective.
    delta : float, default=1e-5
        In (0, 1), to be chosen well below ``1 / n_samples``; at or above it `fit` warns.
    adversary : {"eavesdropper", "peer"}, default="eavesdropper"
        Who the budget is spent against: whoever hears every message along every edge, or any one
        agent, who hears what reaches it and sees the model. They differ for
        :class:`~skdpadmm.algorithms.RandomWalkProximalPoint` alone; `privacy_` has both figures.
    coalition : int, default=1
        Number of peers that put together what they heard, for the figure of "peer". With
        :class:`~skdpadmm.algorithms.SecretSharingGradientDescent` they are in league with an
        eavesdropper too, and the more they are, the more noise every agent adds.
    privacy_unit : {"record", "agent"}, default="record"
        What is protected: one row, or all rows of an agent.
    topology : str, networkx graph, or matrix of shape (n_agents, n_agents), default="complete"
        Who talks to whom: "complete", "ring", "star", "path", "grid", "torus", "hypercube",
        "regular", "erdos-renyi", "watts-strogatz", "barabasi-albert" or "random-geometric", drawn
        with the seed in `random_state` (0 where that is no int) where it is random;
        :func:`~skdpadmm.network.named_graph` has their parameters, and takes agents in the order of
        their sorted labels. Or a connected, undirected graph whose nodes are the labels, or an
        adjacency matrix in their order, or a DataFrame of one. Public.
    partition : int, str or callable, default="iid"
        Who holds which row, where neither `agents` nor `agent_column` says so: a number of agents
        or "iid" (equal sizes), "quantity" (sizes by a power law), "dirichlet" (each agent has
        classes, or ranges of the target, of its own), "sorted" (rows sorted by the target), or a
        function of ``(X, y)`` that returns labels. The last three look at the data: the guarantee
        is conditional on the ownership that results.
    n_agents : int, default=None
        Number of agents that `partition` makes; None: ``min(10, n_samples)``.
    agent_column : int or str, default=None
        Column of `X` with the agent of each row. It is no feature: `coef_` leaves it out.
        `predict` needs the column too, and ignores what is in it.
    neighboring : {"replace_one", "zero_out"}, default="replace_one"
        What may differ between neighbouring data sets: one record (or agent) replaced by any other
        of its size; or a record's loss replaced by zero, an agent by one that sends noise alone.
    feature_bounds : pair of floats or arrays of shape (n_features,), dict, or None, default=None
        Publicly known range of the features, as ``(lower, upper)`` or as a dict of such pairs by
        column name. Features are clipped to it and scaled inside the model. None: rows are used as
        they are, clipped to a norm of about ``sqrt(n_features)``, which suits features in [-1, 1]
        and standardised ones. Never take bounds from the private data.
    target_bounds : pair of floats, default=None
        Publicly known range of the target, to which it is clipped. None means [-3, 3], which suits
        a standardised target and no other.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    algorithm : str or Algorithm, default="multi-step-admm"
        Name of an algorithm, or an object with knobs of its own, such as
        :class:`~skdpadmm.algorithms.MultiStepADMM`.
    scale : {"private", None}, default=None
        "private" spends 3 % of the squared budget on a noisy histogram of row norms, and brings the
        columns without `feature_bounds` to the scale that the defaults expect.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends a share of the budget on a noisy second-moment matrix of the rows, and
        works in coordinates in which it is near the identity. "auto" does so where the algorithm
        can use it and there are at most 1,000 parameters. None spends nothing.
    max_iter : int, default=100
        Number of rounds, or of hops of a token for each agent, on average; fixed in advance. More
        rounds need more noise in each, and the defaults shorten their steps in turn.
        :class:`~skdpadmm.algorithms.RandomizedSGD` has `rounds` instead.
    sampler : {"floating-point", "opendp"}, default="floating-point"
        Source of noise. "opendp" resists attacks on floating-point arithmetic; it needs the extra
        ``skdpadmm[secure]`` and takes no seed.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws noise from the operating system. Anything else makes the fit a simulation. Noise
        also depends on the plan: other parameters, or a later version, draw another.
    n_jobs : int, default=None
        Number of threads. The result does not depend on it.
    engine : {"local", "dask"}, default="local"
        Where agents run: in this process, all at once, or in the workers of dask.distributed, which
        needs the extra ``skdpadmm[dask]``. A cluster is a larger simulation by one trusted party,
        not a boundary of privacy. Without a client of its own a script needs
        ``if __name__ == "__main__":``.
    ledger : str or None, default=None
        Path of an account, such as ``"study.db"``, or ``"study.db::adult"`` with a name of the
        data set: see :class:`~skdpadmm.ledger.PrivacyLedger`. `fit` puts its cost there before it
        touches data, in copies of the estimator and in other processes too, and is refused where
        that would pass a limit of the account.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of `X`: the average over agents.
    intercept_ : float
        Intercept.
    coef_per_agent_ : ndarray of shape (n_agents, n_features)
        Coefficients that each agent ends up with, in the order of `agent_labels_`.
    intercept_per_agent_ : ndarray of shape (n_agents,)
        Their intercepts.
    consensus_error_ : float
        Root mean square, over agents, of the Euclidean distance of their coefficients and
        intercepts from the average, in the user's units.
    expected_privacy_loss_ : ndarray of shape (n_agents,) or None
        Where agents mix what they hear with secret random weights: what the absolute privacy loss
        of each is expected to be at most, along the path that was released. A diagnostic, and no
        guarantee.
    n_iter_ : int
        Number of steps that were taken; at ``epsilon=inf`` of iterations.
    n_rounds_ : int
        Rounds of messages, or hops of a token.
    n_messages_ : int
        Messages along edges, each direction counted; 0 at ``epsilon=inf``, where the optimum is
        computed with all rows in one place.
    bytes_sent_ : int
        Their size.
    agent_labels_ : ndarray of shape (n_agents,)
        Labels of the agents, sorted.
    topology_ : Topology
        The graph that they talked over, its nodes in the order of `agent_labels_`.
    privacy_ : PrivacyReport
        Who sees what, and what guarantee each gets; ``privacy_.epsilon_per_agent()`` and
        ``privacy_.pairwise(agent, peer)`` have the figures of agents and of pairs.
    n_features_in_ : int
        Number of columns of `X`, that of the agents included.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, that of the agents included, where all are strings.

    See Also
    --------
    sklearn.linear_model.SGDRegressor : The same objective without privacy.
    DPFedRidge : With a server.

    Notes
    -----
    **Guarantee.** Adversary: `adversary`, and the others at their own figures. Unit:
    `privacy_unit`. Neighbouring: `neighboring`; neighbouring data sets agree on which agent holds
    which row. `fit` is (epsilon, delta)-differentially private against the adversary for the rows
    of every agent, by composition over all messages; `privacy_` lists them, states the guarantees,
    and the algorithm states its theorem. It does not cover transformers fitted earlier in a
    pipeline, scores on private data, or other fits on the same records.

    Agents who trust nobody add noise of their own to everything, so the average of A agents has
    ``sqrt(A)`` times the noise that a trusted curator would need.

    All agents are simulated by whoever runs `fit`: it shows what a network would learn, and
    protects nobody from the machine that it runs on.

    A fit with `random_state` set is a simulation: the noise can be recomputed from the seed.

    References
    ----------
    .. [1] Z. Huang, Y. Gong, "Differentially Private ADMM for Convex Distributed Learning:
       Improved Accuracy via Multi-Step Approximation". Algorithm 1, corrected: see
       :class:`~skdpadmm.algorithms.MultiStepADMM`.

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
    array([ 1., -2.,  0.])
    >>> model.coef_per_agent_.shape, model.n_messages_
    ((4, 3), 832)
    >>> round(model.privacy_.pairwise("east", "south"), 2)
    1.0
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **RegressorOfAgents._parameter_constraints,
        **DecentralizedModel._parameter_constraints,
        "loss": [StrOptions({"squared_error", "huber"})],
        "huber_threshold": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        *,
        loss: str = "squared_error",
        huber_threshold: float = 1.35,
        penalty: str | None = "l2",
        alpha: float = 1e-4,
        l1_ratio: float = 0.15,
        epsilon: Any = 1.0,
        delta: float = 1e-5,
        adversary: str = "eavesdropper",
        coalition: int = 1,
        privacy_unit: str = "record",
        topology: Any = "complete",
        partition: Any = "iid",
        n_agents: int | None = None,
        agent_column: int | str | None = None,
        neighboring: str = "replace_one",
        feature_bounds: Any = None,
        target_bounds: Any = None,
        fit_intercept: bool = True,
        algorithm: Any = "multi-step-admm",
        scale: str | None = None,
        conditioning: str | None = "auto",
        max_iter: int = 100,
        sampler: str = "floating-point",
        random_state: Any = None,
        n_jobs: int | None = None,
        engine: str = "local",
        ledger: str | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.huber_threshold = huber_threshold
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.epsilon = epsilon
        self.delta = delta
        self.adversary = adversary
        self.coalition = coalition
        self.privacy_unit = privacy_unit
        self.topology = topology
        self.partition = partition
        self.n_agents = n_agents
        self.agent_column = agent_column
        self.neighboring = neighboring
        self.feature_bounds = feature_bounds
        self.target_bounds = target_bounds
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.scale = scale
        self.conditioning = conditioning
        self.max_iter = max_iter
        self.sampler = sampler
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.engine = engine
        self.ledger = ledger
        self.verbose = verbose

    def _loss(self) -> Loss:
        if self.loss == "huber":
            return HuberLoss(float(self.huber_threshold))
        return SquaredLoss()

    def predict(self, X: Any, agents: ArrayLike | None = None) -> NDArray[np.float64]:
        """Predict the target, by the average model or by agents' own.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        agents : array-like of shape (n_samples,), default=None
            For each row the label of the agent whose own model is used; None: the average model.

        Returns
        -------
        y_pred : ndarray of shape (n_samples,)

        Raises
        ------
        ValueError
            Where a label is none of the agents of the fit.
        """
        if agents is None:
            return super().predict(X)
        X = self._check_predict(X)
        who = self._positions(agents, X.shape[0])
        coef, intercept = self.coef_per_agent_[:, None], self.intercept_per_agent_[:, None]
        return own_scores(X, coef, intercept, who)[:, 0]

    def score(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        agents: ArrayLike | None = None,
    ) -> float:
        """Coefficient of determination of the predictions.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
        agents : array-like of shape (n_samples,), default=None
            As in `predict`.

        Returns
        -------
        score : float
            A score on private data is a release that no budget covers.
        """
        predicted = self.predict(X, agents=agents)
        return float(r2_score(y, predicted, sample_weight=sample_weight))
