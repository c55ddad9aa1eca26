"""One run with many canaries, each with one of two targets: which of them is guessed.

Source: Steinke, Nasr, Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023,
Algorithm 1 and Theorem 5.2, for neighbours that replace a record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard

from skdpadmm.audit._bounds import OneRun
from skdpadmm.audit._copies import coefficients_of, is_classifier, rows_of_last_step
from skdpadmm.audit._neighbors import Schema

Array = NDArray[np.float64]
# Of canaries something is said about so many, the surest ones.
SHARE = 0.25


@dataclass(frozen=True, eq=False, kw_only=True)
class Canaries:
    """Data in which some records have one of two targets, by coins that nobody knows.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
    which : ndarray of intp of shape (n_canaries,)
        Rows of canaries.
    coins : ndarray of bool of shape (n_canaries,)
        Whether a canary has the higher target.
    """

    X: Array
    y: NDArray[Any]
    which: NDArray[np.intp]
    coins: NDArray[np.bool_]

    def guess(self, model: Any, n_guesses: int) -> OneRun:
        """Guess the coins of the canaries that a model is the surest of.

        Parameters
        ----------
        model : estimator
            Fitted.
        n_guesses : int
            Decided before. Of the other canaries nothing is said.

        Returns
        -------
        OneRun
        """
        scores = self._scores(model)
        scores = scores - np.median(scores)
        surest = np.argsort(-np.abs(scores), kind="stable")[:n_guesses]
        is_right = (scores[surest] > 0) == self.coins[surest]
        return OneRun(
            n_canaries=len(self.which), n_guesses=n_guesses, n_correct=int(is_right.sum())
        )

    def _scores(self, model: Any) -> Array:
        """How far a model leans to the higher target at each canary: its gradient's direction."""
        rows = np.asarray(rows_of_last_step(model, self.X[self.which]), dtype=np.float64)
        coef, d = np.atleast_2d(coefficients_of(model)), rows.shape[1]
        if coef.shape[-1] != d:
            raise ValueError(
                f"Got coef_ of shape {coef.shape}, expected a coefficient for each of {d} features:"
                " canaries are guessed by them. Choose method='black-box'."
            )
        # Where each agent has a model, their sum leans wherever one of them does.
        coef = coef.reshape(-1, *coef.shape[-2:]).sum(axis=0) if coef.ndim > 2 else coef
        lean = coef[-1] - coef[0] if is_classifier(model) and len(coef) > 1 else coef.sum(axis=0)
        return np.asarray(rows @ lean)


def with_canaries(
    schema: Schema, n_canaries: int, rng: np.random.Generator, *, is_given: bool
) -> Canaries:
    """Hide canaries among records.

    Parameters
    ----------
    schema : Schema
    n_canaries : int
    rng : Generator
    is_given : bool
        Whether the records are a user's, which keep all rows but for the targets of canaries. Else
        canaries are all there is, in orthogonal directions where features allow it.

    Returns
    -------
    Canaries

    Raises
    ------
    ValueError
        Where there are fewer records than canaries.
    """
    X, y = schema.X.copy(), schema.y.copy()
    if n_canaries > len(X):
        raise ValueError(
            f"Got n_runs={n_canaries} canaries for {len(X)} records, expected at most as many."
        )
    which = rng.permutation(len(X))[:n_canaries]
    coins = rng.random(n_canaries) < 0.5
    if not is_given:
        signs = _directions(n_canaries, X.shape[1], rng)
        X[which] = np.where(signs, schema.corner, 2 * _centre(schema) - schema.corner)
    y[which] = np.where(coins, schema.high, schema.low)
    return Canaries(X=X, y=y, which=which, coins=coins)


def n_directions(n_canaries: int) -> int:
    """Features with which all canaries, and an intercept, are orthogonal to each other."""
    return 1 << n_canaries.bit_length()


def _directions(n_canaries: int, n_features: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Signs of features: orthogonal rows where there are enough of them, else random ones."""
    if n_features == n_directions(n_canaries):
        return np.asarray(hadamard(n_features)[1 : n_canaries + 1] > 0)
    return np.asarray(rng.integers(2, size=(n_canaries, n_features)) > 0)


def _centre(schema: Schema) -> Array:
    """What features are as far above as below."""
    differs = schema.opposite != schema.corner
    below = np.where(differs, schema.opposite, -schema.corner)
    return np.asarray(0.5 * (schema.corner + below)) if differs.any() else 0 * schema.corner
