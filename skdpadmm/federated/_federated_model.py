"""What federated estimators share: a server, and who is trusted with what."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from skdpadmm._fitting import Trust
from skdpadmm._linear_model import PrivateLogisticRegression
from skdpadmm._model_of_agents import ClassifierOfAgents, ModelOfAgents, RegressorOfAgents
from skdpadmm._sklearn import Interval, StrOptions
from skdpadmm.protocol import SERVER, Federation


class FederatedModel(ModelOfAgents):
    """Parameters of a federation."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **ModelOfAgents._parameter_constraints,
        "adversary": [StrOptions(set(Federation.observers))],
        "participation": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="right")],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "n_honest": [Interval(Integral, 1, None, closed="left"), None],
    }

    participation: float | str
    dropout: float
    n_honest: int | None

    def _trust(
        self,
        sizes: NDArray[np.intp],
        assumptions: tuple[str, ...],
        labels: NDArray[Any] | None = None,
    ) -> Trust:
        n_agents, epsilons = len(sizes), self._epsilons(labels)
        if epsilons and self.adversary != SERVER:
            raise ValueError(
                f"Got an epsilon for each agent with adversary={self.adversary!r}, expected"
                " 'server': a sum of messages has one noise, which protects all agents alike."
            )
        federation = Federation(
            agent_sizes=tuple(sizes.tolist()),
            # A majority, and never everyone: an agent knows what it added itself.
            n_honest=max(1, min(n_agents // 2 + 1, n_agents - 1))
            if self.n_honest is None
            else int(self.n_honest),
            participation=1.0 if self.participation == "auto" else float(self.participation),
            dropout=float(self.dropout),
            epsilons=epsilons,
            sizes_matter=self.privacy_unit == "agent",
        )
        return Trust(
            agents=federation,
            unit=self.privacy_unit,
            observer=self.adversary,
            backend=self.engine,
            assumptions=assumptions,
        )


class FederatedRegressor(FederatedModel, RegressorOfAgents):
    """A linear model of a number in units, of a federation."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **RegressorOfAgents._parameter_constraints,
        **FederatedModel._parameter_constraints,
    }


class FederatedLogisticRegression(FederatedModel, ClassifierOfAgents, PrivateLogisticRegression):
    """Logistic regression of a federation."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **PrivateLogisticRegression._parameter_constraints,
        **FederatedModel._parameter_constraints,
    }
