"""The plan of a private search: budgets of trials, decided before any data is seen."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from skdpadmm._candidates import plan_candidate, with_parameters
from skdpadmm.model_selection._checks import check_plan, common_relation
from skdpadmm.model_selection._scores import RowScore
from skdpadmm.privacy import (
    GaussianDP,
    Guarantee,
    Neighboring,
    NonPrivate,
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
    scoring : str or None
        What is scored, and what the score of a row is clipped to; None where public rows are.
    score_sensitivity : float or None
        How far one row moves a score; None where public rows are scored.
    score_width : float or None
        How far the bounds of a row's score are apart; None where public rows are scored.
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
    scoring: str | None
    score_sensitivity: float | None
    score_width: float | None
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
        budgets = (self.epsilon, self.delta, self.trial_epsilon, self.refit_epsilon)
        scores = (self.score_std, self.score_sensitivity)
        facts = (
            self.n_candidates,
            self.law.describe(),
            f"{self.law.mean:.12g}",
            *(None if number is None else f"{number:.12g}" for number in (*budgets, *scores)),
            self.scoring,
            self.n_train,
            self.n_validation,
            str(self.neighboring),
            tuple(digest.hex() for digest in self.digests),
        )
        return hashlib.sha256(repr(facts).encode()).digest()

    def __repr__(self) -> str:
        """Return the plan as plain text."""
        at = f"epsilon={self.epsilon:g}, delta={self.delta:g}"
        rows = f"{self.n_validation} rows" if self.n_validation else "public rows"
        noise = ""
        if self.score_width is not None:
            share = f", {100 * self.score_std / self.score_width:.3g}% of the width"
            noise = (
                f"  a score: {self.scoring} with noise std {round_down(self.score_std)}"
                f"{share if self.score_std > 0 else ''}\n"
            )
        found, own = (
            "not private" if isinstance(g, NonPrivate) else f"epsilon={round_up(g.epsilon(d))}"
            for g, d in ((self.selection, self.delta), (self.fit_guarantee, self.delta))
        )
        final = "that of the chosen trial"
        if self.refit_guarantee is not None and self.refit_epsilon is not None:
            final = f"a fit of all rows with epsilon={round_up(self.refit_epsilon)}"
        return (
            f"Plan of a search among {self.n_candidates} candidates:"
            f" the best of {self.law.describe()}\n"
            f"  budget: {at}, {self.neighboring.value}, unit record\n"
            f"  a trial: {own} for a fit of {self.n_train} rows, score of {rows}\n"
            f"{noise}"
            f"  search: {found}\n"
            f"  final model: {final}"
        )


def plan_search(
    estimator: Any,
    candidates: Sequence[Mapping[str, Any]],
    *,
    law: TrialLaw,
    epsilon: float,
    delta: float,
    n_train: int,
    n_validation: int,
    n_features: Sequence[int],
    n_classes: int | None,
    score: RowScore | None,
    refit_share: float | None,
    n_samples: int,
) -> SearchPlan:
    """Plan a search from public facts.

    Parameters
    ----------
    estimator : estimator
    candidates : sequence of dict
    law : TrialLaw
    epsilon, delta : float
        The total budget.
    n_train, n_validation : int
        Private rows of each kind; no row validates where validation is public.
    n_features : sequence of int
        Features that arrive at the last step, for each candidate.
    n_classes : int or None
    score : RowScore or None
        Of private rows; None: of public ones.
    refit_share : float or None
        The share of `epsilon` that a last fit gets; None: there is none.
    n_samples : int
        Rows of that last fit.

    Returns
    -------
    SearchPlan

    Raises
    ------
    ValueError
        If the budget is below what a trial needs.
    """
    warned: list[str] = []

    def plans(budget: float, rows: int) -> list[Any]:
        made = []
        for parameters, width in zip(candidates, n_features, strict=True):
            candidate = with_parameters(estimator, parameters, epsilon=budget, delta=delta)
            plan, lines = plan_candidate(candidate, parameters, rows, width, n_classes)
            check_plan(plan)
            warned.extend(lines)
            made.append(plan)
        return made

    def fits(budget: float) -> Guarantee:
        # Each trial draws its candidate anew.
        return any_of(*(plan.guarantee() for plan in plans(budget, n_train)))

    fit: Guarantee
    noise: Guarantee
    selection: Guarantee
    refit: Guarantee | None = None
    refit_epsilon = None
    refit_plans: list[Any] = []
    if refit_share is not None:
        refit_epsilon = refit_share * epsilon
        refit_plans = plans(refit_epsilon, n_samples)
        last = worst(*(plan.guarantee() for plan in refit_plans))
        refit = NonPrivate() if math.isinf(epsilon) else last
    if math.isinf(epsilon):
        trial_epsilon, score_std = math.inf, 0.0
        fit = noise = selection = NonPrivate()
    else:
        trial_epsilon = calibrate_trial(law, epsilon, delta, refit).epsilon(delta) * (1 - _MARGIN)
        require_budget(trial_epsilon, epsilon, law)
        trial_epsilon, fit, gaussian, selection = _largest_trial(
            trial_epsilon, fits, law, epsilon, delta, refit, is_scored=score is not None
        )
        noise = gaussian
        score_std = 0.0 if score is None else score.sensitivity(n_validation) / gaussian.mu
    trial_plans = plans(trial_epsilon, n_train)
    if score is not None and score_std > _NOISY * score.width:
        warned.append(_noisy(score, score_std, n_validation))
    return SearchPlan(
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
        scoring=None if score is None else score.describe(),
        score_sensitivity=None if score is None else score.sensitivity(n_validation),
        score_width=None if score is None else score.width,
        selection=selection,
        refit_epsilon=refit_epsilon,
        refit_guarantee=refit,
        neighboring=common_relation(trial_plans),
        assumptions=tuple(
            dict.fromkeys(line for p in (*trial_plans, *refit_plans) for line in p.assumptions)
        ),
        warnings=tuple(dict.fromkeys(warned)),
        digests=tuple(plan.digest() for plan in (*trial_plans, *refit_plans)),
    )


def _noisy(score: RowScore, score_std: float, n_validation: int) -> str:
    bounds = "" if score.name == "accuracy" else "Declare narrower score_bounds, ask"
    return (
        f"Got scores with noise of standard deviation {score_std:.3g}, where {score.describe()} is"
        f" the mean of {n_validation} rows: choices are nearly random, and best_score_ is mostly"
        f" noise. {bounds or 'Ask'} for fewer trials or a larger budget, let more rows validate, or"
        " pass public_validation, whose scores have no noise."
    )


def require_budget(trial_epsilon: float, epsilon: float, law: TrialLaw) -> None:
    """Refuse a budget of which nothing is left for a trial."""
    if not trial_epsilon > 0:
        raise ValueError(
            f"Got epsilon={epsilon!r}, expected more: nothing is left for a trial, which is one of"
            f" {law.describe()}. Ask for fewer trials, or for a larger budget."
        )


def _together(selection: Guarantee, refit: Guarantee | None) -> Guarantee:
    """Selection and last fit; Renyi divergences add."""
    if refit is None:
        return selection
    orders = getattr(selection, "orders", None)
    return compose(selection, renyi_divergences(refit, orders))


def _largest_trial(
    trial_epsilon: float,
    fits: Any,
    law: TrialLaw,
    epsilon: float,
    delta: float,
    refit: Guarantee | None,
    *,
    is_scored: bool,
) -> tuple[float, Guarantee, GaussianDP, Guarantee]:
    """The budget of a trial that keeps the total within its own, whatever the candidates are."""

    def at(budget: float) -> tuple[float, Guarantee, GaussianDP, Guarantee] | None:
        fit = fits(budget)
        noise = GaussianDP(gaussian_mu(budget, delta) if is_scored else 0.0)
        selection = best_of_trials(worst(fit, noise), law)
        met = _together(selection, refit).epsilon(delta) <= epsilon
        return (budget, fit, noise, selection) if met else None

    # Candidates that are Gaussian meet it at once: the trial was calibrated as one.
    if (found := at(trial_epsilon)) is not None:
        return found
    low, high = 0.01 * trial_epsilon, trial_epsilon
    if (found := at(low)) is None:
        raise ValueError(
            f"Got epsilon={epsilon!r} at delta={delta!r}, expected more: a trial with"
            f" epsilon={low:.3g} still costs too much once it is one of {law.describe()}."
        )
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        better = at(middle)
        if better is None:
            high = middle
        else:
            low, found = middle, better
    return found
