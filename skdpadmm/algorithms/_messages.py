"""Sums of agents' messages: how much noise each agent adds, and what each observer learns.

There is one mechanism: every agent adds Gaussian noise to its message. The server sees each message
with that noise, and with noise that pairs of agents share, which cancels in the sum of all. Secure
aggregation shows it sums, in which the noise of all honest agents protects each of them. In the
model there is the noise of all messages that arrived. The budget is spent against one of the three
observers; the guarantees against the other two follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from numbers import Real

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from skdpadmm import privacy
from skdpadmm._sklearn import Interval
from skdpadmm.algorithms._algorithm import spent_before
from skdpadmm.noise import grid_cell
from skdpadmm.privacy import GaussianDP, Guarantee, gaussian_mu
from skdpadmm.protocol import MODEL, SERVER, Agents, Budget, Facts, Gate, Release, View, not_private

Array = NDArray[np.float64]
# What is left of a standard deviation, of 2**20 cells at least, without 4 squared cells.
CERTAIN = math.sqrt(1 - 4 * grid_cell(1.0) ** 2)
# A round in which so few messages arrive is void; drop-outs make one in a hundred so.
VOID_ROUNDS = 0.01
# Noise is a little more than enough, so that no rounding takes epsilon above the budget.
SLIGHTLY_MORE = 1 + 1e-12
# Variance of the noise that pairs share, over that of an agent's own.
EDGE_NOISE = Interval(Real, 0, 1e6, closed="both")
# A message is hidden almost as in a secure sum, and noise of pairs still cancels soon. On a sparse
# graph the second, where the first hides it less than half as well.
USUAL_RATIOS = (100.0, 1000.0)


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """The public law of who takes part in rounds, and of whose noise is in their sums."""

    n_rounds: int
    participation: float
    sampling: str
    cap: int | None
    everyone_sends: bool
    fewest: int

    def expected_shares(self, agents: Agents) -> Array:
        """Share of the agents that takes part in each round, and does not drop out, on average."""
        free = np.ones(self.n_rounds)
        if self.cap is not None:
            free = np.asarray(binom.cdf(self.cap - 1, np.arange(self.n_rounds), self.participation))
        return np.asarray(self.participation * free * (1 - agents.dropout))

    def are_secret(self, facts: Facts) -> bool:
        """Whether the model hides who takes part, so that sampling amplifies privacy.

        A record's agent shows itself by its other records. An agent that has reached its cap
        counts as one that is sampled and sends nothing: the bound is for chances of at most q.
        """
        return (
            facts.unit == "agent"
            and self.participation < 1
            and self.sampling == "poisson"
            and self.everyone_sends
        )


EVERYONE = Rounds(
    n_rounds=1, participation=1.0, sampling="poisson", cap=None, everyone_sends=True, fewest=1
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Schedule:
    """Who takes part, and whose messages arrive; drawn before the first round."""

    takes_part: NDArray[np.bool_]
    sends: NDArray[np.bool_]


def with_edge_noise(agents: Agents, ratio: float | str) -> Agents:
    """The same agents, whose pairs share noise; by "auto" where it helps and no message is lost.

    All agents add as much noise of their own as the smallest budget needs, about its inverse: where
    budgets differ much, that is more than the noise of pairs saves.
    """
    if ratio != "auto":
        return replace(agents, edge_noise=float(ratio))
    if agents.sit_out or agents.needs:
        return agents
    paired, more = (replace(agents, edge_noise=each) for each in USUAL_RATIOS)
    if paired.paired_together < (agents.n_agents - agents.n_dishonest) / 2:
        paired = more
    variances = np.asarray(agents.epsilons or (1.0,)) ** -2.0
    helps = paired.paired_together * variances.mean() > variances.max()
    return paired if helps else agents


def plan_rounds(facts: Facts, budget: Budget, *, sampling: str, cap: int | None) -> Rounds:
    """Decide whose noise is in a sum.

    Where some agents sit a round out, the sums that hide who took part need noise from everyone,
    whatever the sample. Against a server that sees each message, noise of others is of no use.
    """
    agents, n_agents, n_rounds = facts.agents, facts.agents.n_agents, facts.max_iter
    q = agents.participation
    if sampling == "fixed":
        # A whole number of agents may be more than the share that was asked for.
        q = sample_size(agents) / n_agents
    if cap is not None:
        n_rounds = min(n_rounds, math.ceil(cap / q))
        cap = None if cap >= n_rounds else cap
    everyone = q == 1 or budget.observer != SERVER
    n_senders = n_agents
    if not everyone:
        # How many are left of a fixed number once some have reached the cap is not known before.
        is_known = sampling == "fixed" and cap is None
        n_senders = sample_size(agents) if is_known else 1
    fewest = n_senders
    if agents.dropout > 0:
        fewest = max(1, int(binom.ppf(VOID_ROUNDS, n_senders, 1 - agents.dropout)))
    return Rounds(
        n_rounds=n_rounds,
        participation=q,
        sampling=sampling,
        cap=cap,
        everyone_sends=everyone,
        fewest=fewest,
    )


def sample_size(agents: Agents) -> int:
    """Agents in a round of fixed size."""
    return max(1, round(agents.participation * agents.n_agents))


def draw_schedule(rounds: Rounds, agents: Agents, gate: Gate) -> Schedule:
    """Draw who takes part and who drops out; nothing here sees data."""
    shape = (rounds.n_rounds, agents.n_agents)
    takes_part = np.ones(shape, dtype=bool)
    if rounds.participation < 1:
        drawn = gate.uniform(shape)
        if rounds.sampling == "fixed":
            rank = drawn.argsort(axis=1).argsort(axis=1)
            takes_part = rank < sample_size(agents)
        else:
            takes_part = drawn < rounds.participation
    if rounds.cap is not None:
        takes_part &= np.cumsum(takes_part, axis=0) <= rounds.cap
    sends = np.ones(shape, dtype=bool) if rounds.everyone_sends else takes_part.copy()
    if agents.dropout > 0:
        arrives = gate.uniform(shape) >= agents.dropout
        takes_part, sends = takes_part & arrives, sends & arrives
    void = sends.sum(axis=1) < rounds.fewest
    takes_part[void] = sends[void] = False
    return Schedule(takes_part=takes_part, sends=sends)


def plan_release(
    facts: Facts,
    budget: Budget,
    *,
    name: str,
    shape: tuple[int, ...],
    sensitivity: float,
    mu: float,
) -> Release:
    """Plan one release to which everyone contributes, for a curator or for agents."""
    agents = facts.agents
    if facts.setting == "central":
        return gaussian_release(name, shape, (sensitivity,), mu)
    total = gaussian_mu(budget.epsilon, budget.delta)
    budgets = agents.budgets(budget.epsilon)
    parts = [mu * gaussian_mu(epsilon, budget.delta) / total for epsilon in budgets]
    if agents.n_curators:
        sensitivity *= widened_by_grid(min(parts), math.prod(shape))
    return message_sum(
        facts,
        budget,
        # Preparations wait for every agent.
        replace(EVERYONE, fewest=agents.n_agents),
        name=name,
        shape=shape,
        sensitivities=(sensitivity,),
        limits=facts.unit_sizes,
        multipliers=tuple(sensitivity / part * SLIGHTLY_MORE for part in parts),
    )


def gaussian_release(
    name: str, shape: tuple[int, ...], sensitivities: Sequence[float], mu: float
) -> Release:
    """Plan a release of a curator that is mu-GDP over all its repetitions: exact composition."""
    noise_std = math.hypot(*sensitivities) / mu * SLIGHTLY_MORE
    return Release(name=name, shape=shape, sensitivities=tuple(sensitivities), noise_std=noise_std)


def widened_by_grid(mu: float, n_entries: int) -> float:
    """Factor of a sensitivity where messages and noise are whole numbers of cells of a grid.

    Two neighbouring messages are rounded by half a cell in every entry, and 4 squared cells come
    off the variance: see `shared_sum`. A cell is at most that of noise of size one, times the
    noise.
    """
    rounding = grid_cell(1.0) * math.sqrt(n_entries) / mu
    if rounding > 0.5:
        raise ValueError(
            f"Got mu={mu:.3g} for a sum of {n_entries} numbers by secret sharing, expected a"
            " larger one: the grid of the noise alone uses as much. Choose a larger epsilon, or"
            " conditioning=None and scale=None."
        )
    # Where ``(sensitivity + cells) / noise = mu``, and cells grow with the noise.
    return 1 / (CERTAIN - rounding)


def calibrated_multipliers(
    facts: Facts, budget: Budget, family: Callable[[float], Guarantee]
) -> tuple[float, ...]:
    """Noise with which a family of guarantees meets the budget of each kind of agent."""
    agents = facts.agents

    @cache
    def calibrated(epsilon: float, prior: Guarantee) -> float:
        return calibrated_multiplier(family, replace(budget, epsilon=epsilon), prior)

    pairs = list(zip(agents.budgets(budget.epsilon), spent_before(facts, budget), strict=True))
    if not agents.sees_each_message(budget.observer) and not agents.epsilons:
        # A sum has one noise, and the largest agents need the most of it.
        _, spent = pairs[int(np.argmax(facts.unit_sizes))]
        pairs = [(budget.epsilon, spent)] * len(pairs)
    return tuple(calibrated(*pair) for pair in pairs)


def calibrated_multiplier(
    family: Callable[[float], Guarantee], budget: Budget, prior: Guarantee
) -> float:
    """Noise with which a family of guarantees meets a budget, after what was spent before."""
    if not budget.is_private:
        return 0.0
    first = family(1.0)
    if isinstance(first, GaussianDP) and isinstance(prior, GaussianDP):
        total = gaussian_mu(budget.epsilon, budget.delta)
        return first.mu / math.sqrt(total**2 - prior.mu**2) * SLIGHTLY_MORE
    return privacy.calibrate_noise(
        lambda multiplier: privacy.compose(prior, family(multiplier)), budget.epsilon, budget.delta
    )


def noisy_sum(
    facts: Facts, budget: Budget, rounds: Rounds, *, name: str, sensitivities: Sequence[float]
) -> Release:
    """Plan the sum of agents' messages in all rounds, each with the sender's noise."""
    guarantee = partial(rounds_guarantee, facts, rounds, budget.observer, sensitivities)
    return message_sum(
        facts,
        budget,
        rounds,
        name=name,
        shape=facts.model_shape,
        sensitivities=sensitivities,
        limits=facts.unit_limits,
        multipliers=calibrated_multipliers(facts, budget, guarantee),
    )


def message_sum(
    facts: Facts,
    budget: Budget,
    rounds: Rounds,
    *,
    name: str,
    shape: tuple[int, ...],
    sensitivities: Sequence[float],
    limits: Array,
    multipliers: tuple[float, ...],
) -> Release:
    """Plan noise for each kind of agent and state what each observer learns."""
    agents = facts.agents
    needed = limits * np.asarray(multipliers)
    if not agents.sees_each_message(budget.observer):
        # A sum has one noise: that which protects whoever needs the most.
        together = agents.together(budget.observer, rounds.fewest)
        needed = np.full(len(limits), float(needed.max()) / math.sqrt(together))
    per_agent = np.sort(needed[agents.kind])
    if not budget.is_private:
        return not_private(
            name,
            shape,
            agents.observers,
            times=len(sensitivities),
            made_of="sum",
            agent_noise_std=tuple(needed.tolist()),
            fewest=rounds.fewest,
        )

    def view(observer: str) -> View:
        count = agents.together(observer, rounds.fewest)
        if agents.hides_by_pairs(observer):
            noise = needed * math.sqrt(count)  # That of all agents is the same.
        else:
            noise = surely_noise(needed, per_agent, count)
        multipliers = (noise / limits).tolist()
        average = partial(rounds_guarantee, facts, rounds, observer, sensitivities)
        worst = partial(
            privacy.worst_participation, sensitivities, n_rounds=rounds.n_rounds, cap=rounds.cap
        )
        return View(
            observer=observer,
            guarantees=tuple(map(average, multipliers)),
            worst_cases=tuple(map(worst, multipliers)),
        )

    arriving, lost = 1.0, 0.0  # A round that waits for everyone loses nobody.
    if rounds.fewest < agents.n_agents:
        share = 1.0 if rounds.everyone_sends else rounds.participation
        arriving, lost = share * (1 - agents.dropout), agents.dropout
    # What a message that arrives shared with one that is lost stays in the sum.
    arriving *= 1 + agents.edge_noise * (agents.n_agents - 1) * lost
    return Release(
        name=name,
        shape=shape,
        sensitivities=tuple(float(limits.max()) * s for s in sensitivities),
        noise_std=float(np.sqrt(arriving * np.sum(np.square(per_agent)))),
        made_of="sum",
        agent_noise_std=tuple(needed.tolist()),
        fewest=rounds.fewest,
        views=tuple(view(observer) for observer in agents.observers),
    )


def surely_noise(shares: Array, per_agent: Array, together: float) -> Array:
    """For each kind its own noise and the least that ``together - 1`` others can add to it."""
    count = int(together)
    least = np.concatenate([[0.0], np.cumsum(np.square(per_agent))])
    own_is_among = np.searchsorted(per_agent, shares, side="left") < count
    others = np.where(own_is_among, least[count] - np.square(shares), least[count - 1])
    return np.asarray(np.sqrt(np.square(shares) + others))


def rounds_guarantee(
    facts: Facts, rounds: Rounds, observer: str, sensitivities: Sequence[float], noise_std: float
) -> Guarantee:
    """The guarantee of all rounds for an agent whose limit is one.

    Who takes part is known to the server, and to whoever sees secure sums of it. From whoever sees
    the model alone it may be hidden.
    """
    if observer == MODEL and rounds.are_secret(facts):
        zero_out = max(sensitivities) / facts.neighboring.sensitivity_factor
        return privacy.PoissonSubsampledGaussian(
            rounds.participation, noise_std / zero_out, rounds.n_rounds, facts.neighboring
        )
    return privacy.participation_mixture(
        tuple(sensitivities),
        noise_std,
        probability=rounds.participation,
        n_rounds=rounds.n_rounds,
        cap=rounds.cap,
    )
