"""What a private search reveals."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from sklearn.pipeline import Pipeline

from skdpadmm import privacy
from skdpadmm._pipelines import last_step
from skdpadmm.model_selection._plan import SearchPlan
from skdpadmm.privacy import NonPrivate, PrivacyReport


def search_report(
    search: Any, plan: SearchPlan, *, is_simulation: bool, is_declared: bool
) -> PrivacyReport:
    """The report of a search, from its plan; whether the classes are declared is public."""
    is_private = not isinstance(plan.selection, NonPrivate)
    seed = search.random_state if isinstance(search.random_state, Integral) else "a generator"
    simulation = (
        f"random_state={seed} fixes trials and noise. Whoever knows the seed can remove it. Publish"
        " only searches with random_state=None."
    )
    releases = []
    if plan.score is not None:
        # Without privacy there is no noise that a sensitivity is for.
        sensitivity = plan.score.sensitivity(plan.n_validation) if is_private else None
        name = f"score of the chosen trial ({plan.score.unit})"
        line = privacy.ReleaseLine(name, 1, (), sensitivity, plan.score_std)
        releases.append(line)
    sees = "the chosen candidate, its score and the final model"
    is_zero_out = plan.score is not None and plan.neighboring is privacy.Neighboring.ZERO_OUT
    is_pipeline, is_seen = isinstance(search.estimator, Pipeline), not is_declared
    assumptions = {
        "The candidates, the law of the number of trials and the split of rows by positions are"
        " public.": True,
        "How many trials ran stays hidden: nobody who sees the result measures the time or the work"
        " that the search took.": True,
        "No row of public_validation is private.": plan.score is None,
        "The score of a row depends on that row and on the model alone.": plan.score is not None,
        "Nobody who sees the result reads the ledger, whose times show how long the search"
        " took.": search.ledger is not None,
        "A record that is zeroed has the least score that its bounds allow.": is_zero_out,
        "Transformers before the estimator treat each row by itself.": is_pipeline,
        "The names and types of columns are public.": is_pipeline,
        "classes not declared: the set of labels seen in y is assumed to be public.": is_seen,
        **dict.fromkeys(plan.assumptions, True),
    }
    return PrivacyReport(
        subject=f"{type(search).__name__} of {type(last_step(search.estimator)).__name__}",
        observers=(privacy.Observer("model", sees, "record", plan.neighboring, plan.guarantee()),),
        releases=tuple(releases),
        delta=plan.delta,
        assumptions=tuple(line for line, holds in assumptions.items() if holds and is_private),
        not_covered=(
            "Models and scores of trials that were not chosen: they are not kept.",
            "Candidates, transformers and other choices that were made by looking at the data.",
            "Other fits on the same records: their costs add up.",
            "Whether the input is valid: errors of validation may show values of the data.",
            "Errors of transformers and scorers: they may reveal which candidates were drawn.",
            "Running time and memory.",
        ),
        simulation=simulation if is_simulation and is_private else "",
    )
