"""Names of algorithms, for users who are content with the defaults."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from skdpadmm.algorithms._algorithm import Algorithm, serves
from skdpadmm.algorithms._averaged_admm import AveragedADMM
from skdpadmm.algorithms._consensus_admm import ConsensusADMM, FederatedADMM
from skdpadmm.algorithms._decentralized_gradient_descent import DecentralizedGradientDescent
from skdpadmm.algorithms._dual_averaging import DualAveraging
from skdpadmm.algorithms._gradient_admm import GradientADMM
from skdpadmm.algorithms._gradient_descent import CoordinateDescent, GradientDescent
from skdpadmm.algorithms._multi_step_admm import MultiStepADMM
from skdpadmm.algorithms._objective_perturbation import ObjectivePerturbation
from skdpadmm.algorithms._personalized_coordinate_descent import PersonalizedCoordinateDescent
from skdpadmm.algorithms._personalized_optimum import LocalModels, PersonalizedOptimum
from skdpadmm.algorithms._proximal_newton import ProximalNewton
from skdpadmm.algorithms._random_aggregators import (
    RandomizedADMM,
    RandomizedGradientDescent,
    RandomizedSGD,
)
from skdpadmm.algorithms._random_walks import RandomWalkADMM, RandomWalkProximalPoint
from skdpadmm.algorithms._secret_sharing_gradient_descent import SecretSharingGradientDescent

ALGORITHMS: dict[str, type[Algorithm]] = {
    "averaged-admm": AveragedADMM,
    "consensus-admm": ConsensusADMM,
    "coordinate-descent": CoordinateDescent,
    "decentralized-gradient-descent": DecentralizedGradientDescent,
    "dual-averaging": DualAveraging,
    "federated-admm": FederatedADMM,
    "gradient-admm": GradientADMM,
    "gradient-descent": GradientDescent,
    "local-models": LocalModels,
    "multi-step-admm": MultiStepADMM,
    "objective-perturbation": ObjectivePerturbation,
    "personalized-coordinate-descent": PersonalizedCoordinateDescent,
    "random-walk-admm": RandomWalkADMM,
    "random-walk-proximal-point": RandomWalkProximalPoint,
    "randomized-admm": RandomizedADMM,
    "randomized-gradient-descent": RandomizedGradientDescent,
    "randomized-sgd": RandomizedSGD,
    "secret-sharing-gradient-descent": SecretSharingGradientDescent,
}


def exact_algorithm(setting: str, *, trace: bool = False) -> Algorithm:
    """The algorithm that finds the optimum of a setting, for ``epsilon=inf``."""
    exact = PersonalizedOptimum if setting == "personalized" else ProximalNewton
    return exact(trace=trace)


def stream_algorithm(algorithm: object) -> Any:
    """The algorithm of that name, or the object, if it takes records as they arrive, or None."""
    found = ALGORITHMS[algorithm]() if algorithm in list(ALGORITHMS) else algorithm
    return found if isinstance(found, Algorithm) and found.streaming else None


def resolve_algorithm(
    algorithm: str | Algorithm, setting: str, *, of_persons: bool = False
) -> Algorithm:
    """The algorithm of that name, or an independent copy of an algorithm object.

    Parameters
    ----------
    algorithm : str or Algorithm
    setting : {"central", "federated", "decentralized", "personalized"}
        Which it has to serve.
    of_persons : bool, default=False
        Whether persons are the unit, all of whose rows it has to protect.

    Raises
    ------
    ValueError
        Where no algorithm of the setting has the name, or the object serves another setting.
    TypeError
        Where the object is not an algorithm.

    Examples
    --------
    >>> from skdpadmm.algorithms import resolve_algorithm
    >>> resolve_algorithm("consensus-admm", "central")
    ConsensusADMM()
    """

    def is_served(kind: Algorithm | type[Algorithm]) -> bool:
        return serves(kind, setting) and (not of_persons or "person" in kind.units)

    names = sorted(name for name, kind in ALGORITHMS.items() if is_served(kind))
    if isinstance(algorithm, str) and algorithm in names:
        return ALGORITHMS[algorithm]()
    if isinstance(algorithm, Algorithm) and is_served(algorithm):
        copy: Algorithm = clone(algorithm)
        return copy
    error = ValueError if isinstance(algorithm, str | Algorithm) else TypeError
    is_sgd = str(algorithm).lower().endswith("sgd") and setting == "central"
    raise error(
        f"Got algorithm={algorithm!r}, expected one of {names} or a {setting} algorithm object"
        f"{' that protects persons' * of_persons}, such as {ALGORITHMS[names[0]].__name__}()."
        f"{' DP-SGD is GradientDescent(batch_fraction=0.1).' * is_sgd}"
    )
