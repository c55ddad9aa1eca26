"""One file per algorithm, named after it, each stating its paper and equations.

An algorithm is an object with parameters and two methods that the types keep apart: ``plan(facts,
budget)`` sees no data and decides every noise scale; ``run(plan, problem, gate)`` touches data and
can change nothing of the guarantee. A new algorithm is a new file here and a name in the registry.
"""

from skdpadmm._sklearn import AT_LEAST_0, AUTO, COUNT, FRACTION, SIZE, Interval, OneOf, parameter
from skdpadmm.algorithms._algorithm import Algorithm, penalty_operator
from skdpadmm.algorithms._averaged_admm import AveragedADMM
from skdpadmm.algorithms._clipped_sums import ClippedSum
from skdpadmm.algorithms._consensus_admm import ConsensusADMM, FederatedADMM
from skdpadmm.algorithms._debiased_step import debiased
from skdpadmm.algorithms._decentralized_gradient_descent import DecentralizedGradientDescent
from skdpadmm.algorithms._dual_averaging import DualAveraging
from skdpadmm.algorithms._fixed_point_iteration import FixedPointIteration
from skdpadmm.algorithms._gradient_admm import GradientADMM
from skdpadmm.algorithms._gradient_descent import CoordinateDescent, GradientDescent
from skdpadmm.algorithms._inference import share_of_fit, with_inference
from skdpadmm.algorithms._multi_step_admm import MultiStepADMM
from skdpadmm.algorithms._noise_left import without_stretch
from skdpadmm.algorithms._objective_perturbation import ObjectivePerturbation
from skdpadmm.algorithms._personalized_coordinate_descent import (
    LateJoiner,
    PersonalizedCoordinateDescent,
)
from skdpadmm.algorithms._personalized_optimum import (
    LocalModels,
    PersonalizedOptimum,
    refit_at_home,
)
from skdpadmm.algorithms._preparations import (
    COUNT_SHARE,
    LARGEST_COUNT,
    condition,
    prepared,
    recentre,
    released_count,
    rescale,
    with_count,
)
from skdpadmm.algorithms._proximal_newton import ProximalNewton
from skdpadmm.algorithms._random_aggregators import (
    RandomizedADMM,
    RandomizedGradientDescent,
    RandomizedSGD,
)
from skdpadmm.algorithms._random_walks import RandomWalkADMM, RandomWalkProximalPoint
from skdpadmm.algorithms._registry import (
    ALGORITHMS,
    exact_algorithm,
    resolve_algorithm,
    stream_algorithm,
)
from skdpadmm.algorithms._secret_sharing_gradient_descent import SecretSharingGradientDescent

__all__ = [
    "ALGORITHMS",
    "AT_LEAST_0",
    "AUTO",
    "COUNT",
    "COUNT_SHARE",
    "FRACTION",
    "LARGEST_COUNT",
    "SIZE",
    "Algorithm",
    "AveragedADMM",
    "ClippedSum",
    "ConsensusADMM",
    "CoordinateDescent",
    "DecentralizedGradientDescent",
    "DualAveraging",
    "FederatedADMM",
    "FixedPointIteration",
    "GradientADMM",
    "GradientDescent",
    "Interval",
    "LateJoiner",
    "LocalModels",
    "MultiStepADMM",
    "ObjectivePerturbation",
    "OneOf",
    "PersonalizedCoordinateDescent",
    "PersonalizedOptimum",
    "ProximalNewton",
    "RandomWalkADMM",
    "RandomWalkProximalPoint",
    "RandomizedADMM",
    "RandomizedGradientDescent",
    "RandomizedSGD",
    "SecretSharingGradientDescent",
    "condition",
    "debiased",
    "exact_algorithm",
    "parameter",
    "penalty_operator",
    "prepared",
    "recentre",
    "refit_at_home",
    "released_count",
    "rescale",
    "resolve_algorithm",
    "share_of_fit",
    "stream_algorithm",
    "with_count",
    "with_inference",
    "without_stretch",
]
