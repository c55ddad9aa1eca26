"""What decentralised estimators share: a graph, a penalty, and models of agents."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skdpadmm._fitting import Fitted, Trust
from skdpadmm._model_of_agents import ModelOfAgents
from skdpadmm._sklearn import Interval, StrOptions
from skdpadmm.network import (
    Ownership,
    Topology,
    ownership_of_labels,
    positions_of_labels,
    resolve_topology,
)
from skdpadmm.penalties import L1, ElasticNet, NoPenalty, Penalty, SquaredL2
from skdpadmm.protocol import EAVESDROPPER, PEER, Network


class DecentralizedModel(ModelOfAgents):
    """Parameters of a network, and what its agents end up with."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **ModelOfAgents._parameter_constraints,
        "penalty": [StrOptions({"l1", "l2", "elasticnet"}), None],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
        "adversary": [StrOptions({EAVESDROPPER, PEER})],
        "coalition": [Interval(Integral, 1, None, closed="left")],
        "topology": "no_validation",
    }

    penalty: str | None
    alpha: float
    l1_ratio: float
    coalition: int
    topology: Any

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        alpha = float(self.alpha)
        if self.penalty is None:
            return NoPenalty()
        if self.penalty == "l2":
            return SquaredL2(alpha)
        if self.penalty == "l1":
            return L1(alpha)
        return ElasticNet(alpha * float(self.l1_ratio), alpha * (1 - float(self.l1_ratio)))

    def _owners(self, X: Any, y: NDArray[Any], agents: Any) -> tuple[Ownership | None, Trust]:
        ownership, trust = super()._owners(X, y, agents)
        assert isinstance(trust.agents, Network)
        self.topology_ = trust.agents.topology
        return ownership, trust

    def _trust(
        self,
        sizes: NDArray[np.intp],
        assumptions: tuple[str, ...],
        labels: NDArray[Any] | None = None,
    ) -> Trust:
        network = Network(
            agent_sizes=tuple(sizes.tolist()),
            topology=self._topology(len(sizes), labels),
            coalition=int(self.coalition),
            epsilons=self._epsilons(labels),
            sizes_matter=self.privacy_unit == "agent",
        )
        return Trust(
            agents=network,
            unit=self.privacy_unit,
            observer=self.adversary,
            backend=self.engine,
            assumptions=assumptions,
        )

    def _topology(self, n_agents: int, labels: NDArray[Any] | None) -> Topology:
        # A plan without data knows no labels: the order of the nodes stands for theirs.
        if labels is None:
            labels = np.arange(n_agents)
            nodes = getattr(self.topology, "nodes", None)
            if nodes is not None and len(nodes) == n_agents:
                named = ownership_of_labels(
                    list(nodes), n_samples=n_agents, name="nodes of the topology"
                )
                labels = named.labels
        seed = self.random_state
        return resolve_topology(
            self.topology,
            labels,
            # What is no seed is refused where noise is drawn.
            seed=max(int(seed), 0) if isinstance(seed, Integral) else 0,
        )

    def _store_agents(self, fitted: Fitted) -> None:
        coef, intercept = fitted.coef_per_agent, fitted.intercept_per_agent
        if not len(coef):
            # Without privacy, and where a token carries the model, agents agree on it.
            n_agents = len(self.agent_labels_)
            coef = np.repeat(fitted.coef[None], n_agents, axis=0)
            intercept = np.repeat(fitted.intercept[None], n_agents, axis=0)
        # Noise can take models out of the range of their squares.
        with np.errstate(all="ignore"):
            squares = np.square(coef - fitted.coef).sum(axis=(1, 2))
            squares += np.square(intercept - fitted.intercept).sum(axis=1)
            self.consensus_error_ = float(np.sqrt(squares.mean()))
        self.expected_privacy_loss_ = fitted.solution.expected_privacy_loss
        self.coef_per_agent_, self.intercept_per_agent_ = self._own(coef, intercept)

    def _positions(self, agents: ArrayLike, n_samples: int) -> NDArray[np.intp]:
        """Whose model predicts each row."""
        return positions_of_labels(agents, self.agent_labels_, n_samples=n_samples)
