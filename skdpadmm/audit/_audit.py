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
from tqdm import tqdm

from skdpadmm._candidates import last_step
from skdpadmm.audit._black_box import lower_bounds
from skdpadmm.audit._bounds import twice
from skdpadmm.audit._canaries import SHARE, n_directions, with_canaries
from skdpadmm.audit._copies import copy_of, is_search
from skdpadmm.audit._given import require_neighbors
from skdpadmm.audit._neighbors import Neighbors, schema_of, worst_case_neighbors
from skdpadmm.audit._replay import Replays
from skdpadmm.audit._report import AuditReport, ReplayLine
from skdpadmm.audit._trials import Trials, is_ours, run_trials, trials_of
from skdpadmm.privacy import GaussianDP, Guarantee, Neighboring
from skdpadmm.protocol import MODEL, Plan

GIVEN = "as they were given"
METHODS = ("replay", "black-box", "canaries")
# Runs where nobody says how many.
RUNS = {"replay": 5, "black-box": 10_000, "canaries": 500}


@dataclass(frozen=True, kw_only=True)
class _Options:
    """What an audit is asked for, checked; see `audit`."""

    method: str
    n_runs: int | None
    confidence: float
    delta: float | None
    observer: str | None
    n_jobs: int | None
    # An int once it is made.
    random_state: Any
    verbose: int

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"Got method={self.method!r}, expected one of {list(METHODS)}.")
        n, confidence, delta = self.n_runs, self.confidence, self.delta
        if n is not None and not (isinstance(n, Integral) and int(n) >= 1):
            raise ValueError(f"Got n_runs={n!r}, expected a positive int or None.")
        if not (isinstance(confidence, Real) and 0 < float(confidence) < 1):
            raise ValueError(f"Got confidence={confidence!r}, expected a float in (0, 1).")
        if delta is not None and not (isinstance(delta, Real) and 0 <= float(delta) < 1):
            raise ValueError(f"Got delta={delta!r}, expected a float in [0, 1).")
        if self.method != "black-box" and self.n_jobs not in (None, 1):
            raise ValueError(
                f"Got n_jobs={self.n_jobs!r} for method={self.method!r}, expected None or 1: it is"
                " one process. Leave it out."
            )
        object.__setattr__(self, "random_state", _seed(self.random_state))

    @property
    def runs(self) -> int:
        """How many runs are asked for, by whoever calls or by the method."""
        return RUNS[self.method] if self.n_runs is None else int(self.n_runs)

    @property
    def rng(self) -> np.random.Generator | None:
        """Where seeds of runs come from; None: noise comes from where a user's does."""
        return None if self.random_state is None else np.random.default_rng(self.random_state)


def _seed(given: Any) -> int | None:
    if given is None or (isinstance(given, Integral) and int(given) >= 0):
        return None if given is None else int(given)
    if isinstance(given, np.random.Generator):
        return int(given.integers(2**31))
    if isinstance(given, np.random.RandomState):
        return int(given.randint(2**31))
    raise ValueError(
        f"Got random_state={given!r}, expected an int >= 0, a RandomState, a Generator or None."
    )


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
    random_state: int | np.random.RandomState | np.random.Generator | None = None,
    verbose: int = 0,
    **fit_params: Any,
) -> AuditReport:
    """Attack an estimator's guarantee, and say what was found beside what is claimed.

    An audit is for made-up or public data: nothing is counted in a ledger of the estimator, or of
    one in it. What it reports of private data tells more than a fit, and no guarantee covers that.

    Parameters
    ----------
    estimator : estimator
        Unfitted or fitted; it is cloned. For ``method="replay"`` one of this library, else anything
        with `fit` and `coef_`; what scikit-learn cannot clone is copied. A pipeline is audited with
        all of its steps, on data that is given: what they learn from data is in no claim.
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
        Replays, fits on each data set, or canaries. None: 5, 10,000, or 500 (at most as many as
        there are records). Of a quarter of the canaries, the surest ones, something is said.
    confidence : float, default=0.99
        With which each report's finding holds; in (0, 1).
    delta : float, default=None
        At which epsilon is bounded; None: the estimator's.
    neighbors : pair of (X, y), default=None
        Two data sets that the claim is about, with their rows in the same order: they differ in one
        record, or in records of one agent where the unit is an agent. Where an estimator of others
        declares no relation, one may also have a record less. None: a record is replaced by its
        opposite.
    observer : str, default=None
        Whose guarantee is tried. None: for a replay the adversary, who sees all releases; else
        "model", where there is one, who sees coefficients and intercept as the attack does.
    n_jobs : int, default=None
        Processes for "black-box"; None: one. Other methods take no more than one.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the coins of canaries, and of noise: each run then has a seed of its own. None:
        noise comes from where a user's does.
    verbose : int, default=0
        Above 0, a bar shows how many runs are done.
    **fit_params : dict
        Passed to `fit` with either data set, such as ``agents``, or ``dpfedridge__agents`` for the
        last step of a pipeline.

    Returns
    -------
    report : AuditReport

    Raises
    ------
    ValueError
        Where a parameter is out of range, where data cannot be made from public facts, or where
        `neighbors` are none.

    Notes
    -----
    **Replace one, zero out.** Neighbours replace a unit, made here or given. An estimator that
    promises zero-out is held to what follows for two of its steps, whatever the rows are.

    **Replay.** What the first fit released is let out again in the second one, so a release moves
    by what its sensitivity bounds: the step that the unit adds, given the past. Noise is tested for
    being too little, and for coming twice: between runs, repetitions, agents and entries. Loops
    that add noise by themselves are replayed too: the steps of a path one at a time, each from the
    recorded iterate. Where a hidden random term is added to an objective, once or in rounds, it
    seeks the terms with which the other data have the same minimisers, and compares how far they
    moved with the bound of gradients; what the curvature costs is not compared. A release of which
    a replay did not see how far it moves is "not replayed", with the reason: there its noise alone
    was tested, and "black-box" has to do the rest.

    **Black box.** Of the neighbours that are made here those are taken between which the releases
    of a replay move the most. For an event of probability p on one data set and q on the other,
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
    options = _Options(
        method=method, n_runs=n_runs, confidence=confidence, delta=delta, observer=observer,
        n_jobs=n_jobs, random_state=random_state, verbose=verbose,
    )  # fmt: skip
    if method == "canaries" and neighbors is not None:
        raise ValueError("Got neighbors with method='canaries', expected None: coins make them.")
    last = last_step(estimator)
    if is_search(last):
        raise ValueError(
            f"Got {type(last).__name__}, a search that fits many models, expected one model. Pass"
            " its best_estimator_; of a Pipeline pass its last step, or data as well."
        )
    # A seed would fix the noise of all runs, and an audit is no use of data.
    model = copy_of(estimator)
    n_features = 3 if method == "replay" else 1
    with warnings.catch_warnings():
        # Such as that delta is not small beside the few records there are.
        warnings.simplefilter("ignore")
        if method == "canaries":
            return _canaries(model, X, y, fit_params, options)
        pairs = _pairs(model, X, y, neighbors, fit_params, n_features)
        if method == "replay":
            if getattr(last_step(model), "epsilon", None) == math.inf:
                # Without privacy there is nothing to compare, and huge rows are refused.
                pairs = pairs[:1]
            return _replay(model, pairs, options)
        pair = _hardest(model, pairs, options.random_state)
        return _black_box(model, pair, options)


def _replay(model: Any, pairs: list[Neighbors], options: _Options) -> AuditReport:
    replays = Replays()
    tried = max(options.runs, len(pairs))
    bar = tqdm(islice(cycle(pairs), tried), total=tried, unit="replay", disable=not options.verbose)
    rng = options.rng
    for pair in bar:
        seed = None if rng is None else int(rng.integers(2**31))
        replays.add(copy_of(model, seed), pair)
    assert replays.plan is not None
    claim = _claim_of(replays.plan, options, None, is_doubled=False)
    lines = [*replays.lines(options.confidence)] if replays.plan.budget.is_private else []
    lines += [
        ReplayLine(
            name=what, times=1, moved=None, declared=None, noise=None, found=found,
            is_violation=True,
        )
        for what, found in replays.differs.items()
        if replays.plan.budget.is_private
    ]  # fmt: skip
    return _report(
        model,
        claim,
        options,
        tried,
        "; or ".join(pair.differ for pair in pairs),
        lines=tuple(lines),
        is_violation=any(line.is_violation for line in lines),
    )


def _black_box(model: Any, pair: Neighbors, options: _Options) -> AuditReport:
    n_runs = options.runs
    if n_runs < 8:
        raise ValueError(f"Got n_runs={n_runs} for method='black-box', expected at least 8.")
    worlds = [trials_of(model, data, pair.fit_params) for data in (pair.first, pair.second)]
    claim = _claim(model, worlds[0], options)
    found = run_trials(
        worlds, n_runs, n_jobs=options.n_jobs, random_state=options.random_state,
        verbose=options.verbose,
    )  # fmt: skip
    bounds = lower_bounds(
        *found, delta=claim.delta, confidence=options.confidence, is_gaussian=claim.mu is not None
    )
    refuted = bounds.epsilon > claim.epsilon or (claim.mu is not None and bounds.mu > claim.mu)
    return _report(
        model,
        claim,
        options,
        n_runs,
        pair.differ,
        lower_bound=bounds.epsilon,
        mu_lower_bound=bounds.mu if claim.mu is not None else None,
        event=bounds.event,
        is_violation=refuted,
    )


def _canaries(
    model: Any, X: Any, y: Any, fit_params: dict[str, Any], options: _Options
) -> AuditReport:
    if getattr(last_step(model), "privacy_unit", "record") == "agent":
        raise ValueError(
            "Got privacy_unit='agent' for method='canaries', expected 'record': canaries are"
            " records. Choose method='black-box'."
        )
    is_given = X is not None
    n_canaries = options.n_runs or min(options.runs, len(X) if is_given else options.runs)
    schema = schema_of(model, X, y, fit_params, n_directions(n_canaries))
    if not is_given:
        schema = _larger(schema, n_canaries)
    rng = np.random.default_rng(options.random_state)
    canaries = with_canaries(schema, n_canaries, rng, is_given=is_given)
    if options.random_state is not None:
        model = copy_of(model, int(rng.integers(2**31)))
    pair = Neighbors(
        first=(canaries.X, canaries.y),
        second=(canaries.X, canaries.y),
        fit_params=schema.fit_params,
        differ=f"the targets of {n_canaries} records, each by a coin",
    )
    claim = _claim(model, trials_of(model, pair.first, pair.fit_params), options)
    with tqdm(total=1, unit="fit", disable=not options.verbose) as bar:
        model.fit(*pair.first, **pair.fit_params)
        bar.update()
    run = canaries.guess(model, max(int(SHARE * n_canaries), 1))
    bound = run.epsilon(claim.delta, options.confidence)
    return _report(
        model,
        claim,
        options,
        n_canaries,
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
    require_neighbors(model, (X1, y1), (X2, y2), fit_params)
    return [Neighbors(first=(X1, y1), second=(X2, y2), fit_params=dict(fit_params), differ=GIVEN)]


def _hardest(model: Any, pairs: list[Neighbors], random_state: int | None) -> Neighbors:
    """The pair between which releases move the most, where a replay sees it; else the first."""
    if len(pairs) == 1 or not is_ours(model) or last_step(model).epsilon == math.inf:
        return pairs[0]
    best, hardest = 0.0, pairs[0]
    for pair in pairs:
        replays = Replays()
        replays.add(copy_of(model, random_state), pair)
        # Costs of Gaussian releases add in squares. Up to rounding the first of equals.
        energy = sum((moved / declared) ** 2 for moved, declared in replays.moved.values())
        if energy > best * (1 + 1e-3):
            best, hardest = energy, pair
    return hardest


def _claim(model: Any, trials: Trials, options: _Options) -> _Claim:
    """What is claimed: by a plan, by a report, or by parameters that are named as usual."""
    observer = options.observer
    if trials.pending is not None:
        plan = trials.pending.planned.plan
        return _claim_of(plan, options, MODEL, is_doubled=True)
    if trials.report is not None:
        report = trials.report
        known = [seen.name for seen in report.observers]
        seen = report.observers[known.index(observer if observer in known else report.adversary)]
        return _claim_for(
            seen.name,
            report.guarantee(observer or seen.name),
            report.delta if options.delta is None else options.delta,
            is_doubled=seen.neighboring is Neighboring.ZERO_OUT,
        )
    last = last_step(model)
    epsilon, delta = getattr(last, "epsilon", None), options.delta
    if not isinstance(epsilon, Real):
        raise ValueError(
            f"Got {type(last).__name__} with epsilon={epsilon!r}, expected an estimator with a"
            " parameter `epsilon`: what it claims. Set one, or pass the estimator that has it: of a"
            " search its `best_estimator_`."
        )
    if delta is None:
        delta = float(getattr(last, "delta", 0.0))
    return _Claim(observer=observer or MODEL, epsilon=float(epsilon), delta=delta)


def _claim_of(plan: Plan, options: _Options, default: str | None, *, is_doubled: bool) -> _Claim:
    """What a plan claims."""
    observer = options.observer
    if observer is None:
        observer = default if default in plan.facts.observers else plan.budget.observer
    delta = plan.budget.delta if options.delta is None else options.delta
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
    claim: _Claim,
    options: _Options,
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
        method=options.method,
        observer=claim.observer,
        claimed_epsilon=claim.epsilon,
        delta=claim.delta,
        guarantee=claim.guarantee,
        confidence=options.confidence,
        lower_bound=lower_bound,
        mu_lower_bound=mu_lower_bound,
        claimed_mu=claim.mu,
        n_runs=n_runs,
        neighbors=neighbors,
        event=event,
        lines=tuple(lines),
        is_violation=is_violation,
    )
