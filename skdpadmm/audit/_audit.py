"""The one function of this room."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import cycle, islice
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import clone
from tqdm import tqdm

from skdpadmm.audit._black_box import lower_bounds
from skdpadmm.audit._bounds import twice
from skdpadmm.audit._canaries import n_directions, with_canaries
from skdpadmm.audit._neighbors import Neighbors, schema_of, worst_case_neighbors
from skdpadmm.audit._replay import Replays
from skdpadmm.audit._report import AuditReport, ReplayLine
from skdpadmm.audit._trials import Trials, run_trials, trials_of
from skdpadmm.privacy import GaussianDP, Guarantee, Neighboring
from skdpadmm.protocol import MODEL, Plan

GIVEN = "as they were given"
METHODS = ("replay", "black-box", "canaries")
# Runs where nobody says how many.
RUNS = {"replay": 5, "black-box": 10_000, "canaries": 200}


@dataclass(frozen=True, kw_only=True)
class _Claim:
    """What an estimator claims between data sets as far apart as those of an audit."""

    observer: str
    epsilon: float
    delta: float
    guarantee: Guarantee | None = None
    mu: float | None = None


def audit(
    estimator: Any,
    X: Any = None,
    y: Any = None,
    *,
    method: str = "replay",
    n_runs: int | None = None,
    confidence: float = 0.99,
    delta: float | None = None,
    neighbors: Any = None,
    observer: str | None = None,
    n_jobs: int | None = None,
    random_state: int | None = None,
    verbose: int = 0,
    **fit_params: Any,
) -> AuditReport:
    """Attack an estimator's guarantee, and say what was found beside what is claimed.

    An audit is for made-up or public data: nothing is counted in a ledger of the estimator. What it
    reports of private data tells more than a fit, and no guarantee covers that.

    Parameters
    ----------
    estimator : estimator
        Unfitted or fitted; it is cloned. For ``method="replay"`` one of this library, else anything
        with `fit` and `coef_`.
    X : array-like of shape (n_samples, n_features), default=None
        Records to hide one in. None: a few records are made from what is public: rows as long as
        they may be, with targets at their bounds, where what records say is clipped.
    y : array-like of shape (n_samples,), default=None
        Their targets.
    method : {"replay", "black-box", "canaries"}, default="replay"
        "replay" fits a data set, runs the same plan on neighbouring ones with the same randomness
        and the same past, and compares every released quantity with its declared sensitivity; and
        the noise that was drawn with the noise that was planned. "black-box" fits both data sets
        thousands of times, chooses an event by one half of the runs and counts it on the other.
        "canaries" hides many records in one run, whose targets were drawn, and guesses them.
    n_runs : int, default=None
        Replays, fits on each data set, or canaries. None: 5, 10,000, or 200 (at most as many as
        there are records).
    confidence : float, default=0.99
        With which each report's finding holds; in (0, 1).
    delta : float, default=None
        At which epsilon is bounded; None: the estimator's.
    neighbors : pair of (X, y), default=None
        Two data sets that the claim is about. None: a record is replaced by its opposite.
    observer : str, default=None
        Whose guarantee is tried. None: for a replay the adversary, who sees all releases; else
        "model", where there is one, who sees coefficients and intercept as the attack does.
    n_jobs : int, default=None
        Processes for "black-box"; None: one.
    random_state : int, default=None
        Seed of the coins of canaries, and of noise: each run then has a seed of its own. None:
        noise comes from where a user's does.
    verbose : int, default=0
        Above 0, a bar shows how many runs are done.
    **fit_params : dict
        Passed to `fit` with either data set, such as ``agents``.

    Returns
    -------
    report : AuditReport

    Raises
    ------
    ValueError
        Where a parameter is out of range, or where data cannot be made from public facts.

    Notes
    -----
    **Replace one, zero out.** Neighbours that are made here replace a unit. An estimator that
    promises zero-out is held to what follows for two of its steps.

    **Replay.** What the first fit released is let out again in the second one, so a release moves
    by what its sensitivity bounds: the step that the unit adds, given the past. Noise is tested for
    being too little, and for coming twice: between runs, repetitions, agents and entries. A replay
    does not see iterates of a path whose loop adds the noise by itself: there it tests the noise
    alone, and "black-box" has to do the rest. Where a hidden random term is added to an objective,
    it seeks the term with which the other data have the same minimiser, and compares how far it
    moved with the bound of gradients; it finds none with a penalty that has kinks, and does not
    seek any where there are rounds of them.

    **Black box.** For an event of probability p on one data set and q on the other,
    ``log((p - delta) / q)`` bounds epsilon from below, by bounds of Clopper and Pearson. A claim of
    mu-GDP is also refuted where ``ppf(p) - ppf(q)`` is larger than mu. Both together hold at the
    confidence.

    **Canaries.** The number of correct guesses is compared with what epsilon and delta allow
    (Theorem 5.2 of [1]_). One run says less than thousands, so a bound far below the claim is no
    surprise.

    References
    ----------
    .. [1] T. Steinke, M. Nasr, M. Jagielski, "Privacy auditing with one (1) training run",
       NeurIPS 2023.

    Examples
    --------
    >>> from skdpadmm import DPAdmmRidge
    >>> from skdpadmm.audit import audit
    >>> model = DPAdmmRidge(epsilon=3, delta=1e-3, max_iter=3)
    >>> report = audit(model, method="black-box", n_runs=400, random_state=0)
    >>> report.is_violation, report.lower_bound < report.claimed_epsilon <= 3.0001
    (False, True)
    """
    _check(method, n_runs, confidence, delta, random_state)
    model = clone(estimator)
    known = model.get_params(deep=False)
    # A seed would fix the noise of all runs, and an audit is no use of data.
    model.set_params(**{k: None for k in ("random_state", "ledger") if k in known})
    if "verbose" in known:
        model.set_params(verbose=0)
    if method == "canaries" and neighbors is not None:
        raise ValueError("Got neighbors with method='canaries', expected None: coins make them.")
    n_features = 3 if method == "replay" else 1
    with warnings.catch_warnings():
        # Such as that delta is not small beside the few records there are.
        warnings.simplefilter("ignore")
        if method == "canaries":
            return _canaries(
                model, X, y, fit_params, n_runs, confidence, delta, observer, random_state,
            )  # fmt: skip
        pairs = _pairs(model, X, y, neighbors, fit_params, n_features)
        if method == "replay":
            if "random_state" not in known:
                random_state = None
            if getattr(model, "epsilon", None) == math.inf:
                # Without privacy there is nothing to compare, and huge rows are refused.
                pairs = pairs[:1]
            return _replay(model, pairs, n_runs, confidence, delta, observer, random_state, verbose)
        return _black_box(
            model, pairs[0], n_runs, confidence, delta, observer, n_jobs, random_state, verbose,
            is_given=neighbors is not None,
        )  # fmt: skip


def _replay(
    model: Any,
    pairs: list[Neighbors],
    n_runs: int | None,
    confidence: float,
    delta: float | None,
    observer: str | None,
    random_state: int | None,
    verbose: int,
) -> AuditReport:
    n_runs = max(n_runs or RUNS["replay"], 1)
    replays = Replays(replaces=pairs[0].differ != GIVEN)
    tried = max(n_runs, len(pairs))
    bar = tqdm(islice(cycle(pairs), tried), total=tried, unit="replay", disable=not verbose)
    rng = None if random_state is None else np.random.default_rng(random_state)
    for pair in bar:
        seed = None if rng is None else int(rng.integers(2**31))
        one = clone(model)
        replays.add(one if seed is None else one.set_params(random_state=seed), pair)
    assert replays.plan is not None
    claim = _claim_of(model, replays.plan, observer, delta, None, is_doubled=False)
    lines = [*replays.lines(confidence)] if replays.plan.budget.is_private else []
    lines += [
        ReplayLine(
            name=what, times=1, moved=None, declared=None, noise=None,
            found="depends on data", is_violation=True,
        )
        for what in dict.fromkeys(replays.differs)
        if replays.plan.budget.is_private
    ]  # fmt: skip
    return _report(
        model,
        "replay",
        claim,
        confidence,
        tried,
        "; or ".join(pair.differ for pair in pairs),
        lines=tuple(lines),
        is_violation=any(line.is_violation for line in lines),
    )


def _black_box(
    model: Any,
    pair: Neighbors,
    n_runs: int | None,
    confidence: float,
    delta: float | None,
    observer: str | None,
    n_jobs: int | None,
    random_state: int | None,
    verbose: int,
    *,
    is_given: bool,
) -> AuditReport:
    n_runs = n_runs or RUNS["black-box"]
    if n_runs < 8:
        raise ValueError(f"Got n_runs={n_runs} for method='black-box', expected at least 8.")
    worlds = [trials_of(model, data, pair.fit_params) for data in (pair.first, pair.second)]
    claim = _claim(model, worlds[0], pair, observer, delta)
    found = run_trials(worlds, n_runs, n_jobs=n_jobs, random_state=random_state, verbose=verbose)
    bounds = lower_bounds(
        *found, delta=claim.delta, confidence=confidence, is_gaussian=claim.mu is not None
    )
    refuted = bounds.epsilon > claim.epsilon or (claim.mu is not None and bounds.mu > claim.mu)
    return _report(
        model,
        "black-box",
        claim,
        confidence,
        n_runs,
        pair.differ,
        lower_bound=bounds.epsilon,
        mu_lower_bound=bounds.mu if claim.mu is not None else None,
        event=bounds.event,
        is_violation=refuted,
    )


def _canaries(
    model: Any,
    X: Any,
    y: Any,
    fit_params: dict[str, Any],
    n_runs: int | None,
    confidence: float,
    delta: float | None,
    observer: str | None,
    random_state: int | None,
) -> AuditReport:
    if getattr(model, "privacy_unit", "record") == "agent":
        raise ValueError(
            "Got privacy_unit='agent' for method='canaries', expected 'record': canaries are"
            " records. Choose method='black-box'."
        )
    is_given = X is not None
    n_canaries = n_runs or min(RUNS["canaries"], len(X) if is_given else RUNS["canaries"])
    schema = schema_of(model, X, y, fit_params, n_directions(n_canaries))
    if not is_given:
        schema = _larger(schema, n_canaries)
    rng = np.random.default_rng(random_state)
    canaries = with_canaries(schema, n_canaries, rng, is_given=is_given)
    if random_state is not None and "random_state" in model.get_params(deep=False):
        model.set_params(random_state=int(rng.integers(2**31)))
    pair = Neighbors(
        first=(canaries.X, canaries.y),
        second=(canaries.X, canaries.y),
        fit_params=schema.fit_params,
        differ=f"the targets of {n_canaries} records, each by a coin",
    )
    claim = _claim(model, trials_of(model, pair.first, pair.fit_params), pair, observer, delta)
    model.fit(*pair.first, **pair.fit_params)
    run = canaries.guess(model, max(n_canaries // 2, 1))
    bound = run.epsilon(claim.delta, confidence)
    return _report(
        model,
        "canaries",
        claim,
        confidence,
        1,
        pair.differ,
        lower_bound=bound,
        event=f"{run.n_correct} of {run.n_guesses} guesses were right",
        is_violation=bound > claim.epsilon,
    )


def _larger(schema: Any, n_samples: int) -> Any:
    """The same facts with as many records as there are canaries, or a few more for agents."""
    fit_params = dict(schema.fit_params)
    agents = fit_params.get("agents")
    if agents is not None:
        labels = np.unique(np.asarray(agents))
        fit_params["agents"] = np.sort(np.resize(labels, n_samples))
    return replace(
        schema,
        X=np.resize(schema.X, (n_samples, schema.X.shape[1])),
        y=np.resize(schema.y, n_samples),
        fit_params=fit_params,
    )


def _pairs(
    model: Any, X: Any, y: Any, neighbors: Any, fit_params: dict[str, Any], n_features: int
) -> list[Neighbors]:
    if neighbors is None:
        return list(worst_case_neighbors(schema_of(model, X, y, fit_params, n_features)))
    if X is not None or y is not None:
        raise ValueError("Got neighbors beside X or y, expected one of them.")
    try:
        (X1, y1), (X2, y2) = neighbors
    except (TypeError, ValueError):
        raise ValueError(
            "Got neighbors that are no pair, expected ((X, y), (X2, y2)): two data sets."
        ) from None
    return [Neighbors(first=(X1, y1), second=(X2, y2), fit_params=dict(fit_params), differ=GIVEN)]


def _claim(
    model: Any, trials: Trials, pair: Neighbors, observer: str | None, delta: float | None
) -> _Claim:
    """What is claimed: by a plan, by a report, or by parameters that are named as usual."""
    is_doubled = pair.differ != GIVEN
    if trials.pending is not None:
        plan = trials.pending.planned.plan
        return _claim_of(model, plan, observer, delta, MODEL, is_doubled=is_doubled)
    if trials.report is not None:
        report = trials.report
        known = [seen.name for seen in report.observers]
        seen = report.observers[known.index(observer if observer in known else report.adversary)]
        return _claim_for(
            seen.name,
            report.guarantee(observer or seen.name),
            report.delta if delta is None else delta,
            is_doubled=is_doubled and seen.neighboring is Neighboring.ZERO_OUT,
        )
    epsilon = getattr(model, "epsilon", None)
    if not isinstance(epsilon, Real):
        raise ValueError(
            f"Got {type(model).__name__} with epsilon={epsilon!r}, expected an estimator with a"
            " parameter `epsilon`: what it claims."
        )
    if delta is None:
        delta = float(getattr(model, "delta", 0.0))
    return _Claim(observer=observer or MODEL, epsilon=float(epsilon), delta=delta)


def _claim_of(
    model: Any,
    plan: Plan,
    observer: str | None,
    delta: float | None,
    default: str | None,
    *,
    is_doubled: bool,
) -> _Claim:
    """What a plan claims."""
    if observer is None:
        observer = default if default in plan.facts.observers else plan.budget.observer
    delta = plan.budget.delta if delta is None else delta
    if not plan.budget.is_private:
        return _Claim(observer=observer, epsilon=math.inf, delta=delta)
    return _claim_for(
        observer,
        plan.guarantee(observer),
        delta,
        is_doubled=is_doubled and plan.facts.neighboring is Neighboring.ZERO_OUT,
    )


def _claim_for(observer: str, guarantee: Guarantee, delta: float, *, is_doubled: bool) -> _Claim:
    """What a guarantee claims, of one step or of two."""
    mu = None
    if isinstance(guarantee, GaussianDP):
        mu = guarantee.mu * (2 if is_doubled else 1)
    return _Claim(
        observer=observer,
        epsilon=twice(guarantee, delta) if is_doubled else guarantee.epsilon(delta),
        delta=delta,
        guarantee=guarantee,
        mu=mu,
    )


def _report(
    model: Any,
    method: str,
    claim: _Claim,
    confidence: float,
    n_runs: int,
    neighbors: str,
    *,
    lower_bound: float | None = None,
    mu_lower_bound: float | None = None,
    event: str = "",
    lines: Iterable[ReplayLine] = (),
    is_violation: bool,
) -> AuditReport:
    return AuditReport(
        subject=type(model).__name__,
        method=method,
        observer=claim.observer,
        claimed_epsilon=claim.epsilon,
        delta=claim.delta,
        guarantee=claim.guarantee,
        confidence=confidence,
        lower_bound=lower_bound,
        mu_lower_bound=mu_lower_bound,
        claimed_mu=claim.mu,
        n_runs=n_runs,
        neighbors=neighbors,
        event=event,
        lines=tuple(lines),
        is_violation=is_violation,
    )


def _check(method: str, n_runs: Any, confidence: Any, delta: Any, random_state: Any) -> None:
    if method not in METHODS:
        raise ValueError(f"Got method={method!r}, expected one of {list(METHODS)}.")
    if n_runs is not None and not (isinstance(n_runs, Integral) and int(n_runs) >= 1):
        raise ValueError(f"Got n_runs={n_runs!r}, expected a positive int or None.")
    if not (isinstance(confidence, Real) and 0 < float(confidence) < 1):
        raise ValueError(f"Got confidence={confidence!r}, expected a float in (0, 1).")
    if delta is not None and not (isinstance(delta, Real) and 0 <= float(delta) < 1):
        raise ValueError(f"Got delta={delta!r}, expected a float in [0, 1).")
    seed = random_state
    if seed is not None and not (isinstance(seed, Integral) and int(seed) >= 0):
        raise ValueError(f"Got random_state={seed!r}, expected an int >= 0 or None.")
