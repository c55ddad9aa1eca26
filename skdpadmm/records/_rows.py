"""Augmented rows as blocks of a linear operator, without a copy of X."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from skdpadmm.records._basis import Basis
from skdpadmm.records._coordinates import Coordinates

# Entries beyond this are scaled down, row by row, before anything is squared or multiplied.
HUGE = 1e100
# Dense blocks of this many entries stay in a core's cache between the two passes over them.
BLOCK_ENTRIES = 2**19


def block_size(n_features: int, *, is_sparse: bool) -> int:
    """Rows in a block: a function of public facts, so that the order of every sum is public."""
    if is_sparse:
        return int(np.clip(n_features, 4096, 65536))
    return int(np.clip(BLOCK_ENTRIES // max(n_features, 1), 16, 8192))


def rounding_factor(*, n_samples: int, coordinates: Coordinates) -> float:
    """Factor by which float64 rounding can widen the sensitivity of a sum of clipped contributions.

    A sum of n vectors of norm at most C, added in any order through chains of at most `depth`
    operations, is off by at most ``depth * u * n * C`` in norm (u the unit round-off), on each of
    two neighbouring data sets, while the exact sums differ by a multiple of C. Offsets that are
    large beside their scale amplify it. The bound covers dense and sparse blocks alike.
    """
    n_features = coordinates.n_features
    largest = max(block_size(n_features, is_sparse=s) for s in (False, True))
    smallest = min(block_size(n_features, is_sparse=s) for s in (False, True))
    depth = largest + n_samples / smallest + n_features + 100
    unit_roundoff = 2.0**-53
    summing = 4.0 * n_samples * depth * unit_roundoff * coordinates.amplification
    # A clipped contribution is within 1e-12 of its bound, and a computed norm about as close.
    clipping = 1e-11
    return 1.0 + clipping + summing


class Rows:
    """Augmented rows ``a_i = r_i * ((x_i - offset) / scale, 1)`` with norms below a public bound.

    Parameters
    ----------
    X : {ndarray, CSR matrix} of shape (n_samples, n_features)
        Finite values. It is neither copied nor changed.
    coordinates : Coordinates
        Public (or, without privacy, any) offset, scale, box and bound of the norm.

    Attributes
    ----------
    weight : ndarray of shape (n_samples,)
        ``r_i = min(1, row_norm / norm)``.
    squared_norm : ndarray of shape (n_samples,)
        ``||a_i||^2`` in the basis that is used, up to rounding; without one an upper bound.
    basis : Basis or None
        What linear functions and sums of rows are expressed in, beside the coordinates.
    slices : list of slice
        The blocks.
    """

    def __init__(self, X: Any, coordinates: Coordinates) -> None:
        self.coordinates = coordinates
        self.basis: Basis | None = None
        self.n_samples = int(X.shape[0])
        self._is_sparse = sparse.issparse(X)
        size = block_size(X.shape[1], is_sparse=self._is_sparse)
        self.slices = [
            slice(start, min(start + size, self.n_samples))
            for start in range(0, self.n_samples, size)
        ]
        if self._is_sparse:
            self._check_zero_inside_box()
            self._blocks = [_csr_view(X, rows) for rows in self.slices]
        else:
            self._blocks = [X[rows] for rows in self.slices]
        # All rows in one array, where there is one that needs no copy.
        self._whole = None if self._is_sparse else X
        # Rows that must be replaced before use, by block: those outside the box or beyond HUGE.
        self._unruly: dict[int, NDArray[np.bool_]] = {}
        squared = np.empty(self.n_samples)
        for i, rows in enumerate(self.slices):
            squared[rows] = self._examine(i)
        with np.errstate(all="ignore"):
            self.weight = np.minimum(1.0, coordinates.row_norm / np.sqrt(squared))
            self.squared_norm = squared * self.weight**2

    @property
    def _dense(self) -> NDArray[np.float64] | None:
        """Dense rows of float64 in one piece; None: there are none."""
        is_dense = self._whole is not None and self._whole.dtype == np.float64
        return self._whole if is_dense else None

    def __getstate__(self) -> dict[str, Any]:
        # Views would be sent beside what they are views of.
        state = dict(self.__dict__)
        return state if self._whole is None else {**state, "_blocks": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._whole is not None:
            self._blocks = [self._whole[rows] for rows in self.slices]

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.slices)

    @property
    def typical_norm(self) -> float:
        """A public figure for the size of a row, in the basis that is used; no bound."""
        if self.basis is not None:
            return float(np.sqrt(self.basis.effective_dimension))
        return float(min(self.coordinates.row_norm, np.sqrt(self.coordinates.n_parameters)))

    @property
    def loading(self) -> NDArray[np.float64]:
        """A public figure for the mean square of each entry of a row."""
        if self.basis is not None:
            return self.basis.loading
        d = self.coordinates.n_parameters
        return np.full(d, self.typical_norm**2 / d)

    @property
    def clip_unit(self) -> float:
        """What clip bounds are relative to, a public figure: about the typical norm."""
        return self.typical_norm if self.basis is None else self.basis.clip_unit

    def in_basis(
        self, basis: Basis, over_blocks: Callable[[Callable[[int], None], int], None]
    ) -> Rows:
        """The same rows, seen in a basis.

        Parameters
        ----------
        basis : Basis
        over_blocks : callable
            Runs a function over ``range(n_blocks)``.
        """
        rows = copy(self)
        rows.basis = basis
        rows.squared_norm = np.empty(self.n_samples)
        columns = rows.prepare(np.eye(self.coordinates.n_parameters))

        def measure(block: int) -> None:
            seen = rows.scores(block, columns)
            np.einsum("ij,ij->i", seen, seen, out=rows.squared_norm[rows.slices[block]])

        over_blocks(measure, self.n_blocks)
        return rows

    def part(self, blocks: range) -> Rows:
        """Neighbouring blocks by themselves, without a copy; they make the same bits as here.

        Parameters
        ----------
        blocks : range
        """
        first = self.slices[blocks[0]].start
        rows = slice(first, self.slices[blocks[-1]].stop)
        part = copy(self)
        part.n_samples = rows.stop - first
        part.slices = [
            slice(self.slices[b].start - first, self.slices[b].stop - first) for b in blocks
        ]
        part._blocks = [self._blocks[b] for b in blocks]
        part._whole = None if self._whole is None else self._whole[rows]
        part._unruly = {b - blocks[0]: self._unruly[b] for b in blocks if b in self._unruly}
        part.weight, part.squared_norm = self.weight[rows], self.squared_norm[rows]
        return part

    def take(self, groups: Sequence[slice | NDArray[np.intp]]) -> Rows:
        """Groups of rows as blocks; copied, unless a group is a slice within one block.

        Parameters
        ----------
        groups : sequence of (slice or ndarray of intp)
            Rows of each block, ascending.
        """
        taken = copy(self)
        starts = np.array([rows.start for rows in self.slices])
        taken._blocks, taken._unruly, taken.slices = [], {}, []
        taken._whole = None
        stop = 0
        for number, group in enumerate(groups):
            pieces, unruly = self._pieces(group, starts)
            stack = sparse.vstack if self._is_sparse else np.concatenate
            block = pieces[0] if len(pieces) == 1 else stack(pieces)
            taken._blocks.append(block)
            taken.slices.append(slice(stop, stop + block.shape[0]))
            stop += block.shape[0]
            if unruly.any():
                taken._unruly[number] = unruly
        taken.n_samples = stop
        if len(groups) == 1:
            taken.weight = self.weight[groups[0]]
            taken.squared_norm = self.squared_norm[groups[0]]
        else:
            taken.weight = np.concatenate([self.weight[group] for group in groups])
            taken.squared_norm = np.concatenate([self.squared_norm[group] for group in groups])
        return taken

    def _pieces(
        self, group: slice | NDArray[np.intp], starts: NDArray[np.intp]
    ) -> tuple[list[Any], NDArray[np.bool_]]:
        """Rows of a group, block by block, and which of them are unruly."""
        inside: list[tuple[int, Any]]
        if isinstance(group, slice):
            first, last = np.searchsorted(starts, [group.start, group.stop - 1], side="right") - 1
            inside = [
                (
                    b,
                    slice(
                        max(group.start - int(starts[b]), 0),
                        min(group.stop, self.slices[b].stop) - int(starts[b]),
                    ),
                )
                for b in range(int(first), int(last) + 1)
            ]
        else:
            first = np.append(np.searchsorted(group, starts), len(group)).tolist()
            inside = [
                (b, group[low:high] - starts[b])
                for b, (low, high) in enumerate(pairwise(first))
                if low < high
            ]
        pieces = [self._blocks[b][rows] for b, rows in inside]
        unruly = [
            self._unruly[b][rows] if b in self._unruly else np.zeros(piece.shape[0], dtype=bool)
            for (b, rows), piece in zip(inside, pieces, strict=True)
        ]
        return pieces, np.concatenate(unruly)

    def to_coordinates(self, parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        """Parameters of the basis that is used, in public coordinates."""
        return parameters if self.basis is None else self.basis.transform @ parameters

    def from_coordinates(self, parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        """Parameters of public coordinates, in the basis that is used."""
        return parameters if self.basis is None else self.basis.inverse @ parameters

    def prepare(self, parameters: NDArray[np.float64]) -> tuple[NDArray[np.float64], Any]:
        """Raw coefficients and constant of a linear function given in the basis that is used.

        Parameters
        ----------
        parameters : ndarray of shape (n_parameters,) or (n_parameters, n_outputs)
        """
        coordinates = self.coordinates
        parameters = self.to_coordinates(parameters)
        coef = (parameters[: coordinates.n_features].T / coordinates.scale).T
        constant = -coordinates.offset @ coef
        if coordinates.fit_intercept:
            constant = constant + parameters[-1]
        return coef, constant

    def scores(self, block: int, prepared: tuple[NDArray[np.float64], Any]) -> NDArray[np.float64]:
        """``a_i @ parameters`` for the rows of a block, of shape (rows,) or (rows, n_outputs)."""
        coef, constant = prepared
        X, unruly = self._block(block), self._unruly.get(block)
        if unruly is None:
            scores = np.asarray(X @ coef)
        else:
            with np.errstate(all="ignore"):
                scores = np.asarray(X @ coef)
            scores[unruly] = self._tamed(X[unruly]) @ coef
        scores += constant
        scores *= _as_column(self.weight[self.slices[block]], scores)
        return scores

    def adjoint(self, block: int, slopes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Raw part of ``sum_i slopes_i a_i`` over a block; sum over blocks, then call `collect`.

        Parameters
        ----------
        block : int
        slopes : ndarray of shape (rows,) or (rows, n_outputs)

        Returns
        -------
        ndarray of shape (n_features + 1,) or (n_features + 1, n_outputs)
        """
        X, unruly = self._block(block), self._unruly.get(block)
        weighted = slopes * _as_column(self.weight[self.slices[block]], slopes)
        raw = np.empty((self.coordinates.n_features + 1, *slopes.shape[1:]))
        raw[-1] = weighted.sum(axis=0)
        if unruly is None:
            raw[:-1] = X.T @ weighted
        else:
            # Unruly rows are added by themselves: the sum of the others keeps its bits.
            of_unruly = self._tamed(X[unruly]).T @ weighted[unruly]
            weighted[unruly] = 0.0
            raw[:-1] = X.T @ weighted
            raw[:-1] += of_unruly
        return raw

    def collect(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn a sum of adjoints into the basis that is used, of shape (n_parameters, ...)."""
        coordinates = self.coordinates
        total = ((raw[:-1].T - coordinates.offset * raw[-1:].T) / coordinates.scale).T
        if coordinates.fit_intercept:
            total = np.concatenate([total, raw[-1:]])
        return total if self.basis is None else self.basis.transform.T @ total

    def tame(self, block: int) -> Any:
        """A block in float64 without unruly rows; a copy only of one that has some.

        Parameters
        ----------
        block : int

        Returns
        -------
        {ndarray, CSR matrix} of shape (rows, n_features)
            Rows inside the box, in the units of X.
        """
        X, unruly = self._block(block), self._unruly.get(block)
        if unruly is None:
            return X
        tamed = self._tamed(X[unruly])
        if self._is_sparse:
            X = X.copy()
            X.data[np.repeat(unruly, np.diff(X.indptr))] = tamed.data
        else:
            X = np.copy(X)  # keeps its order, and so the bits of sums
            X[unruly] = tamed
        return X

    def stretches(self) -> Iterator[tuple[slice, Any]]:
        """All rows as `tame` gives them, in arrays as long as they are without a copy.

        Yields
        ------
        rows : slice
        X : {ndarray, CSR matrix} of shape (rows, n_features)
        """
        alone = [self._dense is None or block in self._unruly for block in range(self.n_blocks)]
        block = 0
        while block < self.n_blocks:
            last = block
            while not alone[block] and last + 1 < self.n_blocks and not alone[last + 1]:
                last += 1
            rows = slice(self.slices[block].start, self.slices[last].stop)
            together = None if alone[block] or self._dense is None else self._dense[rows]
            yield rows, self.tame(block) if together is None else together
            block = last + 1

    def augmented(self, block: int) -> NDArray[np.float64]:
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

    def seen(self, block: int) -> NDArray[np.float64]:
        """The augmented rows of a block in the basis that is used, dense, (rows, n_parameters)."""
        rows = self.augmented(block)
        return rows if self.basis is None else np.asarray(rows @ self.basis.transform)

    def columns(self, block: int) -> Callable[[int], NDArray[np.float64]]:
        """Access to single columns of the augmented rows of a block, in public coordinates.

        A dense block is read in place, the stored entries of a sparse one are copied once.

        Parameters
        ----------
        block : int

        Returns
        -------
        callable
            Maps the index of a parameter to an ndarray of shape (rows,).
        """
        coordinates, weight = self.coordinates, self.weight[self.slices[block]]
        raw = self._sparse_column(block) if self._is_sparse else self._dense_column(block)

        def column(index: int) -> NDArray[np.float64]:
            if index == coordinates.n_features:
                return weight
            values = raw(index)
            values -= coordinates.offset[index]
            values /= coordinates.scale[index]
            values *= weight
            return values

        return column

    def _dense_column(self, block: int) -> Callable[[int], NDArray[np.float64]]:
        X, unruly = self._blocks[block], self._unruly.get(block)
        if unruly is None:
            return lambda index: X[:, index].astype(np.float64)
        lower, upper = self.coordinates.lower, self.coordinates.upper
        inside = np.clip(X[unruly].astype(np.float64), lower, upper)
        shrink = np.maximum(np.abs(inside).max(axis=1) / HUGE, 1.0)

        def column(index: int) -> NDArray[np.float64]:
            values = X[:, index].astype(np.float64)
            values[unruly] = np.clip(values[unruly], lower[index], upper[index]) / shrink
            return values

        return column

    def _sparse_column(self, block: int) -> Callable[[int], NDArray[np.float64]]:
        X = self.tame(block).tocsc()

        def column(index: int) -> NDArray[np.float64]:
            stored = slice(X.indptr[index], X.indptr[index + 1])
            values = np.zeros(X.shape[0])
            values[X.indices[stored]] = X.data[stored]
            return values

        return column

    def _block(self, block: int) -> Any:
        """A block in float64; never a copy of one that is."""
        return self._blocks[block].astype(np.float64, copy=False)

    def _tamed(self, X: Any) -> Any:
        """Unruly rows, moved into the box and scaled down to entries of at most HUGE."""
        lower, upper = self.coordinates.lower, self.coordinates.upper
        if isinstance(X, np.ndarray):
            inside = np.clip(X, lower, upper)
            return inside / np.maximum(np.abs(inside).max(axis=1, keepdims=True) / HUGE, 1.0)
        X = X.copy()
        rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        inside = np.clip(X.data, lower[X.indices], upper[X.indices])
        peak = np.zeros(X.shape[0])
        np.maximum.at(peak, rows, np.abs(inside))
        X.data = inside / np.maximum(peak / HUGE, 1.0)[rows]
        return X

    def _examine(self, block: int) -> NDArray[np.float64]:
        """Squared norms of a block's augmented rows before weighting; notes its unruly rows."""
        coordinates = self.coordinates
        X = self._blocks[block].astype(np.float64, copy=False)
        if self._is_sparse:
            rows, columns, values = (
                np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)),
                X.indices,
                X.data,
            )
            outside = (values < coordinates.lower[columns]) | (values > coordinates.upper[columns])
            unruly = np.zeros(X.shape[0], dtype=bool)
            unruly[rows[outside | (np.abs(values) > HUGE)]] = True
        else:
            low, high = X.min(axis=1), X.max(axis=1)
            unruly = np.maximum(-low, high) > HUGE
            if np.isfinite(coordinates.lower).any():
                unruly |= ((coordinates.lower > X) | (coordinates.upper < X)).any(axis=1)
        squares = self._sparse_squares if self._is_sparse else self._dense_squares
        with np.errstate(all="ignore"):
            squared = squares(X)
        if unruly.any():
            self._unruly[block] = unruly
            squared[unruly] = squares(self._tamed(X[unruly]))
        return squared + float(coordinates.fit_intercept)

    def _dense_squares(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        coordinates = self.coordinates
        if coordinates.offset.any() or (coordinates.scale != 1.0).any():
            X = (X - coordinates.offset) / coordinates.scale
        return np.asarray(np.einsum("ij,ij->i", X, X))

    def _sparse_squares(self, X: Any) -> NDArray[np.float64]:
        """Squared norms of centred rows, not made dense: stored entries, then the zeros."""
        offset, scale = self.coordinates.offset, self.coordinates.scale
        rows, columns = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.indices
        of_zero = (offset / scale) ** 2
        stored = ((X.data - offset[columns]) / scale[columns]) ** 2
        at_zero = np.bincount(rows, weights=of_zero[columns], minlength=X.shape[0])
        at_stored = np.bincount(rows, weights=stored, minlength=X.shape[0])
        # The difference cancels, so it is rounded up: a norm that is too small clips too little.
        total = of_zero.sum()
        slack = 2.0**-52 * (X.shape[1] + 100) * total
        return np.asarray(at_stored + np.maximum(total - at_zero, 0.0) + slack)

    def _check_zero_inside_box(self) -> None:
        lower, upper = self.coordinates.lower, self.coordinates.upper
        if np.any(lower > 0) or np.any(upper < 0):
            raise ValueError(
                "Got feature_bounds that exclude 0 for sparse X, expected lower <= 0 <= upper: the"
                " entries that are not stored are zeros. Widen the bounds or pass a dense X."
            )


def _csr_view(X: Any, rows: slice) -> Any:
    """A block of rows of a CSR matrix that shares its data, unless entries are repeated.

    Products add repeated entries up, so norms have to see their sum. The block is a new matrix,
    which looks for them itself: the flag of `X` may be stale.
    """
    start, stop = X.indptr[rows.start], X.indptr[rows.stop]
    indptr = X.indptr[rows.start : rows.stop + 1] - start
    # The constructor would copy a part of a larger array.
    block = sparse.csr_matrix((rows.stop - rows.start, X.shape[1]), dtype=X.dtype)
    block.data, block.indices, block.indptr = X.data[start:stop], X.indices[start:stop], indptr
    if not block.has_canonical_format:
        block = block.copy()
        with np.errstate(all="ignore"):
            block.sum_duplicates()
        # Sums of finite entries can leave the range of floats.
        np.nan_to_num(block.data, copy=False)
    return block


def _as_column(weight: NDArray[np.float64], like: NDArray[np.float64]) -> NDArray[np.float64]:
    return weight if like.ndim == 1 else weight[:, None]
