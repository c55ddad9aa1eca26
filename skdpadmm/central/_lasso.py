"""Differentially private linear regression with an l1 penalty."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

from skdpadmm._linear_model import PrivateLinearRegressor
from skdpadmm._sklearn import Interval
from skdpadmm.central._streaming import StreamingModel
from skdpadmm.penalties import L1, Penalty


class DPAdmmLasso(StreamingModel, PrivateLinearRegressor):
    r"""Differentially private linear regression with an l1 penalty.

    Minimises, as :class:`sklearn.linear_model.Lasso` does,

    .. math:: \frac{1}{2 n} \|y - X w - b\|_2^2 + \alpha \|w\|_1

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty, at least 0, in the user's units.
    epsilon : float, default=1.0
        Total budget of one fit, in (0, inf]. At inf the fit is exact and not private: nothing is
        clipped, and the answer is that of scikit-learn for the same objective.
    delta : float, default=1e-5
        In (0, 1), to be chosen well below ``1 / n_samples``; at or above it `fit` warns.
    neighboring : {"replace_one", "zero_out"}, default="replace_one"
        What may differ between neighbouring data sets: one record replaced by any other, or one
        record's loss replaced by zero.
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
    algorithm : str or Algorithm, default="consensus-admm"
        Name of an algorithm, or an object with knobs of its own, such as
        :class:`~skdpadmm.algorithms.ConsensusADMM`.
    scale : {"private", None}, default=None
        "private" spends 3 % of the squared budget on a noisy histogram of row norms, and brings the
        columns without `feature_bounds` to the scale that the defaults expect.
    conditioning : {"auto", "private", None}, default="auto"
        "private" spends a share of the budget on a noisy second-moment matrix of the rows, and
        works in coordinates in which it is near the identity. "auto" does so where the algorithm
        can use it and there are at most 1,000 parameters. None spends nothing.
    max_iter : int, default=100
        Length of the private iteration, fixed in advance; objective perturbation has none. More
        steps need more noise in each, and the defaults shorten them in turn.
    sampler : {"floating-point", "opendp"}, default="floating-point"
        Source of noise. "opendp" resists attacks on floating-point arithmetic; it needs the extra
        ``skdpadmm[secure]`` and takes no seed.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws noise from the operating system. Anything else makes the fit a simulation. Noise
        also depends on the plan: other parameters, or a later version, draw another.
    n_jobs : int, default=None
        Number of threads. The result does not depend on it.
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
        Coefficients, in the units of `X` and `y`.
    intercept_ : float
        Intercept.
    n_iter_ : int
        Number of iterations.
    n_samples_seen_ : int
        Number of records that have arrived. Only after streams: see `partial_fit`.
    privacy_ : PrivacyReport
        Who sees what, and what guarantee each gets.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where `X` has names that are all strings.

    See Also
    --------
    sklearn.linear_model.Lasso : The same objective without privacy.
    skdpadmm.algorithms.GradientADMM : With ``schedule="stream"``, for `partial_fit`.

    Notes
    -----
    **Guarantee.** Adversary "model": whoever sees the fitted model, or every released iterate.
    Unit: one record. Neighbouring: `neighboring`. `fit` is (epsilon, delta)-differentially private,
    by default by composition over all that is released: the second moment and the path; `privacy_`
    lists it and states the guarantee, and the algorithm's own documentation the theorem. It holds
    for every finite input, because contributions are clipped after they are computed. It does not
    cover transformers fitted earlier in a pipeline, scores on private data, or other fits on the
    same records.

    A fit with `random_state` set is a simulation: the noise can be recomputed from the seed.

    References
    ----------
    .. [1] E. Cyffers, A. Bellet, D. Basu, "From Noisy Fixed-Point Iterations to Private ADMM for
       Centralized and Federated Learning", ICML 2023. Algorithm 2, with noise on the released mean
       only: see :class:`~skdpadmm.algorithms.ConsensusADMM`.

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
    array([ 0.96, -1.96,  0.  ])
    >>> round(model.privacy_.epsilon(), 3)
    1.0
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **PrivateLinearRegressor._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        neighboring: str = "replace_one",
        feature_bounds: Any = None,
        target_bounds: Any = None,
        fit_intercept: bool = True,
        algorithm: Any = "consensus-admm",
        scale: str | None = None,
        conditioning: str | None = "auto",
        max_iter: int = 100,
        sampler: str = "floating-point",
        random_state: Any = None,
        n_jobs: int | None = None,
        ledger: str | None = None,
        verbose: int = 0,
    ) -> None:
        self.alpha = alpha
        self.epsilon = epsilon
        self.delta = delta
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
        self.ledger = ledger
        self.verbose = verbose

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        return L1(float(self.alpha))
