"""The plan of a private search, decided before any data is seen: refusals, and the report."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.pipeline import Pipeline

from skdpadmm import privacy
from skdpadmm._document import Block, Document, picture_of
from skdpadmm._pipelines import (
    FROZEN,
    last_step,
    objections,
    public_name,
    require_plan,
    with_parameters,
)
from skdpadmm._row_scores import RowScore, row_score
from skdpadmm._search_cost import claim_of, common_relation, covers, plan_fits
from skdpadmm.algorithms import stream_algorithm
from skdpadmm.exceptions import PrivacyWarning
from skdpadmm.model_selection import _trials
from skdpadmm.network import condition_of, ownership_of_labels
from skdpadmm.privacy import Guarantee, Neighboring, NonPrivate, round_up

# Noise that is a larger part of a typical score than this leaves little for a choice to go by.
_NOISY = 0.1
# A trial's budget is found by a search of its own where its candidates are not Gaussian.
_STEPS = 20
# Keeps the rounding of two conversions, from mu to epsilon and back, on the safe side.
_MARGIN = 1e-7
LAWS: dict[str, Callable[[float], privacy.TrialLaw]] = {
    "geometric": lambda mean: privacy.NegativeBinomialTrials.of_mean(1.0, mean),
    "logarithmic": lambda mean: privacy.NegativeBinomialTrials.of_mean(0.0, mean),
    "poisson": privacy.PoissonTrials.of_mean,
}
OF_PERSONS = (
    "To protect persons, give the search one row for each of them, such as the mean of their rows,"
    " or choose parameters on public rows and fit the model with persons=labels."
)
_PUBLIC_STEPS = "FrozenEstimator steps were fitted on public rows alone."
# The last parts of names that a candidate may not set.
_SET_BY_SEARCH = {"epsilon", "delta", "random_state", "ledger", "verbose"}


@dataclass(frozen=True, kw_only=True, repr=False)
class SearchPlan(Document):
    """What a private search will spend, and on what; it sees no data.

    Attributes
    ----------
    n_candidates : int
    law : TrialLaw
        Of the number of trials, which stays hidden.
    epsilon, delta : float
        The budget of search and final model together.
    trial_epsilon : float
        The epsilon that every trial's fit gets, at `delta`.
    n_train, n_validation : int
        How many private rows train and validate in every trial.
    fit_guarantee, score_guarantee : Guarantee
        Of one trial's fit, the weakest over the candidates, and of its noisy score.
    score_std : float
        Standard deviation of the noise of a score.
    score : object or None
        Name, bounds (`low`, `high`), `width` and `sensitivity` of the mean score of private rows;
        None where public rows are scored.
    selection : Guarantee
        Of the best of all trials.
    refit_epsilon, refit_guarantee : float or None, Guarantee or None
        Of a last fit on all rows.
    neighboring : Neighboring
    assumptions : tuple of str
        Of the plans of trials and of last fits.
    warnings : tuple of (str, type)
        Of the same, each with its class; and whether scores are too noisy to choose by.
    digests : tuple of bytes
        Of the plans of all candidates: of their trials, then of their last fits.

    Examples
    --------
    >>> from skdpadmm import DPAdmmLogisticRegression
    >>> from skdpadmm.model_selection import DPGridSearchCV
    >>> model = DPAdmmLogisticRegression(classes=[0, 1], feature_bounds=(-1, 1))
    >>> search = DPGridSearchCV(model, {"C": [0.01, 1.0, 100.0]}, epsilon=1.0, delta=1e-6)
    >>> search.plan(n_samples=10_000, n_features=5)
    Plan of a search among 3 candidates: the best of a geometric number of trials, 6 on average
      budget: epsilon=1, delta=1e-06, replace_one, record
      a trial: epsilon=0.6889 for a fit of 8000 rows, score of 2000 rows
      a score: accuracy in [0, 1] with noise std 0.002987, 0.299% of the width
      search: epsilon=1
      final model: that of the chosen trial
    """

    n_candidates: int
    law: privacy.TrialLaw
    epsilon: float
    delta: float
    trial_epsilon: float
    n_train: int
    n_validation: int
    fit_guarantee: Guarantee
    score_guarantee: Guarantee
    score_std: float
    score: RowScore | None
    selection: Guarantee
    refit_epsilon: float | None
    refit_guarantee: Guarantee | None
    neighboring: Neighboring
    assumptions: tuple[str, ...]
    warnings: tuple[tuple[str, type[Warning]], ...]
    digests: tuple[bytes, ...]
    # Everybody else sees all trials, of which a selection hides none.
    adversary: ClassVar[str] = "model"
    observers: ClassVar[tuple[str, ...]] = ("model",)
    unit: ClassVar[str] = "record"

    def guarantee(self, observer: str = "model") -> Guarantee:
        """What holds for search and final model together; Renyi divergences add."""
        if self.refit_guarantee is None:
            return self.selection
        orders = getattr(self.selection, "orders", None)
        return privacy.compose(
            self.selection, privacy.renyi_divergences(self.refit_guarantee, orders)
        )

    def digest(self) -> bytes:
        """SHA-256 of the plan, floats with 12 digits: other plans draw other noise from a seed."""
        budgets = (self.epsilon, self.delta, self.trial_epsilon, self.refit_epsilon)
        facts = (
            *(number and f"{number:.12g}" for number in (*budgets, self.law.mean, self.score_std)),
            *(self.n_candidates, self.law.describe(), self.score and self.score.describe()),
            *(self.n_train, self.n_validation, str(self.neighboring)),
            *(digest.hex() for digest in self.digests),
        )
        return hashlib.sha256(repr(facts).encode()).digest()

    def require_covered(self, report: privacy.PrivacyReport, planned: Guarantee) -> None:
        """A fit that promises less than its plan would break the sum."""
        if not covers(planned, report.guarantee(), self.delta):
            raise RuntimeError(
                f"Got a fit with {report.guarantee().describe()}, expected {planned.describe()} as"
                " planned. Report this as a bug."
            )

    _layout = ("\n", "  ")

    def _blocks(self) -> tuple[Block, ...]:
        def figure(guarantee: Guarantee) -> str:
            epsilon = guarantee.epsilon(self.delta)
            return f"epsilon={round_up(epsilon)}" if epsilon < math.inf else "not private"

        rows, final, noise = "public rows", "that of the chosen trial", []
        if self.score is not None:
            rows, std = f"{self.n_validation} rows", self.score.noise(self.score_std)
            noise = [("a score", f"{self.score.describe()} with noise std {std}")]
        if self.refit_epsilon is not None:
            final = f"a fit of all rows with epsilon={round_up(self.refit_epsilon)}"
        title = f"Plan of a search among {self.n_candidates} candidates: the best of"
        trial = f"{figure(self.fit_guarantee)} for a fit of {self.n_train} rows, score of {rows}"
        budget = f"epsilon={self.epsilon:g}, delta={self.delta:g}, {self.neighboring}, record"
        lines = (
            ("budget", budget),
            ("a trial", trial),
            *noise,
            ("search", figure(self.selection)),
            ("final model", final),
        )
        return (
            Block("title", [f"{title} {self.law.describe()}"]),
            picture_of({self.adversary: figure(self.guarantee())}, self.adversary),
            Block("pairs", body=lines),
        )


def plan_search(
    search: Any,
    candidates: Sequence[Mapping[str, Any]],
    n_samples: int,
    n_features: int,
    n_classes: int | None,
    columns: Any = None,
    agents: Any = None,
) -> SearchPlan:
    """Plan a private search from public facts: `columns` of a table, `agents` that own its rows."""
    for parameters in candidates:
        _check_candidate(with_parameters(search.estimator, parameters), parameters)
    score, n_train, n_validation = None, n_samples, 0
    train: Any = slice(None)
    if search.public_validation is None:
        score = row_score(search.scoring, last_step(search.estimator), search.score_bounds)
        train, validation = _trials.split_rows(search.cv, np.zeros(n_samples))
        n_train, n_validation = len(train), len(validation)
    else:
        _trials.public_rows(search.public_validation, n_features)
        _trials.public_score(search.scoring, search.estimator)
    mean = 2 * len(candidates) if search.n_trials is None else search.n_trials
    law = LAWS[search.trials](float(mean))
    epsilon, delta = float(search.epsilon), float(search.delta)
    assumed = [_PUBLIC_STEPS] if _has_frozen(search.estimator, candidates) else []
    is_private = epsilon < math.inf

    shape: dict[str, Any] = {"n_features": n_features, "n_classes": n_classes, "columns": columns}
    plans_of = partial(plan_fits, search.estimator, candidates, delta=delta, **shape)
    trial_facts, refit_facts = (
        _facts_of_agents(search, agents, n_samples, part) for part in (train, slice(None))
    )
    refit_epsilon = (1.0 - search.search_share) * epsilon
    refit_plans, refit_warned = list[Any](), dict[str, type[Warning]]()
    if search.refit:
        refit_plans, refit_warned = plans_of(
            n_samples=n_samples, epsilon=refit_epsilon, facts=refit_facts
        )
    refit = privacy.worst(*(plan.guarantee() for plan in refit_plans)) if search.refit else None

    def plan_at(trial_epsilon: float) -> SearchPlan | None:
        """The plan with that budget for a trial, unless the total exceeds its own."""
        if not trial_epsilon > 0:
            return None
        plans, warned = plans_of(n_samples=n_train, epsilon=trial_epsilon, facts=trial_facts)
        claims = [claim_of(plan) for plan in plans]
        adversary, (unit, neighboring, _) = common_relation(claims)
        if (adversary, unit) != ("model", "record"):
            raise ValueError(
                f"Got candidates with {adversary=} and {unit=}, expected adversary='model' and"
                " privacy_unit='record': everybody else sees all trials, and selection hides none."
            )
        # Each trial draws its candidate anew.
        fit = privacy.any_of(*(claim.guarantee for claim in claims))
        mu = privacy.gaussian_mu(trial_epsilon, delta) if score is not None and is_private else 0.0
        noise = privacy.GaussianDP(mu) if is_private else NonPrivate()
        score_std = 0.0 if score is None or mu == 0 else score.sensitivity(n_validation) / mu
        warned = refit_warned | warned
        if score is not None and score_std > _NOISY * score.typical:
            noisy = (
                f"Got scores with noise of standard deviation {score.noise(score_std)}, where"
                f" {score.describe()} is the mean of {n_validation} rows: choices are nearly random"
                " among candidates whose scores differ by less than that. Declare narrower"
                " score_bounds, ask for fewer trials or a larger budget, let more rows validate, or"
                " pass public_validation, whose scores have no noise."
            )
            warned[noisy] = PrivacyWarning
        all_plans = (*plans, *refit_plans)
        plan = SearchPlan(
            n_candidates=len(candidates),
            law=law,
            epsilon=epsilon,
            delta=delta,
            trial_epsilon=trial_epsilon,
            n_train=n_train,
            n_validation=n_validation,
            fit_guarantee=fit,
            score_guarantee=noise,
            score_std=score_std,
            score=score,
            selection=privacy.best_of_trials(privacy.worst(fit, noise), law),
            refit_epsilon=refit_epsilon if search.refit else None,
            refit_guarantee=refit,
            neighboring=neighboring,
            assumptions=tuple(
                dict.fromkeys([*assumed, *(a for plan in all_plans for a in plan.assumptions)])
            ),
            warnings=tuple(warned.items()),
            digests=tuple(plan.digest() for plan in all_plans),
        )
        return plan if plan.guarantee().epsilon(delta) <= epsilon else None

    high = math.inf
    if is_private:
        trial = privacy.calibrate_trial(law, epsilon, delta, refit)
        high = trial.epsilon(delta) * (1 - _MARGIN)
    # Candidates that are Gaussian meet it at once: the trial was calibrated as one.
    if (plan := plan_at(high)) is not None:
        return plan
    low = 0.01 * high
    if (plan := plan_at(low)) is None:
        raise ValueError(
            f"Got epsilon={epsilon!r} at delta={delta!r}, which is too little for the best of"
            f" {law.describe()}, expected more. Ask for fewer trials, or for a larger budget."
        )
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        if (better := plan_at(middle)) is None:
            high = middle
        else:
            low, plan = middle, better
    return plan


def _facts_of_agents(search: Any, agents: Any, n_samples: int, part: Any) -> dict[str, Any]:
    """How many rows of a part each agent has: public, as the owner of each position is."""
    if agents is None:
        return {}
    last = last_step(search.estimator)
    if "agent_sizes" not in signature(last.plan).parameters:
        raise TypeError(
            f"Got agents for {type(last).__name__}, expected none: it knows of no agents."
        )
    if search.public_validation is None and not isinstance(search.cv, list | tuple):
        raise ValueError(
            f"Got agents with cv={search.cv!r}, expected the positions of one split,"
            " cv=[(train, validation)], or public_validation: how many rows of each agent train has"
            " to be known before the search."
        )
    owners = ownership_of_labels(agents, n_samples=n_samples)
    labels = owners.labels[owners.index[part]]
    return {"agent_sizes": dict(Counter(labels.tolist()))}


def _check_candidate(estimator: Any, parameters: Mapping[str, Any]) -> None:
    """Refuse what could not be searched under one budget; no data is needed."""
    last = last_step(estimator)
    require_plan(estimator)
    taken = [name for name in parameters if name.rpartition("__")[2] in _SET_BY_SEARCH]
    algorithm, partition = getattr(last, "algorithm", None), getattr(last, "partition", "iid")
    epsilon, agent_column = getattr(last, "epsilon", None), getattr(last, "agent_column", None)
    most_rows, has_grid = getattr(last, "max_rows_per_person", None), hasattr(last, "cv")
    relation = getattr(last, "neighboring", None)
    refusals = {
        f"neighboring={relation!r}, expected 'zero_out' or 'replace_one': how many rows train and"
        " validate follows from how many there are": relation == "add_remove",
        "candidates of its own, expected a single model. Put them into one grid": has_grid,
        f"candidates of {taken}, expected others: the search sets it for every trial": bool(taken),
        f"epsilon={epsilon!r}, expected one number": not isinstance(epsilon, Real),
        "a ledger of its own, expected none: it would reveal the number of trials. Give the"
        " ledger to the search": getattr(last, "ledger", None) is not None,
        f"algorithm={algorithm!r}, expected one that fits all records at once: a stream goes on"
        " after the search": stream_algorithm(algorithm) is not None,
        f"max_rows_per_person={most_rows!r}, expected None: a search protects one row."
        f" {OF_PERSONS[:-1]}": most_rows is not None,
        f"agent_column={agent_column!r}, expected None: the plan has to know the owner of each row."
        " Pass agents=labels to fit": agent_column is not None,
        f"partition={partition!r}, expected 'iid' or 'quantity': the owner of a row would depend on"
        " the labels of all rows": bool(condition_of(partition)),
    }
    for refusal, is_refused in refusals.items():
        if is_refused:
            raise ValueError(f"Got an estimator with {refusal}.")
    refused, model = list[str](), estimator
    while type(model) is Pipeline:
        for name, step in model.steps[:-1]:
            refused += objections(step, name, takes_frozen=True)
        model = model.steps[-1][1]
    refused += [type(model).__name__] if isinstance(model, Pipeline) else []
    if refused:
        raise ValueError(
            f"Got a Pipeline with steps that may learn from rows or mix them: {', '.join(refused)}."
            " Expected transformers that learn nothing and treat each row by itself: this package's"
            ", hashing, Normalizer, Binarizer, PolynomialFeatures, FunctionTransformer(np.log1p),"
            " Pipelines and ColumnTransformers of these, or FrozenEstimator(step) of one step that"
            " was fitted on public rows. Encode categories and fill missing values by a"
            " PublicTableTransformer: others compare by the type of a column, which one row can"
            " change."
        )


def _has_frozen(estimator: Any, candidates: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a candidate has a step that was fitted before the search."""
    models = (with_parameters(estimator, parameters) for parameters in candidates)
    return any(public_name(v) == FROZEN for m in models for v in m.get_params().values())


def search_report(
    search: Any, plan: SearchPlan, *, is_simulation: bool, is_declared: bool
) -> privacy.PrivacyReport:
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
    is_zero_out = plan.score is not None and plan.neighboring is Neighboring.ZERO_OUT
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
    return privacy.PrivacyReport(
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
