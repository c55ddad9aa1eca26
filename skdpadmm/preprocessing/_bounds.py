"""Ranges and categories of columns, by noisy histograms."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri

from skdpadmm._chunks import is_collection
from skdpadmm._document import Block, Document
from skdpadmm._numbers import require, round_up
from skdpadmm._sklearn import discreet
from skdpadmm._statistics import STATISTICS, plan_statistics, run_statistics
from skdpadmm.noise import GRID_CELL
from skdpadmm.privacy import PrivacyReport
from skdpadmm.protocol import Gate

from ._table import _EXACT, Entry, PublicTableTransformer, _has_commas, _plain

Array = NDArray[np.float64]
# Public bins of magnitudes: 64 in each octave from 2^-20 to 2^40. Smaller ones count as 0, larger
# ones as the largest.
_EDGES = 2.0 ** (np.arange(60 * 64 + 1) / 64 - 20)
# Histograms of each column: how many bins are joined, and the weight of counts. Joining noisy
# counts would add up their noise, so quarters of octaves have counts of their own.
_LEVELS = ((1, 0.5), (16, 1.0))
_MERGED = (1, 2, 4, 8)
_N_COUNTS = 1 + sum(2 * len(_EDGES[::size]) - 1 for size, _ in _LEVELS)
# What a column adds to the squared sensitivity, where one count changes at each level.
_SQUARED = sum(weight**2 for _, weight in _LEVELS)
# Probability that noise alone looks like rows in an empty place of some column.
_FALSE_ALARM = 0.05
# Part of delta for the threshold of categories.
_OF_DELTA = 0.1


@dataclass(frozen=True, eq=False, repr=False)
class PrivateBounds(Document):
    """Ranges and categories of columns that `private_bounds` released.

    Attributes
    ----------
    schema : dict
        By name of the column, or by position: a pair (lower, upper), or a list of categories. It is
        what `PublicTableTransformer` takes, and has no columns that noise hides.
    shares : dict
        For each range about the share of rows that it holds: below `coverage` where noise hides
        the others.
    hidden : tuple
        Columns for which noise hides more than half of the rows, or every category.
    privacy_ : PrivacyReport
        Its guarantee, and what was spent.

    See Also
    --------
    private_bounds : Release them.
    """

    schema: dict[Any, Any]
    shares: dict[Any, float]
    hidden: tuple[Any, ...]
    privacy_: PrivacyReport

    @property
    def feature_bounds(self) -> Any:
        """What estimators take: a dict by name, or all lower and all upper bounds of an array.

        A ValueError names columns of numbers that noise hides: declare their ranges, or leave them
        out of X. `schema` has the others.
        """
        ranges = self._ranges()
        if all(isinstance(key, str) for key in ranges):
            return ranges
        return tuple(np.array(list(ranges.values())).T)

    @property
    def target_bounds(self) -> tuple[float, float]:
        """The range of the only column."""
        ranges = list(self._ranges().values())
        require(len(ranges) == 1, "columns", len(ranges), "one: use private_bounds(y, ...)")
        return ranges[0]

    def _ranges(self) -> dict[Any, tuple[float, float]]:
        if self.hidden:
            raise ValueError(
                f"Got columns {list(self.hidden)} that noise hides, expected a range for each."
                " Declare theirs from a code book, {**bounds.schema, column: (lower, upper)}, ask"
                " for fewer columns, or spend a larger epsilon."
            )
        return {key: entry for key, entry in self.schema.items() if isinstance(entry, tuple)}

    def _blocks(self) -> Iterator[Block]:
        yield Block("title", ["Private bounds of columns"])
        rows = [
            (str(key), f"{entry[0]:.6g} to {entry[1]:.6g}", f"{100 * self.shares[key]:.0f} %")
            if isinstance(entry, tuple)
            else (str(key), f"{len(entry)} categories: {', '.join(map(str, entry))}", "")
            for key, entry in self.schema.items()
        ]
        rows += [
            (str(key), "no numbers, or hidden by noise: look in a code book", "")
            for key in self.hidden
        ]
        yield Block("table", ["column", "found", "holds about"], rows)
        yield from self.privacy_._blocks()


@discreet
def private_bounds(
    X: Any,
    epsilon: float,
    *,
    delta: float = 1e-5,
    coverage: float = 0.95,
    categories: Sequence[Any] = (),
    neighboring: str = "replace_one",
    random_state: Any = None,
    sampler: str = "floating-point",
    ledger: str | os.PathLike[str] | None = None,
) -> PrivateBounds:
    r"""Release ranges and categories of columns, where no code book has them.

    Each column has a histogram over public bins: 0, and quarters and 64ths of octaves of magnitudes
    from 2^-20 to 2^40, with a sign. Gaussian noise is added to all counts of all columns at once;
    ranges and all that follows is computed from noisy counts.

    Parameters
    ----------
    X : {DataFrame, array-like} of shape (n_samples, n_columns) or (n_samples,)
        The columns, or the target alone. Entries that are no numbers are missing.
    epsilon : float
        The budget of this release, in (0, inf]. At inf nothing is private.
    delta : float, default=1e-5
        In (0, 1), well below ``1 / n_samples``.
    coverage : float, default=0.95
        In (0, 1): the share of rows that a range should hold. What is left out is clipped by a fit;
        the same share is cut from both ends.
    categories : sequence of str or int, default=()
        Columns of categories, by name or position: the others are numbers. Columns of few numbers
        may be categories; those of 0 and 1 need neither, as their range is public.
    neighboring : {"replace_one", "zero_out"}, default="replace_one"
        A record that is zeroed out is in no bin and has no category.
    random_state : int, RandomState instance, Generator or None, default=None
        None draws noise from the operating system. Anything else makes the release a simulation.
    sampler : {"floating-point", "opendp"}, default="floating-point"
    ledger : str, path-like or None, default=None
        The account that the release is counted in, before data is read.

    Returns
    -------
    bounds : PrivateBounds
        With `feature_bounds`, `target_bounds`, and `schema` for `PublicTableTransformer`. It prints
        what was found, and its report.

    Raises
    ------
    ValueError
        If a parameter is not valid, X is sparse, or a text in a column of numbers is one but for
        commas.
    PrivacyBudgetExceeded
        If a limit of the ledger would be passed; no data was read then.

    See Also
    --------
    PublicTableTransformer : Map a table by a schema.

    Notes
    -----
    **Guarantee.** Unit: one record; adversary "model", whoever sees the result. One record changes
    two counts of each histogram by one. Counts of fine bins have the weight 1/2, so for p columns
    of numbers and q of categories the Euclidean sensitivity is :math:`\sqrt{2.5 p + 2 q}` for
    replace-one, and :math:`\sqrt{1.25 p + q}` for zero-out; the noise has this over mu as standard
    deviation, for the mu of (epsilon, delta).

    Categories are those that occur and whose noisy count is above a threshold. A category of the
    changed record alone must not show: a tenth of delta is the probability that one does,
    :math:`q \, Q((t - 1) / s)`, and its complement is Gaussian with the rest. The report has the
    mixture.

    A range is read from the finest bins, joined in groups, of which those above the noise hold
    ``(1 + coverage) / 2`` of the rows, else from those that hold most. With a probability of 95 %
    no group counts that has no row.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skdpadmm.preprocessing import private_bounds
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({"age": rng.uniform(20, 70, 5000)})
    >>> table["city"] = rng.choice(["Bergen", "Oslo"], 5000)
    >>> bounds = private_bounds(table, 1.0, categories=["city"], random_state=0)
    >>> low, high = bounds.schema["age"]
    >>> f"{low:.1f} to {high:.1f}", bounds.schema["city"]
    ('19.0 to 76.1', ['Bergen', 'Oslo'])
    """
    require(0 < coverage < 1, "coverage", coverage, "a float in (0, 1), such as 0.95")
    keys, columns = _columns(X)
    unknown = [key for key in categories if key not in keys]
    require(not unknown, "categories", unknown, f"columns of X, from {keys}")
    numbers = [key for key in keys if key not in categories]
    named = [key for key in keys if key in categories]
    n_samples = len(columns[keys[0]])
    n_bins, changes = len(numbers) * _N_COUNTS, 2 if neighboring == "replace_one" else 1
    lost = _OF_DELTA * delta if named else 0.0
    plan = plan_statistics(
        "private_bounds",
        # No more categories than rows.
        (n_bins + len(named) * n_samples,),
        math.sqrt(changes * (_SQUARED * len(numbers) + len(named))),
        epsilon=epsilon,
        delta=delta,
        neighboring=neighboring,
        n_samples=n_samples,
        schema=repr((numbers, named)),
        lost=lost,
    )
    # With probability `lost` at most, a category of the changed record alone is above it.
    threshold, noise_std = 0.0, plan.releases[0].noise_std
    if named and noise_std:
        threshold = 1 + noise_std * (GRID_CELL - float(ndtri(lost / len(named))))

    def release(gate: Gate) -> dict[Any, Any]:
        counted = [_counted(columns[key]) for key in named]
        # Each category has one place; places without one are not looked at.
        places = [np.pad([*each.values(), 0.0], (0, n_samples))[:n_samples] for each in counted]
        counts = np.concatenate([*(_counts(columns[key]) for key in numbers), *places])
        noisy = gate.release(STATISTICS, counts)
        entries = {
            key: _range(row, noise_std, n_samples, coverage, len(numbers))
            for key, row in zip(numbers, noisy[:n_bins].reshape(-1, _N_COUNTS), strict=True)
        }
        rows = noisy[n_bins:].reshape(-1, n_samples)
        entries |= {
            key: [value for value, n in zip(each, row, strict=False) if n > threshold]
            for key, each, row in zip(named, counted, rows, strict=True)
        }
        return {key: entries[key] for key in keys}

    entries, report = run_statistics(
        plan,
        release,
        sees=f"ranges{f' and categories, from about {round_up(threshold)} rows on' * bool(named)}",
        assumptions=("Names of columns, and which are of categories, are public.",),
        random_state=random_state,
        sampler=sampler,
        ledger=ledger,
    )
    hidden = tuple(key for key, each in entries.items() if not each)
    shares = {key: each[1] for key, each in entries.items() if isinstance(each, tuple)}
    schema = {key: each[0] if key in shares else each for key, each in entries.items() if each}
    return PrivateBounds(schema, shares, hidden, report)


def _columns(X: Any) -> tuple[list[Any], dict[Any, NDArray[Any]]]:
    """Names or positions of columns, and their entries as they came."""
    if sparse.issparse(X) or is_collection(X):
        raise ValueError(
            f"Got X as {type(X).__name__}, expected a DataFrame or an array of few columns: noise"
            " grows with the root of their number. Pass those that need bounds."
        )
    X = X.to_frame() if hasattr(X, "to_frame") and len(X.shape) == 1 else X
    X = X if hasattr(X, "columns") else np.asarray(X, dtype=getattr(X, "dtype", object))
    X = X[:, None] if len(X.shape) == 1 else X
    names = list(getattr(X, "columns", ()))
    is_named = bool(names) and all(isinstance(name, str) for name in names)
    keys = names if is_named else list(range(X.shape[1]))
    reader = PublicTableTransformer(dict.fromkeys(keys, bool))
    return keys, dict(zip(keys, reader._rows(X), strict=True))


def _counts(values: NDArray[Any]) -> Array:
    """Missing entries, then weighted counts of the bins of each level, from the most negative."""
    entries = _plain(values, are_numbers=True)
    numbers = np.array([each if isinstance(each, float) else np.nan for each in entries])
    seen = numbers[~np.isnan(numbers)]
    nearest = np.searchsorted(_EDGES, np.abs(seen)).clip(max=len(_EDGES) - 1)
    counts = [np.array([float(len(numbers) - len(seen))])]
    for size, weight in _LEVELS:
        last = len(_EDGES[::size]) - 1
        bins = np.sign(seen).astype(np.intp) * -(-nearest // size)
        counts.append(weight * np.bincount(bins + last, minlength=2 * last + 1))
    return np.concatenate(counts)


def _range(
    noisy: Array, noise_std: float, n_samples: int, coverage: float, n_columns: int
) -> tuple[tuple[float, float], float] | None:
    """The range of the bins that hold the rows, and their share, from noisy counts alone."""
    n_rows = n_samples - noisy[0]
    most, result = max(0.5 * n_rows, 0.0), None
    for sums, std, edges in _groupings(noisy[1:], noise_std):
        rare = _FALSE_ALARM / (n_columns * len(_LEVELS) * len(_MERGED) * len(sums))
        least = -float(ndtri(rare)) * std
        # Where noise alone may reach half of the rows, all is noise.
        kept = np.where(sums > least, sums, 0.0) * (least <= 0.5 * n_rows)
        if (total := float(kept.sum())) > most:
            most = total
            lowers = np.concatenate([-edges[:0:-1], [0.0], edges[:-1]])
            # As much at both ends; of it, what noise hides is cut already.
            cut = max((n_rows * (1 - coverage) - max(n_rows - total, 0.0)) / 2, 0.0)
            first = np.searchsorted(np.cumsum(kept), cut, side="right")
            end = np.searchsorted(np.cumsum(kept), total - cut)
            low, high = float(lowers[first]), float(0.0 - lowers[::-1][end])
            low, high = (low, high) if low < high else (-float(_EDGES[0]), float(_EDGES[0]))
            result = (low, high), float(min(kept[first : end + 1].sum() / n_rows, 1.0))
        if most >= n_rows * (1 + coverage) / 2:
            break
    return result


def _groupings(levels: Array, noise_std: float) -> Iterator[tuple[Array, float, Array]]:
    """Counts of groups of bins from negative to positive, their noise, and edges of magnitudes."""
    for size, weight in _LEVELS:
        last = len(_EDGES[::size]) - 1
        negative, zero, positive, levels = np.split(levels, [last, last + 1, 2 * last + 1])
        for merged in _MERGED:
            sides = [side.reshape(-1, merged).sum(axis=1) for side in (negative, positive)]
            edges = _EDGES[:: size * merged].copy()
            edges[0] = 0.0
            sums = np.concatenate([sides[0], zero, sides[1]]) / weight
            yield sums, noise_std / weight * math.sqrt(merged), edges


def _counted(values: NDArray[Any]) -> dict[str | int, int]:
    """How often each category occurs that a schema can have, in an order of theirs."""
    counts = Counter[Any](map(_category, _plain(values, are_numbers=False)))
    del counts[None]
    return {entry: counts[entry] for entry in sorted(counts, key=str)}


def _category(entry: Entry) -> str | int | None:
    """A text or a whole number, or None."""
    if isinstance(entry, float):
        return int(entry) if entry.is_integer() and abs(entry) < _EXACT else None
    # A subclass of str, as of numpy, would be released as it is.
    return None if not entry or _has_commas([entry]) else str.__str__(entry)
