"""Searches whose budget is the total: of all candidates that were tried, and of the final model."""

from __future__ import annotations

from skdpadmm.model_selection._cost import search_cost
from skdpadmm.model_selection._grid_search import DPGridSearchCV
from skdpadmm.model_selection._plan import SearchPlan
from skdpadmm.model_selection._randomized_search import DPRandomizedSearchCV
from skdpadmm.model_selection._report import SearchReport

__all__ = [
    "DPGridSearchCV",
    "DPRandomizedSearchCV",
    "SearchPlan",
    "SearchReport",
    "search_cost",
]
