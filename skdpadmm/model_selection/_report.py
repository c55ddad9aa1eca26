"""What a private search reveals, and what of it went where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skdpadmm.privacy import Guarantee, NonPrivate, PrivacyReport, round_up


@dataclass(frozen=True, repr=False, kw_only=True)
class SearchReport(PrivacyReport):
    """The report of a private search: its guarantee is that of search and final model together.

    Parameters
    ----------
    trial : Guarantee
        Of one trial: a fit and its score. What a chosen model would cost without the choice.
    selection : Guarantee
        Of the best of all trials: its candidate, its score and its model.
    refit : Guarantee or None
        Of the last fit on all rows, where there is one.
    law : str
        How the number of trials was drawn, in words.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm import DPAdmmRidge
    >>> from skdpadmm.model_selection import DPGridSearchCV
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(2000, 2))
    >>> model = DPAdmmRidge(feature_bounds=(-1, 1), target_bounds=(-2, 2))
    >>> search = DPGridSearchCV(model, {"alpha": [0.0, 10.0]}, random_state=0)
    >>> report = search.fit(X, X.sum(axis=1)).privacy_
    >>> round(report.epsilon(), 3), round(report.trial.epsilon(report.delta), 3)
    (1.0, 0.701)
    """

    trial: Guarantee
    selection: Guarantee
    refit: Guarantee | None
    law: str

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary, with the split of the budget under "spent_on"."""
        parts = {"trial": self.trial, "selection": self.selection, "refit": self.refit}
        return {
            **super().to_dict(),
            "trials": self.law,
            "spent_on": {
                name: None if part is None else part.to_dict() for name, part in parts.items()
            },
        }

    def _remarks(self) -> list[tuple[str, tuple[str, ...]]]:
        if isinstance(self.selection, NonPrivate):
            return super()._remarks()
        at = f"at delta={round_up(self.delta)}"
        trial, search = (round_up(g.epsilon(self.delta)) for g in (self.trial, self.selection))
        lines = (
            f"search: epsilon={search} {at}, for the best of {self.law}, each of which has"
            f" epsilon={trial}",
            "final model: that of the chosen trial, at no further cost"
            if self.refit is None
            else f"final model: epsilon={round_up(self.refit.epsilon(self.delta))} {at}, fitted on"
            " all rows",
        )
        return [("Spent on", lines), *super()._remarks()]
