"""Searches whose budget is the total: of all candidates that were tried, and of the final model."""

from __future__ import annotations

from skdpadmm._search_cost import search_cost
from skdpadmm.model_selection._plan import SearchPlan
from skdpadmm.model_selection._search import DPGridSearchCV, DPRandomizedSearchCV

__all__ = ["DPGridSearchCV", "DPRandomizedSearchCV", "SearchPlan", "search_cost"]
