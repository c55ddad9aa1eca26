"""What ADMM splits: parameters x, what the penalty sees y, and the constraint that ties them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from skdpadmm.algorithms._contract import penalty_operator
from skdpadmm.penalties import (
    L1,
    ElasticNet,
    LinearConstraint,
    NoPenalty,
    Penalty,
    SquaredL2,
)
from skdpadmm.records import Coordinates, Rows

Operator = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Splitting:
    """``A x + B y = c`` in public coordinates, with the steps that it makes possible.

    All of it follows from public facts.

    Attributes
    ----------
    n_constraints : int
        Rows of A.
    smallest, largest : float
        Singular values of A, rounded to the safe side.
    forward, adjoint : callable
        ``A x`` and ``A' v``.
    resolvent : callable
        Maps a weight to the map ``(I + weight A'A)^-1``.
    penalised : callable
        Maps a weight beta to ``w -> argmin_y g(y) - <w, B y> + beta / 2 ||B y - c||^2``.
    image : callable
        ``B y - c``.
    solution : callable
        Maps x and y to parameters: those of y where they say more than x.
    """

    n_constraints: int
    smallest: float
    largest: float
    forward: Operator
    adjoint: Operator
    resolvent: Callable[[float], Operator]
    penalised: Callable[[float], Operator]
    image: Operator
    solution: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True, kw_only=True)
class SplittingFacts:
    """What a plan has to know of A.

    Attributes
    ----------
    smallest, largest : float
        Singular values, rounded to the safe side.
    is_square : bool
    """

    smallest: float
    largest: float
    is_square: bool


def splitting_facts(
    penalty: Penalty, coordinates: Coordinates, constraint: LinearConstraint | None
) -> SplittingFacts:
    """What of A follows from the schema alone.

    Parameters
    ----------
    penalty : Penalty
    coordinates : Coordinates
    constraint : LinearConstraint or None
    """
    tied = _in_coordinates(penalty, coordinates, constraint)
    if tied is None:
        return SplittingFacts(smallest=1.0, largest=1.0, is_square=True)
    # A penalty of another number of variables says so before there is data.
    tied[1].value(np.zeros(tied[0].n_auxiliary))
    return SplittingFacts(
        smallest=tied[0].smallest_singular_value,
        largest=tied[0].largest_singular_value,
        is_square=tied[0].n_constraints == coordinates.n_parameters,
    )


def splitting_of(penalty: Penalty, rows: Rows, constraint: LinearConstraint | None) -> Splitting:
    """How a penalty, or a constraint of the user's, splits the parameters of a problem.

    A penalty of the coefficients themselves is split as ``x - y = 0``, intercept and all. One of a
    linear image D of them, as the generalised lasso's, is split as ``D x - y = 0``: y is that
    image.

    Parameters
    ----------
    penalty : Penalty
        Already divided by the square of the target's scale.
    rows : Rows
        Only what is public about them is used.
    constraint : LinearConstraint or None
        On the user's coefficients, without the intercept; then `penalty` is that of y.

    Returns
    -------
    Splitting
    """
    coordinates = rows.coordinates
    tied = _in_coordinates(penalty, coordinates, constraint)
    if tied is None:
        return _identity(penalty, rows)
    made, inner = tied
    offset = np.zeros(made.n_constraints) if made.c is None else made.c

    def solution(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        if constraint is not None:
            return x
        # The nearest x whose image is y, so that what is sparse there is so in the answer.
        dense = made.forward(np.eye(len(x)))
        return x + np.asarray(np.linalg.lstsq(dense, y - dense @ x, rcond=None)[0])

    return Splitting(
        n_constraints=made.n_constraints,
        smallest=made.smallest_singular_value,
        largest=made.largest_singular_value,
        forward=made.forward,
        adjoint=made.adjoint,
        resolvent=made.resolvent,
        penalised=lambda weight: made.y_step(inner, weight),
        image=lambda y: made.B_dot(y) - (offset if y.ndim == offset.ndim else offset[:, None]),
        solution=solution,
    )


def thresholds(
    penalty: Penalty, coordinates: Coordinates, weight: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """The proximal step on public coordinates where it is one of single numbers.

    Parameters
    ----------
    penalty : Penalty
    coordinates : Coordinates
    weight : float
        One over the step.

    Returns
    -------
    threshold, divisor : ndarray of shape (n_parameters,)
        The step is ``sign(v) max(|v| - threshold, 0) / divisor``. None: it is another.
    """
    l1 = l2 = 0.0
    if isinstance(penalty, L1):
        l1 = penalty.strength
    elif isinstance(penalty, SquaredL2):
        l2 = penalty.strength
    elif isinstance(penalty, ElasticNet):
        l1, l2 = penalty.l1, penalty.l2
    elif not isinstance(penalty, NoPenalty):
        return None
    scale = coordinates.coefficient_scale
    threshold, divisor = np.zeros(coordinates.n_parameters), np.ones(coordinates.n_parameters)
    threshold[: len(scale)] = l1 * scale / weight
    divisor[: len(scale)] = 1.0 + l2 * scale**2 / weight
    return threshold, divisor


def _identity(penalty: Penalty, rows: Rows) -> Splitting:
    """``x - y = 0`` in public coordinates, where a proximal step has the metric of the units."""

    def same(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return x

    def resolvent(weight: float) -> Operator:
        return lambda v: v / (1.0 + weight)

    def penalised(weight: float) -> Operator:
        apply = penalty_operator(penalty, 1.0 / weight, rows)
        return lambda w: apply((-w / weight).reshape(len(w), -1)).reshape(w.shape)

    return Splitting(
        n_constraints=rows.coordinates.n_parameters,
        smallest=1.0,
        largest=1.0,
        forward=same,
        adjoint=same,
        resolvent=resolvent,
        penalised=penalised,
        image=np.negative,
        solution=lambda x, y: y,
    )


def _in_coordinates(
    penalty: Penalty, coordinates: Coordinates, constraint: LinearConstraint | None
) -> tuple[LinearConstraint, Penalty] | None:
    """The constraint on parameters in public coordinates, and the penalty of y; None: x = y."""
    matrix, inner = penalty.splitting()
    # A penalty of no image at all is none.
    if constraint is None and (matrix is None or matrix.shape[0] == 0):
        return None
    scale = coordinates.coefficient_scale
    given = LinearConstraint(matrix) if constraint is None else constraint
    inner = inner if constraint is None else penalty
    A = sparse.eye_array(len(scale)) if given.A is None else given.A
    if A.shape[1] != len(scale):
        raise ValueError(
            f"Got a matrix with {A.shape[1]} columns for {len(scale)} features, expected one"
            " column for each."
        )
    A = sparse.csr_array(A) @ sparse.diags_array(scale)
    if coordinates.fit_intercept:
        A = sparse.hstack([A, sparse.csr_array((A.shape[0], 1))])
    c = given.c
    if c is not None and c.ndim == 2 and c.shape[1] == 1:
        # One column for all outputs, of which there is one.
        c = c[:, 0]
    return LinearConstraint(sparse.csr_array(A), given.B, c), inner
