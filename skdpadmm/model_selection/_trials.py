"""What trials do: fit a candidate and score it, with noise."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm._candidates import last_step
from skdpadmm.model_selection._plan import SearchPlan
from skdpadmm.model_selection._scores import RowScore
from skdpadmm.noise import NoiseSource

# Streams of what is drawn without data, and of the noise of scores.
COUNT, CHOICE, SPLIT, SEED, SCORE = range(5)


@dataclass(frozen=True, kw_only=True)
class Trials:
    """What all trials share: data, and what turns an estimator into a model with its score."""

    X: Any
    y: NDArray[Any]
    X_validation: Any
    y_validation: NDArray[Any]
    score: RowScore | None
    public_score: Any
    plan: SearchPlan
    noise: NoiseSource
    process: int

    def run(self, number: int, estimator: Any) -> tuple[float, Any]:
        """Fit and score; the score without noise does not leave."""
        # In this process warnings are off already: threads would switch them on and off at once.
        warned = nullcontext() if os.getpid() == self.process else unheard()
        with warned, np.errstate(all="ignore"):
            model = estimator.fit(self.X, self.y)
            require_as_planned(last_step(model).privacy_, self.plan.fit_guarantee, self.plan.delta)
            if self.score is None:
                value = float(self.public_score(model, self.X_validation, self.y_validation))
                return (value if math.isfinite(value) else -math.inf), model
            value = self.score.mean(model, self.X_validation, self.y_validation)
        if self.plan.score_std == 0:
            return value, model
        noisy = self.noise.add_gaussian(np.array([value]), self.plan.score_std, (SCORE, number))
        return float(noisy[0]), model


@contextmanager
def unheard() -> Iterator[None]:
    """Without warnings: they would tell how many trials ran, and of those not chosen.

    What a plan warns of is known before, once.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class MeanScore:
    """A scorer, or the mean of what it says of each row."""

    scorer: Callable[[Any, Any, Any], Any]

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        return float(np.mean(self.scorer(estimator, X, y)))


def rows_at(X: Any, positions: NDArray[np.intp]) -> Any:
    """Rows of an array, a sparse matrix or a table."""
    return X.iloc[positions] if hasattr(X, "iloc") else X[positions]


def require_as_planned(report: Any, planned: Any, delta: float) -> None:
    """A fit that promises less than its plan would break the sum."""
    if planned.dominates(report.guarantee()):
        return
    promised, spent = planned.epsilon(delta), report.guarantee().epsilon(delta)
    if not spent <= promised * (1.0 + 1e-9):
        raise RuntimeError(
            f"Got a fit with epsilon={spent:.6g}, expected epsilon={promised:.6g} as planned."
            " Report this as a bug."
        )
