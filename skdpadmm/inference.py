"""Standard errors, confidence intervals and tables of the coefficients of a private fit.

``DPAdmmRidge(intervals=True).fit(X, y).inference_`` has the coefficients after one debiased step,
with their covariance; the step and its releases are part of the plan and the budget of the fit.
They estimate the coefficients of least squares, or of maximum likelihood, without a penalty. They
predict worse than `coef_` where signal is moderate, so they stand beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from skdpadmm._document import Block, Document
from skdpadmm._numbers import require

__all__ = ["CoefficientInference", "summary"]

Array = NDArray[np.float64]
HIDDEN = "none: noise hides the variance that it rests on, few rows tell of it, or its step is long"
FAR = "none: the fit was too far from the optimum for one step"
TAIL = f"{FAR}, or target_bounds leave room for a long tail that noise hides"
NOT_PLANNED = "none: the fit was without intervals=True"
ASSUMED = (
    "The rows are a random sample of a population.",
    "No few rows decide a coefficient: rows far from the others and long residuals count less.",
    "Declared bounds contain nearly all values; others are clipped.",
    "Each interval holds by itself, not all of them together.",
)


@dataclass(frozen=True, eq=False, repr=False)
class CoefficientInference(Document):
    """Coefficients of a private fit with their covariance, as a table; `summary` makes it.

    Attributes
    ----------
    names, units : tuple of str
        Of the coefficients, the intercept last where there is one; what a coefficient is for.
    estimate : ndarray of shape (n_coefficients,)
        In the units of X and y; log-odds of a classifier.
    covariance : ndarray of shape (n_coefficients, n_coefficients)
        Of the estimate, sampling and noise together.
    known : ndarray of bool of shape (n_coefficients,)
        Whether the data say enough for an interval: False where a coefficient rests on directions
        in which the noise hides the variance of the rows, or where the step was too long for its
        error to be known.
    exponentiate : bool, default=False
        Whether tables have ratios in place of coefficients.
    ratio : str
        Of what they are ratios: of odds, or of rates.
    outcome : str
        Of a classifier: the class whose odds they are about, and the other one.
    reason : str
        Why coefficients that are not known have no interval.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmRidge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20_000, 2))
    >>> y = X @ [1.0, -2.0] + 0.5 * rng.standard_normal(20_000)
    >>> model = DPAdmmRidge(epsilon=3.0, feature_bounds=(-1, 1), target_bounds=(-5, 5),
    ...     intervals=True, random_state=0)
    >>> model.fit(X, y).inference_.interval(0.95)[:2].round(2)
    array([[ 0.98,  1.02],
           [-2.04, -1.98]])
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    estimate: Array
    covariance: Array
    known: NDArray[np.bool_]
    exponentiate: bool = False
    reason: str = HIDDEN
    ratio: str = "odds ratio"
    outcome: str = ""

    @property
    def std_error(self) -> Array:
        """Standard errors of `estimate`, inf without an interval."""
        return np.where(self.known, np.sqrt(np.diag(self.covariance)), np.inf)

    def interval(self, level: float = 0.95) -> Array:
        """Confidence intervals of `estimate`, infinite where the data say too little.

        Parameters
        ----------
        level : float, default=0.95
            In (0, 1): of each coefficient by itself.

        Returns
        -------
        ndarray of shape (n_coefficients, 2)
        """
        require(0 < level < 1, "level", level, "a float in (0, 1), such as 0.95")
        reach = float(ndtri(0.5 + level / 2)) * self.std_error
        return np.column_stack([self.estimate - reach, self.estimate + reach])

    def table(self, level: float = 0.95) -> Array:
        """Estimates and ends of intervals, as ratios with `exponentiate`, of shape (n, 3)."""
        table = np.column_stack([self.estimate, self.interval(level)])
        return np.exp(table) if self.exponentiate else table

    def to_frame(self, level: float = 0.95) -> Any:
        """Return the table as a pandas.DataFrame, one row for each coefficient.

        Parameters
        ----------
        level : float, default=0.95

        Returns
        -------
        pandas.DataFrame
            Columns "unit", "coefficient", "odds ratio" or "rate ratio", "lower" and "upper".
        """
        import pandas as pd

        frame = pd.DataFrame(self.table(level), index=list(self.names))
        frame.columns = [self.effect, "lower", "upper"]
        frame.insert(0, "unit", list(self.units))
        return frame

    @property
    def effect(self) -> str:
        """What the table shows."""
        return self.ratio if self.exponentiate else "coefficient"

    def _blocks(self) -> Iterator[Block]:
        yield Block("title", [f"{self.effect.capitalize()}s{self.outcome} with 95 % intervals"])
        rows = [
            (name, unit, f"{value:.4g}", f"{low:.4g} to {high:.4g}" if known else self.reason)
            for name, unit, (value, low, high), known in zip(
                self.names, self.units, self.table(), self.known, strict=True
            )
        ]
        yield Block("table", ["", "unit", self.effect, "interval"], rows)
        if self.known.any():
            yield Block("list", ["What the intervals assume:"], ASSUMED)

    def _mapped(self, jacobian: Array, **names: Any) -> CoefficientInference:
        """The same of a linear map."""
        return replace(
            self,
            estimate=jacobian @ self.estimate,
            covariance=jacobian @ self.covariance @ jacobian.T,
            known=((jacobian == 0) | self.known).all(axis=1),
            **names,
        )


def summary(model: Any, *, exponentiate: bool | None = None) -> CoefficientInference:
    """Table of the coefficients of a fitted model, in the units of the user's columns.

    Parameters
    ----------
    model : estimator or Pipeline
        Fitted, with one score: a regression, or a classifier of two classes. A pipeline may have a
        `PublicTableTransformer` before it; coefficients are then for one unit of the columns of the
        table, or of their logarithm, and of categories against values that the schema does not
        list.
    exponentiate : bool or None, default=None
        Whether to show ratios: of the odds of the second class, or of rates. None: of models of
        probabilities and of rates.

    Returns
    -------
    table : CoefficientInference
        With intervals where the model was fitted with ``intervals=True``. Without them it has
        `coef_`, otherwise the debiased coefficients. It prints as text, and as HTML in notebooks;
        `CoefficientInference.to_frame` has the numbers.

    Raises
    ------
    ValueError
        If there are more than two classes, or another step in the pipeline.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn.pipeline import make_pipeline
    >>> from skdpadmm import DPAdmmLogisticRegression
    >>> from skdpadmm.inference import summary
    >>> from skdpadmm.preprocessing import PublicTableTransformer
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"age": rng.uniform(20, 80, 20_000)})
    >>> table["smoker"] = rng.random(20_000) < 0.3
    >>> score = 0.05 * (table["age"] - 50) + 0.7 * table["smoker"]
    >>> y = score + rng.logistic(size=20_000) > 0
    >>> model = DPAdmmLogisticRegression(C=1e6, epsilon=3.0, classes=[False, True],
    ...     feature_bounds=(-1, 1), intervals=True, random_state=0)
    >>> schema = PublicTableTransformer({"age": (20, 80), "smoker": bool})
    >>> summary(make_pipeline(schema, model).fit(table, y)).to_frame().round(2)
                                  unit  odds ratio  lower  upper
    age                          per 1        1.05   1.05   1.05
    smoker                  where true        2.05   1.88   2.23
    intercept  where all columns are 0        0.08   0.07   0.09
    """
    *steps, last = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    check_is_fitted(last)
    if len(steps) > 1 or not all(hasattr(step, "_units") for step in steps):
        names = [type(step).__name__ for step in steps]
        raise ValueError(
            f"Got a pipeline with {names} before the model, expected a PublicTableTransformer or"
            " nothing: of other steps the units are not known. Pass the last step, model[-1]."
        )
    coef = np.atleast_2d(last.coef_)
    if len(coef) > 1:
        raise ValueError(
            f"Got a model of {len(coef)} scores, expected one: a regression, or two classes. Use"
            " coef_ of several classes."
        )
    is_rate = getattr(last, "_inverse_link_", None) is not None
    is_ratio = is_rate or hasattr(last, "predict_proba") if exponentiate is None else exponentiate
    found = getattr(last, "inference_", None)
    if found is None:
        estimate = np.append(coef[0], np.ravel(last.intercept_)[: int(last.fit_intercept)])
        # A column of agents has no coefficient.
        known = getattr(last, "_feature_names", lambda: getattr(last, "feature_names_in_", None))()
        found = CoefficientInference(
            **_named(known, coef.shape[1], len(estimate)),
            estimate=estimate,
            covariance=np.full((len(estimate), len(estimate)), np.nan),
            known=np.zeros(len(estimate), dtype=bool),
            reason=NOT_PLANNED,
        )
    ratio = "rate ratio" if is_rate else "odds ratio"
    other, *of = getattr(last, "classes_", ("",))
    outcome = f" of {of[0]} against {other}" if of else ""
    found = replace(found, exponentiate=bool(is_ratio), ratio=ratio, outcome=outcome)
    if not steps:
        return found
    columns, kinds, middles, halves = zip(*steps[0]._units(), strict=True)
    p = len(columns)
    jacobian = np.diag(np.append(1 / np.array(halves), np.ones(len(found.names) - p)))
    # The intercept, where there is one.
    jacobian[p:, :p] = -np.array(middles) / halves
    units = (*kinds, *found.units[p:])
    return found._mapped(jacobian, names=(*columns, *found.names[p:]), units=units)


def _named(feature_names: Any, p: int, n_coefficients: int) -> dict[str, Any]:
    """Names and units of p coefficients, and of an intercept where there is one more."""
    columns = [f"x{k}" for k in range(p)] if feature_names is None else map(str, feature_names)
    names = (*columns, *["intercept"][: n_coefficients - p])
    units = (*["per 1"] * p, *["where all columns are 0"][: n_coefficients - p])
    return {"names": names, "units": units}


def inference_of(fitted: Any, feature_names: Sequence[str] | None) -> CoefficientInference:
    """Debiased coefficients of a fit, in the units of X and y."""
    step, coordinates = fitted.solution.debiased, fitted.coordinates
    d, p = coordinates.n_parameters, coordinates.n_features

    def in_user_units(parameters: Array) -> Array:
        coef, intercept = coordinates.to_user(parameters)
        return np.column_stack([coef, intercept])[:, :d]

    constant = in_user_units(np.zeros((d, 1)))
    public = CoefficientInference(
        **_named(feature_names, p, d),
        estimate=step.parameters[:, 0],
        covariance=step.covariance,
        known=step.known & step.is_near,
        reason=HIDDEN if step.is_near else TAIL if coordinates.has_log_link else FAR,
    )
    found = public._mapped((in_user_units(np.eye(d)) - constant).T)
    return replace(found, estimate=found.estimate + constant[0])
