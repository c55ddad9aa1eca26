"""What all pictures share: matplotlib, which is imported late, and the step that is drawn."""

from __future__ import annotations

from typing import Any


def require_pyplot(caller: str) -> Any:
    """Return ``matplotlib.pyplot``, or raise an ImportError that names the extra."""
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise ImportError(f"{caller} needs matplotlib: pip install 'skdpadmm[plot]'") from error
    return plt


def axes_for(ax: Any, caller: str, size: tuple[float, float]) -> Any:
    """Return ``ax``, or those of a new figure of this size in inches."""
    plt = require_pyplot(caller)
    return plt.figure(figsize=size, layout="constrained").add_subplot() if ax is None else ax


def last_step(estimator: Any) -> Any:
    """Return what a pipeline ends in, or the estimator itself."""
    while hasattr(estimator, "steps"):
        estimator = estimator.steps[-1][1]
    return estimator
