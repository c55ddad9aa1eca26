"""Public regularisers of the coefficients and their proximal operators."""

from __future__ import annotations

from ._box import Box, NonNegative
from ._differences import difference_matrix, named_penalty_matrix
from ._elastic_net import ElasticNet
from ._generalized_l1 import GeneralizedL1
from ._group_lasso import GroupLasso
from ._l1 import L1
from ._linear_constraint import LinearConstraint
from ._none import NoPenalty
from ._penalty import Penalty, ProximalOperator
from ._squared_l2 import SquaredL2

__all__ = [
    "L1",
    "Box",
    "ElasticNet",
    "GeneralizedL1",
    "GroupLasso",
    "LinearConstraint",
    "NoPenalty",
    "NonNegative",
    "Penalty",
    "ProximalOperator",
    "SquaredL2",
    "difference_matrix",
    "named_penalty_matrix",
]
