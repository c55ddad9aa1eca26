"""Personalised, differentially private linear regression."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import r2_score

from skdpadmm._model_of_agents import RegressorOfAgents
from skdpadmm._sklearn import Interval, StrOptions
from skdpadmm.losses import HuberLoss, Loss, SquaredLoss
from skdpadmm.personalized._local_model import LocalRegressor
from skdpadmm.personalized._personalized_model import PersonalizedModel


class DPPersonalizedRegressor(PersonalizedModel, RegressorOfAgents):
    r"""Personalised, differentially private linear regression.

    Each agent keeps its rows and learns a model of its own, which is pulled towards those of
    similar agents: the more, the fewer rows it has. There is no server. Minimises over all models

    .. math::

        \tfrac12 \sum_{i<j} S_{ij} \|\theta_i - \theta_j\|^2 + \mu \sum_i D_i c_i
        \Big( \frac1{m_i} \sum_{k \in i} \ell(y_k - x_k^T w_i - b_i) + \frac\alpha2 \|w_i\|^2 \Big),
        \qquad D_i = \sum_j S_{ij},

    where :math:`\theta_i` are :math:`(w_i, b_i)` in the units that the declared bounds make, and
    :math:`m_i` counts the rows of agent i. Fitted without agents there is one, who has all rows: an
    ordinary model, the minimiser of the bracket. With several, a prediction needs to know whose
    model is asked.

    Parameters
    ----------
    loss : {"squared_error", "huber"}, default="squared_error"
        Half the square of a residual; or that up to `huber_threshold`, and linear beyond.
    huber_threshold : float, default=1.35
        Residual beyond which "huber" is linear, in (0, inf), in the units of `y`.
    alpha : float, default=1e-4
        Strength of the penalty, at least 0, in the user's units.
    trade_off : float, default=1.0
        :math:`\mu`, in (0, inf): how much own rows count beside the models of others. Losses
        bend little, so agents who differ need a large one: 30 to 100. Agents of one mind with few
        rows each do best with 0.1 to 1; with `"uniform"` similarity 1 is close to one model for
        all. Where noise is large, own rows count less than it says. Not to be tuned on the private
        rows.
    similarity : str, matrix, networkx graph or Similarity, default="uniform"
        S, the weights of pairs of agents: "uniform" (everybody is alike), "knn" or "gaussian" of
        `agent_features`, a connected graph whose nodes are the labels and whose edges may have a
        "weight", a symmetric matrix in the order of the sorted labels, or a DataFrame of one. An
        agent that has a label here and no rows gets a model from its neighbours. Public: weights
        that were learnt from private rows need a budget of their own. See
        :func:`~skdpadmm.network.resolve_similarity`, and
        :func:`~skdpadmm.network.knn_similarity`, which has knobs.
    agent_features : array-like of shape (n_agents, n_agent_features), default=None
        Public facts about the agents, for "knn" and "gaussian" and nothing else: in the order of
        the sorted labels, or a DataFrame that has them as its index.
    confidence : float, array-like of shape (n_agents,), dict or Series, default=None
        c, in (0, 1]: how much each agent trusts its own rows. A dict or pandas Series is read by
        label, anything else in the order of the sorted labels. None: its number of rows, as a share
        of the largest. Public.
    epsilon : float, array-like of shape (n_agents,), dict or Series, default=1.0
        Total budget of one fit, in (0, inf]. Agents may have budgets of their own: by label in a
        dict or pandas Series, else in the order of the sorted labels. At inf the fit is exact and
        not private: nothing is clipped.
    delta : float, default=1e-5
        In (0, 1), to be chosen well below ``1 / n_samples``; at or above it `fit` warns.
    privacy_unit : {"record", "agent"}, default="record"
        What is protected: one row, or all rows of an agent.
    partition : int, str or callable, default=None
        Who holds which row, where neither `agents` nor `agent_column` says so. None: one agent
        holds all of them, or `n_agents` as in "iid". Or a number of agents, "iid" (equal sizes),
        "quantity" (sizes by a power law), "dirichlet" (each agent has classes, or ranges of the
        target, of its own), "sorted" (rows sorted by the target), or a function of ``(X, y)`` that
        returns labels. The last three look at the data: the guarantee is conditional on the
        ownership that results.
    n_agents : int, default=None
        Number of agents that `partition` makes.
    agent_column : int or str, default=None
        Column of `X` with the agent of each row, in fits and in predictions. It is no feature:
        `coef_` leaves it out.
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
    algorithm : str or Algorithm, default="personalized-coordinate-descent"
        Name of an algorithm, or an object with knobs of its own, such as
        :class:`~skdpadmm.algorithms.PersonalizedCoordinateDescent`.
    max_iter : int, default=100
        Bound of the number of turns in which an agent uses its rows, fixed in advance; the
        algorithm says how many it takes, by public facts. Solvers of what was published, or with
        ``epsilon=inf``, stop by themselves, within as many steps or 100 where that is more.
    sampler : {"floating-point", "opendp"}, default="floating-point"
        Source of noise. "opendp" resists attacks on floating-point arithmetic; it needs the extra
        ``skdpadmm[secure]`` and takes no seed.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws noise from the operating system. Anything else makes the fit a simulation. Noise
        also depends on the plan: other parameters, or a later version, draw another.
    ledger : str or None, default=None
        Path of an account, such as ``"study.db"``, or ``"study.db::adult"`` with a name of the
        data set: see :class:`~skdpadmm.ledger.PrivacyLedger`. `fit` puts its cost there before it
        touches data, in copies of the estimator and in other processes too, and is refused where
        that would pass a limit of the account.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    coef_per_agent_ : ndarray of shape (n_agents, n_features)
        Coefficients of each agent's model, in the units of `X` and the order of `agent_labels_`.
    intercept_per_agent_ : ndarray of shape (n_agents,)
        Their intercepts.
    coef_ : ndarray of shape (n_features,)
        The average of the models: that of the one agent. With several it is a model of nobody:
        nothing is predicted by it, and what selects features by `coef_`, such as SelectFromModel,
        selects those of the average.
    intercept_ : float
        Intercept of the average.
    n_iter_ : int
        Number of steps that were taken; at ``epsilon=inf`` of iterations.
    n_rounds_ : int
        Rounds in which agents spoke.
    n_messages_ : int
        Messages along edges, each direction counted; 0 at ``epsilon=inf``, where the optimum is
        computed with all rows in one place.
    bytes_sent_ : int
        Their size.
    agent_labels_ : ndarray of shape (n_agents,)
        Labels of the agents, sorted, those without rows included.
    similarity_ : Similarity
        Who is like whom, in the order of `agent_labels_`; it knows them.
    privacy_ : PrivacyReport
        Who sees what, and what guarantee each gets; ``privacy_.epsilon_of("west")`` has the figure
        of one agent, ``privacy_.epsilon_per_agent()`` those of all.
    n_features_in_ : int
        Number of columns of `X`, that of the agents included.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, that of the agents included, where all are strings.

    See Also
    --------
    DPDecentralizedRegressor : One model that all agents agree on. Better where one
        serves all, and where features fill a small part of their bounds: it finds coordinates
        that suit them.

    Notes
    -----
    **Guarantee.** Adversary: an eavesdropper, who sees all messages and all models. Unit:
    `privacy_unit`. Neighbouring: `neighboring`; neighbouring data sets agree on which agent holds
    which row. `fit` is (epsilon, delta)-differentially private for the rows of every agent, by
    composition over what that agent says, whatever others say or do; `privacy_` lists it, and the
    algorithm states its theorem. It does not cover transformers fitted earlier in a pipeline,
    scores on private data, or other fits on the same records.

    An agent hides among its own rows alone, so with few rows and many features its gradients are
    mostly noise. What helps most then is free: neighbours' models, and :meth:`local_model`.

    All agents are simulated by whoever runs `fit`: it shows what agents would learn, and protects
    nobody from the machine that it runs on.

    A fit with `random_state` set is a simulation: the noise can be recomputed from the seed.

    References
    ----------
    .. [1] A. Bellet, R. Guerraoui, M. Taziki, M. Tommasi, "Fast and Differentially Private
       Algorithms for Decentralized Collaborative Machine Learning", 2017, with corrected norms and
       composition: see :class:`~skdpadmm.algorithms.PersonalizedCoordinateDescent`.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPPersonalizedRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(6_000, 2))
    >>> towns = np.repeat(["east", "north", "west"], 2_000)
    >>> slope = np.repeat([1.0, 1.2, -1.0], 2_000)
    >>> y = slope * X[:, 0] + 0.1 * rng.standard_normal(6_000)
    >>> model = DPPersonalizedRegressor(
    ...     similarity=[[0, 1, 0.1], [1, 0, 0.1], [0.1, 0.1, 0]], trade_off=100.0,
    ...     feature_bounds=(-1, 1), target_bounds=(-2, 2), random_state=0,
    ... )
    >>> model.fit(X, y, agents=towns).coef_per_agent_[:, 0].round(1)
    array([ 1. ,  1.2, -0.9])
    >>> model.predict(X[:2], agents=["east", "west"]).shape
    (2,)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **RegressorOfAgents._parameter_constraints,
        **PersonalizedModel._parameter_constraints,
        "loss": [StrOptions({"squared_error", "huber"})],
        "huber_threshold": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        *,
        loss: str = "squared_error",
        huber_threshold: float = 1.35,
        alpha: float = 1e-4,
        trade_off: float = 1.0,
        similarity: Any = "uniform",
        agent_features: Any = None,
        confidence: Any = None,
        epsilon: Any = 1.0,
        delta: float = 1e-5,
        privacy_unit: str = "record",
        partition: Any = None,
        n_agents: int | None = None,
        agent_column: int | str | None = None,
        neighboring: str = "replace_one",
        feature_bounds: Any = None,
        target_bounds: Any = None,
        fit_intercept: bool = True,
        algorithm: Any = "personalized-coordinate-descent",
        max_iter: int = 100,
        sampler: str = "floating-point",
        random_state: Any = None,
        ledger: str | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.huber_threshold = huber_threshold
        self.alpha = alpha
        self.trade_off = trade_off
        self.similarity = similarity
        self.agent_features = agent_features
        self.confidence = confidence
        self.epsilon = epsilon
        self.delta = delta
        self.privacy_unit = privacy_unit
        self.partition = partition
        self.n_agents = n_agents
        self.agent_column = agent_column
        self.neighboring = neighboring
        self.feature_bounds = feature_bounds
        self.target_bounds = target_bounds
        self.fit_intercept = fit_intercept
        self.algorithm = algorithm
        self.max_iter = max_iter
        self.sampler = sampler
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose

    def _loss(self) -> Loss:
        if self.loss == "huber":
            return HuberLoss(float(self.huber_threshold))
        return SquaredLoss()

    def predict(
        self, X: Any, agents: ArrayLike | None = None, similarities: Any = None
    ) -> NDArray[np.float64]:
        """Predict the target of each row by the model of its agent.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        agents : array-like of shape (n_samples,), default=None
            For each row the label of the agent whose model is asked. May be left out where there is
            one agent, or an `agent_column`.
        similarities : array-like of shape (n_new_agents, n_agents), default=None
            How much agents that the fit has not seen are like those it has: a row for each new
            agent in the order of their sorted labels, or a DataFrame that has labels as its index
            and as columns. A new agent is predicted for by the average of models with these
            weights. Not looked at for agents of the fit.

        Returns
        -------
        y_pred : ndarray of shape (n_samples,)

        Raises
        ------
        ValueError
            Where it is not said whose model is asked, or a label is new and has no similarities.
        """
        return self._scores(X, agents, similarities)[:, 0]

    def score(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        agents: ArrayLike | None = None,
        similarities: Any = None,
    ) -> float:
        """Coefficient of determination of the predictions.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
        agents : array-like of shape (n_samples,), default=None
            As in `predict`.
        similarities : array-like of shape (n_new_agents, n_agents), default=None
            As in `predict`.

        Returns
        -------
        score : float
            A score on private data is a release that no budget covers.
        """
        predicted = self.predict(X, agents=agents, similarities=similarities)
        return float(r2_score(y, predicted, sample_weight=sample_weight))

    def local_model(self, agent: Any, X: Any, y: ArrayLike) -> LocalRegressor:
        """Fit the model of one agent again at home, without noise.

        It minimises the objective over that agent's model alone, with its own rows and the released
        models of its neighbours; nothing is clipped. This costs no budget as long as the agent
        keeps it: it is not private, and nothing of it is stored here.

        Parameters
        ----------
        agent : object
            Label of the agent.
        X : {array-like, sparse matrix} of shape (n_own, n_features)
            Its own rows, with the columns that `fit` got.
        y : array-like of shape (n_own,)

        Returns
        -------
        model : LocalRegressor
            A fitted estimator. It takes the columns that `fit` got, with or without that of the
            agents.

        Raises
        ------
        ValueError
            Where the agent is not one of the fit, or the rows are not valid, or `agent_column` says
            that they are another agent's.
        """
        position = self._position(agent)
        features, target = self._check_own(agent, X, y, y_numeric=True)
        coef, intercept = self._refit(position, features, target.astype(np.float64))
        return LocalRegressor._of_agent(
            self._label(position), self._columns(), coef_=coef[0], intercept_=float(intercept[0])
        )
