"""The plan of a private search, decided before any data is seen, and its report."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline

from skdpadmm._candidates import (
    last_step,
    n_features_of_last_step,
    plan_candidate,
    with_parameters,
)
from skdpadmm.model_selection import _trials
from skdpadmm.model_selection._checks import check_candidate, check_plan, common_relation
from skdpadmm.privacy import (
    GaussianDP,
    Guarantee,
    NegativeBinomialTrials,
    Neighboring,
    NonPrivate,
    Observer,
    PoissonTrials,
    PrivacyReport,
    ReleaseLine,
    TrialLaw,
    any_of,
    best_of_trials,
    calibrate_trial,
    compose,
    gaussian_mu,
    renyi_divergences,
    round_down,
    round_up,
    worst,
)

# Noise that is a larger share of the bounds than this leaves little for a choice to go by.
_NOISY = 0.1
# A trial's budget is found by a search of its own where its candidates are not Gaussian.
_STEPS = 20
# Keeps the rounding of two conversions, from mu to epsilon and back, on the safe side.
_MARGIN = 1e-7
LAWS: dict[str, Callable[[float], TrialLaw]] = {
    "geometric": lambda mean: NegativeBinomialTrials.of_mean(1.0, mean),
    "logarithmic": lambda mean: NegativeBinomialTrials.of_mean(0.0, mean),
    "poisson": PoissonTrials.of_mean,
}


@dataclass(frozen=True, kw_only=True, repr=False)
class SearchPlan:
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
    fit_guarantee : Guarantee
        Of one trial's fit: the weakest over the candidates.
    score_guarantee : Guarantee
        Of one trial's noisy score.
    score_std : float
        Standard deviation of the noise of a score.
    score : object or None
        Name, bounds (`low`, `high`), `width` and `sensitivity` of the mean score of private rows;
        None where public rows are scored.
    selection : Guarantee
        Of the best of all trials.
    refit_epsilon : float or None
        The epsilon of a last fit on all rows, at `delta`.
    refit_guarantee : Guarantee or None
        Of that fit.
    neighboring : Neighboring
    assumptions : tuple of str
        Of the plans of trials and of last fits.
    warnings : tuple of str
        What these plans warned of, and whether scores are too noisy to choose by.
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
      budget: epsilon=1, delta=1e-06, replace_one, unit record
      a trial: epsilon=0.6889 for a fit of 8000 rows, score of 2000 rows
      a score: accuracy in [0, 1] with noise std 0.002987, 0.299% of the width
      search: epsilon=1
      final model: that of the chosen trial
    """

    n_candidates: int
    law: TrialLaw
    epsilon: float
    delta: float
    trial_epsilon: float
    n_train: int
    n_validation: int
    fit_guarantee: Guarantee
    score_guarantee: Guarantee
    score_std: float
    score: _trials.RowScore | None
    selection: Guarantee
    refit_epsilon: float | None
    refit_guarantee: Guarantee | None
    neighboring: Neighboring
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    digests: tuple[bytes, ...]
    # Everybody else sees all trials, of which a selection hides none.
    adversary: ClassVar[str] = "model"
    unit: ClassVar[str] = "record"

    @property
    def trial(self) -> Guarantee:
        """Of one trial; a record is in its fit or in its score, never in both."""
        return worst(self.fit_guarantee, self.score_guarantee)

    def guarantee(self) -> Guarantee:
        """What holds for search and final model together."""
        return _together(self.selection, self.refit_guarantee)

    def digest(self) -> bytes:
        """SHA-256 of the plan: different plans draw unrelated noise from the same seed.

        Floats count with 12 digits, as in the plans of the candidates.
        """
        score = self.score
        numbers = (
            *(self.epsilon, self.delta, self.trial_epsilon, self.refit_epsilon, self.score_std),
            None if score is None else score.sensitivity(self.n_validation),
        )
        facts = (
            self.n_candidates,
            self.law.describe(),
            f"{self.law.mean:.12g}",
            *(None if number is None else f"{number:.12g}" for number in numbers),
            None if score is None else score.describe(),
            self.n_train,
            self.n_validation,
            str(self.neighboring),
            tuple(digest.hex() for digest in self.digests),
        )
        return hashlib.sha256(repr(facts).encode()).digest()

    def require_covered(self, report: PrivacyReport, planned: Guarantee) -> None:
        """A fit that promises less than its plan would break the sum."""
        if not covers(planned, report.guarantee(), self.delta):
            raise RuntimeError(
                f"Got a fit with {report.guarantee().describe()}, expected {planned.describe()} as"
                " planned. Report this as a bug."
            )

    def __repr__(self) -> str:
        """Return the plan as plain text."""
        rows, noise, final = "public rows", "", "that of the chosen trial"
        if self.score is not None:
            rows = f"{self.n_validation} rows"
            share = f", {100 * self.score_std / self.score.width:.3g}% of the width"
            noise = (
                f"  a score: {self.score.describe()} with noise std {round_down(self.score_std)}"
                f"{share if self.score_std > 0 else ''}\n"
            )
        search, fit = (
            "not private" if isinstance(g, NonPrivate) else f"epsilon={round_up(g.epsilon(d))}"
            for g, d in ((self.selection, self.delta), (self.fit_guarantee, self.delta))
        )
        if self.refit_epsilon is not None:
            final = f"a fit of all rows with epsilon={round_up(self.refit_epsilon)}"
        return (
            f"Plan of a search among {self.n_candidates} candidates:"
            f" the best of {self.law.describe()}\n"
            f"  budget: epsilon={self.epsilon:g}, delta={self.delta:g}, {self.neighboring.value},"
            " unit record\n"
            f"  a trial: {fit} for a fit of {self.n_train} rows, score of {rows}\n"
            f"{noise}"
            f"  search: {search}\n"
            f"  final model: {final}"
        )


def covers(planned: Guarantee, spent: Guarantee, delta: float) -> bool:
    """Whether a fit spent no more than planned: equal at one delta is not enough for sums."""
    return planned.dominates(spent) or all(
        spent.epsilon(level) <= planned.epsilon(level) * (1 + 1e-9)
        for level in (delta, delta**0.5, 1e-3 * delta)
    )


def plan_fits(
    estimator: Any,
    candidates: Sequence[Mapping[str, Any]],
    n_samples: int,
    n_features: Sequence[int],
    n_classes: int | None,
    **budget: float,
) -> tuple[list[Any], list[str]]:
    """The plan of a fit of each candidate, and what these warned of: all that a fit may cost.

    `n_features` are those that arrive at the last step of each candidate.
    """
    plans, warned = [], []
    for parameters, width in zip(candidates, n_features, strict=True):
        candidate = with_parameters(estimator, parameters, **budget)
        plan, lines = plan_candidate(candidate, parameters, n_samples, width, n_classes)
        plans.append(plan)
        warned += lines
    return plans, warned


def plan_search(
    search: Any,
    candidates: Sequence[Mapping[str, Any]],
    n_samples: int,
    n_features: int,
    n_classes: int | None,
    columns: Any = None,
) -> SearchPlan:
    """Plan a private search from public facts; `columns` are the names of columns of a table."""
    if not candidates:
        raise ValueError("Got no candidates, expected one at least.")
    widths = []
    for parameters in candidates:
        candidate = with_parameters(search.estimator, parameters)
        check_candidate(candidate, parameters)
        widths.append(n_features_of_last_step(candidate, n_features, columns))
    score, n_train, n_validation = None, n_samples, 0
    if search.public_validation is None:
        score = _trials.row_score(search.scoring, last_step(search.estimator), search.score_bounds)
        n_train, n_validation = map(len, _trials.split_rows(search.cv, np.zeros(n_samples)))
    else:
        _trials.public_rows(search.public_validation, n_features)
        _trials.public_score(search.scoring, search.estimator)
    mean = 2 * len(candidates) if search.n_trials is None else search.n_trials
    law = LAWS[search.trials](float(mean))
    epsilon, delta, is_private = (
        float(search.epsilon),
        float(search.delta),
        search.epsilon < math.inf,
    )

    def plans(budget: float, rows: int) -> tuple[list[Any], list[str]]:
        own = {"epsilon": budget, "delta": delta}
        plans, warned = plan_fits(search.estimator, candidates, rows, widths, n_classes, **own)
        for plan in plans:
            check_plan(plan)
        return plans, warned

    refit: Guarantee | None = None
    refit_epsilon: float | None = None
    refit_plans: list[Any] = []
    warned: list[str] = []
    if search.refit:
        refit_epsilon = (1.0 - search.search_share) * epsilon
        refit_plans, warned = plans(refit_epsilon, n_samples)
        refit = worst(*(plan.guarantee() for plan in refit_plans))

    def trial_at(budget: float) -> _Trial | None:
        """A trial with that budget, unless the total exceeds its own."""
        if not budget > 0:
            return None
        trial_plans, warned = plans(budget, n_train)
        # Each trial draws its candidate anew.
        fit = any_of(*(plan.guarantee() for plan in trial_plans))
        mu = 0.0 if score is None or not is_private else gaussian_mu(budget, delta)
        noise = GaussianDP(mu) if is_private else NonPrivate()
        selection = best_of_trials(worst(fit, noise), law)
        std = 0.0 if score is None or mu == 0 else score.sensitivity(n_validation) / mu
        if _together(selection, refit).epsilon(delta) > epsilon:
            return None
        return _Trial(budget, trial_plans, warned, fit, noise, std, selection)

    largest = math.inf
    if is_private:
        largest = calibrate_trial(law, epsilon, delta, refit).epsilon(delta) * (1 - _MARGIN)
    # Candidates that are Gaussian meet it at once: the trial was calibrated as one.
    trial, low = trial_at(largest), largest
    if trial is None:
        low, high = 0.01 * largest, largest
        trial = trial_at(low)
        for _ in range(_STEPS if trial is not None else 0):
            middle = math.sqrt(low * high)
            if (better := trial_at(middle)) is None:
                high = middle
            else:
                low, trial = middle, better
    if trial is None:
        raise ValueError(
            f"Got epsilon={epsilon!r} at delta={delta!r}, expected more: nothing is left for a"
            f" trial, as a trial with epsilon={low:.3g} still costs too much once it is one of"
            f" {law.describe()}. Ask for fewer trials, or for a larger budget."
        )
    warned = [*warned, *trial.warned]
    if score is not None and trial.score_std > _NOISY * score.width:
        advice = "Ask" if score.name == "accuracy" else "Declare narrower score_bounds, ask"
        warned.append(
            f"Got scores with noise of standard deviation {trial.score_std:.3g}, where"
            f" {score.describe()} is the mean of {n_validation} rows: choices are nearly random,"
            f" and best_score_ is mostly noise. {advice} for fewer trials or a larger budget, let"
            " more rows validate, or pass public_validation, whose scores have no noise."
        )
    of_all = (*trial.plans, *refit_plans)
    return SearchPlan(
        n_candidates=len(candidates),
        law=law,
        epsilon=epsilon,
        delta=delta,
        trial_epsilon=trial.epsilon,
        n_train=n_train,
        n_validation=n_validation,
        fit_guarantee=trial.fit,
        score_guarantee=trial.noise,
        score_std=trial.score_std,
        score=score,
        selection=trial.selection,
        refit_epsilon=refit_epsilon,
        refit_guarantee=refit,
        neighboring=common_relation(trial.plans)[2],
        assumptions=tuple(dict.fromkeys(line for plan in of_all for line in plan.assumptions)),
        warnings=tuple(dict.fromkeys(warned)),
        digests=tuple(plan.digest() for plan in of_all),
    )


class _Trial(NamedTuple):
    """What one trial spends."""

    epsilon: float
    plans: list[Any]
    warned: list[str]
    fit: Guarantee
    noise: Guarantee
    score_std: float
    selection: Guarantee


def _together(selection: Guarantee, refit: Guarantee | None) -> Guarantee:
    """Selection and last fit; Renyi divergences add."""
    if refit is None:
        return selection
    return compose(selection, renyi_divergences(refit, getattr(selection, "orders", None)))


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
        spent_on = {name: part and part.to_dict() for name, part in parts.items()}
        return {**super().to_dict(), "trials": self.law, "spent_on": spent_on}

    def _remarks(self) -> list[tuple[str, tuple[str, ...]]]:
        if isinstance(self.selection, NonPrivate):
            return super()._remarks()
        at, final = (
            f"at delta={round_up(self.delta)}",
            "that of the chosen trial, at no further cost",
        )
        trial, search = (round_up(g.epsilon(self.delta)) for g in (self.trial, self.selection))
        if self.refit is not None:
            final = f"epsilon={round_up(self.refit.epsilon(self.delta))} {at}, fitted on all rows"
        lines = (
            f"search: epsilon={search} {at}, for the best of {self.law}, each of which has"
            f" epsilon={trial}",
            f"final model: {final}",
        )
        return [("Spent on", lines), *super()._remarks()]


def report_of(
    search: Any, plan: SearchPlan, *, is_simulation: bool, is_declared: bool
) -> SearchReport:
    """Return what a search says of its plan, before its trials see data.

    `is_declared` is whether the classes are known before data, where there are any.
    """
    is_private = not isinstance(plan.selection, NonPrivate)
    seed = search.random_state if isinstance(search.random_state, Integral) else "a generator"
    releases: tuple[ReleaseLine, ...] = ()
    if plan.score is not None:
        # Without privacy there is no noise that a sensitivity is for.
        sensitivity = plan.score.sensitivity(plan.n_validation) if plan.score_std > 0 else None
        name = "score of the chosen trial"
        releases = (ReleaseLine(name, 1, (), sensitivity, plan.score_std),)
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
        releases=releases,
        delta=plan.delta,
        assumptions=tuple(_assumptions(search, plan, is_declared)) if is_private else (),
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


def _assumptions(search: Any, plan: SearchPlan, is_declared: bool) -> Iterator[str]:
    """What the guarantee rests on: first what is about the search."""
    yield (
        "The candidates, the law of the number of trials and the split of rows by positions are"
        " public."
    )
    yield (
        "How many trials ran stays hidden: nobody who sees the result measures the time or the"
        " work that the search took."
    )
    if plan.score is None:
        yield "No row of public_validation is private."
    else:
        yield "The score of a row depends on that row and on the model alone."
    if search.ledger is not None:
        yield (
            "Nobody who sees the result reads the ledger, whose times tell how long the search"
            " took."
        )
    if plan.neighboring is Neighboring.ZERO_OUT and plan.score is not None:
        yield "A record that is zeroed has the least score that its bounds allow."
    if isinstance(search.estimator, Pipeline):
        yield "Transformers before the estimator treat each row by itself."
    if not is_declared:
        yield "classes not declared: the set of labels seen in y is assumed to be public."
    yield from plan.assumptions
