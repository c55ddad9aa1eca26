"""Rows of many agents at once, each seen through the parameters of the agent that owns it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from skdpadmm.losses import HuberLoss, LogisticLoss, Loss, SmoothedHinge, SquaredLoss
from skdpadmm.records._rows import Rows, block_size

Floats = NDArray[np.float64]
Owner = NDArray[np.int32]

# Parameters are gathered row by row into an array of this many entries, which stays in a core's
# cache beside the rows that they meet.
GATHERED_ENTRIES = 2**16
# A loop over fewer entries of X is not compiled: that takes a second.
COMPILED_ENTRIES = 2**24
COMPILED_LOSSES = (SquaredLoss, HuberLoss, LogisticLoss, SmoothedHinge)


@dataclass(frozen=True, eq=False, kw_only=True)
class Segments:
    """Linear functions of agents, each on its own rows, and sums over these rows.

    Nothing here loops over agents. A sum of an agent has terms of its own rows alone.
    """

    rows: Rows
    # Agent of each row (n_samples,), public.
    owner: Owner

    def sums(
        self, prepared: tuple[Floats, Floats], slopes_of: Callable[[Floats, slice], Floats]
    ) -> Floats:
        """Sum of ``slope_i a_i`` over the rows of each agent (n_agents, n_outputs, n_features + 1).

        It is raw, see `collect_agents`, and parameters are as `prepare_agents` gives them. Scores
        ``a_i @ parameters[owner_i]`` (rows, n_outputs), and the slice of rows that they are of, are
        mapped to slopes of the same shape.
        """
        coef, constant = prepared
        n_agents, n_outputs, p = coef.shape
        sums, masses = np.zeros((n_agents, n_outputs, p)), np.zeros((n_agents, n_outputs))
        # Made once: fresh memory costs as much as what is done with it.
        gathered = np.empty((max(GATHERED_ENTRIES // max(n_outputs * p, 1), 16), n_outputs, p))
        # A sum over a long stretch is begun and ended once, whatever the number of agents.
        for stretch, X in self._pieces():
            owner = self.owner[stretch]
            # Neighbouring rows often have neighbouring owners: what follows spans these alone.
            first, stop = int(owner.min()), int(owner.max()) + 1
            span, owner = slice(first, stop), owner - owner.dtype.type(first)
            weighted = np.empty((len(owner), n_outputs))
            size = len(owner) if sparse.issparse(X) else len(gathered)
            for start in range(0, len(owner), size):
                some = slice(start, min(start + size, len(owner)))
                own = slice(stretch.start + some.start, stretch.start + some.stop)
                weight = self.rows.weight[own, None]
                if sparse.issparse(X):
                    scores = _sparse_scores(X, owner, coef[span])
                else:
                    scores = _dense_scores(X[some], owner[some], coef[span], gathered)
                scores += constant[span].take(owner[some], axis=0)
                scores *= weight
                np.multiply(slopes_of(scores, own), weight, out=weighted[some])
            _add_rows(sums[span], masses[span], X, owner, weighted)
        return np.concatenate([sums, masses[..., None]], axis=2)

    def compiled_sums(
        self,
        prepared: tuple[Floats, Floats],
        loss: Loss,
        records: tuple[Floats, Floats],
        counts: NDArray[np.bool_] | None,
    ) -> Floats:
        """The same sums of derivatives of a loss, in one pass over the rows, where `is_compiled`.

        For targets of records and bounds of their derivatives; others than those that count are
        left out.
        """
        coef, constant = prepared
        n_agents, n_outputs, p = coef.shape
        known = (*records, self.rows.weight if counts is None else self.rows.weight * counts)
        total = np.zeros((n_agents, p + 1))
        # As in `_pieces`: no agent has a longer chain of additions than a block.
        n, at_once = self.rows.n_blocks, self._blocks_at_once
        for first in range(0, n, at_once):
            sums = np.zeros((n_agents, p + 1)) if at_once < n else total
            for block in range(first, min(first + at_once, n)):
                X, own = np.asarray(self.rows.inside(block)), self.rows.slices[block]
                of_rows = (X, self.owner[own], *(values[own] for values in known))
                models = (coef.reshape(n_agents, p), constant.reshape(n_agents))
                _compiled(type(loss))(Constants.of(loss), *of_rows, *models, sums)
            if at_once < n:
                total += sums
        return total.reshape(n_agents, n_outputs, p + 1)

    @cached_property
    def _blocks_at_once(self) -> int:
        rows = self.rows
        longest = block_size(rows.coordinates.n_features, is_sparse=False)
        is_short = int(np.bincount(self.owner).max(initial=0)) <= longest
        return max(rows.n_blocks, 1) if is_short else 1

    def _pieces(self) -> Iterator[tuple[slice, Any]]:
        """Stretches of rows, cut where an agent has so many that rounding of its sum counts.

        A sum within a piece is one chain of additions, and `rounding_factor` allows a block's.
        """
        for stretch, X in self.rows.stretches():
            longest = block_size(X.shape[1], is_sparse=sparse.issparse(X))
            n = stretch.stop - stretch.start
            if n > longest and np.bincount(self.owner[stretch]).max() <= longest:
                longest = n
            for start in range(0, n, longest):
                stop = min(start + longest, n)
                rows = slice(stretch.start + start, stretch.start + stop)
                yield rows, X if stop - start == n else X[start:stop]


def prepare_agents(rows: Rows, parameters: Floats) -> tuple[Floats, Floats]:
    """Raw coefficients (n_agents, n_outputs, n_features) and constants (n_agents, n_outputs).

    Of linear functions of shape (n_agents, n_parameters, n_outputs) in the basis of the rows.
    """
    n_agents, d, n_outputs = parameters.shape
    columns = parameters.transpose(1, 0, 2).reshape(d, -1)
    coef, constant = rows.prepare(columns)
    shape = (n_agents, n_outputs)
    return np.ascontiguousarray(coef.T).reshape(*shape, -1), np.reshape(constant, shape)


def collect_agents(rows: Rows, raw: Floats) -> Floats:
    """Sums of adjoints in the basis of the rows, of shape (n_agents, n_parameters, n_outputs)."""
    n_agents, n_outputs, _ = raw.shape
    columns = rows.collect(raw.reshape(n_agents * n_outputs, -1).T)
    return np.ascontiguousarray(columns.reshape(-1, n_agents, n_outputs).transpose(1, 0, 2))


def _dense_scores(X: Floats, owner: Owner, coef: Floats, gathered: Floats) -> Floats:
    """``coef[owner[i]] @ X[i]`` of no more rows than `gathered` has."""
    scores = np.empty((coef.shape[1], len(X)))
    # With mode="raise" numpy would write to a copy first. All owners are in range.
    own = coef.take(owner, axis=0, out=gathered[: len(X)], mode="clip")
    np.vecdot(X, own.transpose(1, 0, 2), out=scores)
    return scores.T


def _sparse_scores(X: Any, owner: Owner, coef: Floats) -> Any:
    """``coef[owner[i]] @ X[i]``: a product in which each agent has columns of its own."""
    n_agents, n_outputs, p = coef.shape
    columns = np.repeat(owner.astype(np.int64) * p, np.diff(X.indptr)) + X.indices
    wide = sparse.csr_array((X.data, columns, X.indptr), shape=(X.shape[0], n_agents * p))
    return wide @ coef.transpose(0, 2, 1).reshape(n_agents * p, n_outputs)


def _add_rows(sums: Floats, masses: Floats, X: Any, owner: Owner, weighted: Floats) -> None:
    """Add ``weighted[i, k]`` times X[i] and 1 to the sums and masses of ``(owner[i], k)``."""
    n, n_outputs = weighted.shape
    target = (owner[:, None] * n_outputs + np.arange(n_outputs, dtype=owner.dtype)).ravel()
    stops = np.arange(0, n * n_outputs + 1, n_outputs, dtype=owner.dtype)
    entries = (weighted.ravel(), target, stops)
    # As many entries in a column as a row has scores: rows are read where they lie, once.
    found: Any = sparse.csc_array(entries, shape=(masses.size, n)) @ X
    into = sums.reshape(masses.size, -1)
    if not isinstance(found, np.ndarray):
        entry = found.tocoo()
        into[entry.row, entry.col] += entry.data
    else:
        into += found
    masses += np.bincount(target, entries[0], masses.size).reshape(masses.shape)


class Constants(NamedTuple):
    """What slopes of losses read from them."""

    threshold: float
    smoothing: float

    @classmethod
    def of(cls, loss: Loss) -> Constants:
        """Those that a loss has."""
        return cls(*(float(getattr(loss, name, 0.0)) for name in cls._fields))


def is_compiled(rows: Rows, loss: Loss) -> bool:
    """Whether `Segments.compiled_sums` is for such rows and losses: a function of public facts."""
    is_large = rows.n_samples * rows.coordinates.n_features >= COMPILED_ENTRIES
    is_known = type(loss) in COMPILED_LOSSES and rows.is_contiguous
    return is_large and is_known and find_spec("numba") is not None


@cache
def _compiled(kind: type[Loss]) -> Any:
    """Compile at the first call of a process, with sums of floats in any order."""
    import numba

    # Without "nnan" and "ninf": nothing is assumed of values.
    options = {"fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy", "nogil": True}
    return partial(numba.njit(**options)(_loop), numba.njit(**options)(kind.slope))


def _loop(
    slope: Any,
    loss: Any,
    X: Any,
    owner: Any,
    target: Any,
    bound: Any,
    weight: Any,
    coef: Any,
    constant: Any,
    sums: Any,
) -> None:
    n, p = X.shape
    slopes = np.empty(64)
    for start in range(0, n, 64):
        stop = min(start + 64, n)
        for i in range(start, stop):
            score = 0.0
            for j in range(p):
                score += X[i, j] * coef[owner[i], j]
            slopes[i - start] = (score + constant[owner[i]]) * weight[i]
        for i in range(start, stop):
            s = slope(loss, slopes[i - start], target[i])
            s = min(max(s, -bound[i]), bound[i]) if np.isfinite(s) else 0.0
            slopes[i - start] = s * weight[i]
        for i in range(start, stop):
            s, a = slopes[i - start], owner[i]
            for j in range(p):
                sums[a, j] += s * X[i, j]
            sums[a, p] += s
