"""The plan of a private search: budgets of trials, decided before any data is seen."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from skdpadmm.model_selection._candidates import (
    check_plan,
    common_relation,
    plan_candidate,
    with_parameters,
)
from skdpadmm.model_selection._scores import RowScore
from skdpadmm.privacy import (
    GaussianDP,
    Guarantee,
    Neighboring,
    NonPrivate,
    TrialLaw,
    best_of_trials,
    calibrate_trial,
    compose,
    gaussian_mu,
    renyi_divergences,
    round_down,
    round_up,
    worst,
)

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
    fit : Guarantee
        Of one trial's fit: the weakest over the candidates.
    score : Guarantee
        Of one trial's noisy score.
    score_std : float
        Standard deviation of the noise of a score.
    selection : Guarantee
        Of the best of all trials.
    refit_epsilon : float or None
        The epsilon of a last fit on all rows, at `delta`.
    refit : Guarantee or None
        Of that fit.
    neighboring : Neighboring
    assumptions : tuple of str
        Of the trials' own plans.
    warnings : tuple of str
        What these plans warned of.

    Examples
    --------
    >>> from skdpadmm import DPAdmmLogisticRegression
    >>> from skdpadmm.model_selection import DPGridSearchCV
    >>> model = DPAdmmLogisticRegression(classes=[0, 1], feature_bounds=(-1, 1))
    >>> search = DPGridSearchCV(model, {"C": [0.01, 1.0, 100.0]}, epsilon=1.0, delta=1e-6)
    >>> search.plan(n_samples=10_000, n_features=5)
    Plan of a search among 3 candidates: the best of a geometric number of trials, 6 on average
      budget: epsilon=1, delta=1e-06, replace_one, unit record
      a trial: epsilon=0.6889 for a fit of 8000 rows, score of 2000 rows with noise std 0.002987
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
    fit: Guarantee
    score: Guarantee
    score_std: float
    selection: Guarantee
    refit_epsilon: float | None
    refit: Guarantee | None
    neighboring: Neighboring
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    # Everybody else sees all trials, of which a selection hides none.
    adversary: ClassVar[str] = "model"
    unit: ClassVar[str] = "record"

    @property
    def trial(self) -> Guarantee:
        """Of one trial; a record is in its fit or in its score, never in both."""
        return worst(self.fit, self.score)

    def guarantee(self) -> Guarantee:
        """What holds for search and final model together."""
        return _together(self.selection, self.refit)

    def digest(self) -> bytes:
        """SHA-256 of the plan: different plans draw unrelated noise from the same seed."""
        facts = (self.n_candidates, self.law, f"{self.trial_epsilon:.12g}", f"{self.delta:.12g}")
        rest = (self.n_train, self.n_validation, f"{self.score_std:.12g}", str(self.neighboring))
        return hashlib.sha256(repr((*facts, *rest)).encode()).digest()

    def __repr__(self) -> str:
        """Return the plan as plain text."""
        at = f"epsilon={self.epsilon:g}, delta={self.delta:g}"
        scored = (
            f"score of {self.n_validation} rows with noise std {round_down(self.score_std)}"
            if self.n_validation
            else "score of public rows"
        )
        found, own = (
            "not private" if isinstance(g, NonPrivate) else f"epsilon={round_up(g.epsilon(d))}"
            for g, d in ((self.selection, self.delta), (self.fit, self.delta))
        )
        final = "that of the chosen trial"
        if self.refit is not None and self.refit_epsilon is not None:
            final = f"a fit of all rows with epsilon={round_up(self.refit_epsilon)}"
        return (
            f"Plan of a search among {self.n_candidates} candidates:"
            f" the best of {self.law.describe()}\n"
            f"  budget: {at}, {self.neighboring.value}, unit record\n"
            f"  a trial: {own} for a fit of {self.n_train} rows, {scored}\n"
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
        return worst(*(plan.guarantee() for plan in plans(budget, n_train)))

    fit: Guarantee
    noise: Guarantee
    selection: Guarantee
    refit: Guarantee | None = None
    refit_epsilon = None
    if refit_share is not None:
        refit_epsilon = refit_share * epsilon
        made = plans(refit_epsilon, n_samples)
        refit = NonPrivate() if math.isinf(epsilon) else worst(*(p.guarantee() for p in made))
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
    return SearchPlan(
        n_candidates=len(candidates),
        law=law,
        epsilon=epsilon,
        delta=delta,
        trial_epsilon=trial_epsilon,
        n_train=n_train,
        n_validation=n_validation,
        fit=fit,
        score=noise,
        score_std=score_std,
        selection=selection,
        refit_epsilon=refit_epsilon,
        refit=refit,
        neighboring=common_relation(trial_plans),
        assumptions=tuple(dict.fromkeys(line for p in trial_plans for line in p.assumptions)),
        warnings=tuple(dict.fromkeys(warned)),
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
