"""Public regularisers of the coefficients and their proximal operators."""

from __future__ import annotations

from ._box import Box, NonNegative
from ._elastic_net import ElasticNet
from ._group_lasso import GroupLasso
from ._l1 import L1
from ._none import NoPenalty
from ._penalty import Penalty, ProximalOperator
from ._squared_l2 import SquaredL2

__all__ = [
    "L1",
    "Box",
    "ElasticNet",
    "GroupLasso",
    "NoPenalty",
    "NonNegative",
    "Penalty",
    "ProximalOperator",
    "SquaredL2",
]
