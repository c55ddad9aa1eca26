"""Small fits, and statistics beside a fit, that the contract is about.

There is one for each release, unit, relation and law.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

import skdpadmm
from examples.extending.plot_own_iteration import (
    TWO,
    consensus,
    heavy_ball,
    latest,
    linearized_admm,
)
from skdpadmm import algorithms
from skdpadmm.metrics import private_score
from skdpadmm.preprocessing import private_bounds
from tests.contract import harness

# The first agent has more records than two average ones, the third has one.
AGENTS = (0, 1, 0, 0, 2, 0, 3, 0, 0, 3, 0, 1, 3, 0)
# Persons of whom two have more rows than count; the first one has any number of the last ones.
PERSONS = (1, 2, 1, 3, 4, 4, 4, 4, 2, 5, 0, 0, 0, 0, 0)
OF_PERSONS = {"max_rows_per_person": 3}
MAX_WEIGHT = {"max_weight": 1.25}

# Clip bounds that are never reached, and always.
FAR, WIDE = {"clip_norm": 10.0, "step_size": 1.0}, {"clip_norm": 1000.0}
TINY = {"clip_norm": 0.01}
STEPS = {"clip_norm": 0.01, "step_size": 0.01}
NO_INTERCEPT = {"neighboring": "zero_out", "fit_intercept": False}
# The last term of the noise that cancels is a small part of the norm of all of them.
IN_STAGES = {"reaches": 0.01, "hides_path": True}
# Graphs of rounds, none of which connects all agents, and one whose links have directions.
TURNS = [np.kron(np.eye(2), 1 - np.eye(2)), np.roll(np.kron(np.eye(2), 1 - np.eye(2)), 1, (0, 1))]


def arcs(round_number: int) -> nx.DiGraph:
    """The same graph in each round."""
    return nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)])


# Whatever the noisy number of records, the same releases.
ADD_REMOVE = {"neighboring": "add_remove", "conditioning": None, "scale": None, "epsilon": 100.0}
WEIGHTED = {"class_weight": {0: 0.5, 1: 6.0}}


@dataclass(frozen=True)
class Row:
    """A small fit.

    `algorithm` is the name of an algorithm of the package, or a class. `pieces` has the sizes that
    a stream arrives in. `unseen` names releases whose sensitivity no replay can see: tests of the
    algorithm do. `linear` has the parameters under which every loss is linear for the first record,
    so that sensitivities are attained up to the factor `reaches`, and the claim where releases
    compose to it (`composes`); None where they are not tight. `spent` is the share of the budget
    that a plan uses at least. `optimum` has the parameters with which a fit without noise reaches
    the optimum, and how closely; None where none does. `hides_path`: the guarantee is of the last
    iterate, of one token, or of a secret order or end, or an algorithm of somebody else does not
    declare more. `free` is how many iterations an object needs without privacy, and how far from
    the optimum it ends; None where that is far: after one pass or random batches, and where steps
    are short, for a declared bound that rows do not fill, or noise decays. `n_noise` is how many
    numbers are drawn to test the noise. `is_slow`: other rows show nearly the same in the quick
    suite; `is_quick`: the row shows there what most rows show in the slow one alone.
    """

    id: str
    estimator: str
    algorithm: Any
    knobs: dict[str, Any] = field(default_factory=dict)
    target: str = "number"
    params: dict[str, Any] = field(default_factory=dict)
    is_sparse: bool = False
    pieces: tuple[int, ...] = ()
    unseen: tuple[str, ...] = ()
    linear: dict[str, Any] | None = field(default_factory=lambda: STEPS)
    reaches: float = 1.0
    composes: bool = True
    spent: float = 0.999
    optimum: tuple[dict[str, float], float] | None = None
    hides_path: bool = False
    free: tuple[int, float] | None = (400, 2e-4)
    n_noise: int = 160
    is_slow: bool = False
    is_quick: bool = False

    @property
    def has_agents(self) -> bool:
        """Whether agents hold the records."""
        return not self.estimator.startswith("DPAdmm")

    @property
    def has_persons(self) -> bool:
        """Whether persons are the unit, who have any number of rows."""
        return "max_rows_per_person" in self.params

    @property
    def has_weights(self) -> bool:
        """Whether records have weights, which follow from their own features."""
        return "max_weight" in self.params

    @property
    def n_samples(self) -> int:
        """Number of records."""
        of_units = len(PERSONS) if self.has_persons else len(AGENTS) if self.has_agents else 12
        return sum(self.pieces) or of_units

    @property
    def classes(self) -> list[int] | None:
        """Declared classes."""
        return {"number": None, "two": [0, 1], "three": [0, 1, 2]}[self.target]

    @property
    def hides_n(self) -> bool:
        """Whether the number of records is private: neighbours lack the first unit."""
        return self.params.get("neighboring") == "add_remove"

    def make(self, **changed: Any) -> Any:
        """The estimator, unfitted and seeded; with other parameters where some are given."""
        params = {"max_iter": 4, "random_state": 0, "delta": 1e-4, "feature_bounds": (-1.0, 1.0)}
        is_number = self.target == "number"
        params |= {"target_bounds": (-2.0, 2.0)} if is_number else {"classes": self.classes}
        params |= {"algorithm": {}, **self.params, **changed}
        if isinstance(params["algorithm"], dict):
            params["algorithm"] = self.algorithm_with(params["algorithm"])
        return getattr(skdpadmm, self.estimator)(**params)

    def algorithm_with(self, changed: dict[str, Any]) -> Any:
        """The algorithm, with some parameters changed."""
        make = getattr(algorithms, str(self.algorithm), self.algorithm)
        return make(**{**self.knobs, **changed})

    @property
    def elsewhere(self) -> dict[str, Any]:
        """Parameters of another plan."""
        other = {"max_iter": 5} if "scale" in self.params else {"feature_bounds": (-3.0, 3.0)}
        return {"row_norm": 3.0} if "row_norm" in self.params else other

    @property
    def extremes(self) -> tuple[float, float]:
        """The two targets that are the farthest apart; numbers are clipped to their bounds."""
        return (-1e308, 1e308) if self.target == "number" else (0, self.classes[-1])

    @property
    def first_unit(self) -> list[int]:
        """Which records change between neighbouring data sets."""
        if self.has_persons:
            return [i for i, person in enumerate(PERSONS) if person == 0]
        is_agent = self.params.get("privacy_unit") == "agent"
        return [i for i, agent in enumerate(AGENTS) if agent == 0] if is_agent else [0]

    def plan(self, n_samples: int | None = None, **changed: Any) -> Any:
        """What is planned before there are data, or for a number of records."""
        sizes = {"agent_sizes": np.bincount(AGENTS)} if self.has_agents else {}
        sizes |= {"n_persons": max(PERSONS) + 1} if self.has_persons else {}
        if self.pieces:
            return harness.record(self, *self.data(9), **changed).plan
        return self.make(**changed).plan(n_samples or self.n_samples, 2, **sizes)

    def predict(self, model: Any, X: np.ndarray) -> np.ndarray:
        """Predictions, for the records of each agent where there are agents."""
        has_own = self.estimator.startswith("DPPersonalized")
        return model.predict(X, agents=np.array(AGENTS)) if has_own else model.predict(X)

    def data(self, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Rows and targets; rows are dense here, see `fit`."""
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (self.n_samples, 2))
        if self.target == "number":
            return X, np.clip(X @ [1.0, -0.5] + 0.3 * rng.standard_normal(len(X)), -2, 2)
        return X, np.arange(len(X)) % len(self.classes)

    def fit(self, model: Any, X: np.ndarray, y: np.ndarray) -> Any:
        """Fit as the row says: on sparse rows, with agents, or piece by piece."""
        rows = sparse.csr_array(X) if self.is_sparse else X
        more = {"agents": np.array(AGENTS)} if self.has_agents else {}
        more |= {"persons": np.array(PERSONS[: len(y)])} if self.has_persons else {}
        more |= {"sample_weight": weights_of(X)} if self.has_weights else {}
        if not self.pieces:
            return model.fit(rows, y, **more)
        first = 0
        for size in self.pieces:
            model.partial_fit(rows[first : first + size], y[first : first + size])
            first += size
        return model


def weights_of(X: np.ndarray) -> np.ndarray:
    """Weights of about one; of records at their bounds far too large ones, of null records 0."""
    usual = 1.0 + 0.2 * np.clip(X[:, 1], -1.0, 1.0)
    return np.select([~X.any(axis=1), np.abs(X[:, 0]) >= 1.0], [0.0, 1e308], usual)


# Statistics beside a fit.


class Chances(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose probabilities are its rows, whatever they are."""

    def __init__(self, classes: Any = "ab") -> None:
        self.classes = classes

    def predict_proba(self, X: Any) -> np.ndarray:
        """The rows."""
        return np.asarray(X, dtype=float)

    def predict(self, X: Any) -> np.ndarray:
        """The class of the largest entry."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    @property
    def classes_(self) -> np.ndarray:
        """Labels."""
        return np.array(list(self.classes))

    def __sklearn_is_fitted__(self) -> bool:
        return True


class Numbers(RegressorMixin, BaseEstimator):
    """A fitted regressor whose predictions are its rows."""

    def predict(self, X: Any) -> np.ndarray:
        """The first column."""
        return np.asarray(X, dtype=float)[:, 0]

    def __sklearn_is_fitted__(self) -> bool:
        return True


class Released(BaseEstimator):
    """What a statistic released, as attributes of a model."""

    def __init__(self, release: Any, params: dict[str, Any]) -> None:
        self.release, self.params = release, params

    def set_params(self, **changed: Any) -> None:
        """Change what it is called with."""
        self.params = self.params | changed

    def fit(self, X: Any, y: Any) -> Any:
        """Release."""
        vars(self).update(vars(self.release(X, y, **self.params)))
        return self


@dataclass(frozen=True)
class Statistic(Row):
    """A small release beside a fit: `algorithm` makes it of rows, targets and parameters."""

    linear: dict[str, Any] | None = field(default_factory=dict)
    has_agents = False
    elsewhere = {"epsilon": 200.0}  # noqa: RUF012

    def make(self, algorithm: Any = None, **changed: Any) -> Any:
        """The release, seeded, with a budget of which results are more than noise."""
        params = {"epsilon": 300.0, "delta": 1e-4, "random_state": 0, **self.params, **changed}
        return Released(self.algorithm, params)

    def plan(self, n_samples: int | None = None, **changed: Any) -> Any:
        """What is planned for other data of this shape."""
        return harness.record(self, *self.data(9), **changed).plan


def bounds_of(X: np.ndarray, y: np.ndarray, **params: Any) -> Any:
    """Bounds of all columns, of which the last are the targets."""
    return private_bounds(np.column_stack([X, y]), **params)


def scores_of(X: np.ndarray, y: np.ndarray, model: Any = None, **params: Any) -> Any:
    """Scores of predictions that are the rows."""
    return private_score(model, X, y, **params)


# fmt: off
ROWS = [
    # Consensus ADMM: steps, relations, penalties, classes, sparse rows, private coordinates.
    Row("consensus-exact", "DPAdmmRidge", "ConsensusADMM", optimum=(FAR, 1e-9), is_quick=True),
    Row("consensus-overrelaxed-zero-out", "DPAdmmLasso", "ConsensusADMM", {"relaxation": 0.8},
        params={"alpha": 0.01, **NO_INTERCEPT}, reaches=0.25),
    Row("consensus-linearized-undeclared", "DPAdmmHuberRegressor", "ConsensusADMM",
        {"record_step": "linearized"}, params={"feature_bounds": None}, optimum=(FAR, 1e-9)),
    Row("consensus-three-classes", "DPAdmmLogisticRegression", "ConsensusADMM", target="three",
        reaches=0.866, optimum=(FAR, 1e-9)),
    Row("consensus-sparse-zero-out", "DPAdmmLinearSVC", "ConsensusADMM", target="two",
        params={"feature_bounds": None, **NO_INTERCEPT}, is_sparse=True),
    Row("consensus-conditioned-scaled", "DPAdmmElasticNet", "ConsensusADMM", params={"alpha": 0.01,
        "feature_bounds": None, "scale": "private", "conditioning": "private"}, linear=None),
    Row("consensus-conditioned-zero-out", "DPAdmmLogisticRegression", "ConsensusADMM",
        target="two", params={"conditioning": "private", **NO_INTERCEPT}),
    Row("consensus-norm-sparse", "DPAdmmLogisticRegression", "ConsensusADMM", target="two",
        params={"feature_bounds": None, "row_norm": 0.5}, is_sparse=True),
    Row("consensus-fused", "DPAdmmGeneralizedLasso", "ConsensusADMM"),
    # Budgets with which centre and unit of the target are released.
    Row("consensus-centred", "DPAdmmRidge", "ConsensusADMM", params={"epsilon": 30.0},
        linear=None),
    Row("consensus-centred-persons-zero-out", "DPAdmmLasso", "ConsensusADMM", params={"alpha": 0.01,
        "epsilon": 300.0, "neighboring": "zero_out", **OF_PERSONS}, linear=None),
    # Bounds that all targets reach: their unit is as large as it can be.
    Row("averaged-centred", "DPAdmmRidge", "AveragedADMM", {"guarantee": "path"},
        params={"epsilon": 30.0, "target_bounds": (-0.01, 0.01)}, linear=None),
    # Rows are longer in the released basis than floats can solve for.
    Row("averaged-shorter-rows", "DPAdmmLogisticRegression", "AveragedADMM",
        {"step_size": 1e4, "tolerance": 1e-6}, target="two", params={"conditioning": "private",
        "epsilon": 600.0, "max_iter": 2}, linear=None, free=None,
        is_slow=True),
    Row("objective-centred", "DPAdmmRidge", "ObjectivePerturbation", unseen=("minimiser",),
        params={"epsilon": 30.0}, linear=None, hides_path=True),
    Row("federated-centred-agent", "DPFedRidge", "FederatedADMM", params={"epsilon": 2000.0,
        "adversary": "sums", "privacy_unit": "agent"}, linear=None),
    # Rates and quantiles, in units that are released, and losses whose constants are in a theorem.
    Row("poisson-centred", "DPAdmmPoissonRegressor", "ConsensusADMM", linear=None,
        params={"epsilon": 60.0, "target_bounds": (0.0, 20.0)}, free=None),
    Row("gamma-centred-persons-zero-out", "DPAdmmGammaRegressor", "ConsensusADMM", linear=None,
        params={"epsilon": 300.0, "target_bounds": (0.1, 9.0), "neighboring": "zero_out",
        **OF_PERSONS}, free=None),
    Row("tweedie-exact-zero-out", "DPAdmmTweedieRegressor", "ConsensusADMM", linear=None,
        params={"alpha": 0.1, "target_bounds": (0.2, 9.0), **NO_INTERCEPT}, optimum=(FAR, 1e-6),
        free=None),
    Row("poisson-gradient-last", "DPAdmmPoissonRegressor", "GradientDescent",
        {"guarantee": "last"}, params={"target_bounds": (0.0, 4.0)}, linear=None, composes=False,
        hides_path=True, free=None),
    Row("gamma-objective", "DPAdmmGammaRegressor", "ObjectivePerturbation", unseen=("minimiser",),
        params={"target_bounds": (0.5, 4.0)}, linear=None, hides_path=True),
    Row("quantile-centred", "DPAdmmQuantileRegressor", "ConsensusADMM", linear=None,
        params={"alpha": 0.01, "quantile": 0.8, "epsilon": 30.0}, free=None),
    Row("quantile-gradient-last", "DPAdmmQuantileRegressor", "GradientDescent",
        {"guarantee": "last"}, params={"alpha": 0.01, "smoothing": 0.5}, linear=None,
        composes=False, hides_path=True, free=None),
    # All rows of a person, of whom neighbours have other numbers of rows.
    Row("consensus-persons", "DPAdmmRidge", "ConsensusADMM", params=OF_PERSONS,
        optimum=(FAR, 1e-9)),
    Row("consensus-persons-three-classes-zero-out", "DPAdmmLogisticRegression", "ConsensusADMM",
        {"relaxation": 0.4}, target="three", params={"feature_bounds": None, **OF_PERSONS,
        **NO_INTERCEPT}, is_sparse=True),
    Row("consensus-persons-conditioned-scaled", "DPAdmmElasticNet", "ConsensusADMM",
        params={"alpha": 0.01, "feature_bounds": None, "scale": "private",
        "conditioning": "private", **OF_PERSONS}, linear=None),
    Row("gradient-persons", "DPAdmmLogisticRegression", "GradientDescent", target="two",
        params=OF_PERSONS, linear=TINY, optimum=(FAR, 1e-9)),
    # Weights of records: neighbours have other ones, from 0 to far above their bound.
    Row("records-weighted", "DPAdmmRidge", "ConsensusADMM", params=MAX_WEIGHT,
        optimum=(FAR, 1e-9)),
    Row("records-weighted-zero-out-sparse", "DPAdmmLogisticRegression", "ConsensusADMM",
        {"relaxation": 0.4}, target="three", params={"feature_bounds": None, **MAX_WEIGHT,
        **NO_INTERCEPT}, is_sparse=True),
    Row("records-weighted-conditioned-scaled", "DPAdmmElasticNet", "ConsensusADMM",
        params={"alpha": 0.01, "feature_bounds": None, "scale": "private",
        "conditioning": "private", **MAX_WEIGHT}, linear=None),
    Row("records-weighted-gradient", "DPAdmmLogisticRegression", "GradientDescent", target="two",
        params={**MAX_WEIGHT, **WEIGHTED}, linear=TINY, optimum=(FAR, 1e-9)),
    Row("records-weighted-batches", "DPAdmmRidge", "GradientDescent", {"batch_fraction": 0.5},
        params={"max_iter": 3, **MAX_WEIGHT}, linear=TINY, composes=False, free=None,
        is_slow=True),
    Row("records-weighted-own-iteration", "DPAdmmRidge", "FixedPointIteration", {"update":
        linearized_admm, "at": consensus}, params=MAX_WEIGHT, linear=TINY, is_slow=True,
        free=(1000, 2e-4)),
    Row("intervals-records-weighted", "DPAdmmHuberRegressor", "ConsensusADMM", linear=None,
        params={"intervals": True, "epsilon": 600.0, "conditioning": "private", **MAX_WEIGHT}),
    # Releases at the model, for intervals of its coefficients, with budgets that detect directions.
    Row("intervals", "DPAdmmRidge", "ConsensusADMM", linear=None,
        params={"intervals": True, "epsilon": 150.0}),
    Row("intervals-zero-out", "DPAdmmLogisticRegression", "ConsensusADMM", target="two",
        params={"intervals": True, **NO_INTERCEPT}, linear=None),
    Row("intervals-persons-conditioned", "DPAdmmHuberRegressor", "ConsensusADMM", linear=None,
        params={"intervals": True, "epsilon": 600.0, "conditioning": "private", **OF_PERSONS}),
    Row("intervals-persons-gradient", "DPAdmmLogisticRegression", "GradientDescent", target="two",
        params={"intervals": True, "row_norm": 1.0, "feature_bounds": None, **OF_PERSONS},
        linear=None, is_slow=True),
    Row("intervals-poisson", "DPAdmmPoissonRegressor", "ConsensusADMM", linear=None, free=None,
        params={"intervals": True, "epsilon": 600.0, "target_bounds": (0.0, 20.0)}),
    Row("intervals-gamma-persons-zero-out", "DPAdmmGammaRegressor", "ConsensusADMM", linear=None,
        params={"intervals": True, "epsilon": 600.0, "target_bounds": (0.1, 9.0),
        "neighboring": "zero_out", "conditioning": "private", **OF_PERSONS}, free=None),
    Row("intervals-poisson-zero-out", "DPAdmmPoissonRegressor", "ConsensusADMM", linear=None,
        params={"intervals": True, "epsilon": 600.0, "target_bounds": (0.0, 20.0),
        "conditioning": "private", **NO_INTERCEPT}, free=None),
    Row("intervals-tweedie-weighted", "DPAdmmTweedieRegressor", "ConsensusADMM", linear=None,
        params={"intervals": True, "epsilon": 300.0, "target_bounds": (0.2, 9.0),
        "conditioning": "private", **MAX_WEIGHT}, free=None, is_slow=True),
    Row("intervals-federated", "DPFedRidge", "FederatedADMM", linear=None,
        params={"intervals": True, "epsilon": 200.0, "conditioning": "private"}),
    Row("intervals-federated-alone", "DPFedLogisticRegression", "FederatedADMM", {"edge_noise": 0},
        target="two", params={"intervals": True, "epsilon": 600.0, "dropout": 0.1}, linear=None,
        free=None),
    Row("intervals-federated-sums-zero-out", "DPFedLogisticRegression", "FederatedADMM",
        target="two", params={"intervals": True, "adversary": "sums", "n_honest": 3,
        **NO_INTERCEPT}, linear=None),
    Row("intervals-federated-sharing", "DPFedRidge", "FederatedADMM", {"sharing": True},
        params={"intervals": True, "adversary": "sums"}, linear=None, is_slow=True),
    Row("intervals-federated-descent", "DPFedLogisticRegression", "SecretSharingGradientDescent",
        {"n_curators": 3}, target="two", params={"intervals": True, "epsilon": 200.0,
        "conditioning": "private"}, linear=None, is_slow=True),
    Row("intervals-federated-sampled", "DPFedRidge", "FederatedADMM", linear=None, is_slow=True,
        params={"intervals": True, "adversary": "model", "participation": 0.5}, free=None),
    # One record more or less, of a number that is released first.
    Row("consensus-add-remove", "DPAdmmRidge", "ConsensusADMM", params=ADD_REMOVE,
        optimum=(FAR, 1e-9), is_quick=True),
    Row("consensus-add-remove-conditioned-scaled", "DPAdmmLinearSVC", "ConsensusADMM",
        target="two", params={**ADD_REMOVE, "feature_bounds": None, "scale": "private",
        "conditioning": "private", "epsilon": 1.0}, linear=None),
    Row("consensus-add-remove-sparse", "DPAdmmLogisticRegression", "ConsensusADMM",
        {"relaxation": 0.8}, target="three", params={**ADD_REMOVE, "feature_bounds": None,
        "row_norm": 1.0, "epsilon": 1.0},
        is_sparse=True, reaches=0.2, is_slow=True),
    Row("gradient-add-remove-centred", "DPAdmmLasso", "GradientDescent", params={**ADD_REMOVE,
        "alpha": 0.01, "epsilon": 300.0, "scale": "auto"}, linear=None),
    Row("intervals-add-remove", "DPAdmmLogisticRegression", "ConsensusADMM", target="two",
        params={**ADD_REMOVE, "intervals": True, "epsilon": 150.0}, linear=None),
    # Weights of classes: a clip of weighted gradients, or constants of the weighted loss.
    Row("weighted-consensus", "DPAdmmLogisticRegression", "ConsensusADMM", target="two",
        params=WEIGHTED, optimum=(WIDE, 1e-6), free=(1500, 1e-4)),
    Row("weighted-consensus-conditioned", "DPAdmmLinearSVC", "ConsensusADMM", target="three",
        params={"conditioning": "private", **WEIGHTED}, reaches=0.577, free=(3000, 1e-3)),
    Row("weighted-averaged", "DPAdmmLogisticRegression", "AveragedADMM", {"guarantee": "last"},
        target="two", params={"C": 1.0, **WEIGHTED, **NO_INTERCEPT}, reaches=0.98,
        composes=False, is_slow=True, hides_path=True),
    Row("weighted-gradient-last", "DPAdmmLogisticRegression", "GradientDescent",
        {"guarantee": "last"}, target="two", params={"C": 1.0, **WEIGHTED}, composes=False,
        is_slow=True, hides_path=True),
    Row("weighted-gradient-admm", "DPAdmmLinearSVC", "GradientADMM", target="two",
        params=WEIGHTED, composes=False, hides_path=True),
    Row("weighted-objective", "DPAdmmLogisticRegression", "ObjectivePerturbation", target="two",
        unseen=("minimiser",), params=WEIGHTED, linear=None, is_slow=True, hides_path=True),
    Row("weighted-federated", "DPFedLogisticRegression", "FederatedADMM", target="three",
        params=WEIGHTED, reaches=0.866, free=(1500, 1e-4)),
    Row("weighted-walk", "DPDecentralizedClassifier", "RandomWalkADMM", target="two",
        params={"adversary": "peer", **WEIGHTED}, reaches=0.99, composes=False, is_slow=True),
    Row("weighted-personal", "DPPersonalizedClassifier", "PersonalizedCoordinateDescent",
        {"warm_start": "propagation"}, target="two", params=WEIGHTED, linear=TINY, is_slow=True,
        free=(4000, 1e-6)),
    # Averaged ADMM, coordinates and gradients: the whole path, and the last iterate alone.
    Row("averaged-path", "DPAdmmRidge", "AveragedADMM", {"guarantee": "path"}, linear=TINY,
        reaches=0.98, optimum=(FAR, 1e-7), is_quick=True),
    Row("averaged-path-zero-out", "DPAdmmLogisticRegression", "AveragedADMM", target="two",
        params={"C": 1.0, **NO_INTERCEPT}, reaches=0.98, optimum=(FAR, 1e-6)),
    Row("averaged-last", "DPAdmmRidge", "AveragedADMM", {"guarantee": "last"},
        params={"fit_intercept": False}, reaches=0.98, composes=False, hides_path=True,
        is_quick=True),
    Row("coordinates-cyclic", "DPAdmmLasso", "CoordinateDescent", params={"alpha": 0.01},
        linear=TINY, is_quick=True),
    Row("coordinates-random-zero-out", "DPAdmmLogisticRegression", "CoordinateDescent",
        {"schedule": "random"}, target="two", params=NO_INTERCEPT, optimum=(FAR, 1e-9)),
    Row("gradient-path", "DPAdmmRidge", "GradientDescent", {"guarantee": "path"}, linear=TINY,
        optimum=(FAR, 1e-9), is_quick=True),
    Row("gradient-momentum-three-classes", "DPAdmmLogisticRegression", "GradientDescent",
        {"momentum": 0.5, "guarantee": "path"}, target="three", reaches=0.866,
        optimum=(FAR, 1e-9)),
    Row("gradient-last-zero-out", "DPAdmmHuberRegressor", "GradientDescent", {"guarantee": "last"},
        params={"alpha": 1.0, **NO_INTERCEPT}, composes=False, hides_path=True, is_quick=True),
    Row("gradient-last-norm", "DPAdmmRidge", "GradientDescent", {"guarantee": "last"},
        params={"feature_bounds": None, "row_norm": 50.0}, composes=False, hides_path=True,
        free=None),
    Row("gradient-cyclic", "DPAdmmRidge", "GradientDescent", {"schedule": "cyclic"},
        composes=False, hides_path=True, free=None),
    # Secret batches of records, and of persons with all of their rows.
    Row("gradient-batches", "DPAdmmRidge", "GradientDescent", {"batch_fraction": 0.5},
        params={"max_iter": 3}, linear=TINY, composes=False, free=None),
    Row("gradient-batches-persons-zero-out", "DPAdmmLogisticRegression", "GradientDescent",
        {"batch_fraction": 0.5, "momentum": 0.5}, target="two", params={**OF_PERSONS,
        **NO_INTERCEPT}, linear=TINY, composes=False, is_slow=True, free=None),
    # Maps of the user's own: two models in a state, and points that are not the state.
    Row("own-iteration", "DPAdmmLogisticRegression", "FixedPointIteration", {"update": heavy_ball,
        "at": latest, "state": TWO}, target="three", linear=TINY, reaches=0.866, is_quick=True),
    Row("own-iteration-persons-zero-out", "DPAdmmRidge", "FixedPointIteration", {"update":
        linearized_admm, "at": consensus}, params={**OF_PERSONS, **NO_INTERCEPT}, linear=TINY,
        is_slow=True),
    # Gradient ADMM: orders of records, and what is released.
    Row("gradient-admm-last", "DPAdmmRidge", "GradientADMM", composes=False, hides_path=True),
    Row("gradient-admm-path-zero-out", "DPAdmmLogisticRegression", "GradientADMM",
        {"release": "path"}, target="two", params={"C": 1.0, **NO_INTERCEPT}, composes=False,
        is_quick=True),
    Row("gradient-admm-sampling", "DPAdmmRidge", "GradientADMM", {"schedule": "sampling"},
        composes=False, hides_path=True),
    Row("gradient-admm-stopping", "DPAdmmRidge", "GradientADMM", {"schedule": "stopping"},
        composes=False, hides_path=True),
    Row("gradient-admm-stream", "DPAdmmRidge", "GradientADMM", {"schedule": "stream"},
        pieces=(5, 1, 6), hides_path=True),
    # Noise that cancels: with a large budget the first stage ends after 32 records. A record is in
    # all later sums of gradients, and less and less so.
    Row("dual-averaging", "DPAdmmRidge", "DualAveraging", pieces=(5, 1, 30), **IN_STAGES,
        params={"epsilon": 50.0}),
    Row("dual-averaging-zero-out", "DPAdmmLogisticRegression", "DualAveraging", target="two",
        pieces=(33, 1), params={"epsilon": 50.0, **NO_INTERCEPT}, **IN_STAGES),
    Row("dual-averaging-three-classes", "DPAdmmLogisticRegression", "DualAveraging",
        target="three", pieces=(20, 13), params={"epsilon": 50.0}, is_slow=True, **IN_STAGES),
    Row("dual-averaging-hinge-sparse", "DPAdmmLinearSVC", "DualAveraging", target="three",
        pieces=(33,), params={"epsilon": 50.0, "feature_bounds": None, **WEIGHTED},
        is_sparse=True, is_slow=True, **IN_STAGES),
    Row("dual-averaging-lasso", "DPAdmmLasso", "DualAveraging", pieces=(32, 2),
        params={"epsilon": 50.0, "alpha": 0.01}, is_slow=True, **IN_STAGES),
    Row("dual-averaging-huber", "DPAdmmHuberRegressor", "DualAveraging", pieces=(33,),
        params={"epsilon": 50.0, "feature_bounds": None, "row_norm": 0.5}, is_slow=True,
        **IN_STAGES),
    Row("dual-averaging-fused", "DPAdmmGeneralizedLasso", "DualAveraging", pieces=(34, 2),
        params={"epsilon": 50.0, "alpha": 0.01}, is_slow=True, **IN_STAGES),
    # Noise that stays hidden.
    Row("objective", "DPAdmmRidge", "ObjectivePerturbation", unseen=("minimiser",), linear=None,
        hides_path=True, is_quick=True),
    Row("objective-zero-out", "DPAdmmLogisticRegression", "ObjectivePerturbation", target="two",
        unseen=("minimiser",), params={"C": 1.0, **NO_INTERCEPT}, linear=None, hides_path=True),
    # Around a server.
    Row("federated-server", "DPFedRidge", "FederatedADMM", optimum=(FAR, 1e-9), is_quick=True),
    Row("federated-server-alone", "DPFedRidge", "FederatedADMM", {"edge_noise": 0},
        optimum=(FAR, 1e-9)),
    Row("federated-pairs-agent-zero-out", "DPFedLogisticRegression", "FederatedADMM",
        {"edge_noise": 3.0}, target="two", params={"n_honest": 2, "privacy_unit": "agent",
        "dropout": 0.1, **NO_INTERCEPT}, optimum=None, free=None),
    Row("federated-sums-honest-zero-out", "DPFedLogisticRegression", "FederatedADMM", target="two",
        params={"adversary": "sums", "n_honest": 3, **NO_INTERCEPT}, optimum=(FAR, 1e-9)),
    Row("federated-increments-poisson-agent", "DPFedLasso", "FederatedADMM",
        {"message": "increment"}, params={"alpha": 0.01, "adversary": "model",
        "participation": 0.5, "privacy_unit": "agent"}, reaches=0.3, composes=False),
    Row("federated-increments-agent-zero-out", "DPFedLogisticRegression", "FederatedADMM",
        {"message": "increment"}, target="three", params={"adversary": "model",
        "participation": 0.5, "privacy_unit": "agent", "neighboring": "zero_out"}, reaches=0.3,
        composes=False, is_slow=True),
    Row("federated-increments-relaxed", "DPFedRidge", "FederatedADMM",
        {"message": "increment", "relaxation": 0.9}, reaches=0.05, free=None),
    Row("federated-fixed-sample", "DPFedElasticNet", "FederatedADMM", {"message": "increment",
        "sampling": "fixed"}, params={"alpha": 0.01, "adversary": "server", "participation": 0.5,
        "max_iter": 8}, composes=False),
    Row("federated-dropout-agent", "DPFedRidge", "FederatedADMM", {"local_step": "linearized"},
        params={"adversary": "sums", "dropout": 0.2, "privacy_unit": "agent", "random_state": 1},
        free=(400, 0.05)),
    Row("sharing-federated", "DPFedRidge", "SecretSharingGradientDescent",
        params={"adversary": "sums"}, linear=TINY, optimum=(FAR, 1e-9), is_quick=True),
    Row("sharing-federated-agent-zero-out", "DPFedLogisticRegression",
        "SecretSharingGradientDescent", {"n_curators": 2}, target="three",
        params={"adversary": "model", "privacy_unit": "agent", **NO_INTERCEPT},
        optimum=(FAR, 1e-9)),
    # Shared messages of ADMM, and sums that survive absences.
    Row("sharing-threshold-dropout", "DPFedRidge", "SecretSharingGradientDescent",
        {"n_curators": 3, "threshold": 2}, params={"adversary": "sums", "dropout": 0.2,
        "random_state": 1}, linear=TINY, free=(400, 0.05)),
    Row("shared-admm", "DPFedRidge", "FederatedADMM", {"sharing": True},
        params={"adversary": "sums", "n_honest": 3}, optimum=(FAR, 1e-9), is_quick=True),
    Row("shared-admm-threshold-dropout-agent", "DPFedLasso", "FederatedADMM", {"sharing": True,
        "n_curators": 4, "threshold": 3, "local_step": "linearized"}, params={"alpha": 0.01,
        "adversary": "sums", "dropout": 0.2, "privacy_unit": "agent", "random_state": 1},
        free=(400, 0.05)),
    Row("shared-admm-increments-agent-zero-out", "DPFedLogisticRegression", "FederatedADMM",
        {"sharing": True, "message": "increment"}, target="three", params={"adversary": "model",
        "privacy_unit": "agent", "neighboring": "zero_out"}, reaches=0.3, composes=False),
    Row("shared-admm-graph-relaxed", "DPDecentralizedClassifier", "FederatedADMM",
        {"sharing": True, "relaxation": 0.2, "n_curators": 3, "threshold": 2}, target="three",
        params={"adversary": "peer", **NO_INTERCEPT}, reaches=0.5, optimum=(FAR, 1e-6)),
    # On a graph.
    Row("graph-gradient", "DPDecentralizedRegressor", "DecentralizedGradientDescent",
        params={"topology": "ring"}, optimum=({**FAR, "step_size": 0.3}, 0.03), free=(400, 0.03),
        is_quick=True),
    Row("graph-gradient-coalition", "DPDecentralizedClassifier", "DecentralizedGradientDescent",
        {"edge_noise": 4.0}, target="two", params={"coalition": 2, "privacy_unit": "agent"},
        free=None),
    Row("graph-gradient-alone", "DPDecentralizedRegressor", "DecentralizedGradientDescent",
        {"edge_noise": 0}, params={"topology": "ring"}, free=(400, 0.03)),
    Row("graph-gradient-agent-zero-out", "DPDecentralizedClassifier",
        "DecentralizedGradientDescent", {"batch_fraction": 0.5}, target="two",
        params={"topology": "ring"}, reaches=0.5, composes=False, free=None),
    Row("multi-step", "DPDecentralizedRegressor", "MultiStepADMM", params={"topology": "ring"},
        optimum=({**FAR, "step_size": 0.3}, 1e-9), is_quick=True),
    Row("multi-step-agent-zero-out", "DPDecentralizedClassifier", "MultiStepADMM", target="three",
        params={"privacy_unit": "agent", **NO_INTERCEPT}, optimum=(FAR, 1e-9)),
    Row("multi-step-batches", "DPDecentralizedClassifier", "MultiStepADMM",
        {"batch_fraction": 0.5}, target="two", params={"neighboring": "zero_out"}, reaches=0.5,
        composes=False, is_slow=True, free=None),
    # Graphs that fail, change or are directed: what is planned and counted is the same.
    Row("multi-step-absent", "DPDecentralizedRegressor", "MultiStepADMM",
        params={"topology": "ring", "participation": 0.6, "dropout": 0.3},
        optimum=({**FAR, "step_size": 0.3}, 1e-3), free=(400, 1e-3)),
    Row("multi-step-changing-agent-zero-out", "DPDecentralizedClassifier", "MultiStepADMM",
        target="two", params={"topology": TURNS, "privacy_unit": "agent", "dropout": 0.2,
        **NO_INTERCEPT}, is_slow=True, free=(400, 1e-3)),
    Row("graph-gradient-absent", "DPDecentralizedClassifier", "DecentralizedGradientDescent",
        target="two", params={"participation": 0.5, "dropout": 0.2}, free=None),
    Row("graph-gradient-directed", "DPDecentralizedRegressor", "DecentralizedGradientDescent",
        params={"topology": arcs}, optimum=({**FAR, "step_size": 0.1}, 0.03), free=(400, 0.1)),
    Row("aggregators-admm", "DPDecentralizedRegressor", "RandomizedADMM", linear=TINY,
        optimum=(WIDE, 1e-4), is_quick=True),
    Row("aggregators-admm-pure-zero-out", "DPDecentralizedClassifier", "RandomizedADMM",
        target="two", params={"delta": 0.0, **NO_INTERCEPT}, linear=TINY),
    Row("aggregators-admm-fixed-zero-out", "DPDecentralizedClassifier", "RandomizedADMM",
        {"noise": "gaussian", "aggregator": "fixed"}, target="two", params=NO_INTERCEPT,
        linear=TINY),
    Row("aggregators-gradient", "DPDecentralizedRegressor", "RandomizedGradientDescent",
        {"mixing": "interval", "noise_decay": 0.9}, params={"max_iter": 2}, linear=TINY, free=None),
    Row("aggregators-gradient-gaussian-zero-out", "DPDecentralizedClassifier",
        "RandomizedGradientDescent", {"mixing": "pair", "noise": "gaussian"}, target="three",
        params=NO_INTERCEPT, free=(400, 1.0)),
    Row("aggregators-sgd", "DPDecentralizedRegressor", "RandomizedSGD", linear=TINY, free=None),
    Row("aggregators-sgd-gaussian-agent", "DPDecentralizedRegressor", "RandomizedSGD",
        {"noise": "gaussian"}, params={"privacy_unit": "agent", "neighboring": "zero_out"},
        linear=TINY, reaches=0.91, free=None),
    Row("walk-admm", "DPDecentralizedRegressor", "RandomWalkADMM", params={"adversary": "peer"},
        reaches=0.99, composes=False, optimum=(FAR, 1e-5)),
    Row("walk-point-zero-out", "DPDecentralizedClassifier", "RandomWalkProximalPoint",
        target="two", params={"adversary": "eavesdropper", **NO_INTERCEPT}, reaches=0.99,
        composes=False, hides_path=True, free=None, is_quick=True),
    Row("sharing-graph-coalition", "DPDecentralizedRegressor", "SecretSharingGradientDescent",
        params={"adversary": "peer", "coalition": 2}, linear=TINY),
    # Models of their own.
    Row("personal-laplace", "DPPersonalizedRegressor", "PersonalizedCoordinateDescent",
        {"noise": "laplace", "warm_start": None}, linear=TINY),
    Row("personal-pure", "DPPersonalizedRegressor", "PersonalizedCoordinateDescent",
        {"noise": "laplace", "warm_start": "propagation", "split": "optimal"},
        params={"delta": 0.0}, linear=TINY),
    Row("personal-warm", "DPPersonalizedRegressor", "PersonalizedCoordinateDescent",
        {"warm_start": "propagation"}, linear=TINY, is_quick=True),
    Row("personal-agent-zero-out", "DPPersonalizedClassifier", "PersonalizedCoordinateDescent",
        {"warm_start": None, "split": "optimal"}, target="two", params={"privacy_unit": "agent",
        **NO_INTERCEPT}, linear=TINY),
    Row("personal-three-classes", "DPPersonalizedClassifier", "PersonalizedCoordinateDescent",
        {"noise": "laplace", "warm_start": "propagation", "split": "optimal"}, target="three",
        linear=TINY, reaches=0.707),
    Row("personal-delayed", "DPPersonalizedRegressor", "PersonalizedCoordinateDescent",
        {"warm_start": None, "delay": 2}, linear=TINY),
    Row("personal-local", "DPPersonalizedRegressor", "LocalModels", linear=TINY),
]
# In linear tests one column of three changes, and some parts of scores.
STATISTICS = [
    Statistic("bounds", "private_bounds", bounds_of, reaches=3**-0.5),
    Statistic("bounds-categories", "private_bounds", bounds_of, target="two",
        params={"categories": [2]}, reaches=(2 / 7) ** 0.5),
    Statistic("bounds-zero-out", "private_bounds", bounds_of, params={"neighboring": "zero_out"},
        linear=None),
    Statistic("scores", "private_score", scores_of, target="two",
        params={"model": Chances((0, 1))}, reaches=0.699),
    Statistic("scores-zero-out", "private_score", scores_of, target="two",
        params={"model": Chances((0, 1)), "neighboring": "zero_out"}, linear=None),
    Statistic("scores-numbers", "private_score", scores_of, reaches=0.75,
        params={"model": Numbers(), "target_bounds": (-2.0, 2.0)}),
]
# fmt: on
BY_ID = {row.id: row for row in [*ROWS, *STATISTICS]}
