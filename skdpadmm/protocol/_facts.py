"""What is public before a fit: the facts of the problem and the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from skdpadmm._numbers import require
from skdpadmm.losses import Loss
from skdpadmm.penalties import Penalty
from skdpadmm.privacy import GaussianDP, Neighboring, gaussian_mu
from skdpadmm.protocol._agents import Agents, Curator, Neighborhood, Network
from skdpadmm.protocol._release import Release
from skdpadmm.records import Coordinates

# Agents that are larger than this many average ones weigh no more, once their messages are clipped.
LARGEST_AGENT = 2.0
# Of the second moment outside of its largest direction; less is not distinguished from noise.
SMALLEST_SPREAD = 0.04
# Keeps coordinates within a condition number that floats can bear.
SMALLEST_EIGENVALUE = 1e-8


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The total that one fit may spend: epsilon in (0, inf], and delta in [0, 1).

    At a delta of 0 nothing but Laplace noise meets it. It is spent against `observer`, by default
    whoever sees the released model.
    """

    epsilon: float
    delta: float
    observer: str = "model"

    def __post_init__(self) -> None:
        require(self.epsilon > 0, "epsilon", self.epsilon, "a float in (0, inf]")
        expected = "a float in [0, 1). Choose it well below 1 / n_samples"
        require(0 <= self.delta < 1, "delta", self.delta, expected)

    @property
    def is_private(self) -> bool:
        """Whether the budget is finite."""
        return math.isfinite(self.epsilon)

    @property
    def is_pure(self) -> bool:
        """Whether nothing but Laplace noise meets it."""
        return self.is_private and self.delta == 0

    def part(self, share: float) -> Budget:
        """The budget whose squared Gaussian-DP parameter is a share of this one's."""
        mu = gaussian_mu(self.epsilon, self.delta) * math.sqrt(share)
        return replace(self, epsilon=GaussianDP(mu).epsilon(self.delta))


@dataclass(frozen=True, kw_only=True)
class Conditioning:
    """A noisy second-moment matrix of the rows, and how it becomes public coordinates."""

    # Rows are scaled down to this norm before their second moment is taken.
    row_norm: float
    # In units of the noise edge: the least eigenvalue that is distinguished from noise. It, and
    # what clip bounds are relative to, are multiplied by these powers of `Basis.spread`.
    floor: float
    floor_power: float
    clip_power: float
    # In units of the mean eigenvalue outside of the largest direction.
    resolution: float
    # The upper triangle in units of ``row_norm**2``, off-diagonal entries times sqrt(2), so that
    # the Euclidean norm of the vector is the Frobenius norm of the matrix.
    release: Release

    def __post_init__(self) -> None:
        # The smallest spread has to give the smallest floor: `condition` rests on it.
        values = (self.floor, self.floor_power, self.resolution)
        is_valid = self.floor > 0 and all(value >= 0 for value in values)
        require(is_valid, "floor, floor_power, resolution", values, "one > 0, and two >= 0")

    @property
    def edge(self) -> float:
        """Half of the largest eigenvalue that noise alone reaches, in units of ``row_norm**2``."""
        # Off-diagonal entries have standard deviation noise_std / sqrt(2), and the spectrum of such
        # a matrix ends at 2 sqrt(n_parameters) times it (Wigner's semicircle).
        n_entries = self.release.shape[0]
        n_parameters = (math.isqrt(1 + 8 * n_entries) - 1) // 2
        return self.release.noise_std * math.sqrt(n_parameters / 2)

    def floor_at(self, spread: float, trace: float) -> float:
        """The least eigenvalue of the basis, in units of `row_norm` squared."""
        # Directions without variance need no resolution: where noise is far below the mean
        # eigenvalue the floor rises to the geometric mean of the two.
        noise = self.floor * self.edge * spread**self.floor_power
        n_parameters = 2 * (self.edge / self.release.noise_std) ** 2
        mean = self.resolution * spread * trace / n_parameters
        return min(max(noise, math.sqrt(noise * mean), SMALLEST_EIGENVALUE), 1.0)

    @property
    def condition(self) -> float:
        """Bound of the condition number of the change of coordinates."""
        return 1.0 / math.sqrt(self.floor_at(SMALLEST_SPREAD, 0.0))


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """A noisy histogram of the norms of features without declared bounds."""

    # What the median norm of the undeclared features becomes.
    target: float
    # Number of rows in each bin of norms; of persons, their shares.
    release: Release
    per_unit: int = field(default=1, metadata={"unless": 1})


@dataclass(frozen=True, kw_only=True)
class Centering:
    """Noisy moments of the target, from which its centre and unit follow."""

    # The mean of (b, 1.6 b^2), where b is the target of a record in [-1, 1].
    release: Release


@dataclass(frozen=True, kw_only=True)
class Inference:
    """Noisy statistics at the fitted model, from which standard errors follow."""

    # In units of the bound of a term: the upper triangle of the mean curvature, whose entries off
    # the diagonal are times sqrt(2), the mean gradient, and that triangle of its squares; with a
    # log link, after the first, counts of lengths of gradients.
    releases: tuple[Release, ...]
    # Of the squared budget.
    share: float
    # The clip bound of gradients, in units of the size of a usual one.
    opening: float
    # How many times as wide intervals are as without privacy, and half their width for a column of
    # standard deviation 1/2, in declared half-widths; both where all directions are detected.
    inflation: float
    reach: float


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Public facts of a problem: all that a plan may depend on.

    Attributes
    ----------
    n_samples, n_parameters : int
        Records, or persons where they are the unit, and parameters of one score, the intercept
        included. Where the number of records is private, the noisy one.
    loss : Loss
        Loss of a record, in scaled coordinates.
    penalty : Penalty
        Penalty of the mean loss, in the user's coefficients.
    neighboring : Neighboring
        What may differ between two neighbouring data sets.
    row_norm : float
        Bound of the Euclidean norm of an augmented row.
    rounding : float
        Factor, slightly above one, by which float64 rounding can widen a sensitivity.
    max_iter : int
    schema : str, default=""
        Digest of the declared bounds: seeded fits under other bounds share no noise.
    unit : {"record", "agent", "person"}, default="record"
        Whose contribution is protected.
    is_declared : bool, default=False
        Whether every feature has declared bounds.
    count : Release or None, default=None
        The release of the number of records, where it is private.
    scaling, conditioning : Scaling and Conditioning or None, default=None
        How units of undeclared features are found, and coordinates of a second moment near one.
    centering : Centering or None, default=None
        How centre and unit of the target are found.
    inference : Inference or None, default=None
        What is released at the fitted model for standard errors.
    penalty_curvature : float, default=0.0
        Strong convexity of the penalty over all parameters in public coordinates, before any
        preparation: 0 with an intercept. It follows from the penalty and the schema.
    agents : Agents, default=Curator()
        Who holds the records.
    is_stream : bool, default=False
        Whether records arrive one after the other, nobody knows how many: the plan is that of one
        record, and `n_samples` is 1.
    max_rows_per_person : int, default=0
        Where persons are the unit, whose numbers of rows are not public; 0: they are not.
    weight_spread : float, default=0.0
        Where records have weights in [0, 1]: 1 over a usual one; 0: they have none.
    coordinates : Coordinates or None, default=None
        Before any preparation. They follow from `schema`, and are no part of equality.
    """

    n_samples: int
    n_parameters: int
    loss: Loss
    penalty: Penalty
    neighboring: Neighboring
    row_norm: float
    rounding: float
    max_iter: int
    schema: str = ""
    unit: str = "record"
    is_declared: bool = False
    scaling: Scaling | None = None
    conditioning: Conditioning | None = None
    penalty_curvature: float = 0.0
    agents: Agents = field(default_factory=Curator, metadata={"unless": Curator()})
    is_stream: bool = field(default=False, metadata={"unless": False})
    max_rows_per_person: int = field(default=0, metadata={"unless": 0})
    centering: Centering | None = field(default=None, metadata={"unless": None})
    inference: Inference | None = field(default=None, metadata={"unless": None})
    weight_spread: float = field(default=0.0, metadata={"unless": 0.0})
    count: Release | None = field(default=None, metadata={"unless": None})
    # None for statistics beside a fit, which no algorithm computes.
    coordinates: Coordinates = field(default=None, compare=False, repr=False)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        require(self.n_samples >= 1, "n_samples", self.n_samples, "at least 1")
        require(self.rounding >= 1, "rounding", self.rounding, "a factor of at least 1")
        require(self.row_norm > 0, "row_norm", self.row_norm, "a float in (0, inf]")
        size, of_persons = self.max_rows_per_person, self.unit == "person"
        require((size >= 1) == of_persons, "max_rows_per_person", size, "at least 1 for persons")
        n, sizes = self.n_samples, self.agents.agent_sizes
        is_whole = not sizes or n == sum(sizes)
        require(is_whole, "n_samples", n, f"{sum(sizes)}, the rows of all agents")

    @property
    def is_weighted(self) -> bool:
        """Whether rows have weights: those of persons, or of records."""
        return self.max_rows_per_person > 0 or self.weight_spread > 0

    @property
    def spread(self) -> float:
        """The largest weight of a record, over a usual one; 1 without weights."""
        return max(self.weight_spread, 1.0)

    @property
    def setting(self) -> str:
        """Who holds the records: "central", "federated", "decentralized" or "personalized"."""
        return self.agents.setting

    @property
    def n_rows(self) -> int:
        """Rows that sums are divided by, those of weight 0 of persons included."""
        return self.n_samples * max(self.max_rows_per_person, 1)

    @property
    def model_shape(self) -> tuple[int, int]:
        """Parameters of a model: ``(n_parameters, n_outputs)``."""
        return self.n_parameters, self.loss.n_outputs

    @property
    def unit_sizes(self) -> NDArray[np.float64]:
        """Records in a protected unit, for each kind of agent."""
        sizes = self.agents.sizes.astype(np.float64)
        return sizes if self.unit == "agent" else np.ones(len(sizes))

    @property
    def unit_limits(self) -> NDArray[np.float64]:
        """Most that a protected unit may weigh in a message, in records, for each kind of agent."""
        if self.unit == "record":
            return self.unit_sizes
        return np.minimum(self.unit_sizes, LARGEST_AGENT * self.n_samples / self.agents.n_agents)

    @property
    def observers(self) -> tuple[str, ...]:
        """Who a plan states guarantees against."""
        return self.agents.observers

    @property
    def preparations(self) -> tuple[Release, ...]:
        """What is released beside the algorithm: before it starts, in order, and at its result."""
        steps = (self.scaling, self.centering, self.conditioning)
        before = tuple(step.release for step in steps if step is not None)
        before = before if self.count is None else (self.count, *before)
        return before if self.inference is None else (*before, *self.inference.releases)

    @property
    def working_rounding(self) -> float:
        """`rounding` in the coordinates that the algorithm works in: conditioning amplifies it."""
        condition = 1.0 if self.conditioning is None else self.conditioning.condition
        return 1.0 + (self.rounding - 1.0) * condition

    def signal(self, mu: float) -> float:
        """All records over those that noise hides: ``n mu / c``, for a mu-GDP sum of records.

        c is 2 for replace-one and 1 for zero-out. Noise that hides a record of the largest weight
        hides as many more of a usual one.
        """
        return self.n_samples * mu / self.neighboring.sensitivity_factor / self.spread

    def remaining_mu(self, budget: Budget) -> float:
        """The Gaussian-DP parameter that the preparations leave of a curator's budget."""
        expected = "a curator: budgets of others are their own"
        require(self.setting == "central", "agents", self.agents, expected)
        if not budget.is_private:
            return math.inf
        is_counted = self.count is not None or self.neighboring is not Neighboring.ADD_REMOVE
        require(is_counted, "count", self.count, "the release of a private number of records")
        total = gaussian_mu(budget.epsilon, budget.delta)
        spent = [math.hypot(*r.sensitivities) / r.noise_std for r in self.preparations]
        share = sum((mu / total) ** 2 for mu in spent)
        require(share < 1, "share of preparations", share, "less than 1, the budget")
        return total * math.sqrt(1.0 - share)


def network_of(facts: Facts) -> Network:
    """The agents of facts of a network."""
    assert isinstance(facts.agents, Network)
    return facts.agents


def neighborhood_of(facts: Facts) -> Neighborhood:
    """The agents of facts of personalised models."""
    assert isinstance(facts.agents, Neighborhood)
    return facts.agents
