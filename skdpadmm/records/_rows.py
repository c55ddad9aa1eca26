"""Augmented rows as blocks of a linear operator, without a copy of X."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import norm as sparse_norm

from skdpadmm.records._coordinates import Basis, Coordinates

Floats = NDArray[np.float64]

# Entries beyond this are scaled down, row by row, before anything is squared or multiplied.
HUGE = 1e100
# Dense blocks of this many entries stay in a core's cache between the two passes over them.
BLOCK_ENTRIES = 2**19


# A block of numbers that are no float64, converted, for each thread.
_SCRATCH = threading.local()

# What a row of a person may exceed the clip bound of the person by, before they are added up.
CANCELLATION = 64.0


def block_size(n_features: int, *, is_sparse: bool, per_unit: int = 1) -> int:
    """Rows in a block: a function of public facts, so that the order of every sum is public."""
    size = int(np.clip(BLOCK_ENTRIES // max(n_features, 1), 16, 8192))
    if is_sparse:
        size = int(np.clip(n_features, 4096, 65536))
    return max(size // per_unit, 1) * per_unit


def rounding_factor(*, n_samples: int, coordinates: Coordinates, per_unit: int = 0) -> float:
    """Factor by which float64 rounding can widen the sensitivity of a sum of clipped contributions.

    A sum of n vectors of norm at most C, added in any order through chains of at most `depth`
    operations, is off by at most ``depth * u * n * C`` in norm (u the unit round-off), on each of
    two neighbouring data sets. Offsets that are large beside their scale amplify it. The bound
    covers dense and sparse blocks alike, and chunks whose sums meet in a binary tree. Where persons
    of `per_unit` rows are clipped, rows that cancel each other are together longer than that, by
    `CANCELLATION`.
    """
    n_features, rows = coordinates.n_features, max(per_unit, 1)
    sizes = [block_size(n_features, is_sparse=is_it, per_unit=rows) for is_it in (False, True)]
    depth = max(sizes) + n_samples * rows / min(sizes) + n_features + 100
    unit_roundoff = 2.0**-53
    summing = 4.0 * n_samples * depth * unit_roundoff * coordinates.amplification
    summing *= CANCELLATION if per_unit else 1.0
    # A clipped contribution is within 1e-12 of its bound, and a computed norm about as close.
    clipping = 1e-11
    return 1.0 + clipping + summing


class Rows:
    """Augmented rows ``a_i = r_i * ((x_i - offset) / scale, 1)`` with norms below a public bound.

    Parameters
    ----------
    X : {ndarray, CSR matrix} of shape (n_samples, n_features)
        Finite values, neither copied nor changed.
    coordinates : Coordinates
    per_unit : int, default=1
        Neighbouring rows that belong together: as many are in one block.
    n_samples : int, default=None
        Number of rows, where X has none of them because they are elsewhere.

    Attributes
    ----------
    weight, squared_norm : ndarray of shape (n_samples,)
        ``r_i = min(1, row_norm / norm)``, and ``||a_i||^2`` in the basis that is used, up to
        rounding; without one an upper bound.
    basis : Basis or None
        What linear functions and sums of rows are expressed in, beside the coordinates.
    slices : list of slice
        The blocks.
    by_row : bool, default=False
        Whether scores of a row are the same bits wherever it is: BLAS goes by its place in a block.
    """

    by_row = False

    def __init__(
        self, X: Any, coordinates: Coordinates, per_unit: int = 1, n_samples: int | None = None
    ) -> None:
        self.coordinates = coordinates
        self.basis: Basis | None = None
        n = int(X.shape[0])
        self.n_samples = n if n_samples is None else n_samples
        self._is_sparse = sparse.issparse(X)
        if self._is_sparse:
            _require_zero_inside(coordinates.lower, coordinates.upper)
        size = block_size(X.shape[1], is_sparse=self._is_sparse, per_unit=per_unit)
        self.slices = [slice(start, min(start + size, n)) for start in range(0, n, size)]
        # All rows in one array, where there is one that needs no copy; otherwise those of blocks.
        self._whole = None if self._is_sparse else X
        self._blocks = [_csr_view(X, rows) for rows in self.slices] if self._is_sparse else []
        # Rows that must be replaced before use: those outside the box or beyond HUGE.
        self._unruly = np.zeros(n, dtype=bool)
        squared = np.empty(n)
        for block, rows in enumerate(self.slices):
            squared[rows] = self._examine(block)
        with np.errstate(all="ignore"):
            self.weight = np.minimum(1.0, coordinates.row_norm / np.sqrt(squared))
            # A square beyond floats leaves a weight of 0: then not inf * 0.
            self.squared_norm = np.where(self.weight > 0, squared * self.weight**2, 0.0)

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.slices)

    @property
    def is_contiguous(self) -> bool:
        """Whether the entries of each row are beside each other."""
        return self._whole is not None and bool(self._whole.flags.c_contiguous)

    @property
    def typical_norm(self) -> float:
        """A public figure for the size of a row, in the basis that is used; no bound."""
        if self.basis is not None:
            return float(np.sqrt(self.basis.loading.sum()))
        return float(min(self.coordinates.row_norm, np.sqrt(self.coordinates.n_parameters)))

    @property
    def loading(self) -> Floats:
        """A public figure for the mean square of each entry of a row."""
        if self.basis is not None:
            return self.basis.loading
        d = self.coordinates.n_parameters
        return np.full(d, self.typical_norm**2 / d)

    @property
    def clip_unit(self) -> float:
        """What clip bounds are relative to, a public figure: about that of a typical gradient."""
        unit = self.typical_norm if self.basis is None else self.basis.clip_unit
        return unit * self.coordinates.target_unit

    def in_basis(
        self, basis: Basis, over_blocks: Callable[[Callable[[int], None], int], None]
    ) -> Rows:
        """The same rows, seen in a basis; `over_blocks` runs a function over all blocks."""
        rows = copy(self)
        rows.basis = basis
        rows.squared_norm = np.empty(len(self.weight))
        columns = rows.prepare(np.eye(self.coordinates.n_parameters))

        def measure(block: int) -> None:
            seen = rows.scores(block, columns)
            np.einsum("ij,ij->i", seen, seen, out=rows.squared_norm[rows.slices[block]])

        over_blocks(measure, self.n_blocks)
        return rows

    def part(self, blocks: range) -> Rows:
        """Neighbouring blocks by themselves, without a copy, with the same bits."""
        slices = self.slices[blocks.start : blocks.stop]
        first, stop = slices[0].start, slices[-1].stop
        part = self._with_rows([slice(first, stop)])
        part.slices = [slice(rows.start - first, rows.stop - first) for rows in slices]
        part._blocks = self._blocks[blocks.start : blocks.stop]
        part._whole = None if self._whole is None else self._whole[first:stop]
        return part

    def take(self, groups: Sequence[slice | NDArray[np.intp]]) -> Rows:
        """Groups of ascending rows as blocks; a slice within one block is not copied."""
        taken = self._with_rows(groups)
        taken._blocks, taken._whole = [self._gathered(group) for group in groups], None
        stops = np.cumsum([0, *(block.shape[0] for block in taken._blocks)]).tolist()
        taken.slices = [slice(start, stop) for start, stop in pairwise(stops)]
        return taken

    def _with_rows(self, groups: Sequence[slice | NDArray[np.intp]]) -> Rows:
        """A copy with what is known of each row of these groups, without their features."""
        chosen = copy(self)
        for name in ("weight", "squared_norm", "_unruly"):
            of_groups = [getattr(self, name)[group] for group in groups]
            values = of_groups[0] if len(groups) == 1 else np.concatenate(of_groups)
            setattr(chosen, name, values)
        chosen.n_samples = len(chosen.weight)
        return chosen

    def _gathered(self, group: slice | NDArray[np.intp]) -> Any:
        """Features of a group of ascending rows in one array."""
        if self._whole is not None:
            return self._whole[group]
        starts = np.array([rows.start for rows in self.slices])
        pieces = [self._blocks[b][rows] for b, rows in _within_blocks(group, self.slices, starts)]
        stack = sparse.vstack if self._is_sparse else np.concatenate
        return pieces[0] if len(pieces) == 1 else stack(pieces)

    def to_coordinates(self, parameters: Floats) -> Floats:
        """Parameters of the basis that is used, in public coordinates."""
        return parameters if self.basis is None else self.basis.transform @ parameters

    def from_coordinates(self, parameters: Floats) -> Floats:
        """Parameters of public coordinates, in the basis that is used."""
        return parameters if self.basis is None else self.basis.inverse @ parameters

    def prepare(self, parameters: Floats) -> tuple[Floats, Any]:
        """Raw coefficients and constant of a linear function given in the basis that is used."""
        coordinates = self.coordinates
        parameters = self.to_coordinates(parameters)
        coef = (parameters[: coordinates.n_features].T / coordinates.scale).T
        constant = -coordinates.offset @ coef
        if coordinates.fit_intercept:
            constant = constant + parameters[-1]
        return coef, constant

    def scores(self, block: int, prepared: tuple[Floats, Any]) -> Floats:
        """``a_i @ parameters`` for the rows of a block, of shape (rows,) or (rows, n_outputs)."""
        coef, constant = prepared
        X, unruly = self._block(block), self._unruly[self.slices[block]]
        with np.errstate(all="ignore"):
            scores = self.product(X, coef)
        if unruly.any():
            scores[unruly] = self.product(self._tamed(X[unruly]), coef)
        scores += constant
        scores *= _as_column(self.weight[self.slices[block]], scores)
        return scores

    def product(self, X: Any, coef: Floats) -> Floats:
        """The product of some rows and a vector or matrix."""
        if not self.by_row or sparse.issparse(X):
            return np.asarray(X @ coef)
        columns = np.ascontiguousarray(coef.reshape(len(coef), -1).T)
        products = [np.einsum("ij,j->i", X, column) for column in columns]
        return np.stack(products, axis=1).reshape(len(X), *coef.shape[1:])

    def adjoint(self, block: int, slopes: Floats) -> Floats:
        """Raw part of ``sum_i slopes_i a_i`` over a block: sum over blocks, then call `collect`.

        Of shape (n_features + 1, ...), where `slopes` have shape (rows, ...).
        """
        X, unruly = self._block(block), self._unruly[self.slices[block]]
        weighted = slopes * _as_column(self.weight[self.slices[block]], slopes)
        raw = np.empty((self.coordinates.n_features + 1, *slopes.shape[1:]))
        raw[-1] = weighted.sum(axis=0)
        if not unruly.any():
            raw[:-1] = X.T @ weighted
        else:
            # Unruly rows are added by themselves: the sum of the others keeps its bits.
            of_unruly = self._tamed(X[unruly]).T @ weighted[unruly]
            weighted[unruly] = 0.0
            raw[:-1] = X.T @ weighted
            raw[:-1] += of_unruly
        return raw

    def norms_of_units(self, block: int, slopes: Floats, per_unit: int) -> Floats:
        """Norms of ``sum_i slopes_i a_i`` over each `per_unit` neighbouring rows of a block.

        For slopes of shape (rows, n_outputs). Sums of a unit have terms of its own rows alone.
        """
        coordinates, X = self.coordinates, self.tame(block)
        weighted = slopes * self.weight[self.slices[block], None]
        squared = np.zeros(len(slopes) // per_unit)
        at_once = max(BLOCK_ENTRIES // (coordinates.n_features + 1), 1)
        for first in range(0, len(squared), at_once):
            units = slice(first, min(first + at_once, len(squared)))
            rows = slice(units.start * per_unit, units.stop * per_unit)
            starts = np.arange(0, rows.stop - rows.start + 1, per_unit)
            for of_output in weighted[rows].T:
                entries = (of_output, np.arange(len(of_output)), starts)
                sums: Any = sparse.csr_array(entries, (len(starts) - 1, len(of_output)))
                features: Any = sums @ X[rows]
                dense = features.toarray() if self._is_sparse else features
                raw = np.column_stack([dense, of_output.reshape(-1, per_unit).sum(axis=1)])
                seen = self.collect(raw.T)
                squared[units] += np.einsum("ij,ij->j", seen, seen)
        return np.sqrt(squared)

    def collect(self, raw: Floats) -> Floats:
        """Turn a sum of adjoints into the basis that is used, of shape (n_parameters, ...)."""
        coordinates = self.coordinates
        total = ((raw[:-1].T - coordinates.offset * raw[-1:].T) / coordinates.scale).T
        if coordinates.fit_intercept:
            total = np.concatenate([total, raw[-1:]])
        return total if self.basis is None else self.basis.transform.T @ total

    def tame(self, block: int) -> Any:
        """A block in float64, in the units of X, inside the box; a copy only of unruly ones."""
        X, unruly = self._block(block), self._unruly[self.slices[block]]
        if not unruly.any():
            return X
        tamed = self._tamed(X[unruly])
        if self._is_sparse:
            X = X.copy()
            X.data[unruly[_row_of_entries(X)]] = tamed.data
        else:
            X = np.copy(X)  # keeps its order, and so the bits of sums
            X[unruly] = tamed
        return X

    def stretches(self, *, converted: bool = True) -> Iterator[tuple[slice, Any]]:
        """All rows as `tame` gives them, in arrays as long as they are without a copy.

        What is not `converted` to float64 has the type of X.
        """
        is_other = self._whole is None or (converted and self._whole.dtype != np.float64)
        whole = None if is_other else self._whole

        def is_copied(block: int) -> bool:
            return whole is None or bool(self._unruly[self.slices[block]].any())

        for copied, neighbours in groupby(range(self.n_blocks), is_copied):
            blocks = list(neighbours)
            if whole is None or copied:
                yield from ((self.slices[block], self.tame(block)) for block in blocks)
            else:
                rows = slice(self.slices[blocks[0]].start, self.slices[blocks[-1]].stop)
                yield rows, whole[rows]

    def augmented(self, block: int) -> Floats:
        """The augmented rows of a block in public coordinates, dense, (rows, n_parameters)."""
        coordinates = self.coordinates
        X = self.tame(block)
        dense = X.toarray() if self._is_sparse else X
        # Streams spend a good part of their time here: one array, filled in place.
        rows = np.ones((len(dense), coordinates.n_parameters))
        scaled = rows[:, : coordinates.n_features]
        np.subtract(dense, coordinates.offset, out=scaled)
        scaled /= coordinates.scale
        rows *= self.weight[self.slices[block], None]
        return rows

    def seen(self, block: int) -> Floats:
        """The augmented rows of a block in the basis that is used, dense, (rows, n_parameters)."""
        rows = self.augmented(block)
        return rows if self.basis is None else self.product(rows, self.basis.transform)

    def columns(self, block: int) -> Callable[[int], Floats]:
        """Access to single columns of the augmented rows of a block, in public coordinates.

        A dense block is read in place where no row has to be clipped; others are copied once.
        """
        coordinates, rows = self.coordinates, self.slices[block]
        weight = self.weight[rows]
        X = self.tame(block) if self._unruly[rows].any() else self._raw(block)
        X = X.tocsc() if self._is_sparse else X

        def column(index: int) -> Floats:
            if index == coordinates.n_features:
                return weight
            if self._is_sparse:
                values = np.zeros(X.shape[0])
                stored = slice(X.indptr[index], X.indptr[index + 1])
                values[X.indices[stored]] = X.data[stored]
            else:
                values = X[:, index].astype(np.float64)
            values -= coordinates.offset[index]
            values /= coordinates.scale[index]
            values *= weight
            return values

        return column

    def _raw(self, block: int) -> Any:
        """Features of a block as they were passed."""
        return self._blocks[block] if self._whole is None else self._whole[self.slices[block]]

    def _block(self, block: int) -> Any:
        """A block in float64 until its thread asks for another; never a copy of one that is."""
        X = self._raw(block)
        if self._whole is None or X.dtype == np.float64 or not X.flags.c_contiguous:
            return X.astype(np.float64, copy=False)
        # Memory that is asked for anew, as workers of dask are set up, takes longer than the block.
        if getattr(_SCRATCH, "entries", np.empty(0)).size < X.size:
            _SCRATCH.entries = np.empty(X.size)
        block_of_floats = _SCRATCH.entries[: X.size].reshape(X.shape)
        np.copyto(block_of_floats, X)
        return block_of_floats

    def _tamed(self, X: Any) -> Any:
        """Unruly rows, moved into the box and scaled down to entries of at most HUGE."""
        inside = clipped(X, self.coordinates.lower, self.coordinates.upper)
        if isinstance(X, np.ndarray):
            return inside / np.maximum(np.abs(inside).max(axis=1, keepdims=True) / HUGE, 1.0)
        peak = sparse_norm(inside, ord=np.inf, axis=1)
        inside.data /= np.maximum(peak / HUGE, 1.0)[_row_of_entries(inside)]
        return inside

    def _examine(self, block: int) -> Floats:
        """Squared norms of a block's augmented rows before weighting; notes its unruly rows."""
        lower, upper = self.coordinates.lower, self.coordinates.upper
        X, unruly = self._block(block), self._unruly[self.slices[block]]
        if self._is_sparse:
            columns, values = X.indices, X.data
            outside = (values < lower[columns]) | (values > upper[columns])
            unruly[_row_of_entries(X)[outside | (np.abs(values) > HUGE)]] = True
        else:
            unruly |= np.maximum(-X.min(axis=1), X.max(axis=1)) > HUGE
            if np.isfinite(lower).any():
                unruly |= ((lower > X) | (upper < X)).any(axis=1)
        with np.errstate(all="ignore"):
            squared = self._squares(X)
        if unruly.any():
            squared[unruly] = self._squares(self._tamed(X[unruly]))
        return squared + float(self.coordinates.fit_intercept)

    def _squares(self, X: Any) -> Floats:
        """Squared norms of centred rows; of sparse ones from stored entries, then the zeros."""
        offset, scale = self.coordinates.offset, self.coordinates.scale
        if isinstance(X, np.ndarray):
            if offset.any() or (scale != 1.0).any():
                X = (X - offset) / scale
            return np.asarray(np.einsum("ij,ij->i", X, X))
        rows, columns = _row_of_entries(X), X.indices
        of_zero = (offset / scale) ** 2
        stored = ((X.data - offset[columns]) / scale[columns]) ** 2
        at_zero = np.bincount(rows, weights=of_zero[columns], minlength=X.shape[0])
        at_stored = np.bincount(rows, weights=stored, minlength=X.shape[0])
        # The difference cancels, so it is rounded up: a norm that is too small clips too little.
        total = of_zero.sum()
        slack = 2.0**-52 * (X.shape[1] + 100) * total
        return np.asarray(at_stored + np.maximum(total - at_zero, 0.0) + slack)


def clipped(X: Any, lower: Floats, upper: Floats) -> Any:
    """A copy of rows inside a box, dense or CSR."""
    if isinstance(X, np.ndarray):
        return np.clip(X, lower, upper)
    _require_zero_inside(lower, upper)
    X = X.copy()
    X.sum_duplicates()
    X.data = np.clip(X.data, lower[X.indices], upper[X.indices])
    return X


def _require_zero_inside(lower: Floats, upper: Floats) -> None:
    if np.any(lower > 0) or np.any(upper < 0):
        raise ValueError(
            "Got feature_bounds that exclude 0 for sparse X, expected lower <= 0 <= upper: the"
            " entries that are not stored are zeros. Widen the bounds or pass a dense X."
        )


def feature_norms(X: Any, columns: NDArray[np.bool_], *, n_rows: int = 4096) -> Floats:
    """Norm of each row over some columns, without overflow and without a copy of X."""
    norms = np.empty(X.shape[0])
    for start in range(0, X.shape[0], n_rows):
        part: Any = X[start : start + n_rows].astype(np.float64)
        norm: Any = np.linalg.norm if isinstance(part, np.ndarray) else sparse_norm
        if isinstance(part, np.ndarray):
            # In C order, or a row that is alone would be rounded in another way.
            part = np.ascontiguousarray(part[:, columns])
        else:
            part.sum_duplicates()
            part.data = np.where(columns[part.indices], np.nan_to_num(part.data), 0.0)
        peak = np.maximum(norm(part, ord=np.inf, axis=1), 1e-300)
        norms[start : start + n_rows] = peak * norm(part / peak[:, None], axis=1)
    return norms


def _within_blocks(
    group: slice | NDArray[np.intp], slices: Sequence[slice], starts: NDArray[np.intp]
) -> list[tuple[int, Any]]:
    """Blocks that rows of a group are in, each with the places that they have there."""
    if isinstance(group, slice):
        first, last = np.searchsorted(starts, [group.start, group.stop - 1], side="right") - 1
        own = [(b, slices[b]) for b in range(int(first), int(last) + 1)]
        low, high = group.start, group.stop
        return [(b, slice(max(low - s.start, 0), min(high, s.stop) - s.start)) for b, s in own]
    cuts = np.append(np.searchsorted(group, starts), len(group)).tolist()
    return [
        (b, group[low:high] - starts[b])
        for b, (low, high) in enumerate(pairwise(cuts))
        if low < high
    ]


def _row_of_entries(X: Any) -> NDArray[np.intp]:
    """The row of each stored entry of a CSR matrix."""
    return np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))


def _csr_view(X: Any, rows: slice) -> Any:
    """A block of rows of a CSR matrix that shares its data, unless entries are repeated."""
    # Products add repeated entries up, so norms have to see their sum. The block is a new matrix,
    # which looks for them itself: the flag of X may be stale.
    start, stop = X.indptr[rows.start], X.indptr[rows.stop]
    # The constructor would copy a part of a larger array.
    block = sparse.csr_matrix((rows.stop - rows.start, X.shape[1]), dtype=X.dtype)
    block.data, block.indices = X.data[start:stop], X.indices[start:stop]
    block.indptr = X.indptr[rows.start : rows.stop + 1] - start
    if not block.has_canonical_format:
        block = block.copy()
        with np.errstate(all="ignore"):
            block.sum_duplicates()
        # Sums of finite entries can leave the range of floats.
        np.nan_to_num(block.data, copy=False)
    return block


def _as_column(weight: Floats, like: Floats) -> Floats:
    return weight if like.ndim == 1 else weight[:, None]
