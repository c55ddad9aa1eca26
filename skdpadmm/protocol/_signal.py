"""How much of what records say stands out of the noise of a whole run, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from skdpadmm.privacy import GaussianDP, Guarantee, gaussian_mu
from skdpadmm.protocol._facts import Facts

# Above it noise is as good as none.
LARGEST_EPSILON = 1e6
# Measured on seven data sets with 9 to 650 parameters. Below the first most models are worse than a
# constant, above the second most come near those without noise. The number of parameters hardly
# matters: default steps follow the signal.
WEAK, AMPLE = 10.0, 100.0
# For each parameter. Below it clips of logistic losses are so tight that coefficients came out up
# to twice as large as without privacy, where bounds were declared, and far smaller for text.
SIZED = 40.0
# What a guarantee with a delta of zero is compared with Gaussian noise at.
USUAL_DELTA = 1e-5


@dataclass(frozen=True, kw_only=True)
class Signal:
    """The signal ``n mu / c`` of a plan.

    Attributes
    ----------
    strength : float
        Records, or agents where they are the units, over those that noise hides.
    n_parameters : int
        Of all scores.
    """

    strength: float
    n_parameters: int

    @property
    def word(self) -> str:
        """Weak, fair or ample."""
        if self.strength < WEAK:
            return "weak"
        return "ample" if self.strength >= AMPLE else "fair"

    @property
    def missing(self) -> int:
        """How many times as many records settle sizes; of a stream, whose signal is of one."""
        return math.ceil(SIZED * self.n_parameters / self.strength)

    @property
    def settles_size(self) -> bool:
        """Whether coefficients of a logistic loss are about as large as those without privacy."""
        return self.strength >= SIZED * self.n_parameters

    def __str__(self) -> str:
        return f"n mu / c = {self.strength:.3g} for {self.n_parameters} parameters, {self.word}"


def signal_of(facts: Facts, guarantees: tuple[Guarantee, ...], delta: float) -> Signal:
    """The signal of a plan, from what its closest observer learns: a guarantee for each kind.

    Who sees the messages of an agent one by one meets the agent's own noise alone, so that the
    guarantee against it says how much there is, whoever the budget is spent against. The noise of
    all agents adds up; the models of agents that have their own meet that of a typical one.
    """
    factor, agents = facts.neighboring.sensitivity_factor, facts.agents
    mu = np.array([_gaussian(guarantee, delta) for guarantee in guarantees])
    mu = np.broadcast_to(mu, max(len(agents.sizes), 1))
    if facts.setting == "central":
        strength = facts.signal(float(mu[0]))
    elif agents.is_personal:
        sizes = np.asarray(agents.agent_sizes, dtype=np.float64)
        units = np.minimum(sizes, 1.0) if facts.unit == "agent" else sizes
        strength = float(np.median((units * mu[agents.kind])[units > 0])) / factor
    else:
        noise = np.linalg.norm((facts.unit_limits / mu)[agents.kind])
        noise /= math.sqrt(agents.together(agents.observers[0], agents.n_agents))
        strength = float(facts.n_samples / (factor * noise))
    return Signal(strength=strength, n_parameters=facts.n_parameters * facts.loss.n_outputs)


def _gaussian(guarantee: Guarantee, delta: float) -> float:
    """The mu of a Gaussian guarantee with the same epsilon."""
    if isinstance(guarantee, GaussianDP):
        return guarantee.mu
    delta = delta or USUAL_DELTA
    return gaussian_mu(min(guarantee.epsilon(delta), LARGEST_EPSILON), delta)
