"""Public facts of agents that hold rows: a federation around a server, or a network without one."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from skdpadmm.network import Similarity, Topology

MODEL = "model"
SERVER, SUMS = "server", "sums"
EAVESDROPPER, PEER = "eavesdropper", "peer"


@dataclass(frozen=True, kw_only=True)
class Agents:
    """Agents that hold rows: the part that does not depend on how they talk.

    Attributes
    ----------
    agent_sizes : tuple of int
        Rows of each agent, public under replace-one; at least `fewest_rows`.
    epsilons : tuple of float, default=()
        Budget of each agent; empty where all have the same.
    sizes_matter : bool, default=True
        Whether agents of unequal size are protected unequally: where an agent is the unit.
    n_curators : int, default=0
        Among how many every message is shared out: all that is said of messages is their sums,
        unless all curators pool their shares. In a network they are the first agents in the order
        of the labels. 0: messages are sent as they are.

    Raises
    ------
    ValueError
        Where a value is out of range.
    """

    setting: ClassVar[str]
    observers: ClassVar[tuple[str, ...]]
    # Rows that an agent has at least.
    fewest_rows: ClassVar[int] = 1

    agent_sizes: tuple[int, ...]
    epsilons: tuple[float, ...] = ()
    sizes_matter: bool = True
    n_curators: int = field(default=0, metadata={"unless": 0})

    def __post_init__(self) -> None:
        if not self.agent_sizes or min(self.agent_sizes) < self.fewest_rows:
            raise ValueError(
                f"Got {len(self.agent_sizes)} agents, the smallest with"
                f" {min(self.agent_sizes, default=0)} rows, expected agents with rows."
            )
        if self.n_curators and not 2 <= self.n_curators <= self.n_agents:
            raise ValueError(
                f"Got n_curators={self.n_curators} for {self.n_agents} agents, expected 0, or an"
                " int from 2 to the number of agents."
            )
        if self.epsilons and len(self.epsilons) != self.n_agents:
            raise ValueError(
                f"Got {len(self.epsilons)} values of epsilon for {self.n_agents} agents, expected a"
                " float or one value for each agent, in the order of their sorted labels."
            )

    @property
    def n_agents(self) -> int:
        """Number of agents."""
        return len(self.agent_sizes)

    @cached_property
    def kind(self) -> NDArray[np.intp]:
        """For each agent its kind: agents of one kind differ in nothing that is public."""
        traits = np.zeros((2, self.n_agents))
        if self.sizes_matter:
            traits[0] = self.agent_sizes
        if self.epsilons:
            traits[1] = self.epsilons
        _, kind = np.unique(traits, axis=1, return_inverse=True)
        return np.asarray(kind, dtype=np.intp).reshape(-1)

    @cached_property
    def examples(self) -> NDArray[np.intp]:
        """For each kind an agent of it."""
        return np.unique(self.kind, return_index=True)[1]

    @cached_property
    def sizes(self) -> NDArray[np.intp]:
        """Rows of an agent, for each kind."""
        return np.asarray(self.agent_sizes, dtype=np.intp)[self.examples]

    def budgets(self, epsilon: float) -> tuple[float, ...]:
        """Budget of each kind, where `epsilon` is that of agents without one of their own."""
        if not self.epsilons:
            return (epsilon,) * len(self.examples)
        return tuple(self.epsilons[agent] for agent in self.examples)

    def sees_each_message(self, observer: str) -> bool:
        """Whether an observer sees messages one by one, so that no agent's noise hides another."""
        raise NotImplementedError

    def together(self, observer: str, n_messages: int) -> int:
        """How many shares of noise protect an agent in a sum of at least `n_messages`."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Federation(Agents):
    """Agents, and a server that coordinates rounds.

    Attributes
    ----------
    n_honest : int
        Agents that add their noise and tell nobody what it was. The others may tell the server.
    participation : float, default=1.0
        Share of the agents that take part in a round, in (0, 1].
    dropout : float, default=0.0
        Probability, in [0, 1), that an agent's message does not arrive; independent of data.
    """

    setting: ClassVar[str] = "federated"
    observers: ClassVar[tuple[str, ...]] = (SERVER, SUMS, MODEL)

    n_honest: int
    participation: float = 1.0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.n_honest <= self.n_agents:
            raise ValueError(
                f"Got n_honest={self.n_honest}, expected an int in [1, {self.n_agents}], the number"
                " of agents. Agents that are not honest may tell the server what noise they added."
            )
        if not 0 < self.participation <= 1:
            raise ValueError(
                f"Got participation={self.participation}, expected 'auto' or a float in (0, 1]."
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"Got dropout={self.dropout}, expected a float in [0, 1).")

    def sees_each_message(self, observer: str) -> bool:
        """Only the server does."""
        return observer == SERVER

    def together(self, observer: str, n_messages: int) -> int:
        """Those of all agents that are honest, and whose messages surely arrive."""
        if self.sees_each_message(observer):
            return 1
        dishonest = self.n_agents - self.n_honest
        return n_messages if observer == MODEL else max(1, n_messages - dishonest)


@dataclass(frozen=True, kw_only=True)
class Network(Agents):
    """Agents that talk along the edges of a graph; nobody coordinates them.

    Attributes
    ----------
    topology : Topology
        The graph; its nodes are the agents in the order of their labels.
    coalition : int, default=1
        Peers that put together what they saw.
    """

    setting: ClassVar[str] = "decentralized"
    observers: ClassVar[tuple[str, ...]] = (EAVESDROPPER, PEER, MODEL)

    topology: Topology
    coalition: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.topology.n_agents != self.n_agents:
            raise ValueError(
                f"Got a topology of {self.topology.n_agents} agents for {self.n_agents} agents,"
                " expected a node for each."
            )
        if not 1 <= self.coalition <= max(1, self.n_agents - 1):
            raise ValueError(
                f"Got coalition={self.coalition}, expected an int in [1,"
                f" {max(1, self.n_agents - 1)}]: the peers of an agent."
            )

    def sees_each_message(self, observer: str) -> bool:
        """Everybody: what is for all agents is passed on from neighbour to neighbour.

        Of messages that are shared out only a coalition which may hold every curator sees each.
        """
        return self.n_curators == 0 or (observer != MODEL and self.coalition >= self.n_curators)

    def together(self, observer: str, n_messages: int) -> int:
        """An agent's own alone; in a sum of shared messages those of all outside the coalition.

        An eavesdropper is in league with the coalition, so that it never learns less than a peer.
        """
        if self.sees_each_message(observer):
            return 1
        return n_messages if observer == MODEL else max(1, n_messages - self.coalition)


@dataclass(frozen=True, kw_only=True)
class Neighborhood(Agents):
    """Agents with models of their own, each pulled towards those of similar agents.

    Attributes
    ----------
    similarity : Similarity
        Public weights of pairs of agents; agents are in the order of their labels.
    confidence : tuple of float
        How much each agent trusts its own rows, in (0, 1]; public.
    trade_off : float
        The paper's mu, in (0, inf): how much own losses weigh beside agreement.
    """

    setting: ClassVar[str] = "personalized"
    observers: ClassVar[tuple[str, ...]] = (EAVESDROPPER, MODEL)
    # One that has none yet learns from its neighbours.
    fewest_rows: ClassVar[int] = 0

    similarity: Similarity
    confidence: tuple[float, ...]
    trade_off: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.similarity.n_agents != self.n_agents:
            raise ValueError(
                f"Got similarities of {self.similarity.n_agents} agents for {self.n_agents} agents,"
                " expected a row and a column for each."
            )
        if len(self.confidence) != self.n_agents:
            raise ValueError(
                f"Got {len(self.confidence)} values of confidence for {self.n_agents} agents,"
                " expected a float in (0, 1] for each."
            )
        wrong = {agent: c for agent, c in enumerate(self.confidence) if not 0 < c <= 1}
        if wrong:
            raise ValueError(
                f"Got confidence={dict(list(wrong.items())[:5])} by position for {len(wrong)} of"
                f" {self.n_agents} agents, expected a float in (0, 1] for each."
            )
        if not 0 < self.trade_off < float("inf"):
            raise ValueError(f"Got trade_off={self.trade_off}, expected a float in (0, inf).")

    def sees_each_message(self, observer: str) -> bool:
        """Everybody: models are what is said, and what is left in the end."""
        return True

    def together(self, observer: str, n_messages: int) -> int:
        """An agent's own alone."""
        return 1
