"""What personalised estimators share: who is like whom, and whose model answers for a row."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from skdpadmm._fitting import Fitted, Trust
from skdpadmm._model_of_agents import ModelOfAgents, column_of, in_order_of_agents, own_scores
from skdpadmm._sklearn import Interval
from skdpadmm.algorithms import refit_at_home
from skdpadmm.network import (
    Ownership,
    Similarity,
    labels_of_relation,
    ownership_of_labels,
    positions_of_labels,
    resolve_similarity,
)
from skdpadmm.penalties import Penalty, SquaredL2
from skdpadmm.personalized._local_model import Columns
from skdpadmm.protocol import EAVESDROPPER, Facts, Neighborhood
from skdpadmm.records import Coordinates, Rows

# Of the confidence of one row: what an agent without rows gets, whose loss is nothing anyway.
NO_ROWS = 0.5


class PersonalizedModel(ModelOfAgents):
    """Parameters of a neighbourhood, and models of its agents."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **ModelOfAgents._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="left")],
        "trade_off": [Interval(Real, 0, None, closed="neither")],
        "similarity": "no_validation",
        "agent_features": "no_validation",
        "confidence": [Interval(Real, 0, 1, closed="right"), "array-like", dict, None],
        "partition": [*ModelOfAgents._parameter_constraints["partition"], None],
    }

    # Models are said aloud, so nobody sees less than whoever hears every message.
    adversary: str = EAVESDROPPER
    # Nothing is bought before the descent: distances of models are measured in declared units.
    scale = None
    conditioning = None
    # Agents take turns in this process: there is nothing to share out.
    engine: str = "local"
    n_jobs = None

    alpha: float
    trade_off: float
    similarity: Any
    agent_features: Any
    confidence: Any
    agent_labels_: NDArray[Any]
    similarity_: Similarity
    _facts: Facts
    _coordinates: Coordinates
    _public_models: NDArray[np.float64]
    _trusts_by_size: bool
    coef_per_agent_: NDArray[np.float64]
    intercept_per_agent_: NDArray[np.float64]

    def _penalty(self, n_samples: int, n_features: int) -> Penalty:
        return SquaredL2(float(self.alpha))

    def _partition_rule(self) -> Any:
        if self.partition is not None:
            return self.partition
        return 1 if self.n_agents is None else "iid"

    def _made_up(self) -> str:
        # One agent with all rows is whoever calls.
        return "" if self.partition is self.n_agents is None else super()._made_up()

    def _named(self) -> list[Any]:
        """Labels of the agents that are in a relation, sorted; none where it has no labels."""
        relation, name = self.similarity, "similarity"
        if isinstance(relation, str):
            name = "agent_features"
            relation = None if relation == "uniform" else self.agent_features
        names = labels_of_relation(relation)
        if names is None:
            return []
        of = ownership_of_labels(names, n_samples=len(names), name=f"labels in {name}")
        if len(of.labels) < len(names):
            twice = [label for label, times in Counter(names).items() if times > 1]
            raise ValueError(
                f"Got {name} with several rows of agents {twice[:5]!r}, expected one for each."
            )
        return of.labels.tolist() if of.labels.dtype.kind not in "mM" else list(of.labels)

    def _with_everybody(self, ownership: Ownership) -> Ownership:
        named = set(self._named())
        if not named.issuperset(ownership.labels.tolist()):
            # Whoever is missing is named where weights are looked up.
            return ownership
        return ownership.joined_by(named)

    def _owners(self, X: Any, y: NDArray[Any], agents: Any) -> tuple[Ownership | None, Trust]:
        if agents is None and not callable(self.partition):
            self._require_made_up(self._named())
        ownership, trust = super()._owners(X, y, agents)
        assert isinstance(trust.agents, Neighborhood)
        self.similarity_ = trust.agents.similarity
        return ownership, trust

    def _require_made_up(self, named: list[Any]) -> None:
        """Refuse labels of agents where those of rows are missing: it made up 0, 1, ..."""
        one = self.partition is self.n_agents is None
        if named and set(named) != set(range(1 if one else len(named))):
            raise ValueError(
                f"Got agents=None with a similarity of agents {named[:5]!r}, expected the label of"
                " an agent for each row. Pass agents=... to fit, or set agent_column."
            )
        n_alike = _n_agents_of(self.similarity)
        if one and n_alike > 1:
            raise ValueError(
                f"Got agents=None with a similarity of {n_alike} agents, expected the label of an"
                " agent for each row. Pass agents=... to fit, or set agent_column."
            )

    def _trust(
        self,
        sizes: NDArray[np.intp],
        assumptions: tuple[str, ...],
        labels: NDArray[Any] | None = None,
    ) -> Trust:
        n_agents, known = len(sizes), labels
        if labels is None:
            # A plan without data knows no labels: those of the relation stand for them.
            named = self._named()
            labels = np.arange(n_agents)
            if len(named) == n_agents:
                labels = np.fromiter(named, dtype=object, count=n_agents)
        neighborhood = Neighborhood(
            agent_sizes=tuple(sizes.tolist()),
            epsilons=self._epsilons(known),
            # Sums over records, or means that are clipped: neither moves by more in small agents.
            sizes_matter=False,
            similarity=resolve_similarity(self.similarity, labels, self.agent_features),
            confidence=self._confidences(sizes, known),
            trade_off=float(self.trade_off),
        )
        return Trust(
            agents=neighborhood,
            unit=self.privacy_unit,
            observer=self.adversary,
            backend=self.engine,
            assumptions=assumptions,
        )

    def _confidences(
        self, sizes: NDArray[np.intp], labels: NDArray[Any] | None
    ) -> tuple[float, ...]:
        """How much each agent trusts its own rows."""
        if self.confidence is None:
            largest = max(int(sizes.max(initial=1)), 1)
            return tuple((np.where(sizes == 0, NO_ROWS, sizes) / largest).tolist())
        if isinstance(self.confidence, Real):
            return (float(self.confidence),) * len(sizes)
        names = None if labels is None else labels.tolist()
        values = in_order_of_agents(self.confidence, names, "confidence")
        try:
            given = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            given = np.empty((0, 0))
        if given.ndim != 1:
            raise ValueError(
                f"Got confidence={self.confidence!r}, expected None, a float in (0, 1], or one for"
                " each agent: a dict or Series by label, or a list in the order of their sorted"
                " labels."
            )
        wrong = np.flatnonzero(~((given > 0) & (given <= 1))).tolist()
        if wrong and len(given) == len(sizes):
            whose = wrong if names is None else [names[i] for i in wrong]
            shown = dict(zip(whose[:5], given[wrong[:5]].tolist(), strict=True))
            raise ValueError(
                f"Got confidence={shown!r}{' and others' if len(wrong) > 5 else ''}, expected a"
                " float in (0, 1] for each agent."
            )
        return tuple(given.tolist())

    def _store_agents(self, fitted: Fitted) -> None:
        coef, intercept = fitted.coef_per_agent, fitted.intercept_per_agent
        self.coef_per_agent_, self.intercept_per_agent_ = self._own(coef, intercept)
        # All that a refit at home needs to know of others.
        assert fitted.solution.parameters_per_agent is not None
        self._facts, self._coordinates = fitted.plan.facts, fitted.coordinates
        self._public_models = fitted.solution.parameters_per_agent
        self._trusts_by_size = self.confidence is None

    def _scores(self, X: Any, agents: Any, similarities: Any) -> NDArray[np.float64]:
        """Scores of rows, each by the model of its agent, of shape (n_samples, n_outputs)."""
        check_is_fitted(self)
        features = self._check_predict(X)
        n_samples, n_agents = features.shape[0], len(self.agent_labels_)
        coef = self.coef_per_agent_.reshape(n_agents, -1, features.shape[1])
        intercept = self.intercept_per_agent_.reshape(n_agents, -1)
        if self.agent_column is not None:
            if agents is not None:
                raise ValueError(
                    f"Got agents and agent_column={self.agent_column!r}, expected one of the two."
                    " Leave agents out."
                )
            agents = column_of(X, self._column_number(X))
        if agents is None:
            if n_agents > 1:
                raise ValueError(
                    f"Got agents=None for the models of {n_agents} agents, expected the label of an"
                    f" agent for each row, such as {self._label(0)!r}: there is no"
                    " model for everybody. Pass agents."
                )
            return own_scores(features, coef, intercept, np.zeros(n_samples, dtype=np.intp))
        asked = ownership_of_labels(agents, n_samples=n_samples)
        known = self.agent_labels_.tolist()
        new = sorted(set(asked.labels.tolist()) - set(known))
        if new:
            shares = self._shares_of(new, similarities)
            coef = np.concatenate([coef, np.tensordot(shares, coef, axes=1)])
            intercept = np.concatenate([intercept, shares @ intercept])
        everybody = np.fromiter([*known, *new], dtype=object, count=n_agents + len(new))
        places = positions_of_labels(asked.labels, everybody, n_samples=asked.n_agents)
        return own_scores(features, coef, intercept, places[asked.index])

    def _shares_of(self, new: list[Any], similarities: Any) -> NDArray[np.float64]:
        """What the models of agents count for agents that no fit has seen."""
        known = self.agent_labels_.tolist()
        if similarities is None:
            raise ValueError(
                f"Got agents {new[:5]!r}, expected labels of agents in the fit, such as"
                f" {known[:5]!r}. For agents that are new pass similarities: a row for each, a"
                " column for each agent of the fit."
            )
        if hasattr(similarities, "index") and hasattr(similarities, "columns"):
            twice = [
                label
                for axis in (similarities.index, similarities.columns)
                for label, times in Counter(axis).items()
                if times > 1
            ]
            if twice:
                raise ValueError(
                    f"Got similarities with several rows or columns of agents {twice[:5]!r},"
                    " expected one for each."
                )
            missing = sorted(set(new) - set(similarities.index), key=new.index)
            unknown = [label for label in similarities.columns if label not in set(known)]
            if missing or unknown:
                raise ValueError(
                    f"Got similarities without rows of agents {missing[:5]!r} and with unknown"
                    f" columns {unknown[:5]!r}, expected a row for each new agent, and columns"
                    f" among the agents of the fit, such as {known[:5]!r}."
                )
            # Who has no column is not like anybody new.
            rows = similarities.loc[new].reindex(columns=known, fill_value=0.0).to_numpy()
        else:
            rows = np.asarray(similarities)
        if rows.shape != (len(new), len(known)):
            raise ValueError(
                f"Got similarities of shape {rows.shape}, expected ({len(new)}, {len(known)}): a"
                f" row for each new agent in the order of their sorted labels, {new[:5]!r}, and a"
                " column for each agent of the fit in the order of agent_labels_."
            )
        return np.stack([self.similarity_.average_for(row) for row in rows])

    def _position(self, agent: Any) -> int:
        """Where a label is among those of the fit."""
        check_is_fitted(self)
        known = self.agent_labels_.tolist()
        if agent not in known:
            raise ValueError(
                f"Got agent={agent!r}, expected a label of an agent in the fit, such as"
                f" {known[:5]!r}."
            )
        return known.index(agent)

    def _label(self, position: int) -> Any:
        """An agent's label as a plain value."""
        return self.agent_labels_.tolist()[position]

    def _check_own(
        self, agent: Any, X: Any, y: ArrayLike, *, y_numeric: bool = False
    ) -> tuple[Any, NDArray[Any]]:
        """Features and targets of rows that stay with their agent."""
        features = check_array(
            self._check_predict(X), accept_sparse="csr", dtype=[np.float64, np.float32]
        )
        if self.agent_column is not None:
            whose = column_of(X, self._column_number(X))
            others = set(whose.tolist()) - {agent}
            if others:
                raise ValueError(
                    f"Got rows of agents {list(others)[:5]!r} for agent={agent!r}, expected its own"
                    f" alone: those with {agent!r} in column {self.agent_column!r}."
                )
        if y_numeric:
            y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        target = column_or_1d(y)
        check_consistent_length(features, target)
        return features, target

    def _columns(self) -> Columns:
        """Which columns the model of one agent may get."""
        names, n_columns = getattr(self, "feature_names_in_", None), int(self.n_features_in_)
        of_agents = None
        if isinstance(self.agent_column, str):
            assert names is not None
            of_agents = names.tolist().index(self.agent_column)
        elif self.agent_column is not None:
            of_agents = int(self.agent_column) % n_columns
        return Columns(n_columns=n_columns, names=names, of_agents=of_agents)

    def _refit(
        self, position: int, features: Any, encoded: NDArray[Any]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Coefficients and intercepts of one agent's model, from its rows as they are.

        Parameters
        ----------
        position : int
            Of the agent.
        features : {ndarray, CSR matrix} of shape (n_own, n_features)
            Validated.
        encoded : ndarray of shape (n_own,)
            Targets as the loss expects them.

        Returns
        -------
        coef : ndarray of shape (n_outputs, n_features)
        intercept : ndarray of shape (n_outputs,)
        """
        coordinates, facts = self._coordinates.without_bounds(), self._facts
        agents = facts.agents
        assert isinstance(agents, Neighborhood)
        if self._trusts_by_size and not agents.agent_sizes[position]:
            # There were no rows in the fit, so its confidence is that of none.
            confidence = list(agents.confidence)
            confidence[position] = min(1.0, features.shape[0] / max(agents.agent_sizes))
            agents = replace(agents, confidence=tuple(confidence))
            facts = replace(facts, agents=agents)
        with np.errstate(all="ignore"):
            rows = Rows(features, coordinates)
            target = coordinates.target(encoded) if coordinates.has_target_scale else encoded
            found = refit_at_home(facts, rows, target, agent=position, models=self._public_models)
        return coordinates.to_user(found)


def _n_agents_of(similarity: Any) -> int:
    """How many agents weights are for, where they are a matrix; what is none is refused later."""
    if isinstance(similarity, Similarity):
        return similarity.n_agents
    try:
        shape = np.shape(similarity)
    except ValueError:
        return 0
    return int(shape[0]) if len(shape) == 2 else 0
