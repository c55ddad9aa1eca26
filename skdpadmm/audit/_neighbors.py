"""Data sets of audits: worst-case neighbours, canaries, and checks of given neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard
from sklearn.pipeline import Pipeline

from skdpadmm._pipelines import last_step
from skdpadmm.audit import _trials
from skdpadmm.audit._bounds import OneRun

Array = NDArray[np.float64]
# Default bounds of targets, of estimators of this library and of others.
OURS, OTHERS = (-3.0, 3.0), (-1.0, 1.0)
N_RECORDS, N_AGENTS, OF_AGENT = 4, 4, 3
# The share of canaries that is guessed, the surest ones.
SHARE = 0.25


@dataclass(frozen=True, eq=False, kw_only=True)
class Neighbors:
    """Two data sets that differ in one unit, in words in `differ`."""

    first: tuple[Any, Any]
    second: tuple[Any, Any]
    fit_params: dict[str, Any]
    differ: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Schema:
    """Public facts about data for an estimator."""

    X: Array
    # At their bounds, alternating: models stay near zero, where derivatives are large.
    y: NDArray[Any]
    # The targets that are the farthest apart.
    low: Any
    high: Any
    # The largest row, and one that is as long and points elsewhere.
    corner: Array
    opposite: Array
    fit_params: dict[str, Any]
    # Rows of the unit in which neighbours differ.
    changed: NDArray[np.intp]
    # Whether rows may be of any size; what learns from them before a clip takes none that is huge.
    is_clipped: bool


def schema_of(
    estimator: Any, X: Any, y: Any, fit_params: dict[str, Any], n_features: int, n_samples: int = 0
) -> Schema:
    """Read public facts from an estimator, and make the data that are not given."""
    if (X is None) != (y is None):
        raise ValueError("Got X without y or y without X, expected both or none of them.")
    fit_params, whole, estimator = dict(fit_params), estimator, last_step(estimator)
    # Bounds of a last step are about rows that other steps have made.
    of_rows = estimator if whole is estimator else None
    bounds, norm = (getattr(of_rows, name, None) for name in ("feature_bounds", "row_norm"))
    if X is None:
        parts = _trials.estimators_in(whole)
        if isinstance(bounds, dict) or any(isinstance(part, Pipeline) for part in parts):
            raise ValueError(
                "Got no data for an estimator with named columns or a Pipeline in it, expected X"
                " and y: what is public of its rows is not known. Pass data of that shape, which"
                " may be made up, or its last step: of a search best_estimator_."
            )
        agents = fit_params.get("agents")
        if hasattr(estimator, "agent_column") and agents is None:
            n_agents = getattr(estimator, "n_agents", None)
            n_agents = int(n_agents) if isinstance(n_agents, Integral) else N_AGENTS
            agents = np.repeat(np.arange(n_agents), OF_AGENT)
        if agents is not None:
            if n_samples:
                agents = np.sort(np.resize(np.unique(np.asarray(agents)), n_samples))
            fit_params["agents"] = agents
        n_samples = n_samples or (N_RECORDS if agents is None else len(agents))
        if bounds is not None:
            n_features = max(np.size(bound) for bound in bounds)
        corner, opposite = _corners(bounds, norm, n_features)
        rows = np.tile(corner, (n_samples, 1))
    else:
        rows = np.array(X, dtype=np.float64)
        n_samples = len(rows)
        bounds = None if isinstance(bounds, dict) else bounds
        largest = np.abs(rows).max() if bounds is None and norm is None else 1.0
        corner, opposite = (largest * row for row in _corners(bounds, norm, rows.shape[1]))
    low, high = _ends(estimator, y)
    targets = np.where(np.arange(n_samples) % 2 == 0, high, low) if y is None else np.array(y)
    return Schema(
        X=rows, y=targets, low=low, high=high, corner=corner, opposite=opposite,
        fit_params=fit_params, changed=_changed(estimator, fit_params, n_samples),
        is_clipped=whole is estimator,
    )  # fmt: skip


def _corners(bounds: Any, norm: float | None, n_features: int) -> tuple[Array, Array]:
    """The largest row, and one that is as long where features lie around zero."""
    signs = np.where(np.arange(n_features) % 2 == 0, -1.0, 1.0)
    if bounds is None:
        largest = 1.0 if norm is None else norm / np.sqrt(n_features)
        return np.full(n_features, largest), largest * signs
    low, high = (np.broadcast_to(np.asarray(b, np.float64), (n_features,)) for b in bounds)
    return high.copy(), np.where(signs < 0, low, high)


def _ends(estimator: Any, y: Any) -> tuple[Any, Any]:
    """The two targets that are the farthest apart."""
    if _trials.is_classifier(estimator):
        declared = getattr(estimator, "classes", None)
        known = np.unique([0, 1] if y is None else np.asarray(y))
        known = known if declared is None else np.unique(np.asarray(declared))
        return known[0], known[-1]
    ends = getattr(estimator, "target_bounds", OTHERS)
    low, high = OURS if ends is None else ends
    return float(low), float(high)


def _changed(estimator: Any, fit_params: dict[str, Any], n_samples: int) -> NDArray[np.intp]:
    """Rows of the unit that is protected: the last one, which nothing follows, or its agent's."""
    if getattr(estimator, "privacy_unit", "record") != "agent":
        return np.array([n_samples - 1])
    agents = _trials.given_agents(fit_params)
    if agents is None:
        raise ValueError("Got privacy_unit='agent', expected a label for each row. Pass agents=...")
    return np.flatnonzero(np.asarray(agents) == agents[-1])


def worst_case_neighbors(schema: Schema) -> Iterator[Neighbors]:
    """Pairs of data sets, the likeliest worst case first."""
    changed, corner, high, low = schema.changed, schema.corner, schema.high, schema.low
    what = "one record" if len(changed) == 1 else "the records of one agent"

    def with_unit(row: Any, target: Any) -> tuple[Any, Any]:
        X, y = schema.X.copy(), schema.y.copy()
        X[changed], y[changed] = row, target
        return X, y

    huge = np.where(schema.opposite > 0, 1e300, -1e300)
    for row, target, words in (
        (corner, low, "the opposite target"),
        (schema.opposite, low, "another row as long, and the opposite target"),
        (schema.opposite, high, "another row as long"),
        (huge, low, "a huge row, and the opposite target"),
        (np.zeros_like(corner), high, "a row of zeros"),
    ):
        if row is not huge or schema.is_clipped:
            yield Neighbors(
                first=with_unit(corner, high), second=with_unit(row, target),
                fit_params=schema.fit_params, differ=f"{what}, which has {words}",
            )  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class Canaries:
    """Data in which the rows `which` have one of two targets, by secret coins.

    Source: Steinke, Nasr, Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023,
    Algorithm 1 and Theorem 5.2, for neighbours that replace a record.
    """

    X: Array
    y: NDArray[Any]
    which: NDArray[np.intp]
    coins: NDArray[np.bool_]

    def guess(self, model: Any) -> OneRun:
        """Guess the coins of the canaries that a fitted model is the surest of: a fixed share."""
        n_guesses = max(int(SHARE * len(self.which)), 1)
        scores = self._scores(model)
        scores = scores - np.median(scores)
        surest = np.argsort(-np.abs(scores), kind="stable")[:n_guesses]
        n_correct = int(np.sum((scores[surest] > 0) == self.coins[surest]))
        return OneRun(n_canaries=len(self.which), n_guesses=n_guesses, n_correct=n_correct)

    def _scores(self, model: Any) -> Array:
        """How far a model leans to the higher target at each canary: its gradient's direction."""
        rows: Any = self.X[self.which]
        while isinstance(model, Pipeline):
            rows = model[:-1].transform(rows) if len(model) > 1 else rows
            model = model[-1]
        rows = np.asarray(rows, dtype=np.float64)
        coef, d = np.atleast_2d(_trials.coefficients_of(model)), rows.shape[1]
        if coef.shape[-1] != d:
            raise ValueError(
                f"Got coef_ of shape {coef.shape}, expected a coefficient for each of {d} features:"
                " canaries are guessed by them. Choose method='black-box'."
            )
        # Where each agent has a model, their sum leans wherever one of them does.
        coef = coef.reshape(-1, *coef.shape[-2:]).sum(axis=0) if coef.ndim > 2 else coef
        has_classes = _trials.is_classifier(model) and len(coef) > 1
        return np.asarray(rows @ (coef[-1] - coef[0] if has_classes else coef.sum(axis=0)))


def with_canaries(
    schema: Schema, n_canaries: int, rng: np.random.Generator, *, is_given: bool
) -> Canaries:
    """Hide canaries among records: of a user's rows targets change, others are canaries alone."""
    X, y = schema.X.copy(), schema.y.copy()
    if n_canaries > len(X):
        raise ValueError(
            f"Got n_runs={n_canaries} canaries for {len(X)} records, expected at most as many."
        )
    which = rng.permutation(len(X))[:n_canaries]
    coins = rng.random(n_canaries) < 0.5
    if not is_given:
        other = np.where(schema.opposite != schema.corner, schema.opposite, -schema.corner)
        X[which] = np.where(_directions(n_canaries, X.shape[1], rng), schema.corner, other)
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


def require_neighbors(
    estimator: Any, first: tuple[Any, Any], second: tuple[Any, Any], fit_params: dict[str, Any]
) -> None:
    """Refuse data sets that differ in more than a record, or where agents are the unit an agent."""
    tables = [_table(*data) for data in (first, second)]
    names = [list(getattr(X, "columns", ())) for X, _ in (first, second)]
    n_records = len(tables[0])
    if tables[0].shape != tables[1].shape or (all(names) and names[0] != names[1]):
        raise ValueError(
            f"Got neighbors of shapes {tables[0].shape} and {tables[1].shape}, expected the same"
            " shape and columns. Replace a record in place of leaving it out."
        )
    labels, unit = range(n_records), "record"
    if _trials.declared_by(estimator, "privacy_unit") == "agent":
        labels, unit = _trials.given_agents(fit_params), "agent"
    if labels is None or len(labels) != n_records:
        raise ValueError(
            f"Got neighbors and {'no' if labels is None else len(labels)} labels of agents with"
            f" privacy_unit='agent', expected a label for each of {n_records} rows. Pass the same"
            " agents=... for both."
        )
    units = set(np.asarray(labels)[(tables[0] != tables[1]).any(axis=1)].tolist())
    if len(units) != 1:
        raise ValueError(
            f"Got neighbors that differ in the data of {len(units)} {unit}s, expected one {unit}:"
            " nothing is claimed of more. Change one, and keep the others in their order."
        )


def _table(X: Any, y: Any) -> NDArray[Any]:
    """Records with their targets, in rows; as text, in which missing values are equal."""
    parts = [np.asarray(v.toarray() if hasattr(v, "toarray") else v, dtype=object) for v in (X, y)]
    if any(part.ndim == 0 or len(part) != len(parts[0]) for part in parts) or not len(parts[0]):
        raise ValueError(
            f"Got neighbors with X of shape {parts[0].shape} and y of shape {np.shape(y)}, expected"
            " a row and a target for each record. Pass ((X, y), (X2, y2))."
        )
    table = np.hstack([part.reshape(len(part), -1) for part in parts])
    return np.array([[repr(value) for value in row] for row in table.tolist()], dtype=object)
