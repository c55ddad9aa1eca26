"""One file per algorithm, named after it, each stating its paper and equations.

An algorithm is an object with knobs and two methods that the types keep apart: ``plan(facts,
budget)`` sees no data and decides every noise scale; ``run(plan, problem, gate)`` touches data and
can change nothing of the guarantee. A new algorithm is a new file here and a name in the registry.
"""

from skdpadmm.algorithms._averaged_admm import AveragedADMM
from skdpadmm.algorithms._consensus_admm import ConsensusADMM
from skdpadmm.algorithms._contract import Algorithm
from skdpadmm.algorithms._coordinate_descent import CoordinateDescent
from skdpadmm.algorithms._decentralized_gradient_descent import DecentralizedGradientDescent
from skdpadmm.algorithms._dual_perturbation_admm import DualPerturbationADMM
from skdpadmm.algorithms._exact_consensus_admm import ExactConsensusADMM
from skdpadmm.algorithms._federated_admm import FederatedADMM
from skdpadmm.algorithms._gradient_admm import GradientADMM, unseen_guarantees
from skdpadmm.algorithms._gradient_descent import GradientDescent
from skdpadmm.algorithms._multi_step_admm import MultiStepADMM
from skdpadmm.algorithms._objective_perturbation import ObjectivePerturbation
from skdpadmm.algorithms._primal_perturbation_admm import PrimalPerturbationADMM
from skdpadmm.algorithms._proximal_newton import ProximalNewton
from skdpadmm.algorithms._random_walk_admm import RandomWalkADMM
from skdpadmm.algorithms._random_walk_proximal_point import RandomWalkProximalPoint
from skdpadmm.algorithms._registry import names_of_algorithms, resolve_algorithm
from skdpadmm.algorithms.planning._multi_step_theory import multi_step_bound, useful_steps
from skdpadmm.algorithms.preparations._conditioning import condition
from skdpadmm.algorithms.preparations._preparation import prepared
from skdpadmm.algorithms.preparations._scaling import rescale

__all__ = [
    "Algorithm",
    "AveragedADMM",
    "ConsensusADMM",
    "CoordinateDescent",
    "DecentralizedGradientDescent",
    "DualPerturbationADMM",
    "ExactConsensusADMM",
    "FederatedADMM",
    "GradientADMM",
    "GradientDescent",
    "MultiStepADMM",
    "ObjectivePerturbation",
    "PrimalPerturbationADMM",
    "ProximalNewton",
    "RandomWalkADMM",
    "RandomWalkProximalPoint",
    "condition",
    "multi_step_bound",
    "names_of_algorithms",
    "prepared",
    "rescale",
    "resolve_algorithm",
    "unseen_guarantees",
    "useful_steps",
]
