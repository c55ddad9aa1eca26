"""Public regularisers of the coefficients and their proximal operators."""

from __future__ import annotations

from skdpadmm.penalties._elastic_net import L1, ElasticNet, NoPenalty, SquaredL2
from skdpadmm.penalties._generalized_l1 import (
    GeneralizedL1,
    difference_matrix,
    named_penalty_matrix,
)
from skdpadmm.penalties._linear_constraint import LinearConstraint
from skdpadmm.penalties._penalty import Penalty, ProximalOperator

__all__ = [
    "L1",
    "ElasticNet",
    "GeneralizedL1",
    "LinearConstraint",
    "NoPenalty",
    "Penalty",
    "ProximalOperator",
    "SquaredL2",
    "difference_matrix",
    "named_penalty_matrix",
]
