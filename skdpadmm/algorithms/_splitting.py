"""What ADMM splits: parameters x, what the penalty sees y, and the constraint that ties them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from skdpadmm.algorithms._algorithm import Operator, penalty_operator
from skdpadmm.algorithms._last_iterate import n_features, proximal_rounding
from skdpadmm.penalties import (
    L1,
    ElasticNet,
    LinearConstraint,
    NoPenalty,
    Penalty,
    SquaredL2,
)
from skdpadmm.protocol import Facts
from skdpadmm.records import Coordinates, Rows

# Of penalties of single coefficients: the strengths of their absolute values and of their halved
# squares. By exact type, because a subclass may have another proximal step.
STRENGTHS: dict[type[Penalty], Callable[[Any], tuple[float, float]]] = {
    NoPenalty: lambda penalty: (0.0, 0.0),
    L1: lambda penalty: (penalty.strength, 0.0),
    SquaredL2: lambda penalty: (0.0, penalty.strength),
    ElasticNet: lambda penalty: (penalty.l1, penalty.l2),
}


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
    return SplittingFacts(
        smallest=tied.smallest,
        largest=tied.largest,
        is_square=tied.n_constraints == coordinates.n_parameters,
    )


def y_rounding(facts: Facts, constraint: LinearConstraint | None) -> float:
    """Relative rounding error of the step of y; infinite where it is not known to be non-expansive.

    Parameters
    ----------
    facts : Facts
    constraint : LinearConstraint or None
    """
    if constraint is not None:
        return constraint.y_rounding(facts.penalty, n_features(facts))
    matrix, inner = facts.penalty.splitting()
    if matrix is None:
        return proximal_rounding(facts)
    return inner.proximal_rounding(np.ones(int(matrix.shape[0])))


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
    tied = _in_coordinates(penalty, rows.coordinates, constraint)
    return _identity(penalty, rows) if tied is None else tied


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
    strengths = STRENGTHS.get(type(penalty))
    if strengths is None:
        return None
    l1, l2 = strengths(penalty)
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
) -> Splitting | None:
    """The constraint on parameters in public coordinates, where there is one; None: x = y."""
    matrix, _ = penalty.splitting()
    # A penalty of no image at all is none.
    if constraint is None and (matrix is None or matrix.shape[0] == 0):
        return None
    scale = tuple(coordinates.coefficient_scale.tolist())
    return _tied(penalty, constraint, scale, coordinates.fit_intercept)


@lru_cache(maxsize=4)
def _tied(
    penalty: Penalty,
    constraint: LinearConstraint | None,
    coefficient_scale: tuple[float, ...],
    fit_intercept: bool,
) -> Splitting:
    """A splitting that is not ``x - y = 0``.

    Singular values and factors are most of what a short piece of a stream costs. They follow from
    public facts, so the last few are kept.
    """
    scale = np.array(coefficient_scale)
    matrix, inner = penalty.splitting()
    given = LinearConstraint(matrix) if constraint is None else constraint
    inner = inner if constraint is None else penalty
    A = sparse.eye_array(len(scale)) if given.A is None else given.A
    if A.shape[1] != len(scale):
        raise ValueError(
            f"Got a matrix with {A.shape[1]} columns for {len(scale)} features, expected one"
            " column for each."
        )
    A = sparse.csr_array(A) @ sparse.diags_array(scale)
    if fit_intercept:
        A = sparse.hstack([A, sparse.csr_array((A.shape[0], 1))])
    c = given.c
    if c is not None and c.ndim == 2 and c.shape[1] == 1:
        # One column for all outputs, of which there is one.
        c = c[:, 0]
    made = LinearConstraint(sparse.csr_array(A), given.B, c)
    # A penalty of another number of variables says so before there is data.
    inner.value(np.zeros(made.n_auxiliary))
    offset = np.zeros(made.n_constraints) if made.c is None else made.c
    return Splitting(
        n_constraints=made.n_constraints,
        smallest=made.smallest_singular_value,
        largest=made.largest_singular_value,
        forward=made.forward,
        adjoint=made.adjoint,
        resolvent=lru_cache(maxsize=2)(made.resolvent),
        penalised=lru_cache(maxsize=2)(lambda weight: made.y_step(inner, weight)),
        image=lambda y: made.B_dot(y) - (offset if y.ndim == offset.ndim else offset[:, None]),
        solution=_nearest(made) if constraint is None else lambda x, y: x,
    )


def _nearest(
    made: LinearConstraint,
) -> Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]:
    """Maps x and y to the nearest x whose image is y: what is sparse there is so in the answer."""

    @lru_cache(maxsize=1)
    def factors() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        basis, triangle = linalg.qr(made.adjoint(np.eye(made.n_constraints)), mode="economic")
        return np.asarray(basis), np.asarray(triangle)

    def solution(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        basis, triangle = factors()
        missing = y - made.forward(x)
        return x + basis @ linalg.solve_triangular(triangle, missing, trans="T", check_finite=False)

    return solution
