"""Differentially private linear support vector classification."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from skdpadmm._linear_model import PrivateLinearClassifier
from skdpadmm._sklearn import Interval
from skdpadmm.central._streaming import StreamingModel
from skdpadmm.losses import Loss, OneVsRestHinge, SmoothedHinge
from skdpadmm.penalties import Penalty, SquaredL2


class DPAdmmLinearSVC(StreamingModel, PrivateLinearClassifier):
    r"""Differentially private linear support vector classification.

    Minimises

    .. math:: \frac12 \|W\|_F^2 + C \sum_{i=1}^n \sum_k h(y_{ik} (w_k^T x_i + b_k))

    with the hinge of a margin, its corner replaced by a parabola of width s = `smoothing`,

    .. math:: h(m) = \begin{cases} 0 & m \ge 1 \\ (1 - m)^2 / (2 s) & 1 - s \le m < 1 \\
        1 - m - s / 2 & m < 1 - s \end{cases}

    For two classes there is one k, and y is -1 or +1. For more there is one for each class, against
    all others; they are released together: a record's gradient is clipped in one joint norm, so the
    budget is not divided among the classes. Unlike :class:`sklearn.svm.LinearSVC` it does not
    penalise the intercept.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty, in (0, inf]; inf means no penalty.
    smoothing : float, default=1.0
        Width of the parabola in units of the margin, in (0, inf).
    epsilon : float, default=1.0
        Total budget of one fit, in (0, inf]. At inf the fit is exact and not private: nothing is
        clipped.
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
    classes : array-like of shape (n_classes,), default=None
        All classes there can be, which are public. None: those seen in `y` are assumed to be
        public. A declared class that is absent from `y` is no error.
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
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients, in the units of `X`.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.
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
    sklearn.svm.LinearSVC : With an unsmoothed hinge or its square, without privacy.
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
    >>> from skdpadmm import DPAdmmLinearSVC
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, size=(5000, 2))
    >>> y = np.where(X[:, 0] > X[:, 1] + rng.logistic(size=5000), "more", "less")
    >>> model = DPAdmmLinearSVC(
    ...     classes=["less", "more"], feature_bounds=(0, 10), random_state=0
    ... )
    >>> model.plan(n_samples=5000, n_features=2).guarantee().describe()
    'GDP(mu=0.2681)'
    >>> round(model.fit(X, y).score(X, y), 2)
    0.89
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **PrivateLinearClassifier._parameter_constraints,
        "C": [Interval(Real, 0, None, closed="right")],
        "smoothing": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        *,
        C: float = 1.0,
        smoothing: float = 1.0,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        neighboring: str = "replace_one",
        feature_bounds: Any = None,
        classes: ArrayLike | None = None,
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
        self.C = C
        self.smoothing = smoothing
        self.epsilon = epsilon
        self.delta = delta
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
        self.ledger = ledger
        self.verbose = verbose

    def _loss(self, n_classes: int) -> Loss:
        width = float(self.smoothing)
        return SmoothedHinge(width) if n_classes == 2 else OneVsRestHinge(n_classes, width)

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        return SquaredL2(float(1.0 / (self.C * n_samples)))
