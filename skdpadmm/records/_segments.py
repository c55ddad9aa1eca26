"""Rows of many agents at once, each seen through the parameters of the agent that owns it."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

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
# What the slope of a loss reads of it.
CONSTANTS = namedtuple("CONSTANTS", "threshold smoothing")
# Compiling takes half a second: more than it saves for fewer entries of X.
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

    def compiled_sums(self, models: tuple[Floats, Floats], loss: Loss, *records: Any) -> Floats:
        """The same for clipped derivatives of a loss, in one pass over rows, if `is_compiled`.

        Targets of the records and bounds of their derivatives are given, and what rows weigh.
        """
        n_agents, n_outputs, p = models[0].shape
        models = (models[0].reshape(n_agents, p), models[1].reshape(n_agents))
        constants = constants_of(loss)
        total, sums = np.zeros((2, n_agents, p + 1))
        for own, X in self.rows.stretches(converted=False):
            known = (self.owner[own], *(values[own] for values in records))
            size = block_size(p, is_sparse=False)
            # As in `_pieces`.
            if n_agents > 1 and np.bincount(known[0]).max() <= size:
                size = len(X)
            _compiled(type(loss))(constants, np.asarray(X), known, models, size, sums, total)
        return total.reshape(n_agents, n_outputs, p + 1)

    @staticmethod
    def is_compiled(rows: Rows, loss: Loss) -> bool:
        """Whether sums can be compiled, and are worth it: decided by public facts."""
        is_large = rows.n_samples * rows.coordinates.n_features >= COMPILED_ENTRIES
        is_known = constants_of(loss) is not None and find_spec("numba") is not None
        return is_large and is_known and rows.is_contiguous and not rows.by_row

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


def constants_of(loss: Loss) -> Any:
    """What a compiled slope takes in place of its loss; None where slopes are not compiled."""
    # By exact type, because a subclass may have another derivative.
    if type(loss) not in COMPILED_LOSSES:
        return None
    return CONSTANTS(*(float(getattr(loss, name, 0.0)) for name in CONSTANTS._fields))


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


@cache
def _compiled(kind: type[Loss]) -> Any:
    """Compile at the first call of a process, with additions in any order."""
    import numba

    # Nothing is assumed of values: they may be infinite or no numbers.
    order: Any = {"reassoc", "contract", "nsz"}
    compiled: Any = numba.njit(fastmath=order, error_model="numpy", nogil=True)
    return partial(compiled(_loop), compiled(kind.slope))


def _loop(
    slope: Any, loss: Any, X: Any, known: Any, models: Any, size: int, sums: Any, total: Any
) -> None:
    (owner, target, bound, weight), (coef, constant), (n, p) = known, models, X.shape
    # Some rows at a time, which stay in a core's nearest cache: scores, slopes, sums.
    slopes, in_chain = np.empty(64), 0
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
        # Chains of additions, each of `size` rows at most.
        in_chain += stop - start
        if stop == n or in_chain + 64 > size:
            total += sums
            sums[:] = 0.0
            in_chain = 0
