"""Pictures of what a fit released; they need the extra ``[plot]``."""

from __future__ import annotations

from skdpadmm.inspection._network import plot_network

__all__ = ["plot_network"]
