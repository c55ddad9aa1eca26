"""The function `audit`, and its report."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import cycle, islice
from numbers import Integral, Real
from typing import Any

import numpy as np

from skdpadmm._document import Block, Document
from skdpadmm._fitting import progress_bar
from skdpadmm._pipelines import last_step
from skdpadmm.audit import _neighbors, _trials
from skdpadmm.audit._bounds import lower_bounds, twice
from skdpadmm.audit._neighbors import Neighbors
from skdpadmm.audit._replay import NOT_REPLAYED, ReplayLine, Replays
from skdpadmm.privacy import GaussianDP, Guarantee, Neighboring, round_down, round_up
from skdpadmm.protocol import MODEL

# Numbers of runs by default.
RUNS = {"replay": 5, "black-box": 10_000, "canaries": 500}
_RUNS_ARE = {"replay": "replays", "black-box": "fits of each data set", "canaries": "canaries"}
_COLUMNS = ("release", "times", "distance", "sensitivity", "noise / planned", "found")


@dataclass(frozen=True, kw_only=True, repr=False)
class AuditReport(Document):
    """The result of an audit and the claimed guarantee.

    Attributes
    ----------
    subject : str
        Name of the estimator.
    method : {"replay", "black-box", "canaries"}
    observer : str
        Observer of the tested guarantee.
    claimed_epsilon : float
        Claimed epsilon at `delta`, for data sets that differ as those of the audit do.
    delta : float
    guarantee : Guarantee or None
        The claim, if it is more than a pair of numbers.
    confidence : float
        Confidence of each bound; a sound estimator is accused with at most one minus this
        probability.
    lower_bound : float or None
        Lower bound of epsilon at `delta`, for any mechanism; None for a replay.
    mu_lower_bound : float or None
        Lower bound of mu, if the claim is one of Gaussian differential privacy.
    claimed_mu : float or None
    n_runs : int
        Replays, fits on each data set, or canaries in one fit.
    neighbors : str
        Difference of the data sets.
    event : str
        Event that distinguished them.
    lines : tuple of ReplayLine
        Lines of a replay, release by release.
    is_violation : bool
        Whether the claim is refuted.

    Examples
    --------
    >>> from skdpadmm import DPAdmmRidge
    >>> from skdpadmm.audit import audit
    >>> report = audit(DPAdmmRidge(max_iter=3), method="replay", random_state=0)
    >>> report.is_violation, sorted({line.found for line in report.lines})
    (False, ['nothing wrong'])
    """

    subject: str
    method: str
    observer: str
    claimed_epsilon: float
    delta: float
    guarantee: Guarantee | None = None
    claimed_mu: float | None = None
    confidence: float
    n_runs: int
    neighbors: str = ""
    event: str = ""
    lower_bound: float | None = None
    mu_lower_bound: float | None = None
    lines: tuple[ReplayLine, ...] = ()
    is_violation: bool = False

    @property
    def not_replayed(self) -> tuple[str, ...]:
        """Releases whose sensitivity a replay did not measure; `lines` say why."""
        return tuple(line.name for line in self.lines if line.found.startswith(NOT_REPLAYED))

    @property
    def verdict(self) -> str:
        """The result in a sentence."""
        if math.isinf(self.claimed_epsilon):
            return "Nothing is claimed: not private."
        if not self.is_violation:
            found = "No violation was found. That proves nothing: a better attack may find one."
            unseen = ", ".join(self.not_replayed)
            return f"{found} Not replayed: {unseen}." if unseen else found
        level = f"at {100 * self.confidence:g} % confidence"
        if wrong := [line.name for line in self.lines if line.is_violation]:
            return f"VIOLATION of {', '.join(wrong)}, {level}."
        if self.lower_bound is not None and self.lower_bound > self.claimed_epsilon:
            return f"VIOLATION: epsilon is at least {round_down(self.lower_bound)}, {level}."
        assert self.mu_lower_bound is not None
        return f"VIOLATION: mu is at least {round_down(self.mu_lower_bound)}, {level}."

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary; an infinite figure is the string "inf"."""
        plain = {name: _plain(getattr(self, name)) for name in self.__dataclass_fields__}
        plain["guarantee"] = None if self.guarantee is None else self.guarantee.to_dict()
        plain["lines"] = [{k: _plain(v) for k, v in asdict(line).items()} for line in self.lines]
        return {**plain, "verdict": self.verdict}

    _layout = ("\n", "")

    def _blocks(self) -> Iterator[Block]:
        yield Block("title", [f"Audit of {self.subject} by {self.method}"])
        yield Block("warning" if self.is_violation else "text", [self.verdict])
        claim = f"epsilon={round_up(self.claimed_epsilon)} at delta={round_up(self.delta)}"
        if self.guarantee is not None:
            claim += f", {self.guarantee.describe()}"
        lines = [(f"claimed against {self.observer}", claim), ("neighbours", self.neighbors)]
        lines.append(("runs", f"{self.n_runs} {_RUNS_ARE[self.method]}"))
        if self.lower_bound is not None:
            shown = f"{round_down(self.lower_bound)}, at {100 * self.confidence:g} % confidence"
            lines.append(("epsilon is at least", shown))
        if self.mu_lower_bound is not None and self.claimed_mu is not None:
            shown, claimed = round_down(self.mu_lower_bound), round_up(self.claimed_mu)
            lines.append(("mu is at least", f"{shown}, claimed {claimed}"))
        if self.event:
            lines.append(("event", self.event))
        yield Block("pairs", body=lines)
        if self.lines:
            yield Block("table", _COLUMNS, list(map(_row, self.lines)))


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _row(line: ReplayLine) -> tuple[str, ...]:
    return (
        line.name,
        str(line.times),
        "not seen" if line.distance is None else round_up(line.distance),
        "" if line.sensitivity is None else round_up(line.sensitivity),
        "not seen" if line.noise is None else f"{line.noise:.3g}",
        line.found,
    )


# Makes the report of the claim alone, of a model and its plan.
ClaimOf = Callable[..., AuditReport]


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
    """Attack the guarantee of an estimator, and compare the result with the claim.

    Use artificial or public data: no ledger counts the fits of an audit, and a report about private
    data reveals more than a fit.

    Parameters
    ----------
    estimator : estimator
        Unfitted or fitted; it is cloned, or copied if scikit-learn cannot clone it.
        ``method="replay"`` needs an estimator of this library, other methods any estimator with
        `fit` and `coef_`. A pipeline is audited with all of its steps, on data that you pass,
        because no claim covers what its steps learn.
    X : array-like of shape (n_samples, n_features), default=None
        Records to hide one in. With None a few records are made from public facts: rows of the
        largest norm with targets at their bounds, which are clipped most.
    y : array-like of shape (n_samples,), default=None
    method : {"replay", "black-box", "canaries"}, default="replay"
        "replay" fits a data set and runs the same plan on neighbouring ones with the same
        randomness and the same earlier releases. It compares every released quantity with its
        declared sensitivity, and the drawn noise with the planned noise. "black-box" fits both data
        sets thousands of times, chooses an event by one half of the runs and counts it on the
        other. "canaries" hides many records with random targets in one run and guesses the targets.
    n_runs : int, default=None
        Number of replays, of fits on each data set, or of canaries. None means 5, 10,000, or 500
        (at most the number of records). The attack guesses the quarter of the canaries of which it
        is surest.
    confidence : float, default=0.99
        Confidence of the finding, in (0, 1).
    delta : float, default=None
        Delta at which epsilon is bounded; None means that of the estimator.
    neighbors : pair of (X, y), default=None
        Two data sets with their rows in the same order that differ in one record, or in records of
        one agent if the unit is an agent. With None a record is replaced by its opposite.
    observer : str, default=None
        Observer of the attacked guarantee. None means the adversary for a replay, who sees all
        releases, and otherwise "model", if there is one, who sees coefficients and intercept as the
        attack does.
    n_jobs : int, default=None
        Processes for "black-box"; None means one. Other methods use one process.
    random_state : int, RandomState instance, Generator or None, default=None
        Seed of the coins of canaries and of the noise; each run then has its own seed. With None
        the noise comes from the same source as in a fit.
    verbose : int, default=0
        Above 0, a bar shows how many runs are done.
    **fit_params : dict
        Passed to `fit` with either data set, such as ``agents``, or ``dpfedridge__agents`` for the
        last step of a pipeline. Agents in a column of X are refused.

    Returns
    -------
    report : AuditReport

    Raises
    ------
    ValueError
        If a parameter is out of range, data cannot be made from public facts, or `neighbors` are
        not neighbouring.

    Notes
    -----
    **Replace one, zero out, add or remove.** Neighbours replace a unit, made here or passed by you.
    A zero-out or add-remove guarantee is always compared at two steps. No audit tries whether the
    number of records shows.

    **Replay.** The second fit continues from the releases of the first, so each release differs by
    at most its sensitivity, given the earlier ones. Noise fails the test if it is too small, or is
    used twice between runs, repetitions, agents or entries. A release with an unmeasured
    sensitivity is "not replayed", with the reason: iterates of gradient ADMM, which get their noise
    in a loop without the gate, and hidden terms of perturbed objectives with their solutions. There
    only the noise is tested; use "black-box" for the rest.

    **Black box.** From the neighbours made here, it uses those whose releases differ the most in a
    replay. For an event of probability p on one data set and q on the other, ``log((p - delta) /
    q)`` bounds epsilon from below, by bounds of Clopper and Pearson. A claim of mu-GDP is also
    refuted if ``ppf(p) - ppf(q)`` is larger than mu. Both together hold at the confidence.

    **Canaries.** The number of correct guesses is compared with the number that epsilon and delta
    allow (Theorem 5.2 of [1]_). One run shows less than thousands of them, so the bound is often
    far below the claim.

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
    _refuse(estimator, method, n_runs, confidence, delta, n_jobs, random_state)
    has_data = X is not None or y is not None
    if neighbors is not None and (has_data or method == "canaries"):
        raise ValueError("Got neighbors beside X, y or method='canaries', expected one of them.")
    # A seed would fix the noise of all runs, and an audit is no use of data.
    model, default = _trials.copy_of(estimator), RUNS[method]
    if method == "canaries" and X is not None:
        default = min(default, len(X))
    n_runs, seed = default if n_runs is None else int(n_runs), _seed(random_state)
    asked: dict[str, Any] = {"method": method, "n_runs": n_runs, "confidence": confidence}
    claim_of = partial(_claim, delta=delta, observer=observer, **asked)
    # Such as that delta is not small beside the few records there are.
    with warnings.catch_warnings(action="ignore"):
        if method == "canaries":
            return _canaries(model, X, y, fit_params, claim_of, n_runs, seed)
        pairs = _pairs(model, X, y, neighbors, fit_params, 3 if method == "replay" else 1)
        if method == "black-box":
            hardest, options = _hardest(model, pairs, seed), {"n_jobs": n_jobs, "verbose": verbose}
            return _black_box(model, hardest, claim_of, random_state=seed, **options)
        if getattr(last_step(model), "epsilon", None) == math.inf:
            # Without privacy there is nothing to compare, and huge rows are refused.
            pairs = pairs[:1]
        return _replay(model, pairs, claim_of, n_runs, seed, verbose)


def _refuse(
    estimator: Any, method: Any, n_runs: Any, confidence: Any, delta: Any, n_jobs: Any, seed: Any
) -> None:
    """Refuse options that are out of range, and estimators that no method is about."""
    fewest = 8 if method == "black-box" else 1
    is_count = isinstance(n_runs, Integral) and int(n_runs) >= fewest
    is_confidence = isinstance(confidence, Real) and 0 < float(confidence) < 1
    is_delta = isinstance(delta, Real) and 0 <= float(delta) < 1
    is_seed = isinstance(seed, Integral | np.random.Generator | np.random.RandomState)
    for name, value, is_fine, expected in (
        ("method", method, method in RUNS, f"one of {list(RUNS)}"),
        ("n_runs", n_runs, n_runs is None or is_count, f"None or an int of at least {fewest}"),
        ("confidence", confidence, is_confidence, "a float in (0, 1)"),
        ("delta", delta, delta is None or is_delta, "None or a float in [0, 1)"),
        ("n_jobs", n_jobs, n_jobs in (None, 1) or method == "black-box", "None or 1"),
        ("random_state", seed, seed is None or is_seed, "an int >= 0, a generator or None"),
    ):
        if not is_fine:
            raise ValueError(f"Got {name}={value!r} for method={method!r}, expected {expected}.")
    last = last_step(estimator)
    if hasattr(last, "param_grid") or hasattr(last, "param_distributions"):
        raise ValueError(
            f"Got {type(last).__name__}, a search that fits many models, expected one model. Pass"
            " its best_estimator_; of a Pipeline pass its last step, or data as well."
        )
    if (most := _trials.declared_by(estimator, "max_rows_per_person")) is not None:
        raise ValueError(
            f"Got max_rows_per_person={most!r}, expected None: neighbours of audits differ in a"
            " record or an agent, which attacks less than a person. Audit it without persons."
        )
    if (column := _trials.declared_by(estimator, "agent_column")) is not None:
        raise ValueError(
            f"Got agent_column={column!r}, expected None: who holds which row is public, and no"
            " part of the rows that change. Pass agents=..., and rows without that column."
        )


def _seed(given: Any) -> int | None:
    draw = getattr(given, "integers", None) or getattr(given, "randint", None)
    return None if given is None else int(draw(2**31) if draw else given)


def _pairs(
    model: Any, X: Any, y: Any, neighbors: Any, fit_params: dict[str, Any], n_features: int
) -> list[Neighbors]:
    if neighbors is None:
        schema = _neighbors.schema_of(model, X, y, fit_params, n_features)
        return list(_neighbors.worst_case_neighbors(schema))
    try:
        first, second = ((X, y) for X, y in neighbors)
    except (TypeError, ValueError):
        raise ValueError(
            "Got neighbors that are no pair, expected ((X, y), (X2, y2)): two data sets."
        ) from None
    _neighbors.require_neighbors(model, first, second, fit_params)
    differ = "as they were given"
    return [Neighbors(first=first, second=second, fit_params=dict(fit_params), differ=differ)]


def _replay(
    model: Any, pairs: list[Neighbors], claim_of: ClaimOf, n_runs: int, seed: Any, verbose: int
) -> AuditReport:
    replays, tried = Replays(), max(n_runs, len(pairs))
    tries = islice(cycle(pairs), tried)
    bar = progress_bar(tries, total=tried, unit="replay", disable=not verbose)
    rng = None if seed is None else np.random.default_rng(seed)
    for pair in bar:
        replays.add(_trials.copy_of(model, None if rng is None else int(rng.integers(2**31))), pair)
    assert replays.plan is not None
    claim = claim_of(model, replays.plan, is_attack=False)
    lines = replays.lines(claim.confidence) if replays.plan.budget.is_private else ()
    neighbors = "; or ".join(pair.differ for pair in pairs)
    is_violation = any(line.is_violation for line in lines)
    return replace(claim, n_runs=tried, neighbors=neighbors, lines=lines, is_violation=is_violation)


def _hardest(model: Any, pairs: list[Neighbors], seed: int | None) -> Neighbors:
    """The pair whose releases differ the most in a replay; else the first."""
    if len(pairs) == 1 or not _trials.is_ours(model) or last_step(model).epsilon == math.inf:
        return pairs[0]

    def cost(pair: Neighbors) -> float:
        replays = Replays()
        replays.add(_trials.copy_of(model, seed), pair)
        # Costs of Gaussian releases add in squares. Up to rounding the first of equals.
        ratios = [distance / of_step for distance, of_step in replays.distances.values()]
        return round(sum(ratio**2 for ratio in ratios), 3)

    return max(pairs, key=cost)


def _black_box(model: Any, pair: Neighbors, claim_of: ClaimOf, **options: Any) -> AuditReport:
    worlds = [_trials.trials_of(model, data, pair.fit_params) for data in (pair.first, pair.second)]
    claim = claim_of(model, worlds[0].plan)
    runs, mu = _trials.run_trials(worlds, claim.n_runs, **options), claim.claimed_mu
    bounds = lower_bounds(
        *runs, delta=claim.delta, confidence=claim.confidence, is_gaussian=mu is not None
    )
    refuted = bounds.epsilon > claim.claimed_epsilon or (mu is not None and bounds.mu > mu)
    return replace(
        claim, neighbors=pair.differ, lower_bound=bounds.epsilon, event=bounds.event,
        mu_lower_bound=None if mu is None else bounds.mu, is_violation=refuted,
    )  # fmt: skip


def _canaries(
    model: Any, X: Any, y: Any, fit_params: dict[str, Any], claim_of: ClaimOf, n: int, seed: Any
) -> AuditReport:
    if getattr(last_step(model), "privacy_unit", "record") == "agent":
        raise ValueError(
            "Got privacy_unit='agent' for method='canaries', expected 'record': canaries are"
            " records. Choose method='black-box'."
        )
    schema = _neighbors.schema_of(model, X, y, fit_params, _neighbors.n_directions(n), n)
    rng = np.random.default_rng(seed)
    canaries = _neighbors.with_canaries(schema, n, rng, is_given=X is not None)
    data, fit_params = (canaries.X, canaries.y), schema.fit_params
    if seed is not None:
        model = _trials.copy_of(model, int(rng.integers(2**31)))
    claim = claim_of(model, _trials.trials_of(model, data, fit_params).plan)
    model.fit(*data, **fit_params)
    run = canaries.guess(model)
    bound = run.epsilon(claim.delta, claim.confidence)
    return replace(
        claim, neighbors=f"the targets of {n} records, each by a coin", lower_bound=bound,
        event=f"{run.n_correct} of {run.n_guesses} guesses were right",
        is_violation=bound > claim.claimed_epsilon,
    )  # fmt: skip


def _claim(
    model: Any, plan: Any, *, delta: Any, observer: Any, is_attack: bool = True, **asked: Any
) -> AuditReport:
    """A report of the claim alone, of a plan or of the parameters `epsilon` and `delta`."""
    last, mu, guarantee = last_step(model), None, None
    who, claimed, epsilon = MODEL, getattr(last, "delta", 0.0), getattr(last, "epsilon", None)
    if plan is not None:
        is_of_model = is_attack and MODEL in plan.facts.observers
        who = MODEL if is_of_model else plan.budget.observer
        claimed, epsilon = plan.budget.delta, math.inf
    elif not isinstance(epsilon, Real):
        raise ValueError(
            f"Got {type(last).__name__} with epsilon={epsilon!r}, expected an estimator with a"
            " parameter `epsilon`: what it claims. Set one, or pass the estimator that has it."
        )
    observer, delta = observer or who, float(claimed if delta is None else delta)
    if plan is not None and plan.budget.is_private:
        guarantee = plan.guarantee(observer)
        # Neighbours of an attack replace a unit: two steps.
        is_doubled = is_attack and plan.facts.neighboring is not Neighboring.REPLACE_ONE
        epsilon = twice(guarantee, delta) if is_doubled else guarantee.epsilon(delta)
        if isinstance(guarantee, GaussianDP):
            mu = guarantee.mu * (1 + is_doubled)
    return AuditReport(
        subject=type(model).__name__, observer=observer, claimed_epsilon=float(epsilon),
        delta=delta, guarantee=guarantee, claimed_mu=mu, **asked,
    )  # fmt: skip
