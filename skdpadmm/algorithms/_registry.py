"""Names of algorithms, for users who are content with the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sklearn.base import clone

from skdpadmm.algorithms._algorithm import Algorithm, serves
from skdpadmm.algorithms._averaged_admm import AveragedADMM
from skdpadmm.algorithms._consensus_admm import ConsensusADMM, FederatedADMM
from skdpadmm.algorithms._decentralized_gradient_descent import DecentralizedGradientDescent
from skdpadmm.algorithms._gradient_admm import GradientADMM
from skdpadmm.algorithms._gradient_descent import CoordinateDescent, GradientDescent
from skdpadmm.algorithms._multi_step_admm import MultiStepADMM
from skdpadmm.algorithms._objective_perturbation import ObjectivePerturbation
from skdpadmm.algorithms._personalized_coordinate_descent import PersonalizedCoordinateDescent
from skdpadmm.algorithms._personalized_optimum import LocalModels, PersonalizedOptimum
from skdpadmm.algorithms._proximal_newton import ProximalNewton
from skdpadmm.algorithms._random_walks import RandomWalkADMM, RandomWalkProximalPoint
from skdpadmm.algorithms._randomized_admm import RandomizedADMM
from skdpadmm.algorithms._randomized_descent import RandomizedGradientDescent, RandomizedSGD
from skdpadmm.algorithms._secret_sharing_gradient_descent import SecretSharingGradientDescent

ALGORITHMS: Mapping[str, type[Algorithm]] = MappingProxyType(
    {
        "averaged-admm": AveragedADMM,
        "consensus-admm": ConsensusADMM,
        "coordinate-descent": CoordinateDescent,
        "decentralized-gradient-descent": DecentralizedGradientDescent,
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
)

# What every algorithm of a setting approximates, without privacy; elsewhere `ProximalNewton`.
EXACT: Mapping[str, type[Algorithm]] = MappingProxyType({"personalized": PersonalizedOptimum})


def exact_algorithm(setting: str) -> Algorithm:
    """The algorithm that finds the optimum of a setting, for ``epsilon=inf``.

    Parameters
    ----------
    setting : {"central", "federated", "decentralized", "personalized"}

    Returns
    -------
    Algorithm
    """
    return EXACT.get(setting, ProximalNewton)()


def names_of_algorithms(setting: str) -> list[str]:
    """Names of the algorithms that serve a setting.

    Parameters
    ----------
    setting : {"central", "federated", "decentralized", "personalized"}

    Returns
    -------
    list of str
    """
    return sorted(name for name, made in ALGORITHMS.items() if serves(made, setting))


def resolve_algorithm(algorithm: str | Algorithm) -> Algorithm:
    """The algorithm that a name stands for, or an independent copy of an algorithm object.

    Parameters
    ----------
    algorithm : str or Algorithm

    Raises
    ------
    ValueError
        Where the name is not known.
    TypeError
        Where the object is not an algorithm.

    Examples
    --------
    >>> from skdpadmm.algorithms import resolve_algorithm
    >>> resolve_algorithm("consensus-admm")
    ConsensusADMM()
    """
    if isinstance(algorithm, str):
        if algorithm not in ALGORITHMS:
            raise ValueError(
                f"Got algorithm={algorithm!r}, expected one of {sorted(ALGORITHMS)} or an algorithm"
                " object. Pass an object to set knobs of its own."
            )
        return ALGORITHMS[algorithm]()
    if isinstance(algorithm, type) or not isinstance(algorithm, Algorithm):
        raise TypeError(
            f"Got algorithm={algorithm!r}, expected one of {sorted(ALGORITHMS)} or an algorithm"
            " object, such as ConsensusADMM()."
        )
    copy: Algorithm = clone(algorithm)
    return copy
