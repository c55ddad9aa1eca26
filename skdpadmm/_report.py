"""Reports of plans: observers, their guarantees, and assumptions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from skdpadmm._pipelines import public_name
from skdpadmm.algorithms import COUNT_SHARE
from skdpadmm.exceptions import PrivacyWarning, UndeclaredBoundsWarning, WeakSignalWarning
from skdpadmm.privacy import (
    GaussianDP,
    Neighboring,
    NonPrivate,
    Observer,
    PoissonSubsampledGaussian,
    PrivacyReport,
    ReleaseLine,
    gaussian_mu,
    round_up,
    worst,
)
from skdpadmm.privacy.claims import SAME_ROWS
from skdpadmm.protocol import MODEL, WEAK, Budget, Plan, Release, Signal
from skdpadmm.records import Coordinates

NOT_CERTIFIED = (
    "Noise is sampled in floating point: not certified against attacks on its last bits."
)

# Intervals of models of classes that would be so many times as wide as without privacy mostly fail:
# one step does not reach the optimum.
WIDE = 2.0


def fit_report(
    estimator: Any, plan: Plan, *, simulated: bool, labels: tuple[Any, ...] = (), who: str = ""
) -> PrivacyReport:
    """What a fit by a plan guarantees, its assumptions, and what it does not cover."""
    seed = estimator.random_state
    simulation = (
        f"random_state={seed if isinstance(seed, Integral) else type(seed).__name__} fixes the"
        " noise: anyone who knows the seed can remove it, and fits with equal seeds share it."
        " Publish only fits with random_state=None."
        if simulated and plan.budget.is_private
        else next((line for line in plan.assumptions if "by looking at the data" in line), "")
    )
    own, known = estimator.algorithm, plan.assumptions
    if not isinstance(own, str) and not public_name(own):
        line = f"{type(own).__name__} is not of this package: its releases are as it declares them."
        known = (*known, line)
    return PrivacyReport(
        subject=type(estimator).__name__,
        delta=plan.budget.delta,
        observers=tuple(
            _observers(plan, traced=bool(getattr(estimator.algorithm, "trace", False)), who=who)
        ),
        releases=tuple(
            ReleaseLine(
                name=r.name + _hidden(r),
                times=r.times,
                shape=r.shape,
                sensitivity=max(r.sensitivities, default=None),
                noise_std=r.noise_std,
                agent_noise_std=r.agent_noise_std,
            )
            for r in plan.releases
        ),
        assumptions=known,
        not_covered=(
            "Transformers fitted earlier in a pipeline, and choices made by looking at the data.",
            "Scores on private data, cv_results_, and the selection of a best model by them.",
            f"Other fits on the same {plan.unit if plan.unit == 'person' else 'record'}s: privacy"
            " losses add up.",
            "Errors of input validation, which may show values of the data.",
            "Running time and memory.",
        ),
        simulation=simulation,
        adversary=plan.budget.observer,
        agent_labels=labels,
        signal=str(plan.signal or ""),
        budget=plan.budget.epsilon,
        signal_strength=None if plan.signal is None else plan.signal.strength,
    )


def _observers(plan: Plan, *, traced: bool, who: str) -> Iterator[Observer]:
    """Each observer, with the guarantee against it."""
    # Whoever has the estimator has the path that it keeps.
    seen = "model after each iteration" if traced else "final model"
    facts, agents, is_private = plan.facts, plan.facts.agents, plan.budget.is_private
    for name in facts.observers:
        line = Observer(
            name=name,
            sees=agents.sees(name, _released(plan, name)).replace("final model", seen),
            unit=facts.unit,
            neighboring=facts.neighboring,
            guarantee=plan.guarantee(name) if is_private else NonPrivate(),
            who=who,
        )
        if is_private:
            kinds, always = plan.guarantees(name), plan.worst_cases(name)
            if always != kinds:
                line = replace(line, always=worst(*always))
            pairs = [r.view(name).pairs for r in plan.releases]
            first = next((known for known in pairs if known is not None), None)
            own = tuple(kinds[k] for k in agents.kind)
            line = replace(line, per_agent=own, pairs=first)
        yield line


def _released(plan: Plan, observer: str) -> str:
    """What whoever has the model sees of a fit."""
    seen = [release for release in plan.releases if observer in release.seen_by]
    if not any(release.is_hidden for release in seen):
        return "everything that was released, and the final model"
    return ("what prepared the fit, and " if len(seen) > 1 else "") + "the final model alone"


def _hidden(release: Release) -> str:
    """A remark about a release that no observer sees in full."""
    if release.is_hidden:
        return " (only the last is seen)"
    return " (never seen)" if release.door == "hidden_term" else ""


def assumptions_of(plan: Plan, coordinates: Coordinates, sampler: str) -> Iterator[str]:
    """The assumptions of the guarantee of a plan that hold for every algorithm."""
    facts, agents = plan.facts, plan.facts.agents
    is_record, is_zero_out = facts.unit == "record", facts.neighboring is Neighboring.ZERO_OUT
    if facts.is_stream:
        yield "How many records arrive, and when, is public and does not depend on them."
    size = "Column" if facts.is_stream else f"n_samples={facts.n_samples}, column"
    if facts.count is not None:
        size = f"n_samples={facts.n_samples}, a noisy count for {COUNT_SHARE:.0%} of the squared"
        size += " budget, column"
        yield (
            "The number of records is private, and nothing else tells it: neither who gets rows by"
            " their position, as in KFold or train_test_split, nor tables and scores beside the"
            " fit. Neighbouring data sets have one record more or less, wherever it is."
        )
    if most := facts.max_rows_per_person:
        size = f"n_persons={facts.n_samples}, max_rows_per_person={most}, column"
        yield (
            "The ids in persons are right, and neighbouring data sets have the same ones. The"
            " number of persons is public; the number of rows of each is not."
        )
        yield (
            f"All rows of a person are protected together. Only the first {most} in the order given"
            " are used; every person weighs the same, and so does each of its rows."
        )
        if is_zero_out:
            yield "A person that is zeroed out contributes nothing; n_persons still counts it."
    yield f"{size} names and all parameters of the estimator are public."
    yield SAME_ROWS
    if is_zero_out and is_record:
        yield (
            "A record that is zeroed out has a loss of zero and counts as absent wherever a scale,"
            " a second moment or moments of targets are released; n_samples still counts it."
        )
    if is_record:
        yield "One record is one row: a person with several rows is protected less."
    if agents.n_agents:
        yield "Which agent holds which row is public: neighbouring data sets agree on it."
    if is_zero_out and facts.unit == "agent":
        yield "An agent that is zeroed out sends noise alone."
    rounds = (each.rounds() for each in plan.guarantees(MODEL))
    sampled = (isinstance(leaf, PoissonSubsampledGaussian) for each in rounds for leaf, _ in each)
    yield from agents.assumptions(prepares=bool(facts.preparations), is_amplified=any(sampled))
    for observer in filter(agents.hides_by_pairs, agents.observers):
        if isinstance(known := plan.guarantee(observer), GaussianDP):
            alone = GaussianDP(known.mu * math.sqrt(agents.paired_together))
            figure = round_up(alone.epsilon(plan.budget.delta))
            yield f"{observer}: if all other agents disclose what they know, epsilon={figure}."
    if coordinates.undeclared.any():
        yield (
            "feature_bounds not declared, or not for every column: rows (with their intercept) are"
            " scaled down to norm sqrt(n_parameters)."
        )
    if facts.rounding > 1.1:
        yield (
            "feature_bounds are far from 0 compared with their width: noise is"
            f" {facts.rounding:.3g} times larger, to cover rounding errors. Subtract a public"
            " constant from such columns."
        )
    yield from weak_delta(plan.budget, facts.n_samples, facts.unit)
    # Noise that is added to what is not on its grid is not certified by a sampler alone.
    hidden = any(r.door == "path_noise" and r.is_hidden for r in plan.releases)
    if sampler == "floating-point" or hidden:
        yield NOT_CERTIFIED


def weak_delta(budget: Budget, n_samples: int, unit: str = "record") -> Iterator[str]:
    """Warn of a delta that is not small beside the number of records, or of persons."""
    name, who = ("n_persons", "person") if unit == "person" else ("n_samples", "record")
    if budget.delta >= 1 / n_samples:
        yield (
            f"Got delta={budget.delta:g} for {name}={n_samples}, expected delta < 1 / {name}:"
            f" a mechanism that publishes one {who} in full can satisfy such a guarantee. Choose"
            f" delta well below 1 / {name}."
        )


def warnings_of(
    plan: Plan, coordinates: Coordinates, *, knows_target: bool, scale: str | None
) -> Iterator[Warning]:
    """What makes a fit useless or its guarantee weak, from parameters and shapes alone."""
    for line in weak_delta(plan.budget, plan.facts.n_samples, plan.unit):
        yield PrivacyWarning(line)
    columns, target = unknown_scales(plan, coordinates, scale), not knows_target
    if columns or target:
        ask = f"feature_bounds=(lower, upper), the public range of {columns} columns (or row_norm,"
        ask += ' or scale="private" if all have one unit)'
        lost = "one scale is estimated for all columns, and those of smaller units are lost"
        if plan.facts.scaling is None:
            lost = "rows are scaled down to a norm that suits columns in [-1, 1]"
        wanted = {ask: columns, "target_bounds=(lower, upper)": target}
        because = {lost: columns, "targets are clipped to [-3, 3]": target}
        asked, why = ([t for t, is_missing in d.items() if is_missing] for d in (wanted, because))
        line = f"Pass {', and '.join(asked)}. Without {'them' if asked[1:] else 'it'}"
        line += f" {'; '.join(why)}."
        yield UndeclaredBoundsWarning(line)
    elif (
        coordinates.has_target_scale
        and plan.facts.penalty.is_sparse
        and np.isfinite([coordinates.lower, coordinates.upper]).all()
    ):
        # At zero, with the best intercept, the gradient of the mean loss is a covariance: for
        # numbers in [-1, 1] at most one.
        largest = coordinates.scale / coordinates.target_scale
        if not plan.facts.penalty.prox(largest, step=1.0).any():
            largest = coordinates.scale.max() * coordinates.target_scale
            yield PrivacyWarning(
                "Every coefficient will be 0, whatever the data: the weight of the l1 norm is too"
                f" large, expected alpha (or alpha * l1_ratio) below {largest:.3g}: half the range"
                " of the widest column times half that of the target. Start with a hundredth of it."
            )
    strength = plan.facts.penalty.strong_convexity * coordinates.target_scale**2
    # Numbers spread evenly over [-1, 1] have the variance 1/3.
    is_shrunk = 3 * strength > plan.facts.loss.smoothness * coordinates.scale**2
    if shrunk := int((is_shrunk & np.isfinite(coordinates.upper - coordinates.lower)).sum()):
        yield PrivacyWarning(
            f"The penalty suppresses {shrunk} of {len(is_shrunk)} columns, expected none: it takes"
            " more than half of the coefficient of a column that spreads evenly over its declared"
            " bounds. The coefficients of such a column are large, because its unit is. Map columns"
            " to [-1, 1] first, for instance with PublicTableTransformer, or weaken the penalty."
        )
    wide = 0.0 if plan.facts.inference is None else plan.facts.inference.inflation
    most, of = (2 * WIDE, "rates") if plan.facts.loss.has_log_link else (WIDE, "classes")
    if wide > most and not plan.facts.loss.is_of_residual:
        yield WeakSignalWarning(
            f"Few coefficients will have an interval, or none: they would be {wide:.2g} times as"
            f" wide as without privacy, expected at most {most:g} times for {of}. Ask for a"
            " larger epsilon, use fewer columns or more rows, or leave intervals out."
        )
    if plan.signal is not None and plan.signal.strength < WEAK:
        yield WeakSignalWarning(_weak_signal(plan, plan.signal))


def unknown_scales(plan: Plan, coordinates: Coordinates, scale: str | None) -> int:
    """How many columns have a scale that is neither declared, nor that of all of them together."""
    columns = int(coordinates.undeclared.sum())
    # A single column has the scale that is estimated; of several, only the user can say so.
    is_estimated = plan.facts.scaling is not None and (scale == "private" or columns == 1)
    return 0 if is_estimated else columns


def _weak_signal(plan: Plan, signal: Signal) -> str:
    """The signal, and what would make it fair."""
    facts, budget, agents = plan.facts, plan.budget, plan.facts.agents
    missing = WEAK / signal.strength
    if budget.is_pure:
        enough = missing * budget.epsilon
    else:
        mu = missing * gaussian_mu(budget.epsilon, budget.delta)
        enough = GaussianDP(mu).epsilon(budget.delta)
    choices = [f"epsilon={enough:.2g}"]
    if facts.unit != "agent":
        choices.insert(0, f"{_rounded_up(missing * facts.n_samples)} {facts.unit}s")
    elif not agents.is_personal:
        # Where the noise of each hides it alone, noise grows with the root of their number.
        power = 2 if agents.sees_each_message(budget.observer) else 1
        choices.insert(0, f"{_rounded_up(missing**power * agents.n_agents)} agents")
    more = ""
    if (gain := agents.gain(budget.observer)) > 1:
        more = f' adversary="model" (signal {signal.strength * gain:.2g}) helps too.'
    return (
        f"Got a weak signal, n mu / c = {signal.strength:.2g}, expected at least {WEAK:g}: noise"
        " hides most of what the data say, and a constant may predict better. Enough would be"
        f" about {' or '.join(choices)}.{more}"
    )


def _rounded_up(count: float) -> int:
    """A count with two digits."""
    return math.ceil(float(round_up(count, 2)))
