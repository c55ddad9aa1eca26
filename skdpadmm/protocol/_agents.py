"""Public facts of agents that hold rows: a curator of all, or many with a server or without."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from skdpadmm._numbers import require, round_down
from skdpadmm.network import Links, Similarity, Topology, honest_messages

MODEL = "model"
SERVER, SUMS = "server", "sums"
EAVESDROPPER, PEER = "eavesdropper", "peer"
EXPECTED_FRACTION = "a float in (0, 1]"
NO_LOSSES = (
    "Preparations, such as the second moment, and messages for intervals wait for every agent: none"
    " is lost."
)


@dataclass(frozen=True, kw_only=True)
class Agents:
    """Agents that hold rows: what does not depend on how they communicate.

    Attributes
    ----------
    agent_sizes : tuple of int
        Rows of each agent, public under replace-one.
    epsilons : tuple of float, default=()
        Budget of each agent; empty where all have the same.
    sizes_matter : bool, default=True
        Whether agents of unequal size are protected unequally: where an agent is the unit.
    n_curators : int, default=0
        Curators among whom every message is secret-shared: observers see only sums, unless all of
        them pool their shares; in a network the first agents. 0: messages are sent as they are.
    edge_noise : float, default=0.0
        Variance of the noise that each pair of agents adds and subtracts, over that of an agent's
        own, which is then the same for all. Pairs are all of them around a server, the edges of a
        network. 0: there is none.
    threshold : int, default=0
        Curators whose shares are enough to reconstruct; 0: all of them are needed.
    """

    setting: ClassVar[str]
    observers: ClassVar[tuple[str, ...]]
    # Rows that an agent has at least.
    fewest_rows: ClassVar[int] = 1
    # Whether each agent has a model of its own, and not one that all have in common.
    is_personal: ClassVar[bool] = False

    agent_sizes: tuple[int, ...]
    epsilons: tuple[float, ...] = ()
    sizes_matter: bool = True
    n_curators: int = field(default=0, metadata={"unless": 0})
    edge_noise: float = field(default=0.0, metadata={"unless": 0.0})
    threshold: int = field(default=0, metadata={"unless": 0})

    def __post_init__(self) -> None:
        n, fewest = self.n_agents, min(self.agent_sizes, default=-1)
        expected = f"at least {self.fewest_rows}"
        require(fewest >= self.fewest_rows, "fewest rows of an agent", fewest, expected)
        is_shared = self.n_curators == 0 or 2 <= self.n_curators <= n
        require(is_shared, "n_curators", self.n_curators, f"0, or an int from 2 to {n}, the agents")
        is_free = self.n_curators == 0 or self.edge_noise == 0
        require(is_free, "edge_noise", self.edge_noise, "0 where messages are secret-shared")
        is_possible = self.threshold == 0 or 2 <= self.threshold <= self.n_curators
        expected = f"None, or an int from 2 to n_curators={self.n_curators}"
        require(is_possible, "threshold", self.threshold, expected)
        if self.epsilons and len(self.epsilons) != n:
            raise ValueError(
                f"Got {len(self.epsilons)} values of epsilon for {n} agents, expected a"
                " float or one value for each agent, in the order of their sorted labels."
            )

    @property
    def n_agents(self) -> int:
        """Number of agents."""
        return len(self.agent_sizes)

    @cached_property
    def kind(self) -> NDArray[np.intp]:
        """For each agent its kind: agents of one kind differ in nothing that is public."""
        same = (0.0,) * self.n_agents
        traits = [self.agent_sizes if self.sizes_matter else same, self.epsilons or same]
        return np.unique(traits, axis=1, return_inverse=True)[1].reshape(-1)

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
        return True

    @property
    def n_dishonest(self) -> int:
        """Agents that may reveal to an observer of sums what noise they added."""
        return self.n_agents

    @property
    def participation(self) -> float:
        """Fraction of agents that takes part in a round."""
        return 1.0

    @property
    def dropout(self) -> float:
        """Probability that a message does not arrive."""
        return 0.0

    @property
    def sit_out(self) -> bool:
        """Whether an agent may miss a round."""
        return self.participation < 1 or self.dropout > 0

    @property
    def needs(self) -> tuple[str, ...]:
        """What `Algorithm.supports` has to list, beside one graph that never fails."""
        return ()

    @property
    def n_needed(self) -> int:
        """Curators who together see each secret-shared message."""
        return self.threshold or self.n_curators

    @property
    def n_messages_per_sum(self) -> int:
        """Messages of a secret-shared sum: shares to curators, and what they add up to everyone."""
        return (2 * self.n_agents + 1) * self.n_curators

    def hides_by_pairs(self, observer: str) -> bool:
        """Whether an observer sees messages one by one, with noise of pairs in them."""
        return self.edge_noise > 0

    @cached_property
    def paired_together(self) -> float:
        """Number of messages whose noise protects an agent that pairs hide, at least."""
        return honest_messages(self.pairs, self.n_dishonest, self.edge_noise)

    @property
    def pairs(self) -> Topology:
        """The public graph of agents who share a secret seed: everybody with everybody."""
        return Topology(n_agents=self.n_agents)

    def together(self, observer: str, n_messages: int) -> float:
        """Number of messages whose noise protects an agent in a sum of at least `n_messages`."""
        if self.hides_by_pairs(observer):
            return self.paired_together
        if self.sees_each_message(observer):
            return 1
        return n_messages if observer == MODEL else max(1, n_messages - self.n_dishonest)

    def gain(self, observer: str) -> float:
        """How much stronger the signal is where a budget is met for the model alone."""
        return 1.0

    def sees(self, observer: str, released: str) -> str:
        """What an observer sees, in words; `released` is what whoever has the model sees."""
        return released

    def describe(self) -> Iterator[tuple[str, str]]:
        """Lines of a plan on how they communicate: names and values."""
        if self.edge_noise:
            hidden = f"as secure sums of {round_down(self.paired_together)} messages would"
            yield "edge noise", f"ratio {self.edge_noise:g}, hides each message {hidden}"

    def assumptions(self, *, prepares: bool, is_amplified: bool) -> Iterator[str]:
        """What guarantees rest on, in words.

        `prepares`: whether anything is released before the algorithm starts. `is_amplified`:
        whether secret sampling amplifies the privacy of the model.
        """
        if self.edge_noise:
            yield (
                "Edge noise: each pair of honest agents shares a secret seed, new for each fit, and"
                f" no more than {self.n_dishonest} of {self.n_agents} agents, whoever they are,"
                " disclose what they know. The guarantee is computational, because noise comes from"
                " seeds. A lost message costs no privacy, but leaves in the sum, for each message"
                f" that arrives, {self.edge_noise:g} times the variance of an agent's own noise."
            )


@dataclass(frozen=True, kw_only=True)
class Curator(Agents):
    """Whoever is trusted with all rows: there is no agent from whom something is hidden."""

    setting: ClassVar[str] = "central"
    observers: ClassVar[tuple[str, ...]] = (MODEL,)

    agent_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Nothing can be wrong."""

    def budgets(self, epsilon: float) -> tuple[float, ...]:
        """The one budget that there is."""
        return (epsilon,)


@dataclass(frozen=True, kw_only=True)
class Federation(Agents):
    """Agents, and a server that coordinates rounds.

    `n_honest` of them add their noise and keep it secret; the others may reveal it to the server.
    A fraction `participation`, in (0, 1], takes part in a round, and a message does not arrive with
    probability `dropout`, in [0, 1), independent of data.
    """

    setting: ClassVar[str] = "federated"
    observers: ClassVar[tuple[str, ...]] = (SERVER, SUMS, MODEL)

    n_honest: int
    participation: float = 1.0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        n, share = self.n_agents, self.participation
        expected = f"an int in [1, {n}], the number of agents: the others may reveal their noise"
        require(1 <= self.n_honest <= n, "n_honest", self.n_honest, expected)
        require(0 < share <= 1, "participation", share, f"'auto' or {EXPECTED_FRACTION}")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "a float in [0, 1)")
        expected = "0, or participation=1: noise of pairs needs both of them in every round"
        require(share == 1 or not self.edge_noise, "edge_noise", self.edge_noise, expected)

    def sees_each_message(self, observer: str) -> bool:
        """Only the server does, unless noise of pairs hides them."""
        return observer == SERVER and not self.edge_noise

    def hides_by_pairs(self, observer: str) -> bool:
        """The server sees messages one by one."""
        return observer == SERVER and super().hides_by_pairs(observer)

    @property
    def n_dishonest(self) -> int:
        """All but the honest ones."""
        return self.n_agents - self.n_honest

    def gain(self, observer: str) -> float:
        """The noise of all agents hides each of them in the model."""
        return math.sqrt(self.n_agents / self.together(observer, self.n_agents))

    def sees(self, observer: str, released: str) -> str:
        """Messages, sums of them, or what was released."""
        known = f"all that any {self.n_dishonest} of the {self.n_agents} agents know"
        if observer == SERVER:
            who = f"{self.threshold} of" if self.threshold else "all"
            together = f", {who} {self.n_curators} curators together" if self.n_curators else ""
            together = f", and {known}" if self.edge_noise else together
            return f"every message of every agent{together}"
        if observer == SUMS:
            return f"sums of messages, and {known}"
        return released

    def assumptions(self, *, prepares: bool, is_amplified: bool) -> Iterator[str]:
        """Who adds noise, and who takes part."""
        yield from super().assumptions(prepares=prepares, is_amplified=is_amplified)
        yield (
            f"sums: {self.n_honest} of {self.n_agents} agents add their noise and keep it secret;"
            " the sums are computed by a protocol that reveals nothing else."
        )
        yield (
            f"model: whichever of all {self.n_agents} agents sends a message adds its noise, also"
            " those that need not be honest for the figure of sums."
        )
        if self.sit_out:
            yield "Who takes part in a round, and who drops out, does not depend on data."
        if self.dropout > 0 and prepares:
            yield NO_LOSSES
        if is_amplified:
            yield "model: an observer of the model does not learn who took part in which round."


@dataclass(frozen=True, kw_only=True)
class Network(Agents):
    """Agents that communicate along the edges of a graph, without a coordinator.

    Nodes are in the order of labels; a `coalition` of peers pools what it received. Round k has the
    links number ``k % len(graphs)`` of `graphs`, whose union is the topology; () stands for all
    links in every round. An agent takes part in a round with probability `participation`, in
    (0, 1], and a link fails in it with probability `dropout`, in [0, 1), independent of data.
    """

    setting: ClassVar[str] = "decentralized"
    observers: ClassVar[tuple[str, ...]] = (EAVESDROPPER, PEER, MODEL)

    topology: Topology
    coalition: int = 1
    graphs: tuple[Links, ...] = field(default=(), metadata={"unless": ()})
    participation: float = field(default=1.0, metadata={"unless": 1.0})
    dropout: float = field(default=0.0, metadata={"unless": 0.0})

    def __post_init__(self) -> None:
        super().__post_init__()
        n, most = self.n_agents, max(1, self.n_agents - 1)
        require(0 < self.participation <= 1, "participation", self.participation, EXPECTED_FRACTION)
        require(0 <= self.dropout < 1, "dropout", self.dropout, "a float in [0, 1)")
        n_nodes = self.topology.n_agents
        require(n_nodes == n, "topology.n_agents", n_nodes, f"{n}, a node for each agent")
        expected = f"an int in [1, {most}]: the peers of an agent"
        require(1 <= self.coalition <= most, "coalition", self.coalition, expected)
        expected = "0 or at least 1: its grid must be no finer than that of messages"
        require(not 0 < self.edge_noise < 1, "edge_noise", self.edge_noise, expected)
        expected = "0 on a graph that fails, changes or is directed"
        require(not (self.edge_noise and self.needs), "edge_noise", self.edge_noise, expected)

    def sees_each_message(self, observer: str) -> bool:
        """Everybody; of secret-shared messages a coalition that may hold every curator."""
        is_open = observer != MODEL and self.coalition >= self.n_needed
        return not self.edge_noise and (self.n_curators == 0 or is_open)

    @property
    def pairs(self) -> Topology:
        """Neighbours."""
        return self.topology

    @property
    def n_dishonest(self) -> int:
        """The coalition, an eavesdropper's too: it never learns less than a peer."""
        return self.coalition

    @property
    def n_messages_per_sum(self) -> int:
        """Shares and sums are passed on along shortest paths, to curators and from them."""
        away = (self.topology.distances_from(c) for c in range(self.n_curators))
        return 2 * sum(int(distances.sum()) for distances in away)

    def sees(self, observer: str, released: str) -> str:
        """Messages along edges, or sums of them; whoever has the model has it alone."""
        if observer == MODEL:
            return "the final model"
        if self.n_curators and self.sees_each_message(observer):
            return f"all shares that {self.n_needed} curators received: every message"
        if self.n_curators:
            who = f"{self.coalition} peers know" if self.coalition > 1 else "one peer knows"
            shares = "encrypted shares along every edge, " if observer == EAVESDROPPER else ""
            return f"{shares}sums of messages, what {who}, and the final model"
        if observer == EAVESDROPPER:
            known = f", and what {self.coalition} of {self.n_agents} agents know"
            return "every message along every edge" + (known if self.edge_noise else "")
        who = (
            f"{self.coalition} peers receive together"
            if self.coalition > 1
            else "one peer receives"
        )
        return f"what {who}, and the final model"

    @property
    def is_directed(self) -> bool:
        """Whether some links carry messages in one direction only."""
        return any(links.is_directed for links in self.graphs)

    @property
    def needs(self) -> tuple[str, ...]:
        """Absent agents or links, graphs that change, and directed ones."""
        has = (self.sit_out, len(self.graphs) > 1, self.is_directed)
        return tuple(compress(("absences", "changes", "directions"), has))

    def links_in(self, round_number: int) -> Links:
        """The links of a round, counted from 0, if none of them fails."""
        return self.graphs[round_number % len(self.graphs)] if self.graphs else self.topology

    @property
    def n_per_broadcast(self) -> int:
        """Messages of a broadcast by everyone, along a spanning tree of each sender."""
        return self.n_agents * (self.n_agents - 1)

    def describe(self) -> Iterator[tuple[str, str]]:
        """The graph."""
        yield "topology", self._links_in_words()
        if self.sit_out:
            yield "absences", f"participation={self.participation:g}, dropout={self.dropout:g}"
        yield from super().describe()

    def _links_in_words(self) -> str:
        words = self.topology.describe()
        words += f", the union of {len(self.graphs)} graphs" if len(self.graphs) > 1 else ""
        return words + (", directed" if self.is_directed else "")

    def assumptions(self, *, prepares: bool, is_amplified: bool) -> Iterator[str]:
        """The graph, and batches at random."""
        yield from super().assumptions(prepares=prepares, is_amplified=is_amplified)
        if is_amplified:
            yield "Which records are in a batch is drawn at random, and only their agent knows."
        yield f"The graph is public: {self._links_in_words()}."
        if self.graphs:
            yield "The graph of each round is public, and no graph depends on data."
        if self.sit_out:
            yield "Who is absent, and which links fail, does not depend on data."
        if self.sit_out and prepares:
            yield NO_LOSSES
        if self.coalition > 1:
            yield (
                "privacy_.pairwise is the figure of one peer by itself, not of a coalition of"
                f" {self.coalition}."
            )


@dataclass(frozen=True, kw_only=True)
class Neighborhood(Agents):
    """Agents with models of their own, each pulled towards those of similar agents.

    Public are the `similarity` of pairs in the order of labels, the `confidence` of each agent in
    its own rows, in (0, 1], and `trade_off`, in (0, inf): the weight of own losses beside
    agreement, the paper's mu.
    """

    setting: ClassVar[str] = "personalized"
    observers: ClassVar[tuple[str, ...]] = (EAVESDROPPER, MODEL)
    # An agent without rows learns from its neighbours.
    fewest_rows: ClassVar[int] = 0
    is_personal: ClassVar[bool] = True

    similarity: Similarity
    confidence: tuple[float, ...]
    trade_off: float

    def __post_init__(self) -> None:
        super().__post_init__()
        n, n_rows = self.n_agents, self.similarity.n_agents
        require(n_rows == n, "similarity.n_agents", n_rows, f"{n}, a row for each agent")
        wrong = {agent: c for agent, c in enumerate(self.confidence) if not 0 < c <= 1}
        if wrong or len(self.confidence) != n:
            raise ValueError(
                f"Got {len(self.confidence)} values of confidence for {n} agents, expected a float"
                f" in (0, 1] for each. Wrong by position: {dict(list(wrong.items())[:5])}."
            )
        expected = "a float in (0, inf)"
        require(0 < self.trade_off < float("inf"), "trade_off", self.trade_off, expected)

    def sees(self, observer: str, released: str) -> str:
        """All models, and all messages but for whoever has the models alone."""
        models = "the final model" if self.n_agents == 1 else "the final models of all agents"
        return models if observer == MODEL else f"every message of every agent, and {models}"

    def assumptions(self, *, prepares: bool, is_amplified: bool) -> Iterator[str]:
        """The similarity of agents, their confidence, and their order."""
        if self.n_agents > 1:
            yield (
                "The similarity of agents is public and was not learnt from these rows:"
                f" {self.similarity.describe()}."
            )
        yield (
            "The confidence of agents is public, and so is the order in which they wake up: neither"
            " depends on the values in rows. Wake-ups that only average have no privacy loss."
        )
