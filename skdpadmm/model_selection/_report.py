"""What a private search reveals, and what of it went where."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

from sklearn.pipeline import Pipeline

from skdpadmm._candidates import last_step
from skdpadmm.model_selection._plan import SearchPlan
from skdpadmm.privacy import (
    Guarantee,
    Neighboring,
    NonPrivate,
    Observer,
    PrivacyReport,
    ReleaseLine,
    round_up,
)


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


def report_of(
    search: Any, plan: SearchPlan, *, is_simulation: bool, is_declared: bool
) -> SearchReport:
    """Return what a search says of its plan, before its trials see data.

    Parameters
    ----------
    search : DPGridSearchCV or DPRandomizedSearchCV
    plan : SearchPlan
    is_simulation : bool
        Whether trials and noise can be drawn again.
    is_declared : bool
        Whether the classes are known before data, where there are any.

    Returns
    -------
    SearchReport
    """
    is_private = not isinstance(plan.selection, NonPrivate)
    seed = search.random_state if isinstance(search.random_state, Integral) else "a generator"
    # Without privacy there is no noise that a sensitivity is for.
    moved = plan.score_sensitivity if plan.score_std > 0 else None
    return SearchReport(
        subject=f"{type(search).__name__} of {type(last_step(search.estimator)).__name__}",
        observers=(
            Observer(
                name="model",
                sees="the chosen candidate, its score and the final model",
                unit="record",
                neighboring=plan.neighboring,
                guarantee=plan.guarantee(),
            ),
        ),
        releases=(
            (ReleaseLine("score of the chosen trial", 1, (), moved, plan.score_std),)
            if plan.n_validation
            else ()
        ),
        delta=float(search.delta),
        assumptions=_assumptions(search, plan, is_declared) if is_private else (),
        not_covered=(
            "Models and scores of trials that were not chosen: they are not kept.",
            "Candidates that were picked by looking at the data.",
            "Transformers fitted earlier in a pipeline, and choices made by looking at the data.",
            "Other fits on the same records: their costs add up.",
            "Whether the input is valid: errors of validation may show values of the data.",
            "Errors of transformers and scorers: they may tell which candidates were drawn.",
            "Running time and memory.",
        ),
        simulation=(
            f"random_state={seed} fixes trials and noise. Whoever knows the seed can remove it."
            " Publish only searches with random_state=None."
            if is_simulation and is_private
            else ""
        ),
        trial=plan.trial,
        selection=plan.selection,
        refit=plan.refit_guarantee,
        law=plan.law.describe(),
    )


def _assumptions(search: Any, plan: SearchPlan, is_declared: bool) -> tuple[str, ...]:
    """What the guarantee rests on, as far as it is about the search."""
    lines = [
        "The candidates, the law of the number of trials and the split of rows by positions are"
        " public.",
        "How many trials ran stays hidden: nobody who sees the result measures the time or the"
        " work that the search took.",
        "No row of public_validation is private."
        if search.public_validation is not None
        else "The score of a row depends on that row and on the model alone.",
    ]
    if search.ledger is not None:
        lines.append(
            "Nobody who sees the result reads the ledger, whose times tell how long the search"
            " took."
        )
    if plan.neighboring is Neighboring.ZERO_OUT and plan.n_validation:
        lines.append("A record that is zeroed has the least score that its bounds allow.")
    if isinstance(search.estimator, Pipeline):
        lines.append("Transformers before the estimator treat each row by itself.")
    if not is_declared:
        lines.append("classes not declared: the set of labels seen in y is assumed to be public.")
    return (*lines, *plan.assumptions)
