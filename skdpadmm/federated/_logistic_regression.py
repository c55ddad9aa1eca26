"""Federated, differentially private logistic regression, binary and multinomial."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from skdpadmm.federated._federated_model import FederatedLogisticRegression


class DPFedLogisticRegression(FederatedLogisticRegression):
    r"""Federated, differentially private logistic regression, binary and multinomial.

    Minimises, as :class:`sklearn.linear_model.LogisticRegression` does,

    .. math:: C \sum_{i=1}^n \ell(W x_i + b, y_i) + \rho \|W\|_1 + \frac{1 - \rho}{2} \|W\|_F^2,
        \qquad \rho = \text{l1\_ratio}

    with the logistic loss for two classes and the multinomial one for more. The scores of all
    classes are released together: a record's gradient is clipped in one joint norm.

    Parameters
    ----------
    C : float, default=inf
        Inverse strength of the penalty, in (0, inf]; inf means no penalty. scikit-learn's default
        is 1.0. In the user's units a penalty depends on how features are measured, and a private
        path, which is short, is held back already.
    l1_ratio : float, default=0.0
        Share of the l1 penalty, in [0, 1].
    epsilon : float, array-like of shape (n_agents,), dict or Series, default=1.0
        Total budget of one fit, in (0, inf]. With ``adversary="server"`` agents may have budgets of
        their own: by label, or in the order of their sorted labels. At inf the fit is exact and
        not private: nothing is clipped, and the answer is that of scikit-learn for the same
        objective.
    delta : float, default=1e-5
        In (0, 1), to be chosen well below ``1 / n_samples``; at or above it `fit` warns.
    adversary : {"server", "sums", "model"}, default="server"
        Who the budget is spent against: a server that sees every message, one that is shown sums of
        messages by secure aggregation, or whoever sees the model. `privacy_` has the figures of all
        three.
    privacy_unit : {"record", "agent"}, default="record"
        What is protected: one row, or all rows of an agent.
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
    participation : float or "auto", default="auto"
        Share of the agents that take part in a round, in (0, 1]. "auto" is 1, which for as many
        updates of each agent needs the least noise; a smaller share saves work in each round.
    dropout : float, default=0.0
        Probability, in [0, 1), that a message is lost, to simulate agents that fail or are too
        slow. Noise is planned for it, and a round that loses too many messages is void.
    n_honest : int, default=None
        Agents of which "sums" may rely on: they add their noise and do not tell the server what it
        was. None: the smallest majority, and never all: each agent knows its own noise.
    neighboring : {"replace_one", "zero_out"}, default="replace_one"
        What may differ between neighbouring data sets: one record (or agent) replaced by any other
        of its size; or a record's loss replaced by zero, an agent by one that sends noise alone.
    feature_bounds : pair of floats or arrays of shape (n_features,), dict, or None, default=None
        Publicly known range of the features, as ``(lower, upper)`` or as a dict of such pairs by
        column name. Features are clipped to it and scaled inside the model. None: rows are used as
        they are, clipped to a norm of about ``sqrt(n_features)``, which suits features in [-1, 1]
        and standardised ones. Never take bounds from the private data.
    classes : array-like of shape (n_classes,), default=None
        All classes there can be, which are public. None: those seen in `y` are assumed to be
        public. A declared class that is absent from `y` is no error.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    algorithm : str or Algorithm, default="federated-admm"
        Name of an algorithm, or an object with knobs of its own, such as
        :class:`~skdpadmm.algorithms.FederatedADMM`.
    scale : {"private", None}, default=None
        "private" spends 3 % of the squared budget on a noisy histogram of row norms, and brings the
        columns without `feature_bounds` to the scale that the defaults expect.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends a share of the budget on a noisy second-moment matrix of the rows, and
        works in coordinates in which it is near the identity. "auto" does so where the algorithm
        can use it and there are at most 1,000 parameters. None spends nothing.
    max_iter : int, default=100
        Number of rounds, fixed in advance. More rounds need more noise in each, and the defaults
        shorten their steps in turn.
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
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients, in the units of `X`.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
    n_iter_ : int
        Number of rounds that were completed; at ``epsilon=inf`` of iterations.
    n_rounds_ : int
        Rounds that were completed.
    n_messages_ : int
        Messages between agents and server, in both directions; 0 at ``epsilon=inf``, where the
        optimum is computed with all rows in one place.
    bytes_sent_ : int
        Their size.
    agent_labels_ : ndarray of shape (n_agents,)
        Labels of the agents, sorted.
    privacy_ : PrivacyReport
        Who sees what, and what guarantee each gets.
    n_features_in_ : int
        Number of columns of `X`, that of the agents included.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, that of the agents included, where all are strings.

    See Also
    --------
    sklearn.linear_model.LogisticRegression : The same objective without privacy.

    Notes
    -----
    **Guarantee.** Adversary: `adversary`, and the other two at their own figures. Unit:
    `privacy_unit`. Neighbouring: `neighboring`; neighbouring data sets agree on which agent holds
    which row. `fit` is (epsilon, delta)-differentially private against the adversary, by
    composition over all messages; `privacy_` lists them and states the guarantees, and
    :class:`~skdpadmm.algorithms.FederatedADMM` the theorem. It holds for every finite input,
    because contributions are clipped after they are computed. It does not cover transformers fitted
    earlier in a pipeline, scores on private data, or other fits on the same records.

    All agents are simulated by whoever runs `fit`: it shows what a federation would learn, and
    protects nobody from the machine that it runs on.

    A fit with `random_state` set is a simulation: the noise can be recomputed from the seed.

    References
    ----------
    .. [1] E. Cyffers, A. Bellet, D. Basu, "From Noisy Fixed-Point Iterations to Private ADMM for
       Centralized and Federated Learning", ICML 2023. Algorithm 3, corrected: see
       :class:`~skdpadmm.algorithms.FederatedADMM`.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPFedLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, size=(20_000, 2))
    >>> y = np.where(X[:, 0] > X[:, 1] + rng.logistic(size=20_000), "more", "less")
    >>> hospitals = np.repeat(["east", "north", "south", "west"], 5_000)
    >>> model = DPFedLogisticRegression(
    ...     classes=["less", "more"], feature_bounds=(0, 10), random_state=0
    ... )
    >>> round(model.fit(X, y, agents=hospitals).score(X, y), 2)
    0.88
    >>> {name: round(model.privacy_.epsilon(name), 2) for name in ("server", "sums", "model")}
    {'server': 1.0, 'sums': 0.55, 'model': 0.47}
    """

    def __init__(
        self,
        *,
        C: float = float("inf"),
        l1_ratio: float = 0.0,
        epsilon: Any = 1.0,
        delta: float = 1e-5,
        adversary: str = "server",
        privacy_unit: str = "record",
        partition: Any = "iid",
        n_agents: int | None = None,
        agent_column: int | str | None = None,
        participation: float | str = "auto",
        dropout: float = 0.0,
        n_honest: int | None = None,
        neighboring: str = "replace_one",
        feature_bounds: Any = None,
        classes: ArrayLike | None = None,
        fit_intercept: bool = True,
        algorithm: Any = "federated-admm",
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
        self.C = C
        self.l1_ratio = l1_ratio
        self.epsilon = epsilon
        self.delta = delta
        self.adversary = adversary
        self.privacy_unit = privacy_unit
        self.partition = partition
        self.n_agents = n_agents
        self.agent_column = agent_column
        self.participation = participation
        self.dropout = dropout
        self.n_honest = n_honest
        self.neighboring = neighboring
        self.feature_bounds = feature_bounds
        self.classes = classes
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
