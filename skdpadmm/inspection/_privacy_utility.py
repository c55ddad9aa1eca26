"""A display of scores against epsilon."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import partial, update_wrapper
from inspect import signature
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn import linear_model, svm
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_scalar
from sklearn.utils.parallel import Parallel, delayed

from skdpadmm._pipelines import last_step, prefix_of
from skdpadmm.algorithms import ALGORITHMS
from skdpadmm.exceptions import PrivacyWarning
from skdpadmm.inspection._display import Display, require_pyplot, write_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_IN_PERCENT = ("accuracy", "balanced_accuracy")
_ANSWERS = ("predict", "predict_proba", "predict_log_proba", "decision_function")
# Estimators there are named as those of scikit-learn for the same model, after a prefix.
_COUNTERPARTS = ("skdpadmm.central", "skdpadmm.federated")
_NOTE = "This picture is not private: {} seeds are known and one line has no noise."


@dataclass(kw_only=True, eq=False, repr=False)
class PrivacyUtilityDisplay(Display):
    """A score against epsilon, with lines of a model without privacy and of a constant one.

    Make it by `from_estimator`. Parameters are stored as attributes.

    Parameters
    ----------
    epsilons : array-like of shape (n_epsilons,)
        Budgets of one fit, ascending.
    scores : array-like of shape (n_epsilons, n_seeds)
        Scores of the fits of each budget.
    non_private_scores : array-like of shape (n_fits,)
        Scores without privacy.
    constant_score : float
        Score of the best constant prediction.
    non_private_name : str, default="epsilon=inf"
        Whose scores these are.
    name, score_name, epsilon_name, note : str
        Name of the fitted model, labels of the axes, and a note below them.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    lines_, fill_between_ : list of Line2D and list of PolyCollection
        The mean score against epsilon, and the band: one standard deviation of the scores over
        seeds to either side, which shows noise rather than rows. No band for a single seed.
    baselines_, note_ : list of Line2D and Text
        The mean without privacy and the constant; and the note.

    Notes
    -----
    **The line without privacy** shows the better of two models, and the legend names it: the
    estimator at ``epsilon=inf``, with its own parameters and the exact optimum, or scikit-learn's
    counterpart with its defaults, after a `StandardScaler`. At ``epsilon=inf`` a model without a
    penalty can overfit and be less accurate than a private one. If scikit-learn has no counterpart,
    or rows have an `agent_column`, it is the estimator.

    **No guarantee.** Draw this picture from public data, or for people who may see the rows: seeds
    are known, one fit has no noise, and scores on private rows are exact. A choice by such scores
    is outside every guarantee, too; :class:`~skdpadmm.model_selection.DPGridSearchCV` makes a
    private one.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmRidge
    >>> from skdpadmm.inspection import PrivacyUtilityDisplay
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(2000, 2))
    >>> model = DPAdmmRidge(feature_bounds=(-1, 1), target_bounds=(-2, 2))
    >>> PrivacyUtilityDisplay.from_estimator(
    ...     model, X, X.sum(axis=1), epsilons=[0.1, 1.0], n_seeds=3
    ... )  # doctest: +SKIP
    <...>
    """

    epsilons: NDArray[np.float64]
    scores: NDArray[np.float64]
    non_private_scores: NDArray[np.float64]
    constant_score: float
    name: str | None = None
    score_name: str = "score"
    epsilon_name: str = "epsilon"
    note: str = ""
    non_private_name: str = "epsilon=inf"

    def __post_init__(self) -> None:
        for name in ("epsilons", "scores", "non_private_scores"):
            setattr(self, name, np.asarray(getattr(self, name), dtype=np.float64))

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        epsilons: ArrayLike = (0.1, 0.3, 1.0, 3.0, 10.0),
        n_seeds: int = 5,
        X_test: Any = None,
        y_test: ArrayLike | None = None,
        agents: ArrayLike | None = None,
        agents_test: ArrayLike | None = None,
        scoring: Any = None,
        score_name: str | None = None,
        random_state: int = 0,
        n_jobs: int | None = None,
        ax: Axes | None = None,
        name: str | None = None,
        plot_baselines: bool = True,
    ) -> Self:
        """Fit clones with several budgets and seeds, and draw their scores on other rows.

        Parameters
        ----------
        estimator : estimator
            With the parameters `epsilon` and `random_state`, which are replaced in clones, or a
            Pipeline that ends in one. It must have no ledger: these fits are simulations.
        X : {array-like, sparse matrix, DataFrame} of shape (n_samples, n_features)
            Rows to fit, and without `X_test` to score.
        y : array-like of shape (n_samples,)
        epsilons : array-like of shape (n_epsilons,), default=(0.1, 0.3, 1.0, 3.0, 10.0)
            Budgets, distinct, in (0, inf); a line without privacy is drawn in any case.
        n_seeds : int, default=5
            Number of fits of each budget, all on the same rows.
        X_test : {array-like, sparse matrix, DataFrame} of shape (n_test, n_features), default=None
            Public rows to score. None: a random quarter of `X` is held out, of each agent's rows if
            there are agents.
        y_test : array-like of shape (n_test,), default=None
        agents : array-like of shape (n_samples,), default=None
            Owner of each row, for estimators whose `fit` takes it.
        agents_test : array-like of shape (n_test,), default=None
            The same for `X_test`. If `predict` takes agents, each row is predicted by its agent's
            own model; None uses the average model.
        scoring : str, callable or None, default=None
            None: the accuracy of a classifier in percent, R2 of a regressor. A name or callable as
            in scikit-learn; "neg_mean_absolute_error" and others that begin with "neg" are drawn as
            errors.
        score_name : str, default=None
            Label of the vertical axis, such as "mean absolute error in EUR"; None is that of
            `scoring`.
        random_state : int, default=0
            First seed, at least 0, which the others follow, and the seed of the held-out rows.
        n_jobs : int, default=None
            Number of fits at a time; None is 1, -1 all processors.
        ax, name, plot_baselines : object
            As in `plot`.

        Raises
        ------
        ImportError, ValueError
            Before any fit: without matplotlib (``skdpadmm[plot]``), or where an argument is not
            valid.
        """
        require_pyplot()
        prefix = _prefix(estimator)
        budgets = _budgets(epsilons)
        check_scalar(n_seeds, "n_seeds", Integral, min_val=1)
        check_scalar(random_state, "random_state", Integral, min_val=0)
        scorer, factor, scoring_name = _score(estimator, scoring)
        train, test = (X, y, agents), (X_test, y_test, agents_test)
        if X_test is None and y_test is None:
            train, test = _split(train, int(random_state))
        elif X_test is None or y_test is None:
            raise ValueError("Got one of X_test and y_test, expected both, or none of them.")

        # An algorithm object would run itself, where the line without privacy is the optimum.
        names = {kind: name for name, kind in ALGORITHMS.items()}
        by_name = {
            parameter: names[type(value)]
            for parameter, value in estimator.get_params().items()
            if type(value) in names and not value.exact
        }

        def at(epsilon: float, seed: int) -> Any:
            changed: dict[str, Any] = {f"{prefix}epsilon": epsilon, f"{prefix}random_state": seed}
            if math.isinf(epsilon):
                changed |= by_name
            return clone(estimator).set_params(**changed)

        # Without privacy first: what is refused there is refused before long work.
        scores = Parallel(n_jobs=n_jobs)(
            delayed(_fit_and_score)(
                # Fits that differ in their seed have one plan: the first one warns of it.
                *(at(epsilon, seed), train, test, scorer, f"{prefix}agents", seed > random_state)
            )
            for epsilon in (math.inf, *budgets.tolist())
            for seed in range(random_state, random_state + n_seeds)
        )
        scores = factor * np.array(scores, dtype=np.float64).reshape(1 + len(budgets), n_seeds)
        constant = _constant(estimator, scoring).fit(train[0], train[1])
        last = last_step(estimator)
        non_private, non_private_name = scores[0], "epsilon=inf"
        if (counterpart := _counterpart(estimator, prefix, issparse(X))) is not None:
            rows = ((*train[:2], None), (*test[:2], None))
            score = factor * _fit_and_score(counterpart, *rows, scorer, "")
            if (score - non_private.mean()) * factor > 0:
                public_name = type(last_step(counterpart)).__name__
                non_private, non_private_name = np.array([score]), f"scikit-learn's {public_name}"
        about = "its scores are of private rows," if X_test is None else "the"
        display = cls(
            epsilons=budgets,
            scores=scores[1:],
            non_private_scores=non_private,
            non_private_name=non_private_name,
            constant_score=factor * float(scorer(constant, test[0], test[1])),
            name=type(last).__name__,
            score_name=scoring_name if score_name is None else score_name,
            epsilon_name=_epsilon_name(last),
            note=_NOTE.format(about),
        )
        return display.plot(ax, name=name, plot_baselines=plot_baselines)

    def plot(
        self, ax: Axes | None = None, *, name: str | None = None, plot_baselines: bool = True
    ) -> Self:
        """Draw mean scores with a band of one standard deviation over seeds to either side.

        Parameters
        ----------
        ax : Axes, default=None
            Where to draw; None makes a figure. Curves of several displays can share axes.
        name : str, default=None
            Name of the curve; None is that of the display.
        plot_baselines : bool, default=True
            Whether to draw the lines of the model without privacy and of the constant.
        """
        ax = self._axes(ax, 6.4, 4.8)
        n_seeds, mean = self.scores.shape[1], self.scores.mean(axis=1)
        label = self.name if name is None else name
        if n_seeds > 1:
            label = f"{label}: mean ± standard deviation, {n_seeds} seeds"
        self.lines_ = ax.plot(self.epsilons, mean, marker="o", label=label)
        self.fill_between_: list[Any] = []
        self.baselines_: list[Any] = []
        if n_seeds > 1:
            spread = self.scores.std(axis=1, ddof=1)
            low, high, color = mean - spread, mean + spread, self.lines_[0].get_color()
            band = ax.fill_between(self.epsilons, low, high, alpha=0.25, linewidth=0, color=color)
            self.fill_between_.append(band)
        if plot_baselines:
            for score, words, dashes in (
                (self.non_private_scores.mean(), f"not private: {self.non_private_name}", "--"),
                (self.constant_score, "constant model", ":"),
            ):
                line = ax.axhline(float(score), color="0.35", linestyle=dashes, label=words)
                self.baselines_.append(line)
        ax.set_xscale("log")
        # Budgets of curves that are there already are kept.
        lines = [line for line in ax.get_lines() if line.get_transform() == ax.transData]
        ticks = np.unique(np.concatenate([line.get_xdata() for line in lines]))
        ax.set_xticks(ticks, [f"{epsilon:g}" for epsilon in ticks])
        ax.minorticks_off()
        ax.set_xlabel(self.epsilon_name)
        ax.set_ylabel(self.score_name)
        # Once where curves share axes.
        notes = [text for text in ax.texts if text.get_text().replace("\n", " ") == self.note]
        self.note_ = notes[0] if notes else write_below(ax, self.note)
        ax.legend(fontsize=9)
        return self


def _counterpart(estimator: Any, prefix: str, is_sparse: bool) -> Any:
    """The estimator with scikit-learn's own in place of the private one; None: there is none."""
    private = last_step(estimator)
    own = [kind.__name__ for kind in type(private).__mro__ if kind.__module__ in _COUNTERPARTS]
    name = own[0].removeprefix("DPAdmm").removeprefix("DPFed") if own else ""
    public = getattr(linear_model, name, None) or getattr(svm, name, None)
    if public is None or getattr(private, "agent_column", None) is not None:
        return None
    scaled = make_pipeline(StandardScaler(with_mean=not is_sparse), public())
    return clone(estimator).set_params(**{prefix[:-2]: scaled}) if prefix else scaled


class _AskedByAgent:
    """A fitted model that predicts each row by the model of its agent; scorers know no agents."""

    def __init__(self, model: Any, agents: NDArray[Any]) -> None:
        self._model, self._agents = model, agents

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._model, name)
        if name not in _ANSWERS:
            return value
        takes_agents = "agents" in signature(getattr(last_step(self._model), name)).parameters
        # With its name, which scorers ask for.
        return update_wrapper(partial(value, agents=self._agents), value) if takes_agents else value


# Rows, their targets, and whose they are.
_Rows = tuple[Any, Any, Any]


def _fit_and_score(
    model: Any, train: _Rows, test: _Rows, scorer: Any, agents_name: str, is_silent: bool = False
) -> float:
    X, y, agents = train
    # Only fits without privacy have such a warning, and no line is worth it.
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        if is_silent:
            warnings.simplefilter("ignore", PrivacyWarning)
        model.fit(X, y, **({} if agents is None else {agents_name: agents}))
    X, y, agents = test
    return float(scorer(model if agents is None else _AskedByAgent(model, agents), X, y))


def _split(rows: _Rows, seed: int) -> tuple[_Rows, _Rows]:
    """Rows to fit and rows to score: a quarter of those of each agent."""
    given = rows[:2] if rows[2] is None else rows
    parts = train_test_split(*given, stratify=rows[2], test_size=0.25, random_state=seed)
    parts += [None] * (2 * (3 - len(given)))
    return tuple(parts[::2]), tuple(parts[1::2])


def _score(estimator: Any, scoring: Any) -> tuple[Any, float, str]:
    """A scorer, the factor of its scores, and their name after that."""
    if scoring is None:
        scoring = "accuracy" if is_classifier(estimator) else "r2"
    scorer = check_scoring(estimator, scoring=scoring)
    if not isinstance(scoring, str):
        return scorer, 1.0, getattr(scoring, "__name__", "score").replace("_", " ")
    name = "R2" if scoring == "r2" else scoring.removeprefix("neg_").replace("_", " ")
    if scoring in _IN_PERCENT:
        return scorer, 100.0, f"{name} in percent"
    return scorer, -1.0 if scoring.startswith("neg_") else 1.0, name


def _constant(estimator: Any, scoring: Any) -> Any:
    """The best constant model: of absolute errors the median."""
    if is_classifier(estimator):
        return DummyClassifier(strategy="prior")
    is_absolute = isinstance(scoring, str) and scoring.endswith("absolute_error")
    return DummyRegressor(strategy="median" if is_absolute else "mean")


def _prefix(estimator: Any) -> str:
    """The prefix of parameters of the private step."""
    prefix = prefix_of(estimator)
    known = estimator.get_params() if hasattr(estimator, "get_params") else {}
    if not {f"{prefix}epsilon", f"{prefix}random_state"} <= set(known):
        raise ValueError(
            f"Got {type(last_step(estimator)).__name__}, expected an estimator with the parameters"
            " epsilon and random_state, or a Pipeline that ends in one."
        )
    for name, value in known.items():
        if name.split("__")[-1] == "ledger" and value is not None:
            raise ValueError(
                f"Got an estimator with {name}={value!r}, expected None: fits of a picture are"
                f" simulations with known seeds. Use clone(estimator).set_params({name}=None)."
            )
    return prefix


def _epsilon_name(last: Any) -> str:
    """What the horizontal axis says, from what is public."""
    adversary, delta = getattr(last, "adversary", None), getattr(last, "delta", None)
    against = f" against the {adversary}" if isinstance(adversary, str) else ""
    return f"epsilon of a fit{against}" + ("" if delta is None else f" (delta={delta:g})")


def _budgets(epsilons: ArrayLike) -> NDArray[np.float64]:
    budgets = np.sort(np.asarray(epsilons, dtype=np.float64).ravel())
    valid = budgets.size and np.isfinite(budgets).all() and budgets[0] > 0
    if not valid or len(np.unique(budgets)) < len(budgets):
        raise ValueError(
            f"Got epsilons={epsilons!r}, expected distinct numbers in (0, inf). The fit at inf is"
            " drawn in any case."
        )
    return budgets
