"""Standard errors and confidence intervals of the coefficients of a private fit.

``DPAdmmRidge(intervals=True).fit(X, y).inference_`` has the coefficients after one debiased step,
with their covariance; the step and its releases are part of the plan and the budget of the fit
(``docs/proofs.rst``). They estimate the coefficients that least squares, or maximum likelihood,
would find in the population without a penalty, whether the linear model is right or wrong. They
predict worse than `coef_` where signal is moderate, so they stand beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from skdpadmm._document import Block, Document

__all__ = ["CoefficientInference"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class CoefficientInference(Document):
    """Debiased coefficients of a private fit, in the user's units, with their covariance.

    Attributes
    ----------
    names : tuple of str
        Of the coefficients, the intercept last where there is one.
    estimate : ndarray of shape (n_coefficients,)
    covariance : ndarray of shape (n_coefficients, n_coefficients)
        Of the estimate, sampling and noise together.
    known : ndarray of bool of shape (n_coefficients,)
        Whether the data say enough for an interval: False where a coefficient rests on directions
        in which the noise hides the variance of the rows, or where the step was too long for its
        error to be known.
    """

    names: tuple[str, ...]
    estimate: Array
    covariance: Array
    known: NDArray[np.bool_]

    @property
    def std_error(self) -> Array:
        """Standard errors, inf without an interval."""
        return np.where(self.known, np.sqrt(np.diag(self.covariance)), np.inf)

    def interval(self, level: float = 0.95) -> Array:
        """Confidence intervals of shape (n_coefficients, 2), infinite where data cannot say.

        Parameters
        ----------
        level : float, default=0.95
            In (0, 1): of each coefficient by itself.

        Returns
        -------
        ndarray of shape (n_coefficients, 2)
        """
        if not 0 < level < 1:
            raise ValueError(f"Got level={level!r}, expected a float in (0, 1), such as 0.95.")
        reach = float(ndtri(0.5 + level / 2)) * self.std_error
        return np.column_stack([self.estimate - reach, self.estimate + reach])

    def to_frame(self, level: float = 0.95, *, exponentiate: bool = False) -> Any:
        """Return a table of estimates and intervals as a DataFrame, one row for each coefficient.

        Parameters
        ----------
        level : float, default=0.95
        exponentiate : bool, default=False
            Whether to show odds ratios, or ratios of means, in place of coefficients.

        Returns
        -------
        pandas.DataFrame
        """
        import pandas as pd

        table = np.column_stack([self.estimate, self.interval(level)])
        table = np.exp(table) if exponentiate else table
        columns = ["odds ratio" if exponentiate else "estimate", "lower", "upper"]
        return pd.DataFrame(table, index=list(self.names), columns=columns)

    def _blocks(self) -> Iterator[Block]:
        yield Block("title", ["Coefficients after a debiased step, 95 % intervals"])
        rows = []
        for name, value, (low, high) in zip(
            self.names, self.estimate, self.interval(), strict=True
        ):
            has_one = np.isfinite([low, high]).all()
            text = f"{low:.4g} to {high:.4g}" if has_one else "none: noise hides what it rests on"
            rows.append((name, f"{value:.4g}", text))
        yield Block("table", ["", "estimate", "interval"], rows)


def inference_of(fitted: Any, feature_names: Sequence[str] | None) -> CoefficientInference | None:
    """What a fit says of its coefficients, where it released anything for that."""
    step, coordinates = fitted.solution.debiased, fitted.coordinates
    if step is None:
        return None
    d, p = coordinates.n_parameters, coordinates.n_features

    def in_user_units(parameters: Array) -> Array:
        coef, intercept = coordinates.to_user(parameters)
        return np.column_stack([coef, intercept])[:, :d]

    constant = in_user_units(np.zeros((d, 1)))
    jacobian = (in_user_units(np.eye(d)) - constant).T
    names = [f"x{k}" for k in range(p)] if feature_names is None else list(feature_names)
    return CoefficientInference(
        names=(*map(str, names[:p]), *(["intercept"] if coordinates.fit_intercept else [])),
        estimate=in_user_units(step.parameters)[0],
        covariance=jacobian @ step.covariance @ jacobian.T,
        known=((jacobian == 0) | step.known).all(axis=1),
    )
